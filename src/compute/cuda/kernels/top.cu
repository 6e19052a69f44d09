/* top.cu - the best tokens of a row of logits (compute/row_top.h). A block takes a row, and reads it up to
 * three times: for the best token, to count tokens by their distance from it, and to take the near ones. */
#include "compute/cuda/kernels/common.cuh"

#define THREADS CUDA_TOP_THREADS
/* Bins of tokens by their distance from the best one, 1 / EACH wide; the last one has all farther ones. */
#define BINS 2048u
#define EACH 64.f

DEVICE bool is_valid(const cuda_top &a, uint32_t id)
{
    return !a.valid || (a.valid[id / 64] >> id % 64 & 1);
}

/* -infinity and NaN have none. */
DEVICE bool has_logit(float x)
{
    return x > -INFINITY;
}

DEVICE uint32_t bin_of(float x, float max)
{
    return (uint32_t)fminf((max - x) * EACH, BINS - 1);
}

/* Less is better: logit down, id up. */
DEVICE uint64_t rank_of(float x, uint32_t id)
{
    uint32_t bits = __float_as_uint(x + 0.f); /* of -0, too */
    bits = bits >> 31 ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)bits << 32 | id;
}

DEVICE candidate candidate_of(uint64_t rank)
{
    uint32_t bits = (uint32_t)(rank >> 32);
    return {__uint_as_float(bits >> 31 ? bits : ~bits & 0x7fffffffu), (uint32_t)rank};
}

/* The thread's logits of the row: use(logit, id). AHEAD of them are on their way together. */
#define AHEAD 12u
template <class Use> DEVICE void each_logit(const cuda_top &a, const float *x, const Use &use)
{
    for (uint32_t from = threadIdx.x; from < a.vocab; from += AHEAD * THREADS) {
        float some[AHEAD];
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            some[k] = from + k * THREADS < a.vocab ? x[from + k * THREADS] : -INFINITY;
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            if (has_logit(some[k]) && is_valid(a, from + k * THREADS))
                use(some[k], from + k * THREADS);
    }
}

DEVICE best best_of(const cuda_top &a, const float *x)
{
    best mine = {0, CUDA_NONE};
    each_logit(a, x, [&](float logit, uint32_t id) { mine = better(mine, {logit, id}); });
    return block_best(mine);
}

/* The first bins that have `want` tokens together; fewer where they had more than there is room for. */
DEVICE uint32_t bins_of(const cuda_top &a, const float *x, float max, uint32_t want)
{
    __shared__ uint32_t bins[BINS];
    __shared__ uint32_t taken;
    for (uint32_t i = threadIdx.x; i < BINS; i += THREADS)
        bins[i] = 0;
    __syncthreads();
    each_logit(a, x, [&](float logit, uint32_t) {
        uint32_t bin = bin_of(logit, max);
        if (bin < BINS - 1)
            atomicAdd(&bins[bin], 1u);
    });
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t lane = threadIdx.x, each = BINS / 32, own = 0, before = 0, some = 0;
        for (uint32_t i = 0; i < each; i++)
            own += bins[lane * each + i];
        for (uint32_t from = 0; from < 32; from++) {
            uint32_t n = __shfl_sync(0xffffffffu, own, from);
            before += from < lane ? n : 0;
        }
        for (uint32_t i = 0; i < each; i++) {
            uint32_t until = before + bins[lane * each + i];
            some += before < want && until <= ROW_TOP_MAX && lane * each + i < BINS - 1;
            before = until;
        }
        for (uint32_t d = 16; d > 0; d /= 2)
            some += __shfl_down_sync(0xffffffffu, some, d);
        if (lane == 0)
            taken = some;
    }
    __syncthreads();
    return taken;
}

/* Tokens of the first bins, in no order. Returns how many. */
DEVICE uint32_t take(const cuda_top &a, const float *x, float max, uint32_t bins, uint64_t *ranks)
{
    __shared__ uint32_t count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    each_logit(a, x, [&](float logit, uint32_t id) {
        if (bin_of(logit, max) < bins)
            ranks[atomicAdd(&count, 1u)] = rank_of(logit, id);
    });
    __syncthreads();
    return count;
}

/* A sorting network over the next power of two. */
DEVICE void sort(uint64_t *ranks, uint32_t count)
{
    uint32_t all = 1, i = threadIdx.x;
    while (all < count)
        all *= 2;
    if (i >= count && i < all)
        ranks[i] = UINT64_MAX;
    __syncthreads();
    for (uint32_t run = 2; run <= all; run *= 2) {
        for (uint32_t gap = run / 2; gap > 0; gap /= 2) {
            uint32_t other = i ^ gap;
            if (other > i && other < all) {
                uint64_t x = ranks[i], y = ranks[other];
                if ((x > y) == ((i & run) == 0)) {
                    ranks[i] = y;
                    ranks[other] = x;
                }
            }
            __syncthreads();
        }
    }
}

/* Sums in double of sums of eight in float: within ROW_TOP_ERROR. */
DEVICE double mass_of(const cuda_top &a, const float *x, float max, float temperature)
{
    double sum = 0;
    uint32_t count = 0;
    float eight = 0;
    each_logit(a, x, [&](float logit, uint32_t) {
        eight += expf((logit - max) / temperature);
        if (++count % 8 == 0) {
            sum += eight;
            eight = 0;
        }
    });
    return block_sum(sum + eight);
}

KERNEL __launch_bounds__(THREADS) plateau_top(const cuda_top a)
{
    __shared__ uint64_t ranks[ROW_TOP_MAX];
    const row_want want = a.wants[blockIdx.x];
    row_top *top = a.tops + blockIdx.x;
    const float *x = a.logits + (uint64_t)blockIdx.x * a.vocab;
    if (want.count == 0)
        return;
    best first = best_of(a, x);
    uint32_t count = first.index != CUDA_NONE;
    if (threadIdx.x == 0)
        ranks[0] = rank_of(first.value, first.index);
    double mass = 0;
    if (count > 0 && want.count > 1 && first.value < INFINITY) {
        count = take(a, x, first.value, bins_of(a, x, first.value, want.count), ranks);
        sort(ranks, count);
    }
    if (count > 0 && want.temperature > 0)
        mass = mass_of(a, x, first.value, want.temperature);
    count = min(count, want.count);
    if (threadIdx.x == 0) {
        top->count = count;
        top->mass = mass;
    }
    if (threadIdx.x < count)
        top->list[threadIdx.x] = candidate_of(ranks[threadIdx.x]);
}
