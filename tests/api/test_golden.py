"""The 24 conversations whose answers are known: the same tokens in every way of asking."""

import concurrent.futures

import pytest

from conftest import GOLDEN, case_fields, events

CASES = GOLDEN["cases"]
IDS = [f"case{i}" for i in range(len(CASES))]


def split(case):
    """Splits the reply's text into reasoning and content."""
    text = case["greedy_text"]
    if not case["enable_thinking"]:
        return "", text
    reasoning, _, content = text.partition("</think>")
    return reasoning.strip(), content.strip()


def ask(server, case, stream):
    """(token ids, prompt ids, reasoning, content, tool calls, finish reasons, usage) of a reply."""
    fields = case_fields(case, stream=stream)
    if stream:
        fields["stream_options"] = {"include_usage": True}
    r = server.post("/v1/chat/completions", **fields)
    assert r.status_code == 200, r.text
    return from_events(events(r.text)) if stream else from_reply(r.json())


def from_reply(reply):
    choice = reply["choices"][0]
    message = choice["message"]
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    return (choice["token_ids"], reply["prompt_token_ids"], message.get("reasoning_content", ""),
            message["content"] or "", calls, [choice["finish_reason"]], reply["usage"])


def from_events(found):
    assert found[-1] == "[DONE]"
    chunks = found[:-1]
    assert all(c["object"] == "chat.completion.chunk" for c in chunks)
    assert len({c["id"] for c in chunks}) == 1
    assert chunks[-1]["choices"] == []
    assert all(c["usage"] is None for c in chunks[:-1])
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    ids, reasoning, content, calls, reasons = [], "", "", [], []
    for choice in (c["choices"][0] for c in chunks[:-1]):
        delta = choice["delta"]
        ids += choice.get("token_ids", [])
        reasoning += delta.get("reasoning_content", "")
        content += delta.get("content", "")
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(calls) and call["type"] == "function"
                calls.append([call["function"]["name"], ""])
            calls[call["index"]][1] += call["function"]["arguments"]
        if choice["finish_reason"]:
            reasons.append(choice["finish_reason"])
    prompt_ids, usage = chunks[0]["prompt_token_ids"], chunks[-1]["usage"]
    return ids, prompt_ids, reasoning, content, [tuple(c) for c in calls], reasons, usage


def check(case, answer):
    ids, prompt_ids, reasoning, content, calls, reasons, usage = answer
    assert prompt_ids == case["prompt_ids"]
    assert ids == case["greedy_ids"]
    want_reasoning, want_content = split(case)
    assert reasoning.strip() == want_reasoning
    if "<tool_call>" in case["greedy_text"]:
        assert reasons == ["tool_calls"] and len(calls) == case["greedy_text"].count("<tool_call>")
        assert f"<function={calls[0][0]}>" in case["greedy_text"]
    else:
        assert reasons == ["stop"] and calls == []
        assert content.strip() == want_content
    assert usage["prompt_tokens"] == len(case["prompt_ids"])
    assert usage["completion_tokens"] == len(case["greedy_ids"])
    assert usage["total_tokens"] == len(case["prompt_ids"]) + len(case["greedy_ids"])
    assert usage["prompt_tokens_details"]["cached_tokens"] >= 0
    if case["enable_thinking"]:
        assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < len(case["greedy_ids"])
    else:
        assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


# Some of them also where each takes ten times as long: a chat, a tool call, thinking.
SHORT = [pytest.param(case, id=name, marks=[pytest.mark.smoke] if i in (8, 15, 17) else [])
         for i, (case, name) in enumerate(zip(CASES, IDS))]


@pytest.mark.parametrize("case", SHORT)
def test_one_at_a_time(server, case):
    check(case, ask(server, case, stream=False))


@pytest.mark.parametrize("case", SHORT)
def test_streamed(server, case):
    check(case, ask(server, case, stream=True))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_eight_at_a_time(server, stream):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda case: ask(server, case, stream), CASES))
    for case, answer in zip(CASES, answers):
        check(case, answer)


@pytest.mark.parametrize("case", CASES[::4], ids=IDS[::4])
def test_the_rendered_prompt_as_a_completion(server, case):
    """The prompt as text and as ids, in one request of two prompts."""
    r = server.complete([case["rendered"], case["prompt_ids"]], temperature=0, return_token_ids=True,
                        max_tokens=len(case["greedy_ids"]) + 8)
    assert r.status_code == 200, r.text
    for i, choice in enumerate(r.json()["choices"]):
        assert choice["index"] == i
        assert choice["prompt_token_ids"] == case["prompt_ids"]
        assert choice["token_ids"] == case["greedy_ids"]
        assert choice["text"] in case["greedy_text"]


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_tokenize_and_template(server, case):
    fields = {"messages": case["messages"], "chat_template_kwargs": {"enable_thinking": case["enable_thinking"]}}
    if case["tools"]:
        fields["tools"] = case["tools"]
    assert server.post("/apply-template", **fields).json()["prompt"] == case["rendered"]
    counted = server.post("/tokenize", **fields).json()
    assert counted["tokens"] == case["prompt_ids"] and counted["count"] == len(case["prompt_ids"])
    assert server.post("/tokenize", prompt=case["rendered"]).json()["tokens"] == case["prompt_ids"]
    assert server.post("/detokenize", tokens=case["prompt_ids"]).json()["prompt"] == case["rendered"]


@pytest.mark.parametrize("entry", GOLDEN["tokenizer"], ids=lambda e: repr(e["text"][:20]))
def test_strings(server, entry):
    assert server.post("/tokenize", prompt=entry["text"]).json()["tokens"] == entry["ids"]
    assert server.post("/detokenize", tokens=entry["ids"]).json()["content"] == entry["decoded"]
