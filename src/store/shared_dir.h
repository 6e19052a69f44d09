/* shared_dir.h - a directory that several servers share, as the store of the shared tier.
 *
 *     a/b/NAMEp     a value; a and b are the first digits of its name
 *     tmp/          values that are being written; renamed when complete
 *     clients/ID    a server: the number of the sweep it knows, bytes written since, time of its last write
 *     sweep         number of the last sweep, and the bytes that it left
 *
 * Each server renews its file every few seconds. The one that wrote least recently sweeps: it counts the
 * files, and removes the least recently used ones when seven eighths of the limit are in use. There is no
 * lock: a server that stops renewing its file for a minute counts as dead, and another one sweeps. Two that
 * sweep at once do no harm. A server writes no more when the last count and what all wrote since reach the
 * limit. So the directory exceeds the limit at most by the writes of other servers between two renewals.
 *
 * Files and directories have the root's permissions. Times are the file system's. */
#ifndef PLATEAU_STORE_SHARED_DIR_H
#define PLATEAU_STORE_SHARED_DIR_H

#include "base/err.h"
#include "base/arena.h"
#include "store/shared_backend.h"

struct shared_dir_opts {
    const char *path;
    uint64_t limit_bytes;
    bool own;          /* it must be this user's alone: values are not encrypted */
    uint64_t renew_ns; /* 0: 5 s */
    uint64_t dead_s;   /* 0: 60 */
};

/* Bytes of arena. */
size_t shared_dir_arena_bytes(void);
/* Makes the directory if its parent is there. 0, -EACCES (others may read or write it), or why it cannot be
 * used; `e` says it. */
int shared_dir_create(struct arena *a, const struct shared_dir_opts *opts, struct shared_backend *ret,
                      struct err *e);

#endif
