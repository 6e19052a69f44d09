/* gen.c - everything that a job needs is made here, its stream included, so that the owner only has to watch.
 * A job that the engine refuses ends the request: gen_done() closes the jobs accepted before it. */
#include "gen/gen.h"

#include "gen/choice.h"
#include "gen/compaction.h"
#include "gen/gen_request.h"
#include "gen/grammar_request.h"
#include "gen/media_request.h"
#include "gen/pair_prompt.h"
#include "gen/prompt.h"
#include "gen/prompt_turns.h"
#include "gen/resolve.h"
#include "gen/thinking_budget.h"

#include "base/check.h"
#include "base/rng.h"
#include "engine/engine.h"
#include "model/model.h"
#include "registry/model_use.h"
#include "registry/registry.h"

#include <errno.h>
#include <string.h>

_Static_assert(CHAT_CUTS_MAX <= ENGINE_CUTS_MAX, "the engine looks at all cuts of a conversation");

/* ---- jobs ---- */

static bool make_choices(struct gen *g)
{
    const struct gen_request *r = g->request;
    struct sampler_params sampling;
    uint64_t sampled;
    uint32_t bias_count = gen_bias_count(r);
    ASSERT(r->n > 0 && !g->choices);
    if (bias_count > 0) {
        g->bias = request_memory_alloc(&g->memory, bias_count * sizeof(*g->bias));
        if (!g->bias)
            return gen_refuse_memory(g);
        g->bias_count = bias_count;
    }
    if (!resolve_sampling(r, g->model, g->bias, &sampling, &g->reject))
        return false;
    uint32_t count = g->prompt_count * r->n;
    g->choices = request_memory_alloc(&g->memory, count * sizeof(*g->choices));
    if (!g->choices)
        return gen_refuse_memory(g);
    g->choice_count = count;
    rng_secret(&sampled, sizeof(sampled));
    for (uint32_t i = 0; i < count; i++) {
        struct choice *c = &g->choices[i];
        choice_init(c, g, i, i / r->n);
        c->sampling = sampling;
        c->sampling.seed = resolve_seed(r, sampled, i % r->n);
        /* The first job has the request's own id, so that both sides name it alike. */
        c->job_id = i == 0 ? g->id : request_id_new();
    }
    return true;
}

static uint32_t values_of(const struct gen *g)
{
    switch (g->request->output) {
    case GEN_VECTOR:
        return g->model->shape->vector_room;
    case GEN_SCORE:
        return MAX_OF((uint32_t)JOB_LOGIT_IDS, g->model->shape->vector_room);
    default:
        return 0;
    }
}

static bool make_stream(struct gen *g, struct choice *c)
{
    struct charge charge = account_charge(g->text);
    struct stream_opts opts = {
        .id = c->job_id,
        .top_max = c->sampling.top_logprobs,
        .values_max = values_of(g),
        .wake = g->wakes,
        .user = c,
        .charge = &charge,
    };
    ASSERT(!c->stream);
    if (!g->host->take_stream(g))
        return false;
    if (stream_create(&opts, &c->stream) == 0)
        return true;
    g->host->give_stream(g);
    c->stream = NULL;
    return g->host->refuse_memory(g, g->text,
                                  STREAM_TOKENS * sizeof(struct stream_token) + values_of(g) * sizeof(float));
}

static bool refuse_submit(struct gen *g, int r, uint32_t retry_after_s, const struct err *e)
{
    ASSERT(r < 0);
    switch (r) {
    case -EINVAL:
        return !reject_too_complex(&g->reject, e->text) && reject_value(&g->reject, NULL, "%s", e->text);
    case -EAGAIN:
        g->reject.retry_after_s = retry_after_s;
        return reject_set(&g->reject, REJECT_QUEUE_FULL, NULL, "%s", e->text);
    case -ENOBUFS:
        g->reject.retry_after_s = retry_after_s;
        return reject_set(&g->reject, REJECT_BUSY, NULL, "%s", e->text);
    case -EBUSY:
        g->reject.retry_after_s = retry_after_s;
        return reject_set(&g->reject, REJECT_MEMORY_SHORT, NULL, "%s", e->text);
    case -EPIPE:
        return reject_set(&g->reject, REJECT_SHUTTING_DOWN, NULL, "%s", e->text);
    default:
        return reject_set(&g->reject, REJECT_OUT_OF_MEMORY, NULL, "%s", e->text);
    }
}

static struct job_thinking thinking_of(const struct gen *g, const struct prompt_ids *p)
{
    struct job_thinking ret = g->thinking;
    ret.inside = p->in_reasoning;
    return ret;
}

/* The model's classifier turns a pooled row into the score. */
static bool scores_by_head(const struct gen *g)
{
    return g->request->output == GEN_SCORE && g->model->shape->labels > 0;
}

static struct job_leases leases_of(const struct gen *g, const struct prompt_ids *p)
{
    const struct gen_request *r = g->request;
    struct job_leases ret = {.agent = r->agent};
    if (r->keep_head_s > 0 && p->head > 0)
        ret.wishes[ret.wish_count++] = (struct job_wish){p->head, r->keep_head_s};
    if (r->keep_s > 0)
        ret.wishes[ret.wish_count++] = (struct job_wish){UINT32_MAX, r->keep_s};
    ASSERT(ret.wish_count <= COUNT_OF(ret.wishes));
    if (r->opens_session) {
        ret.session = JOB_OPENS_SESSION;
        memcpy(ret.id, &g->id, sizeof(ret.id));
        ret.ttl_s = r->session_ttl_s;
        ret.follows = r->session_follows != 0;
        ret.below = r->session_below;
    } else if (r->has_session) {
        ret.session = JOB_CONTINUES_SESSION;
        memcpy(ret.id, r->session_id, sizeof(ret.id));
    }
    return ret;
}

static struct job_spec spec_of(struct gen *g, const struct choice *c)
{
    const struct prompt_ids *p = &g->prompts[c->prompt_index];
    static const enum job_output outputs[] = {
        [GEN_TOKENS] = JOB_TOKENS, [GEN_VECTOR] = JOB_VECTOR, [GEN_SCORE] = JOB_LOGITS};
    ASSERT((size_t)g->request->output < COUNT_OF(outputs));
    return (struct job_spec){
        .output = scores_by_head(g) ? JOB_VECTOR : outputs[g->request->output],
        .pooling = g->model->use.pooling.kind,
        .logit_ids = {g->model->use.yes, g->model->use.no},
        .prompt = p->ids,
        .prompt_count = p->count,
        .second = p->second,
        .max_tokens = c->max_tokens,
        .priority = MIN_OF(MAX_OF(g->request->priority, g->priority_first), g->priority_last),
        .cache_salt = slice_of(g->request->cache_salt),
        .tenant = g->tenant,
        .announced = g->shares && !g->request->cache_salt,
        .weight = g->weight,
        .cuts = p->cuts,
        .cut_count = p->cut_count,
        .sampling = c->sampling,
        .stops = g->request->stops,
        .stop_count = g->request->stop_count,
        .grammar = g->grammar,
        .speculative = g->request->speculative && g->request->output == GEN_TOKENS,
        .whole = g->request->whole,
        .images = p->images,
        .image_count = p->image_count,
        .thinking = thinking_of(g, p),
        .leases = leases_of(g, p),
        .repetition = resolve_repetition(g->request, g->model),
        .prompt_logprobs = g->request->sampling.prompt_logprobs >= 0,
    };
}

static bool submit(struct gen *g, struct choice *c)
{
    ASSERT(c->gen == g);
    struct job_spec job = spec_of(g, c);
    struct err e = {0};
    uint32_t retry_after_s = 0;
    if (choice_open(c) < 0)
        return gen_refuse_memory(g);
    if (!make_stream(g, c))
        return false;
    int r = engine_submit(g->model->engine, &job, c->stream, &retry_after_s, &e);
    if (r == 0)
        return true;
    /* The engine did not take its half: both are released here. */
    stream_release(c->stream);
    stream_release(c->stream);
    c->stream = NULL;
    g->host->give_stream(g);
    return refuse_submit(g, r, retry_after_s, &e);
}

static bool resolve_lengths(struct gen *g)
{
    for (uint32_t i = 0; i < g->choice_count; i++) {
        struct choice *c = &g->choices[i];
        ASSERT(c->prompt_index < g->prompt_count);
        if (g->request->output != GEN_TOKENS) {
            if (!resolve_length(g->request, g->model, g->prompts[c->prompt_index].count, &g->reject))
                return false;
            continue;
        }
        if (!resolve_max_tokens(g->request, g->model, g->max_tokens_default,
                                g->prompts[c->prompt_index].count, &c->max_tokens, &g->reject))
            return false;
        g->max_tokens = MAX_OF(g->max_tokens, c->max_tokens);
    }
    return true;
}

/* Choices that may be with the engine at once. */
static uint32_t window_of(const struct gen *g)
{
    bool tokens = g->request->output == GEN_TOKENS;
    return tokens ? g->choice_count : MIN_OF(g->choice_count, (uint32_t)GEN_WINDOW);
}

/* All choices are accepted or none: a set that can never fit together must not be tried again. */
static bool check_room(struct gen *g)
{
    ASSERT(g->choice_count > 0);
    struct engine_job_limits room = {0};
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < window_of(g); i++) {
        struct job_spec job = spec_of(g, &g->choices[i]);
        engine_job_limits(g->model->engine, &job, &room);
        bytes += room.job_bytes;
    }
    if (g->choice_count > room.jobs_max && g->request->output == GEN_TOKENS)
        return reject_value(&g->reject, g->request->n > 1 ? "n" : "prompt",
                            "The request asks for %u choices (prompts x n), but at most %u can run and wait "
                            "together (--max-num-seqs and --max-queue). Send several requests.",
                            g->choice_count, room.jobs_max);
    if (bytes > room.requests_bytes_max)
        return reject_set(
            &g->reject, REJECT_REQUEST_TOO_LARGE, NULL,
            "The request's %u choices of up to %u tokens take %llu bytes besides their KV pages; the limit "
            "for all requests together is %llu. Ask for less (n, max_tokens), or raise --memory-limit.",
            g->choice_count, g->max_tokens, (ull)bytes, (ull)room.requests_bytes_max);
    return true;
}

/* At least one: a request that no place is left for is refused, as any other. */
static bool submit_first(struct gen *g)
{
    ASSERT(g->choice_count > 0);
    if (!submit(g, &g->choices[0]))
        return false;
    g->submitted = 1;
    return gen_go_on(g) != -ECANCELED;
}

static bool submit_all(struct gen *g)
{
    ASSERT(g->submitted == 0);
    if (!resolve_lengths(g) || !check_room(g))
        return false;
    while (g->submitted < g->choice_count && g->request->output == GEN_TOKENS) {
        if (g->wanted.cancelled && atomic_load(g->wanted.cancelled))
            return reject_unwanted(&g->reject, -ECANCELED);
        if (!submit(g, &g->choices[g->submitted]))
            return false;
        g->submitted++;
    }
    return g->request->output == GEN_TOKENS || submit_first(g);
}

int gen_go_on(struct gen *g)
{
    ASSERT(g->over <= g->submitted);
    while (g->submitted < g->choice_count && g->submitted - g->over < window_of(g)) {
        if (!submit(g, &g->choices[g->submitted])) {
            enum reject_kind kind = g->reject.kind;
            bool full = kind == REJECT_QUEUE_FULL || kind == REJECT_BUSY || kind == REJECT_MEMORY_SHORT ||
                        kind == REJECT_TOO_MANY_REQUESTS;
            if (full)
                g->reject = (struct reject){0};
            return full ? -EAGAIN : -ECANCELED;
        }
        g->submitted++;
    }
    return 0;
}

static bool check_dimensions(struct gen *g)
{
    ASSERT(g->request->output == GEN_VECTOR);
    const struct pooling_config *p = &g->model->use.pooling;
    int64_t asked = g->request->dimensions;
    uint32_t hidden = g->model->shape->vector_width;
    if (asked == 0 || asked == hidden)
        return true;
    if (!p->cuts)
        return reject_unsupported(&g->reject, "dimensions",
                                  "The vectors of the model \"%.100s\" have %u dimensions and cannot be cut; "
                                  "leave dimensions out.",
                                  g->model->id, hidden);
    bool listed = p->dimension_count == 0 && asked < hidden;
    for (uint32_t i = 0; i < p->dimension_count; i++)
        listed |= p->dimensions[i] == asked;
    return listed || reject_value(&g->reject, "dimensions",
                                  "dimensions is %lld; the model \"%.100s\" has up to %u, and may list the "
                                  "smaller numbers that it supports (matryoshka_dimensions).",
                                  (long long)asked, g->model->id, hidden);
}

/* Checks that the model serves this output. */
static bool check_use(struct gen *g)
{
    const struct model_use *u = &g->model->use;
    switch (g->request->output) {
    case GEN_VECTOR:
        if (u->vectors)
            return check_dimensions(g);
        if (g->model->shape->labels > 0)
            return reject_unsupported(
                &g->reject, "model",
                "The model \"%.100s\" makes scores, not embeddings. Send it to /v1/rerank.", g->model->id);
        return reject_unsupported(
            &g->reject, "model",
            "The model \"%.100s\" was made for text, not for embeddings. Start the server "
            "with --embeddings to pool its last token's hidden state.",
            g->model->id);
    case GEN_SCORE:
        if (u->scores)
            return true;
        if (u->kind == MODEL_EMBEDS)
            return reject_unsupported(&g->reject, "model",
                                      "The model \"%.100s\" makes embeddings, not scores. Use a reranker, or "
                                      "compare the vectors of /v1/embeddings.",
                                      g->model->id);
        if (u->kind == MODEL_RERANKS && g->model->shape->labels > 0)
            return reject_unsupported(&g->reject, "model",
                                      "The model \"%.100s\" has no tokenizer, which scores of texts need.",
                                      g->model->id);
        return reject_unsupported(
            &g->reject, "model",
            "The model \"%.100s\" was made for text, not for scores (or its tokenizer lacks "
            "the words yes and no). Use a reranker, or start the server with --embeddings.",
            g->model->id);
    case GEN_TOKENS:
        return u->texts || u->kind == MODEL_GENERATES ||
               reject_unsupported(&g->reject, "model", "The model \"%.100s\" makes %s.", g->model->id,
                                  u->kind == MODEL_RERANKS
                                      ? "scores, not text. Send it to /v1/rerank"
                                      : "embeddings, not text. Send it to /v1/embeddings");
    default:
        return true;
    }
}

static bool check_stops(struct gen *g)
{
    if (g->request->stop_count == 0 || g->model->tokenizer)
        return true;
    return reject_unsupported(
        &g->reject, "stop",
        "The model \"%.100s\" has no tokenizer, so stop strings are not supported. Use stop_token_ids.",
        g->model->id);
}

/* ---- the way through the stages ---- */

static bool make_prompts(struct gen *g, struct arena *scratch)
{
    if (g->request->output == GEN_SCORE)
        return pair_prompts_make(g, scratch);
    if (g->request->compaction.ask)
        return compaction_make(g, scratch);
    if (g->request->drops_turns && gen_media_count(g->request) == 0)
        return prompt_turns_make(g, scratch);
    return prompt_make(g, scratch);
}

static bool read_prompts(struct gen *g, struct arena *scratch)
{
    ASSERT(!g->prompts && g->prompt_count == 0);
    return check_stops(g) && thinking_budget_make(g, scratch) && make_prompts(g, scratch) &&
           prompt_check_ids(g);
}

static bool make_jobs(struct gen *g)
{
    ASSERT(g->prompts && g->stage == GEN_AT_JOBS);
    if (!make_choices(g) || !submit_all(g))
        return false;
    media_request_done(g);
    return true;
}

enum prepare gen_prepare(struct gen *g, struct arena *scratch)
{
    if (g->stage == GEN_AT_IMAGES) {
        if (!check_use(g))
            return PREPARE_REFUSED;
        enum prepare r = media_request_begin(g);
        if (r == PREPARE_REFUSED)
            return r;
        g->stage = GEN_AT_PROMPT;
        if (r == PREPARE_WAITS)
            return r;
    }
    if (g->request->output == GEN_IDS || g->request->output == GEN_TEXT)
        return PREPARE_DONE;
    if (g->stage == GEN_AT_PROMPT && !read_prompts(g, scratch))
        return PREPARE_REFUSED;
    if (g->request->renders)
        return make_choices(g) && resolve_lengths(g) ? PREPARE_DONE : PREPARE_REFUSED;
    if (g->stage == GEN_AT_PROMPT && g->host->place)
        g->host->place(g);
    g->stage = MAX_OF(g->stage, GEN_AT_GRAMMAR);
    if (g->stage == GEN_AT_GRAMMAR) {
        enum prepare r = grammar_request_begin(g);
        if (r != PREPARE_DONE)
            return r;
        if (!g->host->prompted(g))
            return PREPARE_REFUSED;
        g->stage = GEN_AT_JOBS;
    }
    return make_jobs(g) ? PREPARE_DONE : PREPARE_REFUSED;
}

struct gen_usage gen_usage(const struct gen *g)
{
    struct gen_usage ret = {.admitted = true};
    for (uint32_t i = 0; i < g->prompt_count; i++)
        ret.prompt_tokens += g->prompts[i].count;
    for (uint32_t i = 0; i < g->choice_count; i++) {
        const struct choice *c = &g->choices[i];
        ret.completion_tokens += c->over ? c->finish.completion_tokens : c->tokens;
        ret.reasoning_tokens += c->reasoning_tokens;
        ret.drafted_tokens += c->over ? c->finish.drafted_tokens : 0;
        ret.accepted_tokens += c->over ? c->finish.accepted_tokens : 0;
        struct stream_admission admission;
        ret.admitted &= choice_admitted(c, &admission);
        ASSERT(g->request->n > 0);
        if (c->index % g->request->n != 0)
            continue;
        ret.cached_tokens += admission.cached_tokens;
        ret.pinned_tokens += admission.pinned_tokens;
        ret.ssd_tokens += admission.ssd_tokens;
        ret.written_tokens += admission.written_tokens;
    }
    return ret;
}

void gen_done(struct gen *g)
{
    struct request_memory *m = &g->memory;
    media_request_done(g);
    for (uint32_t i = 0; i < g->choice_count; i++)
        choice_close(&g->choices[i]);
    request_memory_free(m, g->choices, g->choice_count * sizeof(*g->choices));
    g->choices = NULL;
    g->choice_count = 0;
    grammar_request_done(g);
    gen_drop_ids(g);
    request_memory_free(m, g->prompts, g->prompt_count * sizeof(*g->prompts));
    g->prompts = NULL;
    g->prompt_count = 0;
    request_memory_free(m, g->bias, g->bias_count * sizeof(*g->bias));
    g->bias = NULL;
    g->bias_count = 0;
}

void gen_drop_ids(struct gen *g)
{
    for (uint32_t i = 0; i < g->prompt_count; i++) {
        request_memory_free(&g->memory, g->prompts[i].ids, g->prompts[i].count * sizeof(uint32_t));
        g->prompts[i].ids = NULL;
    }
}
