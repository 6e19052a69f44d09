"""plateau schema: one word per instance, reasons on standard error."""
import json
import pathlib
import subprocess

import pytest

from conftest import PROGRAM


def judge(tmp_path, schema, lines):
    path = pathlib.Path(tmp_path) / "schema.json"
    path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return subprocess.run([PROGRAM, "schema", path], input="".join(line + "\n" for line in lines), capture_output=True, text=True, timeout=60)


PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
          "required": ["name"], "additionalProperties": False}


@pytest.mark.smoke
def test_each_line_gets_a_word(tmp_path):
    got = judge(tmp_path, PERSON, ['{"name": "Ada"}', '{"age": 36, "name": "Ada"}', '{"age": 3}', '{"name": 1}', "no json", "",
                                   '{"name": "a", "name": "b"}', '{"name": "a", "age": 1e2}', '  {"name":"a"}  '])
    assert got.stdout.split() == ["accept", "accept", "reject", "reject", "reject", "reject", "reject", "accept", "accept"]
    assert (got.returncode, got.stderr) == (0, "")


def test_members_of_alternatives_are_put_into_order(tmp_path):
    schema = {"anyOf": [{"type": "object", "properties": {"k": {"const": 1}, "a": {}, "b": {}}, "required": ["k"]},
                        {"type": "object", "properties": {"k": {"const": 2}, "b": {}, "a": {}}, "required": ["k"]}]}
    got = judge(tmp_path, schema, ['{"b": 1, "a": 2, "k": 1}', '{"a": 1, "b": {"y": 1, "x": 2}, "k": 2}', '{"a": 1, "k": 3}'])
    assert got.stdout.split() == ["accept", "accept", "reject"]


def test_what_is_not_supported_is_named(tmp_path):
    got = judge(tmp_path, {"properties": {"a": {"contains": {}}}}, ["1", "[2]"])
    assert got.stdout.split() == ["unsupported", "unsupported"]
    assert got.returncode == 1 and '#/properties/a: "contains"' in got.stderr


def test_unknown_keywords_are_named(tmp_path):
    got = judge(tmp_path, {"type": "string", "minLenght": 3}, ['"a"'])
    assert got.stdout.split() == ["accept"] and "minLenght" in got.stderr


def test_host_names_are_decided(tmp_path):
    names = ["a", "ab", "a-b", "ab-c.d", "a--b", "ab-c-d", "abc--d", "xn--a", "a.xn--a", "-a", "a-", "a" * 63, "a" * 64, "ab-c" + "d" * 59, "ab-c" + "d" * 60, "a..b"]
    got = judge(tmp_path, {"type": "string", "format": "hostname"}, [json.dumps(name) for name in names])
    wrong = {"xn--a", "a.xn--a", "-a", "a-", "a" * 64, "ab-c" + "d" * 60, "a..b"}
    assert got.stdout.split() == ["reject" if name in wrong else "accept" for name in names]


@pytest.mark.parametrize("schema, values", [
    ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, {2**64 - 1: True, 2**64: False, 2**64 - 2: True, -1: False}),
    ({"type": "integer", "exclusiveMinimum": 2**63}, {2**63 + 1: True, 2**63: False}),
    ({"minimum": -2**127, "maximum": 2**128 - 1}, {2**128 - 1: True, 2**128: False, -2**127: True, -2**127 - 1: False}),
    ({"not": {"minimum": 2**64 - 1}, "type": "integer"}, {2**64 - 1: False, 2**64 - 2: True}),
    ({"const": 2**64 + 1}, {2**64 + 1: True, 2**64: False, 18446744073709552000: False}),
    ({"enum": [-2**63 - 1, 2**53 + 1, "x"]}, {-2**63 - 1: True, -2**63: False, 2**53 + 1: True, 2**53: False})])
def test_integers_beyond_64_bits(tmp_path, schema, values):
    got = judge(tmp_path, schema, [str(v) for v in values])
    assert got.stdout.split() == ["accept" if ok else "reject" for ok in values.values()]


def test_wrong_use(tmp_path):
    assert judge(tmp_path, "{", []).returncode == 1
    assert subprocess.run([PROGRAM, "schema"], capture_output=True, timeout=60).returncode == 2
    assert subprocess.run([PROGRAM, "schema", tmp_path / "none"], capture_output=True, timeout=60).returncode == 1


def test_hostile_schemas_end(tmp_path):
    deep = {"type": "string"}
    for _ in range(300):
        deep = {"not": deep}
    many = {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(40)]}
    for schema in [deep, many, {"enum": list(range(20000))}, {"type": "string", "pattern": "((((a{900}){900}){900}){900})*"}]:
        got = judge(tmp_path, schema, ["1"])
        assert got.stdout.split() in (["unsupported"], ["reject"])


def test_names_of_keywords_move_no_cursor(tmp_path):
    got = judge(tmp_path, {"type": "object", "odd\x1b]0;x\x07\x9b": 1}, ["{}"])
    assert got.returncode == 0 and "odd\\x1b]0;x\\x07\\x9b" in got.stderr and not any(c in got.stderr for c in "\x1b\x07\x9b")
