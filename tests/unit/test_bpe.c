/* Merging: the heap does what the definition says, also for pieces no word is as long as. */
#include "test.h"

#include "base/check.h"
#include "base/rng.h"
#include "text/bpe.h"

#include <errno.h>
#include <string.h>

enum { MERGES = 60 };

struct fixture {
    struct arena *arena;
    struct bpe bpe;
    struct bpe_merge merges[MERGES];
    uint32_t count;
};

/* Bytes are tokens 0 to 255; merge i makes token 256 + i of two earlier ones, mostly of a, b, c. */
static void fixture_init(struct fixture *f, uint64_t seed)
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
        bpe_add(&f->bpe, &f->merges[f->count]);
        f->count++;
    }
}

/* The definition: the lowest rank, the leftmost, until there is none. */
static size_t merge_naively(const struct fixture *f, uint32_t *ids, size_t count)
{
    for (;;) {
        size_t best = SIZE_MAX;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < count; i++) {
            for (uint32_t m = 0; m < f->count && m < rank; m++) {
                if (f->merges[m].left == ids[i] && f->merges[m].right == ids[i + 1]) {
                    best = i;
                    rank = m;
                }
            }
        }
        if (best == SIZE_MAX)
            return count;
        ids[best] = f->merges[rank].merged;
        memmove(ids + best + 1, ids + best + 2, (count - best - 2) * sizeof(*ids));
        count--;
    }
}

PROPERTY(the_heap_merges_as_the_definition_does, seed)
{
    struct fixture f;
    fixture_init(&f, seed);
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
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, len}, &out), 0);
    assert_int_equal(out.count, count);
    if (count)
        assert_memory_equal(got, want, count * sizeof(*got));
    assert_int_equal(arena_mark(f.arena), mark);
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
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN}, &out), 0);
    assert_int_equal(out.count, 1);
    assert_int_equal(ids[0], 256 + 19);

    out.count = 0;
    assert_int_equal(bpe_encode(&f.bpe, small, (struct slice){piece, LEN}, &out), -ENOMEM);
    out.max = 1;
    assert_int_equal(bpe_encode(&f.bpe, f.arena, (struct slice){piece, LEN - 1}, &out), -E2BIG);
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
    assert_int_equal(bpe_encode(&f.bpe, f.arena, SLICE("xy"), &out), 0);
    assert_true(out.count == 1 && ids[0] == 1001);
    arena_free(f.arena);
}

TEST_MAIN()
