/* store_disk.c - files: listing, writing aside and renaming, reading, removing.
 *
 * The directory's size is counted as `du` counts it, from st_blocks of files and directories. A write
 * reserves the file in whole blocks of the file system and SLACK for growing directories and file system
 * overhead; both are known exactly only afterwards, and then counted. */
#include "store/store_state.h"
#include "store/store_sys.h"
#include "store/store_table.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/none.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define SLACK_BYTES   32768u
#define HEADROOM_PART 20
#define SPACE_TRIES   32 /* files removed for one write because the file system is full */

/* A call of the system by this thread: when it began is for others to see. */
#define CALL(st, w, name, ...)                                                                               \
    (atomic_store(&(w)->call_ns, clock_now_ns()), (st)->sys->name((st)->sys->arg, __VA_ARGS__))

static uint64_t bytes_of(const struct store_op *op)
{
    return store_file_bytes(op->header.payload_bytes);
}

static uint64_t sectors_of(const struct stat *s, uint64_t least_bytes)
{
    /* A file system that has not given out blocks yet says too few. */
    return MAX_OF((uint64_t)s->st_blocks, least_bytes / STORE_SECTOR);
}

/* ---- disk space ---- */

uint64_t store_disk_bytes(const struct store *st)
{
    struct store_table_numbers t;
    store_table_numbers(st->table, &t);
    return (t.sectors + st->directory_sectors) * STORE_SECTOR;
}

static void add_sectors(struct store *st, uint64_t *where, uint64_t now)
{
    pthread_mutex_lock(&st->lock);
    st->directory_sectors += now - *where;
    *where = now;
    pthread_mutex_unlock(&st->lock);
}

/* False: the leaf directory does not exist, or cannot be read. */
static bool count_leaf(struct store *st, struct store_worker *w, uint32_t leaf)
{
    static const char digits[] = "0123456789abcdef";
    ASSERT(leaf < STORE_LEAVES);
    char path[4] = {digits[leaf >> 4], '/', digits[leaf & 15], 0};
    struct stat s;
    if (CALL(st, w, stat, st->dir_fd, path, &s) < 0)
        return false;
    add_sectors(st, &st->leaf_sectors[leaf], sectors_of(&s, 0));
    return true;
}

static void add_others(struct store *st, struct store_worker *w, const char *path)
{
    struct stat s;
    if (CALL(st, w, stat, st->dir_fd, path, &s) == 0)
        add_sectors(st, &st->other_sectors, st->other_sectors + sectors_of(&s, 0));
}

/* ---- removing ---- */

/* 0, or what unlink said: then the file's blocks stay counted. */
static int remove_entry(struct store *st, struct store_worker *w, uint32_t entry)
{
    char path[STORE_PATH_BYTES];
    pthread_mutex_lock(&st->lock);
    struct store_entry *n = store_table_at(st->table, entry);
    uint64_t sectors = n->sectors;
    store_file_path(&n->key, (enum tier_kind)n->kind, path);
    store_table_remove(st->table, entry);
    st->directory_sectors += sectors;
    st->other_sectors += sectors;
    pthread_mutex_unlock(&st->lock);
    int r = CALL(st, w, unlink, st->dir_fd, path);
    if (r == 0 || r == -ENOENT) {
        add_sectors(st, &st->other_sectors, st->other_sectors - sectors);
        return 0;
    }
    store_fail(st, "unlink", path, r);
    return r;
}

static uint32_t victim(struct store *st)
{
    pthread_mutex_lock(&st->lock);
    uint32_t entry = store_table_victim(st->table, store_now_ns());
    pthread_mutex_unlock(&st->lock);
    return entry;
}

static bool has_space(struct store *st, struct store_worker *w, uint64_t bytes, uint64_t *block_bytes)
{
    struct statvfs v;
    if (CALL(st, w, space, st->dir_fd, &v) < 0 || v.f_frsize == 0)
        return true;
    *block_bytes = v.f_frsize;
    uint64_t headroom = MIN_OF(STORE_HEADROOM_MOST, (uint64_t)v.f_blocks * v.f_frsize / HEADROOM_PART);
    return (uint64_t)v.f_bavail * v.f_frsize >= headroom + bytes;
}

static bool is_within(struct store *st, uint64_t bytes)
{
    struct store_table_numbers t;
    pthread_mutex_lock(&st->lock);
    store_table_numbers(st->table, &t);
    uint64_t all = store_disk_bytes(st) + bytes;
    pthread_mutex_unlock(&st->lock);
    return all <= st->limit_bytes &&
           store_table_pages(&t) + t.stored[TIER_SNAPSHOT] + t.reserved + STORE_OPS_MAX <= t.entries_max;
}

/* Removes files until the limit holds for `bytes` more. 0, -ENOSPC, or what a call said. */
static int make_room(struct store *st, struct store_worker *w, uint64_t bytes)
{
    uint64_t block = STORE_BLOCK_BYTES, needs = bytes ? bytes + SLACK_BYTES : 0, for_space = 0;
    for (;;) {
        bool space = bytes == 0 || has_space(st, w, needs, &block);
        needs = bytes ? ROUND_UP(bytes, block) + SLACK_BYTES : 0;
        if (space && is_within(st, needs))
            return 0;
        uint32_t entry = victim(st);
        /* Where removing files does not make space, others take it: that is not a reason to remove all of
         * them. */
        if (entry == NONE || for_space > SPACE_TRIES)
            return -ENOSPC;
        for_space += !space;
        int r = remove_entry(st, w, entry);
        if (r < 0)
            return r;
        pthread_mutex_lock(&st->lock);
        st->numbers.evictions++;
        pthread_mutex_unlock(&st->lock);
    }
}

void store_disk_clear(struct store *st, struct store_worker *w, struct store_cleared *ret)
{
    struct store_cleared c = {0};
    uint32_t entry;
    pthread_mutex_lock(&st->lock);
    uint64_t before = store_disk_bytes(st);
    pthread_mutex_unlock(&st->lock);
    while ((entry = victim(st)) != NONE) {
        int r = remove_entry(st, w, entry);
        c.entries += r == 0;
        c.failed += r < 0;
    }
    struct store_table_numbers t;
    pthread_mutex_lock(&st->lock);
    uint64_t now = store_disk_bytes(st);
    store_table_numbers(st->table, &t);
    pthread_mutex_unlock(&st->lock);
    c.kept = store_table_pages(&t) + t.stored[TIER_SNAPSHOT];
    c.bytes_kept = t.sectors * STORE_SECTOR;
    c.bytes_reclaimed = before > now ? before - now : 0;
    *ret = c;
}

/* ---- opening files ---- */

/* With O_DIRECT where the file system has it. */
static int open_file(struct store *st, struct store_worker *w, const char *path, int flags)
{
    bool buffered = atomic_load(&st->buffered);
    int fd = CALL(st, w, open, st->dir_fd, path, flags | (buffered ? 0 : O_DIRECT));
    if (fd != -EINVAL || buffered)
        return fd;
    atomic_store(&st->buffered, true);
    /* Some make the file before they refuse it. */
    if (flags & O_CREAT)
        CALL(st, w, unlink, st->dir_fd, path);
    return CALL(st, w, open, st->dir_fd, path, flags);
}

/* ---- writing ---- */

static int write_all(struct store *st, struct store_worker *w, int fd, const char *bytes, uint64_t len)
{
    for (uint64_t at = 0; at < len;) {
        ssize_t n = CALL(st, w, pwrite, fd, bytes + at, len - at, at);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        at += (uint64_t)n;
    }
    return 0;
}

static int create_temporary(struct store *st, struct store_worker *w, const char *path)
{
    int flags = O_WRONLY | O_CREAT | O_EXCL, fd = open_file(st, w, path, flags);
    if (fd == -ENOENT && CALL(st, w, mkdir, st->dir_fd, STORE_TMP) == 0) {
        add_others(st, w, STORE_TMP);
        fd = open_file(st, w, path, flags);
    }
    return fd;
}

/* The file is whole under another name by then. */
static int rename_into_place(struct store *st, struct store_worker *w, const char *from,
                             const struct store_op *op)
{
    char path[STORE_PATH_BYTES];
    store_file_path(&op->header.key, op->header.kind, path);
    int r = CALL(st, w, rename, st->dir_fd, from, path);
    if (r != -ENOENT)
        return r;
    char top[2] = {path[0], 0}, leaf[4] = {path[0], '/', path[2], 0};
    if (CALL(st, w, mkdir, st->dir_fd, top) == 0)
        add_others(st, w, top);
    r = CALL(st, w, mkdir, st->dir_fd, leaf);
    return r == 0 || r == -EEXIST ? CALL(st, w, rename, st->dir_fd, from, path) : r;
}

static int fill_file(struct store *st, struct store_worker *w, const char *path, const struct store_op *op,
                     uint64_t *sectors)
{
    struct stat s;
    int fd = create_temporary(st, w, path);
    if (fd < 0)
        return fd;
    int r = write_all(st, w, fd, store_op_file(st, op), bytes_of(op));
    if (r == 0)
        r = CALL(st, w, fstat, fd, &s);
    int closed = CALL(st, w, close, fd);
    *sectors = r == 0 ? sectors_of(&s, bytes_of(op)) : 0;
    return r == 0 ? closed : r;
}

int store_disk_write(struct store *st, struct store_worker *w, struct store_op *op)
{
    char path[48];
    uint64_t sectors;
    ASSERT(op->state == STORE_OP_RUNNING && op->entry != NONE);
    store_file_seal(store_op_file(st, op), &op->header);
    int r = make_room(st, w, bytes_of(op));
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), STORE_TMP "/w%llu", (ull)st->temporary++);
    r = fill_file(st, w, path, op, &sectors);
    if (r == 0)
        r = rename_into_place(st, w, path, op);
    if (r < 0) {
        CALL(st, w, unlink, st->dir_fd, path);
        return r;
    }
    pthread_mutex_lock(&st->lock);
    store_table_store(st->table, op->entry, (uint32_t)MIN_OF(sectors, (uint64_t)UINT32_MAX), store_now_ns());
    pthread_mutex_unlock(&st->lock);
    count_leaf(st, w, store_file_leaf(&op->header.key));
    return 0;
}

/* ---- reading ---- */

static int read_all(struct store *st, struct store_worker *w, int fd, char *bytes, uint64_t len)
{
    struct stat s;
    int r = CALL(st, w, fstat, fd, &s);
    if (r < 0)
        return r;
    if (!S_ISREG(s.st_mode) || (uint64_t)s.st_size != len)
        return -EBADMSG;
    for (uint64_t at = 0; at < len;) {
        ssize_t n = CALL(st, w, pread, fd, bytes + at, len - at, at);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? (int)n : -EBADMSG;
        at += (uint64_t)n;
    }
    return 0;
}

static bool is_same(const struct store_header *a, const struct store_header *b)
{
    return a->kind == b->kind && a->payload_bytes == b->payload_bytes && prefix_key_eq(&a->key, &b->key) &&
           memcmp(&a->identity, &b->identity, sizeof(a->identity)) == 0;
}

static int read_file(struct store *st, struct store_worker *w, const char *path, struct store_op *op)
{
    struct store_header h;
    char *file = store_op_file(st, op);
    int fd = open_file(st, w, path, O_RDONLY);
    if (fd < 0)
        return fd;
    int r = read_all(st, w, fd, file, bytes_of(op));
    if (r == 0)
        r = store_file_check(file, bytes_of(op), &h);
    /* Sums prove that the file is unchanged, not that its writer had room for so many pending tokens. */
    if (r == 0 && !(is_same(&h, &op->header) && h.pending <= op->pending_max))
        r = -EBADMSG;
    if (r == 0)
        op->header.pending = h.pending;
    /* Pages further from the start of the prefix count as older, as in the table. */
    if (r == 0)
        CALL(st, w, touch, fd, (uint64_t)clock_wall_s() * NS_PER_S - op->index * 10 * NS_PER_MS);
    if (atomic_load(&st->buffered))
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    CALL(st, w, close, fd);
    return r;
}

/* Entry without a valid file: drop the entry and delete the file, including one recreated under the same
 * name. */
static void drop_bad(struct store *st, struct store_worker *w, const struct store_op *op, const char *path,
                     int why)
{
    bool damaged = why == -EBADMSG || why == -EINVAL || why == -ENOTSUP || why == -EIO || why == -ELOOP;
    pthread_mutex_lock(&st->lock);
    uint32_t entry = store_table_find(st->table, &op->header.key, op->header.kind);
    bool there = entry != NONE && store_table_at(st->table, entry)->state == STORE_ENTRY_STORED;
    st->numbers.corrupt += damaged && why != -EIO;
    uint64_t sectors = there ? store_table_at(st->table, entry)->sectors : 0;
    if (there && (damaged || why == -ENOENT))
        store_table_remove(st->table, entry);
    pthread_mutex_unlock(&st->lock);
    if (why != -ENOENT)
        store_fail(st, damaged && why != -EIO ? "check" : "read", path, why);
    if (!there || (!damaged && why != -ENOENT))
        return;
    int r = CALL(st, w, unlink, st->dir_fd, path);
    if (r == 0 || r == -ENOENT)
        return;
    pthread_mutex_lock(&st->lock);
    st->directory_sectors += sectors;
    pthread_mutex_unlock(&st->lock);
}

int store_disk_read(struct store *st, struct store_worker *w, struct store_op *op)
{
    char path[STORE_PATH_BYTES];
    store_file_path(&op->header.key, op->header.kind, path);
    int r = read_file(st, w, path, op);
    if (r < 0)
        drop_bad(st, w, op, path, r);
    return r;
}

/* ---- opening the directory ---- */

struct listing {
    struct store *st;
    struct store_worker *w;
    uint32_t leaf;
    uint64_t foreign, excess;
};

static bool list_file(void *arg, const char *name)
{
    struct listing *l = arg;
    struct store *st = l->st;
    struct prefix_key key;
    enum tier_kind kind;
    struct stat s;
    char path[STORE_PATH_BYTES];
    if (!store_file_parse_name(name, &key, &kind) || store_file_leaf(&key) != l->leaf) {
        l->foreign++;
        return true;
    }
    store_file_path(&key, kind, path);
    if (CALL(st, l->w, stat, st->dir_fd, path, &s) < 0 || !S_ISREG(s.st_mode))
        return true;
    pthread_mutex_lock(&st->lock);
    uint32_t entry = store_table_add(st->table, &key, kind, STORE_SHARE_UNKNOWN);
    if (entry != NONE)
        store_table_store(st->table, entry, (uint32_t)MIN_OF((uint64_t)s.st_blocks, (uint64_t)UINT32_MAX),
                          (uint64_t)s.st_mtim.tv_sec * NS_PER_S + (uint64_t)s.st_mtim.tv_nsec);
    bool stop = st->stop;
    pthread_mutex_unlock(&st->lock);
    /* More than there is room for in the table: what nobody can find takes no disk either. */
    if (entry == NONE)
        l->excess += CALL(st, l->w, unlink, st->dir_fd, path) == 0;
    return !stop;
}

static bool list_temporary(void *arg, const char *name)
{
    struct listing *l = arg;
    char path[300];
    if (name[0] != 'w') {
        l->foreign++;
        return true;
    }
    snprintf(path, sizeof(path), STORE_TMP "/%.255s", name);
    CALL(l->st, l->w, unlink, l->st->dir_fd, path);
    return true;
}

static bool list_root(void *arg, const char *name)
{
    struct listing *l = arg;
    bool ours = strcmp(name, STORE_TMP) == 0 || strcmp(name, STORE_LOCK) == 0 ||
                strcmp(name, STORE_BESIDE) == 0 ||
                (name[0] && !name[1] && strchr("0123456789abcdef", name[0]));
    l->foreign += !ours;
    return true;
}

static void list_leaves(struct store *st, struct store_worker *w, struct listing *l)
{
    for (uint32_t leaf = 0; leaf < STORE_LEAVES; leaf++) {
        char path[4] = {"0123456789abcdef"[leaf >> 4], '/', "0123456789abcdef"[leaf & 15], 0};
        if (leaf % 16 == 0) {
            path[1] = 0;
            add_others(st, w, path);
            path[1] = '/';
        }
        l->leaf = leaf;
        if (count_leaf(st, w, leaf))
            CALL(st, w, list, st->dir_fd, path, list_file, l);
    }
}

int store_disk_lock(struct store *st, struct store_worker *w)
{
    int r = CALL(st, w, mkdir, AT_FDCWD, st->dir);
    (void)r; /* opening it says more */
    store_disk_close(st);
    st->dir_fd = CALL(st, w, open, AT_FDCWD, st->dir, O_RDONLY | O_DIRECTORY);
    if (st->dir_fd < 0)
        return st->dir_fd;
    /* The directory's own lock stays when its content is removed by hand. Not every file system has one. */
    if (CALL(st, w, lock, st->dir_fd) == -EWOULDBLOCK)
        return -EWOULDBLOCK;
    st->lock_fd = CALL(st, w, open, st->dir_fd, STORE_LOCK, O_RDWR | O_CREAT);
    return st->lock_fd < 0 ? st->lock_fd : CALL(st, w, lock, st->lock_fd);
}

int store_disk_list(struct store *st, struct store_worker *w)
{
    struct listing l = {.st = st, .w = w};
    int r = CALL(st, w, list, st->dir_fd, ".", list_root, &l);
    if (r < 0)
        return r;
    CALL(st, w, list, st->dir_fd, STORE_TMP, list_temporary, &l);
    add_others(st, w, ".");
    add_others(st, w, STORE_TMP);
    add_others(st, w, STORE_LOCK);
    add_others(st, w, STORE_BESIDE);
    list_leaves(st, w, &l);
    /* No other thread uses the table yet. */
    store_table_sort(st->table);
    pthread_mutex_lock(&st->lock);
    st->numbers.foreign = l.foreign;
    st->numbers.evictions += l.excess;
    pthread_mutex_unlock(&st->lock);
    return make_room(st, w, 0) < 0 ? -EIO : 0;
}

void store_disk_close(struct store *st)
{
    if (st->lock_fd >= 0)
        st->sys->close(st->sys->arg, st->lock_fd);
    if (st->dir_fd >= 0)
        st->sys->close(st->sys->arg, st->dir_fd);
    st->lock_fd = st->dir_fd = -1;
}
