/* Packers: every tile once, on all threads; the first failure; nothing beside a busy engine. */
#include "test_ledger.h"

#include "base/check.h"
#include "compute/backend.h"
#include "model/load/packers.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#define TILES 500

static atomic_bool busy;

static bool is_busy(const struct device *d)
{
    (void)d;
    return atomic_load(&busy);
}

struct scene {
    struct packers packers;
    struct device device;
    struct account *account;
    /* State of the work. */
    atomic_uint taken[TILES], stages_used, between;
    uint32_t fails_from, ends_after;
    struct weight_staging *stages[PACKERS_MAX];
};

static const struct device_ops ops = {.is_busy = is_busy};
static const struct backend apart = {.name = "test", .apart = true};

static struct scene *scene_new(struct account *account)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->device = (struct device){.ops = &ops, .backend = &apart, .workers = 1};
    s->account = account;
    s->fails_from = s->ends_after = UINT32_MAX;
    const struct packers_opts opts = {.account = account, .device = &s->device, .stage_bytes = 65536};
    atomic_store(&busy, false);
    assert_int_equal(packers_start(&s->packers, &opts), 0);
    assert_int_equal(s->packers.count, MIN_OF(device_default_workers(), PACKERS_MAX));
    return s;
}

static void scene_free(struct scene *s)
{
    packers_stop(&s->packers);
    free(s);
}

static int take_tile(void *arg, uint32_t tile, struct weight_staging *stage, struct err *e)
{
    struct scene *s = arg;
    size_t own = (size_t)((char *)stage - (char *)s->packers.each) / sizeof(s->packers.each[0]);
    assert_ptr_equal(stage, &s->packers.each[own].stage);
    assert_non_null(stage->memory);
    stage->memory[0]++;
    atomic_fetch_or(&s->stages_used, 1u << own);
    atomic_fetch_add(&s->taken[tile], 1);
    if (tile % 8 == 0)
        usleep(100); /* so that others get tiles, too */
    return tile >= s->fails_from ? err_set(e, -EINVAL, "tile %u", tile) : 0;
}

static int count_between(void *arg)
{
    struct scene *s = arg;
    return atomic_fetch_add(&s->between, 1) + 1 == s->ends_after ? -ECANCELED : 0;
}

static int run(struct scene *s, struct err *e)
{
    const struct packers_work work = {.tile = take_tile, .between = count_between, .arg = s};
    return packers_run(&s->packers, &work, TILES, e);
}

TEST(every_tile_is_taken_once)
{
    struct scene *s = scene_new(NULL);
    struct err e = {{0}};
    for (uint32_t round = 1; round <= 20; round++) {
        assert_int_equal(run(s, &e), 0);
        for (uint32_t i = 0; i < TILES; i++)
            assert_int_equal(atomic_load(&s->taken[i]), round);
    }
    assert_true(atomic_load(&s->between) > 0 && e.text[0] == 0);
    scene_free(s);
}

static int wait_for_the_other(void *arg, uint32_t tile, struct weight_staging *stage, struct err *e)
{
    struct scene *s = arg;
    (void)stage, (void)e;
    atomic_fetch_add(&s->taken[tile], 1);
    for (int ms = 0; atomic_load(&s->taken[1 - tile]) == 0; ms++) {
        assert_true(ms < 60000);
        usleep(1000);
    }
    return 0;
}

TEST(two_threads_work_at_once)
{
    struct scene *s = scene_new(NULL);
    const struct packers_work work = {.tile = wait_for_the_other, .arg = s};
    if (s->packers.count > 1)
        assert_int_equal(packers_run(&s->packers, &work, 2, NULL), 0);
    scene_free(s);
}

TEST(the_first_tile_that_fails_is_told)
{
    struct scene *s = scene_new(NULL);
    for (uint32_t round = 0; round < 20; round++) {
        struct err e = {{0}};
        s->fails_from = 17 * round;
        char text[16];
        snprintf(text, sizeof(text), "tile %u", s->fails_from);
        assert_int_equal(run(s, &e), -EINVAL);
        assert_string_equal(e.text, text);
    }
    assert_int_equal(atomic_load(&s->taken[TILES - 1]), 0);
    scene_free(s);
}

TEST(what_runs_between_ends_the_work)
{
    struct scene *s = scene_new(NULL);
    struct err e = {"its own"};
    s->ends_after = 3;
    assert_int_equal(run(s, &e), -ECANCELED);
    assert_int_equal(atomic_load(&s->between), 3);
    assert_int_equal(atomic_load(&s->taken[TILES - 1]), 0);
    assert_string_equal(e.text, "its own");
    scene_free(s);
}

TEST(beside_a_busy_engine_the_loading_thread_is_alone)
{
    struct scene *s = scene_new(NULL);
    struct err e = {{0}};
    atomic_store(&busy, true);
    assert_int_equal(run(s, &e), 0);
    assert_int_equal(atomic_load(&s->stages_used), 1);
    assert_int_equal(atomic_load(&s->between), TILES);
    scene_free(s);
}

static int take_with_empty_stage(void *arg, uint32_t tile, struct weight_staging *stage, struct err *e)
{
    struct scene *s = arg;
    (void)e;
    assert_null(stage->memory);
    atomic_fetch_add(&s->taken[tile], 1);
    return 0;
}

TEST(packers_without_stages_charge_stacks_alone)
{
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    struct scene *s = scene_new(NULL);
    const struct packers_opts opts = {.account = account, .device = &s->device};
    const struct packers_work work = {.tile = take_with_empty_stage, .arg = s};
    packers_stop(&s->packers);
    assert_int_equal(packers_start(&s->packers, &opts), 0);
    assert_int_equal(s->packers.count, MIN_OF(device_default_workers(), PACKERS_MAX));
    assert_int_equal(account_numbers(account).used, packers_bytes(0));
    assert_int_equal(packers_run(&s->packers, &work, TILES, NULL), 0);
    assert_int_equal(atomic_load(&s->taken[TILES - 1]), 1);
    scene_free(s);
    assert_int_equal(account_numbers(account).used, 0);
}

static int take_without_stage(void *arg, uint32_t tile, struct weight_staging *stage, struct err *e)
{
    struct scene *s = arg;
    assert_null(stage);
    atomic_fetch_add(&s->taken[tile], 1);
    return tile == s->fails_from ? err_set(e, -EIO, "tile %u", tile) : 0;
}

TEST(without_packers_the_caller_does_it_all)
{
    struct scene s = {.fails_from = 7};
    struct err e = {{0}};
    const struct packers_work work = {.tile = take_without_stage, .arg = &s};
    assert_int_equal(packers_run(NULL, &work, 7, &e), 0);
    assert_int_equal(packers_run(&s.packers, &work, TILES, &e), -EIO);
    assert_string_equal(e.text, "tile 7");
    assert_int_equal(atomic_load(&s.taken[6]), 2);
    assert_int_equal(atomic_load(&s.taken[8]), 0);
    packers_stop(&s.packers);
}

TEST(stages_and_stacks_are_charged)
{
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    struct scene *s = scene_new(account);
    struct account_numbers n = account_numbers(account);
    assert_int_equal(n.used, packers_bytes(65536));
    scene_free(s);
    n = account_numbers(account);
    assert_int_equal(n.used, 0);
    assert_int_equal(n.reserved, 0);
}

/* Stages of which two take all that all may. */
TEST(large_stages_make_fewer_packers)
{
    uint64_t one = packers_bytes((uint64_t)16 << 20);
    assert_int_equal(one, (uint64_t)16 << 20);
    assert_true(packers_bytes((uint64_t)4 << 20) <= ((uint64_t)8 << 20) + PACKERS_MAX * ((uint64_t)1 << 20));
}

TEST_MAIN()
