#include "test.h"
#include "test_recogniser.h"

#include "base/err.h"
#include "constraint/structural.h"
#include "grammar/grammar_state.h"
#include "schema/schema.h"

#include <errno.h>

#define TOOL "<tool>" /* the only added token: TOKEN stands for it in texts */
enum { TOKEN = 7 };

static size_t find_token(void *arg, struct slice text, uint32_t *id)
{
    (void)arg;
    *id = TOKEN;
    return slice_starts(text, SLICE(TOOL)) ? strlen(TOOL) : 0;
}

static int compile(const char *source, bool tokens, struct grammar **ret, struct err *e)
{
    static const struct structural_tokens all = {find_token, NULL};
    static const struct schema_opts opts = {.plain = true};
    struct grammar_builder *b;
    sym_id start = 0;
    json_t *json = json_loads(source, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!json)
        print_error("no JSON: %s\n", source);
    assert_non_null(json);
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    int r = structural_compile(b, json, &opts, tokens ? &all : NULL, &start, e);
    if (r == 0)
        r = grammar_finish(b, start, ret, e);
    grammar_builder_free(b);
    json_decref(json);
    return r;
}

static void check_texts(const struct grammar *g, const char *format, const char *const *texts, bool accepted)
{
    for (; *texts; texts++) {
        bool got = plain_accepts(g, slice_of(*texts));
        if (got != accepted)
            print_error("%s: \"%s\" %s\n", format, *texts, got ? "is accepted" : "is not accepted");
        assert_int_equal(got, accepted);
    }
}

static void check_source(const char *source, const char *const *accepts, const char *const *rejects)
{
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = compile(source, false, &g, &e);
    if (r)
        print_error("%s: %s\n", source, e.text);
    assert_int_equal(r, 0);
    check_texts(g, source, accepts, true);
    check_texts(g, source, rejects, false);
    grammar_free(g);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CHECK(format, accepts, rejects)                                                                      \
    check_source("{\"type\": \"structural_tag\", \"format\": " format "}", accepts, rejects)

static void refused(const char *source, int code, const char *words)
{
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = compile(source, true, &g, &e);
    if (r != code || !strstr(e.text, words))
        print_error("%s: %d %s\n", source, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, words));
}

#define REFUSED(format, code, words)                                                                         \
    refused("{\"type\": \"structural_tag\", \"format\": " format "}", code, words)

#define INTEGER "{\"type\": \"json_schema\", \"json_schema\": {\"type\": \"integer\"}}"
#define LETTER  "{\"type\": \"regex\", \"pattern\": \"[a-c]\"}"

/* ---- simple formats ---- */

TEST(texts_of_a_language)
{
    CHECK("{\"type\": \"const_string\", \"value\": \"a\\nb\"}", TEXTS("a\nb"), TEXTS("a", "", "a\nbb"));
    CHECK("{\"type\": \"const_string\", \"value\": \"\"}", TEXTS(""), TEXTS("a"));
    CHECK(INTEGER, TEXTS("12", "-1"), TEXTS("", "a", "\"1\""));
    CHECK("{\"type\": \"json_schema\", \"json_schema\": true, \"style\": \"json\"}", TEXTS("{}", "1"),
          TEXTS("x"));
    CHECK(LETTER, TEXTS("a", "c"), TEXTS("ab", "d", ""));
    CHECK("{\"type\": \"grammar\", \"grammar\": \"root ::= \\\"(\\\" root? \\\")\\\"\"}", TEXTS("()", "(())"),
          TEXTS("", "(()"));
    CHECK("{\"type\": \"grammar\", \"grammar\": \"start: \\\"x\\\"+\"}", TEXTS("x", "xx"), TEXTS(""));
    CHECK("{\"type\": \"any_text\"}", TEXTS("", "any\n", "<x>"), TEXTS(NULL));
    CHECK("{\"type\": \"any_text\", \"excludes\": [\"no\", \"way\"]}", TEXTS("", "n o", "wa"),
          TEXTS("no", "a way", "anon"));
}

TEST(rows_and_alternatives)
{
    CHECK("{\"type\": \"sequence\", \"elements\": [" LETTER ", " INTEGER ", " LETTER "]}", TEXTS("a1b"),
          TEXTS("a1", "1b", "ab"));
    CHECK("{\"type\": \"or\", \"elements\": [" LETTER ", " INTEGER "]}", TEXTS("a", "17"), TEXTS("a1", ""));
    CHECK("{\"type\": \"optional\", \"content\": " INTEGER "}", TEXTS("", "5"), TEXTS("x"));
    CHECK("{\"type\": \"star\", \"content\": " LETTER "}", TEXTS("", "abc"), TEXTS("abd"));
    CHECK("{\"type\": \"plus\", \"content\": " LETTER "}", TEXTS("a", "abc"), TEXTS(""));
    CHECK("{\"type\": \"repeat\", \"min\": 2, \"max\": 3, \"content\": " LETTER "}", TEXTS("ab", "abc"),
          TEXTS("a", "abca"));
    CHECK("{\"type\": \"repeat\", \"min\": 1, \"max\": -1, \"content\": {\"type\": \"sequence\", "
          "\"elements\": ["
          "{\"type\": \"const_string\", \"value\": \";\"}, " INTEGER "]}}",
          TEXTS(";1", ";1;2;30"), TEXTS("", ";1;"));
}

/* ---- tags ---- */

TEST(tags)
{
    CHECK("{\"type\": \"tag\", \"begin\": \"<a>\", \"content\": " INTEGER ", \"end\": \"</a>\"}",
          TEXTS("<a>1</a>"), TEXTS("<a></a>", "1", "<a>1</a> "));
    CHECK("{\"type\": \"tag\", \"begin\": \"\", \"content\": " LETTER ", \"end\": [\"!\", \"?\"]}",
          TEXTS("a!", "b?"), TEXTS("a", "!"));
}

TEST(free_text_in_a_tag_ends_at_the_first_end)
{
    CHECK("{\"type\": \"tag\", \"begin\": \"<\", \"content\": {\"type\": \"any_text\"}, \"end\": \"aab\"}",
          TEXTS("<aab", "<xyaab", "<aaab", "<abaab"), TEXTS("<", "<aabaab", "<aab ", "<aabxaab"));
    /* Ends that overlap themselves. */
    CHECK("{\"type\": \"tag\", \"begin\": \"<\", \"content\": {\"type\": \"any_text\"}, \"end\": \"\\n\\n\"}",
          TEXTS("<\n\n", "<x\ny\n\n"), TEXTS("<\n\n\n", "<x\n\n\n"));
    CHECK("{\"type\": \"tag\", \"begin\": \"<\", \"content\": {\"type\": \"any_text\", \"excludes\": "
          "[\"no\"]}, "
          "\"end\": [\">\", \"/>\"]}",
          TEXTS("<x>", "<x/>"), TEXTS("<no>", "<x>>"));
    CHECK(
        "{\"type\": \"tag\", \"begin\": \"(\", \"content\": {\"type\": \"sequence\", \"elements\": [" INTEGER
        ", {\"type\": \"any_text\"}]}, \"end\": \")\"}",
        TEXTS("(1)", "(1 x)"), TEXTS("(x)", "(1))"));
}

TEST(tags_with_a_separator)
{
#define LIST(more)                                                                                           \
    "{\"type\": \"tags_with_separator\", \"separator\": \", \", \"tags\": ["                                 \
    "{\"type\": \"tag\", \"begin\": \"a\", \"content\": " INTEGER ", \"end\": \";\"}, "                      \
    "{\"begin\": \"b\", \"content\": " LETTER ", \"end\": \"\"}]" more "}"
    CHECK(LIST(""), TEXTS("", "a1;", "ba, a2;, bb"), TEXTS("a1;, ", ", a1;", "a1;a2;"));
    CHECK(LIST(", \"at_least_one\": true"), TEXTS("a1;", "ba, bb"), TEXTS(""));
    CHECK(LIST(", \"stop_after_first\": true"), TEXTS("", "a1;"), TEXTS("a1;, bb"));
    CHECK(LIST(", \"stop_after_first\": true, \"at_least_one\": true"), TEXTS("ba"), TEXTS("", "ba, bb"));
#undef LIST
}

/* ---- triggers ---- */

#define FUNCTIONS(more)                                                                                      \
    "{\"type\": \"triggered_tags\", \"triggers\": [\"<f=\"], \"tags\": ["                                    \
    "{\"begin\": \"<f=one>\", \"content\": " INTEGER ", \"end\": \"</f>\"}, "                                \
    "{\"begin\": \"<f=two>\", \"content\": " LETTER ", \"end\": \"</f>\"}]" more "}"

TEST(triggers)
{
    CHECK(FUNCTIONS(""),
          TEXTS("", "text", "<f", "<f=one>1</f>", "say <f=two>a</f> and <<f=one>5</f> done",
                "<f=one>1</f><f=one>2</f>"),
          TEXTS("<f=", "<f=three>1</f>", "<f=one>a</f>", "x <f=one>1", "<f=one>1</f><f="));
    CHECK(FUNCTIONS(", \"at_least_one\": true"), TEXTS("<f=one>1</f>", "<f=one>1</f> x <f=two>b</f>"),
          TEXTS("", "x", " <f=one>1</f>"));
    CHECK(FUNCTIONS(", \"stop_after_first\": true"), TEXTS("", "x", "x <f=one>1</f>"),
          TEXTS("<f=one>1</f> ", "<f=one>1</f><f=one>1</f>"));
    CHECK(FUNCTIONS(", \"stop_after_first\": true, \"at_least_one\": true"), TEXTS("<f=one>1</f>"),
          TEXTS("", "x<f=one>1</f>", "<f=one>1</f>x"));
    CHECK(FUNCTIONS(", \"excludes\": [\"<g\"]"), TEXTS("", "<", "<f=one>1</f>"),
          TEXTS("<g", "a<g<f=one>1</f>"));
}

TEST(a_trigger_counts_where_it_stands_first)
{
    CHECK("{\"type\": \"triggered_tags\", \"triggers\": [\"aa\"], \"tags\": ["
          "{\"begin\": \"aab\", \"content\": " INTEGER ", \"end\": \".\"}]}",
          TEXTS("aab1.", "xaab1.a"), TEXTS("aaab1.", "aaa", "xaaab1."));
    CHECK("{\"type\": \"triggered_tags\", \"triggers\": [\"<a\", \"<b\"], \"tags\": ["
          "{\"begin\": \"<a>\", \"content\": " INTEGER ", \"end\": \".\"}, "
          "{\"begin\": \"<b>\", \"content\": " LETTER ", \"end\": \".\"}]}",
          TEXTS("<<b>a.<a>1.", "x"), TEXTS("<b>1.", "<b <a>1."));
}

TEST(triggers_within_a_tag_end_with_it)
{
    CHECK("{\"type\": \"tag\", \"begin\": \"[\", \"end\": \"]\", \"content\": " FUNCTIONS("") "}",
          TEXTS("[]", "[x]", "[<f=one>1</f> y]"), TEXTS("[]]", "[x]y]", "["));
}

TEST(the_older_form)
{
    check_source(
        "{\"type\": \"structural_tag\", \"structures\": [{\"begin\": \"<f=one>\", \"schema\": {\"type\": "
        "\"integer\"}, \"end\": \"</f>\"}], \"triggers\": [\"<f\"]}",
        TEXTS("", "say <f=one>1</f>", "<f=one>1</f><f=one>2</f>!"), TEXTS("<f=one>x</f>", "<f"));
    check_source(
        "{\"structures\": [{\"begin\": \"<\", \"schema\": true, \"end\": \">\"}], \"triggers\": [\"<\"]}",
        TEXTS("<1>", "<{}>"), TEXTS("<x>"));
}

TEST(dispatches)
{
#define RULES(more) "{\"type\": \"dispatch\", \"rules\": [[\"#\", " INTEGER "], [\"@\", " LETTER "]]" more "}"
    CHECK(RULES(""), TEXTS("", "x", "x #1 @a.", "#1@b"), TEXTS("#", "@1"));
    CHECK(RULES(", \"loop\": false"), TEXTS("", "x", "x #1"), TEXTS("#1 @a", "#1 "));
    CHECK(RULES(", \"excludes\": [\"x\"]"), TEXTS("y #1"), TEXTS("x #1"));
#undef RULES
}

/* ---- added tokens ---- */

static bool has_token(const struct grammar *g)
{
    for (uint32_t i = 0; i < g->terminal_count; i++)
        if (g->terminals[i].rx == RX_NONE && g->terminals[i].token == TOKEN)
            return true;
    return false;
}

TEST(a_text_that_is_a_token_is_matched_as_one)
{
    static const char *const sources[] = {
        "{\"format\": {\"type\": \"tag\", \"begin\": \"<tool>\", \"content\": " INTEGER ", \"end\": \"x\"}}",
        "{\"format\": {\"type\": \"triggered_tags\", \"triggers\": [\"<to\"], \"tags\": [{\"begin\": "
        "\"<tool>{\", "
        "\"content\": " INTEGER ", \"end\": \"x\"}]}}",
        "{\"format\": {\"type\": \"tag\", \"begin\": \"by <tool>:\", \"content\": " INTEGER
        ", \"end\": \"x\"}}",
        "{\"format\": {\"type\": \"token\", \"token\": \"<tool>\"}}",
        "{\"format\": {\"type\": \"tag\", \"begin\": {\"type\": \"token\", \"token\": \"<tool>\"}, "
        "\"content\": " INTEGER ", \"end\": \"x\"}}",
    };
    for (size_t i = 0; i < COUNT_OF(sources); i++) {
        struct grammar *g = NULL;
        struct err e = {{0}};
        if (compile(sources[i], true, &g, &e))
            print_error("%s: %s\n", sources[i], e.text);
        assert_non_null(g);
        assert_true(has_token(g));
        assert_false(plain_accepts(g, SLICE("<tool>1x")));
        assert_false(plain_accepts(g, SLICE("by <tool>:1x")));
        grammar_free(g);
    }
}

/* ---- refusals ---- */

TEST(what_is_wrong_is_named)
{
    refused("[]", -EINVAL, "an object");
    refused("{\"type\": \"other\"}", -EINVAL, "structural_tag");
    refused("{}", -EINVAL, "structural_tag.format");
    refused("{\"structures\": [], \"triggers\": [\"a\"]}", -EINVAL, "structures");
    refused("{\"structures\": [{\"begin\": \"a\", \"schema\": 5, \"end\": \"b\"}], \"triggers\": [\"a\"]}",
            -EINVAL, "structures[0].schema: the schema");
    REFUSED("{}", -EINVAL, "type");
    REFUSED("{\"type\": \"const_string\"}", -EINVAL, "value");
    REFUSED("{\"type\": \"regex\", \"pattern\": \"(\"}", -EINVAL, "structural_tag.format: ");
    REFUSED("{\"type\": \"sequence\", \"elements\": []}", -EINVAL, "empty");
    REFUSED("{\"type\": \"sequence\", \"elements\": [" LETTER ", {\"type\": \"regex\", \"pattern\": 5}]}",
            -EINVAL, "format.elements[1]: pattern");
    REFUSED("{\"type\": \"tag\", \"begin\": \"a\", \"end\": \"b\"}", -EINVAL, "format.content");
    REFUSED("{\"type\": \"tag\", \"begin\": \"a\", \"content\": " LETTER "}", -EINVAL, "end must");
    REFUSED("{\"type\": \"tag\", \"begin\": \"a\", \"content\": " LETTER ", \"end\": []}", -EINVAL,
            "end is empty");
    REFUSED("{\"type\": \"triggered_tags\", \"triggers\": [\"x\"], \"tags\": [{\"begin\": \"a\", "
            "\"content\": " LETTER ", \"end\": \"b\"}]}",
            -EINVAL, "tags[0]: its begin matches no trigger");
    REFUSED("{\"type\": \"triggered_tags\", \"triggers\": [\"a\", \"ab\"], \"tags\": [{\"begin\": \"abc\", "
            "\"content\": " LETTER ", \"end\": \"b\"}]}",
            -EINVAL, "more than one");
    REFUSED("{\"type\": \"triggered_tags\", \"triggers\": [\"\"], \"tags\": [{\"begin\": \"a\", "
            "\"content\": " LETTER ", \"end\": \"b\"}]}",
            -EINVAL, "a trigger is empty");
    REFUSED("{\"type\": \"repeat\", \"min\": 3, \"max\": 2, \"content\": " LETTER "}", -EINVAL, "min");
    REFUSED("{\"type\": \"repeat\", \"min\": 0, \"max\": 5000, \"content\": " LETTER "}", -E2BIG, "1000");
    REFUSED("{\"type\": \"tags_with_separator\", \"separator\": \",\", \"tags\": []}", -EINVAL,
            "tags is empty");
    REFUSED("{\"type\": \"json_schema\", \"json_schema\": {\"type\": \"sound\"}}", -EINVAL, "#");
}

TEST(what_is_not_supported_is_refused_by_name)
{
    REFUSED("{\"type\": \"qwen_xml_parameter\", \"json_schema\": {}}", -ENOTSUP, "qwen_xml_parameter");
    REFUSED("{\"type\": \"token_triggered_tags\"}", -ENOTSUP, "token_triggered_tags");
    REFUSED("{\"type\": \"json_schema\", \"json_schema\": {}, \"style\": \"qwen_xml\"}", -ENOTSUP, "style");
    REFUSED("{\"type\": \"json_schema\", \"json_schema\": {}, \"any_order\": true}", -ENOTSUP, "any_order");
    REFUSED("{\"type\": \"json_schema\", \"json_schema\": {\"contains\": {}}}", -ENOTSUP, "contains");
    REFUSED("{\"type\": \"token\", \"token\": 5}", -ENOTSUP, "by number");
    REFUSED("{\"type\": \"token\", \"token\": \"abc\"}", -ENOTSUP, "abc");
    REFUSED("{\"type\": \"tag\", \"begin\": \"a\", \"content\": " LETTER ", \"end\": \"b\", \"style\": 1}",
            -ENOTSUP, "style");
    refused("{\"format\": " LETTER ", \"more\": 1}", -ENOTSUP, "more");
}

TEST(nesting_and_texts_are_bounded)
{
    char source[8192];
    size_t at = (size_t)snprintf(source, sizeof(source), "{\"format\": ");
    for (int i = 0; i < 60; i++)
        at += (size_t)snprintf(source + at, sizeof(source) - at, "{\"type\": \"star\", \"content\": ");
    at += (size_t)snprintf(source + at, sizeof(source) - at, LETTER);
    for (int i = 0; i < 61; i++)
        source[at++] = '}';
    source[at] = 0;
    refused(source, -E2BIG, "nested");
    at = (size_t)snprintf(source, sizeof(source), "{\"format\": {\"type\": \"tag\", \"begin\": \"");
    memset(source + at, 'x', STRUCTURAL_TEXT_BYTES_MAX + 1);
    snprintf(source + at + STRUCTURAL_TEXT_BYTES_MAX + 1, 100,
             "\", \"content\": " LETTER ", \"end\": \"\"}}");
    refused(source, -E2BIG, "begin has 4097 bytes");
}

TEST_MAIN()
