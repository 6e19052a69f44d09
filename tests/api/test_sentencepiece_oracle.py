"""Models that the package `sentencepiece` trains, as tokenizer.json: ids equal to those of its encoder."""
import json
import random
import struct

import pytest
from test_tokenizer_oracle import BYTE_TOKENS, CORPUS, ROUNDS, SEED, Ours, compare, decoders, llama_decoder, models, normalizers, pre_tokenizers, texts, \
    tokenizers

sentencepiece = pytest.importorskip("sentencepiece", reason="the package `sentencepiece` is the reference")
SENTENCES = [line.replace("\n", " ") for line in CORPUS] + ["the cat sat on the mat", "there and then, hello again", "naïve cafés in the world"]


def fields(data):
    """The members of a protobuf message: numbers of fields with their values or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
        yield key >> 3, data[at:at + size]
        at += size


def train(folder, **more):
    """(the package's encoder, [(piece, score, type)], the table of replacements)"""
    (folder / "corpus").write_text("\n".join(SENTENCES * 20))
    sentencepiece.SentencePieceTrainer.train(input=str(folder / "corpus"), model_prefix=str(folder / "m"), hard_vocab_limit=False, minloglevel=2,
                                             num_threads=1, **more)
    model = list(fields((folder / "m.model").read_bytes()))
    pieces = [dict(fields(piece)) for number, piece in model if number == 1]
    table = next((value for number, spec in model if number == 3 for name, value in fields(spec) if name == 2), b"")
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / "m.model")), \
        [(p[1].decode(), struct.unpack("<f", p[2])[0], p.get(3, 1)) for p in pieces], table


def merges(pieces):
    """All pairs of pieces that make a piece, by its score."""
    ids = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    for piece, _, _ in sorted((p for p in pieces if p[2] == 1), key=lambda p: -p[1]):
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in ids and piece[i:] in ids]
        yield from sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))


def written(pieces, kind, stages):
    """A tokenizer.json as converters write it."""
    vocab = {piece: i for i, (piece, _, _) in enumerate(pieces)}
    fallback = "<0x00>" in vocab
    if kind == "bpe":
        model = models.BPE(vocab, list(merges(pieces)), unk_token="<unk>", fuse_unk=True, byte_fallback=fallback)
    else:
        model = models.Unigram([(piece, score) for piece, score, _ in pieces], unk_id=0, byte_fallback=fallback)
    t = tokenizers.Tokenizer(model)
    t.normalizer = normalizers.Sequence(stages)
    t.decoder = llama_decoder()
    return t


PREPEND, MARKS = normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")
ONE_BLANK = [normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
MODELS = {
    "llama": ("bpe", dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False), [PREPEND, MARKS]),
    "bpe_unknown": ("bpe", dict(normalization_rule_name="identity", remove_extra_whitespaces=False), [PREPEND, MARKS]),
    "gemma": ("bpe", dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
                          split_digits=True), [MARKS]),
    "bpe_nfkc": ("bpe", dict(byte_fallback=True, normalization_rule_name="nmt_nfkc"), [..., *ONE_BLANK, PREPEND, MARKS]),
    "unigram": ("unigram", dict(normalization_rule_name="identity", remove_extra_whitespaces=False), [PREPEND, MARKS]),
    "unigram_bytes": ("unigram", dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False), [PREPEND, MARKS]),
    "xlm_roberta": ("unigram", dict(normalization_rule_name="nmt_nfkc"), [..., *ONE_BLANK, PREPEND, MARKS]),
    "folded": ("unigram", dict(normalization_rule_name="nmt_nfkc_cf"), [..., *ONE_BLANK, PREPEND, MARKS]),
}


@pytest.mark.parametrize("name", MODELS)
def test_encoder(name, tmp_path):
    kind, options, stages = MODELS[name]
    theirs, pieces, table = train(tmp_path, model_type=kind, vocab_size=600 if "byte_fallback" in options else 300, **options)
    assert ("<0x00>" in [piece for piece, _, _ in pieces]) == ("byte_fallback" in options)
    t = written(pieces, kind, [normalizers.Precompiled(table) if s is ... else s for s in stages])
    ours = Ours(tmp_path, t)
    assert ours.says == "ok"
    compared = 0
    for text in texts(random.Random(SEED)):
        text = text.replace("<", "(")  # <s> and <0x41> are characters there
        # The package `tokenizers`, which ours follows, applies a table to clusters of characters.
        if ... in stages and t.normalizer.normalize_str(text) != theirs.normalize(text):
            continue
        compared += 1
        assert ours.encode(text) == theirs.encode(text), (SEED, text, theirs.encode(text, out_type=str))
    assert compared > ROUNDS / 2
    ours.close()


def test_charsmap(tmp_path):
    """A model with its own table of replacements (nmt_nfkc), as xlm_roberta has."""
    _, pieces, table = train(tmp_path, vocab_size=200)
    t = written(pieces, "unigram", [normalizers.Precompiled(table), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    compare(tmp_path, t)
