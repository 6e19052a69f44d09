/* few.cu - products of up to 128 columns by wgmma (sm_90a), with the arithmetic and the bits of bf16.cu.
 *
 * With 8 chains a cluster of as many blocks has 128 rows, each block a chain of them. The sums meet in shared
 * memory, where each block adds up, in the chains' order, those of some columns. With 1 chain a block has 192
 * rows. A warp has 16 rows. It asks for the codes of units ahead in registers, before the kernel in front has
 * ended; one thread brings the inputs into a ring in shared memory. */
#include "compute/cuda/kernels/wgmma.cuh"

#define LANES 32u

#if __CUDA_ARCH_FEAT_SM90_ALL

/* Units of weights that a warp has on their way. */
template <uint32_t BITS, uint32_t CHAINS> DEVICE constexpr uint32_t ahead()
{
    return CHAINS > 1 ? (BITS == 4 ? 3 : 2) : (BITS == 4 ? 6 : 4);
}

DEVICE uint4 load_once(const uint8_t *at)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(at));
    return v;
}
DEVICE void barrier_arrive(uint64_t *b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(b)) : "memory");
}

/* A lane's part of a unit. */
template <uint32_t BITS> struct unit_codes {
    uint4 q[BITS / 4];
    raw_sides raw;
};

/* A warp's way through the units of its panel. */
template <uint32_t BITS> struct panel_codes {
    const uint8_t *codes, *sides; /* the lane's */
    uint32_t side, each, left;    /* a unit's bytes of sides; units of a group, and to come of this one */

    __device__ __forceinline__ void begin(const cuda_matrix &m, uint32_t panel, uint32_t from)
    {
        const uint32_t lane = threadIdx.x % LANES;
        const uint8_t *at = m.data + panel * fragment_panel_bytes(m);
        codes = at + (uint64_t)from * 128 * BITS + lane * 16;
        side = unit_side_bytes(m);
        each = BITS < 16 && m.group > UNIT ? m.group / UNIT : 1;
        left = each - from % each;
        sides = at + sides_at(m, 0) + (uint64_t)(from / each) * side +
                (BITS < 16 && m.group < UNIT ? lane % 4 * 16 / m.group * CUDA_PANEL * side_bytes(m) : 0);
    }
    template <bool WHOLE> __device__ __forceinline__ void load(const cuda_matrix &m, unit_codes<BITS> &ret)
    {
#pragma unroll
        for (uint32_t i = 0; i < BITS / 4; i++)
            ret.q[i] = load_once(codes + i * 512);
        codes += 128 * BITS;
        if (BITS == 16)
            return;
        ret.raw = sides_from<WHOLE>(sides, m, threadIdx.x % LANES / 4);
        if (--left == 0) {
            sides += side;
            left = each;
        }
    }
};

template <uint32_t BITS, uint32_t CHAINS> struct few_block {
    static constexpr uint32_t WARPS = CHAINS > 1 ? CUDA_FEW_PANELS_8 : CUDA_FEW_PANELS_1;
    static constexpr uint32_t ROWS = WARPS * CUDA_PANEL, PITCH = ROWS + 4, AHEAD = ahead<BITS, CHAINS>();
    const cuda_tiles &a;
    uint8_t *shared; /* the stages, then the sums: [columns][PITCH] */
    uint64_t *full, *empty;
    uint32_t first, count, from, units; /* columns; units */

    /* With `glu` the second half are the values' panels; past the last one it comes again. */
    __device__ __forceinline__ uint32_t panel() const
    {
        const uint32_t all = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL, i = threadIdx.x / LANES;
        if (a.glu)
            return min(blockIdx.y * (WARPS / 2) + i % (WARPS / 2), all / 2 - 1) +
                   (i < WARPS / 2 ? 0 : all / 2);
        return min(blockIdx.y * WARPS + i, all - 1);
    }

    /* By one thread. */
    __device__ __forceinline__ void bring(uint32_t stage_bytes) const
    {
        const uint16_t *x = a.x.at + ((uint64_t)from * a.x.rows + a.x.first + first) * UNIT;
        const uint32_t bytes = count * 2 * UNIT;
        turn t = {0, 1};
#pragma unroll 1
        for (uint32_t u = 0; u < units; u++, x += (uint64_t)a.x.rows * UNIT) {
            barrier_wait(&empty[t.stage], t.phase);
            barrier_expect(&full[t.stage], bytes);
            bulk_copy(shared + t.stage * stage_bytes, x, bytes, &full[t.stage]);
            t.next(a.stages);
        }
    }

    /* A chain's sums. */
    template <bool WHOLE, uint32_t COLUMNS>
    __device__ __forceinline__ void multiply(float (&c)[COLUMNS / 2], panel_codes<BITS> &in,
                                             unit_codes<BITS> (&held)[AHEAD]) const
    {
        turn t = {0, 0};
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            c[i] = 0;
#pragma unroll 1
        for (uint32_t u = 0; u < units; u += AHEAD) {
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++) {
                const bool more = u + i + AHEAD < units;
                uint32_t f[16];
                if (u + i >= units)
                    break;
                unit_fragments<BITS, WHOLE>(f, held[i].q, held[i].raw, a.w);
                if (BITS < 16 && more)
                    in.template load<WHOLE>(a.w, held[i]);
                barrier_wait(&full[t.stage], t.phase);
                const uint64_t x = inputs_of(shared_at(shared + t.stage * COLUMNS * 2 * UNIT));
                wgmma_begin();
#pragma unroll
                for (uint32_t j = 0; j < 4; j++)
                    wgmma(c, f + 4 * j, x + 2 * j);
                wgmma_end();
                wgmma_wait<0>();
                if (BITS == 16 && more)
                    in.template load<WHOLE>(a.w, held[i]);
                if (threadIdx.x % LANES == 0)
                    barrier_arrive(&empty[t.stage]);
                t.next(a.stages);
            }
        }
    }

    template <uint32_t COLUMNS> __device__ __forceinline__ void put_sums(const float (&c)[COLUMNS / 2]) const
    {
        float *sums = (float *)shared;
        const uint32_t lane = threadIdx.x % LANES, row = threadIdx.x / LANES * CUDA_PANEL + lane / 4;
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            sums[(i / 4 * 8 + lane % 4 * 2 + i % 2) * PITCH + row + i % 4 / 2 * 8] = c[i];
    }

    /* All chains of rows [row, row + 4). */
    __device__ __forceinline__ float4 sums_at(uint32_t column, uint32_t row) const
    {
        float *at = (float *)shared + column * PITCH + row;
        float4 parts[CHAINS], sum;
#pragma unroll
        for (uint32_t i = 0; i < CHAINS; i++)
            parts[i] = *(const float4 *)(CHAINS > 1 ? far_of(at, i) : at);
        sum = parts[0];
#pragma unroll
        for (uint32_t i = 1; i < CHAINS; i++)
            sum = add_four(sum, 1, parts[i]);
        return sum;
    }
    __device__ __forceinline__ void put_four_rows(uint32_t column, uint32_t row, float4 v) const
    {
        float *to = row_of(a.y, column) + row;
        const float values[4] = {v.x, v.y, v.z, v.w};
        if (row + 4 <= a.w.n && !a.bias && (uintptr_t)to % 16 == 0) {
            *(float4 *)to = v;
            return;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (row + i < a.w.n)
                to[i] = a.bias ? values[i] + a.bias[row + i] : values[i];
    }
    /* Every CHAINS-th column is the block's. */
    __device__ __forceinline__ void put_outputs() const
    {
        const uint32_t fours = (a.glu ? ROWS / 2 : ROWS) / 4, rank = CHAINS > 1 ? cluster_rank() : 0;
        const uint32_t first_row = blockIdx.y * fours * 4;
        for (uint32_t i = threadIdx.x; i / fours * CHAINS + rank < count; i += blockDim.x) {
            const uint32_t column = i / fours * CHAINS + rank, row = i % fours * 4;
            float4 v = sums_at(column, row);
            if (!a.glu) {
                put_four_rows(first + column, first_row + row, v);
                continue;
            }
            const float4 w = sums_at(column, row + ROWS / 2);
            v = {silu(v.x) * w.x, silu(v.y) * w.y, silu(v.z) * w.z, silu(v.w) * w.w};
            if (2 * (first_row + row) < a.w.n)
                put_four(a.y_rounded, first + column, first_row + row, v);
        }
    }

    template <bool WHOLE> __device__ __forceinline__ void run(uint32_t stage_bytes) const
    {
        panel_codes<BITS> in;
        unit_codes<BITS> held[AHEAD];
        const bool brings = threadIdx.x == WARPS * LANES, multiplies = threadIdx.x < WARPS * LANES;
        if (multiplies) {
            in.begin(a.w, panel(), from);
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++)
                if (i < units)
                    in.template load<WHOLE>(a.w, held[i]);
        }
        if (a.beside)
            grid_seen();
        else
            grid_wait();
        if (brings)
            bring(stage_bytes);
        __syncwarp();
        if (count <= 32) {
            float c[16];
            if (multiplies)
                multiply<WHOLE, 32>(c, in, held);
            __syncthreads();
            if (multiplies)
                put_sums<32>(c);
        } else {
            float c[32];
            if (multiplies)
                multiply<WHOLE, 64>(c, in, held);
            __syncthreads();
            if (multiplies)
                put_sums<64>(c);
        }
        if (CHAINS > 1)
            cluster_meet();
        else
            __syncthreads();
        put_outputs();
        if (CHAINS > 1)
            cluster_meet(); /* others still read here */
    }
};

template <uint32_t BITS, uint32_t CHAINS> DEVICE void few(const cuda_tiles &a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ uint64_t full[CUDA_FEW_STAGES], empty[CUDA_FEW_STAGES];
    const uint32_t units = fragment_units(a.w), first = blockIdx.x * CUDA_FEW_COLUMNS;
    const uint32_t chain = CHAINS > 1 ? blockIdx.z : 0, from = chain_begin(units, chain, CHAINS);
    const few_block<BITS, CHAINS> b = {a,
                                       shared + (0u - shared_at(shared)) % 1024,
                                       full,
                                       empty,
                                       first,
                                       min(CUDA_FEW_COLUMNS, a.count - first),
                                       from,
                                       chain_begin(units, chain + 1, CHAINS) - from};
    const uint32_t stage_bytes = (b.count <= 32 ? 32 : 64) * 2 * UNIT;
    grid_next();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < a.stages; i++) {
            barrier_init(&full[i], 1);
            barrier_init(&empty[i], b.WARPS);
        }
        barriers_made();
    }
    __syncthreads();
    if (BITS < 16 && is_whole(a.w))
        b.template run<true>(stage_bytes);
    else
        b.template run<false>(stage_bytes);
    if (a.beside)
        grid_wait();
}

#define CLUSTER_1
#define CLUSTER_8 __cluster_dims__(1, 1, CUDA_CHAINS)
#else
#define CLUSTER_1
#define CLUSTER_8
template <uint32_t BITS, uint32_t CHAINS> DEVICE void few(const cuda_tiles &a)
{
}
#endif

#define FEW(bits, chains)                                                                                    \
    extern "C" __global__ void CLUSTER_##chains                                                              \
        __launch_bounds__((CUDA_FEW_PANELS_##chains + 1) * LANES, CUDA_FEW_BLOCKS_##chains)                  \
            plateau_few##bits##_##chains(const __grid_constant__ cuda_tiles a)                               \
    {                                                                                                        \
        few<bits, chains>(a);                                                                                \
    }
FEW(16, 1)
FEW(16, 8)
FEW(8, 1)
FEW(8, 8)
FEW(4, 1)
FEW(4, 8)
