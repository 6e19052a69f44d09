/* family_olmo.c - olmoe: experts; olmo: post norms, norms of all query heads and of all key heads together;
 * exaone: post norms, or experts behind norms in front of the blocks, norms of each head. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

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

static const struct config_key exaone_moe_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "first_k_dense_replace"),
    CONFIG_U32(shared_experts, 0, 1024, 1, "num_shared_experts"),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 2.5, "routed_scaling_factor"),
    CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, 1, "n_group"),
    CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, 1, "topk_group"),
    CONFIG_KEY_END,
};

static const struct tensor_name exaone_moe_tensors[] = {
    {ROLE_ROUTER_CORRECTION, "mlp.e_score_correction_bias"},
    {ROLE_ROUTER_CORRECTION, "mlp.gate.e_score_correction_bias"},
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
    {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
    {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
    {ROLE_NONE, NULL}};

static const struct expert_form exaone_moe_experts = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise_eps = 1e-20f};

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
    {.names = {"exaone_moe"},
     .keys = exaone_moe_keys,
     .tensors = exaone_moe_tensors,
     .defaults = "{'max_position_embeddings': 2048, 'sliding_window': 4096, 'num_experts': 64, "
                 "'num_experts_per_tok': 8, 'moe_intermediate_size': 1024}",
     .experts = &exaone_moe_experts,
     .qk_norm = QK_NORM_HEAD,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = KIND_ROPE_WINDOWED},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {{"sliding_window_pattern"}, 4}},
    {{NULL}},
};
