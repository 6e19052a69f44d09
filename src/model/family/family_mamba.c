/* family_mamba.c - families with Mamba-2 (contract 10.5) as a layer's only branch, or side by side with
 * attention. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#define FACTOR(field, name) CONFIG_FLOAT(field, 1e-9, 1e9, 1, name)

/* ---- nemotron_h: each layer is one branch ---- */

static const struct tensor_name nemotron_tensors[] = {
    {ROLE_EMBEDDING, "embeddings"},
    {ROLE_FINAL_NORM, "norm_f"},
    {ROLE_MIXER_NORM, "norm"},
    {ROLE_Q, "mixer.q_proj"},
    {ROLE_K, "mixer.k_proj"},
    {ROLE_V, "mixer.v_proj"},
    {ROLE_O, "mixer.o_proj"},
    {ROLE_SSM_IN, "mixer.in_proj"},
    {ROLE_SSM_CONV, "mixer.conv1d"},
    {ROLE_SSM_CONV_BIAS, "mixer.conv1d.bias"},
    {ROLE_SSM_DECAY, "mixer.A_log"},
    {ROLE_SSM_DT_BIAS, "mixer.dt_bias"},
    {ROLE_SSM_SKIP, "mixer.D"},
    {ROLE_SSM_NORM, "mixer.norm"},
    {ROLE_SSM_OUT, "mixer.out_proj"},
    {ROLE_UP, "mixer.up_proj"},
    {ROLE_DOWN, "mixer.down_proj"},
    {ROLE_ROUTER, "mixer.gate"},
    {ROLE_ROUTER_CORRECTION, "mixer.gate.e_score_correction_bias"},
    {ROLE_EXPERT_UP, "mixer.experts.#.up_proj"},
    {ROLE_EXPERT_DOWN, "mixer.experts.#.down_proj"},
    {ROLE_EXPERTS_UP, "mixer.experts.up_proj"},
    {ROLE_EXPERTS_UP, "mixer.switch_mlp.fc1"},
    {ROLE_EXPERTS_DOWN, "mixer.experts.down_proj"},
    {ROLE_EXPERTS_DOWN, "mixer.switch_mlp.fc2"},
    {ROLE_EXPERTS_LATENT_IN, "mixer.fc1_latent_proj"},
    {ROLE_EXPERTS_LATENT_OUT, "mixer.fc2_latent_proj"},
    {ROLE_SHARED_UP, "mixer.shared_experts.up_proj"},
    {ROLE_SHARED_DOWN, "mixer.shared_experts.down_proj"},
    {ROLE_MTP_PAIR, "eh_proj"},
    {ROLE_MTP_NORM_EMBEDDING, "enorm"},
    {ROLE_MTP_NORM_HIDDEN, "hnorm"},
    {ROLE_MTP_NORM, "final_layernorm"},
    {ROLE_NONE, NULL}};

static const struct expert_form nemotron_experts = {.score = ROUTE_SIGMOID,
                                                    .shared = ROUTE_SHARED_WHOLE,
                                                    .correction = true,
                                                    .normalise_eps = 1e-20f,
                                                    .plain = true};

static const struct key_word nemotron_activations[] = {
    {"relu2", ACTIVATION_RELU_SQUARE}, {"gelu", ACTIVATION_GELU_ERF}, {"silu", ACTIVATION_SILU}, {NULL, 0}};

static const struct config_key nemotron_keys[] = {
    CONFIG_U32(layers, 1, CONFIG_LAYERS_MAX, 0, "num_hidden_layers"),
    CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 128, "head_dim", "attention_head_dim"),
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "layer_norm_epsilon", "rms_norm_eps", "norm_eps"),
    CONFIG_WORD(activation, nemotron_activations, ACTIVATION_RELU_SQUARE, "mlp_hidden_act"),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "routed_scaling_factor"),
    CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, 1, "n_group"),
    CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, 1, "topk_group"),
    CONFIG_U32(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, 7688, "moe_shared_expert_intermediate_size"),
    CONFIG_U32(expert_latent, 1, CONFIG_HIDDEN_MAX, 0, "moe_latent_size"),
    CONFIG_IGNORED("mamba_proj_bias", "use_bias", "use_conv_bias"),      /* tensors show them */
    CONFIG_IGNORED("time_step_min", "time_step_max", "time_step_floor"), /* for first values of a training */
    CONFIG_IGNORED("n_shared_experts", "moe_shared_expert_overlap"),
    CONFIG_KEY_END,
};

/* ---- falcon_h1: attention and Mamba-2 side by side ---- */

static const struct tensor_name falcon_tensors[] = {
    {ROLE_FINAL_NORM, "final_layernorm"},  {ROLE_MLP_NORM, "pre_ff_layernorm"},
    {ROLE_GATE, "feed_forward.gate_proj"}, {ROLE_UP, "feed_forward.up_proj"},
    {ROLE_DOWN, "feed_forward.down_proj"}, {ROLE_NONE, NULL}};

static const struct config_key falcon_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    FACTOR(embedding_scale, "embedding_multiplier"),
    FACTOR(logits_scale, "lm_head_multiplier"),
    FACTOR(key_scale, "key_multiplier"),
    FACTOR(attention_in_scale, "attention_in_multiplier"),
    FACTOR(attention_out_scale, "attention_out_multiplier"),
    FACTOR(ssm_in_scale, "ssm_in_multiplier"),
    FACTOR(ssm_out_scale, "ssm_out_multiplier"),
    CONFIG_FLOATS(ssm_multipliers, 1e-9, 1e9, 1, "ssm_multipliers"),
    CONFIG_FLOATS(mlp_scales, 1e-9, 1e9, 1, "mlp_multipliers"),
    CONFIG_FLAG(ssm_normed, false, "mamba_rms_norm"),
    CONFIG_FLAG(ssm_norm_first, true, "mamba_norm_before_gate"),
    CONFIG_IGNORED("mamba_conv_bias", "mamba_proj_bias", "projectors_bias"), /* tensors show them */
    CONFIG_IGNORED("attn_layer_indices", "mamba_use_mlp", "mlp_expansion_factor"),
    CONFIG_KEY_END,
};

const struct family families_mamba[] = {
    {.names = {"nemotron_h"},
     .tensors = nemotron_tensors,
     .keys = nemotron_keys,
     .defaults = "{'max_position_embeddings': 4096, 'num_key_value_heads': 8, 'mamba_num_heads': 128, "
                 "'mamba_head_dim': 64, 'n_groups': 8, "
                 "'ssm_state_size': 128, 'n_routed_experts': 8, 'num_experts_per_tok': 2, "
                 "'moe_intermediate_size': 7688}",
     .kinds = {{.names = {"linear_attention", "mamba", "M"}, .mixer = &block_mamba, .alone = true},
               {.names = {"full_attention", "attention", "*"},
                .mixer = &block_attention,
                .alone = true,
                .rope = KIND_ROPE_NONE},
               {.names = {"mlp", "-"}, .mixer = &block_mlp_plain, .alone = true},
               {.names = {"moe", "E"}, .mixer = &block_experts, .alone = true}},
     .experts = &nemotron_experts,
     .mtp = MTP_PAIR},
    {.names = {"falcon_h1"},
     .tensors = falcon_tensors,
     .keys = falcon_keys,
     .defaults = "{'max_position_embeddings': 8192, 'num_key_value_heads': 8, 'mamba_d_ssm': 1024, "
                 "'mamba_n_heads': 128, "
                 "'mamba_d_state': 256}",
     .kinds = {{.names = {"hybrid"}, .mixer = &block_attention, .beside = &block_mamba}},
     .rope_theta = 10000},
    {{NULL}},
};
