/* Arenas: lifetimes, alignment, zeroing, limits, and charges. */
#include "test_rng.h"
#include "test.h"

#include "base/arena.h"
#include "base/charge.h"
#include "base/check.h"

#include <errno.h>
#include <string.h>

/* Pays up to a limit and counts. */
struct purse {
    size_t held, limit, peak;
};

static int purse_take(void *owner, size_t bytes)
{
    struct purse *p = owner;
    if (bytes > p->limit - p->held)
        return -ENOMEM;
    p->held += bytes;
    p->peak = MAX_OF(p->peak, p->held);
    return 0;
}

static void purse_give(void *owner, size_t bytes)
{
    struct purse *p = owner;
    assert_true(bytes <= p->held);
    p->held -= bytes;
}

static struct arena *arena_of(struct purse *p, size_t bytes_max, size_t grain)
{
    struct charge charge = {purse_take, purse_give, p};
    struct arena *a = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){bytes_max, grain, &charge}, &a), 0);
    return a;
}

static bool all_zero(const char *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i])
            return false;
    return true;
}

TEST(a_bad_option_is_refused)
{
    struct arena *a = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 0}, &a), -EINVAL);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = SIZE_MAX}, &a), -EINVAL);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1, .grain = 1024}, &a), -EINVAL);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1, .grain = 12288}, &a), -EINVAL);
    assert_null(a);
    arena_free(NULL);
}

TEST(every_committed_byte_is_charged_and_given_back)
{
    struct purse p = {.limit = 1 << 20};
    struct arena *a = arena_of(&p, 1 << 20, 4096);
    assert_int_equal(p.held, 4096);
    assert_non_null(arena_alloc(a, 10000));
    assert_int_equal(p.held, arena_committed_bytes(a));
    assert_true(arena_mark(a) >= 10000 && arena_mark(a) <= p.held);
    arena_reset(a);
    assert_int_equal(p.held, arena_committed_bytes(a));
    arena_free(a);
    assert_int_equal(p.held, 0);
}

TEST(a_charge_that_says_no_is_a_null_and_moves_nothing)
{
    struct purse p = {.limit = 8192};
    struct arena *a = arena_of(&p, 1 << 20, 4096);
    size_t used = arena_mark(a);
    assert_null(arena_alloc(a, 20000));
    assert_false(arena_overran(a));
    assert_int_equal(p.held, 4096);
    assert_int_equal(arena_mark(a), used);
    assert_int_equal(arena_commit(a, 20000), -ENOMEM);
    assert_non_null(arena_alloc(a, 5000));
    arena_free(a);

    struct purse broke = {.limit = 100};
    struct charge charge = {purse_take, purse_give, &broke};
    struct arena *none = NULL;
    assert_int_equal(arena_create(&(struct arena_opts){1 << 20, 0, &charge}, &none), -ENOMEM);
    assert_null(none);
    assert_int_equal(broke.held, 0);
}

TEST(a_full_arena_is_a_null)
{
    struct purse p = {.limit = 1 << 20};
    struct arena *a = arena_of(&p, 64 * 1024, 4096);
    assert_non_null(arena_alloc(a, 64 * 1024));
    assert_false(arena_overran(a));
    assert_null(arena_alloc(a, 64 * 1024));
    assert_true(arena_overran(a));
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_alloc(a, SIZE_MAX - 4096));
    assert_null(ARENA_ARRAY(a, uint64_t, SIZE_MAX / 4));
    assert_null(arena_strndup(a, "x", SIZE_MAX));
    arena_free(a);
}

TEST(a_rewind_forgets_what_came_after_the_mark)
{
    struct purse p = {.limit = 1 << 20};
    struct arena *a = arena_of(&p, 1 << 20, 0);
    char *kept = arena_strndup(a, "kept", 4);
    size_t mark = arena_mark(a);
    char *first = arena_alloc(a, 100);
    arena_rewind(a, mark);
    char *second = arena_alloc(a, 100);
    assert_ptr_equal(first, second);
    assert_string_equal(kept, "kept");
    assert_stops(arena_rewind(a, SIZE_MAX));
    arena_free(a);
}

TEST(a_zero_block_is_a_pointer)
{
    struct purse p = {.limit = 1 << 20};
    struct arena *a = arena_of(&p, 1 << 20, 0);
    assert_non_null(arena_alloc(a, 0));
    assert_string_equal(arena_strndup(a, NULL, 0), "");
    arena_free(a);
}

TEST(what_is_committed_ahead_needs_no_charge_later)
{
    struct purse p = {.limit = 1 << 20};
    struct arena *a = arena_of(&p, 1 << 20, 4096);
    assert_int_equal(arena_commit(a, 100000), 0);
    p.limit = p.held;
    assert_non_null(arena_alloc_align(a, 100000, 1));
    arena_free(a);
}

/* Random sizes, alignments, marks, rewinds and resets: blocks are zeroed, aligned and never overlap. */
PROPERTY(blocks_are_zeroed_aligned_and_apart, seed)
{
    struct rng rng = {seed, 0};
    struct purse p = {.limit = 4 << 20};
    struct arena *a = arena_of(&p, 1 << 20, 4096);
    char *end = NULL;
    size_t mark = arena_mark(a);
    for (int i = 0; i < 200; i++) {
        if (rng_below(&rng, 40) == 0) {
            arena_reset(a);
            mark = arena_mark(a);
            end = NULL;
        } else if (rng_below(&rng, 20) == 0) {
            arena_rewind(a, mark);
            end = NULL;
        } else if (rng_below(&rng, 20) == 0) {
            mark = arena_mark(a);
        }
        size_t align = (size_t)1 << rng_below(&rng, 13);
        size_t bytes = rng_below(&rng, rng_below(&rng, 10) ? 300 : 20000);
        char *block = arena_alloc_align(a, bytes, align);
        if (!block)
            continue;
        assert_int_equal((uintptr_t)block % align, 0);
        assert_true(block >= end);
        assert_true(all_zero(block, bytes));
        memset(block, 0xA5, bytes);
        end = block + bytes;
        assert_int_equal(p.held, arena_committed_bytes(a));
    }
    arena_free(a);
    assert_int_equal(p.held, 0);
}

TEST_MAIN()
