/* family_llama.c - llama, from which families differ, and its next of kin. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

/* Every layer has a window where sliding_window is not null. */
static const struct config_key window_keys[] = {
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

#define WINDOWED_LAYERS                                                                                      \
    .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},                 \
              {.names = {"full_attention"}, .mixer = &block_attention}}

/* Layers that do not rotate have the window, if there is one. */
static const struct config_key smollm_keys[] = {
    CONFIG_FLAG(use_window, false, "use_sliding_window"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

static const struct config_key ernie_keys[] = {
    CONFIG_FLAG(attention_biases, true, "use_bias"),
    CONFIG_FLAG(attention_out_biases, true, "use_bias"),
    CONFIG_FLAG(mlp_biases, true, "use_bias"),
    CONFIG_KEY_END,
};

/* Layers from moe_layer_start_index to moe_layer_end_index have experts. */
static const struct config_key ernie_moe_keys[] = {
    CONFIG_FLAG(attention_biases, true, "use_bias"),
    CONFIG_FLAG(attention_out_biases, true, "use_bias"),
    CONFIG_FLAG(mlp_biases, true, "use_bias"),
    CONFIG_U32(experts, 0, CONFIG_EXPERTS_MAX, 64, "moe_num_experts", "num_experts"),
    CONFIG_U32(top_k, 1, CONFIG_TOP_K_MAX, 6, "moe_k", "num_experts_per_tok"),
    CONFIG_U32(shared_experts, 0, 1024, 2, "moe_num_shared_experts"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "moe_layer_start_index"),
    CONFIG_FLOAT(sparse_last, -1, CONFIG_LAYERS_MAX, -1, "moe_layer_end_index"),
    CONFIG_U32(sparse_step, 1, CONFIG_LAYERS_MAX, 1, "moe_layer_interval"),
    CONFIG_IGNORED("moe_norm_min", "moe_capacity", "moe_gate"),
    CONFIG_ONLY(true, "moe_use_aux_free"),
    CONFIG_KEY_END,
};

static const struct tensor_name ernie_tensors[] = {
    {ROLE_ROUTER_CORRECTION, "mlp.moe_statics.e_score_correction_bias"},
    {ROLE_ROUTER_CORRECTION, "mlp.gate.moe_statics.e_score_correction_bias"},
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
    {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
    {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
    {ROLE_MTP_PAIR, "mtp_linear_proj.0"},
    {ROLE_MTP_NORM_EMBEDDING, "mtp_emb_norm.0"},
    {ROLE_MTP_NORM_HIDDEN, "mtp_hidden_norm.0"},
    {ROLE_NONE, NULL}};

/* The chosen weights are divided by their sum, of which moe_norm_min is far below. */
static const struct expert_form ernie_experts = {
    .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise = true};

static const struct config_key arcee_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_KEY_END,
};

static const struct tensor_name apertus_tensors[] = {
    {ROLE_MIXER_NORM, "attention_layernorm"}, {ROLE_MLP_NORM, "feedforward_layernorm"}, {ROLE_NONE, NULL}};

static const struct key_word xielu[] = {{"xielu", ACTIVATION_XIELU}, {NULL, 0}};

static const struct config_key apertus_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_WORD(activation, xielu, ACTIVATION_XIELU, "hidden_act"),
    CONFIG_ONLY(true, "qk_norm"),
    CONFIG_ONLY(false, "post_norm"),
    CONFIG_KEY_END,
};

const struct family families_llama[] = {
    {.names = {"llama"}, .defaults = "{'max_position_embeddings': 2048}"},
    {.names = {"arcee"},
     .keys = arcee_keys,
     .defaults = "{'max_position_embeddings': 4096, 'hidden_act': 'relu2'}",
     .mlp = &block_mlp_plain},
    {.names = {"seed_oss"},
     .defaults = "{'max_position_embeddings': 524288, 'num_key_value_heads': 8, 'head_dim': 128}"},
    {.names = {"mistral", "ministral"},
     .parents = {"mistral3"},
     .keys = window_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'sliding_window': 4096}",
     WINDOWED_LAYERS},
    {.names = {"ministral3"},
     .keys = window_keys,
     .defaults = "{'max_position_embeddings': 262144, 'num_key_value_heads': 8, 'head_dim': 128, "
                 "'rms_norm_eps': 1e-5, 'rope_parameters': {"
                 "'rope_type': 'yarn', 'factor': 16, 'original_max_position_embeddings': 16384, "
                 "'mscale_all_dim': 1, 'mscale': 1, 'llama_4_scaling_beta': 0.1}}",
     WINDOWED_LAYERS,
     .query_growth = true,
     .rope_theta = 1e6},
    {.names = {"smollm3"},
     .keys = smollm_keys,
     .defaults = "{'max_position_embeddings': 32768, 'num_key_value_heads': 4}",
     WINDOWED_LAYERS,
     .pattern = {{"no_rope_layer_interval"}, 4},
     .rope_except = 4,
     .rope_theta = 2e6},
    {.names = {"ernie4_5"},
     .keys = ernie_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 2, 'head_dim': 128, "
                 "'rms_norm_eps': 1e-5}",
     .rope_adjacent = true,
     .rope_theta = 5e5},
    {.names = {"ernie4_5_moe"},
     .keys = ernie_moe_keys,
     .tensors = ernie_tensors,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 4, 'rms_norm_eps': 1e-5, "
                 "'moe_intermediate_size': 1536}",
     .experts = &ernie_experts,
     .rope_adjacent = true,
     .rope_theta = 5e5,
     .mtp = MTP_BLOCK},
    {.names = {"apertus"},
     .tensors = apertus_tensors,
     .keys = apertus_keys,
     .defaults = "{'max_position_embeddings': 65536, 'rope_parameters': {'rope_type': 'llama3', "
                 "'rope_theta': 12000000, 'factor': 8, 'original_max_position_embeddings': 8192, "
                 "'low_freq_factor': 1, 'high_freq_factor': 4}}",
     .qk_norm = QK_NORM_HEAD,
     .mlp = &block_mlp_plain},
    {{NULL}},
};
