/* cuda_attention.c - queries and keys, their place in the pages, and attention. */
#include "compute/cuda/cuda_step.h"
#include "compute/layout.h"

#include "kernel/kern.h"

/* Tokens that are many to append. With fewer, a block for each head is done earlier. */
#define APPEND_MANY 64u
/* Blocks for each multiprocessor, where segments of many tokens have blocks of their own; the most segments
 * of a block of few tokens: with 2,048 keys it is not much longer than the others of its step. */
#define PARTS_BLOCKS 16u
#define FEW_SEGMENTS 8u
/* Time that a block of few tokens takes beside its segments, in fourths of a segment. */
#define FEW_BEGIN 2u

static uint32_t form_of(enum kv_form form)
{
    return form == KV_F32    ? CUDA_KV_F32
           : form == KV_BF16 ? CUDA_KV_BF16
           : form == KV_INT8 ? CUDA_KV_INT8
                             : CUDA_KV_FP8;
}

static struct cuda_kv kv_of(const struct kv_layer *l)
{
    return (struct cuda_kv){.group = l->group,
                            .heads = l->heads,
                            .k_width = l->k_width,
                            .v_width = l->v_width,
                            .v_in_k = l->v_in_k,
                            .form = form_of(l->form),
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
                                   .image_ends = a->image_ends,
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

/* Heads of 64, 128 or 256 numbers in pages of bf16 or 8 bits, which have kernels of their own. */
static bool is_tensor(const struct cuda_kv *kv)
{
    uint32_t d = kv->k_width;
    return kv->form != CUDA_KV_F32 && d == kv->v_width && (d == 64 || d == 128 || d == 256);
}

static bool is_coded(const struct cuda_attention *k)
{
    return k->kv.form == CUDA_KV_INT8 || k->kv.form == CUDA_KV_FP8;
}

static uint32_t size_of(const struct cuda_kv *kv)
{
    return kv->k_width == 64 ? 0 : kv->k_width == 128 ? 1 : 2;
}

/* Returns one of the kernels NAME64, NAME_codes64, NAME_floats64 and those of larger heads behind them. */
#define KERNEL_OF(k, name)                                                                                   \
    kernel_of(k, CUDA_KERNEL_##name##64, CUDA_KERNEL_##name##_codes64, CUDA_KERNEL_##name##_floats64)
static enum cuda_kernel kernel_of(const struct cuda_attention *k, enum cuda_kernel bf16,
                                  enum cuda_kernel int8, enum cuda_kernel fp8)
{
    enum cuda_kernel first = k->kv.form == CUDA_KV_INT8 ? int8 : k->kv.form == CUDA_KV_FP8 ? fp8 : bf16;
    return (enum cuda_kernel)(first + size_of(&k->kv));
}

/* Runs the kernel for all heads of a token together: a norm in place, or without a weight a copy. */
static void run_rows(struct cuda *c, const struct cuda_attention *k, const float *weight, uint32_t from,
                     uint32_t to, uint32_t width)
{
    const struct cuda_attention_rows rows = {k->qkv, weight, from, to, width, k->eps};
    cuda_run(c, CUDA_KERNEL_attention_rows, cuda_by_row(c->step.tokens), &rows);
}

static struct cuda_append append_of(const struct cuda *c, uint32_t layer, const struct cuda_attention *k)
{
    struct cuda_append ret = {.held = true,
                              .layer = layer,
                              .kernel = CUDA_KERNEL_append,
                              .grid = {c->step.tokens, k->heads + k->kv.heads, 1, CUDA_APPEND_THREADS, 0},
                              .k = *k};
    if (c->step.tokens < APPEND_MANY || !is_tensor(&k->kv))
        return ret;
    uint32_t rows =
        (k->with_queries ? DIV_UP(k->heads, CUDA_APPEND_HEADS) : 0) + (k->with_keys ? k->kv.heads : 0);
    ret.kernel = (enum cuda_kernel)(CUDA_KERNEL_append_many64 + size_of(&k->kv));
    ret.grid = (struct cuda_grid){DIV_UP(c->step.tokens, CUDA_APPEND_TOKENS), rows, 1, CUDA_THREADS, 0};
    return ret;
}

/* Bytes of one token's partial results: sums, maximum and weight of each head and segment. */
static uint64_t part_bytes(const struct cuda *c, const struct cuda_attention *k)
{
    return (uint64_t)k->heads * c->step.segments * (k->kv.v_width + 2) * sizeof(float);
}

/* Tokens [0, few) of the step, which have blocks of their own, each token. */
static uint32_t few_of(const struct cuda *c, const struct cuda_attention *k)
{
    return c->parts && is_tensor(&k->kv) && part_bytes(c, k) <= CUDA_PARTS_BYTES ? c->step.few : 0;
}

/* With one token of each sequence, none needs another's keys: attention's kernel takes them. */
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
    cuda_flush(c);
    c->append = append_of(c, a->layer, &k);
    if (c->step.tokens != c->step.seqs || !k.with_queries || !k.with_keys || k.mtp ||
        few_of(c, &k) < c->step.tokens)
        cuda_flush(c);
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

/* A kernel of attention. */
struct attend {
    enum cuda_kernel kernel;
    uint32_t columns, rows; /* tokens of a block; blocks that have a token's heads */
    uint32_t threads, shared_bytes, stages;
    uint32_t beside; /* few tokens: blocks on a multiprocessor */
};

/* A block has a token and 16 heads that share keys. */
static struct attend attend_parts(const struct cuda_attention *k)
{
    uint32_t d = k->kv.k_width, group = k->heads / k->kv.heads, rows = CUDA_PARTS_ROWS(group);
    uint32_t blocks = d > 128 && !is_coded(k) ? 2 : 4, queries = rows * (2 * d + 16);
    uint32_t keys = is_coded(k) ? 2 * CUDA_CODED_PAGE(d) : CUDA_KEYS_BYTES(d);
    uint32_t others = CUDA_PARTS_ROOM(d, rows, blocks, is_coded(k)) - queries;
    uint32_t fresh = MAX_OF(MIN_OF(group, CUDA_PANEL) + 3, CUDA_PARTS_WARPS) * d * (uint32_t)sizeof(float);
    return (struct attend){.kernel = KERNEL_OF(k, attend_parts),
                           .columns = 1,
                           .rows = k->kv.heads * DIV_UP(group, CUDA_PANEL),
                           .threads = 32 * CUDA_PARTS_WARPS,
                           .shared_bytes = blocks * keys + queries + MAX_OF(others, fresh),
                           .beside = 1};
}

/* A warp of a block has a token and 8 heads that share keys. */
static struct attend attend_warp(const struct cuda *c, const struct cuda_attention *k)
{
    uint32_t d = k->kv.k_width, group = k->heads / k->kv.heads, heads = MIN_OF(group, CUDA_WARP_HEADS);
    uint32_t others = CUDA_WARP_HEADS * CUDA_WARP_QUERY(d) + (heads + 3) * d * (uint32_t)sizeof(float);
    uint32_t page = is_coded(k) ? CUDA_CODED_PAGE(d) : CUDA_WARP_PAGE(d);
    uint32_t stages = is_coded(k) ? (d == 64 ? 10 : 5) : d == 64 ? 8 : d == 128 ? 4 : 3;
    while (stages > (is_coded(k) ? 4 : 2) && stages * page + others > c->device->shared_attend)
        stages--;
    return (struct attend){.kernel = KERNEL_OF(k, attend_warp),
                           .columns = 1,
                           .rows = k->kv.heads * DIV_UP(group, CUDA_WARP_HEADS),
                           .threads = CUDA_ATTEND_THREADS,
                           .shared_bytes = stages * page + others,
                           .stages = stages,
                           .beside = d == 256      ? 2
                                     : is_coded(k) ? 4
                                                   : 3};
}

/* `tokens` have blocks of their own, all of which run at once or not. */
static struct attend attend_few(const struct cuda *c, const struct cuda_attention *k, uint32_t tokens)
{
    const struct attend parts = attend_parts(k);
    bool at_once = tokens * parts.rows * c->step.segments <= c->device->units;
    bool parts_have_it = at_once && parts.shared_bytes <= c->device->shared_attend;
    return parts_have_it ? parts : attend_warp(c, k);
}

/* Blocks of 16 queries of as many heads that share keys as there are teams, or of several times 16. */
static struct attend attend_many(const struct cuda *c, const struct cuda_attention *k)
{
    uint32_t d = k->kv.k_width, keys = CUDA_KEYS_BYTES(d), queries = CUDA_QUERIES_BYTES(d);
    uint32_t group = k->heads / k->kv.heads, teams = CUDA_ATTEND_TEAMS(d), heads = MIN_OF(group, teams);
    uint32_t stages = is_coded(k) ? 1 : stages_of(c, keys, queries, 2);
    return (struct attend){KERNEL_OF(k, attend_many),
                           teams / heads * 16,
                           k->kv.heads * DIV_UP(group, heads),
                           CUDA_ATTEND_THREADS,
                           (is_coded(k) ? CUDA_CODED_KEYS(d) : stages * keys) + queries,
                           stages};
}

/* As `attend_many()`, but by wgmma. */
static struct attend attend_wide(const struct cuda_attention *k)
{
    uint32_t d = k->kv.k_width, group = k->heads / k->kv.heads, heads = MIN_OF(group, 4u);
    return (struct attend){KERNEL_OF(k, attend_wide),
                           4 / heads * 16,
                           k->kv.heads * DIV_UP(group, heads),
                           CUDA_ATTEND_THREADS,
                           is_coded(k) ? CUDA_CODED_WIDE_SHARED(d) : CUDA_ATTEND_WIDE_SHARED(d),
                           0};
}

static void run_attend(struct cuda *c, const struct cuda_attention *k, const struct attend *a,
                       const struct cuda_split *p, uint32_t shares)
{
    void *arguments[] = {&c->step, (void *)(uintptr_t)k, (void *)(uintptr_t)p};
    cuda_run_all(
        c, a->kernel,
        (struct cuda_grid){DIV_UP(p->tokens, a->columns), a->rows, shares, a->threads, a->shared_bytes},
        arguments);
    if (p->parts && a->columns > 1)
        cuda_run_all(c, CUDA_KERNEL_attend_merge,
                     (struct cuda_grid){p->tokens, k->heads, 1, k->kv.v_width, 0}, arguments);
}

/* Returns the number of blocks for a token's segments, `least` to twice as many, with which a launch ends
 * first: blocks run in waves, and a wave lasts as long as the segments of a block. */
static uint32_t even_shares(const struct cuda *c, const struct attend *a, uint32_t blocks, uint32_t least)
{
    uint32_t best = least, slots = a->beside * c->device->units;
    uint64_t best_cost = UINT64_MAX;
    for (uint32_t shares = least; shares <= MIN_OF(2 * least, c->step.segments); shares++) {
        uint64_t cost =
            (uint64_t)DIV_UP(blocks * shares, slots) * (4 * DIV_UP(c->step.segments, shares) + FEW_BEGIN);
        if (cost < best_cost)
            best = shares, best_cost = cost;
    }
    return best;
}

/* Returns how many blocks share the segments of `tokens` tokens. It depends on what a record is for alone. */
static uint32_t shares_of(const struct cuda *c, const struct attend *a, uint32_t tokens)
{
    bool few = a->columns == 1;
    uint32_t blocks = DIV_UP(tokens, a->columns) * a->rows, segments = c->step.segments;
    uint32_t shares = DIV_UP((few ? a->beside : PARTS_BLOCKS) * c->device->units, blocks);
    shares = MIN_OF(segments, few ? MAX_OF(shares, DIV_UP(segments, FEW_SEGMENTS)) : shares);
    return few && shares > 1 ? even_shares(c, a, blocks, shares) : shares;
}

/* Tokens [first, end) by one kernel; all kernels have the same bits. Where they are few blocks, segments go
 * to blocks of their own, more than run at once: for as many tokens at a time as have room for their
 * segments' sums. */
static void attend_tokens(struct cuda *c, const struct cuda_attention *k, const struct attend *a,
                          uint32_t first, uint32_t end, bool append)
{
    uint32_t segments = c->step.segments;
    uint32_t room = (uint32_t)(CUDA_PARTS_BYTES / part_bytes(c, k));
    uint32_t blocks = DIV_UP(end - first, a->columns) * a->rows;
    if (a->columns == 1)
        room = MIN_OF(room, CUDA_ATTEND_ENDS / a->rows);
    if (room == 0 || (a->columns > 1 && 2 * blocks > c->device->units)) {
        const struct cuda_split p = {.first = first, .tokens = end - first, .stages = a->stages};
        run_attend(c, k, a, &p, 1);
        return;
    }
    for (uint32_t from = first; from < end; from += room) {
        const struct cuda_split p = {.parts = c->parts,
                                     .ended = c->attend_ended,
                                     .first = from,
                                     .tokens = MIN_OF(room, end - from),
                                     .segments = segments,
                                     .stages = a->stages,
                                     .append = append};
        run_attend(c, k, a, &p, shares_of(c, a, p.tokens));
    }
}

/* Each kind of sequence by its kernel. */
static void attend_tensor(struct cuda *c, const struct cuda_attention *k, bool append)
{
    uint32_t few = few_of(c, k);
    if (few > 0) {
        const struct attend a = attend_few(c, k, few);
        attend_tokens(c, k, &a, 0, few, append);
    }
    if (few < c->step.tokens) {
        bool wide = c->device->wide && k->kv.k_width < 256;
        const struct attend a = wide ? attend_wide(k) : attend_many(c, k);
        attend_tokens(c, k, &a, few, c->step.tokens, false);
    }
}

void cuda_attend(struct compute *compute, const struct op_attention *a)
{
    struct cuda *c = cuda_of(compute);
    const struct cuda_attention k = attention_of(c, a);
    bool append = c->append.held && c->append.layer == a->layer;
    if (append)
        c->append.held = false;
    if (k.kv.form == CUDA_KV_F32 || !c->parts) {
        cuda_run_step(c, CUDA_KERNEL_attend, (struct cuda_grid){c->step.tokens, k.heads, 1, CUDA_THREADS, 0},
                      &k);
        return;
    }
    ASSERT(k.scale > 0 && is_tensor(&k.kv) && !k.both_ways && c->parts);
    attend_tensor(c, &k, append);
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
                                  .angles = cuda_rows(c, a->angles),
                                  .growth = a->growth,
                                  .growth_every = a->growth_every};
    ASSERT(k.kv.v_in_k && k.kv.heads == 1 && a->in.width == k.kv.k_width);
    cuda_run_step(c, CUDA_KERNEL_latent,
                  (struct cuda_grid){c->step.tokens, a->heads + 1, 1, CUDA_APPEND_THREADS, 0}, &k);
}
