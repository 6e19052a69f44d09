/* kv_form.h - the forms of K and V in a page.
 *
 * A form says which f32 value is read for one that was stored; everything after the reading is the same in
 * every form. bf16: the nearest, to even. int8: with s = max |x| / 127 over a token's values of one head,
 * x becomes q = x * (127 / max |x|) to the nearest, to even, and is read as (float)q * s; all zeros where
 * max |x| is 0. fp8: likewise with 448 for 127, and q the nearest float of 1, 4 and 3 bits (E4M3). Where a
 * value is not finite, all of its token's head are NaN. */
#ifndef PLATEAU_TENSOR_KV_FORM_H
#define PLATEAU_TENSOR_KV_FORM_H

#include "base/page_tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kv_form { KV_F32, KV_BF16, KV_INT8, KV_FP8 };
#define KV_FORMS 4

/* "f32", "bf16", "int8", "fp8". */
const char *kv_form_name(enum kv_form form);
bool kv_form_parse(const char *name, enum kv_form *ret);

static inline size_t kv_form_value_bytes(enum kv_form form)
{
    return form == KV_F32 ? sizeof(float) : form == KV_BF16 ? sizeof(uint16_t) : sizeof(int8_t);
}

/* True if each token's head has a scale. */
static inline bool kv_form_scaled(enum kv_form form)
{
    return form == KV_INT8 || form == KV_FP8;
}

/* Returns the bytes of a page's tokens, `width` values each: the values, then of int8 and fp8 the tokens'
 * scales, f32. */
static inline size_t kv_form_values_bytes(enum kv_form form, uint32_t width)
{
    return kv_form_value_bytes(form) * width * PAGE_TOKENS;
}
static inline size_t kv_form_bytes(enum kv_form form, uint32_t width)
{
    return kv_form_values_bytes(form, width) + (kv_form_scaled(form) ? PAGE_TOKENS * sizeof(float) : 0);
}

/* The token's `width` values x go to places at, at + stride ... of a page's values at `base`. */
void kv_form_put(enum kv_form form, char *base, uint32_t width, uint32_t token, size_t at, size_t stride,
                 const float *x);
/* Returns the value at place `at`, which is of `token` of the page. */
float kv_form_value(enum kv_form form, const char *base, uint32_t width, uint32_t token, size_t at);

#endif
