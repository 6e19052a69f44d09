/* recurrent.cu - the recurrent layers: convolutions, the delta rule, Mamba-2.
 *
 * A convolution's outputs are apart from each other: a thread takes a channel of some tokens. In a
 * recurrence a thread takes a column of a head's state and walks over its sequence's tokens, with its sums in
 * the order of kernel/kern.h.
 *
 * In bf16 mode four warps share the columns of the delta net's state: values 4 p to 4 p + 3 of each 16 are
 * part p. A sum over a column is a chain for each part, and (part 0 + part 1) + (part 2 + part 3). */
#include "compute/cuda/kernels/recurrent.cuh"

#define COLUMNS 32 /* columns of a state in a block */

/* ---- convolutions ---- */

/* Keeps inputs in the sequence's state: those after its tokens, or the earlier ones and its own. state_out
 * may be state_in. */
DEVICE void keep_inputs(const cuda_step &s, const cuda_conv &a, const cuda_seq &seq, uint32_t c)
{
    float window[TAPS_MAX];
    float *state = state_at(s, seq.state_out, a.state_offset);
    float *pending = state_at(s, seq.state_out, a.pending_offset);
    load_window(window, s, a, seq, c, seq.keep_pending ? 0 : (int32_t)seq.count);
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++) {
        if (i + 1 < a.taps)
            state[(uint64_t)i * a.channels + c] = window[i];
    }
    for (uint32_t t = 0; seq.keep_pending && t < seq.count; t++)
        pending[t * a.pending_floats + c] = conv_input(s, a, seq, c, (int32_t)t);
}

/* Block: some channels, `each` tokens. If each sequence has one token, its thread keeps its inputs, too. */
KERNEL plateau_conv(const cuda_step s, const cuda_conv a)
{
    grid_begin();
    uint32_t c = blockIdx.x * blockDim.x + threadIdx.x, past = a.taps - 1, n = a.channels;
    uint32_t first = blockIdx.y * a.each, end = min(first + a.each, s.tokens);
    if (c >= n)
        return;
    float window[TAPS_MAX], weight[TAPS_MAX], bias = a.bias ? a.bias[c] : 0;
#pragma unroll
    for (uint32_t i = 0; i < TAPS_MAX; i++)
        weight[i] = i <= past ? a.weight[(uint64_t)i * n + c] : 0;
    for (uint32_t t = first; t < end; t++) {
        const cuda_seq &seq = seq_of(s, t);
        if (t == first || t == seq.first)
            load_window(window, s, a, seq, c, (int32_t)(t - seq.first));
        const float *row = row_of(a.u, t);
        float u = conv_input(s, a, seq, c, (int32_t)(t - seq.first)), sum = bias;
#pragma unroll
        for (uint32_t i = 0; i < TAPS_MAX; i++) {
            if (i <= past)
                sum = fmaf(weight[i], i == past ? u : window[i], sum);
        }
        sum = a.linear ? sum : silu(sum);
        row_of(a.y, t)[c] = a.gated ? sum * row[n + c] : sum;
        if (s.tokens == s.seqs)
            keep_inputs(s, a, seq, c);
#pragma unroll
        for (uint32_t i = 0; i + 1 < TAPS_MAX; i++)
            window[i] = i + 1 == past ? u : window[i + 1];
    }
}

/* Block: a sequence, some channels. */
KERNEL plateau_conv_keep(const cuda_step s, const cuda_conv a)
{
    grid_begin();
    uint32_t c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c < a.channels)
        keep_inputs(s, a, s.seq[blockIdx.y], c);
}

/* ---- columns in registers ----
 *
 * The usual heads have ROWS values in a column. What the tokens bring comes through a ring in shared memory:
 * two rows of ROWS values, and a value for each column. */

#define WALK_FLOATS (2 * ROWS + COLUMNS)

DEVICE float4 floats_at(uint32_t at)
{
    uint4 v = read_piece(at);
    return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}

struct walk_from {
    cuda_rows x, gates;
    uint32_t rows[2], values; /* in a row of x */
    uint32_t gate[2];         /* in a row of gates */
};

/* A block's way over the tokens [first, first + count): PARTS warps, each with a part of all columns. Copies
 * of EACH tokens are a group, of which AHEAD are on their way. */
template <uint32_t PARTS> struct walk {
    static constexpr uint32_t EACH = PARTS > 1 ? 4 : 1, AHEAD = PARTS > 1 ? 2 : 6;
    static constexpr uint32_t STAGES = PARTS > 1 ? 16 : 8, SUMS = STAGES * WALK_FLOATS + ROWS;
    static constexpr uint32_t FLOATS = SUMS + (PARTS > 1 ? 4 * PARTS * COLUMNS : 0);
    const walk_from &from;
    float *ring;                         /* FLOATS */
    uint32_t first, count, loaded, sums; /* sums: how often the parts have met */
    float gates[2], next_gates[2];       /* lane l: of token l of these 32 tokens, and of the next ones */

    static __device__ __forceinline__ void meet()
    {
        if (PARTS > 1)
            __syncthreads();
        else
            __syncwarp();
    }
    /* The thread's column, and its part of it. */
    static __device__ __forceinline__ uint32_t column()
    {
        return threadIdx.x % COLUMNS;
    }
    static __device__ __forceinline__ uint32_t part()
    {
        return threadIdx.x / COLUMNS;
    }
    /* Puts the next tokens' copies on their way. */
    __device__ __forceinline__ void load()
    {
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++, loaded++) {
            if (loaded >= count)
                continue;
            const float *x = row_of(from.x, first + loaded);
            float *to = ring + loaded % STAGES * WALK_FLOATS;
#pragma unroll
            for (uint32_t i = threadIdx.x; i < WALK_FLOATS / 4; i += COLUMNS * PARTS) {
                uint32_t at = i < ROWS / 4       ? from.rows[0]
                              : i < 2 * ROWS / 4 ? from.rows[1] - ROWS
                                                 : from.values - 2 * ROWS;
                copy16(shared_at(to + i * 4), x + (at + i * 4));
            }
        }
        copies_end();
    }
    __device__ __forceinline__ void load_gates(float ret[2], uint32_t t) const
    {
        t += threadIdx.x % 32;
#pragma unroll
        for (uint32_t i = 0; i < 2; i++)
            ret[i] = t < count ? row_of(from.gates, first + t)[from.gate[i]] : 0;
    }
    __device__ __forceinline__ void begin()
    {
        load_gates(next_gates, 0);
        for (uint32_t i = 0; i < AHEAD; i++)
            load();
    }
    /* A row that is pending, in shared memory until the next call. */
    __device__ __forceinline__ uint32_t keep(const float *row) const
    {
        float *to = ring + STAGES * WALK_FLOATS;
        meet();
        if (threadIdx.x < ROWS / 4)
            *(float4 *)(to + threadIdx.x * 4) = *(const float4 *)(row + threadIdx.x * 4);
        meet();
        return shared_at(to);
    }
    /* Token t is there, and the one before it still. */
    __device__ __forceinline__ void enter(uint32_t t)
    {
        if (t % 32 == 0) {
            gates[0] = next_gates[0], gates[1] = next_gates[1];
            load_gates(next_gates, t + 32);
        }
        if (t % EACH != 0)
            return;
        copies_wait<AHEAD - 1>();
        meet();
        load();
    }
    __device__ __forceinline__ uint32_t row(uint32_t t, uint32_t i) const
    {
        return shared_at(ring + t % STAGES * WALK_FLOATS + i * ROWS);
    }
    __device__ __forceinline__ float value(uint32_t t) const
    {
        return __uint_as_float(read_word(row(t, 2) + column() * 4));
    }
    /* The token that was entered last. */
    __device__ __forceinline__ float gate(uint32_t t, uint32_t i) const
    {
        return __shfl_sync(0xffffffffu, gates[i], t % 32);
    }
    /* The row of the thread's value i in its column. */
    static __device__ __forceinline__ uint32_t row_of_value(uint32_t i)
    {
        return i / 4 * 4 * PARTS + part() * 4 + i % 4;
    }
    /* The thread's values i to i + 3 of a row. */
    static __device__ __forceinline__ float4 four(uint32_t row, uint32_t i)
    {
        return floats_at(row + row_of_value(i) * 4);
    }
    /* Two sums over the column, of which the thread has its part's. */
    __device__ __forceinline__ void sum_parts(float &a, float &b)
    {
        if (PARTS == 1)
            return;
        float *room = ring + SUMS + sums++ % 2 * 2 * PARTS * COLUMNS + column();
        room[part() * COLUMNS] = a;
        room[(PARTS + part()) * COLUMNS] = b;
        meet();
        a = (room[0] + room[COLUMNS]) + (room[2 * COLUMNS] + room[3 * COLUMNS]);
        room += PARTS * COLUMNS;
        b = (room[0] + room[COLUMNS]) + (room[2 * COLUMNS] + room[3 * COLUMNS]);
    }
    template <uint32_t N>
    static __device__ __forceinline__ void load_column(float (&s)[N], const float *state, uint32_t width)
    {
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            s[i] = state ? state[(uint64_t)row_of_value(i) * width] : 0;
    }
    template <uint32_t N>
    static __device__ __forceinline__ void store_column(const float (&s)[N], float *state, uint32_t width)
    {
#pragma unroll
        for (uint32_t i = 0; i < N; i++)
            state[(uint64_t)row_of_value(i) * width] = s[i];
    }
};

/* ---- the delta net ---- */

/* Four warps, each with a head. */
DEVICE void delta_norm(const cuda_delta &a, float *x, uint32_t head)
{
    x += (uint64_t)head * a.key_dim;
    float r = delta_factor(a, x, head);
    for (uint32_t i = threadIdx.x % 32; i < a.key_dim; i += 32)
        x[i] = x[i] * r;
}

/* Block: a token, four heads of queries and keys; the last one has the gates. */
KERNEL plateau_delta_inputs(const cuda_delta a)
{
    grid_begin();
    uint32_t t = blockIdx.x, head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    if (blockIdx.y + 1 == gridDim.y)
        delta_gates(a, t);
    else if (head < 2 * a.key_heads)
        delta_norm(a, row_of(a.conv_out, t), head);
}

/* A sum over a column, in a chain for each part. f: what value i adds to it. */
template <class F> DEVICE float sum_column(uint32_t dk, uint32_t parts, const F &f)
{
    float sums[CUDA_DELTA_PARTS] = {};
#pragma unroll
    for (uint32_t p = 0; p < CUDA_DELTA_PARTS; p++)
        for (uint32_t i = 4 * p; p < parts && i < dk; i += 4 * parts)
            for (uint32_t j = i; j < min(i + 4, dk); j++)
                sums[p] = f(j, sums[p]);
    return parts == 1 ? sums[0] : (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* One update of a thread's column of the state; what q reads of it. q NULL: nothing. */
DEVICE float delta_update(float *column, uint32_t dk, uint32_t parts, const float *k, float v, float alpha,
                          float beta, const float *q)
{
    float m = sum_column(dk, parts, [&](uint32_t i, float sum) {
        float s = column[i * COLUMNS] * alpha;
        column[i * COLUMNS] = s;
        return fmaf(s, k[i], sum);
    });
    float d = beta * (v - m);
    return sum_column(dk, parts, [&](uint32_t i, float sum) {
        float s = fmaf(k[i], d, column[i * COLUMNS]);
        column[i * COLUMNS] = s;
        return q ? fmaf(s, q[i], sum) : 0;
    });
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
        delta_update(column, dk, a.parts, pending + a.k_at + key_head * dk, pending[a.v_at + head * dv + c],
                     pending[a.alpha_at + head], pending[a.beta_at + head], NULL);
    if (seq.keep_pending)
        store_column(column, out, dk, dv);
    for (uint32_t t = seq.first; t < seq.first + seq.count; t++) {
        const float *x = row_of(a.conv_out, t), *gates = row_of(a.gates, t);
        row_of(a.out, t)[head * dv + c] =
            delta_update(column, dk, a.parts, x + keys + key_head * dk, x[2 * keys + head * dv + c],
                         gates[head], gates[a.value_heads + head], x + key_head * dk);
    }
    if (!seq.keep_pending)
        store_column(column, out, dk, dv);
}

/* The column decays; what k reads of it then. */
template <uint32_t PARTS>
DEVICE float delta_read(walk<PARTS> &w, float (&s)[ROWS / PARTS], uint32_t k, float alpha)
{
    float m = 0, none = 0;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / PARTS; i += 4) {
        float4 by = w.four(k, i);
        m = fmaf(s[i] = s[i] * alpha, by.x, m);
        m = fmaf(s[i + 1] = s[i + 1] * alpha, by.y, m);
        m = fmaf(s[i + 2] = s[i + 2] * alpha, by.z, m);
        m = fmaf(s[i + 3] = s[i + 3] * alpha, by.w, m);
    }
    w.sum_parts(m, none);
    return m;
}
/* d is written along k; what q reads then. */
template <uint32_t PARTS>
DEVICE float delta_write(walk<PARTS> &w, float (&s)[ROWS / PARTS], uint32_t k, float d, uint32_t q)
{
    float o = 0, none = 0;
#pragma unroll
    for (uint32_t i = 0; i < ROWS / PARTS; i += 4) {
        float4 by = w.four(k, i), at = w.four(q, i);
        o = fmaf(s[i] = fmaf(by.x, d, s[i]), at.x, o);
        o = fmaf(s[i + 1] = fmaf(by.y, d, s[i + 1]), at.y, o);
        o = fmaf(s[i + 2] = fmaf(by.z, d, s[i + 2]), at.z, o);
        o = fmaf(s[i + 3] = fmaf(by.w, d, s[i + 3]), at.w, o);
    }
    w.sum_parts(o, none);
    return o;
}
/* delta_write() of a token and delta_read() of the next one in one walk: neither sum waits for the other. */
template <uint32_t PARTS>
DEVICE float delta_write_read(walk<PARTS> &w, float (&s)[ROWS / PARTS], uint32_t k, float d, uint32_t q,
                              uint32_t next_k, float alpha, float &m)
{
    float o = 0;
    m = 0;
    auto pass = [&](float &x, float by, float at, float next) {
        x = fmaf(by, d, x);
        o = fmaf(x, at, o);
        x = x * alpha;
        m = fmaf(x, next, m);
    };
#pragma unroll
    for (uint32_t i = 0; i < ROWS / PARTS; i += 4) {
        float4 by = w.four(k, i), at = w.four(q, i), next = w.four(next_k, i);
        pass(s[i], by.x, at.x, next.x);
        pass(s[i + 1], by.y, at.y, next.y);
        pass(s[i + 2], by.z, at.z, next.z);
        pass(s[i + 3], by.w, at.w, next.w);
    }
    w.sum_parts(m, o);
    return o;
}

/* plateau_delta for heads with ROWS columns of ROWS values, of which a thread has ROWS / PARTS. */
template <uint32_t PARTS> DEVICE void walk_delta(const cuda_step &s, const cuda_delta &a, float *ring)
{
    const cuda_seq &seq = s.seq[blockIdx.z];
    uint32_t c = blockIdx.x * COLUMNS + walk<PARTS>::column(), head = blockIdx.y;
    uint32_t key = head / (a.value_heads / a.key_heads) * ROWS, keys = a.key_heads * ROWS;
    uint64_t at = a.state_offset + (uint64_t)head * ROWS * ROWS * sizeof(float);
    const float *in = state_at(s, seq.state_in, at), *pending = state_at(s, seq.state_in, a.pending_offset);
    float *out = state_at(s, seq.state_out, at) + c;
    const walk_from from = {a.conv_out,
                            a.gates,
                            {keys + key, key},
                            2 * keys + head * ROWS + blockIdx.x * COLUMNS,
                            {head, a.value_heads + head}};
    walk<PARTS> w = {from, ring, seq.first, seq.count};
    float column[ROWS / PARTS], m;
    const bool puts = walk<PARTS>::part() == 0;
    w.begin();
    w.load_column(column, in ? in + c : NULL, ROWS);
    for (uint32_t t = 0; t < seq.pending; t++, pending += a.pending_floats) {
        uint32_t k = w.keep(pending + a.k_at + key);
        float v = pending[a.v_at + head * ROWS + c];
        m = delta_read(w, column, k, pending[a.alpha_at + head]);
        __syncwarp(); /* k is read anew: kept in registers, it would leave the column none */
        delta_write(w, column, k, pending[a.beta_at + head] * (v - m), k);
    }
    if (seq.keep_pending)
        w.store_column(column, out, ROWS);
    w.enter(0);
    m = delta_read(w, column, w.row(0, 0), w.gate(0, 0));
    float beta = w.gate(0, 1);
    uint32_t last = seq.count - 1;
    for (uint32_t t = 0; t < last; t++) {
        w.enter(t + 1);
        float d = beta * (w.value(t) - m), alpha = w.gate(t + 1, 0);
        beta = w.gate(t + 1, 1);
        float o = delta_write_read(w, column, w.row(t, 0), d, w.row(t, 1), w.row(t + 1, 0), alpha, m);
        if (puts)
            row_of(a.out, seq.first + t)[head * ROWS + c] = o;
    }
    float o = delta_write(w, column, w.row(last, 0), beta * (w.value(last) - m), w.row(last, 1));
    if (puts)
        row_of(a.out, seq.first + last)[head * ROWS + c] = o;
    if (!seq.keep_pending)
        w.store_column(column, out, ROWS);
}

#define DELTA_WALK(name, parts)                                                                              \
    extern "C" __global__ void __launch_bounds__(COLUMNS *parts)                                             \
        plateau_##name(const cuda_step s, const cuda_delta a)                                                \
    {                                                                                                        \
        __shared__ __align__(16) float ring[walk<parts>::FLOATS];                                            \
        grid_begin();                                                                                        \
        walk_delta<parts>(s, a, ring);                                                                       \
    }
DELTA_WALK(delta_walk, 1)
DELTA_WALK(delta_parts, CUDA_DELTA_PARTS)

/* Keeps what token t brought to the recurrence. By all threads of the token's blocks. */
DEVICE void keep_delta(const cuda_step &s, const cuda_delta &a, const cuda_seq &seq, uint32_t t)
{
    uint32_t keys = a.key_heads * a.key_dim, step = gridDim.y * blockDim.x;
    uint32_t first = blockIdx.y * blockDim.x + threadIdx.x;
    const float *x = row_of(a.conv_out, t) + keys, *gates = row_of(a.gates, t);
    float *pending = state_at(s, seq.state_out, a.pending_offset) + (t - seq.first) * a.pending_floats;
    for (uint32_t i = first; i < keys + a.value_heads * a.value_dim; i += step)
        pending[a.k_at + i] = x[i];
    for (uint32_t i = first; i < a.value_heads; i += step) {
        pending[a.alpha_at + i] = gates[i];
        pending[a.beta_at + i] = gates[a.value_heads + i];
    }
}

/* The gated norm, and what the token leaves pending. Block: a token, four value heads. */
KERNEL plateau_delta_end(const cuda_step s, const cuda_delta a)
{
    grid_begin();
    uint32_t t = blockIdx.x, dv = a.value_dim, lane = threadIdx.x % 32;
    uint32_t head = blockIdx.y * (blockDim.x / 32) + threadIdx.x / 32;
    const cuda_seq &seq = seq_of(s, t);
    if (seq.keep_pending)
        keep_delta(s, a, seq, t);
    if (head >= a.value_heads)
        return;
    const float *z = row_of(a.in, t) + a.channels + (uint64_t)head * dv;
    float *o = row_of(a.out, t) + (uint64_t)head * dv;
    float r = norm_of_head(a, o);
    for (uint32_t i = lane; i < dv; i += 32) {
        float y = a.norm[i] * (o[i] * r) * silu(z[i]);
        o[i] = y;
        put_rounded(a.rounded, t, head * dv + i, y);
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

DEVICE float ssm_walk_update(float (&s)[ROWS], uint32_t b, float x, float decay, uint32_t c)
{
    float y = 0;
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i += 4) {
        float4 by = floats_at(b + i * 4), at = floats_at(c + i * 4);
        y = fmaf(s[i] = fmaf(by.x, x, s[i] * decay), at.x, y);
        y = fmaf(s[i + 1] = fmaf(by.y, x, s[i + 1] * decay), at.y, y);
        y = fmaf(s[i + 2] = fmaf(by.z, x, s[i + 2] * decay), at.z, y);
        y = fmaf(s[i + 3] = fmaf(by.w, x, s[i + 3] * decay), at.w, y);
    }
    return y;
}

/* plateau_ssm for heads with ROWS values in a column and whole blocks of columns. */
extern "C" __global__ void __launch_bounds__(COLUMNS) plateau_ssm_walk(const cuda_step s, const cuda_ssm a)
{
    __shared__ __align__(16) float ring[walk<1>::FLOATS];
    grid_begin();
    const cuda_seq &seq = s.seq[blockIdx.z];
    uint32_t j = blockIdx.x * COLUMNS + threadIdx.x, head = blockIdx.y, p = a.head_dim;
    uint32_t group = head / (a.heads / a.groups) * ROWS, inner = a.heads * p;
    uint64_t at = a.state_offset + (uint64_t)head * ROWS * p * sizeof(float);
    const float *in = state_at(s, seq.state_in, at), *pending = state_at(s, seq.state_in, a.pending_offset);
    float *out = state_at(s, seq.state_out, at) + j;
    const walk_from from = {a.conv_out,
                            a.gates,
                            {inner + group, inner + a.groups * ROWS + group},
                            head * p + blockIdx.x * COLUMNS,
                            {head, a.heads + head}};
    walk<1> w = {from, ring, seq.first, seq.count};
    float column[ROWS];
    w.begin();
    w.load_column(column, in ? in + j : NULL, p);
    for (uint32_t t = 0; t < seq.pending; t++, pending += a.pending_floats) {
        uint32_t b = w.keep(pending + a.b_at + group);
        ssm_walk_update(column, b, pending[a.dt_at + head] * pending[a.x_at + head * p + j],
                        pending[a.decay_at + head], b);
    }
    if (seq.keep_pending)
        w.store_column(column, out, p);
    for (uint32_t t = 0; t < seq.count; t++) {
        w.enter(t);
        float x = w.value(t);
        float y = ssm_walk_update(column, w.row(t, 0), w.gate(t, 0) * x, w.gate(t, 1), w.row(t, 1));
        row_of(a.out, seq.first + t)[head * p + j] = fmaf(a.skip[head], x, y);
    }
    /* A width that the compiler knows to be p's would keep the addresses of the first store in registers. */
    if (!seq.keep_pending)
        w.store_column(column, out, __shfl_sync(0xffffffffu, p, 0));
}

/* Keeps the values that token t brought to the recurrence, then gates and norms. Block: a token. */
KERNEL plateau_ssm_end(const cuda_step s, const cuda_ssm a)
{
    grid_begin();
    uint32_t t = blockIdx.x, inner = a.heads * a.head_dim, width = inner / a.groups;
    const cuda_seq &seq = seq_of(s, t);
    const float *x = row_of(a.conv_out, t), *gates = row_of(a.gates, t), *z = row_of(a.in, t);
    float *y = row_of(a.out, t);
    if (seq.keep_pending) {
        float *pending = state_at(s, seq.state_out, a.pending_offset) + (t - seq.first) * a.pending_floats;
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
