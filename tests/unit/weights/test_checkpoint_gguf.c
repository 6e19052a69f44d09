/* GGUF models as checkpoints: which files make one, which tensor lies where, and refusals. */
#include "model_path.h"
#include "test_gguf.h"
#include "test_ledger.h"

#include "weights/checkpoint.h"
#include "gguf/gguf.h"

#include "base/check.h"

#include <errno.h>

static struct test_gguf file;

static struct arena *arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

static void save(const char *dir, const char *name)
{
    test_write_file(dir, name, file.bytes, file.len);
}

/* Tensors a (two rows of Q8_0) and b (8 values of F32), all bytes `fill`. */
static void write_pair(const char *dir, const char *name, int fill)
{
    test_gguf_begin(&file, 3, 2, 1);
    test_gguf_key_text(&file, "general.architecture", "llama");
    test_gguf_info(&file, "a", 2, (const uint64_t[]){32, 2}, 8, 0);
    test_gguf_info(&file, "b", 1, (const uint64_t[]){8}, 0, 96);
    test_gguf_data(&file, 32, 128, fill);
    save(dir, name);
}

/* Metadata of a part. */
struct part {
    const char *file, *tensor;
    uint16_t no, count;
    int32_t tensors;
    int fill;
};

static void write_part(const char *dir, const struct part *p)
{
    test_gguf_begin(&file, 3, 1, 3);
    test_gguf_key_u16(&file, "split.no", p->no);
    test_gguf_key_u16(&file, "split.count", p->count);
    test_gguf_key(&file, "split.tensors.count", GGUF_I32);
    test_gguf_u32(&file, (uint32_t)p->tensors);
    test_gguf_info(&file, p->tensor, 1, (const uint64_t[]){4}, 0, 0);
    test_gguf_data(&file, 32, 16, p->fill);
    save(dir, p->file);
}

static void opens(const char *path, struct checkpoint **ret)
{
    struct err e = {{0}};
    int r = checkpoint_open_at(arena(), path, NULL, ret, &e);
    if (r < 0)
        print_message("%s\n", e.text);
    assert_int_equal(r, 0);
}

static void refuses(const char *path, int code, const char *says)
{
    struct checkpoint *c = NULL;
    struct err e = {{0}};
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    int r = checkpoint_open_at(arena(), path, account, &c, &e);
    if (r != code || !strstr(e.text, says))
        print_message("gave %d: %s\n", r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
    assert_null(c);
    assert_int_equal(account_numbers(account).reserved, 0);
}

static int value_of(const struct checkpoint *c, const char *name)
{
    struct tensor t;
    uint8_t value;
    if (!checkpoint_find(c, name, &t))
        return -1;
    assert_int_equal(checkpoint_read(c, &t, t.bytes - 1, &value, 1, NULL), 0);
    return value;
}

static bool is_gguf(const char *path)
{
    struct model_files *f = NULL;
    const bool is = model_files_open(path, &f, NULL) == 0 && model_files_is_view(f);
    model_files_close(f);
    return is;
}

static const char *join(const char *dir, const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

TEST(a_file_is_read_and_closed)
{
    const char *dir = test_dir();
    struct checkpoint *c;
    struct tensor t;
    write_pair(dir, "m.gguf", 7);
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    assert_int_equal(checkpoint_open_at(arena(), join(dir, "m.gguf"), account, &c, NULL), 0);
    assert_int_equal(account_numbers(account).reserved, 0);
    assert_true(account_numbers(account).peak > 0); /* the head, while it was parsed */
    assert_int_equal(checkpoint_count(c), 2);
    assert_int_equal(checkpoint_bytes(c), file.len);
    assert_true(checkpoint_find(c, "a", &t));
    assert_int_equal(t.dtype, DTYPE_BLOCKS);
    assert_string_equal(tensor_form_name(&t), "Q8_0");
    assert_int_equal(t.shape[0], 2);
    assert_int_equal(t.shape[1], 32);
    assert_int_equal(t.bytes, 68);
    assert_true(checkpoint_find(c, "b", &t));
    assert_int_equal(t.dtype, DTYPE_F32);
    assert_null(t.form);
    assert_int_equal(value_of(c, "a"), 7);
    assert_int_equal(value_of(c, "b"), 7);
    assert_int_equal(value_of(c, "c"), -1);
    assert_string_equal(checkpoint_file_of(c, "a"), "m.gguf");
    checkpoint_ahead(c, &t);
    checkpoint_drop(c, &t);
    assert_int_equal(checkpoint_check(c, NULL), 0);
    write_pair(dir, "m.gguf", 8);
    assert_int_equal(checkpoint_check(c, NULL), -ESTALE);
    checkpoint_close_at();
}

TEST(a_directory_holds_one_model)
{
    const char *dir = test_dir();
    struct checkpoint *c;
    assert_false(is_gguf(dir));
    write_pair(dir, "mmproj-m.gguf", 1);
    assert_false(is_gguf(dir));
    write_pair(dir, "m.gguf", 7);
    assert_true(is_gguf(dir));
    opens(dir, &c);
    assert_int_equal(value_of(c, "a"), 7);
    checkpoint_close_at();
    test_write_text(dir, "config.json", "{}");
    assert_true(is_gguf(dir));
    write_pair(dir, "n.gguf", 8);
    refuses(dir, -EINVAL, "holds more than one GGUF model, m.gguf and n.gguf among them: name a file");
    opens(join(dir, "n.gguf"), &c);
    assert_int_equal(value_of(c, "a"), 8);
    checkpoint_close_at();
    test_write_text(dir, "m.safetensors", "");
    assert_false(is_gguf(dir));
    refuses(dir, -ENOENT, "has no model*.safetensors");
}

TEST(files_that_are_not_there)
{
    const char *dir = test_dir();
    refuses(join(dir, "m.gguf"), -ENOENT, "m.gguf");
    test_write_text(dir, "m.gguf", "");
    refuses(join(dir, "m.gguf"), -EINVAL, "m.gguf: the file ends within its head");
    test_write_text(dir, "m.gguf", "no weights, but long enough");
    refuses(join(dir, "m.gguf"), -EINVAL, "m.gguf: no GGUF file");
}

static const struct part right[3] = {{"m-00001-of-00003.gguf", "a", 0, 3, 3, 1},
                                     {"m-00002-of-00003.gguf", "b", 1, 3, 3, 2},
                                     {"m-00003-of-00003.gguf", "c", 2, 3, 3, 3}};

static const char *write_right(void)
{
    const char *dir = test_dir();
    for (size_t i = 0; i < COUNT_OF(right); i++)
        write_part(dir, &right[i]);
    return dir;
}

TEST(parts_are_one_model)
{
    const char *dir = write_right();
    const char *paths[2] = {dir, join(dir, right[0].file)};
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        struct checkpoint *c;
        opens(paths[i], &c);
        assert_int_equal(checkpoint_count(c), 3);
        assert_int_equal(value_of(c, "a"), 1);
        assert_int_equal(value_of(c, "b"), 2);
        assert_int_equal(value_of(c, "c"), 3);
        assert_string_equal(checkpoint_file_of(c, "c"), right[2].file);
        checkpoint_close_at();
    }
}

/* One part is replaced by a wrong one of the same file name. */
static void refuses_part(const struct part *wrong, int code, const char *says)
{
    const char *dir = write_right();
    write_part(dir, wrong);
    refuses(dir, code, says);
}

TEST(parts_that_do_not_fit)
{
    refuses_part(&(struct part){right[1].file, "b", 2, 3, 3, 2}, -EINVAL, "says that it is part 3 of 3");
    refuses_part(&(struct part){right[1].file, "b", 1, 4, 3, 2}, -EINVAL, "says that it is part 2 of 4");
    refuses_part(&(struct part){right[0].file, "a", 0, 3, 9, 2}, -EINVAL,
                 "its parts have 3 tensors, split.tensors.count is 9");
    refuses_part(&(struct part){right[0].file, "a", 0, 2, 3, 2}, -EINVAL, "is one of 2 parts");
    refuses_part(&(struct part){right[0].file, "a", 0, 60000, 3, 2}, -EINVAL,
                 "60000 parts are more than 4096");
    refuses_part(&(struct part){right[2].file, "a", 2, 3, 3, 2}, -EINVAL, "tensor a occurs twice");
    const char *dir = write_right();
    refuses(join(dir, right[1].file), -EINVAL, "is not the first of its parts");
    assert_int_equal(unlink(join(dir, right[2].file)), 0);
    refuses(dir, -ENOENT, right[2].file);
    assert_int_equal(unlink(join(dir, right[0].file)), 0);
    refuses(dir, -EINVAL, "is not the first of its parts");
}

TEST(tensors_must_not_overlap)
{
    const char *dir = test_dir();
    test_gguf_begin(&file, 3, 2, 0);
    test_gguf_info(&file, "a", 1, (const uint64_t[]){16}, 0, 0);
    test_gguf_info(&file, "b", 1, (const uint64_t[]){8}, 0, 32);
    test_gguf_data(&file, 32, 64, 0);
    save(dir, "m.gguf");
    refuses(dir, -EINVAL, "m.gguf: tensors a and b overlap");
}

/* A head of over 1 MiB takes more than one read. */
TEST(a_long_head_is_read_whole)
{
    static const char line[] = "a word of the vocabulary";
    const char *dir = test_dir();
    struct checkpoint *c;
    char path[512];
    enum { WORDS = 100000 };
    test_gguf_begin(&file, 3, 1, 1);
    test_gguf_list(&file, "words", GGUF_STRING, WORDS);
    snprintf(path, sizeof(path), "%s/m.gguf", dir);
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    assert_int_equal(fwrite(file.bytes, 1, file.len, f), file.len);
    file.len = 0;
    test_gguf_text(&file, line);
    for (int i = 0; i < WORDS; i++)
        assert_int_equal(fwrite(file.bytes, 1, file.len, f), file.len);
    /* The data is all fives, padding too. */
    file.len = 0;
    test_gguf_info(&file, "a", 1, (const uint64_t[]){4}, 0, 0);
    test_gguf_data(&file, 1, 64, 5);
    assert_int_equal(fwrite(file.bytes, 1, file.len, f), file.len);
    assert_int_equal(fclose(f), 0);
    opens(dir, &c);
    assert_int_equal(value_of(c, "a"), 5);
    checkpoint_close_at();
}

TEST_MAIN()
