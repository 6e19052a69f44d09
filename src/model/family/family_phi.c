/* family_phi.c - phi: fused projections, longrope, a window in every layer. */
#include "model/blocks/blocks.h"
#include "model/config/config_key.h"
#include "model/family/family.h"

static const struct config_key keys[] = {
    CONFIG_FLOAT(eps, 0, 1, 1e-5, "rms_norm_eps"),
    CONFIG_U32(window, 1, CONFIG_CONTEXT_MAX, 0, "sliding_window"),
    CONFIG_KEY_END,
};

/* Names of longrope in older configurations. */
static const struct key_word rope_types[] = {{"su", ROPE_LONG}, {"yarn", ROPE_LONG}, {NULL, 0}};

const struct family families_phi[] = {
    {.names = {"phi3"},
     .defaults = "{'max_position_embeddings': 4096}",
     .keys = keys,
     .rope_types = rope_types,
     .rotary_part = 1,
     .kinds = {{.names = {"sliding_attention"}, .mixer = &block_attention, .windowed = true},
               {.names = {"full_attention"}, .mixer = &block_attention}}},
    {{NULL}},
};
