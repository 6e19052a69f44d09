/* backend.h - an implementation of the compute contract: what it needs, how it packs weights, and opens.
 *
 * A backend is a table of functions and has no state; a device of it is opened by its own header
 * (compute/cpu, compute/fake). The sizes are known without a device, so that a plan needs none. */
#ifndef PLATEAU_COMPUTE_BACKEND_H
#define PLATEAU_COMPUTE_BACKEND_H

#include "base/arena.h"
#include "compute/device.h"
#include "compute/mode.h"
#include "compute/ops.h"
#include "memory/dev.h"

struct encode_shape;
struct linear_source;

#define COMPUTE_ARRAYS_MAX 16

/* Experts in the machine's memory of a model on a device (op_experts.machine): the widest of their rows, and
 * the mode and the sums of their weights. in 0: there are none. */
struct experts_opts {
    uint32_t in, rows, mid, out;
    enum compute_mode mode;
    unsigned sums;
    const struct backend *backend; /* the CPU's */
    struct device *cpu;            /* device that computes them; not read for a cost */
};

/* Options of a workspace. */
struct compute_opts {
    const struct compute_shape *shape; /* stays */
    const struct array_spec *arrays;   /* copied */
    uint32_t array_count;
    enum compute_mode mode; /* mode of the weights */
    unsigned sums;          /* sums that all their products need of their input beside it: weight.sums */
    struct experts_opts experts;
    uint32_t tokens_max, seqs_max, logits_max; /* limits of one step */
    struct device *device;                     /* outlives the workspace */
    /* With room for either part of the cost; one arena where the memory of the device is the machine's. */
    struct arena *device_memory, *host_memory;
    dev_ptr range; /* instead of device_memory where the backend wants ranges: committed, zeros */
    /* Charges for recorded steps, for a backend whose cost has some: on the device, and in the machine's
     * memory. They stay. A step for which there is no room is not recorded, and its results are equal. NULL:
     * uncounted. */
    const struct charge *recorded, *recorded_host;
};

struct backend {
    const char *name;   /* "cpu" */
    bool apart;         /* its memory is not the machine's */
    bool ranges;        /* its part of a workspace lies in a range of the device's domain */
    const char *layout; /* layout of its weights in packed files, renewed with each change; NULL: it maps
                         * none */
    bool bf16;          /* it has COMPUTE_BF16 */
    bool fp8;           /* it has COMPUTE_FP8 */
    bool samples;       /* it samples tokens from rows of logits */
    bool codebooks;     /* it multiplies words of codebooks (tensor/codebook.h) */
    bool shards;        /* it computes a model over several devices (compute/shards.h) */
    bool page_hidden;   /* it keeps hidden states for an MTP head in pages, too (layout.h) */
    bool integers;      /* it has COMPUTE_INT16, COMPUTE_INT8, and every form of K and V */
    /* Whether this machine computes unquantised weights faster in bf16 than in f32; NULL: it does not. */
    bool (*prefers_bf16)(void);

    /* Cost of a workspace; only shape, arrays, mode, sums and experts are read. */
    struct compute_cost (*cost)(const struct compute_opts *o);
    /* Lays the workspace out in o->device_memory and o->host_memory, which free it. 0 or -ENOMEM. */
    int (*open)(const struct compute_opts *o, struct compute **ret);

    /* Bytes of `count` sources with equal `in` and form, packed as one matrix: one above the other. */
    uint64_t (*weight_bytes)(const struct linear_source *s, uint32_t count, enum compute_mode mode);
    /* That matrix at `at`, 64-byte aligned, whose rows are not written yet. */
    struct weight (*weight_begin)(const struct linear_source *s, uint32_t count, enum compute_mode mode,
                                  dev_ptr at);
    /* The rows of `rows`, a source without experts, become rows `at` and following. `rows` is read before the
     * call returns. Any thread; rows of a panel (WEIGHT_PANEL) are written in order, without a gap, by one
     * thread at a time. */
    void (*weight_put)(struct device *d, const struct weight *w, uint32_t at,
                       const struct linear_source *rows);

    bool all_encoders;       /* it computes every family of vision encoders */
    uint32_t encode_patches; /* patches of one operation of a vision encoder, about */
    /* Bytes of the backend's arrays for an image of `patches` patches, `edge` of them along its longer edge.
     * Grows by the same bytes with each whole page of patches. */
    uint64_t (*encode_bytes)(const struct encode_shape *s, uint64_t patches, uint64_t edge);
    /* Rows of `width` floats at `at`; `read`: products read them, with weights that need `sums`. */
    struct encode_rows (*encode_rows)(dev_ptr at, uint32_t width, bool read, unsigned sums);
};

extern const struct backend backend_cpu;

#endif
