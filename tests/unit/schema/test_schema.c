#include "test_schema.h"

/* ---- values ---- */

TEST(types)
{
    schema_check("{'type': 'null'}", "null", "true\n0\n''\nnul\nnulll");
    schema_check("{'type': 'boolean'}", "true\nfalse", "null\n0\nTrue");
    schema_check("{'type': 'string'}", "''\n'a'\n'\\n\\u00e9\\ud83d\\ude00'",
                 "a\n'\n'\\x'\n'\\ud83d'\n'a~b'");
    schema_check("{'type': ['string', 'null']}", "'x'\nnull", "1\n{}");
    schema_check("{'type': 'number'}", "0\n-1.5\n1e5\n1E-7\n0.25", "01\n.5\n1.\n+1\n'1'\n--1");
    schema_check("{'type': 'integer'}", "0\n-17\n3.0", "1.5\n01\n1e2");
    schema_check("true", "1\n{'a': [1, {}]}\n[]", "\n}\n1 2");
    schema_check("{}", "{'a': 1,'b': [1,2]}\n'x'", "{'a'}\n[1,]");
}

TEST(white_space_is_bounded)
{
    schema_check("{'type': 'object', 'properties': {'a': {'type': 'array', 'items': {}}}}",
                 "{'a':[1,2]}\n{ 'a': [ 1, 2 ] }\n{~  'a': [~    1,~    2~  ]~}\n{'a' : []}\n{}\n{ }",
                 "{  'a': 1}\n {}\n{} \n{~~}\n{'a':[1 ,2]}");
}

TEST(enum_and_const)
{
    schema_check("{'enum': ['a', 'ab', 'b', '', 1, 2.5, null, true, [1, {'k': 'v'}], {}]}",
                 "'a'\n'\\u0061b'\n'b'\n''\n1\n1.0\n2.5\nnull\ntrue\n[1,{'k':'v'}]\n[ 1, {'k': 'v'} ]\n{}",
                 "'c'\n'abc'\nfalse\n2\n1.5\n[1]\n[1,{'k':'w'}]\n10");
    schema_check("{'const': 'x\\ny'}", "'x\\ny'\n'x\\u000ay'\n'x\\u000Ay'", "'xy'\n'x~y'");
    schema_check("{'const': 0}", "0\n0.0\n-0", "false\n1");
    schema_check("{'enum': ['a', 1, 'bcd'], 'type': 'string', 'minLength': 2}", "'bcd'", "'a'\n1");
    schema_check("{'enum': [1, 2, 3, 4], 'allOf': [{'enum': [3.0, 4, 5]}, {'maximum': 3}]}", "3", "1\n4\n5");
    schema_check("{'enum': [{'a': 1}, {'a': 'x'}, 2], 'properties': {'a': {'type': 'integer'}}}",
                 "{'a': 1}\n2", "{'a': 'x'}\n{'a': 2}");
    schema_check("{'enum': ['\\u20ac', '\\ud83d\\ude00']}",
                 "'\\u20ac'\n'\\u20AC'\n'\xE2\x82\xAC'\n'\\ud83d\\uDE00'\n'\xF0\x9F\x98\x80'",
                 "'\\u20ad'\n'x'");
}

TEST(lengths_count_characters)
{
    schema_check("{'type': 'string', 'minLength': 2, 'maxLength': 3}",
                 "'ab'\n'abc'\n'\xF0\x9F\x98\x80\xC3\xA9'\n'\\ud83d\\ude00\\n\\u00e9'",
                 "'a'\n'abcd'\n'\\ud83d\\ude00'");
    schema_check("{'type': 'string', 'maxLength': 100000}", "''\n'abc'", "1");

    char text[1003] = {'\''};
    memset(text + 1, 'a', 1000);
    text[1001] = '\'';
    schema_check("{'type': 'string', 'minLength': 1000}", text, "'abc'");
    schema_check("{'minLength': 1000, 'maxLength': 1001, 'type': 'string'}", text, "'abc'");
    schema_check("{'anyOf': [{'type': 'null'}, {'type': 'string', 'minLength': 2, 'maxLength': 1}]}", "null",
                 "'a'\n'ab'");
}

TEST(formats)
{
    schema_check("{'format': 'date', 'type': 'string'}", "'2024-02-29'\n'2023-12-31'\n'2000-02-29'",
                 "'2023-02-29'\n'1900-02-29'\n'2023-13-01'\n'2023-04-31'\n'2023-1-1'");
    schema_check("{'format': 'time', 'type': 'string'}", "'12:00:59Z'\n'23:59:00.5+01:30'",
                 "'24:00:00Z'\n'12:00:00'");
    schema_check("{'format': 'date-time', 'type': 'string'}", "'2024-01-31T00:00:00Z'",
                 "'2024-01-32T00:00:00Z'");
    schema_check("{'format': 'duration', 'type': 'string'}", "'P1Y2M3DT4H5M6S'\n'P2W'\n'PT1S'",
                 "'P'\n'P1Y2W'\n'PT'\n'1Y'");
    schema_check("{'format': 'email', 'type': 'string'}", "'a.b+c@example.com'",
                 "'a@'\n'@b'\n'a..b@c'\n'a b@c'");
    schema_check("{'format': 'hostname', 'type': 'string'}", "'a.example'\n'x-1'",
                 "'-a'\n'a-'\n'a..b'\n'xn--x'\n'a_b'");
    schema_check("{'format': 'ipv4', 'type': 'string'}", "'127.0.0.1'\n'255.255.255.255'",
                 "'256.0.0.1'\n'01.2.3.4'\n'1.2.3'");
    schema_check("{'format': 'ipv6', 'type': 'string'}",
                 "'::1'\n'::'\n'1:2:3:4:5:6:7:8'\n'fe80::1:2'\n'::ffff:1.2.3.4'",
                 "'1:2:3'\n':::'\n'1::2::3'\n'12345::'\n'1:2:3:4:5:6:7:8:9'");
    schema_check("{'format': 'uri', 'type': 'string'}",
                 "'https://user@example.com:80/a%20b?c#d'\n'mailto:a@b'\n'urn:x:y'",
                 "'//x/y'\n'http://a b'\n'x'\n'http://a/%zz'");
    schema_check("{'format': 'uuid', 'type': 'string'}", "'2eb8aa08-aa98-11ea-b4aa-73b441d16380'",
                 "'2eb8aa08aa9811eab4aa73b441d16380'");
    schema_check("{'format': 'of my own', 'type': 'string'}", "'anything'", "1");
    schema_check("{'format': 'date'}", "1\n'2024-01-01'", "'x'");
}

TEST(patterns)
{
    schema_check("{'type': 'string', 'pattern': '^[a-z]{2,3}$'}", "'ab'\n'a\\u0062c'", "'a'\n'abcd'\n'aB'");
    schema_check("{'type': 'string', 'pattern': 'b'}", "'abc'\n'\\u0062'\n'b'", "'ac'");
    schema_check("{'type': 'string', 'pattern': '^a', 'allOf': [{'pattern': 'z$'}], 'maxLength': 3}",
                 "'az'\n'abz'", "'a'\n'abbz'\n'z'");
    schema_check("{'type': 'string', 'pattern': '^.$'}",
                 "'\xF0\x9F\x98\x80'\n'\\ud83d\\ude00'\n'\\\"'\n'\\\\'", "'ab'\n'\\n'");
}

/* ---- objects ---- */

TEST(members_stand_in_order)
{
    const char *schema =
        "{'type': 'object', 'properties': {'a': {'type': 'integer'}, 'b': {'type': 'string'},"
        " 'c': {}}, 'required': ['b'], 'additionalProperties': false}";
    schema_check(schema,
                 "{'b':''}\n{'a':1,'b':''}\n{'b':'','c':null}\n{'a':1,'b':'','c':[]}\n{'\\u0061':1,'b':''}",
                 "{}\n{'b':'','a':1}\n{'a':'','b':''}\n{'b':'','d':1}\n{'b':'',}\n{'b':'','b':''}");
}

TEST(other_members)
{
    schema_check("{'type': 'object', 'properties': {'a': {'type': 'null'}}, 'additionalProperties': {'type': "
                 "'integer'}}",
                 "{}\n{'a':null}\n{'b':1}\n{'a':null,'b':1,'c':2}\n{'aa':3}",
                 "{'a':1}\n{'b':null}\n{'b':1,'a':1}\n{'\\u0061':1}");
    schema_check("{'type': 'object', 'patternProperties': {'^x': {'type': 'integer'}, 'y$': {'minimum': 5}},"
                 " 'additionalProperties': {'type': 'string'}}",
                 "{'x1':3}\n{'xy':5}\n{'ay':7}\n{'ay':'s'}\n{'b':'s'}",
                 "{'xy':4}\n{'xy':'s'}\n{'b':1}\n{'ay':4}");
    schema_check("{'type': 'object', 'properties': {'x': {'maximum': 3}}, 'patternProperties': {'x': "
                 "{'type': 'integer'}},"
                 " 'additionalProperties': false}",
                 "{'x':2}\n{'ax':9}", "{'x':4}\n{'x':'s'}\n{'b':1}");
    schema_check("{'type': 'object', 'propertyNames': {'pattern': '^[ab]+$', 'maxLength': 2}}",
                 "{}\n{'ab':1}\n{'a':1,'b':[]}", "{'c':1}\n{'aba':1}");
    schema_check("{'type': 'object', 'required': ['a', 'z'], 'properties': {'z': {'const': 1}}}",
                 "{'z':1,'a':2}\n{'z':1,'a':2,'q':3}", "{'z':1}\n{'a':1}\n{'a':2,'z':1}");
}

TEST(counts_of_members)
{
    schema_check("{'type': 'object', 'maxProperties': 0}", "{}", "{'a':1}");
    schema_check("{'type': 'object', 'minProperties': 1}", "{'a':1}\n{'a':1,'b':2}", "{}");
    schema_check("{'type': 'object', 'maxProperties': 1}", "{}\n{'a':1}", "{'a':1,'b':2}");
    schema_check(
        "{'type': 'object', 'properties': {'a': {}, 'b': {}, 'c': {}}, 'additionalProperties': false,"
        " 'minProperties': 2, 'maxProperties': 2}",
        "{'a':1,'b':2}\n{'b':1,'c':2}", "{}\n{'a':1}\n{'a':1,'b':2,'c':3}");
    schema_check_refused("{'type': 'object', 'minProperties': 2}", -ENOTSUP, "minProperties");
}

/* ---- arrays ---- */

TEST(items)
{
    schema_check("{'type': 'array', 'items': {'type': 'integer'}, 'minItems': 1, 'maxItems': 3}",
                 "[1]\n[1,2,3]", "[]\n[1,2,3,4]\n['a']\n[1,]");
    schema_check("{'type': 'array', 'prefixItems': [{'const': 1}, {'const': 2}], 'items': {'const': 3}}",
                 "[]\n[1]\n[1,2]\n[1,2,3,3]", "[2]\n[1,3]\n[1,2,4]");
    schema_check("{'type': 'array', 'items': [{'const': 1}, {'const': 2}], 'additionalItems': false}",
                 "[]\n[1]\n[1,2]", "[1,2,3]\n[2]");
    schema_check("{'type': 'array', 'items': false}", "[]", "[1]");
    schema_check("{'type': 'array', 'items': {'const': 0}, 'minItems': 17, 'maxItems': 19}",
                 "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]\n[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]",
                 "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]\n[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]");
    schema_check("{'type': 'array', 'items': {'enum': ['a', 'b', 'c']}, 'uniqueItems': true, 'minItems': 1}",
                 "['b','a']\n['a']\n['c','a','b']", "['a','a']\n[]\n['c','a','c']");
    schema_check("{'type': 'array', 'uniqueItems': true, 'items': {'enum': [1,2,3,4,5,6,7,8,9]}}",
                 "[]\n[1,5,9]\n[9]", "[1,1]\n[9,9]\n[10]");
    schema_check_refused("{'type': 'array', 'uniqueItems': true, 'items': {'type': 'string'}}", -ENOTSUP,
                         "uniqueItems");
}

/* ---- combinations ---- */

TEST(all_of_is_merged)
{
    schema_check("{'allOf': [{'properties': {'a': {'type': 'integer'}}, 'required': ['a']},"
                 " {'properties': {'a': {'minimum': 3}, 'b': {'type': 'null'}}, 'required': ['b']}, {'type': "
                 "'object'}]}",
                 "{'a':3,'b':null}\n{'a':4,'b':null,'c':1}", "{'a':2,'b':null}\n{'a':3}\n{'a':3,'b':1}");
    schema_check("{'type': 'integer', 'allOf': [{'minimum': 2}, {'anyOf': [{'maximum': 3}, {'const': 9}]}]}",
                 "2\n3\n9", "1\n4\n10");
}

TEST(any_of)
{
    schema_check("{'anyOf': [{'type': 'integer'}, {'type': 'string', 'maxLength': 1}]}", "7\n'x'",
                 "'xy'\nnull");
    schema_check(
        "{'type': 'object', 'properties': {'k': {'enum': ['i', 's']}, 'v': {}}, 'required': ['k', 'v'],"
        " 'anyOf': [{'properties': {'k': {'const': 'i'}, 'v': {'type': 'integer'}}},"
        " {'properties': {'k': {'const': 's'}, 'v': {'type': 'string'}}}]}",
        "{'k':'i','v':1}\n{'k':'s','v':'t'}", "{'k':'i','v':'t'}\n{'k':'s','v':1}\n{'k':'x','v':1}");
}

TEST(one_of_is_exclusive)
{
    schema_check("{'oneOf': [{'type': 'integer', 'multipleOf': 1, 'maximum': 5}, {'type': 'string'}]}",
                 "3\n'x'", "6\nnull");
    schema_check("{'oneOf': [{'type': 'integer', 'minimum': 2}, {'type': 'integer', 'maximum': 4}]}",
                 "1\n5\n9\n0", "2\n3\n4");
    schema_check("{'type': 'object', 'oneOf': [{'required': ['a']}, {'required': ['b']}]}",
                 "{'a':1}\n{'b':1}\n{'b':1,'c':2}", "{}\n{'a':1,'b':2}");
    schema_check("{'oneOf': [{'type': 'string', 'pattern': '^a'}, {'type': 'string', 'pattern': 'b$'}]}",
                 "'ac'\n'cb'\n'a'", "'ab'\n'acb'\n'c'");
    schema_check_refused("{'oneOf': [{'items': {'type': 'integer'}}, {'minItems': 2}]}", -ENOTSUP, "items");
}

TEST(one_of_tagged)
{
    struct {
        const char *a, *b, *accepted, *refused;
    } cases[] = {
        /* Apart by the member alone. */
        {"'const': 'i'", "'const': 's'", "{'k':'i','i':1}\n{'k':'s','s':1}\n{'k':'s','i':2}",
         "{'k':'i','i':2}\n{}"},
        {"'enum': ['i', 'j']", "'enum': ['s', 't']", "{'k':'j','i':1}\n{'k':'t'}", "{'k':'u'}"},
        {"'enum': ['i', 1]", "'const': 2", "{'k':1,'i':1}\n{'k':2,'s':1}", "{'k':2,'s':2}"},
        /* A value that both take is left out, however it is written. */
        {"'enum': ['i', 's']", "'enum': ['s', 't']", "{'k':'i'}\n{'k':'t'}\n{'k':'s','i':2}", "{'k':'s'}"},
        {"'const': 1", "'const': 1.0", "{'k':1,'i':2}\n{'k':1,'s':2}", "{'k':1}"},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int by_name = 0; by_name < 2; by_name++) {
            char a[256], b[256], schema[1024];
            snprintf(a, sizeof(a),
                     "{'type': 'object', 'properties': {'k': {%s}, 'i': {'const': 1}}, 'required': ['k']}",
                     cases[i].a);
            snprintf(b, sizeof(b),
                     "{'type': 'object', 'properties': {'k': {%s}, 's': {'const': 1}}, 'required': ['k']}",
                     cases[i].b);
            snprintf(schema, sizeof(schema),
                     by_name ? "{'$defs': {'a': %s, 'b': %s}, 'oneOf': [{'$ref': '#/$defs/a'}, {'$ref': "
                               "'#/$defs/b'}]}"
                             : "{'oneOf': [%s, %s]}",
                     a, b);
            schema_check(schema, cases[i].accepted, cases[i].refused);
        }
    /* Without a type, or where the tag may be missing, another value satisfies both. */
    schema_check("{'oneOf': [{'properties': {'k': {'const': 'i'}}, 'required': ['k']},"
                 " {'properties': {'k': {'const': 's'}}, 'required': ['k']}]}",
                 "{'k':'i'}\n{'k':'s'}", "3\n{'k':'u'}\n{}");
    schema_check("{'oneOf': [{'type': 'object', 'properties': {'k': {'const': 'i'}}},"
                 " {'type': 'object', 'properties': {'k': {'const': 's'}}}]}",
                 "{'k':'i'}\n{'k':'s'}", "{}\n{'j':1}");
}

TEST(negations)
{
    schema_check("{'not': {'type': 'string'}}", "1\nnull\n{}", "'x'");
    schema_check("{'type': 'string', 'not': {'enum': ['a', 'bc']}}", "'b'\n''\n'abc'",
                 "'a'\n'bc'\n'\\u0061'");
    schema_check("{'type': 'integer', 'not': {'enum': [1, 2]}}", "0\n3\n-1\n10", "1\n2\n1.0");
    schema_check("{'type': 'object', 'not': {'required': ['a']}}", "{}\n{'b':1}", "{'a':1}");
    schema_check("{'type': 'object', 'properties': {'a': {'not': {'minimum': 3}}}}", "{'a':2}\n{}",
                 "{'a':3}\n{'a':'x'}");
    schema_check("{'type': 'string', 'not': {'pattern': '^a'}}", "'b'\n''", "'ab'\n'\\u0061'");
    schema_check(
        "{'not': {'anyOf': [{'type': 'object'}, {'type': 'array'}, {'type': 'number'}, {'minLength': 2}]}}",
        "'a'\n''", "'ab'\n1\n[]\nnull");
    schema_check_refused("{'not': {'const': {'a': 1}}}", -ENOTSUP, "negated");
    schema_check_refused("{'not': {'items': {'type': 'string'}}}", -ENOTSUP, "items");
}

/* A keyword without an exact opposite matters only to values of its type. */
TEST(negations_of_other_types_need_none)
{
    schema_check("{'type': ['object', 'integer'], 'not': {'type': 'object', 'items': false}}", "1", "{}");
    schema_check_refused("{'type': 'object', 'if': {'format': 'date'}, 'then': {'type': 'string'}}", -EINVAL,
                         "no text");
    schema_check_refused(
        "{'type': ['object', 'string'], 'if': {'format': 'date'}, 'then': {'type': 'string'}}", -ENOTSUP,
        "format");
}

TEST(conditions)
{
    const char *schema =
        "{'type': 'object', 'properties': {'k': {'type': 'string'}, 'v': {}}, 'required': ['k'],"
        " 'if': {'properties': {'k': {'const': 'i'}}}, 'then': {'required': ['v'], 'properties': {'v':"
        " {'type': 'integer'}}}, 'else': {'properties': {'v': {'type': 'null'}}}}";
    schema_check(schema, "{'k':'i','v':1}\n{'k':'x'}\n{'k':'x','v':null}",
                 "{'k':'i'}\n{'k':'i','v':null}\n{'k':'x','v':1}");
    schema_check("{'type': 'object', 'dependentRequired': {'a': ['b']}}", "{}\n{'b':1}\n{'a':1,'b':2}",
                 "{'a':1}");
    schema_check(
        "{'type': 'object', 'dependencies': {'a': ['b'], 'b': {'properties': {'b': {'type': 'null'}}}}}",
        "{}\n{'b':null}\n{'b':null,'a':1}", "{'a':1}\n{'b':1}\n{'b':2,'a':1}");
}

/* ---- references ---- */

TEST(references)
{
    schema_check(
        "{'$ref': '#/$defs/n', '$defs': {'n': {'type': 'object', 'properties': {'v': {'type': 'integer'},"
        " 'next': {'$ref': '#/$defs/n'}}, 'required': ['v'], 'additionalProperties': false}}}",
        "{'v':1}\n{'v':1,'next':{'v':2,'next':{'v':3}}}", "{'next':{'v':1}}\n{'v':1,'next':{}}");
    schema_check(
        "{'properties': {'a': {'$ref': '#foo'}, 'b': {'$ref': '#/definitions/x~1y'}}, 'type': 'object',"
        " 'definitions': {'q': {'$anchor': 'foo', 'const': 1}, 'x/y': {'const': 2}}}",
        "{'a':1,'b':2}", "{'a':2}\n{'b':1}");
    schema_check("{'$id': 'http://x.example/root.json', 'items': {'$ref': 'item.json'}, 'type': 'array',"
                 " '$defs': {'i': {'$id': 'item.json', 'type': 'null'}}}",
                 "[null]", "[1]");
    schema_check(
        "{'$schema': 'http://json-schema.org/draft-07/schema#', 'definitions': {'s': {'type': 'string'}},"
        " 'items': {'$ref': '#/definitions/s', 'maxLength': 1}, 'type': 'array'}",
        "['abc']", "[1]");
    schema_check("{'$defs': {'s': {'type': 'string'}}, 'items': {'$ref': '#/$defs/s', 'maxLength': 1}, "
                 "'type': 'array'}",
                 "['a']", "['abc']\n[1]");
    schema_check_refused("{'$ref': 'http://elsewhere.example/x'}", -ENOTSUP, "outside");
    schema_check_refused("{'$ref': '#/$defs/none'}", -EINVAL, "nothing");
    schema_check_refused("{'allOf': [{'$ref': '#'}], 'type': 'object'}", -ENOTSUP, "itself");
}

TEST(recursion_needs_an_end)
{
    schema_check_refused("{'type': 'object', 'properties': {'a': {'$ref': '#'}}, 'required': ['a']}", -EINVAL,
                         "");
    schema_check_refused("{'type': 'string', 'enum': [1]}", -EINVAL, "");
    schema_check("{'type': 'object', 'properties': {'a': {'$ref': '#'}, 'b': {'allOf': [{'type': 'null'}, "
                 "{'const': 1}]}}}",
                 "{}\n{'a':{'a':{}}}", "{'b':1}\n{'b':null}\n{'a':1}");
}

TEST_MAIN()
