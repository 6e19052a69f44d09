"""Compaction: a summary in place of a conversation. Its prompt follows the conversation, which is rendered
unchanged. So the prefix cache has it, and the reply is the same with an empty cache."""

import base64
import json

import anthropic
import pytest

from conftest import FEW_PAGES, events, serving
from test_cache import clear
from test_later_tools import NAMES, SYSTEM, Both, ask, both, model, offered  # noqa: F401
from test_responses import names
from test_tool_changes import tool

TRIGGER = {"type": "compaction_trigger"}
TOOLS = [{"type": "function", "name": n, "description": tool(n)["description"], "parameters": tool(n)["input_schema"]} for n in NAMES]
WORDS = "Look at every file below, one after the other, and tell what each is for. " * 12


def says(role, text):
    return {"type": "message", "role": role, "content": [{"type": "input_text" if role == "user" else "output_text", "text": text}]}


def turns(count):
    """A conversation with a call and its output in each turn."""
    items = []
    for i in range(count):
        items += [says("user", f"{i}: {WORDS}"),
                  {"type": "function_call", "call_id": f"c{i}", "name": "read", "arguments": json.dumps({"query": f"file {i}"})},
                  {"type": "function_call_output", "call_id": f"c{i}", "output": f"Nothing is in file {i}. " * 20},
                  says("assistant", "It is empty.")]
    return items


def respond(server, model, items, path="/v1/responses", status=200, **fields):
    body = {"model": model, "instructions": SYSTEM, "tools": TOOLS, "input": items, "temperature": 0, "max_output_tokens": 24, "store": False, **fields}
    reply = server.http.post(path, json=body)
    assert reply.status_code == status, reply.text
    return reply


def found(reply):
    usage = reply.json()["usage"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


def summary(item):
    """The text of an item: it is not a secret."""
    assert item["type"] == "compaction" and item["id"].startswith("cmp_")
    return base64.b64decode(item["encrypted_content"][44:]).decode()


def assert_compacts(server, model, items, path="/v1/responses", **fields):
    """At least 95 % of the conversation's last prompt are found, and the summary needs no cache."""
    clear(server)
    whole, none = found(respond(server, model, items, **fields))
    assert none == 0
    once = respond(server, model, [*items, TRIGGER], path, **fields)
    assert found(once)[1] >= 0.95 * whole and found(once)[0] > whole
    clear(server)
    again = respond(server, model, [*items, TRIGGER], path, **fields)
    assert found(again)[1] == 0
    (item,), (same,) = [[i for i in r.json()["output"] if i["type"] == "compaction"] for r in (once, again)]
    assert summary(item) == summary(same) != ""
    return item


def test_a_trigger_is_answered_with_one_compaction(both, model):
    items = turns(3)
    item = assert_compacts(both, model, items)
    reply = respond(both, model, [*items, TRIGGER]).json()
    assert [i["type"] for i in reply["output"]] == ["compaction"] and reply["status"] == "completed"
    # Codex goes on with its user's messages, then the summary, then a new one.
    after = [*[i for i in items if i.get("role") == "user"], item]
    next_turn = respond(both, model, [*after, says("user", "Go on.")])
    assert found(next_turn)[0] < found(respond(both, model, items))[0]
    prompt = both.http.post("/v1/responses/input_tokens", json={"model": model, "input": after}).json()["input_tokens"]
    plain = f"Summary of the conversation until here:\n\n{summary(item)}"
    written = [*after[:-1], says("user", plain)]
    assert prompt == both.http.post("/v1/responses/input_tokens", json={"model": model, "input": written}).json()["input_tokens"]


def test_an_agent_in_the_middle_of_a_turn_compacts_too(both, model):
    assert_compacts(both, model, turns(3)[:-1], max_output_tokens=16, parallel_tool_calls=True)


def test_forced_calls_and_formats_do_not_hold_for_a_summary(both, model):
    schema = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    for fields in {"tool_choice": "required"}, {"tool_choice": {"type": "function", "name": "read"}}, {"tool_choice": "auto", "text": {"format": schema}}:
        (item,) = respond(both, model, [*turns(1), TRIGGER], **fields).json()["output"]
        assert summary(item)[:1] not in ("", "{")


def test_a_stream_has_one_item(both, model):
    reply = respond(both, model, [*turns(1), TRIGGER], stream=True)
    seen = names(reply)
    assert [e["type"] for e in seen] == ["response.created", "response.in_progress", "response.output_item.added",
                                         "response.output_item.done", "response.completed"]
    (item,) = seen[-1]["response"]["output"]
    assert seen[3]["item"] == item and summary(item)
    assert summary(item) == summary(respond(both, model, [*turns(1), TRIGGER]).json()["output"][0])


def test_the_route_gives_the_users_messages_and_a_summary(both, model):
    items = turns(2)
    item = assert_compacts(both, model, items, "/v1/responses/compact")
    reply = respond(both, model, items, "/v1/responses/compact").json()
    assert reply["object"] == "response.compaction" and reply["id"].startswith("resp_") and reply["usage"]["output_tokens"] > 0
    assert reply["output"][:-1] == [i for i in items if i.get("role") == "user"]
    assert summary(reply["output"][-1]) == summary(item)
    short = respond(both, model, "What is it?", "/v1/responses/compact").json()["output"]
    assert short[0] == says("user", "What is it?") and len(short) == 2


def test_only_the_newest_messages_stay_in_a_compacted_conversation(both):
    """About a quarter of the context: 16384 tokens here."""
    items = [says("user", f"{i}: " + "word " * 1000) for i in range(8)]
    output = respond(both, Both.dense.name, items, "/v1/responses/compact").json()["output"]
    assert output[:-1] == items[-3:]


def test_a_stored_conversation_is_compacted(both, model):
    first = respond(both, model, turns(2), store=True).json()
    compacted = respond(both, model, [TRIGGER], previous_response_id=first["id"], store=True).json()
    (item,) = compacted["output"]
    after = respond(both, model, "Go on.", previous_response_id=compacted["id"]).json()
    same = respond(both, model, [item, says("user", "Go on.")]).json()
    for stored in first, compacted:
        assert both.http.delete(f"/v1/responses/{stored['id']}").status_code == 200
    assert after["usage"]["input_tokens"] == same["usage"]["input_tokens"] < first["usage"]["input_tokens"]


def test_a_summary_outlasts_a_restart():
    with serving(FEW_PAGES) as server:
        (item,) = server.post("/v1/responses", input=[says("user", "What is it?"), TRIGGER], max_output_tokens=16, store=False).json()["output"]
    with serving(FEW_PAGES) as server:
        count = [server.post("/v1/responses/input_tokens", input=[i]).json()["input_tokens"]
                 for i in (item, says("user", f"Summary of the conversation until here:\n\n{summary(item)}"))]
        assert count[0] == count[1]


def test_a_compaction_of_another_server_is_named(both):
    (item,) = respond(both, "canary", [*turns(1), TRIGGER]).json()["output"]
    sealed = item["encrypted_content"]
    foreign = [sealed[:-4], sealed[:50] + "AAAA" + sealed[54:], "gAAAAABo", "", "\u0000" * 60, "=" * 64, "é" * 100, "A" * 4000000]
    for content in foreign:
        reply = respond(both, "canary", [{"type": "compaction", "encrypted_content": content}, says("user", "And now?")])
        assert "input.compaction" in reply.headers["x-ignored-fields"]
    for content in None, 7, [], {}:
        error = respond(both, "canary", [{"type": "compaction", "encrypted_content": content}, says("user", "a")], status=400).json()["error"]
        assert error["param"] == "input[0]"


def test_thousands_of_compactions_are_bounded(both):
    (item,) = respond(both, "canary", [*turns(1), TRIGGER]).json()["output"]
    reply = respond(both, "canary", [TRIGGER, item] * 5000 + [says("user", "And now?")])
    assert found(reply)[0] == found(respond(both, "canary", [item, says("user", "And now?")]))[0]
    error = respond(both, "canary", [item] * 5000, status=400).json()["error"]
    assert error["code"] == "context_length_exceeded"


def test_a_conversation_beyond_the_context_loses_its_oldest_turns():
    with serving(FEW_PAGES, "--max-model-len", "1024") as server:
        body = {"store": False, "input": [says("user", f"{i}: " + "word " * 200) for i in range(8)] + [TRIGGER]}
        reply = server.http.post("/v1/responses", json=body)
        assert reply.status_code == 200 and int(reply.headers["x-plateau-dropped-messages"]) > 0, reply.text
        assert summary(reply.json()["output"][0])
        body = {"store": False, "input": [says("user", "word " * 3000), TRIGGER]}
        assert server.http.post("/v1/responses", json=body | {"stream": True}).status_code == 200


@pytest.mark.parametrize("place", ["chats", "responses", "messages"])
def test_a_plain_compaction_whose_tools_are_lost_finds_the_conversation(both, model, place):
    """Clients send the conversation once more, without its tools and with a text that requests a summary."""
    texts = [t for i in range(3) for t in (("user", f"{i}: {WORDS}"), ("assistant", "It is empty."))]
    history = [{"role": role, "content": text} for role, text in texts]
    lost = [*history, {"role": "user", "content": "Write a summary of this conversation."}]

    def send(messages, tools):
        if place == "chats":
            return ask(both, model, [{"role": "system", "content": SYSTEM}, *messages], offered(*NAMES) if tools else None)
        if place == "responses":
            reply = respond(both, model, messages, tools=TOOLS if tools else [])
            return *found(reply), reply.json()["output"][0]["content"][0]["text"]
        body = {"model": model, "system": SYSTEM, "messages": messages, "max_tokens": 24, "temperature": 0,
                **({"tools": [tool(n) for n in NAMES]} if tools else {})}
        reply = both.http.post("/v1/messages", json=body).json()
        usage = reply["usage"]
        return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["cache_read_input_tokens"], reply["content"]

    clear(both)
    send(history[:-1], True)
    whole, *_ = send([*history, {"role": "user", "content": "Go on."}], True)
    _, got, reply = send(lost, False)
    assert got >= 0.95 * (whole - 64)
    clear(both)
    _, none, same = send(lost, False)
    key = "token_ids"
    assert none == 0 and (reply[key] == same[key] if place == "chats" else reply == same)


# ---- Messages ----

def rounds(count):
    """A conversation with a call and its result in each turn."""
    messages = []
    for i in range(count):
        messages += [{"role": "user", "content": f"{i}: {WORDS}"},
                     {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{i}", "name": "read", "input": {"query": f"file {i}"}}]},
                     {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"t{i}", "content": f"Nothing is in file {i}. " * 20}]},
                     {"role": "assistant", "content": [{"type": "text", "text": "It is empty."}]}]
    return messages


def message(server, model, messages, status=200, **fields):
    body = {"model": model, "system": SYSTEM, "tools": [tool(n) for n in NAMES], "messages": messages, "max_tokens": 24, "temperature": 0, **fields}
    reply = server.http.post("/v1/messages", json=body)
    assert reply.status_code == status, reply.text
    return reply


def read(reply):
    usage = reply.json()["usage"]
    cached = usage["cache_read_input_tokens"]
    return usage["input_tokens"] + usage["cache_creation_input_tokens"] + cached, cached


NOW = {"compaction": {"type": "summarize"}}


def edit(tokens, **more):
    return {"context_management": {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": tokens}, **more}]}}


@pytest.mark.parametrize("fields", [NOW, edit(100), edit(100, pause_after_compaction=True)])
def test_messages_are_compacted(both, model, fields):
    messages = rounds(3)[:-1]
    clear(both)
    whole, _ = read(message(both, model, messages))
    once = message(both, model, messages, **fields)
    assert read(once)[1] >= 0.95 * whole and read(once)[0] > whole
    clear(both)
    again = message(both, model, messages, **fields)
    assert read(again)[1] == 0 and again.json()["content"] == once.json()["content"]
    (block,), usage = once.json()["content"], once.json()["usage"]
    assert block["type"] == "compaction" and block["content"] and block["tool_changes"] == [] and once.json()["stop_reason"] == "compaction"
    assert [i["type"] for i in usage["iterations"]] == ["compaction"] and usage["iterations"][0]["output_tokens"] == usage["output_tokens"] > 0
    # The next request goes on with the block, at the end of the messages or in place of them.
    asked = {"role": "user", "content": "Go on."}
    after = [read(message(both, model, m))[0] for m in ([*messages, {"role": "assistant", "content": [block]}, asked],
                                                        [{"role": "assistant", "content": [block]}, asked])]
    assert after[0] == after[1] < whole
    assert message(both, model, [*messages, {"role": "assistant", "content": [block]}]).json()["stop_reason"] != "compaction"


def test_a_short_conversation_is_answered(both, model):
    plain = message(both, model, rounds(1)[:-1]).json()
    edited = message(both, model, rounds(1)[:-1], **edit(100000)).json()
    assert edited["content"] == plain["content"] and edited["stop_reason"] == plain["stop_reason"] and "iterations" not in edited["usage"]


def test_a_compaction_in_a_stream_has_one_delta(both, model):
    whole = message(both, model, rounds(1)[:-1], **NOW).json()
    seen = events(message(both, model, rounds(1)[:-1], stream=True, **NOW).text)
    assert [e["type"] for e in seen if e["type"] != "ping"] == ["message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                                                "message_delta", "message_stop"]
    assert seen[2]["content_block"] == {"type": "compaction", "content": None, "tool_changes": []}
    assert seen[3]["delta"] == {"type": "compaction_delta", "content": whole["content"][0]["content"]}
    assert seen[5]["delta"]["stop_reason"] == "compaction"


def test_anthropics_client_compacts(both):
    fields = {"model": "canary", "max_tokens": 24, "system": SYSTEM, "messages": rounds(1)[:-1], "extra_body": {"temperature": 0}}
    with anthropic.Anthropic(base_url=both.url, api_key="none", max_retries=0) as client:
        whole = client.beta.messages.create(**fields, **NOW, betas=["compact-2026-01-12"])
        with client.beta.messages.stream(**fields, **edit(100), betas=["compact-2026-01-12"]) as stream:
            streamed = stream.get_final_message()
        assert whole.stop_reason == streamed.stop_reason == "compaction"
        assert whole.content[0].content == streamed.content[0].content and whole.content[0].tool_changes == []
        again = [*rounds(1)[:-1], {"role": "assistant", "content": whole.to_dict()["content"]}, {"role": "user", "content": "Go on."}]
        assert client.beta.messages.create(**{**fields, "messages": again}).stop_reason in ("end_turn", "max_tokens")


def test_a_summary_has_the_words_of_its_instructions(both):
    tokens = [read(message(both, "canary", rounds(1)[:-1], compaction={"type": "summarize", "instructions": words}))[0] for words in (None, " \n", "Be brief.")]
    assert tokens[0] == tokens[1] > tokens[2]


def test_the_block_has_the_changes_of_tools(both):
    change = [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "write"}},
              {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("new")}}]
    messages = [*rounds(1), {"role": "system", "content": change}, {"role": "user", "content": "And now?"}]
    (block,) = message(both, "canary", messages, **NOW).json()["content"]
    assert block["tool_changes"] == [{**change[0]}, {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool("new")}}]
    message(both, "canary", [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."}])


@pytest.mark.parametrize("fields, param", [
    ({"compaction": {"type": "shrink"}}, "compaction"), ({"compaction": "now"}, "compaction"), ({"compaction": {"type": "summarize", "instructions": 7}}, "compaction"),
    ({**NOW, **edit(9)}, "compaction"), (edit(0), "context_management"), (edit("9"), "context_management"), (edit(9, instructions=[]), "context_management"),
])
def test_bad_compactions_are_refused(both, fields, param):
    assert param in message(both, "canary", rounds(1)[:-1], 400, **fields).json()["error"]["message"]


def test_other_edits_are_named(both):
    edits = {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}
    assert message(both, "canary", rounds(1)[:-1], **edits).headers["x-ignored-fields"] == "context_management"
    assert "x-ignored-fields" not in message(both, "canary", rounds(1)[:-1], **edit(100000)).headers


def test_many_and_large_compaction_blocks_are_bounded(both):
    block = {"type": "compaction", "content": "All files were empty."}
    many = [{"role": "assistant", "content": [block] * 5000}, {"role": "user", "content": "Go on."}]
    one = [{"role": "assistant", "content": [block]}, {"role": "user", "content": "Go on."}]
    assert read(message(both, "canary", many))[0] == read(message(both, "canary", one))[0]
    large = [{"role": "assistant", "content": [{**block, "content": "word " * 1000000}]}, {"role": "user", "content": "Go on."}]
    assert "prompt is too long" in message(both, "canary", large, 400).json()["error"]["message"]


# ---- the reserve ----

def filled(server, model, tokens, items):
    """Extends the first message until the prompt has that number of tokens."""
    def counted():
        body = {"model": model, "instructions": SYSTEM, "tools": TOOLS, "input": items}
        return server.post("/v1/responses/input_tokens", **body).json()["input_tokens"]

    items[0]["content"][0]["text"] += " word" * (tokens - counted())
    assert counted() == tokens
    return items


ASK = says("user", "Write a summary of this conversation.")


def assert_full_compacts(server, model, context):
    """The server compacts a conversation that has reached the limit, and so does a client. Both find it."""
    assert server.http.get(f"/v1/models/{model}").json()["max_model_len"] == context
    items = filled(server, model, context - 1, turns(1))
    whole = found(respond(server, model, items, max_output_tokens=1))[0]
    for more, tools in ((TRIGGER, TOOLS), (ASK, [])):
        reply = respond(server, model, [*items, more], tools=tools, max_output_tokens=100)
        assert found(reply)[1] >= 0.95 * whole and found(reply)[0] > context and "x-plateau-dropped-messages" not in reply.headers
    # Requests that do not compact have none of it.
    error = respond(server, model, [*items, says("user", "Go on.")], status=400).json()["error"]
    assert f"is {context} tokens (--max-model-len; " in error["message"] and "for compaction, --compaction-reserve)" in error["message"]
    assert error["code"] == "context_length_exceeded"
    return items


def test_a_full_conversation_is_compacted_in_the_default_reserve(both):
    assert_full_compacts(both, Both.dense.name, 16384 - 1024)
    messages, room = rounds(1)[:-1], 15359
    room -= read(message(both, Both.dense.name, messages, max_tokens=1))[0]
    messages[0]["content"] += " word" * room
    whole = read(message(both, Both.dense.name, messages, max_tokens=1))[0]
    assert whole == 15359
    reply = message(both, Both.dense.name, messages, **NOW)
    assert read(reply)[1] >= 0.95 * whole and reply.json()["stop_reason"] == "compaction"


def test_a_full_conversation_is_compacted_in_its_reserve():
    """The reserve lies beyond --max-model-len."""
    with serving(FEW_PAGES, "--max-model-len", "2048", "--compaction-reserve", "512", "--host-cache", "64M") as server:
        items = assert_full_compacts(server, "canary", 2048)
        items[0]["content"][0]["text"] += " word" * 100
        assert respond(server, "canary", [*items, TRIGGER]).json()["status"] == "completed"


def test_without_a_reserve_the_oldest_turns_leave():
    with serving(FEW_PAGES, "--max-model-len", "2048", "--compaction-reserve", "0", "--host-cache", "64M") as server:
        items = filled(server, "canary", 2047, turns(1))
        respond(server, "canary", items, max_output_tokens=1)
        assert respond(server, "canary", [*items, ASK], tools=[], status=400).json()["error"]["code"] == "context_length_exceeded"
        reply = respond(server, "canary", [*items, says("user", "And now?"), TRIGGER])
        assert int(reply.headers["x-plateau-dropped-messages"]) > 0
