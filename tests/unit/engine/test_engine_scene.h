/* test_engine_scene.h - engines to which something happens, and what they should be like afterwards. */
#ifndef PLATEAU_TESTS_TEST_ENGINE_SCENE_H
#define PLATEAU_TESTS_TEST_ENGINE_SCENE_H

#include "test_engine.h"
#include "test_engine_orders.h"

#include "memory/accounts.h"
#include "memory/units.h"
#include "reclaim/holders.h"

#define ANSWER 40 /* tokens of a request that asks whether the engine goes on */

static uint32_t prompt[2000];

__attribute__((constructor)) static void fill_prompt(void)
{
    for (uint32_t i = 0; i < COUNT_OF(prompt); i++)
        prompt[i] = (i * 37 + i * i) % 500;
}

static struct gate gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static const struct engine_faults step_faults = {.step = gate_step, .arg = &gate};

static inline struct engine_opts gated(const char *dir)
{
    struct engine_opts o = test_engine_opts(dir);
    o.faults = &step_faults;
    return o;
}

/* ---- looking ---- */

static inline struct engine_numbers numbers(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n;
}

struct watch {
    struct request_id id;
    enum job_phase phase;
};

static inline bool is_in_phase(struct fixture *f, void *arg)
{
    const struct watch *w = arg;
    struct job_numbers jobs[16];
    uint32_t count = engine_jobs(f->engine, jobs, 16);
    for (uint32_t i = 0; i < MIN_OF(count, 16u); i++)
        if (memcmp(&jobs[i].id, &w->id, sizeof(w->id)) == 0)
            return jobs[i].phase == w->phase;
    return false;
}

static inline void wait_phase(struct fixture *f, const struct client *c, enum job_phase phase)
{
    struct watch w = {stream_id(c->stream), phase};
    wait_until(f, is_in_phase, &w);
}

static inline bool is_empty(struct fixture *f, void *arg)
{
    struct engine_numbers n = numbers(f);
    (void)arg;
    return n.idle && n.pages_committed == 0 && n.running == 0 && n.waiting == 0;
}

/* ---- doing ---- */

static inline void abort_client(struct fixture *f, struct client *c)
{
    stream_close(c->stream);
    engine_wake(f->engine);
}

static inline void all_hear(struct fixture *f)
{
    for (uint32_t i = 0; i < f->client_count; i++)
        undeafen(f->clients[i]);
}

/* ---- afterwards ---- */

struct account_list {
    struct account_numbers all[48];
    uint32_t count;
    char text[2048];
};

static inline void list_account(void *arg, const struct account_numbers *n)
{
    struct account_list *l = arg;
    assert_true(l->count < COUNT_OF(l->all));
    l->all[l->count++] = *n;
}

/* The account at `index` counts as not used, there and in the accounts above it, which come before it. */
static inline void list_without(struct account_list *l, uint32_t index)
{
    uint64_t used = l->all[index].used;
    uint32_t below = l->all[index].depth + 1u;
    for (uint32_t i = index + 1; i-- > 0;)
        if (l->all[i].depth < below) {
            l->all[i].used -= used;
            below = l->all[i].depth;
        }
}

/* Which steps are recorded depends on the batches. */
static inline struct account_list list_accounts(void)
{
    struct account_list l = {.count = 0};
    ledger_walk(test_ledger(), list_account, &l);
    for (uint32_t i = 0; i < l.count; i++)
        if (accounts_of(l.all[i].name) == ACCOUNT_RECORDED_STEPS)
            list_without(&l, i);
    for (uint32_t i = 0; i < l.count; i++) {
        const struct account_numbers *n = &l.all[i];
        size_t at = strlen(l.text);
        snprintf(l.text + at, sizeof(l.text) - at, "%s %llu %llu\n", n->name, (unsigned long long)n->reserved,
                 (unsigned long long)n->used);
    }
    return l;
}

/* Clients are freed, no request is left and nothing is cached: all accounts are the same as before. */
static inline void expect_settled(struct fixture *f, const struct account_list *before)
{
    struct test_cleared cleared;
    free_clients(f);
    assert_int_equal(test_clear(f->engine, &cleared), 0);
    wait_until(f, is_empty, NULL);
    assert_int_equal(engine_jobs(f->engine, NULL, 0), 0);
    assert_string_equal(list_accounts().text, before->text);
}

/* Computes a request's tokens on an engine to which nothing happens. */
static inline void tokens_alone(const char *dir, const struct job_spec *s, uint32_t *ret)
{
    struct fixture f;
    struct engine_opts o = test_engine_opts(dir);
    test_engine_start(&f, dir, &o);
    struct client *c = submit(&f, s);
    wait_over(&f, c);
    assert_int_equal(c->count, s->max_tokens);
    memcpy(ret, c->ids, c->count * sizeof(*ret));
    test_engine_close(&f);
}

static inline void expect_goes_on(struct fixture *f, const struct job_spec *s, const uint32_t *want)
{
    struct client *c = submit(f, s);
    wait_over(f, c);
    assert_int_equal(c->finish.reason, FINISH_LENGTH);
    expect_tokens(c, want, s->max_tokens);
}

static inline bool is_at_rest(struct fixture *f, void *arg)
{
    (void)arg;
    return numbers(f).idle && numbers(f).pending_trim_bytes == 0;
}

static inline struct holder_info info_of(struct holders *hs, const char *name)
{
    struct holder_info all[8];
    uint32_t count = holders_list(hs, all, COUNT_OF(all));
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i];
    fail_msg("no holder %s", name);
    return all[0];
}

#endif
