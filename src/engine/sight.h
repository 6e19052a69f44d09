/* sight.h - from the pixels of a job's pictures to what its prompt's placeholders stand for, between the
 * steps.
 *
 * Only rows with a place have their pictures encoded, and only those that lie behind what they have computed
 * or found: in the order in which the scheduler reads prompts, one at a time. The work is cut into slices
 * between steps: beside rows that decode one lasts about as long as a step of theirs. A row goes on as far as
 * its pictures are there (sched_row.ready), holds their features until it is past them, and its pixels until
 * it ends; so features that were dropped in between can be made again. What is encoded stays in a gallery
 * (engine/gallery.h) for whoever has the same picture next; two who want it at once wait for the same.
 *
 * Nobody waits for ever: who holds features can go on, and lets go of them by that; when nobody can, all but
 * the one whose turn it is let go. When memory for the next picture is refused, nobody holds any and nobody
 * will help, its job ends with that reason. Parts of the engine, its thread. */
#ifndef PLATEAU_ENGINE_SIGHT_H
#define PLATEAU_ENGINE_SIGHT_H

#include "engine/gallery.h"
#include "engine/job.h"

struct engine;

#define SIGHT_STEPS 15 /* durations of steps that are remembered */

struct sight {
    /* Constant. */
    struct account *pictures; /* features; NULL: the model sees nothing, and all below is zero */
    struct account *vision;   /* what the model takes while it encodes; NULL: not counted */
    struct gallery *gallery;
    /* Engine thread only. */
    uint32_t jobs;           /* those here that have pictures */
    struct job *owner;       /* whose picture is on its way; NULL: none is */
    uint32_t at;             /* which one of the owner's */
    uint32_t entry;          /* of the gallery: where its features go */
    struct picture *picture; /* its pixels, held */
    bool begun;              /* the model has it; before that its memory is being committed */
    uint64_t ended_ns;       /* when the last one ended */
    uint64_t least_bytes;    /* what the model keeps of `vision` anyway */
    uint64_t steps_ns[SIGHT_STEPS], step_count; /* of steps in which rows decoded and nothing else happened */
};

/* Bytes of the engine's arena that sight_create takes at most. */
size_t sight_arena_bytes(const struct model_shape *s);
/* Opens the account `pictures`. 0 or -ENOMEM; sight_done() in either case. */
int sight_create(struct engine *en);
/* No job is left. */
void sight_done(struct engine *en);

/* A job comes, and goes: in any phase, once each. Without pictures: nothing. */
void sight_enter(struct engine *en, const struct job *j);
void sight_leave(struct engine *en, struct job *j);

/* Before a plan: what each row needs is referenced, what it is past is let go of, and sched_row.ready says
 * how far it can go. True: that has changed for some row. */
bool sight_look(struct engine *en);
/* After the step, whose rows were computed: how long it took. */
void sight_note_step(struct engine *en, const struct sched_plan *plan, uint64_t took_ns);
/* Between two steps: a slice of work, if there is any. stepped: something was computed since the last call.
 * True: something was done. */
bool sight_run(struct engine *en, bool stepped);

/* ---- memory ---- */

/* Of features and of encoding. */
uint64_t sight_held_bytes(const struct engine *en);
/* Of those, what goes when it is asked for. */
uint64_t sight_free_bytes(const struct engine *en);
/* Of those, what has been of no use since before_ns whatever comes (UINT64_MAX: it does not matter since
 * when): encoding's memory, while no picture is on its way. */
uint64_t sight_spare_bytes(const struct engine *en, uint64_t before_ns);
/* What of them the process would hold less if they went: see holder_numbers.reach_bytes. */
uint64_t sight_reach_bytes(const struct engine *en);
/* Pictures whose features nobody needs at the moment. */
uint32_t sight_unused(const struct engine *en);
/* Gives back a unit of what is spare since before_ns, else with `features` the picture used longest ago;
 * returns the bytes, 0: nothing. */
uint64_t sight_give(struct engine *en, uint64_t before_ns, bool features);

/* ---- for reports ---- */

void sight_read_gauges(const struct engine *en, struct engine_numbers *ret);
/* Of the job's pictures, those that need no more work. */
uint32_t sight_pictures_done(const struct job *j);
/* Is it a picture that its row waits for? */
bool sight_is_awaited(const struct job *j);

#endif
