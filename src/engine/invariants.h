/* invariants.h - the invariants of an engine between two steps, checked while it has nothing else to do.
 *
 * The walk looks at the scheduler, the pools, the prefix index, the image cache and the model's accounts. It
 * is made once when the engine comes to rest (no request is there, or all are paused) and then every
 * INVARIANTS_EVERY_NS. It never runs while a request waits: a message calls it off, and it begins again at
 * the next rest. A violation stops the process (base/check.h). With PLATEAU_DEBUG a brief walk is also made
 * after every step. Engine thread only. */
#ifndef PLATEAU_ENGINE_INVARIANTS_H
#define PLATEAU_ENGINE_INVARIANTS_H

#include <stdbool.h>
#include <stdint.h>

#define INVARIANTS_AFTER_NS 200000000ull   /* rest before a walk: a client may ask again at once */
#define INVARIANTS_EVERY_NS 10000000000ull /* while nothing happens */

struct engine;

struct invariants {
    uint64_t due_ns; /* when the next walk is to be made */
    uint64_t steps;  /* engine_numbers.steps when that was decided */
};

/* The engine rests: time until the next walk; 0: now. */
uint64_t invariants_wait_ns(struct engine *en, uint64_t now_ns);
/* Walks until a message comes; counts walks that reach the end, and their time. */
void invariants_run(struct engine *en);
/* Walks to the end, whatever comes. Returns how many things were looked at: a bound on its time. */
uint64_t invariants_check(struct engine *en);
/* After a step: nothing, but with PLATEAU_DEBUG a brief walk. */
void invariants_after_step(struct engine *en);

#endif
