/* family_llama.c - llama, from which families differ, and its next of kin. */
#include "model/blocks.h"
#include "model/family.h"

/* Every layer has a window where sliding_window is not null. */
static const struct config_key window_keys[] = {
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

const struct family families_llama[] = {
    {.names = {"llama"}},
    {.names = {"seed_oss"}},
    {.names = {"mistral", "ministral"},
     .keys = window_keys,
     .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},
               {.names = {"full_attention"}, .mixer = &block_attention}}},
    {{NULL}},
};
