/* tmpl_parser.c - statements; expressions are in tmpl_expr.c. */
#include "template/tmpl_builtins.h"
#include "template/tmpl_parse.h"

#include "base/check.h"

#include <errno.h>
#include <stdio.h>

static struct tmpl_node *parse_body(struct tmpl_parser *p, const char *const *ends);

/* --- statements --- */

static bool close_tag(struct tmpl_parser *p)
{
    return tmpl_p_take(p, TMPL_TOKEN_TAG_CLOSE, "the end of the tag is expected here");
}

/* {% WORD %} */
static bool end_tag(struct tmpl_parser *p, const char *word)
{
    if (p->error || tmpl_p_now(p)->kind != TMPL_TOKEN_TAG_OPEN || !(p->at++, tmpl_p_take_word(p, word))) {
        char what[64];
        snprintf(what, sizeof(what), "{%% %s %%} is expected here", word);
        return tmpl_p_fail(p, what) != NULL;
    }
    return close_tag(p);
}

/* One name, or names in a tuple. At most TMPL_ARGS_MAX. */
static bool parse_targets(struct tmpl_parser *p, struct tmpl_node *n)
{
    n->names = ARENA_ARRAY(p->a, struct slice, TMPL_ARGS_MAX);
    if (!n->names)
        return tmpl_p_fail_memory(p) != NULL;
    bool parenthesis = tmpl_p_take_op(p, "(");
    do {
        if (n->name_count == TMPL_ARGS_MAX)
            return tmpl_p_fail(p, "too many names here (16)") != NULL;
        n->names[n->name_count++] = tmpl_p_now(p)->text;
        if (!tmpl_p_take(p, TMPL_TOKEN_NAME, "a name is expected here"))
            return false;
    } while (tmpl_p_take_op(p, ","));
    return !parenthesis || tmpl_p_need_op(p, ")", "')' is expected here");
}

static struct tmpl_node *parse_if(struct tmpl_parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    struct tmpl_node *first = NULL, **link = &first;
    for (;;) {
        struct tmpl_node *n = tmpl_p_node(p, TMPL_IF);
        if (!n || !(n->a = tmpl_p_parse_tuple(p)) || !close_tag(p) || !(n->b = parse_body(p, ends)))
            return NULL;
        *link = n;
        link = &n->c;
        ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_TAG_OPEN);
        p->at++; /* the tag's opening: parse_body stopped there */
        if (tmpl_p_take_word(p, "elif"))
            continue;
        if (!tmpl_p_take_word(p, "else"))
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

static struct tmpl_node *parse_for(struct tmpl_parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    struct tmpl_node *n = tmpl_p_node(p, TMPL_FOR);
    if (!n || !parse_targets(p, n))
        return NULL;
    if (!tmpl_p_take_word(p, "in"))
        return tmpl_p_fail(p, "\"in\" is expected here");
    /* Without a ternary: the `if` after the iterable filters the loop. */
    n->a = tmpl_p_parse_logic(p, "or", TMPL_OR);
    if (n->a && tmpl_p_take_word(p, "if"))
        n->d = tmpl_p_parse_expression(p);
    if (!n->a || !close_tag(p))
        return NULL;
    p->loops++;
    n->b = parse_body(p, ends);
    ASSERT(p->loops > 0);
    p->loops--;
    if (!n->b)
        return NULL;
    ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_TAG_OPEN);
    p->at++;
    if (tmpl_p_take_word(p, "else")) {
        if (!close_tag(p) || !(n->c = parse_body(p, end)))
            return NULL;
        p->at++;
    }
    p->at++; /* endfor */
    return close_tag(p) ? n : NULL;
}

static struct tmpl_node *parse_set_block(struct tmpl_parser *p, struct tmpl_node *n)
{
    static const char *const end[] = {"endset", NULL};
    struct tmpl_node_list filters = {0};
    n->kind = TMPL_SET_BLOCK;
    while (tmpl_p_take_op(p, "|")) {
        struct tmpl_node *f = tmpl_p_parse_filter(p, NULL);
        if (!tmpl_p_list_push(p, &filters, f))
            return NULL;
    }
    if (!close_tag(p) || !(n->b = parse_body(p, end)))
        return NULL;
    ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_TAG_OPEN);
    p->at += 2;
    return close_tag(p) ? tmpl_p_with_list(n, &filters) : NULL;
}

static struct tmpl_node *parse_set(struct tmpl_parser *p)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_SET);
    if (!n || !parse_targets(p, n))
        return NULL;
    if (n->name_count == 1 && tmpl_p_take_op(p, ".")) {
        n->kind = TMPL_SET_ATTR;
        n->names[n->name_count++] = tmpl_p_now(p)->text;
        if (!tmpl_p_take(p, TMPL_TOKEN_NAME, "a name is expected here"))
            return NULL;
    }
    if (!tmpl_p_take_op(p, "="))
        return n->kind == TMPL_SET && n->name_count == 1 ? parse_set_block(p, n)
                                                         : tmpl_p_fail(p, "'=' is expected here");
    n->a = tmpl_p_parse_tuple(p);
    return n->a && close_tag(p) ? n : NULL;
}

/* "(a, b=1)" into names and the defaults of the last ones. */
static bool parse_parameters(struct tmpl_parser *p, struct tmpl_node *n)
{
    struct tmpl_node_list defaults = {0};
    n->names = ARENA_ARRAY(p->a, struct slice, TMPL_ARGS_MAX);
    if (!n->names)
        return tmpl_p_fail_memory(p) != NULL;
    while (!p->error && !tmpl_p_take_op(p, ")")) {
        if (n->name_count == TMPL_ARGS_MAX)
            return tmpl_p_fail(p, "too many parameters here (16)") != NULL;
        n->names[n->name_count++] = tmpl_p_now(p)->text;
        if (!tmpl_p_take(p, TMPL_TOKEN_NAME, "a parameter's name is expected here"))
            return false;
        if (tmpl_p_take_op(p, "=")) {
            if (!tmpl_p_list_push(p, &defaults, tmpl_p_parse_expression(p)))
                return false;
        } else if (defaults.count > 0) {
            return tmpl_p_fail(p, "a default is expected here: the parameter before has one") != NULL;
        }
        if (!tmpl_p_is_op(p, ")") && !tmpl_p_need_op(p, ",", "a comma or ')' is expected here"))
            return false;
    }
    tmpl_p_with_list(n, &defaults);
    return p->error == 0;
}

static struct tmpl_node *parse_callable_body(struct tmpl_parser *p, struct tmpl_node *n, const char *word)
{
    const char *const end[] = {word, NULL};
    uint32_t loops = p->loops;
    p->loops = 0; /* a break cannot leave a macro */
    n->b = close_tag(p) ? parse_body(p, end) : NULL;
    p->loops = loops;
    if (!n->b)
        return NULL;
    ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_TAG_OPEN);
    p->at += 2;
    return close_tag(p) ? n : NULL;
}

static struct tmpl_node *parse_macro(struct tmpl_parser *p)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_MACRO);
    if (!n)
        return NULL;
    n->name = tmpl_p_now(p)->text;
    if (!tmpl_p_take(p, TMPL_TOKEN_NAME, "a macro's name is expected here") ||
        !tmpl_p_need_op(p, "(", "'(' is expected here") || !parse_parameters(p, n))
        return NULL;
    return parse_callable_body(p, n, "endmacro");
}

static struct tmpl_node *parse_call_block(struct tmpl_parser *p)
{
    struct tmpl_node *n = tmpl_p_node(p, TMPL_CALL_BLOCK);
    if (!n)
        return NULL;
    if (tmpl_p_take_op(p, "(") && !parse_parameters(p, n))
        return NULL;
    n->a = tmpl_p_parse_unary(p, false);
    if (n->a && n->a->kind != TMPL_CALL)
        return tmpl_p_fail(p, "a call is expected here");
    return n->a ? parse_callable_body(p, n, "endcall") : NULL;
}

static struct tmpl_node *parse_filter_block(struct tmpl_parser *p)
{
    static const char *const end[] = {"endfilter", NULL};
    struct tmpl_node *n = tmpl_p_node(p, TMPL_FILTERED);
    if (!n || !(n->a = tmpl_p_parse_filter(p, NULL)) || !close_tag(p) || !(n->b = parse_body(p, end)))
        return NULL;
    ASSERT(tmpl_p_now(p)->kind == TMPL_TOKEN_TAG_OPEN);
    p->at += 2;
    return close_tag(p) ? n : NULL;
}

static struct tmpl_node *parse_loop_control(struct tmpl_parser *p, enum tmpl_kind kind)
{
    if (p->loops == 0)
        return tmpl_p_fail(p, "break and continue stand inside a loop");
    struct tmpl_node *n = tmpl_p_node(p, kind);
    return n && close_tag(p) ? n : NULL;
}

/* {% generation %}...{% endgeneration %} marks text for training: only its content matters here. */
static struct tmpl_node *parse_generation(struct tmpl_parser *p)
{
    static const char *const end[] = {"endgeneration", NULL};
    struct tmpl_node *n = close_tag(p) ? parse_body(p, end) : NULL;
    if (!n)
        return NULL;
    return end_tag(p, "endgeneration") ? n : NULL;
}

static struct tmpl_node *parse_tag(struct tmpl_parser *p)
{
    if (tmpl_p_take_word(p, "if"))
        return parse_if(p);
    if (tmpl_p_take_word(p, "for"))
        return parse_for(p);
    if (tmpl_p_take_word(p, "set"))
        return parse_set(p);
    if (tmpl_p_take_word(p, "macro"))
        return parse_macro(p);
    if (tmpl_p_take_word(p, "call"))
        return parse_call_block(p);
    if (tmpl_p_take_word(p, "filter"))
        return parse_filter_block(p);
    if (tmpl_p_take_word(p, "break"))
        return parse_loop_control(p, TMPL_BREAK);
    if (tmpl_p_take_word(p, "continue"))
        return parse_loop_control(p, TMPL_CONTINUE);
    if (tmpl_p_take_word(p, "generation"))
        return parse_generation(p);
    return tmpl_p_fail(p, "a tag that this engine has is expected here");
}

static struct tmpl_node *parse_statement(struct tmpl_parser *p)
{
    const struct tmpl_token *t = tmpl_p_now(p);
    struct tmpl_node *n;
    p->at++;
    switch (t->kind) {
    case TMPL_TOKEN_TEXT:
        n = tmpl_p_node(p, TMPL_TEXT);
        if (n)
            n->value = tmpl_string(t->text);
        return n;
    case TMPL_TOKEN_OUTPUT_OPEN:
        n = tmpl_p_node(p, TMPL_OUTPUT);
        if (!n || !(n->a = tmpl_p_parse_tuple(p)))
            return NULL;
        return tmpl_p_take(p, TMPL_TOKEN_OUTPUT_CLOSE, "\"}}\" is expected here") ? n : NULL;
    case TMPL_TOKEN_TAG_OPEN:
        return parse_tag(p);
    default:
        return tmpl_p_fail(p, "text or a tag is expected here");
    }
}

static bool at_end_word(const struct tmpl_parser *p, const char *const *ends)
{
    const struct tmpl_token *word = &p->tokens[p->at + 1];
    if (tmpl_p_now(p)->kind != TMPL_TOKEN_TAG_OPEN || word->kind != TMPL_TOKEN_NAME)
        return false;
    for (; *ends; ends++)
        if (slice_eq(word->text, slice_of(*ends)))
            return true;
    return false;
}

/* Statements up to {% END %}, where it stops with the tag's opening as the next token; without ends to the
 * template's end. */
static struct tmpl_node *parse_body(struct tmpl_parser *p, const char *const *ends)
{
    struct tmpl_node_list l = {0};
    struct tmpl_node *n = tmpl_p_node(p, TMPL_SEQUENCE);
    if (!n || !tmpl_p_enter(p))
        return NULL;
    while (!p->error && tmpl_p_now(p)->kind != TMPL_TOKEN_END && !(ends && at_end_word(p, ends)))
        if (!tmpl_p_list_push(p, &l, parse_statement(p)))
            return NULL;
    if (!p->error && ends && tmpl_p_now(p)->kind == TMPL_TOKEN_END)
        return tmpl_p_fail(p, "the end of a block is expected here");
    p->depth--;
    return p->error ? NULL : tmpl_p_with_list(n, &l);
}

int tmpl_parse(struct arena *a, struct slice source, struct tmpl_node **ret, struct err *e)
{
    struct tmpl_token *tokens;
    uint32_t count;
    int r = tmpl_lex(a, source, &tokens, &count, e);
    if (r < 0)
        return r;
    struct tmpl_parser p = {.a = a, .tokens = tokens, .count = count, .e = e};
    struct tmpl_node *n = parse_body(&p, NULL);
    if (!n)
        return p.error ? p.error : -EINVAL;
    ASSERT(p.depth == 0 && p.loops == 0);
    *ret = n;
    return 0;
}
