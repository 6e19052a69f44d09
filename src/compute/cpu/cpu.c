/* cpu.c - the workspace, and a step's begin and end.
 *
 * The workspace is a list of arrays, each with its bytes per model, token, sequence or worker. Cost and
 * layout both come from this list, so the plan cannot drift from the allocation. */
#include "compute/cpu/cpu.h"
#include "compute/cpu/cpu_experts.h"

#include "compute/batch.h"
#include "compute/layout.h"
#include "compute/shape.h"

#include <errno.h>
#include <string.h>

enum need_per { PER_MODEL, PER_TOKEN, PER_SEQ, PER_WORKER };

struct need {
    void **place;
    enum need_per per;
    uint64_t bytes;
};
#define NEEDS_MAX 64
#define ALIGN     64u

#define NEED(p, kind, n) (*need++ = (struct need){(void **)(p), (kind), (n)})
#define FLOATS(n)        ((uint64_t)(n) * sizeof(float))

static struct cpu_array lay_out_array(const struct array_spec *spec, unsigned sums)
{
    uint32_t sums_at = cpu_sums_at(spec->width),
             quants_at = cpu_sums_at(sums_at + cpu_sums_floats(sums, spec->read));
    return (struct cpu_array){.stride = cpu_row_stride(quants_at + cpu_quants_floats(sums, spec->read)),
                              .sums_at = spec->read ? sums_at : 0,
                              .quants_at = spec->read ? quants_at : 0,
                              .rows = spec->rows};
}

static uint32_t products_max(const struct compute_shape *s)
{
    return s->experts + OP_PRODUCTS_MAX * PROJECTION_PARTS_MAX;
}

/* Bound on the tiles of a draft's product, with any number of workers. */
static uint32_t draft_tiles_max(const struct compute_shape *s)
{
    return DIV_UP(DIV_UP(s->draft_vocab ? s->draft_vocab : s->vocab, MATRIX_PANEL), 4u);
}

static uint32_t attention_floats(const struct compute_shape *s)
{
    for (uint32_t i = 0; i < s->kv_count; i++) {
        if (s->kv[i].v_in_k)
            return KERN_ATTN_SCRATCH_V_IN_K;
    }
    return KERN_ATTN_SCRATCH;
}

/* The widest keys and values among the layers. */
static struct kv_layer kv_widest(const struct compute_shape *s)
{
    struct kv_layer widest = {0};
    for (uint32_t i = 0; i < s->kv_count; i++) {
        widest.k_width = MAX_OF(widest.k_width, s->kv[i].k_width);
        widest.v_width = MAX_OF(widest.v_width, s->kv[i].v_width);
    }
    return widest;
}

static uint32_t query_copies_floats(const struct compute_shape *s)
{
    return CPU_ATTEND_COPIES * kv_widest(s).k_width;
}

static struct need *list_attention(struct cpu *c, const struct compute_shape *s, struct need *need)
{
    NEED(&c->attention_scratch, PER_WORKER, FLOATS(attention_floats(s)));
    NEED(&c->queries, PER_WORKER, CPU_QUERIES_MAX * sizeof(struct kern_query));
    NEED(&c->query_copies, PER_WORKER, FLOATS(query_copies_floats(s)));
    NEED(&c->attention_parts, PER_WORKER, FLOATS(CPU_ATTEND_PARTS * KERN_ATTN_PART(kv_widest(s).v_width)));
    NEED(&c->attention_sums, PER_WORKER, FLOATS(2 * CPU_ATTEND_PARTS));
    NEED(&c->ranges_ended, PER_WORKER, CPU_ATTEND_TILES * sizeof(c->ranges_ended[0]));
    return need;
}

static struct need *list_experts(struct cpu *c, const struct compute_shape *s, struct need *need)
{
    uint64_t k = s->top_k;
    NEED(&c->expert_begin, PER_MODEL, (s->experts + 1) * sizeof(uint32_t));
    NEED(&c->pair_expert, PER_TOKEN, k * sizeof(uint32_t));
    NEED(&c->pair_order, PER_TOKEN, k * sizeof(uint32_t));
    NEED(&c->pair_weight, PER_TOKEN, FLOATS(k));
    NEED(&c->shared_gate, PER_TOKEN, FLOATS(1));
    NEED(&c->pair_x, PER_TOKEN, k * sizeof(float *));
    NEED(&c->pair_sums, PER_TOKEN, k * sizeof(float *));
    NEED(&c->pair_quants, PER_TOKEN, k * sizeof(void *));
    NEED(&c->pair_y, PER_TOKEN, k * sizeof(float *));
    return need;
}

/* Lists every array of the workspace; returns their number. */
static uint32_t list_needs(struct cpu *c, const struct compute_opts *o, struct need needs[NEEDS_MAX])
{
    const struct compute_shape *s = o->shape;
    struct need *need = needs;
    ASSERT(o->array_count <= COMPUTE_ARRAYS_MAX);
    for (uint32_t i = 0; i < o->array_count; i++) {
        c->arrays[i] = lay_out_array(&o->arrays[i], o->sums);
        NEED(&c->arrays[i].base, PER_TOKEN,
             FLOATS(c->arrays[i].stride) * (o->arrays[i].rows == ROWS_PAIRS ? s->top_k : 1));
    }
    NEED(&c->spans, PER_TOKEN, sizeof(struct cpu_span));
    NEED(&c->columns.x, PER_TOKEN, OP_PRODUCTS_MAX * sizeof(float *));
    for (int i = 0; i < CPU_GROUP_SIZES; i++)
        NEED(&c->columns.xsum[i], PER_TOKEN, OP_PRODUCTS_MAX * sizeof(float *));
    for (int i = 0; i < CPU_QUANTS_SIZES; i++)
        NEED(&c->columns.quants[i], PER_TOKEN, OP_PRODUCTS_MAX * sizeof(void *));
    for (int i = 0; i < PROJECTION_PARTS_MAX; i++)
        NEED(&c->columns.y[i], PER_TOKEN, OP_PRODUCTS_MAX * sizeof(float *));
    NEED(&c->products, PER_MODEL, products_max(s) * sizeof(struct cpu_product));
    if (s->experts)
        need = list_experts(c, s, need);
    if (s->kv_count > 0)
        need = list_attention(c, s, need);
    if (state_pending_max(s))
        NEED(&c->recurrent_scratch, PER_WORKER,
             FLOATS(MAX_OF(KERN_DELTA_SCRATCH(s->key_dim), KERN_SSM_SCRATCH(s->ssm.state))));
    if (s->mtp_count) {
        NEED(&c->draft_best, PER_SEQ, draft_tiles_max(s) * sizeof(struct draft_best));
        NEED(&c->draft_logits, PER_WORKER, FLOATS(CPU_DRAFT_COLUMNS * CPU_DRAFT_LOGITS));
    }
    ASSERT(need - needs <= NEEDS_MAX);
    return (uint32_t)(need - needs);
}

struct compute_cost cpu_cost(const struct compute_opts *o)
{
    struct cpu c = {0};
    struct need needs[NEEDS_MAX];
    uint64_t sums[PER_WORKER + 1] = {0};
    uint32_t count = list_needs(&c, o, needs);
    for (uint32_t i = 0; i < count; i++)
        sums[needs[i].per] += needs[i].bytes;
    struct compute_cost cost = {.device = {.fixed = sums[PER_MODEL] + (count + 1) * ALIGN + sizeof(c),
                                           .token = sums[PER_TOKEN],
                                           .seq = sums[PER_SEQ],
                                           .worker = sums[PER_WORKER]}};
    if (o->experts.in > 0)
        cpu_experts_cost(o, &cost.host);
    return cost;
}

/* ---- a step ---- */

static void add_spans(struct cpu *c, uint32_t index, const struct batch_seq *seq)
{
    for (uint32_t done = 0; done < seq->count;) {
        uint32_t position = seq->position + done;
        uint32_t count = MIN_OF(CPU_SPAN_TOKENS - position % CPU_SPAN_TOKENS, seq->count - done);
        c->spans[c->span_count++] = (struct cpu_span){index, seq->first + done, position, count};
        done += count;
    }
}

static void step_begin(struct compute *compute, const struct batch *b)
{
    struct cpu *c = cpu_of(compute);
    ASSERT(b->seq_count <= c->seqs_max && b->token_count <= c->tokens_max && b->logit_count <= c->logits_max);
    ASSERT(b->logit_count + b->value_count <= b->token_count);
    c->in = b;
    c->tokens = b->token_count;
    c->span_count = 0;
    c->append_due = false;
    for (uint32_t i = 0; i < b->seq_count; i++)
        add_spans(c, i, &b->seqs[i]);
}

static bool replay(struct compute *compute, uint32_t key)
{
    (void)compute;
    (void)key;
    return false;
}

/* Every operation has run when its call returned. */
static void step_cancel(struct compute *compute)
{
    cpu_of(compute)->in = NULL;
}

static int step_end(struct compute *compute)
{
    step_cancel(compute);
    return 0;
}

static void take_rows(struct compute *compute, struct compute *from, uint32_t array, uint32_t rows)
{
    const struct cpu_array *to = &cpu_of(compute)->arrays[array], *source = &cpu_of(from)->arrays[array];
    ASSERT(to->stride == source->stride && to->rows == ROWS_TOKENS);
    memcpy(to->base, source->base, (size_t)rows * to->stride * sizeof(float));
}

/* ---- opening ---- */

static const struct compute_ops ops = {.step_begin = step_begin,
                                       .replay = replay,
                                       .step_end = step_end,
                                       .step_cancel = step_cancel,
                                       .project = cpu_project,
                                       .project_glu = cpu_project_glu,
                                       .encode = cpu_encode,
                                       .take_rows = take_rows,
                                       COMPUTE_OPS(COMPUTE_OP_ENTRY, cpu)};

int cpu_open(const struct compute_opts *o, struct compute **ret)
{
    struct arena *a = o->device_memory;
    struct cpu_device *device = cpu_device_of(o->device);
    struct cpu *c = arena_alloc(a, sizeof(*c));
    struct need needs[NEEDS_MAX];
    const uint64_t counts[] = {[PER_MODEL] = 1,
                               [PER_TOKEN] = o->tokens_max,
                               [PER_SEQ] = o->seqs_max,
                               [PER_WORKER] = workers_count(device->workers)};
    if (!c)
        return -ENOMEM;
    *c = (struct cpu){.compute = {&ops},
                      .shape = o->shape,
                      .ops = &device->ops,
                      .workers = device->workers,
                      .flip = device->flip,
                      .tokens_max = o->tokens_max,
                      .seqs_max = o->seqs_max,
                      .logits_max = o->logits_max,
                      .products_max = products_max(o->shape),
                      .sums = o->sums,
                      .value_bytes = o->mode == COMPUTE_INT8 ? 1 : 2,
                      .attention_floats = attention_floats(o->shape),
                      .query_copies_floats = query_copies_floats(o->shape)};
    uint32_t count = list_needs(c, o, needs);
    for (uint32_t i = 0; i < count; i++) {
        *needs[i].place = arena_alloc_array(a, counts[needs[i].per], needs[i].bytes);
        if (!*needs[i].place)
            return -ENOMEM;
    }
    *ret = &c->compute;
    return o->experts.in > 0 ? cpu_experts_open(o, &c->experts) : 0;
}
