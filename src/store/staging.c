/* staging.c - next fit over a map of bits: pieces live for milliseconds, and most of a time have one size. */
#include "store/staging.h"

#include "base/check.h"
#include "base/none.h"
#include "base/pages.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK_BYTES ((size_t)4096)

static size_t map_bytes(size_t blocks)
{
    return ROUND_UP(DIV_UP(blocks, 64) * sizeof(uint64_t), BLOCK_BYTES);
}

size_t staging_bytes(size_t bytes)
{
    size_t blocks = DIV_UP(bytes, BLOCK_BYTES);
    return blocks * BLOCK_BYTES + map_bytes(blocks);
}

int staging_init(struct staging *s, size_t bytes, const struct charge *charge)
{
    size_t blocks = DIV_UP(bytes, BLOCK_BYTES), all = staging_bytes(bytes);
    if (blocks == 0 || blocks >= NONE)
        return -EINVAL;
    int r = charge_take(charge, all);
    if (r < 0)
        return r;
    char *base = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED && pages_commit(base, all) == 0) {
        *s = (struct staging){.base = base,
                              .taken = (uint64_t *)(base + blocks * BLOCK_BYTES),
                              .blocks = (uint32_t)blocks,
                              .charge = charge ? *charge : (struct charge){0}};
        return 0;
    }
    if (base != MAP_FAILED)
        munmap(base, all);
    charge_give(charge, all);
    return -ENOMEM;
}

void staging_done(struct staging *s)
{
    if (!s->base)
        return;
    size_t all = staging_bytes(s->blocks * BLOCK_BYTES);
    munmap(s->base, all);
    charge_give(s->charge.give ? &s->charge : NULL, all);
    s->base = NULL;
}

static bool is_taken(const struct staging *s, uint32_t block)
{
    return s->taken[block / 64] >> block % 64 & 1;
}

static void set(struct staging *s, uint32_t first, uint32_t blocks)
{
    for (uint32_t i = first; i < first + blocks; i++)
        s->taken[i / 64] ^= 1ull << i % 64;
}

/* `blocks` adjacent free blocks within [from, to). */
static uint32_t find(const struct staging *s, uint32_t from, uint32_t to, uint32_t blocks)
{
    uint32_t run = 0;
    for (uint32_t i = from; i < to; i++) {
        if (i % 64 == 0 && s->taken[i / 64] == UINT64_MAX) {
            run = 0;
            i += 63;
            continue;
        }
        run = is_taken(s, i) ? 0 : run + 1;
        if (run == blocks)
            return i + 1 - blocks;
    }
    return NONE;
}

uint32_t staging_take(struct staging *s, uint32_t blocks)
{
    if (blocks == 0 || blocks > s->blocks - s->used)
        return NONE;
    uint32_t first = find(s, s->hint, s->blocks, blocks);
    if (first == NONE)
        first = find(s, 0, s->blocks, blocks);
    if (first == NONE)
        return NONE;
    ASSERT(first + blocks <= s->blocks && !is_taken(s, first));
    set(s, first, blocks);
    s->used += blocks;
    s->hint = first + blocks == s->blocks ? 0 : first + blocks;
    return first;
}

void staging_give(struct staging *s, uint32_t first, uint32_t blocks)
{
    ASSERT(blocks > 0 && blocks <= s->used && first + blocks <= s->blocks && is_taken(s, first));
    set(s, first, blocks);
    s->used -= blocks;
}

char *staging_at(const struct staging *s, uint32_t first)
{
    ASSERT(first < s->blocks);
    return s->base + first * BLOCK_BYTES;
}
