/* Searches that go back and forth end with their budget; searches of patterns in use never need it. */
#include "test.h"

#include "base/check.h"
#include "tokenizer/split_regex.h"
#include "unicode/utf8.h"

#include <errno.h>

static const char *const backtracking[] = {
    "\\w*\\w*\\w*\\w*!|\\s+",
    "\\w*\\w*\\w*\\w*\\w*\\w*\\w*\\w*!|\\s+",
    "[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?["
    "a-z]?[a-z]?"
    "[a-z]?[a-z]?[a-z]?[a-z]?[a-z]?!|\\s+",
    "\\w{1,50}\\w{1,50}\\w{1,50}\\w{1,50}!|\\s+",
    "(?=\\w*\\w*\\w*\\w*!)\\w+|\\s+",
    "(?!\\w*\\w*\\w*\\w*!)[^!]+|\\s+",
    "(?:\\w*|\\d*)(?:\\w*|\\d*)(?:\\w*|\\d*)(?:\\w*|\\d*)(?:\\w*|\\d*)!|\\s+",
    "(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?(?"
    ":a)?(?:a)?"
    "(?:a)?(?:a)?(?:a)?(?:a)?(?:a)?!|\\s+",
    "(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w)"
    ")"
    "(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))(?:a|(?:a|\\w))!|\\s+",
};

#define WORD "[^\\r\\n\\p{L}\\p{N}]?"
#define REST "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char *const in_use[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" WORD "\\p{L}+|" REST,
    WORD
    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" WORD
    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|" REST,
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+"
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[\\p{Han}]+|" WORD
    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+|" WORD
    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*|" REST,
    WORD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|" REST,
};

/* Groups that repeat, and where the parts of a text end. */
static const struct {
    const char *pattern, *text;
    size_t ends[8]; /* 0: no more */
} repeating[] = {
    {"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 89", {1, 4, 7, 10}},
    {"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567x", {0}},
    {"(?:ab|cd)*ab", "abcdab cdcd ab", {6, 14}},
    {"(?:ab){2,3}a|b", "ababa abab ababababa", {5, 8, 10, 18, 19}},
    {"x(?:a|bc*)*|y", "xabccay", {6, 7}},
    {"x(?:(?:a| a)*b)*|y", "xa ababaay", {0}},
    {"(?:a*)+b|c", "c", {0}}, /* refused: rounds of several lengths in front of others */
    {"a(?:b?)*|c", "abbc", {3, 4}},
    {"\\bxy\\b|z",
     "xyxy xy \xce\xb1"
     "xy z",
     {7, 14}},
    {"(?:\xce\xb1\xce\xb2)*\xce\xb1"
     "c",
     "\xce\xb1\xce\xb2\xce\xb1\xce\xb2\xce\xb1"
     "c",
     {11}},
};

static struct split_regex *compile(struct arena *a, const char *pattern)
{
    struct err e = {{0}};
    struct split_regex *r = NULL;
    if (split_regex_compile(a, slice_of(pattern), &r, &e) < 0)
        fail_msg("%s: %s", pattern, e.text);
    return r;
}

/* Finds all matches. 0, or the error that ended the search; *taken: its steps. */
static int search(const struct split_regex *r, struct slice text, struct split_budget *b, uint64_t *taken)
{
    struct split_match m = {0};
    uint64_t all = b->steps + b->look;
    const struct split_text in = {text, false, b};
    for (size_t from = 0; m.error == 0 && from < text.len; from = m.end) {
        m = split_regex_find(r, &in, from);
        if (m.error == 0 && m.start == m.end)
            break;
    }
    *taken = all - b->steps - b->look;
    return m.error;
}

static struct slice repeated(const char *part, size_t bytes)
{
    size_t len = strlen(part);
    char *text = malloc(bytes + len);
    assert_non_null(text);
    for (size_t at = 0; at < bytes; at += len)
        memcpy(text + at, part, len);
    return (struct slice){text, bytes - bytes % len};
}

TEST(a_search_that_goes_back_ends_with_its_budget)
{
    struct arena *a;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    for (size_t i = 0; i < COUNT_OF(backtracking); i++) {
        struct split_regex *r = compile(a, backtracking[i]);
        assert_true(slice_starts(slice_of(backtracking[i]), split_regex_source(r)));
        for (size_t bytes = 300; bytes <= 30000; bytes *= 10) {
            struct slice text = repeated("a", bytes);
            struct split_budget b;
            uint64_t taken;
            split_budget_init(&b, NULL);
            split_budget_add(&b, r, bytes);
            uint64_t most = b.steps;
            assert_true(most < 70000 + 256 * bytes);
            if (search(r, text, &b, &taken) != -ELOOP)
                fail_msg("%s: took %llu of %llu steps", backtracking[i], (unsigned long long)taken,
                         (unsigned long long)most);
            assert_ptr_equal(b.over, r);
            assert_int_equal(taken, most);
            free((char *)text.ptr);
        }
    }
    arena_free(a);
}

TEST(groups_repeat_as_in_an_engine_that_goes_back)
{
    struct arena *a;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    for (size_t i = 0; i < COUNT_OF(repeating); i++) {
        struct split_regex *r = NULL;
        struct err e = {{0}};
        struct split_budget b;
        if (split_regex_compile(a, slice_of(repeating[i].pattern), &r, &e) < 0) {
            assert_non_null(strstr(e.text, "a group that repeats"));
            assert_int_equal(repeating[i].ends[0], 0);
            continue;
        }
        split_budget_init(&b, NULL);
        split_budget_add(&b, r, strlen(repeating[i].text));
        const struct split_text in = {slice_of(repeating[i].text), false, &b};
        size_t from = 0, n = 0;
        for (struct split_match m; from < in.text.len; from = m.end) {
            m = split_regex_find(r, &in, from);
            assert_int_equal(m.error, 0);
            if (m.start == m.end)
                break;
            if (m.end != repeating[i].ends[n++])
                fail_msg("%s on \"%s\": part %zu ends at %zu", repeating[i].pattern, repeating[i].text, n,
                         m.end);
        }
        assert_int_equal(repeating[i].ends[n], 0);
    }
    arena_free(a);
}

/* One round after the other on a stack of 256 KiB would not do. */
TEST(a_group_repeats_without_a_deeper_stack)
{
    struct arena *a;
    struct split_budget b;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    struct split_regex *r = compile(a, "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+");
    struct slice text = repeated("a b", 3000000);
    split_budget_init(&b, NULL);
    split_budget_add(&b, r, text.len);
    const struct split_text in = {text, false, &b};
    struct split_match m = split_regex_find(r, &in, 0);
    assert_int_equal(m.error, 0);
    assert_int_equal(m.end, text.len);
    free((char *)text.ptr);
    arena_free(a);
}

TEST(a_short_text_may_take_the_square_of_its_length)
{
    struct arena *a;
    uint64_t taken;
    struct split_budget b;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    struct split_regex *r = compile(a, "\\w+!|\\s+");
    split_budget_init(&b, NULL);
    split_budget_add(&b, r, 200);
    struct slice text = repeated("a", 200);
    assert_int_equal(search(r, text, &b, &taken), 0);
    assert_in_range(taken, 200 * 200, 3 * 200 * 200);
    free((char *)text.ptr);
    arena_free(a);
}

/* Without a bound by length, each of many short pieces would add what a long one may take. */
TEST(a_piece_adds_to_the_budget_in_proportion_to_its_length)
{
    struct arena *a;
    struct split_budget b;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    struct split_regex *r = compile(a, "\\d{1,3}(?=(?:\\d{3})*\\b)");
    split_budget_init(&b, NULL);
    for (int i = 0; i < 1000; i++)
        split_budget_add(&b, r, 1);
    assert_true(b.steps < 70000 + (2048 + 256) * 1000);
    uint64_t taken;
    struct slice text = repeated("1", 1500);
    split_budget_init(&b, NULL);
    split_budget_add(&b, r, text.len);
    assert_int_equal(search(r, text, &b, &taken), 0);
    assert_true(taken < (70000 + (1 << 20) + 256 * text.len) / 2);
    free((char *)text.ptr);
    arena_free(a);
}

TEST(a_refusal_cites_whole_characters)
{
    struct arena *a;
    struct split_regex *r;
    struct err e = {{0}};
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    for (size_t before = 0; before < 2; before++) {
        struct slice many = repeated("\xc3\xa9", 300);
        char pattern[400];
        int n = snprintf(pattern, sizeof(pattern), "%s%.*s(", before ? "a" : "", SLICE_ARGS(many));
        assert_int_equal(split_regex_compile(a, (struct slice){pattern, (size_t)n}, &r, &e), -EINVAL);
        assert_true(utf8_valid(slice_of(e.text)));
        assert_non_null(strstr(e.text, "is not supported in the regex"));
        free((char *)many.ptr);
    }
    arena_free(a);
}

TEST(a_budget_is_shared_by_all_pieces_of_a_text)
{
    struct arena *a;
    uint64_t taken = 0, all = 0;
    struct split_budget b;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    struct split_regex *r = compile(a, backtracking[0]);
    split_budget_init(&b, NULL);
    int error = 0;
    for (int i = 0; i < 1000 && error == 0; i++, all += taken) {
        struct slice text = repeated("a", 20);
        split_budget_add(&b, r, 20);
        error = search(r, text, &b, &taken);
        free((char *)text.ptr);
    }
    assert_int_equal(error, -ELOOP);
    assert_true(all < 70000 + 256 * 20 * 1000);
    arena_free(a);
}

/* Long runs of one kind of character, and mixtures that make each alternative read much and go back. */
TEST(a_pattern_in_use_takes_a_fraction_of_its_budget)
{
    static const char *const parts[] = {"a",
                                        "A",
                                        " ",
                                        "\n",
                                        "\t",
                                        "1",
                                        "!",
                                        "'",
                                        "Aa",
                                        "aA",
                                        "a ",
                                        " a",
                                        "  a",
                                        "\n ",
                                        " \n",
                                        "\xe4\xb8\xad",
                                        "\xe4\xb8\xad"
                                        "A",
                                        "\xcc\x81",
                                        "A\xcc\x81",
                                        "a\xe4\xb8\xad"
                                        "1 ",
                                        "'s",
                                        "'l",
                                        "don't ",
                                        "12 ",
                                        "-/",
                                        "/\n",
                                        "     x",
                                        "\r\n\r\n  ",
                                        "\xf0\x9f\x98\x80",
                                        "\xc7\x85",
                                        "int x = 1; "};
    enum { BYTES = 100000 };
    struct arena *a;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    for (size_t i = 0; i < COUNT_OF(in_use); i++) {
        struct split_regex *r = compile(a, in_use[i]);
        for (size_t k = 0; k < COUNT_OF(parts); k++) {
            struct slice text = repeated(parts[k], BYTES);
            struct split_budget b;
            uint64_t taken;
            split_budget_init(&b, NULL);
            split_budget_add(&b, r, text.len);
            uint64_t most = b.steps;
            if (search(r, text, &b, &taken) < 0 || taken > most / 3)
                fail_msg("pattern %zu on \"%s\": %llu of %llu steps", i, parts[k], (unsigned long long)taken,
                         (unsigned long long)most);
            free((char *)text.ptr);
        }
    }
    arena_free(a);
}

TEST_MAIN()
