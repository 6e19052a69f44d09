/* Every call of the system fails, or hangs: that costs hits, never more, and never time. */
#include "test_store.h"

#include "store/store_state.h"

#define LIMIT    ((uint64_t)64 << 20)
#define HANG_NS  (20 * NS_PER_MS)
#define NEVER_NS (3600 * NS_PER_S)

/* After any failure, read data is correct, nothing is held, and a store opened later serves. */
static void use(const char *dir)
{
    struct scene s;
    struct store_opts o = opts_of(dir, LIMIT);
    scene_open_with(&s, &o);
    wait_listed(&s);
    for (uint32_t i = 0; i < 12; i++)
        put(&s, i, i % 4 ? TIER_PAGE : TIER_SNAPSHOT);
    wait_written(&s);
    for (uint32_t i = 0; i < 12; i++)
        get(&s, i, i % 4 ? TIER_PAGE : TIER_SNAPSHOT);
    struct store_cleared c;
    struct store_numbers n = numbers(&s);
    if (n.state == STORE_ON && n.pages % 2)
        store_clear(s.store, &c);
    assert_int_equal(numbers(&s).staging_used_bytes, 0);
    scene_close(&s);
    test_ledger_after(true);
}

TEST(each_call_may_fail_at_each_time)
{
    static const int errors[] = {-EIO, -ENOSPC, -EROFS, -EACCES, -EMFILE, -EFBIG};
    const char *dir = test_dir();
    for (enum call c = 0; c < CALLS; c++) {
        for (unsigned at = 0; at < 20; at += 1 + at / 3) {
            sys_reset();
            sys_fail(c, errors[(c + at) % COUNT_OF(errors)], at, at % 2);
            use(dir);
        }
        sys_reset();
    }
    struct scene s;
    scene_open(&s, dir, LIMIT);
    put_surely(&s, 1, TIER_PAGE);
    wait_written(&s);
    assert_int_equal(get(&s, 1, TIER_PAGE), 0);
    scene_close(&s);
}

TEST(an_account_that_says_no_leaves_nothing)
{
    const char *dir = test_dir();
    uint32_t opened = 0;
    for (uint64_t limit = 0; opened < 3; limit += (uint64_t)200 << 10) {
        struct store *st;
        struct err e = {{0}};
        struct store_opts o = opts_of(dir, LIMIT);
        account_set_limit(o.staging, limit);
        int r = store_open(&o, &st, &e);
        assert_true(r == 0 || (r == -ENOMEM && e.text[0]));
        opened += r == 0;
        if (r == 0)
            store_close(st);
        assert_int_equal(account_numbers(o.staging).reserved, 0);
        test_ledger_after(true);
    }
}

TEST(short_reads_and_writes_and_no_o_direct_change_nothing)
{
    struct scene s;
    const char *dir = test_dir();
    for (unsigned direct = 0; direct < 2; direct++) {
        sys_reset();
        atomic_store(&sys_state.short_io, 1);
        atomic_store(&sys_state.no_direct, direct);
        scene_open(&s, dir, LIMIT);
        for (uint32_t i = 0; i < 20; i++)
            put_surely(&s, 100 * direct + i, TIER_PAGE);
        wait_written(&s);
        for (uint32_t i = 0; i < 20; i++)
            assert_int_equal(get(&s, 100 * direct + i, TIER_PAGE), 0);
        assert_int_equal(numbers(&s).errors, 0);
        scene_close(&s);
    }
}

TEST(a_full_disk_drops_writes_and_still_reads)
{
    struct scene s;
    const char *dir = test_dir();
    sys_reset();
    scene_open(&s, dir, LIMIT);
    assert_int_equal(put(&s, 1, TIER_PAGE), 0);
    wait_written(&s);
    sys_fail(CALL_PWRITE, -ENOSPC, 0, 0);
    assert_int_equal(put(&s, 2, TIER_PAGE), 0);
    wait_written(&s);
    assert_false(has(&s, 2, TIER_PAGE));
    /* Writes rest. */
    assert_int_equal(put(&s, 3, TIER_PAGE), -EAGAIN);
    assert_int_equal(get(&s, 1, TIER_PAGE), 0);
    struct store_numbers n = numbers(&s);
    assert_true(n.errors >= 1 && n.drops >= 2 && n.state == STORE_ON);
    sys_reset();
    usleep(1100 * 1000);
    assert_int_equal(put(&s, 3, TIER_PAGE), 0);
    wait_written(&s);
    assert_int_equal(get(&s, 3, TIER_PAGE), 0);
    assert_int_equal(numbers(&s).bytes, disk_usage(dir));
    scene_close(&s);
}

/* ---- hanging ---- */

static void wait_off(struct scene *s)
{
    uint64_t began_ns = clock_now_ns();
    while (numbers(s).state != STORE_OFF) {
        usleep(1000);
        assert_true(clock_now_ns() - began_ns < 30 * NS_PER_S);
    }
}

/* Until then a slow call, or a thread without a processor, is not taken for one that hangs. */
static void shorten_patience(struct scene *s)
{
    while (atomic_load(&sys_state.hanging) == 0)
        usleep(1000);
    pthread_mutex_lock(&s->store->lock);
    s->store->hang_ns = HANG_NS;
    pthread_mutex_unlock(&s->store->lock);
}

TEST(a_call_that_hangs_turns_the_tier_off_and_delays_nobody)
{
    static const enum call calls[] = {CALL_OPEN, CALL_PREAD, CALL_FSTAT, CALL_CLOSE};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        struct scene s;
        struct store_opts o = opts_of(test_dir(), LIMIT);
        struct prefix_key key = key_of(1);
        o.hang_ns = NEVER_NS;
        sys_reset();
        scene_open_with(&s, &o);
        assert_int_equal(wait_listed(&s).state, STORE_ON);
        assert_int_equal(put(&s, 1, TIER_PAGE), 0);
        wait_written(&s);
        atomic_store(&sys_state.hangs, calls[i] + 1);
        for (uint32_t k = 0; k < 6; k++)
            assert_int_equal(s.io.read(s.io.arg, &key, TIER_PAGE, 7, k), 0);
        shorten_patience(&s);
        wait_off(&s);
        /* Waiting readers get an answer; none of this waits for the disk. */
        uint64_t began_ns = clock_now_ns();
        struct tier_arrival a;
        uint32_t failed = 0;
        for (; s.io.take(s.io.arg, &a); failed++) {
            assert_int_equal(a.status, -ENODEV);
            s.io.give(s.io.arg, &a);
        }
        assert_true(failed == 4 || failed == 5);
        assert_int_equal(put(&s, 2, TIER_PAGE), -ENODEV);
        assert_int_equal(get(&s, 1, TIER_PAGE), -ENODEV);
        store_client_close(&s.io);
        assert_true(clock_now_ns() - began_ns < NS_PER_S);
        atomic_store(&sys_state.hangs, 0);
        store_close(s.store);
        sem_destroy(&s.woken);
    }
}

TEST(a_start_that_hangs_keeps_the_tier_off)
{
    static const enum call calls[] = {CALL_MKDIR, CALL_OPEN, CALL_LOCK, CALL_LIST, CALL_STAT};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        struct scene s;
        struct store_opts o = opts_of(test_dir(), LIMIT);
        o.hang_ns = HANG_NS;
        sys_reset();
        atomic_store(&sys_state.hangs, calls[i] + 1);
        scene_open_with(&s, &o);
        assert_false(has(&s, 1, TIER_PAGE));
        wait_off(&s);
        atomic_store(&sys_state.hangs, 0);
        scene_close(&s);
    }
    test_ledger_after(true);
}

TEST(a_write_that_hangs_turns_the_tier_off)
{
    static const enum call calls[] = {CALL_OPEN,   CALL_PWRITE, CALL_FSTAT, CALL_CLOSE, CALL_RENAME,
                                      CALL_UNLINK, CALL_MKDIR,  CALL_STAT,  CALL_SPACE};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        struct scene s;
        struct store_opts o = opts_of(test_dir(), STORE_LIMIT_LEAST);
        o.hang_ns = NEVER_NS;
        sys_reset();
        scene_open_with(&s, &o);
        assert_int_equal(wait_listed(&s).state, STORE_ON);
        /* Nearly full, for a removal belongs to it. */
        for (uint32_t k = 0; calls[i] == CALL_UNLINK && numbers(&s).bytes + 200000 < STORE_LIMIT_LEAST; k++) {
            put_surely(&s, k, TIER_PAGE);
            wait_written(&s);
        }
        atomic_store(&sys_state.hangs, calls[i] + 1);
        for (uint32_t k = 1000; k < 1010; k++)
            put(&s, k, TIER_PAGE);
        shorten_patience(&s);
        wait_off(&s);
        /* Writes that were queued and not begun are dropped; closing waits for nothing. */
        assert_int_equal(numbers(&s).queued_writes, 0);
        assert_true(numbers(&s).drops >= 3);
        uint64_t began_ns = clock_now_ns();
        store_client_close(&s.io);
        assert_true(clock_now_ns() - began_ns < NS_PER_S);
        atomic_store(&sys_state.hangs, 0);
        store_close(s.store);
        sem_destroy(&s.woken);
        test_ledger_after(true);
    }
}

TEST(a_thread_that_hangs_for_ever_is_left_behind_in_bounded_time)
{
    struct scene s;
    struct store_opts o = opts_of(test_dir(), LIMIT);
    o.close_ns = 100 * NS_PER_MS;
    sys_reset();
    scene_open_with(&s, &o);
    wait_listed(&s);
    assert_int_equal(put(&s, 1, TIER_PAGE), 0);
    wait_written(&s);
    assert_int_equal(put(&s, 2, TIER_PAGE), 0);
    atomic_store(&sys_state.hangs, CALL_RENAME + 1);
    assert_int_equal(put_surely(&s, 3, TIER_PAGE), 0);
    while (atomic_load(&sys_state.hanging) == 0)
        usleep(1000);
    uint64_t began_ns = clock_now_ns();
    scene_close(&s);
    assert_true(clock_now_ns() - began_ns < 2 * NS_PER_S);
    /* Its memory is there still: it may wake up. */
    atomic_store(&sys_state.hangs, 0);
    usleep(20000);
}

TEST_MAIN()
