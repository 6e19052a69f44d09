/* pools.c - two pools under one limit.
 *
 * The ledger counts units only: a page that changes between a request and the cache moves no byte. So the
 * accounts of the prefix cache are updated at certain times (after each step, before a unit goes) and not
 * with each page. Blocks larger than a unit stay in place: moving one would take longer than a slice may,
 * and the units between two of them are given back anyway. */
#include "engine/pools.h"

#include "base/check.h"
#include "memory/accounts.h"

#include <errno.h>

#define MIB ((uint64_t)1 << 20)
#define REQUEST_BYTES                                                                                        \
    (8 * (uint64_t)UNIT_BYTES) /* asked from others at once, so that not every unit is a request */

/* ---- callbacks of the pools ---- */

static void on_evict(void *arg, uint32_t page)
{
    struct pools *p = arg;
    prefix_index_evict_page(p->index, 0, page);
}

static void move_page(void *arg, uint32_t from, uint32_t to)
{
    struct pools *p = arg;
    block_pool_copy(p->blocks[TIER_PAGE], from, to);
    prefix_index_move(p->index, 0, from, to);
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
    block_pool_copy(p->states, from, to);
    p->pending[to] = p->pending[from];
    prefix_index_move_snapshot(p->index, from, to);
    p->moves++;
}

static bool give_unit_of(struct pools *p, struct block_pool *blocks)
{
    pools_settle(p);
    return blocks && block_pool_trim(blocks, 1, UINT64_MAX) > 0;
}

/* Refused by the process or by the system, not by a limit of this model's. */
static bool is_refused_by_all(struct pools *p)
{
    struct account_numbers n;
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

/* For the pages: the states' free units, then the units of snapshots. */
static bool reclaim_pages(void *arg, bool cached)
{
    struct pools *p = arg;
    p->reclaims += cached;
    if (give_more(p))
        return true;
    do {
        if (give_unit_of(p, p->states))
            return true;
    } while (cached && p->states &&
             (block_pool_compact(p->states) || (p->index && prefix_index_evict_snapshot(p->index))));
    ask_others(p);
    return false;
}

/* For the states: the pages' free units, then the units of cached pages. */
static bool reclaim_states(void *arg, bool cached)
{
    struct pools *p = arg;
    p->reclaims += cached;
    if (give_more(p))
        return true;
    do {
        if (give_unit_of(p, p->blocks[TIER_PAGE]))
            return true;
    } while (cached && (block_pool_compact(p->blocks[TIER_PAGE]) || page_pool_evict(p->pages)));
    ask_others(p);
    return false;
}

static uint64_t allow(void *arg, uint64_t bytes)
{
    struct pools *p = arg;
    return holder_allow(p->holder, bytes, p->now_ns);
}

/* ---- life cycle ---- */

static struct page_pool_opts page_opts(const struct pools_opts *o, struct pools *p)
{
    bool movable = o->prefix_cache_max && o->page_bytes <= UNIT_BYTES;
    return (struct page_pool_opts){.pages_max = o->pages_max,
                                   .page_bytes = o->page_bytes,
                                   .kv = p->kv,
                                   .evict = o->prefix_cache_max ? on_evict : NULL,
                                   .move = movable ? move_page : NULL,
                                   .reclaim = reclaim_pages,
                                   .arg = p,
                                   .crew = p->crew.run ? &p->crew : NULL};
}

static struct block_pool_opts state_opts(const struct pools_opts *o, struct pools *p)
{
    bool movable = o->prefix_cache_max && o->state_bytes <= UNIT_BYTES;
    return (struct block_pool_opts){.blocks_max = o->states_max,
                                    .block_bytes = o->state_bytes,
                                    .account = p->state,
                                    .reclaim = reclaim_states,
                                    .is_movable = is_movable_state,
                                    .move = movable ? move_state : NULL,
                                    .arg = p};
}

static size_t pending_bytes(const struct pools_opts *o)
{
    return ROUND_UP(o->states_max * sizeof(uint32_t), (size_t)64) + 64;
}

size_t pools_arena_bytes(const struct pools_opts *opts)
{
    struct page_pool_opts pages = page_opts(opts, &(struct pools){0});
    struct block_pool_opts states = state_opts(opts, &(struct pools){0});
    return page_pool_arena_bytes(&pages) +
           (opts->state_bytes ? block_pool_arena_bytes(&states) + pending_bytes(opts) : 0) +
           (opts->prefix_cache_max
                ? prefix_index_arena_bytes(&opts->pages_max, 1, opts->state_bytes ? opts->states_max : 0)
                : 0);
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
    return r == 0 ? accounts_open(p->all, ACCOUNT_PREFIX_CACHE, o->prefix_cache_max, &p->prefix_cache) : r;
}

static int create_states(struct arena *a, const struct block_pool_opts *opts, struct pools *p)
{
    p->pending = ARENA_ARRAY(a, uint32_t, opts->blocks_max);
    return p->pending ? block_pool_create(a, opts, &p->states) : -ENOMEM;
}

int pools_create(struct arena *a, const struct pools_opts *opts, struct pools *p)
{
    *p = (struct pools){.page_bytes = opts->page_bytes,
                        .state_bytes = opts->state_bytes,
                        .holder = opts->holder,
                        .more = opts->more,
                        .arg = opts->arg,
                        .crew = opts->crew};
    int r = open_accounts(p, opts);
    if (r < 0)
        return r;
    uint64_t kv = (uint64_t)opts->pages_max * opts->page_bytes,
             state = (uint64_t)opts->states_max * opts->state_bytes;
    account_set_planned(p->kv, kv);
    account_set_planned(p->state, state);
    account_set_planned(p->all, MIN_OF(kv + state, opts->bytes_max));
    struct page_pool_opts pages = page_opts(opts, p);
    struct block_pool_opts states = state_opts(opts, p);
    r = page_pool_create(a, &pages, &p->pages);
    if (r == 0 && opts->state_bytes > 0)
        r = create_states(a, &states, p);
    if (r < 0)
        return r;
    p->blocks[TIER_PAGE] = page_pool_blocks(p->pages);
    p->blocks[TIER_SNAPSHOT] = p->states;
    p->page_base = pools_numbers(p, TIER_PAGE).base;
    p->state_base = pools_numbers(p, TIER_SNAPSHOT).base;
    struct prefix_index_opts index = {.groups = {{.pages = p->pages, .page_bytes = opts->page_bytes}},
                                      .group_count = 1,
                                      .states = p->states,
                                      .state_bytes = opts->state_bytes,
                                      .bytes_max = opts->prefix_cache_max,
                                      .allow = opts->holder ? allow : NULL,
                                      .allow_arg = p,
                                      .evicting = opts->evicting,
                                      .arg = opts->evicting_arg};
    return opts->prefix_cache_max ? prefix_index_create(a, &index, &p->index) : 0;
}

/* Ranges that the system did not take back belong to the holder from now on, with their bytes. */
static uint64_t free_units(struct pools *p, struct holder *holder)
{
    uint64_t bytes = 0;
    struct units *of_pages = page_pool_done(p->pages), *of_states = block_pool_done(p->states);
    struct units *left[2];
    uint32_t count = 0;
    if (of_pages)
        left[count++] = of_pages;
    if (of_states)
        left[count++] = of_states;
    for (uint32_t i = 0; i < count; i++)
        bytes += (uint64_t)units_committed(left[i]) * UNIT_BYTES;
    holder_remove(holder, left, count);
    for (uint32_t i = 0; i < count && !holder; i++)
        units_abandon(left[i]);
    return bytes;
}

uint64_t pools_done(struct pools *p, struct holder *holder)
{
    prefix_index_done(p->index);
    p->index = NULL;
    if (p->prefix_cache)
        pools_settle(p);
    uint64_t left = free_units(p, holder);
    /* Each demands that nothing is reserved: a leak stops here. */
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
    block_pool_put(p->blocks[a->kind], block, 0, pools_block_bytes(p, a->kind), a->bytes);
    if (a->kind == TIER_SNAPSHOT)
        p->pending[block] = a->pending;
}

size_t pools_block_bytes(const struct pools *p, enum tier_kind kind)
{
    return kind == TIER_PAGE ? p->page_bytes : p->state_bytes;
}

int pools_get(const struct pools *p, enum tier_kind kind, uint32_t block, uint64_t offset, uint64_t bytes,
              void *host)
{
    return block_pool_get(p->blocks[kind], block, offset, bytes, host);
}

/* ---- accounts ---- */

static void show(struct account *from, struct account *to, uint64_t *shown, uint64_t bytes)
{
    if (bytes > *shown)
        account_shift(from, to, bytes - *shown);
    else if (bytes < *shown)
        account_shift(to, from, *shown - bytes);
    *shown = bytes;
}

void pools_settle(struct pools *p)
{
    struct prefix_numbers n = {0};
    if (p->index)
        prefix_index_numbers(p->index, &n);
    uint64_t cached = p->index ? (uint64_t)page_pool_cached(p->pages) * p->page_bytes : 0;
    show(p->kv, p->prefix_cache, &p->on_prefix_cache, cached);
    show(p->state, p->snapshots, &p->on_snapshots, (uint64_t)(n.snapshots - n.pinned) * p->state_bytes);
}

void pools_clock(struct pools *p, uint64_t now_ns)
{
    p->now_ns = now_ns;
    p->memory_requested = false;
    page_pool_clock(p->pages, now_ns);
    if (p->states)
        block_pool_clock(p->states, now_ns);
}

/* ---- giving back ---- */

static uint64_t give_unit(struct pools *p, uint64_t before_ns)
{
    pools_settle(p);
    uint64_t bytes = block_pool_trim(p->blocks[TIER_PAGE], 1, before_ns);
    return bytes == 0 && p->states ? block_pool_trim(p->states, 1, before_ns) : bytes;
}

static bool compact(struct pools *p)
{
    return block_pool_compact(p->blocks[TIER_PAGE]) || (p->states && block_pool_compact(p->states));
}

bool pools_free_unit(struct pools *p)
{
    do {
        if (give_unit(p, UINT64_MAX) > 0)
            return true;
    } while (p->index && (compact(p) || prefix_index_evict(p->index)));
    return false;
}

bool pools_shrink(struct pools *p, uint64_t before_ns, struct pools_given *ret)
{
    ret->bytes = give_unit(p, before_ns);
    ret->moved = ret->bytes == 0 && p->index && compact(p);
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
    return before - now;
}

static bool has_older(const struct pools *p, uint64_t before_ns)
{
    uint64_t oldest_ns = page_pool_oldest_ns(p->pages);
    return before_ns == UINT64_MAX || (oldest_ns > 0 && oldest_ns < before_ns);
}

uint64_t pools_evict_before(struct pools *p, uint64_t bytes, uint64_t before_ns)
{
    uint64_t before = cache_bytes(p), now = before;
    while (p->index && before - now < bytes && has_older(p, before_ns) && prefix_index_evict(p->index)) {
        now = cache_bytes(p);
        p->dropped++;
    }
    return before - now;
}

/* ---- the list of holders ---- */

/* Last use of the next entry to evict. Snapshots without pages belong to running sequences: they count as
 * new. */
static uint64_t oldest_ns(const struct pools *p, uint64_t cached)
{
    uint64_t pages = page_pool_oldest_ns(p->pages);
    return pages > 0 || cached == 0 ? pages : p->now_ns;
}

uint64_t pools_publish(struct pools *p, const struct pools_beside *beside, uint64_t prompt_token_ns)
{
    struct prefix_numbers n = {0};
    if (!p->holder)
        return 0;
    if (p->index)
        prefix_index_numbers(p->index, &n);
    struct holder_numbers now = {
        .held_bytes = pools_held_bytes(p) + beside->held_bytes,
        .free_bytes = pools_spare_bytes(p) + beside->free_bytes,
        .cached_bytes = n.bytes,
        .reach_bytes = account_would_free(p->all, pools_spare_bytes(p) + n.bytes) + beside->reach_bytes,
        .wanted_bytes = n.nodes * (uint64_t)p->page_bytes + n.snapshots * (uint64_t)p->state_bytes,
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
    return block_pool_spare_bytes(p->blocks[TIER_PAGE]) + (p->states ? block_pool_spare_bytes(p->states) : 0);
}

uint64_t pools_held_bytes(const struct pools *p)
{
    return ((uint64_t)pools_numbers(p, TIER_PAGE).units_committed +
            pools_numbers(p, TIER_SNAPSHOT).units_committed) *
           UNIT_BYTES;
}

uint64_t pools_recommitted(const struct pools *p)
{
    return pools_numbers(p, TIER_PAGE).recommitted + pools_numbers(p, TIER_SNAPSHOT).recommitted;
}
