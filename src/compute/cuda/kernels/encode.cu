/* encode.cu - operations of a vision encoder, row by row. A block takes a patch, or a token. */
#include "compute/cuda/kernels/fragment.cuh"

struct place {
    uint32_t row, column;
};

DEVICE place place_of(const cuda_encode &a, uint32_t patch)
{
    uint32_t m = a.merge, per_row = a.columns / m, token = patch / (m * m), within = patch % (m * m);
    return {token / per_row * m + within / m, token % per_row * m + within % m};
}

DEVICE void norm_parts(const cuda_encode &a, float *y, const float *x)
{
    uint32_t parts = a.parts ? a.parts : 1, n = a.width / parts;
    for (uint32_t i = 0; i < parts; i++)
        layer_row(y + (uint64_t)i * n, x + (uint64_t)i * n, a.norm_weight, a.norm_bias, n, 1e-6f);
}

KERNEL plateau_encode_norm(const cuda_encode a)
{
    norm_parts(a, row_of(a.y, blockIdx.x), row_of(a.x, blockIdx.x));
}

/* Where a row or column of `count` falls on the table's edge of `grid`. */
struct between {
    uint32_t low, high;
    float part;
};

DEVICE between between_of(uint32_t index, uint32_t count, uint32_t grid)
{
    double at = count > 1 ? (double)index * (grid - 1) / (count - 1) : 0;
    uint32_t low = (uint32_t)at;
    return {low, min(low + 1, grid - 1), (float)(at - low)};
}

KERNEL plateau_encode_place(const cuda_encode a)
{
    float *y = row_of(a.y, blockIdx.x);
    place p = place_of(a, a.from + blockIdx.x);
    between r = between_of(p.row, a.rows, a.grid), c = between_of(p.column, a.columns, a.grid);
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float x = y[i] + a.bias[i];
        x = fmaf((1 - r.part) * (1 - c.part), value_of(a.table, r.low * a.grid + c.low, i), x);
        x = fmaf((1 - r.part) * c.part, value_of(a.table, r.low * a.grid + c.high, i), x);
        x = fmaf(r.part * (1 - c.part), value_of(a.table, r.high * a.grid + c.low, i), x);
        x = fmaf(r.part * c.part, value_of(a.table, r.high * a.grid + c.high, i), x);
        y[i] = x;
    }
}

/* x += bias; then its activation, or its sum into y and the norm of that. */
KERNEL plateau_encode_bias(const cuda_encode a)
{
    float *x = row_of(a.x, blockIdx.x), *y = row_of(a.y, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float sum = x[i] + a.bias[i];
        double v = sum;
        if (a.gelu == 1)
            sum = (float)(v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v))));
        else if (a.gelu == 2)
            sum = (float)(v * 0.5 * erfc(-v * 0.70710678118654752440));
        x[i] = sum;
        if (a.add)
            y[i] += sum;
    }
    __syncthreads();
    if (a.norm)
        norm_parts(a, row_of(a.z, blockIdx.x), y);
}

/* All heads of a patch's queries or keys. */
DEVICE void rotate_heads(const cuda_encode &a, float *x, uint32_t patch)
{
    uint32_t quarter = a.head_dim / 4, half = 2 * quarter;
    place p = place_of(a, patch);
    for (uint32_t i = threadIdx.x; i < a.heads * half; i += blockDim.x) {
        uint32_t j = i % half;
        float *head = x + (uint64_t)(i / half) * a.head_dim;
        uint64_t at = (uint64_t)(j < quarter ? p.row : p.column) * quarter + j % quarter;
        float low = head[j], high = head[j + half], c = a.cosines[at], s = a.sines[at];
        head[j] = low * c - high * s;
        head[j + half] = high * c + low * s;
    }
}

/* x += bias: queries, or keys | values; rotates the first heads; with `keep` the rest is kept as pages. */
KERNEL plateau_encode_heads(const cuda_encode a)
{
    uint32_t patch = a.from + blockIdx.x, n = a.head_dim;
    float *x = row_of(a.x, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        x[i] += a.bias[i];
    __syncthreads();
    rotate_heads(a, x, patch);
    __syncthreads();
    if (!a.keep)
        return;
    uint64_t half = (uint64_t)n * CUDA_PAGE_TOKENS;
    uint32_t pages = (a.patches + CUDA_PAGE_TOKENS - 1) / CUDA_PAGE_TOKENS, at = patch % CUDA_PAGE_TOKENS;
    for (uint32_t i = threadIdx.x; i < a.heads * n; i += blockDim.x) {
        uint32_t head = i / n, d = i % n;
        float *page = a.keys + ((uint64_t)head * pages + patch / CUDA_PAGE_TOKENS) * 2 * half;
        page[(uint64_t)d * CUDA_PAGE_TOKENS + at] = x[i];
        page[half + (uint64_t)at * n + d] = x[a.width / 2 + i];
    }
}
