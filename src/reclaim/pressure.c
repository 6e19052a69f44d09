/* pressure.c - separate thresholds, and times, so that the stage does not oscillate.
 *
 * The plan may fill the whole cgroup if the ceiling is its limit, so being near it is normal for a while:
 * refusing work needs more than that. Stall times of our own cgroup count without further evidence. The
 * machine's may be due to another cgroup, so then memory must be short, too. */
#include "reclaim/pressure.h"

#include "base/check.h"
#include "memory/footprint.h"

#define STALLED_CALM     10.0 /* per cent, some */
#define STALLED_SHORT    20.0
#define STALLED_CRITICAL 20.0 /* full */

const char *pressure_level_name(enum pressure_level l)
{
    static const char *const names[] = {"calm", "eased", "short", "critical"};
    ASSERT((size_t)l < COUNT_OF(names));
    return names[l];
}

const char *pressure_stage_name(enum pressure_stage s)
{
    static const char *const names[] = {"none", "shrink", "trim", "unload", "refuse"};
    ASSERT((size_t)s < COUNT_OF(names));
    return names[s];
}

static enum pressure_level of_cgroup(const struct footprint *f)
{
    uint64_t limit = f->cgroup_limit_bytes;
    if (f->cgroup_high_bytes && (limit == 0 || f->cgroup_high_bytes < limit))
        limit = f->cgroup_high_bytes;
    uint64_t part = limit / 200;
    if (limit == 0 || f->cgroup_bytes < part * 180)
        return PRESSURE_CALM;
    if (f->cgroup_bytes <= part * 190)
        return PRESSURE_EASED;
    return f->cgroup_bytes <= part * 197 ? PRESSURE_SHORT : PRESSURE_CRITICAL;
}

static enum pressure_level of_machine(const struct footprint *f)
{
    uint64_t reserve = footprint_reserve(f), has = f->ram_available_bytes;
    ASSERT(reserve <= f->ram_bytes);
    if (has == 0 || has > reserve / 4 * 3)
        return PRESSURE_CALM;
    if (has >= reserve / 2)
        return PRESSURE_EASED;
    return has >= reserve / 8 ? PRESSURE_SHORT : PRESSURE_CRITICAL;
}

static enum pressure_level of_stalls(const struct footprint *f)
{
    if (!f->stalled_is_own && f->ram_available_bytes > 2 * footprint_reserve(f))
        return PRESSURE_CALM;
    if (f->stalled_full >= STALLED_CRITICAL)
        return PRESSURE_CRITICAL;
    if (f->stalled_some >= STALLED_SHORT)
        return PRESSURE_SHORT;
    return f->stalled_some >= STALLED_CALM ? PRESSURE_EASED : PRESSURE_CALM;
}

enum pressure_level pressure_level_of(const struct footprint *f, const char **why)
{
    const struct {
        enum pressure_level level;
        const char *why;
    } figures[] = {{of_machine(f), "memory_available"}, {of_cgroup(f), "cgroup"}, {of_stalls(f), "stalls"}};
    size_t worst = 0;
    for (size_t i = 1; i < COUNT_OF(figures); i++)
        if (figures[i].level > figures[worst].level)
            worst = i;
    if (why)
        *why = figures[worst].why;
    return figures[worst].level;
}

static void change(struct pressure *p, enum pressure_stage stage, uint64_t now_ns)
{
    ASSERT(stage != p->stage);
    ASSERT(stage <= PRESSURE_REFUSE);
    p->stage = stage;
    p->changed_ns = p->worse_ns = now_ns;
}

/* The last stage that this level leads to. */
static enum pressure_stage most_of(enum pressure_level level)
{
    return level == PRESSURE_CRITICAL ? PRESSURE_REFUSE
           : level == PRESSURE_SHORT  ? PRESSURE_UNLOAD
                                      : PRESSURE_NONE;
}

bool pressure_update(struct pressure *p, enum pressure_level level, uint64_t now_ns)
{
    ASSERT(level <= PRESSURE_CRITICAL);
    uint64_t patience_ns = level == PRESSURE_CRITICAL ? PRESSURE_RISE_NS / 3 : PRESSURE_RISE_NS;
    enum pressure_stage most = most_of(level), before = p->stage;
    /* The last stage may fall as soon as the level is not critical; the others when it is calm. */
    bool may_fall = p->stage == PRESSURE_REFUSE ? level < PRESSURE_CRITICAL : level == PRESSURE_CALM;
    if (!may_fall)
        p->worse_ns = now_ns;
    if (p->stage < most && (p->stage == PRESSURE_NONE || now_ns - p->changed_ns >= patience_ns))
        change(p, p->stage + 1, now_ns);
    else if (p->stage > PRESSURE_NONE && may_fall && now_ns - p->worse_ns >= PRESSURE_FALL_NS)
        change(p, p->stage - 1, now_ns);
    ASSERT(p->stage <= before + 1 && before <= p->stage + 1);
    return p->stage != before;
}
