/* gguf_config.c - the metadata as the object of a config.json: most keys by a table, the others by code.
 *
 * The object is read like any config.json, with its bounds and its refusals, so this file checks no
 * bounds. */
#include "gguf/gguf_view.h"

#include "gguf/gguf_arch.h"

#include "base/check.h"
#include "tensor/block_form.h"
#include "tensor/tensor.h"
#include "gguf/gguf_head.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#define FACTORS_MAX 320  /* numbers of a list of factors: half of the longest head */
#define LAYERS_MAX  1024 /* layers of a list that is made */

#define GATING_SIGMOID 2 /* value of expert_gating_func */

#define ROPE "rope." /* in front of a key of rope_parameters (struct gguf_key) */

struct view {
    const struct gguf_head *file;
    const struct gguf_arch *arch;
    json_t *root, *rope; /* rope: its rope_parameters */
    struct err *e;
};

static const struct gguf_value *find(const struct view *v, const char *key)
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

static bool is_zero(const struct gguf_item *item)
{
    return item->kind == GGUF_IS_NUMBER && item->real == 0;
}

/* The value, or the one that all values of a list are. Numbers that differ between layers have no key. Zeros
 * among others are of layers of another kind, where the architecture has kinds. Of an architecture with heads
 * of two sizes it is the first value: copy_two_sizes() has the others. */
static int only_value(struct view *v, const char *key, const struct gguf_value *value, struct gguf_item *ret)
{
    struct gguf_walk w = {.value = value};
    struct gguf_item next;
    const bool kinds = v->arch->kinds.with != NULL;
    if (!gguf_next(&w, ret))
        return err_set(v->e, -EINVAL, "metadata %s.%s: an empty list", v->arch->name, key);
    while (!v->arch->two_sizes && gguf_next(&w, &next)) {
        if (kinds && is_zero(ret))
            *ret = next;
        else if (!same_item(ret, &next) && !(kinds && is_zero(&next)))
            return err_set(v->e, -ENOTSUP,
                           "metadata %s.%s: values that differ between layers are not supported",
                           v->arch->name, key);
    }
    return 0;
}

static json_t *to_json(const struct gguf_item *item)
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

static int set(struct view *v, json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0
               ? 0
               : err_set(v->e, -EINVAL, "metadata: the value of %s is not a number or text", name);
}

/* An absent key is left out. */
static int copy_key(struct view *v, const char *key, json_t *object, const char *name)
{
    struct gguf_item item;
    const struct gguf_value *value = find(v, key);
    int r = value ? only_value(v, key, value, &item) : 0;
    return r == 0 && value ? set(v, object, name, to_json(&item)) : r;
}

static int copy_keys(struct view *v, const struct gguf_key *keys)
{
    int r = 0;
    for (; r == 0 && keys && keys->key; keys++) {
        const bool rope = strncmp(keys->name, ROPE, strlen(ROPE)) == 0;
        r = copy_key(v, keys->key, rope ? v->rope : v->root, keys->name + (rope ? strlen(ROPE) : 0));
    }
    return r;
}

static uint64_t number(const struct view *v, const char *key)
{
    uint64_t n;
    return gguf_u64(find(v, key), &n) ? n : 0;
}

static const struct gguf_tensor *find_tensor(const struct view *v, const char *name)
{
    const struct gguf *g = &v->file->head;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        if (slice_eq(g->tensors[i].name, slice_of(name)))
            return &g->tensors[i];
    }
    return NULL;
}

/* ---- rotation ---- */

static double real(const struct view *v, const char *key, double absent)
{
    struct gguf_item item;
    struct gguf_walk w = {.value = find(v, key)};
    return w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_NUMBER ? item.real : absent;
}

/* attn_factor multiplies YaRN's own factor. yarn_attn_factor is the whole, as in config.json. */
static int copy_yarn(struct view *v)
{
    const double mix = real(v, "rope.scaling.yarn_ext_factor", 1), factor = real(v, "rope.scaling.factor", 1);
    const double times = real(v, "rope.scaling.attn_factor", 1);
    if (mix >= 0 && mix != 1) /* negative: llama.cpp's default, which is 1 */
        return err_set(v->e, -ENOTSUP, "metadata %s.rope.scaling.yarn_ext_factor: %g is not supported; 1 is",
                       v->arch->name, mix);
    if (find(v, "rope.scaling.yarn_attn_factor"))
        return copy_key(v, "rope.scaling.yarn_attn_factor", v->rope, "attention_factor");
    return times == 1 || factor <= 1
               ? 0
               : set(v, v->rope, "attention_factor", json_real(times * (1 + 0.1 * log(factor))));
}

static int copy_scaling(struct view *v)
{
    static const struct gguf_key keys[] = {
        {"rope.scaling.factor", "factor"},
        {"rope.scaling.original_context_length", "original_max_position_embeddings"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    struct slice type = {NULL, 0};
    /* A factor without a type is linear. Old files have another key of it. */
    const double linear = real(v, "rope.scaling.factor", real(v, "rope.scale_linear", 1));
    const double times = real(v, "rope.scaling.attn_factor", 1);
    const bool named = gguf_string(find(v, "rope.scaling.type"), &type);
    if (times != 1 && !slice_eq(type, SLICE("yarn")) && !find_tensor(v, "rope_factors_long.weight"))
        return err_set(v->e, -ENOTSUP,
                       "metadata %s.rope.scaling.attn_factor: %g is not supported without yarn or longrope",
                       v->arch->name, times);
    if (!named && linear > 1)
        return set(v, v->rope, "rope_type", json_string("linear")) < 0
                   ? -ENOMEM
                   : set(v, v->rope, "factor", json_real(linear));
    if (!named || slice_eq(type, SLICE("none")))
        return 0;
    int r = copy_key(v, "rope.scaling.type", v->rope, "rope_type");
    for (size_t i = 0; r == 0 && i < COUNT_OF(keys); i++)
        r = copy_key(v, keys[i].key, v->rope, keys[i].name);
    return r == 0 && slice_eq(type, SLICE("yarn")) ? copy_yarn(v) : r;
}

/* The numbers of a tensor. */
static int read_numbers(struct view *v, const struct gguf_tensor *t, float ret[FACTORS_MAX])
{
    if (t->rank != 1 || t->form->dtype != DTYPE_F32 || t->bytes > FACTORS_MAX * sizeof(float))
        return err_set(v->e, -EINVAL, "tensor %.*s must be at most %d numbers in F32", SLICE_ARGS(t->name),
                       FACTORS_MAX);
    return regular_file_read(v->file->at, t->offset, ret, (size_t)t->bytes, v->e);
}

static int read_list(struct view *v, const struct gguf_tensor *t, const char *name)
{
    float values[FACTORS_MAX];
    int r = read_numbers(v, t, values);
    if (r < 0)
        return r;
    json_t *list = json_array();
    for (uint64_t i = 0; i < t->shape[0]; i++)
        json_array_append_new(list, isfinite(values[i]) ? json_real((double)values[i]) : json_null());
    return set(v, v->rope, name, list);
}

/* Two lists: for contexts up to the original length, and for longer ones. */
static int read_longrope(struct view *v, const struct gguf_tensor *small, const struct gguf_tensor *large)
{
    if (!small || !large)
        return err_set(v->e, -EINVAL, "tensor rope_factors_%s.weight is missing", small ? "long" : "short");
    int r = read_list(v, small, "short_factor");
    if (r == 0)
        r = read_list(v, large, "long_factor");
    if (r == 0)
        r = copy_key(v, "rope.scaling.original_context_length", v->rope, "original_max_position_embeddings");
    if (r == 0)
        r = copy_key(v, "rope.scaling.attn_factor", v->rope, "attention_factor");
    return r == 0 ? set(v, v->rope, "rope_type", json_string("longrope")) : r;
}

/* Reads a proportional rotation: 1 for each frequency of the part that rotates, then a divisor that makes the
 * other frequencies 0. */
static int read_proportional(struct view *v)
{
    const struct gguf_tensor *t = find_tensor(v, "rope_freqs.weight");
    float values[FACTORS_MAX];
    uint64_t ones = 0;
    int r = t ? read_numbers(v, t, values) : err_set(v->e, -EINVAL, "tensor rope_freqs.weight is missing");
    for (uint64_t i = 0; r == 0 && i < t->shape[0]; i++) {
        ones += values[i] == 1;
        if (values[i] == 1 ? ones != i + 1 : !(values[i] >= 1e29f))
            r = err_set(v->e, -ENOTSUP,
                        "tensor rope_freqs.weight: %g is not supported; first 1, then 1e30 are",
                        (double)values[i]);
    }
    if (r < 0)
        return r;
    json_t *full = json_pack("{s:s, s:f}", "rope_type", "proportional", "partial_rotary_factor",
                             (double)ones / (double)MAX_OF(t->shape[0], (uint64_t)1));
    return set(v, v->rope, "full_attention", full);
}

/* The numbers that divide the frequencies; absent where nothing scales them. */
static int read_factors(struct view *v)
{
    const struct gguf_tensor *t = find_tensor(v, "rope_freqs.weight"),
                             *small = find_tensor(v, "rope_factors_short.weight"),
                             *large = find_tensor(v, "rope_factors_long.weight");
    if (v->arch->two_sizes)
        return read_proportional(v);
    if (small || large)
        return read_longrope(v, small, large);
    int r = t ? read_list(v, t, "factors") : 0;
    return t && r == 0 ? set(v, v->rope, "rope_type", json_string("factors")) : r;
}

/* Three of the four numbers count. */
static int copy_sections(struct view *v)
{
    const struct gguf_value *value = find(v, "rope.dimension_sections");
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    if (!value)
        return 0;
    json_t *list = json_array();
    for (int i = 0; i < 3 && gguf_next(&w, &item); i++)
        json_array_append_new(list, to_json(&item));
    return set(v, v->rope, "mrope_section", list);
}

static int copy_rope(struct view *v)
{
    uint64_t rotate = number(v, "rope.dimension_count"), head = number(v, "attention.key_length");
    int r = 0;
    if (head == 0 && number(v, "attention.head_count") > 0)
        head = number(v, "embedding_length") / number(v, "attention.head_count");
    if (rotate > 0 && rotate < head && !v->arch->latent)
        r = set(v, v->root, "partial_rotary_factor", json_real((double)rotate / (double)head));
    if (r == 0)
        r = copy_scaling(v);
    if (r == 0)
        r = read_factors(v);
    return r == 0 ? copy_sections(v) : r;
}

/* ---- latent attention ---- */

/* A length of a head, which files from before keys and values were one row have under the plain key. */
static uint64_t head_length(const struct view *v, const char *latent, const char *plain)
{
    return find(v, latent) ? number(v, latent) : number(v, plain);
}

static int set_number(struct view *v, const char *name, uint64_t value)
{
    return set(v, v->root, name, json_integer((json_int_t)MIN_OF(value, (uint64_t)UINT32_MAX)));
}

/* The key holds a tenth of mscale_all_dim, which mscale equals. */
static int copy_latent_scale(struct view *v)
{
    const double scale = 10 * real(v, "rope.scaling.yarn_log_multiplier", 0);
    int r = scale != 0 ? set(v, v->rope, "mscale_all_dim", json_real(scale)) : 0;
    return r == 0 && scale != 0 ? set(v, v->rope, "mscale", json_real(scale)) : r;
}

static int copy_latent(struct view *v)
{
    const uint64_t rope = number(v, "rope.dimension_count");
    const uint64_t key = head_length(v, "attention.key_length_mla", "attention.key_length");
    if (!v->arch->latent)
        return 0;
    if (key <= rope)
        return err_set(v->e, -EINVAL,
                       "metadata %s.attention.key_length_mla is %llu, not over rope.dimension_count %llu",
                       v->arch->name, (ull)key, (ull)rope);
    int r = set_number(v, "qk_rope_head_dim", rope);
    if (r == 0)
        r = set_number(v, "qk_nope_head_dim", key - rope);
    if (r == 0)
        r = set_number(v, "v_head_dim",
                       head_length(v, "attention.value_length_mla", "attention.value_length"));
    if (r == 0)
        r = copy_key(v, "attention.kv_lora_rank", v->root, "kv_lora_rank");
    if (r == 0)
        r = set(v, v->root, "q_lora_rank", json_null());
    if (r == 0)
        r = copy_key(v, "attention.q_lora_rank", v->root, "q_lora_rank");
    return r == 0 ? copy_latent_scale(v) : r;
}

/* Values of absent keys of experts, where config.json has other defaults. */
static const char absent_router[] = "{\"first_k_dense_replace\": 0, \"n_group\": 1, \"n_shared_experts\": 0, "
                                    "\"norm_topk_prob\": false, \"routed_scaling_factor\": 1}";

/* Files of DeepSeek-V2 do not name the function of scores. The others have corrections. */
static bool is_corrected(const struct view *v)
{
    static const char end[] = ".exp_probs_b.bias";
    const struct gguf *g = &v->file->head;
    if (find(v, "expert_gating_func"))
        return number(v, "expert_gating_func") == GATING_SIGMOID;
    for (uint32_t i = 0; i < g->tensor_count; i++) {
        const struct slice name = g->tensors[i].name;
        if (name.len > strlen(end) && memcmp(name.ptr + name.len - strlen(end), end, strlen(end)) == 0)
            return true;
    }
    return false;
}

static int copy_latent_router(struct view *v)
{
    if (!v->arch->latent || !v->arch->experts)
        return 0;
    const bool corrected = is_corrected(v);
    json_t *absent = json_loads(absent_router, 0, NULL);
    int r = json_object_update_missing(v->root, absent) == 0 ? 0 : -ENOMEM;
    json_decref(absent);
    if (r < 0)
        return err_set(v->e, r, "no memory left for the configuration");
    const char *method = corrected                             ? "noaux_tc"
                         : number(v, "expert_group_count") > 1 ? "group_limited_greedy"
                                                               : "greedy";
    r = set(v, v->root, "scoring_func", json_string(corrected ? "sigmoid" : "softmax"));
    return r == 0 ? set(v, v->root, "topk_method", json_string(method)) : r;
}

/* ---- the object ---- */

static int find_arch(struct view *v)
{
    char count[128];
    uint64_t experts = 0;
    struct slice name;
    if (!gguf_string(gguf_find(&v->file->head, "general.architecture"), &name) || name.len > 64)
        return err_set(v->e, -EINVAL, "metadata general.architecture is missing");
    if (slice_eq(name, SLICE("clip")))
        return err_set(
            v->e, -ENOTSUP,
            "a vision encoder (mmproj), which is not a model and is not read: the text model beside it "
            "is served without images");
    snprintf(count, sizeof(count), "%.*s.expert_count", SLICE_ARGS(name));
    if (!gguf_u64(gguf_find(&v->file->head, count), &experts))
        experts = 0;
    v->arch = gguf_arch_find(&v->file->head, name, experts > 0);
    return v->arch ? 0
                   : err_set(v->e, -ENOTSUP,
                             "GGUF files of architecture '%.*s'%s are not supported; docs/models.md lists "
                             "those that are",
                             SLICE_ARGS(name), experts > 0 ? " with experts" : "");
}

/* Rows of tables are numbers of config.json. The MTP head's layers count as blocks. */
static int set_sizes(struct view *v)
{
    const struct gguf_tensor *table = find_tensor(v, "token_embd.weight"),
                             *types = find_tensor(v, "token_types.weight");
    uint64_t blocks = number(v, "block_count"), heads = number(v, "nextn_predict_layers");
    if (!table || table->rank != 2)
        return err_set(v->e, -EINVAL, "the first file has no matrix token_embd.weight");
    int r = set(v, v->root, "vocab_size", json_integer((json_int_t)table->shape[0]));
    if (r == 0 && blocks > heads)
        r = set(v, v->root, "num_hidden_layers", json_integer((json_int_t)(blocks - heads)));
    if (r == 0 && !find(v, "attention.key_length") && number(v, "attention.head_count") > 0)
        r = set(
            v, v->root, "head_dim",
            json_integer((json_int_t)(number(v, "embedding_length") / number(v, "attention.head_count"))));
    if (r == 0 && types)
        r = set(v, v->root, "type_vocab_size", json_integer((json_int_t)types->shape[0]));
    if (r == 0 && v->arch->score_by_width > 0 && blocks == v->arch->score_by_width)
        r = set(v, v->root, "query_pre_attn_scalar",
                json_real((double)number(v, "embedding_length") / (double)number(v, "attention.head_count")));
    return r;
}

/* Which layers have a window, where a list says so, or a number of which each last layer has none. */
static int copy_windows(struct view *v)
{
    const struct gguf_value *value = find(v, "attention.sliding_window_pattern");
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    uint64_t every = 0;
    const bool list = value && value->list && value->type == GGUF_BOOL;
    if (number(v, "attention.sliding_window") == 0 || !(list || (gguf_u64(value, &every) && every > 0)))
        return 0;
    json_t *kinds = json_array();
    for (uint64_t i = 0; list ? gguf_next(&w, &item) : i < MIN_OF(number(v, "block_count"), LAYERS_MAX);
         i++) {
        const bool windowed = list ? item.flag : (i + 1) % every != 0;
        json_array_append_new(kinds, json_string(windowed ? "sliding_attention" : "full_attention"));
    }
    return set(v, v->root, "layer_types", kinds);
}

/* Returns the number of layers without the blocks of an MTP head. */
static uint64_t layers_of(const struct view *v)
{
    const uint64_t blocks = number(v, "block_count"), heads = number(v, "nextn_predict_layers");
    return blocks > heads ? blocks - heads : blocks;
}

/* Which layers are delta nets, where a list says so. */
static int copy_recurrent(struct view *v)
{
    const struct gguf_value *value = find(v, "attention.recurrent_layers");
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    if (!value || !value->list || value->type != GGUF_BOOL || !find(v, "full_attention_interval"))
        return 0;
    json_t *kinds = json_array();
    while (json_array_size(kinds) < layers_of(v) && gguf_next(&w, &item))
        json_array_append_new(kinds, json_string(item.flag ? "linear_attention" : "full_attention"));
    return set(v, v->root, "layer_types", kinds);
}

/* Layers without heads of keys are of another kind, or of a third one if they have an MLP. */
static int copy_kinds(struct view *v)
{
    const struct gguf_kinds *k = &v->arch->kinds;
    const struct gguf_value *value = find(v, "attention.head_count_kv");
    struct gguf_walk w = {.value = value}, mlps = {.value = k->mlp ? find(v, "feed_forward_length") : NULL};
    struct gguf_item heads, width;
    if (!k->with || !value || !value->list)
        return 0;
    json_t *kinds = json_array();
    while (json_array_size(kinds) < layers_of(v) && gguf_next(&w, &heads)) {
        const bool mlp = mlps.value && mlps.value->list && gguf_next(&mlps, &width) && !is_zero(&width);
        json_array_append_new(kinds, json_string(!is_zero(&heads) ? k->with : mlp ? k->mlp : k->without));
    }
    return set(v, v->root, "layer_types", kinds);
}

/* ---- heads of two sizes ---- */

/* A number of each layer, from a list or one for all. */
struct number_walk {
    struct gguf_walk w;
    uint64_t all;
};

static struct number_walk walk_numbers(const struct view *v, const char *key)
{
    const struct gguf_value *value = find(v, key);
    return (struct number_walk){.w = {.value = value && value->list ? value : NULL}, .all = number(v, key)};
}

static uint64_t next_number(struct number_walk *n)
{
    struct gguf_item item;
    return n->w.value && gguf_next(&n->w, &item) && item.whole && item.number > 0 ? (uint64_t)item.number
                                                                                  : n->all;
}

/* The MLPs of the last layers, which share keys, may be twice as wide. */
static int copy_widths(struct view *v)
{
    const uint64_t layers = layers_of(v), shared = number(v, "attention.shared_kv_layers");
    struct number_walk widths = walk_numbers(v, "feed_forward_length");
    const uint64_t first = next_number(&widths);
    bool wide = false;
    for (uint64_t i = 1; i < MIN_OF(layers, LAYERS_MAX); i++) {
        const uint64_t width = next_number(&widths);
        const bool own = i + shared < layers;
        wide |= width != first;
        if (width != (wide ? 2 * first : first) || (own && wide))
            return err_set(v->e, -ENOTSUP,
                           "metadata %s.feed_forward_length: %llu of layer %llu is not supported beside %llu",
                           v->arch->name, (ull)width, (ull)i, (ull)first);
    }
    return set(v, v->root, "use_double_wide_mlp", json_boolean(wide));
}

static bool has_values(const struct view *v, uint64_t layer)
{
    char name[64];
    snprintf(name, sizeof(name), "blk.%llu.attn_v.weight", (ull)layer);
    return find_tensor(v, name);
}

/* Layers without a window have other heads, and perhaps keys for values. */
static int copy_heads(struct view *v)
{
    const uint64_t layers = MIN_OF(layers_of(v), LAYERS_MAX),
                   own = layers - MIN_OF(layers, number(v, "attention.shared_kv_layers"));
    struct number_walk heads = walk_numbers(v, "attention.head_count_kv");
    struct gguf_walk windows = {.value = find(v, "attention.sliding_window_pattern")};
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
                                          (json_int_t)number(v, "attention.key_length"),
                                          "num_key_value_heads", (json_int_t)count));
        shares_values |= !windowed.flag && i < own && !has_values(v, i);
    }
    int r = set(v, v->root, "per_layer_config", full);
    if (r == 0 && windowed_heads > 0)
        r = set_number(v, "num_key_value_heads", windowed_heads);
    return r == 0 ? set(v, v->root, "attention_k_eq_v", json_boolean(shares_values)) : r;
}

static int copy_two_sizes(struct view *v)
{
    const struct gguf_value *windows = find(v, "attention.sliding_window_pattern");
    const struct gguf_tensor *inputs = find_tensor(v, "per_layer_token_embd.weight");
    if (!v->arch->two_sizes)
        return 0;
    if (!windows || !windows->list || windows->type != GGUF_BOOL)
        return err_set(v->e, -EINVAL, "metadata %s.attention.sliding_window_pattern is not a list of layers",
                       v->arch->name);
    int r = copy_heads(v);
    if (r == 0)
        r = copy_widths(v);
    if (r == 0 && !find(v, "embedding_length_per_layer_input"))
        r = set_number(v, "hidden_size_per_layer_input", 0);
    return r == 0 && inputs ? set_number(v, "vocab_size_per_layer_input", inputs->shape[0]) : r;
}

/* ---- Mamba-2 ---- */

/* Files of granitehybrid say with rope.scaling.finetuned whether attention rotates. */
static int copy_ssm(struct view *v)
{
    static const struct gguf_key keys[] = {
        {"ssm.conv_kernel", "mamba_d_conv"},
        {"ssm.state_size", "mamba_d_state"},
        {"ssm.group_count", "mamba_n_groups"},
        {"ssm.time_step_rank", "mamba_n_heads"},
        {NULL, NULL},
    };
    const uint64_t heads = number(v, "ssm.time_step_rank"), inner = number(v, "ssm.inner_size");
    struct gguf_item item;
    struct gguf_walk w = {.value = find(v, "rope.scaling.finetuned")};
    if (!v->arch->ssm)
        return 0;
    if (heads == 0 || inner % heads != 0)
        return err_set(v->e, -EINVAL,
                       "metadata %s.ssm.time_step_rank is %llu, which does not divide ssm.inner_size %llu",
                       v->arch->name, (ull)heads, (ull)inner);
    int r = copy_keys(v, keys);
    if (r == 0)
        r = set_number(v, "mamba_d_head", inner / heads);
    const bool rotates = w.value && gguf_next(&w, &item) && item.kind == GGUF_IS_BOOL && item.flag;
    return r == 0 ? set(v, v->root, "position_embedding_type", json_string(rotates ? "rope" : "nope")) : r;
}

/* Numbers that llama.cpp reads of every architecture, and of which these have one value. */
static int check_numbers(struct view *v)
{
    const uint64_t groups = number(v, "expert_group_count"), rotate = number(v, "rope.dimension_count"),
                   local = number(v, "rope.dimension_count_swa");
    if (groups > 1 && !json_object_get(v->root, "n_group"))
        return err_set(v->e, -ENOTSUP, "metadata %s.expert_group_count: %llu is not supported", v->arch->name,
                       (ull)groups);
    if (local > 0 && rotate > 0 &&
        local != (v->arch->two_sizes ? number(v, "attention.key_length_swa") : rotate))
        return err_set(v->e, -ENOTSUP,
                       "metadata %s.rope.dimension_count_swa: %llu is not supported beside "
                       "rope.dimension_count %llu",
                       v->arch->name, (ull)local, (ull)rotate);
    return 0;
}

static int add_facts(struct view *v)
{
    int r = set(v, v->root, "model_type", json_string(v->arch->model_type));
    if (r == 0 && v->arch->flag.key)
        r = set(v, v->root, v->arch->flag.name, json_boolean(find_tensor(v, v->arch->flag.key) != NULL));
    if (r < 0 || !v->arch->facts)
        return r;
    json_t *facts = json_loads(v->arch->facts, 0, NULL);
    r = facts && json_object_update_recursive(v->root, facts) == 0 ? 0 : -ENOMEM;
    json_decref(facts);
    return r == 0 ? 0 : err_set(v->e, r, "no memory left for the configuration");
}

static int fill(struct view *v)
{
    int r = find_arch(v);
    if (r == 0 && v->arch->refused)
        return add_facts(v);
    if (r == 0)
        r = copy_keys(v, gguf_arch_keys);
    if (r == 0)
        r = copy_keys(v, v->arch->keys);
    if (r == 0)
        r = set_sizes(v);
    if (r == 0)
        r = copy_rope(v);
    if (r == 0)
        r = copy_latent(v);
    if (r == 0)
        r = copy_latent_router(v);
    if (r == 0)
        r = copy_windows(v);
    if (r == 0)
        r = copy_recurrent(v);
    if (r == 0)
        r = copy_kinds(v);
    if (r == 0)
        r = copy_two_sizes(v);
    if (r == 0)
        r = copy_ssm(v);
    if (r == 0)
        r = check_numbers(v);
    if (r == 0 && number(v, "attention.sliding_window") == 0)
        json_object_del(v->root, "sliding_window");
    return r == 0 ? add_facts(v) : r;
}

/* llama.cpp's converter keeps these two rows of Qwen3-Reranker's output matrix. A score is their softmax's
 * first number: the sigmoid of the difference. */
static bool is_yes_no(const struct view *v)
{
    static const struct slice labels[] = {{"yes", 3}, {"no", 2}};
    struct gguf_walk w = {.value = find(v, "classifier.output_labels")};
    struct gguf_item item;
    size_t count = 0;
    for (bool same = true; w.value && gguf_next(&w, &item); count++) {
        same = same && count < COUNT_OF(labels) && item.kind == GGUF_IS_STRING &&
               slice_eq(item.string, labels[count]);
        if (!same)
            return false;
    }
    return count == COUNT_OF(labels);
}

int gguf_config_read(const struct gguf_head *file, json_t **ret, struct err *e)
{
    struct view v = {.file = file, .root = json_object(), .e = e};
    v.rope = json_object();
    int r = set(&v, v.root, "rope_parameters", v.rope);
    if (r == 0)
        r = fill(&v);
    if (r < 0)
        json_decref(v.root);
    else
        *ret = v.root;
    return r;
}

int gguf_view_naming(const struct gguf_head *file, const struct tensor_naming **ret, struct err *e)
{
    struct view v = {.file = file, .e = e};
    int r = find_arch(&v);
    if (r == 0)
        *ret = &v.arch->naming;
    return r;
}

/* ---- pooling ---- */

static const char *pooling_of(const struct view *v)
{
    /* Rows at length 1. GGUF_POOLING_RANK, of scores, has none. */
    static const char *const modes[] = {NULL, "mean", "cls", "lasttoken"};
    const uint64_t kind = number(v, "pooling_type");
    return kind < COUNT_OF(modes) ? modes[kind] : NULL;
}

/* Modules of sentence-transformers. */
int gguf_config_modules(const struct gguf_head *file, json_t **ret, struct err *e)
{
    struct view v = {.file = file, .e = e};
    int r = find_arch(&v);
    if (r < 0)
        return r;
    if (pooling_of(&v))
        *ret = json_pack("[{s:s}, {s:s, s:s}, {s:s}]", "type", "Transformer", "type", "Pooling", "path",
                         GGUF_POOLING_FOLDER, "type", "Normalize");
    else if (number(&v, "pooling_type") == GGUF_POOLING_RANK && is_yes_no(&v))
        *ret = json_pack("[{s:s}, {s:s, s:[s, s]}]", "type", "Transformer", "type", "LogitScore", "labels",
                         "yes", "no");
    else
        return -ENOENT;
    return *ret ? 0 : -ENOMEM;
}

int gguf_config_pooling(const struct gguf_head *file, json_t **ret, struct err *e)
{
    struct view v = {.file = file, .e = e};
    int r = find_arch(&v);
    if (r < 0 || !pooling_of(&v))
        return r < 0 ? r : -ENOENT;
    *ret = json_pack("{s:s}", "pooling_mode", pooling_of(&v));
    return *ret ? 0 : -ENOMEM;
}
