/* trim.h - returns unused memory of pools and images while no request waits.
 *
 * A trim is due from the end of the last request until it is done. It is a state of the engine, not a timer:
 * it has a time at which it begins and one by which it has ended. A new request calls it off, because the
 * units are needed again; the end of that request makes the next one due. It works in slices, with a look at
 * the inbox after each. Part of the engine, on its thread. */
#ifndef PLATEAU_ENGINE_TRIM_H
#define PLATEAU_ENGINE_TRIM_H

#include "base/list.h"
#include "memory/holders.h"

struct engine;

struct trim {
    struct list orders;   /* struct holder_ask: orders for a trim, or for a number of bytes */
    bool pressed;         /* memory is short: all free units go now, even if they are needed again soon */
    bool owed;            /* nothing has run since; due_ns says when it begins */
    bool done;            /* nothing was left to give back, and no step has been since */
    uint64_t due_ns;      /* the deadline is a second after the last end */
    uint64_t patience_ns; /* how long after the last end it begins */
    uint64_t recommitted; /* units, when the last trim became due */
    uint64_t keep_ns;     /* between steps: a unit that is empty for less stays */
    uint64_t keep_recommitted; /* units, at that time */
    uint64_t keep_changed_ns;  /* when it was */
    uint64_t ended_ns; /* when the last one that gave back something ended; 0: none since patience changed */
    /* Of this trim. */
    uint64_t bytes, slices, longest_ns;
};

void trim_init(struct trim *t);
/* A step is about to be computed: the due trim is called off. */
void trim_call_off(struct engine *en);
/* Called while nothing runs and nothing waits. Returns how long the engine may sleep until it has to trim;
 * 0: now; UINT64_MAX: no trim is due. */
uint64_t trim_wait_ns(struct engine *en, uint64_t now_ns);
/* Slice after slice, until a message comes or nothing is left. */
void trim_run(struct engine *en);
/* Between two steps: serves orders and memory shortage, and returns free units beyond a threshold that
 * tightens with the running sequences. */
void trim_between_steps(struct engine *en);
/* Accepts an order; it is answered when nothing is left to give back, or the requested bytes have gone. */
void trim_take_order(struct engine *en, struct holder_ask *o);
/* Updates the list of holders, and drops prefixes that are more useful to other models' caches. */
void trim_share(struct engine *en);
/* An eighth of the prefixes goes, and all that is free. */
void trim_reclaim(struct engine *en);
/* The engine ends: orders are answered with the bytes given back until then. */
void trim_end(struct engine *en);
/* Bytes of the due trim, at most. */
uint64_t trim_pending_bytes(const struct engine *en);

#endif
