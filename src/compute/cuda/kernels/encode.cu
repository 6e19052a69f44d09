/* encode.cu - operations of a vision encoder, row by row. A block takes a patch, or a token.
 *
 * What a product of bf16 mode reads next is rounded here (cuda_encode.rounded). There activations are in f32,
 * whose error is far below that of the rounding; in f32 mode they are in double. */
#include "compute/cuda/kernels/fragment.cuh"

struct patch_at {
    uint32_t row, column;
};

DEVICE patch_at patch_of(const cuda_encode &a, uint32_t patch)
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

/* The row that was just written, as a product reads it. */
DEVICE void round_row(const cuda_encode &a, const float *x)
{
    for (uint32_t i = threadIdx.x; a.rounded.at && i < rounded_width(a.width); i += blockDim.x)
        put_rounded(a.rounded, blockIdx.x, i, i < a.width ? x[i] : 0);
}

KERNEL plateau_encode_norm(const cuda_encode a)
{
    float *y = row_of(a.y, blockIdx.x);
    grid_begin();
    norm_parts(a, y, row_of(a.x, blockIdx.x));
    round_row(a, y);
}

KERNEL plateau_encode_pixels(const cuda_encode a)
{
    grid_begin();
    patch_at p = patch_of(a, a.from + blockIdx.x);
    uint32_t size = a.patch, plane = size * size, width = a.rounded.at ? rounded_width(a.width) : a.width;
    float *y = row_of(a.y, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < width; i += blockDim.x) {
        uint32_t c = a.channels_last ? i % 3 : i / (2 * plane);
        uint32_t at = a.channels_last ? i / 3 : i % (2 * plane);
        uint32_t dy = at % plane / size, dx = at % size;
        float v = 0;
        if (i < a.width) {
            uint64_t pixel = (uint64_t)(p.row * size + dy) * a.image_width + p.column * size + dx;
            v = a.levels[c * 256 + a.pixels[at / plane][pixel * 3 + c]];
        }
        if (a.rounded.at)
            put_rounded(a.rounded, blockIdx.x, i, v);
        else
            y[i] = v;
    }
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

KERNEL plateau_encode_positions(const cuda_encode a)
{
    float *y = row_of(a.y, blockIdx.x);
    patch_at p = patch_of(a, a.from + blockIdx.x);
    grid_begin();
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

DEVICE double gelu_exactly(uint32_t kind, double v)
{
    return kind == 1 ? v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)))
                     : v * 0.5 * erfc(-v * 0.70710678118654752440);
}
DEVICE float gelu_of(uint32_t kind, float v)
{
    return kind == 1 ? v / (1 + expf(-2 * 0.797884561f * (v + 0.044715f * v * v * v)))
                     : v * 0.5f * erfcf(-v * 0.707106781f);
}

/* x += bias; then its activation, or its sum into y and the norm of that. */
KERNEL plateau_encode_bias(const cuda_encode a)
{
    float *x = row_of(a.x, blockIdx.x), *y = row_of(a.y, blockIdx.x), *z = row_of(a.z, blockIdx.x);
    const bool rounds = a.rounded.at && !a.norm;
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float sum = x[i] + a.bias[i];
        if (a.gelu)
            sum = rounds ? gelu_of(a.gelu, sum) : (float)gelu_exactly(a.gelu, sum);
        if (rounds)
            put_rounded(a.rounded, blockIdx.x, i, sum);
        else
            x[i] = sum;
        if (a.add)
            y[i] += sum;
    }
    for (uint32_t i = a.width + threadIdx.x; rounds && i < rounded_width(a.width); i += blockDim.x)
        put_rounded(a.rounded, blockIdx.x, i, 0);
    __syncthreads();
    if (!a.norm)
        return;
    norm_parts(a, z, y);
    round_row(a, z);
}

/* All heads of a patch's queries or keys. */
DEVICE void rotate_heads(const cuda_encode &a, float *x, uint32_t patch)
{
    uint32_t quarter = a.head_dim / 4, half = 2 * quarter;
    patch_at p = patch_of(a, patch);
    for (uint32_t i = threadIdx.x; i < a.heads * half; i += blockDim.x) {
        uint32_t j = i % half;
        float *head = x + (uint64_t)(i / half) * a.head_dim;
        uint64_t at = (uint64_t)(j < quarter ? p.row : p.column) * quarter + j % quarter;
        float low = head[j], high = head[j + half], c = a.cosines[at], s = a.sines[at];
        head[j] = low * c - high * s;
        head[j + half] = high * c + low * s;
    }
}

/* Keys and values of a patch, for the plain kernel. */
DEVICE void keep_pages(const cuda_encode &a, const float *x, uint32_t patch)
{
    uint32_t n = a.head_dim;
    uint64_t half = (uint64_t)n * CUDA_PAGE_TOKENS;
    uint32_t pages = (a.patches + CUDA_PAGE_TOKENS - 1) / CUDA_PAGE_TOKENS, at = patch % CUDA_PAGE_TOKENS;
    for (uint32_t i = threadIdx.x; i < a.heads * n; i += blockDim.x) {
        uint32_t head = i / n, d = i % n;
        float *page = a.keys + ((uint64_t)head * pages + patch / CUDA_PAGE_TOKENS) * 2 * half;
        page[(uint64_t)d * CUDA_PAGE_TOKENS + at] = x[i];
        page[half + (uint64_t)at * n + d] = x[a.width / 2 + i];
    }
}

/* As `keep_pages()`, but for tensor cores. */
DEVICE void keep_rounded(const cuda_encode &a, const float *x, uint32_t patch)
{
    uint32_t n = a.head_dim, half = a.key_width / 2;
    for (uint32_t i = threadIdx.x; i < 2 * a.heads * half; i += blockDim.x) {
        uint32_t d = i % half * 2, which = i / half % 2, head = i / half / 2;
        const float *from = x + (which ? a.width / 2 : 0) + head * n + d;
        __nv_bfloat162 pair = d < n ? __floats2bfloat162_rn(from[0], from[1]) : __floats2bfloat162_rn(0, 0);
        *(__nv_bfloat162 *)(a.heads_at + ((uint64_t)(head * 2 + which) * a.key_rows + patch) * a.key_width +
                            d) = pair;
    }
}

/* x += bias: queries, or keys | values; rotates the first heads; with `keep` all are kept. */
KERNEL plateau_encode_heads(const cuda_encode a)
{
    uint32_t patch = a.from + blockIdx.x;
    float *x = row_of(a.x, blockIdx.x);
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        x[i] += a.bias[i];
    __syncthreads();
    rotate_heads(a, x, patch);
    __syncthreads();
    if (a.keep && a.heads_at)
        keep_rounded(a, x, patch);
    else if (a.keep)
        keep_pages(a, x, patch);
}
