/* config_key.c - walks a list of keys. */
#include "model/config/config_key.h"

#include "model/config/json_read.h"

#include "base/check.h"
#include "base/json/json_dumped.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of the key that the file has: with a value, else null, else among the defaults. Nowhere: the
 * newest one. */
static const char *present_name(const struct json_read *r, const struct config_key *k)
{
    const char *null = NULL, *absent = NULL;
    for (size_t i = 0; i < COUNT_OF(k->names) && k->names[i]; i++) {
        bool given = json_read_has(r, k->names[i]), value = json_read_get(r, k->names[i]);
        if (given && value)
            return k->names[i];
        if (given && !null)
            null = k->names[i];
        if (value && !absent)
            absent = k->names[i];
    }
    return null ? null : absent ? absent : k->names[0];
}

static void read_word(struct json_read *r, const struct config_key *k, const char *name, uint32_t *ret)
{
    char known[160];
    size_t at = 0;
    const json_t *value = json_read_get(r, name);
    const char *word = !json_is_boolean(value) ? json_read_string_or(r, name, NULL)
                       : json_is_true(value)   ? "true"
                                               : "false";
    if (!word)
        return;
    known[0] = 0;
    for (const struct key_word *w = k->words; w->name; w++) {
        if (strcmp(w->name, word) == 0) {
            *ret = w->value;
            return;
        }
        if (at < sizeof(known))
            at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", at ? ", " : "", w->name);
    }
    json_read_fail(r, -ENOTSUP, "%s '%.40s' is not supported; supported: %s", name, word, known);
}

/* Writers of strict JSON have an object for infinity. */
static bool number_of(const json_t *v, double *ret)
{
    const char *word = json_string_value(json_object_get(v, "__float__"));
    if (word && strcmp(word, "Infinity") == 0)
        *ret = INFINITY;
    else if (json_is_number(v))
        *ret = json_number_value(v);
    else
        return false;
    return true;
}

static void read_floats(struct json_read *r, const struct config_key *k, const char *name, float *ret)
{
    const json_t *list = json_read_get(r, name);
    for (uint32_t i = 0; i < k->count; i++)
        ret[i] = (float)k->absent;
    if (!list)
        return;
    if (!json_is_array(list) || json_array_size(list) != k->count) {
        json_read_fail(r, -EINVAL, "%s must be a list of %u numbers", name, k->count);
        return;
    }
    for (uint32_t i = 0; i < k->count; i++) {
        double value;
        if (!number_of(json_array_get(list, i), &value) || !(value >= k->min))
            json_read_fail(r, -EINVAL, "%s[%u] must be a number of at least %g", name, i, k->min);
        else
            ret[i] = (float)fmin(value, k->max);
    }
}

/* A list of one number each, all the same, counts as that number. */
static uint32_t read_same(struct json_read *r, const struct config_key *k, const char *name)
{
    const json_t *list = json_read_get(r, name);
    const double first = json_number_value(json_array_get(list, 0));
    size_t i;
    json_t *v;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return json_read_u32_or(r, name, (uint32_t)k->min, (uint32_t)k->max, (uint32_t)k->absent);
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v) || json_number_value(v) < k->min || json_number_value(v) > k->max)
            json_read_fail(r, -EINVAL, "%s[%zu] must be an integer in %g..%g", name, i, k->min, k->max);
        else if (json_number_value(v) != first)
            json_read_fail(r, -ENOTSUP,
                           "%s[%zu] is %g, and %s[0] is %g: layers that differ are not supported", name, i,
                           json_number_value(v), name, first);
    }
    return r->error ? (uint32_t)k->min : (uint32_t)first;
}

static bool is_only(const json_t *v, double only)
{
    if (json_is_boolean(v))
        return json_is_true(v) == (only != 0);
    return json_is_number(v) && json_number_value(v) == only;
}

/* A list has a value for each layer. */
static bool are_only(const json_t *v, double only)
{
    size_t n = json_array_size(v), i = 0;
    while (i < n && is_only(json_array_get(v, i), only))
        i++;
    return n > 0 ? i == n : is_only(v, only);
}

static void check_only(struct json_read *r, const struct config_key *k, const char *name)
{
    const json_t *v = json_read_get(r, name);
    if (!v || are_only(v, k->absent))
        return;
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    json_read_fail(r, -ENOTSUP, "%s is %.40s, which is not supported", name, text ? text : "?");
    json_dumped_free(text);
}

static void know(struct json_read *r, const struct config_key *k)
{
    for (size_t i = 0; i < COUNT_OF(k->names) && k->names[i]; i++)
        json_read_know(r, k->names[i]);
}

static void read_key(struct json_read *r, const struct config_key *k, struct config *c)
{
    const char *name = present_name(r, k);
    void *field = (char *)c + k->at;
    know(r, k);
    if (k->needed && !json_read_get(r, name)) {
        json_read_fail(r, -EINVAL, "%s is missing", name);
        return;
    }
    switch (k->kind) {
    case KEY_U32:
        if (k->same)
            *(uint32_t *)field = read_same(r, k, name);
        else if (k->words && json_is_string(json_read_get(r, name)))
            read_word(r, k, name, field);
        else
            *(uint32_t *)field =
                json_read_u32_or(r, name, (uint32_t)k->min, (uint32_t)k->max, (uint32_t)k->absent);
        break;
    case KEY_FLOATS:
        read_floats(r, k, name, field);
        break;
    case KEY_FLOAT:
        *(float *)field = (float)json_read_f64_or(r, name, k->min, k->max, k->absent);
        break;
    case KEY_FLAG:
        *(bool *)field = json_read_bool_or(r, name, k->absent != 0);
        break;
    case KEY_WORD:
        *(uint32_t *)field = (uint32_t)k->absent;
        read_word(r, k, name, field);
        break;
    case KEY_ONLY:
        check_only(r, k, name);
        break;
    case KEY_IGNORED:
    case KEY_END:
        break;
    }
}

static bool same_key(const struct config_key *x, const struct config_key *y)
{
    if (x->kind < KEY_ONLY && y->kind < KEY_ONLY)
        return x->at == y->at;
    for (size_t i = 0; i < COUNT_OF(x->names) && x->names[i]; i++) {
        for (size_t j = 0; j < COUNT_OF(y->names) && y->names[j]; j++) {
            if (strcmp(x->names[i], y->names[j]) == 0)
                return true;
        }
    }
    return false;
}

static bool is_replaced(const struct config_key *k, const struct config_key *instead)
{
    for (; instead && instead->kind != KEY_END; instead++) {
        if (same_key(k, instead))
            return true;
    }
    return false;
}

void config_keys_read(struct json_read *r, const struct config_key *list, const struct config_key *instead,
                      struct config *c)
{
    for (const struct config_key *k = list; k && k->kind != KEY_END && !r->error; k++) {
        if (!is_replaced(k, instead))
            read_key(r, k, c);
    }
}

void config_keys_know(struct json_read *r, const struct config_key *list)
{
    for (const struct config_key *k = list; k && k->kind != KEY_END; k++)
        know(r, k);
}
