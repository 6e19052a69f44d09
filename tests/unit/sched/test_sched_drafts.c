/* Drafts in a plan: what bounds them, and what becomes of right and wrong ones. The simulation has them in
 * all company. */
#include "test_sched.h"

#include "base/arena.h"
#include "base/check.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"

#include <errno.h>

struct page_pool_opts;

#define SEQS 3

struct fixture {
    struct arena *arena;
    struct page_pool *pages;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][16];
};

static void open_sched(struct fixture *f, uint32_t drafts_max)
{
    struct sched_opts o = {.seqs_max = SEQS,
                           .queue_max = 0,
                           .tokens_max = SEQS - 1 + PAGE_TOKENS + drafts_max,
                           .drafts_max = drafts_max,
                           .logits_max = SEQS + drafts_max,
                           .logits_chunk_max = 1};
    *f = (struct fixture){.ev = {.now_ns = 1, .tokens_shared = 1, .tokens_alone = 1}};
    struct page_pool_opts pages = {.pages_max = 16, .page_bytes = 4096, .kv = test_account(ACCOUNT_NO_LIMIT)};
    open_with_pages(&o, &pages, &f->arena, &f->pages, &f->sched);
}

static void close_sched(struct fixture *f)
{
    for (size_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    page_pool_done(f->pages);
    arena_free(f->arena);
}

static void plan(struct fixture *f)
{
    sched_plan(f->sched, &f->ev, &f->plan);
    sched_check(f->sched);
}

/* sampled: NULL for 1 each. */
static void done(struct fixture *f, const uint32_t *sampled)
{
    f->ev.now_ns += 1000000;
    sched_done(f->sched, &(struct sched_results){f->ev.now_ns, true, sampled});
    sched_check(f->sched);
}

/* A sequence that has finished its prompt and may have `drafts` draft tokens. */
static struct sched_seq *decoding(struct fixture *f, uint32_t i, uint32_t prompt, uint32_t outputs,
                                  uint32_t drafts)
{
    struct sched_seq *seq = &f->seqs[i];
    *seq = (struct sched_seq){.pages = {f->tables[i]},
                              .tokens = prompt,
                              .tokens_limit = prompt + outputs,
                              .arrival_ns = f->ev.now_ns,
                              .drafts = drafts};
    assert_int_equal(sched_add(f->sched, seq), 0);
    while (seq->phase != SCHED_DECODING) {
        plan(f);
        done(f, NULL);
    }
    return seq;
}

static const struct sched_step_seq *planned(const struct fixture *f, const struct sched_seq *seq)
{
    for (uint32_t i = 0; i < f->plan.seq_count; i++)
        if (f->plan.seqs[i].seq == seq)
            return &f->plan.seqs[i];
    return NULL;
}

TEST(a_accepted_draft_is_a_token_and_a_wrong_one_is_none)
{
    struct fixture f;
    open_sched(&f, 8);
    struct sched_seq *seq = decoding(&f, 0, 10, 50, 4);
    assert_int_equal(seq->tokens, 11);
    plan(&f);
    const struct sched_step_seq *r = planned(&f, seq);
    assert_true(r->from == 10 && r->count == 5 && r->drafts == 4 && r->samples);
    assert_int_equal(f.plan.tokens, 5);
    done(&f, (uint32_t[]){3});
    assert_true(seq->tokens == 14 && seq->done == 13);
    plan(&f);
    done(&f, (uint32_t[]){1});
    assert_true(seq->tokens == 15 && seq->done == 14);
    plan(&f);
    done(&f, (uint32_t[]){5});
    assert_true(seq->tokens == 20 && seq->done == 19);
    /* A step that failed moves nothing, whatever it had sampled. */
    plan(&f);
    sched_done(f.sched, &(struct sched_results){f.ev.now_ns, false, (uint32_t[]){5}});
    assert_true(seq->tokens == 20 && seq->done == 19);
    close_sched(&f);
}

TEST(a_prompt_has_no_drafts_behind_it)
{
    struct fixture f;
    open_sched(&f, 8);
    f.seqs[0] = (struct sched_seq){
        .pages = {f.tables[0]}, .tokens = 10, .tokens_limit = 60, .arrival_ns = 1, .drafts = 4};
    assert_int_equal(sched_add(f.sched, &f.seqs[0]), 0);
    plan(&f);
    assert_true(f.plan.seqs[0].count == 10 && f.plan.seqs[0].drafts == 0);
    done(&f, NULL);
    close_sched(&f);
}

TEST(drafts_stay_in_the_page_of_the_last_known_token)
{
    struct fixture f;
    open_sched(&f, 8);
    /* Token 29 is the last known one: 30 and 31 may be drafted. */
    struct sched_seq *seq = decoding(&f, 0, 29, 50, 8);
    plan(&f);
    assert_int_equal(planned(&f, seq)->drafts, 2);
    assert_int_equal(seq->page_count, 1);
    done(&f, (uint32_t[]){3});
    assert_int_equal(seq->done, 32);
    plan(&f);
    assert_int_equal(planned(&f, seq)->drafts, 8);
    done(&f, (uint32_t[]){1});
    /* Token 31: none. */
    struct sched_seq *last = decoding(&f, 1, 31, 50, 8);
    plan(&f);
    assert_int_equal(planned(&f, last)->drafts, 0);
    done(&f, NULL);
    close_sched(&f);
}

TEST(drafts_leave_room_for_the_token_after_them)
{
    struct fixture f;
    open_sched(&f, 8);
    struct sched_seq *seq = decoding(&f, 0, 4, 4, 8);
    plan(&f);
    /* One of four is sampled: two draft tokens and the token after them are the rest. */
    assert_int_equal(planned(&f, seq)->drafts, 2);
    done(&f, (uint32_t[]){2});
    plan(&f);
    assert_int_equal(planned(&f, seq)->drafts, 0);
    done(&f, NULL);
    assert_int_equal(seq->tokens, seq->tokens_limit);
    close_sched(&f);
}

TEST(drafts_of_a_step_are_bounded_and_take_no_other_seqs_token)
{
    struct fixture f;
    open_sched(&f, 5);
    struct sched_seq *a = decoding(&f, 0, 2, 50, 3), *b = decoding(&f, 1, 2, 50, 3);
    struct sched_seq *c = &f.seqs[2];
    a->drafts = b->drafts = 4;
    *c = (struct sched_seq){.pages = {f.tables[2]}, .tokens = 40, .tokens_limit = 50, .arrival_ns = 1e9};
    assert_int_equal(sched_add(f.sched, c), 0);
    plan(&f);
    assert_true(planned(&f, a)->drafts == 4 && planned(&f, b)->drafts == 1);
    assert_int_equal(planned(&f, b)->count, 2);
    /* The prompt has its page nevertheless. */
    assert_int_equal(planned(&f, c)->count, 32);
    done(&f, NULL);
    close_sched(&f);
}

TEST(a_scheduler_has_room_for_the_drafts_that_it_gives)
{
    struct arena *arena;
    struct sched *s;
    struct page_pool *pages;
    struct page_pool_opts pool = {.pages_max = 4, .page_bytes = 4096, .kv = test_account(ACCOUNT_NO_LIMIT)};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 16}, &arena), 0);
    assert_int_equal(page_pool_create(arena, &pool, &pages), 0);
    struct sched_opts o = {.seqs_max = 2,
                           .tokens_max = 1 + PAGE_TOKENS + 6,
                           .drafts_max = 6,
                           .logits_max = 8,
                           .logits_chunk_max = 1,
                           .groups = {{.pages = pages}},
                           .group_count = 1};
    assert_int_equal(sched_create(arena, &o, &s), 0);
    o.drafts_max = 7;
    assert_int_equal(sched_create(arena, &o, &s), -EINVAL);
    o.logits_max = 9;
    assert_int_equal(sched_create(arena, &o, &s), -EINVAL);
    o.tokens_max++;
    assert_int_equal(sched_create(arena, &o, &s), 0);
    page_pool_done(pages);
    arena_free(arena);
}

TEST_MAIN()
