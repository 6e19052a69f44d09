/* jinja_tests.c - what can stand behind `is`. */
#include "text/jinja_exec.h"

#include "base/check.h"
#include "text/utf8.h"

#include <errno.h>
#include <utf8proc.h>

#define TEST_KIND(name, condition)                                                                           \
    static int test_##name(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)               \
    {                                                                                                        \
        const struct jinja_value *v = &c->self;                                                              \
        (void)r;                                                                                             \
        *ret = jinja_bool(condition);                                                                        \
        return 0;                                                                                            \
    }

TEST_KIND(defined, v->kind != VALUE_UNDEFINED)
TEST_KIND(undefined, v->kind == VALUE_UNDEFINED)
TEST_KIND(none, v->kind == VALUE_NONE)
TEST_KIND(boolean, v->kind == VALUE_BOOL)
TEST_KIND(true, v->kind == VALUE_BOOL && v->b)
TEST_KIND(false, v->kind == VALUE_BOOL && !v->b)
TEST_KIND(integer, v->kind == VALUE_INT)
TEST_KIND(float, v->kind == VALUE_FLOAT)
TEST_KIND(number, v->kind == VALUE_INT || v->kind == VALUE_FLOAT || v->kind == VALUE_BOOL)
TEST_KIND(string, v->kind == VALUE_STR)
TEST_KIND(mapping, v->kind == VALUE_DICT)
/* What has a length and takes an index. Undefined has both, as Jinja sees it. */
TEST_KIND(sequence, v->kind == VALUE_STR || v->kind == VALUE_LIST || v->kind == VALUE_TUPLE ||
                        v->kind == VALUE_RANGE || v->kind == VALUE_DICT || v->kind == VALUE_UNDEFINED)
TEST_KIND(iterable, v->kind == VALUE_UNDEFINED || (v->kind >= VALUE_STR && v->kind <= VALUE_DICT) ||
                        v->kind == VALUE_LOOP)
TEST_KIND(callable, v->kind == VALUE_MACRO || v->kind == VALUE_METHOD || v->kind == VALUE_FUNCTION ||
                        v->kind == VALUE_LOOP || v->kind == VALUE_UNDEFINED)
TEST_KIND(escaped, v->kind == VALUE_STR && v->s->markup)
TEST_KIND(filter, v->kind == VALUE_STR && jinja_filter_find(jinja_slice(v)))
TEST_KIND(test, v->kind == VALUE_STR && jinja_test_find(jinja_slice(v)))

static int compare(struct jinja_run *r, struct jinja_call *c, enum jinja_op op, struct jinja_value *ret)
{
    bool holds;
    if (jinja_compare(r, op, &c->self, &c->arg[0], &holds) < 0)
        return r->error;
    *ret = jinja_bool(holds);
    return 0;
}

#define TEST_COMPARE(name, op)                                                                               \
    static int test_##name(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)               \
    {                                                                                                        \
        return compare(r, c, op, ret);                                                                       \
    }

TEST_COMPARE(eq, OP_EQ)
TEST_COMPARE(ne, OP_NE)
TEST_COMPARE(lt, OP_LT)
TEST_COMPARE(le, OP_LE)
TEST_COMPARE(gt, OP_GT)
TEST_COMPARE(ge, OP_GE)
TEST_COMPARE(in, OP_IN)

static int test_sameas(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    const struct jinja_value *a = &c->self, *b = &c->arg[0];
    bool same = a->kind == b->kind;
    if (same && a->kind <= VALUE_FLOAT) {
        if (jinja_equal(r, a, b, &same) < 0)
            return r->error;
    } else if (same) {
        same = a->s == b->s;
    }
    *ret = jinja_bool(same);
    return 0;
}

/* v % n == rest */
static int test_remainder(struct jinja_run *r, const struct jinja_value *v, const struct jinja_value *n,
                          int64_t want, struct jinja_value *ret)
{
    struct jinja_value rest, wanted = jinja_int(want);
    bool same;
    if (jinja_math(r, OP_MOD, v, n, &rest) < 0 || jinja_equal(r, &rest, &wanted, &same) < 0)
        return r->error;
    *ret = jinja_bool(same);
    return 0;
}

static int test_even(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value two = jinja_int(2);
    return test_remainder(r, &c->self, &two, 0, ret);
}

static int test_odd(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    struct jinja_value two = jinja_int(2);
    return test_remainder(r, &c->self, &two, 1, ret);
}

static int test_divisibleby(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return test_remainder(r, &c->self, &c->arg[0], 0, ret);
}

/* Cased letters, and all of them in this case. */
static int test_case(struct jinja_run *r, struct jinja_call *c, bool upper, struct jinja_value *ret)
{
    bool some = false, all = true;
    *ret = jinja_bool(false);
    if (c->self.kind != VALUE_STR)
        return 0;
    for (size_t at = 0; at < c->self.s->len;) {
        uint32_t code;
        at += utf8_next(c->self.s->ptr + at, &code);
        utf8proc_int32_t letter = (utf8proc_int32_t)code;
        bool is_upper = utf8proc_tolower(letter) != letter, is_lower = utf8proc_toupper(letter) != letter;
        some |= upper ? is_upper : is_lower;
        all &= !(upper ? is_lower : is_upper);
    }
    *ret = jinja_bool(some && all);
    return jinja_spend_bytes(r, c->self.s->len);
}

static int test_lower(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return test_case(r, c, false, ret);
}

static int test_upper(struct jinja_run *r, struct jinja_call *c, struct jinja_value *ret)
{
    return test_case(r, c, true, ret);
}

static const struct jinja_builtin tests[] = {
    {"defined", test_defined, {0}, 0, false},
    {"undefined", test_undefined, {0}, 0, false},
    {"none", test_none, {0}, 0, false},
    {"string", test_string, {0}, 0, false},
    {"mapping", test_mapping, {0}, 0, false},
    {"sequence", test_sequence, {0}, 0, false},
    {"iterable", test_iterable, {0}, 0, false},
    {"boolean", test_boolean, {0}, 0, false},
    {"true", test_true, {0}, 0, false},
    {"false", test_false, {0}, 0, false},
    {"number", test_number, {0}, 0, false},
    {"integer", test_integer, {0}, 0, false},
    {"float", test_float, {0}, 0, false},
    {"callable", test_callable, {0}, 0, false},
    {"escaped", test_escaped, {0}, 0, false},
    {"filter", test_filter, {0}, 0, false},
    {"test", test_test, {0}, 0, false},
    {"sameas", test_sameas, {"other"}, 1, false},
    {"even", test_even, {0}, 0, false},
    {"odd", test_odd, {0}, 0, false},
    {"divisibleby", test_divisibleby, {"num"}, 1, false},
    {"lower", test_lower, {0}, 0, false},
    {"upper", test_upper, {0}, 0, false},
    {"in", test_in, {"seq"}, 1, false},
    {"==", test_eq, {"other"}, 1, false},
    {"eq", test_eq, {"other"}, 1, false},
    {"equalto", test_eq, {"other"}, 1, false},
    {"!=", test_ne, {"other"}, 1, false},
    {"ne", test_ne, {"other"}, 1, false},
    {"<", test_lt, {"other"}, 1, false},
    {"lt", test_lt, {"other"}, 1, false},
    {"lessthan", test_lt, {"other"}, 1, false},
    {"<=", test_le, {"other"}, 1, false},
    {"le", test_le, {"other"}, 1, false},
    {">", test_gt, {"other"}, 1, false},
    {"gt", test_gt, {"other"}, 1, false},
    {"greaterthan", test_gt, {"other"}, 1, false},
    {">=", test_ge, {"other"}, 1, false},
    {"ge", test_ge, {"other"}, 1, false},
};

const struct jinja_builtin *jinja_test_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        if (slice_eq(slice_of(tests[i].name), name))
            return &tests[i];
    return NULL;
}
