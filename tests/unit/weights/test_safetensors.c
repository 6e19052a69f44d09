/* One safetensors file: accepted forms, and every way in which it can be wrong. */
#include "test_rng.h"
#include "test.h"

#include "weights/json_scan.h"
#include "weights/safetensors.h"

#include "base/check.h"
#include "tensor/tensor.h"

#include <errno.h>

struct seen {
    int count, stop_at;
    char names[8][64];
    struct tensor tensors[8];
};

static int see(void *arg, struct slice name, const struct tensor *t)
{
    struct seen *s = arg;
    if (s->stop_at && s->count + 1 == s->stop_at)
        return -ECANCELED;
    assert_true(s->count < 8);
    snprintf(s->names[s->count], sizeof(s->names[0]), "%.*s", SLICE_ARGS(name));
    s->tensors[s->count++] = *t;
    return 0;
}

/* A file of this header and `data_bytes` counted-up bytes, at an odd address, in memory of exactly its
 * size. */
static int parse(const char *header, size_t data_bytes, struct seen *seen, struct err *e)
{
    size_t n = strlen(header), len = 8 + n + data_bytes;
    char *memory = malloc(len + 1), *file = memory + 1;
    uint64_t header_bytes = n;
    assert_non_null(memory);
    memcpy(file, &header_bytes, 8);
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + n + i] = (char)i;
    int r = safetensors_parse((struct slice){file, len}, len, see, seen, e);
    for (int i = 0; i < seen->count; i++) {
        const struct tensor *t = &seen->tensors[i];
        assert_null(t->data);
        assert_true(t->offset >= 8 + n && t->offset + t->bytes <= len);
    }
    free(memory);
    return r;
}

static void refuses(const char *header, size_t data_bytes, int code, const char *says)
{
    struct seen seen = {0};
    struct err e = {{0}};
    int r = parse(header, data_bytes, &seen, &e);
    if (r != code || !strstr(e.text, says))
        print_message("%s\ngave %d: %s\n", header, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
}

TEST(tensors_come_in_file_order_with_shape_and_place)
{
    struct seen seen = {0};
    struct err e = {{0}};
    int r = parse("{\"__metadata__\":{\"format\":\"pt\",\"a\":\"\\u00e4 \\\"\"}, \"b\" : "
                  "{\"dtype\":\"BF16\",\"shape\":[2, 3],"
                  "\"data_offsets\":[4, 16]},\n\"a\":{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"},"
                  "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[16,16]}}   ",
                  16, &seen, &e);
    assert_string_equal(e.text, "");
    assert_int_equal(r, 0);
    assert_int_equal(seen.count, 3);
    assert_string_equal(seen.names[0], "b");
    assert_int_equal(seen.tensors[0].dtype, DTYPE_BF16);
    assert_int_equal(seen.tensors[0].rank, 2);
    assert_int_equal(seen.tensors[0].shape[1], 3);
    assert_int_equal(seen.tensors[0].bytes, 12);
    assert_string_equal(seen.names[1], "a");
    assert_int_equal(seen.tensors[1].rank, 0);
    assert_int_equal(seen.tensors[0].offset, seen.tensors[1].offset + 4);
    assert_int_equal(seen.tensors[2].bytes, 0);
}

TEST(an_empty_header_is_a_file_without_tensors)
{
    struct seen seen = {0};
    assert_int_equal(parse("{}", 0, &seen, NULL), 0);
    assert_int_equal(parse("{\"__metadata__\":{}}", 0, &seen, NULL), 0);
    assert_int_equal(seen.count, 0);
}

TEST(the_visitor_can_stop)
{
    struct seen seen = {.stop_at = 2};
    assert_int_equal(parse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                           "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                           2, &seen, NULL),
                     -ECANCELED);
    assert_int_equal(seen.count, 1);
}

TEST(too_short_or_too_long_a_header_is_refused)
{
    struct seen seen = {0};
    struct err e = {{0}};
    char bytes[16] = {0};
    for (size_t len = 0; len < 8; len++)
        assert_int_equal(safetensors_parse((struct slice){bytes, len}, len, see, &seen, &e), -EINVAL);
    uint64_t n = 9;
    memcpy(bytes, &n, 8);
    assert_int_equal(safetensors_parse((struct slice){bytes, 16}, 16, see, &seen, &e), -EINVAL);
    assert_non_null(strstr(e.text, "longer than the file"));
    n = UINT64_MAX;
    memcpy(bytes, &n, 8);
    assert_int_equal(safetensors_parse((struct slice){bytes, 16}, 16, see, &seen, &e), -EINVAL);
    assert_non_null(strstr(e.text, "over the limit of 100000000"));
    /* Less of it was read than it says: it said less before. */
    n = 9;
    memcpy(bytes, &n, 8);
    assert_int_equal(safetensors_parse((struct slice){bytes, 16}, 17, see, &seen, &e), -ESTALE);
    refuses("", 4, -EINVAL, "does not begin with '{'");
    refuses(" {}", 4, -EINVAL, "does not begin with '{'");
}

#define ENTRY(dtype, shape, offsets)                                                                         \
    "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

TEST(offsets_lie_inside_and_agree_with_the_shape)
{
    refuses(ENTRY("\"F32\"", "[2]", "[0,8]"), 7, -EINVAL,
            "tensor x: data_offsets [0, 8] do not lie in the 7 bytes");
    refuses(ENTRY("\"F32\"", "[2]", "[8,0]"), 8, -EINVAL, "do not lie");
    refuses(ENTRY("\"F32\"", "[2]", "[0,4]"), 8, -EINVAL, "F32 [2] does not take the 4 bytes");
    refuses(ENTRY("\"F32\"", "[]", "[0,0]"), 8, -EINVAL, "does not take the 0 bytes");
    refuses(ENTRY("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, -EINVAL, "does not take");
    refuses(ENTRY("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, -EINVAL, "does not take");
    refuses(ENTRY("\"F32\"", "[1]", "[9223372036854775804,9223372036854775807]"), 8, -EINVAL, "do not lie");
    refuses(ENTRY("\"F32\"", "[1]", "[0,4,8]"), 8, -EINVAL, "two numbers");
    refuses(ENTRY("\"F32\"", "[1]", "[4]"), 8, -EINVAL, "two numbers");
    refuses(ENTRY("\"F32\"", "[1]", "[0,-4]"), 8, -EINVAL, "non-negative integer");
    refuses(ENTRY("\"F32\"", "[1.0]", "[0,4]"), 8, -EINVAL, "at byte");
    refuses(ENTRY("\"F32\"", "[1,1,1,1,1,1,1]", "[0,4]"), 8, -EINVAL, "more than 6 dimensions");
    refuses(ENTRY("\"F4\"", "[8]", "[0,4]"), 8, -ENOTSUP, "dtype F4 is not known");
}

TEST(an_entry_has_its_three_keys_once)
{
    const char *says = "must have dtype, shape and data_offsets, once each";
    refuses("{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, -EINVAL, says);
    refuses("{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, -EINVAL,
            says);
    refuses("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, -EINVAL, says);
    refuses("{\"x\":{}}", 1, -EINVAL, says);
    refuses("{\"x\":[]}", 1, -EINVAL, "expected '{'");
    refuses("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, -EINVAL,
            "empty or longer than 512");
}

TEST(what_is_not_json_is_refused)
{
    static const char *const headers[] = {
        "{",
        "{\"x\"",
        "{\"x\":",
        "{,}",
        "{\"x\":{\"dtype\":\"U8}}",
        "{} {",
        "{]",
        "{\"x\" {}}",
        "{x:{}}",
        "{}x",
        "{\"__metadata__\":}",
        "{\"__metadata__\":{]}}",
        "{\"a\\u0000\":{}}",
        "{\"a\nb\":{}}",
    };
    for (size_t i = 0; i < COUNT_OF(headers); i++)
        refuses(headers[i], 0, -EINVAL, "header is not valid");
}

TEST(a_deep_value_is_refused_without_recursion)
{
    char header[4096] = "{\"__metadata__\":";
    size_t at = strlen(header);
    memset(header + at, '[', 2000);
    memset(header + at + 2000, ']', 2000);
    header[at + 4000] = '}';
    refuses(header, 0, -EINVAL, "nested deeper than 32");
}

/* Every prefix and every changed byte of a good file either parses or is refused; the views stay inside
 * (checked in parse and by the sanitizers). */
PROPERTY(damage_is_never_followed_outside, seed)
{
    struct rng rng = {seed, 0};
    char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},"
                    "\"bb\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[16,21]}}";
    for (int i = 0; i < 100; i++) {
        char damaged[sizeof(header)];
        struct seen seen = {0};
        memcpy(damaged, header, sizeof(header));
        for (uint64_t n = 1 + rng_below(&rng, 3); n > 0; n--) {
            size_t at = (size_t)rng_below(&rng, sizeof(header) - 1);
            damaged[at] = "0123456789{}[],:\"x"[rng_below(&rng, 18)];
        }
        parse(damaged, (size_t)rng_below(&rng, 24), &seen, NULL);
    }
}

TEST(the_scanner_reads_flat_json)
{
    struct json_scan s = {.text = SLICE(" {\"a\" : 12, \"b\":[1 ,2], \"c\":{\"d\":\"}\"}, \"e\": null} ")};
    struct slice key;
    bool first = true, inner = true;
    uint64_t n = 0;
    assert_true(json_scan_open(&s, '{'));
    assert_true(json_scan_key(&s, &first, &key) && slice_eq(key, SLICE("a")) && json_scan_u64(&s, &n) &&
                n == 12);
    assert_true(json_scan_key(&s, &first, &key) && json_scan_open(&s, '['));
    assert_true(json_scan_element(&s, &inner) && json_scan_u64(&s, &n) && n == 1);
    assert_true(json_scan_element(&s, &inner) && json_scan_u64(&s, &n) && n == 2);
    assert_false(json_scan_element(&s, &inner));
    assert_true(json_scan_key(&s, &first, &key) && json_scan_skip(&s));
    assert_true(json_scan_key(&s, &first, &key) && slice_eq(key, SLICE("e")) && json_scan_skip(&s));
    assert_false(json_scan_key(&s, &first, &key));
    assert_null(s.error);
    assert_true(json_scan_end(&s));
}

TEST(the_first_error_of_a_scan_sticks)
{
    struct slice name = SLICE("untouched");
    struct json_scan s = {.text = SLICE("\"open")};
    bool first = true;
    uint64_t n = 7;
    assert_false(json_scan_string(&s, &name));
    const char *error = s.error;
    assert_non_null(error);
    s.text = SLICE("\"a\": 1, [2]}");
    s.at = 0;
    assert_false(json_scan_string(&s, &name));
    assert_false(json_scan_u64(&s, &n));
    assert_false(json_scan_key(&s, &first, &name));
    assert_false(json_scan_element(&s, &first));
    assert_false(json_scan_open(&s, '{'));
    assert_false(json_scan_skip(&s));
    assert_false(json_scan_end(&s));
    assert_true(slice_eq(name, SLICE("untouched")) && n == 7 && first && s.error == error);
}

TEST_MAIN()
