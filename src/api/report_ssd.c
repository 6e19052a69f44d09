/* report_ssd.c - the SSD tier: content, hits, and errors. */
#include "api/report.h"

#include "store/store.h"

typedef unsigned long long ull;

void report_ssd(struct api *a, uint64_t hit_tokens, struct buf *ret)
{
    struct store_numbers n;
    if (!a->opts.store) {
        buf_puts(ret, "null");
        return;
    }
    store_numbers(a->opts.store, &n);
    buf_printf(ret, "{\"state\":\"%s\",\"reason\":", store_state_name(n.state));
    if (n.state == STORE_OFF)
        json_write_string(ret, slice_of(n.reason));
    else
        buf_puts(ret, "null");
    buf_printf(ret,
               ",\"limit_bytes\":%llu,\"bytes\":%llu,\"pages\":%u,\"snapshots\":%u,\"entries_max\":%u,"
               "\"hit_tokens\":%llu,\"reads\":%llu,\"read_bytes\":%llu,\"read_misses\":%llu,\"writes\":%llu,"
               "\"written_bytes\":%llu,\"queued_reads\":%u,\"queued_writes\":%u,\"drops\":%llu,"
               "\"evictions\":%llu,\"errors\":%llu,\"corrupt\":%llu,\"foreign\":%llu,"
               "\"staging_bytes\":%llu,\"staging_used_bytes\":%llu}",
               (ull)n.limit_bytes, (ull)n.bytes, n.pages, n.snapshots, n.entries_max, (ull)hit_tokens,
               (ull)n.reads, (ull)n.read_bytes, (ull)n.read_misses, (ull)n.writes, (ull)n.written_bytes,
               n.queued_reads, n.queued_writes, (ull)n.drops, (ull)n.evictions, (ull)n.errors, (ull)n.corrupt,
               (ull)n.foreign, (ull)n.staging_bytes, (ull)n.staging_used_bytes);
}

static void write(struct buf *b, const char *name, const char *type, const char *help, uint64_t value)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name, (ull)value);
}

void report_ssd_metrics(struct api *a, struct buf *b)
{
    struct store_numbers n;
    if (!a->opts.store)
        return;
    store_numbers(a->opts.store, &n);
    write(b, "plateau_ssd_off", "gauge",
          "1: the SSD tier is off until the server starts again; see /api/status.", n.state == STORE_OFF);
    write(b, "plateau_ssd_bytes", "gauge", "Disk space of the SSD tier's directory, in bytes of blocks.",
          n.bytes);
    write(b, "plateau_ssd_limit_bytes", "gauge", "Limit of the SSD tier's disk space.", n.limit_bytes);
    write(b, "plateau_ssd_pages", "gauge", "KV cache pages on disk.", n.pages);
    write(b, "plateau_ssd_snapshots", "gauge", "Recurrent states on disk.", n.snapshots);
    write(b, "plateau_ssd_staging_used_bytes", "gauge", "Staging memory in use by reads and writes.",
          n.staging_used_bytes);
    write(b, "plateau_ssd_reads_total", "counter", "Files read from the SSD tier.", n.reads);
    write(b, "plateau_ssd_read_bytes_total", "counter", "Bytes read from the SSD tier.", n.read_bytes);
    write(b, "plateau_ssd_read_misses_total", "counter", "Reads that found the file missing or damaged.",
          n.read_misses);
    write(b, "plateau_ssd_writes_total", "counter", "Files written to the SSD tier.", n.writes);
    write(b, "plateau_ssd_written_bytes_total", "counter", "Bytes written to the SSD tier.", n.written_bytes);
    write(b, "plateau_ssd_drops_total", "counter",
          "Pages and states dropped because the staging memory or the disk was full.", n.drops);
    write(b, "plateau_ssd_evictions_total", "counter", "Files evicted by the disk limit.", n.evictions);
    write(b, "plateau_ssd_errors_total", "counter", "Failed system calls of the SSD tier.", n.errors);
    write(b, "plateau_ssd_corrupt_total", "counter",
          "Files removed because they were damaged or belonged to another model.", n.corrupt);
}
