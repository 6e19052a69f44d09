"""Custom tools of chats: their input follows a grammar, and calls carry the text alone, whole, in streams
and in the history. tests/api/test_responses.py has those of Responses."""

import json
import re

import pytest

from conftest import ANSWER_S, events, openai, refused

PATH = "/v1/chat/completions"
ASK = [{"role": "user", "content": "Call it."}]
CODE = r"[A-F]{2}-\d{3}|x{4}"
LIST = 'start: "[" item ("," item)~0..2 "]"\nitem: /[a-c]{1,3}/'
LISTS = r"\[[a-c]{1,3}(,[a-c]{1,3}){0,2}\]"
FUNCTION = {"type": "function", "function": {"name": "get_time", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Lima", "Rome"]}}, "required": ["city"]}}}


def custom(name, syntax=None, definition=None, **more):
    form = {"format": {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}} if syntax else {}
    return {"type": "custom", "custom": {"name": name, "description": "A tool.", **form, **more}}


TOOLS = [custom("code", "regex", CODE), custom("list", "lark", LIST), FUNCTION]
NAMED = {"type": "custom", "custom": {"name": "list"}}


def post(server, messages=ASK, **fields):
    return server.http.post(PATH, json={"model": "canary", "messages": messages, "temperature": 1, "max_tokens": 300,
                                        "parallel_tool_calls": False, **fields})


def calls_of(reply):
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    return choice["message"]["tool_calls"]


def check(call):
    assert set(call) == {"id", "type", call["type"]} and call["id"]
    if call["type"] == "function":
        assert json.loads(call["function"]["arguments"])["city"] in ("Lima", "Rome")
        return
    assert set(call["custom"]) == {"name", "input"}
    pattern = {"code": CODE, "list": LISTS}[call["custom"]["name"]]
    assert re.fullmatch(pattern, call["custom"]["input"]), call


@pytest.mark.smoke
@pytest.mark.parametrize("choice, names", [
    ("required", {"code", "list", "get_time"}), (NAMED, {"list"}), ({"type": "custom", "name": "code"}, {"code"}),
    ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED, {"type": "function", "function": {"name": "get_time"}}]}},
     {"list", "get_time"})])
def test_calls_come_as_they_were_offered(server, choice, names):
    for seed in range(3):
        reply = post(server, tools=TOOLS, tool_choice=choice, seed=seed)
        (call,) = calls_of(reply)
        check(call)
        assert call[call["type"]]["name"] in names and "x-ignored-fields" not in reply.headers
        kinds = {"code": "custom", "list": "custom", "get_time": "function"}
        assert call["type"] == kinds[call[call["type"]]["name"]]


def test_a_stream_says_the_same(server):
    for seed in range(3):
        fields = {"tools": TOOLS, "tool_choice": "required", "seed": seed}
        (whole,) = calls_of(post(server, **fields))
        deltas = [c["delta"] for e in events(post(server, stream=True, **fields).text)[:-1] for c in e["choices"]]
        pieces = [c for d in deltas for c in d.get("tool_calls") or []]
        first, kind = pieces[0], whole["type"]
        assert first["type"] == kind and first["id"] and first[kind]["name"] == whole[kind]["name"]
        assert all(p["index"] == 0 and set(p) == {"index", kind} and set(p[kind]) <= {"input", "arguments"} for p in pieces[1:])
        member = "input" if kind == "custom" else "arguments"
        assert "".join(p[kind][member] for p in pieces) == whole[kind][member]


@pytest.mark.smoke
def test_the_official_client(server):
    fields = {"model": "canary", "messages": ASK, "tools": [custom("list", "lark", LIST)], "tool_choice": NAMED,
              "max_tokens": 300, "parallel_tool_calls": False, "temperature": 0}
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=ANSWER_S) as client:
        (call,) = client.chat.completions.create(**fields).choices[0].message.tool_calls
        assert call.type == "custom" and call.custom.name == "list" and re.fullmatch(LISTS, call.custom.input)
        with client.chat.completions.stream(**fields) as stream:
            for _ in stream:
                pass
            (streamed,) = stream.current_completion_snapshot.choices[0].message.tool_calls
        assert streamed.type == "custom" and streamed.to_dict()["custom"] == {"name": "list", "input": call.custom.input}


@pytest.mark.smoke
def test_a_call_that_comes_back_is_that_of_a_function(server):
    """With one string, for the template."""
    fields = {"tools": [custom("list", "lark", LIST)], "temperature": 0}
    reply = post(server, tool_choice="required", return_token_ids=True, **fields)
    calls, ids = calls_of(reply), reply.json()["prompt_token_ids"] + reply.json()["choices"][0]["token_ids"]
    history = [*ASK, reply.json()["choices"][0]["message"], {"role": "tool", "tool_call_id": calls[0]["id"], "content": "done"}]
    assert post(server, history, **{**fields, "max_tokens": 1}).status_code == 200
    as_function = [*ASK, {"role": "assistant", "tool_calls": [{"id": calls[0]["id"], "type": "function", "function": {
        "name": "list", "arguments": json.dumps({"input": calls[0]["custom"]["input"]})}}]}, history[2]]
    prompts = [server.post("/apply-template", messages=m, tools=fields["tools"]).json()["prompt"] for m in (history, as_function)]
    assert prompts[0] == prompts[1] and "input" in prompts[0] and "Lark grammar" in prompts[0]
    # The history has the text of prompt and reply; its tokens may be cut otherwise than the model wrote them.
    assert prompts[0].startswith(server.post("/detokenize", tokens=ids).json()["prompt"])


def test_any_text(server):
    """Without a format, or with that of text, the input is what the model writes."""
    for form in {}, {"format": {"type": "text"}}, {"format": None, "description": None}:
        reply = post(server, tools=[custom("shell", **form)], tool_choice="required", temperature=0)
        assert reply.status_code == 200 and "x-ignored-fields" not in reply.headers
        for call in reply.json()["choices"][0]["message"]["tool_calls"]:
            assert call["type"] == "custom" and isinstance(call["custom"]["input"], str)


@pytest.mark.parametrize("syntax, definition", [
    ("regex", "(?=a)b"), ("regex", "a" * 5000), ("lark", "start: missing"), ("lark", 'start: "a"\n%ignore " "'),
    ("lark", 'start: %json {"type": "null"}'),
    ("lark", 'start: "' + "a" * (17 << 10) + '"'), ("regex", "a\0b")])
def test_a_grammar_that_is_not_supported_is_listed(server, syntax, definition):
    reply = post(server, tools=[custom("t", syntax, definition)], max_tokens=1)
    assert reply.status_code == 200 and reply.headers["x-ignored-fields"] == "tools.custom.format"


@pytest.mark.smoke
@pytest.mark.parametrize("tool, words", [
    ({"type": "custom"}, ["tools[0].custom", "name"]),
    ({"type": "custom", "custom": {"name": ""}}, ["tools[0].custom", "name"]),
    ({"type": "custom", "custom": {"name": "a", "format": {"type": "json"}}}, ["tools[0].custom.format", "grammar"]),
    ({"type": "custom", "custom": {"name": "a", "format": 5}}, ["tools[0].custom.format"]),
    (custom("a", "ebnf", "a"), ["tools[0].custom.format.grammar", "lark"]),
    (custom("a", "lark", 5), ["tools[0].custom.format.grammar", "definition"]),
    ({"type": "grammar"}, ["tools[0].type", "custom"]),
    (custom("get_time"), ["tools[0]", "get_time"])])
def test_wrong_tools_are_named(server, tool, words):
    refused(post(server, tools=[tool, FUNCTION]), 400, "invalid_value", *words)


@pytest.mark.parametrize("call", [{}, {"custom": 5}, {"custom": {"name": "a"}}, {"custom": {"input": "a"}}, {"custom": {"name": "a", "input": {}}}])
def test_wrong_calls_in_the_history_are_named(server, call):
    history = [*ASK, {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", **call}]}]
    refused(post(server, history), 400, "invalid_value", "messages[1].tool_calls", "custom")


def test_wrong_choices_are_named(server):
    for choice in {"type": "custom"}, {"type": "custom", "custom": {"name": "other"}}, {"type": "custom", "function": {"name": "code"}}:
        refused(post(server, tools=TOOLS, tool_choice=choice), 400, "invalid_value", "tool_choice")


# ---- structural tags ----

def test_a_structural_tag_beside_tools(server):
    """A tag of the model's own format is a call; required calls and the tag exclude each other."""
    tag = {"type": "tag", "begin": "<tool_call>\n<function=get_time>\n<parameter=city>\n",
           "content": {"type": "or", "elements": [{"type": "const_string", "value": city} for city in ("Lima", "Rome")]},
           "end": "\n</parameter>\n</function>\n</tool_call>"}
    form = {"type": "structural_tag", "format": tag}
    (call,) = calls_of(post(server, tools=[FUNCTION], response_format=form, enable_thinking=False))
    check(call)
    strict = {"type": "function", "function": {**FUNCTION["function"], "strict": True}}
    reply = post(server, tools=[strict], response_format=form, enable_thinking=False)
    assert calls_of(reply) and reply.headers["x-ignored-fields"] == "tools.strict"
    for choice in "required", {"type": "function", "function": {"name": "get_time"}}:
        error = refused(post(server, tools=[FUNCTION], response_format=form, tool_choice=choice), 400, "unsupported_value", "tool_choice")
        assert error["param"] == "response_format"
        refused(post(server, tools=[FUNCTION], structured_outputs={"structural_tag": {"format": tag}}, tool_choice=choice), 400,
                "unsupported_value", "structured_outputs.structural_tag", "tool_choice")
    assert "tool_calls" not in post(server, tools=[FUNCTION], response_format={"type": "structural_tag", "format": {
        "type": "const_string", "value": "yes"}}).json()["choices"][0]["message"]


TAGGED = {"structural_tag": {"type": "structural_tag", "format": {
    "type": "const_string", "value": "I look.\n<tool_call>\n<function=get_time>\n<parameter=city>\nLima\n</parameter>\n</function>\n</tool_call>"}}}


def test_messages_and_responses_take_a_structural_tag(server):
    """Text and a call that the tag spells, also in streams."""
    tool = FUNCTION["function"]
    body = {"max_tokens": 99, "messages": [{"role": "user", "content": "?"}], "structured_outputs": TAGGED,
            "tools": [{"name": tool["name"], "input_schema": tool["parameters"]}]}
    reply = server.post("/v1/messages", **body)
    text, call = reply.json()["content"]
    assert text["text"].strip() == "I look." and (call["name"], call["input"]) == ("get_time", {"city": "Lima"})
    assert "x-ignored-fields" not in reply.headers
    assert '"tool_use"' in server.post("/v1/messages", stream=True, **body).text
    body = {"max_output_tokens": 99, "input": "?", "store": False, "structured_outputs": TAGGED, "tools": [{"type": "function", **tool}]}
    reply = server.post("/v1/responses", **body)
    said, call = reply.json()["output"]
    assert said["content"][0]["text"].strip() == "I look."
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "get_time", {"city": "Lima"})
    assert "x-ignored-fields" not in reply.headers
    error = refused(server.post("/v1/responses", **body, text={"format": {"type": "json_object"}}), 400, "invalid_value", "structured_outputs")
    assert error["param"] == "text.format"
