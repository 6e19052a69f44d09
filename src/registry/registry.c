/* registry.c - the models, their leases and their waiters: bookkeeping under one lock. Work that takes
 * time is in registry_work.c. */
#include "registry/registry.h"

#include "registry/registry_state.h"

#include "base/bytes_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/slice.h"
#include "engine/engine.h"
#include "reclaim/guard.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REMEMBER_NS          (30 * NS_PER_S) /* a failed load is not tried again before */
#define REGISTRY_STACK_BYTES ((size_t)128 << 10)

const char *registry_state_name(enum model_state s)
{
    static const char *const names[] = {"unloaded", "loading", "ready", "draining", "failed"};
    ASSERT((size_t)s < COUNT_OF(names));
    return names[s];
}

/* ---- creation ---- */

uint64_t registry_stack_bytes(uint32_t models_max)
{
    uint64_t threads = MIN_OF(models_max, (uint32_t)(REGISTRY_LOADS_MAX + REGISTRY_HUNG_MAX));
    return thread_stack_bytes(REGISTRY_STACK_BYTES) + threads * thread_stack_bytes(MOVE_STACK_BYTES);
}

static int check_name(const struct registry *r, const struct model_settings *s, const char *name,
                      struct err *e)
{
    const int other = registry_find(r, slice_of(name));
    return other < 0 ? 0
                     : err_set(e, -EEXIST, "two models are called %s: %s and %s", name,
                               r->entries[other].known.dir, s->dir);
}

int registry_check_names(const struct registry *r, const struct model_settings *s, struct err *e)
{
    int error = check_name(r, s, s->id, e);
    for (uint32_t a = 0; error == 0 && a < s->alias_count; a++)
        error = check_name(r, s, s->aliases[a], e);
    return error;
}

static int start_thread(struct registry *r)
{
    struct charge charge = account_charge(r->opts.threads);
    int error = thread_stack_init(&r->stack, REGISTRY_STACK_BYTES, &charge);
    if (error == 0)
        error = thread_stack_start(&r->stack, registry_main, r, &r->thread);
    r->has_thread = error == 0;
    if (error == 0)
        pthread_setname_np(r->thread, "registry");
    return error;
}

static void init_sync(struct registry *r)
{
    clock_cond_init(&r->wake);
    clock_cond_init(&r->ended);
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->room, NULL);
}

static void init_entry(struct registry *r, uint32_t index, const struct model_settings *s)
{
    ASSERT(index < r->opts.models_max);
    struct entry *e = &r->entries[index];
    e->registry = r;
    e->known = e->now = *s;
    e->pinned = e->known.options.pinned;
    e->load_bytes = e->known.planned ? plan_load_bytes(&e->known.plan) : 0;
    e->held = e->known.preload;
    e->state = e->held ? MODEL_LOADING : MODEL_UNLOADED;
}

static uint64_t idle_bytes(void *arg, const struct domain *domain)
{
    return registry_idle_bytes(arg, domain);
}

static uint64_t free_idle(void *arg, const struct domain *domain, uint64_t bytes, const char *name)
{
    return registry_free_idle(arg, domain, bytes, name);
}

static int init_entries(struct registry *r, struct err *e)
{
    const struct registry_opts *o = &r->opts;
    int error = 0;
    r->entries = calloc(o->models_max, sizeof(*r->entries));
    if (!r->entries)
        return err_set(e, -ENOMEM, "no memory for the list of models");
    for (uint32_t i = 0; error == 0 && i < o->model_count; i++) {
        struct err twice;
        error = registry_check_names(r, &o->models[i], &twice);
        if (error < 0) {
            err_set(e, error, "%s. Give one of them another name with --alias NAME=DIR", twice.text);
            continue;
        }
        init_entry(r, i, &o->models[i]);
        atomic_store(&r->count, i + 1);
    }
    if (error < 0)
        atomic_store(&r->count, 0);
    return error;
}

int registry_create(const struct registry_opts *opts, struct registry **ret, struct err *e)
{
    ASSERT(opts->model_count > 0 && opts->model_count <= REGISTRY_MODELS_MAX && opts->plan);
    ASSERT(opts->models_max <= REGISTRY_MODELS_MAX);
    struct registry *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(e, -ENOMEM, "no memory for the list of models");
    r->opts = *opts;
    r->opts.models_max = MAX_OF(opts->model_count, opts->models_max);
    init_sync(r);
    int error = init_entries(r, e);
    if (error < 0) {
        registry_close(r);
        return error;
    }
    if (r->opts.guard)
        guard_set_models(r->opts.guard, &(struct guard_models){idle_bytes, free_idle, r});
    *ret = r;
    return 0;
}

/* Under the lock. */
static int add(struct registry *r, const struct model_settings *s, struct err *e)
{
    uint32_t count = registry_count(r);
    if (r->stopping)
        return err_set(e, -ESHUTDOWN, "the server is shutting down");
    if (count == r->opts.models_max)
        return err_set(e, -ENOSPC, "this server lists no more than %u models until it is started anew",
                       count);
    int error = registry_check_names(r, s, e);
    if (error < 0)
        return error;
    init_entry(r, count, s);
    atomic_store(&r->count, count + 1);
    registry_tell(r);
    return 0;
}

int registry_add(struct registry *r, const struct model_settings *settings, struct err *e)
{
    ASSERT(!settings->preload);
    pthread_mutex_lock(&r->lock);
    int error = add(r, settings, e);
    pthread_mutex_unlock(&r->lock);
    return error;
}

int registry_start(struct registry *r, struct err *e)
{
    ASSERT(!r->has_thread && !r->stopping);
    int error = start_thread(r);
    return error < 0 ? err_set(e, error, "the registry's thread could not be started") : 0;
}

/* ---- the end ---- */

void registry_end_by(struct registry *r, uint64_t ends_ns)
{
    atomic_store(&r->ends_ns, ends_ns);
}

void registry_stop(struct registry *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    for (uint32_t i = 0; i < registry_count(r); i++) {
        struct entry *e = &r->entries[i];
        e->held = false;
        atomic_store(&e->cancel, true);
        if ((e->state == MODEL_READY || e->state == MODEL_DRAINING) && !e->closing)
            engine_stop(e->loaded.engine);
    }
    registry_tell(r);
    pthread_mutex_unlock(&r->lock);
}

static uint32_t loads_now(const struct registry *r)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < registry_count(r); i++)
        count += r->entries[i].has_thread && r->entries[i].state == MODEL_LOADING;
    ASSERT(count <= REGISTRY_LOADS_MAX + REGISTRY_HUNG_MAX);
    return count;
}

static void log_left(const struct registry *r)
{
    for (uint32_t i = 0; i < registry_count(r); i++) {
        const struct entry *e = &r->entries[i];
        const char *step = atomic_load(&e->step);
        if (e->has_thread && e->state == MODEL_LOADING)
            LOG_WARN("load_left", "model=%s dir=%s step=\"%s\" still_s=%.1f: the process ends without it",
                     e->known.id, e->known.dir, step ? step : "",
                     (double)registry_still_ns(e, clock_now_ns()) / (double)NS_PER_S);
    }
}

bool registry_await_loads(struct registry *r, uint64_t ns)
{
    struct timespec until = clock_deadline(ns);
    int late = 0;
    if (!r)
        return true;
    pthread_mutex_lock(&r->lock);
    while (loads_now(r) > 0 && late == 0)
        late = pthread_cond_timedwait(&r->ended, &r->lock, &until);
    bool settled = loads_now(r) == 0;
    if (!settled)
        log_left(r);
    pthread_mutex_unlock(&r->lock);
    return settled;
}

static void close_entry(struct entry *e)
{
    ASSERT(e->leases == 0 && e->looks == 0 && e->waiters == 0 && !e->has_thread);
    if (e->state != MODEL_READY && e->state != MODEL_DRAINING)
        return;
    if (e->state == MODEL_READY)
        registry_drain(e, UNLOAD_SHUTDOWN, clock_now_ns());
    e->closing = true;
    registry_unload_now(e);
}

void registry_close_others(struct registry *r)
{
    if (r->opts.guard)
        guard_set_models(r->opts.guard, NULL);
    for (uint32_t i = registry_count(r); i-- > 0;) {
        struct entry *e = &r->entries[i];
        pthread_mutex_lock(&r->lock);
        bool mine = !e->has_thread && (e->state == MODEL_READY || e->state == MODEL_DRAINING);
        pthread_mutex_unlock(&r->lock);
        if (mine)
            close_entry(e);
    }
}

void registry_close(struct registry *r)
{
    if (!r)
        return;
    if (r->opts.guard)
        guard_set_models(r->opts.guard, NULL);
    if (r->entries)
        registry_stop(r);
    if (r->has_thread) {
        pthread_mutex_lock(&r->lock);
        r->quit = true;
        registry_wake(r);
        pthread_mutex_unlock(&r->lock);
        pthread_join(r->thread, NULL);
    }
    thread_stack_done(&r->stack);
    for (uint32_t i = r->entries ? registry_count(r) : 0; i-- > 0;)
        close_entry(&r->entries[i]);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->ended);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->room);
    free(r->entries);
    free(r);
}

/* ---- looking ---- */

uint32_t registry_models_max(const struct registry *r)
{
    return r->opts.models_max;
}

const struct model_settings *registry_settings(const struct registry *r, uint32_t index)
{
    ASSERT(index < registry_count(r));
    return &r->entries[index].known;
}

static struct entry *lock_entry(struct registry *r, uint32_t index)
{
    ASSERT(index < registry_count(r));
    pthread_mutex_lock(&r->lock);
    return &r->entries[index];
}

void registry_info(struct registry *r, uint32_t index, struct registry_info *ret)
{
    struct entry *e = lock_entry(r, index);
    ASSERT_OF(e->ends >= e->unloads && e->loads >= e->unloads, "%s", e->known.id);
    *ret = (struct registry_info){.state = e->state,
                                  .pinned = e->pinned,
                                  .leases = e->leases,
                                  .waiters = e->waiters + e->held,
                                  .bytes_done = atomic_load(&e->bytes_done),
                                  .bytes_total = atomic_load(&e->bytes_total),
                                  .needed_bytes = e->load_bytes,
                                  .load_ns = e->load_ns,
                                  .loads = e->loads,
                                  .unloads = e->unloads,
                                  .failures = e->failures,
                                  .unloaded_why = e->unloaded_why,
                                  .unloaded_for = e->unloaded_for ? e->unloaded_for->known.id : NULL,
                                  .unloaded_ns = clock_now_ns() - e->unloaded_ns,
                                  .lacks_memory = e->state == MODEL_FAILED && e->failure.code == -ENOMEM};
    if (e->state == MODEL_READY || (e->state == MODEL_DRAINING && !e->closing))
        loaded_model_bytes(&e->loaded, &ret->reserved_bytes, &ret->used_bytes);
    ret->step = atomic_load(&e->step);
    ret->still_ns = registry_still_ns(e, clock_now_ns());
    ret->waits = e->state == MODEL_LOADING && !e->has_thread;
    if (e->state == MODEL_READY && e->leases == 0)
        ret->idle_ns = clock_now_ns() - e->last_used_ns;
    if (e->state == MODEL_FAILED)
        snprintf(ret->reason, sizeof(ret->reason), "%s", e->failure.e.text);
    else if (e->state == MODEL_UNLOADED && e->returned.trouble[0])
        snprintf(ret->reason, sizeof(ret->reason), "the last unload reported: %s", e->returned.trouble);
    pthread_mutex_unlock(&r->lock);
}

/* ---- using ---- */

void registry_give_lease(struct entry *e, struct model_lease *ret)
{
    ASSERT(e->state == MODEL_READY && !e->closing && e->served.engine);
    e->leases++;
    *ret = (struct model_lease){e->registry, (uint32_t)(e - e->registry->entries), &e->served};
}

/* An engine whose device has failed refuses jobs until the registry closes it. */
bool registry_takes_requests(const struct entry *e)
{
    return e->state == MODEL_READY && engine_failure(e->loaded.engine) == 0;
}

int registry_lease(struct registry *r, uint32_t index, struct model_lease *ret)
{
    struct entry *e = lock_entry(r, index);
    bool ready = registry_takes_requests(e) && !r->stopping;
    if (ready)
        registry_give_lease(e, ret);
    pthread_mutex_unlock(&r->lock);
    return ready ? 0 : -EAGAIN;
}

void registry_end_lease(struct entry *e)
{
    ASSERT_OF(e->leases > 0 && !e->closing, "%s", e->known.id);
    ASSERT(e->state == MODEL_READY || e->state == MODEL_DRAINING);
    e->last_used_ns = clock_now_ns();
    if (--e->leases == 0)
        registry_wake(e->registry);
}

void registry_release(struct model_lease *l)
{
    struct registry *r = l->registry;
    if (!r)
        return;
    registry_end_lease(lock_entry(r, l->index));
    pthread_mutex_unlock(&r->lock);
    *l = (struct model_lease){0};
}

int registry_peek(struct registry *r, uint32_t index, struct model_lease *ret)
{
    struct entry *e = lock_entry(r, index);
    bool there = (e->state == MODEL_READY || e->state == MODEL_DRAINING) && !e->closing;
    if (there) {
        e->looks++;
        *ret = (struct model_lease){r, index, &e->served};
    }
    pthread_mutex_unlock(&r->lock);
    return there ? 0 : -EAGAIN;
}

void registry_release_peek(struct model_lease *l)
{
    struct registry *r = l->registry;
    if (!r)
        return;
    struct entry *e = lock_entry(r, l->index);
    ASSERT_OF(e->looks > 0 && !e->closing, "%s", e->known.id);
    if (--e->looks == 0 && e->state == MODEL_DRAINING)
        registry_wake(r);
    pthread_mutex_unlock(&r->lock);
    *l = (struct model_lease){0};
}

void registry_pin(struct registry *r, uint32_t index, bool pinned)
{
    lock_entry(r, index)->pinned = pinned;
    pthread_mutex_unlock(&r->lock);
}

bool registry_is_ending(struct registry *r, uint32_t index)
{
    bool ending = lock_entry(r, index)->ending;
    pthread_mutex_unlock(&r->lock);
    return ending;
}

/* ---- loading ---- */

static int shut_down(struct registry_failure *why)
{
    *why = (struct registry_failure){.code = -ESHUTDOWN};
    return err_set(&why->e, -ESHUTDOWN, "the server is shutting down");
}

/* Under the lock. A failure for lack of memory may be over, and others expire. */
static bool is_remembered(const struct entry *e)
{
    ASSERT(e->state == MODEL_FAILED && e->failure.code < 0);
    return e->failure.code != -ENOMEM && clock_now_ns() - e->failed_ns < REMEMBER_NS;
}

/* Whether the files have changed since it failed is asked by the load: disks may be slow, or not answer. */
void registry_begin_load(struct entry *e, bool operator)
{
    ASSERT(registry_is_wanted(e));
    if (operator)
        e->recheck = false;
    if (e->state != MODEL_FAILED && e->state != MODEL_UNLOADED)
        return;
    e->recheck = e->state == MODEL_FAILED && !operator&& is_remembered(e);
    e->state = MODEL_LOADING;
    registry_tell(e->registry);
}

int registry_want(struct registry *r, uint32_t index, bool operator, struct registry_failure * why)
{
    struct entry *e = lock_entry(r, index);
    int error = r->stopping ? shut_down(why) : 0;
    if (error == 0) {
        e->waiters++;
        if (operator)
            registry_device_tell(e);
        if (operator&& !registry_takes_requests(e)) {
            e->ordered = true;
            e->stopped = false;
        }
        if (!e->stopped)
            atomic_store(&e->cancel, false);
        registry_begin_load(e, operator);
    }
    pthread_mutex_unlock(&r->lock);
    return error;
}

/* When a failure that is remembered will be forgotten. */
static uint32_t retry_after_s(const struct entry *e)
{
    ASSERT(e->state == MODEL_FAILED && e->failure.code < 0);
    uint64_t age_ns = clock_now_ns() - e->failed_ns;
    return e->failure.code == -ENOMEM || age_ns >= REMEMBER_NS
               ? 0
               : (uint32_t)DIV_UP(REMEMBER_NS - age_ns, NS_PER_S);
}

int registry_poll(struct registry *r, uint32_t index, struct model_lease *ret, struct registry_failure *why)
{
    struct entry *e = lock_entry(r, index);
    int error = -EAGAIN;
    ASSERT(e->waiters > 0);
    if (r->stopping) {
        error = shut_down(why);
    } else if (registry_takes_requests(e)) {
        registry_give_lease(e, ret);
        error = 0;
    } else if (e->state == MODEL_FAILED) {
        *why = e->failure;
        why->retry_after_s = retry_after_s(e);
        error = why->code;
    }
    pthread_mutex_unlock(&r->lock);
    return error;
}

void registry_unwant(struct registry *r, uint32_t index)
{
    struct entry *e = lock_entry(r, index);
    ASSERT(e->waiters > 0);
    e->waiters--;
    if (!registry_is_wanted(e)) {
        atomic_store(&e->cancel, true);
        registry_wake(r);
    }
    pthread_mutex_unlock(&r->lock);
}

/* Under the lock. */
static struct registry_failure hanging(const struct entry *e)
{
    struct registry_failure why = {.code = -ETIMEDOUT};
    const char *step = atomic_load(&e->step);
    err_set(&why.e, why.code,
            "the load of %s made no progress for %llu s (--load-timeout) in its step \"%s\": reading a file "
            "in %s hangs",
            e->known.id, (ull)(registry_still_ns(e, clock_now_ns()) / NS_PER_S), step ? step : "",
            e->known.dir);
    return why;
}

int registry_started(struct registry *r, uint32_t *index, struct registry_failure *why)
{
    int error = 0;
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < registry_count(r) && (error == 0 || error == -EAGAIN); i++) {
        const struct entry *e = &r->entries[i];
        if (e->held && registry_hangs(e, clock_now_ns())) {
            *why = hanging(e);
            *index = i;
            error = why->code;
        } else if (e->held) {
            error = -EAGAIN;
        } else if (e->known.preload && e->state == MODEL_FAILED && e->loads == 0) {
            *why = e->failure;
            *index = i;
            error = why->code;
        }
    }
    pthread_mutex_unlock(&r->lock);
    return error;
}

/* ---- unloading ---- */

static int refuse_for_sessions(const struct entry *e, const struct engine_held *held, struct err *why)
{
    uint64_t now_ns = clock_now_ns();
    return err_set(why, -ETXTBSY,
                   "%s holds %u session%s (%s, %llu tokens), the last one for %llu s more. Unload it with "
                   "\"force\": true (plateau unload --force), which ends them.",
                   e->known.id, held->sessions, held->sessions > 1 ? "s" : "", bytes_text(held->bytes).text,
                   (ull)held->tokens, (ull)((held->until_ns - MIN_OF(now_ns, held->until_ns)) / NS_PER_S));
}

/* Under the lock. */
static int refuse_unload(const struct entry *e, bool force, const struct engine_held *held, struct err *why)
{
    const char *id = e->known.id;
    if (e->pinned && e->state != MODEL_LOADING)
        return err_set(why, -EPERM, "%s is pinned (--pin) and cannot be unloaded.", id);
    switch (e->state) {
    case MODEL_LOADING:
        return e->held ? err_set(why, -EBUSY, "%s is being loaded for the server's start.", id) : 0;
    case MODEL_UNLOADED:
    case MODEL_FAILED:
        return err_set(why, -EALREADY, "%s is not loaded.", id);
    case MODEL_READY:
        if (!force && held->sessions > 0)
            return refuse_for_sessions(e, held, why);
        break;
    case MODEL_DRAINING:
        break;
    }
    return 0;
}

int registry_unload(struct registry *r, uint32_t index, bool force, struct registry_unloading *ret,
                    struct err *why)
{
    struct entry *e = lock_entry(r, index);
    struct engine_held held = registry_held(e);
    int error = refuse_unload(e, force, &held, why);
    if (error == 0)
        e->ordered = false;
    if (error == 0 && e->state == MODEL_LOADING) {
        e->stopped = true;
        atomic_store(&e->cancel, true);
        registry_wake(r);
    }
    if (error == 0 && e->state == MODEL_READY) {
        registry_drain(e, UNLOAD_ADMIN, clock_now_ns());
        registry_tell(r);
    }
    *ret = (struct registry_unloading){e->leases, e->ends + 1, held};
    pthread_mutex_unlock(&r->lock);
    return error;
}

void registry_sessions_changed(struct registry *r)
{
    pthread_mutex_lock(&r->lock);
    registry_wake(r);
    pthread_mutex_unlock(&r->lock);
}

bool registry_unloaded(struct registry *r, uint32_t index, uint64_t ticket, struct registry_returned *ret)
{
    struct entry *e = lock_entry(r, index);
    ASSERT(ticket > 0 && ticket <= e->ends + 1);
    bool over = e->ends >= ticket;
    if (over)
        *ret = e->returned;
    pthread_mutex_unlock(&r->lock);
    return over;
}
