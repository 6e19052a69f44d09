/* family_gpt_oss.c - gpt-oss: sinks, a window in every second layer, experts with biases and a clipped
 * SwiGLU. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

static const struct tensor_name tensors[] = {{ROLE_ROUTER, "mlp.router"},
                                             {ROLE_EXPERTS_GATE, "mlp.experts.gate_proj"},
                                             {ROLE_EXPERTS_UP, "mlp.experts.up_proj"},
                                             {ROLE_EXPERTS_DOWN, "mlp.experts.down_proj"},
                                             {ROLE_NONE, NULL}};

/* The file says "silu" of what is more. */
static const struct key_word activations[] = {{"silu", ACTIVATION_SWIGLU_CLIP}, {NULL, 0}};

static const struct config_key keys[] = {
    CONFIG_WORD(activation, activations, ACTIVATION_SWIGLU_CLIP, "hidden_act"),
    CONFIG_FLOAT(glu_alpha, 1e-3, 1e3, 1.702, "swiglu_alpha"),
    CONFIG_FLOAT(glu_limit, 1e-3, 1e6, 7, "swiglu_limit"),
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 64, "head_dim"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 128, "sliding_window"),
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_local_experts", "num_experts"),
    CONFIG_U32_NEEDED(top_k, 1, CONFIG_TOP_K_MAX, "num_experts_per_tok", "experts_per_token"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_KEY_END,
};

static const struct expert_form experts = {.score = ROUTE_SOFTMAX_CHOSEN, .order = STACK_COLUMNS_INTERLEAVED};

const struct family families_gpt_oss[] = {
    {.names = {"gpt_oss"},
     .tensors = tensors,
     .keys = keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'num_local_experts': 128, "
                 "'num_experts_per_tok': 4, "
                 "'rope_parameters': {'rope_type': 'yarn', 'factor': 32, 'truncate': false, "
                 "'original_max_position_embeddings': 4096}}",
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {.every = 2},
     .sinks = true,
     .rope_theta = 150000,
     .experts = &experts},
    {{NULL}},
};
