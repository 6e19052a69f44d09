/* mk_tensors.h - the tensors of a made-up checkpoint, in the order of its file.
 *
 * A list owns its tensors; what a tensor holds is a function of (seed, its place in the list), so a file need
 * never be in memory. One thread. */
#ifndef PLATEAU_TOOLS_MK_TENSORS_H
#define PLATEAU_TOOLS_MK_TENSORS_H

#include "mkmodel/mk_shape.h"

#include <stddef.h>

enum mk_fill {
    MK_BF16,    /* weights, as large as keeps an output as large as its input */
    MK_FLOATS,  /* weights in E4M3, to be multiplied by their block's scale */
    MK_BLOCKS,  /* f32: scales of blocks */
    MK_FIELDS,  /* affine values: random bits */
    MK_SCALES,  /* bf16 */
    MK_BIASES,  /* bf16: minus half of the range, so that weights lie around 0 */
    MK_AROUND0, /* bf16 within 0.125 of 0: norms stored as w - 1, and the delta net's dt_bias */
    MK_AROUND1, /* bf16 within 0.125 of 1: norms */
    MK_DECAY,   /* f32 in [0, 2): the delta net's A_log */
};

struct mk_tensor {
    char name[120];
    enum mk_fill fill;
    uint32_t rank, fan_in, bits;
    uint64_t dims[5];
    uint64_t bytes;
    uint64_t stream; /* scales and biases of one matrix share theirs */
};

struct mk_tensors {
    struct mk_tensor *list;
    uint32_t count, count_max;
    uint64_t bytes; /* bytes of all tensors */
};

/* 0 or -ENOMEM. `layers` may be fewer than the shape's. */
int mk_tensors_list(const struct mk_shape *s, const struct mk_form *f, uint32_t layers,
                    struct mk_tensors *ret);
void mk_tensors_done(struct mk_tensors *l);

/* "BF16", ... as safetensors has it. */
const char *mk_tensor_dtype(const struct mk_tensor *t);
/* Bytes [from, from + len) of a tensor; both are multiples of 8, but for the tensor's end. ret has room for
 * whole eights. */
void mk_tensor_fill(const struct mk_tensor *t, uint64_t seed, uint64_t from, size_t len, void *ret);

#endif
