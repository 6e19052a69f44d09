/* store_audit.c - the same names and the same checks as the tier's own, without its table. */
#include "store/store_audit.h"

#include "store/store_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((uint64_t)8 << 30)

struct audit {
    const struct store_sys *sys;
    int dir_fd;
    bool whole;
    const char *folder; /* that is listed: "a/b", "tmp" or "" */
    store_visit_fn *visit;
    void *arg;
    struct store_audit *sum;
};

static uint64_t blocks_of(const struct stat *s)
{
    return (uint64_t)s->st_blocks * 512;
}

static void found(struct audit *a, const struct store_found *f)
{
    a->sum->bytes += f->bytes;
    a->sum->count[f->kind]++;
    if (a->visit)
        a->visit(a->arg, f);
}

/* The whole file or its first block; the caller frees it. */
static int read_bytes(struct audit *a, int fd, uint64_t bytes, char **ret)
{
    char *p = malloc(bytes);
    if (!p)
        return -ENOMEM;
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = a->sys->pread(a->sys->arg, fd, p + at, bytes - at, at);
        if (n <= 0) {
            free(p);
            return n < 0 ? (int)n : -EBADMSG;
        }
        at += (uint64_t)n;
    }
    *ret = p;
    return 0;
}

static int check_open(struct audit *a, int fd, uint64_t size, struct store_header *ret)
{
    char *bytes = NULL;
    if (size < STORE_BLOCK_BYTES || size > FILE_BYTES_MAX)
        return -EBADMSG;
    int r = read_bytes(a, fd, a->whole ? size : STORE_BLOCK_BYTES, &bytes);
    if (r == 0)
        r = a->whole ? store_file_check(bytes, size, ret) : store_file_read_header(bytes, ret);
    free(bytes);
    if (r == 0 && size != store_file_bytes(ret->payload_bytes))
        r = -EBADMSG;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return r;
}

/* Returns 0 if the file's header has the key, kind and size that its name says, else -EBADMSG. */
static int check_file(struct audit *a, const char *path, const struct prefix_key *key, enum tier_kind kind,
                      uint64_t size, struct store_header *ret)
{
    int fd = a->sys->open(a->sys->arg, a->dir_fd, path, O_RDONLY);
    if (fd < 0)
        return fd;
    int r = check_open(a, fd, size, ret);
    a->sys->close(a->sys->arg, fd);
    if (r == 0 && (ret->kind != kind || !prefix_key_eq(&ret->key, key)))
        r = -EBADMSG;
    return r;
}

static bool is_folder(const char *name, const struct stat *s)
{
    return S_ISDIR(s->st_mode) &&
           (strcmp(name, "tmp") == 0 || (name[0] && !name[1] && strchr("0123456789abcdef", name[0])));
}

static bool see(void *arg, const char *name)
{
    struct audit *a = arg;
    struct stat s;
    struct prefix_key key;
    enum tier_kind kind;
    char path[300], expected[STORE_PATH_BYTES] = "";
    snprintf(path, sizeof(path), "%s%s%.255s", a->folder, a->folder[0] ? "/" : "", name);
    if (a->sys->stat(a->sys->arg, a->dir_fd, path, &s) < 0)
        return true;
    struct store_found f = {STORE_FOUND_FOREIGN, path, {0}, blocks_of(&s), (int64_t)s.st_mtim.tv_sec, 0};
    bool top = !a->folder[0] || !a->folder[1];
    if (top && (is_folder(name, &s) || (!a->folder[0] && strcmp(name, "lock") == 0))) {
        a->sum->bytes += f.bytes;
        return true;
    }
    if (store_file_parse_name(name, &key, &kind))
        store_file_path(&key, kind, expected);
    if (strcmp(a->folder, "tmp") == 0 && name[0] == 'w') {
        f.kind = STORE_FOUND_UNFINISHED;
    } else if (strcmp(path, expected) == 0) {
        f.error =
            S_ISREG(s.st_mode) ? check_file(a, path, &key, kind, (uint64_t)s.st_size, &f.header) : -EINVAL;
        if (f.error == -ENOENT)
            return true;
        f.kind = f.error < 0 ? STORE_FOUND_DAMAGED : STORE_FOUND_ENTRY;
    }
    found(a, &f);
    return true;
}

static void see_folder(struct audit *a, const char *folder)
{
    a->folder = folder;
    a->sys->list(a->sys->arg, a->dir_fd, folder[0] ? folder : ".", see, a);
}

static void see_all(struct audit *a)
{
    static const char digits[] = "0123456789abcdef";
    struct stat s;
    if (a->sys->stat(a->sys->arg, a->dir_fd, ".", &s) == 0)
        a->sum->bytes += blocks_of(&s);
    see_folder(a, "");
    see_folder(a, "tmp");
    for (int i = 0; i < 16; i++) {
        char folder[4] = {digits[i], 0};
        see_folder(a, folder);
        folder[1] = '/';
        for (int k = 0; k < 16; k++) {
            folder[2] = digits[k];
            see_folder(a, folder);
        }
    }
}

static int open_directory(const char *dir, int *ret, struct err *e)
{
    *ret = store_sys_real.open(NULL, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY);
    return *ret < 0 ? err_set(e, *ret, "%s: %s", dir, strerror(-*ret)) : 0;
}

static void audit_open(int fd, bool whole, store_visit_fn *visit, void *arg, struct store_audit *ret)
{
    struct audit a = {&store_sys_real, fd, whole, "", visit, arg, ret};
    *ret = (struct store_audit){0};
    see_all(&a);
}

int store_audit(const char *dir, bool whole, store_visit_fn *visit, void *arg, struct store_audit *ret,
                struct err *e)
{
    int fd, r = open_directory(dir, &fd, e);
    if (r < 0)
        return r;
    audit_open(fd, whole, visit, arg, ret);
    close(fd);
    return 0;
}

/* ---- collecting ---- */

struct kept {
    struct prefix_key key;
    enum tier_kind kind;
    uint64_t bytes;
    int64_t used_s;
};

struct collector {
    int dir_fd;
    struct store_gc *gc;
    struct kept *kept;
    size_t count, room;
    bool no_memory;
};

static bool remove_file(struct collector *c, const char *path, uint64_t *counter)
{
    int r = store_sys_real.unlink(NULL, c->dir_fd, path);
    c->gc->failed += r < 0;
    *counter += r == 0;
    return r == 0;
}

static void keep(struct collector *c, const struct store_found *f)
{
    if (c->count == c->room) {
        size_t room = c->room ? 2 * c->room : 1024;
        struct kept *more = realloc(c->kept, room * sizeof(*more));
        c->no_memory |= !more;
        if (!more)
            return;
        c->kept = more;
        c->room = room;
    }
    c->kept[c->count++] = (struct kept){f->header.key, f->header.kind, f->bytes, f->used_s};
}

static void collect(void *arg, const struct store_found *f)
{
    struct collector *c = arg;
    if (f->kind == STORE_FOUND_ENTRY)
        keep(c, f);
    else if (f->kind == STORE_FOUND_DAMAGED)
        remove_file(c, f->path, &c->gc->removed_damaged);
    else if (f->kind == STORE_FOUND_UNFINISHED)
        remove_file(c, f->path, &c->gc->removed_unfinished);
}

static int older(const void *a, const void *b)
{
    const struct kept *x = a, *y = b;
    return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

static void remove_oldest(struct collector *c, uint64_t limit_bytes, uint64_t bytes)
{
    if (c->count > 0)
        qsort(c->kept, c->count, sizeof(*c->kept), older);
    for (size_t i = 0; i < c->count && bytes > limit_bytes; i++) {
        char path[STORE_PATH_BYTES];
        store_file_path(&c->kept[i].key, c->kept[i].kind, path);
        if (remove_file(c, path, &c->gc->removed_oldest))
            bytes -= c->kept[i].bytes;
    }
}

static int lock_directory(const char *dir, int fd, int *ret, struct err *e)
{
    int r = store_sys_real.lock(NULL, fd); /* not every file system locks directories */
    if (r != -EWOULDBLOCK) {
        *ret = store_sys_real.open(NULL, fd, "lock", O_RDWR | O_CREAT);
        r = *ret < 0 ? *ret : store_sys_real.lock(NULL, *ret);
    }
    if (r == -EWOULDBLOCK)
        return err_set(e, -EBUSY, "%s is used by a process that runs: it looks after it itself", dir);
    return r < 0 ? err_set(e, r, "%s/lock: %s", dir, strerror(-r)) : 0;
}

int store_collect(const char *dir, uint64_t limit_bytes, struct store_gc *ret, struct err *e)
{
    struct store_audit before, now;
    int fd, lock = -1, r = open_directory(dir, &fd, e);
    if (r < 0)
        return r;
    struct collector c = {.dir_fd = fd, .gc = ret};
    *ret = (struct store_gc){0};
    r = lock_directory(dir, fd, &lock, e);
    if (r == 0) {
        audit_open(fd, true, collect, &c, &before);
        audit_open(fd, false, NULL, NULL, &now);
        remove_oldest(&c, limit_bytes, now.bytes);
        audit_open(fd, false, NULL, NULL, &now);
        ret->bytes_before = before.bytes;
        ret->bytes_now = now.bytes;
        if (c.no_memory)
            r = err_set(e, -ENOMEM, "no memory for the names of all files");
    }
    free(c.kept);
    if (lock >= 0)
        close(lock);
    close(fd);
    return r;
}
