/* jinja_parse.c - statements, and the way from a source to a template.
 *
 * Recursive descent over the lexer with one token in hand. Every construct that can hold others counts a level. */
#include "text/jinja_parse.h"

#include "base/check.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static struct jinja_node *parse_body(struct jinja_parser *p, const char *const *ends);

/* ---- what both halves use ---- */

void *jinja_parse_fail(struct jinja_parser *p, const char *format, ...)
{
    char text[400];
    va_list ap;
    if (p->error)
        return NULL;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    p->error = err_set(p->e, -EINVAL, "line %u: %s", p->token.line, text);
    return NULL;
}

void *jinja_parse_alloc(struct jinja_parser *p, size_t bytes)
{
    void *m = p->error ? NULL : arena_alloc_align(p->a, bytes, 8);
    if (!m && !p->error)
        p->error = err_set(p->e, -ENOMEM, "no memory left for the chat template");
    return m;
}

struct jinja_node *jinja_parse_node(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = jinja_parse_alloc(p, sizeof(*n));
    if (n) {
        n->kind = (uint8_t)kind;
        n->line = p->token.line;
    }
    return n;
}

struct jinja_node *jinja_parse_constant(struct jinja_parser *p, struct slice text)
{
    struct jinja_node *n = jinja_parse_node(p, NODE_CONST);
    struct jinja_str *s = jinja_parse_alloc(p, sizeof(*s));
    if (!n || !s)
        return NULL;
    *s = (struct jinja_str){.ptr = text.ptr ? text.ptr : "", .len = text.len};
    /* Counted now: a rendering must not write into what all renderings share. */
    for (size_t i = 0; i < s->len; i++)
        s->chars += ((unsigned char)s->ptr[i] & 0xC0) != 0x80;
    n->value = (struct jinja_value){VALUE_STR, {.s = s}};
    return n;
}

uint32_t jinja_parse_symbol(struct jinja_parser *p, struct slice name)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (unsigned char)name.ptr[i]) * 16777619u;
    struct jinja_symbol_entry **at = &p->buckets[h % JINJA_SYMBOL_BUCKETS];
    for (; *at; at = &(*at)->next)
        if (slice_eq((*at)->name, name))
            return (*at)->symbol;
    struct jinja_symbol_entry *s = jinja_parse_alloc(p, sizeof(*s));
    if (!s)
        return 0;
    *s = (struct jinja_symbol_entry){name, p->symbol_count++, NULL};
    *at = s;
    return s->symbol;
}

bool jinja_parse_enter(struct jinja_parser *p)
{
    if (++p->depth > JINJA_PARSE_DEPTH_MAX)
        jinja_parse_fail(p, "more than %d expressions and blocks inside each other", JINJA_PARSE_DEPTH_MAX);
    return !p->error;
}

void jinja_parse_advance(struct jinja_parser *p)
{
    if (p->error)
        return;
    p->error = jinja_lex_next(&p->lex, &p->token, p->e);
    if (p->error)
        p->token.kind = TOKEN_END;
}

bool jinja_parse_is_op(const struct jinja_parser *p, const char *op)
{
    return p->token.kind == TOKEN_OPERATOR && slice_eq(p->token.text, slice_of(op));
}

bool jinja_parse_is_name(const struct jinja_parser *p, const char *name)
{
    return p->token.kind == TOKEN_NAME && slice_eq(p->token.text, slice_of(name));
}

bool jinja_parse_skip_op(struct jinja_parser *p, const char *op)
{
    bool is = !p->error && jinja_parse_is_op(p, op);
    if (is)
        jinja_parse_advance(p);
    return is;
}

bool jinja_parse_skip_name(struct jinja_parser *p, const char *name)
{
    bool is = !p->error && jinja_parse_is_name(p, name);
    if (is)
        jinja_parse_advance(p);
    return is;
}

/* What stands at the current place, for messages. */
static struct slice token_words(const struct jinja_parser *p)
{
    switch (p->token.kind) {
    case TOKEN_BLOCK_END:
    case TOKEN_PRINT_END:
        return SLICE("the end of the tag");
    case TOKEN_END:
        return SLICE("the end of the template");
    default:
        return slice_sub(p->token.text, 0, 80);
    }
}

bool jinja_parse_expect_op(struct jinja_parser *p, const char *op)
{
    if (p->error || jinja_parse_skip_op(p, op))
        return !p->error;
    return jinja_parse_fail(p, "expected '%s', found '%.*s'", op, SLICE_ARGS(token_words(p))) != NULL;
}

struct slice jinja_parse_expect_name(struct jinja_parser *p)
{
    struct slice name = p->token.text;
    if (p->token.kind != TOKEN_NAME)
        jinja_parse_fail(p, "expected a name, found '%.*s'", SLICE_ARGS(token_words(p)));
    jinja_parse_advance(p);
    return p->error ? (struct slice){0} : name;
}

static bool expect_kind(struct jinja_parser *p, enum jinja_token_kind kind)
{
    if (!p->error && p->token.kind != kind)
        jinja_parse_fail(p, "expected the end of the tag, found '%.*s'", SLICE_ARGS(token_words(p)));
    jinja_parse_advance(p);
    return !p->error;
}

/* ---- statements ---- */

/* A body behind %}, and the name that ends it; its own %} is left for parse_statement(). */
static struct jinja_node *body_until(struct jinja_parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct jinja_node *body = expect_kind(p, TOKEN_BLOCK_END) ? parse_body(p, ends) : NULL;
    jinja_parse_skip_name(p, end);
    return body;
}

static struct jinja_node *parse_if(struct jinja_parser *p, struct jinja_node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct jinja_node **at = &n->first;
    bool otherwise = false;
    n->kind = NODE_IF;
    p->conditions++;
    do {
        struct jinja_node *branch = jinja_parse_node(p, NODE_BRANCH);
        struct jinja_node *condition = otherwise ? NULL : jinja_parse_tuple(p, false, NULL);
        if (!branch || !expect_kind(p, TOKEN_BLOCK_END))
            return NULL;
        branch->first = condition;
        branch->body = parse_body(p, otherwise ? ends + 2 : ends);
        *at = branch;
        at = &branch->next;
        otherwise = jinja_parse_is_name(p, "else");
    } while (jinja_parse_skip_name(p, "elif") || jinja_parse_skip_name(p, "else"));
    p->conditions--;
    jinja_parse_skip_name(p, "endif");
    return n;
}

static struct jinja_node *parse_for(struct jinja_parser *p, struct jinja_node *n)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    n->kind = NODE_FOR;
    n->first = jinja_parse_target(p, false, "in");
    if (!n->first || p->error)
        return NULL;
    if (!jinja_parse_skip_name(p, "in"))
        return jinja_parse_fail(p, "expected 'in', found '%.*s'", SLICE_ARGS(token_words(p)));
    n->first->next = jinja_parse_tuple(p, false, "recursive");
    if (jinja_parse_skip_name(p, "if"))
        n->test = jinja_parse_expression(p);
    n->recursive = jinja_parse_skip_name(p, "recursive");
    if (!expect_kind(p, TOKEN_BLOCK_END))
        return NULL;
    p->loops++;
    n->body = parse_body(p, ends);
    p->loops--;
    if (jinja_parse_skip_name(p, "else"))
        n->otherwise = body_until(p, "endfor");
    else
        jinja_parse_skip_name(p, "endfor");
    return n;
}

static struct jinja_node *parse_set(struct jinja_parser *p, struct jinja_node *n)
{
    n->kind = NODE_SET;
    n->first = jinja_parse_target(p, true, "=");
    if (!n->first)
        return NULL;
    if (jinja_parse_skip_op(p, "=")) {
        n->first->next = jinja_parse_tuple(p, true, NULL);
        return n;
    }
    n->kind = NODE_SET_BLOCK;
    if (jinja_parse_skip_op(p, "|"))
        n->filters = jinja_parse_filters(p);
    n->body = body_until(p, "endset");
    return n;
}

/* (a, b=1): the parameters of a macro. */
static void parse_parameters(struct jinja_parser *p, struct jinja_macro_node *m)
{
    uint32_t capacity = 0;
    while (!p->error && !jinja_parse_is_op(p, ")")) {
        if (m->count > 0 && !jinja_parse_expect_op(p, ","))
            return;
        if (m->count == capacity) {
            capacity = capacity ? 2 * capacity : 8;
            struct jinja_parameter *more = jinja_parse_alloc(p, capacity * sizeof(*more));
            if (!more)
                return;
            if (m->count)
                memcpy(more, m->parameters, m->count * sizeof(*more));
            m->parameters = more;
        }
        struct jinja_parameter *parameter = &m->parameters[m->count];
        parameter->symbol = jinja_parse_symbol(p, jinja_parse_expect_name(p));
        if (jinja_parse_skip_op(p, "="))
            parameter->absent = jinja_parse_expression(p);
        else if (m->count > 0 && m->parameters[m->count - 1].absent)
            jinja_parse_fail(p, "a parameter without a default follows one with a default");
        m->count++;
    }
    jinja_parse_expect_op(p, ")");
}

/* A macro's parameters (if there are any) and body; what it stands in does not reach inside. */
static void parse_macro_parts(struct jinja_parser *p, struct jinja_macro_node *m, struct jinja_node **call,
                              const char *end)
{
    struct jinja_macro_node *outer = p->macro;
    uint32_t loops = p->loops;
    p->macro = m;
    p->loops = 0;
    if (jinja_parse_skip_op(p, "("))
        parse_parameters(p, m);
    else if (!call)
        jinja_parse_expect_op(p, "(");
    p->macro = outer;
    if (call)
        *call = jinja_parse_expression(p);
    p->macro = m;
    m->body = body_until(p, end);
    p->macro = outer;
    p->loops = loops;
    /* A macro inside that names `caller` means its own, but what it leaves unbound is ours. */
    if (outer) {
        outer->takes_caller |= m->takes_caller && call;
        outer->takes_varargs |= m->takes_varargs && call;
        outer->takes_kwargs |= m->takes_kwargs && call;
    }
}

static struct jinja_node *parse_macro(struct jinja_parser *p, struct jinja_node *n)
{
    n->kind = NODE_MACRO;
    n->macro = jinja_parse_alloc(p, sizeof(*n->macro));
    if (!n->macro)
        return NULL;
    n->macro->name = jinja_parse_expect_name(p);
    n->macro->symbol = jinja_parse_symbol(p, n->macro->name);
    parse_macro_parts(p, n->macro, NULL, "endmacro");
    return n;
}

static struct jinja_node *parse_call_block(struct jinja_parser *p, struct jinja_node *n)
{
    n->kind = NODE_CALL_BLOCK;
    n->macro = jinja_parse_alloc(p, sizeof(*n->macro));
    if (!n->macro)
        return NULL;
    n->macro->name = SLICE("caller");
    n->macro->symbol = SYMBOL_CALLER;
    parse_macro_parts(p, n->macro, &n->first, "endcall");
    if (!p->error && (!n->first || n->first->kind != NODE_CALL))
        return jinja_parse_fail(p, "{%% call %%} wants a call");
    return n;
}

static struct jinja_node *parse_with(struct jinja_parser *p, struct jinja_node *n)
{
    struct jinja_node **at = &n->first;
    n->kind = NODE_WITH;
    while (!p->error && p->token.kind != TOKEN_BLOCK_END) {
        if (n->first && !jinja_parse_expect_op(p, ","))
            return NULL;
        struct jinja_node *target = jinja_parse_target(p, false, "=");
        struct jinja_node *value = jinja_parse_node(p, NODE_OPERAND);
        if (!target || !value || !jinja_parse_expect_op(p, "="))
            return NULL;
        value->first = jinja_parse_expression(p);
        *at = target;
        target->next = value;
        at = &value->next;
    }
    n->body = body_until(p, "endwith");
    return n;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *p, struct jinja_node *n)
{
    n->kind = NODE_FILTER_BLOCK;
    n->filters = jinja_parse_filters(p);
    n->body = body_until(p, "endfilter");
    return n;
}

/* What transformers adds to mark the assistant's own words; it prints its body. */
static struct jinja_node *parse_generation(struct jinja_parser *p, struct jinja_node *n)
{
    n->kind = NODE_SCOPE;
    n->body = body_until(p, "endgeneration");
    return n;
}

static struct jinja_node *parse_jump(struct jinja_parser *p, struct jinja_node *n, enum jinja_node_kind kind)
{
    n->kind = (uint8_t)kind;
    if (p->loops == 0)
        return jinja_parse_fail(p, "break and continue stand inside of loops");
    return n;
}

static struct jinja_node *parse_break(struct jinja_parser *p, struct jinja_node *n)
{
    return parse_jump(p, n, NODE_BREAK);
}

static struct jinja_node *parse_continue(struct jinja_parser *p, struct jinja_node *n)
{
    return parse_jump(p, n, NODE_CONTINUE);
}

static const struct statement {
    const char *name;
    struct jinja_node *(*parse)(struct jinja_parser *p, struct jinja_node *n);
} statements[] = {{"if", parse_if},           {"for", parse_for},
                  {"set", parse_set},         {"macro", parse_macro},
                  {"call", parse_call_block}, {"filter", parse_filter_block},
                  {"with", parse_with},       {"generation", parse_generation},
                  {"break", parse_break},     {"continue", parse_continue}};

/* Behind {%, up to and with %}. */
static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, NODE_SCOPE);
    if (p->token.kind != TOKEN_NAME)
        return jinja_parse_fail(p, "expected a statement, found '%.*s'", SLICE_ARGS(token_words(p)));
    for (size_t i = 0; n && i < COUNT_OF(statements); i++) {
        if (!jinja_parse_is_name(p, statements[i].name))
            continue;
        if (!jinja_parse_enter(p))
            return NULL;
        jinja_parse_advance(p);
        n = statements[i].parse(p, n);
        p->depth--;
        return n && expect_kind(p, TOKEN_BLOCK_END) ? n : NULL;
    }
    return jinja_parse_fail(p, "no statement named '%.*s' is known here", SLICE_ARGS(token_words(p)));
}

static struct jinja_node *parse_print(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_node(p, NODE_PRINT);
    jinja_parse_advance(p);
    if (n)
        n->first = jinja_parse_tuple(p, true, NULL);
    return expect_kind(p, TOKEN_PRINT_END) ? n : NULL;
}

static struct jinja_node *parse_text(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_parse_constant(p, p->token.text);
    if (n)
        n->kind = NODE_TEXT;
    jinja_parse_advance(p);
    return n;
}

static bool is_end(const struct jinja_parser *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (jinja_parse_is_name(p, *ends))
            return true;
    return false;
}

/* Statements up to a tag named in `ends`, which is then the current token; NULL: up to the end. */
static struct jinja_node *parse_body(struct jinja_parser *p, const char *const *ends)
{
    struct jinja_node *first = NULL, **at = &first;
    uint32_t line = p->token.line;
    while (!p->error) {
        struct jinja_node *n = NULL;
        switch (p->token.kind) {
        case TOKEN_END:
            return ends ? jinja_parse_fail(p, "the block of line %u is never closed by {%% %s %%}", line,
                                           ends[0])
                        : first;
        case TOKEN_TEXT:
            n = parse_text(p);
            break;
        case TOKEN_PRINT_BEGIN:
            n = parse_print(p);
            break;
        default:
            jinja_parse_advance(p);
            if (is_end(p, ends))
                return first;
            n = parse_statement(p);
            break;
        }
        if (n) {
            *at = n;
            at = &n->next;
        }
    }
    return NULL;
}

/* ---- compiling ---- */

/* The source with \n for every line break, and without the last one. */
static int copy_source(struct arena *a, struct slice source, struct slice *ret, struct err *e)
{
    char *copy = arena_strndup(a, source.ptr, source.len);
    size_t len = 0;
    if (!copy)
        return err_set(e, -ENOMEM, "no memory left for the chat template");
    for (size_t i = 0; i < source.len; i++) {
        if (copy[i] == '\r') {
            i += i + 1 < source.len && copy[i + 1] == '\n';
            copy[len++] = '\n';
        } else {
            copy[len++] = copy[i];
        }
    }
    if (len > 0 && copy[len - 1] == '\n')
        len--;
    *ret = (struct slice){copy, len};
    return 0;
}

static int list_symbols(struct jinja_parser *p, struct jinja_template *t)
{
    t->symbol_count = p->symbol_count;
    t->symbols = jinja_parse_alloc(p, p->symbol_count * sizeof(*t->symbols));
    for (size_t i = 0; t->symbols && i < JINJA_SYMBOL_BUCKETS; i++)
        for (struct jinja_symbol_entry *s = p->buckets[i]; s; s = s->next)
            t->symbols[s->symbol] = s->name;
    return p->error;
}

int jinja_compile(struct arena *a, struct slice source, struct jinja_template **ret, struct err *e)
{
    static const struct slice fixed[SYMBOL_FIXED_COUNT] = {
        {"loop", 4}, {"caller", 6}, {"varargs", 7}, {"kwargs", 6}};
    struct jinja_parser p = {.a = a, .e = e};
    if (source.len > JINJA_SOURCE_BYTES_MAX)
        return err_set(e, -E2BIG, "the chat template has %zu bytes; the limit is %zu", source.len,
                       JINJA_SOURCE_BYTES_MAX);
    if (!utf8_valid(source))
        return err_set(e, -EINVAL, "the chat template is not valid UTF-8");
    size_t mark = arena_mark(a);
    struct jinja_template *t = jinja_parse_alloc(&p, sizeof(*t));
    if (t)
        p.error = copy_source(a, source, &t->source, e);
    if (!p.error) {
        for (uint32_t i = 0; i < SYMBOL_FIXED_COUNT; i++)
            jinja_parse_symbol(&p, fixed[i]);
        jinja_lex_init(&p.lex, t->source);
        jinja_parse_advance(&p);
        t->body = parse_body(&p, NULL);
        list_symbols(&p, t);
    }
    if (p.error) {
        arena_rewind(a, mark);
        return p.error;
    }
    *ret = t;
    return 0;
}

struct slice jinja_source(const struct jinja_template *t)
{
    return t->source;
}
