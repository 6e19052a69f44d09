/* The inputs of a page's key. */
#include "test.h"

#include "base/check.h"
#include "base/page_tokens.h"
#include "cache/page_pool.h"
#include "cache/prefix_key.h"

#include <stdio.h>

static uint32_t tokens[PAGE_TOKENS];

static struct prefix_key root(void)
{
    for (uint32_t i = 0; i < PAGE_TOKENS; i++)
        tokens[i] = i * 7;
    return prefix_key_root(&SLICE("model"), 1);
}

static struct prefix_image image(uint32_t first, uint32_t rows, uint32_t columns)
{
    struct prefix_image p = {.first = first, .rows = rows, .columns = columns};
    for (uint8_t i = 0; i < sizeof(p.sha256); i++)
        p.sha256[i] = i;
    return p;
}

static struct prefix_key key_of(const struct prefix_image *images, uint32_t count)
{
    struct prefix_key parent = root();
    return prefix_key_next(&parent, tokens, images, count);
}

static void expect_hex(const struct prefix_key *key, const char *hex)
{
    char text[65];
    for (size_t i = 0; i < sizeof(key->bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", key->bytes[i]);
    assert_string_equal(text, hex);
}

/* Entries on disk are found again only while these stay the same. */
TEST(keys_are_sha_256_of_parent_tokens_and_images)
{
    struct prefix_key first = key_of(NULL, 0);
    struct prefix_image p = image(40, 3, 5);
    struct prefix_key second = prefix_key_next(&first, tokens, &p, 1);
    expect_hex(&first, "7e1f98c39e38363979dc9f6de276ab6858fee764fe06d6fdc0878ac34066c1dd");
    expect_hex(&second, "b4427451b082050287049c2a74cfe4ff935f3ad0b4c2e01017ee8959fcad218c");
}

TEST(every_byte_of_a_image_and_its_place_and_shape_count)
{
    struct prefix_image p = image(4, 3, 5);
    struct prefix_key with = key_of(&p, 1), without = key_of(NULL, 0);
    assert_false(prefix_key_eq(&with, &without));
    for (size_t i = 0; i < sizeof(p.sha256); i++) {
        p = image(4, 3, 5);
        p.sha256[i] ^= 1;
        struct prefix_key other = key_of(&p, 1);
        assert_false(prefix_key_eq(&with, &other));
    }
    const struct prefix_image others[] = {image(5, 3, 5), image(4, 5, 3), image(4, 15, 1)};
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        struct prefix_key other = key_of(&others[i], 1);
        assert_false(prefix_key_eq(&with, &other));
    }
    p = image(4, 3, 5);
    struct prefix_key again = key_of(&p, 1);
    assert_true(prefix_key_eq(&with, &again));
}

TEST(the_order_of_images_counts)
{
    struct prefix_image a = image(2, 2, 2), b = image(8, 2, 2);
    b.sha256[31] = 0;
    struct prefix_image ab[] = {a, b}, ba[] = {b, a};
    ba[0].first = 2;
    ba[1].first = 8;
    struct prefix_key one = key_of(ab, 2), two = key_of(ba, 2), first = key_of(ab, 1);
    assert_false(prefix_key_eq(&one, &two));
    assert_false(prefix_key_eq(&one, &first));
}

TEST(what_follows_a_image_depends_on_it)
{
    struct prefix_image p = image(4, 2, 2);
    struct prefix_key one = key_of(&p, 1);
    p.sha256[0] ^= 128;
    struct prefix_key two = key_of(&p, 1);
    one = prefix_key_next(&one, tokens, NULL, 0);
    two = prefix_key_next(&two, tokens, NULL, 0);
    assert_false(prefix_key_eq(&one, &two));
}

TEST_MAIN()
