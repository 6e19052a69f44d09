/* engine_samples.c - rows of logits from which the step's device samples.
 *
 * A row of 600 KB stays on the device, and the host gets the token. What a sample needs is known when the
 * step begins, but for grammars' masks, which are made beside the step: orders are written when masks are
 * there. The host gets a row and samples from it
 *  - for prompt_logprobs, logits and vectors of a job without tokens;
 *  - for logprobs of tokens that a budget of reasoning may force, or of drafts that are accepted unseen;
 *  - where the edits of a step have no room, or logit_bias names an id twice;
 *  - where a step has more rows of logits than max_num_seqs;
 *  - where the device leaves it to the host.
 * The token is the same. Bound: ROW_EDITS_EACH edits for each sequence, pinned. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "compute/row_top.h"
#include "model/model.h"

#include <errno.h>
#include <string.h>

static uint32_t rows_max(const struct engine_opts *o, const struct model_shape *s)
{
    return s->samples && !s->both_ways ? engine_logits_max(o->max_num_seqs, o->drafting.drafts_max) : 0;
}

static size_t edits_max(const struct engine_opts *o)
{
    return (size_t)o->max_num_seqs * ROW_EDITS_EACH;
}

/* Side by side, each with the alignment of the arena. */
static size_t pinned_bytes(const struct engine_opts *o, const struct model_shape *s, struct engine_samples *t,
                           char *at)
{
    size_t rows = rows_max(o, s), used = 0;
    const struct {
        void *place;
        size_t bytes;
    } parts[] = {{&t->rows, rows * sizeof(*t->rows)},
                 {&t->sampled, rows * sizeof(*t->sampled)},
                 {&t->tops, rows * sizeof(*t->tops)},
                 {&t->edits, edits_max(o) * sizeof(*t->edits)}};
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        char *here = at ? at + used : NULL;
        if (at)
            memcpy(parts[i].place, &here, sizeof(here));
        used += ROUND_UP(parts[i].bytes, (size_t)64);
    }
    return rows > 0 ? used : 0;
}

size_t engine_samples_bytes(const struct engine_opts *o, const struct model_shape *s)
{
    struct engine_samples t;
    return pinned_bytes(o, s, &t, NULL) + 64;
}

int engine_samples_init(struct engine *en)
{
    struct engine_samples *t = &en->samples;
    size_t bytes = pinned_bytes(&en->opts, en->shape, t, NULL);
    if (bytes == 0)
        return 0;
    t->pinned = arena_alloc(en->arena, bytes);
    if (!t->pinned)
        return -ENOMEM;
    (void)pinned_bytes(&en->opts, en->shape, t, t->pinned);
    device_pin(en->opts.device, t->pinned, bytes);
    return 0;
}

void engine_samples_done(struct engine *en)
{
    if (en->samples.pinned)
        device_unpin(en->opts.device, en->samples.pinned);
}

/* Whether the device may sample the tokens of a sequence of the plan. */
static bool may_sample(const struct engine *en, const struct job *j, const struct sched_step_seq *r)
{
    bool keeps = engine_think_is_on(&j->think) || (en->opts.drafting.optimistic && r->drafts > 0);
    return j->output == JOB_TOKENS && r->samples && !job_wants_prompt_logits(j) && !(j->logprobs && keeps);
}

void engine_samples_begin(struct engine *en, const struct sched_plan *plan, struct model_step *step)
{
    struct engine_samples *t = &en->samples;
    bool some = false;
    t->count = 0;
    for (uint32_t i = 0; i < plan->seq_count && t->pinned; i++) {
        const struct model_seq *seq = &en->seqs[i];
        bool wanted = may_sample(en, job_of(plan->seqs[i].seq), &plan->seqs[i]);
        for (uint32_t k = seq->logits_from; k < seq->token_count && !seq->values; k++)
            t->rows[t->count++] = (struct row_sample){.wanted = wanted};
        some |= wanted;
    }
    ASSERT(t->count <= rows_max(&en->opts, en->shape));
    if (!some || t->count > en->opts.max_num_seqs) {
        t->count = 0;
        return;
    }
    t->step = (struct row_samples){.rows = t->rows, .edits = t->edits, .sampled = t->sampled};
    step->samples = &t->step;
    step->tops = t->tops;
    step->valid_ids = en->valid_ids;
}

/* The mask of the row after `accepted` draft tokens: its grammar's, or one of its own for allowed_token_ids.
 * False: there is no room for that. */
static bool set_mask(struct engine *en, struct job *j, uint32_t accepted, struct row_sample *d)
{
    struct engine_samples *t = &en->samples;
    const uint64_t *bits = engine_mask_bits(en, j, accepted);
    const size_t words = en->masks.words, row = t->step.mask_count;
    if (bits)
        d->mask = j->mask_row + accepted;
    if (!sampler_params_of(j->sampler)->only_biased)
        return true;
    if (row >= en->opts.max_num_seqs)
        return false;
    uint64_t *own = en->masks.bits + row * words;
    if (bits)
        memcpy(own, bits, words * sizeof(*own));
    else
        memset(own, 0xff, words * sizeof(*own));
    sampler_mask_biased(j->sampler, own, en->shape->vocab);
    d->mask = t->step.mask_count++;
    return true;
}

/* The order for the row after `accepted` draft tokens. False: the host samples. */
static bool order_row(struct engine *en, struct job *j, uint32_t accepted, struct row_sample *d)
{
    struct engine_samples *t = &en->samples;
    const uint32_t known = j->prompt_count + j->output_count, used = t->step.edit_count;
    const struct sampler_position at = {.position = known + accepted,
                                        .outputs = engine_mask_outputs(en, j, accepted),
                                        .drafts = j->tokens + known,
                                        .draft_count = accepted};
    if (!sampler_order(j->sampler, &at, en->shape->vocab, t->edits + used,
                       (uint32_t)(edits_max(&en->opts) - used), d) ||
        !set_mask(en, j, accepted, d))
        return false;
    d->wanted = 1;
    d->edits = used;
    t->step.edit_count = used + d->bias_count + d->banned_count + d->seen_count;
    ASSERT(t->step.edit_count <= edits_max(&en->opts));
    return true;
}

void engine_samples_order(struct engine *en, const struct sched_plan *plan)
{
    struct engine_samples *t = &en->samples;
    uint32_t row = 0;
    t->step.masks = en->masks.bits;
    t->step.mask_count = en->masks.count;
    for (uint32_t i = 0; i < plan->seq_count && t->count > 0; i++) {
        const struct model_seq *seq = &en->seqs[i];
        struct job *j = job_of(plan->seqs[i].seq);
        uint32_t count = seq->values ? 0 : seq->token_count - seq->logits_from;
        uint32_t drafts = en->drafting.rows[i].computed;
        for (uint32_t k = 0; k < count; k++, row++) {
            /* Drafts that are accepted unseen have one row, after all of them. */
            uint32_t accepted = count == 1 ? drafts : k;
            struct row_sample *d = &t->rows[row];
            if (d->wanted && (accepted > drafts || !order_row(en, j, accepted, d)))
                *d = (struct row_sample){0};
        }
    }
}

int engine_samples_end(struct engine *en)
{
    struct engine_samples *t = &en->samples;
    int r = 0;
    for (uint32_t i = 0; i < t->count && r == 0; i++) {
        if (t->sampled[i].state != ROW_LEFT && t->rows[i].wanted && t->tops[i].count < t->rows[i].tops)
            t->sampled[i].state = ROW_LEFT;
        if (t->rows[i].wanted && t->sampled[i].state == ROW_LEFT)
            r = model_row(en->opts.model, i);
    }
    return r;
}

const struct row_sampled *engine_sampled_of(const struct engine *en, const float *logits)
{
    ASSERT(logits >= en->logits);
    const struct engine_samples *t = &en->samples;
    uint32_t row = (uint32_t)((size_t)(logits - en->logits) / en->shape->vocab);
    bool sampled = row < t->count && t->rows[row].wanted && t->sampled[row].state != ROW_LEFT;
    return sampled ? &t->sampled[row] : NULL;
}
