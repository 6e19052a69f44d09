/* config.c - the aliases and generations of config.json in one place.
 *
 * Older configurations keep rope_theta at the top and a rope_scaling object; newer ones have rope_parameters.
 * Where both forms name a value, rope_parameters wins: transformers reads it alone and leaves the older key
 * as decoration. */
#include "model/config.h"

#include "model/family.h"
#include "model/json_read.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>

static void read_family(struct json_read *r, const json_t *top, struct config *c)
{
    char known[160];
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

static void read_sizes(struct json_read *r, struct config *c)
{
    c->layers = json_read_u32(r, "num_hidden_layers", 1, CONFIG_LAYERS_MAX);
    c->hidden = json_read_u32(r, "hidden_size", 8, CONFIG_HIDDEN_MAX);
    c->vocab = json_read_u32(r, "vocab_size", 1, CONFIG_VOCAB_MAX);
    c->context_max = json_read_u32(r, "max_position_embeddings", 1, CONFIG_CONTEXT_MAX);
    c->heads = json_read_u32(r, "num_attention_heads", 1, CONFIG_HEADS_MAX);
    c->kv_heads = json_read_u32_or(r, "num_key_value_heads", 1, CONFIG_HEADS_MAX, c->heads);
    c->head_dim = json_read_u32_or(r, "head_dim", 2, CONFIG_HEAD_DIM_MAX, c->hidden / c->heads);
    c->intermediate = json_read_u32_or(r, "intermediate_size", 1, CONFIG_INTERMEDIATE_MAX, 0);
    c->eps = (float)json_read_f64_or(r, "rms_norm_eps", 0, 1, 1e-6);
    c->tied = json_read_bool_or(r, "tie_word_embeddings", false);
    if (c->heads % c->kv_heads != 0)
        json_read_fail(r, -EINVAL, "num_attention_heads %u is not a multiple of num_key_value_heads %u",
                       c->heads, c->kv_heads);
    if (c->head_dim < 2 || c->head_dim > CONFIG_HEAD_DIM_MAX || c->head_dim % 2 != 0)
        json_read_fail(r, -ENOTSUP, "head_dim is %u, but must be even and at most %u", c->head_dim,
                       CONFIG_HEAD_DIM_MAX);
}

static void read_features(struct json_read *r)
{
    const char *act = json_read_string_or(r, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        json_read_fail(r, -ENOTSUP, "hidden_act '%.40s' is not supported; silu is", act);
    if (json_read_bool_or(r, "attention_bias", false))
        json_read_fail(r, -ENOTSUP, "attention_bias true is not supported");
    if (json_read_bool_or(r, "mlp_bias", false))
        json_read_fail(r, -ENOTSUP, "mlp_bias true is not supported");
    if (json_read_bool_or(r, "use_sliding_window", false))
        json_read_fail(r, -ENOTSUP, "use_sliding_window true is not supported");
    /* Names the delta net's z gate; the families we have always use SiLU there. */
    const char *gate = json_read_string_or(r, "output_gate_type", "swish");
    if (strcmp(gate, "silu") != 0 && strcmp(gate, "swish") != 0)
        json_read_fail(r, -ENOTSUP, "output_gate_type '%.40s' is not supported; swish is", gate);
}

static void read_experts(struct json_read *r, struct config *c)
{
    const char *key = json_read_get(r, "num_experts") ? "num_experts" : "num_local_experts";
    c->experts = json_read_u32_or(r, key, 0, CONFIG_EXPERTS_MAX, 0);
    if (c->experts == 0)
        return;
    c->top_k = json_read_u32(r, "num_experts_per_tok", 1, MIN_OF(c->experts, CONFIG_TOP_K_MAX));
    c->expert_intermediate = json_read_u32(r, "moe_intermediate_size", 1, CONFIG_INTERMEDIATE_MAX);
    c->shared_intermediate =
        json_read_u32_or(r, "shared_expert_intermediate_size", 0, CONFIG_INTERMEDIATE_MAX, 0);
}

static int kind_parse(const char *name)
{
    if (strcmp(name, "full_attention") == 0 || strcmp(name, "attention") == 0)
        return LAYER_FULL;
    return strcmp(name, "linear_attention") == 0 ? LAYER_LINEAR : -1;
}

static void read_kinds(struct json_read *r, struct arena *a, struct config *c)
{
    const json_t *types = json_read_get(r, "layer_types");
    uint32_t interval = json_read_u32_or(r, "full_attention_interval", 1, CONFIG_LAYERS_MAX, 4);
    bool hybrid = json_read_get(r, "linear_num_value_heads") != NULL;
    uint8_t *kinds = ARENA_ARRAY(a, uint8_t, c->layers);
    if (!kinds) {
        json_read_fail(r, -ENOMEM, "no memory left for the layer kinds");
        return;
    }
    if (types && (!json_is_array(types) || json_array_size(types) != c->layers)) {
        json_read_fail(r, -EINVAL, "layer_types must be a list of num_hidden_layers = %u names", c->layers);
        return;
    }
    for (uint32_t i = 0; i < c->layers; i++) {
        int kind = hybrid && (i + 1) % interval != 0 ? LAYER_LINEAR : LAYER_FULL;
        if (types) {
            const char *name = json_string_value(json_array_get(types, i));
            kind = name ? kind_parse(name) : -1;
            if (kind < 0) {
                json_read_fail(
                    r, -ENOTSUP,
                    "layer_types[%u] is '%.40s'; supported are full_attention and linear_attention", i,
                    name ? name : "not a string");
                return;
            }
        }
        kinds[i] = (uint8_t)kind;
        c->full_count += kind == LAYER_FULL;
        c->linear_count += kind == LAYER_LINEAR;
    }
    c->kinds = kinds;
}

static void read_linear_attention(struct json_read *r, struct config *c)
{
    if (c->linear_count == 0)
        return;
    c->conv_width = json_read_u32(r, "linear_conv_kernel_dim", 2, CONFIG_CONV_WIDTH_MAX);
    c->key_heads = json_read_u32(r, "linear_num_key_heads", 1, CONFIG_HEADS_MAX);
    c->value_heads = json_read_u32(r, "linear_num_value_heads", 1, CONFIG_HEADS_MAX);
    c->key_dim = json_read_u32(r, "linear_key_head_dim", 16, CONFIG_HEAD_DIM_MAX);
    c->value_dim = json_read_u32(r, "linear_value_head_dim", 16, CONFIG_HEAD_DIM_MAX);
    if (c->value_heads % c->key_heads != 0)
        json_read_fail(r, -EINVAL, "linear_num_value_heads %u is not a multiple of linear_num_key_heads %u",
                       c->value_heads, c->key_heads);
    /* The convolution is cut between heads, and kernels cut at multiples of 16 channels. */
    if (c->key_dim % 16 != 0 || c->value_dim % 16 != 0)
        json_read_fail(r, -ENOTSUP, "linear head dimensions %u and %u must be multiples of 16", c->key_dim,
                       c->value_dim);
}

/* ---- rope ---- */

static bool rope_type_parse(const char *name, enum rope_type *ret)
{
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret = (enum rope_type)i;
            return true;
        }
    }
    return false;
}

static double required_positive(struct json_read *p, const char *key)
{
    if (!json_read_get(p, key))
        json_read_fail(p, -EINVAL, "%s is missing", key);
    return json_read_f64_or(p, key, 1e-6, 1e9, 1);
}

static void read_rope_scaling(struct json_read *p, struct rope_config *rope, uint32_t context_max)
{
    switch (rope->type) {
    case ROPE_DEFAULT:
        break;
    case ROPE_LINEAR:
        rope->factor = required_positive(p, "factor");
        break;
    case ROPE_LLAMA3:
        rope->factor = required_positive(p, "factor");
        rope->low_freq = required_positive(p, "low_freq_factor");
        rope->high_freq = required_positive(p, "high_freq_factor");
        rope->original_max = required_positive(p, "original_max_position_embeddings");
        if (rope->high_freq <= rope->low_freq)
            json_read_fail(p, -EINVAL, "high_freq_factor %g must be above low_freq_factor %g",
                           rope->high_freq, rope->low_freq);
        break;
    case ROPE_YARN:
        rope->factor = required_positive(p, "factor");
        rope->original_max = json_read_f64_or(p, "original_max_position_embeddings", 1, 1e9, context_max);
        rope->beta_fast = json_read_f64_or(p, "beta_fast", 1e-6, 1e6, 32);
        rope->beta_slow = json_read_f64_or(p, "beta_slow", 1e-6, 1e6, 1);
        rope->attention_factor = json_read_f64_or(p, "attention_factor", 1e-6, 1e6, 0);
        /* DeepSeek's variant changes the attention factor; assuming one would give wrong logits silently. */
        if (json_read_get(p, "mscale") || json_read_get(p, "mscale_all_dim"))
            json_read_fail(p, -ENOTSUP, "yarn with mscale is not supported");
        break;
    }
}

static void read_sections(struct json_read *p, struct rope_config *rope)
{
    uint32_t count = 0;
    rope->interleaved = json_read_bool_or(p, "mrope_interleaved", false);
    json_read_ids(p, "mrope_section", CONFIG_HEAD_DIM_MAX / 2, rope->sections, COUNT_OF(rope->sections),
                  &count);
    if (count != 0 && count != COUNT_OF(rope->sections))
        json_read_fail(p, -EINVAL, "mrope_section must have 3 numbers, not %u", count);
}

static void read_rope(struct json_read *r, struct config *c)
{
    struct rope_config *rope = &c->rope;
    const json_t *parameters = json_read_get(r, "rope_parameters");
    const json_t *scaling = parameters ? parameters : json_read_get(r, "rope_scaling");
    if (scaling && !json_is_object(scaling)) {
        json_read_fail(r, -EINVAL, "%s must be an object", parameters ? "rope_parameters" : "rope_scaling");
        return;
    }
    struct json_read p = {.object = scaling,
                          .where = parameters ? "config.json: rope_parameters" : "config.json: rope_scaling",
                          .e = r->e};
    /* rope_theta and partial_rotary_factor: inside the object, else beside it. */
    double theta = json_read_f64_or(r, "rope_theta", 1, 1e12, 10000);
    rope->theta = json_read_f64_or(&p, "rope_theta", 1, 1e12, theta);
    double partial = json_read_f64_or(r, "partial_rotary_factor", 0, 1, c->family->partial_rotary_default);
    partial = json_read_f64_or(&p, "partial_rotary_factor", 0, 1, partial);
    const char *type = json_read_string_or(&p, "type", "default");
    type = json_read_string_or(&p, "rope_type", type);
    if (!rope_type_parse(type, &rope->type))
        json_read_fail(&p, -ENOTSUP,
                       "rope_type '%.40s' is not supported; default, linear, llama3 and yarn are", type);
    else
        read_rope_scaling(&p, rope, c->context_max);
    read_sections(&p, rope);
    rope->rot = (uint32_t)(c->head_dim * partial);
    if (rope->rot < 2 || rope->rot % 2 != 0)
        json_read_fail(&p, -ENOTSUP, "partial_rotary_factor %g of head_dim %u leaves %u rotating dimensions",
                       partial, c->head_dim, rope->rot);
    if (p.error && !r->error)
        r->error = p.error;
}

/* ---- quantisation ---- */

static bool bits_ok(uint32_t bits)
{
    return (bits >= 2 && bits <= 6) || bits == 8;
}

static void read_affine(struct json_read *p, struct quantization_entry absent, struct quantization_entry *ret)
{
    const char *mode = json_read_string_or(p, "mode", "affine");
    if (strcmp(mode, "affine") != 0)
        json_read_fail(p, -ENOTSUP, "mode '%.40s' is not supported; affine is", mode);
    ret->bits = json_read_u32_or(p, "bits", 2, 8, absent.bits);
    ret->group = json_read_u32_or(p, "group_size", 32, 128, absent.group);
    if (!bits_ok(ret->bits))
        json_read_fail(p, -ENOTSUP, "bits is %u; supported are 2, 3, 4, 5, 6 and 8", ret->bits);
    if (ret->group != 32 && ret->group != 64 && ret->group != 128)
        json_read_fail(p, -ENOTSUP, "group_size is %u; supported are 32, 64 and 128", ret->group);
}

static void read_overrides(struct json_read *p, struct arena *a, struct quantization *q)
{
    const char *path;
    json_t *value;
    uint32_t count = 0;
    size_t n = json_object_size(p->object);
    q->entries = ARENA_ARRAY(a, struct quantization_entry, n);
    if (!q->entries || hash_map_init(&q->by_path, a, (uint32_t)n) < 0) {
        json_read_fail(p, -ENOMEM, "no memory left for %zu entries", n);
        return;
    }
    json_object_foreach((json_t *)p->object, path, value) {
        /* true and false only repeat whether the module has scales. */
        if (!json_is_object(value))
            continue;
        struct json_read one = {.object = value, .where = "config.json: quantization entry", .e = p->e};
        read_affine(&one, q->global, &q->entries[count]);
        if (one.error) {
            p->error = one.error;
            return;
        }
        struct slice key = slice_of(path);
        key.ptr = arena_strndup(a, key.ptr, key.len);
        if (!key.ptr) {
            json_read_fail(p, -ENOMEM, "no memory left for %zu entries", n);
            return;
        }
        hash_map_add(&q->by_path, key, count++);
    }
}

static void read_quantization(struct json_read *r, struct arena *a, struct config *c)
{
    const json_t *block = json_read_get(r, "quantization");
    if (!block)
        block = json_read_get(r, "quantization_config");
    if (!block)
        return;
    if (!json_is_object(block)) {
        json_read_fail(r, -EINVAL, "quantization must be an object");
        return;
    }
    struct json_read p = {.object = block, .where = "config.json: quantization", .e = r->e};
    const char *method = json_read_string_or(&p, "quant_method", NULL);
    if (method && !json_read_get(&p, "group_size")) {
        json_read_fail(r, -ENOTSUP, "quant_method '%.40s' is not supported; MLX affine quantisation is",
                       method);
        return;
    }
    /* MLX writes both; its own defaults stand in where a file does not. */
    read_affine(&p, (struct quantization_entry){.bits = 4, .group = 64}, &c->quantization.global);
    if (!p.error)
        read_overrides(&p, a, &c->quantization);
    c->quantization.present = true;
    if (p.error && !r->error)
        r->error = p.error;
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
        read_sizes(&r, &c);
    if (!r.error)
        read_features(&r);
    if (!r.error)
        read_experts(&r, &c);
    if (!r.error)
        read_kinds(&r, a, &c);
    if (!r.error)
        read_linear_attention(&r, &c);
    if (!r.error)
        read_rope(&r, &c);
    if (!r.error)
        read_quantization(&r, a, &c);
    if (!r.error)
        r.error = c.family->check(&c, e);
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
