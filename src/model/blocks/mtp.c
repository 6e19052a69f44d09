/* mtp.c - pairs, their K and V, and drafts.
 *
 * Drafting is a step of one token per sequence through the head's layer and lm_head, as often as the longest
 * draft is long. Between two of them the host reads the tokens of the first. */
#include "model/blocks/mtp.h"

#include "model/blocks/blocks.h"
#include "model/blocks/mrope.h"
#include "model/family/family.h"

#include "base/check.h"
#include "base/none.h"

#include <errno.h>

/* Input of the head: normed embedding | normed hidden state. */
static struct act pair_act(const struct step *s)
{
    return step_act(ARRAY_MID, 2 * s->shape.hidden);
}

static struct op_pair op_pair_of(struct step *s, const struct mtp *m)
{
    return (struct op_pair){.add = step_take_pending(s),
                            .table = m->embedding,
                            .ropes = &s->ropes,
                            .final_norm = m->final_norm,
                            .norm_embedding = m->weights.norm_embedding,
                            .norm_hidden = m->weights.norm_hidden,
                            .h = step_residual(s),
                            .pair = pair_act(s),
                            .angles = step_all_angles(s),
                            .reader = &m->weights.fc};
}

/* ---- K and V of known tokens ---- */

/* From the last token back: of a long prompt the last tokens matter. */
static void see_seq(struct mtp *m, const struct model_seq *seq)
{
    for (uint32_t i = seq->token_count; i-- > 0 && m->row_count < DRAFT_VOCAB_NEW_MAX;) {
        if (mrope_grid(seq->grids, seq->grid_count, seq->position + i))
            continue;
        uint32_t id = seq->tokens[i], place = draft_vocab_see(m->draft_vocab, id);
        if (place == NONE)
            continue;
        m->rows[m->row_count].id = id;
        m->rows[m->row_count++].place = place;
    }
}

void mtp_see(struct mtp *m, const struct model_step *in)
{
    m->row_count = 0;
    for (uint32_t r = in->seq_count; r-- > 0 && m->draft_vocab->size > 0;)
        see_seq(m, &in->seqs[r]);
}

void mtp_copy_rows(struct step *s, const struct mtp *m)
{
    for (uint32_t i = 0; i < m->row_count; i++)
        compute_copy_row(s->compute, &(struct op_copy_row){.to = &m->draft_vocab->rows,
                                                           .from = &m->head->parts[0],
                                                           .to_row = m->rows[i].place,
                                                           .from_row = m->rows[i].id});
}

struct op_product mtp_pair(struct step *s, const struct mtp *m)
{
    const struct op_pair a = op_pair_of(s, m);
    compute_pair(s->compute, &a);
    return (struct op_product){.w = &m->weights.fc, .x = a.pair, .y = step_out(s)};
}

void mtp_put(struct step *s, const struct mtp *m)
{
    const struct layer *l = &m->weights.layer;
    const struct block *mixer = l->config->mixer;
    struct op_norm norm = {
        .h = step_out(s), .y = step_normed(s), .norm = l->norm_mixer.before, .keep = step_residual(s)};
    ASSERT(mixer->put);
    mixer->readers(l, norm.readers);
    if (mixer == &block_attention)
        norm.readers[0] = attention_put_reader(l);
    compute_norm(s->compute, &norm);
    mixer->put(s, l);
}

/* ---- drafts ---- */

/* Makes the sequences that need more than `pass` draft tokens a step of one token each. A token's hidden
 * column is its sequence's column in the pass before. */
static uint32_t list_seqs(struct step *s, const struct model_draft *d, uint32_t pass)
{
    uint32_t count = 0, column = 0;
    for (uint32_t i = 0; i < d->seq_count; i++) {
        const struct model_draft_seq *r = &d->seqs[i];
        if (r->count <= pass) {
            column += pass > 0 && r->count == pass;
            continue;
        }
        s->draft_of[count] = i;
        s->hidden_columns[count] = column++;
        s->draft_seqs[count] = (struct model_seq){.tokens = pass == 0 ? &r->token : &r->drafts[pass - 1],
                                                  .token_count = 1,
                                                  .position = r->position + pass,
                                                  .state_in = pass == 0 ? r->state : NONE,
                                                  .pending = pass == 0 ? r->pending : 0,
                                                  .state_out = NONE,
                                                  .logits_from = 1,
                                                  .grids = r->grids,
                                                  .grid_count = r->grid_count};
        memcpy(s->draft_seqs[count++].pages, r->pages, sizeof(r->pages));
    }
    return count;
}

/* The hidden state that the output matrix reads is left in the normed tokens. The next pass starts from it,
 * or in DeepSeek's form from the residual stream before that norm. */
static void draft_pass(struct step *s, const struct mtp *m, bool first)
{
    bool some = m->draft_vocab->size > 0;
    struct op_pair pair = op_pair_of(s, m);
    pair.h = s->config->family->mtp == MTP_NEXT ? step_residual(s) : step_normed(s);
    pair.draft = true;
    pair.from_states = first;
    compute_pair(s->compute, &pair);
    step_project(s, &m->weights.fc, pair.pair, step_residual(s));
    layer_forward(s, &m->weights.layer);
    step_norm(s, &(struct norm){.weight = m->weights.norm},
              (const struct projection *const[OP_READERS_MAX]){m->head});
    compute_best(s->compute, &(struct op_best){.rows = some ? &m->draft_vocab->rows : &m->head->parts[0],
                                               .ids = some ? m->draft_vocab->ids : NULL,
                                               .x = step_normed(s)});
}

/* Begins nothing when no draft has so many tokens. */
static void begin_pass(struct step *s, const struct mtp *m, uint32_t pass)
{
    const struct model_draft *d = s->draft;
    uint32_t count = pass < s->config->drafts_max ? list_seqs(s, d, pass) : 0;
    struct model_step step = {.seqs = s->draft_seqs, .seq_count = count, .states = d->states};
    if (count == 0)
        return;
    memcpy(step.pages, d->pages, sizeof(d->pages));
    step_fill(s, &step);
    s->batch.best = s->draft_best;
    s->batch.valid_ids = d->valid_ids;
    step_begin(s);
    if (step_is_stopped(d->stop))
        s->phase = STEP_CANCELED;
    else if (!compute_replay(s->compute, pass == 0 ? STEP_KEY_DRAFT : STEP_KEY_REDRAFT))
        (m->eagle ? eagle_draft_pass : draft_pass)(s, m, pass == 0);
}

static void take_drafts(const struct step *s, const struct model_draft *d, uint32_t pass)
{
    for (uint32_t t = 0; t < s->batch.token_count; t++) {
        const struct model_draft_seq *seq = &d->seqs[s->draft_of[t]];
        struct draft_best best = s->draft_best[t];
        /* All logits are NaN: any id is as wrong as another. */
        seq->drafts[pass] = best.id < s->config->vocab ? best.id : seq->token;
        if (seq->logits)
            seq->logits[pass] = best.logit;
    }
}

static void check_draft(const struct step *s, const struct model_draft *d)
{
    ASSERT(d->seq_count <= s->seqs_max && (s->shape.page_hidden > 0 || !dev_is_null(d->states)));
    for (uint32_t i = 0; i < d->seq_count; i++) {
        const struct model_draft_seq *r = &d->seqs[i];
        ASSERT(r->position > 0 && r->token < s->config->vocab);
        ASSERT(r->count > 0 && r->count <= s->config->drafts_max);
    }
}

void mtp_draft_begin(struct step *s, const struct mtp *m, const struct model_draft *d)
{
    check_draft(s, d);
    ASSERT(!s->draft);
    s->draft = d;
    begin_pass(s, m, 0);
}

int mtp_draft_end(struct step *s, const struct mtp *m)
{
    int r = 0;
    ASSERT(s->draft);
    for (uint32_t pass = 0; s->phase != STEP_NONE; pass++) {
        r = step_end(s);
        if (r < 0)
            break;
        take_drafts(s, s->draft, pass);
        begin_pass(s, m, pass + 1);
    }
    s->draft = NULL;
    return r;
}
