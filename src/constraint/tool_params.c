/* tool_params.c - arguments that are written one by one: between tags, as Python's keyword arguments, and in
 * braces with bare keys. */
#include "constraint/tool_work.h"

#include "base/check.h"
#include "base/json/json_dumped.h"
#include "schema/schema.h"

#include <errno.h>
#include <stdlib.h>

enum { KEY_BYTES_MAX = 64, BRACED_DEPTH_MAX = 16 };

/* ---- the parameters ---- */

static bool is_listed(const json_t *list, const char *name)
{
    size_t i;
    json_t *each;
    json_array_foreach(list, i, each)
        if (json_is_string(each) && strcmp(json_string_value(each), name) == 0)
            return true;
    return false;
}

/* Keywords of an object that this notation has no place for. */
static bool is_plain_object(const json_t *schema)
{
    static const char *const words[] = {"$ref", "allOf", "anyOf", "oneOf",         "not",
                                        "if",   "const", "enum",  "minProperties", "maxProperties"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (json_object_get(schema, words[i]))
            return false;
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(schema, "required"), i, name)
        if (!json_is_string(name) ||
            !json_object_get(json_object_get(schema, "properties"), json_string_value(name)))
            return false;
    return true;
}

static void take_params(struct tool_params *ret, const json_t *schema, const json_t *texts)
{
    const char *key;
    json_t *property;
    const json_t *required = json_object_get(schema, "required");
    json_object_foreach(json_object_get(schema, "properties"), key, property)
        if (ret->all)
            ret->all[ret->count++] = (struct tool_param){
                .key = key,
                .schema = property,
                .required = is_listed(required, key),
                .text = is_listed(texts, key),
            };
}

/* NULL in ret->all: no memory. */
static void params_of(struct tool_work *w, const json_t *tool, const json_t *schema, struct tool_params *ret)
{
    size_t count = json_object_size(json_object_get(schema, "properties"));
    *ret = (struct tool_params){.by_schema = w->by_schema || tool_is_strict(w, tool)};
    if (ret->by_schema && !is_plain_object(schema)) {
        ret->by_schema = false;
        if (tool_is_strict(w, tool))
            tool_fail(
                w, -ENOTSUP,
                "tool \"%.64s\": this model's calls have no JSON objects; the schema of a strict tool has "
                "properties and required at its top, no other keywords of objects",
                json_string_value(json_object_get(tool, "name")));
    }
    if (count > SCHEMA_PROPERTIES_MAX) {
        tool_fail(w, -E2BIG, "a tool has more than %d properties", SCHEMA_PROPERTIES_MAX);
        return;
    }
    ret->all = calloc(count + 1, sizeof(*ret->all));
    if (!ret->all)
        tool_fail(w, -ENOMEM, "no memory for the tools");
    take_params(ret, schema, json_object_get(tool, "texts"));
}

/* Any characters but these. */
static struct expr word_without(struct tool_work *w, const char *bytes)
{
    struct rx_bytes set = {{~0ull << 33, ~0ull >> 1, ~0ull, ~0ull}};
    for (; *bytes; bytes++)
        set.bits[(unsigned char)*bytes / 64] &= ~(1ull << (unsigned char)*bytes % 64);
    return expr_rx(rx_repeat(w->s, rx_bytes(w->s, &set), 1, KEY_BYTES_MAX));
}

/* ---- tagged ---- */

static const char *const value_end[] = {"value_end", NULL};

/* Any text that may be a value. */
static struct expr any_text(struct tool_work *w)
{
    if (!w->has_any_text)
        w->any_text = tool_text(w, &(struct tool_text){.without = value_end});
    w->has_any_text = true;
    return w->any_text;
}

static struct expr line_end(struct tool_work *w, const char *flag)
{
    return tool_flag(w, flag) ? tool_literal(w, "\n") : expr_rx(RX_EMPTY);
}

/* A string by its schema, raw. False: it may be any text. */
static bool raw_text(struct tool_work *w, const json_t *tool, const struct tool_param *p, struct expr *ret)
{
    rx_id end = tool_marker_text(w, "value_end");
    rx_id within = end == RX_NONE ? RX_ALL : rx_not(w->s, rx_cat(w->s, RX_ALL, rx_cat(w->s, end, RX_ALL)));
    struct expr text;
    bool any = !p->schema || (tool_is_free_text(p->schema) && !tool_has_lark(tool));
    if (any || !tool_raw_value(w, tool, p->schema, within, &text))
        return false;
    *ret = TOOL_CAT(w, line_end(w, "line_before"), text, line_end(w, "line_after"));
    return true;
}

static struct expr tagged_value(struct tool_work *w, const json_t *tool, const struct tool_param *p,
                                bool by_schema)
{
    struct expr value;
    if (!by_schema)
        return any_text(w);
    if (p->text)
        return raw_text(w, tool, p, &value) ? value : any_text(w);
    if (!tool_json_value(w, tool, p->schema, &value))
        return any_text(w);
    return TOOL_CAT(w, tool_blanks(w), value, tool_blanks(w));
}

/* The value with the text before it, from the key's end on. */
static struct expr tagged_rest(struct tool_work *w, const json_t *tool, const struct tool_param *p,
                               bool by_schema)
{
    struct expr begin = tool_has(w, "value_begin")
                            ? TOOL_CAT(w, tool_blanks(w), tool_marker(w, "value_begin"))
                            : expr_rx(RX_EMPTY);
    struct expr end = TOOL_CAT(w, tool_marker(w, "value_end"), tool_blanks(w));
    struct expr text = TOOL_CAT(w, tool_marker(w, "key_end"), begin, any_text(w), end), json;
    if (!tool_has(w, "key_end_json"))
        return TOOL_CAT(w, tool_marker(w, "key_end"), begin, tagged_value(w, tool, p, by_schema), end);
    /* The markers tell strings from other values. */
    bool free = tool_is_free_text(p->schema) && !tool_has_lark(tool);
    if (!by_schema || !p->text || free) {
        if (!tool_json_value(w, tool, by_schema ? p->schema : NULL, &json))
            json = expr_sym(json_text_any(&w->json));
        json = TOOL_CAT(w, tool_marker(w, "key_end_json"), begin, tool_blanks(w), json, tool_blanks(w), end);
        if (by_schema)
            return p->text ? text : json;
        return expr_or(w->b, text, json);
    }
    return TOOL_CAT(w, tool_marker(w, "key_end"), begin, tagged_value(w, tool, p, true), end);
}

struct expr tool_tagged_arguments(struct tool_work *w, const json_t *tool)
{
    static const struct tool_param unknown = {.text = true};
    struct tool_params params;
    struct expr all = expr_rx(RX_EMPTY), ways = expr_rx(RX_NONE);
    params_of(w, tool, json_object_get(tool, "parameters"), &params);
    for (uint32_t i = 0; i < params.count && !w->error; i++) {
        const struct tool_param *p = &params.all[i];
        struct expr one = TOOL_CAT(w, tool_marker(w, "key_begin"), tool_literal(w, p->key),
                                   tagged_rest(w, tool, p, params.by_schema));
        if (params.by_schema)
            all = expr_cat(w->b, all, p->required ? one : tool_maybe(w, one));
        else
            ways = expr_or(w->b, ways, one);
    }
    if (!params.by_schema && params.count == 0)
        ways = TOOL_CAT(w, tool_marker(w, "key_begin"), word_without(w, "<>\"=\xff"),
                        tagged_rest(w, tool, &unknown, false));
    if (!params.by_schema)
        all = expr_repeat(w->b, ways, 0, RX_UNBOUNDED);
    free(params.all);
    return all;
}

/* ---- lists of members, with commas between them ---- */

static struct expr comma(struct tool_work *w)
{
    return TOOL_CAT(w, tool_blanks(w), tool_literal(w, ","), tool_blanks(w));
}

/* Members in order, optional ones may be missing. From the end: the text that may follow when a member
 * has been written (later), and when none has (first). */
static struct expr ordered(struct tool_work *w, const struct tool_params *params, const struct expr *members)
{
    struct expr first = expr_rx(RX_EMPTY), later = expr_rx(RX_EMPTY);
    for (uint32_t i = params->count; i-- > 0;) {
        struct expr with = TOOL_CAT(w, members[i], later), more = TOOL_CAT(w, comma(w), with);
        bool required = params->all[i].required;
        first = required ? with : expr_or(w->b, first, with);
        later = required ? more : expr_or(w->b, later, more);
        /* One rule each: the next member refers to it twice. */
        first = first.regular ? first : expr_sym(expr_symbol(w->b, first));
    }
    return first;
}

/* Any of them, any number of times. */
static struct expr unordered(struct tool_work *w, struct expr member)
{
    struct expr more = expr_repeat(w->b, TOOL_CAT(w, comma(w), member), 0, RX_UNBOUNDED);
    return tool_maybe(w, TOOL_CAT(w, member, more));
}

typedef struct expr notation_fn(struct tool_work *w, const json_t *tool, const struct tool_param *p,
                                bool by_schema);

static struct expr member_list(struct tool_work *w, const json_t *tool, const struct tool_params *params,
                               notation_fn *member)
{
    struct expr *members = calloc(params->count + 1, sizeof(*members)), any = expr_rx(RX_NONE), ret;
    if (!members) {
        tool_fail(w, -ENOMEM, "no memory for the tools");
        return expr_rx(RX_NONE);
    }
    for (uint32_t i = 0; i < params->count && !w->error; i++)
        members[i] = member(w, tool, &params->all[i], params->by_schema);
    if (params->by_schema) {
        ret = ordered(w, params, members);
    } else {
        for (uint32_t i = 0; i < params->count; i++)
            any = expr_or(w->b, any, members[i]);
        if (params->count == 0)
            any = member(w, tool, &(struct tool_param){.key = NULL}, false);
        ret = unordered(w, any);
    }
    free(members);
    return ret;
}

/* ---- Python ---- */

static struct expr python_string(struct tool_work *w, char quote)
{
    struct rx_bytes escapes = {{0}};
    for (const char *c = "ntrbf\\'\"/"; *c; c++)
        escapes.bits[(unsigned char)*c / 64] |= 1ull << (unsigned char)*c % 64;
    struct rx_range first = {0x20, (uint32_t)quote - 1}, second = {(uint32_t)quote + 1, '\\' - 1};
    struct rx_range third = {'\\' + 1, 0xD7FF}, fourth = {0xE000, 0x10FFFF};
    rx_id plain = rx_codepoints(w->s, (struct rx_range[]){first, second, third, fourth}, 4);
    rx_id escape = rx_cat(w->s, rx_literal(w->s, SLICE("\\")), rx_bytes(w->s, &escapes));
    rx_id mark = rx_literal(w->s, (struct slice){&quote, 1});
    rx_id text = rx_repeat(w->s, rx_or(w->s, plain, escape), 0, RX_UNBOUNDED);
    return expr_rx(rx_cat(w->s, mark, rx_cat(w->s, text, mark)));
}

static struct expr constants(struct tool_work *w, const char *const *words)
{
    struct expr all = expr_rx(RX_NONE);
    for (; *words; words++)
        all = expr_or(w->b, all, tool_literal(w, *words));
    return all;
}

static void add_way(struct tool_work *w, sym_id rule, struct expr p)
{
    sym_id sym = expr_symbol(w->b, p);
    grammar_alternative(w->b, rule, &sym, 1);
}

static struct expr bracketed(struct tool_work *w, const char *open, struct expr item, const char *close)
{
    return TOOL_CAT(w, tool_literal(w, open), tool_blanks(w), unordered(w, item), tool_blanks(w),
                    tool_literal(w, close));
}

static struct expr any_python(struct tool_work *w)
{
    static const char *const words[] = {"True", "False", "None", "true", "false", "null", NULL};
    if (w->any_python != UINT32_MAX)
        return expr_sym(w->any_python);
    w->any_python = grammar_rule(w->b);
    struct expr any = expr_sym(w->any_python);
    struct expr text = expr_or(w->b, python_string(w, '"'), python_string(w, '\''));
    struct expr colon = TOOL_CAT(w, tool_blanks(w), tool_literal(w, ":"), tool_blanks(w));
    add_way(w, w->any_python,
            expr_or(w->b, expr_or(w->b, text, expr_rx(w->json.number)), constants(w, words)));
    add_way(w, w->any_python, bracketed(w, "[", any, "]"));
    add_way(w, w->any_python, bracketed(w, "{", TOOL_CAT(w, text, colon, any), "}"));
    return any;
}

static bool has_type(const json_t *schema, const char *name)
{
    const json_t *type = json_object_get(schema, "type");
    if (json_object_get(schema, "enum") || json_object_get(schema, "const") || json_object_get(schema, "not"))
        return false;
    return json_is_string(type) ? strcmp(json_string_value(type), name) == 0 : is_listed(type, name);
}

static struct expr python_member(struct tool_work *w, const json_t *tool, const struct tool_param *p,
                                 bool by_schema)
{
    struct expr value;
    struct expr key = p->key ? tool_literal(w, p->key) : word_without(w, "=,()[]{}\"'");
    if (!by_schema || !p->schema || !tool_json_value(w, tool, p->schema, &value))
        value = any_python(w);
    else if (has_type(p->schema, "boolean"))
        value = expr_or(w->b, value, constants(w, (const char *const[]){"True", "False", NULL}));
    if (by_schema && has_type(p->schema, "null"))
        value = expr_or(w->b, value, tool_literal(w, "None"));
    return TOOL_CAT(w, key, tool_literal(w, "="), value);
}

struct expr tool_python_arguments(struct tool_work *w, const json_t *tool)
{
    struct tool_params params;
    params_of(w, tool, json_object_get(tool, "parameters"), &params);
    struct expr ret = member_list(w, tool, &params, python_member);
    free(params.all);
    return ret;
}

/* ---- braced ---- */

static const char *const quote[] = {"quote", NULL};

static struct expr quoted(struct tool_work *w, struct expr text)
{
    return TOOL_CAT(w, tool_marker(w, "quote"), text, tool_marker(w, "quote"));
}

static struct expr any_braced(struct tool_work *w);

static struct expr braced_key(struct tool_work *w, const char *key)
{
    return TOOL_CAT(w, key ? tool_literal(w, key) : word_without(w, ":,{}[]\"<|"), tool_literal(w, ":"));
}

static struct expr any_braced(struct tool_work *w)
{
    static const char *const words[] = {"true", "false", "null", NULL};
    if (w->any_braced != UINT32_MAX)
        return expr_sym(w->any_braced);
    w->any_braced = grammar_rule(w->b);
    struct expr any = expr_sym(w->any_braced);
    struct expr member = TOOL_CAT(w, braced_key(w, NULL), any);
    add_way(w, w->any_braced, expr_or(w->b, expr_rx(w->json.number), constants(w, words)));
    add_way(w, w->any_braced, quoted(w, tool_text(w, &(struct tool_text){.without = quote})));
    add_way(w, w->any_braced, bracketed(w, "[", any, "]"));
    add_way(w, w->any_braced, bracketed(w, "{", member, "}"));
    return any;
}

struct braced {
    const json_t *tool;
    uint32_t depth;
    bool failed; /* not supported: any value */
};

static struct expr braced_value(struct tool_work *w, struct braced *o, const json_t *schema);

static bool is_scalar(const json_t *schema)
{
    static const char *const names[] = {"integer", "number", "boolean", "null"};
    const char *type = json_string_value(json_object_get(schema, "type"));
    for (size_t i = 0; type && i < COUNT_OF(names); i++)
        if (strcmp(type, names[i]) == 0)
            return true;
    return false;
}

static struct expr braced_string(struct tool_work *w, struct braced *o, const json_t *schema)
{
    rx_id end = tool_marker_text(w, "quote");
    rx_id within = end == RX_NONE ? RX_ALL : rx_not(w->s, rx_cat(w->s, RX_ALL, rx_cat(w->s, end, RX_ALL)));
    struct expr text;
    if (tool_is_free_text(schema) && !tool_has_lark(o->tool))
        return quoted(w, tool_text(w, &(struct tool_text){.without = quote}));
    if (tool_raw_value(w, o->tool, schema, within, &text))
        return quoted(w, text);
    o->failed = true;
    return expr_rx(RX_NONE);
}

static struct expr braced_object(struct tool_work *w, struct braced *o, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    struct tool_params params = {.by_schema = true};
    params.all = calloc(json_object_size(properties) + 1, sizeof(*params.all));
    struct expr *members = calloc(json_object_size(properties) + 1, sizeof(*members));
    o->failed = o->failed || !members || !params.all || !is_plain_object(schema) || !properties;
    if (!o->failed)
        take_params(&params, schema, NULL);
    for (uint32_t i = 0; i < params.count && !o->failed; i++)
        members[i] = TOOL_CAT(w, braced_key(w, params.all[i].key), braced_value(w, o, params.all[i].schema));
    struct expr ret = o->failed ? expr_rx(RX_NONE) : ordered(w, &params, members);
    free(params.all);
    free(members);
    return TOOL_CAT(w, tool_literal(w, "{"), tool_blanks(w), ret, tool_blanks(w), tool_literal(w, "}"));
}

static uint32_t count_of(const json_t *schema, const char *key, uint32_t other)
{
    const json_t *value = json_object_get(schema, key);
    json_int_t n = json_integer_value(value);
    return !json_is_integer(value) || n < 0 ? other : n > SCHEMA_ITEMS_MAX ? SCHEMA_ITEMS_MAX : (uint32_t)n;
}

static struct expr braced_array(struct tool_work *w, struct braced *o, const json_t *schema)
{
    uint32_t min = count_of(schema, "minItems", 0), max = count_of(schema, "maxItems", RX_UNBOUNDED);
    const json_t *items = json_object_get(schema, "items");
    o->failed = o->failed || json_object_get(schema, "prefixItems") ||
                json_object_get(schema, "uniqueItems") || json_object_get(schema, "contains") || max < min;
    struct expr item = json_is_object(items) ? braced_value(w, o, items) : any_braced(w);
    if (o->failed)
        return expr_rx(RX_NONE);
    uint32_t rest_min = min ? min - 1 : 0, rest_max = max == RX_UNBOUNDED ? max : max ? max - 1 : 0;
    struct expr some = TOOL_CAT(w, item, expr_repeat(w->b, TOOL_CAT(w, comma(w), item), rest_min, rest_max));
    struct expr all = max == 0 ? expr_rx(RX_EMPTY) : min == 0 ? tool_maybe(w, some) : some;
    return TOOL_CAT(w, tool_literal(w, "["), tool_blanks(w), all, tool_blanks(w), tool_literal(w, "]"));
}

static struct expr braced_enum(struct tool_work *w, struct braced *o, const json_t *values)
{
    struct expr all = expr_rx(RX_NONE);
    size_t i;
    json_t *value;
    json_array_foreach(values, i, value) {
        char *scalar = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        o->failed = o->failed || json_is_object(value) || json_is_array(value) || json_is_real(value);
        all = expr_or(w->b, all,
                      scalar ? tool_literal(w, scalar)
                             : quoted(w, expr_rx(rx_literal(w->s, slice_of(json_string_value(value))))));
        json_dumped_free(scalar);
    }
    return all;
}

static struct expr braced_any_of(struct tool_work *w, struct braced *o, const json_t *list)
{
    struct expr all = expr_rx(RX_NONE);
    size_t i;
    json_t *each;
    json_array_foreach(list, i, each)
        all = expr_or(w->b, all, braced_value(w, o, each));
    return all;
}

static struct expr braced_value(struct tool_work *w, struct braced *o, const json_t *schema)
{
    struct expr ret = expr_rx(RX_NONE);
    const char *type = json_string_value(json_object_get(schema, "type"));
    if (o->failed || w->error || ++o->depth > BRACED_DEPTH_MAX) {
        o->failed = true;
        return ret;
    }
    if (json_object_get(schema, "enum") && !json_object_get(schema, "allOf"))
        ret = braced_enum(w, o, json_object_get(schema, "enum"));
    else if (json_object_get(schema, "anyOf") && !type)
        ret = braced_any_of(w, o, json_object_get(schema, "anyOf"));
    else if (is_scalar(schema))
        o->failed = !tool_json_value(w, o->tool, schema, &ret);
    else if (type && strcmp(type, "string") == 0)
        ret = braced_string(w, o, schema);
    else if (type && strcmp(type, "array") == 0)
        ret = braced_array(w, o, schema);
    else if (type && strcmp(type, "object") == 0)
        ret = braced_object(w, o, schema);
    else
        o->failed = true;
    o->depth--;
    return ret;
}

/* By the schema as a whole, or any members. */
static struct expr braced_member(struct tool_work *w, const json_t *tool, const struct tool_param *p,
                                 bool by_schema)
{
    struct braced o = {.tool = tool};
    struct expr value = expr_rx(RX_NONE);
    if (by_schema)
        value = braced_value(w, &o, p->schema);
    if (o.failed && tool_is_strict(w, tool))
        tool_fail(
            w, -ENOTSUP,
            "tool \"%.64s\": the schema of \"%.64s\" is not supported for a strict tool in this model's "
            "notation of calls",
            json_string_value(json_object_get(tool, "name")), p->key);
    return TOOL_CAT(w, braced_key(w, p->key), by_schema && !o.failed ? value : any_braced(w));
}

struct expr tool_braced_arguments(struct tool_work *w, const json_t *tool)
{
    struct tool_params params;
    params_of(w, tool, json_object_get(tool, "parameters"), &params);
    struct expr ret = member_list(w, tool, &params, braced_member);
    free(params.all);
    return TOOL_CAT(w, tool_blanks(w), ret, tool_blanks(w), tool_literal(w, "}"));
}
