/* model_work.h - what a token asks of the processor: bytes of weights to read, and operations with them.
 * Shares of what a machine can do are counted with these. */
#ifndef PLATEAU_MODEL_MODEL_WORK_H
#define PLATEAU_MODEL_MODEL_WORK_H

#include "model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct model_work {
    /* Bytes of the checkpoint that one decoding sequence reads for a token: each matrix once, an embedding
     * table only where it is the output head too, of experts the chosen ones. */
    uint64_t token_bytes;
    /* Two for each multiply-add with a weight. Those of attention and of recurrent layers do not count. */
    uint64_t token_operations, logits_operations; /* operations of a token without logits; of its logits */
    bool routed; /* experts: several sequences read more than one, by an amount that is not known */
};

static inline struct model_work model_work_of(const struct model_shape *s)
{
    const uint64_t head = s->encoder ? 0 : (uint64_t)s->vocab * s->hidden;
    return (struct model_work){.token_bytes = s->active_checkpoint_bytes,
                               .token_operations = 2 * (s->token_products - head),
                               .logits_operations = 2 * head,
                               .routed = s->routed};
}

/* Operations of a prompt: logits only for its last token. */
static inline double model_work_prefill(struct model_work w, uint32_t tokens)
{
    return (double)w.token_operations * tokens + (double)w.logits_operations;
}

#endif
