/* Steps that keep their tokens pending. Whatever is drafted, pending, accepted, kept and read again, each
 * token's logits have the bits of decoding one token after another. So have the drafts of an MTP head after
 * it. */
#include "model_path.h"
#include "test_rng.h"
#include "small_mtp.h"

#include "base/hash.h"
#include "base/none.h"

#include <errno.h>

#define TOKENS 150
#define ROWS   3
#define STATES 4 /* states of a sequence */
#define DRAFTS 3
#define PAGES  ((TOKENS + DRAFTS) / PAGE_TOKENS + 1)
#define KEPT   STATES

/* One sequence: its tokens, the expected results, and its position. */
struct sequence {
    uint32_t tokens[TOKENS], pages[PAGES], first_state;
    uint64_t want[TOKENS];           /* hash of the logits after each */
    uint32_t drafts[TOKENS][DRAFTS]; /* when it is the last one known */
    float draft_logits[TOKENS][DRAFTS];
    uint32_t at, state;     /* the state in `state` is that before token `at` */
    uint32_t kept_at[KEPT]; /* states whose state is that before this token; 0: none */
};

struct pending_test {
    struct model *model;
    struct model_opts opts;
    const struct model_shape *shape;
    struct room pages, states;
    dev_ptr bases[PAGE_GROUPS_MAX];  /* in `pages` */
    uint32_t pending[ROWS * STATES]; /* pending tokens of each state */
    float *logits;
    struct sequence q[ROWS];
    struct rng rng;
};

static uint32_t below(struct pending_test *h, uint32_t n)
{
    return (uint32_t)rng_below(&h->rng, n);
}

static void *poisoned(size_t bytes)
{
    void *p = aligned_alloc(64, ROUND_UP(MAX_OF(bytes, 1), (size_t)64));
    assert_non_null(p);
    memset(p, 0xff, bytes);
    return p;
}

static void open_model(struct pending_test *h, const char *dir, uint32_t workers)
{
    struct err e = {{0}};
    *h = (struct pending_test){.opts = small_opts(NULL), .rng = {21, 0}};
    h->opts.parts.drafts_max = DRAFTS;
    h->opts.parts.mtp = true;
    h->opts.device = small_device(workers);
    assert_int_equal(model_load_at(dir, &h->opts, &h->model, &e), 0);
    h->shape = model_shape(h->model);
    h->pages = small_room(h->model, ROWS * PAGES * h->shape->page_bytes);
    room_page_bases(h->shape, h->pages.at, ROWS * PAGES, h->bases);
    h->states = small_room(h->model, ROWS * STATES * h->shape->state_bytes);
    h->logits = poisoned((size_t)h->opts.tokens_max * h->shape->vocab * sizeof(float));
    for (uint32_t r = 0; r < ROWS; r++) {
        struct sequence *q = &h->q[r];
        q->first_state = r * STATES;
        for (uint32_t i = 0; i < PAGES; i++)
            q->pages[i] = i * ROWS + r;
        for (uint32_t i = 0; i < TOKENS; i++)
            q->tokens[i] = below(h, h->shape->vocab);
    }
}

static void close_model(struct pending_test *h)
{
    room_free(&h->pages);
    room_free(&h->states);
    free(h->logits);
    model_free(h->model);
}

static dev_ptr state_at(const struct pending_test *h, uint32_t state)
{
    return dev_add(h->states.at, state * h->shape->state_bytes);
}

static uint64_t hash_state(const struct pending_test *h, uint32_t state)
{
    size_t bytes = h->shape->state_bytes;
    void *copy = malloc(bytes);
    assert_int_equal(domain_get(h->states.domain, copy, state_at(h, state), bytes), 0);
    uint64_t hash = hash_bytes(copy, bytes);
    free(copy);
    return hash;
}

static void forward(struct pending_test *h, const struct model_seq *rows, uint32_t count)
{
    struct model_step step = {.seqs = rows, .seq_count = count, .states = h->states.at, .logits = h->logits};
    memcpy(step.pages, h->bases, sizeof(step.pages));
    device_turn_begin(h->opts.device);
    assert_int_equal(model_forward(h->model, &step), 0);
    device_turn_end(h->opts.device);
}

static uint64_t hash_logits(const struct pending_test *h, uint32_t row)
{
    uint32_t vocab = h->shape->vocab;
    return hash_bytes(h->logits + (size_t)row * vocab, vocab * sizeof(float));
}

static void draft(struct pending_test *h, struct model_draft_seq *rows, uint32_t count)
{
    struct model_draft d = {.seqs = rows, .seq_count = count, .states = h->states.at};
    memcpy(d.pages, h->bases, sizeof(d.pages));
    device_turn_begin(h->opts.device);
    assert_int_equal(model_draft(h->model, &d), 0);
    device_turn_end(h->opts.device);
}

/* Drafts after the known token `q->at`. */
static struct model_draft_seq draft_row(const struct pending_test *h, struct sequence *q, uint32_t count,
                                        uint32_t *ids, float *logits)
{
    return (struct model_draft_seq){.token = q->tokens[q->at],
                                    .position = q->at,
                                    .pages = {q->pages, q->pages, q->pages, q->pages},
                                    .state = q->state,
                                    .pending = h->pending[q->state],
                                    .count = count,
                                    .drafts = ids,
                                    .logits = logits};
}

/* One token at a time, in place, alone. */
static void expect(struct pending_test *h)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        struct sequence *q = &h->q[r];
        for (uint32_t i = 0; i < TOKENS; i++) {
            q->at = i;
            q->state = q->first_state;
            if (h->shape->mtp && i > 0) {
                struct model_draft_seq one = draft_row(h, q, DRAFTS, q->drafts[i], q->draft_logits[i]);
                draft(h, &one, 1);
            }
            struct model_seq row = {.tokens = q->tokens + i,
                                    .token_count = 1,
                                    .position = i,
                                    .pages = {q->pages, q->pages, q->pages, q->pages},
                                    .state_in = i ? q->first_state : NONE,
                                    .state_out = q->first_state};
            forward(h, &row, 1);
            q->want[i] = hash_logits(h, 0);
        }
    }
}

/* A sequence's part of a step: `count` tokens, of which the first `right` are the sequence's own. */
struct move {
    struct sequence *q;
    uint32_t tokens[TOKENS], count, right, into;
    bool keep_pending;
    uint64_t before; /* hash of state_in, where it is not state_out */
};

static struct model_seq begin(struct pending_test *h, struct sequence *q, struct move *m)
{
    uint32_t left = TOKENS - q->at;
    *m = (struct move){.q = q, .keep_pending = q->at > 0 && below(h, 4) > 0};
    uint32_t most = m->keep_pending ? DRAFTS + 1 : below(h, 3) ? 1 : 40;
    m->count = 1 + below(h, MIN_OF(left, most));
    m->right = m->keep_pending ? 1 + below(h, m->count) : m->count;
    for (uint32_t i = 0; i < m->count; i++)
        m->tokens[i] = i < m->right ? q->tokens[q->at + i] : below(h, h->shape->vocab);
    m->into = q->at == 0 || below(h, 3) == 0 ? q->first_state + below(h, STATES) : q->state;
    if (q->at > 0 && m->into != q->state)
        m->before = hash_state(h, q->state);
    return (struct model_seq){.tokens = m->tokens,
                              .token_count = m->count,
                              .position = q->at,
                              .pages = {q->pages, q->pages, q->pages, q->pages},
                              .state_in = q->at ? q->state : NONE,
                              .pending = h->pending[q->state],
                              .state_out = m->into,
                              .keep_pending = m->keep_pending};
}

static void end(struct pending_test *h, struct move *m, uint32_t logits_row)
{
    struct sequence *q = m->q;
    for (uint32_t i = 0; i < m->right; i++)
        assert_true(hash_logits(h, logits_row + i) == q->want[q->at + i]);
    if (q->at > 0 && m->into != q->state)
        assert_true(hash_state(h, q->state) == m->before);
    h->pending[m->into] = m->keep_pending ? m->right : 0;
    q->at += m->right;
    q->state = m->into;
    q->kept_at[m->into - q->first_state] = q->at;
}

/* A whole state moves, or the sequence goes back to one that was kept: not forward, where drafts may lie in
 * the pages. */
static void wander(struct pending_test *h, struct sequence *q)
{
    uint32_t other = below(h, STATES), to = q->first_state + other;
    if (q->at == TOKENS || q->at == 0)
        return;
    if (below(h, 8) == 0) {
        domain_copy(h->states.domain, state_at(h, to), state_at(h, q->state), h->shape->state_bytes);
        h->pending[to] = h->pending[q->state];
        q->kept_at[other] = q->at;
        q->state = to;
    } else if (below(h, 12) == 0 && q->kept_at[other] > 0 && q->kept_at[other] < q->at) {
        q->at = q->kept_at[other];
        q->state = to;
    }
}

/* Some of the sequences draft, in one call, each its own number of tokens. */
static void draft_some(struct pending_test *h)
{
    struct model_draft_seq rows[ROWS];
    struct sequence *of[ROWS];
    uint32_t ids[ROWS][DRAFTS], count = 0;
    float logits[ROWS][DRAFTS];
    for (uint32_t r = 0; r < ROWS && h->shape->mtp; r++) {
        struct sequence *q = &h->q[r];
        /* Drafts need pages. */
        if (q->at == 0 || q->at + DRAFTS >= TOKENS || below(h, 2) == 0)
            continue;
        rows[count] = draft_row(h, q, 1 + below(h, DRAFTS), ids[count], logits[count]);
        of[count++] = q;
    }
    if (count == 0)
        return;
    draft(h, rows, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_memory_equal(ids[i], of[i]->drafts[of[i]->at], rows[i].count * sizeof(ids[i][0]));
        assert_memory_equal(logits[i], of[i]->draft_logits[of[i]->at], rows[i].count * sizeof(float));
    }
}

static void any_mix_is_decoding(const char *dir, uint32_t workers, uint32_t rounds)
{
    struct pending_test h;
    open_model(&h, dir, workers);
    expect(&h);
    for (uint32_t round = 0; round < rounds; round++) {
        struct model_seq rows[ROWS];
        static struct move moves[ROWS];
        room_free(&h.states);
        h.states = small_room(h.model, ROWS * STATES * h.shape->state_bytes);
        for (uint32_t r = 0; r < ROWS; r++) {
            h.q[r].at = 0;
            memset(h.q[r].kept_at, 0, sizeof(h.q[r].kept_at));
        }
        for (;;) {
            uint32_t count = 0, logits_row = 0;
            for (uint32_t r = 0; r < ROWS; r++)
                wander(&h, &h.q[r]);
            draft_some(&h);
            for (uint32_t r = 0; r < ROWS; r++) {
                if (h.q[r].at < TOKENS && below(&h, 4) > 0) {
                    rows[count] = begin(&h, &h.q[r], &moves[count]);
                    count++;
                }
            }
            forward(&h, rows, count);
            for (uint32_t i = 0; i < count; logits_row += moves[i++].count)
                end(&h, &moves[i], logits_row);
            if (h.q[0].at == TOKENS && h.q[1].at == TOKENS && h.q[2].at == TOKENS)
                break;
        }
    }
    close_model(&h);
}

TEST(any_mix_of_held_and_plain_steps_is_decoding_of_delta_nets)
{
    any_mix_is_decoding(SMALL_GOLDEN("qwen3_5"), 2, 12);
}

TEST(any_mix_of_held_and_plain_steps_is_decoding_of_kimi_delta_attention)
{
    any_mix_is_decoding(SMALL_GOLDEN("kimi_linear"), 2, 6);
    any_mix_is_decoding(SMALL_GOLDEN("bailing_hybrid"), 3, 4);
}

TEST(any_mix_of_held_and_plain_steps_is_decoding_of_experts)
{
    any_mix_is_decoding(SMALL_GOLDEN("qwen3_5_moe"), 3, 6);
    any_mix_is_decoding(SMALL_GOLDEN("qwen3_5_moe"), 1, 4);
}

TEST(any_mix_of_held_and_plain_steps_is_decoding_of_mamba)
{
    any_mix_is_decoding(SMALL_GOLDEN("granitemoehybrid"), 2, 6);
    any_mix_is_decoding(SMALL_GOLDEN("nemotron_h"), 1, 4);
    any_mix_is_decoding(SMALL_GOLDEN("falcon_h1"), 3, 6);
}

TEST(any_mix_of_held_and_plain_steps_is_decoding_of_short_convolutions)
{
    any_mix_is_decoding(SMALL_GOLDEN("lfm2"), 2, 6);
    any_mix_is_decoding(SMALL_GOLDEN("lfm2_moe"), 3, 4);
}

TEST(drafts_are_the_same_in_any_mix)
{
    any_mix_is_decoding(small_mtp_model(SMALL_GOLDEN("qwen3_5")), 2, 6);
    any_mix_is_decoding(small_mtp_model(SMALL_GOLDEN("qwen3_5_moe")), 3, 4);
}

TEST(a_head_changes_no_logit)
{
    struct pending_test with, without;
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5_moe"));
    open_model(&with, dir, 2);
    assert_true(with.shape->mtp && with.shape->mtp_weight_bytes > 0);
    expect(&with);
    close_model(&with);
    open_model(&without, SMALL_GOLDEN("qwen3_5_moe"), 2);
    assert_true(!without.shape->mtp && without.shape->mtp_weight_bytes == 0);
    expect(&without);
    for (uint32_t r = 0; r < ROWS; r++)
        assert_memory_equal(with.q[r].want, without.q[r].want, sizeof(with.q[r].want));
    close_model(&without);
}

TEST(without_states_rejected_draftes_are_overwritten)
{
    any_mix_is_decoding(SMALL_GOLDEN("qwen3"), 2, 2);
}

TEST(what_is_held_is_counted_in_the_state)
{
    static const char *const goldens[] = {SMALL_GOLDEN("qwen3_5"), SMALL_GOLDEN("qwen3"),
                                          SMALL_GOLDEN("nemotron_h")};
    struct model_shape plain, room;
    struct err e;
    for (size_t i = 0; i < COUNT_OF(goldens); i++) {
        size_t last = 0;
        assert_int_equal(model_probe_at(goldens[i], NULL, &plain, &e), 0);
        for (uint32_t drafts = 0; drafts <= MODEL_DRAFTS_MAX; drafts++) {
            const struct model_parts parts = {.drafts_max = drafts};
            assert_int_equal(model_probe_at(goldens[i], &parts, &room, &e), 0);
            assert_int_equal(room.page_bytes, plain.page_bytes);
            if (plain.state_bytes == 0 || drafts == 0)
                assert_int_equal(room.state_bytes, plain.state_bytes);
            else
                assert_true(room.state_bytes > last && room.state_bytes % 64 == 0);
            last = room.state_bytes;
        }
        const struct model_parts many = {.drafts_max = MODEL_DRAFTS_MAX + 1};
        assert_int_equal(model_probe_at(goldens[i], &many, &room, &e), -EINVAL);
    }
}

TEST_MAIN()
