/* Rotations of positions: angles, and the widest head. */
#include "test.h"

#include "model/config/config.h"

#include <math.h>

static void expect_plain(uint32_t rot)
{
    uint32_t section = rot / 6 + 1; /* frequencies of each axis: all have one */
    struct rope_config c = {
        .rot = rot, .theta = 10000, .interleaved = true, .sections = {section, section, section}};
    struct rope r;
    float cosines[CONFIG_HEAD_DIM_MAX / 2], sines[CONFIG_HEAD_DIM_MAX / 2];
    config_rope_init(&r, &c);
    assert_int_equal(r.half, rot / 2);
    assert_true(r.inv_freq[0] == 1 && r.magnitude == 1);
    for (uint32_t j = 0; j < rot / 2; j++)
        assert_int_equal(r.axis[j], j % 3);
    for (uint32_t position = 0; position < 3000; position += 999) {
        rope_at(&r, rope_text(position), cosines, sines);
        for (uint32_t j = 0; j < rot / 2; j++) {
            double angle = position * pow(c.theta, -2.0 * j / rot);
            assert_true(fabs(cosines[j] - cos(angle)) < 1e-3 && fabs(sines[j] - sin(angle)) < 1e-3);
        }
    }
}

TEST(every_width_up_to_the_widest_head_has_plain_angles)
{
    for (uint32_t rot = 2; rot <= CONFIG_HEAD_DIM_MAX; rot += 2)
        expect_plain(rot);
}

TEST(sections_may_follow_one_another)
{
    static const uint8_t axes[8] = {0, 0, 0, 0, 1, 1, 2, 2};
    struct rope_config c = {.rot = 16, .theta = 10000, .sections = {4, 2, 2}};
    struct rope r;
    config_rope_init(&r, &c);
    assert_memory_equal(r.axis, axes, sizeof(axes));
    c.sections[0] = c.sections[1] = c.sections[2] = 0;
    config_rope_init(&r, &c);
    assert_int_equal(r.axis[7], 0);
}

TEST_MAIN()
