/* staging.h - the fixed buffer for all transfers to and from the disk.
 *
 * One range, committed whole when it is made; its pieces are whole blocks of 4 KiB, so O_DIRECT accepts
 * them. Bound: its bytes, and a bit for each block. One thread at a time: the holder of the store's lock. */
#ifndef PLATEAU_STORE_STAGING_H
#define PLATEAU_STORE_STAGING_H

#include "base/charge.h"

#include <stdbool.h>
#include <stdint.h>

struct staging {
    char *base;      /* NULL: not made */
    uint64_t *taken; /* a bit per block */
    uint32_t blocks, used, hint;
    struct charge charge;
};

/* Returns the charge for `bytes` of staging. */
size_t staging_bytes(size_t bytes);
/* 0 or -ENOMEM. `bytes` is rounded up to blocks. */
int staging_init(struct staging *s, size_t bytes, const struct charge *charge);
void staging_done(struct staging *s);

/* The first of `blocks` adjacent blocks; NONE: no such room. */
uint32_t staging_take(struct staging *s, uint32_t blocks);
void staging_give(struct staging *s, uint32_t first, uint32_t blocks);
char *staging_at(const struct staging *s, uint32_t first);

#endif
