/* Keys of config.json that nothing reads: the log's text names them, and no other. */
#include "model_path.h"
#include "test_config_read.h"

#include <dirent.h>
#include <jansson.h>

#define NUMBERS                                                                                              \
    "\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"         \
    "\"intermediate_size\":160,\"vocab_size\":512,\"max_position_embeddings\":4096"

static void names(const char *rest, const char *wanted)
{
    char text[1024];
    snprintf(text, sizeof(text), "{" NUMBERS ",%s}", rest);
    assert_string_equal(reads(text).unknown_keys, wanted);
}

TEST(unknown_keys_are_named_wherever_they_stand)
{
    names("\"rms_norm_eps\":1e-5,\"use_cache\":true,\"bos_token_id\":1,\"vision_tower\":1", "");
    names("\"attention_twist\":2", "'attention_twist'");
    names("\"attention_twist\":null", "");
    names("\"a\":2,\"text_config\":{\"b\":1},\"c\":[]", "'b', 'a', 'c'");
    names("\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,\"twist\":3}",
          "'rope_parameters.twist'");
    names("\"rope_scaling\":{\"type\":\"linear\",\"factor\":2,\"twist\":3}", "'rope_scaling.twist'");
    names("\"rope_parameters\":{\"full_attention\":{\"rope_theta\":2,\"twist\":3}}",
          "'rope_parameters.twist'");
    names("\"quantization_config\":{\"quant_method\":\"fp8\",\"twist\":2,\"activation_scheme\":\"static\"}",
          "'quantization.twist'");
    names(
        "\"quantization\":{\"bits\":4,\"group_size\":64,\"model.layers.0\":{\"bits\":8},\"x\":false,\"y\":1}",
        "'quantization.y'");
    /* Experts are nothing to llama. */
    names("\"moe_intermediate_size\":2", "'moe_intermediate_size'");
}

TEST(a_long_list_of_unknown_keys_is_cut)
{
    char text[4096];
    int at = snprintf(text, sizeof(text), "{" NUMBERS);
    for (int i = 0; i < 50; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, ",\"unknown_number_%d\":1", i);
    snprintf(text + at, sizeof(text) - (size_t)at, "}");
    const struct config c = reads(text);
    size_t n = strlen(c.unknown_keys);
    assert_true(n < sizeof(c.unknown_keys) && n > 200);
    assert_string_equal(c.unknown_keys + n - 6, "', ...");
    assert_non_null(strstr(c.unknown_keys, "'unknown_number_9'"));
}

static void all_known(const char *name, const char *text)
{
    const struct config c = reads(text);
    if (c.unknown_keys[0])
        print_message("%s: %s\n", name, c.unknown_keys);
    assert_string_equal(c.unknown_keys, "");
}

/* The fixture has the classes' own defaults: tools/golden/class_configs.py. */
TEST(every_key_of_the_families_classes_is_known)
{
    json_error_t e;
    const char *name;
    json_t *value, *all = json_load_file(PLATEAU_SOURCE_DIR "/tests/unit/data/class_configs.json", 0, &e);
    assert_true(json_object_size(all) > 50);
    json_object_foreach(all, name, value) {
        char *text = json_dumps(value, 0);
        all_known(name, text);
        free(text);
    }
    json_decref(all);
}

TEST(every_key_of_the_goldens_is_known)
{
    static const char folder[] = PLATEAU_SOURCE_DIR "/tests/golden/data";
    struct dirent *d;
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((d = readdir(dir))) {
        char path[512];
        struct config c;
        struct err e = {{0}};
        snprintf(path, sizeof(path), "%s/%s", folder, d->d_name);
        if (d->d_name[0] == '.' || config_load_at(config_arena(), path, &c, &e) < 0)
            continue;
        assert_string_equal(c.unknown_keys, "");
        count++;
    }
    closedir(dir);
    assert_true(count > 40);
}

TEST_MAIN()
