/* The vision encoder: the textbook's numbers at sizes that no golden has, the same bits however its work is
 * cut, and its memory. */
#include "model_path.h"
#include "small_vision.h"
#include "test_ledger.h"

#include "model/vision_encoder.h"

#include "memory/units.h"

#include <errno.h>
#include <math.h>

/* ---- the textbook, in double ---- */

/* Marks the loops of the textbook's encoder, which one thread runs on arrays of its own. */
#define ONE_THREAD __attribute__((no_sanitize("thread")))

struct book {
    const struct small_vision *s;
    struct test_tensors *tensors;
    uint32_t rows, columns, patches;
    double *x; /* [patches][hidden] */
};

ONE_THREAD static double value_of(const struct book *b, const char *head, const char *name, uint64_t i)
{
    char path[192];
    snprintf(path, sizeof(path), "model.visual.%s%s", head, name);
    return (double)((const float *)test_tensor_find(b->tensors, path)->t.data)[i];
}

static const float *data_of(const struct book *b, const char *head, const char *name)
{
    char path[192];
    snprintf(path, sizeof(path), "model.visual.%s%s", head, name);
    const struct test_tensor *t = test_tensor_find(b->tensors, path);
    assert_non_null(t);
    return t->t.data;
}

/* y = W x + b for `count` rows. */
ONE_THREAD static double *linear(const struct book *b, const char *head, const char *name, const double *x,
                                 uint32_t count, uint32_t out, uint32_t in)
{
    char part[64];
    snprintf(part, sizeof(part), "%s.weight", name);
    const float *w = data_of(b, head, part);
    snprintf(part, sizeof(part), "%s.bias", name);
    const float *bias = data_of(b, head, part);
    double *y = malloc((size_t)count * out * sizeof(double));
    for (uint32_t t = 0; t < count; t++) {
        for (uint32_t o = 0; o < out; o++) {
            double sum = (double)bias[o];
            for (uint32_t i = 0; i < in; i++)
                sum += (double)w[(size_t)o * in + i] * x[(size_t)t * in + i];
            y[(size_t)t * out + o] = sum;
        }
    }
    return y;
}

ONE_THREAD static double *normed(const struct book *b, const char *head, const char *name, const double *x,
                                 uint32_t count, uint32_t n)
{
    char part[64];
    snprintf(part, sizeof(part), "%s.weight", name);
    const float *w = data_of(b, head, part);
    snprintf(part, sizeof(part), "%s.bias", name);
    const float *bias = data_of(b, head, part);
    double *y = malloc((size_t)count * n * sizeof(double));
    for (uint32_t t = 0; t < count; t++) {
        const double *at = x + (size_t)t * n;
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < n; i++)
            mean += at[i] / n;
        for (uint32_t i = 0; i < n; i++)
            variance += (at[i] - mean) * (at[i] - mean) / n;
        for (uint32_t i = 0; i < n; i++)
            y[(size_t)t * n + i] =
                (at[i] - mean) / sqrt(variance + SMALL_VISION_EPS) * (double)w[i] + (double)bias[i];
    }
    return y;
}

static void add_all(double *x, double *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] += y[i];
    free(y);
}

/* Patches of a token follow one another: block row, block column, row, column. */
static void place(const struct book *b, uint32_t patch, uint32_t *row, uint32_t *column)
{
    uint32_t m = b->s->merge, across = b->columns / m, token = patch / (m * m), within = patch % (m * m);
    *row = token / across * m + within / m;
    *column = token % across * m + within % m;
}

ONE_THREAD static double position(const struct book *b, uint32_t row, uint32_t column, uint32_t i)
{
    uint32_t g = b->s->grid;
    double r = b->rows > 1 ? (double)row * (g - 1) / (b->rows - 1) : 0;
    double c = b->columns > 1 ? (double)column * (g - 1) / (b->columns - 1) : 0;
    uint32_t r0 = (uint32_t)r, c0 = (uint32_t)c, r1 = MIN_OF(r0 + 1, g - 1), c1 = MIN_OF(c0 + 1, g - 1);
    const struct {
        uint32_t at;
        double part;
    } corners[] = {{r0 * g + c0, (1 - (r - r0)) * (1 - (c - c0))},
                   {r0 * g + c1, (1 - (r - r0)) * (c - c0)},
                   {r1 * g + c0, (r - r0) * (1 - (c - c0))},
                   {r1 * g + c1, (r - r0) * (c - c0)}};
    double sum = 0;
    for (int k = 0; k < 4; k++)
        sum +=
            corners[k].part * value_of(b, "", "pos_embed.weight", (uint64_t)corners[k].at * b->s->hidden + i);
    return sum;
}

ONE_THREAD static void embed(struct book *b, const struct model_image *p)
{
    const uint32_t n = 3 * 2 * SMALL_PATCH * SMALL_PATCH;
    double *pixels = malloc((size_t)b->patches * n * sizeof(double));
    for (uint32_t t = 0; t < b->patches; t++) {
        double *at = pixels + (size_t)t * n;
        uint32_t row, column;
        place(b, t, &row, &column);
        for (uint32_t c = 0; c < 3; c++)
            for (uint32_t f = 0; f < 2; f++)
                for (uint32_t y = 0; y < SMALL_PATCH; y++)
                    for (uint32_t x = 0; x < SMALL_PATCH; x++)
                        *at++ = (p->frames[f][((size_t)(row * SMALL_PATCH + y) * p->width +
                                               column * SMALL_PATCH + x) *
                                                  3 +
                                              c] /
                                     255.0 -
                                 0.5) /
                                0.5;
    }
    b->x = linear(b, "", "patch_embed.proj", pixels, b->patches, b->s->hidden, n);
    free(pixels);
    for (uint32_t t = 0; t < b->patches; t++) {
        uint32_t row, column;
        place(b, t, &row, &column);
        for (uint32_t i = 0; i < b->s->hidden; i++)
            b->x[(size_t)t * b->s->hidden + i] += position(b, row, column, i);
    }
}

ONE_THREAD static void rotate(const struct book *b, double *head, uint32_t patch)
{
    uint32_t half = b->s->hidden / b->s->heads / 2, row, column;
    place(b, patch, &row, &column);
    for (uint32_t j = 0; j < half; j++) {
        double inv = pow(10000, -2.0 * (j % (half / 2)) / half);
        double angle = (j < half / 2 ? row : column) * (double)(float)inv, low = head[j],
               high = head[j + half];
        head[j] = low * cos(angle) - high * sin(angle);
        head[j + half] = high * cos(angle) + low * sin(angle);
    }
}

/* One query over all patches. */
ONE_THREAD static void attend(const double *qkv, uint32_t patches, uint32_t hidden, uint32_t hd, uint32_t t,
                              uint32_t head, double *out)
{
    double *p = malloc(patches * sizeof(double)), max = -INFINITY, sum = 0;
    const double *q = qkv + (size_t)t * 3 * hidden + (size_t)head * hd;
    for (uint32_t k = 0; k < patches; k++) {
        const double *key = qkv + (size_t)k * 3 * hidden + hidden + (size_t)head * hd;
        p[k] = 0;
        for (uint32_t d = 0; d < hd; d++)
            p[k] += q[d] * key[d] / sqrt(hd);
        max = fmax(max, p[k]);
    }
    for (uint32_t k = 0; k < patches; k++)
        sum += p[k] = exp(p[k] - max);
    for (uint32_t d = 0; d < hd; d++) {
        out[d] = 0;
        for (uint32_t k = 0; k < patches; k++)
            out[d] += p[k] / sum * qkv[(size_t)k * 3 * hidden + 2 * hidden + (size_t)head * hd + d];
    }
    free(p);
}

static void mix(struct book *b, const char *head)
{
    uint32_t n = b->s->hidden, hd = n / b->s->heads;
    double *x = normed(b, head, "norm1", b->x, b->patches, n);
    double *qkv = linear(b, head, "attn.qkv", x, b->patches, 3 * n, n);
    for (uint32_t t = 0; t < b->patches; t++)
        for (uint32_t h = 0; h < 2 * b->s->heads; h++)
            rotate(b, qkv + (size_t)t * 3 * n + (size_t)h * hd, t);
    for (uint32_t t = 0; t < b->patches; t++)
        for (uint32_t h = 0; h < b->s->heads; h++)
            attend(qkv, b->patches, n, hd, t, h, x + (size_t)t * n + (size_t)h * hd);
    free(qkv);
    add_all(b->x, linear(b, head, "attn.proj", x, b->patches, n, n), (size_t)b->patches * n);
    free(x);
}

static void feed(struct book *b, const char *head)
{
    uint32_t n = b->s->hidden, mid = b->s->intermediate;
    double *x = normed(b, head, "norm2", b->x, b->patches, n);
    double *up = linear(b, head, "mlp.linear_fc1", x, b->patches, mid, n);
    free(x);
    for (size_t i = 0; i < (size_t)b->patches * mid; i++)
        up[i] *= 0.5 * (1 + tanh(sqrt(2 / M_PI) * (up[i] + 0.044715 * up[i] * up[i] * up[i])));
    add_all(b->x, linear(b, head, "mlp.linear_fc2", up, b->patches, n, mid), (size_t)b->patches * n);
    free(up);
}

/* [tokens][SMALL_OUT] */
static double *merge(const struct book *b, const char *head, bool norm_first)
{
    uint32_t n = b->s->hidden, merged = small_merged(b->s), tokens = b->patches * n / merged;
    double *x = norm_first ? normed(b, head, "norm", b->x, b->patches, n)
                           : normed(b, head, "norm", b->x, tokens, merged);
    double *up = linear(b, head, "linear_fc1", x, tokens, merged, merged);
    free(x);
    for (size_t i = 0; i < (size_t)tokens * merged; i++)
        up[i] *= 0.5 * (1 + erf(up[i] / sqrt(2)));
    double *out = linear(b, head, "linear_fc2", up, tokens, SMALL_OUT, merged);
    free(up);
    return out;
}

/* The largest distance of the features from the textbook's, in parts of those' root mean square. */
static double distance(const struct small_vision *s, struct test_tensors *tensors,
                       const struct small_image *p)
{
    struct book b = {
        .s = s, .tensors = tensors, .rows = p->in.height / SMALL_PATCH, .columns = p->in.width / SMALL_PATCH};
    double *features[1 + 8] = {0}, worst = 0, squares = 0;
    uint32_t tokens, parts = 1 + s->deepstack;
    char head[64];
    b.patches = b.rows * b.columns;
    tokens = b.patches / (s->merge * s->merge);
    embed(&b, &p->in);
    for (uint32_t i = 0; i < s->depth; i++) {
        snprintf(head, sizeof(head), "blocks.%u.", i);
        mix(&b, head);
        feed(&b, head);
        snprintf(head, sizeof(head), "deepstack_merger_list.%u.", i);
        if (i < s->deepstack)
            features[1 + i] = merge(&b, head, false);
    }
    features[0] = merge(&b, "merger.", true);
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t i = 0; i < parts * SMALL_OUT; i++) {
            double want = features[i / SMALL_OUT][(size_t)t * SMALL_OUT + i % SMALL_OUT];
            worst = fmax(worst, fabs(want - (double)p->features[(size_t)t * parts * SMALL_OUT + i]));
            squares += want * want / (tokens * parts * SMALL_OUT);
        }
    }
    for (uint32_t i = 0; i < parts; i++)
        free(features[i]);
    free(b.x);
    return worst / sqrt(squares);
}

static void check_tower(const struct small_vision *s, const uint32_t (*sizes)[2], size_t count)
{
    struct test_tensors *l = small_vision_tensors(s, 1);
    char *config = small_vision_config(s);
    struct model_opts o = small_opts(NULL);
    struct model *m = small_vision_load(small_write(config, l), &o);
    for (size_t i = 0; i < count; i++) {
        struct small_image p = small_image_make(m, sizes[i][0], sizes[i][1]);
        small_encode(m, &o, &p);
        double far = distance(s, l, &p);
        if (!(far < 1e-4))
            print_message("%u x %u: %g\n", sizes[i][0], sizes[i][1], far);
        assert_true(far < 1e-4);
        small_image_free(&p);
    }
    model_free(m);
    free(config);
    small_free(l);
}

/* Heads whose sizes leave lanes over; one token, lines and columns of tokens, slices that are full and
 * not. */
TEST(every_size_is_the_textbook_s)
{
    static const struct small_vision s = {48, 4, 2, 80, 5, 2, 2};
    static const uint32_t sizes[][2] = {{32, 32}, {32, 288}, {416, 32}, {256, 256}, {320, 288}};
    check_tower(&s, sizes, COUNT_OF(sizes));
}

/* A head so wide that attention takes its keys in several ranges. */
TEST(ranges_of_keys_are_the_textbook_s)
{
    static const struct small_vision s = {144, 2, 1, 64, 7, 0, 2};
    static const uint32_t sizes[][2] = {{512, 320}};
    check_tower(&s, sizes, COUNT_OF(sizes));
}

/* Tokens of one patch, of nine and of sixteen. */
TEST(every_merge_is_the_textbook_s)
{
    static const struct small_vision towers[] = {
        {32, 2, 1, 48, 4, 1, 1}, {32, 2, 1, 48, 4, 1, 3}, {32, 2, 1, 48, 4, 1, 4}};
    for (size_t i = 0; i < COUNT_OF(towers); i++) {
        uint32_t edge = SMALL_PATCH * towers[i].merge, across = 480 / edge;
        const uint32_t sizes[][2] = {{edge, edge}, {across * edge, 7 * edge}};
        check_tower(&towers[i], sizes, COUNT_OF(sizes));
    }
}

/* ---- cutting ---- */

static const struct small_vision usual = {48, 4, 2, 80, 5, 2, 2};

static const char *usual_dir(void)
{
    static const char *dir;
    if (!dir) {
        struct test_tensors *l = small_vision_tensors(&usual, 2);
        char *config = small_vision_config(&usual);
        dir = small_write(config, l);
        free(config);
        small_free(l);
    }
    return dir;
}

/* Piece by piece, with a step of text between pieces now and then. */
/* Slices of passes that are done, and of the whole image; 0 of 0 when none is in progress. */
static void progress(struct model *m, uint64_t *done, uint64_t *all)
{
    const struct vision_encoder *e = model_vision_encoder(m);
    *done = e->busy ? (uint64_t)e->pass * e->slices + e->slice : 0;
    *all = e->busy ? (uint64_t)e->pass_count * e->slices : 0;
}

static uint32_t encode_in_pieces(struct model *m, const struct model_opts *o, struct small_image *p,
                                 bool steps)
{
    struct small_answer answer;
    uint32_t pieces = 0;
    uint64_t done, all, before = 0;
    assert_int_equal(small_begin(m, p), 0);
    for (bool end = false; !end; pieces++) {
        progress(m, &done, &all);
        assert_true(done >= before && done < all);
        before = done;
        device_turn_begin(o->device);
        end = vision_encoder_run(model_vision_encoder(m), 0);
        device_turn_end(o->device);
        if (steps && pieces % 16 == 3)
            small_run(m, o, &answer);
    }
    progress(m, &done, &all);
    assert_true(done == 0 && all == 0);
    small_features(p);
    return pieces;
}

TEST(no_cut_shows_in_the_features)
{
    float *first = NULL;
    for (uint32_t workers = 1; workers <= 3; workers++) {
        struct model_opts o = small_opts(NULL);
        o.device = small_device(workers);
        struct model *m = small_vision_load(usual_dir(), &o);
        struct small_image p = small_image_make(m, 320, 288);
        size_t bytes = p.floats * sizeof(float);
        for (int way = 0; way < 3; way++) {
            small_forget(&p);
            if (way == 0)
                small_encode(m, &o, &p);
            else
                assert_true(encode_in_pieces(m, &o, &p, way == 2) > 50);
            if (!first) {
                first = malloc(bytes);
                memcpy(first, p.features, bytes);
            }
            assert_memory_equal(p.features, first, bytes);
        }
        small_image_free(&p);
        model_free(m);
    }
    free(first);
}

TEST(a_image_that_is_stopped_leaves_no_trace)
{
    struct model_opts o = small_opts(NULL);
    struct model *m = small_vision_load(usual_dir(), &o);
    struct small_image large = small_image_make(m, 320, 288), small = small_image_make(m, 64, 96);
    float *want = malloc(small.floats * sizeof(float));
    small_encode(m, &o, &small);
    memcpy(want, small.features, small.floats * sizeof(float));
    vision_encoder_stop(model_vision_encoder(m));
    for (uint32_t pieces = 0; pieces < 60; pieces += 7) {
        device_turn_begin(o.device);
        assert_int_equal(small_begin(m, &large), 0);
        for (uint32_t i = 0; i < pieces; i++)
            assert_false(vision_encoder_run(model_vision_encoder(m), 0));
        vision_encoder_stop(model_vision_encoder(m));
        device_turn_end(o.device);
        small_forget(&small);
        small_encode(m, &o, &small);
        assert_memory_equal(small.features, want, small.floats * sizeof(float));
    }
    /* Freed with one on its way. */
    assert_int_equal(small_begin(m, &large), 0);
    model_free(m);
    small_image_free(&large);
    small_image_free(&small);
    free(want);
}

/* ---- memory ---- */

static uint64_t reserved(struct account *a)
{
    return account_numbers(a).reserved;
}

TEST(memory_comes_with_a_image_and_goes_unit_by_unit)
{
    if (test_device_is_fake()) /* whose accounts are not below the test's root */
        skip();
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(parent);
    struct model *m = small_vision_load(usual_dir(), &o);
    const struct model_shape *s = model_shape(m);
    struct account *vision = account_find(parent, "vision");
    uint64_t before = reserved(parent), largest = 0;
    static const uint32_t sizes[][2] = {{32, 32}, {1024, 512}, {64, 96}, {2048, 1024}};
    assert_non_null(vision);
    assert_int_equal(account_numbers(vision).planned, model_encode_bytes(s, s->vision.pixels_max));
    assert_int_equal(reserved(vision), 0);
    /* Loaded, the model holds what its shape says, the vision encoder's part included. */
    assert_int_equal(reserved(account_find(parent, "weights")), s->weight_bytes);
    assert_true(reserved(account_find(parent, "tables")) <= s->tables_bytes);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct small_image p = small_image_make(m, sizes[i][0], sizes[i][1]);
        uint64_t bytes = model_encode_bytes(s, (uint64_t)sizes[i][0] * sizes[i][1]);
        assert_int_equal(small_begin(m, &p), 0);
        vision_encoder_stop(model_vision_encoder(m));
        largest = MAX_OF(largest, bytes);
        /* It stays for the next, and the figure is no more than 2 MiB or a tenth too large. */
        assert_true(reserved(vision) <= largest && reserved(vision) + largest / 10 + UNIT_BYTES >= largest);
        assert_int_equal(account_numbers(vision).used, reserved(vision));
        small_image_free(&p);
    }
    for (uint64_t left = reserved(vision), gone; left > 0; left -= gone) {
        gone = MIN_OF(left, UNIT_BYTES);
        assert_int_equal(vision_encoder_trim(model_vision_encoder(m)), left > gone);
        assert_int_equal(reserved(vision), left - gone);
    }
    assert_false(vision_encoder_trim(model_vision_encoder(m)));
    assert_int_equal(reserved(parent), before);
    model_free(m);
    assert_int_equal(reserved(parent), 0);
}

TEST(an_encoder_without_blocks_keeps_no_keys)
{
    if (test_device_is_fake())
        skip();
    struct model_shape s;
    struct err e = {{0}};
    const struct model_parts parts = {.vision = true};
    assert_int_equal(
        model_probe_at(PLATEAU_SOURCE_DIR "/tests/golden/data/gemma4_unified_vl", &parts, &s, &e), 0);
    /* A patch's values of the residual stream, 16 floats, and its part of the number of a page. */
    assert_int_equal(s.vision.encode_patch_bytes, 16 * sizeof(float) + 1);
}

TEST(memory_comes_a_unit_a_call)
{
    if (test_device_is_fake()) /* whose accounts are not below the test's root */
        skip();
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(parent);
    struct model *m = small_vision_load(usual_dir(), &o);
    struct account *vision = account_find(parent, "vision");
    struct small_image p = small_image_make(m, 2048, 1024);
    uint64_t calls = 0;
    int r;
    do {
        r = vision_encoder_begin(model_vision_encoder(m), &p.in);
        assert_int_equal(reserved(vision), ++calls * UNIT_SMALL_BYTES);
    } while (r > 0);
    assert_int_equal(r, 0);
    assert_true(calls > 1);
    vision_encoder_stop(model_vision_encoder(m));
    small_image_free(&p);
    model_free(m);
}

TEST(memory_that_is_refused_leaves_what_was_there)
{
    if (test_device_is_fake()) /* whose accounts are not below the test's root */
        skip();
    struct account *parent = test_account(ACCOUNT_NO_LIMIT);
    struct model_opts o = small_opts(parent);
    struct model *m = small_vision_load(usual_dir(), &o);
    struct account *vision = account_find(parent, "vision");
    struct small_image large = small_image_make(m, 2048, 1024), small = small_image_make(m, 32, 32);
    small_encode(m, &o, &small);
    uint64_t had = reserved(vision), done, all;
    account_set_limit(vision, had + UNIT_SMALL_BYTES);
    assert_int_equal(small_begin(m, &large), -ENOMEM);
    assert_int_equal(reserved(vision), had + UNIT_SMALL_BYTES);
    progress(m, &done, &all);
    assert_int_equal(all, 0);
    small_encode(m, &o, &small);
    account_set_limit(vision, ACCOUNT_NO_LIMIT);
    assert_int_equal(small_begin(m, &large), 0);
    vision_encoder_stop(model_vision_encoder(m));
    small_image_free(&large);
    small_image_free(&small);
    model_free(m);
}

TEST(without_the_part_there_is_no_tower)
{
    struct model_shape with, without;
    const struct model_parts vision = {.vision = true}, capped = {.vision = true, .image_pixels_max = 100000};
    assert_int_equal(model_probe_at(usual_dir(), NULL, &without, NULL), 0);
    assert_int_equal(model_probe_at(usual_dir(), &vision, &with, NULL), 0);
    assert_true(without.has_vision && with.has_vision && with.vision.present && !without.vision.present);
    assert_true(with.vision.weight_bytes > 0 && with.weight_bytes >= without.weight_bytes);
    assert_int_equal(with.vision.feature_floats, 3 * SMALL_OUT);
    assert_int_equal(with.active_weight_bytes, without.active_weight_bytes);
    assert_true(with.parameters > without.parameters);
    assert_int_equal(model_encode_bytes(&without, 1000000), 0);
    assert_int_equal(model_probe_at(usual_dir(), &capped, &with, NULL), 0);
    assert_int_equal(with.vision.pixels_max, 100000);
    /* A text model opened with images has none. */
    assert_int_equal(model_probe_at(SMALL_GOLDEN("llama"), &vision, &with, NULL), 0);
    assert_false(with.vision.present || with.has_vision);
}

/* ---- vision encoders that are wrong ---- */

static void tower_refuses(void (*change)(struct test_tensors *l), const char *says)
{
    struct test_tensors *l = small_vision_tensors(&usual, 5);
    char *config = small_vision_config(&usual);
    struct model_opts o = small_opts(NULL);
    struct model *m = NULL;
    struct err e = {{0}};
    change(l);
    o.parts.vision = true;
    assert_int_equal(model_load_at(small_write(config, l), &o, &m, &e), -EINVAL);
    if (!strstr(e.text, says))
        print_message("%s\n", e.text);
    assert_non_null(strstr(e.text, says));
    free(config);
    small_free(l);
}

static void no_bias(struct test_tensors *l)
{
    test_tensor_remove(l, "model.visual.blocks.1.attn.proj.bias");
}

static void another_patch(struct test_tensors *l)
{
    struct test_tensor *t = test_tensor_find(l, "model.visual.patch_embed.proj.weight");
    t->t.shape[3] = 8;
    t->t.shape[4] = 32;
}

static void small_table(struct test_tensors *l)
{
    struct test_tensor *t = test_tensor_find(l, "model.visual.pos_embed.weight");
    t->t.shape[0] = 24;
    t->t.bytes = tensor_count(&t->t) * sizeof(float);
}

static void endless_norm(struct test_tensors *l)
{
    const float inf = INFINITY;
    memcpy((char *)test_tensor_find(l, "model.visual.deepstack_merger_list.1.norm.weight")->t.data + 8, &inf,
           4);
}

TEST(a_wrong_tower_is_named)
{
    tower_refuses(no_bias, "tensor model.visual.blocks.1.attn.proj.bias is missing");
    tower_refuses(another_patch, "[48, 3, 2, 8, 32], the configuration wants [48, 3, 2, 16, 16]");
    tower_refuses(small_table, "[24, 48], the configuration wants [25, 48]");
    tower_refuses(endless_norm, "infinite or not a number");
}

TEST_MAIN()
