/* Text of clients, as one word of a line in the log. */
#include "test.h"
#include "api/access/audit.h"

#include <string.h>

static void assert_word(const char *text, size_t bytes_max, const char *expected)
{
    char word[64];
    memset(word, 'x', sizeof(word));
    audit_word(slice_of(text), word, bytes_max);
    assert_string_equal(word, expected);
}

TEST(a_word_is_visible_ascii)
{
    assert_word("/v1/models/a-b~/load", 64, "/v1/models/a-b~/load");
    assert_word("/a b\"c\\d\ne\x1b\x7f", 64, "/a?b?c?d?e??");
    assert_word("/\x9b"
                "31mX/\xc3\xa9",
                64, "/%9b31mX/%c3%a9");
}

TEST(a_word_is_cut_between_characters)
{
    assert_word("abcdef", 4, "abc");
    assert_word("ab\xff", 5, "ab");
    assert_word("ab\xff", 6, "ab%ff");
    assert_word("", 1, "");
}

TEST_MAIN()
