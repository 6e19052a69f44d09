#include "constraint/structural_work.h"

#include <errno.h>
#include <string.h>

bool structural_is_text(struct structural_work *w, const json_t *value, const char *name, struct slice *ret)
{
    size_t len = json_string_length(value);
    if (!json_is_string(value))
        return structural_fail(w, -EINVAL, "%s must be a string", name), false;
    if (len > STRUCTURAL_TEXT_BYTES_MAX)
        return structural_fail(w, -E2BIG, "%s has %zu bytes; %d are allowed", name, len,
                               STRUCTURAL_TEXT_BYTES_MAX),
               false;
    *ret = (struct slice){json_string_value(value), len};
    return true;
}

bool structural_text_of(struct structural_work *w, const json_t *format, const char *name, struct slice *ret)
{
    return structural_is_text(w, json_object_get(format, name), name, ret);
}

static bool token_text(struct structural_work *w, const json_t *format, struct slice *ret)
{
    const json_t *token = json_object_get(format, "token");
    uint32_t id;
    if (json_is_integer(token))
        return structural_fail(w, -ENOTSUP, "tokens by number are not supported; write the token's text"),
               false;
    if (!structural_only(w, format, "token") || !structural_is_text(w, token, "token", ret))
        return false;
    if (!w->tokens || ret->len == 0 || w->tokens->find(w->tokens->arg, *ret, &id) != ret->len)
        return structural_fail(w, -ENOTSUP, "\"%.64s\" is not an added token of the model",
                               json_string_value(token)),
               false;
    return true;
}

bool structural_tag_text(struct structural_work *w, const json_t *value, const char *name, struct slice *ret)
{
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type && strcmp(type, "token") == 0)
        return token_text(w, value, ret);
    return structural_is_text(w, value, name, ret);
}

struct expr structural_token(struct structural_work *w, const json_t *format)
{
    struct slice text;
    return token_text(w, format, &text) ? structural_literal(w, text) : structural_none();
}

const json_t *structural_list_of(struct structural_work *w, const json_t *format, const char *name)
{
    const json_t *list = json_object_get(format, name);
    if (!json_is_array(list))
        return structural_fail(w, -EINVAL, "%s must be a list", name), NULL;
    return list;
}

bool structural_flag_of(struct structural_work *w, const json_t *format, const char *name, bool other)
{
    const json_t *value = json_object_get(format, name);
    if (value && !json_is_null(value) && !json_is_boolean(value))
        structural_fail(w, -EINVAL, "%s must be true or false", name);
    return json_is_boolean(value) ? json_is_true(value) : other;
}

bool structural_excludes(struct structural_work *w, const json_t *format, const struct structural_stops *ends,
                         struct structural_stops *ret)
{
    const char *name = json_object_get(format, "excluded_str") ? "excluded_str" : "excludes";
    const json_t *list = json_object_get(format, name), *each;
    size_t i;
    ret->count = 0;
    if (ends)
        *ret = *ends;
    if (list && !json_is_null(list) && !json_is_array(list))
        structural_fail(w, -EINVAL, "%s must be a list of strings", name);
    json_array_foreach(list, i, each) {
        struct slice text;
        if (w->error || !structural_is_text(w, each, name, &text))
            break;
        if (text.len == 0)
            structural_fail(w, -EINVAL, "a text of %s is empty", name);
        structural_add_stop(w, ret, text);
    }
    return !w->error;
}

static bool is_among(const char *names, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = names; len > 0 && (at = strstr(at, name)) != NULL; at += len)
        if ((at == names || at[-1] == ' ') && (at[len] == ' ' || at[len] == 0))
            return true;
    return false;
}

bool structural_only(struct structural_work *w, const json_t *format, const char *names)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)format, name, value)
        if (!json_is_null(value) && strcmp(name, "type") != 0 && !is_among(names, name))
            structural_fail(w, -ENOTSUP, "\"%.64s\" is not supported", name);
    return !w->error;
}
