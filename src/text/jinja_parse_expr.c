/* jinja_parse_expr.c - expressions, with Jinja's own precedence.
 *
 * From loose to tight: a if b else c; or; and; not; comparisons and `in`; + -; ~; * / // %; **; filters and tests;
 * signs; members, subscripts and calls. So 'a' + b|trim trims b alone, and -x|abs is (-x)|abs.
 *
 * The binary levels are a table and their results chains, so a level costs one C frame and `a + b + ...` no depth. */
#include "text/jinja_parse.h"

#include "base/check.h"
#include "text/utf8.h"

#include <errno.h>
#include <stdlib.h>

static struct jinja_node *parse_or(struct jinja_parser *p);
static struct jinja_node *parse_unary(struct jinja_parser *p, bool filters);

/* ---- lists of nodes ---- */

struct chain {
    struct jinja_node *first, **end;
    uint32_t count;
};

static bool chain_add(struct chain *c, struct jinja_node *n)
{
    if (!n)
        return false;
    if (!c->end)
        c->end = &c->first;
    *c->end = n;
    c->end = &n->next;
    c->count++;
    return true;
}

/* A node of its own around `n`, so that n can stand in another list. */
static struct jinja_node *with_operand(struct jinja_parser *p, enum jinja_node_kind kind,
                                       struct jinja_node *n)
{
    struct jinja_node *outer = n ? jinja_parse_node(p, kind) : NULL;
    if (outer) {
        outer->line = n->line;
        outer->first = n;
    }
    return outer;
}

/* ---- literals ---- */

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Up to `max` digits of `base` at *at; how many there were. */
static unsigned read_digits(struct slice s, size_t *at, unsigned max, int base, uint32_t *ret)
{
    unsigned n = 0;
    *ret = 0;
    while (n < max && *at < s.len && digit_value(s.ptr[*at]) < base) {
        *ret = *ret * (uint32_t)base + (uint32_t)digit_value(s.ptr[(*at)++]);
        n++;
    }
    return n;
}

/* One escape after its backslash; Python's rules, where an unknown one stands for itself. */
static bool read_escape(struct slice s, size_t *at, char **out)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = s.ptr[(*at)++];
    uint32_t code = 0;
    if (c == '\n')
        return true;
    for (size_t i = 0; i + 1 < sizeof(plain); i += 2)
        if (plain[i] == c)
            return *(*out)++ = plain[i + 1], true;
    unsigned want = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (want > 0) {
        if (read_digits(s, at, want, 16, &code) != want)
            return false;
    } else if (c >= '0' && c <= '7') {
        (*at)--;
        read_digits(s, at, 3, 8, &code);
    } else {
        *(*out)++ = '\\';
        *(*out)++ = c;
        return true;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        return false;
    *out += utf8_encode(code, *out);
    return true;
}

/* One or more adjacent string literals. An escape never becomes longer than it is written. */
static struct jinja_node *parse_string(struct jinja_parser *p)
{
    struct slice text = {0};
    uint32_t line = p->token.line;
    while (p->token.kind == TOKEN_STRING) {
        struct slice s = p->token.text;
        char *joined = jinja_parse_alloc(p, text.len + s.len + 1), *out = joined;
        if (!joined)
            return NULL;
        if (text.len)
            memcpy(out, text.ptr, text.len);
        out += text.len;
        for (size_t i = 0; i < s.len;) {
            char c = s.ptr[i++];
            if (c != '\\' || i == s.len)
                *out++ = c;
            else if (!read_escape(s, &i, &out))
                return jinja_parse_fail(p, "a string holds an escape that names no character");
        }
        text = (struct slice){joined, (size_t)(out - joined)};
        jinja_parse_advance(p);
    }
    struct jinja_node *n = p->error ? NULL : jinja_parse_constant(p, text);
    if (n)
        n->line = line;
    return n;
}

static struct jinja_node *parse_number(struct jinja_parser *p)
{
    char digits[64];
    size_t len = 0;
    struct slice s = p->token.text;
    struct jinja_node *n = jinja_parse_node(p, NODE_CONST);
    for (size_t i = 0; i < s.len && len < sizeof(digits) - 1; i++)
        if (s.ptr[i] != '_')
            digits[len++] = s.ptr[i];
    digits[len] = 0;
    if (!n)
        return NULL;
    char *end;
    errno = 0;
    if (p->token.kind == TOKEN_FLOAT) {
        n->value = jinja_float(strtod(digits, &end));
    } else {
        bool prefix = len > 1 && digits[0] == '0' && digits[1] > '9';
        int base = !prefix ? 10 : (digits[1] | 0x20) == 'x' ? 16 : (digits[1] | 0x20) == 'o' ? 8 : 2;
        n->value = jinja_int(strtoll(digits + (prefix ? 2 : 0), &end, base));
        if (errno == ERANGE || end == digits + (prefix ? 2 : 0))
            *digits = 0;
    }
    if (*end || !*digits || len == sizeof(digits) - 1)
        return jinja_parse_fail(p, "%.*s is no number that fits in 64 bits", SLICE_ARGS(slice_sub(s, 0, 64)));
    jinja_parse_advance(p);
    return n;
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
    struct slice name = p->token.text;
    struct jinja_node *n = jinja_parse_node(p, NODE_NAME);
    if (!n)
        return NULL;
    jinja_parse_advance(p);
    if (slice_eq(name, SLICE("true")) || slice_eq(name, SLICE("True"))) {
        n->kind = NODE_CONST;
        n->value = jinja_bool(true);
    } else if (slice_eq(name, SLICE("false")) || slice_eq(name, SLICE("False"))) {
        n->kind = NODE_CONST;
        n->value = jinja_bool(false);
    } else if (slice_eq(name, SLICE("none")) || slice_eq(name, SLICE("None"))) {
        n->kind = NODE_CONST;
        n->value = jinja_none();
    } else {
        n->symbol = jinja_parse_symbol(p, name);
        if (p->macro) {
            p->macro->takes_caller |= n->symbol == SYMBOL_CALLER;
            p->macro->takes_varargs |= n->symbol == SYMBOL_VARARGS;
            p->macro->takes_kwargs |= n->symbol == SYMBOL_KWARGS;
        }
    }
    return p->error ? NULL : n;
}

/* [a, b] or {a: b}, the bracket being the current token. */
static struct jinja_node *parse_items(struct jinja_parser *p, enum jinja_node_kind kind, const char *close)
{
    struct chain items = {0};
    struct jinja_node *n = jinja_parse_node(p, kind);
    jinja_parse_advance(p);
    while (!p->error && !jinja_parse_is_op(p, close)) {
        if (items.count > 0 && !jinja_parse_expect_op(p, ","))
            return NULL;
        if (jinja_parse_is_op(p, close))
            break;
        if (!chain_add(&items, with_operand(p, NODE_OPERAND, jinja_parse_expression(p))))
            return NULL;
        if (kind == NODE_LIST)
            continue;
        if (!jinja_parse_expect_op(p, ":") ||
            !chain_add(&items, with_operand(p, NODE_OPERAND, jinja_parse_expression(p))))
            return NULL;
    }
    if (!n || !jinja_parse_expect_op(p, close))
        return NULL;
    n->first = items.first;
    n->symbol = items.count;
    return n;
}

static struct jinja_node *parse_primary(struct jinja_parser *p)
{
    if (p->error)
        return NULL;
    switch (p->token.kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_string(p);
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return parse_number(p);
    default:
        break;
    }
    if (jinja_parse_is_op(p, "["))
        return parse_items(p, NODE_LIST, "]");
    if (jinja_parse_is_op(p, "{"))
        return parse_items(p, NODE_DICT, "}");
    if (jinja_parse_skip_op(p, "(")) {
        struct jinja_node *n = jinja_parse_tuple(p, true, ")");
        return n && jinja_parse_expect_op(p, ")") ? n : NULL;
    }
    if (p->token.kind == TOKEN_OPERATOR)
        return jinja_parse_fail(p, "expected an expression, found '%.*s'", SLICE_ARGS(p->token.text));
    return jinja_parse_fail(p, "expected an expression, found the end of the tag");
}

/* ---- calls, subscripts, filters, tests ---- */

static bool next_is_assign(struct jinja_parser *p)
{
    struct jinja_lex ahead = p->lex;
    struct jinja_token t;
    return jinja_lex_next(&ahead, &t, NULL) == 0 && t.kind == TOKEN_OPERATOR && slice_eq(t.text, SLICE("="));
}

static bool parse_argument(struct jinja_parser *p, struct jinja_args_node *args, struct chain *positional,
                           struct chain *named)
{
    if (p->token.kind == TOKEN_NAME && !args->double_star && next_is_assign(p)) {
        struct jinja_node *holder = jinja_parse_constant(p, p->token.text);
        jinja_parse_advance(p);
        jinja_parse_advance(p);
        if (holder)
            holder->first = jinja_parse_expression(p);
        return holder && holder->first && chain_add(named, holder);
    }
    if (jinja_parse_is_op(p, "**") && !args->double_star) {
        jinja_parse_advance(p);
        return (args->double_star = jinja_parse_expression(p)) != NULL;
    }
    if (jinja_parse_is_op(p, "*") && !args->star && !args->double_star) {
        jinja_parse_advance(p);
        return (args->star = jinja_parse_expression(p)) != NULL;
    }
    if (named->count > 0 || args->star || args->double_star)
        return jinja_parse_fail(p, "arguments without a name come first") != NULL;
    return chain_add(positional, with_operand(p, NODE_OPERAND, jinja_parse_expression(p)));
}

/* (a, b, c=d, *e, **f), the bracket being the current token. */
static struct jinja_args_node *parse_args(struct jinja_parser *p)
{
    struct jinja_args_node *args = jinja_parse_alloc(p, sizeof(*args));
    struct chain positional = {0}, named = {0};
    bool comma = false;
    jinja_parse_advance(p);
    while (!p->error && !jinja_parse_is_op(p, ")")) {
        if (comma && !jinja_parse_expect_op(p, ","))
            return NULL;
        if (comma && jinja_parse_is_op(p, ")"))
            break;
        if (!args || !parse_argument(p, args, &positional, &named))
            return NULL;
        comma = true;
    }
    if (!args || !jinja_parse_expect_op(p, ")"))
        return NULL;
    args->positional = positional.first;
    args->positional_count = positional.count;
    args->named = named.first;
    args->named_count = named.count;
    return args;
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *callee)
{
    struct jinja_node *n = with_operand(p, NODE_CALL, callee);
    if (n) {
        n->line = p->token.line;
        n->args = parse_args(p);
    }
    return p->error ? NULL : n;
}

/* x.name or x.0, behind the dot. */
static struct jinja_node *parse_member(struct jinja_parser *p, struct jinja_node *object)
{
    struct jinja_node *n = with_operand(p, NODE_ATTR, object);
    if (!n)
        return NULL;
    if (p->token.kind == TOKEN_INT) {
        n->kind = NODE_ITEM;
        object = with_operand(p, NODE_OPERAND, object);
        if (!object)
            return NULL;
        n->first = object;
        object->next = parse_number(p);
        return p->error ? NULL : n;
    }
    struct slice name = jinja_parse_expect_name(p);
    struct jinja_node *constant = p->error ? NULL : jinja_parse_constant(p, name);
    if (constant)
        n->value = constant->value;
    return constant ? n : NULL;
}

/* Behind the first bound of a slice (NULL: left out), at its colon. */
static struct jinja_slice_node *parse_slice(struct jinja_parser *p, struct jinja_node *start)
{
    struct jinja_slice_node *s = jinja_parse_alloc(p, sizeof(*s));
    if (!s || !jinja_parse_expect_op(p, ":"))
        return NULL;
    s->start = start;
    if (!jinja_parse_is_op(p, ":") && !jinja_parse_is_op(p, "]"))
        s->stop = jinja_parse_expression(p);
    if (jinja_parse_skip_op(p, ":") && !jinja_parse_is_op(p, "]"))
        s->step = jinja_parse_expression(p);
    return p->error ? NULL : s;
}

/* x[...], behind the bracket. */
static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *object)
{
    struct jinja_node *held = with_operand(p, NODE_OPERAND, object);
    struct jinja_node *n = with_operand(p, NODE_ITEM, held);
    struct jinja_node *index = n && !jinja_parse_is_op(p, ":") ? jinja_parse_tuple(p, true, "]") : NULL;
    if (!n || p->error)
        return NULL;
    if (jinja_parse_is_op(p, ":")) {
        n->kind = NODE_SLICE;
        n->slice = parse_slice(p, index);
    } else {
        held->next = index;
    }
    return jinja_parse_expect_op(p, "]") ? n : NULL;
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *n)
{
    for (uint32_t level = 0; n && !p->error; level++) {
        if (level == JINJA_PARSE_DEPTH_MAX)
            return jinja_parse_fail(p, "more than %d members and calls in a row", JINJA_PARSE_DEPTH_MAX);
        if (jinja_parse_skip_op(p, "."))
            n = parse_member(p, n);
        else if (jinja_parse_skip_op(p, "["))
            n = parse_subscript(p, n);
        else if (jinja_parse_is_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return p->error ? NULL : n;
}

/* A filter or test by its name, which may have dots in it. */
static struct jinja_node *parse_builtin(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = jinja_parse_node(p, kind);
    struct slice name = jinja_parse_expect_name(p);
    while (!p->error && jinja_parse_skip_op(p, ".")) {
        struct slice more = jinja_parse_expect_name(p);
        name.len = (size_t)(more.ptr + more.len - name.ptr);
    }
    struct jinja_node *constant = p->error || !n ? NULL : jinja_parse_constant(p, name);
    if (!constant)
        return NULL;
    n->value = constant->value;
    n->builtin = kind == NODE_FILTER ? jinja_filter_find(name) : jinja_test_find(name);
    if (!n->builtin && p->conditions == 0)
        return jinja_parse_fail(p, "no %s named '%.*s'", kind == NODE_FILTER ? "filter" : "test",
                                SLICE_ARGS(slice_sub(name, 0, 80)));
    return n;
}

static struct jinja_node *parse_filter(struct jinja_parser *p, struct jinja_node *input)
{
    struct jinja_node *n = parse_builtin(p, NODE_FILTER);
    if (!n)
        return NULL;
    n->first = input;
    if (jinja_parse_is_op(p, "("))
        n->args = parse_args(p);
    return p->error ? NULL : n;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p)
{
    struct chain filters = {0};
    do {
        if (!chain_add(&filters, parse_filter(p, NULL)))
            return NULL;
    } while (jinja_parse_skip_op(p, "|"));
    return p->error ? NULL : filters.first;
}

/* Jinja lets a test have one argument without brackets: x is divisibleby 3. */
static bool starts_argument(struct jinja_parser *p)
{
    switch (p->token.kind) {
    case TOKEN_NAME:
        return !jinja_parse_is_name(p, "else") && !jinja_parse_is_name(p, "or") &&
               !jinja_parse_is_name(p, "and");
    case TOKEN_STRING:
    case TOKEN_INT:
    case TOKEN_FLOAT:
        return true;
    default:
        return jinja_parse_is_op(p, "[") || jinja_parse_is_op(p, "{");
    }
}

/* Behind `is`. */
static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *input)
{
    bool negated = jinja_parse_skip_name(p, "not");
    struct jinja_node *n = parse_builtin(p, NODE_TEST);
    if (!n)
        return NULL;
    n->first = input;
    if (jinja_parse_is_op(p, "(")) {
        n->args = parse_args(p);
    } else if (starts_argument(p)) {
        if (jinja_parse_is_name(p, "is"))
            return jinja_parse_fail(p, "tests cannot follow each other: x is a is b");
        n->args = jinja_parse_alloc(p, sizeof(*n->args));
        struct jinja_node *argument = with_operand(p, NODE_OPERAND, parse_postfix(p, parse_primary(p)));
        if (!n->args || !argument)
            return NULL;
        n->args->positional = argument;
        n->args->positional_count = 1;
    }
    if (p->error)
        return NULL;
    return negated ? with_operand(p, NODE_NOT, n) : n;
}

static struct jinja_node *parse_filters_and_tests(struct jinja_parser *p, struct jinja_node *n)
{
    for (uint32_t level = 0; n && !p->error; level++) {
        if (level == JINJA_PARSE_DEPTH_MAX)
            return jinja_parse_fail(p, "more than %d filters in a row", JINJA_PARSE_DEPTH_MAX);
        if (jinja_parse_skip_op(p, "|"))
            n = parse_filter(p, n);
        else if (jinja_parse_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (jinja_parse_is_op(p, "("))
            n = parse_call(p, n);
        else
            break;
    }
    return p->error ? NULL : n;
}

/* ---- operators ---- */

static struct jinja_node *parse_unary(struct jinja_parser *p, bool filters)
{
    struct jinja_node *n = NULL;
    if (jinja_parse_is_op(p, "-") || jinja_parse_is_op(p, "+")) {
        enum jinja_node_kind kind = jinja_parse_is_op(p, "-") ? NODE_NEGATE : NODE_PLUS;
        if (!jinja_parse_enter(p))
            return NULL;
        jinja_parse_advance(p);
        n = with_operand(p, kind, parse_unary(p, false));
        p->depth--;
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    return filters ? parse_filters_and_tests(p, n) : n;
}

static enum jinja_op op_at(const struct jinja_parser *p, const char *const *words, const enum jinja_op *ops,
                           size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jinja_parse_is_op(p, words[i]))
            return ops[i];
    return OP_NONE;
}

static enum jinja_op power_op(struct jinja_parser *p)
{
    return jinja_parse_is_op(p, "**") ? OP_POW : OP_NONE;
}

static enum jinja_op product_op(struct jinja_parser *p)
{
    static const char *const words[] = {"*", "/", "//", "%"};
    static const enum jinja_op ops[] = {OP_MUL, OP_DIV, OP_FLOOR_DIV, OP_MOD};
    return op_at(p, words, ops, COUNT_OF(ops));
}

static enum jinja_op concat_op(struct jinja_parser *p)
{
    return jinja_parse_is_op(p, "~") ? OP_ADD : OP_NONE;
}

static enum jinja_op sum_op(struct jinja_parser *p)
{
    static const char *const words[] = {"+", "-"};
    static const enum jinja_op ops[] = {OP_ADD, OP_SUB};
    return op_at(p, words, ops, COUNT_OF(ops));
}

static enum jinja_op compare_op(struct jinja_parser *p)
{
    static const char *const words[] = {"==", "!=", "<", "<=", ">", ">="};
    static const enum jinja_op ops[] = {OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE};
    if (jinja_parse_is_name(p, "in"))
        return OP_IN;
    if (jinja_parse_is_name(p, "not")) {
        struct jinja_lex ahead = p->lex;
        struct jinja_token t;
        if (jinja_lex_next(&ahead, &t, NULL) == 0 && t.kind == TOKEN_NAME && slice_eq(t.text, SLICE("in"))) {
            jinja_parse_advance(p);
            return OP_NOT_IN;
        }
    }
    return op_at(p, words, ops, COUNT_OF(ops));
}

static enum jinja_op and_op(struct jinja_parser *p)
{
    return jinja_parse_is_name(p, "and") ? OP_ADD : OP_NONE;
}

static enum jinja_op or_op(struct jinja_parser *p)
{
    return jinja_parse_is_name(p, "or") ? OP_ADD : OP_NONE;
}

/* The binary operators, tight ones first. */
static const struct level {
    enum jinja_op (*op)(struct jinja_parser *p);
    enum jinja_node_kind kind;
} levels[] = {{power_op, NODE_MATH}, {product_op, NODE_MATH},    {concat_op, NODE_CONCAT},
              {sum_op, NODE_MATH},   {compare_op, NODE_COMPARE}, {and_op, NODE_AND},
              {or_op, NODE_OR}};
#define LEVEL_NOT 5 /* `not` stands below `and` and above comparisons */

static struct jinja_node *parse_level(struct jinja_parser *p, size_t level)
{
    if (level == 0)
        return parse_unary(p, true);
    if (level == LEVEL_NOT && jinja_parse_is_name(p, "not")) {
        struct jinja_node *n = NULL;
        if (!jinja_parse_enter(p))
            return NULL;
        jinja_parse_advance(p);
        n = with_operand(p, NODE_NOT, parse_level(p, LEVEL_NOT));
        p->depth--;
        return n;
    }
    const struct level *l = &levels[level - 1];
    struct jinja_node *n = parse_level(p, level - 1);
    struct jinja_node *chain = NULL, *last = NULL;
    for (enum jinja_op op; n && !p->error && (op = l->op(p)) != OP_NONE;) {
        if (!chain) {
            last = with_operand(p, NODE_OPERAND, n);
            chain = with_operand(p, l->kind, last);
        }
        jinja_parse_advance(p);
        struct jinja_node *right = with_operand(p, NODE_OPERAND, parse_level(p, level - 1));
        if (!chain || !right)
            return NULL;
        right->join = (uint8_t)op;
        last->next = right;
        last = right;
        chain->symbol++;
    }
    return p->error ? NULL : chain ? chain : n;
}

static struct jinja_node *parse_or(struct jinja_parser *p)
{
    return parse_level(p, COUNT_OF(levels));
}

static struct jinja_node *parse_choice(struct jinja_parser *p)
{
    struct jinja_node *n = parse_or(p);
    while (n && jinja_parse_skip_name(p, "if")) {
        struct jinja_node *then = with_operand(p, NODE_OPERAND, n), *otherwise = NULL;
        p->conditions++;
        struct jinja_node *condition = with_operand(p, NODE_OPERAND, parse_or(p));
        if (condition && jinja_parse_skip_name(p, "else"))
            otherwise = with_operand(p, NODE_OPERAND, jinja_parse_expression(p));
        p->conditions--;
        n = with_operand(p, NODE_CHOICE, condition);
        if (!n || !then || p->error)
            return NULL;
        condition->next = then;
        then->next = otherwise;
    }
    return n;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p)
{
    if (!jinja_parse_enter(p))
        return NULL;
    struct jinja_node *n = parse_choice(p);
    p->depth--;
    return p->error ? NULL : n;
}

static bool tuple_ends(struct jinja_parser *p, const char *end)
{
    return p->token.kind == TOKEN_BLOCK_END || p->token.kind == TOKEN_PRINT_END ||
           jinja_parse_is_op(p, ")") || (end && (jinja_parse_is_op(p, end) || jinja_parse_is_name(p, end)));
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool choice, const char *end)
{
    struct chain items = {0};
    uint32_t line = p->token.line;
    while (!p->error && !tuple_ends(p, end)) {
        struct jinja_node *n = choice ? jinja_parse_expression(p) : parse_or(p);
        if (n && items.count == 0 && !jinja_parse_is_op(p, ","))
            return n;
        if (!chain_add(&items, with_operand(p, NODE_OPERAND, n)))
            return NULL;
        if (!jinja_parse_skip_op(p, ","))
            break;
    }
    bool brackets = end && strcmp(end, ")") == 0;
    if (!p->error && items.count == 0 && !brackets)
        return jinja_parse_fail(p, "expected an expression");
    struct jinja_node *n = p->error ? NULL : jinja_parse_node(p, NODE_TUPLE);
    if (n) {
        n->line = line;
        n->first = items.first;
        n->symbol = items.count;
    }
    return n;
}

static struct jinja_node *parse_target_name(struct jinja_parser *p, bool members)
{
    if (jinja_parse_skip_op(p, "(")) {
        struct jinja_node *n = jinja_parse_enter(p) ? jinja_parse_target(p, members, ")") : NULL;
        p->depth--;
        return n && jinja_parse_expect_op(p, ")") ? n : NULL;
    }
    struct jinja_node *n = p->token.kind == TOKEN_NAME ? parse_name(p) : NULL;
    if (!n || n->kind != NODE_NAME)
        return p->error ? NULL : jinja_parse_fail(p, "only names can be assigned to");
    if (members && jinja_parse_skip_op(p, ".")) {
        struct slice name = jinja_parse_expect_name(p);
        struct jinja_node *constant = p->error ? NULL : jinja_parse_constant(p, name);
        n->kind = NODE_MEMBER;
        n->value = constant ? constant->value : n->value;
    }
    return p->error ? NULL : n;
}

struct jinja_node *jinja_parse_target(struct jinja_parser *p, bool members, const char *end)
{
    struct chain items = {0};
    bool comma = false;
    while (!p->error) {
        if (items.count > 0 && (jinja_parse_is_op(p, end) || jinja_parse_is_name(p, end)))
            break;
        if (!chain_add(&items, parse_target_name(p, members)))
            return NULL;
        if (!jinja_parse_skip_op(p, ","))
            break;
        comma = true;
    }
    if (p->error || !comma)
        return p->error ? NULL : items.first;
    struct jinja_node *n = jinja_parse_node(p, NODE_TUPLE);
    if (n) {
        n->first = items.first;
        n->symbol = items.count;
    }
    return n;
}
