/* test_engine_draft.h - drafters for tests, their prompts, and the reference. */
#ifndef PLATEAU_TESTS_TEST_ENGINE_DRAFT_H
#define PLATEAU_TESTS_TEST_ENGINE_DRAFT_H

#define TEST_DRAFTS_MAX 4
#include "test_engine.h"

#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job.h"

#include <math.h>

#ifdef TEST_SIMT
#define PROMPT 40
#define ANSWER 24
#define SPECS  7
#else
#define PROMPT 60
#define ANSWER 90
#define SPECS  8
#endif
#define SEQUENCE_MAX 2048

/* ---- drafters ---- */

enum manner { RIGHT, WRONG, MIXED, OWN_PAST };

/* Each sequence's tokens without drafts: a drafter that has them is always accepted. */
struct known {
    uint32_t ids[SEQUENCE_MAX], count;
};

struct drafter {
    struct engine_faults faults;
    enum manner manner;
    bool sparing; /* up to the draft length that pays */
    const struct known *known;
    uint32_t known_count;
    atomic_uint asked;
};

static inline const struct known *find_known(const struct drafter *g, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < g->known_count; i++)
        if (g->known[i].count >= count && memcmp(g->known[i].ids, tokens, count * sizeof(*tokens)) == 0)
            return &g->known[i];
    fail_msg("a sequence that is not what it is without drafts");
    return NULL;
}

static inline uint32_t draft(void *arg, const uint32_t *tokens, uint32_t count, uint32_t wanted,
                             uint32_t *ret)
{
    struct drafter *g = arg;
    const struct known *k = find_known(g, tokens, count);
    assert_true(wanted >= 1 && wanted <= TEST_DRAFTS_MAX);
    atomic_fetch_add(&g->asked, 1);
    /* A place always gets the same drafts. */
    uint32_t made = g->manner == MIXED ? (uint32_t)(rng_at(1, count) % (wanted + 1)) : wanted;
    for (uint32_t i = 0; i < made; i++) {
        uint32_t right = count + i < k->count ? k->ids[count + i] : 7;
        bool wrong = g->manner == WRONG || (g->manner == MIXED && rng_uniform_at(2, count + i) < 0.3);
        ret[i] = wrong ? (right + 1) % 500 : right;
    }
    return made;
}

static inline void open_drafting(struct fixture *f, const char *dir, struct engine_opts *o,
                                 enum manner manner, struct drafter *g)
{
    o->drafting =
        (struct drafting_opts){.by = DRAFTING_NGRAM, .drafts_max = TEST_DRAFTS_MAX, .always = !g->sparing};
    g->manner = manner;
    g->faults.draft = draft;
    g->faults.arg = g;
    if (manner != OWN_PAST)
        o->faults = &g->faults;
    test_engine_start(f, dir, o);
}

/* ---- requests ---- */

static uint32_t prompts[SPECS][PROMPT];

/* All that a sample may depend on; several choices of one prompt among them. */
static inline void fill_specs(struct job_spec *specs)
{
    static const struct logit_bias bias[] = {{17, 4.0f}, {40, -100.0f}, {9, 2.5f}};
    for (uint32_t i = 0; i < SPECS; i++) {
        uint32_t text = i == 5 ? 4 : i;
        for (uint32_t k = 0; k < PROMPT; k++)
            prompts[i][k] = (text * 131 + k % 11 * 7 + k / 20) % 500;
        specs[i] = greedy(prompts[i], PROMPT - i % 5, ANSWER - 3 * i);
        specs[i].speculative = true;
    }
    specs[1].sampling.temperature = 0.8f;
    specs[1].sampling.top_p = 0.9f;
    specs[1].sampling.seed = 11;
    specs[2].sampling.repetition_penalty = 1.3f;
    specs[2].sampling.frequency_penalty = 0.4f;
    specs[2].sampling.presence_penalty = 0.2f;
    specs[3].sampling.bias = bias;
    specs[3].sampling.bias_count = COUNT_OF(bias);
    specs[3].sampling.logprobs = true;
    specs[3].sampling.top_logprobs = 3;
    for (uint32_t i = 4; i < 6; i++) {
        specs[i].prompt_count = PROMPT;
        specs[i].sampling.temperature = 1;
        specs[i].sampling.seed = i;
        specs[i].sampling.min_p = 0.02f;
        specs[i].sampling.top_k = 40;
        specs[i].sampling.logprobs = true;
        specs[i].sampling.repetition_penalty = 1.1f;
    }
    specs[6].prompt_logprobs = specs[6].sampling.logprobs = true;
    specs[6].sampling.top_logprobs = 1;
}

static inline void submit_all(struct fixture *f, const struct job_spec *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        submit(f, &specs[i]);
    wait_all(f);
}

static inline void expect_alike(const struct client *a, const struct client *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof(a->ids[0]));
    assert_int_equal(a->finish.reason, b->finish.reason);
    assert_int_equal(a->finish.completion_tokens, b->finish.completion_tokens);
    assert_int_equal(a->finish.stop_token, b->finish.stop_token);
    assert_int_equal(a->finish.stop_index, b->finish.stop_index);
    assert_int_equal(a->finish.text_bytes, b->finish.text_bytes);
    for (uint32_t i = 0; i < a->count; i++) {
        assert_memory_equal(&a->logprobs[i], &b->logprobs[i], sizeof(float));
        assert_int_equal(a->top[i].id, b->top[i].id);
        assert_memory_equal(&a->top[i].logprob, &b->top[i].logprob, sizeof(float));
    }
}

/* Without drafts; `known` is filled. */
static inline void run_plain(struct fixture *f, const char *dir, const struct job_spec *specs, uint32_t count,
                             struct known *known)
{
    struct engine_opts o = test_engine_opts(dir);
    o.tokenizer = test_tokenizer();
    test_engine_start(f, dir, &o);
    submit_all(f, specs, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct client *c = f->clients[i];
        uint32_t told = specs[i].prompt_logprobs ? specs[i].prompt_count : 0;
        memcpy(known[i].ids, specs[i].prompt, specs[i].prompt_count * sizeof(uint32_t));
        memcpy(known[i].ids + specs[i].prompt_count, c->ids + told, (c->count - told) * sizeof(uint32_t));
        known[i].count = specs[i].prompt_count + c->count - told;
    }
}

static inline struct engine_numbers numbers_of(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n;
}

static inline uint64_t used_of(const struct fixture *f, const char *name)
{
    struct account *a = account_find(f->account, name);
    return a ? account_numbers(a).used : 0;
}

/* One long answer: what it holds grows by the pages of its tokens and by nothing else. */
#endif
