/* tool_text.c - markers and the text between them. A special token stands in no text of bytes, so text is
 * runs of bytes and tokens in turn. */
#include "constraint/tool_work.h"

#include "base/check.h"
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>

enum { BLANKS_MAX = 16, TOKEN_MAX = 1 << 21 };

int tool_fail(struct tool_work *w, int code, const char *format, ...)
{
    if (w->error)
        return w->error;
    va_list args;
    va_start(args, format);
    if (w->e)
        vsnprintf(w->e->text, sizeof(w->e->text), format, args);
    va_end(args);
    return w->error = code;
}

bool tool_flag(const struct tool_work *w, const char *name)
{
    return json_is_true(json_object_get(w->source, name));
}

const char *tool_member(const struct tool_work *w, const char *name)
{
    return json_string_value(json_object_get(w->source, name));
}

/* ---- markers ---- */

bool tool_has(const struct tool_work *w, const char *marker)
{
    return json_array_size(json_object_get(w->markers, marker)) > 0;
}

bool tool_has_token(const struct tool_work *w, const char *marker)
{
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(w->markers, marker), i, part)
        if (json_is_integer(part))
            return true;
    return false;
}

static struct expr token(struct tool_work *w, const json_t *id)
{
    json_int_t value = json_integer_value(id);
    if (value < 0 || value >= TOKEN_MAX) {
        tool_fail(w, -EINVAL, "%lld is not a token", (long long)value);
        return expr_rx(RX_NONE);
    }
    return expr_sym(grammar_token(w->b, (uint32_t)value));
}

struct expr tool_marker(struct tool_work *w, const char *marker)
{
    struct expr all = expr_rx(RX_EMPTY);
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(w->markers, marker), i, part)
        all = expr_cat(w->b, all,
                       json_is_integer(part) ? token(w, part)
                                             : expr_rx(rx_literal(w->s, slice_of(json_string_value(part)))));
    return all;
}

rx_id tool_marker_text(struct tool_work *w, const char *marker)
{
    struct expr p = tool_has(w, marker) ? tool_marker(w, marker) : expr_rx(RX_NONE);
    return p.regular ? p.rx : RX_NONE;
}

struct expr tool_literal(struct tool_work *w, const char *text)
{
    return expr_rx(rx_literal(w->s, slice_of(text)));
}

static rx_id blank(struct tool_work *w)
{
    struct rx_bytes set = {{0}};
    for (const char *c = " \t\r\n"; *c; c++)
        set.bits[0] |= 1ull << *c;
    return rx_bytes(w->s, &set);
}

struct expr tool_blanks(struct tool_work *w)
{
    return expr_rx(rx_repeat(w->s, blank(w), 0, BLANKS_MAX));
}

rx_id tool_any_blanks(struct tool_work *w)
{
    return rx_repeat(w->s, blank(w), 0, RX_UNBOUNDED);
}

struct expr tool_cat(struct tool_work *w, const struct expr *parts, uint32_t count)
{
    struct expr all = expr_rx(RX_EMPTY);
    for (uint32_t i = 0; i < count; i++)
        all = expr_cat(w->b, all, parts[i]);
    return all;
}

struct expr tool_maybe(struct tool_work *w, struct expr p)
{
    return expr_or(w->b, expr_rx(RX_EMPTY), p);
}

/* ---- text ---- */

static bool has_token(const struct tool_work *w, const char *marker, json_int_t id)
{
    size_t i;
    json_t *part;
    json_array_foreach(json_object_get(w->markers, marker), i, part)
        if (json_is_integer(part) && json_integer_value(part) == id)
            return true;
    return false;
}

/* A token of a marker stands in no such text, even without the rest of the marker. */
static bool may_stand(const struct tool_work *w, const struct tool_text *t, json_int_t id)
{
    for (uint32_t i = 0; t->without[i]; i++)
        if (has_token(w, t->without[i], id))
            return false;
    return !t->reasons || !has_token(w, "reasoning_open", id);
}

/* Any one special token that may stand in the text; RX_NONE: no token. */
static struct expr special(struct tool_work *w, const struct tool_text *t)
{
    struct expr all = expr_rx(RX_NONE);
    size_t i;
    json_t *id;
    json_array_foreach(w->specials, i, id) {
        if (!json_is_integer(id) || !may_stand(w, t, json_integer_value(id)))
            continue;
        struct expr one = token(w, id);
        all = all.regular ? one : expr_or(w->b, all, one);
    }
    return all;
}

static rx_id run_of(struct tool_work *w, const struct tool_text *t)
{
    rx_id found = t->also;
    for (uint32_t i = 0; t->without[i]; i++)
        found = rx_or(w->s, found, tool_marker_text(w, t->without[i]));
    return found == RX_NONE ? RX_ALL : rx_not(w->s, rx_cat(w->s, RX_ALL, rx_cat(w->s, found, RX_ALL)));
}

struct expr tool_text(struct tool_work *w, const struct tool_text *t)
{
    rx_id run = run_of(w, t), first = run;
    if (t->start != RX_NONE)
        first = rx_and(w->s, run, rx_not(w->s, rx_cat(w->s, t->start, RX_ALL)));
    struct expr between = special(w, t);
    if (t->reasons && tool_has_token(w, "reasoning_open") && tool_has(w, "reasoning_close")) {
        struct expr part = TOOL_CAT(w, tool_marker(w, "reasoning_open"), tool_reasoning_text(w),
                                    tool_marker(w, "reasoning_close"));
        between = between.regular ? part : expr_or(w->b, between, part);
    }
    if (between.regular)
        return expr_rx(first);
    sym_id rule = grammar_rule(w->b), head = grammar_terminal(w->b, first);
    sym_id more[] = {rule, expr_symbol(w->b, between), grammar_terminal(w->b, run)};
    grammar_alternative(w->b, rule, &head, 1);
    grammar_alternative(w->b, rule, more, COUNT_OF(more));
    return expr_sym(rule);
}

struct expr tool_reasoning_text(struct tool_work *w)
{
    static const char *const close[] = {"reasoning_close", NULL};
    return tool_text(w, &(struct tool_text){.without = close});
}
