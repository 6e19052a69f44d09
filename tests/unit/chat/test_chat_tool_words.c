/* The words that templates have for a tool: the difference of two renderings. Real templates are read where
 * test_chat_templates.c finds them. */
#include "test.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "chat/chat_syntax.h"
#include "chat/chat_tool_words.h"
#include "unicode/utf8.h"

#include <errno.h>

struct scene {
    struct arena *arena, *scratch;
    struct chat_template *template;
    struct chat_syntax syntax;
    struct buf text;
};

static void begin(struct scene *s, struct slice source)
{
    struct err e = {{0}};
    memset(s, 0, sizeof(*s));
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)64 << 20, 0, NULL}, &s->arena), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)256 << 20, 0, NULL}, &s->scratch), 0);
    if (chat_template_compile(s->arena, source, &s->template, &e) < 0)
        fail_msg("%s", e.text);
    const struct chat_syntax_opts opts = {.template = s->template};
    assert_int_equal(chat_syntax_find(s->arena, s->scratch, &opts, &s->syntax, &e), 0);
    buf_init(&s->text, 1 << 20, NULL);
}

static void end(struct scene *s)
{
    buf_done(&s->text);
    arena_free(s->arena);
    arena_free(s->scratch);
}

static json_t *tool_of(const char *name, const char *description)
{
    return json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:{s:{s:s, s:s}}, s:[s]}}}", "type", "function", "function",
                     "name", name, "description", description, "parameters", "type", "object", "properties",
                     "city", "type", "string", "description", "Where it is.", "required", "city");
}

/* The words, with a zero at the end; takes the tools. */
static int words(struct scene *s, json_t *tools)
{
    struct chat_tool_words w = {
        .template = s->template, .limits = CHAT_TEMPLATE_LIMITS_DEFAULT, .generic = s->syntax.generic};
    buf_clear(&s->text);
    int r = chat_tool_words_write(&w, s->scratch, tools, &s->text);
    buf_putc(&s->text, 0);
    json_decref(tools);
    return r;
}

static void expect(const char *source, const char *want)
{
    struct scene s;
    begin(&s, slice_of(source));
    s.syntax.generic = false;
    assert_int_equal(words(&s, json_pack("[o]", tool_of("look", "Looks."))), 0);
    assert_string_equal(s.text.ptr, want);
    end(&s);
}

#define MESSAGES "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
#define EACH(body)                                                                                           \
    "{% if tools %}Tools:"                                                                                   \
    "{% for t in tools %}" body "{% endfor %}.{% endif %}" MESSAGES

TEST(the_words_of_a_tool_are_what_a_rendering_with_it_has_more)
{
    expect(EACH("\n- {{ t.function.name }}: {{ t.function.description }}"), "- look: Looks.");
    expect("<t>" EACH("<tool>{{ t.function.name }}</tool>") "</t>", "<tool>look</tool>");
    expect("{{ tools | map(attribute='function') | map(attribute='name') | list }}" MESSAGES, "'look'");
    expect("{% if tools %}[{% for t in tools %}{{ t.function.name }}{% if not loop.last %}, {% endif %}{% "
           "endfor %}]{% endif %}" MESSAGES,
           "look");
}

TEST(a_rendering_that_changes_elsewhere_too_gives_no_words)
{
    static const char *const sources[] = {
        "{{ tools | length }} tools" EACH("{{ t.function.name }}"),
        EACH("{{ t.function.name }}") "{{ tools | length if tools else 0 }}",
        MESSAGES,
        "{% if tools %}{{ raise_exception('no') }}{% endif %}" MESSAGES,
        EACH("{{ t.function.description }}"),
    };
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        struct scene s;
        begin(&s, slice_of(sources[i]));
        s.syntax.generic = false;
        assert_int_equal(words(&s, json_pack("[o]", tool_of("look", "Views."))), -ENOENT);
        end(&s);
    }
}

/* ---- real templates ---- */

static const char *folder(void)
{
    const char *dir = getenv("PLATEAU_TEMPLATES");
    return dir ? dir : PLATEAU_SOURCE_DIR "/../shared/templates";
}

/* Begins of the words; NULL: the template has no place for tools, or writes them at several. */
static const struct {
    const char *file, *words;
} templates[] = {
    {"Apertus-8B-Instruct", "// Weather.\ntype get_weather = (_: {"},
    {"GLM-4.6", "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "},
    {"Kimi-K2-Thinking", "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "},
    {"Mistral-Small-3.2-24B-Instruct-2506",
     "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "},
    {"Qwen-Qwen2.5-7B-Instruct", "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "},
    {"Qwen3-Coder", "<function>\n<name>get_weather</name>\n"},
    {"meta-llama-Llama-3.1-8B-Instruct",
     "{\n    \"type\": \"function\",\n    \"function\": {\n        \"name\": \"get_weather\","},
    {"openai-gpt-oss-120b", "// Weather.\ntype get_weather = (_: {"},
    {"deepseek-ai-DeepSeek-V3.1", NULL},
    {"fireworks-ai-llama-3-firefunction-v2", NULL},
};

static void try_template(const char *name, struct slice source, const char *want)
{
    struct scene s;
    begin(&s, source);
    s.syntax.generic = false;
    int r =
        words(&s, json_pack("[o,o]", tool_of("get_weather", "Weather."), tool_of("get_time", "Time – now.")));
    assert_int_equal(r, want ? 0 : -ENOENT);
    struct slice got = buf_slice(&s.text);
    if (want && (!slice_starts(got, slice_of(want)) || slice_find(got, SLICE("Time – now."), 0) == SIZE_MAX))
        fail_msg("%s: %s", name, s.text.ptr);
    end(&s);
}

TEST(real_templates_have_words_for_a_tool)
{
    char path[4096];
    for (size_t i = 0; i < COUNT_OF(templates); i++) {
        struct small_file f;
        struct err e;
        snprintf(path, sizeof(path), "%s/%s.jinja", folder(), templates[i].file);
        if (small_file_read(path, 1 << 20, &f, &e) < 0)
            continue;
        try_template(templates[i].file, (struct slice){f.bytes, f.len}, templates[i].words);
        small_file_done(&f);
    }
}

TEST_MAIN()
