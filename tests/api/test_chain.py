"""Over HTTP, with OpenAI's own client: the reference's answers, and clear refusals."""

import concurrent.futures
import json
import socket
import time

import httpx
import openai
import pytest

from conftest import GOLDEN


@pytest.fixture(scope="module")
def golden():
    return GOLDEN


@pytest.fixture(scope="module")
def base(server):
    return server.url


@pytest.fixture(scope="module")
def client(server):
    return server.client()


def accounts(base):
    """What the model's accounts hold when nothing is going on, by name."""
    found = {}

    def walk(account):
        found[account["name"]] = account["used_bytes"]
        for child in account["children"]:
            walk(child)

    deadline = time.monotonic() + 20
    while True:
        status = httpx.get(base + "/api/status").json()
        model = status["models"][0]
        if not status["requests"] and model["idle"] and model["pages_committed"] == 0:
            break
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    walk(httpx.get(base + "/api/memory").json()["accounts"][0])
    return {name: found[name] for name in ("kv", "state", "requests")}


def chat_arguments(case):
    messages = json.loads(json.dumps(case["messages"]))
    for message in messages:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
            call.setdefault("id", "call_1")
            call.setdefault("type", "function")
    arguments = dict(
        model="canary",
        messages=messages,
        temperature=0,
        extra_body={
            "return_token_ids": True,
            "chat_template_kwargs": {"enable_thinking": bool(case["enable_thinking"])},
        },
    )
    if case["tools"]:
        arguments["tools"] = case["tools"]
    return arguments


def whole(client, case):
    reply = client.chat.completions.create(**chat_arguments(case))
    assert reply.usage.prompt_tokens == len(case["prompt_ids"])
    return reply.choices[0].model_dump()["token_ids"]


def streamed(client, case):
    ids, reasons, roles = [], [], []
    for chunk in client.chat.completions.create(stream=True, **chat_arguments(case)):
        for choice in chunk.model_dump()["choices"]:
            ids += choice.get("token_ids") or []
            roles.append(choice["delta"].get("role"))
            if choice["finish_reason"]:
                reasons.append(choice["finish_reason"])
    assert roles[0] == "assistant" and len(reasons) == 1
    return ids


@pytest.mark.parametrize("ask", [whole, streamed])
def test_every_golden_case_alone(client, golden, ask):
    for case in golden["cases"]:
        assert ask(client, case) == case["greedy_ids"], case["greedy_text"]


@pytest.mark.parametrize("ask", [whole, streamed])
def test_every_golden_case_eight_at_a_time(client, golden, ask):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda case: ask(client, case), golden["cases"]))
    assert got == [case["greedy_ids"] for case in golden["cases"]]


@pytest.mark.smoke
def test_a_completion_of_token_ids(client, golden):
    case = golden["cases"][8]
    reply = client.completions.create(
        model="canary", prompt=case["prompt_ids"], temperature=0, max_tokens=64, extra_body={"return_token_ids": True}
    )
    assert reply.choices[0].model_dump()["token_ids"] == case["greedy_ids"]


@pytest.mark.smoke
def test_a_tool_call_is_parsed_whole_and_streamed(client, golden):
    case = golden["cases"][15]
    message = client.chat.completions.create(**chat_arguments(case)).choices[0].message
    assert not message.content
    assert message.tool_calls[0].function.name == "read_file"
    assert json.loads(message.tool_calls[0].function.arguments) == {"path": "/home/ben/hinu.txt"}
    name, arguments, text = "", "", ""
    for chunk in client.chat.completions.create(stream=True, **chat_arguments(case)):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                name += call.function.name or ""
                arguments += call.function.arguments or ""
    assert (name, json.loads(arguments), text) == ("read_file", {"path": "/home/ben/hinu.txt"}, "")


@pytest.mark.smoke
def test_reasoning_is_told_apart(client, golden):
    case = golden["cases"][17]
    message = client.chat.completions.create(**chat_arguments(case)).choices[0].message.model_dump()
    assert message["reasoning_content"] == "The user asks about tcgetpgrp, section 3."
    assert message["content"].startswith("tcgetpgrp(3)") and "think>" not in message["content"]


@pytest.mark.smoke
def test_a_stop_string_ends_the_text_before_it(client):
    reply = client.chat.completions.create(
        model="canary", messages=[{"role": "user", "content": "What is chsh?"}], temperature=0, stop=["login"]
    )
    assert reply.choices[0].message.content == "chsh(1) - change "
    assert reply.choices[0].finish_reason == "stop"


@pytest.mark.smoke
def test_the_same_seed_gives_the_same_text_in_any_company(client):
    def ask(seed):
        return client.completions.create(
            model="canary", prompt="The", temperature=1.5, seed=seed, max_tokens=24, extra_body={"ignore_eos": True}
        ).choices[0].text

    alone = ask(11)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = list(pool.map(ask, [11, 12, 13, 11, 14, 15]))
    assert together[0] == together[3] == alone
    assert len(set(together)) > 2


@pytest.mark.smoke
@pytest.mark.parametrize(
    "change, status, word",
    [
        ({"temperature": 9}, 400, "temperature"),
        ({"model": "nobody"}, 404, "nobody"),
        ({"messages": []}, 400, "messages"),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "tool_choice"),
        ({"max_tokens": 10**9}, 400, "max_tokens"),
        ({"logit_bias": {"999999": 1}}, 400, "logit_bias"),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(base, change, status, word):
    body = {"model": "canary", "messages": [{"role": "user", "content": "x"}]}
    reply = httpx.post(base + "/v1/chat/completions", json={**body, **change})
    assert reply.status_code == status, reply.text
    assert word in reply.json()["error"]["message"]
    assert reply.headers["x-request-id"]


@pytest.mark.smoke
def test_a_client_that_leaves_takes_its_request_along(base):
    host, port = base.split("//")[1].split(":")
    body = json.dumps({"model": "canary", "prompt": "a", "max_tokens": 8000, "ignore_eos": True, "stream": True})
    with socket.create_connection((host, int(port))) as s:
        s.sendall(
            f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert s.recv(100)
        assert httpx.get(base + "/api/status").json()["active_requests"] == 1
    time.sleep(0.3)
    assert httpx.get(base + "/api/status").json()["active_requests"] == 0


def test_many_mixed_requests_leave_nothing(base):
    before = accounts(base)
    errors = []

    def one(i):
        body = {"model": "canary", "prompt": "word " * (1 + i * 7 % 90), "max_tokens": 1 + i * 5 % 40, "ignore_eos": True, "stream": True}
        try:
            with httpx.stream("POST", base + "/v1/completions", json=body, timeout=60) as reply:
                assert reply.status_code == 200
                for n, _ in enumerate(reply.iter_lines()):
                    if i % 3 == 0 and n >= i % 11:
                        return  # leaves in the middle
        except (httpx.HTTPError, AssertionError) as error:
            errors.append(repr(error))

    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        list(pool.map(one, range(300)))
    assert not errors
    assert accounts(base) == before


@pytest.mark.smoke
def test_metrics_and_live(base):
    assert httpx.get(base + "/live").status_code == 200
    text = httpx.get(base + "/metrics").text
    assert "plateau_memory_bytes" in text and "vllm:generation_tokens_total" in text
