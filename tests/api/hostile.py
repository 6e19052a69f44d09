"""Common parts of the hostile suite: seeds, raw exchanges whose answers are read strictly, and what must be
true of a server afterwards.

Cases are generated. Each run draws a new seed; the one that a failing test prints replays it with
PLATEAU_SEED=n. PLATEAU_LONG=1 tries twenty times as many."""

import contextlib
import http.client
import json
import os
import random
import re
import select
import socket
import time

from conftest import PROGRAM, check_ledger, settled

# Taken away from the programs that the tests start: theirs is the option --seed.
SEED = int(os.environ.pop("PLATEAU_SEED", "") or random.randrange(2**32))
LONG = bool(os.environ.get("PLATEAU_LONG"))
SANITIZED = "asan" in PROGRAM or "tsan" in PROGRAM
# Prompt whose answer must stay equal.
PROMPT = [64, 271, 1000, 512, 77, 300, 301]


def draws(group, count):
    """A generator of random numbers for each case of the group."""
    print(f"PLATEAU_SEED={SEED} ({group})")
    for number in range(count * 20 if LONG else count // 4 + 1 if SANITIZED else count):
        yield number, random.Random(f"{SEED}/{group}/{number}")


# ---- state afterwards ----


def answer_ids(server, **fields):
    """An ordinary completion."""
    fields = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
    reply = server.post("/v1/completions", **fields)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


@contextlib.contextmanager
def unharmed(server, **fields):
    """After the block, the process lives, its accounts are the same as before, and the same question has
    the same answer."""
    said, before = answer_ids(server, **fields), settled(server)
    yield
    assert server.process.poll() is None, "".join(server.lines[-20:])
    assert answer_ids(server, **fields) == said
    after = settled(server)
    assert after == before, {name: (before.get(name), after.get(name)) for name in {*before, *after}
                             if before.get(name) != after.get(name)}
    memory = server.memory()
    check_ledger(memory)
    assert memory["sums_hold"] is True
    assert not server.said("runtime error") and not server.said("AddressSanitizer")


# ---- raw answers ----


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def closes(self):
        return self.headers.get("connection", "").lower() == "close"

    def error(self):
        return json.loads(self.body)["error"]


def dechunked(data, at):
    """The body and where it ends; None: it is not whole."""
    body = b""
    while True:
        size = re.compile(rb"([0-9a-fA-F]+)\r\n").match(data, at)
        if not size:
            return None, at
        begin, count = size.end(), int(size[1], 16)
        if len(data) < begin + count + 2:
            return None, at
        assert data[begin + count:begin + count + 2] == b"\r\n", data[at:]
        body += data[begin:begin + count]
        at = begin + count + 2
        if count == 0:
            return body, at


def check_answer(answer, head_only, weights_damaged=False):
    """Checks the rules of every answer. Only damaged weights may give a 500, which blames them."""
    assert "date" in answer.headers or answer.closes(), answer.headers
    assert re.fullmatch(r"[0-9a-f]{32}", answer.headers.get("x-request-id", "")), answer.headers
    if answer.status >= 400 and not head_only:
        # Below /v1/messages errors are Anthropic's.
        theirs = json.loads(answer.body).get("request_id") == answer.headers["x-request-id"]
        assert set(answer.error()) == ({"message", "type"} if theirs else {"message", "type", "param", "code"}), answer.body
        blamed = weights_damaged and answer.error()["message"].startswith("The model's logits are not numbers (NaN)")
        assert (answer.status != 500 or blamed) and answer.error()["message"], answer.body


def one_answer(data, at, head_only=False):
    """The answer that begins there and where it ends; None: it is not whole. Anything else than one head and
    its body fails."""
    end = data.find(b"\r\n\r\n", at)
    if end < 0:
        assert data[at:at + 5] in (b"HTTP/"[:len(data) - at], b"HTTP/"), data[at:]
        return None, at
    first, *lines = data[at:end].split(b"\r\n")
    begun = re.fullmatch(rb"HTTP/1\.[01] (\d{3}) [ -~]+", first)
    assert begun, data[at:]
    headers = {}
    for line in lines:
        named = re.fullmatch(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\t\x20-\x7e]*)", line)
        assert named, line
        name = named[1].decode().lower()
        assert name not in headers, data[at:]
        headers[name] = named[2].decode()
    status, at = int(begun[1]), end + 4
    if 100 <= status < 200:
        return Answer(status, headers, b""), at
    assert ("content-length" in headers) != ("transfer-encoding" in headers), headers
    body = b""
    if "transfer-encoding" in headers and not head_only:
        body, at = dechunked(data, at)
    elif not head_only:
        length = int(headers["content-length"])
        body = data[at:at + length] if len(data) - at >= length else None
        at += length
    if body is None:
        return None, at
    answer = Answer(status, headers, body)
    check_answer(answer, head_only)
    return answer, at


def read_answers(data, heads=()):
    """All answers in the bytes, and the rest that is not a whole answer; heads: indices of answers to
    HEAD."""
    found, at = [], 0
    while at < len(data):
        answer, end = one_answer(data, at, head_only=len(found) in heads)
        if not answer:
            break
        at = end
        if answer.status >= 200:
            found.append(answer)
    return found, data[at:]


def connect(server, receive_bytes=None):
    s = socket.socket()
    if receive_bytes:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    s.settimeout(60)
    s.connect(("127.0.0.1", server.port))
    return s


def send_pieces(s, data, rng, pieces=4):
    """The bytes, cut at random places."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(pieces)))
    with contextlib.suppress(OSError):  # refused and closed before it was read
        for begin, end in zip([0, *cuts], [*cuts, len(data)]):
            s.sendall(data[begin:end])
            if end < len(data):
                time.sleep(rng.random() * 0.002)


def read_until(s, enough, seconds=60):
    """Reads until the server closes or `enough(bytes)`; returns the bytes and whether it closed."""
    got, end = b"", time.monotonic() + seconds
    while not enough(got):
        ready, _, _ = select.select([s], [], [], max(0, end - time.monotonic()))
        assert ready, f"nothing within {seconds} s, after {got!r}"
        try:
            piece = s.recv(1 << 16)
        except ConnectionResetError:
            return got, True
        if not piece:
            return got, True
        got += piece
    return got, False


def exchange(server, data, rng, heads=()):
    """The answers to bytes after which the server closes."""
    with connect(server) as s:
        send_pieces(s, data, rng)
        got, _ = read_until(s, lambda _: False)
    found, rest = read_answers(got, heads)
    assert not rest, rest
    return found


# ---- requests ----


def ask(server, method, path, body=b"", headers=None, timeout=120, weights_damaged=False):
    """(status, parsed body or bytes, headers) of a request of its own connection. Each refusal has the
    envelope and an id; check_answer says when one is a 500."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before it was read
            c.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        data, headers = r.read(), {name.lower(): value for name, value in r.getheaders()}
    finally:
        c.close()
    answer = Answer(r.status, headers, data)
    if r.status != 204:
        check_answer(answer, method == "HEAD", weights_damaged)
    with contextlib.suppress(ValueError):
        data = json.loads(data)
    return r.status, data, headers


def post(server, path, fields, **more):
    """The body as JSON, lone surrogates as their bytes; bytes are sent unchanged."""
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    return ask(server, "POST", path, body, **more)


def answered(got, *allowed):
    """A 200, or a refusal that blames the client."""
    status, body, _ = got
    assert status in (allowed or (200, 400, 413, 422)), got
    return got
