/* cpu_open.h - the CPU backend: block operations over kernel/ and the pool of workers. */
#ifndef PLATEAU_COMPUTE_CPU_OPEN_H
#define PLATEAU_COMPUTE_CPU_OPEN_H

#include "base/arena.h"
#include "compute/ops.h"
#include "compute/device.h"

#define CPU_PLACES_MAX 16

/* What a workspace is made for. */
struct cpu_opts {
    const struct compute_shape *shape; /* stays */
    const struct place_spec *places;   /* copied */
    uint32_t place_count;
    uint32_t tokens_max, seqs_max, logits_max; /* of one step */
    struct device *device;                     /* outlives the workspace */
};

/* Cost of a workspace; only shape and places are read. */
struct compute_cost cpu_cost(const struct cpu_opts *o);
/* Lays the workspace out in `a`, which frees it. 0 or -ENOMEM. */
int cpu_open(struct arena *a, const struct cpu_opts *o, struct compute **ret);

/* Bytes of the backend's arrays for an image of `patches` patches, `edge` of them along its longer edge.
 * Grows by the same bytes with each whole page of patches. */
uint64_t cpu_encode_bytes(const struct encode_shape *s, uint64_t patches, uint64_t edge);
/* Rows of `width` floats at `at`; `read`: products read them. */
struct encode_rows cpu_encode_rows(dev_ptr at, uint32_t width, bool read);

#endif
