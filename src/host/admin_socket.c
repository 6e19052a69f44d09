/* admin_socket.c - the mode is set before the name exists: bind makes the file with the mode of its
 * socket. */
#include "host/admin_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG   16
#define NAMES_MAX 16 /* servers on different addresses with one port */

static void note(struct admin_socket_file *f, const char *path, const struct stat *st)
{
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->device = st->st_dev;
    f->inode = st->st_ino;
}

static void drop(struct admin_socket_file *f)
{
    struct stat st;
    if (f->path[0] && lstat(f->path, &st) == 0 && st.st_dev == f->device && st.st_ino == f->inode)
        unlink(f->path);
    *f = (struct admin_socket_file){.path = ""};
}

/* ---- the socket ---- */

static int bind_to(const char *path, int *ret)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0) {
        int r = -errno;
        close(fd);
        return r;
    }
    *ret = fd;
    return 0;
}

/* The directory is locked, or was named by the operator. */
static int make(struct admin_socket *s, const char *path, int *fd, struct err *e)
{
    struct stat st;
    enum socket_state state = socket_state_of(path);
    if (state == SOCKET_LIVE)
        return err_set(e, -EADDRINUSE, "%s: another server answers there", path);
    if (state == SOCKET_FOREIGN)
        return err_set(e, -EEXIST, "%s is there already, and is not a socket of a server that has ended",
                       path);
    if (state == SOCKET_STALE)
        unlink(path);
    int r = bind_to(path, fd);
    if (r < 0)
        return err_set(e, r, "%s: %s", path, strerror(-r));
    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        close(*fd);
        return err_set(e, -ENOENT, "%s: the socket went away", path);
    }
    note(&s->socket, path, &st);
    return 0;
}

static int open_named(struct admin_socket *s, const char *path, int *fd, struct err *e)
{
    char dir[SOCKET_PATH_BYTES] = ".";
    const char *slash = strrchr(path, '/');
    if (path[0] == 0 || strlen(path) >= SOCKET_PATH_BYTES)
        return err_set(e, -ENAMETOOLONG, "the path of a Unix socket has 1 to %d bytes",
                       SOCKET_PATH_BYTES - 1);
    if (slash)
        snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0)
        return err_set(e, -errno, "%s: %s", dir, strerror(errno));
    /* Without the lock, bind() refuses the second of two servers with one path. */
    (void)socket_dir_lock(lock);
    int r = make(s, path, fd, e);
    close(lock);
    return r;
}

static int open_in(struct admin_socket *s, const struct socket_dir *d, uint16_t port, int *fd, struct err *e)
{
    int lock = socket_dir_open(d, e), r = -EADDRINUSE;
    if (lock < 0)
        return lock;
    socket_dir_tidy(d->path);
    for (int i = 1; i <= NAMES_MAX && r == -EADDRINUSE; i++) {
        char path[SOCKET_PATH_BYTES], suffix[8] = "";
        if (i > 1)
            snprintf(suffix, sizeof(suffix), "-%d", i);
        int n = snprintf(path, sizeof(path), "%s/plateau-%u%s.sock", d->path, port, suffix);
        r = n < 0 || (size_t)n >= sizeof(path)
                ? err_set(e, -ENAMETOOLONG, "%s: the path is too long", d->path)
                : make(s, path, fd, e);
    }
    close(lock);
    return r;
}

int admin_socket_open(struct admin_socket *s, const char *path, uint16_t port, int *fd, struct err *e)
{
    struct socket_dirs dirs;
    *s = (struct admin_socket){.socket.path = ""};
    if (path)
        return open_named(s, path, fd, e);
    int r = err_set(e, -ENOENT,
                    "there is no directory for it; PLATEAU_RUNTIME_DIR may name one by an absolute path");
    socket_dirs_find(true, &dirs);
    for (uint32_t i = 0; i < dirs.count && r < 0; i++) {
        r = open_in(s, &dirs.list[i], port, fd, e);
        if (r < 0 && r != -ENOENT && !s->skipped.text[0])
            s->skipped = *e;
    }
    return r;
}

/* ---- the key ---- */

static int write_key(int fd, const char *key)
{
    char line[256];
    int n = snprintf(line, sizeof(line), "%s\n", key);
    ssize_t written = write(fd, line, (size_t)n);
    explicit_bzero(line, sizeof(line));
    return written == n ? 0 : written < 0 ? -errno : -ENOSPC;
}

/* A file as a server that was killed leaves it. */
static bool is_left_behind(const char *path, const char *key)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           (st.st_mode & 0777) == 0600 && (size_t)st.st_size == strlen(key) + 1;
}

int admin_socket_tell_key(struct admin_socket *s, const char *key, struct err *e)
{
    char path[SOCKET_PATH_BYTES + 8];
    struct stat st;
    drop(&s->key);
    if (!key || !s->socket.path[0])
        return 0;
    socket_path_beside(s->socket.path, ".key", path, sizeof(path));
    if (is_left_behind(path, key))
        unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(e, -errno, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) == 0)
        note(&s->key, path, &st);
    int r = write_key(fd, key);
    close(fd);
    return r < 0 ? err_set(e, r, "%s: %s", path, strerror(-r)) : 0;
}

void admin_socket_close(struct admin_socket *s)
{
    drop(&s->key);
    drop(&s->socket);
}
