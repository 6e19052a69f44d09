/* guard.c - the guard's own thread: it reclaims memory for engines that were refused some, and watches the
 * system.
 *
 * No engine waits for this thread, so it may wait for others. It sleeps until an engine needs memory or a
 * second has passed. */
#include "reclaim/guard.h"

#include "reclaim/guard_state.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "memory/domain.h"
#include "memory/footprint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define GUARD_STACK_BYTES ((size_t)256 << 10)
#define LOOK_NS           NS_PER_S
#define SHRINK_PART       8 /* each look reclaims all that is cached divided by this */
#define RETRY_AFTER_S     5 /* least duration of a stage */

/* ---- help ---- */

/* An engine was refused units: take free units of other models, then cached prefixes, then idle models. */
static void help(struct guard *g, const struct holder_want *w)
{
    struct guard_silent silent = {.ids = {w->id}, .count = 1};
    uint64_t given = guard_take_free(g, w->domain, w->id, w->bytes);
    guard_pass_over_floors(g, &silent);
    while (given < w->bytes && guard_count(g, w->domain, &silent).cached_bytes > 0)
        given += guard_take_cached(g, w->domain, &silent, w->bytes - given, w->name);
    if (given == 0)
        given = guard_take_idle(g, w->domain, w->bytes, w->name);
    atomic_fetch_add(&g->helps, given > 0);
    holders_helped(g->opts.holders, w->id, given);
}

/* Under the list's lock. */
static void on_wanted(void *arg)
{
    struct guard *g = arg;
    pthread_mutex_lock(&g->lock);
    g->wanted = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* ---- pressure: of the machine's memory ---- */

static void shrink(struct guard *g)
{
    const struct domain *d = domain_machine();
    struct guard_silent silent = {.count = 0};
    uint64_t wanted = MAX_OF(guard_count(g, d, &silent).cached_bytes / SHRINK_PART, UNIT_BYTES), given = 0;
    while (given < wanted && guard_count(g, d, &silent).cached_bytes > 0)
        given += guard_take_cached(g, d, &silent, wanted - given, NULL);
}

/* The one whose reload is cheapest: room for one byte more than there is. */
static void unload_one(struct guard *g)
{
    struct account_numbers root = account_numbers(ledger_root(g->opts.ledger));
    guard_take_idle(g, domain_machine(), root.limit - MIN_OF(root.reserved, root.limit) + 1, NULL);
}

/* Each look repeats the action of the present stage and of all stages before it. */
static void act(struct guard *g, enum pressure_stage stage)
{
    struct holders_reclaimed r;
    if (stage >= PRESSURE_SHRINK)
        shrink(g);
    if (stage >= PRESSURE_TRIM) {
        holders_reclaim(g->opts.holders, domain_machine(), HOLDER_TRIM, NS_PER_S, &r);
        atomic_fetch_add(&g->given.free_bytes, r.bytes);
    }
    if (stage >= PRESSURE_UNLOAD)
        unload_one(g);
}

static void tell(const struct guard_numbers *n, enum pressure_stage before)
{
    char text[256];
    snprintf(text, sizeof(text), "stage=%s before=%s level=%s figure=%s stalled_some=%.2f stalled_full=%.2f",
             pressure_stage_name(n->stage), pressure_stage_name(before), pressure_level_name(n->level),
             n->why, n->stalled_some, n->stalled_full);
    if (n->stage > before)
        LOG_WARN("memory_pressure", "%s", text);
    else
        LOG_INFO("memory_pressure", "%s", text);
}

/* The process's part of the invariants. It takes microseconds, so it is made whatever the engines do. */
static void check_process(struct guard *g)
{
    ledger_check(g->opts.ledger);
    holders_check(g->opts.holders);
}

static void look(struct guard *g)
{
    check_process(g);
    struct footprint f;
    const char *why;
    g->opts.read(g->opts.read_arg, &f);
    enum pressure_level level = pressure_level_of(&f, &why);
    pthread_mutex_lock(&g->lock);
    enum pressure_stage before = g->pressure.stage;
    bool changed = pressure_update(&g->pressure, level, clock_now_ns());
    struct guard_numbers *n = &g->numbers;
    n->stage = g->pressure.stage;
    n->level = level;
    n->why = why;
    n->stalled_some = f.stalled_some;
    n->stalled_full = f.stalled_full;
    n->stage_changes += changed;
    struct guard_numbers now = *n;
    pthread_mutex_unlock(&g->lock);
    if (changed)
        tell(&now, before);
    act(g, now.stage);
}

/* ---- the thread ---- */

/* False: it is to end. */
static bool sleep_until(struct guard *g, uint64_t next_ns, bool *wanted)
{
    uint64_t now_ns = clock_now_ns();
    struct timespec until = clock_deadline(next_ns > now_ns ? next_ns - now_ns : 0);
    int r = 0;
    pthread_mutex_lock(&g->lock);
    while (!g->ends && !g->wanted && r == 0)
        r = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    *wanted = g->wanted;
    g->wanted = false;
    bool goes_on = !g->ends;
    pthread_mutex_unlock(&g->lock);
    return goes_on;
}

static void *guard_thread(void *arg)
{
    struct guard *g = arg;
    uint64_t next_ns = g->opts.watches_system ? clock_now_ns() : UINT64_MAX / 2;
    struct holder_want want;
    bool wanted;
    while (sleep_until(g, next_ns, &wanted)) {
        while (wanted && holders_next_want(g->opts.holders, &want))
            help(g, &want);
        if (clock_now_ns() < next_ns)
            continue;
        look(g);
        next_ns = clock_now_ns() + g->opts.look_ns;
    }
    return NULL;
}

/* ---- life cycle ---- */

uint64_t guard_stack_bytes(void)
{
    return thread_stack_bytes(GUARD_STACK_BYTES);
}

static void read_system(void *arg, struct footprint *ret)
{
    (void)arg;
    footprint_read(ret);
}

static void init(struct guard *g, const struct guard_opts *opts)
{
    g->opts = *opts;
    g->opts.look_ns = opts->look_ns ? opts->look_ns : LOOK_NS;
    g->opts.read = opts->read ? opts->read : read_system;
    g->numbers.why = "memory_available";
    pthread_mutex_init(&g->room, NULL);
    pthread_mutex_init(&g->lock, NULL);
    clock_cond_init(&g->changed);
}

int guard_create(const struct guard_opts *opts, struct guard **ret)
{
    struct guard *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    init(g, opts);
    struct charge charge = account_charge(opts->threads);
    int r = thread_stack_init(&g->stack, GUARD_STACK_BYTES, &charge);
    if (r == 0)
        r = thread_stack_start(&g->stack, guard_thread, g, &g->thread);
    if (r < 0) {
        guard_free(g);
        return r;
    }
    g->started = true;
    pthread_setname_np(g->thread, "guard");
    holders_listen(opts->holders, on_wanted, g);
    *ret = g;
    return 0;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    holders_listen(g->opts.holders, NULL, NULL);
    pthread_mutex_lock(&g->lock);
    g->ends = true;
    pthread_cond_signal(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (g->started)
        pthread_join(g->thread, NULL);
    thread_stack_done(&g->stack);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->room);
    free(g);
}

void guard_set_models(struct guard *g, const struct guard_models *models)
{
    pthread_mutex_lock(&g->room);
    g->models = models ? *models : (struct guard_models){0};
    pthread_mutex_unlock(&g->room);
}

/* ---- looking ---- */

void guard_numbers(struct guard *g, struct guard_numbers *ret)
{
    pthread_mutex_lock(&g->lock);
    *ret = g->numbers;
    pthread_mutex_unlock(&g->lock);
    ret->rooms_made = atomic_load(&g->rooms_made);
    ret->rooms_refused = atomic_load(&g->rooms_refused);
    ret->helps = atomic_load(&g->helps);
    ret->free_bytes = atomic_load(&g->given.free_bytes);
    ret->cached_bytes = atomic_load(&g->given.cached_bytes);
    ret->idle_bytes = atomic_load(&g->given.idle_bytes);
}

bool guard_refuses_loads(struct guard *g, const char *name, struct err *why)
{
    struct guard_numbers n;
    guard_numbers(g, &n);
    if (n.stage < PRESSURE_UNLOAD)
        return false;
    err_set(why, 0,
            "There is no memory to load %s: other processes use the machine's memory (%s), and idle models "
            "are being unloaded. Try again later.",
            name, n.why);
    return true;
}

bool guard_refuses_work(struct guard *g, struct err *why, uint32_t *retry_after_s)
{
    struct guard_numbers n;
    guard_numbers(g, &n);
    if (n.stage < PRESSURE_REFUSE)
        return false;
    *retry_after_s = RETRY_AFTER_S;
    err_set(why, 0,
            "The machine is short of memory (%s is critical): new requests are refused, running ones go on. "
            "Try again in %u s.",
            n.why, RETRY_AFTER_S);
    return true;
}
