/* The bytes of messages; tests/api/test_kv_events.py reads them with msgpack. */
#include "test.h"

#include "events/kv_message.h"

#include "base/check.h"

static uint8_t bytes[KV_MESSAGE_BYTES];

TEST(a_clear_is_these_bytes)
{
    const struct prefix_event e = {.kind = PREFIX_CLEARED};
    static const uint8_t want[] = "\xdd\0\0\0\3\xcb\x3f\xf8\0\0\0\0\0\0\xdd\0\0\0\1\x81\xa4type\xb0"
                                  "AllBlocksCleared\0";
    assert_int_equal(kv_message_write(&e, 1, 1.5, bytes), sizeof(want) - 1);
    assert_memory_equal(bytes, want, sizeof(want) - 1);
}

TEST(a_removal_names_its_pages_and_their_group)
{
    const struct prefix_event e[] = {{.kind = PREFIX_REMOVED, .hash = 0x0102030405060708},
                                     {.kind = PREFIX_REMOVED, .hash = 9}};
    static const uint8_t want[] = "\xdd\0\0\0\3\xcb\0\0\0\0\0\0\0\0\xdd\0\0\0\1\x84\xa4type\xac"
                                  "BlockRemoved\xac"
                                  "block_hashes"
                                  "\xdd\0\0\0\2\xcf\1\2\3\4\5\6\7\x08\x09\xa6medium\xa3GPU\xa9group_idx\0\0";
    assert_int_equal(kv_message_write(e, 2, 0, bytes), sizeof(want) - 1);
    assert_memory_equal(bytes, want, sizeof(want) - 1);
}

/* Counts the places where the text stands. */
static uint32_t count_of(size_t len, const char *text)
{
    uint32_t count = 0;
    for (size_t i = 0; i + strlen(text) <= len; i++)
        count += memcmp(bytes + i, text, strlen(text)) == 0;
    return count;
}

TEST(pages_that_follow_each_other_are_one_event)
{
    struct prefix_event e[4] = {{PREFIX_STORED, 5, 0, {0}},
                                {PREFIX_STORED, 6, 5, {0}},
                                {PREFIX_STORED, 7, 5, {0}},
                                {PREFIX_REMOVED, 7, 0, {0}}};
    size_t len = kv_message_write(e, 4, 0, bytes);
    assert_int_equal(count_of(len, "BlockStored"), 2);
    assert_int_equal(count_of(len, "BlockRemoved"), 1);
    assert_int_equal(bytes[18], 3);
}

TEST(the_largest_message_fits)
{
    static struct prefix_event e[KV_MESSAGE_RECORDS];
    for (uint32_t i = 0; i < COUNT_OF(e); i++) {
        e[i] = (struct prefix_event){.kind = PREFIX_STORED, .hash = UINT64_MAX - i, .parent = UINT64_MAX};
        memset(e[i].tokens, 0xff, sizeof(e[i].tokens));
    }
    e[0].parent = 1; /* all but the second follow none */
    size_t len = kv_message_write(e, COUNT_OF(e), 0, bytes);
    assert_int_equal(count_of(len, "BlockStored"), KV_MESSAGE_RECORDS - 1);
    assert_true(len < KV_MESSAGE_BYTES);
}

TEST_MAIN()
