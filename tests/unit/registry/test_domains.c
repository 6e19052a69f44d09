/* Two domains of memory: the machine's, and plain memory with a ceiling of its own, in which engines have
 * their pools. A shortage of one is served by holders of the same one. */
#define TEST_SEEDS 3
#include "test_rng.h"
#include "test_domain.h"
#include "test_machine.h"

struct second {
    struct test_domain memory;
    struct account *root;
};

/* After machine_open(). */
static void second_open(struct second *d, struct machine *m, uint64_t ceiling_bytes)
{
    *d = (struct second){0};
    const struct domain *domain = test_domain_init(&d->memory, "test:0");
    assert_int_equal(ledger_open_root(test_ledger(), domain, ceiling_bytes, &d->root), 0);
    holders_add_domain(m->holders, domain, (uint64_t)1 << 30);
}

/* After machine_close(): nothing of it is left. */
static void second_done(struct second *d)
{
    assert_int_equal(account_numbers(d->root).used, d->memory.open);
    assert_int_equal(d->memory.open + d->memory.ranges, 0);
    account_close(d->root);
}

static struct account *account_on(struct second *d, const char *name)
{
    struct account *a = NULL;
    assert_int_equal(account_open(d->root, name, ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &a), 0);
    return a;
}

struct placed {
    struct fixture f;
    struct account *account; /* account of its pools */
};

static void open_on(struct second *d, struct machine *m, struct placed *p, const char *dir, const char *name)
{
    struct engine_opts o = test_engine_opts(dir);
    o.name = name;
    o.holders = m->holders;
    o.device_parent = p->account = account_on(d, name);
    o.kv_bytes_max = 64 * UNIT_BYTES;
    o.prefix_cache_bytes = 64 * UNIT_BYTES;
    test_engine_start(&p->f, dir, &o);
}

static void close_on(struct placed *p)
{
    test_engine_close(&p->f);
    account_close(p->account);
}

static uint64_t cached(struct machine *m, const char *name)
{
    return info_of(m->holders, name).now.cached_bytes;
}

static uint64_t reserved(struct account *a)
{
    return account_numbers(a).reserved;
}

TEST(an_engine_has_its_pools_in_the_memory_of_its_device)
{
    struct machine m;
    struct second d;
    struct placed a;
    uint32_t want[2], ids[LONG];
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    second_open(&d, &m, 64 * UNIT_BYTES);
    open_on(&d, &m, &a, TINY("qwen3_5"), "a");
    fill_cache(&a.f, 4);
    wait_until(&a.f, is_at_rest, NULL);
    assert_true(cached(&m, "a") > 0 && numbers(&a.f).domain == &d.memory.domain);
    assert_int_equal(info_of(m.holders, "a").now.held_bytes, d.memory.open);
    assert_int_equal(account_numbers(d.root).used, d.memory.open);
    assert_null(account_find(a.f.account, "pools"));
    assert_int_equal(account_numbers(account_find(a.account, "kv")).class, ACCOUNT_DEVICE);
    struct job_spec s = spec_of(ids, 0, LONG, 2);
    tokens_alone(TINY("qwen3_5"), &s, want);
    expect_tokens(a.f.clients[0], want, 2);
    close_on(&a);
    machine_close(&m);
    second_done(&d);
}

/* Caches and idle models in both domains; each load is refused, or takes from its own. */
TEST(a_load_takes_from_its_own_domain)
{
    struct machine m;
    struct second d;
    struct fixture a;
    struct placed b;
    struct guard_refusal why;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    second_open(&d, &m, 64 * UNIT_BYTES);
    open_engine(&m, &a, TINY("qwen3"), "a");
    open_on(&d, &m, &b, TINY("qwen3"), "b");
    fill_cache(&a, 20);
    fill_cache(&b.f, 20);
    wait_until(&a, is_at_rest, NULL);
    wait_until(&b.f, is_at_rest, NULL);
    machine_add_idle(&m, 16 * UNIT_BYTES);
    uint64_t of_a = cached(&m, "a"), of_b = cached(&m, "b");
    assert_true(of_a > 4 * UNIT_BYTES && of_b > 4 * UNIT_BYTES);
    account_set_limit(d.root, reserved(d.root) + UNIT_BYTES);
    struct load l = {account_on(&d, "new"), 3 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &l, &why), 0);
    assert_true(cached(&m, "b") < of_b && cached(&m, "a") == of_a && m.unloads == 0);
    /* The machine has room and an idle model: neither helps, and no cache is dropped for nothing. */
    of_b = cached(&m, "b");
    struct load large = {account_on(&d, "large"), 100 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &large, &why), -ENOMEM);
    assert_true(cached(&m, "b") == of_b && cached(&m, "a") == of_a && m.unloads == 0);
    assert_string_equal(why.binding, "test:0");
    assert_ptr_equal(why.domain, &d.memory.domain);
    assert_int_equal(why.ceiling_bytes, account_numbers(d.root).limit);
    assert_int_equal(why.idle_bytes, 0);
    assert_int_equal(why.cached_bytes, of_b);
    assert_non_null(strstr(why.text, "bytes device test:0 would hold"));
    assert_non_null(strstr(why.text, "--device-memory-limit"));
    /* The machine's memory likewise. */
    struct account *machine = ledger_root(test_ledger());
    account_set_limit(machine, reserved(machine) + UNIT_BYTES);
    struct load own = {test_account(ACCOUNT_NO_LIMIT), 3 * UNIT_BYTES, 0};
    assert_int_equal(make_room(&m, &own, &why), 0);
    assert_true(cached(&m, "a") < of_a && cached(&m, "b") == of_b);
    account_set_limit(machine, ACCOUNT_NO_LIMIT);
    account_set_floor(own.account, 0);
    account_close(l.account);
    account_close(large.account);
    test_engine_close(&a);
    close_on(&b);
    machine_close(&m);
    second_done(&d);
}

/* All memory of the device is in the cache of one engine, and the machine's caches are full too. */
TEST(an_engine_gets_units_from_engines_of_its_device)
{
    struct machine m;
    struct second d;
    struct fixture a;
    struct placed b, c;
    uint32_t ids[LONG], want[60];
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    second_open(&d, &m, ACCOUNT_NO_LIMIT);
    open_engine(&m, &a, TINY("qwen3"), "a");
    open_on(&d, &m, &b, TINY("qwen3"), "b");
    open_on(&d, &m, &c, TINY("qwen3_5"), "c");
    fill_cache(&a, 6);
    fill_cache(&b.f, 20);
    wait_until(&a, is_at_rest, NULL);
    wait_until(&b.f, is_at_rest, NULL);
    uint64_t of_a = cached(&m, "a"), of_b = cached(&m, "b");
    account_set_limit(d.root, reserved(d.root) + UNIT_BYTES);
    struct job_spec s = spec_of(ids, 99, LONG, 60);
    for (uint32_t i = 0; i < 4; i++) {
        ids[0] = i;
        submit(&c.f, &s);
    }
    wait_all(&c.f);
    assert_true(cached(&m, "b") < of_b && cached(&m, "a") == of_a);
    tokens_alone(TINY("qwen3_5"), &s, want);
    expect_tokens(c.f.clients[3], want, 60);
    test_engine_close(&a);
    close_on(&b);
    close_on(&c);
    machine_close(&m);
    second_done(&d);
}

/* The system is short of the machine's memory. Caches on a device would not help. */
TEST(pressure_of_the_system_leaves_devices_alone)
{
    struct machine m;
    struct second d;
    struct fixture a;
    struct placed b;
    machine_open(&m, ACCOUNT_NO_LIMIT, true);
    second_open(&d, &m, 64 * UNIT_BYTES);
    open_engine(&m, &a, TINY("qwen3"), "a");
    open_on(&d, &m, &b, TINY("qwen3"), "b");
    fill_cache(&a, 6);
    fill_cache(&b.f, 6);
    wait_until(&a, is_at_rest, NULL);
    wait_until(&b.f, is_at_rest, NULL);
    uint64_t of_b = cached(&m, "b");
    assert_true(of_b > 0 && cached(&m, "a") > 0);
    m.available = (uint64_t)100 << 20; /* with 64 GiB: critical */
    for (int i = 0; i < 60000 && cached(&m, "a") > 0; i++)
        usleep(1000);
    assert_int_equal(cached(&m, "a"), 0);
    assert_int_equal(cached(&m, "b"), of_b);
    test_engine_close(&a);
    close_on(&b);
    machine_close(&m);
    second_done(&d);
}

/* A device that refuses commits and keeps units: requests get their tokens, and all of its memory is given
 * back in the end. */
PROPERTY(a_device_that_fails_changes_no_token, seed)
{
    enum { COUNT = 12 };
    struct machine m;
    struct second d;
    struct placed a;
    struct rng rng = {seed, 0};
    uint32_t ids[COUNT][LONG], want[60];
    struct job_spec specs[COUNT];
    struct holders_reclaimed r;
    machine_open(&m, ACCOUNT_NO_LIMIT, false);
    second_open(&d, &m, 24 * UNIT_BYTES);
    open_on(&d, &m, &a, TINY("qwen3_5"), "a");
    d.memory.rng = (struct rng){seed, 1};
    d.memory.no_memory = 0.2;
    for (int i = 0; i < COUNT; i++) {
        uint32_t count = 1 + (uint32_t)rng_below(&rng, 700);
        specs[i] = spec_of(ids[i], rng_below(&rng, 5), count, 1 + (uint32_t)rng_below(&rng, 60));
        submit(&a.f, &specs[i]);
    }
    wait_all(&a.f);
    ledger_check(test_ledger());
    uint32_t done = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct client *c = a.f.clients[i];
        assert_true(c->finish.reason == FINISH_LENGTH || c->finish.reason == FINISH_ERROR);
        tokens_alone(TINY("qwen3_5"), &specs[i], want);
        assert_memory_equal(c->ids, want, c->count * sizeof(want[0]));
        done += c->finish.reason == FINISH_LENGTH;
    }
    assert_true(done > 0);
    wait_until(&a.f, is_at_rest, NULL);
    d.memory.stuck = 0.5;
    test_engine_close(&a.f);
    account_close(a.account);
    holders_check(m.holders);
    d.memory.stuck = 0;
    holders_reclaim(m.holders, NULL, HOLDER_CLEAR, NS_PER_S, &r);
    machine_close(&m);
    second_done(&d);
}

TEST_MAIN()
