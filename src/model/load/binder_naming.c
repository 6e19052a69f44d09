/* binder_naming.c - tensors with other names than Hugging Face's (tensor_naming.h): blocks that become affine
 * matrices, and rows in another order. */
#include "model/config/config.h"
#include "model/load/binder.h"

#include "base/check.h"
#include "compute/backend.h"
#include "tensor/block_form.h"
#include "tensor/tensor_naming.h"
#include "weights/checkpoint.h"

#include <errno.h>
#include <stdio.h>

static struct tensor_reorder order_of(const struct config *c, enum tensor_order order)
{
    const uint64_t keys = 2 * (uint64_t)c->key_heads * c->key_dim,
                   each = c->value_heads / MAX_OF(c->key_heads, 1u);
    switch (order) {
    case ORDER_PAIRS:
        return (struct tensor_reorder){0, 2, c->head_dim / 2, 1};
    case ORDER_AFTER_KEYS:
        return (struct tensor_reorder){keys, c->key_heads, each, c->value_dim};
    case ORDER_NUMBERS:
        return (struct tensor_reorder){0, c->key_heads, each, 1};
    default:
        return (struct tensor_reorder){0, c->key_heads, each, c->value_dim};
    }
}

/* The orders of rows and columns of the tensor at `path` ("blk.3.attn_q"); zeros: no other order. */
static void find_orders(const struct config *c, const char *path, struct tensor_reorder *rows,
                        struct tensor_reorder *columns)
{
    const struct tensor_naming *n = c->naming;
    const size_t len = strlen(n->layers);
    const char *dot =
        strncmp(path, n->layers, len) == 0 && path[len] == '.' ? strchr(path + len + 1, '.') : NULL;
    *rows = *columns = (struct tensor_reorder){0};
    for (const struct tensor_ordered *o = n->ordered; dot && o && o->role != ROLE_NONE; o++) {
        if (strcmp(tensor_naming_of(n, o->role), dot + 1) == 0)
            *(o->order == ORDER_HEAD_COLUMNS ? columns : rows) = order_of(c, o->order);
    }
}

/* Groups of columns move as a whole. */
static int check_order(struct binder *b, const char *name, const struct linear_source *s)
{
    const struct tensor_reorder *o = &s->column_order;
    if (!s->affine || o->rows == 0 || (o->size % s->group == 0 && o->from % s->group == 0))
        return 0;
    return err_set(b->e, -ENOTSUP, "tensor %s: columns of heads of %llu in groups of %u are not supported",
                   name, (ull)o->size, s->group);
}

/* The tensor has a role of its own. */
static bool is_named(const struct config *c, const char *name)
{
    const size_t len = strlen(c->naming->layers);
    const char *dot =
        strncmp(name, c->naming->layers, len) == 0 && name[len] == '.' ? strchr(name + len + 1, '.') : NULL;
    for (const struct tensor_name *own = c->naming->own; dot && own && own->role != ROLE_NONE; own++) {
        if (strcmp(own->name, dot + 1) == 0)
            return true;
    }
    return false;
}

/* The factor of all scales that a matrix of NVFP4 may have beside its blocks, or one for each expert. */
static int find_factor(struct binder *b, const char *module, struct linear_source *s)
{
    char name[BINDER_NAME_MAX];
    struct tensor t;
    snprintf(name, sizeof(name), "%s.scale", module);
    if (is_named(b->config, name) || !binder_find_optional(b, name, &t))
        return 0;
    if (!s->weight.form || s->weight.form->scales != DTYPE_F8_E4M3)
        return err_set(b->e, -ENOTSUP, "tensor %s: a factor of a matrix of dtype %s is not supported", name,
                       tensor_form_name(&s->weight));
    if (t.dtype != DTYPE_F32)
        return err_set(b->e, -ENOTSUP, "tensor %s has dtype %s; supported is F32", name,
                       tensor_form_name(&t));
    s->supers = t;
    s->super = (uint32_t)s->in;
    return binder_check_shape(b, name, &t, 1, &s->experts);
}

int binder_naming_source(struct binder *b, const char *name, const char *module, struct linear_source *s)
{
    const struct block_form *f = s->weight.form;
    if (!b->config->naming)
        return 0;
    find_orders(b->config, module, &s->row_order, &s->column_order);
    if (f) {
        ASSERT(s->weight.rank >= 2 && s->in % f->values == 0);
        block_form_source(f, s);
        if (code_is_word(s->codes) && !binder_backend(b)->codebooks)
            return err_set(b->e, -ENOTSUP, "tensor %s: the form %s is read on CPUs alone (--device cpu)",
                           name, f->name);
        s->scales.rank = s->biases.rank = s->supers.rank = s->weight.rank;
        memcpy(s->scales.shape, s->weight.shape, sizeof(s->scales.shape));
        memcpy(s->biases.shape, s->weight.shape, sizeof(s->biases.shape));
        memcpy(s->supers.shape, s->weight.shape, sizeof(s->supers.shape));
    }
    int r = find_factor(b, module, s);
    return r == 0 ? check_order(b, name, s) : r;
}

struct tensor_reorder binder_naming_order(const struct binder *b, const char *path)
{
    struct tensor_reorder rows = {0}, columns = {0};
    if (b->config->naming)
        find_orders(b->config, path, &rows, &columns);
    ASSERT(columns.rows == 0);
    return rows;
}
