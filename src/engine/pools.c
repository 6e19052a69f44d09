/* pools.c - the pools of pages and states under one limit.
 *
 * The ledger counts units only: a page that changes between a request and the cache moves no byte. So the
 * accounts of the prefix cache are updated at certain times (after each step, before a unit goes) and not
 * with each page. Blocks larger than a unit stay in place: moving one would take longer than a slice may,
 * and the units between two of them are given back anyway. */
#include "engine/pools.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/block_pool.h"
#include "cache/agents.h"
#include "cache/leases.h"
#include "cache/page_pool.h"
#include "cache/prefix_events.h"
#include "cache/prefix_index.h"
#include "memory/accounts.h"
#include "memory/domain.h"
#include "memory/footprint.h"
#include "reclaim/holders.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
#define REQUEST_BYTES                                                                                        \
    (8 * (uint64_t)UNIT_BYTES) /* asked from others at once, so that not every unit is a request */

/* ---- callbacks of the pools ---- */

static void on_evict(void *arg, uint32_t page)
{
    const struct pool_of *of = arg;
    ASSERT(of->pools->index);
    prefix_index_evict_page(of->pools->index, of->group, page);
}

static void move_page(void *arg, uint32_t from, uint32_t to)
{
    const struct pool_of *of = arg;
    struct pools *p = of->pools;
    ASSERT(from != to && p->index);
    block_pool_copy(page_pool_blocks(p->groups[of->group].pages), from, to);
    if (of->group == 0 && p->drafted)
        p->drafted[to] = p->drafted[from];
    prefix_index_move(p->index, of->group, from, to);
    p->moves++;
}

static bool is_movable_state(void *arg, uint32_t state)
{
    struct pools *p = arg;
    return prefix_index_is_movable_snapshot(p->index, state);
}

static void move_state(void *arg, uint32_t from, uint32_t to)
{
    struct pools *p = arg;
    ASSERT(from != to && p->index);
    block_pool_copy(p->states, from, to);
    p->pending[to] = p->pending[from];
    prefix_index_move_snapshot(p->index, from, to);
    p->moves++;
}

/* Gives a unit of any pool but this one (NULL: of any); returns its bytes. */
static uint64_t give_unit(struct pools *p, const struct block_pool *but, uint64_t before_ns)
{
    uint64_t bytes = 0;
    pools_move_accounts(p);
    for (uint32_t kind = 0; kind < TIER_KINDS && bytes == 0; kind++)
        if (p->blocks[kind] && p->blocks[kind] != but)
            bytes = block_pool_trim(p->blocks[kind], 1, before_ns);
    return bytes;
}

static bool compact(struct pools *p, const struct block_pool *but)
{
    for (uint32_t kind = 0; kind < TIER_KINDS; kind++)
        if (p->blocks[kind] && p->blocks[kind] != but && block_pool_compact(p->blocks[kind]))
            return true;
    return false;
}

/* The least recently used cached page of the other pools. False: there is none. */
static bool evict_page(struct pools *p, const struct block_pool *but)
{
    struct page_pool *oldest = NULL;
    for (uint32_t g = 0; g < p->group_count; g++) {
        struct page_pool *pages = p->groups[g].pages;
        if (page_pool_blocks(pages) != but && (!oldest || page_pool_age(pages) > page_pool_age(oldest)))
            oldest = pages;
    }
    return oldest && page_pool_evict(oldest);
}

static bool evict_entry(struct pools *p, const struct block_pool *but)
{
    return evict_page(p, but) ||
           (p->states && p->states != but && p->index && prefix_index_evict_snapshot(p->index));
}

/* Refused by the process or by the system, not by a limit of this model's. Others have memory of the first
 * device alone to give, which does not help where another one is full. */
static bool is_refused_by_all(struct pools *p)
{
    struct account_numbers n;
    for (uint32_t i = 0; i < p->beside_count; i++)
        if (account_refuses(p->beside[i].kv, UNIT_BYTES, &n))
            return false;
    return !account_refuses(p->kv, UNIT_BYTES, &n) || n.is_root;
}

static bool give_more(struct pools *p)
{
    return p->more && is_refused_by_all(p) && p->more(p->arg);
}

/* Nothing is free here: others are asked, which takes them a step. Meanwhile this engine evicts its own
 * cache. */
static void ask_others(struct pools *p)
{
    p->memory_requested =
        p->holder && is_refused_by_all(p) && holder_want(p->holder, REQUEST_BYTES, p->now_ns);
}

bool pools_are_limited(const struct pools *p)
{
    return account_domain(p->kv)->resident && footprint_is_limited(UNIT_BYTES);
}

/* Whether the system has refused the unit for lack of memory, or an account or a limit of this process. */
static void note_refusal(struct pools *p)
{
    uint64_t refused = 0;
    for (uint32_t kind = 0; kind < TIER_KINDS; kind++)
        refused += pools_numbers(p, kind).refused;
    if (refused > p->refused && !pools_are_limited(p))
        p->taken_ns = p->now_ns;
    p->refused = refused;
}

/* The other pools' free units, then the units of their cached entries. */
static bool reclaim(struct pools *p, const struct block_pool *wants, bool cached)
{
    p->reclaims += cached;
    note_refusal(p);
    if (give_more(p))
        return true;
    do {
        if (give_unit(p, wants, UINT64_MAX) > 0)
            return true;
    } while (cached && (compact(p, wants) || evict_entry(p, wants)));
    ask_others(p);
    return false;
}

static bool reclaim_pages(void *arg, bool cached)
{
    const struct pool_of *of = arg;
    return reclaim(of->pools, page_pool_blocks(of->pools->groups[of->group].pages), cached);
}

static bool reclaim_states(void *arg, bool cached)
{
    struct pools *p = arg;
    return reclaim(p, p->states, cached);
}

static uint64_t allow(void *arg, uint64_t bytes)
{
    struct pools *p = arg;
    return holder_allow(p->holder, bytes, p->now_ns);
}

/* ---- life cycle ---- */

static struct page_pool_opts page_opts(const struct pools_opts *o, struct pools *p, uint32_t group)
{
    bool movable = o->prefix_cache_max && o->groups[group].page_bytes <= UNIT_BYTES;
    struct page_pool_opts ret = {.pages_max = o->pages_max,
                                 .page_bytes = o->groups[group].page_bytes,
                                 .kv = p->kv,
                                 .evict = o->prefix_cache_max ? on_evict : NULL,
                                 .move = movable ? move_page : NULL,
                                 .reclaim = reclaim_pages,
                                 .arg = &p->of[group],
                                 .crew = p->crew.run ? &p->crew : NULL,
                                 .uses = &p->uses};
    for (uint32_t i = 0; i < o->beside_count; i++) {
        ret.beside[i] = (struct block_shard){o->beside[i].page_bytes[group], p->beside[i].kv};
        if (o->beside[i].page_bytes[group] > UNIT_BYTES)
            ret.move = NULL;
    }
    return ret;
}

static struct block_pool_opts state_opts(const struct pools_opts *o, struct pools *p)
{
    bool movable = o->prefix_cache_max && o->state_bytes <= UNIT_BYTES;
    struct block_pool_opts ret = {.blocks_max = o->states_max,
                                  .block_bytes = o->state_bytes,
                                  .account = p->state,
                                  .reclaim = reclaim_states,
                                  .is_movable = is_movable_state,
                                  .move = movable ? move_state : NULL,
                                  .arg = p};
    for (uint32_t i = 0; i < o->beside_count; i++) {
        ret.beside[i] = (struct block_shard){o->beside[i].state_bytes, p->beside[i].state};
        if (o->beside[i].state_bytes > UNIT_BYTES)
            ret.move = NULL;
    }
    return ret;
}

static size_t pending_bytes(const struct pools_opts *o)
{
    return ROUND_UP(o->states_max * sizeof(uint32_t), (size_t)64) + 64;
}

static size_t drafted_bytes(const struct pools_opts *o)
{
    return o->drafted ? ROUND_UP((size_t)o->pages_max, (size_t)64) + 64 : 0;
}

static size_t index_bytes(const struct pools_opts *o)
{
    uint32_t pages_max[PAGE_GROUPS_MAX];
    for (uint32_t g = 0; g < o->group_count; g++)
        pages_max[g] = o->pages_max;
    return prefix_index_arena_bytes(pages_max, o->group_count, o->state_bytes ? o->states_max : 0, o->shown);
}

size_t pools_arena_bytes(const struct pools_opts *opts)
{
    struct block_pool_opts states = state_opts(opts, &(struct pools){0});
    size_t bytes = 0;
    for (uint32_t g = 0; g < opts->group_count; g++) {
        struct page_pool_opts pages = page_opts(opts, &(struct pools){0}, g);
        bytes += page_pool_arena_bytes(&pages);
    }
    return bytes + drafted_bytes(opts) +
           (opts->state_bytes ? block_pool_arena_bytes(&states) + pending_bytes(opts) : 0) +
           (opts->prefix_cache_max ? index_bytes(opts) : 0) +
           (opts->prefix_cache_max && opts->tells_prefixes ? prefix_events_arena_bytes(opts->pages_max) : 0) +
           (opts->lease_bytes_max ? leases_arena_bytes(POOLS_LEASES_MAX) : 0) +
           (opts->agents ? agents_arena_bytes(opts->agents) : 0);
}

static int open_beside(const struct pools_shard *s, const struct pools_opts *o,
                       struct pools_beside_accounts *ret)
{
    uint64_t kv = 0, state = o->states_max * (uint64_t)s->state_bytes;
    for (uint32_t g = 0; g < o->group_count; g++)
        kv += o->pages_max * (uint64_t)s->page_bytes[g];
    int r = accounts_open(s->parent, ACCOUNT_POOLS, s->bytes_max, &ret->all);
    if (r == 0)
        r = accounts_open(ret->all, ACCOUNT_KV, ACCOUNT_NO_LIMIT, &ret->kv);
    if (r == 0)
        r = accounts_open(ret->all, ACCOUNT_STATE, ACCOUNT_NO_LIMIT, &ret->state);
    if (r < 0)
        return r;
    account_set_planned(ret->kv, MIN_OF(kv, s->bytes_max));
    account_set_planned(ret->state, state);
    account_set_planned(ret->all, MIN_OF(kv + state, s->bytes_max));
    return 0;
}

static int open_accounts(struct pools *p, const struct pools_opts *o)
{
    int r = accounts_open(o->parent, ACCOUNT_POOLS, o->bytes_max, &p->all);
    if (r == 0)
        r = accounts_open(p->all, ACCOUNT_KV, ACCOUNT_NO_LIMIT, &p->kv);
    if (r == 0)
        r = accounts_open(p->all, ACCOUNT_STATE, ACCOUNT_NO_LIMIT, &p->state);
    if (r == 0)
        r = accounts_open(p->all, ACCOUNT_SNAPSHOTS, o->prefix_cache_max, &p->snapshots);
    if (r == 0)
        r = accounts_open(p->all, ACCOUNT_PREFIX_CACHE, o->prefix_cache_max, &p->prefix_cache);
    if (r == 0)
        r = accounts_open(p->all, ACCOUNT_LEASES, o->lease_bytes_max, &p->leased);
    for (uint32_t i = 0; i < o->beside_count && r == 0; i++)
        r = open_beside(&o->beside[i], o, &p->beside[i]);
    return r;
}

static void plan_accounts(struct pools *p, const struct pools_opts *o)
{
    uint64_t kv = o->pages_max * (uint64_t)p->page_bytes, state = o->states_max * (uint64_t)o->state_bytes;
    account_set_planned(p->kv, MIN_OF(kv, o->bytes_max));
    account_set_planned(p->state, state);
    account_set_planned(p->all, MIN_OF(kv + state, o->bytes_max));
}

static int create_pages(struct arena *a, const struct pools_opts *o, struct pools *p)
{
    if (o->drafted && !(p->drafted = ARENA_ARRAY(a, uint8_t, o->pages_max)))
        return -ENOMEM;
    for (uint32_t g = 0; g < p->group_count; g++) {
        struct page_pool_opts pages = page_opts(o, p, g);
        p->of[g] = (struct pool_of){p, g};
        int r = page_pool_create(a, &pages, &p->groups[g].pages);
        if (r < 0)
            return r;
        p->blocks[tier_kind_of(g)] = page_pool_blocks(p->groups[g].pages);
        p->page_base[g] = pools_numbers(p, tier_kind_of(g)).base;
        for (uint32_t i = 0; i < p->beside_count; i++)
            p->beside_bases[i].pages[g] = block_pool_base(p->blocks[tier_kind_of(g)], i + 1);
    }
    return 0;
}

static int create_states(struct arena *a, const struct pools_opts *o, struct pools *p)
{
    struct block_pool_opts states = state_opts(o, p);
    if (o->state_bytes == 0)
        return 0;
    p->pending = ARENA_ARRAY(a, uint32_t, states.blocks_max);
    int r = p->pending ? block_pool_create(a, &states, &p->states) : -ENOMEM;
    if (r < 0)
        return r;
    p->blocks[TIER_SNAPSHOT] = p->states;
    p->state_base = pools_numbers(p, TIER_SNAPSHOT).base;
    for (uint32_t i = 0; i < p->beside_count; i++)
        p->beside_bases[i].states = block_pool_base(p->states, i + 1);
    return 0;
}

static void on_leaving(void *arg, uint32_t node)
{
    const struct pools *p = arg;
    leases_leaving(p->leases, node);
}

static int create_leases(struct arena *a, const struct pools_opts *o, struct pools *p)
{
    struct leases_opts leases = {.index = p->index,
                                 .count_max = POOLS_LEASES_MAX,
                                 .bytes_max = o->lease_bytes_max,
                                 .pages_max = o->lease_pages_max,
                                 .states_max = o->lease_states_max,
                                 .tier = o->lease_tier};
    return p->index && o->lease_bytes_max ? leases_create(a, &leases, &p->leases) : 0;
}

static int create_agents(struct arena *a, const struct pools_opts *o, struct pools *p)
{
    struct agents_opts agents = {.index = p->index,
                                 .count_max = o->agents,
                                 .tokens_max = MAX_OF(o->agent_tokens, (uint32_t)PAGE_TOKENS),
                                 .idle_ns = o->agent_idle_ns};
    return p->index && o->agents ? agents_create(a, &agents, &p->agents) : 0;
}

static int create_index(struct arena *a, const struct pools_opts *o, struct pools *p)
{
    struct prefix_index_opts index = {.group_count = p->group_count,
                                      .states = p->states,
                                      .state_bytes = o->state_bytes,
                                      .bytes_max = o->prefix_cache_max,
                                      .allow = o->holder ? allow : NULL,
                                      .allow_arg = p,
                                      .evicting = o->evicting,
                                      .arg = o->evicting_arg,
                                      .leaving = on_leaving,
                                      .leaving_arg = p,
                                      .shown = o->shown};
    memcpy(index.groups, p->groups, sizeof(index.groups));
    if (!o->prefix_cache_max)
        return 0;
    int r = prefix_index_create(a, &index, &p->index);
    return r == 0 && o->tells_prefixes && o->events ? prefix_events_open(a, p->index, o->events) : r;
}

int pools_create(struct arena *a, const struct pools_opts *opts, struct pools *p)
{
    ASSERT(opts->group_count <= PAGE_GROUPS_MAX);
    ASSERT(opts->beside_count < SHARDS_MAX);
    *p = (struct pools){.group_count = opts->group_count,
                        .beside_count = opts->beside_count,
                        .state_bytes = opts->state_bytes,
                        .holder = opts->holder,
                        .more = opts->more,
                        .arg = opts->arg,
                        .crew = opts->crew};
    for (uint32_t g = 0; g < opts->group_count; g++) {
        p->groups[g] =
            (struct page_group){.page_bytes = opts->groups[g].page_bytes, .window = opts->groups[g].window};
        p->page_bytes += p->groups[g].page_bytes;
    }
    int r = open_accounts(p, opts);
    if (r < 0)
        return r;
    plan_accounts(p, opts);
    r = create_pages(a, opts, p);
    if (r == 0)
        r = create_states(a, opts, p);
    if (r == 0)
        r = create_index(a, opts, p);
    if (r == 0)
        r = create_leases(a, opts, p);
    return r == 0 ? create_agents(a, opts, p) : r;
}

/* Ranges that the system did not take back belong to the holder from now on, with their bytes. */
static uint64_t free_units(struct pools *p, struct holder *holder)
{
    uint64_t bytes = 0;
    struct units *left[PAGE_GROUPS_MAX + 1];
    uint32_t count = 0;
    for (uint32_t g = 0; g < p->group_count; g++)
        count += (left[count] = page_pool_done(p->groups[g].pages)) != NULL;
    count += (left[count] = block_pool_done(p->states)) != NULL;
    ASSERT(count <= COUNT_OF(left));
    for (uint32_t i = 0; i < count; i++)
        bytes += (uint64_t)units_committed(left[i]) * UNIT_BYTES;
    holder_remove(holder, left, count);
    for (uint32_t i = 0; i < count && !holder; i++)
        units_abandon(left[i]);
    return bytes;
}

uint64_t pools_done(struct pools *p, struct holder *holder)
{
    leases_done(p->leases);
    p->leases = NULL;
    agents_done(p->agents);
    p->agents = NULL;
    prefix_index_done(p->index);
    p->index = NULL;
    if (p->prefix_cache)
        pools_move_accounts(p);
    uint64_t left = free_units(p, holder);
    /* Each demands that nothing is reserved: a leak stops here. */
    for (uint32_t i = 0; i < p->beside_count; i++) {
        account_close(p->beside[i].state);
        account_close(p->beside[i].kv);
        account_close(p->beside[i].all);
    }
    account_close(p->leased);
    account_close(p->prefix_cache);
    account_close(p->snapshots);
    account_close(p->state);
    account_close(p->kv);
    account_close(p->all);
    *p = (struct pools){0};
    return left;
}

/* ---- the SSD tier ---- */

void pools_arrived(void *arg, const struct tier_arrival *a, uint32_t block)
{
    struct pools *p = arg;
    ASSERT(p->blocks[a->kind]);
    block_pool_put(p->blocks[a->kind], block, 0, pools_block_bytes(p, a->kind), a->bytes);
    if (a->kind == TIER_SNAPSHOT)
        p->pending[block] = a->pending;
    if (p->drafted && a->kind == tier_kind_of(0))
        p->drafted[block] = PAGE_TOKENS;
}

size_t pools_block_bytes(const struct pools *p, enum tier_kind kind)
{
    return p->blocks[kind] ? block_pool_whole_bytes(p->blocks[kind]) : 0;
}

int pools_get(const struct pools *p, enum tier_kind kind, uint32_t block, uint64_t offset, uint64_t bytes,
              void *host)
{
    ASSERT(p->blocks[kind]);
    return block_pool_get(p->blocks[kind], block, offset, bytes, host);
}

/* ---- accounts ---- */

static void show(struct account *from, struct account *to, uint64_t *shown, uint64_t bytes)
{
    ASSERT(from != to);
    if (bytes > *shown)
        account_shift(from, to, bytes - *shown);
    else if (bytes < *shown)
        account_shift(to, from, *shown - bytes);
    *shown = bytes;
}

void pools_move_accounts(struct pools *p)
{
    struct prefix_numbers n = {0};
    if (p->index)
        prefix_index_numbers(p->index, &n);
    uint64_t cached = 0, states_leased = n.leased * (uint64_t)p->state_bytes;
    ASSERT(n.leased_bytes >= states_leased && n.snapshots >= n.pinned);
    for (uint32_t g = 0; g < p->group_count && p->groups[g].pages; g++)
        cached += (uint64_t)page_pool_cached(p->groups[g].pages) * p->groups[g].page_bytes;
    show(p->kv, p->leased, &p->pages_leased, n.leased_bytes - states_leased);
    show(p->state, p->leased, &p->states_leased, states_leased);
    show(p->kv, p->prefix_cache, &p->on_prefix_cache, cached);
    show(p->state, p->snapshots, &p->on_snapshots, (uint64_t)(n.snapshots - n.pinned) * p->state_bytes);
}

uint32_t pools_prefix_end(const struct pools *p, const struct prefix_key *keys, uint32_t count)
{
    struct prefix_hit hit;
    ASSERT(p->index && (keys || count == 0));
    prefix_index_find(p->index, keys, count, &hit);
    return hit.node;
}

void pools_clock(struct pools *p, uint64_t now_ns)
{
    p->now_ns = now_ns;
    p->memory_requested = false;
    for (uint32_t g = 0; g < p->group_count; g++)
        page_pool_clock(p->groups[g].pages, now_ns);
    if (p->states)
        block_pool_clock(p->states, now_ns);
    if (p->index)
        prefix_index_clock(p->index, now_ns);
}

/* ---- giving back ---- */

bool pools_free_unit(struct pools *p)
{
    if (p->index)
        prefix_index_blame(p->index, PREFIX_LOSS_IMAGES, 0);
    do {
        if (give_unit(p, NULL, UINT64_MAX) > 0)
            return true;
    } while (p->index && (compact(p, NULL) || prefix_index_evict(p->index)));
    return false;
}

bool pools_shrink(struct pools *p, uint64_t before_ns, struct pools_given *ret)
{
    ret->bytes = give_unit(p, NULL, before_ns);
    ret->moved = ret->bytes == 0 && p->index && compact(p, NULL);
    return ret->bytes > 0 || ret->moved;
}

static uint64_t cache_bytes(const struct pools *p)
{
    struct prefix_numbers n = {0};
    if (p->index)
        prefix_index_numbers(p->index, &n);
    return n.bytes;
}

uint64_t pools_evict(struct pools *p, uint64_t bytes)
{
    uint64_t before = cache_bytes(p), now = before;
    while (p->index && before - now < bytes && prefix_index_evict(p->index))
        now = cache_bytes(p);
    ASSERT(now <= before);
    return before - now;
}

/* Last use of the least recently used cached page; 0: no page is cached. */
static uint64_t oldest_page_ns(const struct pools *p)
{
    uint64_t oldest_ns = 0;
    for (uint32_t g = 0; g < p->group_count; g++) {
        uint64_t ns = page_pool_oldest_ns(p->groups[g].pages);
        oldest_ns = oldest_ns == 0 || (ns > 0 && ns < oldest_ns) ? ns : oldest_ns;
    }
    return oldest_ns;
}

static bool has_older(const struct pools *p, uint64_t before_ns)
{
    uint64_t oldest_ns = oldest_page_ns(p);
    return before_ns == UINT64_MAX || (oldest_ns > 0 && oldest_ns < before_ns);
}

uint64_t pools_evict_before(struct pools *p, uint64_t bytes, uint64_t before_ns)
{
    uint64_t before = cache_bytes(p), now = before;
    while (p->index && before - now < bytes && has_older(p, before_ns) && prefix_index_evict(p->index)) {
        now = cache_bytes(p);
        p->dropped++;
    }
    ASSERT(now <= before);
    return before - now;
}

/* ---- the list of holders ---- */

/* Entries of the index without a reference, when all sequences have ended. Leases stay. */
static uint64_t kept_bytes(const struct pools *p, const struct prefix_numbers *n)
{
    uint64_t bytes = n->nodes * (uint64_t)p->groups[0].page_bytes + n->snapshots * (uint64_t)p->state_bytes;
    for (uint32_t g = 1; g < p->group_count; g++)
        bytes += pools_numbers(p, tier_kind_of(g)).taken * (uint64_t)p->groups[g].page_bytes;
    ASSERT(bytes >= n->leased_bytes);
    return bytes - n->leased_bytes;
}

/* Last use of the next entry to evict. Snapshots without pages belong to running sequences: they count as
 * new. */
static uint64_t oldest_ns(const struct pools *p, uint64_t cached)
{
    uint64_t pages = oldest_page_ns(p);
    return pages > 0 || cached == 0 ? pages : p->now_ns;
}

/* Bytes that pools_shrink() can give back on the first device. */
static uint64_t own_spare_bytes(const struct pools *p)
{
    uint64_t bytes = 0;
    for (uint32_t kind = 0; kind < TIER_KINDS; kind++)
        bytes += pools_numbers(p, kind).spare_bytes;
    return bytes;
}

uint64_t pools_publish(struct pools *p, const struct pools_beside *beside, uint64_t prompt_token_ns)
{
    struct prefix_numbers n = {0};
    if (!p->holder)
        return 0;
    ASSERT(p->page_bytes > 0);
    if (p->index)
        prefix_index_numbers(p->index, &n);
    struct holder_numbers now = {
        .held_bytes = pools_held_bytes(p) + beside->held_bytes,
        .free_bytes = own_spare_bytes(p) + beside->free_bytes,
        .cached_bytes = n.bytes,
        .reach_bytes = account_would_free(p->all, own_spare_bytes(p) + n.bytes) + beside->reach_bytes,
        .wanted_bytes = kept_bytes(p, &n),
        .entries = n.nodes + n.snapshots,
        .oldest_ns = oldest_ns(p, n.bytes),
        .cost_ns_per_mib = prompt_token_ns * PAGE_TOKENS * MIB / p->page_bytes,
    };
    struct holder_share share = holder_publish(p->holder, &now, p->now_ns);
    if (p->index)
        prefix_index_allow(p->index, MAX_OF(share.allowed_bytes, n.bytes));
    return share.asked_bytes;
}

/* ---- looking ---- */

struct pool_numbers pools_numbers(const struct pools *p, enum tier_kind kind)
{
    struct pool_numbers n = {0};
    if (p->blocks[kind])
        block_pool_numbers(p->blocks[kind], &n);
    return n;
}

uint64_t pools_spare_bytes(const struct pools *p)
{
    uint64_t bytes = 0;
    for (uint32_t kind = 0; kind < TIER_KINDS; kind++)
        bytes += p->blocks[kind] ? block_pool_spare_bytes(p->blocks[kind]) : 0;
    return bytes;
}

uint64_t pools_held_bytes(const struct pools *p)
{
    uint64_t units = 0;
    for (uint32_t kind = 0; kind < TIER_KINDS; kind++)
        units += pools_numbers(p, kind).units_committed;
    return units * UNIT_BYTES;
}

uint64_t pools_recommitted(const struct pools *p)
{
    uint64_t units = 0;
    for (uint32_t kind = 0; kind < TIER_KINDS; kind++)
        units += pools_numbers(p, kind).recommitted;
    return units;
}
