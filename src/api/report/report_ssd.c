/* report_ssd.c - the SSD tier: content, hits, and errors. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"

#include "base/check.h"
#include "base/json/json_out.h"
#include "store/store.h"

struct ssd_numbers {
    struct store_numbers store;
    uint32_t off;
    uint64_t hit_tokens;
};

#define OF(field) GAUGE_OF(struct ssd_numbers, field)

static const struct gauge rows[] = {
    {OF(off),
     GAUGE("plateau_ssd_off", "1: the SSD tier is off until the server starts again; see /api/status.")},
    {OF(store.bytes), MEMBER("ssd", 2, "bytes"),
     GAUGE("plateau_ssd_bytes", "Disk space of the SSD tier's directory, in bytes of blocks.")},
    {OF(store.limit_bytes), MEMBER("ssd", 1, "limit_bytes"),
     GAUGE("plateau_ssd_limit_bytes", "Limit of the SSD tier's disk space.")},
    {OF(store.pages), MEMBER("ssd", 3, "pages"), GAUGE("plateau_ssd_pages", "KV cache pages on disk.")},
    {OF(store.snapshots), MEMBER("ssd", 4, "snapshots"),
     GAUGE("plateau_ssd_snapshots", "Recurrent states on disk.")},
    {OF(store.entries_max), MEMBER("ssd", 5, "entries_max"), NOTE("Files that the directory may have.")},
    {OF(hit_tokens), MEMBER("ssd", 6, "hit_tokens"), NOTE("Prompt tokens found in the SSD tier.")},
    {OF(store.staging_bytes), MEMBER("ssd", 19, "staging_bytes"), NOTE("Staging memory.")},
    {OF(store.staging_used_bytes), MEMBER("ssd", 20, "staging_used_bytes"),
     GAUGE("plateau_ssd_staging_used_bytes", "Staging memory in use by reads and writes.")},
    {OF(store.reads), MEMBER("ssd", 7, "reads"),
     COUNTER("plateau_ssd_reads_total", "Files read from the SSD tier.")},
    {OF(store.read_bytes), MEMBER("ssd", 8, "read_bytes"),
     COUNTER("plateau_ssd_read_bytes_total", "Bytes read from the SSD tier.")},
    {OF(store.read_misses), MEMBER("ssd", 9, "read_misses"),
     COUNTER("plateau_ssd_read_misses_total", "Reads that found the file missing or damaged.")},
    {OF(store.writes), MEMBER("ssd", 10, "writes"),
     COUNTER("plateau_ssd_writes_total", "Files written to the SSD tier.")},
    {OF(store.written_bytes), MEMBER("ssd", 11, "written_bytes"),
     COUNTER("plateau_ssd_written_bytes_total", "Bytes written to the SSD tier.")},
    {OF(store.queued_reads), MEMBER("ssd", 12, "queued_reads"), NOTE("Reads in the queue.")},
    {OF(store.queued_writes), MEMBER("ssd", 13, "queued_writes"), NOTE("Writes in the queue.")},
    {OF(store.drops), MEMBER("ssd", 14, "drops"),
     COUNTER("plateau_ssd_drops_total",
             "Pages and states dropped because the staging memory or the disk was full.")},
    {OF(store.evictions), MEMBER("ssd", 15, "evictions"),
     COUNTER("plateau_ssd_evictions_total", "Files evicted by the disk limit.")},
    {OF(store.errors), MEMBER("ssd", 16, "errors"),
     COUNTER("plateau_ssd_errors_total", "Failed system calls of the SSD tier.")},
    {OF(store.corrupt), MEMBER("ssd", 17, "corrupt"),
     COUNTER("plateau_ssd_corrupt_total",
             "Files removed because they were damaged or belonged to another model.")},
    {OF(store.foreign), MEMBER("ssd", 18, "foreign"),
     NOTE("Names in the directory that are not of the SSD tier.")},
    {OF(store.leases), MEMBER("ssd", 21, "sessions"),
     GAUGE("plateau_ssd_sessions", "Sessions on SSD, of all models.")},
    {OF(store.leased_bytes), MEMBER("ssd", 22, "session_bytes"),
     GAUGE("plateau_ssd_session_bytes", "Disk space of sessions, with what is promised or not yet written.")},
    {OF(store.lease_bytes_max), MEMBER("ssd", 23, "session_limit_bytes"),
     NOTE("Limit of that: half of `--ssd-limit`.")},
};

static bool read_numbers(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct ssd_numbers *n = ret;
    (void)model;
    if (tenant || !a->opts.store)
        return false;
    *n = (struct ssd_numbers){0};
    store_numbers(a->opts.store, &n->store);
    n->off = n->store.state == STORE_OFF;
    return true;
}

const struct gauge_table report_ssd_gauges = {
    "Of the SSD tier, with `--ssd-dir`", rows,        COUNT_OF(rows), false,
    sizeof(struct ssd_numbers),          read_numbers};

void report_ssd(struct api *a, uint64_t hit_tokens, struct json_out *j)
{
    struct ssd_numbers n;
    if (!read_numbers(a, NULL, 0, &n)) {
        json_put_null(j, "ssd");
        return;
    }
    n.hit_tokens = hit_tokens;
    json_open(j, "ssd");
    JSON_PUT_STRINGS(j, {"state", store_state_name(n.store.state)},
                     {"reason", n.off ? n.store.reason : NULL});
    gauges_put_members(&report_ssd_gauges, "ssd", &n, j);
    json_close(j);
}
