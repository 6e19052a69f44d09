/* engine_tops.c - rows of logits of which the step's device gives the host only the best tokens.
 *
 * Most draws need no more: then a row of 600 KB stays on the device, and the draw takes microseconds. The
 * draw says when a list does not suffice. Then the row is fetched, and the token is the same. Bound: 8 KiB
 * for each row of a step, pinned; only with a device that has `tops`. */
#include "engine/engine_state.h"

#include <errno.h>

/* Draws from whole rows after a list did not suffice: the next ones seldom do. */
#define WHOLE_AFTER 16u
/* Of a row that was not to have a list. */
#define NOT_WANTED UINT32_MAX

static uint32_t rows_max(const struct engine_opts *o, const struct model_shape *s)
{
    return s->tops && !s->both_ways ? engine_logits_max(o->max_num_seqs, o->drafting.drafts_max) : 0;
}

size_t engine_tops_bytes(const struct engine_opts *o, const struct model_shape *s)
{
    return rows_max(o, s) * (sizeof(struct row_want) + sizeof(struct row_top)) + 2 * 64;
}

int engine_tops_init(struct engine *en)
{
    struct engine_tops *t = &en->tops;
    uint32_t rows = rows_max(&en->opts, en->shape);
    if (rows == 0)
        return 0;
    t->wants = ARENA_ARRAY(en->arena, struct row_want, rows);
    t->list = ARENA_ARRAY(en->arena, struct row_top, rows);
    if (!t->wants || !t->list)
        return -ENOMEM;
    device_pin(en->opts.device, t->list, rows * sizeof(t->list[0]));
    return 0;
}

void engine_tops_done(struct engine *en)
{
    if (en->tops.list)
        device_unpin(en->opts.device, en->tops.list);
}

static struct row_want want_of(struct job *j, const struct sched_step_seq *r)
{
    struct row_want want = {0};
    if (j->output != JOB_TOKENS || !r->samples || job_wants_prompt_logits(j) || j->matcher)
        return want;
    if (j->whole_rows > 0)
        j->whole_rows--;
    else
        sampler_wants(j->sampler, j->output_count, ROW_TOP_MAX, &want.count, &want.temperature);
    return want;
}

void engine_tops_begin(struct engine *en, const struct sched_plan *plan, struct model_step *step)
{
    struct engine_tops *t = &en->tops;
    bool some = false;
    t->count = 0;
    for (uint32_t i = 0; i < plan->seq_count && t->list; i++) {
        const struct model_seq *seq = &en->seqs[i];
        struct row_want want = want_of(job_of(plan->seqs[i].seq), &plan->seqs[i]);
        for (uint32_t k = seq->logits_from; k < seq->token_count && !seq->values; k++) {
            t->list[t->count].count = want.count > 0 ? 0 : NOT_WANTED;
            t->wants[t->count++] = want;
        }
        some |= want.count > 0;
    }
    if (!some)
        return;
    step->wants = t->wants;
    step->tops = t->list;
    step->valid_ids = en->valid_ids;
}

int engine_tops_end(struct engine *en)
{
    int r = 0;
    for (uint32_t i = 0; i < en->tops.count && r == 0; i++)
        if (en->tops.list[i].count == 0)
            r = model_row(en->opts.model, i);
    return r;
}

const struct row_top *engine_tops_of(const struct engine *en, const float *logits)
{
    uint32_t row = (uint32_t)((size_t)(logits - en->logits) / en->shape->vocab);
    const struct row_top *top = row < en->tops.count ? &en->tops.list[row] : NULL;
    return top && top->count > 0 && top->count != NOT_WANTED ? top : NULL;
}

int engine_tops_draw(struct engine *en, struct job *j, const struct engine_row *from, uint32_t position,
                     uint32_t outputs, struct sampled *ret)
{
    const struct sampler_best best = {.list = from->top->list,
                                      .count = from->top->count,
                                      .vocab = en->shape->vocab,
                                      .mass = from->top->mass,
                                      .error = ROW_TOP_ERROR};
    if (sampler_draw_best(j->sampler, en->scratch, &best, position, outputs, ret))
        return 0;
    j->whole_rows = WHOLE_AFTER;
    int r = model_row(en->opts.model, (uint32_t)(from->top - en->tops.list));
    if (r == 0)
        sampler_draw(j->sampler, en->scratch, from->logits.logits, en->shape->vocab, en->valid_ids, position,
                     outputs, ret);
    else
        engine_fail(en, r);
    return r;
}
