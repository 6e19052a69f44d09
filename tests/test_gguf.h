/* test_gguf.h - GGUF files made up on the spot, right or wrong byte by byte. */
#ifndef PLATEAU_TESTS_TEST_GGUF_H
#define PLATEAU_TESTS_TEST_GGUF_H

#include "test_files.h"

#include "gguf/gguf.h"

#define TEST_GGUF_MAX ((size_t)1 << 20)

struct test_gguf {
    size_t len;
    char bytes[TEST_GGUF_MAX];
};

static inline void test_gguf_put(struct test_gguf *f, const void *bytes, size_t len)
{
    assert_true(len <= TEST_GGUF_MAX - f->len);
    memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
}

static inline void test_gguf_u32(struct test_gguf *f, uint32_t v)
{
    test_gguf_put(f, &v, sizeof(v));
}

static inline void test_gguf_u64(struct test_gguf *f, uint64_t v)
{
    test_gguf_put(f, &v, sizeof(v));
}

static inline void test_gguf_text(struct test_gguf *f, const char *text)
{
    test_gguf_u64(f, strlen(text));
    test_gguf_put(f, text, strlen(text));
}

/* Empties the file first. */
static inline void test_gguf_begin(struct test_gguf *f, uint32_t version, uint64_t tensors, uint64_t pairs)
{
    f->len = 0;
    test_gguf_put(f, "GGUF", 4);
    test_gguf_u32(f, version);
    test_gguf_u64(f, tensors);
    test_gguf_u64(f, pairs);
}

static inline void test_gguf_key(struct test_gguf *f, const char *key, uint32_t type)
{
    test_gguf_text(f, key);
    test_gguf_u32(f, type);
}

static inline void test_gguf_key_u32(struct test_gguf *f, const char *key, uint32_t v)
{
    test_gguf_key(f, key, GGUF_U32);
    test_gguf_u32(f, v);
}

static inline void test_gguf_key_u16(struct test_gguf *f, const char *key, uint16_t v)
{
    test_gguf_key(f, key, GGUF_U16);
    test_gguf_put(f, &v, sizeof(v));
}

static inline void test_gguf_key_f32(struct test_gguf *f, const char *key, float v)
{
    test_gguf_key(f, key, GGUF_F32);
    test_gguf_put(f, &v, sizeof(v));
}

static inline void test_gguf_key_bool(struct test_gguf *f, const char *key, bool v)
{
    test_gguf_key(f, key, GGUF_BOOL);
    test_gguf_put(f, v ? "\1" : "\0", 1);
}

static inline void test_gguf_key_text(struct test_gguf *f, const char *key, const char *v)
{
    test_gguf_key(f, key, GGUF_STRING);
    test_gguf_text(f, v);
}

static inline void test_gguf_list(struct test_gguf *f, const char *key, uint32_t type, uint64_t count)
{
    test_gguf_key(f, key, GGUF_LIST);
    test_gguf_u32(f, type);
    test_gguf_u64(f, count);
}

/* Dimensions in the file's order, innermost first. */
static inline void test_gguf_info(struct test_gguf *f, const char *name, uint32_t rank, const uint64_t *dims,
                                  uint32_t type, uint64_t offset)
{
    test_gguf_text(f, name);
    test_gguf_u32(f, rank);
    for (uint32_t i = 0; i < rank; i++)
        test_gguf_u64(f, dims[i]);
    test_gguf_u32(f, type);
    test_gguf_u64(f, offset);
}

/* Zeros up to a multiple of `align`, then `len` bytes of value `fill`. */
static inline void test_gguf_data(struct test_gguf *f, size_t align, size_t len, int fill)
{
    static const char zeros[64];
    char block[256];
    while (f->len % align != 0)
        test_gguf_put(f, zeros, 1);
    memset(block, fill, sizeof(block));
    for (size_t n; len > 0; len -= n) {
        n = MIN_OF(len, sizeof(block));
        test_gguf_put(f, block, n);
    }
}

#endif
