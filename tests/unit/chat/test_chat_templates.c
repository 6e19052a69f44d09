/* Other people's chat templates: which format is found, and history. A reply is written as the template
 * itself writes it, parsed, put into the history, and rendered: prompt and reply must be the start of
 * the next prompt.
 *
 * They are not ours to copy: the folder is PLATEAU_TEMPLATES, or templates/ in the folder shared/ beside
 * the checkout. */
#include "test.h"
#include "unit/constraint/test_tool_grammar.h"

#include "base/check.h"
#include "base/slice.h"
#include "chat/chat_format.h"
#include "chat/chat_history.h"
#include "chat/chat_syntax.h"
#include "grammar/grammar.h"
#include "template/chat_template.h"

#include <string.h>

/* Limits of the templates themselves, case by case (see `cases`):
 *
 *     -   the round trip holds, and the tools' results follow prompt and reply
 *     o   it holds with thinking off: with thinking on, the generation prompt opens reasoning, and the
 *         template writes none for a message without reasoning
 *     f   the template refuses the message
 *     p   the template does not continue its own generation prompt
 *     l   it holds, but the template leaves something out of the message; no vocabulary is read here, so
 *         reasoning is left out wherever the template has no markers of it
 *     d   it holds until the tools' results come: then the template writes the reply in another way */
static const struct {
    const char *file, *tools, *reasoning;
    const char *limits; /* a letter per case */
    bool system;        /* it takes messages of the system at any place */
} templates[] = {
    {"Apertus-8B-Instruct", "apertus", "apertus", "-------", false},
    {"Bielik-11B-v3.0-Instruct", "hermes", "think", "o-ooo-o", false},
    {"ByteDance-Seed-OSS", "seed_oss", "seed_oss", "-------", true},
    {"Cohere2MoE", "cohere_text", "cohere", "p-ppp-p", true},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere", "cohere", "-ldlddd", true},
    {"GLM-4.6", "glm45", "think", "-------", true},
    {"GLM-4.7-Flash", "glm45", "think", "o-ooo-o", true},
    {"GigaChat3-10B-A1.8B", "gigachat3", "none", "-l--ll-", true},
    {"GigaChat3.1-10B-A1.8B", "gigachat3.1", "none", "-l--ll-", true},
    {"HuggingFaceTB-SmolLM3-3B", "generic", "think", "-------", false},
    {"Kimi-K2-Thinking", "kimi_k2", "think", "-lfffff", true},
    {"LFM2-8B-A1B", "lfm2", "none", "-l---l-", true},
    {"LFM2.5-Instruct", "lfm2", "think", "-------", true},
    {"MiroThinker", "hermes", "think", "fffffff", false},
    {"Mistral-Small-3.2-24B-Instruct-2506", "mistral", "mistral", "-l-l-l-", false},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_xml", "think", "o-ooo-o", true},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes", "none", "-l-l-l-", true},
    {"Qwen-QwQ-32B", "hermes", "think", "ppppppp", true},
    {"Qwen-Qwen2.5-7B-Instruct", "hermes", "none", "-l---l-", true},
    {"Qwen3-Coder", "qwen3_xml", "think", "-l---l-", true},
    {"Qwen3.5-4B", "qwen3_xml", "think", "-------", false},
    {"Reka-Edge", "hermes", "think", "--ddd-d", false},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "deepseek_v3", "think", "ppppppp", false},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "think", "ppppppp", false},
    {"deepseek-ai-DeepSeek-V3.1", "deepseek_v3.1", "think", "-l---l-", false},
    {"deepseek-ai-DeepSeek-V4", "deepseek_v4", "think", "-------", false},
    {"fireworks-ai-llama-3-firefunction-v2", "functools", "none", "-l---l-", false},
    {"google-gemma-2-2b-it", "generic", "none", "-ldddld", false},
    {"google-gemma-4-31B-it-interleaved", "gemma4", "gemma4", "-l-----", true},
    {"ibm-granite-granite-3.3-2B-Instruct", "granite", "granite", "-------", true},
    {"llama-cpp-deepseek-r1", "deepseek_v3", "think", "ppppppp", false},
    {"meetkai-functionary-medium-v3.1", "functionary_v3.1", "none", "-l---l-", true},
    {"meetkai-functionary-medium-v3.2", "functionary_v3.2", "none", "-l---l-", true},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json", "none", "-l-lfl-", true},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json", "none", "-l-lfl-", true},
    {"microsoft-Phi-3.5-mini-instruct", "generic", "none", "-l---l-", true},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "mistral", "-------", false},
    {"moonshotai-Kimi-K2", "kimi_k2", "none", "-l---l-", true},
    {"openai-gpt-oss-120b", "harmony", "harmony", "----l--", false},
    {"stepfun-ai-Step-3.5-Flash", "qwen3_xml", "think", "-------", true},
    {"unsloth-mistral-Devstral-Small-2507", "mistral", "mistral", "-l---l-", true},
};

struct scene {
    struct arena *arena, *scratch;
    struct chat_template *template;
    struct chat_syntax syntax;
    json_t *tools;
    bool thinks;
};

static const char *const tools_json =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Weather.\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\", "
    "\"description\": "
    "\"City.\"}, \"days\": {\"type\": \"integer\", \"description\": \"Days.\"}, \"opts\": {\"type\": "
    "\"object\", \"description\": \"More.\"}, \"deep\": {\"type\": \"boolean\", \"description\": "
    "\"Deep.\"}}, "
    "\"required\": [\"city\"]}}}]";

#define CALL(id, arguments)                                                                                  \
    "{\"id\": \"" id                                                                                         \
    "\", \"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": " arguments "}}"
#define FIRST                                                                                                \
    CALL("aaaaaaaa1", "{\"city\": \"Zürich, \\\"CH\\\" </x>\", \"days\": 3, \"opts\": {\"k\": [1, \"x\"]}}")
#define SECOND CALL("aaaaaaaa2", "{\"city\": \"Bern\\nund Biel\"}")
#define EMPTY  CALL("aaaaaaaa3", "{}")
#define THIRD  CALL("aaaaaaaa4", "{\"city\": \"Aarau\", \"days\": 2}")

static const char *const cases[] = {
    "{\"role\": \"assistant\", \"content\": \"Hello, Zürich! 1 < 2\"}",
    "{\"role\": \"assistant\", \"content\": \"Hello.\", \"reasoning_content\": \"I think\\nso.\"}",
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" FIRST "]}",
    "{\"role\": \"assistant\", \"content\": \"I look.\", \"tool_calls\": [" FIRST "]}",
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" FIRST ", " SECOND "]}",
    "{\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"I think\\nso.\", \"tool_calls\": "
    "[" FIRST "]}",
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" EMPTY "]}",
};
/* Required calls have values by the schema: here strings and numbers, which templates write alike. */
#define TWO "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" THIRD ", " SECOND "]}"

static json_t *json_of(const char *text)
{
    json_error_t e;
    json_t *v = json_loads(text, 0, &e);
    if (!v)
        fail_msg("%s: %s", e.text, text);
    return v;
}

/* Takes the messages. NULL: refused. The caller frees the text. */
static char *render_messages(const struct scene *s, json_t *messages, bool prompt)
{
    struct buf out;
    struct err e = {{0}};
    assert_int_equal(chat_history_adapt(&s->syntax, messages), 0);
    json_t *kwargs = json_pack("{s:b, s:b, s:s, s:s}", "enable_thinking", s->thinks, "thinking", s->thinks,
                               "functions", "none", "datetime", "today");
    struct chat_template_input in = {.messages = messages,
                                     .tools = s->tools,
                                     .kwargs = kwargs,
                                     .add_generation_prompt = prompt,
                                     .bos_token = SLICE("<s>"),
                                     .eos_token = SLICE("</s>")};
    buf_init(&out, 1 << 20, NULL);
    int r = chat_template_render_cuts(s->template, s->scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &out, NULL,
                                      &e);
    buf_putc(&out, 0);
    json_decref(messages);
    json_decref(kwargs);
    if (r == 0)
        return out.ptr;
    buf_done(&out);
    return NULL;
}

/* With the results of its calls where `results`. */
static char *render_all(const struct scene *s, const json_t *message, bool prompt, bool results)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "What is the weather?");
    if (message) {
        json_array_append_new(messages, json_deep_copy(message));
        size_t i;
        json_t *call;
        json_array_foreach(json_object_get(message, "tool_calls"), i, call)
            if (results)
                json_array_append_new(messages, json_pack("{s:s, s:O, s:s, s:s}", "role", "tool",
                                                          "tool_call_id", json_object_get(call, "id"), "name",
                                                          "get_weather", "content", "sunny"));
    }
    return render_messages(s, messages, prompt);
}

static char *render(const struct scene *s, const json_t *message, bool prompt)
{
    return render_all(s, message, prompt, false);
}

/* ---- the reply as a client keeps it ---- */

struct kept {
    struct buf content, reasoning, arguments;
    json_t *calls;
};

static void keep(void *arg, const struct chat_event *event)
{
    struct kept *k = arg;
    if (event->kind == CHAT_CONTENT) {
        buf_put_slice(&k->content, event->text);
    } else if (event->kind == CHAT_REASONING) {
        buf_put_slice(&k->reasoning, event->text);
    } else if (event->kind == CHAT_TOOL_BEGIN) {
        char id[16];
        snprintf(id, sizeof(id), "aaaaaaaa%zu", json_array_size(k->calls) + 1);
        k->arguments.len = 0;
        json_array_append_new(k->calls, json_pack("{s:s, s:s, s:{s:s%}}", "id", id, "type", "function",
                                                  "function", "name", event->text.ptr, event->text.len));
        if (event->id.len)
            json_object_set_new(json_array_get(k->calls, json_array_size(k->calls) - 1), "id",
                                json_stringn(event->id.ptr, event->id.len));
    } else if (event->kind == CHAT_TOOL_ARGUMENTS) {
        buf_put_slice(&k->arguments, event->text);
    } else {
        json_t *v = json_loadb(k->arguments.ptr, k->arguments.len, 0, NULL);
        if (!json_is_object(v))
            fail_msg("arguments: %.*s", SLICE_ARGS(buf_slice(&k->arguments)));
        json_t *call = json_array_get(k->calls, json_array_size(k->calls) - 1);
        json_object_set_new(json_object_get(call, "function"), "arguments", v);
    }
}

static json_t *message_of(const struct scene *s, struct slice reply, bool reasons)
{
    struct kept k = {.calls = json_array()};
    struct chat_parser *p;
    buf_init(&k.content, 1 << 20, NULL);
    buf_init(&k.reasoning, 1 << 20, NULL);
    buf_init(&k.arguments, 1 << 20, NULL);
    struct chat_parser_opts opts = {.syntax = &s->syntax,
                                    .in_reasoning = reasons,
                                    .parse_tools = true,
                                    .tools = s->tools,
                                    .bytes_max = 1 << 20,
                                    .sink = keep,
                                    .sink_arg = &k};
    assert_int_equal(chat_parser_create(&opts, &p), 0);
    assert_int_equal(chat_parser_push(p, reply), 0);
    assert_int_equal(chat_parser_finish(p, CHAT_END_BY_MODEL), 0);
    chat_parser_free(p);
    json_t *m = json_pack("{s:s, s:s%}", "role", "assistant", "content", k.content.len ? k.content.ptr : "",
                          k.content.len);
    if (k.reasoning.len)
        json_object_set_new(m, "reasoning_content", json_stringn(k.reasoning.ptr, k.reasoning.len));
    if (json_array_size(k.calls))
        json_object_set(m, "tool_calls", k.calls);
    json_decref(k.calls);
    buf_done(&k.content);
    buf_done(&k.reasoning);
    buf_done(&k.arguments);
    return m;
}

/* ---- a case ---- */

/* Drops the end of the turn: the text after content. */
static struct slice without_turn_end(const struct scene *s, struct slice reply)
{
    static const char *const ends[] = {"<|eom_id|>", "<|call|>", "<|eot_id|>"};
    json_t *plain = json_pack("{s:s, s:s}", "role", "assistant", "content", "zqcontent");
    char *text = render(s, plain, false), *end = text ? strstr(text, "zqcontent") : NULL;
    if (end) {
        struct slice tail = slice_of(end + strlen("zqcontent"));
        size_t n = 0;
        while (n < tail.len && n < reply.len && tail.ptr[tail.len - 1 - n] == reply.ptr[reply.len - 1 - n])
            n++;
        if (n == tail.len)
            reply.len -= n;
    }
    for (size_t i = 0; i < COUNT_OF(ends); i++)
        if (slice_ends(reply, slice_of(ends[i])))
            reply.len -= strlen(ends[i]);
    json_decref(plain);
    free(text);
    return reply;
}

static bool says_all(const char *rendered, const json_t *message)
{
    const char *content = json_string_value(json_object_get(message, "content"));
    const char *reasoning = json_string_value(json_object_get(message, "reasoning_content"));
    if ((content && !strstr(rendered, content)) || (reasoning && !strstr(rendered, reasoning)))
        return false;
    size_t calls = json_array_size(json_object_get(message, "tool_calls")), seen = 0;
    const char *at = strstr(rendered, "What is the weather?");
    while (at && (at = strstr(at, "get_weather"))) {
        seen++;
        at++;
    }
    return seen >= calls && (calls < 2 || strstr(rendered, "Biel")) &&
           (calls < 1 || strstr(rendered, "3") || 1);
}

/* The reply stands in the prompt of the next turn of an agent. */
static bool follows(const struct scene *s, const json_t *back, const char *prompt, struct slice reply)
{
    char *next = render_all(s, back, true, true);
    bool ok = next && slice_starts(slice_of(next), slice_of(prompt)) &&
              slice_starts(slice_of(next + strlen(prompt)), reply);
    free(next);
    return ok;
}

static unsigned grammars;

/* The grammar of a request with these tools takes so much of the reply, as tool_test_takes() counts. */
static void check_grammar(const struct scene *s, const char *name, struct slice reply, bool reasons,
                          bool required, size_t least)
{
    struct tool_test t;
    struct err e = {{0}};
    const struct tool_source_opts o = {.syntax = &s->syntax,
                                       .tools = s->tools,
                                       .required = required,
                                       .parallel = true,
                                       .in_reasoning = reasons};
    if (!s->tools || !tool_source_supports(&s->syntax))
        return;
    if (tool_test_open(&o, &t, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    size_t took = tool_test_takes(&t, reply);
    if (took < least)
        fail_msg("%s: the grammar takes %zu of %zu bytes of\n%.*s\n", name, took, reply.len,
                 SLICE_ARGS(reply));
    grammars++;
    tool_test_close(&t);
}

static char try_way(const struct scene *s, const char *name, const char *text)
{
    json_t *message = json_of(text);
    char *prompt = render(s, NULL, true), *history = render(s, message, false), result = '-';
    if (!prompt || !history) {
        result = 'f';
    } else if (!slice_starts(slice_of(history), slice_of(prompt))) {
        result = 'p';
    } else {
        struct slice reply = slice_of(history + strlen(prompt));
        bool reasons = chat_syntax_prompt_reasons(&s->syntax, slice_of(prompt));
        struct slice whole = without_turn_end(s, reply);
        json_t *back = message_of(s, whole, reasons);
        check_grammar(s, name, whole, reasons, false, whole.len + 1);
        char *again = render(s, back, false);
        char *shown = json_dumps(back, 0);
        if (!again || strcmp(again, history) != 0)
            result = 'X';
        else if (!says_all(history, message))
            result = 'l';
        else if (json_object_get(message, "tool_calls") && !follows(s, back, prompt, whole))
            result = 'd';
        if (result == 'X')
            printf("%s: %s\nreply %.*s\nparsed %s\n", name, text, SLICE_ARGS(reply), shown);
        free(shown);
        free(again);
        json_decref(back);
    }
    free(prompt);
    free(history);
    json_decref(message);
    return result;
}

static char try_case(struct scene *s, const char *name, const char *text)
{
    s->thinks = true;
    char result = try_way(s, name, text);
    s->thinks = false;
    if (result == 'p' && try_way(s, name, text) == '-')
        result = 'o';
    s->thinks = true;
    return result;
}

static const char *folder(void)
{
    const char *dir = getenv("PLATEAU_TEMPLATES");
    return dir ? dir : PLATEAU_SOURCE_DIR "/../shared/templates";
}

/* False: there is no such file. */
static bool begin(struct scene *s, const char *name)
{
    char path[4096];
    struct err e = {{0}};
    memset(s, 0, sizeof(*s));
    snprintf(path, sizeof(path), "%s/%s.jinja", folder(), name);
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)64 << 20, 0, NULL}, &s->arena), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)256 << 20, 0, NULL}, &s->scratch), 0);
    char *source = arena_alloc(s->arena, 1 << 20);
    size_t n = fread(source, 1, 1 << 20, f);
    fclose(f);
    if (chat_template_compile(s->arena, (struct slice){source, n}, &s->template, &e) < 0)
        fail_msg("%s: %s", name, e.text);
    const struct chat_syntax_opts opts = {.template = s->template};
    assert_int_equal(chat_syntax_find(s->arena, s->scratch, &opts, &s->syntax, &e), 0);
    s->tools = json_of(tools_json);
    char *prompt = render(s, NULL, true);
    if (!prompt) { /* the template takes no tools */
        json_decref(s->tools);
        s->tools = NULL;
    }
    free(prompt);
    return true;
}

static void end(struct scene *s)
{
    json_decref(s->tools);
    arena_free(s->arena);
    arena_free(s->scratch);
}

TEST(formats_are_found_and_history_comes_back)
{
    unsigned found = 0, wrong = 0;
    for (size_t i = 0; i < COUNT_OF(templates); i++) {
        struct scene s;
        char limits[COUNT_OF(cases) + 1] = "";
        if (!begin(&s, templates[i].file))
            continue;
        found++;
        for (size_t c = 0; c < COUNT_OF(cases); c++)
            limits[c] = try_case(&s, templates[i].file, cases[c]);
        if (strcmp(s.syntax.tool_format, templates[i].tools) != 0 ||
            strcmp(s.syntax.reasoning_format, templates[i].reasoning) != 0 ||
            strcmp(limits, templates[i].limits) != 0 || s.syntax.system_in_place != templates[i].system) {
            printf("    {\"%s\", \"%s\", \"%s\", \"%s\", %s},\n", templates[i].file, s.syntax.tool_format,
                   s.syntax.reasoning_format, limits, s.syntax.system_in_place ? "true" : "false");
            wrong++;
        }
        end(&s);
    }
    if (found == 0) {
        printf("skipped: no templates in %s; name the folder in PLATEAU_TEMPLATES\n", folder());
        skip();
    }
    printf("%u templates, %u grammars\n", found, grammars);
    assert_int_equal(wrong, 0);
}

/* Formats that write one call alone, or a prompt of their own before it, are left out. */
TEST(a_grammar_of_required_calls_has_two_of_them)
{
    unsigned before = grammars, found = 0;
    json_t *message = json_of(TWO);
    for (size_t i = 0; i < COUNT_OF(templates); i++) {
        struct scene s;
        if (!begin(&s, templates[i].file))
            continue;
        found++;
        s.thinks = false;
        char *prompt = render(&s, NULL, true), *history = render(&s, message, false);
        if (prompt && history && slice_starts(slice_of(history), slice_of(prompt)) &&
            says_all(history, message)) {
            struct slice reply = slice_of(history + strlen(prompt));
            size_t second = (size_t)(strstr(reply.ptr, "Biel") - reply.ptr);
            check_grammar(&s, templates[i].file, reply,
                          chat_syntax_prompt_reasons(&s.syntax, slice_of(prompt)), true, second);
        }
        free(prompt);
        free(history);
        end(&s);
    }
    json_decref(message);
    if (found == 0)
        skip();
    assert_in_range(grammars - before, 20, found);
}

/* Reasoning in the content, as models write it: nothing of it is lost on the way back. */
TEST(reasoning_in_the_content_comes_back_byte_for_byte)
{
    static const char *const files[] = {"HuggingFaceTB-SmolLM3-3B", "LFM2.5-Instruct",
                                        "ibm-granite-granite-3.3-2B-Instruct"};
    static const char *const replies[] = {
        "<think>I think.</think>Hello.", "<think>\nI think\n\nso.\n</think>\n\nHello.\n",
        "<think> \n a\n  b </think>  Hello, <b>.", "<think>\nI think.\n</think>\n\n  Hello."};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct scene s;
        if (!begin(&s, files[i]))
            skip();
        s.thinks = true;
        char *prompt = render(&s, NULL, true);
        for (size_t k = 0; k < COUNT_OF(replies); k++) {
            char wrapped[200];
            bool granite = strstr(files[i], "granite") != NULL;
            const char *content = strstr(replies[k], "</think>") + 8;
            snprintf(wrapped, sizeof(wrapped), "%.*s%s%s%s", (int)(content - replies[k]), replies[k],
                     granite ? "<response>" : "", content, granite ? "</response>" : "");
            json_t *back = message_of(&s, slice_of(wrapped), false);
            json_t *user = json_pack("[{s:s, s:s}, O, {s:s, s:s}]", "role", "user", "content",
                                     "What is the weather?", back, "role", "user", "content", "And then?");
            char *next = render_messages(&s, user, true);
            if (!next || !slice_starts(slice_of(next), slice_of(prompt)) ||
                !slice_starts(slice_of(next + strlen(prompt)), slice_of(wrapped)))
                fail_msg("%s: %s\nparsed %s\nnext %s", files[i], wrapped, json_dumps(back, 0), next);
            free(next);
            json_decref(back);
        }
        free(prompt);
        end(&s);
    }
}

TEST_MAIN()
