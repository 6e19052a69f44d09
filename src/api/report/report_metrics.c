/* report_metrics.c - Prometheus' text format. Names of vLLM for metrics that it has too. */
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/report/gauge.h"
#include "api/report/metrics.h"
#include "api/report/report.h"
#include "api/report/report_model.h"

#include "base/check.h"
#include "http/http_server.h"
#include "memory/footprint.h"

#include <stdio.h>

/* ---- connections ---- */

static const char *class_name(uint32_t class)
{
    static const char *const names[] = {"0", NULL, "2", "3", "4", "5"};
    return names[class];
}

/* Statuses of a full server: their series exist from the start, so that a rise is visible. */
static bool is_shown(unsigned status)
{
    static const unsigned statuses[] = {400, 413, 429, 503, 507};
    for (size_t i = 0; i < COUNT_OF(statuses); i++)
        if (statuses[i] == status)
            return true;
    return false;
}

static void write_refused(const struct gauge *g, const void *numbers, struct buf *ret)
{
    const struct http_counters *c = numbers;
    for (uint32_t i = 0; i < COUNT_OF(c->refused); i++)
        if (c->refused[i] > 0 || is_shown(400 + i))
            buf_printf(ret, "%s{status=\"%u\"} %llu\n", g->series, 400 + i, (ull)c->refused[i]);
}

#define OF(field) GAUGE_OF(struct http_counters, field)

static const struct gauge http_rows[] = {
    {.offset = offsetof(struct http_counters, answers),
     .type = GAUGE_U64,
     .items = 6,
     .item_label = "class",
     .item_name = class_name,
     COUNTER("plateau_http_requests_total", "Requests by class of their status; 0: no answer.")},
    {.write = write_refused,
     COUNTER("plateau_http_refused_total", "Refused requests, by status."),
     .item_label = "status"},
    {OF(connections_now), GAUGE("plateau_http_connections", "Open connections.")},
    {OF(bytes_in), COUNTER("plateau_http_received_bytes_total", "Received bytes of headers and bodies.")},
    {OF(bytes_out), COUNTER("plateau_http_sent_bytes_total", "Sent bytes of bodies.")},
};

static bool read_http(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    (void)model;
    if (tenant || !a->server)
        return false;
    *(struct http_counters *)ret = http_server_counters(a->server);
    return true;
}

static const struct gauge_table http_gauges = {
    "Of connections", http_rows, COUNT_OF(http_rows), false, sizeof(struct http_counters), read_http};

/* ---- the process ---- */

struct server_numbers {
    struct api *api;
    struct prep_queue_numbers prep;
    uint64_t prep_stopped, resident_bytes;
    struct unaccounted unaccounted;
    int64_t started_s;
    struct footprint memory;
    uint32_t requests;
};

static void write_kind(struct buf *b, const char *series, struct slice path, const char *kind, uint64_t bytes)
{
    buf_printf(b, "%s{account=", series);
    gauges_write_label(path, b);
    buf_printf(b, ",kind=\"%s\"} %llu\n", kind, (ull)bytes);
}

static void write_accounts(const struct gauge *g, const void *numbers, struct buf *b)
{
    struct api *a = ((const struct server_numbers *)numbers)->api;
    char path[512];
    size_t ends[16] = {0}; /* end of the path at each depth */
    uint32_t count = report_read_accounts(a);
    for (uint32_t i = 0; i < count; i++) {
        const struct account_numbers *n = &a->accounts[i];
        uint32_t depth = MIN_OF(n->depth, (uint32_t)COUNT_OF(ends) - 1);
        size_t at = depth > 0 ? ends[depth - 1] : 0;
        snprintf(path + at, sizeof(path) - at, "%s%s", depth > 0 ? "/" : "", n->name);
        ends[depth] = strlen(path);
        struct slice s = slice_of(path);
        write_kind(b, g->series, s, "used", n->used);
        write_kind(b, g->series, s, "reserved", n->reserved);
        write_kind(b, g->series, s, "planned", n->planned);
        write_kind(b, g->series, s, "peak", n->peak);
        if (n->limit != ACCOUNT_NO_LIMIT)
            write_kind(b, g->series, s, "limit", n->limit);
    }
}

#undef OF
#define OF(field) GAUGE_OF(struct server_numbers, field)

static const struct gauge server_rows[] = {
    {OF(prep.count),
     GAUGE("plateau_prep_waiting", "Requests waiting for a prep thread, which parses and tokenizes.")},
    {OF(prep.bytes), GAUGE("plateau_prep_waiting_bytes", "Bytes of the requests waiting for a prep thread.")},
    {OF(prep_stopped),
     COUNTER("plateau_prep_stopped_total",
             "Requests whose preparation was stopped: the client left, or the time limit was reached.")},
    {.write = write_accounts,
     GAUGE("plateau_memory_bytes", "Bytes of each account of the memory ledger."),
     .item_label = "account,kind"},
    {OF(unaccounted.bytes),
     GAUGE("plateau_memory_unaccounted_bytes", "Resident bytes minus bytes in accounts; may be negative.")},
    {OF(unaccounted.untouched_bytes),
     GAUGE("plateau_memory_untouched_bytes", "Memory of open connections that they may not have touched: it "
                                             "can make unaccounted memory as low.")},
    {OF(resident_bytes),
     GAUGE("process_resident_memory_bytes", "Resident memory: anonymous, file and shared.")},
    {OF(memory.rss_anon_bytes), GAUGE("plateau_rss_anon_bytes", "Resident anonymous memory.")},
    {OF(memory.heap_bytes), GAUGE("plateau_heap_bytes", "Resident bytes of the heap.")},
    {OF(started_s), GAUGE("process_start_time_seconds", "Start time of the server, in seconds since 1970.")},
    {OF(requests), .scope = GAUGE_ALL_OWN,
     GAUGE("plateau_requests", "Requests in the server: received, prepared, computed or sent.")},
};

static uint32_t requests_of(const struct api *a, uint64_t tenant)
{
    uint32_t count = 0;
    LIST_EACH(it, &a->exchanges)
        count += LIST_ENTRY(it, struct exchange, all)->gen.tenant == tenant;
    return count;
}

static bool read_server(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct server_numbers *n = ret;
    (void)model;
    *n = (struct server_numbers){.api = a, .prep_stopped = atomic_load(&a->prep_stopped)};
    n->started_s = a->started_s;
    n->requests = tenant ? requests_of(a, *tenant) : atomic_load(&a->requests_now);
    if (tenant)
        return true;
    prep_queue_numbers(&a->to_prepare, &n->prep);
    n->unaccounted = report_unaccounted(a);
    footprint_read(&n->memory);
    n->resident_bytes = n->memory.rss_anon_bytes + n->memory.rss_file_bytes + n->memory.rss_shmem_bytes;
    return true;
}

static const struct gauge_table server_gauges = {
    "Of the server", server_rows, COUNT_OF(server_rows), false, sizeof(struct server_numbers), read_server};

/* ---- devices, as their drivers have them ---- */

struct device_numbers {
    struct {
        const char *name;
        struct domain_figures figures;
    } devices[DOMAINS_MAX];
    uint32_t count;
};

static void write_device_bytes(const struct gauge *g, const void *numbers, struct buf *b)
{
    const struct device_numbers *n = numbers;
    for (uint32_t i = 0; i < n->count; i++) {
        const struct domain_figures *f = &n->devices[i].figures;
        buf_printf(b, "%s{device=\"%s\",kind=\"total\"} %llu\n", g->series, n->devices[i].name,
                   (ull)f->total_bytes);
        buf_printf(b, "%s{device=\"%s\",kind=\"free\"} %llu\n", g->series, n->devices[i].name,
                   (ull)f->free_bytes);
        buf_printf(b, "%s{device=\"%s\",kind=\"others\"} %llu\n", g->series, n->devices[i].name,
                   (ull)f->others_bytes);
    }
}

static void write_device_unaccounted(const struct gauge *g, const void *numbers, struct buf *b)
{
    const struct device_numbers *n = numbers;
    for (uint32_t i = 0; i < n->count; i++)
        buf_printf(b, "%s{device=\"%s\"} %lld\n", g->series, n->devices[i].name,
                   (long long)n->devices[i].figures.unaccounted_bytes);
}

static const struct gauge device_rows[] = {
    {.write = write_device_bytes,
     GAUGE("plateau_device_memory_bytes",
           "Memory of each device, what is free of it, and what others have, by its driver."),
     .item_label = "device,kind"},
    {.write = write_device_unaccounted,
     GAUGE("plateau_device_memory_unaccounted_bytes",
           "Memory of each device that was taken since it was opened, and not by accounts: by its driver and "
           "by other programs."),
     .item_label = "device"},
};

/* Devices that are lost have no figures. */
static bool read_devices(struct api *a, const uint64_t *tenant, uint32_t model, void *ret)
{
    struct device_numbers *n = ret;
    (void)model;
    *n = (struct device_numbers){.count = 0};
    uint32_t count = tenant ? 0 : report_read_accounts(a);
    for (uint32_t i = 0; i < count; i++) {
        const struct domain *d = report_device_of(a->accounts, i);
        if (!d || !domain_figures(d, &n->devices[n->count].figures))
            continue;
        n->devices[n->count++].name = d->name;
    }
    return n->count > 0;
}

static const struct gauge_table device_gauges = {
    "Of devices", device_rows, COUNT_OF(device_rows), false, sizeof(struct device_numbers), read_devices};

/* ---- all ---- */

/* Histograms come before http_gauges. */
const struct gauge_table *const report_tables[REPORT_TABLES] = {&report_model_gauges,
                                                                &report_holders_gauges,
                                                                &report_guard_gauges,
                                                                &report_ssd_gauges,
                                                                &report_shared_gauges,
                                                                &report_media_gauges,
                                                                &report_responses_gauges,
                                                                &report_conversations_gauges,
                                                                &report_events_gauges,
                                                                &report_end_gauges,
                                                                &http_gauges,
                                                                &server_gauges,
                                                                &device_gauges};

static void write_table(struct api *a, const struct gauge_table *t, const uint64_t *tenant, struct buf *ret)
{
    _Alignas(16) char numbers[REGISTRY_MODELS_MAX * sizeof(struct report_model)];
    struct gauge_source sources[REGISTRY_MODELS_MAX];
    uint32_t count = t->per_model ? api_model_count(a) : 1;
    ASSERT(count * t->bytes <= sizeof(numbers));
    for (uint32_t i = 0; i < count; i++) {
        sources[i] = (struct gauge_source){t->per_model ? api_model_id(a, i) : NULL, numbers + i * t->bytes};
        if (!t->read(a, tenant, i, numbers + i * t->bytes))
            return;
    }
    gauges_write_series(t, sources, count, tenant != NULL, ret);
}

static void write_histograms(struct api *a, struct buf *ret)
{
    const struct metrics *metrics[REGISTRY_MODELS_MAX];
    struct slice labels[REGISTRY_MODELS_MAX];
    uint32_t count = api_model_count(a);
    for (uint32_t i = 0; i < count; i++) {
        metrics[i] = &a->metrics[i];
        labels[i] = slice_of(api_model_id(a, i));
    }
    metrics_write_histograms(metrics, labels, count, ret);
}

void report_metrics(struct api *a, const uint64_t *tenant, struct buf *ret)
{
    for (uint32_t i = 0; i < REPORT_TABLES; i++) {
        if (report_tables[i] == &http_gauges && !tenant)
            write_histograms(a, ret);
        write_table(a, report_tables[i], tenant, ret);
    }
}
