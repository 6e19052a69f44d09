/* The small goldens, on the machine's best kernels and on the reference; and that a golden with one changed
 * number fails. */
#include "run_golden.h"

#include "base/check.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define GOLDENS_MAX 128

/* The goldens of the project: the folders of tests/golden/data that have a model and its numbers. Weights
 * that the build has drawn stay when git removes a folder's other files. */
struct golden_names {
    char name[GOLDENS_MAX][64];
    uint32_t count;
};

static int by_name(const void *x, const void *y)
{
    return strcmp(x, y);
}

static void list_goldens(struct golden_names *ret)
{
    char path[512];
    DIR *d = opendir(GOLDEN_DATA("."));
    assert_non_null(d);
    ret->count = 0;
    for (const struct dirent *f; (f = readdir(d));) {
        snprintf(path, sizeof(path), GOLDEN_DATA("%s/model.safetensors"), f->d_name);
        bool whole = access(path, R_OK) == 0;
        snprintf(path, sizeof(path), GOLDEN_DATA("%s/golden.json"), f->d_name);
        if (!whole || access(path, R_OK) != 0)
            continue;
        assert_true(ret->count < GOLDENS_MAX);
        snprintf(ret->name[ret->count++], sizeof(ret->name[0]), "%.63s", f->d_name);
    }
    closedir(d);
    assert_true(ret->count > 0);
    qsort(ret->name, ret->count, sizeof(ret->name[0]), by_name);
}

/* An image is longer than a chunk of 7. */
static void every_golden_holds(const char *options, const char *chunk)
{
    struct golden_names names;
    char args[1024], said[16384];
    list_goldens(&names);
    for (uint32_t i = 0; i < names.count; i++) {
        const char *vl = strstr(names.name[i], "_vl");
        snprintf(args, sizeof(args), "%s %s " GOLDEN_DATA("%s"), options,
                 chunk ? chunk : (vl ? "--chunk 7" : "--chunk 33"), names.name[i]);
        int status = run_golden(args, said, sizeof(said));
        if (status != 0)
            print_message("%s", said);
        assert_int_equal(status, 0);
        assert_non_null(strstr(said, "the same bits"));
    }
}

/* In all chunks and batches. */
TEST(every_golden_of_the_project_holds)
{
    every_golden_holds("", "");
}

TEST(the_reference_kernels_hold_every_golden)
{
    every_golden_holds("--cpu ref --sequences 2 --batch 2", NULL);
}

TEST(the_avx2_kernels_hold_every_golden)
{
    every_golden_holds("--cpu avx2 --threads 3 --batch 3", NULL);
}

TEST(a_fake_device_holds_every_golden)
{
    every_golden_holds("--device fake --batch 3", NULL);
}

/* One of each kind: shared and none, latent, plain, with biases, beside an MLP, between bounds, in groups. */
TEST(experts_in_the_machine_hold_their_goldens)
{
    static const char *const names[] = {
        "qwen3_5_moe", "gpt_oss", "deepseek_v3_mtp", "nemotron_h_latent", "gemma4", "phimoe",
        "step3p5",     "mixtral", "lfm2_moe",        "granitemoeshared",  "laguna"};
    char args[1024], said[16384];
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        snprintf(args, sizeof(args), "--device fake --experts-cpu --spread --batch 3 " GOLDEN_DATA("%s"),
                 names[i]);
        int status = run_golden(args, said, sizeof(said));
        if (status != 0)
            print_message("%s", said);
        assert_int_equal(status, 0);
        assert_non_null(strstr(said, "experts in the machine"));
        assert_non_null(strstr(said, "the same bits"));
    }
}

static bool has_gpu(void)
{
    char said[4096];
    int status = run_golden("--device cuda:0 " GOLDEN_DATA("llama"), said, sizeof(said));
    if (status == 2 && strstr(said, "cannot open the device"))
        return false;
    assert_int_equal(status, 0);
    return true;
}

TEST(a_gpu_holds_every_golden)
{
    if (!has_gpu()) {
        print_message("skipped: no GPU is here, or the program has no kernels\n");
        skip();
    }
    every_golden_holds("--device cuda:0 --batch 3", NULL);
}

/* Families whose goldens are too large for the project: where a folder of them lies beside the checkout. */
#define GOLDEN_BESIDE PLATEAU_SOURCE_DIR "/../shared/golden/"

TEST(goldens_beside_the_checkout_hold)
{
    static const char *const names[] = {"llama_plain", "mistral",     "qwen2",   "qwen3_moe",
                                        "qwen3_next",  "glm4_moe",    "gpt_oss", "gemma4",
                                        "lfm2",        "deepseek_v3", "bert"};
    static const char *const options[] = {"--spread", "--cpu ref --sequences 2 --chunk 33 --batch 2",
                                          "--spread --device fake"};
    char args[1024];
    if (access(GOLDEN_BESIDE, R_OK) != 0) {
        print_message("no " GOLDEN_BESIDE "\n");
        skip();
    }
    for (size_t i = 0; i < COUNT_OF(names) * COUNT_OF(options); i++) {
        const char *option = options[i % COUNT_OF(options)], *name = names[i / COUNT_OF(options)];
        snprintf(args, sizeof(args), "%s " GOLDEN_BESIDE "%s", option, name);
        golden_holds(args);
    }
}

/* Pooled vectors alone: no text to continue. */
TEST(qwen3_embedding_is_its_golden)
{
    static const char *const devices[] = {"", "--cpu ref ", "--device fake "};
    char args[512], said[16384];
    for (size_t i = 0; i < COUNT_OF(devices); i++) {
        snprintf(args, sizeof(args), "%s" GOLDEN_DATA("qwen3_embedding"), devices[i]);
        assert_int_equal(run_golden(args, said, sizeof(said)), 0);
        assert_non_null(strstr(said, "6 vectors compared"));
        assert_non_null(strstr(said, "0 vectors wrong; in chunks and together: the same bits"));
    }
}

TEST(a_vector_with_one_changed_number_fails)
{
    const char *dir = test_dir();
    json_t *root = json_load_file(GOLDEN_DATA("qwen3_embedding/golden.json"), 0, NULL);
    json_t *vector = json_object_get(json_array_get(json_object_get(root, "embedding"), 2), "vector");
    char args[512], path[256], said[16384];
    json_array_set_new(vector, 7, json_real(json_number_value(json_array_get(vector, 7)) + 1.2e-4));
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    snprintf(args, sizeof(args), "--model %s %s", GOLDEN_DATA("qwen3_embedding"), dir);
    assert_int_equal(run_golden(args, said, sizeof(said)), 1);
    assert_non_null(strstr(said, "1 vectors wrong, the first is number 2"));
}

/* A score by the logits of two tokens, made of a golden's logits. */
TEST(scores_of_answers_hold)
{
    const char *dir = test_dir();
    json_t *llama = json_load_file(GOLDEN_DATA("llama/golden.json"), 0, NULL);
    const json_t *text = json_object_get(llama, "text"), *logits = json_object_get(text, "logits_last");
    double yes = json_number_value(json_array_get(logits, 5));
    double no = json_number_value(json_array_get(logits, 9));
    json_t *ids = json_object_get(text, "prompt");
    json_t *root = json_pack("{s:[{s:O,s:i,s:i,s:f}]}", "rerank", "ids", ids, "yes", 5, "no", 9, "score",
                             1 / (1 + exp(no - yes)));
    char args[512], path[256], said[16384];
    assert_non_null(root);
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    snprintf(args, sizeof(args), "--model %s %s", GOLDEN_DATA("llama"), dir);
    assert_int_equal(run_golden(args, said, sizeof(said)), 0);
    assert_non_null(strstr(said, "1 scores compared"));
    json_object_set_new(json_array_get(json_object_get(root, "rerank"), 0), "yes", json_integer(6));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    assert_int_equal(run_golden(args, said, sizeof(said)), 1);
    assert_non_null(strstr(said, "1 scores wrong"));
    json_decref(root);
    json_decref(llama);
}

TEST(one_worker_and_one_token_at_a_time_hold)
{
    golden_holds("--threads 1 --chunk 1 --batch 2 " GOLDEN_DATA("qwen3_5_moe"));
}

/* A copy of a golden whose number `list`[`index`] is `value`; golden must fail on it and say where. */
static void changed_fails(const char *list, size_t index, json_t *value, const char *says)
{
    const char *dir = test_dir();
    json_t *root = json_load_file(GOLDEN_DATA("qwen3_5/golden.json"), 0, NULL);
    json_t *numbers = json_object_get(json_object_get(root, "text"), list);
    char args[512], path[256], said[16384];
    assert_true(index < json_array_size(numbers));
    assert_int_equal(json_array_set_new(numbers, index, value), 0);
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    snprintf(args, sizeof(args), "--batch 1 --chunk 32 --model %s %s", GOLDEN_DATA("qwen3_5"), dir);
    int status = run_golden(args, said, sizeof(said));
    if (status != 1 || !strstr(said, says))
        print_message("%s", said);
    assert_int_equal(status, 1);
    assert_non_null(strstr(said, says));
    assert_non_null(strstr(said, "1 prompts wrong"));
}

static double number_of(const char *list, size_t index)
{
    json_t *root = json_load_file(GOLDEN_DATA("qwen3_5/golden.json"), 0, NULL);
    double v = json_number_value(json_array_get(json_object_get(json_object_get(root, "text"), list), index));
    json_decref(root);
    return v;
}

TEST(a_golden_with_one_changed_number_fails)
{
    json_int_t token = (json_int_t)number_of("greedy", 17);
    changed_fails("greedy", 17, json_integer((token + 1) % 512), "step 17: token");
    changed_fails("logits_last", 300, json_real(number_of("logits_last", 300) + 1.2e-3),
                  "logit of token 300");
    changed_fails("max_logit", 5, json_real(number_of("max_logit", 5) - 1.2e-3),
                  "position 5: logit of token");
    changed_fails("margin", 9, json_real(number_of("margin", 9) + 3e-3), "position 9: margin");
    changed_fails("argmax", 40, json_integer((json_int_t)(number_of("argmax", 40) + 1) % 512),
                  "position 40: the likeliest token is");
    changed_fails("prompt", 3, json_integer((json_int_t)(number_of("prompt", 3) + 1) % 512), "position 3: ");
}

TEST(keys_and_values_in_other_forms_stay_near)
{
    golden_holds("--kv-dtype bf16 --chunk 40 --batch 3 " GOLDEN_DATA("llama"));
    golden_holds("--kv-dtype int8 --chunk 40 --batch 3 " GOLDEN_DATA("gpt_oss"));
    golden_holds("--kv-dtype bf16 --chunk 40 --batch 3 " GOLDEN_DATA("deepseek_v2"));
    golden_holds("--kv-dtype int8 --device fake " GOLDEN_DATA("gemma3"));
}

TEST(bf16_stays_near)
{
    golden_holds("--compute bf16 --chunk 40 --batch 3 " GOLDEN_DATA("llama"));
    golden_holds("--compute bf16 --chunk 40 --batch 3 " GOLDEN_DATA("qwen3_5_moe"));
    golden_holds("--compute bf16 --device fake " GOLDEN_DATA("deepseek_v2"));
}

TEST(what_cannot_be_run_is_said)
{
    char said[4096];
    assert_int_equal(run_golden("--help", said, sizeof(said)), 0);
    assert_non_null(strstr(said, "usage: golden"));
    assert_int_equal(run_golden("", said, sizeof(said)), 2);
    assert_int_equal(run_golden("--chunk 0 x", said, sizeof(said)), 2);
    assert_int_equal(run_golden("--cpu sse x", said, sizeof(said)), 2);
    assert_int_equal(run_golden("/nonexistent", said, sizeof(said)), 2);
    assert_non_null(strstr(said, "cannot open /nonexistent/golden.json"));
    assert_int_equal(run_golden("--compute fp4 " GOLDEN_DATA("llama"), said, sizeof(said)), 2);
}

TEST_MAIN()
