/* Directories of safetensors files: which files count, which tensor lies where, and refusals. */
#include "model_path.h"
#include "test_files.h"
#include "test_ledger.h"

#include "weights/checkpoint.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>

static struct arena *arena(void)
{
    static struct arena *a;
    if (!a)
        assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 64 << 20}, &a), 0);
    arena_reset(a);
    return a;
}

/* U8 tensors of 4 bytes, all of value `fill`; names separated by blanks. */
static void write_shard(const char *dir, const char *file, const char *names, uint8_t fill)
{
    struct test_tensors *l = calloc(1, sizeof(*l));
    char copy[512];
    snprintf(copy, sizeof(copy), "%s", names);
    for (char *save = NULL, *n = strtok_r(copy, " ", &save); n; n = strtok_r(NULL, " ", &save))
        memset(test_tensor_add(l, n, DTYPE_U8, 1, (const uint64_t[]){4}), fill, 4);
    test_write_tensors(l, dir, file, 0, NULL);
    test_tensors_free(l);
    free(l);
}

static void opens(const char *dir, struct checkpoint **ret)
{
    struct err e = {{0}};
    int r = checkpoint_open_at(arena(), dir, NULL, ret, &e);
    if (r < 0)
        print_message("%s\n", e.text);
    assert_int_equal(r, 0);
}

static void refuses(const char *dir, int code, const char *says)
{
    struct checkpoint *c = NULL;
    struct err e = {{0}};
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    int r = checkpoint_open_at(arena(), dir, account, &c, &e);
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
    assert_int_equal(checkpoint_read(c, &t, 3, &value, 1, NULL), 0);
    return value;
}

TEST(a_single_file_is_read_and_closed)
{
    const char *dir = test_dir();
    struct checkpoint *c;
    struct tensor t;
    write_shard(dir, "model.safetensors", "a b", 7);
    write_shard(dir, "model-00001-of-00002.safetensors", "stray", 1);
    struct account *account = test_account(ACCOUNT_NO_LIMIT);
    assert_int_equal(checkpoint_open_at(arena(), dir, account, &c, NULL), 0);
    assert_int_equal(checkpoint_count(c), 2);
    assert_int_equal(account_numbers(account).reserved, 0);
    assert_true(account_numbers(account).peak > 0); /* the header, while it was parsed */
    assert_true(checkpoint_bytes(c) > 8);
    assert_true(checkpoint_find(c, "b", &t));
    assert_int_equal(t.bytes, 4);
    assert_null(t.data);
    assert_int_equal(value_of(c, "b"), 7);
    assert_false(checkpoint_find(c, "stray", &t));
    assert_null(checkpoint_file_of(c, "stray"));
    assert_string_equal(checkpoint_file_of(c, "a"), "model.safetensors");
    assert_string_equal(checkpoint_name(c, 0), "a");
    checkpoint_close_at();
    checkpoint_close_at();
}

TEST(a_ceiling_refuses_the_header)
{
    const char *dir = test_dir();
    struct checkpoint *c = NULL;
    struct err e = {{0}};
    write_shard(dir, "model.safetensors", "a", 7);
    struct account *account = test_account(16);
    assert_int_equal(checkpoint_open_at(arena(), dir, account, &c, &e), -ENOMEM);
    assert_non_null(strstr(e.text, "model.safetensors: no memory left"));
    assert_int_equal(account_numbers(account).reserved, 0);
}

/* A file with tensors a and b of 4 bytes each, open. */
static const char *open_pair(struct checkpoint **ret)
{
    const char *dir = test_dir();
    write_shard(dir, "model.safetensors", "a b", 7);
    opens(dir, ret);
    assert_int_equal(checkpoint_check(*ret, NULL), 0);
    return dir;
}

TEST(a_file_that_shrinks_while_it_is_read_is_an_error_in_words)
{
    struct checkpoint *c;
    struct tensor a, b;
    struct err e = {{0}};
    char path[128], bytes[4];
    snprintf(path, sizeof(path), "%s/model.safetensors", open_pair(&c));
    assert_true(checkpoint_find(c, "a", &a) && checkpoint_find(c, "b", &b));
    assert_int_equal(truncate(path, (off_t)b.offset + 2), 0);
    assert_int_equal(checkpoint_read(c, &a, 0, bytes, 4, &e), 0);
    assert_int_equal(checkpoint_read(c, &b, 0, bytes, 4, &e), -ESTALE);
    assert_non_null(strstr(e.text, "model.safetensors: became shorter while it was read"));
    assert_int_equal(checkpoint_read(c, &b, 0, bytes, 2, &e), 0);
    assert_int_equal(checkpoint_check(c, &e), -ESTALE);
    assert_non_null(strstr(e.text, "model.safetensors: became shorter while it was read"));
    checkpoint_close_at();
}

TEST(a_file_that_changes_while_it_is_read_is_an_error_and_one_that_is_replaced_is_not)
{
    struct checkpoint *c;
    struct err e = {{0}};
    const char *dir = open_pair(&c);
    char path[128], other[128];
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    snprintf(other, sizeof(other), "%s/other", dir);
    assert_int_equal(rename(path, other), 0);
    write_shard(dir, "model.safetensors", "a", 9);
    assert_int_equal(value_of(c, "b"), 7);
    assert_int_equal(checkpoint_check(c, &e), 0);
    FILE *f = fopen(other, "abe");
    assert_non_null(f);
    assert_int_equal(fputc('x', f), 'x');
    fclose(f);
    assert_int_equal(checkpoint_check(c, &e), -ESTALE);
    assert_non_null(strstr(e.text, "model.safetensors: was changed while it was read"));
    checkpoint_close_at();
}

TEST(what_is_no_file_is_refused_and_not_waited_for)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "model-mtp.safetensors"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *dir = test_dir();
        char path[128], says[128];
        write_shard(dir, "model.safetensors", "a", 1);
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        snprintf(says, sizeof(says), "%s is a pipe, not a regular file", names[i]);
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        refuses(dir, -EINVAL, says);
    }
}

TEST(without_an_index_all_shards_count)
{
    const char *dir = test_dir();
    struct checkpoint *c;
    write_shard(dir, "model-00002-of-00002.safetensors", "b", 2);
    write_shard(dir, "model-00001-of-00002.safetensors", "a", 1);
    write_shard(dir, "other.safetensors", "z", 9);
    opens(dir, &c);
    assert_int_equal(checkpoint_count(c), 2);
    assert_int_equal(value_of(c, "a"), 1);
    assert_int_equal(value_of(c, "b"), 2);
    checkpoint_close_at();
    write_shard(dir, "model-extra.safetensors", "a", 3);
    refuses(dir, -EINVAL, "tensor a occurs twice");
}

TEST(the_index_decides)
{
    const char *dir = test_dir();
    struct checkpoint *c;
    write_shard(dir, "one.safetensors", "a b unlisted", 1);
    write_shard(dir, "two.safetensors", "b c", 2);
    write_shard(dir, "model.safetensors", "z", 9);
    test_write_text(dir, "model.safetensors.index.json",
                    "{\"metadata\":{\"total_size\":12,\"deep\":[[{\"x\":1e3}]]},\"weight_map\":"
                    "{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\",\"c\":\"two.safetensors\"}}");
    opens(dir, &c);
    assert_int_equal(checkpoint_count(c), 3);
    assert_int_equal(value_of(c, "a"), 1);
    assert_int_equal(value_of(c, "b"), 2);
    assert_int_equal(value_of(c, "unlisted"), -1);
    assert_int_equal(value_of(c, "z"), -1);
    assert_string_equal(checkpoint_file_of(c, "c"), "two.safetensors");
    checkpoint_close_at();
}

static void index_is(const char *dir, const char *map)
{
    char text[1024];
    snprintf(text, sizeof(text), "{\"weight_map\":{%s}}", map);
    test_write_text(dir, "model.safetensors.index.json", text);
}

TEST(an_index_stays_in_its_directory_and_tells_the_truth)
{
    const char *dir = test_dir();
    write_shard(dir, "one.safetensors", "a", 1);
    index_is(dir, "\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"");
    refuses(dir, -EINVAL, "one.safetensors lacks tensor b");
    index_is(dir, "\"a\":\"one.safetensors\",\"a\":\"one.safetensors\"");
    refuses(dir, -EINVAL, "tensor a occurs twice");
    index_is(dir, "\"a\":\"../one.safetensors\"");
    refuses(dir, -EINVAL, "is not the name of a file in the directory");
    index_is(dir, "\"a\":\"/etc/passwd\"");
    refuses(dir, -EINVAL, "is not the name of a file in the directory");
    index_is(dir, "\"a\":\"..\"");
    refuses(dir, -EINVAL, "is not the name of a file in the directory");
    index_is(dir, "\"a\":\"gone.safetensors\"");
    refuses(dir, -ENOENT, "gone.safetensors");
    index_is(dir, "\"a\":7");
    refuses(dir, -EINVAL, "index.json is not valid: expected a string");
    test_write_text(dir, "model.safetensors.index.json", "{\"metadata\":{}}");
    refuses(dir, -EINVAL, "no weight_map");
    test_write_text(dir, "model.safetensors.index.json", "{\"weight_map\":");
    refuses(dir, -EINVAL, "index.json is not valid");
}

TEST(the_side_file_adds_what_belongs_to_mtp)
{
    const char *dir = test_dir();
    struct checkpoint *c;
    write_shard(dir, "model.safetensors", "a mtp.fc.weight", 1);
    write_shard(dir, "model-mtp.safetensors", "a mtp.fc.weight mtp.norm.weight language_model.mtp.x z", 2);
    opens(dir, &c);
    assert_int_equal(checkpoint_count(c), 4);
    assert_int_equal(value_of(c, "mtp.fc.weight"), 1);
    assert_int_equal(value_of(c, "mtp.norm.weight"), 2);
    assert_int_equal(value_of(c, "language_model.mtp.x"), 2);
    assert_int_equal(value_of(c, "z"), -1);
    checkpoint_close_at();
    /* mtp/weights.safetensors goes before it; the same beside an index. */
    char sub[128];
    snprintf(sub, sizeof(sub), "%s/mtp", dir);
    assert_int_equal(mkdir(sub, 0700), 0);
    write_shard(sub, "weights.safetensors", "mtp.norm.weight", 3);
    index_is(dir, "\"a\":\"model.safetensors\"");
    opens(dir, &c);
    assert_int_equal(value_of(c, "mtp.norm.weight"), 3);
    assert_int_equal(value_of(c, "language_model.mtp.x"), -1);
    assert_string_equal(checkpoint_file_of(c, "mtp.norm.weight"), "mtp/weights.safetensors");
    checkpoint_close_at();
    /* An index that lists the side file among its shards. */
    index_is(dir, "\"a\":\"model.safetensors\",\"mtp.norm.weight\":\"model-mtp.safetensors\"");
    test_remove_tree(sub);
    opens(dir, &c);
    assert_int_equal(value_of(c, "mtp.norm.weight"), 2);
    assert_int_equal(checkpoint_count(c), 2);
    checkpoint_close_at();
}

TEST(what_cannot_be_read_is_refused_with_its_name)
{
    const char *dir = test_dir();
    refuses("/nonexistent", -ENOENT, "/nonexistent");
    refuses(dir, -ENOENT, "has no model*.safetensors");
    test_write_text(dir, "model.safetensors", "");
    refuses(dir, -EINVAL, "is empty");
    test_write_text(dir, "model.safetensors", "short");
    refuses(dir, -EINVAL, "model.safetensors: 5 bytes are not a safetensors file");
    write_shard(dir, "model.safetensors", "a b", 1);
    char path[128];
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    refuses(dir, -EINVAL, "model.safetensors: tensor b: data_offsets");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refuses(dir, -EINVAL, "not a regular file");
}

TEST(overlapping_and_repeated_tensors_are_refused)
{
    static const char overlap[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                  "\"none\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
                                  "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}";
    static const char twice[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}";
    static const char gap[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
                              "\"none\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]},"
                              "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[7,8]}}";
    const char *const headers[] = {overlap, twice, gap};
    for (int i = 0; i < 3; i++) {
        const char *dir = test_dir();
        char file[512];
        uint64_t n = strlen(headers[i]);
        memcpy(file, &n, 8);
        memcpy(file + 8, headers[i], n);
        memset(file + 8 + n, 5, 8);
        test_write_file(dir, "model.safetensors", file, 16 + n);
        if (i == 2) {
            struct checkpoint *c;
            opens(dir, &c);
            assert_int_equal(checkpoint_count(c), 3);
            checkpoint_close_at();
        } else {
            refuses(dir, -EINVAL, i == 0 ? "tensors a and b overlap" : "tensor a occurs twice");
        }
    }
}

/* Range that the page cache may forget. */
static struct {
    off_t at, len;
    unsigned calls;
} dropped;

int __real_posix_fadvise(int fd, off_t at, off_t len, int advice);
int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice);

int __wrap_posix_fadvise(int fd, off_t at, off_t len, int advice)
{
    if (advice == POSIX_FADV_DONTNEED) {
        dropped.at = at;
        dropped.len = len;
        dropped.calls++;
    }
    return __real_posix_fadvise(fd, at, len, advice);
}

TEST(a_drop_forgets_the_whole_pages_of_a_tensor_and_no_others)
{
    const char *dir = test_dir();
    struct test_tensors *l = calloc(1, sizeof(*l));
    struct checkpoint *c;
    struct tensor big, small;
    off_t page = sysconf(_SC_PAGESIZE);
    test_tensor_add(l, "big", DTYPE_U8, 1, (const uint64_t[]){100000});
    test_tensor_add(l, "small", DTYPE_U8, 1, (const uint64_t[]){100});
    test_write_tensors(l, dir, "model.safetensors", 1, NULL);
    opens(dir, &c);
    assert_true(checkpoint_find(c, "big", &big) && checkpoint_find(c, "small", &small));
    dropped.calls = 0;
    checkpoint_drop(c, &big);
    off_t end = (off_t)(big.offset + big.bytes);
    assert_int_equal(dropped.calls, 1);
    assert_true(dropped.at % page == 0 && dropped.len % page == 0);
    assert_true(dropped.at >= (off_t)big.offset && dropped.at < (off_t)big.offset + page);
    assert_true(dropped.at + dropped.len <= end && dropped.at + dropped.len > end - page);
    checkpoint_drop(c, &small);
    assert_int_equal(dropped.calls, 1);
    checkpoint_close_at();
    test_tensors_free(l);
    free(l);
}

TEST(a_dropped_tensor_can_still_be_read)
{
    const char *dir = test_dir();
    struct test_tensors *l = calloc(1, sizeof(*l));
    struct checkpoint *c;
    struct tensor t, odd;
    memset(test_tensor_add(l, "odd", DTYPE_U8, 1, (const uint64_t[]){3}), 8, 3);
    memset(test_tensor_add(l, "big", DTYPE_U8, 1, (const uint64_t[]){100000}), 9, 100000);
    test_write_tensors(l, dir, "model.safetensors", 1, NULL);
    opens(dir, &c);
    assert_true(checkpoint_find(c, "big", &t) && checkpoint_find(c, "odd", &odd));
    for (int i = 0; i < 2; i++) {
        uint8_t value;
        assert_int_equal(checkpoint_read(c, &t, 99999, &value, 1, NULL), 0);
        assert_int_equal(value, 9);
        assert_int_equal(checkpoint_read(c, &odd, 2, &value, 1, NULL), 0);
        assert_int_equal(value, 8);
        checkpoint_drop(c, &t);
        checkpoint_drop(c, &odd);
    }
    checkpoint_close_at();
    test_tensors_free(l);
    free(l);
}

TEST(too_small_an_arena_is_an_error_not_a_crash)
{
    const char *dir = test_dir();
    struct arena *a;
    struct checkpoint *c = NULL;
    struct err e = {{0}};
    write_shard(dir, "model.safetensors", "a b c", 1);
    /* The table of files alone is larger. */
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = 32768}, &a), 0);
    assert_int_equal(checkpoint_open_at(a, dir, NULL, &c, &e), -ENOMEM);
    assert_true(e.text[0] != 0);
    arena_free(a);
}

TEST_MAIN()
