/* prep.c - one exchange at a time, from its body to its jobs.
 *
 * Everything a job needs is made here, its stream included, so that the network thread only has to watch.
 * A job that the engine refuses ends the request: the exchange's destructor closes the jobs accepted
 * before it. */
#include "api/prep.h"

#include "api/media_request.h"
#include "api/memory_refusal.h"
#include "api/prompt.h"
#include "api/reply.h"
#include "gen/resolve.h"
#include "api/utility.h"
#include "api/wait.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/thread_nice.h"

#include <errno.h>

_Static_assert(CHAT_CUTS_MAX <= ENGINE_CUTS_MAX, "the engine looks at all cuts of a conversation");

static bool out_of_memory(struct exchange *x)
{
    return memory_refusal_of(x->api, &x->memory, &x->reject);
}

static bool parse(struct exchange *x)
{
    struct request_limits limits = x->api->limits;
    x->parsed = true;
    bool ok = request_parse(x->kind, buf_slice(&x->body), &limits, &x->memory, &x->request, &x->reject);
    buf_done(&x->body);
    if (!ok && x->reject.kind == REJECT_BUSY) {
        /* The parser knows the memory of its request only, not that of other requests. */
        x->reject = (struct reject){0};
        return out_of_memory(x);
    }
    return ok;
}

/* ---- jobs ---- */

static bool make_choices(struct exchange *x)
{
    const struct request *r = &x->request;
    struct sampler_params sampling;
    uint64_t drawn;
    uint32_t bias_count = (uint32_t)json_object_size(r->gen.logit_bias);
    if (bias_count > 0) {
        x->bias = request_memory_alloc(&x->memory, bias_count * sizeof(*x->bias));
        if (!x->bias)
            return out_of_memory(x);
        x->bias_count = bias_count;
    }
    if (!resolve_sampling(&r->gen, x->model, x->bias, &sampling, &x->reject))
        return false;
    uint32_t count = x->prompt_count * r->gen.n;
    x->choices = request_memory_alloc(&x->memory, count * sizeof(*x->choices));
    if (!x->choices)
        return out_of_memory(x);
    x->choice_count = count;
    rng_secret(&drawn, sizeof(drawn));
    for (uint32_t i = 0; i < count; i++) {
        struct choice *c = &x->choices[i];
        choice_init(c, x, i, i / r->gen.n);
        c->flush = reply_flush_chat;
        c->sampling = sampling;
        c->sampling.seed = resolve_seed(&r->gen, drawn, i % r->gen.n);
        /* The first job has the request's own id, so that both sides name it alike. */
        c->job_id = i == 0 ? x->id : request_id_draw();
    }
    return true;
}

static bool make_stream(struct exchange *x, struct choice *c)
{
    struct api *a = x->api;
    struct stream_opts opts = {
        .id = c->job_id,
        .top_max = c->sampling.top_logprobs,
        .wake = a->wakes,
        .user = c,
        .charge = &a->text,
    };
    if (atomic_fetch_add(&a->streams_now, 1) >= a->streams_max) {
        atomic_fetch_sub(&a->streams_now, 1);
        x->reject.retry_after_s = memory_refusal_retry_s(a);
        return reject_set(
            &x->reject, REJECT_TOO_MANY_REQUESTS, NULL,
            "%u choices are being generated, the limit for all requests together. Try again later.",
            a->streams_max);
    }
    if (stream_create(&opts, &c->stream) < 0) {
        atomic_fetch_sub(&a->streams_now, 1);
        c->stream = NULL;
        return memory_refusal(a, a->opts.text, STREAM_TOKENS * sizeof(struct stream_token),
                              atomic_load(&a->requests_now) - 1, &x->reject);
    }
    return true;
}

static bool refuse_submit(struct exchange *x, int r, uint32_t retry_after_s, const struct err *e)
{
    switch (r) {
    case -EINVAL:
        return reject_value(&x->reject, NULL, "%s", e->text);
    case -EAGAIN:
        x->reject.retry_after_s = retry_after_s;
        return reject_set(&x->reject, REJECT_QUEUE_FULL, NULL, "%s", e->text);
    case -ENOBUFS:
        x->reject.retry_after_s = retry_after_s;
        return reject_set(&x->reject, REJECT_BUSY, NULL, "%s", e->text);
    case -EPIPE:
        return reject_set(&x->reject, REJECT_SHUTTING_DOWN, NULL, "%s", e->text);
    default:
        return reject_set(&x->reject, REJECT_OUT_OF_MEMORY, NULL, "%s", e->text);
    }
}

static struct job_spec spec_of(struct exchange *x, const struct choice *c)
{
    const struct prompt_ids *p = &x->prompts[c->prompt_index];
    return (struct job_spec){
        .prompt = p->ids,
        .prompt_count = p->count,
        .max_tokens = c->max_tokens,
        .priority = MIN_OF(MAX_OF(x->request.gen.priority, x->priority_first), x->priority_last),
        .cache_salt = slice_of(x->request.gen.cache_salt),
        .tenant = x->tenant,
        .weight = x->weight,
        .cuts = p->cuts,
        .cut_count = p->cut_count,
        .sampling = c->sampling,
        .stops = x->request.gen.stops,
        .stop_count = x->request.gen.stop_count,
        .speculative = x->request.gen.speculative,
        .whole = x->request.gen.whole,
        .images = p->images,
        .image_count = p->image_count,
        .prompt_logprobs = x->request.gen.sampling.prompt_logprobs >= 0,
    };
}

static bool submit(struct exchange *x, struct choice *c)
{
    struct job_spec job = spec_of(x, c);
    struct err e = {0};
    uint32_t retry_after_s = 0;
    if (choice_open(c) < 0)
        return out_of_memory(x);
    if (!make_stream(x, c))
        return false;
    int r = engine_submit(x->model->engine, &job, c->stream, &retry_after_s, &e);
    if (r == 0)
        return true;
    /* The engine did not take its half: both are released here. */
    stream_release(c->stream);
    stream_release(c->stream);
    c->stream = NULL;
    atomic_fetch_sub(&x->api->streams_now, 1);
    return refuse_submit(x, r, retry_after_s, &e);
}

static uint32_t max_tokens_default(const struct exchange *x)
{
    uint32_t own = x->model->max_tokens_default;
    return own ? own : atomic_load(&x->api->max_tokens_default);
}

static bool resolve_lengths(struct exchange *x)
{
    for (uint32_t i = 0; i < x->choice_count; i++) {
        struct choice *c = &x->choices[i];
        if (!resolve_max_tokens(&x->request.gen, x->model, max_tokens_default(x),
                                x->prompts[c->prompt_index].count, &c->max_tokens, &x->reject))
            return false;
        x->max_tokens = MAX_OF(x->max_tokens, c->max_tokens);
    }
    return true;
}

/* All choices are accepted or none: a set that can never fit together must not be tried again. */
static bool check_room(struct exchange *x)
{
    struct engine_room room = {0};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < x->choice_count; i++) {
        struct job_spec job = spec_of(x, &x->choices[i]);
        engine_room(x->model->engine, &job, &room);
        bytes += room.job_bytes;
    }
    if (x->choice_count > room.jobs_max)
        return reject_value(&x->reject, x->request.gen.n > 1 ? "n" : "prompt",
                            "The request asks for %u choices (prompts x n), but at most %u can run and wait "
                            "together (--max-num-seqs and --max-queue). Send several requests.",
                            x->choice_count, room.jobs_max);
    if (bytes > room.requests_bytes_max)
        return reject_set(
            &x->reject, REJECT_REQUEST_TOO_LARGE, NULL,
            "The request's %u choices of up to %u tokens take %llu bytes besides their KV pages; the limit "
            "for all requests together is %llu. Ask for less (n, max_tokens), or raise --memory-limit.",
            x->choice_count, x->max_tokens, (unsigned long long)bytes,
            (unsigned long long)room.requests_bytes_max);
    return true;
}

static bool submit_all(struct exchange *x)
{
    if (!resolve_lengths(x) || !check_room(x))
        return false;
    for (uint32_t i = 0; i < x->choice_count; i++) {
        if (atomic_load(&x->cancelled))
            return reject_unwanted(&x->reject, -ECANCELED);
        if (!submit(x, &x->choices[i]))
            return false;
    }
    return true;
}

static bool check_stops(struct exchange *x)
{
    if (x->request.gen.stop_count == 0 || x->model->tokenizer)
        return true;
    return reject_unsupported(
        &x->reject, "stop",
        "The model \"%.100s\" has no tokenizer, so stop strings are not supported. Use stop_token_ids.",
        x->model->id);
}

/* The engine has its copy; the reply still needs the count. */
static void drop_ids(struct exchange *x)
{
    for (uint32_t i = 0; i < x->prompt_count; i++) {
        request_memory_free(&x->memory, x->prompts[i].ids, x->prompts[i].count * sizeof(uint32_t));
        x->prompts[i].ids = NULL;
    }
}

static bool generate(struct exchange *x, struct arena *scratch)
{
    if (!check_stops(x) || !prompt_make(x, scratch))
        return false;
    request_drop_prompt(&x->request);
    if (!make_choices(x) || !submit_all(x))
        return false;
    media_request_done(x);
    if (!x->request.return_token_ids)
        drop_ids(x);
    return true;
}

/* ---- one exchange ---- */

static bool work(struct exchange *x, struct arena *scratch)
{
    if (atomic_load(&x->cancelled))
        return reject_unwanted(&x->reject, -ECANCELED);
    if (!x->parsed && !parse(x))
        return false;
    if (request_reclaims(x->kind))
        return utility_reclaim(x);
    if (x->kind == REQUEST_LOAD || x->kind == REQUEST_UNLOAD)
        return wait_order(x);
    if (!wait_find_model(x) || !media_request_ready(x))
        return false;
    switch (x->kind) {
    case REQUEST_CHAT:
    case REQUEST_COMPLETION:
        return generate(x, scratch);
    case REQUEST_TOKENIZE:
        return utility_tokenize(x, scratch);
    case REQUEST_DETOKENIZE:
        return utility_detokenize(x);
    case REQUEST_TEMPLATE:
        return utility_template(x, scratch);
    case REQUEST_CLEAR:
    case REQUEST_CLEAR_SSD:
    case REQUEST_TRIM:
    case REQUEST_LOAD:
    case REQUEST_UNLOAD:
    case REQUEST_KIND_COUNT:
        break;
    }
    return false;
}

/* Frees the memory of a refused request here, where its destruction delays no other request. */
static void drop_refused(struct exchange *x)
{
    if (x->reject.kind == REJECT_NONE || x->choice_count > 0 || x->waits)
        return;
    buf_done(&x->body);
    if (x->parsed)
        request_drop_all(&x->request);
    if (wanted_look(&x->wanted) < 0)
        atomic_fetch_add(&x->api->prep_stopped, 1);
}

/* Prepares one exchange. Afterwards x->reject has an error, or x->reply is written, or its choices are with
 * the engine. */
static void work_on(struct exchange *x)
{
    struct arena *scratch = NULL;
    x->wanted = (struct wanted){&x->cancelled, clock_now_ns() + REJECT_PREPARATION_S * NS_PER_S};
    x->memory.still = &x->wanted;
    /* Each request has an arena of its own: the memory of a long prompt is freed with it. */
    struct charge charge = request_memory_charge(&x->memory);
    struct arena_opts opts = {.bytes_max = x->memory.bytes_max, .charge = &charge};
    if (arena_create(&opts, &scratch) < 0)
        out_of_memory(x);
    else
        work(x, scratch);
    arena_free(scratch);
    drop_refused(x);
    x->memory.still = NULL;
}

/* ---- threads ---- */

uint32_t prep_threads(const struct api_opts *opts)
{
    return opts->prep_threads + PREP_LANES - 1;
}

void prep_put(struct exchange *x, size_t bytes)
{
    /* An order may run for seconds: it does not go to the lane of short texts. */
    if (request_reclaims(x->kind))
        bytes = MAX_OF(bytes, PREP_SHORT_BYTES);
    x->phase = EXCHANGE_PREPARING;
    x->entry.bytes = bytes;
    x->entry.fair.tenant = x->tenant;
    prep_queue_put(&x->api->to_prepare, &x->entry, clock_now_ns());
}

static void run_lane(struct api *a, enum prep_lane lane)
{
    struct prep_entry *e;
    while ((e = prep_queue_wait(&a->to_prepare, lane))) {
        struct exchange *x = CONTAINER(e, struct exchange, entry);
        atomic_fetch_sub(&a->prep_queue_bytes, x->body.len);
        work_on(x);
        /* It has room: its capacity is the limit on requests. */
        ASSERT(mailbox_put(a->prepared, &x) == 0);
    }
}

static void *run_short(void *arg)
{
    run_lane(arg, PREP_SHORT);
    return NULL;
}

static void *run_medium(void *arg)
{
    thread_nice(5);
    run_lane(arg, PREP_MEDIUM);
    return NULL;
}

static void *run_long(void *arg)
{
    thread_nice(10);
    run_lane(arg, PREP_LONG);
    return NULL;
}

int prep_start(struct api *a)
{
    static void *(*const mains[PREP_LANES])(void *) = {run_short, run_medium, run_long};
    struct charge charge = account_charge(a->opts.threads ? a->opts.threads : a->opts.text);
    int r = 0;
    while (r == 0 && a->thread_count < prep_threads(&a->opts)) {
        uint32_t i = a->thread_count;
        enum prep_lane lane = MIN_OF(i, (uint32_t)PREP_LONG);
        r = thread_stack_init(&a->stacks[i], PREP_STACK_BYTES, &charge);
        if (r == 0)
            r = thread_stack_start(&a->stacks[i], mains[lane], a, &a->threads[i]);
        if (r < 0) {
            thread_stack_done(&a->stacks[i]);
            return r;
        }
        pthread_setname_np(a->threads[a->thread_count++], "prep");
    }
    return r;
}

void prep_stop(struct api *a)
{
    prep_queue_close(&a->to_prepare);
    while (a->thread_count > 0) {
        pthread_join(a->threads[--a->thread_count], NULL);
        thread_stack_done(&a->stacks[a->thread_count]);
    }
}
