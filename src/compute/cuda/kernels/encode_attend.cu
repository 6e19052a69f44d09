/* encode_attend.cu - attention of a vision encoder on tensor cores: patches see all patches, or those of
 * their window.
 *
 * The arithmetic of a query and a head is that of a segment in kernels/attend.cuh, with all patches in one
 * segment, in blocks of 64 from patch 0 on. So it does not depend on the queries beside it. A warp has 16
 * queries, the block 128 of one head. Keys and values come in stages of 64 patches, which all warps read. */
#include "compute/cuda/kernels/attend.cuh"
#include "compute/cuda/kernels/window.cuh"

/* D: values of a head in memory, with zeros past head_dim. */
template <uint32_t D> struct stage {
    static constexpr uint32_t PITCH = CUDA_ENCODE_PITCH(D), V = BLOCK_KEYS * PITCH, BYTES = 2 * V;
    static constexpr uint32_t COUNT = CUDA_ENCODE_STAGES(D);
};

/* The block of keys that begins at patch `begin`; zeros past the last one. By all threads. */
template <uint32_t D> DEVICE void bring_patches(uint32_t to, const cuda_encode &a, uint32_t begin)
{
    const uint16_t *k = a.heads_at + (uint64_t)blockIdx.y * 2 * a.key_rows * D;
    const uint16_t *v = k + (uint64_t)a.key_rows * D;
#pragma unroll
    for (uint32_t i = threadIdx.x; i < BLOCK_KEYS * D / 8; i += CUDA_ENCODE_THREADS) {
        uint32_t key = i / (D / 8), piece = i % (D / 8);
        bool some = begin + key < a.patches;
        uint64_t at = some ? (uint64_t)(begin + key) * D + piece * 8 : 0;
        uint32_t there = to + key * stage<D>::PITCH + piece * 16;
        copy16_if(there, k + at, some);
        copy16_if(there + stage<D>::V, v + at, some);
    }
}

/* The warp's queries as A operands. */
template <uint32_t D> DEVICE void take_queries(uint32_t q[D / 16][4], const cuda_encode &a, uint32_t row)
{
    uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t step = 0; step < D / 16; step++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t mine = row + lane / 4 + i % 2 * 8, d = step * 16 + lane % 4 * 2 + i / 2 * 8;
            const float *from = row_of(a.x, mine) + blockIdx.y * a.head_dim + d;
            q[step][i] = mine < a.count && d < a.head_dim ? bf16_pair(from[0], from[1]) : 0;
        }
    }
}

/* Scores of the block's keys: matrices of 8 keys x 8 numbers. */
template <uint32_t D>
DEVICE void score_patches(float s[BLOCK_KEYS / 8][4], const uint32_t q[D / 16][4], uint32_t block)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t at = block + (lane / 16 * 8 + lane % 8) * stage<D>::PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (uint32_t step = 0; step < D / 16; step++) {
#pragma unroll
        for (uint32_t n = 0; n < BLOCK_KEYS / 8; n += 2) {
            uint32_t b[4];
            load4(b, at + n * 8 * stage<D>::PITCH + step * 32);
            mma(s[n], q[step], b[0], b[1]);
            mma(s[n + 1], q[step], b[2], b[3]);
        }
    }
}

template <uint32_t D> DEVICE void add_patches(float o[D / 8][4], const uint32_t p[4][4], uint32_t block)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t at = block + stage<D>::V + lane % 16 * stage<D>::PITCH + lane / 16 * 16;
#pragma unroll
    for (uint32_t step = 0; step < BLOCK_KEYS / 16; step++) {
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            load4_turned(b, at + step * 16 * stage<D>::PITCH + n * 16);
            mma(o[n], p[step], b[0], b[1]);
            mma(o[n + 1], p[step], b[2], b[3]);
        }
    }
}

/* Numbers d and d + 1 of a row's head. */
DEVICE void put_pair(const cuda_encode &a, uint32_t row, uint32_t d, float x, float y)
{
    uint32_t i = blockIdx.y * a.head_dim + d;
    if (a.rounded.at) {
        uint16_t *at = a.rounded.at + ((uint64_t)(i / 64) * a.rounded.rows + row) * 64;
        *(uint32_t *)(at + rounded_place(row, i)) = bf16_pair(x, y);
    } else {
        float *at = row_of(a.y, row) + i;
        at[0] = x;
        at[1] = y;
    }
}

/* Zeros past a row's numbers, which a product reads. */
DEVICE void put_zeros(const cuda_encode &a, uint32_t first)
{
    uint32_t row = first + threadIdx.x;
    if (!a.rounded.at || blockIdx.y > 0 || threadIdx.x >= CUDA_ENCODE_QUERIES || row >= a.count)
        return;
    for (uint32_t i = a.heads * a.head_dim; i < rounded_width(a.heads * a.head_dim); i++)
        put_rounded(a.rounded, row, i, 0);
}

/* The patches that the query `row` of the operation sees; past the last one as that one. */
template <bool WINDOWS> DEVICE range patches_seen(const cuda_encode &a, uint32_t row)
{
    if (!WINDOWS)
        return {0, a.patches};
    const uint32_t m = a.merge * a.merge;
    const window_at w = window_of(a, (a.from + min(row, a.count - 1)) / m);
    return {w.first * m, (w.first + w.count) * m};
}

template <uint32_t D, bool WINDOWS> DEVICE void attend_patches(const cuda_encode &a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t stages_at = shared_at(shared);
    const uint32_t first = blockIdx.x * CUDA_ENCODE_QUERIES, row = first + threadIdx.x / 32 * ROWS;
    const uint32_t begin = patches_seen<WINDOWS>(a, first).first / BLOCK_KEYS * BLOCK_KEYS;
    const uint32_t end = patches_seen<WINDOWS>(a, first + CUDA_ENCODE_QUERIES - 1).end;
    const uint32_t blocks = (end - begin + BLOCK_KEYS - 1) / BLOCK_KEYS;
    const range seen[2] = {patches_seen<WINDOWS>(a, row + threadIdx.x % 32 / 4),
                           patches_seen<WINDOWS>(a, row + threadIdx.x % 32 / 4 + 8)};
    cuda_attention of;
    of.scale = a.scale;
    of.cap = 0;
    grid_begin();
#pragma unroll
    for (uint32_t i = 0; i + 1 < stage<D>::COUNT; i++) {
        if (i < blocks)
            bring_patches<D>(stages_at + i * stage<D>::BYTES, a, begin + i * BLOCK_KEYS);
        copies_end();
    }
    uint32_t q[D / 16][4];
    take_queries<D>(q, a, row);
    team<D, 1> m;
    m.warp = 0, m.name = 0, m.others = NULL;
    m.begin();
    uint32_t now = 0, next = stage<D>::COUNT - 1;
    for (uint32_t i = 0; i < blocks; i++) {
        copies_wait<stage<D>::COUNT - 2>();
        __syncthreads(); /* and readers of the stage that is filled now are done */
        if (i + stage<D>::COUNT - 1 < blocks)
            bring_patches<D>(stages_at + next * stage<D>::BYTES, a,
                             begin + (i + stage<D>::COUNT - 1) * BLOCK_KEYS);
        copies_end();
        const uint32_t block = stages_at + now * stage<D>::BYTES;
        m.template add_block<false>(
            of, begin + i * BLOCK_KEYS, seen, NULL,
            [&](float(&scores)[BLOCK_KEYS / 8][4]) { score_patches<D>(scores, q, block); },
            [&](const uint32_t p[4][4]) { add_patches<D>(m.o, p, block); });
        now = now + 1 == stage<D>::COUNT ? 0 : now + 1;
        next = next + 1 == stage<D>::COUNT ? 0 : next + 1;
    }
#pragma unroll
    for (uint32_t r = 0; r < 2; r++) {
        uint32_t mine = row + threadIdx.x % 32 / 4 + 8 * r;
#pragma unroll
        for (uint32_t n = 0; n < D / 8; n++)
            if (mine < a.count && m.number(n, 0) < a.head_dim)
                put_pair(a, mine, m.number(n, 0), m.o[n][2 * r] / m.sum[2 * r],
                         m.o[n][2 * r + 1] / m.sum[2 * r]);
    }
    put_zeros(a, first);
}

#define ATTEND(name, d, windows, blocks)                                                                     \
    extern "C" __global__ void __launch_bounds__(CUDA_ENCODE_THREADS, blocks)                                \
        plateau_encode_##name##d(const cuda_encode a)                                                        \
    {                                                                                                        \
        attend_patches<d, windows>(a);                                                                       \
    }
/* From compute capability 10.0 on the compiler wants a few registers more than half of them. */
#define HALF (__CUDA_ARCH__ >= 1000 ? 1 : 2)
ATTEND(attend, 32, false, 2)
ATTEND(attend, 64, false, 2)
ATTEND(attend, 80, false, HALF)
ATTEND(attend, 128, false, 1)
ATTEND(windows, 32, true, 2)
ATTEND(windows, 64, true, 1)
ATTEND(windows, 80, true, 1)
ATTEND(windows, 128, true, 1)
