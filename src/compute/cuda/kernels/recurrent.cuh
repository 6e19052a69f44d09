/* recurrent.cuh - what recurrent.cu and delta.cu share: inputs of convolutions, gates and norms of the delta
 * net. */
#ifndef PLATEAU_CUDA_RECURRENT_CUH
#define PLATEAU_CUDA_RECURRENT_CUH

#include "compute/cuda/kernels/common.cuh"

#define TAPS_MAX 8
#define ROWS     128 /* values in a column of the usual heads */

/* Input `i` of channel c, from the sequence's first token of this step on. Those before it, whose numbers are
 * negative, are what the state holds, and after that what it keeps pending. */
DEVICE float conv_input(const cuda_step &s, const cuda_conv &a, const cuda_seq &seq, uint32_t c, int32_t i)
{
    if (i >= 0) {
        const float *row = row_of(a.u, seq.first + (uint32_t)i);
        return a.gated ? row[2 * a.channels + c] * row[c] : row[c];
    }
    const float *state = state_at(s, seq.state_in, a.state_offset);
    uint32_t past = a.taps - 1, at = past + seq.pending - (uint32_t)-i;
    if (!state)
        return 0;
    return at < past ? state[(uint64_t)at * a.channels + c]
                     : state_at(s, seq.state_in, a.pending_offset)[(at - past) * a.pending_floats + c];
}

/* The `past` inputs before input `i`. */
DEVICE void load_window(float window[TAPS_MAX], const cuda_step &s, const cuda_conv &a, const cuda_seq &seq,
                        uint32_t c, int32_t i)
{
    int32_t past = (int32_t)a.taps - 1;
#pragma unroll
    for (int32_t j = 0; j < TAPS_MAX; j++)
        window[j] = j < past ? conv_input(s, a, seq, c, i - past + j) : 0;
}

/* Writes a token's alpha and beta of all heads. All threads of a block call. */
DEVICE void delta_gates(const cuda_delta &a, uint32_t t)
{
    const float *b = row_of(a.in, t) + a.channels + a.value_heads * a.value_dim;
    float *alpha = row_of(a.gates, t), *beta = alpha + a.value_heads;
    for (uint32_t h = threadIdx.x; h < a.value_heads; h += blockDim.x) {
        beta[h] = sigmoid(b[h]);
        alpha[h] = expf(a.decay[h] * softplus(b[a.value_heads + h] + a.dt_bias[h]));
    }
}

/* Returns the factor that norms a head of queries or keys. All lanes of a warp call. */
DEVICE float delta_factor(const cuda_delta &a, const float *x, uint32_t head)
{
    float scale = head < a.key_heads ? (float)(1 / sqrt((double)a.key_dim)) : 1;
    double sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < a.key_dim; i += 32)
        sum += (double)x[i] * x[i];
    sum = __shfl_sync(0xffffffffu, warp_sum(sum), 0);
    return (float)(scale / sqrt(sum + 1e-6f));
}
/* Returns the factor that norms a head's outputs. All lanes of a warp call. */
DEVICE float norm_of_head(const cuda_delta &a, const float *o)
{
    double sum = 0;
    for (uint32_t i = threadIdx.x % 32; i < a.value_dim; i += 32)
        sum += (double)o[i] * o[i];
    sum = __shfl_sync(0xffffffffu, warp_sum(sum), 0);
    return (float)(1 / sqrt(sum / a.value_dim + a.eps));
}

#endif
