/* registry_work.c - loads and unloads on threads of their own, and the registry's thread, which starts and
 * joins them and watches times.
 *
 * A thread for each move, and not one for all: a disk that hangs under one model, or an engine that does
 * not end its step, delays that model only. The thread of a move is the only one to touch the entry's
 * fields outside the lock. The states name it: loading, its load; draining and closing, its unload. A move
 * stores its result under the lock at its end; the registry's thread joins it. That thread polls nothing:
 * it sleeps until it is woken or a time comes. */
#include "registry/registry_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "compute/device.h"
#include "engine/engine.h"
#include "memory/footprint.h"
#include "reclaim/guard.h"
#include "weights/model_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* A load waits so long for room that busy models take, and looks that often. */
#define ROOM_WAIT_NS   (2 * NS_PER_S)
#define ROOM_LOOK_NS   (10 * NS_PER_MS)
#define LOAD_AS_BEFORE (-EALREADY) /* the remembered failure stands */

/* ---- whether a model's files have changed ---- */

static uint64_t hash_of(int dir_fd, const char *name)
{
    struct stat st;
    uint64_t numbers[4] = {hash_bytes(name, strlen(name))};
    if (fstatat(dir_fd, name, &st, 0) == 0) {
        numbers[1] = (uint64_t)st.st_size;
        numbers[2] = (uint64_t)st.st_mtim.tv_sec * 1000000000 + (uint64_t)st.st_mtim.tv_nsec;
        numbers[3] = (uint64_t)st.st_ino;
    }
    return hash_bytes(numbers, sizeof(numbers));
}

/* Entries are summed, so the order in which the system lists them does not matter. A model may be a file. */
static struct file_stamp file_stamp_of(const char *dir)
{
    struct file_stamp s = {0};
    struct stat st;
    DIR *d = stat(dir, &st) == 0 && S_ISDIR(st.st_mode) ? opendir(dir) : NULL;
    if (!d)
        s.hash = hash_of(AT_FDCWD, dir);
    for (struct dirent *entry = d ? readdir(d) : NULL; entry; entry = readdir(d))
        if (entry->d_name[0] != '.')
            s.hash += hash_of(dirfd(d), entry->d_name) | 1;
    if (d)
        closedir(d);
    return s;
}

/* ---- a load, on its thread ---- */

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct entry *e = arg;
    struct registry *r = e->registry;
    atomic_store(&e->bytes_total, total);
    atomic_store(&e->bytes_done, done);
    if (r->opts.progress)
        r->opts.progress(r->opts.arg, (uint32_t)(e - r->entries), done, total);
    pace_next(&e->pace, registry_device_of(e)->ops->is_busy(registry_device_of(e)));
    atomic_store(&e->moved_ns, clock_now_ns());
    return atomic_load(&e->cancel);
}

static void on_step(void *arg, const char *name)
{
    struct entry *e = arg;
    pace_end(&e->pace);
    atomic_store(&e->step, name);
    atomic_store(&e->moved_ns, clock_now_ns());
}

/* On the engine's thread; the registry's unloads the model. */
static void on_failure(void *arg, int error)
{
    struct entry *e = arg;
    ASSERT(error < 0);
    pthread_mutex_lock(&e->registry->lock);
    registry_wake(e->registry);
    pthread_mutex_unlock(&e->registry->lock);
}

static int refuse_room(const struct entry *e, struct account *account, uint64_t bytes, uint64_t idle_bytes,
                       struct err *why)
{
    struct account_numbers root = account_numbers(account_root(account));
    char holder[DOMAIN_HOLDER_BYTES];
    return err_set(why, -ENOMEM,
                   "There is no memory to load %s: it needs %llu bytes, with which %s would hold "
                   "%llu, and the ceiling (%s) is %llu. It holds %llu now, %llu of it in idle "
                   "models that may be unloaded. Unload a model, or raise %s.",
                   e->known.id, (ull)bytes, domain_holder(root.domain, holder), (ull)(root.reserved + bytes),
                   root.name, (ull)root.limit, (ull)root.reserved, (ull)idle_bytes,
                   domain_limit_option(root.domain));
}

struct demand {
    struct entry *entry;
    struct account *account;
    uint64_t bytes;
    uint64_t until_ns; /* it waits for requests of other models */
};

/* Others that look for room meanwhile take the load for one that has it: they look again. */
static int set_floor(struct entry *e, struct account *account, uint64_t bytes)
{
    atomic_store(&e->has_room, true);
    int r = account_set_floor(account, bytes);
    if (r < 0)
        atomic_store(&e->has_room, false);
    return r;
}

static uint64_t lacks(void *arg)
{
    const struct demand *d = arg;
    return registry_lacks(account_domain(d->account), d->bytes);
}

static int take(void *arg)
{
    const struct demand *d = arg;
    return lacks(arg) > 0 ? -ENOMEM : set_floor(d->entry, d->account, d->bytes);
}

static bool is_cancelled(void *arg)
{
    const struct demand *d = arg;
    return atomic_load(&d->entry->cancel);
}

/* Whether models that requests use would make room, and there is time: short requests leave them idle soon.
 * The time begins anew while one loads. */
static bool waits_for_busy(void *arg, const struct guard_refusal *why)
{
    struct demand *d = arg;
    bool loads;
    uint64_t busy = registry_busy_bytes(d->entry->registry, why->domain, &loads), now_ns = clock_now_ns(),
             lacks = why->projected_bytes - MIN_OF(why->ceiling_bytes, why->projected_bytes);
    atomic_store(&d->entry->has_room, false); /* two loads that wait do not wait for each other */
    if (loads)
        d->until_ns = now_ns + ROOM_WAIT_NS;
    if (now_ns >= d->until_ns || why->free_bytes + why->cached_bytes + why->idle_bytes + busy < lacks)
        return false;
    atomic_store(&d->entry->moved_ns, now_ns); /* it does not hang */
    struct timespec t = {.tv_nsec = ROOM_LOOK_NS};
    nanosleep(&t, NULL);
    return true;
}

/* The accounts may have room that other programs have taken since the device was opened. */
static int check_others(const struct entry *e, const struct domain *domain, uint64_t bytes, struct err *why)
{
    struct domain_figures f;
    if (registry_lacks(domain, bytes) == 0 || !domain_figures(domain, &f))
        return 0;
    return err_set(
        why, -ENOMEM,
        "There is no memory to load %s: it needs %llu bytes of device %s, and of its %llu bytes %llu "
        "are free. Other programs hold %llu. Load it again when they have given memory back, or unload a "
        "model.",
        e->known.id, (ull)bytes, domain->name, (ull)f.total_bytes, (ull)f.free_bytes, (ull)f.others_bytes);
}

static int ask_guard(struct demand *d, struct err *why)
{
    struct guard_refusal refusal;
    struct guard_wish w = {.name = d->entry->known.id,
                           .bytes = d->bytes,
                           .account = d->account,
                           .take = take,
                           .lacks = lacks,
                           .cancelled = is_cancelled,
                           .waits = waits_for_busy,
                           .arg = d};
    uint64_t began_ns = clock_now_ns();
    int error = guard_reclaim(d->entry->registry->opts.guard, &w, &refusal);
    atomic_fetch_add(&d->entry->waited_ns, clock_now_ns() - began_ns);
    if (error != -ENOMEM || check_others(d->entry, account_domain(d->account), d->bytes, why) < 0)
        return error;
    return err_set(why, error, "%s", refusal.text);
}

/* Without a guard only idle models make room. */
static int ask_idle(struct demand *d, struct err *why)
{
    struct entry *e = d->entry;
    struct registry *r = e->registry;
    const struct domain *domain = account_domain(d->account);
    pthread_mutex_lock(&r->room);
    registry_free_idle(r, domain, d->bytes, e->known.id);
    int error = take(d);
    if (error < 0 && check_others(e, domain, d->bytes, why) == 0)
        refuse_room(e, d->account, d->bytes, registry_idle_bytes(r, domain), why);
    pthread_mutex_unlock(&r->room);
    return error;
}

static int make_room(void *arg, struct account *account, uint64_t bytes, struct err *why)
{
    struct entry *e = arg;
    struct guard *g = e->registry->opts.guard;
    struct demand d = {e, account, bytes, clock_now_ns() + ROOM_WAIT_NS};
    if (g && guard_refuses_loads(g, e->known.id, why))
        return -ENOMEM;
    if (take(&d) == 0)
        return 0;
    return g ? ask_guard(&d, why) : ask_idle(&d, why);
}

static int load(struct entry *e, struct registry_failure *why)
{
    struct registry *r = e->registry;
    struct loaded_model_opts opts = {.settings = &e->now,
                                     .store = r->opts.store,
                                     .shared = r->opts.shared,
                                     .ends_ns = &r->ends_ns,
                                     .events = r->opts.events,
                                     .ledger = r->opts.ledger,
                                     .holders = r->opts.holders,
                                     .device = registry_device_of(e),
                                     .cpu = e->registry->opts.devices[0],
                                     .make_room = make_room,
                                     .progress = on_progress,
                                     .step = on_step,
                                     .failed = on_failure,
                                     .arg = e,
                                     .engine_faults = r->opts.engine_faults,
                                     .faults = r->opts.faults};
    on_step(e, "plan");
    int error = r->opts.plan(r->opts.plan_arg, &e->now, &opts.files, &why->e);
    if (error < 0) {
        model_files_close(opts.files);
        return error;
    }
    for (uint32_t i = 0; i < e->now.plan.model.beside_count; i++)
        opts.beside[i] = r->opts.devices[e->now.plan.beside[i].domain];
    pthread_mutex_lock(&r->lock);
    e->load_bytes = plan_load_bytes(&e->now.plan);
    pthread_mutex_unlock(&r->lock);
    error = loaded_model_load(&opts, &e->loaded, &why->e);
    if (error == 0) {
        loaded_model_describe(&e->loaded, &e->now, &e->served);
        e->served.id = (e - e->known.replica)->known.id;
    }
    return error;
}

/* Under the lock. An operator has stopped the load: those who wait for it learn that. */
static void load_stopped(struct entry *e)
{
    struct registry_failure *f = &e->failure;
    ASSERT(e->stopped);
    e->ends++;
    e->state = e->waiters > 0 ? MODEL_FAILED : MODEL_UNLOADED;
    *f = (struct registry_failure){.code = -ECANCELED};
    err_set(&f->e, f->code, "an administrator stopped its load");
}

/* Under the lock. */
static void load_ended(struct entry *e, int error, const struct registry_failure *why, uint64_t took_ns,
                       struct file_stamp stamp)
{
    uint64_t now_ns = clock_now_ns();
    ASSERT_OF(e->state == MODEL_LOADING && error <= 0, "%s", e->known.id);
    e->last_used_ns = now_ns;
    if (error == -ECANCELED && e->stopped) {
        load_stopped(e);
        e->failed_ns = now_ns;
        e->failed_stamp = stamp;
    } else if (error == 0) {
        e->state = MODEL_READY;
        e->ending = e->closing = false;
        e->load_ns = took_ns;
        e->loads++;
    } else if (error == -ECANCELED) {
        /* A waiter may have arrived after it had stopped. */
        e->state = e->waiters > 0 || e->ordered ? MODEL_LOADING : MODEL_UNLOADED;
    } else if (error == LOAD_AS_BEFORE) {
        e->state = e->recheck ? MODEL_FAILED : MODEL_LOADING; /* the operator came meanwhile */
    } else {
        e->state = MODEL_FAILED;
        e->failure = *why;
        e->failed_ns = now_ns;
        e->failed_stamp = stamp;
        e->failures++;
    }
    if (error == 0 && e->stopped)
        registry_drain(e, UNLOAD_ADMIN, now_ns); /* it had ended before it saw the order */
    if (e->state != MODEL_LOADING)
        e->ordered = false;
    e->held = e->recheck = e->hang_told = e->stopped = false;
    if (e->registry->stopping && e->state == MODEL_READY)
        engine_stop(e->loaded.engine);
}

/* Keys and values of one whole context are set aside: often more than the weights. */
static void log_loaded(const struct entry *e, uint64_t took_ns)
{
    const struct model_shape *s = e->served.shape;
    const struct plan *plan = &e->now.plan;
    const char *halves = model_kv_smaller(s); /* beside a shorter context */
    uint64_t weight_bytes = s->weight_bytes;
    for (uint32_t i = 0; i + 1 < s->shard_count; i++)
        weight_bytes += s->beside[i].weight_bytes;
    const char *list[PLAN_PLACES_MAX];
    const struct placement_names places = plan_places(&plan->process, list);
    char placed[PLACEMENT_TEXT_BYTES];
    LOG_INFO("model_loaded",
             "model=%s form=\"%s\" context=%u%s%s device=%s placement=\"%s\" compute=%s weights_bytes=%llu "
             "set_aside_bytes=%llu kv_bytes=%llu kv_dtype=%s kv_halved_by=\"--max-model-len %u%s%s\" ms=%llu",
             e->known.id, s->form, plan_context(plan), s->longrope ? " longrope=" : "",
             s->longrope ? s->longrope : "", e->served.device,
             placement_text(&e->now.parts.placement, &places, placed, sizeof(placed)),
             compute_mode_name(s->compute), (ull)weight_bytes, (ull)plan_load_bytes(plan),
             (ull)plan_sequence_bytes(&plan->model, plan->max_model_len), model_kv_dtype(s),
             plan_context(plan) / 2, halves ? " or --kv-dtype " : "", halves ? halves : "",
             (ull)(took_ns / NS_PER_MS));
    if (s->unknown_keys[0])
        LOG_WARN(
            "unknown_keys",
            "model=%s keys=\"%s\": config.json has them, and they are not known to this program; answers may "
            "differ from the reference",
            e->known.id, s->unknown_keys);
}

static void log_load(const struct entry *e, int error, const struct registry_failure *why, uint64_t took_ns)
{
    if (error == LOAD_AS_BEFORE)
        return;
    if (error == 0)
        log_loaded(e, took_ns);
    else if (error == -ECANCELED)
        LOG_INFO("load_stopped", "model=%s ms=%llu", e->known.id, (ull)(took_ns / NS_PER_MS));
    else
        LOG_AT(e->registry->opts.quiet ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "load_failed",
               "model=%s error=\"%s\"", e->known.id, why->e.text);
}

static void thread_is_over(struct entry *e)
{
    ASSERT(e->has_thread && !e->thread_over);
    e->thread_over = true;
    registry_tell(e->registry);
}

/* It failed a moment ago, and its files are still those: it would fail again. */
static bool is_as_before(struct entry *e, struct file_stamp stamp)
{
    pthread_mutex_lock(&e->registry->lock);
    bool same = e->recheck && stamp.hash == e->failed_stamp.hash;
    pthread_mutex_unlock(&e->registry->lock);
    return same;
}

static void *load_main(void *arg)
{
    struct entry *e = arg;
    struct registry *r = e->registry;
    struct registry_failure why = {0};
    uint64_t began_ns = clock_now_ns();
    pace_begin(&e->pace);
    atomic_store(&e->has_room, false);
    atomic_store(&e->waited_ns, 0);
    on_step(e, "files");
    /* Before it is read: a change while it is read counts as one since. */
    struct file_stamp stamp = file_stamp_of(e->known.dir);
    int error = is_as_before(e, stamp) ? LOAD_AS_BEFORE : load(e, &why);
    uint64_t took_ns = clock_now_ns() - began_ns;
    why.code = error;
    log_load(e, error, &why, took_ns);
    if (error < 0)
        footprint_purge_heap(); /* free the memory of the failed read */
    pthread_mutex_lock(&r->lock);
    /* The cost of a reload is without the wait for others. */
    load_ended(e, error, &why, took_ns - MIN_OF(atomic_load(&e->waited_ns), took_ns), stamp);
    thread_is_over(e);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- an unload, on its thread ---- */

static void *unload_main(void *arg)
{
    struct entry *e = arg;
    struct registry *r = e->registry;
    registry_unload_now(e);
    pthread_mutex_lock(&r->lock);
    thread_is_over(e);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* ---- the registry's thread ---- */

/* All below runs under the lock, which is released while a thread is created or joined. Entries keep their
 * state meanwhile, because only this thread moves them from here. */

static void join(struct entry *e)
{
    struct registry *r = e->registry;
    ASSERT(e->has_thread && e->thread_over);
    pthread_mutex_unlock(&r->lock);
    pthread_join(e->thread, NULL);
    thread_stack_done(&e->stack);
    pthread_mutex_lock(&r->lock);
    e->has_thread = e->thread_over = false;
    pthread_cond_broadcast(&r->ended);
    registry_wake(r); /* there is a place for another */
}

static int start(struct entry *e, void *(*main)(void *), const char *name)
{
    struct registry *r = e->registry;
    struct charge charge = account_charge(r->opts.threads);
    ASSERT_OF(!e->has_thread && !e->thread_over, "%s", e->known.id);
    e->has_thread = true; /* from here on no other thread moves it */
    pthread_mutex_unlock(&r->lock);
    int error = thread_stack_init(&e->stack, MOVE_STACK_BYTES, &charge);
    if (error == 0 && (error = thread_stack_start(&e->stack, main, e, &e->thread)) < 0)
        thread_stack_done(&e->stack);
    if (error == 0)
        pthread_setname_np(e->thread, name);
    pthread_mutex_lock(&r->lock);
    if (error < 0)
        e->has_thread = false;
    return error;
}

static uint32_t threads_now(const struct registry *r)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < registry_count(r); i++)
        count += r->entries[i].has_thread;
    ASSERT(count <= REGISTRY_LOADS_MAX + REGISTRY_HUNG_MAX);
    return count;
}

static uint32_t hung_now(const struct registry *r)
{
    uint32_t count = 0;
    uint64_t now_ns = clock_now_ns();
    for (uint32_t i = 0; i < registry_count(r); i++)
        count += registry_hangs(&r->entries[i], now_ns);
    return count;
}

/* Loads that hang take places of their own, as long as there are some. */
static bool has_place(const struct registry *r)
{
    uint32_t hung = hung_now(r);
    return threads_now(r) < REGISTRY_LOADS_MAX + MIN_OF(hung, (uint32_t)REGISTRY_HUNG_MAX);
}

static bool are_replicas(const struct entry *a, const struct entry *b)
{
    return a - a->known.replica == b - b->known.replica;
}

/* At the start they come one after the other, in the order in which they were named; replicas of one model
 * together, for each fills another device. */
static bool is_its_turn(const struct entry *e)
{
    const struct registry *r = e->registry;
    uint64_t now_ns = clock_now_ns();
    for (const struct entry *before = r->entries; e->held && before < e; before++)
        if (before->held && !are_replicas(before, e) && !registry_hangs(before, now_ns))
            return false;
    return has_place(r);
}

/* A load that never began. */
static void refuse_load(struct entry *e, int error, struct registry_failure *why)
{
    ASSERT(error < 0);
    why->code = error;
    log_load(e, error, why, 0);
    load_ended(e, error, why, 0, (struct file_stamp){0});
    registry_tell(e->registry);
}

static void start_load(struct entry *e)
{
    struct registry_failure why = {.code = -EAGAIN};
    ASSERT(e->state == MODEL_LOADING && !e->has_thread);
    if (e->stopped || !registry_is_wanted(e)) {
        load_ended(e, -ECANCELED, &why, 0, (struct file_stamp){0});
        registry_tell(e->registry);
        return;
    }
    if (!is_its_turn(e))
        return;
    int error = registry_device_ready(e, clock_now_ns(), &why);
    if (error == -EAGAIN)
        return;
    if (error < 0) {
        refuse_load(e, e->recheck ? LOAD_AS_BEFORE : error, &why);
        return;
    }
    e->now = e->known;
    atomic_store(&e->step, NULL);
    atomic_store(&e->moved_ns, clock_now_ns());
    atomic_store(&e->cancel, false);
    atomic_store(&e->bytes_done, 0);
    atomic_store(&e->bytes_total, 0);
    if (start(e, load_main, "load") == 0)
        return;
    err_set(&why.e, -ENOMEM, "There is no memory for the thread that loads %s.", e->known.id);
    refuse_load(e, -ENOMEM, &why);
}

/* Engines in trouble may hold a place for long: an unload takes one only where it finds one, else the
 * registry's own thread. */
static void start_unload(struct entry *e)
{
    struct registry *r = e->registry;
    ASSERT_OF(e->leases == 0 && e->looks == 0 && !e->closing, "%s", e->known.id);
    e->closing = true;
    if (has_place(r) && start(e, unload_main, "unload") == 0)
        return;
    pthread_mutex_unlock(&r->lock);
    registry_unload_now(e);
    pthread_mutex_lock(&r->lock);
}

static void drain(struct entry *e, uint64_t now_ns)
{
    ASSERT(e->state == MODEL_DRAINING);
    if (e->closing)
        return;
    if (e->leases == 0 && e->looks == 0) {
        start_unload(e);
        return;
    }
    if (now_ns < e->drain_until_ns || e->ending)
        return;
    LOG_WARN("drain_over", "model=%s requests=%u", e->known.id, e->leases);
    e->ending = true;
    engine_stop(e->loaded.engine);
    registry_tell(e->registry);
}

/* Sessions and agents keep an idle model until the last one ends. */
static uint64_t ttl_end_ns(const struct entry *e)
{
    if (!registry_is_idle(e) || e->known.options.ttl_ns == 0 || e->pinned)
        return UINT64_MAX;
    struct engine_held held = registry_held(e);
    return MAX_OF(e->last_used_ns + e->known.options.ttl_ns, MAX_OF(held.until_ns, held.agents_until_ns));
}

/* Unloads a model that was idle for its time, or whose device has failed: the next request loads it anew. */
static void rest(struct entry *e, uint64_t now_ns)
{
    ASSERT(e->state == MODEL_READY);
    int failure = registry_device_is_lost(e, now_ns) ? -ENODEV : engine_failure(e->loaded.engine);
    if (failure == 0 && ttl_end_ns(e) > now_ns)
        return;
    enum unload_reason why = failure != 0 ? UNLOAD_DEVICE_LOST : UNLOAD_TTL;
    if (failure != 0)
        LOG_WARN("failure_unload", "model=%s error=%d", e->known.id, -failure);
    else
        LOG_INFO("idle_unload", "model=%s idle_s=%llu", e->known.id,
                 (ull)(e->known.options.ttl_ns / NS_PER_S));
    registry_drain(e, why, now_ns);
    registry_tell(e->registry);
    drain(e, now_ns);
}

/* Wakes waiters for a loading place, and for the start. */
static void look_at_hanging(struct entry *e, uint64_t now_ns)
{
    const char *step = atomic_load(&e->step);
    if (e->hang_told || !registry_hangs(e, now_ns))
        return;
    LOG_WARN("load_hangs", "model=%s dir=%s step=\"%s\" still_s=%llu", e->known.id, e->known.dir,
             step ? step : "", (ull)(registry_still_ns(e, now_ns) / NS_PER_S));
    e->hang_told = true;
    registry_tell(e->registry);
}

static void tend(struct entry *e)
{
    uint64_t now_ns = clock_now_ns();
    if (e->has_thread && e->thread_over)
        join(e);
    look_at_hanging(e, now_ns);
    if (e->has_thread || e->registry->stopping)
        return;
    switch (e->state) {
    case MODEL_LOADING:
        start_load(e);
        break;
    case MODEL_READY:
        rest(e, now_ns);
        break;
    case MODEL_DRAINING:
        drain(e, now_ns);
        break;
    case MODEL_UNLOADED:
    case MODEL_FAILED:
        break;
    }
}

/* Next time at which the thread must look without being woken. */
static uint64_t next_ns(const struct registry *r)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < registry_count(r); i++) {
        const struct entry *e = &r->entries[i];
        uint64_t at = ttl_end_ns(e);
        if (e->state == MODEL_DRAINING && !e->closing && !e->ending)
            at = e->drain_until_ns;
        if (e->state == MODEL_LOADING && e->has_thread && !e->hang_told && r->opts.hang_ns > 0)
            at = atomic_load(&e->moved_ns) + r->opts.hang_ns;
        next = MIN_OF(next, at);
    }
    return next;
}

static void sleep_until_woken(struct registry *r)
{
    uint64_t now_ns = clock_now_ns(), at_ns = next_ns(r);
    struct timespec until = clock_deadline(at_ns == UINT64_MAX ? UINT64_MAX
                                           : at_ns > now_ns    ? at_ns - now_ns
                                                               : 0);
    pthread_cond_timedwait(&r->wake, &r->lock, &until);
}

void *registry_main(void *registry)
{
    struct registry *r = registry;
    pthread_mutex_lock(&r->lock);
    while (!r->quit || threads_now(r) > 0) {
        r->poked = false;
        for (uint32_t i = 0; i < registry_count(r); i++)
            tend(&r->entries[i]);
        if (!r->poked && !(r->quit && threads_now(r) == 0))
            sleep_until_woken(r);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}
