/* Small goldens on a GPU whose kernels run on the CPU (tests/simt): families and vision encoders whose
 * operations no other golden of that device has. `golden_simt` runs any other one. */
#include "run_golden.h"

static void holds(const char *options, const char *const *names, size_t count)
{
    char args[512];
    for (size_t i = 0; i < count; i++) {
        snprintf(
            args, sizeof(args),
            "--device cuda:0 --kv-dtype auto --spread --chunk 33 --batch 2 --sequences 2 %s " GOLDEN_DATA(
                "%s"),
            options, names[i]);
        golden_holds(args);
    }
}

TEST(families_hold_in_bf16)
{
    static const char *const names[] = {"mimo_v2_flash", "mistral4",          "hy_v3",  "hunyuan_v1_moe",
                                        "granite_swa",   "nemotron_h_latent", "laguna", "phimoe",
                                        "cohere2_moe",   "muse_glimmer"};
    holds("--compute bf16", names, sizeof(names) / sizeof(names[0]));
}

TEST(vision_encoders_hold)
{
    static const char *const names[] = {"qwen2_5_vl",        "gemma3_vl", "gemma4_vl",
                                        "gemma4_unified_vl", "mistral3",  "internvl",
                                        "smolvlm",           "glm4v_vl",  "glm_ocr_vl"};
    holds("--compute bf16", names, sizeof(names) / sizeof(names[0]));
    holds("--compute f32", names, sizeof(names) / sizeof(names[0]));
}

TEST_MAIN()
