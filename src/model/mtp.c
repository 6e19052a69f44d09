/* mtp.c - pairs, their K and V, and drafts.
 *
 * A pair's input is in `mid`: the normed embedding, then the normed hidden state. In a forward pass token t
 * brings the left half of its own pair and the right half of the next token's. So one walk over the tokens
 * makes all pairs; a sequence's first token takes its right half from state_in.
 *
 * Drafting is a step of one token per sequence through the head's layer and lm_head. Only the best logit is
 * kept, tile by tile: a row of logits would be the largest thing in the workspace. */
#include "model/mtp.h"

#include "model/attention.h"
#include "model/family.h"
#include "model/mrope.h"
#include "model/state_layout.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>

/* ---- pairs ---- */

static float *pair_of(const struct step *s, uint32_t t)
{
    return s->mid + (size_t)t * s->mid_wide;
}

/* Sums of a half, where no group spans both. */
static bool sums_by_half(const struct config *c)
{
    return c->hidden % 128 == 0;
}

static void set_half(struct step *s, const struct mtp_weights *w, uint32_t t, bool right, const float *x,
                     const float *norm)
{
    const struct config *c = s->config;
    uint32_t from = right ? c->hidden : 0;
    float *pair = pair_of(s, t), *sums = s->mid_sums + (size_t)t * step_sums_floats(2 * c->hidden);
    s->ops->rmsnorm(pair + from, x, norm, c->hidden, c->eps);
    if (sums_by_half(c))
        step_sums_part(s, w->fc.groups, sums, pair, 2 * c->hidden, from, from + c->hidden);
}

/* The left half, and the pair's position: that of the token before it. Token t's own cosines are not used
 * after this. */
static void set_embedding(struct step *s, const struct mtp *m, uint32_t t)
{
    const struct model_seq *seq = &s->in->seqs[s->token_seq[t]];
    uint32_t position = seq->position + (t - s->seq_column[s->token_seq[t]]);
    float *left = pair_of(s, t);
    const float *x = s->features[t];
    if (!x) {
        matrix_row(m->embedding, s->ids[t], left);
        x = left;
    }
    set_half(s, &m->weights, t, false, x, m->weights.norm_embedding);
    if (position > 0)
        rope_at(&s->rope, mrope_at(seq->grids, seq->grid_count, position - 1),
                s->cosines + (size_t)t * s->rope.half, s->sines + (size_t)t * s->rope.half);
}

static char *state_hidden(const struct step *s, uint32_t state, uint32_t index)
{
    return s->in->states + state * state_bytes(s->config) + state_hidden_offset(s->config, index);
}

/* After the last of `pending` accepted tokens, or after the state. */
static const float *state_last_hidden(const struct step *s, uint32_t state, uint32_t pending)
{
    return (const float *)state_hidden(s, state, pending > 0 ? pending - 1 : 0);
}

/* Token t: its hidden state, its half of its own pair and of the next one's. */
static void pair_token(struct step *s, const void *arg, uint32_t t)
{
    const struct mtp *m = arg;
    const struct config *c = s->config;
    uint32_t r = s->token_seq[t];
    const struct model_seq *seq = &s->in->seqs[r];
    float *h = s->residual + (size_t)t * c->hidden;
    if (s->pending_residual)
        s->pending_residual(s, t);
    s->ops->rmsnorm(h, h, m->final_norm, c->hidden, c->eps);
    set_embedding(s, m, t);
    if (t + 1 < s->seq_column[r] + seq->token_count)
        set_half(s, &m->weights, t + 1, true, h, m->weights.norm_hidden);
    if (t > s->seq_column[r])
        return;
    if (seq->state_in == NONE)
        memset(pair_of(s, t) + c->hidden, 0, c->hidden * sizeof(float)); /* entry 0: no query sees it */
    else
        set_half(s, &m->weights, t, true, state_last_hidden(s, seq->state_in, s->seq_pending[r]),
                 m->weights.norm_hidden);
}

/* For step_each_token. */
static uint32_t pair_values(const struct step *s)
{
    return 4 * (2 * s->config->hidden + 16 * s->rope.half);
}

static void sum_pair(struct step *s, const void *arg, uint32_t t)
{
    const struct projection *fc = arg;
    step_sums(s, fc->groups, s->mid_sums + (size_t)t * step_sums_floats(fc->in), pair_of(s, t), fc->in);
}

static uint32_t add_pairs(struct step *s, const struct mtp_weights *w, struct step_rows y)
{
    if (w->fc.groups && !sums_by_half(s->config))
        step_each_token(s, sum_pair, &w->fc, w->fc.in);
    return step_project_add(s, 0, &w->fc, step_mid(s, w->fc.in), y, s->tokens);
}

/* ---- K and V of known tokens ---- */

/* By now every sequence has read its state_in. */
static void keep_hidden(const struct step *s, uint32_t t)
{
    uint32_t r = s->token_seq[t], index = t - s->seq_column[r];
    const struct model_seq *seq = &s->in->seqs[r];
    if (!seq->keep_pending && index + 1 < seq->token_count)
        return;
    memcpy(state_hidden(s, seq->state_out, seq->keep_pending ? index : 0),
           s->residual + (size_t)t * s->config->hidden, s->config->hidden * sizeof(float));
}

static void norm_pair(struct step *s, const void *arg, uint32_t t)
{
    const struct layer *l = arg;
    const struct config *c = s->config;
    float *x = s->normed + (size_t)t * s->normed_wide;
    keep_hidden(s, t);
    s->ops->rmsnorm(x, s->block_out + (size_t)t * c->hidden, l->norm_mixer, c->hidden, c->eps);
    step_sums(s, l->attention.kv.groups, s->normed_sums + (size_t)t * step_sums_floats(c->hidden), x,
              c->hidden);
}

/* From the last token back: of a long prompt the last tokens matter. */
static void see_tokens(const struct step *s, const struct mtp *m)
{
    uint32_t left = m->draft_vocab->size ? DRAFT_VOCAB_NEW_MAX : 0;
    for (uint32_t t = s->tokens; t-- > 0 && left > 0;)
        if (!s->features[t])
            left -= draft_vocab_see(m->draft_vocab, &m->head->parts[0], s->ids[t]);
}

uint32_t mtp_pair(struct step *s, const struct mtp *m)
{
    see_tokens(s, m);
    step_each_token(s, pair_token, m, pair_values(s));
    s->pending_residual = NULL;
    return add_pairs(s, &m->weights, step_d(s));
}

void mtp_put(struct step *s, const struct mtp *m)
{
    step_each_token(s, norm_pair, &m->weights.layer, 4 * s->config->hidden);
    attention_put(s, &m->weights.layer);
}

/* ---- drafts ---- */

struct draft_stage {
    struct step *step;
    const struct mtp *mtp;
    const struct model_draft *draft;
    const struct matrix *output; /* rows to draft from */
    const uint32_t *ids;         /* their token ids; NULL: row i is token i's */
    uint32_t panels, tiles;      /* of `output` in a tile; tiles */
    uint32_t pass;
};

/* The sequences that need more than `pass` draft tokens, as a step of one token each. A sequence's entry
 * names its input token and the column of its hidden state of the pass before. */
static uint32_t list_seqs(struct step *s, const struct model_draft *d, uint32_t pass)
{
    uint32_t count = 0, column = 0;
    for (uint32_t i = 0; i < d->seq_count; i++) {
        const struct model_draft_seq *r = &d->seqs[i];
        if (r->count <= pass) {
            column += pass > 0 && r->count == pass;
            continue;
        }
        s->drafts[count] = (struct step_draft){.seq = i, .column = column++};
        s->draft_seqs[count++] = (struct model_seq){.tokens = pass == 0 ? &r->token : &r->drafts[pass - 1],
                                                    .token_count = 1,
                                                    .position = r->position + pass,
                                                    .pages = r->pages,
                                                    .state_in = NONE,
                                                    .state_out = NONE,
                                                    .logits_from = 1,
                                                    .grids = r->grids,
                                                    .grid_count = r->grid_count};
    }
    return count;
}

static void pair_draft(struct step *s, const void *arg, uint32_t t)
{
    const struct draft_stage *st = arg;
    const struct model_draft_seq *seq = &st->draft->seqs[s->drafts[t].seq];
    const struct mtp_weights *w = &st->mtp->weights;
    const float *hidden = s->residual + (size_t)s->drafts[t].column * s->config->hidden;
    if (st->pass == 0) {
        uint32_t pending = step_state_header(s->config, s->in->states, seq->state)->accepted;
        ASSERT(pending <= state_pending_max(s->config));
        hidden = state_last_hidden(s, seq->state, pending);
    }
    set_embedding(s, st->mtp, t);
    set_half(s, w, t, true, hidden, w->norm_hidden);
}

/* The hidden state that the head reads and the next pass starts from. */
static void norm_draft(struct step *s, const void *arg, uint32_t t)
{
    const struct mtp *m = arg;
    const struct config *c = s->config;
    float *h = s->residual + (size_t)t * c->hidden;
    if (s->pending_residual)
        s->pending_residual(s, t);
    s->ops->rmsnorm(h, h, m->weights.norm, c->hidden, c->eps);
    step_sums(s, m->head->groups, s->normed_sums + (size_t)t * step_sums_floats(c->hidden), h, c->hidden);
}

static bool exists(const uint64_t *bits, uint32_t id)
{
    return !bits || (bits[id / 64] >> id % 64 & 1);
}

/* The largest of the rows [from, from + count), the first of equals. Eight rows are skipped at once when
 * none of them is larger. */
static struct step_best best_of(const struct draft_stage *st, const float *logits, uint32_t from,
                                uint32_t count)
{
    const uint64_t *bits = st->draft->valid_ids;
    struct step_best best = {-INFINITY, UINT32_MAX};
    for (uint32_t at = 0; at < count; at += 8) {
        uint32_t end = MIN_OF(at + 8, count);
        bool larger = false;
        for (uint32_t i = at; i < end; i++)
            larger |= logits[i] > best.logit;
        for (uint32_t i = at; larger && i < end; i++) {
            uint32_t id = st->ids ? st->ids[from + i] : from + i;
            if (logits[i] > best.logit && exists(bits, id))
                best = (struct step_best){logits[i], id};
        }
    }
    return best;
}

/* Tile: some panels of the output matrix, all columns. */
static void head_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct draft_stage *st = arg;
    const struct step *s = st->step;
    const struct config *c = s->config;
    float *logits = s->draft_logits + (size_t)worker * STEP_DRAFT_COLUMNS * STEP_DRAFT_LOGITS;
    struct matrix part = matrix_part(st->output, tile * st->panels, st->panels);
    const float *x[STEP_DRAFT_COLUMNS], *sums[STEP_DRAFT_COLUMNS];
    float *y[STEP_DRAFT_COLUMNS];
    struct kern_columns columns = {.x = x, .xsum = part.form == MATRIX_AFFINE ? sums : NULL, .y = y};
    for (uint32_t from = 0; from < s->tokens; from += columns.count) {
        columns.count = MIN_OF(s->tokens - from, STEP_DRAFT_COLUMNS);
        for (uint32_t i = 0; i < columns.count; i++) {
            x[i] = s->residual + (size_t)(from + i) * c->hidden;
            sums[i] = s->normed_sums + (size_t)(from + i) * step_sums_floats(c->hidden);
            if (part.form == MATRIX_AFFINE)
                sums[i] += step_sums_offset(c->hidden, part.group);
            y[i] = logits + (size_t)i * STEP_DRAFT_LOGITS;
        }
        s->ops->matmul(&part, &columns, 0, matrix_panels(&part));
        for (uint32_t i = 0; i < columns.count; i++)
            s->draft_best[(size_t)(from + i) * st->tiles + tile] =
                best_of(st, y[i], tile * st->panels * MATRIX_PANEL, part.n);
    }
}

static void take_draft(const struct draft_stage *st, uint32_t t)
{
    const struct step *s = st->step;
    const struct model_draft_seq *seq = &st->draft->seqs[s->drafts[t].seq];
    const struct step_best *of = s->draft_best + (size_t)t * st->tiles;
    struct step_best best = of[0];
    for (uint32_t i = 1; i < st->tiles; i++) {
        struct step_best other = of[i];
        if (other.logit > best.logit)
            best = other;
    }
    /* All logits are NaN: any id is as wrong as another. */
    seq->drafts[st->pass] = best.id < s->config->vocab ? best.id : seq->token;
    if (seq->logits)
        seq->logits[st->pass] = best.logit;
}

static void draft_pass(struct draft_stage *st)
{
    struct step *s = st->step;
    const struct mtp *m = st->mtp;
    struct step_rows h = {.data = s->residual, .stride = s->config->hidden};
    step_each_token(s, pair_draft, st, pair_values(s));
    step_products(s, add_pairs(s, &m->weights, h));
    s->config->family->layer(s, &m->weights.layer);
    step_each_token(s, norm_draft, m, 4 * s->config->hidden);
    s->pending_residual = NULL;
    step_run(s, head_tile, st, st->tiles);
    for (uint32_t t = 0; t < s->tokens; t++)
        take_draft(st, t);
}

static void check_draft(const struct step *s, const struct model_draft *d)
{
    ASSERT(d->seq_count <= s->seqs_max && d->states);
    for (uint32_t i = 0; i < d->seq_count; i++) {
        const struct model_draft_seq *r = &d->seqs[i];
        ASSERT(r->position > 0 && r->token < s->config->vocab);
        ASSERT(r->count > 0 && r->count <= s->config->drafts_max);
    }
}

int mtp_draft(struct step *s, const struct mtp *m, const struct model_draft *d)
{
    struct draft_stage st = {.step = s, .mtp = m, .draft = d, .output = &m->head->parts[0]};
    if (m->draft_vocab->size > 0) {
        st.output = &m->draft_vocab->rows;
        st.ids = m->draft_vocab->ids;
    }
    st.panels = step_draft_panels(s->config, workers_count(s->workers));
    st.tiles = DIV_UP(matrix_panels(st.output), st.panels);
    check_draft(s, d);
    for (; st.pass < s->config->drafts_max; st.pass++) {
        if (d->stop && atomic_load_explicit(d->stop, memory_order_relaxed))
            return -ECANCELED;
        uint32_t count = list_seqs(s, d, st.pass);
        if (count == 0)
            break;
        struct model_step step = {
            .seqs = s->draft_seqs, .seq_count = count, .pages = d->pages, .states = d->states};
        step_begin(s, &step);
        draft_pass(&st);
    }
    return 0;
}
