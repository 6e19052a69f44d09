/* family_glm.c - glm: half of each head rotates; experts chosen by a sigmoid and a correction, a shared one
 * beside them. solar_open and dots1 have those experts, too. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

static const struct expert_form experts = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise_eps = 1e-20f};

static const struct tensor_name tensors[] = {{ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
                                             {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
                                             {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
                                             {ROLE_MTP_PAIR, "eh_proj"},
                                             {ROLE_MTP_NORM_EMBEDDING, "enorm"},
                                             {ROLE_MTP_NORM_HIDDEN, "hnorm"},
                                             {ROLE_MTP_NORM, "shared_head.norm"},
                                             {ROLE_NONE, NULL}};

#define EXPERT_KEYS(normal)                                                                                  \
    CONFIG_FLAG(normalise, normal, "norm_topk_prob"),                                                        \
        CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "routed_scaling_factor"),                                   \
        CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, 1, "n_group"),                                               \
        CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, 1, "topk_group"),                                        \
        CONFIG_U32(shared_experts, 0, 1024, 1, "n_shared_experts")

static const struct config_key keys[] = {
    EXPERT_KEYS(true),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "first_k_dense_replace"),
    CONFIG_FLAG(use_qk_norm, false, "use_qk_norm"),
    CONFIG_KEY_END,
};

/* All layers have experts. */
static const struct config_key solar_keys[] = {
    EXPERT_KEYS(true),
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_ONLY(false, "use_qk_norm"),
    CONFIG_ONLY(0, "first_k_dense_replace"),
    CONFIG_KEY_END,
};

/* Layers from max_window_layers on have the window, if there is one. */
static const struct config_key dots_keys[] = {
    EXPERT_KEYS(false),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 0, "first_k_dense_replace"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_U32(window_from, 0, CONFIG_LAYERS_MAX, 62, "max_window_layers"),
    CONFIG_KEY_END,
};

static const struct tensor_name dense_tensors[] = {{ROLE_MIXER_NORM_AFTER, "post_self_attn_layernorm"},
                                                   {ROLE_MLP_NORM, "post_attention_layernorm"},
                                                   {ROLE_MLP_NORM_AFTER, "post_mlp_layernorm"},
                                                   {ROLE_NONE, NULL}};

#define GLM_MOE(context)                                                                                     \
    .tensors = tensors, .keys = keys,                                                                        \
    .defaults = "{'max_position_embeddings': " #context ", 'num_key_value_heads': 8, 'rms_norm_eps': 1e-5, " \
                "'moe_intermediate_size': 1408, 'num_experts_per_tok': 8, 'n_routed_experts': 128}",         \
    .experts = &experts, .rotary_part = 0.5

#define GLM4V                                                                                                \
    .tensors = dense_tensors, .norm_position = NORM_SANDWICH, .rope_adjacent = true, .rotary_part = 1

const struct family families_glm[] = {
    {.names = {"glm4"},
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 2, 'head_dim': 128, "
                 "'rms_norm_eps': 1.5625e-7}",
     .tensors = dense_tensors,
     .norm_position = NORM_SANDWICH,
     .rope_adjacent = true,
     .rotary_part = 0.5},
    {.names = {"glm4v"},
     .defaults = "{'max_position_embeddings': 32768, 'num_key_value_heads': 2, 'rms_norm_eps': 1e-5}",
     GLM4V},
    {.names = {"glm_ocr"},
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'rms_norm_eps': 1e-5}",
     GLM4V},
    {.names = {"glm4v_moe"}, GLM_MOE(65536)},
    {.names = {"glm4_moe"}, GLM_MOE(131072), .qk_norm = QK_NORM_OPTION, .mtp = MTP_NEXT},
    {.names = {"solar_open"},
     .tensors = tensors,
     .keys = solar_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'head_dim': 128, "
                 "'moe_intermediate_size': 1280, "
                 "'num_experts_per_tok': 8, 'n_routed_experts': 128}",
     .experts = &experts,
     .rotary_part = 1,
     .rope_theta = 1e6},
    {.names = {"dots1"},
     .tensors = tensors,
     .keys = dots_keys,
     .defaults = "{'max_position_embeddings': 2048, 'num_key_value_heads': 32, 'sliding_window': 4096, "
                 "'moe_intermediate_size': 1408}",
     .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},
               {.names = {"full_attention"}, .mixer = &block_attention}},
     .experts = &experts,
     .qk_norm = QK_NORM_HEAD},
    {{NULL}},
};
