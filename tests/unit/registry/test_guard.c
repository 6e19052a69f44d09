/* The guard: room across engines and models, help for running requests, and stages of pressure. */
#define TEST_SEEDS 3
#include "test_rng.h"
#include "test_machine.h"

/* ---- room ---- */

TEST(a_load_takes_caches_of_all_models_before_an_idle_one)
{
    struct machine m;
    struct fixture a, b;
    struct guard_refusal why;
    struct guard_numbers n;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    machine_add_idle(&m, 16 * UNIT_BYTES);
    open_engine(&m, &a, TINY("qwen3"), "a");
    open_engine(&m, &b, TINY("qwen3_5"), "b");
    fill_cache(&a, 20);
    fill_cache(&b, 20);
    wait_until(&a, is_at_rest, NULL);
    wait_until(&b, is_at_rest, NULL);
    uint64_t cached = info_of(m.holders, "a").now.cached_bytes + info_of(m.holders, "b").now.cached_bytes;
    assert_true(cached > 8 * UNIT_BYTES);
    account_set_limit(ledger_root(test_ledger()),
                      account_numbers(ledger_root(test_ledger())).reserved + UNIT_BYTES);
    /* Some of the caches is enough. */
    struct load l = {test_account(ACCOUNT_NO_LIMIT), 4 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &l, &why), 0);
    assert_true(l.tries > 1 && m.unloads == 0);
    assert_true(info_of(m.holders, "a").now.cached_bytes + info_of(m.holders, "b").now.cached_bytes < cached);
    assert_true(info_of(m.holders, "a").now.cached_bytes + info_of(m.holders, "b").now.cached_bytes > 0);
    /* All of them are not. */
    struct load more = {test_account(ACCOUNT_NO_LIMIT), 16 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &more, &why), 0);
    assert_int_equal(m.unloads, 1);
    assert_int_equal(info_of(m.holders, "a").now.held_bytes + info_of(m.holders, "b").now.held_bytes, 0);
    /* Nothing is left to take. */
    struct load last = {test_account(ACCOUNT_NO_LIMIT), 64 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &last, &why), -ENOMEM);
    struct account_numbers root = account_numbers(ledger_root(test_ledger()));
    assert_string_equal(why.binding, "process");
    assert_int_equal(why.projected_bytes, root.reserved + last.bytes);
    assert_int_equal(why.ceiling_bytes, root.limit);
    assert_int_equal(why.current_bytes, root.reserved);
    assert_int_equal(why.idle_bytes, 0);
    assert_non_null(strstr(why.text, "memory to load new"));
    guard_numbers(m.guard, &n);
    assert_true(n.rooms_made == 2 && n.rooms_refused == 1 && n.cached_bytes > 0 &&
                n.idle_bytes == 16 * UNIT_BYTES);
    test_engine_close(&a);
    test_engine_close(&b);
    account_set_floor(l.account, 0);
    account_set_floor(more.account, 0);
    machine_close(&m);
}

static uint64_t free_one_idle(void *arg, const struct domain *domain, uint64_t bytes, const char *name)
{
    (void)name;
    struct machine *m = arg;
    (void)bytes;
    assert_ptr_equal(domain, domain_machine());
    atomic_fetch_add(&m->unloads, 1);
    account_release(m->idle, UNIT_BYTES);
    m->idle_bytes -= UNIT_BYTES;
    return UNIT_BYTES;
}

static uint64_t free_no_idle(void *arg, const struct domain *domain, uint64_t bytes, const char *name)
{
    (void)name;
    struct machine *m = arg;
    (void)bytes;
    assert_ptr_equal(domain, domain_machine());
    atomic_fetch_add(&m->unloads, 1);
    return 0;
}

TEST(idle_models_go_one_by_one_until_a_load_fits)
{
    struct machine m;
    struct guard_refusal why;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    machine_add_idle(&m, 8 * UNIT_BYTES);
    account_set_limit(ledger_root(test_ledger()), account_numbers(ledger_root(test_ledger())).reserved);
    guard_set_models(m.guard, &(struct guard_models){idle_bytes, free_one_idle, &m});
    struct load l = {test_account(ACCOUNT_NO_LIMIT), 6 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &l, &why), 0);
    assert_int_equal(m.unloads, 6);
    account_set_floor(l.account, 0);
    machine_close(&m);
}

TEST(idle_models_that_others_take_into_use_are_asked_a_few_times)
{
    struct machine m;
    struct guard_refusal why;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    machine_add_idle(&m, 8 * UNIT_BYTES);
    account_set_limit(ledger_root(test_ledger()), account_numbers(ledger_root(test_ledger())).reserved);
    guard_set_models(m.guard, &(struct guard_models){idle_bytes, free_no_idle, &m});
    struct load l = {test_account(ACCOUNT_NO_LIMIT), 6 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &l, &why), -ENOMEM);
    assert_true(m.unloads > 1 && m.unloads < 10);
    machine_close(&m);
}

TEST(what_can_never_fit_costs_nobody_anything)
{
    struct machine m;
    struct fixture a;
    struct guard_refusal why;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    machine_add_idle(&m, UNIT_BYTES);
    open_engine(&m, &a, TINY("qwen3"), "a");
    fill_cache(&a, 6);
    wait_until(&a, is_at_rest, NULL);
    struct holder_info before = info_of(m.holders, "a");
    account_set_limit(ledger_root(test_ledger()), account_numbers(ledger_root(test_ledger())).reserved);
    struct load l = {test_account(ACCOUNT_NO_LIMIT), 100 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &l, &why), -ENOMEM);
    assert_int_equal(why.cached_bytes, before.now.cached_bytes);
    assert_int_equal(why.idle_bytes, UNIT_BYTES);
    assert_int_equal(info_of(m.holders, "a").now.cached_bytes, before.now.cached_bytes);
    assert_int_equal(m.unloads, 0);
    /* Its own limit: the others are not asked either. */
    struct load own = {test_account(UNIT_BYTES), 2 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &own, &why), -ENOMEM);
    assert_string_equal(why.binding, "test");
    assert_int_equal(info_of(m.holders, "a").now.cached_bytes, before.now.cached_bytes);
    test_engine_close(&a);
    machine_close(&m);
}

static bool yes(void *arg)
{
    (void)arg;
    return true;
}

TEST(who_has_gone_takes_nothing_more)
{
    struct machine m;
    struct guard_refusal why;
    machine_open(&m, UNIT_BYTES * 10, false);
    machine_add_idle(&m, 8 * UNIT_BYTES);
    struct load l = {test_account(ACCOUNT_NO_LIMIT), 4 * UNIT_BYTES, 0};
    struct guard_wish w = {
        .name = "new", .bytes = l.bytes, .account = l.account, .take = take, .cancelled = yes, .arg = &l};
    assert_int_equal(guard_reclaim(m.guard, &w, &why), -ECANCELED);
    assert_int_equal(m.unloads, 0);
    machine_close(&m);
}

struct waiting {
    struct load load; /* first: take() has it */
    struct machine *m;
    uint32_t looks, looks_max, idle_at;
};

/* Requests use the model until it is idle. */
static bool waits(void *arg, const struct guard_refusal *why)
{
    struct waiting *w = arg;
    assert_true(why->projected_bytes > why->ceiling_bytes && why->idle_bytes == 0);
    w->looks++;
    if (w->looks == w->idle_at)
        w->m->idle_bytes = 8 * UNIT_BYTES;
    return w->looks <= w->looks_max;
}

TEST(a_load_waits_for_a_model_to_become_idle)
{
    static const struct {
        uint32_t looks_max, idle_at, looks;
        int r;
    } cases[] = {{3, 2, 2, 0}, {3, 9, 4, -ENOMEM}, {0, 9, 1, -ENOMEM}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct machine m;
        struct guard_refusal why;
        struct guard_numbers before, after;
        machine_open(&m, UNIT_BYTES * 10, false);
        machine_add_idle(&m, 8 * UNIT_BYTES);
        m.idle_bytes = 0;
        struct waiting w = {
            {test_account(ACCOUNT_NO_LIMIT), 4 * UNIT_BYTES, 0}, &m, 0, cases[i].looks_max, cases[i].idle_at};
        struct guard_wish wish = {.name = "new",
                                  .bytes = w.load.bytes,
                                  .account = w.load.account,
                                  .take = take,
                                  .waits = waits,
                                  .arg = &w};
        guard_numbers(m.guard, &before);
        assert_int_equal(guard_reclaim(m.guard, &wish, &why), cases[i].r);
        guard_numbers(m.guard, &after);
        assert_int_equal(w.looks, cases[i].looks);
        assert_int_equal(after.rooms_made + after.rooms_refused,
                         before.rooms_made + before.rooms_refused + 1);
        if (cases[i].r < 0)
            m.idle_bytes = 8 * UNIT_BYTES;
        account_set_floor(w.load.account, 0);
        machine_close(&m);
    }
}

/* A step hangs: its engine does not answer. The other one's cache is enough, and its request continues
 * normally. */
TEST(a_stuck_engine_is_passed_over_and_its_request_lives)
{
    struct machine m;
    struct fixture a, b;
    struct guard_refusal why;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    struct engine_opts o = gated(TINY("qwen3"));
    o.name = "stuck";
    o.holders = m.holders;
    o.kv_bytes_max = o.prefix_cache_bytes = 64 * UNIT_BYTES;
    test_engine_start(&a, TINY("qwen3"), &o);
    open_engine(&m, &b, TINY("qwen3_5"), "b");
    fill_cache(&a, 4);
    fill_cache(&b, 8);
    wait_until(&b, is_at_rest, NULL);
    gate_set(&gate, true, 0);
    struct job_spec s = greedy(prompt, 200, 50);
    struct client *c = submit(&a, &s);
    gate_wait(&gate);
    account_set_limit(ledger_root(test_ledger()), account_numbers(ledger_root(test_ledger())).reserved);
    struct load l = {test_account(ACCOUNT_NO_LIMIT), 2 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &l, &why), 0);
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    gate_set(&gate, false, 0);
    wait_over(&a, c);
    uint32_t want[50];
    tokens_alone(TINY("qwen3"), &s, want);
    expect_tokens(c, want, 50);
    test_engine_close(&a);
    test_engine_close(&b);
    account_set_floor(l.account, 0);
    machine_close(&m);
}

/* ---- help ---- */

/* All memory is in the caches of one model: the other's requests get theirs, and no request is preempted or
 * ended. */
TEST(an_engine_gets_units_from_the_caches_of_others)
{
    struct machine m;
    struct fixture a, b;
    struct guard_numbers n;
    uint32_t ids[LONG], want[60];
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    open_engine(&m, &a, TINY("qwen3"), "a");
    open_engine(&m, &b, TINY("qwen3_5"), "b");
    fill_cache(&a, 20);
    wait_until(&a, is_at_rest, NULL);
    uint64_t cached = info_of(m.holders, "a").now.cached_bytes;
    /* One unit short of nothing: requests have their blocks. */
    account_set_limit(ledger_root(test_ledger()),
                      account_numbers(ledger_root(test_ledger())).reserved + UNIT_BYTES);
    struct job_spec s = spec_of(ids, 99, LONG, 60);
    struct client *c[4];
    for (int i = 0; i < 4; i++) {
        ids[0] = (uint32_t)i;
        c[i] = submit(&b, &s);
    }
    for (int i = 0; i < 4; i++) {
        wait_over(&b, c[i]);
        assert_int_equal(c[i]->finish.reason, FINISH_LENGTH);
    }
    assert_true(info_of(m.holders, "a").now.cached_bytes < cached);
    assert_int_equal(numbers(&b).preemptions, 0);
    guard_numbers(m.guard, &n);
    assert_true(n.helps > 0 && n.cached_bytes > 0);
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    ids[0] = 3;
    tokens_alone(TINY("qwen3_5"), &s, want);
    expect_tokens(c[3], want, 60);
    test_engine_close(&a);
    test_engine_close(&b);
    machine_close(&m);
}

/* Only an idle model holds enough memory. */
TEST(an_idle_model_goes_for_a_request_that_runs)
{
    struct machine m;
    struct fixture a, b;
    uint32_t ids[LONG];
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    machine_add_idle(&m, 16 * UNIT_BYTES);
    open_engine(&m, &a, TINY("qwen3"), "a");
    open_engine(&m, &b, TINY("qwen3_5"), "b");
    fill_cache(&a, 1); /* so that there are bytes to reclaim */
    wait_until(&a, is_at_rest, NULL);
    account_set_limit(ledger_root(test_ledger()),
                      account_numbers(ledger_root(test_ledger())).reserved + UNIT_BYTES);
    for (uint64_t i = 0; i < 6; i++) {
        struct job_spec s = spec_of(ids, i, LONG, 200);
        submit(&b, &s);
    }
    wait_all(&b);
    for (uint32_t i = 0; i < b.client_count; i++)
        assert_int_equal(b.clients[i]->finish.reason, FINISH_LENGTH);
    assert_int_equal(m.unloads, 1);
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    test_engine_close(&a);
    test_engine_close(&b);
    machine_close(&m);
}

/* Two models under a ceiling too low for both, random requests on both at once, and loads in between. Every
 * request gets the same tokens as alone, and the sum holds. */
PROPERTY(both_models_get_their_tokens_under_one_ceiling, seed)
{
    enum { COUNT = 16 };
    struct machine m;
    struct fixture f[2], alone[2];
    const char *dirs[] = {TINY("qwen3"), TINY("qwen3_5")};
    struct rng rng = {seed, 0};
    uint32_t ids[2][COUNT][LONG];
    struct job_spec specs[2][COUNT];
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    open_engine(&m, &f[0], dirs[0], "a");
    open_engine(&m, &f[1], dirs[1], "b");
    account_set_limit(ledger_root(test_ledger()),
                      account_numbers(ledger_root(test_ledger())).reserved + 8 * UNIT_BYTES + (1 << 20));
    /* Each model has a floor for one row, so that neither can starve. */
    for (int k = 0; k < 2; k++)
        assert_int_equal(account_set_floor(account_find(f[k].account, "pools"), 3 * UNIT_BYTES), 0);
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 2; k++) {
            uint32_t count = 1 + (uint32_t)rng_below(&rng, 700);
            specs[k][i] = spec_of(ids[k][i], rng_below(&rng, 5), count, 1 + (uint32_t)rng_below(&rng, 60));
            submit(&f[k], &specs[k][i]);
        }
        if (i % 4 == 3) {
            struct guard_refusal why;
            struct load l = {f[0].text, UNIT_BYTES, 0};
            if (make_room(&m, &l, &why) == 0)
                account_set_floor(l.account, 0);
        }
    }
    wait_all(&f[0]);
    wait_all(&f[1]);
    ledger_check(test_ledger());
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    for (int k = 0; k < 2; k++) {
        struct engine_opts plain = test_engine_opts(dirs[k]);
        test_engine_start(&alone[k], dirs[k], &plain);
        for (int i = 0; i < COUNT; i++) {
            struct client *c = submit(&alone[k], &specs[k][i]);
            wait_over(&alone[k], c);
            expect_same(f[k].clients[i], c);
        }
        test_engine_close(&alone[k]);
        account_set_floor(account_find(f[k].account, "pools"), 0);
        test_engine_close(&f[k]);
    }
    machine_close(&m);
}

/* ---- pressure ---- */

static bool has_stage(struct machine *m, enum pressure_stage stage)
{
    struct guard_numbers n;
    uint64_t until = clock_now_ns() + TEST_WAIT_NS;
    do {
        guard_numbers(m->guard, &n);
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    } while (n.stage != stage && clock_now_ns() < until);
    return n.stage == stage;
}

TEST(pressure_takes_caches_then_models_then_new_work_and_lets_go)
{
    struct machine m;
    struct fixture a;
    struct err e;
    uint32_t retry = 0, want[600];
    machine_open(&m, ACCOUNT_NO_LIMIT, true);
    machine_add_idle(&m, 4 * UNIT_BYTES);
    account_set_limit(ledger_root(test_ledger()), (uint64_t)1 << 40);
    open_engine(&m, &a, TINY("qwen3"), "a");
    fill_cache(&a, 10);
    struct job_spec s = greedy(prompt, 600, 600);
    struct client *c = submit(&a, &s);
    wait_tokens(&a, c, 1);
    assert_false(guard_refuses_work(m.guard, &e, &retry));
    uint64_t cached = info_of(m.holders, "a").now.cached_bytes;
    m.available = (uint64_t)100 << 20; /* with 64 GiB: critical */
    assert_true(has_stage(&m, PRESSURE_REFUSE));
    assert_true(guard_refuses_work(m.guard, &e, &retry) && retry > 0);
    assert_non_null(strstr(e.text, "short of memory"));
    while (m.unloads == 0)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    assert_true(info_of(m.holders, "a").now.cached_bytes < cached);
    /* The running request continues. */
    wait_over(&a, c);
    tokens_alone(TINY("qwen3"), &s, want);
    expect_tokens(c, want, 600);
    m.available = (uint64_t)60 << 30;
    assert_true(has_stage(&m, PRESSURE_UNLOAD));
    assert_false(guard_refuses_work(m.guard, &e, &retry));
    test_engine_close(&a);
    machine_close(&m);
}

TEST_MAIN()
