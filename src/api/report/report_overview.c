/* report_overview.c - one snapshot for the page: a poll a second costs one report of a few kilobytes. */
#include "api/access/auth.h"
#include "api/access/keyring.h"
#include "api/access/owners.h"
#include "api/api_state.h"
#include "api/pulls.h"
#include "api/report/report_attention.h"
#include "api/report/figures.h"
#include "api/report/report.h"
#include "api/report/report_model.h"
#include "api/report/trace.h"

#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/log_ring.h"
#include "engine/engine_numbers.h"
#include "memory/footprint.h"
#include "registry/model_settings.h"
#include "registry/registry.h"

#define REQUESTS_MAX 100

/* ---- models ---- */

static void write_loaded(const struct served_model *m, struct json_out *j)
{
    JSON_PUT_STRINGS(j, {"compute", m->compute}, {"device", m->device},
                     {"use", model_kind_name(m->use.kind)});
    json_put_u64(j, "max_model_len", m->max_model_len);
    json_put_bool(j, "exact", m->exact);
    json_put_bool(j, "chat", m->template != NULL);
    json_put_bool(j, "images", m->shape->vision.present);
}

static void write_unloaded(const struct model_settings *s, struct json_out *j)
{
    if (!s->planned)
        return;
    json_put_u64(j, "max_model_len", plan_context(&s->plan));
    json_put_bool(j, "images", s->shape.vision.present);
}

static void write_use(const struct report_model *n, const struct model_settings *s, struct json_out *j)
{
    JSON_PUT_U64S(j, {"running", n->engine.running}, {"waiting", n->engine.waiting},
                  {"leases", n->info.leases});
    json_put_fixed(j, "idle_seconds", 1, (double)n->info.idle_ns / (double)NS_PER_S);
    JSON_PUT_U64S(j, {"ttl_seconds", s->options.ttl_ns / NS_PER_S},
                  {"generated_tokens", n->engine.completion_tokens},
                  {"prompt_tokens", n->engine.prompt_tokens}, {"cached_tokens", n->engine.cached_tokens});
}

static void write_model(struct api *a, uint32_t index, bool admin, struct engine_numbers *cache,
                        struct json_out *j)
{
    struct model_lease look = {0};
    const struct model_settings *s = registry_settings(a->opts.registry, index);
    bool loaded = registry_peek(a->opts.registry, index, &look) == 0;
    struct report_model n;
    report_read_model(a, index, &n);
    report_add_cache(cache, &n.engine);
    json_open(j, NULL);
    json_put_string(j, "id", s->id);
    if (api_is_replica(a, index))
        json_put_string(j, "replica_of", api_model_id(a, registry_first_replica(a->opts.registry, index)));
    report_model_state(a, index, admin, j);
    if (loaded)
        write_loaded(look.model, j);
    else
        write_unloaded(s, j);
    registry_release_peek(&look);
    if (admin)
        write_use(&n, s, j);
    json_close(j);
}

static void write_models(struct api *a, bool admin, struct engine_numbers *cache, struct json_out *j)
{
    json_open_array(j, "models");
    for (uint32_t i = 0; i < api_model_count(a); i++)
        write_model(a, i, admin, cache, j);
    json_close(j);
}

static void write_totals(const struct account_numbers *n, struct json_out *j)
{
    if (n->limit == ACCOUNT_NO_LIMIT)
        json_put_null(j, "limit_bytes");
    else
        json_put_u64(j, "limit_bytes", n->limit);
    JSON_PUT_U64S(j, {"used_bytes", n->used}, {"reserved_bytes", n->reserved}, {"peak_bytes", n->peak});
}

static void write_owners(const struct owners *o, struct json_out *j)
{
    struct domain_figures f;
    json_put_string(j, "domain", o->root->domain->name);
    write_totals(o->root, j);
    if (domain_figures(o->root->domain, &f))
        JSON_PUT_U64S(j, {"free_bytes", f.free_bytes}, {"others_bytes", f.others_bytes});
    json_put_u64(j, "server_bytes", o->server);
    json_open_array(j, "owners");
    for (uint32_t i = 0; i < o->count; i++) {
        const struct owner *m = &o->models[i];
        json_open(j, NULL);
        json_put_string(j, "id", m->account->name);
        write_totals(m->account, j);
        JSON_PUT_U64S(j, {"fixed_bytes", m->fixed}, {"active_bytes", m->active}, {"kept_bytes", m->kept});
        json_close(j);
    }
    json_close(j);
}

static void write_memory(struct api *a, uint64_t pending_trim_bytes, struct json_out *j)
{
    struct owners owners;
    struct footprint f;
    owners_read(a, 0, &owners);
    json_open(j, "memory");
    write_owners(&owners, j);
    footprint_read(&f);
    uint64_t resident = f.rss_anon_bytes + f.rss_shmem_bytes + f.swap_bytes;
    struct unaccounted un = report_unaccounted(a);
    json_put_i64(j, "unaccounted_bytes", un.bytes);
    json_put_u64(j, "untouched_bytes", un.untouched_bytes);
    json_put_i64(j, "accounted_bytes", (int64_t)resident - un.bytes);
    JSON_PUT_U64S(j, {"pending_trim_bytes", pending_trim_bytes}, {"resident_bytes", resident},
                  {"ram_bytes", f.ram_bytes}, {"ram_available_bytes", f.ram_available_bytes});
    json_open_array(j, "devices");
    for (uint32_t i = 1; owners_read(a, i, &owners); i++) {
        json_open(j, NULL);
        write_owners(&owners, j);
        json_close(j);
    }
    json_close(j);
    json_close(j);
}

static void write_rates(const struct figures *f, struct json_out *j)
{
    struct figures_rates r;
    figures_rates(f, &r);
    json_open(j, "rates");
    json_put_fixed(j, "generated_tokens", 2, r.generated);
    json_put_fixed(j, "prefill_tokens", 2, r.prefilled);
    json_put_fixed(j, "cached_tokens", 2, r.cached);
    json_put_u64(j, "first_tokens", r.first_tokens);
    json_put_fixed(j, "first_token_p50_seconds", 4, r.first_token_p50);
    json_put_fixed(j, "first_token_p95_seconds", 4, r.first_token_p95);
    json_close(j);
}

static void write_attention(const struct figures *f, struct json_out *j)
{
    struct attention_item item;
    double now_s = clock_wall_s();
    uint64_t now_ns = clock_now_ns();
    json_open_array(j, "attention");
    for (uint32_t i = 0; i < ATTENTION_ROWS; i++) {
        if (!attention_at(figures_attention(f), i, &item))
            continue;
        json_open(j, NULL);
        JSON_PUT_STRINGS(j, {"id", item.id}, {"level", item.level}, {"what", item.what}, {"do", item.remedy},
                         {"model", item.model});
        json_put_fixed(j, "since", 0, now_s - (double)(now_ns - item.since_ns) / (double)NS_PER_S);
        json_close(j);
    }
    json_close(j);
}

static void write_admins(struct api *a, const struct engine_numbers *cache, struct json_out *j)
{
    write_memory(a, cache->pending_trim_bytes, j);
    report_caches(a, cache, j);
    report_guard(a, j);
    if (a->figures) {
        write_rates(a->figures, j);
        write_attention(a->figures, j);
    }
    if (a->opts.pull)
        pulls_write(a, j, "pull");
    json_put_u64(j, "log_last", log_ring_last());
}

/* Which key was sent, and whether one is needed to use the models. */
static void write_key(struct api *a, const struct auth *who, struct json_out *j)
{
    json_put_bool(j, "admin", who->admin);
    json_put_bool(j, "key_unknown", who->unknown);
    json_put_bool(j, "key_needed", keyring_count(a->opts.keys, KEYRING_MODELS) > 0);
}

void report_overview(struct api *a, const struct auth *who, struct buf *ret)
{
    struct engine_numbers cache = {0};
    struct report_requests requests;
    const uint64_t *tenant = who->admin ? NULL : &who->tenant;
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "version", PLATEAU_VERSION);
    write_key(a, who, &j);
    json_put_fixed(&j, "time", 3, clock_wall_s());
    json_put_fixed(&j, "uptime_seconds", 1, (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
    report_state(a, &j);
    write_models(a, who->admin, &cache, &j);
    report_requests(a, tenant, REQUESTS_MAX, &requests, &j);
    JSON_PUT_U64S(&j, {"active_requests", requests.active}, {"waiting_requests", requests.waiting},
                  {"requests_last", trace_last(a->trace, tenant)});
    if (who->admin)
        write_admins(a, &cache, &j);
    json_end(&j);
}
