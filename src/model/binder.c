/* binder.c - names, shapes, quantisation; packing itself is the backend's.
 *
 * A module is affine iff it has scales. The configuration gives bits and group (a per-path entry before the
 * global one), and the tensors must agree with it. Packing reads a tensor piece by piece into the stage and
 * drops it from the page cache after reading. So a load holds one copy of the weights and one piece. */
#include "model/binder.h"

#include "compute/backend.h"
#include "model/family.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define NAME_MAX_BYTES 512

static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "model.", ""};

char *binder_path(uint32_t layer, const char *name, char ret[BINDER_PATH_MAX])
{
    int n = snprintf(ret, BINDER_PATH_MAX, "layers.%u.%s", layer, name);
    ASSERT(n > 0 && n < BINDER_PATH_MAX);
    return ret;
}

/* prefix + path + suffix; names of ours are short. */
static const char *full_name(const struct binder *b, const char *path, const char *suffix,
                             char ret[NAME_MAX_BYTES])
{
    int n = snprintf(ret, NAME_MAX_BYTES, "%s%s%s", b->prefix, path, suffix);
    ASSERT(n > 0 && n < NAME_MAX_BYTES);
    return ret;
}

static int wrong_shape(struct binder *b, const char *name, const struct tensor *t, uint32_t rank,
                       const uint64_t *wanted)
{
    char has[160], wants[160];
    return err_set(b->e, -EINVAL, "%s: tensor %s has shape %s, the configuration wants %s",
                   checkpoint_file_of(b->checkpoint, name), name,
                   tensor_shape_text(t->rank, t->shape, has, sizeof(has)),
                   tensor_shape_text(rank, wanted, wants, sizeof(wants)));
}

static bool has_shape(const struct tensor *t, uint32_t rank, const uint64_t *wanted)
{
    bool same = t->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++)
        same = t->shape[i] == wanted[i];
    return same;
}

static int check_shape(struct binder *b, const char *name, const struct tensor *t, uint32_t rank,
                       const uint64_t *wanted)
{
    return has_shape(t, rank, wanted) ? 0 : wrong_shape(b, name, t, rank, wanted);
}

static bool is_float(const struct tensor *t)
{
    return t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F16 || t->dtype == DTYPE_F32;
}

static int check_float(struct binder *b, const char *name, const struct tensor *t)
{
    return is_float(t)
               ? 0
               : err_set(b->e, -ENOTSUP, "%s: tensor %s has dtype %s; supported are BF16, F16 and F32",
                         checkpoint_file_of(b->checkpoint, name), name, dtype_name(t->dtype));
}

static int find_tensor(struct binder *b, const char *name, struct tensor *ret)
{
    return checkpoint_find(b->checkpoint, name, ret)
               ? 0
               : err_set(b->e, -EINVAL, "the checkpoint has no tensor %s", name);
}

/* ---- prefix and conventions ---- */

static int find_prefix(struct binder *b)
{
    char name[NAME_MAX_BYTES];
    struct tensor t;
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        b->prefix = prefixes[i];
        if (checkpoint_find(b->checkpoint, full_name(b, "embed_tokens", ".weight", name), &t))
            return 0;
    }
    return err_set(b->e, -EINVAL,
                   "the checkpoint has no tensor model.embed_tokens.weight (nor %sembed_tokens.weight, "
                   "nor %sembed_tokens.weight, nor embed_tokens.weight)",
                   prefixes[0], prefixes[1]);
}

bool binder_has(const struct binder *b, const char *path)
{
    char name[NAME_MAX_BYTES];
    struct tensor t;
    return checkpoint_find(b->checkpoint, full_name(b, path, ".weight", name), &t) ||
           checkpoint_find(b->checkpoint, full_name(b, path, "", name), &t);
}

/* Writers of MLX files swap the convolution's last axes and store norms as 1 + w, both or neither. */
static bool conv_is_mlx(const struct tensor *t, uint32_t conv_width)
{
    return t->rank == 3 && t->shape[1] == conv_width && t->shape[2] == 1;
}

static int find_norm_convention(struct binder *b)
{
    char path[BINDER_PATH_MAX], name[NAME_MAX_BYTES];
    struct tensor t;
    b->add_one = false;
    if (!b->config->family->shifted_norms)
        return 0;
    for (uint32_t i = 0; i < b->config->layers; i++) {
        if (b->config->kinds[i] != LAYER_LINEAR)
            continue;
        full_name(b, binder_path(i, "linear_attn.conv1d", path), ".weight", name);
        int r = find_tensor(b, name, &t);
        b->add_one = r == 0 && !conv_is_mlx(&t, b->config->conv_width);
        return r;
    }
    /* Without a convolution the prefix that only MLX writes decides. */
    b->add_one = strcmp(b->prefix, "language_model.model.") != 0;
    return 0;
}

int binder_init(struct binder *b)
{
    int r = find_prefix(b);
    return r < 0 ? r : find_norm_convention(b);
}

/* ---- finding a linear layer ---- */

/* What converters rename, both ways. */
static const char *const renamed[][2] = {{"model.language_model.", "language_model.model."},
                                         {"language_model.model.", "model.language_model."},
                                         {"model.visual.", "vision_tower."},
                                         {"vision_tower.", "model.visual."}};

/* The entry for a module, under its own path or the one it had before a converter renamed it; else the global
 * one. */
static struct quantization_entry affine_entry(const struct config *c, const char *module)
{
    const struct quantization *q = &c->quantization;
    char other[NAME_MAX_BYTES];
    uint32_t index;
    if (q->by_path.count == 0)
        return q->global;
    if (hash_map_get(&q->by_path, slice_of(module), &index))
        return q->entries[index];
    for (size_t i = 0; i < COUNT_OF(renamed); i++) {
        size_t len = strlen(renamed[i][0]);
        if (strncmp(module, renamed[i][0], len) == 0) {
            snprintf(other, sizeof(other), "%s%s", renamed[i][1], module + len);
            if (hash_map_get(&q->by_path, slice_of(other), &index))
                return q->entries[index];
        }
    }
    return q->global;
}

/* Derives the only entry that fits the shapes of weight and scales; false where none of ours fits. */
static bool entry_of_shapes(const struct binder *b, const char *module, const struct linear_source *s,
                            uint32_t rank, struct quantization_entry *ret)
{
    char name[NAME_MAX_BYTES];
    struct tensor scales;
    snprintf(name, sizeof(name), "%s.scales", module);
    if (!checkpoint_find(b->checkpoint, name, &scales) || scales.rank != rank || s->weight.rank != rank ||
        scales.shape[rank - 1] == 0 || s->in % scales.shape[rank - 1] != 0)
        return false;
    uint64_t group = s->in / scales.shape[rank - 1], bits = s->weight.shape[rank - 1] * 32 / s->in;
    if ((group != 32 && group != 64 && group != 128) || bits < 2 || bits > 8 || bits == 7)
        return false;
    *ret = (struct quantization_entry){.bits = (uint32_t)bits, .group = (uint32_t)group};
    return true;
}

static int find_affine(struct binder *b, const char *module, const char *weight_name, uint32_t rank,
                       uint64_t *shape, struct linear_source *s)
{
    char name[NAME_MAX_BYTES];
    uint64_t in = s->in;
    struct quantization_entry q = affine_entry(b->config, module);
    bool known = b->config->quantization.present;
    if (b->bits_by_shape && entry_of_shapes(b, module, s, rank, &q))
        known = true;
    if (!known)
        return err_set(b->e, -EINVAL, "tensor %s.scales exists, but config.json has no quantization block",
                       module);
    s->affine = true;
    s->bits = q.bits;
    s->group = q.group;
    if (in % q.group != 0)
        return err_set(b->e, -EINVAL, "%s: %llu columns are not a multiple of group_size %u", module, (ull)in,
                       q.group);
    if (s->weight.dtype != DTYPE_U32)
        return err_set(b->e, -EINVAL, "%s: tensor %s has scales, but dtype %s instead of U32",
                       checkpoint_file_of(b->checkpoint, weight_name), weight_name,
                       dtype_name(s->weight.dtype));
    shape[rank - 1] = in * q.bits / 32;
    int r = check_shape(b, weight_name, &s->weight, rank, shape);
    shape[rank - 1] = in / q.group;
    struct tensor *const sides[2] = {&s->scales, &s->biases};
    static const char *const suffixes[2] = {".scales", ".biases"};
    for (int i = 0; r == 0 && i < 2; i++) {
        snprintf(name, sizeof(name), "%s%s", module, suffixes[i]);
        r = find_tensor(b, name, sides[i]);
        if (r == 0)
            r = check_float(b, name, sides[i]);
        if (r == 0)
            r = check_shape(b, name, sides[i], rank, shape);
    }
    return r;
}

/* rank 2: [out, in]; rank 3: [experts, out, in]. `module` is a full name. */
static int find_linear(struct binder *b, const char *module, uint32_t rank, uint64_t experts, uint64_t out,
                       uint64_t in, struct linear_source *ret)
{
    char name[NAME_MAX_BYTES], side[NAME_MAX_BYTES];
    struct linear_source s = {.experts = experts, .out = out, .in = in};
    struct tensor t;
    uint64_t shape[TENSOR_RANK_MAX] = {experts, out, in};
    if (rank == 2)
        shape[0] = out, shape[1] = in;
    snprintf(name, sizeof(name), "%s.weight", module);
    if (!checkpoint_find(b->checkpoint, name, &s.weight)) {
        /* Fused experts are parameters, not modules: no suffix. */
        snprintf(side, sizeof(side), "%s", module);
        if (!checkpoint_find(b->checkpoint, side, &s.weight))
            return find_tensor(b, name, &s.weight);
        snprintf(name, sizeof(name), "%s", side);
    }
    snprintf(side, sizeof(side), "%s.scales", module);
    int r;
    if (checkpoint_find(b->checkpoint, side, &t)) {
        r = find_affine(b, module, name, rank, shape, &s);
    } else {
        r = check_float(b, name, &s.weight);
        if (r == 0)
            r = check_shape(b, name, &s.weight, rank, shape);
    }
    if (r == 0)
        *ret = s;
    return r;
}

static int refuse_bias(struct binder *b, const char *module)
{
    char name[NAME_MAX_BYTES];
    struct tensor t;
    snprintf(name, sizeof(name), "%s.bias", module);
    return checkpoint_find(b->checkpoint, name, &t)
               ? err_set(b->e, -ENOTSUP, "%s: tensor %s: biases are not supported in this family",
                         checkpoint_file_of(b->checkpoint, name), name)
               : 0;
}

static int find_unbiased(struct binder *b, const char *module, uint32_t rank, uint64_t experts, uint64_t out,
                         uint64_t in, struct linear_source *ret)
{
    int r = refuse_bias(b, module);
    return r < 0 ? r : find_linear(b, module, rank, experts, out, in, ret);
}

int binder_linear(struct binder *b, const char *path, uint64_t out, uint64_t in, struct linear_source *ret)
{
    char module[NAME_MAX_BYTES - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    return find_unbiased(b, module, 2, 1, out, in, ret);
}

int binder_linear_biased(struct binder *b, const char *path, uint64_t out, uint64_t in,
                         struct linear_source *ret)
{
    char module[NAME_MAX_BYTES - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    return find_linear(b, module, 2, 1, out, in, ret);
}

int binder_stack(struct binder *b, const char *path, uint64_t experts, uint64_t out, uint64_t in,
                 struct linear_source *ret)
{
    char module[NAME_MAX_BYTES - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    return find_unbiased(b, module, 3, experts, out, in, ret);
}

int binder_filters(struct binder *b, const char *path, const uint64_t shape_a[5], const uint64_t shape_b[5],
                   bool *second, struct linear_source *ret)
{
    char name[NAME_MAX_BYTES];
    struct linear_source s = {.experts = 1};
    int r = find_tensor(b, full_name(b, path, ".weight", name), &s.weight);
    if (r == 0)
        r = check_float(b, name, &s.weight);
    if (r == 0 && !has_shape(&s.weight, 5, shape_b))
        r = check_shape(b, name, &s.weight, 5, shape_a);
    if (r < 0)
        return r;
    *second = !has_shape(&s.weight, 5, shape_a);
    s.out = shape_a[0];
    s.in = tensor_count(&s.weight) / s.out;
    s.weight.rank = 2;
    s.weight.shape[1] = s.in;
    *ret = s;
    return 0;
}

static struct tensor rows_of(const struct tensor *t, uint64_t from, uint64_t count)
{
    struct tensor s = *t;
    size_t row = t->bytes / t->shape[0];
    s.shape[0] = count;
    s.bytes = count * row;
    s.offset += from * row;
    return s;
}

struct linear_source binder_rows(const struct linear_source *s, uint64_t from, uint64_t count)
{
    ASSERT(s->weight.rank == 2 && from + count <= s->out);
    struct linear_source part = *s;
    part.out = count;
    part.weight = rows_of(&s->weight, from, count);
    if (s->affine) {
        part.scales = rows_of(&s->scales, from, count);
        part.biases = rows_of(&s->biases, from, count);
    }
    return part;
}

/* Rows [expert * out, (expert + 1) * out) of a stacked tensor. */
static struct tensor slice_tensor(const struct tensor *t, uint64_t expert)
{
    struct tensor s = *t;
    s.rank = 2;
    s.shape[0] = t->shape[1];
    s.shape[1] = t->shape[2];
    s.bytes = t->bytes / (size_t)t->shape[0];
    s.offset += expert * s.bytes;
    return s;
}

struct linear_source binder_slice(const struct linear_source *s, uint64_t expert)
{
    ASSERT(s->weight.rank == 3 && expert < s->experts);
    struct linear_source one = *s;
    one.experts = 1;
    one.weight = slice_tensor(&s->weight, expert);
    if (s->affine) {
        one.scales = slice_tensor(&s->scales, expert);
        one.biases = slice_tensor(&s->biases, expert);
    }
    return one;
}

/* ---- packing ---- */

int binder_take(struct binder *b, uint64_t bytes, dev_ptr *ret)
{
    uint64_t from = b->used;
    b->used += ROUND_UP(bytes, (uint64_t)64);
    *ret = DEV_NULL;
    if (!b->memory)
        return 0;
    int r = weight_memory_commit(b->memory, (size_t)b->used);
    if (r < 0)
        return err_set(b->e, r, "the system has no memory for %llu bytes of weights", (ull)b->used);
    *ret = dev_add(b->memory->base, from);
    return 0;
}

static uint64_t source_bytes(const struct linear_source *s)
{
    return s->weight.bytes + (s->affine ? s->scales.bytes + s->biases.bytes : 0);
}

static int check_finite(struct binder *b, const struct tensor *t, const char *what)
{
    uint64_t n = tensor_count(t);
    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(tensor_f32_at(t, i)))
            return err_set(b->e, -EINVAL, "%s holds a value that is infinite or not a number", what);
    }
    return 0;
}

static int check_affine_finite(struct binder *b, const struct linear_source *s)
{
    if (!s->affine)
        return 0;
    int r = check_finite(b, &s->scales, "a tensor of quantisation scales");
    return r < 0 ? r : check_finite(b, &s->biases, "a tensor of quantisation biases");
}

/* One more piece of the files has been read; reports the progress. */
static int advance(struct binder *b, uint64_t bytes)
{
    b->packed_bytes += bytes;
    if (b->progress && b->progress(b->progress_arg, b->packed_bytes, b->source_bytes_total) != 0)
        return err_set(b->e, -ECANCELED, "the load was cancelled");
    return 0;
}

static void drop(struct binder *b, const struct linear_source *s)
{
    checkpoint_drop(b->checkpoint, &s->weight);
    if (!s->affine)
        return;
    checkpoint_drop(b->checkpoint, &s->scales);
    checkpoint_drop(b->checkpoint, &s->biases);
}

/* Each of `times` chosen copies of these sources, packed in `bytes`, is read for every token. */
static void count_active(struct binder *b, const struct linear_source *s, uint32_t count, uint64_t bytes,
                         uint32_t times)
{
    b->active.bytes += times * bytes;
    for (uint32_t i = 0; i < count; i++) {
        b->active.source_bytes += times * source_bytes(&s[i]);
        b->active.products += times * s[i].out * s[i].in;
    }
}

/* Sources that pack_at will read. */
static void count_sources(struct binder *b, const struct linear_source *s, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        b->parameters += s[i].out * s[i].in;
        b->source_bytes += source_bytes(&s[i]);
        b->stage_bytes = MAX_OF(b->stage_bytes, stage_matrix_bytes(&s[i]));
    }
}

static bool same_form(const struct linear_source *x, const struct linear_source *y)
{
    if (x->in != y->in || x->affine != y->affine)
        return false;
    if (!x->affine)
        return x->weight.dtype == y->weight.dtype;
    return x->bits == y->bits && x->group == y->group && x->scales.dtype == y->scales.dtype &&
           x->biases.dtype == y->biases.dtype;
}

/* Packs all rows of `s` as rows `at` and following. */
static int pack_source(struct binder *b, const struct linear_source *s, uint32_t at, const struct weight *w)
{
    struct linear_source piece;
    int r = 0;
    for (uint64_t row = 0; r == 0 && row < s->out; row += piece.out) {
        r = stage_rows(b->stage, s, row, &piece, b->e);
        if (r == 0)
            r = check_affine_finite(b, &piece);
        if (r < 0)
            return r;
        b->config->backend->weight_put(b->device, w, at + (uint32_t)row, &piece);
        r = advance(b, source_bytes(&piece));
    }
    drop(b, s);
    return r;
}

/* Packs sources of one form into a matrix that has its place. */
static int pack(struct binder *b, const struct linear_source *s, uint32_t count, const struct weight *w)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        int r = pack_source(b, &s[i], at, w);
        if (r < 0)
            return r;
        at += (uint32_t)s[i].out;
    }
    return 0;
}

static int bind_matrix(struct binder *b, const struct linear_source *s, uint32_t count, struct weight *ret)
{
    uint64_t bytes = b->config->backend->weight_bytes(s, count);
    dev_ptr at;
    int r = binder_take(b, bytes, &at);
    if (r < 0)
        return r;
    count_active(b, s, count, bytes, 1);
    count_sources(b, s, count);
    *ret = b->config->backend->weight_begin(s, count, at);
    return b->memory ? pack(b, s, count, ret) : 0;
}

int binder_projection(struct binder *b, const struct linear_source *parts, uint32_t count,
                      struct projection *ret)
{
    struct projection p = {.in = (uint32_t)parts[0].in};
    for (uint32_t from = 0, to; from < count; from = to) {
        ASSERT(p.part_count < PROJECTION_PARTS_MAX && parts[from].in == p.in);
        for (to = from + 1; to < count && same_form(&parts[from], &parts[to]);)
            to++;
        int r = bind_matrix(b, &parts[from], to - from, &p.parts[p.part_count]);
        if (r < 0)
            return r;
        p.sums |= p.parts[p.part_count++].sums;
    }
    for (uint32_t i = 0; i < count; i++)
        p.out += (uint32_t)parts[i].out;
    *ret = p;
    return 0;
}

#define LAYER_MATRICES_MAX 4

int binder_layer_projection(struct binder *b, uint32_t layer, const struct binder_matrix *matrices,
                            uint32_t count, uint64_t in, struct projection *ret)
{
    char path[BINDER_PATH_MAX];
    struct linear_source sources[LAYER_MATRICES_MAX];
    int r = 0;
    ASSERT(count <= LAYER_MATRICES_MAX);
    for (uint32_t i = 0; r == 0 && i < count; i++)
        r = binder_linear(b, binder_path(layer, matrices[i].name, path), matrices[i].out, in, &sources[i]);
    return r == 0 ? binder_projection(b, sources, count, ret) : r;
}

int binder_experts(struct binder *b, const struct linear_source *parts, uint32_t experts, uint32_t count,
                   struct projection *ret)
{
    for (uint32_t i = 1; i < experts * count; i++) {
        if (!same_form(&parts[0], &parts[i]))
            return err_set(b->e, -ENOTSUP, "the experts of one layer differ in dtype or quantisation");
    }
    const struct backend *backend = b->config->backend;
    uint64_t stride = ROUND_UP(backend->weight_bytes(parts, count), (uint64_t)64);
    dev_ptr at;
    int r = binder_take(b, stride * experts, &at);
    if (r < 0)
        return r;
    count_active(b, parts, count, stride, b->config->top_k);
    for (uint32_t i = 0; r == 0 && i < experts; i++) {
        const struct weight one = backend->weight_begin(&parts[i * count], count, dev_add(at, i * stride));
        count_sources(b, &parts[i * count], count);
        if (b->memory)
            r = pack(b, &parts[i * count], count, &one);
    }
    struct weight stack = backend->weight_begin(parts, count, at);
    stack.experts = experts;
    stack.expert_bytes = stride;
    *ret = (struct projection){
        .in = stack.k, .out = stack.n, .part_count = 1, .sums = stack.sums, .parts = {stack}};
    return r;
}

int binder_embedding(struct binder *b, struct weight *embedding, struct projection *head)
{
    char module[NAME_MAX_BYTES - 16], name[NAME_MAX_BYTES];
    const char *const heads[] = {"lm_head", "language_model.lm_head"};
    struct linear_source s;
    struct tensor t;
    uint64_t vocab = b->config->vocab, hidden = b->config->hidden;
    int r = binder_linear(b, "embed_tokens", vocab, hidden, &s);
    struct binder_active active = b->active;
    if (r == 0)
        r = bind_matrix(b, &s, 1, embedding);
    if (r < 0)
        return r;
    for (size_t i = 0; i < COUNT_OF(heads); i++) {
        snprintf(module, sizeof(module), "%s", heads[i]);
        snprintf(name, sizeof(name), "%s.weight", module);
        if (!checkpoint_find(b->checkpoint, name, &t))
            continue;
        b->active = active; /* of the table a token reads one row */
        r = find_unbiased(b, module, 2, 1, vocab, hidden, &s);
        b->output = s;
        return r < 0 ? r : binder_projection(b, &s, 1, head);
    }
    b->output = s;
    *head = (struct projection){.in = (uint32_t)hidden,
                                .out = (uint32_t)vocab,
                                .part_count = 1,
                                .sums = embedding->sums,
                                .parts = {*embedding}};
    return 0;
}

/* ---- vectors ---- */

static int take_floats(struct binder *b, const struct tensor *t, uint64_t n, dev_ptr *ret)
{
    int r = binder_take(b, n * sizeof(float), ret);
    b->parameters += n;
    b->source_bytes += t->bytes;
    b->stage_bytes = MAX_OF(b->stage_bytes, stage_vector_bytes(t));
    b->active.bytes += n * sizeof(float);
    b->active.source_bytes += t->bytes;
    return r;
}

/* The values of a tensor that take_floats made room for. */
static int read_floats(struct binder *b, const struct tensor *from, const char *name, struct tensor *ret)
{
    int r = stage_vector(b->stage, from, ret, b->e);
    if (r == 0)
        r = check_finite(b, ret, name);
    return r == 0 ? advance(b, from->bytes) : r;
}

/* Vector `path`, with or without a trailing ".weight". */
static int find_vector(struct binder *b, const char *path, uint64_t n, struct tensor *t,
                       char name[NAME_MAX_BYTES])
{
    if (!checkpoint_find(b->checkpoint, full_name(b, path, "", name), t)) {
        int r = find_tensor(b, full_name(b, path, ".weight", name), t);
        if (r < 0)
            return r;
    }
    int r = check_float(b, name, t);
    return r < 0 ? r : check_shape(b, name, t, 1, &n);
}

/* What becomes of a value on its way in. */
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

/* What becomes a packed vector. It is put a block at a time, for packed memory may be a device's. */
struct vector_source {
    const struct tensor *tensor;
    enum vector_change change;
    uint32_t rows, columns; /* of a transposed matrix [columns][rows]; rows 0: in order */
};

static float vector_at(const struct vector_source *v, uint64_t i)
{
    uint64_t index = v->rows ? i % v->columns * v->rows + i / v->columns : i;
    return changed(tensor_f32_at(v->tensor, index), v->change);
}

static void put_floats(struct binder *b, const struct vector_source *v, uint64_t n, dev_ptr to)
{
    enum { BLOCK = 256 };
    float block[BLOCK];
    for (uint64_t from = 0; from < n; from += BLOCK) {
        uint64_t count = MIN_OF(n - from, (uint64_t)BLOCK);
        for (uint64_t i = 0; i < count; i++)
            block[i] = vector_at(v, from + i);
        domain_put(b->memory->domain, dev_add(to, from * sizeof(float)), block, count * sizeof(float));
    }
}

static int bind_vector(struct binder *b, const char *path, uint64_t n, enum vector_change change,
                       dev_ptr *ret)
{
    char name[NAME_MAX_BYTES];
    struct tensor t;
    int r = find_vector(b, path, n, &t, name);
    if (r == 0)
        r = take_floats(b, &t, n, ret);
    if (r < 0 || !b->memory)
        return r;
    r = read_floats(b, &t, name, &t);
    if (r < 0)
        return r;
    if (change == VECTOR_PLUS_ONE_BY_MEAN)
        change = change_by_mean(&t, n);
    put_floats(b, &(struct vector_source){.tensor = &t, .change = change}, n, *ret);
    return 0;
}

int binder_vector(struct binder *b, const char *path, uint64_t n, dev_ptr *ret)
{
    return bind_vector(b, path, n, VECTOR_AS_IS, ret);
}

int binder_norm(struct binder *b, const char *path, uint64_t n, dev_ptr *ret)
{
    return bind_vector(b, path, n,
                       b->add_one_by_mean ? VECTOR_PLUS_ONE_BY_MEAN
                       : b->add_one       ? VECTOR_PLUS_ONE
                                          : VECTOR_AS_IS,
                       ret);
}

int binder_decay(struct binder *b, const char *path, uint64_t n, dev_ptr *ret)
{
    return bind_vector(b, path, n, VECTOR_MINUS_EXP, ret);
}

int binder_conv(struct binder *b, const char *path, uint32_t channels, uint32_t conv_width, dev_ptr *ret)
{
    char name[NAME_MAX_BYTES];
    struct tensor t;
    const uint64_t hf[3] = {channels, 1, conv_width}, mlx[3] = {channels, conv_width, 1};
    int r = find_tensor(b, full_name(b, path, ".weight", name), &t);
    if (r == 0)
        r = check_float(b, name, &t);
    /* Every layer must have the writer's one layout: a mixture would mean that the norms are a mixture
     * too. */
    if (r == 0)
        r = check_shape(b, name, &t, 3, conv_is_mlx(&t, conv_width) && !b->add_one ? mlx : hf);
    if (r == 0)
        r = take_floats(b, &t, (uint64_t)channels * conv_width, ret);
    if (r < 0 || !b->memory)
        return r;
    r = read_floats(b, &t, name, &t);
    if (r < 0)
        return r;
    /* Both layouts hold a channel's conv_width one after the other. */
    put_floats(b, &(struct vector_source){.tensor = &t, .rows = conv_width, .columns = channels},
               (uint64_t)channels * conv_width, *ret);
    return 0;
}
