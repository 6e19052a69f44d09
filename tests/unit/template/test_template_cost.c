/* Template work costs steps in proportion to its time, so the limit on steps is one on time. */
#include "test.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/threads/thread_stack.h"
#include "template/chat_template.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define STEPS 500000 /* a fortieth of the limit */

static uint64_t cpu_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Makes the most that a client may send: a megabyte of text, and tens of thousands of items. */
static json_t *large_things(void)
{
    enum { BYTES = 1 << 20, ITEMS = 30000 };
    json_t *all = json_object(), *list = json_array(), *dict = json_object(), *other = json_object();
    json_t *keys = json_object();
    char *text = malloc(BYTES);
    assert_non_null(text);
    memset(text, 'a', BYTES);
    json_object_set_new(all, "big", json_stringn(text, BYTES));
    text[BYTES - 1] = 'b';
    json_object_set_new(all, "big2", json_stringn(text, BYTES));
    memset(text, ' ', BYTES);
    json_object_set_new(all, "blank", json_stringn(text, BYTES));
    memset(text, '\n', BYTES);
    json_object_set_new(all, "lines", json_stringn(text, BYTES));
    for (size_t i = 0; i + 1 < BYTES; i += 2)
        memcpy(text + i, "\xc3\xbc", 2);
    json_object_set_new(all, "umlauts", json_stringn(text, BYTES));
    for (int i = 0; i < ITEMS; i++) {
        char key[16];
        snprintf(key, sizeof(key), "key%06d", i);
        json_array_append_new(list, json_real(i / 7.0));
        json_object_set_new(dict, key, json_integer(i));
        json_object_set_new(other, key, json_integer(i));
    }
    for (int i = 0; i < 64; i++) {
        memset(text, 'k', BYTES / 64);
        snprintf(text + BYTES / 64 - 16, 16, "%d", i);
        json_object_set_new(keys, text, json_integer(i));
    }
    json_object_set_new(all, "list", list);
    json_object_set_new(all, "list2", json_deep_copy(list));
    json_object_set_new(all, "dict", dict);
    json_object_set_new(all, "dict2", other);
    json_object_set_new(all, "keys", keys);
    free(text);
    return all;
}

static json_t *kwargs;

/* The result and, in ret, the processor time. */
static int run(const char *source, const struct chat_template_limits *limits, uint64_t *ret)
{
    struct arena *a, *scratch;
    struct chat_template *t;
    struct err e = {{0}};
    struct buf out;
    if (!kwargs)
        kwargs = large_things();
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)256 << 20, 0, NULL}, &scratch), 0);
    json_t *messages = json_array();
    struct chat_template_input in = {.messages = messages, .kwargs = kwargs};
    buf_init(&out, 64 << 20, NULL);
    if (chat_template_compile(a, slice_of(source), &t, &e) < 0)
        fail_msg("%s: %s", source, e.text);
    uint64_t from = cpu_now_ns();
    int r = chat_template_render_cuts(t, scratch, &in, limits, &out, NULL, &e);
    *ret = cpu_now_ns() - from;
    buf_done(&out);
    json_decref(messages);
    arena_free(a);
    arena_free(scratch);
    return r;
}

static uint64_t time_of(const char *expression)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    char source[512];
    uint64_t ns;
    limits.steps_max = STEPS;
    snprintf(source, sizeof(source),
             "{%% for i in range(99999) %%}{%% for j in range(99999) %%}{%% set x = %s %%}{%% endfor %%}{%% "
             "endfor %%}",
             expression);
    int r = run(source, &limits, &ns);
    if (r != -E2BIG)
        fail_msg("%s: ended with %d", expression, r);
    return ns;
}

TEST(every_operation_costs_what_it_takes)
{
    static const char *const expressions[] = {"'x' in big",
                                              "big in big2",
                                              "big == big2",
                                              "big != big2",
                                              "big < big2",
                                              "big + big2",
                                              "big ~ big2",
                                              "big * 3",
                                              "big[1000000]",
                                              "big[-1]",
                                              "big[5:-5]",
                                              "big[::2]",
                                              "umlauts[400000]",
                                              "umlauts|length",
                                              "big|length",
                                              "big|count",
                                              "list == list2",
                                              "list < list2",
                                              "list + list2",
                                              "list * 2 if false else list[1:]",
                                              "7.5 in list",
                                              "'x' in list",
                                              "dict == dict2",
                                              "'nothing' in dict",
                                              "dict.nothing",
                                              "dict['key029999']",
                                              "dict.get('x')",
                                              "dict|items|list",
                                              "dict.items()",
                                              "dict.keys()",
                                              "dict|dictsort|first",
                                              "dict|list",
                                              "keys == keys",
                                              "keys.nothing",
                                              "list|sort|first",
                                              "list|reverse|list",
                                              "list|unique|list",
                                              "list|join(',')",
                                              "list|sum",
                                              "list|min",
                                              "list|max",
                                              "list|map('string')|list",
                                              "list|select('equalto', 1)|list",
                                              "list|first",
                                              "list|last",
                                              "list|string",
                                              "list|tojson",
                                              "dict|string",
                                              "dict|tojson",
                                              "dict|tojson(sort_keys=true)",
                                              "keys|tojson(sort_keys=true)",
                                              "list|tojson(indent=64)",
                                              "big|upper",
                                              "umlauts|upper",
                                              "umlauts|title",
                                              "umlauts|capitalize",
                                              "big|lower",
                                              "big is lower",
                                              "big is upper",
                                              "big|replace('a', 'bb')",
                                              "big|replace('', 'x')",
                                              "big|replace('b', 'c')",
                                              "big|indent",
                                              "lines|indent(64)",
                                              "big|escape",
                                              "big|trim",
                                              "blank|trim",
                                              "blank.strip()",
                                              "big.strip('a')",
                                              "blank.lstrip()",
                                              "big.rstrip(big)",
                                              "blank.split()",
                                              "big.split('b')",
                                              "big.split('a')",
                                              "lines.splitlines()",
                                              "big.splitlines()",
                                              "big.find('b')",
                                              "big2.find('b')",
                                              "big.count('a')",
                                              "big.count('b')",
                                              "big.isdigit()",
                                              "big.startswith(big2)",
                                              "big.endswith(big2)",
                                              "big.startswith((big2, big2, big2))",
                                              "','.join(big)",
                                              "big|list",
                                              "big|first",
                                              "big|last",
                                              "big|reverse",
                                              "blank|int",
                                              "blank|float",
                                              "[big, big2]|sort",
                                              "[big, big2]|unique|list",
                                              "[big, big2]|max",
                                              "[big]|map(attribute=big)|list",
                                              "big|tojson",
                                              "big|string|safe + big",
                                              "[big]|string",
                                              "big is in big2",
                                              "big is eq(big2)",
                                              "list is eq(list2)",
                                              "big is sameas(big2)",
                                              "3.7|string",
                                              "1e300|string",
                                              "nothing|default(big) == big2",
                                              "{big: 1}[big2]",
                                              "namespace(a=1).b",
                                              "(big ~ 'x') == (big2 ~ 'x')",
                                              "list|tojson|from_json",
                                              "'[1,2,3]'|from_json",
                                              "undefined_name",
                                              "range(1000)|list",
                                              "strftime_now('%Y')",
                                              "[list, list2]|sort|first",
                                              "big.title()",
                                              "big.capitalize()",
                                              "list|selectattr('x')|list"};
    uint64_t plain = time_of("1");
    char say[4096] = "";
    for (size_t i = 0; i < COUNT_OF(expressions); i++) {
        uint64_t ns = time_of(expressions[i]);
        if (getenv("TEMPLATE_COSTS"))
            printf("%4.1f ", (double)ns / (double)plain),
                printf("%8.1f ms  %s\n", (double)ns / 1e6, expressions[i]);
        if (ns > 12 * plain + 200 * NS_PER_MS)
            snprintf(say + strlen(say), sizeof(say) - strlen(say), "%s: %.2f s where plain steps take %.2f; ",
                     expressions[i], (double)ns / 1e9, (double)plain / 1e9);
    }
    if (say[0])
        fail_msg("%s", say);
}

TEST(many_variables_cost_steps)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    uint64_t ns;
    json_t *kept = kwargs ? kwargs : large_things();
    kwargs = json_object();
    for (int i = 0; i < 60000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "v%d", i);
        json_object_set_new(kwargs, name, json_integer(i));
    }
    assert_int_equal(run("{{ 1 }}", &limits, &ns), -E2BIG);
    assert_true(ns < 20 * NS_PER_S);
    json_decref(kwargs);
    kwargs = kept;
}

TEST(a_rendering_that_nobody_wants_ends)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    _Atomic bool cancelled = true;
    struct wanted w = {.cancelled = &cancelled};
    uint64_t ns;
    limits.wanted = &w;
    limits.steps_max = UINT32_MAX;
    static const char endless[] =
        "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = big|upper %}{% "
        "set y = dict == dict2 %}{% endfor %}{% endfor %}";
    assert_int_equal(run(endless, &limits, &ns), -ECANCELED);
    assert_true(ns < NS_PER_S);
    cancelled = false;
    w.deadline_ns = clock_now_ns() + 50 * NS_PER_MS;
    assert_int_equal(run(endless, &limits, &ns), -ETIME);
    assert_true(ns < 2 * NS_PER_S);
    w.deadline_ns = 0;
    limits.steps_max = 2000;
    assert_int_equal(run(endless, &limits, &ns), -E2BIG);
}

TEST(a_prompt_that_is_too_long_is_told_from_other_limits)
{
    struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    uint64_t ns;
    limits.prompt_bytes_max = 1 << 20;
    assert_int_equal(run("{{ big }}", &limits, &ns), 0);
    assert_int_equal(run("{{ big }}x", &limits, &ns), -EMSGSIZE);
    assert_int_equal(run("{{ (big ~ big)|length }}", &limits, &ns), 0);
    limits.output_bytes_max = 1 << 20;
    limits.prompt_bytes_max = 0;
    assert_int_equal(run("{{ big }}x", &limits, &ns), -E2BIG);
}

/* Each level of these takes much of the stack. */
static void *run_deep(void *arg)
{
    static const char *const deep[] = {
        "{% macro f(x=f()) %}{% endmacro %}{{ f() }}",
        "{% macro f(a,b,c,d) %}{{ f(a|default(1),b,c|default(f(a,b,c,d)),d) }}{% endmacro %}{{ f(1,2,3,4) }}",
        "{% macro f(x) %}{% call f(1) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{% for i in [1]|map('default', f(1)) %}{{i}}{% endfor %}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{{ 'a'|replace('a', f(x)|default(f(x))) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(x) %}{% set z = [{1: f(x)}|default((1, f(x)))] %}{% endmacro %}{{ f(1) }}"};
    const struct chat_template_limits limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    (void)arg;
    for (size_t i = 0; i < COUNT_OF(deep); i++) {
        uint64_t ns;
        assert_int_equal(run(deep[i], &limits, &ns), -E2BIG);
    }
    return NULL;
}

TEST(the_deepest_template_fits_on_its_stack)
{
    struct thread_stack stack;
    pthread_t thread;
    assert_int_equal(thread_stack_init(&stack, CHAT_TEMPLATE_STACK_BYTES, NULL), 0);
    assert_int_equal(thread_stack_start(&stack, run_deep, NULL, &thread), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    thread_stack_done(&stack);
}

TEST_MAIN()
