/* publish.h - what other threads see of an engine: copies under a lock.
 *
 * Numbers and jobs are renewed after each step, the ids of a step's requests before it. Bound: an entry for
 * each job and sequence that may be there, in the engine's arena. Writers: the engine's thread. */
#ifndef PLATEAU_ENGINE_PUBLISH_H
#define PLATEAU_ENGINE_PUBLISH_H

#include "engine/engine.h"
#include "engine/engine_numbers.h"

#include <pthread.h>
#include <stdint.h>

struct arena;
struct list;
struct sched_plan;

struct publish {
    /* Constant. */
    uint32_t jobs_max, seqs_max;
    const struct model_shape *shape;
    /* Under `lock`. */
    pthread_mutex_t lock;
    struct engine_numbers numbers;
    struct job_numbers *jobs; /* [jobs_max] */
    uint32_t job_count;
    struct request_id *step_ids; /* [seqs_max] */
    uint32_t step_id_count;
};

/* Bytes of arena that publish_init takes at most. */
size_t publish_arena_bytes(uint32_t jobs_max, uint32_t seqs_max);
/* `p` is zeroed. jobs_max: jobs of both lists of publish_write() together; shape: of their pages and
 * states. 0 or -ENOMEM; publish_done() in either case. */
int publish_init(struct publish *p, struct arena *a, uint32_t jobs_max, uint32_t seqs_max,
                 const struct model_shape *shape);
void publish_done(struct publish *p);

/* Jobs with a place in the batch are listed first, then the other ones of `jobs`, then those in `over`. */
void publish_write(struct publish *p, const struct engine_numbers *now, const struct list *jobs,
                   const struct list *over, uint64_t now_ns);
/* The sequences of the plan are about to be computed. */
void publish_step(struct publish *p, const struct sched_plan *plan);

/* Any thread: engine_numbers(), engine_jobs() and engine_step_ids(). */
void publish_read(struct publish *p, struct engine_numbers *ret);
uint32_t publish_read_jobs(struct publish *p, struct job_numbers *ret, uint32_t max);
uint32_t publish_read_step(struct publish *p, struct request_id *ret, uint32_t max);

#endif
