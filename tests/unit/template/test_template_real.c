/* Other people's chat templates, each with 14 conversations: text for text as transformers renders them,
 * refusal for refusal.
 *
 * They are not ours to copy: the folder is PLATEAU_TEMPLATES, or templates/ in the folder shared/ beside the
 * checkout. */
#include "model_path.h"
#include "test_files.h"

#include "base/check.h"
#include "template/chat_template.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static json_t *variables_of(const json_t *conversation)
{
    json_t *kwargs = json_copy((json_t *)conversation);
    json_object_del(kwargs, "messages");
    json_object_del(kwargs, "tools");
    json_object_del(kwargs, "add_generation_prompt");
    return kwargs;
}

static struct chat_template *compile_file(struct arena *a, const char *path)
{
    struct chat_template *t = NULL;
    struct err e = {{0}};
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *source = arena_alloc(a, 1 << 20);
    size_t n = fread(source, 1, 1 << 20, f);
    fclose(f);
    if (chat_template_compile(a, (struct slice){source, n}, &t, &e) < 0)
        fail_msg("%s: %s", path, e.text);
    return t;
}

static void check_case(const struct chat_template *t, struct arena *scratch, const json_t *root,
                       const char *what, const json_t *conversation, const json_t *want)
{
    struct tm now = {.tm_year = 2026 - 1900, .tm_mon = 10, .tm_mday = 20, .tm_hour = 12};
    json_t *kwargs = variables_of(conversation);
    struct chat_template_input in = {
        .messages = json_object_get(conversation, "messages"),
        .tools = json_object_get(conversation, "tools"),
        .kwargs = kwargs,
        .add_generation_prompt = json_is_true(json_object_get(conversation, "add_generation_prompt")),
        .bos_token = slice_of(json_string_value(json_object_get(root, "bos_token"))),
        .eos_token = slice_of(json_string_value(json_object_get(root, "eos_token"))),
        .now_s = mktime(&now)};
    struct buf got;
    struct err e = {{0}};
    buf_init(&got, 16 << 20, NULL);
    size_t before = arena_mark(scratch);
    int r = chat_template_render_cuts(t, scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &got, NULL, &e);
    assert_int_equal(arena_mark(scratch), before);
    const char *text = json_string_value(json_object_get(want, "text"));
    buf_putc(&got, 0);
    if (text && r < 0)
        fail_msg("%s: refused: %s", what, e.text);
    if (text && strcmp(got.ptr, text) != 0)
        fail_msg("%s: rendered\n%s\nnot\n%s", what, got.ptr, text);
    if (!text && r == 0)
        fail_msg("%s: rendered, but should be refused: %s", what,
                 json_string_value(json_object_get(want, "error")));
    buf_done(&got);
    json_decref(kwargs);
}

TEST(every_template_renders_and_refuses_as_transformers_does)
{
    const char *dir = getenv("PLATEAU_TEMPLATES"), *name, *conversation;
    json_t *cases, *want;
    char path[4096], what[512];
    unsigned count = 0;
    struct arena *scratch;
    if (!dir)
        dir = PLATEAU_SOURCE_DIR "/../shared/templates";
    snprintf(path, sizeof(path), "%s/expected.json", dir);
    json_t *root = json_load_file(path, 0, NULL);
    if (!root) {
        printf("skipped: no expected.json in %s; name the folder in PLATEAU_TEMPLATES\n", dir);
        skip();
    }
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)256 << 20, 0, NULL}, &scratch), 0);
    json_object_foreach(json_object_get(root, "expected"), name, cases) {
        struct arena *a;
        assert_int_equal(arena_create(&(struct arena_opts){(size_t)64 << 20, 0, NULL}, &a), 0);
        snprintf(path, sizeof(path), "%s/%s.jinja", dir, name);
        struct chat_template *t = compile_file(a, path);
        json_object_foreach(cases, conversation, want) {
            snprintf(what, sizeof(what), "%s, %s", name, conversation);
            check_case(t, scratch, root, what, json_object_get(json_object_get(root, "cases"), conversation),
                       want);
            count++;
        }
        arena_free(a);
    }
    printf("%u renderings compared\n", count);
    assert_true(count > 0);
    arena_free(scratch);
    json_decref(root);
}

static void loads(const char *dir, bool tools, const char *says)
{
    struct arena *a, *scratch;
    struct chat_template *t;
    struct err e = {{0}};
    struct buf got;
    json_t *list = json_pack("[{s:s}]", "type", "function");
    struct chat_template_input in = {.messages = json_array(), .tools = tools ? list : NULL};
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &scratch), 0);
    int r = chat_template_load_at(a, dir, &t, &e);
    buf_init(&got, 1 << 10, NULL);
    if (r == 0)
        r = chat_template_render_cuts(t, scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &got, NULL, &e);
    buf_putc(&got, 0);
    assert_string_equal(r == 0 ? got.ptr : e.text, says);
    buf_done(&got);
    arena_free(a);
    arena_free(scratch);
    json_decref(list);
    json_decref((json_t *)in.messages);
}

TEST(newer_files_have_templates_for_tools_beside_the_template)
{
    char folder[512];
    const char *dir = test_dir();
    test_write_text(dir, "tokenizer_config.json",
                    "{\"chat_template\": [{\"name\": \"default\", \"template\": "
                    "\"old\"}, {\"name\": \"tool_use\", \"template\": \"old tools\"}]}");
    loads(dir, false, "old");
    loads(dir, true, "old tools");
    test_write_text(dir, "chat_template.jinja", "plain");
    loads(dir, true, "plain");
    snprintf(folder, sizeof(folder), "%s/additional_chat_templates", dir);
    assert_int_equal(mkdir(folder, 0755), 0);
    test_write_text(folder, "tool_use.jinja", "{{ tools | length }} tools");
    loads(dir, false, "plain");
    loads(dir, true, "1 tools");
    test_write_text(folder, "tool_use.jinja", "{{");
    loads(
        dir, false,
        "additional_chat_templates/tool_use.jinja: chat template: line 1: a tag opens here and does not end");
}

TEST(the_bundled_models_template_renders_the_golden_prompts)
{
    struct arena *a, *scratch;
    struct chat_template *t;
    struct err e;
    size_t i;
    json_t *c;
    json_t *golden =
        json_load_file(PLATEAU_SOURCE_DIR "/tests/golden/data/canary-8bit/golden.json", JSON_ALLOW_NUL, NULL);
    assert_non_null(golden);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)64 << 20, 0, NULL}, &scratch), 0);
    assert_int_equal(chat_template_load_at(a, PLATEAU_SOURCE_DIR "/models/canary", &t, &e), 0);
    assert_true(chat_template_mentions(t, SLICE("enable_thinking")));
    json_array_foreach(json_object_get(golden, "cases"), i, c) {
        struct buf got;
        json_t *tools = json_object_get(c, "tools");
        json_t *kwargs = json_pack("{s:O}", "enable_thinking", json_object_get(c, "enable_thinking"));
        struct chat_template_input in = {.messages = json_object_get(c, "messages"),
                                         .tools = json_is_array(tools) ? tools : NULL,
                                         .kwargs = kwargs,
                                         .add_generation_prompt = true};
        buf_init(&got, 1 << 20, NULL);
        assert_int_equal(
            chat_template_render_cuts(t, scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &got, NULL, &e), 0);
        buf_putc(&got, 0);
        assert_string_equal(got.ptr, json_string_value(json_object_get(c, "rendered")));
        buf_done(&got);
        json_decref(kwargs);
    }
    assert_int_equal(i, 24);
    arena_free(a);
    arena_free(scratch);
    json_decref(golden);
}

TEST_MAIN()
