/* engine_numbers.c - reads the gauges of the engine's parts and publishes them. */
#include "engine/engine.h"
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/block_pool.h"
#include "cache/leases.h"
#include "cache/page_group.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"

static struct engine_pool_numbers pool_numbers_of(const struct pool_numbers *n, size_t block_bytes)
{
    return (struct engine_pool_numbers){.active_bytes = n->active_bytes,
                                        .cached_bytes = n->cached_bytes,
                                        .peak_bytes = (uint64_t)n->peak * block_bytes,
                                        .limit_bytes = n->limit_bytes};
}

static void add_pool(struct engine_pool_numbers *to, const struct engine_pool_numbers *n)
{
    to->active_bytes += n->active_bytes;
    to->cached_bytes += n->cached_bytes;
    to->peak_bytes += n->peak_bytes;
    to->limit_bytes += n->limit_bytes;
}

static void read_pages(const struct pools *pools, struct engine_numbers *ret)
{
    ASSERT(pools->group_count > 0);
    ret->pages_used = ret->pages_committed = ret->pages_max = 0;
    ret->kv = (struct engine_pool_numbers){0};
    for (uint32_t g = 0; g < pools->group_count; g++) {
        const struct page_group *group = &pools->groups[g];
        struct page_pool_numbers n;
        page_pool_numbers(group->pages, &n);
        struct engine_pool_numbers kv = pool_numbers_of(&n.blocks, group->page_bytes);
        add_pool(&ret->kv, &kv);
        ret->pages_committed += (uint32_t)((kv.active_bytes + kv.cached_bytes) / group->page_bytes);
        ret->pages_max += n.blocks.blocks_max;
        ret->pages_used += n.referenced;
        ret->group_used[g] = n.referenced;
        ret->group_cached[g] = n.kept;
    }
    ret->usage = (double)ret->group_used[0] / page_pool_pages_max(pools->groups[0].pages);
}

static void read_leases(const struct leases *l, struct engine_numbers *ret)
{
    struct lease_numbers n;
    leases_numbers(l, &n);
    ret->sessions = n.sessions;
    ret->wishes = n.wishes;
    ret->promised_bytes = n.promised_bytes;
    ret->lease_bytes_max = n.bytes_max;
    ret->sessions_opened = n.opened;
    ret->sessions_refused = n.refused;
    ret->leases_expired = n.expired;
    ret->wishes_dropped = n.dropped;
}

static void read_gauges(struct engine *en, struct engine_numbers *ret)
{
    struct sched_numbers s;
    struct pool_numbers states = pools_numbers(&en->pools, TIER_SNAPSHOT);
    ret->domain = account_domain(en->pools.all);
    sched_numbers(en->sched, &s);
    read_pages(&en->pools, ret);
    ret->running = s.running;
    ret->waiting = s.waiting;
    ret->preemptions = s.preemptions;
    ret->fetching = s.fetching;
    ret->fetches = s.fetches;
    ret->fetches_failed = s.fetches_failed;
    ret->states_used = states.taken;
    ret->state = pool_numbers_of(&states, en->pools.state_bytes);
    pools_move_accounts(&en->pools);
    image_sched_read_gauges(&en->image_sched, ret);
    ret->busy_ns = en->steps_ns + ret->encode_ns;
    ret->pending_trim_bytes = trim_pending_bytes(&en->trim, s.running);
    ret->trim = en->trim.now;
    ret->units_recommitted = pools_recommitted(&en->pools);
    ret->reclaims = en->trim.now.reclaims + en->pools.reclaims;
    const struct drafting_numbers *d = &en->drafting.now;
    ret->drafts = d->drafts;
    ret->draft_tokens = d->draft_tokens;
    ret->accepted_tokens = d->accepted_tokens;
    memcpy(ret->accepted_at, d->accepted_at, sizeof(ret->accepted_at));
    if (en->tiers.pinned)
        pinned_tier_numbers(en->tiers.pinned, &ret->pinned);
    if (en->pools.leases)
        read_leases(en->pools.leases, ret);
    if (en->pools.index) {
        struct prefix_numbers cache;
        prefix_index_numbers(en->pools.index, &cache);
        ret->cache_pages = cache.nodes;
        ret->cache_snapshots = cache.snapshots;
        ret->cache_bytes = cache.bytes;
        ret->cache_pages_evicted = cache.nodes_evicted;
        ret->cache_snapshots_evicted = cache.snapshots_evicted;
        ret->cache_bytes_max = cache.bytes_max;
        ret->leased_bytes = cache.leased_bytes;
        ret->unstored = en->tiers.ssd.arg ? cache.unstored : 0;
        ret->wished_bytes = cache.wished_bytes;
    }
}

/* For the search of slow replies; at most one line per step. */
static void log_losses(const struct engine *en)
{
    const struct engine_numbers *was = &en->publish.numbers, *is = &en->now;
    if (is->preemptions > was->preemptions)
        LOG_INFO("preempted", "model=%s seqs=%llu running=%u waiting=%u", en->name,
                 (ull)(is->preemptions - was->preemptions), is->running, is->waiting);
    if (is->cache_pages_evicted > was->cache_pages_evicted ||
        is->cache_snapshots_evicted > was->cache_snapshots_evicted)
        LOG_DEBUG("evicted", "model=%s pages=%llu snapshots=%llu", en->name,
                  (ull)(is->cache_pages_evicted - was->cache_pages_evicted),
                  (ull)(is->cache_snapshots_evicted - was->cache_snapshots_evicted));
}

void engine_publish(struct engine *en, bool idle)
{
    read_gauges(en, &en->now);
    en->now.idle = idle;
    log_losses(en);
    engine_leases_publish(en);
    engine_agents_publish(en);
    publish_write(&en->publish, &en->now, &en->jobs, &en->over, clock_now_ns());
}

/* ---- any thread ---- */

void engine_numbers(struct engine *en, struct engine_numbers *ret)
{
    publish_read(&en->publish, ret);
    /* A device that has failed computes nothing: that is not being stuck. */
    ret->progress_ns = engine_failure(en) ? 0 : atomic_load(&en->progress_ns);
}

uint32_t engine_jobs(struct engine *en, struct job_numbers *ret, uint32_t max)
{
    return publish_read_jobs(&en->publish, ret, max);
}

uint32_t engine_step_ids(struct engine *en, struct request_id *ret, uint32_t max)
{
    return publish_read_step(&en->publish, ret, max);
}
