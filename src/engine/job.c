/* job.c - the block's layout, and the way of a token from the sampler to the stream.
 *
 * The block is an arena of exactly the bytes that prompt, max_tokens and options need, committed at once: an
 * admitted job never needs more memory. Without stop strings a token goes straight into the stream, where
 * job_free_tokens() has reserved its space. With them it passes the ring of held tokens, which has
 * JOB_HELD_MAX entries and drains into the stream as far as that has space. */
#include "engine/job.h"

#include "engine/engine.h"
#include "engine/engine_opts.h"
#include "engine/stop_match.h"

#include "base/buf.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/none.h"
#include "constraint/grammar_cache.h"
#include "grammar/matcher.h"
#include "memory/dev.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "spec/ngram.h"
#include "store/store_file.h"
#include "vision/image.h"

#include <errno.h>

#define JOB_GRAIN 4096

/* An entry of the circle: where the token's text ends, then the head of its stream_token. */
struct held {
    uint64_t text_end;
    struct stream_token token;
};

static size_t token_bytes(uint32_t top)
{
    return offsetof(struct stream_token, top) + top * sizeof(struct sampler_alternative);
}

static uint32_t held_bytes(uint32_t top)
{
    return (uint32_t)ROUND_UP(offsetof(struct held, token) + token_bytes(top), sizeof(uint64_t));
}

static uint32_t top_of(const struct job_spec *spec)
{
    return spec->sampling.logprobs || spec->prompt_logprobs ? spec->sampling.top_logprobs : 0;
}

static uint32_t cuts_given(const struct job_spec *spec)
{
    return MIN_OF(spec->cut_count, (uint32_t)ENGINE_CUTS_MAX);
}

/* Returns the bytes of a job's arena, each block with its alignment. */
static size_t block_bytes(const struct job_spec *spec, const struct job_tables *t)
{
    uint32_t tokens = spec->prompt_count + spec->max_tokens;
    size_t bytes = sizeof(struct job) + (size_t)tokens * sizeof(uint32_t) +
                   (size_t)t->groups * sched_pages(tokens) * sizeof(uint32_t);
    if (spec->output == JOB_TOKENS)
        bytes += sampler_bytes(&spec->sampling, tokens) + repetition_bytes(&spec->repetition);
    if (t->keys && spec->output == JOB_TOKENS)
        bytes += sched_pages(tokens) * sizeof(struct prefix_key) + (cuts_given(spec) + 1) * sizeof(uint32_t);
    bytes += spec->image_count * (sizeof(struct image *) + sizeof(struct prefix_image) +
                                  sizeof(struct model_grid) + sizeof(uint32_t) + sizeof(struct sched_span));
    if (t->ngram && spec->speculative)
        bytes += ngram_bytes(tokens);
    if (spec->stop_count > 0)
        bytes += stop_match_arena_bytes(spec->stops, spec->stop_count) +
                 (size_t)JOB_HELD_MAX * held_bytes(top_of(spec));
    return bytes + 16 * 64;
}

/* Returns the bytes of the stack of its matcher. */
static size_t matcher_bytes(const struct job_spec *spec)
{
    uint64_t bytes = MATCHER_BYTES + (uint64_t)spec->max_tokens * JOB_MATCHER_TOKEN_BYTES;
    return (size_t)MIN_OF(bytes, JOB_MATCHER_BYTES_MAX - 2 * JOB_MATCHER_GRAIN);
}

uint64_t job_bytes(const struct job_spec *spec, const struct job_tables *t)
{
    /* The arena's own header, then whole grains. */
    uint64_t matcher =
        spec->grammar ? ROUND_UP(matcher_bytes(spec), JOB_MATCHER_GRAIN) + JOB_MATCHER_GRAIN : 0;
    return ROUND_UP((uint64_t)block_bytes(spec, t) + 256, JOB_GRAIN) + matcher;
}

void job_bytes_max(bool images, const struct job_tables *t, uint64_t *fixed, uint64_t *token)
{
    static const char longest[ENGINE_STOP_STRING_BYTES_MAX];
    struct slice stops[ENGINE_STOP_STRINGS_MAX];
    for (uint32_t i = 0; i < COUNT_OF(stops); i++)
        stops[i] = (struct slice){longest, sizeof(longest)};
    struct job_spec s = {.prompt_count = 1,
                         .max_tokens = 1,
                         .stops = stops,
                         .stop_count = COUNT_OF(stops),
                         .cut_count = ENGINE_CUTS_MAX,
                         .image_count = images ? ENGINE_IMAGES_MAX : 0,
                         .speculative = true,
                         .repetition = {.pattern_min = 1, .pattern_max = REPETITION_PATTERN_MAX},
                         .prompt_logprobs = true};
    sampler_params_default(&s.sampling);
    s.sampling.presence_penalty = 1;
    s.sampling.bias_count = SAMPLER_BIAS_MAX;
    s.sampling.top_logprobs = SAMPLER_TOP_MAX;
    uint64_t least = job_bytes(&s, t);
    /* The sampler's table has a power of two of places for three quarters as many tokens, so the worst
     * case is one token more. */
    s.max_tokens = 3u << 18;
    *token = DIV_UP(job_bytes(&s, t) - least, (uint64_t)s.max_tokens);
    *fixed = least + JOB_GRAIN;
}

static int create_stops(struct job *j, const struct job_opts *opts)
{
    const struct job_spec *spec = opts->spec;
    if (spec->stop_count == 0)
        return 0;
    j->held_bytes = held_bytes(j->top);
    j->held = arena_alloc(j->arena, (size_t)JOB_HELD_MAX * j->held_bytes);
    if (!j->held)
        return -ENOMEM;
    detok_init(&j->detok, opts->tokenizer, true);
    detok_continue(&j->detok);
    return stop_match_create(j->arena, spec->stops, spec->stop_count, &j->stops);
}

static int create_matcher(struct job *j, const struct job_opts *opts)
{
    const struct job_spec *spec = opts->spec;
    if (!spec->grammar)
        return 0;
    j->seq.matched = true;
    int r = grammar_entry_matcher(spec->grammar, matcher_bytes(spec), opts->charge, &j->matcher);
    if (r < 0)
        return r;
    grammar_entry_ref(spec->grammar);
    j->grammar = spec->grammar;
    j->bytes = job_bytes(spec, &opts->tables);
    return 0;
}

static int create_ngram(struct job *j, const struct job_opts *opts)
{
    if (!opts->tables.ngram || !j->draft.speculative)
        return 0;
    int r = ngram_create(j->arena, j->seq.tokens_limit, &j->draft.ngram);
    if (r == 0)
        ngram_see(j->draft.ngram, j->tokens, j->prompt_count);
    return r;
}

static int create_tokens(struct job *j, const struct job_opts *opts)
{
    const struct job_spec *spec = opts->spec;
    uint32_t tokens = spec->prompt_count + spec->max_tokens;
    j->draft.tokens = j->tokens = ARENA_ARRAY(j->arena, uint32_t, tokens);
    for (uint32_t g = 0; g < opts->tables.groups; g++)
        if (!(j->seq.pages[g] = ARENA_ARRAY(j->arena, uint32_t, sched_pages(tokens))))
            return -ENOMEM;
    if (!j->tokens)
        return -ENOMEM;
    memcpy(j->tokens, spec->prompt, spec->prompt_count * sizeof(uint32_t));
    if (spec->output != JOB_TOKENS)
        return 0;
    int r = sampler_create(j->arena, &spec->sampling, tokens, &j->sampler);
    if (r < 0)
        return r;
    sampler_see_prompt(j->sampler, j->tokens, j->prompt_count);
    return repetition_create(j->arena, &spec->repetition, &j->repetition);
}

struct prefix_image job_seen_image(const struct model_grid *g, const struct image *p)
{
    struct prefix_image ret = {.first = g->first, .rows = g->rows, .columns = g->columns};
    memcpy(ret.sha256, p->sha256, sizeof(ret.sha256));
    return ret;
}

static int create_images(struct job *j, const struct job_opts *opts)
{
    const struct job_spec *spec = opts->spec;
    if (spec->image_count == 0)
        return 0;
    ASSERT(opts->vision->present && spec->image_count <= ENGINE_IMAGES_MAX);
    j->images = ARENA_ARRAY(j->arena, struct image *, spec->image_count);
    j->seen = ARENA_ARRAY(j->arena, struct prefix_image, spec->image_count);
    j->grids = ARENA_ARRAY(j->arena, struct model_grid, spec->image_count);
    j->entries = ARENA_ARRAY(j->arena, uint32_t, spec->image_count);
    struct sched_span *spans = ARENA_ARRAY(j->arena, struct sched_span, spec->image_count);
    if (!j->images || !j->seen || !j->grids || !j->entries || !spans)
        return -ENOMEM;
    struct slice scope[] = {{(const char *)&spec->tenant, sizeof(spec->tenant)}, spec->cache_salt};
    j->scope = prefix_key_root(scope, COUNT_OF(scope));
    for (uint32_t i = 0; i < spec->image_count; i++) {
        struct image *p = image_ref(spec->images[i].image);
        struct model_grid g = model_grid_of(opts->vision, spec->images[i].first, p->width, p->height);
        j->images[i] = p;
        j->grids[i] = g;
        j->entries[i] = NONE;
        j->seen[i] = job_seen_image(&g, p);
        spans[i] = (struct sched_span){g.first, g.first + model_grid_tokens(&g)};
        j->image_bytes += p->bytes;
        j->image_count++;
    }
    if (opts->vision->both_ways) {
        j->seq.spans = spans;
        j->seq.span_count = j->image_count;
    }
    return 0;
}

/* Counts the images with a token in [from, to); *first: the first of them. */
static uint32_t images_in(const struct job *j, uint32_t from, uint32_t to, uint32_t *first)
{
    ASSERT(from < to);
    uint32_t i = 0, count = 0;
    while (i < j->image_count && j->grids[i].first + model_grid_tokens(&j->grids[i]) <= from)
        i++;
    *first = i;
    while (i + count < j->image_count && j->grids[i + count].first < to)
        count++;
    return count;
}

void job_add_keys(struct job *j, uint32_t tokens)
{
    struct sched_seq *seq = &j->seq;
    ASSERT(tokens <= seq->tokens_limit);
    for (; j->keys && seq->key_count < tokens / PAGE_TOKENS; seq->key_count++) {
        const struct prefix_key *parent = seq->key_count ? &j->keys[seq->key_count - 1] : &j->root;
        uint32_t from = seq->key_count * PAGE_TOKENS, first;
        uint32_t count = images_in(j, from, from + PAGE_TOKENS, &first);
        j->keys[seq->key_count] =
            prefix_key_next(parent, j->tokens + from, count ? &j->seen[first] : NULL, count);
    }
}

/* Keeps the list ascending and without doubles; it is short. */
static void add_cut(struct job *j, uint32_t at)
{
    ASSERT(at % PAGE_TOKENS == 0 && j->seq.cut_count <= ENGINE_CUTS_MAX);
    uint32_t count = j->seq.cut_count, i = count;
    while (i > 0 && j->cuts[i - 1] > at)
        i--;
    if (at == 0 || (i > 0 && j->cuts[i - 1] == at))
        return;
    memmove(j->cuts + i + 1, j->cuts + i, (count - i) * sizeof(*j->cuts));
    j->cuts[i] = at;
    j->seq.cut_count++;
}

/* At least the prompt's last token is computed, so no page after the last whole page before it is ever
 * looked up. */
static int create_cuts(struct job *j, const struct job_spec *spec)
{
    uint32_t last = (spec->prompt_count - 1) / PAGE_TOKENS * PAGE_TOKENS;
    j->seq.cuts = j->cuts = ARENA_ARRAY(j->arena, uint32_t, cuts_given(spec) + 1);
    if (!j->cuts)
        return -ENOMEM;
    add_cut(j, last);
    for (uint32_t i = 0; i < cuts_given(spec); i++)
        if (spec->cuts[i] < last)
            add_cut(j, spec->cuts[i] / PAGE_TOKENS * PAGE_TOKENS);
    return 0;
}

struct prefix_key job_root_key(const struct store_identity *identity, const struct job_spec *spec)
{
    struct slice parts[] = {{(const char *)identity, sizeof(*identity)},
                            {(const char *)&spec->tenant, sizeof(spec->tenant)},
                            spec->cache_salt};
    return prefix_key_root(parts, COUNT_OF(parts));
}

static int create_keys(struct job *j, const struct job_opts *opts)
{
    if (!opts->tables.keys || j->output != JOB_TOKENS)
        return 0;
    j->keys = ARENA_ARRAY(j->arena, struct prefix_key, sched_pages(j->seq.tokens_limit));
    if (!j->keys)
        return -ENOMEM;
    const struct job_spec *spec = opts->spec;
    j->root = job_root_key(opts->identity, spec);
    job_add_keys(j, j->prompt_count);
    j->seq.keys = j->keys;
    j->seq.head_pages = spec->cut_count > 0 ? MIN_OF(spec->cuts[0] / PAGE_TOKENS, j->seq.key_count) : 0;
    return opts->cuts ? create_cuts(j, spec) : 0;
}

int job_create(const struct job_opts *opts, struct job **ret)
{
    const struct job_spec *spec = opts->spec;
    size_t bytes = block_bytes(spec, &opts->tables);
    struct arena *a = NULL;
    int r = arena_create(&(struct arena_opts){.bytes_max = bytes, .grain = JOB_GRAIN, .charge = opts->charge},
                         &a);
    if (r == 0)
        r = arena_commit(a, bytes);
    struct job *j = r == 0 ? ARENA_NEW(a, struct job) : NULL;
    if (!j) {
        arena_free(a);
        return r < 0 ? r : -ENOMEM;
    }
    *j = (struct job){
        .arena = a,
        .stream = opts->stream,
        .bytes = arena_committed_bytes(a),
        .output = spec->output,
        .pooling = spec->pooling,
        .prompt_count = spec->prompt_count,
        .second = spec->second,
        .max_tokens = spec->max_tokens,
        .min_tokens = spec->sampling.min_tokens,
        .top = top_of(spec),
        .logprobs = spec->sampling.logprobs,
        .prompt_logprobs = spec->prompt_logprobs,
        .whole = spec->whole,
        .leases = spec->leases,
        .think = {.limits = spec->thinking},
        .draft = {.speculative = spec->speculative && spec->output == JOB_TOKENS},
        .arrival_ns = opts->now_ns,
        .seq = {.tokens = spec->prompt_count,
                .tokens_limit = spec->prompt_count + spec->max_tokens,
                .priority = spec->priority,
                .tenant_id = spec->tenant,
                .weight = spec->weight,
                .arrival_ns = opts->now_ns,
                .prompt_only = spec->output != JOB_TOKENS,
                .at_once = opts->at_once,
                .logits_all = spec->prompt_logprobs},
    };
    memcpy(j->logit_ids, spec->logit_ids, sizeof(j->logit_ids));
    j->seq.logits_all |= job_pools_all(j) && !opts->at_once;
    list_init(&j->link);
    r = create_tokens(j, opts);
    if (spec->announced) {
        /* Routers cannot tell one image from another. */
        j->seq.announced = j->tokens;
        j->seq.announced_end = spec->image_count ? spec->images[0].first : UINT32_MAX;
    }
    if (r == 0)
        r = create_images(j, opts);
    if (r == 0)
        r = create_keys(j, opts);
    if (r == 0)
        r = create_ngram(j, opts);
    if (r == 0)
        r = create_stops(j, opts);
    if (r == 0)
        r = create_matcher(j, opts);
    if (r < 0)
        job_free(j);
    else
        *ret = j;
    return r;
}

void job_free(struct job *j)
{
    if (!j)
        return;
    for (uint32_t i = 0; i < j->image_count; i++)
        image_unref(j->images[i]);
    matcher_free(j->matcher);
    if (j->grammar)
        grammar_entry_unref(j->grammar);
    arena_free(j->arena);
}

/* ---- output ---- */

static struct held *held_at(const struct job *j, uint32_t index)
{
    ASSERT(index < JOB_HELD_MAX);
    uint32_t at = (j->held_first + index) % JOB_HELD_MAX;
    return (struct held *)(j->held + (size_t)at * j->held_bytes);
}

uint32_t job_free_tokens(const struct job *j)
{
    /* Prompt logprobs of a chunk, and the first token, which has none; then the sampled one. */
    if (job_wants_prompt_logits(j))
        return stream_free_tokens(j->stream) >= ENGINE_PROMPT_LOGITS + 3 ? 1 : 0;
    if (j->stops)
        return j->held_ready == 0 ? JOB_HELD_MAX - j->held_count : 0;
    return stream_free_tokens(j->stream);
}

void job_put_prompt(struct job *j, const struct stream_token *t)
{
    bool put = stream_put(j->stream, t);
    ASSERT(put);
    j->told = true;
}

static void hold(struct job *j, const struct stream_token *t)
{
    ASSERT(j->held_count < JOB_HELD_MAX);
    struct held *h = held_at(j, j->held_count++);
    h->text_end = stop_match_bytes(j->stops);
    memcpy(&h->token, t, token_bytes(j->top));
}

/* Decides tokens with text that ends before a possible stop string. */
static void decide(struct job *j)
{
    if (j->held_count == JOB_HELD_MAX)
        stop_match_skip(j->stops, 0);
    ASSERT(stop_match_bytes(j->stops) >= stop_match_held(j->stops));
    uint64_t decided = stop_match_bytes(j->stops) - stop_match_held(j->stops);
    while (j->held_ready < j->held_count && held_at(j, j->held_ready)->text_end <= decided)
        j->held_ready++;
}

bool job_flush(struct job *j)
{
    ASSERT(j->held_ready <= j->held_count);
    while (j->held_ready > 0) {
        struct stream_token t = {0};
        memcpy(&t, &held_at(j, 0)->token, token_bytes(j->top));
        if (!stream_put(j->stream, &t))
            return false;
        j->held_first = (j->held_first + 1) % JOB_HELD_MAX;
        j->held_ready--;
        j->held_count--;
        j->told = true;
    }
    return true;
}

void job_release_held(struct job *j)
{
    j->held_ready = j->held_count;
}

bool job_put(struct job *j, const struct stream_token *t, bool ends, struct buf *text, struct stop_hit *hit)
{
    ASSERT(t->top_count <= j->top);
    if (!j->stops) {
        job_put_prompt(j, t);
        return false;
    }
    buf_clear(text);
    detok_push(&j->detok, t->id, text);
    ASSERT(!text->error);
    bool found = false;
    if (j->output_count > j->min_tokens && !ends)
        found = stop_match_feed(j->stops, buf_slice(text), hit);
    else
        stop_match_skip(j->stops, text->len);
    hold(j, t);
    decide(j);
    if (found || ends)
        job_release_held(j);
    job_flush(j);
    return found;
}

uint64_t job_session_agent(const uint8_t id[16])
{
    return hash_bytes(id, 16) | 1;
}
