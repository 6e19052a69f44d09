/* family_hunyuan.c - hunyuan: norms of queries and keys after the rotation, experts and a shared MLP; hy_v3:
 * experts by a sigmoid and a correction. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#define NORMS                                                                                                \
    {ROLE_Q_NORM, "self_attn.query_layernorm"},                                                              \
    {                                                                                                        \
        ROLE_K_NORM, "self_attn.key_layernorm"                                                               \
    }
#define SHARED                                                                                               \
    {ROLE_SHARED_GATE, "mlp.shared_mlp.gate_proj"}, {ROLE_SHARED_UP, "mlp.shared_mlp.up_proj"},              \
    {                                                                                                        \
        ROLE_SHARED_DOWN, "mlp.shared_mlp.down_proj"                                                         \
    }

static const struct tensor_name tensors[] = {NORMS, {ROLE_NONE, NULL}};
static const struct tensor_name moe_tensors[] = {
    NORMS, {ROLE_ROUTER, "mlp.gate.wg"}, SHARED, {ROLE_NONE, NULL}};

static const struct config_key keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_KEY_END,
};

/* The shared MLP is as wide as an expert. Lists have a number for each layer. */
static const struct config_key moe_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32_SAME(experts, 1, CONFIG_EXPERTS_MAX, 1, "num_experts", "num_local_experts"),
    CONFIG_U32_SAME(top_k, 1, CONFIG_TOP_K_MAX, 1, "moe_topk", "num_experts_per_tok"),
    CONFIG_U32_NEEDED(expert_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_U32_NEEDED(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "intermediate_size"),
    CONFIG_ONLY(1, "num_shared_expert"),
    CONFIG_ONLY(false, "use_cla"),
    CONFIG_ONLY(true, "use_qk_norm"),
    CONFIG_IGNORED("moe_intermediate_size"),
    CONFIG_KEY_END,
};

static const struct expert_form experts = {.shared = ROUTE_SHARED_WHOLE, .normalise = true};

/* ---- hy_v3 ---- */

static const struct tensor_name v3_tensors[] = {{ROLE_ROUTER, "mlp.router.gate"},
                                                {ROLE_ROUTER, "mlp.gate"},
                                                {ROLE_ROUTER_CORRECTION, "mlp.expert_bias"},
                                                {ROLE_ROUTER_CORRECTION, "mlp.e_score_correction_bias"},
                                                SHARED,
                                                {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
                                                {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
                                                {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
                                                {ROLE_NONE, NULL}};

static const struct config_key v3_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(shared_experts, 0, 1024, 1, "num_shared_experts"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "first_k_dense_replace"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 2.826, "router_scaling_factor"),
    CONFIG_IGNORED("enable_moe_fp32_combine"),
    CONFIG_KEY_END,
};

static const struct expert_form v3_experts = {.score = ROUTE_SIGMOID,
                                              .shared = ROUTE_SHARED_WHOLE,
                                              .correction = true,
                                              .normalise = true,
                                              .normalise_eps = 1e-20f};

const struct family families_hunyuan[] = {
    {.names = {"hunyuan_v1_dense"},
     .defaults = "{'max_position_embeddings': 2048}",
     .tensors = tensors,
     .keys = keys,
     .qk_norm = QK_NORM_ROTATED},
    {.names = {"hunyuan_v1_moe"},
     .defaults = "{'max_position_embeddings': 2048}",
     .tensors = moe_tensors,
     .keys = moe_keys,
     .experts = &experts,
     .qk_norm = QK_NORM_ROTATED},
    {.names = {"hy_v3"},
     .defaults =
         "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'head_dim': 128, 'num_experts': "
         "192, 'num_experts_per_tok': 8, 'moe_intermediate_size': 1536}",
     .tensors = v3_tensors,
     .keys = v3_keys,
     .experts = &v3_experts,
     .qk_norm = QK_NORM_HEAD,
     .rope_theta = 11158840},
    {{NULL}},
};
