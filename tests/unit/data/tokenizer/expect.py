#!/usr/bin/env python3
"""Writes the expected ids beside this file, with the PyPI package `tokenizers` (0.23) as the oracle.

Every file is a variant of the bundled model's tokenizer.json: the replaced parts ("set", "model",
"vocab_replace", "merges_drop", "merges_as_lists", "added"), and texts with their ids. test_tokenizer.c
builds the same variant and compares. Run: python3 expect.py
"""
import copy
import json
import pathlib
import random

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
BASE = json.loads((HERE / "../../../../models/canary/tokenizer.json").resolve().read_text())
HEAD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?"
TAIL = r"]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REGEX = {
    "qwen2": HEAD + r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}" + TAIL,
    "qwen3_5": HEAD + r"[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}" + TAIL,
    "llama3": HEAD + r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}" + TAIL,
}


def pre_tokenizer(name):
    split = {"type": "Split", "pattern": {"Regex": REGEX[name]}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {"type": "Sequence", "pretokenizers": [split, level]}


def added(content, **flags):
    entry = dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {**entry, **flags}


BOS = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
TEMPLATE = {
    "type": "Sequence",
    "processors": [
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        {
            "type": "TemplateProcessing",
            "single": [BOS, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [8179], "tokens": ["<|im_start|>"]}},
        },
    ],
}

# The last six tokens come from the last six merges; tokens that no merge makes take their places.
LAST = sorted(BASE["model"]["vocab"], key=BASE["model"]["vocab"].get)[-6:]
VARIANTS = {
    "qwen3_5": {},
    "qwen2": {"set": {"pre_tokenizer": pre_tokenizer("qwen2")}},
    "llama3": {
        "set": {"pre_tokenizer": pre_tokenizer("llama3"), "normalizer": None, "post_processor": TEMPLATE},
        "model": {"ignore_merges": True},
        "vocab_replace": dict(zip(LAST, ["Ġxyzzy", "123", "qqqqqq", "Ã©Ã©", "ĊĊx", "<b>"])),
        "merges_drop": 6,
        "merges_as_lists": True,
        "special_prefix": [8179],
    },
    "added": {
        "added": [
            added("<L>", lstrip=True), added("<R>", rstrip=True), added("<LR>", lstrip=True, rstrip=True, special=True),
            added("word", single_word=True), added("<thinker>"), added("<th"), added("Nor\u00e9m", normalized=True),
            added("normal", normalized=True, single_word=True), added("\n\n\n", rstrip=True),
            added("e\u0301\u0301X", normalized=True), added("<SW>", single_word=True, lstrip=True, rstrip=True),
            added("\u4e2d\u6587<"), added("e\u0301Y"),
        ]
    },
}

TEXTS = [
    "", " ", "  ", "\n", "a", "Hello, world!", "trailing   ", "  leading", "a  b   c    d", "tab\tand\t\ttabs",
    "crlf\r\ncrlf\r\n\r\nend", "\r\r\n\n\r", " \n \n x", "x \n\n  y", "\n\n\n\n", "   \n   ", "a\u00a0b\u3000c\u2028d\u0085e",
    "\u1680\u2000\u200a\u202f\u205f", "\u200b\u180e\ufeff", "\v\f\x1c\x1f", "\x00\x01\x7f", "it's I'M we'LL they'Ve he'D can't",
    "'s'S'\u017fx '\u017f", "''s 'x '' '", "don\u2019t", "1 12 123 1234 12345 1234567890", "3.14159 1,000,000 0x1F 1e-9",
    "\u0661\u0662\u0663 \u00b2\u00b3 \u2166 \u00bd\u00be \U0001d7d8\U0001d7d9", "abc123def", "caf\u00e9 cafe\u0301",
    "\u1e69 s\u0323\u0307 s\u0307\u0323 \u1e63\u0307 \u1e61\u0323", "\u0301 leading mark", "a\u0301\u0323\u0334\u0345b",
    "\u212b \u2126 \u212a \u00c5", "\u0344 \u0340 \u0341 \u0374 \u037e \u0387", "\u0958 \u0915\u093c \u09dc \u0a33",
    "\ufb01 \ufb03 \u01c4 \u2460", "\uac00 \u1100\u1161 \u1100\u1161\u11a8 \uac00\u11a8 \u1161 \u11a8", "\ud55c\uad6d\uc5b4",
    "\u4e2d\u6587\uff0c\u65e5\u672c\u8a9e\u3002\u304b\u3099\u304c", "\uf900 \U0002f800", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u0e44\u0e17\u0e22\u0e33", "\u05e2\u05b4\u05d1\u05b0\u05e8\u05b4\u05d9\u05ea \u05d1\u05bc\u05b0", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea \u2764\ufe0f", "\U0001d15e\U0001d1bb",
    "\u0378 \U000e0100 \ue000 \ufffd \uffff \U0010fffd", "\u0898\u0334 \U0001e130\u0334 \u1df6\u0301", "\U00011935\U00011930 \U00011938",
    "\U0002ebf0\U0001ccf0\U00013460 \U0001e5ee", "!!! ?! ... -- -> => ::", "a_b __init__ _", "(a) [b] {c} <d>", "\"quoted\"\n",
    "if x:\n\treturn x\n\n\n# end\n", "x=1;\r\n  y=2;", "http://a.b/c?d=e&f=%20", "<|im_start|>user\nHi<|im_end|>\n",
    "<|im_start|><|im_end|>", " <think> \n</think>\n\n", "<|im_end|", "<<|im_end|>>", "a<|im_end|>\u0301b", "<tool_call>\n{}\n</tool_call>",
    "a" * 100, "ab" * 70, " " * 70, "\n" * 65, " \n" * 40, "\u00e9" * 40, "e\u0301" * 40, "\u0323\u0301" * 40, "1" * 70, "'" * 70,
    "qqqqqq", " xyzzy", " xyzzy xyzzyx", "\u00e9\u00e9", "\n\nx", "<b>", "the then there", " The THE tHe",
    "<L>", "  <L>  ", "<R>  \n x", " <LR> ", "a <LR>\n<LR> b", "word", " word ", "sword words word.", "word\U0001ccf0 word\u0301 \u24b6word",
    "<thinker> <think> <thi <th", "Nor\u00e9m Nore\u0301m", "normal normalx <normal>", "\n\n\n\n \n\n\nx", "e\u0301\u0301X \u00e9\u0301X", "<SW> <SW>a a<SW>",
    "\u4e2d\u6587<x", "e\u0301Y \u00e9Y", "\u4e2d\u6587<|im_end|>",
]
FRAGMENTS = """'s 'LL 're '\u017f don't I'M _ ! ?!.. ' " < <| <|im_end|> <think> </think> <tool_call> <L> <R> <LR> <SW> word normal
hello world The Stra\u00dfe ABC 1 12 123456 \u0663 \u00b2 \u216b \u00e9 e\u0301 \u0301 \u0323\u0301 \uac01
\u1100\u1161\u11a8 \u4e2d\u6587 \u304b\u3099 \u0939\u093f \u05d1\u05bc\u05b0 \U0001f468\u200d\U0001f469
\U0001f3fd \ufb01 \u212b \u0958 \u0378 \ue000 \u0898 zzz the""".split()
FRAGMENTS += [" ", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n\n", " \n", "\u00a0", "\u3000", "\u2028", "\u200b"]


def build(variant):
    t = copy.deepcopy(BASE)
    t.update(variant.get("set", {}))
    model = t["model"]
    model.update(variant.get("model", {}))
    for old, new in variant.get("vocab_replace", {}).items():
        model["vocab"][new] = model["vocab"].pop(old)
    model["merges"] = model["merges"][: len(model["merges"]) - variant.get("merges_drop", 0)]
    if variant.get("merges_as_lists"):
        model["merges"] = [m.split(" ") for m in model["merges"]]
    # A token of the vocabulary keeps its id; the others follow the highest one. test_tokenizer.c reads the
    # ids from here.
    following = 1 + max(a["id"] for a in t["added_tokens"])
    for entry in variant.get("added", []):
        entry["id"] = model["vocab"].get(entry["content"], following)
        following += entry["id"] == following
        t["added_tokens"].append(entry)
    return t


def main():
    rng = random.Random(11)
    texts = TEXTS + ["".join(rng.choice(FRAGMENTS) for _ in range(rng.randint(2, 12))) for _ in range(100)]
    for name, variant in VARIANTS.items():
        t = Tokenizer.from_str(json.dumps(build(variant)))
        cases = [[s, t.encode(s, add_special_tokens=False).ids] for s in texts]
        prefix = variant.get("special_prefix", [])
        assert all(t.encode(s).ids == prefix + ids for s, ids in cases)
        lists = [[rng.randrange(8192) for _ in range(rng.randint(1, 12))] for _ in range(40)]
        if name == "added":
            lists = []
        decoded = [[ids, t.decode(ids, skip_special_tokens=False), t.decode(ids)] for ids in lists]
        with open(HERE / f"{name}.json", "w") as f:
            f.write('{"variant": ' + json.dumps(variant) + ',\n"encoded": [\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + '],\n"decoded": [\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in decoded) + "]}\n")


main()
