/* Merging: the heap does what the definition says, also for pieces no word is as long as. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_symbols.h"

#include <errno.h>
#include <string.h>

enum { MERGES = 60 };

struct fixture {
    struct arena *arena;
    struct bpe bpe;
    struct bpe_merge merges[MERGES];
    uint32_t count;
};

/* Bytes are tokens 0 to 255; merge i makes token 256 + i of two earlier ones, mostly of a, b, c. `strange`:
 * ranks are in no order, and some tokens are made by several merges. */
static void fixture_init_as(struct fixture *f, uint64_t seed, bool strange)
{
    struct rng rng = {seed, 0};
    struct arena_opts opts = {.bytes_max = (size_t)256 << 20};
    *f = (struct fixture){0};
    assert_int_equal(arena_create(&opts, &f->arena), 0);
    assert_int_equal(bpe_init(&f->bpe, f->arena, MERGES), 0);
    for (uint32_t i = 0; i < 256; i++)
        f->bpe.byte_ids[i] = i;
    for (uint32_t i = 0; i < MERGES; i++) {
        uint32_t parts[2];
        for (size_t k = 0; k < 2; k++) {
            uint32_t pick = (uint32_t)rng_below(&rng, 3 + f->count);
            parts[k] = pick < 3 ? 'a' + pick : 256 + pick - 3;
        }
        bool have = false;
        for (uint32_t k = 0; k < f->count; k++)
            have |= f->merges[k].left == parts[0] && f->merges[k].right == parts[1];
        if (have)
            continue;
        f->merges[f->count] = (struct bpe_merge){
            .left = parts[0], .right = parts[1], .merged = 256 + f->count, .rank = f->count};
        if (strange)
            f->merges[f->count].rank = f->count * 37 % 61;
        if (strange && f->count % 3 == 2)
            f->merges[f->count].merged = 256 + (uint32_t)rng_below(&rng, f->count);
        bpe_add(&f->bpe, &f->merges[f->count]);
        f->count++;
    }
}

static void fixture_init(struct fixture *f, uint64_t seed)
{
    fixture_init_as(f, seed, false);
}

/* The definition: merge the pair of lowest rank, the leftmost, until no pair has a rank. */
static size_t merge_naively(const struct fixture *f, uint32_t *ids, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX;
        uint32_t rank = UINT32_MAX, merged = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            for (uint32_t m = 0; m < f->count; m++) {
                const struct bpe_merge *each = &f->merges[m];
                if (each->left == ids[i] && each->right == ids[i + 1] && each->rank < rank) {
                    best = i;
                    rank = each->rank;
                    merged = each->merged;
                }
            }
        }
        if (best == SIZE_MAX)
            return count;
        ids[best] = merged;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof(*ids));
        count--;
    }
}

static void check_merges(uint64_t seed, bool strange)
{
    struct fixture f;
    fixture_init_as(&f, seed, strange);
    struct rng rng = {seed, 1000};
    char piece[200];
    uint32_t want[200], got[200];
    size_t len = rng_below(&rng, sizeof(piece) + 1);
    for (size_t i = 0; i < len; i++) {
        piece[i] = (char)('a' + rng_below(&rng, 3));
        want[i] = (unsigned char)piece[i];
    }
    size_t count = merge_naively(&f, want, len), mark = arena_mark(f.arena);
    struct bpe_ids out = {.ids = got, .max = COUNT_OF(got)};
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, len}, NULL, &out), 0);
    assert_int_equal(out.count, count);
    if (count)
        assert_memory_equal(got, want, count * sizeof(*got));
    assert_int_equal(arena_mark(f.arena), mark);
    out.count = 0;
    assert_int_equal(bpe_encode_long(&f.bpe, f.arena, &(struct bpe_piece){piece, NULL, len}, NULL, &out), 0);
    assert_int_equal(out.count, count);
    if (count)
        assert_memory_equal(got, want, count * sizeof(*got));
    arena_free(f.arena);
}

PROPERTY(both_ways_merge_as_the_definition_does, seed)
{
    check_merges(seed, false);
}

PROPERTY(both_ways_merge_as_the_definition_does_for_any_table, seed)
{
    check_merges(seed, true);
}

TEST(a_long_piece_has_the_same_tokens_both_ways)
{
    enum { LEN = 200000 };
    for (int strange = 0; strange < 2; strange++) {
        struct fixture f;
        struct rng rng = {7, 7};
        fixture_init_as(&f, 7, strange);
        char *piece = malloc(LEN);
        uint32_t *ids = malloc(2 * LEN * sizeof(*ids));
        assert_true(piece && ids);
        for (size_t i = 0; i < LEN; i++)
            piece[i] = (char)('a' + rng_below(&rng, 3));
        struct bpe_ids out = {.ids = ids, .max = LEN}, heap = {.ids = ids + LEN, .max = LEN};
        assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN}, NULL, &out), 0);
        assert_int_equal(bpe_encode_short(&f.bpe, f.arena, &(struct bpe_piece){piece, NULL, LEN}, &heap), 0);
        assert_int_equal(out.count, heap.count);
        assert_memory_equal(ids, ids + LEN, out.count * sizeof(*ids));
        free(piece);
        free(ids);
        arena_free(f.arena);
    }
}

TEST(a_piece_that_nobody_wants_is_given_up)
{
    enum { LEN = 1 << 20 };
    struct fixture f;
    _Atomic bool cancelled = true;
    struct wanted w = {.cancelled = &cancelled};
    fixture_init(&f, 3);
    char *piece = malloc(LEN);
    uint32_t *ids = malloc(LEN * sizeof(*ids));
    assert_true(piece && ids);
    memset(piece, 'a', LEN);
    struct bpe_ids out = {.ids = ids, .max = LEN};
    size_t mark = arena_mark(f.arena);
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN}, &w, &out), -ECANCELED);
    assert_int_equal(arena_mark(f.arena), mark);
    cancelled = false;
    w.deadline_ns = 1;
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN}, &w, &out), -ETIME);
    w.deadline_ns = UINT64_MAX;
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN}, &w, &out), 0);
    free(piece);
    free(ids);
    arena_free(f.arena);
}

TEST(a_megabyte_of_one_letter_is_no_trouble)
{
    /* A quadratic algorithm would take hours: the test's time limit is the assertion. */
    enum { LEN = 1 << 20 };
    struct fixture f;
    fixture_init(&f, 1);
    struct arena_opts opts = {.bytes_max = 4096};
    struct arena *small;
    assert_int_equal(arena_create(&opts, &small), 0);
    char *piece = malloc(LEN);
    uint32_t *ids = malloc(LEN * sizeof(*ids));
    assert_true(piece && ids);
    memset(piece, 'a', LEN);
    bpe_init(&f.bpe, f.arena, 20);
    for (uint32_t i = 0; i < 256; i++)
        f.bpe.byte_ids[i] = i;
    for (uint32_t i = 0; i < 20; i++) {
        uint32_t half = i ? 255 + i : 'a';
        bpe_add(&f.bpe, &(struct bpe_merge){.left = half, .right = half, .merged = 256 + i, .rank = i});
    }
    struct bpe_ids out = {.ids = ids, .max = LEN};
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN}, NULL, &out), 0);
    assert_int_equal(out.count, 1);
    assert_int_equal(ids[0], 256 + 19);

    out.count = 0;
    assert_int_equal(bpe_encode(&f.bpe, small, (struct slice){piece, LEN}, NULL, &out), -ENOMEM);
    out.max = 1;
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN - 1}, NULL, &out), -E2BIG);
    free(piece);
    free(ids);
    arena_free(small);
    arena_free(f.arena);
}

TEST(the_later_of_two_equal_merges_holds)
{
    struct fixture f;
    fixture_init(&f, 2);
    bpe_add(&f.bpe, &(struct bpe_merge){.left = 'x', .right = 'y', .merged = 1000, .rank = 100});
    bpe_add(&f.bpe, &(struct bpe_merge){.left = 'x', .right = 'y', .merged = 1001, .rank = 101});
    uint32_t ids[2];
    struct bpe_ids out = {.ids = ids, .max = 2};
    assert_int_equal(bpe_encode(&f.bpe, f.arena, SLICE("xy"), NULL, &out), 0);
    assert_true(out.count == 1 && ids[0] == 1001);
    arena_free(f.arena);
}

TEST_MAIN()
