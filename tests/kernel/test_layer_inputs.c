/* The inputs per layer (contract 10.7) on the CPU backend, against its definition in double. */
#include "test_rng.h"
#include "kern_test.h"

#include "base/arena.h"
#include "compute/backend.h"
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/shape.h"

#include <math.h>

#define TOKENS 5
#define VOCAB  37
#define SCALES 0.25f, 3.0f, 0.70710678f /* input, row, both */

enum { ARRAY_X, ARRAY_ROW, ARRAYS };

struct inputs {
    struct device *device;
    struct arena *memory;
    struct cpu *cpu;
    struct compute *compute;
    struct compute_shape shape;
};

static struct arena *arena_of(size_t bytes)
{
    struct arena *a = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes}, &a), 0);
    return a;
}

static void inputs_init(struct inputs *i, uint32_t width)
{
    const struct array_spec arrays[ARRAYS] = {{ROWS_TOKENS, width, 0}, {ROWS_TOKENS, width, 0}};
    *i = (struct inputs){.shape = {.hidden = 16, .vocab = VOCAB, .eps = 1e-6f, .layers = 1}};
    assert_int_equal(device_open_cpu(2, NULL, &i->device), 0);
    i->memory = arena_of((size_t)16 << 20);
    const struct compute_opts o = {.shape = &i->shape,
                                   .arrays = arrays,
                                   .array_count = ARRAYS,
                                   .tokens_max = TOKENS,
                                   .seqs_max = 1,
                                   .logits_max = 1,
                                   .device = i->device,
                                   .device_memory = i->memory,
                                   .host_memory = i->memory};
    assert_int_equal(i->device->backend->open(&o, &i->compute), 0);
    i->cpu = cpu_of(i->compute);
}

static void inputs_done(struct inputs *i)
{
    arena_free(i->memory);
    device_close(i->device);
}

static dev_ptr at(const struct inputs *i, const void *p)
{
    return (dev_ptr){(uintptr_t)p ^ i->cpu->flip};
}

/* x: of one layer and token, before; e: the row's part. */
static void expect(const float *got, const float *x, const float *e, const float *norm, uint32_t width,
                   float eps)
{
    const float scales[] = {SCALES};
    double squares = 0;
    for (uint32_t k = 0; k < width; k++)
        squares += pow((double)x[k] * (double)scales[0], 2);
    double root = 1 / sqrt(squares / width + (double)eps);
    for (uint32_t k = 0; k < width; k++) {
        double normed = (double)x[k] * (double)scales[0] * root * (double)norm[k];
        double want = ((double)scales[1] * (double)e[k] + normed) * (double)scales[2];
        double size = fabs((double)scales[1] * (double)e[k]) + fabs(normed);
        assert_within((double)got[k], want, (width + 8) * EPS * size, "input");
    }
}

static void run(uint32_t layers, uint32_t width, enum dtype dtype, uint64_t seed)
{
    struct rng r = {seed, 0};
    struct inputs i;
    const float scales[] = {SCALES};
    uint32_t all = layers * width, ids[TOKENS];
    inputs_init(&i, all);
    struct linear_source table = random_dense(&r, dtype, 1, VOCAB, all);
    const struct backend *backend = i.device->backend;
    void *memory =
        aligned_alloc(64, ROUND_UP((size_t)backend->weight_bytes(&table, 1, COMPUTE_F32), (size_t)64));
    float *norm = random_values(&r, width, 0.5f, 2), *before = random_values(&r, TOKENS * all, -2, 2);
    assert_non_null(memory);
    struct weight w = backend->weight_begin(&table, 1, COMPUTE_F32, at(&i, memory));
    backend->weight_put(i.device, &w, 0, &table);
    const struct batch_seq seq = {.count = TOKENS, .state_in = UINT32_MAX, .state_out = UINT32_MAX};
    const struct batch batch = {.token_count = TOKENS, .seq_count = 1, .seqs = &seq, .ids = ids};
    const struct act x = {ARRAY_X, 0, all}, row = {ARRAY_ROW, 0, all};
    device_turn_begin(i.device);
    compute_step_begin(i.compute, &batch);
    for (uint32_t t = 0; t < TOKENS; t++) {
        ids[t] = t == 0 ? VOCAB - 1 : (uint32_t)rng_below(&r, VOCAB);
        memcpy(cpu_row(i.cpu, x, t), before + (size_t)t * all, all * sizeof(float));
    }
    compute_layer_inputs(i.compute, &(struct op_layer_inputs){.table = &w,
                                                              .x = x,
                                                              .row = row,
                                                              .width = width,
                                                              .norm = at(&i, norm),
                                                              .input_scale = scales[0],
                                                              .row_scale = scales[1],
                                                              .scale = scales[2]});
    assert_int_equal(compute_step_end(i.compute), 0);
    device_turn_end(i.device);
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t l = 0; l < layers; l++) {
            float e[64];
            for (uint32_t k = 0; k < width; k++)
                e[k] = linear_source_at(&table, 0, ids[t], l * width + k);
            expect(cpu_row(i.cpu, x, t) + l * width, before + (size_t)t * all + l * width, e, norm, width,
                   i.shape.eps);
        }
    }
    source_drop(&table);
    free(memory);
    free(norm);
    free(before);
    inputs_done(&i);
}

TEST(each_layer_has_its_part_of_the_row_and_its_own_norm)
{
    static const uint32_t layers[] = {1, 2, 7}, widths[] = {1, 5, 16, 33, 64};
    for (uint32_t l = 0; l < COUNT_OF(layers); l++)
        for (uint32_t w = 0; w < COUNT_OF(widths); w++)
            run(layers[l], widths[w], w % 2 ? DTYPE_BF16 : DTYPE_F32, 1 + l * 8 + w);
}

TEST_MAIN()
