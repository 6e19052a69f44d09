/* pages.h - commits parts of a reserved address range, and gives them back.
 *
 * A range comes from mmap(PROT_NONE, MAP_NORESERVE). Committed pages are resident at once, so their first
 * use cannot fail; other pages fault, so a stray write is caught at its place. The caller charges the
 * bytes. */
#ifndef PLATEAU_BASE_PAGES_H
#define PLATEAU_BASE_PAGES_H

#include <stddef.h>

/* Makes [p, p + bytes), whole system pages, writable and resident; zeroed if it was not committed.
 * 0, or -ENOMEM and it is not committed. */
int pages_commit(char *p, size_t bytes);
/* The two halves of pages_commit(). After pages_open(), several threads may populate parts of the range at
 * once. What fails in either is the caller's to decommit. 0 or -ENOMEM. */
int pages_open(char *p, size_t bytes);
int pages_populate(char *p, size_t bytes);

/* Gives [p, p + bytes) back to the system at once. Its content is gone. 0, or what the system said (-EINVAL:
 * the range is locked in memory) and nothing has gone. */
int pages_decommit(char *p, size_t bytes);

/* Unmaps a whole range; its part [committed, committed + committed_bytes) has pages, which go in pieces
 * first. */
void pages_unmap(char *map, size_t map_bytes, char *committed, size_t committed_bytes);

#endif
