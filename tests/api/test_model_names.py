"""Names of models in requests: exact names, changed names of clients and routers, the default."""

import subprocess

import pytest

from conftest import FEW_PAGES, MODEL, PROGRAM, TOP, events, refused, serving

DATA = TOP / "tests/golden/data"
ONE = {"prompt": [1], "max_tokens": 1, "temperature": 0}


@pytest.fixture(scope="module")
def two():
    """canary, and qwen3 with names that come close to others."""
    names = ["Acme/Canary-2=qwen3", "LATEST:latest=qwen3", "twin=qwen3", "TWIN=canary", "openai/twin2=qwen3", "Twin2=canary"]
    options = sum((["--alias", name] for name in names), [])
    with serving(DATA / "qwen3", *options, FEW_PAGES) as s:
        yield s


def asked(server, name, **fields):
    return server.post("/v1/completions", model=name, **ONE, **fields)


@pytest.mark.parametrize("name, model", [
    ("canary", "canary"), ("Canary", "canary"), ("CANARY:latest", "canary"), ("openai/canary", "canary"),
    ("hosted_vllm/openai/Canary:latest", "canary"), ("QWEN3", "qwen3"), ("acme/canary-2", "qwen3"),
    ("openai/acme/canary-2", "qwen3"), ("latest", None), ("x/latest:LATEST", "qwen3"), ("OPENAI/TWIN2", "qwen3"),
    ("Twin", None), ("x/Twin", None), ("canary/", None), ("/canary", "canary"), (":latest", None), ("/", None),
    ("canary-", None), ("canary:latest:latest", None), ("canary/openai", None), ("x" * 5000, None),
])
def test_changed_names(two, name, model):
    reply = asked(two, name)
    if model is None:
        refused(reply, 404, "model_not_found", "canary and qwen3")
        return
    assert reply.status_code == 200, reply.text
    assert reply.json()["model"] == (name if name in ("canary", "qwen3") else model)
    found = two.http.get(f"/v1/models/{name}")
    assert found.status_code == 200 and found.json()["root"] == model


@pytest.mark.parametrize("name, model", [("twin", "qwen3"), ("TWIN", "canary"), ("Twin2", "canary"), ("openai/twin2", "qwen3")])
def test_an_exact_name_is_never_changed(two, name, model):
    assert two.http.get(f"/v1/models/{name}").json()["root"] == model
    assert asked(two, name).json()["model"] == name


def test_an_order_takes_changed_names(two):
    assert two.http.post("/v1/models/x/QWEN3/load").json()["id"] == "qwen3"


def test_each_dialect_tells_the_model_that_answers(server):
    ask = {"model": "openai/CANARY", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    assert server.post("/v1/chat/completions", **ask).json()["model"] == "canary"
    assert server.post("/v1/messages", **ask).json()["model"] == "canary"
    stream = events(server.post("/v1/chat/completions", **ask, stream=True).text)
    assert {e["model"] for e in stream if e != "[DONE]"} == {"canary"}
    reply = server.post("/v1/responses", model="openai/CANARY", input="hi", max_output_tokens=16, store=False)
    assert reply.json()["model"] == "canary"
    assert server.post("/tokenize", model="Canary:latest", prompt="a").status_code == 200


def test_without_a_default_unknown_names_are_refused(server):
    for name in "", "gpt-4o":
        error = refused(server.complete("a", model=name), 404, "model_not_found", "The model here: canary.", "--default-model")
        assert error["param"] == "model"


def test_a_default_serves_all_other_names():
    with serving(DATA / "qwen3", "--default-model", "qwen3", FEW_PAGES) as s:
        for name in "gpt-4o", "", "x" * 3000:
            assert asked(s, name).json()["model"] == "qwen3"
        assert s.post("/v1/completions", **ONE).json()["model"] == "qwen3"
        assert asked(s, "canary").json()["model"] == "canary" and asked(s, "CANARY").json()["model"] == "canary"
        # Orders and look-ups name a model.
        refused(s.http.get("/v1/models/gpt-4o"), 404, "model_not_found", "gpt-4o")
        refused(s.http.post("/v1/models/gpt-4o/unload"), 404, "model_not_found")


def test_a_default_that_is_not_served_stops_the_start():
    got = subprocess.run([PROGRAM, "serve", MODEL, "--default-model", "nobody", "--port", "0"], capture_output=True, text=True, timeout=60)
    assert got.returncode != 0 and "--default-model nobody: there is no such model" in got.stderr
