/* engine_rows.c - the rows of logits that a step draws from, made ready block by block.
 *
 * A draw reads its whole row of logits, and the rows of a step are drawn one after the other. What does not
 * depend on an earlier draw is done for all rows before: ids that cannot be drawn are masked, and each block
 * says its largest logit. The process's workers do that where no other engine has its turn. */
#include "engine/engine_state.h"

#include "base/check.h"

#include <errno.h>

/* Fewer logits than these take less time than waking workers. */
#define LOGITS_FEW  65536u
#define BLOCKS_EACH 8u

size_t engine_rows_bytes(const struct engine_opts *o, uint32_t vocab)
{
    size_t blocks = DIV_UP(vocab, SAMPLER_BLOCK);
    return engine_rows_max(o) * (sizeof(struct engine_row) + blocks * sizeof(float)) +
           o->max_num_seqs * (sizeof(uint32_t) + sizeof(float *)) + 4 * 64;
}

int engine_rows_init(struct engine *en)
{
    struct engine_rows *s = &en->rows;
    uint32_t rows = engine_rows_max(&en->opts);
    s->blocks = DIV_UP(en->shape->vocab, SAMPLER_BLOCK);
    s->list = ARENA_ARRAY(en->arena, struct engine_row, rows);
    s->most = arena_alloc_array(en->arena, (size_t)rows * s->blocks, sizeof(float));
    s->first = ARENA_ARRAY(en->arena, uint32_t, en->opts.max_num_seqs);
    s->begin = ARENA_ARRAY(en->arena, float *, en->opts.max_num_seqs);
    return s->list && s->most && s->first && s->begin ? 0 : -ENOMEM;
}

/* The plan's i-th sequence draws from the last of its rows of logits, with draft tokens from each. */
static void add_rows(struct engine *en, const struct sched_step_seq *r, uint32_t i, uint32_t count)
{
    struct engine_rows *s = &en->rows;
    struct job *j = job_of(r->seq);
    uint32_t from = r->drafts > 0 ? 0 : count - 1;
    s->first[i] = s->count;
    for (uint32_t k = from; k < count; k++) {
        ASSERT(s->count < engine_rows_max(&en->opts));
        s->list[s->count++] = (struct engine_row){j, s->begin[i] + (size_t)k * en->shape->vocab,
                                                  engine_mask_bits(en, j, k - from)};
    }
}

static void find_rows(struct engine *en, const struct sched_plan *plan)
{
    float *logits = en->logits;
    en->rows.count = 0;
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        const struct job *j = job_of(r->seq);
        uint32_t count = en->seqs[i].token_count - en->seqs[i].logits_from;
        en->rows.begin[i] = logits;
        if (j->output == JOB_VECTOR)
            continue;
        logits += (size_t)count * en->shape->vocab;
        if (j->output == JOB_TOKENS && r->samples)
            add_rows(en, r, i, count);
    }
}

/* A ticket is several blocks of a row: one takes less time than handing it to a worker. */
static uint32_t tickets_of_row(const struct engine *en)
{
    return DIV_UP(en->rows.blocks, BLOCKS_EACH);
}

static void ready_blocks(void *arg, uint32_t i)
{
    struct engine *en = arg;
    const uint32_t index = i / tickets_of_row(en), from = i % tickets_of_row(en) * BLOCKS_EACH;
    const struct engine_row *row = &en->rows.list[index];
    float *most = en->rows.most + (size_t)index * en->rows.blocks;
    for (uint32_t k = from; k < MIN_OF(from + BLOCKS_EACH, en->rows.blocks); k++)
        most[k] =
            sampler_ready(row->job->sampler, row->logits, en->shape->vocab, en->valid_ids, row->allowed, k);
}

void engine_rows_ready(struct engine *en, const struct sched_plan *plan)
{
    find_rows(en, plan);
    uint32_t tickets = en->rows.count * tickets_of_row(en);
    if ((uint64_t)en->rows.count * en->shape->vocab >= LOGITS_FEW)
        engine_share(en, ready_blocks, tickets);
    else
        for (uint32_t i = 0; i < tickets; i++)
            ready_blocks(en, i);
}
