/* registry_replicas.c - which replica of a model a request goes to, and which come back.
 *
 * Replicas are entries as all others, so loads, drains, lost devices and idle times are each one's own. A
 * choice and its lease are one step under the lock: of requests that come together each sees the ones before
 * it. */
#include "registry/registry_state.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

#define RETRY_NS (30 * NS_PER_S)

struct registry_replicas registry_replicas(const struct registry *r, uint32_t index)
{
    const struct model_settings *s = registry_settings(r, index);
    uint32_t count = s->replica == 0 ? MAX_OF(s->replica_count, 1u) : 1;
    ASSERT(count <= REGISTRY_REPLICAS_MAX);
    /* Later models get their replicas one after the other. */
    return (struct registry_replicas){index, MIN_OF(count, registry_count(r) - index)};
}

uint32_t registry_first_replica(const struct registry *r, uint32_t index)
{
    uint32_t replica = registry_settings(r, index)->replica;
    ASSERT(replica <= index);
    return index - replica;
}

/* Under the lock. NULL: none takes requests. `own`: an entry with a lease that does not count; NULL: none. */
static struct entry *choose(const struct registry *r, struct registry_replicas of, const uint64_t *costs,
                            const struct entry *own)
{
    struct entry *best = NULL;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < of.count && !r->stopping; i++) {
        struct entry *e = &r->entries[of.first + i];
        if (!registry_takes_requests(e))
            continue;
        uint64_t cost = (costs ? costs[i] : 0) + (e->leases - (e == own)) * (uint64_t)REGISTRY_LEASE_TOKENS;
        if (cost < least) {
            best = e;
            least = cost;
        }
    }
    return best;
}

int registry_lease_replica(struct registry *r, struct registry_replicas of, const uint64_t *costs,
                           struct model_lease *ret)
{
    pthread_mutex_lock(&r->lock);
    struct entry *e = choose(r, of, costs, NULL);
    if (e)
        registry_give_lease(e, ret);
    pthread_mutex_unlock(&r->lock);
    return e ? 0 : -EAGAIN;
}

void registry_move_lease(struct model_lease *l, struct registry_replicas of, const uint64_t *costs)
{
    struct registry *r = l->registry;
    ASSERT(r && l->index - of.first < of.count);
    pthread_mutex_lock(&r->lock);
    struct entry *own = &r->entries[l->index], *e = choose(r, of, costs, own);
    if (e && e != own) {
        registry_end_lease(own);
        registry_give_lease(e, l);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Under the lock. */
static bool comes_back(const struct entry *e, bool crowded)
{
    bool gone = e->unloaded_why == UNLOAD_NONE || e->unloaded_why == UNLOAD_DEVICE_LOST;
    if (e->state == MODEL_FAILED)
        return clock_now_ns() - e->failed_ns >= RETRY_NS;
    return e->state == MODEL_UNLOADED && (gone || crowded);
}

/* Under the lock. Where none takes requests, the one that loads for them shows whether it is enough. */
static bool are_crowded(const struct registry *r, struct registry_replicas of)
{
    uint32_t taking = 0, crowded = 0;
    for (uint32_t i = 0; i < of.count; i++) {
        const struct entry *e = &r->entries[of.first + i];
        const bool takes = registry_takes_requests(e);
        taking += takes;
        crowded += takes && e->leases > e->now.plan.seqs;
    }
    ASSERT(crowded <= taking);
    return taking > 0 && crowded == taking;
}

void registry_bring_replicas(struct registry *r, struct registry_replicas of)
{
    pthread_mutex_lock(&r->lock);
    const bool crowded = are_crowded(r, of);
    for (uint32_t i = 0; i < of.count && !r->stopping; i++) {
        struct entry *e = &r->entries[of.first + i];
        if (!comes_back(e, crowded))
            continue;
        e->ordered = true;
        e->stopped = false;
        atomic_store(&e->cancel, false);
        registry_begin_load(e, false);
    }
    pthread_mutex_unlock(&r->lock);
}
