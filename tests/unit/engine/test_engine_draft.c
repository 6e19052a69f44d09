/* Speculative decoding changes no token: with every drafter, any draft tokens, in any batch. */
#include "test_engine_draft.h"
#include "base/buf.h"
#include "engine/engine_opts.h"
#include "tokenizer/tokenizer.h"

static const char *const models[] = {TINY("qwen3"), TINY("qwen3_5"), TINY("qwen3_5_moe"),
                                     TINY("granitemoehybrid")};

/* ---- the tests ---- */

static void run_manner(const char *dir, enum manner manner, bool one_by_one)
{
    struct fixture plain, f;
    struct job_spec specs[SPECS];
    static struct known known[SPECS];
    struct drafter g = {.known = known, .known_count = SPECS};
    struct engine_opts o = test_engine_opts(dir);
    o.tokenizer = test_tokenizer();
    fill_specs(specs);
    run_plain(&plain, dir, specs, SPECS, known);
    open_drafting(&f, dir, &o, manner, &g);
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

TEST(accepted_draftes_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        run_manner(models[i], RIGHT, false);
        run_manner(models[i], RIGHT, true);
    }
}

TEST(rejected_draftes_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        run_manner(models[i], WRONG, false);
}

TEST(some_right_and_some_rejected_draftes_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++) {
        run_manner(models[i], MIXED, false);
        run_manner(models[i], MIXED, true);
    }
}

TEST(drafts_from_its_own_past_change_no_token)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        run_manner(models[i], OWN_PAST, false);
}

/* ---- where a run ends ---- */

/* A stop token, a stop string, and min_tokens before either, each where drafts reach beyond it. */
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
        struct drafter g = {.known = ended, .known_count = SPECS};
        struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
        o.tokenizer = test_tokenizer();
        open_drafting(&f, TINY("qwen3_5"), &o, m, &g);
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

TEST(as_many_drafts_as_pay_change_no_token_either)
{
    struct fixture plain, f;
    static struct known known[SPECS];
    struct job_spec specs[SPECS];
    fill_specs(specs);
    specs[0].speculative = false;
    run_plain(&plain, TINY("qwen3_5"), specs, SPECS, known);
    for (enum manner m = RIGHT; m <= OWN_PAST; m++) {
        struct drafter g = {.known = known, .known_count = SPECS, .sparing = true};
        struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
        o.tokenizer = test_tokenizer();
        open_drafting(&f, TINY("qwen3_5"), &o, m, &g);
        submit_all(&f, specs, SPECS);
        for (uint32_t i = 0; i < SPECS; i++)
            expect_alike(f.clients[i], plain.clients[i]);
        test_engine_close(&f);
    }
    test_engine_close(&plain);
}

TEST(who_does_not_want_drafts_has_none)
{
    struct fixture f;
    struct job_spec spec;
    struct job_spec specs[SPECS];
    fill_specs(specs);
    spec = specs[0];
    spec.speculative = false;
    struct drafter g = {.known_count = 0};
    struct engine_opts o = test_engine_opts(TINY("qwen3"));
    open_drafting(&f, TINY("qwen3"), &o, RIGHT, &g);
    wait_over(&f, submit(&f, &spec));
    assert_int_equal(atomic_load(&g.asked), 0);
    assert_int_equal(numbers_of(&f).drafts, 0);
    test_engine_close(&f);
}

/* ---- caches, preemption, clients that leave or do not read ---- */

TEST(a_prefix_that_drafts_wrote_is_as_good_as_any)
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
        o.prefix_cache_bytes = 64 << 20;
        struct drafter g = {.known = known, .known_count = 2};
        open_drafting(&f, models[i], &o, MIXED, &g);
        wait_over(&f, submit(&f, &specs[0]));
        expect_alike(f.clients[0], cold.clients[0]);
        /* Asked once more: equal tokens, and as many accepted drafts. */
        struct engine_numbers once = numbers_of(&f);
        wait_over(&f, submit(&f, &specs[0]));
        expect_alike(f.clients[1], cold.clients[0]);
        assert_true(f.clients[1]->finish.cached_tokens > 0);
        struct engine_numbers twice = numbers_of(&f);
        assert_int_equal(twice.draft_tokens, 2 * once.draft_tokens);
        assert_int_equal(twice.accepted_tokens, 2 * once.accepted_tokens);
        assert_true(once.accepted_tokens > 0);
        /* Its answer is read back, up to the last page that was whole. */
        struct client *got = submit(&f, &again);
        wait_over(&f, got);
        expect_alike(got, want);
        assert_int_equal(got->finish.cached_tokens, (again.prompt_count - 1) / PAGE_TOKENS * PAGE_TOKENS);
        test_engine_close(&f);
        test_engine_close(&cold);
    }
}

TEST(preemption_between_drafts_changes_no_token)
{
    const char *dirs[] = {TINY("qwen3"), TINY("qwen3_5")};
    for (size_t i = 0; i < COUNT_OF(dirs); i++) {
        struct fixture plain, f;
        static struct known known[SPECS];
        struct job_spec specs[SPECS];
        struct drafter g = {.known = known, .known_count = SPECS};
        struct engine_opts o = test_engine_opts(dirs[i]);
        fill_specs(specs);
        for (uint32_t k = 0; k < SPECS; k++)
            specs[k].max_tokens = ANSWER;
        run_plain(&plain, dirs[i], specs, SPECS, known);
        o.kv_bytes_max =
            4 * (uint64_t)DIV_UP(PROMPT + ANSWER, PAGE_TOKENS) * model_shape(o.model)->page_bytes;
        o.max_model_len = PROMPT + ANSWER;
        o.tokenizer = test_tokenizer();
        open_drafting(&f, dirs[i], &o, MIXED, &g);
        submit_all(&f, specs, SPECS);
        for (uint32_t k = 0; k < SPECS; k++)
            expect_alike(f.clients[k], plain.clients[k]);
        assert_true(numbers_of(&f).preemptions > 0);
        test_engine_close(&f);
        test_engine_close(&plain);
    }
}

TEST(who_reads_late_or_never_disturbs_no_draft)
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
    struct drafter g = {.known = known, .known_count = 2};
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    o.tokenizer = test_tokenizer();
    open_drafting(&f, TINY("qwen3_5"), &o, RIGHT, &g);
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

TEST(a_long_answer_of_drafts_takes_pages_and_nothing_else)
{
    struct fixture plain, f;
    static struct known known[1];
    struct job_spec specs[SPECS], spec;
    fill_specs(specs);
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    struct drafter g = {.known = known, .known_count = 1};
    spec = specs[0];
    spec.max_tokens = SEQUENCE_MAX - spec.prompt_count;
    run_plain(&plain, TINY("qwen3_5"), &spec, 1, known);
    open_drafting(&f, TINY("qwen3_5"), &o, MIXED, &g);
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

TEST_MAIN()
