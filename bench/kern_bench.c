/* kern_bench.c - the kernels' share of what this machine can do.
 *
 * Three yardsticks first: reading memory with one and with all workers, and the peak of f32 fused
 * multiply-adds. Then decode (1 to 16 columns) as bytes of weights per second against reading; prefill (512
 * columns) as operations per second against the peak; and the cost of the other operations. Every figure is
 * the median of its repeats. A share is the median of pairs: each pass of a product follows a pass of its
 * yardstick, so that other work on the machine slows both. int8 and int16 are integer products. Their time is
 * without quantising, which a line of its own gives. Their prefill has a second share, of the peak of the
 * unit that they use: AMX, or VNNI. An int16 operation is two of that unit's.
 *
 * Forms that are not MLX's have a line more: their bytes/s over those of the affine form of equal bits, in
 * pairs likewise. A run of everything has those of one column alone.
 *
 *     kern_bench [TEXT]     TEXT: only the products whose name has it; "over": only those ratios; "rows":
 *                           only the other operations
 *
 * The weights are one matrix larger than any cache, so that a product streams from memory; a first line warns
 * when the machine has too little memory for that. All bytes are 0x3c: every form reads them as ordinary
 * numbers. The time of these operations does not depend on the values. */
#include "tile_peak.h"
#include "yardstick_lines.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/median.h"
#include "kernel/kern.h"
#include "kernel/matrix.h"
#include "kernel/quants.h"
#include "kernel/workers.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K = 4096, COLUMNS_MAX = 512, PREFILL_ROWS = 4096 };

struct bench {
    struct workers *workers;
    struct kern_ops ops;
    char *weights; /* the yardsticks' memory: all 0x3c */
    size_t bytes;
    float *values; /* room for every column's input and output */
    char *rows;    /* and for its quantised row */
    size_t row_bytes;
    struct yardsticks yard;
};

typedef void timed_fn(struct bench *b, void *arg);

struct call {
    struct bench *bench;
    timed_fn *fn;
    void *arg;
};

static void call_once(void *arg)
{
    const struct call *c = arg;
    c->fn(c->bench, c->arg);
}

static double seconds(struct bench *b, timed_fn *fn, void *arg)
{
    struct call c = {b, fn, arg};
    return yardsticks_seconds(call_once, &c);
}

/* Products. */

struct form {
    const char *name;
    enum matrix_form form;
    uint32_t bits, group;
    uint32_t bytes; /* bytes of an input's value in an integer product */
    /* Forms that are not MLX's: */
    enum matrix_form qparams; /* else BF16 */
    enum code_map codes;
    enum bias_kind biases;
    uint32_t super;
};

static const struct form forms[] = {
    {"bf16", MATRIX_BF16, 16, 0, 0},
    {"bf16 rounded", MATRIX_PAIRS, 16, 0, 2},
    {"f16", MATRIX_F16, 16, 0, 0},
    {"f32", MATRIX_F32, 32, 0, 0},
    {"8 bits g64", MATRIX_AFFINE, 8, 64, 0},
    {"8 bits g64 int16", MATRIX_QUADS, 8, 64, 2},
    {"8 bits g64 int8", MATRIX_QUADS, 8, 64, 1},
    {"8 bits g32", MATRIX_AFFINE, 8, 32, 0},
    {"8 bits g32 int16", MATRIX_QUADS, 8, 32, 2},
    {"6 bits g64", MATRIX_AFFINE, 6, 64, 0},
    {"6 bits g64 int16", MATRIX_QUADS, 6, 64, 2},
    {"5 bits g64", MATRIX_AFFINE, 5, 64, 0},
    {"5 bits g64 int16", MATRIX_QUADS, 5, 64, 2},
    {"4 bits g64", MATRIX_AFFINE, 4, 64, 0},
    {"4 bits g64 int16", MATRIX_QUADS, 4, 64, 2},
    {"4 bits g64 int8", MATRIX_QUADS, 4, 64, 1},
    {"4 bits g32", MATRIX_AFFINE, 4, 32, 0},
    {"4 bits g32 int16", MATRIX_QUADS, 4, 32, 2},
    {"3 bits g64", MATRIX_AFFINE, 3, 64, 0},
    {"3 bits g64 int16", MATRIX_QUADS, 3, 64, 2},
    {"2 bits g64", MATRIX_AFFINE, 2, 64, 0},
    {"2 bits g64 int16", MATRIX_QUADS, 2, 64, 2},
    {"fp8", MATRIX_AFFINE, 8, 128, 0, MATRIX_F32, CODES_E4M3, BIASES_CENTRED, 0},
    {"mxfp8", MATRIX_AFFINE, 8, 32, 0, MATRIX_E8M0, CODES_E4M3, BIASES_CENTRED, 0},
    {"mxfp4", MATRIX_AFFINE, 4, 32, 0, MATRIX_E8M0, CODES_E2M1, BIASES_CENTRED, 0},
    {"mxfp4 int16", MATRIX_QUADS, 4, 32, 2, MATRIX_E8M0, CODES_E2M1, BIASES_CENTRED, 0},
    {"nvfp4", MATRIX_AFFINE, 4, 16, 0, MATRIX_E4M3, CODES_E2M1, BIASES_CENTRED, 0},
    {"nvfp4 int16", MATRIX_QUADS, 4, 16, 2, MATRIX_E4M3, CODES_E2M1, BIASES_CENTRED, 0},
    {"gptq 8 g128 int16", MATRIX_QUADS, 8, 128, 2, MATRIX_F16, CODES_WHOLE, BIASES_ZEROS, 0},
    {"gptq 4 g128 int16", MATRIX_QUADS, 4, 128, 2, MATRIX_F16, CODES_WHOLE, BIASES_ZEROS, 0},
    {"Q8_0 int16", MATRIX_QUADS, 8, 32, 2, MATRIX_F16, CODES_WHOLE, BIASES_CENTRED, 0},
    {"Q5_0 int16", MATRIX_QUADS, 5, 32, 2, MATRIX_F16, CODES_WHOLE, BIASES_CENTRED, 0},
    {"Q5_1 int16", MATRIX_QUADS, 5, 32, 2, MATRIX_F16, CODES_WHOLE, BIASES_STORED, 0},
    {"Q4_0", MATRIX_AFFINE, 4, 32, 0, MATRIX_F16, CODES_WHOLE, BIASES_CENTRED, 0},
    {"Q4_0 int16", MATRIX_QUADS, 4, 32, 2, MATRIX_F16, CODES_WHOLE, BIASES_CENTRED, 0},
    {"Q4_1 int16", MATRIX_QUADS, 4, 32, 2, MATRIX_F16, CODES_WHOLE, BIASES_STORED, 0},
    {"Q6_K", MATRIX_AFFINE, 6, 16, 0, MATRIX_I8, CODES_WHOLE, BIASES_CENTRED, 256},
    {"Q6_K int16", MATRIX_QUADS, 6, 16, 2, MATRIX_I8, CODES_WHOLE, BIASES_CENTRED, 256},
    {"Q5_K int16", MATRIX_QUADS, 5, 32, 2, MATRIX_I8, CODES_WHOLE, BIASES_STORED, 256},
    {"Q4_K", MATRIX_AFFINE, 4, 32, 0, MATRIX_I8, CODES_WHOLE, BIASES_STORED, 256},
    {"Q4_K int16", MATRIX_QUADS, 4, 32, 2, MATRIX_I8, CODES_WHOLE, BIASES_STORED, 256},
    {"Q3_K", MATRIX_AFFINE, 3, 16, 0, MATRIX_I8, CODES_WHOLE, BIASES_CENTRED, 256},
    {"Q3_K int16", MATRIX_QUADS, 3, 16, 2, MATRIX_I8, CODES_WHOLE, BIASES_CENTRED, 256},
    {"Q2_K", MATRIX_AFFINE, 2, 16, 0, MATRIX_I8, CODES_WHOLE, BIASES_STORED, 256},
    {"Q2_K int16", MATRIX_QUADS, 2, 16, 2, MATRIX_I8, CODES_WHOLE, BIASES_STORED, 256},
    {"IQ1_M", MATRIX_AFFINE, 4, 16, 0, MATRIX_ODD4, CODES_IQ1, BIASES_CENTRED, 256},
    {"IQ2_XXS", MATRIX_AFFINE, 4, 32, 0, MATRIX_ODD4, CODES_IQ2_XXS, BIASES_CENTRED, 256},
    {"IQ2_S", MATRIX_AFFINE, 4, 16, 0, MATRIX_ODD4, CODES_IQ2_S, BIASES_CENTRED, 256},
    {"IQ3_XXS", MATRIX_AFFINE, 4, 32, 0, MATRIX_ODD4, CODES_IQ3_XXS, BIASES_CENTRED, 256},
    {"IQ3_S", MATRIX_AFFINE, 4, 32, 0, MATRIX_ODD4, CODES_IQ3_S, BIASES_CENTRED, 256},
    {"IQ4_NL", MATRIX_AFFINE, 4, 32, 0, MATRIX_F16, CODES_IQ4, BIASES_CENTRED, 0},
    {"IQ4_NL int16", MATRIX_QUADS, 4, 32, 2, MATRIX_F16, CODES_IQ4, BIASES_CENTRED, 0},
    {"IQ4_XS", MATRIX_AFFINE, 4, 32, 0, MATRIX_I8, CODES_IQ4, BIASES_CENTRED, 256},
    {"IQ4_XS int16", MATRIX_QUADS, 4, 32, 2, MATRIX_I8, CODES_IQ4, BIASES_CENTRED, 256},
};

/* Whether the matrix has BF16 scales and biases, as MLX writes them. */
static bool is_plain(const struct form *f)
{
    return f->qparams == MATRIX_BF16 && f->codes == CODES_WHOLE && f->biases == BIASES_STORED;
}

/* A matrix of `panels` panels of K columns laid over the weights. */
static struct matrix matrix_of(const struct bench *b, const struct form *f, uint32_t panels)
{
    struct matrix m = {.form = f->form, .n = panels * MATRIX_PANEL, .k = K, .experts = 1, .data = b->weights};
    if (f->group) {
        m.bits = f->bits;
        m.group = f->group;
        m.qparams = f->qparams;
        m.codes = f->codes;
        m.bias_kind = f->biases;
        m.super = f->super;
    }
    ASSERT(panels * matrix_panel_bytes(&m) <= b->bytes);
    return m;
}

/* Bytes that a product reads for one panel: values, scales and biases. */
static size_t panel_bytes(const struct bench *b, const struct form *f)
{
    struct matrix m = matrix_of(b, f, 1);
    return matrix_panel_bytes(&m);
}

struct product {
    struct bench *bench;
    struct matrix matrix;
    uint32_t columns, panels_step, columns_step, column_tiles;
    uint32_t bytes; /* 0: of f32 */
    const float *x[COLUMNS_MAX], *xsum[COLUMNS_MAX];
    const void *rows[COLUMNS_MAX];
    float *y[COLUMNS_MAX];
};

static void product_tile(void *arg, uint32_t tile, uint32_t worker)
{
    struct product *p = arg;
    uint32_t column = tile % p->column_tiles * p->columns_step,
             panel = tile / p->column_tiles * p->panels_step;
    uint32_t panels = matrix_panels(&p->matrix);
    uint32_t count = MIN_OF(p->columns_step, p->columns - column),
             panel_end = MIN_OF(panel + p->panels_step, panels);
    (void)worker;
    if (p->matrix.form == MATRIX_PAIRS) {
        struct kern_bf16_columns c = {count, (const uint16_t *const *)p->rows + column, p->y + column};
        p->bench->ops.bf16_matmul(&p->matrix, &c, panel, panel_end);
    } else if (p->bytes) {
        struct kern_int_columns c = {count, p->bytes, p->rows + column, p->y + column};
        p->bench->ops.int_matmul(&p->matrix, &c, panel, panel_end);
    } else {
        struct kern_columns c = {count, p->x + column, p->xsum + column, p->y + column};
        p->bench->ops.matmul(&p->matrix, &c, panel, panel_end);
    }
}

static void product_all(struct bench *b, void *arg)
{
    struct product *p = arg;
    workers_run(b->workers, product_tile, p,
                DIV_UP(matrix_panels(&p->matrix), p->panels_step) * p->column_tiles);
}

/* Inputs are rows of the same K values, and every column has an output of its own. */
static struct product product_of(struct bench *b, const struct form *f, const struct matrix *m,
                                 uint32_t columns)
{
    struct product p = {.bench = b, .matrix = *m, .columns = columns, .bytes = f->bytes};
    bool few = columns <= 16;
    p.panels_step = b->ops.panels_few;
    p.columns_step = columns;
    if (!few) {
        bool pairs = f->form == MATRIX_PAIRS;
        p.panels_step = pairs      ? b->ops.bf16_panels_many
                        : f->bytes ? b->ops.int_panels_many
                                   : b->ops.panels_many;
        p.columns_step = pairs      ? b->ops.bf16_columns_many
                         : f->bytes ? b->ops.int_columns_many
                                    : b->ops.columns_many;
    }
    p.column_tiles = DIV_UP(columns, p.columns_step);
    float *xsum = b->values + (size_t)COLUMNS_MAX * K, *y = xsum + K;
    for (uint32_t c = 0; c < columns; c++) {
        p.x[c] = b->values + (size_t)c * K;
        p.rows[c] = b->rows + c * b->row_bytes;
        p.xsum[c] = xsum;
        p.y[c] = y + (size_t)c * m->n;
    }
    for (uint32_t c = 0; f->form == MATRIX_PAIRS && c < columns; c++)
        b->ops.round_bf16((uint16_t *)(void *)(b->rows + c * b->row_bytes), p.x[c], 0, K);
    if (f->form == MATRIX_QUADS) {
        const struct quants q = {K, f->group, f->bytes};
        ASSERT(quants_bytes(&q) <= b->row_bytes);
        for (uint32_t c = 0; c < columns; c++)
            b->ops.quantise(b->rows + c * b->row_bytes, &q, p.x[c], 0, K);
    }
    return p;
}

struct share {
    double seconds;   /* seconds of the product */
    double yardstick; /* seconds of the yardstick's pass beside it, over those */
};

typedef double yardstick_fn(const struct yardsticks *y);

static double integers_once(const struct yardsticks *y)
{
    return peak_once(y, peak_of_integers(y));
}

/* Medians of pairs. */
static struct share product_share(struct product *p, yardstick_fn *yardstick)
{
    enum { PAIRS = 7 };
    double times[PAIRS], ratios[PAIRS];
    product_all(p->bench, p);
    for (uint32_t i = 0; i < PAIRS; i++) {
        double beside = yardstick(&p->bench->yard);
        uint64_t begin = clock_now_ns();
        product_all(p->bench, p);
        times[i] = (double)(clock_now_ns() - begin) / (double)NS_PER_S;
        ratios[i] = beside / times[i];
    }
    return (struct share){median_of(times, PAIRS), median_of(ratios, PAIRS)};
}

static void decode(struct bench *b, const struct form *f)
{
    static const uint32_t columns[] = {1, 2, 4, 8, 16};
    uint32_t panels = (uint32_t)(b->bytes / panel_bytes(b, f));
    struct matrix m = matrix_of(b, f, panels);
    double bytes = (double)(panels * panel_bytes(b, f));
    printf("%-17s", f->name);
    for (uint32_t i = 0; i < COUNT_OF(columns); i++) {
        struct product p = product_of(b, f, &m, columns[i]);
        struct share s = product_share(&p, yardsticks_read_once);
        printf("  %6.1f %3.0f%%", bytes / s.seconds * 1e-9, 100 * s.yardstick * bytes / (double)b->bytes);
        fflush(stdout);
    }
    struct matrix small = matrix_of(b, f, PREFILL_ROWS / MATRIX_PANEL);
    struct product p = product_of(b, f, &small, COLUMNS_MAX);
    struct share s = product_share(&p, yardsticks_fma_once);
    double flop = 2.0 * K * PREFILL_ROWS * COLUMNS_MAX;
    printf("  %7.1f", flop / s.seconds * 1e-9);
    if (b->yard.peak_flop_s > 0)
        printf(" %3.0f%%", 100 * s.yardstick * flop / yardsticks_fma_flop(&b->yard));
    enum peak_unit unit = peak_of_integers(&b->yard);
    if (f->bytes && unit != PEAK_NONE) {
        s = product_share(&p, integers_once);
        printf(" %3.0f%%", 100 * s.yardstick * flop * f->bytes / peak_operations(&b->yard, unit));
    }
    printf("\n");
    fflush(stdout);
}

/* The affine form of equal bits, as MLX has it, in the same kind of product. */
static const struct form *affine_of(const struct form *f, uint32_t bytes)
{
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        const struct form *g = &forms[i];
        if (is_plain(g) && g->group == 64 && g->bits == f->bits && g->bytes == bytes)
            return g;
    }
    ASSERT(false);
    return NULL;
}

static double once(struct product *p)
{
    uint64_t begin = clock_now_ns();
    product_all(p->bench, p);
    return (double)(clock_now_ns() - begin);
}

/* Medians of pairs: bytes/s of f over those of g, with `columns`. */
static double ratio(struct bench *b, const struct form *f, const struct form *g, uint32_t columns)
{
    enum { PAIRS = 9 };
    double ratios[PAIRS];
    const uint32_t panels[2] = {(uint32_t)(b->bytes / panel_bytes(b, f)),
                                (uint32_t)(b->bytes / panel_bytes(b, g))};
    struct matrix m[2] = {matrix_of(b, f, panels[0]), matrix_of(b, g, panels[1])};
    const double bytes = (double)(panels[0] * panel_bytes(b, f)) / (double)(panels[1] * panel_bytes(b, g));
    struct product q = product_of(b, g, &m[1], columns);
    once(&q);
    for (uint32_t i = 0; i < PAIRS; i++) {
        /* Rows are quantised as the product takes them: both use the same memory. */
        q = product_of(b, g, &m[1], columns);
        double other = once(&q);
        struct product p = product_of(b, f, &m[0], columns);
        ratios[i] = other / once(&p) * bytes;
    }
    return median_of(ratios, PAIRS);
}

/* With the first `count` numbers of columns. */
static void over_affine(struct bench *b, const struct form *f, uint32_t bytes, uint32_t count)
{
    static const uint32_t columns[] = {1, 2, 4, 8, 16};
    ASSERT(count <= COUNT_OF(columns));
    const struct form *g = affine_of(f, bytes);
    printf("%-17s", f->name);
    for (uint32_t i = 0; i < count; i++) {
        printf("  %11.2f", ratio(b, f, g, columns[i]));
        fflush(stdout);
    }
    printf("  %s\n", g->name);
}

static bool has_affine(const struct form *f)
{
    return f->group && !is_plain(f);
}

/* The other operations: on one worker, so that a figure is one core's. */

struct attention {
    struct kern_kv kv;
    struct kern_query queries[256];
    uint32_t count;
    float scratch[KERN_ATTN_SCRATCH_V_IN_K];
};

struct attention_shape {
    uint32_t k_width, v_width;
    bool v_in_k;
    uint32_t heads;
    enum kv_form form;
};

static void attention_once(struct bench *b, void *arg)
{
    struct attention *a = arg;
    b->ops.attn(&a->kv, a->queries, a->count, 0.01f, a->scratch);
}

/* Query heads of one KV head, for the last `tokens` of `len`. */
static void attention(struct bench *b, struct attention_shape h, uint32_t tokens, uint32_t len)
{
    static struct attention a;
    uint32_t pages = DIV_UP(len, PAGE_TOKENS);
    size_t k_bytes = kv_form_bytes(h.form, h.k_width);
    size_t token = (k_bytes + (h.v_in_k ? 0 : kv_form_bytes(h.form, h.v_width))) / PAGE_TOKENS;
    uint32_t *table = calloc(pages, sizeof *table);
    ASSERT(table && h.heads * tokens <= COUNT_OF(a.queries) && pages * PAGE_TOKENS * token <= b->bytes);
    for (uint32_t i = 0; i < pages; i++)
        table[i] = i ^ 1; /* not in order */
    table[pages - 1] = pages - 1;
    a.kv = (struct kern_kv){.base = b->weights,
                            .page_bytes = PAGE_TOKENS * token,
                            .pages = table,
                            .form = h.form,
                            .v_offset = k_bytes,
                            .k_width = h.k_width,
                            .v_width = h.v_width,
                            .v_in_k = h.v_in_k};
    a.count = h.heads * tokens;
    double seen = 0;
    for (uint32_t i = 0; i < a.count; i++) {
        uint32_t kv_len = len - tokens + 1 + i / h.heads;
        a.queries[i] = (struct kern_query){
            .q = b->values, .out = b->values + (size_t)K + i * h.v_width, .kv_len = kv_len};
        seen += kv_len;
    }
    double s = seconds(b, attention_once, &a), flop_s = seen * (h.k_width + h.v_width) * 2 / s;
    printf("attention %-4s %3u %3u %2u heads x %-2u tokens at %-6u %9.1f us %8.1f GFLOP/s",
           kv_form_name(h.form), h.k_width, h.v_width, h.heads, tokens, len, s * 1e6, flop_s * 1e-9);
    if (b->yard.peak_flop_s > 0)
        printf(" %3.0f%% of one core", 100 * flop_s / b->yard.peak_flop_s * workers_count(b->workers));
    printf("  K and V at %.1f GB/s\n", (double)len * token / s * 1e-9);
    free(table);
}

static void delta_once(struct bench *b, void *arg)
{
    struct kern_delta *a = arg;
    b->ops.delta(a, 0, a->dv);
}

static void delta(struct bench *b, uint32_t tokens, bool channels)
{
    enum { HEAD = 128 };
    float *at = b->values;
    struct kern_delta a = {.tokens = tokens, .dk = HEAD, .dv = HEAD, .channels = channels};
    a.q = a.k = a.v = at;
    a.qk_stride = a.v_stride = a.o_stride = HEAD;
    a.alpha = a.beta = at;
    a.gate_stride = channels ? HEAD : 1;
    a.o = at + (size_t)tokens * HEAD;
    a.state_out = a.o + (size_t)tokens * HEAD;
    a.state_in = a.state_out;
    double s = seconds(b, delta_once, &a);
    printf("delta rule 128 x 128, %3u tokens%-13s %9.1f us %8.2f us a token and head\n", tokens,
           channels ? ", by channel" : "", s * 1e6, s * 1e6 / tokens);
}

static void decays_once(struct bench *b, void *arg)
{
    float *at = arg;
    b->ops.decays(at, at + 128, at + 256, -1, 0, 128);
}

/* The library's functions one by one, which the kernel took the place of. */
static void decays_one_by_one(struct bench *b, void *arg)
{
    float *at = arg;
    (void)b;
    for (uint32_t i = 0; i < 128; i++) {
        const float x = at[128 + i] + at[256 + i];
        at[i] = expf(-(x > 20 ? x : log1pf(expf(x))));
    }
}

static void decays(struct bench *b)
{
    double s = seconds(b, decays_once, b->values), plain = seconds(b, decays_one_by_one, b->values);
    printf("decays of 128 channels                        %9.3f us, of libm %9.3f us\n", s * 1e6,
           plain * 1e6);
}

static void ssm_once(struct bench *b, void *arg)
{
    struct kern_ssm *a = arg;
    b->ops.ssm(a, 0, a->p);
}

/* Runs one head; its state fits in a cache. */
static void ssm(struct bench *b, uint32_t tokens)
{
    enum { HEAD = 64, STATE = 128 };
    float *at = b->values;
    struct kern_ssm a = {
        .tokens = tokens, .n = STATE, .p = HEAD, .stride = 2 * STATE + HEAD, .y_stride = HEAD};
    a.x = at;
    a.b = at + HEAD;
    a.c = a.b + STATE;
    a.dt = a.decay = at;
    a.gate_stride = 1;
    a.y = at + tokens * a.stride;
    a.state_out = a.y + (size_t)tokens * HEAD;
    a.state_in = a.state_out;
    double s = seconds(b, ssm_once, &a);
    printf("state space 128 x 64, %3u tokens              %9.1f us %8.2f us a token and head\n", tokens,
           s * 1e6, s * 1e6 / tokens);
}

static void conv_once(struct bench *b, void *arg)
{
    struct kern_conv *a = arg;
    b->ops.conv(a, 0, a->channels);
}

static void conv(struct bench *b, uint32_t tokens)
{
    enum { CHANNELS = 8192, TAPS = 4 };
    struct kern_conv a = {
        .u = b->values, .w = b->values, .tokens = tokens, .channels = CHANNELS, .conv_width = TAPS};
    a.u_stride = a.y_stride = CHANNELS;
    a.y = b->values + (size_t)tokens * CHANNELS;
    a.state_out = a.y + (size_t)tokens * CHANNELS;
    double s = seconds(b, conv_once, &a);
    printf("convolution of %u channels, %2u tokens        %9.1f us %8.2f us a token\n", CHANNELS, tokens,
           s * 1e6, s * 1e6 / tokens);
}

static void rmsnorm_once(struct bench *b, void *arg)
{
    (void)arg;
    b->ops.rmsnorm(b->values + K, b->values, b->values, K, 1e-6f);
}

static void silu_once(struct bench *b, void *arg)
{
    (void)arg;
    b->ops.silu_mul(b->values + K, b->values, b->values, K);
}

static void sums_once(struct bench *b, void *arg)
{
    (void)arg;
    b->ops.group_sums(b->values + K, b->values, K, 64);
}

static void quantise_once(struct bench *b, void *arg)
{
    b->ops.quantise(b->rows, arg, b->values, 0, K);
}

static void nothing(void *arg, uint32_t tile, uint32_t worker)
{
    (void)arg;
    (void)tile;
    (void)worker;
}

static void barrier_once(struct bench *b, void *arg)
{
    (void)arg;
    workers_run(b->workers, nothing, NULL, workers_count(b->workers));
}

static void rows(struct bench *b)
{
    printf("of %u values: rmsnorm %.2f us, silu %.2f us, group sums %.2f us; a run of empty tiles %.2f us\n",
           K, seconds(b, rmsnorm_once, NULL) * 1e6, seconds(b, silu_once, NULL) * 1e6,
           seconds(b, sums_once, NULL) * 1e6, seconds(b, barrier_once, NULL) * 1e6);
    struct quants one = {K, 64, 1}, two = {K, 64, 2};
    printf("quantising them: int8 %.2f us, int16 %.2f us\n", seconds(b, quantise_once, &one) * 1e6,
           seconds(b, quantise_once, &two) * 1e6);
}

struct packing {
    struct linear_source source;
    enum matrix_form form;
    void *memory;
};

static void pack_once(struct bench *b, void *arg)
{
    struct packing *p = arg;
    struct matrix m;
    (void)b;
    if (p->form == MATRIX_QUADS)
        matrix_pack_quads(&p->source, 1, p->memory, &m);
    else if (p->form == MATRIX_PAIRS)
        matrix_pack_pairs(&p->source, 1, p->memory, &m);
    else
        matrix_pack(&p->source, 1, p->memory, &m);
}

/* One core packs one matrix from memory that is in cache: a load is this, or the disk. */
static void packing(struct bench *b, const struct form *f)
{
    enum { OUT = 1024 };
    static const enum dtype dtypes[] = {
        [MATRIX_BF16] = DTYPE_BF16,  [MATRIX_F16] = DTYPE_F16,   [MATRIX_F32] = DTYPE_F32,
        [MATRIX_AFFINE] = DTYPE_U32, [MATRIX_QUADS] = DTYPE_U32, [MATRIX_PAIRS] = DTYPE_BF16};
    struct packing p = {.source = {.affine = f->group > 0, .bits = f->bits, .group = f->group}};
    p.form = f->form;
    p.source.experts = 1;
    p.source.out = OUT;
    p.source.in = K;
    p.source.weight = (struct tensor){.dtype = dtypes[f->form], .data = b->weights + 1};
    p.source.scales = p.source.biases = (struct tensor){.dtype = DTYPE_BF16, .data = b->weights + 1};
    size_t bytes = ROUND_UP(matrix_stack_bytes(&p.source, 1), (size_t)64);
    p.memory = aligned_alloc(64, bytes);
    ASSERT(p.memory);
    double s = seconds(b, pack_once, &p);
    printf("  %s %.2f", f->name, (double)OUT * K / s * 1e-9);
    free(p.memory);
}

static int bench_init(struct bench *b)
{
    *b = (struct bench){0};
    int r = workers_create(workers_default_count(), NULL, &b->workers);
    if (r == 0)
        r = yardsticks_init(&b->yard, b->workers, YARDSTICK_BYTES);
    if (r < 0)
        return r;
    b->weights = b->yard.memory;
    b->bytes = b->yard.bytes;
    kern_ops_init(&b->ops, b->yard.cpu_flags);
    size_t panel_least = SIZE_MAX;
    for (size_t i = 0; i < COUNT_OF(forms); i++)
        panel_least = MIN_OF(panel_least, panel_bytes(b, &forms[i]));
    size_t rows_max = b->bytes / panel_least * MATRIX_PANEL;
    size_t outputs = MAX_OF(rows_max * 16, (size_t)COLUMNS_MAX * PREFILL_ROWS);
    size_t values = (size_t)COLUMNS_MAX * K + K + outputs;
    b->values = aligned_alloc(64, ROUND_UP(values * sizeof(float), (size_t)64));
    if (!b->values)
        return -1;
    memset(b->values, 0x3c, values * sizeof(float));
    /* Rows of a step: not a multiple of 1 KiB apart. */
    const struct quants widest = {K, 16, 2};
    b->row_bytes = ROUND_UP(quants_bytes(&widest), (size_t)1024) + 64;
    b->rows = aligned_alloc(64, ROUND_UP(COLUMNS_MAX * b->row_bytes, (size_t)64));
    if (!b->rows)
        return -1;
    memset(b->rows, 0, COLUMNS_MAX * b->row_bytes);
    return 0;
}

/* Everything but the products. */
static void others(struct bench *b)
{
    printf("on one core:\n");
    const struct attention_shape narrow = {128, 128, false, 4, KV_F32}, wide = {256, 256, false, 8, KV_F32};
    const struct attention_shape latent = {576, 512, true, 64, KV_F32}, some = {576, 512, true, 4, KV_F32};
    attention(b, narrow, 1, 4096);
    attention(b, narrow, 1, 32768);
    for (enum kv_form form = KV_BF16; form < KV_FORMS; form++) {
        struct attention_shape h = narrow;
        h.form = form;
        attention(b, h, 1, 32768);
    }
    attention(b, narrow, 64, 4096);
    attention(b, narrow, 64, 32768);
    attention(b, wide, 32, 4096);
    attention(b, some, 1, 4096);
    attention(b, latent, 1, 4096);
    attention(b, latent, 4, 4096);
    for (uint32_t channels = 0; channels < 2; channels++) {
        delta(b, 1, channels);
        delta(b, 64, channels);
    }
    decays(b);
    ssm(b, 1);
    ssm(b, 64);
    conv(b, 1);
    conv(b, 64);
    rows(b);
    printf("packing, 10^9 values/s:");
    for (uint32_t i = 0; i < COUNT_OF(forms); i++) {
        if (forms[i].bytes != 1 && is_plain(&forms[i])) /* 1 as for 2 */
            packing(b, &forms[i]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    struct bench b;
    const char *text = argc > 1 ? argv[1] : NULL;
    const bool over = text && strcmp(text, "over") == 0;
    if (bench_init(&b) < 0) {
        fprintf(stderr, "no memory, or no threads\n");
        return 1;
    }
    printf("tier %s, of integer products %s, %u workers, weights of %zu MiB, k = %d\n", b.ops.tier,
           b.ops.int_tier, workers_count(b.workers), b.bytes >> 20, K);
    workers_turn_begin(b.workers);
    yardsticks_measure(&b.yard);
    yardstick_lines(&b.yard);
    printf("weights in GB/s and of reading; last, 512 columns in GFLOP/s and of the peak, or peaks\n");
    enum peak_unit unit = peak_of_integers(&b.yard);
    if (unit != PEAK_NONE)
        printf("%s: %.2f Top/s\n", peak_name(unit),
               peak_operations(&b.yard, unit) / peak_once(&b.yard, unit) * 1e-12);
    printf("%-17s  %11s  %11s  %11s  %11s  %11s  %12s\n", "columns", "1", "2", "4", "8", "16", "512");
    for (uint32_t i = 0; i < COUNT_OF(forms); i++) {
        if (!over && (!text || strstr(forms[i].name, text)))
            decode(&b, &forms[i]);
    }
    printf("bytes/s over those of the affine form of equal bits\n");
    const uint32_t counts = text ? 5 : 1;
    for (uint32_t i = 0; i < COUNT_OF(forms); i++) {
        if (has_affine(&forms[i]) && (!text || over || strstr(forms[i].name, text))) {
            over_affine(&b, &forms[i], forms[i].bytes, counts);
            if (forms[i].codes == CODES_E4M3) /* integer modes leave it in f32 */
                over_affine(&b, &forms[i], 2, counts);
        }
    }
    if (!text || strcmp(text, "rows") == 0)
        others(&b);
    workers_turn_end(b.workers);
    workers_free(b.workers);
    yardsticks_done(&b.yard);
    free(b.values);
    free(b.rows);
    return 0;
}
