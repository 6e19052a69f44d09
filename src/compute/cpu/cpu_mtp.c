/* cpu_mtp.c - inputs of the MTP head, and the best of a draft's logits.
 *
 * In a step token t brings the left half of its own pair and the right half of the next token's. So one walk
 * over the tokens makes all pairs; a sequence's first token takes its right half from state_in. Of a draft's
 * logits only the best is kept, tile by tile: a row of logits would be the largest thing in the workspace. */
#include "compute/batch.h"
#include "compute/cpu/cpu.h"
#include "compute/rope.h"
#include "compute/shape.h"

#include <math.h>
#include <string.h>

/* ---- pairs ---- */

/* Sums of a half, where no group spans both. */
static bool sums_by_half(const struct op_pair *a)
{
    return a->h.width % 128 == 0;
}

static void set_half(const struct cpu *c, const struct op_pair *a, uint32_t t, bool right, const float *x)
{
    uint32_t from = right ? a->h.width : 0;
    c->ops->rmsnorm(cpu_row(c, a->pair, t) + from, x,
                    cpu_floats(c, right ? a->norm_hidden : a->norm_embedding), a->h.width,
                    a->eps > 0 ? a->eps : c->shape->eps);
    if (sums_by_half(a))
        cpu_sum_part(c, a->reader->sums, a->pair, t, from, from + a->h.width);
}

/* The left half, and the pair's position: that of the token before it. Token t's own angles are not used
 * after this. */
static void set_embedding(const struct cpu *c, const struct op_pair *a, uint32_t t)
{
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    float *left = cpu_row(c, a->pair, t), *angles = cpu_row(c, a->angles, t);
    const float *x = cpu_floats(c, c->in->features[t]);
    if (!x) {
        const struct matrix table = cpu_matrix(c, a->table);
        matrix_row(&table, c->in->ids[t], left);
        x = left;
    }
    set_half(c, a, t, false, x);
    if (t > seq->first)
        rope_tables_at(a->ropes, c->in->positions[t - 1], angles);
    else if (seq->position > 0)
        rope_tables_at(a->ropes, seq->previous, angles);
}

/* The hidden state of the last token before the sequence's first: after the last of the accepted tokens, or
 * after the state, or in a page. NULL: there is no such token. */
static const float *last_hidden(const struct cpu *c, const struct batch_seq *seq)
{
    if (c->shape->page_hidden > 0)
        return seq->position > 0 ? cpu_page_hidden(c, seq, seq->position - 1) : NULL;
    return cpu_state_hidden(c, seq->state_in, seq->pending > 0 ? seq->pending - 1 : 0);
}

static void pair_token(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_pair *a = arg;
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    float *h = cpu_row(c, a->h, t);
    cpu_add_residual(c, &a->add, a->h, t);
    if (!dev_is_null(a->final_norm))
        c->ops->rmsnorm(h, h, cpu_floats(c, a->final_norm), a->h.width, c->shape->eps);
    set_embedding(c, a, t);
    if (t + 1 < seq->first + seq->count)
        set_half(c, a, t + 1, true, h);
    if (t > seq->first)
        return;
    const float *before = last_hidden(c, seq);
    if (before)
        set_half(c, a, t, true, before);
    else /* entry 0: no query sees it */
        memset(cpu_row(c, a->pair, t) + a->h.width, 0, a->h.width * sizeof(float));
}

static void pair_draft(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_pair *a = arg;
    const struct batch_seq *seq = &c->in->seqs[c->in->token_seq[t]];
    set_embedding(c, a, t);
    const float *hidden = a->from_states ? last_hidden(c, seq) : cpu_row(c, a->h, c->in->hidden_columns[t]);
    if (a->hidden.width > 0)
        memcpy(cpu_row(c, a->hidden, t), hidden, a->hidden.width * sizeof(*hidden));
    set_half(c, a, t, true, hidden);
}

static void sum_pair(struct cpu *c, const void *arg, uint32_t t)
{
    const struct op_pair *a = arg;
    cpu_sum(c, a->reader->sums, a->pair, t);
}

void cpu_pair(struct compute *compute, const struct op_pair *a)
{
    struct cpu *c = cpu_of(compute);
    cpu_each_token(c, a->draft ? pair_draft : pair_token, a, 4 * (2 * a->h.width + 8 * a->angles.width));
    if (a->reader->sums && !sums_by_half(a))
        cpu_each_token(c, sum_pair, a, a->pair.width);
}

/* ---- the best of a draft's logits ---- */

struct best_stage {
    struct cpu *cpu;
    const struct op_best *op;
    struct matrix rows;
    uint32_t panels, tiles; /* panels of `rows` in a tile; tiles */
};

static bool is_valid(const uint64_t *bits, uint32_t id)
{
    return !bits || (bits[id / 64] >> id % 64 & 1);
}

/* The largest of the rows [from, from + count), the first of equals. Eight rows are skipped at once when
 * none of them is larger. */
static struct draft_best best_of(const struct best_stage *st, const float *logits, uint32_t from,
                                 uint32_t count)
{
    struct draft_best best = {-INFINITY, UINT32_MAX};
    const uint32_t *ids = st->op->ids;
    for (uint32_t at = 0; at < count; at += 8) {
        uint32_t end = MIN_OF(at + 8, count);
        bool larger = false;
        for (uint32_t i = at; i < end; i++)
            larger |= logits[i] > best.logit;
        for (uint32_t i = at; larger && i < end; i++) {
            uint32_t id = ids ? ids[from + i] : from + i;
            if (logits[i] > best.logit && is_valid(st->cpu->in->valid_ids, id))
                best = (struct draft_best){logits[i], id};
        }
    }
    return best;
}

/* Tile: some panels of the rows, all columns. */
static void best_tile(void *arg, uint32_t tile, uint32_t worker)
{
    const struct best_stage *st = arg;
    const struct cpu *c = st->cpu;
    float *logits = c->draft_logits + (size_t)worker * CPU_DRAFT_COLUMNS * CPU_DRAFT_LOGITS;
    struct matrix part = matrix_part(&st->rows, tile * st->panels, st->panels);
    const float *x[CPU_DRAFT_COLUMNS], *sums[CPU_DRAFT_COLUMNS];
    const void *quants[CPU_DRAFT_COLUMNS];
    float *y[CPU_DRAFT_COLUMNS];
    bool affine = matrix_needs_sums(&part), rounds = matrix_rounds_input(&part);
    struct kern_columns columns = {.x = x, .xsum = affine ? sums : NULL, .y = y};
    for (uint32_t from = 0; from < c->tokens; from += columns.count) {
        columns.count = MIN_OF(c->tokens - from, CPU_DRAFT_COLUMNS);
        for (uint32_t i = 0; i < columns.count; i++) {
            x[i] = cpu_row(c, st->op->x, from + i);
            if (affine)
                sums[i] = cpu_sums(c, st->op->x, from + i, part.group);
            else if (rounds)
                quants[i] = cpu_quants(c, st->op->x, from + i, cpu_quants_group(&part));
            y[i] = logits + (size_t)i * CPU_DRAFT_LOGITS;
        }
        if (rounds)
            cpu_rounded_matmul(c, &part, quants, &columns, 0, matrix_panels(&part));
        else
            c->ops->matmul(&part, &columns, 0, matrix_panels(&part));
        for (uint32_t i = 0; i < columns.count; i++)
            c->draft_best[(size_t)(from + i) * st->tiles + tile] =
                best_of(st, y[i], tile * st->panels * MATRIX_PANEL, part.n);
    }
}

void cpu_best(struct compute *compute, const struct op_best *a)
{
    struct cpu *c = cpu_of(compute);
    struct best_stage st = {.cpu = c,
                            .op = a,
                            .rows = cpu_matrix(c, a->rows),
                            .panels = cpu_draft_panels(a->rows->n, workers_count(c->workers))};
    st.tiles = DIV_UP(matrix_panels(&st.rows), st.panels);
    cpu_run(c, best_tile, &st, st.tiles);
    struct draft_best *best = c->in->best;
    for (uint32_t t = 0; t < c->tokens; t++) {
        const struct draft_best *of = c->draft_best + (size_t)t * st.tiles;
        best[t] = of[0];
        for (uint32_t i = 1; i < st.tiles; i++)
            if (of[i].logit > best[t].logit)
                best[t] = of[i];
    }
}
