/* family_lfm.c - lfm2: short convolutions, attention in some layers, names of its own. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

static const struct tensor_name tensors[] = {{ROLE_FINAL_NORM, "embedding_norm"},
                                             {ROLE_MIXER_NORM, "operator_norm"},
                                             {ROLE_MLP_NORM, "ffn_norm"},
                                             {ROLE_O, "self_attn.out_proj"},
                                             {ROLE_Q_NORM, "self_attn.q_layernorm"},
                                             {ROLE_K_NORM, "self_attn.k_layernorm"},
                                             {ROLE_GATE, "feed_forward.w1"},
                                             {ROLE_GATE, "feed_forward.gate_proj"},
                                             {ROLE_UP, "feed_forward.w3"},
                                             {ROLE_UP, "feed_forward.up_proj"},
                                             {ROLE_DOWN, "feed_forward.w2"},
                                             {ROLE_DOWN, "feed_forward.down_proj"},
                                             {ROLE_ROUTER, "feed_forward.gate"},
                                             {ROLE_ROUTER_CORRECTION, "feed_forward.expert_bias"},
                                             {ROLE_EXPERT_GATE, "feed_forward.experts.#.w1"},
                                             {ROLE_EXPERT_UP, "feed_forward.experts.#.w3"},
                                             {ROLE_EXPERT_DOWN, "feed_forward.experts.#.w2"},
                                             {ROLE_EXPERTS_GATE_UP, "feed_forward.experts.gate_up_proj"},
                                             {ROLE_EXPERTS_DOWN_FUSED, "feed_forward.experts.down_proj"},
                                             {ROLE_EXPERTS_GATE, "feed_forward.switch_mlp.gate_proj"},
                                             {ROLE_EXPERTS_UP, "feed_forward.switch_mlp.up_proj"},
                                             {ROLE_EXPERTS_DOWN, "feed_forward.switch_mlp.down_proj"},
                                             {ROLE_NONE, NULL}};

#define LFM_KEYS                                                                                             \
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "norm_eps"), CONFIG_IGNORED("conv_bias"),                                  \
        CONFIG_FLAG(tied, true, "tie_word_embeddings", "tie_embedding")

/* The width of the MLP is computed from intermediate_size (config.c). */
static const struct config_key lfm2_keys[] = {
    LFM_KEYS,
    CONFIG_U32(intermediate, 1, CONFIG_INTERMEDIATE_MAX, 12288, "block_ff_dim", "intermediate_size"),
    CONFIG_FLAG(mlp_two_thirds, true, "block_auto_adjust_ff_dim"),
    CONFIG_FLOAT(mlp_factor, 1e-3, 1e3, 1, "block_ffn_dim_multiplier"),
    CONFIG_U32(mlp_multiple, 1, CONFIG_INTERMEDIATE_MAX, 256, "block_multiple_of"),
    CONFIG_KEY_END,
};

static const struct config_key lfm2_moe_keys[] = {
    LFM_KEYS,
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_FLAG(use_expert_bias, true, "use_expert_bias"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "routed_scaling_factor"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 2, "num_dense_layers"),
    CONFIG_KEY_END,
};

static const struct expert_form experts = {
    .score = ROUTE_SIGMOID, .correction = true, .normalise_eps = 1e-6f};

#define LFM_DEFAULTS "'num_key_value_heads': 8, 'conv_L_cache': 3"
#define LFM                                                                                                  \
    .kinds = {{.names = {"full_attention", "attention"}, .mixer = &block_attention},                         \
              {.names = {"conv"}, .mixer = &block_short_conv}},                                              \
    .tensors = tensors, .pattern = {.first = "full_attn_idxs"}, .qk_norm = QK_NORM_HEAD, .rope_theta = 1e6

const struct family families_lfm[] = {
    {.names = {"lfm2"},
     LFM,
     .keys = lfm2_keys,
     .defaults = "{'max_position_embeddings': 128000, " LFM_DEFAULTS "}"},
    {.names = {"lfm2_moe"},
     LFM,
     .keys = lfm2_moe_keys,
     .defaults = "{'max_position_embeddings': 128000, " LFM_DEFAULTS
                 ", 'moe_intermediate_size': 1792, 'num_experts': 32, "
                 "'num_experts_per_tok': 4}",
     .experts = &experts},
    {{NULL}},
};
