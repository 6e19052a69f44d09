/* tmpl_parser.c - recursive descent with Jinja's precedences; nesting is bounded, left-leaning chains are flat loops. */
#include "text/tmpl_ast.h"

#include "base/check.h"
#include "text/tmpl_builtins.h"

#include <errno.h>
#include <stdio.h>

#define TMPL_NODE_LIST_MAX 4096

struct parser {
    struct arena *a;
    const struct tmpl_token *tokens;
    uint32_t at, depth, loops, macros;
    int error;
    struct err *e;
};

/* A list under construction. */
struct node_list {
    struct tmpl_node **items;
    uint32_t count, capacity;
};

static struct tmpl_node *parse_expression(struct parser *p);
static struct tmpl_node *parse_unary(struct parser *p, bool with_filters);
static struct tmpl_node *parse_body(struct parser *p, const char *const *ends);

static const struct tmpl_token *now(const struct parser *p)
{
    return &p->tokens[p->at];
}

static void *fail(struct parser *p, const char *what)
{
    if (p->error == 0) {
        struct slice text =
            now(p)->kind == TMPL_TOKEN_END ? SLICE("the end") : slice_sub(now(p)->text, 0, 40);
        p->error = err_set(p->e, -EINVAL, "line %u: %s, not \"%.*s\"", now(p)->line, what, SLICE_ARGS(text));
    }
    return NULL;
}

static void *fail_memory(struct parser *p)
{
    if (p->error == 0)
        p->error = err_set(p->e, -ENOMEM, "the template does not fit in its memory");
    return NULL;
}

static bool is_op(const struct parser *p, const char *op)
{
    return now(p)->kind == TMPL_TOKEN_OP && slice_eq(now(p)->text, slice_of(op));
}

static bool is_word(const struct parser *p, const char *word)
{
    return now(p)->kind == TMPL_TOKEN_NAME && slice_eq(now(p)->text, slice_of(word));
}

static bool take_op(struct parser *p, const char *op)
{
    bool yes = is_op(p, op);
    p->at += yes;
    return yes;
}

static bool take_word(struct parser *p, const char *word)
{
    bool yes = is_word(p, word);
    p->at += yes;
    return yes;
}

static bool take(struct parser *p, enum tmpl_token_kind kind, const char *what)
{
    if (p->error || now(p)->kind != kind)
        return fail(p, what) != NULL;
    p->at++;
    return true;
}

static bool need_op(struct parser *p, const char *op, const char *what)
{
    return take_op(p, op) || fail(p, what) != NULL;
}

static struct tmpl_node *node(struct parser *p, enum tmpl_kind kind)
{
    struct tmpl_node *n = ARENA_NEW(p->a, struct tmpl_node);
    if (!n)
        return fail_memory(p);
    n->kind = kind;
    n->line = now(p)->line;
    return n;
}

static bool list_push(struct parser *p, struct node_list *l, struct tmpl_node *n)
{
    if (!n)
        return false;
    if (l->count == TMPL_NODE_LIST_MAX)
        return fail(p, "a list is too long here (4096 parts)") != NULL;
    if (l->count == l->capacity) {
        uint32_t want = l->capacity ? l->capacity * 2 : 8;
        struct tmpl_node **items = ARENA_ARRAY(p->a, struct tmpl_node *, want);
        if (!items)
            return fail_memory(p) != NULL;
        if (l->count)
            memcpy(items, l->items, l->count * sizeof(*items));
        l->items = items;
        l->capacity = want;
    }
    l->items[l->count++] = n;
    return true;
}

static struct tmpl_node *with_list(struct tmpl_node *n, const struct node_list *l)
{
    if (n) {
        n->list = l->items;
        n->list_count = l->count;
    }
    return n;
}

static bool enter(struct parser *p)
{
    if (++p->depth <= TMPL_NESTING_MAX)
        return true;
    return fail(p, "nested too deeply (200)") != NULL;
}

/* --- expressions --- */

static struct tmpl_node *constant(struct parser *p, struct tmpl_value v)
{
    struct tmpl_node *n = node(p, TMPL_CONST);
    if (n)
        n->value = v;
    return n;
}

/* Neighbouring strings are one. */
static struct tmpl_node *parse_string(struct parser *p)
{
    struct tmpl_text t;
    tmpl_text_init(&t, p->a, TMPL_SOURCE_BYTES_MAX);
    struct slice only = now(p)->text;
    bool joined = p->tokens[p->at + 1].kind == TMPL_TOKEN_STRING;
    for (; now(p)->kind == TMPL_TOKEN_STRING; p->at++)
        if (joined)
            tmpl_text_put(&t, now(p)->text);
    if (t.failed)
        return fail_memory(p);
    return constant(p, tmpl_string(joined ? tmpl_text_slice(&t) : only));
}

/* Items up to `close`. Sets *comma when there was one (a tuple). */
static bool parse_items(struct parser *p, const char *close, struct node_list *l, bool *comma)
{
    *comma = false;
    while (!p->error && !take_op(p, close)) {
        if (!list_push(p, l, parse_expression(p)))
            return false;
        if (take_op(p, close))
            return true;
        if (!need_op(p, ",", "a comma or the end of the list is expected here"))
            return false;
        *comma = true;
    }
    return p->error == 0;
}

static struct tmpl_node *parse_dict(struct parser *p)
{
    struct node_list l = {0};
    struct tmpl_node *n = node(p, TMPL_DICT);
    while (n && !take_op(p, "}")) {
        if (!list_push(p, &l, parse_expression(p)) || !need_op(p, ":", "a colon is expected here") ||
            !list_push(p, &l, parse_expression(p)))
            return NULL;
        if (!is_op(p, "}") && !need_op(p, ",", "a comma or the end of the dict is expected here"))
            return NULL;
    }
    return with_list(n, &l);
}

static struct tmpl_node *parse_parenthesis(struct parser *p)
{
    struct node_list l = {0};
    bool comma;
    struct tmpl_node *n = node(p, TMPL_TUPLE);
    if (!n || !parse_items(p, ")", &l, &comma))
        return NULL;
    return l.count == 1 && !comma ? l.items[0] : with_list(n, &l);
}

static struct tmpl_node *parse_name(struct parser *p)
{
    static const struct {
        const char *word;
        enum tmpl_type type;
        bool b;
    } constants[] = {{"true", TMPL_BOOL, true},   {"True", TMPL_BOOL, true},  {"false", TMPL_BOOL, false},
                     {"False", TMPL_BOOL, false}, {"none", TMPL_NONE, false}, {"None", TMPL_NONE, false}};
    for (size_t i = 0; i < COUNT_OF(constants); i++)
        if (take_word(p, constants[i].word))
            return constant(p, constants[i].type == TMPL_NONE ? tmpl_none() : tmpl_bool(constants[i].b));
    struct tmpl_node *n = node(p, TMPL_NAME);
    if (n)
        n->name = now(p)->text;
    p->at++;
    return n;
}

static struct tmpl_node *parse_primary(struct parser *p)
{
    const struct tmpl_token *t = now(p);
    struct node_list l = {0};
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
    if (take_op(p, "("))
        return parse_parenthesis(p);
    if (take_op(p, "{"))
        return parse_dict(p);
    if (take_op(p, "[")) {
        struct tmpl_node *n = node(p, TMPL_LIST);
        return n && parse_items(p, "]", &l, &comma) ? with_list(n, &l) : NULL;
    }
    return fail(p, "a value is expected here");
}

/* Arguments behind "(" into n's list and names. */
static struct tmpl_node *parse_arguments(struct parser *p, struct tmpl_node *n)
{
    struct node_list l = {0};
    if (!n)
        return NULL;
    n->names = ARENA_ARRAY(p->a, struct slice, TMPL_ARGS_MAX);
    if (!n->names)
        return fail_memory(p);
    while (!p->error && !take_op(p, ")")) {
        if (l.count == TMPL_ARGS_MAX)
            return fail(p, "too many arguments here (16)");
        const struct tmpl_token *next = &p->tokens[p->at + 1];
        if (now(p)->kind == TMPL_TOKEN_NAME && next->kind == TMPL_TOKEN_OP &&
            slice_eq(next->text, SLICE("="))) {
            n->names[l.count] = now(p)->text;
            p->at += 2;
        }
        if (!list_push(p, &l, parse_expression(p)))
            return NULL;
        if (!is_op(p, ")") && !need_op(p, ",", "a comma or ')' is expected here"))
            return NULL;
    }
    n->name_count = l.count;
    return p->error ? NULL : with_list(n, &l);
}

static struct tmpl_node *optional_until(struct parser *p, const char *a, const char *b)
{
    return is_op(p, a) || is_op(p, b) ? NULL : parse_expression(p);
}

static struct tmpl_node *parse_subscript(struct parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = node(p, TMPL_INDEX);
    if (!n)
        return NULL;
    n->a = of;
    n->b = optional_until(p, ":", "]");
    if (take_op(p, ":")) {
        n->kind = TMPL_SLICE;
        n->c = optional_until(p, ":", "]");
        if (take_op(p, ":"))
            n->d = optional_until(p, "]", "]");
    } else if (!n->b) {
        return fail(p, "an index is expected here");
    }
    return need_op(p, "]", "']' is expected here") ? n : NULL;
}

static struct tmpl_node *parse_attribute(struct parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n;
    if (now(p)->kind == TMPL_TOKEN_INT) {
        n = node(p, TMPL_INDEX);
        if (n) {
            n->a = of;
            n->b = constant(p, tmpl_int(now(p)->i));
        }
        p->at++;
        return n;
    }
    n = node(p, TMPL_ATTR);
    if (!n)
        return NULL;
    n->a = of;
    n->name = now(p)->text;
    return take(p, TMPL_TOKEN_NAME, "a name is expected behind the point") ? n : NULL;
}

static struct tmpl_node *parse_call(struct parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = node(p, TMPL_CALL);
    if (n)
        n->a = of;
    return parse_arguments(p, n);
}

static struct tmpl_node *parse_postfix(struct parser *p, struct tmpl_node *n)
{
    while (n && !p->error) {
        if (take_op(p, "."))
            n = parse_attribute(p, n);
        else if (take_op(p, "["))
            n = parse_subscript(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

static struct tmpl_node *parse_filter(struct parser *p, struct tmpl_node *of)
{
    struct tmpl_node *n = node(p, TMPL_FILTER);
    if (!n)
        return NULL;
    n->a = of;
    n->name = now(p)->text;
    n->builtin = now(p)->kind == TMPL_TOKEN_NAME ? tmpl_filter_find(n->name) : -1;
    if (n->builtin < 0)
        return fail(p, "the name of a filter that this engine has is expected here");
    p->at++;
    return take_op(p, "(") ? parse_arguments(p, n) : n;
}

/* Does a test's argument without parentheses begin here? `is divisibleby 3`, `is equalto x`. */
static bool at_test_argument(const struct parser *p)
{
    static const char *const words[] = {"else", "or", "and", "is", "if", "in", "not"};
    enum tmpl_token_kind k = now(p)->kind;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (is_word(p, words[i]))
            return false;
    return k == TMPL_TOKEN_NAME || k == TMPL_TOKEN_STRING || k == TMPL_TOKEN_INT || k == TMPL_TOKEN_FLOAT ||
           is_op(p, "[") || is_op(p, "{");
}

static struct tmpl_node *parse_test(struct parser *p, struct tmpl_node *of)
{
    bool negated = take_word(p, "not");
    struct tmpl_node *n = node(p, TMPL_TEST), *negation = negated ? node(p, TMPL_NOT) : NULL;
    struct node_list l = {0};
    if (!n || (negated && !negation))
        return NULL;
    n->a = of;
    n->name = now(p)->text;
    n->builtin = now(p)->kind == TMPL_TOKEN_NAME ? tmpl_test_find(n->name) : -1;
    if (n->builtin < 0)
        return fail(p, "the name of a test that this engine has is expected here");
    p->at++;
    if (take_op(p, "(")) {
        n = parse_arguments(p, n);
    } else if (at_test_argument(p)) {
        n->names = ARENA_ARRAY(p->a, struct slice, 1);
        if (!n->names || !list_push(p, &l, parse_postfix(p, parse_primary(p))))
            return NULL;
        n->name_count = 1;
        n = with_list(n, &l);
    }
    if (!negated)
        return n;
    negation->a = n;
    return n ? negation : NULL;
}

static struct tmpl_node *parse_filters(struct parser *p, struct tmpl_node *n)
{
    while (n && !p->error) {
        if (take_op(p, "|"))
            n = parse_filter(p, n);
        else if (take_word(p, "is"))
            n = parse_test(p, n);
        else if (take_op(p, "("))
            n = parse_call(p, n);
        else
            return n;
    }
    return NULL;
}

static struct tmpl_node *parse_unary(struct parser *p, bool with_filters)
{
    if (p->error || !enter(p))
        return NULL;
    struct tmpl_node *n;
    if (is_op(p, "-") || is_op(p, "+")) {
        n = node(p, is_op(p, "-") ? TMPL_NEGATE : TMPL_PLUS);
        p->at++;
        if (n)
            n->a = parse_unary(p, false);
        n = n && n->a ? n : NULL;
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filters(p, n);
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
static struct tmpl_node *parse_binary(struct parser *p, int level)
{
    if (level < 0)
        return parse_unary(p, true);
    struct tmpl_node *left = parse_binary(p, level - 1);
    while (left && !p->error) {
        const struct level *l = levels[level];
        while (l->op && !is_op(p, l->op))
            l++;
        if (!l->op)
            return left;
        struct tmpl_node *n = node(p, TMPL_BINARY);
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

static bool take_comparison(struct parser *p, enum tmpl_op *ret)
{
    static const struct level comparisons[] = {{"==", TMPL_OP_EQ}, {"!=", TMPL_OP_NE}, {"<=", TMPL_OP_LE},
                                               {">=", TMPL_OP_GE}, {"<", TMPL_OP_LT},  {">", TMPL_OP_GT}};
    for (size_t i = 0; i < COUNT_OF(comparisons); i++) {
        if (take_op(p, comparisons[i].op)) {
            *ret = comparisons[i].code;
            return true;
        }
    }
    *ret = TMPL_OP_IN;
    if (take_word(p, "in"))
        return true;
    const struct tmpl_token *next = &p->tokens[p->at + 1];
    if (is_word(p, "not") && next->kind == TMPL_TOKEN_NAME && slice_eq(next->text, SLICE("in"))) {
        p->at += 2;
        *ret = TMPL_OP_NOT_IN;
        return true;
    }
    return false;
}

static struct tmpl_node *parse_compare(struct parser *p)
{
    enum { CHAIN_MAX = 16 };
    enum tmpl_op ops[CHAIN_MAX], op;
    struct node_list l = {0};
    struct tmpl_node *first = parse_binary(p, (int)COUNT_OF(levels) - 1);
    while (first && !p->error && take_comparison(p, &op)) {
        if (l.count == CHAIN_MAX)
            return fail(p, "a chain of comparisons is too long here (16)");
        ops[l.count] = op;
        if (!list_push(p, &l, parse_binary(p, (int)COUNT_OF(levels) - 1)))
            return NULL;
    }
    if (!first || p->error || l.count == 0)
        return p->error ? NULL : first;
    struct tmpl_node *n = with_list(node(p, TMPL_COMPARE), &l);
    enum tmpl_op *copy = ARENA_ARRAY(p->a, enum tmpl_op, l.count);
    if (!n || !copy)
        return fail_memory(p);
    memcpy(copy, ops, l.count * sizeof(*copy));
    n->a = first;
    n->ops = copy;
    return n;
}

static struct tmpl_node *parse_not(struct parser *p)
{
    if (!is_word(p, "not"))
        return parse_compare(p);
    struct tmpl_node *n = node(p, TMPL_NOT);
    p->at++;
    if (!n || !enter(p))
        return NULL;
    n->a = parse_not(p);
    p->depth--;
    return n->a ? n : NULL;
}

static struct tmpl_node *parse_logic(struct parser *p, const char *word, enum tmpl_kind kind)
{
    bool is_or = kind == TMPL_OR;
    struct tmpl_node *left = is_or ? parse_logic(p, "and", TMPL_AND) : parse_not(p);
    while (left && !p->error && is_word(p, word)) {
        struct tmpl_node *n = node(p, kind);
        p->at++;
        if (!n)
            return NULL;
        n->a = left;
        n->b = is_or ? parse_logic(p, "and", TMPL_AND) : parse_not(p);
        left = n->b ? n : NULL;
    }
    return left;
}

static struct tmpl_node *parse_expression(struct parser *p)
{
    if (p->error || !enter(p))
        return NULL;
    struct tmpl_node *n = parse_logic(p, "or", TMPL_OR);
    while (n && !p->error && is_word(p, "if")) {
        struct tmpl_node *t = node(p, TMPL_TERNARY);
        p->at++;
        if (!t)
            return NULL;
        t->b = n;
        t->a = parse_logic(p, "or", TMPL_OR);
        if (take_word(p, "else"))
            t->c = parse_expression(p);
        n = t->a ? t : NULL;
    }
    p->depth--;
    return p->error ? NULL : n;
}

/* expr or a bare tuple: "a, b". */
static struct tmpl_node *parse_tuple(struct parser *p)
{
    struct tmpl_node *first = parse_expression(p);
    if (!first || !is_op(p, ","))
        return first;
    struct node_list l = {0};
    struct tmpl_node *n = node(p, TMPL_TUPLE);
    if (!n || !list_push(p, &l, first))
        return NULL;
    while (take_op(p, ","))
        if (!list_push(p, &l, parse_expression(p)))
            return NULL;
    return with_list(n, &l);
}

/* --- statements --- */

static bool close_tag(struct parser *p)
{
    return take(p, TMPL_TOKEN_TAG_CLOSE, "the end of the tag is expected here");
}

/* {% WORD %} */
static bool end_tag(struct parser *p, const char *word)
{
    if (p->error || now(p)->kind != TMPL_TOKEN_TAG_OPEN || !(p->at++, take_word(p, word))) {
        char what[64];
        snprintf(what, sizeof(what), "{%% %s %%} is expected here", word);
        return fail(p, what) != NULL;
    }
    return close_tag(p);
}

/* One name, or names in a tuple. At most TMPL_ARGS_MAX. */
static bool parse_targets(struct parser *p, struct tmpl_node *n)
{
    n->names = ARENA_ARRAY(p->a, struct slice, TMPL_ARGS_MAX);
    if (!n->names)
        return fail_memory(p) != NULL;
    bool parenthesis = take_op(p, "(");
    do {
        if (n->name_count == TMPL_ARGS_MAX)
            return fail(p, "too many names here (16)") != NULL;
        n->names[n->name_count++] = now(p)->text;
        if (!take(p, TMPL_TOKEN_NAME, "a name is expected here"))
            return false;
    } while (take_op(p, ","));
    return !parenthesis || need_op(p, ")", "')' is expected here");
}

static struct tmpl_node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct tmpl_node *first = NULL, **link = &first;
    for (;;) {
        struct tmpl_node *n = node(p, TMPL_IF);
        if (!n || !(n->a = parse_tuple(p)) || !close_tag(p) || !(n->b = parse_body(p, ends)))
            return NULL;
        *link = n;
        link = &n->c;
        p->at++; /* the tag's opening: parse_body stopped there */
        if (take_word(p, "elif"))
            continue;
        if (!take_word(p, "else"))
            break;
        static const char *const end[] = {"endif", NULL};
        if (!close_tag(p) || !(n->c = parse_body(p, end)))
            return NULL;
        p->at++;
        break;
    }
    p->at++; /* endif */
    return close_tag(p) ? first : NULL;
}

static struct tmpl_node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    struct tmpl_node *n = node(p, TMPL_FOR);
    if (!n || !parse_targets(p, n))
        return NULL;
    if (!take_word(p, "in"))
        return fail(p, "\"in\" is expected here");
    /* Without a ternary: the `if` behind the iterable filters the loop. */
    n->a = parse_logic(p, "or", TMPL_OR);
    if (n->a && take_word(p, "if"))
        n->d = parse_expression(p);
    if (!n->a || !close_tag(p))
        return NULL;
    p->loops++;
    n->b = parse_body(p, ends);
    p->loops--;
    if (!n->b)
        return NULL;
    p->at++;
    if (take_word(p, "else")) {
        if (!close_tag(p) || !(n->c = parse_body(p, end)))
            return NULL;
        p->at++;
    }
    p->at++; /* endfor */
    return close_tag(p) ? n : NULL;
}

static struct tmpl_node *parse_set_block(struct parser *p, struct tmpl_node *n)
{
    static const char *const end[] = {"endset", NULL};
    struct node_list filters = {0};
    n->kind = TMPL_SET_BLOCK;
    while (take_op(p, "|")) {
        struct tmpl_node *f = parse_filter(p, NULL);
        if (!list_push(p, &filters, f))
            return NULL;
    }
    if (!close_tag(p) || !(n->b = parse_body(p, end)))
        return NULL;
    p->at += 2;
    return close_tag(p) ? with_list(n, &filters) : NULL;
}

static struct tmpl_node *parse_set(struct parser *p)
{
    struct tmpl_node *n = node(p, TMPL_SET);
    if (!n || !parse_targets(p, n))
        return NULL;
    if (n->name_count == 1 && take_op(p, ".")) {
        n->kind = TMPL_SET_ATTR;
        n->names[n->name_count++] = now(p)->text;
        if (!take(p, TMPL_TOKEN_NAME, "a name is expected here"))
            return NULL;
    }
    if (!take_op(p, "="))
        return n->kind == TMPL_SET && n->name_count == 1 ? parse_set_block(p, n)
                                                         : fail(p, "'=' is expected here");
    n->a = parse_tuple(p);
    return n->a && close_tag(p) ? n : NULL;
}

/* "(a, b=1)" into names and the defaults of the last ones. */
static bool parse_parameters(struct parser *p, struct tmpl_node *n)
{
    struct node_list defaults = {0};
    n->names = ARENA_ARRAY(p->a, struct slice, TMPL_ARGS_MAX);
    if (!n->names)
        return fail_memory(p) != NULL;
    while (!p->error && !take_op(p, ")")) {
        if (n->name_count == TMPL_ARGS_MAX)
            return fail(p, "too many parameters here (16)") != NULL;
        n->names[n->name_count++] = now(p)->text;
        if (!take(p, TMPL_TOKEN_NAME, "a parameter's name is expected here"))
            return false;
        if (take_op(p, "=")) {
            if (!list_push(p, &defaults, parse_expression(p)))
                return false;
        } else if (defaults.count > 0) {
            return fail(p, "a default is expected here: the parameter before has one") != NULL;
        }
        if (!is_op(p, ")") && !need_op(p, ",", "a comma or ')' is expected here"))
            return false;
    }
    with_list(n, &defaults);
    return p->error == 0;
}

static struct tmpl_node *parse_callable_body(struct parser *p, struct tmpl_node *n, const char *word)
{
    const char *const end[] = {word, NULL};
    uint32_t loops = p->loops;
    p->loops = 0; /* a break cannot leave a macro */
    n->b = close_tag(p) ? parse_body(p, end) : NULL;
    p->loops = loops;
    if (!n->b)
        return NULL;
    p->at += 2;
    return close_tag(p) ? n : NULL;
}

static struct tmpl_node *parse_macro(struct parser *p)
{
    struct tmpl_node *n = node(p, TMPL_MACRO);
    if (!n)
        return NULL;
    n->name = now(p)->text;
    if (!take(p, TMPL_TOKEN_NAME, "a macro's name is expected here") ||
        !need_op(p, "(", "'(' is expected here") || !parse_parameters(p, n))
        return NULL;
    return parse_callable_body(p, n, "endmacro");
}

static struct tmpl_node *parse_call_block(struct parser *p)
{
    struct tmpl_node *n = node(p, TMPL_CALL_BLOCK);
    if (!n)
        return NULL;
    if (take_op(p, "(") && !parse_parameters(p, n))
        return NULL;
    n->a = parse_unary(p, false);
    if (n->a && n->a->kind != TMPL_CALL)
        return fail(p, "a call is expected here");
    return n->a ? parse_callable_body(p, n, "endcall") : NULL;
}

static struct tmpl_node *parse_filter_block(struct parser *p)
{
    static const char *const end[] = {"endfilter", NULL};
    struct tmpl_node *n = node(p, TMPL_FILTERED);
    if (!n || !(n->a = parse_filter(p, NULL)) || !close_tag(p) || !(n->b = parse_body(p, end)))
        return NULL;
    p->at += 2;
    return close_tag(p) ? n : NULL;
}

static struct tmpl_node *parse_loop_control(struct parser *p, enum tmpl_kind kind)
{
    if (p->loops == 0)
        return fail(p, "break and continue stand inside a loop");
    struct tmpl_node *n = node(p, kind);
    return n && close_tag(p) ? n : NULL;
}

/* {% generation %}...{% endgeneration %} marks what was trained on: its content is all that matters here. */
static struct tmpl_node *parse_generation(struct parser *p)
{
    static const char *const end[] = {"endgeneration", NULL};
    struct tmpl_node *n = close_tag(p) ? parse_body(p, end) : NULL;
    if (!n)
        return NULL;
    return end_tag(p, "endgeneration") ? n : NULL;
}

static struct tmpl_node *parse_tag(struct parser *p)
{
    if (take_word(p, "if"))
        return parse_if(p);
    if (take_word(p, "for"))
        return parse_for(p);
    if (take_word(p, "set"))
        return parse_set(p);
    if (take_word(p, "macro"))
        return parse_macro(p);
    if (take_word(p, "call"))
        return parse_call_block(p);
    if (take_word(p, "filter"))
        return parse_filter_block(p);
    if (take_word(p, "break"))
        return parse_loop_control(p, TMPL_BREAK);
    if (take_word(p, "continue"))
        return parse_loop_control(p, TMPL_CONTINUE);
    if (take_word(p, "generation"))
        return parse_generation(p);
    return fail(p, "a tag that this engine has is expected here");
}

static struct tmpl_node *parse_statement(struct parser *p)
{
    const struct tmpl_token *t = now(p);
    struct tmpl_node *n;
    p->at++;
    switch (t->kind) {
    case TMPL_TOKEN_TEXT:
        n = node(p, TMPL_TEXT);
        if (n)
            n->value = tmpl_string(t->text);
        return n;
    case TMPL_TOKEN_OUTPUT_OPEN:
        n = node(p, TMPL_OUTPUT);
        if (!n || !(n->a = parse_tuple(p)))
            return NULL;
        return take(p, TMPL_TOKEN_OUTPUT_CLOSE, "\"}}\" is expected here") ? n : NULL;
    case TMPL_TOKEN_TAG_OPEN:
        return parse_tag(p);
    default:
        return fail(p, "text or a tag is expected here");
    }
}

static bool at_end_word(const struct parser *p, const char *const *ends)
{
    const struct tmpl_token *word = &p->tokens[p->at + 1];
    if (now(p)->kind != TMPL_TOKEN_TAG_OPEN || word->kind != TMPL_TOKEN_NAME)
        return false;
    for (; *ends; ends++)
        if (slice_eq(word->text, slice_of(*ends)))
            return true;
    return false;
}

/* Statements up to {% END %}, where it stops with the tag's opening as the next token; without ends to the template's end. */
static struct tmpl_node *parse_body(struct parser *p, const char *const *ends)
{
    struct node_list l = {0};
    struct tmpl_node *n = node(p, TMPL_SEQUENCE);
    if (!n || !enter(p))
        return NULL;
    while (!p->error && now(p)->kind != TMPL_TOKEN_END && !(ends && at_end_word(p, ends)))
        if (!list_push(p, &l, parse_statement(p)))
            return NULL;
    if (!p->error && ends && now(p)->kind == TMPL_TOKEN_END)
        return fail(p, "the end of a block is expected here");
    p->depth--;
    return p->error ? NULL : with_list(n, &l);
}

int tmpl_parse(struct arena *a, struct slice source, struct tmpl_node **ret, struct err *e)
{
    struct tmpl_token *tokens;
    uint32_t count;
    int r = tmpl_lex(a, source, &tokens, &count, e);
    if (r < 0)
        return r;
    struct parser p = {.a = a, .tokens = tokens, .e = e};
    struct tmpl_node *n = parse_body(&p, NULL);
    if (!n)
        return p.error ? p.error : -EINVAL;
    *ret = n;
    return 0;
}
