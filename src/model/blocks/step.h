/* step.h - one forward pass under way: its batch, its arrays in the workspace, and what a block leaves to the
 * next one.
 *
 * The blocks (attention, delta net, MLP, experts) leave their result to be added to the residual stream:
 * `pending`. The next norm adds it first. Engine thread only. */
#ifndef PLATEAU_MODEL_STEP_H
#define PLATEAU_MODEL_STEP_H

#include "model/config/config.h"

#include "compute/batch.h"
#include "compute/ops.h"
#include "compute/rope.h"
#include "memory/dev.h"

struct model_draft;
struct model_opts;
struct model_seq;
struct model_step;

/* Places of the workspace. */
enum step_array {
    ARRAY_RESIDUAL,      /* the residual stream */
    ARRAY_NORMED,        /* it, normed: inputs of a block's first projections */
    ARRAY_PROJ,          /* their outputs; normed rows for the logits */
    ARRAY_MID,           /* inputs of a block's second projection */
    ARRAY_OUT,           /* its outputs */
    ARRAY_ANGLES,        /* cosines | sines of positions */
    ARRAY_CONV,          /* recurrent layers: outputs of the convolution */
    ARRAY_GATES,         /* recurrent layers: alpha | beta */
    ARRAY_LATENT_Q,      /* latent attention: queries of all heads */
    ARRAY_LATENT_QUERY,  /* latent attention: queries in the space of the keys */
    ARRAY_PAIR_UP,       /* experts, by pair: gate | up */
    ARRAY_PAIR_OUT,      /* experts, by pair: outputs */
    ARRAY_EXPERT_LATENT, /* latent experts: their inputs, then the sum of their outputs */
    ARRAY_LAYER_INPUTS,  /* a token's inputs to all layers */
    ARRAY_EAGLE,         /* outputs of the layers that an EAGLE-3 head reads */
    STEP_ARRAYS
};

struct step {
    /* Constant after step_create. */
    const struct config *config;
    struct compute_shape shape;
    struct compute *compute;
    struct rope_tables ropes;
    uint32_t tokens_max, seqs_max, logits_max;
    /* The step. */
    struct batch batch;
    struct residual pending;
    /* The batch's arrays. */
    struct batch_seq *seqs;          /* [seqs] */
    uint32_t *ids, *token_seq;       /* [tokens] */
    struct rope_position *positions; /* [tokens] */
    dev_ptr *features;               /* [tokens] */
    uint32_t *ends;                  /* [tokens]: batch.ends; NULL: no tokens of an image see each other */
    uint32_t *logit_columns;         /* [tokens] */
    uint32_t *hidden_columns;        /* [seqs] */
    /* State of the model between a step's begin and its end. */
    enum step_phase { STEP_NONE, STEP_BEGUN, STEP_CANCELED } phase;
    /* Drafts. */
    const struct model_draft *draft; /* between its begin and its end */
    struct model_seq *draft_seqs;    /* [seqs] */
    uint32_t *draft_of;              /* [seqs]: index in model_draft */
    struct draft_best *draft_best;   /* [seqs] */
};

/* The cost of a workspace: fixed + token * tokens_max + seq * seqs_max + worker * workers. */
struct compute_cost step_cost(const struct config *c);
/* Where it lies, as compute_opts has it: the backend's part on each device in an arena or in a range. */
struct step_memory {
    struct step_device {
        struct device *device;
        struct arena *arena;
        dev_ptr range;
        const struct charge *recorded;
    } on[SHARDS_MAX]; /* [config.shards.count] */
    struct arena *host;
    const struct charge *recorded_host;
};
/* 0 or -ENOMEM. */
int step_create(const struct step_memory *memory, const struct config *c, const struct model_opts *opts,
                struct step **ret);
/* Fills the batch with the sequences. */
void step_fill(struct step *s, const struct model_step *in);

/* Begins the step with that batch. */
void step_begin(struct step *s);
/* Ends what was begun: -ECANCELED (STEP_CANCELED), or as compute_step_end(). */
int step_end(struct step *s);
/* compute_row(), between two steps. */
int step_row(struct step *s, uint32_t row);
static inline bool step_is_stopped(const atomic_bool *flag)
{
    return flag && atomic_load_explicit(flag, memory_order_relaxed);
}

/* Keys of compute_replay(): what decides which operations a step has. The first three are flags. */
enum {
    STEP_KEY_LOGITS = 1,
    STEP_KEY_IMAGES = 2,
    STEP_KEY_VALUES = 4,
    STEP_KEY_DRAFT = 8,
    STEP_KEY_REDRAFT = 9
};

/* ---- arrays ---- */

static inline struct act step_act(enum step_array array, uint32_t width)
{
    return (struct act){.array = array, .width = width};
}
static inline struct act step_residual(const struct step *s)
{
    return step_act(ARRAY_RESIDUAL, s->shape.hidden);
}
static inline struct act step_normed(const struct step *s)
{
    return step_act(ARRAY_NORMED, s->shape.hidden);
}
static inline struct act step_out(const struct step *s)
{
    return step_act(ARRAY_OUT, s->shape.hidden);
}
/* Angles of one rope table. */
static inline struct act step_angles(const struct step *s, uint32_t rope)
{
    if (rope == ROPE_ABSENT)
        return step_act(ARRAY_ANGLES, 0);
    return (struct act){ARRAY_ANGLES, rope_tables_offset(&s->ropes, rope), 2 * s->ropes.table[rope].half};
}
static inline struct act step_all_angles(const struct step *s)
{
    return step_act(ARRAY_ANGLES, rope_tables_width(&s->ropes));
}

/* ---- helpers of the blocks ---- */

/* normed = norm of the residual stream, for the projections that read it next. */
void step_norm(struct step *s, const struct norm *norm,
               const struct projection *const readers[OP_READERS_MAX]);
/* Adds what the last block left, and nothing else. */
void step_add(struct step *s);
/* The activation of its MLPs. */
static inline enum glu_function step_glu(const struct step *s)
{
    static const enum glu_function functions[] = {[ACTIVATION_SILU] = GLU_SILU,
                                                  [ACTIVATION_GELU_TANH] = GLU_GELU_TANH,
                                                  [ACTIVATION_GELU_ERF] = GLU_GELU_ERF,
                                                  [ACTIVATION_RELU_SQUARE] = GLU_RELU_SQUARE,
                                                  [ACTIVATION_SWIGLU_CLIP] = GLU_SWIGLU_CLIP,
                                                  [ACTIVATION_XIELU] = GLU_XIELU};
    return functions[s->config->activation];
}
/* The activation between bounds, where there is one for it. */
static inline enum glu_function step_glu_within(const struct step *s, float limit)
{
    return limit > 0 ? GLU_SILU_CLIP : step_glu(s);
}
static inline struct glu_clip step_clip(const struct step *s, float limit)
{
    return (struct glu_clip){.alpha = s->config->glu_alpha,
                             .limit = limit > 0 ? limit : s->config->glu_limit};
}
/* y = w x, of all tokens. */
void step_project(struct step *s, const struct projection *w, struct act x, struct act y);
/* The next operations are on another device, which gets the residual stream: op_hand_over. */
void step_hand_over(struct step *s, uint32_t shard);
/* The block's result is in ARRAY_OUT. */
void step_leave_out(struct step *s);
/* Returns the residual that the last block left; nothing is pending afterwards. */
struct residual step_take_pending(struct step *s);

#endif
