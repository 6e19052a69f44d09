/* vision_weights.c - names and shapes of the vision encoder's tensors, in either writer's layout.
 *
 * The patch embedding is a convolution with a stride of its size: a matrix over the values of a patch. Its
 * two layouts differ in their order only, so the patches are laid out in the matrix's order, and the
 * matrix is packed unchanged. */
#include "model/load/vision_weights.h"

#include "model/config/config.h"
#include "model/load/binder.h"

#include "base/check.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <stdio.h>

static const char *const prefixes[] = {"model.visual.", "visual.", "vision_tower."};

static const char *find_prefix(const struct checkpoint *c)
{
    for (size_t i = 0; i < COUNT_OF(prefixes); i++) {
        if (checkpoint_any(c, prefixes[i]))
            return prefixes[i];
    }
    return NULL;
}

bool vision_exists(const struct checkpoint *c)
{
    return find_prefix(c) != NULL;
}

/* "HEAD.TAIL" of binder paths. */
static const char *join(const char *head, const char *tail, char ret[BINDER_PATH_MAX])
{
    int n = snprintf(ret, BINDER_PATH_MAX, "%s.%s", head, tail);
    ASSERT(n > 0 && n < BINDER_PATH_MAX);
    return ret;
}

static int bind_norm(struct binder *b, const char *head, const char *name, uint32_t n,
                     struct vision_norm *ret)
{
    char path[BINDER_PATH_MAX], part[BINDER_PATH_MAX];
    join(head, name, path);
    int r = binder_vector(b, join(path, "weight", part), n, &ret->weight);
    return r < 0 ? r : binder_vector(b, join(path, "bias", part), n, &ret->bias);
}

static int bind_bias(struct binder *b, const char *path, uint32_t n, dev_ptr *ret)
{
    char part[BINDER_PATH_MAX];
    return binder_vector(b, join(path, "bias", part), n, ret);
}

static int bind_linear(struct binder *b, const char *head, const char *name, uint32_t out, uint32_t in,
                       struct vision_linear *ret)
{
    char path[BINDER_PATH_MAX];
    struct linear_source s;
    int r = binder_linear_biased(b, join(head, name, path), out, in, &s);
    if (r == 0)
        r = binder_projection(b, &s, 1, &ret->w);
    return r < 0 ? r : bind_bias(b, path, out, &ret->bias);
}

/* One tensor, its rows queries | keys | values: as two matrices, for queries are needed when all keys are
 * there. */
static int bind_qkv(struct binder *b, const char *head, uint32_t n, struct vision_block *ret)
{
    char path[BINDER_PATH_MAX];
    struct linear_source s;
    dev_ptr bias = DEV_NULL;
    int r = binder_linear_biased(b, join(head, "attn.qkv", path), 3 * n, n, &s);
    if (r == 0)
        r = bind_bias(b, path, 3 * n, &bias);
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

static int bind_block(struct binder *b, uint32_t index, struct vision_block *ret)
{
    const struct vision_config *v = &b->config->vision;
    char head[32];
    snprintf(head, sizeof(head), "blocks.%u", index);
    int r = bind_norm(b, head, "norm1", v->hidden, &ret->mix);
    if (r == 0)
        r = bind_qkv(b, head, v->hidden, ret);
    if (r == 0)
        r = bind_linear(b, head, "attn.proj", v->hidden, v->hidden, &ret->out);
    if (r == 0)
        r = bind_norm(b, head, "norm2", v->hidden, &ret->mlp);
    if (r == 0)
        r = bind_linear(b, head, "mlp.linear_fc1", v->intermediate, v->hidden, &ret->up);
    return r < 0 ? r : bind_linear(b, head, "mlp.linear_fc2", v->hidden, v->intermediate, &ret->down);
}

static int bind_merger(struct binder *b, const char *head, uint32_t normed, struct vision_merger *ret)
{
    const struct vision_config *v = &b->config->vision;
    uint32_t merged = vision_merged(v);
    int r = bind_norm(b, head, "norm", normed, &ret->norm);
    if (r == 0)
        r = bind_linear(b, head, "linear_fc1", merged, merged, &ret->up);
    return r < 0 ? r : bind_linear(b, head, "linear_fc2", v->out, merged, &ret->down);
}

static int bind_mergers(struct binder *b, struct vision_weights *t)
{
    const struct vision_config *v = &b->config->vision;
    char head[40];
    int r = bind_merger(b, "merger", v->hidden, &t->merger);
    for (uint32_t i = 0; r == 0 && i < v->deepstack_count; i++) {
        snprintf(head, sizeof(head), "deepstack_merger_list.%u", i);
        r = bind_merger(b, head, vision_merged(v), &t->deepstack[i]);
    }
    return r;
}

static int bind_patches(struct binder *b, struct vision_weights *t)
{
    const struct vision_config *v = &b->config->vision;
    const uint64_t p = v->shape.patch;
    const uint64_t first[5] = {v->hidden, VISION_CHANNELS, VISION_FRAMES, p, p};
    const uint64_t last[5] = {v->hidden, VISION_FRAMES, p, p, VISION_CHANNELS};
    struct linear_source s;
    int r = binder_filters(b, "patch_embed.proj", first, last, &t->channels_last, &s);
    if (r == 0)
        r = binder_projection(b, &s, 1, &t->patches.w);
    return r < 0 ? r : bind_bias(b, "patch_embed.proj", v->hidden, &t->patches.bias);
}

static int bind_all(struct binder *b, struct vision_block *blocks, struct vision_weights *t)
{
    const struct vision_config *v = &b->config->vision;
    struct linear_source positions;
    struct vision_block measured;
    int r = bind_patches(b, t);
    if (r == 0)
        r = binder_linear(b, "pos_embed", (uint64_t)v->grid * v->grid, v->hidden, &positions);
    if (r == 0)
        r = binder_projection(b, &positions, 1, &t->positions);
    for (uint32_t i = 0; r == 0 && i < v->depth; i++)
        r = bind_block(b, i, blocks ? &blocks[i] : &measured);
    return r < 0 ? r : bind_mergers(b, t);
}

int vision_bind(struct binder *b, struct vision_block *blocks, struct vision_weights *ret)
{
    struct vision_weights t = {.blocks = blocks};
    const char *prefix = b->prefix;
    struct binder_active active = b->active;
    uint64_t used = b->used;
    b->prefix = find_prefix(b->checkpoint);
    ASSERT(b->prefix);
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
