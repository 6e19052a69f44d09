/* pressure.h - how short of memory the machine is for reasons that are not ours, and how far we go about it. Pure: figures and time come
 * from outside.
 *
 *     none ──▶ shrink ──▶ trim ──▶ unload ──▶ refuse
 *      caches   free units   idle models   new work; who runs already goes on
 *
 * While it is short the stage rises one at a time, when the one before has had time to help; only when it is critical is new work refused. It falls
 * one at a time, when things have been calm for a while: between calm and short nothing changes. */
#ifndef PLATEAU_MEMORY_PRESSURE_H
#define PLATEAU_MEMORY_PRESSURE_H

#include "memory/footprint.h"

enum pressure_level { PRESSURE_CALM, PRESSURE_EASED, PRESSURE_SHORT, PRESSURE_CRITICAL };
enum pressure_stage { PRESSURE_NONE, PRESSURE_SHRINK, PRESSURE_TRIM, PRESSURE_UNLOAD, PRESSURE_REFUSE };
const char *pressure_level_name(enum pressure_level l);
const char *pressure_stage_name(enum pressure_stage s);

/* What the figures say; those that are unknown say nothing. `why` (may be NULL) gets a constant text that
 * names the worst of them. */
enum pressure_level pressure_level_of(const struct footprint *f, const char **why);

struct pressure {
    enum pressure_stage stage;
    uint64_t changed_ns; /* when the stage last changed */
    uint64_t worse_ns;   /* when it was last too bad for the stage to fall */
};

#define PRESSURE_RISE_NS 3000000000ull /* a stage has so long to help; critical: a third of it */
#define PRESSURE_FALL_NS 5000000000ull /* it was calm for so long */

/* A look: about once a second. True: the stage has changed. */
bool pressure_look(struct pressure *p, enum pressure_level level, uint64_t now_ns);

#endif
