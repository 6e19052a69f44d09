/* tool_calls.c - calls and their sections. */
#include "constraint/tool_work.h"

#include "base/json/json_dumped.h"

#include <errno.h>
#include <stdlib.h>

static bool arguments_are(const struct tool_work *w, const char *encoding)
{
    const char *is = tool_member(w, "arguments");
    return is && strcmp(is, encoding) == 0;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(tool, "name"));
}

typedef struct expr call_fn(struct tool_work *w, const json_t *tool);

static struct expr any_tool(struct tool_work *w, call_fn *call)
{
    struct expr all = expr_rx(RX_NONE);
    size_t i;
    json_t *tool;
    json_array_foreach(w->tools, i, tool)
        if (!w->error)
            all = expr_or(w->b, all, call(w, tool));
    return all;
}

/* ---- a name between markers ---- */

static struct expr id_text(struct tool_work *w)
{
    struct rx_bytes set = {{0}};
    for (const char *c = "0123456789_-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; *c; c++)
        set.bits[(unsigned char)*c / 64] |= 1ull << (unsigned char)*c % 64;
    return expr_rx(rx_repeat(w->s, rx_bytes(w->s, &set), 1, 64));
}

static struct expr name_piece(struct tool_work *w, const json_t *tool)
{
    struct expr name = tool_literal(w, name_of(tool));
    if (!tool_flag(w, "id_names"))
        return name;
    rx_id number = rx_repeat(w->s, rx_byte_range(w->s, '0', '9'), 1, 6);
    return TOOL_CAT(w, tool_literal(w, "functions."), name, tool_literal(w, ":"), expr_rx(number));
}

static struct expr arguments(struct tool_work *w, const json_t *tool)
{
    if (arguments_are(w, "tagged"))
        return tool_tagged_arguments(w, tool);
    if (arguments_are(w, "braced"))
        return tool_braced_arguments(w, tool);
    return tool_json_arguments(w, tool);
}

static struct expr call_body(struct tool_work *w, const json_t *tool)
{
    struct expr id = expr_rx(RX_EMPTY);
    if (tool_has(w, "id_begin"))
        id = tool_maybe(w, TOOL_CAT(w, tool_marker(w, "id_begin"), id_text(w)));
    return TOOL_CAT(w, name_piece(w, tool), id, tool_marker(w, "name_end"), tool_blanks(w),
                    arguments(w, tool), tool_blanks(w), tool_marker(w, "call_end"));
}

struct expr tool_call_bodies(struct tool_work *w)
{
    return any_tool(w, call_body);
}

/* ---- JSON objects with name and arguments ---- */

static struct expr quoted_name(struct tool_work *w, const json_t *tool)
{
    char *text = json_dumps(json_object_get(tool, "name"), JSON_ENCODE_ANY);
    struct expr ret = text ? tool_literal(w, text) : expr_rx(RX_NONE);
    json_dumped_free(text);
    return ret;
}

static struct expr key(struct tool_work *w, char head, const char *name)
{
    return expr_rx(json_text_key(&w->json, head, rx_literal(w->s, slice_of(name))));
}

static struct expr id_member(struct tool_work *w, char head)
{
    const char *name = tool_member(w, "id_key");
    if (!name)
        return expr_rx(RX_EMPTY);
    return TOOL_CAT(w, key(w, head, name), tool_literal(w, "\""), id_text(w), tool_literal(w, "\""));
}

static struct expr object_call(struct tool_work *w, const json_t *tool)
{
    const char *name_key = tool_member(w, "name_key"), *arguments_key = tool_member(w, "arguments_key");
    struct expr close = expr_rx(json_text_close(&w->json, '}')), values = tool_json_arguments(w, tool);
    if (!name_key || !arguments_key)
        return TOOL_CAT(w, key(w, '{', name_of(tool)), values, close);
    struct expr rest = TOOL_CAT(w, quoted_name(w, tool), key(w, ',', arguments_key), values);
    struct expr plain = TOOL_CAT(w, key(w, '{', name_key), rest);
    if (tool_member(w, "id_key")) {
        plain = TOOL_CAT(w, plain, tool_maybe(w, id_member(w, ',')));
        plain = expr_or(w->b, plain, TOOL_CAT(w, id_member(w, '{'), key(w, ',', name_key), rest));
    }
    return TOOL_CAT(w, plain, close);
}

/* `open`: the list's bracket is still to be written. */
static struct expr list_of(struct tool_work *w, struct expr call, bool more, bool open)
{
    struct expr comma = TOOL_CAT(w, tool_blanks(w), tool_literal(w, ","), tool_blanks(w), call);
    struct expr rest = more ? expr_repeat(w->b, comma, 0, RX_UNBOUNDED) : expr_rx(RX_EMPTY);
    struct expr begin = open ? tool_literal(w, "[") : expr_rx(RX_EMPTY);
    struct expr blanks = arguments_are(w, "python") ? expr_rx(RX_EMPTY) : tool_blanks(w);
    return TOOL_CAT(w, begin, blanks, call, rest, tool_blanks(w), tool_literal(w, "]"));
}

/* ---- Python ---- */

static struct expr python_call(struct tool_work *w, const json_t *tool)
{
    return TOOL_CAT(w, tool_literal(w, name_of(tool)), tool_literal(w, "("), tool_blanks(w),
                    tool_python_arguments(w, tool), tool_blanks(w), tool_literal(w, ")"));
}

/* ---- sections ---- */

/* The marker itself opens the list. */
static bool marker_opens_list(const struct tool_work *w)
{
    const json_t *marker = json_object_get(w->markers, "section_begin");
    const json_t *last = json_array_get(marker, json_array_size(marker) - 1);
    size_t len = json_string_length(last);
    return tool_flag(w, "list") && len > 0 && json_string_value(last)[len - 1] == '[';
}

static struct expr several(struct tool_work *w, struct expr call, bool more)
{
    struct expr next = TOOL_CAT(w, tool_blanks(w), call);
    return TOOL_CAT(w, call, more ? expr_repeat(w->b, next, 0, RX_UNBOUNDED) : expr_rx(RX_EMPTY));
}

static struct expr section_body(struct tool_work *w, bool more)
{
    if (arguments_are(w, "python"))
        return list_of(w, any_tool(w, python_call), more, true);
    if (arguments_are(w, "json_call")) {
        struct expr call = any_tool(w, object_call);
        return tool_flag(w, "list") ? list_of(w, call, more, !marker_opens_list(w)) : call;
    }
    struct expr call = TOOL_CAT(w, tool_marker(w, "call_begin"), tool_call_bodies(w));
    return several(w, call, more && tool_has(w, "section_begin"));
}

struct expr tool_calls(struct tool_work *w, bool more)
{
    struct expr body = section_body(w, more);
    /* Without an end of its own a JSON section ends with its last bracket. */
    return TOOL_CAT(w, tool_marker(w, "section_begin"), tool_blanks(w), body, tool_blanks(w),
                    tool_marker(w, "section_end"));
}

bool tool_bare_calls(struct tool_work *w, bool more, struct expr *ret)
{
    if (!tool_flag(w, "bare"))
        return false;
    if (arguments_are(w, "python"))
        *ret = list_of(w, any_tool(w, python_call), more, true);
    else if (tool_flag(w, "list"))
        *ret = list_of(w, any_tool(w, object_call), more, true);
    else
        *ret = any_tool(w, object_call);
    return true;
}

/* ---- begins of calls ---- */

static rx_id words(struct tool_work *w, const char *const *list)
{
    rx_id all = RX_NONE;
    for (; *list; list++)
        all = rx_or(w->s, all, rx_literal(w->s, slice_of(*list)));
    return all;
}

static rx_id cat(struct tool_work *w, const rx_id *parts, uint32_t count)
{
    rx_id all = RX_EMPTY;
    for (uint32_t i = count; i-- > 0;)
        all = rx_cat(w->s, parts[i], all);
    return all;
}
#define CAT(w, ...) cat(w, (const rx_id[]){__VA_ARGS__}, sizeof((const rx_id[]){__VA_ARGS__}) / sizeof(rx_id))

static rx_id literal(struct tool_work *w, const char *text)
{
    return rx_literal(w->s, slice_of(text));
}

/* The head of an object that has a name: other members that calls have may stand before it. */
static rx_id object_begin(struct tool_work *w)
{
    rx_id blanks = tool_any_blanks(w), quote = literal(w, "\""),
          colon = CAT(w, blanks, literal(w, ":"), blanks);
    rx_id content = rx_not(w->s, rx_cat(w->s, RX_ALL, rx_cat(w->s, quote, RX_ALL)));
    rx_id other = CAT(w, quote, words(w, (const char *const[]){"type", "id", NULL}), quote, colon, quote,
                      content, quote, blanks, literal(w, ","), blanks);
    rx_id name = words(w, (const char *const[]){"name", "function", NULL});
    if (tool_member(w, "name_key"))
        name = rx_or(w->s, name, literal(w, tool_member(w, "name_key")));
    rx_id list = tool_flag(w, "list") ? rx_repeat(w->s, CAT(w, literal(w, "["), blanks), 0, 1) : RX_EMPTY;
    return CAT(w, list, literal(w, "{"), blanks, rx_repeat(w->s, other, 0, RX_UNBOUNDED), quote, name, quote,
               colon);
}

static rx_id python_begin(struct tool_work *w)
{
    struct rx_bytes set = {{0}};
    for (const char *c = "0123456789_-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; *c; c++)
        set.bits[(unsigned char)*c / 64] |= 1ull << (unsigned char)*c % 64;
    rx_id name = rx_repeat(w->s, rx_bytes(w->s, &set), 1, RX_UNBOUNDED);
    return CAT(w, literal(w, "["), tool_any_blanks(w), name, literal(w, "("));
}

rx_id tool_bare_begin(struct tool_work *w)
{
    if (!tool_flag(w, "bare"))
        return RX_NONE;
    return rx_cat(w->s, tool_any_blanks(w), arguments_are(w, "python") ? python_begin(w) : object_begin(w));
}

/* A fence is a common text, and a mark before any other word is one as well. */
rx_id tool_call_begin(struct tool_work *w)
{
    if (tool_flag(w, "plain_names")) {
        struct rx_bytes set = {{0}};
        for (const char *c = "0123456789_-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; *c; c++)
            set.bits[(unsigned char)*c / 64] |= 1ull << (unsigned char)*c % 64;
        return CAT(w, tool_marker_text(w, "call_begin"), rx_repeat(w->s, rx_bytes(w->s, &set), 1, 128),
                   tool_marker_text(w, "name_end"));
    }
    if (tool_flag(w, "bare") && tool_flag(w, "list") && tool_has(w, "section_begin"))
        return CAT(w, tool_marker_text(w, "section_begin"), tool_any_blanks(w), object_begin(w));
    return RX_NONE;
}

/* ---- channels ---- */

static struct expr channel(struct tool_work *w, struct expr name)
{
    return TOOL_CAT(w, tool_marker(w, "channel_begin"), name);
}

static struct expr channel_call(struct tool_work *w, const json_t *tool)
{
    struct expr space = expr_rx(rx_repeat(w->s, literal(w, " "), 0, 2));
    struct expr to =
        TOOL_CAT(w, tool_literal(w, " "), tool_marker(w, "call_begin"), tool_literal(w, name_of(tool)));
    struct expr names = expr_or(w->b, tool_literal(w, "commentary"), tool_literal(w, "analysis"));
    struct expr marked = TOOL_CAT(w, tool_marker(w, "value_begin"), tool_literal(w, "json"));
    struct expr type = tool_literal(w, " json");
    if (tool_has(w, "value_begin"))
        type = expr_or(w->b, type, marked);
    type = tool_maybe(w, type);
    struct expr early = TOOL_CAT(w, to, channel(w, names)), late = TOOL_CAT(w, channel(w, names), to);
    return TOOL_CAT(w, expr_or(w->b, early, late), space, type, tool_marker(w, "name_end"), tool_blanks(w),
                    tool_json_arguments(w, tool), tool_blanks(w));
}

/* A message without a call. */
static struct expr channel_text(struct tool_work *w, bool content)
{
    static const char *const marks[] = {"section_begin", "section_end", "call_end",   "text_end",
                                        "channel_begin", "name_end",    "call_begin", NULL};
    struct expr names = tool_literal(w, "analysis");
    if (content)
        names = expr_or(w->b, names, expr_or(w->b, tool_literal(w, "commentary"), tool_literal(w, "final")));
    return TOOL_CAT(w, channel(w, names), tool_marker(w, "name_end"),
                    tool_text(w, &(struct tool_text){.without = marks}));
}

/* The prompt ends with the start of the first message. */
struct expr tool_channels(struct tool_work *w)
{
    struct expr again = TOOL_CAT(w, tool_marker(w, "section_begin"), tool_literal(w, "assistant"));
    struct expr text_end = TOOL_CAT(w, tool_marker(w, "section_end"), again);
    struct expr call = any_tool(w, channel_call), end = tool_marker(w, "call_end");
    struct expr calls = TOOL_CAT(w, call, tool_maybe(w, end));
    if (w->parallel)
        calls = TOOL_CAT(w, call, expr_repeat(w->b, TOOL_CAT(w, end, again, call), 0, RX_UNBOUNDED),
                         tool_maybe(w, end));
    struct expr before =
        expr_repeat(w->b, TOOL_CAT(w, channel_text(w, !w->required), text_end), 0, RX_UNBOUNDED);
    if (w->required)
        return TOOL_CAT(w, before, calls);
    struct expr text =
        TOOL_CAT(w, channel_text(w, true),
                 tool_maybe(w, expr_or(w->b, tool_marker(w, "section_end"), tool_marker(w, "text_end"))));
    return TOOL_CAT(w, before, expr_or(w->b, text, calls));
}
