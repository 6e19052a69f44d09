/* Norms, products and residuals in bf16 on a GPU, through the compute contract: few tokens have them in one
 * kernel, many in several, with the same bits. Skipped where there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "compute/backend.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "memory/domain.h"
#include "tensor/tensor.h"

#define VOCAB 97u
#ifdef TEST_SIMT
#define TOKENS       17u
#define COUNTS       1, 9, 16
#define SMALL_WIDTH  1000u /* wider rows compare the normed values alone */
#define LAYERS       2u
#define MEMORY_BYTES ((uint64_t)96 << 20)
#else
#define TOKENS       80u
#define COUNTS       1, 2, 9, 16, 17
#define SMALL_WIDTH  UINT32_MAX
#define LAYERS       3u
#define MEMORY_BYTES ((uint64_t)512 << 20)
#endif

enum { ARRAY_H, ARRAY_NORMED, ARRAY_UP, ARRAY_MID, ARRAY_OUT, ARRAYS };

struct shape {
    uint32_t hidden, width;
    bool glu, bias;
    float scale; /* scale of the residual; 0: none */
};

struct layer {
    struct gpu gpu;
    struct arena *host;
    struct compute *compute;
    struct compute_shape shape;
    const struct shape *of;
    struct weight table, up, down;
    dev_ptr norm, bias;
};

static const struct rope_tables no_ropes;

static struct weight put(struct layer *l, struct linear_source *s)
{
    const struct backend *b = l->gpu.device->backend;
    struct weight w =
        b->weight_begin(s, 1, COMPUTE_BF16, gpu_take(&l->gpu, b->weight_bytes(s, 1, COMPUTE_BF16)));
    b->weight_put(l->gpu.device, &w, 0, s);
    source_drop(s);
    return w;
}

static dev_ptr put_values(struct layer *l, struct rng *r, uint32_t count)
{
    float *values = random_values(r, count, -2, 2);
    dev_ptr at = gpu_take(&l->gpu, count * sizeof(float));
    domain_put(l->gpu.device->domain, at, values, count * sizeof(float));
    free(values);
    return at;
}

static void layer_init(struct layer *l, const struct shape *of, struct rng *r)
{
    uint32_t k = of->hidden, up = of->glu ? 2 * of->width : of->width;
    const struct array_spec arrays[ARRAYS] = {[ARRAY_H] = {ROWS_TOKENS, k, k},
                                              [ARRAY_NORMED] = {ROWS_TOKENS, k, k},
                                              [ARRAY_UP] = {ROWS_TOKENS, up, up},
                                              [ARRAY_MID] = {ROWS_TOKENS, of->width, of->width},
                                              [ARRAY_OUT] = {ROWS_TOKENS, k, 0}};
    *l = (struct layer){
        .of = of, .shape = {.hidden = k, .vocab = VOCAB, .eps = 1e-6f, .layers = 1, .context_max = TOKENS}};
    gpu_open(&l->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &l->host), 0);
    l->compute = gpu_compute(&l->gpu, (struct compute_opts){.shape = &l->shape,
                                                            .arrays = arrays,
                                                            .array_count = ARRAYS,
                                                            .mode = COMPUTE_BF16,
                                                            .tokens_max = TOKENS,
                                                            .seqs_max = 1,
                                                            .logits_max = 1,
                                                            .host_memory = l->host});
    struct linear_source table = random_dense(r, DTYPE_F32, 1, VOCAB, k);
    struct linear_source in =
        k % 64 == 0 ? random_affine(r, 8, 64, DTYPE_BF16, 1, up, k) : random_dense(r, DTYPE_BF16, 1, up, k);
    struct linear_source out = random_dense(r, DTYPE_BF16, 1, k, of->width);
    l->table = put(l, &table);
    l->up = put(l, &in);
    l->down = put(l, &out);
    l->norm = put_values(l, r, k);
    l->bias = of->bias ? put_values(l, r, k) : (dev_ptr){0};
}

static void layer_done(struct layer *l)
{
    arena_free(l->host);
    gpu_close(&l->gpu);
}

static void put_layers(const struct layer *l)
{
    const struct shape *of = l->of;
    uint32_t k = of->hidden, rows = l->up.n;
    const struct projection up = {.in = k, .out = rows, .part_count = 1, .parts = {l->up}};
    const struct projection down = {
        .in = of->width, .out = k, .part_count = 1, .parts = {l->down}, .bias = l->bias};
    const struct act h = {ARRAY_H, 0, k}, normed = {ARRAY_NORMED, 0, k}, in = {ARRAY_UP, 0, rows};
    const struct act mid = {ARRAY_MID, 0, of->width}, out = {ARRAY_OUT, 0, k};
    struct residual pending = {.kind = RESIDUAL_NONE};
    for (uint32_t i = 0; i < LAYERS; i++) {
        compute_norm(l->compute,
                     &(struct op_norm){
                         .add = pending, .h = h, .y = normed, .norm = {.weight = l->norm}, .readers = {&up}});
        compute_project(l->compute, &(struct op_product){.w = &up, .x = normed, .y = in}, 1);
        if (of->glu)
            compute_glu(l->compute,
                        &(struct op_glu){.function = GLU_SILU, .in = in, .out = mid, .reader = &down});
        compute_project(l->compute, &(struct op_product){.w = &down, .x = of->glu ? mid : in, .y = out}, 1);
        pending = (struct residual){.kind = RESIDUAL_ADD, .out = out, .scale = of->scale};
    }
    compute_norm(l->compute,
                 &(struct op_norm){.add = pending, .h = h, .y = normed, .norm = {.weight = l->norm}});
}

/* Returns the values of `array` after all layers for inputs first, first + 1, ...: [count][hidden] */
static float *run(const struct layer *l, uint32_t array, uint32_t first, uint32_t count)
{
    const struct act h = {ARRAY_H, 0, l->of->hidden};
    float *ret = malloc((size_t)count * l->of->hidden * sizeof(float));
    assert_non_null(ret);
    compute_step_begin(l->compute, gpu_batch(first, count, VOCAB, count, ret));
    compute_embed(l->compute,
                  &(struct op_embed){.table = &l->table, .ropes = &no_ropes, .h = h, .angles = h});
    put_layers(l);
    compute_values(l->compute, &(struct op_values){.x = {array, 0, l->of->hidden}});
    assert_int_equal(compute_step_end(l->compute), 0);
    return ret;
}

/* A norm alone takes 1 token, an addition up to 16, and TOKENS have neither. */
static void alone_is_batched(const struct layer *l, uint32_t array)
{
    static const uint32_t counts[] = {COUNTS};
    uint32_t k = l->of->hidden;
    float *all = run(l, array, 0, TOKENS);
    for (uint32_t i = 0; i < k; i++)
        assert_true(all[i] - all[i] == 0);
    assert_memory_not_equal(all, all + k, k * sizeof(float));
    for (uint32_t i = 0; i < COUNT_OF(counts); i++) {
        uint32_t first = MIN_OF(11 * i, TOKENS - counts[i]);
        float *some = run(l, array, first, counts[i]);
        for (uint32_t t = 0; t < counts[i]; t++)
            if (memcmp(some + (size_t)t * k, all + (size_t)(first + t) * k, k * sizeof(float)) != 0)
                fail_msg("hidden %u: token %u of %u differs from the same among %u", k, t, counts[i], TOKENS);
        free(some);
    }
    free(all);
}

TEST(a_token_alone_has_the_bits_of_many)
{
#ifdef TEST_SIMT
    static const struct shape shapes[] = {{256, 192, false, false, 0},  {320, 256, true, false, 0},
                                          {64, 128, true, true, 0.25f}, {1088, 64, false, true, 3},
                                          {64, 16448, false, false, 0}, {64, 9728, true, false, 0},
                                          {72, 128, true, false, 0},    {4160, 32, true, false, 0.5f}};
#else
    static const struct shape shapes[] = {{256, 192, false, false, 0},    {640, 512, true, false, 0},
                                          {64, 128, true, true, 0.25f},   {1088, 64, false, true, 3},
                                          {512, 16448, false, false, 0},  {384, 8192, true, false, 0},
                                          {256, 9728, true, false, 0},    {72, 128, true, false, 0},
                                          {4160, 320, true, false, 0.5f}, {8256, 128, false, false, 0}};
#endif
    NEEDS_GPU
    struct rng r = {11, 0};
    for (uint32_t i = 0; i < COUNT_OF(shapes); i++) {
        struct layer l;
        if (shapes[i].hidden + shapes[i].width > LARGEST)
            continue;
        layer_init(&l, &shapes[i], &r);
        if (shapes[i].width < SMALL_WIDTH)
            alone_is_batched(&l, ARRAY_H);
        alone_is_batched(&l, ARRAY_NORMED);
        layer_done(&l);
        print_message("%u, %u: good\n", shapes[i].hidden, shapes[i].width);
    }
}

TEST_MAIN()
