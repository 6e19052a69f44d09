/* field.c - readers of plain values, and the walk over a body's fields. */
#include "api/request/field.h"

#include "api/request/request.h"

#include "engine/stream.h"
#include "gen/reject.h"

#include "base/check.h"
#include "base/hash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void *member_of(struct request *r, const struct field *f)
{
    return (char *)r + f->at;
}

/* ---- plain values ---- */

bool field_bool(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name, "%s must be true or false.", f->name);
    *(bool *)member_of(r, f) = json_is_true(v);
    return true;
}

bool field_tristate(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_boolean(v))
        return reject_value(why, f->name, "%s must be true or false.", f->name);
    *(int *)member_of(r, f) = json_is_true(v);
    return true;
}

bool field_real(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_number(v))
        return reject_value(why, f->name, "%s must be a number from %g to %g.", f->name, f->min, f->max);
    double x = json_number_value(v);
    if (!(x >= f->min && x <= f->max))
        return reject_value(why, f->name, "%s is %g; it must be from %g to %g.", f->name, x, f->min, f->max);
    *(double *)member_of(r, f) = x;
    return true;
}

bool field_integer_of(const json_t *v, int64_t *ret)
{
    if (json_is_integer(v)) {
        *ret = json_integer_value(v);
        return true;
    }
    double x = json_is_real(v) ? json_real_value(v) : NAN;
    if (!(fabs(x) <= 9007199254740992.0) || x != floor(x))
        return false;
    *ret = (int64_t)x;
    return true;
}

bool field_integer(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    int64_t x;
    if (!field_integer_of(v, &x))
        return reject_value(why, f->name, "%s must be an integer from %.0f to %.0f.", f->name, f->min,
                            f->max);
    if ((double)x < f->min || (double)x > f->max)
        return reject_value(why, f->name, "%s is %lld; it must be from %.0f to %.0f.", f->name, (long long)x,
                            f->min, f->max);
    *(int64_t *)member_of(r, f) = x;
    return true;
}

bool field_string(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!json_is_string(v))
        return reject_value(why, f->name, "%s must be a string.", f->name);
    if (strlen(json_string_value(v)) != json_string_length(v))
        return reject_value(why, f->name, "%s must not hold a zero byte.", f->name);
    *(const char **)member_of(r, f) = json_string_value(v);
    return true;
}

bool field_cache_key(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!field_accept_string(r, f, v, why))
        return false;
    size_t length = json_string_length(v);
    r->gen.agent = length > 0 ? hash_bytes(json_string_value(v), length) | 1 : 0;
    return true;
}

bool field_accept_string(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return json_is_string(v) ? true : reject_value(why, f->name, "%s must be a string.", f->name);
}

bool field_accept_object(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r;
    return json_is_object(v) ? true : reject_value(why, f->name, "%s must be an object.", f->name);
}

#define TTL_MAX_S 86400

uint32_t field_ttl_s(const json_t *v)
{
    const char *text = json_string_value(v), *at = text;
    uint64_t seconds = 0;
    if (!text)
        return 0;
    for (; *at >= '0' && *at <= '9' && seconds <= TTL_MAX_S; at++)
        seconds = 10 * seconds + (uint64_t)(*at - '0');
    uint64_t unit = *at == 's' ? 1 : *at == 'm' ? 60 : *at == 'h' ? 3600 : 0;
    bool whole = at > text && unit > 0 && at[1] == 0;
    return whole ? (uint32_t)MIN_OF(seconds * unit, (uint64_t)TTL_MAX_S) : 0;
}

bool field_session_id(struct slice text, uint8_t ret[16])
{
    const struct slice prefix = SLICE("sess_");
    struct request_id id;
    if (!slice_starts(text, prefix) || !request_id_parse(text.ptr + prefix.len, text.len - prefix.len, &id))
        return false;
    memcpy(ret, &id, sizeof(id));
    return true;
}

static void keep(struct request *r, const char *name, const json_t *ttl)
{
    uint32_t seconds = field_ttl_s(ttl);
    if (seconds == 0)
        field_note_ignored(r, name);
    r->gen.keep_s = MAX_OF(r->gen.keep_s, seconds);
}

bool field_cache_retention(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!field_accept_string(r, f, v, why))
        return false;
    if (strcmp(json_string_value(v), "in_memory") != 0 && strcmp(json_string_value(v), "in-memory") != 0)
        keep(r, f->name, v);
    return true;
}

bool field_cache_options(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    if (!field_accept_object(r, f, v, why))
        return false;
    if (json_object_get(v, "ttl"))
        keep(r, "prompt_cache_options.ttl", json_object_get(v, "ttl"));
    if (json_is_true(json_object_get(v, "prewarm")))
        field_note_ignored(r, "prompt_cache_options.prewarm");
    return true;
}

bool field_is_flag(const json_t *v)
{
    return !v || json_is_boolean(v) || json_is_null(v);
}

const char *field_string_in(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));
    return s ? s : "";
}

json_t *field_text_part(json_t *text)
{
    return json_pack("{sssO}", "type", "text", "text", text);
}

/* ---- refused ---- */

bool field_refuse(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)r, (void)v;
    return reject_unsupported(why, f->name, "%s: %s", f->name, f->say);
}

static bool is_off(const struct field *f, const json_t *v)
{
    return json_is_false(v) || (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_number(v) && json_number_value(v) == f->min) ||
           (json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0);
}

bool field_refuse_unless_off(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return is_off(f, v) || field_refuse(r, f, v, why);
}

bool field_ignore_unless_off(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    (void)why;
    if (!is_off(f, v))
        field_note_ignored(r, f->name);
    return true;
}

bool field_refuse_unless_true(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    return json_is_true(v) || field_refuse(r, f, v, why);
}

/* ---- words that advise ---- */

bool field_take_hint(struct request *r, const char *param, const json_t *v, const char *const *known,
                     const char **ret, struct reject *why)
{
    const char *word = json_string_value(v);
    *ret = NULL;
    if (!v || json_is_null(v))
        return true;
    if (!word)
        return reject_value(why, param, "%s must be a string.", param);
    for (; *known && !*ret; known++)
        if (strcmp(word, *known) == 0)
            *ret = word;
    if (!*ret)
        field_note_ignored(r, param);
    return true;
}

bool field_take_verbosity(struct request *r, const char *param, const json_t *v, const char **ret,
                          struct reject *why)
{
    static const char *const known[] = {"low", "medium", "high", NULL};
    if (!field_take_hint(r, param, v, known, ret, why))
        return false;
    if (*ret && strcmp(*ret, "medium") != 0)
        field_note_ignored(r, param);
    return true;
}

bool field_take_effort(struct request *r, const char *param, const json_t *v, struct reject *why)
{
    static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh", "max", NULL};
    return field_take_hint(r, param, v, known, &r->gen.reasoning_effort, why);
}

bool field_service_tier(struct request *r, const struct field *f, json_t *v, struct reject *why)
{
    static const char *const known[] = {"auto", "default", "standard_only", NULL};
    const char *word;
    return field_take_hint(r, f->name, v, known, &word, why);
}

/* ---- tables ---- */

const struct field *field_find(const struct field_group *const *groups, const char *name)
{
    for (; *groups; groups++)
        for (size_t i = 0; i < (*groups)->count; i++)
            if (strcmp((*groups)->fields[i].name, name) == 0)
                return &(*groups)->fields[i];
    return NULL;
}

static bool is_listed(const char *list, const char *name, size_t len)
{
    for (const char *at = list; (at = strstr(at, name)); at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == 0 || at[len] == ','))
            return true;
    return false;
}

/* Names go into a header: only characters of identifiers are copied. */
void field_note_ignored(struct request *r, const char *name)
{
    size_t at = strlen(r->ignored), len = strlen(name);
    if (at + len + 3 > sizeof(r->ignored) || len == 0 || is_listed(r->ignored, name, len))
        return;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)name[i] <= ' ' || (unsigned char)name[i] > '~' || name[i] == ',')
            return;
    snprintf(r->ignored + at, sizeof(r->ignored) - at, "%s%s", at ? ", " : "", name);
}

bool fields_read(const struct request_form *form, const struct request_limits *limits, struct request *r,
                 struct reject *why)
{
    const char *name;
    json_t *value;
    json_object_foreach(r->root, name, value) {
        const struct field *f = field_find(form->groups, name);
        if (json_is_null(value))
            continue;
        if (!f && limits->elsewhere && limits->elsewhere(form, name))
            return reject_unsupported(why, name, "%.40s is not a field of this route.", name);
        if (!f)
            field_note_ignored(r, name);
        else if (!f->read(r, f, value, why))
            return false;
    }
    return true;
}
