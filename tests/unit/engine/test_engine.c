/* The engine gives the same tokens whatever shares its steps: golden answers, seeds, pauses, preemption,
 * logprobs. */
#include "test_engine.h"
#include "test_files.h"

#include "base/page_tokens.h"
#include "cache/page_pool.h"
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "engine/stream.h"

#include <math.h>
#include <unistd.h>

#define PROMPT_MAX 2048

static void run_golden_tiny(const char *name, uint32_t copies)
{
    char dir[256];
    struct fixture f;
    uint32_t prompt[PROMPT_MAX], want[64];
    snprintf(dir, sizeof(dir), TINY("%s"), name);
    json_t *g = golden_load(name), *text = json_object_get(g, "text");
    uint32_t prompt_count = golden_ids(json_object_get(text, "prompt"), prompt, PROMPT_MAX);
    uint32_t count = golden_ids(json_object_get(text, "greedy"), want, 64);
    struct engine_opts o = test_engine_opts(dir);
    test_engine_start(&f, dir, &o);
    struct job_spec spec = greedy(prompt, prompt_count, count);
    for (uint32_t i = 0; i < copies; i++)
        submit(&f, &spec);
    wait_all(&f);
    for (uint32_t i = 0; i < copies; i++) {
        expect_tokens(f.clients[i], want, count);
        assert_int_equal(f.clients[i]->finish.reason, FINISH_LENGTH);
        assert_int_equal(f.clients[i]->finish.prompt_tokens, prompt_count);
        assert_int_equal(f.clients[i]->finish.cached_tokens, 0);
    }
    test_engine_close(&f);
    json_decref(g);
}

static const char *const tiny_models[] = {"qwen3", "llama", "qwen3_5", "qwen3_5_moe", "granitemoehybrid"};

TEST(golden_answers_alone)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++)
        run_golden_tiny(tiny_models[i], 1);
}

TEST(golden_answers_eight_at_a_time)
{
    for (size_t i = 0; i < COUNT_OF(tiny_models); i++)
        run_golden_tiny(tiny_models[i], 20);
}

/* ---- sampling ---- */

/* Ids below 80, the smallest vocabulary. */
static void fill_prompt(uint32_t *prompt, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++)
        prompt[i] = (seed * 7919 + i * i * 31 + i * 17) % 80;
}

static struct job_spec seeded(const uint32_t *prompt, uint32_t count, uint32_t max_tokens, uint64_t seed)
{
    struct job_spec s = greedy(prompt, count, max_tokens);
    s.sampling.temperature = 1;
    s.sampling.top_p = 0.95f;
    s.sampling.seed = seed;
    s.sampling.repetition_penalty = 1.1f;
    return s;
}

/* Alone: the engine has nothing else to do. */
static struct client *run_alone(struct fixture *f, const struct job_spec *spec)
{
    struct client *c = submit(f, spec);
    wait_over(f, c);
    return c;
}

static void open_alone(struct fixture *f, const char *dir)
{
    struct engine_opts o = test_engine_opts(dir);
    test_engine_start(f, dir, &o);
}

TEST(a_seed_gives_the_same_text_alone_and_in_a_batch)
{
    struct fixture alone, f;
    uint32_t prompt[8][200];
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    test_engine_start(&f, TINY("qwen3_5"), &o);
    open_alone(&alone, TINY("qwen3_5"));
    for (uint32_t i = 0; i < 8; i++) {
        fill_prompt(prompt[i], 30 + 20 * i, i);
        struct job_spec s = seeded(prompt[i], 30 + 20 * i, 40 + i, i % 4);
        submit(&f, &s);
    }
    wait_all(&f);
    for (uint32_t i = 0; i < 8; i++) {
        struct job_spec s = seeded(prompt[i], 30 + 20 * i, 40 + i, i % 4);
        expect_same(f.clients[i], run_alone(&alone, &s));
    }
    struct job_spec other = seeded(prompt[3], 90, 43, 12345);
    struct client *c = submit(&f, &other);
    wait_over(&f, c);
    assert_memory_not_equal(c->ids, f.clients[3]->ids, 43 * sizeof(uint32_t));
    test_engine_close(&f);
    test_engine_close(&alone);
}

/* ---- pauses and preemption ---- */

static bool is_paused(struct fixture *f, void *arg)
{
    struct job_numbers jobs[8];
    uint32_t count = engine_jobs(f->engine, jobs, 8);
    for (uint32_t i = 0; i < count; i++)
        if (memcmp(&jobs[i].id, arg, sizeof(jobs[i].id)) == 0)
            return jobs[i].phase == JOB_PAUSED;
    return false;
}

TEST(a_slow_reader_pauses_and_gets_the_same_tokens)
{
    struct fixture alone, f;
    uint32_t prompt[40];
    fill_prompt(prompt, 40, 1);
    struct job_spec spec = seeded(prompt, 40, 600, 9);
    open_alone(&alone, TINY("qwen3_5"));
    struct client *want = run_alone(&alone, &spec);
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    test_engine_start(&f, TINY("qwen3_5"), &o);
    struct client *slow = submit(&f, &spec), *other = submit(&f, &spec);
    slow->deaf = true;
    struct request_id id = stream_id(slow->stream);
    wait_until(&f, is_paused, &id);
    /* It keeps its place and delays no other request. */
    wait_over(&f, other);
    expect_same(other, want);
    assert_int_equal(slow->count, 0);
    assert_true(is_paused(&f, &id));
    undeafen(slow);
    wait_over(&f, slow);
    expect_same(slow, want);
    test_engine_close(&f);
    test_engine_close(&alone);
}

/* Under a sanitizer sequences are shorter. */
#ifdef TEST_SANITIZED
#define POOL_PAGES 128u
#else
#define POOL_PAGES 320u
#endif

/* A pool of one unit or of fewer pages, and eight sequences that together want half as much again; half of it
 * is prompts, which are quick to compute. */
static void run_preempted(const char *dir)
{
    struct fixture alone, f;
    struct engine_numbers n;
    uint32_t prompt[8][1200];
    struct engine_opts o = test_engine_opts(dir);
    uint32_t pages = (uint32_t)MIN_OF(UNIT_BYTES / model_shape(o.model)->page_bytes, (uint64_t)POOL_PAGES);
    uint32_t outputs = (pages * 3 / 2 / 8 - 2) * PAGE_TOKENS / 2;
    assert_true(outputs + 8 < COUNT_OF(prompt[0]));
    o.kv_bytes_max = pages < POOL_PAGES ? UNIT_BYTES : pages * model_shape(o.model)->page_bytes;
    o.max_model_len = MIN_OF(pages / 2 * PAGE_TOKENS, 4096);
    test_engine_start(&f, dir, &o);
    for (uint32_t i = 0; i < 8; i++) {
        fill_prompt(prompt[i], outputs + i, i);
        struct job_spec s = seeded(prompt[i], outputs + i, outputs, i);
        submit(&f, &s);
    }
    wait_all(&f);
    engine_numbers(f.engine, &n);
    assert_int_equal(n.pages_max, pages);
    assert_true(n.preemptions > 0);
    open_alone(&alone, dir);
    for (uint32_t i = 0; i < 8; i += 7) {
        struct job_spec s = seeded(prompt[i], outputs + i, outputs, i);
        expect_same(f.clients[i], run_alone(&alone, &s));
    }
    test_engine_close(&alone);
    test_engine_close(&f);
}

/* Copies the model and claims in its config.json that it was trained on longer texts. */
static const char *longer(const char *model)
{
    const char *dir = test_dir();
    char path[512], weights[512];
    snprintf(path, sizeof(path), "%s/config.json", model);
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, "max_position_embeddings", json_integer(4096));
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    snprintf(weights, sizeof(weights), "%s/model.safetensors", model);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(symlink(weights, path), 0);
    return dir;
}

/* With recurrent states of a delta net, of Mamba-2 and of short convolutions, and without one. */
TEST(preemption_changes_no_token)
{
    run_preempted(TINY("qwen3_5"));
    run_preempted(TINY("qwen3"));
    run_preempted(TINY("granitemoehybrid"));
    run_preempted(longer(TINY("lfm2")));
}

/* ---- logprobs ---- */

TEST(logprobs_of_prompt_and_answer)
{
    struct fixture f;
    uint32_t prompt[PROMPT_MAX], argmax[PROMPT_MAX], want[64];
    json_t *g = golden_load("qwen3_5"), *text = json_object_get(g, "text");
    uint32_t count = golden_ids(json_object_get(text, "prompt"), prompt, PROMPT_MAX);
    golden_ids(json_object_get(text, "argmax"), argmax, PROMPT_MAX);
    uint32_t want_count = golden_ids(json_object_get(text, "greedy"), want, 64);
    struct engine_opts o = test_engine_opts(TINY("qwen3_5"));
    test_engine_start(&f, TINY("qwen3_5"), &o);
    struct job_spec spec = greedy(prompt, count, want_count);
    spec.prompt_logprobs = spec.sampling.logprobs = true;
    spec.sampling.top_logprobs = 2;
    struct client *both[3] = {submit(&f, &spec), submit(&f, &spec), submit(&f, &spec)};
    wait_all(&f);
    for (size_t k = 0; k < COUNT_OF(both); k++) {
        struct client *c = both[k];
        assert_int_equal(c->count, count + want_count);
        assert_int_equal(c->finish.completion_tokens, want_count);
        assert_memory_equal(c->ids, prompt, count * sizeof(uint32_t));
        assert_memory_equal(c->ids + count, want, want_count * sizeof(uint32_t));
        assert_true(isnan(c->logprobs[0]));
        for (uint32_t i = 1; i < c->count; i++) {
            assert_true(c->logprobs[i] <= c->top[i].logprob && c->top[i].logprob <= 0);
            assert_int_equal(c->top[i].id, i < count ? argmax[i - 1] : want[i - count]);
        }
        assert_memory_equal(c->logprobs + 1, both[0]->logprobs + 1, (c->count - 1) * sizeof(float));
    }
    test_engine_close(&f);
    json_decref(g);
}

/* Prompt tokens fill the stream in chunks, and the job waits until the next chunk fits. */
TEST(logprobs_of_a_prompt_wait_for_a_client_that_does_not_read)
{
    struct fixture f;
    uint32_t prompt[STREAM_TOKENS + 150];
    for (uint32_t i = 0; i < COUNT_OF(prompt); i++)
        prompt[i] = i % 400;
    struct engine_opts o = test_engine_opts(TINY("qwen3"));
    test_engine_start(&f, TINY("qwen3"), &o);
    struct job_spec spec = greedy(prompt, COUNT_OF(prompt), 3);
    spec.prompt_logprobs = spec.sampling.logprobs = true;
    struct client *c = submit(&f, &spec);
    c->deaf = true;
    while (stream_free_tokens(c->stream) >= ENGINE_PROMPT_LOGITS + 3)
        usleep(1000);
    usleep(20000);
    undeafen(c);
    wait_over(&f, c);
    assert_int_equal(c->count, COUNT_OF(prompt) + 3);
    assert_memory_equal(c->ids, prompt, sizeof(prompt));
    test_engine_close(&f);
}

TEST_MAIN()
