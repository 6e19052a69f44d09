/* layer.c - one layer, as its family and its blocks describe it: norms, mixer, norms, MLP. */
#include "model/blocks.h"
#include "model/family.h"

const struct block *const blocks[] = {&block_attention, &block_delta_net, &block_mlp, &block_experts, NULL};

/* ---- binding ---- */

static int bind_norm(struct binder *b, uint32_t index, enum tensor_role role, dev_ptr *ret)
{
    char path[BINDER_PATH_MAX];
    return binder_norm(b, binder_path(b, index, role, path), b->config->hidden, ret);
}

/* A block with the norms around it. */
static int bind_branch(struct binder *b, uint32_t index, const struct block *block, enum tensor_role before,
                       enum tensor_role after, struct layer_norms *norms, struct layer *ret)
{
    enum norm_place place = b->config->family->norm_place;
    int r = place == NORM_POST ? 0 : bind_norm(b, index, before, &norms->before);
    if (r == 0)
        r = block->bind(b, index, ret);
    return r < 0 || place == NORM_PRE ? r : bind_norm(b, index, after, &norms->after);
}

int layer_bind(struct binder *b, uint32_t index, struct layer *ret)
{
    const struct layer_config *c = ret->config;
    int r = bind_branch(b, index, c->mixer, ROLE_MIXER_NORM, ROLE_MIXER_NORM_AFTER, &ret->norm_mixer, ret);
    return r < 0 ? r : bind_branch(b, index, c->mlp, ROLE_MLP_NORM, ROLE_MLP_NORM_AFTER, &ret->norm_mlp, ret);
}

/* ---- computing ---- */

static void branch(struct step *s, const struct layer *l, const struct block *block,
                   const struct layer_norms *norms)
{
    const struct projection *readers[OP_READERS_MAX] = {NULL};
    block->readers(l, readers);
    step_norm(s, norms->before, readers[0], readers[1]);
    block->forward(s, l);
    s->pending.norm = norms->after;
    s->pending.scale = s->config->residual_scale;
}

void layer_forward(struct step *s, const struct layer *l)
{
    branch(s, l, l->config->mixer, &l->norm_mixer);
    branch(s, l, l->config->mlp, &l->norm_mlp);
}
