/* Each tenant's part of places, tokens, queue and memory, under any load of the others. */
#include "test_sched.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "sched/shares.h"
#include "sched/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct page_pool_opts;

#define SEQS  600
#define TABLE 32
#define MS    1000000ull
/* Pages that no test uses up. Each check visits all of them. */
#define PLENTY 2000

struct fixture {
    struct arena *arena;
    struct page_pool *pages;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][TABLE];
    uint64_t first_ns[SEQS], done[SEQS];
    uint32_t pages_max, count;
    bool steady; /* a sequence that ends comes again */
};

static struct fixture *open_sched(uint32_t seqs_max, uint32_t pages_max)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->pages_max = pages_max;
    f->ev = (struct sched_events){.now_ns = 1, .tokens_shared = 96, .tokens_alone = 256};
    struct page_pool_opts pages = {
        .pages_max = pages_max, .page_bytes = 4096, .kv = test_account(ACCOUNT_NO_LIMIT)};
    struct sched_opts o = {.seqs_max = seqs_max,
                           .queue_max = SEQS,
                           .tokens_max = 256,
                           .logits_max = seqs_max,
                           .logits_chunk_max = 1};
    open_with_pages(&o, &pages, &f->arena, &f->pages, &f->sched);
    return f;
}

static void close_sched(struct fixture *f)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    assert_int_equal(page_pool_available(f->pages), f->pages_max);
    page_pool_done(f->pages);
    arena_free(f->arena);
    free(f);
}

struct ask {
    uint64_t tenant;
    uint32_t weight, prompt, outputs;
    int32_t priority;
};

static void enter(struct fixture *f, uint32_t i, const struct ask *a)
{
    f->seqs[i] = (struct sched_seq){.pages = {f->tables[i]},
                                    .tokens = a->prompt,
                                    .tokens_limit = a->prompt + a->outputs,
                                    .priority = a->priority,
                                    .tenant_id = a->tenant,
                                    .weight = a->weight,
                                    .arrival_ns = f->ev.now_ns};
    assert_int_equal(sched_add(f->sched, &f->seqs[i]), 0);
}

static uint32_t add(struct fixture *f, const struct ask *a, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        enter(f, f->count++, a);
    return f->count - count;
}

/* A sequence that has all its tokens leaves; when the load is steady, the next one of its kind comes. */
static void end_seq(struct fixture *f, uint32_t i, uint32_t prompt)
{
    struct sched_seq *seq = &f->seqs[i];
    struct ask again = {seq->tenant_id, seq->weight, prompt, seq->tokens_limit - prompt, seq->priority};
    sched_remove(f->sched, seq);
    if (f->steady)
        enter(f, i, &again);
}

static void step(struct fixture *f, uint32_t prompt)
{
    sched_plan(f->sched, &f->ev, &f->plan);
    sched_check(f->sched);
    assert_true(f->pages_max != PLENTY || page_pool_available(f->pages) > 0);
    f->ev.now_ns += 10 * MS;
    if (f->plan.seq_count == 0)
        return;
    struct sched_plan plan = f->plan;
    sched_done(f->sched, &(struct sched_results){f->ev.now_ns, true});
    for (uint32_t k = 0; k < plan.seq_count; k++) {
        uint32_t i = (uint32_t)(plan.seqs[k].seq - f->seqs);
        f->done[i] += plan.seqs[k].count;
        if (plan.seqs[k].samples && f->first_ns[i] == 0)
            f->first_ns[i] = f->ev.now_ns;
        if (f->seqs[i].tokens == f->seqs[i].tokens_limit)
            end_seq(f, i, prompt);
    }
    sched_check(f->sched);
}

static uint32_t steps_to_first(struct fixture *f, uint32_t i, uint32_t prompt, uint32_t most)
{
    uint32_t steps = 0;
    for (; f->first_ns[i] == 0 && steps < most; steps++)
        step(f, prompt);
    return steps;
}

static uint64_t done_of(const struct fixture *f, uint64_t tenant)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < f->count; i++)
        done += f->seqs[i].tenant_id == tenant ? f->done[i] : 0;
    return done;
}

/* Steps that one request of tenant 2 waits for its first token beside `others` of tenant 1. */
static uint32_t wait_beside(uint32_t others, int32_t priority)
{
    struct fixture *f = open_sched(8, PLENTY);
    add(f, &(struct ask){1, 1, 40, 200, priority}, others);
    for (int i = 0; i < 60; i++)
        step(f, 40);
    uint32_t mine = add(f, &(struct ask){2, 1, 20, 2, 0}, 1);
    uint32_t steps = steps_to_first(f, mine, 40, 10000);
    close_sched(f);
    return steps;
}

TEST(a_tenants_wait_does_not_grow_with_anothers_queue)
{
    uint32_t few = wait_beside(10, 0), many = wait_beside(120, 0), most = wait_beside(500, 0);
    assert_true(few <= 2);
    assert_int_equal(many, few);
    assert_int_equal(most, few);
}

TEST(a_priority_holds_among_its_own_tenants_seqs_only)
{
    assert_int_equal(wait_beside(120, -1000), wait_beside(120, 0));
}

TEST(a_seq_that_yields_its_place_keeps_its_pages_and_comes_back_first)
{
    struct fixture *f = open_sched(2, 100);
    uint32_t first = add(f, &(struct ask){1, 1, 40, 100, 0}, 4);
    for (int i = 0; i < 5; i++)
        step(f, 40);
    uint32_t other = add(f, &(struct ask){2, 1, 10, 2, 0}, 1);
    step(f, 40);
    struct sched_seq *parked = &f->seqs[first + 1];
    assert_int_equal(f->seqs[first].phase, SCHED_DECODING); /* the oldest never yields */
    assert_int_equal(parked->phase, SCHED_PARKED);
    uint32_t had = parked->done;
    assert_true(parked->page_count >= 2 && had > 40);
    while (f->seqs[other].phase != SCHED_NEW)
        step(f, 40);
    step(f, 40);
    assert_int_equal(parked->phase, SCHED_DECODING);
    assert_int_equal(parked->done, had + 1);
    assert_int_equal(parked->preemptions, 0);
    close_sched(f);
}

TEST(places_and_tokens_go_by_weight)
{
    struct fixture *f = open_sched(8, PLENTY);
    f->steady = true;
    add(f, &(struct ask){1, 3, 32, 50, 0}, 40);
    add(f, &(struct ask){2, 1, 32, 50, 0}, 40);
    for (int i = 0; i < 3000; i++)
        step(f, 32);
    double ratio = (double)done_of(f, 1) / (double)done_of(f, 2);
    assert_true(ratio > 2.5 && ratio < 3.5);
    close_sched(f);
}

TEST(more_tenants_than_places_take_turns)
{
    struct fixture *f = open_sched(4, PLENTY);
    f->steady = true;
    for (uint64_t t = 1; t <= 20; t++)
        add(f, &(struct ask){t, 1, 32, 500, 0}, 5);
    for (int i = 0; i < 4000; i++)
        step(f, 32);
    uint64_t least = UINT64_MAX, most = 0;
    for (uint64_t t = 1; t <= 20; t++) {
        least = MIN_OF(least, done_of(f, t));
        most = MAX_OF(most, done_of(f, t));
    }
    assert_true(least > 0 && most <= 2 * least + 500);
    uint32_t late = add(f, &(struct ask){99, 1, 32, 10, 0}, 1);
    uint32_t steps = steps_to_first(f, late, 32, 10000);
    assert_true(steps <= 3 * SHARE_TURN_TOKENS);
    close_sched(f);
}

TEST(short_prompts_of_one_tenant_do_not_starve_a_long_one_of_another)
{
    struct fixture *f = open_sched(8, PLENTY);
    f->steady = true;
    add(f, &(struct ask){1, 1, 90, 1, 0}, 40);
    for (int i = 0; i < 50; i++)
        step(f, 90);
    uint64_t before = done_of(f, 1);
    uint32_t mine = add(f, &(struct ask){2, 1, 960, 10, 0}, 1);
    uint32_t steps = steps_to_first(f, mine, 90, 10000);
    /* Alone it takes 10 steps of this size. */
    assert_true(steps <= 3 * 10);
    assert_true(done_of(f, 1) - before < 3 * 960);
    close_sched(f);
}

TEST(unread_streams_give_up_their_places_and_come_back_after_the_others)
{
    struct fixture *f = open_sched(4, PLENTY);
    uint32_t unread = add(f, &(struct ask){1, 1, 32, 500, 0}, 100);
    for (uint32_t n = 0; n < 400; n++) {
        step(f, 32);
        for (uint32_t i = 0; i < 100; i++)
            if (f->done[unread + i] >= 40)
                sched_pause(f->sched, &f->seqs[unread + i]);
    }
    for (uint32_t i = 0; i < 100; i++)
        assert_true(f->done[unread + i] >= 40);
    struct sched_numbers n;
    sched_numbers(f->sched, &n);
    assert_int_equal(n.running + n.waiting, 100);
    assert_int_equal(n.preemptions, 0);
    uint32_t mine = add(f, &(struct ask){1, 1, 32, 30, 0}, 1);
    assert_int_equal(steps_to_first(f, mine, 32, 100), 1);
    add(f, &(struct ask){1, 1, 32, 30, 0}, 8);
    step(f, 32);
    struct sched_seq *back = &f->seqs[unread + 5];
    assert_int_equal(back->phase, SCHED_PARKED);
    sched_resume(f->sched, back);
    step(f, 32);
    assert_int_equal(back->phase, SCHED_PARKED); /* others wait already */
    while (back->phase == SCHED_PARKED)
        step(f, 32);
    for (uint32_t i = mine; i < f->count; i++)
        assert_true(f->first_ns[i] > 0);
    assert_int_equal(back->preemptions, 0);
    close_sched(f);
}

TEST(a_tenant_without_a_place_takes_pages_from_who_has_many)
{
    struct fixture *f = open_sched(4, 40);
    add(f, &(struct ask){1, 1, 256, 60, 0}, 8);
    for (int i = 0; i < 30; i++)
        step(f, 256);
    uint32_t mine = add(f, &(struct ask){2, 1, 256, 4, 0}, 1);
    assert_true(steps_to_first(f, mine, 256, 10000) <= 6);
    close_sched(f);
}

TEST(a_large_request_is_not_starved_by_small_ones_of_others)
{
    struct fixture *f = open_sched(4, 40);
    f->steady = true;
    for (uint64_t t = 1; t <= 3; t++)
        add(f, &(struct ask){t, 1, 200, 100, 0}, 3);
    for (int i = 0; i < 100; i++)
        step(f, 200);
    uint32_t mine = add(f, &(struct ask){9, 1, 900, 4, 0}, 1);
    assert_true(steps_to_first(f, mine, 200, 10000) < 2000);
    close_sched(f);
}

/* The tenant has a place, so no sequence makes room for the large request. Smaller ones pass it for 1 s. */
TEST(a_small_request_passes_a_large_one_that_lacks_pages)
{
    struct fixture *f = open_sched(8, 40);
    f->ev.now_ns = 3600 * 1000 * MS;
    add(f, &(struct ask){8, 1, 500, 500, 0}, 1);
    add(f, &(struct ask){9, 2, 30, 900, 0}, 1);
    for (int i = 0; i < 20; i++)
        step(f, 500);
    uint32_t large = add(f, &(struct ask){9, 2, 900, 4, 0}, 1),
             small = add(f, &(struct ask){8, 1, 30, 50, 0}, 1);
    assert_true(steps_to_first(f, small, 30, 10) < 5);
    assert_int_equal(f->seqs[large].phase, SCHED_QUEUED);
    /* After that second nothing passes. */
    for (int i = 0; i < 100; i++)
        step(f, 30);
    uint32_t late = add(f, &(struct ask){8, 1, 30, 50, 0}, 1);
    for (int i = 0; i < 20; i++)
        step(f, 30);
    assert_int_equal(f->seqs[large].phase, SCHED_QUEUED);
    assert_int_equal(f->seqs[late].phase, SCHED_QUEUED);
    close_sched(f);
}

TEST(among_equals_a_short_request_passes_long_ones_for_a_while_only)
{
    struct fixture *f = open_sched(1, PLENTY);
    add(f, &(struct ask){1, 1, 32, 60, 0}, 1);
    step(f, 32);
    uint32_t longest = add(f, &(struct ask){1, 1, 32, 900, 0}, 1),
             shortest = add(f, &(struct ask){1, 1, 32, 4, 0}, 1);
    while (f->first_ns[longest] == 0)
        step(f, 32);
    assert_true(f->first_ns[shortest] < f->first_ns[longest]);
    while (f->seqs[longest].phase != SCHED_NEW)
        step(f, 32);
    /* It has waited as long as its tokens count: a new one is queued after it. */
    add(f, &(struct ask){1, 1, 32, 800, 0}, 1);
    step(f, 32);
    longest = add(f, &(struct ask){1, 1, 32, 900, 0}, 1);
    f->ev.now_ns += 10000 * MS;
    shortest = add(f, &(struct ask){1, 1, 32, 4, 0}, 1);
    while (f->first_ns[shortest] == 0)
        step(f, 32);
    assert_true(f->first_ns[longest] != 0 && f->first_ns[longest] < f->first_ns[shortest]);
    close_sched(f);
}

static void assert_load(const struct fixture *f, uint32_t decoding, uint32_t prompts)
{
    struct sched_load load;
    sched_load(f->sched, &load);
    assert_int_equal(load.decoding, decoding);
    assert_int_equal(load.prompts, prompts);
}

TEST(many_prompts_of_one_tenant_count_once_beside_another_tenant)
{
    struct fixture *f = open_sched(4, PLENTY);
    assert_load(f, 0, 0);
    uint32_t first = add(f, &(struct ask){1, 1, 400, 50, 0}, 16);
    assert_load(f, 0, 16);
    step(f, 400);
    assert_load(f, 0, 16);
    uint32_t other = add(f, &(struct ask){2, 1, 20, 50, 0}, 1);
    assert_load(f, 0, 2);
    steps_to_first(f, other, 400, 100);
    assert_int_equal(f->seqs[other].phase, SCHED_DECODING);
    assert_load(f, 1, 1);
    add(f, &(struct ask){3, 1, 400, 50, 0}, 5);
    assert_load(f, 1, 2);
    sched_pause(f->sched, &f->seqs[other]);
    assert_load(f, 0, 2);
    for (uint32_t i = first; i < first + 16; i++)
        sched_remove(f->sched, &f->seqs[i]);
    assert_load(f, 0, 5);
    sched_resume(f->sched, &f->seqs[other]);
    assert_load(f, 1, 1);
    close_sched(f);
}

TEST(a_seq_that_waits_for_image_embeddings_is_no_load)
{
    struct fixture *f = open_sched(4, PLENTY);
    uint32_t first = add(f, &(struct ask){1, 1, 400, 50, 0}, 3);
    f->seqs[first].ready = 32;
    f->seqs[first + 1].ready = 400;
    assert_load(f, 0, 3);
    while (f->seqs[first].done < 32)
        step(f, 400);
    assert_int_equal(f->seqs[first + 1].phase, SCHED_PREFILLING);
    assert_load(f, 0, 2);
    close_sched(f);
}

TEST(more_tenants_than_the_table_has_share_entries)
{
    struct fixture *f = open_sched(4, PLENTY);
    for (uint64_t t = 1; t <= 500; t++)
        add(f, &(struct ask){t, 1, 32, 2, 0}, 1);
    for (int i = 0; i < 2000; i++)
        step(f, 32);
    for (uint32_t i = 0; i < 500; i++)
        assert_int_equal(f->seqs[i].phase, SCHED_NEW);
    close_sched(f);
}

/* Prompts of one tenant: among old ones the one that waited longest, else the shortest. */
TEST(old_prompts_go_by_their_wait_and_young_ones_by_length)
{
    struct share same = {.served = 5};
    uint64_t now_ns = 10 * SCHED_AGE_NS;
    struct sched_seq longer = {.share = &same, .tokens = 900, .served_ns = 1},
                     shorter = {.share = &same, .tokens = 100, .served_ns = 2};
    assert_true(tokens_prompt_before(&longer, &shorter, now_ns));
    assert_false(tokens_prompt_before(&shorter, &longer, now_ns));
    longer.served_ns = 2;
    assert_true(tokens_prompt_before(&shorter, &longer, now_ns));
    longer.served_ns = now_ns - SCHED_AGE_NS + 1;
    shorter.served_ns = now_ns;
    assert_true(tokens_prompt_before(&shorter, &longer, now_ns));
    longer.served_ns--;
    assert_true(tokens_prompt_before(&longer, &shorter, now_ns));
}

TEST(prompts_of_tenants_less_than_four_turns_apart_are_even)
{
    uint64_t turns = (uint64_t)SHARE_PROMPT_TURNS * SHARE_TURN_TOKENS * SHARE_UNIT;
    struct share a = {.served = 7 * turns}, b = {.served = 8 * turns - 1};
    assert_int_equal(share_compare_prompts(&a, &b), 0);
    b.served++;
    assert_int_equal(share_compare_prompts(&a, &b), -1);
    assert_int_equal(share_compare_prompts(&b, &a), 1);
}

TEST(a_tenant_that_was_served_alone_owes_so_much_at_most)
{
    struct arena *arena;
    struct shares t;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 2 * shares_arena_bytes()}, &arena), 0);
    assert_int_equal(shares_create(arena, &t), 0);
    struct share *much = shares_take(&t, 1, 1), *little = shares_take(&t, 2, 1);
    for (uint64_t plan = 1; plan <= 3; plan++) {
        share_note_active(much, plan);
        share_note_active(little, plan);
        if (plan == 3)
            share_charge(little, 100);
        share_charge(much, 10 * SHARE_DEBT_TOKENS);
        shares_level(&t, plan);
        uint64_t least = plan == 3 ? 100 * (uint64_t)SHARE_UNIT : 0;
        assert_int_equal(little->served, least);
        assert_int_equal(much->served, (plan == 1 ? 0 : least) + (uint64_t)SHARE_DEBT_TOKENS * SHARE_UNIT);
    }
    shares_give(much);
    shares_give(little);
    arena_free(arena);
}

TEST_MAIN()
