/* cuda_sample.c - tokens are sampled from a step's logits, or whole rows go to the host.
 *
 * The rows stay on the device until the next step. */
#include "compute/batch.h"
#include "compute/cuda/cuda_step.h"
#include "compute/row_sample.h"

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

static void put(struct cuda *c, const void *to, const void *from, uint64_t bytes)
{
    struct cuda_device *d = c->device;
    if (bytes > 0)
        (void)cuda_done(c, d->driver->put((uintptr_t)to, from, bytes, d->stream), "samples");
}

/* Work that at least one row needs. */
struct needs {
    bool sums, tops, edits, weights;
};

static struct needs needs_of(const struct batch *b)
{
    struct needs ret = {.edits = b->samples->edit_count > 0};
    for (uint32_t i = 0; i < b->logit_count; i++) {
        const struct row_sample *d = &b->samples->rows[i];
        if (!d->wanted)
            continue;
        ret.sums |= d->sums;
        ret.tops |= d->tops > 0;
        ret.weights |= d->temperature > 0 && d->top_k != 1;
    }
    return ret;
}

static void run_tops(struct cuda *c)
{
    struct cuda_device *d = c->device;
    uint32_t rows = c->in->logit_count;
    const struct cuda_top k = {c->logits, cuda_valid(c), c->samples, c->tops, c->shape->vocab};
    cuda_run(c, CUDA_KERNEL_top,
             (struct cuda_grid){rows * (d->early ? CUDA_TOP_BLOCKS : 1), 1, 1, CUDA_TOP_THREADS, 0}, &k);
    (void)cuda_done(c, d->driver->get(c->in->tops, (uintptr_t)c->tops, rows * sizeof(c->tops[0]), d->stream),
                    "tops");
}

/* Sums and alternatives come first, from rows without edits. */
static void run_samples(struct cuda *c)
{
    const struct row_samples *samples = c->in->samples;
    const struct needs needs = needs_of(c->in);
    struct cuda_device *d = c->device;
    uint32_t rows = c->in->logit_count, vocab = c->shape->vocab, blocks = DIV_UP(vocab, ROW_SAMPLE_BLOCK);
    ASSERT(samples->edit_count <= ROW_EDITS_EACH * c->seqs_max && samples->mask_count <= c->seqs_max);
    put(c, c->samples, samples->rows, rows * sizeof(samples->rows[0]));
    put(c, c->edits, samples->edits, samples->edit_count * sizeof(samples->edits[0]));
    put(c, c->masks, samples->masks, (uint64_t)samples->mask_count * DIV_UP(vocab, 64u) * sizeof(uint64_t));
    const struct cuda_grid by_block = {blocks, rows, 1, ROW_SAMPLE_BLOCK / 4, 0};
    struct cuda_sample k = {.logits = c->logits,
                            .valid = cuda_valid(c),
                            .masks = c->masks,
                            .rows = c->samples,
                            .edits = c->edits,
                            .sampled = c->sampled,
                            .most = c->most,
                            .weights = c->block_weights,
                            .vocab = vocab,
                            .blocks = blocks,
                            .raw = 1};
    if (needs.sums) {
        cuda_run(c, CUDA_KERNEL_sample_most, by_block, &k);
        cuda_run(c, CUDA_KERNEL_sample_weigh, by_block, &k);
    }
    if (needs.tops)
        run_tops(c);
    if (needs.sums || needs.edits)
        cuda_run(c, CUDA_KERNEL_sample_edit, cuda_by_row(rows), &k);
    k.raw = 0;
    cuda_run(c, CUDA_KERNEL_sample_most, by_block, &k);
    if (needs.weights)
        cuda_run(c, CUDA_KERNEL_sample_weigh, by_block, &k);
    cuda_run(c, CUDA_KERNEL_sample_pick, (struct cuda_grid){rows, 1, 1, CUDA_SAMPLE_THREADS, 0}, &k);
    (void)cuda_done(
        c, d->driver->get(samples->sampled, (uintptr_t)c->sampled, rows * sizeof(c->sampled[0]), d->stream),
        "samples");
}

/* Rows without a sample. */
static void get_others(struct cuda *c)
{
    const struct batch *b = c->in;
    for (uint32_t from = 0, end; from < b->logit_count; from = end) {
        for (end = from; end < b->logit_count && !b->samples->rows[end].wanted;)
            end++;
        get_rows(c, b->logits, from, end - from);
        end += end == from;
    }
}

void cuda_get_logits(struct cuda *c)
{
    const struct batch *b = c->in;
    bool samples =
        b->samples && c->logits_here && DIV_UP(c->shape->vocab, ROW_SAMPLE_BLOCK) <= CUDA_SAMPLE_BLOCKS;
    c->rows_left = samples ? b->logit_count : 0;
    c->rows_to = b->logits;
    for (uint32_t i = 0; b->samples && i < b->logit_count; i++)
        b->samples->sampled[i].state = ROW_LEFT;
    if (samples) {
        run_samples(c);
        get_others(c);
    } else if (c->logits_here) {
        get_rows(c, b->logits, 0, b->logit_count);
    }
}

int cuda_finish_step(struct cuda *c)
{
    int r = cuda_wait(c->device);
    int error = c->error;
    c->error = 0;
    return r == 0 ? error : r;
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
