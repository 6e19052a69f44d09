/* trim.c - when, how much, and how long at a time.
 *
 * When idle, a trim begins 50 ms after the last request. If its units are needed again within a second, it
 * came too early, and the next one waits twice as long. The wait grows up to the time that still lets the
 * trim end within a second of the last request; a trim without such reuse halves it again. So single
 * requests give back at once, and a client that asks five times a second finds its units in place.
 *
 * While sequences run, only units beyond a threshold are given back, for half a millisecond per step, and
 * only units that have been empty for 50 ms. When such units are needed again within a second, the next ones
 * must have been empty for twice as long, up to 4 s. So under a load that swings, units stay for the next
 * swing. After a while without such reuse the time is halved again. */
#include "engine/trim.h"

#include "engine/budget.h"
#include "engine/image_sched.h"
#include "engine/pools.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/prefix_index.h"
#include "memory/domain.h"
#include "reclaim/holders.h"

#define PATIENCE_LEAST_NS (50 * NS_PER_MS)
#define PATIENCE_MOST_NS  (700 * NS_PER_MS)
#define KEEP_LEAST_NS     (50 * NS_PER_MS) /* a unit that is empty for less stays, unless memory is short */
#define KEEP_MOST_NS      (4 * NS_PER_S)
#define KEEP_CALM_NS      (10 * NS_PER_S) /* without regret, until units stay half as long again */
#define BETWEEN_NS        (NS_PER_MS / 2) /* time between two steps, for tidiness */
#define BETWEEN_URGENT_NS (5 * NS_PER_MS) /* and for a waiting caller */
#define SPARE_LEAST_BYTES (4 * (uint64_t)UNIT_BYTES)
#define REGRET_NS         NS_PER_S /* units not needed again for this long were returned rightly */
#define RELIEF_PART       8
#define TAKEN_NS          (10 * NS_PER_S) /* units stay so long after other programs had the memory for one */

void trim_init(struct trim *t, const struct trim_opts *opts)
{
    ASSERT(opts->pools && opts->images && opts->budget);
    *t = (struct trim){.opts = *opts, .patience_ns = PATIENCE_LEAST_NS, .keep_ns = KEEP_LEAST_NS};
    list_init(&t->orders);
}

/* Evictions from now on have this cause. */
static void blame(struct trim *t, enum prefix_loss_cause cause, uint64_t whom)
{
    pools_clock(t->opts.pools, clock_now_ns());
    if (t->opts.pools->index)
        prefix_index_blame(t->opts.pools->index, cause, whom);
}

/* ---- orders ---- */

#define ORDER(it) LIST_ENTRY(it, struct holder_ask, link)

static uint64_t held_bytes(const struct trim *t)
{
    return pools_held_bytes(t->opts.pools) + image_sched_beside(t->opts.images).held_bytes;
}

/* Tells the list of holders. */
static uint64_t publish(struct trim *t)
{
    const struct pools_beside beside = image_sched_beside(t->opts.images);
    return pools_publish(t->opts.pools, &beside, (uint64_t)t->opts.budget->prompt_ns);
}

static uint64_t fallen_bytes(const struct trim *t, const struct holder_ask *o)
{
    uint64_t held = held_bytes(t);
    return o->held_before > held ? o->held_before - held : 0;
}

/* The caller may read the list of holders next: it is updated first. */
static void answer(struct trim *t, struct holder_ask *o)
{
    o->answer.bytes = fallen_bytes(t, o);
    t->now.reclaims += o->kind == HOLDER_GIVE && o->answer.entries > 0;
    list_remove(&o->link);
    (void)publish(t);
    holder_ask_done(o);
}

void trim_end(struct trim *t)
{
    LIST_EACH(it, &t->orders)
        answer(t, ORDER(it));
}

static bool is_met(const struct trim *t, const struct holder_ask *o)
{
    return o->kind == HOLDER_GIVE && fallen_bytes(t, o) >= o->bytes;
}

static void answer_met(struct trim *t)
{
    LIST_EACH(it, &t->orders)
        if (is_met(t, ORDER(it)))
            answer(t, ORDER(it));
}

/* Nothing is free: evicts a unit's worth for one of the waiting orders. False: none is entitled to any. */
static bool evict_for_orders(struct trim *t)
{
    LIST_EACH(it, &t->orders) {
        struct holder_ask *o = ORDER(it);
        uint64_t dropped = t->opts.pools->dropped;
        blame(t, o->whom ? PREFIX_LOSS_MODEL : PREFIX_LOSS_PRESSURE, o->whom);
        if (o->kind != HOLDER_GIVE || pools_evict_before(t->opts.pools, UNIT_BYTES, o->before_ns) == 0)
            continue;
        ASSERT(t->opts.pools->dropped > dropped);
        o->answer.entries += (uint32_t)(t->opts.pools->dropped - dropped);
        return true;
    }
    return false;
}

/* All that is free, of pools and images. */
static uint64_t free_bytes(const struct trim *t)
{
    return pools_spare_bytes(t->opts.pools) + image_sched_beside(t->opts.images).free_bytes;
}

/* ---- slices ---- */

static bool is_urgent(const struct trim *t)
{
    return t->pressed || !list_empty(&t->orders);
}

/* Memory of the vision encoder, then free memory of the pools; image embeddings only for waiting orders. */
static bool give(struct trim *t, uint64_t before_ns, struct pools_given *ret)
{
    *ret = (struct pools_given){.bytes = image_sched_give(t->opts.images, before_ns, false)};
    if (ret->bytes > 0 || pools_shrink(t->opts.pools, before_ns, ret))
        return true;
    ret->bytes = is_urgent(t) ? image_sched_give(t->opts.images, before_ns, true) : 0;
    return ret->bytes > 0;
}

/* One slice. False: nothing is left. */
static bool slice(struct trim *t, uint64_t before_ns)
{
    struct trim_numbers *n = &t->now;
    struct pools_given given;
    uint64_t began_ns = clock_now_ns();
    pools_clock(t->opts.pools, began_ns);
    if (!give(t, before_ns, &given) && !evict_for_orders(t))
        return false;
    answer_met(t);
    uint64_t took_ns = clock_now_ns() - began_ns;
    n->trims += t->slices == 0;
    t->slices++;
    t->bytes += given.bytes;
    t->longest_ns = MAX_OF(t->longest_ns, took_ns);
    n->slices++;
    n->slice_ns += took_ns;
    n->slice_max_ns = MAX_OF(n->slice_max_ns, took_ns);
    n->units += DIV_UP(given.bytes, (uint64_t)UNIT_BYTES);
    n->bytes += given.bytes;
    n->moves += given.moved;
    return true;
}

/* Nothing is left to give back. */
static void finish(struct trim *t)
{
    if (t->slices > 0) {
        LOG_DEBUG("trimmed", "model=%s bytes=%llu slices=%llu longest_us=%llu", t->opts.name, (ull)t->bytes,
                  (ull)t->slices, (ull)(t->longest_ns / NS_PER_US));
        t->ended_ns = clock_now_ns();
    }
    t->pressed = t->owed = false;
    t->done = true;
    t->bytes = t->slices = t->longest_ns = 0;
    /* The caller may read the numbers next. */
    if (!list_empty(&t->orders))
        t->opts.publish(t->opts.arg);
    trim_end(t);
    ASSERT(!is_urgent(t));
}

/* ---- idle ---- */

static void owe(struct trim *t, uint64_t ended_ns)
{
    uint64_t recommitted = pools_recommitted(t->opts.pools);
    ASSERT(recommitted >= t->recommitted);
    bool unregretted = t->ended_ns > 0 && ended_ns - t->ended_ns > REGRET_NS;
    if (recommitted > t->recommitted)
        t->patience_ns = MIN_OF(2 * t->patience_ns, PATIENCE_MOST_NS);
    else if (unregretted)
        t->patience_ns = MAX_OF(t->patience_ns / 2, PATIENCE_LEAST_NS);
    if (recommitted > t->recommitted || unregretted)
        t->ended_ns = 0;
    t->recommitted = recommitted;
    ASSERT(t->patience_ns >= PATIENCE_LEAST_NS && t->patience_ns <= PATIENCE_MOST_NS);
    t->due_ns = ended_ns + t->patience_ns;
    t->owed = true;
}

void trim_call_off(struct trim *t)
{
    t->owed = t->done = false;
}

uint64_t trim_wait_ns(struct trim *t, uint64_t ended_ns, uint64_t now_ns)
{
    if (is_urgent(t))
        return 0;
    if (t->done || t->opts.keep_units)
        return UINT64_MAX;
    if (!t->owed)
        owe(t, ended_ns);
    return t->due_ns > now_ns ? t->due_ns - now_ns : 0;
}

void trim_run(struct trim *t)
{
    while (!t->opts.is_wanted(t->opts.arg)) {
        if (!slice(t, UINT64_MAX)) {
            finish(t);
            return;
        }
    }
}

/* ---- between steps ---- */

/* Free bytes allowed while sequences run. */
static uint64_t threshold_bytes(const struct trim *t, uint32_t running)
{
    uint64_t part = held_bytes(t) / (2 * ((uint64_t)running + 1));
    return MAX_OF(part, SPARE_LEAST_BYTES);
}

static uint64_t spare_bytes(const struct trim *t, uint64_t before_ns)
{
    return pools_spare_bytes(t->opts.pools) + image_sched_spare_bytes(t->opts.images, before_ns);
}

static bool has_too_much(const struct trim *t, uint32_t running, uint64_t before_ns)
{
    bool keeps =
        t->opts.keep_units || pools_memory_taken(t->opts.pools, before_ns - MIN_OF(before_ns, TAKEN_NS));
    return !keeps && spare_bytes(t, before_ns) > threshold_bytes(t, running);
}

static void learn_to_keep(struct trim *t, uint64_t now_ns)
{
    uint64_t recommitted = pools_recommitted(t->opts.pools);
    ASSERT(recommitted >= t->keep_recommitted);
    if (recommitted > t->keep_recommitted)
        t->keep_ns = MIN_OF(t->keep_ns * 2, KEEP_MOST_NS);
    else if (now_ns - t->keep_changed_ns > KEEP_CALM_NS)
        t->keep_ns = MAX_OF(t->keep_ns / 2, KEEP_LEAST_NS);
    else
        return;
    ASSERT(t->keep_ns >= KEEP_LEAST_NS && t->keep_ns <= KEEP_MOST_NS);
    t->keep_recommitted = recommitted;
    t->keep_changed_ns = now_ns;
}

void trim_between_steps(struct trim *t, uint32_t running)
{
    bool urgent = is_urgent(t);
    uint64_t began_ns = clock_now_ns(), most_ns = urgent ? BETWEEN_URGENT_NS : BETWEEN_NS;
    if (!urgent && !has_too_much(t, running, began_ns - t->keep_ns))
        return;
    learn_to_keep(t, began_ns);
    uint64_t before_ns = urgent ? UINT64_MAX : began_ns - t->keep_ns;
    bool more = true;
    while (more && clock_now_ns() - began_ns < most_ns &&
           (is_urgent(t) || has_too_much(t, running, before_ns)))
        more = slice(t, before_ns);
    if (urgent && !more)
        finish(t);
}

/* ---- orders ---- */

void trim_take_order(struct trim *t, struct holder_ask *o)
{
    o->held_before = held_bytes(t);
    pools_clock(t->opts.pools, clock_now_ns());
    if (o->kind == HOLDER_CLEAR)
        o->answer.entries = image_sched_unused(t->opts.images) +
                            (t->opts.pools->index ? prefix_index_clear(t->opts.pools->index) : 0);
    list_push_back(&t->orders, &o->link);
}

void trim_share(struct trim *t)
{
    uint64_t bytes;
    blame(t, PREFIX_LOSS_SHARE, 0);
    while ((bytes = publish(t)) > 0 && pools_evict(t->opts.pools, bytes) > 0)
        t->done = false;
}

void trim_reclaim(struct trim *t)
{
    struct prefix_numbers n = {0};
    if (t->opts.pools->index)
        prefix_index_numbers(t->opts.pools->index, &n);
    blame(t, PREFIX_LOSS_PRESSURE, 0);
    uint64_t bytes = pools_evict(t->opts.pools, DIV_UP(n.bytes, (uint64_t)RELIEF_PART));
    if (bytes == 0 && free_bytes(t) == 0)
        return;
    t->now.reclaims++;
    t->pressed = true;
    LOG_WARN("memory_short", "model=%s prefixes_dropped_bytes=%llu spare_bytes=%llu", t->opts.name,
             (ull)bytes, (ull)free_bytes(t));
}

/* ---- looking ---- */

uint64_t trim_pending_bytes(const struct trim *t, uint32_t running)
{
    uint64_t spare = spare_bytes(t, UINT64_MAX), keeps = threshold_bytes(t, running);
    if (is_urgent(t))
        return free_bytes(t);
    if (t->done || t->opts.keep_units)
        return 0;
    return t->owed ? spare : spare > keeps ? spare - keeps : 0;
}
