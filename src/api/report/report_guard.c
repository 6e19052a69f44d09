/* report_guard.c - memory pressure of the machine, and how much was reclaimed from which caches and
 * models. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "reclaim/guard.h"

#define OF(field) GAUGE_OF(struct guard_numbers, field)
#define STALLED                                                                                              \
    GAUGE("plateau_memory_stalled_ratio",                                                                    \
          "Share of the last 10 s in which some, or all, tasks waited for memory.")
#define BYTES COUNTER("plateau_guard_bytes_total", "Memory reclaimed for other models, by its holder.")
#define ROOMS COUNTER("plateau_guard_rooms_total", "Requests for memory to load a model, by result.")

static const struct gauge rows[] = {
    {.offset = offsetof(struct guard_numbers, stage),
     .type = GAUGE_U32,
     GAUGE("plateau_memory_pressure_stage",
           "Reaction to memory pressure: 0 none, 1 caches shrink, 2 trims, 3 idle models unload, 4 new "
           "requests are refused.")},
    {OF(stage_changes), MEMBER("memory_pressure", 3, "changes"),
     COUNTER("plateau_memory_pressure_changes_total", "Changes of the memory pressure stage.")},
    {OF(stalled_some), .unit = GAUGE_PERCENT, MEMBER("memory_pressure", 1, "stalled_some_percent"), STALLED,
     .labels = "who=\"some\""},
    {OF(stalled_full), .unit = GAUGE_PERCENT, MEMBER("memory_pressure", 2, "stalled_full_percent"), STALLED,
     .labels = "who=\"full\""},
    {OF(free_bytes), MEMBER("guard", 4, "free_bytes"), BYTES, .labels = "from=\"free\""},
    {OF(cached_bytes), MEMBER("guard", 5, "cached_bytes"), BYTES, .labels = "from=\"caches\""},
    {OF(idle_bytes), MEMBER("guard", 6, "idle_model_bytes"), BYTES, .labels = "from=\"idle_models\""},
    {OF(rooms_made), MEMBER("guard", 1, "rooms_made"), ROOMS, .labels = "result=\"made\""},
    {OF(rooms_refused), MEMBER("guard", 2, "rooms_refused"), ROOMS, .labels = "result=\"refused\""},
    {OF(helps), MEMBER("guard", 3, "helps"),
     COUNTER("plateau_guard_helps_total", "Times that an engine got commit units from other models.")},
};
_Static_assert(sizeof(enum pressure_stage) == sizeof(uint32_t), "the stage is read as a number");

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    (void)model;
    *(struct guard_numbers *)ret = (struct guard_numbers){.why = "memory_available"};
    if (a->opts.guard && !tenant)
        guard_numbers(a->opts.guard, ret);
    return !tenant;
}

const struct gauge_table report_guard_gauges = {
    "Of memory pressure and reclaiming", rows,        COUNT_OF(rows), false,
    sizeof(struct guard_numbers),        read_numbers};

void report_guard(struct api *a, struct json_out *j)
{
    struct guard_numbers n;
    read_numbers(a, NULL, 0, &n);
    json_open(j, "memory_pressure");
    JSON_PUT_STRINGS(j, {"stage", pressure_stage_name(n.stage)}, {"level", pressure_level_name(n.level)},
                     {"figure", n.why});
    gauges_put_members(&report_guard_gauges, "memory_pressure", &n, j);
    json_close(j);
    gauges_put_object(&report_guard_gauges, "guard", &n, j);
}
