/* attend.cu - attention of bf16 mode by mma.sync (kernels/attend.cuh), for heads of 64, 128 and 256 numbers.
 *
 * Where the tokens alone are few blocks, segments are apart from each other. With few tokens of a sequence, a
 * block takes one of them, and the last one to end joins a token's segments; with many, 16 queries of each
 * head that shares keys, and a second kernel joins them. */
#include "compute/cuda/kernels/append.cuh"
#include "compute/cuda/kernels/attend.cuh"

/* ---- few tokens ---- */

#define PARTS_WARPS (CUDA_PARTS_THREADS / 32)
#define JOIN_AHEAD  8u /* segments whose sums come together */

/* Joins a head's segments, and puts value `d`. */
DEVICE void join_parts(const cuda_attention &a, const cuda_split &p, range seen, uint32_t t, uint32_t head,
                       uint32_t d)
{
    uint32_t first = seen.first / SEGMENT, width = a.kv.v_width;
    total all = {0, 0};
    float value = 0;
    for (uint32_t begin = first; begin * SEGMENT < seen.end; begin += JOIN_AHEAD) {
        float values[JOIN_AHEAD], max[JOIN_AHEAD], sum[JOIN_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < JOIN_AHEAD; i++) {
            if ((begin + i) * SEGMENT >= seen.end)
                continue;
            const float *part = part_of(p, a, t, head, begin + i - first);
            values[i] = __ldcg(part + d), max[i] = __ldcg(part + width), sum[i] = __ldcg(part + width + 1);
        }
#pragma unroll
        for (uint32_t i = 0; i < JOIN_AHEAD; i++) {
            if ((begin + i) * SEGMENT >= seen.end)
                continue;
            bool joins = (begin + i) * SEGMENT > seen.first;
            factors f = join(all, joins, max[i], sum[i]);
            value = joins ? fmaf(value, f.keep, values[i] * f.add) : values[i] * f.add;
        }
    }
    float keep = add_sink(a, head, all);
    put_value(a, t, head, d, value, keep, all.sum);
}

/* As `team` of attend.cuh, by all warps of a block and for several blocks of keys at once: a warp has some
 * keys of one of them, then some of the head's numbers. */
template <uint32_t D, uint32_t BLOCKS> struct crowd {
    static constexpr uint32_t KEYS = BLOCKS * BLOCK_KEYS / PARTS_WARPS;
    static constexpr uint32_t DIMS = D / PARTS_WARPS < 8 ? 8 : D / PARTS_WARPS;
    static constexpr uint32_t Q_PITCH = 2 * D + 16, P_PITCH = 2 * BLOCKS * BLOCK_KEYS + 16;
    float o[DIMS / 8][4], sum[4], max[2];
    uint32_t warp, lane, rows;     /* rows of q: the second half is the first one with 8 */
    uint32_t stages, q, weights;   /* in shared memory */
    float (*largest)[PARTS_WARPS]; /* [ROWS] */

    __device__ __forceinline__ void begin()
    {
        begin_rows(o, sum, max);
    }
    /* Which block of keys the warp has. */
    __device__ __forceinline__ uint32_t mine() const
    {
        return warp * KEYS / BLOCK_KEYS;
    }
    /* Two steps of an operand of B: of 16 columns of one step, or of 8 of both. */
    template <bool WIDE, class At>
    static __device__ __forceinline__ void operands(uint32_t b[2][4], uint32_t lane, uint32_t step,
                                                    const At &at)
    {
        if (WIDE) {
            load4_turned(b[0], at(step * 16 + lane % 16, lane / 16));
            load4_turned(b[1], at(step * 16 + 16 + lane % 16, lane / 16));
        } else {
            load4_turned(b[0], at(step * 16 + lane, 0));
        }
    }
    __device__ __forceinline__ uint32_t row_at(uint32_t base, uint32_t pitch) const
    {
        return base + lane % rows * pitch + lane / 16 * 16;
    }

    __device__ __forceinline__ void score(float s[KEYS / 8][4]) const
    {
        uint32_t block = stages + mine() * keys<D>::BYTES, piece = warp * KEYS % BLOCK_KEYS / 8;
        uint32_t q_at = row_at(q, Q_PITCH);
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step += 2) {
            uint32_t a[2][4], b[2][4];
            load4(a[0], q_at + step * 32);
            load4(a[1], q_at + step * 32 + 32);
            operands<KEYS == 16>(b, lane, step,
                                 [&](uint32_t d, uint32_t n) { return block + keys<D>::k_at(d, piece + n); });
#pragma unroll
            for (uint32_t i = 0; i < 2; i++)
#pragma unroll
                for (uint32_t n = 0; n < KEYS / 8; n++)
                    mma(s[n], a[i], b[KEYS == 16 ? i : 0][KEYS == 16 ? 2 * n : 2 * i],
                        b[KEYS == 16 ? i : 0][KEYS == 16 ? 2 * n + 1 : 2 * i + 1]);
        }
    }

    /* Of `count` blocks; those before them have the row's largest score in max. */
    __device__ __forceinline__ void weigh(const float s[KEYS / 8][4], uint32_t count, float c,
                                          float factor[BLOCKS][2])
    {
        uint32_t row = lane / 4;
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            float x = -INFINITY;
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++)
                x = fmaxf(x, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
            if (lane % 4 == 0)
                largest[row + 8 * r][warp] = x;
        }
        __syncthreads();
        float less[2];
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
#pragma unroll
            for (uint32_t b = 0; b < BLOCKS; b++) {
                constexpr uint32_t EACH = PARTS_WARPS / BLOCKS;
                float larger = max[r];
#pragma unroll
                for (uint32_t w = 0; w < EACH; w++)
                    larger = fmaxf(larger, largest[row + 8 * r][b * EACH + w]);
                larger = b < count ? larger : max[r];
                float known = larger == -INFINITY ? 0 : larger, next = -(known * c);
                factor[b][r] = max[r] == larger ? 1 : weight_of(max[r], c, next);
                less[r] = b == 0 || b == mine() ? next : less[r];
                max[r] = larger;
            }
        }
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++) {
#pragma unroll
            for (uint32_t r = 0; r < 2; r++) {
                uint32_t pair =
                    bf16_pair(weight_of(s[n][2 * r], c, less[r]), weight_of(s[n][2 * r + 1], c, less[r]));
                uint32_t at = weights + (row + 8 * r) * P_PITCH + (warp * KEYS + n * 8 + lane % 4 * 2) * 2;
                if (rows == ROWS || r == 0)
                    put_word(at, pair);
            }
        }
        __syncthreads();
    }

    __device__ __forceinline__ void add_values(uint32_t count, const float factor[BLOCKS][2])
    {
        uint32_t p_at = row_at(weights, P_PITCH), piece = warp * DIMS / 8;
#pragma unroll
        for (uint32_t b = 0; b < BLOCKS; b++) {
            if (b >= count)
                break;
            uint32_t block = stages + b * keys<D>::BYTES;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                sum[i] *= factor[b][i / 2];
#pragma unroll
                for (uint32_t n = 0; n < DIMS / 8; n++)
                    o[n][i] *= factor[b][i / 2];
            }
#pragma unroll
            for (uint32_t step = 0; step < 4; step += 2) {
                uint32_t p[2][4], v[2][4];
                load4(p[0], p_at + (b * 4 + step) * 32);
                load4(p[1], p_at + (b * 4 + step) * 32 + 32);
                operands<DIMS == 16>(v, lane, step, [&](uint32_t key, uint32_t n) {
                    return block + keys<D>::v_at(key, piece + n);
                });
#pragma unroll
                for (uint32_t i = 0; i < 2; i++) {
                    mma(sum, p[i], ONES, ONES);
#pragma unroll
                    for (uint32_t n = 0; n < DIMS / 8; n++)
                        mma(o[n], p[i], v[DIMS == 16 ? i : 0][DIMS == 16 ? 2 * n : 2 * i],
                            v[DIMS == 16 ? i : 0][DIMS == 16 ? 2 * n + 1 : 2 * i + 1]);
                }
            }
        }
    }

    /* `count` blocks of keys from `begin` on, which lie in the stages. */
    __device__ __forceinline__ void add(const cuda_attention &a, uint32_t begin, uint32_t count, range seen)
    {
        float s[KEYS / 8][4] = {}, factor[BLOCKS][2];
        if (mine() < count)
            score(s);
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t token = begin + warp * KEYS + n * 8 + lane % 4 * 2 + i % 2;
                if (a.cap > 0)
                    s[n][i] = a.cap * tanhf(s[n][i] * a.scale / a.cap);
                if (token < seen.first || token >= seen.end || mine() >= count)
                    s[n][i] = -INFINITY;
            }
        weigh(s, count, unit_of(a) * 1.44269504088896341f, factor);
        if (warp * DIMS < D)
            add_values(count, factor);
    }

    __device__ __forceinline__ void put(const cuda_attention &a, const cuda_split &p, uint32_t t,
                                        uint32_t first_head, uint32_t heads, uint32_t segment) const
    {
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            uint32_t row = lane / 4 + 8 * r;
            if (row >= heads || warp * DIMS >= D)
                continue;
            float *part = part_of(p, a, t, first_head + row, segment);
#pragma unroll
            for (uint32_t n = 0; n < DIMS / 8; n++)
                *(float2 *)(part + warp * DIMS + n * 8 + lane % 4 * 2) = {o[n][2 * r], o[n][2 * r + 1]};
            if (warp == 0 && lane % 4 == 0)
                *(float2 *)(part + D) = {max[r] * unit_of(a), sum[2 * r]};
        }
    }
};

DEVICE void put_shared(uint32_t at, float x)
{
    put_half_word(at, __bfloat16_as_ushort(__float2bfloat16_rn(x)));
}

/* A token whose queries and keys are still to be normed and turned (attention.cu); all by one warp. */
template <uint32_t D> struct fresh_token {
    const cuda_step &s;
    const cuda_attention &a;
    const cuda_seq &seq;
    uint32_t t, position, kv_head;
    float *here; /* the warp's own, D numbers */

    __device__ __forceinline__ const float *key() const
    {
        return row_of(a.qkv, t) + (uint64_t)a.heads * a.q_stride + (uint64_t)kv_head * D;
    }
    __device__ __forceinline__ void put_query(uint32_t at, uint32_t head) const
    {
        float x[D / 32], factor = growth_at(a, position);
        turn<D> by;
        load_lanes<D>(x, row_of(a.qkv, t) + (uint64_t)head * a.q_stride);
        by.begin(a, t);
        norm_and_turn<D>(a, x, a.q_norm, by, here);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            put_shared(at + (threadIdx.x % 32 + 32 * j) * 2, a.growth == 0 ? x[j] : x[j] * factor);
    }
    __device__ __forceinline__ void take_key(float x[D / 32]) const
    {
        turn<D> by;
        load_lanes<D>(x, key());
        by.begin(a, t);
        norm_and_turn<D>(a, x, a.k_norm, by, here);
    }
    __device__ __forceinline__ void take_value(float x[D / 32]) const
    {
        load_lanes<D>(x, key() + (uint64_t)a.kv.heads * D);
        if (a.v_norm)
            norm_lanes<D>(x, a.v_norm, a.eps);
    }
    /* To the page, and to its block in shared memory; CUDA_NONE: that is not there. */
    __device__ __forceinline__ void put(const float x[D / 32], bool is_key, uint32_t block) const
    {
        uint32_t at = position % CUDA_PAGE_TOKENS, in_block = position % BLOCK_KEYS;
        uint16_t *page = (uint16_t *)page_at(s, seq, a.kv, kv_head, position / CUDA_PAGE_TOKENS);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t d = threadIdx.x % 32 + 32 * j;
            page[is_key ? d * CUDA_PAGE_TOKENS + at : a.kv.k_bytes / 2 + at * D + d] =
                __bfloat16_as_ushort(__float2bfloat16_rn(x[j]));
            if (block != CUDA_NONE)
                put_shared(block + (is_key ? keys<D>::k_at(d, in_block / 8) + in_block % 8 * 2
                                           : keys<D>::v_at(in_block, d / 8) + d % 8 * 2),
                           x[j]);
        }
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

/* `most` blocks of keys from block `from` on and below `end`, into the stages. */
template <uint32_t D>
DEVICE void bring_blocks(uint32_t stages, const source &o, uint32_t from, uint32_t end, uint32_t most)
{
#pragma unroll 1
    for (uint32_t i = 0; i < min(end - from, most); i++)
        bring_block<D, CUDA_PARTS_THREADS>(stages + i * keys<D>::BYTES, o, (from + i) * BLOCK_KEYS);
}
DEVICE void brought_all()
{
    copies_wait_all();
    __syncthreads();
}

/* Block: a token, 16 heads that share keys, and of its segments every gridDim.z-th. With `append` each
 * sequence has one token in the step. Its earlier tokens lie in the pages when the step begins, and are read
 * before the kernels in front have ended. */
template <uint32_t D, uint32_t BLOCKS>
DEVICE void attend_parts(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    using all = crowd<D, BLOCKS>;
    uint32_t t = p.first + blockIdx.x, group = a.heads / a.kv.heads, pieces = (group + ROWS - 1) / ROWS;
    uint32_t kv_head = blockIdx.y / pieces, first_head = kv_head * group + blockIdx.y % pieces * ROWS;
    uint32_t heads = min(ROWS, (kv_head + 1) * group - first_head);
    all m;
    m.warp = threadIdx.x / 32, m.lane = threadIdx.x % 32, m.rows = CUDA_PARTS_ROWS(group);
    m.stages = shared_at(shared), m.q = m.stages + BLOCKS * keys<D>::BYTES;
    m.weights = m.q + m.rows * all::Q_PITCH;
    uint8_t *rest = shared + (m.weights - m.stages);
    m.largest = (float(*)[PARTS_WARPS])(rest + m.rows * all::P_PITCH);
    grid_next();
    if (!p.append)
        grid_wait();
    const cuda_seq &seq = p.append ? s.seq[t] : seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    range seen = seen_by(a, position);
    uint32_t first = seen.first / SEGMENT, count = (seen.end + SEGMENT - 1) / SEGMENT - first;
    if (blockIdx.z >= count)
        return;
    const source from = {s, a, seq, kv_head, seen};
    const source before = {s, a, seq, kv_head, {seen.first, p.append ? position : seen.end}};
    uint32_t mine = first + blockIdx.z, block = max(mine * SEGMENT, seen.first) / BLOCK_KEYS;
    uint32_t end = (min((mine + 1) * SEGMENT, seen.end) + BLOCK_KEYS - 1) / BLOCK_KEYS;
    bring_blocks<D>(m.stages, before, block, end, BLOCKS);
    for (uint32_t i = heads + m.warp; i < m.rows; i += PARTS_WARPS)
        put_query<D>(m.q + i * all::Q_PITCH, NULL);
    if (p.append) {
        const fresh_token<D> token = {s, a, seq, t, position, kv_head, (float *)rest + m.warp * D};
        bool newest = (count - 1) % gridDim.z == blockIdx.z, is_key = m.warp == heads % PARTS_WARPS;
        bool is_value = m.warp == (heads + 1) % PARTS_WARPS;
        float x[D / 32];
        grid_wait();
        for (uint32_t i = m.warp; i < heads; i += PARTS_WARPS)
            token.put_query(m.q + i * all::Q_PITCH, first_head + i);
        if (newest && is_key)
            token.take_key(x);
        else if (newest && is_value)
            token.take_value(x);
        if (newest) {
            uint32_t there = position / BLOCK_KEYS - block;
            brought_all();
            if (is_key || is_value)
                token.put(x, is_key,
                          there < BLOCKS && mine == first + count - 1 ? m.stages + there * keys<D>::BYTES
                                                                      : CUDA_NONE);
        }
    } else {
        for (uint32_t i = m.warp; i < heads; i += PARTS_WARPS)
            put_query<D>(m.q + i * all::Q_PITCH, row_of(a.qkv, t) + (uint64_t)(first_head + i) * a.q_stride);
    }
    bool there = true;
    for (uint32_t i = mine; i < first + count; i += gridDim.z) {
        m.begin();
        for (; block < end; block += BLOCKS) {
            if (!there) {
                __syncthreads();
                bring_blocks<D>(m.stages, from, block, end, BLOCKS);
            }
            there = false;
            brought_all();
            m.add(a, block * BLOCK_KEYS, min(end - block, BLOCKS), seen);
        }
        m.put(a, p, t, first_head, heads, i - first);
        block = (i + gridDim.z) * SEGMENT / BLOCK_KEYS;
        end = (min((i + gridDim.z + 1) * SEGMENT, seen.end) + BLOCK_KEYS - 1) / BLOCK_KEYS;
    }
    if (!ends_last(p.ended + blockIdx.x * gridDim.y + blockIdx.y, min(count, gridDim.z)))
        return;
    for (uint32_t i = m.warp; i < heads * (D / 32); i += PARTS_WARPS)
        join_parts(a, p, seen, t, first_head + i / (D / 32), i % (D / 32) * 32 + m.lane);
}

/* Of a whole segment at once, or where a multiprocessor has several blocks after each other, two of them
 * beside each other with half of one. Code for newer chips takes more registers. */
#if __CUDA_ARCH__ >= 1000
#define HALVES_BESIDE 1
#else
#define HALVES_BESIDE 2
#endif
#define PARTS(name, d, blocks, beside)                                                                       \
    extern "C" __global__ void __launch_bounds__(CUDA_PARTS_THREADS, beside)                                 \
        plateau_##name##d(const cuda_step s, const cuda_attention a, const cuda_split p)                     \
    {                                                                                                        \
        attend_parts<d, blocks>(s, a, p);                                                                    \
    }                                                                                                        \
    static_assert(crowd<d, blocks>::Q_PITCH * 16 + crowd<d, blocks>::P_PITCH * 16 + 64 * PARTS_WARPS ==      \
                      CUDA_PARTS_ROOM(d, 16, blocks),                                                        \
                  "the host asks for it");
PARTS(attend_parts, 64, 4, 1)
PARTS(attend_parts, 128, 4, 1)
PARTS(attend_parts, 256, 2, 1)
PARTS(attend_halves, 64, 2, HALVES_BESIDE)
PARTS(attend_halves, 128, 2, HALVES_BESIDE)

/* Block: a token, a head; a thread has one of its values. */
KERNEL plateau_attend_merge(const cuda_step s, const cuda_attention a, const cuda_split p)
{
    grid_begin();
    uint32_t t = p.first + blockIdx.x;
    const cuda_seq &seq = seq_of(s, t);
    join_parts(a, p, seen_by(a, seq.position + (t - seq.first)), t, blockIdx.y, threadIdx.x);
}

/* ---- many tokens ---- */

/* Block: 16 queries of up to TEAMS heads that share keys, or, where fewer do, several times 16 queries, and
 * a share of their segments. Of each sequence among those columns in turn. */
template <uint32_t D>
DEVICE void attend_many(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    constexpr uint32_t WARPS = many<D>::WARPS, TEAMS = many<D>::TEAMS;
    __shared__ exchange others[WARPS > 1 ? TEAMS : 1];
    uint32_t group = a.heads / a.kv.heads, heads = min(group, TEAMS), pieces = (group + heads - 1) / heads;
    uint32_t tiles = TEAMS / heads, kv_head = blockIdx.y / pieces, mine = threadIdx.x / 32 / WARPS;
    uint32_t head = blockIdx.y % pieces * heads + mine % heads, row = mine / heads * ROWS;
    uint32_t q = shared_at(shared) + mine * many<D>::Q_BYTES;
    uint32_t stages_at = shared_at(shared) + TEAMS * many<D>::Q_BYTES;
    bool works = head < group && mine < heads * tiles;
    team<D, WARPS> m;
    m.warp = threadIdx.x / 32 % WARPS, m.name = 1 + mine, m.others = &others[WARPS > 1 ? mine : 0];
    head += kv_head * group;
    grid_begin();
    /* The last tokens, which see most keys, first. */
    uint32_t columns = tiles * ROWS, begin_at = p.first + (gridDim.x - 1 - blockIdx.x) * columns;
    uint32_t end = min(p.first + p.tokens, begin_at + columns);
    for (uint32_t t = begin_at, count; t < end; t += count) {
        const cuda_seq &seq = seq_of(s, t);
        count = min(end, seq.first + seq.count) - t;
        uint32_t position = seq.position + (t - seq.first), my_rows = works && row < count ? count - row : 0;
        for (uint32_t i = m.warp; i < ROWS; i += WARPS)
            put_query<D>(q + i * m.Q_PITCH,
                         i < my_rows ? row_of(a.qkv, t + row + i) + (uint64_t)head * a.q_stride : NULL);
        const queries mine_of = queries_of(a, t + row, my_rows, head, position + row);
        const range all = {seen_by(a, position).first, position + count}, share = share_of(all);
        const range team_seen = {seen_by(a, position + row).first, position + row + mine_of.count};
        joined<D, WARPS> j;
        const source from = {s, a, seq, kv_head, all};
        walk<D, 128> w = {stages_at, p.stages};
        w.begin(from, share.first, share.end);
        w.go(from, [&](uint32_t block, uint32_t begin) {
            if (begin % SEGMENT == 0 || begin <= share.first)
                m.begin();
            if (my_rows > 0 && begin < team_seen.end && begin + BLOCK_KEYS > team_seen.first)
                m.add_block(a, q, block, begin, mine_of.seen);
            if (begin % SEGMENT == SEGMENT - BLOCK_KEYS || begin + BLOCK_KEYS >= share.end)
                end_segment<D, WARPS>(j, m, a, p, mine_of, begin / SEGMENT * SEGMENT);
        });
        if (!p.parts)
            put_joined<D, WARPS>(j, m, a, mine_of);
    }
}

#define MANY(d)                                                                                              \
    extern "C" __global__ void __launch_bounds__(128)                                                        \
        plateau_attend_many##d(const cuda_step s, const cuda_attention a, const cuda_split p)                \
    {                                                                                                        \
        attend_many<d>(s, a, p);                                                                             \
    }                                                                                                        \
    static_assert(keys<d>::BYTES == CUDA_KEYS_BYTES(d) &&                                                    \
                      many<d>::TEAMS * many<d>::Q_BYTES == CUDA_QUERIES_BYTES(d),                            \
                  "the host asks for it");
MANY(64)
MANY(128)
MANY(256)
