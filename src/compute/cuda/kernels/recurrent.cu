/* recurrent.cu - the recurrent layers: convolutions, the delta rule, Mamba-2, token after token.
 *
 * A thread takes a channel, or a column of a head's state, and walks over its sequence's tokens. */
#include "compute/cuda/kernels/common.cuh"

#define TAPS_MAX 8
#define COLUMNS  32 /* of a state, in a block: one warp */

/* Block: a sequence, some channels. */
KERNEL plateau_conv(const cuda_step s, const cuda_conv a)
{
    grid_begin();
    const cuda_seq &seq = s.seq[blockIdx.y];
    uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, past = a.taps - 1, n = a.channels;
    if (c >= n)
        return;
    const float *state_in = state_at(s, seq.state_in, a.state_offset);
    const float *pending_in = state_at(s, seq.state_in, a.pending_offset);
    float *state_out = state_at(s, seq.state_out, a.state_offset);
    float *pending_out = state_at(s, seq.state_out, a.pending_offset);
    float window[TAPS_MAX];
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++)
        window[i] = i < past && state_in ? state_in[(uint64_t)i * n + c] : 0;
    /* An input goes to the window's last place, `past`; then all move by one. */
    auto push = [&](float u) {
#pragma unroll
        for (uint32_t i = 0; i < TAPS_MAX; i++) {
            if (i == past)
                window[i] = u;
        }
    };
    auto move = [&]() {
#pragma unroll
        for (uint32_t i = 0; i + 1 < TAPS_MAX; i++)
            window[i] = window[i + 1];
    };
    for (uint32_t t = 0; t < seq.pending; t++) {
        push(pending_in[t * a.pending_floats + c]);
        move();
    }
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++) {
        if (seq.keep_pending && i < past)
            state_out[(uint64_t)i * n + c] = window[i];
    }
    for (uint32_t t = 0; t < seq.count; t++) {
        const float *row = row_of(a.u, seq.first + t);
        float *y = row_of(a.y, seq.first + t);
        float u = a.gated ? row[2 * n + c] * row[c] : row[c], sum = a.bias ? a.bias[c] : 0;
        push(u);
#pragma unroll
        for (uint32_t i = 0; i < TAPS_MAX; i++) {
            if (i <= past)
                sum = fmaf(a.weight[(uint64_t)i * n + c], window[i], sum);
        }
        sum = a.linear ? sum : silu(sum);
        y[c] = a.gated ? sum * row[n + c] : sum;
        move();
    }
    for (uint32_t t = 0; seq.keep_pending && t < seq.count; t++) {
        const float *row = row_of(a.u, seq.first + t);
        pending_out[t * a.pending_floats + c] = a.gated ? row[2 * n + c] * row[c] : row[c];
    }
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++) {
        if (!seq.keep_pending && i < past)
            state_out[(uint64_t)i * n + c] = window[i];
    }
}

/* ---- the delta net ---- */

/* Block: a token, a head of queries or keys. */
KERNEL plateau_delta_norm(const cuda_delta a)
{
    grid_begin();
    uint32_t n = a.key_dim;
    float *x = row_of(a.conv_out, blockIdx.x) + (uint64_t)blockIdx.y * n;
    float scale = blockIdx.y < a.key_heads ? (float)(1 / sqrt((double)n)) : 1;
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (double)x[i] * x[i];
    sum = block_sum(sum);
    float r = (float)(scale / sqrt(sum + 1e-6f));
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        x[i] = x[i] * r;
}

KERNEL plateau_delta_gates(const cuda_delta a)
{
    grid_begin();
    uint32_t t = blockIdx.x;
    const float *b = row_of(a.in, t) + a.channels + a.value_heads * a.value_dim;
    float *alpha = row_of(a.gates, t), *beta = alpha + a.value_heads;
    for (uint32_t h = threadIdx.x; h < a.value_heads; h += blockDim.x) {
        beta[h] = sigmoid(b[h]);
        alpha[h] = expf(a.decay[h] * softplus(b[a.value_heads + h] + a.dt_bias[h]));
    }
}

/* One update of a thread's column of the state; what q reads of it. q NULL: nothing. */
DEVICE float delta_update(float *column, uint32_t dk, const float *k, float v, float alpha, float beta,
                          const float *q)
{
    float m = 0, o = 0;
    for (uint32_t i = 0; i < dk; i++) {
        float s = column[i * COLUMNS] * alpha;
        column[i * COLUMNS] = s;
        m = fmaf(s, k[i], m);
    }
    float d = beta * (v - m);
    for (uint32_t i = 0; i < dk; i++) {
        float s = fmaf(k[i], d, column[i * COLUMNS]);
        column[i * COLUMNS] = s;
        o = q ? fmaf(s, q[i], o) : 0;
    }
    return o;
}

DEVICE void load_column(float *column, const float *state, uint32_t rows, uint32_t width)
{
    for (uint32_t i = 0; i < rows; i++)
        column[i * COLUMNS] = state ? state[(uint64_t)i * width] : 0;
}
DEVICE void store_column(const float *column, float *state, uint32_t rows, uint32_t width)
{
    for (uint32_t i = 0; i < rows; i++)
        state[(uint64_t)i * width] = column[i * COLUMNS];
}

/* Block: 32 columns of the state of a sequence's value head. Shared: [key_dim][32]. */
KERNEL plateau_delta(const cuda_step s, const cuda_delta a)
{
    grid_begin();
    extern __shared__ float columns[];
    const cuda_seq &seq = s.seq[blockIdx.z];
    uint32_t c = blockIdx.x * COLUMNS + threadIdx.x, head = blockIdx.y, dk = a.key_dim, dv = a.value_dim;
    if (c >= dv)
        return;
    uint32_t key_head = head / (a.value_heads / a.key_heads), keys = a.key_heads * dk;
    uint64_t at = a.state_offset + (uint64_t)head * dk * dv * sizeof(float);
    const float *in = state_at(s, seq.state_in, at), *pending = state_at(s, seq.state_in, a.pending_offset);
    float *out = state_at(s, seq.state_out, at) + c, *column = columns + threadIdx.x;
    load_column(column, in ? in + c : NULL, dk, dv);
    for (uint32_t t = 0; t < seq.pending; t++, pending += a.pending_floats)
        delta_update(column, dk, pending + a.k_at + key_head * dk, pending[a.v_at + head * dv + c],
                     pending[a.alpha_at + head], pending[a.beta_at + head], NULL);
    if (seq.keep_pending)
        store_column(column, out, dk, dv);
    for (uint32_t t = seq.first; t < seq.first + seq.count; t++) {
        const float *x = row_of(a.conv_out, t), *gates = row_of(a.gates, t);
        row_of(a.out, t)[head * dv + c] =
            delta_update(column, dk, x + keys + key_head * dk, x[2 * keys + head * dv + c], gates[head],
                         gates[a.value_heads + head], x + key_head * dk);
    }
    if (!seq.keep_pending)
        store_column(column, out, dk, dv);
}

/* What token t brought to the recurrence, then the gated norm. Block: a token. */
KERNEL plateau_delta_end(const cuda_step s, const cuda_delta a)
{
    grid_begin();
    uint32_t t = blockIdx.x, dv = a.value_dim, keys = a.key_heads * a.key_dim;
    const cuda_seq &seq = seq_of(s, t);
    const float *x = row_of(a.conv_out, t) + keys, *gates = row_of(a.gates, t);
    if (seq.keep_pending) {
        float *pending =
            state_at(s, seq.state_out, a.pending_offset) + (t - seq.first) * a.pending_floats;
        for (uint32_t i = threadIdx.x; i < keys + a.value_heads * dv; i += blockDim.x)
            pending[a.k_at + i] = x[i];
        for (uint32_t i = threadIdx.x; i < a.value_heads; i += blockDim.x) {
            pending[a.alpha_at + i] = gates[i];
            pending[a.beta_at + i] = gates[a.value_heads + i];
        }
    }
    const float *z = row_of(a.in, t) + a.channels;
    for (uint32_t h = 0; h < a.value_heads; h++, z += dv) {
        float *o = row_of(a.out, t) + (uint64_t)h * dv;
        rms_row(o, o, a.norm, dv, a.eps);
        for (uint32_t i = threadIdx.x; i < dv; i += blockDim.x)
            o[i] = o[i] * silu(z[i]);
    }
}

/* ---- Mamba-2 ---- */

KERNEL plateau_ssm_gates(const cuda_ssm a)
{
    grid_begin();
    uint32_t t = blockIdx.x;
    const float *raw = row_of(a.in, t) + a.in.width - a.heads;
    float *dt = row_of(a.gates, t), *decay = dt + a.heads;
    for (uint32_t h = threadIdx.x; h < a.heads; h += blockDim.x) {
        float x = softplus(raw[h] + a.dt_bias[h]);
        x = x < a.dt_min ? a.dt_min : x;
        x = a.dt_max > 0 && x > a.dt_max ? a.dt_max : x;
        dt[h] = x;
        decay[h] = expf(a.a[h] * x);
    }
}

DEVICE float ssm_update(float *column, uint32_t n, const float *b, float x, float decay, const float *c)
{
    float y = 0;
    for (uint32_t i = 0; i < n; i++) {
        float s = fmaf(b[i], x, column[i * COLUMNS] * decay);
        column[i * COLUMNS] = s;
        y = c ? fmaf(s, c[i], y) : 0;
    }
    return y;
}

/* Block: 32 columns of the state of a sequence's head. Shared: [state][32]. */
KERNEL plateau_ssm(const cuda_step s, const cuda_ssm a)
{
    grid_begin();
    extern __shared__ float columns[];
    const cuda_seq &seq = s.seq[blockIdx.z];
    uint32_t j = blockIdx.x * COLUMNS + threadIdx.x, head = blockIdx.y, n = a.state, p = a.head_dim;
    if (j >= p)
        return;
    uint32_t group = head / (a.heads / a.groups), inner = a.heads * p;
    uint64_t at = a.state_offset + (uint64_t)head * n * p * sizeof(float);
    const float *in = state_at(s, seq.state_in, at), *pending = state_at(s, seq.state_in, a.pending_offset);
    float *out = state_at(s, seq.state_out, at) + j, *column = columns + threadIdx.x;
    load_column(column, in ? in + j : NULL, n, p);
    for (uint32_t t = 0; t < seq.pending; t++, pending += a.pending_floats)
        ssm_update(column, n, pending + a.b_at + group * n,
                   pending[a.dt_at + head] * pending[a.x_at + head * p + j], pending[a.decay_at + head],
                   NULL);
    if (seq.keep_pending)
        store_column(column, out, n, p);
    for (uint32_t t = seq.first; t < seq.first + seq.count; t++) {
        const float *row = row_of(a.conv_out, t), *gates = row_of(a.gates, t);
        const float *b = row + inner + group * n;
        float x = row[head * p + j];
        float y = ssm_update(column, n, b, gates[head] * x, gates[a.heads + head], b + a.groups * n);
        row_of(a.out, t)[head * p + j] = fmaf(a.skip[head], x, y);
    }
    if (!seq.keep_pending)
        store_column(column, out, n, p);
}

/* What token t brought to the recurrence, then gate and norm. Block: a token. */
KERNEL plateau_ssm_end(const cuda_step s, const cuda_ssm a)
{
    grid_begin();
    uint32_t t = blockIdx.x, inner = a.heads * a.head_dim, width = inner / a.groups;
    const cuda_seq &seq = seq_of(s, t);
    const float *x = row_of(a.conv_out, t), *gates = row_of(a.gates, t), *z = row_of(a.in, t);
    float *y = row_of(a.out, t);
    if (seq.keep_pending) {
        float *pending =
            state_at(s, seq.state_out, a.pending_offset) + (t - seq.first) * a.pending_floats;
        for (uint32_t i = threadIdx.x; i < inner + a.groups * a.state; i += blockDim.x)
            pending[a.x_at + i] = x[i];
        for (uint32_t i = threadIdx.x; i < 2 * a.heads; i += blockDim.x)
            pending[a.dt_at + i] = gates[i];
    }
    bool before = a.norm_kind == 1, after = a.norm_kind == 0;
    for (uint32_t i = threadIdx.x; !before && i < inner; i += blockDim.x)
        y[i] = silu(z[i]) * y[i];
    __syncthreads();
    for (uint32_t at = 0; (before || after) && at < inner; at += width)
        rms_row(y + at, y + at, a.norm + at, width, a.eps);
    for (uint32_t i = threadIdx.x; before && i < inner; i += blockDim.x)
        y[i] = y[i] * silu(z[i]);
}
