/* Products on a GPU, through the compute contract: against sums in double, and in bits against each other for
 * all numbers of columns. Skipped where there is no GPU. */
#include "test_rng.h"
#include "cuda_test.h"

#include "base/arena.h"
#include "compute/backend.h"
#include "compute/mode.h"
#include "compute/shape.h"
#include "compute/weight.h"
#include "tensor/tensor.h"

#include <math.h>

#define VOCAB 301u
/* The CPU takes some microseconds for an mma: fewer columns, and some of the cases. */
#ifdef TEST_SIMT
#define COLUMNS(n)   ((n) > 1000 ? 18u : 130u)
#define COLUMNS_F32  290u
#define COUNTS       1, 3, 8, 9, 16, 17, 129, 256
#define REPEATS      1
#define EACH         4
#define LARGE_K      128u
#define LONG_K       640u
#define MEMORY_BYTES ((uint64_t)64 << 20)
#else
#define COLUMNS(n)   2048u
#define COLUMNS_F32  2048u
#define COUNTS       1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 127, 128, 129, 255, 256, 1000
#define REPEATS      3
#define EACH         1
#define LARGE_K      640u
#define LONG_K       4480u
#define MEMORY_BYTES ((uint64_t)1 << 30)
#endif

enum { ARRAY_X, ARRAY_Y, ARRAYS };

struct products {
    struct gpu gpu;
    struct arena *host;
    struct compute *compute;
    struct compute_shape shape;
    struct weight table;
    float *x; /* [VOCAB][k] */
    uint32_t n, k, columns;
    enum compute_mode mode;
};

static const struct rope_tables no_ropes;

static void skip_bytes(struct tensor *t, uint64_t bytes)
{
    if (t->data)
        t->data = (const char *)t->data + bytes;
}

/* Rows from `from` on. */
static struct linear_source rows_from(const struct linear_source *s, uint64_t from)
{
    struct linear_source r = *s;
    r.out -= from;
    if (!s->affine) {
        skip_bytes(&r.weight, from * s->in * dtype_bytes(s->weight.dtype));
        return r;
    }
    uint32_t each = s->bias_kind == BIASES_STORED ? 2 : 1;
    skip_bytes(&r.weight, from * s->in * s->bits / 8);
    skip_bytes(&r.scales, from * s->in / s->group * dtype_bytes(s->scales.dtype));
    skip_bytes(&r.biases, from * s->in / s->group * dtype_bytes(s->biases.dtype));
    if (s->super)
        skip_bytes(&r.supers, from * s->in / s->super * each * dtype_bytes(s->supers.dtype));
    return r;
}

static struct weight put(struct products *p, const struct linear_source *s, enum compute_mode mode)
{
    const struct backend *b = p->gpu.device->backend;
    struct weight w = b->weight_begin(s, 1, mode, gpu_take(&p->gpu, b->weight_bytes(s, 1, mode)));
    /* In two pieces, of which the second begins within a panel. */
    struct linear_source piece = *s;
    uint32_t first = s->out > 21 ? 21 : (uint32_t)s->out;
    piece.out = first;
    b->weight_put(p->gpu.device, &w, 0, &piece);
    if (s->out > first) {
        piece = rows_from(s, first);
        b->weight_put(p->gpu.device, &w, first, &piece);
    }
    return w;
}

static void products_init(struct products *p, enum compute_mode mode, uint32_t n, uint32_t k, struct rng *r)
{
    const struct array_spec arrays[ARRAYS] = {{ROWS_TOKENS, k, k}, {ROWS_TOKENS, n, 0}};
    *p = (struct products){
        .n = n, .k = k, .columns = mode == COMPUTE_F32 ? COLUMNS_F32 : COLUMNS(n), .mode = mode};
    p->shape = (struct compute_shape){
        .hidden = n, .vocab = VOCAB, .eps = 1e-6f, .layers = 1, .context_max = p->columns};
    gpu_open(&p->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &p->host), 0);
    p->compute = gpu_compute(&p->gpu, (struct compute_opts){.shape = &p->shape,
                                                            .arrays = arrays,
                                                            .array_count = ARRAYS,
                                                            .mode = mode,
                                                            .tokens_max = p->columns,
                                                            .seqs_max = 1,
                                                            .logits_max = 1,
                                                            .host_memory = p->host});
    p->x = random_values(r, (size_t)VOCAB * k, -2, 2);
    const struct linear_source table = gpu_table(p->x, VOCAB, k);
    p->table = put(p, &table, mode);
}

static void products_done(struct products *p)
{
    free(p->x);
    arena_free(p->host);
    gpu_close(&p->gpu);
}

/* y of inputs first, first + 1, ... [count][n] */
static float *multiply(struct products *p, const struct weight *w, uint32_t first, uint32_t count)
{
    const struct projection projection = {.in = p->k, .out = p->n, .part_count = 1, .parts = {*w}};
    const struct act x = {ARRAY_X, 0, p->k}, y = {ARRAY_Y, 0, p->n};
    float *ret = malloc((size_t)count * p->n * sizeof(float));
    assert_non_null(ret);
    compute_step_begin(p->compute, gpu_batch(first, count, VOCAB, count, ret));
    compute_embed(p->compute,
                  &(struct op_embed){.table = &p->table, .ropes = &no_ropes, .h = x, .angles = x});
    /* More than once: a kernel begins before the one in front of it ends. */
    for (uint32_t i = 0; i < REPEATS; i++)
        compute_project(p->compute, &(struct op_product){.w = &projection, .x = x, .y = y}, 1);
    compute_values(p->compute, &(struct op_values){.x = y});
    assert_int_equal(compute_step_end(p->compute), 0);
    return ret;
}

static float as_bf16(float x)
{
    return bf16_to_f32(f32_to_bf16(x));
}

/* In bf16 mode the input is rounded to bf16, and a weight to 2^-9 of itself, after f32 arithmetic. Each of k
 * sums in f32 has an error of 2^-23 at most: tensor cores truncate. */
static void check_sums(const struct products *p, const struct linear_source *s, const float *y,
                       uint32_t column)
{
    const float *x = p->x + (size_t)(column % VOCAB) * p->k;
    bool bf16 = p->mode == COMPUTE_BF16, exact = !s->affine && s->weight.dtype == DTYPE_BF16;
    for (uint32_t row = 0; row<p->n; row += p->n> 1000 ? 97 : 1) {
        double want = 0, size = 0, rounding = 0;
        for (uint32_t k = 0; k < p->k; k++) {
            double w = (double)linear_source_at(s, 0, row, k), v = (double)(bf16 ? as_bf16(x[k]) : x[k]);
            want += w * v;
            size += fabs(w * v);
            rounding += fabs(v) *
                        (exact ? 0 : fabs(w) * (bf16 ? 0x1.02p-9 : 0) + source_size(s, 0, row, k) * 0x1p-21);
        }
        assert_within((double)y[row], want, rounding + (p->k + 8) * EPS * size, "product");
    }
}

static void alone_is_batched(struct products *p, const struct weight *w, const float *all)
{
    static const uint32_t counts[] = {COUNTS};
    for (uint32_t i = 0; i < COUNT_OF(counts) && counts[i] < p->columns; i++) {
        uint32_t first = MIN_OF(13 * i, p->columns - counts[i]);
        float *some = multiply(p, w, first, counts[i]);
        for (uint32_t c = 0; c < counts[i]; c++)
            if (memcmp(some + (size_t)c * p->n, all + (size_t)(first + c) * p->n, p->n * sizeof(float)) != 0)
                fail_msg("column %u of %u differs from the same among %u", c, counts[i], p->columns);
        free(some);
    }
}

static void holds(const char *name, enum compute_mode mode, struct linear_source *s, uint32_t n, uint32_t k,
                  struct rng *r)
{
    struct products p;
    if (n > LARGEST) {
        source_drop(s);
        return;
    }
    products_init(&p, mode, n, k, r);
    const struct weight w = put(&p, s, mode);
    assert_int_equal(w.mode, mode);
    float *all = multiply(&p, &w, 0, p.columns);
    for (uint32_t c = 0; c < p.columns; c += p.columns / 6)
        check_sums(&p, s, all + (size_t)c * n, c);
    alone_is_batched(&p, &w, all);
    print_message("%s, %u x %u: good\n", name, n, k);
    free(all);
    products_done(&p);
    source_drop(s);
}

TEST(dense_weights_are_their_bf16)
{
    static const struct {
        enum dtype dtype;
        uint32_t n, k;
    } cases[] = {{DTYPE_BF16, 40, 512}, {DTYPE_BF16, 150, 1111}, {DTYPE_BF16, 16400, 192},
                 {DTYPE_F16, 70, 72},   {DTYPE_F32, 65, 2560},   {DTYPE_BF16, 24, 12288},
                 {DTYPE_BF16, 3, 8}};
    NEEDS_GPU
    struct rng r = {5, 0};
    for (uint32_t i = 0; i < COUNT_OF(cases); i++) {
        uint32_t n = cases[i].n, k = cases[i].k / (cases[i].k > 2000 ? EACH : 1);
        struct linear_source s = random_dense(&r, cases[i].dtype, 1, n, k);
        holds(dtype_name(cases[i].dtype), COMPUTE_BF16, &s, n, k, &r);
    }
}

TEST(codes_are_dequantised_to_bf16)
{
    static const uint32_t bits[] = {2, 3, 4, 5, 6, 8}, groups[] = {32, 64, 128};
    NEEDS_GPU
    struct rng r = {6, 0};
    for (uint32_t i = 0; i < COUNT_OF(bits); i++)
        for (uint32_t g = 0; g < COUNT_OF(groups); g++) {
            char name[32];
            uint32_t n = i == 2 && g == 1 ? 16390 : 90, k = n > 1000 ? LARGE_K : g == 2 ? LONG_K : 640;
            if ((i + g) % EACH != EACH - 1)
                continue;
            struct linear_source s =
                random_affine(&r, bits[i], groups[g], g == 2 ? DTYPE_F16 : DTYPE_BF16, 1, n, k);
            snprintf(name, sizeof(name), "%u bits, groups of %u", bits[i], groups[g]);
            holds(name, COMPUTE_BF16, &s, n, k, &r);
        }
}

TEST(every_stored_form_has_fragments)
{
    NEEDS_GPU
    struct rng r = {7, 0};
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i += EACH) {
        if (code_is_word(kern_forms[i].codes))
            continue;
        struct linear_source s = random_form(&r, &kern_forms[i], 1, 90, 1280);
        holds(kern_forms[i].name, COMPUTE_BF16, &s, 90, 1280, &r);
    }
}

/* Rounded to bf16, as `dense_weights_are_their_bf16` has them. */
static struct linear_source dense_of(const struct linear_source *s)
{
    struct linear_source d = {.experts = 1, .out = s->out, .in = s->in};
    struct rng r = {9, 0};
    d.weight = random_tensor(&r, DTYPE_BF16, s->out * s->in, 0);
    for (uint64_t i = 0; i < s->out * s->in; i++) {
        uint16_t bits = f32_to_bf16(linear_source_at(s, 0, i / s->in, i % s->in));
        memcpy((uint8_t *)(uintptr_t)d.weight.data + 2 * i, &bits, sizeof(bits));
    }
    return d;
}

/* FP8 with scales of bf16 and f32, MX's powers of two, and scales above 2^7. */
TEST(small_floats_have_the_bits_of_bf16)
{
    static const struct kern_form forms[] = {{"bf16", 8, 128, CODES_E4M3, DTYPE_BF16, BIASES_CENTRED, 0},
                                             {"f32", 8, 64, CODES_E4M3, DTYPE_F32, BIASES_CENTRED, 0},
                                             {"mxfp8", 8, 32, CODES_E4M3, DTYPE_F8_E8M0, BIASES_CENTRED, 0},
                                             {"large", 8, 128, CODES_E4M3, DTYPE_BF16, BIASES_CENTRED, 0}};
    static const uint32_t counts[] = {1, 9, 40, 300};
    NEEDS_GPU
    struct rng r = {10, 0};
    for (uint32_t i = 0; i < COUNT_OF(forms); i++) {
        struct products p;
        struct linear_source s = random_form(&r, &forms[i], 1, 90, 1280);
        if (i == 3) {
            tensor_drop(&s.scales);
            s.scales = random_tensor(&r, DTYPE_BF16, 90 * 1280 / 128, 1000);
        }
        struct linear_source d = dense_of(&s);
        products_init(&p, COMPUTE_BF16, 90, 1280, &r);
        const struct weight small = put(&p, &s, COMPUTE_BF16), dense = put(&p, &d, COMPUTE_BF16);
        assert_int_equal(small.bits, 8);
        for (uint32_t c = 0; c < COUNT_OF(counts) && counts[c] <= p.columns; c++) {
            float *a = multiply(&p, &small, 0, counts[c]), *b = multiply(&p, &dense, 0, counts[c]);
            assert_same_bits(a, b, (size_t)counts[c] * 90, forms[i].name);
            free(a);
            free(b);
        }
        products_done(&p);
        source_drop(&s);
        source_drop(&d);
    }
}

/* ---- small floats on both sides: docs/exactness.md ---- */

#define SMALL_GROUP 128u

/* The nearest value of E4M3, of equally near ones the even; at most 448. */
static float nearest_e4m3(float x)
{
    float size = fminf(fabsf(x), 448), step = 0x1p-9f;
    int exponent;
    frexpf(size, &exponent);
    if (exponent > -5)
        step = ldexpf(1, exponent - 4);
    return copysignf(rintf(size / step) * step, x);
}

/* A row of inputs as its small floats. Returns its scale. */
static float quantise_row(const float *x, uint32_t k, float *codes)
{
    float most = 0x1p-100f;
    for (uint32_t i = 0; i < k; i++)
        most = fmaxf(most, fabsf(as_bf16(x[i])));
    for (uint32_t i = 0; i < k; i++)
        codes[i] = nearest_e4m3(as_bf16(x[i]) * (448 / most));
    return most * (1.0f / 448);
}

/* Tensor cores align 32 products and the sum so far to the largest of them, of which they keep 13 bits after
 * the first one: in each of a group's four steps each addend loses 2^-13 of the largest at most. */
static void check_small_sums(const struct products *p, const struct linear_source *s, const float *y,
                             uint32_t column)
{
    float *codes = malloc(p->k * sizeof(float));
    assert_non_null(codes);
    const double scale = (double)quantise_row(p->x + (size_t)(column % VOCAB) * p->k, p->k, codes);
    for (uint32_t row = 0; row<p->n; row += p->n> 1000 ? 97 : 1) {
        double want = 0, error = 0;
        for (uint32_t from = 0; from < p->k; from += SMALL_GROUP) {
            double sum = 0, largest = 0;
            for (uint32_t k = from; k < from + SMALL_GROUP; k++) {
                const double v = (double)linear_source_at(s, 0, row, k) * (double)codes[k];
                sum += v;
                largest = fmax(largest, fmax(fabs(v), fabs(sum)));
            }
            want += sum;
            error += (4 * 33 * 0x1p-13 + (p->k / SMALL_GROUP + 8) * EPS) * largest;
        }
        assert_within((double)y[row], want * scale, error * scale, "product of small floats");
    }
    free(codes);
}

/* Without NaNs among the codes. */
static struct linear_source small_weights(struct rng *r, enum dtype scales, uint32_t n, uint32_t k)
{
    const struct kern_form form = {"fp8", 8, SMALL_GROUP, CODES_E4M3, scales, BIASES_CENTRED, 0};
    struct linear_source s = random_form(r, &form, 1, n, k);
    uint8_t *codes = (uint8_t *)(uintptr_t)s.weight.data;
    for (uint64_t i = 0; i < (uint64_t)n * k; i++)
        if ((codes[i] & 0x7f) == 0x7f)
            codes[i] ^= 0x40;
    return s;
}

TEST(small_floats_multiply_small_floats)
{
    static const struct {
        uint32_t n, k;
        enum dtype scales;
    } cases[] = {
        {90, 1280, DTYPE_BF16}, {272, 4096, DTYPE_F32}, {16400, 384, DTYPE_BF16}, {40, 128, DTYPE_F32}};
    NEEDS_GPU
    struct rng r = {11, 0};
    for (uint32_t i = 0; i < COUNT_OF(cases); i++) {
        const uint32_t n = cases[i].n, k = cases[i].k;
        struct products p;
        struct linear_source s = small_weights(&r, cases[i].scales, n, k);
        products_init(&p, COMPUTE_FP8, n, k, &r);
        if (strcmp(p.gpu.device->tier, "sm_90") != 0) {
            print_message("this device has no wgmma: it computes fp8 as bf16\n");
            products_done(&p);
            source_drop(&s);
            skip();
        }
        const struct weight w = put(&p, &s, COMPUTE_FP8);
        assert_int_equal(w.mode, COMPUTE_FP8);
        float *all = multiply(&p, &w, 0, p.columns);
        for (uint32_t c = 0; c < p.columns; c += p.columns / 6)
            check_small_sums(&p, &s, all + (size_t)c * n, c);
        alone_is_batched(&p, &w, all);
        print_message("fp8, %u x %u: good\n", n, k);
        free(all);
        products_done(&p);
        source_drop(&s);
    }
}

/* With 2112 values a column alone has more groups than its block has slices. */
TEST(products_in_f32_do_not_depend_on_the_columns)
{
    static const struct {
        enum dtype dtype;
        uint32_t n, k;
    } dense[] = {{DTYPE_F32, 65, 200}, {DTYPE_F32, 65, 224}, {DTYPE_BF16, 70, 224}, {DTYPE_F16, 24, 224}};
    static const uint32_t bits[] = {8, 4}, groups[] = {64, 16};
    NEEDS_GPU
    struct rng r = {8, 0};
    for (uint32_t i = 0; i < COUNT_OF(dense); i++) {
        struct linear_source s = random_dense(&r, dense[i].dtype, 1, dense[i].n, dense[i].k);
        holds(dtype_name(dense[i].dtype), COMPUTE_F32, &s, dense[i].n, dense[i].k, &r);
    }
    for (uint32_t i = 0; i < COUNT_OF(bits) * COUNT_OF(groups); i++) {
        uint32_t group = groups[i / COUNT_OF(bits)], k = group == 64 ? 2112 : 544;
        struct linear_source s = random_affine(&r, bits[i % COUNT_OF(bits)], group, DTYPE_BF16, 1, 70, k);
        char name[32];
        snprintf(name, sizeof(name), "%u bits, groups of %u", bits[i % COUNT_OF(bits)], group);
        holds(name, COMPUTE_F32, &s, 70, k, &r);
    }
    for (uint32_t i = 0; i < COUNT_OF(kern_forms); i += EACH) {
        if (code_is_word(kern_forms[i].codes))
            continue;
        struct linear_source s = random_form(&r, &kern_forms[i], 1, 40, 512);
        holds(kern_forms[i].name, COMPUTE_F32, &s, 40, 512, &r);
    }
}

TEST_MAIN()
