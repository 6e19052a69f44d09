/* The writer of JSON: every type, commas at every depth, and what it stops at. */
#include "test.h"

#include "base/buf.h"
#include "base/json/json_out.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>

static struct buf text;

static struct json_out begin(void)
{
    buf_done(&text);
    buf_init(&text, 1 << 20, NULL);
    return json_out(&text);
}

static void assert_text(const char *want)
{
    buf_putc(&text, 0);
    assert_int_equal(text.error, 0);
    assert_string_equal(text.ptr, want);
    buf_done(&text);
}

TEST(members_have_commas_and_elements_have_no_keys)
{
    struct json_out j = begin();
    json_open(&j, NULL);
    json_put_string(&j, "a", "b");
    json_open_array(&j, "list");
    json_put_u64(&j, NULL, 1);
    json_open(&j, NULL);
    json_close(&j);
    json_open_array(&j, NULL);
    json_close(&j);
    json_put_null(&j, NULL);
    json_close(&j);
    json_open(&j, "empty");
    json_close(&j);
    json_put_bool(&j, "yes", true);
    json_put_bool(&j, "no", false);
    json_end(&j);
    assert_text("{\"a\":\"b\",\"list\":[1,{},[],null],\"empty\":{},\"yes\":true,\"no\":false}");
}

TEST(each_number_has_its_form)
{
    struct json_out j = begin();
    json_open_array(&j, NULL);
    json_put_u64(&j, NULL, 0);
    json_put_u64(&j, NULL, UINT64_MAX);
    json_put_i64(&j, NULL, INT64_MIN);
    json_put_i64(&j, NULL, -7);
    json_put_i64(&j, NULL, INT64_MAX);
    json_put_real(&j, NULL, 0.1);
    json_put_real(&j, NULL, 3);
    json_put_real(&j, NULL, 1e300);
    json_put_fixed(&j, NULL, 3, 1.5);
    json_put_fixed(&j, NULL, 0, 12345678.4);
    json_put_general(&j, NULL, 6, 1234567.0);
    json_put_general(&j, NULL, 6, 0.25);
    json_end(&j);
    assert_text("[0,18446744073709551615,-9223372036854775808,-7,9223372036854775807,0.1,3.0,1e+300,1.500,"
                "12345678,1.23457e+06,0.25]");
}

TEST(numbers_that_are_not_finite_are_null)
{
    struct json_out j = begin();
    json_open_array(&j, NULL);
    json_put_real(&j, NULL, NAN);
    json_put_real(&j, NULL, -INFINITY);
    json_put_fixed(&j, NULL, 1, INFINITY);
    json_put_general(&j, NULL, 9, NAN);
    json_end(&j);
    assert_text("[null,null,null,null]");
}

TEST(texts_are_escaped_and_bytes_beyond_ascii_stay)
{
    struct json_out j = begin();
    json_open(&j, NULL);
    json_put_text(&j, "a", (struct slice){"\"\\\n\r\t\b\f\0\x1f\x7f/", 11});
    json_put_string(&j, "b", "\xc3\xa9\xff");
    json_put_string(&j, "none", NULL);
    json_put_format(&j, "id", "resp_%s_%u", "\"", 7u);
    json_key(&j, SLICE("a \"key\"\n"));
    json_put_raw(&j, NULL, SLICE("[1 , 2]"));
    buf_puts(json_begin_text(&j, "seal"), "QUJD");
    json_end_text(&j);
    json_end(&j);
    assert_text(
        "{\"a\":\"\\\"\\\\\\n\\r\\t\\b\\f\\u0000\\u001f\\u007f/\",\"b\":\"\xc3\xa9\xff\",\"none\":null,"
        "\"id\":\"resp_\\\"_7\",\"a \\\"key\\\"\\n\":[1 , 2],\"seal\":\"QUJD\"}");
}

/* Eight bytes are looked at together: every byte, at every place among plain ones. */
TEST(each_byte_is_escaped_at_each_place)
{
    for (unsigned c = 0; c < 0x80; c++)
        for (size_t place = 0; place < 19; place++) {
            char plain[19];
            memset(plain, c & 1 ? '!' : '~', sizeof(plain));
            plain[place] = (char)c;
            struct json_out j = begin();
            json_put_text(&j, NULL, (struct slice){plain, sizeof(plain)});
            size_t more = c == '"' || c == '\\' || (c && strchr("\n\r\t\b\f", (int)c)) ? 1
                          : c < 0x20 || c == 0x7f                                      ? 5
                                                                                       : 0;
            assert_int_equal(text.len, 2 + sizeof(plain) + more);
            json_t *got = json_loadb(text.ptr, text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
            assert_int_equal(json_string_length(got), sizeof(plain));
            assert_memory_equal(json_string_value(got), plain, sizeof(plain));
            json_decref(got);
            buf_done(&text);
        }
}

TEST(floats_have_the_fewest_digits)
{
    struct json_out j = begin();
    json_open_array(&j, NULL);
    json_put_float(&j, NULL, 0.7f);
    json_put_float(&j, NULL, 1);
    json_put_float(&j, NULL, -0.105809905f);
    json_put_float(&j, NULL, 16777217.0f);
    json_put_float(&j, NULL, INFINITY);
    json_put_list(&j, NULL, SLICE("1,2"));
    json_put_list(&j, NULL, SLICE(""));
    json_end(&j);
    assert_text("[0.7,1,-0.105809905,16777216,null,[1,2],[]]");
}

TEST(values_of_jansson_and_many_members)
{
    json_t *value = json_loads("{\"x\":[1,2.5,\"a\",null,{}]}", 0, NULL);
    struct json_out j = begin();
    json_open(&j, NULL);
    json_put_value(&j, "v", value);
    json_put_value(&j, "none", NULL);
    JSON_PUT_U64S(&j, {"one", 1}, {"two", 2});
    JSON_PUT_STRINGS(&j, {"s", "t"}, {"u", NULL});
    json_end(&j);
    assert_text(
        "{\"v\":{\"x\":[1,2.5,\"a\",null,{}]},\"none\":null,\"one\":1,\"two\":2,\"s\":\"t\",\"u\":null}");
    j = begin();
    j.spaced = true;
    json_open(&j, NULL);
    json_put_value(&j, "v", value);
    json_put_u64(&j, "n", 1);
    json_end(&j);
    assert_text("{\"v\": {\"x\": [1, 2.5, \"a\", null, {}]}, \"n\": 1}");
    json_decref(value);
}

TEST(a_value_follows_other_text)
{
    struct json_out j = begin();
    buf_puts(&text, "data: {");
    json_put_u64(&j, NULL, 5);
    assert_text("data: {5");
}

TEST(items_gather_before_their_container)
{
    struct json_out j = begin(), all;
    struct buf out;
    j = json_out_items(&text);
    json_put_u64(&j, NULL, 1);
    j = json_out_items(&text);
    json_open(&j, NULL);
    json_put_u64(&j, "a", 2);
    json_end(&j);
    buf_init(&out, 4096, NULL);
    all = json_out(&out);
    json_open(&all, NULL);
    json_open_array(&all, "list");
    json_put_items(&all, buf_slice(&text));
    json_put_items(&all, (struct slice){0});
    json_put_items(&all, SLICE("3"));
    json_close(&all);
    json_put_items(&all, SLICE("\"b\":4"));
    json_put_u64(&all, "c", 5);
    json_end(&all);
    buf_done(&text);
    text = out;
    assert_text("{\"list\":[1,{\"a\":2},3],\"b\":4,\"c\":5}");
    j = begin();
    j = json_out_items(&text);
    json_put_u64(&j, "a", 1);
    json_put_u64(&j, "b", 2);
    assert_text("\"a\":1,\"b\":2");
}

static void nest(uint32_t depth)
{
    struct json_out j = begin();
    for (uint32_t i = 0; i < depth; i++)
        i & 1 ? json_open(&j, NULL) : json_open_array(&j, i ? "a" : NULL);
    for (uint32_t i = 1; i < depth; i++)
        json_close(&j);
    json_end(&j);
}

TEST(containers_nest_to_the_bound)
{
    nest(JSON_OUT_DEPTH_MAX);
    assert_true(text.len > JSON_OUT_DEPTH_MAX && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']');
    json_t *value = json_loadb(text.ptr, text.len, 0, NULL);
    assert_non_null(value);
    json_decref(value);
    buf_done(&text);
    assert_stops_saying(nest(JSON_OUT_DEPTH_MAX + 1), "JSON_OUT_DEPTH_MAX");
}

static struct json_out in_object(void)
{
    struct json_out j = begin();
    json_open(&j, NULL);
    return j;
}

static struct json_out in_array(void)
{
    struct json_out j = begin();
    json_open_array(&j, NULL);
    return j;
}

static struct json_out after_key(void)
{
    struct json_out j = in_object();
    json_key(&j, SLICE("a"));
    return j;
}

static struct json_out after_value(void)
{
    struct json_out j = begin();
    json_put_null(&j, NULL);
    return j;
}

TEST(what_does_not_match_stops_the_program)
{
    struct json_out j = begin();
    assert_stops(json_close(&j));
    assert_stops(json_end(&j));
    assert_stops(json_put_u64(&j, "a", 1));
    assert_stops(json_key(&j, SLICE("a")));
    j = after_value();
    assert_stops(json_put_null(&j, NULL));
    j = in_object();
    assert_stops(json_put_u64(&j, NULL, 1));
    json_open(&j, "b");
    assert_stops(json_end(&j));
    j = in_array();
    assert_stops(json_put_u64(&j, "a", 1));
    assert_stops(json_key(&j, SLICE("a")));
    j = after_key();
    assert_stops(json_close(&j));
    assert_stops(json_key(&j, SLICE("b")));
    assert_stops(json_put_u64(&j, "b", 1));
    buf_done(&text);
}

TEST(a_full_buffer_is_an_error_and_not_a_stop)
{
    struct json_out j = begin();
    buf_init(&text, 8, NULL);
    json_open(&j, NULL);
    json_put_string(&j, "key", "a long value");
    json_put_u64(&j, "n", 1);
    json_end(&j);
    assert_int_equal(text.error, -E2BIG);
    buf_done(&text);
}

/* ---- against jansson ---- */

/* Writes a value of some kind to both. */
static json_t *draw_value(struct json_out *j, const char *key, struct rng *rng, uint32_t depth)
{
    static const char *const texts[] = {"", "plain", "\"\\/\b\f\n\r\t", "\x01\x1f\x7f",
                                        "\xe6\xbc\xa2\xf0\x9f\x98\x80"};
    static const double reals[] = {0.1, -2.5, 1e-300, 12345678901234567890.0, 1.0 / 3};
    json_t *ret;
    uint64_t n = rng_next(rng);
    char name[16];
    switch (rng_next(rng) % (depth > 4 ? 6 : 8)) {
    case 0:
        json_put_null(j, key);
        return json_null();
    case 1:
        json_put_bool(j, key, n & 1);
        return json_boolean(n & 1);
    case 2:
        json_put_u64(j, key, n >> 1);
        return json_integer((json_int_t)(n >> 1));
    case 3:
        json_put_i64(j, key, (int64_t)n);
        return json_integer((json_int_t)n);
    case 4:
        json_put_real(j, key, reals[n % COUNT_OF(reals)]);
        return json_real(reals[n % COUNT_OF(reals)]);
    case 5:
        json_put_string(j, key, texts[n % COUNT_OF(texts)]);
        return json_string(texts[n % COUNT_OF(texts)]);
    case 6:
        ret = json_array();
        json_open_array(j, key);
        for (uint32_t i = 0; i < n % 4; i++)
            json_array_append_new(ret, draw_value(j, NULL, rng, depth + 1));
        json_close(j);
        return ret;
    default:
        ret = json_object();
        json_open(j, key);
        for (uint32_t i = 0; i < n % 4; i++) {
            snprintf(name, sizeof(name), "%u%s", i, i & 1 ? "\"\n" : "");
            if (i & 1)
                json_key(j, slice_of(name));
            json_object_set_new(ret, name, draw_value(j, i & 1 ? NULL : name, rng, depth + 1));
        }
        json_close(j);
        return ret;
    }
}

PROPERTY(jansson_reads_what_was_written, seed)
{
    struct rng rng = {seed, 0};
    struct json_out j = begin();
    json_t *want = draw_value(&j, NULL, &rng, 0);
    json_t *got = json_loadb(text.ptr, text.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(text.error, 0);
    assert_true(got && json_equal(got, want));
    json_decref(want);
    json_decref(got);
    buf_done(&text);
}

TEST_MAIN()
