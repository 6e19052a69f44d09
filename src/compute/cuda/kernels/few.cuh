/* few.cuh - products of up to 256 columns by wgmma (sm_90a), with the arithmetic and the bits of bf16.cu.
 *
 * A block on each multiprocessor walks through items: with 8 chains a chain of 128 rows, with 1 chain 192
 * rows. A warp brings weights into a ring of stages, also before the kernel in front has ended, another one
 * brings inputs into a ring of units. Groups of four warps have 64 rows each. With 8 chains the blocks put
 * their items' sums into memory, from where L2 has them, and meet once all items are done; then each adds up
 * the chains of some sums. Clusters would hand sums on through shared memory, but of eight blocks with all of
 * a multiprocessor's shared memory only 15 find room on an H200, which leaves 12 multiprocessors idle. */
#ifndef PLATEAU_CUDA_FEW_CUH
#define PLATEAU_CUDA_FEW_CUH

#include "compute/cuda/kernels/wgmma.cuh"

#include <stddef.h>

#define LANES 32u
#define GROUP 128u /* threads */

#if __CUDA_ARCH_FEAT_SM90_ALL

/* Barriers by their addresses: of a pointer the compiler makes one anew for each use. */
DEVICE void barrier_arrive(uint32_t b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
DEVICE void barrier_wait(uint32_t b, uint32_t phase)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(b),
                 "r"(phase)
                 : "memory");
}
/* Returns x, which the compiler keeps in a register from here on. */
DEVICE uint32_t kept(uint32_t x)
{
    asm volatile("mov.u32 %0, %0;" : "+r"(x));
    return x;
}

/* Waits for all blocks of the kernel, by THREADS of each. At most one is launched for each multiprocessor, so
 * all of them run at the same time. What was written before it is seen by loads past L1 after it. `at`: the
 * number of blocks that wait, 0 before and after; how often all had come. */
template <uint32_t THREADS> DEVICE void blocks_meet(uint32_t *at)
{
    meet_at<THREADS>(1);
    if (threadIdx.x == 0) {
        uint32_t before, now;
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(before) : "l"(at + 1) : "memory");
        if (count_up(at) + 1 == gridDim.x) {
            *at = 0;
            count_up(at + 1);
        } else {
            do
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(at + 1) : "memory");
            while (now == before);
        }
    }
    meet_at<THREADS>(1);
}

struct few_barriers {
    uint64_t full_weights[CUDA_FEW_STAGES], empty_weights[CUDA_FEW_STAGES];
    uint64_t full_inputs[CUDA_FEW_INPUTS_MOST], empty_inputs[CUDA_FEW_INPUTS_MOST];
};
/* Address of a barrier. */
#define AT(member, i) (barriers + (uint32_t)offsetof(few_barriers, member) + (i)*8u)

/* A chain of a tile: of its rows, and of up to 128 columns. */
struct few_item {
    uint32_t tile, first, count, from, units; /* first, count: columns */
};

struct few_turns {
    turn weights, inputs;
    uint32_t unit, side_at, left; /* units of the stage so far, their bytes of sides; left of the group */
};

/* Where a consumer finds things in shared memory. */
struct few_places {
    uint32_t barriers, inputs, codes, sides; /* codes, sides: the lane's */
};

/* SMALL: weights and inputs are small floats. A unit has 128 k then, and as many bytes as one of 16 bits. */
template <uint32_t BITS, uint32_t CHAINS, bool SMALL> struct few_block {
    /* With 1 chain small floats' scales come from memory past shared memory: copies of so few bytes would
     * bind. Chains of few units would wait for them instead. */
    static constexpr bool SIDES = BITS < 16 || (SMALL && CHAINS > 1);
    static constexpr uint32_t GROUPS = CHAINS > 1 ? CUDA_FEW_GROUPS_8 : CUDA_FEW_GROUPS_1;
    static constexpr uint32_t PANELS = 4 * GROUPS, ROWS = PANELS * CUDA_PANEL, THREADS = GROUPS * GROUP;
    static constexpr uint32_t CODES = 128 * BITS, UNITS = CUDA_FEW_UNITS(BITS);
    const cuda_tiles &a;
    few_barriers &b;
    uint8_t *inputs, *weights, *rest; /* rings; where gates meet their values */
    uint32_t side, each, stage_bytes; /* a unit's bytes of sides; units of a group of them */

    __device__ __forceinline__ uint32_t tiles() const
    {
        return (a.w.n + ROWS - 1) / ROWS;
    }
    /* Tiles that have the same rows. */
    __device__ __forceinline__ uint32_t across() const
    {
        return (a.count + a.columns - 1) / a.columns;
    }
    __device__ __forceinline__ bool find(uint32_t i, few_item &ret) const
    {
        const uint32_t all = SMALL ? a.w.k / CUDA_SMALL_UNIT : fragment_units(a.w);
        const uint32_t chain = i % CHAINS, from = chain_begin(all, chain, CHAINS);
        const uint32_t first = i / CHAINS % across() * a.columns;
        ret = {i / CHAINS / across(), first, min(a.count - first, a.columns), from,
               chain_begin(all, chain + 1, CHAINS) - from};
        return ret.tile < tiles();
    }
    /* With `glu` the second half of each group's are the values' panels; past the last one it comes again. */
    __device__ __forceinline__ uint32_t panel(uint32_t tile, uint32_t i) const
    {
        const uint32_t all = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL;
        if (a.glu)
            return min(tile * (PANELS / 2) + i / 4 * 2 + i % 2, all / 2 - 1) + (i % 4 < 2 ? 0 : all / 2);
        return min(tile * PANELS + i, all - 1);
    }

    /* A lane for each panel. */
    __device__ __forceinline__ void bring_weights() const
    {
        const uint32_t lane = threadIdx.x % LANES;
        turn t = {0, 1};
        few_item item;
#pragma unroll 1
        for (uint32_t i = blockIdx.x; find(i, item); i += gridDim.x) {
            const uint8_t *at = a.w.data + panel(item.tile, lane) * fragment_panel_bytes(a.w);
            const uint8_t *sides = at + sides_at(a.w, 0);
            at += (uint64_t)item.from * CODES;
#pragma unroll 1
            for (uint32_t u = 0; u < item.units; u += UNITS) {
                const uint32_t count = min(UNITS, item.units - u), first = (item.from + u) / each;
                const uint32_t side_bytes =
                    SIDES ? ((item.from + u + count - 1) / each - first + 1) * side : 0;
                uint8_t *to = weights + t.stage * stage_bytes;
                uint64_t *full = &b.full_weights[t.stage];
                barrier_wait(&b.empty_weights[t.stage], t.phase);
                if (lane == 0)
                    barrier_expect(full, PANELS * (count * CODES + side_bytes));
                bulk_copy(to + lane * UNITS * CODES, at, count * CODES, full);
                if (SIDES)
                    bulk_copy(to + PANELS * UNITS * CODES + lane * UNITS * side,
                              sides + (uint64_t)first * side, side_bytes, full);
                at += UNITS * CODES;
                t.next(a.stages);
            }
        }
    }
    /* By one thread. */
    __device__ __forceinline__ void bring_inputs(uint32_t stages) const
    {
        const uint32_t stage = a.columns * 2 * UNIT;
        turn t = {0, 1};
        few_item item;
#pragma unroll 1
        for (uint32_t i = blockIdx.x; find(i, item); i += gridDim.x) {
            const uint16_t *x = a.x.at + ((uint64_t)item.from * a.x.rows + a.x.first + item.first) * UNIT;
            const uint32_t bytes = item.count * 2 * UNIT;
#pragma unroll 1
            for (uint32_t u = 0; u < item.units; u++, x += (uint64_t)a.x.rows * UNIT) {
                barrier_wait(&b.empty_inputs[t.stage], t.phase);
                barrier_expect(&b.full_inputs[t.stage], bytes);
                bulk_copy(inputs + t.stage * stage, x, bytes, &b.full_inputs[t.stage]);
                t.next(stages);
            }
        }
    }

    __device__ __forceinline__ few_places places() const
    {
        const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, at = shared_at(weights);
        const uint32_t within =
            BITS == 16 || a.w.group >= UNIT ? 0 : lane % 4 * 16 / a.w.group * CUDA_PANEL * side_bytes(a.w);
        return {kept(shared_at(&b)), kept(shared_at(inputs)), kept(at + warp * UNITS * CODES + lane * 16),
                kept(at + PANELS * UNITS * CODES + warp * UNITS * side + within)};
    }

    /* The lane's codes of the next unit. Its stage is given back when it is the stage's last. */
    template <bool WHOLE>
    __device__ __forceinline__ void read(uint4 (&q)[BITS / 4], raw_sides &raw, const few_places &p,
                                         few_turns &t, bool last) const
    {
        const uint32_t barriers = p.barriers, stage = t.weights.stage * stage_bytes;
        if (t.unit == 0)
            barrier_wait(AT(full_weights, t.weights.stage), t.weights.phase);
#pragma unroll
        for (uint32_t j = 0; j < BITS / 4; j++)
            q[j] = read_piece(p.codes + stage + t.unit * CODES + j * 512);
        if (BITS < 16) {
            const uint32_t at = p.sides + stage + t.side_at, row = threadIdx.x % LANES / 4;
            if (WHOLE) {
                raw.v[0] = read_word(at + row * 4), raw.v[1] = read_word(at + row * 4 + 32);
                raw.v[2] = raw.v[3] = 0;
            } else {
                raw = sides_from<false>((const uint8_t *)__cvta_shared_to_generic(at), a.w, row);
            }
            if (--t.left == 0) {
                t.left = each;
                t.side_at += side;
            }
        }
        if (++t.unit == UNITS || last) {
            t.unit = t.side_at = 0;
            __syncwarp();
            if (threadIdx.x % LANES == 0)
                barrier_arrive(AT(empty_weights, t.weights.stage));
            t.weights.next(a.stages);
        }
    }

    /* The sums of an item. Codes of less than 16 bits are read while wgmma multiplies the unit before. */
    template <bool WHOLE, uint32_t COLUMNS>
    __device__ __forceinline__ void multiply(float (&c)[COLUMNS / 2], const few_item &item,
                                             const few_places &p, few_turns &t) const
    {
        const uint32_t barriers = p.barriers;
        uint32_t f[16], before = 0;
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            c[i] = 0;
        if (BITS < 16)
            t.left = each - item.from % each;
#pragma unroll 1
        for (uint32_t u = 0; u < item.units; u++) {
            uint4 q[BITS / 4];
            raw_sides raw = {};
            if (BITS == 16)
                wgmma_wait<0>(); /* the codes are its operands */
            read<WHOLE>(q, raw, p, t, u + 1 == item.units);
            if (BITS < 16)
                wgmma_wait<0>();
            if (u > 0 && threadIdx.x % LANES == 0)
                barrier_arrive(AT(empty_inputs, before));
            unit_fragments<BITS, WHOLE>(f, q, raw, a.w);
            before = t.inputs.stage;
            barrier_wait(AT(full_inputs, before), t.inputs.phase);
            const uint64_t x = inputs_of(p.inputs + before * COLUMNS * 2 * UNIT);
            wgmma_begin();
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                wgmma(c, f + 4 * j, x + 2 * j);
            wgmma_end();
            t.inputs.next(CUDA_FEW_INPUTS(COLUMNS));
        }
        wgmma_wait<0>();
        if (item.units > 0 && threadIdx.x % LANES == 0)
            barrier_arrive(AT(empty_inputs, before));
    }

    __device__ __forceinline__ void load_scales(uint32_t (&raw)[2], const uint8_t *at) const
    {
        raw[0] = __ldg((const uint32_t *)at);
        raw[1] = __ldg((const uint32_t *)(at + 8 * side_bytes(a.w)));
    }
    /* As `multiply()`, but of small floats. A unit's products are sums of their own. */
    template <uint32_t COLUMNS>
    __device__ __forceinline__ void multiply_small(float (&c)[COLUMNS / 2], const few_item &item,
                                                   const few_places &p, few_turns &t) const
    {
        const uint32_t barriers = p.barriers;
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 2; i++)
            c[i] = 0;
        const uint8_t *scales = a.w.data + panel(item.tile, threadIdx.x / LANES) * fragment_panel_bytes(a.w) +
                                sides_at(a.w, item.from) + threadIdx.x % LANES / 4 * side_bytes(a.w);
        uint32_t raw[2] = {};
        if (!SIDES && item.units > 0)
            load_scales(raw, scales);
#pragma unroll 1
        for (uint32_t u = 0; u < item.units; u++) {
            const uint32_t at = t.weights.stage * stage_bytes, stage = t.inputs.stage;
            uint4 q[4];
            float products[COLUMNS / 2];
            barrier_wait(AT(full_weights, t.weights.stage), t.weights.phase);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                q[j] = read_piece(p.codes + at + j * 512);
            const row_scales rows = SIDES ? row_scales_at(p.sides + at, a.w) : row_scales_of(raw, a.w);
            __syncwarp();
            if (threadIdx.x % LANES == 0)
                barrier_arrive(AT(empty_weights, t.weights.stage));
            t.weights.next(a.stages);
            barrier_wait(AT(full_inputs, stage), t.inputs.phase);
            const uint64_t x = inputs_of(p.inputs + stage * COLUMNS * 2 * UNIT);
            wgmma_begin();
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                wgmma_small(products, q[j], x + 2 * j, j);
            wgmma_end();
            if (!SIDES && u + 1 < item.units) {
                scales += CUDA_PANEL * side_bytes(a.w);
                load_scales(raw, scales);
            }
            wgmma_wait<0>();
            if (threadIdx.x % LANES == 0)
                barrier_arrive(AT(empty_inputs, stage));
            add_scaled(c, products, rows);
            t.inputs.next(CUDA_FEW_INPUTS(COLUMNS));
        }
    }

    /* ---- outputs ---- */

    /* Four of a thread's sums get the scales of their columns. */
    __device__ __forceinline__ void scale_sums(uint32_t column, float *v) const
    {
        column += threadIdx.x % 4 * 2;
        if (SMALL) {
            const float x = __ldcg(a.scales + min(column, a.count - 1));
            const float y = __ldcg(a.scales + min(column + 1, a.count - 1));
            v[0] *= x, v[1] *= y, v[2] *= x, v[3] *= y;
        }
    }
    /* Four of a thread's sums: two rows of two columns. */
    __device__ __forceinline__ void put_sums(uint32_t tile, uint32_t column, const float *v) const
    {
        const uint32_t row = tile * ROWS + threadIdx.x / LANES * CUDA_PANEL + threadIdx.x % LANES / 4;
        column += threadIdx.x % 4 * 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t r = row + i / 2 * 8;
            if (r < a.w.n && column + i % 2 < a.count)
                row_of(a.y, column + i % 2)[r] = a.bias ? v[i] + a.bias[r] : v[i];
        }
    }
    /* With `glu`; w: of the panel's values. */
    __device__ __forceinline__ void put_glu(uint32_t tile, uint32_t column, const float *v,
                                            const float *w) const
    {
        const uint32_t row = tile * (ROWS / 2) + threadIdx.x / GROUP * 32 +
                             threadIdx.x / LANES % 2 * CUDA_PANEL + threadIdx.x % LANES / 4;
        column += threadIdx.x % 4 * 2;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t r = row + i / 2 * 8;
            if (2 * r < a.w.n && column + i % 2 < a.count)
                put_rounded(a.y_rounded, column + i % 2, r, silu(v[i]) * w[i]);
        }
    }

    /* With 1 chain. Each half of a group hands on half of its columns. */
    template <uint32_t COLUMNS>
    __device__ __forceinline__ void put_one_chain(const few_item &item, const float (&c)[COLUMNS / 2]) const
    {
        constexpr uint32_t HALF = COLUMNS / 4;
        if (!a.glu) {
#pragma unroll
            for (uint32_t i = 0; i < COLUMNS / 8; i++)
                put_sums(item.tile, item.first + 8 * i, c + 4 * i);
            return;
        }
        const uint32_t name = 1 + threadIdx.x / GROUP;
        const bool second = threadIdx.x % GROUP >= GROUP / 2;
        float *to = (float *)rest + threadIdx.x, *from = (float *)rest + (threadIdx.x ^ (GROUP / 2));
        meet_at<GROUP>(name); /* earlier readers */
#pragma unroll
        for (uint32_t i = 0; i < HALF; i++)
            to[i * THREADS] = second ? c[i] : c[i + HALF];
        meet_at<GROUP>(name);
#pragma unroll
        for (uint32_t i = 0; i < HALF / 4; i++) {
            float other[4], mine[4];
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                other[j] = from[(4 * i + j) * THREADS];
                mine[j] = second ? c[4 * i + j + HALF] : c[4 * i + j];
            }
            if (second)
                put_glu(item.tile, item.first + 8 * i + COLUMNS / 2, other, mine);
            else
                put_glu(item.tile, item.first + 8 * i, mine, other);
        }
    }

    /* With 8 chains. Sums of all items: [items][COLUMNS / 8][THREADS][4]. */
    __device__ __forceinline__ float4 *parts_of(uint32_t item, uint32_t eighth) const
    {
        return (float4 *)a.parts + ((uint64_t)item * (a.columns / 8) + eighth) * THREADS;
    }
    template <uint32_t COLUMNS>
    __device__ __forceinline__ void put_parts(uint32_t item, uint32_t count,
                                              const float (&c)[COLUMNS / 2]) const
    {
        float4 *to = parts_of(item, 0) + threadIdx.x;
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 8; i++)
            if (8 * i < count)
                __stcg(to + i * THREADS, make_float4(c[4 * i], c[4 * i + 1], c[4 * i + 2], c[4 * i + 3]));
    }
    __device__ __forceinline__ void add_parts(float (&ret)[4], uint32_t item, uint32_t eighth,
                                              uint32_t thread) const
    {
        float4 parts[CHAINS], sum;
#pragma unroll
        for (uint32_t i = 0; i < CHAINS; i++)
            parts[i] = __ldcg(parts_of(item + i, eighth) + thread);
        sum = parts[0];
#pragma unroll
        for (uint32_t i = 1; i < CHAINS; i++)
            sum = add_four(sum, 1, parts[i]);
        ret[0] = sum.x, ret[1] = sum.y, ret[2] = sum.z, ret[3] = sum.w;
    }
    __device__ __forceinline__ void join() const
    {
        const uint32_t eighths = a.columns / 8, all = tiles() * across() * eighths;
        blocks_meet<THREADS>(a.meet);
#pragma unroll 1
        for (uint32_t i = blockIdx.x; i < all; i += gridDim.x) {
            const uint32_t eighth = i % eighths, tile = i / eighths / across(), item = i / eighths * CHAINS;
            const uint32_t column = i / eighths % across() * a.columns + 8 * eighth;
            float v[4], w[4];
            if (column >= a.count || (a.glu && threadIdx.x % GROUP >= GROUP / 2))
                continue;
            add_parts(v, item, eighth, threadIdx.x);
            scale_sums(column, v);
            if (a.glu) {
                add_parts(w, item, eighth, threadIdx.x + GROUP / 2);
                scale_sums(column, w);
                put_glu(tile, column, v, w);
            } else {
                put_sums(tile, column, v);
            }
        }
    }

    template <bool WHOLE, uint32_t COLUMNS> __device__ __forceinline__ void consume() const
    {
        const few_places p = places();
        few_turns t = {};
        few_item item;
#pragma unroll 1
        for (uint32_t i = blockIdx.x; find(i, item); i += gridDim.x) {
            float c[COLUMNS / 2];
            if constexpr (SMALL)
                multiply_small<COLUMNS>(c, item, p, t);
            else
                multiply<WHOLE, COLUMNS>(c, item, p, t);
            grid_wait(); /* for an item without units */
            if (CHAINS > 1) {
                put_parts<COLUMNS>(i, item.count, c);
                continue;
            }
#pragma unroll
            for (uint32_t j = 0; j < COLUMNS / 8; j++)
                scale_sums(item.first + 8 * j, c + 4 * j);
            put_one_chain<COLUMNS>(item, c);
        }
    }
    template <bool WHOLE> __device__ __forceinline__ void consume() const
    {
        if (a.columns == 32)
            consume<WHOLE, 32>();
        else if (a.columns == 64)
            consume<WHOLE, 64>();
        if constexpr (SMALL)
            if (a.columns == 16)
                consume<WHOLE, 16>();
        if constexpr (!SMALL || CHAINS > 1)
            if (a.columns == 128)
                consume<WHOLE, 128>();
        if (CHAINS > 1)
            join();
    }
    __device__ __forceinline__ void begin() const
    {
        for (uint32_t i = 0; i < a.stages; i++) {
            barrier_init(&b.full_weights[i], 1);
            barrier_init(&b.empty_weights[i], PANELS);
        }
        for (uint32_t i = 0; i < CUDA_FEW_INPUTS_MOST; i++) {
            barrier_init(&b.full_inputs[i], 1);
            barrier_init(&b.empty_inputs[i], PANELS);
        }
        barriers_made();
    }
};

template <uint32_t BITS, uint32_t CHAINS, bool SMALL> DEVICE void few(const cuda_tiles &a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ few_barriers barriers;
    using block = few_block<BITS, CHAINS, SMALL>;
    const uint32_t side = block::SIDES ? unit_side_bytes(a.w) : 0, input_stages = CUDA_FEW_INPUTS(a.columns);
    const uint32_t stage_bytes = block::PANELS * block::UNITS * (block::CODES + side);
    uint8_t *inputs = shared + (0u - shared_at(shared)) % 1024;
    uint8_t *weights = inputs + input_stages * a.columns * 2 * UNIT;
    const block b = {a,
                     barriers,
                     inputs,
                     weights,
                     weights + a.stages * stage_bytes,
                     side,
                     SMALL || BITS == 16 || a.w.group <= UNIT ? 1 : a.w.group / UNIT,
                     stage_bytes};
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    grid_next();
    if (threadIdx.x == 0)
        b.begin();
    __syncthreads();
    if (warp < block::PANELS) {
        if (CHAINS > 1)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        else
            asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
        if (BITS < 16 && is_whole(a.w))
            b.template consume<true>();
        else
            b.template consume<false>();
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        if (warp == block::PANELS && lane < block::PANELS)
            b.bring_weights();
        if (warp == block::PANELS + 1 && lane == 0) {
            grid_wait();
            b.bring_inputs(input_stages);
        }
    }
}
#else
template <uint32_t BITS, uint32_t CHAINS, bool SMALL> DEVICE void few(const cuda_tiles &a)
{
}
#endif

#define FEW(name, bits, chains, small)                                                                       \
    extern "C" __global__ void __launch_bounds__(CUDA_FEW_THREADS(chains), 1)                                \
        plateau_##name(const __grid_constant__ cuda_tiles a)                                                 \
    {                                                                                                        \
        few<bits, chains, small>(a);                                                                         \
    }

#endif
