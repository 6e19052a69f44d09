/* replicas.c - the costs of each replica, and the choice.
 *
 * A prefix draws a request to its replica, and other requests there push it away, both in tokens of prompt.
 * By prefixes alone all clients with one system prompt would meet at one GPU. A replica whose queue is full,
 * or that has no place for the request's agent, is chosen only if there is no other. An agent's requests go
 * to the replica with its place. */
#include "api/replicas.h"

#include "api/api_state.h"
#include "api/exchange.h"

#include "base/slice.h"
#include "cache/leases.h"
#include "engine/engine_numbers.h"
#include "engine/job_spec.h"
#include "registry/registry.h"

#include <errno.h>
#include <string.h>

#define FULL_COST ((uint64_t)1 << 40)

/* The replica with the session that the request continues; UINT32_MAX: none, or no session. */
static uint32_t find_session(const struct exchange *x)
{
    const struct gen_request *g = &x->request.gen;
    uint32_t ret = UINT32_MAX;
    struct lease_id id;
    struct lease_info info;
    memcpy(id.bytes, g->session_id, sizeof(id.bytes));
    for (uint32_t i = 0; i < x->replicas.count && g->has_session && ret == UINT32_MAX; i++) {
        struct model_lease look;
        if (registry_peek(x->api->opts.registry, x->replicas.first + i, &look) < 0)
            continue;
        if (engine_session(look.model->engine, &id, x->gen.tenant, &info))
            ret = i;
        registry_release_peek(&look);
    }
    return ret;
}

int replicas_lease(struct exchange *x)
{
    struct registry *r = x->api->opts.registry;
    uint64_t costs[REGISTRY_REPLICAS_MAX];
    uint32_t session = find_session(x);
    for (uint32_t i = 0; i < x->replicas.count; i++)
        costs[i] = session == UINT32_MAX || session == i ? 0 : FULL_COST;
    int error = registry_lease_replica(r, x->replicas, costs, &x->lease);
    if (x->replicas.count > 1)
        registry_bring_replicas(r, x->replicas);
    if (error == 0)
        x->model_index = (int)x->lease.index;
    return error;
}

/* Sets *has where the request's agent has its place there. */
static uint64_t cost_of(const struct exchange *x, uint32_t index, const struct job_spec *job, bool *has)
{
    struct model_lease look;
    struct engine_numbers n;
    struct engine_job_limits limits;
    if (registry_peek(x->api->opts.registry, index, &look) < 0)
        return FULL_COST;
    struct engine *en = look.model->engine;
    engine_numbers(en, &n);
    engine_job_limits(en, job, &limits);
    uint64_t cost = n.prompt_left + job->prompt_count - engine_cached_tokens(en, job);
    if (n.running + n.waiting >= limits.jobs_max)
        cost += FULL_COST;
    enum engine_agent agent = engine_agent(en, job->tenant, job->leases.agent);
    if (agent == ENGINE_AGENT_FULL)
        cost += FULL_COST;
    *has = agent == ENGINE_AGENT_HAS;
    registry_release_peek(&look);
    return cost;
}

void replicas_place(struct exchange *x)
{
    struct gen *g = &x->gen;
    uint64_t costs[REGISTRY_REPLICAS_MAX];
    uint32_t with_agent = UINT32_MAX;
    if (x->replicas.count < 2 || x->request.gen.has_session || g->prompt_count == 0)
        return;
    const struct job_spec job = {.prompt = g->prompts[0].ids,
                                 .prompt_count = g->prompts[0].count,
                                 .tenant = g->tenant,
                                 .cache_salt = slice_of(g->request->cache_salt),
                                 .images = g->prompts[0].images,
                                 .image_count = g->prompts[0].image_count,
                                 .leases.agent = g->request->agent};
    for (uint32_t i = 0; i < x->replicas.count; i++) {
        bool has = false;
        costs[i] = cost_of(x, x->replicas.first + i, &job, &has);
        with_agent = has ? i : with_agent;
    }
    for (uint32_t i = 0; i < x->replicas.count; i++)
        costs[i] += with_agent != UINT32_MAX && with_agent != i ? FULL_COST : 0;
    registry_move_lease(&x->lease, x->replicas, costs);
    g->model = x->lease.model;
    x->model_index = (int)x->lease.index;
}
