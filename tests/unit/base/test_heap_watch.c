/* Allocations of a thread that may not are seen, whichever function makes them. */
#include "test.h"

#include "base/heap_watch.h"

#include <malloc.h>
#include <pthread.h>

/* Returns how many allocations were counted while `call` ran on a thread that may not allocate. */
#define COUNTED(call)                                                                                        \
    ({                                                                                                       \
        uint64_t before = heap_watch_forbidden();                                                            \
        heap_watch_forbid(true);                                                                             \
        call;                                                                                                \
        heap_watch_forbid(false);                                                                            \
        heap_watch_forbidden() - before;                                                                     \
    })

TEST(every_function_that_allocates_is_counted)
{
    void *volatile p = NULL;
    void *q = NULL;
    heap_watch_set_trap(false);
    assert_int_equal(COUNTED(p = malloc(10)), 1);
    assert_int_equal(COUNTED(p = realloc(p, 100000)), 1);
    assert_int_equal(COUNTED(free(p)), 0);
    assert_int_equal(COUNTED(p = calloc(3, 5)), 1);
    assert_int_equal(((char *)p)[14], 0);
    free(p);
    assert_int_equal(COUNTED(p = reallocarray(NULL, 3, 5)), 1);
    free(p);
    assert_int_equal(COUNTED(p = aligned_alloc(64, 128)), 1);
    assert_int_equal((uintptr_t)p % 64, 0);
    free(p);
    assert_int_equal(COUNTED(p = memalign(256, 10)), 1);
    assert_int_equal((uintptr_t)p % 256, 0);
    free(p);
    assert_int_equal(COUNTED(p = valloc(10)), 1);
    assert_int_equal((uintptr_t)p % 4096, 0);
    free(p);
    assert_int_equal(COUNTED((void)!posix_memalign(&q, 32, 10)), 1);
    free(q);
    /* Within a library. */
    assert_int_equal(COUNTED(p = strdup("text")), 1);
    free(p);
}

TEST(every_block_has_the_alignment_asked_for)
{
    /* All are held: one block alone may be aligned by chance. */
    void *blocks[4][16];
    for (size_t i = 0; i < 16; i++) {
        blocks[0][i] = aligned_alloc(64, 64);
        blocks[1][i] = memalign(256, 10);
        blocks[2][i] = valloc(10);
        assert_int_equal(posix_memalign(&blocks[3][i], 32, 10), 0);
    }
    static const uintptr_t alignments[4] = {64, 256, 4096, 32};
    for (size_t kind = 0; kind < 4; kind++)
        for (size_t i = 0; i < 16; i++) {
            assert_non_null(blocks[kind][i]);
            assert_int_equal((uintptr_t)blocks[kind][i] % alignments[kind], 0);
            free(blocks[kind][i]);
        }
}

static void *allocate(void *arg)
{
    free(malloc(100));
    return arg;
}

TEST(other_threads_may)
{
    pthread_t thread;
    heap_watch_set_trap(false);
    uint64_t before = heap_watch_forbidden(), seen = heap_watch_seen();
    assert_int_equal(pthread_create(&thread, NULL, allocate, NULL), 0);
    heap_watch_forbid(true);
    pthread_join(thread, NULL);
    heap_watch_forbid(false);
    assert_int_equal(heap_watch_forbidden(), before);
    assert_true(heap_watch_seen() > seen);
}

static void allocate_forbidden(void)
{
    void *volatile p = NULL;
    heap_watch_set_trap(true);
    heap_watch_forbid(true);
    p = malloc(1);
    free(p);
}

TEST(the_trap_stops_the_process)
{
    assert_stops_saying(allocate_forbidden(), "a thread that may not allocate did");
}

TEST_MAIN()
