/* pages.c - MADV_POPULATE_WRITE in, MADV_DONTNEED out.
 *
 * Populating is one call instead of a fault per page, and it reports that there is no memory where touching
 * would kill the process. */
#include "base/pages.h"

#include "base/check.h"
#include "base/threads/priority.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* The kernel's lock on the address space is held for each piece, and engines need it to commit a unit of
 * theirs: pieces are short, and a low-priority thread does them at normal priority. */
#define PIECE_BYTES ((size_t)4 << 20)

static int advise(char *p, size_t bytes, int advice)
{
    int r = 0;
    for (size_t at = 0; at < bytes && r == 0; at += PIECE_BYTES) {
        priority_raise();
        r = madvise(p + at, MIN_OF(PIECE_BYTES, bytes - at), advice);
        priority_restore();
    }
    return r;
}

int pages_populate(char *p, size_t bytes)
{
    if (advise(p, bytes, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (errno != EINVAL) /* EINVAL: a kernel before 5.14; touch every page instead */
        return -ENOMEM;
    for (size_t i = 0; i < bytes; i += 4096)
        *(volatile char *)(p + i) = 0;
    return 0;
}

int pages_open(char *p, size_t bytes)
{
    priority_raise();
    int r = mprotect(p, bytes, PROT_READ | PROT_WRITE);
    priority_restore();
    return r == 0 ? 0 : -ENOMEM;
}

int pages_commit(char *p, size_t bytes)
{
    if (pages_open(p, bytes) == 0 && pages_populate(p, bytes) == 0)
        return 0;
    (void)pages_decommit(p, bytes);
    return -ENOMEM;
}

int pages_decommit(char *p, size_t bytes)
{
    if (madvise(p, bytes, MADV_DONTNEED) < 0)
        return -errno;
    /* It may fail only for a foreign range. (Splitting a mapping can run out of mappings: then the pages
     * are gone and stay accessible.) */
    ASSERT(mprotect(p, bytes, PROT_NONE) == 0 || errno == ENOMEM);
    return 0;
}

void pages_unmap(char *map, size_t map_bytes, char *committed, size_t committed_bytes)
{
    (void)advise(committed, committed_bytes, MADV_DONTNEED);
    priority_raise();
    munmap(map, map_bytes);
    priority_restore();
}
