/* cuda_device.h - a GPU as the backend's own files see it. */
#ifndef PLATEAU_COMPUTE_CUDA_DEVICE_H
#define PLATEAU_COMPUTE_CUDA_DEVICE_H

#include "compute/cuda/cuda_driver.h"
#include "compute/device.h"
#include "compute/mode.h"

#include "memory/dev.h"
#include "memory/domain.h"

#include <pthread.h>
#include <stdatomic.h>

struct compute;
struct compute_opts;
struct cuda_repack;
struct cuda_tiles;
struct encode_shape;
struct linear_source;

/* By the image that has it (cuda_image.h). */
#define CUDA_KERNELS(X)                                                                                      \
    X(rows, embed)                                                                                           \
    X(rows, layer_inputs)                                                                                    \
    X(rows, norm)                                                                                            \
    X(rows, features)                                                                                        \
    X(rows, gather)                                                                                          \
    X(rows, scale)                                                                                           \
    X(rows, head_gate)                                                                                       \
    X(rows, glu)                                                                                             \
    X(rows, finish)                                                                                          \
    X(rows, pair)                                                                                            \
    X(rows, best)                                                                                            \
    X(rows, copy_row)                                                                                        \
    X(bf16, round)                                                                                           \
    X(few_small, quantise)                                                                                   \
    X(bf16, narrow16_1)                                                                                      \
    X(bf16, narrow16_8)                                                                                      \
    X(bf16, narrow8_1)                                                                                       \
    X(bf16, narrow8_8)                                                                                       \
    X(bf16, narrow4_1)                                                                                       \
    X(bf16, narrow4_8)                                                                                       \
    X(bf16, serial16)                                                                                        \
    X(bf16, serial8)                                                                                         \
    X(bf16, serial4)                                                                                         \
    X(experts, experts16)                                                                                    \
    X(experts, experts8)                                                                                     \
    X(experts, experts4)                                                                                     \
    X(bf16, tiles16_1)                                                                                       \
    X(bf16, tiles16_8)                                                                                       \
    X(bf16, tiles8_1)                                                                                        \
    X(bf16, tiles8_8)                                                                                        \
    X(bf16, tiles4_1)                                                                                        \
    X(bf16, tiles4_8)                                                                                        \
    X(wide, wide16_1)                                                                                        \
    X(wide, wide16_8)                                                                                        \
    X(wide, wide8_1)                                                                                         \
    X(wide, wide8_8)                                                                                         \
    X(wide, wide4_1)                                                                                         \
    X(wide, wide4_8)                                                                                         \
    X(few, few16_1)                                                                                          \
    X(few, few16_8)                                                                                          \
    X(few, few8_1)                                                                                           \
    X(few, few8_8)                                                                                           \
    X(few, few4_1)                                                                                           \
    X(few, few4_8)                                                                                           \
    X(wide_small, wide_small_1)                                                                              \
    X(wide_small, wide_small_8)                                                                              \
    X(few_small, few_small_1)                                                                                \
    X(few_small, few_small_8)                                                                                \
    X(wide, walk16)                                                                                          \
    X(wide, walk8)                                                                                           \
    X(wide, walk4)                                                                                           \
    X(repack, repack)                                                                                        \
    X(repack, copy_fragments)                                                                                \
    X(project, product)                                                                                      \
    X(project, product4)                                                                                     \
    X(project, product16)                                                                                    \
    X(project, product_tiles)                                                                                \
    X(project, product_deep)                                                                                 \
    X(project, product_experts)                                                                              \
    X(attention, append)                                                                                     \
    X(attention, append_many64)                                                                              \
    X(attention, append_many128)                                                                             \
    X(attention, append_many256)                                                                             \
    X(attention, attention_rows)                                                                             \
    X(attention, latent)                                                                                     \
    X(attention, attend)                                                                                     \
    X(attend, attend_parts64)                                                                                \
    X(attend, attend_parts128)                                                                               \
    X(attend, attend_parts256)                                                                               \
    X(attend, attend_parts_codes64)                                                                          \
    X(attend, attend_parts_codes128)                                                                         \
    X(attend, attend_parts_codes256)                                                                         \
    X(attend, attend_parts_floats64)                                                                         \
    X(attend, attend_parts_floats128)                                                                        \
    X(attend, attend_parts_floats256)                                                                        \
    X(attend, attend_merge)                                                                                  \
    X(attend, attend_many64)                                                                                 \
    X(attend, attend_many128)                                                                                \
    X(attend, attend_many256)                                                                                \
    X(attend, attend_many_codes64)                                                                           \
    X(attend, attend_many_codes128)                                                                          \
    X(attend, attend_many_codes256)                                                                          \
    X(attend, attend_many_floats64)                                                                          \
    X(attend, attend_many_floats128)                                                                         \
    X(attend, attend_many_floats256)                                                                         \
    X(attend_warp, attend_warp64)                                                                            \
    X(attend_warp, attend_warp128)                                                                           \
    X(attend_warp, attend_warp256)                                                                           \
    X(attend_warp, attend_warp_codes64)                                                                      \
    X(attend_warp, attend_warp_codes128)                                                                     \
    X(attend_warp, attend_warp_codes256)                                                                     \
    X(attend_warp, attend_warp_floats64)                                                                     \
    X(attend_warp, attend_warp_floats128)                                                                    \
    X(attend_warp, attend_warp_floats256)                                                                    \
    X(attend_wide, attend_wide64)                                                                            \
    X(attend_wide, attend_wide128)                                                                           \
    X(attend_wide, attend_wide_codes64)                                                                      \
    X(attend_wide, attend_wide_codes128)                                                                     \
    X(attend_wide, attend_wide_floats64)                                                                     \
    X(attend_wide, attend_wide_floats128)                                                                    \
    X(recurrent, conv)                                                                                       \
    X(recurrent, conv_keep)                                                                                  \
    X(recurrent, delta_inputs)                                                                               \
    X(recurrent, delta)                                                                                      \
    X(recurrent, delta_walk)                                                                                 \
    X(recurrent, delta_parts)                                                                                \
    X(recurrent, delta_end)                                                                                  \
    X(delta, delta_conv)                                                                                     \
    X(delta, delta_one)                                                                                      \
    X(recurrent, ssm_gates)                                                                                  \
    X(recurrent, ssm)                                                                                        \
    X(recurrent, ssm_walk)                                                                                   \
    X(recurrent, ssm_end)                                                                                    \
    X(route, route_mixed)                                                                                    \
    X(route, route)                                                                                          \
    X(route, sort)                                                                                           \
    X(top, top)                                                                                              \
    X(sample, sample_most)                                                                                   \
    X(sample, sample_weigh)                                                                                  \
    X(sample, sample_edit)                                                                                   \
    X(sample, sample_pick)                                                                                   \
    X(encode, encode_norm)                                                                                   \
    X(encode, encode_positions)                                                                              \
    X(encode, encode_bias)                                                                                   \
    X(encode, encode_act)                                                                                    \
    X(encode, encode_pool)                                                                                   \
    X(encode, encode_values)                                                                                 \
    X(encode, encode_in_rows)                                                                                \
    X(encode, encode_heads)                                                                                  \
    X(encode, encode_pixels)                                                                                 \
    X(attention, encode_attend)                                                                              \
    X(encode_attend, encode_attend32)                                                                        \
    X(encode_attend, encode_attend64)                                                                        \
    X(encode_attend, encode_attend80)                                                                        \
    X(encode_attend, encode_attend128)                                                                       \
    X(encode_attend, encode_windows32)                                                                       \
    X(encode_attend, encode_windows64)                                                                       \
    X(encode_attend, encode_windows80)                                                                       \
    X(encode_attend, encode_windows128)

enum cuda_kernel {
#define X(image, name) CUDA_KERNEL_##name,
    CUDA_KERNELS(X)
#undef X
        CUDA_KERNEL_COUNT
};

/* Images whose kernels all begin with grid_wait(). */
enum {
    CUDA_KERNEL_WAITS_rows = 1,
    CUDA_KERNEL_WAITS_bf16 = 1,
    CUDA_KERNEL_WAITS_experts = 1,
    CUDA_KERNEL_WAITS_wide = 1,
    CUDA_KERNEL_WAITS_few = 1,
    CUDA_KERNEL_WAITS_few_small = 1,
    CUDA_KERNEL_WAITS_wide_small = 1,
    CUDA_KERNEL_WAITS_repack = 0,
    CUDA_KERNEL_WAITS_project = 1,
    CUDA_KERNEL_WAITS_attention = 1,
    CUDA_KERNEL_WAITS_attend = 1,
    CUDA_KERNEL_WAITS_attend_warp = 1,
    CUDA_KERNEL_WAITS_attend_wide = 1,
    CUDA_KERNEL_WAITS_recurrent = 1,
    CUDA_KERNEL_WAITS_delta = 1,
    CUDA_KERNEL_WAITS_route = 1,
    CUDA_KERNEL_WAITS_top = 0,
    CUDA_KERNEL_WAITS_sample = 1,
    CUDA_KERNEL_WAITS_encode = 1,
    CUDA_KERNEL_WAITS_encode_attend = 1,
};

#define CUDA_RANGES_MAX    4096
#define CUDA_FRESH_MAX     64
#define CUDA_STAGING_BYTES ((size_t)8 << 20)
#define CUDA_STAGING_SLOT  ((size_t)1 << 20)
#define CUDA_STAGING_SLOTS (CUDA_STAGING_BYTES / CUDA_STAGING_SLOT)
#define CUDA_STACK_BYTES   256u /* bytes of a kernel thread's stack */

/* UNIT_BYTES of a range: memory of the driver's, while any of its small units is committed. */
struct cuda_granule {
    uint64_t handle;
    uint32_t units; /* bit per small unit */
    bool mapped;
};

struct cuda_fresh {
    uint64_t at, bytes;
};

struct cuda_range {
    uint64_t base, bytes;          /* 0: free */
    struct cuda_granule *granules; /* [bytes / UNIT_BYTES], mapped by us */
};

struct cuda_device {
    struct device device; /* first */
    struct domain domain;
    char name[16], tier[16];
    const struct cuda_driver *driver;
    int index, handle;
    pthread_rwlock_t context_lock; /* held while figures are read, or the context begins anew */
    void *context, *stream;
    void *functions[CUDA_KERNEL_COUNT];
    uint32_t units, shared_max, shared_unit; /* multiprocessors; shared memory of a block, of one of them */
    uint32_t shared_attend;                  /* shared memory of a block of attention */
    cuda_address repacking;       /* CUDA_STAGING_BYTES of device memory: panels that become fragments */
    bool hopper;                  /* sm_90: it has wgmma */
    bool wide;                    /* wgmma has the bits of mma.sync there */
    bool early;                   /* it has launches of kernels that wait by themselves: sm_90 and newer */
    struct cuda_profile *profile; /* NULL: kernels are not timed */
    atomic_uint_least64_t committed;
    /* Work put into the queue outside of steps, and how much of it has passed. */
    atomic_uint_least64_t queued, passed;
    pthread_mutex_t lock; /* guards the ranges and `fresh` */
    struct cuda_range *ranges;
    struct cuda_fresh fresh[CUDA_FRESH_MAX]; /* committed, and to be zeroed before anything else */
    atomic_uint fresh_count;
    /* CUDA_STAGING_BYTES of host memory, for what the host writes piece by piece: see cuda_staging_take(). */
    char *staging;
    bool staging_pinned;
    void *staging_read[CUDA_STAGING_SLOTS]; /* events: the last copy of the part that begins there */
    pthread_mutex_t staging_lock;
    pthread_cond_t staging_given;
    uint32_t staging_taken;         /* a bit for each slot; with the lock held */
    pthread_mutex_t repacking_lock; /* held from a copy to `repacking` to the kernel that reads it */
};

static inline struct cuda_device *cuda_device_of(struct device *d)
{
    return (struct cuda_device *)d;
}

/* ---- the queue: cuda_queue.c ---- */

/* The calling thread may put work into the device's queue: committed memory is zeroed first. */
void cuda_use(struct cuda_device *d);
/* Logs a failure, of which a device may be lost; true: there was none. */
bool cuda_ok(struct cuda_device *d, cuda_result r, const char *what);
/* As `cuda_ok()`, but outside of steps: no model would learn that its memory is wrong, so the device is
 * lost. */
void cuda_must(struct cuda_device *d, cuda_result r, const char *what);
/* Waits for all that was put into the queue. 0, or a failure in it: -EIO, -ENODEV. */
int cuda_wait(struct cuda_device *d);
/* Something outside of a step was put into the queue: memory that it uses stays until it has passed. */
void cuda_queued(struct cuda_device *d);
/* All of that has passed: where it has not, waits for the queue, steps of other models too. */
void cuda_let_pass(struct cuda_device *d);
/* Committed memory: it is zeroed in front of the next work in the queue. With the device's lock held. */
void cuda_fresh_note(struct cuda_device *d, uint64_t at, uint64_t bytes);
bool cuda_fresh_has(const struct cuda_device *d, uint64_t at, uint64_t bytes);
void cuda_fresh_fill(struct cuda_device *d);
/* The queue is empty. */
bool cuda_drain(struct cuda_device *d, const char *what);

struct cuda_grid {
    uint32_t x, y, z, threads, shared_bytes;
};
/* Puts a kernel into a queue: the device's, or the one that is recorded. */
cuda_result cuda_launch(struct cuda_device *d, void *stream, enum cuda_kernel kernel, struct cuda_grid grid,
                        void **arguments);
/* cuda_profile.c: a kernel was put into the device's queue. */
void cuda_profile_mark(struct cuda_device *d, enum cuda_kernel kernel);
/* The step's kernels are all in the queue, and later: they have passed. */
void cuda_profile_let(struct cuda_device *d);
void cuda_profile_read(struct cuda_device *d);

/* ---- the other files' ---- */

/* cuda_memory.c */
extern const struct domain_ops cuda_domain_ops;
int cuda_memory_init(struct cuda_device *d);
void cuda_memory_done(struct cuda_device *d);
/* `bytes` of staging memory, at most CUDA_STAGING_BYTES; waits while others have too much of it. The same
 * part of `repacking` goes with it, at the same distance from its begin. A thread has one part at a time. */
char *cuda_staging_take(struct cuda_device *d, uint64_t bytes);
/* Puts a copy of the part's first bytes into the queue. They stay as they are until cuda_staging_wait(). */
void cuda_staging_put(struct cuda_device *d, dev_ptr to, const char *at, uint64_t bytes);
/* The part's last copy has been read. */
void cuda_staging_wait(struct cuda_device *d, const char *at);
/* Waits as well. */
void cuda_staging_give(struct cuda_device *d, char *at, uint64_t bytes);
/* Pins staging memory while there is a context, so that copies of it are quick; without it all else is the
 * same. */
void cuda_staging_pin(struct cuda_device *d);
void cuda_staging_unpin(struct cuda_device *d);

/* cuda_figures.c */

/* Measurement of the device's context. */
struct cuda_measure {
    void *other; /* context, until the end; NULL: none could be made */
    size_t before;
    uint64_t bytes; /* at the end; 0: not known */
};
/* Before the device's context is opened. */
void cuda_measure_begin(struct cuda_device *d, struct cuda_measure *ret);
/* After that; `opened`: it is the calling thread's. */
void cuda_measure_end(struct cuda_device *d, struct cuda_measure *m, bool opened);
/* Fills d->device.measured, in the device's context and beside no other. */
void cuda_measure_note(struct cuda_device *d, uint64_t context_bytes);
int cuda_figures(void *arg, struct domain_figures *ret);

/* cuda_weight.c */
uint64_t cuda_weight_bytes(const struct linear_source *s, uint32_t count, enum compute_mode mode);
struct weight cuda_weight_begin(const struct linear_source *s, uint32_t count, enum compute_mode mode,
                                dev_ptr at);
void cuda_weight_put(struct device *d, const struct weight *w, uint32_t at, const struct linear_source *rows);

/* cuda_fragments.c: weights of bf16 mode. */
bool cuda_takes_fragments(const struct linear_source *s, uint32_t count, enum compute_mode mode);
struct weight cuda_fragments_begin(const struct linear_source *s, uint32_t count, enum compute_mode mode,
                                   dev_ptr at);
/* Rows of the packed panels at `repacking` become rows of w. */
void cuda_fragments_put(struct cuda_device *d, const struct weight *w, const struct cuda_repack *rows);

/* cuda.c */
struct compute_cost cuda_cost(const struct compute_opts *o);
int cuda_open(const struct compute_opts *o, struct compute **ret);

/* cuda_fragments.c: the grid of few columns by wgmma, with 1 chain or 8. Sets t->stages. */
struct cuda_grid cuda_few_grid(const struct cuda_device *d, struct cuda_tiles *t, bool one);

/* cuda_probe.c: whether its wgmma can be used. 0, or -EIO when that could not be tried. */
int cuda_probe(struct cuda_device *d);

/* Patches of an operation of the vision encoder: as many as fill a GPU. */
#define CUDA_ENCODE_PATCHES 4096u
uint64_t cuda_encode_bytes(const struct encode_shape *s, uint64_t patches, uint64_t edge);
struct encode_rows cuda_encode_rows(dev_ptr at, uint32_t width, bool read, unsigned sums);

#endif
