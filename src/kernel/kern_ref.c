/* kern_ref.c - every operation as its contract states it, one scalar after another.
 *
 * Built for any machine: fmaf is a call where there is no instruction for it. Where the contract fixes a
 * chain of f32 operations the reference is that chain, so the tiers must equal it bit for bit. Sums whose
 * order it leaves open are taken in double. */
#include "base/check.h"
#include "kernel/kern.h"
#include "kernel/kern_tiers.h"
#include "kernel/matrix_factor.h"

#include <math.h>
#include <string.h>

static float silu(float x)
{
    return x / (1.0f + expf(-x));
}

/* One row's outputs of all columns: each factor is unpacked once for all of them. */
static void dense_outputs(const struct matrix *w, uint32_t row, const struct kern_columns *c)
{
    float factors[MATRIX_DENSE_BLOCK];
    for (uint32_t column = 0; column < c->count; column++)
        c->y[column][row] = 0;
    for (uint32_t block = 0; block < w->k; block += MATRIX_DENSE_BLOCK) {
        uint32_t count = MIN_OF(w->k - block, MATRIX_DENSE_BLOCK);
        for (uint32_t k = 0; k < count; k++)
            factors[k] = matrix_factor(w, row, block + k);
        for (uint32_t column = 0; column < c->count; column++) {
            const float *x = c->x[column] + block;
            float p = 0;
            for (uint32_t k = 0; k < count; k++)
                p = fmaf(factors[k], x[k], p);
            c->y[column][row] = c->y[column][row] + p;
        }
    }
}

static float affine_output(const struct matrix *w, uint32_t row, const float *x, const float *xsum)
{
    uint32_t groups = w->k / w->group;
    float acc = 0;
    for (uint32_t g = 0; g < groups; g++) {
        struct matrix_qparams q = matrix_qparams(w, row, g);
        float p = 0;
        for (uint32_t k = g * w->group; k < (g + 1) * w->group; k++)
            p = fmaf(matrix_factor(w, row, k), x[k], p);
        acc = fmaf(q.scale, p, acc);
        if (xsum)
            acc = fmaf(q.bias, xsum[g], acc);
    }
    return acc;
}

static void affine_outputs(const struct matrix *w, uint32_t row, const struct kern_columns *c)
{
    for (uint32_t column = 0; column < c->count; column++)
        c->y[column][row] =
            affine_output(w, row, c->x[column], matrix_needs_sums(w) ? c->xsum[column] : NULL);
}

static void ref_matmul(const struct matrix *w, const struct kern_columns *c, uint32_t panel_begin,
                       uint32_t panel_end)
{
    uint32_t row_end = MIN_OF(panel_end * MATRIX_PANEL, w->n);
    for (uint32_t row = panel_begin * MATRIX_PANEL; row < row_end; row++) {
        if (w->form == MATRIX_AFFINE)
            affine_outputs(w, row, c);
        else
            dense_outputs(w, row, c);
    }
}

static void ref_group_sums(float *sums, const float *x, uint32_t n, uint32_t group)
{
    for (uint32_t g = 0; g < n / group; g++) {
        float sum = 0;
        for (uint32_t i = 0; i < group; i++)
            sum += x[(size_t)g * group + i];
        sums[g] = sum;
    }
}

static double sum_of_squares(const float *x, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

static void ref_rmsnorm(float *y, const float *x, const float *w, uint32_t n, float eps)
{
    float r = (float)(1 / sqrt(sum_of_squares(x, n) / n + eps));
    for (uint32_t i = 0; i < n; i++)
        y[i] = w[i] * (x[i] * r);
}

static void ref_rmsnorm_gated(float *y, const float *x, const float *z, const float *w, uint32_t n, float eps)
{
    float r = (float)(1 / sqrt(sum_of_squares(x, n) / n + eps));
    for (uint32_t i = 0; i < n; i++)
        y[i] = w[i] * (x[i] * r) * silu(z[i]);
}

static void ref_layernorm(float *y, const float *x, const float *w, const float *b, uint32_t n, float eps)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i];
    for (uint32_t i = 0; i < n; i++)
        squares += ((double)x[i] - sum / n) * ((double)x[i] - sum / n);
    float mean = (float)(sum / n), r = (float)(1 / sqrt(squares / n + eps));
    for (uint32_t i = 0; i < n; i++)
        y[i] = b ? fmaf((x[i] - mean) * r, w[i], b[i]) : (x[i] - mean) * r * w[i];
}

static void ref_l2norm(float *y, const float *x, uint32_t n, float eps, float scale)
{
    float r = (float)(scale / sqrt(sum_of_squares(x, n) + eps));
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * r;
}

static void ref_silu_mul(float *y, const float *a, const float *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = silu(a[i]) * b[i];
}

static void ref_swiglu_clip(float *y, const float *a, const float *b, uint32_t n, float alpha, float limit)
{
    for (uint32_t i = 0; i < n; i++) {
        float gate = a[i] > limit ? limit : a[i];
        float up = b[i] > limit ? limit : b[i] < -limit ? -limit : b[i];
        y[i] = (up + 1) * (gate / (1.0f + expf(-alpha * gate)));
    }
}

static void ref_silu_clip(float *y, const float *a, const float *b, uint32_t n, float limit)
{
    for (uint32_t i = 0; i < n; i++) {
        float gate = silu(a[i]), up = b[i] > limit ? limit : b[i] < -limit ? -limit : b[i];
        y[i] = (gate > limit ? limit : gate) * up;
    }
}

static void ref_xielu(float *y, const float *x, uint32_t n, const float p[3])
{
    for (uint32_t i = 0; i < n; i++) {
        double v = x[i];
        y[i] = (float)((v > 0 ? (double)p[0] * v * v : (double)p[1] * (expm1(v) - v)) + (double)p[2] * v);
    }
}

static void ref_sigmoid_mul(float *y, const float *x, const float *g, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] / (1.0f + expf(-g[i]));
}

static void ref_decays(float *alpha, const float *a, const float *bias, float decay, float bound, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const float x = a[i] + bias[i];
        const double v = x, rate = bound != 0 ? (double)bound / (1 + exp((double)decay * v))
                                              : (double)decay * (v > 20 ? v : log1p(exp(v)));
        alpha[i] = (float)exp(rate);
    }
}

static void ref_gelu_tanh(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double v = x[i];
        y[i] = (float)(v / (1 + exp(-2 * sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
    }
}

static void ref_gelu_erf(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)(x[i] * 0.5 * erfc(-x[i] * sqrt(0.5)));
}

static void ref_relu_square(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float v = x[i] < 0 ? 0 : x[i];
        y[i] = v * v;
    }
}

static void ref_add(float *y, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void ref_add_scaled(float *y, const float *x, float s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}

static void ref_rope(float *x, const float *c, const float *s, uint32_t half)
{
    for (uint32_t j = 0; j < half; j++) {
        float low = x[j], high = x[j + half];
        x[j] = low * c[j] - high * s[j];
        x[j + half] = high * c[j] + low * s[j];
    }
}

static void ref_conv(const struct kern_conv *a, uint32_t channel_begin, uint32_t channel_end)
{
    ASSERT(a->conv_width >= 1 && a->conv_width <= 8);
    uint32_t past = a->conv_width - 1;
    for (uint32_t c = channel_begin; c < channel_end; c++) {
        float window[8]; /* the previous conv_width - 1 inputs, then this token's */
        for (uint32_t i = 0; i < past; i++)
            window[i] = a->state_in ? a->state_in[(size_t)i * a->channels + c] : 0;
        for (uint32_t t = 0; t < a->pending; t++) {
            window[past] = a->pending_u[t * a->pending_stride + c];
            memmove(window, window + 1, past * sizeof(window[0]));
        }
        for (uint32_t i = 0; a->keep_pending && i < past; i++)
            a->state_out[(size_t)i * a->channels + c] = window[i];
        for (uint32_t t = 0; t < a->tokens; t++) {
            float sum = a->bias ? a->bias[c] : 0;
            window[past] = a->u[t * a->u_stride + c];
            for (uint32_t i = 0; i < a->conv_width; i++)
                sum = fmaf(a->w[(size_t)i * a->channels + c], window[i], sum);
            a->y[t * a->y_stride + c] = a->linear ? sum : silu(sum);
            memmove(window, window + 1, past * sizeof(window[0]));
        }
        for (uint32_t i = 0; !a->keep_pending && i < past; i++)
            a->state_out[(size_t)i * a->channels + c] = window[i];
    }
}

/* One update of a column of the state, every `stride` floats a value; what q reads of it. q NULL: nothing.
 * alpha has a number every `step` floats for each row of the state; step 0: one for all. */
static float delta_update(float *state, size_t stride, uint32_t dk, const float *k, float v,
                          const float *alpha, size_t step, float beta, const float *q)
{
    float m = 0, o = 0;
    for (uint32_t i = 0; i < dk; i++) {
        state[i * stride] *= alpha[i * step];
        m = fmaf(state[i * stride], k[i], m);
    }
    float d = beta * (v - m);
    for (uint32_t i = 0; i < dk; i++) {
        state[i * stride] = fmaf(k[i], d, state[i * stride]);
        o = q ? fmaf(state[i * stride], q[i], o) : 0;
    }
    return o;
}

/* Column c: the pending updates on the state in state_out, then the tokens on it or, with keep_pending, on a
 * copy. */
static void delta_column(const struct kern_delta *a, uint32_t c)
{
    float *state = a->state_out + c;
    size_t stride = a->dv, step = a->channels;
    for (uint32_t i = 0; i < a->dk; i++)
        state[i * stride] = a->state_in ? a->state_in[(size_t)i * a->dv + c] : 0;
    for (uint32_t t = 0; t < a->pending.count; t++) {
        size_t at = t * a->pending.stride;
        delta_update(state, stride, a->dk, a->pending.k + at, a->pending.v[at + c], a->pending.alpha + at,
                     step, a->pending.beta[at], NULL);
    }
    if (a->keep_pending) {
        for (uint32_t i = 0; i < a->dk; i++)
            a->scratch[i] = state[i * stride];
        state = a->scratch;
        stride = 1;
    }
    for (uint32_t t = 0; t < a->tokens; t++)
        a->o[t * a->o_stride + c] = delta_update(state, stride, a->dk, a->k + t * a->qk_stride,
                                                 a->v[t * a->v_stride + c], a->alpha + t * a->gate_stride,
                                                 step, a->beta[t * a->gate_stride], a->q + t * a->qk_stride);
}

static void ref_delta(const struct kern_delta *a, uint32_t column_begin, uint32_t column_end)
{
    for (uint32_t c = column_begin; c < column_end; c++)
        delta_column(a, c);
}

/* One update of a column of the state, every `stride` floats a value; what c reads of it. c NULL: nothing. */
static float ssm_update(float *state, size_t stride, uint32_t n, const float *b, float x, float decay,
                        const float *c)
{
    float y = 0;
    for (uint32_t i = 0; i < n; i++) {
        state[i * stride] = fmaf(b[i], x, state[i * stride] * decay);
        y = c ? fmaf(state[i * stride], c[i], y) : 0;
    }
    return y;
}

/* Column j: the pending updates on the state in state_out, then the tokens on it or, with keep_pending, on a
 * copy. */
static void ssm_column(const struct kern_ssm *a, uint32_t j)
{
    float *state = a->state_out + j;
    size_t stride = a->p;
    for (uint32_t i = 0; i < a->n; i++)
        state[i * stride] = a->state_in ? a->state_in[(size_t)i * a->p + j] : 0;
    for (uint32_t t = 0; t < a->pending.count; t++) {
        size_t at = t * a->pending.stride;
        ssm_update(state, stride, a->n, a->pending.b + at, a->pending.dt[at] * a->pending.x[at + j],
                   a->pending.decay[at], NULL);
    }
    if (a->keep_pending) {
        for (uint32_t i = 0; i < a->n; i++)
            a->scratch[i] = state[i * stride];
        state = a->scratch;
        stride = 1;
    }
    for (uint32_t t = 0; t < a->tokens; t++) {
        size_t at = t * a->stride, gate = t * a->gate_stride;
        float y =
            ssm_update(state, stride, a->n, a->b + at, a->dt[gate] * a->x[at + j], a->decay[gate], a->c + at);
        a->y[t * a->y_stride + j] = fmaf(a->skip, a->x[at + j], y);
    }
}

static void ref_ssm(const struct kern_ssm *a, uint32_t column_begin, uint32_t column_end)
{
    ASSERT(a->tokens > 0);
    for (uint32_t j = column_begin; j < column_end; j++)
        ssm_column(a, j);
}

/* K [k_width][32] or V [32][v_width] of the page that holds `token`. */
static char *page_part(const struct kern_kv *kv, uint32_t token, size_t offset)
{
    return kv->base + kv->pages[token / PAGE_TOKENS] * kv->page_bytes + offset;
}

static void ref_kv_put(const struct kern_kv *kv, uint32_t token, const float *k, const float *v)
{
    uint32_t at = token % PAGE_TOKENS;
    kv_form_put(kv->form, page_part(kv, token, kv->k_offset), kv->k_width, at, at, PAGE_TOKENS, k);
    if (!kv->v_in_k)
        kv_form_put(kv->form, page_part(kv, token, kv->v_offset), kv->v_width, at, (size_t)at * kv->v_width,
                    1, v);
}

static float key_of(const struct kern_kv *kv, uint32_t token, uint32_t d)
{
    uint32_t at = token % PAGE_TOKENS;
    return kv_form_value(kv->form, page_part(kv, token, kv->k_offset), kv->k_width, at, at, PAGE_TOKENS, d);
}

static float value_of(const struct kern_kv *kv, uint32_t token, uint32_t d)
{
    uint32_t at = token % PAGE_TOKENS;
    if (kv->v_in_k)
        return key_of(kv, token, d);
    return kv_form_value(kv->form, page_part(kv, token, kv->v_offset), kv->v_width, at,
                         (size_t)at * kv->v_width, 1, d);
}

/* Scores of the tokens [begin, end) into ret; their maximum. */
static float segment_scores(const struct kern_kv *kv, const float *q, uint32_t begin, uint32_t end,
                            float scale, float *ret)
{
    float max = -INFINITY;
    for (uint32_t t = begin; t < end; t++) {
        float s = 0;
        for (uint32_t d = 0; d < kv->k_width; d++)
            s = fmaf(q[d], key_of(kv, t, d), s);
        s *= scale;
        ret[t - begin] = kv->cap > 0 ? kv->cap * tanhf(s / kv->cap) : s;
        max = fmaxf(max, ret[t - begin]);
    }
    return max;
}

/* A segment's values, maximum and sum into a part. */
static void segment_part(const struct kern_kv *kv, const struct kern_query *query, uint32_t begin,
                         float scale, float *part, float *scratch)
{
    uint32_t end = MIN_OF(begin + KERN_SEGMENT_TOKENS, query->kv_len), from = MAX_OF(begin, query->kv_first);
    float *p = scratch, *sums = part + KERN_ATTN_PART_SUMS(kv->v_width);
    sums[0] = segment_scores(kv, query->q, from, end, scale, p + (from - begin));
    sums[1] = 0;
    memset(part, 0, kv->v_width * sizeof(float));
    for (uint32_t t = from; t < end; t++) {
        float e = expf(p[t - begin] - sums[0]);
        sums[1] += e;
        for (uint32_t d = 0; d < kv->v_width; d++)
            part[d] = fmaf(e, value_of(kv, t, d), part[d]);
    }
}

/* One segment joined to the earlier ones: both sides are brought to the larger maximum. */
static void join_part(const struct kern_query *query, uint32_t v_width, uint32_t begin, const float *part,
                      float *max, float *sum)
{
    const float *sums = part + KERN_ATTN_PART_SUMS(v_width);
    bool joins = begin > query->kv_first;
    float larger = joins ? fmaxf(*max, sums[0]) : sums[0];
    float keep = joins ? expf(*max - larger) : 0, add = expf(sums[0] - larger);
    for (uint32_t d = 0; d < v_width; d++)
        query->out[d] = joins ? fmaf(query->out[d], keep, part[d] * add) : part[d] * add;
    *sum = joins ? fmaf(*sum, keep, sums[1] * add) : sums[1] * add;
    *max = larger;
}

/* The weights' sum, and the sink's. */
static void divide(const struct kern_query *q, uint32_t width, float max, float sum)
{
    float larger = q->sink ? fmaxf(max, *q->sink) : max, keep = 1;
    if (q->sink) {
        keep = expf(max - larger);
        sum = fmaf(sum, keep, expf(*q->sink - larger));
    }
    for (uint32_t d = 0; d < width; d++)
        q->out[d] = q->out[d] * keep / sum;
}

static void ref_attn_apart(const struct kern_kv *kv, const struct kern_query *queries, uint32_t count,
                           uint32_t begin, uint32_t end, float scale, float *parts, size_t step,
                           float *scratch)
{
    ASSERT(kv->k_width <= KERN_HEAD_MAX && kv->v_width <= KERN_HEAD_MAX);
    ASSERT(begin % KERN_SEGMENT_TOKENS == 0 && (!kv->v_in_k || kv->v_width <= kv->k_width));
    for (uint32_t i = 0; i < count; i++) {
        const struct kern_query *q = &queries[i];
        float *part = parts + i * step;
        ASSERT(q->kv_len > q->kv_first);
        for (uint32_t at = begin; at < MIN_OF(q->kv_len, end);
             at += KERN_SEGMENT_TOKENS, part += KERN_ATTN_PART(kv->v_width)) {
            if (at + KERN_SEGMENT_TOKENS > q->kv_first)
                segment_part(kv, q, at, scale, part, scratch);
        }
    }
}

static void ref_attn_join(const struct kern_query *q, uint32_t v_width, uint32_t begin, uint32_t end,
                          float *parts, float *max, float *sum)
{
    for (uint32_t at = begin; at < MIN_OF(q->kv_len, end);
         at += KERN_SEGMENT_TOKENS, parts += KERN_ATTN_PART(v_width)) {
        if (at + KERN_SEGMENT_TOKENS > q->kv_first)
            join_part(q, v_width, at, parts, max, sum);
    }
    if (q->kv_len > begin && q->kv_len <= end)
        divide(q, v_width, *max, *sum);
}

static void ref_attn_part(const struct kern_kv *kv, const struct kern_query *queries, uint32_t count,
                          uint32_t begin, uint32_t end, float scale, float *max, float *sum, float *scratch)
{
    float *part = scratch + KERN_SEGMENT_TOKENS;
    for (uint32_t i = 0; i < count; i++) {
        const struct kern_query *q = &queries[i];
        uint32_t last = MIN_OF(q->kv_len, end);
        for (uint32_t at = begin; at < last; at += KERN_SEGMENT_TOKENS) {
            uint32_t next = last - at > KERN_SEGMENT_TOKENS ? at + KERN_SEGMENT_TOKENS : end;
            ref_attn_apart(kv, q, 1, at, next, scale, part, 0, scratch);
            ref_attn_join(q, kv->v_width, at, next, part, &max[i], &sum[i]);
        }
    }
}

static void ref_attn(const struct kern_kv *kv, const struct kern_query *queries, uint32_t count, float scale,
                     float *scratch)
{
    float max, sum;
    for (uint32_t i = 0; i < count; i++)
        ref_attn_part(kv, &queries[i], 1, 0, UINT32_MAX, scale, &max, &sum, scratch);
}

void kern_ref_fill(struct kern_ops *ops)
{
    *ops = (struct kern_ops){
        .tier = "ref",
        .matmul = ref_matmul,
        .group_sums = ref_group_sums,
        .rmsnorm = ref_rmsnorm,
        .rmsnorm_gated = ref_rmsnorm_gated,
        .layernorm = ref_layernorm,
        .l2norm = ref_l2norm,
        .silu_mul = ref_silu_mul,
        .swiglu_clip = ref_swiglu_clip,
        .silu_clip = ref_silu_clip,
        .xielu = ref_xielu,
        .sigmoid_mul = ref_sigmoid_mul,
        .decays = ref_decays,
        .gelu_tanh = ref_gelu_tanh,
        .gelu_erf = ref_gelu_erf,
        .relu_square = ref_relu_square,
        .add = ref_add,
        .add_scaled = ref_add_scaled,
        .rope = ref_rope,
        .conv = ref_conv,
        .delta = ref_delta,
        .ssm = ref_ssm,
        .kv_put = ref_kv_put,
        .attn = ref_attn,
        .attn_part = ref_attn_part,
        .attn_apart = ref_attn_apart,
        .attn_join = ref_attn_join,
        .panels_few = 8,
        .panels_many = 4,
        .columns_many = 64,
    };
}
