/* report_guard.c - memory pressure of the machine, and how much was reclaimed from which caches and
 * models. */
#include "api/report.h"

#include "base/check.h"
#include "registry/guard.h"

typedef unsigned long long ull;

static struct guard_numbers read_numbers(struct api *a)
{
    struct guard_numbers n = {.why = "memory_available"};
    if (a->opts.guard)
        guard_numbers(a->opts.guard, &n);
    return n;
}

void report_guard(struct api *a, struct buf *ret)
{
    struct guard_numbers n = read_numbers(a);
    buf_printf(ret,
               "\"memory_pressure\":{\"stage\":\"%s\",\"level\":\"%s\",\"figure\":\"%s\","
               "\"stalled_some_percent\":%.2f,\"stalled_full_percent\":%.2f,\"changes\":%llu},"
               "\"guard\":{\"rooms_made\":%llu,\"rooms_refused\":%llu,\"helps\":%llu,\"free_bytes\":%llu,"
               "\"cached_bytes\":%llu,\"idle_model_bytes\":%llu}",
               pressure_stage_name(n.stage), pressure_level_name(n.level), n.why, n.stalled_some,
               n.stalled_full, (ull)n.stage_changes, (ull)n.rooms_made, (ull)n.rooms_refused, (ull)n.helps,
               (ull)n.free_bytes, (ull)n.cached_bytes, (ull)n.idle_bytes);
}

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_pressure(const struct guard_numbers *n, struct buf *b)
{
    head(b, "plateau_memory_pressure_stage", "gauge",
         "Reaction to memory pressure: 0 none, 1 caches shrink, 2 trims, 3 idle models unload, 4 new "
         "requests are refused.");
    buf_printf(b, "plateau_memory_pressure_stage %u\n", (unsigned)n->stage);
    head(b, "plateau_memory_pressure_changes_total", "counter", "Changes of the memory pressure stage.");
    buf_printf(b, "plateau_memory_pressure_changes_total %llu\n", (ull)n->stage_changes);
    head(b, "plateau_memory_stalled_ratio", "gauge",
         "Share of the last 10 s in which some, or all, tasks waited for memory.");
    buf_printf(
        b,
        "plateau_memory_stalled_ratio{who=\"some\"} %.4f\nplateau_memory_stalled_ratio{who=\"full\"} %.4f\n",
        n->stalled_some / 100, n->stalled_full / 100);
}

void report_guard_metrics(struct api *a, struct buf *b)
{
    struct guard_numbers n = read_numbers(a);
    write_pressure(&n, b);
    head(b, "plateau_guard_bytes_total", "counter", "Memory reclaimed for other models, by its holder.");
    buf_printf(
        b,
        "plateau_guard_bytes_total{from=\"free\"} %llu\nplateau_guard_bytes_total{from=\"caches\"} %llu\n"
        "plateau_guard_bytes_total{from=\"idle_models\"} %llu\n",
        (ull)n.free_bytes, (ull)n.cached_bytes, (ull)n.idle_bytes);
    head(b, "plateau_guard_rooms_total", "counter", "Requests for memory to load a model, by result.");
    buf_printf(b,
               "plateau_guard_rooms_total{result=\"made\"} "
               "%llu\nplateau_guard_rooms_total{result=\"refused\"} %llu\n",
               (ull)n.rooms_made, (ull)n.rooms_refused);
    head(b, "plateau_guard_helps_total", "counter",
         "Times that an engine got commit units from other models.");
    buf_printf(b, "plateau_guard_helps_total %llu\n", (ull)n.helps);
}
