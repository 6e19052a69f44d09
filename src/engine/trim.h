/* trim.h - giving back what pools and pictures hold and nobody needs, while nobody waits.
 *
 * A trim is owed from the end of the last request until it is done, whatever comes between: it is a state of
 * the engine, with a time at which it begins and one by which it has ended, not a timer. A request that comes
 * calls it off, because the units are needed again; its end owes the next one. It works in slices, and
 * between two of them the inbox is looked at. Parts of the engine, its thread. */
#ifndef PLATEAU_ENGINE_TRIM_H
#define PLATEAU_ENGINE_TRIM_H

#include "base/list.h"
#include "memory/holders.h"

struct engine;

struct trim {
    struct list orders;    /* struct holder_ask: somebody waits for a trim, or for so many bytes */
    bool pressed;          /* memory is short: everything free goes now, and what comes of it does not wait */
    bool owed;             /* nothing has run since; due_ns says when it begins */
    bool done;             /* nothing was left to give back, and no step has been since */
    uint64_t due_ns;       /* the deadline is a second after the last end */
    uint64_t patience_ns;  /* how long after the last end it begins */
    uint64_t retaken;      /* units, as it was when the last trim was owed */
    uint64_t keep_ns;      /* between steps: a unit that is empty for less stays */
    uint64_t keep_retaken; /* units, as it was then */
    uint64_t keep_changed_ns; /* when it was */
    uint64_t ended_ns; /* when the last one that gave back something ended; 0: none since patience changed */
    /* Of this trim. */
    uint64_t bytes, slices, longest_ns;
};

void trim_init(struct trim *t);
/* A step is about to be computed: what was owed is called off. */
void trim_call_off(struct engine *en);
/* Nothing runs and nothing waits: how long the engine may sleep until it has to trim; 0: now; UINT64_MAX:
 * nothing is owed. */
uint64_t trim_wait_ns(struct engine *en, uint64_t now_ns);
/* Slice after slice, until a message comes or nothing is left. */
void trim_run(struct engine *en);
/* Between two steps: what is owed to orders and to shortage, and what is free beyond a threshold that
 * tightens with the rows that run. */
void trim_between_steps(struct engine *en);
/* Takes an order in; it is answered when nothing is left to give back, or as much as was asked for has
 * gone. */
void trim_take_order(struct engine *en, struct holder_ask *o);
/* Tells the list of holders what is here, and drops what others have more use for. */
void trim_share(struct engine *en);
/* An eighth of the prefixes goes, and all that is free. */
void trim_relieve(struct engine *en);
/* The engine ends: orders are answered as far as they came. */
void trim_end(struct engine *en);
/* What is owed now, at most. */
uint64_t trim_pending_bytes(const struct engine *en);

#endif
