/* config_shape.c - the numbers of a configuration that reach the compute contract. */
#include "model/config.h"

struct compute_shape config_shape(const struct config *c)
{
    return (struct compute_shape){.hidden = c->hidden,
                                  .vocab = c->vocab,
                                  .eps = c->eps,
                                  .heads = c->heads,
                                  .kv_heads = c->kv_heads,
                                  .head_dim = c->head_dim,
                                  .rot = c->rope.rot,
                                  .full_count = c->full_count,
                                  .mtp_count = c->mtp_count,
                                  .linear_count = c->linear_count,
                                  .conv_width = c->conv_width,
                                  .key_heads = c->key_heads,
                                  .value_heads = c->value_heads,
                                  .key_dim = c->key_dim,
                                  .value_dim = c->value_dim,
                                  .experts = c->experts,
                                  .top_k = c->top_k,
                                  .expert_intermediate = c->expert_intermediate,
                                  .shared_intermediate = c->shared_intermediate,
                                  .drafts_max = c->drafts_max,
                                  .draft_vocab = c->draft_vocab};
}
