/* Templates as their models publish them, with what Jinja2 itself makes of them: a folder of NAME.jinja and an
 * expected.json, named by PLATEAU_TEMPLATES or lying beside the checkout; and the bundled model's template with the
 * prompts of its golden data. The former are other people's texts and not part of this repository, so their
 * tests are skipped where there are none. */
#include "test_template.h"

#include <errno.h>

#define JINJA_TEST_BYTES_MAX ((size_t)1 << 20)

static json_t *load_json(const char *dir, const char *name)
{
    char path[4096];
    json_error_t e;
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return json_load_file(path, JSON_ALLOW_NUL, &e);
}

static struct slice json_slice(const json_t *s)
{
    return (struct slice){json_string_value(s), json_string_length(s)};
}

/* Room for one rendering after the other. */
static struct {
    struct arena *scratch;
    struct buf out;
    struct err e;
} room;

static int render(const struct chat_template *t, const struct chat_template_input *in)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    if (!room.scratch) {
        room.scratch = test_arena((size_t)256 << 20);
        buf_init(&room.out, (size_t)64 << 20, NULL);
    }
    buf_clear(&room.out);
    return chat_template_render(t, room.scratch, in, &limits, &room.out, &room.e);
}

static void done(void)
{
    buf_done(&room.out);
    arena_free(room.scratch);
    room.scratch = NULL;
}

/* The case's own keys, and all others as kwargs. */
static json_t *case_input(const json_t *given, const json_t *root, struct chat_template_input *ret)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    json_t *kwargs = json_copy((json_t *)given);
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        json_object_del(kwargs, own[i]);
    *ret = (struct chat_template_input){.messages = json_object_get(given, "messages"),
                                        .tools = json_object_get(given, "tools"),
                                        .documents = json_object_get(given, "documents"),
                                        .add_generation_prompt =
                                            json_is_true(json_object_get(given, "add_generation_prompt")),
                                        .bos_token = json_slice(json_object_get(root, "bos_token")),
                                        .eos_token = json_slice(json_object_get(root, "eos_token")),
                                        .kwargs = kwargs,
                                        .now_s = TEST_NOW_S};
    return kwargs;
}

static bool check_case(const struct chat_template *t, const json_t *root, const json_t *given,
                       const json_t *expected)
{
    struct chat_template_input in;
    json_t *kwargs = case_input(given, root, &in);
    const json_t *text = json_object_get(expected, "text"), *error = json_object_get(expected, "error");
    int r = render(t, &in);
    json_decref(kwargs);
    if (text)
        return r == 0 && slice_eq(buf_slice(&room.out), json_slice(text));
    /* What raise_exception said must come through; the wording of the others is ours. */
    struct slice raised = SLICE("TemplateError: "), said = json_slice(error);
    if (!slice_starts(said, raised))
        return r == -EINVAL;
    return r == -EINVAL && slice_eq(slice_of(room.e.text), slice_sub(said, raised.len, said.len));
}

static void print_difference(const char *name, const char *which, const json_t *expected)
{
    const json_t *text = json_object_get(expected, "text");
    struct slice got = room.out.len || text ? buf_slice(&room.out) : slice_of(room.e.text);
    struct slice want = json_slice(text ? text : json_object_get(expected, "error"));
    size_t at = 0;
    while (at < got.len && at < want.len && got.ptr[at] == want.ptr[at])
        at++;
    at = at > 40 ? at - 40 : 0;
    print_message("%s / %s:\n  want ...%.*s\n  got  ...%.*s\n  (%s)\n", name, which,
                  SLICE_ARGS(slice_sub(want, at, 200)), SLICE_ARGS(slice_sub(got, at, 200)), room.e.text);
}

static size_t check_template(const char *dir, const char *name, const json_t *root, const json_t *expected)
{
    char path[4096];
    struct arena *a = test_arena((size_t)64 << 20);
    struct chat_template *t = NULL;
    size_t right = 0;
    const char *which;
    json_t *case_expected;
    snprintf(path, sizeof(path), "%s/%s.jinja", dir, name);
    FILE *f = fopen(path, "rbe");
    assert_non_null(f);
    char *source = malloc(JINJA_TEST_BYTES_MAX);
    assert_non_null(source);
    size_t len = fread(source, 1, JINJA_TEST_BYTES_MAX, f);
    fclose(f);
    if (chat_template_compile(a, (struct slice){source, len}, &t, &room.e) < 0)
        print_message("%s: %s\n", name, room.e.text);
    json_object_foreach((json_t *)expected, which, case_expected)
    {
        const json_t *given = json_object_get(json_object_get(root, "cases"), which);
        room.e.text[0] = 0;
        bool same = t && check_case(t, root, given, case_expected);
        if (t && !same)
            print_difference(name, which, case_expected);
        right += same;
    }
    free(source);
    arena_free(a);
    return right;
}

TEST(published_templates_render_as_jinja2_renders_them)
{
    const char *dir = getenv("PLATEAU_TEMPLATES");
    dir = dir ? dir : PLATEAU_SOURCE_DIR "/../shared/templates";
    json_t *root = load_json(dir, "expected.json"), *expected;
    size_t right = 0, all = 0;
    const char *name;
    if (!root) {
        print_message("skipped: no expected.json in %s; PLATEAU_TEMPLATES names the folder\n", dir);
        skip();
    }
    json_object_foreach(json_object_get(root, "expected"), name, expected)
    {
        all += json_object_size(expected);
        right += check_template(dir, name, root, expected);
    }
    print_message("%zu of %zu renderings of %zu templates are right\n", right, all,
                  json_object_size(json_object_get(root, "expected")));
    json_decref(root);
    done();
    assert_int_equal(right, all);
}

TEST(the_bundled_models_prompts_are_those_it_was_tested_with)
{
    json_t *root = load_json(PLATEAU_SOURCE_DIR "/tests/golden/data/canary-8bit", "golden.json"), *one;
    struct arena *a = test_arena((size_t)16 << 20);
    struct chat_template *t = NULL;
    size_t i;
    assert_non_null(root);
    assert_int_equal(chat_template_load(a, PLATEAU_SOURCE_DIR "/models/canary", &t, &room.e), 0);
    assert_true(chat_template_mentions(t, SLICE("enable_thinking")));
    assert_false(chat_template_mentions(t, SLICE("no such words")));
    json_t *cases = json_object_get(root, "cases");
    assert_true(json_array_size(cases) >= 24);
    json_array_foreach(cases, i, one)
    {
        const json_t *tools = json_object_get(one, "tools");
        json_t *kwargs = json_pack("{s:O}", "enable_thinking", json_object_get(one, "enable_thinking"));
        struct chat_template_input in = {.messages = json_object_get(one, "messages"),
                                         .tools = json_is_array(tools) ? tools : NULL,
                                         .kwargs = kwargs,
                                         .add_generation_prompt = true};
        assert_int_equal(render(t, &in), 0);
        json_decref(kwargs);
        struct slice want = json_slice(json_object_get(one, "rendered"));
        if (!slice_eq(buf_slice(&room.out), want))
            print_message("case %zu:\n want %.*s\n got  %.*s\n", i, SLICE_ARGS(want),
                          SLICE_ARGS(buf_slice(&room.out)));
        assert_true(slice_eq(buf_slice(&room.out), want));
    }
    json_decref(root);
    arena_free(a);
    done();
}

TEST_MAIN()
