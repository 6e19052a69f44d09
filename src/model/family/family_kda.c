/* family_kda.c - kimi_linear, bailing_hybrid: Kimi delta attention, with latent attention in some layers. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

static const struct expert_form experts = {
    .score = ROUTE_SIGMOID, .shared = ROUTE_SHARED_WHOLE, .correction = true, .normalise_eps = 1e-20f};

static const struct key_word sigmoid[] = {{"sigmoid", ROUTE_SIGMOID}, {NULL, 0}};

/* The head_dim that files give is that of neither kind of layer, or of linear attention. */
#define KDA_KEYS(count, top, dense)                                                                          \
    CONFIG_U32_NEEDED(head_dim, 2, CONFIG_HEAD_DIM_MAX, "qk_rope_head_dim"),                                 \
        CONFIG_IGNORED("head_dim", "qk_head_dim"),                                                           \
        CONFIG_U32_NEEDED(context_max, 1, CONFIG_CONTEXT_MAX, "model_max_length",                            \
                          "max_position_embeddings"),                                                        \
        CONFIG_U32_NEEDED(top_k, 1, CONFIG_TOP_K_MAX, "num_experts_per_token", "num_experts_per_tok"),       \
        CONFIG_U32(shared_experts, 0, 1024, 1, "num_shared_experts", "n_shared_experts"),                    \
        CONFIG_FLAG(normalise, true, "moe_renormalize", "norm_topk_prob"),                                   \
        CONFIG_U32(groups, 1, ROUTE_GROUPS_MAX, count, "num_expert_group", "n_group"),                       \
        CONFIG_U32(groups_top, 1, ROUTE_GROUPS_MAX, top, "topk_group"),                                      \
        CONFIG_U32(dense_layers, 0, CONFIG_LAYERS_MAX, dense, "first_k_dense_replace"),                      \
        CONFIG_WORD(route_score, sigmoid, ROUTE_SIGMOID, "moe_router_activation_func", "score_function",     \
                    "scoring_func"),                                                                         \
        CONFIG_ONLY(1, "moe_layer_freq")

/* ---- kimi_linear ---- */

static const struct tensor_name kimi_tensors[] = {
    {ROLE_DELTA_B, "self_attn.b_proj"},
    {ROLE_DELTA_DECAY, "self_attn.A_log"},
    {ROLE_DELTA_DT_BIAS, "self_attn.dt_bias"},
    {ROLE_DELTA_NORM, "self_attn.o_norm"},
    {ROLE_DELTA_OUT, "self_attn.o_proj"},
    /* transformers writes the names of experts for all MLPs. */
    {ROLE_GATE, "mlp.gate_proj"},
    {ROLE_GATE, "block_sparse_moe.gate_proj"},
    {ROLE_UP, "mlp.up_proj"},
    {ROLE_UP, "block_sparse_moe.up_proj"},
    {ROLE_DOWN, "mlp.down_proj"},
    {ROLE_DOWN, "block_sparse_moe.down_proj"},
    {ROLE_ROUTER, "block_sparse_moe.gate"},
    {ROLE_ROUTER_CORRECTION, "block_sparse_moe.gate.e_score_correction_bias"},
    {ROLE_EXPERT_GATE, "block_sparse_moe.experts.#.w1"},
    {ROLE_EXPERT_UP, "block_sparse_moe.experts.#.w3"},
    {ROLE_EXPERT_DOWN, "block_sparse_moe.experts.#.w2"},
    {ROLE_SHARED_GATE, "block_sparse_moe.shared_experts.gate_proj"},
    {ROLE_SHARED_UP, "block_sparse_moe.shared_experts.up_proj"},
    {ROLE_SHARED_DOWN, "block_sparse_moe.shared_experts.down_proj"},
    {ROLE_NONE, NULL}};

static const struct config_key kimi_keys[] = {
    KDA_KEYS(1, 1, 1),
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 2.446, "routed_scaling_factor"),
    CONFIG_ONLY(true, "mla_use_nope"),
    CONFIG_ONLY(true, "use_grouped_topk"),
    CONFIG_IGNORED("linear_attn_config.kda_layers"),
    CONFIG_KEY_END,
};

/* ---- bailing_hybrid ---- */

static const struct tensor_name bailing_tensors[] = {
    {ROLE_EMBEDDING, "word_embeddings"},
    {ROLE_EMBEDDING, "embed_tokens"},
    {ROLE_Q, "attention.q_proj"},
    {ROLE_K, "attention.k_proj"},
    {ROLE_V, "attention.v_proj"},
    {ROLE_O, "attention.dense"},
    {ROLE_ATTENTION_GATE, "attention.g_proj"},
    {ROLE_LATENT_Q_A, "attention.q_a_proj"},
    {ROLE_LATENT_Q_NORM, "attention.q_a_layernorm"},
    {ROLE_LATENT_Q_B, "attention.q_b_proj"},
    {ROLE_LATENT_KV_A, "attention.kv_a_proj_with_mqa"},
    {ROLE_LATENT_KV_NORM, "attention.kv_a_layernorm"},
    {ROLE_LATENT_KV_B, "attention.kv_b_proj"},
    {ROLE_DELTA_B, "attention.b_proj"},
    {ROLE_DELTA_DECAY, "attention.A_log"},
    {ROLE_DELTA_DT_BIAS, "attention.dt_bias"},
    {ROLE_DELTA_NORM, "attention.o_norm"},
    {ROLE_DELTA_OUT, "attention.dense"},
    {ROLE_KDA_CONV_Q, "attention.q_conv1d"},
    {ROLE_KDA_CONV_K, "attention.k_conv1d"},
    {ROLE_KDA_CONV_V, "attention.v_conv1d"},
    {ROLE_KDA_DECAY, "attention.f_proj"},
    {ROLE_KDA_GATE, "attention.g_proj"},
    {ROLE_ROUTER_CORRECTION, "mlp.gate.expert_bias"},
    {ROLE_ROUTER_CORRECTION, "mlp.gate.e_score_correction_bias"},
    {ROLE_SHARED_GATE, "mlp.shared_experts.gate_proj"},
    {ROLE_SHARED_UP, "mlp.shared_experts.up_proj"},
    {ROLE_SHARED_DOWN, "mlp.shared_experts.down_proj"},
    {ROLE_NONE, NULL}};

static const struct config_key bailing_keys[] = {
    KDA_KEYS(8, 4, 2),
    CONFIG_FLOAT(routed_scale, 1e-6, 1e6, 2.5, "routed_scaling_factor"),
    CONFIG_U32_NEEDED(key_heads, 1, CONFIG_HEADS_MAX, "linear_num_heads", "num_attention_heads"),
    CONFIG_U32_NEEDED(key_dim, 16, CONFIG_STATE_DIM_MAX, "linear_head_dim", "head_dim"),
    CONFIG_U32_NEEDED(conv_width, 2, CONFIG_CONV_WIDTH_MAX, "linear_conv_kernel_dim",
                      "short_conv_kernel_size"),
    CONFIG_FLAG(decay_bounded, true, "kda_safe_gate"),
    CONFIG_FLOAT(decay_bound, -1e6, -1e-6, -5, "kda_lower_bound"),
    CONFIG_KEY_END,
};

#define KDA_DEFAULTS                                                                                         \
    "'kv_lora_rank': 512, 'qk_rope_head_dim': 64, 'qk_nope_head_dim': 128, 'v_head_dim': 128, "              \
    "'num_experts_per_token': 8"

const struct family families_kda[] = {
    {.names = {"kimi_linear"},
     .tensors = kimi_tensors,
     .keys = kimi_keys,
     .defaults = "{'model_max_length': 1048576, " KDA_DEFAULTS
                 ", 'linear_num_heads': 32, 'linear_head_dim': 128, 'linear_conv_kernel_dim': 4, "
                 "'num_experts': 256, 'moe_intermediate_size': 1024}",
     .kinds = {{.names = {"full_attention"}, .mixer = &block_latent, .rope = KIND_ROPE_NONE},
               {.names = {"linear_attention"}, .mixer = &block_kda}},
     .pattern = {.first = "linear_attn_config.full_attn_layers", .from_one = true},
     .experts = &experts},
    {.names = {"bailing_hybrid"},
     .tensors = bailing_tensors,
     .keys = bailing_keys,
     .defaults = "{'model_max_length': 262144, " KDA_DEFAULTS
                 ", 'head_dim': 128, 'short_conv_kernel_size': 4, 'num_experts': 512, "
                 "'moe_intermediate_size': 768}",
     .kinds = {{.names = {"full_attention"}, .mixer = &block_latent},
               {.names = {"linear_attention"}, .mixer = &block_kda}},
     .pattern = {{"layer_group_size"}, 6},
     .own_gate = GATE_HEADS,
     .own_gate_function = HEAD_GATE_SIGMOID,
     .rope_theta = 6e6,
     .experts = &experts},
    {{NULL}},
};
