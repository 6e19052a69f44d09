/* test_images.h - the images of tests/unit/data/images and what they are compared with. */
#ifndef PLATEAU_TESTS_UNIT_TEST_IMAGES_H
#define PLATEAU_TESTS_UNIT_TEST_IMAGES_H

#include "test.h"

#include "base/slice.h"

#include <openssl/evp.h>

#define TEST_IMAGES PLATEAU_SOURCE_DIR "/tests/unit/data/images/"

static inline FILE *test_image_table(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), TEST_IMAGES "%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

/* A file's bytes in a block of exactly their size, which AddressSanitizer watches. Freed by the caller. */
static inline struct slice test_image(const char *name)
{
    FILE *f = test_image_table(name);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t len = (size_t)ftell(f);
    char *bytes = malloc(len);
    assert_non_null(bytes);
    rewind(f);
    assert_int_equal(fread(bytes, 1, len, f), len);
    fclose(f);
    return (struct slice){bytes, len};
}

static inline void test_sha256(const void *bytes, size_t len, char hex[65])
{
    uint8_t digest[32];
    assert_int_equal(EVP_Digest(bytes, len, digest, NULL, EVP_sha256(), NULL), 1);
    for (int i = 0; i < 32; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

#endif
