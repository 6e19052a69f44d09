/* ops.h - the compute contract: the block operations of a forward pass.
 *
 * A step is begun with a batch, gets operations one after the other, and ends. An operation takes arrays of
 * the step's workspace and weights, never a pointer that host code follows; it may run at once or later, in
 * order. So operations return nothing: a failure is reported by compute_step_end(). Results that the host
 * reads (logits, the best drafts) are complete after that.
 *
 * Failure. An operation can fail with its device only: -EIO, or -ENODEV when the device is lost. All memory
 * that it touches was committed before the step. Arguments that break what is written here are mistakes of
 * the caller. A value that is not finite is not a failure: it spreads within its
 * sequence.
 *
 * Exactness. An output element is one fixed chain of f32 operations. It depends on its own sequence's tokens
 * and absolute positions alone, never on how many columns, sequences, chunks or threads share the step. The
 * chains are defined in kernel/kern.h and kernel/matrix.h; this file says which of them an operation uses,
 * and their order. A backend splits outputs as it likes, never a sum.
 *
 * One thread, the engine's. The arguments of a call are read before it returns; weights and what they point
 * at stay. */
#ifndef PLATEAU_COMPUTE_OPS_H
#define PLATEAU_COMPUTE_OPS_H

#include "memory/dev.h"

#include <stdbool.h>
#include <stdint.h>

struct batch;
struct op_encode;
struct projection;
struct weight;

/* ---- arrays ---- */

enum array_rows {
    ROWS_TOKENS, /* a row for each token of a step */
    ROWS_PAIRS,  /* for each (token, rank of its chosen expert), at token * top_k + rank */
};

/* An array of the workspace: rows of `width` floats. The first `read` floats of a row may be the input of a
 * projection, for which a backend keeps what its products need beside them (group sums, another type). */
struct array_spec {
    enum array_rows rows;
    uint32_t width, read;
};

/* The values [from, from + width) of each row of an array. */
struct act {
    uint32_t array, from, width;
};

static inline struct act act_part(struct act a, uint32_t from, uint32_t width)
{
    return (struct act){a.array, a.from + from, width};
}

/* ---- operations ---- */

/* Output of a block that is still to be added to the residual stream. The next operation over tokens adds it
 * first, which saves a pass over them. */
enum residual_kind {
    RESIDUAL_NONE,
    RESIDUAL_ADD,     /* r = out */
    RESIDUAL_EXPERTS, /* s = 0; s = fma(weight of rank r, row r of pairs, s) for r in router order;
                       * s = fma(shared gate, out, s) with a shared expert; r = s. `sum` is room for s */
};
/* A norm of tokens: rmsnorm(x) * weight, or kern_layernorm_fn where compute_shape.layer_norm says so. */
struct norm {
    dev_ptr weight; /* null: no norm */
    dev_ptr bias;   /* bias of a LayerNorm; null: none */
    float eps;      /* 0: compute_shape.eps */
};

/* With `norm` r = norm(r), with `scale` h = fma(scale, r, h), else h += r. With `norm_pairs` the sum over
 * ranks is s = rmsnorm(s) * norm_pairs before the shared expert is added. With `layer_scale` h *= it. */
struct residual {
    enum residual_kind kind;
    struct act out, pairs, sum; /* out.width 0: no shared expert */
    struct norm norm;
    dev_ptr norm_pairs;  /* null: none */
    float scale;         /* 0: none */
    dev_ptr layer_scale; /* [1]; null: none */
};

/* h[t] = the token's embedding times scale, or its image's features; cosines | sines of its position. With
 * learned positions h[t] += row axis[0] of their table, then += the row of its token type. Fails with its
 * device only: an id is below the vocabulary, and features are there for every token of an image. */
struct op_embed {
    const struct weight *table;
    const struct weight *positions, *types; /* NULL: none */
    const struct rope_tables *ropes;
    struct act h, angles; /* angles: rope_tables_width() */
    struct act row;       /* room for a row of positions or types */
    float scale;          /* 0: none */
};

/* Inputs per layer (contract 10.7). Layer i has the values x_i of x, and e_i of the token's row of `table`:
 * x_i = fma(row_scale, e_i, rmsnorm(x_i * input_scale) * norm) * scale. Fails with its device only. */
struct op_layer_inputs {
    const struct weight *table; /* [vocab, x.width] */
    struct act x;               /* in place */
    struct act row;             /* room for the row */
    uint32_t width;             /* width of one layer's values */
    dev_ptr norm;               /* [width] */
    float input_scale, row_scale, scale;
};

/* Adds the residual, then y = norm(h), or y = h without a weight, for `readers`, the projections that read y
 * next. With `stream` h becomes y, too. With y.width 0 the residual is all. Fails with its device only. */
#define OP_READERS_MAX 3
struct op_norm {
    struct residual add; /* to h */
    struct act h, y;
    struct norm norm;
    bool stream;
    const struct projection *readers[OP_READERS_MAX];
    /* MTP head: the hidden states of the next step's start go to the batch's states. width 0: none. */
    struct act keep;
};

/* Adds the residual, then to image tokens features [from, from + hidden) of their features. Fails with its
 * device only. */
struct op_features {
    struct residual add;
    struct act h;
    uint32_t from;
};

/* y = w x, for every column, then y += bias where w has one. The products of a list run together, and fail
 * with their device only. */
enum product_columns {
    COLUMNS_TOKENS,
    COLUMNS_LOGITS,  /* the rows that gather left, [logits] */
    COLUMNS_EXPERTS, /* every pair with its own expert's matrix; x is the token's row or the pair's */
    COLUMNS_HEADS, /* every head of every token with its own matrix of the stack: x and y are rows of as many
                    * equal parts, of which a product reads the first w.in values, and writes w.out */
};
struct op_product {
    const struct projection *w;
    struct act x, y; /* y of OP_LOGITS: the batch's logits */
    enum product_columns columns;
    const struct projection *reader; /* the projection that reads y; COLUMNS_HEADS only. NULL: it needs
                                      * nothing beside y */
};
#define OP_PRODUCTS_MAX 2
#define OP_LOGITS       UINT32_MAX /* the logits in place of an array */

/* Queries and keys: rmsnorm where there is a weight, then rotation, in place. K and V go to the pages. Then
 * softmax attention (kern_attn_fn) of every query over its sequence, and with `gated` out *= sigmoid(gate).
 * Both halves fail with their device only: a sequence has its pages before the step. */
struct op_attention {
    uint32_t layer;    /* index in compute_shape.kv: the KV heads, their size and place in a page */
    uint32_t heads;    /* heads of queries */
    float scale;       /* factor of scores */
    uint32_t window;   /* keys that a query sees, its own counted; 0: all */
    bool both_ways;    /* a query sees later keys, too: all of its sequence, which is in one step; of a window
                        * as many as earlier ones */
    float cap;         /* cap of scores (kern_kv.cap); 0: none */
    bool norm_all;     /* the norms are over all heads together, not over each */
    bool norm_rotated; /* the norms are applied after the rotation, to each head */
    float
        growth; /* after both, the query at position p is times 1 + growth ln(1 + p / growth_every), where */
    uint32_t growth_every; /* the quotient is rounded down; growth 0: none */
    bool adjacent;         /* the rotation is of pairs (2 j, 2 j + 1), not of (j, j + half) */
    bool gated;            /* a head's query and gate lie side by side */
    bool mtp;              /* entry 0 is zeros that no query sees */
    bool image_ends;       /* a query sees the tokens before its end in batch.ends; else those up to itself */
    bool keys_only;        /* append alone: q is not there */
    bool queries_only;     /* K and V of the layer are in the pages: k and v are not there */
    bool v_is_k;           /* v is k before its norm and rotation, copied to behind k */
    dev_ptr q_norm, k_norm; /* [head_dim], or of all heads; null: none */
    dev_ptr v_norm;         /* [head_dim], of each head; null: none */
    dev_ptr sinks;          /* [heads]: a score each (kern_query.sink); null: none */
    struct act qkv, out;
    struct act angles;               /* cos | sin of the layer's table; width 0: no rotation */
    const struct projection *reader; /* the projection that reads out; NULL: it needs nothing beside out */
};

/* Latent attention (contract 10.3) in front of compute_attend(), whose queries are `query`. The key of a
 * token is c | r of `in`: c normed, r rotated. It goes to the pages, and the value is c. Of each
 * head n | r of q the rotated r becomes the end of the head of query. Fails with its device only. */
struct op_latent {
    uint32_t layer, heads; /* see op_attention */
    bool adjacent;
    struct norm norm;    /* norm of c */
    struct act in;       /* k_width values */
    struct act q, query; /* heads of n | r, and of k_width values */
    struct act angles;
    float growth; /* growth of queries, see op_attention */
    uint32_t growth_every;
};

/* The gated delta net between its projections (contract 2.7). Convolve: convolution and SiLU of q | k | v,
 * l2norm of queries (scaled by 1 / sqrt(key_dim)) and keys, and the gates alpha and beta of each value head.
 * Recur: pending inputs of state_in first, then the recurrence, then the gated norm with z. Both fail with
 * their device only; state_out is undefined then.
 * With compute_shape.decay_channels it is Kimi delta attention (contract 10.9): alpha has a number for each
 * channel of a key, and the norm is times sigmoid(z). The CPU alone computes it. */
enum delta_decay {
    DELTA_DECAY_HEADS,    /* exp(decay softplus(a + dt_bias)), of each head */
    DELTA_DECAY_CHANNELS, /* exp(decay softplus(a + dt_bias)), of each channel */
    DELTA_DECAY_BOUNDED   /* exp(decay_bound sigmoid(-decay (a + dt_bias))), of each channel */
};
struct op_delta {
    uint32_t layer; /* index in compute_shape.recurrent */
    enum delta_decay decay_kind;
    float decay_bound;
    dev_ptr conv, decay, dt_bias, norm;
    struct act in;              /* q | k | v | z | b | a; of channels q | k | v | b */
    struct act decays, z;       /* a and z of channels */
    struct act conv_out, gates; /* gates: alpha | beta */
    struct act out;
    const struct projection *reader; /* the projection that reads out */
};

/* Mamba-2 between its projections (contract 10.5). Convolve: convolution and SiLU of x | B | C;
 * dt = softplus(dt + dt_bias), at least dt_min and, unless dt_max is 0, at most dt_max; decay = exp(a dt), of
 * each head. Recur: pending inputs of state_in first, then the recurrence (kern_ssm_fn), then the gate
 * silu(z) and the norm over each group's values. Both fail with their device only; state_out is undefined
 * then. */
enum ssm_norm { SSM_NORM_AFTER_GATE, SSM_NORM_BEFORE_GATE, SSM_NORM_NONE };
struct op_ssm {
    uint32_t layer; /* index in compute_shape.recurrent */
    enum ssm_norm norm_kind;
    float dt_min, dt_max;
    dev_ptr conv, conv_bias;        /* [taps][channels], [channels]; null: no bias */
    dev_ptr a, dt_bias, skip, norm; /* [heads] each, [heads * head_dim]; a: -exp(A_log) */
    struct act in;                  /* z | x | B | C | dt */
    struct act conv_out, gates;     /* gates: dt | decay */
    struct act out;
    const struct projection *reader; /* the projection that reads out */
};

/* x *= factor, in place: part after part of each row, from its first value on. Fails with its device only. */
#define OP_SCALE_PARTS_MAX 5
struct op_scale {
    struct act x;
    uint32_t count;
    struct scale_part {
        uint32_t width;
        float factor;
    } parts[OP_SCALE_PARTS_MAX];
};

/* out *= f(gate), in place. A head of out has as many gates as values, or one: gate is as wide as out, or has
 * `heads` values. Fails with its device only. */
enum head_gate { HEAD_GATE_SIGMOID, HEAD_GATE_SOFTPLUS };
struct op_head_gate {
    enum head_gate function;
    uint32_t heads;
    struct act gate, out;
    const struct projection *reader; /* the projection that reads out */
};

/* The short convolution between its projections (contract 10.6): out = c * conv(b * u) of in = b | c | u,
 * each as wide as out; kern_conv_fn without SiLU. Spoils in. Fails with its device only; state_out is
 * undefined then. */
struct op_short_conv {
    uint32_t layer; /* index in compute_shape.recurrent */
    uint32_t taps;
    dev_ptr conv, bias; /* [taps][channels], [channels]; null: no bias */
    struct act in, out;
    const struct projection *reader; /* the projection that reads out */
};

/* out = f(gate) * up of in = gate | up, or with `plain` out = f(in). out may be the first values of in. With
 * `up` in is the gate alone. Fails with its device only. */
enum glu_function {
    GLU_SILU,
    GLU_GELU_TANH,
    GLU_GELU_ERF,
    GLU_RELU_SQUARE,
    GLU_SWIGLU_CLIP, /* kern_swiglu_clip_fn of gate and up; never plain */
    /* The CPU alone computes these. */
    GLU_SILU_CLIP, /* kern_silu_clip_fn of gate and up; never plain */
    GLU_XIELU      /* kern_xielu_fn; plain */
};
/* Constants of GLU_SWIGLU_CLIP, limit of GLU_SILU_CLIP. */
struct glu_clip {
    float alpha, limit;
    dev_ptr xielu; /* GLU_XIELU: [3], p of kern_xielu_fn */
};
struct op_glu {
    enum glu_function function;
    struct glu_clip clip;
    bool plain;
    struct act in, out;
    struct act up; /* width 0: it follows the gate */
    const struct projection *reader;
};

/* Scores p of the router's logits: their softmax, their sigmoids, or the softmax of the chosen ones, which
 * the logits themselves choose. The top_k experts with the largest c = p + correction (the lower index on
 * ties), of the groups_top best groups of experts; a group counts by the sum of its two largest c, or with
 * group_max by the largest. Their weights are p, with `normalise` divided by (sum + normalise_eps), times
 * scale, times their experts' expert_scale. Then the shared expert's gate, 1 or a sigmoid, and its
 * activation. Spoils in. Fails with its device only: logits that are not finite choose some experts, too. */
#define ROUTE_GROUPS_MAX 64
enum route_score {
    ROUTE_SOFTMAX,
    ROUTE_SIGMOID,
    ROUTE_SOFTMAX_CHOSEN,
    /* Two experts are chosen. The weight of each is its part of the softmax of the logits x that were not
     * chosen before, with (largest - x) / max(|x|, largest) <= 2 jitter. */
    ROUTE_SPARSEMIXER
};
enum route_shared { ROUTE_SHARED_NONE, ROUTE_SHARED_GATED, ROUTE_SHARED_WHOLE };
struct op_route {
    enum route_score score;
    enum route_shared shared;
    bool normalise;
    float normalise_eps, scale, jitter;
    uint32_t groups, groups_top; /* 0 or 1 group: all experts */
    bool group_max;
    dev_ptr correction;         /* [experts]; null: none */
    dev_ptr expert_scale;       /* [experts]; null: none */
    enum glu_function function; /* activation of the shared expert */
    struct glu_clip clip;       /* clip of the shared expert */
    bool plain;                 /* the shared expert has no gate, its activation is f(up) */
    struct act in;  /* router | shared gate (1) if GATED | gate | up of the shared expert if there is one */
    struct act out; /* activation of the shared expert */
    const struct projection *reader; /* the projection that reads out */
};

/* The chosen experts' results of x, a row of `out` for each pair: the product of `up` with the token's row,
 * its activation, and the product of `down` with that. With `machine` the weights lie in the machine's memory
 * (compute_opts.experts): the CPU computes them with its own chains. Else `rows` is spoilt. Fails with its
 * device only. */
struct op_experts {
    const struct projection *up, *down;
    enum glu_function function;
    struct glu_clip clip;
    bool plain;
    bool machine;
    struct act x, rows, mid, out; /* rows: outputs of `up`; mid: its first values, inputs of `down` */
};

/* Row i of y = norm(h), or without a weight h itself, of the token logit_columns[i]: rows of logits, then
 * rows of values. Fails with its device only. */
struct op_gather {
    struct residual add;
    struct act h, y;
    struct norm norm; /* no weight: h is normed already */
    const struct projection *reader;
};

/* The batch's logits x: x *= scale, then x = cap * tanh(x / cap). Fails with its device only. */
struct op_finish {
    float scale; /* 0: none */
    float cap;   /* 0: none */
};

/* Row logit_count + i of x goes to the batch's values[i]. Fails with its device only. */
struct op_values {
    struct act x;
};

/* Inputs of the MTP head (contract 2.8): pair = norm(embedding) | norm(hidden state before the token), and
 * the angles of the token before. In a step h = rmsnorm(h + residual) * final_norm comes first; the hidden
 * state of a sequence's first token is in its state_in. A draft reads it from row hidden_columns of h. An
 * EAGLE-3 head (2.9) has no final_norm: h is its hidden state. Fails with its device only. */
struct op_pair {
    struct residual add;
    const struct weight *table;
    const struct rope_tables *ropes;
    dev_ptr final_norm, norm_embedding, norm_hidden;
    float eps; /* eps of the norms; 0: compute_shape.eps */
    struct act h, pair, angles;
    struct act hidden; /* drafts: gets the hidden state before the token; width 0: not wanted */
    bool draft;        /* h is normed */
    bool from_states;  /* the first pass of a draft */
    const struct projection *reader;
};

/* The largest product of x with a row of `rows` among the batch's valid ids, the first of equals: each
 * token's goes to the batch's best[token]. Fails with its device only: where no product is comparable, the
 * token has no best id. */
struct draft_best {
    float logit;
    uint32_t id; /* UINT32_MAX: none was comparable */
};
struct op_best {
    const struct weight *rows;
    const uint32_t *ids; /* host: id of each row, unchanged until compute_step_end(); NULL: its number */
    struct act x;
};

/* Row `to_row` of `to` becomes row `from_row` of `from`, a matrix of the same form. Fails with its device
 * only. */
struct op_copy_row {
    const struct weight *to, *from;
    uint32_t to_row, from_row;
};

/* Another shard (memory/dev.h) computes the operations from here on. Its workspace gets the tokens' rows of
 * these arrays from the shard before. No residual is pending. For a model with several shards; fails with
 * either device. */
#define HAND_OVER_MAX 4
struct op_hand_over {
    uint32_t shard; /* a later one; or 0: the step ends in the first one */
    uint32_t count;
    uint32_t arrays[HAND_OVER_MAX];
};

/* ---- a backend ---- */

/* All operations that take their arguments alone. A row makes the entry of compute_ops and compute_NAME(); a
 * backend BACKEND has a function BACKEND_NAME for it, which COMPUTE_OP_FUNCTION declares and COMPUTE_OP_ENTRY
 * puts into its table. */
#define COMPUTE_OPS(X, backend)                                                                              \
    X(backend, embed, op_embed)                                                                              \
    X(backend, layer_inputs, op_layer_inputs)                                                                \
    X(backend, norm, op_norm)                                                                                \
    X(backend, add_features, op_features)                                                                    \
    X(backend, append, op_attention)                                                                         \
    X(backend, attend, op_attention)                                                                         \
    X(backend, latent, op_latent)                                                                            \
    X(backend, convolve, op_delta)                                                                           \
    X(backend, recur, op_delta)                                                                              \
    X(backend, ssm_convolve, op_ssm)                                                                         \
    X(backend, ssm_recur, op_ssm)                                                                            \
    X(backend, scale, op_scale)                                                                              \
    X(backend, head_gate, op_head_gate)                                                                      \
    X(backend, short_conv, op_short_conv)                                                                    \
    X(backend, glu, op_glu)                                                                                  \
    X(backend, route, op_route)                                                                              \
    X(backend, experts, op_experts)                                                                          \
    X(backend, gather, op_gather)                                                                            \
    X(backend, finish, op_finish)                                                                            \
    X(backend, values, op_values)                                                                            \
    X(backend, pair, op_pair)                                                                                \
    X(backend, best, op_best)                                                                                \
    X(backend, copy_row, op_copy_row)

struct compute;
#define COMPUTE_OP_FUNCTION(backend, name, type)                                                             \
    void backend##_##name(struct compute *c, const struct type *a);
#define COMPUTE_OP_ENTRY(backend, name, type)  .name = backend##_##name,
#define COMPUTE_OP_MEMBER(backend, name, type) void (*name)(struct compute * c, const struct type *a);
struct compute_ops {
    void (*close)(struct compute *c); /* NULL: its memory is all that it has */
    void (*step_begin)(struct compute *c, const struct batch *b);
    bool (*replay)(struct compute *c, uint32_t key);
    int (*step_end)(struct compute *c);
    void (*step_cancel)(struct compute *c);
    COMPUTE_OPS(COMPUTE_OP_MEMBER, )
    void (*project)(struct compute *c, const struct op_product *list, uint32_t count);
    void (*project_glu)(struct compute *c, const struct op_product *p,
                        const struct op_glu *a); /* NULL: none */
    int (*row)(struct compute *c, uint32_t row); /* NULL: the backend has no samples */
    bool (*encode)(struct compute *c, const struct op_encode *a, uint32_t *at);
    void (*hand_over)(struct compute *c, const struct op_hand_over *a); /* NULL: it is one shard */
    /* After a step's begin: the first `rows` rows of an array come from `from`, a workspace of the same
     * backend with the same arrays, between two of its steps. NULL: the backend computes no shards. */
    void (*take_rows)(struct compute *c, struct compute *from, uint32_t array, uint32_t rows);
};
struct compute {
    const struct compute_ops *ops;
};

/* Before its memory is freed. */
static inline void compute_close(struct compute *c)
{
    if (c->ops->close)
        c->ops->close(c);
}
static inline void compute_step_begin(struct compute *c, const struct batch *b)
{
    c->ops->step_begin(c, b);
}
/* Steps of one key call the same operations from here on, with the same arguments. True: the backend has
 * them from an earlier step and repeats them; the caller calls none. Once in a step, after operations that
 * are this step's own. key < COMPUTE_KEYS. */
#define COMPUTE_KEYS 16u
static inline bool compute_replay(struct compute *c, uint32_t key)
{
    return c->ops->replay(c, key);
}
/* Everything has been done. 0, or the failure since the step began: -ENOMEM, the device had no memory for the
 * step and can compute it later; -EIO, or -ENODEV when the device is lost. Then results are undefined, as are
 * the pages and states that the step was to write. */
static inline int compute_step_end(struct compute *c)
{
    return c->ops->step_end(c);
}

/* Instead of the end: what came before compute_replay() is done, the rest need not be. Results are
 * undefined. */
static inline void compute_step_cancel(struct compute *c)
{
    c->ops->step_cancel(c);
}

/* After a step and before the next: a row of the batch's logits whose best tokens alone were wanted comes to
 * the host. 0, or as compute_step_end(). */
static inline int compute_row(struct compute *c, uint32_t row)
{
    return c->ops->row ? c->ops->row(c, row) : 0;
}

#define COMPUTE_OP_CALL(backend, name, type)                                                                 \
    static inline void compute_##name(struct compute *c, const struct type *a)                               \
    {                                                                                                        \
        c->ops->name(c, a);                                                                                  \
    }
COMPUTE_OPS(COMPUTE_OP_CALL, )
#undef COMPUTE_OP_CALL
#undef COMPUTE_OP_MEMBER

static inline void compute_project(struct compute *c, const struct op_product *list, uint32_t count)
{
    c->ops->project(c, list, count);
}

/* The product of tokens or experts, then the activation of its result, in one pass where the backend has
 * that. The product's result is spoilt. */
static inline void compute_project_glu(struct compute *c, const struct op_product *p, const struct op_glu *a)
{
    if (c->ops->project_glu) {
        c->ops->project_glu(c, p, a);
        return;
    }
    compute_project(c, p, 1);
    compute_glu(c, a);
}

/* The experts with the two products and the activation of the backend itself. */
static inline void compute_experts_here(struct compute *c, const struct op_experts *a)
{
    const struct op_product up = {.w = a->up, .x = a->x, .y = a->rows, .columns = COLUMNS_EXPERTS},
                            down = {.w = a->down, .x = a->mid, .y = a->out, .columns = COLUMNS_EXPERTS};
    compute_project_glu(c, &up,
                        &(struct op_glu){.function = a->function,
                                         .clip = a->clip,
                                         .plain = a->plain,
                                         .in = a->rows,
                                         .out = a->mid,
                                         .reader = a->down});
    compute_project(c, &down, 1);
}

static inline void compute_hand_over(struct compute *c, const struct op_hand_over *a)
{
    c->ops->hand_over(c, a);
}

/* A piece of the operation: from *at on, which is 0 at first and moves forward. True: the operation is
 * done. A device that fails in it reports that at the end of its next step. */
static inline bool compute_encode(struct compute *c, const struct op_encode *a, uint32_t *at)
{
    return c->ops->encode(c, a, at);
}

#endif
