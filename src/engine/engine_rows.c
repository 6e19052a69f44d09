/* engine_rows.c - the rows of logits that a step samples from, made ready block by block.
 *
 * The rows of a step are sampled one after the other. What does not depend on an earlier sample is done for
 * all rows before: ids that cannot be sampled are masked, each block says its largest logit, and where a
 * sample needs the weights of all candidates, blocks are weighed. The process's workers do that where no
 * other engine has its turn. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "model/model.h"

#include <errno.h>
#include <string.h>

/* Fewer logits than these take less time than waking workers. */
#define LOGITS_FEW  65536u
#define BLOCKS_EACH 8u

size_t engine_rows_bytes(const struct engine_opts *o, uint32_t vocab)
{
    size_t blocks = DIV_UP(vocab, ROW_SAMPLE_BLOCK);
    size_t row = sizeof(struct engine_row) + blocks * (sizeof(float) + sizeof(double)) +
                 SAMPLER_BINS * sizeof(uint32_t);
    return engine_rows_max(o) * row + o->max_num_seqs * (sizeof(uint32_t) + sizeof(float *)) + 6 * 64;
}

int engine_rows_init(struct engine *en)
{
    struct engine_rows *s = &en->rows;
    uint32_t rows = engine_rows_max(&en->opts);
    s->blocks = DIV_UP(en->shape->vocab, ROW_SAMPLE_BLOCK);
    s->list = ARENA_ARRAY(en->arena, struct engine_row, rows);
    s->most = arena_alloc_array(en->arena, (size_t)rows * s->blocks, sizeof(float));
    s->weights = arena_alloc_array(en->arena, (size_t)rows * s->blocks, sizeof(double));
    s->bins = arena_alloc_array(en->arena, (size_t)rows * SAMPLER_BINS, sizeof(uint32_t));
    s->first = ARENA_ARRAY(en->arena, uint32_t, en->opts.max_num_seqs);
    s->begin = ARENA_ARRAY(en->arena, float *, en->opts.max_num_seqs);
    return s->list && s->most && s->weights && s->bins && s->first && s->begin ? 0 : -ENOMEM;
}

static struct engine_row row_of(struct engine *en, struct job *j, float *logits, const uint64_t *allowed)
{
    struct engine_rows *s = &en->rows;
    ASSERT(s->count < engine_rows_max(&en->opts));
    size_t at = (size_t)s->count * s->blocks;
    return (struct engine_row){
        j,
        {logits, en->shape->vocab, en->valid_ids, allowed},
        {.most = s->most + at, .weights = s->weights + at, .bins = s->bins + (size_t)s->count * SAMPLER_BINS},
        engine_sampled_of(en, logits)};
}

/* The plan's i-th sequence samples from the last of its rows of logits, with draft tokens from each. */
static void add_rows(struct engine *en, const struct sched_step_seq *r, uint32_t i, uint32_t count)
{
    struct engine_rows *s = &en->rows;
    struct job *j = job_of(r->seq);
    uint32_t from = r->drafts > 0 ? 0 : count - 1;
    s->first[i] = s->count;
    for (uint32_t k = from; k < count; k++) {
        ASSERT(s->count < engine_rows_max(&en->opts));
        s->list[s->count] =
            row_of(en, j, s->begin[i] + (size_t)k * en->shape->vocab, engine_mask_bits(en, j, k - from));
        s->whole += !s->list[s->count].sampled;
        s->count++;
    }
}

static void find_rows(struct engine *en, const struct sched_plan *plan)
{
    float *logits = en->logits;
    en->rows.count = en->rows.whole = 0;
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        const struct job *j = job_of(r->seq);
        ASSERT(en->seqs[i].logits_from <= en->seqs[i].token_count);
        uint32_t count = en->seqs[i].token_count - en->seqs[i].logits_from;
        en->rows.begin[i] = logits;
        if (j->output == JOB_VECTOR)
            continue;
        logits += (size_t)count * en->shape->vocab;
        if (j->output == JOB_TOKENS && r->samples)
            add_rows(en, r, i, count);
    }
}

/* A ticket is several blocks of a row, since one takes less time than handing it to a worker. */
static uint32_t tickets_of_row(const struct engine *en)
{
    ASSERT(en->rows.blocks > 0);
    return DIV_UP(en->rows.blocks, BLOCKS_EACH);
}

/* Returns the row of ticket i, and the row's blocks [*from, *until). */
static struct engine_row *row_of_ticket(struct engine *en, uint32_t i, uint32_t *from, uint32_t *until)
{
    ASSERT(i < en->rows.count * tickets_of_row(en));
    *from = i % tickets_of_row(en) * BLOCKS_EACH;
    *until = MIN_OF(*from + BLOCKS_EACH, en->rows.blocks);
    return &en->rows.list[i / tickets_of_row(en)];
}

static void ready_blocks(void *arg, uint32_t i)
{
    uint32_t from, until;
    struct engine_row *row = row_of_ticket(arg, i, &from, &until);
    for (uint32_t k = from; k < until && !row->sampled; k++)
        row->blocks.most[k] = sampler_ready(row->job->sampler, &row->logits, k);
}

static void weigh_blocks(void *arg, uint32_t i)
{
    uint32_t from, until;
    struct engine_row *row = row_of_ticket(arg, i, &from, &until);
    if (row->blocks.weighed)
        sampler_weigh(row->job->sampler, &row->logits, &row->blocks, from, until);
}

/* How many rows are to be weighed. */
static uint32_t begin_weighing(struct engine *en)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < en->rows.count; i++) {
        struct engine_row *row = &en->rows.list[i];
        row->blocks.weighed = !row->sampled && sampler_weighs(row->job->sampler, row->logits.allowed);
        if (!row->blocks.weighed)
            continue;
        memset(row->blocks.bins, 0, SAMPLER_BINS * sizeof(row->blocks.bins[0]));
        count++;
    }
    return count;
}

void engine_rows_ready(struct engine *en, const struct sched_plan *plan)
{
    find_rows(en, plan);
    uint32_t tickets = en->rows.count * tickets_of_row(en);
    if (en->rows.whole == 0)
        return;
    if ((uint64_t)en->rows.whole * en->shape->vocab < LOGITS_FEW) {
        for (uint32_t i = 0; i < tickets; i++)
            ready_blocks(en, i);
        return;
    }
    engine_share(en, ready_blocks, tickets);
    if (begin_weighing(en) > 0)
        engine_share(en, weigh_blocks, tickets);
}
