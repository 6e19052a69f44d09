/* The output parser: every split of the text gives the same events, and no markup is ever emitted. */
#include "test_rng.h"
#include "test.h"

#include "base/check.h"
#include "base/json/json_write.h"
#include "chat/chat_format.h"
#include "chat/chat_syntax.h"

#include <errno.h>
#include <string.h>

/* Events written down: R[..] reasoning, C[..] content, B[name], A[..] arguments, E. Neighbours of a kind
 * merge. */
struct record {
    struct buf text;
    int last;
};

static void record_event(void *arg, const struct chat_event *event)
{
    struct record *r = arg;
    static const char *const open[] = {"R[", "C[", "B[", "A[", "E"};
    if (r->last == (int)event->kind && event->kind != CHAT_TOOL_BEGIN && event->kind != CHAT_TOOL_END) {
        r->text.len--; /* the "]" */
    } else {
        buf_puts(&r->text, open[event->kind]);
    }
    buf_put_slice(&r->text, event->text);
    if (event->kind != CHAT_TOOL_END)
        buf_putc(&r->text, ']');
    r->last = (int)event->kind;
}

static const struct chat_syntax *qwen_xml(void)
{
    static struct chat_syntax syntax;
    struct err e;
    assert_int_equal(chat_syntax_named("qwen3_xml", NULL, &syntax, &e), 0);
    return &syntax;
}

static const char *const tools_json =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {"
    "\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}, \"n\": {\"type\": \"number\"}, \"b\": "
    "{\"type\": "
    "\"boolean\"}, \"o\": {\"type\": \"object\"}, \"a\": {\"type\": \"array\"}, \"u\": {\"type\": "
    "[\"integer\", "
    "\"null\"]}, \"v\": {\"anyOf\": [{\"type\": \"null\"}, {\"type\": \"boolean\"}]}}}}}]";

/* Parses `text` in pieces of 1..piece_max bytes (0: whole). Returns the events; the caller frees them. */
static char *parse(const char *text, bool in_reasoning, bool tools, size_t piece_max, uint64_t seed)
{
    struct record record = {.last = -1};
    struct rng rng = {seed, 0};
    json_t *schema = json_loads(tools_json, 0, NULL);
    assert_non_null(schema);
    buf_init(&record.text, 1 << 20, NULL);
    struct chat_parser_opts opts = {.syntax = qwen_xml(),
                                    .in_reasoning = in_reasoning,
                                    .parse_tools = tools,
                                    .tools = schema,
                                    .bytes_max = 1 << 16,
                                    .sink = record_event,
                                    .sink_arg = &record};
    struct chat_parser *p;
    assert_int_equal(chat_parser_create(&opts, &p), 0);
    struct slice left = slice_of(text);
    while (left.len > 0) {
        size_t n = piece_max ? 1 + rng_below(&rng, piece_max) : left.len;
        n = MIN_OF(n, left.len);
        assert_int_equal(chat_parser_push(p, slice_sub(left, 0, n)), 0);
        left = slice_sub(left, n, left.len);
    }
    assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
    chat_parser_free(p);
    json_decref(schema);
    buf_putc(&record.text, 0);
    return record.text.ptr;
}

static void expect(const char *text, bool in_reasoning, bool tools, const char *events)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        char *got = parse(text, in_reasoning, tools, seed % 8, seed);
        assert_string_equal(got, events);
        free(got);
    }
}

TEST(plain_text_passes_byte_for_byte)
{
    expect("Hello <b>world</b>.\n\n", false, true, "C[Hello <b>world</b>.\n\n]");
    expect("a < b <tool", false, true, "C[a < b <tool]");
    expect("", false, true, "");
}

TEST(reasoning_ends_at_its_mark)
{
    expect("I think.\n</think>\n\nYes.", true, true, "R[I think.]C[Yes.]");
    expect("\n\nI think.\n\nMore.</think>Yes.", true, true, "R[I think.\n\nMore.]C[Yes.]");
    expect("no end", true, true, "R[no end]");
    expect("</think>\n\nYes.", true, true, "C[Yes.]");
    expect("Hm.\n</think>\n\n    x = 1;\n", true, true, "R[Hm.]C[    x = 1;\n]");
    expect("Hm.</think> \t\n \n\n Yes.", true, true, "R[Hm.]C[ \n\n Yes.]");
    expect("Hm.</think> Yes.", true, true, "R[Hm.]C[Yes.]");
    expect("cut off </thi", true, true, "R[cut off </thi]");
}

TEST(a_model_that_opens_its_own_block_is_understood)
{
    expect("<think>\nHm.\n</think>\n\nYes.", false, true, "R[Hm.]C[Yes.]");
    expect("<think>\nHm.\n</think>\n\nYes.", true, true, "R[Hm.]C[Yes.]");
    expect("Say <think> aloud.", false, true, "C[Say <think> aloud.]");
}

TEST(a_call_becomes_name_and_arguments)
{
    expect("<tool_call>\n<function=f>\n<parameter=s>\n/home/x\n</parameter>\n</function>\n</tool_call>",
           false, true, "B[f]A[{\"s\": \"/home/x\"}]E");
    expect("I will look.\n\n<tool_call>\n<function=f>\n</function>\n</tool_call>", false, true,
           "C[I will look.]B[f]A[{}]E");
}

TEST(several_calls_each_have_their_own)
{
    expect(
        "<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
        "<function=g>\n<parameter=x>\n2\n</parameter>\n<parameter=y>\n3\n</parameter>\n</function>\n</"
        "tool_call>",
        false, true, "B[f]A[{\"i\": 1}]EB[g]A[{\"x\": \"2\", \"y\": \"3\"}]E");
}

TEST(arguments_are_typed_by_the_schema)
{
#define CALL(key, value)                                                                                     \
    "<tool_call><function=f><parameter=" key ">\n" value "\n</parameter></function></tool_call>"
    expect(CALL("s", "12"), false, true, "B[f]A[{\"s\": \"12\"}]E");
    expect(CALL("s", "null"), false, true, "B[f]A[{\"s\": \"null\"}]E");
    expect(CALL("s", " two\nlines\n"), false, true, "B[f]A[{\"s\": \" two\\nlines\\n\"}]E");
    expect(CALL("s", "a < b && \"c\" <x>"), false, true, "B[f]A[{\"s\": \"a < b && \\\"c\\\" <x>\"}]E");
    expect(CALL("i", "12"), false, true, "B[f]A[{\"i\": 12}]E");
    expect(CALL("i", "12.0"), false, true, "B[f]A[{\"i\": 12}]E");
    expect(CALL("i", "12.5"), false, true, "B[f]A[{\"i\": \"12.5\"}]E");
    expect(CALL("i", "twelve"), false, true, "B[f]A[{\"i\": \"twelve\"}]E");
    expect(CALL("n", "0.1"), false, true, "B[f]A[{\"n\": 0.1}]E");
    expect(CALL("n", "-3e2"), false, true, "B[f]A[{\"n\": -300}]E");
    expect(CALL("b", "True"), false, true, "B[f]A[{\"b\": true}]E");
    expect(CALL("b", "no"), false, true, "B[f]A[{\"b\": false}]E");
    expect(CALL("o", "{\"k\": [1, 2.5, null]}"), false, true, "B[f]A[{\"o\": {\"k\":[1,2.5,null]}}]E");
    expect(CALL("o", "{broken"), false, true, "B[f]A[{\"o\": \"{broken\"}]E");
    expect(CALL("a", "[1]"), false, true, "B[f]A[{\"a\": [1]}]E");
    expect(CALL("a", "{}"), false, true, "B[f]A[{\"a\": \"{}\"}]E");
    expect(CALL("u", "null"), false, true, "B[f]A[{\"u\": null}]E");
    expect(CALL("u", "5"), false, true, "B[f]A[{\"u\": 5}]E");
    expect(CALL("v", "true"), false, true, "B[f]A[{\"v\": true}]E");
    expect(CALL("unknown", "7"), false, true, "B[f]A[{\"unknown\": \"7\"}]E");
}

TEST(unfinished_calls_keep_what_is_complete)
{
    expect("<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n<parameter=i>\n1", false, true,
           "B[f]A[{\"s\": \"a\"}]E");
    expect("<tool_call>\n<function=f>\n<param", false, true, "B[f]A[{}]E");
    expect("<tool_call>\n<func", false, true, "");
    expect("ok\n<tool_call>", false, true, "C[ok]");
}

TEST(missing_marks_are_forgiven)
{
    expect("<function=f>\n<parameter=i>\n1\n</parameter>\n</function>\n</tool_call>", false, true,
           "B[f]A[{\"i\": 1}]E");
    expect("<function=f>\n</function>\nDone.", false, true, "B[f]A[{}]EC[Done.]");
    expect("<function=f>\n</function>\nNext: <function=f>\n</function>", false, true,
           "B[f]A[{}]EC[Next:]B[f]A[{}]E");
    expect("<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n</tool_call>Done.", false, true,
           "B[f]A[{\"i\": 1}]EC[Done.]");
    expect("<tool_call>\njust words\n</tool_call> after", false, true, "C[just wordsafter]");
}

TEST(without_tools_the_markup_is_text)
{
    expect("<tool_call>\n<function=f>\n</function>\n</tool_call>", false, false,
           "C[<tool_call>\n<function=f>\n</function>\n</tool_call>]");
}

PROPERTY(any_split_gives_the_same_events, seed)
{
    static const char *const parts[] = {"<think>",
                                        "</think>",
                                        "<tool_call>",
                                        "</tool_call>",
                                        "<function=f>",
                                        "</function>",
                                        "<parameter=s>",
                                        "</parameter>",
                                        "\n",
                                        " ",
                                        "x",
                                        "<",
                                        "é",
                                        "null",
                                        "<parameter=i>",
                                        "42"};
    char text[1024] = "";
    struct rng rng = {seed, 0};
    for (uint64_t n = rng_below(&rng, 40); n > 0; n--)
        strcat(text, parts[rng_below(&rng, COUNT_OF(parts))]);
    bool in_reasoning = rng_below(&rng, 2), tools = rng_below(&rng, 2);
    char *whole = parse(text, in_reasoning, tools, 0, 0);
    for (size_t piece = 1; piece < 6; piece++) {
        char *split = parse(text, in_reasoning, tools, piece, seed + piece);
        assert_string_equal(split, whole);
        free(split);
    }
    free(whole);
}

TEST(a_call_larger_than_its_bound_is_an_error)
{
    struct record record = {.last = -1};
    buf_init(&record.text, 1 << 20, NULL);
    struct chat_parser_opts opts = {.syntax = qwen_xml(),
                                    .parse_tools = true,
                                    .bytes_max = 100,
                                    .sink = record_event,
                                    .sink_arg = &record};
    struct chat_parser *p;
    assert_int_equal(chat_parser_create(&opts, &p), 0);
    assert_int_equal(chat_parser_push(p, SLICE("<tool_call><function=f><parameter=s>")), 0);
    int r = 0;
    for (int i = 0; i < 100 && r == 0; i++)
        r = chat_parser_push(p, SLICE("xxxxxxxx"));
    assert_int_equal(r, -E2BIG);
    chat_parser_free(p);
    buf_done(&record.text);
}

TEST(a_prompt_ends_inside_reasoning_only_when_the_block_is_open)
{
    assert_true(chat_syntax_prompt_reasons(qwen_xml(), SLICE("<|im_start|>assistant\n<think>\n")));
    assert_false(
        chat_syntax_prompt_reasons(qwen_xml(), SLICE("<|im_start|>assistant\n<think>\n\n</think>\n\n")));
    assert_false(
        chat_syntax_prompt_reasons(qwen_xml(), SLICE("what is <think>?<|im_end|>\n<|im_start|>assistant\n")));
    assert_false(chat_syntax_prompt_reasons(qwen_xml(), SLICE("")));
}

TEST(json_strings_and_numbers_read_back_the_same)
{
    struct buf b;
    buf_init(&b, 1 << 16, NULL);
    json_t *v = json_loads(
        "{\"a\\u0000\\u0001\\u007f\\\"\\\\/\": [0.1, 1e300, -2.5e-8, 1.0, 123456789012345678, true, "
        "null, \"\\t\\u00e9\\ud83d\\ude00\"]}",
        JSON_ALLOW_NUL, NULL);
    if (!v) /* keys cannot hold a NUL */
        v = json_loads(
            "{\"a\\u0001\\u007f\\\"\\\\/\": [0.1, 1e300, -2.5e-8, 1.0, 123456789012345678, true, null, "
            "\"\\t\\u00e9\\ud83d\\ude00\"]}",
            0, NULL);
    assert_non_null(v);
    json_write_value(&b, v);
    json_t *back = json_loadb(b.ptr, b.len, 0, NULL);
    assert_true(json_equal(v, back));
    assert_non_null(memmem(b.ptr, b.len, "[0.1,", 5));
    json_decref(v);
    json_decref(back);
    buf_done(&b);
}

TEST_MAIN()
