/* Decoding: what Pillow sees in every kind of picture, turned or not; limits; what is broken; and that no byte stays charged. */
#include "vision/decode.h"
#include "base/check.h"
#include "test_ledger.h"
#include "test_pictures.h"

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

/* The picture resized to that size; NULL where decoding failed with `expected`. */
static struct picture *decoded(struct scene *s, struct slice bytes, uint32_t width, uint32_t height,
                               int expected)
{
    struct picture *p = NULL;
    assert_int_equal(picture_create(width, height, 1, &s->charge, &p), 0);
    s->e.text[0] = 0;
    int r = decode_frame(p, 0, bytes, &usual, &s->charge, &s->e);
    if (r != expected)
        fail_msg("%d, not %d: %s", r, expected, s->e.text);
    assert_int_equal(s->e.text[0] != 0, r < 0);
    if (r == 0)
        return p;
    picture_let_go(p);
    return NULL;
}

static void compare(const char *name, const struct picture *p, const char *expected)
{
    char found[65];
    test_sha256(p->pixels, picture_frame_bytes(p->width, p->height), found);
    if (strcmp(found, expected) != 0)
        fail_msg("%s at %ux%u has other pixels than Pillow sees", name, p->width, p->height);
}

TEST(pixels_are_pillows)
{
    struct scene s = scene_of(ACCOUNT_NO_LIMIT);
    FILE *table = test_picture_table("expected.txt");
    char name[64], whole[65], small[65];
    unsigned w, h, small_w, small_h, count = 0;
    while (fscanf(table, "%63s %u %u %64s %u %u %64s", name, &w, &h, whole, &small_w, &small_h, small) == 7) {
        struct slice bytes = test_picture(name);
        struct decode_info info;
        assert_int_equal(decode_measure(bytes, &usual, &info, &s.e), 0);
        assert_int_equal(info.width, w);
        assert_int_equal(info.height, h);
        struct picture *p = decoded(&s, bytes, w, h, 0);
        compare(name, p, whole);
        picture_let_go(p);
        p = decoded(&s, bytes, small_w, small_h, 0);
        compare(name, p, small);
        picture_let_go(p);
        free((char *)bytes.ptr);
        count++;
    }
    assert_true(count > 65);
    fclose(table);
}

TEST_MAIN()
