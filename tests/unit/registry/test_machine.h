/* test_machine.h - a machine: a ceiling, a list of holders, a guard, and models that could be unloaded. */
#ifndef PLATEAU_TESTS_TEST_MACHINE_H
#define PLATEAU_TESTS_TEST_MACHINE_H

#include "unit/engine/test_engine_scene.h"

#include "memory/footprint.h"
#include "reclaim/guard.h"
#include "reclaim/holders.h"

#define LONG 1000

struct machine {
    struct holders *holders;
    struct guard *guard;
    struct account *idle; /* an idle model's, and what it holds */
    uint64_t idle_bytes;
    atomic_uint unloads;
    /* Figures of the system. */
    _Atomic uint64_t available;
    atomic_uint looks;
};

static inline uint64_t idle_bytes(void *arg, const struct domain *domain)
{
    struct machine *m = arg;
    return m->idle && account_domain(m->idle) == domain ? m->idle_bytes : 0;
}

static inline uint64_t free_idle(void *arg, const struct domain *domain, uint64_t bytes, const char *name)
{
    (void)name;
    struct machine *m = arg;
    struct account_numbers root = account_numbers(ledger_root_of(test_ledger(), domain));
    if (idle_bytes(arg, domain) == 0 || root.limit - root.reserved + m->idle_bytes < bytes)
        return 0;
    uint64_t given = m->idle_bytes;
    account_release(m->idle, given);
    m->idle_bytes = 0;
    atomic_fetch_add(&m->unloads, 1);
    return given;
}

static inline void read_machine(void *arg, struct footprint *ret)
{
    struct machine *m = arg;
    *ret = (struct footprint){.ram_bytes = (uint64_t)64 << 30,
                              .ram_available_bytes = atomic_load(&m->available)};
    atomic_fetch_add(&m->looks, 1);
}

static inline void machine_open(struct machine *m, uint64_t ceiling_bytes, bool watches)
{
    *m = (struct machine){.available = (uint64_t)60 << 30};
    struct holders_opts holders = {test_ledger(), (uint64_t)1 << 30};
    assert_int_equal(holders_create(&holders, &m->holders), 0);
    struct guard_opts opts = {.ledger = test_ledger(),
                              .holders = m->holders,
                              .threads = test_account(ACCOUNT_NO_LIMIT),
                              .watches_system = watches,
                              .read = read_machine,
                              .read_arg = m,
                              .look_ns = 20 * NS_PER_MS};
    assert_int_equal(guard_create(&opts, &m->guard), 0);
    struct guard_models models = {idle_bytes, free_idle, m};
    guard_set_models(m->guard, &models);
    account_set_limit(ledger_root(test_ledger()), ceiling_bytes);
}

static inline void machine_add_idle(struct machine *m, uint64_t bytes)
{
    m->idle = test_account(ACCOUNT_NO_LIMIT);
    assert_int_equal(account_reserve(m->idle, bytes), 0);
    m->idle_bytes = bytes;
}

static inline void machine_close(struct machine *m)
{
    if (m->idle_bytes > 0)
        account_release(m->idle, m->idle_bytes);
    guard_set_models(m->guard, NULL);
    guard_free(m->guard);
    holders_free(m->holders);
}

static inline void open_engine(struct machine *m, struct fixture *f, const char *dir, const char *name)
{
    struct engine_opts o = test_engine_opts(dir);
    o.name = name;
    o.holders = m->holders;
    o.kv_bytes_max = 64 * UNIT_BYTES;
    o.prefix_cache_bytes = 64 * UNIT_BYTES;
    test_engine_start(f, dir, &o);
}

static inline struct job_spec spec_of(uint32_t *ids, uint64_t seed, uint32_t count, uint32_t tokens)
{
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (uint32_t)(rng_at(seed, i) % 500);
    return greedy(ids, count, tokens);
}

static inline void fill_cache(struct fixture *f, uint32_t prompts)
{
    uint32_t ids[LONG];
    for (uint64_t seed = 0; seed < prompts; seed++) {
        struct job_spec s = spec_of(ids, seed, LONG, 2);
        wait_over(f, submit(f, &s));
    }
}

struct load {
    struct account *account;
    uint64_t bytes;
    uint32_t tries;
};

static inline int take(void *arg)
{
    struct load *l = arg;
    l->tries++;
    return account_set_floor(l->account, l->bytes);
}

static inline int make_room(struct machine *m, struct load *l, struct guard_refusal *why)
{
    struct guard_wish w = {.name = "new", .bytes = l->bytes, .account = l->account, .take = take, .arg = l};
    return guard_reclaim(m->guard, &w, why);
}

#endif
