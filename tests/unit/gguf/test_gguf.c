/* Heads of GGUF files: what they say, and one clear refusal for each way to be wrong. */
#include "test_gguf.h"

#include "base/check.h"
#include "tensor/block_form.h"

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

static int parse(struct gguf *ret, struct err *e)
{
    return gguf_parse(arena(), (struct slice){file.bytes, file.len}, file.len, ret, e);
}

static void opens(struct gguf *ret)
{
    struct err e = {{0}};
    int r = parse(ret, &e);
    if (r < 0)
        print_message("%s\n", e.text);
    assert_int_equal(r, 0);
}

static void refuses(int code, const char *says)
{
    struct gguf g;
    struct err e = {{0}};
    struct arena *a = arena();
    size_t mark = arena_mark(a);
    int r = gguf_parse(a, (struct slice){file.bytes, file.len}, file.len, &g, &e);
    if (r != code || !strstr(e.text, says))
        print_message("gave %d: %s\n", r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, says));
    assert_int_equal(arena_mark(a), mark);
}

/* Metadata of many types, and two tensors. */
static void write_whole(uint32_t version)
{
    test_gguf_begin(&file, version, 2, 9);
    test_gguf_key_text(&file, "general.architecture", "llama");
    test_gguf_key_u32(&file, "llama.block_count", 7);
    test_gguf_key_u16(&file, "split.count", 1);
    test_gguf_key_f32(&file, "eps", 0.5f);
    test_gguf_key(&file, "flag", GGUF_BOOL);
    test_gguf_put(&file, "\1", 1);
    test_gguf_key(&file, "negative", GGUF_I8);
    test_gguf_put(&file, "\xfe", 1);
    test_gguf_list(&file, "words", GGUF_STRING, 3);
    test_gguf_text(&file, "a");
    test_gguf_text(&file, "");
    test_gguf_text(&file, "ccc");
    test_gguf_list(&file, "numbers", GGUF_I32, 2);
    test_gguf_u32(&file, 5);
    test_gguf_u32(&file, UINT32_MAX);
    test_gguf_list(&file, "none", GGUF_F64, 0);
    test_gguf_info(&file, "w", 2, (const uint64_t[]){64, 3}, 2, 0);
    test_gguf_info(&file, "v", 1, (const uint64_t[]){5}, 0, 128);
    test_gguf_data(&file, 32, 148, 7);
}

TEST(both_versions_are_read)
{
    struct gguf g;
    for (uint32_t version = 2; version <= 3; version++) {
        write_whole(version);
        opens(&g);
        assert_int_equal(g.version, version);
        assert_int_equal(g.pair_count, 9);
        assert_int_equal(g.tensor_count, 2);
        const struct gguf_tensor *w = &g.tensors[0], *v = &g.tensors[1];
        assert_true(slice_eq(w->name, SLICE("w")) && slice_eq(v->name, SLICE("v")));
        assert_string_equal(w->form->name, "Q4_0");
        assert_int_equal(w->rank, 2);
        assert_int_equal(w->shape[0], 3);
        assert_int_equal(w->shape[1], 64);
        assert_int_equal(w->bytes, 3 * 2 * 18);
        assert_int_equal(w->offset % 32, 0);
        assert_int_equal(v->offset, w->offset + 128);
        assert_int_equal(v->bytes, 20);
        assert_true(v->offset + v->bytes == file.len);
    }
}

TEST(values_have_their_types)
{
    struct gguf g;
    struct slice s;
    uint64_t n;
    struct gguf_item item;
    write_whole(3);
    opens(&g);
    assert_true(gguf_string(gguf_find(&g, "general.architecture"), &s) && slice_eq(s, SLICE("llama")));
    assert_true(gguf_u64(gguf_find(&g, "llama.block_count"), &n) && n == 7);
    assert_true(gguf_u64(gguf_find(&g, "split.count"), &n) && n == 1);
    assert_false(gguf_u64(gguf_find(&g, "negative"), &n));
    assert_false(gguf_u64(gguf_find(&g, "eps"), &n));
    assert_false(gguf_u64(gguf_find(&g, "numbers"), &n));
    assert_false(gguf_u64(gguf_find(&g, "absent"), &n));
    assert_false(gguf_string(gguf_find(&g, "words"), &s));
    assert_false(gguf_string(gguf_find(&g, "eps"), &s));
    struct gguf_walk one = {.value = gguf_find(&g, "eps")};
    assert_true(gguf_next(&one, &item) && item.kind == GGUF_IS_NUMBER && !item.whole && item.real == 0.5);
    assert_false(gguf_next(&one, &item));
    one = (struct gguf_walk){.value = gguf_find(&g, "flag")};
    assert_true(gguf_next(&one, &item) && item.kind == GGUF_IS_BOOL && item.flag);
    one = (struct gguf_walk){.value = gguf_find(&g, "negative")};
    assert_true(gguf_next(&one, &item) && item.whole && item.number == -2);
}

TEST(lists_are_walked)
{
    struct gguf g;
    struct gguf_item item;
    write_whole(3);
    opens(&g);
    struct gguf_walk words = {.value = gguf_find(&g, "words")};
    assert_true(gguf_next(&words, &item) && slice_eq(item.string, SLICE("a")));
    assert_true(gguf_next(&words, &item) && item.string.len == 0);
    assert_true(gguf_next(&words, &item) && slice_eq(item.string, SLICE("ccc")));
    assert_false(gguf_next(&words, &item));
    struct gguf_walk numbers = {.value = gguf_find(&g, "numbers")};
    assert_true(gguf_next(&numbers, &item) && item.number == 5);
    assert_true(gguf_next(&numbers, &item) && item.number == -1);
    assert_false(gguf_next(&(struct gguf_walk){.value = gguf_find(&g, "none")}, &item));
}

/* A part of a head says that more is needed; a file that ends there says that it is cut. */
TEST(a_file_cut_anywhere_is_refused)
{
    struct gguf g;
    struct err e;
    write_whole(3);
    opens(&g);
    size_t whole = file.len;
    for (size_t len = 0; len < whole; len++) {
        e.text[0] = 0;
        int r = gguf_parse(arena(), (struct slice){file.bytes, len}, whole, &g, &e);
        assert_int_equal(r, len < g.head_bytes ? -EAGAIN : 0);
        assert_true(r == 0 || !e.text[0]);
        if (r == -EAGAIN)
            opens(&g);
        file.len = len;
        refuses(-EINVAL, "");
        file.len = whole;
    }
    file.len = whole - 1;
    refuses(-EINVAL, "tensor v: 20 bytes at 128 do not lie in the file (truncated?)");
    file.len = 40;
    refuses(-EINVAL, "(truncated?)");
}

static void header(uint32_t version, uint64_t tensors, uint64_t pairs)
{
    test_gguf_begin(&file, version, tensors, pairs);
}

TEST(headers_that_are_wrong)
{
    header(3, 0, 0);
    file.bytes[3] = 'X';
    refuses(-EINVAL, "no GGUF file");
    header(1, 0, 0);
    refuses(-ENOTSUP, "GGUF version 1 is not read; 2 and 3 are");
    header(4, 0, 0);
    refuses(-ENOTSUP, "GGUF version 4");
    header(0x03000000, 0, 0);
    refuses(-ENOTSUP, "big-endian");
    header(3, UINT64_MAX, 0);
    refuses(-EINVAL, "tensors are more than 1000000");
    header(3, 0, UINT64_MAX);
    refuses(-EINVAL, "keys of metadata are more than 65536");
    header(3, 1000, 0);
    refuses(-EINVAL, "the file has no room for 1000 tensors");
    header(3, 0, 1000);
    refuses(-EINVAL, "the file has no room for 1000 keys");
}

/* Room for counts that a smaller file would not have. */
static void pad(void)
{
    test_gguf_data(&file, 1, 256, 0);
}

TEST(metadata_that_is_wrong)
{
    header(3, 0, 1);
    test_gguf_key(&file, "k", 13);
    pad();
    refuses(-EINVAL, "metadata k: type 13 is not known");
    header(3, 0, 1);
    test_gguf_list(&file, "k", GGUF_LIST, 1);
    pad();
    refuses(-EINVAL, "metadata k: a list of lists");
    header(3, 0, 1);
    test_gguf_list(&file, "k", 99, 1);
    pad();
    refuses(-EINVAL, "metadata k: type 99");
    header(3, 0, 1);
    test_gguf_list(&file, "k", GGUF_U64, (uint64_t)1 << 61);
    pad();
    refuses(-EINVAL, "metadata k: the list has more values than the file has room for");
    header(3, 0, 1);
    test_gguf_key(&file, "k", GGUF_STRING);
    test_gguf_u64(&file, UINT64_MAX);
    pad();
    refuses(-EINVAL, "the file ends within its head");
    header(3, 0, 1);
    test_gguf_u64(&file, 0);
    pad();
    refuses(-EINVAL, "a key has 1 to 1024 bytes");
    header(3, 0, 2);
    test_gguf_key_u32(&file, "k\n", 1);
    test_gguf_key_u32(&file, "k\n", 1);
    refuses(-EINVAL, "metadata k?: the key occurs twice");
}

static void one_tensor(const char *name, uint32_t rank, const uint64_t *dims, uint32_t type, uint64_t offset)
{
    header(3, 1, 0);
    test_gguf_info(&file, name, rank, dims, type, offset);
    test_gguf_data(&file, 32, 256, 0);
}

TEST(tensors_that_are_wrong)
{
    const uint64_t five[5] = {1, 1, 1, 1, 1}, huge[2] = {(uint64_t)1 << 40, (uint64_t)1 << 40};
    const uint64_t odd[1] = {33}, row[1] = {32}, wide[1] = {UINT64_MAX - 31}, none[2] = {0, UINT64_MAX};
    one_tensor("t", 5, five, 0, 0);
    refuses(-EINVAL, "tensor t: more than 4 dimensions");
    one_tensor("t", 2, huge, 0, 0);
    refuses(-EINVAL, "tensor t: its dimensions overflow");
    one_tensor("t", 1, wide, 0, 0);
    refuses(-EINVAL, "tensor t: its bytes overflow");
    one_tensor("t", 1, odd, 2, 0);
    refuses(-EINVAL, "tensor t: its rows are not a whole number of blocks");
    one_tensor("t", 1, row, 34, 0);
    refuses(-ENOTSUP, "tensor t: the form TQ1_0 is not read");
    one_tensor("t", 1, row, 5, 0);
    refuses(-EINVAL, "tensor t: the form 5 is not known");
    one_tensor("t", 1, row, 0, 8);
    refuses(-EINVAL, "its offset is not a multiple of general.alignment");
    one_tensor("t", 1, row, 0, 256);
    refuses(-EINVAL, "tensor t: 128 bytes at 256 do not lie in the file");
    one_tensor("t", 1, row, 0, UINT64_MAX - 31);
    refuses(-EINVAL, "do not lie in the file");
    one_tensor("", 1, row, 0, 0);
    refuses(-EINVAL, "a name has 1 to 512 bytes");
    struct gguf g;
    one_tensor("t", 2, none, 2, 0);
    opens(&g);
    assert_int_equal(g.tensors[0].bytes, 0);
}

TEST(the_alignment_is_a_power_of_two)
{
    static const uint32_t wrong[] = {0, 48, 1u << 21};
    struct gguf g;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        header(3, 0, 1);
        test_gguf_key_u32(&file, "general.alignment", wrong[i]);
        refuses(-EINVAL, "general.alignment must be a power of two");
    }
    header(3, 1, 1);
    test_gguf_key_u32(&file, "general.alignment", 64);
    test_gguf_info(&file, "t", 1, (const uint64_t[]){2}, 0, 64);
    test_gguf_data(&file, 64, 72, 0);
    opens(&g);
    assert_int_equal(g.tensors[0].offset % 64, 0);
    assert_int_equal(g.tensors[0].offset + 8, file.len);
}

TEST_MAIN()
