/* Refusals: over a limit, broken, cut short, hostile, cancelled; each with its message, and with every byte
 * returned. */
#include "test_rng.h"
#include "base/check.h"
#include "test_ledger.h"
#include "test_images.h"
#include "vision/decode.h"
#include "vision/image.h"
#include "vision/smart_size.h"
#include "vision/vp8l_groups.h"

#include <errno.h>
#include <string.h>

static const struct decode_limits usual = DECODE_LIMITS_DEFAULT;
static const struct smart_bounds bounds = {32, 4096, 1 << 20};

static const char *const small_ones[] = {
    "png_palette_16.png", "png_0_4_adam7.png",          "jpeg_low.jpg",          "jpeg_grey_progressive.jpg",
    "jpeg_turned_6.jpg",  "webp_palette.webp",          "webp_lossy_alpha.webp", "webp_animated_small.webp",
    "gif_animated.gif",   "gif_placed_transparent.gif",
};

static int decode(struct slice bytes, const struct decode_limits *limits, struct account *a, struct err *e)
{
    struct charge charge = account_charge(a);
    struct image *p = NULL;
    e->text[0] = 0;
    int r = decode_still(bytes, limits, &bounds, &charge, &p, e);
    assert_int_equal(p != NULL, r == 0);
    assert_int_equal(e->text[0] != 0, r < 0);
    image_unref(p);
    assert_int_equal(account_numbers(a).used, 0);
    return r;
}

static void refuses(struct slice bytes, int code, const char *words)
{
    struct err e = {{0}};
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    assert_int_equal(decode(bytes, &usual, a, &e), code);
    if (!strstr(e.text, words))
        fail_msg("not \"%s\": %s", words, e.text);
}

TEST(what_is_no_image_is_refused)
{
    refuses(SLICE(""), -EINVAL, "is empty");
    refuses(SLICE("<svg xmlns="), -EINVAL, "send PNG, JPEG, WebP or GIF");
    refuses(SLICE("BM......"), -EINVAL, "send PNG, JPEG, WebP or GIF");
    refuses(SLICE("\x89PNG\r\n\x1a\n"), -EINVAL, "the PNG image cannot be read");
    refuses(SLICE("\xff\xd8\xff\xd9"), -EINVAL, "the JPEG image cannot be read");
    refuses(SLICE("GIF89a"), -EINVAL, "the GIF image cannot be read: it ends early");
    refuses(SLICE("RIFF\x04\0\0\0WEBP"), -EINVAL, "the WebP image cannot be read");
    refuses(SLICE("RIFF\xff\xff\xff\xffWEBPVP8 \0\0\0\0"), -EINVAL, "it ends early");
}

/* A PNG's first 33 bytes: all that its size is read from. */
static struct slice png_head(uint8_t head[33], uint32_t width, uint32_t height)
{
    memcpy(head, "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\0\0\0\0\0\x08\x02\0\0\0\0\0\0\0", 33);
    for (int i = 0; i < 4; i++) {
        head[16 + i] = (uint8_t)(width >> (24 - 8 * i));
        head[20 + i] = (uint8_t)(height >> (24 - 8 * i));
    }
    return (struct slice){(char *)head, 33};
}

TEST(sizes_are_refused_by_the_header)
{
    uint8_t png[33];
    refuses(png_head(png, 65535, 65535), -E2BIG, "65535 x 65535 pixels, the limit is 32768 for each edge");
    refuses(png_head(png, 0x7fffffff, 1), -E2BIG, "the limit is 32768");
    refuses(png_head(png, 32768, 32768), -E2BIG, "= 1073741824 pixels, the limit is 64000000");
    refuses(png_head(png, 0, 7), -EINVAL, "it has no pixels: 0 x 7");
    refuses(png_head(png, 2010, 10), -EINVAL, "more than 200 times");
    refuses(png_head(png, 100, 100), -EINVAL, "the PNG image cannot be read: IHDR: CRC error");
    refuses(SLICE("\xff\xd8\xff\xc2\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01"), -E2BIG,
            "65535 x 65535");
    refuses(SLICE("GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x08"), -E2BIG, "65535 x 65535");
    refuses(SLICE("RIFF\x24\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff"
                  "VP8L\x06\0\0\0\x2f\xff\xff\xff\x0f\0"),
            -EINVAL, "does not fit its canvas of 16777216 x 16777216");
}

TEST(own_limits_are_kept)
{
    struct slice bytes = test_image("png_rgb.png"); /* 37 x 29 */
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct err e = {{0}};
    struct decode_limits l = usual;
    l.bytes_max = bytes.len;
    l.edge_max = 37;
    l.pixels_max = 37 * 29;
    assert_int_equal(decode(bytes, &l, a, &e), 0);
    l.bytes_max--;
    assert_int_equal(decode(bytes, &l, a, &e), -E2BIG);
    assert_non_null(strstr(e.text, "bytes, the limit is"));
    l.bytes_max++;
    l.edge_max--;
    assert_int_equal(decode(bytes, &l, a, &e), -E2BIG);
    l.edge_max++;
    l.pixels_max--;
    assert_int_equal(decode(bytes, &l, a, &e), -E2BIG);
    free((char *)bytes.ptr);
}

TEST(a_image_cut_anywhere_is_refused_or_whole)
{
    for (size_t i = 0; i < COUNT_OF(small_ones); i++) {
        struct slice bytes = test_image(small_ones[i]);
        struct account *a = test_account(ACCOUNT_NO_LIMIT);
        struct err e = {{0}};
        /* All of the first image of an animation may be there. */
        bool rest = strcmp(small_ones[i], "gif_animated.gif") == 0,
             trailer = slice_starts(bytes, SLICE("GIF"));
        for (size_t len = 0; len < bytes.len; len++) {
            char *cut = malloc(len + 1);
            assert_non_null(cut);
            memcpy(cut, bytes.ptr, len);
            int r = decode((struct slice){cut, len}, &usual, a, &e);
            if (r != -EINVAL && !(r == 0 && (rest || (trailer && len + 1 == bytes.len))))
                fail_msg("%s cut to %zu bytes: %d %s", small_ones[i], len, r, e.text);
            free(cut);
        }
        free((char *)bytes.ptr);
    }
}

PROPERTY(broken_bytes_end_in_words, seed)
{
    struct rng rng = {seed, 0};
    struct slice bytes = test_image(small_ones[seed % COUNT_OF(small_ones)]);
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct err e = {{0}};
    char *copy = malloc(bytes.len);
    assert_non_null(copy);
    for (int round = 0; round < 40; round++) {
        memcpy(copy, bytes.ptr, bytes.len);
        for (uint64_t n = 1 + rng_below(&rng, 4); n > 0; n--)
            copy[rng_below(&rng, bytes.len)] = (char)rng_next(&rng);
        int r = decode((struct slice){copy, bytes.len}, &usual, a, &e);
        assert_true(r == 0 || r == -EINVAL || r == -E2BIG);
    }
    free(copy);
    free((char *)bytes.ptr);
    test_ledger_after(true);
}

TEST(refused_memory_is_said_and_nothing_stays)
{
    for (size_t i = 0; i < COUNT_OF(small_ones); i++) {
        struct slice bytes = test_image(small_ones[i]);
        struct err e = {{0}};
        int r = -ENOMEM;
        uint64_t limit = 0;
        struct account *a = test_account(limit);
        for (; r < 0 && limit < 8 << 20; limit += 16 << 10) {
            account_set_limit(a, limit);
            r = decode(bytes, &usual, a, &e);
            assert_true(r == 0 || r == -ENOMEM);
        }
        assert_int_equal(r, 0);
        assert_true(limit < 1 << 20);
        free((char *)bytes.ptr);
    }
}

TEST(text_and_profiles_are_not_unpacked)
{
    struct slice bytes = test_image("png_bomb.png");
    struct account *a = test_account(1 << 20);
    struct err e = {{0}};
    assert_int_equal(decode(bytes, &usual, a, &e), 0);
    free((char *)bytes.ptr);
}

TEST(who_has_left_is_not_decoded_for)
{
    for (size_t i = 0; i < COUNT_OF(small_ones); i++) {
        struct slice bytes = test_image(small_ones[i]);
        struct account *a = test_account(ACCOUNT_NO_LIMIT);
        struct err e = {{0}};
        atomic_bool stop = true;
        struct decode_limits l = usual;
        l.stop = &stop;
        assert_int_equal(decode(bytes, &l, a, &e), -ECANCELED);
        stop = false;
        assert_int_equal(decode(bytes, &l, a, &e), 0);
        free((char *)bytes.ptr);
    }
}

/* The first scan of a progressive image, again and again: each costs as much time as all pixels. */
TEST(a_jpeg_of_many_scans_is_refused)
{
    struct slice bytes = test_image("jpeg_grey_progressive.jpg");
    size_t scan = slice_find(bytes, SLICE("\xff\xda"), 0),
           next = slice_find(bytes, SLICE("\xff\xda"), scan + 2);
    next = MIN_OF(next, slice_find(bytes, SLICE("\xff\xc4"), scan + 2));
    size_t scan_bytes = next - scan;
    char *many = malloc(bytes.len + 100 * scan_bytes);
    assert_non_null(many);
    memcpy(many, bytes.ptr, next);
    size_t len = next;
    for (int i = 0; i < 100; i++, len += scan_bytes)
        memcpy(many + len, bytes.ptr + scan, scan_bytes);
    memcpy(many + len, bytes.ptr + next, bytes.len - next);
    refuses((struct slice){many, len + bytes.len - next}, -EINVAL, "it has more than 100 scans");
    free(many);
    free((char *)bytes.ptr);
}

/* Cameras leave such bytes between segments; nothing of the image is missing. */
TEST(bytes_between_a_jpegs_segments_are_skipped)
{
    struct slice bytes = test_image("jpeg_turned_6.jpg");
    struct account *a = test_account(ACCOUNT_NO_LIMIT);
    struct err e = {{0}};
    size_t at = slice_find(bytes, SLICE("\xff\xdb"), 0); /* after the segments of metadata */
    char *longer = malloc(bytes.len + 3);
    assert_non_null(longer);
    memcpy(longer, bytes.ptr, at);
    memcpy(longer + at, "\0\x01\x02", 3);
    memcpy(longer + at + 3, bytes.ptr + at, bytes.len - at);
    if (decode((struct slice){longer, bytes.len + 3}, &usual, a, &e) < 0)
        fail_msg("%s", e.text);
    free(longer);
    free((char *)bytes.ptr);
}

/* 65,536 groups of codes in 23 bytes, for which libwebp would allocate a gigabyte. */
TEST(a_webp_of_many_groups_is_refused)
{
    struct err e = {{0}};
    uint8_t bits[24] = {0};
    size_t at = 0;
    const struct {
        uint32_t value;
        unsigned width;
    } fields[] = {
        {0x2f, 8},
        {1023, 14},
        {1023, 14},
        {0, 4}, /* signature, size, alpha, version */
        {0, 1},
        {0, 1},
        {1, 1},
        {0, 3}, /* no transform, no cache, groups for tiles of 4 x 4 */
        {0, 1}, /* no cache there */
        /* One symbol of 8 bits for green and red, so that every pixel is 0xffff, in no bits at all; one bit
           for the others. */
        {1, 1},
        {0, 1},
        {1, 1},
        {255, 8},
        {1, 1},
        {0, 1},
        {1, 1},
        {255, 8},
        {1, 1},
        {0, 3},
        {1, 1},
        {0, 3},
        {1, 1},
        {0, 3},
    };
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        for (unsigned j = 0; j < fields[i].width; j++, at++)
            bits[at / 8] |= (uint8_t)((fields[i].value >> j & 1) << at % 8);
    uint32_t groups = 0;
    assert_int_equal(vp8l_groups((struct slice){(char *)bits, sizeof(bits)}, &groups, &e), -EINVAL);
    assert_non_null(strstr(e.text, "65536 groups of codes, the limit is 4096"));
    char file[20 + sizeof(bits)] = "RIFF\x24\0\0\0WEBPVP8L\x18\0\0";
    memcpy(file + 20, bits, sizeof(bits));
    refuses((struct slice){file, sizeof(file)}, -EINVAL, "65536 groups");
}

TEST(groups_are_counted)
{
    struct slice bytes = test_image("webp_groups.webp"), one = test_image("webp_lossless.webp");
    uint32_t groups = 0;
    assert_int_equal(vp8l_groups(slice_sub(bytes, 20, SIZE_MAX), &groups, NULL), 0);
    assert_true(groups > 2);
    assert_int_equal(vp8l_groups(slice_sub(one, 20, SIZE_MAX), &groups, NULL), 0);
    for (size_t len = 0; len < 40; len++)
        assert_int_equal(vp8l_groups(slice_sub(bytes, 20, len), &groups, NULL), -EINVAL);
    free((char *)bytes.ptr);
    free((char *)one.ptr);
}

TEST_MAIN()
