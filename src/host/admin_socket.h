/* admin_socket.h - the Unix socket for the administrator, and the file with the server's own admin key.
 *
 * The socket is PATH, or plateau-PORT.sock in the first usable directory of socket_dir.h; the key file has
 * the same name with .key for .sock. Both have mode 0600, and both are removed at a clean end. Files left
 * by a killed server are replaced. */
#ifndef PLATEAU_HOST_ADMIN_SOCKET_H
#define PLATEAU_HOST_ADMIN_SOCKET_H

#include "host/socket_dir.h"

#include <sys/types.h>

struct admin_socket_file {
    char path[SOCKET_PATH_BYTES + 8]; /* "": no socket */
    dev_t device;
    ino_t inode;
};

struct admin_socket {
    struct admin_socket_file socket, key;
    struct err skipped; /* why the first of the skipped directories was not used; "": none was skipped */
};

/* path NULL: where it usually is, under the port's name; with another server's of that name,
 * plateau-PORT-2.sock and so on. *fd listens then, and is the caller's. 0, -EADDRINUSE (a server answers
 * there), -EEXIST (it is not a socket), -EPERM, -ENAMETOOLONG, or what the system said. */
int admin_socket_open(struct admin_socket *s, const char *path, uint16_t port, int *fd, struct err *e);
/* Writes `key` to the key file; NULL: no key file. */
int admin_socket_tell_key(struct admin_socket *s, const char *key, struct err *e);
/* Removes both, unless they have been replaced. Zeroed is fine. */
void admin_socket_close(struct admin_socket *s);

#endif
