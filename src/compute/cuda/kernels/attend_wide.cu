/* attend_wide.cu - attention of many tokens by wgmma (sm_90a), for heads of 64 and 128 numbers, with the
 * arithmetic and the bits of attend.cu: kernels/attend.cuh has it.
 *
 * A block's four warps have 16 queries of each head that shares keys, or several times 16 queries. wgmma
 * takes their 64 rows at once. */
#include "compute/cuda/kernels/attend.cuh"

#if __CUDA_ARCH_FEAT_SM90_ALL

/* A block of 64 keys: K [D][64], then for each 64 numbers of the head V [64][64]. Rows have 128 bytes, whose
 * pieces of 16 change places by the row: those of V as in a page (value_in_page()). */
template <uint32_t D> struct tile {
    static constexpr uint32_t K = D * 128, BYTES = 2 * K;
    static __device__ __forceinline__ uint32_t at(uint32_t row, uint32_t piece)
    {
        return row * 128 + (piece ^ row % 8) * 16;
    }
    /* Pieces of 8 keys of a row of K, and of 8 numbers of a row of V. */
    static __device__ __forceinline__ uint32_t k_at(uint32_t d, uint32_t piece)
    {
        return at(d, piece);
    }
    static __device__ __forceinline__ uint32_t v_at(uint32_t key, uint32_t piece)
    {
        return K + piece / 8 * 8192 + at(key, piece % 8);
    }
};

/* Rows of 128 bytes, 8 after 1024. across: bytes from 64 columns to the next. */
DEVICE uint64_t operand_of(uint32_t at, uint32_t across)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(across >> 4) << 16 | (uint64_t)64 << 32 |
           (uint64_t)1 << 62;
}

#define OUT4(i)  "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define OUT16(i) OUT4(i), OUT4(i + 1), OUT4(i + 2), OUT4(i + 3)
#define NAMES32                                                                                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"     \
    "%27,%28,%29,%30,%31"
#define NAMES64                                                                                              \
    NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"              \
            "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* Scores of 64 keys: both operands are in shared memory, the keys' turned or not. */
template <int TURNED> DEVICE void multiply_keys(float (&c)[8][4], uint64_t q, uint64_t k)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32 "},%32,%33,1,1,1,0,%34;"
                 : OUT16(0), OUT16(4)
                 : "l"(q), "l"(k), "n"(TURNED));
}
/* The weights are in registers, the values turned or not. */
template <int TURNED> DEVICE void multiply_values(float (&c)[8][4], const uint32_t *p, uint64_t v)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32
                 "},{%32,%33,%34,%35},%36,1,1,1,%37;"
                 : OUT16(0), OUT16(4)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v), "n"(TURNED));
}
template <int TURNED> DEVICE void multiply_values(float (&c)[16][4], const uint32_t *p, uint64_t v)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64
                 "},{%64,%65,%66,%67},%68,1,1,1,%69;"
                 : OUT16(0), OUT16(4), OUT16(8), OUT16(12)
                 : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v), "n"(TURNED));
}
DEVICE void multiply_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* The products compute on until `multiply_wait()`. */
DEVICE void multiply_start()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
DEVICE void multiply_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* Where both pages of a block of keys lie. They are looked up a block ahead, which takes long. */
struct pages {
    const char *at[2]; /* NULL: no query looks there */
};

DEVICE pages find_pages(const source &o, const uint32_t *table, uint32_t begin)
{
    pages r;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t at = begin + half * CUDA_PAGE_TOKENS;
        bool some = at < o.seen.end && at + CUDA_PAGE_TOKENS > o.seen.first;
        const cuda_kv &kv = o.a.kv;
        r.at[half] = some ? o.s.pages[kv.group] +
                                (uint64_t)table[at / CUDA_PAGE_TOKENS] * o.s.page_bytes[kv.group] +
                                kv.offset + o.kv_head * kv.head_bytes
                          : NULL;
    }
    return r;
}

template <uint32_t D> DEVICE void bring_tile(uint32_t to, const source &o, const pages &p, uint32_t begin)
{
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t at = begin + half * CUDA_PAGE_TOKENS;
        bool some = p.at[half] != NULL;
        /* A page that is not read needs an address, too. */
        const char *k = some ? p.at[half] : o.s.pages[o.a.kv.group], *v = k + (some ? o.a.kv.k_bytes : 0);
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t i = threadIdx.x + j * 128;
            copy16_if(to + tile<D>::at(i / 4, half * 4 + (i % 4 ^ i / 8 % 4)), some ? k + i * 16 : k, some);
        }
#pragma unroll
        for (uint32_t j = 0; j < D / 32; j++) {
            uint32_t i = threadIdx.x + j * 128, key = i / (D / 8), piece = i % (D / 8), token = at + key;
            bool sees = some && token >= o.seen.first && token < o.seen.end;
            copy16_if(to + tile<D>::K + piece / 8 * 8192 + (half * CUDA_PAGE_TOKENS + key) * 128 +
                          piece % 8 * 16,
                      some ? v + i * 16 : v, sees);
        }
    }
}

/* Row `row` of the block's 64 becomes bf16; NULL: zeros. By one warp. */
template <uint32_t D> DEVICE void put_row(uint32_t to, uint32_t row, const float *q)
{
    for (uint32_t i = threadIdx.x % 32 * 2; i < D; i += 64) {
        uint32_t v = q ? bf16_pair(q[i], q[i + 1]) : 0;
        asm volatile(
            "st.shared.u32 [%0], %1;" ::"r"(to + i / 64 * 8192 + tile<D>::at(row, i % 64 / 8) + i % 8 * 2),
            "r"(v)
            : "memory");
    }
}

/* All blocks of keys in `share`, by all threads: unlike those of attend.cu, all warps take every block. */
template <uint32_t D, class Block>
DEVICE void walk_tiles(const source &o, range share, uint32_t stages_at, const Block &block)
{
    const uint32_t *table = o.s.tables + o.seq.pages[o.a.kv.group];
    uint32_t first = share.first / BLOCK_KEYS, count = (share.end + BLOCK_KEYS - 1) / BLOCK_KEYS - first;
    if (count == 0)
        return;
    bring_tile<D>(stages_at, o, find_pages(o, table, first * BLOCK_KEYS), first * BLOCK_KEYS);
    copies_end();
    pages next = find_pages(o, table, (first + 1) * BLOCK_KEYS);
    for (uint32_t i = 0; i < count; i++) {
        asm volatile("cp.async.wait_group 0;\n"
                     "fence.proxy.async.shared::cta;" ::
                         : "memory");
        __syncthreads(); /* and the other stage's readers are done */
        if (i + 1 < count) {
            bring_tile<D>(stages_at + (i + 1) % 2 * tile<D>::BYTES, o, next, (first + i + 1) * BLOCK_KEYS);
            next = find_pages(o, table, (first + i + 2) * BLOCK_KEYS);
        }
        copies_end();
        block(stages_at + i % 2 * tile<D>::BYTES, (first + i) * BLOCK_KEYS);
    }
    __syncthreads();
}

/* Walks blocks of keys in pages of codes, which come two blocks ahead. Codes become bf16 while products
 * compute: a block's values beside its scores, the next keys beside its values. A block has K [64][64] for
 * each 64 numbers of the head, then V [D][64]. Pieces of a row change places as in a tile. */
template <uint32_t D, uint32_t FORM> struct walk_wide {
    static constexpr uint32_t PAGE = CUDA_CODED_PAGE(D), PIECES = D / 32, GROUPS = D / 64;
    const source &o;
    uint32_t block;
    uint8_t *pages;  /* [2][2]: two blocks, two pages each */
    float *scales;   /* [2][BLOCK_KEYS], times CODE_UNIT: keys' and values' */
    uint64_t *full;  /* [2]: a block's pages are there */
    uint32_t &count; /* blocks so far, of all walks */

    __device__ __forceinline__ void bring(uint32_t begin, uint32_t n) const
    {
        if (threadIdx.x > 0)
            return;
        uint8_t *to = pages + n % 2 * 2 * PAGE;
        bool some[2];
        for (uint32_t half = 0; half < 2; half++)
            some[half] = sees_page(o, begin + half * CUDA_PAGE_TOKENS);
        barrier_expect(&full[n % 2], (some[0] + some[1]) * PAGE);
        for (uint32_t half = 0; half < 2; half++)
            if (some[half])
                bulk_copy(to + half * PAGE,
                          page_at(o.s, o.seq, o.a.kv, o.kv_head, begin / CUDA_PAGE_TOKENS + half), PAGE,
                          &full[n % 2]);
    }
    __device__ __forceinline__ void wait(uint32_t n) const
    {
        barrier_wait(&full[n % 2], n / 2 % 2);
    }
    /* The thread's 16 bytes j of a page's keys, or of its values. */
    __device__ __forceinline__ uint4 codes_of(uint32_t n, uint32_t j, uint32_t values) const
    {
        uint32_t from = shared_at(pages) + (n % 2 * 2 + j / GROUPS) * PAGE + values;
        return read_piece(from + j % GROUPS * 2048 + threadIdx.x * 16);
    }
    __device__ __forceinline__ void read_keys(uint32_t n) const
    {
        uint32_t warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4;
        uint32_t at = block + (warp % 2 * 16 + row) * 128 + threadIdx.x % 4 * 4;
#pragma unroll
        for (uint32_t j = 0; j < PIECES; j++) {
            const uint4 c = codes_of(n, j, 0);
            const uint32_t words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t to = at + j % GROUPS * 8192 + j / GROUPS * 4096 + i % 2 * 1024;
                put_word(to + ((warp / 2 * 4 + i / 2 * 2) ^ row) * 16, first_codes<FORM>(words[i]));
                put_word(to + ((warp / 2 * 4 + i / 2 * 2 + 1) ^ row) * 16, second_codes<FORM>(words[i]));
            }
        }
        uint32_t key = threadIdx.x % BLOCK_KEYS, half = n % 2 * 2 + key / CUDA_PAGE_TOKENS;
        uint32_t from = shared_at(pages) + half * PAGE + threadIdx.x / BLOCK_KEYS * CODED_BYTES(D);
        scales[threadIdx.x] =
            __uint_as_float(read_word(from + CODES_BYTES(D) + key % CUDA_PAGE_TOKENS * 4)) * CODE_UNIT;
    }
    __device__ __forceinline__ void read_values(uint32_t n) const
    {
        uint32_t warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4;
        uint32_t at = block + 128 * D + (warp * 16 + row) * 128 + threadIdx.x % 4 * 4;
#pragma unroll
        for (uint32_t j = 0; j < PIECES; j++) {
            const uint4 c = codes_of(n, j, CODED_BYTES(D));
            const uint32_t words[4] = {c.x, c.y, c.z, c.w};
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                uint32_t to = at + j % GROUPS * 8192 + ((j / GROUPS * 4 + i) ^ row) * 16;
                put_word(to, first_codes<FORM>(words[i]));
                put_word(to + 1024, second_codes<FORM>(words[i]));
            }
        }
    }
    /* add(begin, scores, values) adds a block of keys in [begin, end), by products of both. */
    template <class Add>
    __device__ __forceinline__ void go(uint32_t begin, uint32_t end, uint32_t q, team<D, 1> &m,
                                       const Add &add) const
    {
        begin = begin / BLOCK_KEYS * BLOCK_KEYS;
        if (begin >= end)
            return;
        bring(begin, count);
        if (begin + BLOCK_KEYS < end)
            bring(begin + BLOCK_KEYS, count + 1);
        wait(count);
        read_keys(count);
        for (; begin < end; begin += BLOCK_KEYS, count++) {
            const bool more = begin + BLOCK_KEYS < end;
            shared_written();
            __syncthreads(); /* keys are there, and readers of values are done */
            add(
                begin,
                [&](float(&scores)[8][4]) {
                    multiply_begin();
#pragma unroll
                    for (uint32_t step = 0; step < D / 16; step++)
                        multiply_keys<0>(scores, operand_of(q + step / 4 * 8192 + step % 4 * 32, 16),
                                         operand_of(block + step / 4 * 8192 + step % 4 * 32, 16));
                    multiply_start();
                    read_values(count);
                    multiply_wait();
                },
                [&](const uint32_t p[4][4]) {
                    if (more)
                        wait(count + 1);
                    shared_written();
                    __syncthreads(); /* values are there, and readers of keys are done */
                    if (begin + 2 * BLOCK_KEYS < end)
                        bring(begin + 2 * BLOCK_KEYS, count + 2);
                    multiply_begin();
#pragma unroll
                    for (uint32_t step = 0; step < 4; step++)
                        multiply_values<0>(m.o, p[step], operand_of(block + 128 * D + step * 32, 16));
                    multiply_start();
                    if (more)
                        read_keys(count + 1);
                    multiply_wait();
                });
        }
        __syncthreads();
    }
};

/* As `attend_many()` of attend.cu, but by wgmma. */
template <uint32_t D, uint32_t CODED>
DEVICE void attend_wide(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    uint32_t group = a.heads / a.kv.heads, heads = min(group, 4u), pieces = (group + heads - 1) / heads;
    uint32_t tiles = 4 / heads, kv_head = blockIdx.y / pieces, warp = threadIdx.x / 32;
    uint32_t head = blockIdx.y % pieces * heads + warp % heads, row = warp / heads * ROWS;
    uint32_t q = (shared_at(shared) + 1023) / 1024 * 1024, stages_at = q + 64 * 2 * D;
    bool works = head < group && warp < heads * tiles;
    team<D, 1> m;
    uint8_t *pages = shared + (stages_at - shared_at(shared)) + tile<D>::BYTES;
    float *scales = (float *)(pages + 4 * CUDA_CODED_PAGE(D));
    __shared__ uint64_t full[2];
    uint32_t blocks = 0;
    if (CODED && threadIdx.x == 0) {
        barrier_init(&full[0], 1);
        barrier_init(&full[1], 1);
        barriers_made();
    }
    __syncthreads();
    m.warp = 0, m.name = 0, m.others = NULL;
    head += kv_head * group;
    grid_begin();
    uint32_t columns = tiles * ROWS, begin_at = p.first + (gridDim.x - 1 - blockIdx.x) * columns;
    uint32_t end = min(p.first + p.tokens, begin_at + columns);
    for (uint32_t t = begin_at, count; t < end; t += count) {
        const cuda_seq &seq = seq_of(s, t);
        count = min(end, seq.first + seq.count) - t;
        uint32_t position = seq.position + (t - seq.first), my_rows = works && row < count ? count - row : 0;
        for (uint32_t i = 0; i < ROWS; i++)
            put_row<D>(q, warp * ROWS + i,
                       i < my_rows ? row_of(a.qkv, t + row + i) + (uint64_t)head * a.q_stride : NULL);
        const queries mine = queries_of(s, a, t + row, my_rows, head, position + row);
        const range all = seen_by_all(s, a, t, count, position), share = share_of(all);
        joined<D, 1> j;
        const source keys = {s, a, seq, kv_head, all};
        auto add = [&](uint32_t begin, const auto &scores, const auto &values) {
            if (begin % SEGMENT == 0 || begin <= share.first)
                m.begin();
            m.template add_block<CODED>(a, begin, mine.seen, scales, scores, values);
            if (begin % SEGMENT == SEGMENT - BLOCK_KEYS || begin + BLOCK_KEYS >= share.end)
                end_segment<D, 1>(j, m, a, p, mine, begin / SEGMENT * SEGMENT);
        };
        if (CODED) {
            const walk_wide<D, CODED> w = {keys, stages_at, pages, scales, full, blocks};
            w.go(share.first, share.end, q, m, add);
        } else {
            walk_tiles<D>(keys, share, stages_at, [&](uint32_t block, uint32_t begin) {
                add(
                    begin,
                    [&](float(&scores)[8][4]) {
                        multiply_begin();
#pragma unroll
                        for (uint32_t step = 0; step < D / 16; step++)
                            multiply_keys<1>(scores, operand_of(q + step / 4 * 8192 + step % 4 * 32, 16),
                                             operand_of(block + step * 2048, 16));
                        multiply_start();
                        multiply_wait();
                    },
                    [&](const uint32_t p[4][4]) {
                        multiply_begin();
#pragma unroll
                        for (uint32_t step = 0; step < 4; step++)
                            multiply_values<1>(m.o, p[step],
                                               operand_of(block + tile<D>::K + step * 2048, 8192));
                        multiply_start();
                        multiply_wait();
                    });
            });
        }
        if (!p.parts)
            put_joined<D, 1>(j, m, a, mine);
    }
}

#else
template <uint32_t D, uint32_t CODED>
DEVICE void attend_wide(const cuda_step &s, const cuda_attention &a, const cuda_split &p)
{
}
#endif

#define WIDE(name, d, coded)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                                        \
        plateau_attend_##name##d(const cuda_step s, const cuda_attention a, const cuda_split p)              \
    {                                                                                                        \
        attend_wide<d, coded>(s, a, p);                                                                      \
    }
WIDE(wide, 64, 0)
WIDE(wide, 128, 0)
WIDE(wide_codes, 64, CUDA_KV_INT8)
WIDE(wide_codes, 128, CUDA_KV_INT8)
WIDE(wide_floats, 64, CUDA_KV_FP8)
WIDE(wide_floats, 128, CUDA_KV_FP8)
