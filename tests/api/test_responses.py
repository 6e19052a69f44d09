"""OpenAI's Responses: the flows of its client, and raw requests where the client hides the bytes."""

import base64
import json
import re

import pytest

from conftest import ANSWER_S, TOP, account, openai, refused, serving

PATH = "/v1/responses"
IMAGE = (TOP / "tests/golden/data/canary-8bit/images/0.png").read_bytes()
ASK = "What does mkdir do?"
WEATHER = {"type": "function", "name": "get_weather", "description": "Weather of a city.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
PARIS = "What is the weather in Paris?"
THINK = {"enable_thinking": True}
COLD = {"temperature": 0}


@pytest.fixture(scope="module")
def sdk(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=ANSWER_S) as c:
        yield c


def post(server, input=ASK, **fields):
    return server.http.post(PATH, json={"model": "canary", "input": input, "store": False, **COLD, **fields})


def answered(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()


def rendered(server, messages, **fields):
    """The prompt of the same conversation as a chat."""
    return server.post("/tokenize", messages=messages, **fields).json()["tokens"]


def tokens_in(server, input=ASK, **fields):
    return answered(post(server, input, max_output_tokens=1, **fields))["usage"]["input_tokens"]


def user(content):
    return {"role": "user", "content": content}


def names(reply):
    """The events, whose names are their types and whose numbers have no gap."""
    found = []
    for block in reply.text.strip().split("\n\n"):
        name, data = re.fullmatch(r"event: ([\w.]+)\ndata: (.*)", block).groups()
        found.append(json.loads(data))
        assert found[-1]["type"] == name
    assert [e["sequence_number"] for e in found] == list(range(len(found)))
    return found


def test_settings_come_back_as_they_were_sent(server):
    for x in 0.7, 0.1, 1, 1e-6, 0.3333333:
        reply = answered(post(server, temperature=x, top_p=x, max_output_tokens=1))
        assert (reply["temperature"], reply["top_p"]) == (x, x)


# ---- flows of the client ----

@pytest.mark.smoke
def test_create(sdk):
    r = sdk.responses.create(model="canary", input=ASK, instructions="Be brief.", max_output_tokens=80, store=False, extra_body=COLD)
    assert r.object == "response" and r.id.startswith("resp_") and r.status == "completed" and r.model == "canary"
    assert "make directories" in r.output_text and r.output[-1].id.startswith("msg_")
    assert r.error is None and r.incomplete_details is None and r.instructions == "Be brief."
    assert r.usage.total_tokens == r.usage.input_tokens + r.usage.output_tokens


@pytest.mark.smoke
def test_stream(sdk):
    whole = sdk.responses.create(model="canary", input=ASK, max_output_tokens=80, store=False, extra_body=COLD)
    with sdk.responses.stream(model="canary", input=ASK, max_output_tokens=80, store=False, extra_body=COLD) as stream:
        words = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        last = stream.get_final_response()
    assert words == last.output_text == whole.output_text and last.usage.output_tokens == whole.usage.output_tokens


@pytest.mark.smoke
def test_tools_round_trip(sdk):
    fields = {"model": "canary", "tools": [WEATHER], "max_output_tokens": 120, "store": False, "extra_body": COLD}
    first = sdk.responses.create(input=[user(PARIS)], **fields)
    (call,) = [o for o in first.output if o.type == "function_call"]
    assert call.name == "get_weather" and json.loads(call.arguments) == {"city": "Paris"} and call.call_id
    items = [user(PARIS), *[o.model_dump(exclude_none=True) for o in first.output],
             {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    after = sdk.responses.create(input=items, **fields)
    assert after.output_text and after.usage.input_tokens_details.cached_tokens > 0


def test_images(server):
    url = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    parts = [{"type": "input_image", "image_url": url, "detail": "auto"}, {"type": "input_text", "text": "What do you see?"}]
    seen = answered(post(server, [user(parts)], max_output_tokens=30))
    chat = server.chat(messages=[user([{"type": "image_url", "image_url": {"url": url}},
                                       {"type": "text", "text": "What do you see?"}])], temperature=0, max_tokens=30).json()
    assert seen["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    refused(post(server, [user([{"type": "input_image", "file_id": "x"}])]), 400, "unsupported_value", "file_id")


# ---- events ----

def items_of(found):
    """The items that the events describe; checks their order and their ids."""
    assert [e["type"] for e in found[:2]] == ["response.created", "response.in_progress"]
    items, open_item, text = [], None, ""
    for e in found[2:-1]:
        kind = e["type"].removeprefix("response.")
        assert e["output_index"] == len(items)
        if kind == "output_item.added":
            assert open_item is None and e["item"]["status"] == "in_progress"
            open_item, text = e["item"], ""
            continue
        if kind == "output_item.done":
            assert e["item"]["id"] == open_item["id"] and e["item"]["type"] == open_item["type"]
            items.append(e["item"])
            open_item = None
            continue
        assert e["item_id"] == open_item["id"]
        if kind.endswith(".delta"):
            text += e["delta"]
        elif kind == "content_part.done":
            assert e["part"]["text"] == text
        elif kind.endswith(".done"):
            assert e[{"function_call_arguments.done": "arguments", "custom_tool_call_input.done": "input"}.get(kind, "text")] == text
    assert open_item is None
    return items


def without_ids(items):
    return [{k: v for k, v in i.items() if k not in ("id", "call_id")} for i in items]


@pytest.mark.parametrize("fields", [
    {},
    THINK,
    {"tools": [WEATHER], "input": PARIS, **THINK},
    {"tools": [WEATHER], "input": PARIS},
    {"max_output_tokens": 3},
    {"max_output_tokens": 3, **THINK},
])
def test_a_stream_has_what_the_whole_reply_has(server, fields):
    fields = {"max_output_tokens": 400, "include": ["reasoning.encrypted_content"], **fields}
    whole = answered(post(server, **fields))
    found = names(post(server, stream=True, **fields))
    last = found[-1]["response"]
    assert items_of(found) == last["output"]
    assert without_ids(last["output"]) == without_ids(whole["output"])
    assert found[-1]["type"] == "response." + whole["status"] and last["status"] == whole["status"]
    assert {e["response"]["id"] for e in (found[0], found[1], found[-1])} == {last["id"]}
    assert found[0]["response"]["usage"] is None and found[0]["response"]["output"] == []
    differ = {k for k in whole if whole[k] != last[k]} - {"id", "created_at", "completed_at", "output"}
    assert differ <= {"usage"} and set(whole) == set(last)
    if whole["status"] == "incomplete":
        assert whole["incomplete_details"] == {"reason": "max_output_tokens"} and whole["output"][-1]["status"] == "incomplete"


# ---- the conversation ----

@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "input": PARIS}, {"tools": [WEATHER], "input": PARIS, **THINK}])
def test_a_reply_comes_back_as_the_same_tokens(server, fields, sealed):
    """The prompt of the next turn begins with this turn's prompt and reply."""
    fields = {"input": ASK, "max_output_tokens": 500, "include": ["reasoning.encrypted_content"], **fields}
    first = answered(post(server, **fields))
    output = first["output"]
    if sealed:
        output = [{**o, "content": None} if o["type"] == "reasoning" else o for o in output]
    calls = [o for o in output if o["type"] == "function_call"]
    items = [user(fields["input"]), *output, *[{"type": "function_call_output", "call_id": c["call_id"], "output": "sunny"} for c in calls]]
    if not calls:
        items.append(user("And rmdir?"))
    after = answered(post(server, **{**fields, "input": items}))["usage"]
    before = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
    assert after["input_tokens_details"]["cached_tokens"] >= (before - 1) // 32 * 32


def test_items_render_as_a_chat(server):
    call = {"type": "function_call", "call_id": "a", "name": "get_weather", "arguments": '{"city": "Paris"}'}
    mine = [{"role": "developer", "content": "Be kind."}, user("Hello"),
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}, call,
            {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "sun"}]}, user("Now?")]
    theirs = [{"role": "system", "content": "Be kind."}, user("Hello"),
              {"role": "assistant", "content": "I look.",
               "tool_calls": [{"id": "a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}]},
              {"role": "tool", "tool_call_id": "a", "content": "sun"}, user("Now?")]
    assert tokens_in(server, mine) == len(rendered(server, theirs))


def test_texts_of_files(server):
    data = "data:text/plain;base64," + base64.b64encode("Some words, größer.".encode()).decode()
    file = {"type": "input_file", "filename": "a.txt", "file_data": data}
    assert tokens_in(server, [user([file])]) == tokens_in(server, [user("Some words, größer.")])
    refused(post(server, [user([{**file, "file_data": "data:application/pdf;base64,AAAA"}])]), 400, "unsupported_value", "PDF")


# ---- tools ----

def test_tools_of_other_servers_are_ignored(server):
    reply = post(server, tools=[{"type": "web_search"}, {"type": "local_shell"}, {**WEATHER, "strict": True}], max_output_tokens=1)
    assert answered(reply)["usage"]["input_tokens"] == tokens_in(server, tools=[WEATHER])
    assert reply.headers["x-ignored-fields"] == "tools.web_search, tools.local_shell"
    assert len(reply.json()["tools"]) == 3
    assert tokens_in(server, tools=[WEATHER], tool_choice="none") == tokens_in(server)


def test_custom_and_namespace_tools_come_back_as_they_were_offered(server):
    custom = {"type": "custom", "name": "get_weather", "description": "Weather of a city.",
              "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}
    space = {"type": "namespace", "name": "get_", "tools": [{**WEATHER, "name": "weather"}]}
    for tool, kind, name in [(custom, "custom_tool_call", "get_weather"), (space, "function_call", "weather")]:
        fields = {"tools": [tool], "max_output_tokens": 200}
        whole = answered(post(server, PARIS, **fields))
        found = names(post(server, PARIS, stream=True, **fields))
        assert items_of(found) == found[-1]["response"]["output"]
        calls = [o for o in whole["output"] if o["type"].endswith("call")]
        assert calls and calls[0]["type"] == kind and calls[0]["name"] == name, whole["output"]
        assert calls[0].get("namespace") == (tool["name"] if tool is space else None)


def test_the_input_of_a_custom_tool_follows_its_pattern(server):
    def reply(definition, **fields):
        tool = {"type": "custom", "name": "code", "format": {"type": "grammar", "syntax": "regex", "definition": definition}}
        return post(server, "Call it.", tools=[tool], tool_choice="required", max_output_tokens=200, temperature=1, **fields)

    for seed in range(3):
        calls = [o for o in answered(reply(r"[A-F]{2}-\d{3}|x{4}", seed=seed))["output"] if o["type"] == "custom_tool_call"]
        assert calls and all(re.fullmatch(r"[A-F]{2}-\d{3}|x{4}", c["input"]) for c in calls), calls
    assert "x-ignored-fields" not in reply("a+").headers
    assert reply("(?=a)b").headers["x-ignored-fields"] == "tools.format"


PATCH = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | delete_hunk
add_hunk: "*** Add File: " filename LF add_line~1..2
delete_hunk: "*** Delete File: " filename LF
filename: /[a-z]{1,8}\.txt/
add_line: "+" /[^\n]{0,12}/ LF -> line
%import common.LF
"""


def test_the_input_of_a_custom_tool_follows_its_lark_grammar(server):
    def reply(definition, **fields):
        tool = {"type": "custom", "name": "apply_patch", "description": "Edits files.",
                "format": {"type": "grammar", "syntax": "lark", "definition": definition}}
        return post(server, "Add a file.", tools=[tool], max_output_tokens=300, temperature=1, **fields)

    patch = r"\*\*\* Begin Patch\n(\*\*\* (Add File: [a-z]{1,8}\.txt\n(\+[^\n]{0,12}\n){1,2}|Delete File: [a-z]{1,8}\.txt\n))+" \
        r"\*\*\* End Patch\n?"
    for seed in range(3):
        got = answered(reply(PATCH, tool_choice="required", parallel_tool_calls=False, seed=seed))
        if got["status"] == "completed":
            assert [o["type"] for o in got["output"] if o["type"].endswith("call")] == ["custom_tool_call"]
        for o in got["output"]:
            assert o["type"] != "custom_tool_call" or o["status"] != "completed" or re.fullmatch(patch, o["input"]), o
    assert "x-ignored-fields" not in reply('start: "(" start ")" | "x"').headers
    for wrong in ["start: missing", "start: \"a\"\n%ignore \" \"", 'start: "' + "a" * (17 << 10) + '"']:
        assert reply(wrong).headers["x-ignored-fields"] == "tools.format", wrong[:40]


# ---- stored responses ----

@pytest.mark.smoke
def test_previous_response(sdk, server):
    fields = {"model": "canary", "max_output_tokens": 100, "extra_body": COLD}
    first = sdk.responses.create(input=ASK, **fields)
    assert first.store is True
    second = sdk.responses.create(input="And rmdir?", previous_response_id=first.id, **fields)
    whole = [user(ASK), *[o.model_dump(exclude_none=True) for o in first.output], user("And rmdir?")]
    same = sdk.responses.create(input=whole, store=False, **fields)
    assert second.output_text == same.output_text and second.usage.input_tokens == same.usage.input_tokens
    assert second.previous_response_id == first.id
    with sdk.responses.stream(input="And touch?", previous_response_id=second.id, **fields) as stream:
        third = stream.get_final_response()
    assert third.usage.input_tokens > second.usage.input_tokens
    for r in first, second, third:
        stored = sdk.responses.retrieve(r.id)
        assert stored.output_text == r.output_text and stored.usage == r.usage
    items = sdk.responses.input_items.list(third.id).data
    assert [i.type for i in items] == ["message"] * 5 and all(i.id for i in items)
    sdk.responses.delete(first.id)
    for call in sdk.responses.retrieve, sdk.responses.delete, sdk.responses.input_items.list:
        with pytest.raises(openai.NotFoundError):
            call(first.id)
    with pytest.raises(openai.NotFoundError) as e:
        sdk.responses.create(input="x", previous_response_id=first.id, **fields)
    assert e.value.code == "previous_response_not_found"
    assert sdk.responses.create(input="x", previous_response_id=third.id, store=False, **fields).output_text is not None
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(same.id)
    refused(server.http.post(f"{PATH}/{third.id}/cancel"), 400, "unsupported_value", "background")
    row = account(server.http.get("/api/memory").json(), "responses")
    assert 0 < row["used_bytes"] <= row["planned_bytes"] <= 64 << 20
    for r in second, third:
        sdk.responses.delete(r.id)


# ---- fields and errors ----

@pytest.mark.smoke
def test_fields_of_clients_are_taken(server):
    reply = post(server, store=False, include=["reasoning.encrypted_content"], prompt_cache_key="k", client_metadata={"a": "b"},
                 text={"verbosity": "low"}, reasoning={"effort": "low", "summary": "auto"}, parallel_tool_calls=True,
                 tool_choice="auto", max_output_tokens=1, metadata={"m": "1"}, speed="fast")
    body = answered(reply)
    assert body["metadata"] == {"m": "1"} and body["reasoning"] == {"effort": "low", "summary": "auto"}
    assert body["text"] == {"format": {"type": "text"}, "verbosity": "low"} and body["max_output_tokens"] == 1
    assert set(reply.headers["x-ignored-fields"].split(", ")) == {"text.verbosity", "speed"}


def test_advice_that_is_not_known_is_named(server):
    reply = post(server, max_output_tokens=1, service_tier="flex", text={"verbosity": "loud"}, truncation="some",
                 reasoning={"summary": "long", "effort": "enormous", "context": "all_turns"})
    body = answered(reply)
    assert body["reasoning"] == {"effort": None, "summary": None} and body["text"]["verbosity"] == "medium"
    assert body["truncation"] == "disabled" and body["service_tier"] == "default"
    assert set(reply.headers["x-ignored-fields"].split(", ")) == {
        "service_tier", "text.verbosity", "truncation", "reasoning.summary", "reasoning.effort", "reasoning.context"}


@pytest.mark.parametrize("fields, param", [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [user(ASK), {"type": "function_call"}]}, "input[1]"),
    ({"background": True}, "background"),
    ({"conversation": "c"}, "conversation"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "get_weather"}}, "tool_choice"),
    ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "name": "f", "parameters": 5}]}, "tools[0]"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
    ({"reasoning": {"summary": True}}, "reasoning.summary"),
    ({"reasoning": {"effort": 3}}, "reasoning.effort"),
    ({"text": {"verbosity": 3}}, "text.verbosity"),
    ({"messages": []}, "messages"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"include": [3]}, "include"),
    ({"tools": [{"type": "function", "name": "f", "strict": "yes"}]}, "tools[0]"),
    ({"input": [user(ASK), {"type": "function_call_output", "id": "x", "output": "1"}]}, "input[1]"),
])
def test_bad_fields_are_named(server, fields, param):
    reply = server.http.post(PATH, json={"model": "canary", "input": ASK, **fields})
    assert reply.status_code == 400 and reply.json()["error"]["param"] == param, reply.text


def test_a_stream_whose_prompt_is_too_long_fails_as_events():
    """Codex compacts then. The prompts lie around the limit: one leaves no place for the reply, longer ones
    are not tokenized to their end."""
    with serving("--max-model-len", "512") as server:
        at_limit = 0
        fields = {"instructions": "Be brief.", "tools": [WEATHER], "temperature": 0.5, "max_output_tokens": 1}
        # The words of 512 tokens.
        full = 612 - answered(post(server, "word " * 100, **fields))["usage"]["input_tokens"]
        for words in full - 1, full, full + 1, 40000:
            whole = post(server, "word " * words, **fields)
            reply = post(server, "word " * words, stream=True, **fields)
            assert reply.status_code == 200 and reply.headers["content-type"] == "text/event-stream"
            found = names(reply)
            if whole.status_code == 200:
                assert found[-1]["type"] in ("response.completed", "response.incomplete")
                continue
            at_limit += "tokens. Shorten" in whole.text
            error = refused(whole, 400, "context_length_exceeded", "--max-model-len")
            assert error["param"] == "input"
            assert [e["type"] for e in found] == ["response.created", "response.in_progress", "error", "response.failed"]
            created, failed = found[0]["response"], found[-1]["response"]
            assert {k: found[2][k] for k in ["code", "message", "param"]} == {k: error[k] for k in ["code", "message", "param"]}
            assert failed["error"] == {"code": error["code"], "message": error["message"]}
            assert failed["status"] == "failed" and failed["output"] == [] and failed["usage"] is None
            same = {"status": "in_progress", "error": None}
            assert created == {**failed, **same} and created["instructions"] == "Be brief." and created["temperature"] == 0.5
            assert created["tools"] == [WEATHER] and len(reply.headers["x-request-id"]) == 32
        assert at_limit == 1
        # Other refusals are HTTP errors, and the other APIs' clients read this one as such.
        refused(post(server, stream=True, temperature=9), 400, "invalid_value")
        for path, limit in ("/v1/chat/completions", "max_tokens"), ("/v1/messages", "max_tokens"):
            long = {"messages": [user("word " * 600)], limit: 1, "stream": True}
            assert server.http.post(path, json=long).status_code == 400


def test_tools_are_counted_in_namespaces_too(server):
    """Also those that tool_choice leaves out: names are compared with each of them."""
    space = {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": f"f{i}"} for i in range(300)]}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f1"}]}
    for choice in "auto", allowed:
        refused(server.post("/v1/responses", input="a", tools=[space, {**space, "name": "m"}], tool_choice=choice), 400, "invalid_value", "512")
    many = {**allowed, "tools": allowed["tools"] * 513}
    refused(server.post("/v1/responses", input="a", tools=[space], tool_choice=many), 400, "invalid_value", "512")
    assert server.post("/v1/responses", input="a", tools=[space], tool_choice=allowed, store=False, max_output_tokens=1).status_code == 200


@pytest.mark.smoke
def test_errors(sdk):
    with pytest.raises(openai.NotFoundError):
        sdk.responses.create(model="nobody", input=ASK)
    with pytest.raises(openai.BadRequestError, match="context"):
        sdk.responses.create(model="canary", input="word " * 40000)
