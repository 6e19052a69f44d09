/* tool_source.c - markers without the white space around them, as the parser matches them: single tokens as
 * their ids, the rest as text. */
#include "chat/tool_source.h"

#include "chat/chat_syntax.h"
#include "chat/tool_arguments.h"

#include "base/check.h"
#include "base/json/json_out.h"

bool tool_source_supports(const struct chat_syntax *syntax)
{
    return syntax->shape != CHAT_CONTENT_ONLY;
}

/* The parts of other replies have names or channels of their own. */
bool tool_source_takes_schema(const struct chat_syntax *syntax)
{
    return syntax->shape == CHAT_CALLS && !syntax->opens;
}

/* ---- markers ---- */

/* The longest special token at the start of `s`. */
static const struct chat_special *special_at(const struct tool_source_opts *o, struct slice s)
{
    const struct chat_special *best = NULL;
    for (uint32_t i = 0; o->by_token && i < o->syntax->special_count; i++) {
        const struct chat_special *each = &o->syntax->specials[i];
        if (slice_starts(s, each->text) && (!best || each->text.len > best->text.len))
            best = each;
    }
    return best;
}

/* Puts a list of texts and ids. */
static void put_marker(const struct tool_source_opts *o, const char *name, struct slice s, struct json_out *j)
{
    json_open_array(j, name);
    while (s.len) {
        const struct chat_special *special = special_at(o, s);
        size_t n = 0;
        while (!special && n < s.len && !special_at(o, slice_sub(s, n, s.len)))
            n++;
        if (special)
            json_put_u64(j, NULL, special->id);
        else
            json_put_text(j, NULL, slice_sub(s, 0, n));
        s = slice_sub(s, special ? special->text.len : n, s.len);
    }
    json_close(j);
}

static void put_markers(const struct tool_source_opts *o, struct json_out *j)
{
    static const char *const names[CHAT_MARKER_COUNT] = {
        "reasoning_open", "reasoning_close", "text_begin", "text_end",  "section_begin", "section_end",
        "call_begin",     "id_begin",        "name_end",   "key_begin", "key_end",       "key_end_json",
        "value_begin",    "value_end",       "call_end",   "quote",     "channel_begin"};
    json_open(j, "markers");
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++) {
        struct slice s = chat_syntax_bare(o->syntax->marker[m]);
        bool line = slice_eq(s, SLICE("\n"));
        /* The parser ends the name at the first key as well, and counts the line end as the value's. */
        if (s.len > 0 && !(line && o->syntax->arguments == CHAT_TAGGED))
            put_marker(o, names[m], s, j);
    }
    json_close(j);
    json_open_array(j, "specials");
    for (uint32_t i = 0; o->by_token && i < o->syntax->special_count; i++)
        json_put_u64(j, NULL, o->syntax->specials[i].id);
    json_close(j);
}

/* ---- the format ---- */

static void put_flag(struct json_out *j, const char *name, bool value)
{
    if (value)
        json_put_bool(j, name, true);
}

static void put_text(struct json_out *j, const char *name, const char *value)
{
    if (value)
        json_put_string(j, name, value);
}

static bool ends_line(const char *marker)
{
    struct slice s = slice_of(marker);
    return s.len && s.ptr[s.len - 1] == '\n';
}

static void put_syntax(const struct tool_source_opts *o, struct json_out *j)
{
    static const char *const arguments[] = {"json", "json_call", "tagged", "python", "braced"};
    const struct chat_syntax *s = o->syntax;
    const char *value_end = s->marker[CHAT_VALUE_END];
    JSON_PUT_STRINGS(j, {"shape", s->shape == CHAT_CHANNELS ? "channels" : "calls"},
                     {"arguments", arguments[s->arguments]});
    put_markers(o, j);
    put_text(j, "name_key", s->name_key);
    put_text(j, "arguments_key", s->arguments_key);
    put_text(j, "id_key", s->id_key);
    put_text(j, "text_to", s->text_to);
    put_flag(j, "list", s->list);
    put_flag(j, "bare", s->bare);
    put_flag(j, "id_names", s->id_names);
    put_flag(j, "plain_names", s->plain_names);
    put_flag(j, "opened", s->opens != NULL);
    put_flag(j, "line_before",
             ends_line(s->marker[CHAT_VALUE_BEGIN] ? s->marker[CHAT_VALUE_BEGIN] : s->marker[CHAT_KEY_END]));
    put_flag(j, "line_after", value_end && value_end[0] == '\n');
}

/* ---- the tools ---- */

/* Puts the parameters that the parser takes as text, whatever they say. */
static void put_texts(const struct tool_source_opts *o, const json_t *parameters, const char *name,
                      struct json_out *j)
{
    const char *key;
    json_t *property;
    json_open_array(j, "texts");
    json_object_foreach(json_object_get(parameters, "properties"), key, property) {
        if (tool_argument_is_text(o->tools, slice_of(name), slice_of(key)))
            json_put_string(j, NULL, key);
    }
    json_close(j);
}

static void put_tool(const struct tool_source_opts *o, const json_t *tool, const char *name,
                     struct json_out *j)
{
    const json_t *parameters = json_object_get(tool, "parameters");
    bool strict = json_object_get(o->strict, name);
    json_open(j, NULL);
    json_put_string(j, "name", name);
    put_flag(j, "strict", strict);
    /* Not needed where arguments are any object; then agents with other schemas share the grammar. */
    if (strict || o->required || o->syntax->arguments == CHAT_TAGGED || o->syntax->arguments == CHAT_PYTHON) {
        if (parameters)
            json_put_value(j, "parameters", parameters);
        else
            json_put_raw(j, "parameters", SLICE("{}"));
    }
    if (json_object_get(o->larks, name))
        json_put_value(j, "lark", json_object_get(o->larks, name));
    if (o->syntax->arguments == CHAT_TAGGED)
        put_texts(o, parameters, name, j);
    json_close(j);
}

static void put_tools(const struct tool_source_opts *o, struct json_out *j)
{
    size_t i;
    json_t *tool;
    json_open_array(j, "tools");
    json_array_foreach(o->tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (!f)
            f = tool;
        const char *name = json_string_value(json_object_get(f, "name"));
        if (name && (!o->names || json_object_get(o->names, name)))
            put_tool(o, f, name, j);
    }
    json_close(j);
}

static void put_schema(const struct tool_source_opts *o, struct json_out *j)
{
    if (json_is_string(o->schema))
        json_put_raw(j, "format",
                     (struct slice){json_string_value(o->schema), json_string_length(o->schema)});
    else
        json_put_value(j, "format", o->schema);
}

void tool_source_write(const struct tool_source_opts *opts, struct buf *ret)
{
    ASSERT(tool_source_supports(opts->syntax));
    struct json_out j = json_out_object(ret);
    put_syntax(opts, &j);
    put_tools(opts, &j);
    if (opts->schema)
        put_schema(opts, &j);
    else if (opts->object)
        json_put_raw(&j, "format", SLICE("{\"type\":\"object\"}"));
    put_flag(&j, "required", opts->required);
    put_flag(&j, "parallel", opts->parallel);
    put_flag(&j, "in_reasoning", opts->in_reasoning);
    json_end(&j);
}
