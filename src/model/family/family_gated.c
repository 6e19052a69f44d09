/* family_gated.c - afmoe, laguna: gates of attention's results by a matrix of their own; norms of queries and
 * keys, windows, experts by a sigmoid and a correction. mimo_v2: values narrower than keys, sinks in layers
 * with a window. step3p5: activations between bounds. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#define SHARED_EXPERTS                                                                                       \
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"}, {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},      \
    {                                                                                                        \
        ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"                                                     \
    }

/* ---- afmoe ---- */

static const struct tensor_name afmoe_tensors[] = {{ROLE_MLP_NORM, "pre_mlp_layernorm"},
                                                   {ROLE_MLP_NORM_AFTER, "post_mlp_layernorm"},
                                                   {ROLE_ROUTER, "mlp.router.gate"},
                                                   {ROLE_ROUTER_CORRECTION, "mlp.expert_bias"},
                                                   SHARED_EXPERTS,
                                                   {ROLE_NONE, NULL}};

static const struct key_word sigmoid[] = {{"sigmoid", ROUTE_SIGMOID}, {NULL, 0}};

static const struct config_key afmoe_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 1024, "sliding_window"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "num_dense_layers"),
    CONFIG_U32(shared_experts, 0, 1024, 2, "num_shared_experts"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "route_scale"),
    CONFIG_FLAG(embedding_sqrt, false, "mup_enabled"),
    CONFIG_WORD(route_score, sigmoid, ROUTE_SIGMOID, "score_func"),
    CONFIG_ONLY(true, "route_norm"),
    CONFIG_ONLY(1, "n_group", "num_expert_groups"),
    CONFIG_ONLY(1, "topk_group", "num_limited_groups"),
    CONFIG_IGNORED("load_balance_coeff"),
    CONFIG_KEY_END,
};

static const struct expert_form afmoe_experts = {.score = ROUTE_SIGMOID,
                                                 .shared = ROUTE_SHARED_WHOLE,
                                                 .correction = true,
                                                 .normalise = true,
                                                 .normalise_eps = 1e-20f};

/* ---- laguna ---- */

static const struct tensor_name laguna_tensors[] = {
    {ROLE_ATTENTION_GATE, "self_attn.g_proj"},
    {ROLE_ROUTER_CORRECTION, "mlp.experts.e_score_correction_bias"},
    {ROLE_ROUTER_CORRECTION, "mlp.gate.e_score_correction_bias"},
    {ROLE_SHARED_GATE, "mlp.shared_expert.gate_proj"},
    {ROLE_SHARED_UP, "mlp.shared_expert.up_proj"},
    {ROLE_SHARED_DOWN, "mlp.shared_expert.down_proj"},
    SHARED_EXPERTS,
    {ROLE_NONE, NULL}};

static const struct key_word gatings[] = {
    {"true", GATE_HEADS}, {"per-head", GATE_HEADS}, {"per-element", GATE_VALUES}, {NULL, 0}};

static const struct config_key laguna_keys[] = {
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 512, "sliding_window"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "first_k_dense_replace"),
    CONFIG_U32(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, 512, "shared_expert_intermediate_size"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "moe_routed_scaling_factor"),
    CONFIG_WORD(attention_gate, gatings, GATE_HEADS, "gating"),
    CONFIG_ONLY(false, "moe_apply_router_weight_on_input"),
    CONFIG_ONLY(0, "moe_router_logit_softcapping"),
    CONFIG_KEY_END,
};

static const struct expert_form laguna_experts = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise = true};

/* ---- mimo_v2 ---- */

static const struct tensor_name mimo_tensors[] = {
    {ROLE_SINKS, "self_attn.attention_sink_bias"}, {ROLE_SINKS, "self_attn.sinks"}, {ROLE_NONE, NULL}};

/* The factor of the values is one of attention's result. */
static const struct config_key mimo_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps", "layernorm_epsilon"),
    CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 192, "head_dim"),
    CONFIG_U32(attention_value, 2, CONFIG_HEAD_DIM_MAX, 128, "v_head_dim"),
    CONFIG_FLOAT(attention_out_scale, 1e-6, 1e6, 1, "attention_value_scale"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 129, "sliding_window"),
    CONFIG_U32(window_before, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window_size"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 1, "first_k_dense_replace"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "routed_scaling_factor"),
    CONFIG_FLAG(normalise, true, "norm_topk_prob"),
    CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, 1, "n_group"),
    CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, 1, "topk_group"),
    CONFIG_WORD(route_score, sigmoid, ROUTE_SIGMOID, "scoring_func"),
    CONFIG_KEY_END,
};

static const struct expert_form mimo_experts = {
    .score = ROUTE_SIGMOID, .correction = true, .normalise_eps = 1e-20f};

/* ---- step3p5 ---- */

static const struct tensor_name step_tensors[] = {{ROLE_ATTENTION_GATE, "self_attn.g_proj"},
                                                  {ROLE_ROUTER, "moe.gate"},
                                                  {ROLE_ROUTER_CORRECTION, "moe.router_bias"},
                                                  {ROLE_EXPERTS_GATE, "moe.gate_proj"},
                                                  {ROLE_EXPERTS_UP, "moe.up_proj"},
                                                  {ROLE_EXPERTS_DOWN, "moe.down_proj"},
                                                  {ROLE_SHARED_GATE, "share_expert.gate_proj"},
                                                  {ROLE_SHARED_UP, "share_expert.up_proj"},
                                                  {ROLE_SHARED_DOWN, "share_expert.down_proj"},
                                                  {ROLE_NONE, NULL}};

/* Published files have names of their own, and heads of layers with a window in an object. Their other heads
 * there are those of all layers, or tensors have other shapes. */
static const struct config_key step_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(kv_heads, 1, CONFIG_HEADS_MAX, 0, "num_key_value_heads", "num_attention_groups"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_U32(window_heads, 1, CONFIG_HEADS_MAX, 0, "num_sliding_attention_heads",
               "attention_other_setting.num_attention_heads"),
    CONFIG_U32_NEEDED(experts, 1, CONFIG_EXPERTS_MAX, "n_routed_experts", "moe_num_experts",
                      "num_local_experts"),
    CONFIG_U32_NEEDED(top_k, 1, CONFIG_TOP_K_MAX, "num_experts_per_tok", "moe_top_k"),
    CONFIG_U32_NEEDED(shared_intermediate, 1, CONFIG_INTERMEDIATE_MAX, "share_expert_dim",
                      "share_expert_dims"),
    CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, 3, "first_k_dense_replace"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 1, "moe_router_scaling_factor"),
    CONFIG_FLOAT(score_scalar, 1e-6, 1e6, 0, "query_pre_attn_scalar"),
    CONFIG_WORD(route_score, sigmoid, ROUTE_SIGMOID, "moe_router_activation"),
    CONFIG_ONLY(true, "use_moe_router_bias"),
    CONFIG_ONLY(true, "norm_expert_weight"),
    CONFIG_ONLY(true, "use_head_wise_attn_gate"),
    CONFIG_ONLY(true, "use_qk_norm"),
    CONFIG_ONLY(true, "use_moe"),
    CONFIG_ONLY(true, "zero_centered"),
    CONFIG_ONLY(1, "moe_every_n_layer"),
    CONFIG_IGNORED("attention_other_setting.attention_type", "attention_other_setting.head_dim",
                   "attention_other_setting.num_attention_groups", "num_nextn_predict_layers",
                   "per_layer_config"),
    CONFIG_IGNORED("need_fp32_gate", "att_impl_type", "max_seq_len", "sink"),
    CONFIG_KEY_END,
};

static const struct expert_form step_experts = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise = true};

#define WINDOWED(main, local)                                                                                \
    .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = main},                        \
              {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true, .rope = local}}

const struct family families_gated[] = {
    {.names = {"afmoe"},
     .tensors = afmoe_tensors,
     .keys = afmoe_keys,
     .defaults = "{'max_position_embeddings': 16384, 'head_dim': 128, 'num_experts': 64, "
                 "'num_experts_per_tok': 6, 'moe_intermediate_size': 1408}",
     WINDOWED(KIND_ROPE_NONE, KIND_ROPE_MAIN),
     .pattern = {{"global_attn_every_n_layers"}, 4},
     .norm_position = NORM_SANDWICH,
     .qk_norm = QK_NORM_HEAD,
     .own_gate = GATE_VALUES,
     .own_gate_function = HEAD_GATE_SIGMOID,
     .experts = &afmoe_experts},
    {.names = {"laguna"},
     .tensors = laguna_tensors,
     .keys = laguna_keys,
     .defaults =
         "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'head_dim': 128, "
         "'num_experts': 256, 'num_experts_per_tok': 8, 'moe_intermediate_size': 512, "
         "'rope_parameters': {'full_attention': {'rope_theta': 500000, 'partial_rotary_factor': 0.5}, "
         "'sliding_attention': {'rope_theta': 10000}}}",
     WINDOWED(KIND_ROPE_MAIN, KIND_ROPE_LOCAL),
     .qk_norm = QK_NORM_HEAD,
     .own_gate = GATE_HEADS,
     .own_gate_function = HEAD_GATE_SOFTPLUS,
     .heads_listed = true,
     .rotary_part = 1,
     .experts = &laguna_experts},
    {.names = {"mimo_v2_flash"},
     .tensors = mimo_tensors,
     .keys = mimo_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 4, 'n_routed_experts': 256, "
                 "'num_experts_per_tok': 8, 'moe_intermediate_size': 2048, 'attention_value_scale': 0.707}",
     WINDOWED(KIND_ROPE_MAIN, KIND_ROPE_LOCAL),
     .pattern = {.every = 6, .also_first = true},
     .kv_twice_windowed = true,
     .sinks = true,
     .sinks_windowed = true,
     .rotary_part = 0.334,
     .rope_theta = 5e6,
     .rope_theta_local = 1e4,
     .experts = &mimo_experts},
    {.names = {"step3p5"},
     .parents = {"step3p7"},
     .tensors = step_tensors,
     .keys = step_keys,
     .defaults = "{'max_position_embeddings': 128000, 'num_key_value_heads': 8, 'n_routed_experts': 288, "
                 "'num_experts_per_tok': 8, 'share_expert_dim': 1280, 'moe_intermediate_size': 1280}",
     WINDOWED(KIND_ROPE_MAIN, KIND_ROPE_LOCAL),
     .norm_shift = SHIFT_HF,
     .qk_norm = QK_NORM_HEAD,
     .own_gate = GATE_HEADS,
     .own_gate_function = HEAD_GATE_SIGMOID,
     .rotary_part = 1,
     .rope_listed = true,
     .layers_padded = true,
     .limits_listed = true,
     .experts = &step_experts},
    {{NULL}},
};
