/* runner.c - pages and states of each row of the batch are its own from the start: a tool need not share
 * them. */
#include "golden/runner.h"

#include "golden/room.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct row {
    struct runner_sequence *sequence; /* NULL: free */
    uint32_t done;                    /* tokens whose state is stored */
    uint32_t generated;
    uint32_t *pages;
    uint32_t states[2], current; /* states[current] holds the state at `done` */
    uint32_t next;               /* the token to feed while decoding */
};

struct runner {
    struct runner_opts opts;
    const struct model_shape *shape;
    uint32_t pages_per_row;
    struct room pages, states;
    float *logits;
    uint32_t *page_ids;
    struct row *rows;
    struct model_seq *step_rows;
};

uint32_t runner_argmax(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* A permutation that is the same in every run. */
static void shuffle(uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ids[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)(((unsigned __int128)rng_at(1, count - i) * i) >> 64), kept = ids[j];
        ids[j] = ids[i - 1];
        ids[i - 1] = kept;
    }
}

int runner_create(const struct runner_opts *opts, struct runner **ret)
{
    struct runner *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->opts = *opts;
    r->shape = model_shape(opts->model);
    r->pages_per_row = DIV_UP(opts->sequence_max, PAGE_TOKENS);
    uint32_t page_count = r->pages_per_row * opts->seqs_max;
    const struct domain *d = model_domain(opts->model);
    int result = room_make(d, page_count * r->shape->page_bytes, 0xff, &r->pages);
    if (result == 0)
        result = room_make(d, 2 * (uint64_t)opts->seqs_max * r->shape->state_bytes, 0xff, &r->states);
    r->logits = malloc((size_t)opts->tokens_max * r->shape->vocab * sizeof(float));
    r->page_ids = calloc(page_count, sizeof(r->page_ids[0]));
    r->rows = calloc(opts->seqs_max, sizeof(r->rows[0]));
    r->step_rows = calloc(opts->seqs_max, sizeof(r->step_rows[0]));
    if (result < 0 || !r->logits || !r->page_ids || !r->rows || !r->step_rows) {
        runner_free(r);
        return -ENOMEM;
    }
    shuffle(r->page_ids, page_count);
    for (uint32_t i = 0; i < opts->seqs_max; i++) {
        r->rows[i].pages = r->page_ids + (size_t)i * r->pages_per_row;
        r->rows[i].states[0] = 2 * i;
        r->rows[i].states[1] = 2 * i + 1;
    }
    *ret = r;
    return 0;
}

void runner_free(struct runner *r)
{
    if (!r)
        return;
    room_free(&r->pages);
    room_free(&r->states);
    free(r->logits);
    free(r->page_ids);
    free(r->rows);
    free(r->step_rows);
    free(r);
}

/* The row's next tokens, at most `chunk` of a prompt and `budget` in all. */
static struct model_seq next_tokens(struct row *row, uint32_t chunk, uint32_t budget)
{
    const struct runner_sequence *q = row->sequence;
    struct model_seq m = {.position = row->done,
                          .pages = row->pages,
                          .state_in = row->states[row->current],
                          .grids = q->grids,
                          .grid_count = q->grid_count};
    if (row->done < q->prompt_count) {
        m.tokens = q->prompt + row->done;
        m.token_count = MIN_OF(MIN_OF(chunk, budget), q->prompt_count - row->done);
        if (row->done == 0)
            m.state_in = NONE;
        row->current ^= 1;
    } else {
        m.tokens = &row->next;
        m.token_count = 1;
    }
    m.state_out = row->states[row->current];
    return m;
}

/* Takes a step's logits of one row in; the sequence may end with it. */
static void take_logits(struct runner *r, struct row *row, const struct model_seq *m, const float *logits,
                        runner_see_fn *see)
{
    struct runner_sequence *q = row->sequence;
    uint32_t vocab = r->shape->vocab;
    for (uint32_t i = 0; i < m->token_count; i++, logits += vocab) {
        uint64_t parts[2] = {q->hash, hash_bytes(logits, vocab * sizeof(float))};
        q->hash = hash_bytes(parts, sizeof(parts));
        if (see)
            see(q, m->position + i, logits, vocab);
        row->done++;
        if (row->done >= q->prompt_count && row->generated < q->generate) {
            row->next = runner_argmax(logits, vocab);
            q->generated[row->generated++] = row->next;
        }
    }
    if (row->done >= q->prompt_count && row->generated == q->generate)
        row->sequence = NULL;
}

static int run_step(struct runner *r, uint32_t batch, uint32_t chunk, runner_see_fn *see)
{
    struct row *rows[256];
    uint32_t count = 0, budget = r->opts.tokens_max;
    for (uint32_t i = 0; i < batch; i++) {
        if (!r->rows[i].sequence)
            continue;
        /* Every later sequence gets at least one token. */
        uint32_t mine = budget - (batch - 1 - i);
        rows[count] = &r->rows[i];
        r->step_rows[count] = next_tokens(&r->rows[i], chunk, mine);
        budget -= r->step_rows[count++].token_count;
    }
    struct model_step step = {.seqs = r->step_rows,
                              .seq_count = count,
                              .pages = r->pages.at,
                              .states = r->states.at,
                              .logits = r->logits};
    int result = model_forward(r->opts.model, &step);
    const float *logits = r->logits;
    for (uint32_t i = 0; result == 0 && i < count; i++) {
        take_logits(r, rows[i], &r->step_rows[i], logits, see);
        logits += (size_t)r->step_rows[i].token_count * r->shape->vocab;
    }
    return result;
}

int runner_run(struct runner *r, struct runner_sequence *sequences, uint32_t count, uint32_t chunk,
               uint32_t batch, runner_see_fn *see)
{
    ASSERT(batch > 0 && batch <= r->opts.seqs_max && batch <= 256 && batch <= r->opts.tokens_max &&
           chunk > 0);
    uint32_t next = 0;
    for (;;) {
        bool busy = false;
        for (uint32_t i = 0; i < batch; i++) {
            struct row *row = &r->rows[i];
            if (!row->sequence && next < count) {
                row->sequence = &sequences[next++];
                row->sequence->hash = 0;
                row->done = row->generated = row->current = 0;
                ASSERT(row->sequence->prompt_count + row->sequence->generate <= r->opts.sequence_max);
            }
            busy |= row->sequence != NULL;
        }
        if (!busy)
            return 0;
        int result = run_step(r, batch, chunk, see);
        if (result < 0)
            return result;
    }
}
