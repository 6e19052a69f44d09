/* warm_task.c - a request is prepared as a client's, and only its prompt computed, with least priority. */
#include "api/warm_task.h"

#include "api/access/keyring.h"
#include "api/api_state.h"
#include "api/model_lookup.h"
#include "api/prep_arena.h"
#include "api/request/request.h"
#include "api/warm_file.h"
#include "api/wire/wire.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/engine_numbers.h"
#include "gen/choice.h"
#include "gen/gen.h"
#include "gen/json_depth.h"
#include "gen/media_request.h"
#include "gen/reject.h"

#include <errno.h>

#define LOOK_NS (50 * NS_PER_MS)

/* ---- a request, and the host of its generation ---- */

struct task {
    const struct warm_task_opts *opts;
    uint32_t line;
    struct request request;
    struct gen gen;
};

static bool refuse_memory(struct gen *g, struct account *account, uint64_t bytes)
{
    (void)account, (void)bytes;
    return reject_set(&g->reject, REJECT_OUT_OF_MEMORY, NULL, "There is no memory for the prompt.");
}

static bool agree(struct gen *g)
{
    (void)g;
    return true;
}

static bool take_stream(struct gen *g)
{
    atomic_fetch_add(&CONTAINER(g, struct task, gen)->opts->api->streams_now, 1);
    return true;
}

static void give_stream(struct gen *g)
{
    atomic_fetch_sub(&CONTAINER(g, struct task, gen)->opts->api->streams_now, 1);
}

static const struct gen_host host = {refuse_memory, NULL, agree, take_stream, give_stream};

static void task_init(struct task *t, const struct warm_task_opts *opts, uint32_t line)
{
    struct api *a = opts->api;
    *t = (struct task){.opts = opts, .line = line};
    t->gen = (struct gen){.host = &host,
                          .request = &t->request.gen,
                          .media = a->media,
                          .text = a->opts.text,
                          .wakes = opts->news,
                          .id = request_id_new(),
                          .tenant = opts->tenant,
                          .weight = 1,
                          .priority_first = KEYRING_PRIORITY_MAX,
                          .priority_last = KEYRING_PRIORITY_MAX,
                          .created_s = (int64_t)clock_wall_s(),
                          .max_tokens_default = 1};
    t->gen.wanted.cancelled = opts->stopping;
    request_memory_init(&t->gen.memory, a->opts.text, a->opts.live.request_bytes_max);
}

static void task_done(struct task *t)
{
    gen_done(&t->gen);
    request_done(&t->request);
    request_memory_done(&t->gen.memory);
}

/* A body that is not JSON goes to the chats' reader, which explains that. */
static const struct wire *wire_of(struct task *t, struct slice body)
{
    static const struct wire *const wires[] = {[WARM_CHAT] = &wire_chat,
                                               [WARM_COMPLETION] = &wire_completion,
                                               [WARM_MESSAGES] = &wire_messages,
                                               [WARM_RESPONSES] = &wire_responses,
                                               [WARM_SESSION] = &wire_session};
    json_error_t ignored;
    json_t *parsed = json_depth_within(body, t->opts->api->limits.json_depth_max)
                         ? request_memory_parse(&t->gen.memory, body.ptr, body.len, &ignored)
                         : NULL;
    enum warm_dialect dialect = parsed ? warm_file_dialect(body, parsed) : WARM_CHAT;
    json_decref(parsed);
    return wires[dialect];
}

/* Parses the request, and drops what its prompt does not need. */
static bool parse(struct task *t, struct slice body)
{
    struct request_limits limits = t->opts->api->limits;
    struct gen_request *r = &t->request.gen;
    char id[33];
    request_id_text(t->gen.id, id);
    limits.tenant = t->opts->tenant;
    limits.id = id;
    const struct wire *wire = wire_of(t, body);
    if (!request_parse(&wire->form, body, &limits, &t->gen.memory, &t->request, &t->gen.reject))
        return false;
    if (r->prompt_count != 1)
        return reject_value(&t->gen.reject, "prompt", "A request to warm has one prompt.");
    json_decref(r->grammar.value);
    r->grammar = (struct gen_grammar){0};
    r->prompt_only = r->whole = true;
    r->n = 1;
    r->sampling.prompt_logprobs = -1;
    return true;
}

static int model_of(struct task *t)
{
    struct slice name = slice_of(t->request.model);
    bool exact;
    int index = t->opts->model >= 0 ? t->opts->model : model_lookup_serve(t->opts->api, name, &exact);
    if (index < 0)
        model_lookup_refuse(t->opts->api, name, &t->gen.reject);
    return index;
}

/* ---- one request, computed ---- */

bool warm_task_is_ending(const struct warm_task_opts *opts, const struct model_lease *lease)
{
    struct registry_info info;
    registry_info(lease->registry, lease->index, &info);
    return atomic_load(opts->stopping) || info.state != MODEL_READY;
}

/* Waits for images, or room for a grammar. False: with a refusal. */
static bool wait_for_parts(struct task *t, const struct model_lease *l)
{
    struct timespec pause = {.tv_nsec = LOOK_NS};
    int r = -EAGAIN;
    while (r == -EAGAIN) {
        nanosleep(&pause, NULL);
        if (warm_task_is_ending(t->opts, l))
            return reject_as(&t->gen.reject, REJECT_SHUTTING_DOWN);
        uint64_t now_ns = clock_now_ns();
        if (t->gen.stage == GEN_AT_GRAMMAR)
            r = now_ns < t->gen.grammar_retry_ns ? -EAGAIN : 0;
        else
            r = media_request_poll(&t->gen, now_ns);
    }
    return r == 0;
}

static bool prepare(struct task *t, const struct model_lease *l)
{
    enum prepare r = PREPARE_WAITS;
    while (r == PREPARE_WAITS) {
        struct prep_arena scratch;
        t->gen.wanted.deadline_ns = clock_now_ns() + REJECT_PREPARATION_S * NS_PER_S;
        r = prep_arena_open(&scratch, &t->opts->api->prep_arena_bytes, &t->gen.memory) == 0
                ? gen_prepare(&t->gen, scratch.arena)
                : PREPARE_REFUSED;
        prep_arena_close(&scratch);
        if (r == PREPARE_WAITS && !wait_for_parts(t, l))
            r = PREPARE_REFUSED;
    }
    return r == PREPARE_DONE;
}

static void ignore_part(void *arg, const struct reply_part *p)
{
    (void)arg, (void)p;
}

/* Takes parts until the job is over. A model that drains does not wait for it. */
static void follow(struct task *t, const struct model_lease *l)
{
    struct choice *c = &t->gen.choices[0];
    void *message;
    c->sink = ignore_part;
    while (!c->over) {
        (void)mailbox_wait(t->opts->news, &message, LOOK_NS);
        stream_wake_clear(c->stream);
        if (warm_task_is_ending(t->opts, l)) {
            stream_close(c->stream);
            engine_wake(l->model->engine);
        }
        choice_take(c, UINT32_MAX);
    }
}

static void log_warmed(const struct task *t, const struct model_lease *l, uint64_t took_ns)
{
    const struct stream_finish *f = &t->gen.choices[0].finish;
    char id[33] = "";
    if (t->request.gen.opens_session)
        request_id_text(t->gen.id, id);
    LOG_INFO("warmed",
             "model=%s file=\"%s\" line=%u tokens=%u cached_tokens=%u bytes=%llu wished_tokens=%u "
             "session=%s%s session_tokens=%u ms=%llu",
             api_model_id(t->opts->api, l->index), t->opts->path, t->line, f->prompt_tokens, f->cached_tokens,
             (ull)engine_prefix_bytes(l->model->engine, f->prompt_tokens), f->wished_tokens,
             id[0] ? "sess_" : "-", id, f->leased_tokens, (ull)(took_ns / NS_PER_MS));
}

static void log_failed(const struct task *t, const struct model_lease *l, const char *why)
{
    LOG_WARN("warm_failed", "model=%s file=\"%s\" line=%u error=\"%s\"", api_model_id(t->opts->api, l->index),
             t->opts->path, t->line, why);
}

/* The request is parsed, and the model leased. */
static void compute(struct task *t, const struct model_lease *l)
{
    uint64_t began_ns = clock_now_ns();
    t->gen.model = l->model;
    if (!prepare(t, l)) {
        log_failed(t, l, t->gen.reject.message);
        return;
    }
    gen_drop_ids(&t->gen);
    request_drop_prompt(&t->request);
    follow(t, l);
    const struct stream_finish *f = &t->gen.choices[0].finish;
    if (f->reason == FINISH_LENGTH)
        log_warmed(t, l, clock_now_ns() - began_ns);
    else
        log_failed(t, l, f->error[0] ? f->error : stream_finish_name(f->reason));
}

/* Each replica of the request's model gets the prefix. */
static bool is_for(const struct api *a, uint32_t model, const struct model_lease *lease)
{
    struct registry_replicas of = registry_replicas(a->opts.registry, model);
    return lease->index - of.first < of.count;
}

int warm_task(const struct warm_task_opts *opts, const struct warm_request *r,
              const struct model_lease *lease, struct err *e)
{
    struct task t;
    task_init(&t, opts, r->line);
    int index = parse(&t, r->body) ? model_of(&t) : -1;
    if (index < 0)
        index = err_set(e, -EINVAL, "line %u: %s", r->line, t.gen.reject.message);
    else if (lease && is_for(opts->api, (uint32_t)index, lease))
        compute(&t, lease);
    task_done(&t);
    return index;
}
