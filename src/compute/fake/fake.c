/* fake.c - a step is a queue: operations with their arguments, done by the CPU backend when the step ends.
 *
 * The operations of a step from compute_replay() on are recorded under its key. The next step of that key
 * runs the recording, whatever batch it has. The arguments in it are those of the first step, so one that
 * varies from step to step and is not in the batch computes something else and is found.
 *
 * Memory: a recording for each key, LAYER_OPS operations of a layer at most, and a copy of the batch. Of the
 * device's memory and of the machine's a recording takes OP_BYTES for each operation, as a GPU's do. */
#include "compute/batch.h"
#include "compute/fake/fake_device.h"
#include "compute/rope.h"
#include "compute/row_sample.h"
#include "compute/row_top.h"
#include "compute/shape.h"

#include "base/candidate.h"
#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define GARBAGE    0xdd
#define LAYER_OPS  24u /* most operations of a layer */
#define SINGLE_OPS 32u /* most operations of a step outside its layers */
#define COPIES_MAX 64u /* rows of weights, ahead of a step's other operations */
#define OP_BYTES   16u

struct queued;
typedef void run_fn(struct compute *cpu, const struct queued *q);

/* Arguments of the operation of that name. */
#define ARGUMENTS(backend, name, type) struct type name;
struct queued {
    run_fn *run;
    uint32_t products; /* products of compute_project() */
    union {
        COMPUTE_OPS(ARGUMENTS, )
        struct op_product product[OP_PRODUCTS_MAX];
    } a;
};
#undef ARGUMENTS

struct list {
    struct queued *ops; /* [max] */
    uint32_t count, max;
    bool whole; /* a recording: its step came to its end, and there was memory for it */
};

/* The batch's arrays as they were when the step began. */
struct copied {
    struct batch_seq *seqs;
    uint32_t *ids, *token_seq, *logit_columns, *hidden_columns;
    struct rope_position *positions;
    dev_ptr *features;
};

struct fake {
    struct compute compute; /* first */
    struct fake_device *device;
    struct compute *cpu;
    struct list ahead;                  /* before compute_replay() */
    struct list recorded[COMPUTE_KEYS]; /* from then on */
    struct list *open;                  /* that operations go to */
    struct list *run;                   /* that the step's end runs after `ahead`; NULL: nothing */
    struct batch batch;
    struct copied copied;
    uint32_t vocab, seqs_max;
    float *rows;                  /* [seqs_max][vocab]: logits of rows that were sampled from */
    struct candidate *candidates; /* [vocab]: of a sample */
    uint32_t rows_left;           /* that there may be, since the last step */
    float *rows_to;               /* where they go */
    size_t logit_bytes;           /* bytes of a row of logits */
    size_t value_bytes;           /* bytes of a row of values */
    bool begun;
    const struct charge *charge, *host_charge; /* for recordings */
};

static struct fake *fake_of_compute(struct compute *c)
{
    return (struct fake *)c;
}

/* ---- the workspace ---- */

static uint32_t ops_max(const struct compute_shape *s)
{
    return LAYER_OPS * (s->layers + s->mtp_count) + SINGLE_OPS;
}

static uint64_t token_bytes(const struct copied *b)
{
    return sizeof(b->ids[0]) + sizeof(b->token_seq[0]) + sizeof(b->logit_columns[0]) +
           sizeof(b->hidden_columns[0]) + sizeof(b->positions[0]) + sizeof(b->features[0]);
}

struct compute_cost fake_cost(const struct compute_opts *o)
{
    struct compute_cost c = backend_cpu.cost(o);
    const uint32_t arrays = COMPUTE_KEYS + 7;
    c.host.fixed += sizeof(struct fake) + arrays * 64 +
                    (COMPUTE_KEYS * (uint64_t)ops_max(o->shape) + COPIES_MAX) * sizeof(struct queued);
    c.host.token += token_bytes(NULL);
    c.host.seq += sizeof(struct batch_seq);
    c.device.fixed += 2 * 64 + o->shape->vocab * sizeof(struct candidate);
    c.device.seq += o->shape->vocab * sizeof(float);
    c.recorded_bytes = c.recorded_host_bytes = COMPUTE_KEYS * (uint64_t)ops_max(o->shape) * OP_BYTES;
    return c;
}

static int make_list(struct arena *a, uint32_t max, struct list *ret)
{
    *ret = (struct list){.ops = ARENA_ARRAY(a, struct queued, max), .max = max};
    return ret->ops ? 0 : -ENOMEM;
}

static int make_copied(struct arena *a, const struct compute_opts *o, struct copied *ret)
{
    *ret = (struct copied){.seqs = ARENA_ARRAY(a, struct batch_seq, o->seqs_max),
                           .ids = ARENA_ARRAY(a, uint32_t, o->tokens_max),
                           .token_seq = ARENA_ARRAY(a, uint32_t, o->tokens_max),
                           .logit_columns = ARENA_ARRAY(a, uint32_t, o->tokens_max),
                           .hidden_columns = ARENA_ARRAY(a, uint32_t, o->tokens_max),
                           .positions = ARENA_ARRAY(a, struct rope_position, o->tokens_max),
                           .features = ARENA_ARRAY(a, dev_ptr, o->tokens_max)};
    return ret->seqs && ret->ids && ret->token_seq && ret->logit_columns && ret->hidden_columns &&
                   ret->positions && ret->features
               ? 0
               : -ENOMEM;
}

/* ---- a step ---- */

/* Copies `count` elements, and leaves garbage to the caller. */
static void take(void *to, const void *from, size_t count, size_t bytes)
{
    memcpy(to, from, count * bytes);
    memset((void *)(uintptr_t)from, GARBAGE, count * bytes);
}

static void step_begin(struct compute *compute, const struct batch *b)
{
    struct fake *f = fake_of_compute(compute);
    ASSERT(!f->begun);
    f->begun = true;
    take(f->copied.seqs, b->seqs, b->seq_count, sizeof(b->seqs[0]));
    take(f->copied.ids, b->ids, b->token_count, sizeof(b->ids[0]));
    take(f->copied.token_seq, b->token_seq, b->token_count, sizeof(b->token_seq[0]));
    take(f->copied.positions, b->positions, b->token_count, sizeof(b->positions[0]));
    take(f->copied.features, b->features, b->token_count, sizeof(b->features[0]));
    take(f->copied.logit_columns, b->logit_columns, b->logit_count + b->value_count,
         sizeof(b->logit_columns[0]));
    take(f->copied.hidden_columns, b->hidden_columns, b->seq_count, sizeof(b->hidden_columns[0]));
    f->batch = *b;
    f->batch.seqs = f->copied.seqs;
    f->batch.ids = f->copied.ids;
    f->batch.token_seq = f->copied.token_seq;
    f->batch.positions = f->copied.positions;
    f->batch.features = f->copied.features;
    f->batch.logit_columns = f->copied.logit_columns;
    f->batch.hidden_columns = f->copied.hidden_columns;
    f->batch.beside = NULL; /* the caller computes on meanwhile */
    f->ahead.count = 0;
    f->rows_left = 0;
    f->open = &f->ahead;
    f->run = NULL;
}

static bool replay(struct compute *compute, uint32_t key)
{
    struct fake *f = fake_of_compute(compute);
    ASSERT(f->begun && f->open == &f->ahead && key < COMPUTE_KEYS);
    f->run = &f->recorded[key];
    f->open = f->run->whole ? NULL : f->run;
    if (f->run->whole) {
        atomic_fetch_add(&f->device->replays, 1);
        return true;
    }
    f->run->count = 0;
    return false;
}

static void run_list(struct fake *f, const struct list *l)
{
    for (uint32_t i = 0; l && i < l->count; i++)
        l->ops[i].run(f->cpu, &l->ops[i]);
}

/* Runs the queue: first the step's own operations. */
static int run(struct fake *f, const struct list *l)
{
    device_turn_begin(f->device->cpu);
    compute_step_begin(f->cpu, &f->batch);
    run_list(f, &f->ahead);
    run_list(f, l);
    int r = compute_step_end(f->cpu);
    device_turn_end(f->device->cpu);
    return r;
}

/* Without memory the next step of its key is queued anew. */
static void keep(struct fake *f, struct list *l)
{
    if (l->whole || charge_take_both(f->charge, l->count * OP_BYTES, f->host_charge, l->count * OP_BYTES) < 0)
        return;
    l->whole = true;
    atomic_fetch_add(&f->device->committed, l->count * OP_BYTES);
}

/* One sample in so many is left to the host, as a device may do with any. */
#define LEFT_EACH 16u

/* Samples from rows of logits. The host gets no logits of a sampled row, but all of them where there is no
 * room. */
static void sample_rows(struct fake *f)
{
    const struct batch *b = &f->batch;
    bool fit = b->logit_count <= f->seqs_max;
    f->rows_left = fit && b->samples ? b->logit_count : 0;
    f->rows_to = b->logits;
    for (uint32_t i = 0; b->samples && i < b->logit_count; i++) {
        const struct row_sample *d = &b->samples->rows[i];
        float *row = b->logits + (size_t)i * f->vocab;
        b->samples->sampled[i].state = ROW_LEFT;
        if (!d->wanted || !fit)
            continue;
        memcpy(f->rows + (size_t)i * f->vocab, row, f->logit_bytes);
        if (d->tops > 0)
            row_top_of(row, f->vocab, b->valid_ids, d->tops, &b->tops[i]);
        row_sample_of(b->samples, i, row, f->vocab, b->valid_ids, f->candidates, &b->samples->sampled[i]);
        if (b->samples->sampled[i].state == ROW_SAMPLED)
            b->samples->sampled[i].logit = f->rows[(size_t)i * f->vocab + b->samples->sampled[i].id];
        if (atomic_fetch_add(&f->device->sampled, 1) % LEFT_EACH == LEFT_EACH - 1)
            b->samples->sampled[i].state = ROW_LEFT;
        memset(row, 0xff, f->logit_bytes);
    }
}

static int row(struct compute *compute, uint32_t i)
{
    struct fake *f = fake_of_compute(compute);
    ASSERT(!f->begun);
    if (i >= f->rows_left)
        return 0;
    memcpy(f->rows_to + (size_t)i * f->vocab, f->rows + (size_t)i * f->vocab, f->logit_bytes);
    atomic_fetch_add(&f->device->rows, 1);
    return 0;
}

static int step_end(struct compute *compute)
{
    struct fake *f = fake_of_compute(compute);
    ASSERT(f->begun);
    f->begun = false;
    int r = fake_step_fault(f->device);
    if (f->run)
        keep(f, f->run);
    /* Logits and values that host code reads before the end, or after a failure, are not numbers. */
    if (f->batch.logit_count > 0)
        memset(f->batch.logits, 0xff, f->batch.logit_count * f->logit_bytes);
    if (f->batch.value_count > 0)
        memset(f->batch.values, 0xff, f->batch.value_count * f->value_bytes);
    if (r == 0)
        r = run(f, f->run);
    if (r == 0)
        sample_rows(f);
    return r;
}

static void step_cancel(struct compute *compute)
{
    struct fake *f = fake_of_compute(compute);
    ASSERT(f->begun);
    f->begun = false;
    (void)run(f, NULL);
}

/* ---- queueing ---- */

static struct queued *queue(struct compute *compute, run_fn *fn)
{
    struct fake *f = fake_of_compute(compute);
    ASSERT(f->begun && f->open && f->open->count < f->open->max);
    struct queued *q = &f->open->ops[f->open->count++];
    q->run = fn;
    return q;
}

#define QUEUE(backend, name, type)                                                                           \
    static void run_##name(struct compute *cpu, const struct queued *q)                                      \
    {                                                                                                        \
        compute_##name(cpu, &q->a.name);                                                                     \
    }                                                                                                        \
    static void backend##_##name(struct compute *c, const struct type *a)                                    \
    {                                                                                                        \
        queue(c, run_##name)->a.name = *a;                                                                   \
    }
COMPUTE_OPS(QUEUE, queue)
#undef QUEUE

static void run_products(struct compute *cpu, const struct queued *q)
{
    compute_project(cpu, q->a.product, q->products);
}

static void project(struct compute *c, const struct op_product *list, uint32_t count)
{
    struct queued *q = queue(c, run_products);
    ASSERT(count <= OP_PRODUCTS_MAX);
    q->products = count;
    memcpy(q->a.product, list, count * sizeof(list[0]));
}

/* An image's work lies between steps, and is done at once. */
static bool encode(struct compute *c, const struct op_encode *a, uint32_t *at)
{
    struct fake *f = fake_of_compute(c);
    ASSERT(!f->begun);
    device_turn_begin(f->device->cpu);
    bool done = compute_encode(f->cpu, a, at);
    device_turn_end(f->device->cpu);
    return done;
}

/* Nothing reads the rows before the queue runs. */
static void take_rows(struct compute *c, struct compute *from, uint32_t array, uint32_t rows)
{
    struct fake *f = fake_of_compute(c), *source = fake_of_compute(from);
    ASSERT(f->begun && !source->begun);
    f->cpu->ops->take_rows(f->cpu, source->cpu, array, rows);
}

static void close_fake(struct compute *compute)
{
    struct fake *f = fake_of_compute(compute);
    for (uint32_t i = 0; i < COMPUTE_KEYS; i++) {
        struct list *l = &f->recorded[i];
        if (!l->whole)
            continue;
        charge_give(f->charge, l->count * OP_BYTES);
        charge_give(f->host_charge, l->count * OP_BYTES);
        atomic_fetch_sub(&f->device->committed, l->count * OP_BYTES);
    }
}

static const struct compute_ops ops = {.close = close_fake,
                                       .step_begin = step_begin,
                                       .replay = replay,
                                       .step_end = step_end,
                                       .step_cancel = step_cancel,
                                       .project = project,
                                       .row = row,
                                       .encode = encode,
                                       .take_rows = take_rows,
                                       COMPUTE_OPS(COMPUTE_OP_ENTRY, queue)};

int fake_open(const struct compute_opts *o, struct compute **ret)
{
    struct arena *a = o->host_memory;
    struct fake *f = ARENA_NEW(a, struct fake);
    struct compute_opts inner = *o;
    if (!f)
        return -ENOMEM;
    *f = (struct fake){.compute = {&ops},
                       .device = fake_of(o->device),
                       .vocab = o->shape->vocab,
                       .seqs_max = o->seqs_max,
                       .logit_bytes = o->shape->vocab * sizeof(float),
                       .value_bytes = o->shape->hidden * sizeof(float),
                       .charge = o->recorded,
                       .host_charge = o->recorded_host};
    inner.device = f->device->cpu;
    int r = make_copied(a, o, &f->copied);
    if (r == 0)
        r = make_list(a, COPIES_MAX, &f->ahead);
    for (uint32_t i = 0; r == 0 && i < COMPUTE_KEYS; i++)
        r = make_list(a, ops_max(o->shape), &f->recorded[i]);
    if (r == 0)
        r = backend_cpu.open(&inner, &f->cpu);
    f->rows = arena_alloc_array(o->device_memory, (size_t)f->seqs_max * f->vocab, sizeof(float));
    f->candidates = ARENA_ARRAY(o->device_memory, struct candidate, f->vocab);
    if (r == 0 && (!f->rows || !f->candidates))
        r = -ENOMEM;
    *ret = &f->compute;
    return r;
}
