"""A draft model changes no answer; it is planned, loaded, measured and freed with its target."""

import json
import random
import shutil
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import MODEL, Faulty, account, serving, until
from test_generate import run
from test_plan_images import planned
from test_speculation import ASKS, COPY, metric

GOLDEN = MODEL.parent.parent / "tests" / "golden" / "data"
VOCAB, HIDDEN, HEAD, HEADS, KV_HEADS, MLP = 8192, 32, 16, 2, 1, 48


def tensors(layers):
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for i in range(layers):
        names = {"self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
                 "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
                 "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP),
                 "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,), "self_attn.q_norm": (HEAD,),
                 "self_attn.k_norm": (HEAD,)}
        for name, shape in names.items():
            yield f"model.layers.{i}.{name}.weight", shape


def save(directory, named, seed, integers=()):
    """Random weights; `integers`: lists of 64-bit numbers by name."""
    draw, header, data = random.Random(seed), {}, bytearray()
    for name, shape in named:
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = (1.0 if len(shape) == 1 else draw.gauss(0, 0.15) for _ in range(count))
        start = len(data)
        data += b"".join(struct.pack("<f", v)[2:] for v in values)
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [start, len(data)]}
    for name, values in dict(integers).items():
        start = len(data)
        data += struct.pack(f"<{len(values)}q", *values)
        header[name] = {"dtype": "I64", "shape": [len(values)], "data_offsets": [start, len(data)]}
    head = json.dumps(header).encode()
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)


EAGLE_ROWS = 1024


def make_eagle(directory, offset=7, without=None, speculators=False, embedding=0, **changes):
    """A random EAGLE-3 head for the model of make(); its rows are every token from `offset` on."""
    shapes = {"fc": (HIDDEN, 3 * HIDDEN), "norm": (HIDDEN,), "lm_head": (EAGLE_ROWS, HIDDEN)}
    shapes |= {"midlayer." + name: shape for name, shape in {
        "input_layernorm": (HIDDEN,), "hidden_norm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
        "self_attn.q_proj": (HEADS * HEAD, 2 * HIDDEN), "self_attn.k_proj": (KV_HEADS * HEAD, 2 * HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD, 2 * HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
        "mlp.gate_proj": (MLP, HIDDEN), "mlp.up_proj": (MLP, HIDDEN), "mlp.down_proj": (HIDDEN, MLP)}.items()}
    if embedding:
        shapes["embed_tokens"] = (embedding, HIDDEN)
    named = [(name + ".weight", shape) for name, shape in shapes.items() if name != without]
    if speculators:
        named = [(name.replace("midlayer.", "layers.0."), shape) for name, shape in named]
    save(directory, named, 9, {} if without == "d2t" else {"d2t": [offset] * EAGLE_ROWS})
    config = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "vocab_size": VOCAB,
              "draft_vocab_size": EAGLE_ROWS, "hidden_size": HIDDEN, "num_attention_heads": HEADS, "head_dim": HEAD,
              "num_key_value_heads": KV_HEADS, "num_hidden_layers": 1, "intermediate_size": MLP, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "max_position_embeddings": 2048,
              "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 0, 1]}}
    config |= changes
    if speculators:
        config = {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "transformer_layer_config": config,
                  "draft_vocab_size": EAGLE_ROWS, "norm_before_residual": False,
                  "eagle_aux_hidden_state_layer_ids": [1, 1, 2]}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def make(directory, layers, seed):
    """A dense model of random weights with the bundled model's tokenizer."""
    save(directory, tensors(layers), seed)
    config = json.loads((GOLDEN / "qwen3" / "config.json").read_text())
    config |= {"vocab_size": VOCAB, "hidden_size": HIDDEN, "head_dim": HEAD, "num_attention_heads": HEADS,
               "num_key_value_heads": KV_HEADS, "num_hidden_layers": layers, "intermediate_size": MLP,
               "layer_types": ["full_attention"] * layers, "max_position_embeddings": 4096}
    (directory / "config.json").write_text(json.dumps(config))
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"]:
        shutil.copy(MODEL / name, directory / name)
    return directory


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    return make(tmp_path_factory.mktemp("draft") / "dense", 2, 1)


class Dense(Faulty):
    directory = None

    def arguments(self):
        return [str(self.directory)]


def answer(server, prompt, **fields):
    body = {"prompt": prompt, "max_tokens": 50, "return_token_ids": True, "ignore_eos": True, **fields}
    reply = server.http.post("/v1/completions", json=body).json()
    return reply["choices"], reply["usage"]["completion_tokens"]


def answers(server):
    """Alone, and then all at once on prefixes that are found."""
    asked = [(COPY + " " * (i // len(ASKS)), ASKS[i % len(ASKS)]) for i in range(2 * len(ASKS))]
    alone = [answer(server, prompt, **fields) for prompt, fields in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda a: answer(server, a[0], **a[1]), asked))
    return alone, together


def test_the_bundled_hybrid_answers_the_same(dense):
    with serving("--spec", "off") as plain:
        wanted = answers(plain)[0]
    with serving("--draft-model", dense, kind=Faulty) as server:
        server.order("even")
        assert answers(server) == (wanted, wanted)
        assert metric(server, "vllm:spec_decode_num_draft_tokens_total")[0] > 0
        model, = server.http.get("/v1/models").json()["data"]
        assert model["exact"]
        assert model["speculation"] == {"method": "draft-model+ngram", "tokens_max": 5, "optimistic": False}


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_a_model_that_drafts_for_itself_is_right(dense, device):
    Dense.directory = dense
    with serving("--spec", "off", "--device", device, kind=Dense) as plain:
        wanted = answers(plain)[0]
    with serving("--draft-model", dense, "--device", device, kind=Dense) as server:
        server.order("even")
        assert answers(server) == (wanted, wanted)
        drafted, = metric(server, "vllm:spec_decode_num_draft_tokens_total")
        accepted, = metric(server, "vllm:spec_decode_num_accepted_tokens_total")
        before = drafted, accepted
        for i in range(4):
            answer(server, f"{COPY} {i}", temperature=0)
        drafted, = metric(server, "vllm:spec_decode_num_draft_tokens_total")
        accepted, = metric(server, "vllm:spec_decode_num_accepted_tokens_total")
        assert drafted - before[0] > 100  # n-gram adds a few that are wrong
        assert accepted - before[1] > 0.95 * (drafted - before[0])
        # Unloaded and loaded again with its owner; the fixture compares the ledger.
        assert account(server.memory(), "draft")["used_bytes"] > 0
        assert server.http.post(f"/v1/models/{dense.name}/unload").status_code in (200, 202)
        until(lambda: not account(server.memory(), "draft"))
        assert answer(server, COPY, **ASKS[0]) == wanted[0]


def test_its_memory_is_planned(dense):
    alone, without = planned(dense)
    both, accounts = planned(dense, "--draft-model", dense)
    assert "draft" not in without and accounts["draft"]["floor_bytes"] >= both["speculation"]["weight_bytes"] > 0
    assert both["page_bytes"] == 2 * alone["page_bytes"] == 2 * both["speculation"]["page_bytes"]
    refused = run("plan", str(dense), "--draft-model", str(dense), "--memory-limit", "50M")
    assert refused.returncode == 1 and "The draft model takes" in refused.stderr
    # Another drafter leaves it out, and a draft of no tokens too.
    for options in [("--spec", "ngram"), ("--spec", "off"), ("--mtp", "0")]:
        assert "draft" not in planned(dense, "--draft-model", dense, *options)[1], options


def test_a_section_has_it_for_one_model(dense, tmp_path):
    config = tmp_path / "config.ini"
    config.write_text(f"[model {dense.name}]\ndraft-model = {dense}\n")
    with serving(dense, "--config", config) as server:
        methods = {m["id"]: m["speculation"]["method"] for m in server.http.get("/v1/models").json()["data"]
                   if m.get("speculation")}
        assert methods[dense.name] == "draft-model+ngram" and methods[MODEL.name] == "mtp+ngram"


def refusal(*options):
    got = run("generate", *map(str, options), "--max-tokens", "1", "x")
    assert got.returncode != 0
    return got.stderr


def test_what_cannot_draft_is_refused_by_name(dense, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(dense, other)
    text = json.loads((other / "tokenizer.json").read_text())
    vocab = text["model"]["vocab"]
    first, second = (next(k for k, v in vocab.items() if v == i) for i in (300, 301))
    vocab[first], vocab[second] = 301, 300
    (other / "tokenizer.json").write_text(json.dumps(text))
    said = refusal("--model", dense, "--draft-model", other)
    assert "id 300 is" in said and "in the target and" in said, said
    assert "recurrent layers" in refusal("--model", dense, "--draft-model", MODEL)
    assert "does not generate text" in refusal("--model", dense, "--draft-model", GOLDEN / "bert")
    said = run("plan", str(GOLDEN / "bert"), "--draft-model", str(dense))
    assert said.returncode == 1 and "drafts for a model that generates text" in said.stderr
    eagle = make_eagle(tmp_path / "eagle", architectures=["EagleLlamaForCausalLM"])
    assert "EagleLlamaForCausalLM is not an EAGLE-3 head" in refusal("--model", dense, "--draft-model", eagle)
    assert "nowhere" in refusal("--model", dense, "--draft-model", "nowhere/at-all")


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_an_eagle_head_changes_no_answer(dense, tmp_path, device):
    Dense.directory = dense
    head = make_eagle(tmp_path / "head")
    with serving("--spec", "off", "--device", device, kind=Dense) as plain:
        wanted = answers(plain)[0]
    with serving("--draft-model", head, "--device", device, kind=Dense) as server:
        server.order("even")
        assert answers(server) == (wanted, wanted)
        assert metric(server, "vllm:spec_decode_num_draft_tokens_total")[0] > 0
        model, = server.http.get("/v1/models").json()["data"]
        assert model["speculation"] == {"method": "eagle3+ngram", "tokens_max": 5, "optimistic": False}
        assert account(server.memory(), "draft")["used_bytes"] > 0 and not account(server.memory(), "mtp")
        reply = server.http.post("/v1/completions", json={"prompt": COPY, "max_tokens": 40, "ignore_eos": True}).json()
        details = reply["usage"]["completion_tokens_details"]
        assert details["accepted_prediction_tokens"] + details["rejected_prediction_tokens"] >= 0
        assert server.http.post(f"/v1/models/{dense.name}/unload").status_code in (200, 202)
        until(lambda: not account(server.memory(), "draft"))
        assert answer(server, COPY, **ASKS[0]) == wanted[0]


def test_an_eagle_heads_memory_is_planned(dense, tmp_path):
    head = make_eagle(tmp_path / "head")
    alone, without = planned(dense)
    both, accounts = planned(dense, "--draft-model", head)
    assert "draft" not in without and accounts["mtp"]["floor_bytes"] == 0
    assert accounts["draft"]["floor_bytes"] >= both["speculation"]["weight_bytes"] > 0
    assert both["page_bytes"] > alone["page_bytes"] and both["speculation"]["method"] == "eagle3+ngram"
    for options in [("--spec", "ngram"), ("--spec", "off"), ("--mtp", "0")]:
        assert "draft" not in planned(dense, "--draft-model", head, *options)[1], options


def test_a_speculator_is_the_same_head(dense, tmp_path):
    Dense.directory = dense
    found = []
    for form in False, True:
        head = make_eagle(tmp_path / str(form), speculators=form, offset=0)
        with serving("--draft-model", head, kind=Dense) as server:
            server.order("even")
            body = {"prompt": COPY, "max_tokens": 60, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
            reply = server.http.post("/v1/completions", json=body).json()
            found.append((reply["choices"][0]["token_ids"], reply["usage"]["completion_tokens_details"]))
    assert found[0] == found[1] and found[0][1]["rejected_prediction_tokens"] > 0


def test_an_eagle_head_drafts_for_a_packed_model(dense, tmp_path):
    packed = tmp_path / "packed.plateau"
    assert run("pack", str(dense), str(packed)).returncode == 0
    Dense.directory = packed
    with serving("--spec", "off", kind=Dense) as plain:
        wanted = answer(plain, COPY, **ASKS[0])
    with serving("--draft-model", make_eagle(tmp_path / "head"), kind=Dense) as server:
        server.order("even")
        assert answer(server, COPY, **ASKS[0]) == wanted
        assert metric(server, "vllm:spec_decode_num_draft_tokens_total")[0] > 0


@pytest.mark.parametrize("said, changes", [
    ("hidden size is 16", {"hidden_size": 16}),
    ("norm_before_fc", {"norm_before_fc": True}),
    ("one layer of llama", {"num_hidden_layers": 2}),
    ("three numbers below the model's 2 layers", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}),
    ("has no usual ones", {"eagle_config": {}}),
    ("fc.weight", {"without": "fc"}),
    ("lm_head", {"without": "lm_head"}),
    ("hidden_norm", {"without": "midlayer.hidden_norm"}),
    ("no tensor d2t", {"without": "d2t"}),
    ("2048", {"draft_vocab_size": 2048}),
    ("the model has 8192 tokens", {"offset": VOCAB}),
    ("the model has 8192 tokens", {"offset": -1}),
    ("embed_tokens has 64 rows, and the model 8192 tokens", {"embedding": 64, "vocab_size": 64}),
])
def test_an_eagle_head_of_another_form_is_refused(dense, tmp_path, said, changes):
    assert said in refusal("--model", dense, "--draft-model", make_eagle(tmp_path / "head", **changes))


@pytest.mark.parametrize("form", [("--quant", "q8"), ("--quant", "q4", "--compute", "int8"), ("--kv-dtype", "int8")])
def test_an_eagle_head_in_the_models_form(dense, tmp_path, form):
    """Matrices of the head are quantised as the model's. They read three and two times its width."""
    Dense.directory = dense
    head = make_eagle(tmp_path / "head", offset=0)
    with serving("--spec", "off", *form, kind=Dense) as plain:
        wanted = [answer(plain, COPY, **fields) for fields in ASKS]
    with serving("--draft-model", head, *form, kind=Dense) as server:
        server.order("even")
        assert [answer(server, COPY, **fields) for fields in ASKS] == wanted
        assert metric(server, "vllm:spec_decode_num_draft_tokens_total")[0] > 0
