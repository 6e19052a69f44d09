/* Classes and normalisation forms. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "unicode/unicode.h"
#include "unicode/unicode_normal.h"
#include "unicode/utf8.h"

#include <errno.h>
#include <string.h>
#include <utf8proc.h>

static struct arena *arena_of(size_t bytes)
{
    struct arena *a;
    struct arena_opts opts = {.bytes_max = bytes};
    assert_int_equal(arena_create(&opts, &a), 0);
    return a;
}

static void assert_nfc(const char *in, const char *want)
{
    struct arena *a = arena_of(1 << 20);
    struct slice out;
    assert_int_equal(unicode_normal(a, slice_of(in), UNICODE_NFC, NULL, &out), 0);
    if (!slice_eq(out, slice_of(want)))
        fail_msg("NFC of \"%s\" is \"%.*s\", not \"%s\"", in, SLICE_ARGS(out), want);
    arena_free(a);
}

TEST(classes_are_those_of_unicode_16)
{
    /* Counted with the regex engine of the tokenizers library. */
    size_t letters = 0, marks = 0, numbers = 0, spaces = 0;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        enum unicode_class class = unicode_class(code);
        letters += class == UNICODE_LETTER;
        marks += class == UNICODE_MARK;
        numbers += class == UNICODE_NUMBER;
        spaces += class == UNICODE_SPACE;
    }
    assert_int_equal(letters, 141028);
    assert_int_equal(marks, 2501);
    assert_int_equal(numbers, 1911);
    assert_int_equal(spaces, 25);
    assert_int_equal(unicode_class(0x200B), UNICODE_OTHER);
    assert_int_equal(unicode_class(0x110000), UNICODE_OTHER);
    assert_int_equal(unicode_class(UINT32_MAX), UNICODE_OTHER);
}

TEST(words_are_made_of_letters_marks_digits_and_connectors)
{
    static const uint32_t words[] = {'a',    '5',    '_',    0xE9,   0x301,  0x663,
                                     0x2160, 0x203F, 0x200D, 0x24B6, 0x1CCF0};
    static const uint32_t others[] = {' ', '-', '\'', 0xB2, 0xBD, 0x2028, 0x378, 0x1F600, 0x110000};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        assert_true(unicode_is_word(words[i]));
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(unicode_is_word(others[i]));
}

TEST(text_in_form_c_is_not_copied)
{
    struct arena *a = arena_of(1 << 16);
    size_t mark = arena_mark(a);
    struct slice text = SLICE("plain, caf\u00e9, \u4e2d\u6587, \U0001f600"), out;
    assert_int_equal(unicode_normal(a, text, UNICODE_NFC, NULL, &out), 0);
    assert_true(out.ptr == text.ptr && out.len == text.len && arena_mark(a) == mark);
    arena_free(a);
}

TEST(form_c_composes_orders_and_excludes)
{
    assert_nfc("", "");
    assert_nfc("cafe\u0301!", "caf\u00e9!");
    assert_nfc("s\u0307\u0323", "\u1e69");
    assert_nfc("a\u0315\u0300\u05ae\u0300b", "\u00e0\u05ae\u0300\u0315b");
    assert_nfc("\u212b", "\u00c5");
    assert_nfc("\u0958", "\u0915\u093c");
    assert_nfc("\u1100\u1161\u11a8", "\uac01");
    assert_nfc("\uac00\u11a8", "\uac01");
    assert_nfc("x\u1100", "x\u1100");
    assert_nfc("\u0344", "\u0308\u0301");
    assert_nfc("\u304b\u3099", "\u304c");
    /* Younger than Unicode 9: neither ordered nor composed, as in the tokenizers library. */
    assert_nfc("\u0898\u0334", "\u0898\u0334");
    assert_nfc("\U00011935\U00011930", "\U00011935\U00011930");
}

TEST(compatible_forms_replace_characters)
{
    struct arena *a = arena_of(1 << 20);
    struct slice out, text = SLICE("\ufb01\u2460 \u1e9b\u0323 \uff76\uff9e \ufdfa\u0323");
    assert_int_equal(unicode_normal(a, text, UNICODE_NFKC, NULL, &out), 0);
    assert_true(slice_starts(out, SLICE("fi1 \u1e69 \u30ac \u0635\u0644")));
    assert_int_equal(unicode_normal(a, text, UNICODE_NFKD, NULL, &out), 0);
    assert_true(slice_starts(out, SLICE("fi1 s\u0323\u0307 \u30ab\u3099 \u0635\u0644")));
    /* Younger than Unicode 9. */
    text = SLICE("\u32ff\U0001e030\U0001fbf0");
    assert_int_equal(unicode_normal(a, text, UNICODE_NFKC, NULL, &out), 0);
    assert_true(out.ptr == text.ptr && out.len == text.len);
    arena_free(a);
}

/* Against utf8proc's own normaliser, on characters whose properties did not change since Unicode 9. */
PROPERTY(forms_equal_utf8procs, seed)
{
    static const uint32_t first[] = {0x61,   0xA0,   0xC0,   0x300,  0x591,   0x915,  0x9BE,
                                     0xE31,  0x1100, 0x1161, 0x11A7, 0x1E00,  0x1E9A, 0x1F00,
                                     0x2460, 0x3046, 0x3099, 0x3300, 0xAC00,  0xFB01, 0xFB1D,
                                     0xFDF2, 0xFF70, 0xFF9A, 0xFFC0, 0x1D15E, 0x1D400};
    utf8proc_uint8_t *(*const forms[])(const utf8proc_uint8_t *) = {
        [UNICODE_NFC] = utf8proc_NFC,
        [UNICODE_NFD] = utf8proc_NFD,
        [UNICODE_NFKC] = utf8proc_NFKC,
        [UNICODE_NFKD] = utf8proc_NFKD,
    };
    struct rng rng = {seed, 0};
    char text[256];
    size_t len = 0;
    while (len + UTF8_BYTES_MAX < sizeof(text))
        len +=
            utf8_encode(first[rng_below(&rng, COUNT_OF(first))] + (uint32_t)rng_below(&rng, 20), text + len);
    text[len] = 0;
    struct arena *a = arena_of(1 << 20);
    for (enum unicode_form form = UNICODE_NFC; form <= UNICODE_NFKD; form++) {
        struct slice out;
        assert_int_equal(unicode_normal(a, (struct slice){text, len}, form, NULL, &out), 0);
        utf8proc_uint8_t *want = forms[form]((const utf8proc_uint8_t *)text);
        assert_non_null(want);
        assert_int_equal(out.len, strlen((const char *)want));
        assert_memory_equal(out.ptr, want, out.len);
        free(want);
    }
    arena_free(a);
}

TEST(a_mark_joins_the_last_letter_of_a_long_run)
{
    struct arena *a = arena_of(1 << 20);
    for (size_t letters = 1; letters < 40; letters++) {
        char text[64], want[64];
        struct slice out;
        memset(text, 'e', letters);
        memcpy(want, text, letters);
        memcpy(text + letters, "\u0301xyzxyzxyz", 11);
        memcpy(want + letters - 1, "\u00e9xyzxyzxyz", 11);
        assert_int_equal(unicode_normal(a, (struct slice){text, letters + 11}, UNICODE_NFC, NULL, &out), 0);
        assert_int_equal(out.len, letters + 10);
        assert_memory_equal(out.ptr, want, letters + 10);
    }
    arena_free(a);
}

TEST(a_long_run_of_marks_takes_linear_time)
{
    /* Ordering this by exchanging neighbours would take 10^11 steps: the test's time limit is the
     * assertion. */
    enum { MARKS = 600000 };
    struct arena *a = arena_of((size_t)64 << 20);
    char *text = malloc(2 * MARKS);
    assert_non_null(text);
    for (size_t i = 0; i < MARKS; i++)
        utf8_encode(i < MARKS / 2 ? 0x301 : 0x323, text + 2 * i);
    struct slice out;
    for (enum unicode_form form = UNICODE_NFC; form <= UNICODE_NFKD; form++) {
        size_t mark = arena_mark(a);
        assert_int_equal(unicode_normal(a, (struct slice){text, 2 * MARKS}, form, NULL, &out), 0);
        assert_int_equal(out.len, 2 * MARKS);
        assert_memory_equal(out.ptr, "\u0323\u0323", 4);
        assert_memory_equal(out.ptr + out.len - 4, "\u0301\u0301", 4);
        arena_rewind(a, mark);
    }
    free(text);
    arena_free(a);
}

TEST(no_room_is_an_error_and_leaves_the_arena_alone)
{
    char text[65536];
    for (size_t i = 0; i < sizeof(text); i += 2)
        utf8_encode(0x301, text + i);
    struct arena *a = arena_of(1 << 16);
    size_t mark = arena_mark(a);
    struct slice out;
    assert_int_equal(unicode_normal(a, (struct slice){text, sizeof(text)}, UNICODE_NFC, NULL, &out), -ENOMEM);
    assert_int_equal(arena_mark(a), mark);
    arena_free(a);
}

TEST_MAIN()
