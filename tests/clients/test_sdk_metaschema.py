"""Schemas with values of wrong types, judged by the drafts' own metaschemas: `plateau schema` names the
keyword of each that is wrong, and has no such complaint about the others. Needs the package jsonschema."""

import json
import os
import random
import subprocess

import jsonschema
import pytest

from servers import PROGRAM

SEED = int(os.environ.get("PLATEAU_SEED") or random.randrange(2**32))
CASES = 2000 if os.environ.get("PLATEAU_LONG") else 60
DRAFTS = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
WORDS = """type enum properties required additionalProperties patternProperties propertyNames minProperties maxProperties
    items prefixItems additionalItems minItems maxItems uniqueItems contains minContains maxContains minLength maxLength
    pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf allOf anyOf oneOf not if then else
    dependentRequired dependentSchemas dependencies unevaluatedProperties unevaluatedItems $ref $defs definitions""".split()
VALUES = [None, True, False, 0, 3, -1, 2.5, -0.5, "a", "string", "", [], [3], ["a"], [None], [{}], [[]], [True], {}, {"a": 3}, {"a": None}, {"a": {}},
          {"a": ["b"]}, {"a": [3]}, {"a": True}, {"a": "b"}]
# How a schema may stand inside another one.
PLACES = [lambda s: s, lambda s: {"properties": {"p": s}}, lambda s: {"allOf": [{}, s]}, lambda s: {"anyOf": [s]}, lambda s: {"not": s},
          lambda s: {"items": s}, lambda s: {"additionalProperties": s}, lambda s: {"patternProperties": {"^x": s}},
          lambda s: {"definitions": {"d": s}}, lambda s: {"properties": {"p": {"type": "array", "items": {"oneOf": [s, {"type": "null"}]}}}}]
# Not wrong types: the program takes these, as their meaning is plain.
LENIENT = {"minItems", "uniqueItems", "pattern", "format", "dependencies"}

# Keywords of later drafts, and of earlier ones: their form is checked in every draft.
ANY_DRAFT = {"$ref", "minContains", "maxContains", "then", "else", "$defs", "definitions", "dependencies"}


def cases():
    rng = random.Random(SEED)
    for number in range(CASES):
        draft = rng.choice(list(DRAFTS))
        word = WORDS[number % len(WORDS)]
        value = rng.choice(VALUES)
        # Draft 4 has no schemas that are true or false; the program takes them there, too.
        old = draft.endswith("draft-04/schema#")
        while old and any(part in json.dumps(value) for part in ("true", "false")):
            value = rng.choice(VALUES)
        if old and word.startswith("exclusive"):  # a number is taken as later drafts have it
            value = [value]
        if "2020" in draft and word == "items" and isinstance(value, list):  # a tuple, as in earlier drafts
            value = len(value)
        yield draft, word, {"$schema": draft, **rng.choice(PLACES)({word: value})}


def is_lenient(error):
    """Not of a wrong type; of several ways, one is enough."""
    if error.validator != "anyOf":
        return error.validator in LENIENT
    ways = {}
    for inner in error.context:
        ways.setdefault(inner.schema_path[0], []).append(is_lenient(inner))
    return any(all(way) for way in ways.values())


def wrong(validator, schema):
    return [e for e in validator(validator.META_SCHEMA).iter_errors(schema) if not is_lenient(e)]


def judge(folder, schema):
    path = folder / "schema.json"
    path.write_text(json.dumps(schema))
    return subprocess.run([PROGRAM, "schema", path], input="1\n", capture_output=True, text=True, timeout=60)


def test_wrong_types_are_named_and_only_those(tmp_path):
    counts = [0, 0]
    for draft, word, schema in cases():
        got, expected = judge(tmp_path, schema), wrong(DRAFTS[draft], schema)
        told = f"PLATEAU_SEED={SEED} {json.dumps(schema)}: {got.stdout} {got.stderr} {[e.message for e in expected]}"
        assert got.stdout.split()[0] in ("accept", "reject", "unsupported"), told
        counts[bool(expected)] += 1
        if expected:
            assert got.returncode == 1 and got.stdout.split() == ["unsupported"] and f'"{word}' in got.stderr, told
        elif word not in ANY_DRAFT:
            assert " must be " not in got.stderr, told
    assert min(counts) > CASES // 10, counts


@pytest.mark.parametrize("word", [w for w in WORDS if w not in ("additionalItems", "dependencies")])
def test_without_a_draft_every_keyword_is_checked(tmp_path, word):
    # Without a draft, exclusiveMinimum may be draft 4's boolean.
    bad = next(v for v in VALUES if not isinstance(v, bool) and wrong(jsonschema.Draft202012Validator, {word: v}))
    got = judge(tmp_path, {"properties": {"p": {word: bad}}})
    assert got.stdout.split() == ["unsupported"] and f'#/properties/p' in got.stderr and f'"{word}' in got.stderr, (bad, got)
