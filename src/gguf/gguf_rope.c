/* gguf_rope.c - metadata and tensors of a rotation as rope_parameters. */
#include "gguf/gguf_rope.h"

#include "base/check.h"
#include "gguf/gguf_arch.h"
#include "gguf/gguf_meta.h"
#include "tensor/block_form.h"

#include <errno.h>
#include <math.h>

#define FACTORS_MAX 320 /* numbers of a list of factors: half of the longest head */

/* attn_factor multiplies YaRN's own factor. yarn_attn_factor is the whole, as in config.json. */
static int copy_yarn(struct gguf_meta *v)
{
    const double mix = gguf_meta_real(v, "rope.scaling.yarn_ext_factor", 1),
                 factor = gguf_meta_real(v, "rope.scaling.factor", 1);
    const double times = gguf_meta_real(v, "rope.scaling.attn_factor", 1);
    if (mix >= 0 && mix != 1) /* negative: llama.cpp's default, which is 1 */
        return err_set(v->e, -ENOTSUP, "metadata %s.rope.scaling.yarn_ext_factor: %g is not supported; 1 is",
                       v->arch->name, mix);
    if (gguf_meta_find(v, "rope.scaling.yarn_attn_factor"))
        return gguf_meta_copy(v, "rope.scaling.yarn_attn_factor", v->rope, "attention_factor");
    return times == 1 || factor <= 1
               ? 0
               : gguf_meta_set(v, v->rope, "attention_factor", json_real(times * (1 + 0.1 * log(factor))));
}

static int copy_scaling(struct gguf_meta *v)
{
    static const struct gguf_key keys[] = {
        {"rope.scaling.factor", "factor"},
        {"rope.scaling.original_context_length", "original_max_position_embeddings"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"}};
    struct slice type = {NULL, 0};
    /* A factor without a type is linear. Old files have another key of it. */
    const double linear = gguf_meta_real(v, "rope.scaling.factor", gguf_meta_real(v, "rope.scale_linear", 1));
    const double times = gguf_meta_real(v, "rope.scaling.attn_factor", 1);
    const bool named = gguf_string(gguf_meta_find(v, "rope.scaling.type"), &type);
    if (times != 1 && !slice_eq(type, SLICE("yarn")) && !gguf_meta_tensor(v, "rope_factors_long.weight"))
        return err_set(v->e, -ENOTSUP,
                       "metadata %s.rope.scaling.attn_factor: %g is not supported without yarn or longrope",
                       v->arch->name, times);
    if (!named && linear > 1)
        return gguf_meta_set(v, v->rope, "rope_type", json_string("linear")) < 0
                   ? -ENOMEM
                   : gguf_meta_set(v, v->rope, "factor", json_real(linear));
    if (!named || slice_eq(type, SLICE("none")))
        return 0;
    int r = gguf_meta_copy(v, "rope.scaling.type", v->rope, "rope_type");
    for (size_t i = 0; r == 0 && i < COUNT_OF(keys); i++)
        r = gguf_meta_copy(v, keys[i].key, v->rope, keys[i].name);
    return r == 0 && slice_eq(type, SLICE("yarn")) ? copy_yarn(v) : r;
}

/* The numbers of a tensor. */
static int read_numbers(struct gguf_meta *v, const struct gguf_tensor *t, float ret[FACTORS_MAX])
{
    if (t->rank != 1 || t->form->dtype != DTYPE_F32 || t->bytes > FACTORS_MAX * sizeof(float))
        return err_set(v->e, -EINVAL, "tensor %.*s must be at most %d numbers in F32", SLICE_ARGS(t->name),
                       FACTORS_MAX);
    return regular_file_read(v->file->at, t->offset, ret, (size_t)t->bytes, v->e);
}

static int read_list(struct gguf_meta *v, const struct gguf_tensor *t, const char *name)
{
    float values[FACTORS_MAX];
    int r = read_numbers(v, t, values);
    if (r < 0)
        return r;
    json_t *list = json_array();
    for (uint64_t i = 0; i < t->shape[0]; i++)
        json_array_append_new(list, isfinite(values[i]) ? json_real((double)values[i]) : json_null());
    return gguf_meta_set(v, v->rope, name, list);
}

/* Two lists: for contexts up to the original length, and for longer ones. */
static int read_longrope(struct gguf_meta *v, const struct gguf_tensor *small,
                         const struct gguf_tensor *large)
{
    if (!small || !large)
        return err_set(v->e, -EINVAL, "tensor rope_factors_%s.weight is missing", small ? "long" : "short");
    int r = read_list(v, small, "short_factor");
    if (r == 0)
        r = read_list(v, large, "long_factor");
    if (r == 0)
        r = gguf_meta_copy(v, "rope.scaling.original_context_length", v->rope,
                           "original_max_position_embeddings");
    if (r == 0)
        r = gguf_meta_copy(v, "rope.scaling.attn_factor", v->rope, "attention_factor");
    return r == 0 ? gguf_meta_set(v, v->rope, "rope_type", json_string("longrope")) : r;
}

/* Reads a proportional rotation: 1 for each frequency of the part that rotates, then a divisor that makes the
 * other frequencies 0. */
static int read_proportional(struct gguf_meta *v)
{
    const struct gguf_tensor *t = gguf_meta_tensor(v, "rope_freqs.weight");
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
    return gguf_meta_set(v, v->rope, "full_attention", full);
}

/* The numbers that divide the frequencies; absent where nothing scales them. */
static int read_factors(struct gguf_meta *v)
{
    const struct gguf_tensor *t = gguf_meta_tensor(v, "rope_freqs.weight"),
                             *small = gguf_meta_tensor(v, "rope_factors_short.weight"),
                             *large = gguf_meta_tensor(v, "rope_factors_long.weight");
    if (v->arch->two_sizes)
        return read_proportional(v);
    if (small || large)
        return read_longrope(v, small, large);
    int r = t ? read_list(v, t, "factors") : 0;
    return t && r == 0 ? gguf_meta_set(v, v->rope, "rope_type", json_string("factors")) : r;
}

/* Three of the four numbers count. */
static int copy_sections(struct gguf_meta *v)
{
    const struct gguf_value *value = gguf_meta_find(v, "rope.dimension_sections");
    struct gguf_walk w = {.value = value};
    struct gguf_item item;
    if (!value)
        return 0;
    json_t *list = json_array();
    for (int i = 0; i < 3 && gguf_next(&w, &item); i++)
        json_array_append_new(list, gguf_meta_json(&item));
    return gguf_meta_set(v, v->rope, "mrope_section", list);
}

int gguf_rope_copy(struct gguf_meta *v)
{
    uint64_t rotate = gguf_meta_number(v, "rope.dimension_count"),
             head = gguf_meta_number(v, "attention.key_length");
    int r = 0;
    if (head == 0 && gguf_meta_number(v, "attention.head_count") > 0)
        head = gguf_meta_number(v, "embedding_length") / gguf_meta_number(v, "attention.head_count");
    if (rotate > 0 && rotate < head && !v->arch->latent)
        r = gguf_meta_set(v, v->root, "partial_rotary_factor", json_real((double)rotate / (double)head));
    if (r == 0)
        r = copy_scaling(v);
    if (r == 0)
        r = read_factors(v);
    return r == 0 ? copy_sections(v) : r;
}
