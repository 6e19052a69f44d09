/* packers.h - the threads of a load. They read pieces of tensors and pack them, fill memory, and compare a
 * packed file's checksums.
 *
 * The loading thread divides work into tiles and takes part in it. While an engine computes on the device, it
 * goes on alone. Bound: PACKERS_MAX threads; their stages take at most 8 MiB together, or there is one stage.
 * Functions are for the loading thread only. */
#ifndef PLATEAU_MODEL_PACKERS_H
#define PLATEAU_MODEL_PACKERS_H

#include "model/load/weight_staging.h"

#include "base/err.h"
#include "base/threads/thread_stack.h"

#include <pthread.h>

struct device;

#define PACKERS_MAX         8u
#define PACKERS_STACK_BYTES ((size_t)128 << 10)

struct packers_work {
    /* Tile `tile` of the work. `stage` is the thread's own for that long. 0, or an error and *e says why. */
    int (*tile)(void *arg, uint32_t tile, struct weight_staging *stage, struct err *e);
    /* On the loading thread after each of its tiles; other than 0 ends the work. May be NULL. */
    int (*between)(void *arg);
    void *arg;
};

struct packer {
    struct packers *packers;
    struct weight_staging stage;
    struct thread_stack stack; /* none of the loading thread's */
    pthread_t thread;
};

struct packers {
    /* Constant. */
    const struct device *device;
    uint32_t count; /* the loading thread counted; 0: not started */
    struct packer each[PACKERS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t begun, idle;
    /* With the lock held. */
    const struct packers_work *work; /* NULL: none */
    uint32_t tiles, next, at_work;   /* next: the tile to claim; at_work: threads with a tile */
    uint32_t failed;                 /* the first tile with an error */
    int error;
    struct err e;
    bool ends;
};

struct packers_opts {
    const struct checkpoint *checkpoint;
    struct account *account; /* account of stages and stacks; may be NULL */
    const struct device *device;
    uint64_t stage_bytes; /* bytes of a stage, whole pages; 0: stages are empty */
};

/* Bytes that the packers of any device take at most on this machine, with stages of `stage_bytes`. */
uint64_t packers_bytes(uint64_t stage_bytes);
/* 0 or -ENOMEM. Threads that the system refuses are missing. */
int packers_start(struct packers *p, const struct packers_opts *opts);
/* Fine on a zeroed struct. */
void packers_stop(struct packers *p);
/* The loading thread's stage. */
struct weight_staging *packers_staging(struct packers *p);

/* Calls work->tile once for every tile < tiles, until one fails. 0, the error of the first that failed, or
 * the result of work->between, which leaves *e alone. All threads have ended their tiles on return. `p` may
 * be NULL or not started: then the calling thread takes all tiles, without a stage. */
int packers_run(struct packers *p, const struct packers_work *work, uint32_t tiles, struct err *e);

#endif
