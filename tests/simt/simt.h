/* simt.h - the GPU's kernels on the CPU: tests run src/compute/cuda/kernels without a GPU.
 *
 * Each kernel file is compiled as C++. cuda/cuda_words.h has what CUDA adds to the language, and
 * cuda/compute/cuda/kernels/ptx.cuh replaces the file of the same name. The threads of a block are fibers of
 * one thread of the process. Blocks run one after the other. It finds:
 *  - wrong results: the backend's own tests run over it, with fake_cuda.h as the driver;
 *  - a missing barrier or wait. Shared memory holds NaNs before a block begins. The destination of an
 *    asynchronous copy holds NaNs until its thread waits for it. The order of threads between two barriers,
 *    and of blocks, changes with each launch: up, down, random. A race makes launches differ, and tests
 *    compare the bits of launches;
 *  - threads that wait for each other, and lanes of a warp that call different operations;
 *  - a write past the shared memory of a launch, where reads find NaNs;
 *  - misaligned accesses, indices beyond an array, and what else UBSan finds: a trap stops the test.
 *
 * Only the release build has it. AddressSanitizer added nothing else: it marks no byte of a device's memory.
 *
 * It does not show:
 *  - how long anything takes;
 *  - wgmma, bulk copies and clusters (wide.cu, attend_wide.cu);
 *  - kernels and blocks that run at the same time: griddepcontrol.wait, order of memory between blocks;
 *  - the bits of a GPU. mma adds 16 products in f32 one by one, where a tensor core adds them as one sum.
 *    Functions such as expf are the C library's.
 *
 * To add a kernel file NAME.cu: list its kernels in CUDA_KERNELS (cuda_device.h), and NAME in
 * tests/simt/CMakeLists.txt. To run a test of the compute contract over it, add
 * plateau_simt_test(TEST LAYER...) below its plateau_test(): build/tests/kernel/TEST_simt, with TEST_SIMT
 * defined. */
#ifndef PLATEAU_TESTS_SIMT_H
#define PLATEAU_TESTS_SIMT_H

#include <stdbool.h>

#define SIMT_API __attribute__((visibility("default")))

/* Multiprocessors: few, so that blocks of small matrices take several panels. */
#define SIMT_UNITS 3

struct simt_kernel;

struct simt_grid {
    unsigned x, y, z, threads, shared_bytes;
};

#ifdef __cplusplus
extern "C" {
#endif

/* This processor has the instructions that the emulator is compiled for. */
SIMT_API bool simt_is_here(void);
/* A kernel that is not here cannot be launched. The name stays. */
SIMT_API const struct simt_kernel *simt_find(const char *name);
/* Runs it to its end. arguments: pointers to each, as cuLaunchKernel takes them. Any thread; one launch runs
 * at a time. */
SIMT_API void simt_launch(const struct simt_kernel *k, struct simt_grid grid, void **arguments);

#ifdef __cplusplus
}
#endif

#endif
