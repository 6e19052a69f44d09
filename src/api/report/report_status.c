/* report_status.c - models, requests and caches now. */
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report.h"
#include "api/report/report_model.h"

#include "base/clock.h"
#include "base/json/json_out.h"
#include "engine/engine_numbers.h"
#include "http/http_server.h"

static void write_speculation(const struct drafting_opts *g, const struct report_model *n, struct json_out *j)
{
    report_open_speculation(g, j);
    gauges_put_members(&report_model_gauges, "speculation", n, j);
    json_open_array(j, "accepted_per_position");
    for (uint32_t i = 0; i < g->drafts_max; i++)
        json_put_u64(j, NULL, n->engine.accepted_at[i]);
    json_close(j);
    json_close(j);
}

static void write_objects(const struct report_model *n, struct json_out *j)
{
    const struct gauge_table *t = &report_model_gauges;
    gauges_put_object(t, "cache", n, j);
    if (n->engine.agents_max > 0)
        gauges_put_object(t, "agents", n, j);
    gauges_put_object(t, "grammars", n, j);
    gauges_put_object(t, "images", n, j);
    json_open(j, "pools");
    gauges_put_object(t, "kv", n, j);
    gauges_put_object(t, "state", n, j);
    json_close(j);
    gauges_put_object(t, "trims", n, j);
}

/* Writes a model's entry; all figures of a model that is not loaded are zero. */
static void write_model(struct api *a, uint32_t index, struct report_model *n, struct json_out *j)
{
    struct model_lease look = {0};
    bool loaded = registry_peek(a->opts.registry, index, &look) == 0;
    report_read_model(a, index, n);
    json_open(j, NULL);
    json_put_string(j, "id", api_model_id(a, index));
    report_model_state(a, index, true, j);
    if (loaded) {
        json_put_string(j, "compute", look.model->compute);
        json_put_bool(j, "exact", look.model->exact);
        json_put_u64(j, "max_model_len", look.model->max_model_len);
        write_speculation(&look.model->drafting, n, j);
    }
    registry_release_peek(&look);
    gauges_put_members(&report_model_gauges, "model", n, j);
    write_objects(n, j);
    json_close(j);
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

void report_caches(struct api *a, const struct engine_numbers *sum, struct json_out *j)
{
    json_open(j, "caches");
    json_open(j, "host");
    JSON_PUT_U64S(j, {"limit_bytes", report_cache_limit(a, sum->cache_bytes_max)},
                  {"bytes", sum->cache_bytes}, {"pages", sum->cache_pages},
                  {"snapshots", sum->cache_snapshots},
                  {"hit_tokens", sum->cached_tokens - sum->fetched_tokens - sum->pinned_tokens});
    json_close(j);
    report_ssd(a, sum->fetched_tokens, j);
    report_shared(a, j);
    json_open(j, "pinned");
    JSON_PUT_U64S(j, {"limit_bytes", sum->pinned.bytes_max}, {"bytes", sum->pinned.bytes},
                  {"hit_tokens", sum->pinned_tokens});
    json_close(j);
    json_open(j, "images");
    JSON_PUT_U64S(j, {"limit_bytes", sum->images_bytes_max}, {"bytes", sum->images_bytes},
                  {"kept", sum->images_kept}, {"encoded", sum->images_encoded}, {"found", sum->images_found});
    json_close(j);
    json_close(j);
}

static void write_address(struct api *a, struct json_out *j)
{
    if (!a->opts.host || !a->server)
        return;
    json_open(j, "address");
    json_put_string(j, "host", a->opts.host);
    json_put_u64(j, "port", http_server_port(a->server));
    json_close(j);
}

void report_status(struct api *a, struct buf *ret)
{
    struct report_requests requests;
    struct engine_numbers cache = {0};
    struct json_out j = json_out_object(ret);
    write_address(a, &j);
    json_open_array(&j, "models");
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        struct report_model n;
        write_model(a, i, &n, &j);
        report_add_cache(&cache, &n.engine);
    }
    json_close(&j);
    report_requests(a, NULL, UINT32_MAX, &requests, &j);
    JSON_PUT_U64S(&j, {"active_requests", requests.active}, {"waiting_requests", requests.waiting},
                  {"engine_jobs", requests.jobs}, {"streams", atomic_load(&a->streams_now)});
    json_put_fixed(&j, "uptime_seconds", 1, (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
    json_put_u64(&j, "pending_trim_bytes", cache.pending_trim_bytes);
    report_caches(a, &cache, &j);
    report_media(a, &j);
    report_responses(a, &j);
    report_conversations(a, &j);
    report_events(a, &j);
    report_holders(a, &j);
    report_guard(a, &j);
    json_end(&j);
}
