/* tool_source.c - markers without the white space around them, as the parser matches them: single tokens as
 * their ids, the rest as text. */
#include "chat/tool_source.h"

#include "chat/chat_syntax.h"
#include "chat/tool_arguments.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/json/json_write.h"

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

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static struct slice trimmed(const char *text)
{
    struct slice s = slice_of(text);
    if (s.len == 1 && s.ptr[0] == '\n')
        return s; /* a marker of its own */
    while (s.len && is_blank(s.ptr[0]))
        s = slice_sub(s, 1, s.len);
    while (s.len && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

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

/* A list of texts and ids. */
static void put_marker(const struct tool_source_opts *o, struct slice s, struct buf *ret)
{
    bool first = true;
    buf_putc(ret, '[');
    while (s.len) {
        const struct chat_special *special = special_at(o, s);
        size_t n = 0;
        while (!special && n < s.len && !special_at(o, slice_sub(s, n, s.len)))
            n++;
        buf_puts(ret, first ? "" : ",");
        if (special)
            buf_printf(ret, "%u", special->id);
        else
            json_write_string(ret, slice_sub(s, 0, n));
        s = slice_sub(s, special ? special->text.len : n, s.len);
        first = false;
    }
    buf_putc(ret, ']');
}

static void put_markers(const struct tool_source_opts *o, struct buf *ret)
{
    static const char *const names[CHAT_MARKER_COUNT] = {
        "reasoning_open", "reasoning_close", "text_begin", "text_end",  "section_begin", "section_end",
        "call_begin",     "id_begin",        "name_end",   "key_begin", "key_end",       "key_end_json",
        "value_begin",    "value_end",       "call_end",   "quote",     "channel_begin"};
    bool first = true;
    buf_puts(ret, ",\"markers\":{");
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++) {
        struct slice s = trimmed(o->syntax->marker[m]);
        bool line = slice_eq(s, SLICE("\n"));
        /* The parser ends the name at the first key as well, and counts the line end as the value's. */
        if (s.len == 0 || (line && o->syntax->arguments == CHAT_TAGGED))
            continue;
        buf_printf(ret, "%s\"%s\":", first ? "" : ",", names[m]);
        put_marker(o, s, ret);
        first = false;
    }
    buf_puts(ret, "},\"specials\":[");
    for (uint32_t i = 0; o->by_token && i < o->syntax->special_count; i++)
        buf_printf(ret, "%s%u", i ? "," : "", o->syntax->specials[i].id);
    buf_putc(ret, ']');
}

/* ---- the format ---- */

static void put_flag(struct buf *ret, const char *name, bool value)
{
    if (value)
        buf_printf(ret, ",\"%s\":true", name);
}

static void put_text(struct buf *ret, const char *name, const char *value)
{
    if (value)
        json_write_member(ret, name, value);
}

static bool ends_line(const char *marker)
{
    struct slice s = slice_of(marker);
    return s.len && s.ptr[s.len - 1] == '\n';
}

static void put_syntax(const struct tool_source_opts *o, struct buf *ret)
{
    static const char *const arguments[] = {"json", "json_call", "tagged", "python", "braced"};
    const struct chat_syntax *s = o->syntax;
    const char *value_end = s->marker[CHAT_VALUE_END];
    buf_printf(ret, "{\"shape\":\"%s\",\"arguments\":\"%s\"",
               s->shape == CHAT_CHANNELS ? "channels" : "calls", arguments[s->arguments]);
    put_markers(o, ret);
    put_text(ret, "name_key", s->name_key);
    put_text(ret, "arguments_key", s->arguments_key);
    put_text(ret, "id_key", s->id_key);
    put_text(ret, "text_to", s->text_to);
    put_flag(ret, "list", s->list);
    put_flag(ret, "bare", s->bare);
    put_flag(ret, "id_names", s->id_names);
    put_flag(ret, "plain_names", s->plain_names);
    put_flag(ret, "opened", s->opens != NULL);
    put_flag(ret, "line_before",
             ends_line(s->marker[CHAT_VALUE_BEGIN] ? s->marker[CHAT_VALUE_BEGIN] : s->marker[CHAT_KEY_END]));
    put_flag(ret, "line_after", value_end && value_end[0] == '\n');
}

/* ---- the tools ---- */

/* The parameters that the parser takes as text, whatever they say. */
static void put_texts(const struct tool_source_opts *o, const json_t *parameters, const char *name,
                      struct buf *ret)
{
    const char *key;
    json_t *property;
    bool first = true;
    buf_puts(ret, ",\"texts\":[");
    json_object_foreach(json_object_get(parameters, "properties"), key, property) {
        if (!tool_argument_is_text(o->tools, slice_of(name), slice_of(key)))
            continue;
        buf_puts(ret, first ? "" : ",");
        json_write_string(ret, slice_of(key));
        first = false;
    }
    buf_putc(ret, ']');
}

static void put_tool(const struct tool_source_opts *o, const json_t *tool, const char *name, struct buf *ret)
{
    const json_t *parameters = json_object_get(tool, "parameters");
    bool strict = json_object_get(o->strict, name);
    buf_puts(ret, "{\"name\":");
    json_write_string(ret, slice_of(name));
    put_flag(ret, "strict", strict);
    /* Not needed where arguments are any object; then agents with other schemas share the grammar. */
    if (strict || o->required || o->syntax->arguments == CHAT_TAGGED || o->syntax->arguments == CHAT_PYTHON) {
        buf_puts(ret, ",\"parameters\":");
        if (parameters)
            json_write_value(ret, parameters);
        else
            buf_puts(ret, "{}");
    }
    if (json_object_get(o->larks, name)) {
        buf_puts(ret, ",\"lark\":");
        json_write_value(ret, json_object_get(o->larks, name));
    }
    if (o->syntax->arguments == CHAT_TAGGED)
        put_texts(o, parameters, name, ret);
    buf_putc(ret, '}');
}

static void put_tools(const struct tool_source_opts *o, struct buf *ret)
{
    size_t i;
    json_t *tool;
    bool first = true;
    buf_puts(ret, ",\"tools\":[");
    json_array_foreach(o->tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (!f)
            f = tool;
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name || (o->names && !json_object_get(o->names, name)))
            continue;
        buf_puts(ret, first ? "" : ",");
        put_tool(o, f, name, ret);
        first = false;
    }
    buf_putc(ret, ']');
}

static void put_schema(const struct tool_source_opts *o, struct buf *ret)
{
    buf_puts(ret, ",\"format\":");
    if (json_is_string(o->schema))
        buf_put(ret, json_string_value(o->schema), json_string_length(o->schema));
    else
        json_write_value(ret, o->schema);
}

void tool_source_write(const struct tool_source_opts *opts, struct buf *ret)
{
    ASSERT(tool_source_supports(opts->syntax));
    put_syntax(opts, ret);
    put_tools(opts, ret);
    if (opts->schema)
        put_schema(opts, ret);
    else if (opts->object)
        buf_puts(ret, ",\"format\":{\"type\":\"object\"}");
    put_flag(ret, "required", opts->required);
    put_flag(ret, "parallel", opts->parallel);
    put_flag(ret, "in_reasoning", opts->in_reasoning);
    buf_putc(ret, '}');
}
