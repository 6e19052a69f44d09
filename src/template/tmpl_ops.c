/* tmpl_ops.c - Python's attributes, items, orders and operators. */
#include "template/tmpl_ast.h"
#include "template/tmpl_eval.h"
#include "template/tmpl_value.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/slice.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* --- values --- */

struct tmpl_value tmpl_to_string(struct tmpl_run *run, const struct tmpl_value *v)
{
    if (v->type == TMPL_STRING)
        return *v;
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    tmpl_print(&t, v);
    return tmpl_text_end(run, &t);
}

struct tmpl_value tmpl_pairs(struct tmpl_run *run, const struct tmpl_dict *d)
{
    struct tmpl_seq *l = tmpl_seq_begin(run, d->count);
    for (uint32_t i = 0; l && i < d->count && tmpl_step(run, 1); i++) {
        struct tmpl_seq *pair = tmpl_seq_begin(run, 2);
        if (!pair)
            return tmpl_none();
        pair->items[0] = d->keys[i];
        pair->items[1] = d->values[i];
        pair->count = 2;
        l->items[l->count++] = tmpl_list_of(run, pair, TMPL_SEQ_TUPLE);
        ASSERT(l->count <= l->capacity);
    }
    return tmpl_list_of(run, l, TMPL_SEQ_LIST);
}

static struct tmpl_seq *chars_of(struct tmpl_run *run, struct slice s)
{
    if (!tmpl_step(run, (uint32_t)MIN_OF(s.len, (size_t)UINT32_MAX)))
        return NULL;
    struct tmpl_seq *l = tmpl_seq_begin(run, (uint32_t)MIN_OF(tmpl_chars(s), (size_t)UINT32_MAX));
    for (size_t i = 0; l && i < s.len && l->count < l->capacity;) {
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
        if (v->type == TMPL_DICT_VALUE && !tmpl_step(run, v->dict->count))
            return NULL;
        l = tmpl_seq_begin(run, v->type == TMPL_DICT_VALUE ? v->dict->count : 0);
        for (uint32_t i = 0; l && v->type == TMPL_DICT_VALUE && i < v->dict->count; i++)
            l->items[l->count++] = v->dict->keys[i];
        return l;
    default:
        tmpl_fail(run, "'%s' object is not iterable", tmpl_type_name(v));
        return NULL;
    }
}

struct tmpl_value tmpl_undefined_access(struct tmpl_run *run, struct tmpl_value v)
{
    return tmpl_fail(run, "'%.*s' is undefined", SLICE_ARGS(slice_sub(v.s, 0, 100)));
}

static int compare_slices(struct slice x, struct slice y)
{
    size_t n = MIN_OF(x.len, y.len);
    int r = n ? memcmp(x.ptr, y.ptr, n) : 0; /* UTF-8 sorts as its code points do */
    return r ? (r > 0) - (r < 0) : (x.len > y.len) - (x.len < y.len);
}

bool tmpl_compare(struct tmpl_run *run, const struct tmpl_value *x, const struct tmpl_value *y, int *ret)
{
    double f, g;
    if (tmpl_number(x, &f) && tmpl_number(y, &g)) {
        *ret = (f > g) - (f < g);
        return true;
    }
    if (x->type == TMPL_STRING && y->type == TMPL_STRING) {
        tmpl_work(run, tmpl_cost_copy(MIN_OF(x->s.len, y->s.len)));
        *ret = compare_slices(x->s, y->s);
        return true;
    }
    if (x->type != TMPL_SEQ || y->type != TMPL_SEQ)
        return false;
    for (uint32_t i = 0; i < x->list->count && i < y->list->count && tmpl_step(run, 1); i++) {
        if (tmpl_equal(run, &x->list->items[i], &y->list->items[i]))
            continue;
        return tmpl_compare(run, &x->list->items[i], &y->list->items[i], ret);
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
        return tmpl_work(run, tmpl_cost_find(y->s.len) + tmpl_cost_copy(x->s.len)) &&
               slice_find(y->s, x->s, 0) != SIZE_MAX;
    case TMPL_SEQ:
        for (uint32_t i = 0; tmpl_step(run, 1) && i < y->list->count; i++)
            if (tmpl_equal(run, &y->list->items[i], x))
                return true;
        return false;
    case TMPL_DICT_VALUE:
        return tmpl_dict_get(run, y->dict, x) != NULL;
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
    if (x.len > run->text_bytes_max || y.len > run->text_bytes_max - x.len)
        return tmpl_fail_memory(run);
    if (!tmpl_work(run, tmpl_cost_copy(x.len + y.len)))
        return tmpl_none();
    char *p = arena_alloc_align(run->a, x.len + y.len, 1);
    if (!p)
        return tmpl_fail_memory(run);
    if (x.len)
        memcpy(p, x.ptr, x.len);
    if (y.len)
        memcpy(p + x.len, y.ptr, y.len);
    return tmpl_string((struct slice){p, x.len + y.len});
}

static struct tmpl_value repeat(struct tmpl_run *run, struct tmpl_value v, int64_t times)
{
    ASSERT(v.type == TMPL_STRING);
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    for (int64_t i = 0; i < times && !t.failed && v.s.len > 0 && tmpl_step(run, 1); i++)
        tmpl_text_put(&t, v.s);
    return tmpl_text_end(run, &t);
}

static struct tmpl_value join_lists(struct tmpl_run *run, const struct tmpl_value *x,
                                    const struct tmpl_value *y)
{
    ASSERT(x->type == TMPL_SEQ && y->type == TMPL_SEQ);
    uint64_t count = (uint64_t)x->list->count + y->list->count;
    if (!tmpl_step(run, (uint32_t)MIN_OF(count, (uint64_t)UINT32_MAX)))
        return tmpl_none();
    struct tmpl_seq *l = count <= UINT32_MAX ? tmpl_seq_new(run->a, (uint32_t)count) : NULL;
    if (!l)
        return tmpl_fail_memory(run);
    memcpy(l->items, x->list->items, x->list->count * sizeof(*l->items));
    memcpy(l->items + x->list->count, y->list->items, y->list->count * sizeof(*l->items));
    l->count = (uint32_t)count;
    return tmpl_list_of(run, l, x->seq);
}

struct tmpl_value tmpl_integers(struct tmpl_run *run, enum tmpl_op op, int64_t i, int64_t j)
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
        ASSERT(op == TMPL_OP_FLOORDIV || op == TMPL_OP_MOD);
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
        ASSERT(op == TMPL_OP_POW);
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

struct tmpl_value tmpl_binary(struct tmpl_run *run, enum tmpl_op op, struct tmpl_value x, struct tmpl_value y)
{
    int64_t i, j;
    double f, g;
    if (op == TMPL_OP_CONCAT) {
        x = tmpl_to_string(run, &x);
        y = tmpl_to_string(run, &y);
        return run->error ? x : concat(run, x.s, y.s);
    }
    if (x.type == TMPL_UNDEFINED)
        return tmpl_undefined_access(run, x);
    if (y.type == TMPL_UNDEFINED)
        return tmpl_undefined_access(run, y);
    bool whole = tmpl_integer(&x, &i) && tmpl_integer(&y, &j);
    if (whole && op != TMPL_OP_DIV && !(op == TMPL_OP_POW && j < 0))
        return tmpl_integers(run, op, i, j);
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

struct tmpl_value tmpl_escape(struct tmpl_run *run, struct slice s)
{
    struct tmpl_text t;
    tmpl_text_begin(run, &t);
    for (size_t i = 0; i < s.len && !t.failed; i++) {
        static const char from[] = "&<>'\"";
        static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
        const char *at = s.ptr[i] ? strchr(from, s.ptr[i]) : NULL;
        if (at)
            tmpl_text_put(&t, slice_of(to[at - from]));
        else
            tmpl_text_putc(&t, s.ptr[i]);
    }
    return tmpl_text_end(run, &t);
}

bool tmpl_relate(struct tmpl_run *run, enum tmpl_op op, const struct tmpl_value *x,
                 const struct tmpl_value *y)
{
    int order = 0;
    switch (op) {
    case TMPL_OP_EQ:
        return tmpl_equal(run, x, y);
    case TMPL_OP_NE:
        return !tmpl_equal(run, x, y);
    case TMPL_OP_IN:
        return tmpl_contains(run, y, x);
    case TMPL_OP_NOT_IN:
        return !tmpl_contains(run, y, x);
    default:
        break;
    }
    if (!tmpl_compare(run, x, y, &order)) {
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
        ASSERT(op == TMPL_OP_GE);
        return order >= 0;
    }
}
