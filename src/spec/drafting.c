/* drafting.c - connects draft length and drafters with the caller's sequences.
 *
 * The room for a draft is known before the plan: the rest of the page of the last known token, of the
 * sequence and of its stream. The plan may have less room, and so may the limit of a step. */
#include "spec/drafting.h"

#include "spec/ngram.h"

#include "base/check.h"
#include "base/clock.h"

#include <errno.h>

static size_t seq_bytes(void)
{
    return sizeof(struct draft_length_seq) + sizeof(struct drafting_seq *) + sizeof(uint32_t *) +
           sizeof(struct drafting_row);
}

size_t drafting_arena_bytes(uint32_t seqs_max)
{
    return seqs_max * seq_bytes() + 4 * (size_t)64;
}

int drafting_init(struct drafting *g, struct arena *a, const struct drafting_opts *opts,
                  const struct drafting_port *port, uint32_t seqs_max, uint32_t drafts_max)
{
    ASSERT(opts->drafts_max <= DRAFT_LENGTH_DEPTH_MAX && drafts_max <= DRAFT_LENGTH_DRAFTS_MAX);
    *g = (struct drafting){.opts = *opts, .port = *port, .seqs_max = seqs_max, .drafts_max = drafts_max};
    g->seqs = ARENA_ARRAY(a, struct draft_length_seq, seqs_max);
    g->adding = ARENA_ARRAY(a, struct drafting_seq *, seqs_max);
    g->drafts = ARENA_ARRAY(a, uint32_t *, seqs_max);
    g->rows = ARENA_ARRAY(a, struct drafting_row, seqs_max);
    return g->seqs && g->adding && g->drafts && g->rows ? 0 : -ENOMEM;
}

/* ---- before the plan ---- */

static uint32_t draft_from_past(const struct drafting *g, const struct drafting_seq *seq, uint32_t known,
                                uint32_t wanted)
{
    uint32_t *to = seq->tokens + known;
    if (g->port.draft)
        return g->port.draft(g->port.draft_arg, seq->tokens, known, wanted, to);
    return seq->ngram ? ngram_draft(seq->ngram, seq->tokens, wanted, to) : 0;
}

/* Draft tokens that exist before the plan, or the most that the head may draft. */
static uint32_t prepare(const struct drafting *g, struct drafting_seq *seq, uint32_t known, uint32_t wanted)
{
    uint32_t count;
    if (wanted == 0)
        return 0;
    if (seq->forced > 0) {
        seq->source = DRAFT_FORCED;
        return MIN_OF(seq->forced, wanted);
    }
    if (g->opts.by == DRAFTING_NGRAM)
        return draft_from_past(g, seq, known, wanted);
    if (!g->opts.past || wanted < 2 || (count = draft_from_past(g, seq, known, wanted)) < 2)
        return wanted;
    seq->source = DRAFT_PAST;
    seq->past_first = seq->tokens[known];
    return count;
}

void drafting_begin(struct drafting *g)
{
    g->count = 0;
}

void drafting_add(struct drafting *g, struct drafting_seq *seq, uint32_t known, uint32_t room,
                  uint32_t *drafts)
{
    ASSERT(g->count < g->seqs_max);
    struct draft_length_seq *s = &g->seqs[g->count];
    seq->source = DRAFT_DRAFTER;
    seq->trial = seq->trial && seq->lags;
    seq->wanted = seq->trial;
    s->drafts_max = seq->speculative ? prepare(g, seq, known, MIN_OF(room, g->opts.drafts_max)) : 0;
    s->source = seq->source;
    s->hits = &seq->hits[seq->source];
    ASSERT(s->drafts_max <= MIN_OF(room, g->opts.drafts_max));
    g->adding[g->count] = seq;
    g->drafts[g->count++] = drafts;
}

/* Returns the draft tokens of one sequence: none if it lags. A trial lets the draft model read for one
 * sequence, until it does not lag. */
static uint32_t chosen(const struct drafting *g, uint32_t i, bool *tries)
{
    struct drafting_seq *seq = g->adding[i];
    uint32_t drafts = g->opts.always ? g->seqs[i].drafts_max : g->seqs[i].drafts;
    if (!seq->lags || seq->source == DRAFT_FORCED || drafts == 0)
        return drafts;
    ASSERT(g->opts.by == DRAFTING_MODEL);
    enum draft_length_reading reads =
        g->opts.always ? DRAFT_LENGTH_READ : draft_length_reads(&g->draft_length);
    seq->trial = seq->trial || (reads == DRAFT_LENGTH_READ_TRIAL && !*tries);
    seq->wanted = seq->trial || reads == DRAFT_LENGTH_READ;
    *tries = *tries || seq->trial;
    return 0;
}

uint32_t drafting_choose(struct drafting *g)
{
    uint32_t may = 0, sum = 0;
    bool tries = false;
    for (uint32_t i = 0; i < g->count; i++)
        may += g->seqs[i].drafts_max;
    if (may == 0)
        return 0;
    if (!g->opts.always)
        draft_length_choose(&g->draft_length, g->seqs, g->count, g->drafts_max);
    for (uint32_t i = 0; i < g->count; i++)
        sum += *g->drafts[i] = chosen(g, i, &tries);
    return MIN_OF(sum, g->drafts_max);
}

/* ---- after the plan ---- */

static int draft_with_head(struct drafting *g, uint32_t count)
{
    uint32_t drafting = 0, deepest = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct drafting_row *row = &g->rows[i];
        row->passes = row->drafts;
        if (row->seq->source != DRAFT_DRAFTER)
            row->passes = row->seq->source == DRAFT_PAST ? MIN_OF(row->drafts, 1u) : 0;
        drafting += row->passes > 0;
        deepest = MAX_OF(deepest, row->passes);
    }
    if (drafting == 0)
        return 0;
    uint64_t began_ns = clock_now_ns();
    int r = g->port.head(g->port.arg, g->rows, count);
    if (r == 0)
        draft_length_measure_draft(&g->draft_length, drafting, deepest, clock_now_ns() - began_ns);
    return r;
}

/* Drops n-gram drafts whose first token differs from the head's. */
static void drop_pasts(struct drafting *g, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct drafting_row *row = &g->rows[i];
        uint32_t gone = row->drafts > 1 ? row->drafts - 1 : 0;
        if (row->seq->source != DRAFT_PAST || row->seq->tokens[row->from + 1] == row->seq->past_first)
            continue;
        ASSERT(row->computed >= gone && g->computed >= gone);
        row->computed -= gone;
        g->computed -= gone;
    }
}

int drafting_draft(struct drafting *g, uint32_t count)
{
    ASSERT(count <= g->seqs_max);
    g->planned = 0;
    for (uint32_t i = 0; i < count; i++)
        g->planned += g->rows[i].computed = g->rows[i].drafts;
    g->computed = g->planned;
    if (g->planned == 0 || !drafting_has_passes(g->opts.by))
        return 0;
    int r = draft_with_head(g, count);
    if (r == 0)
        drop_pasts(g, count);
    return r;
}

/* ---- after the step ---- */

void drafting_count(struct drafting *g, uint32_t index, uint32_t planned, uint32_t accepted, bool ended,
                    bool learns)
{
    struct drafting_numbers *n = &g->now;
    struct drafting_seq *seq = g->rows[index].seq;
    uint32_t count = g->rows[index].computed;
    ASSERT(accepted <= count && accepted <= COUNT_OF(n->accepted_at));
    /* Tokens after a rejected one, or after the end of the answer, were not verified. N-gram drafts that
     * the head rejected count as rejected. */
    uint32_t tried = ended ? accepted : MIN_OF(planned, accepted + 1);
    if (learns && seq->speculative)
        draft_length_count(&g->draft_length, &seq->hits[seq->source], seq->source, tried, accepted);
    if (count == 0)
        return;
    n->drafts++;
    n->draft_tokens += count;
    n->accepted_tokens += accepted;
    for (uint32_t i = 0; i < accepted; i++)
        n->accepted_at[i]++;
    seq->drafted_tokens += count;
    seq->accepted_tokens += accepted;
}

void drafting_caught_up(struct drafting *g, bool trial, uint64_t ns)
{
    ASSERT(g->opts.by == DRAFTING_MODEL);
    draft_length_caught_up(&g->draft_length, trial, ns);
}

void drafting_measure(struct drafting *g, uint32_t tokens, uint32_t decoding, uint64_t ns)
{
    ASSERT(g->computed <= g->planned);
    if (g->opts.drafts_max > 0 && decoding > 0 && tokens == decoding + g->planned)
        draft_length_measure_step(&g->draft_length, decoding, g->computed, ns);
}
