/* ops.h - the compute contract: the block operations of a forward pass.
 *
 * A step is begun with a batch, gets operations one after the other, and ends. An operation takes places in
 * the step's workspace and weights, never a pointer that host code follows; it may run at once or later, in
 * order. So operations return nothing: a failure is reported by compute_step_end(). Results that the host
 * reads (logits, the best drafts) are complete after that.
 *
 * Failure. An operation can fail with its device only: -EIO, or -ENODEV when the device is lost. All memory
 * that it touches was committed before the step. Arguments that break what is written here are mistakes of
 * the caller. A value that is not finite is no failure: it spreads within its
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

#include "compute/batch.h"
#include "compute/encode.h"
#include "compute/layout.h"
#include "compute/shape.h"
#include "compute/weight.h"

/* ---- places ---- */

enum place_rows {
    ROWS_TOKENS, /* a row for each token of a step */
    ROWS_PAIRS,  /* for each (token, rank of its chosen expert), at token * top_k + rank */
};

/* An array of the workspace: rows of `width` floats. The first `read` floats of a row may be the input of a
 * projection, for which a backend keeps what its products need beside them (group sums, another type). */
struct place_spec {
    enum place_rows rows;
    uint32_t width, read;
};

/* The values [from, from + width) of each row of a place. */
struct act {
    uint32_t place, from, width;
};

static inline struct act act_part(struct act a, uint32_t from, uint32_t width)
{
    return (struct act){a.place, a.from + from, width};
}

/* ---- operations ---- */

/* What a block left to be added to the residual stream, which the next operation over tokens does first: that
 * saves a pass over them. */
enum residual_kind {
    RESIDUAL_NONE,
    RESIDUAL_ADD,     /* r = out */
    RESIDUAL_EXPERTS, /* s = 0; s = fma(weight of rank r, row r of pairs, s) for r in router order;
                       * s = fma(shared gate, out, s) with a shared expert; r = s. `sum` is room for s */
};
/* With `norm` r = rmsnorm(r) * norm, with `scale` h = fma(scale, r, h), else h += r. */
struct residual {
    enum residual_kind kind;
    struct act out, pairs, sum; /* out.width 0: no shared expert */
    dev_ptr norm;               /* null: none */
    float scale;                /* 0: none */
};

/* h[t] = the token's embedding times scale, or its image's features; cosines | sines of its position. Fails
 * with its device only: an id is below the vocabulary, and features are there for every token of an image. */
struct op_embed {
    const struct weight *table;
    const struct rope_tables *ropes;
    struct act h, angles; /* angles: rope_tables_width() */
    float scale;          /* 0: none */
};

/* Adds the residual, then y = rmsnorm(h) * weight, or y = h without a weight, for `readers`, the projections
 * that read y next. Fails with its device only. */
#define OP_READERS_MAX 2
struct op_norm {
    struct residual add; /* to h */
    struct act h, y;
    dev_ptr weight;
    const struct projection *readers[OP_READERS_MAX];
    /* Of an MTP head: the hidden states of the next step's start go to the batch's states. width 0: none. */
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
};
struct op_product {
    const struct projection *w;
    struct act x, y; /* y of OP_LOGITS: the batch's logits */
    enum product_columns columns;
};
#define OP_PRODUCTS_MAX 2
#define OP_LOGITS       UINT32_MAX /* as a place */

/* Queries and keys: rmsnorm where there is a weight, then rotation, in place. K and V go to the pages. Then
 * softmax attention (kern_attn_fn) of every query over its sequence, and with `gated` out *= sigmoid(gate).
 * Both halves fail with their device only: a sequence has its pages before the step. */
struct op_attention {
    uint32_t layer;         /* index in compute_shape.kv: the KV heads, their size and place in a page */
    uint32_t heads;         /* of queries */
    float scale;            /* of scores */
    uint32_t window;        /* keys that a query sees, its own counted; 0: all */
    float cap;              /* of scores (kern_kv.cap); 0: none */
    bool norm_all;          /* the norms are over all heads together, not over each */
    bool adjacent;          /* the rotation is of pairs (2 j, 2 j + 1), not of (j, j + half) */
    bool gated;             /* a head's query and gate lie side by side */
    bool mtp;               /* entry 0 is zeros that no query sees */
    bool keys_only;         /* append alone: q is not there */
    dev_ptr q_norm, k_norm; /* [head_dim], or of all heads; null: none */
    dev_ptr sinks;          /* [heads]: a score each (kern_query.sink); null: none */
    struct act qkv, out;
    struct act angles;               /* cos | sin of the layer's table; width 0: no rotation */
    const struct projection *reader; /* of out */
};

/* The gated delta net between its projections (contract 2.7). Convolve: convolution and SiLU of q | k | v,
 * l2norm of queries (scaled by 1 / sqrt(key_dim)) and keys, and the gates alpha and beta of each value head.
 * Recur: pending inputs of state_in first, then the recurrence, then the gated norm with z. Both fail with
 * their device only; state_out is undefined then. */
struct op_delta {
    uint32_t layer; /* index in compute_shape.recurrent */
    dev_ptr conv, decay, dt_bias, norm;
    struct act in;              /* q | k | v | z | b | a */
    struct act conv_out, gates; /* gates: alpha | beta */
    struct act out;
    const struct projection *reader; /* of out */
};

/* out = f(gate) * up of in = gate | up. out may be the first half of in. Fails with its device only. */
enum glu_function { GLU_SILU, GLU_GELU_TANH };
struct op_glu {
    enum glu_function function;
    struct act in, out;
    const struct projection *reader;
};

/* Scores p of the router's logits. The top_k experts with the largest c = p + correction (the lower index on
 * ties), of the groups_top best groups of experts; a group counts by the sum of its two largest c. Their
 * weights are p, with `normalise` divided by (sum + normalise_eps), times scale. Then the shared expert's
 * gate, 1 or a sigmoid, and its activation. Spoils in. Fails with its device only: logits that are not finite
 * choose some experts, too. */
#define ROUTE_GROUPS_MAX 64
enum route_score { ROUTE_SOFTMAX, ROUTE_SIGMOID };
enum route_shared { ROUTE_SHARED_NONE, ROUTE_SHARED_GATED, ROUTE_SHARED_WHOLE };
struct op_route {
    enum route_score score;
    enum route_shared shared;
    bool normalise;
    float normalise_eps, scale;
    uint32_t groups, groups_top; /* 0 or 1 group: all experts */
    dev_ptr correction;          /* [experts]; null: none */
    enum glu_function function;  /* of the shared expert */
    struct act in;  /* router | shared gate (1) if GATED | gate | up of the shared expert if there is one */
    struct act out; /* of the shared expert's activation */
    const struct projection *reader; /* of out */
};

/* Row i of y = rmsnorm(h) * weight, or h itself, of the token logit_columns[i]: rows of logits, then rows of
 * values. Fails with its device only. */
struct op_gather {
    struct residual add;
    struct act h, y;
    dev_ptr weight; /* null: h is normed already */
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
 * state of a sequence's first token is in its state_in. A draft reads it from row hidden_columns of h. Fails
 * with its device only. */
struct op_pair {
    struct residual add;
    const struct weight *table;
    const struct rope_tables *ropes;
    dev_ptr final_norm, norm_embedding, norm_hidden;
    struct act h, pair, angles;
    bool draft;       /* h is normed */
    bool from_states; /* of a draft: the first */
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

/* ---- a backend ---- */

/* Bytes of a workspace: fixed, and per token, sequence and worker; of its part in the memory of the device's
 * domain, and of what host code keeps beside it in the machine's. */
struct compute_bytes {
    uint64_t fixed, token, seq, worker;
};
struct compute_cost {
    struct compute_bytes device, host;
};

struct compute;
struct compute_ops {
    void (*step_begin)(struct compute *c, const struct batch *b);
    bool (*replay)(struct compute *c, uint32_t key);
    int (*step_end)(struct compute *c);
    void (*step_cancel)(struct compute *c);
    void (*embed)(struct compute *c, const struct op_embed *a);
    void (*norm)(struct compute *c, const struct op_norm *a);
    void (*add_features)(struct compute *c, const struct op_features *a);
    void (*project)(struct compute *c, const struct op_product *list, uint32_t count);
    void (*append)(struct compute *c, const struct op_attention *a);
    void (*attend)(struct compute *c, const struct op_attention *a);
    void (*convolve)(struct compute *c, const struct op_delta *a);
    void (*recur)(struct compute *c, const struct op_delta *a);
    void (*glu)(struct compute *c, const struct op_glu *a);
    void (*route)(struct compute *c, const struct op_route *a);
    void (*gather)(struct compute *c, const struct op_gather *a);
    void (*finish)(struct compute *c, const struct op_finish *a);
    void (*values)(struct compute *c, const struct op_values *a);
    void (*pair)(struct compute *c, const struct op_pair *a);
    void (*best)(struct compute *c, const struct op_best *a);
    void (*copy_row)(struct compute *c, const struct op_copy_row *a);
    bool (*encode)(struct compute *c, const struct op_encode *a, uint32_t *at);
};
struct compute {
    const struct compute_ops *ops;
};

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
/* Everything has been done. 0, or the first failure since the step began: -EIO, or -ENODEV when the device is
 * lost. Then results are undefined, as are the pages and states that the step was to write. */
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

#define COMPUTE_OP(name, type)                                                                               \
    static inline void compute_##name(struct compute *c, const struct type *a)                               \
    {                                                                                                        \
        c->ops->name(c, a);                                                                                  \
    }
COMPUTE_OP(embed, op_embed)
COMPUTE_OP(norm, op_norm)
COMPUTE_OP(add_features, op_features)
COMPUTE_OP(append, op_attention)
COMPUTE_OP(attend, op_attention)
COMPUTE_OP(convolve, op_delta)
COMPUTE_OP(recur, op_delta)
COMPUTE_OP(glu, op_glu)
COMPUTE_OP(route, op_route)
COMPUTE_OP(gather, op_gather)
COMPUTE_OP(finish, op_finish)
COMPUTE_OP(values, op_values)
COMPUTE_OP(pair, op_pair)
COMPUTE_OP(best, op_best)
COMPUTE_OP(copy_row, op_copy_row)
#undef COMPUTE_OP

static inline void compute_project(struct compute *c, const struct op_product *list, uint32_t count)
{
    c->ops->project(c, list, count);
}

/* A piece of the operation: from *at on, which is 0 at first and moves forward. True: the operation is
 * done. A device that fails in it reports that at the end of its next step. */
static inline bool compute_encode(struct compute *c, const struct op_encode *a, uint32_t *at)
{
    return c->ops->encode(c, a, at);
}

#endif
