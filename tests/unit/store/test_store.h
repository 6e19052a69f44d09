/* test_store.h - a store in a directory that vanishes, with one client, and system calls that fail or hang on
 * order. */
#ifndef PLATEAU_TESTS_TEST_STORE_H
#define PLATEAU_TESTS_TEST_STORE_H

#include "test_files.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "cache/prefix_key.h"
#include "cache/tier_io.h"
#include "store/store.h"
#include "store/store_file.h"
#include "store/store_sys.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#define PAGE_BYTES   20000u /* no whole number of blocks */
#define STATE_BYTES  70016u
#define WINDOW_BYTES 12288u
#define PENDING_MAX  4u

/* ---- the system, with faults ---- */

enum call {
    CALL_OPEN,
    CALL_CLOSE,
    CALL_PREAD,
    CALL_PWRITE,
    CALL_RENAME,
    CALL_UNLINK,
    CALL_MKDIR,
    CALL_STAT,
    CALL_FSTAT,
    CALL_TOUCH,
    CALL_LOCK,
    CALL_SPACE,
    CALL_LIST,
    CALLS
};

static struct {
    atomic_uint counts[CALLS];
    atomic_int fails[CALLS]; /* -errno from call number `from` on; 0: none */
    atomic_uint from[CALLS], to[CALLS];
    atomic_uint hangs;   /* the call that hangs, plus 1 */
    atomic_uint hanging; /* threads that do */
    atomic_uint no_direct, short_io;
} sys_state;

static inline void sys_reset(void)
{
    for (enum call c = 0; c < CALLS; c++) {
        atomic_store(&sys_state.fails[c], 0);
        atomic_store(&sys_state.counts[c], 0);
    }
    atomic_store(&sys_state.hangs, 0);
    atomic_store(&sys_state.no_direct, 0);
    atomic_store(&sys_state.short_io, 0);
}

static inline void sys_fail(enum call c, int error, unsigned from, unsigned count)
{
    atomic_store(&sys_state.counts[c], 0);
    atomic_store(&sys_state.from[c], from);
    atomic_store(&sys_state.to[c], count ? from + count : UINT32_MAX);
    atomic_store(&sys_state.fails[c], error);
}

static inline int sys_enter(enum call c)
{
    unsigned n = atomic_fetch_add(&sys_state.counts[c], 1);
    if (atomic_load(&sys_state.hangs) == c + 1u) {
        atomic_fetch_add(&sys_state.hanging, 1);
        while (atomic_load(&sys_state.hangs) == c + 1u)
            usleep(1000);
        atomic_fetch_sub(&sys_state.hanging, 1);
    }
    int error = atomic_load(&sys_state.fails[c]);
    return n >= atomic_load(&sys_state.from[c]) && n < atomic_load(&sys_state.to[c]) ? error : 0;
}

#define REAL store_sys_real
#define ENTER(c)                                                                                             \
    int fault = sys_enter(c);                                                                                \
    (void)arg;                                                                                               \
    if (fault < 0)                                                                                           \
    return fault

static inline int faulty_open(void *arg, int dir, const char *path, int flags)
{
    ENTER(CALL_OPEN);
    if (atomic_load(&sys_state.no_direct) && (flags & 040000 /* O_DIRECT */))
        return -EINVAL;
    return REAL.open(NULL, dir, path, flags);
}
static inline int faulty_close(void *arg, int fd)
{
    int fault = sys_enter(CALL_CLOSE);
    (void)arg;
    int r = REAL.close(NULL, fd);
    return fault < 0 ? fault : r;
}
static inline ssize_t faulty_pread(void *arg, int fd, void *bytes, size_t len, uint64_t at)
{
    ENTER(CALL_PREAD);
    return REAL.pread(NULL, fd, bytes, atomic_load(&sys_state.short_io) ? MIN_OF(len, 4096u) : len, at);
}
static inline ssize_t faulty_pwrite(void *arg, int fd, const void *bytes, size_t len, uint64_t at)
{
    ENTER(CALL_PWRITE);
    return REAL.pwrite(NULL, fd, bytes, atomic_load(&sys_state.short_io) ? MIN_OF(len, 4096u) : len, at);
}
static inline int faulty_rename(void *arg, int dir, const char *from, const char *to)
{
    ENTER(CALL_RENAME);
    return REAL.rename(NULL, dir, from, to);
}
static inline int faulty_unlink(void *arg, int dir, const char *path)
{
    ENTER(CALL_UNLINK);
    return REAL.unlink(NULL, dir, path);
}
static inline int faulty_mkdir(void *arg, int dir, const char *path)
{
    ENTER(CALL_MKDIR);
    return REAL.mkdir(NULL, dir, path);
}
static inline int faulty_stat(void *arg, int dir, const char *path, struct stat *ret)
{
    ENTER(CALL_STAT);
    return REAL.stat(NULL, dir, path, ret);
}
static inline int faulty_fstat(void *arg, int fd, struct stat *ret)
{
    ENTER(CALL_FSTAT);
    return REAL.fstat(NULL, fd, ret);
}
static inline int faulty_touch(void *arg, int fd, uint64_t used_ns)
{
    ENTER(CALL_TOUCH);
    return REAL.touch(NULL, fd, used_ns);
}
static inline int faulty_lock(void *arg, int fd)
{
    ENTER(CALL_LOCK);
    return REAL.lock(NULL, fd);
}
static inline int faulty_space(void *arg, int dir, struct statvfs *ret)
{
    ENTER(CALL_SPACE);
    return REAL.space(NULL, dir, ret);
}
static inline int faulty_list(void *arg, int dir, const char *path, bool (*found)(void *, const char *),
                              void *to)
{
    ENTER(CALL_LIST);
    return REAL.list(NULL, dir, path, found, to);
}

static const struct store_sys faulty = {
    .open = faulty_open,
    .close = faulty_close,
    .pread = faulty_pread,
    .pwrite = faulty_pwrite,
    .rename = faulty_rename,
    .unlink = faulty_unlink,
    .mkdir = faulty_mkdir,
    .stat = faulty_stat,
    .fstat = faulty_fstat,
    .touch = faulty_touch,
    .lock = faulty_lock,
    .space = faulty_space,
    .list = faulty_list,
};

/* ---- a store and its client ---- */

struct scene {
    struct store *store;
    struct tier_io io;
    sem_t woken;
    uint64_t tag;
};

static inline void scene_wake(void *arg)
{
    struct scene *s = arg;
    sem_post(&s->woken);
}

static inline struct store_identity identity_of(uint8_t model)
{
    struct store_identity id = {.fingerprint = {model}};
    snprintf(id.layout, sizeof(id.layout), "test");
    return id;
}

static inline struct tier_io client_of(struct store *st, uint8_t model, struct scene *s)
{
    struct tier_io io;
    struct store_client_opts c = {.identity = identity_of(model),
                                  .bytes = {[TIER_PAGE] = PAGE_BYTES,
                                            [TIER_SNAPSHOT] = STATE_BYTES,
                                            [TIER_WINDOW] = WINDOW_BYTES,
                                            [TIER_WINDOW + 2] = WINDOW_BYTES},
                                  .wake = scene_wake,
                                  .arg = s,
                                  .pending_max = PENDING_MAX};
    assert_int_equal(store_client_open(st, &c, &io), 0);
    return io;
}

static inline struct store_numbers numbers(struct scene *s)
{
    struct store_numbers n;
    store_numbers(s->store, &n);
    return n;
}

static inline struct store_numbers wait_listed(struct scene *s)
{
    while (numbers(s).state == STORE_LISTING)
        usleep(500);
    return numbers(s);
}

static inline struct store_opts opts_of(const char *dir, uint64_t limit)
{
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    return (struct store_opts){.dir = dir,
                               .limit_bytes = limit,
                               .staging_bytes = 2 << 20,
                               .staging = a,
                               .table = a,
                               .threads = a,
                               .sys = &faulty,
                               .hang_ns = 30 * NS_PER_S,
                               .close_ns = 3 * NS_PER_S};
}

static inline void scene_open_with(struct scene *s, const struct store_opts *o)
{
    struct err e = {{0}};
    *s = (struct scene){0};
    sem_init(&s->woken, 0, 0);
    assert_int_equal(store_open(o, &s->store, &e), 0);
    s->io = client_of(s->store, 1, s);
}

static inline void scene_open(struct scene *s, const char *dir, uint64_t limit)
{
    struct store_opts o = opts_of(dir, limit);
    scene_open_with(s, &o);
    assert_int_equal(wait_listed(s).state, STORE_ON);
}

static inline void scene_close(struct scene *s)
{
    store_client_close(&s->io);
    store_close(s->store);
    sem_destroy(&s->woken);
}

/* ---- pages with a number ---- */

static inline struct prefix_key key_of(uint32_t number)
{
    struct prefix_key k;
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t part = rng_at(number, i);
        memcpy(k.bytes + 8 * i, &part, 8);
    }
    return k;
}

static inline size_t bytes_of_kind(enum tier_kind kind)
{
    return kind == TIER_PAGE ? PAGE_BYTES : kind == TIER_SNAPSHOT ? STATE_BYTES : WINDOW_BYTES;
}

static inline void fill(char *bytes, enum tier_kind kind, uint32_t number)
{
    for (size_t i = 0; i < bytes_of_kind(kind); i++)
        bytes[i] = (char)(number * 31 + i * 7 + i / 251 + kind);
}

static inline bool is_filled(const char *bytes, enum tier_kind kind, uint32_t number)
{
    static char expected[STATE_BYTES];
    fill(expected, kind, number);
    return memcmp(bytes, expected, bytes_of_kind(kind)) == 0;
}

static inline uint32_t pending_of(enum tier_kind kind, uint32_t number)
{
    return kind == TIER_SNAPSHOT ? number % (PENDING_MAX + 1) : 0;
}

static inline int put_of(struct scene *s, uint32_t share, uint32_t number, enum tier_kind kind)
{
    struct tier_write w;
    struct prefix_key key = key_of(number);
    int r = s->io.write_begin(s->io.arg, &(struct tier_offer){&key, kind, share, TIER_EVICTED}, &w);
    if (r == 0) {
        fill(w.bytes, kind, number);
        w.pending = pending_of(kind, number);
        s->io.write_end(s->io.arg, &w, true);
    }
    return r;
}

static inline int put(struct scene *s, uint32_t number, enum tier_kind kind)
{
    return put_of(s, 0, number, kind);
}

static inline void wait_written(struct scene *s)
{
    struct store_numbers n;
    do {
        usleep(200);
        n = numbers(s);
    } while (n.state == STORE_ON && (n.queued_writes > 0 || n.staging_used_bytes > 0));
}

/* As `put_of()`, but waits for room. */
static inline int put_surely_of(struct scene *s, uint32_t share, uint32_t number, enum tier_kind kind)
{
    int r;
    while ((r = put_of(s, share, number, kind)) == -EAGAIN)
        usleep(200);
    return r;
}

static inline int put_surely(struct scene *s, uint32_t number, enum tier_kind kind)
{
    return put_surely_of(s, 0, number, kind);
}

/* 0 and the right bytes, or why not. */
static inline int get(struct scene *s, uint32_t number, enum tier_kind kind)
{
    struct tier_arrival a;
    struct prefix_key key = key_of(number);
    uint64_t tag = ++s->tag;
    int r = s->io.read(s->io.arg, &key, kind, tag, number);
    if (r < 0)
        return r;
    while (!s->io.take(s->io.arg, &a))
        sem_wait(&s->woken);
    assert_true(a.tag == tag && a.index == number && a.kind == kind);
    if (a.status == 0)
        assert_true(is_filled(a.bytes, kind, number) && a.pending == pending_of(kind, number));
    s->io.give(s->io.arg, &a);
    return a.status;
}

static inline bool has(struct scene *s, uint32_t number, enum tier_kind kind)
{
    struct prefix_key key = key_of(number);
    return s->io.has(s->io.arg, &key, kind);
}

static inline void path_of(const char *dir, uint32_t number, enum tier_kind kind, char *ret, size_t bytes)
{
    char path[STORE_PATH_BYTES];
    struct prefix_key key = key_of(number);
    store_file_path(&key, kind, path);
    snprintf(ret, bytes, "%s/%s", dir, path);
}

/* Counts the bytes like du. */
static inline uint64_t disk_usage(const char *path)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return 0;
    uint64_t bytes = (uint64_t)st.st_blocks * 512;
    DIR *d = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        char child[1024];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, e->d_name);
        bytes += disk_usage(child);
    }
    if (d)
        closedir(d);
    return bytes;
}

#endif
