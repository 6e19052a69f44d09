/* engine_draft.c - speculative decoding (spec/drafting.h) for the engine's sequences: which of them decode,
 * how many draft tokens each has room for, and the MTP head on their pages and states. The draft model is in
 * engine_draft_model.c. */
#include "engine/engine_state.h"

#include "base/check.h"
#include "model/model.h"

_Static_assert(DRAFT_LENGTH_DEPTH_MAX == MODEL_DRAFTS_MAX,
               "the draft length, the drafters and the model have one bound");
_Static_assert(DRAFT_LENGTH_DRAFTS_MAX >= ENGINE_DRAFTS_MAX, "the draft length handles all drafts of a step");

/* The scheduler applies its part of this again, and the limit of a step. */
static uint32_t room_of(const struct job *j)
{
    uint32_t in_stream = job_free_tokens(j);
    return MIN_OF(sched_drafts_max(&j->seq), in_stream ? in_stream - 1 : 0);
}

/* Time of a grammar for one token, in nanoseconds. A sequence whose grammar takes longer has no draft tokens:
 * each needs a mask of its own. */
#define MATCH_DRAFTS_NS 2000000

/* `before`: the draft tokens of its last step. */
static uint32_t most_drafts(const struct drafting *g, const struct job *j, uint32_t before)
{
    bool slow = j->seq.match_last_ns > MATCH_DRAFTS_NS * (uint64_t)(1 + before);
    return j->draft.speculative && !slow ? MIN_OF(room_of(j), g->opts.drafts_max) : 0;
}

uint32_t engine_draft_allow(struct engine *en)
{
    struct drafting *g = &en->drafting;
    if (g->opts.drafts_max == 0)
        return 0;
    drafting_begin(g);
    engine_draft_model_begin(en);
    LIST_EACH(it, &en->jobs) {
        struct job *j = LIST_ENTRY(it, struct job, link);
        uint32_t before = j->seq.drafts;
        j->seq.drafts = 0;
        if (j->seq.phase != SCHED_DECODING || j->seq.paused)
            continue;
        uint32_t room = most_drafts(g, j, before);
        if (en->draft_model.model) {
            engine_draft_model_see(en, j);
            room = MIN_OF(room, engine_draft_model_drafts_max(en, j));
        }
        j->draft.forced = engine_mask_forced(j, j->seq.tokens, room);
        drafting_add(g, &j->draft, j->seq.tokens, room, &j->seq.drafts);
    }
    return drafting_choose(g);
}

/* Draft tokens that a grammar does not allow are not computed. */
static void drop_forbidden(struct engine *en, struct job *j, struct drafting_row *row)
{
    uint32_t allowed = engine_mask_drafts(j, j->tokens + row->from + 1, row->computed);
    ASSERT(allowed <= row->computed);
    en->drafting.computed -= row->computed - allowed;
    row->computed = allowed;
}

int engine_draft(struct engine *en, const struct sched_plan *plan)
{
    ASSERT(plan->seq_count <= en->opts.max_num_seqs);
    struct drafting_row *rows = en->drafting.rows;
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        rows[i] = (struct drafting_row){&job_of(r->seq)->draft, r->from, .drafts = r->drafts};
    }
    int r = en->draft_model.model ? engine_draft_model_read(en, plan) : 0;
    if (r == 0)
        r = drafting_draft(&en->drafting, plan->seq_count);
    for (uint32_t i = 0; r == 0 && i < plan->seq_count; i++)
        drop_forbidden(en, job_of(plan->seqs[i].seq), &rows[i]);
    for (uint32_t i = 0; r == 0 && i < plan->seq_count; i++)
        en->seqs[i].token_count -= rows[i].drafts - rows[i].computed;
    return r;
}

/* For drafting_port: the head, or the draft model. The rows are the plan's. */
static int draft_by_passes(void *arg, const struct drafting_row *rows, uint32_t count)
{
    struct engine *en = arg;
    ASSERT(count <= en->opts.max_num_seqs);
    uint32_t heads = 0;
    if (en->draft_model.model)
        return engine_draft_model_draft(en, rows, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sched_step_seq *r = &en->pass.plan.seqs[i];
        const struct job *j = job_of(r->seq);
        if (rows[i].passes == 0)
            continue;
        en->heads[heads] = (struct model_draft_seq){.token = j->tokens[r->from],
                                                    .position = r->from,
                                                    .state = r->state_in,
                                                    .pending = pools_pending(&en->pools, r->state_in),
                                                    .grids = j->grids,
                                                    .grid_count = j->image_count,
                                                    .count = rows[i].passes,
                                                    .drafts = j->tokens + r->from + 1};
        sched_tables(r->seq, en->heads[heads++].pages);
    }
    struct model_draft d = {.seqs = en->heads,
                            .seq_count = heads,
                            .states = en->pools.state_base,
                            .valid_ids = en->valid_ids,
                            .stop = &en->closing};
    memcpy(d.pages, en->pools.page_base, sizeof(d.pages));
    model_draft_begin(en->opts.model, &d);
    return model_draft_end(en->opts.model);
}

int engine_draft_init(struct engine *en)
{
    const struct engine_faults *f = en->opts.faults;
    uint32_t seqs = en->opts.max_num_seqs;
    struct drafting_port port = {.head = draft_by_passes, .arg = en};
    if (f) {
        port.draft = f->draft;
        port.draft_arg = f->arg;
    }
    return drafting_init(&en->drafting, en->arena, &en->opts.drafting, &port, seqs,
                         engine_drafts_max(seqs, en->opts.drafting.drafts_max));
}
