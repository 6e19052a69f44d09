/* binder_find.c - finding tensors: names, prefixes, shapes, quantisation.
 *
 * A module is affine iff it has scales. The configuration gives bits and group (a per-path entry before the
 * global one), and the tensors must agree with it. */
#include "model/blocks/blocks.h"
#include "model/family/family.h"
#include "model/load/binder.h"

#include "base/check.h"
#include "base/none.h"
#include "tensor/tensor_naming.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <stdio.h>

static const char *const prefixes[] = {
    "model.language_model.", "language_model.model.",    "model.", "backbone.", "bert.", "roberta.",
    "model.text_model.",     "language_model.backbone.", ""};

/* The family's or the file's name of a role, as role_name(). */
static const char *name_of_role(const struct binder *b, enum tensor_role role, uint32_t turn)
{
    if (!b->config->naming)
        return role_name(b->config->family->tensors, role, turn);
    return turn == 0 ? tensor_naming_of(b->config->naming, role) : NULL;
}

static char *path_of(const struct binder *b, const char *name, uint32_t layer, uint32_t expert,
                     char ret[BINDER_PATH_MAX])
{
    char text[BINDER_PATH_MAX] = "";
    const char *mark = strchr(name, '#');
    const char *layers = b->layers           ? b->layers
                         : b->config->naming ? b->config->naming->layers
                                             : b->config->family->layers;
    int n = 0, k = mark ? (int)(mark - name) : 0;
    if (mark)
        n = snprintf(text, sizeof(text), "%.*s%u%s", k, name, expert, mark + 1);
    else
        n = snprintf(text, sizeof(text), "%s", name);
    ASSERT(n > 0 && n < BINDER_PATH_MAX);
    n = layer == NONE
            ? snprintf(ret, BINDER_PATH_MAX, "%s", text)
            : snprintf(ret, BINDER_PATH_MAX, "%s.%u.%.120s", layers ? layers : "layers", layer, text);
    ASSERT(n > 0 && n < BINDER_PATH_MAX);
    return ret;
}

/* Writes the first of a role's names that the checkpoint has; without any, the first name. */
char *binder_expert_path(const struct binder *b, uint32_t layer, enum tensor_role role, uint32_t expert,
                         char ret[BINDER_PATH_MAX])
{
    const char *first = name_of_role(b, role, 0), *name = first;
    for (uint32_t turn = 1; name && name_of_role(b, role, 1); turn++) {
        if (binder_has(b, path_of(b, name, layer, expert, ret)))
            return ret;
        name = name_of_role(b, role, turn);
    }
    return path_of(b, first, layer, expert, ret);
}

char *binder_path(const struct binder *b, uint32_t layer, enum tensor_role role, char ret[BINDER_PATH_MAX])
{
    return binder_expert_path(b, layer, role, 0, ret);
}

const char *binder_name(const struct binder *b, const char *path, const char *suffix,
                        char ret[BINDER_NAME_MAX])
{
    int n = snprintf(ret, BINDER_NAME_MAX, "%s%s%s", b->prefix, path, suffix);
    ASSERT(n > 0 && n < BINDER_NAME_MAX);
    return ret;
}

/* ---- prefix and conventions ---- */

static int find_prefix(struct binder *b)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    const char *table = name_of_role(b, ROLE_EMBEDDING, 0);
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        b->prefix = prefixes[i];
        if (binder_find_optional(b, binder_name(b, table, ".weight", name), &t))
            return 0;
    }
    return err_set(
        b->e, -EINVAL,
        "the checkpoint has no tensor model.%s.weight (nor one with %s, %s, %s or nothing in front "
        "of %s)",
        table, prefixes[0], prefixes[1], prefixes[3], table);
}

bool binder_has(const struct binder *b, const char *path)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    return binder_has_stored(b, binder_name(b, path, "", name)) ||
           binder_find_optional(b, binder_name(b, path, ".weight", name), &t) ||
           binder_find_optional(b, binder_name(b, path, "", name), &t);
}

bool binder_layer_has(const struct binder *b, uint32_t layer, enum tensor_role role)
{
    char path[BINDER_PATH_MAX];
    return binder_has(b, binder_path(b, layer, role, path));
}

/* Either name of find_bias. */
static bool has_bias_of(const struct binder *b, const char *path)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    return binder_find_optional(b, binder_name(b, path, ".bias", name), &t) ||
           binder_find_optional(b, binder_name(b, path, "_bias", name), &t);
}

int binder_check_bias(struct binder *b, uint32_t layer, enum tensor_role role, bool has_bias)
{
    char path[BINDER_PATH_MAX];
    if (layer == NONE || layer == 0 || !binder_layer_has(b, 0, role) ||
        has_bias_of(b, binder_path(b, 0, role, path)) == has_bias)
        return 0;
    return err_set(b->e, -EINVAL, "tensor %s%s %s a bias, but that of layer 0 has %s", b->prefix,
                   binder_path(b, layer, role, path), has_bias ? "has" : "lacks", has_bias ? "none" : "one");
}

/* Writers of MLX files swap the convolution's last axes and store norms as 1 + w, both or neither. */
bool binder_conv_is_mlx(const struct tensor *t, uint32_t conv_width)
{
    return t->rank == 3 && t->shape[1] == conv_width && t->shape[2] == 1;
}

static int find_norm_convention(struct binder *b)
{
    char path[BINDER_PATH_MAX], name[BINDER_NAME_MAX];
    struct tensor t;
    const struct config *c = b->config;
    b->add_one = c->family->norm_shift == SHIFT_ALL && !c->naming;
    if (c->family->norm_shift != SHIFT_HF || c->naming)
        return 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        if (!c->layer[i].mixer->recurrent_layer)
            continue;
        binder_name(b, binder_path(b, i, ROLE_DELTA_CONV, path), ".weight", name);
        int r = binder_find(b, name, &t);
        b->add_one = r == 0 && !binder_conv_is_mlx(&t, c->conv_width);
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

/* Prefixes that converters rename, both ways. */
static const char *const renamed[][2] = {{"model.language_model.", "language_model.model."},
                                         {"language_model.model.", "model.language_model."},
                                         {"model.visual.", "vision_tower."},
                                         {"vision_tower.", "model.visual."}};

/* The entry for a module, under its own path or the one it had before a converter renamed it; else the global
 * one. */
static struct quantization_entry affine_entry(const struct config *c, const char *module)
{
    const struct quantization *q = &c->quantization;
    char other[BINDER_NAME_MAX];
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
    char name[BINDER_NAME_MAX];
    struct tensor scales;
    snprintf(name, sizeof(name), "%s.scales", module);
    if (!binder_find_optional(b, name, &scales) || scales.rank != rank || s->weight.rank != rank ||
        scales.shape[rank - 1] == 0 || s->in % scales.shape[rank - 1] != 0)
        return false;
    uint64_t group = s->in / scales.shape[rank - 1], bits = s->weight.shape[rank - 1] * 32 / s->in;
    if ((group != 32 && group != 64 && group != 128) || bits < 2 || bits > 8 || bits == 7)
        return false;
    *ret = (struct quantization_entry){.bits = (uint32_t)bits, .group = (uint32_t)group};
    return true;
}

/* MLX's modes without biases, whose scales are bytes. */
static const struct {
    enum code_map codes;
    enum bias_kind bias_kind;
    enum dtype scales;
} modes[] = {
    [QUANTIZATION_AFFINE] = {CODES_WHOLE, BIASES_STORED, DTYPE_F32},
    [QUANTIZATION_MXFP4] = {CODES_E2M1, BIASES_CENTRED, DTYPE_F8_E8M0},
    [QUANTIZATION_NVFP4] = {CODES_E2M1, BIASES_CENTRED, DTYPE_F8_E4M3},
    [QUANTIZATION_MXFP8] = {CODES_E4M3, BIASES_CENTRED, DTYPE_F8_E8M0},
};

/* A tensor of scales or biases, as the mode has them. */
static int check_side(struct binder *b, const char *name, enum quantization_mode mode, struct tensor *t)
{
    if (mode == QUANTIZATION_AFFINE)
        return binder_check_float(b, name, t);
    if (t->dtype != DTYPE_U8)
        return err_set(b->e, -EINVAL, "tensor %s has dtype %s instead of U8", name, tensor_form_name(t));
    t->dtype = modes[mode].scales;
    return 0;
}

static int find_affine(struct binder *b, const char *module, const char *weight_name, uint32_t rank,
                       uint64_t *shape, struct linear_source *s)
{
    char name[BINDER_NAME_MAX];
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
    s->codes = modes[q.mode].codes;
    s->bias_kind = modes[q.mode].bias_kind;
    if (in % q.group != 0)
        return err_set(b->e, -EINVAL, "%s: %llu columns are not a multiple of group_size %u", module, (ull)in,
                       q.group);
    if (s->weight.dtype != DTYPE_U32)
        return err_set(b->e, -EINVAL, "%s: tensor %s has scales, but dtype %s instead of U32",
                       checkpoint_file_of(b->checkpoint, weight_name), weight_name,
                       tensor_form_name(&s->weight));
    shape[rank - 1] = in * q.bits / 32;
    int r = binder_check_shape(b, weight_name, &s->weight, rank, shape);
    shape[rank - 1] = in / q.group;
    struct tensor *const sides[2] = {&s->scales, &s->biases};
    static const char *const suffixes[2] = {".scales", ".biases"};
    for (int i = 0; r == 0 && i < (s->bias_kind == BIASES_STORED ? 2 : 1); i++) {
        snprintf(name, sizeof(name), "%s%s", module, suffixes[i]);
        r = binder_find(b, name, sides[i]);
        if (r == 0)
            r = check_side(b, name, q.mode, sides[i]);
        if (r == 0)
            r = binder_check_shape(b, name, sides[i], rank, shape);
    }
    return r;
}

/* GGUF files may have a matrix of one row as a vector, others a table as a stack of one. */
static void as_matrix(struct tensor *t, uint32_t rank, const uint64_t *shape)
{
    if (rank == 2 && t->rank == 3 && t->shape[0] == 1) {
        t->rank = 2;
        t->shape[0] = t->shape[1];
        t->shape[1] = t->shape[2];
    }
    if (rank != 2 || t->rank != 1 || shape[0] != 1)
        return;
    t->rank = 2;
    t->shape[1] = t->shape[0];
    t->shape[0] = 1;
}

/* rank 2: [out, in]; rank 3: [experts, out, in]. `module` is a full name. */
static int find_linear(struct binder *b, const char *module, uint32_t rank, uint64_t experts, uint64_t out,
                       uint64_t in, struct linear_source *ret)
{
    char name[BINDER_NAME_MAX], side[BINDER_NAME_MAX];
    struct linear_source s = {.experts = experts, .out = out, .in = in};
    struct tensor t;
    uint64_t shape[TENSOR_RANK_MAX] = {experts, out, in};
    bool found;
    int r = b->config->naming ? 0 : binder_stored_source(b, module, rank, &s, &found);
    if (r < 0 || (!b->config->naming && found)) {
        *ret = s;
        return r;
    }
    if (rank == 2)
        shape[0] = out, shape[1] = in;
    snprintf(name, sizeof(name), "%s.weight", module);
    if (!binder_find_optional(b, name, &s.weight)) {
        /* Fused experts are parameters, not modules: no suffix. */
        snprintf(side, sizeof(side), "%s", module);
        if (!binder_find_optional(b, side, &s.weight))
            return binder_find(b, name, &s.weight);
        snprintf(name, sizeof(name), "%s", side);
    }
    snprintf(side, sizeof(side), "%s.scales", module);
    if (binder_find_optional(b, side, &t)) {
        r = find_affine(b, module, name, rank, shape, &s);
    } else {
        as_matrix(&s.weight, rank, shape);
        r = s.weight.form ? 0 : binder_check_float(b, name, &s.weight);
        if (r == 0)
            r = binder_check_shape(b, name, &s.weight, rank, shape);
        if (r == 0)
            r = binder_naming_source(b, name, module, &s);
    }
    if (r == 0)
        *ret = s;
    return r;
}

/* Stacks have a bias for each expert; that of a parameter without ".weight" is named NAME_bias. */
static int find_bias(struct binder *b, const char *module, struct linear_source *s)
{
    char name[BINDER_NAME_MAX];
    uint64_t stacked[2] = {s->experts, s->out};
    snprintf(name, sizeof(name), "%s.bias", module);
    s->has_bias = binder_find_optional(b, name, &s->bias);
    if (!s->has_bias && s->weight.rank == 3) {
        snprintf(name, sizeof(name), "%s_bias", module);
        s->has_bias = binder_find_optional(b, name, &s->bias);
    }
    if (!s->has_bias)
        return 0;
    int r = binder_check_float(b, name, &s->bias);
    if (r < 0)
        return r;
    return s->weight.rank == 3 ? binder_check_shape(b, name, &s->bias, 2, stacked)
                               : binder_check_shape(b, name, &s->bias, 1, &s->out);
}

int binder_linear(struct binder *b, const char *path, uint64_t out, uint64_t in, struct linear_source *ret)
{
    char module[BINDER_NAME_MAX - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    int r = find_linear(b, module, 2, 1, out, in, ret);
    return r < 0 ? r : find_bias(b, module, ret);
}

int binder_linear_biased(struct binder *b, const char *path, uint64_t out, uint64_t in,
                         struct linear_source *ret)
{
    char module[BINDER_NAME_MAX - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    return find_linear(b, module, 2, 1, out, in, ret);
}

int binder_stack(struct binder *b, const char *path, uint64_t experts, uint64_t out, uint64_t in,
                 struct linear_source *ret)
{
    char module[BINDER_NAME_MAX - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    int r = find_linear(b, module, 3, experts, out, in, ret);
    return r < 0 ? r : find_bias(b, module, ret);
}

int binder_stack_transposed(struct binder *b, const char *path, uint64_t experts, uint64_t out, uint64_t in,
                            struct linear_source *ret)
{
    char module[BINDER_NAME_MAX - 16];
    snprintf(module, sizeof(module), "%s%s", b->prefix, path);
    /* Blocks are rows. */
    bool rows = binder_has_stored(b, module);
    int r = rows ? find_linear(b, module, 3, experts, out, in, ret)
                 : find_linear(b, module, 3, experts, in, out, ret);
    if (r == 0 && rows)
        return find_bias(b, module, ret);
    if (r == 0 && ret->affine)
        return err_set(b->e, -ENOTSUP,
                       "tensor %s.scales: a quantised stack [experts, in, out] is not supported", module);
    if (r < 0)
        return r;
    ret->out = out;
    ret->in = in;
    ret->transposed = true;
    return find_bias(b, module, ret);
}

bool binder_is_shaped(const struct binder *b, const char *path, uint32_t rank, const uint64_t *shape)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    return (binder_find_optional(b, binder_name(b, path, ".weight", name), &t) ||
            binder_find_optional(b, binder_name(b, path, "", name), &t)) &&
           tensor_has_shape(&t, rank, shape);
}

int binder_filters(struct binder *b, const char *path, uint32_t rank, const uint64_t *shape_a,
                   const uint64_t *shape_b, bool *second, struct linear_source *ret)
{
    char name[BINDER_NAME_MAX];
    struct linear_source s = {.experts = 1};
    int r = binder_find(b, binder_name(b, path, ".weight", name), &s.weight);
    if (r == 0)
        r = binder_check_float(b, name, &s.weight);
    if (r == 0 && !tensor_has_shape(&s.weight, rank, shape_b))
        r = binder_check_shape(b, name, &s.weight, rank, shape_a);
    if (r < 0)
        return r;
    *second = !tensor_has_shape(&s.weight, rank, shape_a);
    s.out = shape_a[0];
    s.in = tensor_count(&s.weight) / s.out;
    s.weight.rank = 2;
    s.weight.shape[1] = s.in;
    *ret = s;
    return 0;
}

int binder_flat(struct binder *b, const char *path, const uint64_t shape[3], struct linear_source *ret)
{
    char name[BINDER_NAME_MAX];
    struct linear_source s = {.experts = 1, .out = shape[0] * shape[1], .in = shape[2]};
    int r = binder_find(b, binder_name(b, path, "", name), &s.weight);
    if (r == 0)
        r = binder_check_float(b, name, &s.weight);
    if (r == 0)
        r = binder_check_shape(b, name, &s.weight, 3, shape);
    if (r < 0)
        return r;
    s.weight.rank = 2;
    s.weight.shape[0] = s.out;
    s.weight.shape[1] = s.in;
    *ret = s;
    return 0;
}

int binder_turned(struct binder *b, const char *path, uint64_t out, uint64_t in, struct linear_source *ret)
{
    char name[BINDER_NAME_MAX];
    const uint64_t shape[2] = {in, out};
    struct linear_source s = {.experts = 1, .out = out, .in = in, .transposed = true};
    int r = binder_find(b, binder_name(b, path, "", name), &s.weight);
    if (r == 0)
        r = binder_check_float(b, name, &s.weight);
    if (r == 0)
        r = binder_check_shape(b, name, &s.weight, 2, shape);
    if (r == 0)
        *ret = s;
    return r;
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
    ASSERT(s->weight.rank == 2 && !s->transposed && s->row_order.rows == 0 && from + count <= s->out);
    struct linear_source part = *s;
    part.out = count;
    if (s->stored) {
        part.first_row += from;
        return part;
    }
    part.weight = rows_of(&s->weight, from, count);
    if (s->affine) {
        part.scales = rows_of(&s->scales, from, count);
        if (s->bias_kind != BIASES_CENTRED)
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

/* Row `expert` of a matrix. */
static struct tensor slice_vector(const struct tensor *t, uint64_t expert)
{
    struct tensor s = *t;
    s.rank = 1;
    s.shape[0] = t->shape[1];
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
    if (s->affine || s->stored) {
        one.scales = slice_tensor(&s->scales, expert);
        if (s->bias_kind != BIASES_CENTRED)
            one.biases = slice_tensor(&s->biases, expert);
        if (s->weight.form && s->supers.rank == 1) {
            one.supers.bytes /= (size_t)s->experts;
            one.supers.offset += expert * one.supers.bytes;
        }
    }
    if (s->has_bias)
        one.bias = slice_vector(&s->bias, expert);
    return one;
}

int binder_bias(struct binder *b, const char *module, struct linear_source *ret)
{
    int r = find_bias(b, module, ret);
    return r == 0 && ret->has_bias && b->config->family->mtp == MTP_LAYERS
               ? err_set(b->e, -ENOTSUP, "tensor %s.bias: a bias of this matrix is not supported", module)
               : r;
}

int binder_output(struct binder *b, const char *module, uint64_t out, uint64_t in, struct linear_source *ret)
{
    int r = find_linear(b, module, 2, 1, out, in, ret);
    return r == 0 ? binder_bias(b, module, ret) : r;
}
