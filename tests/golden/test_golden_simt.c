/* Small goldens on a GPU whose kernels run on the CPU (tests/simt): families and vision encoders whose
 * operations no other golden of that device has. `golden_simt` runs any other one. */
#include "run_golden.h"

#include <stdlib.h>

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

#define COUNT(names) (sizeof(names) / sizeof((names)[0]))

/* With PLATEAU_LONG=1 all names, else the first `few`. */
static size_t count_of(size_t all, size_t few)
{
    return getenv("PLATEAU_LONG") ? all : few;
}

TEST(families_hold_in_bf16)
{
    static const char *const names[] = {"mimo_v2_flash",     "phimoe",      "mistral4", "cohere2_moe",
                                        "hunyuan_v1_moe",    "granite_swa", "hy_v3",    "laguna",
                                        "nemotron_h_latent", "muse_glimmer"};
    holds("--compute bf16", names, count_of(COUNT(names), 3));
}

/* The CPU computes between two kernels. */
TEST(experts_in_the_machine_hold)
{
    static const char *const names[] = {"qwen3_5_moe", "gpt_oss", "nemotron_h_latent"};
    holds("--experts-cpu --compute bf16", names, count_of(COUNT(names), 1));
}

TEST(vision_encoders_hold)
{
    static const char *const names[] = {"glm4v_vl", "gemma4_unified_vl", "qwen2_5_vl",
                                        "smolvlm",  "mistral3",          "glm_ocr_vl",
                                        "internvl", "gemma4_vl",         "gemma3_vl"};
    holds("--compute bf16", names, count_of(COUNT(names), 5));
    holds("--compute f32", names, count_of(COUNT(names), 1));
}

TEST_MAIN()
