/* report_history.c - the figures of a range of time, and the last log lines. */
#include "api/api_state.h"
#include "api/report/figures.h"
#include "api/report/report.h"

#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/log.h"
#include "base/log_ring.h"

static const struct {
    const char *name;
    bool spread; /* with its least and largest values */
    double unit; /* the last digit that is written */
} series[HISTORY_SERIES_COUNT] = {
    [HISTORY_USED] = {"memory_used", true, 1},
    [HISTORY_SERVER] = {"memory_server", false, 1},
    [HISTORY_FIXED] = {"memory_fixed", false, 1},
    [HISTORY_ACTIVE] = {"memory_active", false, 1},
    [HISTORY_KEPT] = {"memory_kept", false, 1},
    [HISTORY_RESIDENT] = {"memory_resident", true, 1},
    [HISTORY_STEADY] = {"memory_steady", true, 1},
    [HISTORY_UNACCOUNTED] = {"memory_unaccounted", false, 1},
    [HISTORY_PENDING_TRIM] = {"memory_pending_trim", false, 1},
    [HISTORY_GENERATED] = {"generated_tokens", true, 0.01},
    [HISTORY_PREFILLED] = {"prefill_tokens", true, 0.01},
    [HISTORY_CACHED] = {"cached_tokens", false, 0.01},
    [HISTORY_RUNNING] = {"running", true, 0.01},
    [HISTORY_WAITING] = {"waiting", true, 0.01},
    [HISTORY_FIRST_TOKEN] = {"first_token_seconds", true, 0.0001},
    [HISTORY_REFUSED] = {"refused", false, 0.01},
};

static void write_number(double value, double unit, struct json_out *j)
{
    if (unit >= 1)
        json_put_fixed(j, NULL, 0, value);
    else
        json_put_general(j, NULL, unit < 0.01 ? 5 : 6, value);
}

static void write_points(const char *name, const struct history_point *points, uint32_t count, size_t offset,
                         double unit, struct json_out *j)
{
    json_open_array(j, name);
    for (uint32_t i = 0; i < count; i++)
        write_number((double)*(const float *)((const char *)&points[i] + offset), unit, j);
    json_close(j);
}

static void write_series(const struct history *h, uint32_t s, enum history_range range, uint64_t now_ns,
                         struct json_out *j)
{
    struct history_point points[HISTORY_POINTS_MAX];
    uint32_t count = history_window_of(range, now_ns).count;
    double unit = series[s].unit;
    history_read(h, (enum history_series)s, range, now_ns, points);
    json_open(j, series[s].name);
    write_points("mean", points, count, offsetof(struct history_point, mean), unit, j);
    if (series[s].spread && range != HISTORY_5M) {
        write_points("min", points, count, offsetof(struct history_point, min), unit, j);
        write_points("max", points, count, offsetof(struct history_point, max), unit, j);
    }
    json_close(j);
}

void report_history(struct api *a, enum history_range range, struct buf *ret)
{
    const struct history *h = figures_history(a->figures);
    uint64_t now_ns = clock_now_ns();
    struct history_window w = history_window_of(range, now_ns);
    struct history_trend t = history_trend(h, range, now_ns);
    double from = clock_wall_s() - (double)(int64_t)(now_ns - w.from_ns) / (double)NS_PER_S;
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "range", history_range_name(range));
    json_put_u64(&j, "step_seconds", w.step_ns / NS_PER_S);
    json_put_fixed(&j, "from", 3, from);
    json_put_u64(&j, "points", w.count);
    json_open(&j, "trend");
    json_put_string(&j, "verdict", history_verdict_name(t.verdict));
    json_put_fixed(&j, "bytes_per_hour", 0, t.bytes_per_hour);
    json_close(&j);
    json_open(&j, "series");
    for (uint32_t s = 0; s < HISTORY_SERIES_COUNT; s++)
        write_series(h, s, range, now_ns, &j);
    json_close(&j);
    json_end(&j);
}

/* ---- the log ---- */

static void write_line(const struct log_ring_line *line, struct json_out *j)
{
    json_open(j, NULL);
    json_put_u64(j, "number", line->number);
    json_put_string(j, "level", log_level_name((enum log_level)line->level));
    json_put_text(j, "text", (struct slice){line->text, line->len});
    json_close(j);
}

/* The first number of the newest `max` lines of that level and worse. */
static uint64_t start_of(uint64_t after, uint64_t end, enum log_level least, uint32_t max)
{
    struct log_ring_line line;
    uint32_t count = 0;
    for (uint64_t n = after; n < end && log_ring_next(n, &line) && line.number <= end; n = line.number)
        count += line.level <= (int)least;
    for (uint64_t n = after; count > max && log_ring_next(n, &line); n = line.number) {
        count -= line.level <= (int)least;
        after = line.number;
    }
    return after;
}

void report_log(uint64_t after, enum log_level least, uint32_t max, struct buf *ret)
{
    struct log_ring_line line;
    uint64_t end = log_ring_last();
    struct json_out j = json_out_object(ret);
    json_put_u64(&j, "last", end);
    json_open_array(&j, "lines");
    for (uint64_t n = start_of(after, end, least, max);
         n < end && log_ring_next(n, &line) && line.number <= end; n = line.number)
        if (line.level <= (int)least)
            write_line(&line, &j);
    json_close(&j);
    json_end(&j);
}
