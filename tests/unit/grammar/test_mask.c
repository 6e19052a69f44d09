/* Masks where slices, counters and caches shorten the walk; limits; right recursion. */
#define TEST_SEEDS 30
#include "test.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"
#include "rx/rx_parse.h"
#include "rx/rx_store.h"

#include <errno.h>

enum { TOKENS = 400 };

static char texts[TOKENS][80];
static const uint32_t ends[] = {TOKENS};

static struct slice token_bytes(void *arg, uint32_t id)
{
    (void)arg;
    return id < TOKENS ? slice_of(texts[id]) : (struct slice){0};
}

/* Words, long runs, quotes, escapes, whole and broken characters. */
static void make_texts(struct rng *r)
{
    static const char *const parts[] = {
        "a", "be", "c d", "\"", "\\", "\\n", "\xC3\xA9", "\xC3", "\xA9", "\xE2\x82\xAC",    "\xE2\x82",
        " ", "\n", ",",   "}",  "{",  "1",   ":",        "\x7F", "zz",   "\xF0\x9F\x98\x80"};
    for (uint32_t id = 0; id < TOKENS; id++) {
        texts[id][0] = 0;
        uint64_t count = 1 + rng_below(r, rng_below(r, 8) ? 4 : 20);
        bool plain = rng_below(r, 2);
        for (uint64_t k = 0; k < count && strlen(texts[id]) < 70; k++)
            strcat(texts[id], parts[plain ? rng_below(r, 3) : rng_below(r, COUNT_OF(parts))]);
    }
}

struct scene {
    struct grammar_builder *b;
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct matcher_tables *tables;
    struct matcher *matcher;
};

static rx_id pattern(struct grammar_builder *b, const char *text)
{
    rx_id x = RX_NONE;
    struct err e = {0};
    int r = rx_parse(grammar_rx(b), slice_of(text), NULL, &x, &e);
    if (r < 0)
        print_error("%s: %s\n", text, e.text);
    assert_int_equal(r, 0);
    return x;
}

static void scene_make(struct scene *s, sym_id start, size_t stack, uint32_t items_max)
{
    struct grammar_vocab_opts vocab = {
        .size = TOKENS + 1, .bytes = token_bytes, .ends = ends, .end_count = 1};
    struct err e = {0};
    assert_int_equal(grammar_finish(s->b, start, &s->grammar, &e), 0);
    assert_int_equal(grammar_vocab_create(&vocab, &s->vocab), 0);
    struct matcher_tables_opts tables = {.grammar = s->grammar, .vocab = s->vocab};
    assert_int_equal(matcher_tables_create(&tables, &s->tables), 0);
    struct matcher_opts opts = {.tables = s->tables, .bytes_max = stack, .items_max = items_max};
    assert_int_equal(matcher_create(&opts, &s->matcher), 0);
}

static void scene_free(struct scene *s)
{
    matcher_free(s->matcher);
    matcher_tables_free(s->tables);
    grammar_vocab_free(s->vocab);
    grammar_free(s->grammar);
    grammar_builder_free(s->b);
}

static void builder(struct scene *s)
{
    *s = (struct scene){0};
    assert_int_equal(grammar_builder_create(NULL, NULL, &s->b), 0);
}

/* A token is in the mask when its bytes can be taken, and is taken itself then. */
static void check_all_tokens(struct scene *s)
{
    static uint32_t bits[TOKENS / 32 + 1];
    struct matcher_mask mask;
    uint32_t marks = matcher_marks(s->matcher);
    assert_int_equal(matcher_mask(s->matcher, 0, bits, &mask), 0);
    for (uint32_t id = 0; id < TOKENS; id++) {
        int taken = matcher_take_bytes(s->matcher, slice_of(texts[id]));
        matcher_rewind(s->matcher, marks);
        if ((bits[id / 32] >> id % 32 & 1) != (uint32_t)taken)
            print_error("token %u '%s'\n", id, texts[id]);
        assert_int_equal(bits[id / 32] >> id % 32 & 1, taken);
    }
    assert_int_equal(bits[TOKENS / 32] >> TOKENS % 32 & 1, matcher_may_end(s->matcher));
}

/* Strings that are not among a few, or of two bounds at once: what keys and lengths of a schema become. */
static rx_id intersection(struct grammar_builder *b, uint64_t seed)
{
    static const char *const without[] = {"a|ab|abe|bec", "",      "(a|be){0,3}", "a[^]*",
                                          "[^]{0,5}",     "b{2,}", "[^0-9]*"};
    static const char *const within[] = {"[^\"\\\\\\x00-\\x1f]*", "[^\"\\\\\\x00-\\x1f]{2,80}"};
    struct rx_store *s = grammar_rx(b);
    rx_id body =
        rx_and(s, pattern(b, within[seed % 2]), rx_not(s, pattern(b, without[seed % COUNT_OF(without)])));
    body = rx_and(s, body, pattern(b, "[^\"]{1,300}|a?"));
    rx_id quote = rx_literal(s, SLICE("\""));
    return rx_cat(s, quote, rx_cat(s, body, quote));
}

TEST(strings_but_a_few_take_every_plain_token)
{
    struct scene s;
    struct rng r = {4, 0};
    make_texts(&r);
    builder(&s);
    struct rx_store *rx = grammar_rx(s.b);
    rx_id plain = pattern(s.b, "[^\"\\\\\\x00-\\x1f]*");
    rx_id other = rx_and(rx, plain, rx_not(rx, pattern(s.b, "name|number|kind")));
    rx_id some = rx_and(rx, plain, pattern(s.b, "[^\"\\\\\\x00-\\x1f]{3,70}"));
    rx_id few = rx_and(rx, plain, rx_not(rx, pattern(s.b, "na[^]*")));
    sym_id top = grammar_rule(s.b);
    rx_id has = rx_and(rx, plain, pattern(s.b, "[^]*[0-9][^]*"));
    const rx_id bodies[] = {other, some, few, has};
    const char *heads[] = {"1", "2", "3", "4"};
    for (int i = 0; i < 4; i++) {
        rx_id head = rx_literal(rx, slice_of(heads[i])), tail = rx_literal(rx, SLICE("\""));
        sym_id both[] = {grammar_terminal(s.b, head), grammar_terminal(s.b, rx_cat(rx, bodies[i], tail))};
        grammar_alternative(s.b, top, both, 2);
    }
    scene_make(&s, top, 0, 0);
    const uint32_t runs[] = {RUN_MAX, 70, 0, RUN_MAX};
    for (int i = 0; i < 4; i++) {
        matcher_reset(s.matcher);
        assert_int_equal(matcher_take_bytes(s.matcher, slice_of(heads[i])), 1);
        assert_int_equal(matcher_load(s.matcher), 0);
        assert_int_equal(slice_run(s.tables, s.tables->threads[0].state), runs[i]);
        check_all_tokens(&s);
    }
    scene_free(&s);
}

PROPERTY(slices_and_clamped_counters_change_no_mask, seed)
{
    static const char *const strings[] = {"\"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\n])*\"",
                                          "\"([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\n]){0,500}\"",
                                          "\"[^\"\\\\\\x00-\\x1f\\x7f]{3,30}\"",
                                          "\"[^\"\\\\\\x00-\\x1f]{0,70}[a-z]?\"",
                                          "\"([^\"\\\\\\x00-\\x1f]{100,}|[a-z]{2})\"",
                                          "\"[a-z ]{200,300}\"",
                                          "\"[^\\x00-\\x1f]*\"",
                                          "\"([ -!#-\\[\\]-\xF4\x8F\xBF\xBF]{1,90} ){1,3}\"",
                                          "\"(a|[^\"\\\\\\x00-\\x1f]{0,15})[^\"]{0,200}\"",
                                          "(\"[^\"\\\\\\x00-\\x1f]{0,80}\")|(\"[^\"]{0,20}\")"};
    struct rng r = {seed, 0};
    struct scene s;
    make_texts(&r);
    builder(&s);
    sym_id top = grammar_rule(s.b), close = grammar_terminal(s.b, rx_literal(grammar_rx(s.b), SLICE("}")));
    rx_id text = seed % 3 ? pattern(s.b, strings[seed % COUNT_OF(strings)]) : intersection(s.b, seed / 3);
    sym_id string = grammar_terminal(s.b, text);
    grammar_alternative(s.b, top, (sym_id[]){string, close}, 2);
    grammar_alternative(s.b, top, (sym_id[]){string, grammar_terminal(s.b, pattern(s.b, ",\\n? ?")), top}, 3);
    scene_make(&s, top, 0, 0);
    for (int step = 0; step < 60; step++) {
        check_all_tokens(&s);
        static uint32_t bits[TOKENS / 32 + 1];
        struct matcher_mask mask;
        assert_int_equal(matcher_mask(s.matcher, 0, bits, &mask), 0);
        uint32_t token = (uint32_t)rng_below(&r, TOKENS);
        for (uint32_t i = 0; i < TOKENS && !(bits[token / 32] >> token % 32 & 1); i++)
            token = (token + 1) % TOKENS;
        if (matcher_take(s.matcher, token) != 1)
            matcher_reset(s.matcher);
    }
    scene_free(&s);
}

/* One mask stands for all plain tokens. Surrogates and overlong encodings are not plain characters. */
TEST(surrogates_and_overlong_encodings_are_not_plain)
{
    static const char *const parts[] = {
        "\xED\x9F\xBF", "\xED\xA0\x80",     "\xED\xBF\xBF",     "\xEE\x80\x80",    "\xE0\xA0\x80",
        "\xE0\x9F\xBF", "\xF0\x90\x80\x80", "\xF0\x8F\xBF\xBF", "\xC2\x80",        "\xC1\xBF",
        "\xE2\x80\xA8", "\xE2\x80\xA9",     "\xF4\x8F\xBF\xBF", "\xF4\x90\x80\x80"};
    struct scene s;
    for (uint32_t id = 0; id < TOKENS; id++)
        snprintf(texts[id], sizeof(texts[id]), "%s%s", id < COUNT_OF(parts) ? "" : "a",
                 parts[id % COUNT_OF(parts)]);
    /* The dot matches no line separator. */
    static const char *const strings[] = {"\"[^\"\\\\\\x00-\\x1f]*\"", "\".*\""};
    for (size_t i = 0; i < COUNT_OF(strings); i++) {
        builder(&s);
        sym_id top = grammar_rule(s.b), string = grammar_terminal(s.b, pattern(s.b, strings[i]));
        grammar_alternative(s.b, top, &string, 1);
        scene_make(&s, top, 0, 0);
        assert_int_equal(matcher_take_bytes(s.matcher, SLICE("\"")), 1);
        check_all_tokens(&s);
        scene_free(&s);
    }
}

TEST(a_long_list_needs_few_items)
{
    struct scene s;
    struct rng r = {1, 0};
    make_texts(&r);
    builder(&s);
    sym_id list = grammar_rule(s.b), tail = grammar_rule(s.b), deep = grammar_rule(s.b);
    sym_id one = grammar_terminal(s.b, pattern(s.b, "[a-z]+")),
           comma = grammar_terminal(s.b, pattern(s.b, ","));
    grammar_alternative(s.b, list, (sym_id[]){one, tail}, 2);
    grammar_alternative(s.b, tail, (sym_id[]){comma, list}, 2);
    grammar_alternative(s.b, tail, NULL, 0);
    grammar_alternative(s.b, deep, (sym_id[]){list}, 1);
    scene_make(&s, deep, (size_t)8 << 20, 20);
    uint64_t work = s.tables->work;
    for (int i = 0; i < 20000; i++)
        assert_int_equal(matcher_take_bytes(s.matcher, SLICE("ab,")), 1);
    assert_true(s.tables->work - work < 20000 * 200);
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE(",")), 0);
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE("x")), 1);
    assert_true(matcher_may_end(s.matcher));
    matcher_reset(s.matcher);
    assert_false(matcher_may_end(s.matcher));
    scene_free(&s);
}

/* s -> s s s | s s | a: the most ambiguous there is. */
static sym_id ambiguous(struct scene *s)
{
    sym_id top = grammar_rule(s->b);
    grammar_alternative(s->b, top, (sym_id[]){top, top, top}, 3);
    grammar_alternative(s->b, top, (sym_id[]){top, top}, 2);
    grammar_alternative(s->b, top, (sym_id[]){grammar_terminal(s->b, pattern(s->b, "a+"))}, 1);
    return top;
}

TEST(what_is_too_complex_ends_and_changes_nothing)
{
    struct scene s;
    struct rng r = {2, 0};
    make_texts(&r);
    builder(&s);
    scene_make(&s, ambiguous(&s), 0, 100);
    int taken = 1;
    for (int i = 0; i < 3000 && taken == 1; i++)
        taken = matcher_take_bytes(s.matcher, SLICE("a"));
    assert_int_equal(taken, -E2BIG);
    uint32_t marks = matcher_marks(s.matcher);
    assert_true(marks > 5);
    assert_true(matcher_may_end(s.matcher));
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE("a")), -E2BIG);
    assert_int_equal(matcher_marks(s.matcher), marks);
    matcher_rewind(s.matcher, marks - 2);
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE("a")), 1);
    scene_free(&s);
}

TEST(a_full_stack_is_too_complex)
{
    struct scene s;
    struct rng r = {3, 0};
    make_texts(&r);
    builder(&s);
    scene_make(&s, grammar_terminal(s.b, pattern(s.b, "a*")), 4096, 0);
    int taken = 1;
    for (int i = 0; i < 3000 && taken == 1; i++)
        taken = matcher_take_bytes(s.matcher, SLICE("a"));
    assert_int_equal(taken, -E2BIG);
    matcher_reset(s.matcher);
    check_all_tokens(&s);
    scene_free(&s);
}

TEST(the_work_of_a_mask_is_bounded)
{
    struct scene s;
    struct rng r = {4, 0};
    struct matcher_mask mask = {.count = 7};
    uint32_t bits[TOKENS / 32 + 1];
    make_texts(&r);
    builder(&s);
    scene_make(&s, grammar_terminal(s.b, pattern(s.b, "([a-e ]|[^a]){2,90}!")), 0, 0);
    assert_int_equal(matcher_mask(s.matcher, 20, bits, &mask), -E2BIG);
    assert_int_equal(mask.count, 7);
    assert_int_equal(matcher_mask(s.matcher, 0, bits, &mask), 0);
    assert_true(mask.count > 20);
    scene_free(&s);
}

/* Each byte of a text may stand on any level of nested repetitions: one derivative takes more steps than the
 * whole mask may. The tables serve on. */
TEST(the_work_of_a_derivative_is_bounded)
{
    enum { LEVELS = 60, WORK_MAX = 20000 };
    struct scene s;
    struct rng r = {6, 0};
    struct matcher_mask mask;
    uint32_t bits[TOKENS / 32 + 1];
    make_texts(&r);
    builder(&s);
    rx_id x = pattern(s.b, "a");
    for (int i = 0; i < LEVELS; i++)
        x = rx_cat(grammar_rx(s.b), rx_repeat(grammar_rx(s.b), x, 0, 1), x);
    scene_make(&s, grammar_terminal(s.b, x), 0, 0);
    int result = 0;
    uint64_t most = 0;
    for (uint32_t taken = 0; taken < 8 && result == 0; taken++) {
        uint64_t before = s.tables->rx->work;
        result = matcher_mask(s.matcher, WORK_MAX, bits, &mask);
        most = MAX_OF(most, s.tables->rx->work - before);
        if (result == 0)
            assert_int_equal(matcher_take_bytes(s.matcher, SLICE("a")), 1);
    }
    assert_int_equal(result, -E2BIG);
    assert_true(most < 2 * WORK_MAX);
    matcher_reset(s.matcher);
    check_all_tokens(&s);
    scene_free(&s);
}

/* A row that n rows before it complete has n * n steps, in few items. */
TEST(the_work_of_a_row_is_bounded)
{
    struct scene s;
    struct rng r = {5, 0};
    make_texts(&r);
    builder(&s);
    sym_id top = grammar_rule(s.b);
    grammar_alternative(s.b, top, (sym_id[]){top, top}, 2);
    grammar_alternative(s.b, top, (sym_id[]){grammar_terminal(s.b, pattern(s.b, "a"))}, 1);
    scene_make(&s, top, (size_t)64 << 20, 0);
    uint64_t most = 0;
    uint32_t count = 0;
    int taken = 1;
    for (; taken == 1; count++) {
        uint64_t work = s.tables->work;
        taken = matcher_take_bytes(s.matcher, SLICE("a"));
        most = MAX_OF(most, s.tables->work - work);
    }
    assert_int_equal(taken, -E2BIG);
    assert_true(count > 100 && count < MATCHER_ITEMS / 2);
    assert_true(most > 1 << 17 && most < 1 << 19);
    scene_free(&s);
}

/* Rows that a mask makes on its way count. */
TEST(the_rows_of_a_mask_are_part_of_its_work)
{
    enum { WORK = 1 << 16, ROW = 1 << 18 };
    struct scene s;
    struct rng r = {6, 0};
    struct matcher_mask mask;
    uint32_t bits[TOKENS / 32 + 1];
    make_texts(&r);
    builder(&s);
    scene_make(&s, ambiguous(&s), (size_t)64 << 20, 0);
    int made = 0;
    for (int i = 0; i < 400 && made == 0; i++) {
        uint64_t work = s.tables->work;
        made = matcher_mask(s.matcher, WORK, bits, &mask);
        assert_true(s.tables->work - work < WORK + 2 * ROW);
        assert_int_equal(matcher_take_bytes(s.matcher, SLICE("a")), 1);
    }
    assert_int_equal(made, -E2BIG);
    scene_free(&s);
}

TEST(forced_tokens_stop_where_others_go_beyond)
{
    static const struct {
        const char *pattern;
        uint32_t count, ids[4];
    } cases[] = {
        {"\"name\": (a|b)", 1, {3}}, /* after it "\":" might go on with what is not forced */
        {"name, name, (a|b)", 4, {3, 5, 3, 5}},
        {"(name|nut)", 0, {0}},
        {"name", 0, {0}}, /* "named" goes beyond */
        {"name?", 0, {0}},
        {"name[^]*", 0, {0}},
        {"international", 3, {1, 6, 8}}, /* no token has an r */
    };
    static const char *const own[] = {"\"", "in", "named", "name", "\": a", ", ", "t", "n", "e", "a"};
    struct rng r = {3, 0};
    make_texts(&r);
    for (uint32_t id = 0; id < COUNT_OF(own); id++)
        snprintf(texts[id], sizeof(texts[id]), "%s", own[id]);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct scene s;
        uint32_t got[4];
        builder(&s);
        scene_make(&s, grammar_terminal(s.b, pattern(s.b, cases[i].pattern)), 0, 0);
        if (i == 0)
            assert_int_equal(matcher_take(s.matcher, 0), 1);
        uint32_t count = matcher_forced(s.matcher, 4, got);
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(got, cases[i].ids, count * sizeof(uint32_t));
        scene_free(&s);
    }
}

TEST(nothing_follows_an_end_token)
{
    struct scene s;
    struct rng r = {5, 0};
    struct matcher_mask mask;
    uint32_t bits[TOKENS / 32 + 1];
    make_texts(&r);
    builder(&s);
    scene_make(&s, grammar_terminal(s.b, pattern(s.b, "be")), 0, 0);
    assert_int_equal(matcher_take(s.matcher, TOKENS), 0);
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE("be")), 1);
    assert_int_equal(matcher_mask(s.matcher, 0, bits, &mask), 0);
    assert_int_equal(mask.count, 1);
    assert_int_equal(mask.single, TOKENS);
    assert_int_equal(matcher_take(s.matcher, TOKENS), 1);
    assert_false(matcher_may_end(s.matcher));
    assert_int_equal(matcher_take(s.matcher, TOKENS), 0);
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE("b")), 0);
    assert_int_equal(matcher_mask(s.matcher, 0, bits, &mask), 0);
    assert_int_equal(mask.count, 0);
    matcher_rewind(s.matcher, 1);
    assert_true(matcher_may_end(s.matcher));
    scene_free(&s);
}

TEST(matchers_and_tables_are_charged)
{
    struct scene s;
    struct rng r = {6, 0};
    struct account *account = test_account(64 << 20);
    struct charge charge = account_charge(account);
    make_texts(&r);
    builder(&s);
    struct grammar_vocab_opts vocab = {.size = TOKENS, .bytes = token_bytes, .charge = &charge};
    assert_int_equal(grammar_finish(s.b, ambiguous(&s), &s.grammar, NULL), 0);
    assert_int_equal(grammar_vocab_create(&vocab, &s.vocab), 0);
    struct matcher_tables_opts tables = {.grammar = s.grammar, .vocab = s.vocab, .charge = &charge};
    assert_int_equal(matcher_tables_create(&tables, &s.tables), 0);
    assert_int_equal(
        matcher_create(&(struct matcher_opts){.tables = s.tables, .charge = &charge}, &s.matcher), 0);
    struct charge none = account_charge(test_account(1));
    tables.charge = &none;
    vocab.charge = &none;
    struct matcher_tables *t;
    struct matcher *m;
    struct grammar_vocab *v;
    assert_int_equal(matcher_tables_create(&tables, &t), -ENOMEM);
    assert_int_equal(matcher_create(&(struct matcher_opts){.tables = s.tables, .charge = &none}, &m),
                     -ENOMEM);
    assert_int_equal(grammar_vocab_create(&vocab, &v), -ENOMEM);
    scene_free(&s);
}

TEST_MAIN()
