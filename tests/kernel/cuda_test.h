/* cuda_test.h - a GPU with a range of memory for tests of its kernels. One test thread. */
#ifndef PLATEAU_TESTS_CUDA_TEST_H
#define PLATEAU_TESTS_CUDA_TEST_H

#include "kern_test.h"

#include "base/none.h"
#include "compute/backend.h"
#include "compute/batch.h"
#include "compute/cuda/cuda.h"
#include "compute/ops.h"
#include "compute/rope.h"
#include "compute/shape.h"
#include "memory/domain.h"

#define NEEDS_GPU                                                                                            \
    if (cuda_device_count() == 0) {                                                                          \
        print_message("no NVIDIA GPU is here\n");                                                            \
        skip();                                                                                              \
    }

/* Most rows of a matrix. Kernels on the CPU take five times as long under a sanitizer. */
#if defined(TEST_SIMT) && defined(TEST_SANITIZED)
#define LARGEST 3000u
#else
#define LARGEST UINT32_MAX
#endif

struct gpu {
    struct device *device;
    dev_ptr memory;
    uint64_t bytes, used;
};

static inline void gpu_open(struct gpu *g, uint64_t bytes)
{
    *g = (struct gpu){.bytes = bytes};
    assert_int_equal(cuda_device_open(0, &g->device), 0);
    assert_int_equal(domain_reserve(g->device->domain, bytes, false, &g->memory), 0);
    assert_int_equal(domain_commit(g->device->domain, g->memory, bytes), 0);
}

static inline void gpu_close(struct gpu *g)
{
    assert_int_equal(domain_decommit(g->device->domain, g->memory, g->bytes), 0);
    assert_int_equal(domain_release(g->device->domain, g->memory, g->bytes), 0);
    device_close(g->device);
}

/* Until the GPU is closed. */
static inline dev_ptr gpu_take(struct gpu *g, uint64_t bytes)
{
    dev_ptr at = dev_add(g->memory, g->used);
    g->used += ROUND_UP(bytes, (uint64_t)256);
    assert_true(g->used <= g->bytes);
    return at;
}

/* A workspace of the GPU's memory. `o` has no range. */
static inline struct compute *gpu_compute(struct gpu *g, struct compute_opts o)
{
    struct compute *ret;
    o.device = g->device;
    const struct compute_cost cost = g->device->backend->cost(&o);
    o.range =
        gpu_take(g, cost.device.fixed + cost.device.token * o.tokens_max + cost.device.seq * o.seqs_max);
    assert_int_equal(g->device->backend->open(&o, &ret), 0);
    return ret;
}

/* A sequence's tokens first, first + 1, ... of `vocab` ids, without pages and states. The first value_count
 * rows that are read go to `values`. Until the next call. */
#define GPU_TOKENS_MAX 2048u
static inline const struct batch *gpu_batch(uint32_t first, uint32_t count, uint32_t vocab,
                                            uint32_t value_count, float *values)
{
    static uint32_t ids[GPU_TOKENS_MAX], columns[GPU_TOKENS_MAX];
    static const uint32_t seqs_of[GPU_TOKENS_MAX];
    static const struct rope_position positions[GPU_TOKENS_MAX];
    static const dev_ptr features[GPU_TOKENS_MAX];
    static struct batch_seq seq;
    static struct batch ret;
    assert_true(count <= GPU_TOKENS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        ids[i] = (first + i) % vocab;
        columns[i] = i;
    }
    seq = (struct batch_seq){.count = count, .second = NONE, .state_in = NONE, .state_out = NONE};
    ret = (struct batch){.token_count = count,
                         .value_count = value_count,
                         .seq_count = 1,
                         .seqs = &seq,
                         .ids = ids,
                         .token_seq = seqs_of,
                         .positions = positions,
                         .features = features,
                         .logit_columns = columns,
                         .hidden_columns = columns,
                         .values = values};
    return &ret;
}

/* x: [rows][width], the caller's. */
static inline struct linear_source gpu_table(const float *x, uint32_t rows, uint32_t width)
{
    const uint64_t count = (uint64_t)rows * width;
    return (struct linear_source){
        .experts = 1,
        .out = rows,
        .in = width,
        .exact = true,
        .weight = {
            .dtype = DTYPE_F32, .rank = 1, .shape = {count}, .data = x, .bytes = count * sizeof(float)}};
}

#endif
