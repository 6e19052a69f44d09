/* Sequences of models with windows: which pages they hold, and whose turn it is when a window's pool is
 * short. */
#include "test_sched.h"

#include "base/arena.h"
#include "base/check.h"
#include "base/none.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"

#include <string.h>

struct page_pool_opts;

enum { SEQS = 4, PAGE = PAGE_TOKENS, WINDOW = 2 * PAGE, TABLE = 32 };

struct fixture {
    struct arena *arena;
    struct page_group groups[2];
    struct prefix_index *index;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][2][TABLE], uses;
    struct prefix_key keys[SEQS][TABLE];
    struct of_group {
        struct fixture *f;
        uint32_t group;
    } of[2];
};

static void on_evict(void *arg, uint32_t page)
{
    struct of_group *of = arg;
    prefix_index_evict_page(of->f->index, of->group, page);
}

static void open_group(struct fixture *f, uint32_t group, uint32_t pages_max, uint32_t window)
{
    struct page_pool_opts pages = {.pages_max = pages_max,
                                   .page_bytes = 4096,
                                   .kv = test_account(ACCOUNT_NO_LIMIT),
                                   .evict = on_evict,
                                   .arg = &f->of[group],
                                   .uses = &f->uses};
    f->of[group] = (struct of_group){f, group};
    f->groups[group] = (struct page_group){.page_bytes = 4096, .window = window};
    assert_int_equal(page_pool_create(f->arena, &pages, &f->groups[group].pages), 0);
}

static void open_sched(struct fixture *f, uint32_t near_pages, bool reuse)
{
    *f = (struct fixture){.ev = {.now_ns = 1, .tokens_shared = 4 * PAGE, .tokens_alone = 4 * PAGE}};
    struct arena_opts arena = {.bytes_max = (size_t)1 << 20};
    assert_int_equal(arena_create(&arena, &f->arena), 0);
    open_group(f, 0, 64, 0);
    open_group(f, 1, near_pages, WINDOW);
    struct prefix_index_opts index = {
        .groups = {f->groups[0], f->groups[1]}, .group_count = 2, .bytes_max = UINT64_MAX};
    if (reuse)
        assert_int_equal(prefix_index_create(f->arena, &index, &f->index), 0);
    struct sched_opts o = {.seqs_max = SEQS,
                           .queue_max = 8,
                           .tokens_max = 8 * PAGE,
                           .logits_max = SEQS,
                           .logits_chunk_max = 1,
                           .groups = {f->groups[0], f->groups[1]},
                           .group_count = 2,
                           .prefix = f->index};
    assert_int_equal(sched_create(f->arena, &o, &f->sched), 0);
}

static void close_sched(struct fixture *f)
{
    for (size_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    prefix_index_done(f->index);
    for (uint32_t g = 0; g < 2; g++) {
        struct page_pool_numbers n;
        page_pool_numbers(f->groups[g].pages, &n);
        assert_int_equal(n.blocks.taken, 0);
        page_pool_done(f->groups[g].pages);
    }
    arena_free(f->arena);
}

/* A text is a letter per page; the prompt has `more` tokens beyond its pages, and `outputs` may follow. */
static struct sched_seq *add(struct fixture *f, uint32_t i, const char *text, uint32_t more, uint32_t outputs)
{
    uint32_t count = (uint32_t)strlen(text);
    for (uint32_t k = 0; k < count; k++)
        memcpy(f->keys[i][k].bytes, text, k + 1);
    f->seqs[i] = (struct sched_seq){.pages = {f->tables[i][0], f->tables[i][1]},
                                    .tokens = count * PAGE + more,
                                    .tokens_limit = count * PAGE + more + outputs,
                                    .arrival_ns = f->ev.now_ns + i,
                                    .keys = f->keys[i],
                                    .key_count = count};
    assert_int_equal(sched_add(f->sched, &f->seqs[i]), 0);
    return &f->seqs[i];
}

static void step(struct fixture *f)
{
    step_of(f->sched, &f->ev, &f->plan, f->index);
}

static void run_to_tokens(struct fixture *f, struct sched_seq *seq, uint32_t tokens)
{
    for (int i = 0; i < 300 && seq->tokens < tokens; i++)
        step(f);
    assert_int_equal(seq->tokens, tokens);
}

static uint32_t referenced(const struct fixture *f, uint32_t group)
{
    struct page_pool_numbers n;
    page_pool_numbers(f->groups[group].pages, &n);
    return n.referenced;
}

TEST(pages_behind_the_window_lose_the_seqs_reference)
{
    struct fixture f;
    open_sched(&f, 64, true);
    struct sched_seq *seq = add(&f, 0, "abcdef", 1, 100);
    run_to_tokens(&f, seq, 6 * PAGE + 2);
    assert_int_equal(referenced(&f, 0), 7);
    /* Token 6 * PAGE + 1 sees 4 * PAGE + 2 and later tokens. */
    assert_int_equal(seq->first[1], 4);
    assert_int_equal(referenced(&f, 1), 3);
    assert_int_equal(page_pool_cached(f.groups[1].pages), 4);
    assert_int_equal(seq->pages[1][3], NONE);
    /* One token further into the window's next page, one page less. */
    run_to_tokens(&f, seq, 7 * PAGE);
    assert_int_equal(seq->first[1], 5);
    sched_remove(f.sched, seq);
    assert_int_equal(referenced(&f, 0) + referenced(&f, 1), 0);
    close_sched(&f);
}

TEST(a_text_of_any_length_fits_into_a_windows_few_pages)
{
    struct fixture f;
    open_sched(&f, WINDOW / PAGE + 1, false);
    struct sched_seq *seq = add(&f, 0, "abcdefghijkl", 5, 200);
    run_to_tokens(&f, seq, 12 * PAGE + 204);
    assert_int_equal(seq->preemptions, 0);
    close_sched(&f);
}

TEST(the_next_seq_begins_with_the_windows_that_are_left)
{
    struct fixture f;
    open_sched(&f, 64, true);
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 50);
    run_to_tokens(&f, seq, 6 * PAGE + 6);
    sched_remove(f.sched, seq);
    seq = add(&f, 1, "abcdxy", 5, 50);
    step(&f);
    assert_int_equal(seq->cached, 4 * PAGE);
    run_to_tokens(&f, seq, 6 * PAGE + 6);
    sched_remove(f.sched, seq);
    seq = add(&f, 2, "abcz", 5, 50);
    step(&f);
    assert_int_equal(seq->cached, 3 * PAGE);
    uint32_t page = seq->pages[1][2];
    sched_remove(f.sched, seq);
    /* Without the page of "c" no sequence starts after three or four pages. */
    prefix_index_evict_page(f.index, 1, page);
    page_pool_drop(f.groups[1].pages, page);
    seq = add(&f, 3, "abcdq", 5, 50);
    step(&f);
    assert_int_equal(seq->cached, 2 * PAGE);
    close_sched(&f);
}

TEST(admission_looks_at_each_group)
{
    struct fixture f;
    open_sched(&f, 2 * (WINDOW / PAGE + 1), false);
    struct sched_seq *one = add(&f, 0, "abcdefgh", 5, 100);
    struct sched_seq *two = add(&f, 1, "klmnopqr", 5, 300);
    step(&f);
    /* There are pages for both windows, but none for the page that each decoding sequence may want. */
    assert_int_equal(one->phase, SCHED_PREFILLING);
    assert_int_equal(two->phase, SCHED_QUEUED);
    run_to_tokens(&f, one, 8 * PAGE + 100);
    sched_remove(f.sched, one);
    run_to_tokens(&f, two, 8 * PAGE + 300);
    assert_int_equal(one->preemptions + two->preemptions, 0);
    close_sched(&f);
}

TEST(who_is_preempted_for_a_windows_page_comes_back)
{
    struct fixture f;
    open_sched(&f, 5, true);
    struct sched_seq *one = add(&f, 0, "a", 1, 200);
    struct sched_seq *two = add(&f, 1, "k", 1, 200);
    for (int i = 0; i < 900 && two->tokens < PAGE + 200; i++) {
        step(&f);
        if (one->phase != SCHED_NEW && one->tokens == PAGE + 200)
            sched_remove(f.sched, one);
    }
    assert_int_equal(one->phase, SCHED_NEW);
    assert_int_equal(one->preemptions, 0);
    assert_true(two->preemptions > 0);
    assert_int_equal(two->tokens, PAGE + 200);
    close_sched(&f);
}

TEST_MAIN()
