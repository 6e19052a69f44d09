/* config.c - config.json: which keys all families have, and the order in which its parts are read. */
#include "model/config/config.h"

#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/config/config_unknown.h"
#include "model/config/json_read.h"
#include "model/config/pooling.h"
#include "model/family/family.h"
#include "model/family/vision_family.h"

#include "base/check.h"
#include "weights/model_files.h"
#include "weights/model_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static void read_family(struct json_read *r, const json_t *top, struct config *c)
{
    struct json_read outer = {.object = top, .where = r->where, .e = r->e};
    const char *type = json_read_string_or(r, "model_type", "");
    const char *outer_type = json_read_string_or(&outer, "model_type", "");
    const char *refused = family_refused(type) ? type : family_refused(outer_type) ? outer_type : NULL;
    if (refused) {
        json_read_fail(r, -ENOTSUP, "models of type %s are not computed: %s", refused,
                       family_refused(refused));
        return;
    }
    /* A text_config without a type has its parent's. An unknown type is not computed as its parent's. */
    c->family = family_find(type);
    if (!c->family) {
        json_read_fail(r, -ENOTSUP,
                       "model_type '%.40s' is not supported; docs/models.md lists those that are", type);
        return;
    }
    snprintf(c->family_name, sizeof(c->family_name), "%s", family_name(c->family, type));
}

static const struct key_word activations[] = {{"silu", ACTIVATION_SILU},
                                              {"swish", ACTIVATION_SILU},
                                              {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                                              {"gelu_new", ACTIVATION_GELU_TANH},
                                              {"gelu", ACTIVATION_GELU_ERF},
                                              {"relu2", ACTIVATION_RELU_SQUARE},
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
    CONFIG_FLAG(causal, true, "is_causal"),
    CONFIG_FLAG(attention_biases, true, "attention_bias"),
    CONFIG_FLAG(attention_out_biases, true, "attention_out_bias", "attention_bias"),
    CONFIG_FLAG(mlp_biases, true, "mlp_bias"),
    CONFIG_WORD(activation, activations, ACTIVATION_SILU, "hidden_act"),
    CONFIG_U32(experts, 0, CONFIG_EXPERTS_MAX, 0, "num_experts", "num_local_experts", "n_routed_experts"),
    CONFIG_ONLY(false, "is_encoder_decoder"),
    CONFIG_ONLY(false, "add_cross_attention"),
    CONFIG_KEY_END,
};

/* The width that a model with block_auto_adjust_ff_dim has. */
static void adjust_mlp(struct json_read *r, struct config *c)
{
    uint64_t width = 2 * (uint64_t)c->intermediate / 3;
    width = ROUND_UP((uint64_t)((double)width * (double)c->mlp_factor), (uint64_t)c->mlp_multiple);
    if (width == 0 || width > CONFIG_INTERMEDIATE_MAX)
        json_read_fail(r, -EINVAL, "intermediate_size %u makes an MLP of width %llu, which is not in 1..%u",
                       c->intermediate, (unsigned long long)width, CONFIG_INTERMEDIATE_MAX);
    else
        c->intermediate = (uint32_t)width;
}

/* The table has a row for each position; the first rows may be unused. */
static void derive_encoder(struct json_read *r, struct config *c)
{
    c->both_ways = true;
    c->position_rows = c->context_max;
    c->position_first = c->family->positions_after_pad ? c->pad + 1 : 0;
    if (c->position_first < c->position_rows)
        c->context_max -= c->position_first;
    else
        json_read_fail(r, -EINVAL, "max_position_embeddings %u leaves no position after pad_token_id %u",
                       c->position_rows, c->pad);
}

/* A decoder that sees all of its text. Its window has as many keys on either side, beside the query's own. */
static void derive_directions(struct config *c)
{
    /* gemma3's file says how many keys a window has, of which half are later ones. */
    if (c->both_ways && c->window > 0)
        c->window = c->window / 2 + 1;
    if (!c->causal && c->window > 0)
        c->window++;
    c->both_ways |= !c->causal;
}

/* Derives numbers from others and checks that they fit. */
static void derive(struct json_read *r, struct config *c)
{
    /* A family's default is not meant where it cannot be. */
    bool given = json_read_has(r, "num_key_value_heads");
    if (c->kv_heads == 0 || (!given && c->heads % c->kv_heads != 0))
        c->kv_heads = c->heads;
    if (c->head_dim == 0)
        c->head_dim = c->hidden / c->heads;
    if (c->heads % c->kv_heads != 0)
        json_read_fail(r, -EINVAL, "num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       c->heads, c->kv_heads);
    if (c->head_dim < 2 || c->head_dim > CONFIG_HEAD_DIM_MAX || c->head_dim % 2 != 0)
        json_read_fail(r, -ENOTSUP, "head_dim is %u, but must be even and at most %u", c->head_dim,
                       CONFIG_HEAD_DIM_MAX);
    if (c->mlp_two_thirds)
        adjust_mlp(r, c);
    c->layer_norm = c->family->layer_norm && !(c->family->rms_norm_named && json_read_get(r, "rms_norm_eps"));
    if (c->window_before > 0)
        c->window = c->window_before + 1;
    derive_directions(c);
    if (c->family->encoder)
        derive_encoder(r, c);
    if (c->embedding_sqrt)
        c->embedding_scale = (float)sqrt((double)c->hidden);
    /* The factor of an attention's input is one of its values, and so of its result. */
    if (c->attention_in_scale != 0)
        c->attention_out_scale *= c->attention_in_scale;
    if (c->score_scale == 0)
        c->score_scale = c->family->score_scale;
    if (!c->use_experts)
        c->experts = 0;
    c->moe_scale = c->moe_average && c->shared_experts > 0 ? 0.5f : 0;
    if (c->experts > 0 && !c->family->experts)
        json_read_fail(r, -ENOTSUP, "num_experts is %u, but %s with experts is not supported", c->experts,
                       c->family_name);
}

static void read_keys(struct json_read *r, struct config *c)
{
    c->use_window = c->use_experts = c->use_expert_bias = true;
    c->sparse_step = 1;
    c->sparse_last = -1;
    c->attention_gate = c->family->own_gate;
    c->embedding_sqrt = c->family->embedding_sqrt;
    c->route_score = c->family->experts ? c->family->experts->score : ROUTE_SOFTMAX;
    config_keys_read(r, keys, c->family->keys, c);
    config_keys_read(r, c->family->keys, NULL, c);
    if (!r->error)
        derive(r, c);
}

/* Encoders of images or sound beside the text. */
static bool has_other_parts(const json_t *root)
{
    return json_is_object(json_object_get(root, "vision_config")) ||
           json_is_object(json_object_get(root, "audio_config")) ||
           json_is_object(json_object_get(root, "sound_config"));
}

static const struct vision_family *vision_family_of(const json_t *root, const struct config *c)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    /* A GGUF model's encoder is a file of its own, with a type of its own. */
    const char *own =
        c->naming ? json_string_value(json_object_get(json_object_get(root, "vision_config"), "model_type"))
                  : NULL;
    return vision_family_find(own ? own : type ? type : c->family_name);
}

/* A new reference; NULL: it has none. */
static json_t *defaults_of(const struct family *f, struct json_read *r)
{
    char text[768];
    json_t *ret;
    if (!f || !f->defaults)
        return NULL;
    size_t n = strlen(f->defaults);
    ASSERT(n < sizeof(text));
    for (size_t i = 0; i < n; i++)
        text[i] = f->defaults[i] == '\'' ? '"' : f->defaults[i];
    if (model_json_parse((struct slice){text, n}, "the family's defaults", &ret, r->e) == 0)
        return ret;
    json_read_fail(r, -ENOMEM, "no memory left for the defaults of %s", f->names[0]);
    return NULL;
}

/* The text's own object, and that of its parent. */
static void find_unknown(const struct json_read *r, struct config *c)
{
    const json_t *const objects[] = {r->object, r->fallback};
    for (size_t i = 0; i < COUNT_OF(objects); i++)
        config_unknown_add(objects[i], r->asked, CONFIG_OF_MODEL, "", c->unknown_keys,
                           sizeof(c->unknown_keys));
}

static int parse_root(struct arena *a, const json_t *root, const struct tensor_naming *naming,
                      struct config *ret, struct err *e)
{
    struct config c = {.naming = naming};
    struct json_read r = {.fallback = root, .where = naming ? "metadata" : "config.json", .e = e};
    r.object = json_read_text_part(&r, root);
    if (r.error)
        return r.error;
    r.asked = json_object();
    read_family(&r, root, &c);
    json_t *defaults = defaults_of(c.family, &r);
    r.defaults = defaults;
    if (!r.error)
        c.vision_family = vision_family_of(root, &c);
    c.text_alone = !r.error && !c.vision_family && has_other_parts(root);
    if (!r.error)
        read_keys(&r, &c);
    if (!r.error)
        config_layers_read(&r, a, &c);
    if (!r.error)
        config_rope_read(&r, &c);
    if (!r.error)
        config_quantization_read(&r, a, &c);
    if (!r.error && !naming)
        find_unknown(&r, &c);
    json_decref(r.asked);
    json_decref(defaults);
    if (!r.error)
        *ret = c;
    return r.error;
}

int config_parse(struct arena *a, struct slice text, struct config *ret, struct err *e)
{
    json_t *root;
    int r = model_json_parse(text, "config.json", &root, e);
    if (r < 0)
        return r;
    r = parse_root(a, root, NULL, ret, e);
    json_decref(root);
    return r;
}

/* Longer texts have positions, but the model was not made for them. */
static int limit_text(struct model_files *files, struct config *c, struct err *e)
{
    uint32_t longest;
    int r = pooling_text_max(files, &longest, e);
    if (r == 0 && longest > 0)
        c->context_max = MIN_OF(c->context_max, longest);
    return r;
}

int config_load(struct arena *a, struct model_files *files, struct config *ret, struct err *e)
{
    json_t *root;
    const struct tensor_naming *naming = NULL;
    int r = model_json(files, "config.json", &root, e);
    if (r < 0)
        return r;
    r = model_files_naming(files, &naming, e);
    if (r == 0)
        r = parse_root(a, root, naming, ret, e);
    json_decref(root);
    return r == 0 ? limit_text(files, ret, e) : r;
}
