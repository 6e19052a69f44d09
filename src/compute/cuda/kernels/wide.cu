/* wide.cu - products of many columns by wgmma (sm_90a), with the arithmetic and the bits of bf16.cu.
 *
 * A block has 128 rows and 256 columns, or with 8 chains 128. Four threads bring unit after unit of weights
 * and inputs into a ring of stages. Two blocks with the same columns bring each other half of the inputs, as
 * reading L2 would bind else. Two groups of four warps have 64 rows each. A warp dequantises its panel's
 * fragments into registers and multiplies them with the inputs in shared memory. Whether wgmma has the bits
 * of mma.sync is tried when a device is opened (cuda_probe.c).
 *
 * Few columns are one block of 64, of which two run at once on a multiprocessor. Each of 8 chains has a block
 * of its own then; the last of them to end adds up all, in their order. Experts' columns, and few columns of
 * short chains, are tiles of 128 rows that a block for each multiprocessor walks through. */
#include "compute/cuda/kernels/mma.cuh"

#define PANELS 8u   /* panels of a block */
#define GROUP  128u /* threads */

#if __CUDA_ARCH_FEAT_SM90_ALL

/* ---- barriers and copies ---- */

/* At the barrier that block `rank` of the cluster has at the same place. */
DEVICE void barrier_arrive(uint64_t *b, uint32_t rank)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(shared_at(b)),
                 "r"(rank)
                 : "memory");
}
/* To the same place of each block of the cluster. */
DEVICE void bring_to_all(uint8_t *to, const void *from, uint32_t bytes, uint64_t *b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(shared_at(to)),
                 "l"(from), "r"(bytes), "r"(shared_at(b)), "h"((uint16_t)((1u << CUDA_WIDE_DOWN) - 1))
                 : "memory");
}
/* Makes visible to wgmma what threads wrote to shared memory. */
DEVICE void shared_written()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* The thread's earlier copies arrive at the barrier when they have ended. */
DEVICE void barrier_copied(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(b)) : "memory");
}
template <uint32_t NAME, uint32_t THREADS> DEVICE void meet()
{
    asm volatile("bar.sync %0, %1;" ::"n"(NAME), "n"(THREADS) : "memory");
}

/* ---- wgmma: 64 rows; a: a warp's 16 rows of 16 k; b: a descriptor of the columns' inputs ---- */

DEVICE void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void wgmma_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <uint32_t LEFT> DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define OUT8(i)                                                                                              \
    "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]),              \
        "+f"(c[i + 6]), "+f"(c[i + 7])
#define OUT64(i)                                                                                             \
    OUT8(i), OUT8(i + 8), OUT8(i + 16), OUT8(i + 24), OUT8(i + 32), OUT8(i + 40), OUT8(i + 48), OUT8(i + 56)
#define NAMES64                                                                                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"     \
    "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"   \
    "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES128                                                                                             \
    NAMES64                                                                                                  \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,"  \
    "%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,"    \
    "%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define NAMES16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NAMES32                                                                                              \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"     \
    "%27,%28,%29,%30,%31"

DEVICE void wgmma(float (&c)[16], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" NAMES16
                 "},{%16,%17,%18,%19},%20,1,1,1,0;"
                 : OUT8(0), OUT8(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma(float (&c)[32], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES32
                 "},{%32,%33,%34,%35},%36,1,1,1,0;"
                 : OUT8(0), OUT8(8), OUT8(16), OUT8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma(float (&c)[64], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES64
                 "},{%64,%65,%66,%67},%68,1,1,1,0;"
                 : OUT64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEVICE void wgmma(float (&c)[128], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES128
                 "},{%128,%129,%130,%131},%132,1,1,1,0;"
                 : OUT64(0), OUT64(64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* Rows of 128 bytes whose pieces of 16 change places by the row, from a multiple of 1024 on. */
DEVICE uint64_t inputs_of(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

/* ---- a block ---- */

/* The stages go round; their barriers' phase changes with each round. */
struct turn {
    uint32_t stage, phase;
    __device__ __forceinline__ void next(uint32_t stages)
    {
        stage++;
        if (stage == stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* The DOWN blocks of a cluster have the same columns: each brings a part of the inputs to all of them. */
template <uint32_t BITS, uint32_t COLUMNS> struct block {
    static constexpr uint32_t CODES = 128 * BITS, X = COLUMNS * 2 * UNIT, DOWN = CUDA_WIDE_DOWN;
    const cuda_tiles &a;
    uint8_t *stages;
    uint64_t *full, *empty;
    uint32_t side, stage_bytes, first_column, columns;

    /* With `glu` the second half are the values' panels; past the last one it comes again. */
    __device__ __forceinline__ uint32_t panel(uint32_t i) const
    {
        uint32_t all = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL;
        if (a.glu)
            return min(blockIdx.y * (PANELS / 2) + i % (PANELS / 2), all / 2 - 1) +
                   (i < PANELS / 2 ? 0 : all / 2);
        return min(blockIdx.y * PANELS + i, all - 1);
    }
    /* By a thread of each of four warps: two panels, and the first one brings inputs. Units [from, to). */
    __device__ __forceinline__ void bring_all(uint32_t from, uint32_t to_unit) const
    {
        constexpr uint32_t EACH = PANELS / 4, PART = COLUMNS / DOWN;
        uint32_t mine = threadIdx.x % GROUP / 32, bytes = columns * 2 * UNIT + PANELS * (CODES + side);
        uint32_t part = blockIdx.y % DOWN * PART;
        uint32_t x_bytes = columns > part ? min(columns - part, PART) * 2 * UNIT : 0;
        uint32_t each = BITS == 16 || a.w.group <= UNIT ? 1 : a.w.group / UNIT, left = each - from % each;
        uint64_t panel_bytes = fragment_panel_bytes(a.w), at = (uint64_t)from * CODES;
        uint64_t side_at = sides_at(a.w, 0) + (uint64_t)(from / each) * side;
        const uint8_t *panels[EACH];
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            panels[i] = a.w.data + panel(mine * EACH + i) * panel_bytes;
        const uint16_t *x = a.x.at + ((uint64_t)from * a.x.rows + a.x.first + first_column + part) * UNIT;
        turn t = {0, 1};
        grid_wait();
        /* Unrolled, it is miscompiled: addresses of inputs lose their upper half (ptxas 13.0). */
#pragma unroll 1
        for (uint32_t u = from; u < to_unit; u++) {
            uint8_t *to = stages + t.stage * stage_bytes;
            uint64_t *b = &full[t.stage];
            barrier_wait(&empty[t.stage], t.phase);
            if (mine == 0) {
                barrier_expect(b, bytes);
                if (x_bytes > 0)
                    bring_to_all(to + part * 2 * UNIT, x, x_bytes, b);
            }
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++) {
                uint32_t p = mine * EACH + i;
                bulk_copy(to + X + p * CODES, panels[i] + at, CODES, b);
                if (BITS < 16)
                    bulk_copy(to + X + PANELS * CODES + p * side, panels[i] + side_at, side, b);
            }
            x += (uint64_t)a.x.rows * UNIT;
            at += CODES;
            if (--left == 0) {
                side_at += side;
                left = each;
            }
            t.next(a.stages);
        }
    }
};

/* A warp's fragments of a unit. */
template <uint32_t BITS, bool WHOLE>
DEVICE void fragments_of(uint32_t f[16], const uint8_t *codes, const uint8_t *sides, const cuda_matrix &m)
{
    uint32_t lane = threadIdx.x % 32;
    uint4 q[BITS / 4];
    raw_sides raw = {};
#pragma unroll
    for (uint32_t i = 0; i < BITS / 4; i++)
        q[i] = *(const uint4 *)(codes + i * 512 + lane * 16);
    if (BITS < 16)
        raw = sides_from<WHOLE>(
            sides + (m.group < UNIT ? lane % 4 * 16 / m.group * CUDA_PANEL * side_bytes(m) : 0), m, lane / 4);
    unit_fragments<BITS, WHOLE>(f, q, raw, m);
}

/* Where value i of a thread's sums lies: its row among the group's 64, its column. */
DEVICE uint32_t sum_row(uint32_t i)
{
    return threadIdx.x % GROUP / 32 * CUDA_PANEL + threadIdx.x % 32 / 4 + i % 4 / 2 * 8;
}
DEVICE uint32_t sum_column(uint32_t i)
{
    return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
}

template <uint32_t COLUMNS> DEVICE void put_sums(const cuda_tiles &a, const float *y, uint32_t first_column)
{
    uint32_t first_row = blockIdx.y * CUDA_TILE_ROWS + threadIdx.x / GROUP * 64;
#pragma unroll
    for (uint32_t i = 0; i < COLUMNS / 2; i++) {
        uint32_t row = first_row + sum_row(i), column = first_column + sum_column(i);
        if (row < a.w.n && column < a.count)
            row_of(a.y, column)[row] = a.bias ? y[i] + a.bias[row] : y[i];
    }
}

/* The second group's values go to the first, which has their gates. Its 64 rows are a unit of the next
 * product's inputs. */
template <uint32_t COLUMNS>
DEVICE void put_glu(const cuda_tiles &a, const float *y, uint8_t *shared, uint32_t first_column,
                    uint32_t columns)
{
    float *values = (float *)shared;
    uint16_t *out = (uint16_t *)(shared + COLUMNS / 2 * GROUP * 4);
    uint32_t thread = threadIdx.x % GROUP;
    meet<1, 2 * GROUP>();
    if (threadIdx.x >= GROUP) {
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            values[i * GROUP + thread] = y[i];
    }
    meet<1, 2 * GROUP>();
    if (threadIdx.x >= GROUP)
        return;
#pragma unroll
    for (uint32_t i = 0; i < COLUMNS / 2; i++)
        out[sum_column(i) * UNIT + rounded_place(sum_column(i), sum_row(i))] =
            __bfloat16_as_ushort(__float2bfloat16_rn(silu(y[i]) * values[i * GROUP + thread]));
    shared_written();
    meet<2, GROUP>();
    if (threadIdx.x > 0 || columns == 0 || blockIdx.y * 2 * UNIT >= a.w.n)
        return;
    uint16_t *to = a.y_rounded.at + ((uint64_t)blockIdx.y * a.y_rounded.rows + first_column) * UNIT;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n"
                 "cp.async.bulk.commit_group;\n"
                 "cp.async.bulk.wait_group 0;" ::"l"(to),
                 "r"(shared_at(out)), "r"(columns * 2 * UNIT)
                 : "memory");
}

/* Adds `UNITS` units and frees their stages. The other group computes while this one loads. */
template <uint32_t BITS, bool WHOLE, uint32_t COLUMNS, uint32_t UNITS>
DEVICE void add_units(const block<BITS, COLUMNS> &b, float (&c)[COLUMNS / 2], turn &t)
{
    uint32_t warp = threadIdx.x / 32, f[UNITS][16];
    uint64_t x[UNITS];
    turn used = t;
#pragma unroll
    for (uint32_t i = 0; i < UNITS; i++) {
        const uint8_t *stage = b.stages + t.stage * b.stage_bytes, *codes = stage + b.X;
        barrier_wait(&b.full[t.stage], t.phase);
        fragments_of<BITS, WHOLE>(f[i], codes + warp * b.CODES, codes + PANELS * b.CODES + warp * b.side,
                                  b.a.w);
        x[i] = inputs_of(shared_at(stage));
        t.next(b.a.stages);
    }
    wgmma_begin();
#pragma unroll
    for (uint32_t i = 0; i < UNITS; i++) {
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            wgmma(c, f[i] + 4 * j, x[i] + 2 * j);
    }
    wgmma_end();
    wgmma_wait<0>();
#pragma unroll
    for (uint32_t i = 0; i < UNITS; i++) {
        if (threadIdx.x % 32 < b.DOWN)
            barrier_arrive(&b.empty[used.stage], threadIdx.x % 32);
        used.next(b.a.stages);
    }
}

/* Units [u, to) in a sum of their own, EACH at a time. */
template <uint32_t BITS, bool WHOLE, uint32_t COLUMNS, uint32_t EACH>
DEVICE void add_chain(const block<BITS, COLUMNS> &b, float (&c)[COLUMNS / 2], turn &t, uint32_t u,
                      uint32_t to)
{
#pragma unroll
    for (uint32_t i = 0; i < COLUMNS / 2; i++)
        c[i] = 0;
#pragma unroll 1
    for (; u + EACH <= to; u += EACH)
        add_units<BITS, WHOLE, COLUMNS, EACH>(b, c, t);
    if (EACH > 1 && u < to)
        add_units<BITS, WHOLE, COLUMNS, 1>(b, c, t);
}

template <uint32_t BITS, bool WHOLE, uint32_t CHAINS, uint32_t COLUMNS>
DEVICE void multiply(const block<BITS, COLUMNS> &b, uint32_t units, float (&c)[COLUMNS / 2],
                     float (&sum)[CHAINS > 1 ? COLUMNS / 2 : 1])
{
    turn t = {0, 0};
    /* -0 + x is x, with its sign. */
#pragma unroll
    for (uint32_t i = 0; CHAINS > 1 && i < COLUMNS / 2; i++)
        sum[CHAINS > 1 ? i : 0] = -0.0f;
#pragma unroll 1
    for (uint32_t chain = 0; chain < CHAINS; chain++) {
        add_chain<BITS, WHOLE, COLUMNS, 2>(b, c, t, chain_begin(units, chain, CHAINS),
                                           chain_begin(units, chain + 1, CHAINS));
#pragma unroll
        for (uint32_t i = 0; CHAINS > 1 && i < COLUMNS / 2; i++)
            sum[CHAINS > 1 ? i : 0] += c[i];
    }
}

template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS>
DEVICE void consume(const block<BITS, COLUMNS> &b, uint32_t units)
{
    float c[COLUMNS / 2], sum[CHAINS > 1 ? COLUMNS / 2 : 1];
    if (BITS < 16 && is_whole(b.a.w))
        multiply<BITS, true, CHAINS, COLUMNS>(b, units, c, sum);
    else
        multiply<BITS, false, CHAINS, COLUMNS>(b, units, c, sum);
    const float *y = CHAINS > 1 ? sum : c;
    if (b.a.glu)
        put_glu<COLUMNS>(b.a, y, b.stages, b.first_column, b.columns);
    else
        put_sums<COLUMNS>(b.a, y, b.first_column);
}

/* ---- few columns ---- */

/* The block's chain becomes known to the others. True: it is the last one, and c is the sum of all. */
template <uint32_t CHAINS, uint32_t COLUMNS>
DEVICE bool join_chains(const cuda_tiles &a, float (&c)[COLUMNS / 2], uint32_t columns)
{
    constexpr uint32_t CHAIN = COLUMNS / 2 * 2 * GROUP;
    __shared__ uint32_t before;
    uint32_t tile = blockIdx.x * gridDim.y + blockIdx.y;
    float *parts = a.parts + (uint64_t)tile * CHAINS * CHAIN + threadIdx.x;
#pragma unroll
    for (uint32_t i = 0; i < COLUMNS / 2; i++)
        if (i / 4 * 8 < columns)
            __stcg(parts + blockIdx.z * CHAIN + i * 2 * GROUP, c[i]);
    __threadfence();
    meet<1, 2 * GROUP>();
    if (threadIdx.x == 0)
        before = atomicAdd(a.ended + tile, 1);
    meet<1, 2 * GROUP>();
    if (before + 1 < CHAINS)
        return false;
    __threadfence();
    if (threadIdx.x == 0)
        a.ended[tile] = 0;
#pragma unroll
    for (uint32_t i = 0; i < COLUMNS / 2; i++)
        c[i] = -0.0f;
#pragma unroll 2
    for (uint32_t chain = 0; chain < CHAINS; chain++) {
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            if (i / 4 * 8 < columns)
                c[i] += __ldcg(parts + chain * CHAIN + i * 2 * GROUP);
    }
    return true;
}

template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS>
DEVICE void consume_few(const block<BITS, COLUMNS> &b, uint32_t from, uint32_t to)
{
    float c[COLUMNS / 2];
    turn t = {0, 0};
    /* A chain without units waits for no inputs, and earlier kernels read the sums' place. */
    grid_wait();
    /* Two units of 4 bits leave no registers for the sums of chains. */
    constexpr uint32_t EACH = BITS == 4 && CHAINS > 1 ? 1 : 2;
    if (BITS < 16 && is_whole(b.a.w))
        add_chain<BITS, true, COLUMNS, EACH>(b, c, t, from, to);
    else
        add_chain<BITS, false, COLUMNS, EACH>(b, c, t, from, to);
    if constexpr (CHAINS > 1) {
        if (!join_chains<CHAINS, COLUMNS>(b.a, c, b.columns))
            return;
    }
    if (b.a.glu)
        put_glu<COLUMNS>(b.a, c, b.stages, b.first_column, b.columns);
    else
        put_sums<COLUMNS>(b.a, c, b.first_column);
}

template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS> DEVICE void wide(const cuda_tiles &a)
{
    constexpr bool FEW = COLUMNS == CUDA_FEW_COLUMNS;
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t full[CUDA_WIDE_STAGES], empty[CUDA_WIDE_STAGES];
    uint8_t *stages = shared + (0u - shared_at(shared)) % 1024;
    uint32_t units = fragment_units(a.w), side = unit_side_bytes(a.w), first = blockIdx.x * COLUMNS;
    uint32_t stage_bytes = (COLUMNS * 2 * UNIT + PANELS * (128 * BITS + side) + 1023) / 1024 * 1024;
    const block<BITS, COLUMNS> b = {
        a,    stages,      full,  empty,
        side, stage_bytes, first, first < a.count ? min(COLUMNS, a.count - first) : 0};
    grid_next();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < a.stages; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], 8 * b.DOWN);
        }
        barriers_made();
    }
    uint32_t from = FEW ? chain_begin(units, blockIdx.z, CHAINS) : 0;
    uint32_t to = FEW ? chain_begin(units, blockIdx.z + 1, CHAINS) : units;
    cluster_meet();
    if (threadIdx.x >= 2 * GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW ? 48 : 56));
        if (threadIdx.x % 32 == 0)
            b.bring_all(from, to);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(FEW ? 96 : 224));
        if constexpr (FEW)
            consume_few<BITS, CHAINS, COLUMNS>(b, from, to);
        else
            consume<BITS, CHAINS, COLUMNS>(b, units);
    }
    cluster_meet(); /* others still arrive here */
}

/* ---- 8 chains: blocks walk through tiles, of experts with their sorted columns, or of few columns ----
 *
 * While a group of four warps multiplies a unit, it makes the fragments of the next one. The groups wait for
 * each other in the ring alone: one puts its outputs while the other one multiplies. */

/* 128 rows of a matrix and up to 128 columns; of an expert's matrix a group of its columns. */
struct walk_tile {
    const uint8_t *weights;
    const float *bias;
    uint32_t first_row, first, count; /* first, count: columns */
};

/* A tile's rows change first: tiles that run at once read the same inputs and the same expert. False: there
 * are fewer tiles. */
DEVICE bool find_walk_tile(const cuda_tiles &a, uint32_t tile, walk_tile &ret)
{
    uint32_t downs = (a.w.n + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS;
    uint32_t group = tile / downs, first = group * CUDA_TILE_COLUMNS;
    ret = {a.w.data, a.bias, tile % downs * CUDA_TILE_ROWS, first, CUDA_TILE_COLUMNS};
    if (!a.sorted.order) {
        ret.count = min(CUDA_TILE_COLUMNS, a.count - min(first, a.count));
        return ret.count > 0;
    }
    if (group >= *a.sorted.group_count)
        return false;
    const cuda_expert_group g = a.sorted.groups[group];
    ret.weights += g.expert * a.w.expert_bytes;
    ret.bias = a.bias ? a.bias + (uint64_t)g.expert * a.bias_step : NULL;
    ret.first = g.first, ret.count = g.count;
    return true;
}

/* A chain's sums join the sums of earlier chains, and begin anew. */
template <uint32_t C> DEVICE void end_chain(float (&sum)[C], float (&c)[C])
{
#pragma unroll
    for (uint32_t i = 0; i < C; i++) {
        sum[i] += c[i];
        c[i] = 0;
    }
}

/* Pieces of inputs that a thread brings of each unit. */
#define WALK_PIECES (CUDA_TILE_COLUMNS * 8 / GROUP)

template <uint32_t BITS> struct walk_block {
    static constexpr uint32_t CODES = 128 * BITS, X = CUDA_TILE_COLUMNS * 2 * UNIT;
    const cuda_tiles &a;
    uint8_t *stages;
    uint64_t *full, *empty;
    uint32_t side, stage_bytes;

    /* With `glu` each group of four warps has two panels of gates, then the panels of their values. */
    __device__ __forceinline__ uint32_t panel(const walk_tile &tile, uint32_t i) const
    {
        uint32_t all = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL, first = tile.first_row / CUDA_PANEL;
        if (a.glu)
            return first / 2 + i / 4 * 2 + i % 2 + (i % 4 < 2 ? 0 : all / 2);
        return min(first + i, all - 1);
    }
    /* Waits for the unit that is in a stage, and makes the warp's fragments of it. */
    template <bool WHOLE> __device__ __forceinline__ void take(const turn &t, uint32_t *f) const
    {
        const uint32_t warp = threadIdx.x / 32;
        const uint8_t *codes = stages + t.stage * stage_bytes + X;
        barrier_wait(&full[t.stage], t.phase);
        fragments_of<BITS, WHOLE>(f, codes + warp * CODES, codes + PANELS * CODES + warp * side, a.w);
    }
    /* A lane of each warp brings two panels, all threads the rows of their columns. A row's pieces lie in an
     * order that its number gives, in a stage the column's number does. */
    __device__ __forceinline__ void bring(const walk_tile &tile, uint32_t units, turn &t) const
    {
        constexpr uint32_t EACH = PANELS / 4;
        const uint32_t thread = threadIdx.x % GROUP, mine = thread / 32, bytes = PANELS * (CODES + side);
        const uint32_t each = BITS == 16 || a.w.group <= UNIT ? 1 : a.w.group / UNIT;
        const uint64_t panel_bytes = fragment_panel_bytes(a.w);
        const uint8_t *panels[EACH];
        uint32_t from[WALK_PIECES], left = each;
        uint64_t at = 0, side_at = sides_at(a.w, 0);
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            panels[i] = tile.weights + panel(tile, mine * EACH + i) * panel_bytes;
#pragma unroll
        for (uint32_t i = 0; i < WALK_PIECES; i++) {
            uint32_t column = min(thread / 8 + i * (GROUP / 8), tile.count - 1);
            from[i] = (a.x.first + input_row(a.sorted, a.x_div, tile.first + column)) * 8 + thread % 8;
        }
        const uint16_t *x = a.x.at;
#pragma unroll 1
        for (uint32_t u = 0; u < units; u++) {
            uint8_t *to = stages + t.stage * stage_bytes;
            uint64_t *b = &full[t.stage];
            barrier_wait(&empty[t.stage], t.phase);
            if (thread == 0)
                barrier_expect(b, bytes);
#pragma unroll
            for (uint32_t i = 0; thread % 32 == 0 && i < EACH; i++) {
                uint32_t p = mine * EACH + i;
                bulk_copy(to + X + p * CODES, panels[i] + at, CODES, b);
                if (BITS < 16)
                    bulk_copy(to + X + PANELS * CODES + p * side, panels[i] + side_at, side, b);
            }
            const uint32_t place = shared_at(to);
#pragma unroll
            for (uint32_t i = 0; i < WALK_PIECES; i++)
                if (thread / 8 + i * (GROUP / 8) < tile.count)
                    copy16(place + ((thread + i * GROUP) ^ (from[i] / 8 % 8 ^ thread / 8 % 8)) * 16,
                           x + (uint64_t)from[i] * 8);
            barrier_copied(b);
            x += (uint64_t)a.x.rows * UNIT;
            at += CODES;
            if (--left == 0) {
                side_at += side;
                left = each;
            }
            t.next(a.stages);
        }
    }
};

/* Adds a unit's products, of fragments `f`, and makes the fragments of the next one meanwhile. */
template <uint32_t BITS, bool WHOLE, uint32_t C>
DEVICE void add_walked(const walk_block<BITS> &b, float (&c)[C], turn &t, const uint32_t *f, uint32_t *next,
                       bool more)
{
    const uint32_t used = t.stage;
    const uint64_t x = inputs_of(shared_at(b.stages + used * b.stage_bytes));
    shared_written();
    wgmma_begin();
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        wgmma(c, f + 4 * j, x + 2 * j);
    wgmma_end();
    t.next(b.a.stages);
    if (more)
        b.template take<WHOLE>(t, next);
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&b.empty[used], 0);
}

template <uint32_t BITS, bool WHOLE, uint32_t C>
DEVICE void multiply_walked(const walk_block<BITS> &b, uint32_t units, turn &t, float (&sum)[C])
{
    uint32_t f[2][16], chain = 0;
    float c[C];
    /* -0 + x is x, with its sign. */
#pragma unroll
    for (uint32_t i = 0; i < C; i++) {
        sum[i] = -0.0f;
        c[i] = 0;
    }
    b.template take<WHOLE>(t, f[0]);
#pragma unroll 1
    for (uint32_t u = 0; u < units; u += 2) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            if (u + i >= units)
                break;
#pragma unroll 1
            for (; chain_begin(units, chain + 1, CUDA_CHAINS) <= u + i; chain++)
                end_chain(sum, c);
            add_walked<BITS, WHOLE>(b, c, t, f[i], f[i ^ 1], u + i + 1 < units);
        }
    }
#pragma unroll 1
    for (; chain < CUDA_CHAINS; chain++)
        end_chain(sum, c);
}

template <uint32_t C> DEVICE void put_walked(const cuda_tiles &a, const walk_tile &tile, const float (&y)[C])
{
    const uint32_t first_row = tile.first_row + threadIdx.x / GROUP * 64;
#pragma unroll
    for (uint32_t i = 0; i < C / 2; i++) {
        const uint32_t value = i / 2 * 4 + i % 2, column = sum_column(value);
        if (column >= tile.count)
            continue;
        float *to = row_of(a.y, output_row(a.sorted, tile.first + column));
#pragma unroll
        for (uint32_t j = 0; j < 4; j += 2) {
            const uint32_t row = first_row + sum_row(value + j);
            if (row < a.w.n)
                to[row] = tile.bias ? y[value + j] + tile.bias[row] : y[value + j];
        }
    }
}

/* Two warps have gates, two their values, for 32 outputs: each hands on half of its columns. */
template <uint32_t C>
DEVICE void put_walked_glu(const cuda_tiles &a, const walk_tile &tile, const float (&y)[C], float *shared)
{
    const uint32_t thread = threadIdx.x % GROUP, group = threadIdx.x / GROUP, lane = threadIdx.x % 32;
    const uint32_t row = tile.first_row / 2 + group * 32 + thread / 32 % 2 * CUDA_PANEL + lane / 4;
    const bool second = thread >= GROUP / 2;
    float *to = shared + threadIdx.x, *from = shared + (threadIdx.x ^ (GROUP / 2));
    meet_at<GROUP>(1 + group); /* earlier readers */
#pragma unroll
    for (uint32_t i = 0; i < C / 2; i++)
        to[i * 2 * GROUP] = second ? y[i] : y[i + C / 2];
    meet_at<GROUP>(1 + group);
#pragma unroll
    for (uint32_t i = 0; i < C / 4; i++) {
        const uint32_t value = i / 2 * 4 + i % 2, column = sum_column(second ? value + C / 2 : value);
        if (column >= tile.count)
            continue;
        const uint32_t pair = output_row(a.sorted, tile.first + column);
#pragma unroll
        for (uint32_t j = 0; j < 4; j += 2) {
            const float other = from[(value + j) * 2 * GROUP];
            put_rounded(a.y_rounded, pair, row + j * 4,
                        second ? silu(other) * y[value + j + C / 2] : silu(y[value + j]) * other);
        }
    }
}

template <uint32_t BITS, uint32_t COLUMNS>
DEVICE void consume_walked(const walk_block<BITS> &b, const walk_tile &tile, uint32_t units, turn &t)
{
    float sum[COLUMNS / 2];
    if (BITS < 16 && is_whole(b.a.w))
        multiply_walked<BITS, true>(b, units, t, sum);
    else
        multiply_walked<BITS, false>(b, units, t, sum);
    if (b.a.glu)
        put_walked_glu(b.a, tile, sum, (float *)(b.stages + b.a.stages * b.stage_bytes));
    else
        put_walked(b.a, tile, sum);
}

template <uint32_t BITS> DEVICE void walk(const cuda_tiles &a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t full[CUDA_WIDE_STAGES], empty[CUDA_WIDE_STAGES];
    uint8_t *stages = shared + (0u - shared_at(shared)) % 1024;
    const uint32_t units = fragment_units(a.w), side = unit_side_bytes(a.w);
    const uint32_t stage_bytes =
        (CUDA_TILE_COLUMNS * 2 * UNIT + PANELS * (128 * BITS + side) + 1023) / 1024 * 1024;
    const walk_block<BITS> b = {a, stages, full, empty, side, stage_bytes};
    walk_tile tile;
    grid_next();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < a.stages; i++) {
            barrier_init(&full[i], GROUP + 1);
            barrier_init(&empty[i], 8);
        }
        barriers_made();
    }
    __syncthreads();
    grid_wait();
    if (threadIdx.x >= 2 * GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        turn t = {0, 1};
        for (uint32_t i = blockIdx.x; find_walk_tile(a, i, tile); i += gridDim.x)
            b.bring(tile, units, t);
        copies_wait_all();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        turn t = {0, 0};
        for (uint32_t i = blockIdx.x; find_walk_tile(a, i, tile); i += gridDim.x) {
            if (tile.count <= 32)
                consume_walked<BITS, 32>(b, tile, units, t);
            else if (tile.count <= 64)
                consume_walked<BITS, 64>(b, tile, units, t);
            else
                consume_walked<BITS, CUDA_TILE_COLUMNS>(b, tile, units, t);
        }
    }
}

#define CLUSTER __cluster_dims__(1, CUDA_WIDE_DOWN, 1)
#else
#define CLUSTER
template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS> DEVICE void wide(const cuda_tiles &a)
{
}
template <uint32_t BITS> DEVICE void walk(const cuda_tiles &a)
{
}
#endif

#define WIDE(bits, chains)                                                                                   \
    extern "C" __global__ void CLUSTER __launch_bounds__(CUDA_WIDE_THREADS, 1)                               \
        plateau_wide##bits##_##chains(const __grid_constant__ cuda_tiles a)                                  \
    {                                                                                                        \
        wide<bits, chains, CUDA_WIDE_COLUMNS_##chains>(a);                                                   \
    }
WIDE(16, 1)
WIDE(16, 8)
WIDE(8, 1)
WIDE(8, 8)
WIDE(4, 1)
WIDE(4, 8)

#define FEW(bits, chains)                                                                                    \
    extern "C" __global__ void CLUSTER __launch_bounds__(CUDA_WIDE_THREADS, CUDA_FEW_BLOCKS)                 \
        plateau_few##bits##_##chains(const __grid_constant__ cuda_tiles a)                                   \
    {                                                                                                        \
        wide<bits, chains, CUDA_FEW_COLUMNS>(a);                                                             \
    }
FEW(16, 1)
FEW(16, 8)
FEW(8, 1)
FEW(8, 8)
FEW(4, 1)
FEW(4, 8)

#define WALK(bits)                                                                                         \
    extern "C" __global__ void __launch_bounds__(CUDA_WIDE_THREADS, 1)                                       \
        plateau_walk##bits(const __grid_constant__ cuda_tiles a)                                           \
    {                                                                                                        \
        walk<bits>(a);                                                                                     \
    }
WALK(16)
WALK(8)
WALK(4)
