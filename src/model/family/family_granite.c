/* family_granite.c - granite: factors of the embedding, of scores, of what blocks add, and of the logits.
 * With experts: stacks of them, chosen by the logits, and a shared one beside them. The hybrid has Mamba-2 in
 * most layers, and its dense MLP has the shared expert's names. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#define FACTORS(low, high)                                                                                   \
    CONFIG_FLOAT(embedding_scale, low, high, 1, "embedding_multiplier"),                                     \
        CONFIG_FLOAT(residual_scale, low, high, 1, "residual_multiplier"),                                   \
        CONFIG_FLOAT(score_scale, low, high, 1, "attention_multiplier"),                                     \
        CONFIG_FLOAT(logits_divisor, low, high, 1, "logits_scaling")

static const struct config_key dense_keys[] = {FACTORS(1e-6, 1e6), CONFIG_KEY_END};

static const struct config_key swa_keys[] = {
    FACTORS(1e-6, 1e6),
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 128, "sliding_window"),
    CONFIG_KEY_END,
};

static const struct config_key moe_swa_keys[] = {
    FACTORS(1e-6, 1e6),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 128, "sliding_window"),
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_local_experts", "num_experts"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_U32(shared_intermediate, 0, CONFIG_INTERMEDIATE_MAX, 0, "shared_intermediate_size"),
    CONFIG_KEY_END,
};

/* Sinks, and the first of each four layers without a window. */
#define SWA                                                                                                  \
    .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},                                      \
              {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},                \
    .pattern = {.every = 4, .leads = true}, .sinks = true, .thetas_listed = true

static const struct config_key moe_keys[] = {
    FACTORS(1e-6, 1e6),
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_local_experts", "num_experts"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_U32(shared_intermediate, 0, CONFIG_INTERMEDIATE_MAX, 0, "shared_intermediate_size"),
    CONFIG_KEY_END,
};

/* No position at all is the default. */
static const struct key_word positions[] = {{"rope", false}, {"nope", true}, {NULL, 0}};

static const struct config_key hybrid_keys[] = {
    FACTORS(1e-9, 1e9),
    CONFIG_U32(intermediate, 1, CONFIG_INTERMEDIATE_MAX, 1024, "shared_intermediate_size"),
    CONFIG_U32(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, 1024, "shared_intermediate_size"),
    CONFIG_U32(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, 11008, "intermediate_size"),
    CONFIG_WORD(rope_absent, positions, true, "position_embedding_type"),
    CONFIG_IGNORED("mamba_conv_bias", "mamba_proj_bias"), /* tensors show them */
    CONFIG_IGNORED("normalization_function"),
    CONFIG_KEY_END,
};

static const struct tensor_name tensors[] = {{ROLE_GATE_UP, "shared_mlp.input_linear"},
                                             {ROLE_DOWN, "shared_mlp.output_linear"},
                                             {ROLE_DOWN, "mlp.down_proj"},
                                             {ROLE_ROUTER, "block_sparse_moe.router.layer"},
                                             {ROLE_ROUTER, "block_sparse_moe.router"},
                                             {ROLE_EXPERTS_GATE_UP, "block_sparse_moe.input_linear"},
                                             {ROLE_EXPERTS_GATE_UP, "block_sparse_moe.experts.gate_up_proj"},
                                             {ROLE_EXPERTS_DOWN_FUSED, "block_sparse_moe.output_linear"},
                                             {ROLE_EXPERTS_DOWN_FUSED, "block_sparse_moe.experts.down_proj"},
                                             {ROLE_EXPERTS_GATE, "block_sparse_moe.switch_mlp.gate_proj"},
                                             {ROLE_EXPERTS_UP, "block_sparse_moe.switch_mlp.up_proj"},
                                             {ROLE_EXPERTS_DOWN, "block_sparse_moe.switch_mlp.down_proj"},
                                             {ROLE_SHARED_GATE_UP, "shared_mlp.input_linear"},
                                             {ROLE_SHARED_DOWN, "shared_mlp.output_linear"},
                                             {ROLE_NONE, NULL}};

static const struct expert_form experts = {.score = ROUTE_SOFTMAX_CHOSEN, .shared = ROUTE_SHARED_WHOLE};

const struct family families_granite[] = {
    {.names = {"granite"}, .defaults = "{'max_position_embeddings': 2048}", .keys = dense_keys},
    {.names = {"granitemoe", "granitemoeshared"},
     .tensors = tensors,
     .keys = moe_keys,
     .defaults = "{'max_position_embeddings': 2048, 'num_local_experts': 8, 'num_experts_per_tok': 2}",
     .experts = &experts},
    {.names = {"granite_swa"},
     .defaults = "{'max_position_embeddings': 8192, 'num_key_value_heads': 4, 'tie_word_embeddings': true}",
     .keys = swa_keys,
     SWA},
    {.names = {"granitemoe_swa"},
     .tensors = tensors,
     .keys = moe_swa_keys,
     .defaults = "{'max_position_embeddings': 2048, 'num_local_experts': 8, 'num_experts_per_tok': 2}",
     .experts = &experts,
     SWA},
    {.names = {"granitemoehybrid"},
     .tensors = tensors,
     .keys = hybrid_keys,
     .defaults = "{'max_position_embeddings': 2048, 'num_local_experts': 8, 'num_experts_per_tok': 2, "
                 "'mamba_n_heads': 128, "
                 "'mamba_d_state': 256, 'mamba_d_head': 64}",
     .kinds = {{.names = {"linear_attention", "mamba"}, .mixer = &block_mamba},
               {.names = {"full_attention", "attention"}, .mixer = &block_attention}},
     .experts = &experts},
    {{NULL}},
};
