"""Generated tokenizers of every kind: ids and text equal to those of the PyPI package `tokenizers`."""
import json
import os
import pathlib
import random
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the package `tokenizers` is the reference")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(pathlib.Path(__file__).parents[2] / "build/plateau"))
LINES = pathlib.Path(PROGRAM).parent / "tests/api/tokenizer_lines"
SEED = int(os.environ.get("PLATEAU_SEED", random.randrange(1 << 30)))
ROUNDS = 4000 if os.environ.get("PLATEAU_LONG") else 200

WORDS = """the then hello world The Straße ABC HTTPServer camelCase don't I'M we'LL 's 'S 'ſ 1 12 123 1234 12345 3.14 1,000 ٣ ² Ⅻ ½
é e\u0301 \u0301 \u0323\u0301 ô Å Å İ ǅ ʰ 각 \u1100\u1161\u11a8 中文 日本語 か\u3099 हिन्दी עִבְרִית العربية ไทย 👨\u200d👩\u200d👧 👍🏽 🇩🇪 ❤️ ﬁ Å
\u0378 \ue000 \u0898 … 。，、 « » “x” — _ __init__ #tag @x !!! ?! .. -> (a) [b] {c} <d> <s> </s> <unk> ▁ ▁▁ ## ##ing <0x41> [MASK] x=1;
https://a.b/c?d=e&f=%20 \U00010d4e \U0001ccf0 \x00 \x01 \x7f \x85 \ufeff \ufffd don do not n't""".split()
BLANKS = [" "] * 12 + ["  ", "   ", "\t", "\n", "\r\n", "\n\n\n", " \n", "\u00a0", "\u3000", "\u2028", "\u200b", "\v", "", "", "", ""]
FIXED = ["", " ", "  ", "\n", "a", " a", "a ", " a b  c ", "\r\n \r\n", "a" * 300, " " * 70, "\n" * 65, "1" * 50, "é" * 90, "e\u0301" * 50,
         "\u0323\u0301" * 40, "中" * 80, "👍🏽" * 30, "▁" * 20, "x\u0300" * 200, "HELLOworldHELLO", "<s>a</s> <s>", "ab " * 200]
CORPUS = ["the then hello world The Strasse ABC hello hello world there 12 123 2024 don't I'm we'll",
          "日本語 中文 中文 हिन्दी é é ô Å 👍 naïve café", "def f(x):\n    return x + 1\n\n", "  indented   text\t\ttabs  "] * 3


def texts(rng):
    yield from FIXED
    for _ in range(ROUNDS):
        yield "".join(rng.choice(WORDS) + rng.choice(BLANKS) for _ in range(rng.randint(1, 10)))
    for _ in range(ROUNDS // 4):
        yield "".join(chr(rng.choice([rng.randrange(0x20, 0x300), rng.randrange(0x300, 0xD800), rng.randrange(0xE000, 0x20000)]))
                      for _ in range(rng.randint(1, 12)))


class Ours:
    def __init__(self, folder, reference, config=None):
        text = reference if isinstance(reference, str) else reference.to_str()
        (folder / "tokenizer.json").write_text(text)
        if config:
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        self.process = subprocess.Popen([LINES, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.says = self.process.stdout.readline().strip()

    def ask(self, letter, argument):
        self.process.stdin.write(f"{letter} {argument}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def encode(self, text, special=False):
        return [int(i) for i in self.ask("s" if special else "e", text.encode().hex()).split()]

    def decode(self, ids, skip):
        return bytes.fromhex(self.ask("k" if skip else "d", " ".join(map(str, ids)))).decode()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def compare(folder, reference, decode=True):
    ours = Ours(folder, reference)
    assert ours.says == "ok"
    rng = random.Random(SEED)
    size = reference.get_vocab_size()
    for text in texts(rng):
        want = reference.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == want, (SEED, text, ours.encode(text), want)
        assert ours.encode(text, True) == reference.encode(text).ids, (SEED, text)
        if not decode:
            continue
        for skip in (False, True):
            got, ref = ours.decode(want, skip), reference.decode(want, skip_special_tokens=skip)
            assert got == ref, (SEED, text, want, got, ref)
    for _ in range(ROUNDS if decode else 0):
        ids = [rng.randrange(size) for _ in range(rng.randint(1, 8))]
        got, ref = ours.decode(ids, False), reference.decode(ids, skip_special_tokens=False)
        assert got.replace("\ufffd", "") == ref.replace("\ufffd", ""), (SEED, ids, got, ref)
    ours.close()


def isolated(regex, **more):
    return pre_tokenizers.Split(Regex(regex), more.pop("behavior", "isolated"), **more)


def level(regex=False, prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex)


sequence = pre_tokenizers.Sequence
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
BYTE_LEVEL = {
    "gpt2": level(True),
    "roberta": level(True, True),
    "smollm": sequence([pre_tokenizers.Digits(individual_digits=True), level(True)]),
    "starcoder": sequence([pre_tokenizers.Digits(individual_digits=True), level(True, False)]),
    "digits_together": sequence([pre_tokenizers.Digits(individual_digits=False), level(True, True)]),
    "llama3": sequence([isolated(QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)), level()]),
    "qwen2": sequence([isolated(QWEN2), level()]),
    "qwen2_removed": sequence([pre_tokenizers.Split(Regex(QWEN2), "removed", invert=True), level()]),
    "o200k": sequence([isolated(f"{CASED}{ENDINGS}|{UPPER}{ENDINGS}" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL), level()]),
    "tekken": sequence([isolated(f"{CASED}|{UPPER}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL), level()]),
    "deepseek_v3": sequence([
        isolated(r"\p{N}{1,3}"), isolated("[一-龥\u3040-ゟ゠-ヿ]+"),
        isolated(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL),
        level()]),
    "deepseek_coder": sequence([
        isolated(r"[\r\n]"), isolated(r"\s?\p{L}+"), isolated(r"\s?\p{P}+"), isolated("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True), level()]),
    "falcon": sequence([pre_tokenizers.Punctuation("contiguous"), level(True), pre_tokenizers.Digits(individual_digits=False),
                        isolated("[0-9][0-9][0-9]")]),
    "bloom": sequence([isolated(r" ?[^(\s|[.,!?…。，、।۔،])]+"), level()]),
    "falcon3": sequence([isolated(r"\p{N}"), level(True)]),
    "exaone4": sequence([isolated(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL), level()]),
    "possessive": sequence([isolated(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"),
                            level()]),
    "previous": sequence([isolated(r"[\s.]", behavior="merged_with_previous"), level()]),
    "next": sequence([isolated(r"[\s.]", behavior="merged_with_next"), level()]),
    "contiguous": sequence([isolated(r"[\s.]", behavior="contiguous"), level()]),
    "inverted": sequence([isolated(r"\p{L}+", behavior="merged_with_next", invert=True), level()]),
    "literal": sequence([pre_tokenizers.Split(" ", "merged_with_previous"), level(True)]),
    "words": sequence([pre_tokenizers.Whitespace(), level()]),
    "words_split": sequence([pre_tokenizers.WhitespaceSplit(), level(False, True)]),
    "delimiter": sequence([pre_tokenizers.CharDelimiterSplit("e"), level()]),
    "whole": level(),
}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_byte_level(name, tmp_path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = BYTE_LEVEL[name]
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(["<s>", "</s>"])
    t.add_tokens([AddedToken("[MASK]", lstrip=True), AddedToken("#tag", normalized=True)])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))) if name == "roberta" else \
        processors.ByteLevel()
    compare(tmp_path, t)
