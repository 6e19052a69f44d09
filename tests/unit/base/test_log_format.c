/* test_log_format.c - the forms of a line of the log. */
#include "base/log_format.h"
#include "test.h"

#include <jansson.h>
#include <string.h>

#define TIME "2026-01-02T03:04:05.678Z "

static size_t form(enum log_format f, bool colours, const char *rest, char ret[LOG_FORM_BYTES])
{
    char line[LOG_LINE_BYTES];
    snprintf(line, sizeof(line), "%s%s", TIME, rest);
    struct log_parts p = {LOG_LEVEL_WARN, 1767323045, line, strlen(line), strlen(TIME)};
    size_t len = log_format_write(f, colours, &p, ret);
    assert_true(len > 0 && len <= LOG_FORM_BYTES && ret[len - 1] == '\n');
    ret[len - 1] = 0;
    return len;
}

/* The member of a line as JSON. */
static void assert_member(const char *rest, const char *name, const char *value)
{
    char text[LOG_FORM_BYTES];
    form(LOG_FORMAT_JSON, false, rest, text);
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    const char *found = json_string_value(json_object_get(object, name));
    assert_non_null(found);
    assert_string_equal(found, value);
    json_decref(object);
}

TEST(json_has_each_pair_as_strings)
{
    const char *line =
        "level=warn event=e n=12 empty= words=\"a b\" path=C:\\x inner=\"say \"hi\", twice\" last=\"\"";
    assert_member(line, "time", "2026-01-02T03:04:05.678Z");
    assert_member(line, "level", "warn");
    assert_member(line, "event", "e");
    assert_member(line, "n", "12");
    assert_member(line, "empty", "");
    assert_member(line, "words", "a b");
    assert_member(line, "path", "C:\\x");
    assert_member(line, "inner", "say \"hi\", twice");
    assert_member(line, "last", "");
    assert_member("event=e words alone", "text", "alone");
    assert_member("event=e cut=\"in a val", "cut", "in a val");
}

TEST(json_of_any_line_is_json)
{
    static const char *const pieces[] = {"=", "\"", "\\", " ", "a", "a=\"", "\" ", "==", "\xc3\xa4"};
    for (uint32_t seed = 1; seed < 3000; seed++) {
        char rest[LOG_LINE_BYTES - sizeof(TIME)] = "", text[LOG_FORM_BYTES];
        for (uint32_t draw = seed * 2654435761u, i = 0; i < seed % 900;
             i++, draw = draw * 1664525u + 1013904223u) {
            const char *piece = pieces[(draw >> 16) % (sizeof(pieces) / sizeof(pieces[0]))];
            if (strlen(rest) + strlen(piece) + 1 < sizeof(rest))
                strcat(rest, piece);
        }
        form(LOG_FORMAT_JSON, false, rest, text);
        json_t *object = json_loads(text, 0, NULL);
        assert_true(json_is_object(object));
        json_decref(object);
    }
}

TEST(the_journal_has_the_priority_and_no_time)
{
    char text[LOG_FORM_BYTES];
    form(LOG_FORMAT_JOURNAL, false, "level=warn event=e n=1", text);
    assert_string_equal(text, "<4>level=warn event=e n=1");
}

TEST(a_terminal_has_a_short_line)
{
    char text[LOG_FORM_BYTES];
    setenv("TZ", "UTC", 1);
    form(LOG_FORMAT_PEOPLE, false, "level=warn event=e n=1", text);
    assert_string_equal(text, "03:04:05 warn e n=1");
    form(LOG_FORMAT_PEOPLE, true, "level=warn event=e n=1", text);
    assert_non_null(strstr(text, "\033[33mwarn \033[1me\033[0m n=1"));
}

TEST(text_is_the_line)
{
    char text[LOG_FORM_BYTES];
    form(LOG_FORMAT_TEXT, false, "level=warn event=e n=1", text);
    assert_string_equal(text, TIME "level=warn event=e n=1");
}

TEST_MAIN()
