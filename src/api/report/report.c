/* report.c - models, health, and the reports that tools of SGLang and vLLM read. */
#include "api/report/report.h"

#include "api/api.h"
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report_model.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_out.h"
#include "base/page_tokens.h"
#include "chat/chat_syntax.h"
#include "media/media.h"
#include "model/model_work.h"
#include "registry/model_settings.h"
#include "registry/speculation.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <time.h>

/* The first stuck model's; 0: none. */
static uint64_t stuck_for_ns(struct api *a)
{
    uint64_t silent_ns;
    for (uint32_t i = 0; i < api_model_count(a); i++)
        if (api_is_stuck(a, i, &silent_ns))
            return silent_ns;
    return 0;
}

void report_state(struct api *a, struct json_out *j)
{
    const char *stuck = api_stuck_model(a);
    double silent_s = (double)stuck_for_ns(a) / (double)NS_PER_S;
    enum api_state s = api_state_now(a);
    double progress = api_progress(a).part;
    char reason[API_REASON_BYTES];
    static const char *const names[] = {[API_LOADING] = "loading",
                                        [API_READY] = "ok",
                                        [API_LEAVING] = "draining",
                                        [API_DRAINING] = "draining",
                                        [API_FAILED] = "failed"};
    json_put_string(j, "status", s == API_READY && stuck ? "stuck" : names[s]);
    if (s == API_LOADING)
        json_put_fixed(j, "progress", 3, progress);
    api_copy_reason(a, reason);
    if (s == API_READY && stuck) {
        json_put_format(j, "reason", "no layer has finished for %u seconds", a->live.stuck_s);
        json_put_string(j, "model", stuck);
        json_put_i64(j, "since", (int64_t)(clock_wall_s() - silent_s));
        json_put_fixed(j, "silent_seconds", 1, silent_s);
    } else if (reason[0]) {
        json_put_string(j, "reason", reason);
    }
}

void report_health(struct api *a, struct buf *ret)
{
    struct json_out j = json_out_object(ret);
    report_state(a, &j);
    json_end(&j);
}

void report_model_state(struct api *a, uint32_t index, bool all, struct json_out *j)
{
    struct registry_info i;
    registry_info(a->opts.registry, index, &i);
    const char *stuck = i.state == MODEL_READY ? api_stuck_model(a) : NULL;
    bool is_stuck = stuck && stuck == api_model_id(a, index);
    json_put_string(j, "state", is_stuck ? "stuck" : registry_state_name(i.state));
    if (i.state == MODEL_LOADING)
        json_put_fixed(j, "progress", 3, i.bytes_total ? (double)i.bytes_done / (double)i.bytes_total : 0.0);
    if (i.reason[0])
        json_put_string(j, "reason", i.reason);
    json_put_bool(j, "pinned", i.pinned);
    json_put_u64(j, "needed_bytes", i.needed_bytes);
    if (!all)
        return;
    gauges_put_members(&report_model_gauges, "load", &(struct report_model){.info = i}, j);
    if (i.unloaded_why == UNLOAD_NONE)
        return;
    json_open(j, "unloaded");
    JSON_PUT_STRINGS(j, {"reason", registry_unload_name(i.unloaded_why)}, {"for", i.unloaded_for});
    json_put_fixed(j, "seconds", 1, (double)i.unloaded_ns / (double)NS_PER_S);
    json_close(j);
}

/* The limits on images of a request. */
static void write_image_sched(const struct api *a, const struct model_vision *v, struct json_out *j)
{
    json_open_array(j, "input_modalities");
    json_put_string(j, NULL, "text");
    if (v->present)
        json_put_string(j, NULL, "image");
    if (v->present && v->video_frames_max)
        json_put_string(j, NULL, "video");
    json_close(j);
    if (!v->present || !a->media) {
        json_put_null(j, "vision");
        return;
    }
    const struct media_opts *o = media_options(a->media);
    const uint32_t edge = v->patch * v->merge, frames = v->video_frames_max, parts = model_image_parts_max(v);
    json_open(j, "vision");
    JSON_PUT_U64S(j, {"images_max", o->parts_max}, {"image_pixels_max", v->pixels_max * parts},
                  {"image_tokens_max", (uint64_t)model_image_tokens_max(v) * parts},
                  {"token_pixels", edge * edge},
                  {"video_frames_max", o->frames_max ? MIN_OF(frames, o->frames_max) : frames});
    json_close(j);
}

/* For a model that is not loaded: the facts read from its files when the server started. */
static void write_unloaded(struct api *a, uint32_t index, struct json_out *j)
{
    const struct model_settings *s = registry_settings(a->opts.registry, index);
    if (!s->planned) {
        json_put_null(j, "max_model_len");
        return;
    }
    json_put_u64(j, "max_model_len", plan_context(&s->plan));
    write_image_sched(a, &s->shape.vision, j);
}

/* Writes the purpose of the model, and the routes that it serves. */
static void write_use(const struct model_use *u, struct json_out *j)
{
    json_put_string(j, "use", model_kind_name(u->kind));
    json_put_bool(j, "embeddings", u->vectors);
    json_put_bool(j, "rerank", u->scores);
    json_put_string(j, "pooling", u->vectors ? pooling_name(u->pooling.kind) : NULL);
}

/* Writes a token's work for the processor, for shares of its limits; null on another device. */
static void write_work(const struct model_shape *s, struct json_out *j)
{
    const struct model_work w = model_work_of(s);
    if (s->apart) {
        json_put_null(j, "work");
        return;
    }
    json_open(j, "work");
    JSON_PUT_U64S(j, {"token_bytes", w.token_bytes}, {"token_operations", w.token_operations},
                  {"logits_operations", w.logits_operations});
    json_put_bool(j, "routed", w.routed);
    json_close(j);
}

static void write_loaded(const struct api *a, const struct served_model *m, struct json_out *j)
{
    json_put_u64(j, "max_model_len", m->max_model_len);
    JSON_PUT_STRINGS(j, {"compute", m->compute}, {"device", m->device});
    /* The promise about tokens: bit-exact in any batch, chunk and cache state, or within a bound. */
    json_put_bool(j, "exact", m->exact);
    json_put_bool(j, "chat", m->template != NULL);
    json_put_bool(j, "tokenizer", m->tokenizer != NULL);
    write_use(&m->use, j);
    report_open_speculation(&m->drafting, j);
    json_close(j);
    write_image_sched(a, &m->shape->vision, j);
    write_work(m->shape, j);
}

void report_open_speculation(const struct drafting_opts *g, struct json_out *j)
{
    json_open(j, "speculation");
    json_put_string(j, "method", speculation_name(g));
    json_put_u64(j, "tokens_max", g->drafts_max);
    json_put_bool(j, "optimistic", g->optimistic);
}

/* The members that Anthropic's clients read. */
static void write_for_anthropic(struct slice name, int64_t created_s, struct json_out *j)
{
    char text[32];
    struct tm when;
    time_t at = (time_t)created_s;
    gmtime_r(&at, &when);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &when);
    JSON_PUT_STRINGS(j, {"type", "model"}, {"lifecycle", "active"});
    json_put_text(j, "display_name", name);
    json_put_string(j, "created_at", text);
}

/* The engines of a model with --replicas. */
static void write_replicas(struct api *a, uint32_t index, struct json_out *j)
{
    struct registry_replicas of = registry_replicas(a->opts.registry, index);
    if (of.count < 2)
        return;
    json_open_array(j, "replicas");
    for (uint32_t i = of.first; i < of.first + of.count; i++) {
        struct registry_info info;
        registry_info(a->opts.registry, i, &info);
        json_open(j, NULL);
        JSON_PUT_STRINGS(j, {"id", api_model_id(a, i)}, {"state", registry_state_name(info.state)});
        json_close(j);
    }
    json_close(j);
}

void report_model(struct api *a, uint32_t first, struct slice name, bool all, struct json_out *j)
{
    const uint32_t index = api_loaded_replica(a, first);
    struct model_lease look = {0};
    bool loaded = registry_peek(a->opts.registry, index, &look) == 0;
    int64_t created_s = loaded ? look.model->created_s : a->started_s;
    json_open(j, NULL);
    json_put_text(j, "id", name);
    json_put_string(j, "object", "model");
    json_put_i64(j, "created", created_s);
    JSON_PUT_STRINGS(j, {"owned_by", "plateau"}, {"root", api_model_id(a, first)});
    json_put_null(j, "parent");
    json_open_array(j, "permission");
    json_close(j);
    write_for_anthropic(name, created_s, j);
    report_model_state(a, index, all, j);
    write_replicas(a, first, j);
    if (loaded)
        write_loaded(a, look.model, j);
    else
        write_unloaded(a, index, j);
    const struct model_settings *s = registry_settings(a->opts.registry, index);
    report_capabilities(a, look.model,
                        loaded       ? look.model->max_model_len
                        : s->planned ? plan_context(&s->plan)
                                     : 0,
                        j);
    json_close(j);
    registry_release_peek(&look);
}

/* Writes where the list's only page begins and ends. */
static void write_page(struct api *a, uint32_t count, struct json_out *j)
{
    const struct model_settings *last =
        registry_settings(a->opts.registry, registry_first_replica(a->opts.registry, count - 1));
    JSON_PUT_STRINGS(j, {"first_id", api_model_id(a, 0)},
                     {"last_id", last->alias_count ? last->aliases[last->alias_count - 1] : last->id});
    json_put_bool(j, "has_more", false);
}

/* Each model under its id, and again under each alias: clients choose from this list. */
void report_models(struct api *a, bool all, struct buf *ret)
{
    uint32_t count = api_model_count(a);
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "object", "list");
    json_open_array(&j, "data");
    for (uint32_t i = 0; i < count; i++) {
        const struct model_settings *s = registry_settings(a->opts.registry, i);
        if (api_is_replica(a, i))
            continue;
        report_model(a, i, slice_of(s->id), all, &j);
        for (uint32_t alias = 0; alias < s->alias_count; alias++)
            report_model(a, i, slice_of(s->aliases[alias]), all, &j);
    }
    json_close(&j);
    write_page(a, count, &j);
    json_end(&j);
}

/* path: SGLang's clients read model_path under the older names of these routes. Under the newer ones routers
 * would look for it on the public hub. */
static void write_model_info(const struct served_model *m, bool path, struct json_out *j)
{
    const struct model_shape *s = m->shape;
    if (path)
        json_put_string(j, "model_path", m->id);
    JSON_PUT_STRINGS(j, {"model_type", s->family}, {"form", s->form});
    json_put_bool(j, "is_generation", m->use.kind != MODEL_EMBEDS);
    JSON_PUT_U64S(j, {"max_model_len", m->max_model_len}, {"vocab_size", s->vocab}, {"num_layers", s->layers},
                  {"hidden_size", s->hidden}, {"parameters", s->parameters},
                  {"weight_bytes", s->weight_bytes});
    JSON_PUT_STRINGS(j, {"compute", m->compute}, {"device", m->device});
    write_use(&m->use, j);
    json_open(j, "chat_format");
    chat_syntax_describe(m->syntax, j);
    json_close(j);
}

/* The first loaded model: the tools that read this know one model only. */
static bool look_at_first(struct api *a, struct model_lease *ret)
{
    for (uint32_t i = 0; i < api_model_count(a); i++)
        if (registry_peek(a->opts.registry, i, ret) == 0)
            return true;
    return false;
}

void report_model_info(struct api *a, bool path, struct buf *ret)
{
    struct model_lease look;
    struct json_out j = json_out_object(ret);
    if (look_at_first(a, &look)) {
        write_model_info(look.model, path, &j);
        registry_release_peek(&look);
    }
    json_end(&j);
}

/* A list with one entry for each data-parallel rank: there is one. */
void report_load(struct api *a, struct buf *ret)
{
    uint64_t running = 0, waiting = 0, tokens = 0;
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        struct engine_numbers n;
        api_engine_numbers(a, i, &n);
        running += n.running;
        waiting += n.waiting;
        tokens += (uint64_t)n.pages_used * PAGE_TOKENS;
    }
    struct json_out j = json_out(ret);
    json_open_array(&j, NULL);
    json_open(&j, NULL);
    JSON_PUT_U64S(&j, {"dp_rank", 0}, {"num_reqs", running + waiting}, {"num_waiting_reqs", waiting},
                  {"num_tokens", tokens});
    json_put_fixed(&j, "ts_tic", 6, (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
    json_close(&j);
    json_close(&j);
}

static void write_text(const char *name, struct slice text, struct json_out *j)
{
    if (text.len)
        json_put_text(j, name, text);
    else
        json_put_null(j, name);
}

void report_tokenizer_info(struct api *a, struct buf *ret)
{
    struct model_lease look;
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "tokenizer_class", "plateau");
    if (look_at_first(a, &look)) {
        const struct served_model *m = look.model;
        write_text("bos_token", m->tokenizer ? tokenizer_bos(m->tokenizer) : (struct slice){0}, &j);
        write_text("eos_token", m->tokenizer ? tokenizer_eos(m->tokenizer) : (struct slice){0}, &j);
        write_text("chat_template", m->template ? chat_template_source(m->template) : (struct slice){0}, &j);
        json_put_u64(&j, "model_max_length", m->max_model_len);
        registry_release_peek(&look);
    }
    json_end(&j);
}

void report_server_info(struct api *a, bool path, struct buf *ret)
{
    struct model_lease look;
    struct json_out j = json_out_object(ret);
    json_put_string(&j, "version", PLATEAU_VERSION);
    if (look_at_first(a, &look)) {
        write_model_info(look.model, path, &j);
        json_put_string(&j, "served_model_name", look.model->id);
        registry_release_peek(&look);
    }
    JSON_PUT_U64S(&j, {"max_requests", a->live.requests_max}, {"max_choices", a->opts.choices_max});
    json_put_fixed(&j, "uptime_seconds", 1, (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
    json_end(&j);
}
