/* attention.c - project, append to the pages, attend, project. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config.h"
#include "model/family/family.h"
#include "model/family/vision_family.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/none.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <math.h>

/* q, then k | v packed by themselves: `in` reads all of them. */
static int bind_apart(struct binder *b, struct linear_source in[3], struct attention_weights *ret)
{
    if (in[0].has_bias || in[1].has_bias || in[2].has_bias)
        return err_set(b->e, -ENOTSUP, "biases in the attention of an MTP head are not supported");
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

static int bind_norms(struct binder *b, uint32_t layer, const struct layer_config *c,
                      struct attention_weights *ret)
{
    char path[BINDER_PATH_MAX];
    enum qk_norm norm = b->config->family->qk_norm;
    uint32_t q = c->head_dim, k = c->head_dim;
    bool own = c->kv_from == NONE;
    if (own && b->config->family->v_norm) {
        int r = binder_ones(b, c->head_dim, &ret->v_norm);
        if (r < 0)
            return r;
    }
    if (norm == QK_NORM_NONE || (norm == QK_NORM_OPTION && !b->config->use_qk_norm))
        return 0;
    if (norm == QK_NORM_PLAIN) {
        int r = binder_ones(b, q, &ret->q_norm);
        return r < 0 ? r : binder_ones(b, k, &ret->k_norm);
    }
    if (norm == QK_NORM_ALL) {
        q *= c->heads;
        k *= c->kv_heads;
    }
    int r = binder_norm(b, binder_path(b, layer, ROLE_Q_NORM, path), q, &ret->q_norm);
    return r < 0 || !own ? r : binder_norm(b, binder_path(b, layer, ROLE_K_NORM, path), k, &ret->k_norm);
}

/* The parts of q, k, v that the checkpoint has. */
static uint32_t part_count(const struct layer_config *c)
{
    return c->kv_from != NONE ? 1 : c->v_is_k ? 2 : 3;
}

/* A factor of keys is one of scores. So is one of the input, twice. */
static float score_scale(const struct config *c, const struct layer_config *l)
{
    double key = c->key_scale != 0 ? (double)c->key_scale : 1;
    double in = c->attention_in_scale != 0 ? (double)c->attention_in_scale : 1;
    if (c->score_scale > 0)
        return c->score_scale;
    return (float)(key * in * in / sqrt(c->score_scalar > 0 ? (double)c->score_scalar : (double)l->head_dim));
}

/* q | k | v, `count` of them, or one tensor with the rows of all three. Then the gates. */
static int bind_in(struct binder *b, uint32_t layer, bool mtp, bool pair, struct binder_matrix parts[4],
                   uint32_t count, struct attention_weights *ret)
{
    struct linear_source in[4];
    uint32_t hidden = b->config->hidden << pair;
    if (!mtp && count == 3 && binder_layer_has(b, layer, ROLE_QKV)) {
        parts[0].role = ROLE_QKV;
        parts[0].out += parts[1].out + parts[2].out;
        count = 1;
    }
    if (ret->gates > 0)
        parts[count++] = (struct binder_matrix){ROLE_ATTENTION_GATE, ret->gates};
    int r = binder_layer_matrices(b, layer, parts, count, hidden, in);
    if (r < 0)
        return r;
    return mtp && b->config->family->mtp != MTP_NEXT ? bind_apart(b, in, ret)
                                                     : binder_projection(b, in, count, &ret->in);
}

static uint32_t gates_of(const struct config *c, const struct layer_config *l)
{
    return c->attention_gate == GATE_HEADS    ? l->heads
           : c->attention_gate == GATE_VALUES ? l->heads * l->value_dim
                                              : 0;
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    char path[BINDER_PATH_MAX];
    const struct family *f = b->config->family;
    const struct layer_config *c = l->config;
    struct attention_weights *ret = &l->attention;
    uint32_t q_rows = c->heads * c->head_dim;
    /* A factor of the input is applied to scores and results, so biases have its inverse. */
    float in_scale = b->config->attention_in_scale, factor = in_scale != 0 ? 1 / in_scale : 0;
    struct binder_matrix parts[4] = {{ROLE_Q, f->attention_gate ? 2 * q_rows : q_rows, factor},
                                     {ROLE_K, c->kv_heads * c->head_dim, factor},
                                     {ROLE_V, c->kv_heads * c->value_dim, factor}};
    const struct binder_matrix out = {ROLE_O, b->config->hidden, factor};
    ret->gated = f->attention_gate;
    ret->gates = gates_of(b->config, c);
    ret->scale = score_scale(b->config, c);
    int r = bind_in(b, layer, l->mtp, c->pair, parts, part_count(c), ret);
    if (r == 0)
        r = binder_layer_projection(b, layer, &out, 1, c->heads * c->value_dim, &ret->out);
    if (r == 0 && f->sinks && (!f->sinks_windowed || c->window > 0))
        r = binder_vector(b, binder_path(b, layer, ROLE_SINKS, path), c->heads, &ret->sinks);
    return r == 0 ? bind_norms(b, layer, c, ret) : r;
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    uint32_t q = l->heads * l->head_dim, out = l->heads * l->value_dim;
    uint32_t kv = l->kv_heads * (l->head_dim + l->value_dim);
    array_raise(&arrays[ARRAY_PROJ], (c->family->attention_gate ? 2 * q : q) + kv + gates_of(c, l), 0);
    array_raise(&arrays[ARRAY_MID], out, out);
}

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->attention.in;
}

float attention_growth(const struct config *c, uint32_t rope, uint32_t *every)
{
    *every = 0;
    if (rope == ROPE_ABSENT)
        return 0;
    *every = (uint32_t)c->ropes[rope].original_max;
    return (float)c->ropes[rope].growth;
}

/* Whether an image's tokens see each other in this layer. */
static bool sees_images(const struct config *c, const struct layer *l)
{
    const struct vision_config *v = &c->vision;
    return v->shape.both_ways && !l->mtp && (!v->family->windowed_ways || l->config->window > 0);
}

static struct op_attention op_of(const struct step *s, const struct layer *l, bool keys_only)
{
    const struct attention_weights *w = &l->attention;
    uint32_t every;
    float growth = attention_growth(s->config, l->config->rope, &every);
    return (struct op_attention){.layer = l->config->index,
                                 .heads = l->config->heads,
                                 .scale = w->scale,
                                 .window = l->config->window,
                                 .both_ways = s->config->both_ways,
                                 .cap = s->config->score_cap,
                                 .norm_all = s->config->family->qk_norm == QK_NORM_ALL,
                                 .norm_rotated = s->config->family->qk_norm == QK_NORM_ROTATED,
                                 .growth = growth,
                                 .growth_every = every,
                                 .adjacent = s->config->family->rope_adjacent,
                                 .gated = w->gated,
                                 .mtp = l->mtp,
                                 .image_ends = sees_images(s->config, l),
                                 .keys_only = keys_only,
                                 .queries_only = l->config->kv_from != NONE,
                                 .v_is_k = l->config->v_is_k,
                                 .q_norm = w->q_norm,
                                 .k_norm = w->k_norm,
                                 .sinks = w->sinks,
                                 .v_norm = w->v_norm,
                                 .qkv = step_act(ARRAY_PROJ, w->in.out - w->gates),
                                 .angles = step_angles(s, l->config->rope),
                                 .out = step_act(ARRAY_MID, w->out.in),
                                 .reader = w->gates > 0 ? NULL : &w->out};
}

/* The pair of an EAGLE-3 head lies where the results of the attention will. */
static struct act input_of(const struct step *s, const struct layer *l)
{
    return l->config->pair ? step_act(ARRAY_MID, l->attention.in.in) : step_normed(s);
}

static void forward(struct step *s, const struct layer *l)
{
    const struct attention_weights *w = &l->attention;
    const struct op_attention a = op_of(s, l, false);
    const struct act in = step_act(ARRAY_PROJ, w->in.out);
    step_project(s, &w->in, input_of(s, l), in);
    compute_append(s->compute, &a);
    compute_attend(s->compute, &a);
    if (w->gates > 0)
        compute_head_gate(s->compute, &(struct op_head_gate){.function = s->config->family->own_gate_function,
                                                             .heads = a.heads,
                                                             .gate = act_part(in, a.qkv.width, w->gates),
                                                             .out = a.out,
                                                             .reader = &w->out});
    step_project(s, &w->out, a.out, step_out(s));
    step_leave_out(s);
}

const struct projection *attention_put_reader(const struct layer *l)
{
    return l->attention.kv.out > 0 ? &l->attention.kv : &l->attention.in;
}

static void put(struct step *s, const struct layer *l)
{
    const struct op_attention a = op_of(s, l, true);
    const struct projection *w = attention_put_reader(l);
    step_project(s, w, input_of(s, l), act_part(a.qkv, a.qkv.width - w->out, w->out));
    compute_append(s->compute, &a);
}

const struct block block_attention = {
    .state = BLOCK_KV, .arrays = arrays, .bind = bind, .readers = readers, .forward = forward, .put = put};
