/* Sequences whose grammars take long: who is held back, for how long, and that others run meanwhile. */
#include "test_sched.h"

#include "base/arena.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "sched/matching.h"

struct page_pool_opts;

#define SEQS 8
#define MS   1000000ull

struct fixture {
    struct arena *arena;
    struct page_pool *pages;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][32];
    uint32_t got[SEQS];      /* steps that it was in */
    uint64_t match_ns[SEQS]; /* that each of its tokens takes */
};

static void open_sched(struct fixture *f)
{
    *f = (struct fixture){.ev = {.now_ns = 1, .tokens_shared = 96, .tokens_alone = 256}};
    struct page_pool_opts pages = {
        .pages_max = 200, .page_bytes = 4096, .kv = test_account(ACCOUNT_NO_LIMIT)};
    struct sched_opts o = {
        .seqs_max = SEQS, .queue_max = SEQS, .tokens_max = 256, .logits_max = SEQS, .logits_chunk_max = 1};
    open_with_pages(&o, &pages, &f->arena, &f->pages, &f->sched);
}

static void close_sched(struct fixture *f)
{
    for (uint32_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    page_pool_done(f->pages);
    arena_free(f->arena);
}

static void add(struct fixture *f, uint32_t i, uint64_t tenant, uint64_t match_ns)
{
    f->seqs[i] = (struct sched_seq){.pages = {f->tables[i]},
                                    .tokens = 4,
                                    .tokens_limit = 500,
                                    .tenant_id = tenant,
                                    .matched = match_ns > 0,
                                    .arrival_ns = f->ev.now_ns};
    f->match_ns[i] = match_ns;
    assert_int_equal(sched_add(f->sched, &f->seqs[i]), 0);
}

/* Takes a millisecond beside the grammars. */
static void step(struct fixture *f)
{
    step_of(f->sched, &f->ev, &f->plan, NULL);
    for (uint32_t k = 0; k < f->plan.seq_count; k++) {
        uint32_t i = (uint32_t)(f->plan.seqs[k].seq - f->seqs);
        f->got[i]++;
        f->seqs[i].match_ns += f->match_ns[i];
        f->ev.now_ns += f->match_ns[i];
    }
}

TEST(a_tenant_pays_for_its_grammars_while_another_can_run)
{
    struct fixture f;
    open_sched(&f);
    add(&f, 0, 1, 20 * MS);
    add(&f, 1, 2, 0);
    uint64_t began_ns = f.ev.now_ns;
    for (int i = 0; i < 400; i++)
        step(&f);
    assert_int_equal(f.got[1], 400); /* in each step */
    /* Half of the time goes to grammars. */
    uint64_t matched_ns = f.got[0] * f.match_ns[0], all_ns = f.ev.now_ns - began_ns;
    assert_true(matched_ns > all_ns * 4 / 10 && matched_ns < all_ns * 6 / 10);
    close_sched(&f);
}

TEST(a_tenant_that_is_alone_is_not_held_back)
{
    struct fixture f;
    open_sched(&f);
    add(&f, 0, 1, 20 * MS);
    add(&f, 1, 1, 0);
    for (int i = 0; i < 50; i++)
        step(&f);
    assert_int_equal(f.got[0], 50);
    assert_int_equal(f.got[1], 50);
    /* Its debt then is bounded. */
    assert_true(f.seqs[0].share->owed_us <= MATCHING_OWED_MAX_US);
    add(&f, 2, 2, 0);
    uint32_t had = f.got[0];
    for (int i = 0; i < 600 && f.got[0] == had; i++)
        step(&f);
    assert_true(f.got[0] > had);
    close_sched(&f);
}

TEST(grammars_that_take_little_are_never_held_back)
{
    struct fixture f;
    open_sched(&f);
    f.ev.match_ns_max = 25 * MS;
    for (uint32_t i = 0; i < SEQS; i++)
        add(&f, i, i % 2, MS / 10);
    for (int i = 0; i < 100; i++)
        step(&f);
    for (uint32_t i = 0; i < SEQS; i++)
        assert_int_equal(f.got[i], 100);
    close_sched(&f);
}

TEST(the_time_of_a_step_is_bounded_and_seqs_take_turns)
{
    struct fixture f;
    open_sched(&f);
    f.ev.match_ns_max = 25 * MS;
    for (uint32_t i = 0; i < SEQS; i++)
        add(&f, i, 1, i == 0 ? 0 : i == 1 ? 40 * MS : 10 * MS);
    for (int i = 0; i < 4; i++)
        step(&f); /* the cost of each is known then */
    for (int i = 0; i < 200; i++) {
        step(&f);
        uint64_t sum = 0;
        uint32_t matched = 0;
        for (uint32_t k = 0; k < f.plan.seq_count; k++) {
            uint32_t at = (uint32_t)(f.plan.seqs[k].seq - f.seqs);
            sum += f.match_ns[at];
            matched += f.match_ns[at] > 0;
        }
        assert_true(sum <= f.ev.match_ns_max || matched == 1);
    }
    assert_int_equal(f.got[0], 204);
    for (uint32_t i = 1; i < SEQS; i++)
        assert_true(f.got[i] >= 40);
    close_sched(&f);
}

TEST(where_the_others_cannot_run_none_is_held_back)
{
    struct fixture f;
    open_sched(&f);
    add(&f, 0, 1, 20 * MS);
    add(&f, 1, 2, 0);
    step(&f);
    f.seqs[1].ready = 1; /* its next token waits */
    for (int i = 0; i < 20; i++)
        step(&f);
    assert_int_equal(f.got[0], 21);
    close_sched(&f);
}

TEST_MAIN()
