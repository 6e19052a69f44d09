/* report_trace.c - the last requests that ended or were refused, oldest first. */
#include "api/api_state.h"
#include "api/report/report.h"
#include "api/report/trace.h"
#include "api/turns/cache_miss.h"

#include "base/clock.h"
#include "base/json/json_write.h"

static double ms_of(uint64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

static void write_refusal(const struct trace_refusal *why, struct buf *ret)
{
    if (why->status > 0)
        buf_printf(ret, ",\"status\":%u", why->status);
    else
        buf_puts(ret, ",\"status\":null");
    json_write_member(ret, "code", why->code);
    json_write_member(ret, "param", why->param[0] ? why->param : NULL);
    json_write_member(ret, "message", why->message[0] ? why->message : NULL);
}

static void write_times(const struct trace_record *r, struct buf *ret)
{
    buf_printf(ret, ",\"seconds\":%.3f,\"first_token_ms\":", (double)r->total_ns / (double)NS_PER_S);
    if (r->first_token_ns > 0)
        buf_printf(ret, "%.1f", ms_of(r->first_token_ns));
    else
        buf_puts(ret, "null");
    buf_puts(ret, ",\"phases\":{");
    for (uint32_t p = 0; p < TRACE_PHASES; p++)
        buf_printf(ret, p ? ",\"%s\":%.1f" : "\"%s\":%.1f", trace_phase_name((enum trace_phase)p),
                   ms_of(r->phase_ns[p]));
    buf_putc(ret, '}');
}

static void write_record(struct api *a, const struct trace_record *r, struct buf *ret)
{
    buf_printf(ret, "{\"number\":%llu,\"first\":%llu,\"untold\":%u,\"ended\":%.3f", (ull)r->number,
               (ull)r->first, r->untold, r->ended_s);
    json_write_member(ret, "id", r->id[0] ? r->id : NULL);
    json_write_member(ret, "action", r->who.action);
    json_write_member(ret, "key", r->who.key);
    json_write_member(ret, "client", r->who.client);
    json_write_member(ret, "model", r->model >= 0 ? api_model_id(a, (uint32_t)r->model) : NULL);
    json_write_member(ret, "end", r->end);
    write_refusal(&r->refusal, ret);
    buf_printf(ret, ",\"choices\":%u,\"prompt_tokens\":%u,\"cached_tokens\":%u,\"tokens\":%u", r->choices,
               r->prompt_tokens, r->cached_tokens, r->tokens);
    buf_puts(ret, ",\"cache_miss\":");
    cache_miss_write(&r->cache_miss, ret);
    write_times(r, ret);
    buf_putc(ret, '}');
}

void report_trace(struct api *a, const uint64_t *tenant, uint64_t after, uint32_t max, struct buf *ret)
{
    const struct trace_record *r = trace_next(a->trace, after, tenant);
    buf_puts(ret, "{\"requests\":[");
    for (uint32_t i = 0; r && i < max; i++) {
        if (i > 0)
            buf_putc(ret, ',');
        write_record(a, r, ret);
        r = trace_next(a->trace, r->number, tenant);
    }
    buf_printf(ret, "],\"more\":%s,\"last\":%llu}", r ? "true" : "false", (ull)trace_last(a->trace, tenant));
}
