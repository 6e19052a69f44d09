"""Why a turn found less in the prefix cache than the turn before it could have left: agent turns with planted
changes."""

import http.server
import json
import threading

import pytest

from conftest import account, anthropic, events, serving, until
from test_admin_cli import run
from test_cache import clear
from test_later_tools import begun, later, offered
from test_listeners import socket_of

NAMES = ["search", "read", "write"]


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "256M") as s:
        yield s


def turn(server, messages, tools=None, **fields):
    """The part that differs, where the turn found little; None: it did not."""
    body = {"model": "canary", "messages": messages, "max_tokens": 2, **fields}
    reply = server.http.post("/v1/chat/completions", json=body | ({"tools": tools} if tools else {}))
    assert reply.status_code == 200, reply.text
    return told(reply)[0]


def told(reply):
    """x-cache-miss: the part, and its parameters."""
    part, *rest = reply.headers.get("x-cache-miss", "").split(";")
    return part or None, dict(p.split("=", 1) for p in rest)


def test_turns_that_grow_miss_nothing(cached):
    clear(cached)
    messages = begun("First?")
    for i in range(4):
        assert turn(cached, messages, offered(*NAMES), stream=i % 2 == 1) is None
        messages = later(messages, f"And {i}?")
    cached.says("cache_miss=- ")


LONG = " Some words that fill a page of the cache." * 20


@pytest.mark.parametrize("index, why", [(0, "system"), (1, "unknown"), (2, "messages[2]"), (3, "messages[3]"), (5, None)])
def test_a_planted_change_has_its_name(cached, index, why):
    """Another first message of the user is another conversation, of which no turn is known. The last message
    is new in each turn."""
    clear(cached)
    second = later(begun("What is planted?" + LONG), "Where?" + LONG)
    turn(cached, second, offered(*NAMES))
    third = later(second, "When?")
    third[index] = {**third[index], "content": "No. " + third[index]["content"]}
    assert turn(cached, third, offered(*NAMES)) == why


def test_tools_that_are_all_others_are_named(cached):
    first = begun("Which tools?")
    assert turn(cached, first, offered(*NAMES)) is None
    assert turn(cached, later(first, "Now?"), offered("lamp", "switch", "read")) == "tools[0]"
    cached.says("cache_miss=tools[0]")


def test_a_cleared_cache_is_named(cached):
    first = begun("Is it gone?")
    turn(cached, first, offered(*NAMES))
    clear(cached)
    assert turn(cached, later(first, "Now?"), offered(*NAMES)) == "evicted"
    assert turn(cached, later(first, "Now?", "Still?"), offered(*NAMES), stream=True) is None


def test_a_rendering_of_the_server_is_named(cached):
    """The client's parts are the same, and other arguments of the template change the text before them."""
    first = [{"role": "user", "content": "Who thinks?" + LONG}]
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    called = [*first, {"role": "assistant", "reasoning_content": "I read." + LONG, "content": "", "tool_calls": [call]},
              {"role": "tool", "tool_call_id": "c1", "content": "Nothing." + LONG}]
    turn(cached, called, offered(*NAMES))
    # The template drops the reasoning of earlier tasks.
    assert turn(cached, later(called, "So?"), offered(*NAMES)) == "rendering"


def test_every_dialect_has_the_header(cached):
    def ask(path, system, **body):
        return cached.http.post(path, json={"model": "canary", **body, **system}).headers.get("x-cache-miss", "").split(";")[0] or None

    text = begun("")[0]["content"]
    for path, name, body in (("/v1/messages", "system", {"messages": begun("Say it.")[1:], "max_tokens": 2}),
                             ("/v1/responses", "instructions", {"input": "Say it!", "max_output_tokens": 16, "store": False})):
        assert ask(path, {name: text}, **body) is None
        assert ask(path, {name: f"{path} {text}"}, **body) == "system"


def test_a_reply_says_it_where_asked_for(cached):
    """Chats and Responses in `usage`, Messages also as Anthropic's clients read it; whole and in streams."""
    def places(path, stream, system, **fields):
        body = {"model": "canary", "max_tokens": 16, "stream": stream, **fields}
        if path == "/v1/chat/completions":
            body |= {"messages": [{"role": "system", "content": system}, *begun(f"Say {stream}.")[1:]]}
        elif path == "/v1/messages":
            body |= {"system": system, "messages": begun(f"Tell {stream}.")[1:]}
        else:
            body |= {"instructions": system, "input": f"Name {stream}.", "max_output_tokens": body.pop("max_tokens"), "store": False}
        reply = cached.http.post(path, json=body)
        assert reply.status_code == 200 and not reply.headers.get("x-ignored-fields"), reply.text
        return [b for e in (events(reply.text) if stream else [reply.json()]) if isinstance(e, dict)
                for b in (e, e.get("response"), e.get("message")) if b]

    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses"):
        for stream in (False, True):
            asked = {"include_diagnostics": True} | ({"diagnostics": {"previous_message_id": None}} if path == "/v1/messages" else {})
            text = f"{path} {stream}. " + begun("")[0]["content"]
            first = places(path, stream, text, **asked)
            assert [p["usage"]["cache_miss_reason"] for p in first if p.get("usage")][-1] is None
            place = places(path, stream, text[:40] + "?" + text[41:], **asked)
            why = [p["usage"]["cache_miss_reason"] for p in place if p.get("usage")][-1]
            assert (why["type"], why["part"], why["at"], why["side"]) == ("system_changed", "system", "content", "client")
            assert "cause" not in why and "for" not in why and None not in why.values()
            assert 0 <= 40 - why["character"] < why["within"] and why["cache_missed_input_tokens"] > 64
            if path == "/v1/messages":
                [said] = [p["diagnostics"] for p in place if "diagnostics" in p]
                assert said == {"cache_miss_reason": why} and [p["diagnostics"] for p in first if "diagnostics" in p] == [None]
            assert "cache_miss_reason" not in str(places(path, stream, "Anew. " + text))


def test_anthropics_client_reads_it(cached):
    """`previous_message_id` names the message that the request is compared with."""
    client = anthropic.Anthropic(base_url=cached.url, api_key="none", max_retries=0)

    def ask(system, diagnostics=None):
        return client.messages.create(model="canary", max_tokens=2, system=system, messages=begun("Who reads it?")[1:],
                                      **({"diagnostics": diagnostics} if diagnostics else {}))

    text = begun("")[0]["content"]
    one, two = ask(text), ask("Other. " + text)
    assert one.diagnostics is None and two.diagnostics is None
    assert ask(text, {"previous_message_id": one.id}).diagnostics is None
    why = ask("Third. " + text, {"previous_message_id": one.id}).diagnostics.cache_miss_reason
    assert why.type == "system_changed" and why.cache_missed_input_tokens > 64
    lost = ask(text, {"previous_message_id": "msg_none"}).diagnostics.cache_miss_reason
    assert lost.type == "previous_message_not_found"
    refused = cached.http.post("/v1/messages", json={"model": "canary", "max_tokens": 1, "messages": begun("?")[1:], "diagnostics": {"previous_message_id": 3}})
    assert refused.status_code == 400 and "previous_message_id" in refused.text


def test_the_command_says_why(cached):
    at = ["--socket", socket_of(cached)]
    first = begun("Why so?" + LONG)
    turn(cached, first)
    changed = later(first, "And now?")
    changed[0] = {"role": "system", "content": changed[0]["content"].replace("page", "book")}
    reply = cached.http.post("/v1/chat/completions", json={"model": "canary", "messages": changed, "max_tokens": 2})
    name = reply.headers["x-request-id"]
    code, out, _ = until(lambda: (got := run("why", name, *at))[0] == 0 and got)
    assert "The first part that differs is system, in content, between characters" in out and "The client changed it." in out
    assert run("why", reply.json()["id"], *at)[1] == out
    record = json.loads(run("why", name, "--json", *at)[1])
    assert record["id"] == name and record["cache_miss"]["part"] == "system"
    assert name in run("why", *at)[1]
    clear(cached)
    gone = cached.http.post("/v1/chat/completions", json={"model": "canary", "messages": later(changed, "Gone?"), "max_tokens": 2})
    code, out, _ = until(lambda: (got := run("why", gone.headers["x-request-id"], *at))[0] == 0 and got)
    assert "It was evicted: an administrator cleared the cache, " in out
    code, _, err = run("why", "f" * 32, *at)
    assert code == 1 and "no record of a request" in err
    assert run("why", name, "more", *at)[0] == 2


class LongWords(http.server.BaseHTTPRequestHandler):
    """A server whose records have longer words than any of ours."""

    def do_GET(self):
        miss = {"part": "p" * 3000, "at": "a" * 3000, "side": "s" * 3000, "character": 1, "within": 2}
        evicted = {"part": "evicted", "cause": "c" * 3000, "for": "f" * 3000, "seconds": 4}
        records = [{"number": i, "id": "ab"[i], "cache_miss": m} for i, m in enumerate((miss, evicted))]
        body = json.dumps({"requests": records, "more": False}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_the_words_of_a_foreign_server_are_as_long_as_they_are():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), LongWords) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        at = ["--url", f"http://127.0.0.1:{server.server_port}"]
        changed, evicted = run("why", "a", *at), run("why", "b", *at)
        server.shutdown()
    assert changed[0] == 0 and "a" * 3000 + ", between characters 1 and 3. The " + "s" * 3000 in changed[1], changed
    assert evicted[0] == 0 and "c" * 3000 + ", for " + "f" * 3000 + ", 4 s before" in evicted[1], evicted


def test_the_account_and_its_gauges_hold_the_table(cached):
    n = cached.status()["conversations"]
    assert 0 < n["turns"] <= n["turns_limit"] and n["turns_compared"] > 0
    assert n["turns_bytes"] + n["bytes"] <= account(cached.memory(), "conversations")["used_bytes"] <= 8 << 20
    assert n["turns_bytes"] <= 2 << 20 and n["turns_limit"] > 250


def test_a_history_that_its_agent_replaces_is_named(cached):
    """A client's compaction that keeps the last turns."""
    clear(cached)
    messages = begun("What is compacted?" + LONG)
    for i in range(2):
        assert turn(cached, messages, prompt_cache_key="agent") is None
        messages = later(messages, f"And {i}?")
    kept = [messages[0], {"role": "user", "content": "A summary." + LONG}, *messages[2:]]
    assert turn(cached, kept, prompt_cache_key="agent") == "messages[1]"
    other = [messages[0], {"role": "user", "content": "Another summary." + LONG}, *messages[2:]]
    assert turn(cached, other, prompt_cache_key="nobody") == "unknown"
