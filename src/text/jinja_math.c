/* jinja_math.c - arithmetic on values, as Python does it: floor division and remainders round down, / makes a float, bool
 * counts as 0 and 1, + joins texts and lists. Integers have 64 bits: where Python would go on, this refuses. */
#include "text/jinja_exec.h"

#include "base/check.h"
#include "text/jinja_text.h"

#include <errno.h>
#include <math.h>

static const char *op_name(enum jinja_op op)
{
    static const char *const names[] = {
        [OP_NONE] = "?", [OP_ADD] = "+",        [OP_SUB] = "-", [OP_MUL] = "*",
        [OP_DIV] = "/",  [OP_FLOOR_DIV] = "//", [OP_MOD] = "%", [OP_POW] = "** or pow()",
        [OP_EQ] = "==",  [OP_NE] = "!=",        [OP_LT] = "<",  [OP_LE] = "<=",
        [OP_GT] = ">",   [OP_GE] = ">=",        [OP_IN] = "in", [OP_NOT_IN] = "not in"};
    return names[op];
}

static int fail_types(struct jinja_run *r, enum jinja_op op, const struct jinja_value *a,
                      const struct jinja_value *b)
{
    bool sequence = a->kind == VALUE_STR || a->kind == VALUE_LIST || a->kind == VALUE_TUPLE;
    if (a->kind == VALUE_UNDEFINED || b->kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, a->kind == VALUE_UNDEFINED ? a : b);
    if (op == OP_ADD && sequence)
        return jinja_fail(r, "can only concatenate %s (not \"%s\") to %s", jinja_type(a), jinja_type(b),
                          jinja_type(a));
    return jinja_fail(r, "unsupported operand type(s) for %s: '%s' and '%s'", op_name(op), jinja_type(a),
                      jinja_type(b));
}

static int power(struct jinja_run *r, int64_t base, int64_t exponent, struct jinja_value *ret)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return jinja_fail(r, "0.0 cannot be raised to a negative power");
        *ret = jinja_float(pow((double)base, (double)exponent));
        return 0;
    }
    if (base == 0 || base == 1 || base == -1) {
        *ret = jinja_int(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
        return 0;
    }
    for (; exponent > 0; exponent--)
        if (__builtin_mul_overflow(result, base, &result))
            return jinja_fail(r, "a number of more than 64 bits");
    *ret = jinja_int(result);
    return 0;
}

static int math_int(struct jinja_run *r, enum jinja_op op, int64_t a, int64_t b, struct jinja_value *ret)
{
    int64_t result = 0;
    bool overflow = false;
    if (b == 0 && (op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD))
        return jinja_fail(r, op == OP_DIV ? "division by zero" : "integer division or modulo by zero");
    switch (op) {
    case OP_ADD:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUB:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MUL:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_DIV:
        *ret = jinja_float((double)a / (double)b);
        return 0;
    case OP_FLOOR_DIV:
        overflow = a == INT64_MIN && b == -1;
        result = overflow ? 0 : a / b - (a % b != 0 && (a % b < 0) != (b < 0));
        break;
    case OP_MOD:
        result = b == -1 ? 0 : a % b;
        result += result != 0 && (result < 0) != (b < 0) ? b : 0;
        break;
    default:
        return power(r, a, b, ret);
    }
    if (overflow)
        return jinja_fail(r, "a number of more than 64 bits");
    *ret = jinja_int(result);
    return 0;
}

static int math_float(struct jinja_run *r, enum jinja_op op, double a, double b, struct jinja_value *ret)
{
    double result = 0, rest;
    if (b == 0 && (op == OP_DIV || op == OP_FLOOR_DIV || op == OP_MOD))
        return jinja_fail(r, "float division by zero");
    switch (op) {
    case OP_ADD:
        result = a + b;
        break;
    case OP_SUB:
        result = a - b;
        break;
    case OP_MUL:
        result = a * b;
        break;
    case OP_DIV:
        result = a / b;
        break;
    case OP_FLOOR_DIV:
    case OP_MOD:
        rest = fmod(a, b);
        rest += rest != 0 && (rest < 0) != (b < 0) ? b : 0;
        result = op == OP_MOD ? rest : nearbyint((a - rest) / b);
        break;
    default:
        result = pow(a, b);
        if (isnan(result) && !isnan(a) && !isnan(b))
            return jinja_fail(r, "a power that is no real number");
        break;
    }
    *ret = jinja_float(result);
    return 0;
}

static int escaped(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    *ret = *v;
    if (v->s->markup)
        return 0;
    jinja_put_escaped(&t, jinja_slice(v));
    return jinja_text_value(&t, ret);
}

static int join_str(struct jinja_run *r, const struct jinja_value *a, const struct jinja_value *b,
                    struct jinja_value *ret)
{
    struct jinja_value left = *a, right = *b;
    bool markup = a->s->markup || b->s->markup;
    if (markup && (escaped(r, a, &left) < 0 || escaped(r, b, &right) < 0))
        return r->error;
    if (jinja_str_join(r, left.s, right.s, ret) < 0)
        return r->error;
    ret->s->markup = markup;
    return 0;
}

static int repeat_str(struct jinja_run *r, const struct jinja_value *v, int64_t times,
                      struct jinja_value *ret)
{
    struct jinja_text t = {.r = r};
    if (v->s->len == 0)
        times = 0;
    for (int64_t i = 0; i < times && jinja_spend(r, 1) == 0; i++)
        jinja_text_put(&t, jinja_slice(v));
    return jinja_text_value(&t, ret);
}

static int repeat_list(struct jinja_run *r, const struct jinja_value *v, int64_t times,
                       struct jinja_value *ret)
{
    struct jinja_value *items;
    size_t len;
    if (times < 0 || v->l->len == 0)
        times = 0;
    if (__builtin_mul_overflow(v->l->len, (size_t)times, &len))
        len = SIZE_MAX / sizeof(*items);
    if (jinja_items(r, v, &items) < 0 || jinja_list(r, v->kind, len, ret) < 0)
        return r->error;
    for (size_t i = 0; i < len; i++)
        ret->l->items[i] = items[i % v->l->len];
    return 0;
}

static int repeat(struct jinja_run *r, const struct jinja_value *v, int64_t times, struct jinja_value *ret)
{
    return v->kind == VALUE_STR ? repeat_str(r, v, times, ret) : repeat_list(r, v, times, ret);
}

static bool is_sequence(const struct jinja_value *v)
{
    return v->kind == VALUE_STR || v->kind == VALUE_LIST || v->kind == VALUE_TUPLE;
}

int jinja_math(struct jinja_run *r, enum jinja_op op, const struct jinja_value *a,
               const struct jinja_value *b, struct jinja_value *ret)
{
    int64_t i, k;
    double x, y;
    if (jinja_as_int(a, &i) && jinja_as_int(b, &k))
        return math_int(r, op, i, k, ret);
    if (jinja_as_float(a, &x) && jinja_as_float(b, &y))
        return math_float(r, op, x, y, ret);
    if (op == OP_ADD && a->kind == b->kind && a->kind == VALUE_STR)
        return join_str(r, a, b, ret);
    if (op == OP_ADD && a->kind == b->kind && (a->kind == VALUE_LIST || a->kind == VALUE_TUPLE))
        return jinja_list_join(r, a, b, ret);
    if (op == OP_MUL && is_sequence(a) && jinja_as_int(b, &k))
        return repeat(r, a, k, ret);
    if (op == OP_MUL && is_sequence(b) && jinja_as_int(a, &i))
        return repeat(r, b, i, ret);
    if (op == OP_MOD && a->kind == VALUE_STR && b->kind != VALUE_UNDEFINED)
        return jinja_fail(r, "formatting text with %% is not supported: use ~ or join");
    return fail_types(r, op, a, b);
}

int jinja_negate(struct jinja_run *r, const struct jinja_value *v, struct jinja_value *ret)
{
    int64_t i;
    if (v->kind == VALUE_UNDEFINED)
        return jinja_fail_undefined(r, v);
    if (v->kind == VALUE_FLOAT)
        *ret = jinja_float(-v->f);
    else if (!jinja_as_int(v, &i))
        return jinja_fail(r, "bad operand type for unary -: '%s'", jinja_type(v));
    else if (i == INT64_MIN)
        return jinja_fail(r, "a number of more than 64 bits");
    else
        *ret = jinja_int(-i);
    return 0;
}

int jinja_compare(struct jinja_run *r, enum jinja_op op, const struct jinja_value *a,
                  const struct jinja_value *b, bool *ret)
{
    bool same;
    switch (op) {
    case OP_EQ:
    case OP_NE:
        if (jinja_equal(r, a, b, &same) < 0)
            return r->error;
        *ret = same == (op == OP_EQ);
        return 0;
    case OP_LT:
        return jinja_less(r, a, b, op_name(op), ret);
    case OP_GT:
        return jinja_less(r, b, a, op_name(op), ret);
    case OP_LE:
    case OP_GE:
        if ((op == OP_LE ? jinja_less(r, a, b, "<=", ret) : jinja_less(r, b, a, ">=", ret)) < 0 || *ret)
            return r->error;
        return jinja_equal(r, a, b, ret);
    default:
        if (jinja_contains(r, b, a, ret) < 0)
            return r->error;
        *ret = *ret == (op == OP_IN);
        return 0;
    }
}
