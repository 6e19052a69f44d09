/* A draft model changes no token: alone, in batches, after hits and preemption, for dense and recurrent
 * targets and for windows. A model that drafts for itself is always right. */
#include "test_engine_draft.h"
#include "test_files.h"
#include "test_ledger.h"

#include "engine/job.h"
#include "store/store.h"

#ifdef TEST_SIMT /* half a minute of all */
#define RUN_SPECS 4
#else
#define RUN_SPECS SPECS
#endif

struct pair {
    const char *target, *draft;
    struct model *target_model, *draft_model;
};

static const struct pair pairs[] = {
    {.target = TINY("qwen3"), .draft = TINY("llama")},
#ifndef TEST_SIMT /* takes a minute of these */
    {.target = TINY("qwen3_5"), .draft = TINY("qwen3")},
    {.target = TINY("gemma3"), .draft = TINY("gemma3")},
    {.target = TINY("qwen3"), .draft = TINY("gemma3")},
    {.target = TINY("granitemoehybrid"), .draft = TINY("qwen3")},
    {.target = TINY("qwen3"), .draft = TINY("gpt_oss")},
#endif
};

static struct model *load(const char *dir, const struct model_parts *parts)
{
    struct model *m = NULL;
    struct err e = {""};
    struct model_opts opts = {.tokens_max = TEST_TOKENS_MAX,
                              .seqs_max = TEST_SEQS_MAX,
                              .logits_max = engine_logits_max(TEST_SEQS_MAX, TEST_DRAFTS_MAX),
                              .parts = *parts,
                              .device = test_device_get()};
    if (model_load_at(dir, &opts, &m, &e) < 0)
        fail_msg("%s", e.text);
    return m;
}

static void load_pair(struct pair *p)
{
    struct model_parts parts = {.compute = test_compute(), .drafts_max = TEST_DRAFTS_MAX};
    p->draft_model = load(p->draft, &parts);
    parts.page_beside = model_shape(p->draft_model)->page_bytes;
    model_free(p->draft_model);
    p->target_model = load(p->target, &parts);
    assert_int_equal(model_shape(p->target_model)->page_beside, parts.page_beside);
    parts.page_stride = model_shape(p->target_model)->groups[0].page_bytes;
    parts.page_beside = 0;
    p->draft_model = load(p->draft, &parts);
}

static void free_pair(struct pair *p)
{
    model_free(p->target_model);
    model_free(p->draft_model);
}

static struct engine_opts opts_of(const struct pair *p)
{
    struct engine_opts o = test_engine_opts(p->target);
    o.model = p->target_model;
    o.draft = p->draft_model;
    o.tokenizer = test_tokenizer();
    o.kv_bytes_max = 200 * (uint64_t)model_shape(p->target_model)->page_bytes;
    o.drafting = (struct drafting_opts){.by = DRAFTING_MODEL, .drafts_max = TEST_DRAFTS_MAX, .always = true};
    return o;
}

static void run(const struct pair *which, bool past, bool one_by_one, uint64_t cache_bytes)
{
    struct fixture plain, f;
    struct pair p = *which;
    struct job_spec specs[SPECS];
    static struct known known[SPECS];
    fill_specs(specs);
    load_pair(&p);
    struct engine_opts o = opts_of(&p);
    o.drafting.past = past;
    o.prefix_cache_bytes = cache_bytes;
    run_plain(&plain, p.target, specs, RUN_SPECS, known);
    test_engine_start(&f, p.target, &o);
    for (uint32_t round = 0; round < (cache_bytes ? 2u : 1u); round++) {
        for (uint32_t i = 0; i < RUN_SPECS && one_by_one; i++)
            wait_over(&f, submit(&f, &specs[i]));
        if (!one_by_one)
            submit_all(&f, specs, RUN_SPECS);
        for (uint32_t i = 0; i < RUN_SPECS; i++)
            expect_alike(f.clients[round * RUN_SPECS + i], plain.clients[i]);
    }
    struct engine_numbers n = numbers_of(&f);
    assert_true(n.drafts > 0 && n.draft_tokens > n.drafts);
    test_engine_close(&f);
    test_engine_close(&plain);
    free_pair(&p);
}

TEST(a_draft_model_changes_no_token)
{
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
#ifndef TEST_SIMT
        run(&pairs[i], false, false, 0);
#endif
        run(&pairs[i], i % 2 == 0, true, 64 << 20);
    }
}

#ifndef TEST_SIMT
TEST(a_model_that_drafts_for_itself_is_always_right)
{
    static const char *const dirs[] = {TINY("qwen3"), TINY("gemma3")};
    for (size_t i = 0; i < COUNT_OF(dirs); i++) {
        struct fixture f;
        struct pair p = {.target = dirs[i], .draft = dirs[i]};
        struct job_spec specs[SPECS];
        fill_specs(specs);
        load_pair(&p);
        struct engine_opts o = opts_of(&p);
        o.prefix_cache_bytes = 64 << 20;
        test_engine_start(&f, p.target, &o);
        for (uint32_t k = 0; k < SPECS; k++) {
            specs[k] = greedy(prompts[k], PROMPT - k % 5, ANSWER);
            specs[k].speculative = true;
        }
        submit_all(&f, specs, SPECS);
        /* Again, on pages that were found: the draft model has read them. */
        submit_all(&f, specs, SPECS);
        struct engine_numbers n = numbers_of(&f);
        assert_true(f.clients[SPECS]->finish.cached_tokens >= PAGE_TOKENS);
        assert_true(n.draft_tokens > SPECS * ANSWER);
        assert_int_equal(n.accepted_tokens, n.draft_tokens);
        test_engine_close(&f);
        free_pair(&p);
    }
}

TEST(preemption_changes_no_token_and_no_draft)
{
    struct fixture plain, f;
    struct pair p = {.target = TINY("qwen3"), .draft = TINY("qwen3")};
    static struct known known[SPECS];
    struct job_spec specs[SPECS];
    fill_specs(specs);
    for (uint32_t k = 0; k < SPECS; k++) {
        specs[k] = greedy(prompts[k], PROMPT, ANSWER);
        specs[k].speculative = true;
    }
    load_pair(&p);
    struct engine_opts o = opts_of(&p);
    o.max_model_len = PROMPT + ANSWER;
    o.prefix_cache_bytes = 64 << 20;
    o.kv_bytes_max = 4 * (uint64_t)DIV_UP(PROMPT + ANSWER, PAGE_TOKENS) * model_shape(o.model)->page_bytes;
    run_plain(&plain, p.target, specs, SPECS, known);
    test_engine_start(&f, p.target, &o);
    submit_all(&f, specs, SPECS);
    for (uint32_t k = 0; k < SPECS; k++)
        expect_alike(f.clients[k], plain.clients[k]);
    struct engine_numbers n = numbers_of(&f);
    assert_true(n.preemptions > 0 && n.draft_tokens > 0);
    assert_int_equal(n.accepted_tokens, n.draft_tokens);
    test_engine_close(&f);
    test_engine_close(&plain);
    free_pair(&p);
}

#define LONG 200

static void wait_written(struct store *st)
{
    struct store_numbers n;
    uint64_t began_ns = clock_now_ns();
    do {
        usleep(1000);
        store_numbers(st, &n);
        assert_true(clock_now_ns() - began_ns < 20 * NS_PER_S);
    } while (n.writes < LONG / PAGE_TOKENS || n.queued_writes > 0 || n.staging_used_bytes > 0);
}

/* A page that comes from disk has the draft model's K and V: it reads nothing, and drafts as right. */
TEST(pages_from_disk_have_been_read_for_drafts)
{
    struct store *st;
    struct err e = {""};
    struct store_numbers n;
    struct account *paid = test_account(ACCOUNT_NO_LIMIT);
    struct pair p = {.target = TINY("qwen3"), .draft = TINY("qwen3")};
    const struct store_opts disk = {.dir = test_dir(),
                                    .limit_bytes = 256 << 20,
                                    .staging_bytes = 16 << 20,
                                    .staging = paid,
                                    .table = paid,
                                    .threads = paid};
    uint32_t prompt[LONG];
    for (uint32_t i = 0; i < LONG; i++)
        prompt[i] = 3 + i * 7 % 70;
    assert_int_equal(store_open(&disk, &st, &e), 0);
    do
        store_numbers(st, &n);
    while (n.state == STORE_LISTING);
    load_pair(&p);
    for (uint32_t again = 0; again < 2; again++) {
        struct fixture f;
        struct engine_opts o = opts_of(&p);
        o.prefix_cache_bytes = 64 << 20;
        o.store = st;
        o.identity = (struct store_identity){.fingerprint = {1}};
        test_engine_start(&f, p.target, &o);
        struct job_spec spec = greedy(prompt, LONG, ANSWER);
        spec.speculative = true;
        submit_all(&f, &spec, 1);
        struct engine_numbers now = numbers_of(&f);
        assert_int_equal(now.fetched_tokens > 0, again);
        assert_true(now.draft_tokens > ANSWER / 2);
        assert_int_equal(now.accepted_tokens, now.draft_tokens);
        wait_written(st);
        test_engine_close(&f);
    }
    store_close(st);
    free_pair(&p);
}

/* The draft length by measured gain. */
TEST(a_prompt_is_read_before_it_is_drafted_for)
{
    struct fixture f;
    static uint32_t prompt[600];
    struct pair p = {.target = TINY("qwen3"), .draft = TINY("qwen3")};
    load_pair(&p);
    struct engine_opts o = opts_of(&p);
    for (uint32_t i = 0; i < COUNT_OF(prompt); i++)
        prompt[i] = i * 7 % 500;
    o.prefix_cache_bytes = 64 << 20;
    test_engine_start(&f, p.target, &o);
    struct job_spec spec = greedy(prompt, COUNT_OF(prompt), 40);
    spec.speculative = true;
    wait_over(&f, submit(&f, &spec));
    struct engine_numbers once = numbers_of(&f);
    assert_true(once.draft_tokens > 0);
    assert_int_equal(once.accepted_tokens, once.draft_tokens);
    /* Nothing is left to read in a prompt that was found but for its last page. */
    wait_over(&f, submit(&f, &spec));
    struct engine_numbers twice = numbers_of(&f);
    expect_same(f.clients[1], f.clients[0]);
    assert_int_equal(twice.accepted_tokens, twice.draft_tokens);
    assert_true(twice.draft_tokens >= 2 * once.draft_tokens);
    test_engine_close(&f);
    free_pair(&p);
}

TEST(an_engine_refuses_a_drafter_that_it_does_not_have)
{
    struct pair p = {.target = TINY("qwen3"), .draft = TINY("qwen3")};
    struct engine *en = NULL;
    struct err e = {""};
    load_pair(&p);
    struct engine_opts o = opts_of(&p);
    o.parent = test_account(ACCOUNT_NO_LIMIT);
    o.draft = NULL;
    assert_int_equal(engine_create(&o, &en, &e), -EINVAL);
    o.draft = p.draft_model;
    o.drafting.optimistic = true;
    assert_int_equal(engine_create(&o, &en, &e), -EINVAL);
    free_pair(&p);
}

#endif

TEST_MAIN()
