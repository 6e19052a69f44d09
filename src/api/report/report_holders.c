/* report_holders.c - memory that can be reclaimed: of engines and of orphans. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_write.h"
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

static void write_holder(const struct holder_info *h, struct buf *ret)
{
    buf_putc(ret, '{');
    json_write_member(ret, "id", h->name);
    json_write_member(ret, "domain", h->domain->name);
    buf_printf(ret,
               ",\"state\":\"%s\",\"held_bytes\":%llu,\"free_bytes\":%llu,\"cached_bytes\":%llu,"
               "\"allowed_bytes\":%llu,\"entries\":%u}",
               holder_state_name(h->state), (ull)h->now.held_bytes, (ull)h->now.free_bytes,
               (ull)h->now.cached_bytes, (ull)h->allowed_bytes, h->now.entries);
}

void report_holders(struct api *a, struct buf *ret)
{
    struct holder_info all[HOLDERS_MAX];
    struct holders_numbers n;
    uint32_t count = 0;
    read_numbers(a, NULL, 0, &n);
    if (a->opts.holders)
        count = MIN_OF(holders_list(a->opts.holders, all, HOLDERS_MAX), (uint32_t)HOLDERS_MAX);
    gauges_write_members(&report_holders_gauges, "holders", &n, ret);
    buf_puts(ret, ",\"holders\":[");
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            buf_putc(ret, ',');
        write_holder(&all[i], ret);
    }
    buf_putc(ret, ']');
}

uint64_t report_cache_limit(struct api *a, uint64_t sum_of_models)
{
    struct holders_numbers n = {.cache_bytes_max = UINT64_MAX};
    if (a->opts.holders)
        holders_numbers(a->opts.holders, NULL, &n);
    return MIN_OF(sum_of_models, n.cache_bytes_max);
}
