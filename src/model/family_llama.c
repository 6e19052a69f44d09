/* family_llama.c - llama, qwen3 and qwen3_vl: full attention and a dense MLP in every layer; the latter two
 * norm their queries and keys. */
#include "model/family.h"

#include "model/blocks.h"

#include "base/check.h"

#include <errno.h>

static int check(const struct config *c, struct err *e)
{
    if (c->intermediate == 0)
        return err_set(e, -EINVAL, "config.json: intermediate_size is missing");
    if (c->experts != 0)
        return err_set(e, -ENOTSUP, "config.json: %s with num_experts is not supported", c->family_name);
    if (c->linear_count != 0)
        return err_set(e, -ENOTSUP, "config.json: %s with linear_attention layers is not supported",
                       c->family_name);
    return 0;
}

static int bind_layer(struct binder *b, uint32_t index, struct layer *ret)
{
    char path[BINDER_PATH_MAX];
    struct attention_form form = {.qk_norm = strcmp(b->config->family_name, "llama") != 0};
    int r = binder_norm(b, binder_path(index, "input_layernorm", path), b->config->hidden, &ret->norm_mixer);
    if (r == 0)
        r = attention_bind(b, index, form, &ret->attention);
    if (r == 0)
        r = binder_norm(b, binder_path(index, "post_attention_layernorm", path), b->config->hidden,
                        &ret->norm_mlp);
    return r == 0 ? mlp_bind(b, index, &ret->mlp) : r;
}

static void layer(struct step *s, const struct layer *l)
{
    step_norm(s, l->norm_mixer, &l->attention.in, NULL);
    attention_forward(s, l);
    step_norm(s, l->norm_mlp, &l->mlp.in, NULL);
    mlp_forward(s, l);
}

const struct family family_qwen3_vl = {
    .names = {"qwen3_vl"},
    .partial_rotary_default = 1,
    .images = true,
    .deepstack = true,
    .check = check,
    .bind_layer = bind_layer,
    .layer = layer,
};

const struct family family_llama = {
    .names = {"llama", "qwen3"},
    .partial_rotary_default = 1,
    .check = check,
    .bind_layer = bind_layer,
    .layer = layer,
};
