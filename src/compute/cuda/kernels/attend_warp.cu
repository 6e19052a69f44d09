/* attend_warp.cu - attention of few tokens of a sequence where they are many blocks, with the arithmetic and
 * the bits of attend.cu: kernels/attend.cuh has it.
 *
 * A block's first warp has a token's heads that share keys, 8 of them at most, and all keys. With keys as the
 * rows of mma and heads as its columns it exchanges no scores with other warps, which norm and turn queries
 * before and put the values afterwards. Pages come by the bulk engine, one copy each. */
#include "compute/cuda/kernels/attend_few.cuh"
#include "compute/cuda/kernels/codes.cuh"

#define HEADS CUDA_WARP_HEADS
#define WARPS (CUDA_ATTEND_THREADS / 32)

/* Blocks on a multiprocessor; whether registers have room for joined segments. Code for newer chips takes
 * more registers, and older ones have shared memory for fewer blocks. */
#if __CUDA_ARCH__ == 900
#define BESIDE(d) ((d) == 256 ? 2 : 3)
#else
#define BESIDE(d) ((d) == 256 ? 1 : 2)
#endif
#if __CUDA_ARCH__ >= 1000
#define JOINS(d) ((d) < 256)
#else
#define JOINS(d) true
#endif

/* Pages that a block reads: those of its segments, two by two, each into the next of the stages. Of codes
 * whole pages come, of bf16 the values of its tokens alone. */
template <uint32_t D, bool CODES> struct stream {
    static constexpr uint32_t BYTES = CODES ? 2 * CODED_BYTES(D) : 4 * D * CUDA_PAGE_TOKENS;
    static constexpr uint32_t OF_SEGMENT = SEGMENT / CUDA_PAGE_TOKENS;
    const source &o;
    uint8_t *pages;           /* [stages] */
    uint64_t *full;           /* [stages]: a page is there */
    uint32_t stages;          /* 2 or more */
    uint32_t segment, stride; /* the first segment; from one to the next */
    uint32_t end;             /* pages from the first segment's begin on */
    uint32_t brought, stage;  /* the next one to come, and its stage */
    uint32_t index;           /* in memory, of the page of the lane in each 32 */

    __device__ __forceinline__ uint32_t token_of(uint32_t i) const
    {
        return (segment + i / OF_SEGMENT * stride) * SEGMENT + i % OF_SEGMENT * CUDA_PAGE_TOKENS;
    }
    /* The page's tokens before this one are to be read. */
    __device__ __forceinline__ uint32_t end_of(uint32_t token) const
    {
        return sees_page(o, token) ? min(token + CUDA_PAGE_TOKENS, o.seen.end) : token;
    }
    __device__ __forceinline__ void look_up(uint32_t first)
    {
        uint32_t token = token_of(first + threadIdx.x % 32);
        index =
            page_index(o.s, o.seq, o.a.kv, (sees_page(o, token) ? token : o.seen.first) / CUDA_PAGE_TOKENS);
    }
    __device__ __forceinline__ void begin(uint32_t first)
    {
        brought = first, stage = 0;
        look_up(first / 32 * 32);
#if BULK_COPIES
        if (threadIdx.x % 32 == 0) {
            for (uint32_t i = 0; i < stages; i++)
                barrier_init(&full[i], 1);
            barriers_made();
        }
        __syncwarp();
#endif
        for (uint32_t i = 0; i < stages; i++)
            bring();
    }
    __device__ __forceinline__ void bring()
    {
        uint32_t token = token_of(brought), rows = brought < end ? end_of(token) - token : 0;
        uint8_t *to = pages + stage * BYTES;
        const char *from =
            (const char *)page_of(o.s, o.a.kv, o.kv_head, __shfl_sync(0xffffffffu, index, brought % 32));
        uint32_t bytes = rows == 0 ? 0 : CODES ? BYTES : 2 * D * (CUDA_PAGE_TOKENS + rows);
#if BULK_COPIES
        if (brought < end && threadIdx.x % 32 == 0) {
            barrier_expect(&full[stage], bytes);
            if (bytes > 0)
                bulk_copy(to, from, bytes, &full[stage]);
        }
#else
        for (uint32_t i = threadIdx.x % 32 * 16; i < bytes; i += 512)
            copy16(to + i, from + i);
        copies_end();
#endif
        if (++brought % 32 == 0)
            look_up(brought);
        stage = stage + 1 == stages ? 0 : stage + 1;
    }
    /* Until the page in stage `at` is there; two of them after each other. */
    __device__ __forceinline__ void wait(uint32_t at, uint32_t phase) const
    {
#if BULK_COPIES
        barrier_wait_warp(&full[at], phase);
#else
        if (stages > 3)
            copies_wait<2>();
        else if (stages == 3)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncwarp();
#endif
    }
};

/* A warp's sums: of number 8 (2 m + i / 2) + lane / 4 of two heads o[m][i], heads 2 (lane % 4) + i % 2. */
template <uint32_t D, bool CODES> struct heads_of_warp {
    float o[D / 16][4], sum[4], max[2];
    uint32_t q[D / 16][2]; /* queries */
    uint32_t k_at[2], v_at[4];

    __device__ __forceinline__ void begin()
    {
        begin_rows(o, sum, max);
    }
    /* Where the lane has its rows of keys and values in a page. */
    __device__ __forceinline__ void find_rows()
    {
        uint32_t lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8, second = lane / 8 % 2;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            k_at[i] = row * 64 + ((2 * i + second) ^ (row / 2 % 4)) * 16;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            v_at[i] = 64 * D + row * 2 * D + ((2 * i + second) ^ (row % 8)) * 16;
    }
    __device__ __forceinline__ void load_queries(uint32_t at, uint32_t pitch)
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step += 2) {
            uint32_t b[4];
            load4(b, at + lane % 8 * pitch + lane / 8 * 16 + step * 32);
            q[step][0] = b[0], q[step][1] = b[1], q[step + 1][0] = b[2], q[step + 1][1] = b[3];
        }
    }
    /* A lane's 16 bytes of codes are two operands: of 16 keys each, or of 16 values of 16 keys each. */
    static __device__ __forceinline__ uint4 codes_at(uint32_t half, uint32_t step)
    {
        return read_piece(half + (step * 32 + threadIdx.x % 32) * 16);
    }
    /* The scale of the lane's key 8 n + lane / 4 of the block, of its operand. */
    static __device__ __forceinline__ float scale_at(const uint32_t halves[2], uint32_t n)
    {
        uint32_t at = halves[n / 4] + CODES_BYTES(D) + (n % 4 * 8 + threadIdx.x % 32 / 4) * 4;
        return __uint_as_float(read_word(at)) * CODE_UNIT;
    }
    /* s[i]: of 16 keys each. */
    __device__ __forceinline__ void score(float s[4][4], const uint32_t pages[2]) const
    {
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i += 2) {
                if (CODES) {
                    const uint4 c = codes_at(pages[i / 2], step);
                    const uint32_t low[4] = {first_codes(c.x), first_codes(c.y), second_codes(c.x),
                                             second_codes(c.y)};
                    const uint32_t high[4] = {first_codes(c.z), first_codes(c.w), second_codes(c.z),
                                              second_codes(c.w)};
                    mma(s[i], low, q[step][0], q[step][1]);
                    mma(s[i + 1], high, q[step][0], q[step][1]);
                    continue;
                }
#pragma unroll
                for (uint32_t j = i; j < i + 2; j++) {
                    uint32_t k[4];
                    load4_turned(k, pages[i / 2] + k_at[j % 2] + step * 1024);
                    mma(s[j], k, q[step][0], q[step][1]);
                }
            }
#pragma unroll
        for (uint32_t n = 0; CODES && n < 8; n++) {
            float scale = scale_at(pages, n);
            s[n / 2][n % 2 * 2] *= scale, s[n / 2][n % 2 * 2 + 1] *= scale;
        }
    }
    /* Scores become weights, as B operands: those of values have the values' scales. */
    __device__ __forceinline__ void weigh(float s[4][4], float c, const uint32_t pages[2], uint32_t p[4][2])
    {
        const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
        float less[2], factor[2];
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float x = -INFINITY;
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                x = fmaxf(x, fmaxf(s[i][h], s[i][h + 2]));
#pragma unroll
            for (uint32_t by = 4; by < 32; by *= 2)
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
            float larger = fmaxf(max[h], x), known = larger == -INFINITY ? 0 : larger;
            less[h] = -(known * c);
            factor[h] = max[h] == larger ? 1 : weight_of(max[h], c, less[h]);
            max[h] = larger;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
#pragma unroll
                for (uint32_t h = 0; h < 2; h++)
                    s[i][2 * half + h] = weight_of(s[i][2 * half + h], c, less[h]);
                p[i][half] = turn8(bf16_pair(s[i][2 * half], s[i][2 * half + 1]));
            }
        /* Most blocks bring no larger score. */
        if (__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                sum[i] *= factor[i % 2];
#pragma unroll
                for (uint32_t m = 0; m < D / 16; m++)
                    o[m][i] *= factor[i % 2];
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            mma(sum, ones, p[i][0], p[i][1]);
        if (!CODES)
            return;
        const uint32_t values[2] = {pages[0] + CODED_BYTES(D), pages[1] + CODED_BYTES(D)};
#pragma unroll
        for (uint32_t n = 0; n < 8; n++) {
            float scale = scale_at(values, n), *w = &s[n / 2][n % 2 * 2];
            p[n / 2][n % 2] = turn8(bf16_pair(scaled_weight(w[0], scale), scaled_weight(w[1], scale)));
        }
    }
    /* 32 keys of a page. */
    __device__ __forceinline__ void add_values(const uint32_t p[2][2], uint32_t page)
    {
#pragma unroll
        for (uint32_t m = 0; CODES && m < D / 16; m++) {
            const uint4 c = codes_at(page + CODED_BYTES(D), m);
            const uint32_t low[4] = {first_codes(c.x), second_codes(c.x), first_codes(c.y),
                                     second_codes(c.y)};
            const uint32_t high[4] = {first_codes(c.z), second_codes(c.z), first_codes(c.w),
                                      second_codes(c.w)};
            mma(o[m], low, p[0][0], p[0][1]);
            mma(o[m], high, p[1][0], p[1][1]);
        }
#pragma unroll
        for (uint32_t step = 0; !CODES && step < 2; step++) {
#pragma unroll
            for (uint32_t m = 0; m < D / 16; m++) {
                uint32_t v[4];
                load4_turned(v, page + v_at[m % 4] + m / 4 * 128 + step * 32 * D);
                mma(o[m], v, p[step][0], p[step][1]);
            }
        }
    }
    /* Which of the head's numbers o[m][i] is. */
    __device__ __forceinline__ uint32_t number(uint32_t m, uint32_t i) const
    {
        return m * 16 + i / 2 * 8 + threadIdx.x % 32 / 4;
    }
};

/* The newest token's key and value, as a page has them. */
template <uint32_t D, bool CODES> struct newest_token {
    uint16_t rows[2][CODES ? D / 2 : D]; /* codes: half words */
    float scales[2];

    /* Takes the key, or the value, by one warp. */
    __device__ __forceinline__ void take(const token_items<D, WARPS> &token, const float x[D / 32],
                                         bool is_key)
    {
        uint16_t *row = rows[is_key ? 0 : 1];
        if (!CODES) {
            token.put(x, is_key);
            token.put_row(x, shared_at(row));
            return;
        }
        coded_lanes<D> codes;
        codes.take(x);
        codes.put(token.page_half(is_key), token.position % CUDA_PAGE_TOKENS, is_key);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t d = threadIdx.x % 32 + 32 * j;
            if (d % 16 < 8)
                row[d / 16 * 8 + d % 8] = (uint16_t)codes.codes[j];
        }
        if (threadIdx.x % 32 == 0)
            scales[is_key ? 0 : 1] = codes.by.scale;
    }
    /* Puts both to a page in shared memory, by one warp. */
    __device__ __forceinline__ void put(uint8_t *page, uint32_t at) const
    {
        uint16_t *keys = (uint16_t *)page, *values = keys + stream<D, CODES>::BYTES / 4;
        uint32_t lane = threadIdx.x % 32;
        for (uint32_t i = lane; i < sizeof(rows[0]) / 2; i += 32) {
            uint32_t d = CODES ? i / 8 * 16 + i % 8 : i;
            keys[CODES ? key_codes_at(d, at) : key_in_page(d, at)] = rows[0][i];
            values[CODES ? value_codes_at(d, at) : value_in_page(D, at, d)] = rows[1][i];
        }
        if (CODES && lane < 2)
            ((float *)(page + lane * CODED_BYTES(D)))[CODES_BYTES(D) / 4 + at] = scales[lane];
    }
};

/* Values of bf16 that the query does not see become zeros, so that no weight 0 meets what is not a number;
 * codes are numbers. The newest token's key and value go to their place. */
template <uint32_t D, bool CODES>
DEVICE void finish_page(uint8_t *page, uint32_t token, range seen, uint32_t position,
                        const newest_token<D, CODES> *newest)
{
    uint32_t lane = threadIdx.x % 32, end = token + CUDA_PAGE_TOKENS;
    uint32_t from = min(max(seen.first, token), end) - token, to = min(max(seen.end, token), end) - token;
    uint4 *values = (uint4 *)(page + 64 * D);
    for (uint32_t i = lane; !CODES && i < CUDA_PAGE_TOKENS * D / 8; i += 32)
        if (i < from * D / 8 || i >= to * D / 8)
            values[i] = {0, 0, 0, 0};
    __syncwarp();
    if (newest && position / CUDA_PAGE_TOKENS == token / CUDA_PAGE_TOKENS)
        newest->put(page, position % CUDA_PAGE_TOKENS);
    shared_written();
    __syncwarp();
}

/* A warp's two heads of a segment to where the last block finds them. */
template <uint32_t D, bool CODES>
DEVICE void put_heads(const heads_of_warp<D, CODES> &m, const cuda_attention &a, const cuda_split &p,
                      uint32_t t, uint32_t first_head, uint32_t heads, uint32_t segment)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t head = threadIdx.x % 4 * 2 + h;
        if (head >= heads)
            continue;
        float *part = part_of(p, a, t, first_head + head, segment);
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++)
            part[m.number(n / 2, n % 2 * 2)] = m.o[n / 2][n % 2 * 2 + h];
        if (threadIdx.x % 32 / 4 == 0)
            *(float2 *)(part + D) = {m.max[h] * unit_of(a), m.sum[h]};
    }
}

/* Block: a token, and 8 heads that share keys; of its segments every gridDim.z-th. With `append` each
 * sequence has one token in the step. Its earlier tokens lie in the pages when the step begins, and are read
 * before the kernels in front have ended. */
template <uint32_t D, bool CODES>
DEVICE void attend_warp(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    using pages = stream<D, CODES>;
    constexpr uint32_t Q_PITCH = 2 * D + 16;
    __shared__ uint64_t there, full[CUDA_WARP_STAGES_MAX];
    __shared__ newest_token<D, CODES> newest_of;
    /* Blocks of a token are near each other in time, as its pages are in memory. */
    uint32_t id = blockIdx.y * gridDim.x + blockIdx.x, t = p.first + id / gridDim.y, warp = threadIdx.x / 32;
    uint32_t group = a.heads / a.kv.heads, pieces = (group + HEADS - 1) / HEADS;
    uint32_t kv_head = id % gridDim.y / pieces,
             first_head = kv_head * group + id % gridDim.y % pieces * HEADS;
    uint32_t heads = min(HEADS, (kv_head + 1) * group - first_head);
    uint8_t *q = shared + p.stages * pages::BYTES;
    float *rows =
        (float *)(q + HEADS * Q_PITCH); /* [heads][D] at the end, then what each is multiplied with */
    grid_next();
    if (!p.append)
        grid_wait();
    const cuda_seq &seq = p.append ? s.seq[t] : seq_of(s, t);
    uint32_t position = seq.position + (t - seq.first);
    const range seen = seen_by(s, a, t, position);
    uint32_t first = seen.first / SEGMENT, count = (seen.end + SEGMENT - 1) / SEGMENT - first;
    if (blockIdx.z >= count)
        return;
    const uint32_t mine = first + blockIdx.z, shares = min(count, gridDim.z);
    const bool alone = JOINS(D) && shares == 1;
    const bool newest = p.append && (count - 1) % gridDim.z == blockIdx.z;
    const uint32_t items = heads + (newest ? 2 : 0);
    const source from = {s, a, seq, kv_head, {seen.first, p.append ? position : seen.end}};
    const token_items<D, WARPS> token = {s,     a,     seq,           t,    position, kv_head, first_head,
                                         heads, items, p.append != 0, rows, &there};
    const uint32_t last = (count - 1 - blockIdx.z) / gridDim.z; /* the block's last segment */
    const uint32_t begin = blockIdx.z == 0 ? seen.first % SEGMENT / BLOCK_KEYS * 2 : 0;
    const uint32_t blocks_end = (min((mine + last * gridDim.z + 1) * SEGMENT, seen.end) -
                                 (mine + last * gridDim.z) * SEGMENT + BLOCK_KEYS - 1) /
                                BLOCK_KEYS;
    pages from_pages = {
        from, shared, full, p.stages, mine, gridDim.z, last * pages::OF_SEGMENT + 2 * blocks_end};
    float x[D / 32], w[D / 32];
    token.prepare();
    token.load_norm(w, warp);
    if (warp == 0)
        from_pages.begin(begin);
    for (uint32_t i = heads + warp; i < HEADS; i += WARPS)
        put_zeros<D>(shared_at(q) + i * Q_PITCH);
    if (p.append) {
        __syncthreads();
        grid_wait();
    }
    token.bring();
#pragma unroll 1
    for (uint32_t item = warp; item < items; item += WARPS) {
        token.take(x, w, item);
        if (item < heads) {
            token.put_query(shared_at(q) + item * Q_PITCH, x);
        } else {
            newest_of.take(token, x, item == heads);
        }
        token.load_norm(w, item + WARPS);
    }
    __syncthreads();
    if (warp == 0) {
        const float c = unit_of(a) * 1.44269504088896341f;
        heads_of_warp<D, CODES> m;
        float joined[D / 16][4];
        total all[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
        uint32_t stage = 0, phase = 0;
        m.find_rows();
        m.load_queries(shared_at(q), Q_PITCH);
#pragma unroll 1
        for (uint32_t i = begin; i < from_pages.end; i += 2) {
            uint32_t key = from_pages.token_of(i), page_at[2], p_of[4][2];
            float scores[4][4] = {};
            if (i == begin || i % pages::OF_SEGMENT == 0)
                m.begin();
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint8_t *page = shared + stage * pages::BYTES;
                uint32_t at = key + half * CUDA_PAGE_TOKENS;
                from_pages.wait(stage, phase);
                page_at[half] = shared_at(page);
                if (at < seen.first || at + CUDA_PAGE_TOKENS > from.seen.end)
                    finish_page<D, CODES>(page, at, from.seen, position, newest ? &newest_of : NULL);
                stage++;
                if (stage == p.stages)
                    stage = 0, phase ^= 1;
            }
            m.score(scores, page_at);
            if (a.cap > 0) {
#pragma unroll
                for (uint32_t n = 0; n < 16; n++)
                    scores[n / 4][n % 4] = a.cap * tanhf(scores[n / 4][n % 4] * a.scale / a.cap);
            }
            if (key < seen.first || key + BLOCK_KEYS > seen.end) {
#pragma unroll
                for (uint32_t n = 0; n < 16; n++) {
                    uint32_t at = key + n / 2 * 8 + threadIdx.x % 32 / 4;
                    if (at < seen.first || at >= seen.end)
                        scores[n / 4][n % 4] = -INFINITY;
                }
            }
            m.weigh(scores, c, page_at, p_of);
#pragma unroll
            for (uint32_t half = 0; half < 2; half++)
                m.add_values(p_of + 2 * half, page_at[half]);
            __syncwarp();
            from_pages.bring();
            from_pages.bring();
            if (i % pages::OF_SEGMENT != pages::OF_SEGMENT - 2 && i + 2 < from_pages.end)
                continue;
            uint32_t segment = key / SEGMENT;
            if (!alone) {
                put_heads<D, CODES>(m, a, p, t, first_head, heads, segment - first);
                continue;
            }
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                bool joins = segment > first;
                factors f = join(all[h], joins, m.max[h] * unit_of(a), m.sum[h]);
#pragma unroll
                for (uint32_t n = 0; n < D / 8; n++) {
                    float *to = &joined[n / 2][n % 2 * 2 + h], add = m.o[n / 2][n % 2 * 2 + h] * f.add;
                    *to = joins ? fmaf(*to, f.keep, add) : add;
                }
            }
        }
        if (alone) {
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                uint32_t head = threadIdx.x % 4 * 2 + h;
                if (head >= heads)
                    continue;
#pragma unroll
                for (uint32_t n = 0; n < D / 8; n++)
                    rows[head * D + m.number(n / 2, n % 2 * 2)] = joined[n / 2][n % 2 * 2 + h];
                float keep = add_sink(a, first_head + head, all[h]);
                if (threadIdx.x % 32 / 4 == 0) {
                    rows[heads * D + 2 * head] = keep;
                    rows[heads * D + 2 * head + 1] = all[h].sum;
                }
            }
        }
    }
    if (alone) {
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < heads * D; i += 32 * WARPS) {
            const float *by = rows + heads * D + i / D * 2;
            put_value(a, t, first_head + i / D, i % D, rows[i], by[0], by[1]);
        }
        return;
    }
    if (!ends_last(p.ended + id, shares))
        return;
    for (uint32_t i = warp; i < heads * (D / 32); i += WARPS)
        join_parts(a, p, seen, t, first_head + i / (D / 32), i % (D / 32) * 32 + threadIdx.x % 32);
}

#define WARP(name, d, codes, bytes)                                                                          \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BESIDE(d))                                      \
        plateau_attend_##name##d(const cuda_step s, const cuda_attention a, const cuda_split p)              \
    {                                                                                                        \
        attend_warp<d, codes>(s, a, p);                                                                      \
    }                                                                                                        \
    static_assert(stream<d, codes>::BYTES == (bytes), "the host asks for it");
WARP(warp, 64, false, CUDA_WARP_PAGE(64))
WARP(warp, 128, false, CUDA_WARP_PAGE(128))
WARP(warp, 256, false, CUDA_WARP_PAGE(256))
WARP(warp_codes, 64, true, CUDA_CODED_PAGE(64))
WARP(warp_codes, 128, true, CUDA_CODED_PAGE(128))
WARP(warp_codes, 256, true, CUDA_CODED_PAGE(256))
