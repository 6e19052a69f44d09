/* Data URLs: bytes, skipped characters, refusals and their messages. */
#include "test_rng.h"
#include "vision/data_url.h"
#include "base/check.h"
#include "test.h"

#include <errno.h>

static int decoded(const char *url, char *to, size_t *len, struct err *e)
{
    struct data_url u;
    int r = data_url_parse(slice_of(url), &u, e);
    if (r < 0)
        return r;
    assert_true(u.bytes_max >= u.base64.len * 3 / 4);
    return data_url_decode(&u, (uint8_t *)to, len, e);
}

static void gives(const char *url, const char *expected)
{
    char bytes[256];
    size_t len = 0;
    struct err e = {{0}};
    if (decoded(url, bytes, &len, &e) < 0)
        fail_msg("%s: %s", url, e.text);
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(bytes, expected, len);
}

static void refuses(const char *url, const char *words)
{
    char bytes[256];
    size_t len = 77;
    struct err e = {{0}};
    assert_int_equal(decoded(url, bytes, &len, &e), -EINVAL);
    assert_int_equal(len, 77);
    if (!strstr(e.text, words))
        fail_msg("%s: %s", url, e.text);
}

TEST(bytes_come_out)
{
    gives("data:image/png;base64,", "");
    gives("data:;base64,TQ==", "M");
    gives("data:;base64,TWE=", "Ma");
    gives("data:;base64,TWFu", "Man");
    gives("data:image/png;base64,aGVsbG8gd29ybGQ=", "hello world");
    gives("DATA:Image/PNG;charset=utf-8;name=\"x\";BASE64,aGk/", "hi?");
    gives("data:;base64,fn5+", "~~~");
}

TEST(padding_may_be_left_off_and_lines_may_break)
{
    gives("data:;base64,TQ", "M");
    gives("data:;base64,TWE", "Ma");
    gives("data:;base64,TWFu\r\nTWFu\r\n", "ManMan");
    gives("data:;base64, T W F\tu", "Man");
    gives("data:;base64,TQ=\n=", "M");
}

static void counts(const char *url, size_t bytes)
{
    struct data_url u;
    assert_int_equal(data_url_parse(slice_of(url), &u, NULL), 0);
    assert_int_equal(data_url_bytes(&u), bytes);
}

TEST(bytes_are_counted_without_what_is_none)
{
    counts("data:;base64,", 0);
    counts("data:;base64,TQ==", 1);
    counts("data:;base64,TQ", 1);
    counts("data:;base64,TWE=", 2);
    counts("data:;base64,TWFu", 3);
    counts("data:;base64,TW\r\nFuTQ \n==", 4);
}

TEST(the_type_is_handed_back)
{
    struct data_url u;
    assert_int_equal(data_url_parse(SLICE("data:image/png;a=b;base64,AAAA"), &u, NULL), 0);
    assert_true(slice_eq(u.type, SLICE("image/png")));
    assert_true(slice_eq(u.base64, SLICE("AAAA")));
    assert_int_equal(data_url_parse(SLICE("data:;base64,"), &u, NULL), 0);
    assert_int_equal(u.type.len, 0);
}

TEST(what_is_none_is_refused)
{
    refuses("", "not a data: URL");
    refuses("http://x/y.png", "not a data: URL");
    refuses("data", "not a data: URL");
    refuses("data:image/png;base64", "no comma");
    refuses("data:image/png,%89PNG", "percent-escapes");
    refuses("data:image/png;base64x,AAAA", "not in base64");
    refuses("data:base64,AAAA", "not in base64");
    refuses("data:;base64,AA%2B", "character 3");
    refuses("data:;base64,ab-_", "character 3");
    refuses("data:;base64,AAAA\x01", "character 5");
    refuses("data:;base64,A", "bytes are missing");
    refuses("data:;base64,AAAAA", "bytes are missing");
    refuses("data:;base64,AA=", "bytes are missing");
    refuses("data:;base64,AAA==", "bytes are missing");
    refuses("data:;base64,AAAA=", "bytes are missing");
    refuses("data:;base64,AA==AAAA", "character 5");
    refuses("data:;base64,AB==", "bits of a byte");
    refuses("data:;base64,AAB=", "bits of a byte");
}

TEST(a_long_head_is_refused)
{
    char url[DATA_URL_HEAD_MAX + 64];
    memset(url, 'x', sizeof(url));
    memcpy(url, "data:", 5);
    memcpy(url + sizeof(url) - 10, ";base64,", 9);
    refuses(url, "no comma within");
}

PROPERTY(in_place_gives_what_was_encoded, seed)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct rng rng = {seed, 0};
    uint8_t bytes[300];
    char url[600] = "data:;base64,";
    size_t len = rng_below(&rng, sizeof(bytes)), at = strlen(url);
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)rng_next(&rng);
    for (size_t i = 0; i < len; i += 3) {
        uint32_t v = 0;
        for (size_t j = 0; j < 3; j++)
            v = v << 8 | (i + j < len ? bytes[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            url[at++] = i + j <= len ? digits[v >> (18 - 6 * j) & 63] : '=';
        if (rng_below(&rng, 20) == 0)
            url[at++] = '\n';
    }
    struct data_url u;
    size_t found = 0;
    assert_int_equal(data_url_parse((struct slice){url, at}, &u, NULL), 0);
    assert_int_equal(data_url_decode(&u, (uint8_t *)url + (u.base64.ptr - url), &found, NULL), 0);
    assert_int_equal(found, len);
    assert_memory_equal(u.base64.ptr, bytes, len);
}

TEST_MAIN()
