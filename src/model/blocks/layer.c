/* layer.c - one layer, as its family and its blocks describe it: norms, mixer, norms, MLP. */
#include "model/blocks/layer.h"

#include "model/blocks/blocks.h"
#include "model/family/family.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"
#include "base/none.h"

const struct block *const blocks[] = {
    &block_attention,   &block_latent, &block_delta_net, &block_short_conv, &block_mamba,
    &block_kda,         &block_mlp,    &block_mlp_plain, &block_experts,    &block_experts_beside,
    &block_layer_input, NULL};

/* ---- binding ---- */

static int bind_norm(struct binder *b, uint32_t index, enum tensor_role role, struct norm *ret)
{
    char path[BINDER_PATH_MAX];
    return binder_norm_biased(b, binder_path(b, index, role, path), b->config->hidden, ret);
}

/* The norm that is applied to the stream in front of a block: behind the block before, or the embedding. */
static int bind_stream_norm(struct binder *b, uint32_t index, enum tensor_role before, struct norm *ret)
{
    if (before == ROLE_MLP_NORM)
        return bind_norm(b, index, ROLE_MIXER_NORM_AFTER, ret);
    return index > 0 ? bind_norm(b, index - 1, ROLE_MLP_NORM_AFTER, ret)
                     : bind_norm(b, NONE, ROLE_EMBEDDING_NORM, ret);
}

/* A block with the norms around it. */
static int bind_branch(struct binder *b, uint32_t index, const struct block *block,
                       enum norm_position position, enum tensor_role before, enum tensor_role after,
                       struct layer_norms *norms, struct layer *ret)
{
    bool first = position != NORM_PARALLEL || before == ROLE_MIXER_NORM; /* which reads what its norm left */
    bool is_after = position == NORM_POST || position == NORM_SANDWICH;
    int r = position == NORM_STREAM           ? bind_stream_norm(b, index, before, &norms->before)
            : position == NORM_POST || !first ? 0
                                              : bind_norm(b, index, before, &norms->before);
    if (r == 0)
        r = block->bind(b, index, ret);
    norms->after.eps = b->config->eps_after;
    return r == 0 && is_after ? bind_norm(b, index, after, &norms->after) : r;
}

int layer_bind(struct binder *b, uint32_t index, struct layer *ret)
{
    char path[BINDER_PATH_MAX];
    const struct layer_config *c = ret->config;
    const struct family *f = b->config->family;
    int r = bind_branch(b, index, c->mixer, f->norm_position, ROLE_MIXER_NORM, ROLE_MIXER_NORM_AFTER,
                        &ret->norm_mixer, ret);
    if (r == 0 && c->beside)
        r = c->beside->bind(b, index, ret);
    const bool apart = ret->mtp && f->mtp == MTP_PAIR; /* the MLP is the next layer's mixer */
    if (r == 0 && c->mlp)
        r = bind_branch(b, index + apart, c->mlp, f->norm_position, apart ? ROLE_MIXER_NORM : ROLE_MLP_NORM,
                        ROLE_MLP_NORM_AFTER, &ret->norm_mlp, ret);
    if (r == 0 && c->extra)
        r = bind_branch(b, index, c->extra, NORM_POST, ROLE_NONE, ROLE_LAYER_INPUT_NORM_AFTER,
                        &ret->norm_extra, ret);
    if (r == 0 && f->layer_scale)
        r = binder_vector(b, binder_path(b, index, ROLE_LAYER_SCALE, path), 1, &ret->scale);
    return r;
}

/* ---- computing ---- */

/* The factor of a branch's result, if it has one of its own. */
static void scale_result(struct step *s, float own)
{
    s->pending.scale = own != 0 ? own : s->config->residual_scale;
}

/* The norm in front of a block, and of a second one that reads the same. */
static void norm_for(struct step *s, const struct layer *l, const struct norm *norm,
                     const struct block *block, const struct block *beside)
{
    const struct projection *readers[OP_READERS_MAX] = {NULL}, *more[OP_READERS_MAX] = {NULL};
    uint32_t count = 0;
    block->readers(l, readers);
    if (beside)
        beside->readers(l, more);
    while (count < OP_READERS_MAX && readers[count])
        count++;
    for (uint32_t i = 0; i < OP_READERS_MAX && more[i]; i++) {
        ASSERT(count < OP_READERS_MAX);
        readers[count++] = more[i];
    }
    step_norm(s, norm, readers);
}

static void branch(struct step *s, const struct layer *l, const struct block *block,
                   const struct layer_norms *norms, const struct block *beside, float scale)
{
    norm_for(s, l, &norms->before, block, beside);
    block->forward(s, l);
    s->pending.norm = norms->after;
    scale_result(s, scale);
}

/* A second mixer of the same normed tokens. */
static void branch_beside(struct step *s, const struct layer *l)
{
    step_add(s);
    l->config->beside->forward(s, l);
    scale_result(s, s->config->ssm_out_scale);
}

/* Both read the same normed tokens; the mixer's result is added before the MLP's takes its place. */
static void side_by_side(struct step *s, const struct layer *l)
{
    norm_for(s, l, &l->norm_mixer.before, l->config->mixer, l->config->mlp);
    l->config->mixer->forward(s, l);
    s->pending.scale = s->config->residual_scale;
    step_add(s);
    l->config->mlp->forward(s, l);
    scale_result(s, l->config->mlp == &block_experts ? s->config->moe_scale : 0);
}

void layer_forward_mlp(struct step *s, const struct layer *l)
{
    branch(s, l, l->config->mlp, &l->norm_mlp, NULL, s->config->mlp_scales[1]);
}

void layer_forward(struct step *s, const struct layer *l)
{
    const struct layer_config *c = l->config;
    if (s->config->family->norm_position == NORM_PARALLEL) {
        side_by_side(s, l);
        return;
    }
    branch(s, l, c->mixer, &l->norm_mixer, c->beside, s->config->attention_out_scale);
    if (c->beside)
        branch_beside(s, l);
    if (c->mlp)
        layer_forward_mlp(s, l);
    if (c->extra)
        branch(s, l, c->extra, &l->norm_extra, NULL, 0);
    s->pending.layer_scale = l->scale;
}
