/* attend.cuh - attention of bf16 mode on tensor cores: its arithmetic, and what its kernels share.
 *
 * The arithmetic of a query and a head. q, k and v are bf16. A score is mma over the head's numbers in steps
 * of 16, from 0. Keys lie in blocks of 64 and segments of CUDA_SEGMENT, from position 0 on. A segment begins
 * with no values. Of each of its blocks in which the query sees a key: m' = max(m, the largest score). Values
 * and the sum of weights are multiplied by e(m - m'). Weights e(s - m'), rounded to bf16, are multiplied with
 * v and with 1 by mma over the keys, in steps of 16. e(x) is ex2.approx of x * log2(e). Then segments are
 * joined in their order (join()). A key that is not seen has the weight 0, which changes no sum. */
#ifndef PLATEAU_CUDA_ATTEND_CUH
#define PLATEAU_CUDA_ATTEND_CUH

#include "compute/cuda/kernels/codes.cuh"
#include "compute/cuda/kernels/mma.cuh"

#define SEGMENT    CUDA_SEGMENT
#define BLOCK_KEYS 64u
#define ROWS       16u
#define ONES       0x3f803f80u /* two of bf16 */

struct range {
    uint32_t first, end;
};

/* The tokens that the query of token t, at `position`, sees. */
DEVICE range seen_by(const cuda_step &s, const cuda_attention &a, uint32_t t, uint32_t position)
{
    uint32_t first = a.window > 0 && position >= a.window ? position + 1 - a.window : 0;
    return {a.mtp ? 1 : first, s.ends && a.image_ends ? s.ends[t] : position + 1};
}

/* Returns a weight with the scale of its value; of a value that no query sees the scale may be anything. */
DEVICE float scaled_weight(float weight, float scale)
{
    return weight == 0 ? 0 : weight * scale;
}

/* Returns the factor of a score. With a cap it is applied already. */
DEVICE float unit_of(const cuda_attention &a)
{
    return a.cap > 0 ? 1 : a.scale;
}

/* A query's sums over the segments so far. */
struct total {
    float max, sum;
};
/* Factors of the sums until now, and of the next segment's. */
struct factors {
    float keep, add;
};

DEVICE factors join(total &t, bool joins, float max, float sum)
{
    float larger = joins ? fmaxf(t.max, max) : max;
    factors f = {joins ? expf(t.max - larger) : 0, expf(max - larger)};
    t.sum = joins ? fmaf(t.sum, f.keep, sum * f.add) : sum * f.add;
    t.max = larger;
    return f;
}

/* The sink's share of the sum; what the values are multiplied by. */
DEVICE float add_sink(const cuda_attention &a, uint32_t head, total &t)
{
    if (!a.sinks)
        return 1;
    float larger = fmaxf(t.max, a.sinks[head]), keep = expf(t.max - larger);
    t.sum = fmaf(t.sum, keep, expf(a.sinks[head] - larger));
    return keep;
}

DEVICE void put_value(const cuda_attention &a, uint32_t t, uint32_t head, uint32_t d, float value, float keep,
                      float sum)
{
    float y = value * keep / sum;
    if (a.gated)
        y = y / (1.0f + expf(-row_of(a.qkv, t)[(uint64_t)head * a.q_stride + a.kv.k_width + d]));
    row_of(a.out, t)[(uint64_t)head * a.kv.v_width + d] = y;
    put_rounded(a.rounded, t, head * a.kv.v_width + d, y);
}

/* ---- keys and values in shared memory ---- */

DEVICE void brought(uint32_t stages)
{
    if (stages == 4)
        copies_wait<3>();
    else if (stages == 2)
        copies_wait<1>();
    else
        copies_wait<0>();
}

/* A block of keys: K [D][32] of both pages, then V [32][D] of both. Pieces of 16 bytes change places, so 8
 * rows of a matrix take all banks. */
template <uint32_t D> struct keys {
    static constexpr uint32_t PAGE = D * CUDA_PAGE_TOKENS * 2, BYTES = 4 * PAGE;
    static __device__ __forceinline__ uint32_t k_at(uint32_t d, uint32_t piece)
    {
        return piece / 4 * PAGE + d * 64 + (piece % 4 ^ d / 2 % 4) * 16;
    }
    static __device__ __forceinline__ uint32_t v_at(uint32_t key, uint32_t piece)
    {
        return 2 * PAGE + key * 2 * D + (piece ^ key % 8) * 16;
    }
};

/* Where a query's keys lie. */
struct source {
    const cuda_step &s;
    const cuda_attention &a;
    const cuda_seq &seq;
    uint32_t kv_head;
    range seen; /* by any query */
};

/* A page of K and V, the first or second half of a block, whose tokens begin at `begin`: it lies there as in
 * memory (key_in_page()). */
template <uint32_t D, uint32_t THREADS>
DEVICE void bring_page(uint32_t to, const source &o, uint32_t half, uint32_t begin, const char *page,
                       bool some)
{
    const char *v = page + o.a.kv.k_bytes;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < D * 4; i += THREADS)
        copy16_if(to + half * keys<D>::PAGE + i * 16, page + i * 16, some);
#pragma unroll
    for (uint32_t i = threadIdx.x; i < D * 4; i += THREADS) {
        uint32_t token = begin + i / (D / 8);
        copy16_if(to + (2 + half) * keys<D>::PAGE + i * 16, v + i * 16,
                  some && token >= o.seen.first && token < o.seen.end);
    }
}
/* Whether a query sees a token of the page that begins at `begin`. */
DEVICE bool sees_page(const source &o, uint32_t begin)
{
    return begin < o.seen.end && begin + CUDA_PAGE_TOKENS > o.seen.first;
}

template <uint32_t D, uint32_t THREADS> DEVICE void bring_block(uint32_t to, const source &o, uint32_t begin)
{
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t at = begin + half * CUDA_PAGE_TOKENS;
        bool some = sees_page(o, at);
        bring_page<D, THREADS>(to, o, half, at,
                               (const char *)page_at(o.s, o.seq, o.a.kv, o.kv_head,
                                                     (some ? at : o.seen.first) / CUDA_PAGE_TOKENS),
                               some);
    }
}

/* ---- mma ---- */

/* e to the unit's power of x - m, of x * c + (-m * c) where c = unit * log2(e). */
DEVICE float weight_of(float x, float c, float less)
{
    return power_of_two(fmaf(x, c, less));
}
/* Where a lane's row of an A operand lies: 16 rows, `pitch` bytes each. */
DEVICE uint32_t operand_at(uint32_t rows, uint32_t pitch)
{
    uint32_t lane = threadIdx.x % 32;
    return rows + (lane % 16) * pitch + lane / 16 * 16;
}

/* ---- 16 rows: queries of one head, or one query's heads ---- */

/* Sums and largest scores before the first block of keys. */
template <uint32_t PIECES> DEVICE void begin_rows(float (&o)[PIECES][4], float sum[4], float max[2])
{
#pragma unroll
    for (uint32_t i = 0; i < PIECES; i++)
        o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
    sum[0] = sum[1] = sum[2] = sum[3] = 0;
    max[0] = max[1] = -INFINITY;
}

/* Values that the warps of a team exchange. */
struct exchange {
    float largest[4][ROWS];
    __align__(16) uint16_t weights[ROWS][BLOCK_KEYS + 8];
};

/* WARPS of them have the keys of a block in equal parts, and then the values' numbers. */
template <uint32_t D, uint32_t WARPS> struct team {
    static constexpr uint32_t KEYS = BLOCK_KEYS / WARPS, DIMS = D / WARPS, Q_PITCH = 2 * D + 16;
    float o[DIMS / 8][4], sum[4], max[2];
    uint32_t warp, name; /* index of the team; of its barrier */
    exchange *others;

    __device__ __forceinline__ void meet() const
    {
        if (WARPS > 1)
            meet_at<32 * WARPS>(name);
    }

    __device__ __forceinline__ void begin()
    {
        begin_rows(o, sum, max);
    }

    __device__ __forceinline__ void score(float s[KEYS / 8][4], uint32_t q, uint32_t block) const
    {
        uint32_t lane = threadIdx.x % 32, q_at = operand_at(q, Q_PITCH);
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step++) {
            uint32_t a[4];
            load4(a, q_at + step * 32);
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n += 2) {
                uint32_t b[4];
                load4_turned(b,
                             block + keys<D>::k_at(step * 16 + lane % 16, warp * (KEYS / 8) + n + lane / 16));
                mma(s[n], a, b[0], b[1]);
                mma(s[n + 1], a, b[2], b[3]);
            }
        }
    }

    /* The rows' largest scores among the block's keys. */
    __device__ __forceinline__ void find_largest(const float s[KEYS / 8][4], float largest[2])
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            largest[r] = -INFINITY;
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++)
                largest[r] = fmaxf(largest[r], fmaxf(s[n][2 * r], s[n][2 * r + 1]));
            largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 1));
            largest[r] = fmaxf(largest[r], __shfl_xor_sync(0xffffffffu, largest[r], 2));
            if (WARPS > 1 && lane % 4 == 0)
                others->largest[warp][lane / 4 + 8 * r] = largest[r];
        }
        if (WARPS == 1)
            return;
        meet();
#pragma unroll
        for (uint32_t r = 0; r < 2; r++)
            for (uint32_t w = 0; w < WARPS; w++)
                largest[r] = fmaxf(largest[r], others->largest[w][lane / 4 + 8 * r]);
    }

    /* Scores become weights. */
    static __device__ __forceinline__ void weigh(float s[KEYS / 8][4], float c, const float less[2])
    {
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                s[n][i] = weight_of(s[n][i], c, less[i / 2]);
    }
    /* Weights become A operands of the block's four steps. */
    __device__ __forceinline__ void share(const float s[KEYS / 8][4], uint32_t p[4][4])
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++) {
            uint32_t low = bf16_pair(s[n][0], s[n][1]), high = bf16_pair(s[n][2], s[n][3]);
            if (WARPS == 1) {
                p[n / 2 % 4][n % 2 * 2] = low;
                p[n / 2 % 4][n % 2 * 2 + 1] = high;
            } else {
                uint32_t key = warp * KEYS + n * 8 + lane % 4 * 2;
                *(uint32_t *)&others->weights[lane / 4][key] = low;
                *(uint32_t *)&others->weights[lane / 4 + 8][key] = high;
            }
        }
        if (WARPS == 1)
            return;
        meet();
#pragma unroll
        for (uint32_t step = 0; step < 4; step++)
            load4(p[step], operand_at(shared_at(others->weights), sizeof(others->weights[0])) + step * 32);
    }

    __device__ __forceinline__ void add_values(const uint32_t p[4][4], uint32_t block)
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t step = 0; step < 4; step++) {
#pragma unroll
            for (uint32_t n = 0; n < DIMS / 8; n += 2) {
                uint32_t b[4];
                load4_turned(b,
                             block + keys<D>::v_at(step * 16 + lane % 16, warp * (DIMS / 8) + n + lane / 16));
                mma(o[n], p[step], b[0], b[1]);
                mma(o[n + 1], p[step], b[2], b[3]);
            }
        }
    }

    /* Calls multiply(x, key) for the values of s; key: place of x's key in the block. */
    template <class Multiply>
    __device__ __forceinline__ void each(float s[KEYS / 8][4], const Multiply &multiply) const
    {
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                multiply(s[n][i], warp * KEYS + n * 8 + threadIdx.x % 4 * 2 + i % 2);
    }

    /* The block's keys begin at `begin`. seen: of the lane's two rows. scores(s) and values(p) multiply.
     * scales: with CODED, in shared memory, of the block's keys, then of its values. */
    template <uint32_t CODED, class Scores, class Values>
    __device__ __forceinline__ void add_block(const cuda_attention &a, uint32_t begin, const range seen[2],
                                              const float *scales, const Scores &scores, const Values &values)
    {
        float s[KEYS / 8][4], largest[2], factor[2];
        uint32_t p[4][4];
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
        scores(s);
        if (CODED)
            each(s, [&](float &x, uint32_t key) { x *= scales[key]; });
        if (a.cap > 0) {
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    s[n][i] = a.cap * tanhf(s[n][i] * a.scale / a.cap);
        }
        if (begin < seen[0].first || begin < seen[1].first ||
            begin + BLOCK_KEYS > min(seen[0].end, seen[1].end)) {
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) {
                    uint32_t token = begin + warp * KEYS + n * 8 + threadIdx.x % 4 * 2 + i % 2;
                    if (token < seen[i / 2].first || token >= seen[i / 2].end)
                        s[n][i] = -INFINITY;
                }
        }
        find_largest(s, largest);
        const float c = unit_of(a) * 1.44269504088896341f;
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            float larger = fmaxf(max[r], largest[r]), known = larger == -INFINITY ? 0 : larger;
            largest[r] = -(known * c);
            factor[r] = max[r] == larger ? 1 : weight_of(max[r], c, largest[r]);
            max[r] = larger;
        }
        weigh(s, c, largest);
        share(s, p);
        /* Most blocks bring no larger score. */
        if (__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
            for (uint32_t n = 0; n < DIMS / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    o[n][i] *= factor[i / 2];
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                sum[i] *= factor[i / 2];
        }
#pragma unroll
        for (uint32_t step = 0; step < 4; step++)
            mma(sum, p[step], ONES, ONES);
        if (CODED) {
            each(s, [&](float &x, uint32_t key) { x = scaled_weight(x, scales[BLOCK_KEYS + key]); });
            meet();
            share(s, p);
        }
        values(p);
    }
    template <uint32_t CODED>
    __device__ __forceinline__ void add_block(const cuda_attention &a, uint32_t q, uint32_t block,
                                              uint32_t begin, const range seen[2], const float *scales)
    {
        add_block<CODED>(
            a, begin, seen, scales, [&](float s[KEYS / 8][4]) { score(s, q, block); },
            [&](const uint32_t p[4][4]) { add_values(p, block); });
        meet();
    }

    /* Which of the head's numbers o[n][i] is. */
    __device__ __forceinline__ uint32_t number(uint32_t n, uint32_t i) const
    {
        return warp * DIMS + n * 8 + threadIdx.x % 4 * 2 + i % 2;
    }
};

/* Blocks of keys in [begin, end), by all threads. Each stage has one on its way. */
template <uint32_t D, uint32_t THREADS> struct walk {
    uint32_t at, stages, first, count;

    __device__ __forceinline__ void bring(const source &o, uint32_t i) const
    {
        if (i < count)
            bring_block<D, THREADS>(at + i % stages * keys<D>::BYTES, o, (first + i) * BLOCK_KEYS);
        copies_end();
    }
    __device__ __forceinline__ void begin(const source &o, uint32_t begin, uint32_t end)
    {
        first = begin / BLOCK_KEYS, count = (end + BLOCK_KEYS - 1) / BLOCK_KEYS - first;
        for (uint32_t i = 0; i < stages; i++)
            bring(o, i);
    }
    /* `block(at, begin)` takes one that lies at `at`. */
    template <class Block> __device__ __forceinline__ void go(const source &o, const Block &block) const
    {
        for (uint32_t i = 0; i < count; i++) {
            brought(stages);
            __syncthreads();
            block(at + i % stages * keys<D>::BYTES, (first + i) * BLOCK_KEYS);
            __syncthreads(); /* readers of the stage that is filled now */
            bring(o, i + stages);
        }
    }
};

/* Walks blocks of keys as `walk` does, of pages of codes. Pages come while the block before them computes,
 * and then become bf16. scales: [2][BLOCK_KEYS], times CODE_UNIT. */
template <uint32_t D, uint32_t THREADS, uint32_t FORM> struct walk_codes {
    static constexpr uint32_t PAGE = 2 * CODED_BYTES(D);
    uint32_t at, pages; /* the block; two pages */
    float *scales;

    __device__ __forceinline__ void bring(const source &o, uint32_t begin) const
    {
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t token = begin + half * CUDA_PAGE_TOKENS;
            bool some = sees_page(o, token);
            const char *from = (const char *)page_at(o.s, o.seq, o.a.kv, o.kv_head,
                                                     (some ? token : o.seen.first) / CUDA_PAGE_TOKENS);
            for (uint32_t i = threadIdx.x; i < PAGE / 16; i += THREADS)
                copy16_if(pages + half * PAGE + i * 16, from + i * 16, some);
        }
        copies_end();
    }
    /* An 8 x 8 matrix of operands, turned: rows `row` on of the tile, each 16 bytes at place(row). */
    template <class Place>
    static __device__ __forceinline__ void put(uint32_t operand, uint32_t row, const Place &place)
    {
        put_word(place(row + threadIdx.x % 32 / 4) + threadIdx.x % 4 * 4, turn8(operand));
    }
    __device__ __forceinline__ void read() const
    {
        constexpr uint32_t STEPS = D / 16;
        uint32_t lane = threadIdx.x % 32;
#pragma unroll 2
        for (uint32_t i = threadIdx.x / 32; i < 2 * STEPS; i += THREADS / 32) {
            uint32_t step = i % STEPS, d = step / 2 * 32, first = i / STEPS * CUDA_PAGE_TOKENS;
            uint32_t key = first + step % 2 * 16;
            uint32_t from = pages + i / STEPS * PAGE + (step * 32 + lane) * 16;
            const uint4 k = read_piece(from), v = read_piece(from + CODED_BYTES(D));
            const uint32_t k_words[4] = {k.x, k.y, k.z, k.w}, v_words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (uint32_t n = 0; n < 4; n++) {
                auto key_at = [&](uint32_t row) { return at + keys<D>::k_at(row, key / 8 + n % 2); };
                put(first_codes<FORM>(k_words[n]), d + n / 2 * 16, key_at);
                put(second_codes<FORM>(k_words[n]), d + n / 2 * 16 + 8, key_at);
                put(first_codes<FORM>(v_words[n]), first + n * 8,
                    [&](uint32_t row) { return at + keys<D>::v_at(row, step * 2); });
                put(second_codes<FORM>(v_words[n]), first + n * 8,
                    [&](uint32_t row) { return at + keys<D>::v_at(row, step * 2 + 1); });
            }
        }
        for (uint32_t i = threadIdx.x; i < 2 * BLOCK_KEYS; i += THREADS) {
            uint32_t key = i % BLOCK_KEYS, half = pages + key / CUDA_PAGE_TOKENS * PAGE;
            half += i / BLOCK_KEYS * CODED_BYTES(D) + CODES_BYTES(D);
            scales[i] = __uint_as_float(read_word(half + key % CUDA_PAGE_TOKENS * 4)) * CODE_UNIT;
        }
    }
    /* `block(begin)` takes a block of keys in [begin, end). */
    template <class Block>
    __device__ __forceinline__ void go(const source &o, uint32_t begin, uint32_t end,
                                       const Block &block) const
    {
        begin = begin / BLOCK_KEYS * BLOCK_KEYS;
        if (begin < end)
            bring(o, begin);
        for (; begin < end; begin += BLOCK_KEYS) {
            copies_wait_all();
            __syncthreads(); /* and readers of the block before */
            read();
            shared_written();
            __syncthreads();
            if (begin + BLOCK_KEYS < end)
                bring(o, begin + BLOCK_KEYS);
            block(begin);
        }
        __syncthreads();
    }
};

/* A row of queries becomes bf16; NULL: zeros. By one warp. */
template <uint32_t D> DEVICE void put_query(uint32_t to, const float *q)
{
    for (uint32_t i = threadIdx.x % 32 * 2; i < D; i += 64) {
        uint32_t v = q ? bf16_pair(q[i], q[i + 1]) : 0;
        put_word(to + i * 2, v);
    }
}

/* ---- segments apart from each other ---- */

/* Returns a query's part of a segment: the values' sums, then the largest score and the weights' sum. Segment
 * 0 is the first that the query sees. */
DEVICE float *part_of(const cuda_split &p, const cuda_attention &a, uint32_t t, uint32_t head,
                      uint32_t segment)
{
    return p.parts + ((uint64_t)((t - p.first) * a.heads + head) * p.segments + segment) * (a.kv.v_width + 2);
}

/* A team's segment to where the lane's two rows have it; NULL: nowhere. */
template <uint32_t D, uint32_t WARPS>
DEVICE void put_part(const team<D, WARPS> &m, float unit, float *const parts[2])
{
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        if (!parts[r])
            continue;
#pragma unroll
        for (uint32_t n = 0; n < m.DIMS / 8; n++)
            *(float2 *)(parts[r] + m.number(n, 0)) = {m.o[n][2 * r], m.o[n][2 * r + 1]};
        if (m.warp == 0 && threadIdx.x % 4 == 0)
            *(float2 *)(parts[r] + D) = {m.max[r] * unit, m.sum[2 * r]};
    }
}

/* The block's share of the keys in `all`: whole segments, side by side; 0 to 0: none. */
DEVICE range share_of(range all)
{
    uint32_t first = all.first / SEGMENT, count = (all.end + SEGMENT - 1) / SEGMENT - first;
    uint32_t from = first + count * blockIdx.z / gridDim.z, to = first + count * (blockIdx.z + 1) / gridDim.z;
    return from == to ? range{0, 0} : range{max(from * SEGMENT, all.first), min(to * SEGMENT, all.end)};
}

/* ---- many tokens: a block of 128 threads ---- */

/* Teams of a block of 128 threads. The larger the head, the more warps share its numbers: a thread has 64. */
template <uint32_t D> struct many {
    static constexpr uint32_t WARPS = D / 64, TEAMS = CUDA_ATTEND_TEAMS(D);
    static constexpr uint32_t Q_BYTES = ROWS * team<D, WARPS>::Q_PITCH;
};

/* A team's values so far, of all segments. */
template <uint32_t D, uint32_t WARPS> struct joined {
    float o[D / WARPS / 8][4];
    total all[2];
};

/* Queries of a team: 16 of one head, and the lane's two of them. */
struct queries {
    uint32_t first, count, head; /* tokens of the step */
    range seen[2];               /* none where there is no query */
};

/* The tokens that some query of tokens [t, t + count) sees, the first one of which is at `position`. */
DEVICE range seen_by_all(const cuda_step &s, const cuda_attention &a, uint32_t t, uint32_t count,
                         uint32_t position)
{
    if (count == 0)
        return {0, 0};
    return {seen_by(s, a, t, position).first, seen_by(s, a, t + count - 1, position + count - 1).end};
}

DEVICE queries queries_of(const cuda_step &s, const cuda_attention &a, uint32_t t, uint32_t count,
                          uint32_t head, uint32_t position)
{
    queries q = {t, min(count, ROWS), head};
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t at = threadIdx.x % 32 / 4 + 8 * r;
        q.seen[r] = at < count ? seen_by(s, a, t + at, position + at) : range{0, 0};
    }
    return q;
}

template <uint32_t D, uint32_t WARPS>
DEVICE void join_segment(joined<D, WARPS> &j, const team<D, WARPS> &m, float unit, const range seen[2],
                         uint32_t segment)
{
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        if (segment + SEGMENT <= seen[r].first || segment >= seen[r].end)
            continue;
        bool joins = segment > seen[r].first;
        factors f = join(j.all[r], joins, m.max[r] * unit, m.sum[2 * r]);
#pragma unroll
        for (uint32_t n = 0; n < m.DIMS / 8; n++)
#pragma unroll
            for (uint32_t i = 2 * r; i < 2 * r + 2; i++)
                j.o[n][i] = joins ? fmaf(j.o[n][i], f.keep, m.o[n][i] * f.add) : m.o[n][i] * f.add;
    }
}

/* A segment has ended: it joins those before it, or goes to its place. */
template <uint32_t D, uint32_t WARPS>
DEVICE void end_segment(joined<D, WARPS> &j, const team<D, WARPS> &m, const cuda_attention &a,
                        const cuda_split &p, const queries &q, uint32_t segment)
{
    float *parts[2];
    if (!p.parts) {
        join_segment<D, WARPS>(j, m, unit_of(a), q.seen, segment);
        return;
    }
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        bool sees = segment + SEGMENT > q.seen[r].first && segment < q.seen[r].end;
        parts[r] = sees ? part_of(p, a, q.first + threadIdx.x % 32 / 4 + 8 * r, q.head,
                                  segment / SEGMENT - q.seen[r].first / SEGMENT)
                        : NULL;
    }
    put_part<D, WARPS>(m, unit_of(a), parts);
}

/* All segments have joined. */
template <uint32_t D, uint32_t WARPS>
DEVICE void put_joined(joined<D, WARPS> &j, const team<D, WARPS> &m, const cuda_attention &a,
                       const queries &q)
{
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t at = threadIdx.x % 32 / 4 + 8 * r;
        if (at >= q.count)
            continue;
        float keep = add_sink(a, q.head, j.all[r]);
#pragma unroll
        for (uint32_t n = 0; n < m.DIMS / 8; n++)
#pragma unroll
            for (uint32_t i = 2 * r; i < 2 * r + 2; i++)
                put_value(a, q.first + at, q.head, m.number(n, i), j.o[n][i], keep, j.all[r].sum);
    }
}

#endif
