/* attention.cu - queries and keys, their place in the pages, and attention by segments. */
#include "compute/cuda/kernels/append.cuh"
#include "compute/cuda/kernels/codes.cuh"
#include "compute/cuda/kernels/window.cuh"

#define SEGMENT  256u
#define HEAD_MAX 640u
#define DIMS     3 /* values of a thread */

/* ---- queries and keys ---- */

DEVICE void rotate(float *x, const float *angles, uint32_t half, bool adjacent)
{
    for (uint32_t j = threadIdx.x; j < half; j += blockDim.x) {
        uint32_t at = adjacent ? 2 * j : j, other = adjacent ? 2 * j + 1 : j + half;
        float a = x[at], b = x[other], c = angles[j], s = angles[half + j];
        x[at] = a * c - b * s;
        x[other] = b * c + a * s;
    }
    __syncthreads();
}

DEVICE void norm_and_rotate(const cuda_attention &a, float *head, const float *w, uint32_t t)
{
    uint32_t width = a.kv.k_width;
    if (w && a.norm_heads && !a.norm_rotated)
        rms_row(head, head, w, width, a.eps);
    if (a.angles.width > 0)
        rotate(head, row_of(a.angles, t), a.angles.width / 2, a.adjacent);
    if (w && a.norm_rotated)
        rms_row(head, head, w, width, a.eps);
}

/* A token's `width` values become codes, by one warp. */
DEVICE void put_codes(uint32_t form, uint16_t *half, uint32_t width, uint32_t at, const float *x, bool is_key)
{
    uint32_t lane = threadIdx.x % 32;
    float largest = 0;
    for (uint32_t d = lane; d < width; d += 32)
        largest = larger_magnitude(largest, x[d]);
    for (uint32_t d = 16; d > 0; d /= 2)
        largest = larger_magnitude(largest, __shfl_xor_sync(0xffffffffu, largest, d));
    code_scale by = code_scale_of(form, largest);
    for (uint32_t d = lane; d < width; d += 32)
        if (d % 16 < 8)
            half[is_key ? key_codes_at(d, at) : value_codes_at(d, at)] =
                (uint16_t)codes_of(form, code_of(form, x[d], by.back), code_of(form, x[d + 8], by.back));
    if (lane == 0)
        ((float *)half)[CODES_BYTES(width) / 4 + at] = by.scale;
}

DEVICE void put_in_page(float *page, const cuda_kv &kv, uint32_t at, const float *k, const float *v)
{
    if (is_coded(kv)) {
        if (threadIdx.x < 32)
            put_codes(kv.form, (uint16_t *)page, kv.k_width, at, k, true);
        else if (threadIdx.x < 64)
            put_codes(kv.form, (uint16_t *)page + kv.k_bytes / 2, kv.v_width, at, v, false);
        return;
    }
    if (kv.form == CUDA_KV_BF16) {
        uint16_t *page_k = (uint16_t *)page, *page_v = page_k + kv.k_bytes / 2;
        for (uint32_t d = threadIdx.x; d < kv.k_width; d += blockDim.x)
            page_k[key_in_page(d, at)] = __bfloat16_as_ushort(__float2bfloat16_rn(k[d]));
        for (uint32_t d = threadIdx.x; d < kv.v_width; d += blockDim.x)
            page_v[value_in_page(kv.v_width, at, d)] = __bfloat16_as_ushort(__float2bfloat16_rn(v[d]));
        return;
    }
    float *page_v = page + kv.k_bytes / sizeof(float) + (uint64_t)at * kv.v_width;
    for (uint32_t d = threadIdx.x; d < kv.k_width; d += blockDim.x)
        page[(uint64_t)d * CUDA_PAGE_TOKENS + at] = k[d];
    for (uint32_t d = threadIdx.x; !kv.v_in_k && d < kv.v_width; d += blockDim.x)
        page_v[d] = v[d];
}

DEVICE void copy_head(float *to, const float *from, uint32_t width)
{
    for (uint32_t d = threadIdx.x; d < width; d += blockDim.x)
        to[d] = from[d];
}

/* In shared memory, where each thread's values are near. */
DEVICE void append_query(const cuda_attention &a, float *head_here, uint32_t t, uint32_t head,
                         uint32_t position)
{
    float *q = row_of(a.qkv, t) + (uint64_t)head * a.q_stride;
    copy_head(head_here, q, a.kv.k_width);
    __syncthreads();
    norm_and_rotate(a, head_here, a.q_norm, t);
    float factor = growth_at(a, position);
    for (uint32_t i = threadIdx.x; i < a.kv.k_width; i += blockDim.x)
        q[i] = a.growth == 0 ? head_here[i] : head_here[i] * factor;
}

DEVICE void append_key(const cuda_step &s, const cuda_attention &a, float *k, float *v, uint32_t t,
                       uint32_t head, uint32_t position)
{
    const float *row_k = row_of(a.qkv, t) + (uint64_t)a.heads * a.q_stride;
    const float *row_v = row_k + (uint64_t)a.kv.heads * a.kv.k_width + (uint64_t)head * a.kv.v_width;
    float *page = page_at(s, seq_of(s, t), a.kv, head, position / CUDA_PAGE_TOKENS);
    copy_head(k, row_k + (uint64_t)head * a.kv.k_width, a.kv.k_width);
    copy_head(v, row_v, a.kv.v_width);
    __syncthreads();
    norm_and_rotate(a, k, a.k_norm, t);
    if (a.v_norm)
        rms_row(v, v, a.v_norm, a.kv.v_width, a.eps);
    /* No query reads the first entry, but it must be finite, and the same in every page. */
    if (a.mtp && position == 0) {
        for (uint32_t d = threadIdx.x; d < a.kv.k_width; d += blockDim.x)
            k[d] = 0;
        for (uint32_t d = threadIdx.x; d < a.kv.v_width; d += blockDim.x)
            v[d] = 0;
    }
    __syncthreads();
    put_in_page(page, a.kv, position % CUDA_PAGE_TOKENS, k, v);
}

/* Block: a token, a head of queries or of keys. */
KERNEL plateau_append(const cuda_step s, const cuda_attention a)
{
    __shared__ float k[HEAD_MAX], v[HEAD_MAX];
    grid_begin();
    uint32_t t = blockIdx.x, head = blockIdx.y;
    const cuda_seq &seq = seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    if (head < a.heads && a.with_queries)
        append_query(a, k, t, head, position);
    else if (head >= a.heads && a.with_keys)
        append_key(s, a, k, v, t, head - a.heads, position);
}

/* ---- many tokens: a warp takes a token's heads, with the bits of the block above ---- */

#define APPEND_WARPS (CUDA_THREADS / 32)

template <uint32_t D>
DEVICE void append_queries(const cuda_attention &a, float *here, uint32_t t, uint32_t first,
                           uint32_t position)
{
    float factor = growth_at(a, position);
    turn<D> by;
    by.begin(a, t);
    for (uint32_t head = first; head < min(first + CUDA_APPEND_HEADS, a.heads); head++) {
        float *q = row_of(a.qkv, t) + (uint64_t)head * a.q_stride, x[D / 32];
        load_lanes<D>(x, q);
        norm_and_turn<D>(a, x, a.q_norm, by, here);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            q[threadIdx.x % 32 + 32 * j] = a.growth == 0 ? x[j] : x[j] * factor;
    }
}

/* Keys come to their pages by way of shared memory: a page has a key's numbers far from each other. */
template <uint32_t D> struct key_tile {
    uint16_t at[D][CUDA_APPEND_TOKENS + 2];
};

template <uint32_t D>
DEVICE void append_keys(const cuda_attention &a, uint16_t *page, key_tile<D> &keys, float *here, uint32_t t,
                        uint32_t head, uint32_t position)
{
    const float *row_k = row_of(a.qkv, t) + (uint64_t)a.heads * a.q_stride;
    const float *row_v = row_k + (uint64_t)a.kv.heads * D + (uint64_t)head * D;
    uint16_t *page_v = page + a.kv.k_bytes / 2;
    float k[D / 32], v[D / 32];
    bool none = a.mtp && position == 0;
    turn<D> by;
    load_lanes<D>(k, row_k + (uint64_t)head * D);
    load_lanes<D>(v, row_v);
    by.begin(a, t);
    norm_and_turn<D>(a, k, a.k_norm, by, here);
    if (a.v_norm)
        norm_lanes<D>(v, a.v_norm, a.eps);
    if (is_coded(a.kv)) {
        coded_lanes<D> codes;
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++)
            k[j] = none ? 0 : k[j], v[j] = none ? 0 : v[j];
        codes.take(a.kv.form, k);
        codes.put(page, position % CUDA_PAGE_TOKENS, true);
        codes.take(a.kv.form, v);
        codes.put(page_v, position % CUDA_PAGE_TOKENS, false);
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < D / 32; j++) {
        uint32_t d = threadIdx.x % 32 + 32 * j;
        keys.at[d][t % CUDA_APPEND_TOKENS] = __bfloat16_as_ushort(__float2bfloat16_rn(none ? 0 : k[j]));
        page_v[value_in_page(D, position % CUDA_PAGE_TOKENS, d)] =
            __bfloat16_as_ushort(__float2bfloat16_rn(none ? 0 : v[j]));
    }
}

/* Block: CUDA_APPEND_TOKENS tokens, and CUDA_APPEND_HEADS heads of queries or a head of keys. */
template <uint32_t D> DEVICE void append_many(const cuda_step &s, const cuda_attention &a)
{
    __shared__ key_tile<D> keys;
    __shared__ float heads[APPEND_WARPS][D];
    uint32_t chunks = a.with_queries ? (a.heads + CUDA_APPEND_HEADS - 1) / CUDA_APPEND_HEADS : 0;
    uint32_t begin = blockIdx.x * CUDA_APPEND_TOKENS, end = min(s.tokens, begin + CUDA_APPEND_TOKENS);
    uint32_t warp = threadIdx.x / 32, head = blockIdx.y - chunks;
    grid_begin();
    for (uint32_t t = begin + warp; t < end; t += APPEND_WARPS) {
        const cuda_seq &seq = seq_of(s, t);
        uint32_t position = seq.position + (t - seq.first);
        if (blockIdx.y < chunks)
            append_queries<D>(a, heads[warp], t, blockIdx.y * CUDA_APPEND_HEADS, position);
        else
            append_keys<D>(a, (uint16_t *)page_at(s, seq, a.kv, head, position / CUDA_PAGE_TOKENS), keys,
                           heads[warp], t, head, position);
    }
    if (blockIdx.y < chunks || is_coded(a.kv))
        return;
    __syncthreads();
    uint32_t t = begin + threadIdx.x % 32;
    if (t >= end)
        return;
    const cuda_seq &seq = seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    uint16_t *page = (uint16_t *)page_at(s, seq, a.kv, head, position / CUDA_PAGE_TOKENS);
    for (uint32_t d = warp; d < D; d += APPEND_WARPS)
        page[key_in_page(d, position % CUDA_PAGE_TOKENS)] = keys.at[d][threadIdx.x % 32];
}

#define APPEND(d)                                                                                            \
    KERNEL __launch_bounds__(CUDA_THREADS, d > 128 ? 2 : 3)                                                  \
        plateau_append_many##d(const cuda_step s, const cuda_attention a)                                    \
    {                                                                                                        \
        append_many<d>(s, a);                                                                                \
    }
APPEND(64)
APPEND(128)
APPEND(256)

KERNEL plateau_attention_rows(const cuda_attention_rows a)
{
    grid_begin();
    float *row = row_of(a.x, blockIdx.x);
    if (a.weight)
        rms_row(row + a.from, row + a.from, a.weight, a.width, a.eps);
    for (uint32_t i = threadIdx.x; !a.weight && i < a.width; i += blockDim.x)
        row[a.to + i] = row[a.from + i];
}

/* Block: a token, a head of queries; one more for the key. */
KERNEL plateau_latent(const cuda_step s, const cuda_latent a)
{
    grid_begin();
    uint32_t t = blockIdx.x, head = blockIdx.y, rank = a.kv.v_width, rotating = a.kv.k_width - rank;
    const float *angles = row_of(a.angles, t);
    const cuda_seq &seq = seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    if (head == a.heads) {
        float *key = row_of(a.in, t);
        norm_row(a.norm, key, key, rank);
        rotate(key + rank, angles, a.angles.width / 2, a.adjacent);
        put_in_page(page_at(s, seq, a.kv, 0, position / CUDA_PAGE_TOKENS), a.kv, position % CUDA_PAGE_TOKENS,
                    key, NULL);
        return;
    }
    float *to = row_of(a.query, t) + (uint64_t)head * a.kv.k_width + rank;
    const float *q = row_of(a.q, t) + (uint64_t)(head + 1) * a.q_step - rotating;
    for (uint32_t i = threadIdx.x; i < rotating; i += blockDim.x)
        to[i] = q[i];
    __syncthreads();
    rotate(to, angles, a.angles.width / 2, a.adjacent);
    if (a.growth == 0)
        return;
    __syncthreads();
    float factor = growth_at(a, position);
    for (uint32_t i = threadIdx.x; i < a.kv.k_width; i += blockDim.x)
        to[(int32_t)i - (int32_t)rank] *= factor;
}

/* ---- attention ---- */

/* One query, by a block of 256 threads. Of each segment a thread takes a key; then some of the values. */
struct query {
    const float *q, *sink, *gate; /* sink, gate NULL: none */
    float *out;
    uint32_t first, end;                      /* tokens that it sees */
    uint32_t k_width, v_width, v_in_k, coded; /* coded: form of pages of 8 bits, else 0 */
    uint64_t v_at;                            /* offset of V in a page's floats */
    float scale, cap;
};

struct pages_of_seq {
    const cuda_step &s;
    const cuda_seq &seq;
    const cuda_kv &kv;
    uint32_t head;
    __device__ __forceinline__ const float *operator()(uint32_t page) const
    {
        return page_at(s, seq, kv, head, page);
    }
};

/* The patches of an image: page after page. */
struct pages_of_image {
    const float *base;
    uint64_t floats;
    __device__ __forceinline__ const float *operator()(uint32_t page) const
    {
        return base + page * floats;
    }
};

template <class Pages> DEVICE float score(const query &a, const Pages &pages, const float *q, uint32_t t)
{
    const float *k = pages(t / CUDA_PAGE_TOKENS) + t % CUDA_PAGE_TOKENS;
    float s = 0;
    for (uint32_t d = 0; !a.coded && d < a.k_width; d++)
        s = fmaf(q[d], k[(uint64_t)d * CUDA_PAGE_TOKENS], s);
    for (uint32_t d = 0; a.coded && d < a.k_width; d++)
        s = fmaf(q[d],
                 coded_value(a.coded, k - t % CUDA_PAGE_TOKENS, a.k_width, t % CUDA_PAGE_TOKENS, d, true), s);
    s *= a.scale;
    return a.cap > 0 ? a.cap * tanhf(s / a.cap) : s;
}

/* Adds the segment's tokens [from, to), whose weights are p, to acc; returns the weights' sum. */
template <class Pages>
DEVICE float add_values(const query &a, const Pages &pages, const float *p, uint32_t from, uint32_t to,
                        float acc[DIMS])
{
    float sum = 0;
    for (uint32_t t = from; t < to; t++) {
        const float *page = pages(t / CUDA_PAGE_TOKENS);
        uint32_t at = t % CUDA_PAGE_TOKENS;
        float e = p[t % SEGMENT];
        sum += e;
#pragma unroll
        for (uint32_t i = 0; i < DIMS; i++) {
            uint32_t d = threadIdx.x + i * SEGMENT;
            if (d < a.v_width)
                acc[i] = fmaf(e,
                              a.coded    ? coded_value(a.coded, page + a.v_at, a.v_width, at, d, false)
                              : a.v_in_k ? page[(uint64_t)d * CUDA_PAGE_TOKENS + at]
                                         : page[a.v_at + (uint64_t)at * a.v_width + d],
                              acc[i]);
        }
    }
    return sum;
}

template <class Pages> DEVICE void attend(const query &a, const Pages &pages)
{
    __shared__ float q[HEAD_MAX], p[SEGMENT];
    float out[DIMS], max = 0, sum = 0;
    for (uint32_t d = threadIdx.x; d < a.k_width; d += SEGMENT)
        q[d] = a.q[d];
    for (uint32_t i = 0; i < DIMS; i++)
        out[i] = 0;
    __syncthreads();
    for (uint32_t begin = a.first / SEGMENT * SEGMENT; begin < a.end; begin += SEGMENT) {
        uint32_t from = begin > a.first ? begin : a.first, to = min(begin + SEGMENT, a.end);
        uint32_t t = begin + threadIdx.x;
        bool seen = t >= from && t<to, joins = begin> a.first;
        float s = seen ? score(a, pages, q, t) : -INFINITY, segment_max = block_max(s);
        p[threadIdx.x] = seen ? expf(s - segment_max) : 0;
        __syncthreads();
        float acc[DIMS];
        for (uint32_t i = 0; i < DIMS; i++)
            acc[i] = 0;
        float segment_sum = add_values(a, pages, p, from, to, acc);
        float larger = joins ? fmaxf(max, segment_max) : segment_max;
        float keep = joins ? expf(max - larger) : 0, add = expf(segment_max - larger);
        for (uint32_t i = 0; i < DIMS; i++)
            out[i] = joins ? fmaf(out[i], keep, acc[i] * add) : acc[i] * add;
        sum = joins ? fmaf(sum, keep, segment_sum * add) : segment_sum * add;
        max = larger;
        __syncthreads();
    }
    float keep = 1;
    if (a.sink) {
        float larger = fmaxf(max, *a.sink);
        keep = expf(max - larger);
        sum = fmaf(sum, keep, expf(*a.sink - larger));
    }
#pragma unroll
    for (uint32_t i = 0; i < DIMS; i++) {
        uint32_t d = threadIdx.x + i * SEGMENT;
        if (d >= a.v_width)
            continue;
        float y = out[i] * keep / sum;
        a.out[d] = a.gate ? y / (1.0f + expf(-a.gate[d])) : y;
    }
}

/* The first token that a query at `position` sees, and the number of tokens before the first after it that
 * it does not see. */
DEVICE uint32_t first_seen(const cuda_attention &a, uint32_t position)
{
    if (a.mtp)
        return 1;
    return a.window > 0 && position >= a.window ? position + 1 - a.window : 0;
}
DEVICE uint32_t end_seen(const cuda_step &s, const cuda_attention &a, uint32_t t, uint32_t position,
                         uint32_t end)
{
    if (!a.both_ways)
        return s.ends && a.image_ends ? s.ends[t] : position + 1;
    return a.window > 0 && a.window < end - position ? position + a.window : end;
}

/* Block: a token, a head of queries. */
KERNEL plateau_attend(const cuda_step s, const cuda_attention a)
{
    grid_begin();
    uint32_t t = blockIdx.x, head = blockIdx.y;
    const cuda_seq &seq = seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    const float *q = row_of(a.qkv, t) + (uint64_t)head * a.q_stride;
    query of = {q,
                a.sinks ? a.sinks + head : NULL,
                a.gated ? q + a.kv.k_width : NULL,
                row_of(a.out, t) + (uint64_t)head * a.kv.v_width,
                first_seen(a, position),
                end_seen(s, a, t, position, seq.position + seq.count),
                a.kv.k_width,
                a.kv.v_width,
                a.kv.v_in_k,
                is_coded(a.kv) ? a.kv.form : 0,
                a.kv.k_bytes / sizeof(float),
                a.scale,
                a.cap};
    attend(of, pages_of_seq{s, seq, a.kv, head / (a.heads / a.kv.heads)});
}

/* Block: a patch, a head. */
KERNEL plateau_encode_attend(const cuda_encode a)
{
    grid_begin();
    uint32_t row = blockIdx.x, head = blockIdx.y;
    uint64_t half = (uint64_t)a.head_dim * CUDA_PAGE_TOKENS;
    uint32_t pages = (a.patches + CUDA_PAGE_TOKENS - 1) / CUDA_PAGE_TOKENS;
    query of = {row_of(a.x, row) + head * a.head_dim,
                NULL,
                NULL,
                row_of(a.y, row) + head * a.head_dim,
                patches_first(a, a.from + row),
                patches_end(a, a.from + row),
                a.head_dim,
                a.head_dim,
                0,
                0,
                half,
                a.scale,
                0};
    attend(of, pages_of_image{a.keys + (uint64_t)head * pages * 2 * half, 2 * half});
}
