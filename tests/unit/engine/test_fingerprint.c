/* Which bytes of a model's files decide its fingerprint: the chain of pieces, computed a second time here. */
#include "test_files.h"

#include "engine/fingerprint.h"

#include "base/check.h"
#include "cache/prefix_key.h"
#include "model/model.h"
#include "store/store_file.h"
#include "weights/model_files.h"
#include "weights/model_fingerprint.h"

#include <errno.h>
#include <fcntl.h>

#define PIECE  (256u << 10)
#define SAMPLE 4096u

/* ---- the chain ---- */

struct chain {
    struct prefix_key key;
};

static struct chain chain_begin(void)
{
    return (struct chain){0};
}

static void chain_add(struct chain *c, const void *bytes, size_t len)
{
    struct slice parts[] = {{(const char *)c->key.bytes, sizeof(c->key.bytes)}, {bytes, len}};
    c->key = prefix_key_root(parts, COUNT_OF(parts));
}

/* len bytes of a file of `size` bytes, in pieces; an empty piece says that the file ended before. */
static void chain_range(struct chain *c, const char *bytes, size_t size, size_t from, size_t len)
{
    size_t end = MIN_OF(from + len, size);
    for (size_t at = from; at < end; at += PIECE)
        chain_add(c, bytes + at, MIN_OF(end - at, (size_t)PIECE));
    if (from + len > size)
        chain_add(c, "", 0);
}

static void chain_weights(struct chain *c, const char *dir, const char *name, uint64_t header)
{
    size_t size;
    char *bytes = test_read_file(dir, name, &size);
    header = MIN_OF(header, size);
    uint64_t numbers[] = {size, header};
    chain_add(c, name, strlen(name));
    chain_add(c, numbers, sizeof(numbers));
    chain_range(c, bytes, size, 0, header);
    for (uint32_t i = 0; i < MODEL_FINGERPRINT_SAMPLES; i++)
        chain_range(c, bytes, size, header + (size - header) / MODEL_FINGERPRINT_SAMPLES * i, SAMPLE);
    free(bytes);
}

static void chain_config(struct chain *c, const char *dir, const char *name)
{
    size_t size;
    char *bytes = test_read_file(dir, name, &size);
    chain_range(c, bytes, size, 0, 4 << 20);
    free(bytes);
}

static void expect_chain(struct chain *c, const struct store_identity *of)
{
    assert_memory_equal(c->key.bytes, of->fingerprint, sizeof(of->fingerprint));
}

/* ---- models ---- */

static const struct model_shape shape = {
    .compute = COMPUTE_INT8, .groups = {{.page_bytes = 4096}}, .group_count = 1, .state_bytes = 192};

static struct fingerprint_opts opts;

static int make(const char *dir, const struct model_shape *of, unsigned cpu_flags, struct store_identity *ret,
                struct err *e)
{
    struct model_files *files = NULL;
    int r = model_files_open(dir, &files, e);
    if (r == 0)
        r = fingerprint_make(files, of, cpu_flags, &opts, ret, e);
    model_files_close(files);
    return r;
}

static struct store_identity made(const char *dir)
{
    struct store_identity id;
    struct err e = {0};
    assert_int_equal(make(dir, &shape, 0x15, &id, &e), 0);
    return id;
}

static int refused(const char *dir)
{
    struct store_identity id;
    struct err e = {0};
    return make(dir, &shape, 0x15, &id, &e);
}

/* A file of counted-up bytes whose first eight say how long its header is. */
static void write_weights(const char *dir, const char *name, uint64_t header, size_t size)
{
    char *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 7 + (i >> 9));
    memcpy(bytes, &header, MIN_OF(size, sizeof(header)));
    test_write_file(dir, name, bytes, size);
    free(bytes);
}

static const char *model_dir(void)
{
    const char *dir = test_dir();
    test_write_text(dir, "config.json", "{\"model_type\": \"qwen3\"}");
    return dir;
}

static void change_byte(const char *dir, const char *name, long at)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "r+be");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int was = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fputc(was ^ 1, f), was ^ 1);
    assert_int_equal(fclose(f), 0);
}

static bool changes(const char *dir, const char *name, long at)
{
    struct store_identity before = made(dir);
    change_byte(dir, name, at);
    struct store_identity after = made(dir);
    return memcmp(&before, &after, sizeof(before)) != 0;
}

/* ---- tests ---- */

TEST(the_chain_is_config_then_weights_in_order_of_their_names)
{
    const char *dir = model_dir();
    struct chain c = chain_begin();
    write_weights(dir, "model-2.safetensors", 1000, 300000);
    write_weights(dir, "model-1.safetensors", 600000, 900000);
    test_write_text(dir, "notes.txt", "no weights");
    chain_config(&c, dir, "config.json");
    chain_weights(&c, dir, "model-1.safetensors", 600008);
    chain_weights(&c, dir, "model-2.safetensors", 1008);
    struct store_identity id = made(dir);
    expect_chain(&c, &id);
}

TEST(the_chain_says_where_a_short_file_ends)
{
    const char *dir = model_dir();
    struct chain c = chain_begin();
    write_weights(dir, "model.safetensors", 100, 2000); /* every sample reaches past the end */
    write_weights(dir, "other.safetensors", 100, 5);    /* shorter than the number of its header's bytes */
    chain_config(&c, dir, "config.json");
    chain_weights(&c, dir, "model.safetensors", 108);
    chain_weights(&c, dir, "other.safetensors", 1 << 20);
    struct store_identity id = made(dir);
    expect_chain(&c, &id);
}

TEST(the_chain_has_preprocessors_and_weights_below_mtp)
{
    const char *dir = model_dir();
    char below[512];
    struct chain c = chain_begin();
    snprintf(below, sizeof(below), "%s/mtp", dir);
    assert_int_equal(mkdir(below, 0700), 0);
    test_write_text(dir, "preprocessor_config.json", "{\"patch_size\": 16}");
    test_write_text(dir, "processor_config.json", "{}");
    write_weights(dir, "model.gguf", 100, 3000);
    write_weights(below, "head.safetensors", 50, 3000);
    chain_config(&c, dir, "config.json");
    chain_config(&c, dir, "preprocessor_config.json");
    chain_config(&c, dir, "processor_config.json");
    chain_weights(&c, dir, "model.gguf", 1 << 20);
    chain_weights(&c, below, "head.safetensors", 58);
    struct store_identity id = made(dir);
    expect_chain(&c, &id);
}

TEST(a_config_is_hashed_in_pieces_and_to_four_megabytes)
{
    const char *dir = test_dir();
    struct chain c = chain_begin();
    write_weights(dir, "config.json", 1, (4 << 20) + 10);
    write_weights(dir, "model.safetensors", 10, 5000);
    chain_config(&c, dir, "config.json");
    chain_weights(&c, dir, "model.safetensors", 18);
    struct store_identity id = made(dir);
    expect_chain(&c, &id);
    assert_true(changes(dir, "config.json", (4 << 20) - 1));
    assert_false(changes(dir, "config.json", 4 << 20));
}

TEST(a_byte_of_the_header_or_of_a_sample_makes_another_fingerprint)
{
    const char *dir = model_dir();
    long header = 5000, size = header + MODEL_FINGERPRINT_SAMPLES * 8192;
    write_weights(dir, "model.safetensors", (uint64_t)header - 8, (size_t)size);
    assert_true(changes(dir, "config.json", 3));
    assert_true(changes(dir, "model.safetensors", header - 1));
    assert_true(changes(dir, "model.safetensors", header + 8192));
    assert_true(changes(dir, "model.safetensors", size - 8192));
    assert_true(changes(dir, "model.safetensors", size - 4097));
    assert_false(changes(dir, "model.safetensors", size - 1)); /* between samples */
}

TEST(a_copy_has_the_same_fingerprint)
{
    const char *dir = model_dir();
    char path[512];
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    write_weights(dir, "model.safetensors", 10, 5000);
    struct store_identity first = made(dir);
    struct timespec times[2] = {{1000, 5}, {1000, 6}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    struct store_identity second = made(dir);
    assert_memory_equal(&first, &second, sizeof(first));
}

/* A sparse file: one sample for each 16 MiB, and one more byte in a sample that a smaller file has not. */
TEST(a_large_file_has_more_samples)
{
    const char *dir = model_dir();
    char path[512];
    const off_t each = 16 << 20, count = 2 * MODEL_FINGERPRINT_SAMPLES;
    write_weights(dir, "model.safetensors", 100 - 8, 100);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_int_equal(truncate(path, 100 + each * count), 0);
    assert_true(changes(dir, "model.safetensors", 100 + each * 3));
    assert_false(changes(dir, "model.safetensors", 100 + each * 3 + SAMPLE));
}

TEST(an_identity_may_be_given_or_named_apart)
{
    const char *dir = model_dir();
    static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    write_weights(dir, "model.safetensors", 10, 5000);
    struct store_identity own = made(dir);
    opts.namespace = "b";
    struct store_identity apart = made(dir);
    opts.given = hex;
    struct store_identity both = made(dir);
    opts.namespace = NULL;
    struct store_identity given = made(dir);
    opts.given = NULL;
    assert_memory_not_equal(own.fingerprint, apart.fingerprint, sizeof(own.fingerprint));
    assert_memory_not_equal(given.fingerprint, both.fingerprint, sizeof(own.fingerprint));
    assert_int_equal(given.fingerprint[1], 0x11);
    assert_int_equal(given.fingerprint[31], 0xff);
    assert_true(fingerprint_is_hex(hex));
    assert_false(fingerprint_is_hex("00") || fingerprint_is_hex("") ||
                 fingerprint_is_hex("zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"));
}

TEST(a_single_file_is_a_model_of_its_own)
{
    const char *dir = test_dir();
    struct chain c = chain_begin();
    char path[512];
    size_t size;
    snprintf(path, sizeof(path), "%s/model.gguf", dir);
    write_weights(dir, "model.gguf", 10, 5000);
    char *bytes = test_read_file(dir, "model.gguf", &size);
    uint64_t numbers[] = {size, size};
    chain_add(&c, ".gguf", 5);
    chain_add(&c, numbers, sizeof(numbers));
    chain_range(&c, bytes, size, 0, size);
    for (uint32_t i = 0; i < MODEL_FINGERPRINT_SAMPLES; i++)
        chain_range(&c, bytes, size, size, SAMPLE);
    free(bytes);
    struct store_identity id = made(path);
    expect_chain(&c, &id);
}

TEST(every_part_of_a_split_file_counts)
{
    const char *dir = test_dir(), *last = "m-00002-of-00002.gguf";
    char path[512];
    snprintf(path, sizeof(path), "%s/m-00001-of-00002.gguf", dir);
    write_weights(dir, "m-00001-of-00002.gguf", 10, 5000);
    assert_int_equal(refused(path), -ENOENT); /* the second part is missing */
    write_weights(dir, last, 10, 5000);
    struct store_identity file = made(path), folder = made(dir);
    write_weights(dir, last, 11, 5000);
    struct store_identity file_now = made(path), folder_now = made(dir);
    assert_memory_not_equal(file.fingerprint, file_now.fingerprint, sizeof(file.fingerprint));
    assert_memory_not_equal(folder.fingerprint, folder_now.fingerprint, sizeof(folder.fingerprint));
}

TEST(the_layout_names_what_decides_the_bits)
{
    const char *dir = model_dir();
    write_weights(dir, "model.safetensors", 10, 5000);
    struct store_identity id = made(dir);
    assert_string_equal(id.layout, "4 int8 page=4096 state=192 cpu=15 " PLATEAU_VERSION);
    struct model_shape halved = shape;
    halved.kv_form = KV_BF16;
    assert_int_equal(make(dir, &halved, 0x15, &id, &(struct err){{0}}), 0);
    assert_string_equal(id.layout, "4 int8/b page=4096 state=192 cpu=15 " PLATEAU_VERSION);
    halved.quant = 4;
    assert_int_equal(make(dir, &halved, 0x15, &id, &(struct err){{0}}), 0);
    assert_string_equal(id.layout, "4 int8/b/q4 page=4096 state=192 cpu=15 " PLATEAU_VERSION);
    /* The context decides the factors, and they the keys. */
    struct model_shape longer = shape;
    struct err e = {0};
    longer.longrope = "long";
    assert_int_equal(make(dir, &longer, 0x15, &id, &e), 0);
    assert_string_equal(id.layout, "4 int8 page=4096 state=192 cpu=15 rope=long " PLATEAU_VERSION);
    /* The context also decides which windows have pages of their own. */
    struct model_shape windowed = shape;
    windowed.group_count = 3;
    windowed.groups[1] = (struct kv_group){.window = 128, .page_bytes = 8192};
    windowed.groups[2] = (struct kv_group){.window = 1024, .page_bytes = 64};
    assert_int_equal(make(dir, &windowed, 0x15, &id, &e), 0);
    assert_string_equal(id.layout, "4 int8 page=4096+128:8192+1024:64 state=192 cpu=15 " PLATEAU_VERSION);
    /* The largest numbers have room. */
    struct model_shape most = shape;
    most.longrope = "short";
    most.compute = COMPUTE_INT16;
    most.kv_form = KV_INT8;
    most.quant = 8;
    most.state_bytes = most.groups[0].page_bytes = SIZE_MAX;
    most.group_count = PAGE_GROUPS_MAX;
    for (uint32_t g = 1; g < PAGE_GROUPS_MAX; g++)
        most.groups[g] = (struct kv_group){.window = UINT32_MAX, .page_bytes = SIZE_MAX};
    assert_int_equal(make(dir, &most, UINT32_MAX, &id, &e), 0);
    assert_non_null(strstr(id.layout, PLATEAU_VERSION));
}

TEST(a_model_without_files_has_no_fingerprint)
{
    assert_int_equal(refused("/nowhere/at/all"), -ENOENT);
    assert_int_equal(refused(test_dir()), -ENOENT);  /* no config */
    assert_int_equal(refused(model_dir()), -ENOENT); /* no weights */
}

TEST(a_preprocessor_that_cannot_be_read_is_an_error)
{
    const char *dir = model_dir();
    char path[512];
    snprintf(path, sizeof(path), "%s/preprocessor_config.json", dir);
    write_weights(dir, "model.safetensors", 10, 5000);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(refused(dir), -EINVAL);
}

TEST_MAIN()
