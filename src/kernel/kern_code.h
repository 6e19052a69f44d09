/* kern_code.h - how a matrix stores its values, as one number for the kernels' inner parts. It is a constant
 * wherever they are inlined. */
#ifndef PLATEAU_KERNEL_KERN_CODE_H
#define PLATEAU_KERNEL_KERN_CODE_H

#include "kernel/matrix.h"

/* The bits of whole numbers, or one of these. */
enum { CODE_BF16 = 32, CODE_F16, CODE_F32, CODE_E2M1, CODE_IQ4, CODE_E4M3, CODE_WORDS };

static inline int code_of(const struct matrix *w)
{
    switch (w->form) {
    case MATRIX_BF16:
        return CODE_BF16;
    case MATRIX_F16:
        return CODE_F16;
    case MATRIX_F32:
        return CODE_F32;
    default:
        break;
    }
    if (code_is_word(w->codes))
        return CODE_WORDS;
    switch (w->codes) {
    case CODES_E2M1:
        return CODE_E2M1;
    case CODES_IQ4:
        return CODE_IQ4;
    case CODES_E4M3:
        return CODE_E4M3;
    default:
        return (int)w->bits;
    }
}

/* Returns how many bits a code has; not for floats. */
static inline __attribute__((always_inline)) int bits_of(int code)
{
    return code == CODE_E4M3 ? 8 : code >= CODE_BF16 ? 4 : code;
}

static inline __attribute__((always_inline)) enum code_map map_of(int code)
{
    return code == CODE_E2M1   ? CODES_E2M1
           : code == CODE_IQ4  ? CODES_IQ4
           : code == CODE_E4M3 ? CODES_E4M3
                               : CODES_WHOLE;
}

#endif
