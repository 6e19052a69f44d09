#include "test_schema.h"

#include "test_ledger.h"

TEST(unsupported_keywords_are_named_with_their_place)
{
    schema_check_refused("{'type': 'object', 'properties': {'a': {'contains': {}}}}", -ENOTSUP,
                         "#/properties/a");
    schema_check_refused("{'contains': {}}", -ENOTSUP, "\"contains\"");
    schema_check_refused("{'unevaluatedProperties': false}", -ENOTSUP, "unevaluatedProperties");
    schema_check_refused("{'$dynamicRef': '#x'}", -ENOTSUP, "$dynamicRef");
    schema_check_refused("{'type': 'string', 'format': 'iri'}", -ENOTSUP, "format");
    schema_check_refused("{'$schema': 'http://json-schema.org/draft-03/schema#'}", -ENOTSUP, "draft-03");
    schema_check_refused("{'$schema': 'http://example.com/mine'}", -ENOTSUP, "$schema");
    schema_check("{'type': 'string', 'contains': {}}", "'a'", "1"); /* It says nothing of strings. */
    /* Before 2019 $ref stood alone, and such an $id had no effect. */
    schema_check_refused("{'$id': 'http://a/b/', '$defs': {'c': {'$id': 'http://a/c', 'type': 'string'}}, "
                         "'allOf': [{'$id': 'http://a/', '$ref': 'c'}]}",
                         -ENOTSUP, "\"$id\" beside \"$ref\"");
}

TEST(wrong_schemas_are_named)
{
    schema_check_refused("{'type': 'text'}", -EINVAL, "\"type\"");
    schema_check_refused("{'items': 3}", -EINVAL, "items");
    schema_check_refused("{'properties': []}", -EINVAL, "properties");
    schema_check_refused("{'required': 'a'}", -EINVAL, "required");
    schema_check_refused("{'minLength': -1}", -EINVAL, "minLength");
    schema_check_refused("{'enum': 'a'}", -EINVAL, "enum");
    schema_check_refused("{'anyOf': {}}", -EINVAL, "anyOf");
    schema_check_refused("[]", -EINVAL, "object or a boolean");
    schema_check_refused("{'required': [1]}", -EINVAL, "required/0");
    schema_check_refused("{'properties': {'a': {'properties': {'b': null}}}}", -EINVAL, "#/properties/a");
    schema_check_refused("{'type': ['string', 7]}", -EINVAL, "type");
    schema_check_refused("{'exclusiveMinimum': 'a'}", -EINVAL, "exclusiveMinimum");
    schema_check_refused("{'multipleOf': 0}", -EINVAL, "multipleOf");
    schema_check_refused("{'dependencies': {'a': 3}}", -EINVAL, "dependencies/a");
    schema_check_refused("{'oneOf': [true, 3]}", -EINVAL, "oneOf/1");
}

/* Also where they would assert nothing. */
TEST(keywords_of_a_wrong_form_are_named_wherever_they_stand)
{
    schema_check_refused("{'type': 'string', 'contains': 3}", -EINVAL, "contains");
    schema_check_refused("{'if': 3}", -EINVAL, "if");
    schema_check_refused("{'then': 3}", -EINVAL, "then");
    schema_check_refused("{'minContains': 'a'}", -EINVAL, "minContains");
    schema_check_refused("{'$defs': {'a': 3}}", -EINVAL, "$defs/a");
    schema_check_refused("{'$defs': {'a': {'pattern': 5}}}", -EINVAL, "#/$defs/a");
    schema_check_refused("{'additionalItems': 3}", -EINVAL, "additionalItems");
    schema_check_refused("{'$id': 3}", -EINVAL, "$id");
    schema_check_refused("{'$schema': 'http://json-schema.org/draft-07/schema#', 'exclusiveMinimum': true}",
                         -EINVAL, "exclusiveMinimum");
    schema_check("{'title': 3, 'description': null, 'x-required': 3}", "1", "");
    schema_check("{'$schema': 'http://json-schema.org/draft-04/schema#', 'contains': 3}", "1", "");
    for (int plain = 0; plain < 2; plain++)
        schema_check_as("{'type': 'integer', 'minimum': 1e25}", plain, "100000000000000000000000000",
                        "1\n-100000000000000000000000000");
}

TEST(annotations_assert_nothing)
{
    schema_check(
        "{'title': 't', 'description': 'd', 'default': 1, 'examples': [2], '$comment': 'c', 'readOnly': true,"
        " 'deprecated': true, 'contentEncoding': 'base64', 'x-mine': {'type': 'null'}, 'then': false}",
        "1\n'x'", "");
}

TEST(unknown_keywords_are_listed)
{
    struct grammar_builder *b;
    struct buf ignored;
    struct schema_opts opts = {.ignored = &ignored};
    struct err e;
    sym_id start;
    json_t *schema = schema_json("{'x-a': 1, 'properties': {'q': {'minLenght': 3, 'x-a': 2, 'title': ''}}}");
    buf_init(&ignored, 1000, NULL);
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    assert_int_equal(schema_compile(b, schema, &opts, &start, &e), 0);
    assert_int_equal(ignored.len, strlen("x-a, minLenght"));
    assert_memory_equal(ignored.ptr, "x-a, minLenght", ignored.len);
    buf_done(&ignored);
    grammar_builder_free(b);
    json_decref(schema);
}

/* ---- limits ---- */

/* Compiles `schema`; it must end soon, either way, with a message if it fails. */
static int ends_soon(json_t *schema, struct err *e)
{
    struct grammar_builder *b;
    struct wanted wanted = {.deadline_ns = clock_now_ns() + 200 * NS_PER_MS};
    struct schema_opts opts = {.wanted = &wanted};
    struct grammar *g = NULL;
    sym_id start;
    uint64_t began = clock_now_ns();
    e->text[0] = 0;
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    grammar_builder_bound(b, &wanted, NULL);
    int r = schema_compile(b, schema, &opts, &start, e);
    if (r == 0)
        r = grammar_finish(b, start, &g, e);
    assert_true(clock_now_ns() - began < 20 * NS_PER_S); /* On a busy machine, under sanitizers. */
    assert_true(r == 0 || e->text[0]);
    grammar_free(g);
    grammar_builder_free(b);
    json_decref(schema);
    return r;
}

TEST(patterns_that_exclude_each_other_end_in_time)
{
    struct err e;
    json_t *all = json_array();
    for (int i = 0; i < 40; i++) {
        char text[80];
        snprintf(text, sizeof(text), "[a%c].{%d}[%c1].*[b%c]", 'c' + i % 20, i % 7 + 3, 'd' + i % 11,
                 'e' + i % 13);
        json_t *pattern = json_pack("{s:s}", "pattern", text);
        json_array_append_new(all, i % 3 ? json_pack("{s:o}", "not", pattern) : pattern);
    }
    /* How far it comes depends on the machine. */
    int r = ends_soon(json_pack("{s:s, s:o}", "type", "string", "allOf", all), &e);
    assert_true(r == -ETIME || r == -E2BIG);
    assert_non_null(strstr(e.text, r == -ETIME ? "too long to compile" : "too "));
}

TEST(deep_schemas_are_refused)
{
    struct err e;
    json_t *deep = json_true();
    for (int i = 0; i < 200; i++)
        deep = json_pack("{s:o}", "not", deep);
    assert_int_equal(ends_soon(deep, &e), -E2BIG);
    assert_non_null(strstr(e.text, "nested"));
}

TEST(large_enums_are_refused)
{
    struct err e;
    json_t *list = json_array();
    for (int i = 0; i <= SCHEMA_ENUM_MAX; i++)
        json_array_append_new(list, json_integer(i));
    assert_int_equal(ends_soon(json_pack("{s:o}", "enum", list), &e), -E2BIG);
    assert_non_null(strstr(e.text, "enum"));
}

TEST(an_enum_of_thousands_is_taken)
{
    struct err e;
    json_t *list = json_array();
    for (int i = 0; i < 8000; i++) {
        char text[32];
        snprintf(text, sizeof(text), "value number %d", i * 7);
        json_array_append_new(list, json_string(text));
    }
    int r = ends_soon(json_pack("{s:o}", "enum", list), &e);
    assert_true(r == 0 || r == -ETIME);
}

TEST(many_properties_are_refused)
{
    struct err e;
    json_t *map = json_object();
    for (int i = 0; i <= SCHEMA_PROPERTIES_MAX; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%d", i);
        json_object_set_new(map, name, json_true());
    }
    assert_int_equal(ends_soon(json_pack("{s:s,s:o}", "type", "object", "properties", map), &e), -E2BIG);
}

/* allOf of n anyOf of two: 2^n ways, none of which excludes another. */
TEST(combinations_that_multiply_are_refused)
{
    struct err e;
    json_t *all = json_array();
    for (int i = 0; i < 40; i++) {
        char a[16], b[16];
        snprintf(a, sizeof(a), "a%d", i);
        snprintf(b, sizeof(b), "b%d", i);
        json_array_append_new(all, json_pack("{s:[{s:[s]},{s:[s]}]}", "anyOf", "required", a, "required", b));
    }
    int r = ends_soon(json_pack("{s:o}", "allOf", all), &e);
    assert_true(r == -E2BIG || r == -ETIME);
}

TEST(one_of_of_many_overlapping_ends)
{
    struct err e;
    json_t *one = json_array();
    for (int i = 0; i < 60; i++)
        json_array_append_new(one, json_pack("{s:{s:{s:i}}}", "properties", "a", "minimum", i));
    int r = ends_soon(json_pack("{s:o}", "oneOf", one), &e);
    assert_true(r <= 0);
}

TEST(references_in_circles_end)
{
    struct err e;
    json_t *schema = schema_json("{'$defs': {'a': {'anyOf': [{'$ref': '#/$defs/b'}, {'$ref': '#/$defs/a'}]},"
                                 " 'b': {'allOf': [{'$ref': '#/$defs/a'}]}}, 'oneOf': [{'$ref': "
                                 "'#/$defs/a'}, {'$ref': '#/$defs/b'}]}");
    assert_int_equal(ends_soon(schema, &e), -ENOTSUP);
    schema = schema_json(
        "{'$ref': '#/$defs/a', '$defs': {'a': {'$ref': '#/$defs/b'}, 'b': {'$ref': '#/$defs/a'}}}");
    assert_int_equal(ends_soon(schema, &e), -ENOTSUP);
}

TEST(memory_is_charged_and_given_back)
{
    json_t *schema = schema_json(
        "{'properties': {'a': {'enum': [1, 2]}, 'b': {'anyOf': [{'type': 'null'}, {'$ref': '#'}]}}}");
    for (uint64_t limit = 64 << 10; limit <= 64 << 20; limit *= 4) {
        struct account *account = test_account(limit);
        struct charge charge = account_charge(account);
        struct grammar_builder *b;
        struct schema_opts opts = {.charge = &charge};
        struct err e;
        sym_id start;
        if (grammar_builder_create(NULL, &charge, &b) < 0)
            continue;
        int r = schema_compile(b, schema, &opts, &start, &e);
        assert_true(r == 0 || ((r == -ENOMEM || r == -E2BIG) && e.text[0]));
        assert_true(r == 0 || limit < 64 << 20);
        grammar_builder_free(b);
    }
    json_decref(schema);
}

TEST_MAIN()
