/* trim.h - returns unused memory of pools and images while no request waits.
 *
 * A trim is due from the end of the last request until it is done. It is a state of the engine, not a timer:
 * it has a time at which it begins and one by which it has ended. A new request calls it off, because the
 * units are needed again; the end of that request makes the next one due. It works in slices, with a look at
 * the inbox after each. Engine thread only. */
#ifndef PLATEAU_ENGINE_TRIM_H
#define PLATEAU_ENGINE_TRIM_H

#include "engine/engine_numbers.h"

#include "base/list.h"

#include <stdbool.h>
#include <stdint.h>

struct budget;
struct holder_ask;
struct image_sched;
struct pools;

struct trim_opts {
    struct pools *pools;
    struct image_sched *images;
    const struct budget *budget; /* cost of a prompt's tokens, for the list of holders */
    const char *name;            /* the model's name, for the log */
    bool keep_units;             /* see engine_opts */
    /* A message has come for the engine. */
    bool (*is_wanted)(void *arg);
    /* The trim is over, and its caller may read the engine's numbers next. */
    void (*publish)(void *arg);
    void *arg;
};

struct trim {
    struct trim_opts opts; /* constant */
    struct list orders;    /* struct holder_ask: orders for a trim, or for a number of bytes */
    bool pressed;          /* memory is short: all free units go now, even if they are needed again soon */
    bool owed;             /* nothing has run since; due_ns says when it begins */
    bool done;             /* nothing was left to give back, and no step has been since */
    uint64_t due_ns;       /* the deadline is a second after the last end */
    uint64_t patience_ns;  /* how long after the last end it begins */
    uint64_t recommitted;  /* units, when the last trim became due */
    uint64_t keep_ns;      /* between steps: a unit that is empty for less stays */
    uint64_t keep_recommitted; /* units, at that time */
    uint64_t keep_changed_ns;  /* when it was */
    uint64_t ended_ns; /* when the last one that gave back something ended; 0: none since patience changed */
    /* Counters of this trim. */
    uint64_t bytes, slices, longest_ns;
    struct trim_numbers now;
};

void trim_init(struct trim *t, const struct trim_opts *opts);
/* A step is about to be computed: the due trim is called off. */
void trim_call_off(struct trim *t);
/* Called while nothing runs and nothing waits, since ended_ns. Returns how long the engine may sleep until it
 * has to trim; 0: now; UINT64_MAX: no trim is due. */
uint64_t trim_wait_ns(struct trim *t, uint64_t ended_ns, uint64_t now_ns);
/* Slice after slice, until a message comes or nothing is left. */
void trim_run(struct trim *t);
/* Between two steps: serves orders and memory shortage, and returns free units beyond a threshold that
 * tightens with the running sequences. */
void trim_between_steps(struct trim *t, uint32_t running);
/* Accepts an order; it is answered when nothing is left to give back, or the requested bytes have gone. */
void trim_take_order(struct trim *t, struct holder_ask *o);
/* Updates the list of holders, and drops prefixes that are more useful to other models' caches. */
void trim_share(struct trim *t);
/* An eighth of the prefixes goes, and all that is free. */
void trim_reclaim(struct trim *t);
/* Orders are answered with the bytes given back until now: nothing is left, or the engine ends. */
void trim_end(struct trim *t);
/* Bytes of the due trim, at most. */
uint64_t trim_pending_bytes(const struct trim *t, uint32_t running);

#endif
