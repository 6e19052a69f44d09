/* block_pool.c - two bitmaps of blocks and a count per commit unit.
 *
 * `free` has the free blocks; `ready` has the free blocks whose units are all committed. Taking prefers a
 * ready block: committed memory is used before more is committed. So freed blocks can be taken even when the
 * account refuses. Both hand out the lowest block, which keeps the high units empty for trim. A list of free
 * blocks was dropped: it hands out the block freed last and scatters the taken ones over all units. */
#include "cache/block_pool.h"

#include "base/check.h"
#include "memory/domain.h"

#include <errno.h>

/* Bits, and a summary: for each word whether any bit is set. */
struct bitmap {
    uint64_t *words, *summary;
    uint32_t word_count, summary_count;
};

#define GIVEN_MAX      256           /* in the last second; beyond that recommits are not counted */
#define PREPARE_MIN    4             /* fewer units are not worth waking other threads */
#define RECOMMITTED_NS 1000000000ull /* a unit committed again within this time should have stayed */

struct block_pool {
    /* Constant. */
    struct block_pool_opts opts;
    struct units *units;
    /* Engine thread only. */
    struct bitmap free, ready;
    uint32_t *unit_taken;   /* [units]: taken blocks that touch it */
    uint64_t *unit_emptied; /* [units]: when its last taken block was freed */
    uint32_t taken, peak, ready_count;
    uint32_t units_top; /* no unit from this index on is committed */
    uint64_t now_ns;
    /* When units were decommitted, the newest last, without those committed again. */
    uint64_t given_ns[GIVEN_MAX];
    uint32_t given_first, given_count;
    uint64_t recommitted;
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
    ASSERT(bit / 64 < b->word_count);
    b->words[bit / 64] |= 1ull << bit % 64;
    b->summary[bit / 4096] |= 1ull << bit / 64 % 64;
}

static void bitmap_clear(struct bitmap *b, uint32_t bit)
{
    ASSERT(bit / 64 < b->word_count);
    b->words[bit / 64] &= ~(1ull << bit % 64);
    if (b->words[bit / 64] == 0)
        b->summary[bit / 4096] &= ~(1ull << bit / 64 % 64);
}

static bool bitmap_has(const struct bitmap *b, uint32_t bit)
{
    return b->words[bit / 64] >> bit % 64 & 1;
}

/* The lowest set bit. False when no bit is set. */
static bool bitmap_first(const struct bitmap *b, uint32_t *ret)
{
    for (uint32_t i = 0; i < b->summary_count; i++) {
        if (b->summary[i] == 0)
            continue;
        uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(b->summary[i]);
        ASSERT(b->words[word] != 0);
        *ret = word * 64 + (uint32_t)__builtin_ctzll(b->words[word]);
        return true;
    }
    return false;
}

/* How many bits of [from, to) are set. */
static uint32_t bitmap_count(const struct bitmap *b, uint32_t from, uint32_t to)
{
    ASSERT(to <= b->word_count * 64);
    uint32_t count = 0;
    while (from < to) {
        uint32_t bits = MIN_OF(to - from, 64 - from % 64);
        uint64_t mask = (bits < 64 ? (1ull << bits) - 1 : UINT64_MAX) << from % 64;
        count += (uint32_t)__builtin_popcountll(b->words[from / 64] & mask);
        from += bits;
    }
    return count;
}

/* ---- blocks and units ---- */

struct span {
    uint32_t first, last; /* inclusive */
};

static struct span units_of_block(const struct block_pool *p, uint32_t block)
{
    size_t from = block * p->opts.block_bytes;
    return (struct span){(uint32_t)(from / UNIT_BYTES),
                         (uint32_t)((from + p->opts.block_bytes - 1) / UNIT_BYTES)};
}

/* Blocks that touch the unit; empty (first > last) when no block does. */
static struct span blocks_of_unit(const struct block_pool *p, uint32_t unit)
{
    ASSERT(unit < units_max(p->units));
    size_t from = unit * UNIT_BYTES, last = (from + UNIT_BYTES - 1) / p->opts.block_bytes;
    return (struct span){(uint32_t)(from / p->opts.block_bytes),
                         (uint32_t)MIN_OF(last, p->opts.blocks_max - 1)};
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
    ASSERT(!ready || bitmap_has(&p->free, block));
    p->ready_count += ready;
    p->ready_count -= bitmap_has(&p->ready, block);
    if (ready)
        bitmap_set(&p->ready, block);
    else
        bitmap_clear(&p->ready, block);
    ASSERT(p->ready_count <= p->opts.blocks_max);
}

/* After a unit was committed or decommitted: updates which of its free blocks are ready. */
static void update_ready(struct block_pool *p, uint32_t unit)
{
    struct span b = blocks_of_unit(p, unit);
    for (uint32_t i = b.first; i <= b.last; i++) {
        if (bitmap_has(&p->free, i))
            set_ready(p, i, is_committed(p, i));
    }
}

static void note_given(struct block_pool *p)
{
    if (p->given_count == GIVEN_MAX) {
        p->given_first = (p->given_first + 1) % GIVEN_MAX;
        p->given_count--;
    }
    ASSERT(p->given_count < GIVEN_MAX);
    p->given_ns[(p->given_first + p->given_count++) % GIVEN_MAX] = p->now_ns;
}

/* A unit was committed: counts it if one was decommitted a moment ago. */
static void note_taken(struct block_pool *p)
{
    if (p->given_count == 0)
        return;
    uint64_t given_ns = p->given_ns[(p->given_first + --p->given_count) % GIVEN_MAX];
    p->recommitted += p->now_ns - given_ns < RECOMMITTED_NS;
}

/* False: the system refuses, and the unit stays committed. */
static bool decommit(struct block_pool *p, uint32_t unit)
{
    ASSERT(p->unit_taken[unit] == 0);
    if (unit_decommit(p->units, unit) < 0)
        return false;
    note_given(p);
    update_ready(p, unit);
    while (p->units_top > 0 && !unit_is_committed(p->units, p->units_top - 1))
        p->units_top--;
    return true;
}

/* After a unit was committed. */
static void note_committed(struct block_pool *p, uint32_t unit)
{
    note_taken(p);
    p->unit_emptied[unit] = p->now_ns;
    p->units_top = MAX_OF(p->units_top, unit + 1);
    update_ready(p, unit);
}

/* Commits the block's units, or none of them. */
static int commit_block(struct block_pool *p, uint32_t block)
{
    struct span u = units_of_block(p, block);
    uint32_t before = units_committed(p->units);
    int r = 0;
    for (uint32_t i = u.first; i <= u.last && r == 0; i++) {
        bool comes = !unit_is_committed(p->units, i);
        r = unit_commit(p->units, i);
        if (r == 0 && comes)
            note_committed(p, i);
    }
    /* Decommits as many of the block's empty units as were committed; which of them makes no difference. */
    for (uint32_t i = u.first; i <= u.last && r < 0 && units_committed(p->units) > before; i++)
        if (p->unit_taken[i] == 0 && unit_is_committed(p->units, i))
            (void)decommit(p, i);
    ASSERT(r < 0 || is_committed(p, block));
    return r;
}

/* ---- interface ---- */

size_t block_pool_arena_bytes(const struct block_pool_opts *opts)
{
    size_t units = DIV_UP(opts->blocks_max * opts->block_bytes, UNIT_BYTES);
    size_t bitmap = (opts->blocks_max / 64 + 1) * sizeof(uint64_t) * 65 / 64 + 256;
    return sizeof(struct block_pool) + 2 * bitmap + units * (sizeof(uint32_t) + sizeof(uint64_t)) + 256;
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
    p->opts = *opts;
    p->unit_taken = ARENA_ARRAY(a, uint32_t, units);
    p->unit_emptied = ARENA_ARRAY(a, uint64_t, units);
    if (!p->unit_taken || !p->unit_emptied || bitmap_init(&p->free, a, opts->blocks_max) < 0 ||
        bitmap_init(&p->ready, a, opts->blocks_max) < 0)
        return -ENOMEM;
    int r = units_create(opts->account, UNIT_BYTES, units, &p->units);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < p->opts.blocks_max; i++)
        bitmap_set(&p->free, i);
    *ret = p;
    return 0;
}

struct units *block_pool_done(struct block_pool *p)
{
    struct units *u = p ? p->units : NULL;
    if (p)
        p->units = NULL;
    return units_free(u) == 0 ? NULL : u;
}

static void take(struct block_pool *p, uint32_t block)
{
    ASSERT(bitmap_has(&p->free, block));
    ASSERT(is_committed(p, block));
    bitmap_clear(&p->free, block);
    set_ready(p, block, false);
    struct span u = units_of_block(p, block);
    for (uint32_t i = u.first; i <= u.last; i++)
        p->unit_taken[i]++;
    p->taken++;
    p->peak = MAX_OF(p->peak, p->taken);
    ASSERT(p->taken <= p->opts.blocks_max);
}

static int take_lowest(struct block_pool *p, uint32_t *ret)
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
    take(p, block);
    *ret = block;
    return 0;
}

int block_pool_take(struct block_pool *p, uint32_t *ret)
{
    const struct block_pool_opts *o = &p->opts;
    int r = take_lowest(p, ret);
    while (r == -ENOMEM && o->reclaim && (o->reclaim(o->arg, false) || o->reclaim(o->arg, true)))
        r = take_lowest(p, ret);
    ASSERT(r < 0 || *ret < p->opts.blocks_max);
    return r;
}

/* Missing units of the lowest `blocks` free blocks that are not ready, at most UNITS_AT_ONCE. */
static uint32_t missing_units(const struct block_pool *p, uint32_t blocks, uint32_t *ret)
{
    uint32_t count = 0, word = 0;
    uint64_t bits = 0;
    while (blocks > 0 && count < UNITS_AT_ONCE) {
        while (bits == 0 && word < p->free.word_count) {
            bits = p->free.words[word] & ~p->ready.words[word];
            word++;
        }
        if (bits == 0)
            break;
        struct span u = units_of_block(p, (word - 1) * 64 + (uint32_t)__builtin_ctzll(bits));
        for (uint32_t unit = u.first; unit <= u.last && count < UNITS_AT_ONCE; unit++) {
            bool is_listed = count > 0 && ret[count - 1] >= unit;
            if (!is_listed && !unit_is_committed(p->units, unit))
                ret[count++] = unit;
        }
        bits &= bits - 1;
        blocks--;
    }
    return count;
}

void block_pool_prepare(struct block_pool *p, uint32_t blocks, const struct units_crew *crew)
{
    uint32_t units[UNITS_AT_ONCE];
    if (blocks <= p->ready_count)
        return;
    uint32_t count = missing_units(p, blocks - p->ready_count, units);
    if (count < PREPARE_MIN)
        return;
    uint32_t done = units_commit_many(p->units, units, count, crew);
    for (uint32_t i = 0; i < done; i++)
        note_committed(p, units[i]);
}

void block_pool_give(struct block_pool *p, uint32_t index)
{
    ASSERT(block_pool_is_taken(p, index));
    struct span u = units_of_block(p, index);
    for (uint32_t i = u.first; i <= u.last; i++) {
        ASSERT(p->unit_taken[i] > 0);
        if (--p->unit_taken[i] == 0)
            p->unit_emptied[i] = p->now_ns;
    }
    ASSERT(p->taken > 0);
    bitmap_set(&p->free, index);
    set_ready(p, index, true);
    p->taken--;
}

bool block_pool_is_taken(const struct block_pool *p, uint32_t index)
{
    ASSERT(index < p->opts.blocks_max);
    return !bitmap_has(&p->free, index);
}

uint32_t block_pool_ready_count(const struct block_pool *p)
{
    return p->ready_count;
}

/* ---- trim and compaction ---- */

void block_pool_clock(struct block_pool *p, uint64_t now_ns)
{
    p->now_ns = now_ns;
}

uint64_t block_pool_trim(struct block_pool *p, uint32_t units_max, uint64_t before_ns)
{
    uint64_t bytes = 0;
    for (uint32_t i = p->units_top; i-- > 0 && bytes < units_max * (uint64_t)UNIT_BYTES;) {
        if (p->unit_taken[i] > 0 || !unit_is_committed(p->units, i) || p->unit_emptied[i] >= before_ns)
            continue;
        if (decommit(p, i))
            bytes += UNIT_BYTES;
    }
    return bytes;
}

uint64_t block_pool_spare_bytes(const struct block_pool *p)
{
    uint64_t needed = ROUND_UP((uint64_t)p->taken * p->opts.block_bytes, (uint64_t)UNIT_BYTES);
    uint64_t has = (uint64_t)units_committed(p->units) * UNIT_BYTES;
    return has > needed ? has - needed : 0;
}

/* True when all blocks of the unit are movable and `places` ready blocks lie below it. */
static bool can_empty(const struct block_pool *p, uint32_t unit, uint32_t places)
{
    struct span b = blocks_of_unit(p, unit);
    if (p->unit_taken[unit] == 0 || p->unit_taken[unit] > places)
        return false;
    for (uint32_t i = b.first; i <= b.last; i++)
        if (block_pool_is_taken(p, i) && !p->opts.is_movable(p->opts.arg, i))
            return false;
    return true;
}

bool block_pool_compact(struct block_pool *p)
{
    ASSERT(!p->opts.move || p->opts.is_movable);
    uint32_t to, places = p->ready_count, end = p->opts.blocks_max;
    if (!p->opts.move || block_pool_spare_bytes(p) == 0 || !bitmap_first(&p->ready, &to))
        return false;
    for (uint32_t unit = p->units_top; unit-- > 0 && places > 0;) {
        uint32_t from = blocks_of_unit(p, unit).first;
        places -= bitmap_count(&p->ready, from, end);
        end = from;
        if (!can_empty(p, unit, places))
            continue;
        while (!block_pool_is_taken(p, from))
            from++;
        ASSERT(to < from);
        take(p, to);
        p->opts.move(p->opts.arg, from, to);
        block_pool_give(p, from);
        return true;
    }
    return false;
}

/* ---- bytes ---- */

static dev_ptr address(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes)
{
    ASSERT(block_pool_is_taken(p, block));
    ASSERT(offset <= p->opts.block_bytes && bytes <= p->opts.block_bytes - offset);
    return dev_add(units_base(p->units), (uint64_t)block * p->opts.block_bytes + offset);
}

void block_pool_copy(const struct block_pool *p, uint32_t from, uint32_t to)
{
    ASSERT(from != to && from < p->opts.blocks_max && to < p->opts.blocks_max);
    domain_copy(units_domain(p->units), address(p, to, 0, p->opts.block_bytes),
                address(p, from, 0, p->opts.block_bytes), p->opts.block_bytes);
}

int block_pool_get(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes, void *host)
{
    ASSERT(host || bytes == 0);
    return domain_get(units_domain(p->units), host, address(p, block, offset, bytes), bytes);
}

void block_pool_put(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes,
                    const void *host)
{
    ASSERT(host || bytes == 0);
    domain_put(units_domain(p->units), address(p, block, offset, bytes), host, bytes);
}

void block_pool_numbers(const struct block_pool *p, struct pool_numbers *ret)
{
    uint64_t active = (uint64_t)p->taken * p->opts.block_bytes;
    ASSERT(active <= (uint64_t)units_committed(p->units) * UNIT_BYTES);
    *ret = (struct pool_numbers){
        .base = units_base(p->units),
        .taken = p->taken,
        .peak = p->peak,
        .blocks_max = p->opts.blocks_max,
        .units_committed = units_committed(p->units),
        .active_bytes = active,
        .cached_bytes = (uint64_t)units_committed(p->units) * UNIT_BYTES - active,
        .limit_bytes = (uint64_t)units_max(p->units) * UNIT_BYTES,
        .recommitted = p->recommitted,
        .refused = units_refused(p->units),
    };
}

uint32_t block_pool_end(const struct block_pool *p)
{
    uint64_t blocks = DIV_UP((uint64_t)p->units_top * UNIT_BYTES, p->opts.block_bytes);
    ASSERT(p->units_top <= units_max(p->units) && p->taken <= blocks);
    return (uint32_t)MIN_OF(blocks, p->opts.blocks_max);
}

static void check_unit(const struct block_pool *p, uint32_t unit)
{
    struct span b = blocks_of_unit(p, unit);
    uint32_t taken = b.last - b.first + 1 - bitmap_count(&p->free, b.first, b.last + 1);
    ASSERT_OF(p->unit_taken[unit] == taken, "unit %u: %u taken blocks touch it, %u are counted", unit, taken,
              p->unit_taken[unit]);
    ASSERT_OF(taken == 0 || unit_is_committed(p->units, unit), "unit %u is used and not committed", unit);
    ASSERT_OF(unit < p->units_top || !unit_is_committed(p->units, unit), "unit %u is above the top", unit);
}

static void check_word(const struct bitmap *b, uint32_t word)
{
    bool is_summed = b->summary[word / 64] >> word % 64 & 1;
    ASSERT_OF(is_summed == (b->words[word] != 0), "blocks %u to %u: the summary is wrong", word * 64,
              word * 64 + 63);
}

bool block_pool_walk(const struct block_pool *p, struct walk *w)
{
    uint32_t taken = 0, ready = 0, end = walk_end(w, block_pool_end(p), p->opts.blocks_max);
    uint32_t words = walk_end(w, DIV_UP(end, 64u), p->free.word_count);
    uint32_t units = walk_end(w, p->units_top, units_max(p->units));
    for (uint32_t i = 0; i < end && walk_on(w); i++) {
        bool is_free = bitmap_has(&p->free, i), is_ready = bitmap_has(&p->ready, i);
        taken += !is_free;
        ready += is_ready;
        ASSERT_OF(is_ready == (is_free && is_committed(p, i)), "block %u: free %d, ready %d, committed %d", i,
                  is_free, is_ready, is_committed(p, i));
    }
    for (uint32_t i = 0; i < words && walk_on(w); i++) {
        check_word(&p->free, i);
        check_word(&p->ready, i);
    }
    for (uint32_t i = 0; i < units && walk_on(w); i++)
        check_unit(p, i);
    if (w->called_off)
        return false;
    ASSERT_OF(taken == p->taken, "%u blocks are taken, %u counted", taken, p->taken);
    ASSERT_OF(ready == p->ready_count, "%u blocks are ready, %u counted", ready, p->ready_count);
    ASSERT(taken <= p->peak && p->peak <= p->opts.blocks_max);
    ASSERT(p->given_first < GIVEN_MAX && p->given_count <= GIVEN_MAX);
    units_check(p->units);
    return true;
}

void block_pool_check(const struct block_pool *p)
{
    block_pool_walk(p, &(struct walk){0});
}
