/* registry_state.c - the number and names of models, the end of an unload, and messages about changes of a
 * state. */
#include "registry/registry_state.h"

#include "registry/model_settings.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/slice.h"
#include "engine/engine.h"
#include "memory/footprint.h"

uint32_t registry_count(const struct registry *r)
{
    uint32_t count = atomic_load(&r->count);
    ASSERT(count <= r->opts.models_max);
    return count;
}

static bool is_called(const struct model_settings *s, struct slice name)
{
    if (slice_eq(slice_of(s->id), name))
        return true;
    for (uint32_t i = 0; i < s->alias_count; i++)
        if (slice_eq(slice_of(s->aliases[i]), name))
            return true;
    return false;
}

int registry_find(const struct registry *r, struct slice name)
{
    for (uint32_t i = 0; i < registry_count(r); i++)
        if (!name.ptr || is_called(&r->entries[i].known, name))
            return (int)i;
    return -1;
}

void registry_wake(struct registry *r)
{
    r->poked = true;
    pthread_cond_signal(&r->wake);
}

void registry_tell(struct registry *r)
{
    registry_wake(r);
    if (r->opts.changed)
        r->opts.changed(r->opts.arg);
}

static uint64_t own_memory(void)
{
    struct footprint f;
    footprint_read(&f);
    return f.rss_anon_bytes + f.rss_shmem_bytes + f.swap_bytes;
}

void registry_drain(struct entry *e, enum unload_reason why, uint64_t now_ns)
{
    ASSERT(e->state == MODEL_READY && why != UNLOAD_NONE);
    e->state = MODEL_DRAINING;
    e->drain_until_ns = now_ns + e->registry->opts.drain_ns;
    e->leaves = why;
    e->leaves_for = NULL;
}

struct engine_held registry_held(const struct entry *e)
{
    if ((e->state != MODEL_READY && e->state != MODEL_DRAINING) || e->closing)
        return (struct engine_held){0};
    struct engine_held h = engine_held(e->loaded.engine);
    ASSERT((h.sessions > 0) == (h.until_ns > 0));
    return h;
}

const char *registry_unload_name(enum unload_reason why)
{
    static const char *const names[] = {"none",     "admin",       "ttl",     "made_room",
                                        "pressure", "device_lost", "shutdown"};
    ASSERT((size_t)why < COUNT_OF(names));
    return names[why];
}

void registry_unload_now(struct entry *e)
{
    struct registry *r = e->registry;
    struct registry_returned returned = {0};
    uint64_t began_ns = clock_now_ns(), before = own_memory();
    uint64_t used;
    ASSERT_OF(e->closing && e->leases == 0 && e->looks == 0, "%s", e->known.id);
    loaded_model_bytes(&e->loaded, &returned.account_bytes, &used);
    loaded_model_close(&e->loaded, r->opts.faults, returned.trouble);
    footprint_purge_heap();
    uint64_t after = own_memory();
    returned.bytes = before > after ? before - after : 0;
    LOG_INFO("model_unloaded",
             "model=%s reason=%s for=%s bytes_returned=%llu account_bytes=%llu ms=%llu trouble=\"%s\"",
             e->known.id, registry_unload_name(e->leaves), e->leaves_for ? e->leaves_for->known.id : "-",
             (ull)returned.bytes, (ull)returned.account_bytes, (ull)((clock_now_ns() - began_ns) / NS_PER_MS),
             returned.trouble);
    pthread_mutex_lock(&r->lock);
    e->returned = returned;
    e->closing = e->ending = false;
    e->unloads++;
    e->ends++;
    e->unloaded_why = e->leaves;
    e->unloaded_for = e->leaves_for;
    e->unloaded_ns = clock_now_ns();
    e->state = registry_is_wanted(e) ? MODEL_LOADING : MODEL_UNLOADED;
    registry_tell(r);
    pthread_mutex_unlock(&r->lock);
}
