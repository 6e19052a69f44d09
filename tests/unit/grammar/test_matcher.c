/* Matchers and masks against a plain recogniser, on random grammars and texts. */
#define TEST_SEEDS 10
#include "test.h"

#include "base/check.h"
#include "base/err.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher_state.h"
#include "test_grammar_reference.h"

#include <errno.h>

/* Tokens 0 and 1 are special, 2 ends an output, the others have these bytes. */
static const char *const texts[] = {"",      "",     "",    "a",   "b",   "c",    "\"",  "aa",
                                    "ab",    "bc",   "abc", "a\"", "\"b", "\"\"", "cab", "bbbb",
                                    "a\"bc", "ca\"", "a",   "cc",  "bca", "\"a\""};
static const uint32_t ends[] = {2};
enum { TOKENS = COUNT_OF(texts) };

static struct slice token_bytes(void *arg, uint32_t id)
{
    (void)arg;
    return slice_of(texts[id]);
}

struct scene {
    struct ref_grammar ref;
    struct grammar *grammar;
    struct grammar_vocab *vocab;
    struct matcher_tables *tables, *small;
    struct matcher *matcher, *tiny, *again;
    struct ref_text text;
};

static void scene_free(struct scene *s)
{
    matcher_free(s->matcher);
    matcher_free(s->tiny);
    matcher_free(s->again);
    matcher_tables_free(s->tables);
    matcher_tables_free(s->small);
    grammar_vocab_free(s->vocab);
    grammar_free(s->grammar);
    grammar_builder_free(s->ref.builder);
}

static void vocab_make(struct scene *s)
{
    struct grammar_vocab_opts opts = {.size = TOKENS, .bytes = token_bytes, .ends = ends, .end_count = 1};
    assert_int_equal(grammar_vocab_create(&opts, &s->vocab), 0);
}

static struct matcher_tables *tables_make(struct scene *s, size_t bytes)
{
    struct matcher_tables *t;
    struct matcher_tables_opts opts = {.grammar = s->grammar, .vocab = s->vocab, .bytes_max = bytes};
    assert_int_equal(matcher_tables_create(&opts, &t), 0);
    return t;
}

static struct matcher *matcher_make(struct matcher_tables *t)
{
    struct matcher *m;
    assert_int_equal(matcher_create(&(struct matcher_opts){.tables = t}, &m), 0);
    return m;
}

/* False: the language is empty. */
static bool scene_make(struct scene *s, struct rng *r, bool logic)
{
    struct grammar_builder *b;
    *s = (struct scene){0};
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    ref_random(&s->ref, b, r, logic);
    struct err e = {0};
    int made = grammar_finish(b, s->ref.start, &s->grammar, &e);
    assert_int_equal(made, s->ref.productive[0] ? 0 : -EINVAL);
    if (made < 0) {
        grammar_builder_free(b);
        return false;
    }
    vocab_make(s);
    s->tables = tables_make(s, 0);
    s->matcher = matcher_make(s->tables);
    return true;
}

/* The text with this token; false where it has no room. */
static bool text_with(const struct ref_text *t, uint32_t token, struct ref_text *ret)
{
    *ret = *t;
    if (token < 2) {
        ret->units[ret->count++] = (uint16_t)(REF_TOKEN + token);
        return true;
    }
    for (const char *at = texts[token]; *at; at++)
        ret->units[ret->count++] = (uint8_t)*at;
    return ret->count + 8 < REF_UNITS;
}

static bool allowed(struct scene *s, uint32_t token)
{
    struct ref_text with;
    bool prefix, whole = ref_recognise(&s->ref, &s->text, &prefix);
    if (token == ends[0])
        return whole;
    text_with(&s->text, token, &with);
    ref_recognise(&s->ref, &with, &prefix);
    return prefix;
}

static bool agree(struct slice a, struct slice b)
{
    return memcmp(a.ptr, b.ptr, MIN_OF(a.len, b.len)) == 0;
}

/* Forced tokens are allowed, leave the matcher as it is, and have one text with all that is allowed. */
static void check_forced(struct matcher *m, uint32_t bits)
{
    uint32_t forced[4], marks = matcher_marks(m), after;
    uint32_t count = matcher_forced(m, COUNT_OF(forced), forced);
    struct matcher_mask mask;
    assert_int_equal(matcher_marks(m), marks);
    assert_int_equal(matcher_mask(m, 0, &after, &mask), 0);
    assert_int_equal(after, bits);
    if (mask.count == 1 && count > 0)
        assert_int_equal(forced[0], mask.single);
    for (uint32_t token = 0; count > 0 && token < TOKENS; token++)
        if (bits >> token & 1)
            assert_true(agree(token_bytes(NULL, token), token_bytes(NULL, forced[0])));
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(matcher_take(m, forced[i]), 1);
    matcher_rewind(m, marks);
}

static void check_mask(struct scene *s, struct matcher *m)
{
    uint32_t bits[1] = {0}, count = 0;
    struct matcher_mask mask;
    bool prefix;
    assert_int_equal(matcher_mask(m, 0, bits, &mask), 0);
    for (uint32_t token = 0; token < TOKENS; token++) {
        if ((bits[0] >> token & 1) != allowed(s, token))
            print_error("token %u: '%s'\n", token, texts[token]);
        assert_int_equal(bits[0] >> token & 1, allowed(s, token));
        count += bits[0] >> token & 1;
    }
    assert_int_equal(mask.count, count);
    if (count == 1)
        assert_int_equal(bits[0], 1u << mask.single);
    assert_int_equal(matcher_may_end(m), ref_recognise(&s->ref, &s->text, &prefix));
    check_forced(m, bits[0]);
}

/* A token to try next: mostly one that is allowed. */
static uint32_t draw(struct scene *s, struct rng *r)
{
    uint32_t bits[1];
    struct matcher_mask mask;
    assert_int_equal(matcher_mask(s->matcher, 0, bits, &mask), 0);
    uint32_t token = (uint32_t)rng_below(r, TOKENS);
    for (int i = 0; i < 40 && !(bits[0] >> token & 1) && rng_below(r, 10); i++)
        token = (uint32_t)rng_below(r, TOKENS);
    return token;
}

static void walk_against_reference(uint64_t seed, bool logic)
{
    struct rng r = {seed, logic};
    struct scene s;
    if (!scene_make(&s, &r, logic))
        return;
    check_mask(&s, s.matcher);
    for (int step = 0; step < 12; step++) {
        uint32_t token = draw(&s, &r);
        struct ref_text with;
        if (token == ends[0])
            continue;
        if (!text_with(&s.text, token, &with))
            break;
        int taken = matcher_take(s.matcher, token);
        assert_int_equal(taken, allowed(&s, token));
        if (taken)
            s.text = with;
        check_mask(&s, s.matcher);
    }
    scene_free(&s);
}

PROPERTY(masks_equal_the_reference, seed)
{
    walk_against_reference(seed, false);
}

PROPERTY(masks_equal_the_reference_with_intersection_and_complement, seed)
{
    walk_against_reference(seed, true);
}

/* Marks, rewinds, a second matcher of the same tables, and tables that are always full. */
PROPERTY(rewinding_is_a_fresh_matcher, seed)
{
    struct rng r = {seed, 7};
    struct scene s;
    if (!scene_make(&s, &r, true))
        return;
    s.small = tables_make(&s, 96 << 10);
    s.tiny = matcher_make(s.small);
    uint32_t tokens[64], count = 0;
    for (int step = 0; step < 40; step++) {
        if (count && rng_below(&r, 4) == 0) {
            count = (uint32_t)rng_below(&r, count);
            matcher_rewind(s.matcher, count);
            matcher_rewind(s.tiny, count);
        }
        uint32_t token = draw(&s, &r);
        int taken = matcher_take(s.matcher, token);
        if (rng_below(&r, 2))
            assert_int_equal(lexer_flush(s.small), 0);
        assert_int_equal(matcher_take(s.tiny, token), taken);
        if (taken == 1)
            tokens[count++] = token;
        assert_int_equal(matcher_marks(s.matcher), count);
        s.again = matcher_make(s.tables);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(matcher_take(s.again, tokens[i]), 1);
        uint32_t a[1], b[1], c[1];
        struct matcher_mask ma, mb, mc;
        assert_int_equal(matcher_mask(s.matcher, 0, a, &ma), 0);
        assert_int_equal(matcher_mask(s.again, 0, b, &mb), 0);
        assert_int_equal(matcher_mask(s.tiny, 0, c, &mc), 0);
        assert_int_equal(a[0], b[0]);
        assert_int_equal(a[0], c[0]);
        assert_int_equal(ma.count, mc.count);
        matcher_free(s.again);
        s.again = NULL;
    }
    scene_free(&s);
}

PROPERTY(bytes_are_taken_as_one_mark, seed)
{
    struct rng r = {seed, 8};
    struct scene s;
    if (!scene_make(&s, &r, false))
        return;
    for (int step = 0; step < 30; step++) {
        char room[8];
        struct slice bytes = {room, 1 + rng_below(&r, 4)};
        struct ref_text with = s.text;
        bool prefix;
        for (size_t i = 0; i < bytes.len; i++)
            with.units[with.count++] = (uint8_t)(room[i] = "abc\""[rng_below(&r, 4)]);
        ref_recognise(&s.ref, &with, &prefix);
        assert_int_equal(matcher_take_bytes(s.matcher, bytes), prefix);
        if (prefix)
            s.text = with;
        if (s.text.count + 5 > REF_UNITS)
            break;
    }
    scene_free(&s);
}

TEST_MAIN()
