/* sim_world.c - pools of all sizes under one limit, and what happens to them. */
#include "base/arena.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/tier_io.h"
#include "sim.h"

#include <string.h>

struct tier_offer;

uint32_t between(struct world *w, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(&w->rng, (uint64_t)high - low + 1);
}

bool chance(struct world *w, double p)
{
    return rng_uniform(&w->rng) < p;
}

struct stamp page_stamp(const struct world *w, uint32_t group, uint32_t page)
{
    struct stamp stamp;
    ASSERT(block_pool_get(page_pool_blocks(w->opts.groups[group].pages), page, 0, sizeof(stamp), &stamp) ==
           0);
    return stamp;
}

struct stamp state_stamp(const struct world *w, uint32_t state)
{
    struct stamp stamp;
    ASSERT(block_pool_get(w->opts.states, state, 0, sizeof(stamp), &stamp) == 0);
    return stamp;
}

struct stamp block_stamp(const struct world *w, enum tier_kind kind, uint32_t block)
{
    return kind == TIER_SNAPSHOT ? state_stamp(w, block) : page_stamp(w, tier_group_of(kind), block);
}

void stamp_page(struct world *w, uint32_t group, uint32_t page, struct stamp stamp)
{
    block_pool_put(page_pool_blocks(w->opts.groups[group].pages), page, 0, sizeof(stamp), &stamp);
}

void stamp_state(struct world *w, uint32_t state, struct stamp stamp)
{
    block_pool_put(w->opts.states, state, 0, sizeof(stamp), &stamp);
}

/* ---- callbacks of the pools ---- */

static void on_evict(void *arg, uint32_t page)
{
    struct pool_of *p = arg;
    prefix_index_evict_page(p->world->index, p->group, page);
    stamp_page(p->world, p->group, page, (struct stamp){0});
    sim.evictions++;
}

static void on_evicting(void *arg, const struct tier_offer *o, uint32_t block)
{
    struct world *w = arg;
    tier_store(w, o->key, o->kind, block_stamp(w, o->kind, block));
}

static void on_move(void *arg, uint32_t from, uint32_t to)
{
    struct pool_of *p = arg;
    block_pool_copy(page_pool_blocks(p->world->opts.groups[p->group].pages), from, to);
    stamp_page(p->world, p->group, from, (struct stamp){0});
    prefix_index_move(p->world->index, p->group, from, to);
    sim.moves++;
}

static bool is_movable_state(void *arg, uint32_t state)
{
    struct pool_of *p = arg;
    return prefix_index_is_movable_snapshot(p->world->index, state);
}

static void on_move_state(void *arg, uint32_t from, uint32_t to)
{
    struct pool_of *p = arg;
    block_pool_copy(p->world->opts.states, from, to);
    stamp_state(p->world, from, (struct stamp){0});
    prefix_index_move_snapshot(p->world->index, from, to);
    sim.moves++;
}

/* Checks the stamp alone of a block's bytes. */
static void on_arrived(void *arg, const struct tier_arrival *a, uint32_t block)
{
    struct world *w = arg;
    struct stamp stamp;
    memcpy(&stamp, a->bytes, sizeof(stamp));
    if (a->kind == TIER_SNAPSHOT)
        stamp_state(w, block, stamp);
    else
        stamp_page(w, tier_group_of(a->kind), block, stamp);
}

static bool give_unit(struct world *w, uint32_t group)
{
    struct page_pool *pages = group < w->opts.group_count ? w->opts.groups[group].pages : NULL;
    uint64_t bytes = pages            ? block_pool_trim(page_pool_blocks(pages), 1, UINT64_MAX)
                     : w->opts.states ? block_pool_trim(w->opts.states, 1, UINT64_MAX)
                                      : 0;
    sim.units_trimmed += bytes > 0;
    return bytes > 0;
}

static bool shrink(struct world *w, uint32_t group)
{
    if (group < w->opts.group_count)
        return block_pool_compact(page_pool_blocks(w->opts.groups[group].pages)) ||
               page_pool_evict(w->opts.groups[group].pages);
    return w->opts.states && w->index &&
           (block_pool_compact(w->opts.states) || prefix_index_evict_snapshot(w->index));
}

/* Trims the other pools' free units; then evicts their cached entries. */
static bool on_refusal(void *arg, bool cached)
{
    struct pool_of *p = arg;
    sim.reclaims++;
    for (uint32_t g = 0; g <= p->world->opts.group_count; g++) {
        bool others = g != MIN_OF(p->group, p->world->opts.group_count);
        do {
            if (others && give_unit(p->world, g))
                return true;
        } while (others && cached && shrink(p->world, g));
    }
    return false;
}

/* ---- sizes ---- */

static size_t draw_page_bytes(struct world *w)
{
    /* Smaller than a unit, not a divisor of one, larger than one. */
    static const size_t sizes[] = {4096, 131072 + 64, 262144, 786432, (3 << 20) + 64};
    return sizes[between(w, 0, COUNT_OF(sizes) - 1)];
}

static void draw_groups(struct world *w)
{
    bool large = false;
    w->opts.group_count = chance(w, 0.5) ? 1 : between(w, 2, PAGE_GROUPS_MAX);
    for (uint32_t g = 0; g < w->opts.group_count; g++) {
        w->opts.groups[g].page_bytes = draw_page_bytes(w);
        w->opts.groups[g].window = g == 0 ? 0 : between(w, 1, chance(w, 0.5) ? 100 : 600);
        large |= w->opts.groups[g].page_bytes > UNIT_BYTES;
    }
    w->tokens_limit = between(w, 2 * PAGE_TOKENS, (large ? 6 : TABLE_MAX) * PAGE_TOKENS);
}

static void draw_tenants(struct world *w)
{
    w->tenants = chance(w, 0.4) ? 1 : between(w, 2, TENANTS);
    w->floods = chance(w, 0.3);
    for (uint32_t i = 0; i < TENANTS; i++)
        w->weights[i] = chance(w, 0.7) ? 1 : between(w, 1, 8);
}

static void draw_sizes(struct world *w)
{
    draw_groups(w);
    draw_tenants(w);
    for (uint32_t i = 0; i < FAMILIES; i++)
        w->family_tokens[i] = between(w, 1, w->tokens_limit / 2);
    w->state_bytes = chance(w, 0.5) ? 64 * (size_t)between(w, 1, 60000) : 0;
    w->opts.seqs_max = between(w, 1, 12);
    w->opts.queue_max = between(w, 0, 30);
    w->opts.drafts_max = chance(w, 0.7) ? between(w, 1, 2 * w->opts.seqs_max) : 0;
    w->opts.tokens_max = w->opts.seqs_max - 1 + PAGE_TOKENS + w->opts.drafts_max + between(w, 0, 500);
    w->opts.logits_max = w->opts.seqs_max + w->opts.drafts_max + between(w, 0, 40);
    w->opts.logits_chunk_max = between(w, 1, 40);
    w->opts.queue_timeout_ns = chance(w, 0.5) ? between(w, 1, 50) * 100000000ull : 0;
}

/* Bytes with which one request, and the states of the batch, have room in any case. */
static uint64_t least_bytes(const struct world *w)
{
    uint64_t bytes = 2 * w->opts.seqs_max * (uint64_t)w->state_bytes + 2 * UNIT_BYTES;
    for (uint32_t g = 0; g < w->opts.group_count; g++)
        bytes += page_group_needs(&w->opts.groups[g], sched_pages(w->tokens_limit)) *
                     (uint64_t)w->opts.groups[g].page_bytes +
                 2 * UNIT_BYTES;
    return bytes;
}

/* ---- two domains ---- */

static struct account *open_account(struct account *parent, const char *name)
{
    struct account *ret;
    ASSERT(account_open(parent, name, ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &ret) == 0);
    return ret;
}

/* The root below which the pools are. */
static struct account *open_roots(struct world *w, bool on_device)
{
    ASSERT(ledger_create(sim.domains ? MACHINE_BYTES : ACCOUNT_NO_LIMIT, &w->ledger) == 0);
    struct account *machine = ledger_root(w->ledger);
    if (!sim.domains)
        return machine;
    const struct domain *d = test_domain_init(&w->device, "device");
    w->device.hidden = true;
    w->device.rng = (struct rng){w->rng.seed, 1};
    ASSERT(ledger_open_root(w->ledger, d, DEVICE_BYTES, &w->device_root) == 0);
    w->full = open_account(on_device ? machine : w->device_root, "full");
    ASSERT(account_reserve(w->full, on_device ? MACHINE_BYTES : DEVICE_BYTES) == 0);
    sim.device_worlds += on_device;
    return on_device ? w->device_root : machine;
}

static void close_roots(struct world *w)
{
    if (!sim.domains)
        return;
    account_release(w->full, account_numbers(w->full).reserved);
    account_close(w->full);
    ASSERT(w->device.open == 0 && w->device.ranges == 0);
    account_close(w->device_root);
}

/* The pools have what their domain has, within its ceiling, and nothing of the other one. */
static void check_roots(const struct world *w)
{
    if (!sim.domains)
        return;
    struct account_numbers own = account_numbers(w->own_root), all = account_numbers(w->all),
                           full = account_numbers(account_root(w->full));
    ASSERT(own.reserved == all.reserved && own.used == all.used && own.reserved <= own.limit);
    ASSERT(full.reserved == full.limit && full.used == 0);
    ASSERT(w->device.open == account_numbers(w->device_root).used);
}

/* ---- open and close ---- */

static void create_pages(struct world *w, uint32_t group, bool reuse)
{
    struct page_group *g = &w->opts.groups[group];
    uint32_t least = page_group_needs(g, sched_pages(w->tokens_limit));
    struct page_pool_opts pages = {.pages_max = least + between(w, 0, 3 * least),
                                   .page_bytes = g->page_bytes,
                                   .kv = w->kv[group],
                                   .evict = reuse ? on_evict : NULL,
                                   .move = reuse && g->page_bytes <= UNIT_BYTES ? on_move : NULL,
                                   .reclaim = chance(w, 0.7) ? on_refusal : NULL,
                                   .arg = &w->pools[group],
                                   .uses = &w->uses};
    w->pools[group] = (struct pool_of){w, group};
    ASSERT(page_pool_create(w->arena, &pages, &g->pages) == 0);
}

static void create_states(struct world *w, bool reuse)
{
    struct block_pool_opts states = {.blocks_max =
                                         reuse ? 2 * w->opts.seqs_max + between(w, 0, 6) : w->opts.seqs_max,
                                     .block_bytes = w->state_bytes,
                                     .account = w->state,
                                     .reclaim = chance(w, 0.7) ? on_refusal : NULL,
                                     .is_movable = is_movable_state,
                                     .move = reuse && w->state_bytes <= UNIT_BYTES ? on_move_state : NULL,
                                     .arg = &w->pools[PAGE_GROUPS_MAX]};
    w->pools[PAGE_GROUPS_MAX] = (struct pool_of){w, PAGE_GROUPS_MAX};
    ASSERT(block_pool_create(w->arena, &states, &w->opts.states) == 0);
}

static void create_pools(struct world *w)
{
    bool reuse = chance(w, 0.8);
    struct arena_opts arena = {.bytes_max = (size_t)1 << 20};
    ASSERT(arena_create(&arena, &w->arena) == 0);
    for (uint32_t g = 0; g < w->opts.group_count; g++)
        create_pages(w, g, reuse);
    if (w->state_bytes)
        create_states(w, reuse);
    struct prefix_index_opts index = {
        .group_count = w->opts.group_count,
        .states = w->opts.states,
        .state_bytes = w->state_bytes,
        .bytes_max =
            chance(w, 0.5) ? UINT64_MAX : between(w, 0, 40) * (uint64_t)w->opts.groups[0].page_bytes};
    memcpy(index.groups, w->opts.groups, sizeof(index.groups));
    w->tier.io.arg = NULL;
    if (reuse && chance(w, 0.8)) {
        tier_open(w);
        index.evicting = on_evicting;
        index.arg = w;
        w->opts.tier = &w->tier.io;
        w->opts.arrived = on_arrived;
        w->opts.arrived_arg = w;
    }
    if (reuse)
        ASSERT(prefix_index_create(w->arena, &index, &w->index) == 0);
    w->opts.prefix = w->index;
    w->opts.state_bytes = w->state_bytes;
    ASSERT(sched_create(w->arena, &w->opts, &w->sched) == 0);
}

void world_open(struct world *w, uint64_t seed, uint64_t index)
{
    static const char *const names[] = {"kv 0", "kv 1", "kv 2", "kv 3"};
    bool on_device = sim.domains && index % 2 == 1;
    *w = (struct world){.rng = {seed, 0}, .now_ns = 1};
    do
        draw_sizes(w);
    while (on_device && least_bytes(w) > DEVICE_BYTES);
    w->own_root = open_roots(w, on_device);
    w->all = open_account(w->own_root, "pools");
    for (uint32_t g = 0; g < w->opts.group_count; g++)
        w->kv[g] = open_account(w->all, names[g]);
    w->state = open_account(w->all, "state");
    create_pools(w);
}

void world_check(struct world *w)
{
    sched_check(w->sched);
    for (uint32_t g = 0; g < w->opts.group_count; g++)
        page_pool_check(w->opts.groups[g].pages);
    if (w->opts.states)
        block_pool_check(w->opts.states);
    if (w->index)
        prefix_index_check(w->index);
    ledger_check(w->ledger);
    check_roots(w);
}

void world_close(struct world *w)
{
    struct sched_numbers n;
    sched_numbers(w->sched, &n);
    sim.fetches_failed += n.fetches_failed;
    tier_close(w);
    prefix_index_done(w->index);
    w->index = NULL;
    for (uint32_t g = 0; g <= w->opts.group_count; g++)
        while (give_unit(w, g))
            ;
    world_check(w);
    ASSERT(account_numbers(w->all).reserved == 0);
    for (uint32_t g = 0; g < w->opts.group_count; g++) {
        page_pool_done(w->opts.groups[g].pages);
        account_close(w->kv[g]);
    }
    block_pool_done(w->opts.states);
    arena_free(w->arena);
    account_close(w->state);
    account_close(w->all);
    close_roots(w);
    ledger_free(w->ledger);
}

/* ---- trouble ---- */

/* Allows this much more, until the limit is lifted. */
static void limit(struct world *w, struct account *a, double set, double lift)
{
    if (w->calm || chance(w, lift))
        account_set_limit(a, ACCOUNT_NO_LIMIT);
    else if (chance(w, set))
        account_set_limit(a, account_numbers(a).reserved + between(w, 0, 2) * UNIT_BYTES);
}

/* Trims like the engine: units, and pages moved or evicted for more of them. */
static void trim(struct world *w)
{
    uint32_t group = between(w, 0, w->opts.group_count);
    for (uint32_t i = between(w, 1, 20); i > 0; i--)
        if (!give_unit(w, group) &&
            (group < w->opts.group_count ? !block_pool_compact(page_pool_blocks(w->opts.groups[group].pages))
                                         : !w->opts.states || !block_pool_compact(w->opts.states)))
            return;
}

void world_trouble(struct world *w)
{
    uint32_t group = between(w, 0, w->opts.group_count - 1);
    limit(w, w->kv[group], 0.005, 0.005 * w->opts.group_count);
    limit(w, w->all, 0.003, 0.005);
    limit(w, w->state, 0.002, 0.02);
    if (chance(w, 0.1))
        trim(w);
    if (w->index && chance(w, 0.005))
        for (uint32_t i = between(w, 1, 6); i > 0; i--)
            prefix_index_evict(w->index);
    if (w->index && chance(w, 0.005))
        page_pool_evict(w->opts.groups[group].pages);
    if (w->index && chance(w, 0.0005))
        prefix_index_clear(w->index);
    if (w->opts.tier)
        tier_trouble(w);
    w->device.no_memory = w->calm ? 0 : 0.01;
    w->device.stuck = w->calm ? 0 : 0.02;
}
