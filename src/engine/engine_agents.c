/* engine_agents.c - places of agents for jobs.
 *
 * A job enters its agent's place before it computes anything, and leaves it when it ends. The place holds
 * the computed prefix while the job's sequence still references it, and once more after the sequence has left
 * a snapshot at its end. */
#include "engine/engine_numbers.h"
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "cache/agents.h"

#include <stdio.h>

static struct agent_id agent_of(const struct job *j)
{
    return (struct agent_id){j->seq.tenant_id, j->leases.agent};
}

static void say_full(const struct engine *en, struct job *j, uint64_t wait_ns)
{
    ASSERT(en->pools.agents);
    struct agents_numbers n;
    agents_numbers(en->pools.agents, &n);
    uint32_t wait_s = (uint32_t)MIN_OF(DIV_UP(wait_ns, NS_PER_S), (uint64_t)UINT32_MAX);
    j->finish.retry_after_s = MAX_OF(wait_s, 1u);
    snprintf(j->finish.error, sizeof(j->finish.error),
             "All %u places of agents on %s are taken (--agents), and requests of %u of them run. The first "
             "place is free in %u s if its agent rests. Each agent's prefix keeps up to %u tokens.",
             n.count_max, en->name, n.running, j->finish.retry_after_s, n.tokens_max);
}

bool engine_agents_enter(struct engine *en, struct job *j)
{
    struct agent_id id = agent_of(j);
    uint64_t now_ns = clock_now_ns(), free_ns = 0;
    ASSERT(!j->in_place);
    if (!en->pools.agents || id.key == 0)
        return true;
    /* A place may be due that no rest of the engine has freed yet. */
    while (agents_expire(en->pools.agents, now_ns))
        ;
    if (agents_enter(en->pools.agents, &id, now_ns, &free_ns) < 0) {
        say_full(en, j, free_ns - now_ns);
        return false;
    }
    j->in_place = true;
    if (j->leases.session == JOB_OPENS_SESSION)
        agents_keep(en->pools.agents, &id, now_ns + j->leases.ttl_s * NS_PER_S);
    return true;
}

void engine_agents_hold(struct engine *en, struct job *j)
{
    ASSERT(!j->in_place || en->pools.agents);
    struct agent_id id = agent_of(j);
    if (j->in_place && j->keys && !j->prompt_logprobs)
        agents_hold(en->pools.agents, &id, pools_prefix_end(&en->pools, j->keys, j->seq.key_count));
}

void engine_agents_leave(struct engine *en, struct job *j)
{
    struct agent_id id = agent_of(j);
    if (!j->in_place)
        return;
    engine_agents_hold(en, j);
    agents_leave(en->pools.agents, &id, clock_now_ns(), j->admitted_ns > 0);
    j->in_place = false;
}

void engine_agents_obey(struct engine *en, const struct engine_session *s)
{
    struct agent_id id = {s->is.tenant, job_session_agent(s->is.id.bytes)};
    ASSERT(s->ended || s->extended);
    if (!en->pools.agents)
        return;
    if (s->ended)
        (void)agents_end(en->pools.agents, &id);
    else
        agents_keep(en->pools.agents, &id, s->is.deadline_ns);
}

void engine_agents_publish(struct engine *en)
{
    struct agents_numbers n;
    if (!en->pools.agents)
        return;
    agents_numbers(en->pools.agents, &n);
    en->now.agents = n.count;
    en->now.agents_running = n.running;
    en->now.agents_max = n.count_max;
    en->now.agent_tokens_max = n.tokens_max;
    en->now.agent_tokens = n.tokens;
    en->now.agents_taken = n.taken;
    en->now.agents_refused = n.refused;
    en->now.agents_expired = n.expired;
    pthread_mutex_lock(&en->leases.lock);
    en->leases.agents = agents_list(en->pools.agents, en->leases.agent_ids);
    en->leases.agents_until_ns = n.until_ns;
    pthread_mutex_unlock(&en->leases.lock);
}
