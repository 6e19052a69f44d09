/* json_read.c - lookups in two objects and the defaults; the first failure sticks. */
#include "model/config/json_read.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void json_read_fail(struct json_read *r, int code, const char *format, ...)
{
    char text[400];
    if (r->error)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    r->error = err_set(r->e, code, "%s: %s", r->where, text);
}

void json_read_know(const struct json_read *r, const char *key)
{
    if (r->asked)
        json_object_set_new(r->asked, key, json_true());
}

/* A member, or by "object.member" one of an object in it. */
static const json_t *member(const json_t *object, const char *key)
{
    const char *dot = strchr(key, '.');
    if (!dot)
        return json_object_get(object, key);
    return json_object_get(json_object_getn(object, key, (size_t)(dot - key)), dot + 1);
}

bool json_read_has(const struct json_read *r, const char *key)
{
    json_read_know(r, key);
    return member(r->object, key) || member(r->fallback, key);
}

const json_t *json_read_get(const struct json_read *r, const char *key)
{
    const json_t *v = member(r->object, key);
    json_read_know(r, key);
    if (!v || json_is_null(v))
        v = member(r->fallback, key);
    if (!v && !json_read_has(r, key))
        v = json_object_get(r->defaults, key);
    return v && !json_is_null(v) ? v : NULL;
}

static bool as_f64(const json_t *v, double *ret)
{
    if (!json_is_number(v))
        return false;
    *ret = json_number_value(v);
    return isfinite(*ret);
}

/* Bounds that follow from other keys may leave nothing. */
static void fail_empty(struct json_read *r, const char *key)
{
    json_read_fail(r, -EINVAL, "%s can have no value beside the numbers of other keys", key);
}

uint32_t json_read_u32_or(struct json_read *r, const char *key, uint32_t min, uint32_t max, uint32_t absent)
{
    const json_t *v = json_read_get(r, key);
    double d;
    if (!v)
        return absent;
    if (!as_f64(v, &d) || d != floor(d)) {
        json_read_fail(r, -EINVAL, "%s must be an integer", key);
        return min;
    }
    if (min > max) {
        fail_empty(r, key);
        return min;
    }
    if (d < min || d > max) {
        json_read_fail(r, -EINVAL, "%s is %.0f, but must be in %u..%u", key, d, min, max);
        return min;
    }
    return (uint32_t)d;
}

uint32_t json_read_u32(struct json_read *r, const char *key, uint32_t min, uint32_t max)
{
    if (!json_read_get(r, key)) {
        json_read_fail(r, -EINVAL, "%s is missing", key);
        return min;
    }
    return json_read_u32_or(r, key, min, max, min);
}

double json_read_f64_or(struct json_read *r, const char *key, double min, double max, double absent)
{
    const json_t *v = json_read_get(r, key);
    double d;
    if (!v)
        return absent;
    if (min > max) {
        fail_empty(r, key);
        return min;
    }
    if (!as_f64(v, &d) || d < min || d > max) {
        json_read_fail(r, -EINVAL, "%s must be a number in %g..%g", key, min, max);
        return min;
    }
    return d;
}

bool json_read_bool_or(struct json_read *r, const char *key, bool absent)
{
    const json_t *v = json_read_get(r, key);
    if (!v)
        return absent;
    if (!json_is_boolean(v))
        json_read_fail(r, -EINVAL, "%s must be true or false", key);
    return json_is_true(v);
}

const char *json_read_string_or(struct json_read *r, const char *key, const char *absent)
{
    const json_t *v = json_read_get(r, key);
    if (!v)
        return absent;
    if (!json_is_string(v)) {
        json_read_fail(r, -EINVAL, "%s must be a string", key);
        return "";
    }
    return json_string_value(v);
}

void json_read_ids(struct json_read *r, const char *key, uint32_t max, uint32_t *ret, uint32_t count_max,
                   uint32_t *count)
{
    const json_t *v = json_read_get(r, key);
    if (!v)
        return;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > count_max) {
        json_read_fail(r, -EINVAL, "%s has %zu entries, more than the limit of %u", key, n, count_max);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(v) ? json_array_get(v, i) : v;
        double d;
        if (!as_f64(item, &d) || d != floor(d) || d < 0 || d > max) {
            json_read_fail(r, -EINVAL, "%s must hold integers in 0..%u", key, max);
            return;
        }
        ret[i] = (uint32_t)d;
    }
    *count = (uint32_t)n;
}

const json_t *json_read_text_part(struct json_read *r, const json_t *config)
{
    static const char *const keys[] = {"text_config", "llm_config"};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        const json_t *part = json_object_get(config, keys[i]);
        if (json_is_object(part))
            return part;
        if (part && !json_is_null(part))
            json_read_fail(r, -EINVAL, "%s must be an object", keys[i]);
    }
    return NULL;
}

void json_read_expect(struct json_read *r, const char *key, uint32_t wanted)
{
    uint32_t got = json_read_u32_or(r, key, 0, UINT32_MAX, wanted);
    if (got != wanted)
        json_read_fail(r, -ENOTSUP, "%s is %u; supported is %u", key, got, wanted);
}

const char *json_read_either(const struct json_read *r, const char *a, const char *b)
{
    return json_read_has(r, a) || !json_read_has(r, b) ? a : b;
}

uint32_t json_read_square(struct json_read *r, const char *key, uint32_t max)
{
    const json_t *list = json_read_get(r, key), *first = json_array_get(list, 0);
    if (!json_is_array(list))
        return json_read_u32(r, key, 1, max);
    const json_int_t n = json_integer_value(first);
    if (json_array_size(list) == 2 && n >= 1 && n <= max && json_equal(first, json_array_get(list, 1)))
        return (uint32_t)n;
    json_read_fail(r, -ENOTSUP, "%s is not two equal numbers in 1..%u", key, max);
    return 1;
}
