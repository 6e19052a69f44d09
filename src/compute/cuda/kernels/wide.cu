/* wide.cu - products of many columns by wgmma (sm_90a), with the arithmetic and the bits of bf16.cu.
 *
 * A block has 128 rows and 256 columns, or with 8 chains 128. Four threads bring unit after unit of weights
 * and inputs into a ring of stages. Two blocks with the same columns bring each other half of the inputs, as
 * reading L2 would bind else. Two groups of four warps have 64 rows each. A warp dequantises its panel's
 * fragments into registers and multiplies them with the inputs in shared memory. Whether wgmma has the bits
 * of mma.sync is tried when a device is opened (cuda_probe.c).
 *
 * Experts' columns are tiles of 128 rows that a block for each multiprocessor walks through. */
#include "compute/cuda/kernels/wgmma.cuh"

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
/* The thread's earlier copies arrive at the barrier when they have ended. */
DEVICE void barrier_copied(uint64_t *b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_at(b)) : "memory");
}
template <uint32_t NAME, uint32_t THREADS> DEVICE void meet()
{
    asm volatile("bar.sync %0, %1;" ::"n"(NAME), "n"(THREADS) : "memory");
}

/* ---- a block ---- */

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
    /* By a thread of each of four warps: two panels, and the first one brings inputs. */
    __device__ __forceinline__ void bring_all(uint32_t units) const
    {
        constexpr uint32_t EACH = PANELS / 4, PART = COLUMNS / DOWN;
        uint32_t mine = threadIdx.x % GROUP / 32, bytes = columns * 2 * UNIT + PANELS * (CODES + side);
        uint32_t part = blockIdx.y % DOWN * PART;
        uint32_t x_bytes = columns > part ? min(columns - part, PART) * 2 * UNIT : 0;
        uint32_t each = BITS == 16 || a.w.group <= UNIT ? 1 : a.w.group / UNIT, left = each;
        uint64_t panel_bytes = fragment_panel_bytes(a.w), at = 0, side_at = sides_at(a.w, 0);
        const uint8_t *panels[EACH];
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++)
            panels[i] = a.w.data + panel(mine * EACH + i) * panel_bytes;
        const uint16_t *x = a.x.at + (uint64_t)(a.x.first + first_column + part) * UNIT;
        turn t = {0, 1};
        grid_wait();
        /* Unrolled, it is miscompiled: addresses of inputs lose their upper half (ptxas 13.0). */
#pragma unroll 1
        for (uint32_t u = 0; u < units; u++) {
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

template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS> DEVICE void wide(const cuda_tiles &a)
{
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
    cluster_meet();
    if (threadIdx.x >= 2 * GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (threadIdx.x % 32 == 0)
            b.bring_all(units);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        consume<BITS, CHAINS, COLUMNS>(b, units);
    }
    cluster_meet(); /* others still arrive here */
}

/* ---- 8 chains: blocks walk through tiles, of experts with their sorted columns ----
 *
 * While a group of four warps multiplies a unit, it makes the fragments of the next one. The groups wait for
 * each other in the ring alone: one puts its outputs while the other one multiplies. */

/* 128 rows of an expert's matrix, and a group of its columns. */
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
    if (tile / downs >= *a.sorted.group_count)
        return false;
    const cuda_expert_group g = a.sorted.groups[tile / downs];
    ret = {a.w.data + g.expert * a.w.expert_bytes,
           a.bias ? a.bias + (uint64_t)g.expert * a.bias_step : NULL, tile % downs * CUDA_TILE_ROWS, g.first,
           g.count};
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

#define WALK(bits)                                                                                         \
    extern "C" __global__ void __launch_bounds__(CUDA_WIDE_THREADS, 1)                                       \
        plateau_walk##bits(const __grid_constant__ cuda_tiles a)                                           \
    {                                                                                                        \
        walk<bits>(a);                                                                                     \
    }
WALK(16)
WALK(8)
WALK(4)
