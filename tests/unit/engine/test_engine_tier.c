/* Prefixes that come from disk: the same tokens as computed, after an unload and after a restart; and a disk
 * that fails or hangs costs hits only. */
#define TEST_DRAFTS_MAX 2 /* so that states record how many pending tokens follow them */
#include "test_engine.h"
#include "unit/store/test_store.h"

#include "cache/leases.h"
#include "cache/page_group.h"
#include "engine/engine_numbers.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "model/model.h"
#include "store/store_file.h"

#include <limits.h>

struct engine_faults;

#define PROMPT_COUNT 700
#define ANSWER       24

/* gemma3 has windows alone, the last two have full attention as well. "olmo3:100": with that window. */
static const char *const models[] = {"qwen3",  "llama",     "qwen3_5",   "qwen3_5_moe",
                                     "gemma3", "olmo3:100", "gpt_oss:70"};

static uint32_t prompt[PROMPT_COUNT];

__attribute__((constructor)) static void fill_prompt(void)
{
    for (uint32_t i = 0; i < PROMPT_COUNT; i++)
        prompt[i] = (uint32_t)(rng_at(77, i) % 80);
}

/* The model's directory; with a window of its own, a copy of it that is made once. */
static const char *dir_of(const char *name)
{
    static struct made {
        char name[32], dir[300];
    } made[4];
    static char plain[300];
    const char *colon = strchr(name, ':');
    struct made *m = made;
    if (!colon) {
        snprintf(plain, sizeof(plain), TINY("%s"), name);
        return plain;
    }
    while (m->name[0] && strcmp(m->name, name) != 0)
        assert_true(++m < made + COUNT_OF(made));
    if (m->name[0])
        return m->dir;
    char path[400], of[300];
    snprintf(m->name, sizeof(m->name), "%s", name);
    snprintf(m->dir, sizeof(m->dir), "%s", test_dir());
    snprintf(of, sizeof(of), TINY("%.*s"), (int)(colon - name), name);
    snprintf(path, sizeof(path), "%s/config.json", of);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, "max_position_embeddings", json_integer(4096));
    json_object_set_new(config, "sliding_window", json_integer(atoi(colon + 1)));
    snprintf(path, sizeof(path), "%s/config.json", m->dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    snprintf(path, sizeof(path), "%s/model.safetensors", m->dir);
    snprintf(of + strlen(of), sizeof(of) - strlen(of), "/model.safetensors");
    assert_int_equal(symlink(of, path), 0);
    return m->dir;
}

static struct store *open_store(const char *dir, uint64_t hang_ns)
{
    struct store *st;
    struct err e;
    struct store_opts o = opts_of(dir, (uint64_t)256 << 20);
    o.staging_bytes = 16 << 20;
    o.hang_ns = hang_ns;
    assert_int_equal(store_open(&o, &st, &e), 0);
    struct store_numbers n;
    do {
        usleep(1000);
        store_numbers(st, &n);
    } while (n.state == STORE_LISTING);
    return st;
}

static void open_engine_with(struct fixture *f, const char *name, struct store *st, uint32_t pages,
                             const struct engine_faults *faults)
{
    const char *dir = dir_of(name);
    struct engine_opts o = test_engine_opts(dir);
    const struct model_shape *shape = model_shape(o.model);
    o.store = st;
    o.faults = faults;
    o.identity = (struct store_identity){.fingerprint = {(uint8_t)name[0], (uint8_t)strlen(name)}};
    o.kv_bytes_max = pages * shape->page_bytes;
    o.max_model_len = MIN_OF(o.max_model_len, pages * PAGE_TOKENS);
    o.prefix_cache_bytes = o.kv_bytes_max + 8 * shape->state_bytes;
    test_engine_start(f, dir, &o);
}

static void open_engine(struct fixture *f, const char *name, struct store *st, uint32_t pages)
{
    open_engine_with(f, name, st, pages, NULL);
}

static struct client *ask(struct fixture *f, uint32_t count)
{
    struct job_spec spec = greedy(prompt, count, ANSWER);
    struct client *c = submit(f, &spec);
    wait_over(f, c);
    assert_int_equal(c->finish.reason, FINISH_LENGTH);
    return c;
}

static uint64_t fetched(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n.fetched_tokens;
}

/* All that the engine has is written. */
static void wait_stored(struct store *st, uint64_t writes)
{
    struct store_numbers n;
    uint64_t began_ns = clock_now_ns();
    do {
        usleep(1000);
        store_numbers(st, &n);
        assert_true(clock_now_ns() - began_ns < 20 * NS_PER_S);
    } while (n.writes < writes || n.queued_writes > 0 || n.staging_used_bytes > 0);
}

#define WHOLE (PROMPT_COUNT / PAGE_TOKENS)

/* True: a later prompt that continues after the prompt's last whole page, after the answer's, or after one in
 * eight windows needs this page of a window. */
static bool is_needed(const struct page_group *g, uint32_t page, uint32_t whole)
{
    bool needed = false;
    for (uint32_t end = page + 1; end <= whole && !needed; end++) {
        bool is_end = end == WHOLE || end == whole || end % (8 * page_window_most(g->window, 1)) == 0;
        needed = is_end && page_group_first(g, end * PAGE_TOKENS) <= page;
    }
    return needed;
}

/* All pages of the first group, and of windows those that are needed. */
static void check_written(struct store *st, const char *name)
{
    const struct model_shape *shape = model_shape(test_model(dir_of(name))->model);
    uint32_t whole = (PROMPT_COUNT + ANSWER - 1) / PAGE_TOKENS, pages = whole;
    struct store_numbers n;
    store_numbers(st, &n);
    for (uint32_t g = 1; g < shape->group_count; g++)
        for (uint32_t i = 0; i < whole; i++)
            pages += is_needed(&(struct page_group){.window = shape->groups[g].window}, i, whole);
    assert_int_equal(shape->group_count > 1, strncmp(name, "qwen", 4) != 0 && strcmp(name, "llama") != 0);
    assert_int_equal(n.pages, pages);
    assert_true((n.snapshots > 0) == (shape->state_bytes > 0));
    assert_true(n.drops == 0 && n.evictions == 0);
}

static void restart(const char *name)
{
    struct fixture f = {0};
    uint32_t want[ANSWER];
    const char *dir = test_dir();
    sys_reset();
    struct store *st = open_store(dir, 0);
    open_engine(&f, name, st, 80);
    struct client *c = ask(&f, PROMPT_COUNT);
    assert_int_equal(c->finish.cached_tokens, 0);
    memcpy(want, c->ids, sizeof(want));
    wait_stored(st, WHOLE);
    test_engine_close(&f);
    wait_stored(st, WHOLE);
    check_written(st, name);
    /* Unloaded and loaded again, then another process. */
    for (int again = 0; again < 2; again++) {
        open_engine(&f, name, st, 80);
        c = ask(&f, PROMPT_COUNT);
        expect_tokens(c, want, ANSWER);
        assert_int_equal(c->finish.cached_tokens, WHOLE * PAGE_TOKENS);
        assert_int_equal(fetched(&f), WHOLE * PAGE_TOKENS);
        /* From memory now. */
        expect_tokens(ask(&f, PROMPT_COUNT), want, ANSWER);
        assert_int_equal(fetched(&f), WHOLE * PAGE_TOKENS);
        test_engine_close(&f);
        store_close(st);
        st = open_store(dir, 0);
    }
    store_close(st);
    test_remove_tree(dir);
    test_ledger_after(true);
}

TEST(a_restart_finds_what_was_written_and_says_the_same)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        restart(models[i]);
}

static void evict(const char *name)
{
    struct fixture f = {0};
    uint32_t want[ANSWER];
    sys_reset();
    struct store *st = open_store(test_dir(), 0);
    open_engine(&f, name, st, 24);
    memcpy(want, ask(&f, 600)->ids, sizeof(want));
    /* Others take its pages while nothing is idle for long. */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t first = prompt[0];
        prompt[0] = 400 + i;
        ask(&f, 600);
        prompt[0] = first;
    }
    wait_stored(st, 1);
    test_engine_close(&f);
    open_engine(&f, name, st, 24);
    struct client *c = ask(&f, 600);
    expect_tokens(c, want, ANSWER);
    assert_int_equal(c->finish.cached_tokens, 599 / PAGE_TOKENS * PAGE_TOKENS);
    assert_true(fetched(&f) > 0);
    test_engine_close(&f);
    store_close(st);
}

TEST(what_is_evicted_comes_back_from_disk)
{
    evict("qwen3_5");
    evict("olmo3:100");
}

TEST(many_with_the_same_prompt_read_it_once)
{
    struct fixture f = {0};
    struct store_numbers n;
    uint32_t want[ANSWER];
    sys_reset();
    struct store *st = open_store(test_dir(), 0);
    open_engine(&f, "qwen3", st, 80);
    memcpy(want, ask(&f, PROMPT_COUNT)->ids, sizeof(want));
    wait_stored(st, WHOLE);
    test_engine_close(&f);
    open_engine(&f, "qwen3", st, 80);
    struct job_spec spec = greedy(prompt, PROMPT_COUNT, ANSWER);
    for (uint32_t i = 0; i < 6; i++)
        submit(&f, &spec);
    wait_all(&f);
    for (uint32_t i = 0; i < 6; i++) {
        expect_tokens(f.clients[i], want, ANSWER);
        assert_int_equal(f.clients[i]->finish.cached_tokens, WHOLE * PAGE_TOKENS);
    }
    store_numbers(st, &n);
    assert_int_equal(n.reads, WHOLE);
    test_engine_close(&f);
    store_close(st);
}

/* ---- trouble ---- */

/* Written by one engine, then read by another one. */
static void prepare(const char *name, struct store *st, uint32_t *want)
{
    struct fixture f = {0};
    open_engine(&f, name, st, 80);
    memcpy(want, ask(&f, PROMPT_COUNT)->ids, ANSWER * sizeof(*want));
    wait_stored(st, WHOLE);
    test_engine_close(&f);
}

TEST(reads_that_fail_at_any_place_cost_hits_only)
{
    for (size_t m = 0; m < COUNT_OF(models); m += 2) {
        uint32_t want[ANSWER];
        const char *dir = test_dir();
        sys_reset();
        struct store *st = open_store(dir, 0);
        prepare(models[m], st, want);
        /* Windows' pages are read after those of the first group. */
        for (unsigned at = 0; at <= WHOLE + 2; at += at < WHOLE ? 7 : 1) {
            struct fixture f = {0};
            open_engine(&f, models[m], st, 80);
            sys_fail(CALL_PREAD, -EIO, at, 1);
            struct client *c = ask(&f, PROMPT_COUNT);
            expect_tokens(c, want, ANSWER);
            assert_true(c->finish.cached_tokens <= WHOLE * PAGE_TOKENS);
            sys_reset();
            test_engine_close(&f);
        }
        store_close(st);
        test_ledger_after(true);
    }
}

/* Sealed again with another number of held tokens. True: it is a snapshot. */
static bool say_held(const char *path, const struct model_shape *shape, uint32_t held)
{
    struct store_header h;
    uint64_t bytes = store_file_bytes(shape->state_bytes);
    char *file = malloc(bytes);
    FILE *f = fopen(path, "r+");
    assert_true(f && file);
    bool ours = fread(file, 1, bytes, f) == bytes && store_file_check(file, bytes, &h) == 0 &&
                h.kind == TIER_SNAPSHOT;
    if (ours) {
        h.pending = held;
        store_file_seal(file, &h);
        rewind(f);
        assert_int_equal(fwrite(file, 1, bytes, f), bytes);
    }
    assert_int_equal(fclose(f), 0);
    free(file);
    return ours;
}

static uint32_t say_held_everywhere(const char *dir, const struct model_shape *shape, uint32_t held)
{
    uint32_t changed = 0;
    for (unsigned leaf = 0; leaf < 256; leaf++) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%x/%x", dir, leaf >> 4, leaf & 15);
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
            snprintf(path, sizeof(path), "%s/%x/%x/%s", dir, leaf >> 4, leaf & 15, e->d_name);
            changed += e->d_name[0] != '.' && say_held(path, shape, held);
        }
        if (d)
            closedir(d);
    }
    return changed;
}

TEST(a_state_with_a_senseless_header_is_a_damaged_file)
{
    static const uint32_t senseless[] = {TEST_DRAFTS_MAX + 2, UINT32_MAX};
    const struct model_shape *shape = model_shape(test_model(TINY("qwen3_5"))->model);
    assert_int_equal(shape->state_pending_max, TEST_DRAFTS_MAX + 1);
    for (size_t i = 0; i < COUNT_OF(senseless); i++) {
        struct fixture f = {0};
        struct store_numbers n;
        uint32_t want[ANSWER];
        const char *dir = test_dir();
        sys_reset();
        struct store *st = open_store(dir, 0);
        prepare("qwen3_5", st, want);
        uint32_t changed = say_held_everywhere(dir, shape, senseless[i]);
        assert_true(changed > 0);
        open_engine(&f, "qwen3_5", st, 80);
        struct client *c = ask(&f, PROMPT_COUNT);
        expect_tokens(c, want, ANSWER);
        assert_int_equal(c->finish.cached_tokens, 0);
        store_numbers(st, &n);
        assert_true(n.corrupt > 0 && n.corrupt <= changed);
        test_engine_close(&f);
        store_close(st);
    }
}

static atomic_int steps_left;

static int end_of_step(void *arg)
{
    (void)arg;
    return atomic_fetch_sub(&steps_left, 1) == 0 ? -EIO : 0;
}

/* Pages that were computed before the failure may be damaged as well. */
TEST(nothing_of_a_device_that_failed_is_written)
{
    static const struct engine_faults faults = {.step_end = end_of_step};
    for (size_t m = 0; m < COUNT_OF(models); m += 2) {
        struct fixture f = {0};
        struct store_numbers before, n;
        uint32_t want[ANSWER];
        sys_reset();
        atomic_store(&steps_left, INT_MAX);
        struct store *st = open_store(test_dir(), 0);
        open_engine_with(&f, models[m], st, 80, &faults);
        memcpy(want, ask(&f, PROMPT_COUNT)->ids, sizeof(want));
        wait_stored(st, WHOLE);
        store_numbers(st, &before);
        struct job_spec other = greedy(prompt + 1, 600, 400);
        atomic_store(&steps_left, 100);
        struct client *c = submit(&f, &other);
        wait_over(&f, c);
        assert_int_equal(c->finish.reason, FINISH_ERROR);
        assert_true(c->count > 0);
        test_engine_close(&f);
        store_numbers(st, &n);
        assert_int_equal(n.queued_writes, 0);
        assert_int_equal(n.writes, before.writes);
        /* Entries that were written before are sound. */
        open_engine(&f, models[m], st, 80);
        c = ask(&f, PROMPT_COUNT);
        expect_tokens(c, want, ANSWER);
        assert_int_equal(c->finish.cached_tokens, WHOLE * PAGE_TOKENS);
        test_engine_close(&f);
        store_close(st);
    }
}

TEST(a_disk_that_hangs_delays_no_other_and_is_given_up)
{
    struct fixture f = {0};
    uint32_t want[ANSWER];
    sys_reset();
    struct store *st = open_store(test_dir(), 4 * NS_PER_S);
    prepare("qwen3_5", st, want);
    open_engine(&f, "qwen3_5", st, 80);
    atomic_store(&sys_state.hangs, CALL_PREAD + 1);
    struct job_spec slow = greedy(prompt, PROMPT_COUNT, ANSWER), other = greedy(prompt + 1, 100, ANSWER);
    uint64_t began_ns = clock_now_ns();
    struct client *waits = submit(&f, &slow), *left = submit(&f, &slow), *runs = submit(&f, &other);
    wait_over(&f, runs);
    assert_int_equal(runs->finish.reason, FINISH_LENGTH);
    assert_false(waits->over);
    struct engine_numbers n;
    engine_numbers(f.engine, &n);
    assert_int_equal(n.fetching, 1);
    /* A client that leaves does not wait for the disk. */
    stream_close(left->stream);
    engine_wake(f.engine);
    wait_over(&f, left);
    assert_int_equal(left->finish.reason, FINISH_ABORTED);
    wait_over(&f, waits);
    expect_tokens(waits, want, ANSWER);
    assert_true(clock_now_ns() - began_ns < 60 * NS_PER_S);
    struct store_numbers s;
    store_numbers(st, &s);
    assert_int_equal(s.state, STORE_OFF);
    /* Neither does an unload. */
    began_ns = clock_now_ns();
    test_engine_close(&f);
    assert_true(clock_now_ns() - began_ns < 2 * NS_PER_S);
    atomic_store(&sys_state.hangs, 0);
    store_close(st);
}

TEST(who_leaves_while_it_fetches_leaves_nothing)
{
    struct fixture f = {0};
    uint32_t want[ANSWER];
    sys_reset();
    struct store *st = open_store(test_dir(), 0);
    prepare("qwen3", st, want);
    open_engine(&f, "qwen3", st, 80);
    atomic_store(&sys_state.hangs, CALL_PREAD + 1);
    struct job_spec spec = greedy(prompt, PROMPT_COUNT, ANSWER);
    struct client *c = submit(&f, &spec);
    while (atomic_load(&sys_state.hanging) == 0)
        usleep(1000);
    stream_close(c->stream);
    engine_wake(f.engine);
    wait_over(&f, c);
    assert_int_equal(c->finish.reason, FINISH_ABORTED);
    c = submit(&f, &spec);
    usleep(20000);
    /* With one that fetches as well. */
    test_engine_close(&f);
    atomic_store(&sys_state.hangs, 0);
    store_close(st);
}

/* ---- sessions ---- */

/* Waits until the session has `tokens`, and with `whole` all of them on disk. */
static struct lease_info session_is(struct fixture *f, uint32_t tokens, bool whole)
{
    const struct lease_id id = {{1}};
    struct lease_info is = {0};
    uint64_t began_ns = clock_now_ns();
    while (!engine_session(f->engine, &id, 0, &is) || is.tokens < tokens || is.bytes == 0 ||
           (whole && is.stored_bytes < is.bytes)) {
        usleep(1000);
        assert_true(clock_now_ns() - began_ns < 20 * NS_PER_S);
    }
    return is;
}

static struct client *open_session(struct fixture *f, uint32_t count)
{
    struct job_spec spec = greedy(prompt, count, 4);
    spec.leases = (struct job_leases){
        .session = JOB_OPENS_SESSION, .id = {1}, .ttl_s = 3600, .follows = true, .below = true};
    struct client *c = submit(f, &spec);
    wait_over(f, c);
    return c;
}

static uint64_t leased_in_memory(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n.leased_bytes;
}

static void wait_unleased(struct fixture *f)
{
    uint64_t began_ns = clock_now_ns();
    while (leased_in_memory(f) > 0 && usleep(1000) == 0)
        assert_true(clock_now_ns() - began_ns < 20 * NS_PER_S);
}

static void hold_on_disk(const char *name)
{
    struct fixture f = {0};
    struct store_cleared cleared;
    struct store_numbers n;
    sys_reset();
    struct store *st = open_store(test_dir(), 0);
    open_engine(&f, name, st, 80);
    assert_int_equal(open_session(&f, 400)->finish.reason, FINISH_LENGTH);
    struct lease_info is = session_is(&f, 400 / PAGE_TOKENS * PAGE_TOKENS, true);
    wait_unleased(&f);
    assert_true(is.below);
    /* Neither a clear nor other prompts take it, and it moves. */
    assert_int_equal(store_clear(st, &cleared), 0);
    assert_true(cleared.kept >= is.tokens / PAGE_TOKENS);
    assert_int_equal(ask(&f, PROMPT_COUNT)->finish.reason, FINISH_LENGTH);
    (void)session_is(&f, WHOLE * PAGE_TOKENS, true);
    test_engine_close(&f);
    store_numbers(st, &n);
    assert_true(n.leases == 0 && n.leased_bytes == 0);
    /* A hybrid's session holds the snapshot at its end; this prompt wants an earlier one, which the engine
     * handed over when it closed. */
    wait_stored(st, 0);
    open_engine(&f, name, st, 80);
    assert_int_equal(ask(&f, PROMPT_COUNT)->finish.cached_tokens, WHOLE * PAGE_TOKENS);
    test_engine_close(&f);
    store_close(st);
    test_ledger_after(true);
}

TEST(a_session_on_disk_outlives_clears_and_moves)
{
    for (size_t i = 0; i < COUNT_OF(models); i++)
        hold_on_disk(models[i]);
}

TEST(a_session_whose_disk_fails_stays_in_memory_and_says_so)
{
    struct fixture f = {0};
    sys_reset();
    struct store *st = open_store(test_dir(), 0);
    open_engine(&f, "qwen3_5", st, 80);
    sys_fail(CALL_PWRITE, -EROFS, 0, 0);
    assert_int_equal(open_session(&f, 100)->finish.reason, FINISH_LENGTH);
    assert_int_equal(session_is(&f, 1, false).stored_bytes, 0);
    struct store_numbers n;
    do {
        usleep(1000);
        store_numbers(st, &n);
    } while (n.write_error == 0);
    assert_true(leased_in_memory(&f) > 0);
    /* While it fails, another session is refused, and other requests go on. */
    struct job_spec spec = greedy(prompt, 100, ANSWER);
    spec.leases = (struct job_leases){.session = JOB_OPENS_SESSION, .id = {2}, .ttl_s = 60, .below = true};
    struct client *c = submit(&f, &spec);
    wait_over(&f, c);
    assert_int_equal(c->finish.reason, FINISH_LEASE_REFUSED);
    assert_non_null(strstr(c->finish.error, "Read-only"));
    (void)ask(&f, 200);
    sys_reset();
    (void)session_is(&f, 1, true);
    test_engine_close(&f);
    store_close(st);
    test_ledger_after(true);
}

TEST_MAIN()
