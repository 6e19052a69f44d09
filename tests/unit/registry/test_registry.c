/* The registry: one load for all that wait, nothing left of failures and unloads, room made by idle
 * models. */
#include "test_registry.h"

#include "engine/engine_state.h" /* engine_fail() */
#include "registry/model_settings.h"

/* ---- loading ---- */

TEST(nothing_is_loaded_until_somebody_wants_it)
{
    struct model_lease l;
    scene_set();
    scene_open();
    for (uint32_t i = 0; i < MODELS; i++) {
        assert_int_equal(info(i).state, MODEL_UNLOADED);
        assert_int_equal(registry_lease(scene.registry, i, &l), -EAGAIN);
        assert_int_equal(registry_peek(scene.registry, i, &l), -EAGAIN);
    }
    load(0);
    assert_int_equal(info(0).state, MODEL_READY);
    assert_int_equal(info(1).state, MODEL_UNLOADED);
    assert_int_equal(registry_lease(scene.registry, 0, &l), 0);
    assert_string_equal(l.model->id, "a");
    assert_int_equal(l.model->max_model_len, 256);
    assert_int_equal(info(0).leases, 1);
    registry_release(&l);
    registry_release(&l);
    assert_int_equal(info(0).leases, 0);
    scene_close();
}

TEST(names_and_aliases_lead_to_one_model_and_clash_loudly)
{
    struct err e = {""};
    scene_set();
    scene.models[1].aliases[0] = "default";
    scene.models[1].alias_count = 1;
    scene_open();
    assert_int_equal(registry_find(scene.registry, SLICE("default")), 1);
    assert_int_equal(registry_find(scene.registry, SLICE("c")), 2);
    assert_int_equal(registry_find(scene.registry, SLICE("d")), -1);
    assert_int_equal(registry_find(scene.registry, (struct slice){0}), 0);
    scene_close();
    scene_set();
    scene.models[2].aliases[0] = "a";
    scene.models[2].alias_count = 1;
    assert_int_equal(scene_try(&e), -EEXIST);
    assert_non_null(strstr(e.text, "two models are called a"));
}

TEST(all_who_wait_share_one_load)
{
    struct registry_failure why;
    struct model_lease l[5];
    scene_set();
    scene_open();
    set_gate(true);
    for (int i = 0; i < 5; i++)
        assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    wait_at_gate(1);
    assert_int_equal(info(0).state, MODEL_LOADING);
    assert_int_equal(info(0).waiters, 5);
    assert_true(info(0).bytes_total > 0);
    set_gate(false);
    for (int i = 0; i < 5; i++)
        assert_int_equal(wait_for(0, &l[i], &why), 0);
    assert_int_equal(info(0).leases, 5);
    assert_int_equal(info(0).loads, 1);
    for (int i = 0; i < 5; i++)
        registry_release(&l[i]);
    scene_close();
}

TEST(a_load_stops_when_the_last_waiter_leaves_and_leaves_nothing)
{
    struct registry_failure why;
    scene_set();
    scene_open();
    uint64_t before = held();
    uint32_t threads = entries_of("/proc/self/task"), fds = entries_of("/proc/self/fd");
    set_gate(true);
    assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    wait_at_gate(1);
    registry_unwant(scene.registry, 0);
    assert_int_equal(info(0).state, MODEL_LOADING);
    registry_unwant(scene.registry, 0);
    set_gate(false);
    wait_state(0, MODEL_UNLOADED);
    wait_threads(threads);
    assert_int_equal(held(), before);
    assert_int_equal(entries_of("/proc/self/fd"), fds);
    assert_int_equal(info(0).failures, 0);
    load(0);
    scene_close();
}

TEST(who_comes_while_a_load_stops_gets_another)
{
    struct registry_failure why;
    struct model_lease l;
    scene_set();
    scene_open();
    set_gate(true);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
        wait_at_gate(1);
        registry_unwant(scene.registry, 0);
        assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
        set_gate(false);
        assert_int_equal(wait_for(0, &l, &why), 0);
        registry_release(&l);
        unload(0);
        set_gate(true);
    }
    set_gate(false);
    scene_close();
}

TEST(loads_of_several_models_do_not_wait_for_each_other)
{
    struct registry_failure why;
    struct model_lease l;
    scene_set();
    scene_open();
    set_gate(true);
    for (uint32_t i = 0; i < MODELS; i++)
        assert_int_equal(registry_want(scene.registry, i, false, &why), 0);
    wait_at_gate(MODELS);
    set_gate(false);
    for (uint32_t i = 0; i < MODELS; i++) {
        assert_int_equal(wait_for(i, &l, &why), 0);
        registry_release(&l);
    }
    scene_close();
}

TEST(what_is_to_be_loaded_at_the_start_is)
{
    struct registry_failure why;
    uint32_t index = 99;
    int r;
    scene_set();
    scene.models[0].preload = scene.models[2].preload = true;
    scene_open();
    while ((r = registry_started(scene.registry, &index, &why)) == -EAGAIN)
        usleep(1000);
    assert_int_equal(r, 0);
    assert_int_equal(info(0).state, MODEL_READY);
    assert_int_equal(info(1).state, MODEL_UNLOADED);
    assert_int_equal(info(2).state, MODEL_READY);
    scene_close();
    scene_set();
    scene.models[0].preload = scene.models[1].preload = true;
    snprintf(scene.models[1].dir, sizeof(scene.models[1].dir), "/nowhere");
    scene_open();
    while ((r = registry_started(scene.registry, &index, &why)) == -EAGAIN)
        usleep(1000);
    assert_int_equal(r, -ENOENT);
    assert_int_equal(index, 1);
    scene_close();
}

/* An engine that failed refuses jobs, so it gets no leases in the moment until the registry closes it. */
TEST(a_model_whose_device_failed_takes_no_request_and_is_loaded_anew)
{
    struct registry_failure why = {0};
    struct model_lease l, none;
    scene_set();
    scene_open();
    assert_int_equal(use(0, false, &l, &why), 0);
    for (uint32_t i = 1; i <= 5; i++) {
        assert_int_equal(info(0).loads, i);
        engine_fail(l.model->engine, i % 2 ? -ENODEV : -EIO);
        assert_int_equal(registry_lease(scene.registry, 0, &none), -EAGAIN);
        assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
        assert_int_equal(registry_poll(scene.registry, 0, &none, &why), -EAGAIN);
        registry_release(&l);
        assert_int_equal(wait_for(0, &l, &why), 0);
        assert_int_equal(engine_failure(l.model->engine), 0);
    }
    registry_release(&l);
    scene_close();
}

/* ---- failing ---- */

TEST(a_failed_load_is_remembered_until_the_files_change_or_the_operator_asks)
{
    struct registry_failure why = {0};
    struct model_lease l;
    scene_set();
    const char *dir = test_dir();
    snprintf(scene.models[0].dir, sizeof(scene.models[0].dir), "%s", dir);
    scene_open();
    uint64_t before = held();
    assert_int_equal(use(0, false, &l, &why), -ENOENT);
    assert_int_equal(info(0).state, MODEL_FAILED);
    assert_true(strlen(info(0).reason) > 0);
    assert_int_equal(info(0).failures, 1);
    memset(&why, 0, sizeof(why));
    assert_int_equal(use(0, false, &l, &why), -ENOENT);
    assert_true(why.retry_after_s > 20 && why.retry_after_s <= 30 && why.e.text[0]);
    assert_int_equal(info(0).failures, 1);
    assert_int_equal(use(0, true, &l, &why), -ENOENT);
    assert_int_equal(info(0).failures, 2);
    test_write_file(dir, "config.json", "{}", 2);
    assert_true(use(0, false, &l, &why) < 0);
    assert_int_equal(info(0).failures, 3);
    assert_int_equal(held(), before);
    load(1);
    scene_close();
}

static const char *const load_steps[] = {"account", "room",   "tokenizer", "template", "defaults",
                                         "weights", "engine", "limits",    "start"};
static const char *const close_steps[] = {"close engine", "free weights", "free tokenizer", "close account"};

static void set_failing(const char *step)
{
    pthread_mutex_lock(&scene.lock);
    scene.failing_step = step;
    scene.steps_asked = 0;
    pthread_mutex_unlock(&scene.lock);
}

TEST(each_step_of_a_load_fails_once_and_leaves_nothing_and_the_next_load_succeeds)
{
    struct registry_failure why;
    struct model_lease l;
    scene_set();
    scene_open();
    load(1);
    uint64_t before = held(); /* which waits */
    uint32_t threads = entries_of("/proc/self/task"), fds = entries_of("/proc/self/fd");
    for (size_t i = 0; i < COUNT_OF(load_steps); i++) {
        set_failing(load_steps[i]);
        assert_int_equal(use(0, true, &l, &why), -EIO);
        assert_non_null(strstr(why.e.text, load_steps[i]));
        assert_int_equal(scene.steps_asked, 1);
        set_failing(NULL);
        wait_threads(threads);
        assert_int_equal(held(), before);
        assert_int_equal(entries_of("/proc/self/fd"), fds);
        /* Other models are served as before. */
        assert_int_equal(registry_lease(scene.registry, 1, &l), 0);
        registry_release(&l);
        assert_int_equal(use(0, true, &l, &why), 0);
        registry_release(&l);
        unload(0);
        wait_threads(threads);
        assert_int_equal(held(), before);
    }
    scene_close();
}

TEST(each_step_of_an_unload_reports_a_failure_and_the_others_run_all_the_same)
{
    struct registry_returned returned;
    scene_set();
    scene_open();
    uint64_t before = held();
    uint32_t threads = entries_of("/proc/self/task"), fds = entries_of("/proc/self/fd");
    for (size_t i = 0; i < COUNT_OF(close_steps); i++) {
        load(0);
        set_failing(close_steps[i]);
        unload(0);
        assert_true(registry_unloaded(scene.registry, 0, info(0).unloads, &returned));
        assert_non_null(strstr(returned.trouble, close_steps[i]));
        assert_int_equal(scene.steps_asked, 1);
        assert_non_null(strstr(info(0).reason, close_steps[i]));
        set_failing(NULL);
        wait_threads(threads);
        assert_int_equal(held(), before);
        assert_int_equal(entries_of("/proc/self/fd"), fds);
    }
    load(0);
    assert_string_equal(info(0).reason, "");
    scene_close();
}

/* ---- unloading ---- */

TEST(an_unload_gives_everything_back)
{
    struct registry_returned returned;
    struct registry_unloading u;
    struct err e;
    scene_set();
    scene_open();
    uint64_t before = held();
    uint32_t threads = entries_of("/proc/self/task"), fds = entries_of("/proc/self/fd");
    for (int i = 0; i < 3; i++) {
        for (uint32_t m = 0; m < MODELS; m++)
            load(m);
        for (uint32_t m = 0; m < MODELS; m++) {
            assert_non_null(account_find(ledger_root(test_ledger()), scene.models[m].id));
            unload(m);
            assert_true(registry_unloaded(scene.registry, m, info(m).unloads, &returned));
            assert_true(returned.account_bytes >= info(m).needed_bytes);
            assert_string_equal(returned.trouble, "");
            assert_null(account_find(ledger_root(test_ledger()), scene.models[m].id));
        }
        wait_threads(threads);
        assert_int_equal(held(), before);
        assert_int_equal(entries_of("/proc/self/fd"), fds);
    }
    assert_int_equal(registry_unload(scene.registry, 0, false, &u, &e), -EALREADY);
    scene_close();
}

TEST(a_busy_model_drains_and_is_told_to_end_when_its_time_is_up)
{
    struct registry_failure why;
    struct model_lease l, look, other;
    struct err e;
    struct registry_unloading u;
    scene_set();
    scene_open();
    assert_int_equal(use(0, false, &l, &why), 0);
    assert_int_equal(registry_peek(scene.registry, 0, &look), 0);
    assert_int_equal(registry_unload(scene.registry, 0, false, &u, &e), 0);
    assert_int_equal(u.leases, 1);
    assert_int_equal(info(0).state, MODEL_DRAINING);
    assert_int_equal(registry_lease(scene.registry, 0, &other), -EAGAIN);
    registry_release_peek(&look);
    while (!registry_is_ending(scene.registry, 0))
        usleep(1000);
    assert_int_equal(info(0).state, MODEL_DRAINING);
    /* A request during that time gets the model loaded anew. */
    assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    registry_release(&l);
    assert_int_equal(wait_for(0, &l, &why), 0);
    assert_int_equal(info(0).loads, 2);
    assert_int_equal(info(0).unloads, 1);
    assert_false(registry_is_ending(scene.registry, 0));
    registry_release(&l);
    scene_close();
}

TEST(a_pinned_model_is_not_unloaded_on_request)
{
    struct registry_unloading u;
    struct err e;
    scene_set();
    scene.models[0].options.pinned = true;
    scene_open();
    load(0);
    assert_int_equal(registry_unload(scene.registry, 0, false, &u, &e), -EPERM);
    assert_non_null(strstr(e.text, "pinned"));
    scene_close();
}

TEST(a_load_that_an_operator_ordered_needs_no_waiter)
{
    struct registry_failure why;
    scene_set();
    scene_open();
    set_gate(true);
    assert_int_equal(registry_want(scene.registry, 0, true, &why), 0);
    wait_at_gate(1);
    registry_unwant(scene.registry, 0);
    /* A request that waits for it and leaves stops nothing. */
    assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    registry_unwant(scene.registry, 0);
    set_gate(false);
    wait_state(0, MODEL_READY);
    /* The order is served: the next load needs waiters again. */
    unload(0);
    set_gate(true);
    assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    wait_at_gate(1);
    registry_unwant(scene.registry, 0);
    set_gate(false);
    wait_state(0, MODEL_UNLOADED);
    scene_close();
}

TEST(an_operator_stops_a_load)
{
    struct registry_unloading u;
    struct registry_returned returned;
    struct registry_failure why;
    struct err e;
    struct model_lease l;
    scene_set();
    scene_open();
    uint64_t before = held();
    for (int waiters = 0; waiters < 2; waiters++) {
        set_gate(true);
        assert_int_equal(registry_want(scene.registry, 0, true, &why), 0);
        wait_at_gate(1);
        if (waiters == 0)
            registry_unwant(scene.registry, 0);
        assert_int_equal(registry_unload(scene.registry, 0, false, &u, &e), 0);
        assert_false(registry_unloaded(scene.registry, 0, u.ticket, &returned));
        set_gate(false);
        if (waiters > 0) {
            assert_int_equal(wait_for(0, &l, &why), -ECANCELED);
            assert_non_null(strstr(why.e.text, "administrator stopped"));
        }
        wait_state(0, waiters > 0 ? MODEL_FAILED : MODEL_UNLOADED);
        assert_true(registry_unloaded(scene.registry, 0, u.ticket, &returned));
        assert_int_equal(returned.bytes, 0);
        assert_int_equal(held(), before);
    }
    /* A request does not undo the order, an operator does. */
    assert_int_equal(use(0, false, &l, &why), -ECANCELED);
    assert_int_equal(use(0, true, &l, &why), 0);
    registry_release(&l);
    assert_int_equal(info(0).failures, 0);
    scene_close();
}

TEST(who_rests_for_its_time_goes_by_itself_unless_it_is_pinned)
{
    struct model_lease l;
    struct registry_failure why;
    scene_set();
    for (int i = 0; i < MODELS; i++)
        scene.models[i].options.ttl_ns = 100 * NS_PER_MS;
    scene.models[1].options.pinned = true;
    scene_open();
    load(1);
    assert_int_equal(use(2, false, &l, &why), 0);
    load(0);
    wait_state(0, MODEL_UNLOADED);
    usleep(150000);
    assert_int_equal(info(1).state, MODEL_READY);
    assert_int_equal(info(2).state, MODEL_READY);
    assert_true(info(1).idle_ns > 100 * NS_PER_MS && info(2).idle_ns == 0);
    registry_release(&l);
    wait_state(2, MODEL_UNLOADED);
    scene_close();
}

/* ---- making room ---- */

/* So that each of the models fits, and no two do. */
static void leave_room_for_one(void)
{
    uint64_t most = 0, least = UINT64_MAX;
    for (uint32_t i = 0; i < MODELS; i++) {
        load(i);
        most = MAX_OF(most, info(i).reserved_bytes);
        least = MIN_OF(least, info(i).reserved_bytes);
        unload(i);
    }
    wait_state(0, MODEL_UNLOADED);
    uint64_t moves = 2 * (registry_stack_bytes(2) - registry_stack_bytes(1));
    assert_true(2 * least > most + moves);
    account_set_limit(ledger_root(test_ledger()), held() + most + moves);
}

/* Three of the same size. */
static void scene_set_equal(void)
{
    scene_set();
    for (int i = 1; i < MODELS; i++)
        memcpy(scene.models[i].dir, scene.models[0].dir, sizeof(scene.models[0].dir));
}

TEST(an_idle_model_goes_for_another)
{
    scene_set_equal();
    scene_open();
    leave_room_for_one();
    load(0);
    load(1);
    assert_int_equal(info(0).state, MODEL_UNLOADED);
    load(2);
    assert_int_equal(info(1).state, MODEL_UNLOADED);
    load(0);
    assert_int_equal(info(2).state, MODEL_UNLOADED);
    scene_close();
}

static void expect_no_room(uint32_t index)
{
    struct registry_failure why = {0};
    struct model_lease l;
    uint64_t before = held();
    assert_int_equal(use(index, false, &l, &why), -ENOMEM);
    assert_non_null(strstr(why.e.text, "no memory to load"));
    assert_non_null(strstr(why.e.text, "ceiling"));
    assert_int_equal(held(), before);
}

TEST(busy_and_pinned_models_are_no_victims_and_a_refusal_has_the_numbers)
{
    struct registry_failure why;
    struct model_lease l;
    scene_set();
    scene.models[2].options.pinned = true;
    scene_open();
    for (uint32_t i = 0; i < 2; i++)
        load(i);
    load(2);
    uint64_t most = MAX_OF(info(0).reserved_bytes, info(1).reserved_bytes);
    unload(0);
    unload(1);
    wait_state(1, MODEL_UNLOADED);
    account_set_limit(ledger_root(test_ledger()), held() + most / 2);
    expect_no_room(0);
    account_set_limit(ledger_root(test_ledger()), held() + most + (4 << 20));
    assert_int_equal(use(0, false, &l, &why), 0);
    expect_no_room(1);
    registry_release(&l);
    /* The refusal is not remembered: there is room as soon as another model is idle. */
    load(1);
    assert_int_equal(info(0).state, MODEL_UNLOADED);
    assert_int_equal(info(2).state, MODEL_READY);
    scene_close();
}

TEST(what_idle_models_hold_is_known_and_can_be_asked_for)
{
    scene_set();
    scene_open();
    load(0);
    load(1);
    uint64_t idle = registry_idle_bytes(scene.registry, domain_machine());
    assert_int_equal(idle, info(0).reserved_bytes + info(1).reserved_bytes);
    account_set_limit(ledger_root(test_ledger()), held());
    assert_int_equal(registry_free_idle(scene.registry, domain_machine(), idle + 1, NULL), 0);
    assert_int_equal(info(0).state, MODEL_READY);
    const char *other = registry_settings(scene.registry, 2)->id;
    assert_true(registry_free_idle(scene.registry, domain_machine(), 1, other) > 0);
    assert_true((info(0).state == MODEL_READY) != (info(1).state == MODEL_READY));
    struct registry_info gone = info(info(0).state != MODEL_READY ? 0 : 1);
    assert_int_equal(gone.unloaded_why, UNLOAD_MADE_ROOM);
    assert_string_equal(gone.unloaded_for, other);
    assert_int_equal(registry_free_idle(scene.registry, domain_machine(), 1, NULL), 0);
    scene_close();
}

/* ---- all at once ---- */

static atomic_uint served, refused;

static void *crowd(void *arg)
{
    struct rng rng = {(uint64_t)(uintptr_t)arg, 0};
    struct registry_failure why;
    struct model_lease l;
    struct registry_unloading u;
    struct err e;
    for (int i = 0; i < 25; i++) {
        uint32_t index = (uint32_t)rng_below(&rng, MODELS);
        switch (rng_below(&rng, 5)) {
        case 0:
            (void)registry_unload(scene.registry, index, false, &u, &e);
            break;
        case 1:
            if (registry_want(scene.registry, index, true, &why) == 0) {
                usleep((useconds_t)rng_below(&rng, 3000));
                registry_unwant(scene.registry, index);
            }
            break;
        default:
            if (use(index, false, &l, &why) < 0) {
                assert_true(why.code == -ENOMEM || why.code == -ECANCELED);
                atomic_fetch_add(&refused, 1);
                break;
            }
            usleep((useconds_t)rng_below(&rng, 2000));
            struct engine_numbers n;
            engine_numbers(l.model->engine, &n);
            registry_release(&l);
            atomic_fetch_add(&served, 1);
        }
    }
    return NULL;
}

TEST(many_who_load_use_leave_and_unload_under_a_ceiling_that_holds_one)
{
    pthread_t threads[4];
    struct registry_failure why;
    struct model_lease l;
    scene_set_equal();
    scene_open();
    leave_room_for_one();
    uint64_t before = held();
    atomic_store(&served, 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd, (void *)(uintptr_t)(i + 1)), 0);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    assert_true(atomic_load(&served) > 0);
    account_set_limit(ledger_root(test_ledger()), ACCOUNT_NO_LIMIT);
    /* An operator's load, as one that the crowd stopped fails again for 30 s otherwise. */
    for (uint32_t i = 0; i < MODELS; i++) {
        assert_int_equal(use(i, true, &l, &why), 0);
        registry_release(&l);
        unload(i);
    }
    assert_int_equal(held(), before);
    scene_close();
}

/* ---- models that come later ---- */

TEST(a_model_that_comes_later_is_served_like_the_others)
{
    struct model_settings late = a_model("late", GOLDEN("llama"));
    struct err e = {""};
    scene_set();
    scene.models_max = MODELS + 2;
    scene_open();
    late.aliases[late.alias_count++] = "org/late";
    assert_int_equal(registry_find(scene.registry, SLICE("late")), -1);
    assert_int_equal(registry_add(scene.registry, &late, &e), 0);
    assert_int_equal(registry_count(scene.registry), MODELS + 1);
    assert_int_equal(registry_find(scene.registry, SLICE("late")), MODELS);
    assert_int_equal(registry_find(scene.registry, SLICE("org/late")), MODELS);
    assert_int_equal(info(MODELS).state, MODEL_UNLOADED);
    uint64_t before = held();
    load(MODELS);
    assert_int_equal(info(MODELS).loads, 1);
    unload(MODELS);
    assert_int_equal(held(), before);
    scene_close();
}

TEST(neither_a_taken_name_nor_a_full_list_nor_an_ending_registry_takes_another)
{
    struct model_settings late = a_model("a", GOLDEN("llama")), other = a_model("d", GOLDEN("llama"));
    struct err e = {""};
    scene_set();
    scene.models_max = MODELS + 1;
    scene_open();
    assert_int_equal(registry_add(scene.registry, &late, &e), -EEXIST);
    assert_non_null(strstr(e.text, "two models are called a"));
    other.aliases[other.alias_count++] = "b";
    assert_int_equal(registry_add(scene.registry, &other, &e), -EEXIST);
    assert_int_equal(registry_count(scene.registry), MODELS);
    other.alias_count = 0;
    assert_int_equal(registry_add(scene.registry, &other, &e), 0);
    late = a_model("e", GOLDEN("llama"));
    assert_int_equal(registry_add(scene.registry, &late, &e), -ENOSPC);
    assert_non_null(strstr(e.text, "no more than 4 models"));
    scene_close();
    scene_set();
    scene.models_max = MODELS + 1;
    scene_open();
    registry_stop(scene.registry);
    assert_int_equal(registry_add(scene.registry, &late, &e), -ESHUTDOWN);
    scene_close();
}

static atomic_bool all_added;

/* Goes through the list without a lock, as reports do, and uses what it finds. */
static void *reader(void *arg)
{
    struct registry_failure why;
    uint32_t most = 0, last = 0;
    (void)arg;
    while (!atomic_load(&all_added) || last < REGISTRY_MODELS_MAX) {
        uint32_t count = registry_count(scene.registry);
        assert_true(count >= most);
        most = count;
        for (uint32_t i = 0; i < count; i++) {
            const struct model_settings *s = registry_settings(scene.registry, i);
            assert_int_equal(registry_find(scene.registry, slice_of(s->id)), i);
            assert_int_equal(info(i).leases, 0);
        }
        if (registry_want(scene.registry, count - 1, false, &why) == 0)
            registry_unwant(scene.registry, count - 1);
        last = count;
    }
    return NULL;
}

TEST(the_list_grows_under_those_who_read_it)
{
    pthread_t threads[3];
    struct err e = {""};
    scene_set();
    scene.models_max = REGISTRY_MODELS_MAX;
    atomic_store(&all_added, false);
    scene_open();
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, NULL), 0);
    for (uint32_t i = MODELS; i < REGISTRY_MODELS_MAX; i++) {
        char id[16];
        snprintf(id, sizeof(id), "late-%u", i);
        struct model_settings late = a_model(id, GOLDEN("llama"));
        assert_int_equal(registry_add(scene.registry, &late, &e), 0);
        usleep(500);
    }
    atomic_store(&all_added, true);
    for (size_t i = 0; i < COUNT_OF(threads); i++)
        pthread_join(threads[i], NULL);
    scene_close();
}

TEST(a_registry_ends_in_the_middle_of_everything)
{
    struct registry_failure why;
    struct model_lease l;
    scene_set();
    scene.models[2].preload = true;
    scene_open();
    load(1);
    set_gate(true);
    assert_int_equal(registry_want(scene.registry, 0, false, &why), 0);
    wait_at_gate(1);
    registry_stop(scene.registry);
    assert_int_equal(registry_lease(scene.registry, 1, &l), -EAGAIN);
    assert_int_equal(registry_poll(scene.registry, 0, &l, &why), -ESHUTDOWN);
    registry_unwant(scene.registry, 0);
    assert_int_equal(registry_want(scene.registry, 0, true, &why), -ESHUTDOWN);
    set_gate(false);
    scene_close();
    registry_close(NULL);
    registry_stop(NULL);
}

TEST_MAIN()
