/* test_json_source.c - what jansson refuses and clients send. */
#include "test.h"

#include "base/json/json_source_load.h"
#include "base/wide_integer.h"

/* By pieces of `piece` bytes. */
static void expect_read(const char *text, const char *expected, size_t piece)
{
    char out[256] = {0};
    struct json_source s;
    size_t done = 0, got;
    json_source_init(&s, slice_of(text));
    while ((got = json_source_read(&s, out + done, piece)) > 0) {
        done += got;
        assert_true(got <= piece && done < sizeof(out) - 16);
    }
    assert_string_equal(out, expected);
}

static void expect(const char *text, const char *expected)
{
    for (size_t piece = 1; piece < 16; piece++)
        expect_read(text, expected, piece);
}

static void expect_same(const char *text)
{
    expect(text, text);
}

TEST(integers_beyond_64_bits_become_doubles)
{
    expect("[18446744073709551615]", "[18446744073709551615.0]");
    expect("{\"a\":9223372036854775808,\"b\":1}", "{\"a\":9223372036854775808.0,\"b\":1}");
    expect("-9223372036854775809", "-9223372036854775809.0");
    expect("[100000000000000000000,100000000000000000000 ]",
           "[100000000000000000000.0,100000000000000000000.0 ]");
    expect_same("[9223372036854775807,-9223372036854775808,0,-0,12]");
    expect_same(
        "[18446744073709551615.5,18446744073709551615e2,1e18446744073709551615,1.18446744073709551615]");
    expect_same("{\"18446744073709551615\":\"18446744073709551615\"}");
    expect_same("[\"\\\"18446744073709551615\"]");
    expect_same("-");
    expect_same("");
}

TEST(half_a_pair_of_surrogates_becomes_a_replacement_character)
{
    expect("\"a\\ud83d\"", "\"a\\ufffd\"");
    expect("\"\\uD83Db\"", "\"\\ufffdb\"");
    expect("\"\\ude42\\ud83d\"", "\"\\ufffd\\ufffd\"");
    expect("\"\\ud83d\\ud83d\\ude42\"", "\"\\ufffd\\ud83d\\ude42\"");
    expect("\"\\ud83d\\n\\u0041\"", "\"\\ufffd\\n\\u0041\"");
    expect("\"\\ud83d\\\\ude42\"", "\"\\ufffd\\\\ude42\"");
    expect_same("\"\\ud83d\\ude42\\u00e9\\\\ud83d\\\"\\ud7ff\\ue000\"");
    expect_same("\"\\ud83");
    expect_same("\"\\ud8zz\"");
    expect_same("\\ud83d"); /* no string */
    expect_same("\"\\");
}

/* More than is looked at in one go, with a change at every place. */
TEST(changes_are_found_in_long_texts)
{
    static char text[20000], out[20000];
    for (size_t at = 3800; at < 4200; at++) {
        struct json_source s;
        memset(text, ' ', sizeof(text));
        memcpy(text + at, "\"\\ud83d\"", 8);
        text[9000] = 0;
        json_source_init(&s, slice_of(text));
        assert_int_equal(json_source_read(&s, out, sizeof(out)), 9000);
        memcpy(text + at, "\"\\ufffd\"", 8);
        assert_memory_equal(out, text, 9000);
    }
}

TEST(jansson_takes_them_and_refuses_what_is_no_json)
{
    json_error_t e;
    json_t *v = json_source_load(SLICE("{\"a\":[18446744073709551615,-5],\"b\":\"\\ud83d\"}"), 0, &e);
    assert_non_null(v);
    assert_true(json_real_value(json_array_get(json_object_get(v, "a"), 0)) == 0x1p64);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(v, "a"), 1)), -5);
    assert_string_equal(json_string_value(json_object_get(v, "b")), "\xef\xbf\xbd");
    json_decref(v);
    static const char *const broken[] = {"[018446744073709551615]",
                                         "[18446744073709551615.]",
                                         "[1e999]",
                                         "[18446744073709551615x]",
                                         "\"\\ud83",
                                         "[\"\\ud83d]",
                                         "",
                                         "\"\xff\""};
    for (size_t i = 0; i < COUNT_OF(broken); i++)
        assert_null(json_source_load(slice_of(broken[i]), JSON_DECODE_ANY, &e));
}

TEST(a_table_keeps_the_digits_of_wide_integers)
{
    struct wide_integers table = {0};
    json_error_t e;
    char text[64], many[64];
    assert_null(wide_integers_enter(&table));
    json_decref(json_source_load(SLICE("[18446744073709551615, -9223372036854775809, 7, 1e30]"), 0, &e));
    assert_true(slice_eq(wide_integer_text(0x1p64), SLICE("18446744073709551615")));
    assert_true(slice_eq(wide_integer_text(-0x1p63), SLICE("-9223372036854775809")));
    assert_int_equal(wide_integer_text(7).len + wide_integer_text(1e30).len, 0);
    /* Two of one double: neither has digits. One of them twice is one. */
    json_decref(json_source_load(SLICE("[-9223372036854775809, 18446744073709551616]"), 0, &e));
    assert_int_equal(wide_integer_text(0x1p64).len, 0);
    assert_true(wide_integer_text(-0x1p63).len > 0);
    /* Too long, and too many. */
    snprintf(text, sizeof(text), "[1%040d]", 0);
    json_decref(json_source_load(slice_of(text), 0, &e));
    assert_int_equal(table.count, 2);
    for (int i = 0; i < 20; i++) {
        snprintf(many, sizeof(many), "[%d000000000000000000000]", i + 1);
        json_decref(json_source_load(slice_of(many), 0, &e));
    }
    assert_int_equal(table.count, WIDE_INTEGERS_MAX);
    assert_ptr_equal(wide_integers_enter(NULL), &table);
    assert_int_equal(wide_integer_text(-0x1p63).len, 0);
}

TEST_MAIN()
