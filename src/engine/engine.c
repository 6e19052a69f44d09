/* engine.c - making, starting and closing an engine, and the calls of other threads.
 *
 * A job has its place from engine_submit to its end, so the inbox and the scheduler's queue have room for
 * every possible job: neither can be full after a successful submit. A wake is one message, however many
 * callers request it. Closing shuts the inbox first: earlier messages are still taken, later ones fail. */
#include "engine/engine.h"

#include "engine/engine_state.h"
#include "engine/job_images.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/agents.h"
#include "grammar/matcher.h"
#include "memory/accounts.h"
#include "memory/plan.h"
#include "reclaim/holders.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ENGINE_STACK_BYTES    ((size_t)256 << 10)
#define RETRY_AFTER_MAX_S     600
#define ORDERS_MAX            64         /* trims that wait at once; more get -EAGAIN */
#define PLAN_SAMPLE           (1u << 20) /* pages whose tables are measured */
#define VOCABULARY_TEXT_BYTES 65536      /* room for the longest token's text */
#define SNAPSHOTS_MAX         1024       /* the cheapest is found by looking at all */
#define CLOSE_PATIENCE_NS     (2 * NS_PER_S)

const char *engine_phase_name(enum job_phase p)
{
    static const char *const names[] = {"queued",   "fetching", "encoding",  "prefilling",
                                        "decoding", "paused",   "preempted", "parked"};
    ASSERT((size_t)p < COUNT_OF(names));
    return names[p];
}

/* ---- creating ---- */

static uint32_t tokens_min(const struct engine_opts *o)
{
    return engine_tokens_min(o->max_num_seqs, o->drafting.drafts_max);
}

static uint32_t logits_max(const struct engine_opts *o)
{
    return engine_logits_max(o->max_num_seqs, o->drafting.drafts_max);
}

/* Rows of values of one step: a text that sees itself both ways has them all in one. */
static uint32_t values_max(const struct engine_opts *o, const struct model_shape *shape)
{
    return shape->both_ways ? o->tokens_max : logits_max(o);
}

/* Rows of logits; nothing is sampled where a text sees itself both ways. */
static uint32_t logit_rows(const struct engine_opts *o, const struct model_shape *shape)
{
    return shape->both_ways ? 1 : logits_max(o);
}

static bool drafts_by_ngram(const struct engine_opts *o)
{
    return o->drafting.by == DRAFTING_NGRAM || o->drafting.past;
}

static int check_opts(const struct engine_opts *o, const struct model_shape *shape, struct err *e)
{
    if (o->max_num_seqs == 0 || o->max_num_seqs > 4096 || o->max_queue > 1u << 20)
        return err_set(e, -EINVAL, "max_num_seqs is %u and max_queue %u: they must be 1..4096 and 0..%u",
                       o->max_num_seqs, o->max_queue, 1u << 20);
    const struct drafting_opts *g = &o->drafting;
    if (g->drafts_max > MODEL_DRAFTS_MAX || (g->by == DRAFTING_NONE) != (g->drafts_max == 0) ||
        (g->by == DRAFTING_MTP && !shape->mtp) || (g->by == DRAFTING_MODEL) != (o->draft != NULL) ||
        (g->past && !drafting_has_passes(g->by)) || (g->optimistic && (g->past || g->by != DRAFTING_MTP)))
        return err_set(
            e, -EINVAL,
            "%u drafts per row and step: at most %u, and by a head or a draft model only if there is one",
            g->drafts_max, MODEL_DRAFTS_MAX);
    if (o->tokens_max < tokens_min(o))
        return err_set(e, -EINVAL, "steps of %u tokens are too small: %u sequences need at least %u",
                       o->tokens_max, o->max_num_seqs, tokens_min(o));
    if (o->max_model_len < 2 || o->max_model_len > shape->context_max)
        return err_set(e, -EINVAL, "max_model_len is %u: this model takes 2..%u", o->max_model_len,
                       shape->context_max);
    if (shape->both_ways && o->tokens_max < o->max_model_len)
        return err_set(e, -EINVAL, "steps of %u tokens are too small: a text of %u tokens is one step",
                       o->tokens_max, o->max_model_len);
    const struct model_vision *v = &shape->vision;
    if (v->present && v->both_ways && o->tokens_max < tokens_min(o) + model_image_tokens_max(v))
        return err_set(e, -EINVAL, "steps of %u tokens are too small: the %u tokens of an image are one step",
                       o->tokens_max, model_image_tokens_max(v));
    uint64_t least = (uint64_t)sched_pages(o->max_model_len) * shape->page_bytes;
    if (o->kv_bytes_max < least)
        return err_set(e, -EINVAL, "%llu bytes for K and V are too few: one sequence of %u tokens takes %llu",
                       (ull)o->kv_bytes_max, o->max_model_len, (ull)least);
    return 0;
}

static uint64_t limit_of(uint64_t bytes_max)
{
    return bytes_max ? bytes_max : ACCOUNT_NO_LIMIT;
}

static int open_accounts(struct engine *en)
{
    const struct engine_opts *o = &en->opts;
    int r = accounts_open(o->parent, ACCOUNT_REQUESTS, limit_of(o->requests_bytes_max), &en->requests);
    return r == 0 ? accounts_open(o->parent, ACCOUNT_ENGINE, ACCOUNT_NO_LIMIT, &en->own) : r;
}

/* Called under the list's lock; the inbox lives longer. */
static void wake(void *arg)
{
    engine_wake(arg);
}

struct layout {
    struct pools_opts pools;
    struct sched_opts sched;
    size_t arena_bytes;
};

/* With a cache each sequence has one to read and one to write; snapshots are bounded by the cache. */
static uint32_t states_of(const struct engine_opts *o, const struct model_shape *shape)
{
    uint64_t snapshots = shape->state_bytes ? o->prefix_cache_bytes / shape->state_bytes : 0;
    snapshots = MAX_OF(snapshots, o->agents * (uint64_t)AGENT_ENDS);
    return (o->prefix_cache_bytes ? 2 : 1) * o->max_num_seqs + (uint32_t)MIN_OF(snapshots, SNAPSHOTS_MAX);
}

static uint32_t places_of(const struct engine_opts *o)
{
    return ADMISSION_FACTOR * (o->max_num_seqs + o->max_queue);
}

static struct mailbox_opts inbox_opts(const struct engine_opts *o, const struct charge *charge)
{
    return (struct mailbox_opts){places_of(o) + 1 + ORDERS_MAX, sizeof(struct engine_message), false, charge};
}

/* Leases have half of the prefix cache, and leave room for the longest sequence, for every place's states and
 * for all that agents hold. */
static void lay_out_leases(const struct engine_opts *o, const struct model_shape *shape,
                           struct pools_opts *ret)
{
    _Static_assert(PLAN_AGENT_ENDS == AGENT_ENDS, "a plan has the snapshots that an agent holds");
    uint64_t pages = sched_pages(o->max_model_len) + o->agents * (uint64_t)sched_pages(o->agent_tokens);
    uint64_t states = 2 * (uint64_t)o->max_num_seqs + o->agents * (uint64_t)AGENT_ENDS;
    uint64_t bytes = o->prefix_cache_bytes / 2;
    uint64_t least = pages * shape->page_bytes + states * shape->state_bytes;
    if (o->pools_bytes_max)
        bytes = MIN_OF(bytes, o->pools_bytes_max - MIN_OF(least, o->pools_bytes_max));
    ret->lease_bytes_max = bytes;
    ret->lease_pages_max = ret->pages_max - (uint32_t)MIN_OF(pages, ret->pages_max);
    ret->lease_states_max = ret->states_max - (uint32_t)MIN_OF(states, ret->states_max);
    ret->agents = o->agents;
    ret->agent_tokens = o->agent_tokens;
    ret->agent_idle_ns = o->agent_idle_ns;
}

static void lay_out_beside(const struct engine_opts *o, const struct model_shape *shape,
                           struct pools_opts *ret)
{
    ret->beside_count = MAX_OF(shape->shard_count, 1u) - 1;
    for (uint32_t i = 0; i < ret->beside_count; i++) {
        const struct model_shard *s = &shape->beside[i];
        ret->beside[i] = (struct pools_shard){.parent = o->beside[i].parent,
                                              .state_bytes = s->state_bytes,
                                              .bytes_max = limit_of(o->beside[i].pools_bytes_max)};
        memcpy(ret->beside[i].page_bytes, s->page_bytes, sizeof(s->page_bytes));
    }
}

static void lay_out(const struct engine_opts *o, const struct model_shape *shape, struct layout *ret)
{
    struct layout l = {
        .pools = {.parent = engine_device_parent(o),
                  .pages_max = (uint32_t)MIN_OF(o->kv_bytes_max / shape->page_bytes, UINT32_MAX - 1),
                  .states_max = states_of(o, shape),
                  .group_count = shape->group_count,
                  .state_bytes = shape->state_bytes,
                  .bytes_max = limit_of(o->pools_bytes_max),
                  .prefix_cache_max = o->prefix_cache_bytes,
                  .drafted = o->drafting.by == DRAFTING_MODEL,
                  .shown = o->shows_prefixes,
                  .tells_prefixes = o->tells_prefixes,
                  .events = o->events},
        .sched = {.seqs_max = o->max_num_seqs,
                  .queue_max = places_of(o) - o->max_num_seqs,
                  .tokens_max = o->tokens_max,
                  .drafts_max = engine_drafts_max(o->max_num_seqs, o->drafting.drafts_max),
                  .logits_max = logits_max(o),
                  .logits_chunk_max = ENGINE_PROMPT_LOGITS + 1,
                  .queue_timeout_ns = o->queue_timeout_ns},
    };
    for (uint32_t g = 0; g < shape->group_count; g++)
        l.pools.groups[g] =
            (struct page_group){.page_bytes = shape->groups[g].page_bytes, .window = shape->groups[g].window};
    lay_out_beside(o, shape, &l.pools);
    lay_out_leases(o, shape, &l.pools);
    *ret = l;
    size_t vocab = shape->vocab;
    ret->arena_bytes =
        pools_arena_bytes(&ret->pools) + sched_arena_bytes(&ret->sched) + image_sched_arena_bytes(shape) +
        o->max_num_seqs * (sizeof(struct model_seq) + sizeof(struct model_draft_seq) + sizeof(uint32_t)) +
        drafting_arena_bytes(o->max_num_seqs) + engine_draft_model_bytes(o) +
        logit_rows(o, shape) * vocab * sizeof(float) +
        values_max(o, shape) * (size_t)shape->hidden * sizeof(float) + vocab / 8 +
        engine_masks_bytes(o, shape->vocab) + engine_rows_bytes(o, shape->vocab) +
        engine_samples_bytes(o, shape) + engine_tiers_bytes(o, shape) +
        publish_arena_bytes(places_of(o), o->max_num_seqs) + engine_leases_bytes(o->agents) +
        vocab * 16 /* the sampler's scratch: 12 now */ + 65536;
}

void engine_plan(const struct engine_opts *opts, const struct model_shape *shape, struct engine_plan *ret)
{
    struct layout l;
    lay_out(opts, shape, &l);
    struct pools_opts few = l.pools, many = l.pools;
    few.pages_max = many.pages_max = few.states_max = 1;
    uint64_t least = pools_arena_bytes(&few);
    many.pages_max = 1 + PLAN_SAMPLE;
    many.states_max = 1;
    ret->page_bytes = DIV_UP(pools_arena_bytes(&many) - least, (uint64_t)PLAN_SAMPLE);
    many = few;
    many.states_max = 1 + PLAN_SAMPLE;
    ret->state_bytes = DIV_UP(pools_arena_bytes(&many) - least, (uint64_t)PLAN_SAMPLE);
    struct mailbox_opts inbox = inbox_opts(opts, NULL);
    uint64_t arena = l.arena_bytes - pools_arena_bytes(&l.pools) + least;
    ret->fixed_bytes = ROUND_UP(arena, (uint64_t)65536) + 65536 + mailbox_bytes(&inbox) +
                       thread_stack_bytes(ENGINE_STACK_BYTES) + VOCABULARY_TEXT_BYTES;
    struct job_tables tables = {.keys = true, .ngram = drafts_by_ngram(opts), .groups = shape->group_count};
    job_bytes_max(shape->vision.present, &tables, &ret->job_bytes, &ret->job_token_bytes);
    ret->matcher_bytes = JOB_MATCHER_BYTES;
    ret->matcher_token_bytes = JOB_MATCHER_TOKEN_BYTES;
    ret->matcher_bytes_max = JOB_MATCHER_BYTES_MAX;
}

static enum sched_memory memory_refused(void *arg)
{
    const struct pools *p = arg;
    if (p->memory_requested)
        return SCHED_MEMORY_REQUESTED;
    return pools_memory_taken(p, p->now_ns) ? SCHED_MEMORY_TAKEN : SCHED_MEMORY_NONE;
}

/* For the pools, when nothing of theirs is free. */
static bool give_more(void *arg)
{
    return image_sched_give(arg, UINT64_MAX, true) > 0;
}

/* Names a sequence by its request, as clients and the log know it. */
static void name_seq(const struct sched_seq *seq, char ret[SCHED_NAME_BYTES])
{
    const struct job *j = CONTAINER(seq, struct job, seq);
    char id[33];
    request_id_text(stream_id(j->stream), id);
    snprintf(ret, SCHED_NAME_BYTES, "of request %s", id);
}

static int create_pools(struct engine *en, struct layout *l)
{
    ASSERT(en->arena);
    engine_parts_init(en);
    l->pools.holder = en->holder;
    l->pools.evicting =
        en->opts.store || en->opts.shared || en->opts.pinned_cache_bytes ? write_behind_evicting : NULL;
    l->pools.evicting_arg = &en->write_behind;
    l->pools.lease_tier = &en->tiers.ssd;
    l->pools.more = give_more;
    l->pools.arg = &en->image_sched;
    l->pools.crew = en->opts.device->crew;
    int r = pools_create(en->arena, &l->pools, &en->pools);
    if (r == 0)
        r = engine_tiers_create(en);
    l->sched.prefix = en->pools.index;
    memcpy(l->sched.groups, en->pools.groups, sizeof(l->sched.groups));
    l->sched.group_count = en->pools.group_count;
    l->sched.states = en->pools.states;
    l->sched.memory_refused = memory_refused;
    l->sched.memory_refused_arg = &en->pools;
    l->sched.state_bytes = en->pools.state_bytes;
    l->sched.name = name_seq;
    l->sched.tier = en->tiers.top.arg ? &en->tiers.top : NULL;
    l->sched.arrived = pools_arrived;
    l->sched.arrived_arg = &en->pools;
    return r == 0 ? sched_create(en->arena, &l->sched, &en->sched) : r;
}

/* Reads from the vocabulary which ids exist, and makes room for the longest token's text. */
static int create_vocabulary(struct engine *en, const struct charge *charge)
{
    const struct tokenizer *t = en->opts.tokenizer;
    uint32_t vocab = en->shape->vocab;
    size_t longest = 0;
    buf_init(&en->text, SIZE_MAX / 4, charge);
    if (!t)
        return 0;
    en->valid_ids = ARENA_ARRAY(en->arena, uint64_t, DIV_UP(vocab, 64u));
    if (!en->valid_ids)
        return -ENOMEM;
    for (uint32_t id = 0; id < MIN_OF(vocab, tokenizer_vocab_size(t)); id++) {
        if (!tokenizer_is_token(t, id))
            continue;
        en->valid_ids[id / 64] |= 1ull << id % 64;
        longest = MAX_OF(longest, tokenizer_token_bytes(t, id).len);
    }
    /* Each byte may become U+FFFD, as may the three that were held back before it. */
    for (size_t i = 0; i < 3 * (longest + 4); i++)
        buf_putc(&en->text, ' ');
    return en->text.error;
}

static int create_tables(struct engine *en)
{
    ASSERT(!en->arena);
    struct charge charge = account_charge(en->own);
    struct layout l;
    lay_out(&en->opts, en->shape, &l);
    uint32_t logits = logit_rows(&en->opts, en->shape), values = values_max(&en->opts, en->shape);
    int r = arena_create(&(struct arena_opts){.bytes_max = l.arena_bytes, .charge = &charge}, &en->arena);
    if (r < 0)
        return r;
    en->logits = arena_alloc_array(en->arena, (size_t)logits * en->shape->vocab, sizeof(float));
    en->values = arena_alloc_array(en->arena, (size_t)values * en->shape->hidden, sizeof(float));
    en->seqs = ARENA_ARRAY(en->arena, struct model_seq, en->opts.max_num_seqs);
    en->heads = ARENA_ARRAY(en->arena, struct model_draft_seq, en->opts.max_num_seqs);
    en->sampled = ARENA_ARRAY(en->arena, uint32_t, en->opts.max_num_seqs);
    if (!en->logits || !en->values || !en->seqs || !en->heads || !en->sampled)
        return -ENOMEM;
    device_pin(en->opts.device, en->logits, (size_t)logits * en->shape->vocab * sizeof(float));
    r = publish_init(&en->publish, en->arena, en->places_max, en->opts.max_num_seqs, en->shape);
    if (r == 0)
        r = engine_leases_init(en);
    if (r == 0)
        r = engine_draft_init(en);
    if (r == 0)
        r = engine_draft_model_init(en);
    if (r == 0)
        r = engine_masks_init(en);
    if (r == 0)
        r = engine_rows_init(en);
    if (r == 0)
        r = engine_samples_init(en);
    if (r == 0)
        r = sampler_scratch_create(en->arena, en->shape->vocab, &en->scratch);
    struct mailbox_opts inbox = inbox_opts(&en->opts, &charge);
    if (r == 0)
        r = mailbox_create(&inbox, &en->inbox);
    if (r == 0)
        r = create_pools(en, &l);
    if (r == 0)
        r = engine_parts_create_images(en);
    if (r == 0)
        r = create_vocabulary(en, &charge);
    return r == 0 ? thread_stack_init(&en->stack, ENGINE_STACK_BYTES, &charge) : r;
}

void engine_live_set(struct engine_live *l, const struct engine_opts *now)
{
    atomic_store(&l->queue_timeout_ns, now->queue_timeout_ns);
    atomic_store(&l->slow_client_ns, now->slow_client_ns);
    atomic_store(&l->step_ns, now->step_ns);
    atomic_store(&l->max_queue, now->max_queue);
}

static void init_live(struct engine *en)
{
    engine_live_set(&en->own_live, &en->opts);
    en->live = en->opts.live ? en->opts.live : &en->own_live;
}

/* Under the list's lock: they put a message. */
static int take_ask(void *arg, struct holder_ask *ask)
{
    struct engine *en = arg;
    struct engine_message m = {.order = ask};
    return mailbox_put(en->inbox, &m);
}

static const struct holder_ops holder_ops = {take_ask, wake};

int engine_create(const struct engine_opts *opts, struct engine **ret, struct err *e)
{
    const struct model_shape *shape = model_shape(opts->model);
    int r = check_opts(opts, shape, e);
    if (r < 0)
        return r;
    struct engine *en = calloc(1, sizeof(*en));
    if (!en)
        return err_set(e, -ENOMEM, "no memory left for an engine");
    en->opts = *opts;
    en->shape = shape;
    en->places_max = places_of(opts);
    init_live(en);
    snprintf(en->name, sizeof(en->name), "%s", opts->name ? opts->name : "model");
    list_init(&en->jobs);
    list_init(&en->over);
    r = opts->holders
            ? holder_add(opts->holders, account_domain(engine_device_parent(opts)), en->name, &en->holder)
            : 0;
    if (r == 0)
        r = open_accounts(en);
    if (r == 0)
        r = create_tables(en);
    if (r < 0) {
        engine_close(en);
        return err_set(e, r, "no memory left for the engine's tables and %u rows of logits, %llu bytes",
                       logits_max(opts), (ull)logits_max(opts) * shape->vocab * sizeof(float));
    }
    engine_publish(en, true);
    if (en->holder)
        holder_open(en->holder, &holder_ops, en);
    *ret = en;
    return 0;
}

int engine_start(struct engine *en)
{
    ASSERT(!en->started);
    int r = thread_stack_start(&en->stack, engine_thread, en, &en->thread);
    if (r < 0)
        return r;
    en->started = true;
    char name[16];
    snprintf(name, sizeof(name), "en %s", en->name);
    pthread_setname_np(en->thread, name);
    return 0;
}

/* A running step ends with its layer. A stuck one is logged: abandoning its thread would let it use freed
 * memory. */
static void join(struct engine *en)
{
    uint64_t began_ns = clock_now_ns();
    while (!thread_stack_join(en->thread, CLOSE_PATIENCE_NS))
        LOG_WARN("close_waits", "model=%s thread=engine after_s=%.0f", en->name,
                 (double)(clock_now_ns() - began_ns) / (double)NS_PER_S);
}

/* In this order: no new jobs, no computation, no page references, then the memory itself. Parts that were
 * never made are skipped. */
void engine_close(struct engine *en)
{
    if (!en)
        return;
    engine_stop(en);
    if (en->started)
        join(en);
    else if (en->sched)
        engine_end_all(en);
    thread_stack_done(&en->stack);
    image_sched_done(&en->image_sched);
    engine_tiers_done(en);
    holder_close(en->holder);
    uint64_t left = pools_done(&en->pools, en->holder);
    if (left > 0)
        LOG_ERROR("teardown_incomplete", "model=%s bytes=%llu", en->name, (ull)left);
    mailbox_free(en->inbox);
    buf_done(&en->text);
    publish_done(&en->publish);
    if (en->logits)
        device_unpin(en->opts.device, en->logits);
    engine_samples_done(en);
    engine_leases_done(en);
    arena_free(en->arena);
    /* Each demands that nothing is reserved: a leak stops here. */
    account_close(en->requests);
    account_close(en->own);
    free(en);
}

/* ---- submitting ---- */

static int check_length(const struct engine *en, const struct job_spec *s, struct err *e)
{
    uint64_t tokens = (uint64_t)s->prompt_count + s->max_tokens;
    if (en->shape->both_ways && s->output != JOB_VECTOR)
        return err_set(e, -EINVAL, "%s makes vectors, and neither text nor logits", en->name);
    if (s->output != JOB_TOKENS && s->max_tokens > 0)
        return err_set(e, -EINVAL, "max_tokens is %u: a job without tokens has 0", s->max_tokens);
    if (s->prompt_count == 0 || (s->max_tokens == 0 && s->output == JOB_TOKENS))
        return err_set(e, -EINVAL, "the prompt has %u tokens and max_tokens is %u: both must be at least 1",
                       s->prompt_count, s->max_tokens);
    if (tokens > en->opts.max_model_len)
        return err_set(e, -EINVAL,
                       "the prompt's %u tokens and max_tokens %u are %llu together, but this model's maximum "
                       "context length is %u: shorten the prompt or lower max_tokens",
                       s->prompt_count, s->max_tokens, (ull)tokens, en->opts.max_model_len);
    for (uint32_t i = 0; i < s->prompt_count; i++)
        if (s->prompt[i] >= en->shape->vocab)
            return err_set(e, -EINVAL, "token %u of the prompt is %u: ids of this model are 0..%u", i,
                           s->prompt[i], en->shape->vocab - 1);
    return 0;
}

static int check_stops(const struct engine *en, const struct job_spec *s, struct err *e)
{
    if (s->stop_count > ENGINE_STOP_STRINGS_MAX)
        return err_set(e, -EINVAL, "%u stop strings: the limit is %u", s->stop_count,
                       ENGINE_STOP_STRINGS_MAX);
    if (s->stop_count > 0 && !en->opts.tokenizer)
        return err_set(e, -EINVAL,
                       "stop strings need a tokenizer, which this model does not have: use stop_token_ids");
    for (uint32_t i = 0; i < s->stop_count; i++)
        if (s->stops[i].len == 0 || s->stops[i].len > ENGINE_STOP_STRING_BYTES_MAX)
            return err_set(e, -EINVAL, "stop string %u has %zu bytes: it must have 1..%u", i, s->stops[i].len,
                           ENGINE_STOP_STRING_BYTES_MAX);
    return 0;
}

/* The result has its room in the stream. */
static int check_result(const struct engine *en, const struct job_spec *s, struct stream *stream,
                        struct err *e)
{
    uint32_t room, needs = s->output == JOB_VECTOR ? en->shape->vector_room : JOB_LOGIT_IDS;
    (void)stream_result(stream, &room);
    if (room < needs)
        return err_set(e, -EINVAL, "the result has %u values, the stream was made for %u", needs, room);
    if (s->output == JOB_VECTOR && s->pooling == POOLING_NONE)
        return err_set(e, -EINVAL, "a vector needs a pooling");
    for (uint32_t i = 0; s->output == JOB_LOGITS && i < JOB_LOGIT_IDS; i++)
        if (s->logit_ids[i] >= en->shape->vocab)
            return err_set(e, -EINVAL, "the logit of token %u: ids of this model are 0..%u", s->logit_ids[i],
                           en->shape->vocab - 1);
    return job_images_check(en->shape, s, e);
}

static int check_spec(const struct engine *en, const struct job_spec *s, struct stream *stream, struct err *e)
{
    int r = check_length(en, s, e);
    if (r == 0 && s->output != JOB_TOKENS)
        return check_result(en, s, stream, e);
    if (r == 0)
        r = sampler_params_check(&s->sampling, en->shape->vocab, e);
    if (r == 0 && s->sampling.top_logprobs > stream_top_max(stream))
        r = err_set(e, -EINVAL, "%u alternatives per token, but the stream was made for %u",
                    s->sampling.top_logprobs, stream_top_max(stream));
    if (r == 0 && engine_think_check(&s->thinking, en->shape->vocab) < 0)
        r = err_set(e, -EINVAL,
                    "a marker of reasoning with more than %d tokens, or one beyond the vocabulary",
                    JOB_MARKER_MAX);
    if (r == 0)
        r = job_images_check(en->shape, s, e);
    return r == 0 ? check_stops(en, s, e) : r;
}

/* Expected time of the queue at recent throughput: jobs times the time of a job, over the sequences that
 * share it. */
uint32_t engine_retry_after_s(struct engine *en)
{
    ASSERT(en->opts.max_num_seqs > 0);
    uint64_t jobs = admission_total(&en->admission);
    uint64_t ns = atomic_load_explicit(&en->service_ns, memory_order_relaxed) / en->opts.max_num_seqs * jobs;
    return (uint32_t)MIN_OF(MAX_OF(DIV_UP(ns, NS_PER_S), 1), RETRY_AFTER_MAX_S);
}

static uint32_t queue_now(const struct engine *en)
{
    return MIN_OF(atomic_load(&en->live->max_queue), en->opts.max_queue);
}

static uint32_t places_now(const struct engine *en)
{
    return en->opts.max_num_seqs + queue_now(en);
}

static struct job_tables job_tables_of(const struct engine *en)
{
    return (struct job_tables){.keys = en->opts.prefix_cache_bytes > 0,
                               .ngram = drafts_by_ngram(&en->opts),
                               .groups = en->shape->group_count};
}

void engine_job_limits(const struct engine *en, const struct job_spec *job, struct engine_job_limits *ret)
{
    const struct job_tables tables = job_tables_of(en);
    *ret = (struct engine_job_limits){job_bytes(job, &tables), limit_of(en->opts.requests_bytes_max),
                                      en->opts.max_num_seqs + queue_now(en)};
}

static int refuse_place(struct engine *en, const struct job_spec *spec, uint32_t retry_after, struct err *e)
{
    uint32_t own = admission_count(&en->admission, spec->tenant);
    return err_set(e, -EAGAIN,
                   "All %u sequences of the batch and %u places in the queue of %s are taken, %u of them by "
                   "this client; its share is %u. Try again in %u s, or raise --max-queue or --max-num-seqs.",
                   en->opts.max_num_seqs, queue_now(en), en->name, own,
                   admission_share(&en->admission, places_now(en)), retry_after);
}

/* The job's block was refused: whether waiting helps. */
static int refuse_block(struct engine *en, const struct job_spec *spec, uint32_t retry_after, struct err *e)
{
    const struct job_tables tables = job_tables_of(en);
    uint64_t bytes = job_bytes(spec, &tables);
    struct account_numbers own = account_numbers(en->requests);
    if (own.used > 0)
        return err_set(
            e, -ENOBUFS,
            "The requests running and waiting on %s hold %llu bytes besides their KV pages; %llu more for a "
            "request of %u prompt tokens and max_tokens %u are not available. Try again in %u s.",
            en->name, (ull)own.used, (ull)bytes, spec->prompt_count, spec->max_tokens, retry_after);
    return err_set(e, -ENOMEM,
                   "There is not enough memory: %llu bytes, besides KV pages, for a request of %u prompt "
                   "tokens and max_tokens %u.",
                   (ull)bytes, spec->prompt_count, spec->max_tokens);
}

/* With a place taken. */
static int make_and_put(struct engine *en, const struct job_spec *spec, struct stream *s,
                        uint32_t retry_after, struct err *e)
{
    struct charge charge = account_charge(en->requests);
    struct engine_message m = {0};
    struct job_opts opts = {.spec = spec,
                            .tokenizer = en->opts.tokenizer,
                            .charge = &charge,
                            .stream = s,
                            .now_ns = clock_now_ns(),
                            .at_once = en->shape->both_ways,
                            .cuts = en->shape->state_bytes > 0 || en->shape->group_count > 1,
                            .vision = &en->shape->vision,
                            .identity = &en->opts.identity,
                            .tables = job_tables_of(en)};
    int r = job_create(&opts, &m.job);
    if (r == -E2BIG)
        return err_set(e, -EINVAL, "grammar_too_complex: the grammar has too many ways to begin");
    if (r < 0)
        return refuse_block(en, spec, retry_after, e);
    uint64_t idle = 0;
    r = mailbox_put(en->inbox, &m);
    if (r == 0) {
        /* From now on the watchdog counts an engine that does not take the job as stuck. */
        atomic_compare_exchange_strong(&en->progress_ns, &idle, opts.now_ns);
        return 0;
    }
    ASSERT(r == -EPIPE);
    job_free(m.job);
    return err_set(e, -EPIPE, "%s is being unloaded", en->name);
}

/* Requests that are here have waited for it as long as a new one would. */
static bool is_memory_taken(struct engine *en)
{
    uint64_t since_ns = atomic_load(&en->taken_ns);
    return since_ns > 0 && clock_now_ns() >= since_ns + SCHED_PATIENCE_NS;
}

int engine_submit(struct engine *en, const struct job_spec *job, struct stream *s, uint32_t *retry_after_s,
                  struct err *e)
{
    if (atomic_load(&en->closing))
        return err_set(e, -EPIPE, "%s is being unloaded", en->name);
    int r = check_spec(en, job, s, e);
    if (r < 0)
        return r;
    if (is_memory_taken(en)) {
        char text[320];
        engine_say_taken(en, text, sizeof(text));
        if (retry_after_s)
            *retry_after_s = ENGINE_RETRY_TAKEN_S;
        return err_set(e, -EBUSY, "%s", text);
    }
    uint32_t after = engine_retry_after_s(en);
    bool taken = admission_take(&en->admission, job->tenant, places_now(en));
    if (taken)
        r = make_and_put(en, job, s, after, e);
    else
        r = refuse_place(en, job, after, e);
    if (taken && r < 0)
        admission_give(&en->admission, job->tenant);
    if ((r == -EAGAIN || r == -ENOBUFS) && retry_after_s)
        *retry_after_s = after;
    return r;
}

void engine_reclaim(struct engine *en)
{
    atomic_store(&en->reclaim, true);
    engine_wake(en);
}
