/* report_holders.c - memory that can be reclaimed: of engines and of orphans. */
#include "api/report.h"

#include "base/check.h"
#include "memory/holders.h"

typedef unsigned long long ull;

static void write_holder(const struct holder_info *h, struct buf *ret)
{
    buf_puts(ret, "{\"id\":");
    json_write_string(ret, slice_of(h->name));
    buf_puts(ret, ",\"domain\":");
    json_write_string(ret, slice_of(h->domain->name));
    buf_printf(ret,
               ",\"state\":\"%s\",\"held_bytes\":%llu,\"free_bytes\":%llu,\"cached_bytes\":%llu,"
               "\"allowed_bytes\":%llu,\"entries\":%u}",
               holder_state_name(h->state), (ull)h->now.held_bytes, (ull)h->now.free_bytes,
               (ull)h->now.cached_bytes, (ull)h->allowed_bytes, h->now.entries);
}

void report_holders(struct api *a, struct buf *ret)
{
    struct holder_info all[HOLDERS_MAX];
    struct holders_numbers n = {0};
    uint32_t count = 0;
    if (a->opts.holders) {
        holders_numbers(a->opts.holders, NULL, &n);
        count = MIN_OF(holders_list(a->opts.holders, all, HOLDERS_MAX), (uint32_t)HOLDERS_MAX);
    }
    buf_printf(ret, "\"orphans\":%u,\"orphan_bytes\":%llu,\"holders\":[", n.orphans, (ull)n.orphan_bytes);
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

static void write_gauge(struct buf *b, const char *name, const char *help, uint64_t value)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s gauge\n%s %llu\n", name, help, name, name, (ull)value);
}

void report_holders_metrics(struct api *a, struct buf *b)
{
    struct holders_numbers n = {0};
    if (a->opts.holders)
        holders_numbers(a->opts.holders, NULL, &n);
    write_gauge(b, "plateau_prefix_cache_bytes",
                "Bytes of cached prefixes that no request uses, all models together.", n.cached_bytes);
    write_gauge(b, "plateau_prefix_cache_limit_bytes", "Limit of the prefix cache, all models together.",
                n.cache_bytes_max);
    write_gauge(b, "plateau_holders", "Pool sets that hold memory, or may hold some.", n.count);
    write_gauge(b, "plateau_orphans", "Pool sets of unloaded models whose teardown failed.", n.orphans);
    write_gauge(b, "plateau_orphan_bytes", "Bytes that orphans hold.", n.orphan_bytes);
}
