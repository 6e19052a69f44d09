/* cuda.c - the workspace, and a step's begin and end.
 *
 * The workspace is a list of arrays of the device, each with its bytes per model, token or sequence. Cost and
 * layout both come from this list. The batch goes to the device in one copy when a step begins: its arrays
 * are laid out side by side in host memory first. Logits of at most seqs_max tokens stay on the device until
 * the step's end; more of them go to the host in parts (cuda_project.c). */
#include "compute/batch.h"
#include "compute/cpu/cpu_experts.h"
#include "compute/cuda/cuda_step.h"
#include "compute/rope.h"
#include "compute/row_sample.h"
#include "compute/row_top.h"

#include <errno.h>
#include <string.h>

#define ALIGN     64u
#define NEEDS_MAX 40
/* A row begins at a whole line of 128 bytes. */
#define ROW_FLOATS 32u

_Static_assert(CUDA_GROUPS_MAX >= PAGE_GROUPS_MAX, "a sequence has a table for each group");
_Static_assert(CUDA_HALF_MAX == ROPE_HALF_MAX, "tables of angles are alike");

enum need_per { PER_MODEL, PER_TOKEN, PER_SEQ };

struct need {
    void *place; /* a pointer of any type */
    enum need_per per;
    uint64_t bytes;
};

#define NEED(p, kind, n) (*need++ = (struct need){(p), (kind), (n)})
#define FLOATS(n)        ((uint64_t)(n) * sizeof(float))

/* ---- the workspace ---- */

/* The batch's arrays, each rounded up to ALIGN. */
#define BATCH_ARRAYS 9u
static uint64_t batch_token_bytes(void)
{
    return 5 * sizeof(uint32_t) + sizeof(struct rope_position) + sizeof(dev_ptr);
}
static uint32_t pages_max(const struct compute_shape *s)
{
    return DIV_UP(s->context_max, PAGE_TOKENS) + 1;
}
static uint64_t batch_seq_bytes(const struct compute_shape *s)
{
    return sizeof(struct cuda_seq) + (uint64_t)MAX_OF(s->group_count, 1u) * pages_max(s) * sizeof(uint32_t);
}

static uint32_t best_rows(const struct compute_shape *s)
{
    return s->draft_vocab ? s->draft_vocab : s->vocab;
}

/* Returns the bytes of a token's widest input of a product. The next one may be written beside it. */
static uint64_t rounded_bytes(const struct compute_opts *o)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < o->array_count; i++) {
        uint32_t rows = o->arrays[i].rows == ROWS_PAIRS ? o->shape->top_k : 1;
        most = MAX_OF(most, rows * ROUND_UP(o->arrays[i].read, CUDA_UNIT));
    }
    return 2 * (uint64_t)ROUND_UP(most, CUDA_UNIT);
}

/* Samples from rows of logits. */
static struct need *list_samples(struct cuda *c, const struct compute_shape *s, struct need *need)
{
    const uint64_t blocks = DIV_UP(s->vocab, ROW_SAMPLE_BLOCK), words = DIV_UP(s->vocab, 64u);
    NEED(&c->tops, PER_SEQ, sizeof(struct row_top));
    NEED(&c->samples, PER_SEQ, sizeof(struct row_sample));
    NEED(&c->sampled, PER_SEQ, sizeof(struct row_sampled));
    NEED(&c->edits, PER_SEQ, ROW_EDITS_EACH * sizeof(struct row_edit));
    NEED(&c->masks, PER_SEQ, words * sizeof(uint64_t));
    NEED(&c->most, PER_SEQ, blocks * sizeof(float));
    NEED(&c->block_weights, PER_SEQ, blocks * sizeof(double));
    return need;
}

/* Bytes of a token's widest row that a product reads. */
static uint64_t shared_bytes(const struct compute_opts *o)
{
    uint32_t most = 1;
    for (uint32_t i = 0; i < o->array_count; i++)
        if (o->arrays[i].rows == ROWS_TOKENS)
            most = MAX_OF(most, o->arrays[i].read);
    return 2 * (uint64_t)ROUND_UP(most, CUDA_UNIT);
}

static uint32_t list_needs(struct cuda *c, const struct compute_opts *o, struct need needs[NEEDS_MAX])
{
    const struct compute_shape *s = o->shape;
    struct need *need = needs;
    ASSERT(o->array_count <= COMPUTE_ARRAYS_MAX);
    for (uint32_t i = 0; i < o->array_count; i++) {
        struct cuda_array *p = &c->arrays[i];
        p->rows = o->arrays[i].rows;
        p->stride = ROUND_UP(o->arrays[i].width, ROW_FLOATS);
        NEED(&p->base, PER_TOKEN, FLOATS(p->stride) * (p->rows == ROWS_PAIRS ? s->top_k : 1));
    }
    if (s->experts) {
        NEED(&c->expert, PER_TOKEN, s->top_k * sizeof(uint32_t));
        NEED(&c->pair_weight, PER_TOKEN, FLOATS(s->top_k));
        NEED(&c->shared_gate, PER_TOKEN, FLOATS(1));
        NEED(&c->order, PER_TOKEN, s->top_k * sizeof(uint32_t));
        NEED(&c->groups, PER_TOKEN, s->top_k * sizeof(struct cuda_expert_group));
        NEED(&c->group_count, PER_MODEL, sizeof(uint32_t));
    }
    NEED(&c->logits, PER_SEQ, FLOATS(s->vocab));
    need = list_samples(c, s, need);
    NEED(&c->valid, PER_MODEL, DIV_UP(s->vocab, 64u) * sizeof(uint64_t));
    if (s->mtp_count) {
        NEED(&c->best, PER_SEQ, FLOATS(2));
        NEED(&c->draft_ids, PER_MODEL, best_rows(s) * sizeof(uint32_t));
    }
    for (uint32_t i = 0; compute_rounds(o->mode) && i < COUNT_OF(c->rounded); i++)
        NEED(&c->rounded[i], PER_TOKEN, rounded_bytes(o));
    if (o->mode == COMPUTE_FP8)
        NEED(&c->small, PER_TOKEN, rounded_bytes(o) / 2 + 16 * sizeof(float));
    if (compute_rounds(o->mode) && s->experts)
        NEED(&c->rounded_shared, PER_MODEL, CUDA_SHARED_TOKENS * shared_bytes(o));
    if (compute_rounds(o->mode)) {
        NEED(&c->parts, PER_MODEL, CUDA_PARTS_BYTES);
        NEED(&c->attend_ended, PER_MODEL, CUDA_ATTEND_ENDS * sizeof(uint32_t));
        NEED(&c->meet, PER_MODEL, 2 * sizeof(uint32_t));
    }
    NEED(&c->ropes, PER_MODEL, sizeof(struct cuda_ropes));
    ASSERT(need - needs <= NEEDS_MAX);
    return (uint32_t)(need - needs);
}

struct compute_cost cuda_cost(const struct compute_opts *o)
{
    struct cuda c = {0};
    struct need needs[NEEDS_MAX];
    struct compute_bytes device = {0}, host = {0};
    uint32_t count = list_needs(&c, o, needs);
    uint64_t *const sums[] = {
        [PER_MODEL] = &device.fixed, [PER_TOKEN] = &device.token, [PER_SEQ] = &device.seq};
    for (uint32_t i = 0; i < count; i++)
        *sums[needs[i].per] += needs[i].bytes;
    host.fixed = sizeof(struct cuda) + (2 + BATCH_ARRAYS) * ALIGN;
    host.token = batch_token_bytes();
    host.seq = batch_seq_bytes(o->shape);
    device.fixed += (count + 1 + BATCH_ARRAYS) * ALIGN;
    device.token += host.token;
    device.seq += host.seq;
    struct compute_cost cost = {.device = device, .host = host};
    if (o->experts.in > 0)
        cpu_experts_cost(o, &cost.host);
    else
        cuda_records_cost(o->shape, &cost);
    return cost;
}

/* ---- the batch ---- */

/* Where the next array goes, on the host and on the device. */
struct packer {
    struct cuda *cuda;
    uint64_t used;
};

/* `room` bytes, of which `bytes` come from `from`. */
static void *pack(struct packer *p, uint64_t room, uint64_t bytes, const void *from, const void *ret)
{
    char *at = p->cuda->staging + p->used;
    const char *there = p->cuda->batch + p->used;
    if (from && bytes > 0)
        memcpy(at, from, bytes);
    memcpy((void *)(uintptr_t)ret, &there, sizeof(there));
    p->used += ROUND_UP(room, (uint64_t)ALIGN);
    return at;
}

static uint32_t pages_of(const struct batch_seq *s)
{
    return DIV_UP(s->position + s->count, (uint32_t)PAGE_TOKENS);
}

static struct cuda_seq seq_of(const struct batch_seq *s)
{
    struct cuda_seq r = {.first = s->first,
                         .count = s->count,
                         .position = s->position,
                         .second = s->second,
                         .state_in = s->state_in,
                         .state_out = s->state_out,
                         .pending = s->pending,
                         .keep_pending = s->keep_pending};
    memcpy(r.previous, s->previous.axis, sizeof(r.previous));
    return r;
}

/* Sequences, and their tables of pages, one after the other. */
static void pack_tables(struct packer *p, const struct batch *b, struct cuda_seq *seqs)
{
    struct cuda *c = p->cuda;
    uint32_t groups = c->shape->group_count, used = 0, *tables;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->seq_count; i++)
        bytes += (uint64_t)pages_of(&b->seqs[i]) * groups * sizeof(uint32_t);
    tables = pack(p, bytes, 0, NULL, &c->step.tables);
    for (uint32_t i = 0; i < b->seq_count; i++) {
        uint32_t count = pages_of(&b->seqs[i]);
        ASSERT(count <= c->pages_max);
        seqs[i] = seq_of(&b->seqs[i]);
        for (uint32_t g = 0; g < groups; g++) {
            seqs[i].pages[g] = used;
            if (b->seqs[i].pages[g])
                memcpy(tables + used, b->seqs[i].pages[g], count * sizeof(tables[0]));
            used += count;
        }
    }
}

/* Returns the most segments of a sequence in this step: few different numbers, since a record is for one. */
static uint32_t segments_of(const struct batch *b)
{
    uint32_t most = 0, segments = 4;
    for (uint32_t i = 0; i < b->seq_count; i++)
        most = MAX_OF(most, b->seqs[i].position + b->seqs[i].count);
    while (segments * CUDA_SEGMENT < most)
        segments *= 2;
    return segments;
}

/* Decoding sequences are a step's first ones. A sequence with more than FEW_EACH_MAX tokens, or several with
 * FEW_EACH each, share what they read of keys; others have nothing to share. */
#define FEW_EACH_MAX 8u
#define FEW_EACH     4u

static uint32_t few_of(const struct batch *b)
{
    uint32_t seqs = 0, tokens = 0;
    while (seqs < b->seq_count && b->seqs[seqs].count <= FEW_EACH_MAX)
        tokens += b->seqs[seqs++].count;
    return tokens < FEW_EACH * seqs ? tokens : 0;
}

static bool keeps(const struct batch *b)
{
    for (uint32_t i = 0; i < b->seq_count; i++)
        if (b->seqs[i].keep_pending)
            return true;
    return false;
}

/* The arrays of a small step lie where they lay in the last one: records hold their places. */
static void pack_batch(struct cuda *c, const struct batch *b)
{
    struct packer p = {c, 0};
    bool small = b->token_count <= CUDA_RECORD_TOKENS;
    uint64_t n = b->token_count, all = small ? MIN_OF(c->tokens_max, CUDA_RECORD_TOKENS) : n;
    uint64_t seqs_max = small ? MIN_OF(c->seqs_max, CUDA_RECORD_TOKENS) : b->seq_count;
    struct cuda_seq *seqs = pack(&p, seqs_max * sizeof(*seqs), 0, NULL, &c->step.seq);
    pack(&p, all * sizeof(b->ids[0]), n * sizeof(b->ids[0]), b->ids, &c->step.ids);
    pack(&p, all * sizeof(b->token_seq[0]), n * sizeof(b->token_seq[0]), b->token_seq, &c->step.token_seq);
    pack(&p, all * sizeof(b->positions[0]), n * sizeof(b->positions[0]), b->positions, &c->step.positions);
    pack(&p, all * sizeof(b->features[0]), n * sizeof(b->features[0]), b->features, &c->step.features);
    pack(&p, all * sizeof(b->logit_columns[0]),
         (b->logit_count + b->value_count) * sizeof(b->logit_columns[0]), b->logit_columns,
         &c->step.logit_columns);
    pack(&p, seqs_max * sizeof(b->hidden_columns[0]), b->seq_count * sizeof(b->hidden_columns[0]),
         b->hidden_columns, &c->step.hidden_columns);
    /* A step with images is not recorded. */
    if (b->ends && b->image_count > 0)
        pack(&p, n * sizeof(b->ends[0]), n * sizeof(b->ends[0]), b->ends, &c->step.ends);
    pack_tables(&p, b, seqs);
    (void)cuda_done(c, c->device->driver->put((uintptr_t)c->batch, c->staging, p.used, c->device->stream),
                    "batch");
}

static void step_begin(struct compute *compute, const struct batch *b)
{
    struct cuda *c = cuda_of(compute);
    const struct compute_shape *s = c->shape;
    ASSERT(b->seq_count <= c->seqs_max && b->token_count <= c->tokens_max);
    ASSERT(b->logit_count + b->value_count <= b->token_count);
    cuda_use(c->device);
    c->in = b;
    c->logits_here = false;
    c->rows_left = 0;
    c->rounded_of.width = c->shared_of.width = 0;
    c->lets_beside = c->routed = false;
    c->step = (struct cuda_step){.tokens = b->token_count,
                                 .seqs = b->seq_count,
                                 .logits = b->logit_count,
                                 .values = b->value_count,
                                 .states = cuda_pointer(b->states),
                                 .state_bytes = s->state_bytes,
                                 .pair_weight = c->pair_weight,
                                 .shared_gate = c->shared_gate,
                                 .top_k = s->top_k,
                                 .experts = s->experts,
                                 .segments = segments_of(b),
                                 .few = few_of(b),
                                 .keeps = keeps(b)};
    for (uint32_t g = 0; g < s->group_count; g++) {
        c->step.pages[g] = cuda_pointer(b->pages[g]);
        c->step.page_bytes[g] = s->groups[g].page_bytes;
    }
    pack_batch(c, b);
}

static int step_end(struct compute *compute)
{
    struct cuda *c = cuda_of(compute);
    cuda_record_end(c, true);
    cuda_get_logits(c);
    cuda_replay_wait(c);
    c->in = NULL;
    return cuda_finish_step(c);
}

/* The queue is empty then: pages and states may be given away. */
static void step_cancel(struct compute *compute)
{
    struct cuda *c = cuda_of(compute);
    cuda_record_end(c, false);
    c->in = NULL;
    (void)cuda_drain(c->device, "wait");
}

static void close_cuda(struct compute *compute)
{
    cuda_records_free(cuda_of(compute));
    cuda_experts_close(cuda_of(compute));
    cuda_encode_end(cuda_of(compute));
}

/* The driver copies from one device to the other, through the host where there is no link. The other device
 * computes nothing of this model. */
static void take_rows(struct compute *compute, struct compute *from, uint32_t array, uint32_t rows)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda *source = cuda_of(from);
    const struct cuda_array *to = &c->arrays[array], *of = &source->arrays[array];
    ASSERT(to->stride == of->stride && to->rows == ROWS_TOKENS);
    (void)cuda_done(c,
                    c->device->driver->move_between((uintptr_t)to->base, c->device->context,
                                                    (uintptr_t)of->base, source->device->context,
                                                    FLOATS(rows) * to->stride, c->device->stream),
                    "hand over");
}

/* ---- opening ---- */

static const struct compute_ops ops = {.close = close_cuda,
                                       .step_begin = step_begin,
                                       .replay = cuda_replay,
                                       .step_end = step_end,
                                       .step_cancel = step_cancel,
                                       .project = cuda_project,
                                       .row = cuda_row,
                                       .encode = cuda_encode,
                                       .take_rows = take_rows,
                                       COMPUTE_OPS(COMPUTE_OP_ENTRY, cuda)};

int cuda_open(const struct compute_opts *o, struct compute **ret)
{
    struct cuda *c = ARENA_NEW(o->host_memory, struct cuda);
    struct need needs[NEEDS_MAX];
    const uint64_t counts[] = {[PER_MODEL] = 1, [PER_TOKEN] = o->tokens_max, [PER_SEQ] = o->seqs_max};
    if (!c)
        return -ENOMEM;
    *c = (struct cuda){.compute = {&ops},
                       .device = cuda_device_of(o->device),
                       .shape = o->shape,
                       .tokens_max = o->tokens_max,
                       .seqs_max = o->seqs_max,
                       .pages_max = pages_max(o->shape),
                       .recorded = o->recorded,
                       .recorded_host = o->recorded_host};
    uint64_t at = ROUND_UP(o->range.at, (uint64_t)ALIGN);
    uint32_t count = list_needs(c, o, needs);
    for (uint32_t i = 0; i < count; i++) {
        void *place = cuda_pointer((dev_ptr){at});
        memcpy(needs[i].place, &place, sizeof(place));
        at += ROUND_UP(counts[needs[i].per] * needs[i].bytes, (uint64_t)ALIGN);
    }
    c->rounded_bytes = c->rounded[0] ? rounded_bytes(o) * o->tokens_max : 0;
    c->batch = cuda_pointer((dev_ptr){at});
    c->staging =
        arena_alloc(o->host_memory, batch_token_bytes() * o->tokens_max +
                                        batch_seq_bytes(o->shape) * o->seqs_max + BATCH_ARRAYS * ALIGN);
    *ret = &c->compute;
    if (!c->staging)
        return -ENOMEM;
    return o->experts.in > 0 ? cuda_experts_open(c, o) : 0;
}
