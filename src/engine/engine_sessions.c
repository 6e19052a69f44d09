/* engine_sessions.c - the sessions of an engine, for any thread: reads, and orders that the engine obeys. */
#include "engine/engine_numbers.h"
#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "cache/agents.h"

#include <string.h>

struct engine_held engine_held(struct engine *en)
{
    struct engine_held ret = {0};
    uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&en->leases.lock);
    for (uint32_t i = 0; i < en->leases.count; i++) {
        const struct engine_session *s = &en->leases.list[i];
        if (s->ended || s->is.deadline_ns <= now_ns)
            continue;
        ret.sessions++;
        ret.tokens += s->is.tokens;
        ret.until_ns = MAX_OF(ret.until_ns, s->is.deadline_ns);
    }
    if (en->leases.agents_until_ns > now_ns) {
        ret.agents = en->leases.agents;
        ret.agents_until_ns = en->leases.agents_until_ns;
    }
    ret.bytes = ret.sessions > 0 ? en->leases.bytes : 0;
    pthread_mutex_unlock(&en->leases.lock);
    return ret;
}

enum engine_agent engine_agent(struct engine *en, uint64_t tenant, uint64_t key)
{
    enum engine_agent ret = ENGINE_AGENT_FITS;
    if (key == 0 || !en->leases.agent_ids)
        return ret;
    pthread_mutex_lock(&en->leases.lock);
    if (en->leases.agents == en->opts.agents)
        ret = ENGINE_AGENT_FULL;
    for (uint32_t i = 0; i < en->leases.agents; i++)
        if (en->leases.agent_ids[i].tenant == tenant && en->leases.agent_ids[i].key == key)
            ret = ENGINE_AGENT_HAS;
    pthread_mutex_unlock(&en->leases.lock);
    return ret;
}

/* Under the lock. */
static struct engine_session *find(struct engine *en, const struct lease_id *id, uint64_t tenant)
{
    for (uint32_t i = 0; i < en->leases.count; i++) {
        struct engine_session *s = &en->leases.list[i];
        if (!s->ended && s->is.tenant == tenant && memcmp(&s->is.id, id, sizeof(*id)) == 0)
            return s;
    }
    return NULL;
}

bool engine_session(struct engine *en, const struct lease_id *id, uint64_t tenant, struct lease_info *ret)
{
    pthread_mutex_lock(&en->leases.lock);
    const struct engine_session *s = find(en, id, tenant);
    if (s)
        *ret = s->is;
    pthread_mutex_unlock(&en->leases.lock);
    return s != NULL;
}

bool engine_session_set(struct engine *en, const struct lease_id *id, uint64_t tenant, uint64_t deadline_ns)
{
    pthread_mutex_lock(&en->leases.lock);
    struct engine_session *s = find(en, id, tenant);
    if (s) {
        s->ended = deadline_ns == 0;
        s->extended = deadline_ns > 0;
        s->is.deadline_ns = deadline_ns;
        en->leases.edited = true;
    }
    pthread_mutex_unlock(&en->leases.lock);
    if (s)
        engine_wake(en);
    return s != NULL;
}
