"""Generated framing: bytes that a proxy and a server could read differently, judged against another
reading of RFC 9112.

`read_requests` below accepts the framing that docs promise (CR LF, no folds, one length, digits) by
regular expressions over the whole bytes; the server reads them in pieces. Both must find the same
requests, and nothing after a fault may be answered."""

import contextlib
import re
import select
import time

import pytest

import hostile
from conftest import serving, until
from hostile import connect, draws, read_answers, read_until, send_pieces, unharmed

TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
LINE = re.compile(rb"(" + TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)")
FIRST = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e\x80-\xff]+) HTTP/1\.(\d)")
CHUNK = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;([\t\x20-\x7e\x80-\xff]*))?\r\n")
ONCE = {b"host", b"content-length", b"transfer-encoding", b"authorization", b"x-api-key", b"origin"}
NOT_BEHIND = ONCE | {b"cookie"}
# After each mutated request; an answer to it that was not due would answer another client's request.
LAST = b"GET /behind HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Fault(Exception):
    pass


class Silent(Fault):
    """The request line ends in a CR alone: a server that waits for its LF has seen no request, so there is
    no answer."""


class Partial(Exception):
    """The bytes end before the request does, or before the fault is certain."""


def read_lines(data, at):
    """Header lines up to the empty one, as (name, value), and where it ends."""
    found = []
    while True:
        end = data.find(b"\r\n", at)
        line = data[at:end] if end >= 0 else data[at:]
        if re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line if end >= 0 else line.removesuffix(b"\r")):
            raise Fault
        if end < 0:
            raise Partial
        if end == at:
            return found, end + 2
        named = LINE.fullmatch(line)
        if not named:
            raise Fault
        found.append((named[1].lower(), named[2].lstrip(b" \t")))
        at = end + 2


def read_chunks(data, at):
    body = b""
    while True:
        size = CHUNK.match(data, at)
        if not size and b"\r\n" not in data[at:]:
            raise Partial
        if not size or len(size[0]) > 250:
            raise Fault
        count, at = int(size[1], 16), size.end()
        if count == 0:
            break
        if len(data) < at + count + 2:
            if len(data) > at + count and data[at + count:at + count + 1] != b"\r":
                raise Fault
            raise Partial
        if data[at + count:at + count + 2] != b"\r\n":
            raise Fault
        body, at = body + data[at:at + count], at + count + 2
    trailers, at = read_lines(data, at)
    if any(name in NOT_BEHIND for name, _ in trailers):
        raise Fault
    return body, at


def judge(version, headers):
    """The headers by name."""
    names = [name for name, _ in headers]
    if any(names.count(name) > 1 for name in ONCE):
        raise Fault
    by = dict(headers)
    if version != b"0" and b"host" not in by:
        raise Fault
    if not re.fullmatch(rb"[0-9A-Za-z._~%!$&'()*+,;=:\[\]-]*[ \t]*", by.get(b"host", b"")):
        raise Fault
    if b"content-length" in by and not re.fullmatch(rb"[0-9]+", by[b"content-length"]):
        raise Fault
    if b"transfer-encoding" in by and (by[b"transfer-encoding"].lower().rstrip(b" \t") != b"chunked" or version == b"0"
                                       or b"content-length" in by):
        raise Fault
    return by


def read_request(data, at):
    """((method, target, headers, body), end)"""
    while data.startswith(b"\r\n", at):
        at += 2
    if re.compile(TOKEN + rb" [\x21-\x7e\x80-\xff]+ HTTP/1\.\d\r[^\n]").match(data, at):
        raise Silent
    end = data.find(b"\r\n", at)
    if end < 0:
        raise Partial
    first = FIRST.fullmatch(data[at:end])
    if not first or len(first[1]) > 17:
        raise Fault
    lines, at = read_lines(data, end + 2)
    by = judge(first[3], lines)
    if b"transfer-encoding" in by:
        body, at = read_chunks(data, at)
    else:
        length = int(by.get(b"content-length", b"0"))
        if length > 64 << 20:
            raise Fault  # too large: refused and closed, as a fault is
        if len(data) < at + length:
            raise Partial
        body, at = data[at:at + length], at + length
    return (first[1], first[2], by, body), at


def read_requests(data):
    """The whole requests, and how the bytes end: None, Fault or Partial."""
    found, at = [], 0
    while at < len(data):
        try:
            request, at = read_request(data, at)
        except (Fault, Partial) as e:
            return found, type(e)
        found.append(request)
    return found, None


# ---- requests and their mutations ----


def chunked(rng, body):
    data, at = b"", 0
    while at < len(body):
        count = rng.randint(1, len(body) - at)
        size = rng.choice([b"%x", b"%X", b"0%x", b"%x;a=b", b'%x;q="x y"']) % count
        data, at = data + size + b"\r\n" + body[at:at + count] + b"\r\n", at + count
    return data + b"0\r\n" + rng.choice([b"", b"X-After: 1\r\n"]) + b"\r\n"


def a_request(rng, number):
    """A valid one whose answer identifies it: (bytes, where its header ends)"""
    pads = b"Expect: 100-continue\r\n" if rng.random() < 0.05 else b""
    pads += b"".join(b"X-%d: %s\r\n" % (i, b"v" * rng.randrange(20)) for i in range(rng.randrange(3)))
    host = rng.choice([b"Host: localhost\r\n", b"host:127.0.0.1\r\n", b"HOST: [::1]:80\r\n"])
    kind = rng.random()
    if kind < 0.4:
        head = b"GET /%s-%d HTTP/1.1\r\n" % (rng.choice([b"nothing", b"a%20b", b"x?y=z&", b"%7e"]), number)
        return head + host + pads + b"\r\n"
    inner = b"" if rng.random() < 0.5 else b"GET /inner HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
    body = b'{"prompt":"%s%s"}' % (b" a" * (number + 1), inner)
    if rng.random() < 0.3:  # a body that is a request itself
        body = b"GET /inner HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = b"POST /tokenize HTTP/1.1\r\n" + host + pads
    if rng.random() < 0.5:
        return head + b"Transfer-Encoding: %s\r\n\r\n" % rng.choice([b"chunked", b"Chunked", b"CHUNKED"]) + chunked(rng, body)
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


BYTES = [b"\0", b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b",", b";", b"%", b"\x7f", b"\x80", b"\xff", b"\x0b", b"0", b"1", b"9", b"a", b"\\", b'"']
LINES = [b"Content-Length: 0", b"Content-Length: 4", b"content-length:00", b"Content-Length: +3", b"Content-Length: 5 ", b"Content-Length: 3, 3",
         b"Content-Length: 0x10", b"Content-Length: -1", b"Content-Length: 18446744073709551616", b"Content-Length:", b"Content-Length: 1e1",
         b"Content_Length: 7", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, identity",
         b"Transfer-Encoding: xchunked", b"Transfer-Encoding:\x0bchunked", b"Transfer-Encoding:\tchunked\t", b"Transfer-Encoding : chunked",
         b"Transfer-Encoding: \"chunked\"", b"Transfer-Encoding: identity", b" Transfer-Encoding: chunked", b"\tX: y", b"X", b": y", b"X\x80: y",
         b"Host: localhost", b"Host: a b", b"Host:", b"Host: localhost/..", b"Host: u@localhost", b"X: a\r\n\r\nGET /inner HTTP/1.1",
         b"X: a\rContent-Length: 3", b"X: a\nContent-Length: 3", b"X: \0", b"Trailer: Content-Length", b"TE: trailers", b"Upgrade: h2c",
         b"Cookie: a=b; c=d", b"Cookie: e", b"Origin: null", b"X-Api-Key: a", b"Expect: 100-continue", b"Range: bytes=0-1"]
SIZES = [b"0x4", b"+4", b"-4", b" 4", b"4 ", b"4;", b"4;\0", b"4;a\nb", b"4\n", b"", b"g", b"ffffffffffffffff", b"10000000000000000", b"00000000000000000",
         b"0", b"4,4", b"4;" + b"a" * 400, b"8000000000000000"]


def with_byte(rng, data):
    at = rng.randrange(len(data))
    return data[:at] + rng.choice([b"", rng.choice(BYTES)]) + data[at + rng.randrange(2):]


def line_ends(data):
    return [m.end() for m in re.finditer(rb"\r\n", data)] or [0]


def with_line(rng, data):
    at = rng.choice(line_ends(data))
    return data[:at] + rng.choice(LINES) + b"\r\n" + data[at:]


def with_line_twice(rng, data):
    lines = re.findall(rb"[^\r\n]+\r\n", data[:data.find(b"\r\n\r\n") + 2]) or [b"X: y\r\n"]
    at = rng.choice(line_ends(data))
    return data[:at] + rng.choice(lines) + data[at:]


def with_length(rng, data):
    return re.sub(rb"(?i)(content-length: *)(\d+)", lambda m: m[1] + b"%d" % max(0, int(m[2]) + rng.choice([-3, -1, 1, 2, 30, 10**12])), data, count=1)


def with_size(rng, data):
    found = list(re.finditer(rb"(?<=\r\n)[0-9a-fA-F]+(?=[;\r])", data))
    if not found:
        return with_byte(rng, data)
    m = rng.choice(found)
    return data[:m.start()] + rng.choice(SIZES) + data[m.end():]


def with_version(rng, data):
    return data.replace(b"HTTP/1.1", rng.choice([b"HTTP/1.0", b"HTTP/1.2", b"HTTP/1.10", b"HTTP/0.9", b"HTTP/2", b"http/1.1", b"HTTP/1.1 ", b"HTTP/1,1", b""]), 1)


def with_target(rng, data):
    wrong = [b"*", b"/", b"//evil/x", b"http://localhost/x", b"http://evil/x", b"localhost:80", b"/%00", b"/%", b"/%zz", b"/a b", b"/\x80", b"/../../etc/passwd",
             b"/%2e%2e%2f", b"/" + b"a" * rng.choice([300, 3000, 9000]), b"?", b"#", b"/x#y", b"/\\", b"/" + b"?&" * 100, b"/live\x09"]
    return re.sub(rb"^(\S+) \S+ ", lambda m: m[1] + b" " + rng.choice(wrong) + b" ", data, count=1)


def spliced(rng, data):
    at = rng.randrange(len(data))
    return data[:at] + data[rng.randrange(len(data)):]


def with_many(rng, data):
    at = data.find(b"\r\n") + 2
    return data[:at] + b"X-Pad: %s\r\n" % (b"p" * rng.choice([1, 200, 3000])) * rng.choice([2, 40]) + data[at:]


CHANGES = [with_byte, with_byte, with_byte, with_line, with_line, with_line_twice, with_length, with_size, with_size, with_version, with_target, spliced, with_many]


def due(request, answer):
    """Whether this is the answer to it."""
    method, target, headers, body = request
    if answer.status in (431, 414, 413):
        return answer.closes()
    named = re.fullmatch(rb"/[!-~]*-(\d+)", target)
    if answer.status == 404 and named and b"%" not in target and b"?" not in target:
        return target.decode() in answer.error()["message"]
    words = re.fullmatch(rb'\{"prompt":"((?: a)+)"\}', body)
    if answer.status == 200 and words and target == b"/tokenize":
        return len(words[1]) // 2 <= int(re.search(rb'"count":(\d+)', answer.body)[1]) <= len(words[1])
    return b"no route /inner" not in answer.body or b"/inner" in target


def check_exchange(data, got, closed):
    """The answers match the requests that another reader finds, in order; nothing after a fault is
    answered."""
    requests, end = read_requests(data)
    heads = {i for i, r in enumerate(requests) if r[0] == b"HEAD"}
    found, rest = read_answers(got, heads)
    assert not rest, (data, rest)
    assert len(found) <= len(requests) + (end is not None), (data, got)
    for request, answer in zip(requests, found):
        assert due(request, answer), (request, answer.status, answer.body, data)
    for answer in found[:-1]:
        assert not answer.closes(), (data, got)
    if closed and found and not found[-1].closes():
        # A client of HTTP/1.0 is left without an answer.
        assert end is Silent or re.search(rb"HTTP/1\.0", data), (data, got)
    if end is Fault and closed and len(found) == len(requests) + 1:
        assert found[-1].status >= 400, (data, got)
    if not closed:
        # A refusal by the header is sent before the body has arrived.
        assert end is Partial and (len(found) == len(requests) or found[-1].closes()), (data, got)
    return found


def try_bytes(server, data, rng):
    requests, end = read_requests(data)
    heads = {i for i, r in enumerate(requests) if r[0] == b"HEAD"}

    def enough(got):
        # The server, too, waits for the rest of an incomplete request.
        return end is Partial and len(read_answers(got, heads)[0]) >= len(requests)

    with connect(server) as s:
        send_pieces(s, data, rng)
        got, closed = read_until(s, enough)
        if not closed:  # and nothing more
            more, closed = read_until(s, lambda _: not select.select([s], [], [], 0.02)[0])
            got += more
    print("sent", data[:3000], "\ncame", got)
    return check_exchange(data, got, closed)


@pytest.mark.smoke
@pytest.mark.hostile
def test_framing_has_one_reading(server):
    refused = 0
    with unharmed(server):
        for _, rng in draws("framing", 800):
            before = [a_request(rng, i) for i in range(rng.randrange(3))]
            mutated = a_request(rng, 3)
            for _ in range(rng.choice([1, 1, 1, 2])):
                mutated = rng.choice(CHANGES)(rng, mutated) or b"x"
            found = try_bytes(server, b"".join(before) + mutated + a_request(rng, 4) + LAST, rng)
            refused += bool(found) and found[-1].status >= 400
    assert refused > 50


@pytest.mark.smoke
@pytest.mark.hostile
def test_pipelined_requests_are_answered_once_each_in_order(server):
    for _, rng in draws("pipelined", 40):
        requests = [a_request(rng, i) for i in range(rng.randint(5, 30))]
        data = b"".join(requests) + LAST
        seen, end = read_requests(data)
        assert end is None and len(seen) == len(requests) + 1
        found = try_bytes(server, data, rng)
        # A body that is not read closes.
        assert len(found) == len(seen) or found[-1].closes()


@pytest.mark.hostile
def test_noise_is_answered_once_or_not_at_all(server):
    """Bytes of every kind: at most one answer with one head, and then the end."""
    with unharmed(server):
        for _, rng in draws("noise", 150):
            data = rng.choice([rng.randbytes, lambda n: bytes(rng.choice(b"GET /POST:\r\n HTP.10\0\t") for _ in range(n))])(rng.choice([1, 20, 300, 9000]))
            with connect(server) as s:
                send_pieces(s, data + b"\r\n\r\n\0\r\n", rng)
                got, closed = read_until(s, lambda _: False)
            found, rest = read_answers(got)
            assert closed and not rest and len(found) <= 1, (data, got)
            assert all(a.status >= 400 and a.closes() for a in found), (data, got)


@pytest.mark.hostile
def test_connections_that_end_at_any_byte(server):
    """Closed, reset or shut in one direction, at every kind of place: nothing is left of them."""
    with unharmed(server):
        for _, rng in draws("ends", 80):
            data = b"".join(a_request(rng, i) for i in range(rng.randint(1, 4)))
            with connect(server) as s:
                send_pieces(s, data[:rng.randrange(len(data) + 1)], rng)
                fate = rng.random()
                with contextlib.suppress(OSError):
                    if fate < 0.3:
                        s.setsockopt(hostile.socket.SOL_SOCKET, hostile.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                    elif fate < 0.6:
                        s.shutdown(hostile.socket.SHUT_WR)
                        got, closed = read_until(s, lambda _: False)
                        assert closed
                        read_answers(got)
                    elif fate < 0.8:
                        s.shutdown(hostile.socket.SHUT_RD)
                    elif rng.random() < 0.5:
                        s.settimeout(0.02)
                        s.recv(rng.randint(1, 50))


DRIPS = {
    "header": (b"GET /live HTTP/1.1\r\nHost: localhost\r\n", b"X-A: b\r\n"),
    "body": (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", b" "),
    "chunks": (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "extension": (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
    "trailer": (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    "empty lines": (b"", b"\r\n"),
}


@pytest.mark.hostile
def test_what_drips_is_cut():
    """Whatever comes a little at a time is over some idle timeouts later."""
    with serving("--idle-timeout", 1) as server, contextlib.ExitStack() as stack:
        open_now = {}
        for name, (head, _) in DRIPS.items():
            s = open_now[name] = stack.enter_context(connect(server))
            s.sendall(head)
            s.setblocking(False)
        begun = time.monotonic()

        def all_cut():
            """all that drips is cut"""
            for name, s in list(open_now.items()):
                try:
                    s.send(DRIPS[name][1])
                    if s.recv(4096) == b"":
                        del open_now[name]
                except BlockingIOError:
                    pass
                except OSError:
                    del open_now[name]
            return not open_now

        until(all_cut, 60, 0.2)
        assert time.monotonic() - begun < 55
