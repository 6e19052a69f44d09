/* The hand-written rules against the regular expressions themselves, run by pcre2. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "tokenizer/pretok.h"
#include "unicode/unicode.h"
#include "unicode/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

static const enum pretok_rule rules[] = {PRETOK_QWEN2, PRETOK_QWEN3_5, PRETOK_LLAMA3};

static pcre2_code *regex_of(enum pretok_rule rule)
{
    int error;
    size_t at;
    struct slice regex = pretok_rule_regex(rule);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)regex.ptr, regex.len, PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    assert_non_null(code);
    return code;
}

static void assert_splits_as_regex(enum pretok_rule rule, const pcre2_code *code, struct slice text)
{
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    for (size_t from = 0, end; from < text.len; from = end) {
        end = pretok_end(rule, text, from, NULL);
        int r = pcre2_match(code, (PCRE2_SPTR)text.ptr, text.len, from, 0, match, NULL);
        assert_true(r > 0);
        const size_t *found = pcre2_get_ovector_pointer(match);
        assert_int_equal(found[0], from);
        if (found[1] != end)
            fail_msg("rule %d, byte %zu of \"%.*s\": the piece ends at %zu, the regex says %zu", (int)rule,
                     from, SLICE_ARGS(text), end, found[1]);
    }
    pcre2_match_data_free(match);
}

TEST(a_rule_is_found_by_its_exact_regex)
{
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        enum pretok_rule rule;
        struct slice regex = pretok_rule_regex(rules[i]);
        assert_true(pretok_rule_find(regex, &rule) && rule == rules[i]);
        assert_false(pretok_rule_find(slice_sub(regex, 0, regex.len - 1), &rule));
    }
    assert_true(slice_ends(pretok_rule_regex(PRETOK_QWEN2), SLICE("|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")));
}

PROPERTY(pieces_are_those_of_the_regex, seed)
{
    /* Characters whose class no Unicode version changed, and on which pcre2's \s agrees (it lacks none of
     * ours but has U+180E in some versions). */
    static const char *const parts[] = {
        " ",          " ",      "  ",       "\t",      "\n",     "\r\n",   "\r",     "\u00a0",
        "\u3000",     "\u2028", "\xC2\x85", "\v",      "'",      "'",      "'s",     "'S",
        "'ll",        "'Re",    "'vE",      "'\u017f", "'m",     "'x",     "l",      "e",
        "a",          "Z",      "the",      "\u00e9",  "\u0301", "\u4e2d", "\u0939", "\u093f",
        "1",          "23",     "456",      "\u0663",  "\u00b2", "!",      "?.",     "_",
        "\U0001f600", "\u200d", "\u20dd",   "\u0378",  "\ue000", "-",      "<",      "\""};
    struct rng rng = {seed, 0};
    for (size_t i = 0; i < COUNT_OF(rules); i++) {
        pcre2_code *code = regex_of(rules[i]);
        for (unsigned round = 0; round < 100; round++) {
            char text[256];
            struct slice s = {text, 0};
            for (size_t n = rng_below(&rng, 24); n > 0; n--) {
                const char *part = parts[rng_below(&rng, COUNT_OF(parts))];
                memcpy(text + s.len, part, strlen(part));
                s.len += strlen(part);
            }
            assert_splits_as_regex(rules[i], code, s);
        }
        pcre2_code_free(code);
    }
}

TEST_MAIN()
