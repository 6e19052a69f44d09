/* Plans of a model on several devices: room for all lines, and on each device a part of every page and state
 * within its ceiling. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "memory/plan.h"

#include <errno.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

static const char *const names[SHARDS_MAX] = {"test:0", "test:1", "test:2", "test:3",
                                              "test:4", "test:5", "test:6", "test:7"};

static void numbers_of(void *arg, uint32_t seqs, struct plan_model *ret)
{
    *ret = *(const struct plan_model *)arg;
    ret->seqs = seqs;
}

static struct plan_process a_process(uint64_t ceiling, uint64_t on_device)
{
    struct plan_process o = {.ceiling_bytes = ceiling,
                             .heap_bytes = 8 * MIB,
                             .threads_bytes = MIB,
                             .network_bytes = 10 * MIB,
                             .text_floor_bytes = MIB,
                             .text_bytes = 20 * MIB,
                             .device_count = SHARDS_MAX};
    for (uint32_t i = 0; i < SHARDS_MAX; i++)
        o.devices[i] =
            (struct plan_domain){.name = names[i], .ceiling_bytes = on_device, .context_bytes = MIB};
    return o;
}

static struct plan_model a_model(uint32_t devices)
{
    struct plan_model m = {.name = "made",
                           .domain = 1,
                           .context_max = 32768,
                           .page_tokens = 32,
                           .queue = 100,
                           .weight_bytes = 100 * MIB,
                           .loading_bytes = 3 * MIB,
                           .workspace_bytes = 10 * MIB,
                           .host_bytes = MIB,
                           .tables_bytes = MIB,
                           .tokenizer_bytes = 5 * MIB,
                           .page_bytes = 64 << 10,
                           .state_bytes = MIB,
                           .engine_bytes = MIB,
                           .engine_page_bytes = 90,
                           .engine_state_bytes = 40,
                           .job_bytes = 10000,
                           .job_token_bytes = 30,
                           .beside_count = devices - 1};
    for (uint32_t i = 0; i < m.beside_count; i++)
        m.beside[i] = (struct plan_shard){.domain = i + 2,
                                          .weight_bytes = 90 * MIB,
                                          .workspace_bytes = 10 * MIB,
                                          .recorded_bytes = MIB,
                                          .page_bytes = 32 << 10,
                                          .state_bytes = MIB / 2};
    return m;
}

/* A device beside the first has room for the pages of a sequence, and stays within its ceiling. */
static void check_beside(const struct plan *p, uint32_t index)
{
    const struct plan_shard *s = &p->model.beside[index];
    const struct plan_device *d = &p->beside[index];
    const uint64_t pages = DIV_UP(p->max_model_len, p->model.page_tokens);
    uint64_t limit = 0, floor = 0, parts = 0;
    for (uint32_t i = 0; i < p->line_count; i++) {
        const struct plan_line *l = &p->lines[i];
        if (l->domain != s->domain)
            continue;
        assert_true(l->floor_bytes <= l->limit_bytes);
        limit += l->depth == 0 ? l->limit_bytes : 0;
        floor += l->depth == 0 ? l->floor_bytes : 0;
        parts += l->depth == 1 ? l->limit_bytes : 0;
    }
    assert_true(limit == d->limit_bytes && floor == d->floor_bytes && parts == d->model_bytes);
    assert_true(d->limit_bytes <= d->ceiling_bytes && d->load_bytes <= d->model_bytes);
    assert_true(d->pools_floor_bytes <= d->pools_bytes);
    assert_true(d->pools_floor_bytes >=
                pages * (s->page_bytes - s->window_page_bytes[0]) + (uint64_t)p->seqs * s->state_bytes);
}

/* Each part of a plan that may have a line has one, in a model on as many devices as may be. */
TEST(a_plan_has_room_for_the_lines_of_all_devices)
{
    struct plan_process o = a_process(65536 * MIB, 4096 * MIB);
    struct plan_model m = a_model(SHARDS_MAX);
    const struct plan_wish wish = {.max_model_len = 2048,
                                   .prefix_cache_bytes = PLAN_ALL,
                                   .image_cache_bytes = PLAN_ALL,
                                   .pinned_cache_bytes = MIB};
    struct plan p;
    o.responses_bytes = o.conversations_bytes = o.history_bytes = o.pull_bytes = o.media_bytes = MIB;
    o.ssd_staging_bytes = o.ssd_table_bytes = o.shared_bytes = MIB;
    m.recorded_bytes = m.recorded_host_bytes = m.draft_bytes = m.draft_host_bytes = m.mtp_bytes = MIB;
    m.vision_bytes = m.image_bytes = m.experts_bytes = MIB;
    m.has_vision = m.has_mtp = m.has_grammars = true;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    assert_true(p.line_count <= PLAN_LINES_MAX);
    for (uint32_t i = 0; i < m.beside_count; i++)
        check_beside(&p, i);
}

static uint64_t up_to(struct rng *rng, uint64_t most)
{
    return 1 + rng_below(rng, most);
}

static struct plan_model random_model(struct rng *rng)
{
    struct plan_model m = a_model((uint32_t)(1 + up_to(rng, SHARDS_MAX - 1)));
    const bool recurrent = rng_below(rng, 2), window = rng_below(rng, 2);
    m.context_max = (uint32_t)up_to(rng, 100000);
    m.step_tokens = 512;
    m.state_bytes = recurrent ? 64 * up_to(rng, 60000) : 0;
    m.window_count = window;
    m.windows[0] =
        (struct plan_window){.tokens = (uint32_t)up_to(rng, 2000), .page_bytes = 64 * up_to(rng, 900)};
    m.page_bytes = 64 * up_to(rng, 3000) + (window ? m.windows[0].page_bytes : 0);
    for (uint32_t i = 0; i < m.beside_count; i++) {
        struct plan_shard *s = &m.beside[i];
        s->weight_bytes = up_to(rng, 500 * MIB);
        s->state_bytes = recurrent ? 64 * up_to(rng, 60000) : 0;
        s->window_page_bytes[0] = window ? 64 * up_to(rng, 900) : 0;
        s->page_bytes = 64 * up_to(rng, 3000) + s->window_page_bytes[0];
    }
    return m;
}

PROPERTY(random_plans_are_within_the_ceilings_of_all_devices, seed)
{
    struct rng rng = {seed, 1};
    uint32_t made = 0;
    for (int i = 0; i < 300; i++) {
        struct plan_model m = random_model(&rng);
        struct plan_process o = a_process(up_to(&rng, 800 * MIB), 0);
        const struct plan_wish wish = {
            .max_model_len = (uint32_t)(rng_below(&rng, 2) * up_to(&rng, m.context_max)),
            .prefix_cache_bytes =
                rng_below(&rng, 2) ? PLAN_ALL : rng_below(&rng, 2) * up_to(&rng, 500 * MIB)};
        struct plan_refusal why;
        struct plan p;
        for (uint32_t k = 0; k < SHARDS_MAX; k++)
            o.devices[k].ceiling_bytes = up_to(&rng, 3000 * MIB);
        if (plan_make(&o, numbers_of, &m, (uint32_t)up_to(&rng, 40), &wish, &p, &why) < 0) {
            assert_true(why.needed_bytes > why.ceiling_bytes);
            assert_int_equal(why.ceiling_bytes, plan_ceiling_bytes(&o, why.domain));
            continue;
        }
        made++;
        for (uint32_t k = 0; k < m.beside_count; k++)
            check_beside(&p, k);
    }
    assert_true(made > 30);
}

TEST_MAIN()
