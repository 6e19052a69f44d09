/* The bundled model's own head drafts, alone and before the sequence's past. */
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "test_engine_draft.h"

/* Answers to the requests without drafts: computed once. */
static struct {
    struct known known[SPECS];
    struct client clients[SPECS];
    bool made;
} plain;

static void make_plain(const struct job_spec *specs)
{
    struct fixture f;
    if (plain.made)
        return;
    run_plain(&f, CANARY, specs, SPECS, plain.known);
    for (uint32_t i = 0; i < SPECS; i++)
        plain.clients[i] = *f.clients[i];
    plain.made = true;
    test_engine_close(&f);
}

/* The bundled model's own head, and after it the prediction of `draft` for the sequence's past; NULL: the
 * past itself. */
static void run_head(bool past, uint32_t (*says)(void *, const uint32_t *, uint32_t, uint32_t, uint32_t *))
{
    struct fixture f;
    struct job_spec specs[SPECS];
    struct drafter g = {.known = plain.known, .known_count = SPECS, .manner = MIXED};
    struct engine_opts o = test_engine_opts(CANARY);
    fill_specs(specs);
    make_plain(specs);
    o.drafting = (struct drafting_opts){
        .by = DRAFTING_MTP, .drafts_max = TEST_DRAFTS_MAX, .past = past, .always = true};
    g.faults.draft = says;
    g.faults.arg = &g;
    o.faults = says ? &g.faults : NULL;
    test_engine_start(&f, CANARY, &o);
    submit_all(&f, specs, SPECS);
    for (uint32_t i = 0; i < SPECS; i++)
        expect_alike(f.clients[i], &plain.clients[i]);
    struct engine_numbers n = numbers_of(&f);
    assert_true(n.drafts > 0 && n.accepted_tokens > n.draft_tokens / 10);
    test_engine_close(&f);
}

TEST(the_models_own_head_changes_no_token)
{
    run_head(false, NULL);
}

TEST(what_the_past_has_behind_the_heads_draft_changes_no_token)
{
    run_head(true, NULL);
    run_head(true, draft);
}

/* The head's K and V lie in the pages: a hit equals the computed ones, to the last draft token. */
TEST(a_prefix_that_is_found_changes_no_draft_of_the_head)
{
    struct fixture f;
    struct job_spec specs[SPECS];
    struct engine_opts o = test_engine_opts(CANARY);
    fill_specs(specs);
    o.prefix_cache_bytes = 64 << 20;
    o.drafting = (struct drafting_opts){
        .by = DRAFTING_MTP, .drafts_max = TEST_DRAFTS_MAX, .past = true, .always = true};
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

/* To the end of a sequence, which is nearer than where test_engine_draft goes with a tiny model. */
TEST(a_long_optimistic_answer_takes_pages_and_nothing_else)
{
    struct fixture f;
    struct job_spec specs[SPECS], spec;
    struct engine_opts o = test_engine_opts(CANARY);
    fill_specs(specs);
    spec = specs[0];
    o.max_model_len = SEQUENCE_MAX / 2;
    spec.max_tokens = o.max_model_len - spec.prompt_count;
    o.drafting = (struct drafting_opts){
        .by = DRAFTING_MTP, .drafts_max = TEST_DRAFTS_MAX, .optimistic = true, .always = true};
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
