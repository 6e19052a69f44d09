/* block_pool.c - two bitmaps of blocks and a count per commit unit.
 *
 * `free` has the free blocks; `ready` has the free blocks whose units are all committed. Taking prefers a
 * ready block: committed memory is used before more is committed. So freed blocks can be taken even when the
 * account refuses. Both hand out the lowest block, which keeps the high units empty for trim. A list of free
 * blocks was dropped: it hands out the block freed last and scatters the taken ones over all units.
 *
 * A block is ready when its units are committed in all shards, so that all of it comes and goes at once. */
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

/* The units of one shard. */
struct shard {
    size_t block_bytes; /* constant, with `units` */
    struct units *units;
    uint32_t *unit_taken;   /* [units]: taken blocks that touch it */
    uint64_t *unit_emptied; /* [units]: when its last taken block was freed */
    uint32_t units_top;     /* no unit from this index on is committed */
};

struct block_pool {
    /* Constant. */
    struct block_pool_opts opts;
    uint32_t shard_count;
    /* Engine thread only. */
    struct shard shards[SHARDS_MAX];
    struct bitmap free, ready;
    uint32_t taken, peak, ready_count;
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

static struct span units_of_block(const struct shard *s, uint32_t block)
{
    ASSERT(s->block_bytes > 0);
    size_t from = block * s->block_bytes;
    return (struct span){(uint32_t)(from / UNIT_BYTES), (uint32_t)((from + s->block_bytes - 1) / UNIT_BYTES)};
}

/* Blocks that touch the unit; empty (first > last) when no block does. */
static struct span blocks_of_unit(const struct block_pool *p, const struct shard *s, uint32_t unit)
{
    ASSERT(unit < units_max(s->units));
    size_t from = unit * UNIT_BYTES, last = (from + UNIT_BYTES - 1) / s->block_bytes;
    return (struct span){(uint32_t)(from / s->block_bytes), (uint32_t)MIN_OF(last, p->opts.blocks_max - 1)};
}

static bool is_committed_in(const struct shard *s, uint32_t block)
{
    struct span u = units_of_block(s, block);
    ASSERT(u.first <= u.last);
    for (uint32_t i = u.first; i <= u.last; i++)
        if (!unit_is_committed(s->units, i))
            return false;
    return true;
}

static bool is_committed(const struct block_pool *p, uint32_t block)
{
    ASSERT(block < p->opts.blocks_max);
    for (uint32_t i = 0; i < p->shard_count; i++)
        if (!is_committed_in(&p->shards[i], block))
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
static void update_ready(struct block_pool *p, const struct shard *s, uint32_t unit)
{
    ASSERT(unit < units_max(s->units));
    struct span b = blocks_of_unit(p, s, unit);
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
static bool decommit(struct block_pool *p, struct shard *s, uint32_t unit)
{
    ASSERT(s->unit_taken[unit] == 0);
    if (unit_decommit(s->units, unit) < 0)
        return false;
    note_given(p);
    update_ready(p, s, unit);
    while (s->units_top > 0 && !unit_is_committed(s->units, s->units_top - 1))
        s->units_top--;
    return true;
}

/* After a unit was committed. */
static void note_committed(struct block_pool *p, struct shard *s, uint32_t unit)
{
    ASSERT(unit_is_committed(s->units, unit));
    note_taken(p);
    s->unit_emptied[unit] = p->now_ns;
    s->units_top = MAX_OF(s->units_top, unit + 1);
    update_ready(p, s, unit);
}

/* Commits the block's units in one shard, or none of them. */
static int commit_in(struct block_pool *p, struct shard *s, uint32_t block)
{
    struct span u = units_of_block(s, block);
    uint32_t before = units_committed(s->units);
    int r = 0;
    for (uint32_t i = u.first; i <= u.last && r == 0; i++) {
        bool comes = !unit_is_committed(s->units, i);
        r = unit_commit(s->units, i);
        if (r == 0 && comes)
            note_committed(p, s, i);
    }
    /* Decommits as many of the block's empty units as were committed; which of them makes no difference. */
    for (uint32_t i = u.first; i <= u.last && r < 0 && units_committed(s->units) > before; i++)
        if (s->unit_taken[i] == 0 && unit_is_committed(s->units, i))
            (void)decommit(p, s, i);
    ASSERT(r < 0 || is_committed_in(s, block));
    return r;
}

/* Decommits the block's empty units. */
static void decommit_in(struct block_pool *p, struct shard *s, uint32_t block)
{
    ASSERT(bitmap_has(&p->free, block));
    struct span u = units_of_block(s, block);
    for (uint32_t i = u.first; i <= u.last; i++)
        if (s->unit_taken[i] == 0 && unit_is_committed(s->units, i))
            (void)decommit(p, s, i);
}

/* Commits the block's units in all shards, or none of them. */
static int commit_block(struct block_pool *p, uint32_t block)
{
    ASSERT(bitmap_has(&p->free, block));
    uint32_t done = 0, before[SHARDS_MAX];
    int r = 0;
    for (; done < p->shard_count && r == 0; done++) {
        before[done] = units_committed(p->shards[done].units);
        r = commit_in(p, &p->shards[done], block);
    }
    for (uint32_t i = 0; r < 0 && i + 1 < done; i++)
        if (units_committed(p->shards[i].units) > before[i])
            decommit_in(p, &p->shards[i], block);
    ASSERT(r < 0 || is_committed(p, block));
    return r;
}

/* ---- interface ---- */

/* A shard's options; without bytes after the last one. */
static struct block_shard shard_opts(const struct block_pool_opts *o, uint32_t shard)
{
    if (shard == 0)
        return (struct block_shard){o->block_bytes, o->account};
    return shard < SHARDS_MAX ? o->beside[shard - 1] : (struct block_shard){0};
}

size_t block_pool_arena_bytes(const struct block_pool_opts *opts)
{
    size_t bytes = 2 * ((opts->blocks_max / 64 + 1) * sizeof(uint64_t) * 65 / 64 + 256);
    for (uint32_t i = 0; shard_opts(opts, i).block_bytes > 0; i++) {
        size_t units = DIV_UP(opts->blocks_max * shard_opts(opts, i).block_bytes, UNIT_BYTES);
        bytes += units * (sizeof(uint32_t) + sizeof(uint64_t)) + 128;
    }
    return sizeof(struct block_pool) + bytes + 256;
}

/* Whole units for all blocks; 0: more than can be. */
static uint32_t units_of(uint32_t blocks, size_t block_bytes)
{
    size_t bytes;
    bool fits =
        !__builtin_mul_overflow((size_t)blocks, block_bytes, &bytes) && bytes / UNIT_BYTES < UINT32_MAX;
    return fits ? (uint32_t)DIV_UP(bytes, UNIT_BYTES) : 0;
}

static int create_shard(struct arena *a, const struct block_shard *o, uint32_t blocks_max, struct shard *ret)
{
    const uint32_t units = units_of(blocks_max, o->block_bytes);
    ASSERT(units > 0);
    *ret = (struct shard){.block_bytes = o->block_bytes,
                          .unit_taken = ARENA_ARRAY(a, uint32_t, units),
                          .unit_emptied = ARENA_ARRAY(a, uint64_t, units)};
    return ret->unit_taken && ret->unit_emptied ? units_create(o->account, UNIT_BYTES, units, &ret->units)
                                                : -ENOMEM;
}

static int check_opts(const struct block_pool_opts *opts)
{
    uint32_t i = 0;
    for (struct block_shard s = shard_opts(opts, 0); i == 0 || s.block_bytes > 0; s = shard_opts(opts, ++i))
        if (!s.account || s.block_bytes == 0 || s.block_bytes % 64 ||
            units_of(opts->blocks_max, s.block_bytes) == 0)
            return -EINVAL;
    return 0;
}

int block_pool_create(struct arena *a, const struct block_pool_opts *opts, struct block_pool **ret)
{
    int r = check_opts(opts);
    if (r < 0)
        return r;
    struct block_pool *p = ARENA_NEW(a, struct block_pool);
    if (!p)
        return -ENOMEM;
    p->opts = *opts;
    if (bitmap_init(&p->free, a, opts->blocks_max) < 0 || bitmap_init(&p->ready, a, opts->blocks_max) < 0)
        return -ENOMEM;
    while (r == 0 && shard_opts(opts, p->shard_count).block_bytes > 0) {
        const struct block_shard s = shard_opts(opts, p->shard_count);
        r = create_shard(a, &s, opts->blocks_max, &p->shards[p->shard_count++]);
    }
    if (r < 0) {
        (void)block_pool_done(p);
        return r;
    }
    for (uint32_t i = 0; i < p->opts.blocks_max; i++)
        bitmap_set(&p->free, i);
    *ret = p;
    return 0;
}

struct units *block_pool_done(struct block_pool *p)
{
    struct units *first = NULL;
    for (uint32_t i = 0; p && i < p->shard_count; i++) {
        struct units *u = p->shards[i].units;
        p->shards[i].units = NULL;
        if (units_free(u) == 0)
            continue;
        if (i == 0)
            first = u;
        else
            units_abandon(u);
    }
    return first;
}

static void take(struct block_pool *p, uint32_t block)
{
    ASSERT(bitmap_has(&p->free, block));
    ASSERT(is_committed(p, block));
    bitmap_clear(&p->free, block);
    set_ready(p, block, false);
    for (uint32_t k = 0; k < p->shard_count; k++) {
        struct span u = units_of_block(&p->shards[k], block);
        for (uint32_t i = u.first; i <= u.last; i++)
            p->shards[k].unit_taken[i]++;
    }
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

/* A shard's missing units of the lowest `blocks` free blocks that are not ready, at most UNITS_AT_ONCE. */
static uint32_t missing_units(const struct block_pool *p, const struct shard *s, uint32_t blocks,
                              uint32_t *ret)
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
        struct span u = units_of_block(s, (word - 1) * 64 + (uint32_t)__builtin_ctzll(bits));
        for (uint32_t unit = u.first; unit <= u.last && count < UNITS_AT_ONCE; unit++) {
            bool is_listed = count > 0 && ret[count - 1] >= unit;
            if (!is_listed && !unit_is_committed(s->units, unit))
                ret[count++] = unit;
        }
        bits &= bits - 1;
        blocks--;
    }
    return count;
}

static void prepare(struct block_pool *p, struct shard *s, uint32_t blocks, const struct units_crew *crew)
{
    uint32_t units[UNITS_AT_ONCE];
    uint32_t count = missing_units(p, s, blocks, units);
    ASSERT(count <= UNITS_AT_ONCE);
    if (count < PREPARE_MIN)
        return;
    uint32_t done = units_commit_many(s->units, units, count, crew);
    ASSERT(done <= count);
    for (uint32_t i = 0; i < done; i++)
        note_committed(p, s, units[i]);
}

void block_pool_prepare(struct block_pool *p, uint32_t blocks, const struct units_crew *crew)
{
    const uint32_t ready = p->ready_count;
    for (uint32_t i = 0; blocks > ready && i < p->shard_count; i++)
        prepare(p, &p->shards[i], blocks - ready, crew);
}

void block_pool_give(struct block_pool *p, uint32_t index)
{
    ASSERT(block_pool_is_taken(p, index));
    for (uint32_t k = 0; k < p->shard_count; k++) {
        struct shard *s = &p->shards[k];
        struct span u = units_of_block(s, index);
        for (uint32_t i = u.first; i <= u.last; i++) {
            ASSERT(s->unit_taken[i] > 0);
            if (--s->unit_taken[i] == 0)
                s->unit_emptied[i] = p->now_ns;
        }
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

static uint64_t trim(struct block_pool *p, struct shard *s, uint32_t count, uint64_t before_ns)
{
    ASSERT(s->units_top <= units_max(s->units));
    uint64_t bytes = 0;
    for (uint32_t i = s->units_top; i-- > 0 && bytes < count * (uint64_t)UNIT_BYTES;) {
        if (s->unit_taken[i] > 0 || !unit_is_committed(s->units, i) || s->unit_emptied[i] >= before_ns)
            continue;
        if (decommit(p, s, i))
            bytes += UNIT_BYTES;
    }
    return bytes;
}

uint64_t block_pool_trim(struct block_pool *p, uint32_t units_max, uint64_t before_ns)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->shard_count; i++)
        bytes += trim(p, &p->shards[i], units_max, before_ns);
    return bytes;
}

static uint64_t spare_bytes(const struct block_pool *p, const struct shard *s)
{
    uint64_t needed = ROUND_UP((uint64_t)p->taken * s->block_bytes, (uint64_t)UNIT_BYTES);
    uint64_t has = (uint64_t)units_committed(s->units) * UNIT_BYTES;
    return has > needed ? has - needed : 0;
}

uint64_t block_pool_spare_bytes(const struct block_pool *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->shard_count; i++)
        bytes += spare_bytes(p, &p->shards[i]);
    return bytes;
}

/* True when all blocks of the unit are movable and `places` ready blocks lie below it. */
static bool can_empty(const struct block_pool *p, const struct shard *s, uint32_t unit, uint32_t places)
{
    struct span b = blocks_of_unit(p, s, unit);
    if (s->unit_taken[unit] == 0 || s->unit_taken[unit] > places)
        return false;
    for (uint32_t i = b.first; i <= b.last; i++)
        if (block_pool_is_taken(p, i) && !p->opts.is_movable(p->opts.arg, i))
            return false;
    return true;
}

static bool compact(struct block_pool *p, const struct shard *s)
{
    uint32_t to, places = p->ready_count, end = p->opts.blocks_max;
    ASSERT(p->opts.move && p->opts.is_movable);
    if (spare_bytes(p, s) == 0 || !bitmap_first(&p->ready, &to))
        return false;
    for (uint32_t unit = s->units_top; unit-- > 0 && places > 0;) {
        uint32_t from = blocks_of_unit(p, s, unit).first;
        places -= bitmap_count(&p->ready, from, end);
        end = from;
        if (!can_empty(p, s, unit, places))
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

bool block_pool_compact(struct block_pool *p)
{
    ASSERT(p->shard_count > 0);
    for (uint32_t i = 0; p->opts.move && i < p->shard_count; i++)
        if (compact(p, &p->shards[i]))
            return true;
    return false;
}

/* ---- bytes ---- */

static dev_ptr address(const struct block_pool *p, const struct shard *s, uint32_t block, uint64_t offset,
                       uint64_t bytes)
{
    ASSERT(block_pool_is_taken(p, block));
    ASSERT(offset <= s->block_bytes && bytes <= s->block_bytes - offset);
    return dev_add(units_base(s->units), (uint64_t)block * s->block_bytes + offset);
}

uint64_t block_pool_whole_bytes(const struct block_pool *p)
{
    uint64_t bytes = 0;
    ASSERT(p->shard_count > 0 && p->shard_count <= SHARDS_MAX);
    for (uint32_t i = 0; i < p->shard_count; i++)
        bytes += p->shards[i].block_bytes;
    return bytes;
}

dev_ptr block_pool_base(const struct block_pool *p, uint32_t shard)
{
    ASSERT(p->shard_count > 0);
    return shard < p->shard_count ? units_base(p->shards[shard].units) : DEV_NULL;
}

void block_pool_copy(const struct block_pool *p, uint32_t from, uint32_t to)
{
    ASSERT(from != to && from < p->opts.blocks_max && to < p->opts.blocks_max);
    for (uint32_t i = 0; i < p->shard_count; i++) {
        const struct shard *s = &p->shards[i];
        domain_copy(units_domain(s->units), address(p, s, to, 0, s->block_bytes),
                    address(p, s, from, 0, s->block_bytes), s->block_bytes);
    }
}

/* The part of [*offset, *offset + *bytes) of a block that lies in its first shard with any of it; the rest
 * remains. */
struct part {
    const struct shard *shard;
    uint64_t offset, bytes;
};

static struct part next_part(const struct block_pool *p, uint64_t *offset, uint64_t *bytes)
{
    uint64_t at = *offset;
    uint32_t i = 0;
    while (i + 1 < p->shard_count && at >= p->shards[i].block_bytes)
        at -= p->shards[i++].block_bytes;
    const struct shard *s = &p->shards[i];
    ASSERT(at <= s->block_bytes);
    const struct part part = {s, at, MIN_OF(*bytes, s->block_bytes - at)};
    ASSERT(part.bytes > 0);
    *offset += part.bytes;
    *bytes -= part.bytes;
    return part;
}

int block_pool_get(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes, void *host)
{
    ASSERT(host || bytes == 0);
    int r = 0;
    for (char *to = host; bytes > 0 && r == 0;) {
        const struct part part = next_part(p, &offset, &bytes);
        r = domain_get(units_domain(part.shard->units), to,
                       address(p, part.shard, block, part.offset, part.bytes), part.bytes);
        to += part.bytes;
    }
    return r;
}

void block_pool_put(const struct block_pool *p, uint32_t block, uint64_t offset, uint64_t bytes,
                    const void *host)
{
    ASSERT(host || bytes == 0);
    for (const char *from = host; bytes > 0;) {
        const struct part part = next_part(p, &offset, &bytes);
        domain_put(units_domain(part.shard->units), address(p, part.shard, block, part.offset, part.bytes),
                   from, part.bytes);
        from += part.bytes;
    }
}

void block_pool_numbers(const struct block_pool *p, struct pool_numbers *ret)
{
    const struct shard *s = &p->shards[0];
    uint64_t active = (uint64_t)p->taken * s->block_bytes, refused = 0;
    ASSERT(active <= (uint64_t)units_committed(s->units) * UNIT_BYTES);
    for (uint32_t i = 0; i < p->shard_count; i++)
        refused += units_refused(p->shards[i].units);
    *ret = (struct pool_numbers){
        .base = units_base(s->units),
        .taken = p->taken,
        .peak = p->peak,
        .blocks_max = p->opts.blocks_max,
        .units_committed = units_committed(s->units),
        .active_bytes = active,
        .cached_bytes = (uint64_t)units_committed(s->units) * UNIT_BYTES - active,
        .spare_bytes = spare_bytes(p, s),
        .limit_bytes = (uint64_t)units_max(s->units) * UNIT_BYTES,
        .recommitted = p->recommitted,
        .refused = refused,
    };
}

static uint64_t end_in(const struct block_pool *p, const struct shard *s)
{
    uint64_t blocks = DIV_UP((uint64_t)s->units_top * UNIT_BYTES, s->block_bytes);
    ASSERT(s->units_top <= units_max(s->units) && p->taken <= blocks);
    return MIN_OF(blocks, p->opts.blocks_max);
}

uint32_t block_pool_end(const struct block_pool *p)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < p->shard_count; i++)
        end = MAX_OF(end, end_in(p, &p->shards[i]));
    return (uint32_t)end;
}

static void check_unit(const struct block_pool *p, const struct shard *s, uint32_t unit)
{
    struct span b = blocks_of_unit(p, s, unit);
    uint32_t taken = b.last - b.first + 1 - bitmap_count(&p->free, b.first, b.last + 1);
    ASSERT_OF(s->unit_taken[unit] == taken, "unit %u: %u taken blocks touch it, %u are counted", unit, taken,
              s->unit_taken[unit]);
    ASSERT_OF(taken == 0 || unit_is_committed(s->units, unit), "unit %u is used and not committed", unit);
    ASSERT_OF(unit < s->units_top || !unit_is_committed(s->units, unit), "unit %u is above the top", unit);
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
    for (uint32_t k = 0; k < p->shard_count; k++) {
        const struct shard *s = &p->shards[k];
        uint32_t units = walk_end(w, s->units_top, units_max(s->units));
        for (uint32_t i = 0; i < units && walk_on(w); i++)
            check_unit(p, s, i);
    }
    if (w->called_off)
        return false;
    ASSERT_OF(taken == p->taken, "%u blocks are taken, %u counted", taken, p->taken);
    ASSERT_OF(ready == p->ready_count, "%u blocks are ready, %u counted", ready, p->ready_count);
    ASSERT(taken <= p->peak && p->peak <= p->opts.blocks_max);
    ASSERT(p->given_first < GIVEN_MAX && p->given_count <= GIVEN_MAX);
    for (uint32_t i = 0; i < p->shard_count; i++)
        units_check(p->shards[i].units);
    return true;
}

void block_pool_check(const struct block_pool *p)
{
    block_pool_walk(p, &(struct walk){0});
}
