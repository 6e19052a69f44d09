/* Grammars of tool calls against the parser of replies: random texts of a grammar are what the parser takes
 * for calls, and their arguments fit the tools' schemas. */
#define TEST_SEEDS 2
#include "test.h"
#include "test_json_blocks.h"
#include "test_tool_grammar.h"

#include "test_rng.h"
#include "base/check.h"
#include "chat/chat_format.h"
#include "chat/chat_syntax.h"
#include "grammar/grammar.h"
#include "grammar/grammar_vocab.h"
#include "grammar/matcher.h"

#include <errno.h>
#include <string.h>

#define TOOLS                                                                                                \
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"type\": "        \
    "\"object\", \"properties\": {"                                                                          \
    "\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 14}, " \
    "\"unit\": {\"type\": \"string\", \"enum\": [\"celsius\", \"kelvin\"]}, \"deep\": {\"type\": "           \
    "\"boolean\"}, \"tags\": {\"type\": \"array\", \"items\": {\"type\": \"string\", \"maxLength\": 3}, "    \
    "\"maxItems\": 2}, \"at\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"number\"}, "      \
    "\"code\": {\"type\": \"string\", \"pattern\": \"^[A-Z]{2}$\"}}, \"required\": [\"x\"], "                \
    "\"additionalProperties\": false}}, \"required\": [\"city\", \"days\"], \"additionalProperties\": "      \
    "false}}}, {\"type\": \"function\", \"function\": {\"name\": \"add-2\", \"parameters\": {\"type\": "     \
    "\"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"code\": "                                \
    "{\"type\": \"string\", \"pattern\": \"^[a-c]+$\", \"maxLength\": 4}}, \"required\": [\"a\", "           \
    "\"code\"], "                                                                                            \
    "\"additionalProperties\": false}}}, {\"type\": \"function\", \"function\": {\"name\": \"now\", "        \
    "\"parameters\": {\"type\": \"object\", \"properties\": {}, "                                            \
    "\"additionalProperties\": false}}}, {\"type\": \"function\", \"function\": {\"name\": \"patch\", "      \
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\"}}, "           \
    "\"required\": [\"input\"]}}}]"
#define LARKS "{\"patch\": \"start: line+\\nline: \\\"+\\\" /[<\\\"a]{0,3}/ LF\\n%import common.LF\"}"

static json_t *json_of(const char *text)
{
    json_error_t e;
    json_t *v = json_loads(text, 0, &e);
    if (!v)
        fail_msg("%s: %s", e.text, text);
    return v;
}

/* ---- parsed replies ---- */

struct parsed {
    struct buf arguments, content, reasoning;
    const json_t *tools;
    bool strict;
    uint32_t calls, ended;
    char names[512], fault[600];
};

static bool is_letters(const char *s, char first, char last, size_t min, size_t max)
{
    size_t n = strlen(s);
    for (const char *c = s; *c; c++)
        if (*c < first || *c > last)
            return false;
    return n >= min && n <= max;
}

static bool weather_fits(const json_t *v)
{
    const json_t *days = json_object_get(v, "days"), *unit = json_object_get(v, "unit");
    const json_t *deep = json_object_get(v, "deep"), *tags = json_object_get(v, "tags"), *tag;
    const json_t *at = json_object_get(v, "at"), *code = json_object_get(at, "code");
    size_t i;
    if (!json_is_string(json_object_get(v, "city")) || !json_is_number(days) || json_number_value(days) < 1 ||
        json_number_value(days) > 14)
        return false;
    if (unit && strcmp(json_string_value(unit), "celsius") != 0 &&
        strcmp(json_string_value(unit), "kelvin") != 0)
        return false;
    json_array_foreach(tags, i, tag)
        if (!json_is_string(tag))
            return false;
    return (!deep || json_is_boolean(deep)) &&
           (!tags || (json_is_array(tags) && json_array_size(tags) < 3)) &&
           (!at || json_is_number(json_object_get(at, "x"))) &&
           (!code || is_letters(json_string_value(code), 'A', 'Z', 2, 2));
}

/* True for texts of LARKS. A format that has line ends around values gives the text without its own. */
static bool is_patch(const char *s)
{
    if (!s || *s != '+')
        return false;
    while (*s == '+') {
        size_t n = strspn(++s, "<\"a");
        s += n;
        if (n > 3 || (*s != '\n' && *s))
            return false;
        s += *s == '\n';
    }
    return *s == 0;
}

static bool fits(const char *name, const json_t *v)
{
    if (!json_is_object(v))
        return false;
    if (strcmp(name, "get_weather") == 0)
        return weather_fits(v);
    const json_t *code = json_object_get(v, "code");
    if (strcmp(name, "patch") == 0)
        return json_object_size(v) == 1 && is_patch(json_string_value(json_object_get(v, "input")));
    if (strcmp(name, "add-2") == 0)
        return json_is_number(json_object_get(v, "a")) && json_is_string(code) &&
               is_letters(json_string_value(code), 'a', 'c', 1, 4);
    return json_object_size(v) == 0;
}

/* An exponent of three digits: jansson reads no such number. */
static bool has_large_number(struct slice s)
{
    for (size_t i = 0; i + 4 < s.len; i++) {
        size_t at = i + 1 + (s.ptr[i + 1] == '+' || s.ptr[i + 1] == '-'), n = 0;
        while (at + n < s.len && s.ptr[at + n] >= '0' && s.ptr[at + n] <= '9')
            n++;
        if ((s.ptr[i] | 32) == 'e' && n > 2)
            return true;
    }
    return false;
}

static void take(void *arg, const struct chat_event *event)
{
    struct parsed *p = arg;
    if (event->kind == CHAT_CONTENT)
        buf_put_slice(&p->content, event->text);
    else if (event->kind == CHAT_REASONING)
        buf_put_slice(&p->reasoning, event->text);
    else if (event->kind == CHAT_TOOL_BEGIN) {
        p->arguments.len = 0;
        p->calls++;
        snprintf(p->names, sizeof(p->names), "%.*s", SLICE_ARGS(event->text));
        if (strcmp(p->names, "get_weather") != 0 && strcmp(p->names, "add-2") != 0 &&
            strcmp(p->names, "now") != 0 && strcmp(p->names, "patch") != 0)
            snprintf(p->fault, sizeof(p->fault), "a call of %.100s", p->names);
    } else if (event->kind == CHAT_TOOL_ARGUMENTS) {
        buf_put_slice(&p->arguments, event->text);
    } else {
        p->ended++;
        if (has_large_number(buf_slice(&p->arguments)))
            return;
        json_t *v = json_loadb(p->arguments.ptr, p->arguments.len, JSON_ALLOW_NUL, NULL);
        if (!json_is_object(v) || (p->strict && !fits(p->names, v)))
            snprintf(p->fault, sizeof(p->fault), "%s: arguments %.300s", p->names,
                     p->arguments.len ? p->arguments.ptr : "");
        json_decref(v);
    }
}

static void parse(const struct tool_source_opts *o, bool strict, struct slice reply, struct parsed *ret)
{
    struct chat_parser *p;
    *ret = (struct parsed){.tools = o->tools, .strict = strict};
    buf_init(&ret->arguments, 1 << 20, NULL);
    buf_init(&ret->content, 1 << 20, NULL);
    buf_init(&ret->reasoning, 1 << 20, NULL);
    struct chat_parser_opts opts = {.syntax = o->syntax,
                                    .in_reasoning = o->in_reasoning,
                                    .parse_tools = true,
                                    .tools = o->tools,
                                    .bytes_max = 1 << 20,
                                    .sink = take,
                                    .sink_arg = ret};
    assert_int_equal(chat_parser_create(&opts, &p), 0);
    assert_int_equal(chat_parser_push(p, reply), 0);
    assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
    chat_parser_free(p);
}

static void parsed_done(struct parsed *p)
{
    buf_done(&p->arguments);
    buf_done(&p->content);
    buf_done(&p->reasoning);
}

/* ---- special tokens ---- */

enum { BEGIN = 256, END, VOCAB };

static struct slice byte_of(void *arg, uint32_t id)
{
    static char bytes[256];
    (void)arg;
    if (id >= 256)
        return (struct slice){0};
    bytes[id] = (char)id;
    return (struct slice){&bytes[id], 1};
}

/* The token that ends a call may occur in text, the token that starts one may not. */
TEST(texts_are_without_the_tokens_of_their_own_markers)
{
    static const struct grammar_vocab_opts vocab_opts = {.size = VOCAB, .bytes = byte_of};
    struct chat_syntax syntax;
    struct grammar_vocab *vocab;
    struct tool_test t;
    struct err e = {{0}};
    assert_int_equal(chat_syntax_named("hermes", NULL, &syntax, &e), 0);
    syntax.special_count = 2;
    syntax.specials[0] = (struct chat_special){.id = BEGIN, .text = SLICE("<tool_call>")};
    syntax.specials[1] = (struct chat_special){.id = END, .text = SLICE("</tool_call>")};
    json_t *tools = json_of(TOOLS);
    assert_int_equal(grammar_vocab_create(&vocab_opts, &vocab), 0);
    struct tool_source_opts o = {.syntax = &syntax, .tools = tools, .by_token = true};
    assert_int_equal(tool_test_open_over(&o, vocab, &t, &e), 0);
    assert_int_equal(matcher_take(t.matcher, 'x'), 1);
    assert_int_equal(matcher_take(t.matcher, END), 1);
    assert_int_equal(matcher_take(t.matcher, BEGIN), 1);
    assert_int_equal(matcher_take(t.matcher, 'x'), 0);
    assert_int_equal(matcher_take(t.matcher, END), 0);
    tool_test_close(&t);
    grammar_vocab_free(vocab);
    json_decref(tools);
}

/* The end mark of a raw string is excluded from 3,000 characters without a search through all of them. */
TEST(a_forced_call_may_have_a_string_of_thousands_of_characters)
{
    json_t *tools = json_of("[{\"type\": \"function\", \"function\": {\"name\": \"write\", \"parameters\": "
                            "{\"type\": \"object\", \"properties\": {\"text\": {\"type\": \"string\", "
                            "\"minLength\": 3000, \"maxLength\": 3001}}, \"required\": [\"text\"]}}}]");
    for (uint32_t i = 0; chat_syntax_tool_name(i); i++) {
        const char *name = chat_syntax_tool_name(i);
        struct chat_syntax syntax;
        struct tool_test t;
        struct err e = {{0}};
        assert_int_equal(chat_syntax_named(name, NULL, &syntax, &e), 0);
        struct tool_source_opts o = {.syntax = &syntax, .tools = tools, .required = true};
        if (strcmp(name, "none") == 0)
            continue;
        if (tool_test_open(&o, &t, &e) < 0)
            fail_msg("%s: %s", name, e.text);
        tool_test_close(&t);
    }
    json_decref(tools);
}

/* ---- walks ---- */

static const char *const hints[] = {
    "\"",    "\"",        "}",           "{",          "]",        "[",
    ")",     "(",         ",",           ":",          "=",        "\n",
    " ",     "a",         "b",           "7",          "AB",       "x",
    "1",     "kelvin",    "get_weather", "add-2",      "now",      "\"name\": \"now\"",
    "true",  "null",      "'",           "\\n",        "é",        "<",
    ">",     "0",         "\"city\": ",  "city",       "code",     "functions.now:0",
    "all\n", "assistant", "final",       "commentary", "analysis", "json",
    "}]",    "zq "};

static bool try_text(struct tool_test *t, struct buf *text, struct slice more)
{
    if (more.len == 0 || matcher_take_bytes(t->matcher, more) != 1)
        return false;
    buf_put_slice(text, more);
    return true;
}

static struct slice trimmed(const char *marker)
{
    struct slice s = slice_of(marker);
    while (s.len && strchr(" \n", s.ptr[0]))
        s = slice_sub(s, 1, s.len);
    while (s.len && strchr(" \n", s.ptr[s.len - 1]))
        s.len--;
    return s;
}

static bool any_byte(struct tool_test *t, struct rng *r, struct buf *text)
{
    uint32_t from = (uint32_t)rng_below(r, 96);
    for (uint32_t i = 0; i < 96; i++) {
        char c = (char)(0x20 + (from + i) % 96);
        if (c == 0x7f)
            c = '\n';
        if (try_text(t, text, (struct slice){&c, 1}))
            return true;
    }
    /* Within a marker. */
    for (int b = 0x80; b < 256; b++)
        if (try_text(t, text, (struct slice){(char[]){(char)b}, 1}))
            return true;
    return false;
}

/* Markers come up often, so that values and texts end: nine of ten ends come before step 800. */
static bool walk(struct tool_test *t, const struct tool_source_opts *o, struct rng *r, uint32_t steps_max,
                 struct buf *text)
{
    matcher_reset(t->matcher);
    for (uint32_t step = 0; step < steps_max; step++) {
        if (matcher_may_end(t->matcher) && rng_below(r, 12) == 0)
            return true;
        const char *marker = o->syntax->marker[rng_below(r, CHAT_MARKER_COUNT)];
        if (rng_below(r, 3) == 0 && try_text(t, text, trimmed(marker)))
            continue;
        if (rng_below(r, 4) > 0 && try_text(t, text, slice_of(hints[rng_below(r, COUNT_OF(hints))])))
            continue;
        if (!any_byte(t, r, text))
            return matcher_may_end(t->matcher);
    }
    return false;
}

static bool is_blank(struct slice s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!strchr(" \t\r\n", s.ptr[i]))
            return false;
    return true;
}

static void check_walk(struct tool_test *t, const struct tool_source_opts *o, bool strict, struct rng *r,
                       uint32_t *ended)
{
    struct buf text;
    struct parsed p;
    buf_init(&text, 1 << 20, NULL);
    /* The first walk of a grammar that ends may be a long one. */
    if (walk(t, o, r, *ended == 0 ? 3000 : 800, &text)) {
        parse(o, strict, buf_slice(&text), &p);
        if (o->required && p.calls == 0)
            snprintf(p.fault, sizeof(p.fault), "no call");
        if (!o->parallel && p.calls > 1)
            snprintf(p.fault, sizeof(p.fault), "%u calls", p.calls);
        if (o->required && !is_blank(buf_slice(&p.content)))
            snprintf(p.fault, sizeof(p.fault), "content %.*s", (int)MIN_OF(p.content.len, (size_t)200),
                     p.content.ptr);
        if (p.fault[0])
            fail_msg("%s%s%s%s: %s\nof the reply\n%.*s", o->syntax->tool_format,
                     o->required ? " required" : "", o->parallel ? " parallel" : "", strict ? " strict" : "",
                     p.fault, SLICE_ARGS(buf_slice(&text)));
        parsed_done(&p);
        ++*ended;
    }
    buf_done(&text);
}

static void walk_format(const char *name, struct rng *r, bool required, bool strict, bool parallel)
{
    struct chat_syntax syntax;
    struct err e = {{0}};
    struct tool_test t;
    uint32_t ended = 0;
    assert_int_equal(chat_syntax_named(name, NULL, &syntax, &e), 0);
    json_t *tools = json_of(TOOLS), *larks = json_of(LARKS),
           *names = json_of("{\"get_weather\":true,\"add-2\":true,\"now\":true,\"patch\":true}");
    struct tool_source_opts o = {.syntax = &syntax,
                                 .tools = tools,
                                 .strict = strict ? names : NULL,
                                 .larks = strict || required ? larks : NULL,
                                 .required = required,
                                 .parallel = parallel};
    if (tool_test_open(&o, &t, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    for (uint32_t i = 0; i < 6; i++)
        check_walk(&t, &o, strict || required, r, &ended);
    if (required && ended == 0)
        printf("%s%s%s: no walk has ended\n", name, strict ? " strict" : "", parallel ? " parallel" : "");
    tool_test_close(&t);
    json_decref(names);
    json_decref(larks);
    json_decref(tools);
}

PROPERTY(the_parser_finds_the_calls_of_the_grammar, seed)
{
    struct rng r = {seed, 0};
    for (uint32_t i = 0; chat_syntax_tool_name(i); i++) {
        const char *name = chat_syntax_tool_name(i);
        if (strcmp(name, "none") != 0)
            for (uint32_t mode = 0; mode < 8; mode++)
                walk_format(name, &r, mode & 1, mode & 2, mode & 4);
    }
}

TEST_MAIN()
