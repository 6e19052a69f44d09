/* layer_inputs.c - inputs per layer: a second embedding of each token, with a row for all layers.
 *
 * The table is the larger part of such a checkpoint, but a token reads one row of it. It is packed like the
 * embedding: the ledger counts a mapped file in full, too, so a mapping would save time at load and no memory
 * of the plan. Panels of 16 rows make a row's values 16 apart; a row of 9,000 values then touches 290 KB,
 * under 1 % of what the layers read for a token. */
#include "model/blocks/layer_inputs.h"

#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/json_read.h"

#include "base/none.h"

#include <errno.h>
#include <math.h>

static uint32_t width_of_all(const struct config *c)
{
    return c->layers * c->layer_input;
}

int layer_inputs_bind(struct binder *b, struct layer_inputs *ret)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    const struct binder_matrix model = {ROLE_LAYER_INPUT_MODEL, width_of_all(c)};
    *ret = (struct layer_inputs){0};
    if (c->layer_input == 0)
        return 0;
    int r = binder_table(b, binder_path(b, NONE, ROLE_LAYER_INPUT_TABLE, path), c->layer_input_vocab,
                         width_of_all(c), &ret->table);
    if (r == 0)
        r = binder_layer_projection(b, NONE, &model, 1, c->hidden, &ret->projection);
    if (r == 0)
        r = binder_norm(b, binder_path(b, NONE, ROLE_LAYER_INPUT_NORM, path), c->layer_input, &ret->norm);
    return r;
}

void layer_inputs_compute(struct step *s, const struct layer_inputs *w)
{
    const struct config *c = s->config;
    if (c->layer_input == 0)
        return;
    const struct act x = step_act(ARRAY_LAYER_INPUTS, width_of_all(c));
    step_norm(s, &(struct norm){DEV_NULL, DEV_NULL},
              (const struct projection *const[OP_READERS_MAX]){&w->projection});
    step_project(s, &w->projection, step_normed(s), x);
    compute_layer_inputs(s->compute,
                         &(struct op_layer_inputs){.table = &w->table,
                                                   .x = x,
                                                   .row = step_act(ARRAY_PROJ, x.width),
                                                   .width = c->layer_input,
                                                   .norm = w->norm,
                                                   .input_scale = (float)(1 / sqrt((double)c->hidden)),
                                                   .row_scale = (float)sqrt((double)c->layer_input),
                                                   .scale = (float)sqrt(0.5)});
}

/* ---- the block ---- */

static void check(struct json_read *r, const struct config *c)
{
    if (c->layer_input_vocab < c->vocab)
        json_read_fail(r, -EINVAL, "vocab_size_per_layer_input %u is less than vocab_size %u",
                       c->layer_input_vocab, c->vocab);
    if (c->pad >= c->vocab)
        json_read_fail(r, -EINVAL, "pad_token_id is %u, which is not less than vocab_size %u", c->pad,
                       c->vocab);
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    (void)l;
    array_raise(&arrays[ARRAY_LAYER_INPUTS], width_of_all(c), 0);
    array_raise(&arrays[ARRAY_PROJ], width_of_all(c), 0);
    array_raise(&arrays[ARRAY_MID], c->layer_input, c->layer_input);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    uint32_t width = b->config->layer_input, hidden = b->config->hidden;
    const struct binder_matrix gate = {ROLE_LAYER_INPUT_GATE, width}, out = {ROLE_LAYER_INPUT_OUT, hidden};
    int r = binder_layer_projection(b, layer, &gate, 1, hidden, &l->input.gate);
    return r == 0 ? binder_layer_projection(b, layer, &out, 1, width, &l->input.out) : r;
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->input.gate;
}

static void forward(struct step *s, const struct layer *l)
{
    const struct layer_input_weights *w = &l->input;
    uint32_t width = s->config->layer_input, index = (uint32_t)(l->config - s->config->layer);
    const struct act gate = step_act(ARRAY_PROJ, width), mid = step_act(ARRAY_MID, width);
    const struct act up = {.array = ARRAY_LAYER_INPUTS, .from = index * width, .width = width};
    step_project(s, &w->gate, step_normed(s), gate);
    compute_glu(
        s->compute,
        &(struct op_glu){.function = step_glu(s), .in = gate, .up = up, .out = mid, .reader = &w->out});
    step_project(s, &w->out, mid, step_out(s));
    step_leave_out(s);
}

const struct block block_layer_input = {
    .check = check, .arrays = arrays, .bind = bind, .readers = readers, .forward = forward};
