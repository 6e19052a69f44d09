/* Values that templates make: their depth has a bound where they are made, so that each walk over one fits on
 * its stack. */
#include "test.h"

#include "base/clock.h"
#include "base/threads/thread_stack.h"
#include "template/chat_template.h"
#include "template/tmpl_value.h"

#include <errno.h>

/* Makes `depth` lists or dicts around nothing, as ns.a and ns.b. */
#define NEST(around, depth)                                                                                  \
    "{% set ns = namespace(a=0, b=0) %}{% for i in range(" depth                                             \
    ") %}{% set ns.a = " around(ns.a) "%}{% set ns.b = " around(ns.b) "%}{% endfor %}"
#define LIST(x)  "[" #x "]"
#define TUPLE(x) "(" #x ",)"
#define DICT(x)  "{'k': " #x "}"
#define KEY(x)   "{(" #x ",): 1}.keys()|list"

/* 0 with the text in `ret`, or the error with its message. */
static int render(const char *source, const struct chat_template_limits *limits, char ret[static 256])
{
    struct arena *a, *scratch;
    struct chat_template *t;
    struct err e = {{0}};
    struct buf out;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)4 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)64 << 20, 0, NULL}, &scratch), 0);
    json_t *messages = json_array();
    struct chat_template_input in = {.messages = messages};
    buf_init(&out, 8 << 20, NULL);
    if (chat_template_compile(a, slice_of(source), &t, &e) < 0)
        fail_msg("%s: %s", source, e.text);
    int r = chat_template_render_cuts(t, scratch, &in, limits, &out, NULL, &e);
    snprintf(ret, 256, "%.*s", SLICE_ARGS(r < 0 ? slice_of(e.text) : buf_slice(&out)));
    buf_done(&out);
    json_decref(messages);
    arena_free(a);
    arena_free(scratch);
    return r;
}

TEST(a_value_is_at_most_so_deep)
{
    static const char *const deepest[] = {
        NEST(LIST, "256") "{{ ns.a == ns.b }}", NEST(TUPLE, "256") "{{ ns.a == ns.b }}",
        NEST(DICT, "256") "{{ ns.a == ns.b }}", NEST(KEY, "128") "{{ ns.a == ns.b }}"};
    static const char *const deeper[] = {NEST(LIST, "257"),
                                         NEST(TUPLE, "257"),
                                         NEST(DICT, "257"),
                                         NEST(KEY, "129"),
                                         NEST(LIST, "256") "{{ [ns.a, 1]|length }}",
                                         NEST(LIST, "256") "{{ dict(x=ns.a)|length }}",
                                         NEST(LIST, "255") "{{ {'k': ns.a}.items()|length }}",
                                         NEST(LIST, "100000") "{{ ns.a == ns.b }}"};
    const struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    char text[256];
    for (size_t i = 0; i < COUNT_OF(deepest); i++) {
        assert_int_equal(render(deepest[i], &limits, text), 0);
        assert_string_equal(text, "True");
    }
    for (size_t i = 0; i < COUNT_OF(deeper); i++) {
        assert_int_equal(render(deeper[i], &limits, text), -E2BIG);
        assert_string_equal(text, "the chat template nests values deeper than 256");
    }
}

/* A namespace is one thing, whatever it holds: it may hold itself. */
TEST(namespaces_do_not_nest)
{
    const struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    char text[256];
    assert_int_equal(
        render("{% set n = namespace() %}{% set n.n = n %}{% for i in range(1000) %}"
               "{% set n.n = namespace(n=n.n) %}{% endfor %}{{ n.n == n.n }}{{ [n] == [n] }}{{ n }}",
               &limits, text),
        0);
    assert_string_equal(text, "TrueTrue<Namespace>");
}

/* Two values of 2^200 paths each: the steps bound a walk, too. */
TEST(walks_over_shared_parts_count_as_work)
{
    static const char *const walks[] = {"{{ ns.a == ns.b }}",
                                        "{{ ns.a|tojson }}",
                                        "{{ ns.a }}",
                                        "{{ [ns.a, ns.b]|sort }}",
                                        "{{ ns.a in [ns.b] }}",
                                        "{{ [ns.a]|join }}",
                                        "{{ {ns.a: 1}[ns.b] }}",
                                        "{{ [ns.a, ns.b]|unique|list }}"};
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    limits.steps_max = 200000;
    for (size_t i = 0; i < COUNT_OF(walks); i++) {
        char source[512], text[256];
        snprintf(source, sizeof(source),
                 "{%% set ns = namespace(a=(), b=()) %%}{%% for i in range(200) %%}"
                 "{%% set ns.a = (ns.a, ns.a) %%}{%% set ns.b = (ns.b, ns.b) %%}{%% endfor %%}%s",
                 walks[i]);
        assert_int_equal(render(source, &limits, text), -E2BIG);
    }
}

TEST(a_walk_ends_where_its_result_is_not_wanted)
{
    const struct wanted wanted = {.cpu_deadline_ns = clock_thread_ns() + 20 * NS_PER_MS};
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    char text[256];
    limits.wanted = &wanted;
    limits.steps_max = UINT32_MAX;
    assert_int_equal(render("{% set ns = namespace(a=(), b=()) %}{% for i in range(200) %}"
                            "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}{% endfor %}"
                            "{{ ns.a == ns.b }}",
                            &limits, text),
                     -ETIME);
}

/* The deepest value is walked in the deepest calls. */
static void *walk_deep(void *arg)
{
    static const char *const walks[] = {"ns.a == ns.b",
                                        "ns.a|tojson",
                                        "ns.a|tojson(indent=1)|length",
                                        "ns.a ~ ns.b",
                                        "[ns.a, ns.b]|sort|length",
                                        "ns.a in [ns.b]",
                                        "[ns.a, ns.b]|unique|list|length"};
    static const char *const makes[] = {NEST(TUPLE, "254"), NEST(LIST, "254"), NEST(DICT, "254")};
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    (void)arg;
    for (size_t i = 0; i < COUNT_OF(walks) * COUNT_OF(makes); i++) {
        char source[1024], text[256];
        if (i % COUNT_OF(makes) == 2 && strstr(walks[i / COUNT_OF(makes)], "sort"))
            continue; /* dicts have no order */
        snprintf(source, sizeof(source),
                 "%s{%% macro f(x) %%}{%% set y = %s %%}{%% call f(1) %%}{{ caller() }}{%% endcall %%}{%% "
                 "endmacro %%}{{ f(1) }}",
                 makes[i % COUNT_OF(makes)], walks[i / COUNT_OF(makes)]);
        assert_int_equal(render(source, &limits, text), -E2BIG);
        assert_string_equal(text, "the chat template nests too deeply");
    }
    return NULL;
}

TEST(the_deepest_walk_fits_on_its_stack)
{
    struct thread_stack stack;
    pthread_t thread;
    assert_int_equal(thread_stack_init(&stack, CHAT_TEMPLATE_STACK_BYTES, NULL), 0);
    assert_int_equal(thread_stack_start(&stack, walk_deep, NULL, &thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    thread_stack_done(&stack);
}

TEST_MAIN()
