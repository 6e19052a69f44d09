/* attend_warp.cu - attention of few tokens of a sequence where they are many blocks, with the arithmetic and
 * the bits of attend.cu: kernels/attend.cuh has it.
 *
 * A block has a token's heads that share keys, 8 of them at most, and all keys. Keys are the rows of mma,
 * heads its columns. With bf16 the first warp takes all keys and exchanges no scores. With codes all warps
 * share 64 keys, and then the values' numbers. All warps norm and turn queries before, and put the values
 * afterwards. Pages come by the bulk engine, one copy each. */
#include "compute/cuda/kernels/attend_few.cuh"
#include "compute/cuda/kernels/codes.cuh"

#define HEADS CUDA_WARP_HEADS
#define WARPS (CUDA_ATTEND_THREADS / 32)
/* Warps that share a block's keys: codes take more instructions than one warp has time for. */
#define WORKERS(codes) ((codes) ? WARPS : 1)

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
template <uint32_t D, uint32_t CODES> struct stream {
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

/* Values that the workers of a block exchange: largest scores of heads; weights as B operands of each page,
 * without and with the values' scales. */
struct workers_exchange {
    float2 largest[WARPS][4];
    uint4 weights[2][32], scaled[2][32];
};

/* Sums of one of W warps that share a block's keys, and then the values' numbers. o[m][i] has number
 * 8 (2 m + i / 2) + lane / 4 of the warp's numbers, of head 2 (lane % 4) + i % 2. */
template <uint32_t D, uint32_t CODES> struct heads_of_warp {
    static constexpr uint32_t W = WORKERS(CODES);
    static constexpr uint32_t TILES = 4 / W, PIECES = D / 16 / W; /* 16 keys, and 16 numbers, each */
    float o[PIECES][4], sum[4], max[2];                           /* sum: in warp 0 */
    uint32_t q[D / 16][2];                                        /* queries */
    uint32_t k_at[2], v_at[4], warp;
    workers_exchange *others;

    __device__ __forceinline__ void begin()
    {
        begin_rows(o, sum, max);
    }
    static __device__ __forceinline__ void meet()
    {
        if (W > 1)
            meet_at<32 * W>(1);
    }
    __device__ __forceinline__ uint32_t page_of_tile(const uint32_t pages[2], uint32_t i) const
    {
        return W == 1 ? pages[i / 2] : warp * TILES / 2 == 0 ? pages[0] : pages[1];
    }
    /* Where the lane has its rows of keys and values in a page. */
    __device__ __forceinline__ void find_rows()
    {
        uint32_t lane = threadIdx.x % 32, row = lane / 16 * 8 + lane % 8, second = lane / 8 % 2;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            k_at[i] = CODES ? ((warp * TILES + i) % 2 * 32 + lane) * 16
                            : row * 64 + ((2 * ((warp * TILES + i) % 2) + second) ^ (row / 2 % 4)) * 16;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t m = warp * PIECES + i;
            v_at[i] = 64 * D + row * 2 * D + m / 4 * 128 + ((2 * (m % 4) + second) ^ (row % 8)) * 16;
        }
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
    /* The scale of the lane's key 8 n + lane / 4 among those of the warp, of its operand. */
    __device__ __forceinline__ float scale_at(const uint32_t halves[2], uint32_t n) const
    {
        uint32_t at = page_of_tile(halves, n / 2) + CODES_BYTES(D);
        at += ((warp * TILES * 2 + n) % 4 * 8 + threadIdx.x % 32 / 4) * 4;
        return __uint_as_float(read_word(at)) * CODE_UNIT;
    }
    /* s[i]: of 16 keys each. */
    __device__ __forceinline__ void score(float s[TILES][4], const uint32_t pages[2]) const
    {
#pragma unroll
        for (uint32_t step = 0; step < D / 16; step += 2)
#pragma unroll
            for (uint32_t i = 0; i < TILES; i++) {
                const uint32_t page = page_of_tile(pages, i);
                if (CODES) {
                    const uint4 c = read_piece(page + k_at[i % 2] + step * 512);
                    const uint32_t low[4] = {first_codes<CODES>(c.x), first_codes<CODES>(c.y),
                                             second_codes<CODES>(c.x), second_codes<CODES>(c.y)};
                    const uint32_t high[4] = {first_codes<CODES>(c.z), first_codes<CODES>(c.w),
                                              second_codes<CODES>(c.z), second_codes<CODES>(c.w)};
                    mma(s[i], low, q[step][0], q[step][1]);
                    mma(s[i], high, q[step + 1][0], q[step + 1][1]);
                }
#pragma unroll
                for (uint32_t j = step; !CODES && j < step + 2; j++) {
                    uint32_t k[4];
                    load4_turned(k, page + k_at[i % 2] + j * 1024);
                    mma(s[i], k, q[j][0], q[j][1]);
                }
            }
#pragma unroll
        for (uint32_t n = 0; CODES && n < 2 * TILES; n++) {
            float scale = scale_at(pages, n);
            s[n / 2][n % 2 * 2] *= scale, s[n / 2][n % 2 * 2 + 1] *= scale;
        }
    }
    /* The heads' largest scores among the block's keys. */
    __device__ __forceinline__ void find_largest(const float s[TILES][4], float largest[2]) const
    {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float x = -INFINITY;
#pragma unroll
            for (uint32_t i = 0; i < TILES; i++)
                x = fmaxf(x, fmaxf(s[i][h], s[i][h + 2]));
#pragma unroll
            for (uint32_t by = 4; by < 32; by *= 2)
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
            largest[h] = x;
        }
        if (W == 1)
            return;
        if (lane < 4)
            others->largest[warp][lane] = {largest[0], largest[1]};
        meet();
#pragma unroll
        for (uint32_t w = 0; w < W; w++) {
            float2 x = others->largest[w][lane % 4];
            largest[0] = fmaxf(largest[0], x.x), largest[1] = fmaxf(largest[1], x.y);
        }
    }
    /* The warp's weights become B operands: p[i][half] of its tile i. */
    static __device__ __forceinline__ void turn_weights(const float s[TILES][4], uint32_t p[TILES][2])
    {
#pragma unroll
        for (uint32_t i = 0; i < TILES; i++)
#pragma unroll
            for (uint32_t half = 0; half < 2; half++)
                p[i][half] = turn8(bf16_pair(s[i][2 * half], s[i][2 * half + 1]));
    }
    __device__ __forceinline__ void share(const uint32_t p[TILES][2], uint4 to[2][32]) const
    {
#pragma unroll
        for (uint32_t i = 0; i < TILES; i++) {
            uint32_t tile = warp * TILES + i;
            *((uint2 *)&to[tile / 2][threadIdx.x % 32] + tile % 2) = {p[i][0], p[i][1]};
        }
    }
    static __device__ __forceinline__ void read_shared(const uint4 from[2][32], uint32_t p[4][2])
    {
#pragma unroll
        for (uint32_t page = 0; page < 2; page++) {
            uint4 x = from[page][threadIdx.x % 32];
            p[2 * page][0] = x.x, p[2 * page][1] = x.y, p[2 * page + 1][0] = x.z, p[2 * page + 1][1] = x.w;
        }
    }
    __device__ __forceinline__ void add_weights(const uint32_t p[4][2])
    {
        const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            mma(sum, ones, p[i][0], p[i][1]);
    }
    __device__ __forceinline__ void scale_sums(const float factor[2])
    {
        /* Most blocks bring no larger score. */
        if (!__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1))
            return;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            sum[i] *= factor[i % 2];
#pragma unroll
            for (uint32_t m = 0; m < PIECES; m++)
                o[m][i] *= factor[i % 2];
        }
    }
    /* Scores become weights, as B operands: those of values have the values' scales. */
    __device__ __forceinline__ void weigh(float s[TILES][4], float c, const uint32_t pages[2],
                                          uint32_t p[4][2])
    {
        float less[2], factor[2];
        uint32_t mine[TILES][2];
        find_largest(s, less);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            float larger = fmaxf(max[h], less[h]), known = larger == -INFINITY ? 0 : larger;
            less[h] = -(known * c);
            factor[h] = max[h] == larger ? 1 : weight_of(max[h], c, less[h]);
            max[h] = larger;
        }
#pragma unroll
        for (uint32_t i = 0; i < TILES; i++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                s[i][j] = weight_of(s[i][j], c, less[j % 2]);
        turn_weights(s, mine);
        if (!CODES) {
            scale_sums(factor);
#pragma unroll
            for (uint32_t i = 0; i < TILES; i++)
                p[i][0] = mine[i][0], p[i][1] = mine[i][1];
            add_weights(p);
            return;
        }
        share(mine, others->weights);
        const uint32_t values[2] = {pages[0] + CODED_BYTES(D), pages[1] + CODED_BYTES(D)};
#pragma unroll
        for (uint32_t n = 0; n < 2 * TILES; n++) {
            float scale = scale_at(values, n), *w = &s[n / 2][n % 2 * 2];
            w[0] = scaled_weight(w[0], scale), w[1] = scaled_weight(w[1], scale);
        }
        turn_weights(s, mine);
        share(mine, others->scaled);
        scale_sums(factor);
        meet();
        if (warp == 0) {
            read_shared(others->weights, p);
            add_weights(p);
        }
        read_shared(others->scaled, p);
    }
    /* 32 keys of a page. */
    __device__ __forceinline__ void add_values(const uint32_t p[2][2], uint32_t page)
    {
        const uint32_t codes = page + CODED_BYTES(D) + (warp * PIECES * 32 + threadIdx.x % 32) * 16;
#pragma unroll
        for (uint32_t m = 0; CODES && m < PIECES; m++) {
            const uint4 c = read_piece(codes + m * 512);
            const uint32_t low[4] = {first_codes<CODES>(c.x), second_codes<CODES>(c.x),
                                     first_codes<CODES>(c.y), second_codes<CODES>(c.y)};
            const uint32_t high[4] = {first_codes<CODES>(c.z), second_codes<CODES>(c.z),
                                      first_codes<CODES>(c.w), second_codes<CODES>(c.w)};
            mma(o[m], low, p[0][0], p[0][1]);
            mma(o[m], high, p[1][0], p[1][1]);
        }
#pragma unroll
        for (uint32_t step = 0; !CODES && step < 2; step++) {
#pragma unroll
            for (uint32_t m = 0; m < PIECES; m++) {
                uint32_t v[4];
                load4_turned(v, page + v_at[m % 4] + m / 4 * 128 + step * 32 * D);
                mma(o[m], v, p[step][0], p[step][1]);
            }
        }
    }
    /* Which of the head's numbers o[m][i] is. */
    __device__ __forceinline__ uint32_t number(uint32_t m, uint32_t i) const
    {
        return (warp * PIECES + m) * 16 + i / 2 * 8 + threadIdx.x % 32 / 4;
    }
};

/* The newest token's key and value, as a page has them. */
template <uint32_t D, uint32_t CODES> struct newest_token {
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
        codes.take(CODES, x);
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
template <uint32_t D, uint32_t CODES>
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
template <uint32_t D, uint32_t CODES>
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
        for (uint32_t n = 0; n < 2 * m.PIECES; n++)
            part[m.number(n / 2, n % 2 * 2)] = m.o[n / 2][n % 2 * 2 + h];
        if (m.warp == 0 && threadIdx.x % 32 / 4 == 0)
            *(float2 *)(part + D) = {m.max[h] * unit_of(a), m.sum[h]};
    }
}

/* Block: a token, and 8 heads that share keys; of its segments every gridDim.z-th. With `append` each
 * sequence has one token in the step. Its earlier tokens lie in the pages when the step begins, and are read
 * before the kernels in front have ended. */
template <uint32_t D, uint32_t CODES>
DEVICE void attend_warp(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(128) uint8_t shared[];
    using pages = stream<D, CODES>;
    constexpr uint32_t Q_PITCH = 2 * D + 16;
    __shared__ uint64_t there, full[CUDA_WARP_STAGES_MAX];
    __shared__ newest_token<D, CODES> newest_of;
    __shared__ workers_exchange others;
    constexpr uint32_t JOINED = D / 32 > 4 ? 4 : D / 32; /* values of a lane in join_parts() */
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
    if (warp < WORKERS(CODES)) {
        const float c = unit_of(a) * 1.44269504088896341f;
        heads_of_warp<D, CODES> m;
        float joined[m.PIECES][4];
        total all[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
        uint32_t stage = 0, phase = 0;
        m.warp = CODES ? warp : 0, m.others = &others;
        m.find_rows();
        m.load_queries(shared_at(q), Q_PITCH);
#pragma unroll 1
        for (uint32_t i = begin; i < from_pages.end; i += 2) {
            uint32_t key = from_pages.token_of(i), page_at[2], p_of[4][2];
            float scores[m.TILES][4] = {};
            if (i == begin || i % pages::OF_SEGMENT == 0)
                m.begin();
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint8_t *page = shared + stage * pages::BYTES;
                uint32_t at = key + half * CUDA_PAGE_TOKENS;
                if (BULK_COPIES || m.warp == 0)
                    from_pages.wait(stage, phase);
                page_at[half] = shared_at(page);
                bool whole = at >= seen.first && at + CUDA_PAGE_TOKENS <= from.seen.end;
                if (!whole && m.warp == 0)
                    finish_page<D, CODES>(page, at, from.seen, position, newest ? &newest_of : NULL);
                if (!whole || !BULK_COPIES)
                    m.meet();
                stage++;
                if (stage == p.stages)
                    stage = 0, phase ^= 1;
            }
            m.score(scores, page_at);
            if (a.cap > 0) {
#pragma unroll
                for (uint32_t n = 0; n < 4 * m.TILES; n++)
                    scores[n / 4][n % 4] = a.cap * tanhf(scores[n / 4][n % 4] * a.scale / a.cap);
            }
            if (key < seen.first || key + BLOCK_KEYS > seen.end) {
#pragma unroll
                for (uint32_t n = 0; n < 4 * m.TILES; n++) {
                    uint32_t at = key + m.warp * m.TILES * 16 + n / 2 * 8 + threadIdx.x % 32 / 4;
                    if (at < seen.first || at >= seen.end)
                        scores[n / 4][n % 4] = -INFINITY;
                }
            }
            m.weigh(scores, c, page_at, p_of);
#pragma unroll
            for (uint32_t half = 0; half < 2; half++)
                m.add_values(p_of + 2 * half, page_at[half]);
            __syncwarp();
            m.meet();
            if (m.warp == 0) {
                from_pages.bring();
                from_pages.bring();
            }
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
                for (uint32_t n = 0; n < 2 * m.PIECES; n++) {
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
                for (uint32_t n = 0; n < 2 * m.PIECES; n++)
                    rows[head * D + m.number(n / 2, n % 2 * 2)] = joined[n / 2][n % 2 * 2 + h];
                float keep = add_sink(a, first_head + head, all[h]);
                if (m.warp == 0 && threadIdx.x % 32 / 4 == 0) {
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
    for (uint32_t i = warp; i < heads * (D / 32 / JOINED); i += WARPS)
        join_parts<JOINED>(a, p, seen, t, first_head + i / (D / 32 / JOINED),
                           i % (D / 32 / JOINED) * 32 * JOINED + threadIdx.x % 32);
}

#define WARP(name, d, codes, beside, bytes)                                                                  \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, beside)                                         \
        plateau_attend_##name##d(const cuda_step s, const cuda_attention a, const cuda_split p)              \
    {                                                                                                        \
        attend_warp<d, codes>(s, a, p);                                                                      \
    }                                                                                                        \
    static_assert(stream<d, codes>::BYTES == (bytes), "the host asks for it");
WARP(warp, 64, 0, BESIDE(64), CUDA_WARP_PAGE(64))
WARP(warp, 128, 0, BESIDE(128), CUDA_WARP_PAGE(128))
WARP(warp, 256, 0, BESIDE(256), CUDA_WARP_PAGE(256))
WARP(warp_codes, 64, CUDA_KV_INT8, 4, CUDA_CODED_PAGE(64))
WARP(warp_codes, 128, CUDA_KV_INT8, 4, CUDA_CODED_PAGE(128))
WARP(warp_codes, 256, CUDA_KV_INT8, 2, CUDA_CODED_PAGE(256))
WARP(warp_floats, 64, CUDA_KV_FP8, 4, CUDA_CODED_PAGE(64))
WARP(warp_floats, 128, CUDA_KV_FP8, 4, CUDA_CODED_PAGE(128))
WARP(warp_floats, 256, CUDA_KV_FP8, 2, CUDA_CODED_PAGE(256))
