/* report.c - models, health, and what SGLang's and vLLM's tools ask of a server. */
#include "api/report.h"

#include "base/check.h"
#include "base/clock.h"
#include "text/chat_format.h"

static void key_string(struct buf *b, const char *key, const char *value)
{
    buf_printf(b, "\"%s\":", key);
    if (value)
        json_write_string(b, slice_of(value));
    else
        buf_puts(b, "null");
}

/* The first stuck model's; 0: none. */
static uint64_t stuck_for_ns(struct api *a)
{
    uint64_t silent_ns;
    for (uint32_t i = 0; i < api_model_count(a); i++)
        if (watch_is_stuck(a, i, &silent_ns))
            return silent_ns;
    return 0;
}

void report_health(struct api *a, struct buf *ret)
{
    const char *stuck = api_stuck_model(a);
    uint64_t silent_ns = stuck_for_ns(a);
    enum api_state s = api_state_now(a);
    uint64_t done = atomic_load(&a->progress_done), total = atomic_load(&a->progress_total);
    char reason[API_REASON_BYTES];
    static const char *const names[] = {
        [API_LOADING] = "loading", [API_READY] = "ok", [API_DRAINING] = "draining", [API_FAILED] = "failed"};
    buf_putc(ret, '{');
    key_string(ret, "status", s == API_READY && stuck ? "stuck" : names[s]);
    if (s == API_LOADING && total > 0)
        buf_printf(ret, ",\"progress\":%.3f", (double)MIN_OF(done, total) / (double)total);
    api_copy_reason(a, reason);
    if (s == API_READY && stuck)
        buf_printf(ret, ",\"reason\":\"no layer has finished for %u seconds\",", a->live.stuck_s);
    else if (reason[0])
        buf_putc(ret, ',');
    if (s == API_READY && stuck) {
        key_string(ret, "model", stuck);
        buf_printf(ret, ",\"since\":%lld,\"silent_seconds\":%.1f",
                   (long long)(clock_wall_s() - (double)silent_ns / (double)NS_PER_S),
                   (double)silent_ns / (double)NS_PER_S);
    } else if (reason[0])
        key_string(ret, "reason", reason);
    buf_putc(ret, '}');
}

void report_model(const struct served_model *m, struct buf *ret)
{
    buf_putc(ret, '{');
    key_string(ret, "id", m->id);
    buf_printf(ret, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"plateau\",",
               (long long)m->created_s);
    key_string(ret, "root", m->id);
    buf_printf(ret, ",\"parent\":null,\"max_model_len\":%u,", m->max_model_len);
    key_string(ret, "compute", m->compute);
    /* Which promise about tokens holds: bit for bit in any batch, chunk and cache state, or within a bound. */
    buf_printf(ret, ",\"exact\":%s,\"chat\":%s,\"tokenizer\":%s,\"permission\":[]}",
               m->exact ? "true" : "false", m->template ? "true" : "false", m->tokenizer ? "true" : "false");
}

void report_models(struct api *a, struct buf *ret)
{
    buf_puts(ret, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < api_model_count(a); i++) {
        if (i > 0)
            buf_putc(ret, ',');
        report_model(&a->models[i], ret);
    }
    buf_puts(ret, "]}");
}

static void write_model_info(const struct served_model *m, struct buf *ret)
{
    const struct model_shape *s = m->shape;
    key_string(ret, "model_path", m->id);
    buf_putc(ret, ',');
    key_string(ret, "tokenizer_path", m->tokenizer ? m->id : NULL);
    buf_putc(ret, ',');
    key_string(ret, "model_type", s->family);
    buf_printf(
        ret,
        ",\"is_generation\":true,\"max_model_len\":%u,\"vocab_size\":%u,\"num_layers\":%u,\"hidden_size\":%u,"
        "\"parameters\":%llu,\"weight_bytes\":%llu,",
        m->max_model_len, s->vocab, s->layers, s->hidden, (unsigned long long)s->parameters,
        (unsigned long long)s->weight_bytes);
    key_string(ret, "compute", m->compute);
}

void report_model_info(struct api *a, struct buf *ret)
{
    buf_putc(ret, '{');
    if (api_model_count(a) > 0)
        write_model_info(&a->models[0], ret);
    buf_putc(ret, '}');
}

void report_server_info(struct api *a, struct buf *ret)
{
    buf_puts(ret, "{\"version\":\"" PLATEAU_VERSION "\",");
    if (api_model_count(a) > 0) {
        write_model_info(&a->models[0], ret);
        buf_putc(ret, ',');
        key_string(ret, "served_model_name", a->models[0].id);
        buf_putc(ret, ',');
    }
    buf_printf(ret, "\"max_requests\":%u,\"max_choices\":%u,\"uptime_seconds\":%.1f}", a->live.requests_max,
               a->opts.choices_max, (double)(clock_now_ns() - a->started_ns) / (double)NS_PER_S);
}
