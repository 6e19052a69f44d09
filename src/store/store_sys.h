/* store_sys.h - what the SSD tier asks of the system: a table, so that tests can let each call fail or hang.
 *
 * Paths are relative to the directory `dir`. Every call returns what the system's does, with -errno for a
 * failure. Any thread. */
#ifndef PLATEAU_STORE_STORE_SYS_H
#define PLATEAU_STORE_STORE_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct store_sys {
    void *arg;
    int (*open)(void *arg, int dir, const char *path, int flags); /* new files are their owner's alone */
    int (*close)(void *arg, int fd);
    ssize_t (*pread)(void *arg, int fd, void *bytes, size_t len, uint64_t at);
    ssize_t (*pwrite)(void *arg, int fd, const void *bytes, size_t len, uint64_t at);
    int (*rename)(void *arg, int dir, const char *from, const char *to);
    int (*unlink)(void *arg, int dir, const char *path);
    int (*mkdir)(void *arg, int dir, const char *path);
    int (*stat)(void *arg, int dir, const char *path, struct stat *ret); /* a link: the link itself */
    int (*fstat)(void *arg, int fd, struct stat *ret);
    int (*touch)(void *arg, int fd, uint64_t used_ns); /* it was used then, since 1970 */
    int (*lock)(void *arg, int fd); /* for this process alone; -EWOULDBLOCK: another one has it */
    int (*space)(void *arg, int dir, struct statvfs *ret);
    /* Every name in a directory but "." and "..", until `found` says false. */
    int (*list)(void *arg, int dir, const char *path, bool (*found)(void *arg, const char *name),
                void *found_arg);
};

extern const struct store_sys store_sys_real;

#endif
