/* experts.cu - products of sorted columns with their experts' weights, with the arithmetic and the bits of
 * bf16.cu.
 *
 * A group of up to 16 columns has one expert. Panels of its weights are multiplied two at a time: neighbours,
 * or with `glu` a gate's panel and its values'. All pairs of panels of all groups are one list, of which each
 * block has an equal part. It has one block on a multiprocessor, whose warps take pairs in turns. A warp has
 * all chains of its two panels, one after the other, and brings their units ahead through a ring of its own.
 * Inputs of as many groups as there is room for lie in shared memory. */
#include "compute/cuda/kernels/mma.cuh"

#define LANES   32u
#define WARPS   CUDA_EXPERTS_WARPS
#define THREADS (WARPS * LANES)
#define COLUMNS (CUDA_NARROW_COLUMNS / 2) /* columns of a tile of mma */

/* Units of both panels that come together are a stage. */
template <uint32_t BITS> struct stages {
    enum : uint32_t {
        UNITS = CUDA_EXPERTS_UNITS(BITS),
        COUNT = CUDA_EXPERTS_STAGES(BITS),
        CODES = 128 * BITS,  /* bytes of a unit */
        PIECES = CODES / 512 /* pieces of a unit that a lane has */
    };
};

/* A block's part of the list whose inputs are in shared memory. */
struct experts_round {
    uint32_t first, last;  /* pairs of panels */
    uint32_t group, pairs; /* the first one's group; pairs of panels of a group */
};

struct experts_shape {
    uint32_t units, panels, pairs;
    uint32_t side, each; /* bytes of a unit's sides; units of a group */
    uint32_t lane_sides; /* from a stage's begin to the lane's sides of its first unit */
    uint64_t sides;      /* from a panel's begin to its sides */
    uint64_t panel_bytes;
};

/* Returns a pair's panels. The last pair may have one panel, which is multiplied twice. */
DEVICE uint32_t first_panel(const cuda_tiles &a, uint32_t pair)
{
    return a.glu ? pair : 2 * pair;
}
DEVICE uint32_t second_panel(const cuda_tiles &a, const experts_shape &s, uint32_t pair)
{
    return a.glu ? pair + s.panels / 2 : min(2 * pair + 1, s.panels - 1);
}

/* A warp's way through the units of its pairs of panels. */
template <uint32_t BITS> struct experts_codes {
    using stage = stages<BITS>;
    const cuda_tiles &a;
    const experts_shape &s;
    const experts_round &round;
    const uint8_t *panel[2];        /* both panels of the pair that comes next */
    uint32_t pair, unit;            /* it, and its next unit */
    uint32_t at, to;                /* the ring, and in it the next stage */
    uint32_t side_unit, side_piece; /* the lane's piece of sides: of which unit, and in it */
    uint32_t stage_bytes, ring_bytes;

    __device__ __forceinline__ void begin_pair()
    {
        unit = 0;
        if (pair >= round.last)
            return;
        const uint32_t in_group = pair % s.pairs;
        const uint8_t *expert = a.w.data + a.sorted.groups[pair / s.pairs].expert * a.w.expert_bytes;
        panel[0] = expert + first_panel(a, in_group) * s.panel_bytes;
        panel[1] = expert + second_panel(a, s, in_group) * s.panel_bytes;
    }

    /* Piece i of the sides, of 16 bytes: of the units of the first panel, then of the second's. */
    __device__ __forceinline__ void load_side(uint32_t stage_at, uint32_t i, uint32_t j, uint32_t piece) const
    {
        const uint32_t u = unit + j % stage::UNITS, group = s.each > 1 ? u / s.each : u;
        if (u < s.units)
            copy16(stage_at + 2 * stage::UNITS * stage::CODES + i * 16,
                   (j < stage::UNITS ? panel[0] : panel[1]) + s.sides + group * s.side + piece * 16);
    }
    __device__ __forceinline__ void load_sides(uint32_t stage_at) const
    {
        const uint32_t lane = threadIdx.x % LANES, pieces = s.side / 16;
        if (side_unit < 2 * stage::UNITS)
            load_side(stage_at, lane, side_unit, side_piece);
#pragma unroll 1
        for (uint32_t i = lane + LANES; i < 2 * stage::UNITS * pieces; i += LANES)
            load_side(stage_at, i, i / pieces, i % pieces);
    }

    __device__ __forceinline__ void load()
    {
        if (pair < round.last) {
            const uint32_t lane = threadIdx.x % LANES;
#pragma unroll
            for (uint32_t p = 0; p < 2; p++) {
#pragma unroll
                for (uint32_t j = 0; j < stage::UNITS; j++) {
                    if (j > 0 && unit + j >= s.units)
                        break;
#pragma unroll
                    for (uint32_t i = 0; i < stage::PIECES; i++)
                        copy16(to + (p * stage::UNITS + j) * stage::CODES + lane * 16 + i * 512,
                               panel[p] + (uint64_t)unit * stage::CODES + j * stage::CODES + lane * 16 +
                                   i * 512);
                }
            }
            if (BITS < 16)
                load_sides(to);
            to += stage_bytes;
            if (to == at + ring_bytes)
                to = at;
            unit += stage::UNITS;
            if (unit >= s.units) {
                pair += WARPS;
                begin_pair();
            }
        }
        copies_end();
    }
};

/* Inputs of the round's groups, a warp for each column: [groups][units][columns][128 bytes]. A column's
 * pieces lie in the order that its number gives. */
DEVICE void bring_columns(uint8_t *x, const cuda_tiles &a, const experts_round &round, uint32_t units)
{
    const uint32_t lane = threadIdx.x % LANES, groups = (round.last - 1) / round.pairs - round.group + 1;
    for (uint32_t i = threadIdx.x / LANES; i < groups * a.columns; i += WARPS) {
        const cuda_expert_group g = a.sorted.groups[round.group + i / a.columns];
        const uint32_t column = i % a.columns;
        if (column >= g.count)
            continue;
        const uint32_t row = a.x.first + input_row(a.sorted, a.x_div, g.first + column);
        const uint16_t *from = a.x.at + ((uint64_t)(lane / 8) * a.x.rows + row) * UNIT + lane % 8 * 8;
        uint32_t to = shared_at(x) + ((i / a.columns * units + lane / 8) * a.columns + column) * 2 * UNIT +
                      (lane ^ row ^ column) % 8 * 16;
        for (uint32_t u = lane / 8; u < units; u += LANES / 8) {
            copy16(to, from);
            from += (uint64_t)(LANES / 8) * a.x.rows * UNIT;
            to += LANES / 8 * a.columns * 2 * UNIT;
        }
    }
}

/* The rows of y of a lane's columns. */
struct lane_outputs {
    uint32_t row[4];

    __device__ __forceinline__ void find(const cuda_tiles &a, const cuda_expert_group &g)
    {
        const uint32_t lane = threadIdx.x % LANES;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t column = i / 2 * COLUMNS + sum_column(lane, i % 2);
            row[i] = column < g.count ? output_row(a.sorted, g.first + column) : CUDA_NONE;
        }
    }
};

/* Writes the sums of a pair of panels; sum: [panel][tile][4]. */
template <uint32_t TILES>
DEVICE void put_pair(const cuda_tiles &a, const experts_shape &s, const lane_outputs &out, uint32_t pair,
                     uint32_t expert, const float (*sum)[TILES][4])
{
    const uint32_t lane = threadIdx.x % LANES;
    const uint32_t first = first_panel(a, pair), second = second_panel(a, s, pair);
#pragma unroll
    for (uint32_t i = 0; i < 4 * TILES; i++) {
        const uint32_t y = out.row[i / 4 * 2 + i % 2], row = sum_row(lane, i % 4);
        if (y == CUDA_NONE)
            continue;
        const float v = sum[0][i / 4][i % 4], w = sum[1][i / 4][i % 4];
        if (a.glu) {
            put_rounded(a.y_rounded, y, first * CUDA_PANEL + row, silu(v) * w);
            continue;
        }
        const float *bias = a.bias ? a.bias + (uint64_t)expert * a.bias_step : NULL;
        const uint32_t r = first * CUDA_PANEL + row, q = second * CUDA_PANEL + row;
        if (r < a.w.n)
            row_of(a.y, y)[r] = bias ? v + bias[r] : v;
        if (second > first && q < a.w.n)
            row_of(a.y, y)[q] = bias ? w + bias[q] : w;
    }
}

/* Codes and sides of a unit of a pair of panels. */
template <uint32_t BITS> struct pair_unit {
    uint4 q[2][stages<BITS>::PIECES];
    raw_sides raw[2];
};

template <uint32_t BITS, bool WHOLE>
DEVICE void read_pair_unit(pair_unit<BITS> &ret, const cuda_tiles &a, const experts_shape &s, uint32_t stage,
                           uint32_t j)
{
    using st = stages<BITS>;
    const uint32_t lane = threadIdx.x % LANES;
#pragma unroll
    for (uint32_t p = 0; p < 2; p++) {
        ret.raw[p] = {};
#pragma unroll
        for (uint32_t i = 0; i < st::PIECES; i++)
            ret.q[p][i] = read_piece(stage + (p * st::UNITS + j) * st::CODES + lane * 16 + i * 512);
        if (BITS < 16) {
            const uint32_t at = stage + s.lane_sides + (p * st::UNITS + j) * s.side;
            if (!WHOLE && a.w.qparams == CUDA_F32) {
                ret.raw[p].v[0] = read_word(at), ret.raw[p].v[2] = read_word(at + 4);
                ret.raw[p].v[1] = read_word(at + 64), ret.raw[p].v[3] = read_word(at + 68);
            } else {
                ret.raw[p].v[0] = read_word(at), ret.raw[p].v[1] = read_word(at + 32);
            }
        }
    }
}

/* Adds a unit of both panels to TILES times 8 columns; x: the lane's row of the first. Panels share one vote
 * for the quick way to fragments, so that their instructions mix. */
template <uint32_t BITS, bool WHOLE, uint32_t TILES>
DEVICE void add_pair_unit(float (*c)[TILES][4], const cuda_tiles &a, const experts_shape &s, uint32_t stage,
                          uint32_t j, uint32_t x)
{
    pair_unit<BITS> in;
    uint32_t b[TILES][8], f[2][16];
    read_pair_unit<BITS, WHOLE>(in, a, s, stage, j);
#pragma unroll
    for (uint32_t t = 0; t < TILES; t++)
        inputs_of(b[t], x + t * COLUMNS * 2 * UNIT);
    if (BITS < 16 && WHOLE && !(BITS == 8 && is_float(a.w)) &&
        __all_sync(0xffffffffu, has_room<BITS>(in.raw[0]) && has_room<BITS>(in.raw[1]))) {
#pragma unroll
        for (uint32_t p = 0; p < 2; p++)
            small_fragments<BITS>(f[p], in.q[p], lane_sides_of<WHOLE>(in.raw[p], a.w));
    } else {
#pragma unroll
        for (uint32_t p = 0; p < 2; p++)
            unit_fragments<BITS, WHOLE>(f[p], in.q[p], in.raw[p], a.w);
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
#pragma unroll
        for (uint32_t p = 0; p < 2; p++)
#pragma unroll
            for (uint32_t t = 0; t < TILES; t++)
                mma(c[p][t], f[p] + 4 * k, b[t][2 * k], b[t][2 * k + 1]);
}

/* A pair of panels, all of its chains; `from`: the lane's next stage. */
template <uint32_t BITS, bool WHOLE, uint32_t TILES>
DEVICE void multiply_pair(experts_codes<BITS> &in, uint32_t &from, const lane_outputs &out, uint32_t pair,
                          uint32_t expert, uint32_t x)
{
    using st = stages<BITS>;
    const cuda_tiles &a = in.a;
    const experts_shape &s = in.s;
    const uint32_t x_unit = a.columns * 2 * UNIT;
    float c[2][TILES][4] = {}, sum[2][TILES][4];
    uint32_t chain = 0, end = chain_begin(s.units, 1, CUDA_CHAINS);
    /* -0 + x is x, with its sign. */
#pragma unroll
    for (uint32_t i = 0; i < 8 * TILES; i++)
        sum[i / 4 / TILES][i / 4 % TILES][i % 4] = -0.0f;
#pragma unroll 1
    for (uint32_t u = 0; u < s.units; u += st::UNITS) {
        copies_wait<st::COUNT - 1>();
        __syncwarp();
#pragma unroll
        for (uint32_t j = 0; j < st::UNITS; j++) {
            if (j > 0 && u + j >= s.units)
                break;
            while (end <= u + j) {
                end_chain<2 * TILES>(&sum[0][0], &c[0][0]);
                chain++;
                end = chain_begin(s.units, chain + 1, CUDA_CHAINS);
            }
            add_pair_unit<BITS, WHOLE, TILES>(c, a, s, from, j, x);
            x += x_unit;
        }
        from += in.stage_bytes;
        if (from == in.at + in.ring_bytes)
            from = in.at;
        __syncwarp();
        in.load();
    }
    for (; chain < CUDA_CHAINS; chain++)
        end_chain<2 * TILES>(&sum[0][0], &c[0][0]);
    put_pair<TILES>(a, s, out, pair, expert, sum);
}

template <uint32_t BITS, bool WHOLE> DEVICE void experts_products(const cuda_tiles &a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    using st = stages<BITS>;
    const uint32_t warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const uint32_t panels = (a.w.n + CUDA_PANEL - 1) / CUDA_PANEL;
    const uint32_t side = BITS < 16 ? side_bytes(a.w) : 0;
    const uint32_t lane_sides =
        2 * st::UNITS * st::CODES + lane / 4 * side +
        (BITS < 16 && a.w.group < UNIT ? lane % 4 * 16 / a.w.group * CUDA_PANEL * side : 0);
    const experts_shape s = {fragment_units(a.w),
                             panels,
                             a.glu ? panels / 2 : (panels + 1) / 2,
                             unit_side_bytes(a.w),
                             BITS < 16 && a.w.group > UNIT ? a.w.group / UNIT : 1,
                             lane_sides,
                             sides_at(a.w, 0),
                             fragment_panel_bytes(a.w)};
    const uint32_t stage_bytes = 2 * st::UNITS * (st::CODES + s.side), ring_bytes = st::COUNT * stage_bytes;
    uint8_t *x = shared + WARPS * ring_bytes;
    grid_next();
    grid_wait();
    const uint64_t all = (uint64_t)*a.sorted.group_count * s.pairs;
    const uint32_t last = (uint32_t)(all * (blockIdx.x + 1) / gridDim.x);
    experts_round round = {(uint32_t)(all * blockIdx.x / gridDim.x), 0, 0, s.pairs};
    for (; round.first < last; round.first = round.last) {
        const uint32_t at = shared_at(shared) + warp * ring_bytes;
        uint32_t from = at, group = CUDA_NONE;
        cuda_expert_group g = {};
        lane_outputs out = {};
        round.group = round.first / s.pairs;
        round.last = min(last, (round.group + a.stages) * s.pairs);
        experts_codes<BITS> in = {a,
                                  s,
                                  round,
                                  {},
                                  round.first + warp,
                                  0,
                                  at,
                                  at,
                                  BITS < 16 ? lane / (s.side / 16) : 0,
                                  BITS < 16 ? lane % (s.side / 16) : 0,
                                  stage_bytes,
                                  ring_bytes};
        in.begin_pair();
        __syncthreads();
        bring_columns(x, a, round, s.units);
        copies_end();
#pragma unroll 1
        for (uint32_t i = 0; i < st::COUNT; i++)
            in.load();
        copies_wait<st::COUNT>();
        __syncthreads();
#pragma unroll 1
        for (uint32_t pair = round.first + warp; pair < round.last; pair += WARPS) {
            if (pair / s.pairs != group) {
                group = pair / s.pairs;
                g = a.sorted.groups[group];
                out.find(a, g);
            }
            const uint32_t at_x =
                inputs_at(x + ((group - round.group) * s.units * a.columns + lane % 8) * 2 * UNIT, lane);
            if (g.count > COLUMNS)
                multiply_pair<BITS, WHOLE, 2>(in, from, out, pair % s.pairs, g.expert, at_x);
            else
                multiply_pair<BITS, WHOLE, 1>(in, from, out, pair % s.pairs, g.expert, at_x);
        }
        copies_wait_all();
    }
}

#define EXPERTS(bits)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) plateau_experts##bits(const cuda_tiles a)       \
    {                                                                                                        \
        if (bits < 16 && is_whole(a.w))                                                                      \
            experts_products<bits, (bits < 16)>(a);                                                          \
        else                                                                                                 \
            experts_products<bits, false>(a);                                                                \
    }
EXPERTS(16)
EXPERTS(8)
EXPERTS(4)
