/* Every known format: raw outputs parse alike whole, in pieces of every size, and with their markers as
 * tokens; cut at any byte they give whole calls. */
#include "test.h"

#include "base/check.h"
#include "chat/chat_format.h"
#include "chat/chat_syntax.h"

#include <string.h>

/* Arguments of JSON formats: markers inside strings, brackets, Unicode and nesting. */
#define HARD                                                                                                 \
    "{\"s\": \"Zürich </tool_call> <|END_ACTION|> \\\"q\\\" }]\", \"o\": {\"k\": [1, 2.5, null, {\"d\": "   \
    "\"{[\"}]}, \"i\": -3, \"e\": {}}"
#define HERMES(name, arguments)                                                                              \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"
#define XML(open, line)                                                                                      \
    open "\n<function=f>\n<parameter=s>" line "Zürich <b> & \"q\"\nl2" line                                  \
         "</parameter>\n<parameter=i>" line "3" line "</parameter>\n<parameter=o>" line                      \
         "{\"k\": [1, {\"d\": null}]}" line "</parameter>\n</function>\n"
#define XML_ARGUMENTS "{\"s\": \"Zürich <b> & \\\"q\\\"\\nl2\", \"i\": 3, \"o\": {\"k\":[1,{\"d\":null}]}}"
#define DSML(section)                                                                                        \
    "Look.\n\n<｜DSML｜" section ">\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "        \
    "string=\"true\">12 é</｜DSML｜parameter>\n<｜DSML｜parameter name=\"o\" string=\"false\">{\"k\": " \
    "[1]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n"  \
    "</｜DSML｜" section ">"
#define DSML_EVENTS "C[Look.]B[f]A[{\"s\": \"12 é\", \"o\": {\"k\":[1]}}]EB[g]A[{}]E"
#define TWO         "B[f]A[" HARD "]EB[g]A[{}]E"
#define LIST        "[{\"name\": \"f\", \"arguments\": " HARD "}, {\"name\": \"g\", \"arguments\": {}}]"

static const struct {
    const char *format, *raw, *events;
} outputs[] = {
    {"hermes", "<think>\nHm <tool_call>.\n</think>\n\nI look.\n" HERMES("f", HARD) "\n" HERMES("g", "{}"),
     "R[Hm <tool_call>.]C[I look.]" TWO},
    {"hermes", "<tool_call>\n{\"arguments\": " HARD ", \"name\": \"f\"}\n</tool_call>", "B[f]A[" HARD "]E"},
    {"hermes", HERMES("f", "\"{\\\"i\\\": 3}\""), "B[f]A[{\"i\": 3}]E"},
    {"hermes", HERMES("f", "null"), "B[f]A[{}]E"},
    {"hermes", "<tool_call>{\"name\": \"unknown\"}</tool_call> after", "B[unknown]A[{}]EC[after]"},
    {"hermes", "<tool_call>{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}",
     "B[f]A[{}]E"},
    {"hermes", "say <tool_call> aloud", "C[sayaloud]"},
    {"qwen3_xml", "<think>\nHm.\n</think>\n\nI look.\n\n" XML("<tool_call>", "\n") "</tool_call>",
     "R[Hm.]C[I look.]B[f]A[" XML_ARGUMENTS "]E"},
    {"seed_oss", "<seed:think>Hm.</seed:think>\nI look.\n" XML("<seed:tool_call>", "") "</seed:tool_call>",
     "R[Hm.]C[I look.]B[f]A[" XML_ARGUMENTS "]E"},
    {"glm45",
     "<think>Hm.</think>\nI look.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>Zürich\n</arg_value>\n"
     "<arg_key>i</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
     "R[Hm.]C[I look.]B[f]A[{\"s\": \"Zürich\\n\", \"i\": 3}]EB[g]A[{}]E"},
    {"glm45", "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value></tool_call><tool_call>g</tool_call>",
     "B[f]A[{\"s\": \"x\"}]EB[g]A[{}]E"},
    {"glm45",
     "<tool_call><tool_call>f<arg_key><arg_key>s</arg_key></arg_key><arg_value>x</arg_value></tool_call>",
     "B[f]A[{\"s\": \"x\"}]E"},
    {"qwen3_xml", "<tool_call>\n<function=f>\n<parameter=s>\na </function> b\n</function>\n</tool_call>",
     "B[f]A[{\"s\": \"a </function> b\"}]E"},
    {"qwen3_xml", "<tool_call>\n<function=f>\n<parameter=i>\n3\n</function>\n</tool_call>\n",
     "B[f]A[{\"i\": 3}]E"},
    {"hermes", HERMES("f", "{}") "\n</tool_call> </tool_call>\nafter", "B[f]A[{}]EC[after]"},
    {"mistral", "[TOOL_CALLS][TOOL_CALLS]f[ARGS][ARGS]" HARD, "B[f]A[" HARD "]E"},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abc{\"i\": 3}", "B[f#abc]A[{\"i\": 3}]E"},
    {"deepseek_v3.1",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>"
     "<｜tool▁calls▁end｜><｜tool▁calls▁end｜>",
     "B[f]A[{}]E"},
    {"harmony", "<|channel|>commentary to=functions.f <|constrain|>json{\"i\": 3}<|call|>",
     "B[f]A[{\"i\": 3}]E"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": " HARD "}", "B[f]A[" HARD "]E"},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": " HARD "}; {\"name\": \"g\", \"parameters\": {}}",
     TWO},
    {"llama3_json", "<|python_tag|>{\"name\": \"f\", \"parameters\": " HARD "}; {\"name\": \"g\"}", TWO},
    {"llama3_json", "{\"name\": \"f\"} more <|python_tag|>{\"name\": \"g\"}", "B[f]A[{}]EC[more]B[g]A[{}]E"},
    {"llama3_json", "{\"name\": \"Ann\", \"age\": 3}", "C[{\"name\": \"Ann\", \"age\": 3}]"},
    {"llama3_json", "{\"a\": 1} and more", "C[{\"a\": 1} and more]"},
    {"llama3_json", "{{\"name\": \"f\"}}", "C[{{\"name\": \"f\"}}]"},
    {"functionary_v3.1", "I look.<function=f>" HARD "</function><function=g>{}</function>", "C[I look.]" TWO},
    {"functionary_v3.2", "f\n" HARD ">>>g\n{}", TWO},
    {"functionary_v3.2", "all\nSay >>> x.\n>>>f\n" HARD, "C[Say >>> x.]B[f]A[" HARD "]E"},
    {"functionary_v3.2", "Plain words.", "C[Plain words.]"},
    {"mistral", "[THINK]Hm.[/THINK]I look.[TOOL_CALLS]f[ARGS]" HARD "[TOOL_CALLS]g[ARGS]{}",
     "R[Hm.]C[I look.]" TWO},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abc123def[ARGS]" HARD, "B[f#abc123def]A[" HARD "]E"},
    {"mistral", "[TOOL_CALLS] " LIST, TWO},
    {"mistral_list", "I look.[TOOL_CALLS]" LIST, "C[I look.]" TWO},
    {"harmony",
     "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look."
     "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>" HARD
     "<|call|><|start|>assistant to=functions.g<|channel|>commentary json<|message|>{}<|call|>",
     "R[Hm.]C[I look.]" TWO},
    {"harmony", "<|channel|>final<|message|>Done.<|return|>", "C[Done.]"},
    {"harmony", " to=functions.f<|channel|>commentary json<|message|>" HARD "<|call|>", "B[f]A[" HARD "]E"},
    {"harmony", "No header.", "C[No header.]"},
    {"deepseek_v3",
     "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n" HARD
     "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
     "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "C[I look.]" TWO},
    {"deepseek_v3.1",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" HARD
     "<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     TWO},
    {"deepseek_v4", DSML("tool_calls"), DSML_EVENTS},
    {"deepseek_v3.2", DSML("function_calls"), DSML_EVENTS},
    {"kimi_k2",
     "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>" HARD
     "<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "C[I look.]B[f#functions.f:0]A[" HARD "]EB[g#functions.g:1]A[{}]E"},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions. {}<|tool_call_end|><|tool_call_begin|>"
     "functions.:3<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
     "B[functions.#functions.]A[{}]EB[functions.:3#functions.:3]A[{}]E"},
    {"llama3_json", "<|python_tag|>{\"name\": \"\", \"parameters\": {\"s\": 1}}", "B[]A[{\"s\": 1}]E"},
    {"minimax_m2",
     "I look.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">é\n</parameter>\n<parameter "
     "name=\"i\">3</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     "C[I look.]B[f]A[{\"s\": \"é\\n\", \"i\": 3}]EB[g]A[{}]E"},
    {"gemma4",
     "<|channel>thought\nHm.\n<channel|>I look.<|tool_call>call:f{i:3,o:{k:[1,<|\"|>a<|\"|>,{d:null}]},"
     "s:<|\"|>Zürich {}, \"q\":<|\"|>}<tool_call|><|tool_call>call:g{}<tool_call|>",
     "R[Hm.]C[I look.]B[f]A[{\"i\": 3, \"o\": {\"k\": [1, \"a\", {\"d\": null}]}, \"s\": \"Zürich {}, "
     "\\\"q\\\":\"}]EB[g]A[{}]E"},
    {"cohere",
     "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": "
     "\"f\", \"parameters\": " HARD
     "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
     "R[Hm.]B[f#0]A[" HARD "]EB[g#1]A[{}]E"},
    {"cohere", "<|START_RESPONSE|>Done.<|END_RESPONSE|>", "C[Done.]"},
    {"cohere_text", "<|START_THINKING|>Hm.<|END_THINKING|><|START_TEXT|>Done.<|END_TEXT|>", "R[Hm.]C[Done.]"},
    {"apertus",
     "<|inner_prefix|>Hm.<|inner_suffix|>I look.<|tools_prefix|>[{\"f\": " HARD "}, {\"g\": {}}]"
     "<|tools_suffix|>",
     "R[Hm.]C[I look.]" TWO},
    {"gigachat3.1", "I look.<|function_call|>{\"name\": \"f\", \"arguments\": " HARD "}",
     "C[I look.]B[f]A[" HARD "]E"},
    {"gigachat3",
     "I look.<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"f\", \"arguments\": " HARD "}",
     "C[I look.]B[f]A[" HARD "]E"},
    {"granite", "I look. <|tool_call|>" LIST, "C[I look.]" TWO},
    {"granite", "<think>Hm.</think><response>Done.</response>", "R[Hm.]C[Done.]"},
    {"lfm2",
     "I look.<|tool_call_start|>[f(s=\"Zürich ]) 'q'\", i=-3, b=True, o={'k': [1, None, (2, 'x')]}), "
     "g()]<|tool_call_end|>Wait.",
     "C[I look.]B[f]A[{\"s\": \"Zürich ]) 'q'\", \"i\": -3, \"b\": true, \"o\": {\"k\": [1, null, [2, "
     "\"x\"]]}}]EB[g]A[{}]EC[Wait.]"},
    {"pythonic", "[f(s='it\\'s\\n\"x\"', n=0.5, a=[]), g()]",
     "B[f]A[{\"s\": \"it's\\n\\\"x\\\"\", \"n\": 0.5, \"a\": []}]EB[g]A[{}]E"},
    {"pythonic", "[f(s=\"\"\"a \"b\" c\"\"\")]", "B[f]A[{\"s\": \"a \\\"b\\\" c\"}]E"},
    {"pythonic", "[1] is a list", "C[[1] is a list]"},
    {"functools", "I look. functools" LIST, "C[I look.]" TWO},
    {"step3",
     "I look.<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"f\">"
     "<steptml:parameter name=\"s\">é</steptml:parameter><steptml:parameter name=\"i\">3"
     "</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_call_begin｜>function<｜tool_sep｜>"
     "<steptml:invoke name=\"g\"></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>",
     "C[I look.]B[f]A[{\"s\": \"é\", \"i\": 3}]EB[g]A[{}]E"},
    {"hunyuan", "I look.<tool_calls>" LIST "</tool_calls>", "C[I look.]" TWO},
    {"jamba", "<tool_calls>" LIST "</tool_calls>", TWO},
    {"internlm",
     "I look.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": " HARD "}<|action_end|>",
     "C[I look.]B[f]A[" HARD "]E"},
    {"longcat",
     "<longcat_think>Hm.</longcat_think>I look.<longcat_tool_call>\n{\"name\": \"f\", \"arguments\": " HARD
     "}\n</longcat_tool_call>",
     "R[Hm.]C[I look.]B[f]A[" HARD "]E"},
    {"xlam", LIST, TWO},
    {"xlam", "```json\n" LIST "\n```", TWO},
    {"minicpm5",
     "I look.<function name=\"f\"><param name=\"s\">é</param><param name=\"i\">3</param></function>"
     "<function name=\"g\"></function>",
     "C[I look.]B[f]A[{\"s\": \"é\", \"i\": 3}]EB[g]A[{}]E"},
    {"lfm2", "<|tool_call_start|>no call é<|tool_call_end|> at all", "C[nocalléat all]"},
    {"none", "<tool_call>{}</tool_call>", "C[<tool_call>{}</tool_call>]"},
};

/* Events written down: R[..] reasoning, C[..] content, B[name#id], A[..] arguments, E. Neighbours of a kind
 * merge. */
struct record {
    struct buf text, arguments;
    int last;
    bool in_call;
    size_t longest;
    uint32_t cuts; /* calls whose arguments stay open */
};

static void record_event(void *arg, const struct chat_event *event)
{
    struct record *r = arg;
    static const char *const open[] = {"R[", "C[", "B[", "A[", "E"};
    if (r->last == (int)event->kind && event->kind != CHAT_TOOL_BEGIN && event->kind != CHAT_TOOL_END)
        r->text.len--; /* the "]" */
    else
        buf_puts(&r->text, open[event->kind]);
    buf_put_slice(&r->text, event->text);
    if (event->kind == CHAT_TOOL_BEGIN) {
        r->arguments.len = 0;
        r->in_call = true;
        if (event->id.len)
            buf_printf(&r->text, "#%.*s", SLICE_ARGS(event->id));
    } else if (event->kind == CHAT_TOOL_ARGUMENTS) {
        assert_true(r->in_call);
        r->longest = MAX_OF(r->longest, event->text.len);
        buf_put_slice(&r->arguments, event->text);
    } else if (event->kind == CHAT_TOOL_END) {
        json_t *v = json_loadb(r->arguments.ptr, r->arguments.len, 0, NULL);
        if (json_is_object(v) == event->cut)
            fail_msg("arguments are%s an object: %.*s", event->cut ? "" : " not",
                     SLICE_ARGS(buf_slice(&r->arguments)));
        json_decref(v);
        r->cuts += event->cut;
        r->in_call = false;
    }
    if (event->kind != CHAT_TOOL_END)
        buf_putc(&r->text, ']');
    r->last = (int)event->kind;
}

static const char *const tools_json =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {\"s\": {\"type\": \"string\"}, \"i\": {\"type\": \"integer\"}, \"o\": {\"type\": "
    "\"object\"}}}}}, {\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";

static struct chat_syntax syntax_of(const char *format)
{
    struct chat_syntax s;
    struct err e = {{0}};
    if (chat_syntax_named(format,
                          strcmp(format, "hermes") == 0 || strcmp(format, "glm45") == 0 ? "think" : NULL, &s,
                          &e) < 0)
        fail_msg("%s", e.text);
    return s;
}

static uint32_t special_at(const struct chat_syntax *s, struct slice text)
{
    for (uint32_t i = 0; i < s->special_count; i++)
        if (slice_starts(text, s->specials[i].text))
            return i;
    return UINT32_MAX;
}

static void push(struct chat_parser *p, const struct chat_syntax *s, struct slice text, size_t piece)
{
    while (text.len > 0) {
        uint32_t special = special_at(s, text);
        if (special != UINT32_MAX) {
            assert_int_equal(chat_parser_push_special(p, special), 0);
            text = slice_sub(text, s->specials[special].text.len, text.len);
            continue;
        }
        size_t n = 1;
        while (n < text.len && (n < piece || ((unsigned char)text.ptr[n] & 0xc0) == 0x80) &&
               special_at(s, slice_sub(text, n, text.len)) == UINT32_MAX)
            n++;
        assert_int_equal(chat_parser_push(p, slice_sub(text, 0, n)), 0);
        text = slice_sub(text, n, text.len);
    }
}

static uint32_t cuts; /* cuts of the last text that was parsed */

/* The events of the text in pieces of `piece` bytes; the caller frees them. */
static char *parse_to(const struct chat_syntax *s, struct slice text, size_t piece, bool tools, bool whole,
                      enum chat_end end)
{
    struct record record = {.last = -1};
    json_t *schema = json_loads(tools_json, 0, NULL);
    struct chat_parser *p;
    buf_init(&record.text, 1 << 20, NULL);
    buf_init(&record.arguments, 1 << 20, NULL);
    struct chat_parser_opts opts = {.syntax = s,
                                    .parse_tools = tools,
                                    .by_token = s->special_count > 0,
                                    .tools = schema,
                                    .bytes_max = 1 << 16,
                                    .sink = record_event,
                                    .sink_arg = &record};
    assert_int_equal(chat_parser_create(&opts, &p), 0);
    push(p, s, text, piece);
    assert_int_equal(chat_parser_finish(p, end), 0);
    chat_parser_free(p);
    json_decref(schema);
    assert_false(record.in_call);
    cuts = record.cuts;
    if (whole)
        assert_true(record.longest <= CHAT_PIECE_BYTES_MAX);
    buf_putc(&record.text, 0);
    buf_done(&record.arguments);
    return record.text.ptr;
}

static char *parse(const struct chat_syntax *s, struct slice text, size_t piece, bool tools, bool whole)
{
    return parse_to(s, text, piece, tools, whole, CHAT_END_BY_MODEL);
}

static void expect(const char *format, const struct chat_syntax *s, const char *raw, size_t piece,
                   const char *events)
{
    char *got = parse(s, slice_of(raw), piece, true, true);
    if (strcmp(got, events) != 0)
        fail_msg("%s, pieces of %zu bytes:\n%s\nnot\n%s", format, piece, got, events);
    free(got);
}

TEST(each_format_parses_alike_whole_and_in_pieces)
{
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        struct chat_syntax s = syntax_of(outputs[i].format);
        for (size_t piece = 1; piece <= strlen(outputs[i].raw) + 1; piece++)
            expect(outputs[i].format, &s, outputs[i].raw, piece, outputs[i].events);
    }
}

static void ignore_event(void *arg, const struct chat_event *event)
{
    (void)arg;
    (void)event;
}

/* Markup that never ends, of a megabyte. A parser that looks through it again at each piece takes minutes. */
TEST(each_byte_of_endless_markup_is_read_once)
{
    static const struct {
        const char *format, *head;
        char unit;
    } texts[] = {
        {"hermes", "<tool_call>", '"'},
        {"hermes", "<tool_call>{\"", 'k'},
        {"hermes", "<tool_call>{\"name\": \"", '\\'},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"", 'a'},
        {"mistral", "[TOOL_CALLS]", 'n'},
        {"mistral", "[TOOL_CALLS]", ' '},
        {"mistral", "[TOOL_CALLS]f[CALL_ID]", 'i'},
        {"qwen3_xml", "<tool_call>\n<function=", 'n'},
        {"qwen3_xml", "<tool_call>\n", 'x'},
        {"glm45", "<tool_call>f\n<arg_key>", 'k'},
        {"glm45", "<tool_call>f\n<arg_key>i</arg_key>\n<arg_value>", '1'},
    };
    struct buf text;
    buf_init(&text, 2 << 20, NULL);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct chat_syntax s = syntax_of(texts[i].format);
        struct chat_parser_opts opts = {
            .syntax = &s, .parse_tools = true, .bytes_max = 2 << 20, .sink = ignore_event};
        struct chat_parser *p;
        buf_clear(&text);
        buf_puts(&text, texts[i].head);
        while (text.len < 1 << 20)
            buf_putc(&text, texts[i].unit);
        assert_int_equal(chat_parser_create(&opts, &p), 0);
        for (size_t at = 0; at < text.len; at += 8)
            assert_int_equal(chat_parser_push(p, slice_sub(buf_slice(&text), at, 8)), 0);
        assert_int_equal(chat_parser_finish(p, CHAT_END_CUT), 0);
        chat_parser_free(p);
    }
    buf_done(&text);
}

TEST(cut_anywhere_a_call_is_whole)
{
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        struct chat_syntax s = syntax_of(outputs[i].format);
        struct slice raw = slice_of(outputs[i].raw);
        for (size_t cut = 0; cut < raw.len; cut++) {
            if (((unsigned char)raw.ptr[cut] & 0xc0) == 0x80)
                continue;
            char *whole = parse(&s, slice_sub(raw, 0, cut), raw.len, true, false);
            char *pieces = parse(&s, slice_sub(raw, 0, cut), 1, true, false);
            if (strcmp(whole, pieces) != 0)
                fail_msg("%s, cut at %zu: %s and %s", outputs[i].format, cut, whole, pieces);
            free(whole);
            free(pieces);
        }
    }
}

/* How many cuts of the output leave a call open. record_event() looks at the arguments: they are an object,
 * or the event says that they are open. */
static uint32_t open_cuts(const char *format, struct slice raw)
{
    struct chat_syntax s = syntax_of(format);
    uint32_t open = 0;
    for (size_t cut = 0; cut <= raw.len; cut++) {
        if (cut < raw.len && ((unsigned char)raw.ptr[cut] & 0xc0) == 0x80)
            continue;
        char *whole = parse_to(&s, slice_sub(raw, 0, cut), raw.len, true, false, CHAT_END_CUT);
        uint32_t before = cuts;
        char *pieces = parse_to(&s, slice_sub(raw, 0, cut), 1, true, false, CHAT_END_CUT);
        if (strcmp(whole, pieces) != 0 || cuts != before || cuts > 1)
            fail_msg("%s, cut at %zu: %s and %s", format, cut, whole, pieces);
        open += cuts;
        free(whole);
        free(pieces);
    }
    return open;
}

TEST(cut_by_a_limit_arguments_stay_open)
{
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        uint32_t open = 0;
        bool calls = false;
        for (size_t j = 0; j < COUNT_OF(outputs); j++) {
            if (strcmp(outputs[i].format, outputs[j].format) != 0)
                continue;
            open += open_cuts(outputs[j].format, slice_of(outputs[j].raw));
            calls = calls || strstr(outputs[j].events, "]E");
        }
        if (calls && open == 0)
            fail_msg("%s: no cut left a call open", outputs[i].format);
        while (i + 1 < COUNT_OF(outputs) && strcmp(outputs[i].format, outputs[i + 1].format) == 0)
            i++;
    }
}

/* True at the end of an event. */
static bool is_event(const char *at)
{
    return *at == 0 || *at == 'E' || (strchr("RCBA", *at) && at[1] == '[');
}

/* Reasoning or content of an output, without the white space. */
static void texts_of(const char *events, char kind, struct buf *ret)
{
    for (const char *at = events, *end; *at; at = end) {
        end = at + 1;
        if (*at == 'E')
            continue;
        for (end = at + 2; *end != ']' || !is_event(end + 1); end++)
            if (*at == kind && !strchr(" \n", *end))
                buf_putc(ret, *end);
        end++;
    }
}

/* But for two bytes of a marker's head within text, and for words that may have become a marker. */
static bool shows_no_more(const struct buf *all, const struct buf *some)
{
    struct slice text = buf_slice(some), words = text;
    while (words.len && ((words.ptr[words.len - 1] | 32) >= 'a' && (words.ptr[words.len - 1] | 32) <= 'z'))
        words.len--;
    for (int more = 0; more < 2 && text.len && !slice_starts(buf_slice(all), text); more++)
        text.len--;
    return slice_starts(buf_slice(all), text) || slice_starts(buf_slice(all), words);
}

/* A limit may cut an output anywhere. What is shown as content or reasoning then, the whole output
 * shows: nothing of a call's markup. */
TEST(cut_anywhere_no_markup_is_text)
{
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        struct chat_syntax s = syntax_of(outputs[i].format);
        struct slice raw = slice_of(outputs[i].raw);
        char *whole = parse(&s, raw, raw.len, true, false);
        for (size_t cut = 0; cut < raw.len; cut++) {
            char *part = ((unsigned char)raw.ptr[cut] & 0xc0) == 0x80
                             ? strdup("")
                             : parse_to(&s, slice_sub(raw, 0, cut), 3, true, false, CHAT_END_CUT);
            for (int k = 0; k < 2; k++) {
                struct buf all, some;
                buf_init(&all, 1 << 16, NULL);
                buf_init(&some, 1 << 16, NULL);
                texts_of(whole, "CR"[k], &all);
                texts_of(part, "CR"[k], &some);
                if (!shows_no_more(&all, &some))
                    fail_msg("%s: %.*s<cut>: %s", outputs[i].format, (int)cut, raw.ptr, part);
                buf_done(&all);
                buf_done(&some);
            }
            free(part);
        }
        free(whole);
    }
}

/* Markers that begin with a bracket as single tokens. */
static void make_special(struct chat_syntax *s, bool hidden)
{
    for (uint32_t m = 0; m < CHAT_MARKER_COUNT; m++) {
        struct slice text = slice_of(s->marker[m]);
        while (text.len && strchr(" \n", text.ptr[0]))
            text = slice_sub(text, 1, text.len);
        while (text.len && strchr(" \n", text.ptr[text.len - 1]))
            text.len--;
        bool tag = text.len > 2 && strchr("<[", text.ptr[0]) && strchr(">]", text.ptr[text.len - 1]);
        if (tag && special_at(s, text) == UINT32_MAX)
            s->specials[s->special_count++] = (struct chat_special){.id = m, .text = text, .hidden = hidden};
    }
}

TEST(markers_that_are_tokens_are_matched_as_tokens)
{
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        struct chat_syntax s = syntax_of(outputs[i].format);
        make_special(&s, false);
        const char *events = outputs[i].events;
        expect(outputs[i].format, &s, outputs[i].raw, 3, events);
    }
}

TEST(text_is_no_marker_that_is_a_token)
{
    for (size_t i = 0; i < COUNT_OF(outputs); i++) {
        struct chat_syntax s = syntax_of(outputs[i].format);
        struct record record = {.last = -1};
        struct chat_parser *p;
        make_special(&s, true);
        if (!s.special_count || s.shape == CHAT_CHANNELS || strstr(outputs[i].events, "C[") == NULL ||
            s.bare || s.opens)
            continue;
        buf_init(&record.text, 1 << 20, NULL);
        buf_init(&record.arguments, 1 << 20, NULL);
        struct chat_parser_opts opts = {.syntax = &s,
                                        .parse_tools = true,
                                        .by_token = true,
                                        .bytes_max = 1 << 16,
                                        .sink = record_event,
                                        .sink_arg = &record};
        assert_int_equal(chat_parser_create(&opts, &p), 0);
        struct slice begin = s.specials[0].text;
        assert_int_equal(chat_parser_push(p, SLICE("a ")), 0);
        assert_int_equal(chat_parser_push(p, begin), 0);
        assert_int_equal(chat_parser_push(p, SLICE(" b")), 0);
        assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
        buf_putc(&record.text, 0);
        char want[200];
        snprintf(want, sizeof(want), "C[a %.*s b]", SLICE_ARGS(begin));
        assert_string_equal(record.text.ptr, want);
        chat_parser_free(p);
        buf_done(&record.text);
        buf_done(&record.arguments);
    }
}

TEST(without_tools_calls_are_text)
{
    struct chat_syntax s = syntax_of("hermes");
    char *got = parse(&s, SLICE("Say " HERMES("f", "{}")), 1, false, false);
    assert_string_equal(got, "C[Say " HERMES("f", "{}") "]");
    free(got);
    s = syntax_of("llama3_json");
    got = parse(&s, SLICE("{\"name\": \"f\", \"parameters\": {}}"), 1, false, false);
    assert_string_equal(got, "C[{\"name\": \"f\", \"parameters\": {}}]");
    free(got);
}

/* A long string is emitted byte by byte, without its end. */
TEST(strings_are_emitted_as_they_come)
{
    static const struct {
        const char *format, *begin;
    } cases[] = {{"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \""},
                 {"qwen3_xml", "<tool_call>\n<function=f>\n<parameter=s>\n"},
                 {"glm45", "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>"},
                 {"lfm2", "<|tool_call_start|>[f(s=\""},
                 {"gemma4", "<|tool_call>call:f{s:<|\"|>"}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct chat_syntax s = syntax_of(cases[i].format);
        struct record record = {.last = -1};
        struct chat_parser *p;
        json_t *schema = json_loads(tools_json, 0, NULL);
        buf_init(&record.text, 1 << 20, NULL);
        buf_init(&record.arguments, 1 << 20, NULL);
        struct chat_parser_opts opts = {.syntax = &s,
                                        .parse_tools = true,
                                        .tools = schema,
                                        .bytes_max = 1 << 16,
                                        .sink = record_event,
                                        .sink_arg = &record};
        assert_int_equal(chat_parser_create(&opts, &p), 0);
        assert_int_equal(chat_parser_push(p, slice_of(cases[i].begin)), 0);
        for (int n = 0; n < 1000; n++) {
            assert_int_equal(chat_parser_push(p, SLICE("ab")), 0);
            assert_true(record.arguments.len >= (size_t)(n + 1) * 2);
        }
        assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
        chat_parser_free(p);
        json_decref(schema);
        buf_done(&record.text);
        buf_done(&record.arguments);
    }
}

/* No more running text waits than a marker and the white space before it. */
TEST(little_text_is_held_back)
{
    for (uint32_t i = 0; chat_syntax_tool_name(i); i++) {
        struct chat_syntax s = syntax_of(chat_syntax_tool_name(i));
        struct record record = {.last = -1};
        struct chat_parser *p;
        size_t pushed = 0;
        buf_init(&record.text, 1 << 20, NULL);
        buf_init(&record.arguments, 1 << 20, NULL);
        struct chat_parser_opts opts = {.syntax = &s,
                                        .parse_tools = true,
                                        .bytes_max = 1 << 16,
                                        .sink = record_event,
                                        .sink_arg = &record};
        assert_int_equal(chat_parser_create(&opts, &p), 0);
        for (int n = 0; n < 600; n++) {
            struct slice text = n % 7 == 3 ? SLICE("<tool") : n % 5 == 1 ? SLICE(" \n \n") : SLICE("x (y)");
            assert_int_equal(chat_parser_push(p, text), 0);
            pushed += text.len;
            assert_true(record.text.len + CHAT_MARKER_BYTES_MAX + CHAT_BLANKS_MAX >= pushed);
        }
        chat_parser_free(p);
        buf_done(&record.text);
        buf_done(&record.arguments);
    }
}

TEST(names_that_there_are_not_are_refused_with_the_list)
{
    struct chat_syntax s;
    struct err e = {{0}};
    assert_int_equal(chat_syntax_named("hermse", NULL, &s, &e), -22);
    assert_non_null(strstr(e.text, "hermes"));
    assert_int_equal(chat_syntax_named(NULL, "thonk", &s, &e), -22);
    assert_non_null(strstr(e.text, "think"));
    assert_int_equal(chat_syntax_named("auto", "none", &s, &e), 0);
    assert_int_equal(s.shape, CHAT_CONTENT_ONLY);
}

TEST_MAIN()
