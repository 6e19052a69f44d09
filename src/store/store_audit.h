/* store_audit.h - looks at a directory of the SSD tier from outside, file by file: for the command cache.
 *
 * Reading needs no lock: a server may use the directory meanwhile, and a file that goes while it is looked at
 * is left out. Removing does need it. One file's bytes at a time on the general heap. Any one thread. */
#ifndef PLATEAU_STORE_STORE_AUDIT_H
#define PLATEAU_STORE_STORE_AUDIT_H

#include "base/err.h"
#include "store/store_file.h"

#include <stdbool.h>

enum store_found_kind {
    STORE_FOUND_ENTRY,      /* a page or a snapshot */
    STORE_FOUND_DAMAGED,    /* named like one, and not what its name says */
    STORE_FOUND_UNFINISHED, /* begun, and not renamed; a server that runs may be at it */
    STORE_FOUND_FOREIGN     /* not ours */
};

struct store_found {
    enum store_found_kind kind;
    const char *path;           /* below the directory; valid during the visit */
    struct store_header header; /* header of an entry */
    uint64_t bytes;             /* disk blocks */
    int64_t used_s;             /* since 1970 */
    int error; /* error of a damaged entry: -EINVAL no header or a damaged one, -EBADMSG its length or
                * payload, or an error of reading */
};

struct store_audit {
    uint64_t bytes; /* disk blocks of all, directories included */
    uint64_t count[STORE_FOUND_FOREIGN + 1];
};

typedef void store_visit_fn(void *arg, const struct store_found *found);

/* Visits every file; `whole`: reads it and checks its sums, else its header only. 0, or what opening the
 * directory said. */
int store_audit(const char *dir, bool whole, store_visit_fn *visit, void *arg, struct store_audit *ret,
                struct err *e);

struct store_gc {
    uint64_t removed_damaged, removed_unfinished, removed_oldest, failed;
    uint64_t bytes_before, bytes_now;
};
/* Removes damaged and unfinished files, then the least recently used ones until the limit holds. 0, -EBUSY
 * (a server uses the directory), -ENOMEM, or an error of opening it. */
int store_collect(const char *dir, uint64_t limit_bytes, struct store_gc *ret, struct err *e);

#endif
