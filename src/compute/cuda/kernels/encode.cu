/* encode.cu - operations of a vision encoder, row by row. A block takes a patch, or a token.
 *
 * What a product of bf16 mode reads next is rounded here (cuda_encode.rounded). There activations are in f32,
 * whose error is far below that of the rounding; in f32 mode they are in double. */
#include "compute/cuda/kernels/fragment.cuh"
#include "compute/cuda/kernels/window.cuh"

struct patch_at {
    uint32_t row, column;
};

/* Whether the block's row is the class token's. */
DEVICE bool is_class(const cuda_encode &a)
{
    return a.class_row && a.from + blockIdx.x + 1 == a.patches;
}

DEVICE patch_at patch_of(const cuda_encode &a, uint32_t patch)
{
    uint32_t m = a.merge, within = patch % (m * m);
    const window_at w = window_of(a, patch / (m * m));
    return {w.row * m + within / m, w.column * m + within % m};
}

DEVICE void norm_parts(const cuda_encode &a, float *y, const float *x)
{
    uint32_t parts = a.parts ? a.parts : 1, n = a.width / parts;
    uint32_t step = a.by_value ? parts : 1;
    for (uint32_t i = 0; i < parts; i++) {
        float *to = y + (uint64_t)i * (a.by_value ? 1 : n);
        const float *from = x + (uint64_t)i * n;
        if (a.rms)
            rms_row(to, from, a.norm_weight, n, a.eps, step);
        else
            layer_row(to, from, a.norm_weight, a.norm_bias, n, a.eps, step);
    }
}

DEVICE float biased(const cuda_encode &a, float x, uint32_t i)
{
    return a.bias ? x + a.bias[i] : x;
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
        uint32_t c = a.channels_last ? i % 3 : i / (a.frames * plane);
        uint32_t at = a.channels_last ? i / 3 : i % (a.frames * plane);
        uint32_t dy = at % plane / size, dx = at % size;
        float v = 0;
        if (i < a.width && !is_class(a)) {
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

/* Entries of a row or column of the table around a patch, and their weights. */
struct taps {
    uint32_t index[4];
    double weight[4];
};

/* Where patch `index` of `count` falls on an edge of the table; beyond its ends the last entry goes on. */
DEVICE taps taps_of(uint32_t index, uint32_t count, uint32_t grid)
{
    taps ret;
    const double at = (index + 0.5) * grid / count - 0.5, low = floor(at), t = at - low, a = -0.75;
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        const double d = i == 0 ? 1 + t : i == 1 ? t : i == 2 ? 1 - t : 2 - t;
        ret.weight[i] =
            d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
        ret.index[i] = (uint32_t)fmin(fmax(low + i - 1, 0.0), grid - 1.0);
    }
    return ret;
}

/* y += bias, and what a bicubic filter makes of the table. */
DEVICE void add_cubic(const cuda_encode &a, float *y, patch_at p)
{
    const taps r = taps_of(p.row, a.rows, a.grid), c = taps_of(p.column, a.columns, a.grid);
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float x = biased(a, y[i], i);
#pragma unroll
        for (uint32_t k = 0; k < 16; k++)
            x = fmaf((float)(r.weight[k / 4] * c.weight[k % 4]),
                     value_of(a.table, r.index[k / 4] * a.grid + c.index[k % 4], i), x);
        y[i] = x;
    }
}

/* y += bias, a row of the column and one of the row. */
DEVICE void add_axes(const cuda_encode &a, float *y, patch_at p)
{
    const bool pairs = a.positions == CUDA_POSITIONS_PAIRS;
    const uint32_t column = pairs ? 2 * p.column : p.column, row = pairs ? 2 * p.row + 1 : a.grid + p.row;
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        y[i] = biased(a, y[i], i) + value_of(a.table, column, i) + value_of(a.table, row, i);
}

KERNEL plateau_encode_positions(const cuda_encode a)
{
    float *y = row_of(a.y, blockIdx.x);
    patch_at p = patch_of(a, a.from + blockIdx.x);
    grid_begin();
    if (is_class(a)) {
        for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
            y[i] = a.class_values[i] + value_of(a.table, 0, i);
        return;
    }
    if (a.positions == CUDA_POSITIONS_CUBIC) {
        add_cubic(a, y, p);
        return;
    }
    if (a.positions != CUDA_POSITIONS_SQUARE) {
        add_axes(a, y, p);
        return;
    }
    between r = between_of(p.row, a.rows, a.grid), c = between_of(p.column, a.columns, a.grid);
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float x = biased(a, y[i], i);
        x = fmaf((1 - r.part) * (1 - c.part), value_of(a.table, a.class_row + r.low * a.grid + c.low, i), x);
        x = fmaf((1 - r.part) * c.part, value_of(a.table, a.class_row + r.low * a.grid + c.high, i), x);
        x = fmaf(r.part * (1 - c.part), value_of(a.table, a.class_row + r.high * a.grid + c.low, i), x);
        x = fmaf(r.part * c.part, value_of(a.table, a.class_row + r.high * a.grid + c.high, i), x);
        y[i] = x;
    }
}

DEVICE double act_exactly(uint32_t function, double v)
{
    return function == CUDA_SILU ? v / (1 + exp(-v))
           : function == CUDA_GELU_TANH
               ? v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v)))
               : v * 0.5 * erfc(-v * 0.70710678118654752440);
}
DEVICE float act_of(uint32_t function, float v)
{
    return function == CUDA_SILU        ? silu(v)
           : function == CUDA_GELU_TANH ? v / (1 + expf(-2 * 0.797884561f * (v + 0.044715f * v * v * v)))
                                        : v * 0.5f * erfcf(-v * 0.707106781f);
}

/* x += bias; x = function(x), or function(g) * u. */
KERNEL plateau_encode_act(const cuda_encode a)
{
    float *x = row_of(a.x, blockIdx.x);
    const bool rounds = a.rounded.at != NULL;
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float v = biased(a, x[i], i);
        v = rounds ? act_of(a.function, v) : (float)act_exactly(a.function, v);
        if (a.gated)
            v *= biased(a, x[a.width + i], a.width + i);
        if (rounds)
            put_rounded(a.rounded, blockIdx.x, i, v);
        else
            x[i] = v;
    }
    for (uint32_t i = a.width + threadIdx.x; rounds && i < rounded_width(a.width); i += blockDim.x)
        put_rounded(a.rounded, blockIdx.x, i, 0);
}

/* y = mean of the parts of x, times the factor. */
KERNEL plateau_encode_pool(const cuda_encode a)
{
    const float *x = row_of(a.x, blockIdx.x);
    float *y = row_of(a.y, blockIdx.x);
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float sum = 0;
        for (uint32_t part = 0; part < a.parts; part++)
            sum = fmaf(a.factor / (float)a.parts, x[(uint64_t)part * a.width + i], sum);
        y[i] = sum;
    }
}

/* x = (x - norm_bias) * norm_weight, or x within bounds. */
KERNEL plateau_encode_values(const cuda_encode a)
{
    float *x = row_of(a.x, blockIdx.x);
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        x[i] = a.clip_min ? fminf(fmaxf(x[i], *a.clip_min), *a.clip_max)
                          : (x[i] - a.norm_bias[i]) * a.norm_weight[i];
}

/* x += bias; y = x, at the token's position. */
KERNEL plateau_encode_in_rows(const cuda_encode a)
{
    const window_at w = window_of(a, a.from + blockIdx.x);
    float *x = row_of(a.x, blockIdx.x), *y = row_of(a.y, w.row * (a.columns / a.merge) + w.column);
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        y[i] = x[i] = biased(a, x[i], i);
}

/* x += bias, times factors; then its sum into y and the norm of that. */
KERNEL plateau_encode_bias(const cuda_encode a)
{
    float *x = row_of(a.x, blockIdx.x), *y = row_of(a.y, blockIdx.x), *z = row_of(a.z, blockIdx.x);
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x) {
        float sum = biased(a, x[i], i);
        sum = a.factors ? sum * a.factors[i] : sum;
        x[i] = sum;
        if (a.add)
            y[i] += sum;
    }
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
    if (!a.cosines)
        return;
    patch_at p = patch_of(a, patch);
    for (uint32_t i = threadIdx.x; i < a.heads * half; i += blockDim.x) {
        uint32_t j = i % half;
        bool first = j < quarter;
        float *head = x + (uint64_t)(i / half) * a.head_dim;
        uint64_t at = (uint64_t)(first != (a.apart != 0) ? p.row : p.column) * quarter + j % quarter;
        at += first ? 0 : a.columns_at;
        uint32_t one = a.apart && !first ? j + quarter : j, other = one + (a.apart ? quarter : half);
        float low = head[one], high = head[other], c = a.cosines[at], s = a.sines[at];
        head[one] = low * c - high * s;
        head[other] = high * c + low * s;
    }
}

/* Norms each head; no weight: nothing. */
DEVICE void norm_heads(const cuda_encode &a, float *x, const float *weight)
{
    for (uint32_t head = 0; weight && head < a.heads; head++) {
        float *at = x + (uint64_t)head * a.head_dim;
        rms_row(at, at, weight, a.head_dim, a.eps);
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

/* x += bias: queries, or keys | values; norms and rotates the first heads; with `keep` all are kept. */
KERNEL plateau_encode_heads(const cuda_encode a)
{
    uint32_t patch = a.from + blockIdx.x;
    float *x = row_of(a.x, blockIdx.x);
    grid_begin();
    for (uint32_t i = threadIdx.x; i < a.width; i += blockDim.x)
        x[i] = biased(a, x[i], i);
    __syncthreads();
    norm_heads(a, x, a.norm_weight);
    norm_heads(a, x + a.width / 2, a.value_norm);
    rotate_heads(a, x, patch);
    __syncthreads();
    if (a.keep && a.heads_at)
        keep_rounded(a, x, patch);
    else if (a.keep)
        keep_pages(a, x, patch);
}
