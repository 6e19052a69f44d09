/* The scheduler's rules, each by itself; the simulation has them all at once. */
#include "test_sched.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "sched/sched.h"

#include <errno.h>
#include <string.h>

struct page_pool_opts;

#define SEQS 24
#define MS   1000000ull
#define S    1000000000ull

struct fixture {
    struct arena *arena;
    struct account *kv;
    struct page_pool *pages;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][64];
    uint32_t pages_max;
};

static struct sched_opts usual(void)
{
    return (struct sched_opts){
        .seqs_max = 4, .queue_max = 8, .tokens_max = 256, .logits_max = 20, .logits_chunk_max = 40};
}

static void open_sched(struct fixture *f, const struct sched_opts *opts, uint32_t pages_max)
{
    *f = (struct fixture){.kv = test_account(ACCOUNT_NO_LIMIT), .pages_max = pages_max};
    f->ev = (struct sched_events){.now_ns = 1, .tokens_shared = 128, .tokens_alone = 256};
    struct page_pool_opts pages = {.pages_max = pages_max, .page_bytes = UNIT_BYTES / 4, .kv = f->kv};
    open_with_pages(opts, &pages, &f->arena, &f->pages, &f->sched);
}

static void close_sched(struct fixture *f)
{
    for (size_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    assert_int_equal(page_pool_available(f->pages), f->pages_max);
    page_pool_done(f->pages);
    arena_free(f->arena);
}

static int add_with(struct fixture *f, uint32_t i, uint32_t prompt, uint32_t outputs, int32_t priority)
{
    f->seqs[i] = (struct sched_seq){.pages = {f->tables[i]},
                                    .tokens = prompt,
                                    .tokens_limit = prompt + outputs,
                                    .priority = priority,
                                    .arrival_ns = f->ev.now_ns};
    int r = sched_add(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    return r;
}

static struct sched_seq *add(struct fixture *f, uint32_t i, uint32_t prompt, uint32_t outputs)
{
    assert_int_equal(add_with(f, i, prompt, outputs, 0), 0);
    return &f->seqs[i];
}

static void plan(struct fixture *f)
{
    sched_plan(f->sched, &f->ev, &f->plan);
    sched_check(f->sched);
}

/* Plans and computes; a sequence with all its tokens leaves. */
static void step(struct fixture *f)
{
    plan(f);
    f->ev.now_ns += 10 * MS;
    if (f->plan.seq_count == 0)
        return;
    sched_done(f->sched, &(struct sched_results){f->ev.now_ns, true});
    for (size_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase == SCHED_DECODING && f->seqs[i].tokens == f->seqs[i].tokens_limit)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
}

/* Tokens the last plan gave to sequence i. */
static uint32_t given(const struct fixture *f, uint32_t i)
{
    for (uint32_t k = 0; k < f->plan.seq_count; k++)
        if (f->plan.seqs[k].seq == &f->seqs[i])
            return f->plan.seqs[k].count;
    return 0;
}

TEST(a_seq_goes_from_prompt_to_answer)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 16);
    struct sched_seq *seq = add(&f, 0, 300, 2);
    assert_int_equal(seq->phase, SCHED_QUEUED);
    step(&f);
    assert_int_equal(given(&f, 0), 256);
    assert_int_equal(seq->phase, SCHED_PREFILLING);
    assert_false(f.plan.seqs[0].samples);
    step(&f);
    assert_int_equal(given(&f, 0), 44);
    assert_true(f.plan.seqs[0].samples);
    assert_int_equal(seq->phase, SCHED_DECODING);
    assert_int_equal(seq->tokens, 301);
    step(&f);
    assert_int_equal(given(&f, 0), 1);
    assert_int_equal(seq->phase, SCHED_NEW);
    plan(&f);
    assert_int_equal(f.plan.seq_count, 0);
    close_sched(&f);
}

TEST(decoding_seqs_get_a_token_each_step_and_prompts_ride_along)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 32);
    f.ev.tokens_shared = 70;
    add(&f, 0, 10, 50);
    add(&f, 1, 20, 50);
    step(&f);
    assert_int_equal(given(&f, 0) + given(&f, 1), 30);
    add(&f, 2, 200, 10);
    step(&f);
    assert_int_equal(given(&f, 0), 1);
    assert_int_equal(given(&f, 1), 1);
    /* 68 are left: two whole pages. */
    assert_int_equal(given(&f, 2), 64);
    /* A budget that decoding alone uses up still gives the prompt one page. */
    f.ev.tokens_shared = 1;
    step(&f);
    assert_int_equal(given(&f, 2), 32);
    close_sched(&f);
}

TEST(fewest_tokens_left_first_and_several_prompts_share_a_step)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 64);
    f.ev.tokens_shared = 128;
    add(&f, 0, 500, 5);
    step(&f);
    add(&f, 1, 40, 5);
    add(&f, 2, 33, 5);
    step(&f);
    assert_int_equal(given(&f, 2), 33);
    assert_int_equal(given(&f, 1), 40);
    /* 55 are left. */
    assert_int_equal(given(&f, 0), 32);
    close_sched(&f);
}

TEST(a_long_prompt_is_not_starved_by_short_ones)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 64);
    f.ev.tokens_shared = 64;
    struct sched_seq *big = add(&f, 0, 700, 1);
    uint32_t steps = 0, next = 1;
    /* Every step brings a prompt that takes the whole budget. */
    for (; big->phase != SCHED_NEW && steps < 10000; steps++) {
        for (uint32_t i = 1; i < 4; i++) {
            next = 1 + next % 3;
            if (f.seqs[next].phase == SCHED_NEW) {
                add(&f, next, 64, 1);
                break;
            }
        }
        step(&f);
    }
    /* A second without a token, then a step: 700 tokens of 64 each make 11 of those, and 100 steps a
     * second. */
    assert_true(big->phase == SCHED_NEW && steps <= 11 * 101 + 10);
    close_sched(&f);
}

TEST(a_lower_priority_waits_longer_within_a_bound)
{
    struct fixture f;
    struct sched_opts o = usual();
    o.seqs_max = 1;
    open_sched(&f, &o, 16);
    assert_int_equal(add_with(&f, 0, 10, 5, 0), 0);
    step(&f);
    assert_int_equal(add_with(&f, 1, 10, 5, 1), 0);
    assert_int_equal(add_with(&f, 2, 10, 5, 0), 0);
    assert_int_equal(add_with(&f, 3, 10, 5, -1), 0);
    uint64_t low_ns = 0, began = f.ev.now_ns;
    for (int i = 0; i < 10000 && !low_ns; i++) {
        for (uint32_t k = 4; k < 6; k++)
            if (f.seqs[k].phase == SCHED_NEW)
                assert_int_equal(add_with(&f, k, 10, 5, 0), 0);
        step(&f);
        if (f.seqs[1].phase == SCHED_PREFILLING || f.seqs[1].phase == SCHED_DECODING)
            low_ns = f.ev.now_ns - began;
        /* In this order: -1, then 0. */
        if (f.seqs[2].phase != SCHED_QUEUED)
            assert_int_not_equal(f.seqs[3].phase, SCHED_QUEUED);
    }
    assert_true(low_ns > SCHED_PRIORITY_NS && low_ns < SCHED_PRIORITY_NS + S);
    close_sched(&f);
}

TEST(admission_keeps_pages_for_the_prompt_and_one_per_seq)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 10);
    f.ev.tokens_shared = f.ev.tokens_alone = 32;
    add(&f, 0, 6 * 32, 32);
    step(&f);
    assert_int_equal(f.seqs[0].page_count, 1);
    /* 9 are free, 5 of them promised and 1 for the sequence: 3 pages fit, 4 do not. */
    add(&f, 1, 4 * 32, 32);
    step(&f);
    assert_int_equal(f.seqs[1].phase, SCHED_QUEUED);
    sched_remove(f.sched, &f.seqs[1]);
    add(&f, 2, 3 * 32, 32);
    step(&f);
    assert_int_equal(f.seqs[2].phase, SCHED_PREFILLING);
    close_sched(&f);
}

TEST(the_newest_is_preempted_and_comes_back_when_it_fits)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 4);
    struct sched_seq *old = add(&f, 0, 30, 90), *new = add(&f, 1, 30, 60);
    step(&f);
    while (old->phase == SCHED_DECODING && new->preemptions == 0)
        step(&f);
    /* Both need their third page at the same time, and there are four. */
    assert_int_equal(old->preemptions, 0);
    assert_int_equal(new->phase, SCHED_PREEMPTED);
    assert_int_equal(new->page_count, 0);
    assert_int_equal(new->done, 0);
    uint32_t tokens = new->tokens;
    assert_true(tokens > 30);
    /* A younger one does not overtake it. */
    add(&f, 2, 5, 1);
    while (old->phase == SCHED_DECODING) {
        /* It needs three pages, and one for the running sequence. */
        assert_int_equal(new->phase, SCHED_PREEMPTED);
        assert_int_equal(f.seqs[2].phase, SCHED_QUEUED);
        step(&f);
    }
    step(&f);
    assert_int_equal(given(&f, 1), tokens);
    assert_int_equal(new->tokens, tokens + 1);
    while (new->phase != SCHED_NEW)
        step(&f);
    assert_int_equal(old->preemptions, 0);
    close_sched(&f);
}

TEST(a_paused_seq_is_preempted_first_even_if_older)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 4);
    struct sched_seq *paused = add(&f, 0, 60, 60), *a = add(&f, 1, 30, 60);
    step(&f);
    sched_pause(f.sched, paused);
    add(&f, 2, 10, 2);
    while (paused->phase != SCHED_PREEMPTED) {
        step(&f);
        assert_int_equal(given(&f, 0), 0);
        assert_int_equal(given(&f, 1), 1);
    }
    assert_int_equal(a->preemptions, 0);
    /* It does not come back before it is resumed. */
    while (a->phase != SCHED_NEW)
        step(&f);
    step(&f);
    assert_int_equal(paused->phase, SCHED_PREEMPTED);
    sched_resume(f.sched, paused);
    step(&f);
    assert_int_equal(paused->phase, SCHED_DECODING);
    close_sched(&f);
}

TEST(a_paused_seq_gives_up_its_place_and_keeps_its_pages)
{
    struct fixture f;
    struct sched_opts o = usual();
    o.seqs_max = 1;
    open_sched(&f, &o, 8);
    struct sched_seq *slow = add(&f, 0, 10, 20), *next = add(&f, 1, 10, 20);
    step(&f);
    sched_pause(f.sched, slow);
    step(&f);
    assert_int_equal(slow->phase, SCHED_PARKED);
    assert_int_equal(slow->page_count, 1);
    assert_int_equal(next->phase, SCHED_DECODING);
    close_sched(&f);
}

TEST(waiting_too_long_ends_a_request_that_never_ran)
{
    struct fixture f;
    struct sched_opts o = usual();
    o.seqs_max = 1;
    o.queue_timeout_ns = 2 * S;
    open_sched(&f, &o, 8);
    add(&f, 0, 10, 200);
    step(&f);
    add(&f, 1, 10, 2);
    f.ev.now_ns += 2 * S - 20 * MS;
    step(&f);
    assert_null(sched_take_ended(f.sched));
    f.ev.now_ns += 20 * MS;
    step(&f);
    struct sched_seq *ended = sched_take_ended(f.sched);
    assert_ptr_equal(ended, &f.seqs[1]);
    assert_int_equal(ended->end, SCHED_END_TIMEOUT);
    assert_null(sched_take_ended(f.sched));
    close_sched(&f);
}

TEST(refused_memory_ends_a_seq_only_if_it_runs_alone)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 16);
    struct sched_seq *old = add(&f, 0, 60, 200), *new = add(&f, 1, 60, 60);
    step(&f);
    /* One unit: four pages are here and no more. */
    account_set_limit(f.kv, UNIT_BYTES);
    while (new->preemptions == 0)
        step(&f);
    assert_int_equal(old->phase, SCHED_DECODING);
    /* It is not admitted on the page that is left, to be preempted again. */
    for (int i = 0; i < 50 && old->phase == SCHED_DECODING; i++)
        step(&f);
    assert_int_equal(new->preemptions, 1);
    assert_int_equal(old->phase, SCHED_DECODING);
    sched_remove(f.sched, new);
    while (old->phase == SCHED_DECODING)
        step(&f);
    assert_int_equal(old->phase, SCHED_ENDED);
    assert_int_equal(old->done, 0);
    assert_ptr_equal(sched_take_ended(f.sched), old);
    assert_int_equal(old->end, SCHED_END_NO_MEMORY);
    account_set_limit(f.kv, ACCOUNT_NO_LIMIT);
    close_sched(&f);
}

static enum sched_memory memory_refused(void *arg)
{
    return *(const enum sched_memory *)arg;
}

/* While others are about to release memory, a sequence with its page continues, one without waits, and so
 * does the queue. */
TEST(while_memory_is_requested_no_seq_is_preempted_or_ended)
{
    struct fixture f;
    enum sched_memory comes = SCHED_MEMORY_REQUESTED;
    struct sched_opts o = usual();
    o.memory_refused = memory_refused;
    o.memory_refused_arg = &comes;
    open_sched(&f, &o, 32);
    struct sched_seq *old = add(&f, 0, 60, 200), *new = add(&f, 1, 64, 200);
    step(&f);
    account_set_limit(f.kv, UNIT_BYTES);
    for (int i = 0; i < 200; i++)
        step(&f);
    /* Four pages: none is left for either. */
    assert_true(old->phase == SCHED_DECODING && new->phase == SCHED_DECODING);
    assert_int_equal(old->preemptions + new->preemptions, 0);
    assert_int_equal(old->done, 64);
    assert_int_equal(new->done, 64);
    assert_int_equal(f.plan.seq_count, 0);
    struct sched_seq *queued = add(&f, 2, 40, 10);
    step(&f);
    assert_int_equal(queued->phase, SCHED_QUEUED);
    /* It has come. */
    account_set_limit(f.kv, 4 * UNIT_BYTES);
    step(&f);
    assert_true(given(&f, 0) == 1 && given(&f, 1) == 1 && queued->phase != SCHED_QUEUED);
    sched_remove(f.sched, new);
    sched_remove(f.sched, queued);
    /* One alone is ended only when no memory will come. */
    account_set_limit(f.kv, 0);
    for (int i = 0; i < 200; i++)
        step(&f);
    assert_int_equal(old->phase, SCHED_DECODING);
    comes = SCHED_MEMORY_NONE;
    step(&f);
    assert_int_equal(old->phase, SCHED_ENDED);
    assert_int_equal(sched_take_ended(f.sched)->end, SCHED_END_NO_MEMORY);
    close_sched(&f);
}

/* Page for page, the oldest goes on with what the newest had; what never had a place ends. */
TEST(memory_that_other_programs_have_is_waited_for)
{
    struct fixture f;
    enum sched_memory taken = SCHED_MEMORY_TAKEN;
    struct sched_numbers n;
    struct sched_opts o = usual();
    o.memory_refused = memory_refused;
    o.memory_refused_arg = &taken;
    open_sched(&f, &o, 32);
    struct sched_seq *old = add(&f, 0, 60, 900), *new = add(&f, 1, 64, 200);
    step(&f);
    account_set_limit(f.kv, UNIT_BYTES);
    struct sched_seq *queued = add(&f, 2, 40, 10);
    for (int i = 0; i < 190; i++)
        step(&f);
    /* Four pages: the oldest has them all, and lacks the fifth. */
    assert_int_equal(old->phase, SCHED_DECODING);
    assert_int_equal(old->done, 128);
    assert_int_equal(new->phase, SCHED_PREEMPTED);
    assert_int_equal(f.plan.seq_count, 0);
    sched_numbers(f.sched, &n);
    assert_true(n.taken_ns > 0);
    f.ev.now_ns += SCHED_PATIENCE_NS;
    step(&f);
    assert_ptr_equal(sched_take_ended(f.sched), queued);
    assert_int_equal(queued->end, SCHED_END_TAKEN);
    f.ev.now_ns += 100 * S;
    step(&f);
    assert_null(sched_take_ended(f.sched));
    /* It has come back. */
    account_set_limit(f.kv, ACCOUNT_NO_LIMIT);
    for (int i = 0; i < 200 && new->phase == SCHED_PREEMPTED; i++)
        step(&f);
    assert_true(old->done > 128 && new->phase == SCHED_DECODING);
    sched_numbers(f.sched, &n);
    assert_int_equal(n.taken_ns, 0);
    sched_remove(f.sched, new);
    account_set_limit(f.kv, 0);
    for (int i = 0; i < 300; i++)
        step(&f);
    assert_true(old->phase == SCHED_DECODING && f.plan.seq_count == 0);
    f.ev.now_ns += SCHED_TAKEN_NS;
    step(&f);
    assert_ptr_equal(sched_take_ended(f.sched), old);
    assert_int_equal(old->end, SCHED_END_NO_MEMORY);
    account_set_limit(f.kv, ACCOUNT_NO_LIMIT);
    close_sched(&f);
}

/* Its sequences begin anew after a moment, and end when that goes on for long. */
TEST(a_step_without_memory_is_planned_again)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 8);
    struct sched_seq *seq = add(&f, 0, 40, 30);
    step(&f);
    uint64_t began_ns = f.ev.now_ns;
    while (seq->phase != SCHED_ENDED) {
        uint32_t tokens = seq->tokens, preemptions = seq->preemptions;
        plan(&f);
        if (f.plan.seq_count > 0) {
            sched_done(f.sched, &(struct sched_results){.now_ns = f.ev.now_ns, .no_memory = true});
            sched_check(f.sched);
            assert_true(seq->phase == SCHED_ENDED ||
                        (seq->preemptions == preemptions + 1 && seq->done == 0 && seq->tokens == tokens));
        }
        f.ev.now_ns += 50 * MS;
        assert_true(f.ev.now_ns - began_ns < SCHED_TAKEN_NS + S);
    }
    assert_true(f.ev.now_ns - began_ns > SCHED_TAKEN_NS && seq->preemptions < SCHED_TAKEN_NS / (99 * MS));
    assert_ptr_equal(sched_take_ended(f.sched), seq);
    seq = add(&f, 1, 40, 3);
    f.ev.now_ns += S;
    step(&f);
    assert_int_equal(given(&f, 1), 40);
    close_sched(&f);
}

TEST(a_failed_step_moves_nothing)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 8);
    struct sched_seq *seq = add(&f, 0, 40, 3);
    plan(&f);
    sched_done(f.sched, &(struct sched_results){f.ev.now_ns, false});
    assert_int_equal(seq->done, 0);
    assert_int_equal(seq->tokens, 40);
    step(&f);
    assert_int_equal(given(&f, 0), 40);
    close_sched(&f);
}

TEST(seqs_of_logits_have_a_bound)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 32);
    add(&f, 0, 10, 5);
    step(&f);
    add(&f, 1, 100, 5)->logits_all = true;
    add(&f, 2, 100, 5)->logits_all = true;
    step(&f);
    /* 20: one each, and 17 for the first in turn. */
    assert_int_equal(given(&f, 0), 1);
    assert_int_equal(given(&f, 1), 18);
    assert_int_equal(given(&f, 2), 1);
    close_sched(&f);
}

/* Each prompt is one step's, whatever the budget is, with its pages; others wait until they have theirs. */
TEST(prompts_that_are_computed_at_once_are_not_cut)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 16);
    for (uint32_t i = 0; i < 6; i++) {
        f.seqs[i] = (struct sched_seq){.pages = {f.tables[i]},
                                       .tokens = 100 + 30 * i,
                                       .tokens_limit = 100 + 30 * i,
                                       .prompt_only = true,
                                       .at_once = true,
                                       .arrival_ns = f.ev.now_ns};
        assert_int_equal(sched_add(f.sched, &f.seqs[i]), 0);
    }
    uint32_t left = 6, two = 0;
    for (uint32_t steps = 0; left > 0; steps++) {
        assert_true(steps < 12);
        f.ev.tokens_shared = steps % 2 ? 1 : 256;
        plan(&f);
        assert_true(f.plan.seq_count > 0);
        two += f.plan.seq_count > 1;
        sched_done(f.sched, &(struct sched_results){f.ev.now_ns += 10 * MS, true});
        for (uint32_t k = 0; k < f.plan.seq_count; k++) {
            struct sched_seq *seq = f.plan.seqs[k].seq;
            assert_true(f.plan.seqs[k].count == seq->tokens && f.plan.seqs[k].samples);
            sched_remove(f.sched, seq);
            left--;
        }
        sched_check(f.sched);
    }
    assert_true(two > 0);
    close_sched(&f);
}

/* No chunk ends inside a span, even where the budget is a page or memory is short, and each prompt ends. */
static void check_spans(const struct fixture *f)
{
    for (uint32_t i = 0; i < f->plan.seq_count; i++) {
        const struct sched_step_seq *s = &f->plan.seqs[i];
        const uint32_t end = s->from + s->count;
        for (uint32_t k = 0; k < s->seq->span_count; k++)
            if (end > s->seq->spans[k].first && end < s->seq->spans[k].end)
                fail_msg("tokens %u to %u end inside the span %u to %u", s->from, end, s->seq->spans[k].first,
                         s->seq->spans[k].end);
    }
}

TEST(chunks_end_outside_spans)
{
    static const struct sched_span spans[] = {{5, 70}, {70, 101}, {128, 160}, {170, 260}};
    for (uint32_t pages = 9; pages < 32; pages += 11) {
        struct fixture f;
        struct sched_opts o = usual();
        open_sched(&f, &o, pages);
        add(&f, 0, 10, 20);
        step(&f);
        for (uint32_t i = 1; i < 3; i++) {
            struct sched_seq *seq = add(&f, i, 280, 5);
            seq->spans = spans;
            seq->span_count = COUNT_OF(spans);
        }
        bool ended[3] = {false};
        for (uint32_t steps = 0; !ended[1] || !ended[2]; steps++) {
            assert_true(steps < 200);
            f.ev.tokens_shared = steps % 3 ? 1 : 256;
            plan(&f);
            check_spans(&f);
            f.ev.now_ns += 10 * MS;
            if (f.plan.seq_count == 0)
                continue;
            sched_done(f.sched, &(struct sched_results){f.ev.now_ns, true});
            sched_check(f.sched);
            for (uint32_t k = 0; k < 3; k++) {
                if (f.seqs[k].tokens < f.seqs[k].tokens_limit || ended[k])
                    continue;
                sched_remove(f.sched, &f.seqs[k]);
                ended[k] = true;
            }
        }
        close_sched(&f);
    }
}

TEST(the_queue_is_bounded)
{
    struct fixture f;
    struct sched_opts o = usual();
    o.seqs_max = 2;
    o.queue_max = 3;
    open_sched(&f, &o, 8);
    for (uint32_t i = 0; i < 5; i++)
        add(&f, i, 10, 5);
    assert_int_equal(add_with(&f, 5, 10, 5, 0), -EAGAIN);
    assert_int_equal(f.seqs[5].phase, SCHED_NEW);
    close_sched(&f);
}

TEST(options_that_cannot_work_are_refused)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 8);
    struct sched *none = NULL;
    o.groups[0].pages = f.pages;
    o.group_count = 1;
    o.seqs_max = 0;
    assert_int_equal(sched_create(f.arena, &o, &none), -EINVAL);
    o.seqs_max = 4;
    o.tokens_max = 4 - 1 + 31;
    assert_int_equal(sched_create(f.arena, &o, &none), -EINVAL);
    o.tokens_max = 256;
    o.logits_max = 3;
    assert_int_equal(sched_create(f.arena, &o, &none), -EINVAL);
    assert_null(none);
    close_sched(&f);
}

/* ---- tokens that wait for what computing them takes ---- */

TEST(a_chunk_ends_where_the_rest_waits_and_goes_on_when_it_has_come)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 16);
    struct sched_seq *seq = add(&f, 0, 200, 2);
    seq->ready = 41;
    step(&f);
    assert_int_equal(given(&f, 0), 41);
    step(&f);
    assert_int_equal(f.plan.seq_count, 0);
    assert_int_equal(seq->page_count, 2);
    assert_ptr_equal(sched_first_waiting(f.sched), seq);
    /* From the middle of a page to a page's end, as far as the budget goes. */
    f.ev.tokens_alone = 64;
    seq->ready = 190;
    step(&f);
    assert_int_equal(given(&f, 0), 55);
    seq->ready = 0;
    assert_null(sched_first_waiting(f.sched));
    f.ev.tokens_alone = 256;
    step(&f);
    assert_int_equal(given(&f, 0), 104);
    assert_true(f.plan.seqs[0].samples);
    close_sched(&f);
}

TEST(who_waits_leaves_the_budget_to_others_and_goes_first_when_it_has_waited_long)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 64);
    struct sched_seq *sees = add(&f, 0, 300, 2);
    sees->ready = 32;
    add(&f, 1, 600, 2);
    step(&f);
    assert_int_equal(given(&f, 0), 32);
    for (int i = 0; i < 3; i++) {
        step(&f);
        assert_int_equal(given(&f, 0), 0);
        assert_int_equal(given(&f, 1), 128);
    }
    f.ev.now_ns += SCHED_AGE_NS;
    sees->ready = 0;
    f.seqs[1].served_ns = f.ev.now_ns;
    step(&f);
    assert_int_equal(given(&f, 0), 128);
    close_sched(&f);
}

TEST(the_first_that_waits_is_the_first_in_the_order_of_prompts)
{
    struct fixture f;
    struct sched_opts o = usual();
    open_sched(&f, &o, 64);
    struct sched_seq *longer = add(&f, 0, 300, 2), *shorter = add(&f, 1, 200, 2), *text = add(&f, 2, 50, 2);
    longer->ready = shorter->ready = 1;
    step(&f);
    assert_int_equal(text->phase, SCHED_DECODING);
    assert_ptr_equal(sched_first_waiting(f.sched), shorter);
    sched_pause(f.sched, shorter);
    assert_ptr_equal(sched_first_waiting(f.sched), longer);
    sched_resume(f.sched, shorter);
    longer->served_ns = 0;
    f.ev.now_ns += 2 * SCHED_AGE_NS;
    shorter->served_ns = f.ev.now_ns;
    step(&f);
    assert_ptr_equal(sched_first_waiting(f.sched), longer);
    close_sched(&f);
}

TEST_MAIN()
