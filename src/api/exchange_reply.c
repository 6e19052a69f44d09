/* exchange_reply.c - the way of a reply: whole, in pieces, or an error.
 *
 * Replies are pulled, not pushed. The exchange takes tokens from a stream only when the connection has taken
 * the output of the earlier ones. So a client that does not read fills its connection, then its stream, and
 * then its sequence pauses. A stream's header goes out when the sequence is admitted, or with the first bytes
 * that keep the connection alive before: an earlier failure is an HTTP status and not an event. */
#include "api/exchange_reply.h"

#include "api/access/tenants.h"
#include "api/api_state.h"
#include "api/exchange.h"
#include "api/memory_refusal.h"
#include "api/reject_http.h"
#include "api/reply.h"
#include "api/report/metrics.h"
#include "api/report/trace.h"
#include "api/request/request.h"
#include "api/timings.h"
#include "api/turns/cache_miss.h"
#include "api/turns/prompt_parts.h"
#include "api/wait.h"
#include "api/wire/responses_list.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/slice.h"
#include "engine/engine.h"
#include "engine/stream.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/reject.h"
#include "gen/request_memory.h"
#include "http/http_request.h"
#include "http/sse.h"

#include <errno.h>

/* Tokens of one choice that become one chunk: all available ones; fewer where each has a kilobyte of
 * logprobs. */
#define BATCH_TOKENS          STREAM_TOKENS
#define BATCH_TOKENS_LOGPROBS 16

/* ---- counting ---- */

/* While a prep thread works on it, its model may change. */
struct metrics *exchange_metrics(struct exchange *x)
{
    bool known = x->phase != EXCHANGE_PREPARING && x->model_index >= 0;
    return &x->api->metrics[known ? x->model_index : 0];
}

struct metrics_counts *exchange_metrics_own(struct exchange *x)
{
    uint32_t model = (uint32_t)(exchange_metrics(x) - x->api->metrics);
    return tenants_counts(x->api->tenants, x->gen.tenant, model);
}

/* ---- the end of its work ---- */

/* Its finish record will not arrive. */
static void count_cut(struct exchange *x, const struct choice *c)
{
    ASSERT(c->prompt_index < x->gen.prompt_count);
    EXCHANGE_COUNT(x, finished[x->cut_reason]);
    exchange_metrics_own(x)->prompt_tokens += x->gen.prompts[c->prompt_index].count;
    exchange_metrics_own(x)->completion_tokens += c->tokens;
}

static void drop_replies(struct exchange *x)
{
    if (x->gen.choice_count > 0) {
        x->sums = timings_sum_up(x);
        (void)cache_miss_find(x, &x->cache_miss);
    }
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        const struct choice *c = &x->gen.choices[i];
        if (c->stream && !c->over)
            count_cut(x, c);
    }
    for (uint32_t i = 0; i < x->reply_count; i++)
        reply_done(&x->replies[i]);
    if (x->own)
        request_memory_free(&x->gen.memory, x->own, x->reply_count * x->wire->own_bytes);
    request_memory_free(&x->gen.memory, x->replies, x->reply_count * sizeof(*x->replies));
    request_memory_free(&x->gen.memory, x->compared, sizeof(*x->compared));
    x->compared = NULL;
    x->own = NULL;
    x->replies = NULL;
    x->reply_count = 0;
}

void exchange_reply_drop(struct exchange *x)
{
    drop_replies(x);
    gen_done(&x->gen);
    request_done(&x->request);
    responses_list_done(x);
    buf_done(&x->body);
    buf_done(&x->reply);
    buf_done(&x->out);
    wait_done(x);
}

/* ---- answers ---- */

/* The client has its answer, or the connection has its last bytes. */
static void given(struct exchange *x)
{
    x->phase = EXCHANGE_SENDING;
    trace_turn_to(&x->clock, TRACE_SENDING, clock_now_ns());
    reply_turn_to(x, REPLY_GIVEN);
    exchange_reply_drop(x);
}

/* The reply is not copied: it has been paid for. */
void exchange_reply_send(struct exchange *x)
{
    ASSERT(x->http);
    request_memory_hand_over(&x->gen.memory, &x->reply);
    http_respond_buf(x->http, x->status, "application/json", &x->reply);
    given(x);
}

static void set_stream_headers(struct exchange *x)
{
    http_header_set(x->http, "cache-control", "no-cache");
    http_header_set(x->http, "x-accel-buffering", "no");
}

static void tell_cache_miss(struct exchange *x)
{
    char text[CACHE_MISS_TEXT_BYTES];
    if (!cache_miss_find(x, &x->cache_miss))
        return;
    cache_miss_text(&x->cache_miss, text);
    if (text[0])
        http_header_set(x->http, "x-cache-miss", text);
}

static void note_refusal(struct exchange *x, const struct reject *why)
{
    x->code = reject_code(why);
    trace_refusal_of(&x->refusal, x->envelope->status(why), why);
}

static void respond(struct exchange *x, const struct reject *why)
{
    EXCHANGE_COUNT(x, requests_rejected);
    note_refusal(x, why);
    reject_respond(why, x->envelope, x->id_text, x->http);
}

void exchange_reply_refuse(struct exchange *x, const struct reject *why)
{
    respond(x, why);
    given(x);
}

/* The bytes are paid for, as above. */
void exchange_reply_refuse_in_stream(struct exchange *x, const struct reject *why)
{
    EXCHANGE_COUNT(x, requests_rejected);
    note_refusal(x, why);
    request_memory_hand_over(&x->gen.memory, &x->reply);
    set_stream_headers(x);
    http_respond_buf(x->http, 200, SSE_CONTENT_TYPE, &x->reply);
    given(x);
}

void exchange_reply_cancel(struct exchange *x, const struct reject *why)
{
    ASSERT(x->phase == EXCHANGE_PREPARING);
    if (!x->http || x->reply_stage == REPLY_GIVEN)
        return;
    respond(x, why);
    reply_turn_to(x, REPLY_GIVEN);
}

static void end_stream(struct exchange *x)
{
    http_stream_end(x->http);
    given(x);
}

void exchange_reply_fail(struct exchange *x, const struct reject *why)
{
    if (!http_stream_is_begun(x->http)) {
        exchange_reply_refuse(x, why);
        return;
    }
    note_refusal(x, why);
    x->wire->frame->fail(x, why);
    struct slice out = buf_slice(&x->out);
    /* A full connection does not get the event in time; its end without [DONE] shows the failure. */
    if (x->out.error || http_stream_write(x->http, out) < 0) {
        http_request_close(x->http);
        given(x);
        return;
    }
    end_stream(x);
}

static void fail_memory(struct exchange *x)
{
    struct reject why = {0};
    memory_refusal_of(x->api, &x->gen.memory, &why);
    exchange_reply_fail(x, &why);
}

/* The error with which a choice ended; false when it ended well. */
static bool failed(struct exchange *x, const struct reply *r, struct reject *why)
{
    const struct choice *c = r->choice;
    const struct stream_finish *f = &c->finish;
    if (c->error || reply_error(r))
        return !memory_refusal_of(x->api, &x->gen.memory, why);
    if (!c->over)
        return false;
    switch (f->reason) {
    case FINISH_STOP:
    case FINISH_LENGTH:
    case FINISH_REPETITION:
        return false;
    case FINISH_ABORTED:
        return !reject_as(why, REJECT_REQUEST_CANCELLED);
    case FINISH_TOO_SLOW:
        return !reject_as(why, REJECT_CLIENT_TOO_SLOW);
    case FINISH_QUEUE_TIMEOUT:
        why->retry_after_s = 5;
        return !reject_set(
            why, REJECT_QUEUE_TIMEOUT, NULL,
            "The request waited %.0f s in the queue, the limit of --queue-timeout. Try again later.",
            (double)f->queued_ns / (double)NS_PER_S);
    case FINISH_MEMORY_TAKEN:
        why->retry_after_s = ENGINE_RETRY_TAKEN_S;
        return !reject_set(why, REJECT_MEMORY_SHORT, NULL, "%s", f->error);
    case FINISH_AGENTS_FULL:
        why->retry_after_s = f->retry_after_s;
        return !reject_set(why, x->request.gen.opens_session ? REJECT_OUT_OF_MEMORY : REJECT_AGENTS_FULL,
                           NULL, "%s", f->error);
    case FINISH_LEASE_REFUSED:
        return !reject_set(why, REJECT_OUT_OF_MEMORY, NULL, "%s", f->error);
    case FINISH_SHUTDOWN:
        return !reject_set(why, REJECT_SHUTTING_DOWN, NULL,
                           "The model is being unloaded, or the server is shutting down.");
    case FINISH_ERROR:
        break;
    }
    if (reject_too_complex(why, f->error))
        return true;
    return f->error[0] ? !reject_set(why, REJECT_ENGINE_ERROR, NULL, "%s", f->error)
                       : !reject_as(why, REJECT_ENGINE_ERROR);
}

/* ---- the running reply ---- */

/* Takes the available tokens of one choice. False: the exchange failed and is being answered. */
static bool take(struct exchange *x, struct reply *r, uint32_t tokens_max)
{
    struct choice *c = r->choice;
    struct reject why = {0};
    if (c->over)
        return true;
    choice_take(c, tokens_max);
    if (c->tokens > 0 && x->first_token_ns == 0) {
        x->first_token_ns = clock_now_ns();
        trace_turn_to(&x->clock, TRACE_DECODING, x->first_token_ns);
        if (x->compared)
            prompt_parts_keep(x->api->parts, &x->compared->turn, x->first_token_ns);
        metrics_observe(exchange_metrics(x), METRICS_TTFT,
                        (double)(x->first_token_ns - x->arrived_ns) / (double)NS_PER_S);
    }
    if (c->over) {
        x->choices_over++;
        ASSERT(x->choices_over <= x->gen.choice_count);
        metrics_finish(exchange_metrics(x), exchange_metrics_own(x), &c->finish);
    }
    if (!failed(x, r, &why)) {
        if (c->over && x->wire->result) {
            x->wire->result(r);
            choice_close(c);
        }
        return true;
    }
    /* The others end for the same reason, wherever they are. */
    if (c->over)
        x->cut_reason = c->finish.reason;
    exchange_reply_fail(x, &why);
    return false;
}

/* Submits further choices of an output without tokens. False: the exchange failed and is being answered. */
static bool go_on(struct exchange *x)
{
    uint32_t before = x->gen.submitted;
    int r = before < x->gen.choice_count ? gen_go_on(&x->gen) : 0;
    exchange_watch_choices(x, before);
    if (r == -ECANCELED) {
        struct reject why = x->gen.reject;
        exchange_reply_fail(x, &why);
    }
    return r != -ECANCELED;
}

static void pump_whole(struct exchange *x)
{
    for (uint32_t i = 0; i < x->gen.choice_count; i++)
        if (!take(x, &x->replies[i], UINT32_MAX))
            return;
    if (!go_on(x) || x->choices_over < x->gen.choice_count)
        return;
    tell_cache_miss(x);
    x->wire->whole(x, &x->reply);
    if (x->reply.error) {
        fail_memory(x);
        return;
    }
    exchange_reply_send(x);
}

static int begin_stream(struct exchange *x)
{
    if (http_stream_is_begun(x->http))
        return 0;
    set_stream_headers(x);
    tell_cache_miss(x);
    return http_stream_begin(x->http, 200, SSE_CONTENT_TYPE);
}

/* Passes `out` to the connection. True: it took all bytes. */
static bool flush(struct exchange *x)
{
    int r = 0;
    if (x->out.error) {
        fail_memory(x);
        return false;
    }
    if (x->out.len == 0)
        return true;
    r = begin_stream(x);
    while (r == 0 && x->out.len > 0) {
        size_t n = MIN_OF(x->out.len, http_stream_free_bytes(x->http));
        if (n == 0)
            return false; /* `writable` will be called */
        r = http_stream_write(x->http, slice_sub(buf_slice(&x->out), 0, n));
        if (r == 0)
            buf_consume(&x->out, n);
    }
    if (r == -ENOMEM)
        fail_memory(x);
    x->written_ns = clock_now_ns();
    return r == 0;
}

/* The last chunks of a choice, and of the reply. */
static void end_choice(struct exchange *x, struct reply *r)
{
    r->finish_told = true;
    reply_begin(x);
    x->wire->finish(r);
}

static void end_reply(struct exchange *x)
{
    x->wire->frame->end(x);
    reply_turn_to(x, REPLY_ENDING);
}

/* The next chunks of all choices. False: nothing new, or the exchange failed. */
static bool collect(struct exchange *x)
{
    uint32_t batch = x->request.gen.sampling.logprobs ? BATCH_TOKENS_LOGPROBS : BATCH_TOKENS;
    for (uint32_t i = 0; i < x->gen.choice_count; i++) {
        struct reply *r = &x->replies[i];
        if (!take(x, r, batch))
            return false;
        reply_flush(r);
        if (r->choice->over && !r->finish_told)
            end_choice(x, r);
    }
    if (x->choices_over == x->gen.choice_count)
        end_reply(x);
    return x->out.len > 0;
}

/* The stream begins, though it has no token yet. Dialects whose first chunk stands for the first token, by
 * which clients measure, have only the header now. */
static void open_stream(struct exchange *x)
{
    if (x->phase != EXCHANGE_RUNNING || x->reply_stage != REPLY_PENDING || !gen_usage(&x->gen).admitted)
        return;
    if (x->wire->begins_admitted) {
        reply_begin(x);
        flush(x);
    } else if (begin_stream(x) == -ENOMEM) {
        fail_memory(x);
    }
}

static void pump_stream(struct exchange *x)
{
    while (flush(x)) {
        if (x->reply_stage == REPLY_ENDING) {
            end_stream(x);
            return;
        }
        /* While the client does not read, tokens stay in the ring, which pauses the sequence. */
        if (http_stream_is_behind(x->http) || !collect(x)) {
            open_stream(x);
            return;
        }
    }
}

void exchange_reply_pump(struct exchange *x)
{
    ASSERT(x->phase == EXCHANGE_RUNNING && x->http);
    if (x->request.stream)
        pump_stream(x);
    else
        pump_whole(x);
}

void exchange_reply_ping(struct exchange *x)
{
    x->wire->frame->ping(x);
    flush(x);
}
