/* weights.c - sums of weights, one by one, and the choice between the two ways. */
#include "sample/weights.h"

#include "base/candidate.h"
#include "base/sample_weight.h"

double weights_sum_plain(const struct candidate *list, uint32_t count)
{
    double s[8] = {0};
    for (uint32_t i = 0; i < count; i++)
        s[i % 8] += weight_of(list[i].logit);
    return weight_add(s);
}

double weights_sum(const struct candidate *list, uint32_t count)
{
    return (__builtin_cpu_supports("avx2") ? weights_sum_avx2 : weights_sum_plain)(list, count);
}
