/* report_own.c - a tenant's view of /metrics: the names of report_metrics.c, with sums over its own requests
 * only. */
#include "api/report.h"

#include "api/exchange.h"

#include "base/check.h"

static void head(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_value(const struct api *a, struct buf *b, const char *name, uint32_t model, const char *end,
                        uint64_t value)
{
    buf_printf(b, "%s{model_name=", name);
    metrics_write_label(b, slice_of(api_model_id(a, model)));
    if (end)
        buf_printf(b, ",finished_reason=\"%s\"", end);
    buf_printf(b, "} %llu\n", (unsigned long long)value);
}

struct series {
    const char *name, *help;
    size_t offset; /* in metrics_counts */
};

#define OF(field) offsetof(struct metrics_counts, field)

static const struct series series[] = {
    {"vllm:prompt_tokens_total", "Prompt tokens, cached ones included.", OF(prompt_tokens)},
    {"vllm:generation_tokens_total", "Tokens generated.", OF(completion_tokens)},
    {"vllm:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", OF(cached_tokens)},
    {"plateau_own_cache_hits_total", "Choices with a prefix cache hit.", OF(cache_hits)},
    {"plateau_requests_rejected_total", "Requests answered with an error.", OF(requests_rejected)},
    {"plateau_requests_aborted_total", "Requests whose client left before the end.", OF(requests_aborted)},
};

static const struct metrics_counts *counts_of(const struct api *a, uint64_t tenant, uint32_t model)
{
    static const struct metrics_counts none;
    const struct metrics_counts *n = tenants_look(a->tenants, tenant, model);
    return n ? n : &none;
}

static uint64_t value_of(const struct metrics_counts *n, const struct series *s)
{
    return *(const uint64_t *)(const void *)((const char *)n + s->offset);
}

static uint32_t requests_of(const struct api *a, uint64_t tenant)
{
    uint32_t count = 0;
    LIST_EACH(it, &a->exchanges)
        count += LIST_ENTRY(it, struct exchange, all)->gen.tenant == tenant;
    return count;
}

void report_own_metrics(struct api *a, uint64_t tenant, struct buf *ret)
{
    uint32_t models = api_model_count(a);
    head(ret, "vllm:request_success_total", "counter", "Choices by finish reason.");
    for (uint32_t i = 0; i < models; i++)
        for (uint32_t k = 0; k < METRICS_ENDS; k++)
            write_value(a, ret, "vllm:request_success_total", i, metrics_end_name(k),
                        counts_of(a, tenant, i)->finished[k]);
    for (uint32_t k = 0; k < COUNT_OF(series); k++) {
        head(ret, series[k].name, "counter", series[k].help);
        for (uint32_t i = 0; i < models; i++)
            write_value(a, ret, series[k].name, i, NULL, value_of(counts_of(a, tenant, i), &series[k]));
    }
    head(ret, "plateau_requests", "gauge", "Requests in the server: received, prepared, computed or sent.");
    buf_printf(ret, "plateau_requests %u\n", requests_of(a, tenant));
}
