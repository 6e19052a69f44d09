"""Routes that routers ask: rendered requests, load, models and the size of the cache."""

import json
import re

import pytest

from conftest import Open, serving, until
from seeing import asking, png_of
from test_speculation import metric

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city.",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
CHAT = {"model": "canary", "messages": [{"role": "user", "content": "What does mkdir do?"}]}
MEMBERS = ["request_id", "model", "token_ids", "features", "sampling_params"]


def asked(server, path, body, **headers):
    reply = server.http.post(path, json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.smoke
@pytest.mark.parametrize("more", [{}, {"tools": TOOLS}, {"chat_template_kwargs": {"enable_thinking": False}},
                                  {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}])
def test_a_chat_is_rendered_as_it_is_computed(server, more):
    rendered = asked(server, "/v1/chat/completions/render", {**CHAT, **more})
    assert list(rendered) == MEMBERS and rendered["features"] is None and rendered["model"] == "canary"
    assert rendered["request_id"].startswith("chatcmpl-")
    body = {k: v for k, v in {**CHAT, **more}.items() if "stream" not in k}
    answer = asked(server, "/v1/chat/completions", {**body, "max_tokens": 1, "return_token_ids": True})
    assert answer["prompt_token_ids"] == rendered["token_ids"]
    assert answer["usage"]["prompt_tokens"] == len(rendered["token_ids"])


@pytest.mark.smoke
def test_parameters_have_the_models_defaults(server):
    plain = asked(server, "/v1/chat/completions/render", CHAT)["sampling_params"]
    assert plain["n"] == 1 and plain["seed"] is None and plain["logprobs"] is None and plain["stop"] == []
    assert plain["stop_token_ids"], "the model's end tokens"
    given = {"temperature": 0.25, "top_p": 0.5, "top_k": 7, "seed": 5, "max_tokens": 9, "stop": ["x", "y"], "n": 2,
             "frequency_penalty": 0.5, "logprobs": True, "top_logprobs": 3}
    told = asked(server, "/v1/chat/completions/render", {**CHAT, **given})["sampling_params"]
    assert {k: told[k] for k in given if k not in ("logprobs", "top_logprobs")} == \
        {k: v for k, v in given.items() if k not in ("logprobs", "top_logprobs")}
    assert told["logprobs"] == 3


@pytest.mark.smoke
def test_completions_are_a_list(server):
    prompts = ["mkdir", "What does mkdir do?"]
    rendered = asked(server, "/v1/completions/render", {"prompt": prompts, "max_tokens": 4, "n": 2})
    assert [list(r) for r in rendered] == [MEMBERS] * 2
    for i, r in enumerate(rendered):
        tokens = server.post("/tokenize", prompt=prompts[i]).json()["tokens"]
        assert r["token_ids"] == tokens and r["request_id"].startswith("cmpl-") and r["request_id"].endswith(f"-{i}")
        assert r["sampling_params"]["max_tokens"] == 4
    ids = [5, 6, 7]
    assert asked(server, "/v1/completions/render", {"prompt": ids})[0]["token_ids"] == ids
    assert asked(server, "/v1/completions/render", {"prompt": "one"})[0]["request_id"].endswith("-0")


@pytest.mark.smoke
def test_messages_and_responses(server):
    text = CHAT["messages"][0]["content"]
    chat = asked(server, "/v1/chat/completions/render", CHAT)["token_ids"]
    messages = asked(server, "/v1/messages/render", {**CHAT, "max_tokens": 5, "stream": True})
    assert list(messages) == MEMBERS and messages["sampling_params"]["max_tokens"] == 5
    counted = asked(server, "/v1/messages/count_tokens", CHAT)["input_tokens"]
    assert len(messages["token_ids"]) == counted
    responses = asked(server, "/v1/responses/render", {"model": "canary", "input": text})
    assert len(responses["token_ids"]) == asked(server, "/v1/responses/input_tokens", {"input": text})["input_tokens"]
    assert len(chat) > 0 and list(responses) == MEMBERS


@pytest.mark.smoke
def test_placeholders_of_images_are_rendered(server):
    picture = png_of(64, 96, (b"\0" + b"\x40\x80\xc0" * 64) * 96)
    body = {"model": "canary", **asking("What is it?", picture)}
    ids = asked(server, "/v1/chat/completions/render", body)["token_ids"]
    answer = asked(server, "/v1/chat/completions", {**body, "max_tokens": 1, "return_token_ids": True})
    assert answer["prompt_token_ids"] == ids and len(ids) > len(set(ids)) + 3


@pytest.mark.smoke
@pytest.mark.parametrize("path, body", [
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {**CHAT, "temperature": 9}),
    ("/v1/chat/completions", {**CHAT, "model": "nowhere"}),
    ("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "word " * 40000}]}),
    ("/v1/completions", {"prompt": "x", "max_tokens": -1}),
    ("/v1/messages", {**CHAT, "stream": True, "messages": []}),
    ("/v1/responses", {"input": 7}),
])
def test_it_is_refused_as_the_request_itself(server, path, body):
    refused, told = server.http.post(path, json=body), server.http.post(path + "/render", json=body)
    assert refused.status_code == told.status_code >= 400

    def error(reply):
        return {k: v for k, v in reply.json()["error"].items() if k != "request_id"}

    assert error(refused) == error(told)


def test_nothing_is_computed():
    with serving() as server:
        asked(server, "/v1/chat/completions/render", {**CHAT, "n": 4, "tools": TOOLS})
        asked(server, "/v1/completions/render", {"prompt": ["a", "b"]})
        assert metric(server, "plateau_engine_steps_total") == [0]
        assert metric(server, "vllm:prompt_tokens_total") == [0]


def test_it_wants_the_key_of_its_route(tmp_path):
    with serving("--api-key", "secret-of-users") as server:
        assert server.http.post("/v1/chat/completions/render", json=CHAT).status_code == 401
        key = {"authorization": "Bearer secret-of-users"}
        assert asked(server, "/v1/chat/completions/render", CHAT, **key)["token_ids"]
        assert server.http.get("/get_load").status_code == 401
        assert server.http.get("/get_load", headers=key).status_code == 200


@pytest.mark.smoke
def test_what_routers_read(server):
    for name in "model_info", "server_info":
        told, old = server.http.get("/" + name).json(), server.http.get("/get_" + name).json()
        assert not {"model_path", "tokenizer_path"} & set(told), "sglang-router looks for both on the public hub"
        told.pop("uptime_seconds", None), old.pop("uptime_seconds", None)
        assert {**told, "model_path": "canary"} == old
    load, = server.http.get("/get_load").json()
    assert load["dp_rank"] == 0 and load["num_reqs"] == load["num_waiting_reqs"] == 0 and load["num_tokens"] == 0
    found = re.findall(r'^vllm:cache_config_info\{model_name="canary",block_size="32",num_gpu_blocks="(\d+)",'
                       r'enable_prefix_caching="True"\} 1$', server.http.get("/metrics").text, re.M)
    assert len(found) == 1 and int(found[0]) > 0
    status, = [m for m in server.http.get("/api/status").json()["models"] if m["id"] == "canary"]
    assert int(found[0]) == status["pages_max"], json.dumps(status)[:300]


def test_the_load_is_that_of_now():
    with serving("--max-num-seqs", "1") as server:
        body = {"prompt": "x " * 40, "max_tokens": 20000, "ignore_eos": True, "stream": True}
        with Open(server, "/v1/completions", body) as first, Open(server, "/v1/completions", body):
            first.event()
            load = until(lambda: [n for n in server.http.get("/get_load").json() if n["num_reqs"] == 2])[0]
            assert load["num_waiting_reqs"] == 1 and load["num_tokens"] >= 64
        until(lambda: server.http.get("/get_load").json()[0]["num_reqs"] == 0)
