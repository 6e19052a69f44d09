/* report_ends.c - how requests end: of all clients, or of one tenant. */
#include "api/access/tenants.h"
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/metrics.h"
#include "api/report/report.h"
#include "api/report/watch.h"

#include "base/check.h"

struct end_numbers {
    struct metrics_counts counts;
    uint64_t stuck, stuck_times;
};

#define OF(field) GAUGE_OF(struct end_numbers, field)

static const struct gauge rows[] = {
    {.offset = offsetof(struct end_numbers, counts.finished),
     .type = GAUGE_U64,
     .scope = GAUGE_ALL_OWN,
     .items = METRICS_ENDS,
     .item_label = "finished_reason",
     .item_name = metrics_end_name,
     COUNTER("vllm:request_success_total", "Choices by finish reason.")},
    {OF(counts.prompt_tokens), .scope = GAUGE_OWN,
     COUNTER("vllm:prompt_tokens_total", "Prompt tokens, cached ones included.")},
    {OF(counts.completion_tokens), .scope = GAUGE_OWN,
     COUNTER("vllm:generation_tokens_total", "Tokens generated.")},
    {OF(counts.cached_tokens), .scope = GAUGE_ALL_OWN,
     COUNTER("vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.")},
    {OF(counts.cache_hits), .scope = GAUGE_OWN,
     COUNTER("plateau_own_cache_hits_total", "Choices with a prefix cache hit.")},
    {OF(counts.reasoning_loops), .scope = GAUGE_ALL_OWN,
     COUNTER("plateau_reasoning_loops_total", "Reasoning ended at a loop.")},
    {OF(counts.requests_rejected), .scope = GAUGE_ALL_OWN,
     COUNTER("plateau_requests_rejected_total", "Requests answered with an error.")},
    {OF(counts.requests_aborted), .scope = GAUGE_ALL_OWN,
     COUNTER("plateau_requests_aborted_total", "Requests whose client left before the end.")},
    {OF(stuck),
     GAUGE("plateau_engine_stuck", "Whether there is work and no layer has finished for too long.")},
    {OF(stuck_times), COUNTER("plateau_engine_stuck_total", "Times that this has begun.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct end_numbers *n = ret;
    uint64_t silent_ns;
    const struct metrics_counts *counts =
        tenant ? tenants_find_counts(a->tenants, *tenant, model) : &a->metrics[model].counts;
    *n = (struct end_numbers){.stuck_times = a->watches[model].times};
    n->stuck = api_is_stuck(a, model, &silent_ns);
    if (counts)
        n->counts = *counts;
    return true;
}

const struct gauge_table report_end_gauges = {"Of a model's requests",    rows,        COUNT_OF(rows), true,
                                              sizeof(struct end_numbers), read_numbers};
