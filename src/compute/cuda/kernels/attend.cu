/* attend.cu - attention of bf16 mode by mma.sync (kernels/attend.cuh), for heads of 64, 128 and 256 numbers.
 *
 * Where the tokens alone are few blocks, segments are apart from each other. With few tokens of a sequence, a
 * block takes one of them, and the last one to end joins a token's segments; with many, 16 queries of each
 * head that shares keys, and a second kernel joins them. */
#include "compute/cuda/kernels/attend_few.cuh"

/* ---- few tokens ---- */

/* As `team` of attend.cuh, by all warps of a block and for several blocks of keys at once: a warp has some
 * keys of one of them, then some of the head's numbers. Codes have another row of weights behind each, with
 * the values' scales. */
template <uint32_t D, uint32_t BLOCKS, uint32_t WARPS, uint32_t CODES> struct crowd {
    static constexpr uint32_t KEYS = BLOCKS * BLOCK_KEYS / WARPS;
    static constexpr uint32_t DIMS = D / WARPS < 8 ? 8 : D / WARPS;
    static constexpr uint32_t ROW_BYTES = 2 * BLOCKS * BLOCK_KEYS;
    static constexpr uint32_t Q_PITCH = 2 * D + 16, P_PITCH = (CODES ? 2 : 1) * ROW_BYTES + 16;
    static constexpr uint32_t PAGE = 2 * CODED_BYTES(D), BYTES = CODES ? 2 * PAGE : keys<D>::BYTES;
    float o[DIMS / 8][4], sum[4], max[2]; /* sum: of warp 0 */
    uint32_t warp, lane, rows;            /* rows of q: the second half is the first one with 8 */
    uint32_t stages, q, weights;          /* in shared memory */
    float (*largest)[WARPS];              /* [ROWS] */

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

    /* The page of the warp's keys, which are its first or second 16. */
    __device__ __forceinline__ uint32_t page_of_keys() const
    {
        return stages + warp * KEYS / CUDA_PAGE_TOKENS * PAGE;
    }
    /* The scale of the lane's key n * 8 + i of the warp, or of its value, of its operand. */
    __device__ __forceinline__ float scale_of(uint32_t n, uint32_t i, bool of_value) const
    {
        uint32_t key = warp * KEYS % CUDA_PAGE_TOKENS + n * 8 + lane % 4 * 2 + i;
        uint32_t at = page_of_keys() + (of_value ? CODED_BYTES(D) : 0) + CODES_BYTES(D);
        return __uint_as_float(read_word(at + key * 4)) * CODE_UNIT;
    }
    /* Keys of codes are the columns of mma, whose operands have the order of rows. */
    __device__ __forceinline__ void score_codes(float s[KEYS / 8][4]) const
    {
        uint32_t q_at = row_at(q, Q_PITCH), at = page_of_keys();
        at += (warp * KEYS % CUDA_PAGE_TOKENS / 16 * 32 + lane) * 16;
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step += 2) {
            uint32_t a[2][4];
            load4(a[0], q_at + step * 32);
            load4(a[1], q_at + step * 32 + 32);
            const uint4 c = read_piece(at + step * 512);
            const uint32_t words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                mma(s[i % 2], a[i / 2], first_codes<CODES>(words[i]), second_codes<CODES>(words[i]));
        }
#pragma unroll
        for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                float scale = scale_of(n, i, false);
                s[n][i] *= scale, s[n][i + 2] *= scale;
            }
    }
    __device__ __forceinline__ void score(float s[KEYS / 8][4]) const
    {
        uint32_t block = stages + mine() * BYTES, piece = warp * KEYS % BLOCK_KEYS / 8;
        uint32_t q_at = row_at(q, Q_PITCH);
        if (CODES)
            score_codes(s);
#pragma unroll
        for (uint32_t step = 0; !CODES && step < D / 16; step += 2) {
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

    /* Weighs the scores of `count` blocks; the row's largest score in earlier blocks is in max. */
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
                constexpr uint32_t EACH = WARPS / BLOCKS;
                float larger = max[r];
#pragma unroll
                for (uint32_t w = b * EACH; w < (b + 1) * EACH; w += 4) {
                    float4 four = *(const float4 *)&largest[row + 8 * r][w];
                    larger = fmaxf(fmaxf(larger, fmaxf(four.x, four.y)), fmaxf(four.z, four.w));
                }
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
                float w[2] = {weight_of(s[n][2 * r], c, less[r]), weight_of(s[n][2 * r + 1], c, less[r])};
                uint32_t at = weights + (row + 8 * r) * P_PITCH + (warp * KEYS + n * 8 + lane % 4 * 2) * 2;
                if (rows != ROWS && r > 0)
                    continue;
                put_word(at, bf16_pair(w[0], w[1]));
                if (CODES)
                    put_word(at + ROW_BYTES, bf16_pair(scaled_weight(w[0], scale_of(n, 0, true)),
                                                       scaled_weight(w[1], scale_of(n, 1, true))));
            }
        }
        __syncthreads();
    }

    /* Values of codes of a page; of 8 numbers of a warp, half words have these or the 8 beside them. */
    __device__ __forceinline__ void add_codes(const uint32_t p[2][4], uint32_t page)
    {
        const uint4 c = read_piece(page + CODED_BYTES(D) + (warp * DIMS / 16 * 32 + lane) * 16);
        const uint32_t words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
#pragma unroll
            for (uint32_t n = 0; n < DIMS / 8; n++) {
                const uint32_t low = words[2 * i], high = words[2 * i + 1];
                if (DIMS == 8 ? warp % 2 == 0 : n == 0)
                    mma(o[n], p[i], first_codes<CODES>(low), first_codes<CODES>(high));
                else
                    mma(o[n], p[i], second_codes<CODES>(low), second_codes<CODES>(high));
            }
    }
    __device__ __forceinline__ void add_values(uint32_t count, const float factor[BLOCKS][2])
    {
        uint32_t p_at = row_at(weights, P_PITCH), piece = warp * DIMS / 8;
#pragma unroll
        for (uint32_t b = 0; b < BLOCKS; b++) {
            if (b >= count)
                break;
            uint32_t block = stages + b * BYTES;
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
                if (CODES) {
                    if (warp == 0)
                        mma(sum, p[0], ONES, ONES), mma(sum, p[1], ONES, ONES);
                    load4(p[0], p_at + ROW_BYTES + (b * 4 + step) * 32);
                    load4(p[1], p_at + ROW_BYTES + (b * 4 + step) * 32 + 32);
                    add_codes(p, block + step / 2 * PAGE);
                    continue;
                }
                operands<DIMS == 16>(v, lane, step, [&](uint32_t key, uint32_t n) {
                    return block + keys<D>::v_at(key, piece + n);
                });
#pragma unroll
                for (uint32_t i = 0; i < 2; i++) {
                    if (warp == 0)
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
        if (a.cap > 0) {
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++)
                    s[n][i] = a.cap * tanhf(s[n][i] * a.scale / a.cap);
        }
        if (begin < seen.first || begin + BLOCKS * BLOCK_KEYS > seen.end || count < BLOCKS) {
#pragma unroll
            for (uint32_t n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) {
                    uint32_t token = begin + warp * KEYS + n * 8 + lane % 4 * 2 + i % 2;
                    if (token < seen.first || token >= seen.end || mine() >= count)
                        s[n][i] = -INFINITY;
                }
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

/* A page of codes, by all threads. */
template <uint32_t BYTES, uint32_t THREADS> DEVICE void bring_codes(uint32_t to, const char *page, bool some)
{
#pragma unroll
    for (uint32_t i = threadIdx.x; i < BYTES / 16; i += THREADS)
        copy16_if(to + i * 16, page + i * 16, some);
}

/* `most` blocks of keys from block `from` on and below `end`, into the stages. A lane looks up one of their
 * pages. */
template <uint32_t D, uint32_t WARPS, uint32_t CODES>
DEVICE void bring_blocks(uint32_t stages, const source &o, uint32_t from, uint32_t end, uint32_t most)
{
    uint32_t pages = 2 * min(end - from, most), begin = from * BLOCK_KEYS;
    uint32_t mine = begin + min(threadIdx.x % 32, pages - 1) * CUDA_PAGE_TOKENS;
    uint32_t index =
        page_index(o.s, o.seq, o.a.kv, (sees_page(o, mine) ? mine : o.seen.first) / CUDA_PAGE_TOKENS);
#pragma unroll 1
    for (uint32_t i = 0; i < pages; i++) {
        uint32_t at = begin + i * CUDA_PAGE_TOKENS;
        const float *page = page_of(o.s, o.a.kv, o.kv_head, __shfl_sync(0xffffffffu, index, i));
        if (CODES)
            bring_codes<2 * CODED_BYTES(D), 32 * WARPS>(stages + i * 2 * CODED_BYTES(D), (const char *)page,
                                                        sees_page(o, at));
        else
            bring_page<D, 32 * WARPS>(stages + i / 2 * keys<D>::BYTES, o, i % 2, at, (const char *)page,
                                      sees_page(o, at));
    }
}
DEVICE void brought_all()
{
    copies_wait_all();
    __syncthreads();
}

/* Block: a token, 16 heads that share keys, and of its segments every gridDim.z-th. With `append` each
 * sequence has one token in the step. Its earlier tokens lie in the pages when the step begins, and are read
 * before the kernels in front have ended. */
template <uint32_t D, uint32_t BLOCKS, uint32_t WARPS, uint32_t CODES>
DEVICE void attend_parts(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ uint64_t there;
    using all = crowd<D, BLOCKS, WARPS, CODES>;
    uint32_t t = p.first + blockIdx.x, group = a.heads / a.kv.heads, pieces = (group + ROWS - 1) / ROWS;
    uint32_t kv_head = blockIdx.y / pieces, first_head = kv_head * group + blockIdx.y % pieces * ROWS;
    uint32_t heads = min(ROWS, (kv_head + 1) * group - first_head);
    all m;
    m.warp = threadIdx.x / 32, m.lane = threadIdx.x % 32, m.rows = CUDA_PARTS_ROWS(group);
    m.stages = shared_at(shared), m.q = m.stages + BLOCKS * all::BYTES;
    m.weights = m.q + m.rows * all::Q_PITCH;
    uint8_t *rest = shared + (m.weights - m.stages);
    m.largest = (float(*)[WARPS])(rest + m.rows * all::P_PITCH);
    grid_next();
    if (!p.append)
        grid_wait();
    const cuda_seq &seq = p.append ? s.seq[t] : seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    range seen = seen_by(s, a, t, position);
    uint32_t first = seen.first / SEGMENT, count = (seen.end + SEGMENT - 1) / SEGMENT - first;
    if (blockIdx.z >= count)
        return;
    const source from = {s, a, seq, kv_head, seen};
    const source before = {s, a, seq, kv_head, {seen.first, p.append ? position : seen.end}};
    uint32_t mine = first + blockIdx.z, block = max(mine * SEGMENT, seen.first) / BLOCK_KEYS;
    uint32_t end = (min((mine + 1) * SEGMENT, seen.end) + BLOCK_KEYS - 1) / BLOCK_KEYS;
    const bool newest = p.append && (count - 1) % gridDim.z == blockIdx.z;
    const uint32_t items = heads + (newest ? 2 : 0);
    const token_items<D, WARPS> token = {
        s, a, seq, t, position, kv_head, first_head, heads, items, p.append != 0, (float *)rest, &there};
    float x[D / 32], w[D / 32];
    token.prepare();
    token.load_norm(w, m.warp);
    bring_blocks<D, WARPS, CODES>(m.stages, before, block, end, BLOCKS);
    for (uint32_t i = heads + m.warp; i < m.rows; i += WARPS)
        put_zeros<D>(m.q + i * all::Q_PITCH);
    if (p.append) {
        __syncthreads();
        grid_wait();
    }
    token.bring();
    uint32_t item = m.warp;
#pragma unroll 1
    for (; item < items; item += WARPS) {
        token.take(x, w, item);
        if (item < heads)
            token.put_query(m.q + item * all::Q_PITCH, x);
        token.load_norm(w, item + WARPS);
    }
    if (newest) {
        uint32_t at = position / BLOCK_KEYS - block;
        bool is_here = at < BLOCKS && mine == first + count - 1;
        item -= WARPS;
        brought_all();
        if (item == heads || item == heads + 1) {
            token.template put<CODES>(x, item == heads, is_here ? m.stages + at * all::BYTES : CUDA_NONE);
        }
    }
    bool brought = true;
    for (uint32_t i = mine; i < first + count; i += gridDim.z) {
        m.begin();
        for (; block < end; block += BLOCKS) {
            if (!brought) {
                __syncthreads();
                bring_blocks<D, WARPS, CODES>(m.stages, from, block, end, BLOCKS);
            }
            brought = false;
            brought_all();
            m.add(a, block * BLOCK_KEYS, min(end - block, BLOCKS), seen);
        }
        m.put(a, p, t, first_head, heads, i - first);
        block = (i + gridDim.z) * SEGMENT / BLOCK_KEYS;
        end = (min((i + gridDim.z + 1) * SEGMENT, seen.end) + BLOCK_KEYS - 1) / BLOCK_KEYS;
    }
    if (!ends_last(p.ended + blockIdx.x * gridDim.y + blockIdx.y, min(count, gridDim.z)))
        return;
    for (uint32_t i = m.warp; i < heads * (D / 32); i += WARPS)
        join_parts<1>(a, p, seen, t, first_head + i / (D / 32), i % (D / 32) * 32 + m.lane);
}

#define PARTS(name, d, blocks, codes)                                                                        \
    extern "C" __global__ void __launch_bounds__(32 * CUDA_PARTS_WARPS, 1)                                   \
        plateau_attend_##name##d(const cuda_step s, const cuda_attention a, const cuda_split p)              \
    {                                                                                                        \
        attend_parts<d, blocks, CUDA_PARTS_WARPS, codes>(s, a, p);                                           \
    }                                                                                                        \
    static_assert(crowd<d, blocks, CUDA_PARTS_WARPS, codes>::Q_PITCH * 16 +                                  \
                          crowd<d, blocks, CUDA_PARTS_WARPS, codes>::P_PITCH * 16 + 64 * CUDA_PARTS_WARPS == \
                      CUDA_PARTS_ROOM(d, 16, blocks, (codes) > 0),                                           \
                  "the host asks for it");
PARTS(parts, 64, 4, 0)
PARTS(parts, 128, 4, 0)
PARTS(parts, 256, 2, 0)
PARTS(parts_codes, 64, 4, CUDA_KV_INT8)
PARTS(parts_codes, 128, 4, CUDA_KV_INT8)
PARTS(parts_codes, 256, 4, CUDA_KV_INT8)
PARTS(parts_floats, 64, 4, CUDA_KV_FP8)
PARTS(parts_floats, 128, 4, CUDA_KV_FP8)
PARTS(parts_floats, 256, 4, CUDA_KV_FP8)

/* Block: a token, a head; a thread has one of its values. */
KERNEL plateau_attend_merge(const cuda_step s, const cuda_attention a, const cuda_split p)
{
    grid_begin();
    uint32_t t = p.first + blockIdx.x;
    const cuda_seq &seq = seq_of(s, t);
    join_parts<1>(a, p, seen_by(s, a, t, seq.position + (t - seq.first)), t, blockIdx.y, threadIdx.x);
}

/* ---- many tokens ---- */

/* Block: 16 queries of up to TEAMS heads that share keys, or, where fewer do, several times 16 queries, and
 * a share of their segments. Of each sequence among those columns in turn. */
template <uint32_t D, uint32_t CODED>
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
        const queries mine_of = queries_of(s, a, t + row, my_rows, head, position + row);
        const range all = seen_by_all(s, a, t, count, position), share = share_of(all);
        const range team_seen = seen_by_all(s, a, t + row, mine_of.count, position + row);
        joined<D, WARPS> j;
        const source from = {s, a, seq, kv_head, all};
        const uint32_t pages_at = stages_at + keys<D>::BYTES;
        float *scales = (float *)(shared + (pages_at - shared_at(shared)) + 2 * CUDA_CODED_PAGE(D));
        auto add = [&](uint32_t block, uint32_t begin) {
            if (begin % SEGMENT == 0 || begin <= share.first)
                m.begin();
            if (my_rows > 0 && begin < team_seen.end && begin + BLOCK_KEYS > team_seen.first)
                m.template add_block<CODED>(a, q, block, begin, mine_of.seen, scales);
            if (begin % SEGMENT == SEGMENT - BLOCK_KEYS || begin + BLOCK_KEYS >= share.end)
                end_segment<D, WARPS>(j, m, a, p, mine_of, begin / SEGMENT * SEGMENT);
        };
        if (CODED) {
            const walk_codes<D, 128, CODED> w = {stages_at, pages_at, scales};
            w.go(from, share.first, share.end, [&](uint32_t begin) { add(stages_at, begin); });
        } else {
            walk<D, 128> w = {stages_at, p.stages};
            w.begin(from, share.first, share.end);
            w.go(from, add);
        }
        if (!p.parts)
            put_joined<D, WARPS>(j, m, a, mine_of);
    }
}

#define MANY(name, d, coded)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                                        \
        plateau_attend_##name##d(const cuda_step s, const cuda_attention a, const cuda_split p)              \
    {                                                                                                        \
        attend_many<d, coded>(s, a, p);                                                                      \
    }                                                                                                        \
    static_assert(keys<d>::BYTES == CUDA_KEYS_BYTES(d) &&                                                    \
                      many<d>::TEAMS * many<d>::Q_BYTES == CUDA_QUERIES_BYTES(d),                            \
                  "the host asks for it");
MANY(many, 64, 0)
MANY(many, 128, 0)
MANY(many, 256, 0)
MANY(many_codes, 64, CUDA_KV_INT8)
MANY(many_codes, 128, CUDA_KV_INT8)
MANY(many_codes, 256, CUDA_KV_INT8)
MANY(many_floats, 64, CUDA_KV_FP8)
MANY(many_floats, 128, CUDA_KV_FP8)
MANY(many_floats, 256, CUDA_KV_FP8)
