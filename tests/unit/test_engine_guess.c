/* Guessed tokens change none: whoever guesses, whatever is guessed, in any company. */
#define TEST_DRAFTS_MAX 4
#include "test_engine.h"

#include "engine/job.h"

#include <math.h>

#define PROMPT       60
#define ANSWER       90
#define SPECS        8
#define SEQUENCE_MAX 2048

/* ---- who guesses ---- */

enum manner { RIGHT, WRONG, MIXED, OWN_PAST };

/* What each sequence is without guesses: who knows it guesses right. */
struct known {
    uint32_t ids[SEQUENCE_MAX], count;
};

struct guesser {
    struct engine_faults faults;
    enum manner manner;
    bool sparing; /* only as many as pay */
    const struct known *known;
    uint32_t known_count;
    atomic_uint asked;
};

static const struct known *find_known(const struct guesser *g, const uint32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < g->known_count; i++)
        if (g->known[i].count >= count && memcmp(g->known[i].ids, tokens, count * sizeof(*tokens)) == 0)
            return &g->known[i];
    fail_msg("a sequence that is not what it is without guesses");
    return NULL;
}

static uint32_t guess(void *arg, const uint32_t *tokens, uint32_t count, uint32_t wanted, uint32_t *ret)
{
    struct guesser *g = arg;
    const struct known *k = find_known(g, tokens, count);
    assert_true(wanted >= 1 && wanted <= TEST_DRAFTS_MAX);
    atomic_fetch_add(&g->asked, 1);
    /* The same at the same place, whenever it is asked. */
    uint32_t made = g->manner == MIXED ? (uint32_t)(rng_at(1, count) % (wanted + 1)) : wanted;
    for (uint32_t i = 0; i < made; i++) {
        uint32_t right = count + i < k->count ? k->ids[count + i] : 7;
        bool wrong = g->manner == WRONG || (g->manner == MIXED && rng_uniform_at(2, count + i) < 0.3);
        ret[i] = wrong ? (right + 1) % 500 : right;
    }
    return made;
}

static void open_guessing(struct fixture *f, const char *dir, struct engine_opts *o, enum manner manner,
                          struct guesser *g)
{
    o->guessing = (struct engine_guessing){
        .by = ENGINE_GUESSER_NGRAM, .drafts_max = TEST_DRAFTS_MAX, .always = !g->sparing};
    g->manner = manner;
    g->faults.guess = guess;
    g->faults.arg = g;
    if (manner != OWN_PAST)
        o->faults = &g->faults;
    test_engine_start(f, dir, o);
}

/* ---- what is asked ---- */

static uint32_t prompts[SPECS][PROMPT];

/* All that a draw may depend on; several choices of one prompt among them. */
static void fill_specs(struct job_spec *specs)
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

static void submit_all(struct fixture *f, const struct job_spec *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        submit(f, &specs[i]);
    wait_all(f);
}

static void expect_alike(const struct client *a, const struct client *b)
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

/* Without guesses; `known` is filled. */
static void run_plain(struct fixture *f, const char *dir, const struct job_spec *specs, uint32_t count,
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

static struct engine_numbers numbers_of(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n;
}

static const char *const models[] = {TINY("qwen3"), TINY("qwen3_5"), TINY("qwen3_5_moe")};

/* ---- the tests ---- */

static void run_manner(const char *dir, enum manner manner, bool one_by_one)
{
    struct fixture plain, f;
    struct job_spec specs[SPECS];
    static struct known known[SPECS];
    struct guesser g = {.known = known, .known_count = SPECS};
    struct engine_opts o = test_engine_opts(dir);
    o.tokenizer = test_tokenizer();
    fill_specs(specs);
    run_plain(&plain, dir, specs, SPECS, known);
    open_guessing(&f, dir, &o, manner, &g);
    for (uint32_t i = 0; i < SPECS && one_by_one; i++)
        wait_over(&f, submit(&f, &specs[i]));
    if (!one_by_one)
        submit_all(&f, specs, SPECS);
    for (uint32_t i = 0; i < SPECS; i++)
        expect_alike(f.clients[i], plain.clients[i]);
    struct engine_numbers n = numbers_of(&f), without = numbers_of(&plain);
    assert_true(n.drafts > 0 && n.draft_tokens >= n.drafts);
    assert_true(manner == WRONG ? n.accepted_tokens == 0 : n.accepted_tokens > 0);
    assert_true(manner != RIGHT || n.accepted_tokens > n.draft_tokens * 9 / 10);
    assert_true(n.accepted_at[0] >= n.accepted_at[1] && n.accepted_at[1] >= n.accepted_at[2]);
    assert_int_equal(n.completion_tokens, without.completion_tokens);
    assert_true(manner != RIGHT || one_by_one || n.steps < without.steps / 2);
    test_engine_close(&f);
    test_engine_close(&plain);
}

TEST(right_guesses_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        run_manner(models[i], RIGHT, false);
        run_manner(models[i], RIGHT, true);
    }
}

TEST(wrong_guesses_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        run_manner(models[i], WRONG, false);
}

TEST(some_right_and_some_wrong_guesses_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        run_manner(models[i], MIXED, false);
        run_manner(models[i], MIXED, true);
    }
}

TEST(guesses_from_its_own_past_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        run_manner(models[i], OWN_PAST, false);
}

/* ---- where a run ends ---- */

/* A stop token, a stop string, and min_tokens before either, each where guesses reach beyond it. */
static void fill_ends(struct job_spec *specs, const struct known *known)
{
    static struct slice stops[SPECS];
    static char texts[SPECS][64];
    for (uint32_t i = 0; i < SPECS; i++) {
        const uint32_t *output = known[i].ids + specs[i].prompt_count;
        uint32_t at = 5 + 7 * i;
        if (i % 2 == 0) {
            specs[i].sampling.stop_ids[0] = output[at];
            specs[i].sampling.stop_count = 1;
        } else {
            struct buf text;
            buf_init(&text, 64, NULL);
            assert_int_equal(tokenizer_decode(test_tokenizer(), output + at, 3, false, &text), 0);
            snprintf(texts[i], sizeof(texts[i]), "%.*s", (int)text.len, text.ptr);
            stops[i] = slice_of(texts[i]);
            specs[i].stops = &stops[i];
            specs[i].stop_count = stops[i].len > 0;
            buf_done(&text);
        }
        specs[i].sampling.min_tokens = i % 3 == 0 ? at + 9 : 0;
    }
}

/* The bundled model's own head, and behind it what `guess` says for the sequence's past; NULL: the past itself. */
static void run_head(bool past, uint32_t (*says)(void *, const uint32_t *, uint32_t, uint32_t, uint32_t *))
{
    struct fixture plain, f;
    struct job_spec specs[SPECS];
    static struct known known[SPECS];
    struct guesser g = {.known = known, .known_count = SPECS, .manner = MIXED};
    struct engine_opts o = test_engine_opts(CANARY);
    fill_specs(specs);
    run_plain(&plain, CANARY, specs, SPECS, known);
    o.guessing = (struct engine_guessing){
        .by = ENGINE_GUESSER_MTP, .drafts_max = TEST_DRAFTS_MAX, .past = past, .always = true};
    g.faults.guess = says;
    g.faults.arg = &g;
    o.faults = says ? &g.faults : NULL;
    test_engine_start(&f, CANARY, &o);
    submit_all(&f, specs, SPECS);
    for (uint32_t i = 0; i < SPECS; i++)
        expect_alike(f.clients[i], plain.clients[i]);
    struct engine_numbers n = numbers_of(&f);
    assert_true(n.drafts > 0 && n.accepted_tokens > n.draft_tokens / 10);
    test_engine_close(&f);
    test_engine_close(&plain);
}

TEST(the_models_own_head_changes_no_token)
{
    run_head(false, NULL);
}

TEST(what_the_past_has_behind_the_heads_guess_changes_no_token)
{
    run_head(true, NULL);
    run_head(true, guess);
}

/* The head's K and V lie in the pages: what is found is as good as what was computed, to the last guess. */
TEST(a_prefix_that_is_found_changes_no_guess_of_the_head)
{
    struct fixture f;
    struct job_spec specs[SPECS];
    struct engine_opts o = test_engine_opts(CANARY);
    fill_specs(specs);
    o.host_cache_bytes = 64 << 20;
    o.guessing = (struct engine_guessing){
        .by = ENGINE_GUESSER_MTP, .drafts_max = TEST_DRAFTS_MAX, .past = true, .always = true};
    test_engine_start(&f, CANARY, &o);
    wait_over(&f, submit(&f, &specs[0]));
    struct engine_numbers once = numbers_of(&f);
    wait_over(&f, submit(&f, &specs[0]));
    struct engine_numbers twice = numbers_of(&f);
    expect_alike(f.clients[1], f.clients[0]);
    assert_true(f.clients[1]->finish.cached_tokens >= PAGE_TOKENS);
    assert_true(once.accepted_tokens > 0);
    assert_int_equal(twice.draft_tokens, 2 * once.draft_tokens);
    assert_int_equal(twice.accepted_tokens, 2 * once.accepted_tokens);
    test_engine_close(&f);
}

TEST(a_run_is_cut_where_the_answer_ends)
{
    struct fixture whole, plain, f;
    static struct known known[SPECS], ended[SPECS];
    struct job_spec specs[SPECS];
    uint32_t stopped = 0;
    fill_specs(specs);
    run_plain(&whole, TINY("qwen3_5"), specs, SPECS, known);
    test_engine_close(&whole);
    fill_ends(specs, known);
    run_plain(&plain, TINY("qwen3_5"), specs, SPECS, ended);
    for (enum manner m = RIGHT; m <= MIXED; m++) {
        struct guesser g = {.known = ended, .known_count = SPECS};
        struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
        o.tokenizer = test_tokenizer();
        open_guessing(&f, TINY("qwen3_5"), &o, m, &g);
        submit_all(&f, specs, SPECS);
        for (uint32_t i = 0; i < SPECS; i++) {
            expect_alike(f.clients[i], plain.clients[i]);
            stopped += f.clients[i]->finish.reason == FINISH_STOP;
        }
        test_engine_close(&f);
    }
    assert_true(stopped > SPECS);
    test_engine_close(&plain);
}

TEST(as_many_guesses_as_pay_change_no_token_either)
{
    struct fixture plain, f;
    static struct known known[SPECS];
    struct job_spec specs[SPECS];
    fill_specs(specs);
    specs[0].speculative = false;
    run_plain(&plain, TINY("qwen3_5"), specs, SPECS, known);
    for (enum manner m = RIGHT; m <= OWN_PAST; m++) {
        struct guesser g = {.known = known, .known_count = SPECS, .sparing = true};
        struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
        o.tokenizer = test_tokenizer();
        open_guessing(&f, TINY("qwen3_5"), &o, m, &g);
        submit_all(&f, specs, SPECS);
        for (uint32_t i = 0; i < SPECS; i++)
            expect_alike(f.clients[i], plain.clients[i]);
        test_engine_close(&f);
    }
    test_engine_close(&plain);
}

TEST(who_does_not_want_guesses_has_none)
{
    struct fixture f;
    struct job_spec spec;
    struct job_spec specs[SPECS];
    fill_specs(specs);
    spec = specs[0];
    spec.speculative = false;
    struct guesser g = {.known_count = 0};
    struct engine_opts o = test_engine_opts(TINY("qwen3"));
    open_guessing(&f, TINY("qwen3"), &o, RIGHT, &g);
    wait_over(&f, submit(&f, &spec));
    assert_int_equal(atomic_load(&g.asked), 0);
    assert_int_equal(numbers_of(&f).drafts, 0);
    test_engine_close(&f);
}

/* ---- caches, preemption, clients that leave or do not read ---- */

TEST(a_prefix_that_guesses_wrote_is_as_good_as_any)
{
    struct fixture cold, f;
    static struct known known[2];
    struct job_spec specs[SPECS], again;
    fill_specs(specs);
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        run_plain(&cold, models[i], specs, 1, known);
        again = greedy(known[0].ids, known[0].count - 1, 30);
        again.speculative = true;
        struct client *want = submit(&cold, &again);
        wait_over(&cold, want);
        known[1] = known[0];
        memcpy(known[1].ids + again.prompt_count, want->ids, want->count * sizeof(uint32_t));
        known[1].count = again.prompt_count + want->count;
        struct engine_opts o = test_engine_opts(models[i]);
        o.host_cache_bytes = 64 << 20;
        struct guesser g = {.known = known, .known_count = 2};
        open_guessing(&f, models[i], &o, MIXED, &g);
        wait_over(&f, submit(&f, &specs[0]));
        expect_alike(f.clients[0], cold.clients[0]);
        /* The same once more: the same tokens, and as many guesses right. */
        struct engine_numbers once = numbers_of(&f);
        wait_over(&f, submit(&f, &specs[0]));
        expect_alike(f.clients[1], cold.clients[0]);
        assert_true(f.clients[1]->finish.cached_tokens > 0);
        struct engine_numbers twice = numbers_of(&f);
        assert_int_equal(twice.draft_tokens, 2 * once.draft_tokens);
        assert_int_equal(twice.accepted_tokens, 2 * once.accepted_tokens);
        assert_true(once.accepted_tokens > 0);
        /* What it answered is read back, up to the last page that was whole. */
        struct client *got = submit(&f, &again);
        wait_over(&f, got);
        expect_alike(got, want);
        assert_int_equal(got->finish.cached_tokens, (again.prompt_count - 1) / PAGE_TOKENS * PAGE_TOKENS);
        test_engine_close(&f);
        test_engine_close(&cold);
    }
}

TEST(preemption_between_guesses_changes_no_token)
{
    const char *dirs[] = {TINY("qwen3"), TINY("qwen3_5")};
    for (size_t i = 0; i < COUNT_OF(dirs); i++) {
        struct fixture plain, f;
        static struct known known[SPECS];
        struct job_spec specs[SPECS];
        struct guesser g = {.known = known, .known_count = SPECS};
        struct engine_opts o = test_engine_opts(dirs[i]);
        fill_specs(specs);
        for (uint32_t k = 0; k < SPECS; k++)
            specs[k].max_tokens = ANSWER;
        run_plain(&plain, dirs[i], specs, SPECS, known);
        o.kv_bytes_max =
            4 * (uint64_t)DIV_UP(PROMPT + ANSWER, PAGE_TOKENS) * model_shape(o.model)->page_bytes;
        o.max_model_len = PROMPT + ANSWER;
        o.tokenizer = test_tokenizer();
        open_guessing(&f, dirs[i], &o, MIXED, &g);
        submit_all(&f, specs, SPECS);
        for (uint32_t k = 0; k < SPECS; k++)
            expect_alike(f.clients[k], plain.clients[k]);
        assert_true(numbers_of(&f).preemptions > 0);
        test_engine_close(&f);
        test_engine_close(&plain);
    }
}

TEST(who_reads_late_or_never_disturbs_no_guess)
{
    struct fixture plain, f;
    static struct known known[2];
    struct job_spec specs[SPECS], two[2];
    struct slice stop = SLICE("there is no such text");
    fill_specs(specs);
    for (uint32_t i = 0; i < 2; i++) {
        two[i] = greedy(prompts[i], 20, PROMPT + ANSWER - 20);
        two[i].speculative = true;
    }
    two[1].stops = &stop;
    two[1].stop_count = 1;
    run_plain(&plain, TINY("qwen3_5"), two, 2, known);
    struct guesser g = {.known = known, .known_count = 2};
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    o.tokenizer = test_tokenizer();
    open_guessing(&f, TINY("qwen3_5"), &o, RIGHT, &g);
    struct client *late[12];
    for (uint32_t i = 0; i < COUNT_OF(late); i++) {
        late[i] = submit(&f, &two[i % 2]);
        late[i]->deaf = true;
    }
    for (uint32_t i = 0; i < 4; i++) {
        stream_close(late[i]->stream);
        engine_wake(f.engine);
    }
    struct client *other = submit(&f, &two[0]);
    wait_over(&f, other);
    expect_alike(other, plain.clients[0]);
    for (uint32_t i = 0; i < COUNT_OF(late); i++)
        undeafen(late[i]);
    wait_all(&f);
    for (uint32_t i = 4; i < COUNT_OF(late); i++)
        expect_alike(late[i], plain.clients[i % 2]);
    test_engine_close(&f);
    test_engine_close(&plain);
}

/* ---- memory ---- */

static uint64_t used_of(const struct fixture *f, const char *name)
{
    struct account *a = account_find(f->account, name);
    return a ? account_numbers(a).used : 0;
}

/* One long answer: what it holds grows by the pages of its tokens and by nothing else. */
TEST(a_long_answer_of_guesses_takes_pages_and_nothing_else)
{
    struct fixture plain, f;
    static struct known known[1];
    struct job_spec specs[SPECS], spec;
    fill_specs(specs);
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    struct guesser g = {.known = known, .known_count = 1};
    spec = specs[0];
    spec.max_tokens = SEQUENCE_MAX - spec.prompt_count;
    run_plain(&plain, TINY("qwen3_5"), &spec, 1, known);
    open_guessing(&f, TINY("qwen3_5"), &o, MIXED, &g);
    struct client *c = submit(&f, &spec);
    wait_tokens(&f, c, 100);
    uint64_t engine = used_of(&f, "engine"), requests = used_of(&f, "requests"), kv = used_of(&f, "kv"),
             state = used_of(&f, "state");
    wait_tokens(&f, c, spec.max_tokens - 300);
    assert_false(c->over);
    assert_int_equal(used_of(&f, "engine"), engine);
    assert_int_equal(used_of(&f, "requests"), requests);
    assert_int_equal(used_of(&f, "state"), state);
    assert_true(used_of(&f, "kv") - kv <= ROUND_UP(o.kv_bytes_max, UNIT_BYTES));
    wait_over(&f, c);
    expect_alike(c, plain.clients[0]);
    assert_true(numbers_of(&f).accepted_tokens > 300);
    test_engine_close(&f);
    test_engine_close(&plain);
}

TEST(a_long_optimistic_answer_takes_pages_and_nothing_else)
{
    struct fixture f;
    struct job_spec specs[SPECS], spec;
    struct engine_opts o = test_engine_opts(CANARY);
    fill_specs(specs);
    spec = specs[0];
    spec.max_tokens = SEQUENCE_MAX - spec.prompt_count;
    o.guessing = (struct engine_guessing){
        .by = ENGINE_GUESSER_MTP, .drafts_max = TEST_DRAFTS_MAX, .optimistic = true, .always = true};
    test_engine_start(&f, CANARY, &o);
    struct client *c = submit(&f, &spec);
    wait_tokens(&f, c, 100);
    uint64_t engine = used_of(&f, "engine"), requests = used_of(&f, "requests"), state = used_of(&f, "state");
    wait_over(&f, c);
    assert_int_equal(c->count, spec.max_tokens);
    struct engine_numbers n = numbers_of(&f);
    assert_true(n.accepted_tokens == n.draft_tokens && n.draft_tokens > spec.max_tokens / 2);
    assert_int_equal(used_of(&f, "engine"), engine);
    assert_true(used_of(&f, "requests") <= requests && used_of(&f, "state") <= state);
    test_engine_close(&f);
}

TEST_MAIN()
