/* attention.c - project, append to the pages, attend, project. */
#include "model/blocks.h"

/* q, then k | v packed by themselves: `in` reads all of them. */
static int bind_apart(struct binder *b, const struct linear_source in[3], struct attention_weights *ret)
{
    int r = binder_projection(b, in, 1, &ret->in);
    if (r == 0)
        r = binder_projection(b, in + 1, 2, &ret->kv);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < ret->kv.part_count; i++)
        ret->in.parts[ret->in.part_count++] = ret->kv.parts[i];
    ret->in.out += ret->kv.out;
    ret->in.sums |= ret->kv.sums;
    return 0;
}

int attention_bind(struct binder *b, uint32_t layer, struct attention_form form,
                   struct attention_weights *ret)
{
    const struct config *c = b->config;
    char path[BINDER_PATH_MAX];
    struct linear_source in[3];
    uint64_t q_rows = (uint64_t)c->heads * c->head_dim, kv_rows = (uint64_t)c->kv_heads * c->head_dim;
    const struct binder_matrix out = {"self_attn.o_proj", c->hidden};
    ret->gated = form.gated;
    int r = binder_linear(b, binder_path(layer, "self_attn.q_proj", path), form.gated ? 2 * q_rows : q_rows,
                          c->hidden, &in[0]);
    if (r == 0)
        r = binder_linear(b, binder_path(layer, "self_attn.k_proj", path), kv_rows, c->hidden, &in[1]);
    if (r == 0)
        r = binder_linear(b, binder_path(layer, "self_attn.v_proj", path), kv_rows, c->hidden, &in[2]);
    if (r == 0)
        r = form.kv_apart ? bind_apart(b, in, ret) : binder_projection(b, in, 3, &ret->in);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, q_rows, &ret->out);
    if (r == 0 && form.qk_norm)
        r = binder_norm(b, binder_path(layer, "self_attn.q_norm", path), c->head_dim, &ret->q_norm);
    if (r == 0 && form.qk_norm)
        r = binder_norm(b, binder_path(layer, "self_attn.k_norm", path), c->head_dim, &ret->k_norm);
    return r;
}

static struct op_attention op_of(const struct step *s, const struct layer *l, bool keys_only)
{
    const struct attention_weights *w = &l->attention;
    return (struct op_attention){.layer = l->kind_index,
                                 .gated = w->gated,
                                 .mtp = l->mtp,
                                 .keys_only = keys_only,
                                 .q_norm = w->q_norm,
                                 .k_norm = w->k_norm,
                                 .qkv = step_act(PLACE_PROJ, w->in.out),
                                 .angles = step_angles(s),
                                 .out = step_act(PLACE_MID, w->out.in),
                                 .reader = &w->out};
}

void attention_forward(struct step *s, const struct layer *l)
{
    const struct attention_weights *w = &l->attention;
    const struct op_attention a = op_of(s, l, false);
    step_project(s, &w->in, step_normed(s), a.qkv);
    compute_append(s->compute, &a);
    compute_attend(s->compute, &a);
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}

void attention_put(struct step *s, const struct layer *l)
{
    const struct attention_weights *w = &l->attention;
    const struct op_attention a = op_of(s, l, true);
    step_project(s, &w->kv, step_normed(s), act_part(a.qkv, w->in.out - w->kv.out, w->kv.out));
    compute_append(s->compute, &a);
}
