/* config_quantization.c - the quantization block of config.json: of MLX one global entry and some by module
 * path; of other writers a method, and what their tensors do not show. */
#include "model/config/config.h"
#include "model/config/config_unknown.h"
#include "model/config/json_read.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

/* ---- MLX ---- */

static const struct {
    const char *name;
    struct quantization_entry absent;
    bool any_bits; /* else those of `absent` alone */
} modes[] = {
    {"affine", {4, 64, QUANTIZATION_AFFINE}, true},
    {"mxfp4", {4, 32, QUANTIZATION_MXFP4}, false},
    {"nvfp4", {4, 16, QUANTIZATION_NVFP4}, false},
    {"mxfp8", {8, 32, QUANTIZATION_MXFP8}, false},
};

static bool bits_ok(uint32_t bits)
{
    return (bits >= 2 && bits <= 6) || bits == 8;
}

static void check_affine(struct json_read *p, const struct quantization_entry *q)
{
    if (!bits_ok(q->bits))
        json_read_fail(p, -ENOTSUP, "bits is %u; supported are 2, 3, 4, 5, 6 and 8", q->bits);
    if (q->group != 32 && q->group != 64 && q->group != 128)
        json_read_fail(p, -ENOTSUP, "group_size is %u; supported are 32, 64 and 128", q->group);
}

/* An entry without a mode is affine, whatever the mode of all others: mlx-lm writes routers so. */
static void read_entry(struct json_read *p, const struct quantization_entry *global,
                       struct quantization_entry *ret)
{
    const char *mode = json_read_string_or(p, "mode", "affine");
    size_t i = 0;
    while (i < COUNT_OF(modes) && strcmp(modes[i].name, mode) != 0)
        i++;
    if (i == COUNT_OF(modes)) {
        json_read_fail(p, -ENOTSUP, "mode '%.40s' is not supported; affine, mxfp4, nvfp4 and mxfp8 are",
                       mode);
        return;
    }
    struct quantization_entry absent = modes[i].absent;
    if (global && global->mode == absent.mode)
        absent = *global;
    *ret = absent;
    ret->bits = json_read_u32_or(p, "bits", 2, 8, absent.bits);
    ret->group = json_read_u32_or(p, "group_size", 16, 128, absent.group);
    if (modes[i].any_bits)
        check_affine(p, ret);
    else if (ret->bits != modes[i].absent.bits || ret->group != modes[i].absent.group)
        json_read_fail(p, -ENOTSUP, "mode %s has %u bits and a group_size of %u, not %u and %u", mode,
                       modes[i].absent.bits, modes[i].absent.group, ret->bits, ret->group);
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
        read_entry(&one, &q->global, &q->entries[count]);
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

/* MLX writes bits and group_size; its own defaults stand in where a file does not. */
static void read_mlx(struct json_read *p, struct arena *a, struct quantization *q)
{
    read_entry(p, NULL, &q->global);
    if (!p->error)
        read_overrides(p, a, q);
}

/* ---- other writers ---- */

static void refuse_true(struct json_read *p, const char *key, const char *what)
{
    if (json_read_bool_or(p, key, false))
        json_read_fail(p, -ENOTSUP, "%s: %s is not supported", key, what);
}

static void refuse_given(struct json_read *p, const char *key, const char *what)
{
    const json_t *value = json_read_get(p, key);
    if (value && !json_is_false(value))
        json_read_fail(p, -ENOTSUP, "%s: %s is not supported", key, what);
}

/* `wanted` or absent. */
static void want_word(struct json_read *p, const char *key, const char *const *wanted)
{
    const char *word = json_read_string_or(p, key, wanted[0]);
    for (size_t i = 0; wanted[i]; i++) {
        if (strcasecmp(word, wanted[i]) == 0)
            return;
    }
    json_read_fail(p, -ENOTSUP, "%s '%.40s' is not supported; '%s' is", key, word, wanted[0]);
}

/* Columns of a group by `key`, else by `other`: 0 where neither is given, UINT32_MAX where it is -1, a whole
 * row. */
static uint32_t read_group(struct json_read *p, const char *key, const char *other)
{
    const char *used = json_read_get(p, key) ? key : other;
    const json_t *value = json_read_get(p, used);
    if (json_is_integer(value) && json_integer_value(value) == -1)
        return UINT32_MAX;
    return json_read_u32_or(p, used, 1, UINT32_MAX, 0);
}

static void read_awq(struct json_read *p, struct arena *a, struct quantization *q)
{
    static const char *const names[] = {"version", "format", "checkpoint_format"};
    (void)a;
    uint32_t bits = json_read_u32_or(p, "bits", 1, 32, json_read_u32_or(p, "w_bit", 1, 32, 4));
    if (bits != 4)
        json_read_fail(p, -ENOTSUP, "AWQ of %u bits is not supported; of 4 bits it is", bits);
    for (size_t i = 0; i < COUNT_OF(names); i++)
        want_word(p, names[i], (const char *const[]){"gemm", NULL});
    q->group = read_group(p, "group_size", "q_group_size");
    q->method = QUANTIZATION_AWQ;
}

/* Two names of the layout: gptqmodel writes both, some files have one alone. */
static enum quantization_method read_gptq_layout(struct json_read *p)
{
    static const char *const layouts[] = {"gptq", "gptq_v2", NULL};
    want_word(p, "checkpoint_format", layouts);
    want_word(p, "format", layouts);
    const char *one = json_read_string_or(p, "checkpoint_format", NULL);
    const char *two = json_read_string_or(p, "format", NULL);
    if (one && two && strcasecmp(one, two) != 0)
        json_read_fail(p, -EINVAL, "checkpoint_format '%.40s' and format '%.40s' are two layouts", one, two);
    one = one ? one : two;
    return one && strcasecmp(one, "gptq_v2") == 0 ? QUANTIZATION_GPTQ_V2 : QUANTIZATION_GPTQ;
}

static void read_gptq(struct json_read *p, struct arena *a, struct quantization *q)
{
    (void)a;
    uint32_t bits = json_read_u32_or(p, "bits", 1, 32, 4);
    if (bits != 2 && bits != 4 && bits != 8)
        json_read_fail(p, -ENOTSUP, "GPTQ of %u bits is not supported; of 2, 4 and 8 bits it is", bits);
    q->group = read_group(p, "group_size", "q_group_size");
    /* One group has no order. */
    if (q->group != UINT32_MAX)
        refuse_true(p, "desc_act", "GPTQ with columns in the order of their activations");
    refuse_true(p, "is_marlin_format", "GPTQ in Marlin's layout");
    refuse_given(p, "rotation", "GPTQ whose inputs of down_proj are rotated");
    refuse_given(p, "adapter", "GPTQ with an adapter");
    q->method = read_gptq_layout(p);
}

/* [rows, columns] of a scale's block. */
static void read_block(struct json_read *p, const char *key, struct quantization *q)
{
    const json_t *pair = json_read_get(p, key);
    uint32_t *const to[2] = {&q->block_rows, &q->block_columns};
    if (!pair)
        return;
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_array_get(pair, i);
        json_int_t n = json_is_integer(value) ? json_integer_value(value) : 0;
        if (json_array_size(pair) != 2 || n < 1 || n > 65536) {
            json_read_fail(p, -EINVAL, "%s must be two numbers from 1 to 65536", key);
            return;
        }
        *to[i] = (uint32_t)n;
    }
}

static void read_fp8(struct json_read *p, struct arena *a, struct quantization *q)
{
    (void)a;
    want_word(p, "fmt", (const char *const[]){"e4m3", "float8_e4m3fn", NULL});
    read_block(p, "weight_block_size", q);
    q->method = QUANTIZATION_SCALED;
}

static void read_scaled(struct json_read *p, struct arena *a, struct quantization *q)
{
    (void)p;
    (void)a;
    q->method = QUANTIZATION_SCALED;
}

/* A group of compressed-tensors' config_groups. */
static void read_config_group(struct json_read *p, const json_t *group, struct quantization *q)
{
    const json_t *weights = json_object_get(group, "weights");
    if (!json_is_object(weights))
        return;
    struct json_read w = {.object = weights, .where = "config.json: config_groups: weights", .e = p->e};
    /* A word or a flag. Group and dynamic are one order, weight and static the other. */
    const json_t *order = json_read_get(&w, "actorder");
    const char *word = json_is_string(order) ? json_string_value(order)
                       : json_is_true(order) ? "group"
                                             : "static";
    if (strcasecmp(word, "static") != 0 && strcasecmp(word, "weight") != 0)
        json_read_fail(&w, -ENOTSUP, "actorder '%.40s' is not supported", word);
    read_block(&w, "block_structure", q);
    if (w.error && !p->error)
        p->error = w.error;
}

static void read_compressed(struct json_read *p, struct arena *a, struct quantization *q)
{
    static const char *const formats[] = {"pack-quantized",
                                          "int-quantized",
                                          "float-quantized",
                                          "naive-quantized",
                                          "nvfp4-pack-quantized",
                                          "mxfp4-pack-quantized",
                                          "mixed-precision",
                                          "dense",
                                          NULL};
    const char *key;
    json_t *group;
    (void)a;
    want_word(p, "format", formats);
    const json_t *sparsity = json_read_get(p, "sparsity_config");
    if (json_is_object(sparsity)) {
        struct json_read s = {.object = sparsity, .where = "config.json: sparsity_config", .e = p->e};
        want_word(&s, "format", (const char *const[]){"dense", NULL});
        if (s.error && !p->error)
            p->error = s.error;
    }
    const json_t *transform = json_read_get(p, "transform_config");
    if (json_is_object(transform) && json_object_size(json_object_get(transform, "config_groups")) > 0)
        json_read_fail(p, -ENOTSUP, "transform_config is not supported");
    const json_t *groups = json_read_get(p, "config_groups");
    if (json_is_object(groups))
        json_object_foreach((json_t *)groups, key, group)
            read_config_group(p, group, q);
    q->method = QUANTIZATION_SCALED;
}

static const struct {
    const char *name;
    void (*read)(struct json_read *p, struct arena *a, struct quantization *q);
} methods[] = {
    {"awq", read_awq},
    {"compressed-tensors", read_compressed},
    {"fbgemm_fp8", read_fp8},
    {"fp8", read_fp8},
    {"gptq", read_gptq},
    {"modelopt", read_scaled},
    {"modelopt_fp4", read_scaled},
    {"mxfp4", read_scaled},
};

static void read_method(struct json_read *p, struct arena *a, const char *method, struct quantization *q)
{
    for (size_t i = 0; i < COUNT_OF(methods); i++) {
        if (strcmp(methods[i].name, method) == 0) {
            methods[i].read(p, a, q);
            return;
        }
    }
    json_read_fail(
        p, -ENOTSUP,
        "quant_method '%.40s' is not supported; awq, compressed-tensors, fp8, gptq, modelopt, mxfp4 "
        "and MLX's forms are",
        method);
}

void config_quantization_read(struct json_read *r, struct arena *a, struct config *c)
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
    p.asked = json_object();
    const char *method = json_read_string_or(&p, "quant_method", NULL);
    if (method)
        read_method(&p, a, method, &c->quantization);
    else
        read_mlx(&p, a, &c->quantization);
    c->quantization.present = true;
    config_unknown_add(block, p.asked, CONFIG_OF_QUANTIZATION, "quantization.", c->unknown_keys,
                       sizeof(c->unknown_keys));
    json_decref(p.asked);
    if (p.error && !r->error)
        r->error = p.error;
}
