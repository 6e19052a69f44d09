"""Budgets for reasoning: after so many tokens the reasoning of a reply ends, and its answer begins."""

import pytest

from conftest import refused, serving

ASK = "What does mkdir do?"
THINK = {"enable_thinking": True, "temperature": 0}


def answered(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()


def chat(server, **fields):
    return answered(server.chat(ASK, max_tokens=300, return_token_ids=True, logprobs=True, **{**THINK, **fields}))


def reasoned(body):
    return body["usage"]["completion_tokens_details"]["reasoning_tokens"]


@pytest.fixture(scope="module")
def free(server):
    return chat(server)


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_reasoning_ends_at_the_budget(server, free, budget):
    assert reasoned(free) > 5
    bounded = chat(server, thinking_token_budget=budget)
    ids, before = bounded["choices"][0]["token_ids"], free["choices"][0]["token_ids"]
    (close,) = answered(server.post("/tokenize", prompt="</think>", add_special_tokens=False))["tokens"]
    assert reasoned(bounded) == budget == ids.index(close) and ids[:budget] == before[:budget]
    message = bounded["choices"][0]["message"]
    assert message["content"] and len(message.get("reasoning_content") or "") < len(free["choices"][0]["message"]["reasoning_content"])
    # Forced tokens have the model's logprobs.
    entries = bounded["choices"][0]["logprobs"]["content"]
    assert entries[budget]["token"] == "</think>" and -100 < entries[budget]["logprob"] <= 0
    again = chat(server, thinking_token_budget=budget, speculative=False)
    assert again["choices"][0]["token_ids"] == ids
    other = chat(server, thinking_token_budget=budget, n=3, temperature=1, seed=4)
    assert reasoned(other) <= 3 * budget


def test_reasoning_format_none_leaves_reasoning_in_the_text(server, free):
    whole = chat(server, reasoning_format="none")["choices"][0]
    message = free["choices"][0]["message"]
    assert whole["token_ids"] == free["choices"][0]["token_ids"]
    assert "reasoning_content" not in whole["message"] and "</think>" in whole["message"]["content"]
    assert message["reasoning_content"] in whole["message"]["content"] and whole["message"]["content"].endswith(message["content"])
    for word in "auto", "deepseek":
        assert chat(server, reasoning_format=word)["choices"][0]["message"] == message
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    refused(server.chat(ASK, reasoning_format="none", tools=[tool]), 400, "unsupported_value")


def test_a_large_budget_changes_nothing(server, free):
    assert chat(server, thinking_token_budget=4000)["choices"][0]["token_ids"] == free["choices"][0]["token_ids"]
    assert chat(server, thinking_token_budget=4, enable_thinking=False)["choices"][0]["token_ids"] == chat(
        server, enable_thinking=False)["choices"][0]["token_ids"]


def test_budgets_of_each_api(server):
    body = {"model": "canary", "messages": [{"role": "user", "content": ASK}], "max_tokens": 2000, "temperature": 0}
    reply = server.http.post("/v1/messages", json={**body, "thinking": {"type": "enabled", "budget_tokens": 1024}})
    assert [b["type"] for b in answered(reply)["content"]] == ["thinking", "text"] and "x-ignored-fields" not in reply.headers
    for wrong, words in [(1023, "1024"), (2000, "less than max_tokens, 2000"), ("x", "1024"), (None, "1024")]:
        reply = server.http.post("/v1/messages", json={**body, "thinking": {"type": "enabled", "budget_tokens": wrong}})
        assert reply.status_code == 400 and words in reply.json()["error"]["message"], reply.text
    fields = {"model": "canary", "input": ASK, "store": False, "max_output_tokens": 300, "thinking_token_budget": 5, **THINK}
    usage = answered(server.http.post("/v1/responses", json=fields))["usage"]
    assert usage["output_tokens_details"]["reasoning_tokens"] == 5
    refused(server.chat(ASK, thinking_token_budget=-1), 400, "invalid_value", "thinking_token_budget")
    reply = server.complete(ASK, max_tokens=2, thinking_token_budget=5)
    assert answered(reply) and reply.headers["x-ignored-fields"] == "thinking_token_budget"


def test_a_model_without_reasoning_says_so():
    with serving("--reasoning-format", "none") as server:
        reply = server.chat(ASK, max_tokens=2, thinking_token_budget=1)
        assert answered(reply) and reply.headers["x-ignored-fields"] == "thinking_token_budget"
