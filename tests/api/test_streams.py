"""The form of a stream: its first events, its last, in silence, and in failure."""

import json
import time

import pytest

from conftest import FAULTY, Faulty, Open, until

PAGE = {"messages": [{"role": "user", "content": "What does mkdir do?"}], "temperature": 0}


def parse(raw):
    """Strictly: each block is one comment or one event of one data line. (comments, events)"""
    comments, found = [], []
    assert raw.endswith("\n\n")
    for block in raw[:-2].split("\n\n"):
        assert "\n" not in block and "\r" not in block, block
        if block.startswith(": "):
            comments.append(block[2:])
            continue
        assert block.startswith("data: "), block
        data = block[6:]
        found.append(data if data == "[DONE]" else json.loads(data))
    return comments, found


def stream(server, path, **fields):
    r = server.post(path, stream=True, **fields)
    assert r.status_code == 200, r.text
    assert r.headers["content-type"].startswith("text/event-stream")
    assert r.headers["cache-control"] == "no-cache"
    assert len(r.headers["x-request-id"]) == 32
    comments, found = parse(r.text)
    assert comments == []
    assert found[-1] == "[DONE]" and "[DONE]" not in found[:-1]
    chunks = found[:-1]
    prefix = "chatcmpl-" if "chat" in path else "cmpl-"
    assert {c["id"] for c in chunks} == {prefix + r.headers["x-request-id"]}
    assert len({(c["object"], c["created"], c["model"]) for c in chunks}) == 1
    return chunks


def check_choice(choices, chat):
    """One choice's chunks: its role first (a chat), its finish reason once and last."""
    reasons = [c["finish_reason"] for c in choices]
    assert reasons[-1] in ("stop", "length") and set(reasons[:-1]) <= {None}
    if chat:
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in c["delta"] for c in choices[1:])
        assert choices[-1]["delta"] == {}


@pytest.mark.smoke
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("usage", [None, False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_the_order_of_chunks(server, path, usage, n):
    chat = "chat" in path
    fields = PAGE if chat else {"prompt": "What does mkdir do?", "max_tokens": 6, "temperature": 0}
    options = {} if usage is None else {"stream_options": {"include_usage": usage}}
    chunks = stream(server, path, n=n, **fields, **options)
    assert chunks[0]["object"] == ("chat.completion.chunk" if chat else "text_completion")
    if usage:
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0
        assert all(c["usage"] is None for c in chunks[:-1])
        chunks = chunks[:-1]
    else:
        assert all("usage" not in c for c in chunks)
    choices = [choice for c in chunks for choice in c["choices"]]
    assert {c["index"] for c in choices} == set(range(n))
    for i in range(n):
        check_choice([c for c in choices if c["index"] == i], chat)


@pytest.mark.smoke
def test_a_stream_says_what_the_whole_reply_says(server):
    whole = server.post("/v1/chat/completions", **PAGE).json()["choices"][0]
    chunks = stream(server, "/v1/chat/completions", **PAGE)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == whole["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]


def test_tokens_come_as_they_are_drawn(server):
    """Not all together at the end: the first event is there while most of the work is still to be done."""
    body = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    # After the first event the server is ahead by a small buffer and its queue, for any slow client.
    with Open(server, "/v1/completions", body, receive_bytes=4096) as running:
        assert running.event()["choices"][0]["finish_reason"] is None
        shown = server.requests()[0]
        assert shown["tokens"] < 1000
        assert list(running.events())[-1] == "[DONE]"


@pytest.mark.smoke
def test_silence_is_filled_and_a_failure_is_an_event(hasty):
    """A waiting stream sends a keep-alive each second; when it waited too long it gets an error, and
    nothing else."""
    with hasty.begin(stream=False):
        until(lambda: hasty.requests("decoding"))
        began = time.monotonic()
        with hasty.begin() as waiting:
            reply = waiting.answer()
            assert reply.status == 200
            comments, found = parse(reply.read().decode())
        assert 1 <= time.monotonic() - began < 30
    assert comments and set(comments) == {"keep-alive"}
    (event,) = found
    assert event["error"]["code"] == "queue_timeout" and event["error"]["type"] == "server_error"
    assert "--queue-timeout" in event["error"]["message"]
    hasty.wait_idle()


@pytest.mark.smoke
def test_a_stream_that_is_refused_has_a_status(narrow):
    """A mistake found before the first byte is an HTTP status, never an event after 200."""
    assert narrow.complete("a", stream=True, temperature=9).status_code == 400
    assert narrow.complete("a", stream=True, model="nobody").status_code == 404


# ---- the silence before the first token ----

PINGS = {
    "/v1/messages": ({"max_tokens": 1, "messages": PAGE["messages"]}, b"event: ping"),
    "/v1/responses": ({"max_output_tokens": 1, "store": False, "input": "What does mkdir do?"}, b": keep-alive"),
    "/v1/chat/completions": ({"max_tokens": 1, **PAGE}, b": keep-alive"),
}


@pytest.fixture(scope="module")
def standing():
    """A server whose steps stand still by order; keep-alives come each second."""
    server = Faulty("--keepalive", "1")
    yield server
    server.stop()


@pytest.mark.skipif(not FAULTY.exists(), reason="built without tests")
@pytest.mark.parametrize("path", PINGS)
def test_pings_come_while_a_prompt_is_computed(standing, path):
    """The first step of the prompt lasts until the stream has had its signs of life."""
    fields, sign = PINGS[path]
    standing.order("hang")
    raw, free = b"", False
    try:
        with standing.http.stream("POST", path, json={"stream": True, "model": "canary", **fields}) as reply:
            assert reply.status_code == 200, reply.read()
            for piece in reply.iter_raw():
                raw += piece
                if not free and raw.count(sign) >= 3:
                    standing.order("wait")
                    standing.order("go")
                    free = True
    finally:
        standing.order("go")
    assert free and raw.count(sign) >= 3
    if path == "/v1/messages":
        kinds = [b.split(b"\n")[0] for b in raw.split(b"\n\n") if b]
        assert kinds.count(b"event: message_start") == 1 and kinds[-1] == b"event: message_stop"
        assert kinds.index(b"event: message_start") < kinds.index(b"event: content_block_start")
    standing.wait_idle()
