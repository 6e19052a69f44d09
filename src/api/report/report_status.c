/* report_status.c - models, requests and caches now. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"
#include "api/report/report_model.h"

#include "base/clock.h"
#include "base/json/json_write.h"
#include "engine/engine_numbers.h"
#include "http/http_server.h"

static void write_speculation(const struct drafting_opts *g, const struct report_model *n, struct buf *ret)
{
    buf_puts(ret, ",\"speculation\":{");
    report_speculation(g, ret);
    buf_putc(ret, ',');
    gauges_write_members(&report_model_gauges, "speculation", n, ret);
    buf_puts(ret, ",\"accepted_per_position\":[");
    for (uint32_t i = 0; i < g->drafts_max; i++)
        buf_printf(ret, i ? ",%llu" : "%llu", (ull)n->engine.accepted_at[i]);
    buf_puts(ret, "]}");
}

static void write_objects(const struct report_model *n, struct buf *ret)
{
    const struct gauge_table *t = &report_model_gauges;
    gauges_write_object(t, "cache", n, ret);
    buf_putc(ret, ',');
    gauges_write_object(t, "grammars", n, ret);
    buf_putc(ret, ',');
    gauges_write_object(t, "images", n, ret);
    buf_puts(ret, ",\"pools\":{");
    gauges_write_object(t, "kv", n, ret);
    buf_putc(ret, ',');
    gauges_write_object(t, "state", n, ret);
    buf_puts(ret, "},");
    gauges_write_object(t, "trims", n, ret);
}

/* Writes a model's entry; all figures of a model that is not loaded are zero. */
static void write_model(struct api *a, uint32_t index, struct report_model *n, struct buf *ret)
{
    struct lease look = {0};
    bool loaded = registry_look(a->opts.registry, index, &look) == 0;
    report_read_model(a, index, n);
    buf_putc(ret, '{');
    json_write_member(ret, "id", api_model_id(a, index));
    report_model_state(a, index, true, ret);
    if (loaded) {
        buf_printf(ret, ",\"compute\":\"%s\",\"exact\":%s,\"max_model_len\":%u", look.model->compute,
                   look.model->exact ? "true" : "false", look.model->max_model_len);
        write_speculation(&look.model->drafting, n, ret);
    }
    registry_look_away(&look);
    buf_putc(ret, ',');
    gauges_write_members(&report_model_gauges, "model", n, ret);
    buf_putc(ret, ',');
    write_objects(n, ret);
    buf_putc(ret, '}');
}

void report_add_cache(struct engine_numbers *sum, const struct engine_numbers *n)
{
    sum->cache_bytes += n->cache_bytes;
    sum->cache_bytes_max += n->cache_bytes_max;
    sum->cache_pages += n->cache_pages;
    sum->cache_snapshots += n->cache_snapshots;
    sum->cached_tokens += n->cached_tokens;
    sum->fetched_tokens += n->fetched_tokens;
    sum->pinned_tokens += n->pinned_tokens;
    sum->pinned.bytes += n->pinned.bytes;
    sum->pinned.bytes_max += n->pinned.bytes_max;
    sum->pending_trim_bytes += n->pending_trim_bytes;
    sum->images_bytes += n->images_bytes;
    sum->images_bytes_max += n->images_bytes_max;
    sum->images_kept += n->images_kept;
    sum->images_encoded += n->images_encoded;
    sum->images_found += n->images_found;
}

void report_caches(struct api *a, const struct engine_numbers *sum, struct buf *ret)
{
    buf_printf(ret,
               "\"caches\":{\"host\":{\"limit_bytes\":%llu,\"bytes\":%llu,\"pages\":%u,\"snapshots\":%u,"
               "\"hit_tokens\":%llu},\"ssd\":",
               (ull)report_cache_limit(a, sum->cache_bytes_max), (ull)sum->cache_bytes, sum->cache_pages,
               sum->cache_snapshots, (ull)(sum->cached_tokens - sum->fetched_tokens - sum->pinned_tokens));
    report_ssd(a, sum->fetched_tokens, ret);
    buf_printf(ret,
               ",\"pinned\":{\"limit_bytes\":%llu,\"bytes\":%llu,\"hit_tokens\":%llu}"
               ",\"images\":{\"limit_bytes\":%llu,\"bytes\":%llu,\"kept\":%u,\"encoded\":%llu,"
               "\"found\":%llu}}",
               (ull)sum->pinned.bytes_max, (ull)sum->pinned.bytes, (ull)sum->pinned_tokens,
               (ull)sum->images_bytes_max, (ull)sum->images_bytes, sum->images_kept, (ull)sum->images_encoded,
               (ull)sum->images_found);
}

static void write_address(struct api *a, struct buf *ret)
{
    if (!a->opts.host || !a->server)
        return;
    buf_puts(ret, "\"address\":{");
    json_write_member(ret, "host", a->opts.host);
    buf_printf(ret, ",\"port\":%u},", http_server_port(a->server));
}

void report_status(struct api *a, struct buf *ret)
{
    struct report_requests requests;
    struct engine_numbers cache = {0};
    buf_putc(ret, '{');
    write_address(a, ret);
    buf_puts(ret, "\"models\":[");
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        if (i > 0)
            buf_putc(ret, ',');
        struct report_model n;
        write_model(a, i, &n, ret);
        report_add_cache(&cache, &n.engine);
    }
    buf_puts(ret, "],\"requests\":");
    report_requests(a, NULL, UINT32_MAX, &requests, ret);
    buf_printf(ret,
               ",\"active_requests\":%u,\"waiting_requests\":%u,\"engine_jobs\":%u,\"streams\":%u,"
               "\"uptime_seconds\":%.1f,\"pending_trim_bytes\":%llu,",
               requests.active, requests.waiting, requests.jobs, atomic_load(&a->streams_now),
               (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S, (ull)cache.pending_trim_bytes);
    report_caches(a, &cache, ret);
    buf_putc(ret, ',');
    report_media(a, ret);
    buf_putc(ret, ',');
    report_responses(a, ret);
    buf_putc(ret, ',');
    report_conversations(a, ret);
    buf_putc(ret, ',');
    report_holders(a, ret);
    buf_putc(ret, ',');
    report_guard(a, ret);
    buf_putc(ret, '}');
}
