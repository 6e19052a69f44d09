"""Stored responses: bounds in bytes and time, keys, references to items, memory pressure. And truncation of a
conversation that is too long, and logprobs."""

import json

import pytest

from conftest import FAULTY, Faulty, account, openai, refused, serving, until

PATH = "/v1/responses"
ASK = "What does mkdir do?"
COLD = {"temperature": 0}
SMALL = 32 << 10
LONG = "These words fill the store. " * 50


def user(content):
    return {"role": "user", "content": content}


def post(server, input=ASK, key=None, **fields):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return server.http.post(PATH, json={"model": "canary", "input": input, "max_output_tokens": 4, **COLD, **fields}, headers=headers)


def answered(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()


def delete(server, *responses, key=None):
    """Deletes responses that are left, so that the server ends as it began."""
    headers = {"authorization": f"Bearer {key}"} if key else {}
    for response in responses:
        server.http.delete(f"{PATH}/{response['id']}", headers=headers)


def stored(server, response, key=None):
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return server.http.get(f"{PATH}/{response['id']}", headers=headers).status_code == 200


# ---- bounds ----

def test_the_least_recently_used_leave_first():
    with serving("--response-store", str(SMALL)) as server:
        first, second = (answered(post(server, LONG)) for _ in range(2))
        seen = [first, second]
        while server.metrics()["plateau_responses_evicted_total"] == 0:
            assert stored(server, first) and len(seen) < 100
            seen.append(answered(post(server, LONG)))
        assert stored(server, first) and not stored(server, second) and stored(server, seen[-1])
        refused(post(server, "x", previous_response_id=second["id"]), 404, "previous_response_not_found", "--response-store")
        now = server.status()["responses"]
        assert now["limit_bytes"] < SMALL and now["bytes"] <= now["limit_bytes"] and now["evicted"] >= 1
        assert now["stored"] == len(seen) and now["entries"] == now["stored"] - now["evicted"]
        metrics = server.metrics()
        assert metrics["plateau_responses"] == now["entries"] and metrics["plateau_responses_bytes"] == now["bytes"]
        huge = answered(post(server, "word " * 2000))
        assert not stored(server, huge) and server.status()["responses"]["refused"] == 1
        delete(server, *seen)


def test_unused_responses_expire():
    with serving("--response-ttl", "1") as server:
        one = answered(post(server))
        until(lambda: server.status()["responses"]["expired"] == 1)
        refused(post(server, "x", previous_response_id=one["id"]), 404, "previous_response_not_found")
        assert server.status()["responses"]["bytes"] == 0


def test_no_store():
    with serving("--response-store", "0") as server:
        one = answered(post(server))
        assert one["store"] is False and not stored(server, one) and server.status()["responses"] is None
        refused(post(server, [{"type": "item_reference", "id": one["output"][0]["id"]}]), 404, "item_not_found")


def test_keys_are_apart():
    with serving("--api-key", "alice", "--api-key", "bob", "--admin-key", "root", key="root") as server:
        one = answered(post(server, key="alice"))
        item = {"type": "item_reference", "id": one["output"][0]["id"]}
        assert stored(server, one, "alice") and not stored(server, one, "bob")
        refused(post(server, "x", "bob", previous_response_id=one["id"]), 404, "previous_response_not_found")
        refused(post(server, [item], "bob"), 404, "item_not_found")
        headers = {"authorization": "Bearer bob"}
        assert server.http.delete(f"{PATH}/{one['id']}", headers=headers).status_code == 404
        delete(server, one, answered(post(server, "x", "alice", previous_response_id=one["id"])), key="alice")


@pytest.mark.skipif(not FAULTY.exists(), reason="built without tests")
def test_memory_pressure_empties_the_stores():
    def heads():
        return account(server.memory(), "conversations")["used_bytes"]

    server = Faulty()
    try:
        empty = heads()
        tool = {"type": "function", "name": "f", "description": "directory " * 400, "parameters": {"type": "object"}}
        one = answered(post(server, tools=[tool]))
        assert stored(server, one) and heads() > empty + 4000
        server.order("available 100")
        until(lambda: server.status()["responses"]["entries"] == 0)
        assert server.status()["responses"]["evicted"] == 1
        until(lambda: heads() == empty)
        server.order("available 60000")
    finally:
        server.stop()


# ---- references to items ----

def test_items_by_reference(server):
    one = answered(post(server, [user(ASK)], max_output_tokens=60))
    items = server.http.get(f"{PATH}/{one['id']}/input_items").json()["data"]
    given = [*items, *one["output"]]
    references = [{"type": "item_reference", "id": i["id"]} for i in given]
    whole = answered(post(server, [*given, user("And rmdir?")], store=False))
    for form, keeps in ([{"id": r["id"]} for r in references], False), (references, True):
        by_id = answered(post(server, [*form, user("And rmdir?")], store=keeps))
        assert by_id["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
        assert [o.get("content") for o in by_id["output"]] == [o.get("content") for o in whole["output"]]
    twice = answered(post(server, [references[0]] * 40, store=False))
    assert twice["usage"]["input_tokens"] > one["usage"]["input_tokens"]
    delete(server, one)
    refused(post(server, [user("x"), references[0]]), 404, "item_not_found", "input[1]")
    # The items went into the later response whole.
    again = answered(post(server, "Go on.", previous_response_id=by_id["id"]))
    assert again["usage"]["input_tokens"] > by_id["usage"]["input_tokens"]
    delete(server, by_id, again)


@pytest.mark.parametrize("id", ["x", "msg_", "msg_0123", "item_" + "0" * 32 + "_0", "msg_" + "g" * 32 + "_0", "msg_" + "0" * 32])
def test_unknown_items(server, id):
    refused(post(server, [{"type": "item_reference", "id": id}]), 404, "item_not_found", "input[0]")


# ---- truncation ----

def turns(count):
    return [m for i in range(count) for m in (user(f"Question {i}: " + "what of it? " * 12), {"role": "assistant", "content": f"Answer {i}."})]


def test_truncation_drops_the_oldest_turns():
    with serving("--max-model-len", "512") as server:
        call = [{"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "seen " * 20}]
        history = [*turns(30), user("Look."), *call, user("And?")]
        fields = {"instructions": "Be brief.", "store": False, "max_output_tokens": 8}
        refused(post(server, history, **fields), 400, "context_length_exceeded")
        reply = post(server, history, truncation="auto", **fields)
        short = answered(reply)
        dropped = int(reply.headers["x-plateau-dropped-messages"])
        assert short["truncation"] == "auto" and 0 < dropped and dropped % 2 == 0
        # Tokens equal those of the rest of the conversation alone; one turn more does not fit.
        rest = post(server, history[dropped:], **fields)
        assert answered(rest)["usage"]["input_tokens"] == short["usage"]["input_tokens"] <= 504
        assert answered(rest)["output"][0]["content"] == short["output"][0]["content"]
        more = post(server, history[dropped - 2:], **fields)
        assert more.status_code == 400 or answered(more)["usage"]["input_tokens"] > 504
        # A conversation that fits is whole.
        reply = post(server, history[dropped:], truncation="auto", **fields)
        assert answered(reply)["usage"]["input_tokens"] == short["usage"]["input_tokens"]
        assert "x-plateau-dropped-messages" not in reply.headers
        # The last turn stays, with its calls.
        reply = post(server, [*turns(3), user("Look."), *call * 4, user("word " * 380)], truncation="auto", **fields)
        assert answered(reply)["usage"]["input_tokens"] > 380
        refused(post(server, [*turns(3), user("word " * 600)], truncation="auto", **fields), 400, "context_length_exceeded")
        reply = post(server, truncation="left", store=False)
        assert answered(reply)["truncation"] == "disabled" and reply.headers["x-ignored-fields"] == "truncation"
        refused(post(server, truncation=True), 400, "invalid_value", "truncation")


# ---- logprobs ----

@pytest.mark.parametrize("thinking", [False, True])
def test_logprobs(server, thinking):
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 200, "store": False,
              "enable_thinking": thinking}
    whole = answered(post(server, **fields))
    (part,) = whole["output"][-1]["content"]
    assert whole["top_logprobs"] == 2 and [o["type"] for o in whole["output"]] == ["reasoning"] * thinking + ["message"]
    entries = part["logprobs"]
    # The end token may have an entry, and blank lines behind the reasoning.
    text = b"".join(bytes(e["bytes"]) for e in entries).decode()
    assert part["text"] in text and len(text) < len(part["text"]) + 20
    assert all(len(e["top_logprobs"]) == 2 and e["logprob"] <= 0 and e["top_logprobs"][0]["logprob"] >= e["logprob"] for e in entries)
    chat = server.chat(ASK, temperature=0, max_tokens=200, logprobs=True, top_logprobs=2, enable_thinking=thinking).json()
    of_chat = chat["choices"][0]["logprobs"]["content"]
    without_end = [e["token"] for e in entries][:-1]
    assert without_end in ([e["token"] for e in of_chat][at:at + len(without_end)] for at in range(len(of_chat)))
    streamed = post(server, stream=True, **fields).text
    found = [json.loads(line[6:]) for line in streamed.split("\n") if line.startswith("data: ")]
    deltas = [e for e in found if e["type"] == "response.output_text.delta"]
    assert [e for d in deltas for e in d["logprobs"]] == entries
    done = next(e for e in found if e["type"] == "response.output_text.done")
    assert done["logprobs"] == entries and found[-1]["response"]["output"][-1]["content"][0]["logprobs"] == entries
    plain = answered(post(server, store=False, enable_thinking=thinking))
    assert all(p["logprobs"] == [] for o in plain["output"] if o["type"] == "message" for p in o["content"])


# ---- pages of input items ----

def items_of(server, response, **query):
    return answered(server.http.get(f"{PATH}/{response['id']}/input_items", params=query))


def test_input_items_come_in_pages(server):
    given = [user(f"Line {n} with \"quotes\",\n and {{braces}}") for n in range(4)] + [{**user("x"), "id": "msg_mine"}] * 2 + [
        {**user("y"), "id": ""}, {**user("z"), "id": None}]
    one = answered(post(server, given))
    two = answered(post(server, "Go on.", previous_response_id=one["id"]))
    whole = items_of(server, two)
    ids = [i["id"] for i in whole["data"]]
    assert len(set(ids)) == len(ids) == 10 and all(ids) and ids[4] == "msg_mine"
    assert (whole["first_id"], whole["last_id"], whole["has_more"]) == (ids[0], ids[-1], False)
    assert [i["id"] for i in items_of(server, one)["data"]] == ids[:8], "the same items have the same ids"
    for order, expected in ("asc", ids), ("desc", ids[::-1]):
        seen, page = [], {"has_more": True}
        while page["has_more"]:
            page = items_of(server, two, order=order, limit=3, **({"after": seen[-1]} if seen else {}))
            assert page["first_id"] == page["data"][0]["id"] and page["last_id"] == page["data"][-1]["id"]
            seen += [i["id"] for i in page["data"]]
        assert seen == expected
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", timeout=60)
    assert [i.id for i in client.responses.input_items.list(two["id"], order="desc", limit=4)] == ids[::-1]
    for query in {"limit": 0}, {"limit": 101}, {"limit": "x"}, {"order": "up"}:
        refused(server.http.get(f"{PATH}/{two['id']}/input_items", params=query), 400, "invalid_value", *query)
    refused(server.http.get(f"{PATH}/{two['id']}/input_items", params={"after": "msg_0"}), 404, "item_not_found", "after")
    delete(server, one, two)


def test_stored_responses_are_counted_once():
    """Their bytes come from the allocator, whose own figure has them already."""
    junk = [{"type": "web_search_call", "id": f"x{n}", "blob": "y" * 1000} for n in range(12000)]
    with serving() as server:
        ids = [answered(post(server, [*junk, user("hi")], max_output_tokens=1)) for _ in range(4)]
        memory = server.memory()
        assert server.http.get("/api/status").json()["responses"]["bytes"] > 40 << 20
        if memory["system"]["heap_bytes"] > 0:
            assert abs(memory["unaccounted_bytes"]) <= 32 << 20, memory["unaccounted_bytes"]
        delete(server, *ids)
