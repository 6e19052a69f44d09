/* The engine with grammars: outputs are texts of the grammar, and the same tokens however they are computed.
 * test_engine_grammar_tiny has the same tests with a model that is small enough for sanitizers. */
#define TEST_DRAFTS_MAX 3
#include "test_engine.h"

#include "constraint/grammar_cache.h"
#include "constraint/grammar_source.h"
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "grammar/matcher.h"
#include "spec/drafting.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_state.h"

#ifndef MODEL
#define MODEL        CANARY
#define MODEL_ENDS   8178, 8180
#define MODEL_TOKENS UINT32_MAX
#define MODEL_HEAD   true
#endif

/* With the bundled model one request of each temperature; the tiny one has more than a batch of them. */
enum { PROMPT = 40, JOBS = MODEL_HEAD ? 4 : 12, TOKENS_MAX = 300 };

static const uint32_t ends[] = {MODEL_ENDS};

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"minLength\":90,\"maxLength\":120},"
    "\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":99},\"tags\":{\"type\":\"array\",\"items\":{"
    "\"enum\":"
    "[\"red\",\"blue\"]},\"maxItems\":3}},\"required\":[\"name\",\"n\",\"tags\"],\"additionalProperties\":"
    "false}";

struct scene {
    struct fixture f;
    struct grammar_vocab *vocab;
    struct grammar_cache *cache;
    struct grammar_entry *grammar;
    uint32_t prompt[PROMPT];
    struct charge charge;
};

static struct slice token_bytes(void *tokenizer, uint32_t id)
{
    bool special = tokenizer_is_added(tokenizer, id) || id == ends[0] || id == ends[1];
    return special ? (struct slice){0} : tokenizer_token_bytes(tokenizer, id);
}

static void open_scene(struct scene *s, const struct engine_opts *o, enum grammar_kind kind, const char *text)
{
    struct grammar_source source = {kind, slice_of(text)};
    struct err e = {""};
    test_engine_start(&s->f, MODEL, o);
    s->charge = account_charge(s->f.text);
    const struct tokenizer *tokenizer = test_tokenizer();
    struct grammar_vocab_opts vocab = {.size = MIN_OF(tokenizer_vocab_size(tokenizer), MODEL_TOKENS),
                                       .bytes = token_bytes,
                                       .arg = (void *)(uintptr_t)tokenizer,
                                       .ends = ends,
                                       .end_count = COUNT_OF(ends)};
    assert_int_equal(grammar_vocab_create(&vocab, &s->vocab), 0);
    struct grammar_cache_opts cache = {s->vocab, 32 << 20, &s->charge};
    assert_int_equal(grammar_cache_create(&cache, &s->cache), 0);
    if (grammar_cache_get(s->cache, &source, &(struct grammar_source_opts){0}, &s->grammar, &e) < 0)
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < PROMPT; i++)
        s->prompt[i] = 200 + 7 * i;
}

static void close_scene(struct scene *s)
{
    struct grammar_cache_numbers n;
    grammar_cache_put(s->cache, s->grammar);
    grammar_cache_numbers(s->cache, &n);
    assert_int_equal(n.used, 0);
    grammar_cache_free(s->cache);
    grammar_vocab_free(s->vocab);
    test_engine_close(&s->f);
}

static struct job_spec spec_of(const struct scene *s, uint32_t i)
{
    static const float temperatures[] = {0, 0.7f, 1, 1.6f};
    struct job_spec spec = greedy(s->prompt, PROMPT - i % 4, TOKENS_MAX);
    spec.sampling.temperature = temperatures[i % 4];
    spec.sampling.seed = i;
    spec.sampling.stop_ids[0] = ends[0];
    spec.sampling.stop_ids[1] = ends[1];
    spec.sampling.stop_count = 2;
    spec.speculative = true;
    spec.grammar = s->grammar;
    return spec;
}

static void check_instance(const struct scene *s, const struct client *c)
{
    struct buf text;
    json_error_t why;
    buf_init(&text, 1 << 20, NULL);
    (void)s;
    assert_true(c->count > 0);
    uint32_t end = c->ids[c->count - 1], count = c->count - (end == ends[0] || end == ends[1]);
    assert_int_equal(tokenizer_decode(test_tokenizer(), c->ids, count, true, &text), 0);
    json_t *value = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!value || c->finish.reason != FINISH_STOP)
        print_error("%d %s: %.*s\n", (int)c->finish.reason, c->finish.error, (int)text.len, text.ptr);
    assert_int_equal(c->finish.reason, FINISH_STOP);
    assert_non_null(value);
    double n = json_number_value(json_object_get(value, "n")); /* 7.0 is an integer too */
    assert_true(n >= 1 && n <= 99 && n == (int)n);
    assert_true(json_is_string(json_object_get(value, "name")));
    const json_t *tags = json_object_get(value, "tags");
    assert_true(json_is_array(tags) && json_array_size(tags) <= 3 && json_object_size(value) == 3);
    json_decref(value);
    buf_done(&text);
}

static void run_all(struct scene *s, bool alone, const struct client **ret)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        struct job_spec spec = spec_of(s, i);
        struct client *c = submit(&s->f, &spec);
        ret[i] = c;
        if (alone)
            wait_over(&s->f, c);
    }
    wait_all(&s->f);
    for (uint32_t i = 0; i < JOBS; i++)
        check_instance(s, ret[i]);
}

static struct client *wanted[JOBS];

static void check_same(const struct client *const *got)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(got[i]->count, wanted[i]->count);
        assert_memory_equal(got[i]->ids, wanted[i]->ids, got[i]->count * sizeof(uint32_t));
    }
}

static struct engine_opts opts_of(enum drafting_by by, uint32_t drafts_max)
{
    struct engine_opts o = test_engine_opts(MODEL);
    o.drafting = (struct drafting_opts){.by = by, .drafts_max = drafts_max, .always = true};
    return o;
}

/* All at once: the same tokens as alone. */
static struct engine_numbers check_engine(const struct engine_opts *o)
{
    struct scene s;
    struct engine_numbers n;
    const struct client *got[JOBS];
    open_scene(&s, o, GRAMMAR_JSON_SCHEMA, schema);
    run_all(&s, false, got);
    check_same(got);
    if (o->prefix_cache_bytes > 0) {
        run_all(&s, false, got); /* with what the prefix cache has */
        check_same(got);
    }
    engine_numbers(s.f.engine, &n);
    close_scene(&s);
    return n;
}

/* With a prefix cache, and with preemption: the tiny model takes a tenth of the time of Canary. */
static void check_memory(void)
{
    struct engine_opts o = opts_of(DRAFTING_NGRAM, 1);
    o.prefix_cache_bytes = 64 << 20;
    struct engine_numbers n = check_engine(&o);
    assert_true(n.draft_tokens > 0 && n.cached_tokens > 0);
    for (int drafts = 0; drafts < 3; drafts += 2) {
        o = opts_of(drafts ? DRAFTING_NGRAM : DRAFTING_NONE, (uint32_t)drafts);
        o.max_model_len = 384;
        o.kv_bytes_max = 12 * model_shape(o.model)->page_bytes;
        n = check_engine(&o);
        assert_true(n.preemptions > 0);
    }
}

TEST(outputs_are_instances_and_the_same_tokens_however_computed)
{
    struct scene s;
    const struct client *got[JOBS];
    struct engine_opts o = opts_of(DRAFTING_NONE, 0);
    open_scene(&s, &o, GRAMMAR_JSON_SCHEMA, schema);
    run_all(&s, true, got);
    for (uint32_t i = 0; i < JOBS; i++) {
        wanted[i] = malloc(sizeof(*wanted[i]));
        *wanted[i] = *got[i];
    }
    close_scene(&s);
    struct engine_numbers n = check_engine(&o);
    assert_true(n.masks > 0 && n.mask_ns > 0 && n.draft_tokens == 0);
    o = opts_of(DRAFTING_NGRAM, 3);
    n = check_engine(&o);
    assert_true(n.draft_tokens > 0 && n.accepted_tokens > 0);
    for (int past = 0; past < 2 && MODEL_HEAD; past++) {
        o = opts_of(DRAFTING_MTP, 3);
        o.drafting.past = past;
        n = check_engine(&o);
        assert_true(n.accepted_tokens > 0);
    }
    if (!MODEL_HEAD)
        check_memory();
    for (uint32_t i = 0; i < JOBS; i++)
        free(wanted[i]);
}

/* Alone, each token a step of its own or with what the grammar forces. */
static struct engine_numbers run_forced(bool drafts, struct client *ret)
{
    struct scene s;
    struct engine_numbers n;
    struct engine_opts o = opts_of(drafts ? DRAFTING_NGRAM : DRAFTING_NONE, drafts ? 3 : 0);
    open_scene(&s, &o, GRAMMAR_GBNF, "root ::= (\"xqz9 internationalisation, mayonnaise \" [0-4])+");
    struct job_spec spec = spec_of(&s, 2);
    spec.max_tokens = 64;
    struct client *c = submit(&s.f, &spec);
    wait_all(&s.f);
    *ret = *c;
    engine_numbers(s.f.engine, &n);
    close_scene(&s);
    return n;
}

TEST(forced_text_is_drafted)
{
    static struct client plain, drafted;
    struct engine_numbers a = run_forced(false, &plain), b = run_forced(true, &drafted);
    expect_same(&plain, &drafted);
    assert_true(b.draft_tokens > 0 && b.accepted_tokens > 0);
    assert_true(b.steps < a.steps);
}

TEST(a_vocabulary_takes_no_more_than_was_planned)
{
    const struct tokenizer *t = test_tokenizer();
    struct grammar_vocab_opts opts = {.size = tokenizer_vocab_size(t), .bytes = token_bytes};
    struct account *account = test_account(grammar_vocab_planned_bytes(opts.size));
    struct charge charge = account_charge(account);
    struct grammar_vocab *v;
    opts.arg = (void *)(uintptr_t)t;
    opts.charge = &charge;
    assert_int_equal(grammar_vocab_create(&opts, &v), 0);
    grammar_vocab_free(v);
}

TEST(logprobs_are_those_of_the_model)
{
    struct scene s;
    struct engine_opts o = test_engine_opts(MODEL);
    open_scene(&s, &o, GRAMMAR_JSON_SCHEMA, schema);
    struct job_spec spec = spec_of(&s, 0);
    spec.sampling.logprobs = true;
    spec.sampling.top_logprobs = 1;
    spec.max_tokens = 1;
    struct client *bound = submit(&s.f, &spec);
    spec.grammar = NULL;
    struct client *free_one = submit(&s.f, &spec);
    wait_all(&s.f);
    assert_int_not_equal(bound->ids[0], free_one->ids[0]);
    assert_true(bound->logprobs[0] < free_one->logprobs[0]);
    assert_memory_equal(&bound->top[0], &free_one->top[0], sizeof(bound->top[0]));
    close_scene(&s);
}

TEST(an_output_ends_where_nothing_may_follow)
{
    struct scene s;
    struct engine_opts o = test_engine_opts(MODEL);
    open_scene(&s, &o, GRAMMAR_CHOICE, "[\"yes\",\"no\"]");
    struct job_spec spec = spec_of(&s, 1);
    spec.sampling.min_tokens = 50;
    struct client *early = submit(&s.f, &spec);
    spec.sampling.min_tokens = 0;
    spec.sampling.stop_count = 0;
    struct client *ignoring = submit(&s.f, &spec);
    wait_all(&s.f);
    assert_int_equal(early->finish.reason, FINISH_STOP);
    assert_int_equal(ignoring->finish.reason, FINISH_STOP);
    assert_true(early->count < 8 && ignoring->count < 8);
    assert_true(ignoring->finish.stop_token == ends[0] || ignoring->finish.stop_token == ends[1]);
    close_scene(&s);
}

TEST(an_output_goes_on_where_ends_are_ignored_or_too_early)
{
    struct scene s;
    struct engine_opts o = opts_of(DRAFTING_NGRAM, 2);
    open_scene(&s, &o, GRAMMAR_GBNF, "root ::= \"ab\" \"c\"*");
    struct job_spec spec = spec_of(&s, 1);
    spec.max_tokens = 60;
    spec.sampling.min_tokens = 30;
    struct client *later = submit(&s.f, &spec);
    spec.sampling.min_tokens = 0;
    spec.sampling.stop_count = 0;
    struct client *ignoring = submit(&s.f, &spec);
    spec.sampling.stop_count = 1; /* one of the ends stops, the other is ignored */
    struct client *one = submit(&s.f, &spec);
    wait_all(&s.f);
    assert_true(later->count >= 30 && later->count <= 60);
    assert_int_equal(ignoring->finish.reason, FINISH_LENGTH);
    assert_int_equal(ignoring->count, 60);
    assert_true(one->finish.reason == FINISH_LENGTH || one->finish.stop_token == ends[0]);
    close_scene(&s);
}

/* Each rule has items of its own wherever it may have begun: few tokens meet the bound. */
TEST(what_is_too_complex_ends_with_its_name)
{
    struct scene s;
    struct engine_opts o = test_engine_opts(MODEL);
    open_scene(&s, &o, GRAMMAR_GBNF,
               "root ::= \"a\" | \"b\" root \"b\" | p | q | r | s | t | u | v | w\np ::= root root\nq ::= "
               "root root\n"
               "r ::= root root\ns ::= root root\nt ::= root root\nu ::= root root\nv ::= root root\n"
               "w ::= root root");
    struct job_spec spec = spec_of(&s, 1);
    spec.max_tokens = spec.sampling.min_tokens = 1900;
    struct client *c = submit(&s.f, &spec);
    wait_all(&s.f);
    if (c->finish.reason != FINISH_ERROR)
        print_error("reason %d after %u tokens\n", (int)c->finish.reason, c->finish.completion_tokens);
    assert_int_equal(c->finish.reason, FINISH_ERROR);
    assert_non_null(strstr(c->finish.error, "grammar_too_complex"));
    close_scene(&s);
}

TEST_MAIN()
