/* Decoding: equal to Pillow for every kind of image, turned or not; limits; damage; and that no byte stays
 * charged. */
#include "base/slice.h"
#include "vision/decode.h"
#include "base/check.h"
#include "encode.h"
#include "test_ledger.h"
#include "test_images.h"
#include "vision/image.h"
#include "vision/smart_size.h"

#include <errno.h>
#include <string.h>

static const struct decode_limits usual = DECODE_LIMITS_DEFAULT;

struct scene {
    struct account *account;
    struct charge charge;
    struct err e;
};

static struct scene scene_of(uint64_t limit)
{
    struct scene s = {.account = test_account(limit)};
    s.charge = account_charge(s.account);
    return s;
}

/* The image resized to that size; NULL where decoding failed with `expected`. */
static struct image *decoded(struct scene *s, struct slice bytes, uint32_t width, uint32_t height,
                             int expected)
{
    struct image *p = NULL;
    assert_int_equal(image_create(width, height, 1, &s->charge, &p), 0);
    s->e.text[0] = 0;
    int r = decode_frame(p, 0, bytes, &usual, &s->charge, &s->e);
    if (r != expected)
        fail_msg("%d, not %d: %s", r, expected, s->e.text);
    assert_int_equal(s->e.text[0] != 0, r < 0);
    if (r == 0)
        return p;
    image_unref(p);
    return NULL;
}

static void compare(const char *name, const struct image *p, const char *expected)
{
    char found[65];
    test_sha256(p->pixels, image_frame_bytes(p->width, p->height), found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s at %ux%u has other pixels than Pillow sees", name, p->width, p->height);
}

TEST(pixels_are_pillows)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    FILE *table = test_image_table("expected.txt");
    char name[64], whole[65], small[65];
    unsigned w, h, small_w, small_h, count = 0;
    while (fscanf(table, "%63s %u %u %64s %u %u %64s", name, &w, &h, whole, &small_w, &small_h, small) == 7) {
        struct slice bytes = test_image(name);
        struct decode_info info;
        assert_int_equal(decode_measure(bytes, &usual, &info, &s.e), 0);
        assert_int_equal(info.width, w);
        assert_int_equal(info.height, h);
        struct image *p = decoded(&s, bytes, w, h, 0);
        compare(name, p, whole);
        image_unref(p);
        p = decoded(&s, bytes, small_w, small_h, 0);
        compare(name, p, small);
        image_unref(p);
        free((char *)bytes.ptr);
        count++;
    }
    assert_true(count > 65);
    fclose(table);
}

/* An image of one or two raw frames of that size. */
static struct image *raw(struct scene *s, uint32_t frames, uint32_t width, uint32_t height, uint32_t to_width,
                         uint8_t first, uint8_t second)
{
    uint8_t colours[2] = {first, second};
    size_t bytes = (size_t)width * height * 3;
    uint8_t *rgb = malloc(bytes);
    struct image *p = NULL;
    assert_non_null(rgb);
    assert_int_equal(image_create(to_width, 32, frames, &s->charge, &p), 0);
    for (uint32_t i = 0; i < frames; i++) {
        memset(rgb, colours[i], bytes);
        assert_int_equal(decode_raw_frame(p, i, rgb, width, height, NULL, &s->charge, &s->e), 0);
    }
    free(rgb);
    return p;
}

static bool same_hash(const struct image *a, const struct image *b)
{
    return memcmp(a->sha256, b->sha256, sizeof(a->sha256)) == 0;
}

TEST(the_hash_is_of_all_that_was_seen)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    struct image *p[] = {
        raw(&s, 2, 40, 30, 64, 1, 2), raw(&s, 2, 40, 30, 64, 1, 2), /* equal images */
        raw(&s, 2, 40, 30, 64, 2, 1),                               /* another order */
        raw(&s, 2, 40, 30, 64, 1, 1), raw(&s, 1, 40, 30, 64, 1, 0), /* twice, once */
        raw(&s, 2, 30, 40, 64, 1, 2), raw(&s, 2, 40, 30, 32, 1, 2), /* other sizes, before and after */
    };
    assert_true(same_hash(p[0], p[1]));
    for (size_t i = 1; i < COUNT_OF(p); i++)
        for (size_t j = i + 1; j < COUNT_OF(p); j++)
            assert_false(same_hash(p[i], p[j]));
    for (size_t i = 0; i < COUNT_OF(p); i++)
        image_unref(p[i]);
}

TEST(the_hash_is_of_the_pixels_and_not_of_the_file)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    /* Transparent or not, marked as turned by nothing or not: the same pixels. */
    const char *const same[] = {"png_rgb.png", "png_rgba.png", "png_rgb_trns.png", "png_turned_1.png"};
    struct image *p[COUNT_OF(same)];
    for (size_t i = 0; i < COUNT_OF(same); i++) {
        struct slice bytes = test_image(same[i]);
        p[i] = decoded(&s, bytes, 64, 32, 0);
        assert_true(same_hash(p[0], p[i]));
        free((char *)bytes.ptr);
    }
    for (size_t i = 0; i < COUNT_OF(same); i++)
        image_unref(p[i]);
}

TEST(raw_frames_are_resized_each)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    struct image *p = raw(&s, 2, 50, 20, 64, 9, 200);
    size_t frame = image_frame_bytes(64, 32);
    for (size_t i = 0; i < frame; i++)
        assert_true(p->pixels[i] == 9 && p->pixels[frame + i] == 200);
    image_unref(p);
}

TEST(a_still_gets_the_models_size)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    struct slice bytes = test_image("jpeg_turned_6.jpg"); /* 45 x 38, seen as 38 x 45 */
    struct smart_bounds bounds = {32, 4096, 1 << 20};
    struct image *p = NULL;
    assert_int_equal(decode_still(bytes, &usual, &bounds, &s.charge, &p, &s.e), 0);
    assert_int_equal(p->width, 64);
    assert_int_equal(p->height, 96);
    assert_int_equal(p->frames, 1);
    image_unref(p);
    free((char *)bytes.ptr);
}

/* The image of the same size without black pixels is its inner part, and another one. */
TEST(black_pixels_complete_a_still)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    struct slice bytes = test_image("jpeg_turned_6.jpg"); /* 45 x 38, seen as 38 x 45 */
    struct smart_bounds bounds = {
        .edge = 28, .patch = 14, .patches_max = 6, .longest = 7168, .pixels_max = 1 << 20};
    struct image *p = NULL, *inner = decoded(&s, bytes, 38, 45, 0);
    assert_int_equal(decode_still(bytes, &usual, &bounds, &s.charge, &p, &s.e), 0);
    assert_true(p->width == 56 && p->height == 56 && p->inner_width == 38 && p->inner_height == 45);
    for (uint32_t y = 0; y < 56; y++) {
        const uint8_t *row = p->pixels + y * (size_t)56 * 3;
        for (uint32_t i = 0; i < 56 * 3; i++)
            assert_int_equal(row[i], y < 45 && i < 38 * 3 ? inner->pixels[y * (size_t)38 * 3 + i] : 0);
    }
    struct image *whole = decoded(&s, bytes, 56, 56, 0);
    assert_true(memcmp(p->sha256, whole->sha256, sizeof(p->sha256)) != 0);
    image_unref(whole);
    image_unref(inner);
    image_unref(p);
    free((char *)bytes.ptr);
}

/* Inks as Adobe stores them: 255 means no ink. */
TEST(ycck_is_read_as_cmyk)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    static const uint8_t cases[][7] = {
        {255, 255, 255, 255, 255, 255, 255}, {255, 255, 255, 0, 0, 0, 0},
        {0, 255, 255, 255, 0, 255, 255},     {255, 0, 255, 255, 255, 0, 255},
        {255, 255, 0, 128, 128, 128, 0},     {100, 200, 50, 180, 71, 141, 35},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint8_t cmyk[32 * 32 * 4];
        for (size_t j = 0; j < sizeof(cmyk); j++)
            cmyk[j] = cases[i][j % 4];
        struct encode_pixels pixels = {cmyk, 32, 32};
        struct slice bytes =
            encode_jpeg(&pixels, &(struct encode_jpeg_opts){.sampling = {2, 2}, .ycck = true});
        struct image *p = decoded(&s, bytes, 32, 32, 0);
        for (size_t j = 0; j < 3; j++)
            assert_in_range(p->pixels[j] + 3, cases[i][4 + j], cases[i][4 + j] + 6);
        image_unref(p);
        free((char *)bytes.ptr);
    }
}

/* Rows pass through: neither the height nor the pixels decide what a PNG or a JPEG takes. */
TEST(a_tall_image_takes_the_memory_of_rows)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    struct image *p = NULL;
    uint32_t width = 100, height = 10000;
    uint8_t *rgb = calloc(height, (size_t)width * 3);
    assert_non_null(rgb);
    assert_int_equal(image_create(32, 3200, 1, &s.charge, &p), 0);
    uint64_t before = account_numbers(s.account).used;
    assert_int_equal(decode_raw_frame(p, 0, rgb, width, height, NULL, &s.charge, &s.e), 0);
    assert_true(account_numbers(s.account).peak - before < 1 << 20);
    image_unref(p);
    free(rgb);
}

TEST_MAIN()
