/* A piece that is kept has its own tokens or is unknown; it never has those of another one. */
#include "test.h"
#include "test_rng.h"

#include "base/check.h"
#include "base/slice.h"
#include "tokenizer/bpe.h"
#include "tokenizer/piece_ids.h"

#include <errno.h>
#include <string.h>

enum { LEN_MAX = 18, KEPT_MAX = 16, IDS = 3 };

struct fixture {
    struct arena *arena;
    struct piece_ids known;
};

static void fixture_init(struct fixture *f)
{
    struct arena_opts opts = {.bytes_max = 2 * PIECE_IDS_BYTES};
    assert_int_equal(arena_create(&opts, &f->arena), 0);
    assert_int_equal(piece_ids_init(&f->known, f->arena), 0);
}

/* Tokens that tell pieces of the test apart. */
static uint32_t ids_of(struct slice piece, uint32_t ids[IDS])
{
    uint32_t sum = (uint32_t)piece.len;
    for (size_t i = 0; i < piece.len; i++)
        sum = sum * 31 + (unsigned char)piece.ptr[i];
    for (uint32_t i = 0; i < IDS; i++)
        ids[i] = sum + i;
    return 1 + sum % IDS;
}

static void keep(struct fixture *f, struct slice piece)
{
    uint32_t ids[IDS + 1] = {7};
    struct bpe_ids out = {ids, 1 + ids_of(piece, ids + 1), IDS + 1};
    piece_ids_keep(&f->known, piece, &out, 1);
}

/* Whether it is known. */
static bool assert_own(struct fixture *f, struct slice piece)
{
    uint32_t got[IDS + 1] = {7}, want[IDS], count = ids_of(piece, want);
    struct bpe_ids out = {got, 1, IDS + 1};
    int r = piece_ids_put(&f->known, piece, &out);
    assert_true(r == 0 || r == 1);
    assert_int_equal(out.count, 1 + (r ? count : 0));
    assert_int_equal(got[0], 7);
    if (r)
        assert_memory_equal(got + 1, want, count * sizeof(*want));
    return r;
}

TEST(pieces_of_every_length)
{
    struct fixture f;
    fixture_init(&f);
    static const char bytes[2][LEN_MAX + 1] = {{0}, "aaaaaaaaaaaaaaaaaa"};
    for (size_t kind = 0; kind < COUNT_OF(bytes); kind++) {
        for (size_t len = 0; len <= LEN_MAX; len++)
            assert_false(assert_own(&f, (struct slice){bytes[kind], len}));
        for (size_t len = 0; len <= LEN_MAX; len++) {
            keep(&f, (struct slice){bytes[kind], len});
            assert_int_equal(assert_own(&f, (struct slice){bytes[kind], len}), len > 0 && len <= KEPT_MAX);
        }
    }
    arena_free(f.arena);
}

TEST(pieces_that_differ_in_one_byte)
{
    struct fixture f;
    fixture_init(&f);
    for (size_t len = 1; len <= KEPT_MAX; len++) {
        for (size_t at = 0; at < len; at++) {
            char bytes[KEPT_MAX] = "abcdefghijklmnop";
            keep(&f, (struct slice){bytes, len});
            bytes[at] ^= (char)0x80;
            assert_false(assert_own(&f, (struct slice){bytes, len}));
        }
    }
    arena_free(f.arena);
}

TEST(many_pieces_take_each_others_places)
{
    struct fixture f;
    struct rng rng = {1, 0};
    size_t known = 0;
    fixture_init(&f);
    for (size_t i = 0; i < 200000; i++) {
        char bytes[LEN_MAX];
        struct slice piece = {bytes, 1 + rng_below(&rng, LEN_MAX)};
        for (size_t k = 0; k < piece.len; k++)
            bytes[k] = (char)('a' + rng_below(&rng, i % 2 ? 2 : 26));
        if (assert_own(&f, piece))
            known++;
        else
            keep(&f, piece);
    }
    assert_true(known > 10000);
    arena_free(f.arena);
}

TEST(many_tokens_are_not_kept_and_room_may_end)
{
    struct fixture f;
    uint32_t ids[IDS + 1] = {1, 2, 3, 4};
    struct bpe_ids out = {ids, IDS + 1, IDS + 1};
    fixture_init(&f);
    piece_ids_keep(&f.known, SLICE("word"), &out, 0);
    out.count = 0;
    assert_int_equal(piece_ids_put(&f.known, SLICE("word"), &out), 0);
    out.count = IDS;
    piece_ids_keep(&f.known, SLICE("word"), &out, 0);
    out.count = 2;
    assert_int_equal(piece_ids_put(&f.known, SLICE("word"), &out), -E2BIG);
    piece_ids_keep(&(struct piece_ids){NULL}, SLICE("word"), &out, 0);
    assert_int_equal(piece_ids_put(&(struct piece_ids){NULL}, SLICE("word"), &out), 0);
    arena_free(f.arena);
}

TEST(no_room_for_the_table)
{
    struct arena *a;
    struct piece_ids known;
    struct arena_opts opts = {.bytes_max = PIECE_IDS_BYTES / 2};
    assert_int_equal(arena_create(&opts, &a), 0);
    assert_int_equal(piece_ids_init(&known, a), -ENOMEM);
    arena_free(a);
}

TEST_MAIN()
