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
 * (soft_tiles.h) runs that tier where AVX-512 is. */
enum { TIERS_MAX = 4 };

static inline uint32_t tier_list(struct kern_ops ret[TIERS_MAX])
{
    unsigned flags = kern_cpu_flags();
    const unsigned vnni = flags & KERN_CPU_VNNI, avx512 = KERN_CPU_AVX2 | KERN_CPU_AVX512 | vnni;
    const unsigned wanted[] = {0, KERN_CPU_AVX2, avx512, avx512 | KERN_CPU_AMX};
    uint32_t count = 0;
#if defined(TEST_SOFT_TILES)
    flags |= vnni ? KERN_CPU_AMX : 0;
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

static inline void source_drop(struct linear_source *s)
{
    tensor_drop(&s->weight);
    tensor_drop(&s->scales);
    tensor_drop(&s->biases);
}

/* The largest number that takes part in one weight: what its roundings are relative to. */
static inline double source_size(const struct linear_source *s, uint64_t expert, uint64_t row,
                                 uint64_t column)
{
    if (!s->affine)
        return fabs((double)linear_source_at(s, expert, row, column));
    uint64_t g = (expert * s->out + row) * (s->in / s->group) + column / s->group;
    return fabs((double)tensor_f32_at(&s->scales, g)) * (1u << s->bits) +
           fabs((double)tensor_f32_at(&s->biases, g));
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
