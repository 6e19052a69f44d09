/* Every event in every phase of a request, at a step that only has to end: the client leaves, the step fails,
 * other requests give orders, the engine closes. Afterwards nothing remains, and the next request gets its
 * tokens. */
#include "test_engine_scene.h"

#include "engine/engine_state.h" /* how many wait in the inbox: only the engine has that number */

#define DIR  TINY("qwen3")
#define LONG 400 /* tokens of requests brought into a phase */

enum { PREFILLING, DECODING, QUEUED, PAUSED, PREEMPTED, PHASES };
static const enum job_phase phases[PHASES] = {JOB_PREFILLING, JOB_DECODING, JOB_QUEUED, JOB_PAUSED,
                                              JOB_PREEMPTED};

/* One unit of pages, two sequences, prompts of 32 tokens a step. `large`: two of them fill the pages but for
 * a few. */
struct scene {
    struct fixture f;
    struct account_list before;
    struct job_spec small, large;
};
static uint32_t answer[ANSWER], small_answer[LONG], large_answer[LONG];

static struct job_spec asks(void)
{
    return greedy(prompt, 60, ANSWER);
}

static void scene_open(struct scene *s)
{
    struct engine_opts o = gated(DIR);
    uint32_t pages = (uint32_t)(UNIT_BYTES / model_shape(o.model)->page_bytes), half = (pages / 2 - 2) * 32;
    assert_true(half > 64 && half + LONG <= o.max_model_len && half < COUNT_OF(prompt));
    o.max_num_seqs = 2;
    o.kv_bytes_max = UNIT_BYTES;
    o.step_ns = o.step_alone_ns = 1;
    o.prefix_cache_bytes = 1 << 20;
    s->small = greedy(prompt, 20, LONG);
    s->large = greedy(prompt, half, LONG);
    test_engine_start(&s->f, DIR, &o);
    s->before = list_accounts();
}

/* Once: the tokens that each of them should get. */
static void know_answers(const struct scene *s)
{
    struct job_spec ask = asks();
    if (answer[0] + answer[1] + answer[2] > 0)
        return;
    tokens_alone(DIR, &ask, answer);
    tokens_alone(DIR, &s->small, small_answer);
    tokens_alone(DIR, &s->large, large_answer);
}

static struct client *submit_for(struct scene *s, int phase)
{
    struct client *c;
    switch (phase) {
    case PREFILLING:
        return submit(&s->f, &s->large);
    case QUEUED:
        submit(&s->f, &s->small);
        submit(&s->f, &s->small);
        break;
    case PAUSED:
        submit(&s->f, &s->small);
        break;
    case PREEMPTED:
        submit(&s->f, &s->large);
        /* Another salt: nothing is shared. */
        s->large.cache_salt = SLICE("other");
        c = submit(&s->f, &s->large);
        s->large.cache_salt = (struct slice){0};
        return c;
    }
    c = submit(&s->f, &s->small);
    c->deaf = phase == PAUSED;
    return c;
}

/* Brings one request into the phase, step by step; all others that it takes are clients as well. A step
 * stands before the gate then. */
static struct client *bring(struct scene *s, int phase)
{
    gate_set(&gate, true, 0);
    struct client *c = submit_for(s, phase);
    struct watch w = {stream_id(c->stream), phases[phase]};
    gate_wait(&gate);
    while (!is_in_phase(&s->f, &w)) {
        assert_false(c->over);
        gate_pass(&gate);
        while (listen_once(&s->f, 0))
            ;
    }
    return c;
}

/* Requests that ended well got the same tokens as alone. */
static void expect_answers(const struct scene *s)
{
    for (uint32_t i = 0; i < s->f.client_count; i++) {
        const struct client *c = s->f.clients[i];
        if (c->finish.reason == FINISH_LENGTH)
            expect_tokens(c, c->finish.prompt_tokens == s->large.prompt_count ? large_answer : small_answer,
                          LONG);
    }
}

typedef void happening_fn(struct scene *s, struct client *c);

static void in_every_phase(happening_fn *happen)
{
    struct scene s;
    struct job_spec ask = asks();
    scene_open(&s);
    know_answers(&s);
    s.before = list_accounts();
    for (int phase = 0; phase < PHASES; phase++) {
        struct client *c = bring(&s, phase);
        happen(&s, c);
        wait_all(&s.f);
        expect_answers(&s);
        expect_goes_on(&s.f, &ask, answer);
        expect_settled(&s.f, &s.before);
    }
    test_engine_close(&s.f);
}

/* ---- it leaves ---- */

static void leave(struct scene *s, struct client *c)
{
    uint32_t count = c->count;
    abort_client(&s->f, c);
    undeafen(c);
    /* The current step ends, the next begins without it, and then its end is reported, in spite of other
     * orders. */
    for (int steps = 0; steps < 2 && s->f.client_count > 1; steps++)
        gate_pass(&gate);
    while (listen_once(&s->f, 0))
        ;
    assert_true(c->over || s->f.client_count == 1);
    gate_set(&gate, false, 0);
    all_hear(&s->f);
    wait_over(&s->f, c);
    assert_int_equal(c->finish.reason, FINISH_ABORTED);
    /* A token of the step that it was in, and no further one. */
    assert_true(c->count <= count + 1 || c->count == STREAM_TOKENS);
}

TEST(who_leaves_in_any_phase_leaves_nothing)
{
    in_every_phase(leave);
}

static void leave_together(struct scene *s, struct client *c)
{
    (void)c;
    for (uint32_t i = 0; i < s->f.client_count; i++)
        abort_client(&s->f, s->f.clients[i]);
    gate_set(&gate, false, 0);
    all_hear(&s->f);
    wait_all(&s->f);
    for (uint32_t i = 0; i < s->f.client_count; i++)
        assert_int_equal(s->f.clients[i]->finish.reason, FINISH_ABORTED);
}

TEST(all_that_leave_at_once_leave_nothing)
{
    in_every_phase(leave_together);
}

/* ---- Retry-After ---- */

TEST(the_retry_time_is_that_of_all_jobs_over_the_places)
{
    struct scene s;
    scene_open(&s);
    know_answers(&s);
    bring(&s, QUEUED);
    struct engine *en = s.f.engine;
    assert_int_equal(admission_total(&en->admission), 3);
    atomic_store(&en->service_ns, 8 * NS_PER_S);
    assert_int_equal(engine_retry_after_s(en), 8 / 2 * 3);
    atomic_store(&en->service_ns, NS_PER_S / 2 + 2);
    assert_int_equal(engine_retry_after_s(en), 1);
    atomic_store(&en->service_ns, 0);
    assert_int_equal(engine_retry_after_s(en), 1);
    atomic_store(&en->service_ns, 3600 * NS_PER_S);
    assert_int_equal(engine_retry_after_s(en), 600);
    gate_set(&gate, false, 0);
    wait_all(&s.f);
    test_engine_close(&s.f);
}

/* ---- the measured step ---- */

TEST(a_step_without_prompts_leaves_the_time_of_a_prompt_token)
{
    struct scene s;
    scene_open(&s);
    know_answers(&s);
    bring(&s, DECODING);
    gate_pass(&gate);
    const struct budget *b = &s.f.engine->budget;
    double prompt_ns = b->prompt_ns, seq_ns = b->seq_ns;
    for (int i = 0; i < 8; i++)
        gate_pass(&gate);
    assert_true(prompt_ns > 0 && b->prompt_ns == prompt_ns);
    assert_true(b->seq_ns != seq_ns);
    gate_set(&gate, false, 0);
    wait_all(&s.f);
    test_engine_close(&s.f);
}

/* ---- the step fails ---- */

static bool is_among(const struct request_id *ids, uint32_t count, struct request_id id)
{
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&ids[i], &id, sizeof(id)) == 0)
            return true;
    return false;
}

/* A request in the step ends with a message; one without a sequence in it continues. */
static void fail_step(struct scene *s, struct client *c)
{
    uint64_t errors = numbers(&s->f).step_errors;
    struct request_id ids[4];
    bool fails[4];
    uint32_t count = engine_step_ids(s->f.engine, ids, 4);
    (void)c;
    assert_true(count >= 1 && count <= 2 && s->f.client_count <= 4);
    for (uint32_t i = 0; i < s->f.client_count; i++)
        fails[i] = is_among(ids, count, stream_id(s->f.clients[i]->stream));
    gate_set(&gate, false, -EIO);
    all_hear(&s->f);
    wait_all(&s->f);
    assert_int_equal(numbers(&s->f).step_errors, errors + 1);
    for (uint32_t i = 0; i < s->f.client_count; i++) {
        const struct stream_finish *end = &s->f.clients[i]->finish;
        assert_int_equal(end->reason, fails[i] ? FINISH_ERROR : FINISH_LENGTH);
        assert_int_equal(strlen(end->error) > 20, fails[i]);
    }
}

TEST(a_step_that_fails_in_any_phase_ends_its_seqs_and_no_others)
{
    in_every_phase(fail_step);
}

/* ---- others order something ---- */

struct order {
    struct engine *engine;
    bool clears;
    int result;
};

static void *give_order(void *arg)
{
    struct order *o = arg;
    struct test_cleared cleared;
    o->result = o->clears ? test_clear(o->engine, &cleared) : test_trim(o->engine, &cleared);
    return NULL;
}

static void clear_and_trim(struct scene *s, struct client *c)
{
    struct order orders[2] = {{s->f.engine, true, -1}, {s->f.engine, false, -1}};
    pthread_t threads[2];
    (void)c;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, give_order, &orders[i]), 0);
    engine_reclaim(s->f.engine);
    gate_set(&gate, false, 0);
    all_hear(&s->f);
    wait_all(&s->f);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(orders[i].result, 0);
    }
    for (uint32_t i = 0; i < s->f.client_count; i++)
        assert_int_equal(s->f.clients[i]->finish.reason, FINISH_LENGTH);
}

TEST(a_cache_cleared_in_any_phase_harms_nobody)
{
    in_every_phase(clear_and_trim);
}

/* ---- the engine closes ---- */

/* A new request is refused at once with that reason. */
static void expect_closing(struct scene *s)
{
    struct err e = {""};
    struct client *none = NULL;
    struct test_cleared cleared;
    assert_int_equal(try_submit(&s->f, &s->small, &none, NULL, &e), -EPIPE);
    assert_true(strlen(e.text) > 10);
    assert_int_equal(test_clear(s->f.engine, &cleared), -EPIPE);
    assert_int_equal(test_trim(s->f.engine, &cleared), -EPIPE);
    engine_wake(s->f.engine);
    engine_reclaim(s->f.engine);
}

TEST(an_engine_that_closes_in_any_phase_ends_all)
{
    for (int phase = 0; phase < PHASES; phase++) {
        struct scene s;
        scene_open(&s);
        bring(&s, phase);
        uint64_t sampled = numbers(&s.f).completion_tokens;
        engine_stop(s.f.engine);
        expect_closing(&s);
        gate_set(&gate, false, 0);
        all_hear(&s.f);
        wait_all(&s.f);
        /* The step ended between two layers; a device's goes on to its end. */
        if (!test_device_is_fake())
            assert_int_equal(numbers(&s.f).completion_tokens, sampled);
        for (uint32_t i = 0; i < s.f.client_count; i++)
            assert_int_equal(s.f.clients[i]->finish.reason, FINISH_SHUTDOWN);
        test_engine_close(&s.f);
    }
}

static bool has_orders(struct fixture *f, void *arg)
{
    (void)arg;
    return mailbox_count(f->engine->inbox) == 3;
}

TEST(who_waits_for_a_clear_is_answered_when_the_engine_closes)
{
    struct scene s;
    struct order orders[3] = {{.clears = true, .result = -1}, {.result = -1}, {.clears = true, .result = -1}};
    pthread_t threads[3];
    scene_open(&s);
    struct client *c = bring(&s, PREFILLING);
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        orders[i].engine = s.f.engine;
        assert_int_equal(pthread_create(&threads[i], NULL, give_order, &orders[i]), 0);
    }
    /* All wait for the step that stands before the gate. */
    wait_until(&s.f, has_orders, NULL);
    engine_stop(s.f.engine);
    gate_set(&gate, false, 0);
    for (size_t i = 0; i < COUNT_OF(orders); i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(orders[i].result, 0);
    }
    wait_over(&s.f, c);
    assert_int_equal(c->finish.reason, FINISH_SHUTDOWN);
    test_engine_close(&s.f);
}

TEST_MAIN()
