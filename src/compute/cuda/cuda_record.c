/* cuda_record.c - steps of few tokens as graphs of the driver's, which cost a launch each.
 *
 * A step's kernels take their arguments from its operations and from struct cuda_step; all else that differs
 * lies in the batch on the device. So a record is of one key and one struct cuda_step. It is made when such a
 * step comes for the second time, in a queue of its own: other models use the device's meanwhile. */
#include "compute/cuda/cuda_step.h"

#include <string.h>

static bool can_record(const struct cuda *c)
{
    const struct batch *b = c->in;
    return b->token_count <= CUDA_RECORD_TOKENS && b->logit_count <= c->seqs_max && b->value_count == 0 &&
           b->image_count == 0 && !b->best && !c->device->profile;
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

static void drop(struct cuda *c, struct cuda_record *r)
{
    if (r->made)
        (void)c->device->driver->graph_unmake(r->made);
    *r = (struct cuda_record){0};
}

/* In the place that was used last of all. */
static void note(struct cuda *c, uint32_t key)
{
    struct cuda_record *r = &c->records[0];
    for (uint32_t i = 1; i < CUDA_RECORDS_MAX; i++)
        if (c->records[i].used < r->used)
            r = &c->records[i];
    drop(c, r);
    r->key = key;
    r->step = c->step;
    r->used = ++c->clock;
}

bool cuda_replay(struct compute *compute, uint32_t key)
{
    struct cuda *c = cuda_of(compute);
    struct cuda_device *d = c->device;
    struct cuda_record *r = can_record(c) ? find(c, key) : NULL;
    if (!r) {
        if (can_record(c))
            note(c, key);
        return false;
    }
    r->used = ++c->clock;
    if (r->made) {
        c->logits_here = c->step.logits > 0;
        return cuda_ok(d, d->driver->graph_launch(r->made, d->stream), "replay");
    }
    if (!c->recording &&
        !cuda_ok(d, d->driver->stream_create(&c->recording, CUDA_STREAM_NON_BLOCKING), "record"))
        return false;
    if (cuda_ok(d, d->driver->capture_begin(c->recording, CUDA_CAPTURE_RELAXED), "record")) {
        c->record = r;
        c->stream = c->recording;
    }
    return false;
}

void cuda_record_end(struct cuda *c, bool run)
{
    struct cuda_device *d = c->device;
    struct cuda_record *r = c->record;
    void *graph = NULL;
    if (run)
        cuda_flush(c);
    c->held.w = NULL;
    if (!r)
        return;
    bool ok = cuda_ok(d, d->driver->capture_end(c->recording, &graph), "record");
    c->stream = d->stream;
    c->record = NULL;
    if (ok && run && cuda_ok(d, d->driver->graph_make(&r->made, graph, 0), "record"))
        (void)cuda_ok(d, d->driver->graph_launch(r->made, d->stream), "record");
    if (ok)
        (void)d->driver->graph_destroy(graph);
}

void cuda_records_free(struct cuda *c)
{
    cuda_use(c->device);
    for (uint32_t i = 0; i < CUDA_RECORDS_MAX; i++)
        drop(c, &c->records[i]);
    if (c->recording)
        (void)c->device->driver->stream_destroy(c->recording);
}
