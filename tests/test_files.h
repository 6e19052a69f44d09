/* test_files.h - checkpoints made up on the spot: directories that vanish, safetensors files from lists of
 * tensors. */
#ifndef PLATEAU_TESTS_TEST_FILES_H
#define PLATEAU_TESTS_TEST_FILES_H

#include "test.h"

#include "tensor/tensor.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* ---- directories ---- */

#define TEST_DIRS_MAX 256
static char test_dirs[TEST_DIRS_MAX][64];
static size_t test_dir_count;

static inline void test_remove_tree(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        char child[1024];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if ((size_t)snprintf(child, sizeof(child), "%s/%s", path, e->d_name) >= sizeof(child))
            continue;
        if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode))
            test_remove_tree(child);
        else
            unlink(child);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static inline void test_remove_dirs(void)
{
    while (test_dir_count > 0)
        test_remove_tree(test_dirs[--test_dir_count]);
}

/* A new empty directory, removed when the program ends. */
static inline const char *test_dir(void)
{
    assert_true(test_dir_count < TEST_DIRS_MAX);
    if (test_dir_count == 0)
        atexit(test_remove_dirs);
    char *path = test_dirs[test_dir_count++];
    snprintf(path, sizeof(test_dirs[0]), "/tmp/plateau-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static inline void test_write_file(const char *dir, const char *name, const void *bytes, size_t len)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static inline void test_write_text(const char *dir, const char *name, const char *text)
{
    test_write_file(dir, name, text, strlen(text));
}

/* The whole file, with a zero byte after it; the caller frees it. */
static inline char *test_read_file(const char *dir, const char *name, size_t *len)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    rewind(f);
    char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, f), size);
    fclose(f);
    bytes[size] = 0;
    if (len)
        *len = (size_t)size;
    return bytes;
}

static inline void test_copy_file(const char *from_dir, const char *to_dir, const char *name)
{
    size_t len;
    char *bytes = test_read_file(from_dir, name, &len);
    test_write_file(to_dir, name, bytes, len);
    free(bytes);
}

/* ---- safetensors ---- */

#define TEST_TENSORS_MAX 4096

struct test_tensor {
    char name[256];
    struct tensor t; /* t.data is on the heap and belongs to the list */
};

struct test_tensors {
    struct test_tensor list[TEST_TENSORS_MAX];
    size_t count;
};

/* The new tensor has zeroed data, to be filled through the returned pointer. */
static inline void *test_tensor_add(struct test_tensors *l, const char *name, enum dtype dtype, uint32_t rank,
                                    const uint64_t *shape)
{
    assert_true(l->count < TEST_TENSORS_MAX && rank <= TENSOR_RANK_MAX);
    struct test_tensor *n = &l->list[l->count++];
    snprintf(n->name, sizeof(n->name), "%s", name);
    n->t = (struct tensor){.dtype = dtype, .rank = rank};
    memcpy(n->t.shape, shape, rank * sizeof(shape[0]));
    n->t.bytes = (size_t)tensor_count(&n->t) * dtype_bytes(dtype);
    void *data = calloc(1, n->t.bytes + 1);
    assert_non_null(data);
    n->t.data = data;
    return data;
}

static inline struct test_tensor *test_tensor_find(struct test_tensors *l, const char *name)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->list[i].name, name) == 0)
            return &l->list[i];
    return NULL;
}

static inline void test_tensor_remove(struct test_tensors *l, const char *name)
{
    struct test_tensor *t = test_tensor_find(l, name);
    assert_non_null(t);
    free((void *)t->t.data);
    *t = l->list[--l->count];
}

static inline void test_tensors_free(struct test_tensors *l)
{
    for (size_t i = 0; i < l->count; i++)
        free((void *)l->list[i].t.data);
    l->count = 0;
}

/* Writes the tensors of the list for which `chosen` is true (NULL: all) as dir/name. `pad` spaces after the
 * header shift the data, to any alignment. */
static inline void test_write_tensors(const struct test_tensors *l, const char *dir, const char *name,
                                      size_t pad, bool (*chosen)(const char *tensor))
{
    char *header = NULL;
    size_t header_len = 0, at = 0;
    FILE *h = open_memstream(&header, &header_len);
    assert_non_null(h);
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", h);
    for (size_t i = 0; i < l->count; i++) {
        const struct tensor *t = &l->list[i].t;
        char shape[160];
        if (chosen && !chosen(l->list[i].name))
            continue;
        fprintf(h, ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", l->list[i].name,
                dtype_name(t->dtype), tensor_shape_text(t->rank, t->shape, shape, sizeof(shape)), at,
                at + t->bytes);
        at += t->bytes;
    }
    fprintf(h, "}%*s", (int)pad, "");
    fclose(h);
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wbe");
    assert_non_null(f);
    uint64_t n = header_len;
    fwrite(&n, 1, 8, f);
    fwrite(header, 1, header_len, f);
    for (size_t i = 0; i < l->count; i++)
        if (!chosen || chosen(l->list[i].name))
            fwrite(l->list[i].t.data, 1, l->list[i].t.bytes, f);
    assert_int_equal(fclose(f), 0);
    free(header);
}

#endif
