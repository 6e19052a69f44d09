/* forward.c - the embedding, the layers, and what follows them: the final norm, logits, values, the MTP
 * layer's keys. */
#include "model/blocks/forward.h"

#include "model/blocks/blocks.h"
#include "model/blocks/mtp.h"
#include "model/family/family.h"

#include "base/check.h"
#include "base/clock.h"

static void embed(struct step *s, const struct forward *f)
{
    const struct config *c = f->config;
    compute_embed(s->compute, &(struct op_embed){.table = &f->ends->embedding,
                                                 .positions = c->position_rows ? &f->ends->positions : NULL,
                                                 .types = c->token_types ? &f->ends->types : NULL,
                                                 .row = step_normed(s),
                                                 .ropes = &s->ropes,
                                                 .scale = f->config->embedding_scale,
                                                 .h = step_residual(s),
                                                 .angles = step_all_angles(s)});
    if (c->family->embedding_norm)
        compute_norm(s->compute, &(struct op_norm){.h = step_residual(s),
                                                   .y = step_normed(s),
                                                   .norm = f->ends->embedding_norm,
                                                   .stream = true});
}

/* Norms the rows that give logits or values, into ARRAY_PROJ, which is free by now. */
static struct op_product gather(struct step *s, const struct forward *f)
{
    const struct act y = step_act(ARRAY_PROJ, f->config->hidden);
    struct norm norm = f->ends->final_norm;
    if (f->mtp && !f->mtp->eagle)
        norm.weight = DEV_NULL; /* mtp_pair() has normed */
    compute_gather(s->compute, &(struct op_gather){.add = step_take_pending(s),
                                                   .h = step_residual(s),
                                                   .y = y,
                                                   .norm = norm,
                                                   .reader = &f->ends->head});
    return (struct op_product){.w = &f->ends->head,
                               .x = y,
                               .y = {.array = OP_LOGITS, .width = f->config->vocab},
                               .columns = COLUMNS_LOGITS};
}

static void finish_logits(struct step *s, const struct forward *f)
{
    const struct config *c = f->config;
    float scale = c->logits_divisor > 0 ? 1 / c->logits_divisor : c->logits_scale;
    if (scale != 0 || c->logits_cap > 0)
        compute_finish(s->compute, &(struct op_finish){.scale = scale, .cap = c->logits_cap});
}

static void finish(struct step *s, const struct forward *f)
{
    struct op_product list[OP_PRODUCTS_MAX];
    uint32_t count = 0;
    if (f->mtp && !f->mtp->eagle)
        list[count++] = mtp_pair(s, f->mtp);
    if (s->batch.logit_count + s->batch.value_count > 0) {
        const struct op_product head = gather(s, f);
        if (s->batch.value_count > 0)
            compute_values(s->compute, &(struct op_values){head.x});
        if (s->batch.logit_count > 0)
            list[count++] = head;
    }
    if (count > 0)
        compute_project(s->compute, list, count);
    if (s->batch.logit_count > 0)
        finish_logits(s, f);
    if (f->mtp)
        (f->mtp->eagle ? eagle_put : mtp_put)(s, f->mtp);
}

/* A token's features for DeepStack's layers come after its embedding. */
static void add_features(struct step *s, uint32_t layer)
{
    uint32_t hidden = s->shape.hidden;
    compute_add_features(s->compute, &(struct op_features){.add = step_take_pending(s),
                                                           .h = step_residual(s),
                                                           .from = hidden * (1 + layer)});
}

/* The device of layer `index`, which computes from now on. */
static uint32_t on_shard(struct step *s, const struct forward *f, uint32_t index, uint32_t shard)
{
    const uint32_t next = f->config->shards.layer[index];
    if (next != shard)
        step_hand_over(s, next);
    return next;
}

bool forward_pass(struct step *s, const struct forward *f, const struct model_step *in)
{
    uint32_t shard = 0;
    ASSERT(s->batch.token_count > 0);
    embed(s, f);
    layer_inputs_compute(s, &f->ends->layer_inputs);
    for (uint32_t i = 0; i < f->config->layers; i++) {
        if (step_is_stopped(in->cancel) || step_is_stopped(in->stop))
            return false;
        shard = on_shard(s, f, i, shard);
        layer_forward(s, &f->layers[i]);
        if (f->mtp && f->mtp->eagle)
            eagle_keep(s, f->mtp->eagle, i);
        if (i < f->config->vision.deepstack_count && s->batch.image_count > 0)
            add_features(s, i);
        if (in->progress_ns)
            atomic_store_explicit(in->progress_ns, clock_now_ns(), memory_order_relaxed);
    }
    if (shard > 0)
        step_hand_over(s, 0);
    finish(s, f);
    return true;
}
