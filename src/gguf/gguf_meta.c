/* gguf_meta.c - values go to config.json by their type; lists of equal values are one value. */
#include "gguf/gguf_meta.h"

#include "base/check.h"
#include "gguf/gguf_arch.h"

#include <errno.h>
#include <stdio.h>

#define ROPE  "rope."                /* in front of a key of rope_parameters (struct gguf_key) */
#define HEADS "attention.head_count" /* in front of keys that count heads */

const struct gguf_value *gguf_meta_find(const struct gguf_meta *v, const char *key)
{
    char name[128];
    int n = snprintf(name, sizeof(name), "%s.%s", v->arch->name, key);
    ASSERT(n > 0 && n < (int)sizeof(name));
    return gguf_find(&v->file->head, name);
}

static bool same_item(const struct gguf_item *x, const struct gguf_item *y)
{
    return x->kind == y->kind && x->real == y->real && x->flag == y->flag && slice_eq(x->string, y->string);
}

bool gguf_meta_is_zero(const struct gguf_item *item)
{
    return item->kind == GGUF_IS_NUMBER && item->real == 0;
}

/* The value, or the one that all values of a list are. Numbers that differ between layers have no key. Zeros
 * among others are of layers of another kind, where the architecture has kinds. Heads of two sizes or counts
 * give the first value: gguf_layers_copy_two_sizes() and gguf_apart_copy() have the others. */
static int only_value(struct gguf_meta *v, const char *key, const struct gguf_value *value,
                      struct gguf_item *ret)
{
    struct gguf_walk w = {.value = value};
    struct gguf_item next;
    const bool kinds = v->arch->kinds.with != NULL,
               first = v->arch->two_sizes || (v->arch->apart && strncmp(key, HEADS, strlen(HEADS)) == 0);
    if (!gguf_next(&w, ret))
        return err_set(v->e, -EINVAL, "metadata %s.%s: an empty list", v->arch->name, key);
    while (!first && gguf_next(&w, &next)) {
        if (kinds && gguf_meta_is_zero(ret))
            *ret = next;
        else if (!same_item(ret, &next) && !(kinds && gguf_meta_is_zero(&next)))
            return err_set(v->e, -ENOTSUP,
                           "metadata %s.%s: values that differ between layers are not supported",
                           v->arch->name, key);
    }
    return 0;
}

json_t *gguf_meta_json(const struct gguf_item *item)
{
    switch (item->kind) {
    case GGUF_IS_STRING:
        return json_stringn(item->string.ptr ? item->string.ptr : "", item->string.len);
    case GGUF_IS_BOOL:
        return json_boolean(item->flag);
    default:
        return item->whole ? json_integer(item->number) : json_real(item->real);
    }
}

int gguf_meta_set(struct gguf_meta *v, json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0
               ? 0
               : err_set(v->e, -EINVAL, "metadata: the value of %s is not a number or text", name);
}

int gguf_meta_copy(struct gguf_meta *v, const char *key, json_t *object, const char *name)
{
    struct gguf_item item;
    const struct gguf_value *value = gguf_meta_find(v, key);
    int r = value ? only_value(v, key, value, &item) : 0;
    return r == 0 && value ? gguf_meta_set(v, object, name, gguf_meta_json(&item)) : r;
}

int gguf_meta_copy_keys(struct gguf_meta *v, const struct gguf_key *keys)
{
    int r = 0;
    for (; r == 0 && keys && keys->key; keys++) {
        const bool rope = strncmp(keys->name, ROPE, strlen(ROPE)) == 0;
        r = gguf_meta_copy(v, keys->key, rope ? v->rope : v->root, keys->name + (rope ? strlen(ROPE) : 0));
    }
    return r;
}

uint64_t gguf_meta_number(const struct gguf_meta *v, const char *key)
{
    uint64_t n;
    return gguf_u64(gguf_meta_find(v, key), &n) ? n : 0;
}

const struct gguf_tensor *gguf_meta_tensor(const struct gguf_meta *v, const char *name)
{
    const struct gguf *g = &v->file->head;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (slice_eq(g->tensors[i].name, slice_of(name)))
            return &g->tensors[i];
    }
    return NULL;
}

double gguf_meta_real(const struct gguf_meta *v, const char *key, double absent)
{
    struct gguf_item item;
    struct gguf_walk w = {.value = gguf_meta_find(v, key)};
    return w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_NUMBER ? item.real : absent;
}

int gguf_meta_set_number(struct gguf_meta *v, const char *name, uint64_t value)
{
    return gguf_meta_set(v, v->root, name, json_integer((json_int_t)MIN_OF(value, (uint64_t)UINT32_MAX)));
}

uint64_t gguf_meta_layers(const struct gguf_meta *v)
{
    const uint64_t blocks = gguf_meta_number(v, "block_count"),
                   heads = gguf_meta_number(v, "nextn_predict_layers");
    return blocks > heads ? blocks - heads : blocks;
}
