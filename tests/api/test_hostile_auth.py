"""Generated credentials, spellings of paths, hosts and ids: a near miss of a key opens nothing, and a near
miss of a path reaches no other route."""

import contextlib
import re

import pytest

from conftest import Open, serving
from hostile import connect, draws, read_answers, read_until, unharmed

KEYS = {"alice": "sk-alice-0123456789", "bob": "sk-bob-9876543210", "root": "sk-root-5555555555"}
ADMINS = ["GET /api/memory", "GET /api/status", "POST /api/trim", "POST /api/hot-cache/clear", "POST /api/ssd-cache/clear", "POST /v1/models/canary/load",
          "POST /v1/models/canary/unload"]


@pytest.fixture(scope="module")
def keyed():
    with serving("--api-key", KEYS["alice"], "--api-key", KEYS["bob"], "--admin-key", KEYS["root"], key=KEYS["root"]) as s:
        yield s


def raw(server, line, *headers, host=b"localhost"):
    """The only answer to a request of these bytes."""
    head = b"".join(h + b"\r\n" for h in headers)
    more = b"Content-Length: 0\r\n" if line.startswith(b"POST") else b""
    with connect(server) as s:
        with contextlib.suppress(OSError):
            s.sendall(line + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + head + more + b"Connection: close\r\n\r\n")
        got, _ = read_until(s, lambda _: False)
    found, rest = read_answers(got, {0} if line.startswith(b"HEAD ") else ())
    assert len(found) == 1 and not rest, (line, headers, got)
    return found[0]


def nearly(rng, key):
    """A key with something wrong; seldom the key itself, or the key between blanks."""
    at = rng.randrange(len(key))
    other = rng.choice([b"", b"\0", b" ", b"\t", b"\xc3\xa9", b"\xff", b"%", b"a", b"0", b"*", b"\\", b'"', b",", b";", b"\x80"])
    return rng.choice([
        lambda: key[:at] + other + key[at + 1:], lambda: key[:at] + other + key[at:], lambda: key[:at], lambda: key[at:], lambda: key + key, lambda: key.swapcase(),
        lambda: key + other, lambda: other + key, lambda: key + b" " + key, lambda: key[::-1], lambda: b"*", lambda: key + b"\0" + other, lambda: b"x" * rng.choice([1, 200, 4000]),
        lambda: key.hex().encode(), lambda: b'"' + key + b'"', lambda: b"<" + key + b">"])()


@pytest.mark.smoke
@pytest.mark.hostile
def test_what_is_nearly_a_key_opens_nothing(keyed):
    """Among valid credentials, only the one scheme and whole keys of the route's kind
    count."""
    right = {KEYS[name].encode() for name in ("alice", "bob", "root")}
    with unharmed(keyed):
        for _, rng in draws("keys", 250):
            key = KEYS[rng.choice(list(KEYS))].encode()
            given = key if rng.random() < 0.15 else nearly(rng, key)
            scheme = rng.choice([b"Bearer ", b"bearer ", b"Bearer", b"Bearer  ", b"Basic ", b"Digest ", b"Bearer:", b"Bearer\t", b"Token ", b"", b"Bearer Bearer ", b"\xc2\xa0Bearer "])
            if rng.random() < 0.6:
                header = b"Authorization: " + scheme + given
                bearer = re.fullmatch(rb"(?i)bearer[ \t]+(.*?)[ \t]*", scheme + given, re.DOTALL)
                opens = bearer and bearer[1] in right
            else:
                header, opens = rng.choice([b"x-api-key: ", b"X-API-Key:"]) + given, given.strip(b" \t") in right
            if rng.random() < 0.2:
                header, opens = rng.choice([b"api-key: ", b"X-Auth-Token: ", b"Proxy-Authorization: Bearer ", b"Cookie: key=", b"X_API_KEY: "]) + key, False
            answer = raw(keyed, rng.choice([b"GET /v1/models", b"GET /model_info", b"HEAD /v1/models", b"DELETE /v1/requests/0"]), header)
            print(header, answer.status)
            assert opens or answer.status in (400, 401, 431), (header, answer.status)
            assert given not in answer.body or len(given) < 4


def respelled(rng, path):
    """The path in another way, which may be none."""
    at = rng.randrange(1, len(path))
    spell = b"%%%02x" % path[at]
    return rng.choice([
        lambda: path, lambda: path + b"?" + rng.choice([b"", b"a=b", b"admin=1", b"key=" + KEYS["root"].encode()]), lambda: path[:at] + spell + path[at + 1:], lambda: path.upper(),
        lambda: path.swapcase(), lambda: b"/" + path, lambda: path + b"/", lambda: path.replace(b"/", b"//"), lambda: b"/live/.." + path, lambda: b"/live/%2e%2e" + path, lambda: b"/." + path,
        lambda: path + b"/.", lambda: path + b"%00", lambda: path + b"%20", lambda: path + b";a=b", lambda: path + b"#", lambda: path.replace(b"/", b"%2f", 2)[3:], lambda: path + b".json",
        lambda: path.replace(b"/", b"\\"), lambda: b"http://localhost" + path, lambda: b"/%252e" + path, lambda: b"/metrics/.." + path])()


PRETENCES = [b"X-Forwarded-For: 127.0.0.1", b"X-Real-IP: ::1", b"Forwarded: for=127.0.0.1;by=unix", b"X-Original-URL: /api/status", b"X-Rewrite-URL: /api/status", b"X-HTTP-Method-Override: GET",
             b"X-Forwarded-Host: localhost", b"X-Forwarded-Proto: https", b"Via: 1.1 localhost", b"X-Remote-User: root", b"Remote-User: admin", b"Cookie: admin=1", b"X-Admin: true",
             b"Origin: null", b"Origin: http://localhost", b"Referer: http://localhost/", b"Upgrade: websocket", b"X-Api-Version: 1", b"X-Cluster-Client-IP: 127.0.0.1"]


@pytest.mark.smoke
@pytest.mark.hostile
def test_no_spelling_and_no_pretence_opens_the_admins_routes(keyed, server):
    """Without the admin's key, through any proxy, no path acts as an admin's route."""
    for which in (keyed, server):
        with unharmed(which):
            for _, rng in draws("admin", 150):
                method, path = rng.choice(ADMINS).encode().split()
                headers = rng.sample(PRETENCES, rng.randrange(4))
                root = KEYS["root"].encode()
                key = rng.choice([None, KEYS["alice"].encode(), nearly(rng, root)])
                if key and key.strip(b" \t") != root:
                    headers.append(rng.choice([b"Authorization: Bearer ", b"X-API-Key: "]) + key)
                if rng.random() < 0.1:
                    method = rng.choice([b"GET", b"PUT", b"HEAD", b"OPTIONS", b"PATCH", b"TRACE", b"get"])
                line = method + b" " + respelled(rng, path)
                answer = raw(which, line, *headers)
                print(line, headers, answer.status)
                # GET of the part after /v1/models/ is a model that does not exist.
                assert 400 <= answer.status < 500 or answer.status == 501, (line, headers, answer.status, answer.body)


@pytest.mark.hostile
def test_ids_of_others_requests(keyed):
    """Another tenant's request continues, for every spelling of its id."""
    body = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}
    with unharmed(keyed), Open(keyed, "/v1/completions", body, key=KEYS["bob"]) as running:
        assert running.event()
        name = running.answer().headers["x-request-id"].encode()
        for _, rng in draws("ids", 60):
            at = rng.randrange(len(name))
            path = b"/v1/requests/" + rng.choice([name, name.upper(), name[:at], name + b"0", b"%%%02x" % name[0] + name[1:], name + b"%00", b"%20" + name, b"0x" + name, b"../requests/" + name,
                                                  name[:at] + b"%2f" + name[at:], b"*", b"", name + b"?key=" + KEYS["bob"].encode(), name + b"/", b"cmpl-" + name])
            answer = raw(keyed, b"DELETE " + path, b"Authorization: Bearer " + KEYS["alice"].encode())
            assert answer.status in (400, 404, 405), (path, answer.status)
        assert running.event()


LOOPBACK = re.compile(rb"(?i)(([a-z0-9-]+\.)*localhost\.?|127(\.\d+){3}|\[::1\])(:\d*)?")
SURE = re.compile(rb"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,4})?")


@pytest.mark.hostile
def test_names_that_are_not_loopbacks(server):
    """A name that a page can point at this machine is not served without keys."""
    words = [b"localhost", b"127.0.0.1", b"[::1]", b"evil", b"example.com", b".", b":", b"80", b"@", b"0", b"127", b"1", b"[", b"]", b"::1", b"%", b"0x7f", b"2130706433", b"::ffff:", b"-",
             b"[::]", b"0.0.0.0", b"nip.io", b",", b";", b"_", b"~", b"*"]
    with unharmed(server):
        for _, rng in draws("hosts", 250):
            host = b"".join(rng.choice(words) for _ in range(rng.randint(1, 4)))
            origin = [b"Origin: " + rng.choice([b"http://", b"https://", b"", b"file://", b"null"]) + rng.choice([host, b"evil"])] if rng.random() < 0.3 else []
            answer = raw(server, b"GET /v1/models", *origin, host=host)
            print(host, origin, answer.status)
            assert answer.status in (200, 400, 403)
            if answer.status == 200:
                assert LOOPBACK.fullmatch(host), host
                assert not origin or origin[0].endswith(host), (host, origin)
            elif not origin:
                assert not SURE.fullmatch(host), host


@pytest.mark.hostile
def test_nothing_that_a_client_writes_breaks_a_line_of_the_log(keyed):
    with unharmed(keyed):
        for _, rng in draws("log", 80):
            wild = b"".join(rng.choice([b"%%%02x" % rng.randrange(1, 256), b"%0a", b"%1b[31m", b"%9b", b"%22", b"%20level=error", b"a", b"%ff%fe"]) for _ in range(rng.randint(1, 20)))
            raw(keyed, rng.choice([b"POST /v1/models/%s/load", b"POST /v1/models/%s/unload", b"GET /%s", b"DELETE /v1/requests/%s"]) % wild,
                b"Authorization: Bearer " + rng.choice([KEYS["root"].encode(), b"wrong"]), b"User-Agent: \xff\x1b"[:13] + b"\x80")
    for line in list(keyed.lines):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+Z level=[a-z]+ event=[a-z_]+( [\x20-\x7e]*)?\n", line), line
        assert not any(key in line for key in KEYS.values())
