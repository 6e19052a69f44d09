/* Tools and their results as text, for templates that know neither. */
#include "test.h"

#include "chat/chat_generic.h"
#include "template/chat_cuts.h"

#include <string.h>

#define SYSTEM    "{\"role\":\"system\",\"content\":\"Be brief.\"}"
#define USER      "{\"role\":\"user\",\"content\":\"Hi\"}"
#define ASSISTANT "{\"role\":\"assistant\",\"content\":\"a call\"}"
#define RESULT    "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"3 \\u0001 files\"}"
#define RESULTS                                                                                              \
    "{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"text\",\"text\":\"y\"}]" \
    "}"
#define IMAGE "{\"role\":\"tool\",\"content\":[{\"type\":\"image\"}]}"
#define TOOLS "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]"

static json_t *json_of(const char *text)
{
    json_error_t e;
    json_t *v = json_loads(text, 0, &e);
    if (!v)
        fail_msg("%s: %s", e.text, text);
    return v;
}

struct made {
    json_t *list;
    struct chat_mark marks[3];
};

static struct made make(const char *messages, const char *tools, bool without_system)
{
    struct made m = {.marks = {{0, SIZE_MAX}, {2, SIZE_MAX}, {3, 1}}};
    json_t *given = json_of(messages), *before = json_deep_copy(given),
           *offered = tools ? json_of(tools) : NULL;
    struct chat_generic_opts opts = {
        .tools = offered, .without_system = without_system, .marks = m.marks, .mark_count = 3};
    assert_int_equal(chat_generic_messages(given, &opts, &m.list), 0);
    assert_true(json_equal(given, before)); /* it can be rendered again */
    json_decref(given);
    json_decref(before);
    json_decref(offered);
    return m;
}

static void is(const struct made *m, size_t index, const char *role, const char *begins, const char *ends)
{
    const json_t *message = json_array_get(m->list, index);
    const char *text = json_string_value(json_object_get(message, "content"));
    assert_string_equal(json_string_value(json_object_get(message, "role")), role);
    assert_non_null(text);
    assert_true(strncmp(text, begins, strlen(begins)) == 0);
    assert_true(strlen(text) >= strlen(ends) && strcmp(text + strlen(text) - strlen(ends), ends) == 0);
}

TEST(tools_stand_behind_what_the_system_says)
{
    struct made m = make("[" SYSTEM "," USER "]", TOOLS, false);
    assert_int_equal(json_array_size(m.list), 2);
    is(&m, 0, "system", "Be brief.\n\n# Tools\n", "</tool_call>");
    assert_non_null(
        strstr(json_string_value(json_object_get(json_array_get(m.list, 0), "content")),
               "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}\n"
               "</tools>"));
    assert_int_equal(m.marks[1].message, 2);
    json_decref(m.list);
}

TEST(a_message_of_the_system_is_added_where_there_is_none)
{
    struct made m = make("[" USER "]", TOOLS, false);
    assert_int_equal(json_array_size(m.list), 2);
    is(&m, 0, "system", "# Tools\n", "</tool_call>");
    is(&m, 1, "user", "Hi", "Hi");
    assert_int_equal(m.marks[0].message, 1); /* the mark keeps to its message */
    json_decref(m.list);
    m = make("[" USER "]", NULL, false);
    assert_int_equal(json_array_size(m.list), 1);
    assert_int_equal(m.marks[0].message, 0);
    json_decref(m.list);
    m = make("[" USER "]", "[]", false);
    assert_int_equal(json_array_size(m.list), 1);
    json_decref(m.list);
}

TEST(results_become_one_turn_of_the_user)
{
    struct made m =
        make("[" USER "," ASSISTANT "," RESULT "," RESULT "," USER "," ASSISTANT "]", NULL, false);
    assert_int_equal(json_array_size(m.list), 4);
    is(&m, 2, "user", "<tool_response>\n3 \x01 files\n</tool_response>\n\n<tool_response>\n",
       "</tool_response>\n\nHi");
    is(&m, 3, "assistant", "a call", "a call");
    assert_int_equal(m.marks[1].message, 2);
    assert_int_equal(m.marks[2].message, 2);
    assert_true(m.marks[2].bytes == SIZE_MAX); /* its text stands at another place now */
    json_decref(m.list);
}

static const char *text_at(const json_t *parts, size_t at)
{
    return json_string_value(json_object_get(json_array_get(parts, at), "text"));
}

/* A template that takes texts puts a line feed between parts: marks and texts are one part. */
TEST(results_of_parts_keep_them)
{
    struct made m = make("[" USER "," ASSISTANT "," RESULTS "," RESULT "," IMAGE "]", NULL, false);
    const json_t *parts = json_object_get(json_array_get(m.list, 2), "content");
    assert_int_equal(json_array_size(m.list), 3);
    assert_int_equal(json_array_size(parts), 4);
    assert_string_equal(text_at(parts, 0), "<tool_response>\nx");
    assert_string_equal(text_at(parts, 1), "y\n</tool_response>\n\n<tool_response>\n3 \x01 files\n"
                                           "</tool_response>\n\n<tool_response>\n");
    assert_null(text_at(parts, 2));
    assert_string_equal(text_at(parts, 3), "\n</tool_response>");
    json_decref(m.list);
}

TEST(turns_of_the_user_alone_do_not_join)
{
    struct made m = make("[" USER "," USER "]", NULL, false);
    assert_int_equal(json_array_size(m.list), 2);
    json_decref(m.list);
}

TEST(a_template_without_the_role_gets_the_tools_in_the_first_turn)
{
    struct made m = make("[" SYSTEM "," USER "," ASSISTANT "]", TOOLS, true);
    assert_int_equal(json_array_size(m.list), 2);
    is(&m, 0, "user", "Be brief.\n\n# Tools\n", "</tool_call>\n\nHi");
    json_decref(m.list);
    m = make("[" ASSISTANT "]", TOOLS, true);
    assert_int_equal(json_array_size(m.list), 2);
    is(&m, 0, "user", "# Tools\n", "</tool_call>");
    json_decref(m.list);
}

TEST_MAIN()
