/* family_bert.c - encoders: norms of the residual stream itself after each block, learned positions, token
 * types, attention to all of the text, no logits. */
#include "model/blocks/blocks.h"
#include "model/config/config.h"
#include "model/config/config_key.h"
#include "model/family/family.h"
#include "tensor/role.h"

#define TENSORS                                                                                              \
    {ROLE_EMBEDDING, "embeddings.word_embeddings"}, {ROLE_Q, "attention.self.query"},                        \
        {ROLE_K, "attention.self.key"}, {ROLE_V, "attention.self.value"},                                    \
        {ROLE_O, "attention.output.dense"}, {ROLE_MIXER_NORM_AFTER, "attention.output.LayerNorm"},           \
        {ROLE_UP, "intermediate.dense"}, {ROLE_DOWN, "output.dense"},                                        \
    {                                                                                                        \
        ROLE_MLP_NORM_AFTER, "output.LayerNorm"                                                              \
    }

static const struct tensor_name bert_tensors[] = {
    TENSORS, {ROLE_SCORE_DENSE, "pooler.dense"}, {ROLE_SCORE, "classifier"}, {ROLE_NONE, NULL}};

static const struct tensor_name roberta_tensors[] = {
    TENSORS, {ROLE_SCORE_DENSE, "classifier.dense"}, {ROLE_SCORE, "classifier.out_proj"}, {ROLE_NONE, NULL}};

static const struct key_word activations[] = {{"gelu", ACTIVATION_GELU_ERF},
                                              {"gelu_new", ACTIVATION_GELU_TANH},
                                              {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
                                              {"silu", ACTIVATION_SILU},
                                              {"swish", ACTIVATION_SILU},
                                              {NULL, 0}};

static const struct key_word positions[] = {{"absolute", 0}, {NULL, 0}};

#define BERT_KEYS                                                                                            \
    CONFIG_U32(token_types, 1, 1024, 2, "type_vocab_size"),                                                  \
        CONFIG_FLOAT(eps, 0, 1, 1e-12, "layer_norm_eps"),                                                    \
        CONFIG_WORD(activation, activations, ACTIVATION_GELU_ERF, "hidden_act"),                             \
        CONFIG_WORD(position_type, positions, 0, "position_embedding_type"),                                 \
        CONFIG_ONLY(false, "is_decoder"), CONFIG_ONLY(false, "add_cross_attention")

static const struct config_key bert_keys[] = {
    BERT_KEYS,
    CONFIG_KEY_END,
};

static const struct config_key roberta_keys[] = {
    BERT_KEYS,
    CONFIG_U32(pad, 0, CONFIG_VOCAB_MAX, 1, "pad_token_id"),
    CONFIG_KEY_END,
};

#define ENCODER                                                                                              \
    .encoder = true, .layers = "encoder.layer", .norm_position = NORM_STREAM, .layer_norm = true,            \
    .mlp = &block_mlp_plain,                                                                                 \
    .kinds = {{.names = {"full_attention"}, .mixer = &block_attention, .rope = KIND_ROPE_NONE}}

const struct family families_bert[] = {
    {.names = {"bert"}, ENCODER, .tensors = bert_tensors, .keys = bert_keys},
    {.names = {"xlm-roberta", "roberta", "camembert", "xlm_roberta"},
     ENCODER,
     .tensors = roberta_tensors,
     .keys = roberta_keys,
     .positions_after_pad = true},
    {{NULL}},
};
