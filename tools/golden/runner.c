/* runner.c - pages and states of each row of the batch are its own from the start: a tool need not share
 * them. Of a group with a window a row has no more pages than a chunk of its tokens can see, and takes
 * those behind the window again: the result is right only if nothing reads them there. */
#include "golden/runner.h"

#include "golden/room.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/none.h"
#include "base/rng.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct row {
    struct runner_sequence *sequence; /* NULL: free */
    uint32_t done;                    /* tokens whose state is stored */
    uint32_t generated;
    uint32_t *pages[PAGE_GROUPS_MAX];     /* its table of each group */
    const uint32_t *own[PAGE_GROUPS_MAX]; /* its pages */
    uint32_t states[2], current;          /* states[current] holds the state at `done` */
    uint32_t next;                        /* the token to feed while decoding */
};

struct runner {
    struct runner_opts opts;
    const struct model_shape *shape;
    uint32_t pages_per_row, chunk; /* chunk: of the run */
    struct room pages[PAGE_GROUPS_MAX], states;
    float *logits;
    uint32_t *page_ids[PAGE_GROUPS_MAX],
        *tables; /* [seqs_max][own_pages], [seqs_max][groups][pages_per_row] */
    uint32_t own_pages[PAGE_GROUPS_MAX];
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

static int make_group(struct runner *r, uint32_t g)
{
    const struct kv_group *group = &r->shape->groups[g];
    uint32_t own = r->pages_per_row, seqs = r->opts.seqs_max;
    if (group->window > 0)
        own = MIN_OF(own, page_window_most(group->window, r->opts.tokens_max));
    r->own_pages[g] = own;
    r->page_ids[g] = calloc((size_t)own * seqs, sizeof(r->page_ids[g][0]));
    if (!r->page_ids[g])
        return -ENOMEM;
    shuffle(r->page_ids[g], own * seqs);
    for (uint32_t i = 0; i < seqs; i++) {
        r->rows[i].own[g] = r->page_ids[g] + (size_t)i * own;
        r->rows[i].pages[g] = r->tables + ((size_t)i * r->shape->group_count + g) * r->pages_per_row;
    }
    return room_make(model_domain(r->opts.model), (uint64_t)own * seqs * group->page_bytes, 0xff,
                     &r->pages[g]);
}

int runner_create(const struct runner_opts *opts, struct runner **ret)
{
    struct runner *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    r->opts = *opts;
    r->shape = model_shape(opts->model);
    r->pages_per_row = DIV_UP(opts->sequence_max, PAGE_TOKENS);
    int result = room_make(model_domain(opts->model), 2 * (uint64_t)opts->seqs_max * r->shape->state_bytes,
                           0xff, &r->states);
    r->logits = malloc((size_t)opts->tokens_max * r->shape->vocab * sizeof(float));
    r->tables =
        calloc((size_t)opts->seqs_max * r->shape->group_count * r->pages_per_row, sizeof(r->tables[0]));
    r->rows = calloc(opts->seqs_max, sizeof(r->rows[0]));
    r->step_rows = calloc(opts->seqs_max, sizeof(r->step_rows[0]));
    if (!r->logits || !r->tables || !r->rows || !r->step_rows)
        result = -ENOMEM;
    for (uint32_t g = 0; result == 0 && g < r->shape->group_count; g++)
        result = make_group(r, g);
    if (result < 0) {
        runner_free(r);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < opts->seqs_max; i++) {
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
    for (uint32_t g = 0; g < PAGE_GROUPS_MAX; g++) {
        room_free(&r->pages[g]);
        free(r->page_ids[g]);
    }
    room_free(&r->states);
    free(r->logits);
    free(r->tables);
    free(r->rows);
    free(r->step_rows);
    free(r);
}

/* The tables as the tokens [done, done + count) see them. */
static void fill_tables(const struct runner *r, struct row *row, uint32_t count)
{
    for (uint32_t g = 0; g < r->shape->group_count; g++) {
        uint32_t window = r->shape->groups[g].window, end = DIV_UP(row->done + count, PAGE_TOKENS);
        uint32_t own =
            window > 0 ? MIN_OF(r->own_pages[g], page_window_most(window, r->chunk)) : r->own_pages[g];
        uint32_t first = window > 0 && row->done >= window ? (row->done - window + 1) / PAGE_TOKENS : 0;
        ASSERT(end - first <= own);
        for (uint32_t i = 0; i < r->pages_per_row; i++)
            row->pages[g][i] = i >= first && i < end ? row->own[g][i % own] : NONE;
    }
}

/* A chunk that would end inside an image whose tokens see each other ends in front of it, or takes all of
 * it. */
static uint32_t whole_images(const struct runner *r, const struct row *row, uint32_t count)
{
    const struct runner_sequence *q = row->sequence;
    const uint32_t end = row->done + count;
    for (uint32_t i = 0; i < q->grid_count && r->shape->vision.both_ways; i++) {
        uint32_t first = q->grids[i].first, behind = first + model_grid_tokens(&q->grids[i]);
        if (first < end && end < behind)
            return first > row->done ? first - row->done : behind - row->done;
    }
    return count;
}

/* The row's next tokens, at most `chunk` of a prompt and `budget` in all. */
static struct model_seq next_tokens(const struct runner *r, struct row *row, uint32_t chunk, uint32_t budget)
{
    const struct runner_sequence *q = row->sequence;
    struct model_seq m = {.position = row->done,
                          .state_in = row->states[row->current],
                          .grids = q->grids,
                          .grid_count = q->grid_count};
    if (row->done < q->prompt_count) {
        m.tokens = q->prompt + row->done;
        m.token_count = MIN_OF(MIN_OF(chunk, budget), q->prompt_count - row->done);
        m.token_count = whole_images(r, row, m.token_count);
        if (row->done == 0)
            m.state_in = NONE;
        row->current ^= 1;
    } else {
        m.tokens = &row->next;
        m.token_count = 1;
    }
    m.state_out = row->states[row->current];
    fill_tables(r, row, m.token_count);
    for (uint32_t g = 0; g < r->shape->group_count; g++)
        m.pages[g] = row->pages[g];
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
        r->step_rows[count] = next_tokens(r, &r->rows[i], chunk, mine);
        budget -= r->step_rows[count++].token_count;
    }
    struct model_step step = {
        .seqs = r->step_rows, .seq_count = count, .states = r->states.at, .logits = r->logits};
    for (uint32_t g = 0; g < r->shape->group_count; g++)
        step.pages[g] = r->pages[g].at;
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
    r->chunk = r->shape->vision.both_ways ? MAX_OF(chunk, model_image_tokens_max(&r->shape->vision)) : chunk;
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
