/* exchange.c - one way in, one way out.
 *
 * Replies are pulled, not pushed. The exchange takes tokens from a stream only when the connection has taken
 * the output of the earlier ones. So a client that does not read fills its connection, then its stream, and
 * then its sequence pauses. A stream's header goes out with its first bytes: a failure before them is an HTTP
 * status and not an event.
 *
 * A wake-up can arrive for a stream that is released already (the job's last message crosses ours). So
 * streams are looked up by address, never dereferenced. */
#include "api/exchange.h"
#include "api/reject_http.h"

#include "api/media_request.h"
#include "api/memory_refusal.h"
#include "api/prep.h"
#include "api/reply.h"
#include "api/wait.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "http/sse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Tokens of one choice that become one chunk: all available ones; fewer where each has a kilobyte of
 * logprobs. */
#define BATCH_TOKENS          STREAM_TOKENS
#define BATCH_TOKENS_LOGPROBS 16
#define OUT_BYTES_MAX         ((size_t)16 << 20)
#define REPLY_BYTES_MAX       ((size_t)256 << 20)

/* ---- create and free ---- */

/* One request may have at most the share that the plan leaves it when it is alone. */
static void init_memory(struct exchange *x)
{
    const struct api *a = x->api;
    struct request_memory *m = &x->memory;
    request_memory_init(m, a->opts.text, a->live.request_bytes_max);
    request_memory_newcomer(m, true);
    uint64_t limit = account_numbers(a->opts.text).limit;
    uint64_t taken = a->text_fixed_bytes + m->spare + sizeof(*x);
    uint64_t room = limit > taken ? (limit - taken) / REQUEST_MEMORY_GRAIN * REQUEST_MEMORY_GRAIN : 0;
    if (room < m->bytes_max) {
        m->bytes_max = room;
        m->option = "--text-limit or --memory-limit";
    }
}

int exchange_create(struct api *a, struct http_request *http, enum request_kind kind, struct request_id id,
                    const struct auth *auth, struct exchange **ret)
{
    int r = charge_take(&a->text, sizeof(struct exchange));
    if (r < 0)
        return r;
    struct exchange *x = calloc(1, sizeof(*x));
    if (!x) {
        charge_give(&a->text, sizeof(*x));
        return -ENOMEM;
    }
    x->api = a;
    x->http = http;
    x->kind = kind;
    x->id = id;
    request_id_text(id, x->id_text);
    x->tenant = auth->tenant;
    x->weight = auth->key ? auth->key->weight : 1;
    x->priority_first = auth->key ? auth->key->priority_first : 0;
    x->priority_last = auth->key ? auth->key->priority_last : KEYRING_PRIORITY_MAX;
    audit_begin(&x->who, http, auth);
    x->arrived_ns = clock_now_ns();
    x->created_s = (int64_t)clock_wall_s();
    x->cut_reason = FINISH_ABORTED;
    x->model_index = -1;
    x->status = 200;
    init_memory(x);
    struct charge charge = request_memory_charge(&x->memory);
    buf_init(&x->out, OUT_BYTES_MAX, &charge);
    buf_init(&x->reply, REPLY_BYTES_MAX, &charge);
    list_init(&x->entry.fair.link);
    list_init(&x->all);
    list_push_back(&a->exchanges, &x->all);
    atomic_fetch_add(&a->requests_now, 1);
    *ret = x;
    return 0;
}

static struct metrics *metrics_of(struct exchange *x)
{
    bool known = x->phase != EXCHANGE_PREPARING && x->model_index >= 0;
    return &x->api->metrics[known ? x->model_index : 0];
}

static struct metrics_counts *own_counts(struct exchange *x)
{
    uint32_t model = (uint32_t)(metrics_of(x) - x->api->metrics);
    return tenants_counts(x->api->tenants, x->tenant, model);
}

/* For the model, and for the tenant. */
#define COUNT(x, field)                                                                                      \
    do {                                                                                                     \
        metrics_of(x)->counts.field++;                                                                       \
        own_counts(x)->field++;                                                                              \
    } while (0)

static void sum_up(struct exchange *x, const struct choice *c)
{
    struct exchange_sums *s = &x->sums;
    s->prompt_tokens += x->prompts[c->prompt_index].count;
    s->tokens += c->tokens;
    s->end = c->over ? c->finish.reason : x->cut_reason;
    if (!c->over)
        return;
    s->cached_tokens += c->finish.cached_tokens;
    s->queued_ns = MAX_OF(s->queued_ns, c->finish.queued_ns);
}

/* Its finish record will not arrive. */
static void count_cut(struct exchange *x, const struct choice *c)
{
    COUNT(x, finished[x->cut_reason]);
    own_counts(x)->prompt_tokens += x->prompts[c->prompt_index].count;
    own_counts(x)->completion_tokens += c->tokens;
}

/* Frees everything that the work needed; the exchange itself stays until its connection ends. */
static void drop_work(struct exchange *x)
{
    struct request_memory *m = &x->memory;
    media_request_done(x);
    for (uint32_t i = 0; i < x->choice_count; i++) {
        if (x->choices[i].stream)
            sum_up(x, &x->choices[i]);
        if (x->choices[i].stream && !x->choices[i].over)
            count_cut(x, &x->choices[i]);
        choice_close(&x->choices[i]);
    }
    request_memory_free(m, x->choices, x->choice_count * sizeof(*x->choices));
    x->choices = NULL;
    x->choice_count = 0;
    for (uint32_t i = 0; i < x->prompt_count; i++)
        request_memory_free(m, x->prompts[i].ids, x->prompts[i].count * sizeof(uint32_t));
    request_memory_free(m, x->prompts, x->prompt_count * sizeof(*x->prompts));
    x->prompts = NULL;
    x->prompt_count = 0;
    request_memory_free(m, x->bias, x->bias_count * sizeof(*x->bias));
    x->bias = NULL;
    x->bias_count = 0;
    if (x->parsed)
        request_done(&x->request);
    x->parsed = false;
    buf_done(&x->body);
    buf_done(&x->reply);
    buf_done(&x->out);
    wait_done(x);
}

/* An admin's order is done, or refused. */
static void audit_end(struct exchange *x)
{
    const struct reject *why = &x->reject;
    if (x->audited)
        audit_done(&x->who, why->kind ? reject_status(why) : x->status, why->kind ? reject_code(why) : "ok",
                   x->reclaimed_bytes, x->id_text);
    x->audited = false;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    ASSERT(x->phase != EXCHANGE_PREPARING);
    struct api *a = x->api;
    /* The client left before the result. */
    if (x->audited)
        audit_done(&x->who, 0, x->code ? x->code : "left", 0, x->id_text);
    drop_work(x);
    request_memory_done(&x->memory);
    list_remove(&x->all);
    free(x);
    charge_give(&a->text, sizeof(*x));
    atomic_fetch_sub(&a->requests_now, 1);
}

static double ms_between(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)NS_PER_MS : 0;
}

/* One line for each request that computed tokens, or should have. */
static void log_end(const struct exchange *x, bool completed, double seconds)
{
    const struct exchange_sums *s = &x->sums;
    if (s->prompt_tokens == 0) {
        LOG_DEBUG("request_ended", "id=%s completed=%d code=%s seconds=%.3f", x->id_text, completed,
                  x->code ? x->code : "-", seconds);
        return;
    }
    LOG_INFO(
        "request_ended",
        "id=%s key=%s model=%s end=%s code=%s prompt_tokens=%u cached_tokens=%u tokens=%u queued_ms=%.1f "
        "first_token_ms=%.1f seconds=%.3f",
        x->id_text, x->who.key, api_model_id(x->api, (uint32_t)x->model_index),
        completed ? finish_reason_name(s->end) : "left", x->code ? x->code : "-", s->prompt_tokens,
        s->cached_tokens, s->tokens, (double)s->queued_ns / (double)NS_PER_MS,
        ms_between(x->arrived_ns, x->first_token_ns), seconds);
}

void exchange_ended(struct exchange *x, bool completed)
{
    double seconds = (double)(clock_now_ns() - x->arrived_ns) / (double)NS_PER_S;
    if (x->phase != EXCHANGE_PREPARING) {
        drop_work(x);
        log_end(x, completed, seconds);
    }
    if (completed && x->succeeded)
        metrics_observe(metrics_of(x), METRICS_E2E, seconds);
    if (!completed)
        COUNT(x, requests_aborted);
    x->http = NULL;
    atomic_store(&x->cancelled, true);
    if (x->phase != EXCHANGE_PREPARING)
        exchange_free(x);
}

/* ---- answers ---- */

/* The reply is not copied: it has been paid for. */
static void answer(struct exchange *x)
{
    x->phase = EXCHANGE_SENDING;
    request_memory_hand_over(&x->memory, &x->reply);
    http_respond_buf(x->http, x->status, "application/json", &x->reply);
    drop_work(x);
}

static void answer_reject(struct exchange *x, const struct reject *why)
{
    COUNT(x, requests_rejected);
    x->code = reject_code(why);
    x->phase = EXCHANGE_SENDING;
    reject_respond(why, x->http);
    drop_work(x);
}

static void end_stream(struct exchange *x)
{
    x->phase = EXCHANGE_SENDING;
    http_stream_end(x->http);
    drop_work(x);
}

/* Sends the error in the way that is still open, and ends the reply. */
static void fail(struct exchange *x, const struct reject *why)
{
    x->code = reject_code(why);
    if (!x->begun) {
        answer_reject(x, why);
        return;
    }
    reply_error(x, why);
    struct slice out = buf_slice(&x->out);
    /* A full connection does not get the event in time; its end without [DONE] shows the failure. */
    if (x->out.error || http_stream_write(x->http, out) < 0) {
        x->phase = EXCHANGE_SENDING;
        http_request_close(x->http);
        drop_work(x);
        return;
    }
    end_stream(x);
}

static void fail_memory(struct exchange *x)
{
    struct reject why = {0};
    memory_refusal_of(x->api, &x->memory, &why);
    fail(x, &why);
}

/* The error with which a choice ended; false when it ended well. */
static bool failed(const struct choice *c, struct reject *why)
{
    const struct stream_finish *f = &c->finish;
    if (c->error)
        return !memory_refusal_of(c->exchange->api, &c->exchange->memory, why);
    if (!c->over)
        return false;
    switch (f->reason) {
    case FINISH_STOP:
    case FINISH_LENGTH:
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
    case FINISH_SHUTDOWN:
        return !reject_set(why, REJECT_SHUTTING_DOWN, NULL,
                           "The model is being unloaded, or the server is shutting down.");
    case FINISH_ERROR:
        break;
    }
    return f->error[0] ? !reject_set(why, REJECT_ENGINE_ERROR, NULL, "%s", f->error)
                       : !reject_as(why, REJECT_ENGINE_ERROR);
}

/* ---- the running reply ---- */

/* Takes the available tokens of one choice. False: the exchange failed and is being answered. */
static bool take(struct exchange *x, struct choice *c, uint32_t tokens_max)
{
    struct reject why = {0};
    if (c->over)
        return true;
    choice_take(c, tokens_max);
    if (c->tokens > 0 && x->first_token_ns == 0) {
        x->first_token_ns = clock_now_ns();
        metrics_observe(metrics_of(x), METRICS_TTFT,
                        (double)(x->first_token_ns - x->arrived_ns) / (double)NS_PER_S);
    }
    if (c->over) {
        x->choices_over++;
        metrics_finish(metrics_of(x), own_counts(x), &c->finish);
    }
    if (!failed(c, &why))
        return true;
    /* The others end for the same reason, wherever they are. */
    if (c->over)
        x->cut_reason = c->finish.reason;
    fail(x, &why);
    return false;
}

static void pump_whole(struct exchange *x)
{
    for (uint32_t i = 0; i < x->choice_count; i++)
        if (!take(x, &x->choices[i], UINT32_MAX))
            return;
    if (x->choices_over < x->choice_count)
        return;
    if (x->kind == REQUEST_CHAT)
        reply_write_chat(x, &x->reply);
    else
        reply_write_completion(x, &x->reply);
    if (x->reply.error) {
        fail_memory(x);
        return;
    }
    x->succeeded = true;
    answer(x);
}

static int begin_stream(struct exchange *x)
{
    if (x->begun)
        return 0;
    http_header_set(x->http, "cache-control", "no-cache");
    http_header_set(x->http, "x-accel-buffering", "no");
    int r = http_stream_begin(x->http, 200, SSE_CONTENT_TYPE);
    x->begun = r == 0;
    return r;
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
        size_t n = MIN_OF(x->out.len, http_stream_room(x->http));
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

/* The next chunks of all choices. False: nothing new, or the exchange failed. */
static bool collect(struct exchange *x)
{
    bool chat = x->kind == REQUEST_CHAT;
    uint32_t batch = x->request.gen.sampling.logprobs ? BATCH_TOKENS_LOGPROBS : BATCH_TOKENS;
    for (uint32_t i = 0; i < x->choice_count; i++) {
        struct choice *c = &x->choices[i];
        if (!take(x, c, batch))
            return false;
        if (chat)
            reply_flush_chat(c);
        else
            reply_flush_completion(c);
        if (c->over && !c->finish_told) {
            c->finish_told = true;
            if (chat)
                reply_begin_chat(x);
            reply_finish(c);
        }
    }
    if (x->choices_over == x->choice_count) {
        if (x->request.include_usage)
            reply_usage(x);
        reply_done(x);
        x->ending = true;
    }
    return x->out.len > 0;
}

static void pump_stream(struct exchange *x)
{
    while (flush(x)) {
        if (x->ending) {
            x->succeeded = true;
            end_stream(x);
            return;
        }
        /* While the client does not read, tokens stay in the ring, which pauses the sequence. */
        if (http_stream_is_behind(x->http) || !collect(x))
            return;
    }
}

void exchange_pump(struct exchange *x)
{
    if (x->phase != EXCHANGE_RUNNING || !x->http)
        return;
    if (x->request.stream)
        pump_stream(x);
    else
        pump_whole(x);
}

/* From now on the jobs send wake-ups again. */
static void clear_wakes(struct exchange *x)
{
    for (uint32_t i = 0; x->phase == EXCHANGE_RUNNING && i < x->choice_count; i++)
        stream_wake_clear(x->choices[i].stream);
}

/* The model's drain is over. All tokens of this client have been taken; no more will arrive. */
static void end_with_model(struct exchange *x)
{
    struct reject why = {.retry_after_s = 1};
    bool holds = x->phase == EXCHANGE_RUNNING || (x->phase == EXCHANGE_WAITING && x->media);
    if (!holds || !x->lease.registry || !registry_is_ending(x->lease.registry, x->lease.index))
        return;
    reject_set(&why, REJECT_MODEL_UNLOADING, NULL, "The model %s is being unloaded.", x->model->id);
    x->cut_reason = FINISH_SHUTDOWN;
    fail(x, &why);
}

void exchange_look(struct exchange *x, uint64_t now_ns)
{
    switch (wait_look(x, now_ns)) {
    case WAIT_GOES_ON:
        return;
    case WAIT_PREPARES:
        /* The remaining work depends on the size of the rest of the request. Its images are not part of
         * that. */
        prep_put(x, x->memory.used);
        return;
    case WAIT_ANSWERS:
        break;
    }
    audit_end(x);
    if (x->reject.kind) {
        answer_reject(x, &x->reject);
        return;
    }
    x->succeeded = true;
    answer(x);
}

void exchange_tick(struct exchange *x, uint64_t now_ns)
{
    uint64_t keepalive_ns = x->api->live.keepalive_s * NS_PER_S,
             slow_ns = x->api->live.slow_client_s * NS_PER_S;
    if (!x->http)
        return;
    if (x->begun && http_stream_stalled_ns(x->http) > slow_ns) {
        LOG_INFO("client_too_slow", "id=%s unread_s=%u", x->id_text, x->api->live.slow_client_s);
        x->cut_reason = FINISH_TOO_SLOW;
        http_request_close(x->http);
        return;
    }
    exchange_look(x, now_ns);
    /* A wake-up is lost when the mailbox is full; the tick is the second chance. */
    clear_wakes(x);
    exchange_pump(x);
    end_with_model(x);
    if (x->phase != EXCHANGE_RUNNING || !x->request.stream || x->out.len > 0 ||
        now_ns < x->written_ns + keepalive_ns)
        return;
    sse_comment(&x->out, "keep-alive");
    flush(x);
}

/* ---- the way through the phases ---- */

void exchange_receive(struct exchange *x)
{
    struct api *a = x->api;
    struct reject why = {.retry_after_s = 1};
    http_request_body_take(x->http, &x->body);
    size_t before = atomic_fetch_add(&a->prep_queue_bytes, x->body.len);
    if (before > 0 && before + x->body.len > a->opts.prep_queue_bytes_max) {
        atomic_fetch_sub(&a->prep_queue_bytes, x->body.len);
        reject_set(&why, REJECT_BUSY, NULL,
                   "%zu bytes of requests wait to be parsed; the limit is %zu. Try again later.", before,
                   a->opts.prep_queue_bytes_max);
        answer_reject(x, &why);
        return;
    }
    prep_put(x, x->body.len);
}

static struct list *bucket_of(struct api *a, const struct stream *s)
{
    return &a->streams[hash_bytes(&s, sizeof(s)) & a->bucket_mask];
}

struct choice *exchange_find_choice(struct api *a, const struct stream *s)
{
    LIST_EACH(it, bucket_of(a, s)) {
        struct choice *c = LIST_ENTRY(it, struct choice, by_stream);
        if (c->stream == s)
            return c;
    }
    return NULL;
}

void exchange_prepared(struct exchange *x)
{
    ASSERT(x->phase == EXCHANGE_PREPARING);
    x->phase = x->waits ? EXCHANGE_WAITING : EXCHANGE_RUNNING;
    request_memory_newcomer(&x->memory, false);
    if (!x->waits)
        audit_end(x);
    if (!x->http) {
        exchange_free(x);
        return;
    }
    if (x->told) {
        x->phase = EXCHANGE_SENDING;
        drop_work(x);
        return;
    }
    if (x->waits) {
        exchange_look(x, clock_now_ns());
        return;
    }
    if (x->request.ignored[0])
        http_header_set(x->http, "x-ignored-fields", x->request.ignored);
    if (!exchange_is_exact(x))
        http_header_set(x->http, "x-exact", "false");
    if (x->reject.kind) {
        answer_reject(x, &x->reject);
        return;
    }
    if (x->kind > REQUEST_COMPLETION) {
        x->succeeded = true;
        answer(x);
        return;
    }
    for (uint32_t i = 0; i < x->choice_count; i++)
        list_push_back(bucket_of(x->api, x->choices[i].stream), &x->choices[i].by_stream);
    x->written_ns = clock_now_ns();
    /* Wake-ups from before this point found no exchange. */
    clear_wakes(x);
    exchange_pump(x);
}

void exchange_cancel(struct exchange *x, const struct reject *why)
{
    atomic_store(&x->cancelled, true);
    switch (x->phase) {
    case EXCHANGE_RECEIVING:
    case EXCHANGE_SENDING:
        if (x->http)
            http_request_close(x->http);
        break;
    case EXCHANGE_PREPARING:
        /* The client gets its answer before the prep thread notices. */
        if (x->http && !x->told) {
            x->told = true;
            x->code = reject_code(why);
            COUNT(x, requests_rejected);
            reject_respond(why, x->http);
        }
        break;
    case EXCHANGE_WAITING:
    case EXCHANGE_RUNNING:
        if (x->http)
            fail(x, why);
        break;
    }
}
