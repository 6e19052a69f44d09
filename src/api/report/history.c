/* history.c - a bucket's place is its time modulo the ring, so that nothing is ever moved.
 *
 * The bucket of now is written with each sample: its mean from a sum that only the newest bucket of a ring
 * needs. The least of each part is what the trend looks at, because load comes on top of what stays. */
#include "api/report/history.h"

#include "base/check.h"
#include "base/clock.h"

#include <math.h>
#include <string.h>

#define FINE_COUNT   3600
#define COARSE_COUNT 1440
#define LEVELS       3
#define TREND_PARTS  12
#define TREND_LEAST  ((double)(4 << 20))
/* Buffers and the allocator grow to their size with the first requests. */
#define START_NS (60 * NS_PER_S)

typedef float row[HISTORY_SERIES_COUNT];

struct wide {
    row mean, min, max;
};

/* Sums of the newest bucket of a level. */
struct sums {
    double sum[HISTORY_SERIES_COUNT];
    uint32_t count[HISTORY_SERIES_COUNT];
};

struct history {
    uint64_t steady_ns;      /* from here on memory should be steady; 0: no sample yet */
    uint64_t newest[LEVELS]; /* index of the newest bucket + 1; 0: none yet */
    struct sums sums[LEVELS];
    row fine[FINE_COUNT];
    struct wide minutes[COARSE_COUNT], halves[COARSE_COUNT];
};

static const struct {
    uint64_t step_ns;
    uint32_t count;
} levels[LEVELS] = {{NS_PER_S, FINE_COUNT}, {60 * NS_PER_S, COARSE_COUNT}, {1800 * NS_PER_S, COARSE_COUNT}};

static const struct {
    const char *name;
    uint32_t level, merged, points;
} ranges[HISTORY_RANGE_COUNT] = {
    [HISTORY_5M] = {"5m", 0, 1, 300}, [HISTORY_1H] = {"1h", 0, 10, 360},  [HISTORY_24H] = {"24h", 1, 4, 360},
    [HISTORY_7D] = {"7d", 2, 1, 336}, [HISTORY_30D] = {"30d", 2, 4, 360},
};

enum history_range history_range_of(const char *name, size_t len)
{
    uint32_t i = 0;
    while (i < HISTORY_RANGE_COUNT &&
           (strlen(ranges[i].name) != len || memcmp(ranges[i].name, name, len) != 0))
        i++;
    return (enum history_range)i;
}

const char *history_range_name(enum history_range range)
{
    ASSERT(range < HISTORY_RANGE_COUNT);
    return ranges[range].name;
}

size_t history_bytes(void)
{
    return sizeof(struct history);
}

struct history *history_make(void *memory)
{
    struct history *h = memory;
    memset(h, 0, sizeof(*h));
    return h;
}

/* ---- buckets ---- */

static void clear_row(row r)
{
    for (uint32_t s = 0; s < HISTORY_SERIES_COUNT; s++)
        r[s] = NAN;
}

static struct wide *wide_at(struct history *h, uint32_t level, uint64_t index)
{
    ASSERT(level == 1 || level == 2);
    return &(level == 1 ? h->minutes : h->halves)[index % COARSE_COUNT];
}

static void clear_bucket(struct history *h, uint32_t level, uint64_t index)
{
    ASSERT(level < LEVELS);
    if (level == 0) {
        clear_row(h->fine[index % FINE_COUNT]);
        return;
    }
    struct wide *w = wide_at(h, level, index);
    clear_row(w->mean);
    clear_row(w->min);
    clear_row(w->max);
}

/* Makes the bucket the newest one; those between have no samples. */
static void advance(struct history *h, uint32_t level, uint64_t index)
{
    uint64_t first =
        MAX_OF(h->newest[level], index + 1 > levels[level].count ? index + 1 - levels[level].count : 0);
    if (h->newest[level] > index)
        return;
    for (uint64_t i = first; i <= index; i++)
        clear_bucket(h, level, i);
    h->newest[level] = index + 1;
    memset(&h->sums[level], 0, sizeof(h->sums[level]));
}

static void add_wide(struct wide *w, struct sums *sums, const row values)
{
    for (uint32_t s = 0; s < HISTORY_SERIES_COUNT; s++) {
        if (isnan(values[s]))
            continue;
        sums->sum[s] += (double)values[s];
        sums->count[s]++;
        w->mean[s] = (float)(sums->sum[s] / sums->count[s]);
        w->min[s] = fminf(values[s], w->min[s]); /* the number, where the other is none */
        w->max[s] = fmaxf(values[s], w->max[s]);
    }
}

void history_add(struct history *h, uint64_t now_ns, const float given[HISTORY_SERIES_COUNT])
{
    row values;
    memcpy(values, given, sizeof(values));
    if (h->steady_ns == 0)
        h->steady_ns = now_ns + START_NS;
    if (now_ns < h->steady_ns)
        values[HISTORY_STEADY] = NAN;
    for (uint32_t level = 0; level < LEVELS; level++) {
        uint64_t index = now_ns / levels[level].step_ns;
        advance(h, level, index);
        if (level == 0)
            memcpy(h->fine[index % FINE_COUNT], values, sizeof(row));
        else
            add_wide(wide_at(h, level, index), &h->sums[level], values);
    }
}

/* ---- reading ---- */

static uint64_t last_index(enum history_range range, uint64_t now_ns)
{
    ASSERT(range < HISTORY_RANGE_COUNT);
    return now_ns / levels[ranges[range].level].step_ns;
}

struct history_window history_window_of(enum history_range range, uint64_t now_ns)
{
    ASSERT(range < HISTORY_RANGE_COUNT);
    uint64_t step_ns = levels[ranges[range].level].step_ns * ranges[range].merged;
    uint64_t end_ns = (last_index(range, now_ns) / ranges[range].merged + 1) * step_ns;
    return (struct history_window){.count = ranges[range].points,
                                   .step_ns = step_ns,
                                   .from_ns = end_ns - ranges[range].points * step_ns};
}

static struct history_point bucket(const struct history *h, uint32_t level, uint64_t index, uint32_t series)
{
    ASSERT(level < LEVELS && series < HISTORY_SERIES_COUNT);
    struct history_point none = {NAN, NAN, NAN};
    if (index >= h->newest[level] || index + levels[level].count < h->newest[level])
        return none;
    if (level == 0) {
        float value = h->fine[index % FINE_COUNT][series];
        return (struct history_point){value, value, value};
    }
    const struct wide *w = wide_at((struct history *)h, level, index);
    return (struct history_point){w->mean[series], w->min[series], w->max[series]};
}

static bool was_sampled(const struct history *h, uint32_t level, uint64_t index)
{
    return !isnan(bucket(h, level, index, HISTORY_USED).mean);
}

static struct history_point merge(const struct history *h, uint32_t level, uint64_t first, uint32_t count,
                                  uint32_t series)
{
    struct history_point p = {NAN, NAN, NAN};
    double sum = 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct history_point b = bucket(h, level, first + i, series);
        if (isnan(b.mean))
            continue;
        sum += (double)b.mean;
        found++;
        p.min = fminf(b.min, p.min);
        p.max = fmaxf(b.max, p.max);
    }
    if (found > 0)
        p.mean = (float)(sum / found);
    return p;
}

/* Index of the first bucket of a point; those before time 0 are far beyond the newest one, and empty. */
static uint64_t first_bucket(enum history_range range, uint64_t now_ns, uint32_t point)
{
    uint32_t merged = ranges[range].merged;
    return (last_index(range, now_ns) / merged + 1 - ranges[range].points + point) * merged;
}

void history_read(const struct history *h, enum history_series series, enum history_range range,
                  uint64_t now_ns, struct history_point ret[HISTORY_POINTS_MAX])
{
    ASSERT(range < HISTORY_RANGE_COUNT && series < HISTORY_SERIES_COUNT);
    for (uint32_t i = 0; i < ranges[range].points; i++)
        ret[i] = merge(h, ranges[range].level, first_bucket(range, now_ns, i), ranges[range].merged, series);
}

/* ---- the trend ---- */

const char *history_verdict_name(enum history_verdict v)
{
    static const char *const names[] = {"unknown", "flat", "rising", "falling"};
    ASSERT(v < COUNT_OF(names));
    return names[v];
}

/* The least value of each part of the range; NAN: the part has no sample. Returns the share of the range's
 * points that have one. */
static double least_of_parts(const struct history *h, enum history_range range, uint64_t now_ns,
                             double ret[TREND_PARTS])
{
    uint32_t points = ranges[range].points, level = ranges[range].level, filled = 0;
    for (uint32_t i = 0; i < TREND_PARTS; i++)
        ret[i] = NAN;
    for (uint32_t i = 0; i < points; i++) {
        uint64_t first = first_bucket(range, now_ns, i);
        struct history_point p = merge(h, level, first, ranges[range].merged, HISTORY_STEADY);
        double *part = &ret[i * TREND_PARTS / points];
        filled += !isnan(p.min) || was_sampled(h, level, first);
        *part = fmin(*part, (double)p.min);
    }
    return (double)filled / points;
}

struct line {
    double slope, scatter; /* per part */
    uint32_t count;
};

static struct line fit(const double values[TREND_PARTS])
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, rest = 0;
    for (uint32_t i = 0; i < TREND_PARTS; i++) {
        if (isnan(values[i]))
            continue;
        n++;
        x += i;
        y += values[i];
        xx += (double)i * i;
        xy += i * values[i];
    }
    double wide = n * xx - x * x, slope = wide > 0 ? (n * xy - x * y) / wide : 0;
    double start = n > 0 ? (y - slope * x) / n : 0;
    for (uint32_t i = 0; i < TREND_PARTS; i++)
        if (!isnan(values[i]))
            rest += pow(values[i] - start - slope * i, 2);
    return (struct line){slope, n > 2 ? sqrt(rest / (n - 2)) : 0, (uint32_t)n};
}

struct history_trend history_trend(const struct history *h, enum history_range range, uint64_t now_ns)
{
    double parts[TREND_PARTS];
    ASSERT(range < HISTORY_RANGE_COUNT);
    double filled = least_of_parts(h, range, now_ns, parts);
    struct line line = fit(parts);
    struct history_window w = history_window_of(range, now_ns);
    double part_hours = (double)(w.step_ns * w.count) / TREND_PARTS / (double)(3600 * NS_PER_S);
    struct history_trend t = {HISTORY_UNKNOWN, line.slope / part_hours};
    if (filled < 0.5 || line.count < TREND_PARTS / 2)
        return t;
    double change = line.slope * (line.count - 1), least = fmax(TREND_LEAST, 3 * line.scatter);
    t.verdict = change > least ? HISTORY_RISING : change < -least ? HISTORY_FALLING : HISTORY_FLAT;
    return t;
}
