/* room.c - three stages, of which none is left before it has nothing more to give. */
#include "reclaim/room.h"

static bool is_hopeless(const struct room_look *l)
{
    return l->own_limit || l->needed_bytes > l->reach_bytes + l->idle_bytes;
}

/* The first stage from here on with something to take. Free units are asked for once: each holder gives
 * all that is asked. */
static enum room_step stage_of(const struct room *r, const struct room_look *l)
{
    if (r->stage < ROOM_FREE && l->free_bytes > 0)
        return ROOM_FREE;
    if (r->stage <= ROOM_CACHED && l->cached_bytes > 0)
        return ROOM_CACHED;
    return l->idle_bytes > 0 ? ROOM_IDLE : ROOM_NONE;
}

enum room_step room_next(struct room *r, const struct room_look *l)
{
    if (l->needed_bytes == 0 && !l->own_limit)
        return ROOM_FITS;
    if (r->steps++ == ROOM_STEPS_MAX || (r->steps == 1 && is_hopeless(l)) || l->own_limit)
        return ROOM_NONE;
    r->stage = stage_of(r, l);
    return r->stage;
}
