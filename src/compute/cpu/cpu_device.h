/* cpu_device.h - the CPU as a device: what the backend's files, its tests and benchmarks take from it, and
 * the backend's functions that need no device. */
#ifndef PLATEAU_COMPUTE_CPU_DEVICE_H
#define PLATEAU_COMPUTE_CPU_DEVICE_H

#include "compute/device.h"
#include "compute/mode.h"
#include "compute/weight.h"

#include "kernel/kern.h"
#include "kernel/matrix.h"
#include "memory/dev.h"

struct compute;
struct compute_opts;
struct encode_shape;
struct linear_source;
struct workers;

/* Constant once open. */
struct cpu_device {
    struct device device; /* first */
    struct workers *workers;
    struct kern_ops ops;
    /* Memory that the backend follows lies at dev_ptr ^ flip. 0, but for a device whose addresses host code
     * must not follow (compute/fake). */
    uint64_t flip;
};

static inline struct cpu_device *cpu_device_of(struct device *d)
{
    return (struct cpu_device *)d;
}

/* As `device_open_cpu()`, but with the kernels that `flags` allow. */
int cpu_device_open(uint32_t workers, unsigned flags, struct account *stacks, struct device **ret);

/* The functions of backend_cpu that stand in other files. */
struct compute_cost cpu_cost(const struct compute_opts *o);       /* cpu.c */
int cpu_open(const struct compute_opts *o, struct compute **ret); /* cpu.c */
/* Patches whose intermediate values stay in the second cache, and enough to read weights for. */
#define CPU_ENCODE_PATCHES 256u
uint64_t cpu_encode_bytes(const struct encode_shape *s, uint64_t patches, uint64_t edge); /* cpu_encode.c */
struct encode_rows cpu_encode_rows(dev_ptr at, uint32_t width, bool read, unsigned sums); /* cpu_encode.c */
/* Layout of matrices as kernel/matrix.h has them; every tier reads the same one. */
#define CPU_LAYOUT "cpu 2"
/* cpu_weight.c; the mode does not change the bytes. */
uint64_t cpu_weight_bytes(const struct linear_source *s, uint32_t count, enum compute_mode mode);
struct weight cpu_weight_begin(const struct linear_source *s, uint32_t count,
                               enum compute_mode mode, /* cpu_weight.c */
                               dev_ptr at);
void cpu_weight_put(struct device *d, const struct weight *w, uint32_t at, const struct linear_source *rows);

/* The matrix that a weight is. */
static inline struct matrix cpu_weight_matrix(const struct weight *w, uint64_t flip)
{
    return (struct matrix){.form = (enum matrix_form)w->form,
                           .n = w->n,
                           .k = w->k,
                           .experts = w->experts,
                           .bits = w->bits,
                           .group = w->group,
                           .qparams = (enum matrix_form)w->qparams,
                           .codes = (enum code_map)w->codes,
                           .bias_kind = (enum bias_kind)w->biases,
                           .super = w->super,
                           .data = (const void *)(uintptr_t)(w->data.at ^ flip),
                           .expert_bytes = (size_t)w->expert_bytes};
}

/* Sums that a product needs of its input beside it: of groups of 16, 32, 64 or 128 values, a bit for each
 * size, or a quantised row with groups of that size, also a bit each, or the row in BF16. */
#define CPU_GROUP_MIN    16u
#define CPU_GROUP_MAX    128u
#define CPU_GROUP_SIZES  4
#define CPU_QUANTS_SHIFT 4
/* Stands for the row in BF16 among the groups of rows; no matrix has such groups. */
#define CPU_BF16_GROUP   (2 * CPU_GROUP_MAX)
#define CPU_QUANTS_SIZES (CPU_GROUP_SIZES + 1)
static inline unsigned cpu_sums_flag(uint32_t group)
{
    return group / CPU_GROUP_MIN;
}
static inline unsigned cpu_quants_flag(uint32_t group)
{
    return cpu_sums_flag(group) << CPU_QUANTS_SHIFT;
}
/* The groups of the rows that a matrix reads instead of f32 (matrix_rounds_input). */
static inline uint32_t cpu_quants_group(const struct matrix *m)
{
    return m->form == MATRIX_PAIRS ? CPU_BF16_GROUP : m->group;
}

#endif
