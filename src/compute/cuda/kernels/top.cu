/* top.cu - the best tokens of a row of logits (compute/row_top.h). A cluster of blocks takes a row, and each
 * block reads its part up to three times: for the best token, to count tokens by their distance from it, and
 * to take the near ones. The first block of the cluster joins what the blocks find. */
#include "compute/cuda/kernels/common.cuh"

#define THREADS CUDA_TOP_THREADS
#define BLOCKS  (CLUSTERS ? CUDA_TOP_BLOCKS : 1u)
/* Bins of tokens by their distance from the best one, 1 / PER_ONE wide; the last one has all farther ones. */
#define BINS    2048u
#define PER_ONE 64.f
/* Tokens of the first bins together, at most. */
#define ROOM    1024u

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
    return (uint32_t)fminf((max - x) * PER_ONE, BINS - 1);
}

/* Less is better: logit down, id up. */
DEVICE uint64_t rank_of(float x, uint32_t id)
{
    uint32_t bits = __float_as_uint(x + 0.f); /* -0 becomes 0 */
    bits = bits >> 31 ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)bits << 32 | id;
}

DEVICE candidate candidate_of(uint64_t rank)
{
    uint32_t bits = (uint32_t)(rank >> 32);
    return {__uint_as_float(bits >> 31 ? bits : ~bits & 0x7fffffffu), (uint32_t)rank};
}

/* The thread's logits of the block's part: use(logit, id). AHEAD pieces of EACH are on their way together. */
template <uint32_t EACH, uint32_t AHEAD, class Use>
DEVICE void each_piece(const cuda_top &a, const float *x, const Use &use)
{
    struct __align__(4 * EACH) piece
    {
        float of[EACH];
    };
    uint32_t part = (a.vocab / EACH + BLOCKS - 1) / BLOCKS * EACH, begin = cluster_rank() * part;
    uint32_t end = min(begin + part, a.vocab);
    for (uint32_t from = begin + threadIdx.x * EACH; from < end; from += AHEAD * THREADS * EACH) {
        piece some[AHEAD] = {};
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++)
            if (from + k * THREADS * EACH < end)
                some[k] = *(const piece *)(x + from + k * THREADS * EACH);
#pragma unroll
        for (uint32_t k = 0; k < AHEAD; k++) {
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++) {
                uint32_t id = from + k * THREADS * EACH + i;
                if (id < end && has_logit(some[k].of[i]) && is_valid(a, id))
                    use(some[k].of[i], id);
            }
        }
    }
}
template <class Use> DEVICE void each_logit(const cuda_top &a, const float *x, const Use &use)
{
    if (a.vocab % 4 == 0)
        each_piece<4, 6>(a, x, use);
    else
        each_piece<1, 12>(a, x, use);
}

/* Values that blocks of a cluster exchange: the first one writes all, every one `bests` and `bins_taken`. */
struct findings {
    best bests[CUDA_TOP_BLOCKS];
    uint32_t bins[BINS], bins_taken, count;
    uint64_t ranks[ROOM];
};

DEVICE best best_of(const cuda_top &a, const float *x, findings &f)
{
    best mine = {0, CUDA_NONE};
    each_logit(a, x, [&](float logit, uint32_t id) { mine = better(mine, {logit, id}); });
    mine = block_best(mine);
    if (threadIdx.x < BLOCKS)
        *far_of(&f.bests[cluster_rank()], threadIdx.x) = mine;
    cluster_meet();
    for (uint32_t i = 0; i < BLOCKS; i++)
        mine = better(mine, f.bests[i]);
    return mine;
}

/* The first bins that have `want` tokens together; fewer where they had more than there is room for. By a
 * warp. */
DEVICE uint32_t bins_for(const uint32_t *bins, uint32_t want)
{
    uint32_t lane = threadIdx.x, each = BINS / 32, own = 0, before = 0, some = 0;
    for (uint32_t i = 0; i < each; i++)
        own += bins[lane * each + i];
    for (uint32_t from = 0; from < 32; from++) {
        uint32_t n = __shfl_sync(0xffffffffu, own, from);
        before += from < lane ? n : 0;
    }
    for (uint32_t i = 0; i < each; i++) {
        uint32_t until = before + bins[lane * each + i];
        some += before < want && until <= ROOM && lane * each + i < BINS - 1;
        before = until;
    }
    for (uint32_t d = 16; d > 0; d /= 2)
        some += __shfl_down_sync(0xffffffffu, some, d);
    return __shfl_sync(0xffffffffu, some, 0);
}

/* The first bins of the row. */
DEVICE uint32_t bins_of(const cuda_top &a, const float *x, float max, uint32_t want, findings &f)
{
    each_logit(a, x, [&](float logit, uint32_t) {
        uint32_t bin = bin_of(logit, max);
        if (bin < BINS - 1)
            atomicAdd(&f.bins[bin], 1u);
    });
    __syncthreads();
    for (uint32_t i = threadIdx.x; cluster_rank() > 0 && i < BINS; i += THREADS)
        if (f.bins[i] > 0)
            atomicAdd(far_of(&f.bins[i], 0), f.bins[i]);
    cluster_meet();
    if (cluster_rank() == 0 && threadIdx.x < 32) {
        uint32_t taken = bins_for(f.bins, want);
        if (threadIdx.x < BLOCKS)
            *far_of(&f.bins_taken, threadIdx.x) = taken;
    }
    cluster_meet();
    return f.bins_taken;
}

/* Tokens of the first bins, in no order. */
DEVICE void take(const cuda_top &a, const float *x, float max, uint32_t bins, findings &f)
{
    uint32_t *count = far_of(&f.count, 0);
    uint64_t *ranks = far_of(f.ranks, 0);
    each_logit(a, x, [&](float logit, uint32_t id) {
        if (bin_of(logit, max) < bins)
            ranks[atomicAdd(count, 1u)] = rank_of(logit, id);
    });
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

DEVICE void findings_begin(findings &f)
{
    for (uint32_t i = threadIdx.x; i < BINS; i += THREADS)
        f.bins[i] = 0;
    if (threadIdx.x == 0)
        f.count = 0;
    cluster_meet(); /* also: all its blocks have begun */
}

#if CLUSTERS
#define OF_CLUSTER __cluster_dims__(CUDA_TOP_BLOCKS, 1, 1)
#else
#define OF_CLUSTER
#endif
KERNEL __launch_bounds__(THREADS)
OF_CLUSTER plateau_top(const cuda_top a)
{
    __shared__ findings f;
    uint32_t row = blockIdx.x / BLOCKS;
    const uint32_t want = a.rows[row].tops;
    row_top *top = a.tops + row;
    const float *x = a.logits + (uint64_t)row * a.vocab;
    if (want == 0)
        return;
    findings_begin(f);
    best first = best_of(a, x, f);
    bool some = first.index != CUDA_NONE, more = some && want > 1 && first.value < INFINITY;
    if (more)
        take(a, x, first.value, bins_of(a, x, first.value, want, f), f);
    cluster_meet();
    if (cluster_rank() > 0)
        return;
    if (threadIdx.x == 0 && !more)
        f.ranks[0] = rank_of(first.value, first.index);
    uint32_t count = more ? f.count : some;
    if (more)
        sort(f.ranks, count);
    count = min(count, want);
    if (threadIdx.x == 0)
        top->count = count;
    if (threadIdx.x < count)
        top->list[threadIdx.x] = candidate_of(f.ranks[threadIdx.x]);
}
