/* admin_socket.h - the Unix socket on which a server answers its administrator, and the file with the key
 * that it made.
 *
 * The socket is PATH, or plateau-PORT.sock in the first directory of socket_dir.h that can be used; the key
 * file is called like it, with .key for .sock. Both have mode 0600, and both go at a clean end. What a server
 * that was killed has left behind is replaced. */
#ifndef PLATEAU_CLI_ADMIN_SOCKET_H
#define PLATEAU_CLI_ADMIN_SOCKET_H

#include "cli/socket_dir.h"

#include <sys/types.h>

struct admin_socket_file {
    char path[SOCKET_PATH_BYTES + 8]; /* "": there is none */
    dev_t device;
    ino_t inode;
};

struct admin_socket {
    struct admin_socket_file socket, key;
};

/* path NULL: where it usually is, under the port's name; with another server's of that name,
 * plateau-PORT-2.sock and so on. *fd listens then, and is the caller's. 0, -EADDRINUSE (a server answers
 * there), -EEXIST (it is no socket), -EPERM, -ENAMETOOLONG, or what the system said. */
int admin_socket_open(struct admin_socket *s, const char *path, uint16_t port, int *fd, struct err *e);
/* The key file says `key`; NULL: there is none. */
int admin_socket_tell_key(struct admin_socket *s, const char *key, struct err *e);
/* Removes both, if they are still those that were made. Zeroed is fine. */
void admin_socket_close(struct admin_socket *s);

#endif
