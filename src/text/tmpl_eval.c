/* tmpl_eval.c - walks the tree.
 *
 * Errors are a field of the run, looked at by every loop, not a jump: nothing is skipped that someone owns. Scopes are chains of
 * small lists; `set` writes to the innermost, which is the iteration's in a loop, the call's in a macro, and the template's own else
 * (an `if` makes none): so a loop's assignments end with the iteration, as in Jinja. */
#include "text/tmpl_eval.h"

#include "base/check.h"
#include "text/tmpl_builtins.h"
#include "text/tmpl_strings.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

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

struct tmpl_value tmpl_fail(struct tmpl_run *run, const char *format, ...)
{
    if (run->error == 0) {
        char text[400];
        va_list ap;
        va_start(ap, format);
        vsnprintf(text, sizeof(text), format, ap);
        va_end(ap);
        run->error = err_set(run->e, -EINVAL, "line %u of the chat template: %s", run->line, text);
    }
    return tmpl_undefined(SLICE(""));
}

void tmpl_fail_memory(struct tmpl_run *run)
{
    if (run->error == 0)
        run->error = err_set(run->e, -E2BIG, "the chat template's output or memory is over its limit");
}

bool tmpl_step(struct tmpl_run *run, uint32_t steps)
{
    if (run->error)
        return false;
    if (steps > run->steps_left) {
        run->error = err_set(run->e, -E2BIG, "the chat template takes too many steps");
        return false;
    }
    run->steps_left -= steps;
    return true;
}

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

static struct variable *scope_find(struct tmpl_scope *s, struct slice name)
{
    for (struct variable *v = s->variables; v; v = v->next)
        if (slice_eq(v->name, name))
            return v;
    return NULL;
}

static bool scope_set(struct tmpl_run *run, struct tmpl_scope *s, struct slice name, struct tmpl_value value)
{
    struct variable *v = scope_find(s, name);
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
        struct variable *v = scope_find(s, name);
        if (v)
            return v->v;
    }
    int f = tmpl_function_find(name);
    if (f >= 0)
        return (struct tmpl_value){.type = TMPL_FUNCTION, .i = f, .s = name};
    return tmpl_undefined(name);
}

/* --- values --- */

struct tmpl_value tmpl_to_string(struct tmpl_run *run, const struct tmpl_value *v)
{
    if (v->type == TMPL_STRING)
        return *v;
    struct tmpl_text t;
    tmpl_text_init(&t, run->a, run->text_bytes_max);
    tmpl_print(&t, v);
    if (t.failed)
        tmpl_fail_memory(run);
    return tmpl_string(tmpl_text_slice(&t));
}

static struct tmpl_seq *chars_of(struct tmpl_run *run, struct slice s)
{
    struct tmpl_seq *l = tmpl_seq_new(run->a, (uint32_t)MIN_OF(tmpl_chars(s), (size_t)UINT32_MAX));
    if (!l || !tmpl_step(run, (uint32_t)MIN_OF(s.len, (size_t)UINT32_MAX))) {
        tmpl_fail_memory(run);
        return NULL;
    }
    for (size_t i = 0; i < s.len && l->count < l->capacity;) {
        size_t n = 1;
        while (i + n < s.len && ((unsigned char)s.ptr[i + n] & 0xc0) == 0x80)
            n++;
        l->items[l->count++] = tmpl_string(slice_sub(s, i, n));
        i += n;
    }
    return l;
}

struct tmpl_seq *tmpl_iterate(struct tmpl_run *run, const struct tmpl_value *v)
{
    struct tmpl_seq *l;
    switch (v->type) {
    case TMPL_SEQ:
        return v->list;
    case TMPL_STRING:
        return chars_of(run, v->s);
    case TMPL_UNDEFINED:
    case TMPL_DICT_VALUE:
        l = tmpl_seq_new(run->a, v->type == TMPL_DICT_VALUE ? v->dict->count : 0);
        if (!l) {
            tmpl_fail_memory(run);
            return NULL;
        }
        for (uint32_t i = 0; v->type == TMPL_DICT_VALUE && i < v->dict->count; i++)
            l->items[l->count++] = v->dict->keys[i];
        return l;
    default:
        tmpl_fail(run, "'%s' object is not iterable", tmpl_type_name(v));
        return NULL;
    }
}

static struct tmpl_value undefined_access(struct tmpl_run *run, struct tmpl_value v)
{
    return tmpl_fail(run, "'%.*s' is undefined", SLICE_ARGS(slice_sub(v.s, 0, 100)));
}

static struct tmpl_value loop_attribute(struct tmpl_run *run, const struct tmpl_loop *l, struct slice name)
{
    const struct tmpl_seq *items = l->items;
    uint32_t i = l->index0;
    if (slice_eq(name, SLICE("index0")))
        return tmpl_int(i);
    if (slice_eq(name, SLICE("index")))
        return tmpl_int((int64_t)i + 1);
    if (slice_eq(name, SLICE("first")))
        return tmpl_bool(i == 0);
    if (slice_eq(name, SLICE("last")))
        return tmpl_bool(i + 1 == items->count);
    if (slice_eq(name, SLICE("length")))
        return tmpl_int(items->count);
    if (slice_eq(name, SLICE("revindex")))
        return tmpl_int((int64_t)items->count - i);
    if (slice_eq(name, SLICE("revindex0")))
        return tmpl_int((int64_t)items->count - i - 1);
    if (slice_eq(name, SLICE("previtem")))
        return i > 0 ? items->items[i - 1] : tmpl_undefined(SLICE("there is no previous item"));
    if (slice_eq(name, SLICE("nextitem")))
        return i + 1 < items->count ? items->items[i + 1] : tmpl_undefined(SLICE("there is no next item"));
    (void)run;
    return tmpl_undefined(name);
}

struct tmpl_value tmpl_get_attribute(struct tmpl_run *run, struct tmpl_value v, struct slice name)
{
    if (v.type == TMPL_UNDEFINED)
        return undefined_access(run, v);
    if (v.type == TMPL_LOOP)
        return loop_attribute(run, v.loop, name);
    int method = tmpl_method_find(&v, name);
    if (method >= 0) {
        struct tmpl_value *self = ARENA_NEW(run->a, struct tmpl_value);
        if (!self) {
            tmpl_fail_memory(run);
            return v;
        }
        *self = v;
        return (struct tmpl_value){.type = TMPL_METHOD, .i = method, .s = name, .self = self};
    }
    const struct tmpl_value *item = NULL;
    if (v.type == TMPL_DICT_VALUE || v.type == TMPL_NAMESPACE)
        item = tmpl_dict_find(v.dict, name);
    return item ? *item : tmpl_undefined(name);
}

static struct tmpl_value get_index(struct tmpl_run *run, struct tmpl_value v, int64_t i)
{
    size_t count = v.type == TMPL_STRING ? tmpl_chars(v.s) : v.list->count;
    if (i < 0)
        i += (int64_t)count;
    if (i < 0 || (size_t)i >= count)
        return tmpl_undefined(SLICE("an index out of range"));
    if (v.type == TMPL_SEQ)
        return v.list->items[i];
    if (!tmpl_step(run, (uint32_t)MIN_OF(v.s.len / 64, (size_t)UINT32_MAX)))
        return v;
    size_t begin = tmpl_char_at(v.s, (size_t)i), end = begin + 1;
    while (end < v.s.len && ((unsigned char)v.s.ptr[end] & 0xc0) == 0x80)
        end++;
    return tmpl_string(slice_sub(v.s, begin, end - begin));
}

struct tmpl_value tmpl_get_item(struct tmpl_run *run, struct tmpl_value v, struct tmpl_value key)
{
    int64_t i;
    if (v.type == TMPL_UNDEFINED)
        return undefined_access(run, v);
    if ((v.type == TMPL_SEQ || v.type == TMPL_STRING) && tmpl_integer(&key, &i))
        return get_index(run, v, i);
    if (v.type == TMPL_DICT_VALUE) {
        const struct tmpl_value *item = tmpl_dict_get(v.dict, &key);
        if (item)
            return *item;
    }
    if (key.type == TMPL_STRING)
        return tmpl_get_attribute(run, v, key.s);
    return tmpl_undefined(SLICE("a missing item"));
}

static int compare_slices(struct slice x, struct slice y)
{
    size_t n = MIN_OF(x.len, y.len);
    int r = n ? memcmp(x.ptr, y.ptr, n) : 0; /* UTF-8 sorts as its code points do */
    return r ? (r > 0) - (r < 0) : (x.len > y.len) - (x.len < y.len);
}

bool tmpl_compare(const struct tmpl_value *x, const struct tmpl_value *y, int *ret)
{
    double f, g;
    if (tmpl_number(x, &f) && tmpl_number(y, &g)) {
        *ret = (f > g) - (f < g);
        return true;
    }
    if (x->type == TMPL_STRING && y->type == TMPL_STRING) {
        *ret = compare_slices(x->s, y->s);
        return true;
    }
    if (x->type != TMPL_SEQ || y->type != TMPL_SEQ)
        return false;
    for (uint32_t i = 0; i < x->list->count && i < y->list->count; i++) {
        if (tmpl_equal(&x->list->items[i], &y->list->items[i]))
            continue;
        return tmpl_compare(&x->list->items[i], &y->list->items[i], ret);
    }
    *ret = (x->list->count > y->list->count) - (x->list->count < y->list->count);
    return true;
}

bool tmpl_contains(struct tmpl_run *run, const struct tmpl_value *y, const struct tmpl_value *x)
{
    switch (y->type) {
    case TMPL_STRING:
        if (x->type != TMPL_STRING) {
            tmpl_fail(run, "'in <string>' requires string as left operand, not %s", tmpl_type_name(x));
            return false;
        }
        return slice_find(y->s, x->s, 0) != SIZE_MAX;
    case TMPL_SEQ:
        for (uint32_t i = 0; tmpl_step(run, 1) && i < y->list->count; i++)
            if (tmpl_equal(&y->list->items[i], x))
                return true;
        return false;
    case TMPL_DICT_VALUE:
        return tmpl_dict_get(y->dict, x) != NULL;
    case TMPL_UNDEFINED:
        return false;
    default:
        tmpl_fail(run, "argument of type '%s' is not iterable", tmpl_type_name(y));
        return false;
    }
}

/* --- operators --- */

static struct tmpl_value concat(struct tmpl_run *run, struct slice x, struct slice y)
{
    if (x.len > run->text_bytes_max || y.len > run->text_bytes_max - x.len) {
        tmpl_fail_memory(run);
        return tmpl_none();
    }
    char *p = arena_alloc_align(run->a, x.len + y.len, 1);
    if (!p || !tmpl_step(run, (uint32_t)((x.len + y.len) / 256))) {
        tmpl_fail_memory(run);
        return tmpl_none();
    }
    if (x.len)
        memcpy(p, x.ptr, x.len);
    if (y.len)
        memcpy(p + x.len, y.ptr, y.len);
    return tmpl_string((struct slice){p, x.len + y.len});
}

static struct tmpl_value repeat(struct tmpl_run *run, struct tmpl_value v, int64_t times)
{
    struct tmpl_text t;
    tmpl_text_init(&t, run->a, run->text_bytes_max);
    for (int64_t i = 0; i < times && !t.failed && v.s.len > 0 && tmpl_step(run, 1); i++)
        tmpl_text_put(&t, v.s);
    if (t.failed)
        tmpl_fail_memory(run);
    return tmpl_string(tmpl_text_slice(&t));
}

static struct tmpl_value join_lists(struct tmpl_run *run, const struct tmpl_value *x,
                                    const struct tmpl_value *y)
{
    uint64_t count = (uint64_t)x->list->count + y->list->count;
    struct tmpl_seq *l = count <= UINT32_MAX ? tmpl_seq_new(run->a, (uint32_t)count) : NULL;
    if (!l || !tmpl_step(run, (uint32_t)count)) {
        tmpl_fail_memory(run);
        return tmpl_none();
    }
    memcpy(l->items, x->list->items, x->list->count * sizeof(*l->items));
    memcpy(l->items + x->list->count, y->list->items, y->list->count * sizeof(*l->items));
    l->count = (uint32_t)count;
    return tmpl_list_of(l, x->seq);
}

static struct tmpl_value integers(struct tmpl_run *run, enum tmpl_op op, int64_t i, int64_t j)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case TMPL_OP_ADD:
        over = __builtin_add_overflow(i, j, &r);
        break;
    case TMPL_OP_SUB:
        over = __builtin_sub_overflow(i, j, &r);
        break;
    case TMPL_OP_MUL:
        over = __builtin_mul_overflow(i, j, &r);
        break;
    case TMPL_OP_POW:
        r = 1;
        for (int64_t n = 0; n < j && !over && n < 64; n++)
            over = __builtin_mul_overflow(r, i, &r);
        over |= j >= 64 && (i > 1 || i < -1);
        break;
    default: /* FLOORDIV, MOD: Python rounds down, the remainder has the divisor's sign */
        if (j == 0)
            return tmpl_fail(run, "integer division or modulo by zero");
        if (i == INT64_MIN && j == -1)
            return tmpl_fail(run, "a number is too large");
        r = op == TMPL_OP_MOD ? i % j : i / j;
        if (i % j != 0 && (i < 0) != (j < 0))
            r += op == TMPL_OP_MOD ? j : -1;
    }
    return over ? tmpl_fail(run, "a number is too large") : tmpl_int(r);
}

static struct tmpl_value floats(struct tmpl_run *run, enum tmpl_op op, double f, double g)
{
    if ((op == TMPL_OP_DIV || op == TMPL_OP_FLOORDIV || op == TMPL_OP_MOD) && g == 0)
        return tmpl_fail(run, "division by zero");
    switch (op) {
    case TMPL_OP_ADD:
        return tmpl_float(f + g);
    case TMPL_OP_SUB:
        return tmpl_float(f - g);
    case TMPL_OP_MUL:
        return tmpl_float(f * g);
    case TMPL_OP_DIV:
        return tmpl_float(f / g);
    case TMPL_OP_FLOORDIV:
        return tmpl_float(floor(f / g));
    case TMPL_OP_MOD:
        return tmpl_float(f - g * floor(f / g));
    default:
        return tmpl_float(pow(f, g));
    }
}

static struct tmpl_value add_strings(struct tmpl_run *run, struct tmpl_value x, struct tmpl_value y)
{
    bool markup = x.markup || y.markup;
    if (markup && !x.markup)
        x = tmpl_escape(run, x.s);
    if (markup && !y.markup)
        y = tmpl_escape(run, y.s);
    struct tmpl_value v = concat(run, x.s, y.s);
    v.markup = markup;
    return v;
}

static struct tmpl_value binary(struct tmpl_run *run, enum tmpl_op op, struct tmpl_value x,
                                struct tmpl_value y)
{
    int64_t i, j;
    double f, g;
    if (op == TMPL_OP_CONCAT) {
        x = tmpl_to_string(run, &x);
        y = tmpl_to_string(run, &y);
        return run->error ? x : concat(run, x.s, y.s);
    }
    if (x.type == TMPL_UNDEFINED)
        return undefined_access(run, x);
    if (y.type == TMPL_UNDEFINED)
        return undefined_access(run, y);
    bool whole = tmpl_integer(&x, &i) && tmpl_integer(&y, &j);
    if (whole && op != TMPL_OP_DIV && !(op == TMPL_OP_POW && j < 0))
        return integers(run, op, i, j);
    if (tmpl_number(&x, &f) && tmpl_number(&y, &g))
        return floats(run, op, f, g);
    if (op == TMPL_OP_ADD && x.type == TMPL_STRING && y.type == TMPL_STRING)
        return add_strings(run, x, y);
    if (op == TMPL_OP_ADD && x.type == TMPL_SEQ && y.type == TMPL_SEQ && x.seq == y.seq)
        return join_lists(run, &x, &y);
    if (op == TMPL_OP_MUL && x.type == TMPL_STRING && tmpl_integer(&y, &j))
        return repeat(run, x, j);
    if (op == TMPL_OP_MUL && y.type == TMPL_STRING && tmpl_integer(&x, &i))
        return repeat(run, y, i);
    if (x.type == TMPL_STRING && op == TMPL_OP_ADD)
        return tmpl_fail(run, "can only concatenate str (not \"%s\") to str", tmpl_type_name(&y));
    return tmpl_fail(run, "unsupported operand types: '%s' and '%s'", tmpl_type_name(&x), tmpl_type_name(&y));
}

static bool compare(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *x,
                    const struct tmpl_value *y)
{
    int order = 0;
    switch (op) {
    case TMPL_OP_EQ:
        return tmpl_equal(x, y);
    case TMPL_OP_NE:
        return !tmpl_equal(x, y);
    case TMPL_OP_IN:
        return tmpl_contains(run, y, x);
    case TMPL_OP_NOT_IN:
        return !tmpl_contains(run, y, x);
    default:
        break;
    }
    if (!tmpl_compare(x, y, &order)) {
        tmpl_fail(run, "'%s' and '%s' cannot be ordered", tmpl_type_name(x), tmpl_type_name(y));
        return false;
    }
    switch (op) {
    case TMPL_OP_LT:
        return order < 0;
    case TMPL_OP_LE:
        return order <= 0;
    case TMPL_OP_GT:
        return order > 0;
    default:
        return order >= 0;
    }
}

/* --- calls --- */

static bool eval_args(struct tmpl_run *run, const struct tmpl_node *n, struct tmpl_args *ret)
{
    ret->count = n->list_count;
    for (uint32_t i = 0; i < n->list_count && !run->error; i++) {
        ret->items[i] = eval(run, n->list[i]);
        ret->names[i] = n->names ? n->names[i] : (struct slice){0};
    }
    return run->error == 0;
}

static struct tmpl_value captured(struct tmpl_run *run, const struct tmpl_node *body)
{
    struct tmpl_text t, *out = run->out;
    tmpl_text_init(&t, run->a, run->text_bytes_max);
    run->out = &t;
    tmpl_exec(run, body);
    run->out = out;
    if (t.failed)
        tmpl_fail_memory(run);
    return tmpl_string(tmpl_text_slice(&t));
}

/* The value of parameter `i` of a macro: given by position, by name, by default, or undefined. */
static struct tmpl_value parameter(struct tmpl_run *run, const struct tmpl_node *m, uint32_t i,
                                   const struct tmpl_args *args)
{
    uint32_t position = 0, first_default = m->name_count - m->list_count;
    for (uint32_t j = 0; j < args->count; j++) {
        bool named = args->names[j].ptr != NULL;
        if (named ? slice_eq(args->names[j], m->names[i]) : position++ == i)
            return args->items[j];
    }
    return i >= first_default ? eval(run, m->list[i - first_default]) : tmpl_undefined(m->names[i]);
}

static struct tmpl_value call_macro(struct tmpl_run *run, const struct tmpl_macro *macro,
                                    const struct tmpl_args *args)
{
    struct tmpl_scope *caller = run->scope, *s = scope_new(run, macro->scope);
    uint32_t positional = 0, flow = run->flow;
    for (uint32_t i = 0; i < args->count; i++)
        positional += args->names[i].ptr == NULL;
    if (positional > macro->node->name_count)
        return tmpl_fail(run, "macro '%.*s' takes not more than %u arguments", SLICE_ARGS(macro->node->name),
                         macro->node->name_count);
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
        return undefined_access(run, f);
    default:
        return tmpl_fail(run, "'%s' object is not callable", tmpl_type_name(&f));
    }
}

static struct tmpl_value macro_value(struct tmpl_run *run, const struct tmpl_node *n,
                                     struct tmpl_scope *scope)
{
    struct tmpl_macro *m = ARENA_NEW(run->a, struct tmpl_macro);
    if (!m) {
        tmpl_fail_memory(run);
        return tmpl_none();
    }
    *m = (struct tmpl_macro){n, scope};
    return (struct tmpl_value){.type = TMPL_MACRO_VALUE, .macro = m, .s = n->name};
}

/* --- expressions --- */

static struct tmpl_value eval_list(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_seq *l = tmpl_seq_new(run->a, n->list_count);
    if (!l) {
        tmpl_fail_memory(run);
        return tmpl_none();
    }
    for (uint32_t i = 0; i < n->list_count && !run->error; i++)
        l->items[l->count++] = eval(run, n->list[i]);
    return tmpl_list_of(l, n->kind == TMPL_TUPLE ? TMPL_SEQ_TUPLE : TMPL_SEQ_LIST);
}

static struct tmpl_value eval_dict(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_dict *d = tmpl_dict_new(run->a, n->list_count / 2);
    for (uint32_t i = 0; d && i < n->list_count && !run->error; i += 2) {
        struct tmpl_value key = eval(run, n->list[i]), v = eval(run, n->list[i + 1]);
        if (key.type >= TMPL_SEQ && !(key.type == TMPL_SEQ && key.seq == TMPL_SEQ_TUPLE))
            return tmpl_fail(run, "unhashable type: '%s'", tmpl_type_name(&key));
        if (!tmpl_dict_set(run->a, d, key, v))
            d = NULL;
    }
    if (!d)
        tmpl_fail_memory(run);
    return (struct tmpl_value){.type = TMPL_DICT_VALUE, .dict = d};
}

/* Python's slice bounds for `count` items; false: the step is 0 or a bound is no integer. */
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
        return run->error ? v : undefined_access(run, v);
    if (v.type != TMPL_STRING && v.type != TMPL_SEQ)
        return tmpl_fail(run, "'%s' object cannot be sliced", tmpl_type_name(&v));
    bool text = v.type == TMPL_STRING;
    int64_t count = text ? (int64_t)tmpl_chars(v.s) : v.list->count;
    if (!slice_bounds(run, n, count, &from, &to, &by))
        return v;
    if (text && by == 1) {
        size_t begin = tmpl_char_at(v.s, (size_t)from), end = tmpl_char_at(v.s, (size_t)MAX_OF(from, to));
        return tmpl_string(slice_sub(v.s, begin, end - begin));
    }
    struct tmpl_seq *items = tmpl_iterate(run, &v), *l = tmpl_seq_new(run->a, 0);
    struct tmpl_text t;
    tmpl_text_init(&t, run->a, run->text_bytes_max);
    for (int64_t i = from; items && l && (by > 0 ? i < to : i > to) && tmpl_step(run, 1); i += by) {
        if (text)
            tmpl_text_put(&t, items->items[i].s);
        else if (!tmpl_seq_push(run->a, l, items->items[i]))
            l = NULL;
    }
    if (!items || !l || t.failed)
        tmpl_fail_memory(run);
    return text ? tmpl_string(tmpl_text_slice(&t)) : tmpl_list_of(l, v.seq);
}

static struct tmpl_value eval_call(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_args args;
    struct tmpl_value f = eval(run, n->a);
    return run->error || !eval_args(run, n, &args) ? f : call(run, f, &args);
}

static struct tmpl_value eval_filter(struct tmpl_run *run, const struct tmpl_node *n, struct tmpl_value v)
{
    struct tmpl_args args;
    return run->error || !eval_args(run, n, &args) ? v : tmpl_filter_call(run, n->builtin, v, &args);
}

static struct tmpl_value eval_test(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_args args;
    struct tmpl_value v = eval(run, n->a);
    if (run->error || !eval_args(run, n, &args))
        return v;
    return tmpl_bool(tmpl_test_call(run, n->builtin, v, &args));
}

static struct tmpl_value eval_compare(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value left = eval(run, n->a);
    for (uint32_t i = 0; i < n->list_count && !run->error; i++) {
        struct tmpl_value right = eval(run, n->list[i]);
        if (run->error || !compare(run, n->ops[i], &left, &right))
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
    return n->kind == TMPL_NEGATE ? integers(run, TMPL_OP_SUB, 0, i) : tmpl_int(i);
}

static struct tmpl_value eval_kind(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v, w;
    switch (n->kind) {
    case TMPL_CONST:
        return n->value;
    case TMPL_NAME:
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
        return run->error ? v : binary(run, n->op, v, w);
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

/* The items of a loop: those for which its condition holds, decided before the body runs (as loop.last must know). */
static struct tmpl_seq *loop_items(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value v = eval(run, n->a);
    struct tmpl_seq *all = run->error ? NULL : tmpl_iterate(run, &v);
    if (!all || !n->d)
        return all;
    struct tmpl_seq *kept = tmpl_seq_new(run->a, all->count);
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
    if (!kept)
        tmpl_fail_memory(run);
    return kept;
}

static void exec_for(struct tmpl_run *run, const struct tmpl_node *n)
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

static void exec_set_attribute(struct tmpl_run *run, const struct tmpl_node *n)
{
    struct tmpl_value of = lookup(run, n->names[0]), v = eval(run, n->a);
    if (run->error)
        return;
    if (of.type != TMPL_NAMESPACE)
        tmpl_fail(run, "cannot assign attribute on non-namespace object");
    else if (!tmpl_dict_set(run->a, of.dict, tmpl_string(n->names[1]), v))
        tmpl_fail_memory(run);
}

static void exec_set_block(struct tmpl_run *run, const struct tmpl_node *n)
{
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
    struct tmpl_args args;
    struct tmpl_value f = eval(run, n->a->a);
    if (run->error || !eval_args(run, n->a, &args))
        return;
    if (args.count == TMPL_ARGS_MAX) {
        tmpl_fail(run, "too many arguments");
        return;
    }
    args.items[args.count] = macro_value(run, n, run->scope);
    args.names[args.count++] = SLICE("caller");
    struct tmpl_value v = run->error ? f : call(run, f, &args);
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
        if (!run->error)
            assign(run, n, v);
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
