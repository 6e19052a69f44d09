"""Vectors and scores: /v1/embeddings, /v1/rerank and /v1/score, with an embedding model, a reranker, and a
generator with and without --embeddings."""

import base64
import concurrent.futures
import json
import math
import random
import shutil
import struct
import time

import pytest

from conftest import ANSWER_S, FEW_PAGES, MODEL, TOP, Open, Server, all_returned, openai, settled, until
from hostile import draws
import gguf_twin

EMBEDDING = TOP / "tests/golden/data/qwen3_embedding"
VECTORS = json.loads((EMBEDDING / "golden.json").read_text())["embedding"]
ASK = "/v1/embeddings"
HEAD = ('<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct '
        'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n')
TAIL = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
TASK = "Given a web search query, retrieve relevant passages that answer the query"
DOCUMENTS = ["Paris is the capital of France.", "Bread is baked in an oven.", "", "The moon is far. " * 20]


class Vectors(Server):
    """The embedding model, a generator, and the generator under a name that makes it a reranker."""

    def arguments(self):
        return [str(EMBEDDING), str(MODEL), str(self.reranker), FEW_PAGES]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    Vectors.reranker = tmp_path_factory.mktemp("models") / "tiny-reranker"
    Vectors.reranker.symlink_to(MODEL, target_is_directory=True)
    # The golden vectors are of f32; on processors with AMX `auto` is bf16.
    server = Vectors("--max-model-len", 512, "--compute", "f32")
    for fields in ({"model": "qwen3_embedding"}, {"model": "canary"}, {"model": "tiny-reranker"}):
        server.post("/v1/embeddings", input=[5], **fields)  # each is loaded now
    before = settled(server)
    yield server
    all_returned(server, before)
    assert server.stop() == 0


@pytest.fixture(scope="module")
def both():
    """A generator that serves vectors and scores too."""
    server = Server("--embeddings", "--max-model-len", 512)
    yield server
    assert server.stop() == 0


def vectors(reply):
    assert reply.status_code == 200, reply.text
    data = reply.json()["data"]
    assert [d["index"] for d in data] == list(range(len(data)))
    return [d["embedding"] for d in data]


def embed(server, inputs, model="qwen3_embedding", **fields):
    return vectors(server.post(ASK, model=model, input=inputs, **fields))


def refused(reply, param, *words):
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == param, error
    assert all(w in error["message"] for w in words), error
    return error


# ---- embeddings ----


def test_a_gguf_file_of_embeddinggemma_is_the_checkpoint(tmp_path):
    """Without Dense modules, and with a window in every layer: of two, none is the sixth."""
    config, tensors = gguf_twin.read(TOP / "tests/golden/data/embeddinggemma")
    config.update(layer_types=["sliding_attention"] * 2)
    tensors = {f"model.{name}": values for name, values in tensors.items()}
    plain, twin = tmp_path / "plain", tmp_path / "twin.gguf"
    (plain / "1_Pooling").mkdir(parents=True)
    gguf_twin.write_safetensors(plain, config, tensors)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    (plain / "modules.json").write_text(json.dumps([{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds.items()]))
    (plain / "1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    gguf_twin.write(twin, *gguf_twin.twin_of(config, tensors, "embeddinggemma"))

    class Two(Server):
        def arguments(self):
            return [str(plain), str(twin), FEW_PAGES]

    server = Two("--compute", "f32")
    ids = [[35], [15, 20], [18, 24, 24, 13, 26, 18, 15, 17, 7, 3, 9, 11, 30, 31, 2, 5]]
    got = [embed(server, ids, name) for name in ("plain", "twin")]
    assert all(abs(x - y) < 1e-5 for a, b in zip(*got) for x, y in zip(a, b))
    assert server.stop() == 0



def test_the_longest_text_is_the_one_of_its_sentence_transformer(tmp_path):
    model = tmp_path / "short"
    shutil.copytree(EMBEDDING, model)
    (model / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    server = type("Short", (Server,), {"arguments": lambda self: [str(model)]})("--compute", "f32")
    try:
        whole = embed(server, list(range(5, 25)), model="short")
        assert [m["max_model_len"] for m in server.http.get("/v1/models").json()["data"]] == [20]
        refused(server.post(ASK, model="short", input=list(range(5, 26))), "input", "20")
        assert embed(server, list(range(5, 26)), model="short", truncate_prompt_tokens=-1,
                     truncation_side="right") == whole
    finally:
        assert server.stop() == 0


@pytest.mark.smoke
def test_vectors_are_the_golden_ones(served):
    found = embed(served, [v["ids"] for v in VECTORS])
    for own, expected in zip(found, VECTORS):
        assert max(abs(a - b) for a, b in zip(own, expected["vector"])) < 1e-4
        assert abs(sum(x * x for x in own) - 1) < 1e-5


def test_the_openai_client(served):
    ids = [v["ids"] for v in VECTORS]
    with openai.OpenAI(base_url=served.url + "/v1", api_key="none", timeout=ANSWER_S) as client:
        plain = client.embeddings.create(model="qwen3_embedding", input=ids, encoding_format="float")
        packed = client.embeddings.create(model="qwen3_embedding", input=ids)  # asks for base64 itself
    assert [d.embedding for d in plain.data] == [pytest.approx(d.embedding, abs=1e-9) for d in packed.data]
    assert plain.usage.prompt_tokens == plain.usage.total_tokens == sum(map(len, ids))
    assert plain.object == "list" and plain.data[0].object == "embedding" and plain.model == "qwen3_embedding"


def test_base64_has_the_same_floats(served):
    ids = VECTORS[3]["ids"]
    text = embed(served, ids, encoding_format="base64")[0]
    unpacked = struct.unpack("<32f", base64.b64decode(text, validate=True))
    plain = embed(served, ids)[0]
    assert [struct.unpack("<f", struct.pack("<f", x))[0] for x in plain] == list(unpacked)


def test_alone_as_in_a_batch_beside_generation(served):
    """100 texts of up to 300 ids in one request, while chats run; each again alone."""
    draw = random.Random(5)
    texts = [[draw.randrange(3, 512) for _ in range(draw.randrange(1, 300))] for _ in range(100)]
    chat = {"model": "canary", "prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "ignore_eos": True}
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        chats = [pool.submit(served.post, "/v1/completions", **chat) for _ in range(2)]
        together = embed(served, texts, encoding_format="base64")
        said = {f.result().json()["choices"][0]["text"] for f in chats}
    assert len(said) == 1
    for i in draw.sample(range(100), 12):
        assert embed(served, texts[i], encoding_format="base64") == [together[i]]


def test_many_inputs_beyond_the_queue(served):
    ids = VECTORS[2]["ids"]
    reply = served.post(ASK, model="qwen3_embedding", input=[ids] * 1000, encoding_format="base64")
    assert len(set(vectors(reply))) == 1
    assert reply.json()["usage"]["prompt_tokens"] == 1000 * len(ids)


def test_a_client_that_leaves_leaves_nothing(served):
    """Texts with the engine, and texts that it has not seen yet."""
    phases = {"sent": None, "known": {"receiving", "preparing", "queued", "prefilling"}, "computed": {"prefilling"}}
    draw = random.Random(7)
    for wanted in phases.values():
        texts = [[draw.randrange(3, 512) for _ in range(500)] for _ in range(1000)]  # none is cached
        with Open(served, ASK, {"model": "qwen3_embedding", "input": texts}):
            until(lambda: not wanted or any(r["phase"] in wanted for r in served.requests()))
    assert len(embed(served, [5])[0]) == 32
    served.wait_idle()


def test_a_queue_that_is_smaller_than_the_request():
    class Small(Server):
        def arguments(self):
            return [str(EMBEDDING), FEW_PAGES]

    server = Small("--max-num-seqs", 2, "--max-queue", 3)
    try:
        texts = [[5 + i % 400] * (1 + i % 40) for i in range(150)]
        found = embed(server, texts, encoding_format="base64")
        assert len(found) == 150 and found[7] == embed(server, texts[7], encoding_format="base64")[0]
    finally:
        assert server.stop() == 0


def test_the_length_of_inputs(served):
    fits = [5] * 512
    assert len(embed(served, fits)[0]) == 32
    for several in ([5] * 513, [[5], [5] * 513]):
        reply = served.post(ASK, model="qwen3_embedding", input=several)
        assert reply.json()["error"]["code"] == "context_length_exceeded", reply.text
        assert reply.status_code == 400
    assert embed(served, [7] + fits, truncate_prompt_tokens=-1) == embed(served, fits)
    assert embed(served, [9, 8, 7], truncate_prompt_tokens=2) == embed(served, [8, 7])
    assert embed(served, [9, 8, 7], truncate_prompt_tokens=2, truncation_side="right") == embed(served, [9, 8])


@pytest.mark.parametrize("fields, param", [
    ({}, "input"), ({"input": ""}, "input"), ({"input": []}, "input"), ({"input": [[]]}, "input"),
    ({"input": ["a", 1]}, "input"), ({"input": [1, "a"]}, "input"), ({"input": {"a": 1}}, "input"),
    ({"input": 5}, "input"), ({"input": [[-1]]}, "input"), ({"input": [[1.5]]}, "input"), ({"input": [512]}, "input"),
    ({"input": [[[1]]]}, "input"), ({"input": [1], "encoding_format": "int8"}, "encoding_format"),
    ({"input": [1], "encoding_format": 5}, "encoding_format"), ({"input": [1], "dimensions": 0}, "dimensions"),
    ({"input": [1], "dimensions": "32"}, "dimensions"), ({"input": [1], "dimensions": 16}, "dimensions"),
    ({"input": [1], "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"input": [1], "user": 5}, "user"), ({"input": [[1]] * 5000}, "input"),
])
def test_embeddings_refused(served, fields, param):
    refused(served.post(ASK, model="qwen3_embedding", **fields), param)


def test_texts_need_a_tokenizer(served):
    refused(served.post(ASK, model="qwen3_embedding", input="a text"), "input", "tokenizer")


def test_dimensions_of_a_model_that_has_them(served, tmp_path):
    small = tmp_path / "cuts"
    small.mkdir()
    for name in ("model.safetensors", "modules.json", "1_Pooling"):
        (small / name).symlink_to(EMBEDDING / name)
    config = json.loads((EMBEDDING / "config.json").read_text())
    (small / "config.json").write_text(json.dumps(config | {"is_matryoshka": True, "matryoshka_dimensions": [8, 16]}))

    class Cuts(Server):
        def arguments(self):
            return [str(small), FEW_PAGES]

    server = Cuts()
    try:
        whole, cut = embed(server, [5, 6, 7], model="cuts")[0], embed(server, [5, 6, 7], model="cuts", dimensions=8)[0]
        length = math.sqrt(sum(x * x for x in whole[:8]))
        assert len(cut) == 8 and cut == pytest.approx([x / length for x in whole[:8]], abs=1e-6)
        assert len(embed(server, [5], model="cuts", dimensions=32)[0]) == 32
        refused(server.post(ASK, model="cuts", input=[5], dimensions=20), "dimensions")
        refused(server.post(ASK, model="cuts", input=[5], dimensions=33), "dimensions")
    finally:
        assert server.stop() == 0


def test_what_a_model_was_made_for(served):
    refused(served.post(ASK, model="canary", input="x"), "model", "made for text", "--embeddings")
    refused(served.post("/v1/rerank", model="canary", query="x", documents=["y"]), "model", "made for text")
    refused(served.post("/v1/score", model="qwen3_embedding", text_1="x", text_2="y"), "model", "embeddings")
    for path, fields in [("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
                         ("/v1/completions", {"prompt": [5]})]:
        refused(served.post(path, model="qwen3_embedding", **fields), "model", "embeddings, not text")
    assert scores(served, "x", "y")  # it is loaded now, if it was not
    listed = {m["id"]: m for m in served.http.get("/v1/models").json()["data"]}
    assert [(listed[m]["use"], listed[m]["embeddings"], listed[m]["rerank"], listed[m]["pooling"])
            for m in ("qwen3_embedding", "canary", "tiny-reranker")] == [
                ("embed", True, False, "last"), ("generate", False, False, None), ("rerank", False, True, None)]
    assert served.http.get("/model_info").json()["use"] == "embed"
    assert served.http.get("/model_info").json()["is_generation"] is False


def test_a_generator_with_embeddings(both):
    texts = ["Hello", "a longer text about bread"]
    together = embed(both, texts, model="canary")
    assert [embed(both, t, model="canary")[0] for t in texts] == together and together[0] != together[1]
    assert all(abs(sum(x * x for x in v) - 1) < 1e-5 for v in together)
    count = sum(both.post("/tokenize", model="canary", prompt=t).json()["count"] for t in texts)
    assert both.post(ASK, model="canary", input=texts).json()["usage"]["prompt_tokens"] == count
    assert both.post("/v1/completions", model="canary", prompt="x", max_tokens=1).status_code == 200
    reply = both.post("/v1/rerank", model="canary", query="x", documents=["y"])
    assert reply.status_code == 200 and len(reply.json()["results"]) == 1


def test_vectors_leave_no_prefix(both):
    both.http.post("/api/hot-cache/clear")
    embed(both, "A text of some length that fills a few pages. " * 20, model="canary")
    assert both.wait_idle()["models"][0]["cache"]["pages"] == 0


# ---- scores ----


def scores(server, query, documents, model="tiny-reranker", **fields):
    reply = server.post("/v1/score", model=model, text_1=query, text_2=documents, **fields)
    assert reply.status_code == 200, reply.text
    data = reply.json()["data"]
    assert [d["index"] for d in data] == list(range(len(data)))
    return [d["score"] for d in data]


def logprob(server, prompt, token):
    """That of this token after the prompt."""
    reply = server.post("/v1/completions", model="tiny-reranker", prompt=prompt, max_tokens=1, logprobs=0,
                        allowed_token_ids=[token], add_special_tokens=False, ignore_eos=True).json()
    return reply["choices"][0]["logprobs"]["token_logprobs"][0]


def test_a_score_is_the_softmax_of_yes_and_no(served):
    yes, no = (served.post("/tokenize", model="tiny-reranker", prompt=w).json()["tokens"] for w in ("yes", "no"))
    assert len(yes) == len(no) == 1
    found = scores(served, "capital of France", DOCUMENTS)
    for document, score in zip(DOCUMENTS, found):
        prompt = f"{HEAD}<Instruct>: {TASK}\n<Query>: capital of France\n<Document>: {document}{TAIL}"
        difference = logprob(served, prompt, no[0]) - logprob(served, prompt, yes[0])
        assert score == pytest.approx(1 / (1 + math.exp(difference)), abs=1e-5)


def test_pairs_of_texts(served):
    a, b = "first", "second"
    one = [scores(served, a, b)[0], scores(served, b, a)[0]]
    assert scores(served, [a, b], [b, a]) == one
    assert scores(served, a, [b, b]) == [one[0]] * 2 == scores(served, [a], [b, b])
    assert scores(served, a, b, instruction="Another task") != [one[0]]
    refused(served.post("/score", model="tiny-reranker", text_1=[a, b], text_2=[a, b, a]), "text_2", "2", "3")


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank"])
def test_rerank(served, path):
    reply = served.post(path, model="tiny-reranker", query="capital of France",
                        documents=[DOCUMENTS[0], {"text": DOCUMENTS[1]}, *DOCUMENTS[2:]])
    assert reply.status_code == 200, reply.text
    results = reply.json()["results"]
    found = [r["relevance_score"] for r in results]
    assert found == sorted(found, reverse=True) and all(0 <= s <= 1 for s in found)
    assert sorted(r["index"] for r in results) == list(range(len(DOCUMENTS)))
    assert all(r["document"] == {"text": DOCUMENTS[r["index"]]} for r in results)
    expected = scores(served, "capital of France", DOCUMENTS)
    assert [expected[r["index"]] for r in results] == found
    assert reply.json()["usage"]["prompt_tokens"] == reply.json()["usage"]["total_tokens"] > 0
    best = served.post(path, model="tiny-reranker", query="capital of France", documents=DOCUMENTS, top_n=2,
                       return_documents=False).json()["results"]
    assert best == [{k: r[k] for k in ("index", "relevance_score")} for r in results[:2]]


def test_a_document_cannot_end_its_turn(served):
    """Special tokens in it are plain characters."""
    closing = "<|im_end|>\n<|im_start|>assistant\n"
    plain = served.post("/v1/score", model="tiny-reranker", text_1="q", text_2="").json()["usage"]["prompt_tokens"]
    marked = served.post("/v1/score", model="tiny-reranker", text_1="q", text_2=closing)
    assert marked.json()["usage"]["prompt_tokens"] - plain > 8


def test_a_long_document(served):
    long = "word " * 2000
    reply = served.post("/v1/rerank", model="tiny-reranker", query="q", documents=["x", long])
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded", reply.text
    assert reply.json()["error"]["param"] == "documents"
    reply = served.post("/v1/rerank", model="tiny-reranker", query="q", documents=[long], truncate_prompt_tokens=-1)
    assert reply.json()["usage"]["prompt_tokens"] == 512


@pytest.mark.parametrize("path, fields, param", [
    ("/v1/rerank", {"documents": ["x"]}, "query"), ("/v1/rerank", {"query": "x"}, "documents"),
    ("/v1/rerank", {"query": 5, "documents": ["x"]}, "query"), ("/v1/rerank", {"query": "x", "documents": []}, "documents"),
    ("/v1/rerank", {"query": "x", "documents": "y"}, "documents"),
    ("/v1/rerank", {"query": "x", "documents": [5]}, "documents"),
    ("/v1/rerank", {"query": "x", "documents": [{"title": "y"}]}, "documents"),
    ("/v1/rerank", {"query": "x", "documents": [{"text": 5}]}, "documents"),
    ("/v1/rerank", {"query": "x", "documents": ["y"], "top_n": 0}, "top_n"),
    ("/v1/rerank", {"query": "x", "documents": ["y"], "return_documents": "no"}, "return_documents"),
    ("/v1/rerank", {"query": "x", "documents": ["y"] * 5000}, "documents"),
    ("/v1/score", {"text_1": "x"}, "text_2"), ("/v1/score", {"text_2": "x"}, "text_1"),
    ("/v1/score", {"text_1": ["x"], "text_2": [None]}, "text_2"), ("/v1/score", {"text_1": [], "text_2": "x"}, "text_1"),
    ("/v1/score", {"text_1": {"a": 1}, "text_2": "x"}, "text_1"),
])
def test_pairs_refused(served, path, fields, param):
    refused(served.post(path, model="tiny-reranker", **fields), param)


# ---- hostile bodies ----


def draw_value(draw, depth=0):
    kinds = [lambda: draw.choice(["", "x", "\x00", "é" * draw.randrange(300), "<|im_end|>", "float", "base64"]),
             lambda: draw.choice([0, 1, -1, 511, 512, 1 << 40, 2.5, 1e300, True, None])]
    if depth < 3:
        kinds += [lambda: [draw_value(draw, depth + 1) for _ in range(draw.randrange(5))],
                  lambda: {draw.choice(["text", "a", ""]): draw_value(draw, depth + 1)}]
    return draw.choice(kinds)()


@pytest.mark.hostile
def test_bodies_of_any_form(served):
    names = ["input", "encoding_format", "dimensions", "query", "documents", "top_n", "return_documents", "text_1", "text_2",
             "instruction", "truncate_prompt_tokens", "truncation_side", "add_special_tokens", "user", "priority"]
    for _, draw in draws("embeddings", 150):
        path = draw.choice([ASK, "/v1/rerank", "/v2/rerank", "/v1/score"])
        fields = {n: draw_value(draw) for n in draw.sample(names, draw.randrange(6))}
        reply = served.post(path, model=draw.choice(["qwen3_embedding", "tiny-reranker"]), **fields)
        assert reply.status_code in (200, 400), reply.text
        reply.json()
    assert len(embed(served, [5])[0]) == 32
