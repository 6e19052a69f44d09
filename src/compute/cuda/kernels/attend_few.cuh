/* attend_few.cuh - attention of few tokens of a sequence, whose blocks take one of them: what its kernels
 * share. Queries, the newest key and its value may come fresh from a product, to be normed and turned. The
 * last block of a token joins its segments. */
#ifndef PLATEAU_CUDA_ATTEND_FEW_CUH
#define PLATEAU_CUDA_ATTEND_FEW_CUH

#include "compute/cuda/kernels/append.cuh"
#include "compute/cuda/kernels/attend.cuh"

#define JOIN_AHEAD 16u /* segments whose sums come together */

/* Joins a head's segments, and puts values d, d + 32 ..., COUNT of them; all lanes of a warp have the same
 * head. Lane i has the factors of segment i, which do not depend on the sums. */
template <uint32_t COUNT>
DEVICE void join_parts(const cuda_attention &a, const cuda_split &p, range seen, uint32_t t, uint32_t head,
                       uint32_t d)
{
    uint32_t width = a.kv.v_width, lane = threadIdx.x % 32;
    uint32_t count = (seen.end + SEGMENT - 1) / SEGMENT - seen.first / SEGMENT;
    total all = {-INFINITY, 0};
    float value[COUNT] = {};
#pragma unroll 1
    for (uint32_t begin = 0; begin < count; begin += JOIN_AHEAD) {
        uint32_t last = min(count - begin, JOIN_AHEAD) - 1;
        const float *parts = part_of(p, a, t, head, begin), *mine = parts + min(lane, last) * (width + 2);
        float values[JOIN_AHEAD][COUNT], max = __ldcg(mine + width), sum = __ldcg(mine + width + 1),
                                         largest = max;
#pragma unroll
        for (uint32_t i = 0; i < JOIN_AHEAD; i++)
#pragma unroll
            for (uint32_t j = 0; j < COUNT; j++)
                values[i][j] = __ldcg(parts + min(i, last) * (width + 2) + d + 32 * j);
#pragma unroll
        for (uint32_t by = 1; by < JOIN_AHEAD; by *= 2)
            largest = fmaxf(largest, __shfl_sync(0xffffffffu, largest, lane >= by ? lane - by : lane));
        largest = fmaxf(largest, all.max);
        float before = __shfl_sync(0xffffffffu, largest, lane == 0 ? 0 : lane - 1);
        float keep = expf((lane == 0 ? all.max : before) - largest), add = expf(max - largest);
        sum *= add;
#pragma unroll
        for (uint32_t i = 0; i < JOIN_AHEAD; i++) {
            float keeps = __shfl_sync(0xffffffffu, keep, i), adds = __shfl_sync(0xffffffffu, add, i);
            float sums = __shfl_sync(0xffffffffu, sum, i);
            bool joins = begin + i > 0;
            if (i <= last) {
                all.sum = joins ? fmaf(all.sum, keeps, sums) : sums;
#pragma unroll
                for (uint32_t j = 0; j < COUNT; j++)
                    value[j] = joins ? fmaf(value[j], keeps, values[i][j] * adds) : values[i][j] * adds;
            }
        }
        all.max = __shfl_sync(0xffffffffu, largest, last);
    }
    float keep = add_sink(a, head, all);
#pragma unroll
    for (uint32_t j = 0; j < COUNT; j++)
        put_value(a, t, head, d + 32 * j, value[j], keep, all.sum);
}

DEVICE void put_shared(uint32_t at, float x)
{
    put_half_word(at, __bfloat16_as_ushort(__float2bfloat16_rn(x)));
}

/* A row of queries that is not there. */
template <uint32_t D> DEVICE void put_zeros(uint32_t to)
{
    for (uint32_t i = threadIdx.x % 32 * 4; i < D * 2; i += 128)
        put_word(to + i, 0);
}

/* A token of the step, of which a block has some heads of queries. With `fresh` they are still to be normed
 * and turned (attention.cu), and item `heads` is its key, the one after it its value. An item is a warp's. */
template <uint32_t D, uint32_t WARPS> struct token_items {
    const cuda_step &s;
    const cuda_attention &a;
    const cuda_seq &seq;
    uint32_t t, position, kv_head, first_head, heads, items;
    bool fresh;
    float *rows; /* room for `heads` + 3 rows of D, or for a row of each warp */
    uint64_t *there;

    __device__ __forceinline__ const float *row(uint32_t item) const
    {
        return row_of(a.qkv, t) + (item < heads
                                       ? (uint64_t)(first_head + item) * a.q_stride
                                       : (uint64_t)a.heads * a.q_stride +
                                             (uint64_t)(kv_head + (item > heads ? a.kv.heads : 0)) * D);
    }
    __device__ __forceinline__ float *room(uint32_t item) const
    {
        return rows + item * D;
    }
    /* Prepares the copy of a fresh token's rows to their room. A thread would get them after the keys that it
     * has asked for, the bulk engine does not. */
    __device__ __forceinline__ void prepare() const
    {
#if BULK_COPIES
        if (fresh && threadIdx.x == 0) {
            barrier_init(there, 1);
            barriers_made();
        }
#endif
    }
    __device__ __forceinline__ void bring() const
    {
#if BULK_COPIES
        if (!fresh)
            return;
        if (threadIdx.x == 0) {
            uint32_t angles = (a.angles.width + 3) / 4 * 4;
            barrier_expect(there, (items * D + angles) * (uint32_t)sizeof(float));
            for (uint32_t i = 0; i < items; i++)
                bulk_copy(room(i), row(i), D * sizeof(float), there);
            if (a.angles.width > 0)
                bulk_copy(room(heads + 2), row_of(a.angles, t), angles * sizeof(float), there);
        }
        barrier_wait(there, 0);
#endif
    }
    __device__ __forceinline__ const float *norm_of(uint32_t item) const
    {
        return !fresh                           ? NULL
               : item > heads                   ? a.v_norm
               : a.norm_heads || a.norm_rotated ? (item < heads ? a.q_norm : a.k_norm)
                                                : NULL;
    }
    /* Weights do not wait for the kernels in front. */
    __device__ __forceinline__ void load_norm(float w[D / 32], uint32_t item) const
    {
        const float *from = norm_of(item);
        if (from)
            load_lanes<D>(w, from);
    }
    /* w: what load_norm() took. */
    __device__ __forceinline__ void take(float x[D / 32], const float w[D / 32], uint32_t item) const
    {
        bool turns = fresh && item <= heads && a.angles.width > 0, normed = norm_of(item) != NULL;
        uint32_t norm_at = item <= heads && a.norm_rotated ? 1 : 0;
        bool here = BULK_COPIES && fresh;
        turn<D> by;
        load_lanes<D>(x, here ? room(item) : row(item));
        if (turns)
            by.begin(a, here ? room(heads + 2) : row_of(a.angles, t));
#pragma unroll 1
        for (uint32_t i = 0; i < 2; i++) {
            if (normed && norm_at == i)
                scale_lanes<D>(x, w, a.eps);
            if (turns && i == 0)
                by.rotate(x, here ? room(item) : room(item % WARPS));
        }
    }
    __device__ __forceinline__ void put_query(uint32_t at, const float x[D / 32]) const
    {
        float factor = fresh && a.growth != 0 ? growth_at(a, position) : 1;
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            put_shared(at + (threadIdx.x % 32 + 32 * j) * 2, x[j] * factor);
    }
    /* The newest token's page: its keys, or its values. */
    __device__ __forceinline__ uint16_t *page_half(bool is_key) const
    {
        uint16_t *page = (uint16_t *)page_at(s, seq, a.kv, kv_head, position / CUDA_PAGE_TOKENS);
        return is_key ? page : page + a.kv.k_bytes / 2;
    }
    /* A key or value to the page. */
    __device__ __forceinline__ void put(const float x[D / 32], bool is_key) const
    {
        uint32_t at = position % CUDA_PAGE_TOKENS;
        uint16_t *half = page_half(is_key);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t d = threadIdx.x % 32 + 32 * j;
            half[is_key ? key_in_page(d, at) : value_in_page(D, at, d)] =
                __bfloat16_as_ushort(__float2bfloat16_rn(x[j]));
        }
    }
    /* And to its block of keys, in shared memory, if `block` is not CUDA_NONE. */
    template <uint32_t CODES>
    __device__ __forceinline__ void put(const float x[D / 32], bool is_key, uint32_t block) const
    {
        uint32_t at = position % BLOCK_KEYS;
        if (CODES) {
            coded_lanes<D> codes;
            codes.take(CODES, x);
            codes.put(page_half(is_key), at % CUDA_PAGE_TOKENS, is_key);
            if (block != CUDA_NONE)
                codes.put(block + (at / CUDA_PAGE_TOKENS * 2 + !is_key) * CODED_BYTES(D),
                          at % CUDA_PAGE_TOKENS, is_key);
            return;
        }
        put(x, is_key);
#pragma unroll
        for (uint32_t j = 0; block != CUDA_NONE && j < D / 32; j++) {
            uint32_t d = threadIdx.x % 32 + 32 * j;
            put_shared(block + (is_key ? keys<D>::k_at(d, at / 8) + at % 8 * 2
                                       : keys<D>::v_at(at, d / 8) + d % 8 * 2),
                       x[j]);
        }
    }
    /* A row of bf16 to shared memory. */
    __device__ __forceinline__ void put_row(const float x[D / 32], uint32_t to) const
    {
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            put_shared(to + (threadIdx.x % 32 + 32 * j) * 2, x[j]);
    }
};

/* Whether this is the last of `count` blocks, in all threads: what the others wrote is there. */
DEVICE bool ends_last(uint32_t *ended, uint32_t count)
{
    __shared__ uint32_t before;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t n = count_up(ended);
        before = n;
        if (n + 1 == count)
            *ended = 0;
    }
    __syncthreads();
    return before + 1 == count;
}

#endif
