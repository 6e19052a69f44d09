/* step.c - the arrays of the workspace, and the batch. */
#include "model/blocks/step.h"

#include "model/blocks/blocks.h"
#include "model/blocks/eagle.h"
#include "model/blocks/mrope.h"
#include "model/family/family.h"

#include "base/check.h"
#include "base/none.h"
#include "compute/backend.h"
#include "compute/layout.h"
#include "compute/shards.h"

#include <errno.h>

/* ---- workspace ---- */

/* Lists the arrays in the workspace that no layer owns; the blocks raise the rest. */
static void list_arrays(const struct config *c, struct array_spec ret[STEP_ARRAYS])
{
    uint32_t hidden = c->hidden, pair = c->mtp_count ? 2 * hidden : 0, rotating = 0;
    for (uint32_t i = 0; i < c->rope_count; i++)
        rotating += c->ropes[i].rot;
    const struct array_spec arrays[STEP_ARRAYS] = {
        [ARRAY_RESIDUAL] = {.width = hidden},
        [ARRAY_NORMED] = {.width = hidden, .read = hidden},
        [ARRAY_PROJ] = {.width = hidden, .read = hidden},
        [ARRAY_MID] = {.width = pair, .read = pair},
        [ARRAY_OUT] = {.width = hidden},
        [ARRAY_ANGLES] = {.width = rotating},
        [ARRAY_PAIR_UP] = {.rows = ROWS_PAIRS},
        [ARRAY_PAIR_OUT] = {.rows = ROWS_PAIRS},
    };
    memcpy(ret, arrays, sizeof(arrays));
    if (c->eagle)
        array_raise(&ret[ARRAY_EAGLE], EAGLE_LAYERS * hidden, EAGLE_LAYERS * hidden);
    for (uint32_t i = 0; i <= c->layers; i++) {
        const struct layer_config *l = i < c->layers ? &c->layer[i] : &c->mtp_layer;
        if (i == c->layers && c->mtp_count == 0)
            break;
        const struct block *parts[] = {l->mixer, l->beside, l->mlp, l->extra};
        for (size_t k = 0; k < COUNT_OF(parts); k++) {
            if (parts[k])
                parts[k]->arrays(i == c->layers && c->eagle ? &c->eagle->config : c, l, ret);
        }
    }
}

/* The batch's arrays and those of drafts, each with its bytes per token or sequence. */
struct need {
    void **array;
    bool per_seq;
    size_t bytes;
};
#define NEEDS_MAX 16
#define ALIGN     64u

static uint32_t list_needs(struct step *s, const struct config *c, struct need ret[NEEDS_MAX])
{
    const struct need needs[] = {
        {(void **)&s->seqs, true, sizeof(s->seqs[0])},
        {(void **)&s->hidden_columns, true, sizeof(s->hidden_columns[0])},
        {(void **)&s->ids, false, sizeof(s->ids[0])},
        {(void **)&s->token_seq, false, sizeof(s->token_seq[0])},
        {(void **)&s->positions, false, sizeof(s->positions[0])},
        {(void **)&s->features, false, sizeof(s->features[0])},
        {(void **)&s->logit_columns, false, sizeof(s->logit_columns[0])},
        {(void **)&s->ends, false, c->vision.shape.both_ways ? sizeof(s->ends[0]) : 0},
        /* Drafts: the last ones. */
        {(void **)&s->draft_seqs, true, sizeof(s->draft_seqs[0])},
        {(void **)&s->draft_of, true, sizeof(s->draft_of[0])},
        {(void **)&s->draft_best, true, sizeof(s->draft_best[0])},
    };
    memcpy(ret, needs, sizeof(needs));
    return COUNT_OF(needs) - (c->mtp_count ? 0 : 3);
}

static struct experts_opts experts_of(const struct config *c, struct device *cpu)
{
    const uint32_t width = c->expert_latent > 0 ? c->expert_latent : c->hidden;
    return c->experts_apart
               ? (struct experts_opts){.in = width,
                                       .rows = 2 * c->expert_intermediate,
                                       .mid = c->expert_intermediate,
                                       .out = width,
                                       .mode = c->compute == COMPUTE_INT8 ? COMPUTE_INT8 : COMPUTE_INT16,
                                       .sums = c->experts_sums,
                                       .backend = &backend_cpu,
                                       .cpu = cpu}
               : (struct experts_opts){.in = 0};
}

/* Each device has a workspace; what the host keeps is the sum. */
static void add_shards(uint32_t count, struct compute_cost *cost)
{
    const struct compute_bytes own = shards_bytes();
    cost->host.fixed = count * cost->host.fixed + own.fixed;
    cost->host.token = count * cost->host.token + own.token;
    cost->host.seq = count * cost->host.seq + own.seq;
    cost->host.worker *= count;
    cost->recorded_host_bytes *= count;
}

struct compute_cost step_cost(const struct config *c)
{
    struct step s = {0};
    struct array_spec arrays[STEP_ARRAYS];
    struct need needs[NEEDS_MAX];
    list_arrays(c, arrays);
    struct compute_cost cost = c->backend->cost(&(struct compute_opts){.shape = &c->shape,
                                                                       .arrays = arrays,
                                                                       .array_count = STEP_ARRAYS,
                                                                       .mode = c->compute,
                                                                       .sums = c->sums,
                                                                       .experts = experts_of(c, NULL)});
    uint32_t count = list_needs(&s, c, needs);
    if (c->shards.count > 1)
        add_shards(c->shards.count, &cost);
    for (uint32_t i = 0; i < count; i++)
        *(needs[i].per_seq ? &cost.host.seq : &cost.host.token) += needs[i].bytes;
    cost.host.fixed += (count + 1) * ALIGN + sizeof(struct step);
    return cost;
}

static int open_shard(const struct step_memory *memory, struct step *s, const struct model_opts *opts,
                      uint32_t shard, struct compute **ret)
{
    struct array_spec arrays[STEP_ARRAYS];
    const struct step_device *on = &memory->on[shard];
    list_arrays(s->config, arrays);
    return s->config->backend->open(
        &(struct compute_opts){.shape = shard > 0 ? &s->config->beside_shapes[shard - 1] : &s->shape,
                               .arrays = arrays,
                               .array_count = STEP_ARRAYS,
                               .mode = s->config->compute,
                               .sums = s->config->sums,
                               .experts = experts_of(s->config, opts->cpu),
                               .tokens_max = opts->tokens_max,
                               .seqs_max = opts->seqs_max,
                               .logits_max = opts->logits_max,
                               .device = on->device,
                               .device_memory = on->arena,
                               .host_memory = memory->host,
                               .range = on->range,
                               .recorded = on->recorded,
                               .recorded_host = memory->recorded_host},
        ret);
}

static int open_compute(const struct step_memory *memory, struct step *s, const struct model_opts *opts)
{
    struct shards_opts shards = {.tokens_max = opts->tokens_max, .seqs_max = opts->seqs_max};
    if (s->config->shards.count <= 1)
        return open_shard(memory, s, opts, 0, &s->compute);
    int r = 0;
    for (; shards.count < s->config->shards.count && r == 0; shards.count += r == 0)
        r = open_shard(memory, s, opts, shards.count, &shards.of[shards.count]);
    if (r == 0)
        r = shards_open(memory->host, &shards, &s->compute);
    for (uint32_t i = 0; i < shards.count && r < 0; i++)
        compute_close(shards.of[i]);
    return r;
}

int step_create(const struct step_memory *memory, const struct config *c, const struct model_opts *opts,
                struct step **ret)
{
    struct arena *host_memory = memory->host;
    struct step *s = arena_alloc(host_memory, sizeof(*s));
    struct need needs[NEEDS_MAX];
    if (!s)
        return -ENOMEM;
    *s = (struct step){.config = c,
                       .shape = c->shape,
                       .tokens_max = opts->tokens_max,
                       .seqs_max = opts->seqs_max,
                       .logits_max = opts->logits_max};
    uint32_t count = list_needs(s, c, needs);
    for (uint32_t i = 0; i < count; i++) {
        if (needs[i].bytes == 0)
            continue;
        *needs[i].array =
            arena_alloc_array(host_memory, needs[i].per_seq ? s->seqs_max : s->tokens_max, needs[i].bytes);
        if (!*needs[i].array)
            return -ENOMEM;
    }
    s->ropes.count = c->rope_count;
    for (uint32_t i = 0; i < c->rope_count; i++)
        config_rope_init(&s->ropes.table[i], &c->ropes[i]);
    *ret = s;
    return open_compute(memory, s, opts);
}

/* ---- the batch ---- */

/* A token's position among text and images, and its features if it is an image's. */
static void add_place(struct step *s, const struct model_seq *seq, uint32_t column, uint32_t position)
{
    const struct model_grid *g = mrope_grid(seq->grids, seq->grid_count, position);
    s->positions[column] = mrope_at(seq->grids, seq->grid_count, position);
    s->features[column] = DEV_NULL;
    if (s->ends)
        s->ends[column] = position + 1;
    if (!g)
        return;
    if (s->ends) {
        s->ends[column] = g->first + model_grid_tokens(g);
        ASSERT(s->ends[column] <= seq->position + seq->token_count);
    }
    ASSERT(!dev_is_null(g->features));
    uint32_t row_tokens = g->columns + g->row_ends, at = position - g->first;
    if (at % row_tokens >= g->columns)
        return;
    uint64_t feature = (uint64_t)(at / row_tokens) * g->columns + at % row_tokens;
    s->features[column] =
        dev_add(g->features, feature * s->config->vision.shape.feature_floats * sizeof(float));
    if (s->config->layer_input > 0)
        s->ids[column] = s->config->pad; /* the row of inputs per layer that image tokens read */
    s->batch.image_count++;
}

/* Tokens of state_in to apply. Without recurrent layers nothing is pending: K and V of rejected drafts are
 * overwritten. */
static uint32_t pending_in(const struct step *s, const struct model_seq *seq)
{
    uint32_t most = state_pending_max(&s->shape);
    if (s->shape.recurrent_count == 0 || seq->state_in == NONE)
        return 0;
    ASSERT(seq->pending <= most);
    return seq->pending;
}

/* The row of a token's learned position; `pads`: those before it. A pad token has a row of its own, and
 * counts for no other. */
static uint32_t learned_row(const struct config *c, const struct model_seq *seq, uint32_t index,
                            uint32_t *pads)
{
    if (!c->family->positions_after_pad || seq->tokens[index] != c->pad)
        return c->position_first + index - *pads;
    (*pads)++;
    return c->pad;
}

static void add_seq(struct step *s, const struct model_seq *seq)
{
    struct batch *b = &s->batch;
    ASSERT(!s->config->both_ways || seq->position == 0);
    ASSERT(seq->token_count > 0 && seq->token_count <= s->tokens_max - b->token_count);
    ASSERT(!seq->keep_pending || s->shape.recurrent_count == 0 ||
           seq->token_count <= state_pending_max(&s->shape));
    s->seqs[b->seq_count] = (struct batch_seq){
        .first = b->token_count,
        .count = seq->token_count,
        .position = seq->position,
        .state_in = seq->state_in,
        .state_out = seq->state_out,
        .pending = pending_in(s, seq),
        .keep_pending = seq->keep_pending,
        .second = seq->second > 0 && s->config->token_types > 1 ? seq->second : NONE,
        .previous = seq->position > 0 ? mrope_at(seq->grids, seq->grid_count, seq->position - 1)
                                      : (struct rope_position){{0}},
    };
    memcpy(s->seqs[b->seq_count].pages, seq->pages, sizeof(seq->pages));
    uint32_t pads = 0;
    for (uint32_t i = 0; i < seq->token_count; i++, b->token_count++) {
        s->ids[b->token_count] = seq->tokens[i];
        s->token_seq[b->token_count] = b->seq_count;
        add_place(s, seq, b->token_count, seq->position + i);
        if (s->config->position_rows > 0)
            s->positions[b->token_count] = rope_text(learned_row(s->config, seq, i, &pads));
        if (i >= seq->logits_from && !seq->values)
            s->logit_columns[b->logit_count++] = b->token_count;
    }
    b->seq_count++;
}

/* The tokens that give values stand after all that give logits. */
static void add_values(struct step *s, const struct model_step *in)
{
    struct batch *b = &s->batch;
    for (uint32_t i = 0; i < in->seq_count; i++)
        for (uint32_t t = in->seqs[i].logits_from; in->seqs[i].values && t < in->seqs[i].token_count; t++)
            s->logit_columns[b->logit_count + b->value_count++] = s->seqs[i].first + t;
}

void step_fill(struct step *s, const struct model_step *in)
{
    ASSERT(in->seq_count > 0 && in->seq_count <= s->seqs_max && s->phase == STEP_NONE);
    s->pending = (struct residual){.kind = RESIDUAL_NONE};
    s->batch = (struct batch){.seqs = s->seqs,
                              .ids = s->ids,
                              .token_seq = s->token_seq,
                              .positions = s->positions,
                              .features = s->features,
                              .ends = s->ends,
                              .logit_columns = s->logit_columns,
                              .hidden_columns = s->hidden_columns,
                              .states = in->states,
                              .beside_shards = in->beside_shards,
                              .beside = in->beside,
                              .samples = in->samples,
                              .logits = in->logits,
                              .tops = in->tops,
                              .valid_ids = in->valid_ids,
                              .values = in->values};
    memcpy(s->batch.pages, in->pages, sizeof(in->pages));
    for (uint32_t i = 0; i < in->seq_count; i++)
        add_seq(s, &in->seqs[i]);
    add_values(s, in);
}

void step_begin(struct step *s)
{
    ASSERT(s->phase == STEP_NONE && s->batch.seq_count > 0);
    s->phase = STEP_BEGUN;
    compute_step_begin(s->compute, &s->batch);
}

int step_end(struct step *s)
{
    enum step_phase phase = s->phase;
    ASSERT(phase != STEP_NONE);
    s->phase = STEP_NONE;
    if (phase == STEP_BEGUN)
        return compute_step_end(s->compute);
    compute_step_cancel(s->compute);
    return -ECANCELED;
}

int step_row(struct step *s, uint32_t row)
{
    ASSERT(s->phase == STEP_NONE);
    return compute_row(s->compute, row);
}

/* ---- helpers of the blocks ---- */

struct residual step_take_pending(struct step *s)
{
    struct residual r = s->pending;
    s->pending = (struct residual){.kind = RESIDUAL_NONE};
    return r;
}

void step_leave_out(struct step *s)
{
    s->pending = (struct residual){.kind = RESIDUAL_ADD, .out = step_out(s)};
}

void step_norm(struct step *s, const struct norm *norm,
               const struct projection *const readers[OP_READERS_MAX])
{
    compute_norm(s->compute, &(struct op_norm){.add = step_take_pending(s),
                                               .h = step_residual(s),
                                               .y = step_normed(s),
                                               .norm = *norm,
                                               .stream = s->config->family->norm_position == NORM_STREAM,
                                               .readers = {readers[0], readers[1], readers[2]}});
}

void step_add(struct step *s)
{
    compute_norm(s->compute, &(struct op_norm){.add = step_take_pending(s), .h = step_residual(s)});
}

void step_hand_over(struct step *s, uint32_t shard)
{
    struct op_hand_over a = {.shard = shard, .arrays = {ARRAY_RESIDUAL, ARRAY_ANGLES}, .count = 2};
    if (s->pending.kind != RESIDUAL_NONE)
        step_add(s);
    if (s->config->layer_input > 0)
        a.arrays[a.count++] = ARRAY_LAYER_INPUTS;
    if (s->config->eagle)
        a.arrays[a.count++] = ARRAY_EAGLE;
    compute_hand_over(s->compute, &a);
}

void step_project(struct step *s, const struct projection *w, struct act x, struct act y)
{
    compute_project(s->compute, &(struct op_product){.w = w, .x = x, .y = y}, 1);
}
