/* Lines of the log, whatever bytes are to be in them: valid UTF-8 without control characters, and as long as
 * before. */
#include "test_rng.h"
#include "test.h"
#include "base/log_mask.h"
#include "unicode/utf8.h"

#include <string.h>

static void assert_masked(const char *line, const char *expected)
{
    char text[256];
    size_t len = strlen(line);
    memcpy(text, line, len + 1);
    log_mask(text, len);
    assert_string_equal(text, expected);
}

TEST(text_stays_as_it_is)
{
    assert_masked("", "");
    assert_masked("model=a b=\"c d\" ~", "model=a b=\"c d\" ~");
    assert_masked("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\xa0 \xef\xbb\xbf",
                  "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x99\x82 \xc2\xa0 \xef\xbb\xbf");
}

TEST(controls_are_masked)
{
    assert_masked("a\nb\tc\x1b[31m\x7f", "a b c [31m?");
    assert_masked("\x9b"
                  "31mX",
                  "?31mX");
    assert_masked("\xc2\x9b"
                  "31mX \xc2\x80 \xc2\x9f",
                  "??31mX ?? ??");
    assert_masked("\xe2\x80\xa8 \xe2\x80\xae \xe2\x81\xa6 \xe2\x80\xa7", "??? ??? ??? \xe2\x80\xa7");
}

TEST(what_is_no_utf8_is_masked)
{
    assert_masked("\xff\xfe \x80 \xc3", "?? ? ?");
    assert_masked("\xc0\xaf \xe0\x80\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xf5\x80\x80\x80",
                  "?? ??? ??? ???? ????");
    assert_masked("\xe2\x82 \xf0\x9f\x99", "?? ???");
}

PROPERTY(any_bytes_become_valid_text, seed)
{
    struct rng rng = {seed, 0};
    char line[200];
    for (size_t i = 0; i < sizeof(line); i++)
        line[i] = (char)(rng_next(&rng) % 4 == 0 ? 0xc2 + rng_next(&rng) % 50 : 0x70 + rng_next(&rng) % 0x90);
    log_mask(line, sizeof(line));
    for (size_t i = 0; i < sizeof(line);) {
        struct utf8_char c = utf8_at((struct slice){line, sizeof(line)}, i);
        assert_true(c.valid && c.code >= 0x20 && !(c.code >= 0x7f && c.code < 0xa0));
        i += c.bytes;
    }
}

TEST_MAIN()
