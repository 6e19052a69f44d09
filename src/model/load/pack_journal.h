/* pack_journal.h - which parts of a file that is being packed are complete: a checksum of each, in order.
 *
 * A text file beside it. The first line says of what the parts are; a journal of something else is begun
 * anew. A line that was cut counts as none. One thread. */
#ifndef PLATEAU_MODEL_PACK_JOURNAL_H
#define PLATEAU_MODEL_PACK_JOURNAL_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct pack_journal {
    int fd;          /* -1: not open */
    uint64_t *parts; /* [parts_max] checksums, heap */
    uint32_t part_count, parts_max;
};

/* Reads the journal at `path`, or makes one. `identity`: one line. Parts beyond parts_max are dropped. 0,
 * -ENOMEM, or what the system said. */
int pack_journal_open(const char *path, const char *identity, uint32_t parts_max, struct pack_journal *ret,
                      struct err *e);
/* Forgets all parts from `count` on. */
int pack_journal_cut(struct pack_journal *j, uint32_t count, struct err *e);
/* The next part is on disk. On disk itself when this returns. */
int pack_journal_add(struct pack_journal *j, uint64_t check, struct err *e);
void pack_journal_close(struct pack_journal *j);

#endif
