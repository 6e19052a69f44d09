/* Patterns: against PCRE2 on random ones, and what is refused. */
#define TEST_SEEDS 200
#include "test.h"
#include "test_rx_reference.h"

#include "base/err.h"
#include "base/rng.h"
#include "rx/rx_parse.h"
#include "rx/rx_store.h"

#include <errno.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static struct arena *arena;

static struct rx_store *store_new(void)
{
    struct rx_store *s;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)32 << 20}, &arena), 0);
    assert_int_equal(rx_store_create(arena, 200000, &s), 0);
    return s;
}

/* ---- Random patterns ---- */

struct text {
    char at[4096];
    size_t len;
};

static void put(struct text *t, const char *s)
{
    size_t len = strlen(s);
    if (t->len + len < sizeof(t->at))
        memcpy(t->at + t->len, s, len), t->len += len;
}

static void random_alternatives(struct text *t, struct rng *r, int depth, bool anchors, bool looks);

static void random_term(struct text *t, struct rng *r, int depth)
{
    static const char *const atoms[] = {"a",        "b",      "c",       ".",        "[ab]",
                                        "[^a]",     "\\d",    "\\w",     "\\W",      "\\x61",
                                        "[a-b\\d]", "[^\\w]", "\\u0062", "\xC3\xA9", "[\\s\\S]",
                                        "\\.",      "\\p{L}", "\\P{Lu}", "[b\\-]",   "\\n"};
    static const char *const counts[] = {"*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "+?", "{0,2}?", "{0}"};
    if (depth > 0 && rng_below(r, 4) == 0) {
        static const char *const heads[] = {"(", "(?:", "(?s:"};
        put(t, heads[rng_below(r, 3)]);
        random_alternatives(t, r, depth - 1, false, false);
        put(t, ")");
    } else
        put(t, atoms[rng_below(r, sizeof(atoms) / sizeof(*atoms))]);
    if (rng_below(r, 3) == 0)
        put(t, counts[rng_below(r, 10)]);
}

static void random_alternatives(struct text *t, struct rng *r, int depth, bool anchors, bool looks)
{
    for (uint64_t n = rng_below(r, 3) + 1; n > 0; n--) {
        if (anchors && rng_below(r, 3) == 0) {
            put(t, "^");
            for (uint64_t k = rng_below(r, 6); looks && k > 3; k--) {
                put(t, k % 2 ? "(?=" : "(?!");
                random_alternatives(t, r, 1, true, false);
                put(t, ")");
            }
        }
        for (uint64_t k = rng_below(r, 4); k > 0; k--)
            random_term(t, r, depth);
        if (anchors && rng_below(r, 3) == 0)
            put(t, "$");
        if (n > 1)
            put(t, "|");
    }
}

static bool pcre_matches(const pcre2_code *code, struct slice text, bool whole)
{
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    uint32_t options = whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;
    int r = pcre2_match(code, (PCRE2_SPTR)text.ptr, text.len, 0, options, data, NULL);
    pcre2_match_data_free(data);
    assert_true(r >= 0 || r == PCRE2_ERROR_NOMATCH);
    return r >= 0;
}

static void compare_with_pcre2(uint64_t seed, bool looks)
{
    struct rng r = {seed, 0};
    struct text t = {.len = 0};
    random_alternatives(&t, &r, 2, true, looks);
    int error;
    PCRE2_SIZE offset;
    uint32_t options = PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)t.at, t.len, options, &error, &offset, NULL);
    struct err e = {0};
    struct rx_store *s = store_new();
    rx_id search, whole = RX_NONE;
    struct rx_parse_opts opts = {.search = true};
    if (rx_parse(s, (struct slice){t.at, t.len}, &opts, &search, &e) < 0)
        print_error("%.*s: %s\n", (int)t.len, t.at, e.text);
    assert_int_equal(rx_parse(s, (struct slice){t.at, t.len}, &opts, &search, &e), 0);
    if (!looks)
        assert_int_equal(rx_parse(s, (struct slice){t.at, t.len}, NULL, &whole, &e), 0);
    assert_non_null(code);
    for (int i = 0; i < 60; i++) {
        static const char *const chars[] = {"a", "b", "c", "a", "b", "0", "Z", "\xC3\xA9", ".", "-", " "};
        struct text in = {.len = 0};
        for (uint64_t k = rng_below(&r, 7); k > 0; k--)
            put(&in, chars[rng_below(&r, sizeof(chars) / sizeof(*chars))]);
        struct slice text = {in.at, in.len};
        if (rx_matches(s, search, text) != pcre_matches(code, text, false))
            print_error("'%.*s' on '%.*s'\n", (int)t.len, t.at, (int)text.len, text.ptr);
        assert_int_equal(rx_matches(s, search, text), pcre_matches(code, text, false));
        if (!looks)
            assert_int_equal(rx_matches(s, whole, text), pcre_matches(code, text, true));
    }
    pcre2_code_free(code);
    arena_free(arena);
}

PROPERTY(patterns_match_as_in_pcre2, seed)
{
    compare_with_pcre2(seed, false);
}

PROPERTY(patterns_with_look_ahead_match_as_in_pcre2, seed)
{
    compare_with_pcre2(seed, true);
}

/* ---- Single ones ---- */

static bool matches(const char *pattern, const char *text)
{
    struct rx_store *s = store_new();
    rx_id x;
    struct err e = {0};
    struct rx_parse_opts opts = {.search = true};
    int r = rx_parse(s, slice_of(pattern), &opts, &x, &e);
    if (r < 0)
        print_error("%s: %s\n", pattern, e.text);
    assert_int_equal(r, 0);
    bool found = rx_matches(s, x, slice_of(text));
    arena_free(arena);
    return found;
}

TEST(escapes_and_classes)
{
    assert_true(matches("^\\u{1F600}$", "\xF0\x9F\x98\x80"));
    assert_true(matches("^\\uD83D\\uDE00$", "\xF0\x9F\x98\x80"));
    assert_true(matches("^[^a]$", "\xF0\x9F\x98\x80"));
    assert_true(matches("^\\s$", "\xC2\xA0"));
    assert_false(matches("^\\w$", "\xC3\xA9"));
    assert_true(matches("^\\p{Uppercase_Letter}$", "\xC3\x89"));
    assert_true(matches("^\\p{gc=Nd}{2}$", "42"));
    assert_true(matches("^[\\w.+-]+@[a-z]+\\.com$", "a.b+c@host.com"));
    assert_true(matches("^[\\]\\-x]$", "]"));
    assert_true(matches("^a{,2}$", "a{,2}"));
}

TEST(anchors_at_the_ends_of_alternatives)
{
    assert_true(matches("(^a$)|(^b)", "bc"));
    assert_false(matches("(^a$)|(^b)", "ac"));
    assert_true(matches("^(?:a|b)$", "b"));
    assert_true(matches("(^|x)a", "xa"));
    assert_true(matches("(^|x)a", "a"));
    assert_false(matches("(^|x)a", "ba"));
    assert_true(matches("a(,|$)", "ba"));
    assert_false(matches("a(,|$)", "ab"));
}

TEST(look_ahead_at_the_beginning)
{
    static const char email[] = "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@"
                                "([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$";
    static const char number[] = "^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$";
    assert_true(matches(email, "a.b@c.de"));
    assert_false(matches(email, ".a@c.de"));
    assert_false(matches(email, "a..b@c.de"));
    assert_true(matches(number, "-1.5"));
    assert_false(matches(number, "-."));
    assert_true(matches("^(?=.*[A-Z])(?=.*\\d).{4,}$", "aB3d"));
    assert_false(matches("^(?=.*[A-Z])(?=.*\\d).{4,}$", "abcd3"));
    assert_true(matches("^(?=ab)a", "abc"));
    assert_true(matches("^(?!b)|x$", "bx"));
}

static void refused(const char *pattern, int code, const char *words)
{
    struct rx_store *s = store_new();
    rx_id x = 77;
    struct err e = {0};
    int r = rx_parse(s, slice_of(pattern), NULL, &x, &e);
    if (r != code || !strstr(e.text, words))
        print_error("%s: %d %s\n", pattern, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, words));
    assert_int_equal(x, 77);
    arena_free(arena);
}

TEST(unsupported_patterns_are_refused_by_name)
{
    refused("a(?=b)", -EINVAL, "byte 2: look-ahead");
    refused("(?=b)a", -EINVAL, "byte 1: look-ahead");
    refused("(?<!b)a", -EINVAL, "look-behind");
    refused("(a)\\1", -EINVAL, "back references");
    refused("\\bword", -EINVAL, "word boundary");
    refused("(a", -EINVAL, "closing parenthesis");
    refused("a)", -EINVAL, "no opening one");
    refused("[a", -EINVAL, "closing bracket");
    refused("[b-a]", -EINVAL, "out of order");
    refused("a{3,2}", -EINVAL, "out of order");
    refused("*a", -EINVAL, "nothing to repeat");
    refused("a**", -EINVAL, "nothing to repeat");
    refused("a^b", -EINVAL, "'^'");
    refused("a$b", -EINVAL, "'$'");
    refused("(^a)*", -EINVAL, "anchor");
    refused("\\q", -EINVAL, "no such escape");
    refused("\\p{Script=Greek}", -EINVAL, "property");
    refused("\\uD800", -EINVAL, "surrogate");
    refused("\xFF", -EINVAL, "UTF-8");
    refused("(?i)a", -EINVAL, "group");
    refused("a{1000001}", -EINVAL, "1000000");
    refused("(ab){1001}", -EINVAL, "1000 times");
    refused("a\\", -EINVAL, "backslash");
}

TEST(hostile_patterns_end_within_their_bounds)
{
    static char long_one[RX_PATTERN_BYTES_MAX + 2];
    struct rx_store *s = store_new();
    rx_id x;
    struct err e = {0};
    memset(long_one, '(', sizeof(long_one));
    assert_int_equal(rx_parse(s, (struct slice){long_one, 1000}, NULL, &x, &e), -EINVAL);
    assert_int_equal(rx_parse(s, (struct slice){long_one, sizeof(long_one)}, NULL, &x, &e), -E2BIG);
    memset(long_one, 'a', sizeof(long_one));
    assert_int_equal(rx_parse(s, (struct slice){long_one, RX_PATTERN_BYTES_MAX}, NULL, &x, &e), 0);
    for (size_t i = 0; i + 4 <= RX_PATTERN_BYTES_MAX; i += 4)
        memcpy(long_one + i, i % 8 ? "|a*b" : "|c?a", 4);
    assert_int_equal(rx_parse(s, (struct slice){long_one, RX_PATTERN_BYTES_MAX}, NULL, &x, &e), 0);
    for (size_t i = 0; i + 6 <= RX_PATTERN_BYTES_MAX; i += 6)
        memcpy(long_one + i, "\\p{Lu}", 6);
    rx_parse(s, (struct slice){long_one, RX_PATTERN_BYTES_MAX}, NULL, &x, &e);
    arena_free(arena);
    s = store_new();
    assert_int_equal(rx_parse(s, SLICE("((((a{999}b){999}c){999}d){999}e){999}"), NULL, &x, &e), 0);
    assert_true(rx_count(s) < 200);
    arena_free(arena);
}

TEST_MAIN()
