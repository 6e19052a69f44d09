/* publish.c - the engine's state for other threads: a copy under a lock, renewed after each step. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

static enum job_phase phase_of(const struct job *j)
{
    if (j->over || j->seq.paused)
        return JOB_PAUSED;
    switch (j->seq.phase) {
    case SCHED_FETCHING:
        return JOB_FETCHING;
    case SCHED_PREFILLING:
        return image_sched_is_awaited(j) ? JOB_ENCODING : JOB_PREFILLING;
    case SCHED_DECODING:
        return JOB_DECODING;
    case SCHED_PREEMPTED:
        return JOB_PREEMPTED;
    case SCHED_PARKED:
        return JOB_PARKED;
    default:
        return JOB_QUEUED;
    }
}

static struct job_numbers numbers_of(const struct engine *en, const struct job *j, uint64_t now_ns)
{
    bool state = j->seq.state != NONE;
    return (struct job_numbers){
        .id = stream_id(j->stream),
        .phase = phase_of(j),
        .prompt_tokens = j->prompt_count,
        .prompt_done = MIN_OF(j->seq.done, j->prompt_count),
        .completion_tokens = j->output_count,
        .cached_tokens = j->seq.cached,
        .max_tokens = j->max_tokens,
        .drafted_tokens = j->draft.drafted_tokens,
        .accepted_tokens = j->draft.accepted_tokens,
        .images = j->image_count,
        .images_done = image_sched_images_done(j),
        .age_ns = now_ns - j->arrival_ns,
        .image_bytes = j->image_bytes,
        .bytes = j->bytes + (uint64_t)j->seq.page_count * en->shape->page_bytes +
                 (state ? en->shape->state_bytes : 0),
    };
}

static bool has_place(const struct job *j)
{
    return j->seq.phase == SCHED_PREFILLING || j->seq.phase == SCHED_DECODING;
}

/* The jobs of the list with a place in the batch, or those without. */
static void list_jobs(struct engine *en, const struct list *jobs, bool placed, uint64_t now_ns)
{
    for (const struct list *it = jobs->next; it != jobs; it = it->next) {
        const struct job *j = LIST_ENTRY(it, const struct job, link);
        if (has_place(j) != placed)
            continue;
        ASSERT(en->jobs_published_count < en->places_max);
        en->jobs_published[en->jobs_published_count++] = numbers_of(en, j, now_ns);
    }
}

static struct engine_pool_numbers pool_numbers_of(const struct pool_numbers *n, size_t block_bytes)
{
    return (struct engine_pool_numbers){.active_bytes = n->active_bytes,
                                        .cached_bytes = n->cached_bytes,
                                        .peak_bytes = (uint64_t)n->peak * block_bytes,
                                        .limit_bytes = n->limit_bytes};
}

static void read_trim_gauges(const struct trim_numbers *n, struct engine_numbers *ret)
{
    ret->trims = n->trims;
    ret->trim_units = n->units;
    ret->trim_bytes = n->bytes;
    ret->trim_moves = n->moves;
    ret->trim_slices = n->slices;
    ret->trim_slice_ns = n->slice_ns;
    ret->trim_slice_max_ns = n->slice_max_ns;
}

static void read_gauges(struct engine *en, struct engine_numbers *ret)
{
    struct sched_numbers s;
    struct page_pool_numbers p;
    struct pool_numbers states = {0};
    ret->domain = account_domain(en->pools.all);
    sched_numbers(en->sched, &s);
    page_pool_numbers(en->pools.pages, &p);
    if (en->pools.states)
        state_pool_numbers(en->pools.states, &states);
    ret->running = s.running;
    ret->waiting = s.waiting;
    ret->preemptions = s.preemptions;
    ret->fetching = s.fetching;
    ret->fetches = s.fetches;
    ret->fetches_failed = s.fetches_failed;
    ret->pages_used = p.referenced;
    ret->pages_committed =
        (uint32_t)((p.blocks.active_bytes + p.blocks.cached_bytes) / en->shape->page_bytes);
    ret->pages_max = p.blocks.blocks_max;
    ret->states_used = states.taken;
    ret->kv = pool_numbers_of(&p.blocks, en->pools.page_bytes);
    ret->state = pool_numbers_of(&states, en->pools.state_bytes);
    pools_settle(&en->pools);
    image_sched_read_gauges(&en->image_sched, ret);
    ret->busy_ns = en->steps_ns + ret->encode_ns;
    ret->pending_trim_bytes = trim_pending_bytes(&en->trim, s.running);
    read_trim_gauges(&en->trim.now, ret);
    ret->units_recommitted = pools_recommitted(&en->pools);
    ret->reclaims = en->trim.now.reclaims + en->pools.reclaims;
    const struct drafting_numbers *d = &en->drafting.now;
    ret->drafts = d->drafts;
    ret->draft_tokens = d->draft_tokens;
    ret->accepted_tokens = d->accepted_tokens;
    memcpy(ret->accepted_at, d->accepted_at, sizeof(ret->accepted_at));
    if (en->pools.index) {
        struct prefix_numbers cache;
        prefix_index_numbers(en->pools.index, &cache);
        ret->cache_pages = cache.nodes;
        ret->cache_snapshots = cache.snapshots;
        ret->cache_bytes = cache.bytes;
        ret->cache_pages_evicted = cache.nodes_evicted;
        ret->cache_snapshots_evicted = cache.snapshots_evicted;
        ret->cache_bytes_max = cache.bytes_max;
    }
}

/* For the search of slow replies; at most one line per step. */
static void log_losses(const struct engine *en)
{
    const struct engine_numbers *was = &en->published, *is = &en->now;
    if (is->preemptions > was->preemptions)
        LOG_INFO("preempted", "model=%s seqs=%llu running=%u waiting=%u", en->name,
                 (unsigned long long)(is->preemptions - was->preemptions), is->running, is->waiting);
    if (is->cache_pages_evicted > was->cache_pages_evicted ||
        is->cache_snapshots_evicted > was->cache_snapshots_evicted)
        LOG_DEBUG("evicted", "model=%s pages=%llu snapshots=%llu", en->name,
                  (unsigned long long)(is->cache_pages_evicted - was->cache_pages_evicted),
                  (unsigned long long)(is->cache_snapshots_evicted - was->cache_snapshots_evicted));
}

void engine_publish(struct engine *en, bool idle)
{
    uint64_t now_ns = clock_now_ns();
    read_gauges(en, &en->now);
    en->now.idle = idle;
    log_losses(en);
    pthread_mutex_lock(&en->lock);
    en->published = en->now;
    en->jobs_published_count = 0;
    list_jobs(en, &en->jobs, true, now_ns);
    list_jobs(en, &en->jobs, false, now_ns);
    list_jobs(en, &en->over, false, now_ns);
    pthread_mutex_unlock(&en->lock);
}

void engine_numbers(struct engine *en, struct engine_numbers *ret)
{
    pthread_mutex_lock(&en->lock);
    *ret = en->published;
    pthread_mutex_unlock(&en->lock);
    /* A device that has failed computes nothing: that is not being stuck. */
    ret->progress_ns = engine_failure(en) ? 0 : atomic_load(&en->progress_ns);
}

void engine_publish_step(struct engine *en, const struct sched_plan *plan)
{
    pthread_mutex_lock(&en->lock);
    en->step_id_count = plan->seq_count;
    for (uint32_t i = 0; i < plan->seq_count; i++)
        en->step_ids[i] = stream_id(job_of(plan->seqs[i].seq)->stream);
    pthread_mutex_unlock(&en->lock);
}

uint32_t engine_step_ids(struct engine *en, struct request_id *ret, uint32_t max)
{
    pthread_mutex_lock(&en->lock);
    uint32_t count = en->step_id_count;
    for (uint32_t i = 0; i < MIN_OF(count, max); i++)
        ret[i] = en->step_ids[i];
    pthread_mutex_unlock(&en->lock);
    return count;
}

uint32_t engine_jobs(struct engine *en, struct job_numbers *ret, uint32_t max)
{
    pthread_mutex_lock(&en->lock);
    uint32_t count = en->jobs_published_count;
    if (MIN_OF(count, max) > 0)
        memcpy(ret, en->jobs_published, MIN_OF(count, max) * sizeof(*ret));
    pthread_mutex_unlock(&en->lock);
    return count;
}
