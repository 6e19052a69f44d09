/* vision_family.c - the families of vision encoders. */
#include "model/family/vision_family.h"

#include "base/check.h"

#include <string.h>

#define QWEN3_TENSORS                                                                                        \
    [VISION_ROLE_PATCHES] = "patch_embed.proj", [VISION_ROLE_POSITIONS] = "pos_embed",                       \
    [VISION_ROLE_MIX_NORM] = "blocks.#.norm1", [VISION_ROLE_QKV] = "blocks.#.attn.qkv",                      \
    [VISION_ROLE_OUT] = "blocks.#.attn.proj", [VISION_ROLE_MLP_NORM] = "blocks.#.norm2",                     \
    [VISION_ROLE_UP] = "blocks.#.mlp.linear_fc1", [VISION_ROLE_DOWN] = "blocks.#.mlp.linear_fc2",            \
    [VISION_ROLE_MERGE_NORM] = "merger.norm", [VISION_ROLE_MERGE_UP] = "merger.linear_fc1",                  \
    [VISION_ROLE_MERGE_DOWN] = "merger.linear_fc2"

#define QWEN3_PARTS                                                                                          \
    .prefixes = {"model.visual.", "visual.", "vision_tower."}, .frames = 2, .biases = true, .eps = 1e-6,     \
    .rotation = ENCODE_ROTATE_EQUAL, .theta = 10000, .activation = "gelu_pytorch_tanh", .everywhere = true

static const struct vision_family vision_families[] = {
    {.names = {"qwen3_5", "qwen3_5_moe"}, QWEN3_PARTS, .tensors = {QWEN3_TENSORS}},
    {.names = {"qwen3_vl", "qwen3_vl_moe"},
     QWEN3_PARTS,
     .tensors = {QWEN3_TENSORS, [VISION_ROLE_DEEP_NORM] = "deepstack_merger_list.#.norm",
                 [VISION_ROLE_DEEP_UP] = "deepstack_merger_list.#.linear_fc1",
                 [VISION_ROLE_DEEP_DOWN] = "deepstack_merger_list.#.linear_fc2"}},
};

const struct vision_family *vision_family_find(const char *model_type)
{
    for (size_t i = 0; i < COUNT_OF(vision_families); i++)
        for (size_t k = 0; k < COUNT_OF(vision_families[i].names) && vision_families[i].names[k]; k++)
            if (strcmp(vision_families[i].names[k], model_type) == 0)
                return &vision_families[i];
    return NULL;
}
