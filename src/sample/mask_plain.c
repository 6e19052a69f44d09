/* mask_plain.c - the mask, id by id. */
#include "sample/mask.h"

#include <math.h>
#include <stdbool.h>

static bool has_bit(const uint64_t *bits, uint32_t i)
{
    return !bits || (bits[i / 64] >> (i % 64) & 1);
}

float mask_ids_plain(float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (isnan(logits[i]) || !has_bit(valid, i) || !has_bit(allowed, i))
            logits[i] = -INFINITY;
        most = logits[i] > most ? logits[i] : most;
    }
    return most;
}

float mask_most_plain(const float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed)
{
    float most = -INFINITY;
    for (uint32_t i = 0; i < count; i++)
        if (has_bit(valid, i) && has_bit(allowed, i) && logits[i] > most)
            most = logits[i];
    return most;
}
