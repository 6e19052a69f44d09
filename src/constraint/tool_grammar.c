/* tool_grammar.c - a reply: reasoning, text and calls in their order. What the parser of replies would take
 * for the start of a call is in no text. */
#include "constraint/tool_grammar.h"

#include "constraint/tool_work.h"

#include "base/err.h"
#include "schema/schema.h"

#include <errno.h>

static const char *const call_marks[] = {"section_begin", "call_begin", NULL};
static const char *const no_marks[] = {NULL};

/* ---- the parts ---- */

static struct expr text(struct tool_work *w, rx_id start)
{
    rx_id also = tool_call_begin(w);
    struct tool_text t = {
        .without = also == RX_NONE ? call_marks : no_marks, .also = also, .start = start, .reasons = true};
    return tool_text(w, &t);
}

/* Text at the start of a reply: a call without a marker, or reasoning, may begin there. */
static struct expr first_text(struct tool_work *w)
{
    rx_id start = tool_bare_begin(w);
    bool reasons = tool_has(w, "reasoning_open") && tool_has(w, "reasoning_close");
    if (reasons && !tool_flag(w, "in_reasoning"))
        start = rx_or(w->s, start, rx_cat(w->s, tool_any_blanks(w), tool_marker_text(w, "reasoning_open")));
    return text(w, start);
}

/* More text may follow calls: their end is certain. */
static bool text_may_follow(const struct tool_work *w)
{
    return tool_has(w, "section_end") || (tool_has(w, "call_end") && !tool_has(w, "section_begin"));
}

/* A list without an end of its own has all calls. */
static struct expr more_calls(struct tool_work *w)
{
    struct expr next = TOOL_CAT(w, tool_blanks(w), tool_calls(w, true));
    bool again = w->parallel && (tool_has(w, "section_end") || !tool_flag(w, "list"));
    return again ? expr_repeat(w->b, next, 0, RX_UNBOUNDED) : expr_rx(RX_EMPTY);
}

static struct expr required_calls(struct tool_work *w)
{
    struct expr calls = TOOL_CAT(w, tool_calls(w, w->parallel), more_calls(w)), bare;
    if (tool_bare_calls(w, w->parallel, &bare))
        calls = tool_has(w, "section_begin") ? expr_or(w->b, calls, bare) : bare;
    /* Where only the end of text is marked, the template writes the mark before calls, too. */
    struct expr end = expr_rx(RX_EMPTY);
    if (!tool_has(w, "text_begin") && tool_has(w, "text_end"))
        end = tool_maybe(w, TOOL_CAT(w, tool_marker(w, "text_end"), tool_blanks(w)));
    return TOOL_CAT(w, tool_blanks(w), end, calls);
}

static struct expr text_and_calls(struct tool_work *w)
{
    struct expr head = first_text(w), bare, calls = tool_calls(w, w->parallel);
    struct expr ret = head;
    if (tool_flag(w, "bare") && !tool_has(w, "section_begin"))
        calls = expr_rx(RX_NONE);
    if (!w->parallel)
        ret = TOOL_CAT(w, head, tool_maybe(w, TOOL_CAT(w, calls, tool_blanks(w))));
    else if (text_may_follow(w))
        ret = TOOL_CAT(w, head, expr_repeat(w->b, TOOL_CAT(w, calls, text(w, RX_NONE)), 0, RX_UNBOUNDED));
    else
        ret = TOOL_CAT(w, head, tool_maybe(w, TOOL_CAT(w, calls, more_calls(w), tool_blanks(w))));
    if (tool_bare_calls(w, w->parallel, &bare))
        ret = expr_or(w->b, ret, TOOL_CAT(w, tool_blanks(w), bare, tool_blanks(w)));
    return ret;
}

/* Instead of text: JSON of a schema, or calls. */
static struct expr schema_or_calls(struct tool_work *w, const json_t *schema)
{
    struct schema_opts opts = {.wanted = w->opts->wanted, .charge = w->opts->charge, .plain = true};
    struct err why = {{0}};
    sym_id sym;
    int r = schema_compile(w->b, schema, &opts, &sym, &why);
    if (r < 0) {
        tool_fail(w, r, "%s", why.text);
        return expr_rx(RX_NONE);
    }
    struct expr text = TOOL_CAT(w, tool_blanks(w), tool_maybe(w, tool_marker(w, "text_begin")),
                                tool_blanks(w), expr_sym(sym), tool_maybe(w, tool_marker(w, "text_end")));
    return expr_or(w->b, text, required_calls(w));
}

/* ---- a prompt that ends with the first marker ---- */

/* Calls and texts in turn, each with the marker before it but the first. */
static struct expr opened(struct tool_work *w)
{
    struct expr body = tool_call_bodies(w), mark = TOOL_CAT(w, tool_blanks(w), tool_marker(w, "call_begin"));
    struct expr name =
        TOOL_CAT(w, tool_literal(w, tool_member(w, "text_to") ? tool_member(w, "text_to") : ""),
                 tool_marker(w, "name_end"));
    struct expr say = TOOL_CAT(w, name, text(w, RX_NONE)), call = TOOL_CAT(w, mark, body);
    struct expr more = w->parallel ? expr_repeat(w->b, call, 0, RX_UNBOUNDED) : expr_rx(RX_EMPTY);
    struct expr calls = TOOL_CAT(w, body, more, tool_blanks(w));
    if (w->required)
        return calls;
    struct expr then = TOOL_CAT(w, mark, calls);
    return expr_or(w->b, calls, TOOL_CAT(w, say, tool_maybe(w, then)));
}

/* ---- the whole ---- */

static struct expr reply(struct tool_work *w)
{
    const char *shape = tool_member(w, "shape");
    if (shape && strcmp(shape, "channels") == 0)
        return tool_channels(w);
    if (tool_flag(w, "opened"))
        return opened(w);
    const json_t *schema = json_object_get(w->source, "format");
    if (schema && !w->required)
        return schema_or_calls(w, schema);
    return w->required ? required_calls(w) : text_and_calls(w);
}

static struct expr with_reasoning(struct tool_work *w, struct expr rest)
{
    if (!tool_has(w, "reasoning_close"))
        return rest;
    struct expr inside = tool_reasoning_text(w);
    struct expr whole = TOOL_CAT(w, inside, tool_marker(w, "reasoning_close"), rest);
    if (tool_flag(w, "in_reasoning"))
        return w->required ? whole : expr_or(w->b, whole, inside);
    if (!tool_has(w, "reasoning_open"))
        return rest;
    /* Elsewhere a token that opens reasoning is a part of the text. */
    bool within = !w->required && !json_object_get(w->source, "format");
    if (within && tool_has_token(w, "reasoning_open"))
        return rest;
    struct expr opens = TOOL_CAT(w, tool_blanks(w), tool_marker(w, "reasoning_open"), whole);
    return expr_or(w->b, rest, opens);
}

static int check_tools(struct tool_work *w)
{
    size_t i;
    json_t *tool;
    if (!json_is_object(w->source) || !tool_member(w, "arguments") || json_array_size(w->tools) == 0)
        return tool_fail(w, -EINVAL, "there is no tool that may be called");
    if (json_array_size(w->tools) > TOOL_COUNT_MAX)
        return tool_fail(w, -E2BIG, "at most %d tools may be called", TOOL_COUNT_MAX);
    json_array_foreach(w->tools, i, tool)
        if (!json_string_value(json_object_get(tool, "name")))
            return tool_fail(w, -EINVAL, "a tool has no name");
    return 0;
}

int tool_grammar_compile(struct grammar_builder *b, const json_t *source, const struct schema_opts *opts,
                         sym_id *ret, struct err *e)
{
    struct tool_work w = {.b = b,
                          .s = grammar_rx(b),
                          .opts = opts,
                          .e = e,
                          .source = source,
                          .markers = json_object_get(source, "markers"),
                          .specials = json_object_get(source, "specials"),
                          .tools = json_object_get(source, "tools"),
                          .any_python = UINT32_MAX,
                          .any_braced = UINT32_MAX};
    if (check_tools(&w) < 0)
        return w.error;
    json_text_init(&w.json, b);
    w.required = tool_flag(&w, "required");
    w.parallel = tool_flag(&w, "parallel");
    w.by_schema = w.required && json_array_size(w.tools) <= TOOL_SCHEMAS_MAX;
    struct expr all = with_reasoning(&w, reply(&w));
    *ret = expr_symbol(b, all);
    return w.error;
}
