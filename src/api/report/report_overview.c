/* report_overview.c - one snapshot for the page: a poll a second costs one report of a few kilobytes. */
#include "api/access/auth.h"
#include "api/access/keyring.h"
#include "api/access/owners.h"
#include "api/api_state.h"
#include "api/pulls.h"
#include "api/report/attention.h"
#include "api/report/figures.h"
#include "api/report/report.h"
#include "api/report/report_model.h"
#include "api/report/trace.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/json/json_write.h"
#include "base/log_ring.h"
#include "engine/engine_numbers.h"
#include "memory/footprint.h"
#include "registry/model_settings.h"
#include "registry/registry.h"

#include <math.h>

#define REQUESTS_MAX 100

/* ---- models ---- */

static void write_loaded(const struct served_model *m, struct buf *ret)
{
    json_write_member(ret, "compute", m->compute);
    json_write_member(ret, "device", m->device);
    json_write_member(ret, "use", model_kind_name(m->use.kind));
    buf_printf(ret, ",\"max_model_len\":%u,\"exact\":%s,\"chat\":%s,\"images\":%s", m->max_model_len,
               m->exact ? "true" : "false", m->template ? "true" : "false",
               m->shape->vision.present ? "true" : "false");
}

static void write_unloaded(const struct model_settings *s, struct buf *ret)
{
    if (s->planned)
        buf_printf(ret, ",\"max_model_len\":%u,\"images\":%s", model_settings_context(s),
                   s->shape.vision.present ? "true" : "false");
}

static void write_use(const struct report_model *n, const struct model_settings *s, struct buf *ret)
{
    buf_printf(ret,
               ",\"running\":%u,\"waiting\":%u,\"leases\":%u,\"idle_seconds\":%.1f,\"ttl_seconds\":%llu,"
               "\"generated_tokens\":%llu,\"prompt_tokens\":%llu,\"cached_tokens\":%llu",
               n->engine.running, n->engine.waiting, n->info.leases,
               (double)n->info.idle_ns / (double)NS_PER_S, (ull)(s->options.ttl_ns / NS_PER_S),
               (ull)n->engine.completion_tokens, (ull)n->engine.prompt_tokens, (ull)n->engine.cached_tokens);
}

static void write_model(struct api *a, uint32_t index, bool admin, struct engine_numbers *cache,
                        struct buf *ret)
{
    struct lease look = {0};
    const struct model_settings *s = registry_settings(a->opts.registry, index);
    bool loaded = registry_look(a->opts.registry, index, &look) == 0;
    struct report_model n;
    report_read_model(a, index, &n);
    report_add_cache(cache, &n.engine);
    buf_putc(ret, '{');
    json_write_member(ret, "id", s->id);
    report_model_state(a, index, admin, ret);
    if (loaded)
        write_loaded(look.model, ret);
    else
        write_unloaded(s, ret);
    registry_look_away(&look);
    if (admin)
        write_use(&n, s, ret);
    buf_putc(ret, '}');
}

static void write_models(struct api *a, bool admin, struct engine_numbers *cache, struct buf *ret)
{
    buf_puts(ret, ",\"models\":[");
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        if (i > 0)
            buf_putc(ret, ',');
        write_model(a, i, admin, cache, ret);
    }
    buf_putc(ret, ']');
}

/* ---- memory ---- */

static void write_limit(uint64_t limit, struct buf *ret)
{
    if (limit == ACCOUNT_NO_LIMIT)
        buf_puts(ret, ",\"limit_bytes\":null");
    else
        buf_printf(ret, ",\"limit_bytes\":%llu", (ull)limit);
}

static void write_totals(const struct account_numbers *n, struct buf *ret)
{
    write_limit(n->limit, ret);
    buf_printf(ret, ",\"used_bytes\":%llu,\"reserved_bytes\":%llu,\"peak_bytes\":%llu", (ull)n->used,
               (ull)n->reserved, (ull)n->peak);
}

static void write_owners(const struct owners *o, struct buf *ret)
{
    struct domain_figures f;
    json_write_member(ret, "domain", o->root->domain->name);
    write_totals(o->root, ret);
    if (domain_figures(o->root->domain, &f))
        buf_printf(ret, ",\"free_bytes\":%llu,\"others_bytes\":%llu", (ull)f.free_bytes, (ull)f.others_bytes);
    buf_printf(ret, ",\"server_bytes\":%llu,\"owners\":[", (ull)o->server);
    for (uint32_t i = 0; i < o->count; i++) {
        const struct owner *m = &o->models[i];
        buf_puts(ret, i ? ",{" : "{");
        json_write_member(ret, "id", m->account->name);
        write_totals(m->account, ret);
        buf_printf(ret, ",\"fixed_bytes\":%llu,\"active_bytes\":%llu,\"kept_bytes\":%llu}", (ull)m->fixed,
                   (ull)m->active, (ull)m->kept);
    }
    buf_putc(ret, ']');
}

static void write_memory(struct api *a, uint64_t pending_trim_bytes, struct buf *ret)
{
    struct owners owners;
    struct footprint f;
    owners_read(a, 0, &owners);
    buf_puts(ret, ",\"memory\":{");
    write_owners(&owners, ret);
    footprint_read(&f);
    uint64_t resident = f.rss_anon_bytes + f.rss_shmem_bytes + f.swap_bytes;
    struct unaccounted un = report_unaccounted(a);
    buf_printf(ret,
               ",\"unaccounted_bytes\":%lld,\"untouched_bytes\":%llu,\"accounted_bytes\":%lld,"
               "\"pending_trim_bytes\":%llu,\"resident_bytes\":%llu,"
               "\"ram_bytes\":%llu,\"ram_available_bytes\":%llu,\"devices\":[",
               (long long)un.bytes, (ull)un.untouched_bytes, (long long)resident - (long long)un.bytes,
               (ull)pending_trim_bytes, (ull)resident, (ull)f.ram_bytes, (ull)f.ram_available_bytes);
    for (uint32_t i = 1; owners_read(a, i, &owners); i++) {
        buf_puts(ret, i > 1 ? ",{" : "{");
        write_owners(&owners, ret);
        buf_putc(ret, '}');
    }
    buf_puts(ret, "]}");
}

/* ---- figures ---- */

static void write_seconds(const char *name, double value, struct buf *ret)
{
    if (isnan(value))
        buf_printf(ret, ",\"%s\":null", name);
    else
        buf_printf(ret, ",\"%s\":%.4f", name, value);
}

static void write_rates(const struct figures *f, struct buf *ret)
{
    struct figures_rates r;
    figures_rates(f, &r);
    buf_printf(ret,
               ",\"rates\":{\"generated_tokens\":%.2f,\"prefill_tokens\":%.2f,\"cached_tokens\":%.2f,"
               "\"first_tokens\":%llu",
               r.generated, r.prefilled, r.cached, (ull)r.first_tokens);
    write_seconds("first_token_p50_seconds", r.first_token_p50, ret);
    write_seconds("first_token_p95_seconds", r.first_token_p95, ret);
    buf_putc(ret, '}');
}

static void write_attention(const struct figures *f, struct buf *ret)
{
    struct attention_item item;
    bool first = true;
    double now_s = clock_wall_s();
    uint64_t now_ns = clock_now_ns();
    buf_puts(ret, ",\"attention\":[");
    for (uint32_t i = 0; i < ATTENTION_ROWS; i++) {
        if (!attention_at(figures_attention(f), i, &item))
            continue;
        buf_puts(ret, first ? "{" : ",{");
        json_write_member(ret, "id", item.id);
        json_write_member(ret, "level", item.level);
        json_write_member(ret, "what", item.what);
        json_write_member(ret, "do", item.remedy);
        json_write_member(ret, "model", item.model);
        buf_printf(ret, ",\"since\":%.0f}", now_s - (double)(now_ns - item.since_ns) / (double)NS_PER_S);
        first = false;
    }
    buf_putc(ret, ']');
}

static void write_admins(struct api *a, const struct engine_numbers *cache, struct buf *ret)
{
    write_memory(a, cache->pending_trim_bytes, ret);
    buf_putc(ret, ',');
    report_caches(a, cache, ret);
    buf_putc(ret, ',');
    report_guard(a, ret);
    if (a->figures) {
        write_rates(a->figures, ret);
        write_attention(a->figures, ret);
    }
    if (a->opts.pull) {
        buf_puts(ret, ",\"pull\":");
        struct json_out j = json_out(ret);
        pulls_write(a, &j, NULL);
    }
    buf_printf(ret, ",\"log_last\":%llu", (ull)log_ring_last());
}

/* Which key was sent, and whether one is needed to use the models. */
static void write_key(struct api *a, const struct auth *who, struct buf *ret)
{
    bool needed = keyring_count(a->opts.keys, KEYRING_MODELS) > 0;
    buf_printf(ret, ",\"admin\":%s,\"key_unknown\":%s,\"key_needed\":%s", who->admin ? "true" : "false",
               who->unknown ? "true" : "false", needed ? "true" : "false");
}

void report_overview(struct api *a, const struct auth *who, struct buf *ret)
{
    struct engine_numbers cache = {0};
    struct report_requests requests;
    const uint64_t *tenant = who->admin ? NULL : &who->tenant;
    buf_puts(ret, "{\"version\":\"" PLATEAU_VERSION "\"");
    write_key(a, who, ret);
    buf_printf(ret, ",\"time\":%.3f,\"uptime_seconds\":%.1f,", clock_wall_s(),
               (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
    report_state(a, ret);
    write_models(a, who->admin, &cache, ret);
    buf_puts(ret, ",\"requests\":");
    report_requests(a, tenant, REQUESTS_MAX, &requests, ret);
    buf_printf(ret, ",\"active_requests\":%u,\"waiting_requests\":%u", requests.active, requests.waiting);
    buf_printf(ret, ",\"requests_last\":%llu", (ull)trace_last(a->trace, tenant));
    if (who->admin)
        write_admins(a, &cache, ret);
    buf_putc(ret, '}');
}
