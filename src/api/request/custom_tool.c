/* custom_tool.c - a grammar is compiled here once, to see whether it is supported. A request with another one
 * is answered all the same: agents send theirs with every request. */
#include "api/request/custom_tool.h"

#include "api/request/field.h"
#include "api/request/tool_choice.h"

#include "base/clock.h"
#include "chat/json_stream.h"
#include "constraint/choice_rules.h"
#include "constraint/lark.h"
#include "gen/json_depth.h"
#include "gen/request_memory.h"

#define PATTERN_BYTES_MAX ((size_t)4 << 10)
#define LARK_BYTES_MAX    ((size_t)16 << 10)
#define LARK_CPU_NS       (50 * NS_PER_MS)
#define INPUT_DEPTH_MAX   32

/* Empty: there is none, or it has a zero byte. */
static struct slice definition_of(const struct custom_format *format)
{
    struct slice text = {json_string_value(format->definition), json_string_length(format->definition)};
    return text.len > 0 && strlen(text.ptr) == text.len ? text : SLICE("");
}

/* ---- supported formats ---- */

static bool is_pattern(struct request_memory *memory, struct slice pattern)
{
    struct charge charge = request_memory_charge(memory);
    struct grammar_builder *b = NULL;
    struct err e = {{0}};
    sym_id sym;
    bool ok =
        grammar_builder_create(NULL, &charge, &b) == 0 && choice_compile_regex(b, pattern, &sym, &e) == 0;
    grammar_builder_free(b);
    return ok;
}

static bool is_lark(struct request_memory *memory, struct slice text)
{
    struct charge charge = request_memory_charge(memory);
    const struct wanted wanted = {.cpu_deadline_ns = clock_thread_ns() + LARK_CPU_NS};
    struct grammar_builder *b = NULL;
    struct grammar *g = NULL;
    struct err e = {{0}};
    sym_id sym;
    bool ok = grammar_builder_create(NULL, &charge, &b) == 0;
    if (ok)
        grammar_builder_bound(b, &wanted, &charge);
    ok = ok && lark_compile(b, text, &charge, &sym, &e) == 0 && grammar_finish(b, sym, &g, &e) == 0;
    grammar_free(g);
    grammar_builder_free(b);
    return ok;
}

/* ---- the schema ---- */

/* The pattern is one of JSON Schema, which searches. */
static bool hold_to_pattern(struct request *r, struct request_memory *memory, const char *name,
                            const struct custom_format *format, json_t *input)
{
    struct slice text = definition_of(format);
    json_t *pattern =
        text.len > 0 && text.len <= PATTERN_BYTES_MAX ? json_sprintf("^(?:%s)$", text.ptr) : NULL;
    struct slice whole = {json_string_value(pattern), json_string_length(pattern)};
    bool ok = pattern && is_pattern(memory, whole) && json_object_set(input, "pattern", pattern) == 0;
    json_decref(pattern);
    if (ok)
        tool_choice_strict(r, name);
    return ok;
}

/* A model that is to write a text of the grammar reads it in the parameter's description. */
static bool hold_to_lark(struct request *r, struct request_memory *memory, const char *name,
                         const struct custom_format *format, json_t *input)
{
    struct slice text = definition_of(format);
    if (text.len == 0 || text.len > LARK_BYTES_MAX || !is_lark(memory, text))
        return false;
    json_t *description = json_sprintf("A text of this Lark grammar:\n%s", text.ptr);
    if (json_object_set_new(input, "description", description) < 0)
        return false;
    tool_choice_lark(r, name, format->definition);
    return true;
}

json_t *custom_tool_schema(struct request *r, struct request_memory *memory, const char *name,
                           const struct custom_format *format)
{
    json_t *schema = json_pack("{sss{s{ss}}s[s]}", "type", "object", "properties", "input", "type", "string",
                               "required", "input");
    json_t *input = json_object_get(json_object_get(schema, "properties"), "input");
    bool held = false;
    tool_choice_hold(r, name);
    if (!input || !format->syntax)
        return schema;
    if (strcmp(format->syntax, "lark") == 0)
        held = hold_to_lark(r, memory, name, format, input);
    else if (strcmp(format->syntax, "regex") == 0)
        held = hold_to_pattern(r, memory, name, format, input);
    if (!held)
        field_note_ignored(r, format->param);
    return schema;
}

/* ---- calls ---- */

json_t *custom_tool_arguments(json_t *input)
{
    return json_pack("{sO}", "input", input);
}

static json_t *read_object(struct request_memory *memory, struct slice text)
{
    json_error_t e;
    return text.len > 0 && json_depth_within(text, INPUT_DEPTH_MAX)
               ? request_memory_parse(memory, text.ptr, text.len, &e)
               : NULL;
}

/* Arguments that were cut, read as if they were closed there: the input is a text, and half of one is its
 * head. NULL: they are not JSON even so, or no memory. */
static json_t *read_cut(struct request_memory *memory, struct slice arguments)
{
    struct charge charge = request_memory_charge(memory);
    struct json_stream s;
    struct buf text;
    buf_init(&text, SIZE_MAX / 4, &charge);
    json_stream_init(&s, SIZE_MAX / 4, &charge);
    json_stream_feed(&s, arguments, &text);
    json_stream_close(&s, &text);
    json_t *ret = s.held.error || text.error || s.broken ? NULL : read_object(memory, buf_slice(&text));
    json_stream_done(&s);
    buf_done(&text);
    return ret;
}

void custom_tool_input(struct request_memory *memory, struct slice arguments, struct buf *ret)
{
    json_t *object = read_object(memory, arguments);
    bool cut = !object;
    if (cut)
        object = read_cut(memory, arguments);
    const json_t *input = json_object_get(object, "input");
    if (json_is_string(input))
        buf_put(ret, json_string_value(input), json_string_length(input));
    else if (!cut || json_object_size(object) > 0 || !object)
        buf_put_slice(ret, arguments);
    json_decref(object);
}
