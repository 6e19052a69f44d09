/* jinja_eval.c - expressions.
 *
 * One function per kind of node, found in a table. Only what is nested in the source recurses; chains are loops. */
#include "text/jinja_exec.h"

#include "base/check.h"
#include "text/jinja_text.h"

#include <errno.h>

typedef int eval_fn(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                    struct jinja_value *ret);

static int eval_const(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                      struct jinja_value *ret)
{
    (void)r, (void)f;
    *ret = n->value;
    return 0;
}

static int eval_name(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    *ret = jinja_frame_get(r, f, n->symbol);
    if (ret->kind != VALUE_MISSING)
        return 0;
    return jinja_undefined(r, UNDEFINED_NAME, r->t->symbols[n->symbol], NULL, ret);
}

static int eval_items(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                      enum jinja_kind kind, struct jinja_value *ret)
{
    size_t i = 0;
    if (jinja_list(r, kind, n->symbol, ret) < 0)
        return r->error;
    for (const struct jinja_node *item = n->first; item; item = item->next)
        if (jinja_eval(r, f, item->first, &ret->l->items[i++]) < 0)
            return r->error;
    return 0;
}

static int eval_list(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    return eval_items(r, f, n, VALUE_LIST, ret);
}

static int eval_tuple(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                      struct jinja_value *ret)
{
    return eval_items(r, f, n, VALUE_TUPLE, ret);
}

static int eval_dict(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    if (jinja_dict(r, VALUE_DICT, n->symbol / 2, ret) < 0)
        return r->error;
    for (const struct jinja_node *item = n->first; item; item = item->next->next) {
        struct jinja_value key, value;
        if (jinja_eval(r, f, item->first, &key) < 0 || jinja_eval(r, f, item->next->first, &value) < 0 ||
            jinja_dict_put(r, ret, &key, &value) < 0)
            return r->error;
    }
    return 0;
}

static int eval_attr(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    struct jinja_value object;
    if (jinja_eval(r, f, n->first, &object) < 0)
        return r->error;
    return jinja_attribute(r, &object, jinja_slice(&n->value), ret);
}

static int eval_item(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    struct jinja_value object, index;
    if (jinja_eval(r, f, n->first->first, &object) < 0 || jinja_eval(r, f, n->first->next, &index) < 0)
        return r->error;
    return jinja_item(r, &object, &index, ret);
}

static int eval_slice(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                      struct jinja_value *ret)
{
    const struct jinja_node *const nodes[3] = {n->slice->start, n->slice->stop, n->slice->step};
    struct jinja_value object, bounds[3] = {0};
    if (jinja_eval(r, f, n->first->first, &object) < 0)
        return r->error;
    for (int i = 0; i < 3; i++)
        if (nodes[i] && jinja_eval(r, f, nodes[i], &bounds[i]) < 0)
            return r->error;
    return jinja_cut(r, &object, bounds, ret);
}

/* ---- calls ---- */

/* Appends what *star or **double_star hold. The arrays have room: eval_args() counted. */
static int spread(struct jinja_run *r, const struct jinja_value *star, const struct jinja_value *double_star,
                  const struct jinja_value *caller, struct jinja_args *args)
{
    struct jinja_value *items = NULL, *positional;
    struct jinja_pair *pairs = NULL;
    size_t len = 0, count = double_star->kind == VALUE_DICT ? double_star->d->count : 0;
    if (star->kind != VALUE_MISSING && jinja_iterate(r, star, &items, &len) < 0)
        return r->error;
    if (double_star->kind != VALUE_MISSING && double_star->kind != VALUE_DICT)
        return jinja_fail(r, "argument after ** must be a mapping, not %s", jinja_type(double_star));
    if (count && jinja_pairs(r, double_star, &pairs) < 0)
        return r->error;
    positional = jinja_alloc_array(r, args->positional_count + len, sizeof(*positional));
    struct jinja_named *named = jinja_alloc_array(r, args->named_count + count + 1, sizeof(*named));
    if (!positional || !named)
        return r->error;
    if (args->positional_count)
        memcpy(positional, args->positional, args->positional_count * sizeof(*positional));
    if (len)
        memcpy(positional + args->positional_count, items, len * sizeof(*positional));
    if (args->named_count)
        memcpy(named, args->named, args->named_count * sizeof(*named));
    args->positional_count += len;
    for (size_t i = 0; i < count; i++) {
        if (pairs[i].key.kind != VALUE_STR)
            return jinja_fail(r, "keywords must be strings");
        named[args->named_count++] = (struct jinja_named){jinja_slice(&pairs[i].key), pairs[i].value};
    }
    if (caller)
        named[args->named_count++] = (struct jinja_named){SLICE("caller"), *caller};
    args->positional = positional;
    args->named = named;
    return 0;
}

/* `n` may be NULL: no arguments. */
static int eval_args(struct jinja_run *r, struct jinja_frame *f, const struct jinja_args_node *n,
                     const struct jinja_value *caller, struct jinja_args *ret)
{
    struct jinja_value star = {0}, double_star = {0};
    size_t i = 0, k = 0;
    *ret = (struct jinja_args){0};
    if (n && n->positional_count) {
        ret->positional = jinja_alloc_array(r, n->positional_count, sizeof(*ret->positional));
        ret->positional_count = n->positional_count;
    }
    if (n && n->named_count) {
        ret->named = jinja_alloc_array(r, n->named_count, sizeof(*ret->named));
        ret->named_count = n->named_count;
    }
    if (r->error)
        return r->error;
    for (const struct jinja_node *a = n ? n->positional : NULL; a; a = a->next)
        if (jinja_eval(r, f, a->first, &ret->positional[i++]) < 0)
            return r->error;
    for (const struct jinja_node *a = n ? n->named : NULL; a; a = a->next, k++) {
        ret->named[k].name = jinja_slice(&a->value);
        if (jinja_eval(r, f, a->first, &ret->named[k].value) < 0)
            return r->error;
    }
    if (n && n->star && jinja_eval(r, f, n->star, &star) < 0)
        return r->error;
    if (n && n->double_star && jinja_eval(r, f, n->double_star, &double_star) < 0)
        return r->error;
    if (caller || star.kind != VALUE_MISSING || double_star.kind != VALUE_MISSING)
        return spread(r, &star, &double_star, caller, ret);
    return 0;
}

static int call(struct jinja_run *r, const struct jinja_value *callee, const struct jinja_args *args,
                struct jinja_value *ret)
{
    static const struct jinja_value nobody = {VALUE_MISSING, {0}};
    switch (callee->kind) {
    case VALUE_MACRO:
        return jinja_call_macro(r, callee->macro, args, ret);
    case VALUE_METHOD:
        return jinja_call_builtin(r, callee->method->builtin, &callee->method->self, args, ret);
    case VALUE_FUNCTION:
        return jinja_call_builtin(r, callee->function, &nobody, args, ret);
    case VALUE_LOOP:
        if (args->positional_count != 1 || args->named_count != 0)
            return jinja_fail(r, "loop() takes one argument");
        return jinja_call_loop(r, callee->loop, &args->positional[0], ret);
    case VALUE_UNDEFINED:
        return jinja_fail_undefined(r, callee);
    default:
        return jinja_fail(r, "'%s' object is not callable", jinja_type(callee));
    }
}

int jinja_eval_call(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                    const struct jinja_value *caller, struct jinja_value *ret)
{
    struct jinja_value callee;
    struct jinja_args args;
    if (jinja_eval(r, f, n->first, &callee) < 0 || eval_args(r, f, n->args, caller, &args) < 0)
        return r->error;
    r->line = n->line;
    return call(r, &callee, &args, ret);
}

static int eval_call(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    return jinja_eval_call(r, f, n, NULL, ret);
}

static int apply(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                 const struct jinja_value *input, struct jinja_value *ret)
{
    struct jinja_args args;
    if (!n->builtin)
        return jinja_fail(r, "no %s named '%.*s'", n->kind == NODE_FILTER ? "filter" : "test",
                          SLICE_ARGS(slice_sub(jinja_slice(&n->value), 0, 80)));
    if (eval_args(r, f, n->args, NULL, &args) < 0)
        return r->error;
    r->line = n->line;
    return jinja_call_builtin(r, n->builtin, input, &args, ret);
}

static int eval_apply(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                      struct jinja_value *ret)
{
    struct jinja_value input;
    if (jinja_eval(r, f, n->first, &input) < 0)
        return r->error;
    return apply(r, f, n, &input, ret);
}

int jinja_eval_filters(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *filters,
                       struct jinja_value *v)
{
    for (const struct jinja_node *n = filters; n; n = n->next) {
        struct jinja_value input = *v;
        if (apply(r, f, n, &input, v) < 0)
            return r->error;
    }
    return 0;
}

/* ---- operators ---- */

static int eval_not(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                    struct jinja_value *ret)
{
    struct jinja_value v;
    if (jinja_eval(r, f, n->first, &v) < 0)
        return r->error;
    *ret = jinja_bool(!jinja_truth(&v));
    return 0;
}

static int eval_sign(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    struct jinja_value v, negative;
    if (jinja_eval(r, f, n->first, &v) < 0 || jinja_negate(r, &v, &negative) < 0)
        return r->error;
    if (n->kind == NODE_PLUS)
        return jinja_negate(r, &negative, ret);
    *ret = negative;
    return 0;
}

static int eval_math(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                     struct jinja_value *ret)
{
    struct jinja_value sum, right;
    if (jinja_eval(r, f, n->first->first, &sum) < 0)
        return r->error;
    for (const struct jinja_node *o = n->first->next; o; o = o->next) {
        struct jinja_value left = sum;
        if (jinja_eval(r, f, o->first, &right) < 0 || jinja_math(r, o->join, &left, &right, &sum) < 0)
            return r->error;
    }
    *ret = sum;
    return 0;
}

static int eval_concat(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                       struct jinja_value *ret)
{
    struct jinja_value v, text, joined;
    if (jinja_str(r, SLICE(""), &joined) < 0)
        return r->error;
    for (const struct jinja_node *o = n->first; o; o = o->next) {
        struct jinja_value left = joined;
        if (jinja_eval(r, f, o->first, &v) < 0 || jinja_to_str(r, &v, &text) < 0)
            return r->error;
        if (left.s->len == 0)
            joined = text;
        else if (jinja_str_join(r, left.s, text.s, &joined) < 0)
            return r->error;
    }
    *ret = joined;
    return 0;
}

static int eval_compare(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                        struct jinja_value *ret)
{
    struct jinja_value left, right;
    bool holds = true;
    if (jinja_eval(r, f, n->first->first, &left) < 0)
        return r->error;
    for (const struct jinja_node *o = n->first->next; o && holds; o = o->next) {
        if (jinja_eval(r, f, o->first, &right) < 0 || jinja_compare(r, o->join, &left, &right, &holds) < 0)
            return r->error;
        left = right;
    }
    *ret = jinja_bool(holds);
    return 0;
}

/* The first operand that decides, as it is. */
static int eval_logic(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                      struct jinja_value *ret)
{
    bool stop_at = n->kind == NODE_OR;
    for (const struct jinja_node *o = n->first; o; o = o->next) {
        if (jinja_eval(r, f, o->first, ret) < 0)
            return r->error;
        if (jinja_truth(ret) == stop_at)
            break;
    }
    return 0;
}

static int eval_choice(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
                       struct jinja_value *ret)
{
    const struct jinja_node *condition = n->first, *then = condition->next, *otherwise = then->next;
    struct jinja_value v;
    if (jinja_eval(r, f, condition->first, &v) < 0)
        return r->error;
    if (jinja_truth(&v))
        return jinja_eval(r, f, then->first, ret);
    if (otherwise)
        return jinja_eval(r, f, otherwise->first, ret);
    return jinja_undefined(
        r, UNDEFINED_HINT,
        SLICE("the inline if-expression evaluated to false and no else section was defined."), NULL, ret);
}

static eval_fn *const eval_kinds[] = {
    [NODE_CONST] = eval_const,   [NODE_NAME] = eval_name,       [NODE_LIST] = eval_list,
    [NODE_TUPLE] = eval_tuple,   [NODE_DICT] = eval_dict,       [NODE_ATTR] = eval_attr,
    [NODE_ITEM] = eval_item,     [NODE_SLICE] = eval_slice,     [NODE_CALL] = eval_call,
    [NODE_FILTER] = eval_apply,  [NODE_TEST] = eval_apply,      [NODE_NOT] = eval_not,
    [NODE_NEGATE] = eval_sign,   [NODE_PLUS] = eval_sign,       [NODE_MATH] = eval_math,
    [NODE_CONCAT] = eval_concat, [NODE_COMPARE] = eval_compare, [NODE_AND] = eval_logic,
    [NODE_OR] = eval_logic,      [NODE_CHOICE] = eval_choice};

int jinja_eval(struct jinja_run *r, struct jinja_frame *f, const struct jinja_node *n,
               struct jinja_value *ret)
{
    ASSERT(n->kind < COUNT_OF(eval_kinds));
    r->line = n->line;
    if (jinja_enter(r) == 0 && jinja_spend(r, 1) == 0)
        eval_kinds[n->kind](r, f, n, ret);
    jinja_leave(r);
    return r->error;
}
