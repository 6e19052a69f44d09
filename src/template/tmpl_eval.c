/* tmpl_eval.c - evaluates the tree.
 *
 * An error is a field of the run that every loop checks, not a jump: no cleanup is skipped. Scopes are chains
 * of small lists. `set` writes to the innermost one: the iteration's in a loop, the call's in a macro, else
 * the template's own (an `if` makes none). So a loop's assignments end with the iteration, as in Jinja. */
#include "template/tmpl_eval.h"

#include "template/tmpl_builtins.h"
#include "template/tmpl_trace.h"

#include "base/check.h"

#include <errno.h>

/* Cost of each variable passed in a lookup. */
#define VARIABLE_UNITS 8

/* Arguments take a kilobyte of stack: kept out of the frame that evaluates nodes without any. */
#define OWN_FRAME __attribute__((noinline))

struct variable {
    struct variable *next;
    struct slice name;
    struct tmpl_value v;
};

struct tmpl_scope {
    struct tmpl_scope *parent;
    struct variable *variables;
};

static struct tmpl_value eval(struct tmpl_run *run, const struct tmpl_node *n);

static bool enter(struct tmpl_run *run)
{
    if (!tmpl_step(run, 1))
        return false;
    if (run->depth_left == 0) {
        run->error = err_set(run->e, -E2BIG, "the chat template nests too deeply");
        return false;
    }
    run->depth_left--;
    return true;
}

static void leave(struct tmpl_run *run)
{
    run->depth_left++;
}

/* --- scopes --- */

static struct tmpl_scope *scope_new(struct tmpl_run *run, struct tmpl_scope *parent)
{
    struct tmpl_scope *s = ARENA_NEW(run->a, struct tmpl_scope);
    if (!s)
        tmpl_fail_memory(run);
    else
        s->parent = parent;
    return s;
}

static struct variable *scope_find(struct tmpl_run *run, struct tmpl_scope *s, struct slice name)
{
    for (struct variable *v = s->variables; v && tmpl_work(run, VARIABLE_UNITS); v = v->next)
        if (slice_eq(v->name, name))
            return v;
    return NULL;
}

static bool scope_set(struct tmpl_run *run, struct tmpl_scope *s, struct slice name, struct tmpl_value value)
{
    struct variable *v = scope_find(run, s, name);
    if (!v) {
        v = ARENA_NEW(run->a, struct variable);
        if (!v) {
            tmpl_fail_memory(run);
            return false;
        }
        v->name = name;
        v->next = s->variables;
        s->variables = v;
    }
    v->v = value;
    return true;
}

bool tmpl_define(struct tmpl_run *run, struct slice name, struct tmpl_value v)
{
    ASSERT(run->globals);
    return scope_set(run, run->globals, name, v);
}

bool tmpl_run_init(struct tmpl_run *run)
{
    run->globals = run->scope = scope_new(run, NULL);
    return run->globals != NULL;
}

static struct tmpl_value lookup(struct tmpl_run *run, struct slice name)
{
    for (struct tmpl_scope *s = run->scope; s; s = s->parent) {
        struct variable *v = scope_find(run, s, name);
        if (v)
            return v->v;
    }
    int f = tmpl_function_find(name);
    if (f >= 0)
        return (struct tmpl_value){.type = TMPL_FUNCTION, .i = f, .s = name};
    return tmpl_undefined(name);
}

/* --- output per message --- */

static struct tmpl_trace *trace_of(const struct tmpl_run *run)
{
    return run->trace && run->trace->out == run->out ? run->trace : NULL;
}

/* A loop's item, or an assignment in a loop over numbers: if it is a message, its output starts here. */
static void trace_take_up(struct tmpl_run *run, const struct tmpl_value *v, bool in_loop)
{
    struct tmpl_trace *t = trace_of(run);
    uint32_t message = tmpl_trace_message(v);
    if (!t || message == TMPL_TRACE_NONE || t->loops == 0 || (t->in_loop && !in_loop))
        return;
    tmpl_trace_take_up(t, message);
    t->in_loop = in_loop;
}

/* A template that reads this name writes the generation prompt next, after the last message. */
static void trace_asked(struct tmpl_run *run, struct slice name)
{
    struct tmpl_trace *t = trace_of(run);
    if (t && slice_eq(name, SLICE("add_generation_prompt")))
        t->asked_at = run->out->len;
}

/* --- calls --- */

static bool push_arg(struct tmpl_run *run, struct tmpl_args *args, struct slice name, struct tmpl_value v)
{
    ASSERT(args->count <= TMPL_ARGS_MAX);
    if (args->count == TMPL_ARGS_MAX) {
        tmpl_fail(run, "a call has more than %d arguments", TMPL_ARGS_MAX);
        return false;
    }
    for (uint32_t i = 0; name.ptr && i < args->count; i++) {
        if (args->names[i].ptr && slice_eq(args->names[i], name)) {
            tmpl_fail(run, "keyword argument repeated: %.*s", SLICE_ARGS(slice_sub(name, 0, 40)));
            return false;
        }
    }
    args->items[args->count] = v;
    args->names[args->count++] = name;
    return true;
}

/* Appends the items of *v, or the members of **v. */
static void spread_args(struct tmpl_run *run, bool named, const struct tmpl_value *v, struct tmpl_args *ret)
{
    ASSERT(ret->count <= TMPL_ARGS_MAX);
    if (named && v->type != TMPL_DICT_VALUE) {
        tmpl_fail(run, "an argument after ** must be a mapping, not %s", tmpl_type_name(v));
        return;
    }
    struct tmpl_seq *items = named ? NULL : tmpl_iterate(run, v);
    for (uint32_t i = 0; items && i < items->count && push_arg(run, ret, (struct slice){0}, items->items[i]);
         i++)
        ;
    for (uint32_t i = 0; named && i < v->dict->count && !run->error; i++) {
        const struct tmpl_value *key = &v->dict->keys[i];
        if (key->type != TMPL_STRING)
            tmpl_fail(run, "keywords must be strings");
        else
            push_arg(run, ret, key->s, v->dict->values[i]);
    }
}

/* Items of a list follow the positional arguments: Jinja takes no others after it. */
static bool eval_args(struct tmpl_run *run, const struct tmpl_node *n, struct tmpl_args *ret)
{
    ret->count = 0;
    for (uint32_t i = 0; i < n->list_count && !run->error; i++) {
        const struct tmpl_node *arg = n->list[i];
        bool list = arg->kind == TMPL_SPREAD, dict = arg->kind == TMPL_SPREAD_NAMED;
        struct tmpl_value v = eval(run, list || dict ? arg->a : arg);
        if (run->error)
            break;
        if (list || dict)
            spread_args(run, dict, &v, ret);
        else
            push_arg(run, ret, n->names ? n->names[i] : (struct slice){0}, v);
    }
    return run->error == 0;
}

static struct tmpl_value captured(struct tmpl_run *run, const struct tmpl_node *body)
{
    struct tmpl_text t, *out = run->out;
    tmpl_text_begin(run, &t);
    run->out = &t;
    tmpl_exec(run, body);
    ASSERT(run->out == &t);
    run->out = out;
    return tmpl_text_end(run, &t);
}

/* The value of parameter `i` of a macro: given by position, by name, by default, or undefined. */
static struct tmpl_value parameter(struct tmpl_run *run, const struct tmpl_node *m, uint32_t i,
                                   const struct tmpl_args *args)
{
    ASSERT(m->list_count <= m->name_count && i < m->name_count);
    uint32_t position = 0, first_default = m->name_count - m->list_count;
    for (uint32_t j = 0; j < args->count; j++) {
        bool named = args->names[j].ptr != NULL;
        if (named ? slice_eq(args->names[j], m->names[i]) : position++ == i)
            return args->items[j];
    }
    return i >= first_default ? eval(run, m->list[i - first_default]) : tmpl_undefined(m->names[i]);
}

/* True if positional arguments and keywords each have a parameter of their own. */
static bool args_fit(struct tmpl_run *run, const struct tmpl_node *m, const struct tmpl_args *args)
{
    uint32_t positional = 0, own;
    for (uint32_t i = 0; i < args->count; i++)
        positional += args->names[i].ptr == NULL;
    if (positional > m->name_count) {
        tmpl_fail(run, "macro '%.*s' takes not more than %u arguments", SLICE_ARGS(m->name), m->name_count);
        return false;
    }
    for (uint32_t i = 0; i < args->count; i++) {
        struct slice name = args->names[i];
        for (own = positional; name.ptr && own < m->name_count && !slice_eq(name, m->names[own]); own++)
            ;
        if (name.ptr && own == m->name_count && !slice_eq(name, SLICE("caller"))) {
            tmpl_fail(run, "macro '%.*s' takes no keyword argument '%.*s'", SLICE_ARGS(m->name),
                      SLICE_ARGS(slice_sub(name, 0, 40)));
            return false;
        }
    }
    return true;
}

static struct tmpl_value call_macro(struct tmpl_run *run, const struct tmpl_macro *macro,
                                    const struct tmpl_args *args)
{
    struct tmpl_scope *caller = run->scope, *s = scope_new(run, macro->scope);
    uint32_t flow = run->flow;
    if (!args_fit(run, macro->node, args))
        return tmpl_none();
    if (!s)
        return tmpl_none();
    run->scope = s;
    for (uint32_t i = 0; i < macro->node->name_count && !run->error; i++)
        scope_set(run, s, macro->node->names[i], parameter(run, macro->node, i, args));
    for (uint32_t i = 0; i < args->count && !run->error; i++)
        if (args->names[i].ptr && slice_eq(args->names[i], SLICE("caller")))
            scope_set(run, s, args->names[i], args->items[i]);
    struct tmpl_value v = run->error ? tmpl_none() : captured(run, macro->node->b);
    run->scope = caller;
    run->flow = (int)flow;
    return v;
}

static struct tmpl_value call(struct tmpl_run *run, struct tmpl_value f, const struct tmpl_args *args)
{
    switch (f.type) {
    case TMPL_MACRO_VALUE:
        return call_macro(run, f.macro, args);
    case TMPL_FUNCTION:
        return tmpl_function_call(run, (int)f.i, args);
    case TMPL_METHOD:
        return tmpl_method_call(run, (int)f.i, f.self, args);
    case TMPL_UNDEFINED:
        return tmpl_undefined_access(run, f);
    default:
        return tmpl_fail(run, "'%s' object is not callable", tmpl_type_name(&f));
    }
}

static struct tmpl_value macro_value(struct tmpl_run *run, const struct tmpl_node *n,
                                     struct tmpl_scope *scope)
{
    struct tmpl_macro *m = ARENA_NEW(run->a, struct tmpl_macro);
    if (!m)
        return tmpl_fail_memory(run);
    *m = (struct tmpl_macro){n, scope};
    return (struct tmpl_value){.type = TMPL_MACRO_VALUE, .macro = m, .s = n->name};
}

/* --- expressions --- */

static struct tmpl_value eval_list(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_seq *l = tmpl_seq_begin(run, n->list_count);
    for (uint32_t i = 0; l && i < n->list_count && !run->error; i++)
        l->items[l->count++] = eval(run, n->list[i]);
    ASSERT(!l || l->count <= l->capacity);
    return tmpl_list_of(run, l, n->kind == TMPL_TUPLE ? TMPL_SEQ_TUPLE : TMPL_SEQ_LIST);
}

static struct tmpl_value eval_dict(struct tmpl_run *run, const struct tmpl_node *n)
{
    ASSERT(n->list_count % 2 == 0);
    struct tmpl_dict *d = tmpl_dict_new(run->a, n->list_count / 2);
    for (uint32_t i = 0; d && i < n->list_count && !run->error; i += 2) {
        struct tmpl_value key = eval(run, n->list[i]), v = eval(run, n->list[i + 1]);
        if (key.type >= TMPL_SEQ && !(key.type == TMPL_SEQ && key.seq == TMPL_SEQ_TUPLE))
            return tmpl_fail(run, "unhashable type: '%s'", tmpl_type_name(&key));
        if (!tmpl_dict_set(run, run->a, d, key, v))
            d = NULL;
    }
    if (!d)
        tmpl_fail_memory(run);
    return tmpl_dict_of(run, d);
}

/* Python's slice bounds for `count` items; false: the step is 0 or a bound is not an integer. */
static bool slice_bounds(struct tmpl_run *run, const struct tmpl_node *n, int64_t count, int64_t *from,
                         int64_t *to, int64_t *by)
{
    const struct tmpl_node *parts[] = {n->d, n->b, n->c};
    int64_t values[3] = {1, 0, 0};
    bool given[3] = {false};
    for (int i = 0; i < 3; i++) {
        struct tmpl_value v = parts[i] ? eval(run, parts[i]) : tmpl_none();
        given[i] = v.type != TMPL_NONE;
        if (run->error || (given[i] && !tmpl_integer(&v, &values[i])) || values[0] == 0) {
            tmpl_fail(run, "slice indices must be integers, and the step not 0");
            return false;
        }
    }
    int64_t low = values[0] > 0 ? 0 : -1, high = values[0] > 0 ? count : count - 1;
    ASSERT(count >= 0 && low <= high);
    for (int i = 1; i < 3; i++) {
        if (!given[i])
            values[i] = (i == 1) == (values[0] > 0) ? low : high;
        else
            values[i] = MIN_OF(MAX_OF(values[i] < 0 ? values[i] + count : values[i], low), high);
    }
    *by = values[0];
    *from = values[1];
    *to = values[2];
    return true;
}

static struct tmpl_value eval_slice(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v = eval(run, n->a);
    int64_t from, to, by;
    if (run->error || v.type == TMPL_UNDEFINED)
        return run->error ? v : tmpl_undefined_access(run, v);
    if (v.type != TMPL_STRING && v.type != TMPL_SEQ)
        return tmpl_fail(run, "'%s' object cannot be sliced", tmpl_type_name(&v));
    bool text = v.type == TMPL_STRING;
    /* Counts its characters and searches both ends. */
    if (text && !tmpl_work(run, 3 * tmpl_cost_chars(v.s.len)))
        return v;
    int64_t count = text ? (int64_t)tmpl_chars(v.s) : v.list->count;
    if (!slice_bounds(run, n, count, &from, &to, &by))
        return v;
    if (text && by == 1) {
        size_t begin = tmpl_char_at(v.s, (size_t)from), end = tmpl_char_at(v.s, (size_t)MAX_OF(from, to));
        return tmpl_string(slice_sub(v.s, begin, end - begin));
    }
    struct tmpl_seq *items = tmpl_iterate(run, &v), *l = tmpl_seq_new(run->a, 0);
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    for (int64_t i = from; items && l && (by > 0 ? i < to : i > to) && tmpl_step(run, 1);) {
        ASSERT(i >= 0 && i < items->count);
        if (text)
            tmpl_text_put(&t, items->items[i].s);
        else if (!tmpl_seq_push(run->a, l, items->items[i]))
            l = NULL;
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    if (!items || !l)
        return tmpl_fail_memory(run);
    return text ? tmpl_text_end(run, &t) : tmpl_list_of(run, l, v.seq);
}

OWN_FRAME static struct tmpl_value eval_call(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_args args;
    /* Its frames are the largest: a call counts as two levels. */
    if (!enter(run))
        return tmpl_none();
    struct tmpl_value f = eval(run, n->a);
    if (!run->error && eval_args(run, n, &args))
        f = call(run, f, &args);
    leave(run);
    return f;
}

OWN_FRAME static struct tmpl_value eval_filter(struct tmpl_run *run, const struct tmpl_node *n,
                                               struct tmpl_value v)
{
    ASSERT(n->builtin >= 0);
    struct tmpl_args args;
    return run->error || !eval_args(run, n, &args) ? v : tmpl_filter_call(run, n->builtin, v, &args);
}

OWN_FRAME static struct tmpl_value eval_test(struct tmpl_run *run, const struct tmpl_node *n)
{
    ASSERT(n->builtin >= 0);
    struct tmpl_args args;
    struct tmpl_value v = eval(run, n->a);
    if (run->error || !eval_args(run, n, &args))
        return v;
    return tmpl_bool(tmpl_test_call(run, n->builtin, v, &args));
}

static struct tmpl_value eval_compare(struct tmpl_run *run, const struct tmpl_node *n)
{
    ASSERT(n->ops && n->list_count > 0);
    struct tmpl_value left = eval(run, n->a);
    for (uint32_t i = 0; i < n->list_count && !run->error; i++) {
        struct tmpl_value right = eval(run, n->list[i]);
        if (run->error || !tmpl_relate(run, n->ops[i], &left, &right))
            return tmpl_bool(false);
        left = right;
    }
    return tmpl_bool(true);
}

static struct tmpl_value eval_sign(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v = eval(run, n->a);
    int64_t i;
    if (run->error)
        return v;
    if (v.type == TMPL_FLOAT)
        return n->kind == TMPL_NEGATE ? tmpl_float(-v.f) : v;
    if (!tmpl_integer(&v, &i))
        return tmpl_fail(run, "bad operand type for a sign: '%s'", tmpl_type_name(&v));
    return n->kind == TMPL_NEGATE ? tmpl_integers(run, TMPL_OP_SUB, 0, i) : tmpl_int(i);
}

static struct tmpl_value eval_kind(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v, w;
    switch (n->kind) {
    case TMPL_CONST:
        return n->value;
    case TMPL_NAME:
        trace_asked(run, n->name);
        return lookup(run, n->name);
    case TMPL_LIST:
    case TMPL_TUPLE:
        return eval_list(run, n);
    case TMPL_DICT:
        return eval_dict(run, n);
    case TMPL_ATTR:
        v = eval(run, n->a);
        return run->error ? v : tmpl_get_attribute(run, v, n->name);
    case TMPL_INDEX:
        v = eval(run, n->a);
        w = eval(run, n->b);
        return run->error ? v : tmpl_get_item(run, v, w);
    case TMPL_SLICE:
        return eval_slice(run, n);
    case TMPL_CALL:
        return eval_call(run, n);
    case TMPL_FILTER:
        return eval_filter(run, n, eval(run, n->a));
    case TMPL_TEST:
        return eval_test(run, n);
    case TMPL_NOT:
        v = eval(run, n->a);
        return tmpl_bool(!tmpl_truthy(&v));
    case TMPL_NEGATE:
    case TMPL_PLUS:
        return eval_sign(run, n);
    case TMPL_AND:
        v = eval(run, n->a);
        return tmpl_truthy(&v) ? eval(run, n->b) : v;
    case TMPL_OR:
        v = eval(run, n->a);
        return tmpl_truthy(&v) ? v : eval(run, n->b);
    case TMPL_TERNARY:
        v = eval(run, n->a);
        if (tmpl_truthy(&v))
            return eval(run, n->b);
        return n->c ? eval(run, n->c) : tmpl_undefined(SLICE("an inline if without else"));
    case TMPL_COMPARE:
        return eval_compare(run, n);
    case TMPL_BINARY:
        v = eval(run, n->a);
        w = eval(run, n->b);
        return run->error ? v : tmpl_binary(run, n->op, v, w);
    default:
        ASSERT(false);
        return tmpl_none();
    }
}

static struct tmpl_value eval(struct tmpl_run *run, const struct tmpl_node *n)
{
    if (!enter(run))
        return tmpl_none();
    struct tmpl_value v = eval_kind(run, n);
    leave(run);
    return v;
}

/* --- statements --- */

/* Binds one item to a loop's or a set's targets. */
static void assign(struct tmpl_run *run, const struct tmpl_node *n, struct tmpl_value v)
{
    ASSERT(n->name_count > 0);
    if (n->name_count == 1) {
        scope_set(run, run->scope, n->names[0], v);
        return;
    }
    struct tmpl_seq *parts = tmpl_iterate(run, &v);
    if (!parts)
        return;
    if (parts->count != n->name_count) {
        tmpl_fail(run, "%u values for %u names", parts->count, n->name_count);
        return;
    }
    for (uint32_t i = 0; i < n->name_count; i++)
        scope_set(run, run->scope, n->names[i], parts->items[i]);
}

/* The items of a loop for which its condition holds, evaluated before the body runs (loop.last needs the
 * count). */
static struct tmpl_seq *loop_items(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v = eval(run, n->a);
    struct tmpl_seq *all = run->error ? NULL : tmpl_iterate(run, &v);
    if (!all || !n->d)
        return all;
    struct tmpl_seq *kept = tmpl_seq_begin(run, all->count);
    struct tmpl_scope *outer = run->scope;
    for (uint32_t i = 0; kept && i < all->count && !run->error; i++) {
        run->scope = scope_new(run, outer);
        if (!run->scope)
            break;
        assign(run, n, all->items[i]);
        struct tmpl_value keep = eval(run, n->d);
        if (tmpl_truthy(&keep))
            kept->items[kept->count++] = all->items[i];
    }
    run->scope = outer;
    ASSERT(!kept || kept->count <= kept->capacity);
    return kept;
}

static void exec_items(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_seq *items = loop_items(run, n);
    struct tmpl_scope *outer = run->scope;
    struct tmpl_loop *loop = ARENA_NEW(run->a, struct tmpl_loop);
    if (!items || !loop) {
        tmpl_fail_memory(run);
        return;
    }
    loop->items = items;
    for (uint32_t i = 0; i < items->count && tmpl_step(run, 1); i++) {
        run->scope = scope_new(run, outer);
        if (!run->scope)
            break;
        loop->index0 = i;
        scope_set(run, run->scope, SLICE("loop"), (struct tmpl_value){.type = TMPL_LOOP, .loop = loop});
        assign(run, n, items->items[i]);
        trace_take_up(run, &items->items[i], true);
        if (!run->error)
            tmpl_exec(run, n->b);
        bool over = run->flow == TMPL_FLOW_BREAK;
        run->flow = TMPL_FLOW_ON;
        if (over)
            break;
    }
    run->scope = outer;
    if (items->count == 0 && n->c && !run->error)
        tmpl_exec(run, n->c);
}

/* After a loop the output belongs to the same message as before it. */
static void exec_for(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_trace *t = trace_of(run);
    uint32_t before = t ? t->current : TMPL_TRACE_NONE;
    bool in_loop = t && t->in_loop;
    if (t)
        t->loops++;
    exec_items(run, n);
    if (t) {
        ASSERT(t->loops > 0);
        t->loops--;
        tmpl_trace_take_up(t, before);
        t->in_loop = in_loop;
    }
}

static void exec_set_attribute(struct tmpl_run *run, const struct tmpl_node *n)
{
    ASSERT(n->name_count == 2);
    struct tmpl_value of = lookup(run, n->names[0]), v = eval(run, n->a);
    if (run->error)
        return;
    if (of.type != TMPL_NAMESPACE)
        tmpl_fail(run, "cannot assign attribute on non-namespace object");
    else if (!tmpl_dict_set(run, run->a, of.dict, tmpl_string(n->names[1]), v))
        tmpl_fail_memory(run);
}

static void exec_set_block(struct tmpl_run *run, const struct tmpl_node *n)
{
    ASSERT(n->name_count == 1);
    struct tmpl_value v = captured(run, n->b);
    for (uint32_t i = 0; i < n->list_count && !run->error; i++)
        v = eval_filter(run, n->list[i], v);
    if (!run->error)
        scope_set(run, run->scope, n->names[0], v);
}

static void put(struct tmpl_run *run, const struct tmpl_value *v)
{
    if (run->error)
        return;
    tmpl_print(run->out, v);
    if (run->out->failed)
        tmpl_fail_memory(run);
}

static void exec_call_block(struct tmpl_run *run, const struct tmpl_node *n)
{
    ASSERT(n->a->kind == TMPL_CALL);
    struct tmpl_args args;
    struct tmpl_value f = eval(run, n->a->a);
    if (run->error || !eval_args(run, n->a, &args) || !enter(run))
        return;
    if (args.count == TMPL_ARGS_MAX) {
        tmpl_fail(run, "too many arguments");
        return;
    }
    args.items[args.count] = macro_value(run, n, run->scope);
    args.names[args.count++] = SLICE("caller");
    struct tmpl_value v = run->error ? f : call(run, f, &args);
    leave(run);
    put(run, &v);
}

static void exec_if(struct tmpl_run *run, const struct tmpl_node *n)
{
    /* A chain of elifs is a list, not a nesting. */
    while (n && n->kind == TMPL_IF && !run->error) {
        struct tmpl_value v = eval(run, n->a);
        if (run->error)
            return;
        if (tmpl_truthy(&v)) {
            tmpl_exec(run, n->b);
            return;
        }
        n = n->c;
    }
    if (n && !run->error)
        tmpl_exec(run, n);
}

static void exec_statement(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v;
    run->line = n->line;
    switch (n->kind) {
    case TMPL_TEXT:
        put(run, &n->value);
        break;
    case TMPL_OUTPUT:
        v = eval(run, n->a);
        put(run, &v);
        break;
    case TMPL_IF:
        exec_if(run, n);
        break;
    case TMPL_FOR:
        exec_for(run, n);
        break;
    case TMPL_SET:
        v = eval(run, n->a);
        if (!run->error) {
            assign(run, n, v);
            trace_take_up(run, &v, false);
        }
        break;
    case TMPL_SET_BLOCK:
        exec_set_block(run, n);
        break;
    case TMPL_SET_ATTR:
        exec_set_attribute(run, n);
        break;
    case TMPL_MACRO:
        v = macro_value(run, n, run->globals);
        scope_set(run, run->scope, n->name, v);
        break;
    case TMPL_FILTERED:
        v = captured(run, n->b);
        v = eval_filter(run, n->a, v);
        put(run, &v);
        break;
    case TMPL_CALL_BLOCK:
        exec_call_block(run, n);
        break;
    case TMPL_BREAK:
        run->flow = TMPL_FLOW_BREAK;
        break;
    case TMPL_CONTINUE:
        run->flow = TMPL_FLOW_CONTINUE;
        break;
    default:
        tmpl_exec(run, n);
    }
}

void tmpl_exec(struct tmpl_run *run, const struct tmpl_node *n)
{
    if (!enter(run))
        return;
    if (n->kind != TMPL_SEQUENCE)
        exec_statement(run, n);
    for (uint32_t i = 0; n->kind == TMPL_SEQUENCE && i < n->list_count; i++) {
        if (run->error || run->flow != TMPL_FLOW_ON || !tmpl_step(run, 1))
            break;
        exec_statement(run, n->list[i]);
    }
    leave(run);
}
