/* config.c - config.json: which keys all families have, and the order in which its parts are read. */
#include "model/config.h"

#include "model/blocks.h"
#include "model/family.h"
#include "model/json_read.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static void read_family(struct json_read *r, const json_t *top, struct config *c)
{
    char known[640];
    const char *type = json_read_string_or(r, "model_type", "");
    c->family = family_find(type);
    if (!c->family) {
        /* A text_config may have a type of its own, which only its parent's name explains. */
        struct json_read outer = {.object = top, .where = r->where, .e = r->e};
        const char *outer_type = json_read_string_or(&outer, "model_type", "");
        c->family = family_find(outer_type);
        if (c->family)
            type = outer_type;
    }
    if (!c->family) {
        json_read_fail(r, -ENOTSUP, "model_type '%.40s' is not supported; supported are %s", type,
                       family_list(known, sizeof(known)));
        return;
    }
    struct slice name = slice_of(type);
    if (slice_ends(name, SLICE("_text")))
        name.len -= 5;
    snprintf(c->family_name, sizeof(c->family_name), "%.*s", SLICE_ARGS(name));
}

static const struct key_word activations[] = {{"silu", ACTIVATION_SILU},
                                              {"swish", ACTIVATION_SILU},
                                              {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                                              {NULL, 0}};

/* llama's, which other families share. Zeros: not given. */
static const struct config_key keys[] = {
    CONFIG_U32_NEEDED(layers, 1, CONFIG_LAYERS_MAX, "num_hidden_layers"),
    CONFIG_U32_NEEDED(hidden, 8, CONFIG_HIDDEN_MAX, "hidden_size"),
    CONFIG_U32_NEEDED(vocab, 1, CONFIG_VOCAB_MAX, "vocab_size"),
    CONFIG_U32_NEEDED(context_max, 1, CONFIG_CONTEXT_MAX, "max_position_embeddings"),
    CONFIG_U32_NEEDED(heads, 1, CONFIG_HEADS_MAX, "num_attention_heads"),
    CONFIG_U32(kv_heads, 1, CONFIG_HEADS_MAX, 0, "num_key_value_heads"),
    CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 0, "head_dim"),
    CONFIG_U32(intermediate, 1, CONFIG_INTERMEDIATE_MAX, 0, "intermediate_size"),
    CONFIG_FLOAT(eps, 0, 1, 1e-6, "rms_norm_eps"),
    CONFIG_FLAG(tied, false, "tie_word_embeddings"),
    CONFIG_WORD(activation, activations, ACTIVATION_SILU, "hidden_act"),
    CONFIG_U32(experts, 0, CONFIG_EXPERTS_MAX, 0, "num_experts", "num_local_experts", "n_routed_experts"),
    CONFIG_KEY_END,
};

/* What follows from other numbers, and must fit them. */
static void derive(struct json_read *r, struct config *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0)
        c->head_dim = c->hidden / c->heads;
    if (c->heads % c->kv_heads != 0)
        json_read_fail(r, -EINVAL, "num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       c->heads, c->kv_heads);
    if (c->head_dim < 2 || c->head_dim > CONFIG_HEAD_DIM_MAX || c->head_dim % 2 != 0)
        json_read_fail(r, -ENOTSUP, "head_dim is %u, but must be even and at most %u", c->head_dim,
                       CONFIG_HEAD_DIM_MAX);
    if (c->family->embedding_sqrt)
        c->embedding_scale = (float)sqrt((double)c->hidden);
    if (c->experts > 0 && !c->family->experts)
        json_read_fail(r, -ENOTSUP, "num_experts is %u, but %s with experts is not supported", c->experts,
                       c->family_name);
}

static void read_keys(struct json_read *r, struct config *c)
{
    c->use_window = true;
    c->sparse_step = 1;
    config_keys_read(r, keys, c->family->keys, c);
    config_keys_read(r, c->family->keys, NULL, c);
    if (!r->error)
        derive(r, c);
}

static int parse_root(struct arena *a, const json_t *root, struct config *ret, struct err *e)
{
    struct config c = {0};
    const json_t *text = json_object_get(root, "text_config");
    if (text && !json_is_object(text))
        return err_set(e, -EINVAL, "config.json: text_config must be an object");
    struct json_read r = {.object = text, .fallback = root, .where = "config.json", .e = e};
    read_family(&r, root, &c);
    if (!r.error)
        read_keys(&r, &c);
    if (!r.error)
        config_layers_read(&r, a, &c);
    if (!r.error)
        config_rope_read(&r, &c);
    if (!r.error)
        config_quantization_read(&r, a, &c);
    if (!r.error)
        *ret = c;
    return r.error;
}

int config_parse(struct arena *a, struct slice text, struct config *ret, struct err *e)
{
    json_t *root;
    int r = json_read_parse(text, "config.json", &root, e);
    if (r < 0)
        return r;
    r = parse_root(a, root, ret, e);
    json_decref(root);
    return r;
}

int config_load(struct arena *a, const char *dir, struct config *ret, struct err *e)
{
    json_t *root;
    int r = json_read_file(dir, "config.json", &root, e);
    if (r < 0)
        return r;
    r = parse_root(a, root, ret, e);
    json_decref(root);
    return r;
}
