/* mode.h - the arithmetic of a model's products.
 *
 * A backend applies it to the matrices that it has kernels for: whole numbers to quantised ones, bf16 to all
 * but a few forms, on the CPU to BF16 and F16 alone. All others compute in f32 in every mode, and so do
 * matrices that linear_source.exact marks. */
#ifndef PLATEAU_COMPUTE_MODE_H
#define PLATEAU_COMPUTE_MODE_H

#include <stdbool.h>

enum compute_mode {
    COMPUTE_AUTO, /* the caller's choice; a backend is never given it */
    COMPUTE_F32,
    COMPUTE_BF16,  /* weights and inputs of products; sums in f32 */
    COMPUTE_INT16, /* inputs of a product as whole numbers of two bytes, with a scale per group (quants.h) */
    COMPUTE_INT8,  /* inputs of a product as whole numbers of one byte */
    COMPUTE_FP8,   /* bf16, but FP8 weights are multiplied with FP8 inputs */
};

/* Whether inputs of products become bf16, and perhaps less. */
static inline bool compute_rounds(enum compute_mode mode)
{
    return mode == COMPUTE_BF16 || mode == COMPUTE_FP8;
}

#endif
