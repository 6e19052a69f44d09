/* sample_parts.c - what samples from whole rows and samples from the best tokens have in common. */
#include "sample/sample.h"
#include "sample/weights.h"

#include "base/candidate.h"
#include "base/check.h"
#include "base/sample_weight.h"
#include "compute/row_sample.h"

#include <math.h>

/* ---- settings ---- */

bool sample_is_greedy(const struct sampler_params *p, float max)
{
    return p->temperature == 0 || p->top_k == 1 || !isfinite(max);
}

float sample_window(const struct sampler_params *p)
{
    return p->min_p > 0 ? MIN_OF(SAMPLE_WINDOW, -logf(p->min_p)) : SAMPLE_WINDOW;
}

bool sample_top_k_cuts(const struct sampler_params *p, uint32_t count)
{
    return p->top_k > 0 && p->top_k < count;
}

/* ---- bins ---- */

enum { BINS_EACH = 16 };
_Static_assert(SAMPLER_BINS > BINS_EACH * ((int)SAMPLE_WINDOW + 1), "every candidate has a bin");

uint32_t sample_bin_of(float below)
{
    return (uint32_t)(-below * BINS_EACH);
}

uint32_t sample_last_bin(const uint32_t bins[SAMPLER_BINS], uint32_t count, double weight)
{
    uint32_t have = 0, bin = 0;
    double each = exp(-0.5 / BINS_EACH), sum = 0;
    for (; bin < SAMPLER_BINS - 1; bin++, each *= exp(-1. / BINS_EACH)) {
        have += bins[bin];
        sum += bins[bin] * each;
        if (count > 0 ? have >= count : sum >= weight * 1.005)
            break;
    }
    return bin;
}

/* ---- in order of id ---- */

/* Candidates up to list[end - 1] of one block of ids. */
static uint32_t block_begin(const struct candidate *list, uint32_t end)
{
    ASSERT(end > 0);
    uint32_t block = list[end - 1].id / ROW_SAMPLE_BLOCK, begin = end - 1;
    while (begin > 0 && list[begin - 1].id / ROW_SAMPLE_BLOCK == block)
        begin--;
    return begin;
}

double sample_weight_by_id(const struct candidate *list, uint32_t count)
{
    double mass = 0;
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        uint32_t block = list[begin].id / ROW_SAMPLE_BLOCK;
        for (end = begin + 1; end < count && list[end].id / ROW_SAMPLE_BLOCK == block;)
            end++;
        mass += weights_sum(list + begin, end - begin);
    }
    return mass;
}

uint32_t sample_by_id(const struct candidate *list, uint32_t count, double target)
{
    ASSERT(count > 0);
    double sum = 0;
    for (uint32_t end = count, begin; end > 0; end = begin) {
        begin = block_begin(list, end);
        double block = weights_sum(list + begin, end - begin);
        if (sum + block <= target) {
            sum += block;
            continue;
        }
        for (uint32_t i = end; i-- > begin;) {
            sum += weight_of(list[i].logit);
            if (sum > target)
                return list[i].id;
        }
    }
    return list[0].id; /* rounding left a crumb */
}
