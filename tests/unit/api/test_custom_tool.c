/* test_custom_tool.c - custom tools of chats, as templates see them. */
#include "test_parsed.h"

#include "api/request/request.h"
#include "api/wire/wire.h"

static const struct request_limits limits = {.json_depth_max = 16, .choices_max = 8, .texts_max = 8};

static struct parsed *parse(const char *body)
{
    return test_parse(&wire_chat.form, slice_of(body), &limits);
}

static const char *text_of(const json_t *v, const char *name)
{
    return json_string_value(json_object_get(v, name));
}

#define CUSTOM                                                                                               \
    "{\"type\":\"custom\",\"custom\":{\"name\":\"c\",\"format\":{\"type\":\"grammar\",\"grammar\":{"         \
    "\"syntax\":"                                                                                            \
    "\"regex\",\"definition\":\"a+\"}}}}"

TEST(custom_tools_and_their_calls_become_those_of_functions)
{
    struct parsed *p = parse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\","
                             "\"tool_calls\":[{\"id\":\"1\",\"type\":\"custom\",\"custom\":{\"name\":\"c\","
                             "\"input\":\"x\"}}]}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
                             "\"f\"}}," CUSTOM "]}");
    assert_true(p->ok);
    const json_t *call =
        json_array_get(json_object_get(json_array_get(p->request.gen.messages, 1), "tool_calls"), 0);
    const json_t *tool = json_array_get(p->request.gen.tools, 1), *function, *input;
    assert_string_equal(text_of(call, "type"), "function");
    assert_null(json_object_get(call, "custom"));
    input = json_object_get(json_object_get(json_object_get(call, "function"), "arguments"), "input");
    assert_string_equal(json_string_value(input), "x");
    assert_string_equal(text_of(tool, "type"), "function");
    assert_int_equal(json_object_size(tool), 2);
    function = json_object_get(tool, "function");
    assert_string_equal(text_of(function, "name"), "c");
    input = json_object_get(json_object_get(json_object_get(function, "parameters"), "properties"), "input");
    assert_string_equal(text_of(input, "pattern"), "^(?:a+)$");
    assert_true(request_is_custom(&p->request, SLICE("c")));
    assert_false(request_is_custom(&p->request, SLICE("f")));
    assert_int_equal(json_object_size(p->request.gen.calls.strict), 1);
    done(p);
}

TEST(a_tool_without_a_grammar_is_held_to_its_text)
{
    struct parsed *p = parse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":"
                             "\"custom\",\"custom\":{\"name\":\"t\"}}," CUSTOM "]}");
    assert_true(p->ok);
    assert_true(json_is_false(json_object_get(p->request.gen.calls.strict, "t")));
    assert_true(json_is_true(json_object_get(p->request.gen.calls.strict, "c")));
    done(p);
}

TEST(two_tools_of_one_name_are_refused)
{
    struct parsed *p =
        parse("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[" CUSTOM "," CUSTOM "]}");
    assert_false(p->ok);
    assert_string_equal(p->why.param, "tools");
    assert_non_null(strstr(p->why.message, "another tool"));
    done(p);
}

TEST_MAIN()
