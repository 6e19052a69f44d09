"""Each limit has an option, is named with its number when it is reached, and the server continues."""

import json
import socket

import httpx
import pytest

from conftest import Server, refused, serving, until

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


@pytest.fixture(scope="module")
def small():
    options = {"max-body-bytes": 2048, "max-header-bytes": 1024, "json-depth": 6, "max-model-len": 64}
    with serving(*(f"--{name}={value}" for name, value in options.items())) as s:
        yield s


def goes_on(server):
    assert server.complete("a", max_tokens=1).status_code == 200


@pytest.mark.smoke
def test_body_bytes(small):
    def body_of(size):
        body = json.dumps({"prompt": "a", "max_tokens": 1, "user": ""})
        return body[:-2] + "x" * (size - len(body)) + '"}'

    headers = {"content-type": "application/json"}
    assert small.http.post(TEXT, content=body_of(2048), headers=headers).status_code == 200
    refused(small.http.post(TEXT, content=body_of(2049), headers=headers), 413, "body_too_large", 2048,
            "--max-body-bytes")
    chunks = (body_of(4096)[i:i + 512].encode() for i in range(0, 4096, 512))
    refused(small.http.post(TEXT, content=chunks, headers=headers), 413, "body_too_large", 2048, "--max-body-bytes")
    goes_on(small)


@pytest.mark.smoke
def test_header_bytes(small):
    assert small.http.get("/live", headers={"x-pad": "x" * 600}).status_code == 200
    refused(small.http.get("/live", headers={"x-pad": "x" * 1100}), 431, "header_too_large", 1024, "--max-header-bytes")
    assert small.http.get("/live", headers={"x-pad": "x" * 100000}).status_code == 431
    goes_on(small)


@pytest.mark.smoke
def test_json_depth(small):
    def nested(depth):
        return json.loads("[" * depth + "]" * depth)

    inside = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    assert small.post(CHAT, metadata={"a": nested(4)}, **inside).status_code == 200
    refused(small.post(CHAT, metadata={"a": nested(5)}, **inside), 400, "invalid_json", "6 levels", "--json-depth")
    text = '{"prompt": "a", "metadata": {"a": ' + "[" * 1000
    refused(small.http.post(TEXT, content=text, headers={"content-type": "application/json"}), 400, "invalid_json",
            "6 levels")
    goes_on(small)


@pytest.mark.smoke
def test_prompt_length(small):
    assert small.complete([5] * 63, max_tokens=1).status_code == 200
    error = refused(small.complete([5] * 64), 400, "context_length_exceeded", "64 tokens", "--max-model-len")
    assert error["param"] == "prompt"
    error = refused(small.complete([5] * 60, max_tokens=5), 400, "context_length_exceeded", "64 tokens", "65", "60",
                    "--max-model-len")
    assert error["param"] == "max_tokens"
    error = refused(small.chat("word " * 200), 400, "context_length_exceeded", "64 tokens", "--max-model-len")
    assert error["param"] == "messages"
    goes_on(small)


@pytest.mark.smoke
def test_memory_of_a_request(narrow):
    """Twenty thousand numbers are forty kilobytes of text, and far more as values."""
    refused(narrow.complete([1] * 20000), 413, "request_too_large", 1 << 20, "--max-request-bytes")
    # A word of such a length is a small body, and takes as much to be cut into tokens.
    refused(narrow.complete("a" * 100_000), 413, "request_too_large", 1 << 20, "--max-request-bytes")
    goes_on(narrow)


@pytest.mark.smoke
def test_rows_and_queue(narrow):
    with narrow.begin(stream=False):
        until(lambda: narrow.requests("decoding"))
        with narrow.begin():
            until(lambda: narrow.requests("queued"))
            r = narrow.complete("a", max_tokens=1)
            refused(r, 429, "queue_full", "1 sequences", "1 places in the queue", "--max-queue")
            assert int(r.headers["retry-after"]) >= 1
    narrow.wait_idle()
    goes_on(narrow)


@pytest.mark.smoke
def test_time_in_the_queue(hasty):
    with hasty.begin(stream=False) as running:
        until(lambda: hasty.requests("decoding"))
        r = hasty.complete("a", max_tokens=1)
        refused(r, 503, "queue_timeout", "2 s", "--queue-timeout")
        assert int(r.headers["retry-after"]) >= 1
        assert hasty.requests("decoding") and running.reply is None
    hasty.wait_idle()
    goes_on(hasty)


@pytest.mark.smoke
def test_requests_at_once(narrow):
    """Requests whose body is still coming count as well."""
    head = f"POST {TEXT} HTTP/1.1\r\nHost: 127.0.0.1:{narrow.port}\r\nContent-Length: 100\r\n\r\n{{".encode()
    halves = [socket.create_connection(("127.0.0.1", narrow.port)) for _ in range(3)]
    for half in halves:
        half.sendall(head)
    until(lambda: len(narrow.requests("receiving")) == 3)
    r = narrow.complete("a", max_tokens=1)
    refused(r, 429, "too_many_requests", "3 requests", "--max-requests")
    assert int(r.headers["retry-after"]) >= 1
    for half in halves:
        half.close()
    narrow.wait_idle()
    goes_on(narrow)


@pytest.mark.smoke
def test_choices(server):
    refused(server.complete("a", n=129, max_tokens=1), 400, "invalid_value", "129", "128")
    refused(server.complete(["a"] * 65, n=2, max_tokens=1), 400, "invalid_value", "130", "128")
    refused(server.post(CHAT, messages=[{"role": "user", "content": "a"}],
                        tools=[{"type": "function", "function": {"name": "f"}}] * 513), 400, "invalid_value", "513",
            "512")
    refused(server.complete("a", stop=["x"] * 17, max_tokens=1), 400, "invalid_value", "16")
    refused(server.complete("a", stop="x" * 257, max_tokens=1), 400, "invalid_value", "256")
    goes_on(server)


def test_a_body_that_does_not_come(server):
    """Half a request keeps no other request waiting."""
    with socket.create_connection(("127.0.0.1", server.port)) as half:
        half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{")
        goes_on(server)
        until(lambda: server.requests("receiving"))
    until(lambda: not server.requests())


@pytest.mark.smoke
@pytest.mark.parametrize("options, status, words", [
    (["--port", "65536"], 2, "--port is given twice"),
    (["--json-depth", "3"], 2, "from 4 to 256"),
    (["--max-request-bytes", "64K"], 2, "from 1048576 to"),
    (["--max-queue", "0"], 2, "from 1 to"),
    (["--host", "0.0.0.0"], 2, "--api-key"),
    (["--max-model-len", "40000"], 1, "32768"),
    (["--memory-limit", "64M"], 1, "does not fit"),
])
def test_options_out_of_bounds(options, status, words):
    s = Server(*options, wait=False)
    assert s.wait() == status
    s.reader.join(5)
    assert s.said(words), s.lines
