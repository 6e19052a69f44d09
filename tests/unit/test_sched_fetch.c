/* Sequences whose prefix lies in a tier below: when it is read, that no other sequence waits for it, and
 * reads that never arrive. */
#include "test_sched.h"

#include "base/check.h"

#include <errno.h>
#include <string.h>

enum { SEQS = 4, PAGES = 24, PAGE = PAGE_TOKENS, BLOCK = 4096, READS = 64 };

/* The tier has a text's pages up to a letter, and its snapshots at the letters of `snapshots`. */
struct fake_tier {
    struct tier_io io;
    const char *text, *snapshots;
    uint64_t read_ns;
    uint32_t room; /* reads that may be under way */
    struct tier_arrival reads[READS];
    uint32_t read_count, asked, cancelled, used;
    char bytes[BLOCK];
};

struct fixture {
    struct arena *arena;
    struct account *kv, *state;
    struct page_pool *pages;
    struct state_pool *states;
    struct prefix_index *index;
    struct sched *sched;
    struct sched_events ev;
    struct sched_plan plan;
    struct sched_seq seqs[SEQS];
    uint32_t tables[SEQS][32];
    struct prefix_key keys[SEQS][32];
    struct fake_tier tier;
};

/* ---- the tier ---- */

static bool fake_has(void *arg, const struct prefix_key *key, enum tier_kind kind)
{
    struct fake_tier *t = arg;
    size_t len = strnlen((const char *)key->bytes, sizeof(key->bytes));
    if (!t->text || strncmp(t->text, (const char *)key->bytes, len) != 0)
        return false;
    return kind == TIER_PAGE || (t->snapshots && strchr(t->snapshots, key->bytes[len - 1]));
}

static void fake_used(void *arg, const struct prefix_key *keys, uint32_t count)
{
    struct fake_tier *t = arg;
    (void)keys;
    t->used += count;
}

static uint64_t fake_read_ns(void *arg, uint32_t pages, uint32_t snapshots)
{
    struct fake_tier *t = arg;
    return (pages + snapshots) * t->read_ns;
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

/* Reads under way arrive, the last one first; `but`: this index fails. */
static void arrive(struct fixture *f, uint32_t but)
{
    for (uint32_t i = 0; i < f->tier.read_count; i++) {
        f->tier.reads[i].handle = 1;
        f->tier.reads[i].status = f->tier.reads[i].index == but ? -EIO : 0;
    }
}

/* ---- the scheduler ---- */

static void on_evict(void *arg, uint32_t page)
{
    prefix_index_evict_page(((struct fixture *)arg)->index, 0, page);
}

static void open_sched(struct fixture *f, bool recurrent, uint32_t seqs_max)
{
    *f = (struct fixture){.kv = test_account(ACCOUNT_NO_LIMIT), .state = test_account(ACCOUNT_NO_LIMIT)};
    f->ev =
        (struct sched_events){.now_ns = 1, .tokens_shared = 64, .tokens_alone = 64, .prompt_token_ns = 1e6};
    f->tier = (struct fake_tier){.io = {.arg = &f->tier,
                                        .has = fake_has,
                                        .used = fake_used,
                                        .read_ns = fake_read_ns,
                                        .read = fake_read,
                                        .cancel = fake_cancel,
                                        .take = fake_take,
                                        .give = fake_give},
                                 .read_ns = 1000000,
                                 .room = READS};
    struct page_pool_opts pages = {
        .pages_max = PAGES, .page_bytes = BLOCK, .kv = f->kv, .evict = on_evict, .arg = f};
    struct state_pool_opts states = {.states_max = 2 * seqs_max + 2, .state_bytes = BLOCK, .state = f->state};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)1 << 20}, &f->arena), 0);
    assert_int_equal(page_pool_create(f->arena, &pages, &f->pages), 0);
    if (recurrent)
        assert_int_equal(state_pool_create(f->arena, &states, &f->states), 0);
    struct prefix_index_opts index = {.groups = {{.pages = f->pages, .page_bytes = BLOCK}},
                                      .group_count = 1,
                                      .states = f->states,
                                      .state_bytes = BLOCK,
                                      .bytes_max = UINT64_MAX};
    assert_int_equal(prefix_index_create(f->arena, &index, &f->index), 0);
    struct sched_opts o = {.seqs_max = seqs_max,
                           .queue_max = 8,
                           .tokens_max = 256,
                           .logits_max = 20,
                           .logits_chunk_max = 40,
                           .queue_timeout_ns = 60000000000ull,
                           .groups = {index.groups[0]},
                           .group_count = 1,
                           .states = f->states,
                           .state_bytes = BLOCK,
                           .prefix = f->index,
                           .tier = &f->tier.io};
    assert_int_equal(sched_create(f->arena, &o, &f->sched), 0);
}

static void close_sched(struct fixture *f)
{
    for (size_t i = 0; i < SEQS; i++)
        if (f->seqs[i].phase != SCHED_NEW)
            sched_remove(f->sched, &f->seqs[i]);
    sched_check(f->sched);
    prefix_index_check(f->index);
    prefix_index_done(f->index);
    assert_int_equal(page_pool_available(f->pages), PAGES);
    page_pool_done(f->pages);
    state_pool_done(f->states);
    arena_free(f->arena);
}

/* A text is a letter per page, with 5 tokens after it. */
static struct sched_seq *add(struct fixture *f, uint32_t i, const char *text)
{
    uint32_t count = (uint32_t)strlen(text);
    memset(f->keys[i], 0, sizeof(f->keys[i]));
    for (uint32_t k = 0; k < count; k++)
        memcpy(f->keys[i][k].bytes, text, k + 1);
    f->seqs[i] = (struct sched_seq){.pages = {f->tables[i]},
                                    .tokens = count * PAGE + 5,
                                    .tokens_limit = count * PAGE + 90,
                                    .arrival_ns = f->ev.now_ns,
                                    .keys = f->keys[i],
                                    .key_count = count};
    assert_int_equal(sched_add(f->sched, &f->seqs[i]), 0);
    return &f->seqs[i];
}

static void step(struct fixture *f)
{
    step_of(f->sched, &f->ev, &f->plan, f->index);
}

/* ---- tests ---- */

TEST(what_the_tier_has_is_read_and_the_rest_computed)
{
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        struct fixture f;
        open_sched(&f, recurrent, 2);
        f.tier.text = "abcd";
        f.tier.snapshots = "bd";
        struct sched_seq *seq = add(&f, 0, "abcdef");
        step(&f);
        assert_int_equal(seq->phase, SCHED_FETCHING);
        assert_int_equal(f.plan.seq_count, 0);
        assert_int_equal(f.tier.asked, recurrent ? 5 : 4);
        arrive(&f, UINT32_MAX);
        step(&f);
        assert_int_equal(seq->cached, 4 * PAGE);
        assert_int_equal(seq->fetched, 4 * PAGE);
        assert_int_equal(f.plan.seqs[0].from, 4 * PAGE);
        assert_int_equal(f.tier.used, 4);
        close_sched(&f);
    }
}

TEST(it_is_read_only_if_that_takes_less_than_half)
{
    struct fixture f;
    open_sched(&f, false, 2);
    f.tier.text = "abcd";
    f.tier.read_ns = PAGE * 1000000 / 2;
    struct sched_seq *seq = add(&f, 0, "abcdef");
    step(&f);
    assert_int_equal(seq->phase, SCHED_PREFILLING);
    f.tier.read_ns--;
    seq = add(&f, 1, "abcd");
    sched_remove(f.sched, &f.seqs[0]);
    prefix_index_clear(f.index);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    /* Nothing has been computed yet: the cost is unknown. */
    f.tier.read_ns = 1000000000000ull;
    f.ev.prompt_token_ns = 0;
    seq = add(&f, 2, "abcdxyz");
    f.tier.text = "abcdxyz";
    sched_remove(f.sched, &f.seqs[1]);
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    close_sched(&f);
}

TEST(a_fetching_seq_takes_no_place)
{
    struct fixture f;
    open_sched(&f, false, 1);
    f.tier.text = "abcd";
    struct sched_seq *seq = add(&f, 0, "abcdef"), *other = add(&f, 1, "xyz");
    for (int i = 0; i < 4; i++)
        step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    assert_int_equal(other->phase, SCHED_DECODING);
    struct sched_numbers n;
    sched_numbers(f.sched, &n);
    assert_true(n.running == 1 && n.waiting == 1 && n.fetching == 1);
    /* Arrived pages are kept until there is a place. */
    arrive(&f, UINT32_MAX);
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
        open_sched(&f, recurrent, 2);
        f.tier.text = "abcdefgh";
        f.tier.snapshots = "ch";
        struct sched_seq *seq = add(&f, 0, "abcdefghi");
        step(&f);
        arrive(&f, 5);
        f.tier.text = "abcde"; /* it is gone by then */
        step(&f);
        /* A second lookup finds the rest: for recurrent layers up to a state. */
        assert_int_equal(seq->phase, SCHED_FETCHING);
        assert_int_equal(seq->fetch_pages, recurrent ? 3 : 5);
        arrive(&f, UINT32_MAX);
        step(&f);
        assert_int_equal(seq->cached, (recurrent ? 3 : 5) * PAGE);
        close_sched(&f);
    }
}

TEST(a_tier_that_never_answers_is_given_up)
{
    struct fixture f;
    open_sched(&f, false, 2);
    f.tier.text = "abcd";
    struct sched_seq *seq = add(&f, 0, "abcdef");
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    f.ev.now_ns += 1000000000ull;
    step(&f);
    assert_int_equal(seq->phase, SCHED_PREFILLING);
    assert_int_equal(seq->cached, 0);
    assert_int_equal(f.tier.cancelled, 1);
    assert_int_equal(f.tier.read_count, 0);
    close_sched(&f);
}

TEST(two_with_the_same_prefix_read_it_once)
{
    struct fixture f;
    open_sched(&f, false, 4);
    f.tier.text = "abcd";
    struct sched_seq *first = add(&f, 0, "abcdef"), *second = add(&f, 1, "abcdxy");
    step(&f);
    assert_int_equal(first->phase, SCHED_FETCHING);
    assert_int_equal(second->phase, SCHED_QUEUED);
    assert_int_equal(f.tier.asked, 4);
    arrive(&f, UINT32_MAX);
    step(&f);
    step(&f);
    assert_int_equal(second->cached, 4 * PAGE);
    assert_int_equal(f.tier.asked, 4);
    close_sched(&f);
}

/* A row with all logits reads no prefix cache. */
TEST(a_row_with_all_logits_does_not_wait_for_anothers_fetch)
{
    struct fixture f;
    open_sched(&f, false, 4);
    f.tier.text = "abcd";
    struct sched_seq *first = add(&f, 0, "abcdef"), *second = add(&f, 1, "abcdxy");
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
    open_sched(&f, true, 4);
    f.tier.text = "abcd";
    f.tier.snapshots = "d";
    struct sched_seq *first = add(&f, 0, "abcdef"), *second = add(&f, 1, "abxy");
    step(&f);
    assert_int_equal(first->phase, SCHED_FETCHING);
    assert_int_equal(second->phase, SCHED_PREFILLING);
    close_sched(&f);
}

TEST(a_narrow_tier_is_asked_again_as_it_gets_room)
{
    struct fixture f;
    open_sched(&f, false, 2);
    f.tier.text = "abcdef";
    f.tier.room = 2;
    struct sched_seq *seq = add(&f, 0, "abcdef");
    for (int i = 0; i < 4; i++) {
        step(&f);
        arrive(&f, UINT32_MAX);
    }
    assert_int_equal(seq->cached, 6 * PAGE);
    close_sched(&f);
}

TEST(a_running_seq_takes_the_fetched_pages_of_waiting_seqs)
{
    struct fixture f;
    open_sched(&f, false, 1);
    struct sched_seq *runs = add(&f, 0, "uvwxy");
    runs->tokens_limit = 23 * PAGE;
    f.tables[0][0] = 0;
    for (int i = 0; i < 4; i++)
        step(&f);
    assert_int_equal(runs->phase, SCHED_DECODING);
    f.tier.text = "abcdefghijklmno";
    struct sched_seq *seq = add(&f, 1, "abcdefghijklmno");
    step(&f);
    arrive(&f, UINT32_MAX);
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
    open_sched(&f, true, 2);
    f.tier.text = "abcd";
    f.tier.snapshots = "d";
    struct sched_seq *seq = add(&f, 0, "abcdef");
    step(&f);
    sched_remove(f.sched, seq);
    assert_int_equal(f.tier.read_count, 0);
    assert_int_equal(f.tier.cancelled, 1);
    seq = add(&f, 1, "abcdef");
    f.ev.prompt_token_ns = 0;
    step(&f);
    assert_int_equal(seq->phase, SCHED_FETCHING);
    f.ev.now_ns += 61000000000ull;
    step(&f);
    assert_ptr_equal(sched_take_ended(f.sched), seq);
    assert_int_equal(seq->end, SCHED_END_TIMEOUT);
    assert_int_equal(f.tier.read_count, 0);
    close_sched(&f);
}

TEST_MAIN()
