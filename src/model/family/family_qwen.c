/* family_qwen.c - the families of Qwen. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"

/* Names the delta net's z gate, which is always SiLU here. */
static const struct key_word silu[] = {{"swish", ACTIVATION_SILU}, {"silu", ACTIVATION_SILU}, {NULL, 0}};

#define DELTA_NET_LAYERS                                                                                     \
    .kinds = {{.names = {"full_attention", "attention"}, .mixer = &block_attention},                         \
              {.names = {"linear_attention"}, .mixer = &block_delta_net}},                                   \
    .pattern = {{"full_attention_interval"}, 4}, .norm_shift = SHIFT_HF, .qk_norm = QK_NORM_HEAD,            \
    .attention_gate = true, .rotary_part = 0.25

#define DELTA_NET_DEFAULTS                                                                                   \
    "'head_dim': 256, 'linear_conv_kernel_dim': 4, 'linear_key_head_dim': 128, "                             \
    "'linear_value_head_dim': 128, 'linear_num_key_heads': 16, 'linear_num_value_heads': 32"

/* Layers from max_window_layers on have a window, if at all. */
#define WINDOW_KEYS                                                                                          \
    CONFIG_FLAG(use_window, false, "use_sliding_window"),                                                    \
        CONFIG_U32(window, 0, CONFIG_CONTEXT_MAX, 0, "sliding_window"),                                      \
        CONFIG_U32(window_from, 0, CONFIG_LAYERS_MAX, 28, "max_window_layers")
#define WINDOWED_LAYERS                                                                                      \
    .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},                 \
              {.names = {"full_attention", "attention"}, .mixer = &block_attention}}

static const struct config_key window_keys[] = {
    WINDOW_KEYS,
    CONFIG_KEY_END,
};

/* q, k and v have biases whatever attention_bias says. */
static const struct config_key qwen2_keys[] = {
    WINDOW_KEYS,
    CONFIG_FLAG(attention_biases, true, "qkv_bias"),
    CONFIG_KEY_END,
};

static const struct config_key qwen3_moe_keys[] = {
    CONFIG_FLAG(use_window, false, "use_sliding_window"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_FLAG(normalise, false, "norm_topk_prob"),
    CONFIG_U32(sparse_step, 1, CONFIG_LAYERS_MAX, 1, "decoder_sparse_step"),
    CONFIG_KEY_END,
};

static const struct config_key qwen2_moe_keys[] = {
    WINDOW_KEYS,
    CONFIG_FLAG(attention_biases, true, "qkv_bias"),
    CONFIG_FLAG(normalise, false, "norm_topk_prob"),
    CONFIG_U32(sparse_step, 1, CONFIG_LAYERS_MAX, 1, "decoder_sparse_step"),
    CONFIG_U32_NEEDED(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "shared_expert_intermediate_size"),
    CONFIG_KEY_END,
};

/* The chosen experts' weights are normalised whatever norm_topk_prob says. */
static const struct config_key qwen3_vl_moe_keys[] = {
    CONFIG_U32(sparse_step, 1, CONFIG_LAYERS_MAX, 1, "decoder_sparse_step"),
    CONFIG_KEY_END,
};

static const struct config_key qwen3_next_keys[] = {
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_U32(sparse_step, 1, CONFIG_LAYERS_MAX, 1, "decoder_sparse_step"),
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_experts"),
    CONFIG_U32_NEEDED(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "shared_expert_intermediate_size"),
    CONFIG_KEY_END,
};

static const struct expert_form alone = {.shared = ROUTE_SHARED_NONE, .mlp_only = true};
static const struct expert_form gated = {.shared = ROUTE_SHARED_GATED, .mlp_only = true};
static const struct expert_form either_way = {.normalise = true, .mlp_only = true, .order = STACK_ANY};
static const struct expert_form gated_normalised = {.shared = ROUTE_SHARED_GATED, .normalise = true};

static const struct config_key qwen3_5_keys[] = {
    CONFIG_WORD(gate_activation, silu, ACTIVATION_SILU, "output_gate_type"),
    CONFIG_KEY_END,
};

static const struct config_key qwen3_5_moe_keys[] = {
    CONFIG_WORD(gate_activation, silu, ACTIVATION_SILU, "output_gate_type"),
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_experts"),
    CONFIG_U32_NEEDED(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "shared_expert_intermediate_size"),
    CONFIG_KEY_END,
};

/* Sections of a rotation are read with any type. */
static const struct key_word mrope_types[] = {{"mrope", ROPE_DEFAULT}, {NULL, 0}};

const struct family families_qwen[] = {
    {.names = {"qwen2"},
     .defaults = "{'max_position_embeddings': 32768}",
     .keys = qwen2_keys,
     WINDOWED_LAYERS},
    {.names = {"qwen2_5_vl"},
     .defaults = "{'max_position_embeddings': 32768}",
     .keys = qwen2_keys,
     .rope_types = mrope_types,
     .rope_theta = 1000000,
     WINDOWED_LAYERS},
    {.names = {"qwen2_moe"},
     .keys = qwen2_moe_keys,
     .defaults = "{'max_position_embeddings': 32768, 'moe_intermediate_size': 1408, 'num_experts_per_tok': "
                 "4, 'num_experts': 60, "
                 "'shared_expert_intermediate_size': 5632}",
     WINDOWED_LAYERS,
     .experts = &gated},
    {.names = {"qwen3"},
     .keys = window_keys,
     .defaults = "{'max_position_embeddings': 32768, 'head_dim': 128}",
     WINDOWED_LAYERS,
     .qk_norm = QK_NORM_HEAD},
    {.names = {"qwen3_moe"},
     .keys = qwen3_moe_keys,
     .defaults = "{'max_position_embeddings': 32768, 'num_key_value_heads': 4, 'moe_intermediate_size': 768, "
                 "'num_experts_per_tok': 8, "
                 "'num_experts': 128}",
     WINDOWED_LAYERS,
     .qk_norm = QK_NORM_HEAD,
     .experts = &alone},
    {.names = {"qwen3_next"},
     .keys = qwen3_next_keys,
     .defaults = "{'max_position_embeddings': 32768, 'num_key_value_heads': 2, " DELTA_NET_DEFAULTS
                 ", 'moe_intermediate_size': 512, "
                 "'shared_expert_intermediate_size': 512, 'num_experts_per_tok': 10, 'num_experts': 512}",
     DELTA_NET_LAYERS,
     .experts = &gated},
    {.names = {"qwen3_vl"},
     .defaults = "{'vocab_size': 151936, 'hidden_size': 4096, 'intermediate_size': 22016, "
                 "'num_hidden_layers': 32, 'num_attention_heads': 32, 'head_dim': 128, "
                 "'max_position_embeddings': 128000}",
     .qk_norm = QK_NORM_HEAD,
     .rope_theta = 500000},
    {.names = {"qwen3_vl_moe"},
     .keys = qwen3_vl_moe_keys,
     .defaults = "{'vocab_size': 151936, 'hidden_size': 2048, 'intermediate_size': 5632, "
                 "'num_hidden_layers': 24, 'num_attention_heads': 16, 'max_position_embeddings': 128000, "
                 "'moe_intermediate_size': 1408, 'num_experts_per_tok': 4, 'num_experts': 60}",
     .qk_norm = QK_NORM_HEAD,
     .experts = &either_way,
     .rope_theta = 500000},
    {.names = {"qwen3_5"},
     .keys = qwen3_5_keys,
     .defaults = "{'vocab_size': 248320, 'hidden_size': 4096, 'intermediate_size': 12288, "
                 "'num_hidden_layers': 32, 'num_attention_heads': 16, 'num_key_value_heads': 4, "
                 "'max_position_embeddings': 32768, " DELTA_NET_DEFAULTS "}",
     DELTA_NET_LAYERS,
     .mtp = MTP_LAYERS},
    {.names = {"qwen3_5_moe"},
     .keys = qwen3_5_moe_keys,
     .defaults = "{'vocab_size': 248320, 'hidden_size': 2048, 'num_hidden_layers': 40, "
                 "'num_attention_heads': 16, 'num_key_value_heads': 2, 'max_position_embeddings': "
                 "32768, " DELTA_NET_DEFAULTS ", 'moe_intermediate_size': 512, 'num_experts_per_tok': 8, "
                 "'shared_expert_intermediate_size': 512, 'num_experts': 256}",
     DELTA_NET_LAYERS,
     .experts = &gated_normalised,
     .mtp = MTP_LAYERS},
    {{NULL}},
};
