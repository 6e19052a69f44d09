/* config_rope.c - the rotary position embedding in config.json, in all generations.
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
#include <string.h>

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

/* Where the parameters of one table are: in the object, in its part for a kind of layers, or nowhere. */
static const json_t *find_parameters(struct json_read *r, bool local, const char **name)
{
    const json_t *parameters = json_read_get(r, "rope_parameters");
    const json_t *found = parameters ? parameters : json_read_get(r, "rope_scaling");
    *name = parameters ? "rope_parameters" : "rope_scaling";
    if (found && !json_is_object(found)) {
        json_read_fail(r, -EINVAL, "%s must be an object", *name);
        return NULL;
    }
    const json_t *kind = json_object_get(found, local ? "sliding_attention" : "full_attention");
    if (json_is_object(kind))
        return kind;
    return local ? NULL : found;
}

/* rope_theta and partial_rotary_factor: inside the object, else beside it. */
static void read_table(struct json_read *r, struct json_read *p, const struct config *c, double theta,
                       struct rope_config *rope)
{
    rope->theta = json_read_f64_or(p, "rope_theta", 1, 1e12, theta);
    double part = c->family->rotary_part > 0 ? c->family->rotary_part : 1;
    part = json_read_f64_or(r, "partial_rotary_factor", 0, 1, part);
    rope->part = json_read_f64_or(p, "partial_rotary_factor", 0, 1, part);
    const char *type = json_read_string_or(p, "type", "default");
    type = json_read_string_or(p, "rope_type", type);
    if (!rope_type_parse(type, &rope->type))
        json_read_fail(p, -ENOTSUP,
                       "rope_type '%.40s' is not supported; default, linear, llama3 and yarn are", type);
    else
        read_rope_scaling(p, rope, c->context_max);
    read_sections(p, rope);
}

/* The dimensions that rotate: a part of the heads of its layers. */
static void read_rotating(struct json_read *p, const struct config *c, struct rope_config *rope)
{
    rope->rot = (uint32_t)(c->head_dim * rope->part);
    if (rope->rot < 2 || rope->rot % 2 != 0)
        json_read_fail(p, -ENOTSUP, "partial_rotary_factor %g of head_dim %u leaves %u rotating dimensions",
                       rope->part, c->head_dim, rope->rot);
}

static void read_rope(struct json_read *r, struct config *c, bool local, double theta)
{
    char where[64];
    const char *name;
    struct rope_config *rope = &c->ropes[c->rope_count];
    const json_t *object = find_parameters(r, local, &name);
    snprintf(where, sizeof(where), "config.json: %s", name);
    struct json_read p = {.object = object, .where = where, .e = r->e};
    if (r->error)
        return;
    c->rope_count++;
    read_table(r, &p, c, theta, rope);
    read_rotating(&p, c, rope);
    if (p.error && !r->error)
        r->error = p.error;
}

static bool has_local(const struct config *c)
{
    bool local = false;
    for (uint32_t i = 0; i < LAYER_KINDS_MAX; i++)
        local |= c->family->kinds[i].rope == KIND_ROPE_LOCAL;
    return local;
}

void config_rope_read(struct json_read *r, struct config *c)
{
    const struct family *f = c->family;
    double theta = json_read_f64_or(r, "rope_theta", 1, 1e12, f->rope_theta > 0 ? f->rope_theta : 10000);
    read_rope(r, c, false, theta);
    if (!has_local(c) || r->error)
        return;
    theta = f->rope_theta_local > 0 ? f->rope_theta_local : c->ropes[0].theta;
    read_rope(r, c, true, json_read_f64_or(r, "rope_local_base_freq", 1, 1e12, theta));
}
