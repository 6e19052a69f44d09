/* Templates of our own: each construct, and each limit. Expectations are what jinja2 prints in transformers'
 * environment. */
#include "test.h"

#include "base/check.h"
#include "template/chat_template.h"

#include <errno.h>
#include <string.h>

static struct chat_template_limits limits;

/* The text, "compile: ..." or "refused: ..."; valid until the next call. */
static const char *render(const char *source)
{
    static char text[4096];
    struct arena *a, *scratch;
    struct chat_template *t;
    struct err e = {{0}};
    struct buf out;
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &a), 0);
    assert_int_equal(arena_create(&(struct arena_opts){(size_t)16 << 20, 0, NULL}, &scratch), 0);
    json_t *messages = json_loads(
        "[{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": null}]", 0, NULL);
    json_t *kwargs = json_loads(
        "{\"n\": 3, \"x\": 0.5, \"d\": {\"b\": 1, \"a\": [1, \"two\", null, true]}, \"s\": \"Grüße\"}", 0,
        NULL);
    struct chat_template_input in = {.messages = messages, .kwargs = kwargs, .bos_token = SLICE("<s>")};
    buf_init(&out, 1 << 20, NULL);
    if (limits.steps_max == 0)
        limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    if (chat_template_compile(a, slice_of(source), &t, &e) < 0)
        snprintf(text, sizeof(text), "compile: %s", e.text);
    else if (chat_template_render_cuts(t, scratch, &in, &limits, &out, NULL, &e) < 0)
        snprintf(text, sizeof(text), "refused: %s", e.text);
    else
        snprintf(text, sizeof(text), "%.*s", SLICE_ARGS(buf_slice(&out)));
    buf_done(&out);
    json_decref(messages);
    json_decref(kwargs);
    arena_free(a);
    arena_free(scratch);
    return text;
}

#define RENDERS(source, text) assert_string_equal(render(source), text)
#define REFUSES(source)       assert_true(strncmp(render(source), "refused: ", 9) == 0)
#define INVALID(source)       assert_true(strncmp(render(source), "compile: ", 9) == 0)

TEST(white_space_control)
{
    RENDERS("a\n  {% if true %}\nb\n  {% endif %}\nc\n", "a\nb\nc");
    RENDERS("a  {%- if true -%}  b  {%- endif -%}  c", "abc");
    RENDERS("a {{ n }}\nb", "a 3\nb");
    RENDERS("a {{- n -}} b", "a3b");
    RENDERS("{# note #}\nx{# y #}z", "xz");
    RENDERS("  {%+ if true %}x{% endif %}", "  x");
}

TEST(assignments_have_jinjas_scopes)
{
    RENDERS("{% set a = 1 %}{% for i in [1] %}{% set a = 2 %}{% endfor %}{{ a }}", "1");
    RENDERS("{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "2");
    RENDERS("{% set ns = namespace(a=1) %}{% for i in [1] %}{% set ns.a = 2 %}{% endfor %}{{ ns.a }}", "2");
    RENDERS("{% set a, b = 1, 'x' %}{{ a }}{{ b }}", "1x");
    RENDERS("{% set t %}in {{ n }}{% endset %}[{{ t }}]", "[in 3]");
    REFUSES("{% set d.q = 1 %}");
}

TEST(loops_know_where_they_are)
{
    RENDERS(
        "{% for i in [7, 8, 9] if i != 8 %}{{ loop.index0 }}{{ i }}{{ ',' if not loop.last }}{% endfor %}",
        "07,19");
    RENDERS("{% for k, v in d|items %}{{ k }};{% endfor %}", "b;a;");
    RENDERS("{% for i in [] %}x{% else %}none{% endfor %}", "none");
    RENDERS("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% "
            "endif %}{{ i }}{% endfor %}",
            "013");
    RENDERS("{% for c in s %}{{ c }}.{% endfor %}", "G.r.ü.ß.e.");
    RENDERS(
        "{% for m in messages %}{{ loop.previtem is defined }}>{{ loop.nextitem is defined }} {% endfor %}",
        "False>True True>False ");
}

TEST(operators_bind_as_in_python)
{
    RENDERS("{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 % 4 }} {{ -7 // 2 }} {{ 7 / 2 }} {{ 2 ** 10 }}",
            "6 3 -4 3.5 1024");
    RENDERS("{{ 'a' + ' b '|trim }}|{{ 'x' ~ 1 ~ none }}", "ab|x1None");
    RENDERS("{{ not d.a|length == 4 }} {{ 1 < 2 < 3 }} {{ 1 == true }} {{ 'r' in s }} {{ 'z' not in s }}",
            "False True True True True");
    RENDERS("{{ 'yes' if n == 3 else 'no' }}{{ '' if n == 4 }}", "yes");
    RENDERS("{{ d.a[1] }} {{ d['a'][-1] }} {{ s[1:3] }} {{ s[::-1] }} {{ d.a[:2] }}",
            "two True rü eßürG [1, 'two']");
    RENDERS("{{ s[1::9223372036854775807] }} {{ [1, 2, 3][1::9223372036854775807] }} {{ s[1:3:2] }}",
            "r [2] r");
    REFUSES("{{ 'a' + 1 }}");
    REFUSES("{{ 'a' + none }}");
    REFUSES("{{ 1 // 0 }}");
}

TEST(undefined_is_lenient_until_it_is_used)
{
    RENDERS("[{{ nothing }}]{{ nothing is defined }}{{ d.nothing is defined }}{% for i in nothing %}x{% "
            "endfor %}",
            "[]FalseFalse");
    RENDERS("{{ nothing or 'else' }}{{ nothing|default('d') }}{{ ''|default('e', true) }}", "elsede");
    REFUSES("{{ nothing.attribute }}");
    REFUSES("{{ nothing + 'x' }}");
    REFUSES("{{ nothing() }}");
}

TEST(values_print_as_in_python)
{
    RENDERS("{{ true }} {{ none }} {{ x }} {{ 1.0 }} {{ 1e20 }} {{ d }}",
            "True None 0.5 1.0 1e+20 {'b': 1, 'a': [1, 'two', None, True]}");
    RENDERS("{{ [\"it's\", 'a\"b', \"\\n\"] }} {{ (1,) }}", "[\"it's\", 'a\"b', '\\n'] (1,)");
    RENDERS("{{ d|tojson }} {{ s|tojson }} {{ '<>&'|tojson }}",
            "{\"b\": 1, \"a\": [1, \"two\", null, true]} \"Grüße\" \"<>&\"");
    RENDERS("{{ {'a': [1]}|tojson(indent=2) }}", "{\n  \"a\": [\n    1\n  ]\n}");
    REFUSES("{{ nothing|tojson }}");
}

TEST(macros_see_globals_and_return_text)
{
    RENDERS("{% macro f(a, b='B') %}{{ a }}{{ b }}{{ n }}{% endmacro %}{{ f(1) }}{{ f(1, b=2) }}", "1B3123");
    RENDERS("{% macro f(k) %}{{ k }}{% if k > 0 %}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210");
    RENDERS("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}in{% endcall %}", "[in]");
    REFUSES("{% macro f() %}{% endmacro %}{{ f(1) }}");
}

TEST(calls_take_lists_and_dicts_apart)
{
    RENDERS("{% macro f(a, b='B', c='C') %}{{ a }}{{ b }}{{ c }}{% endmacro %}"
            "{{ f(*[1, 2]) }} {{ f(1, *[2], c=3) }} {{ f(c=3, *[1]) }} {{ f(1, **{'c': 9}) }} {{ f(*[]) }} "
            "{{ [f][0](*[[4]]) }}",
            "12C 123 1B3 1B9 BC [4]BC");
    RENDERS(
        "{{ range(*[2, 5])|list }} {{ ['a', 'b']|join(*['-']) }} {{ dict(**d).b }} {{ 'x'.join(*['ab'])}}",
        "[2, 3, 4] a-b 1 axb");
    REFUSES("{% macro f(a) %}{% endmacro %}{{ f(*[1, 2]) }}");
    REFUSES("{% macro f(a) %}{% endmacro %}{{ f(1, **{'a': 1}) }}");
    REFUSES("{% macro f(a) %}{% endmacro %}{{ f(a=1, **{'a': 1}) }}");
    REFUSES("{% macro f(a) %}{% endmacro %}{{ f(b=1) }}");
    REFUSES("{{ range(*n) }}");
    REFUSES("{{ dict(**[1]) }}");
    REFUSES("{{ dict(**{1: 2}) }}");
    REFUSES("{{ namespace(*range(17)) }}");
    INVALID("{{ range(*[1], 2) }}");
    INVALID("{{ range(*[1], *[2]) }}");
    INVALID("{{ dict(**d, a=1) }}");
    INVALID("{{ [*d.a] }}");
}

TEST(format_fills_fields_as_python_does)
{
    RENDERS(
        "{{ '{} {}'.format(n, s) }} {{ '{1}{0}{1}'.format('x', 'y') }} {{ '{a.b}{a[a][1]}'.format(a=d) }}",
        "3 Grüße yxy 1two");
    RENDERS("{{ '{{}} {{{}}}'.format(none) }} [{{ '{}'.format(nothing) }}] {{ '{!r}'.format('q') }} "
            "{{ '{!s:>5}'.format(true) }}",
            "{} {None} [] 'q'  True");
    RENDERS("{{ '[{:>6}|{:<6}|{:^7}|{:é^7}|{:.3}|{:05}]'.format(s, s, s, s, s, s) }}",
            "[ Grüße|Grüße | Grüße |éGrüßeé|Grü|Grüße]");
    RENDERS("{{ '{:05} {:+d} {:,} {:x} {:>4} {:_}'.format(-42, 7, 1234567, 255, true, 1000) }}",
            "-0042 +7 1,234,567 ff    1 1_000");
    RENDERS("{{ '{:.2f} {:8.1f} {:.0%} {:,.1f} {:6}'.format(0.125, -2.25, 0.5, 12345.67, 0.5) }}",
            "0.12     -2.2 50% 12,345.7    0.5");
    RENDERS("{{ '{:d} {:7d} {:x} {:.1f}'.format(1234567, 12345, 1048575, 54321.5) }} {{ '%d'|format(1234) }}",
            "1234567   12345 fffff 54321.5 1234");
    RENDERS("{{ '{:>{}} {:{w}.{p}f}'.format('x', 4, 0.5, w=6, p=2) }}", "   x   0.50");
    RENDERS("{{ ('<{}>'|safe).format('<') }}", "<&lt;>");
}

TEST(format_refuses_what_it_does_not_have)
{
    static const char *const sources[] = {
        "'{'.format(1)",
        "'}'.format(1)",
        "'{} {}'.format(1)",
        "'{a}'.format(1)",
        "'{} {0}'.format(1)",
        "'{0} {}'.format(1)",
        "'{!q}'.format(1)",
        "'{!'.format(1)",
        "'{:'.format(1)",
        "'{:d}'.format('x')",
        "'{:s}'.format(1)",
        "'{:5}'.format(none)",
        "'{:e}'.format(0.5)",
        "'{:.}'.format(0.5)",
        "'{:4097}'.format(1)",
        "'{:.101f}'.format(0.5)",
        "'{:.2}'.format(1)",
        "'{:08,}'.format(1)",
        "'{:=5}'.format('x')",
        "'{:+}'.format('x')",
        "'{0[}'.format([1])",
        "'{0.}'.format(d)",
        "'{a.b}'.format(a=none.b)",
        "'{:{:{:{}}}}'.format(1, 2, 3, 4)",
    };
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        char text[128];
        snprintf(text, sizeof(text), "{{ %s }}", sources[i]);
        REFUSES(text);
    }
    limits = (struct chat_template_limits){10000, 100, 1000};
    REFUSES("{{ '{:4000}'.format(1) }}");
    limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
}

TEST(filters_tests_and_methods)
{
    RENDERS("{{ 'xy'.startswith('x') }} {{ 'xy'.startswith('y') }} {{ 'xy'.endswith('y') }} {{ "
            "'xy'.endswith('x') }}",
            "True False True False");
    RENDERS("{{ ' a b '.strip() }}{{ 'a,b,c'.split(',', 1) }}{{ 'x'.startswith(('y', 'x')) }}",
            "a b['a', 'b,c']True");
    RENDERS("{{ [3, 1, 2]|sort|join('-') }} {{ d|dictsort }} {{ ['a', 'A']|unique|list }}",
            "1-2-3 [('a', [1, 'two', None, True]), ('b', 1)] ['a']");
    RENDERS("{{ messages|map(attribute='role')|join(',') }} {{ messages|selectattr('role', 'equalto', "
            "'user')|list|length }}",
            "user,assistant 1");
    RENDERS("{{ 'a\nb'|indent(2) }} {{ s|upper }} {{ 'ab cd'|title }} {{ '42'|int + 1 }}",
            "a\n  b GRÜSSE Ab Cd 43");
    RENDERS("{{ d.get('q', 'no') }} {{ d.items()|list|length }} {{ n is divisibleby 3 }} {{ d is mapping }} "
            "{{ s is iterable }}",
            "no 2 True True True");
    RENDERS("{{ '<'|safe + '>' }}", "<&gt;");
    REFUSES("{{ [1].append(2) }}");
    REFUSES("{{ n|length }}");
    INVALID("{{ n|nofilter }}");
    INVALID("{{ n is notest }}");
}

TEST(loops_cycle_and_see_changes)
{
    RENDERS("{% for i in range(5) %}{{ loop.cycle(\"a\", \"b\", 3) }}{% endfor %}", "ab3ab");
    RENDERS("{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }} {% endfor %}",
            "True False True False True ");
    RENDERS(
        "{% for i in [1, 2] %}{% for j in \"ab\" %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %}",
        "10101010");
    REFUSES("{% for i in [1] %}{{ loop.cycle() }}{% endfor %}");
}

TEST(the_filter_format_fills_pythons_older_fields)
{
    RENDERS("{{ \"%s is %d, %5.2f|%-4s|%04d|%x|%%|%r|%+d|% d\" | format(\"a\", 3.7, 1.5, \"b\", 42, 255, "
            "\"q\", 5, 5) }}",
            "a is 3,  1.50|b   |0042|ff|%|'q'|+5| 5");
    RENDERS("{{ \"%(a)s-%(b)03d\" | format(a=\"x\", b=7) }}", "x-007");
    RENDERS("{{ \"%5s|%-5s|%.2s\" | format(\"ab\", \"cd\", \"xyz\") }} {{ \"%s\" | format(none) }} {{ \"%s\" "
            "| format([1, \"a\"]) }}",
            "   ab|cd   |xy None [1, 'a']");
    RENDERS("{{ \"%d%%\" | format(true) }} {{ \"%f\" | format(1) }} {{ \"%i\" | format(-3.9) }} {{ "
            "\"%05.1f\" | format(-2.25) }} {{ \"%-05d|\" | format(3) }}",
            "1% 1.000000 -3 -02.2 3    |");
    REFUSES("{{ \"%s %s\" | format(\"a\") }}");
    REFUSES("{{ \"%s\" | format(\"a\", \"b\") }}");
    REFUSES("{{ \"%q\" | format(1) }}");
    REFUSES("{{ \"%d\" | format(\"a\") }}");
    REFUSES("{{ \"%(a)s\" | format(\"x\") }}");
    REFUSES("{{ \"%\" | format }}");
    REFUSES("{{ \"%9999s\" | format(1) }}");
}

TEST(texts_and_lists_have_the_methods_of_python)
{
    RENDERS("{{ \"a.b.c\".partition(\".\") }} {{ \"a.b.c\".rpartition(\".\") }} {{ \"abc\".partition(\".\") "
            "}} {{ \"abc\".rpartition(\".\") }}",
            "('a', '.', 'b.c') ('a.b', '.', 'c') ('abc', '', '') ('', '', 'abc')");
    RENDERS("{{ \"prefix-x\".removeprefix(\"prefix-\") }}|{{ \"x.py\".removesuffix(\".py\") }}|{{ "
            "\"x\".removeprefix(\"y\") }}",
            "x|x|x");
    RENDERS("{{ \"ababa\".rfind(\"ab\") }} {{ \"ababa\".find(\"c\") }} {{ \"aßb\".index(\"b\") }} {{ "
            "\"aa\".find(\"\") }}",
            "2 -1 2 0");
    RENDERS("{{ \"abc\".center(8) }}|{{ \"ab\".center(5, \"*\") }}|{{ \"a\".ljust(3) }}|{{ \"ü\".rjust(3, "
            "\".\") }}|{{ \"abcd\" | center(7) }}",
            "  abc   |**ab*|a  |..ü|  abcd ");
    RENDERS("{{ \"٣4\".isdigit() }} {{ \"\".isdigit() }} {{ \"aß\".isalpha() }} {{ \"a1\".isalpha() }} {{ "
            "\"a1\".isalnum() }} {{ \" \\t\".isspace() }} {{ \"A1\".isupper() }} {{ \"aB\".islower() }} {{ "
            "\"1\".islower() }} {{ s.islower() }}",
            "True False True False True True True False False False");
    RENDERS("{{ [1, 2, 1].count(1) }} {{ [1, 2, 1].index(2) }} {{ [\"a\"].count(\"b\") }}", "2 1 0");
    RENDERS("{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, \"-\") | list }}",
            "[[1, 2], [3, 4], [5]] [[1, 2], [3, '-']]");
    RENDERS("{{ \"one two  three-four x_y é1\" | wordcount }} {{ \"\" | wordcount }}", "6 0");
    RENDERS("{{ \"foo bar baz qux\" | truncate(9) }}|{{ \"foo bar baz qux\" | truncate(9, true) }}|{{ \"foo "
            "bar baz qux\" | truncate(11) }}|{{ \"foo bar baz qux\" | truncate(11, false, \"..\", 0) }}|{{ "
            "\"abcdefghijklmnop\" | truncate(8) }}",
            "foo...|foo ba...|foo bar baz qux|foo bar..|abcde...");
    RENDERS("{{ \"<b>\" | safe | forceescape }}", "&lt;b&gt;");
    REFUSES("{{ \"a\".index(\"b\") }}");
    REFUSES("{{ [1].index(2) }}");
    REFUSES("{{ \"a\".partition(\"\") }}");
    REFUSES("{{ \"x\" | truncate(2) }}");
    REFUSES("{{ [1] | batch(0) | list }}");
    REFUSES("{{ \"x\".center(9999) }}");
}

TEST(a_templates_own_refusal_reaches_the_client_in_its_words)
{
    RENDERS("{{ raise_exception('No system role, please.') }}", "refused: No system role, please.");
}

TEST(what_is_no_template_is_refused_with_its_line)
{
    INVALID("{% if %}");
    INVALID("{% for x in y %}");
    INVALID("{{ 'open");
    INVALID("{{ a b }}");
    INVALID("{% break %}");
    INVALID("{# open");
    INVALID("{% include 'x' %}");
    assert_non_null(strstr(render("\n\n{% endif %}"), "line 3"));
}

TEST(a_number_fits_its_digits_or_is_refused)
{
    char source[128];
    for (int digits = 55; digits <= 70; digits++) {
        snprintf(source, sizeof(source), "{{ 0.%0*d1e5 }}", digits - 3, 0);
        assert_int_equal(strncmp(render(source), digits < 62 ? "1e-" : "compile: ", 3), 0);
    }
}

TEST(limits_end_what_does_not_end)
{
    limits = (struct chat_template_limits){10000, 100, 10000};
    REFUSES("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}");
    REFUSES("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
    REFUSES("{{ 'x' * 100000 }}");
    REFUSES(
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}");
    limits = CHAT_TEMPLATE_LIMITS_DEFAULT;
    char deep[3000] = "{{ ";
    memset(deep + 3, '(', 1000);
    INVALID(deep);
    memset(deep + 3, '-', 1000);
    INVALID(deep);
}

TEST(sorting_ignores_case_unless_told_otherwise)
{
    RENDERS("{{ ['b', 'A', 'C']|sort|join }} {{ ['b', 'A', 'C']|sort(case_sensitive=true)|join }}",
            "AbC ACb");
}

TEST(what_can_be_iterated_sliced_and_reversed)
{
    RENDERS("{{ s is iterable }} {{ d is iterable }} {{ [] is iterable }} {{ nothing is iterable }} "
            "{{ n is iterable }} {{ none is iterable }}",
            "True True True True False False");
    RENDERS("{{ 'abc'|reverse }} {{ s|reverse }} {{ [1, 2, 3]|reverse|list }}", "cba eßürG [3, 2, 1]");
    REFUSES("{{ n[0:1] }}");
    REFUSES("{{ d[0:1] }}");
    REFUSES("{{ none[0:1] }}");
}

TEST(a_dict_is_sorted_by_key_or_by_value)
{
    RENDERS("{{ {'a': 2, 'b': 1}|dictsort }} {{ {'a': 2, 'b': 1}|dictsort(by='value') }} "
            "{{ {'a': 2, 'b': 1}|dictsort(by='key', reverse=true) }}",
            "[('a', 2), ('b', 1)] [('b', 1), ('a', 2)] [('b', 1), ('a', 2)]");
}

TEST_MAIN()
