/* UTF-8: valid text, replacements, and characters that need more bytes. */
#include "test_rng.h"
#include "test.h"

#include "base/buf.h"
#include "base/check.h"
#include "unicode/utf8.h"

#include <string.h>

static void assert_lossy(const char *in, const char *want)
{
    struct buf out;
    buf_init(&out, 4096, NULL);
    utf8_put_lossy(&out, slice_of(in));
    assert_int_equal(out.error, 0);
    assert_int_equal(out.len, strlen(want));
    assert_memory_equal(out.ptr, want, out.len);
    buf_done(&out);
}

TEST(every_code_point_goes_out_and_back)
{
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        char bytes[UTF8_BYTES_MAX];
        uint32_t next = 0, previous = 0;
        struct slice s = {bytes, utf8_encode(code, bytes)};
        struct utf8_char c = utf8_at(s, 0);
        assert_true(c.valid && c.code == code && c.bytes == s.len && utf8_valid(s));
        assert_true(utf8_next(bytes, &next) == s.len && next == code);
        assert_true(utf8_previous(bytes, s.len, &previous) == s.len && previous == code);
        for (size_t cut = 1; cut < s.len; cut++) {
            c = utf8_at(slice_sub(s, 0, cut), 0);
            assert_true(!c.valid && c.truncated && c.bytes == cut);
        }
    }
}

TEST(overlong_surrogate_and_too_large_are_broken)
{
    static const char *const broken[] = {
        "\xC0\x80",         "\xC1\xBF",         "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80",         "\xFF"};
    for (size_t i = 0; i < COUNT_OF(broken); i++) {
        struct utf8_char c = utf8_at(slice_of(broken[i]), 0);
        assert_true(!c.valid && !c.truncated && c.bytes == 1);
        assert_int_equal(utf8_valid_bytes(slice_of(broken[i])), 0);
    }
    assert_int_equal(utf8_valid_bytes(SLICE("0123456789abcdef\xC3\xA9\xC3")), 18);
}

/* Expectations equal Rust's String::from_utf8_lossy. */
TEST(every_broken_part_becomes_one_replacement)
{
    assert_lossy("", "");
    assert_lossy("plain \xC3\xA9", "plain \xC3\xA9");
    assert_lossy("a\x80z", "a" UTF8_REPLACEMENT "z");
    assert_lossy("\xF0\x9F\x98z", UTF8_REPLACEMENT "z");
    assert_lossy("\xE2\x82", UTF8_REPLACEMENT);
    assert_lossy("\xED\xA0\x80", UTF8_REPLACEMENT UTF8_REPLACEMENT UTF8_REPLACEMENT);
    assert_lossy("\xF0\x9F\xF0\x9F\x98\x80", UTF8_REPLACEMENT "\xF0\x9F\x98\x80");
    assert_lossy("\xE0\x80\x80", UTF8_REPLACEMENT UTF8_REPLACEMENT UTF8_REPLACEMENT);
}

PROPERTY(lossy_text_is_valid_and_split_anywhere_the_same, seed)
{
    static const unsigned char alphabet[] = {'a',  0x80, 0x9F, 0xA0, 0xBF, 0xC3,
                                             0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF};
    struct rng rng = {seed, 0};
    char bytes[40], rest[3 + sizeof(bytes)];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)alphabet[rng_below(&rng, sizeof(alphabet))];
    struct buf whole, parts;
    buf_init(&whole, 4096, NULL);
    buf_init(&parts, 4096, NULL);
    struct slice s = {bytes, sizeof(bytes)};
    utf8_put_lossy(&whole, s);
    assert_true(utf8_valid(buf_slice(&whole)));

    size_t cut = rng_below(&rng, sizeof(bytes) + 1);
    size_t held = utf8_put_decided(&parts, slice_sub(s, 0, cut));
    assert_true(held <= 3 && utf8_valid(buf_slice(&parts)));
    memcpy(rest, bytes + cut - held, sizeof(bytes) - cut + held);
    utf8_put_lossy(&parts, (struct slice){rest, sizeof(bytes) - cut + held});
    assert_true(slice_eq(buf_slice(&whole), buf_slice(&parts)));
    buf_done(&whole);
    buf_done(&parts);
}

TEST_MAIN()
