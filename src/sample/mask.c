/* mask.c - the fastest mask of this processor. */
#include "sample/mask.h"

float mask_ids(float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed)
{
    return (__builtin_cpu_supports("avx2") ? mask_ids_avx2 : mask_ids_plain)(logits, count, valid, allowed);
}

float mask_most(const float *logits, uint32_t count, const uint64_t *valid, const uint64_t *allowed)
{
    return (__builtin_cpu_supports("avx2") ? mask_most_avx2 : mask_most_plain)(logits, count, valid, allowed);
}
