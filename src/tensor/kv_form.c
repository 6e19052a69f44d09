/* kv_form.c - values into a page, and the reference of reading them. */
#include "tensor/kv_form.h"

#include "base/check.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static const char *const names[KV_FORMS] = {
    [KV_F32] = "f32", [KV_BF16] = "bf16", [KV_INT8] = "int8", [KV_FP8] = "fp8", [KV_INT4] = "int4"};

const char *kv_form_name(enum kv_form form)
{
    ASSERT(form < KV_FORMS);
    return names[form];
}

bool kv_form_parse(const char *name, enum kv_form *ret)
{
    ASSERT(name && ret);
    for (int i = 0; i < KV_FORMS; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum kv_form)i;
            return true;
        }
    }
    return false;
}

/* The largest magnitude, 0 where it is below 2^-100; NaN where a value is not finite. */
static float largest(const float *x, uint32_t width)
{
    float max = 0;
    for (uint32_t d = 0; d < width; d++) {
        if (!isfinite(x[d]))
            return NAN;
        max = fmaxf(max, fabsf(x[d]));
    }
    return max < 0x1p-100f ? 0 : max;
}

static uint8_t int8_from_f32(float f)
{
    return (uint8_t)(int8_t)fminf(fmaxf(nearbyintf(f), -127), 127);
}

static void put_scaled(enum kv_form form, char *base, uint32_t width, uint32_t token, size_t at,
                       size_t stride, const float *x)
{
    float most = form == KV_INT8 ? 127 : E4M3_MAX, max = largest(x, width), scale = max / most;
    float back = max > 0 ? most / max : 0;
    uint8_t *q = (uint8_t *)base;
    ASSERT(!(scale < 0));
    for (uint32_t d = 0; d < width; d++) {
        float value = isnan(max) ? 0 : x[d] * back;
        q[at + d * stride] = form == KV_INT8 ? int8_from_f32(value) : e4m3_from_f32(value);
    }
    memcpy(base + kv_form_values_bytes(form, width) + token * sizeof(float), &scale, sizeof(scale));
}

/* ---- int4 ---- */

/* The scale of 32 values: a float of five significant bits; NaN where one of them is not finite. */
static float group_scale(const float *x)
{
    float most = 0;
    for (uint32_t d = 0; d < KV_GROUP; d++) {
        if (!isfinite(x[d]))
            return NAN;
        most = fabsf(x[d]) > fabsf(most) ? x[d] : most;
    }
    if (fabsf(most) < 0x1p-100f)
        return 0;
    uint32_t bits, below = (1U << 19) - 1;
    float scale = most / -8;
    memcpy(&bits, &scale, sizeof(bits));
    bits = (bits + below) & ~below;
    memcpy(&scale, &bits, sizeof(scale));
    ASSERT(fabsf(scale) >= fabsf(most) / 8);
    return isfinite(scale) ? scale : NAN;
}

static void put_nibble(uint8_t *values, size_t at, uint8_t code)
{
    uint8_t *byte = values + at / 16 * 8 + at % 8, shift = at / 8 % 2 * 4;
    ASSERT(code <= 15);
    *byte = (uint8_t)((*byte & ~(15 << shift)) | code << shift);
}

static int nibble(const uint8_t *values, size_t at)
{
    return (values[at / 16 * 8 + at % 8] >> at / 8 % 2 * 4 & 15) - 8;
}

static void put_groups(char *base, uint32_t width, uint32_t token, size_t at, size_t stride, const float *x)
{
    uint16_t *scales = (uint16_t *)(base + kv_form_values_bytes(KV_INT4, width));
    ASSERT(width % KV_GROUP == 0);
    for (uint32_t begin = 0; begin < width; begin += KV_GROUP) {
        float scale = group_scale(x + begin);
        for (uint32_t d = begin; d < begin + KV_GROUP; d++) {
            float q = scale == 0 || isnan(scale) ? 0 : fminf(fmaxf(nearbyintf(x[d] / scale), -8), 7);
            put_nibble((uint8_t *)base, at + d * stride, (uint8_t)((int)q + 8));
        }
        scales[begin / KV_GROUP * PAGE_TOKENS + token] = bf16_from_f32(scale);
    }
}

/* ---- all forms ---- */

void kv_form_put(enum kv_form form, char *base, uint32_t width, uint32_t token, size_t at, size_t stride,
                 const float *x)
{
    ASSERT(form < KV_FORMS && token < PAGE_TOKENS);
    ASSERT(at + (width - 1) * stride < (size_t)width * PAGE_TOKENS);
    if (form == KV_INT4) {
        put_groups(base, width, token, at, stride, x);
        return;
    }
    if (kv_form_scaled(form)) {
        put_scaled(form, base, width, token, at, stride, x);
        return;
    }
    for (uint32_t d = 0; d < width; d++) {
        if (form == KV_F32)
            ((float *)base)[at + d * stride] = x[d];
        else
            ((uint16_t *)base)[at + d * stride] = bf16_from_f32(x[d]);
    }
}

float kv_form_value(enum kv_form form, const char *base, uint32_t width, uint32_t token, size_t at,
                    size_t stride, uint32_t d)
{
    ASSERT(form < KV_FORMS && token < PAGE_TOKENS && d < width);
    at += d * stride;
    ASSERT(at < (size_t)width * PAGE_TOKENS);
    const char *scales = base + kv_form_values_bytes(form, width);
    if (form == KV_F32)
        return ((const float *)base)[at];
    if (form == KV_BF16)
        return bf16_to_f32(((const uint16_t *)base)[at]);
    if (form == KV_INT4)
        return (float)nibble((const uint8_t *)base, at) *
               bf16_to_f32(((const uint16_t *)scales)[d / KV_GROUP * PAGE_TOKENS + token]);
    float scale = ((const float *)scales)[token];
    return (form == KV_FP8 ? e4m3_to_f32(((const uint8_t *)base)[at]) : (float)((const int8_t *)base)[at]) *
           scale;
}
