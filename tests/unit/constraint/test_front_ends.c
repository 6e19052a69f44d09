#include "test.h"
#include "test_recogniser.h"

#include "constraint/choice_rules.h"
#include "constraint/front_text.h"
#include "constraint/gbnf.h"
#include "constraint/lark.h"
#include "rx/rx_store.h"
#include "schema/json_text.h"
#include "schema/schema.h"

#include <errno.h>

typedef int compile_fn(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                       struct err *e);

static int compile(compile_fn *front, const char *text, struct grammar **ret, struct err *e)
{
    struct grammar_builder *b;
    sym_id start = 0;
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    int r = front(b, slice_of(text), NULL, &start, e);
    if (r == 0)
        r = grammar_finish(b, start, ret, e);
    grammar_builder_free(b);
    return r;
}

/* Texts are separated by |. */
static void check_texts(const struct grammar *g, const char *grammar, const char *texts, bool accepted)
{
    for (const char *at = texts;; at++) {
        size_t len = strcspn(at, "|");
        bool got = plain_accepts(g, (struct slice){at, len});
        if (got != accepted)
            print_error("%s: %.*s\n", grammar, (int)len, at);
        assert_int_equal(got, accepted);
        at += len;
        if (!*at)
            return;
    }
}

static void check(compile_fn *front, const char *text, const char *accepts, const char *rejects)
{
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = compile(front, text, &g, &e);
    if (r)
        print_error("%s: %s\n", text, e.text);
    assert_int_equal(r, 0);
    check_texts(g, text, accepts, true);
    check_texts(g, text, rejects, false);
    grammar_free(g);
}

static void check_refused(compile_fn *front, const char *text, int code, const char *words)
{
    struct grammar *g = NULL;
    struct err e = {{0}};
    int r = compile(front, text, &g, &e);
    if (r != code || !strstr(e.text, words))
        print_error("%s: %d %s\n", text, r, e.text);
    assert_int_equal(r, code);
    assert_non_null(strstr(e.text, words));
}

/* ---- GBNF ---- */

TEST(gbnf_has_rules_literals_and_classes)
{
    check(gbnf_compile,
          "root ::= \"a\" [b-d]+ \"\\n\"? | other\nother ::= [^a-z] # a comment\n  | \"\\x41\\u00e9\"",
          "ab|abcd|abb\n|A|\xC3\xA9|A\xC3\xA9|1", "a|ae|x|b|AA|");
    check(gbnf_compile, "root ::= (\"x\" | \"y\" \"z\"){2,3} \"!\"{2}", "xx!!|xyz!!|yzyzyz!!",
          "x!!|xx!|xxxx!!");
    check(gbnf_compile, "root ::= [\\]\\-^] . \"\\\"\"", "]x\"|-\xE2\x82\xAC\"|^]\"", "a]\"|]\"|]xx\"");
    check(gbnf_compile, "root ::= \"a\"{,2} \"b\"{3,}", "bbb|abbb|aabbbb", "aaabbb|abb|");
}

TEST(gbnf_rules_may_be_recursive)
{
    check(gbnf_compile,
          "root ::= expr\nexpr ::= expr \"+\" term | term\nterm ::= \"(\" expr \")\" | [0-9]+\n",
          "1|1+2|(1+2)+33|((4))", "|+|1+|(1|()");
    check(gbnf_compile, "root ::= \"(\" (\n  root # inner\n  \",\"\n)* \")\"", "()|((),)|(((),),(),)",
          "(|(()|(,)");
}

TEST(gbnf_errors_have_their_line)
{
    check_refused(gbnf_compile, "root ::= \"a\"\n\nb ::= (\"c\"", -EINVAL, "line 3");
    check_refused(gbnf_compile, "root ::= nothing", -EINVAL, "no rule nothing");
    check_refused(gbnf_compile, "a ::= \"b\"", -EINVAL, "root");
    check_refused(gbnf_compile, "root ::= \"a\nb", -EINVAL, "line");
    check_refused(gbnf_compile, "root ::= \"a\"\nroot ::= \"b\"", -EINVAL, "twice");
    check_refused(gbnf_compile, "root ::= <think>", -ENOTSUP, "tokens");
    check_refused(gbnf_compile, "root ::= \"a\"{5000}", -E2BIG, "1000");
    check_refused(gbnf_compile, "root ::= [z-a]", -EINVAL, "range");
    check_refused(gbnf_compile, "root ::= \"\\q\"", -EINVAL, "escape");
    check_refused(gbnf_compile, "root ::= \"\xFF\"", -EINVAL, "UTF-8");
    check_refused(gbnf_compile, "root ::= \"\xE0\x80\x80\"", -EINVAL, "UTF-8");
    check_refused(gbnf_compile, "root ::= \"\xC3(\"", -EINVAL, "UTF-8");
    check(gbnf_compile, "root ::= \"\\U0010ffff\"", "\xF4\x8F\xBF\xBF", "\xF4\x8F\xBF\xBE");
    check_refused(gbnf_compile, "root ::= \"\\U00110000\"", -EINVAL, "not a character");
    check_refused(gbnf_compile, "", -EINVAL, "root");
    check_refused(gbnf_compile, "root ::= root \"a\"", -EINVAL, "");
}

/* `head`, and "a" within `depth` groups. */
static const char *nested(const char *head, int depth)
{
    static char text[400];
    int at = snprintf(text, sizeof(text), "%s", head);
    memset(text + at, '(', (size_t)depth);
    at += depth;
    at += snprintf(text + at, sizeof(text) - (size_t)at, "\"a\"");
    memset(text + at, ')', (size_t)depth);
    text[at + depth] = 0;
    return text;
}

TEST(gbnf_depth_is_bounded)
{
    check(gbnf_compile, nested("root ::= ", FRONT_TEXT_DEPTH_MAX), "a", "|b");
    check_refused(gbnf_compile, nested("root ::= ", FRONT_TEXT_DEPTH_MAX + 1), -E2BIG, "nested");
}

/* ---- Lark ---- */

TEST(lark_has_rules_and_terminals)
{
    check(lark_compile,
          "start: \"a\" item+ [END]\n?item.2: WORD_ -> alias | \"(\" item \")\"\nWORD_: \"x\"~2..3\nEND: "
          "\"!\" // c\n",
          "axx|axxxxx|a(xxx)!|a((xx))xx", "a|ax|a(xx|xx");
    check(lark_compile, "start: A B?\nA: \"k\"i \"a\"..\"c\"\n  | B B\nB: \"\\n\" | \"\\u00e9\"",
          "ka|Kc|kb\n|\n\n\n|\xC3\xA9\n", "k|kd|\n");
    check_refused(lark_compile, "start: x", -EINVAL, "no rule x");
    check_refused(lark_compile, "start: X\nX: Y\nY: X", -EINVAL, "recursive");
    check_refused(lark_compile, "start: \"a\"\n%ignore \" \"", -ENOTSUP, "line 2");
    check_refused(lark_compile, "start: a{b}\n", -ENOTSUP, "templates");
    check_refused(lark_compile, "start: \"a\n", -EINVAL, "missing");
    check_refused(lark_compile, "a: \"b\"", -EINVAL, "start");
    check_refused(lark_compile, "%import common.LF\n%import other.X\nstart: LF", -ENOTSUP, "line 2");
    check_refused(lark_compile, "start: \"a\"~3..2", -EINVAL, "ends before");
}

/* guidance writes them around its grammars. */
TEST(lark_headers_of_llguidance_have_no_effect)
{
    check(lark_compile, "%llguidance {}\n\nstart: \"x\" v\nv[capture]: V\nV: /[a-c]{1,2}/\n", "xa|xbc",
          "x|xabc|v");
    check(lark_compile,
          "%llguidance {\n  \"no_forcing\": true, \"allow_initial_skip\": false,\n  \"allow_invalid_utf8\": "
          "true}\n"
          "start[capture = \"a ] b\"].2: \"a\"",
          "a", "|b");
    check_refused(lark_compile, "%llguidance {\n}\nstart: x", -EINVAL, "line 3");
    check_refused(lark_compile, "%llguidance {\"other\": 1}\nstart: \"a\"", -ENOTSUP, "other");
    check_refused(lark_compile, "%llguidance\nstart: \"a\"", -EINVAL, "JSON object");
    check_refused(lark_compile, "%llguidance {\"a\": }\nstart: \"a\"", -EINVAL, "JSON object");
    check_refused(lark_compile, "%llguidance {", -EINVAL, "JSON object");
    check_refused(lark_compile, "start: a\na[capture, max_tokens=5]: \"a\"", -ENOTSUP, "max_tokens");
    check_refused(lark_compile, "start: a\na[capture: \"a\"", -EINVAL, "]");
    char deep[4096] = "%llguidance {\"a\":";
    memset(deep + strlen(deep), '[', 2000);
    check_refused(lark_compile, deep, -EINVAL, "JSON object");
}

TEST(lark_repeats_in_braces)
{
    check(lark_compile, "start: A{2} (\"b\" | \"c\"){1,} \"d\"{,2} \"e\"{1, 2}\nA: \"a\"", "aabe|aabccddee",
          "abe|aae|aabddde|aabeee");
    check_refused(lark_compile, "start: \"a\"{3,2}", -EINVAL, "ends before");
    check_refused(lark_compile, "start: \"a\"{3", -EINVAL, "}");
    check_refused(lark_compile, "start: \"a\"{1001}", -E2BIG, "count");
}

TEST(lark_rules_may_be_lazy)
{
    check(lark_compile, "start: t /[a-c]/\nt[lazy]: /[a-c]*c/", "cb|acb|cc", "c|acab|accb|ab");
    check(lark_compile, "start: t \"b\"\nt[lazy]: /a*/", "b", "ab|aab");
    check(lark_compile, "start: t \"Y\"\nt[capture, suffix=\"\\n\", stop_capture=\"s\"]: /(?s:.*)/",
          "a\nY|\nY|Y\nY", "a\n\nY|aY|a\n");
    check(lark_compile, "start: t\nt[suffix = END]: T\nT: /a+/ | \"b\"\nEND: /x|yz?/", "ax|aay|by",
          "a|ayz|axx|aby");
    check_refused(lark_compile, "start: t\nt[lazy]: start2\nstart2: \"a\"", -EINVAL, "t is lazy");
    check_refused(lark_compile, "start: t\nt[suffix=start2]: \"a\"\nstart2: \"a\"", -EINVAL, "t is lazy");
    check_refused(lark_compile, "start: t\nt[suffix=NO]: \"a\"", -EINVAL, "no terminal NO");
    check_refused(lark_compile, "start: t\nt[suffix]: \"a\"", -ENOTSUP, "suffix");
    check_refused(lark_compile, "start: t\nt[stop=/x/]: \"a\"", -ENOTSUP,
                  "the attribute stop of a rule is not supported");
    check_refused(lark_compile, "start: t\nt[temperature=0.5]: \"a\"", -ENOTSUP, "temperature");
}

/* `depth` terminals, each in the one before; the last is "a". */
static const char *chained(int depth)
{
    static char text[4096];
    int at = snprintf(text, sizeof(text), "start: T1\n");
    for (int i = 1; i < depth; i++)
        at += snprintf(text + at, sizeof(text) - (size_t)at, "T%d: T%d\n", i, i + 1);
    snprintf(text + at, sizeof(text) - (size_t)at, "T%d: \"a\"\n", depth);
    return text;
}

TEST(lark_depth_is_bounded)
{
    check(lark_compile, nested("start: ", FRONT_TEXT_DEPTH_MAX), "a", "|b");
    check_refused(lark_compile, nested("start: ", FRONT_TEXT_DEPTH_MAX + 1), -E2BIG, "nested");
    check(lark_compile, chained(FRONT_TEXT_DEPTH_MAX), "a", "|b");
    check_refused(lark_compile, chained(FRONT_TEXT_DEPTH_MAX + 1), -E2BIG, "terminals are nested");
}

TEST(lark_takes_a_patch_grammar)
{
    static const char grammar[] = "start: begin hunk+ end\n"
                                  "begin: \"*** Begin Patch\" LF\n"
                                  "end: \"*** End Patch\" LF?\n\n"
                                  "hunk: add_hunk | delete_hunk | update_hunk\n"
                                  "add_hunk: \"*** Add File: \" filename LF add_line+\n"
                                  "delete_hunk: \"*** Delete File: \" filename LF\n"
                                  "update_hunk: \"*** Update File: \" filename LF change_move? change?\n"
                                  "filename: /(.+)/\n"
                                  "add_line: \"+\" /(.*)/ LF -> line\n"
                                  "change_move: \"*** Move to: \" filename LF\n"
                                  "change: (change_context | change_line)+ eof_line?\n"
                                  "change_context: (\"@@\" | \"@@ \" /(.+)/) LF\n"
                                  "change_line: (\"+\" | \"-\" | \" \") /(.*)/ LF\n"
                                  "eof_line: \"*** End of File\" LF\n\n"
                                  "%import common.LF\n";
    check(lark_compile, grammar,
          "*** Begin Patch\n*** Add File: a.txt\n+one\n+\n*** End Patch|"
          "*** Begin Patch\n*** Update File: b\n*** Move to: c\n@@ def f\n-x\n+y\n z\n*** End Patch\n|"
          "*** Begin Patch\n*** Delete File: c\n*** Update File: d\n@@\n+q\n*** End of File\n*** End Patch",
          "*** Begin Patch\n*** End Patch|*** Begin Patch\n*** Add File: a\nno\n*** End Patch|"
          "*** Begin Patch\n*** Add File: \n+x\n*** End Patch");
}

static rx_id without(struct grammar_builder *b, const char *text)
{
    struct rx_store *s = grammar_rx(b);
    return rx_not(s, rx_cat(s, RX_ALL, rx_cat(s, rx_literal(s, slice_of(text)), RX_ALL)));
}

/* Texts without "bc". */
static int lark_within(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                       struct err *e)
{
    const struct lark_opts opts = {.charge = charge, .within = without(b, "bc")};
    return lark_compile_as(b, text, &opts, ret, e);
}

static int lark_with_schemas(struct grammar_builder *b, struct slice text, const struct charge *charge,
                             sym_id *ret, struct err *e)
{
    const struct schema_opts schemas = {.charge = charge, .plain = true};
    const struct lark_opts opts = {.charge = charge, .schemas = &schemas};
    return lark_compile_as(b, text, &opts, ret, e);
}

#define POINT                                                                                                \
    "\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"integer\", \"maximum\": 9, \"minimum\": "    \
    "0},\n"                                                                                                  \
    "\"y\": {\"type\": \"array\", \"items\": {\"enum\": [\"}\", [1, {}], {\"k\": 2}]}}}, \"required\": "     \
    "[\"x\"]"

TEST(lark_has_instances_of_a_schema)
{
    check(lark_with_schemas, "start: \"<\" o+ \">\" // }\no[capture]: %json {" POINT "}\n  | \"-\"",
          "<{\"x\":1}>|<-{\"x\": 2}->", "<>|<{}>|<{\"x\":10}>|{\"x\":1}");
    check(lark_with_schemas, "start: (%json {\"enum\": [1]}\n){1,2}", "1|11", "|111");
    /* Text of guidance. */
    check(lark_with_schemas,
          "%llguidance {}\n\nstart: o\n\no[capture]: %json {\n" POINT ",\n\"x-guidance\": {"
          "\"whitespace_flexible\": false, \"whitespace_pattern\": null, \"item_separator\": \", \", "
          "\"key_separator\": \": \", \"coerce_one_of\": true, \"lenient\": false}\n}\n",
          "{\"x\": 1}|{\"x\": 1, \"y\": []}|{\"x\": 1, \"y\": [\"}\", [1, {}], {\"k\": 2}]}",
          "{\"x\":1}|{ \"x\": 1}|{\"x\": 1,\"y\": []}|{\"x\": 1, \"y\": [\"}\",[1, {}]]}|{\"x\": 1 }|{\"x\": "
          "1, \"y\": [ ]}");
    check(lark_with_schemas,
          "start: %json {\"x-guidance\": {\"item_separator\": \"[,;]\", \"whitespace_pattern\": \"_\"}, "
          "\"const\": [1, {\"a\": 2}]}",
          "[1,{\"a\":2}]|[_1;_{_\"a\":_2_}_]", "[1, {\"a\":2}]|[1{\"a\":2}]|[__1,{\"a\":2}]");
}

TEST(lark_refuses_schemas)
{
    check_refused(lark_with_schemas, "start: \"a\" o\no: %json {\n\"contains\": {}}", -ENOTSUP,
                  "%json: schema at #");
    check_refused(lark_with_schemas, "start: %json {\"a\": }", -EINVAL, "%json needs a JSON object");
    check_refused(lark_with_schemas, "start: %json", -EINVAL, "%json needs a JSON object");
    check_refused(lark_with_schemas, "start: %json {", -EINVAL, "%json needs a JSON object");
    check_refused(lark_with_schemas, "start: %regex {\"substring_chars\": \"a\"}", -ENOTSUP,
                  "%regex is not supported");
    check_refused(lark_with_schemas, "start: %lark {\nstart: \"a\"\n}", -ENOTSUP, "%lark is not supported");
    check_refused(lark_with_schemas, "start: A\nA: %json {}", -EINVAL, "a rule in it");
    check_refused(lark_with_schemas, "start: %json {\"x-guidance\": 1}", -EINVAL, "x-guidance");
    check_refused(lark_with_schemas, "start: %json {\"x-guidance\": {\"other\": 1}}", -ENOTSUP, "other");
    check_refused(lark_with_schemas, "start: %json {\"x-guidance\": {\"whitespace_flexible\": 1}}", -EINVAL,
                  "flexible");
    check_refused(lark_with_schemas, "start: %json {\"x-guidance\": {\"key_separator\": \"(\"}}", -EINVAL,
                  "key_separator");
    check_refused(lark_with_schemas, "start: %json {\"x-guidance\": {\"item_separator\": \",?\"}}", -EINVAL,
                  "empty text");
    check_refused(lark_compile, "start: %json {}", -ENOTSUP, "%json is not supported in this kind");
}

static int lark_in_json(struct grammar_builder *b, struct slice text, const struct charge *charge,
                        sym_id *ret, struct err *e)
{
    struct json_text json;
    json_text_init_plain(&json, b);
    const struct lark_opts opts = {.charge = charge, .encode = json_text_encode, .encode_arg = &json};
    return lark_compile_as(b, text, &opts, ret, e);
}

TEST(lark_within_other_texts)
{
    check(lark_within, "start: item+\nitem: \"a\" | \"b\" | \"c\"", "a|ab|acb|ba", "bc|abca|");
    check(lark_within, "start: \"a\"? B\nB: /[bc]*/", "a||ab|cb", "bc|abcb");
    /* Recursive: each terminal by itself. */
    check(lark_within, "start: \"(\" start \")\" | /[a-c]+/", "(a)|((cb))", "(bc)|(abc)");
    check(lark_in_json, "start: \"a\\n\" /[\"x]+/ \"\\u00e9\"..\"\\u00eb\"",
          "a\\nx\xC3\xA9|a\\n\\\"x\xC3\xAA", "a\nx\xC3\xA9|a\\n\"\xC3\xA9");
}

TEST(lark_imports_common_terminals)
{
    check(lark_compile,
          "start: ESCAPED_STRING \" \" (SIGNED_NUMBER | CNAME)\n%import common (ESCAPED_STRING, "
          "CNAME)\n%import common.SIGNED_NUMBER\n",
          "\"a\\\"b\" -1.5e3|\"\" x_1", "\"a 1|\"\" 1x");
    check(lark_compile, "start: N /\\-\\// \n%import common.INT -> N", "12-/", "-/|1-");
    /* Python escapes any punctuation, and a set wants its own escaped alone. */
    check(lark_compile, "start: /a\\!\\#[\\&\\-\\]\\^]\\\\/", "a!#&\\|a!#-\\|a!#]\\|a!#^\\",
          "a!#\\|a!#'\\|a\\!#&\\");
}

/* ---- the small ones ---- */

TEST(choices)
{
    struct slice texts[] = {SLICE("yes"),      SLICE("no"),       SLICE("yesterday"),
                            SLICE("\xC3\xA9"), SLICE("\xC3\xA8"), SLICE("no")};
    struct grammar_builder *b;
    struct grammar *g;
    struct err e;
    sym_id start;
    assert_int_equal(grammar_builder_create(NULL, NULL, &b), 0);
    assert_int_equal(choice_compile(b, texts, 6, &start, &e), 0);
    assert_int_equal(grammar_finish(b, start, &g, &e), 0);
    check_texts(g, "choice", "yes|no|yesterday|\xC3\xA9|\xC3\xA8", true);
    check_texts(g, "choice", "|ye|yest|nono|\xC3", false);
    grammar_free(g);
    assert_int_equal(choice_compile(b, texts, 0, &start, &e), -EINVAL);
    assert_int_equal(choice_compile(b, (struct slice[]){SLICE("")}, 1, &start, &e), -EINVAL);
    grammar_builder_free(b);
}

static int any_object(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                      struct err *e)
{
    (void)text, (void)charge, (void)e;
    *ret = choice_json_object(b);
    return 0;
}

static int any_value(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                     struct err *e)
{
    struct json_text t;
    (void)text, (void)charge, (void)e;
    json_text_init(&t, b);
    *ret = json_text_any(&t);
    return 0;
}

static int regex(struct grammar_builder *b, struct slice text, const struct charge *charge, sym_id *ret,
                 struct err *e)
{
    (void)charge;
    return choice_compile_regex(b, text, ret, e);
}

TEST(any_json)
{
    check(any_object, "", "{}|{\"a\": [1, {\"b\": null}]}|{\n  \"a\": true\n}",
          "[]|1||{|{\"a\"}|{a:1}|{\"a\":1,}");
    check(any_value, "", "{}|[]|1.5e3|\"x\\n\"|[[[]]]|null", "|nul|[1,]|\"|{\"a\":}|[1 ,2]");
}

TEST(regular_expressions_match_the_whole)
{
    check(regex, "a+b?(c|d){2}", "acc|aabcd|add", "ac|xacc|accx|");
    check_refused(regex, "a(?=b)", -EINVAL, "");
}

TEST_MAIN()
