/* family_deepseek.c - families with latent attention: DeepSeek, and those that are built like it. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#include "compute/ops.h"

static const struct tensor_name tensors[] = {{ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
                                             {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
                                             {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
                                             {ROLE_MTP_PAIR, "eh_proj"},
                                             {ROLE_MTP_NORM_EMBEDDING, "enorm"},
                                             {ROLE_MTP_NORM_HIDDEN, "hnorm"},
                                             {ROLE_MTP_NORM, "shared_head.norm"},
                                             {ROLE_NONE, NULL}};

static const struct expert_form corrected = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise_eps = 1e-20f};
static const struct expert_form uncorrected = {
    .score = ROUTE_SOFTMAX, .shared = ROUTE_SHARED_WHOLE, .normalise_eps = 1e-20f};

static const struct key_word scores[] = {{"sigmoid", ROUTE_SIGMOID}, {"softmax", ROUTE_SOFTMAX}, {NULL, 0}};
static const struct key_word choices[] = {{"noaux_tc", TOPK_CORRECTED},
                                          {"greedy", TOPK_GREEDY},
                                          {"group_limited_greedy", TOPK_GROUP_MAX},
                                          {NULL, 0}};

/* The head_dim that other files give is another's: qk_rope_head_dim, or nothing. */
#define LATENT_KEYS                                                                                          \
    CONFIG_U32_NEEDED(head_dim, 2, CONFIG_HEAD_DIM_MAX, "qk_rope_head_dim"),                                 \
        CONFIG_IGNORED("head_dim", "qk_head_dim")
#define LATENT_DEFAULTS "'kv_lora_rank': 512, 'qk_rope_head_dim': 64"
#define LATENT_LAYERS                                                                                        \
    .kinds = {{.names = {"full_attention", "attention"}, .mixer = &block_latent}}, .tensors = tensors

/* `score` to `dense` where the file has none. */
#define EXPERT_KEYS(score, choice, scale, count, top, dense)                                                 \
    CONFIG_WORD(route_score, scores, score, "scoring_func"),                                                 \
        CONFIG_WORD(topk_method, choices, choice, "topk_method"), CONFIG_ONLY(1, "moe_layer_freq"),          \
        CONFIG_U32(shared_experts, 0, 1024, 1, "n_shared_experts"),                                          \
        CONFIG_FLOAT(routed_scale, 1e-6, 1e6, scale, "routed_scaling_factor"),                               \
        CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, count, "n_group"),                                           \
        CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, top, "topk_group"),                                      \
        CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, dense, "first_k_dense_replace")

static const struct config_key v3_keys[] = {
    LATENT_KEYS,
    EXPERT_KEYS(ROUTE_SIGMOID, TOPK_CORRECTED, 2.5, 8, 4, 3),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_KEY_END,
};

/* With norm_topk_prob the first code leaves out routed_scaling_factor, vLLM applies it, and transformers
 * does not normalise: no checkpoint says which is meant. */
static const struct config_key v2_keys[] = {
    LATENT_KEYS,
    EXPERT_KEYS(ROUTE_SOFTMAX, TOPK_GREEDY, 1, 1, 1, 0),
    CONFIG_ONLY(false, "norm_topk_prob"),
    CONFIG_KEY_END,
};

static const struct config_key glm_keys[] = {
    LATENT_KEYS,
    EXPERT_KEYS(ROUTE_SIGMOID, TOPK_CORRECTED, 1.8, 1, 1, 1),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_KEY_END,
};

/* Groups count by their two best scores, which no correction changes. */
static const struct config_key mistral4_keys[] = {
    LATENT_KEYS,
    CONFIG_U32(shared_experts, 0, 1024, 1, "n_shared_experts"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "routed_scaling_factor"),
    CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, 1, "n_group"),
    CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, 1, "topk_group"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 0, "first_k_dense_replace"),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_KEY_END,
};

static const struct config_key youtu_keys[] = {LATENT_KEYS, CONFIG_KEY_END};

/* The text models of kimi_vl and kimi_k25 are of the first kind. */
const struct family families_deepseek[] = {
    {.names = {"deepseek_v3", "kimi_k2", "kimi_vl", "kimi_k25"},
     .keys = v3_keys,
     .defaults = "{'max_position_embeddings': 4096, 'q_lora_rank': 1536, 'qk_nope_head_dim': 128, "
                 "'v_head_dim': 128, " LATENT_DEFAULTS
                 ", 'n_routed_experts': 256, 'num_experts_per_tok': 8, 'moe_intermediate_size': 2048}",
     LATENT_LAYERS,
     .experts = &corrected,
     .mtp = MTP_NEXT},
    {.names = {"deepseek_v2"},
     .keys = v2_keys,
     .defaults = "{'max_position_embeddings': 2048, 'q_lora_rank': 1536, 'qk_nope_head_dim': 128, "
                 "'v_head_dim': 128, " LATENT_DEFAULTS
                 ", 'n_routed_experts': 64, 'moe_intermediate_size': 1407, 'n_shared_experts': 2}",
     LATENT_LAYERS,
     .experts = &uncorrected},
    {.names = {"mistral4"},
     .keys = mistral4_keys,
     .defaults =
         "{'max_position_embeddings': 1048576, 'q_lora_rank': 1024, 'kv_lora_rank': 256, "
         "'qk_rope_head_dim': 64, 'qk_nope_head_dim': 64, 'v_head_dim': 128, 'n_routed_experts': 128, "
         "'num_experts_per_tok': 4, 'moe_intermediate_size': 2048, 'rope_parameters': {"
         "'rope_type': 'yarn', 'factor': 128, 'original_max_position_embeddings': 8192, "
         "'mscale_all_dim': 1, 'mscale': 1, 'llama_4_scaling_beta': 0.1}}",
     LATENT_LAYERS,
     .experts = &uncorrected,
     .query_growth = true,
     .rope_part_of_head = true},
    {.names = {"youtu", "youtu_llm"},
     .keys = youtu_keys,
     .defaults = "{'max_position_embeddings': 131072, 'q_lora_rank': 1536, 'qk_nope_head_dim': 128, "
                 "'v_head_dim': 128, " LATENT_DEFAULTS "}",
     LATENT_LAYERS},
    {.names = {"glm4_moe_lite"},
     .keys = glm_keys,
     .defaults = "{'max_position_embeddings': 202752, 'q_lora_rank': 768, 'qk_nope_head_dim': 192, "
                 "'v_head_dim': 256, " LATENT_DEFAULTS
                 ", 'n_routed_experts': 64, 'num_experts_per_tok': 4, 'moe_intermediate_size': 1536, "
                 "'rms_norm_eps': 1e-5}",
     LATENT_LAYERS,
     .experts = &corrected,
     .rotary_part = 1,
     .mtp = MTP_NEXT},
    {{NULL}},
};
