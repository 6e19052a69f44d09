/* Every way a request can end, and that nothing remains afterwards. */
#include "test_rng.h"
#include "test_engine_scene.h"
#include "tokenizer/tokenizer.h"

#define DIR TINY("qwen3_5")

static struct account_list before;
static uint32_t answer[ANSWER];

static void start(struct fixture *f, const struct engine_opts *o)
{
    struct job_spec s = greedy(prompt, 60, ANSWER);
    tokens_alone(DIR, &s, answer);
    test_engine_start(f, DIR, o);
    before = list_accounts();
}

/* Everything has ended: nothing is left of it, and the next request gets its tokens. */
static void finish(struct fixture *f)
{
    struct job_spec s = greedy(prompt, 60, ANSWER);
    wait_all(f);
    expect_goes_on(f, &s, answer);
    expect_settled(f, &before);
    test_engine_close(f);
}

static void expect_end(struct fixture *f, struct client *c, enum finish_reason why)
{
    wait_over(f, c);
    assert_string_equal(stream_finish_name(c->finish.reason), stream_finish_name(why));
    assert_int_equal(c->finish.completion_tokens,
                     c->finish.reason == FINISH_TOO_SLOW ? c->finish.completion_tokens : c->count);
}

/* ---- by themselves ---- */

TEST(a_length_a_stop_token_and_a_stop_string_leave_nothing)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    o.tokenizer = test_tokenizer();
    start(&f, &o);
    struct job_spec s = greedy(prompt, 60, ANSWER);
    expect_end(&f, submit(&f, &s), FINISH_LENGTH);
    s.sampling.stop_ids[0] = answer[9];
    s.sampling.stop_count = 1;
    struct client *c = submit(&f, &s);
    expect_end(&f, c, FINISH_STOP);
    assert_int_equal(c->finish.stop_token, answer[9]);
    assert_true(c->count <= 10 && c->ids[c->count - 1] == answer[9]);
    s.sampling.stop_count = 0;
    struct slice stop = tokenizer_token_bytes(o.tokenizer, answer[9]);
    s.stops = &stop;
    s.stop_count = 1;
    c = submit(&f, &s);
    expect_end(&f, c, FINISH_STOP);
    assert_true(c->finish.stopped_by_string && c->count <= 10);
    assert_memory_equal(c->ids, answer, c->count * sizeof(answer[0]));
    finish(&f);
}

/* ---- ended by its client ---- */

TEST(a_lone_prefill_stops_inside_its_step)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    start(&f, &o);
    gate_set(&gate, true, 0);
    struct job_spec s = greedy(prompt, 100, 10);
    struct client *c = submit(&f, &s);
    gate_wait(&gate);
    /* Closed when the step has begun: the forward pass looks at the flag between its layers. */
    abort_client(&f, c);
    gate_set(&gate, false, 0);
    expect_end(&f, c, FINISH_ABORTED);
    assert_int_equal(c->count, 0);
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    assert_int_equal(n.steps, 1);
    assert_int_equal(n.step_errors, 0);
    finish(&f);
}

/* ---- clients that do not read ---- */

TEST(who_does_not_read_for_too_long_is_ended)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    o.slow_client_ns = 300 * NS_PER_MS;
    start(&f, &o);
    struct job_spec s = greedy(prompt, 20, 1000);
    /* Both are there before the first token: none waits for a place while the other has unread tokens. */
    gate_set(&gate, true, 0);
    struct client *deaf = submit(&f, &s), *other = submit(&f, &s);
    deaf->deaf = true;
    gate_set(&gate, false, 0);
    expect_end(&f, other, FINISH_LENGTH);
    struct watch w = {stream_id(deaf->stream), JOB_PAUSED};
    while (is_in_phase(&f, &w))
        listen_once(&f, NS_PER_MS);
    undeafen(deaf);
    expect_end(&f, deaf, FINISH_TOO_SLOW);
    assert_int_equal(deaf->count, STREAM_TOKENS);
    finish(&f);
}

TEST(what_a_stop_string_held_back_waits_for_the_reader)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    o.tokenizer = test_tokenizer();
    start(&f, &o);
    /* A bias makes it say "a" endlessly. The stop string, "a" 250 times and another letter, never completes,
     * but holds back all text. */
    char text[250];
    memset(text, 'a', sizeof(text));
    text[249] = 'b';
    uint32_t a = 0;
    while (a < 512 && !slice_eq(tokenizer_token_bytes(o.tokenizer, a), SLICE("a")))
        a++;
    assert_true(a < 512);
    struct slice stop = {text, sizeof(text)};
    struct logit_bias bias = {a, 100};
    struct job_spec s = greedy(prompt, 20, 600);
    s.sampling.bias = &bias;
    s.sampling.bias_count = 1;
    struct client *plain = submit(&f, &s);
    s.stops = &stop;
    s.stop_count = 1;
    struct client *held = submit(&f, &s);
    held->deaf = true;
    expect_end(&f, plain, FINISH_LENGTH);
    wait_phase(&f, held, JOB_PAUSED);
    undeafen(held);
    expect_end(&f, held, FINISH_LENGTH);
    assert_int_equal(held->count, 600);
    assert_memory_equal(held->ids, plain->ids, 600 * sizeof(uint32_t));
    /* At the end 249 are held and the stream is full: they come when there is room. */
    s.max_tokens = 256 + 249;
    struct client *tail = submit(&f, &s);
    tail->deaf = true;
    wait_phase(&f, tail, JOB_PAUSED);
    undeafen(tail);
    expect_end(&f, tail, FINISH_LENGTH);
    assert_int_equal(tail->count, 256 + 249);
    finish(&f);
}

/* ---- the queue ---- */

TEST(a_full_queue_says_when_to_come_back)
{
    struct fixture f;
    struct err e = {""};
    struct client *none = NULL;
    uint32_t after = 0;
    struct engine_opts o = gated(DIR);
    o.max_num_seqs = 1;
    o.max_queue = 2;
    start(&f, &o);
    gate_set(&gate, true, 0);
    struct job_spec s = greedy(prompt, 20, 5);
    for (int i = 0; i < 3; i++)
        submit(&f, &s);
    assert_int_equal(try_submit(&f, &s, &none, &after, &e), -EAGAIN);
    assert_true(after >= 1);
    assert_non_null(strstr(e.text, "2 places"));
    gate_wait(&gate);
    gate_set(&gate, false, 0);
    wait_all(&f);
    struct client *again = submit(&f, &s);
    expect_end(&f, again, FINISH_LENGTH);
    finish(&f);
}

static struct engine_job_limits room_of(const struct engine_opts *o, const struct job_spec *s)
{
    struct fixture f;
    struct engine_job_limits room;
    test_engine_open(&f, DIR, o);
    engine_job_limits(f.engine, s, &room);
    test_engine_close(&f);
    return room;
}

TEST(jobs_hold_no_more_than_is_planned_for_them)
{
    struct fixture f;
    struct err e = {""};
    struct client *none = NULL;
    uint32_t after = 0;
    struct engine_opts o = gated(DIR);
    struct job_spec s = greedy(prompt, 20, 500);
    struct engine_job_limits room = room_of(&o, &s);
    assert_int_equal(room.jobs_max, o.max_num_seqs + o.max_queue);
    assert_int_equal(room.requests_bytes_max, ACCOUNT_NO_LIMIT);
    o.requests_bytes_max = 2 * room.job_bytes + 4095;
    start(&f, &o);
    gate_set(&gate, true, 0);
    submit(&f, &s);
    submit(&f, &s);
    assert_int_equal(try_submit(&f, &s, &none, &after, &e), -ENOBUFS);
    assert_true(after >= 1);
    assert_non_null(strstr(e.text, "max_tokens 500"));
    gate_wait(&gate);
    gate_set(&gate, false, 0);
    wait_all(&f);
    expect_end(&f, submit(&f, &s), FINISH_LENGTH);
    finish(&f);
    /* No other request holds memory, and still it does not fit: waiting would not help. */
    o.requests_bytes_max = room.job_bytes / 2;
    start(&f, &o);
    assert_int_equal(try_submit(&f, &s, &none, &after, &e), -ENOMEM);
    test_engine_close(&f);
}

TEST(waiting_has_a_limit)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    o.max_num_seqs = 1;
    o.queue_timeout_ns = 100 * NS_PER_MS;
    start(&f, &o);
    gate_set(&gate, true, 0);
    struct job_spec s = greedy(prompt, 20, 5);
    struct client *first = submit(&f, &s);
    gate_wait(&gate);
    struct client *second = submit(&f, &s);
    usleep(150000);
    gate_set(&gate, false, 0);
    expect_end(&f, second, FINISH_QUEUE_TIMEOUT);
    assert_true(second->finish.queued_ns >= 100 * NS_PER_MS);
    expect_end(&f, first, FINISH_LENGTH);
    finish(&f);
}

/* ---- a device that fails ---- */

static struct {
    atomic_int failure, told, tellings;
} device;

static int end_of_step(void *arg)
{
    (void)arg;
    return atomic_exchange(&device.failure, 0);
}

static void note_failure(void *arg, int error)
{
    assert_ptr_equal(arg, &device);
    atomic_store(&device.told, error);
    atomic_fetch_add(&device.tellings, 1);
}

static bool has_stopped(struct fixture *f, void *arg)
{
    (void)arg;
    return engine_failure(f->engine) != 0 && atomic_load(&device.tellings) > 0;
}

/* At the end of a step with others queued. They end with a sentence, and the engine has to be closed. */
TEST(a_device_that_fails_ends_the_engine)
{
    static const int failures[] = {-EIO, -ENODEV};
    static const struct engine_faults faults = {.step = gate_step, .step_end = end_of_step, .arg = &gate};
    for (size_t i = 0; i < COUNT_OF(failures); i++) {
        struct fixture f;
        struct engine_opts o = gated(DIR);
        struct job_spec s = greedy(prompt, 60, ANSWER);
        struct err e = {""};
        o.max_num_seqs = 2;
        o.faults = &faults;
        o.failed = note_failure;
        o.failed_arg = &device;
        atomic_store(&device.tellings, 0);
        start(&f, &o);
        assert_int_equal(engine_failure(f.engine), 0);
        gate_set(&gate, true, 0);
        for (int k = 0; k < 4; k++)
            submit(&f, &s);
        for (int k = 0; k < 5; k++)
            gate_pass(&gate);
        atomic_store(&device.failure, failures[i]);
        gate_set(&gate, false, 0);
        for (uint32_t k = 0; k < f.client_count; k++) {
            expect_end(&f, f.clients[k], FINISH_ERROR);
            assert_non_null(strstr(f.clients[k]->finish.error, "device"));
            assert_memory_equal(f.clients[k]->ids, answer, f.clients[k]->count * sizeof(answer[0]));
        }
        wait_until(&f, has_stopped, NULL);
        assert_int_equal(engine_failure(f.engine), failures[i]);
        assert_int_equal(atomic_load(&device.told), failures[i]);
        assert_int_equal(client_submit(&f, client_create(&f, 0), &s, NULL, &e), -EPIPE);
        struct engine_numbers n = numbers(&f);
        assert_true(n.step_errors == 1 && n.running == 0 && n.waiting == 0 && n.progress_ns == 0);
        test_engine_close(&f);
        assert_int_equal(atomic_load(&device.tellings), 1);
    }
}

/* ---- errors ---- */

TEST(no_memory_ends_one_request_with_a_sentence)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    size_t page_bytes = model_shape(o.model)->page_bytes;
    o.max_model_len = 4096;
    o.kv_bytes_max = 4 * 128 * page_bytes;
    start(&f, &o);
    uint32_t fits = (uint32_t)(UNIT_BYTES / page_bytes) * 32;
    struct job_spec s = greedy(prompt, 20, 100);
    struct client *c = submit(&f, &s);
    expect_end(&f, c, FINISH_LENGTH);
    wait_until(&f, is_empty, NULL);
    /* Room for nothing but the jobs: not even the first state. */
    account_set_limit(f.account, account_numbers(f.account).reserved + UNIT_BYTES / 2);
    c = submit(&f, &s);
    expect_end(&f, c, FINISH_ERROR);
    assert_non_null(strstr(c->finish.error, "no memory"));
    account_set_limit(f.account, ACCOUNT_NO_LIMIT);
    c = submit(&f, &s);
    expect_end(&f, c, FINISH_LENGTH);
    assert_true(fits > 120);
    finish(&f);
}

static void expect_refused(struct fixture *f, const struct job_spec *s, int code, const char *words)
{
    struct client *none = NULL;
    struct err e = {""};
    assert_int_equal(try_submit(f, s, &none, NULL, &e), code);
    if (!strstr(e.text, words))
        fail_msg("\"%s\" says nothing of \"%s\"", e.text, words);
}

TEST(what_can_never_work_is_refused_with_the_numbers)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    o.max_model_len = 100;
    start(&f, &o);
    struct job_spec s = greedy(prompt, 60, 41);
    expect_refused(&f, &s, -EINVAL, "60 tokens and max_tokens 41 are 101");
    s.max_tokens = 0;
    expect_refused(&f, &s, -EINVAL, "at least 1");
    s.max_tokens = UINT32_MAX;
    expect_refused(&f, &s, -EINVAL, "maximum context length is 100");
    uint32_t bad[] = {3, 512};
    s = greedy(bad, 2, 5);
    expect_refused(&f, &s, -EINVAL, "token 1 of the prompt is 512");
    s = greedy(prompt, 5, 5);
    s.sampling.temperature = 3;
    expect_refused(&f, &s, -EINVAL, "temperature");
    s = greedy(prompt, 5, 5);
    s.stops = &(struct slice){"x", 1};
    s.stop_count = 1;
    expect_refused(&f, &s, -EINVAL, "tokenizer");
    s.stop_count = 17;
    expect_refused(&f, &s, -EINVAL, "16");
    account_set_limit(f.account, account_numbers(f.account).reserved + 100);
    s = greedy(prompt, 5, 5);
    expect_refused(&f, &s, -ENOMEM, "not enough memory");
    account_set_limit(f.account, ACCOUNT_NO_LIMIT);
    s = greedy(prompt, 60, 40);
    struct client *c = submit(&f, &s);
    expect_end(&f, c, FINISH_LENGTH);
    finish(&f);
}

TEST(options_that_cannot_work_are_refused)
{
    struct err e = {""};
    struct engine *none = NULL;
    struct engine_opts good = gated(DIR), o = good;
    good.parent = o.parent = test_account(ACCOUNT_NO_LIMIT);
    o.tokens_max = engine_tokens_min(o.max_num_seqs, 0) - 1;
    assert_int_equal(engine_create(&o, &none, &e), -EINVAL);
    assert_non_null(strstr(e.text, "at least 39"));
    o = good;
    o.max_model_len = 4097;
    assert_int_equal(engine_create(&o, &none, &e), -EINVAL);
    o = good;
    o.kv_bytes_max = 1;
    o.max_model_len = 4096;
    o.max_num_seqs = 0;
    assert_int_equal(engine_create(&o, &none, &e), -EINVAL);
    o = good;
    account_set_limit(o.parent, 10000);
    assert_int_equal(engine_create(&o, &none, &e), -ENOMEM);
    assert_non_null(strstr(e.text, "rows of logits"));
    assert_null(none);
    assert_int_equal(account_numbers(o.parent).reserved, 0);
    assert_int_equal(account_numbers(o.parent).children, 0);
    engine_close(NULL);
}

TEST(drafts_without_a_drafter_or_too_many_are_refused)
{
    struct engine_opts good = gated(DIR);
    const struct drafting_opts wrong[] = {
        {.by = DRAFTING_NGRAM, .drafts_max = MODEL_DRAFTS_MAX + 1}, /* more than a sequence has */
        {.by = DRAFTING_NGRAM, .drafts_max = 0},
        {.by = DRAFTING_NONE, .drafts_max = 1},
        {.by = DRAFTING_MTP, .drafts_max = 1}, /* the model has no head */
        {.by = DRAFTING_NGRAM, .drafts_max = 1, .optimistic = true},
        {.by = DRAFTING_NGRAM, .drafts_max = 1, .past = true},
    };
    good.parent = test_account(ACCOUNT_NO_LIMIT);
    good.tokens_max = 4096;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct engine *none = NULL;
        struct engine_opts o = good;
        struct err e = {""};
        o.drafting = wrong[i];
        assert_int_equal(engine_create(&o, &none, &e), -EINVAL);
        assert_non_null(strstr(e.text, "drafts per row and step"));
        assert_null(none);
    }
}

/* ---- shutdown ---- */

TEST(shutdown_ends_what_is_under_way)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    o.max_num_seqs = 2;
    start(&f, &o);
    struct job_spec s = greedy(prompt, 20, 1900);
    struct client *running = submit(&f, &s), *deaf = submit(&f, &s), *queued = submit(&f, &s);
    deaf->deaf = true;
    wait_tokens(&f, running, 10);
    engine_close(f.engine);
    f.engine = NULL;
    undeafen(deaf);
    wait_all(&f);
    assert_int_equal(running->finish.reason, FINISH_SHUTDOWN);
    assert_int_equal(deaf->finish.reason, FINISH_SHUTDOWN);
    assert_int_equal(queued->finish.reason, FINISH_SHUTDOWN);
    assert_true(queued->count < 1900); /* none, unless the deaf one has left it its place */
    test_engine_close(&f);
}

TEST(an_engine_that_never_started_closes_as_well)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    test_engine_open(&f, DIR, &o);
    struct job_spec s = greedy(prompt, 20, 10);
    struct client *a = submit(&f, &s), *b = submit(&f, &s);
    engine_wake(f.engine);
    engine_close(f.engine);
    f.engine = NULL;
    expect_end(&f, a, FINISH_SHUTDOWN);
    expect_end(&f, b, FINISH_SHUTDOWN);
    test_engine_close(&f);
}

/* ---- everything at once ---- */

static bool has_few(struct fixture *f, void *arg)
{
    struct engine_numbers n;
    (void)arg;
    engine_numbers(f->engine, &n);
    return n.running + n.waiting < 100;
}

static void submit_some(struct fixture *f, struct rng *rng)
{
    static const struct slice stops[] = {{"e", 1}, {"an", 2}};
    struct job_spec s = greedy(prompt, 1 + (uint32_t)rng_below(rng, 300), 1 + (uint32_t)rng_below(rng, 60));
    s.sampling.temperature = (float)rng_uniform(rng);
    s.sampling.seed = rng_next(rng);
    s.priority = (int32_t)rng_below(rng, 3);
    s.prompt_logprobs = rng_below(rng, 20) == 0;
    s.sampling.logprobs = s.prompt_logprobs || rng_below(rng, 4) == 0;
    s.sampling.top_logprobs = s.sampling.logprobs ? (uint32_t)rng_below(rng, 5) : 0;
    s.sampling.presence_penalty = rng_below(rng, 3) == 0 ? 0.5f : 0;
    s.sampling.stop_ids[0] = (uint32_t)rng_below(rng, 500);
    s.sampling.stop_count = 1;
    if (rng_below(rng, 3) == 0) {
        s.stops = stops;
        s.stop_count = 2;
    }
    struct client *c = submit(f, &s);
    if (rng_below(rng, 5) == 0)
        abort_client(f, c);
}

TEST(three_hundred_mixed_requests_leave_no_byte)
{
    struct fixture f;
    struct rng rng = {4, 0};
    struct engine_opts o = gated(DIR);
    o.tokenizer = test_tokenizer();
    start(&f, &o);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) {
            submit_some(&f, &rng);
            if (rng_below(&rng, 10) == 0)
                listen_once(&f, 3 * NS_PER_MS);
            if (rng_below(&rng, 30) == 0 && f.clients[f.client_count / 2]->stream)
                abort_client(&f, f.clients[f.client_count / 2]);
            wait_until(&f, has_few, NULL);
        }
        wait_all(&f);
        uint32_t count = f.client_count;
        assert_int_equal(count, 100);
        free_clients(&f);
        uint64_t ended = clock_now_ns();
        wait_until(&f, is_empty, NULL);
        assert_true(clock_now_ns() - ended < 2 * NS_PER_S);
        assert_string_equal(list_accounts().text, before.text);
    }
    struct engine_numbers n;
    uint64_t finished = 0;
    engine_numbers(f.engine, &n);
    for (size_t i = 0; i < COUNT_OF(n.finished); i++)
        finished += n.finished[i];
    assert_int_equal(finished, 300);
    assert_true(n.finished[FINISH_STOP] > 0 && n.finished[FINISH_LENGTH] > 0 &&
                n.finished[FINISH_ABORTED] > 0);
    assert_int_equal(n.finished[FINISH_ERROR], 0);
    assert_int_equal(n.pages_used, 0);
    assert_int_equal(n.states_used, 0);
    test_engine_close(&f);
}

TEST(an_idle_engine_uses_no_processor)
{
    struct fixture f;
    struct engine_opts o = gated(DIR);
    struct timespec began, ended;
    start(&f, &o);
    struct job_spec s = greedy(prompt, 20, 5);
    struct client *c = submit(&f, &s);
    expect_end(&f, c, FINISH_LENGTH);
    wait_until(&f, is_empty, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    int64_t ns = (ended.tv_sec - began.tv_sec) * (int64_t)NS_PER_S + ended.tv_nsec - began.tv_nsec;
    assert_true(ns < 10 * (int64_t)NS_PER_MS);
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    assert_true(n.idle && n.completion_tokens == 5 && n.prompt_tokens == 20);
    test_engine_close(&f);
}

TEST_MAIN()
