"""Vectors of conversations with images: /v1/embeddings of an embedder with a vision encoder."""
import concurrent.futures
import json
import math
import struct

import pytest

from conftest import Server
from test_vision_families import DATA, image_of, tokenizer

NAME = "qwen3_vl"
GOLDEN = json.loads((DATA / NAME / "golden.json").read_text())["image"]
SPECIAL = {500: "<img>", 501: "<video>", 502: "<begin>", 503: "<end>"}
WORDS = ["[UNK]", "[CLS]", "[SEP]"] + [SPECIAL.get(i, f"w{i}") for i in range(3, 512)]
TEMPLATE = ("{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
            "{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}{% else %}<begin><img><end>"
            "{% endif %}{% endfor %}{% endif %}{% endfor %}")


def head_rows():
    """The rows of the output matrix, which the embedding is, too."""
    data = (DATA / NAME / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    at = next(v for k, v in header.items() if k.endswith("embed_tokens.weight"))
    assert at["dtype"] == "BF16"
    halves = struct.unpack(f"<{at['shape'][0] * at['shape'][1]}H", data[8 + size:][slice(*at["data_offsets"])])
    values = [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]
    width = at["shape"][1]
    return [values[i:i + width] for i in range(0, len(values), width)]


class Embedder(Server):
    def arguments(self):
        return [str(self.model), "--memory-limit", "512M"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "embedder"
    folder.mkdir()
    for path in (DATA / NAME).iterdir():
        (folder / path.name).symlink_to(path)
    pooled = DATA / "qwen3_embedding"
    for name in ("modules.json", "1_Pooling"):
        (folder / name).symlink_to(pooled / name)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(WORDS)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (folder / "preprocessor_config.json").write_text('{"size": {"shortest_edge": 4096, "longest_edge": 1048576}}')
    Embedder.model = folder
    server = Embedder("--compute", "f32")
    yield server
    assert server.stop() == 0


def content():
    places = [i for i, id in enumerate(GOLDEN["prompt"]) if id in SPECIAL]
    before, after = GOLDEN["prompt"][:places[0]], GOLDEN["prompt"][places[-1] + 1:]
    return [{"type": "text", "text": " ".join(WORDS[i] for i in before)},
            {"type": "image_url", "image_url": {"url": image_of(GOLDEN)}},
            {"type": "text", "text": " ".join(WORDS[i] for i in after)}]


def ask(server, parts, **fields):
    return server.post("/v1/embeddings", messages=[{"role": "user", "content": parts}], **fields)


def vector(server, parts, **fields):
    reply = ask(server, parts, **fields).json()
    assert "data" in reply, reply
    assert len(reply["data"]) == 1
    return reply["data"][0]["embedding"], reply["usage"]["prompt_tokens"]


def test_a_conversations_vector_is_the_last_tokens_state(served):
    got, tokens = vector(served, content())
    assert tokens == len(GOLDEN["prompt"])
    assert abs(math.hypot(*got) - 1) < 1e-5
    # The state of transformers gives the logits: the rows' products with the vector, times one number.
    products = [sum(a * b for a, b in zip(row, got)) for row in head_rows()]
    scale = math.hypot(*GOLDEN["logits_last"]) / math.hypot(*products)
    assert max(abs(scale * p - l) for p, l in zip(products, GOLDEN["logits_last"])) < 1e-3


def test_vectors_of_images_are_the_same_in_a_batch(served):
    alone, _ = vector(served, content())
    other, _ = vector(served, content()[:1])
    assert alone != other
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        parts = [content(), content()[:1]] * 3
        assert [v for v, _ in pool.map(lambda p: vector(served, p), parts)] == [alone, other] * 3


def test_a_text_and_a_conversation_are_two_requests(served):
    text = " ".join(WORDS[i] for i in GOLDEN["prompt"][:9])
    plain = served.post("/v1/embeddings", input=text).json()["data"][0]["embedding"]
    assert vector(served, content()[:1])[0] == plain
    error = ask(served, content(), input=text).json()["error"]
    assert error["param"] == "input" and "not both" in error["message"]
    error = ask(served, [*content(), {"type": "text", "text": "<img>"}]).json()["error"]
    assert error["code"] == "invalid_value", error
