/* Where prompts are cut: exactly, in small templates of each kind, and in other people's, where what two
 * prompts have in common is measured by rendering both. Those are not ours to copy: see
 * test_template_real.c. */
#include "test.h"

#include "base/check.h"
#include "template/chat_template.h"

#include <string.h>

struct kitchen {
    struct arena *a, *scratch;
    struct chat_template *t;
    struct buf text;
    struct chat_cuts cuts;
};

static void kitchen_init(struct kitchen *k, struct slice source)
{
    struct err e = {{0}};
    *k = (struct kitchen){0};
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)64 << 20}, &k->a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){.bytes_max = (size_t)256 << 20}, &k->scratch), 0);
    buf_init(&k->text, 1 << 22, NULL);
    if (chat_template_compile(k->a, source, &k->t, &e) < 0)
        fail_msg("%s", e.text);
}

static void kitchen_done(struct kitchen *k)
{
    buf_done(&k->text);
    arena_free(k->scratch);
    arena_free(k->a);
}

/* False: the template refuses. */
static bool render(struct kitchen *k, const json_t *messages, const json_t *tools, bool generation)
{
    struct err e = {{0}};
    struct chat_template_input in = {.messages = messages,
                                     .tools = tools,
                                     .add_generation_prompt = generation,
                                     .bos_token = SLICE("<s>"),
                                     .eos_token = SLICE("</s>"),
                                     .now_s = 1700000000};
    buf_clear(&k->text);
    return chat_template_render_cuts(k->t, k->scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &k->text, &k->cuts,
                                     &e) == 0;
}

/* ---- small ones ---- */

/* "su at" and so on: a message per letter, system, user, assistant, tool; its content is the letter and its
 * number. */
static json_t *conversation(const char *letters)
{
    json_t *list = json_array();
    for (int i = 0; letters[i]; i++) {
        const char *role = letters[i] == 's'   ? "system"
                           : letters[i] == 'u' ? "user"
                           : letters[i] == 'a' ? "assistant"
                                               : "tool";
        char content[16];
        snprintf(content, sizeof(content), "%c%d", letters[i], i);
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", role, "content", content));
    }
    return list;
}

/* The rendering with a '|' at each cut. */
static void expect(const char *source, const char *letters, const char *want)
{
    struct kitchen k;
    kitchen_init(&k, slice_of(source));
    json_t *messages = conversation(letters);
    assert_true(render(&k, messages, NULL, true));
    char got[8192];
    size_t n = 0;
    uint32_t next = 0;
    for (size_t i = 0; i <= k.text.len; i++) {
        if (next < k.cuts.count && k.cuts.bytes[next] == i) {
            got[n++] = '|';
            next++;
        }
        got[n++] = i < k.text.len ? k.text.ptr[i] : 0;
    }
    assert_int_equal(next, k.cuts.count);
    assert_string_equal(got, want);
    json_decref(messages);
    kitchen_done(&k);
}

#define ONE      "{{m.role[0]}}:{{m.content}};"
#define GENERATE "{% if add_generation_prompt %}a:{% endif %}"

TEST(a_prompt_is_cut_where_turns_change)
{
    expect("{% for m in messages %}" ONE "{% endfor %}" GENERATE, "suau", "s:s0;u:|u1;|a:a2;|u:u3;|a:");
    /* Messages that one step adds stay together. */
    expect("{% for m in messages %}" ONE "{% endfor %}" GENERATE, "uattau",
           "u:|u0;|a:a1;|t:t2;t:t3;|a:a4;|u:u5;|a:");
}

TEST(the_first_of_several_system_messages_is_a_cut)
{
    expect("{% for m in messages %}" ONE "{% endfor %}" GENERATE, "ssua", "s:s0;s:|s1;u:|u2;|a:a3;|a:");
    /* Written before the loop, and joined there; only the first of them. */
    expect("{{messages[0].content}}\n{{messages[1].content}}{% for m in messages[2:] %}({{m.content}}){% "
           "endfor %}",
           "ssua", "s0\n|s1(|u2)|(a3)|");
    expect("{% for m in messages %}" ONE "{% endfor %}" GENERATE, "sssu", "s:s0;s:|s1;s:s2;u:|u3;|a:");
}

/* A mark within a text, in a place where that repeats itself; one after a message; one before the text. */
TEST(marks_of_the_client_are_cuts)
{
    const struct chat_mark list[] = {{0, 206}, {2, SIZE_MAX}, {0, 0}, {9, 1}, {1, 500}};
    char text[512] = " ";
    struct err e = {{0}};
    struct kitchen k;
    for (int i = 0; i < 50; i++)
        strcat(text, "same ");
    kitchen_init(&k, SLICE("{% for m in messages %}" ONE "{% endfor %}" GENERATE));
    json_t *messages = conversation("suau");
    json_object_set_new(json_array_get(messages, 0), "content", json_string(text));
    struct chat_template_input in = {
        .messages = messages, .marks = {list, COUNT_OF(list)}, .add_generation_prompt = true};
    assert_int_equal(
        chat_template_render_cuts(k.t, k.scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &k.text, &k.cuts, &e),
        0);
    /* "s: same same ...;u:u1;a:a2;u:u3;a:": marks at 3, 208, after "u1" and after "a:a2;"; and turns. */
    const size_t want[] = {3, 208, 256, 258, 259, 264, 269};
    assert_int_equal(k.cuts.count, COUNT_OF(want));
    for (size_t i = 0; i < COUNT_OF(want); i++)
        assert_int_equal(k.cuts.bytes[i], want[i]);
    json_decref(messages);
    kitchen_done(&k);
}

/* Marks behind the first and the second of three pieces, in the later of two messages that begin alike. */
TEST(marks_between_the_parts_of_a_message_are_cuts)
{
    const struct chat_mark list[] = {{1, 5}, {1, 9}};
    struct err e = {{0}};
    struct kitchen k;
    kitchen_init(
        &k, SLICE("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %};{% endfor %}"));
    json_t *messages =
        json_pack("[{sss[{ss}]}{sss[{ss}{ss}{ss}]}]", "role", "user", "content", "text", "alike", "role",
                  "user", "content", "text", "alike", "text", "alik", "text", "alike");
    struct chat_template_input in = {.messages = messages, .marks = {list, COUNT_OF(list)}};
    assert_int_equal(
        chat_template_render_cuts(k.t, k.scratch, &in, &CHAT_TEMPLATE_LIMITS_DEFAULT, &k.text, &k.cuts, &e),
        0);
    /* "alike;alikealikalike;" */
    const size_t want[] = {11, 15};
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        bool found = false;
        for (uint32_t c = 0; c < k.cuts.count; c++)
            found |= k.cuts.bytes[c] == want[i];
        assert_true(found);
    }
    json_decref(messages);
    kitchen_done(&k);
}

TEST(loops_of_every_kind_are_followed)
{
    const char *want = "[s0]u:|u1;|a:a2;|u:u3;|a:";
    expect("{% set rest = messages[1:] %}[{{messages[0].content}}]{% for m in rest %}" ONE
           "{% endfor %}" GENERATE,
           "suau", want);
    expect("[{{messages[0].content}}]{% for m in messages if m.role != 'system' %}" ONE
           "{% endfor %}" GENERATE,
           "suau", want);
    expect("[{{messages[0].content}}]{% for i in range(1, messages|length) %}{% set m = messages[i] %}" ONE
           "{% endfor %}" GENERATE,
           "suau", want);
    expect("{% macro one(m) %}" ONE "{% endmacro %}[{{messages[0].content}}]"
           "{% for m in messages[1:] %}{{one(m)}}{% endfor %}" GENERATE,
           "suau", want);
    /* A template that looks at messages and writes nothing tells nothing, before the loop and in it. */
    expect("{% set last = messages[-1] %}{% for m in messages[::-1] %}{% endfor %}[{{messages[0].content}}]"
           "{% for m in messages[1:] %}{{m.role[0]}}:{% for o in messages[loop.index:] %}{% set p = o %}{% "
           "endfor %}"
           "{% set n = messages[0] %}{{m.content}};{% endfor %}" GENERATE,
           "suau", want);
}

TEST(a_generation_prompt_is_found_wherever_it_is)
{
    expect("({{messages[0].content}}){% for m in messages[1:] %}" ONE "{% endfor %}" GENERATE, "u",
           "(|u0)|a:");
    expect("{% for m in messages %}" ONE
           "{% if loop.last and add_generation_prompt %}a:{% endif %}{% endfor %}",
           "ua"
           "u",
           "u:|u0;|a:a1;|u:u2;|a:");
    expect("{% if not add_generation_prompt %}-{% endif %}{% for m in messages %}" ONE "{% endfor %}a:", "u",
           "u:|u0;|a:");
}

TEST(a_system_text_inside_the_first_message_is_before_the_cut)
{
    expect("{% for m in messages[1:] %}({% if loop.first %}{{messages[0].content}} {% endif "
           "%}{{m.content}}){% endfor %}",
           "sua", "(s0 |u1)|(a2)|");
    expect("({{messages[0].content}} {{messages[1].content}}){% for m in messages[2:] %}({{m.content}}){% "
           "endfor %}",
           "sua", "(s0 |u1)|(a2)|");
}

TEST(what_is_not_understood_has_no_cuts)
{
    /* The whole conversation as one value: only the first words of a user are found. */
    expect("{% set ns = namespace(out='') %}{% for m in messages %}{% set ns.out = ns.out + m.content %}{% "
           "endfor %}{{ns.out}}",
           "sua", "s0|u1a2");
    expect("{{messages|length}}", "sua", "3");
    expect("nothing", "", "nothing");
    expect("{% for m in messages %}x{% endfor %}", "s", "x");
}

TEST(of_many_turns_the_last_are_cut_and_the_system)
{
    char letters[101], want[64];
    struct kitchen k;
    letters[0] = 's';
    for (int i = 1; i < 100; i++)
        letters[i] = i == 1 ? 'u' : i % 2 ? 't' : 'a';
    letters[100] = 0;
    kitchen_init(&k, SLICE("{% for m in messages %}" ONE "{% endfor %}" GENERATE));
    json_t *messages = conversation(letters);
    assert_true(render(&k, messages, NULL, true));
    assert_int_equal(k.cuts.count, CHAT_CUTS_MAX);
    struct slice text = buf_slice(&k.text);
    const char *places[] = {"u1;", "a:a2;"};
    for (uint32_t i = 0; i < COUNT_OF(places); i++)
        assert_int_equal(k.cuts.bytes[i], slice_find(text, slice_of(places[i]), 0));
    /* 32: those two, the end, and 29 changes before it. */
    for (int i = 2; i < CHAT_CUTS_MAX - 1; i++) {
        int message = 100 - (CHAT_CUTS_MAX - 1 - i);
        snprintf(want, sizeof(want), "%c:%c%d;", letters[message], letters[message], message);
        assert_int_equal(k.cuts.bytes[i], slice_find(text, slice_of(want), 0));
    }
    assert_int_equal(k.cuts.bytes[CHAT_CUTS_MAX - 1], text.len - 2);
    json_decref(messages);
    kitchen_done(&k);
}

TEST(parts_and_odd_messages_do_no_harm)
{
    struct kitchen k;
    kitchen_init(&k, SLICE("{% for m in messages %}<{{m}}>{% endfor %}"));
    json_t *messages = json_loads(
        "[3, \"x\", {\"role\": 5}, {\"role\": \"user\", \"content\": [{\"text\": 7}, {\"text\": \"?\"}]},"
        " {\"role\": \"user\", \"content\": \"\"}]",
        0, NULL);
    assert_true(render(&k, messages, NULL, true));
    assert_true(k.cuts.count <= CHAT_CUTS_MAX);
    json_decref(messages);
    messages = json_loads("[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\":"
                          " [{\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"  What is it?\"}]}]",
                          0, NULL);
    kitchen_done(&k);
    kitchen_init(&k, SLICE("{% for m in messages %}{% for p in m.content %}{{p.text|default('#')}}{% endfor "
                           "%};{% endfor %}"));
    assert_true(render(&k, messages, NULL, true));
    /* Before the image, and between it and the question about it. */
    assert_true(slice_starts(buf_slice(&k.text), SLICE("#;#  What")));
    assert_int_equal(k.cuts.bytes[0], 2);
    assert_int_equal(k.cuts.bytes[1], 5);
    json_decref(messages);
    kitchen_done(&k);
}

/* ---- other people's ---- */

static const char agent[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"You are a careful agent.\"},"
    " {\"role\": \"user\", \"content\": \"List the files, please.\"},"
    " {\"role\": \"assistant\", \"content\": \"Looking.\", \"reasoning_content\": \"I need ls.\", "
    "\"tool_calls\": "
    "[{\"type\": \"function\", \"id\": \"call12345\", \"function\": {\"name\": \"run\", \"arguments\": "
    "{\"command\": \"ls\"}}}]},"
    " {\"role\": \"tool\", \"tool_call_id\": \"call12345\", \"name\": \"run\", \"content\": \"a.c b.c\"},"
    " {\"role\": \"assistant\", \"content\": \"There are two.\", \"reasoning_content\": \"Two of them.\"},"
    " {\"role\": \"user\", \"content\": \"Which is larger?\"},"
    " {\"role\": \"assistant\", \"content\": \"The second.\", \"reasoning_content\": \"A draft.\"},"
    " {\"role\": \"user\", \"content\": \"Thanks a lot.\"}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"run\", \"description\": \"Runs a "
    "command\","
    " \"parameters\": {\"type\": \"object\", \"properties\": {\"command\": {\"type\": \"string\", "
    "\"description\": "
    "\"what\"}}, \"required\": [\"command\"]}}}]}";

/* No template refuses it. */
static const char plain[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"List the files, please.\"},"
                            " {\"role\": \"assistant\", \"content\": \"There are two.\"},"
                            " {\"role\": \"user\", \"content\": \"Which is larger?\"},"
                            " {\"role\": \"assistant\", \"content\": \"The second.\"},"
                            " {\"role\": \"user\", \"content\": \"Thanks a lot.\"}]}";

/* Bytes that both renderings begin with. */
static size_t common(struct kitchen *k, const json_t *messages, const json_t *tools, const json_t *others)
{
    assert_true(render(k, messages, tools, true));
    struct slice first = buf_slice(&k->text);
    char *copy = arena_strndup(k->a, first.ptr, first.len);
    struct chat_cuts cuts = k->cuts;
    assert_true(render(k, others, tools, true));
    size_t n = 0;
    while (n < first.len && n < k->text.len && copy[n] == k->text.ptr[n])
        n++;
    k->cuts = cuts;
    return n;
}

/* The last cut before `at`; 0: none. */
static size_t cut_before(const struct chat_cuts *cuts, size_t at)
{
    size_t last = 0;
    for (uint32_t i = 0; i < cuts->count && cuts->bytes[i] <= at; i++)
        last = cuts->bytes[i];
    return last;
}

/* The head of a message, and of the generation prompt: what a cut before it may lose at most. */
#define HEAD_BYTES_MAX 64

static void check_cuts(const char *name, struct kitchen *k, const json_t *messages, const json_t *tools)
{
    /* Templates that write no message in a loop of their own, but one text in the end. */
    bool follows = strcmp(name, "Reka-Edge") != 0;
    size_t user = 0, count = json_array_size(messages);
    while (strcmp(json_string_value(json_object_get(json_array_get(messages, user), "role")), "user") != 0)
        user++;
    json_t *others = json_deep_copy(messages);
    json_object_set_new(json_array_get(others, user), "content", json_string("Quite another thing"));
    size_t n = common(k, messages, tools, others);
    json_decref(others);
    if (n != k->cuts.bytes[0])
        fail_msg("%s: another first message differs at %zu, the first cut is at %zu", name, n,
                 k->cuts.bytes[0]);
    /* Each turn's prompt when it was sent, and the whole conversation. */
    for (size_t turn = user + 1; follows && turn < count; turn++) {
        json_t *before = json_array();
        for (size_t i = 0; i < turn; i++)
            json_array_append(before, json_array_get(messages, i));
        bool asks = strcmp(json_string_value(json_object_get(json_array_get(messages, turn), "role")),
                           "assistant") == 0;
        n = asks ? common(k, before, tools, messages) : 0;
        if (n > k->cuts.bytes[0] && n - cut_before(&k->cuts, n) > HEAD_BYTES_MAX)
            fail_msg("%s, message %zu: %zu bytes in common, and the last cut is at %zu", name, turn, n,
                     cut_before(&k->cuts, n));
        json_decref(before);
    }
}

static void check_file(const char *dir, const char *name, const json_t *full, const json_t *small)
{
    char path[4096];
    static char source[1 << 20];
    struct kitchen k;
    snprintf(path, sizeof(path), "%s/%s.jinja", dir, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t len = fread(source, 1, sizeof(source), f);
    fclose(f);
    kitchen_init(&k, (struct slice){source, len});
    const json_t *messages = json_object_get(full, "messages"), *tools = json_object_get(full, "tools");
    if (render(&k, messages, tools, true))
        check_cuts(name, &k, messages, tools);
    messages = json_object_get(small, "messages");
    if (render(&k, messages, NULL, true))
        check_cuts(name, &k, messages, NULL);
    kitchen_done(&k);
}

TEST(in_every_template_cuts_are_where_prompts_part)
{
    const char *dir = getenv("PLATEAU_TEMPLATES"), *name;
    char path[4096];
    json_t *cases;
    if (!dir)
        dir = PLATEAU_SOURCE_DIR "/../shared/templates";
    snprintf(path, sizeof(path), "%s/expected.json", dir);
    json_t *root = json_load_file(path, 0, NULL);
    if (!root) {
        printf("skipped: no expected.json in %s; name the folder in PLATEAU_TEMPLATES\n", dir);
        skip();
    }
    json_t *full = json_loads(agent, 0, NULL), *small = json_loads(plain, 0, NULL);
    assert_true(full && small);
    json_object_foreach(json_object_get(root, "expected"), name, cases)
        check_file(dir, name, full, small);
    json_decref(full);
    json_decref(small);
    json_decref(root);
}

TEST_MAIN()
