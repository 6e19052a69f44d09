/* family_llama.c - llama, from which families differ, and its next of kin. */
#include "model/blocks.h"
#include "model/family.h"

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

const struct family families_llama[] = {
    {.names = {"llama"}},
    {.names = {"seed_oss"}},
    {.names = {"mistral", "ministral"}, .parents = {"mistral3"}, .keys = window_keys, WINDOWED_LAYERS},
    {.names = {"ministral3"}, .keys = window_keys, WINDOWED_LAYERS, .query_growth = true},
    {.names = {"smollm3"},
     .keys = smollm_keys,
     WINDOWED_LAYERS,
     .pattern = {{"no_rope_layer_interval"}, 4},
     .rope_except = 4,
     .rope_theta = 2e6},
    {.names = {"ernie4_5"}, .rope_adjacent = true, .rope_theta = 5e5},
    {{NULL}},
};
