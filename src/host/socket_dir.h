/* socket_dir.h - directories for admin sockets on this machine, and the servers found there.
 *
 * $PLATEAU_RUNTIME_DIR, if it is set, is the only one. Without it, in the order in which a server tries
 * them: $RUNTIME_DIRECTORY (systemd's), $XDG_RUNTIME_DIR/plateau, /run/plateau (root's),
 * ~/.local/state/plateau/run, /tmp/plateau-UID. Each must belong to the own user, and be writable by that
 * user only. */
#ifndef PLATEAU_HOST_SOCKET_DIR_H
#define PLATEAU_HOST_SOCKET_DIR_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOCKET_PATH_BYTES  108 /* bytes of sockaddr_un.sun_path, with the terminating zero */
#define SOCKET_DIRS_MAX    5
#define SOCKET_FILES_MAX   1024 /* entries of a directory that are looked at */
#define SOCKET_SERVERS_MAX 32

struct socket_dir {
    char path[SOCKET_PATH_BYTES];
    bool given; /* made by the operator, who may let other users read it */
};

struct socket_dirs {
    struct socket_dir list[SOCKET_DIRS_MAX];
    uint32_t count;
};

/* serves: where a server may put its own; else all where one may be, /run/plateau too. None if
 * $PLATEAU_RUNTIME_DIR is relative or too long. */
void socket_dirs_find(bool serves, struct socket_dirs *ret);
/* A descriptor of the directory, made if it is missing, and locked until the descriptor is closed. -EPERM: it
 * is another user's, or others may write to it; -EBUSY: socket_dir_lock(); -ENAMETOOLONG; or the system's
 * error. */
int socket_dir_open(const struct socket_dir *d, struct err *e);

/* Locks a directory until `fd` is closed. Whoever may read a directory may lock it, so the wait ends: 0, or
 * -EBUSY if another process has held the lock for a second. */
int socket_dir_lock(int fd);

enum socket_state {
    SOCKET_NONE,    /* there is nothing of that name */
    SOCKET_STALE,   /* its server is gone */
    SOCKET_LIVE,    /* a server listens */
    SOCKET_FOREIGN, /* it is not a socket, or this user may not connect */
};
enum socket_state socket_state_of(const char *path);

/* The path of a file beside a socket: "PATH.sock" becomes "PATH" and `tail`, such as ".key". Cut to fit. */
void socket_path_beside(const char *socket, const char *tail, char *ret, size_t bytes_max);

/* Removes sockets of servers that are gone, and their key files. The directory is locked. */
void socket_dir_tidy(const char *path);

struct socket_servers {
    char paths[SOCKET_SERVERS_MAX][SOCKET_PATH_BYTES];
    uint32_t count;
    char shut[SOCKET_PATH_BYTES]; /* one that is there for another user, or a directory that cannot be read;
                                     "": none */
};
/* Servers that listen now. */
void socket_servers_find(struct socket_servers *ret);

#endif
