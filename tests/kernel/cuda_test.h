/* cuda_test.h - a GPU with a range of memory for tests of its kernels. One test thread. */
#ifndef PLATEAU_TESTS_CUDA_TEST_H
#define PLATEAU_TESTS_CUDA_TEST_H

#include "kern_test.h"

#include "compute/backend.h"
#include "compute/cuda/cuda.h"

#define NEEDS_GPU                                                                                            \
    if (cuda_device_count() == 0) {                                                                          \
        print_message("no NVIDIA GPU is here\n");                                                            \
        skip();                                                                                              \
    }

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
