/* gguf_layers.c - lists of the metadata, a value for each layer, as layer_types and per_layer_config. */
#include "gguf/gguf_layers.h"

#include "base/check.h"
#include "gguf/gguf_arch.h"
#include "gguf/gguf_meta.h"

#include <errno.h>
#include <stdio.h>

int gguf_layers_copy_windows(struct gguf_meta *v)
{
    const struct gguf_value *value = gguf_meta_find(v, "attention.sliding_window_pattern");
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    uint64_t every = 0;
    const bool list = value && value->list && (value->type == GGUF_BOOL || v->arch->apart);
    if (gguf_meta_number(v, "attention.sliding_window") == 0 ||
        !(list || (gguf_u64(value, &every) && every > 0)))
        return 0;
    const uint64_t layers = MIN_OF(gguf_meta_number(v, "block_count"), GGUF_LAYERS_MAX);
    json_t *kinds = json_array();
    for (uint64_t i = 0; list ? i < layers && gguf_next(&w, &item) : i < layers; i++) {
        const bool windowed = list ? item.flag || item.number > 0 : (i + 1) % every != 0;
        json_array_append_new(kinds, json_string(windowed ? "sliding_attention" : "full_attention"));
    }
    return gguf_meta_set(v, v->root, "layer_types", kinds);
}

int gguf_layers_copy_recurrent(struct gguf_meta *v)
{
    const struct gguf_value *value = gguf_meta_find(v, "attention.recurrent_layers");
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    if (!value || !value->list || value->type != GGUF_BOOL || !gguf_meta_find(v, "full_attention_interval"))
        return 0;
    json_t *kinds = json_array();
    while (json_array_size(kinds) < gguf_meta_layers(v) && gguf_next(&w, &item))
        json_array_append_new(kinds, json_string(item.flag ? "linear_attention" : "full_attention"));
    return gguf_meta_set(v, v->root, "layer_types", kinds);
}

int gguf_layers_copy_kinds(struct gguf_meta *v)
{
    const struct gguf_kinds *k = &v->arch->kinds;
    const struct gguf_value *value = gguf_meta_find(v, "attention.head_count_kv");
    struct gguf_walk w = {.value = value},
                     mlps = {.value = k->mlp ? gguf_meta_find(v, "feed_forward_length") : NULL};
    struct gguf_item heads, width;
    if (!k->with || !value || !value->list)
        return 0;
    json_t *kinds = json_array();
    while (json_array_size(kinds) < gguf_meta_layers(v) && gguf_next(&w, &heads)) {
        const bool mlp =
            mlps.value && mlps.value->list && gguf_next(&mlps, &width) && !gguf_meta_is_zero(&width);
        json_array_append_new(kinds, json_string(!gguf_meta_is_zero(&heads) ? k->with
                                                 : mlp                      ? k->mlp
                                                                            : k->without));
    }
    return gguf_meta_set(v, v->root, "layer_types", kinds);
}

/* ---- heads of two sizes ---- */

/* A number of each layer, from a list or one for all. */
struct number_walk {
    struct gguf_walk w;
    uint64_t all;
};

static struct number_walk walk_numbers(const struct gguf_meta *v, const char *key)
{
    const struct gguf_value *value = gguf_meta_find(v, key);
    return (struct number_walk){.w = {.value = value && value->list ? value : NULL},
                                .all = gguf_meta_number(v, key)};
}

static uint64_t next_number(struct number_walk *n)
{
    struct gguf_item item;
    return n->w.value && gguf_next(&n->w, &item) && item.whole && item.number > 0 ? (uint64_t)item.number
                                                                                  : n->all;
}

/* The MLPs of the last layers, which share keys, may be twice as wide. */
static int copy_widths(struct gguf_meta *v)
{
    const uint64_t layers = gguf_meta_layers(v), shared = gguf_meta_number(v, "attention.shared_kv_layers");
    struct number_walk widths = walk_numbers(v, "feed_forward_length");
    const uint64_t first = next_number(&widths);
    bool wide = false;
    for (uint64_t i = 1; i < MIN_OF(layers, GGUF_LAYERS_MAX); i++) {
        const uint64_t width = next_number(&widths);
        const bool own = i + shared < layers;
        wide |= width != first;
        if (width != (wide ? 2 * first : first) || (own && wide))
            return err_set(v->e, -ENOTSUP,
                           "metadata %s.feed_forward_length: %llu of layer %llu is not supported beside %llu",
                           v->arch->name, (ull)width, (ull)i, (ull)first);
    }
    return gguf_meta_set(v, v->root, "use_double_wide_mlp", json_boolean(wide));
}

static bool has_values(const struct gguf_meta *v, uint64_t layer)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%llu.attn_v.weight", (ull)layer);
    return gguf_meta_tensor(v, name);
}

/* Layers without a window have other heads, and perhaps keys for values. */
static int copy_heads(struct gguf_meta *v)
{
    const uint64_t layers = MIN_OF(gguf_meta_layers(v), GGUF_LAYERS_MAX),
                   own = layers - MIN_OF(layers, gguf_meta_number(v, "attention.shared_kv_layers"));
    struct number_walk heads = walk_numbers(v, "attention.head_count_kv");
    struct gguf_walk windows = {.value = gguf_meta_find(v, "attention.sliding_window_pattern")};
    struct gguf_item windowed;
    json_t *full = json_object();
    bool shares_values = false;
    uint64_t windowed_heads = 0;
    for (uint64_t i = 0; i < layers && gguf_next(&windows, &windowed); i++) {
        const uint64_t count = next_number(&heads);
        char name[24];
        snprintf(name, sizeof(name), "%llu", (ull)i);
        if (windowed.flag)
            windowed_heads = windowed_heads ? windowed_heads : count;
        else
            json_object_set_new(full, name,
                                json_pack("{s:I, s:I}", "head_dim",
                                          (json_int_t)gguf_meta_number(v, "attention.key_length"),
                                          "num_key_value_heads", (json_int_t)count));
        shares_values |= !windowed.flag && i < own && !has_values(v, i);
    }
    int r = gguf_meta_set(v, v->root, "per_layer_config", full);
    if (r == 0 && windowed_heads > 0)
        r = gguf_meta_set_number(v, "num_key_value_heads", windowed_heads);
    return r == 0 ? gguf_meta_set(v, v->root, "attention_k_eq_v", json_boolean(shares_values)) : r;
}

int gguf_layers_copy_two_sizes(struct gguf_meta *v)
{
    const struct gguf_value *windows = gguf_meta_find(v, "attention.sliding_window_pattern");
    const struct gguf_tensor *inputs = gguf_meta_tensor(v, "per_layer_token_embd.weight");
    if (!v->arch->two_sizes)
        return 0;
    if (!windows || !windows->list || windows->type != GGUF_BOOL)
        return err_set(v->e, -EINVAL, "metadata %s.attention.sliding_window_pattern is not a list of layers",
                       v->arch->name);
    int r = copy_heads(v);
    if (r == 0)
        r = copy_widths(v);
    if (r == 0 && !gguf_meta_find(v, "embedding_length_per_layer_input"))
        r = gguf_meta_set_number(v, "hidden_size_per_layer_input", 0);
    return r == 0 && inputs ? gguf_meta_set_number(v, "vocab_size_per_layer_input", inputs->shape[0]) : r;
}

/* ---- MLPs ---- */

int gguf_layers_count_dense(struct gguf_meta *v)
{
    const uint64_t layers = MIN_OF(gguf_meta_layers(v), GGUF_LAYERS_MAX);
    uint64_t count = 0;
    char name[64];
    if (!v->arch->dense)
        return 0;
    for (; count < layers; count++) {
        snprintf(name, sizeof(name), "blk.%llu.ffn_gate_inp.weight", (ull)count);
        if (gguf_meta_tensor(v, name))
            break;
    }
    return gguf_meta_set_number(v, v->arch->dense, count);
}

static int copy_numbers(struct gguf_meta *v, const struct gguf_value *value, const char *name)
{
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    if (!value)
        return 0;
    json_t *numbers = json_array();
    while (json_array_size(numbers) < GGUF_LAYERS_MAX && gguf_next(&w, &item))
        json_array_append_new(numbers, gguf_meta_json(&item));
    return gguf_meta_set(v, v->root, name, numbers);
}

int gguf_layers_copy_limits(struct gguf_meta *v)
{
    if (!v->arch->limits)
        return 0;
    int r = copy_numbers(v, gguf_meta_find(v, "swiglu_clamp_exp"), "swiglu_limits");
    return r == 0 ? copy_numbers(v, gguf_meta_find(v, "swiglu_clamp_shexp"), "swiglu_limits_shared") : r;
}

/* Their keys have no architecture in front. */
int gguf_layers_copy_xielu(struct gguf_meta *v)
{
    static const struct gguf_key lists[] = {{"xielu.alpha_p", "xielu_alpha_p"},
                                            {"xielu.alpha_n", "xielu_alpha_n"},
                                            {"xielu.beta", "xielu_beta"},
                                            {"xielu.eps", "xielu_eps"}};
    int r = 0;
    for (size_t i = 0; v->arch->xielu && r == 0 && i < COUNT_OF(lists); i++)
        r = copy_numbers(v, gguf_find(&v->file->head, lists[i].key), lists[i].name);
    return r;
}
