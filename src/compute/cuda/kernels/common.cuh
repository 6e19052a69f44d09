/* common.cuh - what all kernels share: sums of a block, norms, and values of packed weights.
 *
 * Compiled without contraction: a sum is what the source says, and fused operations are written as fmaf.
 * A row's arithmetic depends on the row alone. Sums in double go up a fixed tree. */
#ifndef PLATEAU_CUDA_COMMON_CUH
#define PLATEAU_CUDA_COMMON_CUH

#include "compute/cuda/cuda_args.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "compute/cuda/kernels/ptx.cuh"

#define KERNEL extern "C" __global__ void

/* Where there is nothing to do before. */
DEVICE void grid_begin()
{
    grid_next();
    grid_wait();
}

/* The next kernel begins when those in front have ended, and may be beside this one (cuda_product.beside). */
DEVICE void grid_wait_next()
{
    grid_wait();
    grid_next();
}

/* ---- blocks: a multiple of 32 threads, 1024 at most; all of them call ---- */

/* Sums a value over a warp, in its first lane. */
DEVICE double warp_sum(double x)
{
    for (uint32_t d = 16; d > 0; d /= 2)
        x += __shfl_down_sync(0xffffffffu, x, d);
    return x;
}

DEVICE double block_sum(double x)
{
    __shared__ double parts[32];
    x = warp_sum(x);
    __syncthreads(); /* earlier readers of `parts` */
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = x;
    __syncthreads();
    double sum = 0;
    for (uint32_t i = 0; i < blockDim.x / 32; i++)
        sum += parts[i];
    return sum;
}

DEVICE float block_max(float x)
{
    __shared__ float parts[32];
    for (uint32_t d = 16; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = x;
    __syncthreads();
    float max = parts[0];
    for (uint32_t i = 1; i < blockDim.x / 32; i++)
        max = fmaxf(max, parts[i]);
    return max;
}

/* The largest value that is greater than -inf, and the lowest index of equals; CUDA_NONE: none is. */
struct best {
    float value;
    uint32_t index;
};

DEVICE best better(best a, best b)
{
    bool second = b.index != CUDA_NONE &&
                  (a.index == CUDA_NONE || b.value > a.value || (b.value == a.value && b.index < a.index));
    return second ? b : a;
}

DEVICE best warp_best(best x)
{
    for (uint32_t d = 16; d > 0; d /= 2) {
        best other = {__shfl_xor_sync(0xffffffffu, x.value, d), __shfl_xor_sync(0xffffffffu, x.index, d)};
        x = better(x, other);
    }
    return x;
}

DEVICE best block_best(best x)
{
    __shared__ best parts[32];
    x = warp_best(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = x;
    __syncthreads();
    best all = parts[0];
    for (uint32_t i = 1; i < blockDim.x / 32; i++)
        all = better(all, parts[i]);
    return all;
}

/* ---- rows ---- */

DEVICE float *row_of(const cuda_rows &r, uint64_t row)
{
    return r.at + row * r.stride;
}

/* Where value i of a row lies among its 64: step j has the pairs (0, 1) of all t, then the pairs (2, 3).
 * Pieces of 8 change places by the row, so that 8 rows take all banks of shared memory. */
DEVICE uint32_t rounded_place(uint32_t row, uint32_t i)
{
    uint32_t t = i % 64 / 16, j = i % 16 / 4, piece = 2 * j + i % 4 / 2;
    return (piece ^ row % 8) * 8 + 2 * t + i % 2;
}
DEVICE void put_rounded(const cuda_rounded &r, uint32_t row, uint32_t i, float x)
{
    row += r.first;
    if (r.at)
        r.at[((uint64_t)(i / 64) * r.rows + row) * 64 + rounded_place(row, i)] =
            __bfloat16_as_ushort(__float2bfloat16_rn(x));
}
/* Values of a row: whole units. */
DEVICE uint32_t rounded_width(uint32_t width)
{
    return (width + CUDA_UNIT - 1) / CUDA_UNIT * CUDA_UNIT;
}

DEVICE float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}
DEVICE float silu(float x)
{
    return x / (1.0f + expf(-x));
}
DEVICE float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x));
}

/* By all threads of a block; y may be x. step: from one value of y to the next. */
DEVICE void rms_row(float *y, const float *x, const float *w, uint32_t n, float eps, uint32_t step = 1)
{
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)x[i] * x[i];
    sum = block_sum(sum);
    float r = (float)(1 / sqrt(sum / n + eps));
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        y[i * step] = w[i] * (x[i] * r);
    __syncthreads();
}

/* See rms_row(). */
DEVICE void layer_row(float *y, const float *x, const float *w, const float *b, uint32_t n, float eps,
                      uint32_t step = 1)
{
    double sum = 0, squares = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)x[i];
    double centre = block_sum(sum) / n;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        squares += ((double)x[i] - centre) * ((double)x[i] - centre);
    float mean = (float)centre, r = (float)(1 / sqrt(block_sum(squares) / n + eps));
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        y[i * step] = b ? fmaf((x[i] - mean) * r, w[i], b[i]) : (x[i] - mean) * r * w[i];
    __syncthreads();
}

DEVICE void norm_row(const cuda_norm &a, float *y, const float *x, uint32_t n)
{
    if (a.layer_norm)
        layer_row(y, x, a.weight, a.bias, n, a.eps);
    else
        rms_row(y, x, a.weight, n, a.eps);
}

/* ---- packed weights (kernel/matrix.h) ---- */

DEVICE uint32_t scale_bytes(const cuda_matrix &m)
{
    return CUDA_PANEL * (m.qparams == CUDA_F32 ? 4 : m.qparams <= CUDA_F16 ? 2 : 1);
}
/* Scales and what there is of biases. */
DEVICE uint32_t sides_bytes(const cuda_matrix &m)
{
    uint32_t scales = scale_bytes(m);
    return scales + (m.biases == CUDA_BIASES_STORED  ? scales
                     : m.biases == CUDA_BIASES_ZEROS ? CUDA_PANEL
                                                     : 0);
}
DEVICE uint64_t group_bytes(const cuda_matrix &m)
{
    return sides_bytes(m) + (uint64_t)(m.group / 8) * CUDA_PANEL * m.bits;
}
/* Upper scales and biases; 0 with one level. */
DEVICE uint32_t super_bytes(const cuda_matrix &m)
{
    return m.super == 0                                               ? 0
           : m.qparams == CUDA_E4M3 || m.biases == CUDA_BIASES_STORED ? CUDA_PANEL * 4
                                                                      : CUDA_PANEL * 2;
}
DEVICE uint64_t group_offset(const cuda_matrix &m, uint32_t group)
{
    uint64_t at = group * group_bytes(m);
    return m.super ? at + (uint64_t)(group / (m.super / m.group) + 1) * super_bytes(m) : at;
}
DEVICE uint64_t panel_bytes(const cuda_matrix &m)
{
    if (m.form == CUDA_AFFINE)
        return m.k / m.group * group_bytes(m) + (m.super ? m.k / m.super * super_bytes(m) : 0);
    return (uint64_t)m.k * CUDA_PANEL * (m.form == CUDA_F32 ? 4 : 2);
}

DEVICE float dense_value(const uint8_t *panel, uint32_t form, uint64_t element)
{
    if (form == CUDA_BF16)
        return __uint_as_float((uint32_t)((const uint16_t *)panel)[element] << 16);
    if (form == CUDA_F16)
        return __half2float(((const __half *)panel)[element]);
    return ((const float *)panel)[element];
}

/* A float of 1, 4 and 3 bits over 256: a half has one exponent bit more, eight powers lower. */
DEVICE float small_float(uint8_t b)
{
    return __half2float(__ushort_as_half((unsigned short)((b & 0x80) << 8 | (b & 0x7f) << 7)));
}

/* Scale, upper scale or bias of a lane. */
DEVICE float side_value(const uint8_t *at, uint32_t form, uint32_t lane)
{
    if (form == CUDA_E8M0)
        return __uint_as_float(max((uint32_t)at[lane] << 23, 0x400000u));
    if (form == CUDA_E4M3)
        return small_float(at[lane]) * 256;
    if (form == CUDA_I8)
        return (float)(int8_t)at[lane];
    return dense_value(at, form, lane);
}

__constant__ const int8_t cuda_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

/* The number of a code of four bits, that of E2M1 twice. */
DEVICE float table_value(uint32_t codes, uint32_t code)
{
    if (codes == CUDA_CODES_IQ4)
        return (float)cuda_iq4[code];
    float size = (float)(0xc8643210u >> (code & 7) * 4 & 15);
    return code & 8 ? -size : size;
}

/* Returns the factor of the input for the k-th value of a group whose planes begin at `at`, the row's byte: a
 * code less its centre, or the number that it looks up. */
DEVICE float code_value(const uint8_t *at, uint32_t bits, uint32_t codes, uint32_t k)
{
    if (codes == CUDA_CODES_E4M3)
        return small_float(at[k * 16]);
    if (bits == 8)
        return (float)(int8_t)at[k * 16];
    at += (uint64_t)(k / 8) * CUDA_PANEL * bits;
    uint32_t value = 0, shift = 0, step = k % 8;
    for (uint32_t width = 4; width > 0; width /= 2) {
        uint32_t per_byte = 8 / width;
        if (bits - shift < width)
            continue;
        value |= (at[step / per_byte * 16] >> step % per_byte * width & ((1u << width) - 1)) << shift;
        at += 8 / per_byte * 16;
        shift += width;
    }
    if (codes != CUDA_CODES_WHOLE)
        return table_value(codes, value);
    return (float)((int)value - (1 << (bits - 1)));
}

struct sides {
    float scale, bias; /* the bias with its centre's share */
};

/* A group's upper scales; NULL: it has none. */
DEVICE const uint8_t *upper_of(const uint8_t *panel, uint32_t group, const cuda_matrix &m)
{
    return m.super ? panel + group_offset(m, group - group % (m.super / m.group)) - super_bytes(m) : NULL;
}

/* at: the group's scales. */
DEVICE sides sides_at(const uint8_t *at, const uint8_t *upper, const cuda_matrix &m, uint32_t lane)
{
    const uint8_t *biases = at + scale_bytes(m);
    const float centre = (float)(1u << (m.bits - 1));
    sides s = {side_value(at, m.qparams, lane), 0};
    if (m.super) {
        s.scale = dense_value(upper, m.qparams == CUDA_E4M3 ? CUDA_F32 : CUDA_F16, lane) * s.scale;
    }
    s.scale *= m.codes == CUDA_CODES_E2M1 ? 0.5f : m.codes == CUDA_CODES_E4M3 ? 256.0f : 1.0f;
    if (m.biases == CUDA_BIASES_ZEROS) {
        s.bias = (centre - (float)biases[lane]) * s.scale;
    } else if (m.biases == CUDA_BIASES_STORED) {
        s.bias = side_value(biases, m.qparams, lane);
        if (m.super)
            s.bias = -dense_value(upper, CUDA_F16, CUDA_PANEL + lane) * s.bias;
        s.bias = fmaf(s.scale, centre, s.bias);
    }
    return s;
}

DEVICE sides sides_of(const uint8_t *panel, uint32_t group, const cuda_matrix &m, uint32_t lane)
{
    return sides_at(panel + group_offset(m, group), upper_of(panel, group, m), m, lane);
}

/* Value k of row `row`, dequantised. */
DEVICE float weight_value(const cuda_matrix &m, uint32_t row, uint32_t k)
{
    const uint8_t *panel = m.data + row / CUDA_PANEL * panel_bytes(m);
    uint32_t lane = row % CUDA_PANEL;
    if (m.form != CUDA_AFFINE)
        return dense_value(panel, m.form, (uint64_t)k * CUDA_PANEL + lane);
    const uint8_t *codes = panel + group_offset(m, k / m.group) + sides_bytes(m) + lane;
    sides s = sides_of(panel, k / m.group, m, lane);
    return fmaf(s.scale, code_value(codes, m.bits, m.codes, k % m.group), s.bias);
}

/* ---- a step ---- */

DEVICE const cuda_seq &seq_of(const cuda_step &s, uint32_t t)
{
    return s.seq[s.token_seq[t]];
}
DEVICE float *state_at(const cuda_step &s, uint32_t state, uint64_t offset)
{
    return state == CUDA_NONE ? NULL : (float *)(s.states + state * s.state_bytes + offset);
}

/* Where a token's page lies in the group's memory, in pages. */
DEVICE uint32_t page_index(const cuda_step &s, const cuda_seq &seq, const cuda_kv &kv, uint32_t page)
{
    return s.tables[seq.pages[kv.group] + page];
}
/* K and V of a page. */
DEVICE float *page_of(const cuda_step &s, const cuda_kv &kv, uint32_t head, uint32_t index)
{
    return (float *)(s.pages[kv.group] + index * s.page_bytes[kv.group] + kv.offset + head * kv.head_bytes);
}
/* Where a page of bf16 has number d of the key of its token `at`, and of the value, in numbers. Pieces of 16
 * bytes change places, so that 8 rows of a matrix take all banks of shared memory, where a page comes as it
 * is. */
DEVICE uint32_t key_in_page(uint32_t d, uint32_t at)
{
    return d * CUDA_PAGE_TOKENS + (at / 8 ^ d / 2 % 4) * 8 + at % 8;
}
DEVICE uint32_t value_in_page(uint32_t width, uint32_t at, uint32_t d)
{
    return at * width + (d / 8 ^ at % 8) * 8 + d % 8;
}
/* K and V of a token's page. */
DEVICE float *page_at(const cuda_step &s, const cuda_seq &seq, const cuda_kv &kv, uint32_t head,
                      uint32_t page)
{
    return page_of(s, kv, head, page_index(s, seq, kv, page));
}

/* x = the sum of token t's experts' outputs, in their order. By all threads of a block. */
DEVICE void sum_experts(const cuda_step &s, const cuda_residual &a, float *x, uint32_t width, uint32_t t)
{
    const float *weights = s.pair_weight + (uint64_t)t * s.top_k;
    const float *first = row_of(a.pairs, (uint64_t)t * s.top_k);
    bool fours = width % 4 == 0 && ((uintptr_t)first | (uintptr_t)x) % 16 == 0 && a.pairs.stride % 4 == 0;
    uint32_t fours_end = fours ? width : 0;
    for (uint32_t i = threadIdx.x * 4; i < fours_end; i += blockDim.x * 4) {
        float4 sum = {0, 0, 0, 0};
#pragma unroll 8
        for (uint32_t k = 0; k < s.top_k; k++) {
            const float4 v = *(const float4 *)(first + (uint64_t)k * a.pairs.stride + i);
            sum.x = fmaf(weights[k], v.x, sum.x);
            sum.y = fmaf(weights[k], v.y, sum.y);
            sum.z = fmaf(weights[k], v.z, sum.z);
            sum.w = fmaf(weights[k], v.w, sum.w);
        }
        *(float4 *)(x + i) = sum;
    }
    for (uint32_t i = fours_end + threadIdx.x; i < width; i += blockDim.x) {
        float sum = 0;
        for (uint32_t k = 0; k < s.top_k; k++)
            sum = fmaf(weights[k], first[(uint64_t)k * a.pairs.stride + i], sum);
        x[i] = sum;
    }
}

/* Adds token t's residual to the row h. By all threads of a block. */
DEVICE void add_residual(const cuda_step &s, const cuda_residual &a, float *h, uint32_t width, uint32_t t)
{
    if (a.kind == CUDA_RESIDUAL_NONE)
        return;
    float *x = row_of(a.kind == CUDA_RESIDUAL_ADD ? a.out : a.sum, t);
    if (a.kind == CUDA_RESIDUAL_EXPERTS) {
        sum_experts(s, a, x, width, t);
        __syncthreads();
        if (a.norm_pairs)
            rms_row(x, x, a.norm_pairs, width, a.eps);
        for (uint32_t i = threadIdx.x; a.out.width > 0 && i < width; i += blockDim.x)
            x[i] = fmaf(s.shared_gate[t], row_of(a.out, t)[i], x[i]);
        __syncthreads();
    }
    if (a.norm.weight)
        norm_row(a.norm, x, x, width);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float y = a.scale != 0 ? fmaf(a.scale, x[i], h[i]) : h[i] + x[i];
        h[i] = a.layer_scale ? y * *a.layer_scale : y;
    }
    __syncthreads();
}

#endif
