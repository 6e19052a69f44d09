/* test_kern_attn.c - attention over pages against double, and any grouping of queries bit for bit. */
#include "test_rng.h"
#include "kern_test.h"

enum { TOKENS = 3 * KERN_SEGMENT_TOKENS + 45, PAGES = DIV_UP(TOKENS, PAGE_TOKENS), QUERIES = 11 };

struct bench {
    struct kern_kv kv;
    uint32_t pages[PAGES];
    float *k, *v;    /* [TOKENS][k_width], [TOKENS][v_stride] */
    size_t v_stride; /* V in K: k_width */
    float *q;        /* [QUERIES][k_width] */
    float *out;      /* [QUERIES][v_width] */
    float *scratch;
    struct kern_query queries[QUERIES];
};

struct widths {
    uint32_t k, v;
    bool v_in_k;
    enum kv_form form;
};

/* Pages lie in reverse order, with another head's bytes between K and V; unwritten values are NaN. V in K
 * needs no page of its own, and kv_put may not read one. */
static void bench_init_widths(struct bench *b, struct rng *r, struct widths w, const struct kern_ops *ops)
{
    size_t k_bytes = kv_form_bytes(w.form, w.k), v_bytes = kv_form_bytes(w.form, w.v);
    size_t scratch = w.v_in_k ? KERN_ATTN_SCRATCH_V_IN_K : KERN_ATTN_SCRATCH;
    b->kv = (struct kern_kv){.page_bytes = (w.v_in_k ? k_bytes : 2 * k_bytes + v_bytes) + 64,
                             .pages = b->pages,
                             .form = w.form,
                             .k_offset = 64,
                             .v_offset = 64 + 2 * k_bytes,
                             .k_width = w.k,
                             .v_width = w.v,
                             .v_in_k = w.v_in_k};
    b->kv.base = malloc(PAGES * b->kv.page_bytes);
    memset(b->kv.base, 0xff, PAGES * b->kv.page_bytes);
    b->k = random_values(r, (size_t)TOKENS * w.k, -1, 1);
    b->v = w.v_in_k ? b->k : random_values(r, (size_t)TOKENS * w.v, -1, 1);
    b->v_stride = w.v_in_k ? w.k : w.v;
    b->q = random_values(r, (size_t)QUERIES * w.k, -4, 4);
    b->out = random_values(r, (size_t)QUERIES * w.v, 0, 0);
    b->scratch = random_values(r, scratch, 0, 1);
    for (uint32_t i = 0; i < PAGES; i++)
        b->pages[i] = PAGES - 1 - i;
    for (uint32_t t = 0; t < TOKENS; t++)
        ops->kv_put(&b->kv, t, b->k + (size_t)t * w.k, w.v_in_k ? NULL : b->v + (size_t)t * w.v);
    for (uint32_t i = 0; i < QUERIES; i++)
        b->queries[i] = (struct kern_query){.q = b->q + i * w.k, .out = b->out + i * w.v};
}

static void bench_init(struct bench *b, struct rng *r, uint32_t head_dim, const struct kern_ops *ops)
{
    bench_init_widths(b, r, (struct widths){head_dim, head_dim, false, KV_F32}, ops);
}

static void bench_done(struct bench *b)
{
    free(b->kv.base);
    if (!b->kv.v_in_k)
        free(b->v);
    free(b->k);
    free(b->q);
    free(b->out);
    free(b->scratch);
}

/* Bound: a score errs by k_width roundings of its magnitudes, which an exponential passes on as a relative
 * error of every weight. The sums of weights and values add one rounding per token of a segment and some for
 * merging. */
static void assert_attention(const struct bench *b, const struct kern_query *q, float scale, const char *tier)
{
    uint32_t hd = b->kv.k_width;
    double p[TOKENS], max = -INFINITY, sum = 0, score_error = 0;
    for (uint32_t t = q->kv_first; t < q->kv_len; t++) {
        double size = 0;
        p[t] = 0;
        for (uint32_t d = 0; d < hd; d++) {
            double x = (double)q->q[d] * (double)b->k[(size_t)t * hd + d];
            p[t] += x * (double)scale;
            size += fabs(x) * (double)scale;
        }
        if (b->kv.cap > 0) {
            p[t] = (double)b->kv.cap * tanh(p[t] / (double)b->kv.cap);
            size += 8 * (double)b->kv.cap;
        }
        max = fmax(max, p[t]);
        score_error = fmax(score_error, (hd + 2) * EPS * size);
    }
    max = q->sink ? fmax(max, (double)*q->sink) : max;
    sum = q->sink ? exp((double)*q->sink - max) : 0;
    for (uint32_t t = q->kv_first; t < q->kv_len; t++)
        sum += p[t] = exp(p[t] - max);
    for (uint32_t d = 0; d < b->kv.v_width; d++) {
        double want = 0, size = 0;
        for (uint32_t t = q->kv_first; t < q->kv_len; t++) {
            want += p[t] / sum * (double)b->v[t * b->v_stride + d];
            size += p[t] / sum * fabs((double)b->v[t * b->v_stride + d]);
        }
        double bound = (4 * score_error + (2 * KERN_SEGMENT_TOKENS + 40) * EPS) * size;
        assert_within((double)q->out[d], want, bound, tier);
    }
}

static const uint32_t lens[QUERIES] = {1, 16, 31, 33, 255, 256, 257, 300, 511, 513, TOKENS};

/* Each query alone against double, then any grouping, so any neighbours: with fewer tokens, with more, in
 * other segments. */
static void check_queries(struct bench *b, float scale, const struct kern_ops *ops)
{
    uint32_t width = b->kv.v_width;
    float *alone = malloc((size_t)QUERIES * width * sizeof(float));
    for (uint32_t i = 0; i < QUERIES; i++) {
        ops->attn(&b->kv, &b->queries[i], 1, scale, b->scratch);
        assert_attention(b, &b->queries[i], scale, ops->tier);
    }
    memcpy(alone, b->out, (size_t)QUERIES * width * sizeof(float));
    for (uint32_t count = 2; count <= QUERIES; count++) {
        for (uint32_t first = 0; first + count <= QUERIES; first += 2) {
            memset(b->out, 0, (size_t)QUERIES * width * sizeof(float));
            ops->attn(&b->kv, b->queries + first, count, scale, b->scratch);
            assert_same_bits(b->out + first * width, alone + first * width, (size_t)count * width, ops->tier);
        }
    }
    free(alone);
}

static void check_widths(struct widths w, float scale)
{
    struct rng r = {w.k, 0};
    EACH_TIER(ops)
    {
        struct bench b;
        bench_init_widths(&b, &r, w, ops);
        for (uint32_t i = 0; i < QUERIES; i++)
            b.queries[i].kv_len = lens[i];
        check_queries(&b, scale, ops);
        bench_done(&b);
    }
}

static void check_attention(uint32_t head_dim, float scale)
{
    check_widths((struct widths){head_dim, head_dim, false, KV_F32}, scale);
}

/* Windows of one size: queries that share pages, segments, or nothing. */
static void check_window_widths(struct widths w, uint32_t window, const float *sinks, float cap)
{
    struct rng r = {w.k + window, 0};
    EACH_TIER(ops)
    {
        struct bench b;
        bench_init_widths(&b, &r, w, ops);
        b.kv.cap = cap;
        for (uint32_t i = 0; i < QUERIES; i++) {
            b.queries[i].kv_len = lens[i];
            b.queries[i].kv_first = lens[i] > window ? lens[i] - window : 0;
            b.queries[i].sink = sinks ? &sinks[i] : NULL;
        }
        check_queries(&b, 0.2f, ops);
        bench_done(&b);
    }
}

static void check_window(uint32_t head_dim, uint32_t window, const float *sinks, float cap)
{
    check_window_widths((struct widths){head_dim, head_dim, false, KV_F32}, window, sinks, cap);
}

TEST(a_query_sees_its_window_alone)
{
    static const uint32_t windows[] = {1, 15, 16, 17, 31, 128, 255, 256, 257, TOKENS};
    for (size_t i = 0; i < COUNT_OF(windows); i++)
        check_window(40, windows[i], NULL, 0);
}

TEST(sinks_take_their_part_of_the_sum)
{
    static const float sinks[QUERIES] = {0, -1, 3, -20, 40, 2, 1, -3, 0.5f, 7, 5};
    check_window(24, TOKENS, sinks, 0);
    check_window(24, 20, sinks, 0);
}

TEST(scores_are_capped)
{
    check_window(24, TOKENS, NULL, 2);
    check_window(64, 100, NULL, 30);
}

/* Pages behind the window of every query of a call are not there any more. */
TEST(pages_behind_a_window_are_not_read)
{
    enum { WINDOW = 64 };
    EACH_TIER(ops)
    {
        struct rng r = {5, 0};
        struct bench b;
        bench_init(&b, &r, 16, ops);
        for (uint32_t i = 0; i < 5; i++) {
            b.queries[i].kv_len = TOKENS - i;
            b.queries[i].kv_first = TOKENS - i - WINDOW;
        }
        for (uint32_t p = 0; p < (TOKENS - 4 - WINDOW) / PAGE_TOKENS; p++)
            b.pages[p] = UINT32_MAX / 2;
        ops->attn(&b.kv, b.queries, 5, 0.3f, b.scratch);
        for (uint32_t i = 0; i < 5; i++)
            assert_attention(&b, &b.queries[i], 0.3f, ops->tier);
        bench_done(&b);
    }
}

TEST(attention_holds_in_every_tier_and_grouping_at_64)
{
    check_attention(64, 0.125f);
}

TEST(attention_holds_in_every_tier_and_grouping_at_256)
{
    check_attention(256, 0.0625f);
}

TEST(attention_holds_in_every_tier_and_grouping_at_odd_sizes)
{
    check_attention(72, 0.1f);
    check_attention(17, 0.25f);
    check_attention(1, 1);
}

TEST(attention_holds_for_the_longest_heads)
{
    check_attention(512, 0.04f);
    check_attention(KERN_HEAD_MAX, 0.04f);
}

TEST(keys_and_values_have_different_widths)
{
    static const struct widths widths[] = {
        {24, 16, false, 0}, {17, 40, false, 0}, {192, 128, false, 0}, {8, 81, false, 0}};
    for (size_t i = 0; i < COUNT_OF(widths); i++)
        check_widths(widths[i], 0.1f);
}

TEST(values_are_the_first_part_of_keys)
{
    static const struct widths widths[] = {{576, 512, true, KV_F32}, {40, 32, true, KV_F32},
                                           {24, 24, true, KV_F32},   {83, 67, true, KV_F32},
                                           {5, 2, true, KV_F32},     {KERN_HEAD_MAX, 130, true, KV_F32}};
    static const float sinks[QUERIES] = {0, -1, 3, -20, 40, 2, 1, -3, 0.5f, 7, 5};
    for (size_t i = 0; i < COUNT_OF(widths); i++)
        check_widths(widths[i], 0.05f);
    for (uint32_t window = 1; window < 400; window += 57)
        check_window_widths((struct widths){40, 32, true, KV_F32}, window, sinks, 3);
}

/* Equal numbers, stored apart: one arithmetic. */
TEST(values_in_keys_and_apart_are_the_same_bits)
{
    EACH_TIER(ops)
    {
        struct rng r = {3, 0};
        struct bench in, apart;
        bench_init_widths(&in, &r, (struct widths){83, 67, true, KV_F32}, ops);
        bench_init_widths(&apart, &r, (struct widths){83, 67, false, KV_F32}, ops);
        for (uint32_t t = 0; t < TOKENS; t++)
            ops->kv_put(&apart.kv, t, in.k + (size_t)t * 83, in.k + (size_t)t * 83);
        for (uint32_t i = 0; i < QUERIES; i++) {
            apart.queries[i].q = in.queries[i].q;
            apart.queries[i].kv_len = in.queries[i].kv_len = lens[i];
        }
        ops->attn(&in.kv, in.queries, QUERIES, 0.1f, in.scratch);
        ops->attn(&apart.kv, apart.queries, QUERIES, 0.1f, apart.scratch);
        assert_same_bits(in.out, apart.out, (size_t)QUERIES * 67, ops->tier);
        bench_done(&in);
        bench_done(&apart);
    }
}

/* Maxima of segments lie hundreds apart, upwards and downwards: no exponential may overflow. */
TEST(attention_survives_scores_of_any_size)
{
    check_attention(16, 60);
}

/* More than a tier takes through a segment together, each one token further: a chunk of a prompt. */
static void check_prompt(bool v_in_k)
{
    enum { HEAD_DIM = 40, COUNT = 150, FIRST = 200 };
    EACH_TIER(ops)
    {
        struct rng r = {10, 0};
        struct bench b;
        struct kern_query queries[COUNT];
        bench_init_widths(&b, &r, (struct widths){HEAD_DIM, HEAD_DIM, v_in_k, KV_F32}, ops);
        float *q = random_values(&r, COUNT * HEAD_DIM, -4, 4);
        float *alone = random_values(&r, COUNT * HEAD_DIM, 7, 8),
              *together = random_values(&r, COUNT * HEAD_DIM, 7, 8);
        for (uint32_t i = 0; i < COUNT; i++) {
            queries[i] =
                (struct kern_query){.q = q + i * HEAD_DIM, .out = alone + i * HEAD_DIM, .kv_len = FIRST + i};
            ops->attn(&b.kv, &queries[i], 1, 0.2f, b.scratch);
            queries[i].out = together + i * HEAD_DIM;
        }
        ops->attn(&b.kv, queries, COUNT, 0.2f, b.scratch);
        assert_same_bits(together, alone, COUNT * HEAD_DIM, ops->tier);
        free(q);
        free(alone);
        free(together);
        bench_done(&b);
    }
}

TEST(a_prompt_in_one_call_is_its_queries_alone)
{
    check_prompt(false);
    check_prompt(true);
}

TEST(a_page_holds_keys_transposed_and_values_in_rows)
{
    EACH_TIER(ops)
    {
        struct rng r = {9, 0};
        struct bench b;
        bench_init(&b, &r, 24, ops);
        const char *page = b.kv.base + b.pages[40 / PAGE_TOKENS] * b.kv.page_bytes;
        for (uint32_t d = 0; d < 24; d++) {
            assert_same_bits((const float *)(page + b.kv.k_offset) + d * PAGE_TOKENS + 8, b.k + 40 * 24 + d,
                             1, "k");
            assert_same_bits((const float *)(page + b.kv.v_offset) + 8 * 24 + d, b.v + 40 * 24 + d, 1, "v");
        }
        bench_done(&b);
    }
}

static void check_parts(bool v_in_k)
{
    struct rng r = {72, 0};
    static const uint32_t cuts[] = {KERN_SEGMENT_TOKENS, 2 * KERN_SEGMENT_TOKENS, 3 * KERN_SEGMENT_TOKENS};
    EACH_TIER(ops)
    {
        struct bench b;
        bench_init_widths(&b, &r, (struct widths){72, 72, v_in_k, KV_F32}, ops);
        float *whole = malloc((size_t)QUERIES * 72 * sizeof(float)), max[QUERIES], sum[QUERIES];
        for (uint32_t i = 0; i < QUERIES; i++)
            b.queries[i].kv_len = i % 3 == 0 ? TOKENS : 100 + 60 * i;
        ops->attn(&b.kv, b.queries, QUERIES, 0.1f, b.scratch);
        memcpy(whole, b.out, (size_t)QUERIES * 72 * sizeof(float));
        for (uint32_t c = 0; c < COUNT_OF(cuts); c++) {
            memset(b.out, 0xff, (size_t)QUERIES * 72 * sizeof(float));
            for (uint32_t i = 0; i < QUERIES; i++)
                max[i] = sum[i] = NAN;
            for (uint32_t begin = 0; begin < TOKENS; begin += cuts[c]) {
                /* Queries in two groupings: sharing a call does not matter either. */
                ops->attn_part(&b.kv, b.queries, 5, begin, begin + cuts[c], 0.1f, max, sum, b.scratch);
                ops->attn_part(&b.kv, b.queries + 5, QUERIES - 5, begin, begin + cuts[c], 0.1f, max + 5,
                               sum + 5, b.scratch);
            }
            assert_same_bits(b.out, whole, (size_t)QUERIES * 72, ops->tier);
        }
        free(whole);
        bench_done(&b);
    }
}

TEST(attention_in_parts_is_the_same)
{
    check_parts(false);
    check_parts(true);
}

/* Segments apart, the later ones first, in calls of `step` segments; then joined in two steps. */
static void check_apart(bool v_in_k, enum kv_form form, uint32_t step)
{
    struct rng r = {72, 0};
    enum { SEGMENTS = DIV_UP(TOKENS, KERN_SEGMENT_TOKENS), HALF = 2 * KERN_SEGMENT_TOKENS };
    const size_t part = KERN_ATTN_PART(72), row = SEGMENTS * part;
    EACH_TIER(ops)
    {
        struct bench b;
        bench_init_widths(&b, &r, (struct widths){72, 72, v_in_k, form}, ops);
        float *whole = malloc((size_t)QUERIES * 72 * sizeof(float)), max[QUERIES], sum[QUERIES], sink = 3;
        float *parts = malloc(QUERIES * row * sizeof(float));
        memset(parts, 0xff, QUERIES * row * sizeof(float));
        for (uint32_t i = 0; i < QUERIES; i++) {
            b.queries[i].kv_len = i % 3 == 0 ? TOKENS : 100 + 60 * i;
            b.queries[i].kv_first = i % 4 == 0 ? 90 + 40 * i : 0;
            b.queries[i].kv_len = MAX_OF(b.queries[i].kv_len, b.queries[i].kv_first + 1);
            b.queries[i].sink = i % 2 ? &sink : NULL;
            max[i] = sum[i] = NAN;
        }
        ops->attn(&b.kv, b.queries, QUERIES, 0.1f, b.scratch);
        memcpy(whole, b.out, (size_t)QUERIES * 72 * sizeof(float));
        memset(b.out, 0xff, (size_t)QUERIES * 72 * sizeof(float));
        for (uint32_t s = ROUND_UP(SEGMENTS, step); s > 0; s -= step) {
            uint32_t begin = (s - step) * KERN_SEGMENT_TOKENS, end = s * KERN_SEGMENT_TOKENS;
            ops->attn_apart(&b.kv, b.queries, QUERIES, begin, end, 0.1f, parts + (s - step) * part, row,
                            b.scratch);
        }
        for (uint32_t i = 0; i < QUERIES; i++) {
            ops->attn_join(&b.queries[i], 72, 0, HALF, parts + i * row, &max[i], &sum[i]);
            ops->attn_join(&b.queries[i], 72, HALF, UINT32_MAX,
                           parts + i * row + HALF / KERN_SEGMENT_TOKENS * part, &max[i], &sum[i]);
        }
        assert_same_bits(b.out, whole, (size_t)QUERIES * 72, ops->tier);
        free(parts);
        free(whole);
        bench_done(&b);
    }
}

TEST(segments_apart_and_joined_are_the_same)
{
    for (uint32_t step = 1; step <= 3; step++) {
        check_apart(false, KV_F32, step);
        check_apart(true, KV_F32, step);
        check_apart(false, KV_BF16, step);
    }
}

/* ---- forms ---- */

/* Reads the token's key and value as `ops` does, as f32. */
static void read_back(const struct bench *b, uint32_t token, float *k, float *v)
{
    const char *page = b->kv.base + b->pages[token / PAGE_TOKENS] * b->kv.page_bytes;
    uint32_t at = token % PAGE_TOKENS;
    for (uint32_t d = 0; d < b->kv.k_width; d++)
        k[d] = kv_form_value(b->kv.form, page + b->kv.k_offset, b->kv.k_width, at, at, PAGE_TOKENS, d);
    for (uint32_t d = 0; d < b->kv.v_width && !b->kv.v_in_k; d++)
        v[d] = kv_form_value(b->kv.form, page + b->kv.v_offset, b->kv.v_width, at, (size_t)at * b->kv.v_width,
                             1, d);
}

/* Attention over a form is attention over the f32 values that it reads, bit for bit. */
static void check_form(struct widths w, uint32_t window)
{
    EACH_TIER(ops)
    {
        struct rng r = {w.k, 0};
        struct bench stored, read;
        bench_init_widths(&stored, &r, w, ops);
        bench_init_widths(&read, &r, (struct widths){w.k, w.v, w.v_in_k, KV_F32}, ops);
        for (uint32_t t = 0; t < TOKENS; t++) {
            float k[KERN_HEAD_MAX], v[KERN_HEAD_MAX];
            read_back(&stored, t, k, v);
            ops->kv_put(&read.kv, t, k, w.v_in_k ? NULL : v);
        }
        for (uint32_t i = 0; i < QUERIES; i++) {
            read.queries[i].q = stored.queries[i].q;
            read.queries[i].kv_len = stored.queries[i].kv_len = lens[i];
            read.queries[i].kv_first = stored.queries[i].kv_first = lens[i] > window ? lens[i] - window : 0;
        }
        for (uint32_t count = 1; count <= QUERIES; count += 5) {
            ops->attn(&stored.kv, stored.queries, count, 0.1f, stored.scratch);
            ops->attn(&read.kv, read.queries, count, 0.1f, read.scratch);
            assert_same_bits(stored.out, read.out, (size_t)count * w.v, ops->tier);
        }
        bench_done(&stored);
        bench_done(&read);
    }
}

TEST(attention_over_a_form_is_attention_over_what_it_reads)
{
    static const struct widths widths[] = {{64, 64, false, 0},  {24, 81, false, 0},  {17, 5, false, 0},
                                           {256, 80, false, 0}, {83, 67, true, 0},   {576, 512, true, 0},
                                           {32, 160, false, 0}, {256, 256, false, 0}};
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        for (enum kv_form form = KV_BF16; form < KV_FORMS; form++) {
            struct widths w = widths[i];
            w.form = form;
            if (kv_form_fits(form, w.k) && kv_form_fits(form, w.v))
                check_form(w, TOKENS);
        }
    }
    check_form((struct widths){40, 40, false, KV_BF16}, 31);
    check_form((struct widths){40, 40, false, KV_INT8}, 300);
    check_form((struct widths){40, 40, false, KV_FP8}, 300);
    check_form((struct widths){96, 96, false, KV_INT4}, 300);
}

/* A form's values are near the stored ones: bf16 within half a unit of its eight digits, int8 within half a
 * step of its token's scale, fp8 within half a unit of its four digits or half of its least step. int4 within
 * a step, which is up to 17/16 of an eighth: the value opposite the largest has no code of its own. */
static double bound_of(enum kv_form form, double x, double largest)
{
    return form == KV_F32    ? 0
           : form == KV_BF16 ? fabs(x) / 256
           : form == KV_INT8 ? largest / 127 * 0.5001
           : form == KV_INT4 ? largest / 8 * 17 / 16
                             : fmax(fabs(x) / 16, largest / 448 / 1024) * 1.0001;
}

static void check_error(enum kv_form form, const float *x, const float *read, uint32_t width)
{
    float largest = 0;
    for (uint32_t d = 0; d < width; d++)
        largest = fmaxf(largest, fabsf(x[d]));
    for (uint32_t d = 0; d < width; d++)
        assert_within((double)read[d], (double)x[d], bound_of(form, (double)x[d], (double)largest),
                      kv_form_name(form));
}

TEST(a_form_reads_what_was_stored_within_its_bound)
{
    EACH_TIER(ops)
    {
        for (enum kv_form form = KV_F32; form < KV_FORMS; form++) {
            struct rng r = {4, 0};
            struct bench b;
            const struct widths w = {form == KV_INT4 ? 64 : 40, form == KV_INT4 ? 32 : 24, false, form};
            bench_init_widths(&b, &r, w, ops);
            for (uint32_t t = 0; t < TOKENS; t++) {
                float k[64], v[32];
                read_back(&b, t, k, v);
                check_error(form, b.k + (size_t)t * w.k, k, w.k);
                check_error(form, b.v + (size_t)t * w.v, v, w.v);
            }
            bench_done(&b);
        }
    }
}

/* A value that is not finite spreads over its token's head at most; tiny ones become zeros. */
TEST(odd_values_have_a_form_too)
{
    enum { WIDTH = KV_GROUP };
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    char page[WIDTH * PAGE_TOKENS * sizeof(float)] __attribute__((aligned(64)));
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        float x[WIDTH] = {1, -2, odd[i], 3, 0, 1, 1, 1};
        for (enum kv_form form = KV_INT8; form < KV_FORMS; form++) {
            kv_form_put(form, page, WIDTH, 5, 0, 1, x);
            for (uint32_t d = 0; d < WIDTH; d++)
                assert_true(isnan(kv_form_value(form, page, WIDTH, 5, 0, 1, d)));
        }
        kv_form_put(KV_BF16, page, WIDTH, 5, 0, 1, x);
        float read = kv_form_value(KV_BF16, page, WIDTH, 5, 0, 1, 2);
        assert_true(isnan(odd[i]) ? isnan(read) : read == odd[i]);
        assert_true(kv_form_value(KV_BF16, page, WIDTH, 5, 0, 1, 1) == -2);
    }
    const float tiny[WIDTH] = {1e-38f, -1e-40f, 0, 1e-44f}, none[WIDTH] = {0};
    const float *const small[] = {tiny, none};
    for (size_t i = 0; i < COUNT_OF(small); i++) {
        for (enum kv_form form = KV_INT8; form < KV_FORMS; form++) {
            kv_form_put(form, page, WIDTH, 31, 0, 1, small[i]);
            for (uint32_t d = 0; d < WIDTH; d++)
                assert_true(kv_form_value(form, page, WIDTH, 31, 0, 1, d) == 0);
        }
    }
}

TEST(forms_have_names)
{
    for (enum kv_form form = KV_F32; form < KV_FORMS; form++) {
        enum kv_form read = KV_F32;
        assert_true(kv_form_parse(kv_form_name(form), &read) && read == form);
    }
    enum kv_form form;
    assert_true(!kv_form_parse("f16", &form));
}

TEST_MAIN()
