/* The pooling of a sentence-transformers directory, and its arithmetic. */
#include "model_path.h"
#include "test.h"
#include "test_files.h"

#include "model/config/pooling.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char transformer[] =
    "{\"idx\":0,\"path\":\"\",\"type\":\"sentence_transformers.models.Transformer\"}";
static const char pooling[] =
    "{\"idx\":1,\"path\":\"1_Pooling\",\"type\":\"sentence_transformers.models.Pooling\"}";
static const char normalize[] =
    "{\"idx\":2,\"path\":\"2_N\",\"type\":\"sentence_transformers.models.Normalize\"}";

static void put(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A directory with these modules, and what it loads as. */
static int load(const char *modules, const char *mode, const char *config, struct pooling_config *ret,
                struct err *e)
{
    const char *dir = test_dir();
    char folder[512];
    snprintf(folder, sizeof(folder), "%s/1_Pooling", dir);
    mkdir(folder, 0700);
    put(dir, "modules.json", modules);
    put(dir, "config.json", config);
    put(dir, "1_Pooling/config.json", mode);
    *e = (struct err){{0}};
    return pooling_config_load_at(dir, 64, ret, e);
}

static const char *modules_of(const char *a, const char *b, const char *c)
{
    static char text[1024];
    snprintf(text, sizeof(text), "[%s%s%s%s%s]", a, b ? "," : "", b ? b : "", c ? "," : "", c ? c : "");
    return text;
}

TEST(each_pooling_mode_is_read)
{
    struct pooling_config c;
    struct err e;
    assert_int_equal(
        load(modules_of(transformer, pooling, normalize), "{\"pooling_mode_lasttoken\":true}", "{}", &c, &e),
        0);
    assert_int_equal(c.kind, POOLING_LAST);
    assert_true(c.normalize && !c.cuts);
    assert_int_equal(load(modules_of(transformer, pooling, NULL),
                          "{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":false}",
                          "{\"matryoshka_dimensions\":[16,32]}", &c, &e),
                     0);
    assert_int_equal(c.kind, POOLING_MEAN);
    assert_true(!c.normalize && c.cuts && c.dimension_count == 2 && c.dimensions[1] == 32);
    assert_int_equal(load(modules_of(transformer, pooling, NULL), "{\"pooling_mode_cls_token\":true}",
                          "{\"is_matryoshka\":true}", &c, &e),
                     0);
    assert_true(c.kind == POOLING_CLS && c.cuts && c.dimension_count == 0);
    assert_int_equal(load(modules_of(transformer, pooling, "{\"path\":\"2_Dense\",\"type\":\"a.Dense\"}"),
                          "{\"pooling_mode\":\"mean\"}", "{}", &c, &e),
                     0);
    assert_true(c.kind == POOLING_MEAN && c.dense_count == 1 && !c.normalize);
    assert_string_equal(c.dense[0], "2_Dense");
}

TEST(what_is_not_computed_is_refused)
{
    struct pooling_config c;
    struct err e;
    assert_int_equal(
        load(modules_of(transformer, pooling, NULL), "{\"pooling_mode_max_tokens\":true}", "{}", &c, &e),
        -ENOTSUP);
    assert_int_equal(load(modules_of(transformer, pooling, NULL), "{}", "{}", &c, &e), -ENOTSUP);
    assert_int_equal(load(modules_of(transformer, pooling, NULL),
                          "{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":true}", "{}", &c,
                          &e),
                     -ENOTSUP);
    assert_int_equal(load(modules_of(transformer, pooling, "{\"path\":\"2\",\"type\":\"a.LayerNorm\"}"),
                          "{\"pooling_mode_cls_token\":true}", "{}", &c, &e),
                     -ENOTSUP);
    assert_non_null(strstr(e.text, "LayerNorm"));
    assert_int_equal(load(modules_of(transformer, "{\"path\":\"2\",\"type\":\"a.Dense\"}", pooling),
                          "{\"pooling_mode_cls_token\":true}", "{}", &c, &e),
                     -ENOTSUP);
    assert_int_equal(load(modules_of(transformer, pooling, "{\"path\":\"../2\",\"type\":\"a.Dense\"}"),
                          "{\"pooling_mode_cls_token\":true}", "{}", &c, &e),
                     -EINVAL);
    assert_int_equal(load(modules_of(transformer, pooling, NULL), "{\"pooling_mode\":\"max\"}", "{}", &c, &e),
                     -ENOTSUP);
    assert_int_equal(load("{}", "{}", "{}", &c, &e), -EINVAL);
    assert_int_equal(load("[", "{}", "{}", &c, &e), -EINVAL);
    assert_int_equal(load(modules_of("{\"path\":\"\"}", NULL, NULL), "{}", "{}", &c, &e), -EINVAL);
    assert_int_equal(
        load(modules_of(transformer, "{\"path\":\"../x\",\"type\":\"Pooling\"}", NULL), "{}", "{}", &c, &e),
        -EINVAL);
}

TEST(a_directory_without_modules_has_no_pooling)
{
    struct pooling_config c = {.kind = POOLING_CLS};
    struct err e = {{0}};
    assert_int_equal(pooling_config_load_at(test_dir(), 64, &c, &e), 0);
    assert_int_equal(c.kind, POOLING_NONE);
}

TEST(pieces_change_no_bit)
{
    enum { WIDTH = 5, ROWS = 37 };
    static const enum pooling kinds[] = {POOLING_LAST, POOLING_MEAN, POOLING_CLS};
    float rows[ROWS * WIDTH], whole[WIDTH], cut[WIDTH] = {1};
    for (uint32_t i = 0; i < ROWS * WIDTH; i++)
        rows[i] = (float)(i * 2654435761u % 1000) / 7 - 60;
    for (uint32_t k = 0; k < 3; k++) {
        pooling_take(kinds[k], whole, WIDTH, rows, 0, ROWS);
        pooling_end(kinds[k], whole, WIDTH, ROWS);
        for (uint32_t piece = 1; piece < ROWS; piece++) {
            for (uint32_t at = 0; at < ROWS; at += piece)
                pooling_take(kinds[k], cut, WIDTH, rows + at * WIDTH, at,
                             ROWS - at < piece ? ROWS - at : piece);
            pooling_end(kinds[k], cut, WIDTH, ROWS);
            assert_memory_equal(whole, cut, sizeof(whole));
        }
    }
    assert_memory_equal(whole, rows, sizeof(whole)); /* cls */
}

TEST(a_normalized_vector_has_length_one)
{
    float v[3] = {3, 0, -4}, zeros[2] = {0, 0};
    pooling_normalize(v, 3);
    assert_true(fabsf(v[0] - 0.6f) < 1e-7f && v[1] == 0 && fabsf(v[2] + 0.8f) < 1e-7f);
    pooling_normalize(zeros, 2);
    assert_true(zeros[0] == 0 && zeros[1] == 0);
}

TEST_MAIN()
