/* Resizing: Pillow's bytes, from the plain code and from the fast one; an image of one color stays
 * unchanged. */
#include "base/check.h"
#include "test.h"
#include "test_images.h"
#include "vision/resize.h"

#include <string.h>

/* Makes the bytes of noise() in data/images/make.py: half of them black or white, so that clipping
 * matters. */
static uint8_t *noise(uint32_t width, uint32_t height, uint32_t seed)
{
    size_t bytes = (size_t)width * height * 3;
    uint8_t *p = malloc(bytes);
    assert_non_null(p);
    for (size_t i = 0; i < bytes; i++) {
        seed = seed * 1664525 + 1013904223;
        unsigned byte = seed >> 24;
        p[i] = byte < 64 ? 0 : byte > 191 ? 255 : (uint8_t)byte;
    }
    return p;
}

static uint8_t *resized(const uint8_t *from, uint32_t width, uint32_t height, uint32_t to_width,
                        uint32_t to_height, enum resize_filter filter, bool plain)
{
    struct arena *a;
    struct resize *r;
    uint8_t *to = malloc((size_t)to_width * to_height * 3);
    assert_non_null(to);
    struct resize_opts o = {width, height, to_width, to_height, to, filter, plain};
    struct arena_opts opts = {.bytes_max = resize_bytes(&o)};
    assert_int_equal(arena_create(&opts, &a), 0);
    assert_int_equal(resize_create(a, &o, &r), 0);
    for (uint32_t y = 0; y < height; y++)
        resize_row(r, from + y * (size_t)width * 3);
    arena_free(a);
    return to;
}

/* filters.txt: rows as in resized.txt, with the filter's number in Pillow. */
TEST(bytes_of_other_filters_are_pillows)
{
    FILE *table = test_image_table("filters.txt");
    unsigned from[2], to[2], seed, filter, rows = 0;
    char expected[65], found[65];
    while (fscanf(table, "%u %u %u %u %u %u %64s", &from[0], &from[1], &to[0], &to[1], &seed, &filter,
                  expected) == 7) {
        uint8_t *in = noise(from[0], from[1], seed);
        for (int plain = 0; plain < 2; plain++) {
            uint8_t *out = resized(in, from[0], from[1], to[0], to[1],
                                   filter == 2 ? RESIZE_BILINEAR : RESIZE_LANCZOS, plain);
            test_sha256(out, (size_t)to[0] * to[1] * 3, found);
            if (strcmp(found, expected) != 0)
                fail_msg("%ux%u to %ux%u, filter %u", from[0], from[1], to[0], to[1], filter);
            free(out);
        }
        free(in);
        rows++;
    }
    assert_true(rows == 40);
    fclose(table);
}

TEST(bytes_are_pillows)
{
    FILE *table = test_image_table("resized.txt");
    unsigned from[2], to[2], seed, rows = 0;
    char expected[65], found[65];
    while (fscanf(table, "%u %u %u %u %u %64s", &from[0], &from[1], &to[0], &to[1], &seed, expected) == 6) {
        uint8_t *in = noise(from[0], from[1], seed);
        for (int plain = 0; plain < 2; plain++) {
            uint8_t *out = resized(in, from[0], from[1], to[0], to[1], RESIZE_BICUBIC, plain);
            test_sha256(out, (size_t)to[0] * to[1] * 3, found);
            if (strcmp(found, expected) != 0)
                fail_msg("%ux%u to %ux%u, %s", from[0], from[1], to[0], to[1], plain ? "plain" : "fast");
            free(out);
        }
        free(in);
        rows++;
    }
    assert_true(rows > 70);
    fclose(table);
}

TEST(the_same_size_is_the_same_image)
{
    uint8_t *in = noise(61, 47, 3), *out = resized(in, 61, 47, 61, 47, RESIZE_BICUBIC, false);
    assert_memory_equal(in, out, 61 * 47 * 3);
    free(in);
    free(out);
}

TEST(one_colour_stays_that_colour)
{
    static const uint32_t sizes[] = {1, 2, 31, 64, 199};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (size_t j = 0; j < COUNT_OF(sizes); j++) {
            size_t from = (size_t)sizes[i] * sizes[j] * 3, to = (size_t)sizes[j] * sizes[i] * 3;
            uint8_t *in = malloc(from);
            assert_non_null(in);
            memset(in, 201, from);
            uint8_t *out = resized(in, sizes[i], sizes[j], sizes[j], sizes[i], RESIZE_BICUBIC, false);
            for (size_t k = 0; k < to; k++)
                assert_int_equal(out[k], 201);
            free(in);
            free(out);
        }
}

TEST_MAIN()
