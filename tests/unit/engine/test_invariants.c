/* When an engine walks over its invariants, and how much that is. */
#include "test_engine.h"

#include "base/walk.h"
#include "engine/engine_state.h"
#include "reclaim/holders.h"

#define MODEL TINY("qwen3_5")

static bool has_walked(struct fixture *f, void *arg)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n.walks >= *(uint64_t *)arg;
}

static void wait_walks(struct fixture *f, uint64_t count)
{
    wait_until(f, has_walked, &count);
}

static bool is_paused(struct fixture *f, void *arg)
{
    struct job_numbers jobs[4];
    (void)arg;
    return engine_jobs(f->engine, jobs, COUNT_OF(jobs)) == 1 && jobs[0].phase == JOB_PAUSED;
}

TEST(a_walk_follows_each_rest)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct fixture f;
    struct engine_opts o = test_engine_opts(MODEL);
    o.prefix_cache_bytes = 1 << 20;
    test_engine_start(&f, MODEL, &o);
    struct job_spec s = greedy(prompt, COUNT_OF(prompt), 4);
    for (uint64_t i = 1; i <= 2; i++) {
        wait_over(&f, submit(&f, &s));
        wait_walks(&f, i);
    }
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    assert_true(n.walk_ns > 0);
    test_engine_close(&f);
}

/* A sequence is there then, and has pages. */
TEST(an_engine_rests_while_its_only_client_does_not_read)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct fixture f;
    struct engine_opts o = test_engine_opts(MODEL);
    test_engine_start(&f, MODEL, &o);
    struct job_spec s = greedy(prompt, COUNT_OF(prompt), 2000);
    struct client *deaf = submit(&f, &s);
    deaf->deaf = true;
    wait_until(&f, is_paused, NULL);
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    wait_walks(&f, n.walks + 1);
    undeafen(deaf);
    wait_over(&f, deaf);
    test_engine_close(&f);
}

TEST(a_walk_looks_at_few_things_for_each_page)
{
    struct fixture f;
    struct engine_opts o = test_engine_opts(MODEL);
    o.prefix_cache_bytes = 1 << 20;
    test_engine_open(&f, MODEL, &o);
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    uint64_t looked = invariants_check(f.engine);
    assert_true(looked >= n.pages_max && looked <= 10 * ((uint64_t)n.pages_max + 64));
    test_engine_close(&f);
}

/* A walk over more pages than lie between two looks at the inbox. */
static bool walks_to_the_end(struct fixture *f)
{
    uint64_t before = f->engine->now.walks;
    invariants_run(f->engine);
    return f->engine->now.walks > before;
}

/* Nothing runs the engine but the test: the request stays in the inbox. */
TEST(a_walk_ends_early_when_a_request_waits_or_the_engine_closes)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct fixture f;
    struct engine_opts o = test_engine_opts(MODEL);
    o.kv_bytes_max = 2 * WALK_ASKS * model_shape(test_model(MODEL)->model)->page_bytes;
    test_engine_open(&f, MODEL, &o);
    assert_true(walks_to_the_end(&f) && walks_to_the_end(&f));
    struct job_spec s = greedy(prompt, COUNT_OF(prompt), 4);
    submit(&f, &s);
    uint64_t due_ns = f.engine->invariants.due_ns;
    assert_false(walks_to_the_end(&f));
    assert_int_equal(f.engine->invariants.due_ns, due_ns);
    struct engine_message m;
    assert_true(mailbox_take(f.engine->inbox, &m));
    assert_true(walks_to_the_end(&f));
    atomic_store(&f.engine->closing, true);
    assert_false(walks_to_the_end(&f));
    atomic_store(&f.engine->closing, false);
    assert_int_equal(mailbox_put(f.engine->inbox, &m), 0);
    test_engine_close(&f);
}

/* ---- while sequences wait ---- */

static void ignore_want(void *arg)
{
    (void)arg;
}

/* A walk at rest finds paused sequences only. */
static void count_walks_too_many(void *arg, struct engine *en)
{
    LIST_EACH(it, &en->jobs)
        if (en->now.steps == 0 && !LIST_ENTRY(it, struct job, link)->seq.paused)
            atomic_fetch_add((atomic_uint *)arg, 1);
}

/* Its pages are refused, and for a second other holders may still release memory: longer than the rest that
 * a walk follows. */
TEST(no_walk_is_made_while_a_sequence_waits_for_memory)
{
    static const uint32_t prompt[] = {1, 2, 3};
    struct fixture f;
    atomic_uint walks = 0;
    struct engine_faults faults = {.walk = count_walks_too_many, .arg = &walks};
    struct account *root = ledger_root(test_ledger());
    struct holders *hs = test_holders(1 << 20);
    holders_listen(hs, ignore_want, NULL);
    struct engine_opts o = test_engine_opts(MODEL);
    o.holders = hs;
    o.faults = &faults;
    test_engine_open(&f, MODEL, &o);
    struct job_spec s = greedy(prompt, COUNT_OF(prompt), 4);
    struct client *c = submit(&f, &s);
    account_set_limit(root, account_numbers(root).reserved + UNIT_BYTES / 2);
    uint64_t began_ns = clock_now_ns();
    assert_int_equal(engine_start(f.engine), 0);
    wait_over(&f, c);
    assert_int_equal(c->finish.reason, FINISH_ERROR);
    assert_true(clock_now_ns() - began_ns > 2 * INVARIANTS_AFTER_NS);
    assert_int_equal(walks, 0);
    account_set_limit(root, ACCOUNT_NO_LIMIT);
    test_engine_close(&f);
    holders_free(hs);
}

TEST_MAIN()
