/* tmpl_tests.c - the tests after `is`. */
#include "template/tmpl_builtins.h"
#include "template/tmpl_eval.h"
#include "template/tmpl_strings.h"

#include "base/check.h"

typedef bool test_fn(struct tmpl_run *run, const struct tmpl_value *v, const struct tmpl_value *arg);

static bool is_even(const struct tmpl_value *v)
{
    int64_t i;
    return tmpl_integer(v, &i) && i % 2 == 0;
}

static bool is_odd(const struct tmpl_value *v)
{
    int64_t i;
    return tmpl_integer(v, &i) && i % 2 != 0;
}

static bool order_is(struct tmpl_run *run, const struct tmpl_value *v, const struct tmpl_value *arg, int low,
                     int high)
{
    int order = 0;
    if (!arg || !tmpl_compare(run, v, arg, &order)) {
        tmpl_fail(run, "values that cannot be ordered");
        return false;
    }
    return order >= low && order <= high;
}

static bool divides(struct tmpl_run *run, const struct tmpl_value *v, const struct tmpl_value *arg)
{
    int64_t i, j;
    if (!arg || !tmpl_integer(v, &i) || !tmpl_integer(arg, &j) || j == 0) {
        tmpl_fail(run, "divisibleby takes integers, and not 0");
        return false;
    }
    return j == -1 || i % j == 0;
}

/* Name, and whether `v is name(arg)` holds. */
#define TESTS(TEST)                                                                                          \
    TEST(boolean, v->type == TMPL_BOOL)                                                                      \
    TEST(callable, v->type == TMPL_MACRO_VALUE || v->type == TMPL_FUNCTION || v->type == TMPL_METHOD)        \
    TEST(defined, v->type != TMPL_UNDEFINED)                                                                 \
    TEST(divisibleby, divides(run, v, arg))                                                                  \
    TEST(eq, arg &&tmpl_equal(run, v, arg))                                                                  \
    TEST(even, is_even(v))                                                                                   \
    TEST(false, v->type == TMPL_BOOL && !v->b)                                                               \
    TEST(float, v->type == TMPL_FLOAT)                                                                       \
    TEST(ge, order_is(run, v, arg, 0, 1))                                                                    \
    TEST(gt, order_is(run, v, arg, 1, 1))                                                                    \
    TEST(in, arg &&tmpl_contains(run, arg, v))                                                               \
    TEST(integer, v->type == TMPL_INT)                                                                       \
    TEST(iterable, v->type == TMPL_STRING || v->type == TMPL_SEQ || v->type == TMPL_DICT_VALUE ||            \
                       v->type == TMPL_UNDEFINED)                                                            \
    TEST(le, order_is(run, v, arg, -1, 0))                                                                   \
    TEST(lower, v->type == TMPL_STRING && slice_eq(tmpl_lower(run, v->s).s, v->s))                           \
    TEST(lt, order_is(run, v, arg, -1, -1))                                                                  \
    TEST(mapping, v->type == TMPL_DICT_VALUE)                                                                \
    TEST(ne, !arg || !tmpl_equal(run, v, arg))                                                               \
    TEST(none, v->type == TMPL_NONE)                                                                         \
    TEST(number, v->type == TMPL_INT || v->type == TMPL_FLOAT || v->type == TMPL_BOOL)                       \
    TEST(odd, is_odd(v))                                                                                     \
    TEST(sameas, arg && v->type == arg->type && tmpl_equal(run, v, arg))                                     \
    TEST(sequence, v->type == TMPL_STRING || v->type == TMPL_DICT_VALUE || v->type == TMPL_UNDEFINED ||      \
                       (v->type == TMPL_SEQ && v->seq != TMPL_SEQ_GENERATOR))                                \
    TEST(string, v->type == TMPL_STRING)                                                                     \
    TEST(true, v->type == TMPL_BOOL && v->b)                                                                 \
    TEST(undefined, v->type == TMPL_UNDEFINED)                                                               \
    TEST(upper, v->type == TMPL_STRING && slice_eq(tmpl_upper(run, v->s).s, v->s))

#define FUNCTION(name, condition)                                                                            \
    static bool test_##name(struct tmpl_run *run, const struct tmpl_value *v, const struct tmpl_value *arg)  \
    {                                                                                                        \
        (void)run, (void)arg;                                                                                \
        return condition;                                                                                    \
    }
#define ROW(name, condition) {#name, test_##name},

TESTS(FUNCTION)

static const struct {
    const char *name;
    test_fn *holds;
} tests[] = {{"!=", test_ne}, {"<", test_lt},  {"<=", test_le},      {"==", test_eq},
             {">", test_gt},  {">=", test_ge}, {"equalto", test_eq}, TESTS(ROW)};

int tmpl_test_find(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(tests); i++)
        if (slice_eq(name, slice_of(tests[i].name)))
            return (int)i;
    return -1;
}

bool tmpl_test_call(struct tmpl_run *run, int test, struct tmpl_value v, const struct tmpl_args *args)
{
    ASSERT(test >= 0 && (size_t)test < COUNT_OF(tests));
    return tmpl_step(run, 1) && tests[test].holds(run, &v, tmpl_arg(args, 0, "other"));
}
