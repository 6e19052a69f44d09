/* image_sched.h - computes image embeddings from the pixels of a job's images, between the steps.
 *
 * Only sequences in the batch have their images encoded, and only images after the computed or cached
 * prefix. Images are encoded one at a time, in the order in which the scheduler reads prompts. The work is
 * cut into slices between steps: beside decoding sequences a slice lasts about as long as a step of theirs.
 * A sequence advances as far as its images are ready (sched_seq.ready). It references their embeddings until
 * it is past them, and its pixels until it ends; so embeddings that were dropped in between can be computed
 * again. Embeddings stay in the embedding cache (engine/embedding_cache.h) for the next request with the
 * same image; two concurrent requests share one encoding.
 *
 * No deadlock: a sequence releases its embeddings as it advances. If none can advance, all but the next in
 * line release theirs. A job ends for lack of memory when memory for its next image is refused, no sequence
 * references embeddings, and no other engine will give any. Part of the engine, on its thread. */
#ifndef PLATEAU_ENGINE_IMAGE_SCHED_H
#define PLATEAU_ENGINE_IMAGE_SCHED_H

#include "engine/embedding_cache.h"
#include "engine/job.h"

struct engine;

#define IMAGE_SCHED_STEPS 15 /* durations of steps that are remembered */

struct image_sched {
    /* Constant. */
    struct account *images; /* features; NULL: the model sees nothing, and all below is zero */
    struct account *vision; /* memory of the encoder; NULL: not counted */
    struct embedding_cache *embedding_cache;
    /* Engine thread only. */
    uint32_t jobs;        /* jobs with images */
    struct job *owner;    /* the job of the image in progress; NULL: none */
    uint32_t at;          /* which one of the owner's */
    uint32_t entry;       /* of the embedding cache: place of its embeddings */
    struct image *image;  /* its pixels, held */
    bool begun;           /* the model has it; before that its memory is being committed */
    uint64_t ended_ns;    /* when the last one ended */
    uint64_t least_bytes; /* least bytes of `vision`, encoding or not */
    uint64_t steps_ns[IMAGE_SCHED_STEPS],
        step_count; /* of steps in which sequences decoded and nothing else happened */
};

/* Bytes of the engine's arena that image_sched_create takes at most. */
size_t image_sched_arena_bytes(const struct model_shape *s);
/* Opens the account `images`. 0 or -ENOMEM; image_sched_done() in either case. */
int image_sched_create(struct engine *en);
/* No job is left. */
void image_sched_done(struct engine *en);

/* A job arrives, and leaves: in any phase, once each. No effect without images. */
void image_sched_enter(struct engine *en, const struct job *j);
void image_sched_leave(struct engine *en, struct job *j);

/* Before a plan: references the embeddings that each sequence needs, releases the ones before its position,
 * and sets sched_seq.ready. True: ready has changed for some sequence. */
bool image_sched_look(struct engine *en);
/* After the step, whose sequences were computed: records its duration. */
void image_sched_note_step(struct engine *en, const struct sched_plan *plan, uint64_t took_ns);
/* Between two steps: a slice of work, if there is any. stepped: something was computed since the last call.
 * True: something was done. */
bool image_sched_run(struct engine *en, bool stepped);

/* ---- memory ---- */

/* Bytes of embeddings and of the encoder's memory. */
uint64_t image_sched_held_bytes(const struct engine *en);
/* Part of held_bytes that can be dropped on request. */
uint64_t image_sched_free_bytes(const struct engine *en);
/* Part of held_bytes that was idle since before_ns (UINT64_MAX: since any time): the encoder's memory, while
 * no image is in progress. */
uint64_t image_sched_spare_bytes(const struct engine *en, uint64_t before_ns);
/* How much the process would shrink without the free bytes: see holder_numbers.reach_bytes. */
uint64_t image_sched_reach_bytes(const struct engine *en);
/* Images with unreferenced embeddings. */
uint32_t image_sched_unused(const struct engine *en);
/* Gives back a unit of memory idle since before_ns, else with `features` the least recently used image;
 * returns the bytes, 0: nothing. */
uint64_t image_sched_give(struct engine *en, uint64_t before_ns, bool features);

/* ---- for reports ---- */

void image_sched_read_gauges(const struct engine *en, struct engine_numbers *ret);
/* The job's images that need no more work. */
uint32_t image_sched_images_done(const struct job *j);
/* True: the job's sequence waits for an image. */
bool image_sched_is_awaited(const struct job *j);

#endif
