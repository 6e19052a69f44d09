"""Encoders and classifiers: vectors of bert, xlm_roberta and embeddinggemma, scores of pairs."""

import json
import math

import pytest

from conftest import FEW_PAGES, TOP, Server, all_returned, settled

DATA = TOP / "tests/golden/data"
EMBEDDERS = ["bert", "xlm_roberta", "embeddinggemma"]
RERANKERS = ["bert_reranker", "xlm_roberta_reranker", "qwen3_reranker"]
IDS = 48
CLS, SEP = 1, 2


def tokens(*pieces):
    """A template: names of special tokens, and the texts A and B, each with a type."""
    return [{"Sequence": {"id": name, "type_id": kind}} if name in "AB" else {"SpecialToken": {"id": name, "type_id": kind}}
            for name, kind in pieces]


PLAIN = (tokens(("A", 0)), tokens(("A", 0), ("B", 1)))
BERT = (tokens(("[CLS]", 0), ("A", 0), ("[SEP]", 0)),
        tokens(("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", 1), ("[SEP]", 1)))


def word_tokenizer(template):
    """Each word "w5" is the token 5."""
    names = ["[UNK]", "[CLS]", "[SEP]"]
    special = [{"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, name in enumerate(names)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
            "post_processor": {"type": "TemplateProcessing", "single": template[0], "pair": template[1],
                               "special_tokens": {n: {"id": n, "ids": [i], "tokens": [n]} for i, n in enumerate(names)}},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                      "max_input_chars_per_word": 100,
                      "vocab": {name: i for i, name in enumerate(names + [f"w{i}" for i in range(3, IDS)])}}}


def with_tokenizer(folder, name, template):
    model = folder / name
    model.mkdir()
    for path in (DATA / name).iterdir():
        (model / path.name).symlink_to(path)
    (model / "tokenizer.json").write_text(json.dumps(word_tokenizer(template)))
    return str(model)


class Encoders(Server):
    def arguments(self):
        return [*self.models, FEW_PAGES]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder, typed = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("typed")
    Encoders.models = [with_tokenizer(folder, name, BERT if name == "bert" else PLAIN) for name in EMBEDDERS + RERANKERS]
    (typed / "other").mkdir()
    other = typed / "pairs_of_bert"
    with_tokenizer(typed / "other", "bert_reranker", BERT)
    (typed / "other" / "bert_reranker").rename(other)
    Encoders.models.append(str(other))
    server = Encoders()
    for name in EMBEDDERS:
        embed(server, name, [[5]])
    for name in RERANKERS + ["pairs_of_bert"]:
        scores(server, name, "w5", "w6")  # each is loaded now
    before = settled(server)
    yield server
    all_returned(server, before)
    assert server.stop() == 0


def embed(server, model, inputs, **fields):
    reply = server.post("/v1/embeddings", model=model, input=inputs, **fields)
    assert reply.status_code == 200, reply.text
    return [d["embedding"] for d in reply.json()["data"]]


def scores(server, model, query, documents, **fields):
    reply = server.post("/v1/score", model=model, text_1=query, text_2=documents, **fields)
    assert reply.status_code == 200, reply.text
    return [d["score"] for d in reply.json()["data"]]


def words(ids):
    return " ".join(f"w{i}" for i in ids)


def golden(name):
    return json.loads((DATA / name / "golden.json").read_text())


@pytest.mark.smoke
@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors_are_the_golden_ones(served, name):
    part = golden(name)["embedding"]
    for own, expected in zip(embed(served, name, [v["ids"] for v in part]), part):
        assert len(own) == len(expected["vector"])
        assert max(abs(a - b) for a, b in zip(own, expected["vector"])) < 1e-4


@pytest.mark.parametrize("name", EMBEDDERS)
def test_alone_as_in_a_batch(served, name):
    texts = [[3 + (7 * i + 5 * k) % 45 for k in range(1 + 11 * i % 36)] for i in range(80)]
    together = embed(served, name, texts, encoding_format="base64")
    for i in range(0, 80, 9):
        assert embed(served, name, [texts[i]], encoding_format="base64") == [together[i]]


@pytest.mark.smoke
@pytest.mark.parametrize("name", RERANKERS)
def test_scores_are_the_golden_ones(served, name):
    """The tokenizer puts nothing around texts, so that both together are the golden's ids."""
    for one in golden(name)["rerank"]:
        ids, types = one["ids"], one.get("token_types", [0] * len(one["ids"]))
        cut = types.index(1) if 1 in types else max(1, len(ids) // 2)
        assert scores(served, name, words(ids[:cut]), words(ids[cut:])) == [pytest.approx(one["score"], abs=1e-5)]


@pytest.mark.parametrize("name", RERANKERS)
def test_documents_in_order(served, name):
    documents = [words(range(3 + i, 3 + i + 5 * (i % 4))) for i in range(20)]
    reply = served.post("/v1/rerank", model=name, query="w9 w8", documents=documents)
    assert reply.status_code == 200, reply.text
    results = reply.json()["results"]
    found = [r["relevance_score"] for r in results]
    assert found == sorted(found, reverse=True) and len(set(found)) > 10 and all(0 < s < 1 for s in found)
    for r in results[::6]:
        assert scores(served, name, "w9 w8", documents[r["index"]]) == [r["relevance_score"]]


def test_tokens_around_a_text(served):
    ids = [CLS, 7, 9, 11, SEP]
    assert embed(served, "bert", ["w7 w9 w11"]) == embed(served, "bert", [ids])
    assert embed(served, "bert", ["w7 w9 w11"], add_special_tokens=False) == embed(served, "bert", [[7, 9, 11]])


def test_tokens_around_a_pair(served):
    """The sum of its prompts tells that a pair has three tokens around it; types change the score."""
    reply = served.post("/v1/score", model="pairs_of_bert", text_1="w5 w6", text_2="w7")
    assert reply.json()["usage"]["prompt_tokens"] == 6
    flat = scores(served, "bert_reranker", words([5, 6]), words([7]))
    assert reply.json()["data"][0]["score"] != flat[0]
    assert scores(served, "bert_reranker", "w5", "w6 w7") != flat


def test_a_truncated_text_keeps_its_ends(served):
    long = words([5 + i % 40 for i in range(100)])
    reply = served.post("/v1/embeddings", model="bert", input=long)
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded", reply.text
    first, last = [5 + i for i in range(4)], [5 + i % 40 for i in range(96, 100)]
    assert embed(served, "bert", [long], truncate_prompt_tokens=6) == embed(served, "bert", [[CLS, *first, SEP]])
    assert embed(served, "bert", [long], truncate_prompt_tokens=6, truncation_side="left") == \
        embed(served, "bert", [[CLS, *last, SEP]])
    assert embed(served, "bert", [[5, 6, 7]], truncate_prompt_tokens=2) == embed(served, "bert", [[5, 6]])
    whole = served.post("/v1/embeddings", model="bert", input=long, truncate_prompt_tokens=-1)
    assert whole.json()["usage"]["prompt_tokens"] == 40


def test_a_long_document(served):
    query, long = "w5 w6", words([5 + i % 40 for i in range(100)])
    reply = served.post("/v1/rerank", model="pairs_of_bert", query=query, documents=["w7", long])
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded", reply.text
    assert reply.json()["error"]["param"] == "documents"
    cut = scores(served, "pairs_of_bert", query, long, truncate_prompt_tokens=12)
    assert cut == scores(served, "pairs_of_bert", query, words(range(5, 12)))


def refused(reply, *said):
    assert reply.status_code == 400, reply.text
    assert all(word in reply.json()["error"]["message"] for word in said), reply.text


@pytest.mark.parametrize("name", EMBEDDERS + RERANKERS)
def test_nothing_is_generated(served, name):
    what = "scores, not text" if name in RERANKERS else "embeddings, not text"
    refused(served.post("/v1/completions", model=name, prompt=[5]), name, what)
    refused(served.post("/v1/chat/completions", model=name, messages=[{"role": "user", "content": "w5"}]), what)


def test_what_each_is_for(served):
    for name in RERANKERS:
        refused(served.post("/v1/embeddings", model=name, input=[5]), "scores, not embeddings")
    for name in EMBEDDERS:
        refused(served.post("/v1/rerank", model=name, query="w5", documents=["w6"]), "embeddings, not scores")
    listed = {m["id"]: m for m in served.http.get("/v1/models").json()["data"]}
    assert [(listed[m]["use"], listed[m]["embeddings"], listed[m]["rerank"], listed[m]["pooling"])
            for m in ("bert", "xlm_roberta", "embeddinggemma", "bert_reranker", "qwen3_reranker")] == [
                ("embed", True, False, "mean"), ("embed", True, False, "cls"), ("embed", True, False, "mean"),
                ("rerank", False, True, None), ("rerank", False, True, None)]


def test_an_encoder_without_modules(tmp_path):
    """The mean of all rows, at length 1."""
    model = tmp_path / "plain"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).symlink_to(DATA / "bert" / name)

    class Plain(Server):
        def arguments(self):
            return [str(model), FEW_PAGES]

    server = Plain()
    try:
        part = golden("bert")["embedding"]  # its pooling is the mean, too
        for own, expected in zip(embed(server, "plain", [v["ids"] for v in part]), part):
            assert max(abs(a - b) for a, b in zip(own, expected["vector"])) < 1e-4
            assert math.isclose(sum(x * x for x in own), 1, abs_tol=1e-5)
        assert server.http.get("/model_info").json()["pooling"] == "mean"
    finally:
        assert server.stop() == 0
