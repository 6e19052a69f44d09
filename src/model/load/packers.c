/* packers.c - tiles are claimed in order, and no more of them after a failure. So the first that fails is the
 * same with any number of threads. */
#include "model/load/packers.h"

#include "base/check.h"
#include "base/threads/priority.h"
#include "base/threads/thread_nice.h"
#include "compute/backend.h"
#include "compute/device.h"

#include <errno.h>
#include <time.h>

#define STAGES_BYTES_MAX ((uint64_t)8 << 20)
#define NICE             10
#define BUSY_NAP_NS      2000000

/* ---- tiles ---- */

static bool has_tile(const struct packers *p)
{
    return p->work && p->error == 0 && p->next < p->tiles;
}

static bool claim(struct packers *p, uint32_t *ret)
{
    pthread_mutex_lock(&p->lock);
    bool there = has_tile(p);
    if (there) {
        *ret = p->next++;
        p->at_work++;
    }
    pthread_mutex_unlock(&p->lock);
    return there;
}

/* Ends a tile; `e` belongs to the error, NULL: there is no text. */
static void end_tile(struct packers *p, uint32_t tile, int error, const struct err *e)
{
    pthread_mutex_lock(&p->lock);
    ASSERT(p->at_work > 0 && p->work);
    if (error != 0 && (p->error == 0 || tile < p->failed)) {
        p->error = error;
        p->failed = tile;
        p->e = e ? *e : (struct err){{0}};
    }
    if (--p->at_work == 0)
        pthread_cond_signal(&p->idle);
    pthread_mutex_unlock(&p->lock);
}

/* Works off tiles until none is left to claim. */
static void work_here(struct packers *p)
{
    const struct packers_work *w = p->work;
    uint32_t tile;
    while (claim(p, &tile)) {
        struct err e = {{0}};
        int r = w->tile(w->arg, tile, &p->each[0].stage, &e), between = 0;
        if (r == 0 && w->between)
            between = w->between(w->arg);
        end_tile(p, tile, r != 0 ? r : between, r != 0 ? &e : NULL);
    }
}

/* ---- other threads ---- */

/* Waits for a tile. False: the load has ended. */
static bool await(struct packers *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->ends && !has_tile(p))
        pthread_cond_wait(&p->begun, &p->lock);
    bool goes_on = !p->ends;
    pthread_mutex_unlock(&p->lock);
    return goes_on;
}

static void *packer_main(void *arg)
{
    struct packer *own = arg;
    struct packers *p = own->packers;
    const struct timespec nap = {.tv_nsec = BUSY_NAP_NS};
    uint32_t tile;
    thread_nice(NICE);
    while (await(p)) {
        if (p->device->ops->is_busy(p->device)) {
            nanosleep(&nap, NULL);
        } else if (claim(p, &tile)) {
            struct err e = {{0}};
            int r = p->work->tile(p->work->arg, tile, &own->stage, &e);
            end_tile(p, tile, r, &e);
        }
    }
    return NULL;
}

/* ---- interface ---- */

static uint32_t count_for(uint64_t stage_bytes, uint32_t workers)
{
    uint64_t fit = stage_bytes > 0 ? MAX_OF(STAGES_BYTES_MAX / stage_bytes, (uint64_t)1) : PACKERS_MAX;
    return (uint32_t)MIN_OF(fit, (uint64_t)MIN_OF(workers, PACKERS_MAX));
}

uint64_t packers_bytes(uint64_t stage_bytes)
{
    uint32_t count = count_for(stage_bytes, device_default_workers());
    return count * stage_bytes + (count - 1) * (uint64_t)thread_stack_bytes(PACKERS_STACK_BYTES);
}

static int give_stage(struct packer *own, const struct packers_opts *o)
{
    return o->stage_bytes > 0 ? weight_staging_init(&own->stage, o->checkpoint, o->account, o->stage_bytes)
                              : 0;
}

/* Adds a thread with its stage. False: the system refused one of them. */
static bool add_thread(struct packers *p, const struct packers_opts *o)
{
    struct packer *own = &p->each[p->count];
    struct charge charge = o->account ? account_charge(o->account) : (struct charge){0};
    *own = (struct packer){.packers = p};
    if (give_stage(own, o) < 0)
        return false;
    if (thread_stack_init(&own->stack, PACKERS_STACK_BYTES, o->account ? &charge : NULL) == 0) {
        if (thread_stack_start(&own->stack, packer_main, own, &own->thread) == 0) {
            p->count++;
            return true;
        }
        thread_stack_done(&own->stack);
    }
    weight_staging_done(&own->stage);
    return false;
}

int packers_start(struct packers *p, const struct packers_opts *o)
{
    uint32_t most = device_default_workers();
    uint32_t count =
        count_for(o->stage_bytes, o->device->backend->apart ? most : MIN_OF(o->device->workers, most));
    *p = (struct packers){.device = o->device};
    int r = give_stage(&p->each[0], o);
    if (r < 0)
        return r;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->begun, NULL);
    pthread_cond_init(&p->idle, NULL);
    p->count = 1;
    /* A thread inherits the priority of the one that starts it, for good. */
    priority_raise();
    while (p->count < count && add_thread(p, o))
        ;
    priority_restore();
    return 0;
}

void packers_stop(struct packers *p)
{
    if (p->count == 0)
        return;
    pthread_mutex_lock(&p->lock);
    ASSERT(!p->work && p->at_work == 0);
    p->ends = true;
    pthread_cond_broadcast(&p->begun);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 1; i < p->count; i++) {
        pthread_join(p->each[i].thread, NULL);
        thread_stack_done(&p->each[i].stack);
        weight_staging_done(&p->each[i].stage);
    }
    weight_staging_done(&p->each[0].stage);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->begun);
    pthread_mutex_destroy(&p->lock);
    *p = (struct packers){0};
}

struct weight_staging *packers_staging(struct packers *p)
{
    ASSERT(p->count > 0);
    return &p->each[0].stage;
}

static int run_alone(const struct packers_work *w, uint32_t tiles, struct err *e)
{
    int r = 0;
    for (uint32_t tile = 0; r == 0 && tile < tiles; tile++) {
        r = w->tile(w->arg, tile, NULL, e);
        if (r == 0 && w->between)
            r = w->between(w->arg);
    }
    return r;
}

int packers_run(struct packers *p, const struct packers_work *work, uint32_t tiles, struct err *e)
{
    if (!p || p->count == 0)
        return run_alone(work, tiles, e);
    pthread_mutex_lock(&p->lock);
    ASSERT(!p->work && p->at_work == 0);
    p->work = work;
    p->tiles = tiles;
    p->next = 0;
    p->error = 0;
    pthread_cond_broadcast(&p->begun);
    pthread_mutex_unlock(&p->lock);
    work_here(p);
    pthread_mutex_lock(&p->lock);
    while (p->at_work > 0)
        pthread_cond_wait(&p->idle, &p->lock);
    p->work = NULL;
    int r = p->error;
    if (r != 0 && e && p->e.text[0])
        *e = p->e;
    pthread_mutex_unlock(&p->lock);
    return r;
}
