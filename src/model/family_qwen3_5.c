/* family_qwen3_5.c - qwen3_5 and qwen3_5_moe: delta nets with a gated full attention every few layers; dense
 * or experts. */
#include "model/family.h"

#include "model/blocks.h"

#include "base/check.h"

#include <errno.h>

static int check(const struct config *c, struct err *e)
{
    bool moe = strcmp(c->family_name, "qwen3_5_moe") == 0;
    if (moe && (c->experts == 0 || c->shared_intermediate == 0))
        return err_set(e, -EINVAL, "config.json: %s needs num_experts and shared_expert_intermediate_size",
                       c->family_name);
    if (!moe && c->experts != 0)
        return err_set(e, -ENOTSUP, "config.json: %s with num_experts is not supported", c->family_name);
    if (!moe && c->intermediate == 0)
        return err_set(e, -EINVAL, "config.json: intermediate_size is missing");
    return 0;
}

static int bind_mixer(struct binder *b, uint32_t index, struct layer *ret)
{
    const struct attention_form form = {.gated = true, .qk_norm = true, .kv_apart = ret->mtp};
    return ret->kind == LAYER_FULL ? attention_bind(b, index, form, &ret->attention)
                                   : delta_net_bind(b, index, &ret->delta);
}

static int bind_layer(struct binder *b, uint32_t index, struct layer *ret)
{
    char path[BINDER_PATH_MAX];
    int r = binder_norm(b, binder_path(index, "input_layernorm", path), b->config->hidden, &ret->norm_mixer);
    if (r == 0)
        r = bind_mixer(b, index, ret);
    if (r == 0)
        r = binder_norm(b, binder_path(index, "post_attention_layernorm", path), b->config->hidden,
                        &ret->norm_mlp);
    if (r < 0)
        return r;
    ret->has_experts = b->config->experts > 0;
    return ret->has_experts ? moe_bind(b, index, &ret->moe) : mlp_bind(b, index, &ret->mlp);
}

static void mix(struct step *s, const struct layer *l)
{
    if (l->kind == LAYER_FULL) {
        step_norm(s, l->norm_mixer, &l->attention.in, NULL);
        attention_forward(s, l);
    } else {
        step_norm(s, l->norm_mixer, &l->delta.in, NULL);
        delta_net_forward(s, l);
    }
}

static void layer(struct step *s, const struct layer *l)
{
    mix(s, l);
    if (l->has_experts) {
        step_norm(s, l->norm_mlp, &l->moe.in, &l->moe.up);
        moe_forward(s, l);
    } else {
        step_norm(s, l->norm_mlp, &l->mlp.in, NULL);
        mlp_forward(s, l);
    }
}

const struct family family_qwen3_5 = {
    .names = {"qwen3_5", "qwen3_5_moe"},
    .partial_rotary_default = 0.25,
    .shifted_norms = true,
    .mtp = true,
    .images = true,
    .check = check,
    .bind_layer = bind_layer,
    .layer = layer,
};
