/* test_responses.c - OpenAI's Responses: bodies to conversations and tools, sealed reasoning. */
#include "test_parsed.h"

#include "api/reasoning_seal.h"
#include "api/wire/responses.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "base/json/json_write.h"

static const struct request_limits limits = {.json_depth_max = 32, .choices_max = 8};

static struct parsed *parse(const char *fields)
{
    char body[4096];
    snprintf(body, sizeof(body), "{%s}", fields);
    return test_parse(&wire_responses.form, slice_of(body), &limits);
}

static void expect_json(const json_t *value, const char *text)
{
    struct buf got;
    buf_init(&got, 8192, NULL);
    json_write_value(&got, value);
    buf_putc(&got, 0);
    assert_string_equal(got.ptr, text);
    buf_done(&got);
}

static void expect(const char *fields, const char *messages)
{
    struct parsed *p = parse(fields);
    if (!p->ok)
        fail_msg("%s: refused: %s", fields, p->why.message);
    expect_json(p->request.gen.messages, messages);
    done(p);
}

static void expect_refusal(const char *fields, const char *param)
{
    struct parsed *p = parse(fields);
    assert_false(p->ok);
    assert_string_equal(p->why.param, param);
    done(p);
}

#define SAYS(role, words) "{\"role\":\"" role "\",\"content\":\"" words "\"}"

TEST(instructions_and_leading_messages_of_the_developer_become_one)
{
    expect("\"input\":\"a\"", "[" SAYS("user", "a") "]");
    expect("\"instructions\":\"i\",\"input\":[" SAYS("developer", "d") "," SAYS("user", "a") "," SAYS(
               "developer", "e") "]",
           "[" SAYS("system", "i\\n\\nd") "," SAYS("user", "a") "," SAYS("system", "e") "]");
}

/* A template that reads strings gets a line feed between them. */
TEST(texts_of_one_message_stay_apart)
{
#define PART(type, words) "{\"type\":\"" type "\",\"text\":\"" words "\"}"
    expect(
        "\"instructions\":\"i\",\"input\":[{\"role\":\"developer\",\"content\":[" PART("input_text", "d") "," PART(
            "input_text",
            "e") "]},{\"role\":\"user\",\"content\":[" PART("input_text",
                                                            "a") "," PART("input_text",
                                                                          "b") "]},{\"role\":"
                                                                               "\"assistant\",\"content\":"
                                                                               "[" PART(
                                                                                   "output_text",
                                                                                   "c") "," PART("out"
                                                                                                 "put"
                                                                                                 "_te"
                                                                                                 "xt",
                                                                                                 "d") "]}]",
        "[{\"role\":\"system\",\"content\":[" PART("text", "i\\n\\nd") "," PART(
            "text", "e") "]},{\"role\":\"user\",\"content\":[" PART("text",
                                                                    "a") "," PART("text",
                                                                                  "b") "]}," SAYS("assistant",
                                                                                                  "cd") "]");
#undef PART
}

TEST(items_of_the_assistant_become_one_turn)
{
    expect("\"input\":[" SAYS(
               "user", "q") ",{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[],\"content\":[{\"type\":"
                            "\"reasoning_text\",\"text\":\"r\"}]},{\"type\":\"message\",\"role\":"
                            "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"t\"}]},{"
                            "\"type\":\"function_call\",\"call_id\":\"1\",\"name\":\"f\",\"arguments\":"
                            "\"{\\\"x\\\":1}\"},{\"type\":\"custom_tool_call\",\"call_id\":\"2\",\"name\":"
                            "\"g\",\"input\":\"p\"},{\"type\":\"function_call_output\",\"call_id\":\"1\","
                            "\"output\":\"o\"},{\"type\":\"custom_tool_call_output\",\"call_id\":\"2\","
                            "\"output\":[{\"type\":\"input_text\",\"text\":\"s\"}]}]",
           "[" SAYS(
               "user",
               "q") ",{\"role\":\"assistant\",\"content\":\"t\",\"reasoning_content\":\"r\",\"tool_calls\":["
                    "{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}"
                    "}},{\"id\":\"2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{"
                    "\"input\":\"p\"}}}]},{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"o\","
                    "\"name\":\"f\"},{\"role\":\"tool\",\"tool_call_id\":\"2\",\"content\":\"s\",\"name\":"
                    "\"g\"}]");
}

TEST(items_of_other_servers_are_dropped)
{
    struct parsed *p = parse("\"input\":[" SAYS(
        "user", "q") ",{\"type\":\"web_search_call\",\"id\":\"w\"},{\"type\":\"reasoning\",\"summary\":[],"
                     "\"encrypted_content\":\"gAAA\"}],\"tools\":[{\"type\":\"web_search\"}]");
    assert_true(p->ok);
    expect_json(p->request.gen.messages, "[" SAYS("user", "q") "]");
    assert_string_equal(p->request.ignored, "tools.web_search, input.web_search_call");
    assert_null(p->request.gen.tools);
    done(p);
}

#define FUNCTION(name, schema)                                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" schema "}}"
#define NOTHING "{\"type\":\"object\",\"properties\":{}}"
#define TOOLS                                                                                                \
    "\"input\":\"a\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"custom\",\"name\":\"g\"}" \
    ",{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":\"h\"}]}]"

TEST(tools_become_functions)
{
    const char *space;
    struct parsed *p = parse(TOOLS);
    assert_true(p->ok);
    expect_json(p->request.gen.tools,
                "[" FUNCTION("f", NOTHING) "," FUNCTION(
                    "g", "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
                         "\"required\":[\"input\"]}") "," FUNCTION("n__h", NOTHING) "]");
    assert_non_null(responses_find_tool(&p->request, SLICE("n__h"), &space));
    assert_string_equal(space, "n");
    assert_null(responses_find_tool(&p->request, SLICE("h"), &space));
    done(p);
    p = parse(TOOLS ",\"tool_choice\":\"none\"");
    assert_true(p->ok && !p->request.gen.tools);
    done(p);
    p = parse(TOOLS ",\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":"
                    "\"function\",\"name\":\"f\"}]}");
    assert_true(p->ok);
    expect_json(p->request.gen.tools, "[" FUNCTION("f", NOTHING) "]");
    done(p);
}

#define SEARCH       "{\"type\":\"tool_search\",\"execution\":\"client\"}"
#define CALLED(name) "{\"type\":\"function\",\"name\":\"" name "\",\"defer_loading\":true}"

static void expect_names(const json_t *tools, const char *names)
{
    char got[256] = "";
    size_t i;
    const json_t *tool;
    json_array_foreach(tools, i, tool) {
        strcat(got, json_string_value(json_object_get(json_object_get(tool, "function"), "name")));
        strcat(got, " ");
    }
    assert_string_equal(got, names);
}

TEST(items_bring_tools_where_they_stand)
{
    const char *space;
    struct parsed *p = parse("\"tools\":[" CALLED("a") "," SEARCH "],\"input\":[" SAYS(
        "user", "q") ",{\"type\":\"tool_search_call\","
                     "\"call_id\":\"1\",\"arguments\":{\"x\":1}},{\"type\":\"tool_search_output\",\"call_"
                     "id\":\"1\",\"tools\":[" CALLED(
                         "a") "]},{\"type\":\"tool_search_output\",\"call_id\":\"2\",\"tools\":[]},{\"type\":"
                              "\"additional_tools\",\"tools\":[" CALLED(
                                  "b") ",{\"type\":\"custom\",\"name\":\"c\"}]}]");
    assert_true(p->ok);
    expect_names(p->request.gen.head_tools, "tool_search ");
    expect_names(p->request.gen.tools, "tool_search a b c ");
    assert_true(responses_is_search(&p->request, SLICE("tool_search")));
    assert_false(responses_is_search(&p->request, SLICE("a")));
    assert_non_null(responses_find_tool(&p->request, SLICE("c"), &space));
    const json_t *all = p->request.gen.messages;
    const json_t *found = json_array_get(json_object_get(json_array_get(all, 2), "content"), 0);
    expect_names(json_object_get(found, "tools"), "a ");
    expect_json(json_array_get(all, 3), "{\"role\":\"tool\",\"tool_call_id\":\"2\",\"name\":\"tool_search\","
                                        "\"content\":\"No tools were found.\"}");
    assert_int_equal(json_array_size(all), 5);
    done(p);
}

TEST(without_a_search_of_the_client_deferred_tools_are_at_the_head)
{
    struct parsed *p = parse("\"input\":\"q\",\"tools\":[" CALLED("a") ",{\"type\":\"tool_search\"}]");
    assert_true(p->ok);
    expect_names(p->request.gen.tools, "a ");
    assert_string_equal(p->request.ignored, "tools.tool_search");
    assert_false(responses_is_search(&p->request, SLICE("tool_search")));
    done(p);
}

TEST(formats_of_text_are_grammars)
{
    struct parsed *p = parse("\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_object\"}}");
    assert_true(p->ok);
    assert_string_equal(p->request.gen.grammar.param, "text.format");
    assert_int_equal(p->request.gen.grammar.kind, GRAMMAR_JSON_OBJECT);
    done(p);
    p = parse("\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,"
              "\"schema\":{\"type\":\"null\"}}}");
    assert_true(p->ok);
    assert_int_equal(p->request.gen.grammar.kind, GRAMMAR_JSON_SCHEMA);
    expect_json(p->request.gen.grammar.value, "{\"type\":\"null\"}");
    done(p);
}

TEST(what_is_not_supported_is_refused_by_name)
{
    expect_refusal("\"model\":\"m\"", "input");
    expect_refusal("\"input\":[]", "input");
    expect_refusal("\"input\":\"a\",\"background\":true", "background");
    expect_refusal("\"input\":\"a\",\"conversation\":\"c\"", "conversation");
    expect_refusal("\"input\":\"a\",\"tool_choice\":\"required\"", "tool_choice");
    expect_refusal("\"input\":\"a\",\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}", "tool_choice");
    expect_refusal("\"input\":\"a\",\"text\":{\"format\":{\"type\":\"grammar\"}}", "text.format");
    expect_refusal("\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\"}}", "text.format");
    expect_refusal("\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":1}}",
                   "text.format.schema");
    expect_refusal("\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}]",
                   "input[0].content[0]");
    expect_refusal("\"input\":[{\"role\":\"robot\",\"content\":\"\"}]", "input[0]");
    expect_refusal("\"input\":[{\"type\":\"function_call\",\"call_id\":\"1\"}]", "input[0]");
    expect_refusal("\"input\":[{\"type\":\"function_call_output\",\"output\":\"\"}]", "input[0]");
}

TEST(sealed_reasoning_comes_back)
{
    static char text[10000];
    struct buf sealed, back;
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i % 26);
    buf_init(&sealed, 1 << 20, NULL);
    buf_init(&back, 1 << 20, NULL);
    for (size_t len = 0; len < sizeof(text); len += len / 2 + 1) {
        struct slice own = {text, len};
        buf_clear(&sealed);
        buf_clear(&back);
        reasoning_seal(own, &sealed);
        assert_true(reasoning_unseal(buf_slice(&sealed), &back));
        assert_true(slice_eq(buf_slice(&back), own));
        buf_clear(&back);
        sealed.ptr[sealed.len / 2] ^= 1;
        assert_false(reasoning_unseal(buf_slice(&sealed), &back));
        assert_int_equal(back.len, 0);
    }
    assert_false(reasoning_unseal(SLICE("gAAAAABo"), &back));
    buf_done(&sealed);
    buf_done(&back);
}

/* Written by another process, which has another key for reasoning. */
TEST(a_sealed_summary_is_read_by_any_server)
{
    static const char own[] = "R2P77YO13l6orpZGA8TzJkOmKE9jGDnT0Gz70c0Krog=U29tZSB3b3Jkcy4=";
    struct buf sealed, back;
    buf_init(&sealed, 1 << 20, NULL);
    buf_init(&back, 1 << 20, NULL);
    summary_seal(SLICE("Some words."), &sealed);
    assert_true(slice_eq(buf_slice(&sealed), slice_of(own)));
    assert_true(summary_unseal(slice_of(own), &back));
    assert_true(slice_eq(buf_slice(&back), SLICE("Some words.")));
    assert_false(reasoning_unseal(slice_of(own), &back));
    reasoning_seal(SLICE("Some words."), &sealed);
    assert_false(summary_unseal(buf_slice(&sealed), &back));
    buf_done(&sealed);
    buf_done(&back);
}

TEST(a_compaction_takes_the_marks_of_its_messages_along)
{
#define MARKED                                                                                               \
    "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\","                               \
    "\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}},{\"type\":\"input_text\",\"text\":\"b\"}]}"
    struct parsed *p = parse("\"input\":[" MARKED "," SAYS(
        "assistant", "c") "," MARKED
                          ",{\"type\":\"compaction_trigger\"},{\"type\":\"compaction\",\"encrypted_content\":"
                          "\"R2P77YO13l6orpZGA8TzJkOmKE9jGDnT0Gz70c0Krog=U29tZSB3b3Jkcy4=\"}," SAYS(
                              "assistant", "d") "," MARKED "]");
    assert_true(p->ok);
    assert_int_equal(p->request.gen.mark_count, 1);
    assert_int_equal(p->request.gen.marks[0].message, json_array_size(p->request.gen.messages) - 1);
    done(p);
}

TEST_MAIN()
