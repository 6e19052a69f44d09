/* Drafts from a sequence's own past, compared with looking everywhere. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "spec/ngram.h"

#include <string.h>

#define TOKENS_MAX 400

struct fixture {
    struct arena *arena;
    struct ngram *ngram;
    uint32_t tokens[TOKENS_MAX], count;
};

static void open_ngram(struct fixture *f)
{
    *f = (struct fixture){0};
    size_t bytes = ngram_bytes(TOKENS_MAX);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = bytes + 4096}, &f->arena), 0);
    assert_int_equal(ngram_create(f->arena, TOKENS_MAX, &f->ngram), 0);
}

/* Each letter a token. */
static void see(struct fixture *f, const char *text)
{
    for (; *text; text++)
        f->tokens[f->count++] = (uint32_t)*text;
    ngram_see(f->ngram, f->tokens, f->count);
}

static void expect_draft(struct fixture *f, uint32_t wanted, const char *want)
{
    uint32_t got[32];
    assert_int_equal(ngram_draft(f->ngram, f->tokens, wanted, got), strlen(want));
    for (size_t i = 0; want[i]; i++)
        assert_int_equal(got[i], (uint32_t)want[i]);
}

TEST(what_followed_before_is_drafted_again)
{
    struct fixture f;
    open_ngram(&f);
    expect_draft(&f, 8, "");
    see(&f, "a");
    expect_draft(&f, 8, "");
    see(&f, "bcdefg-ab");
    expect_draft(&f, 8, "cd");
    expect_draft(&f, 1, "c");
    see(&f, "cd");
    expect_draft(&f, 8, "efg-");
    see(&f, "x");
    expect_draft(&f, 8, "");
    arena_free(f.arena);
}

TEST(the_longest_match_is_taken_and_of_equal_ones_the_latest)
{
    struct fixture f;
    open_ngram(&f);
    see(&f, "1bcX.abcY.2bcZ.bc");
    expect_draft(&f, 1, "Z");
    see(&f, ".abc");
    expect_draft(&f, 1, "Y");
    arena_free(f.arena);
}

TEST(a_repetition_goes_on)
{
    struct fixture f;
    open_ngram(&f);
    see(&f, "xyabcabcabc");
    expect_draft(&f, 8, "abcabc");
    see(&f, "abcabcabc");
    expect_draft(&f, 16, "abcabcabcabcabc");
    arena_free(f.arena);
}

/* The longest match of all places that a bounded walk cannot miss here. */
static uint32_t draft_slowly(const struct fixture *f, uint32_t *length)
{
    uint32_t best = 0;
    *length = 1;
    for (uint32_t p = f->count - 2; p >= 1; p--) {
        uint32_t l = 0;
        while (l <= p && l < 16 && f->tokens[p - l] == f->tokens[f->count - 1 - l])
            l++;
        if (l > *length) {
            *length = l;
            best = p;
        }
    }
    return best;
}

PROPERTY(it_finds_what_looking_everywhere_finds, seed)
{
    struct fixture f;
    struct rng rng = {seed, 0};
    open_ngram(&f);
    while (f.count + 20 < TOKENS_MAX) {
        /* New tokens, or a copy of old ones; no pair so often that its chain is longer than a walk. */
        uint32_t n = 1 + (uint32_t)rng_below(&rng, 19), from = (uint32_t)rng_below(&rng, f.count + 1);
        bool copy = rng_uniform(&rng) < 0.3;
        for (uint32_t i = 0; i < n; i++)
            f.tokens[f.count + i] =
                copy && from + i < f.count ? f.tokens[from + i] : (uint32_t)rng_below(&rng, 60);
        f.count += n;
        ngram_see(f.ngram, f.tokens, f.count);
        if (f.count < 3)
            continue;
        uint32_t length, best = draft_slowly(&f, &length), got[4];
        uint32_t count = ngram_draft(f.ngram, f.tokens, 4, got);
        assert_int_equal(count, best ? MIN_OF(length, 4u) : 0);
        for (uint32_t i = 0; i < count && best + 1 + i < f.count; i++)
            assert_int_equal(got[i], f.tokens[best + 1 + i]);
    }
    arena_free(f.arena);
}

TEST(it_takes_no_more_than_it_says)
{
    for (uint32_t tokens = 1; tokens < 100000; tokens = tokens * 3 + 1) {
        struct arena *a;
        struct ngram *n;
        assert_true(ngram_bytes(tokens) <= 12 * (size_t)tokens + 512);
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = ngram_bytes(tokens)}, &a), 0);
        assert_int_equal(ngram_create(a, tokens, &n), 0);
        arena_free(a);
    }
}

TEST_MAIN()
