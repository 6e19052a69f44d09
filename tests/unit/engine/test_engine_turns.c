/* Two models on one device: an engine's steps while another engine works or waits. */
#include "base/page_tokens.h"
#include "engine/engine_numbers.h"
#include "engine/engine_opts.h"
#include "engine/job_spec.h"
#include "test_engine.h"

#define DIR TINY("llama")

static uint32_t prompt[1024];

static void open_engine(struct fixture *f)
{
    struct engine_opts o = test_engine_opts(DIR);
    o.step_ns = 1;
    o.step_alone_ns = 100 * NS_PER_S;
    test_engine_start(f, DIR, &o);
    for (uint32_t i = 0; i < COUNT_OF(prompt); i++)
        prompt[i] = i % 500;
}

/* The steps that the prompt takes. */
static uint64_t steps_of_prompt(struct fixture *f)
{
    struct job_spec spec = greedy(prompt, COUNT_OF(prompt), 1);
    struct engine_numbers before, after;
    engine_numbers(f->engine, &before);
    spec.cache_salt = f->client_count ? SLICE("other") : SLICE("one");
    wait_over(f, submit(f, &spec));
    engine_numbers(f->engine, &after);
    return after.steps - before.steps;
}

TEST(a_prompt_that_another_model_waits_for_takes_short_steps)
{
    struct fixture f;
    open_engine(&f);
    struct device *d = test_device_get();
    assert_in_range(steps_of_prompt(&f), 2, 10);
    device_work_begin(d);
    assert_int_equal(steps_of_prompt(&f), COUNT_OF(prompt) / PAGE_TOKENS);
    device_work_end(d);
    test_engine_close(&f);
    assert_false(device_is_shared(d));
}

TEST(the_wait_for_a_turn_is_no_part_of_a_step)
{
    struct fixture f;
    struct engine_numbers n;
    struct device *d = test_device_get();
    open_engine(&f);
    device_turn_begin(d);
    struct job_spec spec = greedy(prompt, 8, 1);
    struct client *c = submit(&f, &spec);
    if (!test_device_is_fake()) /* where engines do not wait */
        while (!device_is_shared(d))
            usleep(1000);
    usleep(400000);
    device_turn_end(d);
    wait_over(&f, c);
    engine_numbers(f.engine, &n);
    assert_in_range(n.steps, 1, 1);
    assert_true(n.busy_ns > 0 && n.busy_ns < 300 * NS_PER_MS);
    test_engine_close(&f);
}

TEST_MAIN()
