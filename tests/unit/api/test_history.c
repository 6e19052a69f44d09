/* The history: samples come back as they were put in, gaps stay gaps, seven days take no more memory than
 * one second, and a leak of 1 MiB an hour is seen through the load of an agent's day. */
#include "test.h"
#include "api/report/history.h"
#include "base/check.h"
#include "base/clock.h"

#include <math.h>

#define MIB   ((double)(1 << 20))
#define HOUR  (3600 * NS_PER_S)
#define START (5 * HOUR + 123) /* clock of a machine that has been up */

static struct history *open_history(void)
{
    void *memory = malloc(history_bytes());
    assert_non_null(memory);
    memset(memory, 0xa5, history_bytes());
    return history_make(memory);
}

static void add_all(struct history *h, uint64_t now_ns, float value)
{
    float values[HISTORY_SERIES_COUNT];
    for (uint32_t i = 0; i < HISTORY_SERIES_COUNT; i++)
        values[i] = value;
    history_add(h, now_ns, values);
}

static uint32_t count_filled(const struct history *h, enum history_range range, uint64_t now_ns)
{
    struct history_point p[HISTORY_POINTS_MAX];
    uint32_t filled = 0;
    history_read(h, HISTORY_USED, range, now_ns, p);
    for (uint32_t i = 0; i < history_window_of(range, now_ns).count; i++)
        filled += !isnan(p[i].mean);
    return filled;
}

TEST(it_takes_less_than_a_mebibyte)
{
    assert_true(history_bytes() <= 800 << 10);
}

TEST(ranges_have_names)
{
    for (uint32_t i = 0; i < HISTORY_RANGE_COUNT; i++) {
        const char *name = history_range_name((enum history_range)i);
        assert_int_equal(history_range_of(name, strlen(name)), i);
        struct history_window w = history_window_of((enum history_range)i, START);
        assert_true(w.count <= HISTORY_POINTS_MAX);
    }
    assert_int_equal(history_range_of("5", 1), HISTORY_RANGE_COUNT);
    assert_int_equal(history_range_of("", 0), HISTORY_RANGE_COUNT);
}

TEST(an_empty_history_has_empty_points)
{
    struct history *h = open_history();
    for (uint32_t i = 0; i < HISTORY_RANGE_COUNT; i++) {
        assert_int_equal(count_filled(h, (enum history_range)i, START), 0);
        assert_int_equal(count_filled(h, (enum history_range)i, 0), 0);
        assert_int_equal(history_trend(h, (enum history_range)i, START).verdict, HISTORY_UNKNOWN);
    }
    free(h);
}

TEST(samples_come_back_in_their_place)
{
    struct history *h = open_history();
    struct history_point p[HISTORY_POINTS_MAX];
    for (uint32_t i = 0; i < 20; i++)
        add_all(h, START + i * NS_PER_S, (float)i);
    uint64_t now_ns = START + 22 * NS_PER_S;
    history_read(h, HISTORY_RUNNING, HISTORY_5M, now_ns, p);
    assert_true(isnan(p[299].mean) && isnan(p[297].mean) && isnan(p[276].mean));
    for (uint32_t i = 0; i < 20; i++)
        assert_true(p[277 + i].mean == (float)i);
    assert_int_equal(count_filled(h, HISTORY_5M, now_ns), 20);
    free(h);
}

/* The mean, least and largest of a minute's samples, against sums made here. */
PROPERTY(a_bucket_has_its_samples_mean_least_and_largest, seed)
{
    struct rng rng = {seed, 0};
    struct history *h = open_history();
    struct history_point p[HISTORY_POINTS_MAX];
    uint64_t first = START / (240 * NS_PER_S) * (240 * NS_PER_S);
    double sum[4] = {0};
    float least = INFINITY, most = -INFINITY;
    for (uint32_t i = 0; i < 240; i++) {
        float value = (float)rng_below(&rng, 1000) - 500;
        add_all(h, first + i * NS_PER_S, value);
        sum[i / 60] += (double)value;
        least = fminf(least, value);
        most = fmaxf(most, value);
    }
    history_read(h, HISTORY_USED, HISTORY_24H, first + 239 * NS_PER_S, p);
    assert_true(p[359].min == least && p[359].max == most);
    assert_true(fabs((double)p[359].mean - (sum[0] + sum[1] + sum[2] + sum[3]) / 240) < 0.01);
    assert_true(isnan(p[358].mean));
    free(h);
}

TEST(a_gap_stays_empty_and_old_samples_leave)
{
    struct history *h = open_history();
    add_all(h, START, 1);
    add_all(h, START + 100 * NS_PER_S, 2);
    assert_int_equal(count_filled(h, HISTORY_5M, START + 100 * NS_PER_S), 2);
    assert_int_equal(count_filled(h, HISTORY_5M, START + 350 * NS_PER_S), 1);
    add_all(h, START + 2 * HOUR, 3); /* longer than the ring of seconds */
    assert_int_equal(count_filled(h, HISTORY_1H, START + 2 * HOUR), 1);
    assert_int_equal(count_filled(h, HISTORY_24H, START + 2 * HOUR), 2);
    add_all(h, START + 40 * 24 * HOUR, 4); /* longer than all of them */
    for (uint32_t i = 0; i < HISTORY_RANGE_COUNT; i++)
        assert_int_equal(count_filled(h, (enum history_range)i, START + 40 * 24 * HOUR), 1);
    free(h);
}

TEST(a_sample_that_is_none_leaves_its_series_empty)
{
    struct history *h = open_history();
    struct history_point p[HISTORY_POINTS_MAX];
    float values[HISTORY_SERIES_COUNT] = {0};
    values[HISTORY_FIRST_TOKEN] = NAN;
    history_add(h, START, values);
    history_read(h, HISTORY_FIRST_TOKEN, HISTORY_24H, START, p);
    assert_true(isnan(p[359].mean) && isnan(p[359].max));
    values[HISTORY_FIRST_TOKEN] = 2;
    history_add(h, START + NS_PER_S, values);
    history_read(h, HISTORY_FIRST_TOKEN, HISTORY_24H, START + NS_PER_S, p);
    assert_true(p[359].mean == 2 && p[359].min == 2 && p[359].max == 2);
    free(h);
}

/* Agents that work by day: bytes of requests and of a cache that fills, and noise of the allocator. */
static void live(struct history *h, uint32_t days, double leak_per_hour, uint64_t seed)
{
    struct rng rng = {seed, 0};
    for (uint64_t s = 0; s < days * 86400ull; s++) {
        float values[HISTORY_SERIES_COUNT] = {0};
        double hours = (double)s / 3600, noise = (double)rng_below(&rng, 1 << 20);
        double load = fmax(0, sin(hours * M_PI / 12)) * (double)rng_below(&rng, 400) * MIB;
        values[HISTORY_USED] = (float)(300 * MIB + load);
        values[HISTORY_STEADY] = (float)(60 * MIB + load + noise + leak_per_hour * hours);
        history_add(h, START + s * NS_PER_S, values);
    }
}

TEST(seven_days_show_a_leak_of_one_mebibyte_an_hour)
{
    struct history *h = open_history();
    live(h, 7, MIB, 1);
    uint64_t now_ns = START + 7 * 24 * HOUR - NS_PER_S;
    struct history_trend day = history_trend(h, HISTORY_24H, now_ns),
                         week = history_trend(h, HISTORY_7D, now_ns);
    assert_int_equal(week.verdict, HISTORY_RISING);
    assert_true(fabs(week.bytes_per_hour - MIB) < 0.1 * MIB);
    assert_int_equal(day.verdict, HISTORY_RISING);
    assert_true(fabs(day.bytes_per_hour - MIB) < 0.2 * MIB);
    free(h);
}

TEST(seven_days_without_a_leak_are_flat)
{
    struct history *h = open_history();
    live(h, 7, 0, 2);
    uint64_t now_ns = START + 7 * 24 * HOUR - NS_PER_S;
    for (uint32_t i = HISTORY_24H; i <= HISTORY_7D; i++) {
        struct history_trend t = history_trend(h, (enum history_range)i, now_ns);
        assert_int_equal(t.verdict, HISTORY_FLAT);
        assert_true(fabs(t.bytes_per_hour) < 0.1 * MIB);
    }
    assert_int_equal(history_trend(h, HISTORY_30D, now_ns).verdict, HISTORY_UNKNOWN);
    free(h);
}

/* Five minutes of a server whose memory grows while it starts, and no longer. */
TEST(the_growth_of_a_start_is_no_trend)
{
    struct history *h = open_history();
    for (uint32_t s = 0; s < 300; s++) {
        float values[HISTORY_SERIES_COUNT] = {0};
        values[HISTORY_STEADY] = (float)(20 * MIB + fmin(s, 55) * MIB);
        history_add(h, START + s * NS_PER_S, values);
    }
    struct history_trend t = history_trend(h, HISTORY_5M, START + 299 * NS_PER_S);
    assert_int_equal(t.verdict, HISTORY_FLAT);
    assert_true(fabs(t.bytes_per_hour) < 0.1 * MIB);
    free(h);
}

TEST_MAIN()
