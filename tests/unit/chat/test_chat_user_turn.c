/* A further turn of the user as a text of its own, behind a conversation that is rendered without it. Real
 * templates are read where test_chat_templates.c finds them. */
#include "test.h"

#include "base/check.h"
#include "base/files/small_file.h"
#include "chat/chat_user_turn.h"

#include <errno.h>

struct scene {
    struct arena *arena, *scratch;
    struct chat_template *template;
    struct buf text;
};

static void begin(struct scene *s, struct slice source)
{
    struct err e = {{0}};
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)64 << 20, 0, NULL}, &s->arena), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)256 << 20, 0, NULL}, &s->scratch), 0);
    if (chat_template_compile(s->arena, source, &s->template, &e) < 0)
        fail_msg("%s", e.text);
    buf_init(&s->text, 1 << 20, NULL);
}

static void end(struct scene *s)
{
    buf_done(&s->text);
    arena_free(s->arena);
    arena_free(s->scratch);
}

static int turn(struct scene *s, const char *words)
{
    struct chat_user_turn t = {.template = s->template, .limits = CHAT_TEMPLATE_LIMITS_DEFAULT};
    json_t *content = json_string(words);
    int r = chat_user_turn_write(&t, s->scratch, content, &s->text);
    json_decref(content);
    return r;
}

static void expect(const char *source, int want, const char *text)
{
    struct scene s;
    begin(&s, slice_of(source));
    assert_int_equal(turn(&s, "Sum up."), want);
    buf_putc(&s.text, 0);
    assert_string_equal(s.text.ptr, text);
    end(&s);
}

#define MESSAGE  "[{{ m.role }}]{{ m.content }}."
#define EACH     "{% for m in messages %}" MESSAGE "{% endfor %}"
#define GENERATE "{% if add_generation_prompt %}[assistant]{% endif %}"

TEST(the_turn_is_what_stands_behind_the_end_of_the_one_before)
{
    expect(EACH GENERATE, 0, "[user]Sum up..[assistant]");
    /* A template that drops what the assistant thought, once the user writes again. */
    expect("{% for m in messages %}{% if m.role == 'assistant' and loop.last %}<think>{% endif %}" MESSAGE
           "{% endfor %}" GENERATE,
           0, "[user]Sum up..[assistant]");
}

TEST(a_template_without_such_a_text_says_so)
{
    expect("{{ messages | length }}", -ENOENT, "");
    expect(EACH "{% if not add_generation_prompt %}END{% endif %}", -ENOENT, "");
    expect("{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}" EACH, -ENOENT, "");
    expect("{% for m in messages %}{% if m.role == 'assistant' %}" MESSAGE "{% endif %}{% endfor %}", -ENOENT,
           "");
}

/* ---- real templates ---- */

/* The last one ends a reply in another way than one that the user answers. */
static const struct {
    const char *file;
    int want;
} templates[] = {
    {"ByteDance-Seed-OSS", 0},
    {"GLM-4.6", 0},
    {"Kimi-K2-Thinking", 0},
    {"LFM2-8B-A1B", 0},
    {"Mistral-Small-3.2-24B-Instruct-2506", 0},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 0},
    {"Qwen-Qwen2.5-7B-Instruct", 0},
    {"Qwen3-Coder", 0},
    {"Qwen3.5-4B", 0},
    {"deepseek-ai-DeepSeek-V3.1", 0},
    {"google-gemma-4-31B-it-interleaved", 0},
    {"meta-llama-Llama-3.1-8B-Instruct", 0},
    {"openai-gpt-oss-120b", -ENOENT},
};

TEST(real_templates_have_a_text_for_a_turn)
{
    char path[4096];
    const char *dir = getenv("PLATEAU_TEMPLATES");
    for (size_t i = 0; i < COUNT_OF(templates); i++) {
        struct small_file f;
        struct scene s;
        struct err e;
        snprintf(path, sizeof(path), "%s/%s.jinja", dir ? dir : PLATEAU_SOURCE_DIR "/../shared/templates",
                 templates[i].file);
        if (small_file_read(path, 1 << 20, &f, &e) < 0)
            continue;
        begin(&s, (struct slice){f.bytes, f.len});
        int r = turn(&s, "Sum up.");
        bool has = slice_find(buf_slice(&s.text), SLICE("Sum up."), 0) != SIZE_MAX;
        if (r != templates[i].want || has != (r == 0) ||
            slice_find(buf_slice(&s.text), SLICE("zq"), 0) != SIZE_MAX)
            fail_msg("%s: %d, %.*s", templates[i].file, r, SLICE_ARGS(buf_slice(&s.text)));
        end(&s);
        small_file_done(&f);
    }
}

TEST_MAIN()
