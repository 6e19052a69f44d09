/* Calls of the history as text, for templates that write none: the parser reads them back. */
#include "test.h"

#include "base/check.h"
#include "chat/chat_calls_text.h"
#include "chat/chat_format.h"
#include "chat/chat_history.h"
#include "chat/chat_syntax.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

#include <string.h>

static json_t *json_of(const char *text)
{
    json_error_t e;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &e);
    if (!v)
        fail_msg("%s: %s", e.text, text);
    return v;
}

#define CALL(name, arguments) "{\"function\": {\"name\": \"" name "\", \"arguments\": " arguments "}}"
#define HARD                                                                                                 \
    "{\"s\": \"Z\\u00fcrich, \\\"q\\\" \\\\ )]\\n\", \"i\": -3, \"x\": 2.5, \"b\": true, \"f\": false, "     \
    "\"l\": [1, null, {\"k\": \"v\"}], \"o\": {}, \"e\": \"\"}"
#define CALLS "[" CALL("f", HARD) ", " CALL("g", "{}") "]"

struct seen {
    json_t *calls;
    struct buf arguments, content;
};

static void see(void *arg, const struct chat_event *e)
{
    struct seen *s = arg;
    if (e->kind == CHAT_CONTENT)
        buf_put_slice(&s->content, e->text);
    if (e->kind == CHAT_TOOL_BEGIN)
        json_array_append_new(s->calls,
                              json_pack("{s:{s:s%}}", "function", "name", e->text.ptr, e->text.len));
    if (e->kind == CHAT_TOOL_ARGUMENTS)
        buf_put_slice(&s->arguments, e->text);
    if (e->kind != CHAT_TOOL_END)
        return;
    json_t *function = json_object_get(json_array_get(s->calls, json_array_size(s->calls) - 1), "function");
    json_object_set_new(function, "arguments", json_loadb(s->arguments.ptr, s->arguments.len, 0, NULL));
    buf_clear(&s->arguments);
}

static void begin(struct seen *s)
{
    s->calls = json_array();
    buf_init(&s->arguments, 1 << 16, NULL);
    buf_init(&s->content, 1 << 16, NULL);
}

static void parse(const struct chat_syntax *syntax, struct slice text, struct seen *s)
{
    struct chat_parser *p;
    struct chat_parser_opts opts = {
        .syntax = syntax, .parse_tools = true, .bytes_max = 1 << 20, .sink = see, .sink_arg = s};
    begin(s);
    assert_int_equal(chat_parser_create(&opts, &p), 0);
    assert_int_equal(chat_parser_push(p, text), 0);
    assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
    chat_parser_free(p);
}

static void end(struct seen *s)
{
    json_decref(s->calls);
    buf_done(&s->arguments);
    buf_done(&s->content);
}

TEST(calls_as_text_are_read_back_in_every_format_that_is_known)
{
    uint32_t known = 0;
    json_t *calls = json_of(CALLS);
    for (uint32_t i = 0; chat_syntax_tool_name(i); i++) {
        struct chat_syntax s;
        struct seen seen;
        struct buf text;
        struct err e = {""};
        assert_int_equal(chat_syntax_named(chat_syntax_tool_name(i), NULL, &s, &e), 0);
        if (!chat_calls_text_knows(&s))
            continue;
        known++;
        buf_init(&text, 1 << 16, NULL);
        chat_calls_text_write(&s, calls, &text);
        parse(&s, buf_slice(&text), &seen);
        if (!json_equal(seen.calls, calls))
            fail_msg("%s: %.*s", s.tool_format, SLICE_ARGS(buf_slice(&text)));
        end(&seen);
        buf_done(&text);
    }
    assert_true(known >= 5);
    json_decref(calls);
}

static struct chat_syntax lfm2(bool inlined)
{
    struct chat_syntax s;
    struct err e = {""};
    assert_int_equal(chat_syntax_named("lfm2", NULL, &s, &e), 0);
    s.calls_in_content = inlined;
    return s;
}

static void expect_adapted(bool inlined, const char *before, const char *after)
{
    struct chat_syntax s = lfm2(inlined);
    json_t *messages = json_of(before), *want = json_of(after);
    assert_int_equal(chat_history_adapt(&s, messages), 0);
    assert_int_equal(chat_history_adapt(&s, messages), 0); /* nothing is left to change */
    if (!json_equal(messages, want))
        fail_msg("%s", json_dumps(messages, 0));
    json_decref(messages);
    json_decref(want);
}

#define TEXT "<|tool_call_start|>[f(a=1)]<|tool_call_end|>"

TEST(calls_stand_behind_the_content)
{
    const char *calls = "[{\"content\": \"I look.\", \"tool_calls\": [" CALL("f", "{\"a\": 1}") "]}]";
    expect_adapted(true, calls, "[{\"content\": \"I look." TEXT "\"}]");
    expect_adapted(false, calls, calls);
    expect_adapted(true, "[{\"content\": null, \"tool_calls\": [" CALL("f", "{\"a\": 1}") "]}]",
                   "[{\"content\": \"" TEXT "\"}]");
    expect_adapted(true, "[{\"tool_calls\": [" CALL("f", "\"a=1\"") "]}]", "[{\"content\": \"" TEXT "\"}]");
    expect_adapted(true,
                   "[{\"content\": [{\"type\": \"image\"}], \"tool_calls\": [" CALL("f", "{\"a\": 1}") "]}]",
                   "[{\"content\": [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"" TEXT "\"}]}]");
    expect_adapted(true, "[{\"content\": \"x\", \"tool_calls\": []}]",
                   "[{\"content\": \"x\", \"tool_calls\": []}]");
}

/* ---- reasoning in the content ---- */

static struct chat_syntax granite(void)
{
    struct chat_syntax s;
    struct err e = {""};
    assert_int_equal(chat_syntax_named("granite", NULL, &s, &e), 0);
    s.calls_in_content = s.reasoning_in_content = s.reasoning_in_calls = true;
    return s;
}

TEST(reasoning_stands_before_the_content)
{
    static const char *const pairs[][2] = {
        {"{\"content\": \"Hi.\", \"reasoning_content\": \"a\\n\"}",
         "{\"content\": \"<think>a\\n</think><response>Hi.</response>\"}"},
        {"{\"content\": null, \"reasoning_content\": \"a\"}", "{\"content\": \"<think>a</think>\"}"},
        {"{\"content\": \"Hi.\", \"reasoning_content\": \"\"}",
         "{\"content\": \"Hi.\", \"reasoning_content\": \"\"}"},
        {"{\"content\": \"\", \"reasoning_content\": \"a\", \"tool_calls\": [" CALL("f", "{}") "]}",
         "{\"content\": \"<think>a</think><|tool_call|>[{\\\"name\\\": \\\"f\\\", \\\"arguments\\\": "
         "{}}]\"}"}};
    struct chat_syntax s = granite();
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        json_t *messages = json_pack("[o, {s:s}]", json_of(pairs[i][0]), "content", "More?");
        json_t *want = json_of(pairs[i][1]);
        assert_int_equal(chat_history_adapt(&s, messages), 0);
        assert_int_equal(chat_history_adapt(&s, messages), 0);
        if (!json_equal(json_array_get(messages, 0), want))
            fail_msg("%s", json_dumps(messages, 0));
        json_decref(messages);
        json_decref(want);
    }
}

TEST(a_last_message_that_is_continued_has_no_end_of_text)
{
    struct chat_syntax s = granite();
    json_t *messages = json_of("[{\"content\": \"Hi\", \"reasoning_content\": \"a\"}]");
    assert_int_equal(chat_history_adapt(&s, messages), 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(messages, 0), "content")),
                        "<think>a</think><response>Hi");
    json_decref(messages);
}

static void expect_texts(const char *source, const char *want)
{
    struct arena *a, *scratch;
    struct chat_template *t;
    struct chat_syntax s;
    struct err e = {""};
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &scratch), 0);
    assert_int_equal(chat_template_compile(a, slice_of(source), &t, &e), 0);
    const struct chat_syntax_opts opts = {.template = t};
    assert_int_equal(chat_syntax_find(a, scratch, &opts, &s, &e), 0);
    json_t *messages = json_of("[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                               "{\"type\": \"text\", \"text\": \"b\"}]}, {\"role\": \"user\", \"content\": "
                               "[{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"c\"}]}]");
    assert_int_equal(chat_history_adapt(&s, messages), 0);
    assert_string_equal(json_string_value(json_object_get(json_array_get(messages, 0), "content")), want);
    assert_int_equal(json_array_size(json_object_get(json_array_get(messages, 1), "content")), 2);
    json_decref(messages);
    arena_free(a);
    arena_free(scratch);
}

TEST(texts_of_one_message_are_apart_where_the_template_reads_strings)
{
    expect_texts("{% for m in messages %}<u>{{ m.content }}</u>{% endfor %}", "a\nb");
    expect_texts("{% for m in messages %}<u>{% if m.content is string %}{{ m.content }}{% else %}"
                 "{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}</u>{% endfor %}",
                 "ab");
    expect_texts("{% for m in messages %}<u>{% if m.content is string %}{{ m.content }}{% else %}"
                 "{{ m.content | map(attribute='text') | join(' ') }}{% endif %}</u>{% endfor %}",
                 "a b");
}

#define TURNS(before, after)                                                                                 \
    "{% for m in messages %}{% if m.role == 'assistant' %}" before "{{ m.content }}" after                   \
    "{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}"

/* Whether the description that is found for a template writes reasoning into the content. */
static bool writes_reasoning(const char *source, const struct tokenizer *tokenizer, uint32_t vocab)
{
    struct arena *a, *scratch;
    struct chat_template *t;
    struct chat_syntax s;
    struct err e = {""};
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &scratch), 0);
    assert_int_equal(chat_template_compile(a, slice_of(source), &t, &e), 0);
    const struct chat_syntax_opts opts = {.template = t, .tokenizer = tokenizer, .vocab = vocab};
    assert_int_equal(chat_syntax_find(a, scratch, &opts, &s, &e), 0);
    bool writes = s.reasoning_in_content;
    assert_int_equal(s.special_count, tokenizer && vocab > 2 ? 1 : 0);
    arena_free(a);
    arena_free(scratch);
    return writes;
}

/* The tools of Mistral's older models are those of its reasoning models, which have [THINK]. */
TEST(reasoning_is_written_only_for_templates_and_vocabularies_that_have_its_markers)
{
    static const char with[] = "{\"added_tokens\": [{\"id\": 2, \"content\": \"[THINK]\"}], \"model\": "
                               "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}";
    const char *nemo = TURNS("", "</s>") "{# [TOOL_CALLS] #}";
    struct arena *a;
    struct tokenizer *t;
    struct err e = {""};
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(tokenizer_parse(a, slice_of(with), (struct slice){NULL, 0}, &t, &e), 0);
    assert_false(writes_reasoning(nemo, NULL, 3));
    assert_true(writes_reasoning(nemo, t, 3));
    assert_false(writes_reasoning(nemo, t, 2)); /* the model has no embedding for the marker */
    assert_true(writes_reasoning(TURNS("", "</s>") "{# [TOOL_CALLS] [THINK] #}", NULL, 3));
    arena_free(a);
}

TEST(reasoning_is_not_written_into_the_markers_of_text)
{
    assert_false(writes_reasoning(
        TURNS("<|START_RESPONSE|>", "<|END_RESPONSE|>") "{# <|START_ACTION|> <|START_THINKING|> #}", NULL,
        3));
    assert_true(writes_reasoning(TURNS("", "") "{# <|START_ACTION|> <|START_THINKING|> #}", NULL, 3));
}

struct texts {
    struct buf reasoning, content;
};

static void collect(void *arg, const struct chat_event *e)
{
    struct texts *t = arg;
    buf_put_slice(e->kind == CHAT_REASONING ? &t->reasoning : &t->content, e->text);
}

TEST(white_space_around_such_reasoning_is_kept_however_it_is_cut)
{
    static const char *const cases[][3] = {
        {"<think>\n a \n\n</think>\n\n  b\n", "\n a \n\n", "\n\n  b\n"},
        {"<think>\na</think>\n\n", "\na", ""},
        {"<think>a</think>\n<response>\nb\n</response>\n", "a", "\nb\n"},
        {"<think>a\n</think>\n<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]", "a\n", "f{}"}};
    struct chat_syntax s = granite();
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (size_t chunk = 1; chunk <= strlen(cases[i][0]); chunk++) {
            struct texts t;
            struct chat_parser *p;
            struct chat_parser_opts opts = {
                .syntax = &s, .parse_tools = true, .bytes_max = 1 << 20, .sink = collect, .sink_arg = &t};
            buf_init(&t.reasoning, 1 << 16, NULL);
            buf_init(&t.content, 1 << 16, NULL);
            assert_int_equal(chat_parser_create(&opts, &p), 0);
            for (struct slice rest = slice_of(cases[i][0]); rest.len; rest = slice_sub(rest, chunk, rest.len))
                assert_int_equal(chat_parser_push(p, slice_sub(rest, 0, chunk)), 0);
            assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
            if (!slice_eq(buf_slice(&t.reasoning), slice_of(cases[i][1])) ||
                !slice_eq(buf_slice(&t.content), slice_of(cases[i][2])))
                fail_msg("case %zu in pieces of %zu: \"%.*s\", \"%.*s\"", i, chunk,
                         SLICE_ARGS(buf_slice(&t.reasoning)), SLICE_ARGS(buf_slice(&t.content)));
            chat_parser_free(p);
            buf_done(&t.reasoning);
            buf_done(&t.content);
        }
}

/* ---- messages of the system ---- */

static void expect_joined(const char *before, const char *after, uint32_t mark, uint32_t moved)
{
    struct chat_mark marks[] = {{mark, SIZE_MAX}};
    json_t *messages = json_of(before), *want = json_of(after);
    bool some;
    for (int times = 0; times < 2; times++)
        assert_int_equal(chat_history_join_system(messages, marks, 1, &some), 0);
    assert_false(some);
    if (!json_equal(messages, want))
        fail_msg("%s", json_dumps(messages, 0));
    assert_int_equal(marks[0].message, moved);
    json_decref(messages);
    json_decref(want);
}

#define SAYS(role, words) "{\"role\": \"" role "\", \"content\": \"" words "\"}"
#define TEXT_PART(words)  "{\"type\": \"text\", \"text\": \"" words "\"}"

TEST(later_messages_of_the_system_join_the_users_turn)
{
    expect_joined("[" SAYS("system", "h") ", " SAYS("user", "a") ", " SAYS("system", "b") ", " SAYS(
                      "user", "c") ", " SAYS("assistant", "d") ", " SAYS("system", "e") "]",
                  "[" SAYS("system", "h") ", " SAYS("user", "a\\n\\nb\\n\\nc") ", " SAYS(
                      "assistant", "d") ", " SAYS("user", "e") "]",
                  4, 2);
    expect_joined(
        "[" SAYS("user", "a") ", " SAYS("assistant", "b") ", " SAYS("system", "c") ", " SAYS("user", "d") "]",
        "[" SAYS("user", "a") ", " SAYS("assistant", "b") ", " SAYS("user", "c\\n\\nd") "]", 3, 2);
    expect_joined("[" SAYS("user", "a") ", " SAYS("user", "b") "]",
                  "[" SAYS("user", "a") ", " SAYS("user", "b") "]", 1, 1);
    expect_joined("[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}, " SAYS("system", "b") "]",
                  "[{\"role\": \"user\", \"content\": [{\"type\": \"image\"}, " TEXT_PART(
                      "\\n\\n") ", " TEXT_PART("b") "]}]",
                  0, 0);
    /* A list's texts stay apart, but for those that meet. */
    expect_joined(
        "[{\"role\": \"user\", \"content\": [" TEXT_PART("a") ", " TEXT_PART("b") "]}, " SAYS(
            "system", "c") ", {\"role\": \"user\", \"content\": [" TEXT_PART("d") ", " TEXT_PART("e") "]}]",
        "[{\"role\": \"user\", \"content\": [" TEXT_PART("a") ", " TEXT_PART(
            "b\\n\\nc\\n\\nd") ", " TEXT_PART("e") "]}]",
        0, 0);
}

TEST_MAIN()
