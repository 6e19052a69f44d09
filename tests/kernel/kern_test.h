/* kern_test.h - shared by the kernel tests: the tiers of this machine, random values, random checkpoints. */
#ifndef PLATEAU_TESTS_KERN_TEST_H
#define PLATEAU_TESTS_KERN_TEST_H

#include "test_rng.h"
#include "test_floats.h"
#include "test.h"

#include "base/check.h"
#include "kernel/kern.h"

#include <math.h>
#include <string.h>

#define EPS 0x1p-23 /* spacing of f32 at 1; one rounding is half of it */

/* One after another, from the reference up, the tiers that this machine can run. A test with tiles of its own
 * (soft_tiles.h) runs that tier where AVX-512 is, and AVX-VNNI's in the encoding of AVX-512. */
enum { TIERS_MAX = 6 };

static inline uint32_t tier_list(struct kern_ops ret[TIERS_MAX])
{
    unsigned flags = kern_cpu_flags();
    const unsigned vnni = flags & KERN_CPU_VNNI, avx512 = KERN_CPU_AVX2 | KERN_CPU_AVX512 | vnni;
    const unsigned wanted[] = {0,      KERN_CPU_AVX2,         KERN_CPU_AVX2 | KERN_CPU_AVX_VNNI,
                               avx512, avx512 | KERN_CPU_AMX, avx512 | KERN_CPU_AMX | KERN_CPU_AMX_BF16};
    uint32_t count = 0;
#if defined(TEST_SOFT_TILES)
    flags |= vnni ? KERN_CPU_AMX | KERN_CPU_AMX_BF16 | KERN_CPU_AVX_VNNI : 0;
#endif
    for (uint32_t i = 0; i < COUNT_OF(wanted); i++) {
        if ((wanted[i] & ~flags) == 0)
            kern_ops_init(&ret[count++], wanted[i]);
    }
    return count;
}

#define EACH_TIER(ops)                                                                                       \
    struct kern_ops tiers_[TIERS_MAX];                                                                       \
    uint32_t tier_count_ = tier_list(tiers_);                                                                \
    for (const struct kern_ops *ops = tiers_; ops < tiers_ + tier_count_; ops++)

static inline float random_between(struct rng *r, float low, float high)
{
    return low + (high - low) * (float)rng_uniform(r);
}

/* `count` values in a heap block of exactly that size: a sanitizer sees reads past them. */
static inline float *random_values(struct rng *r, size_t count, float low, float high)
{
    float *v = malloc(MAX_OF(count, 1) * sizeof(float));
    assert_non_null(v);
    for (size_t i = 0; i < count; i++)
        v[i] = random_between(r, low, high);
    return v;
}

static inline void assert_within(double got, double want, double bound, const char *what)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: %.9g, want %.9g within %.3g", what, got, want, bound);
}

static inline void assert_same_bits(const float *a, const float *b, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&a[i], &b[i], sizeof(float)) != 0)
            fail_msg("%s: value %zu is %.9g, want %.9g", what, i, (double)a[i], (double)b[i]);
    }
}

/* A tensor of random values in [-range, range], one byte off any alignment. Free with tensor_drop(). */
static inline struct tensor random_tensor(struct rng *r, enum dtype dtype, uint64_t count, float range)
{
    size_t bytes = count * dtype_bytes(dtype);
    uint8_t *data = (uint8_t *)malloc(bytes + 1) + 1;
    for (uint64_t i = 0; i < count; i++) {
        float f = random_between(r, -range, range);
        uint16_t half = dtype == DTYPE_BF16 ? f32_to_bf16(f) : f32_to_f16(f);
        uint32_t word = (uint32_t)rng_next(r);
        if (dtype == DTYPE_F32)
            memcpy(data + i * 4, &f, 4);
        else if (dtype == DTYPE_U32)
            memcpy(data + i * 4, &word, 4);
        else
            memcpy(data + i * 2, &half, 2);
    }
    return (struct tensor){.dtype = dtype, .rank = 1, .shape = {count}, .data = data, .bytes = bytes};
}

static inline void tensor_drop(struct tensor *t)
{
    if (t->data)
        free((uint8_t *)t->data - 1);
}

static inline struct linear_source random_dense(struct rng *r, enum dtype dtype, uint64_t experts,
                                                uint64_t out, uint64_t in)
{
    return (struct linear_source){
        .experts = experts, .out = out, .in = in, .weight = random_tensor(r, dtype, experts * out * in, 1)};
}

static inline struct linear_source random_affine(struct rng *r, uint32_t bits, uint32_t group,
                                                 enum dtype dtype, uint64_t experts, uint64_t out,
                                                 uint64_t in)
{
    uint64_t rows = experts * out;
    struct linear_source s = {
        .affine = true, .bits = bits, .group = group, .experts = experts, .out = out, .in = in};
    s.weight = random_tensor(r, DTYPE_U32, rows * in * bits / 32, 0);
    s.scales = random_tensor(r, dtype, rows * in / group, 0.1f);
    s.biases = random_tensor(r, dtype, rows * in / group, 1);
    return s;
}

/* Bytes in [low, high] that are numbers as E4M3. */
static inline struct tensor random_bytes(struct rng *r, enum dtype dtype, uint64_t count, int low, int high)
{
    uint8_t *data = (uint8_t *)malloc(count + 1) + 1;
    for (uint64_t i = 0; i < count; i++) {
        do
            data[i] = (uint8_t)(low + (int)rng_below(r, (uint32_t)(high - low + 1)));
        while ((data[i] & 0x7f) == 0x7f && dtype == DTYPE_F8_E4M3);
    }
    return (struct tensor){.dtype = dtype, .rank = 1, .shape = {count}, .data = data, .bytes = count};
}

/* Forms with scales, one for each kind of code, scale and bias. */
struct kern_form {
    const char *name;
    uint32_t bits, group;
    enum code_map codes;
    enum dtype scales;
    enum bias_kind bias_kind;
    uint32_t super; /* SUPER_ROW: the whole row */
};
#define SUPER_ROW UINT32_MAX
static const struct kern_form kern_forms[] = {
    {"Q4_0", 4, 32, CODES_WHOLE, DTYPE_F16, BIASES_CENTRED, 0},
    {"Q5_0", 5, 32, CODES_WHOLE, DTYPE_F16, BIASES_CENTRED, 0},
    {"Q8_0", 8, 32, CODES_WHOLE, DTYPE_F16, BIASES_CENTRED, 0},
    {"Q5_1", 5, 32, CODES_WHOLE, DTYPE_F16, BIASES_STORED, 0},
    {"Q2_K", 2, 16, CODES_WHOLE, DTYPE_I8, BIASES_STORED, 256},
    {"Q3_K", 3, 16, CODES_WHOLE, DTYPE_I8, BIASES_CENTRED, 256},
    {"Q4_K", 4, 32, CODES_WHOLE, DTYPE_I8, BIASES_STORED, 256},
    {"Q4_K in halves", 4, 32, CODES_WHOLE, DTYPE_I8, BIASES_STORED, 128},
    {"Q5_K", 5, 32, CODES_WHOLE, DTYPE_I8, BIASES_STORED, 256},
    {"Q6_K", 6, 16, CODES_WHOLE, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ4_NL", 4, 32, CODES_IQ4, DTYPE_F16, BIASES_CENTRED, 0},
    {"IQ4_XS", 4, 32, CODES_IQ4, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ1_S", 4, 32, CODES_IQ1, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ1_M", 4, 16, CODES_IQ1, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ2_XXS", 4, 32, CODES_IQ2_XXS, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ2_XS", 4, 16, CODES_IQ2_XS, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ2_S in halves", 4, 16, CODES_IQ2_S, DTYPE_I8, BIASES_CENTRED, 128},
    {"IQ3_XXS", 4, 32, CODES_IQ3_XXS, DTYPE_I8, BIASES_CENTRED, 256},
    {"IQ3_S", 4, 32, CODES_IQ3_S, DTYPE_I8, BIASES_CENTRED, 256},
    {"MXFP4", 4, 32, CODES_E2M1, DTYPE_F8_E8M0, BIASES_CENTRED, 0},
    {"NVFP4", 4, 16, CODES_E2M1, DTYPE_F8_E4M3, BIASES_CENTRED, SUPER_ROW},
    {"nvfp4 of MLX", 4, 16, CODES_E2M1, DTYPE_F8_E4M3, BIASES_CENTRED, 0},
    {"mxfp8 of MLX", 8, 32, CODES_E4M3, DTYPE_F8_E8M0, BIASES_CENTRED, 0},
    {"FP8 bf16", 8, 128, CODES_E4M3, DTYPE_BF16, BIASES_CENTRED, 0},
    {"FP8 f32", 8, 64, CODES_E4M3, DTYPE_F32, BIASES_CENTRED, 0},
    {"AWQ", 4, 128, CODES_WHOLE, DTYPE_F16, BIASES_ZEROS, 0},
    {"GPTQ 8", 8, 64, CODES_WHOLE, DTYPE_F16, BIASES_ZEROS, 0},
    {"int8 of rows", 8, 128, CODES_WHOLE, DTYPE_F32, BIASES_CENTRED, 0},
};

static inline const struct kern_form *kern_form_named(const char *name)
{
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i++) {
        if (strcmp(kern_forms[i].name, name) == 0)
            return &kern_forms[i];
    }
    fail_msg("no form %s", name);
    return NULL;
}

/* A tensor of scales, upper scales or biases. */
static inline struct tensor random_side(struct rng *r, enum dtype dtype, uint64_t count)
{
    switch (dtype) {
    case DTYPE_F8_E8M0:
        return random_bytes(r, dtype, count, 120, 130);
    case DTYPE_F8_E4M3:
        return random_bytes(r, dtype, count, 0, 255);
    case DTYPE_I8:
        return random_bytes(r, dtype, count, 0, 63);
    default:
        return random_tensor(r, dtype, count, 0.1f);
    }
}

static inline struct linear_source random_form(struct rng *r, const struct kern_form *f, uint64_t experts,
                                               uint64_t out, uint64_t in)
{
    const uint64_t rows = experts * out, groups = rows * in / f->group;
    const uint32_t each = f->bias_kind == BIASES_STORED ? 2 : 1;
    struct linear_source s = {.affine = true,
                              .bits = f->bits,
                              .group = f->group,
                              .codes = f->codes,
                              .bias_kind = f->bias_kind,
                              .super = f->super == SUPER_ROW ? (uint32_t)in : f->super,
                              .experts = experts,
                              .out = out,
                              .in = in};
    s.weight =
        random_bytes(r, f->codes == CODES_E4M3 ? DTYPE_F8_E4M3 : DTYPE_U8, rows * in * f->bits / 8, 0, 255);
    s.scales = random_side(r, f->scales, groups);
    for (uint64_t i = 0; code_is_word(f->codes) && i < groups; i++)
        ((uint8_t *)(uintptr_t)s.scales.data)[i] = (uint8_t)(2 * rng_below(r, 16) + 1);
    if (f->bias_kind == BIASES_STORED)
        s.biases = random_side(r, f->scales, groups);
    if (f->bias_kind == BIASES_ZEROS)
        s.biases = random_bytes(r, DTYPE_U8, groups, 0, (1 << f->bits) - 1);
    if (s.super)
        s.supers =
            random_tensor(r, f->scales == DTYPE_I8 ? DTYPE_F16 : DTYPE_F32, rows * in / s.super * each, 0.1f);
    return s;
}

static inline void source_drop(struct linear_source *s)
{
    tensor_drop(&s->weight);
    tensor_drop(&s->scales);
    tensor_drop(&s->biases);
    tensor_drop(&s->supers);
}

/* The largest number that takes part in one weight: what its roundings are relative to. */
static inline double source_size(const struct linear_source *s, uint64_t expert, uint64_t row,
                                 uint64_t column)
{
    if (!s->affine)
        return fabs((double)linear_source_at(s, expert, row, column));
    const double number = code_is_word(s->codes)   ? 62
                          : s->codes == CODES_E4M3 ? 448
                          : s->codes == CODES_IQ4  ? 127
                          : s->codes == CODES_E2M1 ? 6
                                                   : 1u << s->bits;
    const uint64_t r = expert * s->out + row, g = column / s->group;
    return fabs((double)linear_source_scale(s, r, g)) * number + fabs((double)linear_source_bias(s, r, g));
}

/* Packs into memory of exactly the required bytes; free(*memory_ret). */
static inline struct matrix pack(const struct linear_source *s, uint32_t count, void **memory_ret)
{
    struct matrix m;
    size_t bytes = matrix_stack_bytes(s, count);
    *memory_ret = aligned_alloc(64, ROUND_UP(bytes, (size_t)64));
    assert_non_null(*memory_ret);
    matrix_pack(s, count, *memory_ret, &m);
    return m;
}

static inline struct matrix pack_pairs(const struct linear_source *s, void **memory_ret)
{
    struct matrix m;
    *memory_ret = aligned_alloc(64, ROUND_UP(matrix_stack_bytes(s, 1), (size_t)64));
    assert_non_null(*memory_ret);
    matrix_pack_pairs(s, 1, *memory_ret, &m);
    return m;
}

static inline struct matrix pack_quads(const struct linear_source *s, uint32_t count, void **memory_ret)
{
    struct matrix m;
    size_t bytes = matrix_stack_bytes(s, count);
    *memory_ret = aligned_alloc(64, ROUND_UP(bytes, (size_t)64));
    assert_non_null(*memory_ret);
    matrix_pack_quads(s, count, *memory_ret, &m);
    return m;
}

#endif
