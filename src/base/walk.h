/* walk.h - a walk over all parts of a structure, which can be called off.
 *
 * The walks that check invariants at idle take time with each page of a pool. A walk counts the parts that it
 * visits, and asks every WALK_ASKS of them whether to go on. A walk that is called off has found nothing and
 * begins again another time.
 *
 * A brief walk passes over entries that hold nothing: its time depends on what is in use, not on what the
 * memory limit allows. */
#ifndef PLATEAU_BASE_WALK_H
#define PLATEAU_BASE_WALK_H

#include <stdbool.h>
#include <stdint.h>

#define WALK_ASKS 4096 /* things between two questions: a fraction of a millisecond */

struct walk {
    bool (*goes_on)(void *arg); /* NULL: to the end */
    void *arg;
    bool brief;
    uint64_t looked; /* things counted */
    bool called_off;
};

/* How many of `all` entries the walk visits; those from `used` on hold nothing. */
static inline uint32_t walk_end(const struct walk *w, uint32_t used, uint32_t all)
{
    return w->brief && used < all ? used : all;
}

/* One thing more. False: the walk is called off, and its caller returns. */
static inline bool walk_on(struct walk *w)
{
    if (!w->called_off && ++w->looked % WALK_ASKS == 0 && w->goes_on && !w->goes_on(w->arg))
        w->called_off = true;
    return !w->called_off;
}

#endif
