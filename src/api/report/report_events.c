/* report_events.c - KV events that were published. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "events/kv_events.h"

#define OF(field) GAUGE_OF(struct kv_events_numbers, field)

static const struct gauge rows[] = {
    {OF(messages), MEMBER("kv_events", 1, "messages"),
     COUNTER("plateau_kv_events_messages_total", "Messages of KV events that were published.")},
    {OF(bytes), MEMBER("kv_events", 2, "bytes"),
     COUNTER("plateau_kv_events_bytes_total", "Bytes of these messages.")},
    {OF(stored), MEMBER("kv_events", 3, "stored"),
     COUNTER("plateau_kv_events_stored_total", "Pages that KV events announced.")},
    {OF(removed), MEMBER("kv_events", 4, "removed"),
     COUNTER("plateau_kv_events_removed_total", "Pages that KV events took back.")},
    {OF(cleared), MEMBER("kv_events", 5, "cleared"),
     COUNTER("plateau_kv_events_cleared_total",
             "Times that all was announced again, because the buffer was full.")},
    {OF(replays), MEMBER("kv_events", 6, "replays"),
     COUNTER("plateau_kv_events_replays_total", "Requests for messages that a router missed.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    (void)model;
    if (tenant || !a->opts.events)
        return false;
    kv_events_numbers(a->opts.events, ret);
    return true;
}

const struct gauge_table report_events_gauges = {
    "Of KV events", rows, COUNT_OF(rows), false, sizeof(struct kv_events_numbers), read_numbers};

void report_events(struct api *a, struct json_out *j)
{
    struct kv_events_numbers n;
    if (read_numbers(a, NULL, 0, &n))
        gauges_put_object(&report_events_gauges, "kv_events", &n, j);
    else
        json_put_null(j, "kv_events");
}
