/* exchange.c - one way in, one way out.
 *
 * A wake-up can arrive for a stream that is released already (the job's last message crosses ours). So
 * streams are looked up by address, never dereferenced. */
#include "api/exchange.h"

#include "api/access/auth.h"
#include "api/api_state.h"
#include "api/exchange_reply.h"
#include "api/memory_refusal.h"
#include "api/prep.h"
#include "api/reject_http.h"
#include "api/replicas.h"
#include "api/report/metrics.h"
#include "api/request/field.h"
#include "api/timings.h"
#include "api/turns/cache_miss.h"
#include "api/wait.h"
#include "api/wire/wire.h"

#include "base/clock.h"
#include "base/log.h"
#include "gen/choice.h"

#include <errno.h>
#include <stdlib.h>

static const char LEFT[] = "left"; /* how a request ends whose client has gone */

#define OUT_BYTES_MAX   ((size_t)16 << 20)
#define REPLY_BYTES_MAX ((size_t)256 << 20)

/* ---- the host of its generation ---- */

static struct exchange *exchange_of(struct gen *g)
{
    return CONTAINER(g, struct exchange, gen);
}

static bool refuse_memory(struct gen *g, struct account *account, uint64_t bytes)
{
    struct api *a = exchange_of(g)->api;
    return account ? memory_refusal(a, account, bytes, atomic_load(&a->requests_now) - 1, &g->reject)
                   : memory_refusal_of(a, &g->memory, &g->reject);
}

/* The reply's buffers are allocated here: a request that gets none is refused before it is submitted. */
static bool prompted(struct gen *g)
{
    struct exchange *x = exchange_of(g);
    request_drop_prompt(&x->request);
    uint32_t count = g->prompt_count * g->request->n;
    size_t own_bytes = count * x->wire->own_bytes;
    x->replies = request_memory_alloc(&g->memory, count * sizeof(*x->replies));
    x->reply_count = x->replies ? count : 0;
    if (x->replies && own_bytes > 0)
        x->own = request_memory_alloc(&g->memory, own_bytes);
    return (x->replies && (x->own || own_bytes == 0)) || gen_refuse_memory(g);
}

static bool take_stream(struct gen *g)
{
    struct api *a = exchange_of(g)->api;
    if (atomic_fetch_add(&a->streams_now, 1) < a->streams_max)
        return true;
    atomic_fetch_sub(&a->streams_now, 1);
    g->reject.retry_after_s = memory_refusal_retry_s(a);
    return reject_set(&g->reject, REJECT_TOO_MANY_REQUESTS, NULL,
                      "%u choices are being generated, the limit for all requests together. Try again later.",
                      a->streams_max);
}

static void give_stream(struct gen *g)
{
    atomic_fetch_sub(&exchange_of(g)->api->streams_now, 1);
}

static void place(struct gen *g)
{
    replicas_place(exchange_of(g));
}

static const struct gen_host exchange_host = {refuse_memory, place, prompted, take_stream, give_stream};

/* ---- create and free ---- */

/* One request may have at most the share that the plan leaves it when it is alone. */
static void init_memory(struct exchange *x)
{
    const struct api *a = x->api;
    struct request_memory *m = &x->gen.memory;
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

int exchange_create(struct api *a, struct http_request *http, const struct exchange_route *route,
                    struct request_id id, const struct auth *auth, struct exchange **ret)
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
    x->route = route->path;
    x->kind = route->kind;
    x->wire = route->wire;
    x->envelope = route->envelope;
    x->audit_owed = route->audited;
    x->gen.host = &exchange_host;
    x->gen.request = &x->request.gen;
    x->gen.media = a->media;
    x->gen.text = a->opts.text;
    x->gen.wakes = a->wakes;
    x->gen.wanted.cancelled = &x->cancelled;
    x->gen.id = id;
    request_id_text(id, x->id_text);
    client_ids_read(http, &x->given);
    x->gen.tenant = auth->tenant;
    x->gen.shares = auth->shares;
    x->gen.weight = auth->key ? auth->key->weight : 1;
    x->gen.priority_first = auth->key ? auth->key->priority_first : 0;
    x->gen.priority_last = auth->key ? auth->key->priority_last : KEYRING_PRIORITY_MAX;
    audit_begin(&x->who, http, auth);
    x->arrived_ns = clock_now_ns();
    trace_turn_to(&x->clock, TRACE_RECEIVING, x->arrived_ns);
    x->gen.created_s = (int64_t)clock_wall_s();
    x->cut_reason = FINISH_ABORTED;
    x->model_index = -1;
    x->status = 200;
    init_memory(x);
    struct charge charge = request_memory_charge(&x->gen.memory);
    buf_init(&x->out, OUT_BYTES_MAX, &charge);
    buf_init(&x->reply, REPLY_BYTES_MAX, &charge);
    list_init(&x->entry.fair.link);
    list_init(&x->all);
    list_push_back(&a->exchanges, &x->all);
    atomic_fetch_add(&a->requests_now, 1);
    *ret = x;
    return 0;
}

/* An admin's order is done, or refused. */
static void audit_end(struct exchange *x)
{
    const struct reject *why = &x->gen.reject;
    if (x->audit_owed)
        audit_done(&x->who, why->kind ? reject_status(why) : x->status, why->kind ? reject_code(why) : "ok",
                   x->reclaimed_bytes, x->id_text);
    x->audit_owed = false;
}

void exchange_free(struct exchange *x)
{
    if (!x)
        return;
    ASSERT(x->phase != EXCHANGE_PREPARING);
    struct api *a = x->api;
    /* The client left before the result. A load or an unload goes on without it. */
    if (x->audit_owed && x->order_goes_on)
        audit_done(&x->who, 202, "goes_on", 0, x->id_text);
    else if (x->audit_owed)
        audit_done(&x->who, 0, x->code ? x->code : LEFT, 0, x->id_text);
    exchange_reply_drop(x);
    request_memory_done(&x->gen.memory);
    list_remove(&x->all);
    free(x);
    charge_give(&a->text, sizeof(*x));
    atomic_fetch_sub(&a->requests_now, 1);
}

/* One line for each request that computed tokens, or should have. */
static void log_end(const struct exchange *x, const char *end, uint64_t took_ns)
{
    const struct exchange_sums *s = &x->sums;
    double seconds = (double)took_ns / (double)NS_PER_S;
    if (s->prompt_tokens == 0) {
        LOG_DEBUG("request_ended", "id=%s client_id=%s completed=%d code=%s seconds=%.3f", x->id_text,
                  client_ids_logged(x->given.request), end != LEFT, x->code ? x->code : "-", seconds);
        return;
    }
    char miss[CACHE_MISS_TEXT_BYTES];
    cache_miss_text(&x->cache_miss, miss);
    LOG_INFO("request_ended",
             "id=%s key=%s model=%s end=%s code=%s prompt_tokens=%u cached_tokens=%u cache_miss=%s tokens=%u "
             "queued_ms=%.1f "
             "first_token_ms=%.1f seconds=%.3f client_id=%s traceparent=%s",
             x->id_text, x->who.key, api_model_id(x->api, (uint32_t)x->model_index), end,
             x->code ? x->code : "-", s->prompt_tokens, s->cached_tokens, miss[0] ? miss : "-", s->tokens,
             (double)s->queued_ns / (double)NS_PER_MS, timings_first_token_ms(x), seconds,
             client_ids_logged(x->given.request), client_ids_logged(x->given.trace));
}

static const char *model_name(const struct exchange *x)
{
    return x->model_index >= 0 ? api_model_id(x->api, (uint32_t)x->model_index) : NULL;
}

/* Until its first token the network half cannot tell waiting from the prefill: the engine said how long it
 * waited. */
static void keep_record(struct exchange *x, const char *end, uint64_t now_ns)
{
    const struct exchange_sums *s = &x->sums;
    struct trace_clock *c = &x->clock;
    uint64_t queued_ns = MIN_OF(s->queued_ns, c->ns[TRACE_PREFILLING]);
    bool computed = s->prompt_tokens > 0;
    struct trace_record r = {.tenant = x->gen.tenant,
                             .who = x->who,
                             .model = x->model_index,
                             .end = computed || end == LEFT ? end : NULL,
                             .refusal = x->refusal,
                             .ended_s = clock_wall_s(),
                             .total_ns = now_ns - x->arrived_ns,
                             .first_token_ns = x->first_token_ns ? x->first_token_ns - x->arrived_ns : 0,
                             .choices = s->choices,
                             .prompt_tokens = s->prompt_tokens,
                             .cached_tokens = s->cached_tokens,
                             .tokens = s->tokens,
                             .cache_miss = x->cache_miss};
    c->ns[TRACE_PREFILLING] -= queued_ns;
    c->ns[TRACE_QUEUED] += queued_ns;
    memcpy(r.id, x->id_text, sizeof(r.id));
    r.given = x->given;
    memcpy(r.phase_ns, c->ns, sizeof(r.phase_ns));
    if (x->refusal.status > 0 && !computed)
        trace_refused(x->api->trace, &r, model_name(x), now_ns);
    else if (computed || x->kind == REQUEST_GENERATE)
        trace_add(x->api->trace, &r, now_ns);
}

/* Reports the exchange's cost and end in the log and among the last requests. Its work is dropped. */
static void tell_end(struct exchange *x, bool completed)
{
    uint64_t now_ns = clock_now_ns();
    const char *end = completed ? stream_finish_name(x->sums.end) : LEFT;
    trace_turn_to(&x->clock, TRACE_SENDING, now_ns);
    log_end(x, end, now_ns - x->arrived_ns);
    keep_record(x, end, now_ns);
}

void exchange_ended(struct exchange *x, bool completed)
{
    double seconds = (double)(clock_now_ns() - x->arrived_ns) / (double)NS_PER_S;
    bool succeeded = completed && x->phase == EXCHANGE_SENDING && !x->code;
    if (x->phase != EXCHANGE_PREPARING) {
        exchange_reply_drop(x);
        tell_end(x, completed);
    }
    if (succeeded)
        metrics_observe(exchange_metrics(x), METRICS_E2E, seconds);
    if (!completed)
        EXCHANGE_COUNT(x, requests_aborted);
    x->http = NULL;
    atomic_store(&x->cancelled, true);
    if (x->phase != EXCHANGE_PREPARING)
        exchange_free(x);
}

void exchange_pump(struct exchange *x)
{
    if (x->phase == EXCHANGE_RUNNING && x->http)
        exchange_reply_pump(x);
}

/* From now on the jobs send wake-ups again. */
static void clear_wakes(struct exchange *x)
{
    for (uint32_t i = 0; x->phase == EXCHANGE_RUNNING && i < x->gen.choice_count; i++)
        if (x->gen.choices[i].stream)
            stream_wake_clear(x->gen.choices[i].stream);
}

/* The model's drain is over. All tokens of this client have been taken; no more will arrive. */
static void end_with_model(struct exchange *x)
{
    struct reject why = {.retry_after_s = 1};
    bool holds = x->phase == EXCHANGE_RUNNING ||
                 (x->phase == EXCHANGE_WAITING && (x->waits == WAIT_IMAGES || x->waits == WAIT_GRAMMAR));
    if (!holds || !x->lease.registry || !registry_is_ending(x->lease.registry, x->lease.index))
        return;
    reject_set(&why, REJECT_MODEL_UNLOADING, NULL, "The model %s is being unloaded.", x->gen.model->id);
    x->cut_reason = FINISH_SHUTDOWN;
    exchange_reply_fail(x, &why);
}

static void prepare(struct exchange *x, size_t bytes)
{
    trace_turn_to(&x->clock, TRACE_PREPARING, clock_now_ns());
    prep_put(x, bytes);
}

void exchange_poll(struct exchange *x, uint64_t now_ns)
{
    switch (wait_poll(x, now_ns)) {
    case WAIT_GOES_ON:
        return;
    case WAIT_PREPARES:
        /* The remaining work depends on the size of the rest of the request. Its images are not part of
         * that. */
        prepare(x, x->gen.memory.used);
        return;
    case WAIT_ANSWERS:
        break;
    }
    audit_end(x);
    if (x->gen.reject.kind) {
        exchange_reply_refuse(x, &x->gen.reject);
        return;
    }
    exchange_reply_send(x);
}

void exchange_tick(struct exchange *x, uint64_t now_ns)
{
    uint64_t keepalive_ns = x->api->live.keepalive_s * NS_PER_S,
             slow_ns = x->api->live.slow_client_s * NS_PER_S;
    if (!x->http)
        return;
    if (http_stream_stalled_ns(x->http) > slow_ns) {
        LOG_INFO("client_too_slow", "id=%s unread_s=%u", x->id_text, x->api->live.slow_client_s);
        x->cut_reason = FINISH_TOO_SLOW;
        http_request_close(x->http);
        return;
    }
    exchange_poll(x, now_ns);
    /* A wake-up is lost when the mailbox is full; the tick is the second chance. */
    clear_wakes(x);
    exchange_pump(x);
    end_with_model(x);
    if (x->phase != EXCHANGE_RUNNING || !x->request.stream || x->out.len > 0 ||
        now_ns < x->written_ns + keepalive_ns)
        return;
    exchange_reply_ping(x);
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
        exchange_reply_refuse(x, &why);
        return;
    }
    prepare(x, x->body.len);
}

/* The context leaves fewer tokens than the client allowed. */
static void tell_max_tokens(struct exchange *x)
{
    char text[16];
    if (!x->request.gen.clamps || x->gen.max_tokens == 0 ||
        x->request.gen.sampling.max_tokens <= x->gen.max_tokens)
        return;
    snprintf(text, sizeof(text), "%u", x->gen.max_tokens);
    http_header_set(x->http, "x-plateau-max-tokens", text);
}

/* Messages that left the prompt. */
static void tell_dropped(struct exchange *x)
{
    char text[16];
    if (x->request.gen.dropped == 0)
        return;
    snprintf(text, sizeof(text), "%u", x->request.gen.dropped);
    http_header_set(x->http, "x-plateau-dropped-messages", text);
}

/* Returns the trace's phase of an exchange that a prep thread returns. */
static enum trace_phase phase_of(const struct exchange *x)
{
    switch (x->waits) {
    case WAIT_NONE:
        return TRACE_PREFILLING;
    case WAIT_LOAD:
    case WAIT_UNLOAD:
        return TRACE_LOADING;
    case WAIT_IMAGES:
        return TRACE_MEDIA;
    case WAIT_GRAMMAR:
        break;
    }
    return TRACE_PREPARING;
}

void exchange_prepared(struct exchange *x)
{
    ASSERT(x->phase == EXCHANGE_PREPARING);
    x->phase = x->waits ? EXCHANGE_WAITING : EXCHANGE_RUNNING;
    trace_turn_to(&x->clock, phase_of(x), clock_now_ns());
    request_memory_newcomer(&x->gen.memory, false);
    if (!x->waits)
        audit_end(x);
    if (!x->http) {
        exchange_reply_drop(x);
        tell_end(x, false);
        exchange_free(x);
        return;
    }
    if (x->reply_stage == REPLY_GIVEN) {
        x->phase = EXCHANGE_SENDING;
        exchange_reply_drop(x);
        return;
    }
    if (x->waits) {
        exchange_poll(x, clock_now_ns());
        return;
    }
    if (x->request.gen.effort_unused)
        field_note_ignored(&x->request, "reasoning_effort");
    if (x->request.gen.budget_unused)
        field_note_ignored(&x->request,
                           x->wire->budget_field ? x->wire->budget_field : "thinking_token_budget");
    if (x->request.gen.tools_unused)
        field_note_ignored(&x->request, "tools");
    if (x->request.gen.calls.strict_unused)
        field_note_ignored(&x->request, "tools.strict");
    if (x->wire && x->wire->note_headers)
        x->wire->note_headers(&x->request, x->http);
    if (x->request.ignored[0])
        http_header_set(x->http, "x-ignored-fields", x->request.ignored);
    tell_max_tokens(x);
    tell_dropped(x);
    if (!exchange_is_exact(x))
        http_header_set(x->http, "x-exact", "false");
    /* The reply of a refusal is the events of a stream. */
    if (x->gen.reject.kind && x->reply.len > 0) {
        exchange_reply_refuse_in_stream(x, &x->gen.reject);
        return;
    }
    if (x->gen.reject.kind) {
        exchange_reply_refuse(x, &x->gen.reject);
        return;
    }
    if (x->kind != REQUEST_GENERATE) {
        exchange_reply_send(x);
        return;
    }
    exchange_watch_choices(x, 0);
    x->submitted_ns = x->written_ns = clock_now_ns();
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
        exchange_reply_cancel(x, why);
        break;
    case EXCHANGE_WAITING:
    case EXCHANGE_RUNNING:
        if (x->http)
            exchange_reply_fail(x, why);
        break;
    }
}
