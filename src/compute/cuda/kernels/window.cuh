/* window.cuh - windows of an image's tokens in a vision encoder. */
#ifndef PLATEAU_CUDA_WINDOW_CUH
#define PLATEAU_CUDA_WINDOW_CUH

#include "compute/cuda/kernels/common.cuh"

/* The window of a token, and the token's position. */
struct window_at {
    uint32_t first, count; /* its tokens */
    uint32_t row, column;
};

/* With windows tokens go window by window, and within one row by row. */
DEVICE window_at window_of(const cuda_encode &a, uint32_t token)
{
    uint32_t rows = a.rows / a.merge, columns = a.columns / a.merge;
    if (a.window == 0)
        return {0, rows * columns, token / columns, token % columns};
    uint32_t edge = a.window, band = token / (edge * columns), in_band = token % (edge * columns);
    uint32_t high = min(edge, rows - band * edge), window = in_band / (high * edge);
    uint32_t wide = min(edge, columns - window * edge), within = in_band % (high * edge);
    return {band * edge * columns + window * high * edge, high * wide, band * edge + within / wide,
            window * edge + within % wide};
}

/* The first patch that a query of attention sees, and the one behind the last. */
DEVICE uint32_t patches_first(const cuda_encode &a, uint32_t patch)
{
    uint32_t m = a.merge * a.merge;
    return a.in_windows ? window_of(a, patch / m).first * m : 0;
}
DEVICE uint32_t patches_end(const cuda_encode &a, uint32_t patch)
{
    uint32_t m = a.merge * a.merge;
    if (!a.in_windows)
        return a.patches;
    const window_at w = window_of(a, patch / m);
    return (w.first + w.count) * m;
}

#endif
