/* binder_vector.c - vectors as f32, unchanged or changed on their way in. */
#include "model/config/config.h"
#include "model/load/binder.h"
#include "model/load/packers.h"
#include "model/load/weight_staging.h"
#include "model/load/weight_memory.h"

#include "base/check.h"
#include "compute/ops.h"
#include "memory/domain.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static void count_vector(struct binder *b, const struct tensor *t, uint64_t n)
{
    b->parameters += n;
    b->source_bytes += t->bytes;
    b->stage_bytes = MAX_OF(b->stage_bytes, weight_staging_vector_bytes(t));
    b->active.bytes += n * sizeof(float);
    b->active.source_bytes += t->bytes;
}

static int take_floats(struct binder *b, const struct tensor *t, uint64_t n, dev_ptr *ret)
{
    count_vector(b, t, n);
    return binder_take(b, n * sizeof(float), ret);
}

/* The values of a tensor that take_floats made room for. */
static int read_floats(struct binder *b, const struct tensor *from, const char *name, struct tensor *ret)
{
    int r = weight_staging_vector(packers_staging(b->packers), from, ret, b->e);
    if (r == 0)
        r = binder_check_finite(b, ret, name);
    return r == 0 ? binder_advance(b, from->bytes) : r;
}

/* Files have some vectors in more dimensions: as a column, a row, one number of each other dimension, or if
 * `grouped` as a row for each group. A number has none. */
static void as_vector(struct tensor *t, uint64_t n, bool grouped)
{
    bool longest = t->rank == 0 && n == 1;
    for (uint32_t i = 0; i < t->rank; i++)
        longest |= t->shape[i] == n;
    if (t->rank == 1 || tensor_count(t) != n || !(longest || (grouped && t->rank == 2)))
        return;
    t->rank = 1;
    t->shape[0] = n;
}

/* Vector `path`, with or without a trailing ".weight", or as old files name a LayerNorm's. */
static int find_vector(struct binder *b, const char *path, uint64_t n, struct tensor *t,
                       char name[BINDER_NAME_MAX])
{
    if (!binder_find_optional(b, binder_name(b, path, "", name), t) &&
        !binder_find_optional(b, binder_name(b, path, ".gamma", name), t)) {
        int r = binder_find(b, binder_name(b, path, ".weight", name), t);
        if (r < 0)
            return r;
    }
    as_vector(t, n, b->config->naming != NULL);
    int r = binder_check_float(b, name, t);
    return r < 0 ? r : binder_check_shape(b, name, t, 1, &n);
}

/* Change of a value on its way in. */
enum vector_change { VECTOR_AS_IS, VECTOR_PLUS_ONE, VECTOR_PLUS_ONE_BY_MEAN, VECTOR_MINUS_EXP };

/* Weights of norms are about 1, so weights stored as w - 1 are about 0. */
static enum vector_change change_by_mean(const struct tensor *t, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)tensor_f32_at(t, i);
    return sum / (double)n < 0.5 ? VECTOR_PLUS_ONE : VECTOR_AS_IS;
}

static float changed(float x, enum vector_change change)
{
    switch (change) {
    case VECTOR_PLUS_ONE:
        return x + 1;
    case VECTOR_MINUS_EXP:
        return -expf(x);
    default:
        return x;
    }
}

/* Source of a packed vector. It is put a block at a time, for packed memory may be a device's. */
struct vector_source {
    const struct tensor *tensor;
    enum vector_change change;
    float factor;                /* 0: none */
    uint32_t rows, columns;      /* shape of a transposed matrix [columns][rows]; rows 0: in order */
    struct tensor_reorder order; /* order of the vector, or of those columns */
};

static float vector_at(const struct vector_source *v, uint64_t i)
{
    uint64_t index = v->rows ? tensor_reorder_at(&v->order, i % v->columns) * v->rows + i / v->columns
                             : tensor_reorder_at(&v->order, i);
    float x = changed(tensor_f32_at(v->tensor, index), v->change);
    return v->factor != 0 ? x * v->factor : x;
}

/* Values [first, first + n). */
static void put_floats(struct binder *b, const struct vector_source *v, uint64_t first, uint64_t n,
                       dev_ptr to)
{
    enum { BLOCK = 256 };
    float block[BLOCK];
    for (uint64_t from = 0; from < n; from += BLOCK) {
        uint64_t count = MIN_OF(n - from, (uint64_t)BLOCK);
        for (uint64_t i = 0; i < count; i++)
            block[i] = vector_at(v, first + from + i);
        domain_put(b->memory->domain, dev_add(to, from * sizeof(float)), block, count * sizeof(float));
    }
}

static int bind_vector(struct binder *b, const char *path, uint64_t n, enum vector_change change,
                       float factor, dev_ptr *ret)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    int r = find_vector(b, path, n, &t, name);
    if (r == 0)
        r = take_floats(b, &t, n, ret);
    if (r < 0 || !binder_packs(b))
        return r;
    r = read_floats(b, &t, name, &t);
    if (r < 0)
        return r;
    if (change == VECTOR_PLUS_ONE_BY_MEAN)
        change = change_by_mean(&t, n);
    const struct vector_source v = {
        .tensor = &t, .change = change, .factor = factor, .order = binder_naming_order(b, path)};
    put_floats(b, &v, 0, n, *ret);
    return 0;
}

static bool any_bias(const struct linear_source *parts, uint32_t count)
{
    bool any = false;
    for (uint32_t i = 0; i < count; i++)
        any |= parts[i].has_bias;
    return any;
}

static int put_bias(struct binder *b, const struct linear_source *s, dev_ptr to)
{
    struct tensor t;
    int r = read_floats(b, &s->bias, "a bias", &t);
    struct vector_source v = {.tensor = &t, .factor = s->bias_factor, .order = s->row_order};
    if (s->interleaved) {
        v.rows = 2;
        v.columns = (uint32_t)(s->out / 2);
    }
    if (r == 0)
        put_floats(b, &v, 0, s->out, to);
    return r;
}

int binder_biases(struct binder *b, const struct linear_source *parts, uint32_t count, dev_ptr *ret)
{
    uint64_t at = 0, out = 0;
    int r = 0;
    *ret = DEV_NULL;
    if (!any_bias(parts, count))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        out += parts[i].out;
        if (parts[i].has_bias)
            count_vector(b, &parts[i].bias, parts[i].out);
    }
    r = binder_take(b, out * sizeof(float), ret);
    for (uint32_t i = 0; r == 0 && binder_packs(b) && i < count; at += parts[i++].out) {
        if (parts[i].has_bias)
            r = put_bias(b, &parts[i], dev_add(*ret, at * sizeof(float)));
    }
    return r;
}

int binder_vector(struct binder *b, const char *path, uint64_t n, dev_ptr *ret)
{
    return bind_vector(b, path, n, VECTOR_AS_IS, 0, ret);
}

int binder_vector_times(struct binder *b, const char *path, uint64_t n, float factor, dev_ptr *ret)
{
    return bind_vector(b, path, n, VECTOR_AS_IS, factor, ret);
}

int binder_ones(struct binder *b, uint64_t n, dev_ptr *ret)
{
    const float one = 1;
    int r = binder_take(b, n * sizeof(float), ret);
    for (uint64_t i = 0; r == 0 && binder_packs(b) && i < n; i++)
        domain_put(b->memory->domain, dev_add(*ret, i * sizeof(float)), &one, sizeof(one));
    return r;
}

int binder_number(struct binder *b, const char *path, float *ret)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    int r = find_vector(b, path, 1, &t, name);
    if (r < 0)
        return r;
    count_vector(b, &t, 1);
    if (!binder_packs(b))
        return 0;
    r = read_floats(b, &t, name, &t);
    if (r == 0)
        *ret = tensor_f32_at(&t, 0);
    return r;
}

int binder_numbers(struct binder *b, const float *values, uint64_t n, dev_ptr *ret)
{
    int r = binder_take(b, n * sizeof(float), ret);
    if (r == 0 && binder_packs(b))
        domain_put(b->memory->domain, *ret, values, n * sizeof(float));
    return r;
}

int binder_norm(struct binder *b, const char *path, uint64_t n, dev_ptr *ret)
{
    return bind_vector(b, path, n,
                       b->add_one_by_mean ? VECTOR_PLUS_ONE_BY_MEAN
                       : b->add_one       ? VECTOR_PLUS_ONE
                                          : VECTOR_AS_IS,
                       0, ret);
}

int binder_norm_biased(struct binder *b, const char *path, uint64_t n, struct norm *ret)
{
    char bias[BINDER_PATH_MAX], name[BINDER_NAME_MAX];
    struct tensor t;
    ret->bias = DEV_NULL;
    int r = binder_norm(b, path, n, &ret->weight);
    bool old = binder_find_optional(b, binder_name(b, path, ".beta", name), &t);
    snprintf(bias, sizeof(bias), "%s%s", path, old ? ".beta" : ".bias");
    if (r < 0 || !binder_find_optional(b, binder_name(b, bias, "", name), &t))
        return r;
    if (!b->config->layer_norm)
        return err_set(b->e, -ENOTSUP, "tensor %s: a bias of this norm is not supported", name);
    return binder_vector(b, bias, n, &ret->bias);
}

int binder_decay(struct binder *b, const char *path, uint64_t n, dev_ptr *ret)
{
    /* A GGUF file has -exp(A_log). */
    return bind_vector(b, path, n, b->config->naming ? VECTOR_AS_IS : VECTOR_MINUS_EXP, 0, ret);
}

/* Dimensions of 1 are left out. */
static void without_ones(struct tensor *t)
{
    uint32_t rank = 0;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] != 1)
            t->shape[rank++] = t->shape[i];
    }
    t->rank = rank;
}

/* A convolution of `channels` channels, its shape checked. */
static int find_conv(struct binder *b, const char *path, uint32_t channels, uint32_t conv_width,
                     struct tensor *t, char name[BINDER_NAME_MAX])
{
    const uint64_t hf[3] = {channels, 1, conv_width}, mlx[3] = {channels, conv_width, 1};
    const uint64_t own[2] = {channels, conv_width};
    int r = binder_find(b, binder_name(b, path, ".weight", name), t);
    if (r == 0)
        r = binder_check_float(b, name, t);
    /* Every layer must have the writer's one layout: a mixture would mean that the norms are a mixture
     * too. */
    if (r == 0 && b->config->naming) {
        without_ones(t);
        return binder_check_shape(b, name, t, 2, own);
    }
    return r < 0 ? r
                 : binder_check_shape(b, name, t, 3,
                                      binder_conv_is_mlx(t, conv_width) && !b->add_one ? mlx : hf);
}

/* Puts a convolution's taps to `to`: a row of each, every `stride` channels. */
static int put_conv(struct binder *b, const char *path, const char *name, const struct tensor *from,
                    uint32_t channels, uint32_t taps, uint32_t stride, dev_ptr to)
{
    struct tensor t;
    int r = read_floats(b, from, name, &t);
    /* Both layouts hold a channel's taps one after the other. */
    const struct vector_source v = {
        .tensor = &t, .rows = taps, .columns = channels, .order = binder_naming_order(b, path)};
    for (uint32_t i = 0; r == 0 && i < taps; i++)
        put_floats(b, &v, (uint64_t)i * channels, channels,
                   dev_add(to, (uint64_t)i * stride * sizeof(float)));
    return r;
}

int binder_convs(struct binder *b, const char *const *paths, uint32_t count, uint32_t each,
                 uint32_t conv_width, dev_ptr *ret)
{
    enum { PARTS_MAX = 3 };
    char names[PARTS_MAX][BINDER_NAME_MAX];
    struct tensor parts[PARTS_MAX];
    int r = 0;
    ASSERT(count > 0 && count <= PARTS_MAX);
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = find_conv(b, paths[i], each, conv_width, &parts[i], names[i]);
        if (r == 0)
            count_vector(b, &parts[i], (uint64_t)each * conv_width);
    }
    if (r == 0)
        r = binder_take(b, (uint64_t)count * each * conv_width * sizeof(float), ret);
    for (uint32_t i = 0; r == 0 && binder_packs(b) && i < count; i++)
        r = put_conv(b, paths[i], names[i], &parts[i], each, conv_width, count * each,
                     dev_add(*ret, (uint64_t)i * each * sizeof(float)));
    return r;
}

int binder_conv(struct binder *b, const char *path, uint32_t channels, uint32_t conv_width, dev_ptr *ret)
{
    return binder_convs(b, &path, 1, channels, conv_width, ret);
}
