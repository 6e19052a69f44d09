"""Streams that have begun and that the server has to end, on each API: a grammar whose stack is full, the
limits of --queue-timeout and --drain. Each ends in the words of its API, and nothing is left of it."""

import contextlib
import signal

import pytest

from conftest import Open, Server, all_returned, serving, settled, until

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
APIS = (CHAT, MESSAGES, RESPONSES)
LONG = {"ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def crowded():
    """One sequence in the batch; others wait two seconds at most, with comments from the first one on."""
    with serving("--max-num-seqs", 1, "--max-queue", 4, "--max-requests", 8, "--queue-timeout", 2, "--keepalive", 1) as s:
        yield s


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    if "crowded" not in request.fixturenames:
        yield
        return
    server = request.getfixturevalue("crowded")
    before = settled(server)
    yield
    all_returned(server, before)


def body(path, tokens=1900, **fields):
    ask = {"input": "a", "store": False} if path == RESPONSES else {"messages": [{"role": "user", "content": "a"}]}
    limit = {"max_output_tokens": tokens} if path == RESPONSES else {"max_tokens": tokens}
    return {"model": "canary", "stream": True, **ask, **limit, **fields}


def ended(path, found, code, kind):
    """The last events are the API's own for this error, and none says that the reply is whole. Returns the
    error's message."""
    assert "[DONE]" not in found
    types = [event.get("type") for event in found]
    assert not {"message_stop", "response.completed", "response.incomplete"} & set(types), types[-4:]
    if path == CHAT:
        error = found[-1]["error"]
        assert error["code"] == code and "choices" not in found[-1]
        assert all("error" not in event for event in found[:-1])
        return error["message"]
    if path == MESSAGES:
        assert found[-1]["type"] == "error" and found[-1]["error"]["type"] == kind
        assert types.count("error") == 1 and len(found[-1]["request_id"]) == 32
        return found[-1]["error"]["message"]
    error, last = found[-2:]
    assert error["type"] == "error" and error["code"] == code
    assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
    assert last["response"]["error"]["message"] == error["message"]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return error["message"]


def deltas(path, found):
    """The text that came before the end."""
    if path == CHAT:
        return "".join(c["delta"].get("content") or "" for event in found for c in event.get("choices", []))
    if path == MESSAGES:
        return "".join(event["delta"].get("text", "") for event in found if event["type"] == "content_block_delta")
    return "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")


# ---- a full stack of a grammar ----


def nested(width):
    """Lists in lists: an open one is in `width` alternatives at once, so each takes a long row."""
    lists = [{"type": "array", "prefixItems": [{"$ref": "#"}, {"const": i}], "minItems": 2, "items": False} for i in range(width)]
    return {"anyOf": [*lists, {"const": "never"}]}


def constrained(path, schema):
    if path == CHAT:
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}, "enable_thinking": False}
    form = {"format": {"type": "json_schema", "schema": schema}}
    if path == MESSAGES:
        return {"output_config": form}
    form["format"]["name"] = "n"
    return {"text": form, "reasoning": {"effort": "none"}}


@pytest.mark.smoke
@pytest.mark.parametrize("path", APIS)
def test_a_grammar_whose_stack_is_full_in_mid_stream(crowded, path):
    (bracket,) = crowded.post("/tokenize", prompt="[", add_special_tokens=False).json()["tokens"]
    fields = {**constrained(path, nested(350)), "logit_bias": {str(bracket): 100}, "temperature": 0}
    with Open(crowded, path, body(path, **fields)) as o:
        found = list(o.events())
        assert o.answer().status == 200
    said = ended(path, found, "grammar_too_complex", "invalid_request_error")
    text = deltas(path, found)
    assert len(text) > 50 and set(text) == {"["}, text[-50:]
    assert "too many ways" in said and "tokens" in said


# ---- limits of time ----


@pytest.mark.smoke
def test_a_place_that_comes_too_late_ends_streams_that_were_kept_alive(crowded):
    with contextlib.ExitStack() as stack:
        stack.enter_context(crowded.begin(stream=False))
        until(lambda: crowded.requests("decoding"))
        waiting = [(path, stack.enter_context(Open(crowded, path, body(path, 20, **LONG)))) for path in APIS]
        for path, o in waiting:
            found = list(o.events())
            said = ended(path, found, "queue_timeout", "overloaded_error")
            assert "--queue-timeout" in said and not deltas(path, found)


@pytest.mark.smoke
def test_a_drain_that_is_over_ends_streams_in_the_words_of_their_api():
    server = Server("--drain", 0)
    with contextlib.ExitStack() as stack:
        running = [(path, stack.enter_context(Open(server, path, body(path, 20000, **LONG)))) for path in APIS]
        begun = {path: [o.event()] for path, o in running}
        until(lambda: len(server.requests()) == len(APIS))
        server.process.send_signal(signal.SIGTERM)
        for path, o in running:
            found = begun[path] + list(o.events_that_come())
            ended(path, found, "shutting_down", "overloaded_error")
        assert server.wait() == 0
