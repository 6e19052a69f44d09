/* kv_form.h - the forms of K and V in a page.
 *
 * A form says which f32 value is read for one that was stored; everything after the reading is the same in
 * every form. bf16: the nearest, to even. int8: with s = max |x| / 127 over a token's values of one head,
 * x becomes q = x * (127 / max |x|) to the nearest, to even, and is read as (float)q * s; all zeros where
 * max |x| is 0. fp8: likewise with 448 for 127, and q the nearest float of 1, 4 and 3 bits (E4M3). Where a
 * value is not finite, all of its token's head are NaN.
 *
 * int4: of each 32 values in order, m is the one of largest magnitude, the first of equal ones. s is -m / 8,
 * whose magnitude is rounded up to five significant bits. x becomes q = x / s to the nearest, to even, from
 * -8 to 7, and is read as q * s, which bf16 has exactly. All are zeros where |m| is below 2^-100, and NaN
 * where a value is not finite. A head's width is a multiple of 32. */
#ifndef PLATEAU_TENSOR_KV_FORM_H
#define PLATEAU_TENSOR_KV_FORM_H

#include "base/check.h"
#include "base/page_tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kv_form { KV_F32, KV_BF16, KV_INT8, KV_FP8, KV_INT4 };
#define KV_FORMS 5
/* Values of a head that share a scale of int4. */
#define KV_GROUP 32

/* "f32", "bf16", "int8", "fp8", "int4". */
const char *kv_form_name(enum kv_form form);
bool kv_form_parse(const char *name, enum kv_form *ret);

static inline size_t kv_form_value_bits(enum kv_form form)
{
    return form == KV_F32 ? 32 : form == KV_BF16 ? 16 : form == KV_INT4 ? 4 : 8;
}

/* True if each token's head has a scale, or several. */
static inline bool kv_form_scaled(enum kv_form form)
{
    return form >= KV_INT8;
}
/* True if heads of this width can have the form. */
static inline bool kv_form_fits(enum kv_form form, uint32_t width)
{
    ASSERT(form < KV_FORMS);
    return form != KV_INT4 || width % KV_GROUP == 0;
}

/* Returns the bytes of a page's tokens, `width` values each: the values, then the scales. int8 and fp8 have
 * an f32 for each token; int4 has [width / KV_GROUP][PAGE_TOKENS] of bf16, and of 16 values from a place that
 * is a multiple of 16 on, byte i has value i in its low bits and value i + 8 in its high ones, plus 8. */
static inline size_t kv_form_values_bytes(enum kv_form form, uint32_t width)
{
    return kv_form_value_bits(form) * width * PAGE_TOKENS / 8;
}
static inline size_t kv_form_scales_bytes(enum kv_form form, uint32_t width)
{
    return form == KV_INT4        ? (size_t)width / KV_GROUP * PAGE_TOKENS * sizeof(uint16_t)
           : kv_form_scaled(form) ? PAGE_TOKENS * sizeof(float)
                                  : 0;
}
static inline size_t kv_form_bytes(enum kv_form form, uint32_t width)
{
    return kv_form_values_bytes(form, width) + kv_form_scales_bytes(form, width);
}

/* The token's `width` values x go to places at, at + stride ... of a page's values at `base`. */
void kv_form_put(enum kv_form form, char *base, uint32_t width, uint32_t token, size_t at, size_t stride,
                 const float *x);
/* Returns value `d` of those. */
float kv_form_value(enum kv_form form, const char *base, uint32_t width, uint32_t token, size_t at,
                    size_t stride, uint32_t d);

#endif
