/* config_layers.c - what each layer is: its blocks, and its numbers where layers differ. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/family/family.h"

#include "base/check.h"
#include "base/none.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct layer_kind full_attention[LAYER_KINDS_MAX] = {
    {.names = {"full_attention", "attention"}, .mixer = &block_attention}};

static const struct layer_kind *kinds_of(const struct family *f)
{
    return f->kinds[0].mixer ? f->kinds : full_attention;
}

/* ---- kinds ---- */

static const struct layer_kind *kind_named(const struct layer_kind *kinds, const char *name)
{
    for (uint32_t k = 0; k < LAYER_KINDS_MAX && kinds[k].mixer; k++) {
        for (size_t i = 0; i < COUNT_OF(kinds[k].names) && kinds[k].names[i]; i++) {
            if (strcmp(kinds[k].names[i], name) == 0)
                return &kinds[k];
        }
    }
    return NULL;
}

static const char *list_kinds(const struct layer_kind *kinds, char *ret, size_t bytes_max)
{
    size_t at = 0;
    for (uint32_t k = 0; k < LAYER_KINDS_MAX && kinds[k].mixer && at < bytes_max; k++)
        at += (size_t)snprintf(ret + at, bytes_max - at, "%s%s", at ? ", " : "", kinds[k].names[0]);
    return ret;
}

static const struct layer_kind *listed_kind(struct json_read *r, const json_t *types, uint32_t index,
                                            const struct config *c)
{
    char known[160];
    const struct layer_kind *kinds = kinds_of(c->family);
    const char *name = json_string_value(json_array_get(types, index));
    const struct layer_kind *found = name ? kind_named(kinds, name) : NULL;
    if (!found)
        json_read_fail(r, -ENOTSUP, "layer_types[%u] is '%.40s'; %s has %s", index,
                       name ? name : "not a string", c->family_name, list_kinds(kinds, known, sizeof(known)));
    return found ? found : kinds;
}

/* "LLLG": the length of the pattern, whose last letter is the global layer. 0: another pattern. */
static uint32_t spelled_interval(const char *pattern)
{
    size_t n = strlen(pattern), local = strspn(pattern, "L");
    return n > 0 && n <= CONFIG_LAYERS_MAX && local + 1 == n && pattern[local] == 'G' ? (uint32_t)n : 0;
}

static uint32_t read_interval(struct json_read *r, const struct layer_pattern *p)
{
    uint32_t every = p->every;
    for (size_t i = 0; i < COUNT_OF(p->keys) && p->keys[i]; i++) {
        const char *spelled = json_string_value(json_read_get(r, p->keys[i]));
        if (!spelled)
            every = json_read_u32_or(r, p->keys[i], 1, CONFIG_LAYERS_MAX, every);
        else if (spelled_interval(spelled) > 0)
            every = spelled_interval(spelled);
        else
            json_read_fail(r, -ENOTSUP, "%s '%.40s' is not supported", p->keys[i], spelled);
    }
    return every;
}

/* ---- numbers ---- */

static uint32_t rope_of(const struct config *c, const struct layer_kind *kind)
{
    static const uint32_t tables[] = {[KIND_ROPE_MAIN] = 0,
                                      [KIND_ROPE_LOCAL] = 1,
                                      [KIND_ROPE_NONE] = ROPE_ABSENT,
                                      [KIND_ROPE_WINDOWED] = ROPE_ABSENT};
    if (c->rope_absent)
        return ROPE_ABSENT;
    return kind->rope == KIND_ROPE_WINDOWED && c->window == 0 ? 0 : tables[kind->rope];
}

static const struct block *mlp_of(const struct family *f, bool sparse)
{
    if (sparse)
        return f->experts->beside ? &block_experts_beside : &block_experts;
    return f->mlp ? f->mlp : &block_mlp;
}

static struct layer_config layer_of(const struct config *c, const struct layer_kind *kind, bool windowed,
                                    bool sparse)
{
    bool global = !kind->windowed, own_heads = global && c->global_v_is_k && c->global_kv_heads > 0;
    uint32_t head_dim = global && c->global_head_dim > 0 ? c->global_head_dim : c->head_dim;
    return (struct layer_config){
        .mixer = kind->mixer,
        .beside = kind->beside,
        .mlp = kind->alone ? NULL : mlp_of(c->family, sparse),
        .extra = c->layer_input > 0 ? &block_layer_input : NULL,
        .heads = kind->windowed && c->window_heads > 0 ? c->window_heads : c->heads,
        .kv_heads = (own_heads ? c->global_kv_heads : c->kv_heads)
                    << (kind->windowed && c->family->kv_twice_windowed),
        .head_dim = head_dim,
        .value_dim = c->attention_value > 0 ? c->attention_value : head_dim,
        .kv_from = NONE,
        .v_is_k = global && c->global_v_is_k,
        .rope = rope_of(c, kind),
        .window = windowed ? c->window : 0,
        .intermediate = c->intermediate,
    };
}

/* Layers that a key lists. */
struct layer_list {
    uint32_t layers[CONFIG_LAYERS_MAX], count;
};

static bool is_listed(const struct layer_list *list, uint32_t index)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->layers[i] == index)
            return true;
    }
    return false;
}

static void read_list(struct json_read *r, const char *key, struct layer_list *ret)
{
    ret->count = 0;
    json_read_ids(r, key, CONFIG_LAYERS_MAX, ret->layers, CONFIG_LAYERS_MAX, &ret->count);
}

static bool is_sparse(const struct config *c, const struct layer_list *dense, uint32_t index)
{
    return c->experts > 0 && !is_listed(dense, index) && index >= c->dense_layers &&
           (index + 1) % c->sparse_step == 0 && (c->sparse_last < 0 || (float)index <= c->sparse_last);
}

/* ---- numbers of single layers ---- */

/* per_layer_config: an object of numbers by a layer's index, which replace those of its kind. */
static void read_one(struct json_read *r, uint32_t index, const json_t *object, struct layer_config *l)
{
    char where[64];
    const char *key;
    json_t *value;
    snprintf(where, sizeof(where), "config.json: per_layer_config of layer %u", index);
    struct json_read one = {.object = object, .where = where, .e = r->e};
    json_object_foreach((json_t *)object, key, value) {
        if (strcmp(key, "head_dim") != 0 && strcmp(key, "num_key_value_heads") != 0)
            json_read_fail(&one, -ENOTSUP, "%.40s is not supported", key);
    }
    l->head_dim = l->value_dim = json_read_u32_or(&one, "head_dim", 2, CONFIG_HEAD_DIM_MAX, l->head_dim);
    l->kv_heads = json_read_u32_or(&one, "num_key_value_heads", 1, CONFIG_HEADS_MAX, l->kv_heads);
    if (one.error && !r->error)
        r->error = one.error;
}

/* Its key may have leading zeros, as many as make all keys of one length. */
static const json_t *single_of(const json_t *list, uint32_t index)
{
    char name[16];
    const json_t *found = NULL;
    for (int digits = 1; !found && digits <= 4; digits++) {
        snprintf(name, sizeof(name), "%0*u", digits, index);
        found = json_object_get(list, name);
    }
    return found;
}

/* Where the file lists layers, it lists all that differ: the kinds' own sizes do not count. */
static void read_single(struct json_read *r, struct config *c)
{
    const json_t *list = c->family->single_layers ? json_read_get(r, "per_layer_config") : NULL;
    if (list && !json_is_object(list))
        json_read_fail(r, -EINVAL, "per_layer_config must be an object");
    for (uint32_t i = 0; list && !r->error && i < c->layers; i++) {
        c->layer[i].head_dim = c->layer[i].value_dim = c->head_dim;
        c->layer[i].kv_heads = c->kv_heads;
        const json_t *one = single_of(list, i);
        if (json_is_object(one))
            read_one(r, i, one, &c->layer[i]);
    }
}

/* Heads of queries of each layer. */
static void read_heads(struct json_read *r, struct config *c)
{
    static const char key[] = "num_attention_heads_per_layer";
    uint32_t listed[CONFIG_LAYERS_MAX], count = 0;
    if (!c->family->heads_listed)
        return;
    json_read_ids(r, key, CONFIG_HEADS_MAX, listed, CONFIG_LAYERS_MAX, &count);
    if (count > 0 && count != c->layers)
        json_read_fail(r, -EINVAL, "%s has %u numbers for %u layers", key, count, c->layers);
    for (uint32_t i = 0; i < count && !r->error; i++) {
        c->layer[i].heads = listed[i];
        if (listed[i] == 0)
            json_read_fail(r, -EINVAL, "%s[%u] is 0", key, i);
    }
}

static bool same_attention(const struct layer_config *x, const struct layer_config *y)
{
    return x->mixer == y->mixer && x->rope == y->rope && x->window == y->window;
}

/* The last layers read K and V of the last layer of their kind before them. */
static void share_kv(struct json_read *r, struct config *c)
{
    uint32_t own = c->kv_shared_layers < c->layers ? c->layers - c->kv_shared_layers : 0;
    for (uint32_t i = own; i < c->layers && !r->error; i++) {
        struct layer_config *l = &c->layer[i];
        l->kv_from = own;
        while (l->kv_from > 0 && !same_attention(l, &c->layer[l->kv_from - 1]))
            l->kv_from--;
        if (l->kv_from-- == 0)
            json_read_fail(r, -EINVAL, "num_kv_shared_layers is %u: layer %u has no layer of its kind before",
                           c->kv_shared_layers, i);
        else if (l->head_dim != c->layer[l->kv_from].head_dim || l->kv_heads != c->layer[l->kv_from].kv_heads)
            json_read_fail(r, -ENOTSUP, "layer %u reads K and V of layer %u, which has other heads", i,
                           l->kv_from);
        else if (c->double_wide)
            l->intermediate *= 2;
    }
}

static void check_sizes(struct json_read *r, const struct config *c)
{
    for (uint32_t i = 0; i < c->layers && !r->error; i++) {
        const struct layer_config *l = &c->layer[i];
        if (l->heads % l->kv_heads != 0 || l->head_dim % 2 != 0)
            json_read_fail(r, -EINVAL,
                           "layer %u: %u heads of %u, %u of keys: the one must be a multiple of "
                           "the other, and a head's size even",
                           i, l->heads, l->head_dim, l->kv_heads);
        if (l->intermediate > CONFIG_INTERMEDIATE_MAX)
            json_read_fail(r, -EINVAL, "layer %u: an MLP of width %u is wider than %u", i, l->intermediate,
                           CONFIG_INTERMEDIATE_MAX);
    }
}

static void number_layers(struct config *c)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        if (c->layer[i].mixer->numbers)
            c->layer[i].mixer->numbers(c, &c->layer[i]);
        if (c->layer[i].kv_from != NONE)
            c->layer[i].index = c->layer[c->layer[i].kv_from].index;
        else if (layer_block(&c->layer[i], BLOCK_KV))
            c->layer[i].index = c->kv_count++;
        if (layer_block(&c->layer[i], BLOCK_RECURRENT))
            c->layer[i].recurrent = c->recurrent_count++;
    }
    if (c->family->mtp && c->mtp_layer.mixer->numbers)
        c->mtp_layer.mixer->numbers(c, &c->mtp_layer);
    c->mtp_layer.index = c->kv_count;
}

/* ---- blocks ---- */

static bool is_used(const struct config *c, const struct block *b)
{
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct layer_config *l = &c->layer[i];
        if (l->mixer == b || l->beside == b || l->mlp == b || l->extra == b)
            return true;
    }
    return c->family->mtp && (c->mtp_layer.mixer == b || c->mtp_layer.mlp == b);
}

/* Layers of the family can be made of it. */
static bool is_of_family(const struct family *f, const struct block *b)
{
    const struct layer_kind *kinds = kinds_of(f);
    for (uint32_t k = 0; k < LAYER_KINDS_MAX && kinds[k].mixer; k++) {
        if (kinds[k].mixer == b || kinds[k].beside == b)
            return true;
    }
    return b == mlp_of(f, false) || (f->experts && b == mlp_of(f, true));
}

static void read_blocks(struct json_read *r, struct config *c)
{
    for (size_t i = 0; blocks[i]; i++) {
        if (is_of_family(c->family, blocks[i]))
            config_keys_know(r, blocks[i]->keys);
        if (!is_used(c, blocks[i]))
            continue;
        config_keys_read(r, blocks[i]->keys, c->family->keys, c);
        if (c->shared_intermediate == 0)
            c->shared_intermediate = c->shared_experts * c->expert_intermediate;
        if (!r->error && blocks[i]->derive)
            blocks[i]->derive(c);
        if (!r->error && blocks[i]->check)
            blocks[i]->check(r, c);
    }
}

/* A list of layers' MLPs goes before the numbers. */
static void read_mlp_types(struct json_read *r, struct config *c, struct layer_list *ret)
{
    const json_t *list = json_read_get(r, "mlp_layer_types");
    if (!list || !c->family->experts)
        return;
    if (!json_is_array(list) || json_array_size(list) != c->layers) {
        json_read_fail(r, -EINVAL, "mlp_layer_types must be a list of num_hidden_layers = %u names",
                       c->layers);
        return;
    }
    c->dense_layers = ret->count = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, "dense") == 0)
            ret->layers[ret->count++] = i;
        else if (!name || strcmp(name, "sparse") != 0)
            json_read_fail(r, -ENOTSUP, "mlp_layer_types[%u] is '%.40s'; dense and sparse are supported", i,
                           name ? name : "not a string");
    }
}

/* "3,4,5" lists the layers with experts; all others are dense. */
static void read_enum(struct json_read *r, struct config *c, struct layer_list *ret)
{
    const char *text = c->family->layers_padded ? json_read_string_or(r, "moe_layers_enum", NULL) : NULL;
    bool sparse[CONFIG_LAYERS_MAX] = {false};
    if (!text)
        return;
    while (*text && !r->error) {
        char *end;
        const unsigned long n = strtoul(text, &end, 10);
        if (end == text || (*end && *end != ',') || n >= CONFIG_LAYERS_MAX)
            json_read_fail(r, -EINVAL, "moe_layers_enum must be a text of numbers of layers");
        else
            sparse[n] = true;
        text = *end ? end + 1 : end;
    }
    c->dense_layers = ret->count = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        if (!sparse[i])
            ret->layers[ret->count++] = i;
    }
}

static void fill_layers(struct json_read *r, const json_t *types, struct config *c)
{
    struct layer_list dense = {.count = 0}, first;
    const struct layer_kind *kinds = kinds_of(c->family);
    const struct layer_pattern *pattern = &c->family->pattern;
    uint32_t every = types ? 0 : read_interval(r, pattern);
    if (c->family->experts && c->family->experts->mlp_only)
        read_list(r, "mlp_only_layers", &dense);
    for (size_t i = 0; i < COUNT_OF(pattern->keys) && pattern->keys[i]; i++)
        json_read_know(r, pattern->keys[i]); /* beside a list, too */
    const uint32_t phase = pattern->leads ? 0 : 1;
    bool listed = pattern->first && json_read_get(r, pattern->first);
    if (listed)
        read_list(r, pattern->first, &first);
    else if (pattern->from_one && !types)
        json_read_fail(r, -EINVAL, "%s is missing", pattern->first);
    if (pattern->listed_if_dense && !types && c->dense_layers > 0)
        json_read_fail(r, -EINVAL, "layer_types is missing, beside first_k_dense_replace %u",
                       c->dense_layers);
    read_enum(r, c, &dense);
    read_mlp_types(r, c, &dense);
    for (uint32_t i = 0; i < c->layers; i++) {
        bool is_first =
            listed ? is_listed(&first, i + pattern->from_one) : every == 0 || (i + phase) % every == 0;
        is_first |= (pattern->last && i + 1 == c->layers) || (pattern->also_first && i == 0);
        const struct layer_kind *kind = &kinds[is_first ? 0 : 1];
        bool windowed = kind->windowed && c->use_window && i >= c->window_from;
        if (types) {
            kind = pattern->last && i + 1 == c->layers ? &kinds[0] : listed_kind(r, types, i, c);
            windowed = kind->windowed && c->use_window;
            if (windowed && c->window == 0)
                json_read_fail(r, -EINVAL, "sliding_window is missing: layer %u has one", i);
        }
        c->layer[i] = layer_of(c, kind, windowed, is_sparse(c, &dense, i));
        if (c->dense_pattern == 1 && c->layer[i].mlp == mlp_of(c->family, false))
            c->layer[i].rope = 0;
    }
    read_heads(r, c);
    read_single(r, c);
    share_kv(r, c);
    check_sizes(r, c);
}

/* Numbers of xIELU, which GGUF files have as lists of the metadata. */
static void read_xielu(struct json_read *r, struct config *c)
{
    static const char *const keys[] = {"xielu_alpha_p", "xielu_alpha_n", "xielu_beta", "xielu_eps"};
    if (!c->naming || c->activation != ACTIVATION_XIELU)
        return;
    for (size_t k = 0; k < COUNT_OF(keys) && !r->error; k++) {
        const json_t *list = json_read_get(r, keys[k]);
        if (json_array_size(list) != c->layers)
            json_read_fail(r, -EINVAL, "%s must be a list of num_hidden_layers = %u numbers", keys[k],
                           c->layers);
        for (uint32_t i = 0; i < c->layers && !r->error; i++)
            c->layer[i].xielu[k] = (float)json_number_value(json_array_get(list, i));
    }
}

/* Whether a list has a value for each layer, and perhaps for those of the MTP head. */
static bool is_list_of_layers(struct json_read *r, const struct config *c, const json_t *list)
{
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count < c->layers)
        return false;
    return count == c->layers ||
           (c->family->layers_padded &&
            count == c->layers + json_read_u32_or(r, "num_nextn_predict_layers", 0, CONFIG_LAYERS_MAX, 0));
}

static void read_limits(struct json_read *r, struct config *c, const char *key, size_t at)
{
    const json_t *list = json_read_get(r, key);
    if (!list)
        return;
    if (!is_list_of_layers(r, c, list)) {
        json_read_fail(r, -EINVAL, "%s must be a list of num_hidden_layers = %u numbers", key, c->layers);
        return;
    }
    for (uint32_t i = 0; i < c->layers && !r->error; i++) {
        const json_t *v = json_array_get(list, i);
        const double limit = json_is_null(v) ? 0 : json_is_number(v) ? json_number_value(v) : -1;
        if (!(limit >= 0 && limit <= 1e6))
            json_read_fail(r, -EINVAL, "%s[%u] must be a number in 0..1e+06", key, i);
        else
            *(float *)((char *)&c->layer[i] + at) = (float)limit;
    }
}

/* Layers without rotation: where no_rope_layers has a 0, else every so many. */
static void except_layers(struct json_read *r, struct config *c)
{
    uint32_t listed[CONFIG_LAYERS_MAX], count = 0;
    if (c->family->rope_except == 0)
        return;
    uint32_t every =
        json_read_u32_or(r, "no_rope_layer_interval", 1, CONFIG_LAYERS_MAX, c->family->rope_except);
    json_read_ids(r, "no_rope_layers", 1, listed, CONFIG_LAYERS_MAX, &count);
    if (count > 0 && count < c->layers)
        json_read_fail(r, -EINVAL, "no_rope_layers has %u numbers for %u layers", count, c->layers);
    for (uint32_t i = 0; i < c->layers && !r->error; i++) {
        if (count > 0 ? listed[i] == 0 : (i + 1) % every == 0)
            c->layer[i].rope = ROPE_ABSENT;
    }
}

/* A list of names, or a string of letters as one: a new reference; NULL: neither is there. */
static json_t *read_types(struct json_read *r)
{
    static const char *const keys[] = {"layer_types", "layers_block_type"};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        json_t *types = (json_t *)json_read_get(r, keys[i]);
        if (types)
            return json_incref(types);
    }
    const char *letters = json_read_string_or(r, "hybrid_override_pattern", NULL);
    json_t *list = letters ? json_array() : NULL;
    for (; list && *letters; letters++)
        json_array_append_new(list, json_stringn(letters, 1));
    return list;
}

static void make_layers(struct json_read *r, struct arena *a, const json_t *types, struct config *c)
{
    if (c->layers == 0 && json_is_array(types) && json_array_size(types) <= CONFIG_LAYERS_MAX)
        c->layers = (uint32_t)json_array_size(types);
    if (c->layers == 0 && !types) {
        json_read_fail(r, -EINVAL, "layer_types is missing");
        return;
    }
    if (c->layers == 0 || (types && !is_list_of_layers(r, c, types))) {
        json_read_fail(r, -EINVAL, "layer_types must be a list of num_hidden_layers = %u names", c->layers);
        return;
    }
    c->layer = ARENA_ARRAY(a, struct layer_config, c->layers);
    if (c->layer)
        fill_layers(r, types, c);
    else
        json_read_fail(r, -ENOMEM, "no memory left for %u layers", c->layers);
    if (!r->error)
        except_layers(r, c);
    if (!r->error)
        read_xielu(r, c);
    if (!r->error && c->family->limits_listed) {
        read_limits(r, c, "swiglu_limits", offsetof(struct layer_config, expert_limit));
        read_limits(r, c, "swiglu_limits_shared", offsetof(struct layer_config, mlp_limit));
    }
}

/* States and latent rows of a text are computed from left to right, and so are images. */
static void check_directions(struct json_read *r, const struct config *c)
{
    for (uint32_t i = 0; !c->causal && !r->error && i < c->layers; i++) {
        if (c->layer[i].mixer != &block_attention || c->layer[i].beside || c->vision_family)
            json_read_fail(r, -ENOTSUP, "is_causal is false, which is not supported for models of type %s",
                           c->family_name);
    }
}

static bool is_of_experts(const struct block *b)
{
    return b == &block_experts || b == &block_experts_beside;
}

static bool has_experts(const struct config *c)
{
    for (uint32_t i = 0; i < c->layers; i++)
        if (is_of_experts(c->layer[i].mixer) || is_of_experts(c->layer[i].mlp))
            return true;
    return false;
}

/* The layer of an MTP head. */
static struct layer_config head_of(const struct config *c)
{
    const struct layer_kind *kind = kinds_of(c->family);
    while (c->family->mtp == MTP_PAIR && kind->mixer != &block_attention)
        kind++;
    struct layer_config l = layer_of(c, kind, false, c->experts > 0 && c->family->mtp != MTP_BLOCK);
    if (c->family->mtp == MTP_PAIR)
        l.mlp = c->experts > 0 ? &block_experts : &block_mlp_plain;
    return l;
}

void config_layers_read(struct json_read *r, struct arena *a, struct config *c)
{
    json_t *types = read_types(r);
    if (!r->error)
        make_layers(r, a, types, c);
    json_decref(types);
    if (r->error)
        return;
    /* Where all layers are dense, nothing of the experts but their number has been read. */
    if (!has_experts(c))
        c->experts = 0;
    c->mtp_layer = head_of(c);
    read_blocks(r, c);
    number_layers(c);
    check_directions(r, c);
}
