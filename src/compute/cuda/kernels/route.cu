/* route.cu - which experts a token takes, a block for each token, with sums of one thread in their order. And
 * the pairs of tokens and experts, sorted by expert. */
#include "compute/cuda/kernels/common.cuh"

enum { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SOFTMAX_CHOSEN };
enum { SHARED_NONE, SHARED_GATED, SHARED_WHOLE };

/* A block keeps the scores of up to 1,024 experts in shared memory; more of them stay in global memory. */
#define SCORES_MAX 1024u

/* By all threads. */
DEVICE void softmax(float *x, uint32_t n)
{
    __shared__ float all;
    float max = -INFINITY;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        max = fmaxf(max, x[i]);
    max = block_max(max);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        x[i] = expf(x[i] - max);
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < n; i++)
            sum += x[i];
        all = sum;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        x[i] /= all;
    __syncthreads();
}

DEVICE float choice_of(const cuda_route &a, const float *p, uint32_t i)
{
    return a.correction ? p[i] + a.correction[i] : p[i];
}

/* The sum of the two best choices of a group's experts, or the best one. */
DEVICE float group_score(const cuda_route &a, const float *p, uint32_t from, uint32_t to)
{
    float best = -INFINITY, second = -INFINITY;
    for (uint32_t i = from; i < to; i++) {
        float x = choice_of(a, p, i);
        if (x > best) {
            second = best;
            best = x;
        } else if (x > second) {
            second = x;
        }
    }
    return best + (to - from > 1 && !a.group_max ? second : 0);
}

/* Bit g: experts of group g may be chosen. Any thread. */
DEVICE uint64_t best_groups(const cuda_route &a, const float *p, uint32_t n)
{
    uint64_t chosen = 0;
    uint32_t size = n / a.groups;
    for (uint32_t k = 0; k < a.groups_top; k++) {
        uint32_t best = CUDA_NONE;
        float best_score = 0;
        for (uint32_t g = 0; g < a.groups; g++) {
            if (chosen >> g & 1)
                continue;
            float score = group_score(a, p, g * size, (g + 1) * size);
            if (best == CUDA_NONE || score > best_score) {
                best = g;
                best_score = score;
            }
        }
        chosen |= (uint64_t)1 << best;
    }
    return chosen;
}

/* The k experts of the best choices, and their scores in turn, whose sum is returned. One warp; spoils p. */
DEVICE float choose(const cuda_route &a, float *p, uint32_t n, uint32_t k, uint64_t groups, uint32_t *experts,
                    float *weights)
{
    uint32_t size = a.groups > 1 ? n / a.groups : n, lane = threadIdx.x % 32;
    const float taken = a.score == SCORE_SOFTMAX_CHOSEN ? -INFINITY : -1;
    float sum = 0;
    for (uint32_t r = 0; r < k; r++) {
        best mine = {0, CUDA_NONE};
        for (uint32_t i = lane; i < n; i += 32) {
            if (p[i] != taken && (groups >> i / size & 1))
                mine = better(mine, {choice_of(a, p, i), i});
        }
        mine = warp_best(mine);
        uint32_t expert = mine.index == CUDA_NONE ? 0 : mine.index;
        float score = p[expert];
        sum += score;
        __syncwarp();
        if (lane == 0) {
            experts[r] = expert;
            weights[r] = score;
            p[expert] = taken;
        }
        __syncwarp();
    }
    return sum;
}

KERNEL plateau_route(const cuda_step s, const cuda_route a)
{
    grid_begin();
    __shared__ float scores[SCORES_MAX];
    __shared__ float sum;
    uint32_t t = blockIdx.x, n = s.experts, k = s.top_k;
    float *in = row_of(a.in, t), *p = n <= SCORES_MAX ? scores : in;
    float *weights = a.pair_weight + (uint64_t)t * k;
    uint32_t *experts = a.pair_expert + (uint64_t)t * k;
    bool chosen = a.score == SCORE_SOFTMAX_CHOSEN;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        p[i] = a.score == SCORE_SIGMOID ? sigmoid(in[i]) : in[i];
    __syncthreads();
    if (a.score == SCORE_SOFTMAX)
        softmax(p, n);
    if (threadIdx.x < 32) {
        uint64_t groups = a.groups > 1 ? best_groups(a, p, n) : 1;
        float chosen_sum = choose(a, p, n, k, groups, experts, weights);
        if (threadIdx.x == 0)
            sum = chosen_sum;
    }
    __syncthreads();
    if (chosen)
        softmax(weights, k);
    for (uint32_t r = threadIdx.x; r < k; r += blockDim.x) {
        float w = weights[r];
        if (a.normalise)
            w /= (chosen ? 1 : sum) + a.normalise_eps;
        if (a.scale != 0)
            w *= a.scale;
        if (a.expert_scale)
            w *= a.expert_scale[experts[r]];
        weights[r] = w;
    }
    if (threadIdx.x == 0)
        a.shared_gate[t] = a.shared == SHARED_GATED ? sigmoid(in[n]) : 1;
}

/* x becomes the sum of those before it. One warp; returns the sum of all. */
DEVICE uint32_t sums_before(uint32_t *x, uint32_t n)
{
    uint32_t lane = threadIdx.x % 32, all = 0;
    for (uint32_t from = 0; from < n; from += 32) {
        uint32_t own = from + lane < n ? x[from + lane] : 0, sum = own;
        for (uint32_t d = 1; d < 32; d *= 2) {
            uint32_t other = __shfl_sync(0xffffffffu, sum, lane >= d ? lane - d : lane);
            sum += lane >= d ? other : 0;
        }
        if (from + lane < n)
            x[from + lane] = all + sum - own;
        all += __shfl_sync(0xffffffffu, sum, 31);
    }
    return all;
}

KERNEL plateau_sort(const cuda_sort a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    uint32_t *counts = (uint32_t *)shared; /* pairs of each expert; then where its next pair goes */
    uint32_t *groups = counts + a.experts; /* groups of each expert; then where they begin */
    grid_begin();
    for (uint32_t e = threadIdx.x; e < a.experts; e += blockDim.x)
        counts[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.pairs; i += blockDim.x)
        atomicAdd(&counts[a.expert[i]], 1u);
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < a.experts; e += blockDim.x)
        groups[e] = (counts[e] + a.columns - 1) / a.columns;
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t all = sums_before(groups, a.experts);
        sums_before(counts, a.experts);
        if (threadIdx.x == 0)
            *a.group_count = all;
    }
    __syncthreads();
    for (uint32_t e = threadIdx.x; e < a.experts; e += blockDim.x) {
        uint32_t end = e + 1 < a.experts ? counts[e + 1] : a.pairs, group = groups[e];
        for (uint32_t at = counts[e]; at < end; at += a.columns)
            a.groups[group++] = {e, at, min(a.columns, end - at)};
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.pairs; i += blockDim.x)
        a.order[atomicAdd(&counts[a.expert[i]], 1u)] = i;
}
