/* sim_tier.c - a tier below the pools, in virtual time: it gets evicted and written-back entries. It is read
 * in any order; reads come late, or not at all.
 *
 * Each world has its own disk: fast or slow, sound or not, with room for few or many reads. It may lose
 * anything at any time. */
#include "base/none.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "cache/share_list.h"
#include "cache/tier_io.h"
#include "sim.h"

#include <errno.h>
#include <string.h>

static struct stored *place_of(struct world *w, const struct prefix_key *key, enum tier_kind kind)
{
    uint64_t state;
    memcpy(&state, key->bytes, sizeof(state));
    return &w->tier.stored[(state ^ (uint64_t)kind) % TIER_STORED_MAX];
}

static bool is_there(struct world *w, const struct prefix_key *key, enum tier_kind kind)
{
    const struct stored *s = place_of(w, key, kind);
    return s->used && s->kind == kind && prefix_key_eq(&s->key, key);
}

/* A full tier overwrites an old entry: that is its limit. */
void tier_store(struct world *w, const struct prefix_key *key, enum tier_kind kind, struct stamp stamp)
{
    ASSERT(stamp.tokens > 0 && stamp.tokens % PAGE_TOKENS == 0);
    *place_of(w, key, kind) = (struct stored){true, kind, *key, stamp};
    sim.stored++;
}

static bool tier_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    struct world *w = arg;
    return !w->tier.off && is_there(w, key, kind);
}

static void tier_used(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                      const uint32_t first[TIER_KINDS])
{
    struct world *w = arg;
    ASSERT(share < CACHE_SHARES);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t node = prefix_index_node(w->index, &keys[i]);
        ASSERT(node != NONE);
        for (uint32_t g = 0; g < w->opts.group_count; g++)
            ASSERT(i < first[tier_kind_of(g)] || prefix_index_page(w->index, node, g) != NONE);
    }
}

static uint64_t tier_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                             const uint32_t first[TIER_KINDS])
{
    struct world *w = arg;
    uint64_t files = 0;
    (void)keys;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        files += count - first[kind];
    return w->tier.off ? UINT64_MAX : files * w->tier.says_ns;
}

static struct reading *free_reading(struct world *w)
{
    for (uint32_t i = 0; i < w->tier.readings_max; i++)
        if (!w->tier.readings[i].used)
            return &w->tier.readings[i];
    return NULL;
}

static int tier_read(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                     uint32_t index)
{
    struct world *w = arg;
    struct reading *r = free_reading(w);
    if (!tier_has(w, key, kind))
        return w->tier.off ? -ENODEV : -ENOENT;
    if (!r)
        return -EAGAIN;
    bool fails = chance(w, w->tier.fails), late = chance(w, w->tier.late);
    uint64_t takes_ns = late ? between(w, 1, 15) * 1000000000ull : between(w, 1, 10) * w->tier.says_ns / 5;
    *r = (struct reading){
        true, false, kind, tag, index, fails ? -EIO : 0, w->now_ns + takes_ns, place_of(w, key, kind)->stamp};
    sim.reads++;
    sim.window_reads += kind >= TIER_WINDOW;
    if (fails)
        place_of(w, key, kind)->used = false;
    return 0;
}

static void tier_cancel(void *arg, uint64_t tag)
{
    struct world *w = arg;
    for (uint32_t i = 0; i < TIER_READINGS_MAX; i++) {
        struct reading *r = &w->tier.readings[i];
        ASSERT(!r->taken);
        if (r->used && r->tag == tag)
            r->used = false;
    }
}

static bool tier_take(void *arg, struct tier_arrival *ret)
{
    static union {
        struct stamp stamp;
        char bytes[4 << 20];
    } buffer;
    struct world *w = arg;
    uint32_t first = between(w, 0, TIER_READINGS_MAX - 1);
    for (uint32_t i = 0; i < TIER_READINGS_MAX; i++) {
        uint32_t at = (first + i) % TIER_READINGS_MAX;
        struct reading *r = &w->tier.readings[at];
        ASSERT(!r->taken);
        if (!r->used || r->due_ns > w->now_ns)
            continue;
        r->taken = true;
        buffer.stamp = r->status < 0 ? (struct stamp){0} : r->stamp;
        *ret = (struct tier_arrival){.tag = r->tag,
                                     .index = r->index,
                                     .kind = r->kind,
                                     .status = r->status,
                                     .bytes = &buffer,
                                     .handle = at};
        return true;
    }
    return false;
}

static void tier_give(void *arg, const struct tier_arrival *a)
{
    struct world *w = arg;
    ASSERT(w->tier.readings[a->handle].taken);
    w->tier.readings[a->handle] = (struct reading){0};
}

void tier_open(struct world *w)
{
    static const double chances[] = {0, 0.02, 0.1, 0.3};
    struct sim_tier *t = &w->tier;
    memset(t, 0, sizeof(*t));
    t->readings_max = between(w, 1, TIER_READINGS_MAX);
    t->says_ns = between(w, 1, 6000) * 1000ull;
    t->pace = between(w, 1, 10);
    t->fails = chances[between(w, 0, COUNT_OF(chances) - 1)];
    t->late = chances[between(w, 0, COUNT_OF(chances) - 1)] / 10;
    t->io = (struct tier_io){.arg = w,
                             .has = tier_has,
                             .used = tier_used,
                             .read_ns = tier_read_ns,
                             .read = tier_read,
                             .cancel = tier_cancel,
                             .take = tier_take,
                             .give = tier_give};
}

/* Asserts that no read or write is under way. */
void tier_close(struct world *w)
{
    for (uint32_t i = 0; i < TIER_READINGS_MAX; i++)
        ASSERT(!w->tier.readings[i].used);
}

/* Write-back: entries that the tier lacks, a few at a time. */
static void write_behind(struct world *w)
{
    struct prefix_unstored u;
    for (uint32_t i = between(w, 1, 100); i > 0 && prefix_index_unstored(w->index, &w->tier.cursor, 64, &u);
         i--)
        for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++) {
            if (u.blocks[kind] == NONE)
                continue;
            tier_store(w, &u.key, kind, block_stamp(w, kind, u.blocks[kind]));
            prefix_index_stored(w->index, u.node, kind);
        }
}

void tier_trouble(struct world *w)
{
    if (w->calm)
        return;
    if (chance(w, 0.05))
        write_behind(w);
    if (chance(w, 0.03)) {
        /* A restart: only written entries are left. */
        write_behind(w);
        prefix_index_clear(w->index);
    }
    if (chance(w, 0.001))
        w->tier.off = !w->tier.off;
    if (chance(w, 0.01))
        w->tier.stored[between(w, 0, TIER_STORED_MAX - 1)].used = false;
    if (chance(w, 0.0002))
        memset(w->tier.stored, 0, sizeof(w->tier.stored));
}
