/* cuda_experts.c - experts of the device, and experts in the machine's memory.
 *
 * A step stops at each layer with experts in the machine: inputs and choices come to the host, the CPU
 * computes, and the pairs' rows go back. Such steps are not recorded (cuda_record.c). What fails on the way
 * fails the step. */
#include "compute/cpu/cpu_experts.h"
#include "compute/cuda/cuda_step.h"

#include <errno.h>

int cuda_experts_open(struct cuda *c, const struct compute_opts *o)
{
    int r = cpu_experts_open(o, &c->experts);
    if (r < 0)
        return r;
    const struct cpu_experts_rows rows = cpu_experts_rows(c->experts);
    device_pin(o->device, rows.in, rows.bytes);
    return 0;
}

void cuda_experts_close(struct cuda *c)
{
    if (c->experts)
        device_unpin(&c->device->device, cpu_experts_rows(c->experts).in);
}

/* Rows lie `stride` floats apart on the device, and `host_stride` in the machine's memory. One copy takes all
 * where both are equal. */
struct rows_copy {
    float *device, *host;
    size_t stride, host_stride;
    uint32_t rows, width;
};

static bool copy_rows(struct cuda *c, const struct rows_copy *r, bool to_host)
{
    struct cuda_device *d = c->device;
    const bool whole = r->stride == r->host_stride;
    const uint32_t count = whole ? 1 : r->rows;
    const size_t bytes = (whole ? ((size_t)r->rows - 1) * r->stride + r->width : r->width) * sizeof(float);
    bool ok = true;
    for (uint32_t i = 0; ok && i < count; i++) {
        const uintptr_t at = (uintptr_t)(r->device + i * r->stride);
        float *host = r->host + i * r->host_stride;
        ok = cuda_done(c,
                       to_host ? d->driver->get(host, at, bytes, d->stream)
                               : d->driver->put(at, host, bytes, d->stream),
                       "experts");
    }
    cuda_queued(d);
    return ok;
}

static void compute_beside(struct cuda *c, const struct op_experts *a)
{
    struct cuda_device *d = c->device;
    const struct cpu_experts_rows p = cpu_experts_rows(c->experts);
    const struct cuda_rows x = cuda_rows(c, a->x), out = cuda_rows(c, a->out);
    const uint32_t tokens = c->step.tokens, pairs = tokens * c->shape->top_k;
    const struct rows_copy in = {x.at, p.in, x.stride, p.in_stride, tokens, a->x.width},
                           back = {out.at, p.out, out.stride, p.out_stride, pairs, a->out.width};
    cuda_flush(c);
    if (c->error < 0 || !copy_rows(c, &in, true))
        return;
    if (!cuda_done(c, d->driver->get(p.chosen, (uintptr_t)c->expert, pairs * sizeof(p.chosen[0]), d->stream),
                   "experts"))
        return;
    if (!cuda_drain(d, "experts") || !cpu_experts_run(c->experts, a, tokens))
        c->error = -EIO;
    else
        (void)copy_rows(c, &back, false);
}

void cuda_experts(struct compute *compute, const struct op_experts *a)
{
    struct cuda *c = cuda_of(compute);
    if (a->machine)
        compute_beside(c, a);
    else
        compute_experts_here(compute, a);
}
