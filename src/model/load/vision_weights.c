/* vision_weights.c - finds the tensors of a vision encoder by the names of its family (vision_family.h).
 *
 * The patch embedding is a convolution with a stride of its size: a matrix over the values of a patch. Its
 * two layouts differ in their order only, so the patches are laid out in the matrix's order, and the
 * matrix is packed unchanged. */
#include "model/load/vision_weights.h"

#include "model/config/config.h"
#include "model/family/vision_family.h"
#include "model/load/binder.h"

#include "base/check.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Where the checkpoint has the encoder. */
struct names_begin {
    const char *prefix, *root; /* NULL: it has none */
};

static struct names_begin find_begin(const struct vision_family *t, const struct checkpoint *c)
{
    char name[BINDER_PATH_MAX];
    for (size_t i = 0; i < COUNT_OF(t->prefixes) && t->prefixes[i]; i++) {
        for (size_t k = 0; k < COUNT_OF(t->roots) && (k == 0 || t->roots[k]); k++) {
            const char *root = t->roots[k] ? t->roots[k] : "";
            snprintf(name, sizeof(name), "%s%s", t->prefixes[i], root);
            if (checkpoint_any(c, name))
                return (struct names_begin){t->prefixes[i], root};
        }
    }
    return (struct names_begin){NULL, NULL};
}

bool vision_exists(const struct vision_family *t, const struct checkpoint *c)
{
    return find_begin(t, c).prefix != NULL;
}

static const char *name_of(const struct binder *b, enum vision_role role)
{
    return b->config->vision.family->tensors[role];
}

/* The tensor's name with the number in it, and ".TAIL". NULL: without one. */
static const char *path_of(const struct binder *b, enum vision_role role, uint32_t index, const char *tail,
                           char ret[BINDER_PATH_MAX])
{
    const char *name = name_of(b, role);
    const bool rooted = name[0] == '@';
    const char *root = rooted ? b->root : "";
    name += rooted;
    const char *mark = strchr(name, '#');
    int n =
        mark ? snprintf(ret, BINDER_PATH_MAX, "%s%.*s%u%s", root, (int)(mark - name), name, index, mark + 1)
             : snprintf(ret, BINDER_PATH_MAX, "%s%s", root, name);
    if (tail)
        n += snprintf(ret + n, BINDER_PATH_MAX - (size_t)n, ".%s", tail);
    ASSERT(n > 0 && n < BINDER_PATH_MAX);
    return ret;
}

/* No norm where the family has none. */
static int bind_norm(struct binder *b, enum vision_role role, uint32_t index, uint32_t n,
                     struct vision_norm *ret)
{
    char path[BINDER_PATH_MAX];
    if (!name_of(b, role))
        return 0;
    int r = binder_vector(b, path_of(b, role, index, "weight", path), n, &ret->weight);
    if (r < 0 || b->config->vision.family->rms)
        return r;
    return binder_vector(b, path_of(b, role, index, "bias", path), n, &ret->bias);
}

/* GGUF files of some encoders have the rows of queries and keys in the order of llama. */
static int order_rows(struct binder *b, enum vision_role role, const char *path, struct linear_source *s)
{
    const struct vision_config *v = &b->config->vision;
    if (!b->config->naming || !v->family->named_pairs || (role != VISION_ROLE_Q && role != VISION_ROLE_K))
        return 0;
    s->row_order = (struct tensor_reorder){0, 2, v->head_dim / 2, 1};
    return s->has_bias ? err_set(b->e, -ENOTSUP, "tensor %s%s.bias is not supported", b->prefix, path) : 0;
}

/* Matrices of one input, [out, in] each, as one. */
static int bind_linears(struct binder *b, const enum vision_role *roles, uint32_t count, uint32_t index,
                        uint32_t out, uint32_t in, struct vision_linear *ret)
{
    struct linear_source s[2];
    char path[BINDER_PATH_MAX];
    int r = 0;
    ASSERT(count <= COUNT_OF(s));
    for (uint32_t i = 0; r == 0 && i < count; i++) {
        r = binder_linear(b, path_of(b, roles[i], index, NULL, path), out, in, &s[i]);
        if (r == 0 && b->config->vision.family->biases && !s[i].has_bias)
            r = err_set(b->e, -EINVAL, "tensor %s%s.bias is missing", b->prefix, path);
        if (r == 0)
            r = order_rows(b, roles[i], path, &s[i]);
    }
    if (r == 0)
        r = binder_projection(b, s, count, &ret->w);
    if (r == 0 && ret->w.part_count != 1)
        r = err_set(b->e, -ENOTSUP, "tensor %s%s.weight: quantised otherwise than the one beside it",
                    b->prefix, path);
    ret->bias = ret->w.bias;
    ret->w.bias = DEV_NULL;
    return r;
}

static int bind_linear(struct binder *b, enum vision_role role, uint32_t index, uint32_t out, uint32_t in,
                       struct vision_linear *ret)
{
    return bind_linears(b, &role, 1, index, out, in, ret);
}

/* A matrix of a block, and where the file has them the bounds of what it reads and of its result: tensors of
 * one number beside the matrix's module ".linear". */
static int bind_clipped(struct binder *b, enum vision_role role, uint32_t index, uint32_t out, uint32_t in,
                        struct vision_linear *ret)
{
    static const char *const names[] = {"input_min", "input_max", "output_min", "output_max"};
    char path[BINDER_PATH_MAX];
    int r = bind_linear(b, role, index, out, in, ret);
    if (r < 0 || !b->config->vision.clipped)
        return r;
    path_of(b, role, index, NULL, path);
    char *tail = strrchr(path, '.');
    ASSERT(tail);
    dev_ptr *const bounds[] = {&ret->input.least, &ret->input.most, &ret->result.least, &ret->result.most};
    for (size_t i = 0; r == 0 && i < COUNT_OF(names); i++) {
        snprintf(tail + 1, sizeof(path) - (size_t)(tail + 1 - path), "%s", names[i]);
        r = binder_vector(b, path, 1, bounds[i]);
    }
    return r;
}

/* One tensor, its rows queries | keys | values: as two matrices, for queries are needed when all keys are
 * there. */
static int bind_fused(struct binder *b, uint32_t index, uint32_t n, struct vision_block *ret)
{
    char path[BINDER_PATH_MAX], bias_path[BINDER_PATH_MAX];
    const uint64_t rows = 3 * (uint64_t)n;
    struct linear_source s;
    dev_ptr bias = DEV_NULL;
    int r = binder_linear_biased(b, path_of(b, VISION_ROLE_QKV, index, NULL, path), 3 * n, n, &s);
    path_of(b, VISION_ROLE_QKV, index, "bias", bias_path);
    if (r == 0 && (b->config->vision.family->biases || binder_is_shaped(b, bias_path, 1, &rows)))
        r = binder_vector(b, bias_path, rows, &bias);
    if (r < 0)
        return r;
    struct linear_source query = binder_rows(&s, 0, n), key_value = binder_rows(&s, n, 2 * n);
    r = binder_projection(b, &query, 1, &ret->query.w);
    if (r == 0)
        r = binder_projection(b, &key_value, 1, &ret->key_value.w);
    ret->query.bias = bias;
    ret->key_value.bias = dev_is_null(bias) ? bias : dev_add(bias, n * sizeof(float));
    return r;
}

static int bind_qkv(struct binder *b, uint32_t index, uint32_t n, struct vision_block *ret)
{
    static const enum vision_role key_value[] = {VISION_ROLE_K, VISION_ROLE_V};
    char path[BINDER_PATH_MAX];
    const bool fused = name_of(b, VISION_ROLE_QKV), apart = name_of(b, VISION_ROLE_Q);
    if (fused && !(apart && binder_has(b, path_of(b, VISION_ROLE_Q, index, "weight", path))))
        return bind_fused(b, index, n, ret);
    int r = bind_clipped(b, VISION_ROLE_Q, index, n, n, &ret->query);
    if (r == 0 && !b->config->vision.clipped)
        return bind_linears(b, key_value, 2, index, n, n, &ret->key_value);
    if (r == 0)
        r = bind_clipped(b, VISION_ROLE_K, index, n, n, &ret->key_value);
    return r < 0 ? r : bind_clipped(b, VISION_ROLE_V, index, n, n, &ret->value);
}

/* Norms of each head. */
static int bind_heads(struct binder *b, uint32_t index, uint32_t n, struct vision_block *ret)
{
    char path[BINDER_PATH_MAX];
    int r = 0;
    if (name_of(b, VISION_ROLE_Q_NORM))
        r = binder_vector(b, path_of(b, VISION_ROLE_Q_NORM, index, "weight", path), n, &ret->query_norm);
    if (r == 0 && name_of(b, VISION_ROLE_K_NORM))
        r = binder_vector(b, path_of(b, VISION_ROLE_K_NORM, index, "weight", path), n, &ret->key_norm);
    return r < 0 || !b->config->vision.family->v_norm ? r : binder_ones(b, n, &ret->value_norm);
}

static int bind_up(struct binder *b, uint32_t index, struct vision_block *ret)
{
    static const enum vision_role gated[] = {VISION_ROLE_GATE, VISION_ROLE_UP};
    const struct vision_config *v = &b->config->vision;
    if (v->clipped && v->gated) {
        int r = bind_clipped(b, VISION_ROLE_GATE, index, v->intermediate, v->hidden, &ret->up);
        return r < 0 ? r : bind_clipped(b, VISION_ROLE_UP, index, v->intermediate, v->hidden, &ret->up_alone);
    }
    if (v->clipped)
        return bind_clipped(b, VISION_ROLE_UP, index, v->intermediate, v->hidden, &ret->up);
    return bind_linears(b, v->gated ? gated : gated + 1, v->gated ? 2 : 1, index, v->intermediate, v->hidden,
                        &ret->up);
}

/* A vector whose name is not a module's. */
static int bind_values(struct binder *b, enum vision_role role, uint32_t index, dev_ptr *ret)
{
    char path[BINDER_PATH_MAX];
    return name_of(b, role)
               ? binder_vector(b, path_of(b, role, index, NULL, path), b->config->vision.hidden, ret)
               : 0;
}

static int bind_block(struct binder *b, uint32_t index, struct vision_block *ret)
{
    const struct vision_config *v = &b->config->vision;
    int r = bind_norm(b, VISION_ROLE_MIX_NORM, index, v->hidden, &ret->mix);
    if (r == 0)
        r = bind_values(b, VISION_ROLE_MIX_FACTORS, index, &ret->mix_factors);
    if (r == 0)
        r = bind_values(b, VISION_ROLE_MLP_FACTORS, index, &ret->mlp_factors);
    if (r == 0)
        r = bind_qkv(b, index, v->hidden, ret);
    if (r == 0)
        r = bind_heads(b, index, v->head_dim, ret);
    if (r == 0)
        r = bind_clipped(b, VISION_ROLE_OUT, index, v->hidden, v->hidden, &ret->out);
    if (r == 0)
        r = bind_norm(b, VISION_ROLE_MIX_POST, index, v->hidden, &ret->mix_post);
    if (r == 0)
        r = bind_norm(b, VISION_ROLE_MLP_NORM, index, v->hidden, &ret->mlp);
    if (r == 0)
        r = bind_up(b, index, ret);
    if (r == 0)
        r = bind_norm(b, VISION_ROLE_MLP_POST, index, v->hidden, &ret->mlp_post);
    return r < 0 ? r : bind_clipped(b, VISION_ROLE_DOWN, index, v->hidden, v->intermediate, &ret->down);
}

/* A text's norm may have another form than the encoder's. */
static int bind_merge_norm(struct binder *b, struct vision_norm *ret)
{
    const struct vision_config *v = &b->config->vision;
    char path[BINDER_PATH_MAX];
    if (v->merge_bare)
        return 0;
    if (v->family->merge_plain)
        return binder_ones(b, v->hidden, &ret->weight);
    if (!v->family->text_norm)
        return bind_norm(b, VISION_ROLE_MERGE_NORM, 0, v->family->token_norm ? vision_merged(v) : v->hidden,
                         ret);
    return binder_norm(b, path_of(b, VISION_ROLE_MERGE_NORM, 0, "weight", path), v->hidden, &ret->weight);
}

static int bind_turned(struct binder *b, uint32_t out, uint32_t in, struct vision_linear *ret)
{
    struct linear_source s;
    int r = binder_turned(b, name_of(b, VISION_ROLE_MERGE_DOWN_TURNED), out, in, &s);
    return r < 0 ? r : binder_projection(b, &s, 1, &ret->w);
}

/* A matrix, or filters as large as a token. */
static int bind_squeeze(struct binder *b, struct vision_merger *m)
{
    const struct vision_config *v = &b->config->vision;
    const uint32_t out = vision_squeezed(v);
    const uint64_t shape[4] = {out, v->hidden, v->shape.merge, v->shape.merge};
    char path[BINDER_PATH_MAX];
    struct linear_source s;
    bool second;
    path_of(b, VISION_ROLE_MERGE_SQUEEZE, 0, NULL, path);
    if (!binder_is_shaped(b, path, 4, shape))
        return bind_linear(b, VISION_ROLE_MERGE_SQUEEZE, 0, out, vision_merged(v), &m->squeeze);
    int r = binder_filters(b, path, 4, shape, shape, &second, &s);
    if (r == 0)
        r = binder_projection(b, &s, 1, &m->squeeze.w);
    return r < 0 ? r
                 : binder_vector(b, path_of(b, VISION_ROLE_MERGE_SQUEEZE, 0, "bias", path), out,
                                 &m->squeeze.bias);
}

/* The norm is a LayerNorm. */
static int bind_merge_proj(struct binder *b, struct vision_merger *m)
{
    const uint32_t n = b->config->vision.out;
    char path[BINDER_PATH_MAX];
    if (!name_of(b, VISION_ROLE_MERGE_PROJ))
        return 0;
    int r = bind_linear(b, VISION_ROLE_MERGE_PROJ, 0, n, n, &m->proj);
    if (r == 0)
        r = binder_vector(b, path_of(b, VISION_ROLE_MERGE_PROJ_NORM, 0, "weight", path), n,
                          &m->proj_norm.weight);
    return r < 0 ? r
                 : binder_vector(b, path_of(b, VISION_ROLE_MERGE_PROJ_NORM, 0, "bias", path), n,
                                 &m->proj_norm.bias);
}

static int bind_merge_up(struct binder *b, uint32_t in, struct vision_merger *m)
{
    static const enum vision_role gated[] = {VISION_ROLE_MERGE_GATE, VISION_ROLE_MERGE_UP};
    const bool gate = name_of(b, VISION_ROLE_MERGE_GATE);
    return bind_linears(b, gate ? gated : gated + 1, gate ? 2 : 1, 0, b->config->vision.merge_mid, in,
                        &m->up);
}

static int bind_mergers(struct binder *b, struct vision_weights *t)
{
    const struct vision_config *v = &b->config->vision;
    uint32_t merged = vision_merged(v), in = merged, mid = v->merge_mid;
    int r = bind_merge_norm(b, &t->merger.norm);
    if (r == 0 && name_of(b, VISION_ROLE_MERGE_DOWN_TURNED))
        return bind_turned(b, v->out, v->hidden, &t->merger.down);
    if (r == 0 && !name_of(b, VISION_ROLE_MERGE_UP))
        return bind_linear(b, VISION_ROLE_MERGE_DOWN, 0, v->out, v->family->pools ? v->hidden : merged,
                           &t->merger.down);
    if (r == 0 && name_of(b, VISION_ROLE_MERGE_SQUEEZE)) {
        r = bind_squeeze(b, &t->merger);
        in = vision_squeezed(v);
    }
    if (r == 0)
        r = bind_merge_proj(b, &t->merger);
    if (r == 0)
        r = bind_merge_up(b, in, &t->merger);
    if (r == 0)
        r = bind_linear(b, VISION_ROLE_MERGE_DOWN, 0, v->out, mid, &t->merger.down);
    for (uint32_t i = 0; r == 0 && i < v->deepstack_count; i++) {
        struct vision_merger *m = &t->deepstack[i];
        r = bind_norm(b, VISION_ROLE_DEEP_NORM, i, merged, &m->norm);
        if (r == 0)
            r = bind_linear(b, VISION_ROLE_DEEP_UP, i, merged, merged, &m->up);
        if (r == 0)
            r = bind_linear(b, VISION_ROLE_DEEP_DOWN, i, v->out, merged, &m->down);
    }
    return r;
}

/* The filters as a matrix over the values of a patch, pixel by pixel. */
static int bind_flat_patches(struct binder *b, struct vision_weights *t)
{
    const struct vision_config *v = &b->config->vision;
    t->channels_last = true;
    return bind_linear(b, VISION_ROLE_PATCHES, 0, v->hidden, vision_patch_values(v), &t->patches);
}

static int bind_patches(struct binder *b, struct vision_weights *t)
{
    if (b->config->vision.family->budget || b->config->vision.family->patches_flat)
        return bind_flat_patches(b, t);
    const struct vision_config *v = &b->config->vision;
    const uint64_t p = v->shape.patch;
    const bool flat = v->frames == 1; /* without an axis of frames */
    const uint64_t first[2][5] = {{v->hidden, VISION_CHANNELS, v->frames, p, p},
                                  {v->hidden, VISION_CHANNELS, p, p}};
    const uint64_t last[2][5] = {{v->hidden, v->frames, p, p, VISION_CHANNELS},
                                 {v->hidden, p, p, VISION_CHANNELS}};
    char path[BINDER_PATH_MAX];
    struct linear_source s;
    int r = binder_filters(b, path_of(b, VISION_ROLE_PATCHES, 0, NULL, path), flat ? 4 : 5, first[flat],
                           last[flat], &t->channels_last, &s);
    if (r == 0)
        r = binder_projection(b, &s, 1, &t->patches.w);
    if (r == 0 && ((v->family->biases && !v->family->patches_unbiased) ||
                   binder_is_shaped(b, path_of(b, VISION_ROLE_PATCHES, 0, "bias", path), 1, &first[0][0])))
        r = binder_vector(b, path_of(b, VISION_ROLE_PATCHES, 0, "bias", path), v->hidden, &t->patches.bias);
    return r;
}

static int find_positions(struct binder *b, struct linear_source *ret)
{
    const struct vision_config *v = &b->config->vision;
    const enum encode_positions p = v->family->positions;
    const bool square = p != ENCODE_POSITIONS_AXES && p != ENCODE_POSITIONS_PAIRS;
    const uint64_t axes = p == ENCODE_POSITIONS_AXES ? 2 : v->grid;
    char path[BINDER_PATH_MAX];
    path_of(b, VISION_ROLE_POSITIONS, 0, NULL, path);
    const uint64_t shape[3] = {v->grid, v->grid, v->hidden};
    if (square && binder_is_shaped(b, path, 3, shape))
        return binder_flat(b, path, shape, ret);
    if (square)
        return binder_linear(b, path, (uint64_t)v->grid * v->grid + (name_of(b, VISION_ROLE_CLASS) ? 1 : 0),
                             v->hidden, ret);
    return binder_flat(b, path, (const uint64_t[]){axes, 2 * (uint64_t)v->grid / axes, v->hidden}, ret);
}

static int bind_positions(struct binder *b, struct vision_weights *t)
{
    struct linear_source positions;
    if (b->config->vision.grid == 0)
        return 0;
    int r = find_positions(b, &positions);
    return r < 0 ? r : binder_projection(b, &positions, 1, &t->positions);
}

static int bind_standard(struct binder *b, struct vision_norm *ret)
{
    const struct vision_config *v = &b->config->vision;
    char path[BINDER_PATH_MAX];
    if (!v->standardizes)
        return 0;
    int r = binder_vector(b, path_of(b, VISION_ROLE_STD_BIAS, 0, NULL, path), v->hidden, &ret->bias);
    return r < 0
               ? r
               : binder_vector(b, path_of(b, VISION_ROLE_STD_SCALE, 0, NULL, path), v->hidden, &ret->weight);
}

static int bind_all(struct binder *b, struct vision_block *blocks, struct vision_weights *t)
{
    const struct vision_config *v = &b->config->vision;
    struct vision_block measured = {0};
    int r = bind_norm(b, VISION_ROLE_PIXEL_NORM, 0, vision_patch_values(v), &t->pixels);
    if (r == 0)
        r = bind_patches(b, t);
    if (r == 0)
        r = bind_norm(b, VISION_ROLE_EMBED_NORM, 0, v->hidden, &t->embedded);
    if (r == 0)
        r = bind_positions(b, t);
    if (r == 0)
        r = bind_values(b, VISION_ROLE_CLASS, 0, &t->class_values);
    if (r == 0)
        r = bind_norm(b, VISION_ROLE_FIRST_NORM, 0, v->hidden, &t->first);
    for (uint32_t i = 0; r == 0 && i < v->depth; i++)
        r = bind_block(b, i, blocks ? &blocks[i] : &measured);
    if (r == 0)
        r = bind_norm(b, VISION_ROLE_LAST_NORM, 0, v->hidden, &t->last);
    if (r == 0)
        r = bind_standard(b, &t->standard);
    return r < 0 ? r : bind_mergers(b, t);
}

int vision_bind(struct binder *b, struct vision_block *blocks, struct vision_weights *ret)
{
    struct vision_weights t = {.blocks = blocks};
    const char *prefix = b->prefix;
    struct binder_active active = b->active;
    uint64_t used = b->used;
    const struct names_begin begin = find_begin(b->config->vision.family, b->checkpoint);
    ASSERT(begin.prefix && begin.root);
    b->prefix = begin.prefix;
    b->root = begin.root;
    b->keeps_floats = true;
    int r = bind_all(b, blocks, &t);
    b->keeps_floats = false;
    b->prefix = prefix;
    b->active = active; /* tokens do not read the vision encoder */
    b->vision_bytes = b->used - used;
    if (r == 0)
        *ret = t;
    return r;
}
