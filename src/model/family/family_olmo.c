/* family_olmo.c - olmoe: experts; olmo: post norms, norms of all query heads and of all key heads together;
 * exaone: post norms, norms of each head. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"

static const struct config_key olmo3_keys[] = {
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 4096, "sliding_window"),
    CONFIG_KEY_END,
};

/* Without a window all layers rotate. */
static const struct config_key exaone4_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

static const struct config_key olmoe_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_FLAG(normalise, false, "norm_topk_prob"),
    CONFIG_ONLY(0, "clip_qkv"),
    CONFIG_KEY_END,
};

static const struct expert_form olmoe_experts = {.shared = ROUTE_SHARED_NONE};

const struct family families_olmo[] = {
    {.names = {"olmoe"},
     .keys = olmoe_keys,
     .defaults = "{'max_position_embeddings': 4096, 'num_experts': 64, 'num_experts_per_tok': 8}",
     .qk_norm = QK_NORM_ALL,
     .experts = &olmoe_experts},
    {.names = {"olmo3"},
     .keys = olmo3_keys,
     .defaults = "{'max_position_embeddings': 2048, 'rms_norm_eps': 1e-5}",
     .rope_theta = 500000,
     .norm_position = NORM_POST,
     .qk_norm = QK_NORM_ALL,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},
               {.names = {"sliding_attention"},
                .mixer = &block_attention,
                .windowed = true,
                .rope = KIND_ROPE_LOCAL}},
     .pattern = {.every = 4}},
    {.names = {"olmo2"},
     .defaults = "{'max_position_embeddings': 2048, 'rms_norm_eps': 1e-5}",
     .norm_position = NORM_POST,
     .qk_norm = QK_NORM_ALL},
    {.names = {"exaone4"},
     .keys = exaone4_keys,
     .defaults = "{'max_position_embeddings': 2048, 'sliding_window': 4096}",
     .norm_position = NORM_POST,
     .qk_norm = QK_NORM_HEAD,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = KIND_ROPE_WINDOWED},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {{"sliding_window_pattern"}, 4}},
    {{NULL}},
};
