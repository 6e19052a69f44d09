/* test_floats.h - 16-bit floats of given values. */
#ifndef PLATEAU_TESTS_TEST_FLOATS_H
#define PLATEAU_TESTS_TEST_FLOATS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* To nearest even; NaN stays a quiet NaN. */
static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = bits_of_f32(f);
    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 0x40);
    /* Adding just under half, plus one when the kept part is odd, carries exactly when rounding up is due. */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* To nearest even. */
static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = bits_of_f32(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    uint32_t a = u & 0x7fffffff;
    if (a > 0x7f800000)
        return sign | 0x7e00 | (uint16_t)(a >> 13 & 0x1ff);
    if (a >= 0x477ff000) /* 65520 and up: past the middle between the largest half and 2^16 */
        return sign | 0x7c00;
    if (a < 0x38800000) {
        /* Below the smallest normal half: a multiple of 2^-24. Adding 0.5 to |f| lets the f32 adder round it,
         * to even. */
        float r;
        memcpy(&r, &a, sizeof r);
        r += 0.5f;
        return sign | (uint16_t)(bits_of_f32(r) - bits_of_f32(0.5f));
    }
    a += 0xfff + (a >> 13 & 1);
    return sign | (uint16_t)((a >> 13) - (112 << 10));
}

#endif
