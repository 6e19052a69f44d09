/* engine_tiers.c - the SSD tier of an engine, and pinned memory above it.
 *
 * The pools get one interface. With pinned memory it is that tier's, which passes to the SSD tier what it
 * does not keep. Pinned memory is the machine's: it has a holder of its own there, so loads and other caches
 * of the machine get it back by asking. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/none.h"
#include "cache/prefix_index.h"
#include "cache/prefix_lease.h"
#include "memory/accounts.h"
#include "model/model.h"
#include "reclaim/holders.h"
#include "store/shared_tier.h"
#include "store/store.h"

#define MIB             ((uint64_t)1 << 20)
#define WISHES_PER_STEP 8 /* entries copied for the shared tier beside a step */

/* Called by any of the store's threads until the client is closed, and under the list's lock; the inbox
 * lives longer. */
static void wake(void *arg)
{
    engine_wake(arg);
}

static void pin(void *arg, void *at, size_t bytes)
{
    const struct engine *en = arg;
    device_pin(en->opts.device, at, bytes);
}

static void unpin(void *arg, void *at)
{
    const struct engine *en = arg;
    device_unpin(en->opts.device, at);
}

static uint64_t allow(void *arg, uint64_t bytes)
{
    const struct engine *en = arg;
    return en->tiers.holder ? holder_allow(en->tiers.holder, bytes, clock_now_ns()) : bytes;
}

static struct pinned_tier_opts pinned_opts(const struct engine_opts *o, const struct model_shape *s)
{
    struct pinned_tier_opts ret = {.bytes_max = o->prefix_cache_bytes ? o->pinned_cache_bytes : 0,
                                   .bytes[TIER_SNAPSHOT] = s->state_bytes};
    for (uint32_t g = 0; g < s->group_count; g++)
        ret.bytes[tier_kind_of(g)] = s->groups[g].page_bytes;
    for (uint32_t i = 0; i + 1 < s->shard_count; i++) {
        ret.bytes[TIER_SNAPSHOT] += s->beside[i].state_bytes;
        for (uint32_t g = 0; g < s->group_count; g++)
            ret.bytes[tier_kind_of(g)] += s->beside[i].page_bytes[g];
    }
    return ret;
}

size_t engine_tiers_bytes(const struct engine_opts *o, const struct model_shape *s)
{
    struct pinned_tier_opts pinned = pinned_opts(o, s);
    return pinned_tier_arena_bytes(&pinned);
}

static int open_ssd(struct engine *en)
{
    struct store_client_opts c = {
        .identity = en->opts.identity, .pending_max = en->shape->state_pending_max, .wake = wake, .arg = en};
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        c.bytes[kind] = pools_block_bytes(&en->pools, kind);
    return store_client_open(en->opts.store, &c, &en->tiers.ssd);
}

static int open_shared(struct engine *en)
{
    struct engine_tiers *t = &en->tiers;
    struct store_client_opts c = {
        .identity = en->opts.identity, .pending_max = en->shape->state_pending_max, .wake = wake, .arg = en};
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        c.bytes[kind] = t->pair.bytes[kind] = pools_block_bytes(&en->pools, kind);
    int r = shared_client_open(en->opts.shared, &c, &t->shared);
    if (r < 0)
        return r;
    t->pair.upper = &t->ssd;
    t->pair.lower = &t->shared;
    tier_pair_init(&t->pair, &t->below);
    return 0;
}

static int take_ask(void *arg, struct holder_ask *ask)
{
    struct engine *en = arg;
    struct engine_message m = {.order = ask, .pinned = true};
    return mailbox_put(en->inbox, &m);
}

static const struct holder_ops holder_ops = {take_ask, wake};

static int open_pinned(struct engine *en)
{
    struct engine_tiers *t = &en->tiers;
    struct pinned_tier_opts o = pinned_opts(&en->opts, en->shape);
    if (!pinned_tier_is_possible(&o))
        return 0;
    int r = accounts_open(en->opts.parent, ACCOUNT_PINNED_CACHE, o.bytes_max, &t->account);
    if (r < 0)
        return r;
    if (en->opts.holders)
        r = holder_add(en->opts.holders, account_domain(t->account), en->name, &t->holder);
    o.account = t->account;
    o.below = &t->below;
    o.allow = allow;
    o.pin = pin;
    o.unpin = unpin;
    o.wake = wake;
    o.arg = en;
    if (r == 0)
        r = pinned_tier_create(en->arena, &o, &t->pinned, &t->top);
    if (r == 0 && t->holder)
        holder_open(t->holder, &holder_ops, en);
    return r;
}

int engine_tiers_create(struct engine *en)
{
    struct engine_tiers *t = &en->tiers;
    if (en->opts.store && en->pools.index && open_ssd(en) < 0)
        LOG_WARN("ssd_full", "model=%s: more models use the SSD tier than it takes; this one does not",
                 en->name);
    t->below = t->ssd;
    if (en->opts.shared && en->pools.index && open_shared(en) < 0)
        LOG_WARN("shared_cache_full",
                 "model=%s: more models use the shared cache than it takes; this one does not", en->name);
    t->top = t->below;
    return en->pools.index ? open_pinned(en) : 0;
}

void engine_tiers_done(struct engine *en)
{
    struct engine_tiers *t = &en->tiers;
    holder_close(t->holder);
    pinned_tier_done(t->pinned);
    holder_remove(t->holder, NULL, 0);
    shared_client_close(&t->shared);
    store_client_close(&t->ssd);
    account_close(t->account);
    *t = (struct engine_tiers){0};
}

bool engine_tiers_grow(struct engine *en)
{
    return en->tiers.pinned && pinned_tier_grow(en->tiers.pinned);
}

/* Heads of prompts that a second request has used go to the shared tier, a few at a time. */
void engine_tiers_tend(struct engine *en)
{
    struct prefix_key key;
    enum tier_kind kind;
    for (uint32_t i = 0; i < WISHES_PER_STEP && shared_client_wants(&en->tiers.shared, &key, &kind); i++) {
        uint32_t node = prefix_index_node(en->pools.index, &key);
        uint32_t block = node == NONE ? NONE : prefix_index_block(en->pools.index, node, kind);
        if (block != NONE)
            write_behind_common(&en->write_behind, &(struct tier_offer){&key, kind, 0, TIER_COMMON}, block);
    }
}

void engine_tiers_end(struct engine *en)
{
    if (engine_failure(en) == 0)
        pinned_tier_end(en->tiers.pinned);
}

/* ---- the list of holders ---- */

static uint64_t publish(struct engine *en, uint64_t now_ns)
{
    struct engine_tiers *t = &en->tiers;
    struct pinned_numbers n;
    if (!t->holder)
        return 0;
    pinned_tier_numbers(t->pinned, &n);
    const struct holder_numbers now = {.held_bytes = n.bytes,
                                       .cached_bytes = n.bytes,
                                       .reach_bytes = account_would_free(t->account, n.bytes),
                                       .wanted_bytes = n.bytes,
                                       .entries = n.pages + n.snapshots,
                                       .oldest_ns = n.oldest_ns,
                                       .cost_ns_per_mib = (uint64_t)en->budget.prompt_ns * PAGE_TOKENS * MIB /
                                                          en->pools.page_bytes};
    return holder_publish(t->holder, &now, now_ns).asked_bytes;
}

void engine_tiers_share(struct engine *en)
{
    struct engine_tiers *t = &en->tiers;
    uint64_t bytes, now_ns = clock_now_ns();
    uint32_t entries = 0;
    if (!t->pinned)
        return;
    pinned_tier_clock(t->pinned, now_ns);
    while ((bytes = publish(en, now_ns)) > 0 && pinned_tier_give(t->pinned, bytes, UINT64_MAX, &entries) > 0)
        ;
}

void engine_tiers_take_order(struct engine *en, struct holder_ask *o)
{
    struct engine_tiers *t = &en->tiers;
    ASSERT(t->pinned && t->holder);
    if (o->kind == HOLDER_GIVE)
        o->answer.bytes = pinned_tier_give(t->pinned, o->bytes, o->before_ns, &o->answer.entries);
    else if (o->kind == HOLDER_CLEAR)
        o->answer.bytes = pinned_tier_clear(t->pinned, &o->answer.entries);
    (void)publish(en, clock_now_ns());
    holder_ask_done(o);
}
