/* route.cu - which experts a token takes, a warp for each token, with sums of one thread in their order. And
 * the pairs of tokens and experts, sorted by expert. */
#include "compute/cuda/kernels/common.cuh"

enum { SCORE_SOFTMAX, SCORE_SIGMOID, SCORE_SOFTMAX_CHOSEN };
enum { SHARED_NONE, SHARED_GATED, SHARED_WHOLE };

/* A block keeps the scores of up to 1,024 experts in shared memory; more of them stay in global memory. */
#define SCORES_MAX 1024u

/* x becomes its softmax. All lanes of a warp call. */
DEVICE void softmax(float *x, uint32_t n)
{
    const uint32_t lane = threadIdx.x;
    float max = -INFINITY, sum = 0;
    for (uint32_t i = lane; i < n; i += 32)
        max = fmaxf(max, x[i]);
    for (uint32_t d = 16; d > 0; d /= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, d));
    for (uint32_t i = lane; i < n; i += 32)
        x[i] = expf(x[i] - max);
    __syncwarp();
#pragma unroll 16
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    __syncwarp();
    for (uint32_t i = lane; i < n; i += 32)
        x[i] /= sum;
    __syncwarp();
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

/* Numbers in the order of floats. -0 + 0 is 0. */
DEVICE uint32_t order_of(float x)
{
    const uint32_t bits = __float_as_uint(x + 0.0f);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* Finds the k experts of the best choices, and their scores in turn, whose sum it returns. Spoils p. */
DEVICE float choose(const cuda_route &a, float *p, uint32_t n, uint32_t k, uint64_t groups, uint32_t *experts,
                    float *weights)
{
    const uint32_t size = a.groups > 1 ? n / a.groups : n, lane = threadIdx.x;
    const float taken = a.score == SCORE_SOFTMAX_CHOSEN ? -INFINITY : -1;
    float sum = 0;
    for (uint32_t r = 0; r < k; r++) {
        uint32_t best = 0, index = CUDA_NONE;
#pragma unroll 4
        for (uint32_t i = lane; i < n; i += 32) {
            const uint32_t order = order_of(choice_of(a, p, i));
            if (p[i] != taken && (a.groups <= 1 || (groups >> i / size & 1)) &&
                (index == CUDA_NONE || order > best)) {
                best = order;
                index = i;
            }
        }
        const uint32_t most = warp_max(best);
        index = warp_min(best == most ? index : CUDA_NONE);
        const uint32_t expert = index == CUDA_NONE ? 0 : index;
        const float score = p[expert];
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

/* A token's experts; p: its scores, which it spoils. */
DEVICE void route_token(const cuda_step &s, const cuda_route &a, float *p)
{
    const uint32_t t = blockIdx.x, n = s.experts, k = s.top_k, lane = threadIdx.x;
    const float *in = row_of(a.in, t);
    float *weights = a.pair_weight + (uint64_t)t * k;
    uint32_t *experts = a.pair_expert + (uint64_t)t * k;
    const bool chosen = a.score == SCORE_SOFTMAX_CHOSEN;
#pragma unroll 4
    for (uint32_t i = lane; i < n; i += 32)
        p[i] = a.score == SCORE_SIGMOID ? sigmoid(in[i]) : in[i];
    __syncwarp();
    if (a.score == SCORE_SOFTMAX)
        softmax(p, n);
    const float sum = choose(a, p, n, k, a.groups > 1 ? best_groups(a, p, n) : 1, experts, weights);
    if (chosen)
        softmax(weights, k);
    for (uint32_t r = lane; r < k; r += 32) {
        float w = weights[r];
        if (a.normalise)
            w /= (chosen ? 1 : sum) + a.normalise_eps;
        if (a.scale != 0)
            w *= a.scale;
        if (a.expert_scale)
            w *= a.expert_scale[experts[r]];
        weights[r] = w;
    }
    if (lane == 0)
        a.shared_gate[t] = a.shared == SHARED_GATED ? sigmoid(in[n]) : 1;
}

/* ---- scores in registers ----
 *
 * As route_token(), with the same bits, for up to 32 * EACH experts of which up to 32 are chosen: lane l has
 * the scores of experts l, l + 32 and so on, and the r-th weight is lane r's. */

/* Adds lanes' values [0, n) in their order. */
DEVICE float sum_in_order(float x, uint32_t n)
{
    float sum = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < n; i++)
        sum += __shfl_sync(0xffffffffu, x, i);
    return sum;
}

DEVICE float max_of_lanes(float x)
{
    for (uint32_t d = 16; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

template <uint32_t EACH> struct lane_scores {
    float p[EACH];
    uint32_t order[EACH]; /* keys by which choices are compared */
    uint32_t left;        /* bit for each that may be chosen */

    /* `room`: 32 * EACH values of shared memory. */
    __device__ __forceinline__ void softmax(uint32_t n, float *room)
    {
        const uint32_t lane = threadIdx.x;
        float max = -INFINITY, sum = 0;
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++)
            if (lane + 32 * j < n)
                max = fmaxf(max, p[j]);
        max = max_of_lanes(max);
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            p[j] = lane + 32 * j < n ? expf(p[j] - max) : 0;
            room[lane + 32 * j] = p[j];
        }
        __syncwarp();
        uint32_t i = 0;
#pragma unroll 8
        for (; i + 4 <= n; i += 4) {
            const float4 v = *(const float4 *)(room + i);
            sum = (((sum + v.x) + v.y) + v.z) + v.w;
        }
        for (; i < n; i++)
            sum += room[i];
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++)
            p[j] /= sum;
    }

    /* Takes the best one that is left, whose score it brings. */
    __device__ __forceinline__ uint32_t take(float taken, float &score)
    {
        const uint32_t lane = threadIdx.x;
        uint32_t best = 0, index = CUDA_NONE;
        float own = 0;
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++)
            if ((left >> j & 1) && (index == CUDA_NONE || order[j] > best)) {
                best = order[j];
                own = p[j];
                index = lane + 32 * j;
            }
        const uint32_t most = warp_max(best), expert = warp_min(best == most ? index : CUDA_NONE);
        score = expert == CUDA_NONE ? taken : __shfl_sync(0xffffffffu, own, expert % 32);
        left &= lane == expert % 32 ? ~(1u << (expert / 32 & 31)) : ~0u;
        return expert == CUDA_NONE ? 0 : expert;
    }
};

template <uint32_t EACH> DEVICE void route_lanes(const cuda_step &s, const cuda_route &a, float *room)
{
    const uint32_t t = blockIdx.x, n = s.experts, k = s.top_k, lane = threadIdx.x;
    const float *in = row_of(a.in, t);
    const bool chosen = a.score == SCORE_SOFTMAX_CHOSEN;
    const float taken = chosen ? -INFINITY : -1, gate = a.shared == SHARED_GATED ? in[n] : 0;
    lane_scores<EACH> x = {};
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++)
        x.p[j] = lane + 32 * j < n ? in[lane + 32 * j] : 0;
#pragma unroll
    for (uint32_t j = 0; a.score == SCORE_SIGMOID && j < EACH; j++)
        x.p[j] = sigmoid(x.p[j]);
    if (a.score == SCORE_SOFTMAX)
        x.softmax(n, room);
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        const uint32_t i = lane + 32 * j;
        if (i < n && x.p[j] != taken)
            x.left |= 1u << j;
        x.order[j] = order_of(a.correction && i < n ? x.p[j] + a.correction[i] : x.p[j]);
    }
    float sum = 0, w = 0;
    uint32_t expert = 0;
    for (uint32_t r = 0; r < k; r++) {
        float score;
        const uint32_t e = x.take(taken, score);
        sum += score;
        if (lane == r)
            expert = e, w = score;
    }
    if (chosen) {
        w = expf(w - max_of_lanes(lane < k ? w : -INFINITY));
        w /= sum_in_order(w, k);
    }
    if (a.normalise)
        w /= (chosen ? 1 : sum) + a.normalise_eps;
    if (a.scale != 0)
        w *= a.scale;
    if (lane < k) {
        if (a.expert_scale)
            w *= a.expert_scale[expert];
        a.pair_expert[(uint64_t)t * k + lane] = expert;
        a.pair_weight[(uint64_t)t * k + lane] = w;
    }
    if (lane == 0)
        a.shared_gate[t] = a.shared == SHARED_GATED ? sigmoid(gate) : 1;
}

/* A warp for each token. */
KERNEL plateau_route(const cuda_step s, const cuda_route a)
{
    __shared__ __align__(16) float scores[SCORES_MAX];
    const bool lanes = a.groups <= 1 && s.top_k <= 32;
    grid_wait_next();
    if (lanes && s.experts <= 128)
        route_lanes<4>(s, a, scores);
    else if (lanes && s.experts <= 256)
        route_lanes<8>(s, a, scores);
    else if (lanes && s.experts <= 512)
        route_lanes<16>(s, a, scores);
    else if (s.experts <= SCORES_MAX)
        route_token(s, a, scores);
    else
        route_token(s, a, row_of(a.in, blockIdx.x));
}

/* The expert with the largest logit but `chosen`, and its weight: see ROUTE_SPARSEMIXER. */
DEVICE uint32_t mix_one(const float *x, uint32_t n, uint32_t chosen, float jitter, float *weight)
{
    uint32_t best = CUDA_NONE;
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (i != chosen && (best == CUDA_NONE || x[i] > x[best]))
            best = i;
    best = best == CUDA_NONE ? 0 : best;
    for (uint32_t i = 0; i < n; i++) {
        bool far = (x[best] - x[i]) / fmaxf(fabsf(x[i]), x[best]) > 2 * jitter;
        if (i != chosen && !far)
            sum += expf(x[i] - x[best]);
    }
    *weight = 1 / sum;
    return best;
}

/* A token's two experts, by one thread: there are few experts. */
KERNEL plateau_route_mixed(const cuda_step s, const cuda_route a)
{
    const uint32_t t = blockIdx.x, n = s.experts;
    const float *x = row_of(a.in, t);
    uint32_t *experts = a.pair_expert + 2 * (uint64_t)t;
    float *weights = a.pair_weight + 2 * (uint64_t)t;
    grid_begin();
    if (threadIdx.x > 0)
        return;
    experts[0] = mix_one(x, n, CUDA_NONE, a.jitter, &weights[0]);
    experts[1] = mix_one(x, n, experts[0], a.jitter, &weights[1]);
    a.shared_gate[t] = a.shared == SHARED_GATED ? sigmoid(x[n]) : 1;
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
