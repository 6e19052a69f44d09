/* vector_head.c - reads and applies the matrices after the pooling.
 *
 * The widest that are known take 5 million products a vector, below a hundredth of its forward pass. So they
 * are not an operation of the compute contract: mean pooling is on the host, too. */
#include "model/vector_head.h"

#include "model/config/config.h"
#include "model/config/json_read.h"
#include "model/family/family.h"

#include "base/arena.h"
#include "base/check.h"
#include "tensor/tensor_naming.h"
#include "weights/checkpoint.h"
#include "weights/model_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 512
#define LANES      16u

/* ---- finding ---- */

static int find_tensor(const struct checkpoint *c, const char *name, uint32_t rank, uint64_t in,
                       struct tensor *ret, struct err *e)
{
    char shape[160];
    if (!checkpoint_find(c, name, ret))
        return err_set(e, -EINVAL, "the checkpoint has no tensor %s", name);
    if (ret->dtype != DTYPE_BF16 && ret->dtype != DTYPE_F16 && ret->dtype != DTYPE_F32)
        return err_set(e, -ENOTSUP, "%s: tensor %s has dtype %s; supported are BF16, F16 and F32",
                       checkpoint_file_of(c, name), name, dtype_name(ret->dtype));
    if (ret->rank != rank || ret->shape[rank - 1] != in || ret->shape[0] == 0 ||
        ret->shape[0] > CONFIG_HIDDEN_MAX)
        return err_set(e, -EINVAL, "%s: tensor %s has shape %s; its last number must be %llu",
                       checkpoint_file_of(c, name), name,
                       tensor_shape_text(ret->rank, ret->shape, shape, sizeof(shape)), (ull)in);
    return 0;
}

/* One more layer, of module `path`, with a bias if the checkpoint has one. */
static int add_layer(struct vector_head_source *s, const struct checkpoint *c, const char *path, uint32_t in,
                     bool tanh, struct err *e)
{
    char name[NAME_BYTES];
    struct vector_head *h = &s->shape;
    ASSERT(h->count < VECTOR_HEAD_MAX);
    struct vector_layer *l = &h->layer[h->count];
    s->checkpoint[h->count] = c;
    snprintf(name, sizeof(name), "%s.weight", path);
    int r = find_tensor(c, name, 2, in, &s->weight[h->count], e);
    if (r < 0)
        return r;
    *l = (struct vector_layer){.in = in, .out = (uint32_t)s->weight[h->count].shape[0], .tanh = tanh};
    snprintf(name, sizeof(name), "%s.bias", path);
    if (checkpoint_find(c, name, &s->bias[h->count])) {
        s->has_bias[h->count] = true;
        r = find_tensor(c, name, 1, l->out, &s->bias[h->count], e);
    }
    h->count++;
    return r;
}

/* A module may stand below the text model's prefix or beside it. */
static bool find_module(const struct checkpoint *c, const char *prefix, const char *path,
                        char ret[NAME_BYTES])
{
    const char *const prefixes[] = {prefix, ""};
    char name[NAME_BYTES + 8];
    struct tensor t;
    for (size_t i = 0; path && i < COUNT_OF(prefixes); i++) {
        snprintf(ret, NAME_BYTES, "%s%s", prefixes[i], path);
        snprintf(name, sizeof(name), "%s.weight", ret);
        if (checkpoint_find(c, name, &t))
            return true;
    }
    return false;
}

static const char *name_of(const struct config *c, enum tensor_role role)
{
    const char *name = role_name(c->family->tensors, role, 0);
    return name && c->naming ? tensor_naming_of(c->naming, role) : name;
}

/* The row of one token, perhaps a dense layer and tanh, then a score for each label. */
static int find_classifier(struct vector_head_source *s, const struct pooling_config *pooling,
                           const struct config *c, const struct checkpoint *checkpoint, const char *prefix,
                           struct err *e)
{
    char score[NAME_BYTES], dense[NAME_BYTES];
    const char *const between = name_of(c, ROLE_SCORE_DENSE);
    uint32_t width = c->hidden;
    int r = 0;
    if (!find_module(checkpoint, prefix, name_of(c, ROLE_SCORE), score))
        return 0;
    if (between) {
        if (!find_module(checkpoint, prefix, between, dense))
            return err_set(
                e, -ENOTSUP,
                "tensor %s.weight without %s.weight: a classifier of single tokens is not supported", score,
                between);
        r = add_layer(s, checkpoint, dense, width, true, e);
        width = s->shape.layer[0].out;
    }
    if (r == 0)
        r = add_layer(s, checkpoint, score, width, false, e);
    if (r < 0)
        return r;
    struct vector_layer *last = &s->shape.layer[s->shape.count - 1];
    if (pooling->yes_no && last->out == 2) {
        last->minus = true;
        last->out = 1;
    }
    s->shape.labels = last->out;
    return s->shape.labels == 1
               ? 0
               : err_set(e, -ENOTSUP, "tensor %s.weight has %u labels; classifiers with one are supported",
                         score, s->shape.labels);
}

/* The activation by the end of its class's name. */
static bool read_activation(struct json_read *r)
{
    const char *name = json_read_string_or(r, "activation_function", "torch.nn.modules.activation.Tanh");
    const char *class = pooling_class(name);
    bool tanh = strcmp(class, "Tanh") == 0;
    if (!tanh && strcmp(class, "Identity") != 0)
        json_read_fail(r, -ENOTSUP, "activation_function '%.80s' is not supported; Identity and Tanh are",
                       name);
    return tanh;
}

static int find_dense(struct arena *a, struct model_files *files, const char *folder, struct account *account,
                      uint32_t in, struct vector_head_source *s, struct err *e)
{
    char where[POOLING_FOLDER_BYTES + 16];
    json_t *config = NULL;
    struct checkpoint *opened;
    snprintf(where, sizeof(where), "%s/config.json", folder);
    int r = model_json(files, where, &config, e);
    if (r < 0)
        return r;
    struct json_read in_config = {.object = config, .where = where, .e = e};
    bool tanh = read_activation(&in_config);
    json_decref(config);
    if (in_config.error)
        return in_config.error;
    r = checkpoint_open(a, files, folder, account, &opened, e);
    return r == 0 ? add_layer(s, opened, "linear", in, tanh, e) : r;
}

int vector_head_find(struct arena *a, struct model_files *files, const struct pooling_config *pooling,
                     const struct config *c, const struct checkpoint *checkpoint, const char *prefix,
                     struct account *account, struct vector_head_source *ret, struct err *e)
{
    int r = 0;
    *ret = (struct vector_head_source){0};
    if (pooling->kind == POOLING_NONE)
        return find_classifier(ret, pooling, c, checkpoint, prefix, e);
    for (uint32_t i = 0; r == 0 && i < pooling->dense_count; i++)
        r = find_dense(a, files, pooling->dense[i], account, vector_head_width(&ret->shape, c->hidden), ret,
                       e);
    return r;
}

/* ---- reading ---- */

uint32_t vector_head_width(const struct vector_head *h, uint32_t hidden)
{
    return h->count > 0 ? h->layer[h->count - 1].out : hidden;
}

uint32_t vector_head_width_max(const struct vector_head *h, uint32_t hidden)
{
    return MAX_OF(vector_head_width(h, hidden), hidden);
}

static uint32_t widest(const struct vector_head *h)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < h->count; i++)
        most = MAX_OF(most, h->layer[i].out);
    return most;
}

/* In the file. */
static uint32_t rows_of(const struct vector_layer *l)
{
    return l->minus ? 2 : l->out;
}

uint64_t vector_head_bytes(const struct vector_head *h)
{
    uint64_t floats = 2 * (uint64_t)widest(h);
    for (uint32_t i = 0; i < h->count; i++)
        floats += (uint64_t)rows_of(&h->layer[i]) * (h->layer[i].in + 1);
    return floats * sizeof(float) + (2 * (uint64_t)h->count + 2) * 64;
}

/* n values from value `from` of a tensor on. Narrower ones are read to the end of their place, and widened
 * from its begin on. */
static int read_values(const struct checkpoint *c, const struct tensor *t, uint64_t from, uint32_t n,
                       float *ret, struct err *e)
{
    size_t bytes = dtype_bytes(t->dtype), len = n * bytes;
    char *raw = (char *)ret + n * sizeof(float) - len;
    struct tensor one = *t;
    int r = checkpoint_read(c, t, from * bytes, raw, len, e);
    if (r < 0)
        return r;
    one.data = raw;
    for (uint32_t i = 0; i < n; i++) {
        float x = tensor_f32_at(&one, i);
        if (!isfinite(x))
            return err_set(e, -EINVAL, "a matrix after the pooling has a value that is not finite");
        memcpy(&ret[i], &x, sizeof(x));
    }
    return 0;
}

static int read_layer(struct arena *a, const struct vector_head_source *s, uint32_t i,
                      struct vector_layer *ret, struct err *e)
{
    struct vector_layer l = s->shape.layer[i];
    const uint32_t rows = rows_of(&l);
    float *weight = arena_alloc_array(a, (size_t)rows * l.in, sizeof(float));
    float *bias = s->has_bias[i] ? arena_alloc_array(a, rows, sizeof(float)) : NULL;
    int r = 0;
    if (!weight || (s->has_bias[i] && !bias))
        return err_set(e, -ENOMEM, "no memory left for the matrices after the pooling");
    for (uint32_t row = 0; r == 0 && row < rows; row++)
        r = read_values(s->checkpoint[i], &s->weight[i], (uint64_t)row * l.in, l.in,
                        weight + (size_t)row * l.in, e);
    if (r == 0 && bias)
        r = read_values(s->checkpoint[i], &s->bias[i], 0, rows, bias, e);
    for (uint32_t k = 0; r == 0 && l.minus && k < l.in; k++)
        weight[k] -= weight[l.in + k];
    if (r == 0 && l.minus && bias)
        bias[0] -= bias[1];
    l.weight = weight;
    l.bias = bias;
    *ret = l;
    return r;
}

int vector_head_read(struct arena *a, const struct vector_head_source *s, struct vector_head *ret,
                     struct err *e)
{
    struct vector_head h = s->shape;
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < h.count; i++)
        r = read_layer(a, s, i, &h.layer[i], e);
    for (size_t i = 0; r == 0 && h.count > 0 && i < COUNT_OF(h.between); i++) {
        h.between[i] = arena_alloc_array(a, widest(&h), sizeof(float));
        if (!h.between[i])
            r = err_set(e, -ENOMEM, "no memory left for the matrices after the pooling");
    }
    if (r == 0)
        *ret = h;
    return r;
}

/* ---- applying ---- */

/* Lane k sums every LANES-th product from k on; then the lanes are added in order. */
static float dot(const float *w, const float *x, uint32_t n)
{
    float lanes[LANES] = {0}, sum = 0;
    uint32_t whole = n - n % LANES;
    for (uint32_t i = 0; i < whole; i += LANES)
        for (uint32_t k = 0; k < LANES; k++)
            lanes[k] += w[i + k] * x[i + k];
    for (uint32_t i = whole; i < n; i++)
        lanes[i - whole] += w[i] * x[i];
    for (uint32_t k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

static void apply_layer(const struct vector_layer *l, const float *x, float *y)
{
    for (uint32_t o = 0; o < l->out; o++) {
        float sum = dot(l->weight + (size_t)o * l->in, x, l->in) + (l->bias ? l->bias[o] : 0);
        y[o] = l->tanh ? tanhf(sum) : sum;
    }
}

void vector_head_apply(const struct vector_head *h, float *vector)
{
    const float *x = vector;
    for (uint32_t i = 0; i < h->count; i++) {
        apply_layer(&h->layer[i], x, h->between[i % 2]);
        x = h->between[i % 2];
    }
    if (h->count > 0)
        memcpy(vector, x, h->layer[h->count - 1].out * sizeof(*vector));
}
