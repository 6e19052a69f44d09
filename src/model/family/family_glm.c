/* family_glm.c - glm: half of each head rotates; experts chosen by a sigmoid and a correction, a shared one
 * beside them. */
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

static const struct expert_form experts = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise_eps = 1e-20f};

static const struct tensor_name tensors[] = {{ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
                                             {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
                                             {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
                                             {ROLE_NONE, NULL}};

static const struct config_key keys[] = {
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "routed_scaling_factor"),
    CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, 1, "n_group"),
    CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, 1, "topk_group"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "first_k_dense_replace"),
    CONFIG_U32(shared_experts, 0, 1024, 1, "n_shared_experts"),
    CONFIG_FLAG(use_qk_norm, false, "use_qk_norm"),
    CONFIG_KEY_END,
};

static const struct tensor_name dense_tensors[] = {{ROLE_MIXER_NORM_AFTER, "post_self_attn_layernorm"},
                                                   {ROLE_MLP_NORM, "post_attention_layernorm"},
                                                   {ROLE_MLP_NORM_AFTER, "post_mlp_layernorm"},
                                                   {ROLE_NONE, NULL}};

const struct family families_glm[] = {
    {.names = {"glm4"},
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 2, 'head_dim': 128, "
                 "'rms_norm_eps': 1.5625e-7}",
     .tensors = dense_tensors,
     .norm_place = NORM_SANDWICH,
     .rope_adjacent = true,
     .rotary_part = 0.5},
    {.names = {"glm4_moe"},
     .tensors = tensors,
     .keys = keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'rms_norm_eps': 1e-5, "
                 "'moe_intermediate_size': 1408, "
                 "'num_experts_per_tok': 8, 'n_routed_experts': 128}",
     .experts = &experts,
     .qk_norm = QK_NORM_OPTION,
     .rotary_part = 0.5},
    {{NULL}},
};
