/* Ends of requests with images, and their memory: they leave in any phase, memory is refused, features crowd
 * each other out, caches are cleared. Afterwards all accounts are what they were, and the pixels are their
 * maker's again. */
#define TEST_SEEDS 3
#include "model_path.h"
#include "test_rng.h"
#include "test_engine_seen.h"

#include "test_engine_orders.h"

#define ANSWER_SEEN 12
#define PIXELS_MAX  65536 /* 64 tokens: features of one such image are all that fits */

/* ---- a model of its own, with its memory counted ---- */

struct scene {
    struct fixture f;
    struct engine_opts opts;
    struct model *model;
    struct account *account;
};

static void gate_slice(void *arg)
{
    (void)gate_step(arg);
}
static const struct engine_faults all_faults = {.step = gate_step, .slice = gate_slice, .arg = &gate};

static void scene_open(struct scene *s, bool reuse, uint64_t image_cache_bytes)
{
    struct err e = {""};
    *s = (struct scene){.opts = eyes(reuse), .account = test_account(ACCOUNT_NO_LIMIT)};
    struct model_opts opts = {
        .tokens_max = TEST_TOKENS_MAX,
        .seqs_max = TEST_SEQS_MAX,
        .logits_max = engine_logits_max(TEST_SEQS_MAX, TEST_DRAFTS_MAX),
        .parts = {.compute = test_compute(), .vision = true, .image_pixels_max = PIXELS_MAX},
        .device = test_device,
        .parent = s->account};
    if (model_load_at(EYES, &opts, &s->model, &e) < 0)
        fail_msg("%s", e.text);
    s->opts.parent = s->account;
    s->opts.model = s->model;
    s->opts.image_cache_bytes = image_cache_bytes;
    s->opts.faults = &all_faults;
    gate_set(&gate, false, 0);
}

static void scene_start(struct scene *s)
{
    test_engine_start(&s->f, EYES, &s->opts);
}

static uint64_t used(const struct scene *s, const char *account)
{
    return account_numbers(account_find(s->account, account)).used;
}

static void scene_close(struct scene *s)
{
    test_engine_close(&s->f);
    assert_int_equal(used(s, "vision"), 0);
    model_free(s->model);
    assert_int_equal(account_numbers(s->account).reserved, 0);
}

/* ---- leaving ---- */

enum { QUEUED, ENCODING, PREFILLING, DECODING, PHASES };
static const enum job_phase phases[PHASES] = {JOB_QUEUED, JOB_ENCODING, JOB_PREFILLING, JOB_DECODING};

static bool is_phase_now(struct fixture *f, const struct client *c, enum job_phase phase)
{
    struct watch w = {stream_id(c->stream), phase};
    return is_in_phase(f, &w);
}

/* Two images; its prompt takes several steps. */
static struct seen two_images(uint64_t look)
{
    struct seen s = one_image(20, 5, 7, look);
    show(&s, image_of(8, 8, look + 1));
    say(&s, 70, look);
    return s;
}

/* Another request has the place, where it must be queued. A step or slice stands before the gate then. */
static struct client *bring(struct fixture *f, const struct seen *seen, int phase)
{
    struct job_spec spec = ask(seen, 100), other = greedy(prompt, 20, 1000);
    gate_set(&gate, true, 0);
    if (phase == QUEUED) {
        submit(f, &other);
        gate_wait(&gate);
    }
    struct client *c = submit(f, &spec);
    gate_wait(&gate);
    while (!is_phase_now(f, c, phases[phase]) || (phase == QUEUED && numbers(f).steps < 2)) {
        assert_false(c->over);
        gate_pass(&gate);
    }
    return c;
}

static void leave_in(int phase)
{
    struct scene s;
    struct seen seen = two_images(5);
    struct client want;
    alone(&seen, ANSWER_SEEN, &want);
    scene_open(&s, true, 0);
    s.opts.max_num_seqs = 1;
    s.opts.step_ns = s.opts.step_alone_ns = 1;
    scene_start(&s);
    struct account_list before = list_accounts();
    struct client *c = bring(&s.f, &seen, phase);
    assert_int_equal(atomic_load(&seen.images[0].image->holders), phase == ENCODING ? 3 : 2);
    for (uint32_t i = 0; i < s.f.client_count; i++)
        abort_client(&s.f, s.f.clients[i]);
    gate_set(&gate, false, 0);
    wait_all(&s.f);
    assert_int_equal(c->finish.reason, FINISH_ABORTED);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(atomic_load(&seen.images[i].image->holders), 1);
    expect_settled(&s.f, &before);
    expect_same(run_seen(&s.f, &seen, ANSWER_SEEN), &want);
    expect_settled(&s.f, &before);
    scene_close(&s);
    seen_done(&seen);
}

TEST(who_leaves_in_any_phase_leaves_nothing)
{
    for (int phase = 0; phase < PHASES; phase++)
        leave_in(phase);
}

TEST(an_engine_that_closes_in_any_phase_leaves_nothing)
{
    for (int phase = 0; phase < PHASES; phase++) {
        struct scene s;
        struct seen seen = two_images(5);
        scene_open(&s, true, 1 << 20);
        s.opts.max_num_seqs = 1;
        s.opts.step_ns = s.opts.step_alone_ns = 1;
        scene_start(&s);
        struct client *c = bring(&s.f, &seen, phase);
        engine_stop(s.f.engine);
        gate_set(&gate, false, 0);
        wait_over(&s.f, c);
        assert_int_equal(c->finish.reason, FINISH_SHUTDOWN);
        scene_close(&s);
        seen_done(&seen);
    }
}

TEST(a_image_that_somebody_else_wants_too_is_not_begun_again)
{
    struct scene s;
    struct seen seen = one_image(20, 8, 8, 5);
    struct client want;
    alone(&seen, ANSWER_SEEN, &want);
    scene_open(&s, false, 0);
    s.opts.step_ns = s.opts.step_alone_ns = 1; /* a slice is a piece */
    scene_start(&s);
    struct client *first = bring(&s.f, &seen, ENCODING);
    struct job_spec spec = ask(&seen, ANSWER_SEEN);
    struct client *second = submit(&s.f, &spec);
    while (!is_phase_now(&s.f, second, JOB_ENCODING))
        gate_pass(&gate);
    abort_client(&s.f, first);
    gate_set(&gate, false, 0);
    wait_all(&s.f);
    assert_int_equal(first->finish.reason, FINISH_ABORTED);
    expect_same(second, &want);
    assert_int_equal(numbers(&s.f).images_encoded, 1);
    assert_int_equal(numbers(&s.f).images_found, 0);
    scene_close(&s);
    seen_done(&seen);
}

/* ---- room ---- */

/* Each needs the whole room for one of its images at a time. */
TEST(images_that_fit_one_by_one_go_through_one_by_one)
{
    struct scene s;
    static struct seen seen[4];
    static struct client want[4];
    for (uint32_t i = 0; i < 4; i++) {
        seen[i] = (struct seen){.count = 0};
        for (uint32_t k = 0; k < 4; k++) {
            say(&seen[i], 1 + i, i);
            show(&seen[i], image_of(8, 6 + k % 3, 10 * i + k));
        }
        say(&seen[i], 3, i);
        alone(&seen[i], ANSWER_SEEN, &want[i]);
    }
    scene_open(&s, false, 0);
    scene_start(&s);
    for (uint32_t i = 0; i < 4; i++) {
        struct job_spec spec = ask(&seen[i], ANSWER_SEEN);
        submit(&s.f, &spec);
    }
    wait_all(&s.f);
    for (uint32_t i = 0; i < 4; i++)
        expect_same(s.f.clients[i], &want[i]);
    assert_int_equal(numbers(&s.f).images_encoded, 16);
    assert_int_equal(numbers(&s.f).images_bytes_max, 64 * 32 * sizeof(float));
    assert_int_equal(account_numbers(account_find(s.account, "images")).peak, 64 * 32 * sizeof(float));
    scene_close(&s);
    for (uint32_t i = 0; i < 4; i++)
        seen_done(&seen[i]);
}

/* Pages and room for features are short at once: a sequence with the one may wait for a sequence with the
 * other. */
PROPERTY(short_of_pages_and_of_room_for_images_all_end, seed)
{
    struct scene s;
    static struct seen seen[10];
    static struct client want[10];
    struct rng rng = {seed, 0};
    for (uint32_t i = 0; i < 10; i++) {
        seen[i] = (struct seen){.count = 0};
        for (uint64_t k = 1 + rng_below(&rng, 4); k > 0; k--) {
            say(&seen[i], 1 + (uint32_t)rng_below(&rng, 30), rng_below(&rng, 3));
            uint32_t rows = 4 + (uint32_t)rng_below(&rng, 5), columns = 4 + (uint32_t)rng_below(&rng, 5);
            show(&seen[i], image_of(rows, columns, rng_below(&rng, 4)));
        }
        say(&seen[i], 1, 1);
        alone(&seen[i], 1 + (uint32_t)rng_below(&rng, 60), &want[i]);
    }
    scene_open(&s, rng_below(&rng, 2), 0);
    s.opts.max_model_len = 14 * PAGE_TOKENS;
    s.opts.kv_bytes_max = 15 * model_shape(s.model)->page_bytes;
    s.opts.step_ns = s.opts.step_alone_ns = NS_PER_US << rng_below(&rng, 16);
    scene_start(&s);
    for (uint32_t i = 0; i < 10; i++) {
        struct job_spec spec = ask(&seen[i], want[i].count);
        submit(&s.f, &spec);
    }
    wait_all(&s.f);
    for (uint32_t i = 0; i < 10; i++)
        expect_same(s.f.clients[i], &want[i]);
    scene_close(&s);
    for (uint32_t i = 0; i < 10; i++)
        seen_done(&seen[i]);
}

/* ---- memory that is refused ---- */

static struct {
    atomic_uint count, at;
} refusal;

static int refuse(void *arg)
{
    unsigned count = atomic_fetch_add(&refusal.count, 1) + 1, at = atomic_load(&refusal.at);
    (void)arg;
    return at > 0 && count >= at;
}

/* From each of its reservations on, until there are no more: the request ends with the reason, others are
 * answered. */
TEST(a_request_without_memory_for_its_image_says_so)
{
    struct scene s;
    struct seen seen = one_image(20, 8, 8, 5);
    struct client want;
    uint32_t failed = 0, told = 0, at = 0;
    alone(&seen, ANSWER_SEEN, &want);
    scene_open(&s, false, 0);
    scene_start(&s);
    struct account_list before = list_accounts();
    ledger_set_faults(test_ledger(), &(struct ledger_faults){refuse, NULL});
    bool all = false;
    while (!all) {
        struct job_spec spec = ask(&seen, ANSWER_SEEN);
        struct client *c = client_create(&s.f, 0);
        struct err e = {""};
        atomic_store(&refusal.count, 0);
        atomic_store(&refusal.at, ++at);
        int r = client_submit(&s.f, c, &spec, NULL, &e);
        if (r == 0)
            wait_over(&s.f, c);
        all = atomic_load(&refusal.count) < at;
        atomic_store(&refusal.at, 0);
        if (r == 0 && c->finish.reason == FINISH_ERROR) {
            failed++;
            told += strstr(c->finish.error, "no memory to encode image 0") != NULL;
        } else if (r == 0) {
            expect_same(c, &want);
        }
        expect_settled(&s.f, &before);
        expect_same(run_seen(&s.f, &seen, ANSWER_SEEN), &want);
        expect_settled(&s.f, &before);
    }
    assert_true(told >= 2 && failed > told);
    scene_close(&s);
    seen_done(&seen);
}

/* ---- giving back ---- */

static bool has_relaxed(struct fixture *f, void *arg)
{
    (void)f;
    return used(arg, "vision") == 0;
}

TEST(what_images_were_encoded_in_goes_when_none_comes_and_features_when_asked)
{
    struct scene s;
    struct test_cleared cleared;
    struct seen seen[3];
    scene_open(&s, true, 1 << 20);
    scene_start(&s);
    for (uint32_t i = 0; i < 3; i++) {
        seen[i] = one_image(20, 8, 8, i);
        run_seen(&s.f, &seen[i], 2);
    }
    assert_true(used(&s, "vision") > 0 || numbers(&s.f).idle);
    uint64_t until_ns = clock_now_ns() + NS_PER_S;
    wait_until(&s.f, has_relaxed, &s);
    assert_true(clock_now_ns() < until_ns);
    assert_int_equal(used(&s, "images"), 3 * 8192);
    assert_int_equal(numbers(&s.f).images_kept, 3);
    /* Two pages each, of which the first is the same for all: the text before. */
    assert_int_equal(test_clear(s.f.engine, &cleared), 0);
    assert_true(cleared.entries >= 3);
    assert_true(cleared.bytes_reclaimed >= 3 * 8192);
    assert_int_equal(used(&s, "images"), 0);
    assert_int_equal(used(&s, "pools"), 0);
    run_seen(&s.f, &seen[0], 2);
    assert_int_equal(numbers(&s.f).images_encoded, 4);
    /* Shortage takes them as well. */
    engine_reclaim(s.f.engine);
    wait_until(&s.f, is_at_rest, NULL);
    struct test_cleared given;
    assert_int_equal(test_trim(s.f.engine, &given), 0);
    assert_int_equal(used(&s, "images"), 0);
    scene_close(&s);
    for (uint32_t i = 0; i < 3; i++)
        seen_done(&seen[i]);
}

/* A load elsewhere wants bytes: features go like free units, and the answer says how many. */
TEST(others_get_what_nobody_looks_at)
{
    struct scene s;
    struct holders *holders = test_holders(0);
    struct holder_info info[2];
    struct holder_answer answer;
    struct holder_ask *asked = NULL;
    struct seen seen = one_image(20, 8, 8, 5);
    scene_open(&s, false, 1 << 20);
    s.opts.holders = holders;
    scene_start(&s);
    run_seen(&s.f, &seen, 2);
    wait_until(&s.f, has_relaxed, &s);
    wait_until(&s.f, is_at_rest, NULL);
    assert_int_equal(holders_list(holders, info, 2), 1);
    assert_int_equal(info[0].now.held_bytes, 8192);
    assert_int_equal(info[0].now.free_bytes, 8192);
    assert_int_equal(info[0].now.reach_bytes, 8192);
    assert_int_equal(holders_ask(holders, info[0].id, HOLDER_GIVE, 1, 0, NULL, &asked), 0);
    assert_int_equal(holder_ask_wait(asked, UINT64_MAX, &answer), 0);
    assert_int_equal(answer.bytes, 8192);
    assert_int_equal(used(&s, "images"), 0);
    scene_close(&s);
    holders_free(holders);
    seen_done(&seen);
}

TEST_MAIN()
