/* vision_family.c - the families of vision encoders. */
#include "model/family/vision_family.h"

#include "base/check.h"

#include <string.h>

#define CLIP_MEAN                                                                                            \
    {                                                                                                        \
        0.48145466f, 0.4578275f, 0.40821073f                                                                 \
    }
#define CLIP_STD                                                                                             \
    {                                                                                                        \
        0.26862954f, 0.26130258f, 0.27577711f                                                                \
    }

#define IMAGENET_MEAN                                                                                        \
    {                                                                                                        \
        0.485f, 0.456f, 0.406f                                                                               \
    }
#define IMAGENET_STD                                                                                         \
    {                                                                                                        \
        0.229f, 0.224f, 0.225f                                                                               \
    }

#define QWEN3_TENSORS                                                                                        \
    [VISION_ROLE_PATCHES] = "patch_embed.proj", [VISION_ROLE_POSITIONS] = "pos_embed",                       \
    [VISION_ROLE_MIX_NORM] = "blocks.#.norm1", [VISION_ROLE_QKV] = "blocks.#.attn.qkv",                      \
    [VISION_ROLE_OUT] = "blocks.#.attn.proj", [VISION_ROLE_MLP_NORM] = "blocks.#.norm2",                     \
    [VISION_ROLE_UP] = "blocks.#.mlp.linear_fc1", [VISION_ROLE_DOWN] = "blocks.#.mlp.linear_fc2",            \
    [VISION_ROLE_MERGE_NORM] = "merger.norm", [VISION_ROLE_MERGE_UP] = "merger.linear_fc1",                  \
    [VISION_ROLE_MERGE_DOWN] = "merger.linear_fc2"

#define SIGLIP_BLOCKS(layer)                                                                                 \
    [VISION_ROLE_MIX_NORM] = layer "layer_norm1", [VISION_ROLE_Q] = layer "self_attn.q_proj",                \
    [VISION_ROLE_K] = layer "self_attn.k_proj", [VISION_ROLE_V] = layer "self_attn.v_proj",                  \
    [VISION_ROLE_OUT] = layer "self_attn.out_proj", [VISION_ROLE_MLP_NORM] = layer "layer_norm2",            \
    [VISION_ROLE_UP] = layer "mlp.fc1", [VISION_ROLE_DOWN] = layer "mlp.fc2"

#define QWEN3_PARTS                                                                                          \
    .prefixes = {"model.visual.", "visual.", "vision_tower."}, .frames = 2, .biases = true, .eps = 1e-6,     \
    .rotation = ENCODE_ROTATE_EQUAL, .theta = 10000, .activation = "gelu_pytorch_tanh", .everywhere = true,  \
    .merge = 2, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.5f, 0.5f, 0.5f}, .pixels_min = 65536,                  \
    .pixels_max = 16777216, .video_pixels_min = 4096, .video_pixels_max = 25165824

#define MOON_TENSORS                                                                                         \
    [VISION_ROLE_PATCHES] = "@patch_embed.proj", [VISION_ROLE_POSITIONS] = "@patch_embed.pos_emb.weight",    \
    [VISION_ROLE_MIX_NORM] = "@encoder.blocks.#.norm0", [VISION_ROLE_QKV] = "@encoder.blocks.#.wqkv",        \
    [VISION_ROLE_OUT] = "@encoder.blocks.#.wo", [VISION_ROLE_MLP_NORM] = "@encoder.blocks.#.norm1",          \
    [VISION_ROLE_UP] = "@encoder.blocks.#.mlp.fc0", [VISION_ROLE_DOWN] = "@encoder.blocks.#.mlp.fc1",        \
    [VISION_ROLE_LAST_NORM] = "@encoder.final_layernorm"

#define MOON_PARTS                                                                                           \
    .prefixes = {"model.", ""}, .roots = {"vision_tower."}, .frames = 1, .biases = true, .eps = 1e-5,        \
    .positions = ENCODE_POSITIONS_CUBIC, .rotation = ENCODE_ROTATE_PAIRS, .theta = 10000,                    \
    .activation = "gelu_pytorch_tanh", .size = IMAGE_PADDED, .mean = {0.5f, 0.5f, 0.5f},                     \
    .std = {0.5f, 0.5f, 0.5f}, .linear = true

#define GLM_TENSORS                                                                                          \
    [VISION_ROLE_PATCHES] = "patch_embed.proj", [VISION_ROLE_MIX_NORM] = "blocks.#.norm1",                   \
    [VISION_ROLE_QKV] = "blocks.#.attn.qkv", [VISION_ROLE_OUT] = "blocks.#.attn.proj",                       \
    [VISION_ROLE_MLP_NORM] = "blocks.#.norm2", [VISION_ROLE_GATE] = "blocks.#.mlp.gate_proj",                \
    [VISION_ROLE_UP] = "blocks.#.mlp.up_proj", [VISION_ROLE_DOWN] = "blocks.#.mlp.down_proj",                \
    [VISION_ROLE_LAST_NORM] = "post_layernorm", [VISION_ROLE_MERGE_SQUEEZE] = "downsample",                  \
    [VISION_ROLE_MERGE_PROJ] = "merger.proj", [VISION_ROLE_MERGE_PROJ_NORM] = "merger.post_projection_norm", \
    [VISION_ROLE_MERGE_GATE] = "merger.gate_proj", [VISION_ROLE_MERGE_UP] = "merger.up_proj",                \
    [VISION_ROLE_MERGE_DOWN] = "merger.down_proj"

#define GLM_PARTS                                                                                            \
    .prefixes = {"model.visual.", "visual.", "vision_tower."}, .frames = 2, .rms = true, .eps = 1e-5,        \
    .eps_key = "rms_norm_eps", .rotation = ENCODE_ROTATE_EQUAL, .theta = 10000, .activation = "silu",        \
    .sections_apart = true, .counts_frames = true, .merge = 2, .pixels_min = 12544, .pixels_max = 11760000,  \
    .mean = CLIP_MEAN, .std = CLIP_STD, .everywhere = true

#define GEMMA4_PARTS                                                                                         \
    .frames = 1, .eps = 1e-5, .merge_plain = true, .budget = true, .size = IMAGE_BY_BUDGET,                  \
    .marks = &gemma4_marks, .linear = true, .windowed_ways = true, .everywhere = true

#define INTERN_PARTS                                                                                         \
    .frames = 1, .eps = 1e-6, .eps_key = "layer_norm_eps", .merge_eps = 1e-5, .token_norm = true,            \
    .mid_of_text = true, .activation = "gelu", .everywhere = true, .merge_key = "downsample_ratio",          \
    .merge = 2, .size = IMAGE_FIXED, .mean = IMAGENET_MEAN, .std = IMAGENET_STD, .marks = &internvl_marks,   \
    .linear = true

static const struct model_image_marks pixtral_marks = {.row_end = "[IMG_BREAK]", .end = "[IMG_END]"};

static const struct model_image_marks gemma3_marks = {
    .mark = "<start_of_image>", .before = "\n\n<start_of_image>", .after = "<end_of_image>\n\n"};

static const struct model_image_marks gemma4_marks = {
    .before = "<|image>", .after = "<image|>", .tokens = {"<|image>", "<image|>"}};

static const struct model_image_marks internvl_marks = {
    .before = "<img>", .after = "</img>", .tokens = {"<img>", "</img>"}};

static const struct model_image_marks idefics_marks = {
    .tile = {"<fake_token_around_image><row_", "_col_", ">"},
    .tiles_row_end = "\n",
    .whole = "\n<fake_token_around_image><global-img>",
    .alone = "<fake_token_around_image><global-img>",
    .after = "<fake_token_around_image>",
    .tokens = {"<fake_token_around_image>", "<global-img>"}};

static const struct vision_tiles internvl_tiles = {.min = {"min_patches", 1}, .max = {"max_patches", 12}};

static const struct vision_tiles intern_chat_tiles = {
    .beside = true, .min = {"min_dynamic_patch", 1}, .max = {"max_dynamic_patch", 12}};

static const struct vision_tiles idefics_tiles = {.longest = 4 * 364};

static const struct model_image_marks lfm2_marks = {
    .before = "<|image_start|>",
    .tile = {"<|img_row_", "_col_", "|>"},
    .whole = "<|img_thumbnail|>",
    .after = "<|image_end|>",
    .tokens = {"<|image_start|>", "<|img_thumbnail|>", "<|image_end|>"}};

static const struct vision_tiles lfm2_tiles = {
    .edge = 512, .min = {"min_tiles", 2}, .max = {"max_tiles", 10}};

static const struct vision_family vision_families[] = {
    {.names = {"qwen3_5", "qwen3_5_moe"}, QWEN3_PARTS, .tensors = {QWEN3_TENSORS}},
    {.names = {"qwen3_vl", "qwen3_vl_moe"},
     QWEN3_PARTS,
     .tensors = {QWEN3_TENSORS, [VISION_ROLE_DEEP_NORM] = "deepstack_merger_list.#.norm",
                 [VISION_ROLE_DEEP_UP] = "deepstack_merger_list.#.linear_fc1",
                 [VISION_ROLE_DEEP_DOWN] = "deepstack_merger_list.#.linear_fc2"}},
    {.names = {"qwen2_5_vl"},
     .prefixes = {"model.visual.", "visual.", "vision_tower."},
     .tensors = {[VISION_ROLE_PATCHES] = "patch_embed.proj",
                 [VISION_ROLE_MIX_NORM] = "blocks.#.norm1",
                 [VISION_ROLE_QKV] = "blocks.#.attn.qkv",
                 [VISION_ROLE_Q] = "blocks.#.attn.q",
                 [VISION_ROLE_K] = "blocks.#.attn.k",
                 [VISION_ROLE_V] = "blocks.#.attn.v",
                 [VISION_ROLE_OUT] = "blocks.#.attn.proj",
                 [VISION_ROLE_MLP_NORM] = "blocks.#.norm2",
                 [VISION_ROLE_GATE] = "blocks.#.mlp.gate_proj",
                 [VISION_ROLE_UP] = "blocks.#.mlp.up_proj",
                 [VISION_ROLE_DOWN] = "blocks.#.mlp.down_proj",
                 [VISION_ROLE_MERGE_NORM] = "merger.ln_q",
                 [VISION_ROLE_MERGE_UP] = "merger.mlp.0",
                 [VISION_ROLE_MERGE_DOWN] = "merger.mlp.2"},
     .frames = 2,
     .biases = true,
     .patches_unbiased = true,
     .rms = true,
     .eps = 1e-6,
     .rotation = ENCODE_ROTATE_EQUAL,
     .theta = 10000,
     .activation = "silu",
     .everywhere = true,
     .windows = true,
     .sections_apart = true,
     .no_videos = true,
     .merge = 2,
     .pixels_min = 3136,
     .pixels_max = 12845056,
     .mean = CLIP_MEAN,
     .std = CLIP_STD},
    {.names = {"gemma3"},
     .prefixes = {"model.", ""},
     .roots = {"vision_tower.vision_model.", "vision_tower."},
     .tensors = {[VISION_ROLE_PATCHES] = "@embeddings.patch_embedding",
                 [VISION_ROLE_POSITIONS] = "@embeddings.position_embedding",
                 SIGLIP_BLOCKS("@encoder.layers.#."),
                 [VISION_ROLE_LAST_NORM] = "@post_layernorm",
                 [VISION_ROLE_MERGE_NORM] = "multi_modal_projector.mm_soft_emb_norm",
                 [VISION_ROLE_MERGE_DOWN_TURNED] = "multi_modal_projector.mm_input_projection_weight"},
     .frames = 1,
     .biases = true,
     .eps = 1e-6,
     .eps_key = "layer_norm_eps",
     .text_norm = true,
     .pools = true,
     .activation = "gelu_pytorch_tanh",
     .everywhere = true,
     .merge = 4,
     .size = IMAGE_FIXED,
     .filter = 2,
     .mean = {0.5f, 0.5f, 0.5f},
     .std = {0.5f, 0.5f, 0.5f},
     .marks = &gemma3_marks,
     .linear = true,
     .both_ways = true},
    {.names = {"gemma4"},
     .prefixes = {"model.", ""},
     .roots = {"vision_tower."},
     .tensors = {[VISION_ROLE_PATCHES] = "@patch_embedder.input_proj",
                 [VISION_ROLE_POSITIONS] = "@patch_embedder.position_embedding_table",
                 [VISION_ROLE_MIX_NORM] = "@encoder.layers.#.input_layernorm",
                 [VISION_ROLE_Q] = "@encoder.layers.#.self_attn.q_proj.linear",
                 [VISION_ROLE_K] = "@encoder.layers.#.self_attn.k_proj.linear",
                 [VISION_ROLE_V] = "@encoder.layers.#.self_attn.v_proj.linear",
                 [VISION_ROLE_Q_NORM] = "@encoder.layers.#.self_attn.q_norm",
                 [VISION_ROLE_K_NORM] = "@encoder.layers.#.self_attn.k_norm",
                 [VISION_ROLE_OUT] = "@encoder.layers.#.self_attn.o_proj.linear",
                 [VISION_ROLE_MIX_POST] = "@encoder.layers.#.post_attention_layernorm",
                 [VISION_ROLE_MLP_NORM] = "@encoder.layers.#.pre_feedforward_layernorm",
                 [VISION_ROLE_GATE] = "@encoder.layers.#.mlp.gate_proj.linear",
                 [VISION_ROLE_UP] = "@encoder.layers.#.mlp.up_proj.linear",
                 [VISION_ROLE_DOWN] = "@encoder.layers.#.mlp.down_proj.linear",
                 [VISION_ROLE_MLP_POST] = "@encoder.layers.#.post_feedforward_layernorm",
                 [VISION_ROLE_STD_BIAS] = "@std_bias",
                 [VISION_ROLE_STD_SCALE] = "@std_scale",
                 [VISION_ROLE_MERGE_DOWN] = "embed_vision.embedding_projection"},
     .positions = ENCODE_POSITIONS_AXES,
     .rms = true,
     .v_norm = true,
     .plain_scores = true,
     .rotation = ENCODE_ROTATE_APART,
     .theta = 100,
     .activation = "gelu_pytorch_tanh",
     .pools = true,
     .pool_sqrt = true,
     .mean = {0.5f, 0.5f, 0.5f},
     .std = {0.5f, 0.5f, 0.5f},
     .eps_key = "rms_norm_eps",
     GEMMA4_PARTS},
    {.names = {"gemma4_unified"},
     .prefixes = {"model.", ""},
     .roots = {"vision_embedder."},
     .tensors = {[VISION_ROLE_PIXEL_NORM] = "@patch_ln1",
                 [VISION_ROLE_PATCHES] = "@patch_dense",
                 [VISION_ROLE_EMBED_NORM] = "@patch_ln2",
                 [VISION_ROLE_POSITIONS] = "@pos_embedding",
                 [VISION_ROLE_FIRST_NORM] = "@pos_norm",
                 [VISION_ROLE_MERGE_DOWN] = "embed_vision.embedding_projection"},
     .positions = ENCODE_POSITIONS_PAIRS,
     .no_blocks = true,
     .activation = "gelu_pytorch_tanh",
     .std = {1, 1, 1},
     GEMMA4_PARTS},
    {.names = {"kimi_vl"},
     .tensors = {MOON_TENSORS, [VISION_ROLE_MERGE_NORM] = "multi_modal_projector.pre_norm",
                 [VISION_ROLE_MERGE_UP] = "multi_modal_projector.linear_1",
                 [VISION_ROLE_MERGE_DOWN] = "multi_modal_projector.linear_2"},
     .patches_max = 4096,
     MOON_PARTS},
    {.names = {"kimi_k25"},
     .tensors =
         {MOON_TENSORS, [VISION_ROLE_MERGE_NORM] = "mm_projector.pre_norm",
          [VISION_ROLE_MERGE_UP] = "mm_projector.proj.0", [VISION_ROLE_MERGE_DOWN] = "mm_projector.proj.2"},
     .patches_max = 16384,
     MOON_PARTS},
    {.names = {"glm4v", "glm4v_moe"},
     .tensors = {GLM_TENSORS, [VISION_ROLE_POSITIONS] = "embeddings.position_embedding",
                 [VISION_ROLE_EMBED_NORM] = "post_conv_layernorm"},
     .positions = ENCODE_POSITIONS_CUBIC,
     .wide_merger = true,
     .video_images = true,
     .video_pixels_min = 12544,
     .video_pixels_max = 47040000,
     GLM_PARTS},
    {.names = {"glm_ocr"},
     .tensors = {GLM_TENSORS, [VISION_ROLE_Q_NORM] = "blocks.#.attn.q_norm",
                 [VISION_ROLE_K_NORM] = "blocks.#.attn.k_norm"},
     .no_videos = true,
     GLM_PARTS},
    {.names = {"mistral3"},
     .prefixes = {"model.", ""},
     .roots = {"vision_tower."},
     .tensors = {[VISION_ROLE_PATCHES] = "@patch_conv",
                 [VISION_ROLE_FIRST_NORM] = "@ln_pre",
                 [VISION_ROLE_MIX_NORM] = "@transformer.layers.#.attention_norm",
                 [VISION_ROLE_Q] = "@transformer.layers.#.attention.q_proj",
                 [VISION_ROLE_K] = "@transformer.layers.#.attention.k_proj",
                 [VISION_ROLE_V] = "@transformer.layers.#.attention.v_proj",
                 [VISION_ROLE_OUT] = "@transformer.layers.#.attention.o_proj",
                 [VISION_ROLE_MLP_NORM] = "@transformer.layers.#.ffn_norm",
                 [VISION_ROLE_GATE] = "@transformer.layers.#.feed_forward.gate_proj",
                 [VISION_ROLE_UP] = "@transformer.layers.#.feed_forward.up_proj",
                 [VISION_ROLE_DOWN] = "@transformer.layers.#.feed_forward.down_proj",
                 [VISION_ROLE_MERGE_NORM] = "multi_modal_projector.norm",
                 [VISION_ROLE_MERGE_SQUEEZE] = "multi_modal_projector.patch_merger.merging_layer",
                 [VISION_ROLE_MERGE_UP] = "multi_modal_projector.linear_1",
                 [VISION_ROLE_MERGE_DOWN] = "multi_modal_projector.linear_2"},
     .frames = 1,
     .rms = true,
     .eps = 1e-5,
     .text_eps = true,
     .rotation = ENCODE_ROTATE_ALTERNATE,
     .named_pairs = true,
     .theta = 10000,
     .activation = "gelu",
     .everywhere = true,
     .merge = 2,
     .mid_of_text = true,
     .size = IMAGE_BY_LONGEST,
     .mean = CLIP_MEAN,
     .std = CLIP_STD,
     .marks = &pixtral_marks,
     .linear = true},
    {.names = {"internvl"},
     .prefixes = {"model.", ""},
     .roots = {"vision_tower."},
     .tensors = {[VISION_ROLE_PATCHES] = "@embeddings.patch_embeddings.projection",
                 [VISION_ROLE_CLASS] = "@embeddings.cls_token",
                 [VISION_ROLE_POSITIONS] = "@embeddings.position_embeddings",
                 [VISION_ROLE_MIX_NORM] = "@encoder.layer.#.layernorm_before",
                 [VISION_ROLE_Q] = "@encoder.layer.#.attention.q_proj",
                 [VISION_ROLE_K] = "@encoder.layer.#.attention.k_proj",
                 [VISION_ROLE_V] = "@encoder.layer.#.attention.v_proj",
                 [VISION_ROLE_OUT] = "@encoder.layer.#.attention.projection_layer",
                 [VISION_ROLE_MIX_FACTORS] = "@encoder.layer.#.lambda_1",
                 [VISION_ROLE_MLP_NORM] = "@encoder.layer.#.layernorm_after",
                 [VISION_ROLE_UP] = "@encoder.layer.#.mlp.fc1",
                 [VISION_ROLE_DOWN] = "@encoder.layer.#.mlp.fc2",
                 [VISION_ROLE_MLP_FACTORS] = "@encoder.layer.#.lambda_2",
                 [VISION_ROLE_MERGE_NORM] = "multi_modal_projector.layer_norm",
                 [VISION_ROLE_MERGE_UP] = "multi_modal_projector.linear_1",
                 [VISION_ROLE_MERGE_DOWN] = "multi_modal_projector.linear_2"},
     .only = {{"norm_type", "layer_norm", false},
              {"use_qk_norm", NULL, false},
              {"use_mean_pooling", NULL, true},
              {"use_absolute_position_embeddings", NULL, true}},
     .tiles = &internvl_tiles,
     INTERN_PARTS},
    {.names = {"internvl_chat"}, /* InternVL in its original files */
     .prefixes = {""},
     .roots = {"vision_model."},
     .tensors = {[VISION_ROLE_PATCHES] = "@embeddings.patch_embedding",
                 [VISION_ROLE_CLASS] = "@embeddings.class_embedding",
                 [VISION_ROLE_POSITIONS] = "@embeddings.position_embedding",
                 [VISION_ROLE_MIX_NORM] = "@encoder.layers.#.norm1",
                 [VISION_ROLE_QKV] = "@encoder.layers.#.attn.qkv",
                 [VISION_ROLE_OUT] = "@encoder.layers.#.attn.proj",
                 [VISION_ROLE_MIX_FACTORS] = "@encoder.layers.#.ls1",
                 [VISION_ROLE_MLP_NORM] = "@encoder.layers.#.norm2",
                 [VISION_ROLE_UP] = "@encoder.layers.#.mlp.fc1",
                 [VISION_ROLE_DOWN] = "@encoder.layers.#.mlp.fc2",
                 [VISION_ROLE_MLP_FACTORS] = "@encoder.layers.#.ls2",
                 [VISION_ROLE_MERGE_NORM] = "mlp1.0",
                 [VISION_ROLE_MERGE_UP] = "mlp1.1",
                 [VISION_ROLE_MERGE_DOWN] = "mlp1.3"},
     .only = {{"norm_type", "layer_norm", false}, {"qk_normalization", NULL, false}},
     .only_beside = {{"ps_version", "v2", false},
                     {"pad2square", NULL, false},
                     {"dynamic_image_size", NULL, true},
                     {"use_thumbnail", NULL, true}},
     .image_word = "<IMG_CONTEXT>",
     .tiles = &intern_chat_tiles,
     INTERN_PARTS},
    {.names = {"idefics3", "smolvlm"},
     .prefixes = {"model.", ""},
     .roots = {"vision_model."},
     .tensors = {[VISION_ROLE_PATCHES] = "@embeddings.patch_embedding",
                 [VISION_ROLE_POSITIONS] = "@embeddings.position_embedding",
                 SIGLIP_BLOCKS("@encoder.layers.#."),
                 [VISION_ROLE_LAST_NORM] = "@post_layernorm",
                 [VISION_ROLE_MERGE_DOWN] = "connector.modality_projection.proj"},
     .frames = 1,
     .eps = 1e-6,
     .eps_key = "layer_norm_eps",
     .activation = "gelu_pytorch_tanh",
     .everywhere = true,
     .merge_key = "scale_factor",
     .merge = 2,
     .size = IMAGE_FIXED,
     .filter = 1,
     .mean = {0.5f, 0.5f, 0.5f},
     .std = {0.5f, 0.5f, 0.5f},
     .marks = &idefics_marks,
     .tiles = &idefics_tiles,
     .linear = true},
    {.names = {"lfm2_vl"},
     .prefixes = {"model.", ""},
     .roots = {"vision_tower.vision_model.", "vision_tower."},
     .tensors = {[VISION_ROLE_PATCHES] = "@embeddings.patch_embedding",
                 [VISION_ROLE_POSITIONS] = "@embeddings.position_embedding",
                 SIGLIP_BLOCKS("@encoder.layers.#."),
                 [VISION_ROLE_LAST_NORM] = "@post_layernorm",
                 [VISION_ROLE_MERGE_NORM] = "multi_modal_projector.layer_norm",
                 [VISION_ROLE_MERGE_UP] = "multi_modal_projector.linear_1",
                 [VISION_ROLE_MERGE_DOWN] = "multi_modal_projector.linear_2"},
     .frames = 1,
     .positions = ENCODE_POSITIONS_SMOOTH,
     .patches_flat = true,
     .eps = 1e-6,
     .eps_key = "layer_norm_eps",
     .merge_eps = 1e-5,
     .token_norm = true,
     .merge_norm_key = "projector_use_layernorm",
     .mid_key = "projector_hidden_size",
     .activation = "gelu_pytorch_tanh",
     .merge_key = "downsample_factor",
     .merge = 2,
     .size = IMAGE_BY_AREA,
     .filter = 2,
     .mean = {0.5f, 0.5f, 0.5f},
     .std = {0.5f, 0.5f, 0.5f},
     .marks = &lfm2_marks,
     .tiles = &lfm2_tiles,
     .linear = true},
};

const struct vision_family *vision_family_find(const char *model_type)
{
    for (size_t i = 0; i < COUNT_OF(vision_families); i++)
        for (size_t k = 0; k < COUNT_OF(vision_families[i].names) && vision_families[i].names[k]; k++)
            if (strcmp(vision_families[i].names[k], model_type) == 0)
                return &vision_families[i];
    return NULL;
}

const struct vision_family *vision_family_at(size_t index)
{
    return index < COUNT_OF(vision_families) ? &vision_families[index] : NULL;
}
