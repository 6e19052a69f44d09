"""Anthropic's Messages: the flows of its client, and raw requests where the client hides the bytes."""

import base64
import json
import re

import pytest

from conftest import ANSWER_S, TOP, Open, anthropic, prompt_tokens, serving, until

PATH = "/v1/messages"
IMAGE = (TOP / "tests/golden/data/canary-8bit/images/0.png").read_bytes()
COLD = {"temperature": 0}
ASK = [{"role": "user", "content": "What does mkdir do?"}]
WEATHER = {"name": "get_weather", "description": "Weather of a city.",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "not_found_error",
         405: "invalid_request_error", 413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error"}


@pytest.fixture(scope="module")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=ANSWER_S) as c:
        yield c


def post(server, path=PATH, headers=None, **fields):
    body = {"model": "canary", "messages": ASK, "temperature": 0, **fields}
    if path == PATH:
        body.setdefault("max_tokens", 60)
    return server.http.post(path, json=body, headers=headers)


def answered(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()


def failed(reply, status, *words):
    """The sentence of an error in Anthropic's envelope."""
    assert reply.status_code == status, reply.text
    body = reply.json()
    assert set(body) == {"type", "error", "request_id"} and set(body["error"]) == {"type", "message"}
    assert body["type"] == "error" and body["error"]["type"] == TYPES[status]
    assert body["request_id"] == reply.headers["request-id"] == reply.headers["x-request-id"]
    for word in words:
        assert word in body["error"]["message"]
    return body["error"]["message"]


def counted(server, **fields):
    return answered(post(server, PATH + "/count_tokens", **fields))["input_tokens"]


def rendered(server, messages, **fields):
    """The prompt of the same conversation as a chat."""
    fields.setdefault("enable_thinking", False)
    return server.post("/tokenize", messages=messages, **fields).json()["tokens"]


def user(content):
    return {"role": "user", "content": content}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def image(data=IMAGE):
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                        "data": base64.b64encode(data).decode()}}


# ---- flows of the client ----

@pytest.mark.smoke
def test_create(claude):
    m = claude.messages.create(model="canary", max_tokens=60, messages=ASK, extra_body=COLD)
    assert m.type == "message" and m.role == "assistant" and m.id.startswith("msg_") and m.model == "canary"
    assert [b.type for b in m.content] == ["text"] and "directory" in m.content[0].text
    assert m.stop_reason == "end_turn" and m.stop_sequence is None
    assert m.usage.input_tokens + m.usage.cache_creation_input_tokens + m.usage.cache_read_input_tokens > 5 and m.usage.output_tokens > 3
    assert len(m._request_id) == 32


@pytest.mark.smoke
def test_stream(claude):
    whole = claude.messages.create(model="canary", max_tokens=60, messages=ASK, extra_body=COLD)
    with claude.messages.stream(model="canary", max_tokens=60, messages=ASK, extra_body=COLD) as stream:
        words = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert words == last.content[0].text == whole.content[0].text
    assert last.stop_reason == "end_turn" and last.usage.output_tokens == whole.usage.output_tokens


def test_system_blocks(claude, server):
    blocks = [text("You are brief. ", cache_control={"type": "ephemeral"}), text("Answer in English.")]
    m = claude.messages.create(model="canary", max_tokens=20, system=blocks, messages=ASK)
    assert m.content
    same = {"system": "You are brief. Answer in English."}
    assert counted(server, system=blocks) == counted(server, **same) \
        == len(rendered(server, [{"role": "system", "content": same["system"]}, *ASK]))


@pytest.mark.smoke
def test_tools_round_trip(claude):
    fields = {"model": "canary", "max_tokens": 120, "tools": [WEATHER], "extra_body": COLD}
    question = user("What is the weather in Paris?")
    m = claude.messages.create(**fields, messages=[question])
    assert m.stop_reason == "tool_use"
    call = m.content[-1]
    assert call.type == "tool_use" and call.id.startswith("toolu_") and call.name == "get_weather"
    assert call.input == {"city": "Paris"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [text("sunny")]}
    after = claude.messages.create(**fields, messages=[question, {"role": "assistant", "content": m.content},
                                                       user([result, text("And in short?")])])
    assert after.content and after.usage.cache_read_input_tokens > 0
    with claude.messages.stream(**fields, messages=[question]) as stream:
        kinds = [e.type for e in stream]
        streamed = stream.get_final_message()
    assert streamed.content[-1].input == call.input and streamed.stop_reason == "tool_use"
    assert "input_json" in kinds


@pytest.mark.smoke
def test_thinking(claude, server):
    thinking = {"type": "enabled", "budget_tokens": 1024}
    fields = {"model": "canary", "max_tokens": 2000, "messages": ASK, "extra_body": COLD}
    m = claude.messages.create(**fields, thinking=thinking)
    assert [b.type for b in m.content] == ["thinking", "text"]
    assert m.content[0].thinking and m.content[0].signature
    with claude.messages.stream(**fields, thinking=thinking) as stream:
        streamed = stream.get_final_message()
    assert [b.model_dump() for b in streamed.content[:1]] == [b.model_dump() for b in m.content[:1]]
    # The client returns it; any signature is taken, and redacted thinking is dropped.
    history = [*ASK, {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in m.content]}, user("Why?")]
    assert claude.messages.create(**{**fields, "messages": history, "max_tokens": 5}).content
    history[1]["content"][0]["signature"] = "of another server"
    history[1]["content"].insert(0, {"type": "redacted_thinking", "data": "xyz"})
    assert post(server, messages=history, max_tokens=1).status_code == 200
    quiet = answered(post(server, thinking={**thinking, "display": "omitted"}, max_tokens=2000))
    assert quiet["content"][0]["thinking"] == "" and quiet["content"][0]["signature"].startswith(m.content[0].signature)
    for off in {"type": "disabled"}, None:
        assert [b["type"] for b in answered(post(server, thinking=off))["content"]] == ["text"]
    assert answered(post(server, thinking={"type": "adaptive"}))["content"][0]["type"] == "thinking"


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [False, True])
def test_omitted_thinking_comes_back_in_its_signature(server, stream):
    """The next prompt is that of a client that has the text: the same tokens, found in the prefix cache."""
    def first(display):
        fields = {"thinking": {"type": "adaptive", "display": display}, "tools": [WEATHER], "max_tokens": 300,
                  "messages": [user("What is the weather in Paris?")]}
        if not stream:
            return answered(post(server, **fields))["content"]
        return blocks_of(names(post(server, stream=True, **fields)))
    shown, quiet = first("summarized"), first("omitted")
    assert shown[0]["thinking"] and quiet[0]["thinking"] == "" and [b["type"] for b in shown] == [b["type"] for b in quiet]

    def prompt(thinking):
        call = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}
        messages = [user("What is the weather in Paris?"), {"role": "assistant", "content": [thinking, call]},
                    user([{"type": "tool_result", "tool_use_id": "a", "content": "sun"}])]
        return counted(server, messages=messages, tools=[WEATHER], thinking={"type": "adaptive"})
    whole, sealed = prompt(shown[0]), quiet[0]["signature"]
    assert prompt(quiet[0]) == whole > prompt({**quiet[0], "signature": "of another server"})
    # A text of the client's own goes first; a damaged signature has none.
    assert prompt({**shown[0], "signature": sealed}) == whole
    damaged = sealed[:-8] + ("A" if sealed[-8] != "A" else "B") + sealed[-7:]
    for wrong in damaged, sealed[:-4], sealed[:44], "=" * 48, sealed + "AAAA":
        assert prompt({**quiet[0], "signature": wrong}) < whole


def test_images(claude, server):
    seen = claude.messages.create(model="canary", max_tokens=30, extra_body=COLD,
                                  messages=[user([image(), text("What do you see?")])])
    url = "data:image/png;base64," + base64.b64encode(IMAGE).decode()
    as_chat = [user([{"type": "image_url", "image_url": {"url": url}}, text("What do you see?")])]
    chat = server.chat(messages=as_chat, temperature=0, max_tokens=30, enable_thinking=False).json()
    assert seen.content[0].text == chat["choices"][0]["message"]["content"]
    by_url = {"type": "image", "source": {"type": "url", "url": url}}
    n = counted(server, messages=[user([image(), text("What do you see?")])])
    assert n == counted(server, messages=[user([by_url, text("What do you see?")])]) == chat["usage"]["prompt_tokens"]
    # In the result of a tool.
    history = [user("Look."), {"role": "assistant", "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}]},
        user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": [text("here: "), image()]}])]
    assert counted(server, messages=history) > 60
    assert post(server, messages=history, max_tokens=1).status_code == 200
    failed(post(server, messages=[user([image(b"no image")])]), 400, "messages[0].content[0]")


@pytest.mark.smoke
def test_count_tokens(claude, server):
    fields = {"model": "canary", "system": "Be brief.", "tools": [WEATHER], "messages": ASK}
    n = claude.messages.count_tokens(**fields).input_tokens
    m = claude.messages.create(**fields, max_tokens=1)
    assert n == m.usage.input_tokens + m.usage.cache_creation_input_tokens + m.usage.cache_read_input_tokens
    assert counted(server, messages=[user("word " * 40000)]) > 32768, "beyond the context too"
    failed(server.http.post(PATH + "/count_tokens", json={"model": "canary"}), 400, "messages is missing")


@pytest.mark.smoke
def test_errors(claude, server):
    with pytest.raises(anthropic.NotFoundError, match="nobody"):
        claude.messages.create(model="nobody", max_tokens=1, messages=ASK)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: [0-9]+ tokens > 30719 maximum"):
        claude.messages.create(model="canary", max_tokens=1, messages=[user("word " * 40000)])
    with pytest.raises(anthropic.BadRequestError, match="tool_choice"):
        claude.messages.create(model="canary", max_tokens=1, messages=ASK, tool_choice={"type": "any"})
    # The number is the prompt's.
    long = [user("word " * 40000)]
    said = failed(post(server, messages=long), 400)
    assert int(re.search(r"long: (\d+)", said)[1]) == counted(server, messages=long)


def test_prefill(claude, server):
    start = {"role": "assistant", "content": "mkdir(1) - "}
    m = claude.messages.create(model="canary", max_tokens=12, messages=[*ASK, start], extra_body=COLD)
    prompt = server.post("/apply-template", messages=ASK, enable_thinking=False).json()["prompt"] + start["content"]
    raw = server.complete(prompt, temperature=0, max_tokens=12).json()
    assert m.content[0].text == raw["choices"][0]["text"]
    assert counted(server, messages=[*ASK, start]) == raw["usage"]["prompt_tokens"]
    # The text may look like the template's own.
    for words in ["<|im_end", "a", " \n x \n", "mkdir"]:
        prompt = server.post("/apply-template", messages=ASK, enable_thinking=False).json()["prompt"] + words
        assert counted(server, messages=[*ASK, {"role": "assistant", "content": words}]) \
            == server.post("/tokenize", prompt=prompt, add_special_tokens=False).json()["count"], words


@pytest.mark.smoke
def test_models_list(claude):
    (model,) = claude.models.list().data
    assert (model.id, model.type, model.display_name) == ("canary", "model", "canary") and model.created_at.year > 2000
    assert claude.models.retrieve("canary").id == "canary"
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("nobody")


# ---- events ----

def names(reply):
    """(event, data) of each event, whose name is its type."""
    found = []
    for block in reply.text.strip().split("\n\n"):
        name, data = re.fullmatch(r"event: (\w+)\ndata: (.*)", block).groups()
        found.append(json.loads(data))
        assert found[-1]["type"] == name
    return found


def blocks_of(found):
    """The blocks that the events describe; checks their order."""
    assert [e["type"] for e in found[:2]] == ["message_start", "ping"]
    assert [e["type"] for e in found[-2:]] == ["message_delta", "message_stop"]
    blocks, is_open = [], False
    for e in found[2:-2]:
        if e["type"] == "content_block_start":
            assert not is_open and e["index"] == len(blocks)
            is_open = True
            blocks.append({**e["content_block"], "json": ""})
        elif e["type"] == "content_block_delta":
            assert is_open and e["index"] == len(blocks) - 1
            d, b = e["delta"], blocks[-1]
            if d["type"] == "input_json_delta":
                b["json"] += d["partial_json"]
            else:
                key = d["type"].removesuffix("_delta")
                b[key] += d[key]
        elif e["type"] == "content_block_stop":
            assert is_open and e["index"] == len(blocks) - 1
            is_open = False
        else:
            assert e == {"type": "ping"}
    assert not is_open
    for b in blocks:
        if b["type"] == "tool_use":
            b["input"] = json.loads(b["json"])
        b.pop("json")
        b.pop("id", None)
    return blocks


@pytest.mark.parametrize("fields", [
    {},
    {"thinking": {"type": "adaptive"}},
    {"tools": [WEATHER], "messages": [user("What is the weather in Paris?")], "thinking": {"type": "adaptive"}},
    {"max_tokens": 3},
    {"stop_sequences": ["directory"]},
    {"max_tokens": 5, "ignore_eos": True},
])
def test_a_stream_has_what_the_whole_reply_has(server, fields):
    whole = answered(post(server, **fields))
    found = names(post(server, stream=True, **fields))
    for b in whole["content"]:
        b.pop("id", None)
    assert blocks_of(found) == whole["content"]
    start, delta = found[0]["message"], found[-2]
    assert start["content"] == [] and start["stop_reason"] is None and start["id"].startswith("msg_")
    assert delta["delta"] == {k: whole[k] for k in ["stop_reason", "stop_sequence"]}
    total = prompt_tokens(whole["usage"])
    for usage in start["usage"], delta["usage"]:
        assert prompt_tokens(usage) == total
    assert delta["usage"]["output_tokens"] == whole["usage"]["output_tokens"]


@pytest.mark.smoke
def test_reasons_of_the_end(server):
    cut = answered(post(server, max_tokens=2))
    assert (cut["stop_reason"], cut["usage"]["output_tokens"]) == ("max_tokens", 2)
    stopped = answered(post(server, stop_sequences=["zzz", "direct"]))
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "direct")


# ---- the conversation ----

def test_order_of_turns(server):
    call = {"type": "tool_use", "id": "a", "name": "get_weather", "input": {"city": "Paris"}}
    other = {**call, "id": "b", "input": {"city": "Rome"}}
    mine = [user("Hello"), user([text("there")]), {"role": "system", "content": "Be kind."},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": "x"}, text("I look."), call, other]},
            user([{"type": "tool_result", "tool_use_id": "a", "content": "sun"},
                  {"type": "tool_result", "tool_use_id": "b", "is_error": True, "content": [text("no "), text("city")]},
                  text("Now?")])]
    def called(city, id):
        return {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": {"city": city}}}
    theirs = [user("Hello\n\nthere\n\nBe kind."),
              {"role": "assistant", "reasoning_content": "Hm.", "content": "I look.",
               "tool_calls": [called("Paris", "a"), called("Rome", "b")]},
              {"role": "tool", "tool_call_id": "a", "content": "sun"},
              {"role": "tool", "tool_call_id": "b", "content": "Error: no city"}, user("Now?")]
    assert counted(server, messages=mine) == len(rendered(server, theirs))


def test_texts_of_documents(server):
    document = {"type": "document", "title": "A page", "source": {"type": "text", "media_type": "text/plain", "data": "Some words."}}
    listed = {"type": "document", "source": {"type": "content", "content": [text("Some "), text("words.")]}}
    found = {"type": "search_result", "source": "a.txt", "title": "T", "content": [text("Found.")]}
    assert counted(server, messages=[user([document])]) == counted(server, messages=[user("A page\nSome words.")])
    assert counted(server, messages=[user([listed])]) == counted(server, messages=[user("Some words.")])
    assert counted(server, messages=[user([found])]) == counted(server, messages=[user("T\na.txt\nFound.")])
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}
    failed(post(server, messages=[user([pdf])]), 400, "PDF")


def test_the_billing_header_is_no_part_of_the_prompt(server):
    system = [text("x-anthropic-billing-header: cc_version=1; cch=aaaaa;"), text("Be brief.")]
    assert counted(server, system=system) == counted(server, system="Be brief.")
    assert counted(server, system=system[0]["text"]) == counted(server)


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "256M") as s:
        yield s


def test_cache_control_is_a_cut(cached):
    """Another conversation, whose text differs right after the mark, hits the prefix before it."""
    shared = "You are a careful agent. " + "Read the manual page before you use a command. " * 12
    def found(last, mark):
        if last == "first":
            assert cached.http.post("/api/hot-cache/clear").status_code == 200
        more = {"cache_control": {"type": "ephemeral"}} if mark else {}
        system = [text(shared, **more), text(f"Today is the {last} day of the " + "long " * 40)]
        m = answered(post(cached, system=system, messages=[user(f"It is the {last}.")], max_tokens=1))
        return m["usage"]["cache_read_input_tokens"]
    assert found("first", False) == found("second", False) == 0
    assert found("first", True) == 0
    assert found("second", True) >= 64


@pytest.mark.parametrize("messages, words", [
    ([user([{"type": "container_upload", "file_id": "f"}])], "container_upload"),
    ([user([{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "tool_result", "tool_use_id": "y"}]}])], "tool_result"),
    ([user([{"type": "tool_result", "content": "x"}])], "tool_use_id"),
    ([user([{"type": "text"}])], "messages[0].content[0]"),
    ([user([{"type": "image", "source": {"type": "file", "file_id": "x"}}])], "base64"),
    ([user(5)], "content"),
    ([{"role": "robot", "content": "x"}], "role"),
    ([*ASK, {"role": "assistant", "content": [{"type": "tool_use", "name": "x"}]}], "messages[1].content[0]"),
    ([], "at least one"),
    (["x"], "messages[0]"),
])
def test_bad_messages_are_named(server, messages, words):
    failed(post(server, messages=messages), 400, words)
    failed(post(server, PATH + "/count_tokens", messages=messages), 400, words)


# ---- tools ----

def test_tools_of_the_client_have_a_schema(server):
    for type in ["bash_20250124", "text_editor_20250728", "computer_20250124", "memory_20250818"]:
        assert counted(server, tools=[{"type": type, "name": "t"}]) > counted(server) + 40, type
    for type in ["web_search_20250305", "web_fetch_20250910", "code_execution_20250522", "mcp_toolset"]:
        failed(post(server, tools=[{"type": type, "name": "t"}]), 400, type)
    failed(post(server, tools=[{"type": "computer_toolset_20260801"}] * 2), 400, "second toolset")
    failed(post(server, tools=[{"type": "computer_toolset_20260801", "configs": 5}]), 400, "configs")
    own = {**WEATHER, "type": "custom", "cache_control": {"type": "ephemeral"}, "defer_loading": False}
    assert counted(server, tools=[own]) == counted(server, tools=[WEATHER])
    assert counted(server, tools=[WEATHER], tool_choice={"type": "none"}) == counted(server)
    reply = post(server, tools=[{**WEATHER, "strict": True}], max_tokens=1)
    assert answered(reply) and "x-ignored-fields" not in reply.headers


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_a_toolset_name_it(server, stream):
    members = ["screenshot", "left_click"]
    fields = {"tools": [{"type": "computer_toolset_20260801", "configs": {"zoom": {"enabled": False}}}], "stream": stream,
              "tool_choice": {"type": "tool", "name": "left_click"}, "max_tokens": 200}
    reply = post(server, **fields)
    assert reply.status_code == 200 and "x-ignored-fields" not in reply.headers
    assert re.search(r'"name":"left_click","toolset_name":"computer"', reply.text), reply.text
    failed(post(server, tools=fields["tools"], tool_choice={"type": "tool", "name": "zoom"}), 400, "zoom")
    call = {"type": "tool_use", "id": "1", "name": members[0], "toolset_name": "computer", "input": {}}
    history = [*ASK, {"role": "assistant", "content": [call]}, user([{"type": "tool_result", "tool_use_id": "1", "content": [image()]}])]
    assert answered(post(server, tools=fields["tools"], messages=history, max_tokens=1))


def test_types_of_newer_clients_are_named_and_left_out(server):
    odd = [*ASK, {"role": "assistant", "content": [{"type": "fallback", "from": {}, "to": {}}, text("Hm.")]},
           user([{"type": "invented", "data": "x"}, text("And rmdir?")])]
    reply = post(server, messages=odd, tools=[{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}], max_tokens=1)
    assert answered(reply)
    assert set(reply.headers["x-ignored-fields"].split(", ")) == {
        "messages.fallback", "messages.invented", "tools.tool_search_tool_regex_20251119"}
    line = '[A part of type "invented" was left out here.]'
    same = [*ASK, {"role": "assistant", "content": "Hm."}, user([text(line), text("And rmdir?")])]
    assert counted(server, messages=odd) == counted(server, messages=same)


@pytest.mark.parametrize("fields, words", [
    ({"tool_choice": {"type": "any"}}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "get_weather"}}, "tool_choice"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tools": [{"input_schema": {}}]}, "tools[0] needs a name"),
    ({"tools": [{"name": "f", "input_schema": 5}]}, "input_schema"),
    ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "1024"),
    ({"thinking": {"type": "enabled"}}, "1024"),
    ({"thinking": True}, "thinking"),
    ({"max_tokens": None}, "max_tokens is missing"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"system": 5}, "system"),
    ({"system": [{"type": "image"}]}, "system[0]"),
    ({"stop_sequences": [""]}, "stop"),
    ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"tools": [{"name": "f", "input_schema": {}, "strict": "yes"}]}, "tools[0].strict"),
    ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": "x"}}, "disable_parallel_tool_use"),
    ({"thinking": {"type": "adaptive", "display": 5}}, "thinking.display"),
    ({"output_config": {"effort": 3}}, "output_config.effort"),
    ({"cache_control": "x"}, "cache_control"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "is_error": "yes"}]}]}, "is_error"),
    ({"messages": [user("a"), {"role": "system", "content": [{"type": "image"}]}]}, "messages[1].content[0]"),
])
def test_bad_fields_are_named(server, fields, words):
    failed(post(server, **fields), 400, words)


@pytest.mark.smoke
def test_fields_of_clients_are_taken(server):
    reply = post(server, PATH + "?beta=true", max_tokens=1, metadata={"user_id": "u"}, service_tier="auto", top_k=5, top_p=0.9,
                 context_management={"edits": []}, betas=["x", "effort-2025-11-24"], output_config={"effort": "high"}, speed="fast",
                 headers={"anthropic-version": "2023-06-01", "anthropic-beta": "a, compact-2026-01-12,,b", "x-api-key": "k"})
    ignored = {"context_management", "speed", "anthropic-beta.x", "anthropic-beta.a", "anthropic-beta.b"}
    assert answered(reply) and set(reply.headers["x-ignored-fields"].split(", ")) == ignored


def test_advice_that_is_not_known_is_named(server):
    """Claude Code sends the display "updates". The reply has the default."""
    fields = {"max_tokens": 300, "thinking": {"type": "adaptive", "display": "updates"}, "service_tier": "priority",
              "output_config": {"effort": "enormous"}}
    reply = post(server, **fields)
    assert set(reply.headers["x-ignored-fields"].split(", ")) == {"thinking.display", "service_tier", "output_config.effort"}
    assert answered(reply)["content"] == answered(post(server, max_tokens=300, thinking={"type": "adaptive"}))["content"]
    for shown in "summarized", "omitted", None:
        assert "x-ignored-fields" not in post(server, max_tokens=1, thinking={"type": "adaptive", "display": shown}).headers


def test_max_tokens_beyond_the_context_are_lowered(server):
    reply = post(server, max_tokens=100000)
    m = answered(reply)
    prompt = prompt_tokens(m["usage"])
    assert int(reply.headers["x-plateau-max-tokens"]) == 30720 - prompt
    assert "x-plateau-max-tokens" not in post(server, max_tokens=5).headers


# ---- errors before and around a request ----

@pytest.mark.smoke
def test_errors_of_the_route(server):
    failed(server.http.get(PATH), 405, "POST")
    failed(server.http.get(PATH + "/batches"), 404, "/v1/messages/batches")
    failed(server.http.post(PATH, content=b"{"), 400, "JSON")
    failed(server.http.post("/messages", content=b"{"), 400, "JSON")
    assert server.http.get("/v1/messagesx").json()["error"]["code"] == "not_found"


def test_keys_limits_and_large_bodies():
    options = ["--api-key", "alice", "--max-body-bytes", 4096, "--max-requests", 1]
    with serving(*options, "--admin-key", "root", key="root") as s:
        del s.http.headers["authorization"]
        failed(post(s), 401, "key")
        for headers in {"x-api-key": "alice"}, {"authorization": "Bearer alice"}:
            assert post(s, headers=headers, max_tokens=1).status_code == 200
        own = {"x-api-key": "alice"}
        models = s.http.get("/v1/models/nobody", headers={**own, "anthropic-version": "2023-06-01"})
        assert models.status_code == 404 and models.json()["error"]["type"] == "not_found_error"
        failed(post(s, headers=own, messages=[user("x" * 5000)]), 413, "--max-body-bytes")
        chunked = s.http.post(PATH, content=(b"x" * 1000 for _ in range(9)), headers=own)
        failed(chunked, 413, "--max-body-bytes")
        with busy(s):
            reply = post(s, headers=own)
            failed(reply, 429, "--max-requests")
            assert int(reply.headers["retry-after"]) >= 1
        s.http.headers["authorization"] = "Bearer root"


def busy(server):
    """A request of alice's that is being answered."""
    o = Open(server, "/v1/completions", {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}, key="alice")
    o.event()
    return o


def test_a_queued_stream_is_kept_alive_and_fails_as_an_event(hasty):
    with hasty.begin(stream=False):
        until(lambda: hasty.requests("decoding"))
        found = names(post(hasty, stream=True))
        assert found[0] == {"type": "ping"}
        assert found[-1]["type"] == "error" and found[-1]["error"]["type"] == "overloaded_error"
        assert len(found[-1]["request_id"]) == 32
    hasty.wait_idle()
    with hasty.begin(stream=False):
        until(lambda: hasty.requests("decoding"))
        reply = post(hasty)
        failed(reply, 529, "--queue-timeout")
        assert int(reply.headers["retry-after"]) >= 1
    hasty.wait_idle()


def test_a_stream_is_cancelled_by_its_id(server):
    body = {"model": "canary", "messages": ASK, "max_tokens": 20000, "ignore_eos": True, "stream": True}
    with Open(server, PATH, body) as o:
        start = o.event()
        assert start["type"] == "message_start"
        assert server.http.delete("/v1/requests/" + start["message"]["id"]).status_code == 200
        *_, last = o.events()
        assert last["type"] == "error" and last["error"]["type"] == "api_error"
