/* family_gemma.c - gemma: sandwich norms that hold w - 1, an embedding times sqrt(hidden), windows. */
#include "model/blocks.h"
#include "model/family.h"

/* Some configurations say "gelu" and mean tanh. */
static const struct key_word activations[] = {
    {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}, {"gelu", ACTIVATION_GELU_TANH}, {NULL, 0}};

static const struct tensor_name tensors[] = {{ROLE_MLP_NORM, "pre_feedforward_layernorm"}, {ROLE_NONE, NULL}};

#define GEMMA_KEYS                                                                                           \
    CONFIG_WORD(activation, activations, ACTIVATION_GELU_TANH, "hidden_activation", "hidden_act"),           \
        CONFIG_FLOAT(score_scalar, 1e-3, 1e6, 256, "query_pre_attn_scalar"),                                 \
        CONFIG_FLOAT(score_cap, 1e-3, 1e6, 0, "attn_logit_softcapping"),                                     \
        CONFIG_FLOAT(logits_cap, 1e-3, 1e6, 0, "final_logit_softcapping"),                                   \
        CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 4096, "sliding_window"),                                   \
        CONFIG_U32(head_dim, 2, CONFIG_HEAD_DIM_MAX, 256, "head_dim"),                                       \
        CONFIG_ONLY(false, "use_bidirectional_attention")

static const struct config_key gemma2_keys[] = {
    GEMMA_KEYS,
    CONFIG_KEY_END,
};

/* Configurations beside a vision encoder leave out what the class has as its default. */
static const struct config_key gemma3_keys[] = {
    GEMMA_KEYS,
    CONFIG_U32(vocab, 1, CONFIG_VOCAB_MAX, 262208, "vocab_size"),
    CONFIG_U32(context_max, 1, CONFIG_CONTEXT_MAX, 131072, "max_position_embeddings"),
    CONFIG_U32(heads, 1, CONFIG_HEADS_MAX, 8, "num_attention_heads"),
    CONFIG_U32(kv_heads, 1, CONFIG_HEADS_MAX, 4, "num_key_value_heads"),
    CONFIG_KEY_END,
};

#define GEMMA .tensors = tensors, .norm_place = NORM_SANDWICH, .norm_shift = SHIFT_ALL, .embedding_sqrt = true

const struct family families_gemma[] = {
    {.names = {"gemma2"},
     GEMMA,
     .keys = gemma2_keys,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},
               {.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true}},
     .pattern = {.every = 2}},
    {.names = {"gemma3"},
     GEMMA,
     .keys = gemma3_keys,
     .kinds = {{.names = {"full_attention"}, .mixer = &block_attention},
               {.names = {"sliding_attention"},
                .mixer = &block_attention,
                .windowed = true,
                .rope = KIND_ROPE_LOCAL}},
     .pattern = {{"sliding_window_pattern", "_sliding_window_pattern"}, 6},
     .qk_norm = QK_NORM_HEAD,
     .rope_theta = 1e6,
     .rope_theta_local = 1e4},
    {{NULL}},
};
