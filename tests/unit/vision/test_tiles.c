/* Tiles of images: the reference's grids, pixels cut from one canvas, and what a failure leaves. */
#include "vision/tiles.h"

#include "base/check.h"
#include "test.h"
#include "test_images.h"
#include "vision/image.h"

#include <errno.h>

#define IMAGES_MAX 65

/* InternVL3, Idefics3, SmolVLM2 and LFM2-VL as published. */
static const struct tile_bounds rules[] = {
    {.edge = 448, .kept = 448, .count_min = 1, .count_max = 12, .whole = {.edge = 28, .square = 448}},
    {.edge = 364, .kept = 364, .longest = 1456, .whole = {.edge = 28, .square = 364}},
    {.edge = 512, .kept = 512, .longest = 2048, .whole = {.edge = 64, .square = 512}},
    {.edge = 512, .kept = 512, .count_min = 2, .count_max = 10, .area_above = 524288, .whole = {.edge = 32}},
};

/* Columns and rows by get_optimal_tiled_canvas(), resize_for_vision_encoder() and
 * find_closest_aspect_ratio() of transformers 5.24. */
static const struct {
    uint32_t width, height, grids[4][2];
} references[] = {
    {448, 448, {{1, 1}, {4, 4}, {4, 4}, {1, 1}}},   {896, 896, {{2, 2}, {4, 4}, {4, 4}, {2, 2}}},
    {897, 896, {{2, 2}, {4, 4}, {4, 4}, {2, 2}}},   {896, 448, {{2, 1}, {4, 2}, {4, 2}, {1, 1}}},
    {448, 1344, {{1, 3}, {2, 4}, {2, 4}, {1, 3}}},  {100, 100, {{1, 1}, {4, 4}, {4, 4}, {1, 1}}},
    {2000, 3000, {{2, 3}, {3, 4}, {3, 4}, {2, 3}}}, {1, 150, {{1, 12}, {1, 4}, {1, 4}, {1, 1}}},
    {150, 1, {{12, 1}, {4, 1}, {4, 1}, {1, 1}}},    {640, 480, {{4, 3}, {4, 3}, {4, 3}, {1, 1}}},
    {512, 512, {{1, 1}, {4, 4}, {4, 4}, {1, 1}}},   {724, 724, {{2, 2}, {4, 4}, {4, 4}, {2, 2}}},
    {725, 725, {{2, 2}, {4, 4}, {4, 4}, {2, 2}}},   {1024, 512, {{2, 1}, {4, 2}, {4, 2}, {1, 1}}},
    {1280, 1280, {{3, 3}, {4, 4}, {4, 4}, {3, 3}}}, {96, 36, {{5, 2}, {4, 2}, {4, 2}, {1, 1}}},
    {591, 23, {{12, 1}, {4, 1}, {4, 1}, {1, 1}}},   {312, 121, {{5, 2}, {4, 2}, {4, 2}, {1, 1}}},
    {22, 266, {{1, 12}, {1, 4}, {1, 4}, {1, 1}}},   {19, 177, {{1, 9}, {1, 4}, {1, 4}, {1, 1}}},
    {23, 26, {{1, 1}, {4, 4}, {4, 4}, {1, 1}}},     {168, 1568, {{1, 9}, {1, 4}, {1, 4}, {1, 1}}},
    {31, 55, {{1, 2}, {3, 4}, {3, 4}, {1, 1}}},     {518, 3065, {{1, 6}, {1, 4}, {1, 4}, {1, 6}}},
    {392, 144, {{5, 2}, {4, 2}, {4, 2}, {1, 1}}},   {3590, 20, {{12, 1}, {4, 1}, {4, 1}, {1, 1}}},
};

TEST(the_references_grids)
{
    for (size_t i = 0; i < COUNT_OF(references); i++) {
        for (size_t k = 0; k < COUNT_OF(rules); k++) {
            const uint32_t *wanted = references[i].grids[k];
            struct tile_grid g = tiles_grid(references[i].width, references[i].height, &rules[k]);
            if (g.columns != wanted[0] || g.rows != wanted[1])
                fail_msg("%u x %u by rule %zu: %u x %u, not %u x %u", references[i].width,
                         references[i].height, k, g.columns, g.rows, wanted[0], wanted[1]);
            assert_true(g.columns * g.rows < tiles_images_max(&rules[k]));
        }
    }
}

static struct tiles decoded(const char *name, const struct tile_bounds *b, struct image *images[IMAGES_MAX])
{
    struct decode_limits limits = DECODE_LIMITS_DEFAULT;
    struct slice bytes = test_image(name);
    struct tiles t = {.images = images};
    assert_true(tiles_images_max(b) <= IMAGES_MAX);
    assert_int_equal(tiles_decode(bytes, &limits, b, NULL, &t, NULL), 0);
    free((char *)bytes.ptr);
    return t;
}

static void drop(const struct tiles *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        image_unref(t->images[i]);
}

static struct image *resized(const char *name, uint32_t width, uint32_t height)
{
    struct decode_limits limits = DECODE_LIMITS_DEFAULT;
    struct slice bytes = test_image(name);
    struct image *p = NULL;
    assert_int_equal(image_create(width, height, 1, NULL, &p), 0);
    assert_int_equal(decode_frame(p, 0, bytes, &limits, NULL, NULL), 0);
    free((char *)bytes.ptr);
    return p;
}

static bool same_cut(const struct image *tile, const struct image *canvas, uint32_t left, uint32_t top)
{
    bool same = true;
    for (uint32_t y = 0; y < tile->height; y++)
        same &= memcmp(tile->pixels + (size_t)y * tile->width * 3,
                       canvas->pixels + ((size_t)(top + y) * canvas->width + left) * 3, tile->width * 3) == 0;
    return same;
}

TEST(tiles_are_cut_from_one_canvas_and_the_whole_image_follows)
{
    const struct tile_bounds b = {
        .edge = 20, .kept = 16, .count_min = 4, .count_max = 4, .whole = {.edge = 8, .square = 20}};
    struct image *images[IMAGES_MAX];
    struct tiles t = decoded("png_rgb.png", &b, images);
    assert_true(t.count == 5 && t.columns > 0);
    const uint32_t columns = t.columns, rows = 4 / columns;
    struct image *canvas = resized("png_rgb.png", columns * 20, rows * 20);
    struct image *whole = resized("png_rgb.png", 20, 20);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(images[i]->width == 16 && images[i]->height == 16);
        assert_true(same_cut(images[i], canvas, i % columns * 20, i / columns * 20));
        assert_int_not_equal(memcmp(images[i]->sha256, images[4]->sha256, 32), 0);
    }
    assert_true(images[4]->width == 16 && same_cut(images[4], whole, 0, 0));
    image_unref(canvas);
    image_unref(whole);
    drop(&t);
}

TEST(one_tile_is_the_whole_image)
{
    const struct tile_bounds b = {
        .edge = 16, .kept = 16, .count_min = 1, .count_max = 1, .whole = {.edge = 8, .square = 16}};
    struct image *images[IMAGES_MAX];
    struct tiles t = decoded("png_rgb.png", &b, images);
    struct image *whole = resized("png_rgb.png", 16, 16);
    assert_true(t.count == 1 && t.columns == 0 && same_cut(images[0], whole, 0, 0));
    image_unref(whole);
    drop(&t);
}

TEST(two_steps_of_resizing_give_tiles_of_the_second)
{
    const struct tile_bounds b = {.edge = 16, .kept = 16, .longest = 40, .whole = {.edge = 8, .square = 16}};
    struct image *images[IMAGES_MAX];
    struct tiles t = decoded("png_rgb.png", &b, images);
    assert_true(t.columns == 3 && t.count == t.columns * ((t.count - 1) / 3) + 1);
    for (uint32_t i = 0; i < t.count; i++)
        assert_true(images[i]->width == 16 && images[i]->height == 16);
    drop(&t);
}

TEST(a_refused_image_leaves_what_it_made_to_the_caller)
{
    const struct tile_bounds b = {
        .edge = 16, .kept = 16, .count_min = 4, .count_max = 4, .whole = {.edge = 8, .square = 16}};
    struct decode_limits limits = DECODE_LIMITS_DEFAULT;
    struct image *images[IMAGES_MAX];
    struct slice bytes = test_image("png_rgb.png");
    struct tiles t = {.images = images};
    struct err e = {{0}};
    assert_int_equal(tiles_decode(slice_sub(bytes, 0, bytes.len / 2), &limits, &b, NULL, &t, &e), -EINVAL);
    assert_true(t.count == 0 && e.text[0]);
    free((char *)bytes.ptr);
}

TEST_MAIN()
