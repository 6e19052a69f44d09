/* Layers with a window: what a sequence has of their pages, and that it gives them back. */
#include "base/page_tokens.h"
#include "engine/engine_numbers.h"
#include "engine/job_spec.h"
#include "engine/stream.h"
#include "model/model.h"
#include "test_engine.h"
#include "test_files.h"

#include <time.h>
#include <unistd.h>

#define PROMPT 8192
#define WINDOW 128
#define MOST   6 /* pages of a group with that window: 5, and one that is begun */

/* olmo3's layers, two of four with a window, with a longer context and another window. */
static const char *windowed_model(void)
{
    const char *dir = test_dir();
    char path[512];
    json_t *config = json_load_file(TINY("olmo3") "/config.json", 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, "max_position_embeddings", json_integer(4 * PROMPT));
    json_object_set_new(config, "sliding_window", json_integer(WINDOW));
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(symlink(TINY("olmo3") "/model.safetensors", path), 0);
    return dir;
}

static void wait_paused(struct fixture *f)
{
    struct job_numbers job;
    while (engine_jobs(f->engine, &job, 1) != 1 || job.phase != JOB_PAUSED)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static struct engine_numbers numbers_of(struct fixture *f)
{
    struct engine_numbers n;
    engine_numbers(f->engine, &n);
    return n;
}

/* The client does not read, so the sequence stays with its pages in the middle of its reply. */
TEST(after_8192_tokens_a_sequence_has_few_pages_of_a_window)
{
    static uint32_t prompt[PROMPT];
    struct fixture f;
    const char *dir = windowed_model();
    struct engine_opts o = test_engine_opts(dir);
    const struct model_shape *shape = model_shape(o.model);
    assert_int_equal(shape->group_count, 2);
    assert_int_equal(shape->groups[1].window, WINDOW);
    assert_int_equal(shape->groups[0].page_bytes, shape->groups[1].page_bytes);
    o.max_model_len = PROMPT + 1024;
    o.kv_bytes_max = (PROMPT + 1024) / PAGE_TOKENS * shape->page_bytes;
    o.step_ns = o.step_alone_ns = 10 * NS_PER_S;
    o.slow_client_ns = 0;
    test_engine_start(&f, dir, &o);
    for (uint32_t i = 0; i < PROMPT; i++)
        prompt[i] = i * 7 % 500;
    struct job_spec spec = greedy(prompt, PROMPT, 1000);
    struct client *c = submit(&f, &spec);
    c->deaf = true;
    wait_paused(&f);
    struct engine_numbers n = numbers_of(&f);
    assert_true(n.group_used[0] >= PROMPT / PAGE_TOKENS);
    assert_true(n.group_used[1] > 0 && n.group_used[1] <= MOST);
    assert_int_equal(n.pages_used, n.group_used[0] + n.group_used[1]);
    /* A step of the prompt needs the pages of its own tokens beside the window. */
    uint64_t most = page_window_most(WINDOW, TEST_TOKENS_MAX) * (uint64_t)shape->groups[1].page_bytes;
    assert_true(n.kv.peak_bytes <= n.group_used[0] * (uint64_t)shape->groups[0].page_bytes + most);
    stream_close(c->stream);
    c->deaf = false;
    engine_wake(f.engine);
    wait_over(&f, c);
    test_engine_close(&f);
}

TEST_MAIN()
