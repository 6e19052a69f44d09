/* Engines that share a machine: one budget for their caches, requests to give bytes, and the remains of a
 * teardown. */
#include "test_engine_scene.h"

#include "reclaim/holders.h"

#define LONG 1000 /* tokens of a prompt that is worth caching */

static struct holders *list_of(uint64_t cache_bytes_max)
{
    struct holders *hs = NULL;
    struct holders_opts opts = {test_ledger(), cache_bytes_max};
    assert_int_equal(holders_create(&opts, &hs), 0);
    return hs;
}

static struct engine_opts opts_of(const char *dir, struct holders *hs, const char *name)
{
    struct engine_opts o = test_engine_opts(dir);
    o.name = name;
    o.holders = hs;
    o.kv_bytes_max = 64 * UNIT_BYTES;
    o.prefix_cache_bytes = 64 * UNIT_BYTES;
    return o;
}

/* A prompt of its own for each seed. */
static struct client *begin(struct fixture *f, uint64_t seed, uint32_t count, uint32_t tokens)
{
    uint32_t ids[LONG];
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (uint32_t)(rng_at(seed, i) % 500);
    struct job_spec s = greedy(ids, count, tokens);
    return submit(f, &s);
}

static struct client *run(struct fixture *f, uint64_t seed, uint32_t count, uint32_t tokens)
{
    struct client *c = begin(f, seed, count, tokens);
    wait_over(f, c);
    assert_int_equal(c->finish.reason, FINISH_LENGTH);
    return c;
}

static struct holder_answer ask(struct holders *hs, const char *name, enum holder_ask_kind kind,
                                uint64_t bytes, uint64_t before_ns)
{
    struct holder_ask *a = NULL;
    struct holder_answer answer = {0};
    assert_int_equal(holders_ask(hs, info_of(hs, name).id, kind, bytes, before_ns, NULL, &a), 0);
    assert_int_equal(holder_ask_wait(a, clock_now_ns() + TEST_WAIT_NS, &answer), 0);
    return answer;
}

/* The list agrees with the accounts. */
static void expect_shown(struct holders *hs, struct fixture *f, const char *name)
{
    struct holder_info i = info_of(hs, name);
    struct account *pools = account_find(f->account, "pools");
    assert_int_equal(i.now.held_bytes, account_numbers(pools).used);
    assert_int_equal(i.now.cached_bytes, numbers(f).cache_bytes);
    assert_true(i.now.cached_bytes <= i.allowed_bytes);
}

TEST(two_models_cache_within_one_budget)
{
    struct fixture a, b;
    const char *dirs[] = {TINY("qwen3"), TINY("qwen3_5_moe")};
    uint64_t page_bytes = model_shape(test_model(dirs[0])->model)->page_bytes;
    uint64_t budget = 26 * (LONG / PAGE_TOKENS) * page_bytes;
    struct holders *hs = list_of(budget);
    struct engine_opts oa = opts_of(dirs[0], hs, "a"), ob = opts_of(dirs[1], hs, "b");
    test_engine_start(&a, dirs[0], &oa);
    test_engine_start(&b, dirs[1], &ob);
    for (uint64_t seed = 0; seed < 30; seed++)
        run(&a, seed, LONG, 2);
    wait_until(&a, is_at_rest, NULL);
    uint64_t before = info_of(hs, "a").now.cached_bytes;
    assert_true(before > budget / 2);
    for (uint64_t seed = 0; seed < 60; seed++) {
        run(&b, seed, LONG, 2);
        struct holders_numbers n;
        holders_numbers(hs, NULL, &n);
        assert_true(n.allowed_bytes <= budget && n.cached_bytes <= budget);
    }
    wait_until(&b, is_at_rest, NULL);
    wait_until(&a, is_at_rest, NULL);
    /* The first model's are all older, and had to make room. How much of it depends on what each model's
     * pages cost, as measured. */
    assert_true(info_of(hs, "a").now.cached_bytes < before);
    assert_true(info_of(hs, "b").now.cached_bytes > budget / 4);
    assert_true(info_of(hs, "a").now.cached_bytes + info_of(hs, "b").now.cached_bytes > budget / 10 * 9);
    expect_shown(hs, &a, "a");
    expect_shown(hs, &b, "b");
    test_engine_close(&a);
    test_engine_close(&b);
    holders_free(hs);
}

/* Budget or not, alone or not: tokens are the same. */
TEST(what_was_taken_from_a_cache_changes_no_token)
{
    struct fixture a, b, alone;
    const char *dir = TINY("qwen3_5");
    uint64_t page_bytes = model_shape(test_model(dir)->model)->page_bytes;
    struct holders *hs = list_of(8 * LONG / PAGE_TOKENS * page_bytes);
    struct engine_opts oa = opts_of(dir, hs, "a"), ob = opts_of(dir, hs, "b"), plain = test_engine_opts(dir);
    test_engine_start(&a, dir, &oa);
    test_engine_start(&b, dir, &ob);
    test_engine_start(&alone, dir, &plain);
    for (uint64_t i = 0; i < 40; i++) {
        struct fixture *f = i % 3 ? &a : &b;
        uint32_t count = 100 + (uint32_t)(rng_at(7, i) % (LONG - 100));
        uint64_t seed = rng_at(8, i) % 6;
        struct client *c = run(f, seed, count, 4);
        expect_same(c, run(&alone, seed, count, 4));
    }
    test_engine_close(&a);
    test_engine_close(&b);
    test_engine_close(&alone);
    holders_free(hs);
}

struct reclaims {
    uint64_t want;
};

static bool has_counted(struct fixture *f, void *arg)
{
    const struct reclaims *r = arg;
    return numbers(f).reclaims == r->want;
}

TEST(an_engine_gives_what_is_free_and_then_what_is_older_than_it_was_told)
{
    struct fixture f;
    const char *dir = TINY("qwen3_5");
    struct holders *hs = list_of(64 * UNIT_BYTES);
    struct engine_opts o = opts_of(dir, hs, "a");
    o.keep_units = true;
    o.prefix_cache_bytes = 4 * UNIT_BYTES;
    test_engine_start(&f, dir, &o);
    /* All at once, so that they hold more than may be cached. */
    for (uint64_t seed = 0; seed < 40; seed++)
        begin(&f, seed, LONG, 40);
    wait_all(&f);
    wait_until(&f, is_at_rest, NULL);
    struct holder_info before = info_of(hs, "a");
    assert_true(before.now.cached_bytes > 2 * UNIT_BYTES && before.now.free_bytes > 0);
    struct reclaims counted = {numbers(&f).reclaims};
    expect_shown(hs, &f, "a");
    struct holder_answer free = ask(hs, "a", HOLDER_GIVE, 64 * UNIT_BYTES, 0);
    assert_true(free.entries == 0 && free.bytes > 0);
    assert_int_equal(info_of(hs, "a").now.cached_bytes, before.now.cached_bytes);
    struct holder_answer none = ask(hs, "a", HOLDER_GIVE, UNIT_BYTES, before.now.oldest_ns);
    assert_true(none.entries == 0 && none.bytes == 0);
    struct holder_answer one = ask(hs, "a", HOLDER_GIVE, UNIT_BYTES, UINT64_MAX);
    assert_true(one.entries > 0 && one.bytes >= UNIT_BYTES);
    struct holder_info after = info_of(hs, "a");
    assert_true(after.now.cached_bytes > 0 && after.now.cached_bytes < before.now.cached_bytes);
    assert_int_equal(before.now.held_bytes - free.bytes - one.bytes, after.now.held_bytes);
    struct holder_answer all = ask(hs, "a", HOLDER_GIVE, 64 * UNIT_BYTES, UINT64_MAX);
    assert_int_equal(all.bytes, after.now.held_bytes);
    assert_int_equal(info_of(hs, "a").now.held_bytes, 0);
    /* Two of the four orders evicted prefixes. */
    assert_true(all.entries > 0);
    counted.want += 2;
    wait_until(&f, has_counted, &counted);
    test_engine_close(&f);
    holders_free(hs);
}

/* A sequence continues: its pages cannot be reclaimed. */
TEST(memory_of_a_running_request_is_not_given)
{
    struct fixture f;
    const char *dir = TINY("qwen3");
    struct holders *hs = list_of(64 * UNIT_BYTES);
    struct engine_opts o = opts_of(dir, hs, "a");
    test_engine_start(&f, dir, &o);
    run(&f, 1, LONG, 2);
    struct job_spec s = greedy(prompt, 600, 600);
    struct client *c = submit(&f, &s);
    wait_tokens(&f, c, 1);
    for (int i = 0; i < 20 && !c->over; i++) {
        ask(hs, "a", HOLDER_GIVE, 64 * UNIT_BYTES, UINT64_MAX);
        wait_tokens(&f, c, c->count + 1);
    }
    wait_over(&f, c);
    uint32_t want[600];
    tokens_alone(dir, &s, want);
    expect_tokens(c, want, 600);
    test_engine_close(&f);
    holders_free(hs);
}

TEST(a_clear_reaches_all_holders_and_names_the_one_that_hangs)
{
    struct fixture a, b;
    struct holders_reclaimed r;
    struct holders *hs = list_of(64 * UNIT_BYTES);
    struct engine_opts oa = opts_of(TINY("qwen3"), hs, "a"), ob = opts_of(TINY("qwen3_5"), hs, "b");
    oa.faults = &step_faults;
    test_engine_start(&a, TINY("qwen3"), &oa);
    test_engine_start(&b, TINY("qwen3_5"), &ob);
    run(&a, 1, LONG, 2);
    run(&b, 1, LONG, 2);
    gate_set(&gate, true, 0);
    struct job_spec s = greedy(prompt, 40, 4);
    struct client *c = submit(&a, &s);
    gate_wait(&gate);
    uint64_t held = info_of(hs, "b").now.held_bytes;
    holders_reclaim(hs, NULL, HOLDER_CLEAR, NS_PER_S, &r);
    assert_int_equal(r.failed, 1);
    assert_string_equal(r.failures[0].name, "a");
    assert_int_equal(r.failures[0].error, -ETIMEDOUT);
    assert_true(r.bytes > 0 && r.bytes <= held && r.entries > 0);
    gate_set(&gate, false, 0);
    wait_over(&a, c);
    holders_reclaim(hs, NULL, HOLDER_CLEAR, NS_PER_S * 60, &r);
    assert_int_equal(r.failed, 0);
    assert_int_equal(info_of(hs, "a").now.held_bytes + info_of(hs, "b").now.held_bytes, 0);
    test_engine_close(&a);
    test_engine_close(&b);
    holders_free(hs);
}

static int refuse_decommit(void *arg)
{
    return atomic_load((atomic_bool *)arg) ? -EINVAL : 0;
}

/* The system takes nothing back: the engine closes anyway, and its accounts are empty. Its bytes are listed
 * as an orphan, and the next clear frees them. */
TEST(memory_that_an_engine_cannot_return_is_an_orphan)
{
    struct fixture f, again;
    atomic_bool refused = true;
    struct units_faults faults = {refuse_decommit, &refused};
    struct holders *hs = list_of(64 * UNIT_BYTES);
    struct engine_opts o = opts_of(TINY("qwen3_5"), hs, "model");
    struct holders_numbers n;
    struct holders_reclaimed r;
    units_set_faults(&faults);
    test_engine_start(&f, TINY("qwen3_5"), &o);
    run(&f, 1, LONG, 2);
    uint64_t held = info_of(hs, "model").now.held_bytes;
    assert_true(held > 0);
    test_engine_close(&f);
    holders_numbers(hs, NULL, &n);
    assert_true(n.count == 1 && n.orphans == 1 && n.orphan_bytes == held && n.allowed_bytes == 0);
    assert_int_equal(account_numbers(account_find(ledger_root(test_ledger()), "orphans")).used, held);
    /* The next one of that name is another. */
    test_engine_start(&again, TINY("qwen3_5"), &o);
    run(&again, 1, LONG, 2);
    holders_reclaim(hs, NULL, HOLDER_CLEAR, 60 * NS_PER_S, &r);
    assert_true(r.failed == 1 && r.failures[0].error == -EINVAL && r.bytes == 0);
    atomic_store(&refused, false);
    holders_reclaim(hs, NULL, HOLDER_CLEAR, 60 * NS_PER_S, &r);
    assert_true(r.failed == 0 && r.bytes >= held);
    holders_numbers(hs, NULL, &n);
    assert_true(n.count == 1 && n.orphans == 0);
    assert_null(account_find(ledger_root(test_ledger()), "orphans"));
    test_engine_close(&again);
    units_set_faults(NULL);
    holders_free(hs);
}

/* ---- many threads ---- */

static void *nag(void *arg)
{
    struct holders_reclaimed r;
    for (int i = 0; i < 30; i++) {
        holders_reclaim(arg, NULL, i % 3 ? HOLDER_TRIM : HOLDER_CLEAR, 60 * NS_PER_S, &r);
        for (uint32_t k = 0; k < r.failed; k++)
            assert_true(r.failures[k].error == -EPIPE || r.failures[k].error == -EAGAIN);
    }
    return NULL;
}

TEST(engines_come_and_go_while_others_clear)
{
    struct holders *hs = list_of(16 * UNIT_BYTES);
    pthread_t nags[2];
    const char *dirs[] = {TINY("qwen3"), TINY("qwen3_5")};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&nags[i], NULL, nag, hs), 0);
    for (int i = 0; i < 6; i++) {
        struct fixture f;
        struct engine_opts o = opts_of(dirs[i % 2], hs, "x");
        test_engine_start(&f, dirs[i % 2], &o);
        run(&f, (uint64_t)i, 200, 4);
        test_engine_close(&f);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(nags[i], NULL);
    struct holders_numbers n;
    holders_numbers(hs, NULL, &n);
    assert_int_equal(n.count, 0);
    holders_free(hs);
}

TEST_MAIN()
