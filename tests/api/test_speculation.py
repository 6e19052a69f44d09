"""Speculative decoding changes no answer; drafter, draft length and acceptance can be read."""

import json
import re

import pytest

from conftest import Faulty, events, serving
from test_generate import run
from test_plan_images import planned

COPY = "one two three four five six seven eight nine ten, one two three four five six seven eight nine ten, one two"
# Options on which sampling may depend.
ASKS = [
    {"temperature": 0},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 0.9, "top_p": 0.9, "seed": 5},
    {"temperature": 1.2, "seed": 6, "n": 3, "min_p": 0.02},
    {"temperature": 0, "repetition_penalty": 1.2, "frequency_penalty": 0.3},
    {"temperature": 0, "logit_bias": {"20": 3, "100": -100}},
    {"temperature": 0, "stop": ["e", "th"], "min_tokens": 9},
    {"temperature": 0, "prompt_logprobs": 1},
]


def head_bytes(*options):
    plan, _ = planned(*options)
    return plan["speculation"]["weight_bytes"]


def test_the_list_of_tokens_in_use_is_planned():
    whole = head_bytes("--draft-vocab", "0")
    assert whole < head_bytes("--draft-vocab", "2048") == head_bytes()
    assert head_bytes("--draft-vocab", "8000") == head_bytes("--mtp-optimistic") == whole
    assert run("plan", "--draft-vocab", "-1").returncode == 2


def test_the_number_of_drafts_is_planned():
    def drafts(*options):
        s = planned(*options)[0]["speculation"]
        return s["method"], s["tokens_max"], s["weight_bytes"] > 0

    assert drafts() == ("mtp+ngram", 3, True)
    assert drafts("--mtp", "2") == ("mtp+ngram", 2, True)
    assert drafts("--mtp", "1") == ("mtp", 1, True)
    assert drafts("--mtp", "0") == ("off", 0, False)


METHODS = {"ngram": ("ngram", 5), "mtp": ("mtp", 3), "auto": ("mtp+ngram", 3)}


@pytest.fixture(scope="module", params=list(METHODS))
def way(request):
    return request.param


@pytest.fixture(scope="module")
def drafting(way):
    with serving("--spec", way, kind=Faulty) as s:
        s.order("even")  # a busy machine changes no draft length
        yield s


@pytest.fixture(scope="module")
def plain():
    with serving("--spec", "off") as s:
        yield s


def metric(server, name):
    found = re.findall(rf"^{re.escape(name)}{{[^}}]*}} (\S+)$", server.http.get("/metrics").text, re.M)
    return [float(x) for x in found]


def answer(server, **fields):
    reply = server.complete(COPY, max_tokens=60, return_token_ids=True, ignore_eos=True, **fields).json()
    return reply["choices"], reply["usage"]["completion_tokens"]


def test_the_same_answers_with_drafts_and_without(drafting, plain):
    for fields in ASKS:
        assert answer(drafting, **fields) == answer(plain, **fields), fields
    drafts, = metric(drafting, "vllm:spec_decode_num_drafts_total")
    tokens, = metric(drafting, "vllm:spec_decode_num_draft_tokens_total")
    right, = metric(drafting, "vllm:spec_decode_num_accepted_tokens_total")
    places = metric(drafting, "vllm:spec_decode_num_accepted_tokens_per_pos_total")
    assert tokens >= drafts > 0 and tokens >= right > 0
    assert sum(places) == right and len(places) == 8 and places == sorted(places, reverse=True)
    assert metric(plain, "vllm:spec_decode_num_drafts_total") == [0]


def test_a_request_may_do_without(drafting):
    before = metric(drafting, "vllm:spec_decode_num_drafts_total")
    for fields in [{}, {"stream": True}]:
        body = {"prompt": COPY, "max_tokens": 60, "ignore_eos": True, "temperature": 0, "speculative": False, **fields}
        assert drafting.http.post("/v1/completions", json=body).status_code == 200
    chat = {"messages": [{"role": "user", "content": COPY}], "max_tokens": 30, "temperature": 0, "speculative": False}
    assert drafting.http.post("/v1/chat/completions", json=chat).status_code == 200
    assert metric(drafting, "vllm:spec_decode_num_drafts_total") == before
    refused = drafting.http.post("/v1/completions", json={"prompt": COPY, "speculative": "no"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "speculative"


def predictions(server, **fields):
    """Draft tokens and accepted ones, by the usage of one reply."""
    body = {"prompt": COPY, "max_tokens": 60, "ignore_eos": True, "temperature": 0, **fields}
    reply = server.http.post("/v1/completions", json=body)
    if fields.get("stream"):
        usage = [e for e in events(reply.text) if e != "[DONE]"][-1]["usage"]
    else:
        usage = reply.json()["usage"]
    details = usage["completion_tokens_details"]
    accepted = details["accepted_prediction_tokens"]
    return accepted + details["rejected_prediction_tokens"], accepted


def test_usage_has_the_accepted_and_the_rejected_drafts(drafting, plain):
    def counted():
        return [metric(drafting, f"vllm:spec_decode_num_{kind}_tokens_total")[0] for kind in ("draft", "accepted")]

    for fields in [{}, {"n": 2, "seed": 3}, {"stream": True, "stream_options": {"include_usage": True}}]:
        before = counted()
        found = predictions(drafting, **fields)
        assert found[0] >= found[1] > 0 and found == tuple(b - a for a, b in zip(before, counted())), fields
    assert predictions(drafting, speculative=False) == predictions(plain) == (0, 0)


def test_it_says_who_drafts(drafting, plain, way):
    method, most = METHODS[way]
    model, = drafting.http.get("/v1/models").json()["data"]
    assert model["exact"] and model["speculation"] == {"method": method, "tokens_max": most, "optimistic": False}
    model, = plain.http.get("/v1/models").json()["data"]
    assert model["speculation"] == {"method": "off", "tokens_max": 0, "optimistic": False}
    answer(drafting, temperature=0)
    status, = drafting.http.get("/api/status").json()["models"]
    assert status["speculation"]["draft_tokens"] >= status["speculation"]["accepted_tokens"] > 0
    assert len(status["speculation"]["accepted_per_position"]) == most


def test_streams_bring_the_same_tokens(drafting, plain):
    body = {"prompt": COPY, "max_tokens": 80, "ignore_eos": True, "temperature": 0, "stream": True,
            "return_token_ids": True, "logprobs": 0}

    def ids(server):
        found = events(server.http.post("/v1/completions", json=body).text)
        return [i for e in found if e != "[DONE]" for c in e["choices"] for i in c.get("token_ids", [])]

    assert ids(drafting) == ids(plain)
    assert "exact" not in json.dumps(drafting.complete(COPY, max_tokens=2).json())


def test_optimistic_answers_say_that_they_are_not_exact(plain):
    body = {"prompt": COPY, "max_tokens": 400, "ignore_eos": True, "temperature": 0}
    exact = plain.complete(COPY, max_tokens=60, temperature=0, return_token_ids=True).json()["choices"][0]["token_ids"]
    with serving("--mtp-optimistic", kind=Faulty) as server:
        server.order("even")
        model, = server.http.get("/v1/models").json()["data"]
        assert model["exact"] is False
        assert model["speculation"] == {"method": "mtp", "tokens_max": 3, "optimistic": True}
        whole = server.http.post("/v1/completions", json=body)
        assert whole.headers["x-exact"] == "false" and whole.json()["exact"] is False
        assert whole.json()["usage"]["completion_tokens"] == 400
        stream = server.http.post("/v1/completions", json={**body, "stream": True})
        chunks = [e for e in events(stream.text) if e != "[DONE]"]
        assert stream.headers["x-exact"] == "false" and all(c["exact"] is False for c in chunks)
        drafted, = metric(server, "vllm:spec_decode_num_draft_tokens_total")
        kept, = metric(server, "vllm:spec_decode_num_accepted_tokens_total")
        assert kept > drafted * 0.9  # all except those after an end
        without = server.complete(COPY, max_tokens=60, temperature=0, return_token_ids=True, speculative=False)
        assert "x-exact" not in without.headers and "exact" not in without.json()
        assert without.json()["choices"][0]["token_ids"] == exact
        told = server.http.post("/v1/completions", json={**body, "logprobs": 1, "max_tokens": 50}).json()
        assert told["exact"] is False and len(told["choices"][0]["logprobs"]["tokens"]) == 50
