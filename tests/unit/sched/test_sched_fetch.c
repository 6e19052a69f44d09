/* Sequences whose prefix lies in a tier below: when it is read, that no other sequence waits for it, and
 * reads that never arrive. */
#define TEST_SEQS 4
#include "test_sched_prefix.h"

#include "base/check.h"
#include "base/none.h"
#include "cache/block_pool.h"
#include "cache/page_pool.h"
#include "cache/prefix_index.h"
#include "cache/prefix_key.h"
#include "cache/tier_io.h"

#include <errno.h>

struct page_pool_opts;

enum { READS = 64 };

/* The tier has a text's pages up to a letter, its snapshots at the letters of `snapshots`, and a window's
 * pages at those of `windows`. */
struct fake_tier {
    struct tier_io io;
    const char *text, *snapshots, *windows;
    uint64_t read_ns;
    uint32_t room; /* reads that may be under way */
    struct tier_arrival reads[READS];
    uint32_t read_count, asked, cancelled, used;
    char bytes[BLOCK];
    uint32_t arrived; /* bytes of so many came to a block */
    /* A tier that is queried: answers are there when `answered` is set. */
    uint32_t queries, common[TIER_KINDS];
    uint64_t query_tag;
    bool answered, refuses; /* refuses: no query begins */
};

static struct fake_tier tier;

/* ---- the tier ---- */

static bool fake_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    struct fake_tier *t = arg;
    size_t len = strnlen((const char *)key->bytes, sizeof(key->bytes));
    if (!t->text || strncmp(t->text, (const char *)key->bytes, len) != 0)
        return false;
    const char *letters = kind == TIER_SNAPSHOT ? t->snapshots : t->windows;
    return kind == TIER_PAGE || (letters && strchr(letters, key->bytes[len - 1]));
}

static void fake_used(void *arg, uint32_t share, const struct prefix_key *keys, uint32_t count,
                      const uint32_t first[TIER_KINDS])
{
    struct fake_tier *t = arg;
    (void)keys;
    assert_true(share < CACHE_SHARES);
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        if (kind != TIER_SNAPSHOT)
            t->used += count - first[kind];
}

static uint64_t fake_read_ns(void *arg, const struct prefix_key *keys, uint32_t count,
                             const uint32_t first[TIER_KINDS])
{
    struct fake_tier *t = arg;
    uint64_t files = 0;
    (void)keys;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        files += count - first[kind];
    return files * t->read_ns;
}

static int fake_read(void *arg, const struct prefix_key *key, enum tier_kind kind, uint64_t tag,
                     uint32_t index)
{
    struct fake_tier *t = arg;
    if (!fake_has(t, key, kind))
        return -ENOENT;
    if (t->read_count == t->room)
        return -EAGAIN;
    t->reads[t->read_count++] =
        (struct tier_arrival){.tag = tag, .index = index, .kind = kind, .bytes = t->bytes};
    t->asked++;
    return 0;
}

static void fake_cancel(void *arg, uint64_t tag)
{
    struct fake_tier *t = arg;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->read_count; i++)
        if (t->reads[i].tag != tag)
            t->reads[kept++] = t->reads[i];
    t->read_count = kept;
    t->cancelled++;
}

/* Nothing arrives by itself: see arrive(). */
static bool fake_take(void *arg, struct tier_arrival *ret)
{
    struct fake_tier *t = arg;
    for (uint32_t i = t->read_count; i > 0; i--) {
        if (t->reads[i - 1].handle == 0)
            continue;
        *ret = t->reads[i - 1];
        t->reads[i - 1] = t->reads[--t->read_count];
        return true;
    }
    return false;
}

static void fake_give(void *arg, const struct tier_arrival *a)
{
    (void)arg;
    assert_int_equal(a->handle, 1);
}

static bool fake_query(void *arg, const struct tier_query *q)
{
    struct fake_tier *t = arg;
    assert_true(q->page_first <= q->count && q->end_first <= q->page_first);
    if (t->refuses)
        return false;
    t->queries++;
    t->query_tag = q->tag;
    t->answered = false;
    return true;
}

static bool fake_queries(void *arg, uint64_t tag)
{
    struct fake_tier *t = arg;
    return tag == t->query_tag && !t->answered;
}

static void fake_common(void *arg, const struct prefix_key *keys, uint32_t count,
                        const uint32_t first[TIER_KINDS])
{
    struct fake_tier *t = arg;
    (void)keys;
    for (enum tier_kind kind = 0; kind < TIER_KINDS; kind++)
        t->common[kind] += count - first[kind];
}

static void queried(void)
{
    tier.io.query = fake_query;
    tier.io.queries = fake_queries;
    tier.io.common = fake_common;
}

/* Reads under way arrive, the last one first; `but`: this index of this kind fails. */
static void arrive_kind(uint32_t but, enum tier_kind kind)
{
    for (uint32_t i = 0; i < tier.read_count; i++) {
        bool fails = tier.reads[i].index == but && tier.reads[i].kind == kind;
        tier.reads[i].handle = 1;
        tier.reads[i].status = fails ? -EIO : 0;
    }
}

static void arrive(uint32_t but)
{
    arrive_kind(but, TIER_PAGE);
}

/* The block is the arrival's own: one that is taken, and that no other sequence reads. */
static void put_arrival(void *arg, const struct tier_arrival *a, uint32_t block)
{
    struct fixture *f = arg;
    assert_ptr_equal(a->bytes, tier.bytes);
    if (a->kind != TIER_SNAPSHOT)
        assert_int_equal(page_pool_refs(a->kind == TIER_PAGE ? f->pages : f->window_pages, block), 1);
    else
        assert_true(block_pool_is_taken(f->states, block));
    tier.arrived++;
}

/* ---- the scheduler ---- */

static void open_model_with(struct fixture *f, bool recurrent, uint32_t window, uint32_t seqs_max)
{
    struct sched_opts o = open_pools_with(f, recurrent ? 2 * seqs_max + 2 : 0, window);
    f->ev.prompt_token_ns = 1e6;
    tier = (struct fake_tier){.io = {.arg = &tier,
                                     .has = fake_has,
                                     .used = fake_used,
                                     .read_ns = fake_read_ns,
                                     .read = fake_read,
                                     .cancel = fake_cancel,
                                     .take = fake_take,
                                     .give = fake_give},
                              .read_ns = 1000000,
                              .room = READS};
    o.seqs_max = seqs_max;
    o.queue_timeout_ns = 60000000000ull;
    o.state_bytes = BLOCK;
    o.tier = &tier.io;
    o.arrived = put_arrival;
    o.arrived_arg = f;
    open_sched(f, &o);
}

static void open_model(struct fixture *f, bool recurrent, uint32_t seqs_max)
{
    open_model_with(f, recurrent, 0, seqs_max);
}

/* ---- tests ---- */

TEST(what_the_tier_has_is_read_and_the_rest_computed)
{
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct fixture f;
        open_model(&f, recurrent, 2);
        tier.text = "abcd";
        tier.snapshots = "bd";
        struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
        step(&f);
        assert_int_equal(seq->phase, SCHED_FETCHING);
        assert_int_equal(f.plan.seq_count, 0);
        assert_int_equal(tier.asked, recurrent ? 5 : 4);
        arrive(UINT32_MAX);
        step(&f);
        assert_int_equal(seq->cached, 4 * PAGE);
        assert_int_equal(seq->fetched, 4 * PAGE);
        assert_int_equal(f.plan.seqs[0].from, 4 * PAGE);
        assert_int_equal(tier.used, 4);
        assert_int_equal(tier.arrived, recurrent ? 5 : 4);
        close_sched(&f);
    }
}

TEST(it_is_read_only_if_that_takes_less_than_half)
{
    struct fixture f;
    open_model(&f, false, 2);
    tier.text = "abcd";
    tier.read_ns = PAGE * 1000000 / 2;
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    assert_int_equal(seq->phase, SCHED_PREFILLING);
    tier.read_ns--;
    seq = add(&f, 1, "abcd", 5, 0);
    sched_remove(f.sched, &f.seqs[0]);
    prefix_index_clear(f.index);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    /* Nothing has been computed yet: the cost is unknown. */
    tier.read_ns = 1000000000000ull;
    f.ev.prompt_token_ns = 0;
    seq = add(&f, 2, "abcdxyz", 5, 0);
    tier.text = "abcdxyz";
    sched_remove(f.sched, &f.seqs[1]);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    close_sched(&f);
}

TEST(a_fetching_seq_takes_no_place)
{
    struct fixture f;
    open_model(&f, false, 1);
    tier.text = "abcd";
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0), *other = add(&f, 1, "xyz", 5, 0);
    for (int i = 0; i < 4; i++)
        step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    assert_int_equal(other->phase, SCHED_DECODING);
    struct sched_numbers n;
    sched_numbers(f.sched, &n);
    assert_true(n.running == 1 && n.waiting == 1 && n.fetching == 1);
    /* Arrived pages are kept until there is a place. */
    arrive(UINT32_MAX);
    step(&f);
    assert_int_equal(seq->phase, SCHED_QUEUED);
    assert_int_equal(seq->page_count, 4);
    sched_remove(f.sched, other);
    step(&f);
    assert_int_equal(seq->cached, 4 * PAGE);
    close_sched(&f);
}

TEST(a_page_that_fails_ends_the_prefix_there)
{
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct fixture f;
        open_model(&f, recurrent, 2);
        tier.text = "abcdefgh";
        tier.snapshots = "ch";
        struct sched_seq *seq = add(&f, 0, "abcdefghi", 5, 0);
        step(&f);
        arrive(5);
        tier.text = "abcde"; /* it is gone by then */
        step(&f);
        /* A second lookup finds the rest: for recurrent layers up to a state. */
        assert_int_equal(seq->phase, SCHED_FETCHING);
        assert_int_equal(seq->fetch_pages, recurrent ? 3 : 5);
        arrive(UINT32_MAX);
        step(&f);
        assert_int_equal(seq->cached, (recurrent ? 3 : 5) * PAGE);
        close_sched(&f);
    }
}

TEST(a_tier_that_never_answers_is_given_up)
{
    struct fixture f;
    open_model(&f, false, 2);
    tier.text = "abcd";
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    f.ev.now_ns += 1000000000ull;
    step(&f);
    assert_int_equal(seq->phase, SCHED_PREFILLING);
    assert_int_equal(seq->cached, 0);
    assert_int_equal(tier.cancelled, 1);
    assert_int_equal(tier.read_count, 0);
    close_sched(&f);
}

TEST(two_with_the_same_prefix_read_it_once)
{
    struct fixture f;
    open_model(&f, false, 4);
    tier.text = "abcd";
    struct sched_seq *first = add(&f, 0, "abcdef", 5, 0), *second = add(&f, 1, "abcdxy", 5, 0);
    step(&f);
    assert_int_equal(first->phase, SCHED_FETCHING);
    assert_int_equal(second->phase, SCHED_QUEUED);
    assert_int_equal(tier.asked, 4);
    arrive(UINT32_MAX);
    step(&f);
    step(&f);
    assert_int_equal(second->cached, 4 * PAGE);
    assert_int_equal(tier.asked, 4);
    close_sched(&f);
}

/* A row with all logits reads no prefix cache. */
TEST(a_row_with_all_logits_does_not_wait_for_anothers_fetch)
{
    struct fixture f;
    open_model(&f, false, 4);
    tier.text = "abcd";
    struct sched_seq *first = add(&f, 0, "abcdef", 5, 0), *second = add(&f, 1, "abcdxy", 5, 0);
    second->logits_all = true;
    step(&f);
    assert_int_equal(first->phase, SCHED_FETCHING);
    assert_int_equal(second->phase, SCHED_PREFILLING);
    assert_int_equal(second->cached, 0);
    close_sched(&f);
}

/* The snapshot lies beyond the common prefix. */
TEST(a_recurrent_state_beyond_the_common_prefix_is_not_waited_for)
{
    struct fixture f;
    open_model(&f, true, 4);
    tier.text = "abcd";
    tier.snapshots = "d";
    struct sched_seq *first = add(&f, 0, "abcdef", 5, 0), *second = add(&f, 1, "abxy", 5, 0);
    step(&f);
    assert_int_equal(first->phase, SCHED_FETCHING);
    assert_int_equal(second->phase, SCHED_PREFILLING);
    close_sched(&f);
}

TEST(a_narrow_tier_is_asked_again_as_it_gets_room)
{
    struct fixture f;
    open_model(&f, false, 2);
    tier.text = "abcdef";
    tier.room = 2;
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    for (int i = 0; i < 4; i++) {
        step(&f);
        arrive(UINT32_MAX);
    }
    assert_int_equal(seq->cached, 6 * PAGE);
    close_sched(&f);
}

/* ---- windows: at a page's end, two pages before it ---- */

#define WINDOW (2 * PAGE_TOKENS)

TEST(a_window_is_read_as_far_as_its_end_needs_it)
{
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct fixture f;
        open_model_with(&f, recurrent, WINDOW, 2);
        tier.text = "abcdefg";
        tier.windows = "bcef"; /* whole before the ends c and f */
        tier.snapshots = "cfg";
        struct sched_seq *seq = add(&f, 0, "abcdefgh", 5, 0);
        step(&f);
        assert_int_equal(seq->fetch_pages, 6);
        assert_int_equal(tier.asked, 6 + 2 + recurrent);
        arrive(UINT32_MAX);
        step(&f);
        assert_true(seq->cached == 6 * PAGE && seq->fetched == 6 * PAGE);
        assert_int_equal(f.plan.seqs[0].from, 6 * PAGE);
        assert_int_equal(tier.used, 6 + 2);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(f.window_tables[0][i], NONE);
        struct prefix_numbers n;
        prefix_index_numbers(f.index, &n);
        assert_int_equal(n.unstored, n.nodes - 6 + n.snapshots - recurrent);
        close_sched(&f);
    }
}

TEST(a_windows_page_that_fails_leaves_the_end_before_it)
{
    for (uint32_t at = 4; at < 6; at++) {
        struct fixture f;
        open_model_with(&f, false, WINDOW, 2);
        tier.text = "abcdef";
        tier.windows = "bcef";
        struct sched_seq *seq = add(&f, 0, "abcdefgh", 5, 0);
        step(&f);
        arrive_kind(at, TIER_WINDOW);
        tier.windows = at == 4 ? "bcf" : "bce";
        step(&f);
        /* All pages of the first group may have come before: they stay for the second fetch. */
        assert_int_equal(seq->phase, SCHED_FETCHING);
        assert_int_equal(seq->fetch_pages, 3);
        arrive(UINT32_MAX);
        step(&f);
        assert_int_equal(seq->cached, 3 * PAGE);
        close_sched(&f);
    }
}

TEST(pages_that_joined_stay_for_a_second_fetch)
{
    struct fixture f;
    open_model_with(&f, false, WINDOW, 2);
    tier.text = "abcdef";
    tier.windows = "bcef";
    tier.room = 7; /* the first group, and one page of the window */
    struct sched_seq *seq = add(&f, 0, "abcdefgh", 5, 0);
    step(&f);
    arrive(UINT32_MAX);
    tier.windows = "bce"; /* the other one is gone */
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    assert_true(seq->fetch_pages == 3 && seq->page_count == 3);
    assert_int_equal(tier.asked, 7 + 2);
    sched_check(f.sched);
    arrive(UINT32_MAX);
    step(&f);
    assert_int_equal(seq->cached, 3 * PAGE);
    close_sched(&f);
}

/* Windows that others have left in memory are not read again. */
TEST(a_fetch_uses_the_windows_in_memory)
{
    struct fixture f;
    open_model_with(&f, false, WINDOW, 2);
    struct sched_seq *seq = add(&f, 0, "abcd", 5, 0);
    for (int i = 0; i < 4; i++)
        step(&f);
    sched_remove(f.sched, seq);
    tier.text = "abcde";
    tier.windows = "e";
    seq = add(&f, 1, "abcdef", 5, 0);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    assert_int_equal(tier.asked, 2); /* e of both groups; d of the window is there */
    arrive(UINT32_MAX);
    step(&f);
    assert_true(seq->cached == 5 * PAGE && seq->fetched == PAGE);
    close_sched(&f);
}

TEST(who_leaves_with_windows_leaves_nothing)
{
    for (int way = 0; way < 3; way++) {
        struct fixture f;
        open_model_with(&f, way == 2, WINDOW, 1);
        tier.text = "abcdef";
        tier.windows = "ef";
        tier.snapshots = "f";
        struct sched_seq *runs = add(&f, 0, "xyz", 5, 0), *seq = add(&f, 1, "abcdef", 5, 0);
        for (int i = 0; i < 3; i++)
            step(&f);
        assert_int_equal(runs->phase, SCHED_DECODING);
        assert_int_equal(seq->phase, SCHED_FETCHING);
        /* While it fetches, after it failed, and when it has all and waits for a place. */
        if (way > 0) {
            arrive_kind(way == 1 ? 5 : UINT32_MAX, TIER_WINDOW);
            tier.text = NULL;
            step(&f);
            assert_int_equal(seq->phase, SCHED_QUEUED);
        }
        sched_remove(f.sched, seq);
        assert_int_equal(tier.read_count, 0);
        sched_check(f.sched);
        close_sched(&f);
    }
}

TEST(a_running_seq_takes_the_fetched_pages_of_waiting_seqs)
{
    struct fixture f;
    open_model(&f, false, 1);
    struct sched_seq *runs = add(&f, 0, "uvwxy", 5, 0);
    runs->tokens_limit = 23 * PAGE;
    f.tables[0][0] = 0;
    for (int i = 0; i < 4; i++)
        step(&f);
    assert_int_equal(runs->phase, SCHED_DECODING);
    tier.text = "abcdefghijklmno";
    struct sched_seq *seq = add(&f, 1, "abcdefghijklmno", 5, 0);
    step(&f);
    arrive(UINT32_MAX);
    step(&f);
    assert_int_equal(seq->phase, SCHED_QUEUED);
    assert_int_equal(seq->page_count, 15);
    while (runs->tokens < runs->tokens_limit - 1) {
        step(&f);
        assert_int_equal(runs->phase, SCHED_DECODING);
    }
    /* It was not preempted, and the other one lost what it held, not its place in the queue. */
    assert_int_equal(runs->preemptions, 0);
    assert_int_equal(seq->phase, SCHED_QUEUED);
    assert_int_equal(seq->page_count, 0);
    close_sched(&f);
}

TEST(who_leaves_or_waits_too_long_leaves_nothing)
{
    struct fixture f;
    open_model(&f, true, 2);
    tier.text = "abcd";
    tier.snapshots = "d";
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    sched_remove(f.sched, seq);
    assert_int_equal(tier.read_count, 0);
    assert_int_equal(tier.cancelled, 1);
    seq = add(&f, 1, "abcdef", 5, 0);
    f.ev.prompt_token_ns = 0;
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    f.ev.now_ns += 61000000000ull;
    step(&f);
    assert_ptr_equal(sched_take_ended(f.sched), seq);
    assert_int_equal(seq->end, SCHED_END_TIMEOUT);
    assert_int_equal(tier.read_count, 0);
    close_sched(&f);
}

TEST(a_tier_that_is_queried_answers_before_the_search)
{
    struct fixture f;
    open_model(&f, true, 2);
    queried();
    tier.text = "abcd";
    tier.snapshots = "d";
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    assert_true(seq->phase == SCHED_FETCHING && tier.queries == 1 && tier.asked == 0);
    step(&f);
    assert_int_equal(tier.asked, 0);
    tier.answered = true;
    step(&f);
    assert_true(seq->phase == SCHED_FETCHING && tier.queries == 1 && tier.asked == 5);
    arrive(UINT32_MAX);
    step(&f);
    assert_int_equal(seq->cached, 4 * PAGE);
    close_sched(&f);
}

TEST(a_query_and_its_reads_have_half_of_the_computation)
{
    uint64_t half_ns = 6 * PAGE * 1000000ull / 2;
    for (int answers = 0; answers < 2; answers++) {
        struct fixture f;
        open_model(&f, false, 2);
        queried();
        tier.text = "abcd";
        struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
        uint64_t before_ns = f.ev.now_ns;
        step(&f);
        uint64_t until_ns = seq->fetch_queried_ns;
        assert_true(seq->phase == SCHED_FETCHING && until_ns >= before_ns + half_ns);
        assert_true(until_ns <= f.ev.now_ns + half_ns);
        f.ev.now_ns = until_ns - half_ns / 2;
        tier.answered = answers;
        step(&f);
        assert_true(seq->phase == SCHED_FETCHING && tier.asked == (answers ? 4 : 0));
        f.ev.now_ns = until_ns - half_ns / 4;
        step(&f);
        assert_int_equal(seq->phase, SCHED_FETCHING);
        f.ev.now_ns = until_ns + 1;
        step(&f);
        /* Known by then or not: it computes. */
        assert_true(seq->phase == SCHED_PREFILLING && seq->cached == 0);
        assert_true(tier.cancelled > 0 && tier.read_count == 0 && tier.queries == 1);
        close_sched(&f);
    }
}

TEST(a_query_that_does_not_begin_bounds_no_reads)
{
    struct fixture f;
    open_model(&f, false, 2);
    queried();
    tier.refuses = true;
    tier.text = "abcd";
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    assert_true(seq->phase == SCHED_FETCHING && tier.queries == 0 && seq->fetch_queried_ns == 0);
    f.ev.now_ns += 6 * PAGE * 1000000ull * 3 / 4; /* more than half of the computation */
    arrive(UINT32_MAX);
    step(&f);
    assert_int_equal(seq->cached, 4 * PAGE);
    close_sched(&f);
}

TEST(short_prompts_are_not_worth_a_query)
{
    struct fixture f;
    open_model(&f, false, 2);
    queried();
    f.ev.prompt_token_ns = 9e6 / (6 * PAGE);
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    assert_true(seq->phase == SCHED_PREFILLING && tier.queries == 0);
    close_sched(&f);
}

TEST(a_sequence_may_leave_during_its_query)
{
    struct fixture f;
    open_model(&f, true, 2);
    queried();
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    sched_remove(f.sched, seq);
    assert_int_equal(tier.cancelled, 1);
    sched_check(f.sched);
    close_sched(&f);
}

TEST(the_head_of_a_prompt_is_common_when_a_second_request_has_it)
{
    struct fixture f;
    open_model(&f, true, 2);
    queried();
    f.ev.prompt_token_ns = 1; /* nothing is worth a query */
    struct sched_seq *seq = add(&f, 0, "abcdef", 5, 0);
    seq->head_pages = 2;
    while (seq->phase != SCHED_DECODING)
        step(&f);
    assert_int_equal(tier.common[TIER_PAGE], 0);
    sched_remove(f.sched, seq);
    struct sched_seq *second = add(&f, 1, "abcdefgh", 5, 0);
    second->head_pages = 2;
    step(&f);
    assert_int_equal(second->cached > 2 * PAGE ? 2 : 0, tier.common[TIER_PAGE]);
    assert_int_equal(tier.common[TIER_PAGE] > 0, tier.common[TIER_SNAPSHOT]);
    assert_true(tier.common[TIER_PAGE] == 2 && tier.common[TIER_WINDOW] == 0);
    close_sched(&f);
}

TEST_MAIN()
