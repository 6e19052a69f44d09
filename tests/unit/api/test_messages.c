/* test_messages.c - Anthropic's Messages: bodies to conversations, signatures, errors. */
#include "test_parsed.h"

#include "api/wire/messages.h"
#include "api/wire/wire.h"
#include "base/check.h"
#include "base/json/json_write.h"
#include "gen/reject.h"
#include "gen/request_memory.h"

static const struct request_limits limits = {.json_depth_max = 32, .choices_max = 8};

static struct parsed *parse(const struct request_form *form, const char *body)
{
    return test_parse(form, slice_of(body), &limits);
}

/* `fields` are those of a request besides max_tokens. */
static struct parsed *accept(const char *fields)
{
    char body[4096];
    snprintf(body, sizeof(body), "{\"max_tokens\":9,%s}", fields);
    struct parsed *p = parse(&wire_messages.form, body);
    if (!p->ok)
        fail_msg("%s: refused: %s", body, p->why.message);
    return p;
}

static void expect(const char *fields, const char *messages)
{
    struct parsed *p = accept(fields);
    struct buf got;
    buf_init(&got, 8192, NULL);
    json_write_value(&got, p->request.gen.messages);
    buf_putc(&got, 0);
    assert_string_equal(got.ptr, messages);
    buf_done(&got);
    done(p);
}

#define TEXT(words)       "{\"type\":\"text\",\"text\":\"" words "\"}"
#define SAYS(role, words) "{\"role\":\"" role "\",\"content\":\"" words "\"}"

static void expect_schema(const char *fields, const char *param)
{
    struct parsed *p = accept(fields);
    assert_string_equal(p->request.gen.grammar.param, param);
    assert_int_equal(p->request.gen.grammar.kind, GRAMMAR_JSON_SCHEMA);
    assert_true(json_is_object(p->request.gen.grammar.value));
    done(p);
}

TEST(an_output_format_is_a_schema)
{
    expect_schema(
        "\"messages\":[" SAYS("user", "a") "],\"output_config\":{\"effort\":\"low\",\"format\":{"
                                           "\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}",
        "output_config.format.schema");
    expect_schema(
        "\"messages\":[" SAYS("user", "a") "],\"output_format\":{\"type\":\"json_schema\",\"schema\":{"
                                           "\"type\":\"object\"}}",
        "output_format.schema");
}

TEST(turns_of_one_role_become_one)
{
    expect(
        "\"messages\":[" SAYS("user", "a") "," SAYS("system", "b") ",{\"role\":\"user\",\"content\":[" TEXT(
            "c") "," TEXT("d") "]}," SAYS("assistant", "e") "," SAYS("assistant", "f") "]",
        "[" SAYS("user", "a") "," SAYS("system", "b") ",{\"role\":\"user\",\"content\":[" TEXT("c") "," TEXT(
            "d") "]}," SAYS("assistant", "ef") "]");
}

/* A template that reads strings gets a line feed between them. */
TEST(texts_of_users_and_results_stay_apart)
{
    expect(
        "\"messages\":[" SAYS("user", "a") ",{\"role\":\"user\",\"content\":[" TEXT("b") "," TEXT("c") "]}]",
        "[{\"role\":\"user\",\"content\":[" TEXT("a\\n\\nb") "," TEXT("c") "]}]");
    expect("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\",\"title\":\"t\","
           "\"source\":{\"type\":\"text\",\"data\":\"d\"}}," TEXT("q") "]}]",
           "[{\"role\":\"user\",\"content\":[" TEXT("t\\nd") "," TEXT("q") "]}]");
    expect("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\","
           "\"is_error\":true,\"content\":[" TEXT("r") "," TEXT("s") "]}]}]",
           "[{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":[" TEXT("Error: r") "," TEXT("s") "]}]");
}

TEST(system_comes_first_and_without_the_billing_header)
{
    expect("\"messages\":[" SAYS("user", "a") "],\"system\":[" TEXT(
               "x-anthropic-billing-header: v=1") "," TEXT("b") "," TEXT("c") "]",
           "[" SAYS("system", "bc") "," SAYS("user", "a") "]");
    expect("\"messages\":[" SAYS("user", "a") "],\"system\":\"\"", "[" SAYS("user", "a") "]");
}

TEST(results_become_messages_before_the_users_text)
{
    expect(
        "\"messages\":[" SAYS(
            "user", "q") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"1\","
                         "\"name\":\"f\",\"input\":{\"x\":1}}]},{\"role\":\"user\",\"content\":[" TEXT(
                             "t") ",{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"is_error\":true,"
                                  "\"content\":\"r\"}]}]",
        "[" SAYS(
            "user",
            "q") ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"1\",\"type\":"
                 "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},{\"role\":\"tool\","
                 "\"tool_call_id\":\"1\",\"content\":\"Error: r\",\"name\":\"f\"}," SAYS("user", "t") "]");
}

#define PICTURE                                                                                              \
    "{\"type\":\"image\",\"source\":{\"type\":\"url\",\"url\":\"https://a/b.png\"},\"cache_control\":{}}"

TEST(a_compaction_stands_for_all_messages_before_it)
{
    static const char words[] = "Summary of the conversation until here:";
    char want[512];
    snprintf(want, sizeof(want),
             "[" SAYS("system", "s") ",{\"role\":\"user\",\"content\":\"%s\\n\\nsum\"}," SAYS("assistant",
                                                                                              "b") "]",
             words);
    const char *fields =
        "\"system\":\"s\",\"messages\":[{\"role\":\"user\",\"content\":[" PICTURE
        "," TEXT("a") "]},"
                      "{\"role\":\"assistant\",\"content\":[" TEXT(
                          "x") ",{\"type\":\"compaction\",\"content\":\"sum\"}," TEXT("b") "]}]";
    expect(fields, want);
    struct parsed *p = accept(fields);
    assert_int_equal(gen_media_count(&p->request.gen), 0);
    assert_int_equal(p->request.gen.mark_count, 0);
    done(p);
    snprintf(want, sizeof(want), "[{\"role\":\"user\",\"content\":\"%s\\n\\nsum\\n\\nnext\"}]", words);
    expect("\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"compaction\",\"content\":\"sum\"}]"
           "}," SAYS("user", "next") "]",
           want);
    expect("\"messages\":[" SAYS("user", "a") ",{\"role\":\"assistant\",\"content\":[{\"type\":"
                                              "\"compaction\",\"content\":null}," TEXT("b") "]}]",
           "[" SAYS("user", "a") "," SAYS("assistant", "b") "]");
}

TEST(types_that_are_not_known_are_named)
{
    struct parsed *p =
        accept("\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"new\",\"data\":1},{\"type\":\"web_"
               "tool_result\"},"
               "{\"type\":\"newer\",\"text\":\"words\"}]},{\"role\":\"assistant\",\"content\":[{\"type\":"
               "\"fallback\"}," TEXT("b") "]},"
                                          "{\"role\":\"user\",\"content\":[{\"type\":\"odd_tool_result\"}]}],"
                                          "\"tools\":[{\"type\":\"later_20270101\",\"name\":\"l\"},"
                                          "{\"type\":\"latest\",\"name\":\"m\",\"input_schema\":{}}]");
    assert_string_equal(p->request.ignored, "tools.later_20270101, messages.new, messages.web_tool_result, "
                                            "messages.newer, messages.fallback, messages.odd_tool_result");
    assert_int_equal(json_array_size(p->request.gen.tools), 1);
    assert_int_equal(json_array_size(p->request.gen.messages), 2);
    done(p);
}

TEST(a_toolset_is_a_tool_of_each_member)
{
    struct parsed *p = accept("\"messages\":[" SAYS(
        "user", "a") "],\"tools\":[{\"type\":\"computer_toolset_20260801\",\"configs\":{"
                     "\"zoom\":{\"enabled\":false},\"key\":{\"enabled\":true}}}]");
    assert_int_equal(json_array_size(p->request.gen.tools), 16);
    assert_string_equal(messages_toolset_of(&p->request, SLICE("left_click")), "computer");
    assert_null(messages_toolset_of(&p->request, SLICE("zoom")));
    done(p);
}

/* ---- tools that come and go ---- */

static void expect_tools(const json_t *tools, const char *names)
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

#define TOOL(name)      "{\"name\":\"" name "\",\"input_schema\":{\"type\":\"object\"}}"
#define LATER(name)     "{\"name\":\"" name "\",\"defer_loading\":true,\"input_schema\":{\"type\":\"object\"}}"
#define REFERENCE(name) "{\"type\":\"tool_reference\",\"tool_name\":\"" name "\"}"
#define FOUND(names)                                                                                         \
    "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[" names    \
    "]}]}"
#define CHANGE(kind, what) "{\"type\":\"tool_" kind "\",\"tool\":" what "}"
#define NAMED(name)        "{\"type\":\"tool_reference\",\"name\":\"" name "\"}"
#define SYSTEM(blocks)     "{\"role\":\"system\",\"content\":[" blocks "]}"

static const json_t *part_of(const struct parsed *p, size_t message, size_t part)
{
    return json_array_get(json_object_get(json_array_get(p->request.gen.messages, message), "content"), part);
}

TEST(a_deferred_tool_is_offered_where_a_message_brings_it)
{
    struct parsed *p = accept("\"tools\":[" TOOL("a") "," LATER("b") "," LATER("c") "," TOOL(
        "d") "],\"messages\":[" SAYS("user", "x") "]");
    expect_tools(p->request.gen.tools, "a d ");
    expect_tools(p->request.gen.head_tools, "a d ");
    assert_true(p->request.gen.inserts_tools);
    done(p);
    p = accept(
        "\"tools\":[" LATER("b") "," TOOL("a") "," LATER("c") "],\"messages\":[" SAYS("user", "x") "," FOUND(
            REFERENCE("b") "," REFERENCE("c") "," REFERENCE("a")) "," FOUND(REFERENCE("b")) "]");
    expect_tools(p->request.gen.tools, "a b c ");
    expect_tools(p->request.gen.head_tools, "a ");
    expect_tools(json_object_get(part_of(p, 1, 0), "tools"), "b c ");
    assert_string_equal(json_string_value(json_object_get(part_of(p, 1, 1), "text")), "\na");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(p->request.gen.messages, 2), "content")), "b");
    done(p);
}

TEST(tools_are_added_and_removed_by_the_system)
{
    struct parsed *p = accept("\"tools\":[" TOOL("a") "," LATER("b") "],\"messages\":[" SAYS("user", "x") "," SYSTEM(
        CHANGE("addition", NAMED("b")) "," CHANGE(
            "addition",
            "{\"type\":\"tool_definition\","
            "\"definition\":" TOOL(
                "e") "}") "," CHANGE("removal",
                                     NAMED(
                                         "a"))) "," SAYS("user",
                                                         "y") "," SYSTEM(CHANGE("removal",
                                                                                NAMED(
                                                                                    "e")) "," CHANGE("additio"
                                                                                                     "n",
                                                                                                     NAMED(
                                                                                                         "a"))) "]");
    expect_tools(p->request.gen.tools, "b a ");
    expect_tools(p->request.gen.head_tools, "a ");
    expect_tools(json_object_get(part_of(p, 1, 0), "tools"), "b e ");
    assert_non_null(json_object_get(part_of(p, 1, 0), "lead"));
    assert_string_equal(json_string_value(json_object_get(part_of(p, 1, 1), "text")),
                        "\nThe tool a is no longer available.");
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(p->request.gen.messages, 3), "content")),
        "The tool e is no longer available.\nThe tool a is available.");
    done(p);
}

TEST(a_compaction_brings_the_tools_of_what_it_stands_for)
{
    struct parsed *p = accept(
        "\"tools\":[" TOOL("a") "," LATER("b") "," LATER("c") "],\"messages\":[" SAYS("user", "x") "," FOUND(
            REFERENCE("c")) ",{\"role\":\"assistant\",\"content\":[{\"type\":\"compaction\",\"content\":"
                            "\"s\",\"tool_changes\":[" CHANGE("addition", NAMED("b")) "," CHANGE(
                                "removal", NAMED("a")) "]}]}]");
    expect_tools(p->request.gen.tools, "b ");
    expect_tools(p->request.gen.head_tools, "a ");
    done(p);
}

TEST(changes_of_tools_that_do_not_exist_are_refused)
{
    static const char *const bodies[] = {
        FOUND(REFERENCE("z")),
        SYSTEM(CHANGE("addition", NAMED("z"))),
        SYSTEM(CHANGE("removal", NAMED("z"))),
        SYSTEM(CHANGE("removal", "{\"type\":\"tool_definition\",\"definition\":" TOOL("e") "}")),
        SYSTEM(CHANGE("addition", "{\"type\":\"mcp_tool_reference\",\"name\":\"a\"}")),
        SYSTEM(CHANGE("addition", "{\"type\":\"tool_definition\",\"definition\":{}}")),
        SYSTEM(CHANGE("addition", "5")),
    };
    for (size_t i = 0; i < COUNT_OF(bodies); i++) {
        char body[1024];
        snprintf(body, sizeof(body),
                 "{\"max_tokens\":9,\"tools\":[" TOOL("a") "],\"messages\":[" SAYS("user", "x") ",%s]}",
                 bodies[i]);
        struct parsed *p = parse(&wire_messages.form, body);
        assert_false(p->ok);
        assert_non_null(strstr(p->why.message, "messages[1].content[0]"));
        done(p);
    }
}

TEST(a_last_message_of_the_assistant_is_continued)
{
    static const struct {
        const char *last;
        bool continues;
    } cases[] = {
        {SAYS("assistant", "So"), true},
        {SAYS("assistant", ""), false},
        {SAYS("user", "b"), false},
        {"{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\"}]}", false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char fields[512];
        snprintf(fields, sizeof(fields), "\"messages\":[" SAYS("user", "a") ",%s]", cases[i].last);
        struct parsed *p = accept(fields);
        assert_int_equal(p->request.gen.continues, cases[i].continues);
        done(p);
    }
}

TEST(cache_control_marks_bytes_of_the_system_and_ends_of_messages)
{
#define MARK "\"cache_control\":{\"type\":\"ephemeral\"}"
    struct parsed *p = accept("\"system\":[{\"type\":\"text\",\"text\":\"abc\"," MARK "}," TEXT(
        "d") "],\"tools\":[{\"name\":\"f\"," MARK
             "}],\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"," MARK
             "}]}]");
    const struct gen_request *r = &p->request.gen;
    assert_int_equal(r->mark_count, 3);
    assert_true(r->marks[0].message == 0 && r->marks[0].bytes == 0);
    assert_true(r->marks[1].message == 0 && r->marks[1].bytes == 3);
    assert_true(r->marks[2].message == 1 && r->marks[2].bytes == SIZE_MAX);
    assert_true(r->clamps && r->tells_length && r->enable_thinking == 0);
    done(p);
}

static void sign(const char *text, size_t step, char ret[MESSAGES_SIGNATURE_BYTES])
{
    struct messages_signature s;
    struct slice all = slice_of(text);
    messages_signature_begin(&s);
    for (size_t at = 0; at < all.len; at += step)
        messages_signature_add(&s, slice_sub(all, at, step));
    messages_signature_end(&s, ret);
}

TEST(a_signature_depends_on_the_text_alone)
{
    char text[1000], whole[MESSAGES_SIGNATURE_BYTES], pieces[MESSAGES_SIGNATURE_BYTES];
    memset(text, 'a', sizeof(text));
    for (size_t len = 0; len + 1 < sizeof(text); len += 37) {
        text[len] = 0;
        sign(text, sizeof(text), whole);
        for (size_t step = 1; step < 300; step += 97) {
            sign(text, step, pieces);
            assert_string_equal(whole, pieces);
        }
        text[len] = 'b';
        text[len + 1] = 0;
        sign(text, sizeof(text), pieces);
        assert_string_not_equal(whole, pieces);
        text[len + 1] = 'a';
    }
}

TEST(errors_have_the_statuses_and_sentences_that_clients_read)
{
    struct reject why = {0};
    struct buf b;
    reject_set(&why, REJECT_QUEUE_TIMEOUT, NULL, "x");
    assert_int_equal(messages_status(&why), 529);
    why = (struct reject){0};
    reject_too_long(&why, "messages", &(struct reject_context){.tokens = 100}, 400);
    assert_int_equal(messages_status(&why), 400);
    buf_init(&b, 1024, NULL);
    messages_write_error(&why, "id", &b);
    buf_putc(&b, 0);
    assert_string_equal(
        b.ptr, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is "
               "too long: 401 tokens > 99 maximum\"},\"request_id\":\"id\"}");
    buf_done(&b);
    assert_true(messages_owns(SLICE("/v1/messages")) && messages_owns(SLICE("/messages/count_tokens")));
    assert_false(messages_owns(SLICE("/v1/messagesx")) || messages_owns(SLICE("/v1/models")));
}

TEST_MAIN()
