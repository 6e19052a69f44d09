/* Plans: limits that never pass the ceiling together, floors that are enough, and refusals that tell what
 * would fit. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "memory/plan.h"
#include "memory/units.h"

#include <errno.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* A model whose workspace and engine grow with its rows. */
struct made {
    struct plan_model model;
    uint64_t row_bytes, engine_row_bytes;
};

static void numbers_of(void *arg, uint32_t seqs, struct plan_model *ret)
{
    const struct made *m = arg;
    *ret = m->model;
    ret->seqs = seqs;
    ret->workspace_bytes += seqs * m->row_bytes;
    ret->engine_bytes += seqs * m->engine_row_bytes;
}

static struct made a_model(void)
{
    return (struct made){.model = {.name = "made",
                                   .context_max = 32768,
                                   .page_tokens = 32,
                                   .queue = 100,
                                   .weight_bytes = 100 * MIB,
                                   .loading_bytes = 3 * MIB,
                                   .workspace_bytes = 10 * MIB,
                                   .vision_bytes = 7 * MIB,
                                   .image_bytes = 3 * MIB,
                                   .tables_bytes = MIB,
                                   .tokenizer_bytes = 5 * MIB,
                                   .page_bytes = 64 << 10,
                                   .state_bytes = MIB,
                                   .engine_bytes = MIB,
                                   .engine_page_bytes = 90,
                                   .engine_state_bytes = 40,
                                   .job_bytes = 10000,
                                   .job_token_bytes = 30},
                         .row_bytes = 2 * MIB,
                         .engine_row_bytes = MIB};
}

static struct plan_process a_process(uint64_t ceiling)
{
    return (struct plan_process){.ceiling_bytes = ceiling,
                                 .heap_bytes = 8 * MIB,
                                 .threads_bytes = MIB,
                                 .network_bytes = 10 * MIB,
                                 .body_bytes = 10 * MIB,
                                 .connection_bytes = 80000,
                                 .text_floor_bytes = MIB,
                                 .text_bytes = 20 * MIB};
}

static uint64_t line_limit(const struct plan *p, const char *name)
{
    for (uint32_t i = 0; i < p->line_count; i++)
        if (strcmp(p->lines[i].name, name) == 0)
            return p->lines[i].limit_bytes;
    fail_msg("no line %s", name);
    return 0;
}

/* The line is one of the table, below the parent that the table says. */
static void check_account(const struct plan *p, const struct plan_line *l)
{
    static const enum account_id parents[] = {ACCOUNT_PROCESS, ACCOUNT_MODEL, ACCOUNT_POOLS};
    if (l->account == ACCOUNT_MODEL) {
        assert_string_equal(l->name, p->model.name);
        return;
    }
    assert_string_equal(l->name, accounts_row(l->account)->name);
    assert_int_equal(l->class, accounts_row(l->account)->class);
    assert_int_equal(accounts_row(l->account)->parent,
                     l->account == ACCOUNT_VIDEO ? ACCOUNT_MEDIA : parents[l->depth]);
}

/* A parent's line has what its children have together, or, for pools, bounds them together. */
static void check_plan(const struct plan *p)
{
    uint64_t model = 0, process = 0;
    assert_true(p->floor_bytes <= p->limit_bytes && p->limit_bytes <= p->ceiling_bytes);
    for (uint32_t i = 0; i < p->line_count; i++) {
        const struct plan_line *l = &p->lines[i];
        assert_true(l->floor_bytes <= l->limit_bytes);
        check_account(p, l);
        model += l->depth == 1 ? l->limit_bytes : 0;
        process += l->depth == 0 ? l->limit_bytes : 0;
        if (l->depth == 2)
            assert_true(l->limit_bytes <= p->pools_bytes);
    }
    assert_int_equal(model, line_limit(p, p->model.name));
    assert_int_equal(process, p->limit_bytes);
    assert_int_equal(line_limit(p, "vision"), p->model.vision_bytes);
    assert_int_equal(line_limit(p, "images"), p->images_bytes);
    assert_true(p->images_bytes >= p->model.image_bytes && p->image_cache_bytes <= p->images_bytes);
    /* One sequence at full length, and states for all rows, have their places in units. */
    const struct plan_model *m = &p->model;
    uint64_t pages = DIV_UP(p->max_model_len, m->page_tokens);
    uint64_t states = m->seqs + p->agents * PLAN_AGENT_ENDS;
    pages += (uint64_t)p->agents * DIV_UP(p->agent_tokens, m->page_tokens);
    assert_true(p->pages_max >= pages && (m->state_bytes == 0 || p->states_max >= states));
    assert_true(p->pools_bytes >= pages * m->page_bytes + states * m->state_bytes);
    assert_true(p->agents_bytes <= p->pools_floor_bytes);
    assert_true(p->requests_bytes >= (m->job_bytes + m->job_token_bytes * p->max_model_len) * m->seqs);
    assert_true(p->engine_bytes >= m->engine_bytes + (uint64_t)p->pages_max * m->engine_page_bytes);
}

TEST(what_is_left_is_the_pools)
{
    struct made m = a_model();
    struct plan_process o = a_process(4096 * MIB);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL};
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.max_model_len, 32768);
    assert_true(p.ceiling_bytes - p.limit_bytes < 4 * MIB);
    assert_int_equal(p.prefix_cache_bytes, p.pools_bytes);
}

/* The memory would hold four million pages of 1 KiB, with tables of hundreds of MiB. */
TEST(tables_of_a_small_model_s_pages_stay_small)
{
    struct made m = a_model();
    m.model.page_bytes = 1 << 10;
    struct plan_process o = a_process(4096 * MIB);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL};
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    check_plan(&p);
    uint64_t most = 16 * MIB + m.model.weight_bytes / 64;
    uint64_t cached = p.pages_max - 8 * (32768 / 32);
    assert_true(cached * 90 <= most && (cached + 1) * 90 > most);
    /* A cache of a given size has its pages. */
    wish.prefix_cache_bytes = 1024 * MIB;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.pages_max, (1 << 20) + 8 * (32768 / 32));
    assert_int_equal(p.prefix_cache_bytes, 1024 * MIB);
}

TEST(grammars_have_a_part)
{
    struct made m = a_model();
    struct plan_process o = a_process(4096 * MIB);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL, .grammar_cache_bytes = 32 * MIB};
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    assert_int_equal(p.grammars_bytes, 0);
    uint64_t pools = p.pools_bytes, load = p.load_bytes;
    m.model.has_grammars = true;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(line_limit(&p, "grammars"), 32 * MIB);
    assert_true(pools - p.pools_bytes > 31 * MIB && p.load_bytes <= load);
    /* A default context leaves them a part; a context that was asked for takes all. */
    o = a_process(256 * MIB);
    assert_int_equal(plan_make(&o, numbers_of, &m, 2, &wish, &p, NULL), 0);
    check_plan(&p);
    uint32_t length = p.max_model_len;
    assert_true(p.grammars_bytes >= 256 * MIB / 32 && length < 32768);
    wish.grammar_cache_bytes = 0;
    assert_int_equal(plan_make(&o, numbers_of, &m, 2, &wish, &p, NULL), 0);
    assert_true(p.grammars_bytes == 0 && p.max_model_len > length);
    wish = (struct plan_wish){.max_model_len = p.max_model_len, .grammar_cache_bytes = 32 * MIB};
    assert_int_equal(plan_make(&o, numbers_of, &m, 2, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_true(p.grammars_bytes < 4 * MIB);
}

TEST(requests_have_room_for_a_matcher_each)
{
    struct made m = a_model();
    struct plan_process process = a_process((uint64_t)8 << 30);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL, .grammar_cache_bytes = 32 << 20};
    struct plan without, with;
    struct plan_refusal why;
    assert_int_equal(plan_make(&process, numbers_of, &m, 4, &wish, &without, &why), 0);
    m.model.has_grammars = true;
    m.model.matcher_bytes = 512 << 10;
    m.model.matcher_token_bytes = 256;
    m.model.matcher_bytes_max = (uint64_t)200 << 20;
    assert_int_equal(plan_make(&process, numbers_of, &m, 4, &wish, &with, &why), 0);
    check_plan(&with);
    assert_int_equal(with.max_model_len, without.max_model_len);
    uint64_t matcher = MIN_OF((512u << 10) + 256 * (uint64_t)with.max_model_len, m.model.matcher_bytes_max);
    assert_int_equal(with.job_bytes, without.job_bytes + matcher);
    assert_true(with.requests_bytes >= 4 * with.job_bytes);
}

/* Half of the layers have a window of 128: a sequence has 5 pages of them, and a step's. */
TEST(pages_of_a_window_count_by_its_bound)
{
    struct made m = a_model(), full = a_model();
    struct plan_process o = a_process(16384 * MIB);
    struct plan_wish wish = {.max_model_len = 32768};
    struct plan p, all;
    m.model.windows[m.model.window_count++] = (struct plan_window){128, 32 << 10};
    m.model.step_tokens = 512;
    assert_int_equal(plan_make(&o, numbers_of, &full, 4, &wish, &all, NULL), 0);
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    assert_int_equal(plan_window_pages(&p.model, &p.model.windows[0], 32768, 1), 5 + 16);
    assert_int_equal(plan_window_pages(&p.model, &p.model.windows[0], 32768, 4), 4 * 5 + 16);
    assert_int_equal(plan_window_pages(&p.model, &p.model.windows[0], 64, 4), 4 * 2);
    assert_int_equal(plan_sequence_bytes(&p.model, 32768), (uint64_t)(1024 + 21) * (32 << 10));
    assert_int_equal(plan_sequence_bytes(&all.model, 32768), (uint64_t)1024 * (64 << 10));
    assert_int_equal(p.pages_max, all.pages_max);
    assert_true(p.load_bytes + 1003 * (uint64_t)(32 << 10) < all.load_bytes + 3 * UNIT_BYTES);
    assert_true(p.pools_bytes < all.pools_bytes * 6 / 10);
    assert_true(p.pools_bytes >= p.pools_floor_bytes);
    /* Twice the context has room. */
    wish.max_model_len = 0;
    o = a_process(all.floor_bytes + 8 * MIB);
    assert_int_equal(plan_make(&o, numbers_of, &full, 4, &wish, &all, NULL), 0);
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    assert_true(p.max_model_len >= all.max_model_len);
}

/* Without full attention a page of the first group is next to nothing, and the windows' pages decide how many
 * there are. */
TEST(windows_alone_do_not_fill_the_memory_with_tables)
{
    struct made m = a_model();
    struct plan_process o = a_process(4096 * MIB);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL};
    struct plan p;
    m.model.windows[m.model.window_count++] = (struct plan_window){4096, (64 << 10) - 64};
    m.model.windows_only = true;
    m.model.step_tokens = 512;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    assert_int_equal(p.max_model_len, 32768);
    assert_true((uint64_t)p.pages_max * m.model.page_bytes <= o.ceiling_bytes);
    assert_true(p.pages_max >= 32768 / 32);
    assert_true(p.limit_bytes <= p.ceiling_bytes);
}

TEST(without_a_cache_the_pools_hold_what_rows_can_use)
{
    struct made m = a_model();
    struct plan_process o = a_process(16384 * MIB);
    struct plan_wish wish = {.max_model_len = 1024};
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.pages_max, 4 * 32);
    assert_int_equal(p.states_max, 4);
    assert_true(p.pools_bytes < 4 * 32 * m.model.page_bytes + 4 * MIB + 8 * UNIT_BYTES);
    wish.prefix_cache_bytes = 64 * MIB;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.prefix_cache_bytes, 64 * MIB);
    assert_int_equal(p.pages_max, 4 * 32 + 1024);
}

TEST(images_get_what_was_asked_for_or_their_part_and_the_largest_fits_anyway)
{
    struct made m = a_model();
    struct plan_process o = a_process(2048 * MIB);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL, .image_cache_bytes = PLAN_ALL};
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.images_bytes, 128 * MIB);
    assert_int_equal(p.image_cache_bytes, 128 * MIB);
    o = a_process(16384 * MIB);
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    assert_int_equal(p.image_cache_bytes, PLAN_IMAGES_MOST);
    wish.image_cache_bytes = 0;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.images_bytes, 3 * MIB);
    assert_int_equal(p.image_cache_bytes, 0);
    /* More than there is: the pools keep what one sequence takes. */
    wish.image_cache_bytes = 100000 * MIB;
    wish.max_model_len = 1024;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    m.model.image_bytes = 0;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    assert_int_equal(p.images_bytes, 0);
}

TEST(more_than_the_model_was_made_for_is_refused)
{
    struct made m = a_model();
    struct plan_process o = a_process(16384 * MIB);
    struct plan_wish wish = {.max_model_len = 32769};
    struct plan_refusal why;
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, &why), -EINVAL);
    assert_int_equal(why.context_max, 32768);
}

/* Returns the context of other requests; *total has the whole of it. */
static uint32_t context_with(uint32_t asked, uint32_t reserve, uint64_t ceiling, uint32_t *total)
{
    struct made m = a_model();
    struct plan_process o = a_process(ceiling);
    struct plan_wish wish = {.max_model_len = asked, .reserve = reserve};
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    check_plan(&p);
    *total = p.max_model_len;
    return plan_context(&p);
}

TEST(compactions_have_a_reserve)
{
    const struct {
        uint32_t asked, reserve, context, total;
    } cases[] = {{0, 0, 32768, 32768},
                 {0, PLAN_RESERVE_DEFAULT, 32768 - 2048, 32768}, /* part of the model's own */
                 {16384, PLAN_RESERVE_DEFAULT, 16384, 16384 + 1024},
                 {8191, PLAN_RESERVE_DEFAULT, 8191, 8191},
                 {32000, PLAN_RESERVE_DEFAULT, 32768 - 2000, 32768},
                 {1024, 256, 1024, 1280},
                 {1024, 1 << 20, 1024, 1536},
                 {0, 1 << 20, 16384, 32768}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint32_t total = 0;
        assert_int_equal(context_with(cases[i].asked, cases[i].reserve, 16384 * MIB, &total),
                         cases[i].context);
        assert_int_equal(total, cases[i].total);
    }
}

TEST(the_largest_default_reserve_has_4096_tokens)
{
    struct made m = a_model();
    struct plan_process o = a_process(65536 * MIB);
    struct plan_wish wish = {.reserve = PLAN_RESERVE_DEFAULT};
    struct plan p;
    m.model.context_max = 131072;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, NULL), 0);
    assert_int_equal(p.max_model_len, 131072);
    assert_int_equal(p.reserve, 4096);
}

TEST(agents_have_pages_and_states_of_their_own)
{
    struct made m = a_model();
    struct plan_process o = a_process(4096 * MIB);
    struct plan_wish wish = {.max_model_len = 8192, .prefix_cache_bytes = PLAN_ALL};
    struct plan_refusal why;
    struct plan none, p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &none, &why), 0);
    assert_int_equal(none.agents_bytes, 0);
    /* Each takes 256 pages of 64 KiB, and two states of 1 MiB. */
    wish.agents = 8;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, &why), 0);
    check_plan(&p);
    assert_int_equal(p.agent_tokens, 8192);
    assert_int_equal(p.agents_bytes, 8 * (16 + 2) * MIB);
    assert_int_equal(p.pools_floor_bytes - none.pools_floor_bytes, p.agents_bytes);
    wish.agent_tokens = 4096;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, &why), 0);
    assert_int_equal(p.agent_tokens, 4096);
    assert_int_equal(p.agents_bytes, 8 * (8 + 2) * MIB);
    /* Too many agents are refused, with the number that fits. */
    o.ceiling_bytes = none.floor_bytes + 100 * MIB;
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, &why), -ENOMEM);
    assert_in_range(why.agents_max, 1, 7);
    /* Without a requested context all have a shorter one. */
    wish = (struct plan_wish){.agents = 8, .prefix_cache_bytes = PLAN_ALL};
    assert_int_equal(plan_make(&o, numbers_of, &m, 4, &wish, &p, &why), 0);
    check_plan(&p);
    assert_in_range(p.max_model_len, PLAN_CONTEXT_LEAST, 8191);
    assert_int_equal(p.agent_tokens, p.max_model_len);
}

/* A context that fits without the reserve is not refused for it. */
TEST(without_memory_beyond_it_the_reserve_is_part_of_the_context)
{
    uint32_t longest = 0, total = 0;
    (void)context_with(0, 0, 240 * MIB, &longest);
    assert_in_range(longest, 8192, 32767);
    assert_int_equal(context_with(longest, 4096, 240 * MIB, &total), longest - 4096);
    assert_int_equal(total, longest);
}

TEST(loading_has_to_fit_too)
{
    struct made m = a_model();
    struct plan_process o = a_process(300 * MIB);
    struct plan_wish wish = {.max_model_len = 1024};
    struct plan_refusal why;
    struct plan p;
    assert_int_equal(plan_make(&o, numbers_of, &m, 1, &wish, &p, &why), 0);
    m.model.loading_bytes = 200 * MIB;
    assert_int_equal(plan_make(&o, numbers_of, &m, 1, &wish, &p, &why), -ENOMEM);
    assert_true(why.needed_bytes > 300 * MIB);
    assert_int_equal(why.context, 0);
    assert_int_equal(why.seqs_max, 0);
}

static uint64_t up_to(struct rng *rng, uint64_t most)
{
    return rng_below(rng, most) + 1;
}

/* For every wish: a plan that holds, or a refusal whose suggestion would hold. */
PROPERTY(a_plan_holds_or_the_refusal_is_right, seed)
{
    struct rng rng = {seed, 0};
    for (int i = 0; i < 300; i++) {
        struct made m = a_model();
        m.model.context_max = (uint32_t)up_to(&rng, 1 << 18);
        m.model.page_bytes = 64 * up_to(&rng, 60000);
        m.model.state_bytes = rng_below(&rng, 2) * 64 * up_to(&rng, 60000);
        m.model.weight_bytes = up_to(&rng, 1000 * MIB);
        m.model.image_bytes = rng_below(&rng, 2) * up_to(&rng, 50 * MIB);
        m.model.has_grammars = rng_below(&rng, 2);
        m.model.matcher_bytes = m.model.has_grammars ? up_to(&rng, 4 << 20) : 0;
        m.model.matcher_token_bytes = m.model.has_grammars ? 256 : 0;
        m.model.matcher_bytes_max = m.model.has_grammars ? 5 << 20 : 0;
        m.row_bytes = up_to(&rng, 4 * MIB);
        m.model.queue = (uint32_t)rng_below(&rng, 1000);
        struct plan_process o = a_process(up_to(&rng, 3000 * MIB));
        struct plan_wish wish = {
            .max_model_len = (uint32_t)(rng_below(&rng, 2) * up_to(&rng, m.model.context_max)),
            .prefix_cache_bytes = rng_below(&rng, 2) ? PLAN_ALL : rng_below(&rng, 2) * up_to(&rng, 500 * MIB),
            .image_cache_bytes = rng_below(&rng, 2) ? PLAN_ALL : rng_below(&rng, 2) * up_to(&rng, 500 * MIB),
            .grammar_cache_bytes = rng_below(&rng, 2) * up_to(&rng, 100 * MIB)};
        if (wish.prefix_cache_bytes > 0 && rng_below(&rng, 2))
            wish.agents = (uint32_t)up_to(&rng, 16);
        wish.agent_tokens = (uint32_t)(rng_below(&rng, 2) * up_to(&rng, m.model.context_max));
        uint32_t seqs = (uint32_t)up_to(&rng, 40);
        struct plan_refusal why;
        struct plan p;
        int r = plan_make(&o, numbers_of, &m, seqs, &wish, &p, &why);
        if (r == 0) {
            check_plan(&p);
            continue;
        }
        assert_int_equal(r, -ENOMEM);
        assert_true(why.needed_bytes > o.ceiling_bytes);
        if (why.agents_max > 0) {
            struct plan_wish fewer = wish;
            fewer.agents = why.agents_max;
            assert_true(fewer.agents < wish.agents);
            fewer.max_model_len = p.max_model_len;
            assert_int_equal(plan_make(&o, numbers_of, &m, seqs, &fewer, &p, &why), 0);
            check_plan(&p);
            continue;
        }
        if (why.context) {
            struct plan_wish shorter = wish;
            shorter.max_model_len = why.context;
            assert_int_equal(plan_make(&o, numbers_of, &m, seqs, &shorter, &p, &why), 0);
            check_plan(&p);
            shorter.max_model_len++;
            if (shorter.max_model_len <= m.model.context_max)
                assert_int_equal(plan_make(&o, numbers_of, &m, seqs, &shorter, &p, &why), -ENOMEM);
        }
        if (plan_make(&o, numbers_of, &m, seqs, &wish, &p, &why) == -ENOMEM && why.seqs_max) {
            struct plan_wish same = wish;
            same.max_model_len = p.max_model_len;
            assert_true(why.seqs_max < seqs);
            assert_int_equal(plan_make(&o, numbers_of, &m, why.seqs_max, &same, &p, &why), 0);
            check_plan(&p);
        }
    }
}

/* ---- a device ---- */

static struct plan_process with_devices(uint64_t ceiling, uint64_t first, uint64_t second)
{
    struct plan_process o = a_process(ceiling);
    o.devices[0] = (struct plan_domain){.name = "test:0", .ceiling_bytes = first};
    o.devices[1] = (struct plan_domain){.name = "test:1", .ceiling_bytes = second};
    o.device_count = 2;
    return o;
}

static const struct plan_line *line_in(const struct plan *p, uint32_t domain, const char *name)
{
    for (uint32_t i = 0; i < p->line_count; i++)
        if (p->lines[i].domain == domain && strcmp(p->lines[i].name, name) == 0)
            return &p->lines[i];
    return NULL;
}

/* The lines of each domain stand together, its sums hold; workspace and recorded steps alone are in both. */
static void check_split(const struct plan *p)
{
    uint32_t domain = p->model.domain;
    uint64_t sums[2] = {0}, floors[2] = {0}, parts[2] = {0};
    for (uint32_t i = 0; i < p->line_count; i++) {
        const struct plan_line *l = &p->lines[i];
        assert_true(l->domain == 0 || l->domain == domain);
        assert_true(i == 0 || l->domain >= p->lines[i - 1].domain);
        assert_int_equal(l->class == ACCOUNT_DEVICE, l->domain > 0);
        assert_true(l->floor_bytes <= l->limit_bytes);
        assert_true(l->depth == 0 || strcmp(l->name, "workspace") == 0 ||
                    strcmp(l->name, "recorded steps") == 0 || !line_in(p, domain - l->domain, l->name));
        sums[l->domain > 0] += l->depth == 0 ? l->limit_bytes : 0;
        floors[l->domain > 0] += l->depth == 0 ? l->floor_bytes : 0;
        parts[l->domain > 0] += l->depth == 1 ? l->limit_bytes : 0;
    }
    assert_true(sums[0] == p->limit_bytes && floors[0] == p->floor_bytes);
    assert_true(sums[1] == p->device.limit_bytes && floors[1] == p->device.floor_bytes);
    assert_true(p->limit_bytes <= p->ceiling_bytes && p->device.limit_bytes <= p->device.ceiling_bytes);
    assert_true(parts[0] == p->model_bytes && parts[1] == p->device.model_bytes);
    assert_true(p->load_bytes <= p->model_bytes && p->device.load_bytes <= p->device.model_bytes);
    const struct plan_model *m = &p->model;
    uint64_t pages = DIV_UP(p->max_model_len, m->page_tokens);
    assert_true(p->pages_max >= pages);
    assert_true(p->pools_bytes >= pages * m->page_bytes + (uint64_t)m->seqs * m->state_bytes);
    assert_true(p->device.load_bytes >= m->weight_bytes + m->workspace_bytes + m->recorded_bytes +
                                            m->vision_bytes + pages * m->page_bytes +
                                            (uint64_t)m->seqs * m->state_bytes);
    assert_true(p->engine_bytes >= m->engine_bytes + (uint64_t)p->pages_max * m->engine_page_bytes);
}

TEST(a_model_on_a_device_has_its_weights_and_pools_there)
{
    struct made m = a_model();
    struct plan_process o = with_devices(512 * MIB, 100 * MIB, 1024 * MIB);
    struct plan_wish wish = {.prefix_cache_bytes = PLAN_ALL, .image_cache_bytes = PLAN_ALL};
    struct plan p;
    m.model.domain = 2;
    m.model.host_bytes = 3 * MIB;
    m.model.recorded_bytes = 9 * MIB;
    m.model.recorded_host_bytes = 11 * MIB;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, NULL), 0);
    check_split(&p);
    const struct plan_line *recorded = line_in(&p, 2, "recorded steps");
    assert_true(recorded->floor_bytes == 9 * MIB && recorded->limit_bytes == 9 * MIB);
    assert_int_equal(line_in(&p, 0, "recorded steps")->limit_bytes, 11 * MIB);
    assert_int_equal(line_in(&p, 0, "workspace")->limit_bytes, 3 * MIB);
    assert_int_equal(line_in(&p, 2, "workspace")->limit_bytes, p.model.workspace_bytes);
    assert_string_equal(p.device.name, "test:1");
    static const char *const there[] = {"weights", "workspace", "vision", "images",    "mtp",
                                        "pools",   "kv",        "state",  "snapshots", "prefix cache"};
    static const char *const here[] = {"heap",   "text",      "network", "loading",
                                       "tables", "tokenizer", "engine",  "requests"};
    for (size_t i = 0; i < COUNT_OF(there); i++)
        assert_true(line_in(&p, 2, there[i]) && (i == 1 || !line_in(&p, 0, there[i])));
    for (size_t i = 0; i < COUNT_OF(here); i++)
        assert_true(line_in(&p, 0, here[i]) && !line_in(&p, 2, here[i]));
    assert_true(line_in(&p, 0, "made")->depth == 0 && line_in(&p, 2, "made")->depth == 0);
    /* The pools take what the device leaves, and a sixteenth of its ceiling is for images. */
    assert_true(p.device.ceiling_bytes - p.device.limit_bytes < 4 * MIB);
    assert_int_equal(p.images_bytes, 64 * MIB);
    assert_true(p.limit_bytes < 300 * MIB);
}

/* Returns the planned sequences: the context counts like a lower ceiling, and has a line of its own. */
static uint32_t seqs_on(uint64_t ceiling, const struct made *m, uint32_t length)
{
    struct plan_process o = with_devices(65536 * MIB, ceiling, MIB);
    struct plan_wish wish = {.max_model_len = length, .prefix_cache_bytes = PLAN_ALL};
    struct made copy = *m;
    return plan_seqs(&o, numbers_of, &copy, &wish);
}

/* Limits of sequences: the ceiling, the pages, a load's reservation, and the context. */
TEST(a_device_carries_as_many_sequences_as_have_their_part)
{
    struct made m = a_model();
    assert_int_equal(seqs_on(139 * 1024 * MIB, &m, 0), 8); /* in the machine's memory */
    m.model.domain = 1;
    m.model.state_bytes = 0;
    m.model.page_bytes = MIB;
    assert_int_equal(seqs_on(139 * 1024 * MIB, &m, 0), 256);
    assert_int_equal(seqs_on(78 * 1024 * MIB, &m, 0), 256);
    assert_int_equal(seqs_on(22 * 1024 * MIB, &m, 0), 64);
    assert_int_equal(seqs_on(4 * 1024 * MIB, &m, 0), 8);
    assert_int_equal(seqs_on(200 * MIB, &m, 0), 8); /* which is refused then, with its numbers */
    m.model.weight_bytes = 21 * 1024 * MIB;
    assert_int_equal(seqs_on(22 * 1024 * MIB, &m, 1024), 32);
    m.model.weight_bytes = 100 * MIB;
    m.model.state_bytes = 64 * MIB;
    assert_int_equal(seqs_on(22 * 1024 * MIB, &m, 0), 16);
    m.model.state_bytes = 0;
    m.row_bytes = 40 * MIB;
    assert_int_equal(seqs_on(22 * 1024 * MIB, &m, 0), 64);
    m.model.page_bytes = 20 * MIB; /* a context of 32768 takes 20 GiB, and 64 rows of workspace the rest */
    assert_int_equal(seqs_on(22 * 1024 * MIB, &m, 0), 32);
}

TEST(a_context_is_a_part_of_what_the_process_takes)
{
    struct made m = a_model();
    struct plan_process without = with_devices(512 * MIB, 600 * MIB, 100 * MIB), with = without;
    struct plan_wish wish = {.max_model_len = 2048, .prefix_cache_bytes = PLAN_ALL};
    struct plan_refusal why;
    struct plan a, b;
    m.model.domain = 1;
    with.devices[0].ceiling_bytes += 328 * MIB;
    with.devices[0].context_bytes = 328 * MIB;
    with.devices[1].context_bytes = 50 * MIB;
    assert_int_equal(plan_make(&without, numbers_of, &m, 8, &wish, &a, NULL), 0);
    assert_int_equal(plan_make(&with, numbers_of, &m, 8, &wish, &b, NULL), 0);
    check_split(&a);
    check_split(&b);
    const struct plan_line *line = line_in(&b, 1, "context");
    assert_true(line && line->depth == 0 && line->account == ACCOUNT_CONTEXT);
    assert_true(line->floor_bytes == 328 * MIB && line->limit_bytes == 328 * MIB);
    assert_null(line_in(&a, 1, "context"));
    assert_int_equal(b.device.floor_bytes, a.device.floor_bytes + 328 * MIB);
    assert_int_equal(b.device.limit_bytes, a.device.limit_bytes + 328 * MIB);
    assert_true(b.device.model_bytes == a.device.model_bytes && b.device.load_bytes == a.device.load_bytes);
    assert_true(a.device.context_bytes == 0 && b.device.context_bytes == 328 * MIB);
    assert_true(a.pages_max == b.pages_max && a.limit_bytes == b.limit_bytes);
    with.devices[0].ceiling_bytes = b.device.floor_bytes;
    assert_int_equal(plan_make(&with, numbers_of, &m, 8, &wish, &b, NULL), 0);
    with.devices[0].ceiling_bytes--;
    assert_int_equal(plan_make(&with, numbers_of, &m, 8, &wish, &b, &why), -ENOMEM);
    assert_int_equal(why.needed_bytes, with.devices[0].ceiling_bytes + 1);
}

TEST(a_refusal_names_the_domain_that_is_too_small)
{
    struct made m = a_model();
    struct plan_process o = with_devices(512 * MIB, 140 * MIB, 1024 * MIB);
    struct plan_wish wish = {.max_model_len = 2048};
    struct plan_refusal why;
    struct plan p;
    m.model.domain = 1;
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, &why), -ENOMEM);
    assert_int_equal(why.domain, 1);
    assert_int_equal(why.ceiling_bytes, 140 * MIB);
    assert_true(why.needed_bytes > why.ceiling_bytes && why.seqs_max > 0 && why.seqs_max < 8);
    o = with_devices(40 * MIB, 1024 * MIB, 0);
    assert_int_equal(plan_make(&o, numbers_of, &m, 8, &wish, &p, &why), -ENOMEM);
    assert_int_equal(why.domain, 0);
    assert_int_equal(why.ceiling_bytes, 40 * MIB);
    assert_true(why.needed_bytes > why.ceiling_bytes);
}

PROPERTY(a_plan_for_a_device_holds_or_the_refusal_is_right, seed)
{
    struct rng rng = {seed, 1};
    for (int i = 0; i < 300; i++) {
        struct made m = a_model();
        m.model.domain = 1 + (uint32_t)rng_below(&rng, 2);
        m.model.context_max = (uint32_t)up_to(&rng, 1 << 18);
        m.model.page_bytes = 64 * up_to(&rng, 60000);
        m.model.state_bytes = rng_below(&rng, 2) * 64 * up_to(&rng, 60000);
        m.model.weight_bytes = up_to(&rng, 1000 * MIB);
        m.model.image_bytes = rng_below(&rng, 2) * up_to(&rng, 50 * MIB);
        m.model.has_grammars = rng_below(&rng, 2);
        m.model.matcher_bytes = m.model.has_grammars ? up_to(&rng, 4 << 20) : 0;
        m.model.matcher_token_bytes = m.model.has_grammars ? 256 : 0;
        m.model.matcher_bytes_max = m.model.has_grammars ? 5 << 20 : 0;
        m.row_bytes = up_to(&rng, 4 * MIB);
        m.model.queue = (uint32_t)rng_below(&rng, 1000);
        struct plan_process o =
            with_devices(up_to(&rng, 500 * MIB), up_to(&rng, 3000 * MIB), up_to(&rng, 3000 * MIB));
        struct plan_wish wish = {
            .max_model_len = (uint32_t)(rng_below(&rng, 2) * up_to(&rng, m.model.context_max)),
            .prefix_cache_bytes = rng_below(&rng, 2) ? PLAN_ALL : rng_below(&rng, 2) * up_to(&rng, 500 * MIB),
            .image_cache_bytes = rng_below(&rng, 2) ? PLAN_ALL : rng_below(&rng, 2) * up_to(&rng, 500 * MIB),
            .grammar_cache_bytes = rng_below(&rng, 2) * up_to(&rng, 100 * MIB)};
        wish.agents = wish.prefix_cache_bytes ? (uint32_t)(rng_below(&rng, 2) * up_to(&rng, 16)) : 0;
        uint32_t seqs = (uint32_t)up_to(&rng, 40);
        struct plan_refusal why;
        struct plan p;
        if (plan_make(&o, numbers_of, &m, seqs, &wish, &p, &why) == 0) {
            check_split(&p);
            continue;
        }
        assert_true(why.needed_bytes > why.ceiling_bytes);
        assert_int_equal(why.ceiling_bytes, plan_ceiling_bytes(&o, why.domain));
        if (why.agents_max > 0) {
            wish.agents = why.agents_max;
            wish.max_model_len = p.max_model_len;
            assert_int_equal(plan_make(&o, numbers_of, &m, seqs, &wish, &p, NULL), 0);
            check_split(&p);
        } else if (why.seqs_max) {
            wish.max_model_len = p.max_model_len;
            assert_int_equal(plan_make(&o, numbers_of, &m, why.seqs_max, &wish, &p, NULL), 0);
            check_split(&p);
        }
    }
}

TEST_MAIN()
