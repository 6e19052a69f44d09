/* Canary, the bundled model: 24 prompts of up to 1953 tokens, alone and together. Prompts in chunks and
 * batches, and with drafts, take long: each prompt is in one variant, and each variant has long and short
 * ones. `golden` without --spread runs all of them. */
#include "run_golden.h"

TEST(canary_in_8_bits_is_its_golden)
{
    golden_holds("--compute f32 --spread --model " PLATEAU_SOURCE_DIR
                 "/models/canary " GOLDEN_DATA("canary-8bit"));
}

/* In int16, which a quantised model computes in by itself. */
TEST(canary_in_whole_numbers_is_its_golden)
{
    golden_holds("--spread --chunk 64 --batch 8 --model " PLATEAU_SOURCE_DIR
                 "/models/canary " GOLDEN_DATA("canary-8bit"));
}

/* The checkpoint that Canary was quantised from is too large to be bundled. */
TEST(canary_in_bf16_is_its_golden)
{
    const char *model = PLATEAU_SOURCE_DIR "/../shared/models/canary";
    const char *golden = PLATEAU_SOURCE_DIR "/../shared/golden/canary";
    char args[1024];
    if (access(model, R_OK) != 0 || access(golden, R_OK) != 0) {
        print_message("skipped: the BF16 checkpoint is not beside this checkout\n");
        skip();
    }
    snprintf(args, sizeof(args), "--spread --chunk 64 --batch 8 --model %s %s", model, golden);
    golden_holds(args);
}

TEST_MAIN()
