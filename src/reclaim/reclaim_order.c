/* reclaim_order.c - three stages, of which none is left before it has nothing more to give. */
#include "reclaim/reclaim_order.h"

static bool is_hopeless(const struct reclaim_figures *l)
{
    return l->own_limit || l->needed_bytes > l->reach_bytes + l->idle_bytes;
}

/* The first stage from here on with something to take. Free units are asked for once: each holder gives
 * all that is asked. */
static enum reclaim_step stage_of(const struct reclaim_order *r, const struct reclaim_figures *l)
{
    if (r->stage < RECLAIM_FREE && l->free_bytes > 0)
        return RECLAIM_FREE;
    if (r->stage <= RECLAIM_CACHED && l->cached_bytes > 0)
        return RECLAIM_CACHED;
    return l->idle_bytes > 0 ? RECLAIM_IDLE : RECLAIM_NONE;
}

enum reclaim_step reclaim_order_next(struct reclaim_order *r, const struct reclaim_figures *l)
{
    if (l->needed_bytes == 0 && !l->own_limit)
        return RECLAIM_FITS;
    if (r->steps++ == RECLAIM_STEPS_MAX || (r->steps == 1 && is_hopeless(l)) || l->own_limit)
        return RECLAIM_NONE;
    r->stage = stage_of(r, l);
    return r->stage;
}
