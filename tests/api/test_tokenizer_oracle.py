"""Generated tokenizers of every kind: ids and text equal to those of the PyPI package `tokenizers`."""
import json
import os
import pathlib
import random
import struct
import subprocess
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the package `tokenizers` is the reference")
AddedToken, Regex, Tokenizer = tokenizers.AddedToken, tokenizers.Regex, tokenizers.Tokenizer
decoders, models, normalizers = tokenizers.decoders, tokenizers.models, tokenizers.normalizers
pre_tokenizers, processors, trainers = tokenizers.pre_tokenizers, tokenizers.processors, tokenizers.trainers

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
        drawn = (chr(rng.choice([rng.randrange(0x20, 0x300), rng.randrange(0x300, 0xD800), rng.randrange(0xE000, 0x20000)]))
                 for _ in range(rng.randint(1, 12)))
        # Unicode 17 makes numbers of unassigned characters. WORDS has new characters of version 16.
        yield "".join(c for c in drawn if unicodedata.category(c) != "Cn")
    # From 2 KiB on, the tokens of words that come again are kept.
    for words in (WORDS, ["then", "the", "n"] + WORDS[-9:]):
        yield "".join(rng.choice(words) + rng.choice(BLANKS) for _ in range(1000))


class Ours:
    def __init__(self, folder, reference, config=None):
        if isinstance(reference, pathlib.Path):
            folder = reference
        else:
            (folder / "tokenizer.json").write_text(reference if isinstance(reference, str) else reference.to_str())
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

    def encode_any(self, text):
        """The ids, or why there are none."""
        return self.ask("e", text.encode().hex())

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
        # The reference replaces every byte of a run that is not UTF-8; a stream replaces the broken parts.
        assert got == ref or "\ufffd" in ref, (SEED, ids, got, ref)
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
NOT_HAN = r"\p{M}&&[^\p{Han}]]"
KIMI = r"[\p{Han}]+|" + "|".join(regex.replace(r"\p{M}]", NOT_HAN) + ENDINGS for regex in (CASED, UPPER)) + \
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL
DEEPSEEK_V3 = [
    isolated(r"\p{N}{1,3}"), isolated("[一-龥\u3040-ゟ゠-ヿ]+"),
    isolated(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL)]
DEEPSEEK_CODER = [isolated(r"[\r\n]"), isolated(r"\s?\p{L}+"), isolated(r"\s?\p{P}+"), isolated("[一-龥ࠀ-一가-퟿]+"),
                  pre_tokenizers.Digits(individual_digits=True)]
DIGITS = [pre_tokenizers.Digits(individual_digits=True)]
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
    "deepseek_v3": sequence([*DEEPSEEK_V3, level()]),
    "deepseek_coder": sequence([*DEEPSEEK_CODER, level()]),
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
    "kimi": sequence([isolated(KIMI), level()]),
    "scripts": sequence([isolated(r"[\p{Han}\p{Hiragana}]+|[^\p{Katakana}\s&&\p{L}&&[^a-f]]+|\p{^Hangul}&&"), level()]),
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


def gguf_file(path, **keys):
    """A GGUF file with these keys of its tokenizer, texts or lists, and no tensors."""
    def text(s):
        s = s.encode()
        return struct.pack("<Q", len(s)) + s

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", 8) + text(v)
        kind = {str: 8, float: 6, int: 5}[type(v[0])]
        return struct.pack("<IIQ", 9, kind, len(v)) + b"".join(text(i) if kind == 8 else struct.pack("<f" if kind == 6 else "<i", i) for i in v)

    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1 + len(keys)) + text("general.architecture") + value("llama")
    for key, v in keys.items():
        data += text("tokenizer.ggml." + key) + value(v)
    path.write_bytes(data + bytes(-len(data) % 32))
    return path


def test_the_unknown_token_of_a_gguf_file_is_a_token_in_texts(tmp_path):
    ours = Ours(tmp_path, gguf_file(tmp_path / "m.gguf", model="llama", tokens=["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a"],
                                    token_type=[2, 3, 3, 1, 1, 1, 1], scores=[0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0]))
    assert ours.says == "ok"
    assert ours.encode("a<unk>b") == [6, 0, 3, 5] and ours.encode("a€") == [6, 0]
    ours.close()


LLAMA3 = [isolated(QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1))]
O200K = [isolated(f"{CASED}{ENDINGS}|{UPPER}{ENDINGS}" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BLOOM = [isolated(r" ?[^(\s|.,!?…。，、।۔،)]+")]
BAILING = [isolated(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")]
CASE_PAIRS = ("[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴ"
              "ᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+")
DEEPSEEK_LLM = [isolated(r) for r in [r"[\r\n]", r"\s?" + CASE_PAIRS, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+", r"\p{N}+"]]
SPARK = [DEEPSEEK_V3[0], DEEPSEEK_V3[1], isolated(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
                                                  r"|[\r\n]|\s+(?!\S)|\s+"), isolated(r"\p{N}")]
YOUTU = [isolated("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\u3040-ゟ゠-ヿ]+"),
         isolated(f"{CASED}{ENDINGS}|{UPPER}{ENDINGS}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)]
SPACES = "".join(rf"\s{{{n}}}(?!\S)|" for n in ["512", "256", "128", "64", "32", "16", "8", "4", "1,2"]) + r"\s{1}"
ASIAN = ("[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f"
         "\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+")
EXAONE_MOE = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
              r"|\s*[\r\n]|\s+(?!\S)|\s+")
NUMBERS = ["1234567 12 123 1234", "a1234567b _1234_ 1234.5678", "12½345 1234½ ½1234567 ²²²²", "१२३४५ ٣٤٥٦7", "1" * 700, "x" * 3000,
           "in the middle of a b c d", "a b  c\nd é à l'été", "ก ข ค 가 나 다라", "e\u0301 e\u0301\u0301f g\u0301 "]
GGUF_PRE = {
    "afmoe": [isolated(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"), isolated(ASIAN), DEEPSEEK_V3[2]], "exaone-moe": [isolated(EXAONE_MOE)],
    "tiny_aya": [isolated(r"\d{1,3}(?=(?:\d{3})*\b)"), *O200K], "superbpe": [isolated(r"\p{N}+"), isolated(r"(?=(\d{3})+(?!\d))")],
    "jais-2": [isolated(QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1).replace(r"\s+(?!\S)|\s+", SPACES))],
    "qwen2 hunyuan stablelm2 grok-2": [isolated(QWEN2)],
    "qwen35": [isolated(QWEN2.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|").replace(r" ?[^\s\p{L}", r" ?[^\s\p{L}\p{M}"))],
    "laguna": [isolated(r"[^\n]+|[\n]+"), isolated(QWEN2)], "bailingmoe llada-moe": BAILING,
    "seed-coder": [isolated(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|" + TAIL)],
    "llama-bpe falcon3 falcon-h1 lfm2 pixtral glm4 dbrx smaug-bpe chatglm-bpe": LLAMA3,
    "minicpm5": [isolated(r"\p{N}{1,3}"), isolated(QWEN2.replace(r"\p{N}|", r"\p{N}+|", 1))],
    "gpt-4o minimax-m2 llama4 granite-embed-multi-97m": O200K,
    "tekken": [isolated(f"{CASED}|{UPPER}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + TAIL)],
    "youtu": YOUTU, "kimi-k2": [isolated(KIMI)], "deepseek-v3 hunyuan-dense joyai-llm hy_v4": DEEPSEEK_V3, "spark2_5": SPARK,
    "deepseek-llm": DEEPSEEK_LLM, "deepseek-coder": DEEPSEEK_CODER,
    "falcon": [isolated(r"[\p{P}$+<=>^~|`]+"), isolated(GPT2), isolated("[0-9][0-9][0-9]")], "bloom": BLOOM, "viking": BLOOM + DIGITS,
    "smollm refact starcoder exaone command-r codeshell": DIGITS, "gpt-2 exaone4 olmo trillion granite-docling": [],
}
WHOLE_FIRST = {"llama-bpe", "falcon3", "falcon-h1", "lfm2", "pixtral", "glm4", "minicpm5", "granite-embed-multi-97m", "tekken", "youtu"}


@pytest.mark.parametrize("pre, splits", [(pre, splits) for names, splits in GGUF_PRE.items() for pre in names.split()])
def test_pre_of_gguf_files(pre, splits, tmp_path):
    """Ids of a GGUF vocabulary: those of the library with the splits that llama.cpp has for the name."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = level(True), decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    file = json.loads(t.to_str())
    file["model"]["ignore_merges"] = pre in WHOLE_FIRST
    t = Tokenizer.from_str(json.dumps(file))
    t.pre_tokenizer = sequence([*splits, level(not splits or splits is DIGITS)])
    t.normalizer = normalizers.NFC() if pre in ("qwen2", "qwen35") else None
    ids = t.get_vocab()
    ours = Ours(tmp_path, gguf_file(tmp_path / "m.gguf", model="gpt2", pre=pre, tokens=sorted(ids, key=ids.get),
                                    merges=[" ".join(m) for m in file["model"]["merges"]]))
    assert ours.says == "ok"
    for text in [*texts(random.Random(SEED)), *NUMBERS]:
        want = t.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == want, (SEED, text)
    ours.close()


def test_gemma4_of_gguf_files(tmp_path):
    """Merges over text with U+2581 for a blank, split at nothing, and bytes as tokens."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, special_tokens=["<pad>", "<unk>", *(f"<0x{i:02X}>" for i in range(256))],
                                                      show_progress=False))
    file = json.loads(t.to_str())
    file["added_tokens"] = file["added_tokens"][:2]
    t = Tokenizer.from_str(json.dumps(file))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    ids = t.get_vocab()
    ours = Ours(tmp_path, gguf_file(tmp_path / "m.gguf", model="gemma4", tokens=sorted(ids, key=ids.get), token_type=[3, 3] + [6] * 256 + [1] * (len(ids) - 258),
                                    merges=[" ".join(m) for m in file["model"]["merges"]]))
    assert ours.says == "ok"
    for text in texts(random.Random(SEED)):
        want = t.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == want, (SEED, text)
        assert ours.decode(want, False) == t.decode(want, skip_special_tokens=False), (SEED, text)
    ours.close()


def bytes_alone():
    """A tokenizer with one token per byte: its ids are the normalised text."""
    t = Tokenizer(models.BPE({letter: i for i, letter in enumerate(byte_letters())}, []))
    t.pre_tokenizer, t.decoder = level(), decoders.ByteLevel()
    return t


MEMBERS = {
    "level": lambda rng: level(rng.random() < 0.5, rng.random() < 0.3),
    "digits": lambda rng: pre_tokenizers.Digits(individual_digits=rng.random() < 0.5),
    "punctuation": lambda rng: pre_tokenizers.Punctuation(rng.choice(BEHAVIORS)),
    "split": lambda rng: pre_tokenizers.Split(Regex(rng.choice(REGEXES)), rng.choice(BEHAVIORS), invert=rng.random() < 0.3),
    "literal": lambda rng: pre_tokenizers.Split(rng.choice(" ea."), rng.choice(BEHAVIORS)),
    "words": lambda rng: rng.choice([pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit, pre_tokenizers.BertPreTokenizer])(),
    "delimiter": lambda rng: pre_tokenizers.CharDelimiterSplit(rng.choice("e 1")),
    "metaspace": lambda rng: pre_tokenizers.Metaspace("▁", rng.choice(["first", "always", "never"]), split=rng.random() < 0.5),
}
BEHAVIORS = ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]
REGEXES = [QWEN2, KIMI, r"\p{N}{1,3}", r"[\r\n]", r"\s?\p{L}+", "[一-龥\u3040-ゟ゠-ヿ]+", "[0-9][0-9][0-9]", r"\s+(?!\S)|\s+", r"[^\s\p{P}]+"]


@pytest.mark.parametrize("part", range(4))
def test_members_in_any_order(part, tmp_path):
    """One ByteLevel among other members: ids are the reference's, or the member is refused by its name."""
    rng = random.Random(SEED + part)
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = level(True), decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    refused = 0
    for _ in range(8 if ROUNDS < 1000 else 160):
        names = [rng.choice([name for name in MEMBERS if name != "level"]) for _ in range(rng.randint(1, 4))]
        names.insert(rng.randrange(len(names) + 1), "level")
        t.pre_tokenizer = sequence([MEMBERS[name](rng) for name in names])
        ours = Ours(tmp_path, t)
        if ours.says != "ok":
            refused += 1
            assert "metaspace" in names[names.index("level"):] and 'pre_tokenizer "Metaspace": it cannot' in ours.says, (SEED, ours.says)
        for text in [] if ours.says != "ok" else texts(random.Random(SEED)):
            want = t.encode(text, add_special_tokens=False).ids
            assert ours.encode(text) == want, (SEED, t.pre_tokenizer, text)
        ours.close()
    assert refused < 7 or ROUNDS > 1000


def test_what_follows_an_added_blank_starts_the_text_too(tmp_path):
    t = bytes_alone()
    t.pre_tokenizer = sequence([pre_tokenizers.Metaspace("▁", "always", split=False), pre_tokenizers.Digits(individual_digits=True),
                                pre_tokenizers.Metaspace("▁", "first"), level()])
    ours = Ours(tmp_path, t)
    for text in ["11", "a1", " 1", "1 1", "é1"]:
        assert ours.encode(text) == t.encode(text, add_special_tokens=False).ids, text
    ours.close()


# ---- normalizers ----

sequence_of = normalizers.Sequence
NORMALIZERS = {
    "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(), "nmt": normalizers.Nmt(),
    "lower": normalizers.Lowercase(), "accents": normalizers.StripAccents(), "strip": normalizers.Strip(),
    "bert": normalizers.BertNormalizer(),
    "albert": sequence_of([normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
    "t5": sequence_of([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
    "back": sequence_of([normalizers.NFKD(), normalizers.Lowercase(), normalizers.NFC()]),
}
# Without most ideographs, Hangul syllables and hieroglyphs, which are alike.
CODES = [*range(0x4E10), *range(0x9FF0, 0xAC40), *range(0xD790, 0xD800), *range(0xE000, 0xE010), *range(0xF8F0, 0x12010), *range(0x13420, 0x13460),
         *range(0x16000, 0x17010), *range(0x18CF0, 0x20010), *range(0x2F7F0, 0x2FA20), *range(0xE0000, 0xE0200)]
MARKS = "".join(map(chr, [*range(0x300, 0x360), 0x591, 0x5B0, 0x5C1, 0x64B, 0x670, 0x93C, 0x94D, 0x9BE, 0xDCF, 0xE38, 0xF71, 0xF72, 0x1161, 0x11A8,
                          0x1DFB, 0x3099, 0x309A, 0xFF9E, 0xFF9F, 0x1D165, 0x1E8D0, 0x898, 0x11930, 0xFFC2]))
BASES = "".join(map(chr, [0x41, 0x73, 0xA8, 0xC5, 0xE7, 0x17F, 0x1E9B, 0x1FC1, 0x212B, 0x2126, 0x226, 0x915, 0x958, 0x9C7, 0x1100, 0xAC00, 0xFB01, 0xFB2C,
                          0xFDFA, 0xFF76, 0x304B, 0x3300, 0x33FF, 0x2460, 0x1D400, 0x1D15E, 0x2F81A, 0x32FF, 0x11935, 0x11938, 0x1E030]))


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizer(name, tmp_path):
    """Every character by itself, then runs of characters that order, compose and decompose."""
    t = bytes_alone()
    t.normalizer = NORMALIZERS[name]
    ours = Ours(tmp_path, t)
    assert ours.says == "ok"
    rng = random.Random(SEED)
    some = ["|".join(map(chr, CODES[i:i + 1000])) for i in range(0, len(CODES), 1000)]
    some += [rng.choice(some).replace("|", "") for _ in range(20)]
    some += ["".join(rng.choice(MARKS if rng.random() < 0.6 else BASES) for _ in range(rng.choice([3, 12, 300]))) for _ in range(ROUNDS)]
    for text in [*some, *texts(rng)]:
        assert bytes(ours.encode(text)) == t.normalizer.normalize_str(text).encode(), (SEED, text)
    ours.close()


# ---- SentencePiece's BPE ----

BYTE_TOKENS = [f"<0x{i:02X}>" for i in range(256)]


@pytest.mark.parametrize("missing", [range(32), range(0xC0, 0xF8), b"e "], ids=["control", "lead", "letters"])
def test_bytes_without_a_token(missing, tmp_path):
    """They are left out, and their neighbours merge."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = level(regex=True), decoders.ByteLevel()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    file = json.loads(t.to_str())
    letters = byte_letters()
    gone = {letters[b] for b in missing}
    vocab = {token: i for token, i in file["model"]["vocab"].items() if not gone & set(token)}
    file["model"]["vocab"] = {token: i for i, token in enumerate(vocab)}
    file["model"]["merges"] = [m for m in file["model"]["merges"] if not gone & set("".join(m))]
    compare(tmp_path, Tokenizer.from_str(json.dumps(file)))


PAIRS = {
    "bert": "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", "roberta": "[CLS] $A [SEP] [SEP] $B [SEP]", "typed_later": "$A:0 [SEP]:0 [SEP]:1 $B:1",
    "plain": "$A:0 $B:1", "flat": "$A [CLS] $B",
}


@pytest.mark.parametrize("name", [*PAIRS, "BertProcessing", "RobertaProcessing", "none"])
def test_pairs_of_texts(name, tmp_path):
    """Ids and token types of two texts in the post-processor's template."""
    special = ["[UNK]", "[CLS]", "[SEP]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False))
    if name in PAIRS:
        single = PAIRS[name].split(" $B")[0] if name != "typed_later" else "$A:0 [SEP]:0"
        t.post_processor = processors.TemplateProcessing(single, PAIRS[name], [("[CLS]", 1), ("[SEP]", 2)])
    elif name == "BertProcessing":
        t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    elif name == "RobertaProcessing":
        t.post_processor = processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1))
    ours, rng = Ours(tmp_path, t), random.Random(SEED)
    assert ours.says == "ok"
    for _ in range(40):
        a, b = (" ".join(rng.choices(WORDS[:40], k=rng.randint(1, 6))) for _ in range(2))
        want = t.encode(a, b)
        said, types = ours.ask("p", f"{a.encode().hex()} {b.encode().hex()}").split("|")
        assert [int(i) for i in said.split()] == want.ids, (SEED, a, b)
        if name != "none":
            assert [int(i) for i in types.split()] == want.type_ids, (SEED, a, b)
    ours.close()


@pytest.mark.parametrize("pair", ["$B:0 $A:1", "$A:1 $B:0", "[CLS]:1 $A:0 $B:1", "$A:0 [SEP]:1 [CLS]:0 $B:1", "$A:0 $B:1 [SEP]:0"])
def test_other_pairs_are_unknown(pair, tmp_path):
    t = Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}, unk_token="[UNK]"))
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing("$A", pair, [("[CLS]", 1), ("[SEP]", 2)])
    ours = Ours(tmp_path, t)
    assert ours.says == "ok" and ours.ask("p", "61 61") == "unknown"
    ours.close()


def byte_letters():
    """The letter of each byte in a byte-level vocabulary."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in own else next(others)) for b in range(256)]


def char_bpe(folder_free=True, normalizer=None, pre=None, decoder=None, fallback=True, fuse=True, unk="<unk>", ignore=False, size=400,
             added=(), template=True):
    t = Tokenizer(models.BPE(unk_token=unk))
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    special = ["<unk>", "<s>", "</s>"] + (BYTE_TOKENS if fallback else [])
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=size + len(special), special_tokens=special, limit_alphabet=60, show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in ("<unk>", "<s>", "</s>")]
    j["model"].update(byte_fallback=fallback, fuse_unk=fuse, ignore_merges=ignore)
    t = Tokenizer.from_str(json.dumps(j))
    t.add_tokens(list(added))
    t.decoder = decoder
    if template:
        t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", t.token_to_id("<s>"))])
    return t


def llama_decoder(strip=True):
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts + [decoders.Strip(" ", 1, 0)] * strip)


PREPEND = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
CHAR_BPE = {
    "llama2": lambda: char_bpe(normalizer=normalizers.Sequence(PREPEND), decoder=llama_decoder()),
    "gemma": lambda: char_bpe(normalizer=normalizers.Replace(" ", "▁"), pre=pre_tokenizers.Split(" ", "merged_with_previous"),
                              decoder=llama_decoder(False), added=["▁▁", "\n\n", AddedToken("<table>", normalized=False)]),
    "mistral": lambda: char_bpe(pre=pre_tokenizers.Metaspace("▁", "first", split=False), decoder=llama_decoder(), ignore=True),
    "metaspace": lambda: char_bpe(pre=pre_tokenizers.Metaspace(), decoder=decoders.Metaspace()),
    "metaspace_never": lambda: char_bpe(pre=pre_tokenizers.Metaspace("▁", "never"), decoder=decoders.Metaspace("▁", "never")),
    "unknown": lambda: char_bpe(normalizer=normalizers.Sequence(PREPEND), decoder=llama_decoder(), fallback=False),
    "unknown_apart": lambda: char_bpe(normalizer=normalizers.Sequence(PREPEND), decoder=llama_decoder(), fallback=False, fuse=False),
    "dropped": lambda: char_bpe(normalizer=normalizers.Sequence(PREPEND), decoder=llama_decoder(), fallback=False, unk=None),
    "no_decoder": lambda: char_bpe(pre=pre_tokenizers.Whitespace(), fallback=False),
    "marks_inside": lambda: char_bpe(normalizer=normalizers.Replace(" ", "▁"), decoder=llama_decoder(False), size=600),
    "nfc": lambda: char_bpe(normalizer=normalizers.Sequence([normalizers.NFC()] + PREPEND), decoder=llama_decoder()),
    "changed": lambda: char_bpe(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents(),
                                                                 normalizers.Strip(), normalizers.Replace(Regex(r"\s{2,}"), " ")] + PREPEND),
                                decoder=llama_decoder(), added=[AddedToken("#tag", single_word=True, normalized=False)]),
}


@pytest.mark.parametrize("name", CHAR_BPE)
def test_char_bpe(name, tmp_path):
    compare(tmp_path, CHAR_BPE[name]())


def test_bytes_of_tokens(tmp_path):
    """Bytes that the grammar and the detokenizer read: spaces for marks, one byte for a byte token."""
    t = CHAR_BPE["llama2"]()
    ours = Ours(tmp_path, t)
    for i in range(t.get_vocab_size()):
        token = t.id_to_token(i)
        want = bytes([int(token[3:5], 16)]) if token in BYTE_TOKENS else token.replace("▁", " ").encode()
        assert bytes.fromhex(ours.ask("b", i)) == want, token
    ours.close()


# ---- WordPiece ----

def wordpiece(normalizer=None, pre=None, decoder=None, **more):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", **more))
    t.normalizer = normalizer or normalizers.BertNormalizer()
    t.pre_tokenizer = pre or pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(CORPUS + ["don't do not hello, world! café 1 2 3 . ?"], trainers.WordPieceTrainer(
        vocab_size=300, special_tokens=special, show_progress=False))
    t.decoder = decoder or decoders.WordPiece()
    t.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1",
                                                     [("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    return t


bert = normalizers.BertNormalizer
WORDPIECE = {
    "uncased": wordpiece,
    "cased": lambda: wordpiece(bert(lowercase=False)),
    "accents_kept": lambda: wordpiece(bert(lowercase=True, strip_accents=False)),
    "accents_only": lambda: wordpiece(bert(lowercase=False, strip_accents=True, clean_text=False, handle_chinese_chars=False)),
    "no_cleanup": lambda: wordpiece(decoder=decoders.WordPiece(cleanup=False)),
    "short_words": lambda: wordpiece(max_input_chars_per_word=4),
    "whitespace": lambda: wordpiece(normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
                                    pre_tokenizers.Whitespace()),
    "punctuation": lambda: wordpiece(normalizers.Lowercase(), sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next")])),
}


@pytest.mark.parametrize("name", WORDPIECE)
def test_wordpiece(name, tmp_path):
    compare(tmp_path, WORDPIECE[name]())


# ---- Unigram ----

def unigram(normalizer=None, pre=None, decoder=None, fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre or pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"] + (BYTE_TOKENS if fallback else [])
    t.train_from_iterator(CORPUS, trainers.UnigramTrainer(vocab_size=220 + len(special), special_tokens=special, unk_token="<unk>",
                                                          show_progress=False))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] not in BYTE_TOKENS]
    j["model"]["byte_fallback"] = fallback
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = decoder or decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>",
                                                     [("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])
    return t


UNIGRAM = {
    "metaspace": unigram,
    "spaces": lambda: unigram(normalizers.Sequence([normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), "▁")]),
                              sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])),
    "whole": lambda: unigram(pre=pre_tokenizers.Metaspace("▁", "first", split=False)),
    "fallback": lambda: unigram(decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace("▁", "never")]), fallback=True),
}


@pytest.mark.parametrize("name", UNIGRAM)
def test_unigram(name, tmp_path):
    compare(tmp_path, UNIGRAM[name]())


# ---- files that are not usable ----

def kinds():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = BYTE_LEVEL["deepseek_v3"], decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return {"bytes": t, "chars": CHAR_BPE["llama2"](), "wordpiece": wordpiece(), "unigram": unigram()}


def spoil(rng, value):
    """One value of a JSON tree becomes another one."""
    strange = [None, True, -1, 0, 1.5, 2**31, 1e308, "", "x", "\u2581" * 3, [], {}, [[]], [["a"]], {"type": "Sequence"}]
    while isinstance(value, (dict, list)) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        inner = value[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.2:
            value[key] = rng.choice(strange)
            return
        value = inner


@pytest.mark.parametrize("kind", ["bytes", "chars", "wordpiece", "unigram"])
def test_a_spoilt_file_is_refused_or_works(kind, tmp_path):
    text = kinds()[kind].to_str()
    rng = random.Random(SEED)
    for n in range(ROUNDS // 8):
        if n % 4 == 0:
            spoilt = text[:rng.randrange(len(text))]
        else:
            tree = json.loads(text)
            spoil(rng, tree)
            spoilt = json.dumps(tree)
        ours = Ours(tmp_path, spoilt)
        assert ours.says == "ok" or ours.says.startswith("tokenizer.json: "), (SEED, n, ours.says)
        if ours.says == "ok":
            for each in FIXED:
                ours.encode_any(each)
        ours.close()
        assert ours.process.returncode == (ours.says != "ok"), (SEED, n, ours.says)
