/* test_schema.h - a schema, what its grammar accepts, and what it does not. */
#ifndef PLATEAU_TESTS_UNIT_TEST_SCHEMA_H
#define PLATEAU_TESTS_UNIT_TEST_SCHEMA_H

#include "test.h"
#include "unit/constraint/test_recogniser.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/wanted.h"
#include "schema/schema.h"

#include <errno.h>

/* 0, and the grammar; or why not. `text`: JSON with ' for ", so that it is easy to read in C. */
static inline json_t *schema_json(const char *text)
{
    char *copy = strdup(text);
    json_error_t why;
    for (char *c = copy; *c; c++)
        if (*c == '\'')
            *c = '"';
    json_t *schema = json_loads(copy, JSON_DECODE_ANY, &why);
    if (!schema)
        print_error("%s: %s\n", text, why.text);
    assert_non_null(schema);
    free(copy);
    return schema;
}

static inline int schema_grammar_as(const char *text, bool plain, struct grammar **ret, struct err *e)
{
    struct grammar_builder *b;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + 60 * NS_PER_S};
    struct schema_opts opts = {.wanted = &wanted, .plain = plain};
    sym_id start = 0;
    json_t *schema = schema_json(text);
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    int r = schema_compile(b, schema, &opts, &start, e);
    if (r == 0)
        r = grammar_finish(b, start, ret, e);
    grammar_builder_free(b);
    json_decref(schema);
    return r;
}

static inline int schema_grammar(const char *text, struct grammar **ret, struct err *e)
{
    return schema_grammar_as(text, false, ret, e);
}

/* `lines`: instances with ' for ", one a line; \n within one is written as ~. */
static inline void schema_check_lines(const struct grammar *g, const char *schema, const char *lines,
                                      bool accepted)
{
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        char *text = strndup(lines, len);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c == '~' ? '\n' : *c;
        bool got = plain_accepts(g, slice_of(text));
        if (got != accepted)
            print_error("%s %s %s\n", schema, got ? "accepts" : "rejects", text);
        assert_int_equal(got, accepted);
        free(text);
        lines += len + (lines[len] == '\n');
    }
}

static inline void schema_check_as(const char *schema, bool plain, const char *accepts, const char *rejects)
{
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = schema_grammar_as(schema, plain, &g, &e);
    if (r)
        print_error("%s: %s\n", schema, e.text);
    assert_int_equal(r, 0);
    schema_check_lines(g, schema, accepts, true);
    schema_check_lines(g, schema, rejects, false);
    grammar_free(g);
}

static inline void schema_check(const char *schema, const char *accepts, const char *rejects)
{
    schema_check_as(schema, false, accepts, rejects);
}

static inline void schema_check_refused(const char *schema, int code, const char *words)
{
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = schema_grammar(schema, &g, &e);
    if (r != code || !strstr(e.text, words))
        print_error("%s: %d %s\n", schema, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, words));
}

#endif
