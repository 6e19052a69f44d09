/* The vision encoder's operations on a GPU: attention on tensor cores against sums in double, of all patches
 * and of windows, and with the same bits in every slice; patches of pixels; rotations, norms, means and
 * activations; what operations leave for the product behind them. Skipped where there is no GPU. */
#include "cuda_test.h"

#include "base/arena.h"
#include "compute/encode.h"
#include "compute/weight.h"
#include "tensor/tensor.h"

#define MEMORY_BYTES ((uint64_t)96 << 20)
#define MERGE        2u
#define OUT          40u /* outputs of a product */

struct encode {
    struct gpu gpu;
    struct arena *host;
    struct compute *compute;
    struct compute_shape model;
    struct encode_shape shape;
    struct encode_image image;
    uint32_t patches;
    uint64_t own; /* bytes of the backend's arrays */
    uint8_t *frames[2];
    struct rng rng;
};

static void put_bytes(struct encode *e, dev_ptr at, uint64_t bytes, int byte)
{
    void *b = malloc(bytes);
    assert_non_null(b);
    memset(b, byte, bytes);
    domain_put(e->gpu.device->domain, at, b, bytes);
    free(b);
}

static void fill_frames(struct encode *e)
{
    const uint64_t bytes = (uint64_t)e->patches * e->shape.patch * e->shape.patch * ENCODE_CHANNELS;
    for (uint32_t f = 0; f < 2; f++) {
        e->frames[f] = malloc(bytes);
        assert_non_null(e->frames[f]);
        for (uint64_t i = 0; i < bytes; i++)
            e->frames[f][i] = (uint8_t)rng_next(&e->rng);
        e->image.frames[f] = e->frames[f];
    }
}

/* The backend's memory is NaN: what is read was written. */
static void encode_init(struct encode *e, uint32_t heads, uint32_t head_dim, enum compute_mode mode,
                        uint32_t rows, uint32_t columns)
{
    static const struct array_spec arrays[1] = {{ROWS_TOKENS, 64, 64}};
    *e = (struct encode){.rng = {.seed = 41}, .patches = rows * columns};
    e->model = (struct compute_shape){.hidden = 64, .vocab = 64, .eps = 1e-6f, .layers = 1};
    e->shape = (struct encode_shape){.hidden = heads * head_dim,
                                     .heads = heads,
                                     .head_dim = head_dim,
                                     .patch = 6,
                                     .merge = MERGE,
                                     .frames = 2,
                                     .rotation = ENCODE_ROTATE_EQUAL,
                                     .slice_max = e->patches,
                                     .read_max = MAX_OF(heads * head_dim, 6u * 6 * 6),
                                     .mode = mode,
                                     .theta = 10000,
                                     .mean = {0.5f, 0.4f, 0.3f},
                                     .std = {0.5f, 0.6f, 0.7f}};
    gpu_open(&e->gpu, MEMORY_BYTES);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)16 << 20}, &e->host), 0);
    e->compute = gpu_compute(&e->gpu, (struct compute_opts){.shape = &e->model,
                                                            .arrays = arrays,
                                                            .array_count = 1,
                                                            .mode = mode,
                                                            .tokens_max = 64,
                                                            .seqs_max = 1,
                                                            .logits_max = 1,
                                                            .host_memory = e->host});
    e->own = e->gpu.device->backend->encode_bytes(&e->shape, e->patches, MAX_OF(rows, columns));
    e->image = (struct encode_image){.shape = &e->shape,
                                     .width = columns * e->shape.patch,
                                     .rows = rows,
                                     .columns = columns,
                                     .own = gpu_take(&e->gpu, e->own)};
    put_bytes(e, e->image.own, e->own, 0xff);
    fill_frames(e);
}

static void encode_done(struct encode *e)
{
    free(e->frames[0]);
    free(e->frames[1]);
    e->compute->ops->close(e->compute);
    arena_free(e->host);
    gpu_close(&e->gpu);
}

static struct encode_rows take_rows(struct encode *e, uint32_t width)
{
    struct encode_rows r = e->gpu.device->backend->encode_rows(DEV_NULL, width, true, 0);
    r.at = gpu_take(&e->gpu, (uint64_t)e->patches * r.stride * sizeof(float));
    return r;
}

static void get_rows(struct encode *e, const struct encode_rows *r, uint32_t count, uint32_t width,
                     float *ret)
{
    const uint64_t bytes = (uint64_t)count * r->stride * sizeof(float);
    float *all = malloc(bytes);
    assert_non_null(all);
    assert_int_equal(domain_get(e->gpu.device->domain, all, r->at, bytes), 0);
    for (uint32_t i = 0; i < count; i++)
        memcpy(ret + (size_t)i * width, all + (size_t)i * r->stride, width * sizeof(float));
    free(all);
}

static void put_rows(struct encode *e, const struct encode_rows *r, uint32_t count, uint32_t width,
                     const float *x)
{
    for (uint32_t i = 0; i < count; i++)
        domain_put(e->gpu.device->domain, dev_add(r->at, (uint64_t)i * r->stride * sizeof(float)),
                   x + (size_t)i * width, width * sizeof(float));
}

static dev_ptr put_values(struct encode *e, uint32_t count, float low, float high)
{
    float *v = random_values(&e->rng, count, low, high);
    const dev_ptr at = gpu_take(&e->gpu, count * sizeof(float));
    domain_put(e->gpu.device->domain, at, v, count * sizeof(float));
    free(v);
    return at;
}

static void run(struct encode *e, struct op_encode op)
{
    uint32_t at = 0;
    op.image = &e->image;
    while (!compute_encode(e->compute, &op, &at))
        continue;
}

static struct encode_rows from_row(struct encode_rows r, uint32_t row)
{
    r.at = dev_add(r.at, (uint64_t)row * r.stride * sizeof(float));
    return r;
}

/* ---- attention ---- */

/* Keys, values and queries as attention reads them, and its output. */
struct attended {
    float *key_value, *query, *out; /* [patches][2 hidden], [patches][hidden] */
};

static struct attended attended_of(const struct encode *e)
{
    const size_t n = (size_t)e->patches * e->shape.hidden;
    return (struct attended){malloc(2 * n * sizeof(float)), malloc(n * sizeof(float)),
                             malloc(n * sizeof(float))};
}

static void attended_drop(struct attended *a)
{
    free(a->key_value);
    free(a->query);
    free(a->out);
}

/* In slices of `slice` patches; with windows in these. */
static void attend(struct encode *e, const float *key_value, const float *query, uint32_t slice, dev_ptr bias,
                   struct attended *ret)
{
    const uint32_t n = e->shape.hidden;
    struct encode_rows kv = take_rows(e, 2 * n), q = take_rows(e, n), y = take_rows(e, n);
    put_rows(e, &kv, e->patches, 2 * n, key_value);
    put_rows(e, &q, e->patches, n, query);
    run(e, (struct op_encode){.kind = ENCODE_TABLES});
    for (uint32_t at = 0; at < e->patches; at += slice)
        run(e, (struct op_encode){.kind = ENCODE_KEYS,
                                  .from = at,
                                  .count = MIN_OF(slice, e->patches - at),
                                  .width = 2 * n,
                                  .x = from_row(kv, at),
                                  .bias = bias});
    for (uint32_t at = 0; at < e->patches; at += slice) {
        struct op_encode op = {.kind = ENCODE_QUERIES,
                               .from = at,
                               .count = MIN_OF(slice, e->patches - at),
                               .width = n,
                               .x = from_row(q, at),
                               .bias = bias};
        run(e, op);
        op.kind = ENCODE_ATTEND;
        op.in_windows = e->shape.window > 0;
        op.y = from_row(y, at);
        run(e, op);
    }
    get_rows(e, &kv, e->patches, 2 * n, ret->key_value);
    get_rows(e, &q, e->patches, n, ret->query);
    get_rows(e, &y, e->patches, n, ret->out);
}

/* The token's window, and the token's row and column: windows are walked one after the other. */
struct place {
    uint32_t window, row, column;
};

static struct place place_of(const struct encode *e, uint32_t token)
{
    const uint32_t rows = e->image.rows / MERGE, columns = e->image.columns / MERGE;
    const uint32_t edge = e->shape.window ? e->shape.window : MAX_OF(rows, columns);
    struct place p = {0, 0, 0};
    uint32_t at = 0;
    for (uint32_t top = 0; top < rows; top += edge)
        for (uint32_t left = 0; left < columns; left += edge, p.window++)
            for (p.row = top; p.row < MIN_OF(top + edge, rows); p.row++)
                for (p.column = left; p.column < MIN_OF(left + edge, columns); p.column++)
                    if (at++ == token)
                        return p;
    assert_true(false);
    return p;
}

static bool sees(const struct encode *e, uint32_t patch, uint32_t other)
{
    return e->shape.window == 0 ||
           place_of(e, patch / (MERGE * MERGE)).window == place_of(e, other / (MERGE * MERGE)).window;
}

static double rounded(float x)
{
    return (double)bf16_to_f32(f32_to_bf16(x));
}

/* A weight is rounded to bf16, 2^-9 of it, also in the sum. */
static void check_query(const struct encode *e, const struct attended *a, uint32_t i, uint32_t head,
                        double *weights)
{
    const uint32_t n = e->shape.hidden, d = e->shape.head_dim;
    double most = -INFINITY, sum = 0;
    for (uint32_t k = 0; k < e->patches; k++) {
        weights[k] = -INFINITY;
        if (!sees(e, i, k))
            continue;
        weights[k] = 0;
        for (uint32_t j = head * d; j < (head + 1) * d; j++)
            weights[k] += rounded(a->query[(size_t)i * n + j]) * rounded(a->key_value[(size_t)k * 2 * n + j]);
        weights[k] /= sqrt(d);
        most = fmax(most, weights[k]);
    }
    for (uint32_t k = 0; k < e->patches; k++)
        sum += weights[k] = exp(weights[k] - most);
    for (uint32_t j = head * d; j < (head + 1) * d; j++) {
        double want = 0, size = 0;
        for (uint32_t k = 0; k < e->patches; k++) {
            double v = weights[k] / sum * rounded(a->key_value[(size_t)k * 2 * n + n + j]);
            want += v;
            size += fabs(v);
        }
        assert_within((double)a->out[(size_t)i * n + j], want, size * (0x1p-8 + 0x1p-12), "attention");
    }
}

/* window: tokens of its edge; 0: none. */
static void check_attention(uint32_t heads, uint32_t head_dim, uint32_t rows, uint32_t columns,
                            uint32_t window)
{
    struct encode e;
    encode_init(&e, heads, head_dim, COMPUTE_BF16, rows, columns);
    e.shape.window = window;
    const size_t n = (size_t)e.patches * e.shape.hidden;
    float *kv = random_values(&e.rng, 2 * n, -2, 2), *q = random_values(&e.rng, n, -2, 2);
    double *weights = malloc(e.patches * sizeof(double));
    struct attended whole = attended_of(&e), sliced = attended_of(&e);
    const dev_ptr bias = put_values(&e, 2 * e.shape.hidden, -1, 1);
    attend(&e, kv, q, e.patches, bias, &whole);
    for (uint32_t i = 0; i < e.patches; i += 7)
        for (uint32_t h = 0; h < heads; h++)
            check_query(&e, &whole, i, h, weights);
    put_bytes(&e, e.image.own, e.own, 0xff);
    attend(&e, kv, q, 36, bias, &sliced);
    assert_same_bits(sliced.out, whole.out, n, "slices");
    attended_drop(&whole);
    attended_drop(&sliced);
    free(weights);
    free(kv);
    free(q);
    encode_done(&e);
}

/* The last block of keys has 40 of 64, then 64; 256 and 40 are more and fewer queries than a block has. */
TEST(attention_is_near_the_sums_in_double_and_the_same_in_slices)
{
    NEEDS_GPU;
    check_attention(2, 16, 12, 14, 0);
    check_attention(3, 64, 16, 16, 0);
    check_attention(2, 72, 12, 14, 0);
    check_attention(1, 128, 4, 10, 0);
}

/* Windows of 4 and 3 tokens, the last ones of which are narrower or lower. */
TEST(attention_stays_in_windows)
{
    NEEDS_GPU;
    check_attention(2, 80, 20, 26, 4);
    check_attention(1, 64, 12, 16, 3);
}

/* ---- pixels ---- */

static float level(const struct encode *e, uint32_t c, uint8_t byte)
{
    return (float)((byte / 255.0 - e->shape.mean[c]) / e->shape.std[c]);
}

static void check_pixels(struct encode *e, uint32_t slice)
{
    const uint32_t p = e->shape.patch, plane = p * p, frames = e->shape.frames, width = 3 * frames * plane;
    struct encode_rows y = take_rows(e, width);
    float *got = malloc((size_t)e->patches * width * sizeof(float));
    run(e, (struct op_encode){.kind = ENCODE_TABLES});
    for (uint32_t at = 0; at < e->patches; at += slice)
        run(e, (struct op_encode){.kind = ENCODE_PIXELS,
                                  .from = at,
                                  .count = MIN_OF(slice, e->patches - at),
                                  .width = width,
                                  .y = from_row(y, at)});
    get_rows(e, &y, e->patches, width, got);
    for (uint32_t i = 0; i < e->patches; i++) {
        const struct place at_token = place_of(e, i / 4);
        uint32_t row = at_token.row * 2 + i % 4 / 2, column = at_token.column * 2 + i % 2;
        for (uint32_t v = 0; v < width; v++) {
            uint32_t c = e->shape.channels_last ? v % 3 : v / (frames * plane);
            uint32_t in = e->shape.channels_last ? v / 3 : v % (frames * plane), at = in % plane;
            size_t pixel = (size_t)(row * p + at / p) * e->image.width + column * p + at % p;
            float want = level(e, c, e->image.frames[in / plane][pixel * 3 + c]);
            assert_same_bits(&got[(size_t)i * width + v], &want, 1, "pixels");
        }
    }
    free(got);
}

TEST(patches_are_pixels_of_their_place_in_either_layout)
{
    NEEDS_GPU;
    struct encode e;
    encode_init(&e, 2, 16, COMPUTE_F32, 6, 10);
    check_pixels(&e, 60);
    e.shape.channels_last = true;
    check_pixels(&e, 8);
    e.image.frames[1] = e.image.frames[0];
    check_pixels(&e, 28);
    encode_done(&e);
}

TEST(patches_of_one_frame_and_of_windows_are_pixels_of_their_place)
{
    NEEDS_GPU;
    struct encode e;
    encode_init(&e, 2, 16, COMPUTE_F32, 6, 10);
    e.shape.frames = 1;
    check_pixels(&e, 28);
    e.shape.window = 2;
    check_pixels(&e, 16);
    encode_done(&e);
}

/* ---- rows ---- */

/* Makes the row `y` that an operation should leave of row `x`. */
typedef void expect_fn(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                       double *y);

/* Runs `op` on rows of x_width values; y_width are compared, in_place: of x. */
static void check_rows(struct encode *e, struct op_encode op, uint32_t x_width, uint32_t y_width,
                       bool in_place, expect_fn *expect)
{
    struct encode_rows x = take_rows(e, x_width), y = take_rows(e, y_width);
    float *in = random_values(&e->rng, (size_t)op.count * x_width, -3, 3);
    float *got = malloc((size_t)op.count * y_width * sizeof(float));
    double *want = malloc(y_width * sizeof(double));
    put_rows(e, &x, op.count, x_width, in);
    op.x = x, op.y = y;
    run(e, (struct op_encode){.kind = ENCODE_TABLES});
    run(e, op);
    get_rows(e, in_place ? &x : &y, op.count, y_width, got);
    for (uint32_t i = 0; i < op.count; i++) {
        expect(e, &op, i, in + (size_t)i * x_width, want);
        for (uint32_t k = 0; k < y_width; k++)
            assert_within((double)got[(size_t)i * y_width + k], want[k], 1e-5 * (1 + fabs(want[k])), "value");
    }
    free(in);
    free(got);
    free(want);
}

/* The RMSNorm of each part, with weights of 1: part after part, or the first value of each. */
static void expect_rms(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                       double *y)
{
    const uint32_t n = op->width / op->norm_parts;
    (void)e, (void)row;
    for (uint32_t part = 0; part < op->norm_parts; part++) {
        double squares = 0;
        for (uint32_t k = 0; k < n; k++)
            squares += (double)x[part * n + k] * (double)x[part * n + k];
        for (uint32_t k = 0; k < n; k++)
            y[op->by_value ? k * op->norm_parts + part : part * n + k] =
                (double)x[part * n + k] / sqrt(squares / n + (double)op->eps);
    }
}

static void expect_mean(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                        double *y)
{
    (void)e, (void)row;
    for (uint32_t k = 0; k < op->width; k++) {
        y[k] = 0;
        for (uint32_t part = 0; part < op->norm_parts; part++)
            y[k] += (double)op->factor * (double)x[part * op->width + k] / op->norm_parts;
    }
}

static void expect_gated(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                         double *y)
{
    (void)e, (void)row;
    for (uint32_t k = 0; k < op->width; k++)
        y[k] = (double)x[k] / (1 + exp(-(double)x[k])) * (double)x[op->width + k];
}

/* Rows have the even frequencies of a head, columns the odd ones. */
static void expect_turned(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                          double *y)
{
    const uint32_t d = e->shape.head_dim, half = d / 2;
    const struct place p = place_of(e, row / (MERGE * MERGE));
    const uint32_t at[2] = {p.row * MERGE + row % 4 / 2, p.column * MERGE + row % 2};
    for (uint32_t i = 0; i < op->width; i++) {
        uint32_t j = i % d % half, column = j >= half / 2, head = i / d * d;
        double frequency = pow(e->shape.theta, -(double)(2 * (j % (half / 2)) + column) / half);
        double angle = at[column] * frequency, low = (double)x[head + j], high = (double)x[head + j + half];
        y[i] = i % d < half ? low * cos(angle) - high * sin(angle) : high * cos(angle) + low * sin(angle);
    }
}

/* The first half of a head rotates by the column, the other one by the row, after a norm of the head. */
static void expect_apart(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                         double *y)
{
    const uint32_t d = e->shape.head_dim, quarter = d / 4;
    const struct place p = place_of(e, row / (MERGE * MERGE));
    const uint32_t at[2] = {p.column * MERGE + row % 2, p.row * MERGE + row % 4 / 2};
    for (uint32_t head = 0; head < op->width; head += d) {
        double squares = 0;
        for (uint32_t i = 0; i < d; i++)
            squares += (double)x[head + i] * (double)x[head + i];
        squares = 1 / sqrt(squares / d + (double)op->eps);
        for (uint32_t i = 0; i < d; i++) {
            uint32_t part = i / (2 * quarter), j = i % quarter, first = head + part * 2 * quarter + j;
            double angle = at[part] * pow(e->shape.theta, -(double)j / quarter);
            double low = (double)x[first] * squares, high = (double)x[first + quarter] * squares;
            y[head + i] = i % (2 * quarter) < quarter ? low * cos(angle) - high * sin(angle)
                                                      : high * cos(angle) + low * sin(angle);
        }
    }
}

/* Weights are 1, means 0.5. */
static void expect_standard(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                            double *y)
{
    (void)e, (void)row;
    for (uint32_t k = 0; k < op->width; k++)
        y[k] = (double)x[k] - 0.5;
}

/* Bounds are 0.5 and 1. */
static void expect_clipped(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                           double *y)
{
    (void)e, (void)row;
    for (uint32_t k = 0; k < op->width; k++)
        y[k] = fmin(fmax((double)x[k], 0.5), 1);
}

static void expect_same(const struct encode *e, const struct op_encode *op, uint32_t row, const float *x,
                        double *y)
{
    (void)e, (void)row;
    for (uint32_t k = 0; k < op->width; k++)
        y[k] = (double)x[k];
}

TEST(rows_are_normed_averaged_gated_and_turned)
{
    NEEDS_GPU;
    struct encode e;
    encode_init(&e, 2, 24, COMPUTE_F32, 6, 10);
    const uint32_t n = e.shape.hidden;
    const dev_ptr ones = put_values(&e, 4 * n, 1, 1);
    struct op_encode op = {.kind = ENCODE_NORM,
                           .by_token = true,
                           .count = 15,
                           .width = 4 * n,
                           .norm_parts = 4,
                           .rms = true,
                           .eps = 1e-2f,
                           .norm_weight = ones};
    check_rows(&e, op, 4 * n, 4 * n, false, expect_rms);
    op.by_value = true;
    check_rows(&e, op, 4 * n, 4 * n, false, expect_rms);
    op = (struct op_encode){
        .kind = ENCODE_POOL, .by_token = true, .count = 15, .width = n, .norm_parts = 4, .factor = 3};
    check_rows(&e, op, 4 * n, n, false, expect_mean);
    op = (struct op_encode){.kind = ENCODE_ACT, .count = 60, .width = n, .function = GLU_SILU, .gated = true};
    check_rows(&e, op, 2 * n, n, true, expect_gated);
    op = (struct op_encode){.kind = ENCODE_QUERIES, .count = 60, .width = n};
    e.shape.rotation = ENCODE_ROTATE_ALTERNATE;
    check_rows(&e, op, n, n, true, expect_turned);
    const dev_ptr halves = put_values(&e, n, 0.5f, 0.5f);
    e.shape.rotation = ENCODE_ROTATE_APART;
    op.norm_weight = ones;
    op.eps = 1e-2f;
    check_rows(&e, op, n, n, true, expect_apart);
    op = (struct op_encode){
        .kind = ENCODE_STANDARD, .count = 60, .width = n, .norm_weight = ones, .norm_bias = halves};
    check_rows(&e, op, n, n, true, expect_standard);
    op = (struct op_encode){
        .kind = ENCODE_CLIP, .count = 60, .width = n, .clip_min = halves, .clip_max = ones};
    check_rows(&e, op, n, n, true, expect_clipped);
    op = (struct op_encode){.kind = ENCODE_QUERIES, .count = 60, .width = n};
    e.shape.rotation = ENCODE_ROTATE_NONE;
    check_rows(&e, op, n, n, true, expect_same);
    encode_done(&e);
}

/* Tokens of windows, the last of which are narrower, go to their places of the whole image. */
TEST(tokens_of_windows_go_back_to_rows)
{
    NEEDS_GPU;
    struct encode e;
    encode_init(&e, 2, 16, COMPUTE_F32, 10, 14);
    e.shape.window = 3;
    const uint32_t n = e.shape.hidden, tokens = e.patches / 4, columns = e.image.columns / MERGE;
    struct encode_rows x = take_rows(&e, n), y = take_rows(&e, n);
    float *in = random_values(&e.rng, (size_t)tokens * n, -3, 3), *got = malloc(tokens * n * sizeof(float));
    put_rows(&e, &x, tokens, n, in);
    for (uint32_t at = 0; at < tokens; at += 8)
        run(&e, (struct op_encode){.kind = ENCODE_IN_ROWS,
                                   .by_token = true,
                                   .from = at,
                                   .count = MIN_OF(8u, tokens - at),
                                   .width = n,
                                   .x = from_row(x, at),
                                   .y = y});
    get_rows(&e, &y, tokens, n, got);
    for (uint32_t i = 0; i < tokens; i++) {
        const struct place p = place_of(&e, i);
        assert_same_bits(got + (size_t)(p.row * columns + p.column) * n, in + (size_t)i * n, n, "token");
    }
    free(in);
    free(got);
    encode_done(&e);
}

/* ---- products ---- */

/* An operation on rows of `width`, and the product that reads its result. */
struct reading {
    struct op_encode op;
    bool in_place;  /* the result is in x; else in y, with a norm in z */
    double inexact; /* its result differs by so much of itself where it is rounded */
};

static void check_reader(struct encode *e, struct reading r, const float *x, const float *y)
{
    const uint32_t width = r.op.width, count = r.op.count;
    const struct backend *b = e->gpu.device->backend;
    struct linear_source s = random_dense(&e->rng, DTYPE_BF16, 1, OUT, width);
    struct projection p = {.in = width, .out = OUT, .part_count = 1};
    float *plain = malloc((size_t)count * width * sizeof(float)), *got = malloc(count * OUT * sizeof(float));
    struct encode_rows out = take_rows(e, OUT), rows[3];
    p.parts[0] =
        b->weight_begin(&s, 1, COMPUTE_BF16, gpu_take(&e->gpu, b->weight_bytes(&s, 1, COMPUTE_BF16)));
    b->weight_put(e->gpu.device, &p.parts[0], 0, &s);
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = take_rows(e, width);
    r.op.x = rows[0], r.op.y = rows[1], r.op.z = rows[2];
    for (uint32_t turn = 0; turn < 2; turn++) {
        const struct encode_rows result = r.in_place                     ? rows[0]
                                          : r.op.kind == ENCODE_ADD_NORM ? rows[2]
                                                                         : rows[1];
        put_rows(e, &rows[0], count, width, x);
        put_rows(e, &rows[1], count, width, y);
        r.op.reader = turn ? &p : NULL;
        run(e, r.op);
        if (turn == 0)
            get_rows(e, &result, count, width, plain);
        else
            run(e, (struct op_encode){.kind = ENCODE_PROJECT,
                                      .by_token = r.op.by_token,
                                      .count = count,
                                      .w = &p,
                                      .x = result,
                                      .y = out});
    }
    get_rows(e, &out, count, OUT, got);
    for (uint32_t i = 0; i < count * OUT; i++) {
        double want = 0, size = 0;
        for (uint32_t k = 0; k < width; k++) {
            double v =
                (double)linear_source_at(&s, 0, i % OUT, k) * rounded(plain[(size_t)(i / OUT) * width + k]);
            want += v;
            size += fabs(v);
        }
        assert_within((double)got[i], want, size * (width * EPS + r.inexact), "product");
    }
    free(plain);
    free(got);
    source_drop(&s);
}

/* A product of a product: y = w x, then z = w y, which no operation between them rounds. */
static void check_chained(struct encode *e)
{
    const uint32_t n = e->shape.hidden, count = e->patches;
    const struct backend *b = e->gpu.device->backend;
    struct linear_source s = random_dense(&e->rng, DTYPE_BF16, 1, n, n);
    struct projection p = {.in = n, .out = n, .part_count = 1};
    float *x = random_values(&e->rng, (size_t)count * n, -3, 3);
    float *y = malloc((size_t)count * n * sizeof(float)), *z = malloc((size_t)count * n * sizeof(float));
    struct encode_rows rows[3];
    p.parts[0] =
        b->weight_begin(&s, 1, COMPUTE_BF16, gpu_take(&e->gpu, b->weight_bytes(&s, 1, COMPUTE_BF16)));
    b->weight_put(e->gpu.device, &p.parts[0], 0, &s);
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = take_rows(e, n);
    put_rows(e, &rows[0], count, n, x);
    for (uint32_t i = 0; i < 2; i++)
        run(e, (struct op_encode){
                   .kind = ENCODE_PROJECT, .count = count, .w = &p, .x = rows[i], .y = rows[i + 1]});
    get_rows(e, &rows[1], count, n, y);
    get_rows(e, &rows[2], count, n, z);
    for (uint32_t i = 0; i < count * n; i++) {
        double want = 0, size = 0;
        for (uint32_t k = 0; k < n; k++) {
            double v = (double)linear_source_at(&s, 0, i % n, k) * rounded(y[(size_t)(i / n) * n + k]);
            want += v;
            size += fabs(v);
        }
        assert_within((double)z[i], want, size * n * EPS, "product");
    }
    free(x);
    free(y);
    free(z);
    source_drop(&s);
}

/* Nothing of an earlier operation is left. */
static void begin_anew(struct encode *e)
{
    put_bytes(e, e->image.own, e->own, 0xff);
    run(e, (struct op_encode){.kind = ENCODE_TABLES});
}

/* Keys and values for attention. */
static void keep_keys(struct encode *e, const float *keys, const float *values)
{
    const uint32_t n = e->shape.hidden;
    const struct encode_rows kv = take_rows(e, 2 * n);
    struct encode_rows half = kv;
    put_rows(e, &half, e->patches, n, keys);
    half.at = dev_add(half.at, n * sizeof(float));
    put_rows(e, &half, e->patches, n, values);
    run(e, (struct op_encode){.kind = ENCODE_KEYS,
                              .count = e->patches,
                              .width = 2 * n,
                              .x = kv,
                              .bias = put_values(e, 2 * n, -1, 1)});
}

/* Rows of 144 values fill no unit. An activation in f32 may round to the next number of bf16. */
TEST(a_product_reads_what_the_operation_before_it_left)
{
    NEEDS_GPU;
    struct encode e;
    encode_init(&e, 2, 72, COMPUTE_BF16, 6, 10);
    const uint32_t n = e.shape.hidden, count = e.patches;
    float *x = random_values(&e.rng, (size_t)count * n, -3, 3),
          *y = random_values(&e.rng, (size_t)count * n, -3, 3);
    const dev_ptr bias = put_values(&e, n, -1, 1), w = put_values(&e, n, -1, 1);
    const struct op_encode op = {
        .count = count, .width = n, .bias = bias, .norm_weight = w, .norm_bias = bias};
    struct reading r = {op, false, 0};
    r.op.kind = ENCODE_NORM;
    begin_anew(&e);
    check_reader(&e, r, x, y);
    r.op.kind = ENCODE_ADD_NORM;
    begin_anew(&e);
    check_reader(&e, r, x, y);
    begin_anew(&e);
    keep_keys(&e, x, y);
    r.op.kind = ENCODE_ATTEND;
    check_reader(&e, r, x, y);
    r = (struct reading){op, true, 0x1p-8};
    r.op.kind = ENCODE_ACT;
    r.op.function = GLU_GELU_TANH;
    begin_anew(&e);
    check_reader(&e, r, x, y);
    r.op.function = GLU_GELU_ERF;
    r.op.by_token = true;
    r.op.count = count / 4;
    begin_anew(&e);
    check_reader(&e, r, x, y);
    free(x);
    free(y);
    encode_done(&e);
}

TEST(a_product_reads_what_another_product_left)
{
    NEEDS_GPU;
    struct encode e;
    encode_init(&e, 2, 72, COMPUTE_BF16, 6, 10);
    begin_anew(&e);
    check_chained(&e);
    encode_done(&e);
}

TEST_MAIN()
