/* test_request_grammar.c - the fields that constrain an output, under the names of several servers. */
#include "test_parsed.h"

#include "api/reject_http.h"
#include "api/request/field.h"
#include "api/wire/wire.h"
#include "base/json/json_write.h"

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static const struct request_limits limits = {
    .json_depth_max = 16, .choices_max = 8, .texts_max = 8, .elsewhere = wire_has_elsewhere};

/* A chat with one more field is refused, with this field's name and these words. */
static void refuse_field(const char *field, const char *param, const char *says)
{
    char body[512];
    snprintf(body, sizeof(body), "{%s,%s}", USER, field);
    struct parsed *p = test_parse(&wire_chat.form, slice_of(body), &limits);
    if (p->ok)
        fail_msg("accepted: %s", body);
    assert_int_equal(reject_status(&p->why), 400);
    assert_string_equal(p->why.param, param);
    if (!strstr(p->why.message, says))
        fail_msg("%s: says \"%s\", not \"%s\"", body, p->why.message, says);
    done(p);
}

/* The kind, the field's name, and the source as JSON; "": none. */
static void constrains(const char *field, enum grammar_kind kind, const char *param, const char *value)
{
    char body[512];
    snprintf(body, sizeof(body), "{%s,%s}", USER, field);
    struct parsed *p = test_parse(&wire_chat.form, slice_of(body), &limits);
    if (!p->ok)
        fail_msg("%s: refused: %s", body, p->why.message);
    const struct gen_grammar *g = &p->request.gen.grammar;
    struct buf text;
    buf_init(&text, 1024, NULL);
    if (g->value)
        json_write_value(&text, g->value);
    buf_putc(&text, 0);
    assert_string_equal(g->param, param);
    assert_int_equal(g->kind, kind);
    assert_string_equal(text.ptr, value);
    buf_done(&text);
    done(p);
}

TEST(every_name_of_a_grammar_is_read)
{
    static const char schema[] = "{\"type\":\"object\"}";
    constrains("\"response_format\":{\"type\":\"json_object\"}", GRAMMAR_JSON_OBJECT, "response_format", "");
    constrains("\"response_format\":{\"type\":\"json_object\",\"schema\":{\"type\":\"object\"}}",
               GRAMMAR_JSON_SCHEMA, "response_format.schema", schema);
    constrains(
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,"
        "\"description\":\"d\",\"schema\":{\"type\":\"object\"}}}",
        GRAMMAR_JSON_SCHEMA, "response_format.json_schema.schema", schema);
    constrains("\"response_format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}",
               GRAMMAR_JSON_SCHEMA, "response_format.schema", schema);
    constrains("\"structured_outputs\":{\"json\":{\"type\":\"object\"},\"regex\":null}", GRAMMAR_JSON_SCHEMA,
               "structured_outputs.json", schema);
    constrains("\"structured_outputs\":{\"json_object\":true}", GRAMMAR_JSON_OBJECT,
               "structured_outputs.json_object", "");
    constrains("\"structured_outputs\":{\"regex\":\"a+\"}", GRAMMAR_REGEX, "structured_outputs.regex",
               "\"a+\"");
    constrains("\"structured_outputs\":{\"choice\":[\"a\",\"b\"]}", GRAMMAR_CHOICE,
               "structured_outputs.choice", "[\"a\",\"b\"]");
    constrains("\"structured_outputs\":{\"grammar\":\"root ::= [a]\"}", GRAMMAR_GBNF,
               "structured_outputs.grammar", "\"root ::= [a]\"");
    constrains("\"guided_json\":{\"type\":\"object\"}", GRAMMAR_JSON_SCHEMA, "guided_json", schema);
    constrains("\"guided_json\":\"{}\"", GRAMMAR_JSON_SCHEMA, "guided_json", "\"{}\"");
    constrains("\"guided_regex\":\"a\"", GRAMMAR_REGEX, "guided_regex", "\"a\"");
    constrains("\"guided_choice\":[\"a\"]", GRAMMAR_CHOICE, "guided_choice", "[\"a\"]");
    constrains("\"guided_grammar\":\"start: /a/\"", GRAMMAR_LARK, "guided_grammar", "\"start: /a/\"");
    constrains("\"grammar\":\"root ::= [a]\"", GRAMMAR_GBNF, "grammar", "\"root ::= [a]\"");
    constrains("\"json_schema\":{\"type\":\"object\"}", GRAMMAR_JSON_SCHEMA, "json_schema", schema);
    constrains("\"regex\":\"a+\"", GRAMMAR_REGEX, "regex", "\"a+\"");
    constrains("\"ebnf\":\"root ::= [a]\"", GRAMMAR_GBNF, "ebnf", "\"root ::= [a]\"");
    /* The forms of text-generation-inference. */
    for (int i = 0; i < 2; i++)
        constrains(i ? "\"response_format\":{\"type\":\"json\",\"value\":{\"type\":\"object\"}}"
                     : "\"response_format\":{\"type\":\"json_object\",\"value\":{\"type\":\"object\"}}",
                   GRAMMAR_JSON_SCHEMA, "response_format.value", schema);
    constrains("\"response_format\":{\"type\":\"json_schema\",\"value\":{\"name\":\"n\",\"schema\":{\"type\":"
               "\"object\"}}}",
               GRAMMAR_JSON_SCHEMA, "response_format.value.schema", schema);
    constrains("\"response_format\":{\"type\":\"regex\",\"value\":\"a+\"}", GRAMMAR_REGEX,
               "response_format.value", "\"a+\"");
}

TEST(one_grammar_may_have_two_names)
{
    constrains("\"guided_grammar\":\"start: /a/\",\"structured_outputs\":{\"grammar\":\"start: /a/\"}",
               GRAMMAR_LARK, "guided_grammar", "\"start: /a/\"");
    constrains("\"json_schema\":{\"type\":\"object\"},\"guided_json\":{\"type\":\"object\"}",
               GRAMMAR_JSON_SCHEMA, "json_schema", "{\"type\":\"object\"}");
    constrains("\"response_format\":{\"type\":\"json_object\"},\"structured_outputs\":{\"json_object\":true}",
               GRAMMAR_JSON_OBJECT, "response_format", "");
    refuse_field("\"guided_grammar\":\"start: /a/\",\"structured_outputs\":{\"grammar\":\"start: /b/\"}",
                 "structured_outputs.grammar", "differently");
    refuse_field("\"guided_regex\":\"a\",\"guided_choice\":[\"a\"]", "guided_choice", "guided_regex");
    refuse_field("\"response_format\":{\"type\":\"json_object\"},\"guided_json\":{}", "guided_json",
                 "differently");
}

TEST(fields_of_a_grammar_are_checked)
{
    refuse_field("\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema", "schema");
    refuse_field("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}",
                 "response_format.json_schema", "schema is missing");
    refuse_field("\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":5,\"schema\":{}}}",
                 "response_format.json_schema", "name");
    refuse_field(
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"strict\":1,\"schema\":{}}}",
        "response_format.json_schema", "strict");
    refuse_field("\"response_format\":{\"type\":\"json_object\",\"schema\":123}", "response_format.schema",
                 "JSON Schema");
    refuse_field("\"response_format\":{\"type\":\"regex\"}", "response_format.value", "string");
    refuse_field("\"response_format\":{\"type\":\"json\",\"value\":5}", "response_format.value",
                 "JSON Schema");
    refuse_field("\"guided_json\":[]", "guided_json", "JSON Schema");
    refuse_field("\"guided_regex\":\"\"", "guided_regex", "empty");
    refuse_field("\"guided_choice\":\"a\"", "guided_choice", "list");
    refuse_field("\"structured_outputs\":[]", "structured_outputs", "object");
    refuse_field("\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"a\"]}", "structured_outputs.choice",
                 "structured_outputs.regex");
    refuse_field("\"guided_regex\":\"a\",\"response_format\":{\"type\":\"json_object\"}", "response_format",
                 "guided_regex");
}

TEST_MAIN()
