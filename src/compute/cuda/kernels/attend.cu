/* attend.cu - attention with the bits of plateau_attend(), for heads of 64, 128 and 256 numbers.
 *
 * Few tokens: a block takes segments of one query's keys, and a second kernel merges them in their order.
 * Many: a block takes 32 queries, which share what it loads. Every chain is that of attention.cu: of a score
 * over the head's numbers, of a value and of the weights' sum over the keys of a segment. A key that a query
 * does not see has the weight 0 among those of its neighbours, which changes no sum. */
#include "compute/cuda/kernels/common.cuh"

#define SEGMENT       256u
#define SEGMENT_PAGES (SEGMENT / CUDA_PAGE_TOKENS)
#define QUERIES       32u
#define PITCH         (QUERIES + 4) /* floats of a key's scores: lanes have banks of their own */
#define PAIR_TOKENS   64u           /* keys of two pages */

struct range {
    uint32_t first, end;
};

/* The tokens that a query at `position` sees. */
DEVICE range seen_by(const cuda_attention &a, uint32_t position)
{
    uint32_t first = a.window > 0 && position >= a.window ? position + 1 - a.window : 0;
    return {a.mtp ? 1 : first, position + 1};
}

DEVICE float scored(const cuda_attention &a, float s)
{
    s *= a.scale;
    return a.cap > 0 ? a.cap * tanhf(s / a.cap) : s;
}

/* A query's sums over the segments so far. */
struct total {
    float max, sum;
};
/* What the sums so far, and the next segment's, are multiplied by. */
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

/* ---- few tokens ---- */

/* Of a segment: the values' sums, then the largest score and the weights' sum. */
DEVICE float *part_of(const cuda_split &p, const cuda_attention &a, uint32_t t, uint32_t head,
                      uint32_t segment)
{
    return p.parts + ((uint64_t)(t * a.heads + head) * p.segments + segment) * (a.kv.v_width + 2);
}

template <uint32_t D>
DEVICE void attend_segment(const cuda_attention &a, float *part, const float *q,
                           const float *const pages[SEGMENT_PAGES], uint32_t begin, range seen)
{
    __shared__ float weights[SEGMENT];
    uint32_t from = max(begin, seen.first), to = min(begin + SEGMENT, seen.end), t = begin + threadIdx.x;
    float s = -INFINITY;
    if (t >= from && t < to) {
        const float *k = pages[threadIdx.x / CUDA_PAGE_TOKENS] + threadIdx.x % CUDA_PAGE_TOKENS;
        s = 0;
#pragma unroll 32
        for (uint32_t d = 0; d < D; d++)
            s = fmaf(q[d], k[d * CUDA_PAGE_TOKENS], s);
        s = scored(a, s);
    }
    float largest = block_max(s);
    weights[threadIdx.x] = t >= from && t < to ? expf(s - largest) : 0;
    __syncthreads();
    if (threadIdx.x < D) {
        float value = 0, sum = 0;
        const uint64_t v_at = a.kv.k_bytes / sizeof(float) + threadIdx.x;
        uint32_t i = from - begin, end = to - begin;
        for (; i < end && i % CUDA_PAGE_TOKENS != 0; i++) {
            value = fmaf(weights[i], pages[i / CUDA_PAGE_TOKENS][v_at + i % CUDA_PAGE_TOKENS * D], value);
            sum += weights[i];
        }
        for (; i + CUDA_PAGE_TOKENS <= end; i += CUDA_PAGE_TOKENS) {
            const float *v = pages[i / CUDA_PAGE_TOKENS] + v_at;
            float loaded[CUDA_PAGE_TOKENS];
#pragma unroll
            for (uint32_t j = 0; j < CUDA_PAGE_TOKENS; j++)
                loaded[j] = v[j * D];
#pragma unroll
            for (uint32_t j = 0; j < CUDA_PAGE_TOKENS; j++) {
                value = fmaf(weights[i + j], loaded[j], value);
                sum += weights[i + j];
            }
        }
#pragma unroll 4
        for (; i < end; i++) {
            value = fmaf(weights[i], pages[i / CUDA_PAGE_TOKENS][v_at + i % CUDA_PAGE_TOKENS * D], value);
            sum += weights[i];
        }
        part[threadIdx.x] = value;
        if (threadIdx.x == 0) {
            part[D] = largest;
            part[D + 1] = sum;
        }
    }
    __syncthreads();
}

/* Block: a token, a head, and of its segments every gridDim.z-th. */
template <uint32_t D>
DEVICE void attend_parts(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    __shared__ float q[D];
    __shared__ const float *pages[SEGMENT_PAGES];
    uint32_t t = blockIdx.x, head = blockIdx.y;
    grid_begin();
    const cuda_seq &seq = seq_of(s, t);
    range seen = seen_by(a, seq.position + (t - seq.first));
    if (threadIdx.x < D)
        q[threadIdx.x] = row_of(a.qkv, t)[(uint64_t)head * a.q_stride + threadIdx.x];
    uint32_t segment = seen.first / SEGMENT + blockIdx.z;
    for (; segment * SEGMENT < seen.end; segment += gridDim.z) {
        uint32_t page = segment * SEGMENT_PAGES + threadIdx.x;
        if (threadIdx.x < SEGMENT_PAGES && page * CUDA_PAGE_TOKENS < seen.end &&
            (page + 1) * CUDA_PAGE_TOKENS > seen.first)
            pages[threadIdx.x] = page_at(s, seq, a.kv, head / (a.heads / a.kv.heads), page);
        __syncthreads();
        attend_segment<D>(a, part_of(p, a, t, head, segment - seen.first / SEGMENT), q, pages,
                          segment * SEGMENT, seen);
    }
}

#define PARTS(d)                                                                                             \
    KERNEL plateau_attend_parts##d(const cuda_step s, const cuda_attention a, const cuda_split p)            \
    {                                                                                                        \
        attend_parts<d>(s, a, p);                                                                            \
    }
PARTS(64)
PARTS(128)
PARTS(256)

/* Block: a token, a head; a thread has one of its values. */
KERNEL plateau_attend_merge(const cuda_step s, const cuda_attention a, const cuda_split p)
{
    grid_begin();
    uint32_t t = blockIdx.x, head = blockIdx.y, d = threadIdx.x, width = a.kv.v_width;
    const cuda_seq &seq = seq_of(s, t);
    range seen = seen_by(a, seq.position + (t - seq.first));
    uint32_t first = seen.first / SEGMENT;
    total all = {0, 0};
    float value = 0;
    for (uint32_t i = first; i * SEGMENT < seen.end; i++) {
        const float *part = part_of(p, a, t, head, i - first);
        bool joins = i * SEGMENT > seen.first;
        factors f = join(all, joins, part[width], part[width + 1]);
        value = joins ? fmaf(value, f.keep, part[d] * f.add) : part[d] * f.add;
    }
    float keep = add_sink(a, head, all);
    put_value(a, t, head, d, value, keep, all.sum);
}

/* ---- many tokens ---- */

template <uint32_t D> struct tile_memory {
    float q[D][QUERIES];
    float scores[SEGMENT][PITCH];
    float keys[D][PAIR_TOKENS]; /* or values [PAIR_TOKENS][D] */
    float largest[QUERIES];
};

/* Queries [t, t + count) of one sequence. */
struct tile {
    uint32_t t, count, position, head;
    range keys; /* that any of them sees */
};

/* Two pages of keys, or of values; zeros where no query looks. */
template <uint32_t D>
DEVICE void bring_pair(float *to, const cuda_step &s, const cuda_attention &a, const cuda_seq &seq,
                       const tile &w, uint32_t begin, bool values)
{
    uint32_t kv_head = w.head / (a.heads / a.kv.heads);
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t at = begin + half * CUDA_PAGE_TOKENS;
        bool some = at < w.keys.end && at + CUDA_PAGE_TOKENS > w.keys.first;
        const float *page = some ? page_at(s, seq, a.kv, kv_head, at / CUDA_PAGE_TOKENS) : NULL;
        if (values && some)
            page += a.kv.k_bytes / sizeof(float);
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < D * CUDA_PAGE_TOKENS / 4; i += CUDA_THREADS) {
            float4 v = {0, 0, 0, 0};
            if (some)
                v = ((const float4 *)page)[i];
            if (!values) {
                ((float4 *)to)[i / 8 * (PAIR_TOKENS / 4) + half * 8 + i % 8] = v;
            } else {
                uint32_t token = at + i / (D / 4);
                if (token < w.keys.first || token >= w.keys.end)
                    v = {0, 0, 0, 0};
                ((float4 *)to)[half * (D * CUDA_PAGE_TOKENS / 4) + i] = v;
            }
        }
    }
}

/* Scores of 64 keys: a thread has two keys, and four queries. */
template <uint32_t D>
DEVICE void score_pair(tile_memory<D> &m, const cuda_attention &a, const tile &w, uint32_t begin, uint32_t at)
{
    uint32_t lane = threadIdx.x % 32, query = threadIdx.x / 32 * 4;
    float s[2][4] = {};
#pragma unroll 8
    for (uint32_t d = 0; d < D; d++) {
        float4 q = *(const float4 *)&m.q[d][query];
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            float k = m.keys[d][lane + 32 * i];
            s[i][0] = fmaf(q.x, k, s[i][0]);
            s[i][1] = fmaf(q.y, k, s[i][1]);
            s[i][2] = fmaf(q.z, k, s[i][2]);
            s[i][3] = fmaf(q.w, k, s[i][3]);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t token = begin + at + lane + 32 * i;
        float r[4];
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
            range seen = seen_by(a, w.position + query + j);
            bool sees = query + j < w.count && token >= seen.first && token < seen.end;
            r[j] = sees ? scored(a, s[i][j]) : -INFINITY;
        }
        *(float4 *)&m.scores[at + lane + 32 * i][query] = {r[0], r[1], r[2], r[3]};
    }
}

DEVICE float weight_of(float s, float largest)
{
    return s > -INFINITY ? expf(s - largest) : s == s ? 0 : s;
}

/* Scores become weights; a warp has four queries. */
template <uint32_t D> DEVICE void weigh(tile_memory<D> &m)
{
    uint32_t lane = threadIdx.x % 32, query = threadIdx.x / 32 * 4;
    float largest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
#pragma unroll
    for (uint32_t i = 0; i < SEGMENT; i += 32) {
        float4 s = *(const float4 *)&m.scores[i + lane][query];
        largest[0] = fmaxf(largest[0], s.x), largest[1] = fmaxf(largest[1], s.y);
        largest[2] = fmaxf(largest[2], s.z), largest[3] = fmaxf(largest[3], s.w);
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        for (uint32_t d = 16; d > 0; d /= 2)
            largest[j] = fmaxf(largest[j], __shfl_xor_sync(0xffffffffu, largest[j], d));
        m.largest[query + j] = largest[j];
    }
#pragma unroll
    for (uint32_t i = 0; i < SEGMENT; i += 32) {
        float4 *at = (float4 *)&m.scores[i + lane][query], s = *at;
        *at = {weight_of(s.x, largest[0]), weight_of(s.y, largest[1]), weight_of(s.z, largest[2]),
               weight_of(s.w, largest[3])};
    }
}

/* A thread has 4 of a head's values for `N` queries. */
template <uint32_t D> struct values_of {
    static constexpr uint32_t N = D / 32;
    float x[N][4], sum[N];
};

template <uint32_t D>
DEVICE void add_values(values_of<D> &v, const tile_memory<D> &m, uint32_t at, uint32_t query)
{
    constexpr uint32_t N = values_of<D>::N;
    const float4 *values = (const float4 *)&m.keys[0][0] + threadIdx.x % (D / 4);
#pragma unroll 4
    for (uint32_t i = 0; i < PAIR_TOKENS; i++) {
        float4 x = values[i * (D / 4)];
        float p[N];
#pragma unroll
        for (uint32_t j = 0; j < N; j++)
            p[j] = m.scores[at + i][query + j];
#pragma unroll
        for (uint32_t j = 0; j < N; j++) {
            v.x[j][0] = fmaf(p[j], x.x, v.x[j][0]);
            v.x[j][1] = fmaf(p[j], x.y, v.x[j][1]);
            v.x[j][2] = fmaf(p[j], x.z, v.x[j][2]);
            v.x[j][3] = fmaf(p[j], x.w, v.x[j][3]);
            v.sum[j] += p[j];
        }
    }
}

template <uint32_t D>
DEVICE void attend_tile(tile_memory<D> &m, const cuda_step &s, const cuda_attention &a, const cuda_seq &seq,
                        const tile &w)
{
    constexpr uint32_t N = values_of<D>::N;
    uint32_t query = threadIdx.x / (D / 4) * N, d = threadIdx.x % (D / 4) * 4;
    values_of<D> out;
    total all[N];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < D * QUERIES; i += CUDA_THREADS) {
        uint32_t row = i / D;
        m.q[i % D][row] = row < w.count ? row_of(a.qkv, w.t + row)[(uint64_t)w.head * a.q_stride + i % D] : 0;
    }
    for (uint32_t begin = w.keys.first / SEGMENT * SEGMENT; begin < w.keys.end; begin += SEGMENT) {
        for (uint32_t at = 0; at < SEGMENT; at += PAIR_TOKENS) {
            __syncthreads();
            bring_pair<D>(&m.keys[0][0], s, a, seq, w, begin + at, false);
            __syncthreads();
            score_pair<D>(m, a, w, begin, at);
        }
        __syncthreads();
        weigh<D>(m);
        values_of<D> v = {};
        for (uint32_t at = 0; at < SEGMENT && begin + at < w.keys.end; at += PAIR_TOKENS) {
            __syncthreads();
            bring_pair<D>(&m.keys[0][0], s, a, seq, w, begin + at, true);
            __syncthreads();
            add_values<D>(v, m, at, query);
        }
#pragma unroll
        for (uint32_t j = 0; j < N; j++) {
            range seen = seen_by(a, w.position + query + j);
            if (begin + SEGMENT <= seen.first || begin >= seen.end)
                continue;
            bool joins = begin > seen.first;
            factors f = join(all[j], joins, m.largest[query + j], v.sum[j]);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                out.x[j][i] = joins ? fmaf(out.x[j][i], f.keep, v.x[j][i] * f.add) : v.x[j][i] * f.add;
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < N; j++) {
        if (query + j >= w.count)
            continue;
        float keep = add_sink(a, w.head, all[j]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            put_value(a, w.t + query + j, w.head, d + i, out.x[j][i], keep, all[j].sum);
    }
}

/* Block: 32 columns, a head; of each sequence among them in turn. */
template <uint32_t D> DEVICE void attend_many(const cuda_step &s, const cuda_attention &a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    tile_memory<D> &m = *(tile_memory<D> *)shared;
    grid_begin();
    uint32_t end = min(s.tokens, (blockIdx.x + 1) * QUERIES);
    for (uint32_t t = blockIdx.x * QUERIES; t < end;) {
        const cuda_seq &seq = seq_of(s, t);
        uint32_t count = min(end, seq.first + seq.count) - t, position = seq.position + (t - seq.first);
        tile w = {t, count, position, blockIdx.y, {seen_by(a, position).first, position + count}};
        attend_tile<D>(m, s, a, seq, w);
        t += count;
    }
}

#define MANY(d)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 1)                                                     \
        plateau_attend_many##d(const cuda_step s, const cuda_attention a)                                    \
    {                                                                                                        \
        attend_many<d>(s, a);                                                                                \
    }                                                                                                        \
    static_assert(sizeof(tile_memory<d>) == CUDA_ATTEND_SHARED(d), "the host asks for it");
MANY(64)
MANY(128)
MANY(256)
