/* gguf_arch.c - the tables. Names that differ between architectures stand in their rows. */
#include "gguf/gguf_arch.h"

#include "base/check.h"
#include "base/slice.h"
#include "gguf/gguf.h"

#include <stdio.h>

const struct gguf_key gguf_arch_keys[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.causal", "is_causal"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {NULL, NULL},
};

static const struct gguf_key gemma_keys[] = {
    {"attention.key_length", "query_pre_attn_scalar"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {NULL, NULL},
};

static const struct gguf_key gemma4_keys[] = {
    {"attention.key_length_swa", "head_dim"},
    {"attention.shared_kv_layers", "num_kv_shared_layers"},
    {"embedding_length_per_layer_input", "hidden_size_per_layer_input"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {NULL, NULL},
};

static const struct gguf_key delta_net_keys[] = {
    {"full_attention_interval", "full_attention_interval"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"ssm.state_size", "linear_key_head_dim"},
    {"ssm.state_size", "linear_value_head_dim"},
    {"ssm.group_count", "linear_num_key_heads"},
    {"ssm.time_step_rank", "linear_num_value_heads"},
    {NULL, NULL},
};

static const struct gguf_key granite_keys[] = {
    {"embedding_scale", "embedding_multiplier"},
    {"residual_scale", "residual_multiplier"},
    {"attention.scale", "attention_multiplier"},
    {"logit_scale", "logits_scaling"},
    {"expert_shared_feed_forward_length", "shared_intermediate_size"},
    {NULL, NULL},
};

static const struct gguf_key cohere_keys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"logit_scale", "logit_scale"},
    {NULL, NULL},
};

/* The width of experts is the family's intermediate_size. */
static const struct gguf_key cohere_moe_keys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"expert_feed_forward_length", "intermediate_size"},
    {"expert_shared_count", "num_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"feed_forward_length", "prefix_dense_intermediate_size"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"logit_scale", "logit_scale"},
    {NULL, NULL},
};

static const struct gguf_key corrected_keys[] = {
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {NULL, NULL},
};

static const struct gguf_key ernie_keys[] = {
    {"expert_shared_count", "moe_num_shared_experts"},
    {"interleave_moe_layer_step", "moe_layer_interval"},
    {"leading_dense_block_count", "moe_layer_start_index"},
    {NULL, NULL},
};

static const struct gguf_key lfm_keys[] = {
    {"attention.layer_norm_rms_epsilon", "norm_eps"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "num_dense_layers"},
    {"shortconv.l_cache", "conv_L_cache"},
    {NULL, NULL},
};

static const struct gguf_key falcon_keys[] = {
    {"ssm.inner_size", "mamba_d_ssm"},
    {NULL, NULL},
};

static const struct gguf_key nemotron_keys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"moe_latent_size", "moe_latent_size"},
    {NULL, NULL},
};

/* The width of minimax's experts is its intermediate_size. */
static const struct gguf_key minimax_keys[] = {
    {"expert_feed_forward_length", "intermediate_size"},
    {NULL, NULL},
};

static const struct gguf_key afmoe_keys[] = {
    {"expert_shared_count", "num_shared_experts"},
    {"expert_weights_norm", "route_norm"},
    {"expert_weights_scale", "route_scale"},
    {"leading_dense_block_count", "num_dense_layers"},
    {NULL, NULL},
};

static const struct gguf_key exaone_moe_keys[] = {
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_shared_count", "num_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {NULL, NULL},
};

/* Files list no dense layers: those at the begin have no router. */
static const struct gguf_key hy_keys[] = {
    {"expert_weights_scale", "router_scaling_factor"},
    {NULL, NULL},
};

static const struct gguf_key laguna_keys[] = {
    {"expert_weights_scale", "moe_routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {NULL, NULL},
};
static const struct gguf_apart laguna_apart = {
    .heads_listed = true, .kv_times = 1, .full_divisor = 1, .full_every = 4, .gating = true};

static const struct gguf_key mimo_keys[] = {
    {"attention.value_length", "v_head_dim"},
    {"attention.value_scale", "attention_value_scale"},
    {"expert_count", "n_routed_experts"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {NULL, NULL},
};
static const struct gguf_apart mimo_apart = {.kv_times = 2, .full_divisor = 1};

static const struct gguf_key step_keys[] = {
    {"expert_count", "n_routed_experts"},
    {"expert_shared_feed_forward_length", "share_expert_dim"},
    {"expert_weights_norm", "norm_expert_weight"},
    {"expert_weights_scale", "moe_router_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"moe_every_n_layers", "moe_every_n_layer"},
    {NULL, NULL},
};
static const struct gguf_apart step_apart = {
    .window_heads = "num_sliding_attention_heads", .kv_times = 1, .full_divisor = 2};

static const struct gguf_key mistral4_keys[] = {
    {"attention.temperature_scale", "rope.llama_4_scaling_beta"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {NULL, NULL},
};

static const struct gguf_key kimi_keys[] = {
    {"attention.head_count", "linear_num_heads"},
    {"kda.head_dim", "linear_head_dim"},
    {"ssm.conv_kernel", "linear_conv_kernel_dim"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"expert_shared_count", "num_shared_experts"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {NULL, NULL},
};

static const struct gguf_key ministral_keys[] = {
    {"attention.temperature_scale", "rope.llama_4_scaling_beta"},
    {"rope.scaling.yarn_log_multiplier", "rope.mscale_all_dim"},
    {NULL, NULL},
};

static const struct gguf_key bert_keys[] = {
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {NULL, NULL},
};

static const char *const names[TENSOR_ROLES] = {
    [ROLE_EMBEDDING] = "token_embd",
    [ROLE_FINAL_NORM] = "output_norm",
    [ROLE_HEAD] = "output",
    [ROLE_MIXER_NORM] = "attn_norm",
    [ROLE_MIXER_NORM_AFTER] = "post_attention_norm",
    [ROLE_MLP_NORM] = "ffn_norm",
    [ROLE_MLP_NORM_AFTER] = "post_ffw_norm",
    [ROLE_LAYER_SCALE] = "layer_output_scale",
    [ROLE_LAYER_INPUT_TABLE] = "per_layer_token_embd",
    [ROLE_LAYER_INPUT_MODEL] = "per_layer_model_proj",
    [ROLE_LAYER_INPUT_NORM] = "per_layer_proj_norm",
    [ROLE_LAYER_INPUT_GATE] = "inp_gate",
    [ROLE_LAYER_INPUT_OUT] = "proj",
    [ROLE_LAYER_INPUT_NORM_AFTER] = "post_norm",
    [ROLE_Q] = "attn_q",
    [ROLE_K] = "attn_k",
    [ROLE_V] = "attn_v",
    [ROLE_O] = "attn_output",
    [ROLE_QKV] = "attn_qkv",
    [ROLE_ATTENTION_GATE] = "attn_gate",
    [ROLE_Q_NORM] = "attn_q_norm",
    [ROLE_K_NORM] = "attn_k_norm",
    [ROLE_SINKS] = "attn_sinks",
    [ROLE_LATENT_Q_A] = "attn_q_a",
    [ROLE_LATENT_Q_NORM] = "attn_q_a_norm",
    [ROLE_LATENT_Q_B] = "attn_q_b",
    [ROLE_LATENT_KV_A] = "attn_kv_a_mqa",
    [ROLE_LATENT_KV_NORM] = "attn_kv_a_norm",
    [ROLE_LATENT_KV_B] = "attn_kv_b",
    [ROLE_LATENT_K] = "attn_k_b",
    [ROLE_LATENT_V] = "attn_v_b",
    [ROLE_DELTA_QKV] = "attn_qkv",
    [ROLE_DELTA_Z] = "attn_gate",
    [ROLE_DELTA_B] = "ssm_beta",
    [ROLE_DELTA_A] = "ssm_alpha",
    [ROLE_DELTA_CONV] = "ssm_conv1d",
    [ROLE_DELTA_DECAY] = "ssm_a",
    [ROLE_DELTA_DT_BIAS] = "ssm_dt.bias",
    [ROLE_DELTA_NORM] = "ssm_norm",
    [ROLE_DELTA_OUT] = "ssm_out",
    [ROLE_KDA_CONV_Q] = "ssm_conv1d_q",
    [ROLE_KDA_CONV_K] = "ssm_conv1d_k",
    [ROLE_KDA_CONV_V] = "ssm_conv1d_v",
    [ROLE_KDA_DECAY_LOW] = "ssm_f_a",
    [ROLE_KDA_DECAY_HIGH] = "ssm_f_b",
    [ROLE_KDA_GATE_LOW] = "ssm_g_a",
    [ROLE_KDA_GATE_HIGH] = "ssm_g_b",
    [ROLE_SSM_IN] = "ssm_in",
    [ROLE_SSM_CONV] = "ssm_conv1d",
    [ROLE_SSM_CONV_BIAS] = "ssm_conv1d.bias",
    [ROLE_SSM_DECAY] = "ssm_a",
    [ROLE_SSM_DT_BIAS] = "ssm_dt.bias",
    [ROLE_SSM_SKIP] = "ssm_d",
    [ROLE_SSM_NORM] = "ssm_norm",
    [ROLE_SSM_OUT] = "ssm_out",
    [ROLE_SHORT_CONV_IN] = "shortconv.in_proj",
    [ROLE_SHORT_CONV] = "shortconv.conv",
    [ROLE_SHORT_CONV_BIAS] = "shortconv.conv.bias",
    [ROLE_SHORT_CONV_OUT] = "shortconv.out_proj",
    [ROLE_GATE] = "ffn_gate",
    [ROLE_UP] = "ffn_up",
    [ROLE_DOWN] = "ffn_down",
    [ROLE_ROUTER] = "ffn_gate_inp",
    [ROLE_ROUTER_CORRECTION] = "exp_probs_b.bias",
    [ROLE_EXPERTS_GATE] = "ffn_gate_exps",
    [ROLE_EXPERTS_UP] = "ffn_up_exps",
    [ROLE_EXPERTS_DOWN] = "ffn_down_exps",
    [ROLE_EXPERTS_GATE_UP] = "ffn_gate_up_exps",
    [ROLE_EXPERTS_DOWN_FUSED] = "ffn_down_exps",
    [ROLE_SHARED_SCALE] = "ffn_gate_inp_shexp",
    [ROLE_SHARED_GATE] = "ffn_gate_shexp",
    [ROLE_SHARED_UP] = "ffn_up_shexp",
    [ROLE_SHARED_DOWN] = "ffn_down_shexp",
    [ROLE_POSITIONS] = "position_embd",
    [ROLE_TOKEN_TYPES] = "token_types",
    [ROLE_EMBEDDING_NORM] = "token_embd_norm",
    [ROLE_SCORE_DENSE] = "cls",
    [ROLE_SCORE] = "cls.output",
    [ROLE_MTP_PAIR] = "nextn.eh_proj",
    [ROLE_MTP_NORM_EMBEDDING] = "nextn.enorm",
    [ROLE_MTP_NORM_HIDDEN] = "nextn.hnorm",
    [ROLE_MTP_NORM] = "nextn.shared_head_norm",
};

/* Norms and factors of experts beside an MLP. */
static const struct tensor_name beside_experts[] = {
    {ROLE_ROUTER_NORM, "ffn_gate_inp.scale"},  {ROLE_EXPERT_SCALE, "ffn_down_exps.scale"},
    {ROLE_EXPERTS_NORM, "pre_ffw_norm_2"},     {ROLE_EXPERTS_NORM_AFTER, "post_ffw_norm_2"},
    {ROLE_MLP_RESULT_NORM, "post_ffw_norm_1"}, {ROLE_NONE, NULL}};

/* One norm after the mixer, where others have one in front of the MLP. */
static const struct tensor_name norm_after_attention[] = {{ROLE_MLP_NORM, "post_attention_norm"},
                                                          {ROLE_NONE, NULL}};

/* The outputs of all kinds of layers have one name. */
static const struct tensor_name kimi_names[] = {{ROLE_DELTA_OUT, "attn_output"}, {ROLE_NONE, NULL}};

static const struct tensor_name hy_names[] = {{ROLE_ROUTER_CORRECTION, "exp_probs_b"}, {ROLE_NONE, NULL}};

/* Gates of a delta net in one matrix. */
static const struct tensor_name next_names[] = {
    {ROLE_MLP_NORM, "post_attention_norm"}, {ROLE_DELTA_BA, "ssm_ba"}, {ROLE_NONE, NULL}};

/* Norms of the residual stream itself. */
static const struct tensor_name norms_of_stream[] = {{ROLE_MIXER_NORM_AFTER, "attn_output_norm"},
                                                     {ROLE_MLP_NORM_AFTER, "layer_output_norm"},
                                                     {ROLE_NONE, NULL}};

/* Gate and up in one tensor. */
static const struct tensor_name fused_up[] = {{ROLE_GATE_UP, "ffn_up"}, {ROLE_UP, "-"}, {ROLE_NONE, NULL}};

/* The norm of the last hidden state has the name that others have for the embedding's. */
static const struct tensor_name norm_of_embedding[] = {{ROLE_FINAL_NORM, "token_embd_norm"},
                                                       {ROLE_NONE, NULL}};

static const struct tensor_ordered paired[] = {
    {ROLE_Q, ORDER_PAIRS}, {ROLE_K, ORDER_PAIRS}, {ROLE_NONE, ORDER_PAIRS}};

/* A fused attn_qkv is not read where rows of queries and keys lie in pairs, and those of values do not. */
static const struct tensor_name apart[] = {{ROLE_QKV, "-"}, {ROLE_NONE, NULL}};

static const struct tensor_ordered tiled[] = {{ROLE_DELTA_QKV, ORDER_AFTER_KEYS},
                                              {ROLE_DELTA_Z, ORDER_HEADS},
                                              {ROLE_DELTA_B, ORDER_NUMBERS},
                                              {ROLE_DELTA_A, ORDER_NUMBERS},
                                              {ROLE_DELTA_CONV, ORDER_AFTER_KEYS},
                                              {ROLE_DELTA_DECAY, ORDER_NUMBERS},
                                              {ROLE_DELTA_DT_BIAS, ORDER_NUMBERS},
                                              {ROLE_DELTA_OUT, ORDER_HEAD_COLUMNS},
                                              {ROLE_NONE, ORDER_HEADS}};

#define SECTIONS "\"rope_parameters\": {\"mrope_interleaved\": true}"

#define GGUF_NAMES .naming.layers = "blk", .naming.names = names

static const struct gguf_arch archs[] = {
    {"llama", GGUF_NAMES, .model_type = "llama", .naming.own = apart, .naming.ordered = paired},
    {"llama", GGUF_NAMES, .experts = true, .model_type = "mixtral", .naming.own = apart,
     .naming.ordered = paired},
    {"qwen2", GGUF_NAMES, .model_type = "qwen2"},
    {"qwen2moe", GGUF_NAMES, .experts = true, .model_type = "qwen2_moe"},
    {"qwen2vl", GGUF_NAMES, .model_type = "qwen2", .sees = "qwen2_5_vl"}, /* text alone as qwen3vl */
    {"qwen3", GGUF_NAMES, .model_type = "qwen3"},
    {"qwen3vl", GGUF_NAMES, .model_type = "qwen3", /* text alone, where its three positions are one */
     .sees = "qwen3_vl"},
    {"qwen3vlmoe", GGUF_NAMES, .experts = true, .model_type = "qwen3_moe", .sees = "qwen3_vl_moe",
     .facts = "{\"norm_topk_prob\": true}"},
    {"qwen3moe", GGUF_NAMES, .experts = true, .model_type = "qwen3_moe",
     .facts = "{\"norm_topk_prob\": true}"},
    {"qwen3next", GGUF_NAMES, .experts = true, .model_type = "qwen3_next", .keys = delta_net_keys,
     .naming.own = next_names},
    {"qwen35", GGUF_NAMES, .model_type = "qwen3_5", .keys = delta_net_keys, .facts = "{" SECTIONS "}",
     .naming.own = norm_after_attention, .naming.ordered = tiled},
    {"qwen35moe", GGUF_NAMES, .experts = true, .model_type = "qwen3_5_moe", .keys = delta_net_keys,
     .facts = "{" SECTIONS "}", .naming.own = norm_after_attention, .naming.ordered = tiled},
    {"gemma", GGUF_NAMES, .model_type = "gemma"},
    {"gemma-embedding", GGUF_NAMES, .model_type = "gemma3_text", .keys = gemma_keys,
     .facts = "{\"use_bidirectional_attention\": true}"},
    {"gemma2", GGUF_NAMES, .model_type = "gemma2", .keys = gemma_keys, .score_by_width = 46},
    {"gemma3", GGUF_NAMES, .model_type = "gemma3_text", .keys = gemma_keys, .score_by_width = 62},
    {"gemma4", GGUF_NAMES, .model_type = "gemma4", .keys = gemma4_keys, .two_sizes = true},
    {"gemma4", GGUF_NAMES, .experts = true, .model_type = "gemma4", .keys = gemma4_keys, .two_sizes = true,
     .facts = "{\"enable_moe_block\": true}", .naming.own = beside_experts},
    {"gpt-oss", GGUF_NAMES, .experts = true, .model_type = "gpt_oss",
     .facts = "{\"swiglu_limit\": 7, \"rope_parameters\": {\"truncate\": false}}",
     .naming.own = norm_after_attention},
    {"afmoe", GGUF_NAMES, .experts = true, .model_type = "afmoe", .keys = afmoe_keys,
     .facts = "{\"mup_enabled\": true}"},
    {"apertus", GGUF_NAMES, .xielu = true, .model_type = "apertus"},
    {"arcee", GGUF_NAMES, .model_type = "arcee", .naming.own = apart, .naming.ordered = paired},
    {"bert", GGUF_NAMES, .model_type = "bert", .keys = bert_keys, .naming.own = norms_of_stream},
    {"command-r", GGUF_NAMES, .model_type = "cohere", .keys = cohere_keys,
     .flag = {"blk.0.attn_q_norm.weight", "use_qk_norm"}},
    {"cohere2", GGUF_NAMES, .model_type = "cohere2", .keys = cohere_keys},
    {"cohere2moe", GGUF_NAMES, .experts = true, .model_type = "cohere2_moe", .keys = cohere_moe_keys,
     .facts = "{\"expert_selection_fn\": \"sigmoid\"}"},
    {"deepseek2", GGUF_NAMES, .experts = true, .model_type = "deepseek_v3", .keys = corrected_keys,
     .latent = true},
    {"deepseek2", GGUF_NAMES, .model_type = "youtu", .latent = true},
    {"dots1", GGUF_NAMES, .experts = true, .model_type = "dots1", .keys = corrected_keys},
    {"ernie4_5", GGUF_NAMES, .model_type = "ernie4_5"},
    {"ernie4_5-moe", GGUF_NAMES, .experts = true, .model_type = "ernie4_5_moe", .keys = ernie_keys,
     .flag = {"blk.0.attn_q.bias", "use_bias"}},
    {"exaone4", GGUF_NAMES, .needs = "attention.sliding_window", .model_type = "exaone4"},
    {"exaone4", GGUF_NAMES, .model_type = "exaone4", .facts = "{\"sliding_window\": null}"},
    {"exaone-moe", GGUF_NAMES, .experts = true, .model_type = "exaone_moe", .keys = exaone_moe_keys},
    {"falcon-h1", GGUF_NAMES, .ssm = true, .model_type = "falcon_h1", .keys = falcon_keys,
     .flag = {"blk.0.ssm_norm.weight", "mamba_rms_norm"}, .facts = "{\"mamba_norm_before_gate\": false}"},
    {"glm4", GGUF_NAMES, .model_type = "glm4", .naming.own = fused_up},
    {"glm4moe", GGUF_NAMES, .experts = true, .model_type = "glm4_moe", .keys = corrected_keys,
     .flag = {"blk.0.attn_q_norm.weight", "use_qk_norm"}, .naming.own = norm_after_attention},
    {"granite", GGUF_NAMES, .model_type = "granite", .keys = granite_keys, .naming.own = apart,
     .naming.ordered = paired},
    {"granitemoe", GGUF_NAMES, .experts = true, .model_type = "granitemoe", .keys = granite_keys,
     .naming.own = apart, .naming.ordered = paired},
    {"granitehybrid", GGUF_NAMES, .experts = true, .ssm = true, .model_type = "granitemoehybrid",
     .keys = granite_keys, .kinds = {"mamba", "attention"}, .naming.own = apart, .naming.ordered = paired},
    {"granitehybrid", GGUF_NAMES, .ssm = true, .model_type = "granitemoehybrid", .keys = granite_keys,
     .kinds = {"mamba", "attention"}, .naming.own = apart, .naming.ordered = paired},
    {"hunyuan-dense", GGUF_NAMES, .model_type = "hunyuan_v1_dense"},
    {"hunyuan-moe", GGUF_NAMES, .experts = true, .model_type = "hunyuan_v1_moe"},
    {"hy_v3", GGUF_NAMES, .experts = true, .dense = "first_k_dense_replace", .model_type = "hy_v3",
     .keys = hy_keys, .naming.own = hy_names},
    {"kimi-linear", GGUF_NAMES, .experts = true, .latent = true, .model_type = "kimi_linear",
     .keys = kimi_keys, .kinds = {"linear_attention", "full_attention"},
     .facts = "{\"norm_topk_prob\": true}", .naming.own = kimi_names},
    {"laguna", GGUF_NAMES, .experts = true, .model_type = "laguna", .keys = laguna_keys,
     .apart = &laguna_apart},
    {"lfm2", GGUF_NAMES, .model_type = "lfm2", .keys = lfm_keys, .kinds = {"conv", "full_attention"},
     .facts = "{\"block_auto_adjust_ff_dim\": false}", .naming.own = norm_of_embedding},
    {"lfm2moe", GGUF_NAMES, .experts = true, .model_type = "lfm2_moe", .keys = lfm_keys,
     .kinds = {"conv", "full_attention"}, .naming.own = norm_of_embedding},
    {"mimo2", GGUF_NAMES, .experts = true, .dense = "first_k_dense_replace", .model_type = "mimo_v2_flash",
     .keys = mimo_keys, .apart = &mimo_apart},
    {"minimax-m2", GGUF_NAMES, .experts = true, .model_type = "minimax_m2", .keys = minimax_keys},
    {"mistral3", GGUF_NAMES, .needs = "attention.temperature_scale", .model_type = "ministral3",
     .keys = ministral_keys, .facts = "{\"sliding_window\": null, \"rope_parameters\": {\"mscale\": 1}}",
     .naming.own = apart, .naming.ordered = paired},
    {"mistral3", GGUF_NAMES, .model_type = "mistral", .facts = "{\"sliding_window\": null}",
     .naming.own = apart, .naming.ordered = paired},
    {"mistral4", GGUF_NAMES, .experts = true, .latent = true, .model_type = "mistral4",
     .keys = mistral4_keys},
    {"nemotron_h", GGUF_NAMES, .ssm = true, .model_type = "nemotron_h", .keys = nemotron_keys,
     .kinds = {"mamba", "attention", "mlp"}},
    {"nemotron_h_moe", GGUF_NAMES, .experts = true, .ssm = true, .model_type = "nemotron_h",
     .keys = nemotron_keys, .kinds = {"mamba", "attention", "moe"}},
    {"olmo2", GGUF_NAMES, .needs = "attention.sliding_window", .model_type = "olmo3"},
    {"olmo2", GGUF_NAMES, .model_type = "olmo2"},
    {"olmoe", GGUF_NAMES, .experts = true, .model_type = "olmoe"},
    {"phi3", GGUF_NAMES, .model_type = "phi3", .naming.own = fused_up},
    /* No metadata key has the two factors of longrope, so all files have these. */
    {"phimoe", GGUF_NAMES, .experts = true, .model_type = "phimoe",
     .facts = "{\"rope_parameters\": {\"short_mscale\": 1.243163121016122, \"long_mscale\": "
              "1.243163121016122}}"},
    {"seed_oss", GGUF_NAMES, .model_type = "seed_oss", .naming.own = norm_after_attention},
    {"step35", GGUF_NAMES, .experts = true, .limits = true, .model_type = "step3p5", .keys = step_keys,
     .apart = &step_apart},
    {"smollm3", GGUF_NAMES, .model_type = "smollm3", .naming.own = apart, .naming.ordered = paired},
};

/* Families that model/family/family_refused.c gives a reason for. */
static const struct gguf_arch refused[] = {
    {"deepseek32", GGUF_NAMES, .refused = true, .model_type = "deepseek_v32"},
    {"deepseek4", GGUF_NAMES, .refused = true, .model_type = "deepseek_v4"},
    {"gemma3n", GGUF_NAMES, .refused = true, .model_type = "gemma3n"},
    {"glm-dsa", GGUF_NAMES, .refused = true, .model_type = "glm_moe_dsa"},
    {"jamba", GGUF_NAMES, .refused = true, .model_type = "jamba"},
    {"kimi-k3", GGUF_NAMES, .refused = true, .model_type = "kimi_k3"},
    {"llama4", GGUF_NAMES, .refused = true, .model_type = "llama4"},
    {"minimax-m3", GGUF_NAMES, .refused = true, .model_type = "minimax_m3"},
    {"qwen4exp", GGUF_NAMES, .refused = true, .model_type = "qwen4_exp"},
    {"rwkv6", GGUF_NAMES, .refused = true, .model_type = "rwkv6"},
    {"rwkv7", GGUF_NAMES, .refused = true, .model_type = "rwkv7"},
};

/* Architectures that no family computes, with what they have and no family has. */
static const struct {
    const char *names[8], *why;
} unserved[] = {
    {{"gpt2", "starcoder"}, "its positions are learned"},
    {{"bloom", "jais", "jina-bert-v2", "mpt", "refact"}, "its scores fall with the distance of keys (ALiBi)"},
    {{"falcon", "gptj", "gptneox", "phi2", "plamo"}, "its attention and MLP read one norm side by side"},
    {{"dream", "llada", "llada-moe", "rnd1"}, "its text is denoised, and not one token after the other"},
    {{"mamba", "mamba2"}, "all of its layers are recurrences"},
    {{"arwkv7", "rwkv6qwen2"}, "its layers are RWKV's recurrence"},
    {{"plamo2"}, "its layers are Mamba-1"},
    {{"minimax-01"}, "its layers are lightning attention"},
    {{"eurobert", "jina-bert-v3", "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe"},
     "an encoder whose positions rotate"},
    {{"t5", "t5encoder"}, "its encoder has positions by distance, and a decoder of its own"},
    {{"bitnet"}, "its attention and MLP have norms inside"},
    {{"cogvlm"}, "tokens of images have weights of their own"},
    {{"dflash", "eagle3", "gemma4-assistant"}, "a drafter of tokens for another model"},
    {{"wavtokenizer-dec"}, "a decoder of sound"},
};

const char *gguf_arch_unserved(struct slice name)
{
    for (size_t i = 0; i < COUNT_OF(unserved); i++) {
        for (size_t n = 0; n < COUNT_OF(unserved[i].names) && unserved[i].names[n]; n++) {
            if (slice_eq(name, slice_of(unserved[i].names[n])))
                return unserved[i].why;
        }
    }
    return "no family here computes it";
}

static bool has_key(const struct gguf *g, const struct gguf_arch *a)
{
    char key[128];
    int n = snprintf(key, sizeof(key), "%s.%s", a->name, a->needs);
    ASSERT(n > 0 && n < (int)sizeof(key));
    return g && gguf_find(g, key);
}

const struct gguf_arch *gguf_arch_find(const struct gguf *g, struct slice name, bool experts)
{
    for (size_t i = 0; i < COUNT_OF(archs); i++) {
        if (slice_eq(name, slice_of(archs[i].name)) && archs[i].experts == experts &&
            (!archs[i].needs || has_key(g, &archs[i])))
            return &archs[i];
    }
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        if (slice_eq(name, slice_of(refused[i].name)))
            return &refused[i];
    }
    return NULL;
}
