/* cuda_top.c - a step's logits go to the host: whole rows, or their best tokens.
 *
 * The rows stay on the device until the next step. */
#include "compute/cuda/cuda_step.h"

#include <errno.h>

static void get_rows(struct cuda *c, float *to, uint32_t from, uint32_t count)
{
    struct cuda_device *d = c->device;
    uint64_t vocab = c->shape->vocab;
    if (count > 0)
        (void)cuda_done(c,
                        d->driver->get(to + from * vocab, (uintptr_t)(c->logits + from * vocab),
                                       count * vocab * sizeof(float), d->stream),
                        "logits");
}

/* Of the rows from `from` on, how many are like it: whole, or not. */
static uint32_t run_of(const struct batch *b, uint32_t from)
{
    uint32_t until = from + 1;
    while (until < b->logit_count && (b->wants[until].count > 0) == (b->wants[from].count > 0))
        until++;
    return until - from;
}

static void get_tops(struct cuda *c)
{
    const struct batch *b = c->in;
    struct cuda_device *d = c->device;
    const struct cuda_top k = {.logits = c->logits,
                               .valid = cuda_valid(c),
                               .wants = c->wants,
                               .tops = c->tops,
                               .vocab = c->shape->vocab};
    const struct cuda_grid grid = {b->logit_count * (d->early ? CUDA_TOP_BLOCKS : 1), 1, 1, CUDA_TOP_THREADS,
                                   0};
    cuda_run(c, CUDA_KERNEL_top, grid, &k);
    for (uint32_t from = 0, count; from < b->logit_count; from += count) {
        count = run_of(b, from);
        if (b->wants[from].count == 0)
            get_rows(c, b->logits, from, count);
        else
            (void)cuda_done(c,
                            d->driver->get(b->tops + from, (uintptr_t)(c->tops + from),
                                           count * sizeof(c->tops[0]), d->stream),
                            "tops");
    }
}

static bool wants_tops(const struct batch *b)
{
    for (uint32_t i = 0; b->wants && i < b->logit_count; i++)
        if (b->wants[i].count > 0)
            return true;
    return false;
}

void cuda_get_logits(struct cuda *c)
{
    const struct batch *b = c->in;
    bool tops = wants_tops(b);
    c->rows_left = tops && c->logits_here ? b->logit_count : 0;
    c->rows_to = b->logits;
    if (c->rows_left > 0)
        get_tops(c);
    else if (c->logits_here)
        get_rows(c, b->logits, 0, b->logit_count);
    for (uint32_t i = 0; tops && !c->logits_here && i < b->logit_count; i++)
        b->tops[i].count = 0;
}

int cuda_finish_step(struct cuda *c)
{
    int r = cuda_wait(c->device);
    bool failed = c->failed;
    c->failed = false;
    return r == 0 && failed ? -EIO : r;
}

int cuda_row(struct compute *compute, uint32_t row)
{
    struct cuda *c = cuda_of(compute);
    if (row >= c->rows_left)
        return 0;
    cuda_use(c->device);
    get_rows(c, c->rows_to, row, 1);
    return cuda_finish_step(c);
}
