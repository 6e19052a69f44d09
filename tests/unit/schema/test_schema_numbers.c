#define TEST_SEEDS 60
#include "test_schema.h"

#include "base/rng.h"
#include "schema/decimal.h"
#include "schema/json_number.h"

#include <math.h>

TEST(bounds)
{
    schema_check("{'type': 'integer', 'minimum': 10, 'maximum': 120}", "10\n99\n100\n120\n10.0",
                 "9\n121\n-10\n1000\n10.5");
    schema_check("{'type': 'integer', 'minimum': -12, 'exclusiveMaximum': 3}", "-12\n-1\n0\n-0\n2",
                 "-13\n3\n-100");
    schema_check("{'type': 'number', 'minimum': 0.5, 'maximum': 1.25}", "0.5\n0.50\n1\n1.0\n1.25\n1.2",
                 "0.4\n0.49\n1.26\n1.250001\n2");
    schema_check("{'type': 'number', 'exclusiveMinimum': 0}", "0.001\n1\n10", "0\n-1\n0.0\n-0.5\n-0");
    schema_check("{'type': 'number', 'exclusiveMaximum': 0}", "-0.001\n-1\n-10.5", "0\n1\n0.0\n-0\n-0.0");
    schema_check(
        "{'minimum': 5, 'exclusiveMinimum': true, '$schema': 'http://json-schema.org/draft-04/schema#'}",
        "5.1\n6\n'x'", "5\n5.0\n4");
    schema_check("{'type': 'integer', 'minimum': -3, 'maximum': -1}", "-1\n-2\n-3", "0\n-4\n1\n3");
    schema_check("{'type': 'number', 'minimum': 1e-7, 'maximum': 1e3}", "0.0000001\n999.99\n1000",
                 "0.00000009\n1000.1");
    schema_check("{'type': 'integer', 'maximum': 9007199254740993}",
                 "9007199254740993\n-99999999999999999999", "9007199254740994\n99999999999999999999");
    schema_check_refused("{'type': 'integer', 'minimum': 2, 'maximum': 1}", -EINVAL, "");
}

TEST(plain_texts_have_few_digits)
{
    static const char endless[] = "123456789012345678901\n0.123456789012345678901\n1e1000";
    schema_check_as("{'type': 'number'}", true, "12345678901234567890\n-0.5\n1e300", endless);
    schema_check("{'type': 'number'}", endless, "");
    schema_check_as("{'type': 'integer'}", true, "12345678901234567890\n-7", "123456789012345678901\n3.0");
    schema_check_as("{'type': 'integer', 'minimum': 0}", true, "0\n99999999999999999999",
                    "-1\n100000000000000000000");
    /* A bound of so many digits leaves none out. */
    schema_check_as("{'type': 'integer', 'minimum': 1e19}", true,
                    "20000000000000000000\n200000000000000000000", "1");
    schema_check_as("{'type': 'integer', 'minimum': 1e18}", true, "10000000000000000000",
                    "100000000000000000000");
    schema_check_as("{'const': 1e25}", true, "10000000000000000000000000", "1");
    schema_check_as("{'enum': [5, 0.5, [5]]}", true, "5\n0.5\n[5]", "5.0\n0.50\n[5.0]");
    schema_check_as("{'type': 'number', 'multipleOf': 0.5}", true, "1.5\n-2",
                    "1.25\n100000000000000000000.5");
}

TEST(plain_texts_escape_what_they_must)
{
    static const char *const schema =
        "{'properties': {'a/': {'enum': ['b', '\\n', '\\u00e9']}}, 'additionalProperties': false}";
    schema_check_as(schema, true,
                    "{'a/': 'b'}\n{'a/': '\\n'}\n{'a/': '\\u000a'}\n{'a/': '\xc3\xa9'}\n{'a/': '\\u00e9'}",
                    "{'\\u0061/': 'b'}\n{'a\\/': 'b'}\n{'a/': '\\u0062'}");
    schema_check(schema, "{'\\u0061/': 'b'}\n{'a\\/': 'b'}\n{'a/': '\\u0062'}", "{'a': 'b'}");
    schema_check_as("{'type': 'string'}", true, "'a\\\\\\u00e9'", "'\\u0061'\n'\\/'");
}

TEST(plain_texts_have_the_members_that_are_listed)
{
    static const char *const open = "{'properties': {'a': {'type': 'null'}}}";
    schema_check_as(open, true, "{}\n{'a': null}", "{'b': 1}\n{'a': null, 'b': 1}");
    schema_check(open, "{'b': 1}\n{'a': null, 'b': 1}", "");
    schema_check_as("{'properties': {'a': {'type': 'null'}}, 'additionalProperties': {'type': 'null'}}", true,
                    "{'b': null}", "{'b': 1}");
    schema_check_as("{'type': 'object'}\n", true, "{'b': 1}", "1");
    schema_check_as("{'type': 'object', 'required': ['b']}", true, "{'b': 1, 'c': 2}", "{}");
    schema_check_as(
        "{'allOf': [{'properties': {'a': {'type': 'null'}}}, {'properties': {'b': {'type': 'null'}}}]}", true,
        "{'a': null, 'b': null}", "{'a': null, 'c': 1}");
    schema_check_as("{'properties': {'a': {}}, 'patternProperties': {'^x': {'type': 'null'}}}", true,
                    "{'a': 1, 'xa': null}", "{'b': null}");
    schema_check_as("{'properties': {'a': {'type': 'null'}}, 'minProperties': 1, 'required': ['b']}", true,
                    "{'b': 1}", "{'c': 1}");
    schema_check_as(
        "{'properties': {'a': {'type': 'null'}}, 'minProperties': 2, 'additionalProperties': true,"
        " 'required': ['a', 'c']}",
        true, "{'a': null, 'c': 1}", "{'a': null}");
}

TEST(multiples)
{
    schema_check("{'type': 'integer', 'multipleOf': 7}", "0\n7\n-14\n700\n49", "1\n8\n-6\n71");
    schema_check("{'type': 'integer', 'multipleOf': 15, 'minimum': 20, 'maximum': 100}", "30\n45\n90",
                 "15\n105\n31\n20");
    schema_check("{'multipleOf': 0.01, 'type': 'number'}", "0.01\n1.2\n5\n-3.14\n1.230",
                 "0.001\n1.234\n-0.015");
    schema_check("{'multipleOf': 0.25, 'type': 'number'}", "0.25\n1.5\n2\n-0.75\n10.00\n1.250",
                 "0.3\n1.1\n0.255");
    schema_check("{'multipleOf': 2, 'allOf': [{'multipleOf': 3}], 'type': 'number'}", "6\n0\n12.0",
                 "2\n3\n4\n6.5");
    schema_check("{'multipleOf': 100, 'type': 'integer'}", "0\n100\n-2300", "10\n50\n101");
    schema_check_refused("{'multipleOf': 1000003, 'type': 'integer'}", -E2BIG, "multipleOf");
    schema_check_refused("{'multipleOf': 0}", -EINVAL, "multipleOf");
}

/* A number in tenths or hundredths as a person writes it. */
static void number_text(struct rng *r, char text[40], double *value)
{
    long whole = (long)rng_below(r, 2400) - 1200, part = (long)rng_below(r, 100);
    bool minus = whole < 0;
    unsigned digits = (unsigned)rng_below(r, 3);
    part = digits == 0 ? 0 : digits == 1 ? part / 10 : part;
    int len = snprintf(text, 40, "%s%ld", minus ? "-" : "", labs(whole));
    if (digits)
        snprintf(text + len, 40 - (size_t)len, ".%0*ld", (int)digits, part);
    *value = strtod(text, NULL);
}

PROPERTY(random_bounds_agree_with_arithmetic, seed)
{
    struct rng r = {seed, 0};
    char low[40], high[40], schema[300];
    double from, to;
    number_text(&r, low, &from);
    number_text(&r, high, &to);
    bool open_low = rng_below(&r, 2), open_high = rng_below(&r, 2), whole = rng_below(&r, 2);
    snprintf(schema, sizeof(schema), "{'type': '%s', '%s': %s, '%s': %s}", whole ? "integer" : "number",
             open_low ? "exclusiveMinimum" : "minimum", low, open_high ? "exclusiveMaximum" : "maximum",
             high);
    struct grammar *g = NULL;
    struct err e;
    int code = schema_grammar(schema, &g, &e);
    for (int i = 0; i < 60; i++) {
        char text[40];
        double v;
        number_text(&r, text, &v);
        if (i % 5 == 0) {
            strcpy(text, i % 2 ? low : high);
            v = strtod(text, NULL);
        }
        bool point = whole && strchr(text, '.') && strcmp(strchr(text, '.'), ".0") != 0;
        bool in = (open_low ? v > from : v >= from) && (open_high ? v < to : v <= to) &&
                  (!whole || (v == floor(v) && !point));
        bool got = code == 0 && plain_accepts(g, slice_of(text));
        if (got != in)
            print_error("%s: %s\n", schema, text);
        assert_int_equal(got, in);
    }
    grammar_free(g);
}

PROPERTY(random_multiples_agree_with_arithmetic, seed)
{
    struct rng r = {seed, 0};
    unsigned k = 1 + (unsigned)rng_below(&r, 60);
    char schema[200];
    snprintf(schema, sizeof(schema), "{'type': 'integer', 'multipleOf': %u, 'minimum': -50}", k);
    struct grammar *g = NULL;
    struct err e;
    assert_int_equal(schema_grammar(schema, &g, &e), 0);
    for (int i = 0; i < 40; i++) {
        char text[40];
        long v = (long)rng_below(&r, 5000) - 100;
        v = i % 2 ? v : v / (long)k * (long)k;
        snprintf(text, sizeof(text), "%ld", v);
        assert_int_equal(plain_accepts(g, slice_of(text)), v >= -50 && v % (long)k == 0);
    }
    grammar_free(g);
}

TEST(decimals_are_exact)
{
    static const struct {
        double value;
        const char *digits;
        unsigned whole, fraction;
    } all[] = {{0.1, "01", 1, 1},
               {1e21, "1000000000000000000000", 22, 0},
               {1.5e-7, "000000015", 1, 8},
               {0, "0", 1, 0},
               {120, "120", 3, 0}};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        struct decimal d;
        json_t *n = json_real(all[i].value);
        assert_true(decimal_of(n, &d));
        assert_int_equal(d.whole, all[i].whole);
        assert_int_equal(d.fraction, all[i].fraction);
        assert_memory_equal(d.digits, all[i].digits, strlen(all[i].digits));
        json_decref(n);
    }
}

TEST_MAIN()
