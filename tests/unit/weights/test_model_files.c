/* Kinds of paths, and files that are replaced or renamed while a model is open. */
#include "model_path.h"
#include "test_files.h"
#include "test_gguf.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "gguf/gguf_head.h"
#include "weights/model_fingerprint.h"

#include <errno.h>

static const char *join(const char *dir, const char *name)
{
    static char paths[4][512];
    static unsigned at;
    char *path = paths[at++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static void write_gguf(const char *dir, const char *name, const char *arch)
{
    static struct test_gguf file;
    test_gguf_begin(&file, 3, 0, 1);
    test_gguf_key_text(&file, "general.architecture", arch);
    test_write_file(dir, name, file.bytes, file.len);
}

static struct model_files *opened(const char *path)
{
    struct model_files *f = NULL;
    struct err e = {{0}};
    if (model_files_open(path, &f, &e) < 0)
        fail_msg("%s", e.text);
    return f;
}

static void refuses(const char *path, int code, const char *says)
{
    struct model_files *f = NULL;
    struct err e = {{0}};
    int r = model_files_open(path, &f, &e);
    if (r != code || !strstr(e.text, says))
        fail_msg("gave %d: %s", r, e.text);
    assert_null(f);
}

static void has_text(struct model_files *f, const char *name, const char *text)
{
    struct small_file s = {0};
    struct err e = {{0}};
    if (model_files_text(f, name, 4096, &s, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(s.bytes, text);
    small_file_done(&s);
}

static void has_architecture(struct model_files *f, const char *name)
{
    struct gguf_head h = GGUF_HEAD_NONE;
    struct slice text;
    assert_int_equal(model_files_head(f, NULL, &h, NULL), 0);
    assert_true(gguf_string(gguf_find(&h.head, "general.architecture"), &text));
    assert_true(slice_eq(text, slice_of(name)));
    gguf_head_done(&h);
}

TEST(a_path_is_decided_once)
{
    const char *dir = test_dir();
    refuses(join(dir, "absent"), -ENOENT, "absent");
    test_write_text(dir, "notes.txt", "no model");
    refuses(join(dir, "notes.txt"), -ENOTDIR, "notes.txt");
    refuses(join(dir, "notes.txt/config.json"), -ENOTDIR, "config.json");
    write_gguf(dir, "m.gguf", "llama");
    struct model_files *f = opened(join(dir, "m.gguf"));
    assert_true(model_files_is_view(f) && !model_files_is_directory(f) && !model_files_bundle(f));
    assert_int_equal(model_files_part_count(f), 1);
    model_files_close(f);
    f = opened(dir);
    assert_true(model_files_is_view(f) && model_files_is_directory(f));
    model_files_close(f);
    test_write_text(dir, "m.safetensors", "");
    f = opened(dir);
    assert_false(model_files_is_view(f));
    model_files_close(f);
    model_files_close(NULL);
}

TEST(a_file_outside_the_folder_is_refused)
{
    const struct regular_file *file;
    struct err e = {{0}};
    const char *dir = test_dir();
    test_write_file(dir, "config.json", "{}", 2);
    test_write_file(dir, "other", "x", 1);
    struct model_files *f = opened(dir);
    assert_int_equal(model_files_file(f, "config.json", &file, &e), 0);
    assert_int_equal(model_files_file(f, join(dir, "other"), &file, &e), -EINVAL);
    assert_non_null(strstr(e.text, "only a vision encoder may lie outside the model's folder"));
    model_files_close(f);
}

TEST(a_file_that_is_replaced_stays_the_one_that_was_opened)
{
    const char *dir = test_dir();
    test_write_text(dir, "config.json", "old");
    test_write_text(dir, "new", "new");
    struct model_files *f = opened(dir);
    has_text(f, "config.json", "old");
    assert_int_equal(rename(join(dir, "new"), join(dir, "config.json")), 0);
    has_text(f, "config.json", "old");
    model_files_close(f);
    f = opened(dir);
    has_text(f, "config.json", "new");
    model_files_close(f);
}

TEST(a_directory_that_is_renamed_stays_the_one_that_was_opened)
{
    const char *dir = test_dir();
    char before[512], after[512];
    snprintf(before, sizeof(before), "%s", join(dir, "a"));
    snprintf(after, sizeof(after), "%s", join(dir, "b"));
    assert_int_equal(mkdir(before, 0755), 0);
    test_write_text(before, "config.json", "of a");
    struct model_files *f = opened(before);
    assert_int_equal(rename(before, after), 0);
    assert_int_equal(mkdir(before, 0755), 0);
    test_write_text(before, "config.json", "of another");
    has_text(f, "config.json", "of a");
    assert_false(model_files_has(f, "tokenizer.json"));
    model_files_close(f);
}

TEST(a_gguf_file_is_opened_once)
{
    const char *dir = test_dir();
    uint8_t before[MODEL_FINGERPRINT_BYTES], after[MODEL_FINGERPRINT_BYTES];
    write_gguf(dir, "m.gguf", "llama");
    write_gguf(dir, "new", "qwen3");
    struct model_files *f = opened(join(dir, "m.gguf"));
    assert_int_equal(model_fingerprint(f, before, NULL), 0);
    assert_int_equal(rename(join(dir, "new"), join(dir, "m.gguf")), 0);
    has_architecture(f, "llama");
    assert_int_equal(model_fingerprint(f, after, NULL), 0);
    assert_memory_equal(before, after, sizeof(before));
    model_files_close(f);
    f = opened(join(dir, "m.gguf"));
    has_architecture(f, "qwen3");
    model_files_close(f);
}

TEST(a_gguf_model_is_its_metadata_and_no_file_beside_it)
{
    const char *dir = test_dir();
    struct small_file s = {0};
    struct err e = {{0}};
    write_gguf(dir, "m.gguf", "llama");
    test_write_text(dir, "chat_template.jinja", "beside");
    struct model_files *f = opened(dir);
    assert_int_equal(model_files_text(f, "chat_template.jinja", 4096, &s, &e), -ENOENT);
    model_files_close(f);
}

TEST_MAIN()
