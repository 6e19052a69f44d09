/* drafts.c - prompts are read one by one; then all cases are rows of the same steps, each with pages and two
 * states of its own: what was read before the first entry stays in one, from which decoding begins. */
#include "golden/drafts.h"

#include "golden/room.h"

#include "base/check.h"
#include "base/none.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Only the first draft is compared with the file; those further ahead are made at one position in four. */
#define FAR_EVERY 4u

struct row {
    const struct golden_case *c;
    struct drafts *result;
    uint32_t *tokens; /* prompt and greedy, then room for drafts */
    uint32_t *generated;
    uint32_t *pages;
    uint32_t count, at; /* tokens; the next one to feed */
    uint32_t page_count;
    uint32_t state_in, state_out; /* state_in NONE: not started */
    uint32_t read;                /* tokens whose state is in its first one */
    uint32_t pending;             /* pending tokens of state_in */
    uint32_t ids[DRAFTS_MAX + 1];
    float best[DRAFTS_MAX];
};

/* Row i has the states 2i and 2i + 1. */
struct draft_batch {
    struct model *model;
    const struct model_shape *shape;
    uint32_t count, chunk, ahead;
    struct row row[DRAFT_ROWS_MAX];
    struct room memory, states;
    dev_ptr bases[PAGE_GROUPS_MAX]; /* in `memory` */
    float *logits;                  /* [rows][DRAFTS_MAX + 1][vocab] */
};

static void batch_done(struct draft_batch *b)
{
    for (uint32_t i = 0; i < b->count; i++) {
        free(b->row[i].tokens);
        free(b->row[i].generated);
        free(b->row[i].pages);
    }
    room_free(&b->memory);
    room_free(&b->states);
    free(b->logits);
}

static int row_init(struct row *r, const struct golden_case *c, const struct model_shape *shape,
                    struct drafts *result)
{
    *result = (struct drafts){.compare = {.c = c, .bound = compare_bound(shape->compute, shape->kv_form)}};
    *r = (struct row){.c = c, .result = result, .count = c->prompt.count + c->greedy.count};
    uint32_t room = r->count + DRAFTS_MAX + 1;
    r->page_count = DIV_UP(room, PAGE_TOKENS);
    r->tokens = calloc(room, sizeof(r->tokens[0]));
    r->generated = calloc(c->greedy.count + DRAFTS_MAX + 2, sizeof(r->generated[0]));
    r->pages = calloc(r->page_count, sizeof(r->pages[0]));
    if (!r->tokens || !r->generated || !r->pages)
        return -ENOMEM;
    memcpy(r->tokens, c->prompt.ids, c->prompt.count * sizeof(r->tokens[0]));
    if (c->greedy.count)
        memcpy(r->tokens + c->prompt.count, c->greedy.ids, c->greedy.count * sizeof(r->tokens[0]));
    return 0;
}

/* A row's pages lie in reverse order, after those of the rows before it. */
static int batch_init(struct draft_batch *b, const struct golden_case *const *cases, struct drafts *ret)
{
    uint32_t pages = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct row *r = &b->row[i];
        int result = row_init(r, cases[i], b->shape, &ret[i]);
        if (result < 0)
            return result;
        for (uint32_t p = 0; p < r->page_count; p++)
            r->pages[p] = pages + r->page_count - 1 - p;
        pages += r->page_count;
    }
    const struct domain *domain = model_domain(b->model);
    int result = room_make(domain, (uint64_t)pages * b->shape->page_bytes, 0xff, &b->memory);
    if (result == 0)
        result = room_make(domain, 2 * (uint64_t)b->count * b->shape->state_bytes, 0xff, &b->states);
    b->logits = malloc((size_t)b->count * (DRAFTS_MAX + 1) * b->shape->vocab * sizeof(float));
    if (result == 0)
        room_page_bases(b->shape, b->memory.at, pages, b->bases);
    return result == 0 && b->logits ? 0 : -ENOMEM;
}

/* The row's next tokens; their last `logits` give a row of logits each. */
static struct model_seq next_tokens(struct row *r, const uint32_t *tokens, uint32_t count, uint32_t logits)
{
    struct model_seq q = {.tokens = tokens,
                          .token_count = count,
                          .position = r->at,
                          .state_in = r->state_in,
                          .pending = r->pending,
                          .state_out = r->state_out,
                          .logits_from = count - logits};
    room_tables(r->pages, q.pages);
    r->state_in = r->state_out;
    r->pending = 0;
    return q;
}

static int forward(struct draft_batch *b, const struct model_seq *seqs, uint32_t count)
{
    struct model_step step = {.seqs = seqs, .seq_count = count, .states = b->states.at, .logits = b->logits};
    memcpy(step.pages, b->bases, sizeof(step.pages));
    return model_forward(b->model, &step);
}

/* Tokens [at, to) of one row in chunks; the last one's logits. */
static int read_tokens(struct draft_batch *b, struct row *r, uint32_t to)
{
    int result = 0;
    while (result == 0 && r->at < to) {
        uint32_t count = MIN_OF(b->chunk, to - r->at);
        struct model_seq q = next_tokens(r, r->tokens + r->at, count, r->at + count == to ? 1 : 0);
        result = forward(b, &q, 1);
        r->at += count;
    }
    return result;
}

/* `count` drafts of each row after its token ids[0]. */
static int draft(struct draft_batch *b, struct row *const *rows, uint32_t row_count, uint32_t count)
{
    struct model_draft_seq seqs[DRAFT_ROWS_MAX];
    struct model_draft d = {.seqs = seqs, .seq_count = row_count, .states = b->states.at};
    for (uint32_t i = 0; i < row_count; i++) {
        struct row *r = rows[i];
        seqs[i] = (struct model_draft_seq){.token = r->ids[0],
                                           .position = r->at,
                                           .state = r->state_in,
                                           .pending = r->pending,
                                           .count = count,
                                           .drafts = r->ids + 1,
                                           .logits = r->best};
        room_tables(r->pages, seqs[i].pages);
    }
    memcpy(d.pages, b->bases, sizeof(d.pages));
    return model_draft(b->model, &d);
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
    if (!(error <= k->bound))
        wrong(k, position, "the head's best logit is", (double)logit, expected);
    /* The file has no margins: equal logits of two tokens would show as a wrong one. In int8 any may. */
    if (k->bound < 1 && id != k->c->mtp_argmax.ids[entry])
        wrong(k, position, "the head drafts token", id, k->c->mtp_argmax.ids[entry]);
}

/* The second draft token, which continues the first: nothing is known of a second after a wrong first. */
static void compare_second(struct compare *k, uint32_t position, uint32_t entry, float logit)
{
    double expected = k->c->mtp_second_logit.values[entry], error = fabs((double)logit - expected);
    k->logits_compared++;
    if (!(error <= k->error_max))
        k->error_max = error;
    if (!(error <= k->bound))
        wrong(k, position, "the second draft's best logit is", (double)logit, expected);
}

static uint32_t first_entry(const struct row *r)
{
    return r->count - r->c->mtp_argmax.count;
}

/* One step: a draft of each row, compared with its entry, and then its known token. */
static int known_position(struct draft_batch *b, struct row *const *rows, uint32_t count, uint32_t entry)
{
    struct model_seq seqs[DRAFT_ROWS_MAX];
    for (uint32_t i = 0; i < count; i++)
        rows[i]->ids[0] = rows[i]->tokens[rows[i]->at];
    const uint32_t ahead = entry % FAR_EVERY == 0 ? b->ahead : 1;
    int result = draft(b, rows, count, ahead);
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        struct row *r = rows[i];
        compare_draft(&r->result->compare, r->at, entry, r->ids[1], r->best[0]);
        if (ahead > 1 && r->c->mtp_second_logit.count > 0 && r->ids[1] == r->c->mtp_argmax.ids[entry])
            compare_second(&r->result->compare, r->at, entry, r->best[1]);
        seqs[i] = next_tokens(r, r->tokens + r->at, 1, 0);
        r->at++;
    }
    return result == 0 ? forward(b, seqs, count) : result;
}

/* Tokens before the first entry, in the row's first state; the steps that follow write the other one. */
static int read_start(struct draft_batch *b, uint32_t i)
{
    struct row *r = &b->row[i];
    r->state_in = NONE;
    r->state_out = 2 * i;
    r->at = 0;
    r->read = MIN_OF(first_entry(r), r->c->prompt.count - 1);
    int result = read_tokens(b, r, r->read);
    r->state_out = 2 * i + 1;
    return result == 0 ? read_tokens(b, r, first_entry(r)) : result;
}

/* Entry i of all is about the pair for token i + 1; the lists have the last ones. */
static int known_positions(struct draft_batch *b)
{
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < b->count; i++)
        result = read_start(b, i);
    for (uint32_t entry = 0, count = 1; result == 0 && count > 0; entry++) {
        struct row *rows[DRAFT_ROWS_MAX];
        count = 0;
        for (uint32_t i = 0; i < b->count; i++) {
            if (b->row[i].at < b->row[i].count)
                rows[count++] = &b->row[i];
        }
        if (count > 0)
            result = known_position(b, rows, count, entry);
    }
    return result;
}

/* Compares the step's output after a known token and the drafts with them; returns how many were accepted. */
static uint32_t verify(const struct draft_batch *b, struct row *r, const float *logits)
{
    uint32_t right = 0, vocab = b->shape->vocab;
    for (uint32_t i = 0; i <= b->ahead; i++) {
        uint32_t sampled = runner_argmax(logits + (size_t)i * vocab, vocab);
        r->generated[r->at + 1 + i - r->c->prompt.count] = sampled;
        if (i == b->ahead)
            break;
        r->result->made[i]++;
        if (sampled != r->ids[1 + i])
            break;
        r->result->right[i]++;
        right++;
    }
    return right;
}

/* One step: a known token of each row and its drafts. */
static int verify_drafts(struct draft_batch *b, struct row *const *rows, uint32_t count)
{
    struct model_seq seqs[DRAFT_ROWS_MAX];
    uint32_t outputs = 1 + b->ahead;
    for (uint32_t i = 0; i < count; i++)
        rows[i]->ids[0] = rows[i]->generated[rows[i]->at - rows[i]->c->prompt.count];
    int result = draft(b, rows, count, b->ahead);
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        seqs[i] = next_tokens(rows[i], rows[i]->ids, outputs, outputs);
        seqs[i].keep_pending = true;
    }
    if (result == 0)
        result = forward(b, seqs, count);
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        uint32_t right = verify(b, rows[i], b->logits + (size_t)i * outputs * b->shape->vocab);
        rows[i]->pending = 1 + right;
        rows[i]->at += 1 + right;
    }
    return result;
}

static int decode(struct draft_batch *b)
{
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < b->count; i++) {
        struct row *r = &b->row[i];
        r->at = r->read;
        r->state_in = r->read > 0 ? 2 * i : NONE;
        r->pending = 0;
        result = read_tokens(b, r, r->c->prompt.count);
        if (result == 0)
            b->row[i].generated[0] = runner_argmax(b->logits, b->shape->vocab);
    }
    for (uint32_t count = 1; result == 0 && count > 0;) {
        struct row *rows[DRAFT_ROWS_MAX];
        count = 0;
        for (uint32_t i = 0; i < b->count; i++) {
            if (b->row[i].at + 1 < b->row[i].count)
                rows[count++] = &b->row[i];
        }
        if (count > 0)
            result = verify_drafts(b, rows, count);
    }
    for (uint32_t i = 0; result == 0 && i < b->count; i++)
        compare_greedy(&b->row[i].result->compare, b->row[i].generated);
    return result;
}

int drafts_run(const struct drafts_opts *opts, const struct golden_case *const *cases, uint32_t count,
               struct drafts *ret)
{
    ASSERT(count > 0 && count <= DRAFT_ROWS_MAX && opts->ahead <= DRAFTS_MAX);
    struct draft_batch b = {.model = opts->model,
                            .shape = model_shape(opts->model),
                            .count = count,
                            .chunk = MIN_OF(opts->chunk, opts->tokens_max),
                            .ahead = opts->ahead};
    int result = batch_init(&b, cases, ret);
    if (result == 0)
        result = known_positions(&b);
    if (result == 0)
        result = decode(&b);
    batch_done(&b);
    return result;
}
