/* Several engines of one model in the registry: which one a request gets, and which ones come back. */
#include "test_registry.h"

/* a and b are one model, c is another. */
static void scene_of_replicas(bool preload)
{
    scene_set();
    scene.models[1] = a_model("a@b", GOLDEN("qwen3"));
    for (uint32_t i = 0; i < 2; i++) {
        scene.models[i].replica = i;
        scene.models[i].replica_count = 2;
    }
    for (uint32_t i = 0; i < MODELS; i++)
        scene.models[i].preload = preload;
}

TEST(names_mean_all_replicas_or_one)
{
    scene_of_replicas(false);
    scene_open();
    struct registry_replicas all = registry_replicas(scene.registry, 0);
    assert_int_equal(all.first, 0);
    assert_int_equal(all.count, 2);
    for (uint32_t i = 1; i < MODELS; i++) {
        struct registry_replicas one = registry_replicas(scene.registry, i);
        assert_int_equal(one.first, i);
        assert_int_equal(one.count, 1);
    }
    assert_int_equal(registry_first_replica(scene.registry, 1), 0);
    assert_int_equal(registry_first_replica(scene.registry, 2), 2);
    scene_close();
}

TEST(replicas_load_together_at_the_start_and_other_models_after_them)
{
    scene_of_replicas(true);
    scene.gate_closed = true;
    scene_open();
    wait_at_gate(2);
    assert_true(info(2).waits);
    assert_false(info(0).waits || info(1).waits);
    set_gate(false);
    for (uint32_t i = 0; i < MODELS; i++)
        wait_state(i, MODEL_READY);
    scene_close();
}

TEST(a_request_gets_the_replica_with_the_least_to_do)
{
    scene_of_replicas(false);
    scene_open();
    struct registry_replicas all = registry_replicas(scene.registry, 0);
    struct model_lease l[4] = {{0}}, none = {0};
    assert_int_equal(registry_lease_replica(scene.registry, all, NULL, &none), -EAGAIN);
    load(0);
    load(1);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(registry_lease_replica(scene.registry, all, NULL, &l[i]), 0);
    assert_int_equal(l[0].index, 0);
    assert_int_equal(l[1].index, 1);
    assert_int_equal(l[2].index, 0);
    assert_string_equal(l[1].model->id, "a"); /* clients know one name */
    /* A lease weighs as much as so many tokens. */
    uint64_t costs[] = {0, REGISTRY_LEASE_TOKENS + 1};
    assert_int_equal(registry_lease_replica(scene.registry, all, costs, &l[3]), 0);
    assert_int_equal(l[3].index, 0);
    costs[1] = 2 * REGISTRY_LEASE_TOKENS;
    registry_move_lease(&l[3], all, costs); /* its own lease does not count */
    assert_int_equal(l[3].index, 0);
    costs[1] = REGISTRY_LEASE_TOKENS - 1;
    registry_move_lease(&l[3], all, costs);
    assert_int_equal(l[3].index, 1);
    assert_int_equal(info(0).leases, 2);
    assert_int_equal(info(1).leases, 2);
    for (uint32_t i = 0; i < 4; i++)
        registry_release(&l[i]);
    /* One that is gone is not chosen, whatever it costs; a lease stays where nothing else is. */
    unload(1);
    costs[1] = 0;
    costs[0] = 1000;
    assert_int_equal(registry_lease_replica(scene.registry, all, costs, &l[0]), 0);
    registry_move_lease(&l[0], all, costs);
    assert_int_equal(l[0].index, 0);
    registry_release(&l[0]);
    scene_close();
}

TEST(replicas_come_when_they_were_never_there_or_are_needed)
{
    scene_of_replicas(false);
    scene_open();
    struct registry_replicas all = registry_replicas(scene.registry, 0);
    struct model_lease l[3] = {{0}}; /* one more than sequences of a step, see plan() */
    load(0);
    registry_bring_replicas(scene.registry, all);
    wait_state(1, MODEL_READY);
    unload(1);
    registry_bring_replicas(scene.registry, all);
    assert_int_equal(info(1).state, MODEL_UNLOADED);
    for (uint32_t i = 0; i < COUNT_OF(l); i++) {
        registry_bring_replicas(scene.registry, all);
        assert_int_equal(info(1).state, MODEL_UNLOADED);
        assert_int_equal(registry_lease_replica(scene.registry, all, NULL, &l[i]), 0);
    }
    registry_bring_replicas(scene.registry, all);
    wait_state(1, MODEL_READY);
    for (uint32_t i = 0; i < COUNT_OF(l); i++)
        registry_release(&l[i]);
    assert_int_equal(info(2).state, MODEL_UNLOADED);
    /* When all rest, a request loads one of them, and not all. */
    unload(0);
    unload(1);
    registry_bring_replicas(scene.registry, all);
    assert_int_equal(info(0).state, MODEL_UNLOADED);
    assert_int_equal(info(1).state, MODEL_UNLOADED);
    scene_close();
}

TEST(a_replica_that_failed_is_left_alone_for_a_while)
{
    scene_of_replicas(false);
    scene_open();
    struct registry_replicas all = registry_replicas(scene.registry, 0);
    load(0);
    scene.failing_step = "engine";
    registry_bring_replicas(scene.registry, all);
    wait_state(1, MODEL_FAILED);
    uint64_t failures = info(1).failures;
    registry_bring_replicas(scene.registry, all);
    assert_int_equal(info(1).state, MODEL_FAILED);
    assert_int_equal(info(1).failures, failures);
    scene.failing_step = NULL;
    scene_close();
}

TEST_MAIN()
