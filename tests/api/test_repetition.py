"""Loops: a reply that repeats itself ends, or its reasoning does, in each dialect, whole and in a stream."""

import json

import pytest

from conftest import events, refused, serving

ASK = [{"role": "user", "content": "What does mkdir do?"}]
FIND = {"max_pattern_size": 4, "min_count": 12}
PATHS = {"chats": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses", "completions": "/v1/completions"}


def tokens_of(server, text):
    return server.post("/tokenize", prompt=text, add_special_tokens=False).json()["tokens"]


@pytest.fixture(scope="module")
def bias(server):
    """Makes every reply one word, again and again."""
    return {str(tokens_of(server, " dir")[0]): 100}


def body_of(dialect, bias, stream=False, think=False, limit=400, **fields):
    prompt = {"completions": {"prompt": "mkdir"}, "responses": {"input": "What does mkdir do?", "store": False}}.get(dialect, {"messages": ASK})
    limit = {"max_output_tokens" if dialect == "responses" else "max_tokens": limit}
    think = {} if dialect == "completions" else {"thinking": {"type": "adaptive" if think else "disabled"}} if dialect == "messages" else {
        "enable_thinking": think}
    return {"model": "canary", **prompt, **limit, **think, "logit_bias": bias, "temperature": 0, "stream": stream, **fields}


def parsed(reply):
    return [e for e in events(reply.text) if e != "[DONE]"]


def ends(dialect, reply, stream):
    """How the reply says that it ended, and its text, reasoning and number of tokens."""
    assert reply.status_code == 200, reply.text
    if not stream:
        body = reply.json()
        if dialect == "messages":
            parts = {b["type"]: b.get("text", b.get("thinking")) for b in body["content"]}
            return body["stop_reason"], parts.get("text", ""), parts.get("thinking", ""), body["usage"]["output_tokens"]
        if dialect == "responses":
            text = "".join(c["text"] for i in body["output"] if i["type"] == "message" for c in i["content"])
            thought = "".join(c["text"] for i in body["output"] if i["type"] == "reasoning" for c in i["content"])
            assert body["status"] == ("incomplete" if body["incomplete_details"] else "completed")
            return (body["incomplete_details"] or {}).get("reason"), text, thought, body["usage"]["output_tokens"]
        choice = body["choices"][0]
        assert choice["stop_reason"] == ("repetition_detected" if choice["finish_reason"] == "repetition" else None)
        if dialect == "completions":
            return choice["finish_reason"], choice["text"], "", body["usage"]["completion_tokens"]
        m = choice["message"]
        return choice["finish_reason"], m["content"] or "", m.get("reasoning_content") or "", body["usage"]["completion_tokens"]
    all_events = parsed(reply)
    if dialect == "messages":
        deltas = [e["delta"] for e in all_events if e["type"] == "content_block_delta"]
        (last,) = [e for e in all_events if e["type"] == "message_delta"]
        return (last["delta"]["stop_reason"], "".join(d.get("text", "") for d in deltas),
                "".join(d.get("thinking", "") for d in deltas), last["usage"]["output_tokens"])
    if dialect == "responses":
        last = all_events[-1]
        assert last["type"] == ("response.incomplete" if last["response"]["incomplete_details"] else "response.completed")
        joined = {kind: "".join(e["delta"] for e in all_events if e["type"] == f"response.{kind}.delta") for kind in ("output_text", "reasoning_text")}
        return ((last["response"]["incomplete_details"] or {}).get("reason"), joined["output_text"], joined["reasoning_text"],
                last["response"]["usage"]["output_tokens"])
    choices = [e["choices"][0] for e in all_events if e["choices"]]
    text = "".join((c.get("delta", {}).get("content") if "delta" in c else c["text"]) or "" for c in choices)
    thought = "".join(c.get("delta", {}).get("reasoning_content") or "" for c in choices)
    usage = [e["usage"] for e in all_events if e.get("usage")]
    return choices[-1]["finish_reason"], text, thought, usage[-1]["completion_tokens"]


def ask(server, dialect, bias, stream=False, **fields):
    if stream and dialect in ("chats", "completions"):
        fields["stream_options"] = {"include_usage": True}
    body = body_of(dialect, bias, stream, **fields)
    return ends(dialect, server.http.post(PATHS[dialect], json=body), stream)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_a_loop_ends_the_reply(server, bias, dialect, stream):
    reason, text, _, tokens = ask(server, dialect, bias, stream, repetition_detection=FIND)
    assert (reason, tokens, text.split()) == ("repetition", 12, ["dir"] * 12)
    slow = ask(server, dialect, bias, stream, repetition_detection=FIND, speculative=False)
    assert slow == (reason, text, "", tokens)
    # Without the field the limit ends it; a limit of the request comes first.
    length = {"messages": "max_tokens", "responses": "max_output_tokens"}.get(dialect, "length")
    assert ask(server, dialect, bias, stream, limit=40)[::3] == (length, 40)
    assert ask(server, dialect, bias, stream, limit=12, repetition_detection=FIND)[::3] == (length, 12)
    assert ask(server, dialect, bias, stream, limit=40, repetition_detection={"max_pattern_size": 0})[::3] == (length, 40)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", ["chats", "messages", "responses"])
def test_a_loop_may_end_the_reasoning_alone(server, bias, dialect, stream):
    before = server.metrics()
    limits = {**FIND, "end": "reasoning", "min_tokens": 20}
    reason, text, thought, tokens = ask(server, dialect, bias, stream, think=True, repetition_detection=limits)
    assert (reason, tokens) == ("repetition", 41)  # 20 tokens, the marker, 20 tokens
    assert text.split() == thought.split() == ["dir"] * 20
    reason, text, thought, tokens = ask(server, dialect, bias, stream, think=True, repetition_detection={**limits, "end": "reply"})
    assert (reason, tokens, text.split(), thought.split()) == ("repetition", 20, [], ["dir"] * 20)
    after = server.metrics()
    grew = {k: after[k] - before.get(k, 0) for k in after if "reasoning_loops_total" in k or 'finished_reason="repetition"' in k}
    assert sorted(v for v in grew.values() if v) == [1, 2], grew


def test_an_answer_follows_the_reasoning(server, bias):
    """The marker is the only token that the bias does not allow: what follows is the model's own."""
    reply = server.chat(ASK[0]["content"], max_tokens=300, temperature=0, enable_thinking=True, return_token_ids=True,
                        repetition_detection={"max_pattern_size": 1, "min_count": 2, "end": "reasoning"})
    free = server.chat(ASK[0]["content"], max_tokens=300, temperature=0, enable_thinking=True, return_token_ids=True)
    assert reply.status_code == free.status_code == 200
    # The canary does not repeat a token, so nothing is ended.
    assert reply.json()["choices"][0]["token_ids"] == free.json()["choices"][0]["token_ids"]


def test_stop_strings_grammars_and_calls(server, bias):
    reply = server.chat("Go on.", max_tokens=100, logit_bias=bias, temperature=0, stop=["dir dir dir"], repetition_detection=FIND).json()["choices"][0]
    assert (reply["finish_reason"], reply["stop_reason"]) == ("stop", "dir dir dir")
    # A stop string that may yet come holds text back: the end gives it out.
    reply = server.chat("Go on.", max_tokens=100, logit_bias=bias, temperature=0, stop=["dir dirx"], repetition_detection=FIND).json()["choices"][0]
    assert (reply["finish_reason"], reply["message"]["content"].split()) == ("repetition", ["dir"] * 12)
    zero = {str(tokens_of(server, "0")[0]): 50}
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "string", "pattern": "^0{1,200}$"}}}
    whole = server.chat("Zeros.", max_tokens=300, logit_bias=zero, temperature=0, response_format=schema).json()["choices"][0]
    assert whole["finish_reason"] == "stop" and len(json.loads(whole["message"]["content"])) == 200
    cut = server.chat("Zeros.", max_tokens=300, logit_bias=zero, temperature=0, response_format=schema,
                      repetition_detection={"max_pattern_size": 8, "min_count": 40}).json()["choices"][0]
    assert cut["finish_reason"] == "repetition" and whole["message"]["content"].startswith(cut["message"]["content"])
    tool = {"type": "function", "function": {"name": "f", "parameters": schema["json_schema"]["schema"] and {
        "type": "object", "properties": {"n": schema["json_schema"]["schema"]}, "required": ["n"]}}}
    for field in ({}, {"stream": True}):
        reply = server.chat("Zeros.", max_tokens=300, logit_bias=zero, temperature=0, tools=[tool], tool_choice="required",
                            repetition_detection={"max_pattern_size": 8, "min_count": 40}, **field)
        choices = [e["choices"][0] for e in parsed(reply)] if field else [reply.json()["choices"][0]]
        calls = [c for each in choices for c in (each.get("delta") or each.get("message") or {}).get("tool_calls") or []]
        arguments = "".join(c["function"].get("arguments", "") for c in calls)
        assert choices[-1]["finish_reason"] == "repetition"
        with pytest.raises(json.JSONDecodeError):  # the half call is not made to look whole
            json.loads(arguments)


@pytest.mark.parametrize("wrong, words", [
    (5, "object"), ([], "object"), ({"max_pattern_size": -1}, "max_pattern_size"), ({"max_pattern_size": 1025, "min_count": 2}, "1024"),
    ({"max_pattern_size": 2, "min_pattern_size": 3, "min_count": 2}, "at most max_pattern_size"),
    ({"max_pattern_size": 2, "min_count": 1}, "at least 2"), ({"max_pattern_size": 2}, "at least 2"),
    ({"max_pattern_size": 2, "min_count": 2, "end": "thought"}, "reasoning"), ({"max_pattern_size": 2, "min_count": 2, "end": 1}, "reasoning"),
    ({"max_pattern_size": "2"}, "integer"), ({"max_pattern_size": 2, "min_count": 1 << 40}, "min_count")])
def test_what_is_refused(server, wrong, words):
    refused(server.chat("x", repetition_detection=wrong), 400, "invalid_value", "repetition_detection", words)


def test_unknown_members_are_named(server):
    reply = server.chat("What does mkdir do?", max_tokens=2, repetition_detection={**FIND, "window": 3})
    assert reply.status_code == 200 and reply.headers["x-ignored-fields"] == "repetition_detection.window"


def test_the_option_finds_loops_of_conversations():
    with serving("--repetition-detection", "reasoning", "--max-model-len", "4096") as server:
        bias = {str(tokens_of(server, " dir")[0]): 100}
        reason, text, thought, tokens = ask(server, "messages", bias, think=True, limit=3000)
        assert (reason, tokens) == ("repetition", 2 * 768 + 1) and text.split() == thought.split() == ["dir"] * 768
        assert ask(server, "chats", bias, limit=1000, repetition_detection={"max_pattern_size": 0})[::3] == ("length", 1000)
        assert ask(server, "chats", bias, limit=1000, ignore_eos=True)[::3] == ("length", 1000)
        assert ask(server, "completions", bias, limit=1000)[::3] == ("length", 1000)
        server.says("repetition_found")
