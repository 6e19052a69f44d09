"""Idle or dripping connections keep no client out; bytes with two readings end their own connection."""

import contextlib
import re
import socket
import time

import httpx
import pytest

from conftest import refused, serving, until

HOST = b"Host: localhost\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /tokenize HTTP/1.1\r\n" + HOST
GOOD = b'{"prompt":"hi"}'


@pytest.fixture(scope="module")
def keyed():
    with serving("--api-key", "sk-one", "--api-key", "sk-two", "--admin-key", "root", key="root") as s:
        yield s


def exchange(server, data, seconds=10):
    """All that comes until the server closes, which it does."""
    with socket.create_connection(("127.0.0.1", server.port), seconds) as s:
        with contextlib.suppress(OSError):
            s.sendall(data)
        got = b""
        while piece := s.recv(65536):
            got += piece
    return got


def one_refusal(got, status, code):
    assert [int(x) for x in re.findall(rb"HTTP/1\.1 (\d{3}) ", got)] == [status], got
    head, body = got.split(b"\r\n\r\n", 1)
    assert b"Connection: close" in head and b"x-request-id: " in head
    assert int(re.search(rb"Content-Length: (\d+)", head)[1]) == len(body)
    assert f'"code":"{code}"'.encode() in body, got


SHAPES = {
    "two lengths": (POST + b"Content-Length: 0\r\nContent-Length: 42\r\n\r\n" + NEXT, 400, "duplicate_header"),
    "two lengths, the other way": (POST + b"Content-Length: 42\r\nContent-Length: 0\r\n\r\n" + NEXT, 400, "duplicate_header"),
    "length and encoding": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + NEXT, 400,
                            "ambiguous_length"),
    "encoding in 1.0": (b"POST /tokenize HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                        + NEXT, 400, "transfer_encoding"),
    "folded": (POST + b"X: a\r\n Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + NEXT, 400, "folded_header"),
    "bare CR": (POST + b"X: a\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + NEXT, 400, "bad_line_end"),
    "bare LF": (POST + b"X: a\nContent-Length: 0\r\n\r\n" + NEXT, 400, "bad_line_end"),
    "NUL": (POST + b"Content-Length: 0\0\r\n\r\n" + NEXT, 400, "bad_header"),
    "letters": (POST + b"Content-Length: abc\r\n\r\n{}", 400, "bad_length"),
    "plus": (POST + b"Content-Length: +5\r\n\r\n{}", 400, "bad_length"),
    "40 digits": (POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n{}", 413, "body_too_large"),
    "chunk of 0x5": (POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n" + NEXT, 400, "bad_chunk"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "not_http"),
    "no request": (b"hello\r\n\r\n", 400, "bad_request_line"),
    "half of HEAD": (b"HE\0D / HTTP/1.1\r\n\r\n", 400, "bad_request_line"),  # answered with a body, as other
                                                                             # methods
    "long target": (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414, "header_too_large"),
    "long header": (b"GET /live HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 70000 + b"\r\n\r\n", 431, "header_too_large"),
    "many headers": (b"GET /live HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 400 + b"\r\n", 431, "header_too_large"),
}


@pytest.mark.smoke
@pytest.mark.parametrize("name", SHAPES)
def test_what_has_two_readings_ends_the_connection(server, name):
    data, status, code = SHAPES[name]
    one_refusal(exchange(server, data), status, code)


@pytest.mark.smoke
def test_a_fault_behind_good_requests(server):
    """Requests before it are answered; bytes after it are not read."""
    good = POST + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD
    got = exchange(server, good + good + POST + b"X : y\r\n\r\n" + NEXT, 60)
    assert re.findall(rb"HTTP/1\.1 (\d{3}) ", got) == [b"200", b"200", b"400"]
    assert b"/smuggled" not in got


@pytest.mark.smoke
@pytest.mark.parametrize("head", [b"GET /live", b"GET /nothing", b"POST /tokenize"])
def test_an_expectation_without_a_body(server, head):
    """No body is announced, so the following bytes are the next request."""
    first = head + b" HTTP/1.1\r\n" + HOST + b"Expect: 100-continue\r\n\r\n"
    got = exchange(server, first * 2 + b"GET /live HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    answers = [status for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", got) if status != b"100"]
    own = {b"GET /live": b"200", b"GET /nothing": b"404", b"POST /tokenize": b"400"}[head]
    assert answers == [own, own, b"200"], got


@pytest.mark.smoke
@pytest.mark.parametrize("first, second", [(b"sk-one", b"sk-two"), (b"sk-one", b"wrong"), (b"wrong", b"sk-one")])
@pytest.mark.parametrize("header", [b"Authorization: Bearer ", b"x-api-key: "])
def test_credentials_stand_once(keyed, header, first, second):
    lines = header + first + b"\r\n" + header.lower().replace(b"bearer", b"Bearer") + second + b"\r\n"
    one_refusal(exchange(keyed, b"GET /v1/models HTTP/1.1\r\n" + HOST + lines + b"\r\n" + NEXT), 400, "duplicate_header")
    assert keyed.http.get("/v1/models").status_code == 200


def test_a_key_with_a_zero_byte(keyed):
    data = b"GET /v1/models HTTP/1.1\r\n" + HOST + b"Authorization: Bearer sk-one\0x\r\n\r\n"
    one_refusal(exchange(keyed, data), 400, "bad_header")


@pytest.mark.smoke
def test_all_with_open_requests():
    """A further one gets an answer saying so, and probes are answered anyway."""
    with serving("--max-connections", 3) as s:
        others = [socket.create_connection(("127.0.0.1", s.port), 60) for _ in range(3)]
        try:
            for other in others:
                other.sendall(POST + b"Content-Length: 1000000\r\n\r\n" + b" " * 900000)
            until(lambda: httpx.get(s.url + "/v1/models").status_code == 429)
            refused(httpx.get(s.url + "/v1/models"), 429, "too_many_connections", "3 connections", "--max-connections")
            for path in ("/live", "/health"):
                reply = httpx.get(s.url + path)
                assert (reply.status_code, reply.headers["connection"]) == (200, "close")
        finally:
            for other in others:
                other.close()
        until(lambda: httpx.get(s.url + "/v1/models").status_code == 200)


def test_crowds_that_rest_or_drip():
    """Hundreds of connections without a request: a probe and a newcomer are answered soon."""
    with serving("--max-connections", 64) as s, contextlib.ExitStack() as stack:
        def connect(data):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), 60))
            with contextlib.suppress(OSError):  # closed to make room already
                sock.sendall(data)
            return sock

        for _ in range(150):
            assert connect(b"GET /live HTTP/1.1\r\n" + HOST + b"\r\n").recv(4096).startswith(b"HTTP/1.1 200")
        dripping = [connect(b"GET /health HTTP/1.1\r\nHo") for _ in range(150)]
        for _ in range(3):
            for sock in dripping:
                with contextlib.suppress(OSError):
                    sock.sendall(b"s")
            begun = time.monotonic()
            assert httpx.get(s.url + "/health", timeout=60).status_code == 200
            reply = httpx.post(s.url + "/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=60)
            assert reply.status_code == 200
            assert time.monotonic() - begun < 10  # far more than it takes, and less than any timeout
        assert s.metrics()["plateau_http_connections"] <= 64 + 8


def test_a_client_beyond_its_share():
    with serving("--connections-per-ip", 2) as s, contextlib.ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), 60))
            sock.sendall(POST + b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
            # Its header has been read: no other connection takes its place.
            assert sock.recv(1000).startswith(b"HTTP/1.1 100 ")
            sock.sendall(b" " * 4900)
        reply = httpx.get(s.url + "/v1/models")
        assert reply.status_code == 429 and "--connections-per-ip" in reply.json()["error"]["message"]
        assert httpx.get(s.url + "/health").status_code == 200


@pytest.mark.parametrize("size", [b"Content-Length: 9000000", b"Transfer-Encoding: chunked"])
def test_open_routes_take_no_body(keyed, size):
    """They count for no share of the connections, so a slow body there may not hold one."""
    for path in (b"/health", b"/live", b"/version", b"/"):
        one_refusal(exchange(keyed, b"GET " + path + b" HTTP/1.1\r\n" + HOST + size + b"\r\n\r\n"), 413, "request_too_large")
    assert httpx.request("GET", keyed.url + "/health", headers={"content-length": "0"}).status_code == 200


def test_a_key_leaves_connections_to_others():
    with serving("--api-key", "sk-alice", "--api-key", "sk-bob", "--admin-key", "root", "--max-connections", 10,
                 key="root") as s, contextlib.ExitStack() as stack:
        def begin(key):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), 60))
            sock.sendall(POST + b"Authorization: Bearer " + key + b"\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
            got = sock.recv(4000)
            if got.startswith(b"HTTP/1.1 100 "):
                sock.sendall(b" " * 4900)
            return got

        # Eight have four times the two that are left.
        taken = [begin(b"sk-alice") for _ in range(10)]
        assert [got[9:12] for got in taken] == [b"100"] * 8 + [b"429"] * 2
        assert b'"too_many_requests"' in taken[-1] and b"--max-connections" in taken[-1]
        assert httpx.get(s.url + "/health", headers={"authorization": "Bearer sk-alice"}).status_code == 200
        for _ in range(3):
            reply = httpx.post(s.url + "/tokenize", content=GOOD, headers={"authorization": "Bearer sk-bob"})
            assert reply.status_code == 200, reply.text


def test_one_key_may_have_all_connections():
    with serving("--api-key", "sk-alice", "--admin-key", "root", "--max-connections", 10, key="root") as s, \
            contextlib.ExitStack() as stack:
        for _ in range(9):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), 60))
            sock.sendall(POST + b"Authorization: Bearer sk-alice\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
            assert sock.recv(4000).startswith(b"HTTP/1.1 100 ")
            sock.sendall(b" " * 4900)


def test_memory_of_connections_is_accounted():
    """Their pools of over 1 MB each are mapped, not of the heap."""
    with serving("--max-header-bytes", 1000000) as s, contextlib.ExitStack() as stack:
        before = s.memory()["unaccounted_bytes"]
        for _ in range(60):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", s.port), 60))
            sock.sendall(b"GET /live HTTP/1.1\r\n" + HOST + b"\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        after = s.memory()
        if after["system"]["heap_bytes"] > 0:
            assert after["untouched_bytes"] >= 60 * 1000000
            assert -after["untouched_bytes"] - (16 << 20) < after["unaccounted_bytes"] - before < 16 << 20
