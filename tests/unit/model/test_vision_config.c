/* The vision encoder's configuration, and where tokens stand among images. */
#include "model_path.h"
#include "test_files.h"

#include "base/check.h"
#include "model/blocks/mrope.h"
#include "model/config/config.h"
#include "model/family/family.h"

#include <errno.h>
#include <string.h>

#define TEXT                                                                                                 \
    "\"model_type\":\"qwen3_5\",\"image_token_id\":500,\"video_token_id\":501,\"vision_start_token_id\":"    \
    "502,\"vision_end_token_id\":503,\"text_config\":{\"model_type\":\"qwen3_5_text\",\"hidden_size\":64,"   \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"           \
    "\"intermediate_size\":160,\"vocab_size\":512,\"max_position_embeddings\":4096,"                         \
    "\"full_attention_interval\":1,"                                                                         \
    "\"rope_parameters\":{\"partial_rotary_factor\":0.5,\"rope_type\":\"default\",\"mrope_interleaved\":"    \
    "true,\"mrope_section\":[2,1,1]}}"
#define VISION_BUT_SIZE                                                                                      \
    "\"depth\":3,\"num_heads\":2,\"intermediate_size\":64,\"patch_size\":16,\"out_hidden_size\":64"
#define VISION VISION_BUT_SIZE ",\"hidden_size\":32,\"num_position_embeddings\":64"

static struct arena *arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

/* Files of the two preprocessors may be NULL: not there. */
static int load(const char *config, const char *image, const char *processor, const char *video,
                struct vision_limits limits, struct vision_config *ret, struct err *e)
{
    const char *dir = test_dir();
    struct config text;
    test_write_text(dir, "config.json", config);
    if (image)
        test_write_text(dir, "preprocessor_config.json", image);
    if (processor)
        test_write_text(dir, "processor_config.json", processor);
    if (video)
        test_write_text(dir, "video_preprocessor_config.json", video);
    assert_int_equal(config_load_at(arena(), dir, &text, e), 0);
    return vision_config_load_at(dir, &text, &limits, ret, e);
}

static struct vision_config reads(const char *config, const char *image, const char *processor,
                                  const char *video)
{
    struct vision_config v;
    struct err e = {{0}};
    int r = load(config, image, processor, video, (struct vision_limits){.pixels_max = 0}, &v, &e);
    if (r < 0)
        print_message("%s\n%s\n", config, e.text);
    assert_int_equal(r, 0);
    return v;
}

static void refuses(const char *config, const char *image, int code, const char *says)
{
    struct vision_config v;
    struct err e = {{0}};
    int r = load(config, image, NULL, NULL, (struct vision_limits){.pixels_max = 0}, &v, &e);
    if (r != code || !strstr(e.text, says))
        print_message("%s\ngave %d: %s\n", config, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
}

TEST(without_preprocessor_files_the_families_values_hold)
{
    struct vision_config v = reads("{" TEXT ",\"vision_config\":{" VISION "}}", NULL, NULL, NULL);
    assert_true(v.shape.present && v.depth == 3 && v.hidden == 32 && v.heads == 2 && v.head_dim == 16);
    assert_true(v.shape.patch == 16 && v.shape.merge == 2 && v.grid == 8 && v.theta == 10000);
    assert_true(v.shape.feature_floats == 64 && v.deepstack_count == 0);
    assert_true(v.shape.pixels_min == 65536 && v.shape.pixels_max == VISION_PIXELS_USUAL);
    assert_true(v.shape.video_pixels_min == 4096 && v.shape.video_pixels_max == 25165824);
    assert_true(v.shape.video_fps == 2 && v.shape.video_frames_min == 4 && v.shape.video_frames_max == 768);
    assert_true(v.shape.image_token == 500 && v.shape.video_token == 501 && v.shape.start_token == 502 &&
                v.shape.end_token == 503);
    for (int i = 0; i < VISION_CHANNELS; i++)
        assert_true(v.mean[i] == 0.5f && v.std[i] == 0.5f);
    assert_int_equal(vision_patch_values(&v), 1536);
    assert_int_equal(vision_merged(&v), 128);
}

TEST(bounds_come_from_either_file_and_the_older_keys_win)
{
    const char *config = "{" TEXT ",\"vision_config\":{" VISION "}}";
    struct vision_config v = reads(
        config, "{\"size\":{\"shortest_edge\":4096,\"longest_edge\":1048576},\"image_mean\":[0.1,0.2,0.3]}",
        "{\"video_processor\":null}", "{\"fps\":1.5,\"max_frames\":12,\"min_frames\":2}");
    assert_true(v.shape.pixels_min == 4096 && v.shape.pixels_max == 1048576);
    assert_true(v.mean[1] == 0.2f && v.shape.video_fps == 1.5 && v.shape.video_frames_max == 12);
    v = reads(
        config, "{\"max_pixels\":5}",
        "{\"image_processor\":{\"size\":{\"longest_edge\":7},\"max_pixels\":262144,\"min_pixels\":2048},"
        "\"video_processor\":{\"size\":{\"longest_edge\":99999}}}",
        NULL);
    assert_true(v.shape.pixels_min == 2048 && v.shape.pixels_max == 262144);
    assert_int_equal(v.shape.video_pixels_max, 99999);
}

TEST(videos_are_prepared_as_images_are)
{
    static const struct {
        const char *video, *says;
    } bad[] = {{"{\"image_mean\":[0.5,0.5,0.4]}", "image_mean and image_std are not those of images"},
               {"{\"image_std\":[0.2,0.5,0.5]}", "image_mean and image_std are not those of images"},
               {"{\"patch_size\":14}", "patch_size is 14; supported is 16"},
               {"{\"merge_size\":1}", "merge_size is 1"},
               {"{\"temporal_patch_size\":1}", "temporal_patch_size is 1"},
               {"{\"do_rescale\":false}", "video_preprocessor_config.json: do_rescale is false"},
               {"{\"resample\":2}", "resample is 2"}};
    const char *config = "{" TEXT ",\"vision_config\":{" VISION "}}",
               *image = "{\"image_mean\":[0.1,0.2,0.3]}";
    struct vision_config v = reads(config, image, NULL, "{\"image_mean\":[0.1,0.2,0.3]}");
    assert_true(v.mean[2] == 0.3f && v.std[2] == 0.5f);
    reads(config, image, NULL, "{\"fps\":1}");
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct err e = {{0}};
        assert_int_equal(
            load(config, NULL, NULL, bad[i].video, (struct vision_limits){.pixels_max = 0}, &v, &e),
            -ENOTSUP);
        assert_non_null(strstr(e.text, bad[i].says));
    }
}

TEST(a_cap_lowers_both_bounds_and_leaves_one_token)
{
    const char *config = "{" TEXT ",\"vision_config\":{" VISION "}}";
    struct vision_config v;
    assert_int_equal(load(config, NULL, NULL, NULL, (struct vision_limits){30000}, &v, NULL), 0);
    assert_true(v.shape.pixels_min == 30000 && v.shape.pixels_max == 30000);
    assert_int_equal(load(config, NULL, NULL, NULL, (struct vision_limits){3}, &v, NULL), 0);
    assert_int_equal(v.shape.pixels_max, 32 * 32);
    assert_int_equal(load(config, NULL, NULL, NULL, (struct vision_limits){1u << 30}, &v, NULL), 0);
    assert_int_equal(v.shape.pixels_max, 16777216);
}

#define PIXTRAL_TEXT                                                                                         \
    "\"model_type\":\"mistral3\",\"image_token_index\":10,\"text_config\":{\"model_type\":\"mistral\","      \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":160,"        \
    "\"vocab_size\":512,\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-4}"
#define PIXTRAL                                                                                              \
    "\"vision_config\":{\"model_type\":\"pixtral\",\"num_hidden_layers\":2,\"num_attention_heads\":2,"       \
    "\"hidden_size\":32,\"intermediate_size\":48,\"patch_size\":14,\"image_size\":1540,\"rope_theta\":5000," \
    "\"hidden_act\":\"silu\"}"

TEST(pixtral_bounds_the_longer_edge)
{
    struct vision_config v =
        reads("{" PIXTRAL_TEXT ",\"spatial_merge_size\":2," PIXTRAL "}", NULL, NULL, NULL);
    assert_true(v.depth == 2 && v.heads == 2 && v.frames == 1 && v.gated && v.grid == 0 && v.theta == 5000);
    assert_true(v.function == GLU_SILU && v.eps == 1e-5f && v.merge_eps == 1e-4f);
    assert_true(v.shape.linear && v.shape.size == IMAGE_BY_LONGEST && v.shape.edge_max == 1540);
    assert_true(v.shape.merge == 2 && v.shape.pixels_max == 1540 * 1540 && v.shape.video_frames_max == 0);
    v = reads("{" PIXTRAL_TEXT "," PIXTRAL "}", "{\"size\":{\"longest_edge\":1000}}", NULL, NULL);
    assert_true(v.shape.edge_max == 1000 && v.shape.pixels_max == 1008 * 1008);
    struct err e = {{0}};
    assert_int_equal(
        load("{" PIXTRAL_TEXT "," PIXTRAL "}", NULL, NULL, NULL, (struct vision_limits){300 * 300}, &v, &e),
        0);
    assert_true(v.shape.edge_max == 280 && v.shape.pixels_max == 280 * 280);
    refuses("{" PIXTRAL_TEXT ",\"vision_feature_layer\":-2," PIXTRAL "}", NULL, -ENOTSUP,
            "vision_feature_layer");
    refuses("{" PIXTRAL_TEXT ",\"projector_hidden_act\":\"silu\"," PIXTRAL "}", NULL, -ENOTSUP,
            "projector_hidden_act");
}

#define GEMMA_TEXT                                                                                           \
    "\"model_type\":\"gemma3\",\"image_token_index\":500,\"text_config\":{\"model_type\":\"gemma3_text\","   \
    "\"hidden_size\":64,\"num_hidden_layers\":4,\"intermediate_size\":160,\"vocab_size\":512}"
#define SIGLIP_OF(size)                                                                                      \
    "\"vision_config\":{\"model_type\":\"siglip_vision_model\",\"num_hidden_layers\":2,"                     \
    "\"num_attention_heads\":2,\"hidden_size\":32,\"intermediate_size\":48,\"patch_size\":14,"               \
    "\"image_size\":" #size ",\"layer_norm_eps\":1e-5}"
#define SIGLIP SIGLIP_OF(896)

TEST(images_of_gemma3_are_squares)
{
    struct vision_config v = reads("{" GEMMA_TEXT "," SIGLIP "}", "{\"resample\":2}", NULL, NULL);
    assert_true(v.grid == 64 && v.shape.merge == 4 && v.eps == 1e-5f && v.function == GLU_GELU_TANH &&
                !v.gated);
    assert_true(v.shape.linear && v.shape.both_ways && v.shape.size == IMAGE_FIXED && v.shape.filter == 2);
    assert_true(v.shape.edge_max == 896 && v.shape.pixels_max == 896 * 896);
    assert_int_equal(model_image_tokens_max(&v.shape), 256);
    v = reads("{" GEMMA_TEXT ",\"mm_tokens_per_image\":1024," SIGLIP "}", NULL, NULL, NULL);
    assert_int_equal(v.shape.merge, 2);
    refuses("{" GEMMA_TEXT ",\"mm_tokens_per_image\":100," SIGLIP "}", NULL, -ENOTSUP,
            "mm_tokens_per_image is 100");
    refuses("{" GEMMA_TEXT "," SIGLIP "}", "{\"size\":{\"height\":900,\"width\":900}}", -ENOTSUP,
            "edges of 900 pixels, which are not whole tokens of 56");
    refuses("{" GEMMA_TEXT "," SIGLIP_OF(900) "}", NULL, -ENOTSUP, "edges of 900 pixels");
    refuses("{" GEMMA_TEXT "," SIGLIP "}", "{\"resample\":3}", -ENOTSUP, "resample is 3");
    refuses("{" GEMMA_TEXT "," SIGLIP "}", "{\"do_pan_and_scan\":true}", -ENOTSUP, "do_pan_and_scan");
    struct err e = {{0}};
    assert_int_equal(load("{" GEMMA_TEXT "," SIGLIP "}", NULL, NULL, NULL,
                          (struct vision_limits){.pixels_max = 1000}, &v, &e),
                     -EINVAL);
    assert_non_null(strstr(e.text, "896 x 896 pixels, over --max-image-pixels"));
}

#define GLM4V                                                                                                \
    "\"model_type\":\"glm4v\",\"image_token_id\":500,\"video_token_id\":501,\"image_start_token_id\":502,"   \
    "\"image_end_token_id\":503,\"text_config\":{\"model_type\":\"glm4v_text\",\"hidden_size\":64,"          \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"intermediate_size\":160,\"vocab_size\":512,"        \
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000,\"partial_rotary_factor\":0.5,"     \
    "\"mrope_section\":[1,2,1]}}"

TEST(bounds_of_glm4v_count_both_frames)
{
    struct vision_config v =
        reads("{" GLM4V ",\"vision_config\":{\"depth\":2,\"hidden_size\":32,\"num_heads\":2,"
              "\"intermediate_size\":100,\"out_hidden_size\":64,\"image_size\":336,"
              "\"patch_size\":14,\"spatial_merge_size\":2,\"temporal_patch_size\":2}}",
              NULL, NULL, NULL);
    assert_true(v.grid == 24 && v.intermediate == 64 && v.merge_mid == 100 && v.gated && v.frames == 2);
    assert_true(v.shape.grows && v.shape.pixels_min == 6272 && v.shape.pixels_max == VISION_PIXELS_USUAL);
    assert_true(!v.shape.linear && v.shape.start_token == 502 && v.shape.video_images);
    assert_true(v.shape.video_frames_max == 600 && v.shape.video_seconds_max == 300 &&
                v.shape.video_pixels_max == 47040000);
}

#define KIMI                                                                                                 \
    "\"model_type\":\"kimi_vl\",\"media_placeholder_token_id\":500,\"text_config\":{\"model_type\":"         \
    "\"qwen3\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":160,\"vocab_size\":512},\"vision_config\":{\"patch_size\":14,"                    \
    "\"num_attention_heads\":2,\"num_hidden_layers\":2,\"hidden_size\":32,\"intermediate_size\":48,"         \
    "\"init_pos_emb_height\":64,\"init_pos_emb_width\":64,\"merge_kernel_size\":[2,2]}"

TEST(images_of_kimi_have_a_limit_of_patches)
{
    struct vision_config v = reads("{" KIMI "}", "{\"in_token_limit\":1000,\"pad_input\":true}", NULL, NULL);
    assert_true(v.grid == 64 && v.shape.merge == 2 && v.shape.linear && v.shape.size == IMAGE_PADDED);
    assert_true(v.shape.patches_max == 1000 && v.shape.edge_max == 7168 && v.shape.image_token == 500);
    assert_int_equal(v.shape.pixels_max, 1000 * 14 * 14 * 3 / 2);
    v = reads("{" KIMI "}", "{\"media_proc_cfg\":{\"in_patch_limit\":900,\"patch_limit_on_one_side\":30}}",
              NULL, NULL);
    assert_true(v.shape.patches_max == 900 && v.shape.edge_max == 420);
    refuses("{" KIMI "}", "{\"pad_input\":false}", -ENOTSUP, "pad_input is false");
    refuses("{" KIMI "}", "{\"merge_kernel_size\":[3,3]}", -ENOTSUP, "merge_kernel_size is not the 2");
}

#define GEMMA4_TEXT                                                                                          \
    "\"model_type\":\"gemma4\",\"image_token_id\":500,\"text_config\":{\"model_type\":\"gemma4_text\","      \
    "\"use_bidirectional_attention\":\"vision\",\"hidden_size\":64,\"num_hidden_layers\":4,"                 \
    "\"hidden_size_per_layer_input\":0,\"intermediate_size\":160,\"vocab_size\":512}"
#define GEMMA4_VISION                                                                                        \
    "\"hidden_size\":32,\"num_attention_heads\":2,\"head_dim\":16,\"num_hidden_layers\":2,"                  \
    "\"intermediate_size\":48"

static int with_limits(struct vision_limits limits, struct vision_config *ret, struct err *e)
{
    return load("{" GEMMA4_TEXT ",\"vision_config\":{" GEMMA4_VISION "}}", NULL, NULL, NULL, limits, ret, e);
}

TEST(images_of_gemma4_have_a_budget_of_tokens)
{
    struct vision_config v =
        reads("{" GEMMA4_TEXT ",\"vision_config\":{" GEMMA4_VISION ",\"use_clipped_linears\":true}}", NULL,
              NULL, NULL);
    assert_true(v.shape.patch == 16 && v.shape.merge == 3 && v.grid == 10240 && v.theta == 100);
    assert_true(v.clipped && !v.standardizes && v.gated && v.function == GLU_GELU_TANH);
    assert_true(v.shape.linear && v.shape.both_ways && v.shape.size == IMAGE_BY_BUDGET);
    assert_int_equal(model_image_tokens_max(&v.shape), 280);
    v = reads("{" GEMMA4_TEXT ",\"vision_config\":{" GEMMA4_VISION "}}", NULL,
              "{\"image_processor\":{\"max_soft_tokens\":1120,\"do_normalize\":false}}", NULL);
    assert_int_equal(model_image_tokens_max(&v.shape), 1120);
    assert_int_equal(with_limits((struct vision_limits){.tokens = 70}, &v, NULL), 0);
    assert_int_equal(model_image_tokens_max(&v.shape), 70);
    assert_int_equal(with_limits((struct vision_limits){.pixels_max = 48 * 48 * 10}, &v, NULL), 0);
    assert_int_equal(model_image_tokens_max(&v.shape), 10);
    struct err e = {{0}};
    assert_int_equal(with_limits((struct vision_limits){.tokens = 100}, &v, &e), -ENOTSUP);
    assert_non_null(strstr(e.text, "--image-tokens is 100; this model's images have 70, 140"));
}

TEST(another_form_of_gemma4s_encoder_is_named)
{
#define REFUSED_GEMMA4(more, image, says)                                                                    \
    refuses("{" GEMMA4_TEXT ",\"vision_config\":{" GEMMA4_VISION more "}}", image, -ENOTSUP, says)
    REFUSED_GEMMA4(",\"num_key_value_heads\":1", NULL, "num_key_value_heads is 1; supported is 2");
    REFUSED_GEMMA4(",\"position_embedding_size\":100", NULL, "the table has 100 of an axis");
    REFUSED_GEMMA4("", "{\"max_soft_tokens\":99}", "max_soft_tokens is 99");
    REFUSED_GEMMA4("", "{\"do_normalize\":true,\"image_mean\":[0.5,0.5,0.5]}", "image_mean and image_std");
    REFUSED_GEMMA4("", "{\"pooling_kernel_size\":2}", "pooling_kernel_size is 2; supported is 3");
    struct vision_config v;
    struct err e = {{0}};
    assert_int_equal(load("{" TEXT ",\"vision_config\":{" VISION "}}", NULL, NULL, NULL,
                          (struct vision_limits){.tokens = 70}, &v, &e),
                     -ENOTSUP);
    assert_non_null(strstr(e.text, "--image-tokens is for models"));
}

TEST(an_encoder_without_blocks_has_whole_vectors)
{
    refuses("{\"model_type\":\"gemma4_unified\",\"image_token_id\":500,\"text_config\":{\"model_type\":"
            "\"gemma4_unified_text\",\"hidden_size\":64,\"num_hidden_layers\":4,\"intermediate_size\":160,"
            "\"vocab_size\":512},\"vision_config\":{\"mm_embed_dim\":15,\"output_proj_dims\":15}}",
            NULL, -ENOTSUP, "mm_embed_dim is 15, which is not a multiple of 4");
}

TEST(patches_of_gemma4_unified_are_tokens)
{
    struct vision_config v =
        reads("{\"model_type\":\"gemma4_unified\",\"image_token_id\":500,\"text_config\":{\"model_type\":"
              "\"gemma4_unified_text\",\"hidden_size\":64,\"num_hidden_layers\":4,\"intermediate_size\":160,"
              "\"vocab_size\":512},\"vision_config\":{\"mm_embed_dim\":32,\"output_proj_dims\":32}}",
              NULL, NULL, NULL);
    assert_true(v.shape.patch == 48 && v.shape.merge == 1 && v.depth == 0 && v.grid == 1120 &&
                v.hidden == 32);
    assert_true(v.eps == 1e-5f && v.merge_eps == 1e-6f && v.shape.both_ways);
    assert_int_equal(model_image_tokens_max(&v.shape), 280);
}

#define INTERN_TEXT                                                                                          \
    "\"model_type\":\"internvl\",\"image_token_id\":500,\"downsample_ratio\":0.5,\"text_config\":{"          \
    "\"model_type\":\"qwen2\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,"         \
    "\"num_key_value_heads\":2,\"intermediate_size\":160,\"vocab_size\":512,"                                \
    "\"max_position_embeddings\":4096}"
#define INTERN_BUT_NORM                                                                                      \
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"hidden_size\":32,\"intermediate_size\":48,"         \
    "\"image_size\":[448,448],\"patch_size\":[14,14]"
#define INTERN "\"vision_config\":{" INTERN_BUT_NORM ",\"norm_type\":\"layer_norm\"}"

TEST(images_of_internvl_have_tiles)
{
    struct vision_config v = reads("{" INTERN_TEXT "," INTERN "}", NULL, NULL, NULL);
    assert_true(v.grid == 32 && v.shape.merge == 2 && v.merge_eps == 1e-5f && v.eps == 1e-6f);
    assert_true(v.shape.tiles.edge == 448 && v.shape.tiles.count_min == 1 && v.shape.tiles.count_max == 12);
    assert_true(model_image_tokens_max(&v.shape) == 256 && model_image_parts_max(&v.shape) == 13);
    v = reads("{" INTERN_TEXT "," INTERN "}", "{\"max_patches\":6}", NULL, NULL);
    assert_int_equal(v.shape.tiles.count_max, 6);
    /* The server's limit is one of all tiles. */
    struct err e = {{0}};
    assert_int_equal(load("{" INTERN_TEXT "," INTERN "}", NULL, NULL, NULL,
                          (struct vision_limits){.pixels_max = 3 * 448 * 448}, &v, &e),
                     0);
    assert_int_equal(v.shape.tiles.count_max, 3);
    refuses("{" INTERN_TEXT "," INTERN "}", "{\"size\":{\"height\":224,\"width\":224}}", -ENOTSUP,
            "a tile has 224 pixels");
    refuses("{" INTERN_TEXT ",\"vision_config\":{" INTERN_BUT_NORM ",\"norm_type\":\"rms_norm\"}}", NULL,
            -ENOTSUP, "norm_type 'rms_norm'");
    refuses("{" INTERN_TEXT ",\"vision_config\":{" INTERN_BUT_NORM ",\"use_qk_norm\":true}}", NULL, -ENOTSUP,
            "use_qk_norm is true");
}

#define IDEFICS                                                                                              \
    "{\"model_type\":\"idefics3\",\"image_token_id\":500,\"scale_factor\":2,\"text_config\":{"               \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,"         \
    "\"num_key_value_heads\":2,\"intermediate_size\":160,\"vocab_size\":512,"                                \
    "\"max_position_embeddings\":4096},\"vision_config\":{\"num_hidden_layers\":2,"                          \
    "\"num_attention_heads\":2,\"hidden_size\":32,\"intermediate_size\":48,\"image_size\":364,"              \
    "\"patch_size\":14}}"

TEST(images_of_idefics3_have_tiles)
{
    struct vision_config v = reads(IDEFICS, NULL, NULL, NULL);
    assert_true(v.grid == 26 && v.shape.merge == 2 && v.shape.filter == 1);
    assert_true(v.shape.tiles.edge == 364 && v.shape.tiles.longest == 1456);
    assert_int_equal(model_image_parts_max(&v.shape), 17);
    v = reads(IDEFICS, "{\"size\":{\"longest_edge\":1457}}", NULL, NULL);
    assert_int_equal(model_image_parts_max(&v.shape), 26);
    v = reads(IDEFICS, "{\"do_image_splitting\":false}", NULL, NULL);
    assert_int_equal(model_image_parts_max(&v.shape), 1);
    struct err e = {{0}};
    assert_int_equal(
        load(IDEFICS, NULL, NULL, NULL, (struct vision_limits){.pixels_max = 5 * 364 * 364}, &v, &e), 0);
    assert_int_equal(v.shape.tiles.longest, 728);
    refuses(IDEFICS, "{\"size\":{\"longest_edge\":8000}}", -ENOTSUP, "484 tiles of 364 pixels");
    refuses(IDEFICS, "{\"resample\":3}", -ENOTSUP, "resample is 3");
}

#define LFM2_BUT_MID "{\"model_type\":\"lfm2_vl\",\"image_token_id\":500,\"projector_hidden_size\":"
#define LFM2_TEXT                                                                                            \
    "\"text_config\":{\"model_type\":\"lfm2\",\"hidden_size\":64,\"num_hidden_layers\":2,"                   \
    "\"num_attention_heads\":4,"                                                                             \
    "\"num_key_value_heads\":2,\"intermediate_size\":160,\"vocab_size\":512,"                                \
    "\"layer_types\":[\"conv\",\"full_attention\"]},\"vision_config\":{\"num_hidden_layers\":2,"             \
    "\"num_attention_heads\":2,\"hidden_size\":32,\"intermediate_size\":48,\"patch_size\":16,"               \
    "\"num_patches\":"
#define LFM2_BUT_PATCHES LFM2_BUT_MID "40," LFM2_TEXT
#define LFM2             LFM2_BUT_PATCHES "256}}"

TEST(images_of_lfm2_vl_have_tiles_beyond_their_tokens)
{
    struct vision_config v = reads(LFM2, NULL, NULL, NULL);
    assert_true(v.grid == 16 && v.shape.merge == 2 && v.mid == 40 && !v.merge_bare && vision_norms_twice(&v));
    assert_true(v.shape.pixels_min == 64 * 1024 && v.shape.pixels_max == 256 * 1024 && v.shape.filter == 2);
    assert_true(v.shape.tiles.edge == 512 && v.shape.tiles.area_above == 524288);
    assert_int_equal(model_image_parts_max(&v.shape), 11);
    v = reads(LFM2, "{\"do_image_splitting\":false}", NULL, NULL);
    assert_int_equal(model_image_parts_max(&v.shape), 1);
    assert_int_equal(vision_read_max(&v), 3 * 16 * 16);
    v = reads(LFM2_BUT_MID "4000," LFM2_TEXT "256}}", NULL, NULL, NULL);
    assert_int_equal(vision_read_max(&v), 1000); /* a middle of 4000 values, of 4 patches */
    refuses(LFM2, "{\"tile_size\":768}", -ENOTSUP, "tile_size is 768");
    refuses(LFM2, "{\"use_thumbnail\":false}", -ENOTSUP, "use_thumbnail is false");
    refuses(LFM2, "{\"encoder_patch_size\":14}", -ENOTSUP, "encoder_patch_size is 14; supported is 16");
    refuses(LFM2_BUT_PATCHES "250}}", NULL, -ENOTSUP, "num_patches is 250, which is not a square");
    refuses(LFM2_BUT_PATCHES "1089}}", NULL, -EINVAL, "num_patches");
}

/* The keys of a published file, without text_config. */
#define QWEN25                                                                                               \
    "\"model_type\":\"qwen2_5_vl\",\"image_token_id\":500,\"video_token_id\":501,\"vision_start_token_id\":" \
    "502,\"vision_end_token_id\":503,\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,"  \
    "\"intermediate_size\":160,\"vocab_size\":512,\"max_position_embeddings\":4096,\"rope_scaling\":{"       \
    "\"type\":\"mrope\",\"mrope_section\":[4,2,2]}"
#define QWEN25_VISION                                                                                        \
    "\"depth\":3,\"num_heads\":2,\"hidden_size\":32,\"intermediate_size\":48,\"patch_size\":14,\"in_"        \
    "chans\":3,"                                                                                             \
    "\"out_hidden_size\":64,\"spatial_merge_size\":2,\"fullatt_block_indexes\":[0,2],\"hidden_act\":"        \
    "\"silu\""

TEST(qwen2_5_vl_has_windows)
{
    struct vision_config v =
        reads("{" QWEN25 ",\"vision_config\":{" QWEN25_VISION ",\"window_size\":112}}", NULL, NULL, NULL);
    assert_true(v.window == 4 && v.all_count == 2 && v.grid == 0 && v.gated && v.frames == 2);
    assert_true(vision_sees_all(&v, 0) && !vision_sees_all(&v, 1) && vision_sees_all(&v, 2));
    assert_true(v.shape.pixels_min == 3136 && v.shape.pixels_max == VISION_PIXELS_USUAL);
    assert_true(!v.shape.linear && v.shape.video_frames_max == 0);
    refuses("{" QWEN25 ",\"vision_config\":{" QWEN25_VISION ",\"window_size\":27}}", NULL, -ENOTSUP,
            "window_size is 27");
}

TEST(a_vision_config_that_is_not_supported_is_named)
{
    refuses("{" TEXT "}", NULL, -EINVAL, "vision_config is missing");
    refuses("{" TEXT
            ",\"vision_config\":{\"depth\":3,\"num_heads\":2,\"intermediate_size\":64,\"patch_size\":16,"
            "\"out_hidden_size\":32,\"hidden_size\":32,\"num_position_embeddings\":64}}",
            NULL, -EINVAL, "out_hidden_size is 32, the text model's hidden_size 64");
    refuses("{" TEXT ",\"vision_config\":{" VISION_BUT_SIZE
            ",\"hidden_size\":30,\"num_position_embeddings\":64}}",
            NULL, -ENOTSUP, "a head's size must be a multiple of 4");
    refuses("{" TEXT ",\"vision_config\":{" VISION_BUT_SIZE
            ",\"hidden_size\":32,\"num_position_embeddings\":60}}",
            NULL, -ENOTSUP, "which is not a square");
    refuses("{" TEXT ",\"vision_config\":{" VISION ",\"deepstack_visual_indexes\":[1]}}", NULL, -ENOTSUP,
            "deepstack_visual_indexes is not empty");
    refuses("{" TEXT ",\"vision_config\":{" VISION ",\"in_channels\":1}}", NULL, -ENOTSUP,
            "in_channels is 1");
    refuses("{" TEXT ",\"vision_config\":{" VISION ",\"hidden_act\":\"relu\"}}", NULL, -ENOTSUP,
            "hidden_act 'relu'");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"patch_size\":14}", -ENOTSUP, "patch_size is 14");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"image_std\":[0,1,1]}", -EINVAL, "image_std");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"resample\":2}", -ENOTSUP,
            "resample is 2; supported is 3");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"do_normalize\":false}", -ENOTSUP,
            "do_normalize is false, which is not supported");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"do_resize\":false}", -ENOTSUP,
            "do_resize is false");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"rescale_factor\":1}", -ENOTSUP,
            "rescale_factor");
    refuses("{" TEXT ",\"vision_config\":{" VISION "}}", "{\"min_pixels\":9,\"max_pixels\":8}", -EINVAL,
            "9 pixels at least and 8 at most");
}

static void assert_position(const struct model_grid *g, uint32_t count, uint32_t token, uint32_t t,
                            uint32_t h, uint32_t w)
{
    struct rope_position p = mrope_at(g, count, token);
    assert_int_equal(p.axis[0], t);
    assert_int_equal(p.axis[1], h);
    assert_int_equal(p.axis[2], w);
}

TEST(images_take_fewer_positions_than_tokens)
{
    const struct model_grid g[] = {{.first = 3, .rows = 2, .columns = 3},
                                   {.first = 11, .rows = 4, .columns = 2}};
    for (uint32_t i = 0; i < 3; i++)
        assert_position(g, 2, i, i, i, i);
    for (uint32_t i = 0; i < 6; i++)
        assert_position(g, 2, 3 + i, 3, 3 + i / 3, 3 + i % 3);
    assert_position(g, 2, 9, 6, 6, 6);
    assert_position(g, 2, 10, 7, 7, 7);
    for (uint32_t i = 0; i < 8; i++)
        assert_position(g, 2, 11 + i, 8, 8 + i / 2, 8 + i % 2);
    assert_position(g, 2, 19, 12, 12, 12);
    assert_position(g, 1, 19, 16, 16, 16);
    assert_position(NULL, 0, 19, 19, 19, 19);
    assert_null(mrope_grid(g, 2, 2));
    assert_ptr_equal(mrope_grid(g, 2, 3), &g[0]);
    assert_ptr_equal(mrope_grid(g, 2, 8), &g[0]);
    assert_null(mrope_grid(g, 2, 9));
    assert_ptr_equal(mrope_grid(g, 2, 18), &g[1]);
    assert_null(mrope_grid(g, 2, 19));
}

TEST(frequencies_turn_by_their_axis)
{
    struct rope_config c = {
        .type = ROPE_DEFAULT, .rot = 64, .theta = 1e4, .sections = {11, 11, 10}, .interleaved = true};
    struct rope r;
    float cosines[32], sines[32], of[3][32], unused[32];
    config_rope_init(&r, &c);
    for (uint32_t j = 0; j < 32; j++)
        assert_int_equal(r.axis[j], j < 30 ? j % 3 : j - 30);
    rope_at(&r, (struct rope_position){{5, 7, 9}}, cosines, sines);
    for (uint32_t a = 0; a < 3; a++)
        rope_at(&r, rope_text(5 + 2 * a), of[a], unused);
    for (uint32_t j = 0; j < 32; j++)
        assert_true(cosines[j] == of[r.axis[j]][j]);
    c.sections[0] = 24, c.sections[1] = c.sections[2] = 20, c.rot = 128;
    config_rope_init(&r, &c);
    for (uint32_t j = 0; j < 64; j++)
        assert_int_equal(r.axis[j], j < 60 ? j % 3 : 0);
}

TEST_MAIN()
