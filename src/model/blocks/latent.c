/* latent.c - multi-head latent attention (contract 10.3).
 *
 * Pages hold c | r of each token, once for all heads: the key, whose first part c is the value, too. Every
 * query is brought to that space first and every result back from it, by each head's own matrices, the halves
 * of kv_b_proj. Prefill, decode and verification compute this one form, so that their bits agree; keys and
 * values of heads are nowhere. */
#include "model/blocks/blocks.h"
#include "model/blocks/layer.h"
#include "model/config/config_key.h"
#include "model/config/json_read.h"
#include "model/family/family.h"
#include "model/load/binder.h"
#include "tensor/role.h"

#include "base/check.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <math.h>

/* Epsilon of the two inner norms; the file's does not apply. */
#define INNER_EPS 1e-6f

/* ---- configuration ---- */

static const struct config_key keys[] = {
    CONFIG_U32(q_rank, 1, CONFIG_HIDDEN_MAX, 0, "q_lora_rank"),
    CONFIG_U32_NEEDED(kv_rank, 1, CONFIG_HEAD_DIM_MAX, "kv_lora_rank"),
    CONFIG_U32_NEEDED(nope_dim, 1, CONFIG_HEAD_DIM_MAX, "qk_nope_head_dim"),
    CONFIG_U32_NEEDED(latent_value_dim, 1, CONFIG_HEAD_DIM_MAX, "v_head_dim"),
    CONFIG_FLAG(rope_interleave, true, "rope_interleave"),
    CONFIG_KEY_END,
};

/* head_dim is qk_rope_head_dim: the family's keys say so. */
static void check(struct json_read *r, const struct config *c)
{
    if (c->kv_rank + c->head_dim > CONFIG_HEAD_DIM_MAX)
        json_read_fail(r, -ENOTSUP, "kv_lora_rank %u and qk_rope_head_dim %u are more than %u together",
                       c->kv_rank, c->head_dim, CONFIG_HEAD_DIM_MAX);
}

static void numbers(const struct config *c, struct layer_config *l)
{
    l->kv_heads = 1;
    l->head_dim = c->kv_rank + c->head_dim;
    l->value_dim = c->kv_rank;
    l->v_in_k = true;
    l->rope_dim = c->head_dim;
}

static uint32_t query_width(const struct config *c)
{
    return c->heads * (c->nope_dim + c->head_dim);
}

static void arrays(const struct config *c, const struct layer_config *l,
                   struct array_spec arrays[STEP_ARRAYS])
{
    uint32_t q = query_width(c), out = l->heads * c->latent_value_dim;
    array_raise(&arrays[ARRAY_PROJ], (c->q_rank ? c->q_rank : q) + l->head_dim, 0);
    array_raise(&arrays[ARRAY_PROJ], l->heads * l->value_dim, 0);
    array_raise(&arrays[ARRAY_MID], out, out);
    array_raise(&arrays[ARRAY_MID], c->q_rank, c->q_rank);
    array_raise(&arrays[ARRAY_LATENT_Q], c->q_rank ? q : 0, 0);
    array_raise(&arrays[ARRAY_LATENT_QUERY], l->heads * l->head_dim, 0);
    array_raise(&arrays[ARRAY_GATES], c->attention_gate == GATE_HEADS ? l->heads : 0, 0);
}

/* ---- binding ---- */

/* The halves of kv_b_proj: each head has nope_dim rows of keys, which queries take as columns, then
 * latent_value_dim rows of values. */
static int bind_halves(struct binder *b, uint32_t layer, struct linear_source *k, struct linear_source *v)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    uint32_t n = c->nope_dim, step = n + c->latent_value_dim;
    struct linear_source both;
    binder_path(b, layer, ROLE_LATENT_KV_B, path);
    int r = binder_linear(b, path, (uint64_t)c->heads * step, c->kv_rank, &both);
    if (r == 0 && both.has_bias)
        r = err_set(b->e, -ENOTSUP, "tensor %s.bias: a bias of this matrix is not supported", path);
    for (uint32_t h = 0; r == 0 && h < c->heads; h++) {
        k[h] = binder_rows(&both, (uint64_t)h * step, n);
        v[h] = binder_rows(&both, (uint64_t)h * step + n, c->latent_value_dim);
    }
    return r;
}

/* Binds keys and values that later MLX writers keep as stacks: of queries [heads, kv_rank, nope_dim]. */
static int bind_stacks(struct binder *b, uint32_t layer, struct linear_source *k, struct linear_source *v)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    struct linear_source queries, values;
    int r = binder_stack(b, binder_path(b, layer, ROLE_LATENT_K, path), c->heads, c->kv_rank, c->nope_dim,
                         &queries);
    if (r == 0)
        r = binder_stack(b, binder_path(b, layer, ROLE_LATENT_V, path), c->heads, c->latent_value_dim,
                         c->kv_rank, &values);
    for (uint32_t h = 0; r == 0 && h < c->heads; h++) {
        k[h] = binder_slice(&queries, h);
        v[h] = binder_slice(&values, h);
    }
    return r;
}

static int bind_heads(struct binder *b, uint32_t layer, struct latent_weights *ret)
{
    char path[BINDER_PATH_MAX];
    uint32_t heads = b->config->heads;
    size_t mark = arena_mark(b->scratch);
    struct linear_source *k = ARENA_ARRAY(b->scratch, struct linear_source, (size_t)heads * 2);
    int r = k ? 0 : err_set(b->e, -ENOMEM, "no memory left for a table of %u heads", heads);
    bool stacks = binder_has(b, binder_path(b, layer, ROLE_LATENT_K, path));
    if (r == 0)
        r = stacks ? bind_stacks(b, layer, k, k + heads) : bind_halves(b, layer, k, k + heads);
    if (r == 0)
        r = binder_heads(b, k, heads, !stacks, &ret->query);
    if (r == 0)
        r = binder_heads(b, k + heads, heads, false, &ret->value);
    arena_rewind(b->scratch, mark);
    return r;
}

/* Binds the projections of the normed tokens: queries, or their low-rank form, and c | r. */
static int bind_in(struct binder *b, uint32_t layer, struct latent_weights *ret)
{
    char path[BINDER_PATH_MAX];
    const struct config *c = b->config;
    const struct binder_matrix q = {ROLE_LATENT_Q_B, query_width(c)};
    const struct binder_matrix in[] = {
        {c->q_rank ? ROLE_LATENT_Q_A : ROLE_Q, c->q_rank ? c->q_rank : query_width(c)},
        {ROLE_LATENT_KV_A, c->kv_rank + c->head_dim}};
    int r = binder_layer_projection(b, layer, in, COUNT_OF(in), c->hidden, &ret->in);
    ret->kv_norm.eps = ret->q_norm.eps = INNER_EPS;
    if (r == 0)
        r = binder_norm(b, binder_path(b, layer, ROLE_LATENT_KV_NORM, path), c->kv_rank,
                        &ret->kv_norm.weight);
    if (r < 0 || c->q_rank == 0)
        return r;
    r = binder_norm(b, binder_path(b, layer, ROLE_LATENT_Q_NORM, path), c->q_rank, &ret->q_norm.weight);
    return r < 0 ? r : binder_layer_projection(b, layer, &q, 1, c->q_rank, &ret->q);
}

static int bind(struct binder *b, uint32_t layer, struct layer *l)
{
    const struct config *c = b->config;
    struct latent_weights *ret = &l->latent;
    const struct binder_matrix out = {ROLE_O, c->hidden};
    ret->scale = (float)(config_score_factor(c) / sqrt((double)(c->nope_dim + c->head_dim)));
    const struct binder_matrix gate = {ROLE_ATTENTION_GATE, c->heads};
    int r = bind_in(b, layer, ret);
    if (r == 0 && c->attention_gate == GATE_HEADS)
        r = binder_layer_projection(b, layer, &gate, 1, c->hidden, &ret->gate);
    if (r == 0)
        r = bind_heads(b, layer, ret);
    return r < 0 ? r
                 : binder_layer_projection(b, layer, &out, 1, (uint64_t)c->heads * c->latent_value_dim,
                                           &ret->out);
}

/* ---- computing ---- */

static void readers(const struct layer *l, const struct projection *ret[OP_READERS_MAX])
{
    ret[0] = &l->latent.in;
    ret[1] = l->latent.gate.out > 0 ? &l->latent.gate : NULL;
}

/* Queries of all heads, from the first columns of `in`. */
static struct act project_queries(struct step *s, const struct latent_weights *w, struct act in)
{
    const struct config *c = s->config;
    if (c->q_rank == 0)
        return act_part(in, 0, query_width(c));
    const struct act low = act_part(in, 0, c->q_rank), normed = step_act(ARRAY_MID, c->q_rank);
    const struct act q = step_act(ARRAY_LATENT_Q, w->q.out);
    compute_norm(s->compute, &(struct op_norm){.h = low, .y = normed, .norm = w->q_norm, .readers = {&w->q}});
    step_project(s, &w->q, normed, q);
    return q;
}

/* Queries, in their array, and keys, in the pages. */
static void put(struct step *s, const struct layer *l)
{
    const struct config *c = s->config;
    const struct latent_weights *w = &l->latent;
    const struct layer_config *n = l->config;
    const struct act in = step_act(ARRAY_PROJ, w->in.out);
    const struct act query = step_act(ARRAY_LATENT_QUERY, n->heads * n->head_dim);
    uint32_t every;
    const float growth = attention_growth(c, n->rope, &every);
    step_project(s, &w->in, step_normed(s), in);
    const struct act q = project_queries(s, w, in);
    compute_project(s->compute,
                    &(struct op_product){.w = &w->query, .x = q, .y = query, .columns = COLUMNS_HEADS}, 1);
    compute_latent(s->compute, &(struct op_latent){.layer = n->index,
                                                   .heads = n->heads,
                                                   .adjacent = c->rope_interleave,
                                                   .norm = w->kv_norm,
                                                   .in = act_part(in, in.width - n->head_dim, n->head_dim),
                                                   .q = q,
                                                   .query = query,
                                                   .angles = step_angles(s, n->rope),
                                                   .growth = growth,
                                                   .growth_every = every});
}

static void forward(struct step *s, const struct layer *l)
{
    const struct latent_weights *w = &l->latent;
    const struct layer_config *n = l->config;
    const struct act query = step_act(ARRAY_LATENT_QUERY, n->heads * n->head_dim);
    const struct act seen = step_act(ARRAY_PROJ, n->heads * n->value_dim),
                     mid = step_act(ARRAY_MID, w->out.in), gates = step_act(ARRAY_GATES, w->gate.out);
    if (w->gate.out > 0)
        step_project(s, &w->gate, step_normed(s), gates);
    put(s, l);
    compute_attend(s->compute, &(struct op_attention){.layer = n->index,
                                                      .heads = n->heads,
                                                      .scale = w->scale,
                                                      .mtp = l->mtp,
                                                      .qkv = query,
                                                      .out = seen});
    const struct op_product values = {
        .w = &w->value, .x = seen, .y = mid, .columns = COLUMNS_HEADS, .reader = &w->out};
    compute_project(s->compute, &values, 1);
    if (w->gate.out > 0)
        compute_head_gate(s->compute, &(struct op_head_gate){.function = s->config->family->own_gate_function,
                                                             .heads = n->heads,
                                                             .gate = gates,
                                                             .out = mid,
                                                             .reader = &w->out});
    step_project(s, &w->out, mid, step_out(s));
    step_leave_out(s);
}

const struct block block_latent = {.state = BLOCK_KV,
                                   .keys = keys,
                                   .check = check,
                                   .numbers = numbers,
                                   .arrays = arrays,
                                   .bind = bind,
                                   .readers = readers,
                                   .forward = forward,
                                   .put = put};
