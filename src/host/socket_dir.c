/* socket_dir.c - a socket without a server refuses connections, which distinguishes it from one with a
 * server.
 *
 * Checking, removing and binding happen under a lock on the directory, so two servers that start at once
 * do not remove each other's socket. The lock is the directory's own: no file is left over. */
#include "host/socket_dir.h"

#include "base/slice.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SYSTEM_DIR    "/run/plateau"
#define LOCK_TRIES    50 /* a second: a server that starts holds its lock for milliseconds */
#define LOCK_PAUSE_NS (20 * 1000 * 1000)

/* ---- which directories ---- */

static void add(struct socket_dirs *dirs, const char *head, const char *tail, bool given)
{
    struct socket_dir d = {.given = given};
    int n = snprintf(d.path, sizeof(d.path), "%s%s", head, tail);
    if (head[0] != '/' || n < 0 || (size_t)n >= sizeof(d.path) || dirs->count == SOCKET_DIRS_MAX)
        return;
    for (uint32_t i = 0; i < dirs->count; i++)
        if (strcmp(dirs->list[i].path, d.path) == 0)
            return;
    dirs->list[dirs->count++] = d;
}

/* The first of a list with colons, as systemd writes it. */
static void add_first(struct socket_dirs *dirs, const char *list)
{
    char first[SOCKET_PATH_BYTES];
    int n = snprintf(first, sizeof(first), "%.*s", (int)strcspn(list, ":"), list);
    if (n > 0 && (size_t)n < sizeof(first))
        add(dirs, first, "", true);
}

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

void socket_dirs_find(bool serves, struct socket_dirs *ret)
{
    char own[32];
    *ret = (struct socket_dirs){.count = 0};
    const char *only = environment("PLATEAU_RUNTIME_DIR");
    if (only[0]) {
        add(ret, only, "", true);
        return;
    }
    add_first(ret, environment("RUNTIME_DIRECTORY"));
    add(ret, environment("XDG_RUNTIME_DIR"), "/plateau", false);
    if (!serves || geteuid() == 0)
        add(ret, SYSTEM_DIR, "", !serves);
    const char *state = environment("XDG_STATE_HOME");
    add(ret, state[0] == '/' ? state : environment("HOME"),
        state[0] == '/' ? "/plateau/run" : "/.local/state/plateau/run", false);
    snprintf(own, sizeof(own), "/tmp/plateau-%u", (unsigned)geteuid());
    add(ret, own, "", false);
}

/* ---- one directory ---- */

/* With its parents; existing ones stay unchanged. 0, or why it is not there now. */
static int make(const char *path)
{
    char part[SOCKET_PATH_BYTES];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0700);
        *slash = '/';
    }
    return mkdir(part, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int check(const struct socket_dir *d, int fd, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_set(e, -errno, "%s: %s", d->path, strerror(errno));
    if (st.st_uid != geteuid())
        return err_set(e, -EPERM, "%s is another user's directory", d->path);
    if (d->given ? (st.st_mode & 022) == 0 : (st.st_mode & 077) == 0)
        return 0;
    return err_set(e, -EPERM, "%s is open to other users: chmod 700 %s", d->path, d->path);
}

int socket_dir_lock(int fd)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
    for (int tries = 1; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (tries == LOCK_TRIES)
            return -EBUSY;
        nanosleep(&pause, NULL);
    }
    return 0;
}

int socket_dir_open(const struct socket_dir *d, struct err *e)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (d->given ? 0 : O_NOFOLLOW);
    int made = d->given ? 0 : make(d->path);
    int fd = open(d->path, flags);
    /* A parent that cannot be written to says more than the directory that is not there. */
    int r = fd >= 0 ? 0 : errno == ENOENT && made < 0 ? made : -errno;
    if (r < 0)
        return err_set(e, r, "%s: %s", d->path, strerror(-r));
    r = check(d, fd, e);
    if (r == 0 && (r = socket_dir_lock(fd)) < 0)
        err_set(e, r, "%s cannot be locked: %s", d->path,
                r == -EBUSY ? "another process, maybe another user's, holds its lock" : strerror(-r));
    if (r < 0) {
        close(fd);
        return r;
    }
    return fd;
}

/* ---- sockets in it ---- */

enum socket_state socket_state_of(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? SOCKET_NONE : SOCKET_FOREIGN;
    if (!S_ISSOCK(st.st_mode) || strlen(path) >= sizeof(a.sun_path))
        return SOCKET_FOREIGN;
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return SOCKET_FOREIGN;
    int error = connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? errno : 0;
    close(fd);
    if (error == 0 || error == EAGAIN)
        return SOCKET_LIVE;
    return error == ECONNREFUSED ? SOCKET_STALE : SOCKET_FOREIGN;
}

static bool is_ours(const char *name)
{
    size_t len = strlen(name);
    return strncmp(name, "plateau-", 8) == 0 && len > 13 && strcmp(name + len - 5, ".sock") == 0;
}

/* Calls `see` with the path of each socket that is called as a server calls its own. */
static int each_socket(const char *dir, void (*see)(void *arg, const char *path), void *arg)
{
    DIR *d = opendir(dir);
    if (!d)
        return -errno;
    struct dirent *entry;
    for (int i = 0; i < SOCKET_FILES_MAX && (entry = readdir(d)); i++) {
        char path[SOCKET_PATH_BYTES];
        int n = snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        if (is_ours(entry->d_name) && n > 0 && (size_t)n < sizeof(path))
            see(arg, path);
    }
    closedir(d);
    return 0;
}

void socket_path_beside(const char *socket, const char *tail, char *ret, size_t bytes_max)
{
    struct slice s = slice_of(socket);
    if (slice_ends(s, SLICE(".sock")))
        s.len -= 5;
    snprintf(ret, bytes_max, "%.*s%s", SLICE_ARGS(s), tail);
}

static void remove_stale(void *arg, const char *path)
{
    char key[SOCKET_PATH_BYTES + 8];
    (void)arg;
    if (socket_state_of(path) != SOCKET_STALE)
        return;
    unlink(path);
    socket_path_beside(path, ".key", key, sizeof(key));
    unlink(key);
}

void socket_dir_tidy(const char *path)
{
    each_socket(path, remove_stale, NULL);
}

/* ---- servers ---- */

static void see_server(void *arg, const char *path)
{
    struct socket_servers *s = arg;
    enum socket_state state = socket_state_of(path);
    if (state == SOCKET_FOREIGN)
        snprintf(s->shut, sizeof(s->shut), "%s", path);
    if (state == SOCKET_LIVE && s->count < SOCKET_SERVERS_MAX)
        snprintf(s->paths[s->count++], SOCKET_PATH_BYTES, "%s", path);
}

/* Another user controls the content of their directory; root accepts that of the service. */
static bool is_trusted(const struct socket_dir *d)
{
    struct stat st;
    if (stat(d->path, &st) < 0)
        return true; /* reading it reports the error */
    return st.st_uid == 0 || st.st_uid == geteuid() || strcmp(d->path, SYSTEM_DIR) == 0;
}

void socket_servers_find(struct socket_servers *ret)
{
    struct socket_dirs dirs;
    *ret = (struct socket_servers){.count = 0};
    socket_dirs_find(false, &dirs);
    for (uint32_t i = 0; i < dirs.count; i++) {
        if (!is_trusted(&dirs.list[i]))
            continue;
        int r = each_socket(dirs.list[i].path, see_server, ret);
        if (r == -EACCES)
            snprintf(ret->shut, sizeof(ret->shut), "%s", dirs.list[i].path);
    }
}
