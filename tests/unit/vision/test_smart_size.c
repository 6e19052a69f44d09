/* The size a model sees: the contract's examples, the reference's numbers, and what holds of all. */
#include "test_rng.h"
#include "vision/smart_size.h"
#include "base/check.h"
#include "test.h"
#include "test_images.h"

#include <errno.h>

static const struct smart_bounds usual = {32, 65536, 16777216, 0};

TEST(the_contracts_examples)
{
    static const uint32_t cases[][4] = {
        /* width, height, and the resulting size */
        {640, 480, 640, 480}, {32, 32, 256, 256},       {333, 1001, 320, 992},
        {300, 200, 320, 224}, {1920, 1080, 1920, 1088}, {4100, 4100, 4096, 4096},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct smart_size s;
        assert_int_equal(smart_size(cases[i][0], cases[i][1], &usual, &s, NULL), 0);
        assert_int_equal(s.width, cases[i][2]);
        assert_int_equal(s.height, cases[i][3]);
    }
}

TEST(halves_go_to_the_even_number)
{
    struct smart_bounds b = {32, 1, 1 << 24, 0};
    struct smart_size s;
    assert_int_equal(smart_size(32 * 4 + 16, 32 * 5 + 16, &b, &s, NULL), 0);
    assert_int_equal(s.width, 32 * 4);
    assert_int_equal(s.height, 32 * 6);
}

TEST(the_references_numbers)
{
    FILE *table = test_image_table("sizes.txt");
    static const uint64_t bounds[][2] = {
        {65536, 16777216}, {4096, 1048576}, {4096, 25165824}, {131072, 786432}};
    unsigned frames, width, height, edge, bound, w, h, rows = 0;
    while (fscanf(table, "%u %u %u %u %u %u %u", &frames, &width, &height, &edge, &bound, &w, &h) == 7) {
        assert_true(bound < COUNT_OF(bounds));
        struct smart_bounds b = {edge, bounds[bound][0], bounds[bound][1], 0};
        struct smart_size s = {0, 0};
        struct err e = {{0}};
        int r = frames ? smart_size_video(frames, width, height, &b, &s, &e)
                       : smart_size(width, height, &b, &s, &e);
        assert_int_equal(r, w ? 0 : -EINVAL);
        if (s.width != w || s.height != h)
            fail_msg("%u frames of %ux%u: %ux%u, not %ux%u", frames, width, height, s.width, s.height, w, h);
        assert_int_equal(e.text[0] != 0, r < 0);
        rows++;
    }
    assert_int_equal(rows, 400);
    fclose(table);
}

/* get_resize_output_image_size() of Pixtral's image processor in transformers 5.24. */
TEST(the_longer_edge_is_bounded_where_the_model_says_so)
{
    static const uint32_t cases[][6] = {
        {1, 1, 1540, 28, 28, 28},           {1, 1, 1024, 16, 16, 16},
        {1540, 1540, 1540, 28, 1540, 1540}, {1540, 1540, 1024, 16, 1024, 1024},
        {1541, 1540, 1540, 28, 1540, 1540}, {1541, 1540, 1024, 16, 1024, 1024},
        {28, 28, 1540, 28, 28, 28},         {28, 28, 1024, 16, 32, 32},
        {29, 28, 1540, 28, 56, 28},         {29, 28, 1024, 16, 32, 32},
        {3000, 20, 1540, 28, 1540, 28},     {3000, 20, 1024, 16, 1024, 16},
        {20, 3000, 1540, 28, 28, 1540},     {20, 3000, 1024, 16, 16, 1024},
        {4000, 3000, 1540, 28, 1540, 1176}, {4000, 3000, 1024, 16, 1024, 768},
        {3000, 4000, 1540, 28, 1176, 1540}, {3000, 4000, 1024, 16, 768, 1024},
        {7, 92, 1540, 28, 28, 112},         {7, 92, 1024, 16, 16, 96},
        {21, 151, 1540, 28, 28, 168},       {21, 151, 1024, 16, 32, 160},
        {182, 1, 1540, 28, 196, 28},        {182, 1, 1024, 16, 192, 16},
        {8, 7, 1540, 28, 28, 28},           {8, 7, 1024, 16, 16, 16},
        {3950, 49, 1540, 28, 1540, 28},     {3950, 49, 1024, 16, 1024, 16},
        {1050, 52, 1540, 28, 1064, 56},     {1050, 52, 1024, 16, 1024, 64},
        {203, 3, 1540, 28, 224, 28},        {203, 3, 1024, 16, 208, 16},
        {196, 1366, 1540, 28, 196, 1372},   {196, 1366, 1024, 16, 160, 1024},
        {77, 476, 1540, 28, 84, 476},       {77, 476, 1024, 16, 80, 480},
        {548, 136, 1540, 28, 560, 140},     {548, 136, 1024, 16, 560, 144},
        {12, 1, 1540, 28, 28, 28},          {12, 1, 1024, 16, 16, 16},
        {1338, 51, 1540, 28, 1344, 56},     {1338, 51, 1024, 16, 1024, 48}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const uint32_t *c = cases[i];
        struct smart_bounds b = {.edge = c[3], .longest = c[2]};
        struct smart_size s;
        assert_int_equal(smart_size(c[0], c[1], &b, &s, NULL), 0);
        if (s.width != c[4] || s.height != c[5])
            fail_msg("%u x %u to %u x %u, not %u x %u", c[0], c[1], s.width, s.height, c[4], c[5]);
    }
}

/* get_aspect_ratio_preserving_size() of Gemma 4's processor in transformers 5.24: width, height, tokens, and
 * the size for tokens of 48 pixels. */
TEST(a_budget_is_used_up)
{
    static const uint32_t cases[][5] = {
        {7013, 143, 140, 3936, 48}, {554, 16, 70, 2352, 48},      {1, 48, 140, 48, 3888},
        {64, 9935, 140, 48, 6720},  {2948, 27, 280, 8352, 48},    {310, 927, 1120, 912, 2736},
        {1, 72, 140, 48, 4800},     {394, 4014, 70, 96, 1248},    {30, 2977, 560, 96, 11280},
        {149, 197, 70, 336, 432},   {840, 42, 140, 2496, 96},     {4627, 1155, 140, 1104, 240},
        {296, 60, 140, 1248, 240},  {6, 7, 140, 480, 576},        {34, 1, 560, 6576, 192},
        {4, 3, 70, 432, 336},       {21, 1860, 1120, 144, 15072}, {22, 17, 280, 912, 672},
        {83, 18, 560, 2400, 528},   {77, 5, 280, 3120, 192},      {998, 2396, 70, 240, 576}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const uint32_t *c = cases[i];
        struct smart_bounds b = {.edge = 48, .pixels_max = (uint64_t)c[2] * 48 * 48, .budget = true};
        struct smart_size s;
        assert_int_equal(smart_size(c[0], c[1], &b, &s, NULL), 0);
        if (s.width != c[3] || s.height != c[4])
            fail_msg("%u x %u to %u x %u, not %u x %u", c[0], c[1], s.width, s.height, c[3], c[4]);
    }
}

/* smart_resize() of GLM-4.1V's processor in transformers 5.24, whose bounds are of two frames: width, height,
 * the larger bound, and the size. */
TEST(a_short_edge_grows_first)
{
    static const uint32_t cases[][5] = {
        {19, 4, 9633792, 196, 56},      {1, 139, 47040000, 28, 3892},    {1, 54, 9633792, 28, 1512},
        {9, 160, 9633792, 28, 504},     {27, 9, 11760000, 140, 56},      {625, 9, 47040000, 1932, 28},
        {203, 38, 11760000, 196, 56},   {47, 145, 47040000, 56, 140},    {174, 534, 9633792, 168, 532},
        {212, 359, 47040000, 224, 364}, {299, 96, 100000, 308, 84},      {1285, 72, 100000, 924, 28},
        {333, 214, 9633792, 336, 224},  {214, 4353, 11760000, 224, 4340}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const uint32_t *c = cases[i];
        struct smart_bounds b = {.edge = 28, .pixels_min = 6272, .pixels_max = c[2] / 2, .grows = true};
        struct smart_size s;
        assert_int_equal(smart_size(c[0], c[1], &b, &s, NULL), 0);
        if (s.width != c[3] || s.height != c[4])
            fail_msg("%u x %u to %u x %u, not %u x %u", c[0], c[1], s.width, s.height, c[3], c[4]);
    }
}

/* navit_resize() of Kimi K2.5's processor in transformers 5.24: width, height, patches, the size of the
 * image, and that with black pixels. */
TEST(black_pixels_complete_tokens)
{
    static const uint32_t cases[][7] = {
        {88, 36, 4096, 88, 36, 112, 56},          {6, 694, 16384, 6, 694, 28, 700},
        {129, 5927, 4096, 129, 5927, 140, 5936},  {871, 1143, 4096, 786, 1032, 812, 1036},
        {900, 79, 16384, 900, 79, 924, 84},       {4, 9, 4096, 4, 9, 28, 28},
        {778, 2071, 4096, 553, 1474, 560, 1484},  {5447, 1757, 4096, 1580, 509, 1596, 532},
        {3795, 24, 4096, 3795, 24, 3808, 28},     {126, 254, 4096, 126, 254, 140, 280},
        {8847, 1053, 4096, 2602, 309, 2604, 336}, {34, 678, 4096, 34, 678, 56, 700}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const uint32_t *c = cases[i];
        struct smart_bounds b = {.edge = 28,
                                 .patch = 14,
                                 .patches_max = c[2],
                                 .longest = 7168,
                                 .pixels_max = (uint64_t)c[2] * 14 * 14 * 3 / 2};
        struct smart_size s;
        assert_int_equal(smart_size(c[0], c[1], &b, &s, NULL), 0);
        assert_true(s.inner_width == c[3] && s.inner_height == c[4] && s.width == c[5] && s.height == c[6]);
        b.pixels_max = 28 * 28;
        assert_int_equal(smart_size(c[0], c[1], &b, &s, NULL), 0);
        assert_true(s.width == 28 && s.height == 28);
    }
}

TEST(a_square_is_a_square)
{
    struct smart_bounds b = {.edge = 56, .square = 896};
    struct smart_size s;
    assert_int_equal(smart_size(20, 3000, &b, &s, NULL), 0);
    assert_true(s.width == 896 && s.height == 896);
}

TEST(two_hundred_to_one_is_the_limit)
{
    struct smart_size s;
    struct err e = {{0}};
    assert_int_equal(smart_size(2000, 10, &usual, &s, &e), 0);
    assert_int_equal(smart_size(2001, 10, &usual, &s, &e), -EINVAL);
    assert_non_null(strstr(e.text, "2001 x 10"));
    assert_int_equal(smart_size(1, 201, &usual, &s, NULL), -EINVAL);
    assert_int_equal(smart_size_video(4, 10, 2001, &usual, &s, NULL), -EINVAL);
    assert_int_equal(smart_size(1 << 30, 1 << 30, &usual, &s, NULL), 0);
    assert_int_equal(s.width, 4096);
}

PROPERTY(bounds_are_kept, seed)
{
    struct rng rng = {seed, 0};
    for (int i = 0; i < 200; i++) {
        struct smart_bounds b = {.edge = 1 + (uint32_t)rng_below(&rng, 40)};
        b.pixels_max = (uint64_t)b.edge * b.edge * (1 + rng_below(&rng, 5000));
        b.pixels_min = rng_below(&rng, b.pixels_max + 1);
        uint32_t width = 1 + (uint32_t)rng_below(&rng, 9000), height = 1 + (uint32_t)rng_below(&rng, 9000);
        struct smart_size s;
        if (smart_size(width, height, &b, &s, NULL) < 0)
            continue;
        assert_true(s.width > 0 && s.height > 0 && s.width % b.edge == 0 && s.height % b.edge == 0);
        assert_true((uint64_t)s.width * s.height <= b.pixels_max);
        b.frame_pixels_max = (uint64_t)b.edge * b.edge * (1 + rng_below(&rng, 500));
        assert_int_equal(smart_size_video(1 + (uint32_t)rng_below(&rng, 9), width, height, &b, &s, NULL), 0);
        assert_true(s.width > 0 && s.height > 0 && s.width % b.edge == 0 && s.height % b.edge == 0);
        assert_true((uint64_t)s.width * s.height <= b.frame_pixels_max);
    }
}

TEST_MAIN()
