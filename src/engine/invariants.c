/* invariants.c - the walks of the engine's parts, and what must hold between those parts. */
#include "engine/invariants.h"

#include "engine/embedding_cache.h"
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "cache/agents.h"
#include "cache/block_pool.h"
#include "cache/leases.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "memory/domain.h"

typedef unsigned long long ull;

/* ---- between the parts ---- */

/* The units of a pool are on three accounts: one for requests, one for the cache, and that of leases. */
static void check_units(struct account *used, struct account *cached, uint64_t shown, uint64_t leased,
                        uint64_t bytes)
{
    struct account_numbers a = account_numbers(used), b = account_numbers(cached);
    ASSERT_OF(a.used + b.used + leased == bytes,
              "accounts %s and %s: %llu and %llu bytes used, %llu leased, %llu committed", a.name, b.name,
              (ull)a.used, (ull)b.used, (ull)leased, (ull)bytes);
    ASSERT_OF(b.used == shown, "account %s: %llu bytes used, %llu cached", b.name, (ull)b.used, (ull)shown);
}

static void check_pools(const struct pools *p)
{
    uint64_t states = pools_numbers(p, TIER_SNAPSHOT).units_committed * (uint64_t)UNIT_BYTES;
    check_units(p->kv, p->prefix_cache, p->on_prefix_cache, p->pages_leased, pools_held_bytes(p) - states);
    check_units(p->state, p->snapshots, p->on_snapshots, p->states_leased, states);
    ASSERT(account_numbers(p->leased).used == p->pages_leased + p->states_leased);
    account_check(p->all);
}

static uint32_t count(const struct list *list)
{
    uint32_t n = 0;
    for (const struct list *it = list->next; it != list; it = it->next)
        n++;
    return n;
}

static void check_jobs(struct engine *en)
{
    struct sched_numbers s;
    uint32_t jobs = count(&en->jobs), over = count(&en->over);
    sched_numbers(en->sched, &s);
    ASSERT_OF(jobs == s.running + s.waiting, "%u jobs, %u sequences run and %u wait", jobs, s.running,
              s.waiting);
    ASSERT_OF(jobs + over <= admission_total(&en->admission), "%u jobs and %u that are over, %u admitted",
              jobs, over, admission_total(&en->admission));
}

static bool walk(struct engine *en, struct walk *w)
{
    const struct pools *p = &en->pools;
    const struct engine_faults *faults = en->opts.faults;
    if (faults && faults->walk)
        faults->walk(faults->arg, en);
    check_jobs(en);
    check_pools(p);
    if (p->leases)
        leases_check(p->leases);
    if (p->agents)
        agents_check(p->agents);
    if (en->tiers.pinned)
        pinned_tier_check(en->tiers.pinned);
    if (en->image_sched.embedding_cache)
        embedding_cache_check(en->image_sched.embedding_cache);
    for (uint32_t g = 0; g < p->group_count; g++)
        if (!page_pool_walk(p->groups[g].pages, w))
            return false;
    return (!p->states || block_pool_walk(p->states, w)) && (!p->index || prefix_index_walk(p->index, w)) &&
           sched_walk(en->sched, w);
}

/* ---- when ---- */

uint64_t invariants_wait_ns(struct engine *en, uint64_t now_ns)
{
    struct invariants *v = &en->invariants;
    if (v->due_ns == 0 || v->steps != en->now.steps)
        *v = (struct invariants){now_ns + INVARIANTS_AFTER_NS, en->now.steps};
    return v->due_ns > now_ns ? v->due_ns - now_ns : 0;
}

static bool goes_on(void *arg)
{
    struct engine *en = arg;
    return mailbox_count(en->inbox) == 0 && !atomic_load(&en->closing);
}

void invariants_run(struct engine *en)
{
    struct walk w = {.goes_on = goes_on, .arg = en};
    uint64_t began_ns = clock_now_ns();
    if (!walk(en, &w))
        return;
    uint64_t now_ns = clock_now_ns();
    en->now.walks++;
    en->now.walk_ns = now_ns - began_ns;
    en->invariants.due_ns = now_ns + INVARIANTS_EVERY_NS;
}

uint64_t invariants_check(struct engine *en)
{
    struct walk w = {0};
    bool whole = walk(en, &w);
    ASSERT(whole);
    return w.looked;
}

void invariants_after_step(struct engine *en)
{
#ifdef PLATEAU_DEBUG
    /* Published first, so that readers see this step during the walk and not the state before it. */
    struct walk w = {.brief = true};
    engine_publish(en, false);
    bool whole = walk(en, &w);
    ASSERT(whole);
#else
    (void)en;
#endif
}
