/* gguf_apart.c - a file lists heads of each layer, and has a base and a part of the rotation for each kind.
 * config.json has rope_parameters of each kind by name. */
#include "gguf/gguf_apart.h"

#include "base/check.h"
#include "gguf/gguf_arch.h"
#include "gguf/gguf_meta.h"

#include <errno.h>

static bool is_windowed(const struct gguf_meta *v, size_t layer)
{
    const char *kind = json_string_value(json_array_get(json_object_get(v->root, "layer_types"), layer));
    return kind && strcmp(kind, "sliding_attention") == 0;
}

/* Kinds of layers in a file that does not list them. */
static int fill_kinds(struct gguf_meta *v)
{
    const uint64_t layers = MIN_OF(gguf_meta_layers(v), GGUF_LAYERS_MAX), every = v->arch->apart->full_every;
    if (every == 0 || json_object_get(v->root, "layer_types") ||
        gguf_meta_number(v, "attention.sliding_window") == 0)
        return 0;
    json_t *kinds = json_array();
    for (uint64_t i = 0; i < layers; i++)
        json_array_append_new(kinds, json_string(i % every == 0 ? "full_attention" : "sliding_attention"));
    return gguf_meta_set(v, v->root, "layer_types", kinds);
}

/* ---- heads ---- */

struct head_counts {
    uint64_t full, windowed; /* 0: the model has no layer of this kind */
};

/* Heads of each kind, which are those of all its layers. */
static int count_heads(struct gguf_meta *v, const char *key, struct head_counts *ret, json_t *list)
{
    struct gguf_walk w = {.value = gguf_meta_find(v, key)};
    struct gguf_item item = {.number = (int64_t)gguf_meta_number(v, key), .whole = true};
    const bool one = w.value && !w.value->list;
    *ret = (struct head_counts){0, 0};
    if (!w.value)
        return err_set(v->e, -EINVAL, "metadata %s.%s is missing", v->arch->name, key);
    for (uint64_t i = 0; i < MIN_OF(gguf_meta_layers(v), GGUF_LAYERS_MAX); i++) {
        if (!one && !gguf_next(&w, &item))
            return err_set(v->e, -EINVAL, "metadata %s.%s has %llu values for %llu layers", v->arch->name,
                           key, (ull)i, (ull)gguf_meta_layers(v));
        uint64_t *kind = is_windowed(v, i) ? &ret->windowed : &ret->full;
        const uint64_t count = item.whole && item.number > 0 ? (uint64_t)item.number : 0;
        if (count == 0)
            return err_set(v->e, -EINVAL, "metadata %s.%s: layer %llu has no heads", v->arch->name, key,
                           (ull)i);
        if (list)
            json_array_append_new(list, json_integer((json_int_t)count));
        else if (*kind > 0 && *kind != count)
            return err_set(v->e, -ENOTSUP,
                           "metadata %s.%s: %llu of layer %llu is not supported beside %llu of layers of its "
                           "kind",
                           v->arch->name, key, (ull)count, (ull)i, (ull)*kind);
        *kind = count;
    }
    return 0;
}

static int copy_queries(struct gguf_meta *v)
{
    struct head_counts heads;
    json_t *list = v->arch->apart->heads_listed ? json_array() : NULL;
    int r = count_heads(v, "attention.head_count", &heads, list);
    if (r < 0)
        json_decref(list);
    else if (list)
        r = gguf_meta_set(v, v->root, "num_attention_heads_per_layer", list);
    if (r == 0)
        r = gguf_meta_set_number(v, "num_attention_heads", heads.full > 0 ? heads.full : heads.windowed);
    if (r == 0 && v->arch->apart->window_heads && heads.windowed > 0)
        r = gguf_meta_set_number(v, v->arch->apart->window_heads, heads.windowed);
    return r;
}

static int copy_keys(struct gguf_meta *v)
{
    const uint64_t times = v->arch->apart->kv_times;
    struct head_counts heads;
    int r = count_heads(v, "attention.head_count_kv", &heads, NULL);
    if (r == 0 && heads.full > 0 && heads.windowed > 0 && heads.windowed != times * heads.full)
        r = err_set(v->e, -ENOTSUP,
                    "metadata %s.attention.head_count_kv: %llu in layers with a window is not supported "
                    "beside %llu; %llu is",
                    v->arch->name, (ull)heads.windowed, (ull)heads.full, (ull)(times * heads.full));
    return r == 0 ? gguf_meta_set_number(v, "num_key_value_heads",
                                         heads.full > 0 ? heads.full : heads.windowed / times)
                  : r;
}

/* Gates are of heads or of values, which the file shows by their count. */
static int copy_gating(struct gguf_meta *v)
{
    const struct gguf_tensor *gate = gguf_meta_tensor(v, "blk.0.attn_gate.weight");
    struct gguf_item heads;
    struct gguf_walk w = {.value = gguf_meta_find(v, "attention.head_count")};
    if (!v->arch->apart->gating || !gate || !w.value || !gguf_next(&w, &heads))
        return 0;
    const bool by_head = heads.whole && gate->shape[0] == (uint64_t)heads.number;
    return gguf_meta_set(v, v->root, "gating", json_string(by_head ? "per-head" : "per-element"));
}

/* ---- rotations ---- */

static double part_of(const struct gguf_meta *v, uint64_t rotate)
{
    const uint64_t head = gguf_meta_number(v, "attention.key_length");
    return head > 0 && rotate > 0 && rotate < head ? (double)rotate / (double)head : 1;
}

static json_t *rotation(double theta, double part)
{
    return json_pack("{s:s, s:f, s:f}", "rope_type", "default", "rope_theta", theta, "partial_rotary_factor",
                     part);
}

/* Only layers without a window have scaled frequencies. A file has factors for a whole head, of which a
 * rotation of a part reads the first. */
static int copy_rotations(struct gguf_meta *v)
{
    const uint64_t head = gguf_meta_number(v, "attention.key_length"),
                   rotate = gguf_meta_number(v, "rope.dimension_count") > 0
                                ? gguf_meta_number(v, "rope.dimension_count")
                                : head,
                   local = gguf_meta_number(v, "rope.dimension_count_swa"),
                   turned = rotate / v->arch->apart->full_divisor;
    const double theta = gguf_meta_real(v, "rope.freq_base", 1e4);
    json_t *full = rotation(theta, part_of(v, turned)),
           *windowed = rotation(gguf_meta_real(v, "rope.freq_base_swa", theta),
                                part_of(v, local > 0 ? local : rotate));
    json_t *factors = json_object_get(v->rope, "factors");
    while (json_array_size(factors) > turned / 2)
        json_array_remove(factors, json_array_size(factors) - 1);
    int r = full && windowed && json_object_update(full, v->rope) == 0 ? 0 : -ENOMEM;
    if (r == 0) {
        json_object_clear(v->rope);
        if (json_object_set(v->rope, "full_attention", full) < 0 ||
            json_object_set(v->rope, "sliding_attention", windowed) < 0)
            r = -ENOMEM;
    }
    json_decref(full);
    json_decref(windowed);
    static const char *const moved[] = {"rope_theta", "rope_local_base_freq", "partial_rotary_factor"};
    for (size_t i = 0; i < COUNT_OF(moved); i++)
        json_object_del(v->root, moved[i]);
    return r == 0 ? 0 : err_set(v->e, r, "no memory left for the configuration");
}

int gguf_apart_copy(struct gguf_meta *v)
{
    if (!v->arch->apart)
        return 0;
    ASSERT(v->arch->apart->kv_times > 0 && v->arch->apart->full_divisor > 0);
    int r = fill_kinds(v);
    if (r == 0)
        r = copy_queries(v);
    if (r == 0)
        r = copy_keys(v);
    if (r == 0)
        r = copy_gating(v);
    return r == 0 ? copy_rotations(v) : r;
}
