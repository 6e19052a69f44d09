/* Marks that are given up: masks stay the same, and the stack follows the depth of the text. */
#define TEST_SEEDS 60
#include "test.h"

#include "base/check.h"
#include "base/err.h"
#include "base/rng.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher.h"
#include "grammar/matcher_state.h"
#include "rx/rx_parse.h"

#include <errno.h>

static const char *const texts[] = {"",  "{",  "}",  "[",  "]",  ",",   ":",   "\"", "a",  "b",
                                    "1", "12", "ab", "[[", "],", "\":", ",\"", "}}", "[1", "1,"};
static const uint32_t ends[] = {0};
enum { TOKENS = COUNT_OF(texts) };

static struct slice token_bytes(void *arg, uint32_t id)
{
    (void)arg;
    return slice_of(texts[id]);
}

struct scene {
    struct grammar_builder *b;
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct matcher_tables *tables;
    struct matcher *matcher, *other;
};

static sym_id term(struct scene *s, const char *text)
{
    rx_id x = RX_NONE;
    struct err e = {0};
    assert_int_equal(rx_parse(grammar_rx(s->b), slice_of(text), NULL, &x, &e), 0);
    return grammar_terminal(s->b, x);
}

static void way(struct scene *s, sym_id rule, sym_id a, sym_id b, sym_id c)
{
    grammar_alternative(s->b, rule, (sym_id[]){a, b, c}, 3);
}

/* Objects and arrays of values: lists by right recursion (members over two rules), or by left recursion. */
static sym_id values(struct scene *s, bool left)
{
    sym_id value = grammar_rule(s->b), list = grammar_rule(s->b), member = grammar_rule(s->b),
           members = grammar_rule(s->b), more = grammar_rule(s->b), comma = term(s, ",");
    sym_id string = term(s, "\"[ab]*\""), number = term(s, "[12]+");
    grammar_alternative(s->b, value, &string, 1);
    grammar_alternative(s->b, value, &number, 1);
    way(s, value, term(s, "\\["), list, term(s, "\\]"));
    way(s, value, term(s, "\\{"), members, term(s, "\\}"));
    grammar_alternative(s->b, value, (sym_id[]){term(s, "\\["), term(s, "\\]")}, 2);
    grammar_alternative(s->b, list, &value, 1);
    way(s, list, left ? list : value, comma, left ? value : list);
    way(s, member, string, term(s, ":"), value);
    grammar_alternative(s->b, members, (sym_id[]){member, more}, 2);
    grammar_alternative(s->b, more, NULL, 0);
    grammar_alternative(s->b, more, (sym_id[]){comma, members}, 2);
    return value;
}

static void scene_make(struct scene *s, bool left, size_t stack)
{
    struct grammar_vocab_opts vocab = {.size = TOKENS, .bytes = token_bytes, .ends = ends, .end_count = 1};
    struct err e = {0};
    *s = (struct scene){0};
    assert_int_equal(grammar_builder_create(NULL, NULL, &s->b), 0);
    assert_int_equal(grammar_finish(s->b, values(s, left), &s->grammar, &e), 0);
    assert_int_equal(grammar_vocab_create(&vocab, &s->vocab), 0);
    struct matcher_tables_opts tables = {.grammar = s->grammar, .vocab = s->vocab};
    assert_int_equal(matcher_tables_create(&tables, &s->tables), 0);
    struct matcher_opts opts = {.tables = s->tables, .bytes_max = stack};
    assert_int_equal(matcher_create(&opts, &s->matcher), 0);
    opts.bytes_max = 0;
    assert_int_equal(matcher_create(&opts, &s->other), 0);
}

static void scene_free(struct scene *s)
{
    matcher_free(s->matcher);
    matcher_free(s->other);
    matcher_tables_free(s->tables);
    grammar_vocab_free(s->vocab);
    grammar_free(s->grammar);
    grammar_builder_free(s->b);
}

static uint32_t mask_of(struct matcher *m)
{
    uint32_t bits[1];
    struct matcher_mask mask;
    assert_int_equal(matcher_mask(m, 0, bits, &mask), 0);
    return bits[0];
}

/* The other matcher never settles. */
PROPERTY(settling_changes_no_mask, seed)
{
    struct rng r = {seed, 1};
    struct scene s;
    scene_make(&s, seed % 2, 0);
    for (int step = 0; step < 400; step++) {
        uint32_t bits = mask_of(s.other), token = (uint32_t)rng_below(&r, TOKENS),
                 marks = matcher_marks(s.other);
        assert_int_equal(mask_of(s.matcher), bits);
        assert_int_equal(matcher_may_end(s.matcher), matcher_may_end(s.other));
        if (rng_below(&r, 8) == 0)
            matcher_compact(s.matcher, (uint32_t)rng_below(&r, 6));
        if (rng_below(&r, 30) == 0)
            assert_int_equal(lexer_flush(s.tables), 0);
        uint32_t back = (uint32_t)rng_below(&r, 6);
        if (rng_below(&r, 6) == 0 && s.matcher->marks_from + back <= marks) {
            matcher_rewind(s.matcher, marks - back);
            matcher_rewind(s.other, marks - back);
            continue;
        }
        if (token == ends[0])
            continue;
        assert_int_equal(matcher_take(s.matcher, token), bits >> token & 1);
        assert_int_equal(matcher_take(s.other, token), bits >> token & 1);
    }
    matcher_reset(s.matcher);
    matcher_reset(s.other);
    assert_int_equal(mask_of(s.matcher), mask_of(s.other));
    scene_free(&s);
}

static void take_all(struct scene *s, const char *text, int times)
{
    for (int i = 0; i < times; i++) {
        int r = matcher_take_bytes(s->matcher, slice_of(text));
        if (r != 1)
            print_error("%d at %d of %s, stack %u, %u marks\n", r, i, text, s->matcher->top,
                        matcher_marks(s->matcher) - s->matcher->marks_from);
        assert_int_equal(r, 1);
    }
}

static void take_long_output(bool left)
{
    struct scene s;
    scene_make(&s, left, 96 << 10);
    take_all(&s, "{\"a\":[", 3);
    take_all(&s, "1,", 20000);
    take_all(&s, "{\"a\":12,\"b\":[\"ab\",1,2]},", 3000);
    take_all(&s, "1]", 1);
    take_all(&s, ",\"b\":[[1],[2]]", 5000);
    matcher_compact(s.matcher, 0);
    assert_true(s.matcher->top < 400);
    take_all(&s, "}]", 2);
    take_all(&s, "}", 1);
    assert_true(matcher_may_end(s.matcher));
    scene_free(&s);
}

TEST(a_long_output_fits)
{
    take_long_output(false);
    take_long_output(true);
}

TEST(the_last_marks_stay)
{
    struct scene s;
    scene_make(&s, false, 0);
    take_all(&s, "[", 1);
    take_all(&s, "1,", 50);
    matcher_compact(s.matcher, 3);
    assert_int_equal(matcher_marks(s.matcher), 51);
    matcher_rewind(s.matcher, 48);
    matcher_compact(s.matcher, 3);
    assert_int_equal(matcher_marks(s.matcher), 48);
    take_all(&s, "1]", 1);
    assert_true(matcher_may_end(s.matcher));
    matcher_reset(s.matcher);
    assert_int_equal(matcher_marks(s.matcher), 0);
    assert_int_equal(matcher_take_bytes(s.matcher, SLICE("]")), 0);
    take_all(&s, "[1]", 1);
    scene_free(&s);
}

TEST_MAIN()
