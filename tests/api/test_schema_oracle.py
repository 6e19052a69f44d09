"""Masks of schemas against those of llguidance, on random walks. Skipped without that package.

PLATEAU_SCHEMAS names a folder of further schemas ({"schema": ...} each, as in MaskBench), PLATEAU_WALKS the
walks of each. What differs on purpose is left out: white space, escapes, bytes beyond ASCII, and the
spellings of a
number after its first digit and of 0 as -0. Dates differ: they have years from 1000 on here."""
import json
import os
import pathlib
import random
import subprocess

import pytest

from conftest import FAULTY

llguidance = pytest.importorskip("llguidance", reason="the package llguidance is not installed")

LINES = FAULTY.parent / "mask_lines"
TOKENS = [bytes([b]) for b in range(256)] + [t.encode() for t in (
    '":', '","', '":"', '"}', '"]', "]}", "},", "}}", '{"', '["', "[[", "ab", "na", "name", "12", "true", "false", "null", "tr", "[]", "{}")]
END = len(TOKENS)


class Vocabulary:
    eos_token_id, bos_token_id, tokens, special_token_ids = END, None, TOKENS + [b"<end>"], [END]

    def __call__(self, text):
        return list(text.encode() if isinstance(text, str) else text)


TOKENIZER = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary()), n_vocab=END + 1)
OPTIONS = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string"}, "n": {"type": "integer"}, "on": {"type": "boolean"}}, "required": ["name"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}}, "required": ["a", "b"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "null"}, "ab": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
    {"enum": ["a", "ab", "b", 12, None, True, "name"]},
    {"anyOf": [{"type": "array", "items": {"enum": ["a", "b"]}}, {"type": "string", "pattern": "^[a-c]{2,4}$"}, {"type": "null"}]},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "ab"}], "items": {"type": "null"}, "minItems": 2},
    {"$defs": {"t": {"type": "object", "properties": {"l": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}, "v": {"enum": [1, 2]}}, "required": ["l", "v"], "additionalProperties": False}}, "$ref": "#/$defs/t"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "a"},
    {"type": "array", "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, "maxItems": 2},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "object", "properties": {"b": {"enum": ["x"]}}, "required": ["b"], "additionalProperties": True}]},
]


def schemas():
    folder = os.environ.get("PLATEAU_SCHEMAS")
    files = sorted(pathlib.Path(folder).glob("*.json")) if folder else []
    return [(f"schema {i}", s) for i, s in enumerate(SCHEMAS)] + [(f.name, json.loads(f.read_text())["schema"]) for f in files]


class Ours:
    def __init__(self, folder, schema):
        (folder / "schema.json").write_text(json.dumps(schema))
        (folder / "vocabulary").write_text("".join(t.hex() + "\n" for t in TOKENS))
        self.process = subprocess.Popen([LINES, folder / "schema.json", folder / "vocabulary"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.supported = self.process.stdout.readline() == "ok\n"

    def step(self, line):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        taken, bits = self.process.stdout.readline().split()
        return taken == "1", bytes.fromhex(bits)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def theirs(schema):
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=OPTIONS)
        matcher = llguidance.LLMatcher(TOKENIZER, grammar)
    except ValueError:
        return None
    return None if matcher.is_error() else matcher


def in_string(text):
    inside = False
    for byte in text:
        inside = inside != (byte == ord('"'))
    return inside


def ids(mask):
    return {i for i in range(END + 1) if mask[i // 8] >> i % 8 & 1}


def comparable(text, token):
    """Not of the kinds that differ on purpose."""
    if token == END:
        return True
    new = TOKENS[token]
    if any(b >= 0x7F or b == ord("\\") or b < 0x20 for b in new):
        return False
    inside = in_string(text)
    for byte in new:
        if not inside and (byte in b" -" or (text[-1:].isdigit() or text[-1:] in (b"-", b".")) and chr(byte) in "0123456789.eE+-"):
            return False
        inside = inside != (byte == ord('"'))
        text += bytes([byte])
    return True


def walk(ours, matcher, rng):
    """How many masks were compared, and the first difference."""
    matcher.reset()
    _, mask = ours.step("reset")
    text = b""
    for step in range(120):
        a, b = ids(mask), ids(matcher.compute_bitmask())
        # llguidance allows one way to cut forced bytes into tokens.
        different = {t for t in (b - a if len(b) == 1 else a ^ b) if comparable(text, t)}
        if different:
            return step, (text, {(TOKENS + [b"end"])[t]: "ours" if t in a else "theirs" for t in sorted(different)})
        both = [t for t in a & b if t != END and comparable(text, t)]
        if not both:
            return step + 1, None
        token = rng.choice([t for t in both if TOKENS[t][:1] in b'"]},:'] or both) if rng.random() < 0.3 else rng.choice(both)
        taken, mask = ours.step(token)
        assert taken and matcher.consume_token(token)
        text += TOKENS[token]
    return step, None


@pytest.mark.parametrize("name,schema", schemas(), ids=lambda v: v if isinstance(v, str) else "")
def test_masks_are_those_of_llguidance(tmp_path, name, schema):
    matcher = theirs(schema)
    ours = Ours(tmp_path, schema)
    try:
        if not matcher or not ours.supported:
            pytest.skip("not supported by " + ("llguidance" if not matcher else "this program"))
        rng, masks = random.Random(name), 0
        for _ in range(int(os.environ.get("PLATEAU_WALKS", "5"))):
            compared, difference = walk(ours, matcher, rng)
            assert difference is None, difference
            masks += compared
        assert masks > 0
    finally:
        ours.close()
