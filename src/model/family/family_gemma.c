/* family_gemma.c - gemma: norms that hold w - 1 up to gemma3, an embedding times sqrt(hidden); from gemma2 on
 * sandwich norms and windows. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#include <math.h>

/* hidden_act, which older files have besides, is read by no class. */
static const struct key_word activations[] = {
    {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {"gelu", ACTIVATION_GELU_ERF}, {NULL, 0}};

static const struct tensor_name tensors[] = {{ROLE_MLP_NORM, "pre_feedforward_layernorm"}, {ROLE_NONE, NULL}};

#define GEMMA_KEYS                                                                                           \
    CONFIG_WORD(activation, activations, ACTIVATION_GELU_TANH, "hidden_activation"),                         \
        CONFIG_FLOAT(score_scalar, 1e-3, 1e6, 256, "query_pre_attn_scalar"),                                 \
        CONFIG_FLOAT(logits_cap, 1e-3, 1e6, 0, "final_logit_softcapping"),                                   \
        CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 4096, "sliding_window"),                                   \
        CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 256, "head_dim"), CONFIG_IGNORED("hidden_act")

/* Files of the first gemma say "gelu" and mean its approximation. */
static const struct key_word first_activations[] = {
    {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {"gelu", ACTIVATION_GELU_TANH}, {NULL, 0}};

static const struct config_key gemma_keys[] = {
    CONFIG_WORD(activation, first_activations, ACTIVATION_GELU_TANH, "hidden_act"),
    CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 256, "head_dim"),
    CONFIG_ONLY(false, "use_bidirectional_attention"),
    CONFIG_KEY_END,
};

static const struct config_key gemma2_keys[] = {
    GEMMA_KEYS,
    CONFIG_ONLY(false, "use_bidirectional_attention"),
    CONFIG_FLOAT(score_cap, 1e-3, 1e6, 0, "attn_logit_softcapping"),
    CONFIG_KEY_END,
};

/* Configurations beside a vision encoder leave out what the class has as its default. */
static const struct config_key gemma3_keys[] = {
    GEMMA_KEYS,
    CONFIG_FLAG(both_ways, false, "use_bidirectional_attention"),
    CONFIG_U32(vocab, 1, CONFIG_VOCAB_MAX, 262208, "vocab_size"),
    CONFIG_U32(context_max, 1, CONFIG_CONTEXT_MAX, 131072, "max_position_embeddings"),
    CONFIG_U32(heads, 1, CONFIG_HEADS_MAX, 8, "num_attention_heads"),
    CONFIG_U32(kv_heads, 1, CONFIG_HEADS_MAX, 4, "num_key_value_heads"),
    CONFIG_KEY_END,
};

/* use_bidirectional_attention: whether an image's tokens see each other, which does not concern text. */
static const struct key_word directions[] = {{"vision", 1}, {NULL, 0}};

/* Defaults of the class; the sizes of global layers stand in per_layer_config where that is written. */
#define GEMMA4_KEYS(context, width, sees)                                                                    \
    CONFIG_WORD(activation, activations, ACTIVATION_GELU_TANH, "hidden_activation"),                         \
        CONFIG_FLOAT(logits_cap, 1e-3, 1e6, 0, "final_logit_softcapping"),                                   \
        CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, width, "sliding_window"),                                  \
        CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 256, "head_dim"),                                       \
        CONFIG_U32(global_head_dim, 2, CONFIG_HEAD_DIM_MAX, 512, "global_head_dim"),                         \
        CONFIG_U32(vocab, 1, CONFIG_VOCAB_MAX, 262144, "vocab_size"),                                        \
        CONFIG_U32(context_max, 1, CONFIG_CONTEXT_MAX, context, "max_position_embeddings"),                  \
        CONFIG_U32(heads, 1, CONFIG_HEADS_MAX, 8, "num_attention_heads"),                                    \
        CONFIG_U32(kv_heads, 1, CONFIG_HEADS_MAX, 4, "num_key_value_heads"),                                 \
        CONFIG_U32(global_kv_heads, 1, CONFIG_HEADS_MAX, 0, "num_global_key_value_heads"),                   \
        CONFIG_FLAG(global_v_is_k, false, "attention_k_eq_v"),                                               \
        CONFIG_U32(kv_shared_layers, 0, CONFIG_LAYERS_MAX - 1, 0, "num_kv_shared_layers"),                   \
        CONFIG_FLAG(double_wide, false, "use_double_wide_mlp"),                                              \
        CONFIG_WORD(bidirectional, directions, sees, "use_bidirectional_attention"),                         \
        CONFIG_IGNORED("hidden_act")

static const struct config_key gemma4_keys[] = {
    GEMMA4_KEYS(131072, 512, 0),
    CONFIG_U32(pad, 0, CONFIG_VOCAB_MAX - 1, 0, "pad_token_id"),
    CONFIG_U32(layer_input, 0, CONFIG_HIDDEN_MAX, 256, "hidden_size_per_layer_input"),
    CONFIG_U32(layer_input_vocab, 1, CONFIG_VOCAB_MAX, 262144, "vocab_size_per_layer_input"),
    CONFIG_FLAG(use_experts, false, "enable_moe_block"),
    CONFIG_KEY_END,
};

/* Without inputs per layer and experts. */
static const struct config_key gemma4_unified_keys[] = {
    GEMMA4_KEYS(262144, 1024, 1),
    CONFIG_ONLY(0, "hidden_size_per_layer_input"),
    CONFIG_ONLY(false, "enable_moe_block"),
    CONFIG_KEY_END,
};

static const struct tensor_name gemma4_tensors[] = {{ROLE_MLP_NORM, "pre_feedforward_layernorm"},
                                                    {ROLE_ROUTER, "router.proj"},
                                                    {ROLE_EXPERTS_GATE_UP, "experts.gate_up_proj"},
                                                    {ROLE_EXPERTS_DOWN_FUSED, "experts.down_proj"},
                                                    {ROLE_EXPERTS_GATE, "experts.switch_glu.gate_proj"},
                                                    {ROLE_EXPERTS_UP, "experts.switch_glu.up_proj"},
                                                    {ROLE_EXPERTS_DOWN, "experts.switch_glu.down_proj"},
                                                    {ROLE_EXPERT_GATE, "experts.#.gate_proj"},
                                                    {ROLE_EXPERT_UP, "experts.#.up_proj"},
                                                    {ROLE_EXPERT_DOWN, "experts.#.down_proj"},
                                                    {ROLE_NONE, NULL}};

static const struct expert_form gemma4_experts = {
    .score = ROUTE_SOFTMAX, .shared = ROUTE_SHARED_NONE, .normalise = true, .beside = true};

#define GEMMA                                                                                                \
    .tensors = tensors, .norm_position = NORM_SANDWICH, .norm_shift = SHIFT_ALL, .embedding_sqrt = true

#define GEMMA4                                                                                               \
    .tensors = gemma4_tensors,                                                                               \
    .defaults = "{'hidden_size': 2304, 'intermediate_size': 9216, 'num_hidden_layers': 30}",                 \
    .norm_position = NORM_SANDWICH, .embedding_sqrt = true,                                                  \
    .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},                                      \
              {.names = {"sliding_attention"},                                                               \
               .mixer = &block_attention,                                                                    \
               .windowed = true,                                                                             \
               .rope = KIND_ROPE_LOCAL}},                                                                    \
    .pattern = {.every = 6, .last = true}, .qk_norm = QK_NORM_HEAD, .v_norm = true, .score_scale = 1,        \
    .layer_scale = true, .single_layers = true, .rope_theta = 1e6, .rope_theta_local = 1e4,                  \
    .rope_proportional = true

/* ---- muse_glimmer ---- */

static const struct key_word muse_activations[] = {
    {"silu", ACTIVATION_SILU}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {NULL, 0}};

/* The factor of queries is one of scores. */
static const struct config_key muse_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_FLOAT(eps_after, 0, 1, 1e-8, "post_norm_eps"),
    CONFIG_WORD(activation, muse_activations, ACTIVATION_SILU, "hidden_activation"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 2048, "sliding_window"),
    CONFIG_FLOAT(key_scale, 1e-6, 1e6, 3.87, "qk_scale_factor"),
    CONFIG_FLOAT(logits_scale, 1e-6, 1e6, 0.19611613513818404, "output_multiplier"),
    CONFIG_FLOAT(logits_cap, 1e-3, 1e6, 20, "final_logit_softcapping"),
    CONFIG_IGNORED("out_hidden_size"),
    CONFIG_KEY_END,
};

const struct family families_gemma[] = {
    {.names = {"gemma"},
     .keys = gemma_keys,
     .defaults = "{'max_position_embeddings': 8192, 'num_attention_heads': 16, 'num_key_value_heads': 16}",
     .norm_shift = SHIFT_ALL,
     .embedding_sqrt = true},
    {.names = {"gemma2"},
     GEMMA,
     .keys = gemma2_keys,
     .defaults = "{'max_position_embeddings': 8192, 'num_attention_heads': 8, 'num_key_value_heads': 4, "
                 "'attn_logit_softcapping': 50, "
                 "'final_logit_softcapping': 30}",
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {.every = 2}},
    {.names = {"gemma3"},
     GEMMA,
     .keys = gemma3_keys,
     .defaults = "{'hidden_size': 2304, 'intermediate_size': 9216, 'num_hidden_layers': 26}",
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},
               {.names = {"sliding_attention"},
                .mixer = &block_attention,
                .windowed = true,
                .rope = KIND_ROPE_LOCAL}},
     .pattern = {{"sliding_window_pattern", "_sliding_window_pattern"}, 6},
     .qk_norm = QK_NORM_HEAD,
     .rope_theta = 1e6,
     .rope_theta_local = 1e4},
    {.names = {"gemma4"}, GEMMA4, .keys = gemma4_keys, .experts = &gemma4_experts},
    {.names = {"gemma4_unified"}, GEMMA4, .keys = gemma4_unified_keys},
    {.names = {"muse_glimmer"},
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 2, 'head_dim': 128}",
     .keys = muse_keys,
     .tensors = tensors,
     .norm_position = NORM_SANDWICH,
     .norm_shift = SHIFT_HF,
     .final_norm_plain = true,
     .embedding_norm = true,
     .qk_norm = QK_NORM_PLAIN,
     .own_gate = GATE_VALUES,
     .own_gate_function = HEAD_GATE_SIGMOID,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = KIND_ROPE_NONE},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {.every = 4},
     .thetas_listed = true},
    {{NULL}},
};
