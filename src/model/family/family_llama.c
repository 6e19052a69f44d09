/* family_llama.c - llama, from which families differ, and its next of kin. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"

/* Every layer has a window where sliding_window is not null. */
static const struct config_key window_keys[] = {
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

#define WINDOWED_LAYERS                                                                                      \
    .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},                 \
              {.names = {"full_attention"}, .mixer = &block_attention}}

/* Layers that do not rotate have the window, if there is one. */
static const struct config_key smollm_keys[] = {
    CONFIG_FLAG(use_window, false, "use_sliding_window"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

static const struct config_key ernie_keys[] = {
    CONFIG_FLAG(attention_biases, true, "use_bias"),
    CONFIG_FLAG(attention_out_biases, true, "use_bias"),
    CONFIG_FLAG(mlp_biases, true, "use_bias"),
    CONFIG_KEY_END,
};

static const struct config_key arcee_keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_KEY_END,
};

const struct family families_llama[] = {
    {.names = {"llama"}, .defaults = "{'max_position_embeddings': 2048}"},
    {.names = {"arcee"},
     .keys = arcee_keys,
     .defaults = "{'max_position_embeddings': 4096, 'hidden_act': 'relu2'}",
     .mlp = &block_mlp_plain},
    {.names = {"seed_oss"},
     .defaults = "{'max_position_embeddings': 524288, 'num_key_value_heads': 8, 'head_dim': 128}"},
    {.names = {"mistral", "ministral"},
     .parents = {"mistral3"},
     .keys = window_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 8, 'sliding_window': 4096}",
     WINDOWED_LAYERS},
    {.names = {"ministral3"},
     .keys = window_keys,
     .defaults = "{'max_position_embeddings': 262144, 'num_key_value_heads': 8, 'head_dim': 128, "
                 "'rms_norm_eps': 1e-5, 'rope_parameters': {"
                 "'rope_type': 'yarn', 'factor': 16, 'original_max_position_embeddings': 16384, "
                 "'mscale_all_dim': 1, 'mscale': 1, 'llama_4_scaling_beta': 0.1}}",
     WINDOWED_LAYERS,
     .query_growth = true,
     .rope_theta = 1e6},
    {.names = {"smollm3"},
     .keys = smollm_keys,
     .defaults = "{'max_position_embeddings': 32768, 'num_key_value_heads': 4}",
     WINDOWED_LAYERS,
     .pattern = {{"no_rope_layer_interval"}, 4},
     .rope_except = 4,
     .rope_theta = 2e6},
    {.names = {"ernie4_5"},
     .keys = ernie_keys,
     .defaults = "{'max_position_embeddings': 131072, 'num_key_value_heads': 2, 'head_dim': 128, "
                 "'rms_norm_eps': 1e-5}",
     .rope_adjacent = true,
     .rope_theta = 5e5},
    {{NULL}},
};
