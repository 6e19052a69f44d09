/* lark.c - two passes: the first finds the definitions, the second reads rules. Terminals are read where they
 * are first used, since they are expressions and may not be recursive. */
#include "constraint/lark.h"

#include "constraint/front_text.h"
#include "constraint/lark_json.h"
#include "constraint/lark_text.h"

#include "base/check.h"
#include "base/json/json_source_load.h"

#include <errno.h>

static struct expr alternatives(struct front_text *f, bool nested);

/* ---- terminals ---- */

static bool is_terminal(struct slice name)
{
    size_t at = 0;
    while (at < name.len && (name.ptr[at] == '_' || (name.ptr[at] >= '0' && name.ptr[at] <= '9')))
        at++;
    return at < name.len && name.ptr[at] >= 'A' && name.ptr[at] <= 'Z';
}

/* The texts of `rx` within the allowed ones. A flat grammar is cut as a whole instead. */
static rx_id within(struct front_text *f, rx_id rx)
{
    return f->flat || f->within == RX_NONE ? rx : rx_and(grammar_rx(f->b), rx, f->within);
}

static struct expr element(struct front_text *f);

/* The texts of `rx` that begin with no shorter one. */
static rx_id shortest(struct front_text *f, rx_id rx)
{
    struct rx_store *s = grammar_rx(f->b);
    rx_id longer = rx_cat(s, rx, rx_cat(s, rx_byte_range(s, 0, 0xFF), RX_ALL));
    return rx_and(s, rx, rx_not(s, longer));
}

/* The body of a rule with its attributes. The position comes back. */
static struct expr attributed(struct front_text *f, const struct front_name *n, struct expr p)
{
    const char *at = f->at, *end = f->end;
    struct expr suffix = expr_rx(RX_EMPTY);
    if (!n->lazy || f->error)
        return p;
    if (n->suffix) {
        f->at = n->suffix;
        f->end = n->body;
        suffix = element(f);
        f->at = at;
        f->end = end;
    }
    if (!p.regular || !suffix.regular)
        front_text_fail(f, -EINVAL, "%.*s is lazy, so its body and suffix are expressions without rules",
                        SLICE_ARGS(slice_sub(n->name, 0, 60)));
    return f->error ? expr_rx(RX_NONE) : expr_rx(shortest(f, rx_cat(grammar_rx(f->b), p.rx, suffix.rx)));
}

/* Reads the body of a terminal; the position comes back. */
static struct expr terminal(struct front_text *f, struct front_name *n)
{
    if (n->known)
        return n->piece;
    if (n->defined && !n->busy && f->depth == FRONT_TEXT_DEPTH_MAX) {
        front_text_fail(f, -E2BIG, "terminals are nested more than %d deep", FRONT_TEXT_DEPTH_MAX);
        return expr_rx(RX_NONE);
    }
    if (!n->defined || n->busy) {
        front_text_fail(f, -EINVAL, n->busy ? "the terminal %.*s is recursive" : "there is no terminal %.*s",
                        SLICE_ARGS(slice_sub(n->name, 0, 60)));
        return expr_rx(RX_NONE);
    }
    const char *at = f->at, *end = f->end;
    uint32_t line = f->line;
    n->busy = true;
    f->depth++;
    f->at = n->body;
    f->end = n->body_end;
    f->line = n->body_line;
    struct expr p = alternatives(f, true);
    if (!f->error && f->at < f->end)
        front_text_fail(f, -EINVAL, "%c is not expected here", lark_shown(*f->at));
    p = attributed(f, n, p);
    if (!f->error && !p.regular)
        front_text_fail(f, -EINVAL, "the terminal %.*s has a rule in it",
                        SLICE_ARGS(slice_sub(n->name, 0, 60)));
    f->depth--;
    f->at = at;
    f->end = end;
    f->line = line;
    n->busy = false;
    n->known = true;
    n->piece = f->error ? expr_rx(RX_NONE) : expr_rx(within(f, p.rx));
    return n->piece;
}

static struct expr reference(struct front_text *f)
{
    struct front_name *n = front_text_name(f, lark_name(f));
    if (!n || f->error)
        return expr_rx(RX_NONE);
    bool counted = f->end - f->at > 1 && (f->at[1] == ',' || (f->at[1] >= '0' && f->at[1] <= '9'));
    if (front_text_has(f, '{') && !counted) {
        front_text_fail(f, -ENOTSUP, "templates are not supported");
        return expr_rx(RX_NONE);
    }
    return f->flat || is_terminal(n->name) ? terminal(f, n) : expr_sym(n->rule);
}

/* ---- expressions ---- */

static struct expr group(struct front_text *f, char close)
{
    f->at++;
    if (++f->depth > FRONT_TEXT_DEPTH_MAX)
        front_text_fail(f, -E2BIG, "groups are nested more than %d deep", FRONT_TEXT_DEPTH_MAX);
    if (f->error)
        return expr_rx(RX_NONE);
    struct expr p = alternatives(f, true);
    if (!front_text_has(f, close))
        front_text_fail(f, -EINVAL, "a %c is missing", close);
    f->at++;
    f->depth--;
    return close == ']' && !f->error ? expr_repeat(f->b, p, 0, 1) : p;
}

/* The JSON object here, taken; empty: no object, or one that is too deep. */
static struct slice take_object(struct front_text *f)
{
    const char *from = f->at;
    bool string = false;
    uint32_t depth = 0;
    for (const char *at = from; front_text_has(f, '{') && at < f->end; at++) {
        if (string && *at == '\\' && f->end - at > 1)
            at++;
        else if (*at == '"')
            string = !string;
        else if (!string && (*at == '{' || *at == '[') && ++depth > FRONT_TEXT_DEPTH_MAX)
            break;
        else if (!string && (*at == '}' || *at == ']') && --depth == 0) {
            for (; f->at <= at; f->at++)
                f->line += *f->at == '\n';
            return (struct slice){from, (size_t)(f->at - from)};
        }
    }
    return SLICE("");
}

/* The schema of %json {...}, taken. */
static struct slice take_schema(struct front_text *f)
{
    f->at++;
    struct slice word = lark_name(f), schema = SLICE("");
    lark_skip(f, false);
    if (!slice_eq(word, SLICE("json")))
        front_text_fail(f, -ENOTSUP, "%%%.*s is not supported", SLICE_ARGS(slice_sub(word, 0, 60)));
    else
        schema = take_object(f);
    if (schema.len == 0)
        front_text_fail(f, -EINVAL, "%%json needs a JSON object");
    return schema;
}

static struct expr element(struct front_text *f)
{
    char c = *f->at;
    if (c == '%')
        return lark_json(f, take_schema(f));
    if (c == '(' || c == '[')
        return group(f, c == '(' ? ')' : ']');
    if (c == '"')
        return expr_rx(within(f, lark_string(f)));
    if (c == '/')
        return expr_rx(within(f, lark_regex(f)));
    if (lark_is_name(c))
        return reference(f);
    if (c == '<')
        front_text_fail(f, -ENOTSUP, "tokens as <name> are not supported");
    front_text_fail(f, -EINVAL, "%c is not expected here", lark_shown(c));
    return expr_rx(RX_NONE);
}

static struct expr counted(struct front_text *f, struct expr p)
{
    f->at++;
    lark_skip(f, false);
    uint32_t min = front_text_number(f), max = min;
    if (f->end - f->at > 2 && f->at[0] == '.' && f->at[1] == '.') {
        f->at += 2;
        max = front_text_number(f);
    }
    if (max < min)
        front_text_fail(f, -EINVAL, "~%u..%u ends before it begins", min, max);
    return f->error ? p : expr_repeat(f->b, p, min, max);
}

/* {n}, {n,}, {,m} or {n,m}. */
static struct expr braced(struct front_text *f, struct expr p)
{
    f->at++;
    uint32_t min = front_text_has(f, ',') ? 0 : front_text_number(f), max = min;
    if (front_text_has(f, ',')) {
        f->at++;
        lark_skip(f, false);
        max = front_text_has(f, '}') ? RX_UNBOUNDED : front_text_number(f);
    }
    if (!front_text_has(f, '}'))
        front_text_fail(f, -EINVAL, "a } is missing");
    if (max < min)
        front_text_fail(f, -EINVAL, "{%u,%u} ends before it begins", min, max);
    f->at += !f->error;
    return f->error ? p : expr_repeat(f->b, p, min, max);
}

static struct expr repeated(struct front_text *f, struct expr p)
{
    while (f->at < f->end && !f->error) {
        char c = *f->at;
        if (c == '~') {
            p = counted(f, p);
        } else if (c == '{') {
            p = braced(f, p);
        } else if (c == '?' || c == '*' || c == '+') {
            p = expr_repeat(f->b, p, c == '+', c == '?' ? 1 : RX_UNBOUNDED);
            f->at++;
        } else {
            break;
        }
        lark_skip(f, false);
    }
    return p;
}

static bool at_end(struct front_text *f, bool nested)
{
    return f->error || f->at >= f->end || *f->at == '|' || *f->at == ')' || *f->at == ']' ||
           (!nested && (*f->at == '\n' || *f->at == '\r'));
}

static void alias(struct front_text *f)
{
    if (f->end - f->at < 2 || f->at[0] != '-' || f->at[1] != '>')
        return;
    f->at += 2;
    lark_skip(f, false);
    lark_name(f);
    lark_skip(f, false);
}

static struct expr alternatives(struct front_text *f, bool nested)
{
    struct front_alternatives ways = {0};
    for (;;) {
        struct front_sequence row = {0};
        lark_skip(f, nested);
        while (!at_end(f, nested) && *f->at != '-') {
            struct expr p = element(f);
            lark_skip(f, false);
            front_sequence_add(f, &row, repeated(f, p));
            lark_skip(f, nested);
        }
        alias(f);
        front_alternatives_add(f, &ways, &row);
        lark_skip_to_bar(f);
        if (f->error || !front_text_has(f, '|'))
            return front_alternatives_done(f, &ways);
        f->at++;
    }
}

/* ---- definitions ---- */

/* The end of a definition: a line end that no | follows, outside groups. Strings and expressions are passed
 * over. */
static const char *body_end(struct front_text *f)
{
    uint32_t open = 0;
    for (;;) {
        lark_skip(f, open > 0);
        lark_skip_to_bar(f);
        if (f->error || f->at >= f->end || (open == 0 && (*f->at == '\n' || *f->at == '\r')))
            return f->at;
        char c = *f->at;
        if (c == '"' || c == '/')
            lark_pass(f, c);
        else if (c == '%')
            take_schema(f);
        if (c == '"' || c == '/' || c == '%')
            continue;
        open += c == '(' || c == '[';
        open -= (c == ')' || c == ']') && open > 0;
        f->at++;
    }
}

/* Over the value of an attribute: a string, an expression, a name or a number. */
static void pass_value(struct front_text *f)
{
    if (front_text_has(f, '"') || front_text_has(f, '/'))
        lark_pass(f, *f->at);
    else
        while (f->at < f->end && (lark_is_name(*f->at) || *f->at == '.'))
            f->at++;
}

/* One of a rule, as guidance writes them. Captures are names of parts that a client finds by itself. */
static void attribute(struct front_text *f, struct front_name *n)
{
    static const struct {
        const char *name, *why;
    } refused[] = {
        {"max_tokens", ": send the request's max_tokens, or bound the expression, as in /.{0,80}/"},
        {"stop", ": it takes text back that was sent, suffix keeps it"},
        {"temperature", ": send the request's temperature"}};
    struct slice name = lark_name(f);
    const char *value = NULL, *why = "";
    lark_skip(f, false);
    if (front_text_has(f, '=')) {
        f->at++;
        lark_skip(f, false);
        value = f->at;
        pass_value(f);
        lark_skip(f, false);
    }
    if (slice_eq(name, SLICE("capture")) || slice_eq(name, SLICE("stop_capture")))
        return;
    if (value ? slice_eq(name, SLICE("suffix")) : slice_eq(name, SLICE("lazy"))) {
        n->lazy = true;
        n->suffix = value ? value : n->suffix;
        return;
    }
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        if (slice_eq(name, slice_of(refused[i].name)))
            why = refused[i].why;
    front_text_fail(f, -ENOTSUP, "the attribute %.*s of a rule is not supported%s",
                    SLICE_ARGS(slice_sub(name, 0, 60)), why);
}

static void attributes(struct front_text *f, struct front_name *n)
{
    do {
        f->at++;
        lark_skip(f, false);
        attribute(f, n);
    } while (!f->error && front_text_has(f, ','));
    if (!front_text_has(f, ']'))
        front_text_fail(f, -EINVAL, "a ] is missing");
    f->at++;
}

static void define(struct front_text *f)
{
    while (f->at < f->end && (*f->at == '?' || *f->at == '!'))
        f->at++;
    struct front_name *n = front_text_name(f, lark_name(f));
    if (!n || f->error)
        return;
    if (front_text_has(f, '{'))
        front_text_fail(f, -ENOTSUP, "templates are not supported");
    if (front_text_has(f, '[') && !f->error)
        attributes(f, n);
    if (front_text_has(f, '.'))
        while (f->at < f->end && (*f->at == '.' || *f->at == '-' || (*f->at >= '0' && *f->at <= '9')))
            f->at++;
    lark_skip(f, false);
    if (!front_text_has(f, ':'))
        front_text_fail(f, -EINVAL, "a : is missing after %.*s", SLICE_ARGS(slice_sub(n->name, 0, 60)));
    if (n->defined)
        front_text_fail(f, -EINVAL, "%.*s is defined twice", SLICE_ARGS(slice_sub(n->name, 0, 60)));
    if (f->error)
        return;
    n->defined = true;
    n->body = ++f->at;
    n->body_line = f->line;
    n->body_end = body_end(f);
}

static void import_one(struct front_text *f, struct slice name, struct slice as)
{
    rx_id rx = lark_common(f, name);
    struct front_name *n = f->error ? NULL : front_text_name(f, as);
    if (!n)
        return;
    n->defined = n->known = true;
    n->piece = expr_rx(rx);
}

/* %import common.NAME, common.NAME -> OTHER, or common (NAME, NAME). */
static void import(struct front_text *f)
{
    struct slice from = lark_name(f);
    if (!slice_eq(from, SLICE("common")))
        front_text_fail(f, -ENOTSUP, "%%import is supported from common only");
    bool one = front_text_has(f, '.');
    f->at += one;
    lark_skip(f, false);
    bool list = !one && front_text_has(f, '(');
    f->at += list;
    if (!one && !list)
        front_text_fail(f, -EINVAL, "%%import needs common.NAME or common (NAME, ...)");
    do {
        lark_skip(f, list);
        struct slice name = lark_name(f), as = name;
        lark_skip(f, list);
        if (one && f->end - f->at > 2 && f->at[0] == '-' && f->at[1] == '>') {
            f->at += 2;
            lark_skip(f, false);
            as = lark_name(f);
        }
        if (!f->error)
            import_one(f, name, as);
    } while (!f->error && list && front_text_has(f, ',') && f->at++);
    if (list && !front_text_has(f, ')'))
        front_text_fail(f, -EINVAL, "a ) is missing");
    f->at += list;
}

/* %llguidance {...}: which lexer another engine takes. Its options say how that one works, and which texts
 * between tokens it skips, which no grammar that is supported here has. */
static void header(struct front_text *f)
{
    static const char *const known[] = {"no_forcing", "allow_initial_skip", "allow_invalid_utf8",
                                        "verbose_errors", "test_trace"};
    struct slice source = take_object(f);
    const char *name;
    json_error_t e;
    json_t *options = source.len ? json_source_load(source, JSON_REJECT_DUPLICATES, &e) : NULL, *value;
    if (!options)
        front_text_fail(f, -EINVAL, "%%llguidance needs a JSON object");
    json_object_foreach(options, name, value) {
        bool found = false;
        for (size_t i = 0; i < COUNT_OF(known); i++)
            found = found || strcmp(name, known[i]) == 0;
        if (!found)
            front_text_fail(f, -ENOTSUP, "the option \"%.40s\" of %%llguidance is not supported", name);
    }
    json_decref(options);
}

static void statement(struct front_text *f)
{
    if (*f->at != '%') {
        define(f);
        return;
    }
    f->at++;
    struct slice word = lark_name(f);
    lark_skip(f, false);
    if (slice_eq(word, SLICE("import")))
        import(f);
    else if (slice_eq(word, SLICE("llguidance")))
        header(f);
    else
        front_text_fail(f, -ENOTSUP, "%%%.*s is not supported", SLICE_ARGS(slice_sub(word, 0, 60)));
}

static void read_rule(struct front_text *f, struct front_name *n)
{
    if (!n->defined) {
        f->line = n->line;
        front_text_fail(f, -EINVAL, "there is no rule %.*s", SLICE_ARGS(slice_sub(n->name, 0, 60)));
        return;
    }
    f->at = n->body;
    f->end = n->body_end;
    f->line = n->body_line;
    struct expr p = alternatives(f, false);
    if (!f->error && f->at < f->end)
        front_text_fail(f, -EINVAL, "%c is not expected here", lark_shown(*f->at));
    p = attributed(f, n, p);
    if (f->error)
        return;
    bool empty = p.regular && p.rx == RX_EMPTY;
    sym_id s = empty ? 0 : expr_symbol(f->b, p);
    grammar_alternative(f->b, n->rule, &s, empty ? 0 : 1);
}

static void read_all(struct front_text *f, struct front_name *start)
{
    if (f->flat) {
        terminal(f, start);
        return;
    }
    for (struct front_name *n = f->first; n && !f->error && !grammar_builder_failed(f->b); n = n->listed)
        if (is_terminal(n->name))
            terminal(f, n);
        else
            read_rule(f, n);
}

/* A flat grammar is one terminal. */
static sym_id result(struct front_text *f, const struct front_name *start, rx_id within_all)
{
    if (!f->flat)
        return start->rule;
    rx_id rx = rx_and(grammar_rx(f->b), start->piece.rx, within_all);
    if (rx != RX_EMPTY)
        return grammar_terminal(f->b, rx);
    grammar_alternative(f->b, start->rule, NULL, 0);
    return start->rule;
}

static int compile(struct grammar_builder *b, struct slice text, const struct lark_opts *opts, bool flat,
                   sym_id *ret, struct err *e)
{
    struct front_text f;
    int r = front_text_open(&f, b, text, opts->charge, "Lark", e);
    if (r < 0)
        goto done;
    f.encode = opts->encode;
    f.encode_arg = opts->encode_arg;
    f.within = opts->within;
    f.flat = flat;
    f.schemas = opts->schemas;
    lark_skip(&f, true);
    while (f.at < f.end && !f.error && !grammar_builder_failed(b)) {
        statement(&f);
        lark_skip(&f, true);
    }
    struct front_name *start = f.error ? NULL : front_text_name(&f, SLICE("start"));
    if (start && !start->defined)
        front_text_fail(&f, -EINVAL, "there is no rule start");
    if (start && !f.error)
        read_all(&f, start);
    r = f.error;
    if (r == 0)
        *ret = result(&f, start, opts->within);
done:
    front_text_close(&f);
    return r;
}

int lark_compile_as(struct grammar_builder *b, struct slice text, const struct lark_opts *opts, sym_id *ret,
                    struct err *e)
{
    struct err why = {{0}};
    if (opts->within != RX_NONE && compile(b, text, opts, true, ret, &why) == 0)
        return 0;
    return compile(b, text, opts, false, ret, e);
}

int lark_compile(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                 struct err *e)
{
    const struct lark_opts opts = {.charge = charge};
    return lark_compile_as(b, text, &opts, ret, e);
}
