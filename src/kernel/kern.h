/* kern.h - the table of CPU operations.
 *
 * Each operation has a plain reference and tiers; kern_ops_init() fills the table from the reference upwards
 * for the flags it is given. The process picks one tier per operation at start and keeps it.
 *
 * An output element is one fixed sequence of operations. It depends on the sequence's own tokens and absolute
 * positions, never on how many columns, sequences, chunks or threads share the step. Callers split outputs
 * among threads, never a sum but attention's, whose segments join in order (kern_attn_apart_fn). All pointers
 * are to f32, 4-byte aligned, and do not overlap unless said so. */
#ifndef PLATEAU_KERNEL_KERN_H
#define PLATEAU_KERNEL_KERN_H

#include "tensor/kv_form.h"
#include "kernel/matrix.h"
#include "kernel/quants.h"

enum {
    KERN_CPU_AVX2 = 1 << 0,     /* AVX2, FMA, F16C */
    KERN_CPU_AVX512 = 1 << 1,   /* F, BW, DQ, VL */
    KERN_CPU_VNNI = 1 << 2,     /* AVX512-VNNI, beside AVX512 */
    KERN_CPU_AMX = 1 << 3,      /* AMX-INT8 and the system's permission for tiles, beside VNNI */
    KERN_CPU_AVX_VNNI = 1 << 4, /* AVX-VNNI, beside AVX2 */
    KERN_CPU_AMX_BF16 = 1 << 5, /* AMX-BF16, beside AMX */
};
/* Flags of the tiers that this machine has and the system lets us use. The first call asks the system for
 * tiles, which it then lets every thread of the process use. */
unsigned kern_cpu_flags(void);

/* Columns of a matrix product: y[c][i] = W[i] . x[c]. Pointers per column, so that experts gather their
 * tokens and results scatter without copies. `xsum[c]`: group sums of x[c] for affine matrices, else
 * unused. */
struct kern_columns {
    uint32_t count;
    const float *const *x;
    const float *const *xsum;
    float *const *y;
};

/* Rows of panels [panel_begin, panel_end) of every column. */
typedef void kern_matmul_fn(const struct matrix *w, const struct kern_columns *c, uint32_t panel_begin,
                            uint32_t panel_end);
/* sums[g] = x[g group] + ...: sequential f32 sum inside each group. n % group == 0. */
typedef void kern_group_sums_fn(float *sums, const float *x, uint32_t n, uint32_t group);

/* Quantises values [from, to) of x into `row` (quants.h): whole groups. */
typedef void kern_quantise_fn(void *row, const struct quants *q, const float *x, uint32_t from, uint32_t to);
/* Columns of an integer product, with a MATRIX_QUADS matrix: y[c][i] = W[i] . x[c], x[c] a quantised row. */
struct kern_int_columns {
    uint32_t count, bytes; /* bytes of a value: 1 or 2 */
    const void *const *x;
    float *const *y;
};
/* Rows of panels [panel_begin, panel_end) of every column. */
typedef void kern_int_matmul_fn(const struct matrix *w, const struct kern_int_columns *c,
                                uint32_t panel_begin, uint32_t panel_end);

/* Rounds values [from, to) of x to BF16: to the nearest, ties to even; a NaN stays one. */
typedef void kern_round_bf16_fn(uint16_t *row, const float *x, uint32_t from, uint32_t to);
/* Columns of a product in BF16, with a MATRIX_PAIRS matrix: y[c][i] = W[i] . x[c], x[c] a rounded row. */
struct kern_bf16_columns {
    uint32_t count;
    const uint16_t *const *x;
    float *const *y;
};
/* Rows of panels [panel_begin, panel_end) of every column. */
typedef void kern_bf16_matmul_fn(const struct matrix *w, const struct kern_bf16_columns *c,
                                 uint32_t panel_begin, uint32_t panel_end);

/* y[i] = w[i] * (x[i] * r), r = 1 / sqrt(mean(x^2) + eps). y may be x. */
typedef void kern_rmsnorm_fn(float *y, const float *x, const float *w, uint32_t n, float eps);
/* y[i] = w[i] * (x[i] * r) * silu(z[i]): the delta net's gated norm. y may be x. */
typedef void kern_rmsnorm_gated_fn(float *y, const float *x, const float *z, const float *w, uint32_t n,
                                   float eps);
/* y[i] = fma((x[i] - mean) * r, w[i], b[i]), r = 1 / sqrt(mean((x - mean)^2) + eps). Without b (NULL) the
 * last step is a product. y may be x. */
typedef void kern_layernorm_fn(float *y, const float *x, const float *w, const float *b, uint32_t n,
                               float eps);
/* y = x * (scale / sqrt(sum(x^2) + eps)). y may be x. */
typedef void kern_l2norm_fn(float *y, const float *x, uint32_t n, float eps, float scale);
/* y = silu(a) * b. y may be a or b. */
typedef void kern_silu_mul_fn(float *y, const float *a, const float *b, uint32_t n);
/* y = (clip(b, -limit, limit) + 1) * (g * sigmoid(alpha * g)), g = min(a, limit). y may be a or b. */
typedef void kern_swiglu_clip_fn(float *y, const float *a, const float *b, uint32_t n, float alpha,
                                 float limit);
/* y = min(silu(a), limit) * clip(b, -limit, limit). y may be a or b. */
typedef void kern_silu_clip_fn(float *y, const float *a, const float *b, uint32_t n, float limit);
/* y = p[0] x^2 + p[2] x for x > 0, else p[1] (e^x - 1 - x) + p[2] x: xIELU. y may be x. */
typedef void kern_xielu_fn(float *y, const float *x, uint32_t n, const float p[3]);
/* y = x * sigmoid(g). y may be x. */
typedef void kern_sigmoid_mul_fn(float *y, const float *x, const float *g, uint32_t n);
/* alpha = exp(decay softplus(a + bias)); with a bound other than 0 exp(bound sigmoid(-decay (a + bias))):
 * decays of channels of the delta rule. alpha may be a. */
typedef void kern_decays_fn(float *alpha, const float *a, const float *bias, float decay, float bound,
                            uint32_t n);
/* y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). y may be x. */
typedef void kern_gelu_tanh_fn(float *y, const float *x, uint32_t n);
/* y = x / 2 * (1 + erf(x / sqrt(2))). y may be x. */
typedef void kern_gelu_erf_fn(float *y, const float *x, uint32_t n);
/* y = max(x, 0)^2. y may be x. */
typedef void kern_relu_square_fn(float *y, const float *x, uint32_t n);
/* y += x. */
typedef void kern_add_fn(float *y, const float *x, uint32_t n);
/* y = fma(s, x, y). */
typedef void kern_add_scaled_fn(float *y, const float *x, float s, uint32_t n);
/* Halves layout, in place: (x[j], x[j+half]) -> (x[j] c[j] - x[j+half] s[j], x[j+half] c[j] + x[j] s[j]). */
typedef void kern_rope_fn(float *x, const float *c, const float *s, uint32_t half);

/* Causal depthwise convolution over the channels [channel_begin, channel_end), multiples of 16 but for the
 * end. conv_width <= 8; the sum begins with the bias (0 without one); order: i ascending, fma:
 *   y[t][c] = f(bias[c] + sum over i < conv_width of w[i][c] * u[t - conv_width + 1 + i][c]).
 * f is SiLU, or with `linear` nothing.
 * u before the first token comes from state_in, the previous conv_width - 1 raw inputs
 * [conv_width - 1][channels] (NULL: zeros). state_out (may be state_in) gets the last conv_width - 1 of them.
 * Inputs that were pending: state_in is followed by pending_u, `pending` raw inputs, before the first token.
 * With `keep_pending` state_out gets the last conv_width - 1 inputs before the first token instead of those
 * up to the last. */
struct kern_conv {
    float *y;          /* [tokens][y_stride] */
    const float *u;    /* [tokens][u_stride] */
    const float *w;    /* [conv_width][channels] */
    const float *bias; /* [channels]; NULL: none */
    const float *state_in;
    float *state_out;
    const float *pending_u; /* [pending][pending_stride]; not read with pending == 0 */
    uint32_t tokens, channels, conv_width, pending;
    size_t y_stride, u_stride, pending_stride;
    bool keep_pending, linear;
};
typedef void kern_conv_fn(const struct kern_conv *a, uint32_t channel_begin, uint32_t channel_end);

/* The gated delta rule of one value head, as the recurrence (contract 2.7, step 6), token after token. It
 * computes the columns [column_begin, column_end) of the state S [dk][dv], multiples of 16 but for the end:
 *   S *= alpha[t]; m = S^T k[t]; d = beta[t] (v[t] - m); S += k[t] d^T; o[t] = S^T q[t].
 * alpha[t] is one number, or with `channels` (contract 10.9) dk numbers, one for each row of S. dk is serial,
 * each column of S on its own. Pending updates come first, without an output. With
 * `keep_pending` (tokens > 0) state_out gets the state after those, and the tokens leave no state: the caller
 * then holds their k, v, alpha and beta. */
struct kern_delta_pending {
    const float *k, *v, *alpha, *beta; /* [count][stride]: of this value head, as in kern_delta */
    uint32_t count;
    size_t stride;
};
/* Scratch of `keep_pending`: KERN_DELTA_SCRATCH(dk) floats. */
#define KERN_DELTA_COLUMNS     64
#define KERN_DELTA_SCRATCH(dk) ((size_t)(dk)*KERN_DELTA_COLUMNS)
struct kern_delta {
    const float *q, *k;        /* [tokens][qk_stride] of this value head's key head: dk values */
    const float *v;            /* [tokens][v_stride]: dv values */
    const float *alpha, *beta; /* [tokens][gate_stride]: one value; with `channels` alpha has dk */
    float *o;                  /* [tokens][o_stride]: dv values */
    const float *state_in;     /* [dk][dv]; NULL: zeros */
    float *state_out;          /* may be state_in */
    struct kern_delta_pending pending;
    float *scratch; /* with keep_pending */
    uint32_t tokens, dk, dv;
    size_t qk_stride, v_stride, gate_stride, o_stride;
    bool keep_pending, channels;
};
typedef void kern_delta_fn(const struct kern_delta *a, uint32_t column_begin, uint32_t column_end);

/* The state space recurrence of one head (contract 10.5, step 5), token after token. It computes the columns
 * [column_begin, column_end) of the state S [n][p], multiples of 16 but for the end:
 *   S = decay[t] S + b[t] (dt[t] x[t])^T; y[t] = S^T c[t] + skip x[t].
 * n is serial, each column of S on its own. Pending updates come first, without an output. With
 * `keep_pending` state_out gets the state after those, and the tokens leave no state: the caller then holds
 * their x, b, dt and decay. tokens > 0. */
struct kern_ssm_pending {
    const float *x, *b, *dt, *decay; /* [count][stride]: of this head, as in kern_ssm */
    uint32_t count;
    size_t stride;
};
/* Scratch of `keep_pending`: KERN_SSM_SCRATCH(n) floats. */
#define KERN_SSM_COLUMNS    64
#define KERN_SSM_SCRATCH(n) ((size_t)(n)*KERN_SSM_COLUMNS)
struct kern_ssm {
    const float *x;          /* [tokens][stride]: p values of the head */
    const float *b, *c;      /* [tokens][stride]: n values of its group */
    const float *dt, *decay; /* [tokens][gate_stride]: one value */
    float *y;                /* [tokens][y_stride]: p values */
    const float *state_in;   /* [n][p]; NULL: zeros */
    float *state_out;        /* may be state_in */
    struct kern_ssm_pending pending;
    float *scratch; /* with keep_pending */
    float skip;
    uint32_t tokens, n, p;
    size_t stride, gate_stride, y_stride;
    bool keep_pending;
};
typedef void kern_ssm_fn(const struct kern_ssm *a, uint32_t column_begin, uint32_t column_end);

/* K and V of one KV head of one layer, in pages of 32 tokens. A page has K transposed [k_width][32] at
 * `k_offset` bytes and V [32][v_width] at `v_offset`, each in `form`, which int8's scales [32] follow. It
 * begins at base + index * page_bytes. With `v_in_k` V is the first v_width values of K, stored once, and
 * nothing lies at `v_offset`. */
#define KERN_SEGMENT_TOKENS 256
#define KERN_HEAD_MAX       640
struct kern_kv {
    char *base;
    size_t page_bytes;
    const uint32_t *pages; /* the sequence's table: page of token t is pages[t / 32] */
    enum kv_form form;
    size_t k_offset, v_offset;
    uint32_t k_width, v_width; /* <= KERN_HEAD_MAX */
    bool v_in_k;               /* v_width <= k_width */
    float cap;                 /* a scaled score s becomes cap * tanh(s / cap); 0: none */
};
/* Stores one token's K and V head as kv_form.h says; v is not read with `v_in_k`. The same in all tiers. */
typedef void kern_kv_put_fn(const struct kern_kv *kv, uint32_t token, const float *k, const float *v);

/* One query head at one position: sees the keys of tokens [kv_first, kv_len), one at least. Pages that no
 * query of a call sees are not read; K and V of tokens that one of them sees are finite. */
struct kern_query {
    const float *q; /* k_width values */
    float *out;     /* v_width values */
    uint32_t kv_first, kv_len;
    const float *sink; /* one more score, whose weight is dropped after the softmax; NULL: none */
};
/* Softmax attention of `count` queries over one KV head. Keys are read in segments of 256 tokens at absolute
 * positions. Of each segment: scores (dot over k_width, serial, fma; times scale; capped), their maximum,
 * exponentials, their sum and the weighted values (serial over tokens). Segments merge in order. The same
 * chain for any count. count is any; scratch holds KERN_ATTN_SCRATCH floats, with `v_in_k`
 * KERN_ATTN_SCRATCH_V_IN_K. */
#define KERN_ATTN_SCRATCH        (16 * (KERN_SEGMENT_TOKENS + 256 + 16))
#define KERN_ATTN_SCRATCH_V_IN_K (KERN_ATTN_SCRATCH + 132 * KERN_SEGMENT_TOKENS)
typedef void kern_attn_fn(const struct kern_kv *kv, const struct kern_query *queries, uint32_t count,
                          float scale, float *scratch);
/* As `kern_attn_fn`, but for the segments from token `begin` to before `end` alone. `begin` is a multiple of
 * a segment; `end` is one too, or is not before the queries' kv_len. out, max[i] and sum[i] of query i carry
 * the result of the earlier segments; with begin 0 they need hold nothing. With the last segment out becomes
 * the result: bit for bit that of kern_attn_fn, however the tokens are cut. */
typedef void kern_attn_part_fn(const struct kern_kv *kv, const struct kern_query *queries, uint32_t count,
                               uint32_t begin, uint32_t end, float scale, float *max, float *sum,
                               float *scratch);
/* As `kern_attn_part_fn`, but in two steps, so that several workers may have segments of one query. The first
 * leaves each segment's own results: those of query i and of the segment from `at` on lie at parts + i * step
 * + (at - begin) / KERN_SEGMENT_TOKENS * KERN_ATTN_PART(v_width). A segment that a query does not see is left
 * out. `end` as in kern_attn_part_fn. */
#define KERN_ATTN_PART(v_width)      (KERN_ATTN_PART_SUMS(v_width) + 16)
#define KERN_ATTN_PART_SUMS(v_width) ((size_t)ROUND_UP((v_width), 16u)) /* values before maximum and sum */
typedef void kern_attn_apart_fn(const struct kern_kv *kv, const struct kern_query *queries, uint32_t count,
                                uint32_t begin, uint32_t end, float scale, float *parts, size_t step,
                                float *scratch);
/* The second joins one query's segments [begin, end) in order; out, max and sum as in kern_attn_part_fn, and
 * the same bits. */
typedef void kern_attn_join_fn(const struct kern_query *query, uint32_t v_width, uint32_t begin, uint32_t end,
                               float *parts, float *max, float *sum);

struct kern_ops {
    const char *tier; /* tier of the matrix products: "ref", "avx2", "avx512" */
    kern_matmul_fn *matmul;
    kern_group_sums_fn *group_sums;
    /* The integer products: "ref", "avx2", "avxvnni", "vnni" or "amx". Results do not depend on the tier. The
     * two functions belong together. */
    const char *int_tier;
    kern_quantise_fn *quantise;
    kern_int_matmul_fn *int_matmul;
    /* The products in BF16: "ref", "avx2", "avx512" or "amx". Results do not depend on the tier. */
    const char *bf16_tier;
    kern_round_bf16_fn *round_bf16;
    kern_bf16_matmul_fn *bf16_matmul;
    kern_rmsnorm_fn *rmsnorm;
    kern_rmsnorm_gated_fn *rmsnorm_gated;
    kern_layernorm_fn *layernorm;
    kern_l2norm_fn *l2norm;
    kern_silu_mul_fn *silu_mul;
    kern_swiglu_clip_fn *swiglu_clip;
    kern_silu_clip_fn *silu_clip;
    kern_xielu_fn *xielu;
    kern_sigmoid_mul_fn *sigmoid_mul;
    kern_decays_fn *decays;
    kern_gelu_tanh_fn *gelu_tanh;
    kern_gelu_erf_fn *gelu_erf;
    kern_relu_square_fn *relu_square;
    kern_add_fn *add;
    kern_add_scaled_fn *add_scaled;
    kern_rope_fn *rope;
    kern_conv_fn *conv;
    kern_delta_fn *delta;
    kern_ssm_fn *ssm;
    kern_kv_put_fn *kv_put;
    kern_attn_fn *attn;
    kern_attn_part_fn *attn_part;
    kern_attn_apart_fn *attn_apart;
    kern_attn_join_fn *attn_join;
    /* Tile sizes the tier wants: how many panels one ticket of a product should take for few (<= 16) and for
     * many columns, and how many columns. */
    uint32_t panels_few, panels_many, columns_many;
    uint32_t int_panels_many, int_columns_many; /* integer products with many columns; few columns take
                                                 * panels_few */
    uint32_t bf16_panels_many, bf16_columns_many;
};

/* Fills the table with the best tiers that `cpu_flags` allows; 0 gives the reference. */
void kern_ops_init(struct kern_ops *ops, unsigned cpu_flags);

#endif
