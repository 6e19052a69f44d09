/* report.c - models, health, and the reports that tools of SGLang and vLLM read. */
#include "api/report/report.h"

#include "api/api.h"
#include "api/api_state.h"
#include "api/report/gauge.h"
#include "api/report/report_model.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/json/json_write.h"
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

void report_state(struct api *a, struct buf *ret)
{
    const char *stuck = api_stuck_model(a);
    uint64_t silent_ns = stuck_for_ns(a);
    enum api_state s = api_state_now(a);
    double progress = api_progress(a).part;
    char reason[API_REASON_BYTES];
    static const char *const names[] = {
        [API_LOADING] = "loading", [API_READY] = "ok", [API_DRAINING] = "draining", [API_FAILED] = "failed"};
    buf_puts(ret, "\"status\":");
    json_write_string(ret, slice_of(s == API_READY && stuck ? "stuck" : names[s]));
    if (s == API_LOADING)
        buf_printf(ret, ",\"progress\":%.3f", progress);
    api_copy_reason(a, reason);
    if (s == API_READY && stuck) {
        buf_printf(ret, ",\"reason\":\"no layer has finished for %u seconds\"", a->live.stuck_s);
        json_write_member(ret, "model", stuck);
        buf_printf(ret, ",\"since\":%lld,\"silent_seconds\":%.1f",
                   (long long)(clock_wall_s() - (double)silent_ns / (double)NS_PER_S),
                   (double)silent_ns / (double)NS_PER_S);
    } else if (reason[0]) {
        json_write_member(ret, "reason", reason);
    }
}

void report_health(struct api *a, struct buf *ret)
{
    buf_putc(ret, '{');
    report_state(a, ret);
    buf_putc(ret, '}');
}

void report_model_state(struct api *a, uint32_t index, bool all, struct buf *ret)
{
    struct registry_info i;
    registry_info(a->opts.registry, index, &i);
    const char *stuck = i.state == MODEL_READY ? api_stuck_model(a) : NULL;
    bool is_stuck = stuck && stuck == api_model_id(a, index);
    json_write_member(ret, "state", is_stuck ? "stuck" : model_state_name(i.state));
    if (i.state == MODEL_LOADING)
        buf_printf(ret, ",\"progress\":%.3f",
                   i.bytes_total ? (double)i.bytes_done / (double)i.bytes_total : 0.0);
    if (i.reason[0])
        json_write_member(ret, "reason", i.reason);
    buf_printf(ret, ",\"pinned\":%s,\"needed_bytes\":%llu", i.pinned ? "true" : "false", (ull)i.needed_bytes);
    if (!all)
        return;
    buf_putc(ret, ',');
    gauges_write_members(&report_model_gauges, "load", &(struct report_model){.info = i}, ret);
    if (i.unloaded_why == UNLOAD_NONE)
        return;
    buf_puts(ret, ",\"unloaded\":{");
    json_write_member(ret, "reason", unload_reason_name(i.unloaded_why));
    json_write_member(ret, "for", i.unloaded_for);
    buf_printf(ret, ",\"seconds\":%.1f}", (double)i.unloaded_ns / (double)NS_PER_S);
}

/* The limits on images of a request. */
static void write_image_sched(const struct api *a, const struct model_vision *v, struct buf *ret)
{
    buf_printf(ret, ",\"input_modalities\":[\"text\"%s%s],\"vision\":", v->present ? ",\"image\"" : "",
               v->present && v->video_frames_max ? ",\"video\"" : "");
    if (!v->present || !a->media) {
        buf_puts(ret, "null");
        return;
    }
    const struct media_opts *o = media_options(a->media);
    uint32_t edge = v->patch * v->merge, frames = v->video_frames_max;
    buf_printf(ret,
               "{\"images_max\":%u,\"image_pixels_max\":%llu,\"image_tokens_max\":%llu,\"token_pixels\":%u,"
               "\"video_frames_max\":%u}",
               o->parts_max, (ull)v->pixels_max, (ull)(v->pixels_max / edge / edge), edge * edge,
               o->frames_max ? MIN_OF(frames, o->frames_max) : frames);
}

/* For a model that is not loaded: the facts read from its files when the server started. */
static void write_unloaded(struct api *a, uint32_t index, struct buf *ret)
{
    const struct model_settings *s = registry_settings(a->opts.registry, index);
    if (s->planned)
        buf_printf(ret, ",\"max_model_len\":%u", model_settings_context(s));
    else
        buf_puts(ret, ",\"max_model_len\":null");
    if (s->planned)
        write_image_sched(a, &s->shape.vision, ret);
}

/* Writes the purpose of the model, and the routes that it serves. */
static void write_use(const struct model_use *u, struct buf *ret)
{
    buf_printf(ret, "\"use\":\"%s\",\"embeddings\":%s,\"rerank\":%s", model_kind_name(u->kind),
               u->vectors ? "true" : "false", u->scores ? "true" : "false");
    json_write_member(ret, "pooling", u->vectors ? pooling_name(u->pooling.kind) : NULL);
}

/* Writes a token's work for the processor, for shares of its limits; null on another device. */
static void write_work(const struct model_shape *s, struct buf *ret)
{
    const struct model_work w = model_work_of(s);
    if (s->apart) {
        buf_puts(ret, ",\"work\":null");
        return;
    }
    buf_printf(ret,
               ",\"work\":{\"token_bytes\":%llu,\"token_operations\":%llu,\"logits_operations\":%llu,"
               "\"routed\":%s}",
               (ull)w.token_bytes, (ull)w.token_operations, (ull)w.logits_operations,
               w.routed ? "true" : "false");
}

static void write_loaded(const struct api *a, const struct served_model *m, struct buf *ret)
{
    buf_printf(ret, ",\"max_model_len\":%u", m->max_model_len);
    json_write_member(ret, "compute", m->compute);
    json_write_member(ret, "device", m->device);
    /* The promise about tokens: bit-exact in any batch, chunk and cache state, or within a bound. */
    buf_printf(ret, ",\"exact\":%s,\"chat\":%s,\"tokenizer\":%s,", m->exact ? "true" : "false",
               m->template ? "true" : "false", m->tokenizer ? "true" : "false");
    write_use(&m->use, ret);
    buf_puts(ret, ",\"speculation\":{");
    report_speculation(&m->drafting, ret);
    buf_putc(ret, '}');
    write_image_sched(a, &m->shape->vision, ret);
    write_work(m->shape, ret);
}

void report_speculation(const struct drafting_opts *g, struct buf *ret)
{
    buf_printf(ret, "\"method\":\"%s\",\"tokens_max\":%u,\"optimistic\":%s", speculation_name(g),
               g->drafts_max, g->optimistic ? "true" : "false");
}

/* The members that Anthropic's clients read. */
static void write_for_anthropic(struct slice name, int64_t created_s, struct buf *ret)
{
    char text[32];
    struct tm when;
    time_t at = (time_t)created_s;
    gmtime_r(&at, &when);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &when);
    buf_puts(ret, ",\"type\":\"model\",\"lifecycle\":\"active\",\"display_name\":");
    json_write_string(ret, name);
    buf_printf(ret, ",\"created_at\":\"%s\"", text);
}

void report_model(struct api *a, uint32_t index, struct slice name, bool all, struct buf *ret)
{
    struct lease look = {0};
    bool loaded = registry_look(a->opts.registry, index, &look) == 0;
    buf_puts(ret, "{\"id\":");
    json_write_string(ret, name);
    buf_printf(ret, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"plateau\"",
               (long long)(loaded ? look.model->created_s : a->started_s));
    json_write_member(ret, "root", api_model_id(a, index));
    buf_puts(ret, ",\"parent\":null,\"permission\":[]");
    write_for_anthropic(name, loaded ? look.model->created_s : a->started_s, ret);
    report_model_state(a, index, all, ret);
    if (loaded)
        write_loaded(a, look.model, ret);
    else
        write_unloaded(a, index, ret);
    const struct model_settings *s = registry_settings(a->opts.registry, index);
    report_capabilities(a, look.model,
                        loaded       ? look.model->max_model_len
                        : s->planned ? model_settings_context(s)
                                     : 0,
                        ret);
    buf_putc(ret, '}');
    registry_look_away(&look);
}

/* `"first_id":...,"last_id":...,"has_more":false`: the list has one page. */
static void write_page(struct api *a, uint32_t count, struct buf *ret)
{
    const struct model_settings *last = registry_settings(a->opts.registry, count - 1);
    buf_puts(ret, "\"first_id\":");
    json_write_string(ret, slice_of(api_model_id(a, 0)));
    buf_puts(ret, ",\"last_id\":");
    json_write_string(ret, slice_of(last->alias_count ? last->aliases[last->alias_count - 1] : last->id));
    buf_puts(ret, ",\"has_more\":false");
}

/* Each model under its id, and again under each alias: clients choose from this list. */
void report_models(struct api *a, bool all, struct buf *ret)
{
    uint32_t count = api_model_count(a);
    buf_puts(ret, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < count; i++) {
        const struct model_settings *s = registry_settings(a->opts.registry, i);
        if (i > 0)
            buf_putc(ret, ',');
        report_model(a, i, slice_of(s->id), all, ret);
        for (uint32_t alias = 0; alias < s->alias_count; alias++) {
            buf_putc(ret, ',');
            report_model(a, i, slice_of(s->aliases[alias]), all, ret);
        }
    }
    buf_puts(ret, "],");
    write_page(a, count, ret);
    buf_putc(ret, '}');
}

static void write_model_info(const struct served_model *m, struct buf *ret)
{
    const struct model_shape *s = m->shape;
    json_write_member(ret, "model_path", m->id);
    json_write_member(ret, "tokenizer_path", m->tokenizer ? m->id : NULL);
    json_write_member(ret, "model_type", s->family);
    json_write_member(ret, "form", s->form);
    buf_printf(
        ret,
        ",\"is_generation\":%s,\"max_model_len\":%u,\"vocab_size\":%u,\"num_layers\":%u,\"hidden_size\":%u,"
        "\"parameters\":%llu,\"weight_bytes\":%llu",
        m->use.kind == MODEL_EMBEDS ? "false" : "true", m->max_model_len, s->vocab, s->layers, s->hidden,
        (ull)s->parameters, (ull)s->weight_bytes);
    json_write_member(ret, "compute", m->compute);
    json_write_member(ret, "device", m->device);
    buf_putc(ret, ',');
    write_use(&m->use, ret);
    buf_puts(ret, ",\"chat_format\":{");
    chat_syntax_describe(m->syntax, ret);
    buf_putc(ret, '}');
}

/* The first loaded model: the tools that read this know one model only. */
static bool look_at_first(struct api *a, struct lease *ret)
{
    for (uint32_t i = 0; i < api_model_count(a); i++)
        if (registry_look(a->opts.registry, i, ret) == 0)
            return true;
    return false;
}

void report_model_info(struct api *a, struct buf *ret)
{
    struct lease look;
    buf_putc(ret, '{');
    if (look_at_first(a, &look)) {
        write_model_info(look.model, ret);
        registry_look_away(&look);
    }
    buf_putc(ret, '}');
}

static void write_text(const char *name, struct slice text, struct buf *ret)
{
    buf_printf(ret, ",\"%s\":", name);
    if (text.len)
        json_write_string(ret, text);
    else
        buf_puts(ret, "null");
}

void report_tokenizer_info(struct api *a, struct buf *ret)
{
    struct lease look;
    buf_puts(ret, "{\"tokenizer_class\":\"plateau\"");
    if (look_at_first(a, &look)) {
        const struct served_model *m = look.model;
        write_text("bos_token", m->tokenizer ? tokenizer_bos(m->tokenizer) : (struct slice){0}, ret);
        write_text("eos_token", m->tokenizer ? tokenizer_eos(m->tokenizer) : (struct slice){0}, ret);
        write_text("chat_template", m->template ? chat_template_source(m->template) : (struct slice){0}, ret);
        buf_printf(ret, ",\"model_max_length\":%u", m->max_model_len);
        registry_look_away(&look);
    }
    buf_putc(ret, '}');
}

void report_server_info(struct api *a, struct buf *ret)
{
    struct lease look;
    buf_puts(ret, "{\"version\":\"" PLATEAU_VERSION "\"");
    if (look_at_first(a, &look)) {
        write_model_info(look.model, ret);
        json_write_member(ret, "served_model_name", look.model->id);
        registry_look_away(&look);
    }
    buf_printf(ret, ",\"max_requests\":%u,\"max_choices\":%u,\"uptime_seconds\":%.1f}", a->live.requests_max,
               a->opts.choices_max, (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
}
