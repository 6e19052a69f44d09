/* Registry, guard and engines together: several models under a ceiling that does not hold them all. */
#define TEST_SEEDS 2
#include "test_rng.h"
#include "unit/engine/test_engine.h"

#include "base/clock.h"
#include "base/threads/mailbox.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "memory/plan.h"
#include "memory/units.h"
#include "reclaim/guard.h"
#include "reclaim/holders.h"
#include "registry/model_plan.h"
#include "registry/model_settings.h"
#include "registry/registry.h"
#include "weights/model_files.h"

#include <math.h>

#define MODELS  3
#define WAIT_NS (60 * NS_PER_S)
#define CACHE   (16 * (uint64_t)UNIT_BYTES)

static const char *const dirs[MODELS] = {TINY("qwen3"), TINY("llama"), TINY("qwen3_5")};

static struct scene {
    struct holders *holders;
    struct guard *guard;
    struct registry *registry;
    struct account *threads;
    struct model_settings models[MODELS];
} scene;

static int plan(void *arg, struct model_settings *s, struct model_files **ret, struct err *e)
{
    struct model_plan p = {.name = s->id, .queue = 8, .workers = 2, .prefix_cache_bytes = CACHE};
    struct plan_process process = {.ceiling_bytes = (uint64_t)1 << 30};
    struct plan_wish wish = {.max_model_len = 512, .prefix_cache_bytes = CACHE};
    struct plan_refusal why;
    (void)arg, (void)ret;
    struct model_files *files = NULL;
    int r = model_files_open(s->dir, &files, e);
    if (r == 0)
        r = model_plan_probe(&p, files, e);
    model_files_close(files);
    if (r == 0)
        r = plan_make(&process, model_plan_numbers, &p, 4, &wish, &s->plan, &why);
    s->shape = p.shape;
    s->planned = r == 0;
    return r;
}

static void on_changed(void *arg)
{
    (void)arg;
}

static struct model_settings a_model(uint32_t index)
{
    struct model_settings s = {
        .shares = true,
        .tokens_max = model_plan_step_tokens(4, 0),
        .engine = model_plan_engine_opts(4, 8, CACHE, NULL),
        .sampling = {.temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN, .top_k = -1}};
    snprintf(s.id, sizeof(s.id), "%c", 'a' + (int)index);
    snprintf(s.dir, sizeof(s.dir), "%s", dirs[index]);
    s.engine.step_ns = 50 * NS_PER_MS;
    s.engine.step_alone_ns = 100 * NS_PER_MS;
    return s;
}

static void scene_open(void)
{
    struct err e = {""};
    (void)test_model(dirs[0]); /* workers and kernels are its */
    scene = (struct scene){.threads = test_account(ACCOUNT_NO_LIMIT)};
    /* A ceiling is about models here: what threads and clients take is theirs. */
    assert_int_equal(account_set_floor(scene.threads, 32 * UNIT_BYTES), 0);
    for (uint32_t i = 0; i < MODELS; i++)
        scene.models[i] = a_model(i);
    struct holders_opts holders = {test_ledger(), CACHE};
    assert_int_equal(holders_create(&holders, &scene.holders), 0);
    struct guard_opts guard = {.ledger = test_ledger(), .holders = scene.holders, .threads = scene.threads};
    assert_int_equal(guard_create(&guard, &scene.guard), 0);
    struct registry_opts o = {.ledger = test_ledger(),
                              .threads = scene.threads,
                              .holders = scene.holders,
                              .guard = scene.guard,
                              .devices = {test_device},
                              .models = scene.models,
                              .model_count = MODELS,
                              .plan = plan,
                              .drain_ns = 20 * NS_PER_MS,
                              .changed = on_changed};
    if (registry_create(&o, &scene.registry, &e) < 0 || registry_start(scene.registry, &e) < 0)
        fail_msg("%s", e.text);
}

static void scene_close(void)
{
    registry_close(scene.registry);
    guard_free(scene.guard);
    holders_free(scene.holders);
}

static struct registry_info info(uint32_t index)
{
    struct registry_info i;
    registry_info(scene.registry, index, &i);
    return i;
}

static int lease(uint32_t index, struct model_lease *ret, struct registry_failure *why)
{
    int r = registry_lease(scene.registry, index, ret);
    if (r == 0)
        return 0;
    r = registry_want(scene.registry, index, true, why);
    if (r < 0)
        return r;
    while ((r = registry_poll(scene.registry, index, ret, why)) == -EAGAIN)
        usleep(500);
    registry_unwant(scene.registry, index);
    return r;
}

/* Clients of one thread, of whichever engine they are. */
static void crowd_open(struct fixture *f, struct account *text)
{
    *f = (struct fixture){.text = text};
    assert_int_equal(account_set_floor(text, UNIT_BYTES), 0);
    struct mailbox_opts mailbox = {.messages_max = COUNT_OF(f->clients), .message_bytes = sizeof(void *)};
    assert_int_equal(mailbox_create(&mailbox, &f->mailbox), 0);
}

static void crowd_close(struct fixture *f)
{
    free_clients(f);
    mailbox_free(f->mailbox);
}

/* A request of its own for each seed; its finish reason, or the error of the load or the submit. */
static int ask(struct fixture *f, uint32_t index, uint64_t seed, uint32_t tokens)
{
    struct registry_failure why = {0};
    struct err e = {""};
    struct client *c = NULL;
    struct model_lease l;
    uint32_t ids[400], count = 100 + (uint32_t)rng_at(seed, 1000) % 300;
    int r = lease(index, &l, &why);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < count; i++)
        ids[i] = (uint32_t)(rng_at(seed, i) % 500);
    struct job_spec s = greedy(ids, count, tokens);
    f->engine = l.model->engine;
    r = try_submit(f, &s, &c, NULL, &e);
    if (r == 0) {
        wait_over(f, c);
        r = (int)c->finish.reason;
        free_clients(f);
    }
    registry_release(&l);
    return r;
}

static uint64_t reserved(void)
{
    return account_numbers(ledger_root(test_ledger())).reserved;
}

static void unload(uint32_t index)
{
    struct registry_unloading u;
    struct err e;
    uint64_t end_ns = clock_now_ns() + WAIT_NS;
    assert_int_equal(registry_unload(scene.registry, index, false, &u, &e), 0);
    while (info(index).state != MODEL_UNLOADED) {
        assert_true(clock_now_ns() < end_ns);
        usleep(1000);
    }
}

/* ---- */

/* The caches of loaded models go before a loaded model does; and when they do not suffice, an idle one. */
TEST(a_load_takes_caches_first_and_then_an_idle_model)
{
    struct fixture f;
    scene_open();
    crowd_open(&f, test_account(ACCOUNT_NO_LIMIT));
    for (uint64_t seed = 0; seed < 100; seed++)
        assert_int_equal(ask(&f, 0, seed, 4), FINISH_LENGTH);
    assert_int_equal(ask(&f, 1, 1, 4), FINISH_LENGTH);
    uint64_t needed = info(1).needed_bytes;
    unload(1);
    struct holders_numbers before, after;
    holders_numbers(scene.holders, NULL, &before);
    assert_true(before.cached_bytes > 4 * UNIT_BYTES);
    account_set_limit(ledger_root(test_ledger()), reserved() + needed - 2 * UNIT_BYTES);
    assert_int_equal(ask(&f, 1, 1, 4), FINISH_LENGTH);
    assert_int_equal(info(0).state, MODEL_READY);
    holders_numbers(scene.holders, NULL, &after);
    assert_true(after.cached_bytes < before.cached_bytes);
    /* The third load needs one of the models unloaded: nothing else is left. */
    struct holders_reclaimed r;
    holders_reclaim(scene.holders, NULL, HOLDER_CLEAR, WAIT_NS, &r);
    account_set_limit(ledger_root(test_ledger()), reserved() + needed);
    assert_int_equal(ask(&f, 2, 1, 4), FINISH_LENGTH);
    assert_true(info(0).state == MODEL_UNLOADED || info(1).state == MODEL_UNLOADED);
    struct guard_numbers n;
    guard_numbers(scene.guard, &n);
    assert_true(n.cached_bytes > 0 && n.idle_bytes > 0 && n.rooms_made >= 2);
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    crowd_close(&f);
    scene_close();
}

static int refuse_decommit(void *arg)
{
    return atomic_load((atomic_bool *)arg) ? -EINVAL : 0;
}

/* The failure to make impossible: an unload that did not complete, and every next load is refused while a
 * clear says ok and frees nothing. */
TEST(what_an_unload_left_is_seen_freed_by_a_clear_and_hinders_no_load_that_fits)
{
    struct fixture f;
    struct holders_numbers n;
    struct holders_reclaimed r;
    atomic_bool refused = false;
    struct units_faults faults = {refuse_decommit, &refused};
    scene_open();
    crowd_open(&f, test_account(ACCOUNT_NO_LIMIT));
    units_set_faults(&faults);
    for (uint64_t seed = 0; seed < 20; seed++)
        assert_int_equal(ask(&f, 0, seed, 4), FINISH_LENGTH);
    uint64_t needed = info(0).needed_bytes;
    atomic_store(&refused, true);
    unload(0);
    assert_null(account_find(ledger_root(test_ledger()), "a"));
    holders_numbers(scene.holders, NULL, &n);
    assert_true(n.orphans == 1 && n.orphan_bytes > 2 * UNIT_BYTES);
    /* A clear names the holder that failed. */
    holders_reclaim(scene.holders, NULL, HOLDER_CLEAR, WAIT_NS, &r);
    assert_true(r.failed == 1 && strcmp(r.failures[0].name, "a") == 0 && r.bytes == 0);
    /* Where there is room beside the orphan, the model loads again. */
    assert_int_equal(ask(&f, 0, 1, 4), FINISH_LENGTH);
    atomic_store(&refused, false);
    unload(0);
    /* Without that room, the orphan is tried before the load is refused. */
    holders_numbers(scene.holders, NULL, &n);
    assert_int_equal(n.orphans, 1);
    account_set_limit(ledger_root(test_ledger()), reserved() + needed - UNIT_BYTES);
    assert_int_equal(ask(&f, 0, 1, 4), FINISH_LENGTH);
    holders_numbers(scene.holders, NULL, &n);
    assert_true(n.orphans == 0 && n.orphan_bytes == 0);
    assert_null(account_find(ledger_root(test_ledger()), "orphans"));
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    units_set_faults(NULL);
    crowd_close(&f);
    scene_close();
}

/* ---- all at once ---- */

enum { CROWD = 3 };

static struct account *texts[CROWD];
static atomic_uint served, refusals;
static uint64_t crowd_seed;

static void *use_models(void *arg)
{
    uint32_t self = (uint32_t)(uintptr_t)arg;
    struct rng rng = {crowd_seed * CROWD + self, 0};
    struct holders_reclaimed r;
    struct fixture f;
    crowd_open(&f, texts[self]);
    for (int i = 0; i < 14; i++) {
        if (rng_below(&rng, 6) == 0) {
            holders_reclaim(scene.holders, NULL, rng_below(&rng, 2) ? HOLDER_CLEAR : HOLDER_TRIM, WAIT_NS,
                            &r);
            continue;
        }
        int how = ask(&f, (uint32_t)rng_below(&rng, MODELS), rng_below(&rng, 20),
                      1 + (uint32_t)rng_below(&rng, 30));
        /* Refused while others have a lease on the models to unload, or ended by an unload; never out of
         * memory after it was accepted. */
        assert_true(how == FINISH_LENGTH || how == FINISH_SHUTDOWN || how == -ENOMEM || how == -EPIPE);
        atomic_fetch_add(how == FINISH_LENGTH ? &served : &refusals, 1);
    }
    crowd_close(&f);
    return NULL;
}

PROPERTY(models_come_and_go_under_a_ceiling_for_one_and_a_half, seed)
{
    pthread_t threads[CROWD];
    uint64_t most = 0, floors[MODELS];
    struct fixture f;
    scene_open();
    crowd_open(&f, test_account(ACCOUNT_NO_LIMIT));
    for (uint32_t i = 0; i < MODELS; i++) {
        assert_int_equal(ask(&f, i, 1, 2), FINISH_LENGTH);
        floors[i] = info(i).needed_bytes;
        most = MAX_OF(most, floors[i]);
        unload(i);
    }
    crowd_close(&f);
    for (uint32_t i = 0; i < CROWD; i++)
        assert_int_equal(account_set_floor(texts[i] = test_account(ACCOUNT_NO_LIMIT), UNIT_BYTES), 0);
    crowd_seed = seed;
    uint64_t before = reserved();
    account_set_limit(ledger_root(test_ledger()), before + most + most / 2 + (uint64_t)4 * UNIT_BYTES);
    for (uint32_t i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_models, (void *)(uintptr_t)i), 0);
    for (uint32_t i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&served) > 0);
    ledger_check(test_ledger());
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    for (uint32_t i = 0; i < MODELS; i++)
        if (info(i).state == MODEL_READY)
            unload(i);
    struct holders_numbers n;
    holders_numbers(scene.holders, NULL, &n);
    assert_int_equal(n.count, 0);
    scene_close();
}

TEST_MAIN()
