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
 * references embeddings, and no other engine will give any. Where other programs have the memory, it waits
 * for SCHED_TAKEN_NS before that. Engine thread only. */
#ifndef PLATEAU_ENGINE_IMAGE_SCHED_H
#define PLATEAU_ENGINE_IMAGE_SCHED_H

#include "engine/pools.h"

#include <stdatomic.h>
#include <stdbool.h>

struct embedding_cache;
struct engine_numbers;
struct job;
struct model_image;
struct sched_plan;
struct vision_encoder;

#define IMAGE_SCHED_STEPS 15 /* durations of steps that are remembered */

/* The vision encoder (model/vision.h), one image at a time. */
struct image_sched_encoder {
    int (*begin)(struct vision_encoder *e, const struct model_image *in);
    bool (*run)(struct vision_encoder *e, uint64_t deadline_ns);
    void (*stop)(struct vision_encoder *e);
    bool (*trim)(struct vision_encoder *e);
    struct vision_encoder *of;
};

struct image_sched_port {
    /* See sched_first_waiting(). */
    struct sched_seq *(*first_waiting)(void *arg);
    /* Work on an image begins: free memory is about to be needed. */
    void (*begins)(void *arg);
    /* There is no memory for image `index` of the job, which has to end: bytes of its embeddings, and of
     * encoding them. `taken`: other programs have it. */
    void (*refused)(void *arg, struct job *j, uint32_t index, uint64_t features, uint64_t encoding,
                    bool taken);
    void *arg;
    void (*slice)(void *arg); /* NULL but in tests: called before a slice */
    void *slice_arg;
};

struct image_sched_opts {
    const struct model_shape *shape;
    struct account *parent; /* `images` opens below it; it may have `vision` */
    uint64_t cache_bytes;   /* engine_opts.image_cache_bytes */
    struct list *jobs;      /* struct job */
    struct pools *pools;    /* memory for images may come from there */
    struct device *device;
    const _Atomic uint64_t *step_ns; /* target time of a step */
    const atomic_bool *closing;      /* no slice begins then */
    _Atomic uint64_t *progress_ns;   /* set before and after a slice */
    struct image_sched_encoder encoder;
    struct image_sched_port port;
};

/* Counters of engine_numbers. */
struct image_sched_numbers {
    uint64_t encoded, found, slices, slices_ns, slice_max_ns;
};

struct image_sched {
    /* Constant. */
    struct image_sched_opts opts;
    struct account *images; /* features; NULL: the model sees nothing, and all below is zero */
    struct account *vision; /* memory of the encoder; NULL: not counted */
    struct embedding_cache *embedding_cache;
    /* Engine thread only. */
    uint32_t jobs;        /* jobs with images */
    struct job *owner;    /* the job of the image in progress; NULL: none */
    uint32_t at;          /* which one of the owner's */
    uint32_t entry;       /* entry of its embeddings in the embedding cache */
    struct image *image;  /* its pixels, held */
    bool begun;           /* the model has it; before that its memory is being committed */
    uint64_t ended_ns;    /* when the last one ended */
    uint64_t taken_ns;    /* since when other programs have memory that an image needs; 0: they do not */
    uint64_t retry_ns;    /* no image begins before, because memory was refused */
    uint64_t least_bytes; /* least bytes of `vision`, encoding or not */
    uint64_t steps_ns[IMAGE_SCHED_STEPS],
        step_count; /* count of steps in which sequences decoded and nothing else happened */
    struct image_sched_numbers now;
};

/* Bytes of the engine's arena that image_sched_create takes at most. */
size_t image_sched_arena_bytes(const struct model_shape *s);
/* `s` is zeroed. Opens the account `images`, unless the model sees nothing. 0 or -ENOMEM; image_sched_done()
 * in either case. */
int image_sched_create(struct image_sched *s, const struct image_sched_opts *opts, struct arena *a);
/* No job is left. */
void image_sched_done(struct image_sched *s);

/* A job arrives, and leaves: in any phase, once each. No effect without images. */
void image_sched_enter(struct image_sched *s, const struct job *j);
void image_sched_leave(struct image_sched *s, struct job *j);

/* Before a plan: references the embeddings that each sequence needs, releases the ones before its position,
 * and sets sched_seq.ready. True: ready has changed for some sequence. */
bool image_sched_update(struct image_sched *s);
/* After the step, whose sequences were computed: records its duration. */
void image_sched_note_step(struct image_sched *s, const struct sched_plan *plan, uint64_t took_ns);
/* Between two steps: a slice of work, if there is any. stepped: something was computed since the last call.
 * True: something was done. */
bool image_sched_run(struct image_sched *s, bool stepped);

/* ---- memory ---- */

/* For the list of holders: embeddings and the encoder's memory; part of it that can be dropped on request;
 * how much the process would shrink without that. */
struct pools_beside image_sched_beside(const struct image_sched *s);
/* Returns the part of image_sched_beside() that was idle since before_ns (UINT64_MAX: since any time): the
 * encoder's memory, while no image is in progress. */
uint64_t image_sched_spare_bytes(const struct image_sched *s, uint64_t before_ns);
/* Images with unreferenced embeddings. */
uint32_t image_sched_unused(const struct image_sched *s);
/* Gives back a unit of memory idle since before_ns, else with `features` the least recently used image;
 * returns the bytes, 0: nothing. */
uint64_t image_sched_give(struct image_sched *s, uint64_t before_ns, bool features);

/* ---- for reports ---- */

void image_sched_read_gauges(const struct image_sched *s, struct engine_numbers *ret);
/* The job's images that need no more work. */
uint32_t image_sched_images_done(const struct job *j);
/* True: the job's sequence waits for an image. */
bool image_sched_is_awaited(const struct job *j);

#endif
