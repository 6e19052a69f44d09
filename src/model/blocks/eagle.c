/* eagle.c - what a forward pass and a draft compute for an EAGLE-3 head.
 *
 * The blocks read s->config, so the head's layer runs with its own in place of the model's. */
#include "model/blocks/eagle.h"

#include "model/blocks/blocks.h"
#include "model/blocks/mtp.h"

#include "base/check.h"

static struct act kept_act(const struct step *s)
{
    return step_act(ARRAY_EAGLE, EAGLE_LAYERS * s->shape.hidden);
}

void eagle_keep(struct step *s, const struct eagle *g, uint32_t index)
{
    uint32_t hidden = s->shape.hidden;
    for (uint32_t i = 0; i < EAGLE_LAYERS; i++) {
        if (g->layers[i] == index)
            compute_norm(s->compute, &(struct op_norm){.add = step_take_pending(s),
                                                       .h = step_residual(s),
                                                       .y = act_part(kept_act(s), i * hidden, hidden)});
    }
}

static struct op_pair pair_of(const struct step *s, const struct mtp *m, struct act h,
                              const struct projection *reader)
{
    return (struct op_pair){.table = m->embedding,
                            .ropes = &s->ropes,
                            .norm_embedding = m->weights.norm_embedding,
                            .norm_hidden = m->weights.norm_hidden,
                            .eps = m->eagle->config.eps,
                            .h = h,
                            .pair = step_act(ARRAY_MID, 2 * s->shape.hidden),
                            .angles = step_all_angles(s),
                            .reader = reader};
}

void eagle_put(struct step *s, const struct mtp *m)
{
    const struct layer *l = &m->weights.layer;
    const struct config *own = s->config;
    const struct op_pair pair = pair_of(s, m, step_out(s), attention_put_reader(l));
    step_take_pending(s); /* the logits have it already */
    compute_norm(s->compute,
                 &(struct op_norm){.h = kept_act(s), .y = kept_act(s), .readers = {&m->eagle_weights.fuse}});
    step_project(s, &m->eagle_weights.fuse, kept_act(s), step_out(s));
    compute_pair(s->compute, &pair);
    compute_norm(s->compute, &(struct op_norm){.h = step_out(s), .keep = step_out(s)});
    s->config = &m->eagle->config;
    l->config->mixer->put(s, l);
    s->config = own;
}

/* The hidden state that the next pass starts from is left in the residual stream, before the last norm. */
void eagle_draft_pass(struct step *s, const struct mtp *m, bool first)
{
    const struct layer *l = &m->weights.layer;
    const struct config *own = s->config;
    struct op_pair pair = pair_of(s, m, step_residual(s), &l->attention.in);
    struct norm begin = {.weight = m->weights.norm_hidden, .eps = m->eagle->config.eps};
    if (!m->eagle->norm_first)
        begin = (struct norm){.weight = DEV_NULL};
    pair.draft = true;
    pair.from_states = first;
    pair.hidden = step_normed(s);
    compute_pair(s->compute, &pair);
    compute_norm(s->compute, &(struct op_norm){.h = step_normed(s), .y = step_residual(s), .norm = begin});
    s->config = &m->eagle->config;
    l->config->mixer->forward(s, l);
    layer_forward_mlp(s, l);
    step_norm(s, &(struct norm){.weight = m->weights.norm, .eps = m->eagle->config.eps},
              (const struct projection *const[OP_READERS_MAX]){m->head});
    s->config = own;
    compute_best(
        s->compute,
        &(struct op_best){.rows = &m->head->parts[0], .ids = m->eagle_weights.ids, .x = step_normed(s)});
}
