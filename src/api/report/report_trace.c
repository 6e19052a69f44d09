/* report_trace.c - the last requests that ended or were refused, oldest first. */
#include "api/api_state.h"
#include "api/report/report.h"
#include "api/report/trace.h"
#include "api/turns/cache_miss.h"

#include "base/clock.h"
#include "base/json/json_out.h"

#include <math.h>

static double ms_of(uint64_t ns)
{
    return (double)ns / (double)NS_PER_MS;
}

static void write_refusal(const struct trace_refusal *why, struct json_out *j)
{
    json_put_fixed(j, "status", 0, why->status > 0 ? why->status : NAN);
    JSON_PUT_STRINGS(j, {"code", why->code}, {"param", why->param[0] ? why->param : NULL},
                     {"message", why->message[0] ? why->message : NULL});
}

static void write_times(const struct trace_record *r, struct json_out *j)
{
    json_put_fixed(j, "seconds", 3, (double)r->total_ns / (double)NS_PER_S);
    json_put_fixed(j, "first_token_ms", 1, r->first_token_ns > 0 ? ms_of(r->first_token_ns) : NAN);
    json_open(j, "phases");
    for (uint32_t p = 0; p < TRACE_PHASES; p++)
        json_put_fixed(j, trace_phase_name((enum trace_phase)p), 1, ms_of(r->phase_ns[p]));
    json_close(j);
}

static void write_record(struct api *a, const struct trace_record *r, struct json_out *j)
{
    json_open(j, NULL);
    JSON_PUT_U64S(j, {"number", r->number}, {"first", r->first}, {"untold", r->untold});
    json_put_fixed(j, "ended", 3, r->ended_s);
    JSON_PUT_STRINGS(j, {"id", r->id[0] ? r->id : NULL},
                     {"client_id", r->given.request[0] ? r->given.request : NULL},
                     {"traceparent", r->given.trace[0] ? r->given.trace : NULL}, {"action", r->who.action},
                     {"key", r->who.key}, {"client", r->who.client},
                     {"model", r->model >= 0 ? api_model_id(a, (uint32_t)r->model) : NULL}, {"end", r->end});
    write_refusal(&r->refusal, j);
    JSON_PUT_U64S(j, {"choices", r->choices}, {"prompt_tokens", r->prompt_tokens},
                  {"cached_tokens", r->cached_tokens}, {"tokens", r->tokens});
    cache_miss_write(&r->cache_miss, "cache_miss", j);
    write_times(r, j);
    json_close(j);
}

void report_trace(struct api *a, const uint64_t *tenant, uint64_t after, uint32_t max, struct buf *ret)
{
    const struct trace_record *r = trace_next(a->trace, after, tenant);
    struct json_out j = json_out_object(ret);
    json_open_array(&j, "requests");
    for (uint32_t i = 0; r && i < max; i++) {
        write_record(a, r, &j);
        r = trace_next(a->trace, r->number, tenant);
    }
    json_close(&j);
    json_put_bool(&j, "more", r != NULL);
    json_put_u64(&j, "last", trace_last(a->trace, tenant));
    json_end(&j);
}
