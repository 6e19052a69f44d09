/* report_responses.c - the store of responses. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"
#include "api/responses_store.h"

#include "base/buf.h"
#include "base/check.h"

#define OF(field) GAUGE_OF(struct responses_store_numbers, field)

static const struct gauge rows[] = {
    {OF(entries), MEMBER("responses", 3, "entries"), GAUGE("plateau_responses", "Responses in the store.")},
    {OF(bytes), MEMBER("responses", 2, "bytes"),
     GAUGE("plateau_responses_bytes", "Bytes of stored responses.")},
    {OF(bytes_max), MEMBER("responses", 1, "limit_bytes"),
     GAUGE("plateau_responses_limit_bytes", "Limit of stored responses.")},
    {OF(stored), MEMBER("responses", 4, "stored"),
     COUNTER("plateau_responses_stored_total", "Responses that were stored.")},
    {OF(refused), MEMBER("responses", 5, "refused"),
     COUNTER("plateau_responses_refused_total", "Responses that did not fit into the store.")},
    {OF(found), MEMBER("responses", 6, "found"),
     COUNTER("plateau_responses_found_total", "Requests for a response that was in the store.")},
    {OF(missed), MEMBER("responses", 7, "missed"),
     COUNTER("plateau_responses_missed_total", "Requests for a response that was not in the store.")},
    {OF(evicted), MEMBER("responses", 8, "evicted"),
     COUNTER("plateau_responses_evicted_total", "Responses evicted by the limit or by memory pressure.")},
    {OF(expired), MEMBER("responses", 9, "expired"),
     COUNTER("plateau_responses_expired_total", "Responses deleted after `--response-ttl` without use.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    (void)model;
    if (tenant || !a->responses)
        return false;
    *(struct responses_store_numbers *)ret = responses_store_numbers(a->responses);
    return true;
}

const struct gauge_table report_responses_gauges = {
    "Of stored responses", rows, COUNT_OF(rows), false, sizeof(struct responses_store_numbers), read_numbers};

void report_responses(struct api *a, struct buf *ret)
{
    struct responses_store_numbers n;
    if (read_numbers(a, NULL, 0, &n))
        gauges_write_object(&report_responses_gauges, "responses", &n, ret);
    else
        buf_puts(ret, "\"responses\":null");
}
