/* project.cu - products with packed weights, by the chains of kernel/matrix.h.
 *
 * A block takes a panel of 16 rows and some columns. A chain is a sum of sums: blocks of 64 k steps, or
 * groups. Sixteen threads a row take one of those each; the row's sum adds them in their order. So the bits
 * are the same as with one thread, and do not depend on other columns. */
#include "compute/cuda/kernels/common.cuh"

#define DENSE_BLOCK 64
#define SLICES      16u

/* What a block of threads keeps of one round. */
template <uint32_t C> struct round_sums {
    float part[SLICES][CUDA_PANEL][C];
    float x[SLICES][C];
    sides side[SLICES][CUDA_PANEL];
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

/* Whole numbers of a byte each, of a group of k from `from` on; inputs as of dense_whole(). */
template <uint32_t C>
DEVICE void affine_bytes(const uint8_t *codes, const float *const x[C], uint32_t from, uint32_t group,
                         float p[C], float sum[C])
{
    constexpr uint32_t AHEAD = dense_ahead<C>();
    for (uint32_t k = 0; k < group; k += AHEAD) {
        float q[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            q[i] = (float)(int8_t)codes[(k + i) * CUDA_PANEL];
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

template <uint32_t C>
DEVICE void affine_part(const cuda_matrix &m, const uint8_t *panel, const float *const x[C], uint32_t group,
                        uint32_t row, float p[C], float sum[C])
{
    const uint8_t *codes = panel + group_offset(m, group) + sides_bytes(m) + row;
    if (m.bits == 8 && m.codes == CUDA_CODES_WHOLE && m.group % 16 == 0 && has_vectors<C>(x))
        return affine_bytes<C>(codes, x, group * m.group, m.group, p, sum);
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

/* Row `row` and column of the block's; the rest of its threads bring the next sums. */
template <uint32_t C>
DEVICE float add_round(const round_sums<C> &r, bool affine, bool biased, uint32_t count, uint32_t row,
                       uint32_t c, float acc)
{
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

/* The panel's rows for C columns; y: the column of the thread's slice, or NULL. */
template <uint32_t C>
DEVICE void multiply(const cuda_matrix &m, uint32_t panel_index, const float *const x[C], float *y,
                     const float *bias)
{
    __shared__ round_sums<C> r;
    bool affine = m.form == CUDA_AFFINE, biased = m.biases != CUDA_BIASES_CENTRED;
    const uint8_t *panel = m.data + panel_index * panel_bytes(m);
    uint32_t row = threadIdx.x % CUDA_PANEL, slice = threadIdx.x / CUDA_PANEL;
    uint32_t blocks = affine ? m.k / m.group : (m.k + DENSE_BLOCK - 1) / DENSE_BLOCK;
    float acc = 0;
    for (uint32_t from = 0; from < blocks; from += SLICES) {
        uint32_t at = from + slice;
        float p[C], sum[C];
#pragma unroll
        for (uint32_t c = 0; c < C; c++)
            p[c] = sum[c] = 0;
        if (at < blocks && affine) {
            affine_part<C>(m, panel, x, at, row, p, sum);
            r.side[slice][row] = sides_of(panel, at, m, row);
        } else if (at < blocks) {
            dense_part<C>(m, panel, x, at, row, p);
        }
#pragma unroll
        for (uint32_t c = 0; c < C; c++) {
            r.part[slice][row][c] = p[c];
            if (row == 0)
                r.x[slice][c] = sum[c];
        }
        __syncthreads();
        if (slice < C)
            acc = add_round<C>(r, affine, biased, min(SLICES, blocks - from), row, slice, acc);
        __syncthreads();
    }
    uint32_t i = panel_index * CUDA_PANEL + row;
    if (y && i < m.n)
        y[i] = bias ? acc + bias[i] : acc;
}

/* Columns are rows of x; with several matrices, heads of each row. */
template <uint32_t C> DEVICE void product_of_rows(const cuda_product &a)
{
    cuda_matrix m = a.w;
    const float *x[C];
    uint32_t from = blockIdx.y * C, head = blockIdx.z, mine = threadIdx.x / CUDA_PANEL;
    m.data += head * m.expert_bytes;
#pragma unroll
    for (uint32_t c = 0; c < C; c++)
        x[c] = row_of(a.x, min(from + c, a.count - 1)) + head * a.x_step;
    bool has = mine < C && from + mine < a.count;
    multiply<C>(m, blockIdx.x, x, has ? row_of(a.y, from + mine) + head * a.y_step : NULL, a.bias);
}

KERNEL plateau_product(const cuda_product a)
{
    grid_begin();
    product_of_rows<1>(a);
}
KERNEL plateau_product4(const cuda_product a)
{
    grid_begin();
    product_of_rows<4>(a);
}
KERNEL plateau_product16(const cuda_product a)
{
    grid_begin();
    product_of_rows<16>(a);
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
    multiply<1>(m, blockIdx.x, x, y, a.bias ? a.bias + (uint64_t)expert * a.bias_step : NULL);
}
