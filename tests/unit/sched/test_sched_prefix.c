/* Use of the prefix index by sequences. */
#include "test_sched_prefix.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"

struct page_pool_opts;

static void open_states(struct fixture *f, uint32_t seqs_max, uint32_t states_max)
{
    struct sched_opts o = open_pools(f, states_max);
    o.seqs_max = seqs_max;
    open_sched(f, &o);
}

static void open_model(struct fixture *f, bool recurrent, uint32_t seqs_max)
{
    open_states(f, seqs_max, recurrent ? 2 * seqs_max + 2 : 0);
}

static void run_to_decoding(struct fixture *f, struct sched_seq *seq)
{
    for (int i = 0; i < 20 && seq->phase != SCHED_DECODING; i++)
        step(f);
    assert_int_equal(seq->phase, SCHED_DECODING);
}

TEST(what_one_seq_computed_the_next_reuses)
{
    struct fixture f;
    open_model(&f, false, 2);
    struct sched_seq *seq = add(&f, 0, "abcd", 5, 0);
    run_to_decoding(&f, seq);
    assert_int_equal(seq->cached, 0);
    sched_remove(f.sched, seq);
    seq = add(&f, 1, "abxy", 5, 0);
    step(&f);
    assert_int_equal(seq->cached, 2 * PAGE);
    assert_int_equal(f.plan.seqs[0].from, 2 * PAGE);
    close_sched(&f);
}

/* The pool has one state: the sequence goes on in it, and leaves no snapshot. */
TEST(without_a_second_state_a_seq_goes_on_in_its_own)
{
    struct fixture f;
    open_states(&f, 1, 1);
    struct sched_seq *seq = add(&f, 0, "abcd", 5, 0);
    step(&f);
    uint32_t own = seq->state;
    assert_true(own != NONE);
    run_to_decoding(&f, seq);
    assert_int_equal(seq->state, own);
    sched_remove(f.sched, seq);
    seq = add(&f, 1, "abcd", 5, 0);
    step(&f);
    assert_int_equal(seq->cached, 0);
    close_sched(&f);
}

TEST(one_token_at_least_is_computed)
{
    struct fixture f;
    open_model(&f, false, 2);
    struct sched_seq *seq = add(&f, 0, "abc", 0, 0);
    run_to_decoding(&f, seq);
    uint32_t page = seq->pages[0][2];
    sched_remove(f.sched, seq);
    /* In a copy of the last page, which goes when the token has been computed. */
    seq = add(&f, 1, "abc", 0, 0);
    sched_plan(f.sched, &f.ev, &f.plan);
    assert_int_equal(seq->cached, 3 * PAGE - 1);
    assert_int_equal(f.plan.tokens, 1);
    assert_int_equal(f.plan.seqs[0].from, 3 * PAGE - 1);
    assert_true(f.plan.seqs[0].samples && seq->pages[0][2] != page);
    sched_done(f.sched, &(struct sched_results){f.ev.now_ns, true});
    sched_check(f.sched);
    assert_int_equal(seq->pages[0][2], page);
    close_sched(&f);
}

TEST(a_last_page_that_the_index_lacks_is_computed)
{
    struct fixture f;
    open_model(&f, false, 2);
    struct sched_seq *seq = add(&f, 0, "abc", 0, 0);
    run_to_decoding(&f, seq);
    sched_remove(f.sched, seq);
    assert_true(page_pool_evict(f.pages));
    assert_int_equal(prefix_index_node(f.index, &seq->keys[2]), NONE);
    seq = add(&f, 1, "abc", 0, 0);
    step(&f);
    assert_int_equal(seq->cached, 2 * PAGE);
    assert_int_equal(f.plan.tokens, PAGE);
    close_sched(&f);
}

TEST(a_recurrent_seq_goes_on_from_the_snapshot_at_a_cut)
{
    struct fixture f;
    open_model(&f, true, 2);
    struct sched_seq *seq = add(&f, 0, "abcd", 5, 3 * PAGE);
    step(&f);
    assert_int_equal(f.plan.seqs[0].count, 2 * PAGE);
    step(&f);
    assert_int_equal(f.plan.seqs[0].count, PAGE); /* the chunk ends at the cut */
    uint32_t at_cut = f.plan.seqs[0].state_out;
    run_to_decoding(&f, seq);
    struct sched_seq *other = add(&f, 1, "abcz", 5, 0);
    step(&f);
    assert_int_equal(other->cached, 3 * PAGE);
    for (uint32_t i = 0; i < f.plan.seq_count; i++)
        if (f.plan.seqs[i].seq == other) {
            assert_int_equal(f.plan.seqs[i].state_in, at_cut);
            assert_int_not_equal(f.plan.seqs[i].state_out, at_cut);
        }
    close_sched(&f);
}

TEST(an_aborted_prompt_leaves_what_it_had)
{
    struct fixture f;
    open_model(&f, true, 2);
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    step(&f);
    assert_int_equal(seq->done, 4 * PAGE);
    sched_remove(f.sched, seq);
    seq = add(&f, 1, "abcdef", 5, 0);
    step(&f);
    assert_int_equal(seq->cached, 4 * PAGE);
    close_sched(&f);
}

TEST(two_with_the_same_beginning_compute_it_once)
{
    struct fixture f;
    open_model(&f, true, 3);
    struct sched_seq *one = add(&f, 0, "abcdef", 5, 4 * PAGE);
    struct sched_seq *two = add(&f, 1, "abcdxy", 5, 4 * PAGE);
    struct sched_seq *stranger = add(&f, 2, "klm", 5, 0);
    step(&f);
    assert_int_equal(two->phase, SCHED_QUEUED);
    assert_int_equal(stranger->phase, SCHED_PREFILLING); /* a sequence without a common prefix does not
                                                          * wait */
    run_to_decoding(&f, two);
    assert_int_equal(two->cached, 4 * PAGE);
    assert_int_equal(one->cached, 0);
    close_sched(&f);
}

static uint32_t prompt_tokens(const struct fixture *f)
{
    uint32_t tokens = 0;
    for (uint32_t i = 0; i < f->plan.seq_count; i++)
        tokens += f->plan.seqs[i].seq->phase == SCHED_PREFILLING ? f->plan.seqs[i].count : 0;
    return tokens;
}

/* Returns the tokens that the choices of one request read of their prompt, together. */
static uint32_t read_by_choices(bool recurrent, uint32_t choices, uint32_t pages, uint32_t more)
{
    struct fixture f;
    uint32_t tokens = 0, decoding = 0;
    open_model(&f, recurrent, choices);
    for (uint32_t i = 0; i < choices; i++)
        add(&f, i, &"abcdef"[6 - pages], more, (pages - (more == 0)) * PAGE);
    for (int i = 0; i < 40 && decoding < choices; i++) {
        sched_plan(f.sched, &f.ev, &f.plan);
        tokens += prompt_tokens(&f);
        f.ev.now_ns += 1000000;
        sched_done(f.sched, &(struct sched_results){f.ev.now_ns, true});
        sched_check(f.sched);
        decoding = 0;
        for (uint32_t k = 0; k < choices; k++)
            decoding += f.seqs[k].phase == SCHED_DECODING;
    }
    assert_int_equal(decoding, choices);
    close_sched(&f);
    return tokens;
}

TEST(choices_of_one_request_read_their_prompt_once)
{
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        /* Each prefills the tokens after the last whole page, and one token at least: with recurrent layers
         * then that whole page. */
        assert_int_equal(read_by_choices(recurrent, 4, 6, 5), 6 * PAGE + 5 + 3 * 5);
        assert_int_equal(read_by_choices(recurrent, 4, 6, 0), 6 * PAGE + 3 * (recurrent ? PAGE : 1));
        assert_int_equal(read_by_choices(recurrent, 2, 1, 1), PAGE + 1 + 1);
    }
}

TEST(who_waits_for_a_prefix_goes_on_when_its_reader_leaves)
{
    struct fixture f;
    open_model(&f, true, 2);
    struct sched_seq *one = add(&f, 0, "abcdef", 5, 4 * PAGE);
    struct sched_seq *two = add(&f, 1, "abcdxy", 5, 4 * PAGE);
    step(&f);
    sched_remove(f.sched, one);
    step(&f);
    assert_int_equal(two->phase, SCHED_PREFILLING);
    assert_int_equal(two->cached, 2 * PAGE);
    close_sched(&f);
}

TEST(seqs_that_want_all_logits_and_seqs_without_keys_reuse_nothing)
{
    struct fixture f;
    open_model(&f, false, 2);
    struct sched_seq *seq = add(&f, 0, "abcd", 5, 0);
    run_to_decoding(&f, seq);
    sched_remove(f.sched, seq);
    seq = add(&f, 1, "abcd", 5, 0);
    seq->logits_all = true;
    step(&f);
    assert_int_equal(seq->cached, 0);
    sched_remove(f.sched, seq);
    seq = add(&f, 2, "abcd", 5, 0);
    seq->keys = NULL;
    step(&f);
    assert_int_equal(seq->cached, 0);
    sched_remove(f.sched, seq);
    /* A prompt of one page is its whole prefix. */
    run_to_decoding(&f, add(&f, 3, "a", 0, 0));
    seq = add(&f, 4, "a", 0, 0);
    seq->logits_all = true;
    step(&f);
    assert_int_equal(seq->cached, 0);
    close_sched(&f);
}

TEST_MAIN()
