/* report_holders.c - memory that can be reclaimed: of engines and of orphans. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "reclaim/holders.h"

#define OF(field) GAUGE_OF(struct holders_numbers, field)

static const struct gauge rows[] = {
    {OF(cached_bytes), GAUGE("plateau_prefix_cache_bytes",
                             "Bytes of cached prefixes that no request uses, all models together.")},
    {OF(cache_bytes_max),
     GAUGE("plateau_prefix_cache_limit_bytes", "Limit of the prefix cache, all models together.")},
    {OF(count), GAUGE("plateau_holders", "Pool sets that hold memory, or may hold some.")},
    {OF(orphans), MEMBER("holders", 1, "orphans"),
     GAUGE("plateau_orphans", "Pool sets of unloaded models whose teardown failed.")},
    {OF(orphan_bytes), MEMBER("holders", 2, "orphan_bytes"),
     GAUGE("plateau_orphan_bytes", "Bytes that orphans hold.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    (void)model;
    *(struct holders_numbers *)ret = (struct holders_numbers){0};
    if (a->opts.holders && !tenant)
        holders_numbers(a->opts.holders, NULL, ret);
    return !tenant;
}

const struct gauge_table report_holders_gauges = {
    "Of all models together", rows, COUNT_OF(rows), false, sizeof(struct holders_numbers), read_numbers};

static void write_holder(const struct holder_info *h, struct json_out *j)
{
    json_open(j, NULL);
    JSON_PUT_STRINGS(j, {"id", h->name}, {"domain", h->domain->name}, {"state", holder_state_name(h->state)});
    JSON_PUT_U64S(j, {"held_bytes", h->now.held_bytes}, {"free_bytes", h->now.free_bytes},
                  {"cached_bytes", h->now.cached_bytes}, {"allowed_bytes", h->allowed_bytes},
                  {"entries", h->now.entries});
    json_close(j);
}

void report_holders(struct api *a, struct json_out *j)
{
    struct holder_info all[HOLDERS_MAX];
    struct holders_numbers n;
    uint32_t count = 0;
    read_numbers(a, NULL, 0, &n);
    if (a->opts.holders)
        count = MIN_OF(holders_list(a->opts.holders, all, HOLDERS_MAX), (uint32_t)HOLDERS_MAX);
    gauges_put_members(&report_holders_gauges, "holders", &n, j);
    json_open_array(j, "holders");
    for (uint32_t i = 0; i < count; i++)
        write_holder(&all[i], j);
    json_close(j);
}

uint64_t report_cache_limit(struct api *a, uint64_t sum_of_models)
{
    struct holders_numbers n = {.cache_bytes_max = UINT64_MAX};
    if (a->opts.holders)
        holders_numbers(a->opts.holders, NULL, &n);
    return MIN_OF(sum_of_models, n.cache_bytes_max);
}
