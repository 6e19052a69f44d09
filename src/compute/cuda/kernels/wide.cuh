/* wide.cuh - products of many columns by wgmma (sm_90a), with the arithmetic and the bits of bf16.cu.
 *
 * A block for each multiprocessor walks through tiles of 128 rows, of up to 256 columns with 1 chain, and of
 * up to 128 with 8. Four warps bring unit after unit of weights and inputs into a ring of stages, also of the
 * next tile. Two blocks with the same columns bring each other half of the inputs, as reading L2 would bind
 * else. Two groups of four warps have 64 rows each. A warp dequantises its panel's fragments into registers
 * and multiplies them with the inputs in shared memory. While a group multiplies a unit, it makes the
 * fragments of the next one. The groups wait for each other in the ring alone: one puts its outputs while the
 * other one multiplies. Whether wgmma has the bits of mma.sync is tried when a device is opened
 * (cuda_probe.c).
 *
 * Experts' tiles have the sorted columns of an expert. */
#ifndef PLATEAU_CUDA_WIDE_CUH
#define PLATEAU_CUDA_WIDE_CUH

#include "compute/cuda/kernels/wgmma.cuh"

#define PANELS 8u   /* panels of a block */
#define GROUP  128u /* threads */

#if __CUDA_ARCH_FEAT_SM90_ALL

/* ---- barriers and copies ---- */

/* Arrives at the barrier that block `rank` of the cluster has at the same place. */
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
/* Copies to the same place of each block of the cluster. */
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

/* ---- a block's ring ---- */

/* Stages of inputs of COLUMNS columns, then codes and sides of the panels. BLOCKS of a cluster fill each
 * other's stages. SMALL: weights and inputs are small floats. A unit has 128 k then, and as many bytes as
 * one of 16 bits. */
template <uint32_t BITS, uint32_t COLUMNS, uint32_t BLOCKS, bool SMALL = false> struct ring {
    static constexpr uint32_t CODES = 128 * BITS, X = COLUMNS * 2 * UNIT;
    static constexpr bool COPIED = BLOCKS == 1; /* threads copy the inputs */
    static constexpr bool FLOATS = SMALL;
    const cuda_tiles &a;
    uint8_t *stages;
    uint64_t *full, *empty;
    uint32_t side, stage_bytes;

    /* Waits for the unit that is in a stage, and makes the warp's fragments of it. */
    template <bool WHOLE> __device__ __forceinline__ void take(const turn &t, uint32_t *f) const
    {
        const uint32_t warp = threadIdx.x / 32;
        const uint8_t *codes = stages + t.stage * stage_bytes + X;
        barrier_wait(&full[t.stage], t.phase);
        fragments_of<BITS, WHOLE>(f, codes + warp * CODES, codes + PANELS * CODES + warp * side, a.w);
    }
    __device__ __forceinline__ void release(uint32_t stage) const
    {
        if (threadIdx.x % 32 < BLOCKS)
            barrier_arrive(&empty[stage], threadIdx.x % 32);
    }
    /* Shared memory behind the stages. */
    __device__ __forceinline__ uint8_t *rest() const
    {
        return stages + a.stages * stage_bytes;
    }
};

template <uint32_t BITS, uint32_t COLUMNS, uint32_t BLOCKS, bool SMALL = false>
DEVICE ring<BITS, COLUMNS, BLOCKS, SMALL> ring_of(const cuda_tiles &a, uint8_t *shared, uint64_t *full,
                                                  uint64_t *empty)
{
    const uint32_t side = unit_side_bytes(a.w);
    const uint32_t bytes = COLUMNS * 2 * UNIT + PANELS * (128 * BITS + side);
    return {a, shared + (0u - shared_at(shared)) % 1024, full, empty, side, (bytes + 1023) / 1024 * 1024};
}

/* `arrivals`: how many threads say that a stage is full. */
template <class RING> DEVICE void ring_begin(const RING &r, uint32_t arrivals, uint32_t blocks)
{
    if (threadIdx.x > 0)
        return;
    for (uint32_t i = 0; i < r.a.stages; i++) {
        barrier_init(&r.full[i], arrivals);
        barrier_init(&r.empty[i], 2 * GROUP / 32 * blocks);
    }
    barriers_made();
}

/* ---- sums ---- */

/* A chain's sums join the sums of earlier chains, and begin anew. */
template <uint32_t C> DEVICE void end_chain(float (&sum)[C], float (&c)[C])
{
#pragma unroll
    for (uint32_t i = 0; i < C; i++) {
        sum[i] += c[i];
        c[i] = 0;
    }
}

/* Adds a unit's products, of fragments `f`, and makes the fragments of the next one meanwhile. */
template <bool WHOLE, class RING, uint32_t C>
DEVICE void add_unit(const RING &r, float (&c)[C], turn &t, const uint32_t *f, uint32_t *next, bool more)
{
    const uint32_t used = t.stage;
    const uint64_t x = inputs_of(shared_at(r.stages + used * r.stage_bytes));
    if (RING::COPIED)
        shared_written();
    wgmma_begin();
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        wgmma(c, f + 4 * j, x + 2 * j);
    wgmma_end();
    t.next(r.a.stages);
    if (more)
        r.template take<WHOLE>(t, next);
    wgmma_wait<0>();
    r.release(used);
}

/* A unit of small floats. Its products are sums of their own, of up to 128 columns at a time. */
template <class RING, uint32_t C>
DEVICE void add_small_unit(const RING &r, float (&c)[C], turn &t)
{
    constexpr uint32_t EACH = C < 64 ? C : 64; /* sums of a wgmma */
    const uint32_t warp = threadIdx.x / 32;
    const uint32_t at = shared_at(r.stages + t.stage * r.stage_bytes);
    const uint32_t codes = at + RING::X + warp * RING::CODES + threadIdx.x % 32 * 16;
    const uint32_t sides = at + RING::X + PANELS * RING::CODES + warp * r.side;
    uint4 q[4];
    barrier_wait(&r.full[t.stage], t.phase);
#pragma unroll
    for (uint32_t j = 0; j < 4; j++)
        q[j] = read_piece(codes + j * 512);
    const row_scales rows = row_scales_at(sides, r.a.w);
#pragma unroll
    for (uint32_t i = 0; i < C; i += EACH) {
        const uint64_t x = inputs_of(at + i * 2 * 2 * UNIT);
        float products[EACH];
        wgmma_begin();
#pragma unroll
        for (uint32_t j = 0; j < 4; j++)
            wgmma_small(products, q[j], x + 2 * j, j);
        wgmma_end();
        wgmma_wait<0>();
        if (i + EACH == C)
            r.release(t.stage);
        add_scaled(c + i, products, rows);
    }
    t.next(r.a.stages);
}

/* As `multiply()`, but of small floats. */
template <uint32_t CHAINS, class RING, uint32_t C>
DEVICE void multiply_small(const RING &r, uint32_t units, turn &t, float (&c)[C], float (&sum)[C])
{
#pragma unroll
    for (uint32_t i = 0; i < C; i++) {
        sum[i] = -0.0f;
        c[i] = 0;
    }
#pragma unroll 1
    for (uint32_t chain = 0, u = 0; chain < CHAINS; chain++) {
#pragma unroll 1
        for (; u < chain_begin(units, chain + 1, CHAINS); u++)
            add_small_unit(r, c, t);
        if (CHAINS > 1)
            end_chain(sum, c);
    }
}

/* A tile's sums: `sum` with 8 chains, else `c`. */
template <bool WHOLE, uint32_t CHAINS, class RING, uint32_t C>
DEVICE void multiply(const RING &r, uint32_t units, turn &t, float (&c)[C], float (&sum)[C])
{
    uint32_t f[2][16], chain = 0;
    /* -0 + x is x, with its sign. */
#pragma unroll
    for (uint32_t i = 0; i < C; i++) {
        sum[i] = -0.0f;
        c[i] = 0;
    }
    r.template take<WHOLE>(t, f[0]);
#pragma unroll 1
    for (uint32_t u = 0; u < units; u += 2) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            if (u + i >= units)
                break;
#pragma unroll 1
            for (; CHAINS > 1 && chain_begin(units, chain + 1, CHAINS) <= u + i; chain++)
                end_chain(sum, c);
            add_unit<WHOLE>(r, c, t, f[i], f[i ^ 1], u + i + 1 < units);
        }
    }
#pragma unroll 1
    for (; CHAINS > 1 && chain < CHAINS; chain++)
        end_chain(sum, c);
}

/* ---- tiles of a matrix ---- */

struct wide_tile {
    uint32_t row, first, count; /* row: in tiles; first, count: columns */
};

/* Tiles of a cluster: neighbours have the same rows, and the last tiles are those of the columns that fill
 * no whole tile. False: there are fewer tiles. */
DEVICE bool find_wide_tile(const cuda_tiles &a, uint32_t tile, wide_tile &ret)
{
    const uint32_t rows = a.glu ? a.w.n / 2 : a.w.n, each = a.glu ? CUDA_TILE_ROWS / 2 : CUDA_TILE_ROWS;
    const uint32_t downs = (rows + each * CUDA_WIDE_DOWN - 1) / (each * CUDA_WIDE_DOWN);
    const uint32_t whole = a.count / a.columns, rest = a.count % a.columns;
    uint32_t down = tile - whole * downs, column = whole, count = rest;
    if (tile < whole * downs) {
        down = tile / whole;
        column = tile % whole;
        count = a.columns;
    }
    ret = {down * CUDA_WIDE_DOWN + blockIdx.y, column * a.columns, count};
    return count > 0 && down < downs;
}

template <uint32_t BITS, uint32_t COLUMNS, bool SMALL>
using wide_ring = ring<BITS, COLUMNS, CUDA_WIDE_DOWN, SMALL>;

/* With `glu` the second half are the values' panels; past the last one it comes again. */
DEVICE uint32_t wide_panel(const cuda_tiles &a, const wide_tile &tile, uint32_t i)
{
    const uint32_t all = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL;
    if (a.glu)
        return min(tile.row * (PANELS / 2) + i % (PANELS / 2), all / 2 - 1) + (i < PANELS / 2 ? 0 : all / 2);
    return min(tile.row * PANELS + i, all - 1);
}

/* A thread's pieces of codes in a unit, and of sides at most, where threads copy them. */
template <uint32_t BITS> DEVICE constexpr uint32_t code_pieces()
{
    return BITS < 16 ? PANELS * 128 * BITS / 16 / GROUP : 1;
}
#define SIDE_PIECES 2u

/* Brings a tile's units, by four warps. The first thread brings the block's part of the inputs to all blocks
 * of the cluster. With 16 bits a thread of each warp brings two panels. Fewer bits are copied by all threads,
 * as the bulk engine takes long for small copies. */
template <uint32_t BITS, uint32_t COLUMNS, bool SMALL>
DEVICE void bring_wide(const wide_ring<BITS, COLUMNS, SMALL> &r, const wide_tile &tile, uint32_t units,
                       turn &t)
{
    constexpr uint32_t CODES = 128 * BITS, X = COLUMNS * 2 * UNIT;
    constexpr uint32_t EACH = BITS < 16 ? code_pieces<BITS>() : PANELS / 4;
    const cuda_tiles &a = r.a;
    const uint32_t thread = threadIdx.x % GROUP, mine = thread / 32;
    const uint32_t bytes = tile.count * 2 * UNIT + (BITS < 16 ? 0 : PANELS * CODES) +
                           (SMALL ? PANELS * r.side : 0);
    const uint32_t part = blockIdx.y * (a.columns / CUDA_WIDE_DOWN);
    const uint32_t x_bytes =
        tile.count > part ? min(tile.count - part, a.columns / CUDA_WIDE_DOWN) * 2 * UNIT : 0;
    const uint32_t side_pieces = max(r.side / 16, 1),
                   each = BITS == 16 || a.w.group <= UNIT ? 1 : a.w.group / UNIT;
    const uint64_t panel_bytes = fragment_panel_bytes(a.w);
    const uint8_t *codes[EACH], *sides[SIDE_PIECES];
    const uint16_t *x = a.x.at + (uint64_t)(a.x.first + tile.first + part) * UNIT;
    uint32_t left = each;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        const uint32_t piece = thread + i * GROUP;
        codes[i] = BITS < 16 ? a.w.data + wide_panel(a, tile, piece / (CODES / 16)) * panel_bytes +
                                   piece % (CODES / 16) * 16
                             : a.w.data + wide_panel(a, tile, mine * EACH + i) * panel_bytes;
    }
#pragma unroll
    for (uint32_t i = 0; BITS < 16 && i < SIDE_PIECES; i++) {
        const uint32_t piece = thread + i * GROUP;
        sides[i] = a.w.data + wide_panel(a, tile, min(piece / side_pieces, PANELS - 1)) * panel_bytes +
                   sides_at(a.w, 0) + piece % side_pieces * 16;
    }
    /* Unrolled, it is miscompiled: addresses of inputs lose their upper half (ptxas 13.0). */
#pragma unroll 1
    for (uint32_t u = 0; u < units; u++) {
        uint8_t *to = r.stages + t.stage * r.stage_bytes;
        uint64_t *b = &r.full[t.stage];
        const uint32_t place = shared_at(to) + X;
        barrier_wait(&r.empty[t.stage], t.phase);
        if (thread == 0) {
            barrier_expect(b, bytes);
            if (x_bytes > 0)
                bring_to_all(to + part * 2 * UNIT, x, x_bytes, b);
        }
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (BITS < 16)
                copy16(place + (thread + i * GROUP) * 16, codes[i]);
            else
                bulk_copy(to + X + (mine * EACH + i) * CODES, codes[i], CODES, b);
            codes[i] += CODES;
            if (SMALL) /* The scales follow the codes that are left. */
                bulk_copy(to + X + PANELS * CODES + (mine * EACH + i) * r.side,
                          codes[i] + (units - u - 1) * CODES + u * r.side, r.side, b);
        }
#pragma unroll
        for (uint32_t i = 0; BITS < 16 && i < SIDE_PIECES; i++)
            if (thread + i * GROUP < PANELS * side_pieces)
                copy16(place + PANELS * CODES + (thread + i * GROUP) * 16, sides[i]);
        if (BITS < 16)
            barrier_copied(b);
        x += (uint64_t)a.x.rows * UNIT;
        if (BITS < 16 && --left == 0) {
#pragma unroll
            for (uint32_t i = 0; i < SIDE_PIECES; i++)
                sides[i] += r.side;
            left = each;
        }
        t.next(a.stages);
    }
}

template <uint32_t C> DEVICE void put_wide(const cuda_tiles &a, const wide_tile &tile, const float (&y)[C])
{
    const uint32_t first_row = tile.row * CUDA_TILE_ROWS + threadIdx.x / GROUP * 64;
#pragma unroll
    for (uint32_t i = 0; i < C; i++) {
        const uint32_t row = first_row + sum_row(i), column = sum_column(i);
        if (row < a.w.n && column < tile.count)
            row_of(a.y, tile.first + column)[row] = a.bias ? y[i] + a.bias[row] : y[i];
    }
}

/* The thread's puts have read shared memory, but the last LEFT. */
template <uint32_t LEFT> DEVICE void bulk_puts_wait()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(LEFT) : "memory");
}

#define MEET_VALUES 16u /* values of a thread that the other group gets at a time: of 32 columns */
static_assert(CUDA_WIDE_GLU_BYTES == 2 * GROUP * MEET_VALUES * 4 + 2 * 2 * 32 * 2 * UNIT,
              "put_wide_glu() has that room");

/* One group has gates, the other their values. Of 64 columns each gets what it lacks for half of them. The
 * 64 rows are a unit of the next product's inputs. */
template <uint32_t C>
DEVICE void put_wide_glu(const cuda_tiles &a, const wide_tile &tile, const float (&y)[C], uint8_t *shared)
{
    const uint32_t group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
    float *to = (float *)shared + threadIdx.x;
    const float *from = (float *)shared + (threadIdx.x ^ GROUP);
    uint16_t *outs = (uint16_t *)(shared + 2 * GROUP * MEET_VALUES * 4) + group * 2 * 32 * UNIT;
    const bool some = 2 * tile.row * UNIT < a.w.n;
#pragma unroll
    for (uint32_t q = 0; q < C / (2 * MEET_VALUES); q++) {
        const uint32_t mine = (2 * q) * MEET_VALUES, first = 64 * q + 32 * group;
        uint16_t *out = outs + q % 2 * 32 * UNIT;
        if (thread == 0)
            bulk_puts_wait<C / (2 * MEET_VALUES) % 2 == 0>();
        meet_at<2 * GROUP>(1); /* earlier readers */
#pragma unroll
        for (uint32_t i = 0; i < MEET_VALUES; i++)
            to[i * 2 * GROUP] = group ? y[mine + i] : y[mine + MEET_VALUES + i];
        meet_at<2 * GROUP>(1);
#pragma unroll
        for (uint32_t i = 0; i < MEET_VALUES; i++) {
            const float other = from[i * 2 * GROUP];
            const float gate = group ? other : y[mine + i], value = group ? y[mine + MEET_VALUES + i] : other;
            out[sum_column(i) * UNIT + rounded_place(sum_column(i), sum_row(i))] =
                __bfloat16_as_ushort(__float2bfloat16_rn(silu(gate) * value));
        }
        shared_written();
        meet_at<GROUP>(2 + group);
        if (thread == 0 && some && tile.count > first) {
            uint16_t *at =
                a.y_rounded.at + ((uint64_t)tile.row * a.y_rounded.rows + tile.first + first) * UNIT;
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(at),
                         "r"(shared_at(out)), "r"(min(tile.count - first, 32u) * 2 * UNIT)
                         : "memory");
        }
        if (thread == 0)
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

/* Small floats have a scale for each column. */
template <uint32_t C> DEVICE void scale_columns(const cuda_tiles &a, const wide_tile &tile, float (&y)[C])
{
#pragma unroll
    for (uint32_t i = 0; i < C; i += 4) {
        const float left = __ldcg(a.scales + tile.first + min(sum_column(i), tile.count - 1));
        const float right = __ldcg(a.scales + tile.first + min(sum_column(i + 1), tile.count - 1));
        y[i] *= left, y[i + 1] *= right, y[i + 2] *= left, y[i + 3] *= right;
    }
}

template <bool WHOLE, uint32_t CHAINS, uint32_t COLUMNS, class RING>
DEVICE void consume_wide(const RING &r, const wide_tile &tile, uint32_t units, turn &t)
{
    float c[COLUMNS / 2], sum[COLUMNS / 2];
    if constexpr (RING::FLOATS)
        multiply_small<CHAINS>(r, units, t, c, sum);
    if constexpr (RING::FLOATS)
        scale_columns(r.a, tile, CHAINS > 1 ? sum : c);
    else
        multiply<WHOLE, CHAINS>(r, units, t, c, sum);
    if (r.a.glu && CHAINS > 1)
        put_wide_glu(r.a, tile, sum, r.rest());
    else if (r.a.glu)
        put_wide_glu(r.a, tile, c, r.rest());
    else if (CHAINS > 1)
        put_wide(r.a, tile, sum);
    else
        put_wide(r.a, tile, c);
}

template <bool WHOLE, uint32_t CHAINS, uint32_t COLUMNS, class RING>
DEVICE void consume_all(const RING &r, uint32_t units)
{
    turn t = {0, 0};
    wide_tile tile;
    for (uint32_t i = blockIdx.x; find_wide_tile(r.a, i, tile); i += gridDim.x) {
        if (tile.count <= 64)
            consume_wide<WHOLE, CHAINS, 64>(r, tile, units, t);
        else if (tile.count <= 128)
            consume_wide<WHOLE, CHAINS, 128>(r, tile, units, t);
        else if (COLUMNS > 128)
            consume_wide<WHOLE, CHAINS, COLUMNS>(r, tile, units, t);
    }
    if (threadIdx.x % GROUP == 0)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS, bool SMALL> DEVICE void wide(const cuda_tiles &a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t full[CUDA_WIDE_STAGES], empty[CUDA_WIDE_STAGES];
    const wide_ring<BITS, COLUMNS, SMALL> r =
        ring_of<BITS, COLUMNS, CUDA_WIDE_DOWN, SMALL>(a, shared, full, empty);
    const uint32_t units = SMALL ? a.w.k / CUDA_SMALL_UNIT : fragment_units(a.w);
    grid_next();
    ring_begin(r, BITS < 16 ? GROUP + 1 : 1, CUDA_WIDE_DOWN);
    cluster_meet();
    if (threadIdx.x >= 2 * GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        turn t = {0, 1};
        wide_tile tile;
        if (BITS < 16 || threadIdx.x % 32 == 0) {
            grid_wait();
            for (uint32_t i = blockIdx.x; find_wide_tile(a, i, tile); i += gridDim.x)
                bring_wide<BITS, COLUMNS, SMALL>(r, tile, units, t);
            copies_wait_all();
        }
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        if (BITS < 16 && is_whole(a.w))
            consume_all<true, CHAINS, COLUMNS>(r, units);
        else
            consume_all<false, CHAINS, COLUMNS>(r, units);
    }
    cluster_meet(); /* others still arrive here */
}

/* ---- tiles of experts ---- */

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
    ret = {a.w.data + g.expert * a.w.expert_bytes, a.bias ? a.bias + (uint64_t)g.expert * a.bias_step : NULL,
           tile % downs * CUDA_TILE_ROWS, g.first, g.count};
    return true;
}

template <uint32_t BITS> using walk_ring = ring<BITS, CUDA_TILE_COLUMNS, 1>;

/* Pieces of inputs that a thread brings of each unit. */
#define WALK_PIECES (CUDA_TILE_COLUMNS * 8 / GROUP)

/* With `glu` each group of four warps has two panels of gates, then the panels of their values. */
DEVICE uint32_t walk_panel(const cuda_tiles &a, const walk_tile &tile, uint32_t i)
{
    uint32_t all = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL, first = tile.first_row / CUDA_PANEL;
    if (a.glu)
        return first / 2 + i / 4 * 2 + i % 2 + (i % 4 < 2 ? 0 : all / 2);
    return min(first + i, all - 1);
}

/* A lane of each warp brings two panels, all threads the rows of their columns. A row's pieces lie in an
 * order that its number gives, in a stage the column's number does. */
template <uint32_t BITS>
DEVICE void bring_walk(const walk_ring<BITS> &r, const walk_tile &tile, uint32_t units, turn &t)
{
    constexpr uint32_t EACH = PANELS / 4, CODES = 128 * BITS, X = walk_ring<BITS>::X;
    const cuda_tiles &a = r.a;
    const uint32_t thread = threadIdx.x % GROUP, mine = thread / 32, bytes = PANELS * (CODES + r.side);
    const uint32_t each = BITS == 16 || a.w.group <= UNIT ? 1 : a.w.group / UNIT;
    const uint64_t panel_bytes = fragment_panel_bytes(a.w);
    const uint8_t *panels[EACH];
    uint32_t from[WALK_PIECES], left = each;
    uint64_t at = 0, side_at = sides_at(a.w, 0);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
        panels[i] = tile.weights + walk_panel(a, tile, mine * EACH + i) * panel_bytes;
#pragma unroll
    for (uint32_t i = 0; i < WALK_PIECES; i++) {
        uint32_t column = min(thread / 8 + i * (GROUP / 8), tile.count - 1);
        from[i] = (a.x.first + input_row(a.sorted, a.x_div, tile.first + column)) * 8 + thread % 8;
    }
    const uint16_t *x = a.x.at;
#pragma unroll 1
    for (uint32_t u = 0; u < units; u++) {
        uint8_t *to = r.stages + t.stage * r.stage_bytes;
        uint64_t *b = &r.full[t.stage];
        barrier_wait(&r.empty[t.stage], t.phase);
        if (thread == 0)
            barrier_expect(b, bytes);
#pragma unroll
        for (uint32_t i = 0; thread % 32 == 0 && i < EACH; i++) {
            uint32_t p = mine * EACH + i;
            bulk_copy(to + X + p * CODES, panels[i] + at, CODES, b);
            if (BITS < 16)
                bulk_copy(to + X + PANELS * CODES + p * r.side, panels[i] + side_at, r.side, b);
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
            side_at += r.side;
            left = each;
        }
        t.next(a.stages);
    }
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

template <bool WHOLE, uint32_t COLUMNS, class RING>
DEVICE void consume_walked(const RING &r, const walk_tile &tile, uint32_t units, turn &t)
{
    float c[COLUMNS / 2], sum[COLUMNS / 2];
    multiply<WHOLE, CUDA_CHAINS>(r, units, t, c, sum);
    if (r.a.glu)
        put_walked_glu(r.a, tile, sum, (float *)r.rest());
    else
        put_walked(r.a, tile, sum);
}

template <bool WHOLE, class RING> DEVICE void consume_walk(const RING &r, uint32_t units)
{
    turn t = {0, 0};
    walk_tile tile;
    for (uint32_t i = blockIdx.x; find_walk_tile(r.a, i, tile); i += gridDim.x) {
        if (tile.count <= 32)
            consume_walked<WHOLE, 32>(r, tile, units, t);
        else if (tile.count <= 64)
            consume_walked<WHOLE, 64>(r, tile, units, t);
        else
            consume_walked<WHOLE, CUDA_TILE_COLUMNS>(r, tile, units, t);
    }
}

template <uint32_t BITS> DEVICE void walk(const cuda_tiles &a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t full[CUDA_WIDE_STAGES], empty[CUDA_WIDE_STAGES];
    const walk_ring<BITS> r = ring_of<BITS, CUDA_TILE_COLUMNS, 1>(a, shared, full, empty);
    const uint32_t units = fragment_units(a.w);
    grid_next();
    ring_begin(r, GROUP + 1, 1);
    __syncthreads();
    grid_wait();
    if (threadIdx.x >= 2 * GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        turn t = {0, 1};
        walk_tile tile;
        for (uint32_t i = blockIdx.x; find_walk_tile(a, i, tile); i += gridDim.x)
            bring_walk<BITS>(r, tile, units, t);
        copies_wait_all();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        if (BITS < 16 && is_whole(a.w))
            consume_walk<true>(r, units);
        else
            consume_walk<false>(r, units);
    }
}

#define CLUSTER __cluster_dims__(1, CUDA_WIDE_DOWN, 1)
#else
#define CLUSTER
template <uint32_t BITS, uint32_t CHAINS, uint32_t COLUMNS, bool SMALL> DEVICE void wide(const cuda_tiles &a)
{
}
template <uint32_t BITS> DEVICE void walk(const cuda_tiles &a)
{
}
#endif

#define WIDE(name, bits, chains, small)                                                                   \
    extern "C" __global__ void CLUSTER __launch_bounds__(CUDA_WIDE_THREADS, 1)                               \
        plateau_##name(const __grid_constant__ cuda_tiles a)                                                 \
    {                                                                                                        \
        wide<bits, chains, CUDA_WIDE_COLUMNS_##chains, small>(a);                                            \
    }

#endif
