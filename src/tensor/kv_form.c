/* kv_form.c - values into a page, and the reference of reading them. */
#include "tensor/kv_form.h"

#include "base/check.h"
#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

static const char *const names[KV_FORMS] = {
    [KV_F32] = "f32", [KV_BF16] = "bf16", [KV_INT8] = "int8", [KV_FP8] = "fp8"};

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

void kv_form_put(enum kv_form form, char *base, uint32_t width, uint32_t token, size_t at, size_t stride,
                 const float *x)
{
    ASSERT(form < KV_FORMS && token < PAGE_TOKENS);
    ASSERT(at + (width - 1) * stride < (size_t)width * PAGE_TOKENS);
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

float kv_form_value(enum kv_form form, const char *base, uint32_t width, uint32_t token, size_t at)
{
    ASSERT(form < KV_FORMS && token < PAGE_TOKENS);
    ASSERT(at < (size_t)width * PAGE_TOKENS);
    if (form == KV_F32)
        return ((const float *)base)[at];
    if (form == KV_BF16)
        return bf16_to_f32(((const uint16_t *)base)[at]);
    const float *scales = (const float *)(base + kv_form_values_bytes(form, width));
    if (form == KV_FP8)
        return e4m3_to_f32(((const uint8_t *)base)[at]) * scales[token];
    return (float)((const int8_t *)base)[at] * scales[token];
}
