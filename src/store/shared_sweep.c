/* shared_sweep.c - counting and removing without a list of files in memory.
 *
 * One pass sums the bytes by age, in classes that grow with the age. The second removes older
 * classes than the one in which the limit is crossed, and a part of that class. */
#include "store/shared_sweep.h"

#include "store/store_file.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hex.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGES        2048u
#define AGES_S      1024u /* ages below it have a class for each second; above it, for each 1/16 more */
#define ABANDONED_S 600   /* an unfinished file of a server that has gone */
#define FORGOTTEN_S 3600  /* the file of a server that has gone; a count older than this is made again */
#define PATH_BYTES  300

void shared_sweep_init(struct shared_sweep *s, uint64_t limit_bytes, uint64_t dead_s)
{
    *s = (struct shared_sweep){.limit_bytes = limit_bytes, .dead_s = dead_s};
    hex_secret(16, s->id);
    pthread_mutex_init(&s->lock, NULL);
}

void shared_sweep_done(struct shared_sweep *s)
{
    pthread_mutex_destroy(&s->lock);
}

static uint64_t bytes_now(const struct shared_sweep *s)
{
    return s->left_bytes + s->others_bytes + s->own_bytes;
}

bool shared_sweep_allows(struct shared_sweep *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    bool allows = bytes_now(s) + bytes <= s->limit_bytes;
    pthread_mutex_unlock(&s->lock);
    return allows;
}

void shared_sweep_wrote(struct shared_sweep *s, uint64_t bytes)
{
    pthread_mutex_lock(&s->lock);
    s->own_bytes += bytes;
    s->last_s = (uint64_t)clock_wall_s();
    pthread_mutex_unlock(&s->lock);
}

uint64_t shared_sweep_bytes(struct shared_sweep *s)
{
    pthread_mutex_lock(&s->lock);
    uint64_t bytes = bytes_now(s);
    pthread_mutex_unlock(&s->lock);
    return bytes;
}

/* ---- small files of numbers ---- */

/* Reads up to `count` numbers. Returns how many; *modified_s: of the file. */
static int read_numbers(int dir, const char *path, uint64_t *ret, int count, int64_t *modified_s)
{
    char text[128];
    struct stat s;
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), got = 0;
    if (fd < 0)
        return 0;
    ssize_t len = fstat(fd, &s) == 0 && S_ISREG(s.st_mode) ? read(fd, text, sizeof(text) - 1) : -1;
    close(fd);
    if (len < 0)
        return 0;
    text[len] = 0;
    *modified_s = s.st_mtim.tv_sec;
    for (char *at = text, *end; got < count; at = end, got++) {
        ret[got] = strtoull(at, &end, 10);
        if (end == at)
            break;
    }
    return got;
}

/* Written aside and renamed, so a reader sees all or nothing. */
static bool write_numbers(const struct shared_sweep *s, int dir, const char *path, mode_t mode,
                          const char *text)
{
    char aside[64];
    size_t len = strlen(text);
    snprintf(aside, sizeof(aside), SHARED_TMP "/%s", s->id);
    int fd = openat(dir, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return false;
    (void)fchmod(fd, mode);
    bool ok = write(fd, text, len) == (ssize_t)len;
    ok = close(fd) == 0 && ok;
    return ok && renameat(dir, aside, dir, path) == 0;
}

/* Calls `see` for each name in the directory. */
static void each_name(int dir, const char *path, void (*see)(void *arg, int in, const char *name), void *arg)
{
    int fd = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            see(arg, fd, e->d_name);
    closedir(d);
}

/* ---- servers ---- */

struct clients {
    const struct shared_sweep *s;
    int64_t now_s;          /* by the file system's clock */
    uint64_t number, bytes; /* bytes that others wrote since the last sweep */
    uint64_t last_s;        /* when the one that sweeps wrote last, and its id */
    char id[33];
};

static void see_client(void *arg, int in, const char *name)
{
    struct clients *c = arg;
    uint64_t n[3];
    int64_t at_s = 0;
    if (strnlen(name, 33) != 32 || read_numbers(in, name, n, 3, &at_s) != 3)
        return;
    bool own = strcmp(name, c->s->id) == 0;
    /* A server that did not learn of the last sweep yet counts in full: at worst too much. */
    c->bytes += own ? 0 : n[1];
    if (at_s + FORGOTTEN_S < c->now_s)
        (void)unlinkat(in, name, 0);
    if (at_s + (int64_t)c->s->dead_s < c->now_s)
        return;
    if (c->id[0] == 0 || n[2] < c->last_s || (n[2] == c->last_s && strcmp(name, c->id) < 0)) {
        c->last_s = n[2];
        memcpy(c->id, name, sizeof(c->id));
    }
}

static bool renew(struct shared_sweep *s, int dir, mode_t mode, int64_t *now_s)
{
    char path[64], text[128];
    struct stat st;
    snprintf(path, sizeof(path), SHARED_CLIENTS "/%s", s->id);
    pthread_mutex_lock(&s->lock);
    snprintf(text, sizeof(text), "%llu %llu %llu\n", (ull)s->number, (ull)s->own_bytes, (ull)s->last_s);
    s->renewed_bytes = s->own_bytes;
    pthread_mutex_unlock(&s->lock);
    if (!write_numbers(s, dir, path, mode, text) || fstatat(dir, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    *now_s = st.st_mtim.tv_sec;
    return true;
}

/* ---- a sweep ---- */

struct sweep {
    int64_t now_s;
    uint64_t bytes[AGES], all;
    uint32_t from;   /* second pass: older classes go */
    uint64_t excess; /* and bytes of this class that go */
    bool removes;
    uint64_t removed, left;
};

static uint32_t class_of(int64_t age_s)
{
    if (age_s < (int64_t)AGES_S)
        return age_s < 0 ? 0 : (uint32_t)age_s;
    uint32_t class = AGES_S;
    for (int64_t above = AGES_S; class < AGES - 1 && age_s >= above; above += above / 16)
        class ++;
    return class;
}

static void see_value(void *arg, int in, const char *name)
{
    struct sweep *w = arg;
    struct prefix_key key;
    enum tier_kind kind;
    struct stat st;
    if (!store_file_parse_name(name, &key, &kind) || fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISREG(st.st_mode))
        return;
    uint64_t bytes = MAX_OF((uint64_t)st.st_size, (uint64_t)st.st_blocks * 512);
    uint32_t class = class_of(w->now_s - st.st_mtim.tv_sec);
    if (!w->removes) {
        w->bytes[class] += bytes;
        w->all += bytes;
        return;
    }
    bool goes = class > w->from || (class == w->from && w->excess > 0);
    if (goes && class == w->from)
        w->excess -= MIN_OF(w->excess, bytes);
    if (goes && unlinkat(in, name, 0) == 0)
        w->removed++;
    else
        w->left += bytes;
}

static void see_leaves(int dir, struct sweep *w)
{
    static const char digits[] = "0123456789abcdef";
    for (uint32_t leaf = 0; leaf < 256; leaf++) {
        char path[4] = {digits[leaf >> 4], '/', digits[leaf & 15], 0};
        each_name(dir, path, see_value, w);
    }
}

static void see_temporary(void *arg, int in, const char *name)
{
    struct sweep *w = arg;
    struct stat st;
    if (fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
        st.st_mtim.tv_sec + ABANDONED_S < w->now_s)
        (void)unlinkat(in, name, 0);
}

/* Counts, and removes down to three quarters of the limit if seven eighths are in use. */
static void sweep(struct shared_sweep *s, int dir, mode_t mode, int64_t now_s)
{
    struct sweep w = {.now_s = now_s};
    char text[64];
    each_name(dir, SHARED_TMP, see_temporary, &w);
    see_leaves(dir, &w);
    w.left = w.all;
    if (w.all > s->limit_bytes / 8 * 7) {
        uint64_t kept = 0, keeps = s->limit_bytes / 4 * 3;
        while (w.from < AGES - 1 && kept + w.bytes[w.from] <= keeps)
            kept += w.bytes[w.from++];
        w.excess = kept + w.bytes[w.from] > keeps ? kept + w.bytes[w.from] - keeps : 0;
        w.removes = true;
        w.left = 0;
        see_leaves(dir, &w);
    }
    pthread_mutex_lock(&s->lock);
    s->number++;
    s->left_bytes = w.left;
    s->own_bytes -= s->renewed_bytes;
    s->others_bytes = 0;
    s->swept += w.removed;
    snprintf(text, sizeof(text), "%llu %llu\n", (ull)s->number, (ull)w.left);
    pthread_mutex_unlock(&s->lock);
    (void)write_numbers(s, dir, SHARED_SWEEP, mode, text);
}

void shared_sweep_tend(struct shared_sweep *s, int dir, mode_t mode)
{
    uint64_t n[2];
    int64_t now_s = 0, swept_s = 0;
    bool known = read_numbers(dir, SHARED_SWEEP, n, 2, &swept_s) == 2;
    if (known && n[0] != s->number) {
        pthread_mutex_lock(&s->lock);
        s->number = n[0];
        s->left_bytes = n[1];
        s->own_bytes -= s->renewed_bytes;
        pthread_mutex_unlock(&s->lock);
    }
    if (!renew(s, dir, mode, &now_s))
        return;
    struct clients c = {.s = s, .now_s = now_s};
    each_name(dir, SHARED_CLIENTS, see_client, &c);
    pthread_mutex_lock(&s->lock);
    s->others_bytes = c.bytes;
    bool due = !known || swept_s + FORGOTTEN_S < now_s || bytes_now(s) > s->limit_bytes / 8 * 7;
    pthread_mutex_unlock(&s->lock);
    if (due && strcmp(c.id, s->id) == 0) {
        sweep(s, dir, mode, now_s);
        (void)renew(s, dir, mode, &now_s);
    }
}

void shared_sweep_leave(struct shared_sweep *s, int dir)
{
    char path[64];
    snprintf(path, sizeof(path), SHARED_CLIENTS "/%s", s->id);
    (void)unlinkat(dir, path, 0);
}
