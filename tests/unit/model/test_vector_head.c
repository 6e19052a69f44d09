/* The classifier of a GGUF file: which forms of its rows make a score. */
#include "model_path.h"
#include "test.h"
#include "test_gguf.h"

#include "model/config/config.h"
#include "gguf/gguf_arch.h"
#include "model/family/family.h"
#include "model/vector_head.h"
#include "weights/checkpoint.h"

#include <errno.h>

enum { HIDDEN = 8 };

/* Writes a Qwen3-Reranker: F32 rows of 0, 1, .. and of 2, 4, .. */
static const char *reranker(uint32_t pooling_type, const char *const *labels, uint32_t count)
{
    static struct test_gguf f;
    const uint64_t dims[2] = {HIDDEN, count};
    const char *dir = test_dir();
    test_gguf_begin(&f, 3, 1, 3);
    test_gguf_key_text(&f, "general.architecture", "qwen3");
    test_gguf_key_u32(&f, "qwen3.pooling_type", pooling_type);
    test_gguf_list(&f, "qwen3.classifier.output_labels", GGUF_STRING, count);
    for (uint32_t i = 0; i < count; i++)
        test_gguf_text(&f, labels[i]);
    test_gguf_info(&f, "cls.output.weight", 2, dims, 0, 0);
    test_gguf_data(&f, 32, 0, 0);
    for (uint32_t row = 0; row < count; row++) {
        for (uint32_t k = 0; k < HIDDEN; k++) {
            float v = row == 0 ? (float)k : (float)(2 * k + 2);
            test_gguf_put(&f, &v, sizeof(v));
        }
    }
    test_gguf_data(&f, 32, 0, 0);
    test_write_file(dir, "model.gguf", f.bytes, f.len);
    return dir;
}

static int find(const char *dir, struct arena *a, struct vector_head_source *ret, struct err *e)
{
    struct config c = {.hidden = HIDDEN,
                       .family = family_find("qwen3"),
                       .naming = &gguf_arch_find(NULL, SLICE("qwen3"), false)->naming};
    struct pooling_config pooling;
    struct checkpoint *checkpoint;
    assert_non_null(c.family);
    assert_int_equal(pooling_config_load_at(dir, HIDDEN, &pooling, e), 0);
    assert_int_equal(checkpoint_open_at(a, dir, NULL, &checkpoint, e), 0);
    return vector_head_find(a, model_path_checkpoint, &pooling, &c, checkpoint, "", NULL, ret, e);
}

static struct arena *arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 1 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

TEST(yes_less_no_is_one_score)
{
    static const char *const labels[] = {"yes", "no"};
    struct arena *a = arena();
    struct vector_head_source s;
    struct vector_head h;
    struct err e = {{0}};
    float v[HIDDEN] = {1, 0, 0, 2, 0, 0, 0, 1};
    assert_int_equal(find(reranker(4, labels, 2), a, &s, &e), 0);
    assert_int_equal(s.shape.labels, 1);
    assert_int_equal(vector_head_width(&s.shape, HIDDEN), 1);
    assert_int_equal(vector_head_read(a, &s, &h, &e), 0);
    vector_head_apply(&h, v);
    assert_true(v[0] == (0 - 2) + 2 * (3 - 8) + (7 - 16));
}

TEST(other_labels_are_refused)
{
    static const char *const turned[] = {"no", "yes"}, *const three[] = {"yes", "no", "perhaps"};
    static const struct {
        uint32_t kind;
        const char *const *labels;
        uint32_t count;
    } cases[] = {{4, turned, 2}, {4, three, 3}, {4, three + 1, 2}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct arena *a = arena();
        struct vector_head_source s;
        struct err e = {{0}};
        assert_int_equal(find(reranker(cases[i].kind, cases[i].labels, cases[i].count), a, &s, &e), -ENOTSUP);
        assert_non_null(strstr(e.text, "cls.output.weight"));
    }
}

TEST_MAIN()
