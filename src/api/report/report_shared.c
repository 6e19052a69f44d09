/* report_shared.c - the tier that servers share: content, traffic, and errors. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/json/json_out.h"
#include "store/shared_tier.h"

struct shared_report {
    struct shared_numbers tier;
    uint32_t off;
};

#define OF(field) GAUGE_OF(struct shared_report, field)

static const struct gauge rows[] = {
    {OF(off), MEMBER("shared", 1, "off"),
     GAUGE("plateau_shared_off", "1: the shared cache rests after a failure; see /api/status.")},
    {OF(tier.bytes), MEMBER("shared", 2, "bytes"),
     GAUGE("plateau_shared_bytes", "Bytes in a shared directory, of all servers.")},
    {OF(tier.limit_bytes), MEMBER("shared", 3, "limit_bytes"), NOTE("`--shared-cache-size`.")},
    {OF(tier.reads), MEMBER("shared", 4, "reads"),
     COUNTER("plateau_shared_reads_total", "Pages and states read from the shared cache.")},
    {OF(tier.read_bytes), MEMBER("shared", 5, "read_bytes"),
     COUNTER("plateau_shared_read_bytes_total", "Bytes of these reads.")},
    {OF(tier.read_misses), MEMBER("shared", 6, "read_misses"),
     COUNTER("plateau_shared_read_misses_total", "Reads that failed, or found no valid value.")},
    {OF(tier.writes), MEMBER("shared", 7, "writes"),
     COUNTER("plateau_shared_writes_total", "Pages and states written to the shared cache.")},
    {OF(tier.written_bytes), MEMBER("shared", 8, "written_bytes"),
     COUNTER("plateau_shared_written_bytes_total", "Bytes of these writes.")},
    {OF(tier.drops), MEMBER("shared", 9, "drops"),
     COUNTER("plateau_shared_drops_total", "Pages and states that were not written.")},
    {OF(tier.errors), MEMBER("shared", 10, "errors"),
     COUNTER("plateau_shared_errors_total", "Failures of the shared store; the cache rests after each.")},
    {OF(tier.corrupt), MEMBER("shared", 11, "corrupt"),
     COUNTER("plateau_shared_corrupt_total", "Values that were damaged or forged.")},
    {OF(tier.queued_reads), MEMBER("shared", 12, "queued_reads"), NOTE("Reads in the queue.")},
    {OF(tier.queued_writes), MEMBER("shared", 13, "queued_writes"), NOTE("Writes in the queue.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct shared_report *n = ret;
    (void)model;
    if (tenant || !a->opts.shared)
        return false;
    shared_tier_numbers(a->opts.shared, &n->tier);
    n->off = n->tier.off;
    return true;
}

const struct gauge_table report_shared_gauges = {"Of the shared cache, with `--shared-cache`",
                                                 rows,
                                                 COUNT_OF(rows),
                                                 false,
                                                 sizeof(struct shared_report),
                                                 read_numbers};

void report_shared(struct api *a, struct json_out *j)
{
    struct shared_report n;
    if (!read_numbers(a, NULL, 0, &n)) {
        json_put_null(j, "shared");
        return;
    }
    json_open(j, "shared");
    JSON_PUT_STRINGS(j, {"store", n.tier.name}, {"reason", n.tier.reason[0] ? n.tier.reason : NULL});
    gauges_put_members(&report_shared_gauges, "shared", &n, j);
    json_close(j);
}
