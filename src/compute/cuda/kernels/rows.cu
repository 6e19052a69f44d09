/* rows.cu - operations that go row by row: a block takes a row. */
#include "compute/cuda/kernels/fragment.cuh"

/* ---- embedding ---- */

DEVICE void put_angles(const cuda_ropes *ropes, const uint32_t *axis, float *angles)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < ropes->count; i++) {
        const cuda_rope &r = ropes->table[i];
        for (uint32_t j = threadIdx.x; j < r.half; j += blockDim.x) {
            double angle = (double)axis[r.axis[j]] * r.inv_freq[j];
            angles[at + j] = (float)(cos(angle) * r.magnitude);
            angles[at + r.half + j] = (float)(sin(angle) * r.magnitude);
        }
        at += 2 * r.half;
    }
}

/* Block: a token, CUDA_THREADS of its values; the last one has its angles. */
KERNEL plateau_embed(const cuda_step s, const cuda_embed a)
{
    grid_begin();
    uint32_t t = blockIdx.x, i = blockIdx.y * CUDA_THREADS + threadIdx.x;
    if (blockIdx.y + 1 == gridDim.y) {
        put_angles(a.ropes, s.positions + 3 * t, row_of(a.angles, t));
        return;
    }
    if (i >= a.h.width)
        return;
    const cuda_seq &seq = seq_of(s, t);
    const float *features = (const float *)s.features[t];
    float *h = row_of(a.h, t);
    uint32_t type = seq.position + (t - seq.first) >= seq.second;
    float x = features ? features[i] : value_of(a.table, s.ids[t], i);
    if (!features && a.scale != 0)
        x *= a.scale;
    if (a.positions.data)
        x += value_of(a.positions, s.positions[3 * t], i);
    if (a.types.data)
        x += value_of(a.types, type, i);
    h[i] = x;
}

KERNEL plateau_layer_inputs(const cuda_step s, const cuda_layer_inputs a)
{
    grid_begin();
    uint32_t t = blockIdx.x;
    float *x = row_of(a.x, t);
    for (uint32_t i = threadIdx.x; i < a.x.width; i += blockDim.x)
        x[i] *= a.input_scale;
    __syncthreads();
    for (uint32_t i = 0; i < a.x.width; i += a.width)
        rms_row(x + i, x + i, a.norm, a.width, a.eps);
    for (uint32_t i = threadIdx.x; i < a.x.width; i += blockDim.x)
        x[i] = fmaf(a.row_scale, value_of(a.table, s.ids[t], i), x[i]) * a.scale;
}

/* ---- norms ---- */

/* Values `i` to i + 3 of what a token's experts add, in their order, and of the shared expert's. */
DEVICE float4 experts_four(const cuda_step &s, const cuda_residual &add, uint32_t t, uint32_t i)
{
    const float *weights = s.pair_weight + (uint64_t)t * s.top_k;
    const float *first = row_of(add.pairs, (uint64_t)t * s.top_k) + i;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 4
    for (uint32_t k = 0; k < s.top_k; k++)
        sum = add_four(sum, weights[k], *(const float4 *)(first + (uint64_t)k * add.pairs.stride));
    return add.out.width > 0 ? add_four(sum, s.shared_gate[t], *(const float4 *)(row_of(add.out, t) + i))
                             : sum;
}

/* The usual case, by registers: h += what token t adds, y = rmsnorm(h), row `row` of the results. */
#define NORM_EACH (CUDA_NORM_WIDTH / CUDA_THREADS / 4) /* groups of four values of a thread */
template <uint32_t EACH>
DEVICE void norm_plain(const cuda_step &s, const cuda_residual &add, const cuda_norm &norm,
                       const cuda_rounded &rounded, float *__restrict__ h, float *__restrict__ y, uint32_t n,
                       uint32_t t, uint32_t row)
{
    float4 x[EACH], w[EACH];
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        uint32_t i = (threadIdx.x + j * CUDA_THREADS) * 4;
        w[j] = i < n ? *(const float4 *)(norm.weight + i) : float4{0, 0, 0, 0};
    }
    grid_wait();
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        uint32_t i = (threadIdx.x + j * CUDA_THREADS) * 4;
        x[j] = i < n ? *(const float4 *)(h + i) : float4{0, 0, 0, 0};
    }
    constexpr bool SUMS = EACH * 4 * CUDA_THREADS <= CUDA_NORM_SUMS;
    if (add.kind != CUDA_RESIDUAL_NONE) {
        const float scale = add.scale != 0 ? add.scale : 1, *out = row_of(add.out, t);
        float4 r[EACH];
        if (SUMS && add.kind == CUDA_RESIDUAL_EXPERTS) {
#pragma unroll
            for (uint32_t j = 0; j < EACH; j++) {
                uint32_t i = (threadIdx.x + j * CUDA_THREADS) * 4;
                r[j] = i < n ? experts_four(s, add, t, i) : float4{0, 0, 0, 0};
            }
        } else {
#pragma unroll
            for (uint32_t j = 0; j < EACH; j++) {
                uint32_t i = (threadIdx.x + j * CUDA_THREADS) * 4;
                r[j] = i < n ? *(const float4 *)(out + i) : float4{0, 0, 0, 0};
            }
        }
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            uint32_t i = (threadIdx.x + j * CUDA_THREADS) * 4;
            x[j] = add_four(x[j], scale, r[j]);
            if (i < n)
                *(float4 *)(h + i) = x[j];
        }
    }
    double sums[4] = {};
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        sums[0] = add_square(sums[0], x[j].x), sums[1] = add_square(sums[1], x[j].y);
        sums[2] = add_square(sums[2], x[j].z), sums[3] = add_square(sums[3], x[j].w);
    }
    float r = norm_factor(block_sum((sums[0] + sums[1]) + (sums[2] + sums[3])), n, norm.eps);
#pragma unroll
    for (uint32_t j = 0; j < EACH; j++) {
        uint32_t i = (threadIdx.x + j * CUDA_THREADS) * 4;
        float4 v = normed_four(x[j], w[j], r);
        if (i < n)
            *(float4 *)(y + i) = v;
        if (rounded.at && i < rounded_width(n))
            put_four(rounded, row, i, v);
    }
}

/* Row t of h; row `row` of y. */
DEVICE void norm_usual(const cuda_step &s, const cuda_residual &add, const cuda_norm &norm,
                       const cuda_rounded &rounded, const cuda_rows &rows, const cuda_rows &results,
                       uint32_t t, uint32_t row)
{
    float *h = row_of(rows, t), *y = row_of(results, row);
    const uint32_t n = rows.width;
    if (n <= 4 * CUDA_THREADS)
        norm_plain<1>(s, add, norm, rounded, h, y, n, t, row);
    else if (n <= 8 * CUDA_THREADS)
        norm_plain<2>(s, add, norm, rounded, h, y, n, t, row);
    else if (n <= 16 * CUDA_THREADS)
        norm_plain<4>(s, add, norm, rounded, h, y, n, t, row);
    else
        norm_plain<NORM_EACH>(s, add, norm, rounded, h, y, n, t, row);
}

KERNEL plateau_norm(const cuda_step s, const cuda_norm_op a)
{
    grid_next();
    uint32_t t = blockIdx.x;
    if (cuda_norm_is_usual(&a.add, &a.norm, &a.h, &a.y) && !a.keep.width && !a.stream) {
        norm_usual(s, a.add, a.norm, a.rounded, a.h, a.y, t, t);
        return;
    }
    grid_wait();
    float *h = row_of(a.h, t), *y = row_of(a.y, t);
    add_residual(s, a.add, h, a.h.width, t);
    if (a.keep.width) {
        const cuda_seq &seq = seq_of(s, t);
        uint32_t index = t - seq.first;
        if (seq.keep_pending || index + 1 == seq.count) {
            float *hidden =
                state_at(s, seq.state_out, a.hidden_offset + (seq.keep_pending ? index : 0) * a.hidden_step);
            for (uint32_t i = threadIdx.x; i < a.keep.width; i += blockDim.x)
                hidden[i] = row_of(a.keep, t)[i];
        }
    }
    if (a.y.width == 0)
        return;
    if (a.norm.weight)
        norm_row(a.norm, y, h, a.h.width);
    for (uint32_t i = threadIdx.x; i < a.h.width; i += blockDim.x) {
        if (!a.norm.weight)
            y[i] = h[i];
        else if (a.stream)
            h[i] = y[i];
    }
    for (uint32_t i = threadIdx.x; a.rounded.at && i < rounded_width(a.h.width); i += blockDim.x)
        put_rounded(a.rounded, t, i, i >= a.h.width ? 0 : a.norm.weight ? y[i] : h[i]);
}

KERNEL plateau_features(const cuda_step s, const cuda_features a)
{
    grid_begin();
    uint32_t t = blockIdx.x;
    float *h = row_of(a.h, t);
    const float *features = (const float *)s.features[t];
    add_residual(s, a.add, h, a.h.width, t);
    for (uint32_t i = threadIdx.x; features && i < a.h.width; i += blockDim.x)
        h[i] += features[a.from + i];
}

KERNEL plateau_gather(const cuda_step s, const cuda_gather a)
{
    grid_begin();
    uint32_t t = s.logit_columns[blockIdx.x];
    if (cuda_norm_is_usual(&a.add, &a.norm, &a.h, &a.y)) {
        norm_usual(s, a.add, a.norm, a.rounded, a.h, a.y, t, blockIdx.x);
        return;
    }
    float *h = row_of(a.h, t), *y = row_of(a.y, blockIdx.x);
    add_residual(s, a.add, h, a.h.width, t);
    if (a.norm.weight)
        norm_row(a.norm, y, h, a.h.width);
    for (uint32_t i = threadIdx.x; !a.norm.weight && i < a.h.width; i += blockDim.x)
        y[i] = h[i];
    for (uint32_t i = threadIdx.x; a.rounded.at && i < rounded_width(a.h.width); i += blockDim.x)
        put_rounded(a.rounded, blockIdx.x, i, i >= a.h.width ? 0 : a.norm.weight ? y[i] : h[i]);
}

/* ---- elements ---- */

KERNEL plateau_scale(const cuda_scale a)
{
    grid_begin();
    float *x = row_of(a.x, blockIdx.x);
#pragma unroll
    for (uint32_t part = 0; part < CUDA_SCALES_MAX; part++) {
        if (part == a.count)
            return;
        for (uint32_t i = threadIdx.x; i < a.width[part]; i += blockDim.x)
            x[i] *= a.factor[part];
        x += a.width[part];
    }
}

KERNEL plateau_head_gate(const cuda_head_gate a)
{
    grid_begin();
    uint32_t row = blockIdx.x;
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < a.out.width; i += gridDim.y * blockDim.x) {
        float g = row_of(a.gate, row)[i / a.each];
        float y = row_of(a.out, row)[i] * (a.softplus ? softplus(g) : sigmoid(g));
        row_of(a.out, row)[i] = y;
        put_rounded(a.rounded, row, i, y);
    }
}

DEVICE float glu_value(const cuda_glu &a, float g, float up)
{
    double v = g;
    float x;
    switch (a.function) {
    case CUDA_SILU:
        return a.has_up ? silu(g) * up : g / (1.0f + expf(-g));
    case CUDA_SWIGLU_CLIP:
        g = g > a.limit ? a.limit : g;
        up = up > a.limit ? a.limit : up < -a.limit ? -a.limit : up;
        return (up + 1) * (g / (1.0f + expf(-a.alpha * g)));
    case CUDA_GELU_TANH:
        x = (float)(v / (1 + exp(-2 * 0.79788456080286535588 * (v + 0.044715 * v * v * v))));
        break;
    case CUDA_GELU_ERF:
        x = (float)(v * 0.5 * erfc(-v * 0.70710678118654752440));
        break;
    default:
        x = g < 0 ? 0 : g;
        x *= x;
    }
    return a.has_up ? x * up : x;
}

KERNEL plateau_glu(const cuda_glu a)
{
    grid_begin();
    uint32_t row = blockIdx.x;
    for (uint32_t i = blockIdx.y * blockDim.x + threadIdx.x; i < a.out.width; i += gridDim.y * blockDim.x) {
        float y = glu_value(a, row_of(a.in, row)[i], a.has_up ? row_of(a.up, row)[i] : 0);
        row_of(a.out, row)[i] = y;
        put_rounded(a.rounded, row, i, y);
    }
}

KERNEL plateau_finish(const cuda_finish a)
{
    grid_begin();
    float *x = row_of(a.x, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < a.x.width; i += blockDim.x) {
        float y = a.scale != 0 ? x[i] * a.scale : x[i];
        x[i] = a.cap > 0 ? a.cap * tanhf(y / a.cap) : y;
    }
}

/* ---- the MTP head ---- */

/* A sequence's hidden state after the last of its accepted tokens, or after the state. */
DEVICE const float *last_hidden(const cuda_step &s, const cuda_pair &a, const cuda_seq &seq)
{
    uint32_t index = seq.pending > 0 ? seq.pending - 1 : 0;
    return state_at(s, seq.state_in, a.hidden_offset + index * a.hidden_step);
}

/* The left half, and the angles of the token before. */
DEVICE void pair_embedding(const cuda_step &s, const cuda_pair &a, const cuda_seq &seq, uint32_t t)
{
    float *left = row_of(a.pair, t);
    const float *x = (const float *)s.features[t];
    if (!x) {
        for (uint32_t i = threadIdx.x; i < a.h.width; i += blockDim.x)
            left[i] = value_of(a.table, s.ids[t], i);
        __syncthreads();
        x = left;
    }
    rms_row(left, x, a.norm_embedding, a.h.width, a.eps);
    if (t > seq.first)
        put_angles(a.ropes, s.positions + 3 * (t - 1), row_of(a.angles, t));
    else if (seq.position > 0)
        put_angles(a.ropes, seq.previous, row_of(a.angles, t));
}

KERNEL plateau_pair(const cuda_step s, const cuda_pair a)
{
    grid_begin();
    uint32_t t = blockIdx.x, n = a.h.width;
    const cuda_seq &seq = seq_of(s, t);
    float *h = row_of(a.h, t);
    if (a.draft) {
        pair_embedding(s, a, seq, t);
        rms_row(row_of(a.pair, t) + n,
                a.from_states ? last_hidden(s, a, seq) : row_of(a.h, s.hidden_columns[t]), a.norm_hidden, n,
                a.eps);
        return;
    }
    add_residual(s, a.add, h, n, t);
    rms_row(h, h, a.final_norm, n, a.eps);
    pair_embedding(s, a, seq, t);
    if (t + 1 < seq.first + seq.count)
        rms_row(row_of(a.pair, t + 1) + n, h, a.norm_hidden, n, a.eps);
    if (t > seq.first)
        return;
    float *right = row_of(a.pair, t) + n;
    if (seq.state_in != CUDA_NONE)
        rms_row(right, last_hidden(s, a, seq), a.norm_hidden, n, a.eps);
    for (uint32_t i = threadIdx.x; seq.state_in == CUDA_NONE && i < n; i += blockDim.x)
        right[i] = 0;
}

/* The largest of a token's logits among the valid ids, the first of equals. */
KERNEL plateau_best(const cuda_best a)
{
    grid_begin();
    const float *x = row_of(a.logits, blockIdx.x);
    best mine = {0, CUDA_NONE};
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        uint32_t id = a.ids ? a.ids[i] : i;
        bool valid = !a.valid || (a.valid[id / 64] >> id % 64 & 1);
        if (valid && x[i] > -INFINITY)
            mine = better(mine, {x[i], i});
    }
    mine = block_best(mine);
    if (threadIdx.x > 0)
        return;
    uint32_t id = mine.index == CUDA_NONE || !a.ids ? mine.index : a.ids[mine.index];
    a.best_logit[2 * blockIdx.x] = mine.index == CUDA_NONE ? -INFINITY : mine.value;
    a.best_logit[2 * blockIdx.x + 1] = __uint_as_float(id);
}

/* ---- rows of weights ---- */

/* One row's elements of `bytes` each, `count` of them, a panel's width apart. */
DEVICE void copy_lane(uint8_t *to, uint32_t to_lane, const uint8_t *from, uint32_t from_lane, uint64_t count,
                      uint32_t bytes)
{
    for (uint64_t i = threadIdx.x; i < count * bytes; i += blockDim.x) {
        uint64_t line = i / bytes * CUDA_PANEL * bytes, byte = i % bytes;
        to[line + to_lane * bytes + byte] = from[line + from_lane * bytes + byte];
    }
}

KERNEL plateau_copy_row(const cuda_copy_row a)
{
    grid_begin();
    uint32_t to_lane = a.to_row % CUDA_PANEL, from_lane = a.from_row % CUDA_PANEL;
    uint8_t *to = (uint8_t *)a.to.data + a.to_row / CUDA_PANEL * panel_bytes(a.from);
    const uint8_t *from = a.from.data + a.from_row / CUDA_PANEL * panel_bytes(a.from);
    if (a.from.form != CUDA_AFFINE) {
        copy_lane(to, to_lane, from, from_lane, a.from.k, a.from.form == CUDA_F32 ? 4 : 2);
        return;
    }
    const cuda_matrix &m = a.from;
    uint32_t side = scale_bytes(m), upper = super_bytes(m), sides = sides_bytes(m);
    uint32_t each = m.qparams == CUDA_E4M3 ? 4 : 2;
    for (uint32_t g = 0; g < m.k / m.group; g++) {
        uint64_t at = group_offset(m, g);
        if (upper && g % (m.super / m.group) == 0)
            copy_lane(to + at - upper, to_lane, from + at - upper, from_lane, upper / (CUDA_PANEL * each),
                      each);
        copy_lane(to + at, to_lane, from + at, from_lane, 1, side / CUDA_PANEL);
        copy_lane(to + at + side, to_lane, from + at + side, from_lane, sides > side,
                  max((sides - side) / CUDA_PANEL, 1u));
        copy_lane(to + at + sides, to_lane, from + at + sides, from_lane, m.group / 8 * m.bits, 1);
    }
}
