/* api_state.c - what every file of api/ may ask: the state of the server and the numbers of its engines. It
 * calls no other file of api/ but reject.c. */
#include "api/api_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "constraint/grammar_cache.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "gen/reject.h"
#include "registry/model_settings.h"

#include <stdio.h>

/* ---- models and their engines ---- */

const char *api_model_id(const struct api *a, uint32_t index)
{
    return registry_settings(a->opts.registry, index)->id;
}

bool api_is_replica(const struct api *a, uint32_t index)
{
    return registry_first_replica(a->opts.registry, index) != index;
}

uint32_t api_loaded_replica(struct api *a, uint32_t index)
{
    struct registry_replicas of = registry_replicas(a->opts.registry, index);
    for (uint32_t i = of.first; i < of.first + of.count; i++) {
        struct registry_info info;
        registry_info(a->opts.registry, i, &info);
        if (info.state == MODEL_READY)
            return i;
    }
    return index;
}

bool api_engine_numbers(struct api *a, uint32_t index, struct engine_numbers *ret)
{
    struct model_lease look;
    ASSERT(index < api_model_count(a));
    *ret = (struct engine_numbers){.idle = true};
    if (registry_peek(a->opts.registry, index, &look) < 0)
        return false;
    engine_numbers(look.model->engine, ret);
    registry_release_peek(&look);
    return true;
}

void api_reclaim(struct api *a)
{
    struct model_lease look;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        if (registry_peek(a->opts.registry, i, &look) < 0)
            continue;
        engine_reclaim(look.model->engine);
        registry_release_peek(&look);
    }
}

uint32_t api_clear_grammars(struct api *a, uint64_t *bytes)
{
    struct model_lease look;
    uint32_t entries = 0;
    *bytes = 0;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        uint64_t more = 0;
        if (registry_peek(a->opts.registry, i, &look) < 0)
            continue;
        if (look.model->grammars)
            entries += grammar_cache_clear(look.model->grammars, &more);
        registry_release_peek(&look);
        *bytes += more;
    }
    return entries;
}

bool api_is_stuck(struct api *a, uint32_t model, uint64_t *silent_ns)
{
    struct engine_numbers n;
    uint64_t now_ns = clock_now_ns();
    api_engine_numbers(a, model, &n);
    *silent_ns = n.progress_ns > 0 && now_ns > n.progress_ns ? now_ns - n.progress_ns : 0;
    return *silent_ns > a->live.stuck_s * NS_PER_S;
}

const char *api_stuck_model(struct api *a)
{
    uint64_t silent_ns;
    for (uint32_t i = 0; i < api_model_count(a); i++)
        if (api_is_stuck(a, i, &silent_ns))
            return api_model_id(a, i);
    return NULL;
}

/* ---- the server's state ---- */

enum api_state api_state_of(struct api *a)
{
    return api_state_now(a);
}

void api_set_state(struct api *a, enum api_state s, const char *reason)
{
    pthread_mutex_lock(&a->lock);
    snprintf(a->reason, sizeof(a->reason), "%s", reason ? reason : "");
    pthread_mutex_unlock(&a->lock);
    atomic_store(&a->state, (int)s);
}

void api_drain(struct api *a, uint64_t ends_ns)
{
    atomic_store(&a->drain_ends_ns, ends_ns);
    api_set_state(a, API_DRAINING, NULL);
}

/* Whole seconds until the drain ends, at least 1: then another process may answer. */
static uint32_t drain_left_s(const struct api *a)
{
    uint64_t ends = atomic_load(&a->drain_ends_ns), now = clock_now_ns();
    return ends > now ? (uint32_t)MIN_OF((ends - now + NS_PER_S - 1) / NS_PER_S, UINT32_MAX) : 1;
}

void api_copy_reason(struct api *a, char ret[API_REASON_BYTES])
{
    pthread_mutex_lock(&a->lock);
    snprintf(ret, API_REASON_BYTES, "%s", a->reason);
    pthread_mutex_unlock(&a->lock);
}

struct api_progress api_progress(struct api *a)
{
    struct api_progress p = {0};
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        struct registry_info info;
        if (!registry_settings(a->opts.registry, i)->preload)
            continue;
        registry_info(a->opts.registry, i, &info);
        p.done += MIN_OF(info.bytes_done, info.bytes_total);
        p.total += info.bytes_total;
    }
    p.part = p.total > 0 ? (double)p.done / (double)p.total : 0;
    return p;
}

bool api_is_ready(struct api *a, struct reject *why)
{
    char reason[API_REASON_BYTES];
    api_copy_reason(a, reason);
    switch (api_state_now(a)) {
    case API_READY:
    case API_LEAVING:
        return true;
    case API_LOADING:
        why->retry_after_s = 1;
        return reject_set(why, REJECT_MODEL_LOADING, NULL,
                          "The model is still loading (%.0f %%). GET /health says when it is ready.",
                          100 * api_progress(a).part);
    case API_DRAINING:
        why->retry_after_s = drain_left_s(a);
        return reason[0]
                   ? reject_set(why, REJECT_SHUTTING_DOWN, NULL, "The server is shutting down: %s", reason)
                   : reject_as(why, REJECT_SHUTTING_DOWN);
    case API_FAILED:
        break;
    }
    return reject_set(why, REJECT_MODEL_FAILED, NULL, "The model could not be loaded%s%s",
                      reason[0] ? ": " : ".", reason);
}
