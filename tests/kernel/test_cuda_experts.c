/* Experts in bf16 on a GPU, through the compute contract. A token has the same bits alone, where each of its
 * experts has one column, and among others, where an expert's columns are multiplied together. Skipped where
 * there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "compute/backend.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "memory/domain.h"

#define VOCAB 97u
#ifdef TEST_SIMT
#define MEMORY_BYTES ((uint64_t)64 << 20)
#define TOKENS(s)    ((s)->tokens)
#else
#define MEMORY_BYTES ((uint64_t)512 << 20)
#define TOKENS(s)    (4 * (s)->tokens)
#endif

enum { ARRAY_H, ARRAY_NORMED, ARRAY_SCORES, ARRAY_MID, ARRAY_OUT, ARRAY_PAIR_UP, ARRAY_PAIR_OUT, ARRAYS };

struct shape {
    uint32_t hidden, width, experts, top_k, bits; /* bits: of both matrices; 16: dense */
    bool bias;
    uint32_t tokens; /* tokens of the largest step on the CPU */
    uint32_t shared; /* width of the shared expert; 0: none */
};

struct experts {
    struct gpu gpu;
    struct arena *host;
    struct compute *compute;
    struct compute_shape shape;
    const struct shape *of;
    struct weight table, router, up, down, shared_up, shared_down;
    dev_ptr norm, up_bias, down_bias;
};

static const struct rope_tables no_ropes;

static struct linear_source random_source(struct rng *r, uint32_t bits, uint32_t n, uint32_t k)
{
    return bits == 16 ? random_dense(r, DTYPE_BF16, 1, n, k)
                      : random_affine(r, bits, 32, DTYPE_BF16, 1, n, k);
}

/* A stack of `count` matrices. */
static struct weight put_stack(struct experts *x, struct rng *r, uint32_t bits, uint32_t n, uint32_t k,
                               uint32_t count)
{
    const struct backend *b = x->gpu.device->backend;
    struct weight ret = {0};
    dev_ptr at = {0};
    uint64_t stride = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct linear_source s = random_source(r, bits, n, k);
        if (i == 0) {
            stride = ROUND_UP(b->weight_bytes(&s, 1, COMPUTE_BF16), (uint64_t)64);
            at = gpu_take(&x->gpu, stride * count);
            ret = b->weight_begin(&s, 1, COMPUTE_BF16, at);
            ret.experts = count;
            ret.expert_bytes = stride;
        }
        const struct weight one = b->weight_begin(&s, 1, COMPUTE_BF16, dev_add(at, i * stride));
        b->weight_put(x->gpu.device, &one, 0, &s);
        source_drop(&s);
    }
    return ret;
}

static struct weight put_dense(struct experts *x, struct rng *r, uint32_t n, uint32_t k)
{
    const struct backend *b = x->gpu.device->backend;
    struct linear_source s = random_dense(r, DTYPE_F32, 1, n, k);
    s.exact = true;
    struct weight w =
        b->weight_begin(&s, 1, COMPUTE_BF16, gpu_take(&x->gpu, b->weight_bytes(&s, 1, COMPUTE_BF16)));
    b->weight_put(x->gpu.device, &w, 0, &s);
    source_drop(&s);
    return w;
}

static dev_ptr put_values(struct experts *x, struct rng *r, uint32_t count)
{
    float *values = random_values(r, count, -2, 2);
    dev_ptr at = gpu_take(&x->gpu, count * sizeof(float));
    domain_put(x->gpu.device->domain, at, values, count * sizeof(float));
    free(values);
    return at;
}

/* Router | shared gate, gate | up of the shared expert. */
static uint32_t scores_width(const struct shape *of)
{
    return of->experts + (of->shared ? 1 + 2 * of->shared : 0);
}

static void experts_init(struct experts *x, const struct shape *of, struct rng *r)
{
    uint32_t k = of->hidden;
    const struct array_spec arrays[ARRAYS] = {[ARRAY_H] = {ROWS_TOKENS, k, k},
                                              [ARRAY_NORMED] = {ROWS_TOKENS, k, k},
                                              [ARRAY_SCORES] = {ROWS_TOKENS, scores_width(of), 0},
                                              [ARRAY_MID] = {ROWS_TOKENS, of->shared, of->shared},
                                              [ARRAY_OUT] = {ROWS_TOKENS, k, 0},
                                              [ARRAY_PAIR_UP] = {ROWS_PAIRS, 2 * of->width, of->width},
                                              [ARRAY_PAIR_OUT] = {ROWS_PAIRS, k, 0}};
    *x = (struct experts){.of = of,
                          .shape = {.hidden = k,
                                    .vocab = VOCAB,
                                    .eps = 1e-6f,
                                    .layers = 1,
                                    .context_max = TOKENS(of),
                                    .experts = of->experts,
                                    .top_k = of->top_k}};
    gpu_open(&x->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &x->host), 0);
    x->compute = gpu_compute(&x->gpu, (struct compute_opts){.shape = &x->shape,
                                                            .arrays = arrays,
                                                            .array_count = ARRAYS,
                                                            .mode = COMPUTE_BF16,
                                                            .tokens_max = TOKENS(of),
                                                            .seqs_max = 1,
                                                            .logits_max = 1,
                                                            .host_memory = x->host});
    x->table = put_dense(x, r, VOCAB, k);
    x->router = put_dense(x, r, of->experts + (of->shared > 0), k);
    x->up = put_stack(x, r, of->bits, 2 * of->width, k, of->experts);
    x->down = put_stack(x, r, of->bits, k, of->width, of->experts);
    if (of->shared) {
        x->shared_up = put_stack(x, r, of->bits, 2 * of->shared, k, 1);
        x->shared_down = put_stack(x, r, of->bits, k, of->shared, 1);
    }
    x->norm = put_values(x, r, k);
    x->up_bias = of->bias ? put_values(x, r, of->experts * 2 * of->width) : (dev_ptr){0};
    x->down_bias = of->bias ? put_values(x, r, of->experts * k) : (dev_ptr){0};
}

static void experts_done(struct experts *x)
{
    arena_free(x->host);
    gpu_close(&x->gpu);
}

/* A layer of experts. */
static void put_layer(const struct experts *x)
{
    const struct shape *of = x->of;
    uint32_t k = of->hidden, up = 2 * of->width;
    const bool shared = of->shared > 0;
    const uint32_t width = scores_width(of);
    const struct projection router = {
        .in = k, .out = width, .part_count = shared ? 2 : 1, .parts = {x->router, x->shared_up}};
    const struct projection shared_down = {
        .in = of->shared, .out = k, .part_count = 1, .parts = {x->shared_down}};
    const struct projection gate_up = {
        .in = k, .out = up, .part_count = 1, .parts = {x->up}, .bias = x->up_bias};
    const struct projection down = {
        .in = of->width, .out = k, .part_count = 1, .parts = {x->down}, .bias = x->down_bias};
    const struct act h = {ARRAY_H, 0, k}, normed = {ARRAY_NORMED, 0, k}, scores = {ARRAY_SCORES, 0, width};
    const struct act shared_mid = {ARRAY_MID, 0, of->shared}, shared_out = {ARRAY_OUT, 0, shared ? k : 0};
    const struct act pair_up = {ARRAY_PAIR_UP, 0, up}, mid = {ARRAY_PAIR_UP, 0, of->width};
    const struct act pair_out = {ARRAY_PAIR_OUT, 0, k};
    compute_norm(x->compute,
                 &(struct op_norm){.h = h, .y = normed, .norm = {.weight = x->norm}, .readers = {&gate_up}});
    compute_project(x->compute, &(struct op_product){.w = &router, .x = normed, .y = scores}, 1);
    compute_route(x->compute, &(struct op_route){.shared = shared ? ROUTE_SHARED_GATED : ROUTE_SHARED_NONE,
                                                 .normalise = true,
                                                 .function = GLU_SILU,
                                                 .in = scores,
                                                 .out = shared_mid,
                                                 .reader = &shared_down});
    if (shared)
        compute_project(x->compute, &(struct op_product){.w = &shared_down, .x = shared_mid, .y = shared_out},
                        1);
    compute_project(
        x->compute,
        &(struct op_product){.w = &gate_up, .x = normed, .y = pair_up, .columns = COLUMNS_EXPERTS}, 1);
    compute_glu(x->compute,
                &(struct op_glu){.function = GLU_SILU, .in = pair_up, .out = mid, .reader = &down});
    compute_project(x->compute,
                    &(struct op_product){.w = &down, .x = mid, .y = pair_out, .columns = COLUMNS_EXPERTS}, 1);
    compute_norm(x->compute,
                 &(struct op_norm){
                     .add = {.kind = RESIDUAL_EXPERTS, .out = shared_out, .pairs = pair_out, .sum = normed},
                     .h = h,
                     .y = {ARRAY_NORMED, 0, 0}});
}

/* h after the layer for inputs first, first + 1, ...: [count][hidden] */
static float *run(const struct experts *x, uint32_t first, uint32_t count)
{
    const struct act h = {ARRAY_H, 0, x->of->hidden};
    float *ret = malloc((size_t)count * x->of->hidden * sizeof(float));
    assert_non_null(ret);
    compute_step_begin(x->compute, gpu_batch(first, count, VOCAB, count, ret));
    compute_embed(x->compute,
                  &(struct op_embed){.table = &x->table, .ropes = &no_ropes, .h = h, .angles = h});
    put_layer(x);
    compute_values(x->compute, &(struct op_values){.x = h});
    assert_int_equal(compute_step_end(x->compute), 0);
    return ret;
}

static void alone_is_batched(const struct experts *x)
{
    uint32_t k = x->of->hidden, all_count = TOKENS(x->of);
    const uint32_t counts[] = {1, 2, 3, all_count / 4, all_count / 2, all_count - 1};
    float *all = run(x, 0, all_count);
    for (uint32_t i = 0; i < all_count * k; i++)
        assert_true(all[i] - all[i] == 0);
    assert_memory_not_equal(all, all + k, k * sizeof(float));
    for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
        uint32_t first = MIN_OF(5 * i, all_count - counts[i]);
        float *some = run(x, first, counts[i]);
        for (uint32_t t = 0; t < counts[i]; t++)
            if (memcmp(some + (size_t)t * k, all + (size_t)(first + t) * k, k * sizeof(float)) != 0)
                fail_msg("token %u of %u differs from the same among %u", t, counts[i], all_count);
        free(some);
    }
    free(all);
}

TEST(a_token_alone_has_the_bits_of_many)
{
    /* Few columns of many experts, several groups of an expert, more columns than a tile has, chains of
     * several units, and inputs without room beside a block's rings. */
    static const struct shape shapes[] = {
        {128, 64, 40, 3, 4, false, 24, 64}, {192, 64, 6, 3, 4, false, 40, 0},
        {128, 96, 5, 2, 8, true, 44, 96},   {256, 64, 4, 2, 16, true, 36, 128},
        {64, 32, 1, 1, 4, false, 150, 64},  {72, 40, 3, 2, 16, false, 28, 0},
        {576, 320, 7, 4, 4, true, 12, 0},   {1088, 384, 2, 1, 4, false, 80, 0},
        {3328, 32, 3, 2, 4, false, 10, 0},
    };
    NEEDS_GPU
    struct rng r = {13, 0};
    for (uint32_t i = 0; i < COUNT_OF(shapes); i++) {
        struct experts x;
        experts_init(&x, &shapes[i], &r);
        alone_is_batched(&x);
        experts_done(&x);
        print_message("%u experts, %u of each token, %u bits: good\n", shapes[i].experts, shapes[i].top_k,
                      shapes[i].bits);
    }
}

TEST_MAIN()
