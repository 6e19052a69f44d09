/* block_pool.c - two bitmaps of blocks and a count per unit.
 *
 * `free` holds what nobody has; `ready` those of them whose units are all committed. Taking prefers a ready block: memory
 * that is here already is used before more is asked for, so that when the account says no, what was given back can
 * be taken. Both hand out the lowest, which keeps the high units empty for trim. A list of free blocks was
 * dropped: it hands out what was freed last and scatters the taken ones over all units. */
#include "cache/block_pool.h"

#include "base/check.h"

#include <errno.h>

/* Bits, and for each of their words whether it has one. */
struct bitmap {
    uint64_t *words, *summary;
    uint32_t word_count, summary_count;
};

struct block_pool {
    /* Constant. */
    uint32_t blocks_max;
    size_t block_bytes;
    struct units *units;
    /* Engine thread only. */
    struct bitmap free, ready;
    uint32_t *unit_taken; /* [units]: taken blocks that touch it */
    uint32_t taken, peak, ready_count;
    uint32_t units_top; /* no unit from here on is committed */
};

/* ---- bitmap ---- */

static int bitmap_init(struct bitmap *b, struct arena *a, uint32_t bits)
{
    b->word_count = DIV_UP(bits, 64u);
    b->summary_count = DIV_UP(b->word_count, 64u);
    b->words = ARENA_ARRAY(a, uint64_t, b->word_count);
    b->summary = ARENA_ARRAY(a, uint64_t, b->summary_count);
    return b->words && b->summary ? 0 : -ENOMEM;
}

static void bitmap_set(struct bitmap *b, uint32_t bit)
{
    b->words[bit / 64] |= 1ull << bit % 64;
    b->summary[bit / 4096] |= 1ull << bit / 64 % 64;
}

static void bitmap_clear(struct bitmap *b, uint32_t bit)
{
    b->words[bit / 64] &= ~(1ull << bit % 64);
    if (b->words[bit / 64] == 0)
        b->summary[bit / 4096] &= ~(1ull << bit / 64 % 64);
}

static bool bitmap_has(const struct bitmap *b, uint32_t bit)
{
    return b->words[bit / 64] >> bit % 64 & 1;
}

/* The lowest bit. False when there is none. */
static bool bitmap_first(const struct bitmap *b, uint32_t *ret)
{
    for (uint32_t i = 0; i < b->summary_count; i++) {
        if (b->summary[i] == 0)
            continue;
        uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(b->summary[i]);
        *ret = word * 64 + (uint32_t)__builtin_ctzll(b->words[word]);
        return true;
    }
    return false;
}

/* ---- blocks and units ---- */

struct span {
    uint32_t first, last; /* inclusive */
};

static struct span units_of_block(const struct block_pool *p, uint32_t block)
{
    size_t from = block * p->block_bytes;
    return (struct span){(uint32_t)(from / UNIT_BYTES), (uint32_t)((from + p->block_bytes - 1) / UNIT_BYTES)};
}

/* Blocks that touch the unit; empty (first > last) when there are none. */
static struct span blocks_of_unit(const struct block_pool *p, uint32_t unit)
{
    size_t from = unit * UNIT_BYTES, last = (from + UNIT_BYTES - 1) / p->block_bytes;
    return (struct span){(uint32_t)(from / p->block_bytes), (uint32_t)MIN_OF(last, p->blocks_max - 1)};
}

static bool is_committed(const struct block_pool *p, uint32_t block)
{
    struct span u = units_of_block(p, block);
    for (uint32_t i = u.first; i <= u.last; i++)
        if (!unit_is_committed(p->units, i))
            return false;
    return true;
}

static void set_ready(struct block_pool *p, uint32_t block, bool ready)
{
    p->ready_count += ready;
    p->ready_count -= bitmap_has(&p->ready, block);
    if (ready)
        bitmap_set(&p->ready, block);
    else
        bitmap_clear(&p->ready, block);
}

/* After a unit has come or gone: which of its free blocks are ready now. */
static void update_ready(struct block_pool *p, uint32_t unit)
{
    struct span b = blocks_of_unit(p, unit);
    for (uint32_t i = b.first; i <= b.last; i++) {
        if (bitmap_has(&p->free, i))
            set_ready(p, i, is_committed(p, i));
    }
}

static void decommit(struct block_pool *p, uint32_t unit)
{
    unit_decommit(p->units, unit);
    update_ready(p, unit);
    while (p->units_top > 0 && !unit_is_committed(p->units, p->units_top - 1))
        p->units_top--;
}

/* Commits the block's units, or none of them. */
static int commit_block(struct block_pool *p, uint32_t block)
{
    struct span u = units_of_block(p, block);
    uint32_t before = units_committed(p->units);
    int r = 0;
    for (uint32_t i = u.first; i <= u.last && r == 0; i++) {
        r = unit_commit(p->units, i);
        if (r == 0) {
            p->units_top = MAX_OF(p->units_top, i + 1);
            update_ready(p, i);
        }
    }
    /* As many of its empty units go as have come; which of them makes no difference. */
    for (uint32_t i = u.first; i <= u.last && r < 0 && units_committed(p->units) > before; i++)
        if (p->unit_taken[i] == 0 && unit_is_committed(p->units, i))
            decommit(p, i);
    return r;
}

/* ---- interface ---- */

size_t block_pool_arena_bytes(const struct block_pool_opts *opts)
{
    size_t units = DIV_UP(opts->blocks_max * opts->block_bytes, UNIT_BYTES);
    size_t bitmap = (opts->blocks_max / 64 + 1) * sizeof(uint64_t) * 65 / 64 + 256;
    return sizeof(struct block_pool) + 2 * bitmap + units * sizeof(uint32_t) + 256;
}

int block_pool_create(struct arena *a, const struct block_pool_opts *opts, struct block_pool **ret)
{
    size_t bytes;
    if (opts->blocks_max == 0 || opts->block_bytes == 0 || opts->block_bytes % 64 || !opts->account)
        return -EINVAL;
    if (__builtin_mul_overflow((size_t)opts->blocks_max, opts->block_bytes, &bytes) ||
        bytes / UNIT_BYTES >= UINT32_MAX)
        return -EINVAL;
    uint32_t units = (uint32_t)DIV_UP(bytes, UNIT_BYTES);
    struct block_pool *p = ARENA_NEW(a, struct block_pool);
    if (!p)
        return -ENOMEM;
    p->blocks_max = opts->blocks_max;
    p->block_bytes = opts->block_bytes;
    p->unit_taken = ARENA_ARRAY(a, uint32_t, units);
    if (!p->unit_taken || bitmap_init(&p->free, a, opts->blocks_max) < 0 ||
        bitmap_init(&p->ready, a, opts->blocks_max) < 0)
        return -ENOMEM;
    int r = units_create(opts->account, units, &p->units);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < p->blocks_max; i++)
        bitmap_set(&p->free, i);
    *ret = p;
    return 0;
}

void block_pool_done(struct block_pool *p)
{
    if (!p)
        return;
    units_free(p->units);
    p->units = NULL;
}

int block_pool_take(struct block_pool *p, uint32_t *ret)
{
    uint32_t block;
    int r = 0;
    if (!bitmap_first(&p->ready, &block)) {
        if (!bitmap_first(&p->free, &block))
            return -ENOSPC;
        r = commit_block(p, block);
    }
    if (r < 0)
        return r;
    bitmap_clear(&p->free, block);
    set_ready(p, block, false);
    struct span u = units_of_block(p, block);
    for (uint32_t i = u.first; i <= u.last; i++)
        p->unit_taken[i]++;
    p->taken++;
    p->peak = MAX_OF(p->peak, p->taken);
    *ret = block;
    return 0;
}

void block_pool_give(struct block_pool *p, uint32_t index)
{
    ASSERT(block_pool_is_taken(p, index));
    struct span u = units_of_block(p, index);
    for (uint32_t i = u.first; i <= u.last; i++)
        p->unit_taken[i]--;
    bitmap_set(&p->free, index);
    set_ready(p, index, true);
    p->taken--;
}

bool block_pool_is_taken(const struct block_pool *p, uint32_t index)
{
    ASSERT(index < p->blocks_max);
    return !bitmap_has(&p->free, index);
}

uint32_t block_pool_free_count(const struct block_pool *p)
{
    return p->blocks_max - p->taken;
}

uint32_t block_pool_ready_count(const struct block_pool *p)
{
    return p->ready_count;
}

uint64_t block_pool_trim(struct block_pool *p, uint32_t units_max)
{
    uint64_t bytes = 0;
    for (uint32_t i = p->units_top; i-- > 0 && bytes < units_max * (uint64_t)UNIT_BYTES;) {
        if (p->unit_taken[i] > 0 || !unit_is_committed(p->units, i))
            continue;
        decommit(p, i);
        bytes += UNIT_BYTES;
    }
    return bytes;
}

char *block_pool_base(const struct block_pool *p)
{
    return units_base(p->units);
}

void block_pool_numbers(const struct block_pool *p, struct pool_numbers *ret)
{
    uint64_t active = (uint64_t)p->taken * p->block_bytes;
    *ret = (struct pool_numbers){
        .taken = p->taken,
        .peak = p->peak,
        .blocks_max = p->blocks_max,
        .units_committed = units_committed(p->units),
        .active_bytes = active,
        .cached_bytes = (uint64_t)units_committed(p->units) * UNIT_BYTES - active,
        .limit_bytes = (uint64_t)units_max(p->units) * UNIT_BYTES,
    };
}

static void check_unit(const struct block_pool *p, uint32_t unit)
{
    struct span b = blocks_of_unit(p, unit);
    uint32_t taken = 0;
    for (uint32_t i = b.first; i <= b.last; i++)
        taken += block_pool_is_taken(p, i);
    ASSERT(p->unit_taken[unit] == taken);
    ASSERT(taken == 0 || unit_is_committed(p->units, unit));
    ASSERT(unit < p->units_top || !unit_is_committed(p->units, unit));
}

void block_pool_check(const struct block_pool *p)
{
    uint32_t taken = 0, ready = 0;
    for (uint32_t i = 0; i < p->blocks_max; i++) {
        bool is_free = bitmap_has(&p->free, i);
        taken += !is_free;
        ready += bitmap_has(&p->ready, i);
        ASSERT(bitmap_has(&p->ready, i) == (is_free && is_committed(p, i)));
    }
    ASSERT(taken == p->taken && taken <= p->peak && ready == p->ready_count);
    for (uint32_t i = 0; i < units_max(p->units); i++)
        check_unit(p, i);
}
