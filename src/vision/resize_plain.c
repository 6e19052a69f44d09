/* resize_plain.c - both passes in plain C, for every processor and for what the vectors leave. */
#include "vision/resize_taps.h"

static uint8_t clip(int32_t sum)
{
    int32_t v = sum >> RESIZE_FRACTION;
    return v < 0 ? 0 : v > 255 ? 255 : (uint8_t)v;
}

void resize_across_from(uint8_t *to, const uint8_t *from, const struct resize_taps *t, uint32_t x)
{
    for (; x < t->outputs; x++) {
        const uint8_t *p = from + (size_t)t->first[x] * 3;
        const int32_t *w = t->weight + (size_t)x * t->stride;
        int32_t r = 1 << (RESIZE_FRACTION - 1), g = r, b = r;
        for (uint32_t i = 0; i < t->count[x]; i++) {
            r += p[i * 3] * w[i];
            g += p[i * 3 + 1] * w[i];
            b += p[i * 3 + 2] * w[i];
        }
        to[x * 3] = clip(r);
        to[x * 3 + 1] = clip(g);
        to[x * 3 + 2] = clip(b);
    }
}

void resize_across_plain(uint8_t *to, const uint8_t *from, uint32_t from_width, const struct resize_taps *t)
{
    (void)from_width;
    resize_across_from(to, from, t, 0);
}

void resize_down_from(uint8_t *to, const uint8_t *const *rows, size_t bytes, const struct resize_taps *t,
                      uint32_t y, size_t i)
{
    const int32_t *w = t->weight + (size_t)y * t->stride;
    for (; i < bytes; i++) {
        int32_t sum = 1 << (RESIZE_FRACTION - 1);
        for (uint32_t k = 0; k < t->count[y]; k++)
            sum += rows[k][i] * w[k];
        to[i] = clip(sum);
    }
}

void resize_down_plain(uint8_t *to, const uint8_t *const *rows, size_t bytes, const struct resize_taps *t,
                       uint32_t y)
{
    resize_down_from(to, rows, bytes, t, y, 0);
}
