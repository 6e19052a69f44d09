/* registry_room.c - idle models make room for others; all that calls it waits for unloads. */
#include "registry/registry_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/slice.h"
#include "reclaim/victims.h"

_Static_assert(REGISTRY_MODELS_MAX <= VICTIMS_MAX, "all models may be victims");

/* Fewer bytes may be the driver's own, not other programs'. */
#define OTHERS_LEAST ((uint64_t)64 << 20)

uint64_t registry_lacks(const struct domain *domain, uint64_t bytes)
{
    struct domain_figures f;
    if (!domain_figures(domain, &f) || f.others_bytes < OTHERS_LEAST)
        return 0;
    return bytes > f.free_bytes ? bytes - f.free_bytes : 0;
}

/* Under the lock. `sessions`: also models that hold some, or prefixes of agents. */
static uint32_t list_victims(struct registry *r, const struct domain *domain, bool sessions,
                             struct victim *ret)
{
    uint32_t count = 0;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < registry_count(r); i++) {
        const struct entry *e = &r->entries[i];
        if (!registry_is_idle(e) || e->pinned || e->looks > 0)
            continue;
        struct engine_held held = registry_held(e);
        if (!sessions && (held.sessions > 0 || held.agents_until_ns > 0))
            continue;
        struct account *a = loaded_model_account(&e->loaded, domain);
        if (a)
            ret[count++] = (struct victim){.index = i,
                                           .bytes = account_numbers(a).reserved,
                                           .reload_ns = e->load_ns,
                                           .idle_ns = now_ns - e->last_used_ns};
    }
    ASSERT(count <= VICTIMS_MAX);
    return count;
}

uint64_t registry_idle_bytes(struct registry *r, const struct domain *domain)
{
    struct victim v[VICTIMS_MAX];
    uint64_t bytes = 0;
    pthread_mutex_lock(&r->lock);
    uint32_t count = list_victims(r, domain, false, v);
    for (uint32_t i = 0; i < count; i++)
        bytes += v[i].bytes;
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

/* Under the lock. Of a model that is in use or will be. */
static uint64_t busy_bytes(const struct entry *e, const struct domain *domain, bool *loads)
{
    if (e->pinned)
        return 0;
    if (e->state == MODEL_LOADING && atomic_load(&e->has_room) && !registry_hangs(e, clock_now_ns())) {
        *loads = true;
        return e->load_bytes;
    }
    if (e->state != MODEL_READY || registry_is_idle(e))
        return 0;
    struct account *a = loaded_model_account(&e->loaded, domain);
    return a ? account_numbers(a).reserved : 0;
}

uint64_t registry_busy_bytes(struct registry *r, const struct domain *domain, bool *loads)
{
    uint64_t bytes = 0;
    *loads = false;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < registry_count(r); i++)
        bytes += busy_bytes(&r->entries[i], domain, loads);
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

/* Bytes missing in the root before `bytes` more fit. */
static uint64_t missing(struct account *a, uint64_t bytes)
{
    struct account_numbers root = account_numbers(a);
    uint64_t room = root.limit > root.reserved ? root.limit - root.reserved : 0;
    return bytes > room ? bytes - room : 0;
}

uint64_t registry_free_idle(struct registry *r, const struct domain *domain, uint64_t bytes, const char *name)
{
    int index = name ? registry_find(r, slice_of(name)) : -1;
    struct victim v[VICTIMS_MAX];
    struct account *root = ledger_root_of(r->opts.ledger, domain);
    uint64_t before = account_numbers(root).reserved;
    pthread_mutex_lock(&r->lock);
    uint64_t needed = MAX_OF(missing(root, bytes), registry_lacks(domain, bytes));
    uint32_t count = victims_choose(v, list_victims(r, domain, false, v), needed);
    /* A load never ends a session; a machine without memory does. */
    if (count == 0 && !name)
        count = victims_choose(v, list_victims(r, domain, true, v), needed);
    for (uint32_t i = 0; i < count; i++) {
        struct entry *e = &r->entries[v[i].index];
        ASSERT_OF(registry_is_idle(e) && !e->pinned && e->looks == 0, "%s", e->known.id);
        registry_drain(e, name ? UNLOAD_MADE_ROOM : UNLOAD_PRESSURE, clock_now_ns());
        e->leaves_for = index < 0 ? NULL : &r->entries[index];
        e->closing = true;
    }
    pthread_mutex_unlock(&r->lock);
    for (uint32_t i = 0; i < count; i++)
        registry_unload_now(&r->entries[v[i].index]);
    uint64_t after = account_numbers(root).reserved;
    return before > after ? before - after : 0;
}
