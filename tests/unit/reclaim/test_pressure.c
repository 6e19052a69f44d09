/* Pressure from outside: the figures that show it; and that stages rise in order, fall slowly and do not
 * oscillate. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "memory/footprint.h"
#include "reclaim/pressure.h"

#include <string.h>

#define GIB ((uint64_t)1 << 30)
#define S   1000000000ull

static enum pressure_level level_of(struct footprint f)
{
    return pressure_level_of(&f, NULL);
}

TEST(unknown_figures_say_nothing)
{
    assert_int_equal(level_of((struct footprint){0}), PRESSURE_CALM);
    assert_int_equal(level_of((struct footprint){.ram_bytes = 64 * GIB}), PRESSURE_CALM);
    assert_int_equal(level_of((struct footprint){.cgroup_bytes = 64 * GIB}), PRESSURE_CALM);
}

TEST(each_figure_counts_and_the_worst_is_named)
{
    const char *why;
    /* The reserve of 64 GiB is 3.2 GiB. */
    struct footprint f = {.ram_bytes = 64 * GIB, .ram_available_bytes = 3 * GIB};
    assert_int_equal(level_of(f), PRESSURE_CALM);
    f.ram_available_bytes = 2 * GIB;
    assert_int_equal(level_of(f), PRESSURE_EASED);
    f.ram_available_bytes = GIB;
    assert_int_equal(pressure_level_of(&f, &why), PRESSURE_SHORT);
    assert_string_equal(why, "memory_available");
    f.ram_available_bytes = GIB / 4;
    assert_int_equal(level_of(f), PRESSURE_CRITICAL);
    f.ram_available_bytes = 40 * GIB;
    f.cgroup_limit_bytes = 1000 * GIB;
    f.cgroup_bytes = 899 * GIB;
    assert_int_equal(level_of(f), PRESSURE_CALM);
    f.cgroup_bytes = 920 * GIB;
    assert_int_equal(level_of(f), PRESSURE_EASED);
    f.cgroup_bytes = 960 * GIB;
    assert_int_equal(pressure_level_of(&f, &why), PRESSURE_SHORT);
    assert_string_equal(why, "cgroup");
    f.cgroup_bytes = 990 * GIB;
    assert_int_equal(level_of(f), PRESSURE_CRITICAL);
    f.cgroup_bytes = 500 * GIB;
    f.cgroup_high_bytes = 520 * GIB;
    assert_int_equal(level_of(f), PRESSURE_SHORT);
    f.cgroup_high_bytes = 0;
    f.stalled_some = 30;
    assert_int_equal(level_of(f), PRESSURE_CALM); /* perhaps of another cgroup */
    f.stalled_is_own = true;
    assert_int_equal(pressure_level_of(&f, &why), PRESSURE_SHORT);
    assert_string_equal(why, "stalls");
    f.stalled_full = 30;
    assert_int_equal(level_of(f), PRESSURE_CRITICAL);
}

TEST(stages_rise_one_at_a_time_and_refuse_only_when_critical)
{
    struct pressure p = {0};
    uint64_t now = 100 * S;
    assert_true(pressure_update(&p, PRESSURE_SHORT, now));
    assert_int_equal(p.stage, PRESSURE_SHRINK);
    for (int i = 0; i < 60; i++)
        pressure_update(&p, PRESSURE_SHORT, now += S);
    assert_int_equal(p.stage, PRESSURE_UNLOAD);
    assert_true(pressure_update(&p, PRESSURE_CRITICAL, now += S));
    assert_int_equal(p.stage, PRESSURE_REFUSE);
    /* Less bad is enough for work to be taken again, calm for the rest to end. */
    for (int i = 0; i < 60; i++)
        pressure_update(&p, PRESSURE_SHORT, now += S);
    assert_int_equal(p.stage, PRESSURE_UNLOAD);
    for (int i = 0; i < 60; i++)
        pressure_update(&p, PRESSURE_EASED, now += S);
    assert_int_equal(p.stage, PRESSURE_UNLOAD);
    int seconds = 0;
    for (; p.stage != PRESSURE_NONE; seconds++)
        pressure_update(&p, PRESSURE_CALM, now += S);
    assert_in_range(seconds, 15, 18);
}

/* Whatever the figures do: one stage at a time, up only while it is short, and no more than one change in a
 * second. */
PROPERTY(the_stage_does_not_swing, seed)
{
    struct rng rng = {seed, 0};
    struct pressure p = {0};
    uint64_t now = 1000 * S, changed = 0;
    enum pressure_level level = PRESSURE_CALM;
    for (int i = 0; i < 3000; i++) {
        now += 900000000ull + rng_below(&rng, 200000000ull);
        if (rng_below(&rng, 4) == 0)
            level = (enum pressure_level)rng_below(&rng, 4);
        enum pressure_stage before = p.stage;
        bool told = pressure_update(&p, level, now);
        assert_true(told == (p.stage != before));
        assert_true(p.stage <= before + 1 && p.stage + 1 >= before);
        if (p.stage > before) {
            assert_true(level >= PRESSURE_SHORT);
            assert_true(p.stage < PRESSURE_REFUSE || level == PRESSURE_CRITICAL);
        }
        if (p.stage < before)
            assert_true(now - changed >= PRESSURE_FALL_NS && level < PRESSURE_CRITICAL);
        changed = told ? now : changed;
    }
    for (int i = 0; i < 40; i++)
        pressure_update(&p, PRESSURE_CALM, now += S);
    assert_int_equal(p.stage, PRESSURE_NONE);
}

/* Stalls of the whole machine count once no more than twice the reserve is available. */
TEST(stalls_of_others_count_when_memory_is_short)
{
    struct footprint f = {.ram_bytes = 64 * GIB, .stalled_some = 30};
    f.ram_available_bytes = 2 * footprint_reserve(&f);
    assert_int_equal(level_of(f), PRESSURE_SHORT);
    f.ram_available_bytes++;
    assert_int_equal(level_of(f), PRESSURE_CALM);
}

TEST_MAIN()
