/* drafts.c - one row with pages and two states of its own. */
#include "golden/drafts.h"

#include "golden/room.h"

#include "base/check.h"
#include "base/hash.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the first draft is compared with the file; those further ahead are made at one position in four. */
#define FAR_EVERY 4u

struct row {
    struct model *model;
    const struct model_shape *shape;
    const struct golden_case *c;
    uint32_t *tokens; /* prompt and greedy, then room for drafts */
    uint32_t count;
    uint32_t *pages;
    struct room memory, states;
    dev_ptr bases[PAGE_GROUPS_MAX]; /* in `memory` */
    float *logits;                  /* [DRAFTS_MAX + 1][vocab] */
    bool started;
    uint32_t pending; /* of state 0 */
};

static void row_done(struct row *r)
{
    free(r->tokens);
    free(r->pages);
    room_free(&r->memory);
    room_free(&r->states);
    free(r->logits);
}

static int row_init(struct row *r, struct model *m, const struct golden_case *c)
{
    *r =
        (struct row){.model = m, .shape = model_shape(m), .c = c, .count = c->prompt.count + c->greedy.count};
    uint32_t room = r->count + DRAFTS_MAX + 1, pages = DIV_UP(room, PAGE_TOKENS);
    size_t page_bytes = pages * r->shape->page_bytes, state_bytes = 2 * r->shape->state_bytes;
    r->tokens = calloc(room, sizeof(r->tokens[0]));
    r->pages = calloc(pages, sizeof(r->pages[0]));
    int result = room_make(model_domain(m), page_bytes, 0xff, &r->memory);
    if (result == 0)
        result = room_make(model_domain(m), state_bytes, 0xff, &r->states);
    r->logits = malloc((DRAFTS_MAX + 1) * (size_t)r->shape->vocab * sizeof(float));
    if (!r->tokens || !r->pages || !r->logits || result < 0)
        return -ENOMEM;
    memcpy(r->tokens, c->prompt.ids, c->prompt.count * sizeof(r->tokens[0]));
    if (c->greedy.count)
        memcpy(r->tokens + c->prompt.count, c->greedy.ids, c->greedy.count * sizeof(r->tokens[0]));
    for (uint32_t i = 0; i < pages; i++)
        r->pages[i] = pages - 1 - i;
    room_page_bases(r->shape, r->memory.at, pages, r->bases);
    return 0;
}

static int forward(struct row *r, const uint32_t *tokens, uint32_t position, uint32_t count, uint32_t logits,
                   bool hold)
{
    struct model_seq row = {.tokens = tokens,
                            .token_count = count,
                            .position = position,
                            .state_in = r->started ? 0 : NONE,
                            .pending = r->pending,
                            .logits_from = count - logits,
                            .keep_pending = hold};
    struct model_step step = {.seqs = &row, .seq_count = 1, .states = r->states.at, .logits = r->logits};
    room_tables(r->pages, row.pages);
    memcpy(step.pages, r->bases, sizeof(step.pages));
    r->started = true;
    r->pending = 0;
    return model_forward(r->model, &step);
}

/* Tokens [0, to) in chunks; the last one's logits. */
static int read_prompt(struct row *r, uint32_t to, uint32_t chunk)
{
    int result = 0;
    for (uint32_t at = 0, count; result == 0 && at < to; at += count) {
        count = MIN_OF(chunk, to - at);
        result = forward(r, r->tokens + at, at, count, at + count == to ? 1 : 0, false);
    }
    return result;
}

static int draft(struct row *r, uint32_t token, uint32_t position, uint32_t count, uint32_t *ids,
                 float *logits)
{
    struct model_draft_seq row = {.token = token,
                                  .position = position,
                                  .pending = r->pending,
                                  .count = count,
                                  .drafts = ids,
                                  .logits = logits};
    struct model_draft d = {.seqs = &row, .seq_count = 1, .states = r->states.at};
    room_tables(r->pages, row.pages);
    memcpy(d.pages, r->bases, sizeof(d.pages));
    return model_draft(r->model, &d);
}

static void wrong(struct compare *k, uint32_t position, const char *what, double got, double expected)
{
    if (!k->wrong)
        snprintf(k->message, sizeof(k->message), "position %u: %s %.6f, expected %.6f", position, what, got,
                 expected);
    k->wrong = true;
}

static void compare_draft(struct compare *k, uint32_t position, uint32_t entry, uint32_t id, float logit)
{
    double expected = k->c->mtp_max_logit.values[entry], error = fabs((double)logit - expected);
    k->logits_compared++;
    k->tokens_compared++;
    if (!(error <= k->error_max))
        k->error_max = error;
    if (!(error <= COMPARE_LOGIT_BOUND))
        wrong(k, position, "the head's best logit is", (double)logit, expected);
    /* The file has no margins: equal logits of two tokens would show as a wrong one. */
    if (id != k->c->mtp_argmax.ids[entry])
        wrong(k, position, "the head drafts token", id, k->c->mtp_argmax.ids[entry]);
}

/* Entry i of all is about the pair for token i + 1; the lists have the last ones. */
static int known_positions(struct row *r, uint32_t chunk, uint32_t ahead, struct drafts *g)
{
    uint32_t entries = r->c->mtp_argmax.count, from = r->count - entries;
    int result = read_prompt(r, from, chunk);
    for (uint32_t at = from; result == 0 && at < r->count; at++) {
        uint32_t ids[DRAFTS_MAX] = {0}, count = (at - from) % FAR_EVERY == 0 ? ahead : 1;
        float logits[DRAFTS_MAX] = {0};
        result = draft(r, r->tokens[at], at, count, ids, logits);
        if (result < 0)
            break;
        compare_draft(&g->compare, at, at - from, ids[0], logits[0]);
        const uint64_t parts[] = {g->hash, hash_bytes(ids, sizeof(ids)), hash_bytes(logits, sizeof(logits))};
        g->hash = hash_bytes(parts, sizeof(parts));
        result = forward(r, r->tokens + at, at, 1, 0, false);
    }
    return result;
}

/* Compares the step's output after a known token and `count` drafts; returns how many were accepted. */
static uint32_t verify(struct row *r, uint32_t at, const uint32_t *ids, uint32_t count, uint32_t *generated,
                       struct drafts *g)
{
    uint32_t right = 0, vocab = r->shape->vocab;
    for (uint32_t i = 0; i <= count; i++) {
        uint32_t drawn = runner_argmax(r->logits + (size_t)i * vocab, vocab);
        generated[at + 1 + i - r->c->prompt.count] = drawn;
        if (i == count)
            break;
        g->made[i]++;
        if (drawn != ids[i])
            break;
        g->right[i]++;
        right++;
    }
    return right;
}

static int decode(struct row *r, uint32_t chunk, uint32_t ahead, struct drafts *g)
{
    uint32_t prompt = r->c->prompt.count,
             *generated = calloc(r->c->greedy.count + DRAFTS_MAX + 2, sizeof(*generated));
    int result = generated ? read_prompt(r, prompt, chunk) : -ENOMEM;
    if (result == 0)
        generated[0] = runner_argmax(r->logits, r->shape->vocab);
    for (uint32_t at = prompt; result == 0 && at + 1 < r->count;) {
        uint32_t ids[DRAFTS_MAX + 1] = {generated[at - prompt]};
        result = draft(r, ids[0], at, ahead, ids + 1, NULL);
        if (result == 0)
            result = forward(r, ids, at, 1 + ahead, 1 + ahead, true);
        if (result < 0)
            break;
        uint32_t right = verify(r, at, ids + 1, ahead, generated, g);
        r->pending = 1 + right;
        at += 1 + right;
    }
    if (result == 0)
        compare_greedy(&g->compare, generated);
    free(generated);
    return result;
}

int drafts_run(struct model *m, uint32_t tokens_max, const struct golden_case *c, uint32_t chunk,
               uint32_t ahead, struct drafts *ret)
{
    struct row r;
    *ret = (struct drafts){.compare = {.c = c}};
    chunk = MIN_OF(chunk, tokens_max);
    int result = row_init(&r, m, c);
    if (result == 0)
        result = known_positions(&r, chunk, ahead, ret);
    r.started = false;
    if (result == 0)
        result = decode(&r, chunk, ahead, ret);
    row_done(&r);
    return result;
}
