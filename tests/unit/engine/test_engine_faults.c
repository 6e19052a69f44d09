/* Faults below a request: memory refused at every reservation, steps that hang, work without a client.
 * Afterwards every account is the same as before, and the next request gets its usual tokens. */
#include "test_engine_scene.h"

/* ---- reservations that fail ---- */

/* The `at`-th reservation from now on is refused, 0: none; and those after it, if it `lasts`. */
static struct {
    atomic_uint count, at;
    atomic_bool lasts;
} refusal;

static int refuse(void *arg)
{
    unsigned count = atomic_fetch_add(&refusal.count, 1) + 1, at = atomic_load(&refusal.at);
    (void)arg;
    return at > 0 && (atomic_load(&refusal.lasts) ? count >= at : count == at);
}

static void refuse_at(unsigned at, bool lasts)
{
    atomic_store(&refusal.at, 0);
    atomic_store(&refusal.count, 0);
    atomic_store(&refusal.lasts, lasts);
    atomic_store(&refusal.at, at);
}

/* Whether the reservation was reached. No more is refused. */
static bool refused(void)
{
    unsigned at = atomic_exchange(&refusal.at, 0);
    return at > 0 && atomic_load(&refusal.count) >= at;
}

static void set_faults(void)
{
    ledger_set_faults(test_ledger(), &(struct ledger_faults){refuse, NULL});
}

struct refusals {
    uint32_t before, after; /* requests that were not accepted, and that ended for lack of memory */
};

/* One request while the n-th reservation is refused. False: it made fewer reservations. */
static bool run_refused(struct fixture *f, const struct job_spec *s, const uint32_t *want, unsigned n,
                        bool lasts, struct refusals *ends)
{
    struct client *c = client_create(f, 0);
    struct err e = {""};
    refuse_at(n, lasts);
    int r = client_submit(f, c, s, NULL, &e);
    if (r < 0) {
        assert_true(refused());
        assert_true(r == -ENOMEM || r == -ENOBUFS);
        assert_true(strlen(e.text) > 20);
        ends->before++;
        return true;
    }
    wait_over(f, c);
    bool was = refused();
    if (c->finish.reason == FINISH_ERROR) {
        assert_true(was);
        assert_non_null(strstr(c->finish.error, "memory"));
        ends->after++;
    } else {
        assert_int_equal(c->finish.reason, FINISH_LENGTH);
        expect_tokens(c, want, s->max_tokens);
    }
    return was;
}

/* Refused once, an engine may find another way; when all later reservations fail, the request ends. */
static void refuse_each(const char *dir, uint64_t cache_bytes, bool lasts)
{
    struct fixture f;
    uint32_t want[ANSWER];
    struct refusals ends = {0, 0};
    struct engine_opts o = gated(dir);
    struct job_spec s = greedy(prompt, 300, ANSWER);
    tokens_alone(dir, &s, want);
    o.prefix_cache_bytes = cache_bytes;
    test_engine_start(&f, dir, &o);
    struct account_list before = list_accounts();
    uint32_t count = 0;
    for (bool was = true; was; count++) {
        assert_true(count < 100);
        was = run_refused(&f, &s, want, count + 1, lasts, &ends);
        expect_goes_on(&f, &s, want);
        expect_settled(&f, &before);
    }
    /* Its block, and the first unit of its pages, and of states where there are any. */
    assert_true(count > 2 && ends.before >= 1);
    if (lasts)
        assert_int_equal(ends.before + ends.after, count - 1);
    test_engine_close(&f);
}

static void refuse_each_of(bool lasts)
{
    set_faults();
    refuse_each(TINY("qwen3_5"), 0, lasts);
    refuse_each(TINY("qwen3_5"), 16 << 20, lasts);
    refuse_each(TINY("qwen3"), 16 << 20, lasts);
}

TEST(each_reservation_of_a_request_may_be_refused)
{
    refuse_each_of(false);
}

TEST(each_and_all_that_follow_may_be_refused)
{
    refuse_each_of(true);
}

/* Six of two kinds at once while the n-th reservation is refused. False: they made fewer. */
static bool run_six(struct fixture *f, const uint32_t *want, unsigned n)
{
    struct job_spec s = greedy(prompt, 300, ANSWER);
    uint32_t missing = 0;
    struct client *clients[6];
    for (int i = 0; i < 6; i++)
        clients[i] = client_create(f, 0);
    refuse_at(n, false);
    for (int i = 0; i < 6; i++) {
        struct err e = {""};
        s.cache_salt = slice_of(i % 2 ? "a" : "b");
        missing += client_submit(f, clients[i], &s, NULL, &e) < 0;
    }
    wait_all(f);
    for (uint32_t i = 0; i < f->client_count; i++) {
        const struct client *c = f->clients[i];
        missing += c->finish.reason == FINISH_ERROR;
        if (c->finish.reason != FINISH_ERROR)
            expect_tokens(c, want, ANSWER);
    }
    assert_true(missing <= 1);
    return refused();
}

/* Only the request without its memory may be harmed. */
TEST(each_reservation_among_others_may_be_refused)
{
    struct fixture f;
    uint32_t want[ANSWER];
    struct engine_opts o = gated(TINY("qwen3_5"));
    struct job_spec s = greedy(prompt, 300, ANSWER);
    set_faults();
    tokens_alone(TINY("qwen3_5"), &s, want);
    o.prefix_cache_bytes = 16 << 20;
    o.max_num_seqs = 3;
    test_engine_start(&f, TINY("qwen3_5"), &o);
    struct account_list before = list_accounts();
    unsigned n = 1;
    while (run_six(&f, want, n)) {
        expect_settled(&f, &before);
        assert_true(++n < 1000);
    }
    assert_true(n > 10);
    test_engine_close(&f);
}

TEST(an_engine_that_cannot_be_made_leaves_nothing)
{
    static const char *const dirs[] = {TINY("qwen3"), TINY("qwen3_5")};
    set_faults();
    for (size_t i = 0; i < COUNT_OF(dirs); i++) {
        struct engine_opts o = gated(dirs[i]);
        struct engine *en = NULL;
        o.prefix_cache_bytes = 16 << 20;
        o.parent = test_account(ACCOUNT_NO_LIMIT);
        int r = -ENOMEM;
        for (unsigned n = 1; r < 0; n++) {
            struct err e = {""};
            refuse_at(n, false);
            r = engine_create(&o, &en, &e);
            assert_int_equal(refused(), r < 0);
            if (r == 0)
                break;
            assert_int_equal(r, -ENOMEM);
            assert_true(strlen(e.text) > 20 && !en);
            assert_int_equal(account_numbers(o.parent).reserved, 0);
            assert_int_equal(account_numbers(o.parent).children, 0);
            assert_true(n < 1000);
        }
        assert_int_equal(engine_start(en), 0);
        engine_close(en);
        assert_int_equal(account_numbers(o.parent).reserved, 0);
    }
}

/* ---- no work without a client ---- */

TEST(who_left_the_queue_is_never_computed)
{
    struct fixture f;
    struct engine_opts o = gated(TINY("qwen3_5"));
    o.max_num_seqs = 1;
    test_engine_start(&f, TINY("qwen3_5"), &o);
    struct job_spec s = greedy(prompt, 20, 3), left = greedy(prompt, 100, 50);
    gate_set(&gate, true, 0);
    struct client *first = submit(&f, &s);
    gate_wait(&gate);
    for (int i = 0; i < 20; i++) {
        abort_client(&f, submit(&f, &left));
    }
    struct client *last = submit(&f, &s);
    gate_set(&gate, false, 0);
    wait_all(&f);
    struct engine_numbers n = numbers(&f);
    assert_int_equal(n.prompt_tokens, 40);
    assert_int_equal(n.completion_tokens, 6);
    assert_int_equal(n.steps, 6);
    assert_int_equal(n.finished[FINISH_ABORTED], 20);
    for (uint32_t i = 0; i < f.client_count; i++)
        if (f.clients[i] != first && f.clients[i] != last)
            assert_int_equal(f.clients[i]->finish.prefill_ns, 0);
    test_engine_close(&f);
}

/* ---- work that makes no progress ---- */

static bool is_not_watched(struct fixture *f, void *arg)
{
    (void)arg;
    return numbers(f).progress_ns == 0;
}

TEST(a_step_that_hangs_is_seen_from_outside)
{
    struct fixture f;
    struct engine_opts o = gated(TINY("qwen3_5"));
    test_engine_start(&f, TINY("qwen3_5"), &o);
    assert_int_equal(numbers(&f).progress_ns, 0);
    gate_set(&gate, true, 0);
    struct job_spec s = greedy(prompt, 20, 20);
    /* The first step of an engine that was idle: it has published nothing of it yet. */
    struct client *c = submit(&f, &s);
    gate_wait(&gate);
    uint64_t since = numbers(&f).progress_ns, now_ns = clock_now_ns();
    assert_true(since > 0 && since <= now_ns);
    /* Submitting, leaving or querying does not make it appear alive. */
    abort_client(&f, submit(&f, &s));
    assert_true(numbers(&f).progress_ns == since);
    struct request_id ids[4], id = stream_id(c->stream);
    assert_int_equal(engine_step_ids(f.engine, ids, 4), 1);
    assert_memory_equal(&ids[0], &id, sizeof(id));
    gate_set(&gate, false, 0);
    wait_over(&f, c);
    wait_until(&f, is_not_watched, NULL);
    /* A client that does not read makes no work. */
    s = greedy(prompt, 20, 600);
    struct client *deaf = submit(&f, &s);
    deaf->deaf = true;
    wait_phase(&f, deaf, JOB_PAUSED);
    wait_until(&f, is_not_watched, NULL);
    undeafen(deaf);
    wait_over(&f, deaf);
    assert_int_equal(deaf->finish.reason, FINISH_LENGTH);
    test_engine_close(&f);
}

/* Each layer counts: a model of many layers is not stuck because a step takes long. */
TEST(layers_are_progress)
{
    if (test_device_is_fake()) /* its step is one piece, and its pages are not the host's */
        skip();
    _Atomic uint64_t progress_ns = 0;
    const struct test_model *m = test_model(TINY("qwen3"));
    const struct model_shape *shape = model_shape(m->model);
    char *pages = aligned_alloc(64, shape->page_bytes);
    float *logits = calloc(shape->vocab, sizeof(float));
    uint32_t table[1] = {0};
    memset(pages, 0, shape->page_bytes);
    struct model_seq seq = {.tokens = prompt,
                            .token_count = 5,
                            .pages = {table},
                            .state_in = NONE,
                            .state_out = NONE,
                            .logits_from = 4};
    atomic_bool stop = false;
    struct model_step step = {.seqs = &seq,
                              .seq_count = 1,
                              .pages = {dev_of_host(pages)},
                              .logits = logits,
                              .stop = &stop,
                              .progress_ns = &progress_ns};
    uint64_t began_ns = clock_now_ns();
    assert_int_equal(model_forward(m->model, &step), 0);
    assert_true(atomic_load(&progress_ns) >= began_ns && atomic_load(&progress_ns) <= clock_now_ns());
    uint64_t before = atomic_load(&progress_ns);
    atomic_store(&stop, true);
    assert_int_equal(model_forward(m->model, &step), -ECANCELED);
    assert_true(atomic_load(&progress_ns) == before);
    free(logits);
    free(pages);
}

TEST_MAIN()
