/* tool_arguments.c - types by schema, the text as the last resort. */
#include "chat/tool_arguments.h"

#include "base/json/json_source_load.h"
#include "base/json/json_write.h"
#include "base/wide_integer.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

#define ARGUMENT_NUMBER_BYTES_MAX 64

enum {
    TYPE_STRING = 1,
    TYPE_INTEGER = 2,
    TYPE_NUMBER = 4,
    TYPE_BOOLEAN = 8,
    TYPE_OBJECT = 16,
    TYPE_ARRAY = 32,
    TYPE_NULL = 64
};

static unsigned type_of_name(const json_t *name)
{
    static const struct {
        const char *name;
        unsigned type;
    } types[] = {{"string", TYPE_STRING},   {"integer", TYPE_INTEGER}, {"number", TYPE_NUMBER},
                 {"boolean", TYPE_BOOLEAN}, {"object", TYPE_OBJECT},   {"array", TYPE_ARRAY},
                 {"null", TYPE_NULL}};
    const char *text = json_string_value(name);
    for (size_t i = 0; text && i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, text) == 0)
            return types[i].type;
    return 0;
}

/* The types a schema allows, as bits: `type` (a name or a list), else the types of its anyOf and oneOf, one
 * level down. */
static unsigned schema_types(const json_t *schema, bool alternatives)
{
    unsigned types = 0;
    size_t i;
    json_t *entry;
    const json_t *type = json_object_get(schema, "type");
    if (json_is_string(type))
        return type_of_name(type);
    json_array_foreach(type, i, entry)
        types |= type_of_name(entry);
    if (alternatives) {
        json_array_foreach(json_object_get(schema, "anyOf"), i, entry)
            types |= schema_types(entry, false);
        json_array_foreach(json_object_get(schema, "oneOf"), i, entry)
            types |= schema_types(entry, false);
    }
    return types;
}

static bool is_named(const json_t *object, const char *member, struct slice name)
{
    const json_t *value = json_object_get(object, member);
    return json_is_string(value) &&
           slice_eq((struct slice){json_string_value(value), json_string_length(value)}, name);
}

static unsigned argument_types(const json_t *tools, struct slice function, struct slice key)
{
    size_t i;
    json_t *tool;
    json_array_foreach(tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (!f)
            f = tool;
        if (!is_named(f, "name", function))
            continue;
        const json_t *properties = json_object_get(json_object_get(f, "parameters"), "properties");
        return schema_types(json_object_getn(properties, key.ptr, key.len), true);
    }
    return 0;
}

static struct slice trim(struct slice s)
{
    while (s.len && strchr(" \t\r\n", s.ptr[0]))
        s = slice_sub(s, 1, s.len);
    while (s.len && strchr(" \t\r\n", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* -1, 0, 12: of any length. */
static bool is_whole(struct slice s)
{
    if (s.len && s.ptr[0] == '-')
        s = slice_sub(s, 1, s.len);
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < '0' || s.ptr[i] > '9')
            return false;
    return s.len == 1 || (s.len > 1 && s.ptr[0] != '0');
}

static bool write_number(struct buf *ret, struct slice text, bool integers_only)
{
    json_error_t e;
    if (is_whole(text)) {
        buf_put_slice(ret, text);
        return true;
    }
    if (text.len == 0 || text.len > ARGUMENT_NUMBER_BYTES_MAX)
        return false;
    json_t *value = json_source_load(text, JSON_DECODE_ANY, &e);
    bool ok = json_is_number(value);
    double v = json_number_value(value);
    /* Below 2^53 a double without a fraction is that integer exactly. */
    if (json_is_real(value) && v == floor(v) && fabs(v) < 0x1p53)
        buf_printf(ret, "%lld", (long long)v);
    else if (json_is_real(value) && integers_only)
        ok = false;
    else if (ok)
        json_write_value(ret, value);
    json_decref(value);
    return ok;
}

static bool write_structure(struct buf *ret, struct slice text, unsigned types)
{
    json_error_t e;
    struct wide_integers wide = {0}, *before = wide_integers_enter(&wide);
    json_t *value = json_source_load(text, 0, &e);
    bool ok =
        (json_is_object(value) && (types & TYPE_OBJECT)) || (json_is_array(value) && (types & TYPE_ARRAY));
    if (ok)
        json_write_value(ret, value);
    json_decref(value);
    wide_integers_enter(before);
    return ok;
}

static bool write_typed(struct buf *ret, unsigned types, struct slice text)
{
    struct slice t = trim(text);
    if (t.len == 4 && strncasecmp(t.ptr, "null", 4) == 0) {
        buf_puts(ret, "null");
        return true;
    }
    if ((types & (TYPE_INTEGER | TYPE_NUMBER)) && write_number(ret, t, !(types & TYPE_NUMBER)))
        return true;
    if ((types & (TYPE_OBJECT | TYPE_ARRAY)) && write_structure(ret, t, types))
        return true;
    if (types & TYPE_BOOLEAN) {
        bool yes = t.len == 4 && strncasecmp(t.ptr, "true", 4) == 0;
        buf_puts(ret, yes ? "true" : "false");
        return true;
    }
    return false;
}

bool tool_argument_is_text(const json_t *tools, struct slice function, struct slice key)
{
    unsigned types = argument_types(tools, function, key);
    return types == 0 || (types & TYPE_STRING);
}

void tool_argument_write(struct buf *ret, const json_t *tools, struct slice function, struct slice key,
                         struct slice text)
{
    unsigned types = argument_types(tools, function, key);
    if (types == 0 || (types & TYPE_STRING) || !write_typed(ret, types, text))
        json_write_string(ret, text);
}
