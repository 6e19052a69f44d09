/* drafting.c - connects scheduler, draft length and drafters.
 *
 * The room for a draft is known before the plan: the rest of the page of the last known token, of the
 * sequence and of its stream. The scheduler applies the first two again, and the limit of a step. */
#include "engine/drafting.h"

#include "engine/engine_state.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

_Static_assert(DRAFT_LENGTH_DEPTH_MAX == MODEL_DRAFTS_MAX,
               "one depth for who weighs, who drafts and who computes");
_Static_assert(DRAFT_LENGTH_DRAFTS_MAX >= ENGINE_DRAFTS_MAX, "a step's drafts can be weighed");

static size_t seq_bytes(void)
{
    return sizeof(struct draft_length_seq) + sizeof(struct sched_seq *) + sizeof(struct model_draft_seq) +
           2 * sizeof(uint32_t);
}

size_t drafting_arena_bytes(uint32_t seqs_max)
{
    return seqs_max * seq_bytes() + 5 * (size_t)64;
}

int drafting_init(struct engine *en)
{
    uint32_t seqs = en->opts.max_num_seqs;
    struct drafting *g = &en->drafting;
    g->seqs = ARENA_ARRAY(en->arena, struct draft_length_seq, seqs);
    g->of = ARENA_ARRAY(en->arena, struct sched_seq *, seqs);
    g->heads = ARENA_ARRAY(en->arena, struct model_draft_seq, seqs);
    g->counts = ARENA_ARRAY(en->arena, uint32_t, seqs);
    g->sampled = ARENA_ARRAY(en->arena, uint32_t, seqs);
    return g->seqs && g->of && g->heads && g->counts && g->sampled ? 0 : -ENOMEM;
}

/* ---- before the plan ---- */

static uint32_t room_of(const struct engine *en, const struct job *j)
{
    uint32_t in_stream = job_room(j), room = MIN_OF(sched_drafts_max(&j->seq), in_stream ? in_stream - 1 : 0);
    return MIN_OF(room, en->opts.drafting.drafts_max);
}

static uint32_t draft_from_past(struct engine *en, struct job *j, uint32_t wanted)
{
    const struct engine_faults *f = en->opts.faults;
    uint32_t known = j->seq.tokens;
    if (f && f->draft)
        return f->draft(f->arg, j->tokens, known, wanted, j->tokens + known);
    return j->ngram ? ngram_draft(j->ngram, j->tokens, wanted, j->tokens + known) : 0;
}

/* Draft tokens that exist before the plan, or the most that the head may draft. */
static uint32_t prepare(struct engine *en, struct job *j)
{
    uint32_t wanted = room_of(en, j), count;
    if (wanted == 0)
        return 0;
    if (en->opts.drafting.by == ENGINE_DRAFTER_NGRAM)
        return draft_from_past(en, j, wanted);
    if (!en->opts.drafting.past || wanted < 2 || (count = draft_from_past(en, j, wanted)) < 2)
        return wanted;
    j->past = true;
    j->past_first = j->tokens[j->seq.tokens];
    return count;
}

static bool decodes(const struct job *j)
{
    return j->seq.phase == SCHED_DECODING && !j->seq.paused;
}

uint32_t drafting_allow(struct engine *en)
{
    const struct engine_drafting *how = &en->opts.drafting;
    struct drafting *g = &en->drafting;
    uint32_t count = 0, sum = 0, may = 0, most = engine_drafts_max(en->opts.max_num_seqs, how->drafts_max);
    if (how->drafts_max == 0)
        return 0;
    LIST_EACH(it, &en->jobs) {
        struct job *j = LIST_ENTRY(it, struct job, link);
        j->seq.drafts = 0;
        j->past = false;
        if (!decodes(j))
            continue;
        g->of[count] = &j->seq;
        g->seqs[count].drafts_max = j->speculative ? prepare(en, j) : 0;
        g->seqs[count].past = j->past;
        g->seqs[count].hits = j->past ? &j->past_hits : &j->hits;
        may += g->seqs[count++].drafts_max;
    }
    if (may == 0)
        return 0;
    if (!how->always)
        draft_length_choose(&g->draft_length, g->seqs, count, most);
    for (uint32_t i = 0; i < count; i++)
        sum += g->of[i]->drafts = how->always ? g->seqs[i].drafts_max : g->seqs[i].drafts;
    return MIN_OF(sum, most);
}

/* ---- after the plan ---- */

static int draft_with_head(struct engine *en, const struct sched_plan *plan)
{
    struct drafting *g = &en->drafting;
    uint32_t count = 0, deepest = 0;
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        struct job *j = job_of(r->seq);
        uint32_t passes = j->past ? MIN_OF(r->drafts, 1u) : r->drafts;
        if (passes == 0)
            continue;
        g->heads[count++] = (struct model_draft_seq){.token = j->tokens[r->from],
                                                     .position = r->from,
                                                     .pages = r->seq->pages[0],
                                                     .state = r->state_in,
                                                     .pending = pools_pending(&en->pools, r->state_in),
                                                     .grids = j->grids,
                                                     .grid_count = j->image_count,
                                                     .count = passes,
                                                     .drafts = j->tokens + r->from + 1};
        deepest = MAX_OF(deepest, passes);
    }
    struct model_draft d = {.seqs = g->heads,
                            .seq_count = count,
                            .pages = en->pools.page_base,
                            .states = en->pools.state_base,
                            .valid_ids = en->valid_ids,
                            .stop = &en->closing};
    uint64_t began_ns = clock_now_ns();
    model_draft_begin(en->opts.model, &d);
    int r = model_draft_end(en->opts.model);
    if (r == 0)
        draft_length_measure_draft(&g->draft_length, count, deepest, clock_now_ns() - began_ns);
    return r;
}

/* Drops n-gram drafts whose first token differs from the head's. */
static void drop_pasts(struct engine *en, const struct sched_plan *plan)
{
    struct drafting *g = &en->drafting;
    for (uint32_t i = 0; i < plan->seq_count; i++) {
        const struct sched_step_seq *r = &plan->seqs[i];
        struct job *j = job_of(r->seq);
        uint32_t gone = r->drafts > 1 ? r->drafts - 1 : 0;
        if (!j->past || j->tokens[r->from + 1] == j->past_first)
            continue;
        g->counts[i] -= gone;
        g->computed -= gone;
        en->seqs[i].token_count -= gone;
    }
}

int drafting_draft(struct engine *en, const struct sched_plan *plan)
{
    struct drafting *g = &en->drafting;
    g->planned = 0;
    for (uint32_t i = 0; i < plan->seq_count; i++)
        g->planned += g->counts[i] = plan->seqs[i].drafts;
    g->computed = g->planned;
    if (g->planned == 0 || en->opts.drafting.by != ENGINE_DRAFTER_MTP)
        return 0;
    int r = draft_with_head(en, plan);
    if (r == 0)
        drop_pasts(en, plan);
    return r;
}

/* ---- after the step ---- */

void drafting_count(struct engine *en, struct job *j, uint32_t index, uint32_t planned, uint32_t right,
                    bool ended)
{
    struct engine_numbers *n = &en->now;
    uint32_t count = en->drafting.counts[index];
    /* Tokens after a rejected one, or after the end of the answer, were not verified. N-gram drafts that
     * the head rejected count as rejected. */
    uint32_t tried = ended ? right : MIN_OF(planned, right + 1);
    if (j->seq.phase == SCHED_DECODING && j->speculative)
        draft_length_count(&en->drafting.draft_length, j->past ? &j->past_hits : &j->hits, j->past, tried,
                           right);
    if (count == 0)
        return;
    n->drafts++;
    n->draft_tokens += count;
    n->accepted_tokens += right;
    for (uint32_t i = 0; i < right; i++)
        n->accepted_at[i]++;
    j->drafted_tokens += count;
    j->accepted_tokens += right;
}

void drafting_measure(struct engine *en, const struct sched_plan *plan, uint32_t decoding, uint64_t ns)
{
    struct drafting *g = &en->drafting;
    if (en->opts.drafting.drafts_max > 0 && decoding > 0 && plan->tokens == decoding + g->planned)
        draft_length_measure_step(&g->draft_length, decoding, g->computed, ns);
}
