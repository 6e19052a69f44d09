/* family_cohere.c - cohere: mixer and MLP side by side behind one LayerNorm, adjacent pairs rotate. Of
 * cohere2 the layers without a window do not. cohere2_moe: experts; dense layers rotate. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

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

/* ---- cohere2_moe ---- */

static const struct key_word selections[] = {
    {"softmax", ROUTE_SOFTMAX_CHOSEN}, {"sigmoid", ROUTE_SIGMOID}, {NULL, 0}};
static const struct key_word combinations[] = {{"average", true}, {"sum", false}, {NULL, 0}};

/* intermediate_size is the width of an expert, and of a dense layer that has no width of its own. */
static const struct config_key moe_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps", "layer_norm_eps"),
    CONFIG_FLOAT(logits_scale, 1e-6, 1e6, 0.0625, "logit_scale"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 4096, "sliding_window"),
    CONFIG_U32(intermediate, 1, CONFIG_INTERMEDIATE_MAX, 0, "prefix_dense_intermediate_size",
               "intermediate_size"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_U32(shared_experts, 0, 1024, 0, "num_shared_experts"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 0, "first_k_dense_replace"),
    CONFIG_WORD(route_score, selections, ROUTE_SOFTMAX_CHOSEN, "expert_selection_fn"),
    CONFIG_WORD(moe_average, combinations, true, "shared_expert_combination_strategy"),
    CONFIG_U32(dense_pattern, 1, CONFIG_LAYERS_MAX, 1, "prefix_dense_sliding_window_pattern"),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_KEY_END,
};

static const struct tensor_name moe_tensors[] = {{ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
                                                 {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
                                                 {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
                                                 {ROLE_NONE, NULL}};

static const struct expert_form moe_experts = {.score = ROUTE_SOFTMAX_CHOSEN, .shared = ROUTE_SHARED_WHOLE};

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
    {.names = {"cohere2_moe"},
     .defaults = "{'max_position_embeddings': 8192, 'head_dim': 128, 'num_experts': 8, "
                 "'num_experts_per_tok': 2}",
     .keys = moe_keys,
     .tensors = moe_tensors,
     .norm_position = NORM_PARALLEL,
     .layer_norm = true,
     .rms_norm_named = true,
     .rope_adjacent = true,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = KIND_ROPE_NONE},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {{"sliding_window_pattern"}, 4, .listed_if_dense = true},
     .experts = &moe_experts},
    {{NULL}},
};
