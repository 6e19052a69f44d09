"""Required calls, named tools, strict arguments and parallel calls, on three APIs. The bundled model calls
nothing by itself here: its calls are right because the grammar allows nothing else."""

import json

import pytest

from conftest import ANSWER_S, anthropic, events, openai

SCHEMA = {"type": "object", "properties": {
    "path": {"type": "string", "pattern": "^/[a-z]{1,8}$"},
    "mode": {"type": "string", "enum": ["read", "write"]},
    "lines": {"type": "integer", "minimum": 1, "maximum": 9},
    "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
}, "required": ["path", "mode", "lines", "tags"], "additionalProperties": False}
SIMPLE = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
          "additionalProperties": False}
ASK = [{"role": "user", "content": "What does mkdir do?"}]


def chat_tool(name, schema, **more):
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema, **more}}


TOOLS = [chat_tool("open_file", SCHEMA), chat_tool("count", SIMPLE)]
CLAUDE = [{"name": t["function"]["name"], "input_schema": t["function"]["parameters"]} for t in TOOLS]
FLAT = [{"type": "function", "name": t["function"]["name"], "parameters": t["function"]["parameters"]} for t in TOOLS]


def fits(name, arguments):
    if name == "count":
        return set(arguments) == {"n"} and type(arguments["n"]) is int and 0 <= arguments["n"] <= 99
    path = arguments.pop("path")
    return (name == "open_file" and path[0] == "/" and path[1:].isalpha() and len(path) <= 9
            and arguments.pop("mode") in ("read", "write") and 1 <= arguments.pop("lines") <= 9
            and len(arguments["tags"]) <= 2 and set(arguments.pop("tags")) <= {"a", "b"} and not arguments)


def calls_of(message):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or []]


def chat(server, **fields):
    fields = {"messages": ASK, "tools": TOOLS, "temperature": 0, "max_tokens": 400, **fields}
    reply = server.http.post("/v1/chat/completions", json={"model": "canary", **fields})
    assert reply.status_code == 200, reply.text
    return reply


def refused(server, route, word, **fields):
    reply = server.http.post(route, json={"model": "canary", "max_tokens": 20, **fields})
    assert reply.status_code == 400, reply.text
    assert word in reply.json()["error"]["message"]


def named(name):
    return {"type": "function", "function": {"name": name}}


# ---- chat ----

@pytest.mark.parametrize("choice, names", [
    ("required", {"open_file", "count"}), (named("open_file"), {"open_file"}), (named("count"), {"count"}),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named("count")]}}, {"count"})])
def test_a_required_call_comes(server, choice, names):
    reply = chat(server, tool_choice=choice).json()["choices"][0]
    calls = calls_of(reply["message"])
    assert calls and reply["finish_reason"] == "tool_calls" and not (reply["message"]["content"] or "").strip()
    for name, arguments in calls:
        assert name in names and fits(name, arguments)


@pytest.mark.parametrize("seed", range(6))
def test_required_calls_are_right_at_any_temperature(server, seed):
    reply = chat(server, tool_choice="required", temperature=1.5, seed=seed, parallel_tool_calls=False).json()["choices"][0]
    [(name, arguments)] = calls_of(reply["message"])
    assert reply["finish_reason"] == "tool_calls" and fits(name, arguments)


@pytest.mark.parametrize("seed", range(4))
def test_a_named_tool_is_called_once(server, seed):
    """On three APIs, where nothing turns parallel calls off. "required" may bring several."""
    ask = {"temperature": 1.5, "seed": seed}
    reply = chat(server, tool_choice=named("count"), **ask).json()["choices"][0]
    [(name, arguments)] = calls_of(reply["message"])
    assert reply["finish_reason"] == "tool_calls" and name == "count" and fits(name, arguments)
    claude = server.post("/v1/messages", messages=ASK, max_tokens=400, tools=CLAUDE,
                         tool_choice={"type": "tool", "name": "count"}, **ask).json()
    assert [b["type"] for b in claude["content"]] == ["tool_use"] and claude["stop_reason"] == "tool_use"
    flat = server.post("/v1/responses", input=ASK, max_output_tokens=400, store=False, tools=FLAT,
                       tool_choice={"type": "function", "name": "count"}, **ask).json()
    assert [i["type"] for i in flat["output"]] == ["function_call"] and flat["parallel_tool_calls"] is True


def test_a_streamed_call_is_the_same(server):
    whole = chat(server, tool_choice=named("open_file"), seed=1).json()["choices"][0]
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=ANSWER_S) as client:
        stream = client.chat.completions.create(model="canary", messages=ASK, tools=TOOLS, temperature=0, max_tokens=400,
                                                seed=1, tool_choice=named("open_file"), stream=True)
        text, names, reasons = "", [], []
        for chunk in stream:
            for call in chunk.choices[0].delta.tool_calls or []:
                names += [call.function.name] if call.function.name else []
                text += call.function.arguments or ""
            reasons.append(chunk.choices[0].finish_reason)
    assert [(names[0], json.loads(text))] == calls_of(whole["message"]) and reasons[-1] == "tool_calls"


def test_reasoning_comes_before_a_required_call(server):
    reply = chat(server, tool_choice="required", enable_thinking=True, max_tokens=600).json()["choices"][0]
    if reply["finish_reason"] == "length":
        assert not reply["message"].get("content")
    else:
        assert reply["finish_reason"] == "tool_calls" and all(fits(*c) for c in calls_of(reply["message"]))


def test_strict_arguments_follow_the_schema(server):
    tools = [chat_tool("open_file", SCHEMA, strict=True), chat_tool("count", SIMPLE, strict=True)]
    reply = chat(server, tools=tools)
    assert "x-ignored-fields" not in reply.headers
    for seed in range(4):
        choice = chat(server, tools=tools, tool_choice="required", temperature=1.2, seed=seed).json()["choices"][0]
        assert all(fits(*c) for c in calls_of(choice["message"])) and calls_of(choice["message"])


def test_text_stays_text(server):
    """A grammar of text and calls changes no token of a reply that has none."""
    free = server.http.post("/v1/chat/completions", json={"model": "canary", "messages": ASK, "temperature": 0, "max_tokens": 60})
    text = free.json()["choices"][0]["message"]["content"]
    again = chat(server, tools=TOOLS, tool_choice="none", max_tokens=60).json()["choices"][0]
    assert again["message"]["content"] == text
    assert chat(server, max_tokens=60).json()["choices"][0]["finish_reason"] in ("stop", "tool_calls", "length")


@pytest.mark.parametrize("seed", range(4))
def test_a_format_or_calls(server, seed):
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 9, "minimum": 0}}, "required": ["x"],
              "additionalProperties": False}
    reply = chat(server, temperature=1.5, seed=seed, max_tokens=300, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}).json()["choices"][0]
    calls = calls_of(reply["message"]) if reply["finish_reason"] != "length" else []
    if not calls and reply["finish_reason"] == "stop":
        assert 0 <= json.loads(reply["message"]["content"])["x"] <= 9


def test_unknown_and_missing_tools_are_refused(server):
    path = "/v1/chat/completions"
    refused(server, path, '"other"', messages=ASK, tools=TOOLS, tool_choice=named("other"))
    refused(server, path, "no tools", messages=ASK, tool_choice="required")
    refused(server, path, "tool_choice", messages=ASK, tools=TOOLS, tool_choice={"type": "function"})
    refused(server, path, "contains", messages=ASK, tools=[chat_tool("f", {
        "type": "object", "properties": {"a": {"type": "array", "contains": {"type": "integer"}}}}, strict=True)])
    refused(server, "/v1/messages", '"other"', messages=ASK, tools=CLAUDE, tool_choice={"type": "tool", "name": "other"})
    reply = server.http.post("/v1/responses", json={"model": "canary", "input": "a", "tools": FLAT,
                                                    "tool_choice": {"type": "function", "name": "other"}})
    assert reply.status_code == 400 and "other" in reply.json()["error"]["message"]


# ---- Messages ----

@pytest.mark.parametrize("choice, names", [
    ({"type": "any", "disable_parallel_tool_use": True}, {"open_file", "count"}),
    ({"type": "tool", "name": "count", "disable_parallel_tool_use": True}, {"count"})])
def test_messages_require_one(server, choice, names):
    with anthropic.Anthropic(base_url=server.url, api_key="none", timeout=ANSWER_S) as client:
        fields = dict(model="canary", max_tokens=400, messages=ASK, tools=CLAUDE, tool_choice=choice, extra_body={"temperature": 0})
        whole = client.messages.create(**fields)
        with client.messages.stream(**fields) as stream:
            streamed = stream.get_final_message()
    for reply in whole, streamed:
        [call] = [b for b in reply.content if b.type == "tool_use"]
        assert reply.stop_reason == "tool_use" and call.name in names and fits(call.name, dict(call.input))


# ---- Responses ----

@pytest.mark.parametrize("choice, names", [
    ("required", {"open_file", "count"}), ({"type": "function", "name": "count"}, {"count"}),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "open_file"}]}, {"open_file"})])
def test_responses_require_one(server, choice, names):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=ANSWER_S) as client:
        fields = dict(model="canary", input="What does mkdir do?", tools=FLAT, tool_choice=choice, temperature=0, store=False,
                      max_output_tokens=400, parallel_tool_calls=False)
        whole = client.responses.create(**fields)
        done = [e for e in client.responses.create(stream=True, **fields) if e.type == "response.completed"]
    for reply in [whole] + [e.response for e in done]:
        [call] = [i for i in reply.output if i.type == "function_call"]
        assert reply.status == "completed" and call.name in names and fits(call.name, json.loads(call.arguments))


def test_a_custom_tool_is_called(server):
    reply = server.http.post("/v1/responses", json={
        "model": "canary", "input": "a", "tools": [{"type": "custom", "name": "shell"}], "store": False, "temperature": 0,
        "tool_choice": {"type": "custom", "name": "shell"}, "max_output_tokens": 300, "parallel_tool_calls": False})
    assert reply.status_code == 200, reply.text
    calls = [i for i in reply.json()["output"] if i["type"] == "custom_tool_call"]
    assert reply.json()["status"] == "incomplete" or (len(calls) == 1 and calls[0]["name"] == "shell")


# ---- cut by the limit ----

def test_a_call_that_is_cut_is_no_text(server):
    """A call cut after each of its first tokens: none of its markup is content, in three APIs."""
    named_call = 0
    for limit in range(1, 14):
        for stream in False, True:
            reply = server.http.post("/v1/chat/completions", json={
                "model": "canary", "messages": ASK, "tools": TOOLS[1:], "tool_choice": "required", "temperature": 0,
                "max_tokens": limit, "stream": stream})
            assert not any(word in reply.text for word in ("tool_call>", "<function", "<func")), reply.text
            assert '"finish_reason":"length"' in reply.text
            named_call += '"name":"count"' in reply.text
        claude = server.http.post("/v1/messages", json={
            "messages": ASK, "tools": CLAUDE[1:], "tool_choice": {"type": "any"}, "temperature": 0, "max_tokens": limit}).json()
        assert claude["stop_reason"] == "max_tokens" and [b["type"] for b in claude["content"]] in ([], ["tool_use"])
        flat = server.http.post("/v1/responses", json={
            "input": ASK, "tools": FLAT[1:], "tool_choice": "required", "temperature": 0, "max_output_tokens": limit,
            "store": False}).json()
        assert flat["status"] == "incomplete" and [o["type"] for o in flat["output"]] in ([], ["function_call"])
    assert 0 < named_call < 26, "the limit has to fall before and behind the name"


TEXT = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}, "required": ["path", "content"],
        "additionalProperties": False}


def is_open(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    return True


@pytest.mark.parametrize("limit", [13, 20, 38])
def test_arguments_that_are_cut_stay_open(server, limit):
    """Neither a strict grammar nor a writer closes them: an agent must not write half a file."""
    ask = {"messages": ASK, "temperature": 0, "max_tokens": limit}
    chats = {**ask, "tools": [chat_tool("write", TEXT, strict=True)], "tool_choice": "required"}
    (choice,) = server.post("/v1/chat/completions", **chats).json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    text = call["function"]["arguments"]
    assert choice["finish_reason"] == "length" and is_open(text) and text.startswith("{")
    found = events(server.post("/v1/chat/completions", stream=True, **chats).text)
    pieces = [c["function"].get("arguments", "") for e in found[:-1] for c in e["choices"][0]["delta"].get("tool_calls", [])]
    assert "".join(pieces) == text

    claude = {**ask, "tools": [{"name": "write", "strict": True, "input_schema": TEXT}], "tool_choice": {"type": "any"}}
    (block,) = server.post("/v1/messages", **claude).json()["content"]
    assert block["input"] == {"INVALID_JSON": text}
    found = server.post("/v1/messages", stream=True, **claude).text
    deltas = [json.loads(line[6:]).get("delta", {}) for line in found.splitlines() if line.startswith("data: ")]
    assert "".join(d.get("partial_json", "") for d in deltas) == text

    flat = {"input": ASK, "temperature": 0, "max_output_tokens": limit, "store": False, "tool_choice": "required",
            "tools": [{"type": "function", "name": "write", "strict": True, "parameters": TEXT}]}
    (item,) = server.post("/v1/responses", **flat).json()["output"]
    assert item["arguments"] == text and item["status"] == "incomplete"
    *_, last = events(server.post("/v1/responses", stream=True, **flat).text)
    assert last["type"] == "response.incomplete" and last["response"]["output"][0]["arguments"] == text

    # The conversation goes on.
    history = [*ASK, choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "not JSON"}]
    assert server.post("/v1/chat/completions", **{**chats, "messages": history, "tool_choice": "auto"}).status_code == 200
    flat["input"] = [*ASK, item, {"type": "function_call_output", "call_id": item["call_id"], "output": "not JSON"}]
    assert server.post("/v1/responses", **{**flat, "tool_choice": "auto"}).status_code == 200


def test_a_stop_string_leaves_arguments_open(server):
    body = {"messages": ASK, "temperature": 0, "max_tokens": 60, "tools": [chat_tool("write", TEXT, strict=True)], "tool_choice": "required"}
    whole = server.post("/v1/chat/completions", **body).json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    stop = whole.split('"path": "')[1].split()[1]
    (choice,) = server.post("/v1/chat/completions", stop=stop, **body).json()["choices"]
    assert choice["finish_reason"] == "stop" and is_open(choice["message"]["tool_calls"][0]["function"]["arguments"])


@pytest.mark.parametrize("limit", [13, 18, 22])
def test_the_input_of_a_custom_tool_is_cut_as_text(server, limit):
    ask = {"temperature": 0, "tool_choice": "required"}
    flat = {**ask, "input": ASK, "store": False, "tools": [{"type": "custom", "name": "shell"}]}
    (item,) = server.post("/v1/responses", max_output_tokens=limit, **flat).json()["output"]
    longer = server.post("/v1/responses", max_output_tokens=limit + 9, **flat).json()["output"][0]["input"]
    assert item["status"] == "incomplete" and longer.startswith(item["input"]) and "input" not in item["input"]
    chats = {**ask, "messages": ASK, "max_tokens": limit, "tools": [{"type": "custom", "custom": {"name": "shell"}}]}
    (choice,) = server.post("/v1/chat/completions", **chats).json()["choices"]
    assert choice["finish_reason"] == "length" and choice["message"]["tool_calls"][0]["custom"]["input"] == item["input"]
