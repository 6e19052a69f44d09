/* family_cohere.c - cohere: mixer and MLP side by side behind one LayerNorm, adjacent pairs rotate. Of
 * cohere2 the layers without a window do not. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"

#define KEYS                                                                                                 \
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "layer_norm_eps"),                                                         \
        CONFIG_FLOAT(logits_scale, 1e-6, 1e6, 0.0625, "logit_scale"), CONFIG_ONLY(false, "use_qk_norm")

static const struct config_key first_keys[] = {KEYS, CONFIG_KEY_END};

static const struct config_key keys[] = {
    KEYS,
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 4096, "sliding_window"),
    CONFIG_ONLY(true, "use_parallel_block"),
    CONFIG_ONLY(true, "use_gated_activation"),
    CONFIG_ONLY(1, "rotary_pct"),
    CONFIG_KEY_END,
};

const struct family families_cohere[] = {
    {.names = {"cohere"},
     .defaults = "{'max_position_embeddings': 8192}",
     .keys = first_keys,
     .norm_position = NORM_PARALLEL,
     .layer_norm = true,
     .rope_adjacent = true,
     .rope_theta = 5e5},
    {.names = {"cohere2"},
     .defaults = "{'max_position_embeddings': 8192}",
     .keys = keys,
     .norm_position = NORM_PARALLEL,
     .layer_norm = true,
     .rope_adjacent = true,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = KIND_ROPE_NONE},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {{"sliding_window_pattern", "_sliding_window_pattern"}, 4}},
    {{NULL}},
};
