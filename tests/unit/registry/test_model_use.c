/* Kind of a model by the files of its directory. */
#include "model_path.h"
#include "test_files.h"

#include "registry/model_settings.h"
#include "registry/model_use.h"
#include "tokenizer/tokenizer.h"

#define EMBEDDING PLATEAU_SOURCE_DIR "/tests/golden/data/qwen3_embedding"
#define CANARY    PLATEAU_SOURCE_DIR "/models/canary"

static struct arena *new_arena(void)
{
    struct arena *a;
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 256 << 20}, &a), 0);
    return a;
}

static struct model_use use_of(const char *dir, const char *id, bool embeddings, bool tokenizer)
{
    static struct model_settings s;
    struct arena *a = new_arena();
    struct tokenizer *t = NULL;
    struct model_use ret = {0};
    struct model_shape shape;
    struct err e = {{0}};
    assert_int_equal(model_probe_at(dir, NULL, &shape, &e), 0);
    s = (struct model_settings){.options.embeddings = embeddings};
    snprintf(s.dir, sizeof(s.dir), "%s", dir);
    snprintf(s.id, sizeof(s.id), "%s", id);
    if (tokenizer)
        assert_int_equal(tokenizer_load_at(a, dir, &t, &e), 0);
    struct model_files *files;
    if (model_files_open(dir, &files, &e) < 0 || model_use_load(&s, files, &shape, t, a, &ret, &e) < 0)
        fail_msg("%s", e.text);
    model_files_close(files);
    arena_free(a);
    return ret;
}

TEST(a_pooling_makes_an_embedding_model)
{
    struct model_use u = use_of(EMBEDDING, "m", false, false);
    assert_true(u.kind == MODEL_EMBEDS && u.vectors && !u.texts && !u.scores);
    assert_true(u.pooling.kind == POOLING_LAST && u.pooling.normalize);
    u = use_of(EMBEDDING, "m", true, false);
    assert_true(u.kind == MODEL_EMBEDS && !u.texts && !u.scores);
}

TEST(a_generator_serves_vectors_when_told_to)
{
    struct model_use u = use_of(CANARY, "canary", false, true);
    assert_true(u.kind == MODEL_GENERATES && u.texts && !u.vectors && !u.scores);
    u = use_of(CANARY, "canary", true, true);
    assert_true(u.kind == MODEL_GENERATES && u.texts && u.vectors && u.scores && u.yes != u.no);
    assert_true(u.pooling.kind == POOLING_LAST && u.pooling.normalize && !u.pooling.cuts);
    u = use_of(CANARY, "canary", true, false);
    assert_true(u.vectors && !u.scores);
}

TEST(a_name_makes_a_reranker)
{
    struct model_use u = use_of(CANARY, "Qwen3-Reranker-0.6B", false, true);
    assert_true(u.kind == MODEL_RERANKS && u.texts && !u.vectors && u.scores);
}

TEST_MAIN()
