/* bf16.cu - products of bf16 weights and inputs on the tensor cores, with sums in f32.
 *
 * The arithmetic of an output: inputs are rounded to bf16. The U units of k (kernels/fragment.cuh) form 8
 * chains, or 1 for matrices of many rows; chain c has units [c U / 8, (c + 1) U / 8).
 * p[c] = mma.m16n8k16 over its steps in order, from 0. y = ((p[0] + p[1]) + ...) + bias.
 * Both kernels below compute exactly that: an output's bits do not depend on the columns beside it. */
#include "compute/cuda/kernels/mma.cuh"

#define ALL_LANES 0xffffffffu

/* Warps of a block for few columns: one for each chain, or as many as its launch says, an even number. */
template <uint32_t CHAINS> DEVICE uint32_t narrow_warps()
{
    return CHAINS > 1 ? CHAINS : blockDim.x / 32;
}
/* Sums that warps of a block hand on: the chains' of a panel, or the values' of half of the warps. */
typedef float narrow_sums[CUDA_CHAINS][CUDA_NARROW_COLUMNS * CUDA_PANEL];
static_assert(CUDA_NARROW_WARPS_1 / 2 <= CUDA_CHAINS, "half of the warps have room");

/* ---- few columns: a warp has a chain, or a panel; weights come through a ring of its own ---- */

template <uint32_t BITS> struct ring {
    enum : uint32_t {
        PIECES = BITS / 4,
        CODES = 128 * BITS,
        STAGES = BITS == 16  ? CUDA_RING_16
                 : BITS == 8 ? CUDA_RING_8
                             : CUDA_RING_4,
    };
};

/* A lane's place in the stages, which go round. */
struct lap {
    uint32_t at, begin, end, step;
    __device__ __forceinline__ void next()
    {
        at += step;
        at = at == end ? begin : at;
    }
};

/* Brings unit after unit of its panels. Nearly all of a product's instructions are in load() and add_unit(),
 * and bind it: addresses are only added to. */
template <uint32_t BITS> struct stream {
    const uint8_t *codes;                           /* the lane's next piece */
    const uint8_t *sides, *side;                    /* scales and biases of the panel: the first and the
                                                     * next */
    int64_t step, step_next;                        /* from a panel to the next one, in turns */
    uint32_t length, left_here, left;               /* units of a panel, and to come of this one and of all */
    uint32_t each, each_first, side_left, side_all; /* units of a group; in the chain's first one; to come */
    bool has_side;
    lap stage;

    __device__ __forceinline__ void load()
    {
        if (left > 0) {
#pragma unroll
            for (uint32_t i = 0; i < ring<BITS>::PIECES; i++)
                copy16(stage.at + i * 512, codes + i * 512);
            codes += ring<BITS>::CODES;
            if (BITS < 16) {
                if (has_side)
                    copy16(stage.at + ring<BITS>::CODES, side);
                if (--side_left == 0) {
                    side += side_all;
                    side_left = each;
                }
            }
            stage.next();
            left--;
            if (--left_here == 0) {
                codes += step - (int64_t)(length * ring<BITS>::CODES);
                sides += step;
                side = sides;
                side_left = each_first;
                left_here = length;
                int64_t other = step;
                step = step_next;
                step_next = other;
            }
        }
        copies_end();
    }
};

/* ---- inputs in shared memory: [units][columns][128 bytes], as cuda_rounded has them ---- */

/* Rows of sorted pairs keep the places of their pieces. */
DEVICE void bring_sorted(uint8_t *to, const cuda_product &a, uint32_t from, uint32_t count, uint32_t units)
{
    for (uint32_t i = threadIdx.x; i < units * count * 8; i += blockDim.x) {
        uint32_t unit = i / 8 / count, column = i / 8 - unit * count;
        uint32_t row = a.rounded.first + input_row(a.sorted, a.x_div, from + column);
        const uint16_t *x = a.rounded.at + ((uint64_t)unit * a.rounded.rows + row) * UNIT;
        *(uint4 *)(to + i * 16) = *(const uint4 *)(x + i % 8 * 8);
    }
}

DEVICE void bring_rounded(uint8_t *to, const cuda_product &a, uint32_t from, uint32_t count, uint32_t units)
{
    uint32_t eights = count * 8, row = a.rounded.first + input_row(a.sorted, a.x_div, from);
    for (uint32_t i = threadIdx.x; i < units * eights; i += blockDim.x) {
        uint32_t unit = i / eights, at = i - unit * eights;
        const uint16_t *x = a.rounded.at + ((uint64_t)unit * a.rounded.rows + row) * UNIT;
        *(uint4 *)(to + i * 16) = *(const uint4 *)(x + at * 8);
    }
}

DEVICE void bring_x(uint8_t *to, const cuda_product &a, uint32_t from, uint32_t count, uint32_t units)
{
    uint32_t eights = units * 8, k = a.w.k;
    for (uint32_t i = threadIdx.x; i < count * eights; i += blockDim.x) {
        uint32_t column = i / eights, at = i % eights * 8;
        const float *x = row_of(a.x, input_row(a.sorted, a.x_div, from + column)) + at;
        uint4 v = {0, 0, 0, 0};
        if (at + 8 <= k && (uintptr_t)x % 16 == 0) {
            float4 low = *(const float4 *)x, high = *(const float4 *)(x + 4);
            v = {bf16_pair(low.x, low.y), bf16_pair(low.z, low.w), bf16_pair(high.x, high.y),
                 bf16_pair(high.z, high.w)};
        } else if (at < k) {
            float f[8];
#pragma unroll
            for (uint32_t j = 0; j < 8; j++)
                f[j] = at + j < k ? x[j] : 0;
            v = {bf16_pair(f[0], f[1]), bf16_pair(f[2], f[3]), bf16_pair(f[4], f[5]), bf16_pair(f[6], f[7])};
        }
        uint32_t *row = (uint32_t *)(to + (at / UNIT * count + column) * 2 * UNIT);
        row[rounded_place(from + column, at) / 2] = v.x;
        row[rounded_place(from + column, at + 2) / 2] = v.y;
        row[rounded_place(from + column, at + 4) / 2] = v.z;
        row[rounded_place(from + column, at + 6) / 2] = v.w;
    }
}

/* The squares' sum of a row, by the tree of plateau_norm: CUDA_THREADS / 32 warps have a part each, whatever
 * this block has. */
DEVICE double squares_of(double *parts, const float *row, uint32_t n)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t w = threadIdx.x / 32; w < CUDA_THREADS / 32; w += blockDim.x / 32) {
        double sums[4] = {};
#pragma unroll 4
        for (uint32_t i = (w * 32 + lane) * 4; i < n; i += CUDA_THREADS * 4) {
            float4 x = *(const float4 *)(row + i);
            sums[0] = add_square(sums[0], x.x), sums[1] = add_square(sums[1], x.y);
            sums[2] = add_square(sums[2], x.z), sums[3] = add_square(sums[3], x.w);
        }
        double sum = warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
        if (lane == 0)
            parts[w] = sum;
    }
    __syncthreads();
    double sum = 0;
    for (uint32_t w = 0; w < CUDA_THREADS / 32; w++)
        sum += parts[w];
    return sum;
}

/* The norm's first weights of a thread, which are asked for before the ring's. */
#define GAINS 4u
struct gains {
    float4 w[GAINS];
    __device__ __forceinline__ void begin(const cuda_product &a)
    {
#pragma unroll
        for (uint32_t j = 0; j < GAINS; j++) {
            uint32_t i = (threadIdx.x + j * blockDim.x) * 4;
            w[j] = a.normed.at && i < a.normed.width ? *(const float4 *)(a.norm + i) : float4{};
        }
    }
};

DEVICE void put_normed(uint8_t *to, const cuda_product &a, uint32_t i, float4 x, float4 w, float r)
{
    const cuda_rounded here = {(uint16_t *)to, 1, 0};
    float4 v = normed_four(x, w, r);
    put_four(here, 0, i, v);
    if (blockIdx.x == 0) {
        *(float4 *)(a.x.at + i) = v;
        put_four(a.rounded, 0, i, v);
    }
}
/* The norm of the one row, which lies at `row`, with the bits of plateau_norm. */
DEVICE void bring_normed(uint8_t *to, double *parts, const cuda_product &a, const float *row, const gains &g)
{
    uint32_t n = a.normed.width, step = blockDim.x * 4;
    float r = norm_factor(squares_of(parts, row, n), n, a.norm_eps);
#pragma unroll
    for (uint32_t j = 0; j < GAINS; j++) {
        uint32_t i = threadIdx.x * 4 + j * step;
        if (i < n)
            put_normed(to, a, i, *(const float4 *)(row + i), g.w[j], r);
    }
    for (uint32_t i = threadIdx.x * 4 + GAINS * step; i < n; i += step)
        put_normed(to, a, i, *(const float4 *)(row + i), *(const float4 *)(a.norm + i), r);
}

/* Inputs that are one piece of memory: the row to be normed, or all rows that there are. A thread would get
 * them after the weights that it has asked for, the bulk engine does not. */
struct piece {
    const void *from; /* NULL: they are not */
    void *to;
    uint32_t bytes;
    uint64_t *there;

    __device__ __forceinline__ void find(const cuda_product &a, void *row, uint32_t row_bytes, uint8_t *x,
                                         uint32_t count, uint32_t units)
    {
        from = NULL;
#if BULK_COPIES
        if (a.normed.at && a.normed.width * 4 <= row_bytes)
            from = a.normed.at, to = row, bytes = a.normed.width * 4;
        else if (!a.normed.at && !a.sorted.order && a.rounded.at && a.rounded.rows == count &&
                 a.rounded.first == 0)
            from = a.rounded.at, to = x, bytes = units * count * 2 * UNIT;
        if (from && threadIdx.x == 0) {
            barrier_init(there, 1);
            barriers_made();
        }
        __syncthreads();
#endif
    }
    __device__ __forceinline__ void bring() const
    {
#if BULK_COPIES
        if (!from)
            return;
        if (threadIdx.x == 0) {
            barrier_expect(there, bytes);
            bulk_copy(to, from, bytes, there);
        }
        barrier_wait(there, 0);
#endif
    }
};

/* Adds a unit to the tiles of 8 columns; `stage` is the lane's, `sides` of its rows, x of the inputs. */
template <uint32_t BITS, bool WHOLE, bool SECOND>
DEVICE void add_unit(float c[2][4], const cuda_matrix &m, uint32_t stage, uint32_t sides, uint32_t x,
                     uint32_t x_second)
{
    uint4 q[ring<BITS>::PIECES];
    uint32_t b[8], d[8], f[16];
    raw_sides raw = {};
#pragma unroll
    for (uint32_t i = 0; i < ring<BITS>::PIECES; i++)
        q[i] = read_piece(stage + i * 512);
    if (BITS < 16) {
        if (!WHOLE && m.qparams == CUDA_F32) {
            raw.v[0] = read_word(sides), raw.v[2] = read_word(sides + 4);
            raw.v[1] = read_word(sides + 64), raw.v[3] = read_word(sides + 68);
        } else {
            raw.v[0] = read_word(sides), raw.v[1] = read_word(sides + 32);
        }
    }
    inputs_of(b, x);
    if (SECOND)
        inputs_of(d, x_second);
    unit_fragments<BITS, WHOLE>(f, q, raw, m);
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        mma(c[0], f + 4 * j, b[2 * j], b[2 * j + 1]);
        if (SECOND)
            mma(c[1], f + 4 * j, d[2 * j], d[2 * j + 1]);
    }
}

DEVICE void put_sum(const cuda_product &a, const float *bias, uint32_t panel, uint32_t row, uint32_t column,
                    float sum)
{
    uint32_t i = panel * CUDA_PANEL + row;
    if (i < a.w.n)
        row_of(a.y, output_row(a.sorted, column))[i] = bias ? sum + bias[i] : sum;
}
/* The value of the residual stream that a thread adds a sum to: one row of one column. */
DEVICE float added_to(const cuda_product &a, uint32_t panel, uint32_t from, uint32_t count)
{
    uint32_t i = panel * CUDA_PANEL + threadIdx.x % CUDA_PANEL, column = threadIdx.x / CUDA_PANEL;
    return a.add.at && column < count && i < a.w.n ? row_of(a.add, from + column)[i] : 0;
}
DEVICE void put_added(const cuda_product &a, const float *bias, uint32_t panel, uint32_t row, uint32_t column,
                      float sum, float before)
{
    uint32_t i = panel * CUDA_PANEL + row;
    if (i < a.w.n)
        row_of(a.add, column)[i] = fmaf(a.add_scale, bias ? sum + bias[i] : sum, before);
}
/* Writes the activation of a gate and its value. */
DEVICE void put_glu(const cuda_product &a, uint32_t panel, uint32_t row, uint32_t column, float gate,
                    float up)
{
    uint32_t i = panel * CUDA_PANEL + row;
    put_rounded(a.y_rounded, column, i, silu(gate) * up);
}

/* The chains' sums of a panel, added in their order. Those of a gate stay in `gate` for its value's panel: a
 * thread has one element then. */
DEVICE void put_chains(const cuda_product &a, const float *bias, narrow_sums &sums, const float c[2][4],
                       uint32_t panel, uint32_t from, uint32_t count, bool is_gate, float &gate, float before)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        sums[warp][(sum_column(lane, i % 4) + i / 4 * 8) * CUDA_PANEL + sum_row(lane, i % 4)] =
            c[i / 4][i % 4];
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count * CUDA_PANEL; i += blockDim.x) {
        float sum = sums[0][i];
        for (uint32_t w = 1; w < CUDA_CHAINS; w++)
            sum += sums[w][i];
        if (is_gate)
            gate = sum;
        else if (a.glu)
            put_glu(a, panel, i % CUDA_PANEL, from + i / CUDA_PANEL, gate, sum);
        else if (a.add.at)
            put_added(a, bias, panel, i % CUDA_PANEL, from + i / CUDA_PANEL, sum, before);
        else
            put_sum(a, bias, panel, i % CUDA_PANEL, from + i / CUDA_PANEL, sum);
    }
}

/* Work of a block. */
struct narrow_work {
    const cuda_product &a;
    const float *bias;
    uint32_t first, count;                      /* columns */
    uint32_t panel, step, rounds, mine, length; /* panels, in the block and of the warp; units of each */
    uint32_t x, to_second, x_unit, sides;       /* the lane's offsets; to_second: from x on */
    lap stage;
    bool deep;
};

/* Writes a panel's sums, with a gate in front of them, or with one chain. In a block's last round some warps
 * may have no panel. */
template <uint32_t CHAINS>
DEVICE void put_panel(const narrow_work &w, narrow_sums &sums, const float c[2][4], uint32_t panel,
                      bool is_there, bool is_gate, float &gate, float before)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (CHAINS > 1) {
        put_chains(w.a, w.bias, sums, c, panel, w.first, w.count, is_gate, gate, before);
        return;
    }
    uint32_t gates = narrow_warps<CHAINS>() / 2;
    /* The other warps have the gates' values. */
    if (w.a.glu) {
        if (warp >= gates) {
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                sums[warp - gates][i * 32 + lane] = c[i / 4][i % 4];
        }
        __syncthreads();
        if (warp >= gates)
            return;
    }
    if (!is_there)
        return;
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t column = sum_column(lane, i % 4) + i / 4 * 8, row = sum_row(lane, i % 4);
        if (column < w.count && w.a.glu)
            put_glu(w.a, panel, row, w.first + column, c[i / 4][i % 4], sums[warp][i * 32 + lane]);
        else if (column < w.count)
            put_sum(w.a, w.bias, panel, row, w.first + column, c[i / 4][i % 4]);
    }
}

/* Unit after unit of all panels. */
template <uint32_t BITS, uint32_t CHAINS, bool SERIAL, bool WHOLE, bool SECOND>
DEVICE void narrow_units(const narrow_work &w, stream<BITS> &in, narrow_sums (&sums)[2])
{
    bool paired = CHAINS > 1 && w.a.glu;
    uint32_t panel = w.panel;
    lap stage = w.stage;
    float gate = 0;
#pragma unroll 1
    for (uint32_t p = 0; p < w.rounds; p++) {
        float c[2][4] = {}, sum[2][4];
        uint32_t length = CHAINS > 1 || p < w.mine ? w.length : 0, chain = 0;
        /* -0 + x is x, with its sign. */
#pragma unroll
        for (uint32_t i = 0; SERIAL && i < 8; i++)
            sum[i / 4][i % 4] = -0.0f;
        uint32_t x = w.x;
        float before = CHAINS > 1 ? added_to(w.a, panel, w.first, w.count) : 0;
#pragma unroll 1
        for (uint32_t u = 0; u < length; u++) {
            for (; SERIAL && chain_begin(length, chain + 1, CUDA_CHAINS) <= u; chain++)
                end_chain<2>(sum, c);
            if (!SERIAL && w.deep)
                copies_wait<CUDA_RING_DEEP - 2>();
            else
                copies_wait<ring<BITS>::STAGES - 2>();
            __syncwarp();
            add_unit<BITS, WHOLE, SECOND>(c, w.a.w, stage.at, stage.at + w.sides, x, x + w.to_second);
            stage.next();
            x += w.x_unit;
            in.load();
        }
        bool is_gate = paired && p % 2 == 0;
        for (; SERIAL && chain < CUDA_CHAINS; chain++)
            end_chain<2>(sum, c);
        put_panel<CHAINS>(w, sums[p % 2], SERIAL ? sum : c, panel, p < w.mine, is_gate, gate, before);
        panel += is_gate ? 0 : w.step;
    }
}

/* Block: panels blockIdx.x and every gridDim.x-th after it (one chain: one of each warp at a time), 16
 * columns; or a group of sorted columns with their expert's matrix; or one column with its own. With `glu` a
 * gate's panel, then its values', or with one chain half of the warps have each.
 * SERIAL: of 8 chains, which a warp multiplies one after the other. Blocks are as with one chain. */
template <uint32_t BITS, uint32_t CHAINS, bool SERIAL> DEVICE void narrow(const cuda_product &a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const uint32_t warps = narrow_warps<CHAINS>();
    __shared__ __align__(16) narrow_sums sums[2]; /* in turns; before, the row that is normed */
    __shared__ double squares[CUDA_THREADS / 32];
    __shared__ uint64_t there;
    const cuda_matrix &m = a.w;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, units = fragment_units(m);
    uint32_t columns = a.expert ? 1 : CUDA_NARROW_COLUMNS, first = blockIdx.y * columns;
    uint32_t count = min(columns, a.count - min(first, a.count)), expert = 0;
    grid_next();
    if (a.sorted.order) {
        grid_wait();
        if (blockIdx.y >= *a.sorted.group_count)
            return;
        const cuda_expert_group g = a.sorted.groups[blockIdx.y];
        first = g.first, count = g.count, expert = g.expert;
    } else if (a.expert) {
        grid_wait();
        expert = a.expert[first];
    }
    bool beside = CHAINS == 1 && a.glu; /* gates and values in warps beside each other */
    uint32_t from = CHAINS > 1 ? chain_begin(units, warp, CHAINS) : 0;
    uint32_t to = CHAINS > 1 ? chain_begin(units, warp + 1, CHAINS) : units;
    uint32_t panels = (m.n + CUDA_PANEL - 1) / CUDA_PANEL / (a.glu ? 2 : 1);
    uint32_t side_by_side = CHAINS > 1 ? 1 : beside ? warps / 2 : warps;
    uint32_t block = blockIdx.x * side_by_side, step = gridDim.x * side_by_side;
    uint32_t panel = block + (CHAINS > 1 ? 0 : warp % side_by_side);
    uint64_t panel_size = fragment_panel_bytes(m);
    uint32_t rounds = block < panels ? (panels - block + step - 1) / step : 0;
    uint32_t mine = panel < panels ? (panels - panel + step - 1) / step : 0;
    int64_t ahead = (int64_t)step * (int64_t)panel_size, to_values = (int64_t)panels * (int64_t)panel_size;
    bool in_turns = CHAINS > 1 && a.glu;
    mine *= in_turns ? 2 : 1;
    rounds *= in_turns ? 2 : 1;
    uint32_t side_all = unit_side_bytes(m), stage_bytes = ring<BITS>::CODES + side_all;
    const bool deep = BITS == 16 && CHAINS > 1 && a.deep;
    uint32_t stages = (deep ? CUDA_RING_DEEP : ring<BITS>::STAGES) * stage_bytes;
    uint32_t at = shared_at(shared) + warp * stages + lane * 16;
    uint8_t *x = shared + warps * stages;
    uint32_t each = BITS < 16 && m.group > UNIT ? m.group / UNIT : 1;
    const lap stage = {at, at, at + stages, stage_bytes};
    const uint8_t *chain = m.data + expert * m.expert_bytes + panel * panel_size + lane * 16 +
                           (beside && warp >= side_by_side ? to_values : 0);
    const uint8_t *sides = chain + sides_at(m, 0) + (uint64_t)(from / each) * side_all;
    stream<BITS> in = {chain + (uint64_t)from * ring<BITS>::CODES,
                       sides,
                       sides,
                       in_turns ? to_values : ahead,
                       in_turns ? ahead - to_values : ahead,
                       to - from,
                       to - from,
                       mine * (to - from),
                       each,
                       each - from % each,
                       each - from % each,
                       side_all,
                       BITS < 16 && lane * 16 < side_all,
                       stage};
    gains norm;
    norm.begin(a);
#pragma unroll
    for (uint32_t i = 0; i + 1 < ring<BITS>::STAGES; i++)
        in.load();
    for (uint32_t i = ring<BITS>::STAGES; deep && i < CUDA_RING_DEEP; i++)
        in.load();
    piece inputs = {.there = &there};
    inputs.find(a, sums, sizeof(sums), x, count, units);
    if (a.beside)
        grid_seen();
    else
        grid_wait();
    inputs.bring();
    if (a.normed.at)
        bring_normed(x, squares, a, inputs.from ? (const float *)sums : a.normed.at, norm);
    else if (!inputs.from && a.rounded.at && a.sorted.order)
        bring_sorted(x, a, first, count, units);
    else if (!inputs.from && a.rounded.at)
        bring_rounded(x, a, first, count, units);
    else if (!inputs.from)
        bring_x(x, a, first, count, units);
    __syncthreads();
    uint32_t column = min(lane % 8, count - 1), next = min(lane % 8 + 8, count - 1);
    uint32_t row = first + column, row_second = first + next, x_unit = count * 2 * UNIT;
    if (a.rounded.at) {
        row = a.rounded.first + input_row(a.sorted, a.x_div, row);
        row_second = a.rounded.first + input_row(a.sorted, a.x_div, row_second);
    }
    const narrow_work w = {
        a,
        a.bias ? a.bias + (uint64_t)expert * a.bias_step : NULL,
        first,
        count,
        panel,
        step,
        rounds,
        mine,
        to - from,
        inputs_at(x + column * 2 * UNIT, row) + from * x_unit,
        inputs_at(x + next * 2 * UNIT, row_second) - inputs_at(x + column * 2 * UNIT, row),
        x_unit,
        ring<BITS>::CODES - lane * 16 + lane / 4 * (BITS < 16 ? side_bytes(m) : 0) +
            (BITS < 16 && m.group < UNIT ? lane % 4 * 16 / m.group * CUDA_PANEL * side_bytes(m) : 0),
        stage,
        deep};
    constexpr bool CAN = BITS < 16;
    bool whole = CAN && is_whole(m);
    if (whole && count > 8)
        narrow_units<BITS, CHAINS, SERIAL, CAN, true>(w, in, sums);
    else if (whole)
        narrow_units<BITS, CHAINS, SERIAL, CAN, false>(w, in, sums);
    else if (count > 8)
        narrow_units<BITS, CHAINS, SERIAL, false, true>(w, in, sums);
    else
        narrow_units<BITS, CHAINS, SERIAL, false, false>(w, in, sums);
    if (a.beside)
        grid_wait();
}

#define NARROW(name, bits, chains, serial, warps)                                                            \
    extern "C" __global__ void __launch_bounds__(32 * (warps), 16 / (warps))                                 \
        plateau_##name(const cuda_product a)                                                                 \
    {                                                                                                        \
        narrow<bits, chains, serial>(a);                                                                     \
    }
NARROW(narrow16_1, 16, 1, false, CUDA_NARROW_WARPS_1)
NARROW(narrow16_8, 16, 8, false, CUDA_CHAINS)
NARROW(narrow8_1, 8, 1, false, CUDA_NARROW_WARPS_1)
NARROW(narrow8_8, 8, 8, false, CUDA_CHAINS)
NARROW(narrow4_1, 4, 1, false, CUDA_NARROW_WARPS_1)
NARROW(narrow4_8, 4, 8, false, CUDA_CHAINS)
NARROW(serial16, 16, 1, true, CUDA_CHAINS)
NARROW(serial8, 8, 1, true, CUDA_CHAINS)
NARROW(serial4, 4, 1, true, CUDA_CHAINS)

/* ---- many columns: a block has 8 panels and 128 columns ---- */

/* Block: a row of x. */
KERNEL plateau_round(const cuda_round a)
{
    grid_begin();
    const float *x = row_of(a.x, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < a.units * UNIT; i += blockDim.x)
        put_rounded(a.to, blockIdx.x, i, i < a.x.width ? x[i] : 0);
}

#define TILE_PANELS (CUDA_TILE_ROWS / CUDA_PANEL)

/* A block's panels and columns [first, first + count), which have one expert where they are sorted. */
struct tile_work {
    const uint8_t *weights;
    const float *bias;
    uint32_t first_panel, first, count;
};

/* False: there are fewer groups than blocks. */
DEVICE bool find_tile(const cuda_tiles &a, tile_work &ret)
{
    if (!a.sorted.order) {
        uint32_t first = blockIdx.x * CUDA_TILE_COLUMNS;
        ret = {a.w.data, a.bias, blockIdx.y * TILE_PANELS, first, min(a.count - first, CUDA_TILE_COLUMNS)};
        return true;
    }
    if (blockIdx.y >= *a.sorted.group_count)
        return false;
    const cuda_expert_group g = a.sorted.groups[blockIdx.y];
    ret = {a.w.data + g.expert * a.w.expert_bytes,
           a.bias ? a.bias + (uint64_t)g.expert * a.bias_step : NULL, blockIdx.x * TILE_PANELS, g.first,
           g.count};
    return true;
}

/* Pieces of inputs that a thread brings of each unit. */
#define TILE_PIECES (CUDA_TILE_COLUMNS * 8 / CUDA_THREADS)

template <uint32_t BITS> struct tile_loader {
    const cuda_tiles &a;
    const tile_work &work;
    uint32_t side_all, stage_bytes;
    uint64_t panel_size;
    uint32_t from[TILE_PIECES], to[TILE_PIECES]; /* in pieces: of a unit, and of a stage's inputs */

    /* A row's pieces lie in an order that its number gives; in a stage the column's number does. */
    __device__ __forceinline__ void begin()
    {
#pragma unroll
        for (uint32_t j = 0; j < TILE_PIECES; j++) {
            uint32_t i = threadIdx.x + j * CUDA_THREADS, column = min(i / 8, work.count - 1);
            uint32_t row = a.x.first + input_row(a.sorted, a.x_div, work.first + column);
            from[j] = row * 8 + i % 8;
            to[j] = i ^ (row % 8 ^ i / 8 % 8);
        }
    }

    __device__ __forceinline__ void load(uint8_t *stage, uint32_t unit) const
    {
        const uint32_t codes = ring<BITS>::CODES, last = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL - 1;
#pragma unroll
        for (uint32_t i = threadIdx.x; i < TILE_PANELS * codes / 16; i += CUDA_THREADS) {
            uint32_t panel = min(work.first_panel + i / (codes / 16), last);
            copy16(stage + i * 16,
                   work.weights + panel * panel_size + (uint64_t)unit * codes + i % (codes / 16) * 16);
        }
        if (BITS < 16) {
            uint32_t pieces = side_all / 16;
            for (uint32_t i = threadIdx.x; i < TILE_PANELS * pieces; i += CUDA_THREADS) {
                uint32_t panel = min(work.first_panel + i / pieces, last);
                copy16(stage + TILE_PANELS * codes + i * 16, work.weights + panel * panel_size +
                                                                 sides_at(a.w, unit * UNIT / a.w.group) +
                                                                 i % pieces * 16);
            }
        }
        uint8_t *x = stage + TILE_PANELS * (codes + side_all);
#pragma unroll
        for (uint32_t j = 0; j < TILE_PIECES; j++)
            copy16(x + to[j] * 16, a.x.at + (uint64_t)unit * a.x.rows * UNIT + (uint64_t)from[j] * 8);
    }
};

/* Adds a unit to COUNT of a warp's panels x `eights` times 8 columns, 64 at most. */
template <uint32_t BITS, bool WHOLE, uint32_t COUNT>
DEVICE void add_panels(float (*c)[8][4], const uint8_t *stage, const cuda_matrix &m, uint32_t side_all,
                       uint32_t panel, uint32_t column, uint32_t eights)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t a[COUNT][16];
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i++) {
        uint4 q[ring<BITS>::PIECES];
        raw_sides raw = {};
        const uint8_t *codes = stage + (panel + i) * ring<BITS>::CODES;
#pragma unroll
        for (uint32_t j = 0; j < ring<BITS>::PIECES; j++)
            q[j] = *(const uint4 *)(codes + j * 512 + lane * 16);
        if (BITS < 16)
            raw = sides_from<WHOLE>(
                stage + TILE_PANELS * ring<BITS>::CODES + (panel + i) * side_all +
                    (m.group < UNIT ? lane % 4 * 16 / m.group * CUDA_PANEL * side_bytes(m) : 0),
                m, lane / 4);
        unit_fragments<BITS, WHOLE>(a[i], q, raw, m);
    }
    const uint8_t *x = stage + TILE_PANELS * (ring<BITS>::CODES + side_all) + (column + lane % 8) * 2 * UNIT;
    uint32_t at = inputs_at(x, lane);
#pragma unroll
    for (uint32_t n = 0; n < 8; n++) {
        uint32_t b[8];
        if (n >= eights)
            break;
        inputs_of(b, at + n * 8 * 2 * UNIT);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) {
#pragma unroll
            for (uint32_t i = 0; i < COUNT; i++)
                mma(c[i][n], a[i] + 4 * j, b[2 * j], b[2 * j + 1]);
        }
    }
}

/* Both of a warp's panels. Code for newer chips takes more registers. */
template <uint32_t BITS, bool WHOLE>
DEVICE void add_tile(float c[2][8][4], const uint8_t *stage, const cuda_matrix &m, uint32_t side_all,
                     uint32_t panel, uint32_t column, uint32_t eights)
{
#if __CUDA_ARCH__ >= 1000
    add_panels<BITS, WHOLE, 1>(c, stage, m, side_all, panel, column, eights);
    add_panels<BITS, WHOLE, 1>(c + 1, stage, m, side_all, panel + 1, column, eights);
#else
    add_panels<BITS, WHOLE, 2>(c, stage, m, side_all, panel, column, eights);
#endif
}

/* Block: 128 columns blockIdx.x and 128 rows blockIdx.y, or a group blockIdx.y of sorted columns and 128 rows
 * blockIdx.x. */
template <uint32_t BITS, uint32_t CHAINS> DEVICE void tiles(const cuda_tiles &a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    const cuda_matrix &m = a.w;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, units = fragment_units(m);
    uint32_t panel = warp % 4 * 2, column = warp / 4 * 64, side_all = unit_side_bytes(m);
    uint32_t stage_bytes = TILE_PANELS * (ring<BITS>::CODES + side_all) + CUDA_TILE_COLUMNS * 2 * UNIT;
    tile_work work;
    grid_begin();
    if (!find_tile(a, work))
        return;
    tile_loader<BITS> in = {a, work, side_all, stage_bytes, fragment_panel_bytes(m)};
    in.begin();
    uint32_t eights = column < work.count ? (work.count - column + 7) / 8 : 0;
    float c[2][8][4] = {}, sum[CHAINS > 1 ? 2 : 1][8][4];
    uint32_t chain = 0;
    /* -0 + x is x, with its sign. */
#pragma unroll
    for (uint32_t i = 0; CHAINS > 1 && i < 64; i++)
        sum[i / 32 % (CHAINS > 1 ? 2 : 1)][i / 4 % 8][i % 4] = -0.0f;
    for (uint32_t i = 0; i + 1 < a.stages; i++) {
        if (i < units)
            in.load(shared + i * stage_bytes, i);
        copies_end();
    }
    for (uint32_t u = 0; u < units; u++) {
        if constexpr (CHAINS > 1) {
            for (; chain < CHAINS && chain_begin(units, chain + 1, CHAINS) <= u; chain++)
                end_chain<16>(sum[0], c[0]);
        }
        if (a.stages == 4)
            copies_wait<2>();
        else
            copies_wait<0>();
        __syncthreads();
        if (u + a.stages - 1 < units)
            in.load(shared + (u + a.stages - 1) % a.stages * stage_bytes, u + a.stages - 1);
        copies_end();
        const uint8_t *stage = shared + u % a.stages * stage_bytes;
        if (eights == 0)
            continue;
        if (BITS < 16 && is_whole(m))
            add_tile<BITS, true>(c, stage, m, side_all, panel, column, eights);
        else
            add_tile<BITS, false>(c, stage, m, side_all, panel, column, eights);
    }
    if constexpr (CHAINS > 1) {
        for (; chain < CHAINS; chain++)
            end_chain<16>(sum[0], c[0]);
    }
#pragma unroll
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t row = (work.first_panel + panel + i / 32) * CUDA_PANEL + sum_row(lane, i % 4);
        uint32_t at = column + i / 4 % 8 * 8 + sum_column(lane, i % 4);
        float y =
            CHAINS > 1 ? sum[i / 32 % (CHAINS > 1 ? 2 : 1)][i / 4 % 8][i % 4] : c[i / 32][i / 4 % 8][i % 4];
        if (row < m.n && at < work.count)
            row_of(a.y, output_row(a.sorted, work.first + at))[row] = work.bias ? y + work.bias[row] : y;
    }
}

#define TILES(bits, chains)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, 1) plateau_tiles##bits##_##chains(const cuda_tiles a)  \
    {                                                                                                        \
        tiles<bits, chains>(a);                                                                              \
    }
TILES(16, 1)
TILES(16, 8)
TILES(8, 1)
TILES(8, 8)
TILES(4, 1)
TILES(4, 8)
