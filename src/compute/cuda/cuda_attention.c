/* cuda_attention.c - queries and keys, their place in the pages, and attention. */
#include "compute/cuda/cuda_step.h"

#define APPEND_THREADS 128u
/* Tokens of a step that attend by segments, at most. */
#define PARTS_TOKENS_MAX 16u

static struct cuda_kv kv_of(const struct kv_layer *l)
{
    return (struct cuda_kv){.group = l->group,
                            .heads = l->heads,
                            .k_width = l->k_width,
                            .v_width = l->v_width,
                            .v_in_k = l->v_in_k,
                            .bf16 = l->form == KV_BF16,
                            .offset = l->offset,
                            .k_bytes = page_k_bytes(l),
                            .head_bytes = page_k_bytes(l) + page_v_bytes(l)};
}

static struct cuda_attention attention_of(const struct cuda *c, const struct op_attention *a)
{
    const struct kv_layer *l = &c->shape->kv[a->layer];
    ASSERT(l->k_width <= KERN_HEAD_MAX && l->v_width <= KERN_HEAD_MAX);
    return (struct cuda_attention){.kv = kv_of(l),
                                   .heads = a->heads,
                                   .q_stride = a->gated ? 2 * l->k_width : l->k_width,
                                   .window = a->window,
                                   .scale = a->scale,
                                   .cap = a->cap,
                                   .growth = a->growth,
                                   .growth_every = a->growth_every,
                                   .eps = c->shape->eps,
                                   .both_ways = a->both_ways,
                                   .norm_rotated = a->norm_rotated,
                                   .norm_heads = !a->norm_all,
                                   .adjacent = a->adjacent,
                                   .gated = a->gated,
                                   .mtp = a->mtp,
                                   .with_queries = !a->keys_only,
                                   .with_keys = !a->queries_only,
                                   .q_norm = cuda_pointer(a->q_norm),
                                   .k_norm = cuda_pointer(a->k_norm),
                                   .v_norm = cuda_pointer(a->v_norm),
                                   .sinks = cuda_pointer(a->sinks),
                                   .qkv = cuda_rows(c, a->qkv),
                                   .out = cuda_rows(c, a->out),
                                   .angles = cuda_rows(c, a->angles),
                                   .rounded = cuda_rounded_whole(c, a->out)};
}

/* What takes all heads of a token together: a norm in place, or with no weight a copy. */
static void run_rows(struct cuda *c, const struct cuda_attention *k, const float *weight, uint32_t from,
                     uint32_t to, uint32_t width)
{
    const struct cuda_attention_rows rows = {k->qkv, weight, from, to, width, k->eps};
    cuda_run(c, CUDA_KERNEL_attention_rows, cuda_by_row(c->step.tokens), &rows);
}

void cuda_append(struct compute *compute, const struct op_attention *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_attention k = attention_of(c, a);
    uint32_t keys = k.heads * k.q_stride, width = k.kv.heads * k.kv.k_width;
    if (a->v_is_k && k.with_keys)
        run_rows(c, &k, NULL, keys, keys + width, k.kv.heads * k.kv.v_width);
    if (a->norm_all && k.q_norm && k.with_queries)
        run_rows(c, &k, k.q_norm, 0, 0, keys);
    if (a->norm_all && k.k_norm && k.with_keys)
        run_rows(c, &k, k.k_norm, keys, keys, width);
    cuda_run_step(c, CUDA_KERNEL_append,
                  (struct cuda_grid){c->step.tokens, k.heads + k.kv.heads, 1, APPEND_THREADS, 0}, &k);
}

/* Stages of keys that a block has on their way. */
static uint32_t stages_of(const struct cuda *c, uint32_t keys, uint32_t other, uint32_t most)
{
    uint32_t stages = most;
    while (stages > 1 && stages * keys + other > c->device->shared_attend)
        stages /= 2;
    ASSERT(stages * keys + other <= c->device->shared_attend);
    return stages;
}

/* Where the segments' sums have room, segments go to blocks of their own, more than run at once. */
static bool attend_parts(struct cuda *c, const struct cuda_attention *k, uint32_t size)
{
    uint32_t keys = CUDA_KEYS_BYTES(k->kv.k_width), group = k->heads / k->kv.heads;
    const struct cuda_split p = {c->parts, c->step.segments, stages_of(c, keys, 0, 4)};
    uint64_t bytes = (uint64_t)c->step.tokens * k->heads * p.segments * (k->kv.v_width + 2) * sizeof(float);
    uint32_t rows = k->kv.heads * DIV_UP(group, CUDA_PANEL);
    uint32_t blocks = MIN_OF(p.segments, DIV_UP(16 * c->device->units, c->step.tokens * rows));
    void *arguments[] = {&c->step, (void *)(uintptr_t)k, (void *)(uintptr_t)&p};
    if (c->step.tokens > PARTS_TOKENS_MAX || bytes > CUDA_PARTS_BYTES)
        return false;
    cuda_run_all(c, (enum cuda_kernel)(CUDA_KERNEL_attend_parts64 + size),
                 (struct cuda_grid){c->step.tokens, rows, blocks, CUDA_ATTEND_THREADS, p.stages * keys},
                 arguments);
    cuda_run_all(c, CUDA_KERNEL_attend_merge,
                 (struct cuda_grid){c->step.tokens, k->heads, 1, k->kv.v_width, 0}, arguments);
    return true;
}

/* As attend_many(), by wgmma. */
static void attend_wide(struct cuda *c, const struct cuda_attention *k, uint32_t size)
{
    uint32_t group = k->heads / k->kv.heads, heads = MIN_OF(group, 4u);
    cuda_run_step(c, (enum cuda_kernel)(CUDA_KERNEL_attend_wide64 + size),
                  (struct cuda_grid){DIV_UP(c->step.tokens, 4 / heads * 16),
                                     k->kv.heads * DIV_UP(group, heads), 1, CUDA_ATTEND_THREADS,
                                     CUDA_ATTEND_WIDE_SHARED(k->kv.k_width)},
                  k);
}

/* Blocks of 16 queries of as many heads that share keys as there are teams, or of several times 16. */
static void attend_many(struct cuda *c, const struct cuda_attention *k, uint32_t size)
{
    uint32_t d = k->kv.k_width, keys = CUDA_KEYS_BYTES(d), queries = CUDA_QUERIES_BYTES(d);
    uint32_t group = k->heads / k->kv.heads, teams = CUDA_ATTEND_TEAMS(d), heads = MIN_OF(group, teams);
    const struct cuda_split p = {NULL, 0, stages_of(c, keys, queries, 2)};
    void *arguments[] = {&c->step, (void *)(uintptr_t)k, (void *)(uintptr_t)&p};
    cuda_run_all(c, (enum cuda_kernel)(CUDA_KERNEL_attend_many64 + size),
                 (struct cuda_grid){DIV_UP(c->step.tokens, teams / heads * 16),
                                    k->kv.heads * DIV_UP(group, heads), 1, CUDA_ATTEND_THREADS,
                                    p.stages * keys + queries},
                 arguments);
}

void cuda_attend(struct compute *compute, const struct op_attention *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_attention k = attention_of(c, a);
    uint32_t d = k.kv.k_width, size = d == 64 ? 0 : d == 128 ? 1 : 2;
    if (!k.kv.bf16) {
        cuda_run_step(c, CUDA_KERNEL_attend, (struct cuda_grid){c->step.tokens, k.heads, 1, CUDA_THREADS, 0},
                      &k);
        return;
    }
    ASSERT(k.scale > 0 && d == k.kv.v_width && (d == 64 || d == 128 || d == 256) && !k.both_ways && c->parts);
    if (!attend_parts(c, &k, size)) {
        if (c->device->wide && d < 256)
            attend_wide(c, &k, size);
        else
            attend_many(c, &k, size);
    }
    cuda_has_rounded(c, k.rounded, a->out);
}

void cuda_latent(struct compute *compute, const struct op_latent *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_latent k = {.kv = kv_of(&c->shape->kv[a->layer]),
                                  .heads = a->heads,
                                  .adjacent = a->adjacent,
                                  .q_step = a->q.width / a->heads,
                                  .norm = cuda_norm_of(c, &a->norm),
                                  .in = cuda_rows(c, a->in),
                                  .q = cuda_rows(c, a->q),
                                  .query = cuda_rows(c, a->query),
                                  .angles = cuda_rows(c, a->angles)};
    ASSERT(k.kv.v_in_k && k.kv.heads == 1 && a->in.width == k.kv.k_width);
    cuda_run_step(c, CUDA_KERNEL_latent,
                  (struct cuda_grid){c->step.tokens, a->heads + 1, 1, APPEND_THREADS, 0}, &k);
}
