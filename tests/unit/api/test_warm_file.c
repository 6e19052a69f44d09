/* The requests of a --warm file: where each begins and ends, and whose dialect it is. */
#include "test.h"
#include "api/warm_file.h"

#include <errno.h>
#include <string.h>

TEST(requests_take_a_line_or_several)
{
    const struct slice text =
        SLICE("\n{\"prompt\": \"a } \\\" \\\\\"}  {\"n\": [{}, {\"x\": \"]{\"}]}\r\n\n{\n\"a\":\n{}}\n");
    struct warm_file_at at = {0};
    struct warm_request r;
    struct err e = {{0}};
    const uint32_t lines[] = {2, 2, 4};
    const char *const bodies[] = {"{\"prompt\": \"a } \\\" \\\\\"}", "{\"n\": [{}, {\"x\": \"]{\"}]}",
                                  "{\n\"a\":\n{}}"};
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        assert_int_equal(warm_file_next(text, &at, &r, &e), 1);
        assert_int_equal(r.line, lines[i]);
        assert_true(slice_eq(r.body, slice_of(bodies[i])));
    }
    assert_int_equal(warm_file_next(text, &at, &r, &e), 0);
    assert_int_equal(warm_file_next(text, &at, &r, &e), 0);
}

TEST(what_is_no_request_is_named_by_its_line)
{
    const struct {
        const char *text, *words;
    } cases[] = {{"{}\n[1]", "line 2: a request is a JSON object"},
                 {"\n\n{\"a\": {}", "line 3: the JSON object that begins here has no end"},
                 {"{\"a", "line 1: the JSON object that begins here has no end"},
                 {"{\"a\\", "line 1: the JSON object that begins here has no end"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct warm_file_at at = {0};
        struct warm_request r;
        struct err e = {{0}};
        int got;
        while ((got = warm_file_next(slice_of(cases[i].text), &at, &r, &e)) > 0)
            ;
        assert_int_equal(got, -EINVAL);
        assert_non_null(strstr(e.text, cases[i].words));
    }
}

TEST(fields_say_the_dialect)
{
    const struct {
        const char *body;
        enum warm_dialect dialect;
    } cases[] = {{"{\"messages\": []}", WARM_CHAT},
                 {"{\"messages\": [], \"tools\": [{\"function\": {}}]}", WARM_CHAT},
                 {"{\"messages\": [], \"ttl\": \"1h\"}", WARM_SESSION},
                 {"{\"messages\": [], \"follow\": false}", WARM_SESSION},
                 {"{\"messages\": [], \"system\": \"x\"}", WARM_MESSAGES},
                 {"{\"messages\": [], \"tools\": [{\"input_schema\": {}}]}", WARM_MESSAGES},
                 {"{\"messages\": [{\"content\": [{\"cache_control\": {}}]}]}", WARM_MESSAGES},
                 {"{\"input\": \"x\"}", WARM_RESPONSES},
                 {"{\"prompt\": \"x\"}", WARM_COMPLETION}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        json_t *parsed = json_loads(cases[i].body, 0, NULL);
        assert_int_equal(warm_file_dialect(slice_of(cases[i].body), parsed), cases[i].dialect);
        json_decref(parsed);
    }
}

TEST_MAIN()
