/* Holders of memory: asked by messages, listed from the first byte to the last, and reached by every clear,
 * whichever fails. */
#include "test_domain.h"
#include "test_ledger.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/rng.h"
#include "memory/units.h"
#include "reclaim/holders.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* An owner with a thread that answers, or one that does not. */
struct owner {
    struct holder *h;
    struct holder_numbers has;
    int refuses; /* answer to asks; 0: it takes them */
    bool silent; /* takes them and does not answer until it ends */
    atomic_uint pokes;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct list asks;
    bool ends;
    pthread_t thread;
};

static int take_ask(void *arg, struct holder_ask *a)
{
    struct owner *o = arg;
    if (o->refuses)
        return o->refuses;
    pthread_mutex_lock(&o->lock);
    list_push_back(&o->asks, &a->link);
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return 0;
}

static void take_poke(void *arg)
{
    struct owner *o = arg;
    atomic_fetch_add(&o->pokes, 1);
}

static const struct holder_ops ops = {take_ask, take_poke};

static void answer(struct owner *o, struct holder_ask *a)
{
    uint64_t cached = a->kind == HOLDER_CLEAR           ? o->has.cached_bytes
                      : a->before_ns > o->has.oldest_ns ? MIN_OF(a->bytes, o->has.cached_bytes)
                                                        : 0;
    a->answer = (struct holder_answer){(uint32_t)(cached / 10), cached + o->has.free_bytes};
    o->has.held_bytes -= a->answer.bytes;
    o->has.cached_bytes -= cached;
    o->has.free_bytes = 0;
    holder_publish(o->h, &o->has, clock_now_ns());
    holder_ask_done(a);
}

/* NULL: it ends. Not under its lock is anything done: the list asks under its own. */
static struct holder_ask *next_ask(struct owner *o)
{
    struct holder_ask *a = NULL;
    pthread_mutex_lock(&o->lock);
    while (!o->ends && (o->silent || list_empty(&o->asks)))
        pthread_cond_wait(&o->changed, &o->lock);
    if (!list_empty(&o->asks)) {
        a = LIST_FIRST(&o->asks, struct holder_ask, link);
        list_remove(&a->link);
    }
    pthread_mutex_unlock(&o->lock);
    return a;
}

static void *own(void *arg)
{
    struct owner *o = arg;
    struct holder_ask *a;
    while ((a = next_ask(o)) != NULL)
        answer(o, a);
    return NULL;
}

static void owner_open_in(struct owner *o, struct holders *hs, const struct domain *domain, const char *name,
                          uint64_t cached, uint64_t free)
{
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    list_init(&o->asks);
    assert_int_equal(holder_add(hs, domain, name, &o->h), 0);
    holder_open(o->h, &ops, o);
    uint64_t now_ns = clock_now_ns();
    o->has = (struct holder_numbers){.held_bytes = cached + free,
                                     .free_bytes = free,
                                     .oldest_ns = cached ? now_ns : 0,
                                     .cached_bytes = cached};
    assert_true(holder_allow(o->h, cached, now_ns) >= cached);
    holder_publish(o->h, &o->has, now_ns);
    assert_int_equal(pthread_create(&o->thread, NULL, own, o), 0);
}

static void owner_open(struct owner *o, struct holders *hs, const char *name, uint64_t cached, uint64_t free)
{
    owner_open_in(o, hs, domain_machine(), name, cached, free);
}

static void owner_end(struct owner *o)
{
    pthread_mutex_lock(&o->lock);
    o->ends = true;
    pthread_cond_signal(&o->changed);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
}

static void owner_close(struct owner *o, struct units *const *left, uint32_t count)
{
    owner_end(o);
    holder_close(o->h);
    while (!list_empty(&o->asks))
        own(o);
    holder_remove(o->h, left, count);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->changed);
}

static struct holders *list_of(uint64_t cache_bytes_max)
{
    struct holders *hs = NULL;
    struct holders_opts opts = {test_ledger(), cache_bytes_max};
    assert_int_equal(holders_create(&opts, &hs), 0);
    return hs;
}

static struct holders_numbers numbers(struct holders *hs)
{
    struct holders_numbers n;
    holders_numbers(hs, NULL, &n);
    return n;
}

TEST(a_clear_continues_after_a_failure_and_reports_what_was_freed)
{
    struct owner o[4] = {{0}, {.refuses = -EPIPE}, {.silent = true}, {0}};
    struct holders *hs = list_of(1 << 20);
    const char *const names[] = {"one", "closing", "stuck", "four"};
    for (int i = 0; i < 4; i++)
        owner_open(&o[i], hs, names[i], 1000, 10);
    struct holders_reclaimed r;
    holders_reclaim(hs, NULL, HOLDER_CLEAR, NS_PER_S, &r);
    assert_int_equal(r.entries, 200);
    assert_int_equal(r.bytes, 2020);
    assert_int_equal(r.failed, 2);
    assert_string_equal(r.failures[0].name, "closing");
    assert_int_equal(r.failures[0].error, -EPIPE);
    assert_string_equal(r.failures[1].name, "stuck");
    assert_int_equal(r.failures[1].error, -ETIMEDOUT);
    for (int i = 0; i < 4; i++)
        owner_close(&o[i], NULL, 0);
    assert_int_equal(numbers(hs).count, 0);
    holders_free(hs);
}

static int refuse_decommit(void *arg)
{
    return *(const bool *)arg ? -EINVAL : 0;
}

/* The account of the closed holder is empty; the bytes are listed as an orphan until the system takes
 * them. */
TEST(a_failed_teardown_leaves_an_orphan_that_a_clear_reaches)
{
    struct owner o = {0};
    struct holders *hs = list_of(1 << 20);
    struct account *kv = test_account(ACCOUNT_NO_LIMIT);
    struct units *u = NULL, *none = NULL;
    bool refused = true;
    struct units_faults faults = {refuse_decommit, &refused};
    struct holders_reclaimed r;
    owner_open(&o, hs, "model", 0, 0);
    assert_int_equal(units_create(kv, UNIT_BYTES, 8, &u), 0);
    assert_int_equal(units_create(kv, UNIT_BYTES, 8, &none), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(unit_commit(u, 2 * i), 0);
    units_set_faults(&faults);
    assert_int_equal(units_free(none), 0);
    assert_int_equal(units_free(u), -EINVAL);
    owner_close(&o, &u, 1);
    assert_int_equal(account_numbers(kv).reserved, 0);
    assert_int_equal(account_numbers(ledger_root(test_ledger())).used, 3 * UNIT_BYTES);
    assert_int_equal(numbers(hs).orphans, 1);
    assert_int_equal(numbers(hs).orphan_bytes, 3 * UNIT_BYTES);
    struct holder_info info;
    assert_int_equal(holders_list(hs, &info, 1), 1);
    assert_string_equal(info.name, "model");
    assert_int_equal(info.state, HOLDER_ORPHAN);
    holders_reclaim(hs, NULL, HOLDER_CLEAR, NS_PER_S, &r);
    assert_true(r.failed == 1 && r.failures[0].error == -EINVAL && r.bytes == 0);
    refused = false;
    holders_reclaim(hs, NULL, HOLDER_CLEAR, NS_PER_S, &r);
    assert_true(r.failed == 0 && r.bytes == 3 * UNIT_BYTES);
    assert_int_equal(numbers(hs).count, 0);
    ledger_check(test_ledger());
    units_set_faults(NULL);
    holders_free(hs);
}

TEST(what_the_system_never_takes_does_not_stop_the_end)
{
    struct owner o = {0};
    struct holders *hs = list_of(1 << 20);
    struct units *u = NULL;
    bool refused = true;
    struct units_faults faults = {refuse_decommit, &refused};
    owner_open(&o, hs, "model", 0, 0);
    assert_int_equal(units_create(test_account(ACCOUNT_NO_LIMIT), UNIT_BYTES, 2, &u), 0);
    assert_int_equal(unit_commit(u, 1), 0);
    units_set_faults(&faults);
    assert_int_equal(units_free(u), -EINVAL);
    owner_close(&o, &u, 1);
    holders_free(hs);
    units_set_faults(NULL);
    assert_int_equal(account_numbers(ledger_root(test_ledger())).reserved, 0);
}

TEST(the_stalest_is_found_and_how_far_it_may_be_asked)
{
    struct owner o[3] = {0};
    struct holders *hs = list_of(1 << 20);
    uint64_t id, before_ns, now_ns = clock_now_ns();
    assert_false(holders_stalest(hs, domain_machine(), NULL, 0, now_ns, &id, &before_ns));
    for (int i = 0; i < 3; i++)
        owner_open(&o[i], hs, "o", i < 2 ? 100 : 0, 0);
    struct holder_info info[3];
    assert_int_equal(holders_list(hs, info, 3), 3);
    o[0].has.oldest_ns = now_ns - 5000;
    o[1].has.oldest_ns = now_ns - 9000;
    for (int i = 0; i < 2; i++)
        holder_publish(o[i].h, &o[i].has, now_ns);
    assert_true(holders_stalest(hs, domain_machine(), NULL, 0, now_ns, &id, &before_ns));
    assert_int_equal(id, info[1].id);
    assert_int_equal(before_ns, now_ns - 5000);
    assert_true(holders_stalest(hs, domain_machine(), &info[1].id, 1, now_ns, &id, &before_ns));
    assert_int_equal(id, info[0].id);
    assert_int_equal(before_ns, UINT64_MAX);
    for (int i = 0; i < 3; i++)
        owner_close(&o[i], NULL, 0);
    holders_free(hs);
}

static void count_wanted(void *arg)
{
    atomic_fetch_add((atomic_uint *)arg, 1);
}

TEST(who_wants_memory_is_told_when_there_is_some)
{
    struct owner o[2] = {0};
    struct holders *hs = list_of(1 << 20);
    atomic_uint heard = 0;
    struct holder_want w;
    uint64_t now_ns = 1000 * NS_PER_S;
    for (int i = 0; i < 2; i++)
        owner_open(&o[i], hs, "o", 0, 0);
    assert_false(holder_want(o[0].h, 100, now_ns));
    holders_listen(hs, count_wanted, &heard);
    assert_true(holder_want(o[0].h, 100, now_ns) && holder_want(o[0].h, 100, now_ns + 1));
    assert_int_equal(heard, 1);
    assert_true(holders_next_want(hs, &w));
    assert_int_equal(w.bytes, 100);
    assert_false(holders_next_want(hs, &w));
    assert_true(holder_want(o[0].h, 100, now_ns + 2));
    /* The listener takes too long. */
    assert_false(holder_want(o[0].h, 100, now_ns + 2 * NS_PER_S));
    holders_helped(hs, w.id, 0);
    assert_int_equal(o[0].pokes, 1);
    assert_false(holder_want(o[0].h, 100, now_ns + 3));
    assert_true(holder_want(o[0].h, 100, now_ns + NS_PER_S));
    assert_true(holders_next_want(hs, &w));
    holders_helped(hs, w.id, 50);
    assert_true(holder_want(o[0].h, 100, now_ns + NS_PER_S));
    holders_listen(hs, NULL, NULL);
    for (int i = 0; i < 2; i++)
        owner_close(&o[i], NULL, 0);
    holders_free(hs);
}

/* ---- threads ---- */

enum { COMERS = 3, ROUNDS = 60 };

static void *come_and_go(void *arg)
{
    for (int i = 0; i < ROUNDS; i++) {
        struct owner o = {0};
        owner_open(&o, arg, "comer", 100, 10);
        holder_want(o.h, 5, clock_now_ns());
        owner_close(&o, NULL, 0);
    }
    return NULL;
}

static void *walk(void *arg)
{
    struct holders_reclaimed r;
    for (int i = 0; i < ROUNDS; i++) {
        struct holder_want w;
        holders_reclaim(arg, NULL, i % 2 ? HOLDER_CLEAR : HOLDER_TRIM, i % 3 ? NS_PER_S : 0, &r);
        for (uint32_t k = 0; k < r.failed; k++)
            assert_true(r.failures[k].error == -ETIMEDOUT || r.failures[k].error == -EPIPE);
        if (holders_next_want(arg, &w))
            holders_helped(arg, w.id, w.bytes);
        struct holders_numbers n = numbers(arg);
        assert_true(n.allowed_bytes <= n.cache_bytes_max);
        holders_check(arg);
    }
    return NULL;
}

TEST(owners_come_and_go_while_others_walk)
{
    struct holders *hs = list_of(1000);
    pthread_t threads[COMERS + 2];
    atomic_uint heard = 0;
    holders_listen(hs, count_wanted, &heard);
    for (int i = 0; i < COMERS + 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < COMERS ? come_and_go : walk, hs), 0);
    for (int i = 0; i < COMERS + 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(numbers(hs).count, 0);
    holders_free(hs);
}

/* ---- two domains ---- */

static struct account *open_domain(struct test_domain *t, struct holders *hs, uint64_t cache_bytes_max)
{
    struct account *root = NULL;
    const struct domain *d = test_domain_init(t, "test:0");
    assert_int_equal(ledger_open_root(test_ledger(), d, ACCOUNT_NO_LIMIT, &root), 0);
    holders_add_domain(hs, d, cache_bytes_max);
    return root;
}

static struct holders_numbers numbers_in(struct holders *hs, const struct domain *domain)
{
    struct holders_numbers n;
    holders_numbers(hs, domain, &n);
    return n;
}

TEST(each_domain_has_a_budget_of_its_own)
{
    struct owner machine = {0}, first = {0}, second = {0};
    struct test_domain t = {0};
    struct holders *hs = list_of(1000);
    struct account *root = open_domain(&t, hs, 300);
    uint64_t now_ns = clock_now_ns();
    owner_open(&machine, hs, "machine", 900, 0);
    owner_open_in(&first, hs, &t.domain, "first", 250, 0);
    /* The machine's budget is nearly used up, which is nothing to the others; their own is. */
    owner_open_in(&second, hs, &t.domain, "second", 0, 0);
    uint64_t allowed = holder_allow(second.h, 500, now_ns + 1);
    assert_true(allowed <= 50 && first.pokes > 0 && machine.pokes == 0);
    assert_true(numbers_in(hs, &t.domain).allowed_bytes <= 300);
    assert_int_equal(numbers_in(hs, &t.domain).cached_bytes, 250);
    assert_int_equal(numbers_in(hs, &t.domain).count, 2);
    assert_int_equal(numbers_in(hs, domain_machine()).cached_bytes, 900);
    assert_int_equal(numbers_in(hs, domain_machine()).cache_bytes_max, 1000);
    assert_int_equal(numbers(hs).cache_bytes_max, 1300);
    holders_check(hs);
    owner_close(&machine, NULL, 0);
    owner_close(&first, NULL, 0);
    owner_close(&second, NULL, 0);
    holders_free(hs);
    account_close(root);
}

TEST(what_is_stale_wanted_or_reclaimed_is_of_one_domain)
{
    struct owner machine = {0}, device = {0};
    struct test_domain t = {0};
    struct holders *hs = list_of(1000);
    struct account *root = open_domain(&t, hs, 1000);
    struct holders_reclaimed r;
    struct holder_want w;
    atomic_uint heard = 0;
    uint64_t id, before_ns, now_ns = clock_now_ns();
    owner_open(&machine, hs, "machine", 100, 10);
    owner_open_in(&device, hs, &t.domain, "device", 100, 10);
    struct holder_info info[2];
    holders_list(hs, info, 2);
    assert_true(info[0].domain == domain_machine() && info[1].domain == &t.domain);
    assert_true(holders_stalest(hs, &t.domain, NULL, 0, now_ns + NS_PER_S, &id, &before_ns));
    assert_int_equal(id, info[1].id);
    assert_int_equal(before_ns, UINT64_MAX);
    holders_listen(hs, count_wanted, &heard);
    assert_true(holder_want(device.h, 7, now_ns));
    assert_true(holders_next_want(hs, &w));
    assert_true(w.id == info[1].id && w.bytes == 7 && w.domain == &t.domain);
    holders_helped(hs, w.id, 7);
    holders_listen(hs, NULL, NULL);
    holders_reclaim(hs, &t.domain, HOLDER_CLEAR, NS_PER_S, &r);
    assert_int_equal(r.bytes, 110);
    assert_int_equal(numbers_in(hs, &t.domain).cached_bytes, 0);
    assert_int_equal(numbers_in(hs, domain_machine()).cached_bytes, 100);
    owner_close(&machine, NULL, 0);
    owner_close(&device, NULL, 0);
    holders_free(hs);
    account_close(root);
}

TEST(orphans_are_charged_to_their_domain)
{
    struct owner o = {0};
    struct test_domain t = {0};
    struct holders *hs = list_of(1000);
    struct account *root = open_domain(&t, hs, 1000), *kv = NULL;
    struct holders_reclaimed r;
    struct units *u = NULL;
    assert_int_equal(account_open(root, "kv", ACCOUNT_ANON, ACCOUNT_NO_LIMIT, &kv), 0);
    owner_open_in(&o, hs, &t.domain, "device", 0, 0);
    assert_int_equal(units_create(kv, UNIT_BYTES, 4, &u), 0);
    assert_int_equal(unit_commit(u, 2), 0);
    t.stuck = 1;
    assert_int_equal(units_free(u), -EINVAL);
    owner_close(&o, &u, 1);
    account_close(kv);
    assert_int_equal(account_numbers(account_find(root, "orphans")).used, UNIT_BYTES);
    assert_null(account_find(ledger_root(test_ledger()), "orphans"));
    assert_int_equal(numbers_in(hs, &t.domain).orphan_bytes, UNIT_BYTES);
    assert_int_equal(numbers_in(hs, domain_machine()).orphans, 0);
    holders_check(hs);
    holders_reclaim(hs, domain_machine(), HOLDER_CLEAR, NS_PER_S, &r);
    assert_int_equal(r.bytes + r.failed, 0);
    t.stuck = 0;
    holders_reclaim(hs, NULL, HOLDER_CLEAR, NS_PER_S, &r);
    assert_int_equal(r.bytes, UNIT_BYTES);
    assert_int_equal(t.open, 0);
    holders_free(hs);
    account_close(root);
}

TEST_MAIN()
