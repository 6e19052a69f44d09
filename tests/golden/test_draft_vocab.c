/* Drafts from the draft vocabulary: the same as from the whole vocabulary where it has the best token, and
 * tokens enter it by being used. */
#include "model_path.h"
#include "small_mtp.h"

#include "base/none.h"
#include "model/draft_vocab.h"

enum { TOKENS = 40, VOCAB = 512, SIZE = 32 };

/* ---- the list ---- */

struct words {
    struct draft_vocab v;
    uint32_t rows[SIZE]; /* whose row lies there */
    uint32_t ids[SIZE];
    uint16_t places[VOCAB];
    uint8_t used[SIZE];
};

static void open_words(struct words *w)
{
    *w = (struct words){0};
    w->v = (struct draft_vocab){
        .size = SIZE, .vocab = VOCAB, .ids = w->ids, .places = w->places, .used = w->used};
    draft_vocab_fill(&w->v);
    for (uint32_t i = 0; i < SIZE; i++)
        w->rows[i] = i;
}

static bool has(const struct words *w, uint32_t id)
{
    return w->places[id] > 0;
}

static bool see(struct words *w, uint32_t id)
{
    uint32_t place = draft_vocab_see(&w->v, id);
    if (place == NONE)
        return false;
    w->rows[place] = id;
    return true;
}

static void check_words(const struct words *w)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < VOCAB; id++) {
        if (!has(w, id))
            continue;
        count++;
        assert_int_equal(w->ids[w->places[id] - 1], id);
    }
    assert_int_equal(count, SIZE);
    for (uint32_t i = 0; i < SIZE; i++) {
        assert_int_equal(w->rows[i], w->ids[i]);
    }
}

TEST(a_new_token_takes_the_place_of_one_out_of_use)
{
    struct words w;
    open_words(&w);
    check_words(&w);
    assert_false(see(&w, 31)); /* the one that would go first */
    assert_true(see(&w, 100));
    assert_true(has(&w, 100) && has(&w, 31) && !has(&w, 30));
    check_words(&w);
    for (uint32_t id = 200; id < 200 + SIZE - 1; id++)
        assert_true(see(&w, id));
    check_words(&w);
    assert_true(!has(&w, 31) && !has(&w, 0)); /* the clock hand came round: no use since */
}

/* Tokens in repeated use outlive any number of tokens that are used once. */
TEST(what_is_used_stays)
{
    struct words w;
    open_words(&w);
    for (uint32_t round = 0; round < 200; round++) {
        see(&w, 40);
        see(&w, 41);
        if (round > 0)
            assert_true(has(&w, 40) && has(&w, 41));
        for (uint32_t i = 0; i < 5; i++)
            see(&w, 64 + (round * 5 + i) % 448);
        check_words(&w);
    }
}

TEST(how_many_are_kept)
{
    assert_int_equal(draft_vocab_size(0, 8192), 0);
    assert_int_equal(draft_vocab_size(100, 8192), 112);
    assert_int_equal(draft_vocab_size(4096, 8192), 4096);
    assert_int_equal(draft_vocab_size(4097, 8192), 0);
    assert_int_equal(draft_vocab_size(MODEL_DRAFT_VOCAB_AUTO, 512), 0);
    assert_int_equal(draft_vocab_size(MODEL_DRAFT_VOCAB_AUTO, 8192), 2048);
    assert_int_equal(draft_vocab_size(MODEL_DRAFT_VOCAB_AUTO, 248320), 16384);
    assert_int_equal(draft_vocab_size(UINT32_MAX - 1, 248320), 65520);
}

/* ---- in a model ---- */

struct drafting {
    uint32_t id;
    float logit;
};

/* The draft token after TOKENS tokens, one of which is `token`, and one more. A second sequence has the token
 * `beside`. */
static struct drafting draft_of(const char *dir, uint32_t draft_vocab, uint32_t token, uint32_t beside)
{
    struct model_opts o = small_opts(NULL);
    struct model *m = NULL;
    struct err e = {{0}};
    o.parts = (struct model_parts){.mtp = true, .drafts_max = 1, .draft_vocab = draft_vocab};
    assert_int_equal(model_load_at(dir, &o, &m, &e), 0);
    uint32_t tokens[TOKENS], tables[2][2] = {{1, 0}, {2, 2}};
    for (uint32_t i = 0; i < TOKENS; i++)
        tokens[i] = i % 16;
    tokens[TOKENS - 2] = token;
    struct model_seq rows[2] = {{.tokens = tokens,
                                 .token_count = TOKENS,
                                 .pages = {tables[0]},
                                 .state_in = NONE,
                                 .logits_from = TOKENS},
                                {.tokens = &beside,
                                 .token_count = 1,
                                 .pages = {tables[1]},
                                 .state_in = NONE,
                                 .state_out = 1,
                                 .logits_from = 1}};
    struct drafting g;
    struct model_draft_seq draft = {.token = 3,
                                    .position = TOKENS,
                                    .pages = {tables[0]},
                                    .count = 1,
                                    .drafts = &g.id,
                                    .logits = &g.logit};
    small_mtp_draft(m, &o, rows, 2, &draft);
    model_free(m);
    return g;
}

TEST(the_best_of_all_is_drafted_if_it_is_in_use)
{
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5"));
    uint32_t others = 0;
    for (uint32_t token = 100; token < 120; token++) {
        struct drafting all = draft_of(dir, 0, token, 1), few = draft_of(dir, SIZE, token, 1);
        struct drafting used = draft_of(dir, SIZE, token, all.id);
        assert_true(used.id == all.id && used.logit == all.logit);
        assert_true(few.id < SIZE || few.id == token);
        assert_true(few.id == all.id || few.logit <= all.logit);
        others += few.id != all.id;
    }
    assert_true(others > 0);
}

TEST(probing_says_what_the_list_takes)
{
    const char *dir = small_mtp_model(SMALL_GOLDEN("qwen3_5_moe"));
    struct model_parts parts = {.mtp = true, .drafts_max = 1};
    struct model_shape all, few;
    assert_int_equal(model_probe_at(dir, &parts, &all, NULL), 0);
    parts.draft_vocab = SIZE;
    assert_int_equal(model_probe_at(dir, &parts, &few, NULL), 0);
    assert_true(few.mtp_weight_bytes >= all.mtp_weight_bytes);
    assert_true(few.workspace.device.seq < all.workspace.device.seq);
    assert_int_equal(few.weight_bytes, all.weight_bytes);
}

TEST_MAIN()
