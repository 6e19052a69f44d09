/* attend.cu - attention of bf16 mode by mma.sync (kernels/attend.cuh), for heads of 64, 128 and 256 numbers.
 *
 * Where the tokens alone are few blocks, segments are apart from each other, and a second kernel joins them.
 * With few tokens of a sequence, a block takes one of them; with many, 16 queries of each head that shares
 * keys. */
#include "compute/cuda/kernels/attend.cuh"

/* ---- few tokens ---- */

#define PARTS_WARPS 4u

/* Block: a token, 16 heads that share keys, and of its segments every gridDim.z-th. */
template <uint32_t D>
DEVICE void attend_parts(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ exchange others;
    __shared__ __align__(16) uint8_t q[ROWS * team<D, PARTS_WARPS>::Q_PITCH];
    uint32_t t = p.first + blockIdx.x, group = a.heads / a.kv.heads, pieces = (group + ROWS - 1) / ROWS;
    uint32_t kv_head = blockIdx.y / pieces, first_head = kv_head * group + blockIdx.y % pieces * ROWS;
    uint32_t heads = min(ROWS, (kv_head + 1) * group - first_head), warp = threadIdx.x / 32;
    grid_begin();
    const cuda_seq &seq = seq_of(s, t);
    range seen = seen_by(a, seq.position + (t - seq.first));
    for (uint32_t i = warp; i < ROWS; i += PARTS_WARPS)
        put_query<D>(shared_at(q) + i * team<D, PARTS_WARPS>::Q_PITCH,
                     i < heads ? row_of(a.qkv, t) + (uint64_t)(first_head + i) * a.q_stride : NULL);
    team<D, PARTS_WARPS> m;
    m.warp = warp, m.name = 1, m.others = &others;
    const range rows[2] = {seen, seen};
    const source from = {s, a, seq, kv_head, seen};
    for (uint32_t i = seen.first / SEGMENT + blockIdx.z; i * SEGMENT < seen.end; i += gridDim.z) {
        m.begin();
        walk<D, 128>(
            from, shared_at(shared), p.stages, max(i * SEGMENT, seen.first), min((i + 1) * SEGMENT, seen.end),
            [&](uint32_t block, uint32_t begin) { m.add_block(a, shared_at(q), block, begin, rows); });
        float *parts[2];
#pragma unroll
        for (uint32_t r = 0; r < 2; r++) {
            uint32_t row = threadIdx.x % 32 / 4 + 8 * r;
            parts[r] = row < heads ? part_of(p, a, t, first_head + row, i - seen.first / SEGMENT) : NULL;
        }
        put_part<D, PARTS_WARPS>(m, unit_of(a), parts);
    }
}

#define PARTS(d)                                                                                             \
    extern "C" __global__ void __launch_bounds__(128, 4)                                                     \
        plateau_attend_parts##d(const cuda_step s, const cuda_attention a, const cuda_split p)               \
    {                                                                                                        \
        attend_parts<d>(s, a, p);                                                                            \
    }
PARTS(64)
PARTS(128)
PARTS(256)

#define JOIN_AHEAD 8u /* segments whose sums come together */

/* Block: a token, a head; a thread has one of its values. */
KERNEL plateau_attend_merge(const cuda_step s, const cuda_attention a, const cuda_split p)
{
    grid_begin();
    uint32_t t = p.first + blockIdx.x, head = blockIdx.y, d = threadIdx.x, width = a.kv.v_width;
    const cuda_seq &seq = seq_of(s, t);
    range seen = seen_by(a, seq.position + (t - seq.first));
    uint32_t first = seen.first / SEGMENT;
    total all = {0, 0};
    float value = 0;
    for (uint32_t begin = first; begin * SEGMENT < seen.end; begin += JOIN_AHEAD) {
        float values[JOIN_AHEAD], max[JOIN_AHEAD], sum[JOIN_AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < JOIN_AHEAD; i++) {
            if ((begin + i) * SEGMENT >= seen.end)
                continue;
            const float *part = part_of(p, a, t, head, begin + i - first);
            values[i] = part[d], max[i] = part[width], sum[i] = part[width + 1];
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
        walk<D, 128>(from, stages_at, p.stages, share.first, share.end, [&](uint32_t block, uint32_t begin) {
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
