/* project.cu - products with packed weights, by the chains of kernel/matrix.h.
 *
 * A chain is a sum of sums: blocks of 64 k steps, or groups. Few columns: a block takes a panel of 16 rows.
 * Sixteen threads take one sum each of its rows, and the row's sum adds them in their order. Many columns: a
 * thread takes 4 rows of 4 columns from end to end, or where rows are few a block of k at a time. So the bits
 * are the same as with one thread, and do not depend on other columns. */
#include "compute/cuda/kernels/common.cuh"

#define DENSE_BLOCK 64
/* Slices of k that a block has at once: with one column, and with more. */
#define SLICES_ONE (CUDA_PRODUCT_THREADS / CUDA_PANEL)
#define SLICES     16u
/* Most bytes of a row's group that a slice copies ahead. */
#define AHEAD_GROUP 64u

/* Sums that a block of threads keeps of one round. */
template <uint32_t C, uint32_t S> struct round_sums {
    float part[S][CUDA_PANEL][C];
    float x[S][C];
    sides side[S][CUDA_PANEL];
};

template <uint32_t C> DEVICE constexpr bool copies_inputs()
{
    return C <= 4;
}
/* Codes and inputs of each slice's group. */
template <uint32_t C, uint32_t S> struct round_copies {
    alignas(16) uint8_t codes[S][AHEAD_GROUP * CUDA_PANEL];
    alignas(16) float x[S][copies_inputs<C>() ? C : 1][copies_inputs<C>() ? AHEAD_GROUP : 4];
};

/* Values of k that a thread asks for before it multiplies the first. */
template <uint32_t C> DEVICE constexpr uint32_t dense_ahead()
{
    return C > 4 ? 4 : 16;
}

/* A whole block of k, of inputs that begin at whole vectors of four. */
template <uint32_t FORM, uint32_t C>
DEVICE void dense_whole(const uint8_t *panel, const float *const x[C], uint32_t from, uint32_t row,
                        float p[C])
{
    constexpr uint32_t AHEAD = dense_ahead<C>();
#pragma unroll 4
    for (uint32_t k = from; k < from + DENSE_BLOCK; k += AHEAD) {
        float w[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            w[i] = dense_value(panel, FORM, (uint64_t)(k + i) * CUDA_PANEL + row);
#pragma unroll
        for (uint32_t c = 0; c < C; c++) {
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i += 4) {
                const float4 v = *(const float4 *)(x[c] + k + i);
                p[c] = fmaf(w[i], v.x, p[c]);
                p[c] = fmaf(w[i + 1], v.y, p[c]);
                p[c] = fmaf(w[i + 2], v.z, p[c]);
                p[c] = fmaf(w[i + 3], v.w, p[c]);
            }
        }
    }
}

template <uint32_t C> DEVICE bool has_vectors(const float *const x[C])
{
    uintptr_t places = 0;
#pragma unroll
    for (uint32_t c = 0; c < C; c++)
        places |= (uintptr_t)x[c];
    return places % sizeof(float4) == 0;
}

template <uint32_t C>
DEVICE void dense_part(const cuda_matrix &m, const uint8_t *panel, const float *const x[C], uint32_t block,
                       uint32_t row, float p[C])
{
    uint32_t from = block * DENSE_BLOCK, end = min(m.k, from + DENSE_BLOCK);
    bool whole = end - from == DENSE_BLOCK && has_vectors<C>(x);
    if (whole && m.form == CUDA_F32)
        return dense_whole<CUDA_F32, C>(panel, x, from, row, p);
    if (whole && m.form == CUDA_BF16)
        return dense_whole<CUDA_BF16, C>(panel, x, from, row, p);
    for (uint32_t k = from; k < end; k++) {
        float w = dense_value(panel, m.form, (uint64_t)k * CUDA_PANEL + row);
#pragma unroll
        for (uint32_t c = 0; c < C; c++)
            p[c] = fmaf(w, x[c][k], p[c]);
    }
}

/* Code k of a row, whose first byte is at `codes`, less its centre: of 4 or 8 bits. */
template <uint32_t BITS> DEVICE float whole_code(const uint8_t *codes, uint32_t k)
{
    if (BITS == 8)
        return (float)(int8_t)codes[k * CUDA_PANEL];
    return (float)((int)(codes[k / 2 * CUDA_PANEL] >> k % 2 * 4 & 15) - 8);
}

/* Whole numbers, of a group whose inputs begin at `from`; inputs as of dense_whole(). */
template <uint32_t BITS, uint32_t C>
DEVICE void affine_codes(const uint8_t *codes, const float *const x[C], uint32_t from, uint32_t group,
                         float p[C], float sum[C])
{
    constexpr uint32_t AHEAD = dense_ahead<C>();
    for (uint32_t k = 0; k < group; k += AHEAD) {
        float q[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            q[i] = whole_code<BITS>(codes, k + i);
#pragma unroll
        for (uint32_t c = 0; c < C; c++) {
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i += 4) {
                const float4 v = *(const float4 *)(x[c] + from + k + i);
                p[c] = fmaf(q[i], v.x, p[c]), sum[c] += v.x;
                p[c] = fmaf(q[i + 1], v.y, p[c]), sum[c] += v.y;
                p[c] = fmaf(q[i + 2], v.z, p[c]), sum[c] += v.z;
                p[c] = fmaf(q[i + 3], v.w, p[c]), sum[c] += v.w;
            }
        }
    }
}

DEVICE bool has_whole_codes(const cuda_matrix &m)
{
    return m.form == CUDA_AFFINE && m.codes == CUDA_CODES_WHOLE && (m.bits == 8 || m.bits == 4) &&
           m.group % 16 == 0;
}

template <uint32_t C>
DEVICE void affine_part(const cuda_matrix &m, const uint8_t *panel, const float *const x[C], uint32_t group,
                        uint32_t row, float p[C], float sum[C])
{
    const uint8_t *codes = panel + group_offset(m, group) + sides_bytes(m) + row;
    if (has_whole_codes(m) && has_vectors<C>(x)) {
        if (m.bits == 8)
            affine_codes<8, C>(codes, x, group * m.group, m.group, p, sum);
        else
            affine_codes<4, C>(codes, x, group * m.group, m.group, p, sum);
        return;
    }
    for (uint32_t i = 0; i < m.group; i++) {
        float q = code_value(codes, m.bits, m.codes, i);
#pragma unroll
        for (uint32_t c = 0; c < C; c++) {
            float v = x[c][group * m.group + i];
            p[c] = fmaf(q, v, p[c]);
            sum[c] += v;
        }
    }
}

/* ---- few columns ---- */

/* Copies a group's codes by the slice's threads. */
DEVICE void copy_codes(const cuda_matrix &m, const uint8_t *panel, uint32_t group, uint32_t row, uint8_t *to)
{
    const uint8_t *codes = panel + group_offset(m, group) + sides_bytes(m);
    for (uint32_t i = row; i < m.group * m.bits / 8; i += CUDA_PANEL)
        copy16(shared_at(to + i * 16), codes + i * 16);
}
template <uint32_t C>
DEVICE void copy_inputs(const float *const x[C], uint32_t from, uint32_t group, uint32_t row,
                        float (*to)[AHEAD_GROUP])
{
#pragma unroll
    for (uint32_t c = 0; c < C; c++)
        for (uint32_t i = row * 4; i < group; i += CUDA_PANEL * 4)
            copy16(shared_at(to[c] + i), x[c] + from + i);
}

/* As `affine_part()`, but from the slice's copies. */
template <uint32_t C, uint32_t S>
DEVICE void copied_part(const cuda_matrix &m, const round_copies<C, S> &here, const float *const x[C],
                        uint32_t group, uint32_t slice, uint32_t row, float p[C], float sum[C])
{
    const float *v[C];
    uint32_t from = copies_inputs<C>() ? 0 : group * m.group;
#pragma unroll
    for (uint32_t c = 0; c < C; c++)
        v[c] = copies_inputs<C>() ? here.x[slice][copies_inputs<C>() ? c : 0] : x[c];
    if (m.bits == 8)
        affine_codes<8, C>(here.codes[slice] + row, v, from, m.group, p, sum);
    else
        affine_codes<4, C>(here.codes[slice] + row, v, from, m.group, p, sum);
}

/* Adds a round's sums of one row and column, in their order, to acc. */
template <uint32_t C, uint32_t S>
DEVICE float add_round(const round_sums<C, S> &r, bool affine, bool biased, uint32_t count, uint32_t row,
                       uint32_t c, float acc)
{
#pragma unroll 4
    for (uint32_t i = 0; i < count; i++) {
        if (affine) {
            acc = fmaf(r.side[i][row].scale, r.part[i][row][c], acc);
            if (biased)
                acc = fmaf(r.side[i][row].bias, r.x[i][c], acc);
        } else {
            acc = acc + r.part[i][row][c];
        }
    }
    return acc;
}

/* The panel's rows for C columns; y: the column of the thread's slice, or NULL. It waits for earlier kernels
 * once it has asked for weights. */
template <uint32_t C, uint32_t S>
DEVICE void multiply(const cuda_matrix &m, uint32_t panel_index, const float *const x[C], float *y,
                     const float *bias)
{
    __shared__ round_sums<C, S> r;
    __shared__ round_copies<C, S> here;
    bool affine = m.form == CUDA_AFFINE, biased = m.biases != CUDA_BIASES_CENTRED;
    bool copied = has_whole_codes(m) && m.group <= AHEAD_GROUP && has_vectors<C>(x);
    const uint8_t *panel = m.data + panel_index * panel_bytes(m);
    uint32_t row = threadIdx.x % CUDA_PANEL, slice = threadIdx.x / CUDA_PANEL;
    uint32_t blocks = affine ? m.k / m.group : (m.k + DENSE_BLOCK - 1) / DENSE_BLOCK;
    float acc = 0;
    for (uint32_t from = 0; from < blocks; from += S) {
        uint32_t at = from + slice;
        bool some = at < blocks;
        float p[C], sum[C];
#pragma unroll
        for (uint32_t c = 0; c < C; c++)
            p[c] = sum[c] = 0;
        if (some && copied)
            copy_codes(m, panel, at, row, here.codes[slice]);
        if (some && affine)
            r.side[slice][row] = sides_of(panel, at, m, row);
        if (from == 0)
            grid_wait_next();
        if constexpr (copies_inputs<C>())
            if (some && copied)
                copy_inputs<C>(x, at * m.group, m.group, row, here.x[slice]);
        copies_wait_all();
        __syncwarp();
        if (some && copied)
            copied_part<C, S>(m, here, x, at, slice, row, p, sum);
        else if (some && affine)
            affine_part<C>(m, panel, x, at, row, p, sum);
        else if (some)
            dense_part<C>(m, panel, x, at, row, p);
#pragma unroll
        for (uint32_t c = 0; c < C; c++) {
            r.part[slice][row][c] = p[c];
            if (row == 0)
                r.x[slice][c] = sum[c];
        }
        __syncthreads();
        if (slice < C)
            acc = add_round<C, S>(r, affine, biased, min(S, blocks - from), row, slice, acc);
        __syncthreads();
    }
    uint32_t i = panel_index * CUDA_PANEL + row;
    if (y && i < m.n)
        y[i] = bias ? acc + bias[i] : acc;
}

/* Columns are rows of x; with several matrices, heads of each row. */
template <uint32_t C, uint32_t S> DEVICE void product_of_rows(const cuda_product &a)
{
    cuda_matrix m = a.w;
    const float *x[C];
    uint32_t from = blockIdx.y * C, head = blockIdx.z, mine = threadIdx.x / CUDA_PANEL;
    m.data += head * m.expert_bytes;
#pragma unroll
    for (uint32_t c = 0; c < C; c++)
        x[c] = row_of(a.x, min(from + c, a.count - 1)) + head * a.x_step;
    bool has = mine < C && from + mine < a.count;
    multiply<C, S>(m, blockIdx.x, x, has ? row_of(a.y, from + mine) + head * a.y_step : NULL, a.bias);
}

KERNEL plateau_product(const cuda_product a)
{
    product_of_rows<1, SLICES_ONE>(a);
}
KERNEL plateau_product4(const cuda_product a)
{
    product_of_rows<4, SLICES>(a);
}
KERNEL plateau_product16(const cuda_product a)
{
    product_of_rows<16, SLICES>(a);
}

/* A column is a pair of a token and an expert. */
KERNEL plateau_product_experts(const cuda_product a)
{
    grid_begin();
    uint32_t column = blockIdx.y, expert = a.expert[column];
    cuda_matrix m = a.w;
    const float *x[1] = {row_of(a.x, column / a.x_div)};
    float *y = threadIdx.x < CUDA_PANEL ? row_of(a.y, column) : NULL;
    m.data += expert * m.expert_bytes;
    multiply<1, SLICES>(m, blockIdx.x, x, y, a.bias ? a.bias + (uint64_t)expert * a.bias_step : NULL);
}

/* ---- many columns ----
 *
 * A warp takes a panel for 32 columns, and the block's warps share the columns. Steps of 32 k are in two
 * buffers: the next one's inputs are copied, and its weights lie in registers, while one is multiplied. A
 * thread has 4 rows (4 * its row place + 0..3) of the columns (its column place + 8 * 0..3). Lane l also sums
 * the inputs of column l. */

#define TILE_STEP    CUDA_PRODUCT_STEP
#define TILE_COLUMNS CUDA_PRODUCT_COLUMNS
#define TILE_PIECE   16u  /* k steps between two places where a sum can end */
#define TILE_SIDES   128u /* bytes of a group's scales and biases, at most */

/* Values by four, of a k step and of a column. They have pads, so that lanes next to each other use all
 * banks. */
#define TILE_W (CUDA_PANEL / 4 + 1)
#define TILE_X (TILE_STEP / 4 + 1)
struct tile_buffers {
    float4 w[2][CUDA_PRODUCT_PANELS][TILE_STEP][TILE_W];
    float4 x[2][TILE_COLUMNS][TILE_X];
    alignas(16) uint8_t sides[2][CUDA_PRODUCT_PANELS][TILE_STEP / TILE_PIECE][TILE_SIDES];
};

/* A thread's sums, and where it is. */
struct tile_sums {
    float acc[4][4], p[4][4]; /* [row][column] */
    float x;                  /* sum of column `lane` since the last block of k began */
    uint32_t lane, row, column;
};

/* Bytes of a k step of a panel that lie side by side; 0: they do not. */
DEVICE uint32_t tile_bytes(const cuda_matrix &m)
{
    if (m.form == CUDA_F32 || m.form == CUDA_BF16)
        return CUDA_PANEL * (m.form == CUDA_F32 ? 4 : 2);
    return has_whole_codes(m) ? CUDA_PANEL : 0;
}

/* A lane's k step: of a group, or of a dense panel. */
struct tile_place {
    uint32_t group, k;
};

DEVICE void tile_go_on(const cuda_matrix &m, tile_place &at, uint32_t steps)
{
    at.k += steps;
    for (; m.form == CUDA_AFFINE && at.k >= m.group; at.k -= m.group)
        at.group++;
}

/* Loads the step's weights, 16 bytes each. */
DEVICE void tile_ask(const cuda_matrix &m, const uint8_t *panel, tile_place place, uint4 raw[4])
{
    const uint32_t bytes = tile_bytes(m);
    const uint8_t *at = panel + (uint64_t)place.k * bytes;
    if (m.form == CUDA_AFFINE)
        at = panel + group_offset(m, place.group) + sides_bytes(m) +
             (m.bits == 8 ? place.k : place.k / 2) * CUDA_PANEL;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        if (i * 16 < bytes)
            raw[i] = *(const uint4 *)(at + i * 16);
}
/* When a group begins, the lanes of a piece copy its scales and biases. */
DEVICE void tile_ask_sides(const cuda_matrix &m, const uint8_t *panel, tile_place place, uint32_t lane,
                           uint8_t *sides)
{
    if (m.form == CUDA_AFFINE && place.k == lane % TILE_PIECE && place.k * 16 < sides_bytes(m))
        copy16(shared_at(sides + place.k * 16), panel + group_offset(m, place.group) + place.k * 16);
}

/* Codes of four rows less their centre. */
template <uint32_t BITS> DEVICE float4 tile_codes(uint32_t word, uint32_t shift)
{
    float q[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; i++)
        q[i] = BITS == 8 ? (float)(int8_t)(word >> 8 * i) : (float)((int)(word >> shift >> 8 * i & 15) - 8);
    return {q[0], q[1], q[2], q[3]};
}
DEVICE float4 tile_of_bf16(uint32_t low, uint32_t high)
{
    return {__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u), __uint_as_float(high << 16),
            __uint_as_float(high & 0xffff0000u)};
}
DEVICE float4 tile_of_f32(const uint4 &v)
{
    return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}

/* One value of a form without a path of its own. */
DEVICE float tile_value(const cuda_matrix &m, const uint8_t *panel, tile_place at, uint32_t row)
{
    if (m.form != CUDA_AFFINE)
        return dense_value(panel, m.form, (uint64_t)at.k * CUDA_PANEL + row);
    const uint8_t *codes = panel + group_offset(m, at.group) + sides_bytes(m) + row;
    return code_value(codes, m.bits, m.codes, at.k);
}

/* Writes the step's multipliers: codes, or values of dense weights. */
DEVICE void tile_put(const cuda_matrix &m, const uint8_t *panel, tile_place at, const uint4 raw[4],
                     float4 *to)
{
    const uint32_t bytes = tile_bytes(m);
    if (bytes == CUDA_PANEL && m.bits == 8) {
        to[0] = tile_codes<8>(raw[0].x, 0), to[1] = tile_codes<8>(raw[0].y, 0);
        to[2] = tile_codes<8>(raw[0].z, 0), to[3] = tile_codes<8>(raw[0].w, 0);
    } else if (bytes == CUDA_PANEL) {
        const uint32_t shift = at.k % 2 * 4;
        to[0] = tile_codes<4>(raw[0].x, shift), to[1] = tile_codes<4>(raw[0].y, shift);
        to[2] = tile_codes<4>(raw[0].z, shift), to[3] = tile_codes<4>(raw[0].w, shift);
    } else if (m.form == CUDA_BF16) {
        to[0] = tile_of_bf16(raw[0].x, raw[0].y), to[1] = tile_of_bf16(raw[0].z, raw[0].w);
        to[2] = tile_of_bf16(raw[1].x, raw[1].y), to[3] = tile_of_bf16(raw[1].z, raw[1].w);
    } else if (bytes > 0) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            to[i] = tile_of_f32(raw[i]);
    } else {
        for (uint32_t i = 0; i < 4; i++)
            to[i] = {tile_value(m, panel, at, 4 * i), tile_value(m, panel, at, 4 * i + 1),
                     tile_value(m, panel, at, 4 * i + 2), tile_value(m, panel, at, 4 * i + 3)};
    }
}

/* Lanes whose numbers differ in bit 0 have the same columns, in bit 1 the same rows: of such pairs two
 * quarters of a warp read shared memory at once. */
DEVICE void tile_lane(tile_sums &s)
{
    s.lane = threadIdx.x % 32;
    s.row = (s.lane & 1) | (s.lane >> 3 & 2);
    s.column = s.lane >> 1 & 7;
}

/* Multiplies one k step of 4 rows and 4 columns. */
DEVICE void tile_multiply(tile_sums &s, const float4 &w, const float4 &x)
{
    const float rows[4] = {w.x, w.y, w.z, w.w}, columns[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (uint32_t r = 0; r < 4; r++)
#pragma unroll
        for (uint32_t c = 0; c < 4; c++)
            s.p[r][c] = fmaf(rows[r], columns[c], s.p[r][c]);
}

/* Multiplies TILE_PIECE steps, from where in a buffer w and x begin. */
DEVICE void tile_piece(tile_sums &s, const float4 *w, const float4 *x)
{
    constexpr uint32_t K = TILE_W, C = 8 * TILE_X;
    const float4 *rows = w + s.row, *columns = x + s.column * TILE_X, *mine = x + s.lane * TILE_X;
#pragma unroll
    for (uint32_t i = 0; i < TILE_PIECE / 4; i++) {
        const float4 v = mine[i];
        const float4 x0 = columns[i], x1 = columns[i + C], x2 = columns[i + 2 * C], x3 = columns[i + 3 * C];
        tile_multiply(s, rows[4 * i * K], {x0.x, x1.x, x2.x, x3.x});
        tile_multiply(s, rows[(4 * i + 1) * K], {x0.y, x1.y, x2.y, x3.y});
        tile_multiply(s, rows[(4 * i + 2) * K], {x0.z, x1.z, x2.z, x3.z});
        tile_multiply(s, rows[(4 * i + 3) * K], {x0.w, x1.w, x2.w, x3.w});
        s.x += v.x, s.x += v.y, s.x += v.z, s.x += v.w;
    }
}

/* Adds a block of k of dense weights that ends. */
DEVICE void tile_end_block(tile_sums &s)
{
#pragma unroll
    for (uint32_t r = 0; r < 4; r++)
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            s.acc[r][c] += s.p[r][c];
            s.p[r][c] = 0;
        }
}

/* Adds a group that ends. side: scale and bias of row lane % 16. */
DEVICE void tile_end_group(tile_sums &s, bool biased, const sides &side)
{
    float sum[4];
#pragma unroll
    for (uint32_t c = 0; c < 4; c++)
        sum[c] = __shfl_sync(0xffffffffu, s.x, s.column + 8 * c);
#pragma unroll
    for (uint32_t r = 0; r < 4; r++) {
        float scale = __shfl_sync(0xffffffffu, side.scale, 4 * s.row + r);
        float bias = __shfl_sync(0xffffffffu, side.bias, 4 * s.row + r);
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            s.acc[r][c] = fmaf(scale, s.p[r][c], s.acc[r][c]);
            if (biased)
                s.acc[r][c] = fmaf(bias, sum[c], s.acc[r][c]);
            s.p[r][c] = 0;
        }
    }
    s.x = 0;
}

DEVICE void tile_outputs(const cuda_product &a, const tile_sums &s, uint32_t panel_index, uint32_t head,
                         uint32_t first)
{
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        uint32_t column = first + s.column + 8 * c;
        float *y = row_of(a.y, column) + head * a.y_step;
#pragma unroll
        for (uint32_t r = 0; r < 4; r++) {
            uint32_t i = panel_index * CUDA_PANEL + 4 * s.row + r;
            if (column < a.count && i < a.w.n)
                y[i] = a.bias ? s.acc[r][c] + a.bias[i] : s.acc[r][c];
        }
    }
}

/* Copies k steps [from, from + TILE_STEP) of the block's columns, by `threads` threads. */
DEVICE void tile_copy(const cuda_product &a, uint32_t head, uint32_t first, uint32_t from,
                      float4 (*to)[TILE_X], uint32_t thread, uint32_t threads)
{
    for (uint32_t i = thread; i < TILE_COLUMNS * TILE_STEP / 4; i += threads) {
        uint32_t c = i / (TILE_STEP / 4), piece = i % (TILE_STEP / 4);
        const float *x = row_of(a.x, min(first + c, a.count - 1)) + head * a.x_step;
        copy16(shared_at(&to[c][piece]), x + from + piece * 4);
    }
}

/* Inputs begin at whole vectors of four; k has whole steps, and a group whole pieces. */
KERNEL plateau_product_tiles(const cuda_product a)
{
    __shared__ tile_buffers buffers;
    cuda_matrix m = a.w;
    const uint32_t head = blockIdx.z, first = blockIdx.x * TILE_COLUMNS, warp = threadIdx.x / 32;
    const uint32_t panels = (m.n + CUDA_PANEL - 1) / CUDA_PANEL;
    const uint32_t panel_index = blockIdx.y * (blockDim.x / 32) + warp;
    const bool mine = panel_index < panels, affine = m.form == CUDA_AFFINE;
    const uint8_t *panel = m.data + head * m.expert_bytes + panel_index * panel_bytes(m);
    const uint32_t block = affine ? m.group : DENSE_BLOCK;
    uint32_t left = block, group = 0;
    tile_sums s = {};
    sides side = {};
    uint4 raw[4] = {};
    tile_lane(s);
    grid_next();
    tile_place place = {};
    tile_go_on(m, place, s.lane);
    if (mine) {
        tile_ask(m, panel, place, raw);
        tile_ask_sides(m, panel, place, s.lane, buffers.sides[0][warp][s.lane / TILE_PIECE]);
    }
    grid_wait();
    tile_copy(a, head, first, 0, buffers.x[0], threadIdx.x, blockDim.x);
    for (uint32_t from = 0; from < m.k; from += TILE_STEP) {
        const uint32_t b = from / TILE_STEP % 2;
        if (mine)
            tile_put(m, panel, place, raw, buffers.w[b][warp][s.lane]);
        copies_wait_all();
        __syncthreads();
        if (from + TILE_STEP < m.k) {
            tile_go_on(m, place, TILE_STEP);
            if (mine) {
                tile_ask(m, panel, place, raw);
                tile_ask_sides(m, panel, place, s.lane, buffers.sides[b ^ 1][warp][s.lane / TILE_PIECE]);
            }
            tile_copy(a, head, first, from + TILE_STEP, buffers.x[b ^ 1], threadIdx.x, blockDim.x);
        }
        for (uint32_t piece = 0; mine && piece < TILE_STEP; piece += TILE_PIECE) {
            if (affine && left == block) {
                side = sides_at(buffers.sides[b][warp][piece / TILE_PIECE], upper_of(panel, group, m), m,
                                s.lane % CUDA_PANEL);
                group++;
            }
            tile_piece(s, buffers.w[b][warp][piece], &buffers.x[b][0][piece / 4]);
            left -= TILE_PIECE;
            if (left == 0 || from + piece + TILE_PIECE == m.k) {
                left = block;
                if (affine)
                    tile_end_group(s, m.biases != CUDA_BIASES_CENTRED, side);
                else
                    tile_end_block(s);
            }
        }
    }
    if (mine)
        tile_outputs(a, s, panel_index, head, first);
}

/* ---- many columns of few rows ----
 *
 * A block has a panel and 32 columns. Its warps take a block of k each, or a group, of all these columns.
 * Then each thread adds the sums of one output in their order. */

#define DEEP_WARPS (CUDA_PRODUCT_THREADS / 32)
#define DEEP_PITCH (TILE_COLUMNS + 1)

/* Buffers of a warp. The sums of a block of k take the place of its weights. */
struct deep_buffers {
    union {
        float4 w[TILE_STEP][TILE_W];
        float part[CUDA_PANEL][DEEP_PITCH];
    };
    float4 x[2][TILE_COLUMNS][TILE_X];
    float x_sums[TILE_COLUMNS];
    sides side[CUDA_PANEL];
};
static_assert(DEEP_WARPS * sizeof(deep_buffers) == CUDA_PRODUCT_DEEP_SHARED, "all fit");

/* A warp's way through its blocks of k, step by step. */
struct deep_steps {
    const cuda_product &a;
    const cuda_matrix &m;
    const uint8_t *panel;
    uint32_t head, first, lane, block, blocks; /* first: column; block: k values of a block, or of a group */
    uint32_t at, step;                         /* the block, and k in it, that comes next */

    __device__ __forceinline__ bool more() const
    {
        return at < blocks;
    }
    __device__ __forceinline__ tile_place place() const
    {
        return m.form == CUDA_AFFINE ? tile_place{at, step + lane} : tile_place{0, at * block + step + lane};
    }
    __device__ __forceinline__ void ask(uint4 raw[4]) const
    {
        if (more())
            tile_ask(m, panel, place(), raw);
    }
    __device__ __forceinline__ void copy(float4 (*x)[TILE_X]) const
    {
        if (more())
            tile_copy(a, head, first, at * block + step, x, lane, 32);
    }
    __device__ __forceinline__ bool ends() const
    {
        return step + TILE_STEP == block || at * block + step + TILE_STEP == m.k;
    }
    __device__ __forceinline__ void next()
    {
        step += TILE_STEP;
        if (step == block || at * block + step == m.k) {
            at += DEEP_WARPS;
            step = 0;
        }
    }
};

/* Inputs begin at whole vectors of four; k, and a group, have whole steps. */
KERNEL plateau_product_deep(const cuda_product a)
{
    extern __shared__ __align__(128) uint8_t shared[];
    cuda_matrix m = a.w;
    const uint32_t warp = threadIdx.x / 32, row = threadIdx.x % CUDA_PANEL, column = threadIdx.x / CUDA_PANEL;
    const bool affine = m.form == CUDA_AFFINE, biased = m.biases != CUDA_BIASES_CENTRED;
    deep_buffers *all = (deep_buffers *)shared, &mine = all[warp];
    const uint32_t block = affine ? m.group : DENSE_BLOCK, blocks = (m.k + block - 1) / block;
    deep_steps in = {a,
                     m,
                     m.data + blockIdx.z * m.expert_bytes + blockIdx.y * panel_bytes(m),
                     blockIdx.z,
                     blockIdx.x * TILE_COLUMNS,
                     threadIdx.x % 32,
                     block,
                     blocks,
                     warp,
                     0};
    uint4 raw[4] = {};
    tile_sums s = {};
    uint32_t buffer = 0;
    float acc = 0;
    tile_lane(s);
    in.ask(raw);
    grid_wait_next();
    in.copy(mine.x[0]);
    for (uint32_t from = 0; from < blocks; from += DEEP_WARPS) {
        for (bool ends = !in.more(); !ends;) {
            const tile_place place = in.place();
            ends = in.ends();
            tile_put(m, in.panel, place, raw, mine.w[s.lane]);
            if (ends && affine && s.lane < CUDA_PANEL)
                mine.side[s.lane] = sides_of(in.panel, in.at, m, s.lane);
            copies_wait_all();
            __syncwarp();
            in.next();
            in.ask(raw);
            in.copy(mine.x[buffer ^ 1]);
            for (uint32_t piece = 0; piece < TILE_STEP; piece += TILE_PIECE)
                tile_piece(s, mine.w[piece], &mine.x[buffer][0][piece / 4]);
            buffer ^= 1;
            __syncwarp();
        }
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
#pragma unroll
            for (uint32_t c = 0; c < 4; c++) {
                mine.part[4 * s.row + r][s.column + 8 * c] = s.p[r][c];
                s.p[r][c] = 0;
            }
        mine.x_sums[s.lane] = s.x;
        s.x = 0;
        __syncthreads();
        const uint32_t count = min(blocks - from, DEEP_WARPS);
#pragma unroll 4
        for (uint32_t i = 0; i < count; i++) {
            const float part = all[i].part[row][column];
            acc = affine ? fmaf(all[i].side[row].scale, part, acc) : acc + part;
            if (affine && biased)
                acc = fmaf(all[i].side[row].bias, all[i].x_sums[column], acc);
        }
        __syncthreads();
    }
    const uint32_t i = blockIdx.y * CUDA_PANEL + row;
    if (in.first + column < a.count && i < m.n)
        (row_of(a.y, in.first + column) + blockIdx.z * a.y_step)[i] = a.bias ? acc + a.bias[i] : acc;
}
