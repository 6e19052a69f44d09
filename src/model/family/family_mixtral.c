/* family_mixtral.c - the experts of mixtral, phimoe and minimax. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#include "compute/ops.h"

static const struct tensor_name tensors[] = {
    {ROLE_ROUTER, "block_sparse_moe.gate"},
    {ROLE_ROUTER, "mlp.gate"},
    {ROLE_ROUTER, "mlp.router"},
    {ROLE_ROUTER_CORRECTION, "block_sparse_moe.e_score_correction_bias"},
    {ROLE_ROUTER_CORRECTION, "mlp.e_score_correction_bias"},
    {ROLE_EXPERT_GATE, "block_sparse_moe.experts.#.w1"},
    {ROLE_EXPERT_UP, "block_sparse_moe.experts.#.w3"},
    {ROLE_EXPERT_DOWN, "block_sparse_moe.experts.#.w2"},
    {ROLE_EXPERTS_GATE, "block_sparse_moe.switch_mlp.gate_proj"},
    {ROLE_EXPERTS_UP, "block_sparse_moe.switch_mlp.up_proj"},
    {ROLE_EXPERTS_DOWN, "block_sparse_moe.switch_mlp.down_proj"},
    {ROLE_NONE, NULL}};

#define MIXTRAL_KEYS                                                                                         \
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_local_experts", "num_experts"),                   \
        CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size")

/* Every layer has a window where sliding_window is not null. */
static const struct config_key mixtral_keys[] = {
    MIXTRAL_KEYS,
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

static const struct key_word scores[] = {{"sigmoid", ROUTE_SIGMOID}, {"softmax", ROUTE_SOFTMAX}, {NULL, 0}};

static const struct config_key minimax_keys[] = {
    MIXTRAL_KEYS,
    CONFIG_U32(rotary_dim, 2, CONFIG_HEAD_DIM_MAX, 0, "rotary_dim"),
    CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 128, "head_dim"),
    CONFIG_WORD(route_score, scores, ROUTE_SIGMOID, "scoring_func"),
    CONFIG_ONLY(true, "use_qk_norm"),
    CONFIG_ONLY(true, "use_routing_bias"),
    CONFIG_ONLY(0, "shared_intermediate_size"),
    CONFIG_KEY_END,
};

/* A softmax over the logits above a threshold gives the weights of two experts. */
static const struct config_key phimoe_keys[] = {
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "num_local_experts", "num_experts"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_U32_NEEDED(top_k, 2, 2, "num_experts_per_tok"),
    CONFIG_FLOAT(route_jitter, 0, 1, 0.01, "router_jitter_noise"),
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_IGNORED("lm_head_bias"), /* the tensor shows it */
    CONFIG_KEY_END,
};

static const struct expert_form phimoe_experts = {.score = ROUTE_SPARSEMIXER};

static const struct expert_form mixtral_experts = {.normalise = true};
static const struct expert_form minimax_experts = {
    .score = ROUTE_SIGMOID, .correction = true, .normalise = true};

const struct family families_mixtral[] = {
    {.names = {"mixtral"},
     .tensors = tensors,
     .keys = mixtral_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'num_local_experts': 8, "
                 "'num_experts_per_tok': 2}",
     .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},
               {.names = {"full_attention"}, .mixer = &block_attention}},
     .rope_theta = 1e6,
     .experts = &mixtral_experts},
    {.names = {"phimoe"},
     .tensors = tensors,
     .keys = phimoe_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'num_local_experts': 16, "
                 "'num_experts_per_tok': 2}",
     .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},
               {.names = {"full_attention"}, .mixer = &block_attention}},
     .layer_norm = true,
     .rope_theta = 1e6,
     .rope_mscales = true,
     .experts = &phimoe_experts},
    {.names = {"minimax_m2"},
     .tensors = tensors,
     .keys = minimax_keys,
     .defaults = "{'max_position_embeddings': 196608, 'num_key_value_heads': 8, 'num_local_experts': 256, "
                 "'num_experts_per_tok': 8}",
     .qk_norm = QK_NORM_ALL,
     .rotary_part = 1,
     .rope_theta = 5e6,
     .experts = &minimax_experts},
    {{NULL}},
};
