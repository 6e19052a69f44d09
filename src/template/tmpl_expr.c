/* tmpl_expr.c - expressions, by recursive descent with Jinja's precedences. Nesting is bounded; left-leaning
 * chains are flat loops. */
#include "template/tmpl_builtins.h"
#include "template/tmpl_parse.h"

#include "base/check.h"

#include <errno.h>

#define TMPL_NODE_LIST_MAX 4096

const struct tmpl_token *tmpl_p_now(const struct tmpl_parser *p)
{
    ASSERT(p->at < p->count);
    return &p->tokens[p->at];
}

void *tmpl_p_fail(struct tmpl_parser *p, const char *what)
{
    if (p->error == 0) {
        struct slice text =
            tmpl_p_now(p)->kind == TMPL_TOKEN_END ? SLICE("the end") : slice_sub(tmpl_p_now(p)->text, 0, 40);
        p->error =
            err_set(p->e, -EINVAL, "line %u: %s, not \"%.*s\"", tmpl_p_now(p)->line, what, SLICE_ARGS(text));
    }
    return NULL;
}

void *tmpl_p_fail_memory(struct tmpl_parser *p)
{
    if (p->error == 0)
        p->error = err_set(p->e, -ENOMEM, "the template does not fit in its memory");
    return NULL;
}

bool tmpl_p_is_op(const struct tmpl_parser *p, const char *op)
{
    return tmpl_p_now(p)->kind == TMPL_TOKEN_OP && slice_eq(tmpl_p_now(p)->text, slice_of(op));
}

static bool is_word(const struct tmpl_parser *p, const char *word)
{
    return tmpl_p_now(p)->kind == TMPL_TOKEN_NAME && slice_eq(tmpl_p_now(p)->text, slice_of(word));
}

bool tmpl_p_take_op(struct tmpl_parser *p, const char *op)
{
    bool yes = tmpl_p_is_op(p, op);
    p->at += yes;
    return yes;
}

bool tmpl_p_take_word(struct tmpl_parser *p, const char *word)
{
    bool yes = is_word(p, word);
    p->at += yes;
    return yes;
}

bool tmpl_p_take(struct tmpl_parser *p, enum tmpl_token_kind kind, const char *what)
{
    if (p->error || tmpl_p_now(p)->kind != kind)
        return tmpl_p_fail(p, what) != NULL;
    p->at++;
    return true;
}

bool tmpl_p_need_op(struct tmpl_parser *p, const char *op, const char *what)
{
    return tmpl_p_take_op(p, op) || tmpl_p_fail(p, what) != NULL;
}

struct tmpl_node *tmpl_p_node(struct tmpl_parser *p, enum tmpl_kind kind)
{
    struct tmpl_node *n = ARENA_NEW(p->a, struct tmpl_node);
    if (!n)
        return tmpl_p_fail_memory(p);
    n->kind = kind;
    n->line = tmpl_p_now(p)->line;
    return n;
}

bool tmpl_p_list_push(struct tmpl_parser *p, struct tmpl_node_list *l, struct tmpl_node *n)
{
    ASSERT(l->count <= l->capacity);
    if (!n)
        return false;
    if (l->count == TMPL_NODE_LIST_MAX)
        return tmpl_p_fail(p, "a list is too long here (4096 parts)") != NULL;
    if (l->count == l->capacity) {
        uint32_t want = l->capacity ? l->capacity * 2 : 8;
        struct tmpl_node **items = ARENA_ARRAY(p->a, struct tmpl_node *, want);
        if (!items)
            return tmpl_p_fail_memory(p) != NULL;
        if (l->count)
            memcpy(items, l->items, l->count * sizeof(*items));
        l->items = items;
        l->capacity = want;
    }
    l->items[l->count++] = n;
    return true;
}

struct tmpl_node *tmpl_p_with_list(struct tmpl_node *n, const struct tmpl_node_list *l)
{
    ASSERT(l->count <= l->capacity);
    if (n) {
        n->list = l->items;
        n->list_count = l->count;
    }
    return n;
}

bool tmpl_p_enter(struct tmpl_parser *p)
{
    if (++p->depth <= TMPL_NESTING_MAX)
        return true;
    return tmpl_p_fail(p, "nested too deeply (200)") != NULL;
}

/* --- expressions --- */

static struct tmpl_node *constant(struct tmpl_parser *p, struct tmpl_value v)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_CONST);
    if (n)
        n->value = v;
    return n;
}

/* Adjacent strings are one. */
static struct tmpl_node *parse_string(struct tmpl_parser *p)
{
    ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_STRING);
    ASSERT(p->at + 1 < p->count); /* the last token is TMPL_TOKEN_END */
    struct tmpl_text t;
    tmpl_text_init(&t, p->a, TMPL_SOURCE_BYTES_MAX);
    struct slice only = tmpl_p_now(p)->text;
    bool joined = p->tokens[p->at + 1].kind == TMPL_TOKEN_STRING;
    for (; tmpl_p_now(p)->kind == TMPL_TOKEN_STRING; p->at++)
        if (joined)
            tmpl_text_put(&t, tmpl_p_now(p)->text);
    if (t.failed)
        return tmpl_p_fail_memory(p);
    return constant(p, tmpl_string(joined ? tmpl_text_slice(&t) : only));
}

/* Items up to `close`. Sets *comma when there was one (a tuple). */
static bool parse_items(struct tmpl_parser *p, const char *close, struct tmpl_node_list *l, bool *comma)
{
    *comma = false;
    while (!p->error && !tmpl_p_take_op(p, close)) {
        if (!tmpl_p_list_push(p, l, tmpl_p_parse_expression(p)))
            return false;
        if (tmpl_p_take_op(p, close))
            return true;
        if (!tmpl_p_need_op(p, ",", "a comma or the end of the list is expected here"))
            return false;
        *comma = true;
    }
    return p->error == 0;
}

static struct tmpl_node *parse_dict(struct tmpl_parser *p)
{
    struct tmpl_node_list l = {0};
    struct tmpl_node *n = tmpl_p_node(p, TMPL_DICT);
    while (n && !tmpl_p_take_op(p, "}")) {
        if (!tmpl_p_list_push(p, &l, tmpl_p_parse_expression(p)) ||
            !tmpl_p_need_op(p, ":", "a colon is expected here") ||
            !tmpl_p_list_push(p, &l, tmpl_p_parse_expression(p)))
            return NULL;
        if (!tmpl_p_is_op(p, "}") &&
            !tmpl_p_need_op(p, ",", "a comma or the end of the dict is expected here"))
            return NULL;
    }
    ASSERT(l.count % 2 == 0);
    return tmpl_p_with_list(n, &l);
}

static struct tmpl_node *parse_parenthesis(struct tmpl_parser *p)
{
    struct tmpl_node_list l = {0};
    bool comma;
    struct tmpl_node *n = tmpl_p_node(p, TMPL_TUPLE);
    if (!n || !parse_items(p, ")", &l, &comma))
        return NULL;
    return l.count == 1 && !comma ? l.items[0] : tmpl_p_with_list(n, &l);
}

static struct tmpl_node *parse_name(struct tmpl_parser *p)
{
    ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_NAME);
    static const struct {
        const char *word;
        enum tmpl_type type;
        bool b;
    } constants[] = {{"true", TMPL_BOOL, true},   {"True", TMPL_BOOL, true},  {"false", TMPL_BOOL, false},
                     {"False", TMPL_BOOL, false}, {"none", TMPL_NONE, false}, {"None", TMPL_NONE, false}};
    for (size_t i = 0; i < COUNT_OF(constants); i++)
        if (tmpl_p_take_word(p, constants[i].word))
            return constant(p, constants[i].type == TMPL_NONE ? tmpl_none() : tmpl_bool(constants[i].b));
    struct tmpl_node *n = tmpl_p_node(p, TMPL_NAME);
    if (n)
        n->name = tmpl_p_now(p)->text;
    p->at++;
    return n;
}

static struct tmpl_node *parse_primary(struct tmpl_parser *p)
{
    const struct tmpl_token *t = tmpl_p_now(p);
    struct tmpl_node_list l = {0};
    bool comma;
    switch (t->kind) {
    case TMPL_TOKEN_NAME:
        return parse_name(p);
    case TMPL_TOKEN_STRING:
        return parse_string(p);
    case TMPL_TOKEN_INT:
        p->at++;
        return constant(p, tmpl_int(t->i));
    case TMPL_TOKEN_FLOAT:
        p->at++;
        return constant(p, tmpl_float(t->f));
    default:
        break;
    }
    if (tmpl_p_take_op(p, "("))
        return parse_parenthesis(p);
    if (tmpl_p_take_op(p, "{"))
        return parse_dict(p);
    if (tmpl_p_take_op(p, "[")) {
        struct tmpl_node *n = tmpl_p_node(p, TMPL_LIST);
        return n && parse_items(p, "]", &l, &comma) ? tmpl_p_with_list(n, &l) : NULL;
    }
    return tmpl_p_fail(p, "a value is expected here");
}

/* Kinds of arguments that a call has so far. */
struct arguments_seen {
    bool named, list, dict;
};

/* One argument: a value, name=value, *list or **dict, in the orders that Jinja takes. */
static struct tmpl_node *parse_argument(struct tmpl_parser *p, struct arguments_seen *seen,
                                        struct slice *name)
{
    const struct tmpl_token *next = &p->tokens[p->at + 1];
    bool list = tmpl_p_is_op(p, "*"), dict = tmpl_p_is_op(p, "**");
    bool named = tmpl_p_now(p)->kind == TMPL_TOKEN_NAME && next->kind == TMPL_TOKEN_OP &&
                 slice_eq(next->text, SLICE("="));
    if (seen->dict || (list && seen->list) || (!list && !dict && !named && (seen->list || seen->named)))
        return tmpl_p_fail(p, "an argument that may follow those before it is expected here");
    seen->list |= list;
    seen->dict |= dict;
    seen->named |= named;
    if (named) {
        *name = tmpl_p_now(p)->text;
        p->at += 2;
    }
    if (!list && !dict)
        return tmpl_p_parse_expression(p);
    struct tmpl_node *n = tmpl_p_node(p, list ? TMPL_SPREAD : TMPL_SPREAD_NAMED);
    p->at++;
    if (n)
        n->a = tmpl_p_parse_expression(p);
    return n && n->a ? n : NULL;
}

/* Arguments after "(" into n's list and names. */
static struct tmpl_node *parse_arguments(struct tmpl_parser *p, struct tmpl_node *n)
{
    struct tmpl_node_list l = {0};
    struct arguments_seen seen = {0};
    if (!n)
        return NULL;
    n->names = ARENA_ARRAY(p->a, struct slice, TMPL_ARGS_MAX);
    if (!n->names)
        return tmpl_p_fail_memory(p);
    while (!p->error && !tmpl_p_take_op(p, ")")) {
        if (l.count == TMPL_ARGS_MAX)
            return tmpl_p_fail(p, "too many arguments here (16)");
        if (!tmpl_p_list_push(p, &l, parse_argument(p, &seen, &n->names[l.count])))
            return NULL;
        if (!tmpl_p_is_op(p, ")") && !tmpl_p_need_op(p, ",", "a comma or ')' is expected here"))
            return NULL;
    }
    n->name_count = l.count;
    ASSERT(l.count <= TMPL_ARGS_MAX);
    return p->error ? NULL : tmpl_p_with_list(n, &l);
}

static struct tmpl_node *optional_until(struct tmpl_parser *p, const char *a, const char *b)
{
    return tmpl_p_is_op(p, a) || tmpl_p_is_op(p, b) ? NULL : tmpl_p_parse_expression(p);
}

static struct tmpl_node *parse_subscript(struct tmpl_parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_INDEX);
    if (!n)
        return NULL;
    n->a = of;
    n->b = optional_until(p, ":", "]");
    if (tmpl_p_take_op(p, ":")) {
        n->kind = TMPL_SLICE;
        n->c = optional_until(p, ":", "]");
        if (tmpl_p_take_op(p, ":"))
            n->d = optional_until(p, "]", "]");
    } else if (!n->b) {
        return tmpl_p_fail(p, "an index is expected here");
    }
    return tmpl_p_need_op(p, "]", "']' is expected here") ? n : NULL;
}

static struct tmpl_node *parse_attribute(struct tmpl_parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n;
    if (tmpl_p_now(p)->kind == TMPL_TOKEN_INT) {
        n = tmpl_p_node(p, TMPL_INDEX);
        if (n) {
            n->a = of;
            n->b = constant(p, tmpl_int(tmpl_p_now(p)->i));
        }
        p->at++;
        return n;
    }
    n = tmpl_p_node(p, TMPL_ATTR);
    if (!n)
        return NULL;
    n->a = of;
    n->name = tmpl_p_now(p)->text;
    return tmpl_p_take(p, TMPL_TOKEN_NAME, "a name is expected after the dot") ? n : NULL;
}

static struct tmpl_node *parse_call(struct tmpl_parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_CALL);
    if (n)
        n->a = of;
    return parse_arguments(p, n);
}

static struct tmpl_node *parse_postfix(struct tmpl_parser *p, struct tmpl_node *n)
{
    while (n && !p->error) {
        if (tmpl_p_take_op(p, "."))
            n = parse_attribute(p, n);
        else if (tmpl_p_take_op(p, "["))
            n = parse_subscript(p, n);
        else if (tmpl_p_take_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

struct tmpl_node *tmpl_p_parse_filter(struct tmpl_parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_FILTER);
    if (!n)
        return NULL;
    n->a = of;
    n->name = tmpl_p_now(p)->text;
    n->builtin = tmpl_p_now(p)->kind == TMPL_TOKEN_NAME ? tmpl_filter_find(n->name) : -1;
    if (n->builtin < 0)
        return tmpl_p_fail(p, "the name of a filter that this engine has is expected here");
    p->at++;
    return tmpl_p_take_op(p, "(") ? parse_arguments(p, n) : n;
}

/* True when a test's argument without parentheses starts here: `is divisibleby 3`, `is equalto x`. */
static bool at_test_argument(const struct tmpl_parser *p)
{
    static const char *const words[] = {"else", "or", "and", "is", "if", "in", "not"};
    enum tmpl_token_kind k = tmpl_p_now(p)->kind;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (is_word(p, words[i]))
            return false;
    return k == TMPL_TOKEN_NAME || k == TMPL_TOKEN_STRING || k == TMPL_TOKEN_INT || k == TMPL_TOKEN_FLOAT ||
           tmpl_p_is_op(p, "[") || tmpl_p_is_op(p, "{");
}

static struct tmpl_node *parse_test(struct tmpl_parser *p, struct tmpl_node *of)
{
    bool negated = tmpl_p_take_word(p, "not");
    struct tmpl_node *n = tmpl_p_node(p, TMPL_TEST), *negation = negated ? tmpl_p_node(p, TMPL_NOT) : NULL;
    struct tmpl_node_list l = {0};
    if (!n || (negated && !negation))
        return NULL;
    n->a = of;
    n->name = tmpl_p_now(p)->text;
    n->builtin = tmpl_p_now(p)->kind == TMPL_TOKEN_NAME ? tmpl_test_find(n->name) : -1;
    if (n->builtin < 0)
        return tmpl_p_fail(p, "the name of a test that this engine has is expected here");
    p->at++;
    if (tmpl_p_take_op(p, "(")) {
        n = parse_arguments(p, n);
    } else if (at_test_argument(p)) {
        n->names = ARENA_ARRAY(p->a, struct slice, 1);
        if (!n->names || !tmpl_p_list_push(p, &l, parse_postfix(p, parse_primary(p))))
            return NULL;
        n->name_count = 1;
        n = tmpl_p_with_list(n, &l);
    }
    if (!negated)
        return n;
    negation->a = n;
    return n ? negation : NULL;
}

static struct tmpl_node *parse_filters(struct tmpl_parser *p, struct tmpl_node *n)
{
    while (n && !p->error) {
        if (tmpl_p_take_op(p, "|"))
            n = tmpl_p_parse_filter(p, n);
        else if (tmpl_p_take_word(p, "is"))
            n = parse_test(p, n);
        else if (tmpl_p_take_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

struct tmpl_node *tmpl_p_parse_unary(struct tmpl_parser *p, bool with_filters)
{
    if (p->error || !tmpl_p_enter(p))
        return NULL;
    struct tmpl_node *n;
    if (tmpl_p_is_op(p, "-") || tmpl_p_is_op(p, "+")) {
        n = tmpl_p_node(p, tmpl_p_is_op(p, "-") ? TMPL_NEGATE : TMPL_PLUS);
        p->at++;
        if (n)
            n->a = tmpl_p_parse_unary(p, false);
        n = n && n->a ? n : NULL;
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filters(p, n);
    ASSERT(p->depth > 0);
    p->depth--;
    return n;
}

struct level {
    const char *op;
    enum tmpl_op code;
};

static const struct level level_pow[] = {{"**", TMPL_OP_POW}, {NULL, 0}};
static const struct level level_mul[] = {
    {"*", TMPL_OP_MUL}, {"//", TMPL_OP_FLOORDIV}, {"/", TMPL_OP_DIV}, {"%", TMPL_OP_MOD}, {NULL, 0}};
static const struct level level_concat[] = {{"~", TMPL_OP_CONCAT}, {NULL, 0}};
static const struct level level_add[] = {{"+", TMPL_OP_ADD}, {"-", TMPL_OP_SUB}, {NULL, 0}};
static const struct level *const levels[] = {level_pow, level_mul, level_concat, level_add};

/* Binary operators from the loosest level down, all left-associative as in Jinja. */
static struct tmpl_node *parse_binary(struct tmpl_parser *p, int level)
{
    if (level < 0)
        return tmpl_p_parse_unary(p, true);
    struct tmpl_node *left = parse_binary(p, level - 1);
    while (left && !p->error) {
        ASSERT((size_t)level < COUNT_OF(levels));
        const struct level *l = levels[level];
        while (l->op && !tmpl_p_is_op(p, l->op))
            l++;
        if (!l->op)
            return left;
        struct tmpl_node *n = tmpl_p_node(p, TMPL_BINARY);
        p->at++;
        if (!n)
            return NULL;
        n->op = l->code;
        n->a = left;
        n->b = parse_binary(p, level - 1);
        left = n->b ? n : NULL;
    }
    return NULL;
}

static bool take_comparison(struct tmpl_parser *p, enum tmpl_op *ret)
{
    static const struct level comparisons[] = {{"==", TMPL_OP_EQ}, {"!=", TMPL_OP_NE}, {"<=", TMPL_OP_LE},
                                               {">=", TMPL_OP_GE}, {"<", TMPL_OP_LT},  {">", TMPL_OP_GT}};
    for (size_t i = 0; i < COUNT_OF(comparisons); i++) {
        if (tmpl_p_take_op(p, comparisons[i].op)) {
            *ret = comparisons[i].code;
            return true;
        }
    }
    *ret = TMPL_OP_IN;
    if (tmpl_p_take_word(p, "in"))
        return true;
    const struct tmpl_token *next = &p->tokens[p->at + 1];
    if (is_word(p, "not") && next->kind == TMPL_TOKEN_NAME && slice_eq(next->text, SLICE("in"))) {
        p->at += 2;
        *ret = TMPL_OP_NOT_IN;
        return true;
    }
    return false;
}

static struct tmpl_node *parse_compare(struct tmpl_parser *p)
{
    enum { CHAIN_MAX = 16 };
    enum tmpl_op ops[CHAIN_MAX], op;
    struct tmpl_node_list l = {0};
    struct tmpl_node *first = parse_binary(p, (int)COUNT_OF(levels) - 1);
    while (first && !p->error && take_comparison(p, &op)) {
        if (l.count == CHAIN_MAX)
            return tmpl_p_fail(p, "a chain of comparisons is too long here (16)");
        ops[l.count] = op;
        if (!tmpl_p_list_push(p, &l, parse_binary(p, (int)COUNT_OF(levels) - 1)))
            return NULL;
    }
    if (!first || p->error || l.count == 0)
        return p->error ? NULL : first;
    struct tmpl_node *n = tmpl_p_with_list(tmpl_p_node(p, TMPL_COMPARE), &l);
    enum tmpl_op *copy = ARENA_ARRAY(p->a, enum tmpl_op, l.count);
    if (!n || !copy)
        return tmpl_p_fail_memory(p);
    memcpy(copy, ops, l.count * sizeof(*copy));
    n->a = first;
    n->ops = copy;
    return n;
}

static struct tmpl_node *parse_not(struct tmpl_parser *p)
{
    if (!is_word(p, "not"))
        return parse_compare(p);
    struct tmpl_node *n = tmpl_p_node(p, TMPL_NOT);
    p->at++;
    if (!n || !tmpl_p_enter(p))
        return NULL;
    n->a = parse_not(p);
    p->depth--;
    return n->a ? n : NULL;
}

struct tmpl_node *tmpl_p_parse_logic(struct tmpl_parser *p, const char *word, enum tmpl_kind kind)
{
    ASSERT(kind == TMPL_OR || kind == TMPL_AND);
    bool is_or = kind == TMPL_OR;
    struct tmpl_node *left = is_or ? tmpl_p_parse_logic(p, "and", TMPL_AND) : parse_not(p);
    while (left && !p->error && is_word(p, word)) {
        struct tmpl_node *n = tmpl_p_node(p, kind);
        p->at++;
        if (!n)
            return NULL;
        n->a = left;
        n->b = is_or ? tmpl_p_parse_logic(p, "and", TMPL_AND) : parse_not(p);
        left = n->b ? n : NULL;
    }
    return left;
}

struct tmpl_node *tmpl_p_parse_expression(struct tmpl_parser *p)
{
    if (p->error || !tmpl_p_enter(p))
        return NULL;
    struct tmpl_node *n = tmpl_p_parse_logic(p, "or", TMPL_OR);
    while (n && !p->error && is_word(p, "if")) {
        struct tmpl_node *t = tmpl_p_node(p, TMPL_TERNARY);
        p->at++;
        if (!t)
            return NULL;
        t->b = n;
        t->a = tmpl_p_parse_logic(p, "or", TMPL_OR);
        if (tmpl_p_take_word(p, "else"))
            t->c = tmpl_p_parse_expression(p);
        n = t->a ? t : NULL;
    }
    p->depth--;
    return p->error ? NULL : n;
}

/* expr or a bare tuple: "a, b". */
struct tmpl_node *tmpl_p_parse_tuple(struct tmpl_parser *p)
{
    struct tmpl_node *first = tmpl_p_parse_expression(p);
    if (!first || !tmpl_p_is_op(p, ","))
        return first;
    struct tmpl_node_list l = {0};
    struct tmpl_node *n = tmpl_p_node(p, TMPL_TUPLE);
    if (!n || !tmpl_p_list_push(p, &l, first))
        return NULL;
    while (tmpl_p_take_op(p, ","))
        if (!tmpl_p_list_push(p, &l, tmpl_p_parse_expression(p)))
            return NULL;
    return tmpl_p_with_list(n, &l);
}
