/* family_qwen.c - the families of Qwen. */
#include "model/blocks.h"
#include "model/family.h"

/* Names the delta net's z gate, which is always SiLU here. */
static const struct key_word silu[] = {{"swish", ACTIVATION_SILU}, {"silu", ACTIVATION_SILU}, {NULL, 0}};

#define DELTA_NET_LAYERS                                                                                     \
    .kinds = {{.names = {"full_attention", "attention"}, .mixer = &block_attention},                         \
              {.names = {"linear_attention"}, .mixer = &block_delta_net}},                                   \
    .pattern = {{"full_attention_interval"}, 4}, .norm_shift = SHIFT_HF, .qk_norm = QK_NORM_HEAD,            \
    .attention_gate = true, .rotary_part = 0.25

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

const struct family families_qwen[] = {
    {.names = {"qwen2"}},
    {.names = {"qwen3"}, .qk_norm = QK_NORM_HEAD},
    {.names = {"qwen3_vl"}, .qk_norm = QK_NORM_HEAD, .images = true, .deepstack = true},
    {.names = {"qwen3_5"}, .keys = qwen3_5_keys, DELTA_NET_LAYERS, .images = true, .mtp = true},
    {.names = {"qwen3_5_moe"},
     .keys = qwen3_5_moe_keys,
     DELTA_NET_LAYERS,
     .experts = true,
     .images = true,
     .mtp = true},
    {{NULL}},
};
