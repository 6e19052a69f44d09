/* pressure.h - how short memory of the machine is because of other processes, and which stage of relief
 * follows. Pure: figures and time are arguments.
 *
 *     none ──▶ shrink ──▶ trim ──▶ unload ──▶ refuse
 *      caches   free units   idle models   new work; running requests continue
 *
 * While memory is short the stage rises one at a time, after the stage before has had time to help. Only at
 * the level critical is new work refused. The stage falls one at a time, after a calm time: between calm and
 * short nothing changes. */
#ifndef PLATEAU_RECLAIM_PRESSURE_H
#define PLATEAU_RECLAIM_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

struct footprint;

enum pressure_level { PRESSURE_CALM, PRESSURE_EASED, PRESSURE_SHORT, PRESSURE_CRITICAL };
enum pressure_stage { PRESSURE_NONE, PRESSURE_SHRINK, PRESSURE_TRIM, PRESSURE_UNLOAD, PRESSURE_REFUSE };
const char *pressure_level_name(enum pressure_level l);
const char *pressure_stage_name(enum pressure_stage s);

/* The level of these figures; unknown figures count for nothing. `why` (may be NULL) gets a constant text
 * that names the worst of them. */
enum pressure_level pressure_level_of(const struct footprint *f, const char **why);

struct pressure {
    enum pressure_stage stage;
    uint64_t changed_ns; /* time of the last change of stage */
    uint64_t worse_ns;   /* last time at a level that kept the stage from falling */
};

#define PRESSURE_RISE_NS 3000000000ull /* time for a stage to help; critical: a third of it */
#define PRESSURE_FALL_NS 5000000000ull /* calm time before the stage falls */

/* Called about once a second. True: the stage has changed. */
bool pressure_update(struct pressure *p, enum pressure_level level, uint64_t now_ns);

#endif
