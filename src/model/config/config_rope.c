/* config_rope.c - the rotary position embedding in config.json, in all generations.
 *
 * Older configurations keep rope_theta at the top and a rope_scaling object; newer ones have rope_parameters.
 * rope_theta in the object goes before the one at the top. A rope_scaling that is added to newer files
 * replaces rope_parameters, except for its rope_theta and for parameters by kind of layer. */
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/config/config_unknown.h"
#include "model/config/json_read.h"
#include "model/family/family.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool rope_type_parse(const char *name, const struct family *f, enum rope_type *ret)
{
    static const char *const names[] = {[ROPE_DEFAULT] = "default",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_DYNAMIC] = "dynamic",
                                        [ROPE_LLAMA3] = "llama3",
                                        [ROPE_YARN] = "yarn",
                                        [ROPE_LONG] = "longrope",
                                        [ROPE_PROPORTIONAL] = "proportional",
                                        [ROPE_FACTORS] = "factors"};
    const struct key_word *w = f->rope_types;
    for (; w && w->name && strcmp(w->name, name) != 0; w++)
        ;
    if (w && w->name) {
        *ret = (enum rope_type)w->value;
        return true;
    }
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

/* A positive number for each pair of values that rotates. */
static void read_factors(struct json_read *p, const char *key, float ret[ROPE_HALF_MAX], uint32_t *count)
{
    const json_t *list = json_read_get(p, key);
    size_t n = json_array_size(list);
    if (n == 0 || n > ROPE_HALF_MAX) {
        json_read_fail(p, -EINVAL, "%s must be a list of 1 to %d numbers", key, ROPE_HALF_MAX);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double v = json_number_value(json_array_get(list, i));
        if (!(v >= 1e-6 && v <= 1e9)) {
            json_read_fail(p, -EINVAL, "%s[%zu] must be a number in 1e-06..1e+09", key, i);
            return;
        }
        ret[i] = (float)v;
    }
    *count = (uint32_t)n;
}

/* The class of one family reads them. */
static void read_mscales(struct json_read *p, const struct config *c, struct rope_config *rope)
{
    static const char *const keys[] = {"short_mscale", "long_mscale"};
    double *const to[] = {&rope->mscale_short, &rope->mscale_long};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        if (c->family->rope_mscales)
            *to[i] = required_positive(p, keys[i]);
        else if (json_read_get(p, keys[i]))
            json_read_fail(p, -ENOTSUP, "longrope with %s is not supported", keys[i]);
    }
}

static void read_longrope(struct json_read *p, const struct config *c, struct rope_config *rope)
{
    if (rope->original_max < 2)
        json_read_fail(p, -EINVAL, "original_max_position_embeddings %g must be at least 2",
                       rope->original_max);
    read_factors(p, "short_factor", rope->factors_short, &rope->factors);
    uint32_t count = rope->factors;
    read_factors(p, "long_factor", rope->factors_long, &count);
    if (count != rope->factors)
        json_read_fail(p, -EINVAL, "long_factor has %u numbers, short_factor has %u", count, rope->factors);
    rope->factor = json_read_f64_or(p, "factor", 1e-6, 1e9, c->context_max / rope->original_max);
    rope->attention_factor = json_read_f64_or(p, "attention_factor", 1e-6, 1e6, 0);
    read_mscales(p, c, rope);
}

static void read_rope_scaling(struct json_read *p, const struct config *c, struct rope_config *rope)
{
    if (rope->type != ROPE_DEFAULT)
        rope->mscale_all = json_read_f64_or(p, "mscale_all_dim", 0, 1e6, 0);
    switch (rope->type) {
    case ROPE_DEFAULT:
        break;
    case ROPE_LINEAR:
        rope->factor = required_positive(p, "factor");
        break;
    case ROPE_DYNAMIC:
        /* Without alpha it changes positions beyond max_position_embeddings alone, which are not served. */
        rope->alpha = json_read_f64_or(p, "alpha", 0, 1e9, 0);
        rope->factor = json_read_f64_or(p, "factor", 1e-6, 1e9, 1);
        break;
    case ROPE_LONG:
        read_longrope(p, c, rope);
        break;
    case ROPE_FACTORS:
        read_factors(p, "factors", rope->factors_short, &rope->factors);
        break;
    case ROPE_PROPORTIONAL:
        rope->factor = json_read_f64_or(p, "factor", 1e-6, 1e9, 1);
        break;
    case ROPE_LLAMA3:
        rope->factor = required_positive(p, "factor");
        rope->low_freq = required_positive(p, "low_freq_factor");
        rope->high_freq = required_positive(p, "high_freq_factor");
        if (rope->high_freq <= rope->low_freq)
            json_read_fail(p, -EINVAL, "high_freq_factor %g must be above low_freq_factor %g",
                           rope->high_freq, rope->low_freq);
        break;
    case ROPE_YARN:
        rope->factor = required_positive(p, "factor");
        rope->beta_fast = json_read_f64_or(p, "beta_fast", 1e-6, 1e6, 32);
        rope->beta_slow = json_read_f64_or(p, "beta_slow", 1e-6, 1e6, 1);
        rope->untruncated = !json_read_bool_or(p, "truncate", true);
        rope->attention_factor = json_read_f64_or(p, "attention_factor", 1e-6, 1e6, 0);
        rope->mscale = json_read_f64_or(p, "mscale", 0, 1e6, 0);
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
    const json_t *scaling = json_read_get(r, "rope_scaling"), *found = json_read_get(r, "rope_parameters");
    bool given = json_read_has(r, "rope_parameters"), kinds = json_object_get(found, "full_attention");
    bool older = json_read_has(r, "rope_scaling") && !(given && (kinds || !json_object_size(scaling)));
    *name = older ? "rope_scaling" : "rope_parameters";
    found = older ? scaling : found;
    if (found && !json_is_object(found)) {
        json_read_fail(r, -EINVAL, "%s must be an object", *name);
        return NULL;
    }
    const json_t *kind = json_object_get(found, local ? "sliding_attention" : "full_attention");
    if (json_is_object(kind))
        return kind;
    return local ? NULL : found;
}

/* Positions that the model was trained on. Beside the object it wins, as in transformers. */
static void read_original(struct json_read *r, struct json_read *p, const struct config *c,
                          struct rope_config *rope)
{
    static const char key[] = "original_max_position_embeddings";
    rope->original_max = json_read_f64_or(p, key, 1, 1e9, c->context_max);
    rope->original_max = json_read_f64_or(r, key, 1, 1e9, rope->original_max);
}

/* The file gives the part of a head's whole key that rotates: all of the rotating values. */
static void take_part_of_head(struct json_read *p, const struct config *c, struct rope_config *rope)
{
    const uint32_t whole = c->nope_dim + c->head_dim;
    if (rope->part != 1 && lround(whole * rope->part) != (long)c->head_dim)
        json_read_fail(p, -ENOTSUP, "partial_rotary_factor %g of %u values is not qk_rope_head_dim %u",
                       rope->part, whole, c->head_dim);
    rope->part = 1;
}

/* The number that a list has for the layers of a table, within min..max. */
static double listed(struct json_read *r, const struct config *c, const char *key, bool local, double min,
                     double max, double absent)
{
    const json_t *list = json_read_get(r, key);
    double found = absent;
    bool any = false;
    if (json_array_size(list) < c->layers) {
        json_read_fail(r, -EINVAL, "%s must be a list of num_hidden_layers = %u numbers", key, c->layers);
        return absent;
    }
    for (uint32_t i = 0; i < c->layers && !r->error; i++) {
        const double v = json_number_value(json_array_get(list, i));
        if (c->layer[i].rope != local)
            continue;
        if (any && v != found)
            json_read_fail(r, -ENOTSUP, "%s[%u] is %g, and that of a layer of its kind %g", key, i, v, found);
        found = v;
        any = true;
    }
    if (!(found >= min && found <= max))
        json_read_fail(r, -EINVAL, "%s must be in %g..%g", key, min, max);
    return r->error ? absent : found;
}

static double theta_of(struct json_read *r, const struct config *c, bool local, double absent)
{
    if (!c->family->rope_listed || !json_is_array(json_read_get(r, "rope_theta")))
        return json_read_f64_or(r, "rope_theta", 1, 1e12, absent);
    return listed(r, c, "rope_theta", local, 1, 1e12, absent);
}

/* rope_theta and partial_rotary_factor: inside the object, else beside it. */
static void read_table(struct json_read *r, struct json_read *p, const struct config *c, double theta,
                       struct rope_config *rope)
{
    rope->theta = json_read_f64_or(p, "rope_theta", 1, 1e12, theta);
    double part = c->family->rotary_part > 0 ? c->family->rotary_part : 1;
    if (c->rotary_dim > c->head_dim)
        json_read_fail(r, -EINVAL, "rotary_dim %u is more than head_dim %u", c->rotary_dim, c->head_dim);
    if (c->rotary_dim > 0)
        part = (double)c->rotary_dim / c->head_dim;
    bool proportional = c->family->rope_proportional && rope == c->ropes && !p->object;
    if (proportional)
        part = 0.25;
    if (c->family->rope_listed && json_read_get(r, "partial_rotary_factors"))
        part = listed(r, c, "partial_rotary_factors", rope != c->ropes, 0, 1, part);
    part = json_read_f64_or(r, "partial_rotary_factor", 0, 1, part);
    rope->part = json_read_f64_or(p, "partial_rotary_factor", 0, 1, part);
    if (c->family->rope_part_of_head)
        take_part_of_head(p, c, rope);
    const char *type = json_read_string_or(p, "type", proportional ? "proportional" : "default");
    type = json_read_string_or(p, "rope_type", type);
    read_original(r, p, c, rope);
    if (!rope_type_parse(type, c->family, &rope->type))
        json_read_fail(p, -ENOTSUP,
                       "rope_type '%.40s' is not supported; default, linear, dynamic, llama3, yarn, "
                       "longrope and proportional are",
                       type);
    else
        read_rope_scaling(p, c, rope);
    /* The family's class in transformers would turn the whole head, other servers a part of it. GGUF files
     * mean the part. */
    if (rope->type == ROPE_DEFAULT && rope->part != 1 && c->family->rotary_part == 0 && !c->naming)
        json_read_fail(r, -ENOTSUP,
                       "partial_rotary_factor %g with rope_type 'default' is not supported for models of "
                       "type %s",
                       rope->part, c->family_name);
    if (c->family->query_growth)
        rope->growth = json_read_f64_or(p, "llama_4_scaling_beta", 0, 1e6, 0);
    read_sections(p, rope);
}

/* The heads' size in the layers that rotate by table `index`. */
static uint32_t head_dim_of(struct json_read *p, const struct config *c, uint32_t index)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct layer_config *l = &c->layer[i];
        uint32_t size = l->rope_dim > 0 ? l->rope_dim : l->head_dim;
        if (l->rope != index)
            continue;
        if (found > 0 && size != found)
            json_read_fail(p, -ENOTSUP, "layers with heads of %u and of %u rotate by one table", found, size);
        found = size;
    }
    return found > 0 ? found : c->head_dim;
}

/* The dimensions that rotate: a part of the heads of its layers. A proportional table has all of them; the
 * frequencies beyond the part are 0. */
static void read_rotating(struct json_read *p, const struct config *c, struct rope_config *rope)
{
    uint32_t head_dim = head_dim_of(p, c, (uint32_t)(rope - c->ropes));
    rope->rot = rope->type == ROPE_PROPORTIONAL ? head_dim : (uint32_t)(head_dim * rope->part);
    if ((rope->type == ROPE_LONG || rope->type == ROPE_FACTORS) && rope->factors != rope->rot / 2)
        json_read_fail(p, -EINVAL, "the list of factors has %u numbers, but %u dimensions rotate",
                       rope->factors, rope->rot);
    if (rope->type == ROPE_DYNAMIC && rope->alpha > 0 && rope->rot < 4)
        json_read_fail(p, -ENOTSUP, "alpha with %u rotating dimensions is not supported", rope->rot);
    if (rope->rot < 2 || rope->rot % 2 != 0)
        json_read_fail(p, -ENOTSUP, "partial_rotary_factor %g of head_dim %u leaves %u rotating dimensions",
                       rope->part, head_dim, rope->rot);
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
    p.asked = json_object();
    read_table(r, &p, c, theta, rope);
    read_rotating(&p, c, rope);
    snprintf(where, sizeof(where), "%s.", name);
    config_unknown_add(object, p.asked, CONFIG_OF_ROPE, where, c->unknown_keys, sizeof(c->unknown_keys));
    json_decref(p.asked);
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

/* A GGUF file may have another base for layers with a window, whatever its architecture. */
static void check_local(struct json_read *r, const struct config *c)
{
    const double local = json_read_f64_or(r, "rope_local_base_freq", 1, 1e12, c->ropes[0].theta);
    if (c->naming && (float)local != (float)c->ropes[0].theta)
        json_read_fail(r, -ENOTSUP, "rope.freq_base_swa %g beside rope.freq_base %g is not supported for %s",
                       local, c->ropes[0].theta, c->family_name);
}

/* Returns the table of theta: the first table with another base. */
static uint32_t table_of(struct json_read *r, struct config *c, double theta)
{
    for (uint32_t i = 0; i < c->rope_count; i++)
        if (c->ropes[i].theta == theta)
            return i;
    if (c->rope_count == ROPES_MAX) {
        json_read_fail(r, -ENOTSUP, "layer_rope_theta has more than %d numbers that differ", ROPES_MAX);
        return 0;
    }
    c->ropes[c->rope_count] = c->ropes[0];
    c->ropes[c->rope_count].theta = theta;
    return c->rope_count++;
}

static void read_thetas(struct json_read *r, struct config *c)
{
    const json_t *list = json_read_get(r, "layer_rope_theta");
    bool rotates = false;
    if (!list)
        return;
    if (json_array_size(list) != c->layers) {
        json_read_fail(r, -EINVAL, "layer_rope_theta must be a list of num_hidden_layers = %u numbers",
                       c->layers);
        return;
    }
    for (uint32_t i = 0; i < c->layers && !r->error; i++) {
        const json_t *v = json_array_get(list, i);
        const double theta = json_is_number(v) ? json_number_value(v) : -1;
        if (theta != 0 && !(theta >= 1 && theta <= 1e12)) {
            json_read_fail(r, -EINVAL, "layer_rope_theta[%u] must be 0 or a number in 1..1e+12", i);
            return;
        }
        if (theta != 0 && !rotates)
            c->ropes[0].theta = theta;
        rotates |= theta != 0;
        c->layer[i].rope = theta == 0 ? ROPE_ABSENT : table_of(r, c, theta);
    }
}

/* Layers with a window never have scaled frequencies. */
static void check_scaled_kinds(struct json_read *r)
{
    const json_t *kinds = json_read_get(r, "yarn_only_types");
    const char *first = json_string_value(json_array_get(kinds, 0));
    if (kinds && !(json_array_size(kinds) == 1 && first && strcmp(first, "full_attention") == 0))
        json_read_fail(r, -ENOTSUP, "yarn_only_types is not supported; [\"full_attention\"] is");
}

void config_rope_read(struct json_read *r, struct config *c)
{
    const struct family *f = c->family;
    if (f->encoder)
        return;
    if (f->rope_listed)
        check_scaled_kinds(r);
    struct json_read newer = {.object = json_read_get(r, "rope_parameters"), .where = r->where, .e = r->e};
    double theta = f->rope_theta > 0 ? f->rope_theta : 10000;
    theta = theta_of(r, c, false, json_read_f64_or(&newer, "rope_theta", 1, 1e12, theta));
    if (newer.error && !r->error)
        r->error = newer.error;
    read_rope(r, c, false, theta);
    if (r->error)
        return;
    if (f->thetas_listed) {
        read_thetas(r, c);
        return;
    }
    if (!has_local(c)) {
        check_local(r, c);
        return;
    }
    theta = f->rope_theta_local > 0 ? f->rope_theta_local : c->ropes[0].theta;
    if (f->rope_listed)
        theta = theta_of(r, c, true, theta);
    read_rope(r, c, true, json_read_f64_or(r, "rope_local_base_freq", 1, 1e12, theta));
}
