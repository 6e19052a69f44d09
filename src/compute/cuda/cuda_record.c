/* cuda_record.c - steps of few tokens as graphs of the driver's, which cost a launch each.
 *
 * A step's kernels take their arguments from its operations and from struct cuda_step; all else that differs
 * lies in the batch on the device. So a record is of one key and one struct cuda_step. It is made when such a
 * step comes for the second time, in a queue of its own, beside the launches that compute the step: a driver
 * that has no memory for the record costs no step.
 *
 * The driver keeps a record's kernels and their arguments on the device and in the heap, and says nothing of
 * their size. So a record is charged by the number of its kernels, which are counted when the step comes for
 * the first time. Where an account has no room, the step's kernels are launched one by one. */
#include "compute/batch.h"
#include "compute/cuda/cuda_step.h"

#include "base/clock.h"

#include <string.h>
#include <time.h>

/* Memory of a recorded kernel. With driver 580 on an H100 the driver's figure grew by 2.8 KiB for each,
 * resident memory by 6.1 to 6.5 KiB (64 steps of 163 and 255 kernels). */
#define KERNEL_BYTES      3072u
#define KERNEL_HOST_BYTES 6656u
/* Kernels of a step, for the plan: of a layer, and of all else. Families have 7 to 16 in a layer beside those
 * 32; for a family with more there is room for fewer records. */
#define LAYER_KERNELS 16u
#define STEP_KERNELS  32u

#define REFUSED_NS (30 * NS_PER_S) /* until the driver is asked to make a record again */

void cuda_records_cost(const struct compute_shape *s, struct compute_cost *ret)
{
    uint64_t kernels =
        (uint64_t)CUDA_RECORDS_MAX * (LAYER_KERNELS * (s->layers + s->mtp_count) + STEP_KERNELS);
    ret->recorded_bytes = kernels * KERNEL_BYTES;
    ret->recorded_host_bytes = kernels * KERNEL_HOST_BYTES;
}

static bool can_record(const struct cuda *c)
{
    const struct batch *b = c->in;
    return !c->experts && b->token_count <= CUDA_RECORD_TOKENS && b->logit_count <= c->seqs_max &&
           b->value_count == 0 && b->image_count == 0 && !b->best && !c->device->profile;
}

static struct cuda_record *find(struct cuda *c, uint32_t key)
{
    for (uint32_t i = 0; i < CUDA_RECORDS_MAX; i++) {
        struct cuda_record *r = &c->records[i];
        if (r->used > 0 && r->key == key && memcmp(&r->step, &c->step, sizeof(r->step)) == 0)
            return r;
    }
    return NULL;
}

static bool charge(struct cuda *c, struct cuda_record *r)
{
    uint64_t bytes = (uint64_t)r->kernels * KERNEL_BYTES;
    ASSERT(!r->charged && !r->made);
    if (charge_take_both(c->recorded, bytes, c->recorded_host, (uint64_t)r->kernels * KERNEL_HOST_BYTES) < 0)
        return false;
    r->charged = true;
    atomic_fetch_add(&c->device->committed, bytes);
    return true;
}

/* The step's kernels are launched one by one again. */
static void unmake(struct cuda *c, struct cuda_record *r)
{
    if (r->made)
        (void)c->device->driver->graph_unmake(r->made);
    r->made = NULL;
    if (!r->charged)
        return;
    r->charged = false;
    charge_give(c->recorded, (uint64_t)r->kernels * KERNEL_BYTES);
    charge_give(c->recorded_host, (uint64_t)r->kernels * KERNEL_HOST_BYTES);
    atomic_fetch_sub(&c->device->committed, (uint64_t)r->kernels * KERNEL_BYTES);
}

/* The driver does not take it: out of memory, most likely. So it would not take others either. */
static void refuse(struct cuda *c, struct cuda_record *r)
{
    unmake(c, r);
    c->refused_ns = clock_now_ns();
}

static bool is_refused(const struct cuda *c)
{
    return c->refused_ns > 0 && clock_now_ns() - c->refused_ns < REFUSED_NS;
}

static void drop(struct cuda *c, struct cuda_record *r)
{
    unmake(c, r);
    *r = (struct cuda_record){0};
}

/* In the place that was used last of all. */
static struct cuda_record *note(struct cuda *c, uint32_t key)
{
    struct cuda_record *r = &c->records[0];
    for (uint32_t i = 1; i < CUDA_RECORDS_MAX; i++)
        if (c->records[i].used < r->used)
            r = &c->records[i];
    drop(c, r);
    r->key = key;
    r->step = c->step;
    r->used = ++c->clock;
    return r;
}

static void begin(struct cuda *c, struct cuda_record *r)
{
    struct cuda_device *d = c->device;
    if (!c->recording &&
        !cuda_ok(d, d->driver->stream_create(&c->recording, CUDA_STREAM_NON_BLOCKING), "record")) {
        refuse(c, r);
        return;
    }
    if (!charge(c, r))
        return;
    if (cuda_ok(d, d->driver->capture_begin(c->recording, CUDA_CAPTURE_RELAXED), "record")) {
        c->record = r;
        c->record_failed = false;
    } else {
        refuse(c, r);
    }
}

/* False: the step's kernels are to be launched. */
static bool replay(struct cuda *c, struct cuda_record *r)
{
    struct cuda_device *d = c->device;
    if (!cuda_ok(d, d->driver->graph_launch(r->made, d->stream), "replay")) {
        refuse(c, r);
        return false;
    }
    c->logits_here = c->step.logits > 0;
    c->replayed = r;
    c->replayed_ns = clock_now_ns();
    return true;
}

bool cuda_replay(struct compute *compute, uint32_t key)
{
    struct cuda *c = cuda_of(compute);
    struct cuda_record *r = can_record(c) ? find(c, key) : NULL;
    c->kernels = 0;
    c->replayed = NULL;
    if (!r) {
        c->noted = can_record(c) ? note(c, key) : NULL;
        return false;
    }
    r->used = ++c->clock;
    if (r->made)
        return replay(c, r);
    if (!is_refused(c))
        begin(c, r);
    return false;
}

/* A step that was cancelled was not counted whole. */
static void end_noted(struct cuda *c, bool run)
{
    struct cuda_record *r = c->noted;
    c->noted = NULL;
    if (r && run)
        r->kernels = c->kernels;
    else if (r)
        drop(c, r);
}

void cuda_record_end(struct cuda *c, bool run)
{
    struct cuda_device *d = c->device;
    struct cuda_record *r = c->record;
    void *graph = NULL;
    if (run)
        cuda_flush(c);
    c->held.w = NULL;
    c->norm.held = false;
    c->append.held = false;
    end_noted(c, run);
    if (!r)
        return;
    bool ok = cuda_ok(d, d->driver->capture_end(c->recording, &graph), "record");
    c->record = NULL;
    if (!run || c->error < 0)
        unmake(c, r);
    else if (!ok || c->record_failed || !cuda_ok(d, d->driver->graph_make(&r->made, graph, 0), "record"))
        refuse(c, r);
    if (ok)
        (void)d->driver->graph_destroy(graph);
}

void cuda_replay_wait(struct cuda *c)
{
    struct cuda_device *d = c->device;
    struct cuda_record *r = c->replayed;
    if (!r)
        return;
    uint64_t wake = c->replayed_ns + r->took_ns / 4 * 3;
    uint64_t sleep = r->took_ns > 0 ? c->replayed_ns + 2 * r->took_ns : UINT64_MAX;
    const struct timespec at = {.tv_sec = (time_t)(wake / NS_PER_S), .tv_nsec = (long)(wake % NS_PER_S)};
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    while (d->driver->stream_query(d->stream) == CUDA_ERROR_NOT_READY && clock_now_ns() < sleep)
        ;
    uint64_t took = clock_now_ns() - c->replayed_ns;
    r->took_ns = r->took_ns == 0 ? took : MIN_OF(took, r->took_ns + r->took_ns / 64);
    c->replayed = NULL;
}

void cuda_records_free(struct cuda *c)
{
    cuda_use(c->device);
    for (uint32_t i = 0; i < CUDA_RECORDS_MAX; i++)
        drop(c, &c->records[i]);
    if (c->recording)
        (void)c->device->driver->stream_destroy(c->recording);
}
