"""Keys from files, the refusal to run open, and the log lines about changes."""

import os
import re
import socket
import subprocess

import httpx
import pytest

from conftest import PROGRAM, Open, admin_routes, refused, serving, until


def lines_of(server, event):
    return [line for line in list(server.lines) if f" event={event} " in line]


def field(line, name):
    found = re.search(rf' {name}=("[^"]*"|\S*)', line)
    return found[1].strip('"') if found else None


def bearer(key):
    return {"authorization": f"Bearer {key}"} if key else {}


def write_keys(path, text, mode=0o600):
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    at = tmp_path_factory.mktemp("keys")
    users = write_keys(at / "users", "# who may ask\nalice sk-alice-0123\nbob sk-bob-0123 # his laptop\nsk-nobody-0123\n")
    admins = write_keys(at / "admins", "root sk-root-0123\n", 0o644)
    options = ["--api-key-file", users, "--admin-key-file", admins, "--api-key", "sk-inline-0123"]
    with serving(*options, key="sk-root-0123") as s:
        yield s


@pytest.mark.smoke
def test_keys_of_files_open_what_they_should(filed):
    for key in ["sk-alice-0123", "sk-bob-0123", "sk-nobody-0123", "sk-inline-0123"]:
        assert filed.http.get("/v1/models", headers=bearer(key)).status_code == 200
        refused(filed.http.get("/api/status", headers=bearer(key)), 401, "invalid_api_key")
    assert filed.http.get("/v1/models", headers=bearer("sk-root-0123")).status_code == 200
    assert filed.http.get("/api/status", headers=bearer("sk-root-0123")).status_code == 200
    for key in ["alice", "root", "#", "alice sk-alice-0123", "sk-alice-012"]:
        refused(filed.http.get("/v1/models", headers=bearer(key)), 401, "invalid_api_key")


@pytest.mark.smoke
def test_a_file_that_everybody_may_read_is_told_of(filed):
    [line] = until(lambda: lines_of(filed, "key_file_exposed"))
    assert field(line, "file").endswith("/admins")


def test_settings_with_a_key_among_them_are_a_file_of_keys(tmp_path):
    config = write_keys(tmp_path / "plateau.ini", "admin-key = sk-root-0123\n", 0o644)
    env = write_keys(tmp_path / "plateau.env", "PLATEAU_API_KEY=sk-alice-0123\n", 0o620)
    fine = write_keys(tmp_path / "fine.env", "PLATEAU_MAX_QUEUE=5\n", 0o644)
    with serving("--config", config, "--env-file", env, key="sk-root-0123") as s:
        until(lambda: len(lines_of(s, "key_file_exposed")) == 2)
        told = {field(line, "file"): field(line, "problem") for line in lines_of(s, "key_file_exposed")}
        assert told == {str(config): "everybody may read it", str(env): "others may change it"}
    with serving("--env-file", fine) as s:
        assert not lines_of(s, "key_file_exposed")


@pytest.mark.smoke
def test_what_an_admin_changes_is_in_the_log(filed):
    filed.complete("a b c d e f g", max_tokens=3)
    filed.wait_idle()
    for path in ["/api/trim", "/api/hot-cache/clear"]:
        reply = filed.http.post(path)
        assert reply.status_code == 200
        line = until(lambda: [x for x in lines_of(filed, "audit") if reply.headers["x-request-id"] in x])[0]
        assert field(line, "key") == "root"
        assert field(line, "client").startswith("127.0.0.1:")
        assert field(line, "action") == f"POST {path}"
        assert (field(line, "status"), field(line, "result")) == ("200", "ok")
        assert int(field(line, "bytes")) == reply.json()["bytes_reclaimed"]
    before = len(lines_of(filed, "audit"))
    filed.status(), filed.memory()
    assert len(lines_of(filed, "audit")) == before  # reading leaves no line


def test_loads_and_unloads_are_in_the_log(filed):
    def order(path, status, result):
        reply = filed.http.post(path)
        line = until(lambda: [x for x in lines_of(filed, "audit") if reply.headers["x-request-id"] in x])[0]
        assert reply.status_code == int(field(line, "status")) == status, reply.text
        assert field(line, "result") == result and field(line, "action") == f"POST {path}"
        return reply.json(), line

    reply, line = order("/v1/models/canary/unload", 200, "ok")
    assert int(field(line, "bytes")) == reply["bytes_returned"]
    order("/v1/models/canary/load", 200, "ok")
    with Open(filed, "/v1/completions", {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True},
              key="sk-alice-0123") as running:
        running.event()
        order("/v1/models/canary/unload", 202, "ok")
    until(lambda: [m for m in filed.status()["models"] if m["state"] == "unloaded"])
    order("/v1/models/canary/load", 200, "ok")


@pytest.mark.smoke
def test_an_admin_who_ends_somebodys_request_is_in_the_log(filed):
    body = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}
    with Open(filed, "/v1/completions", body, key="sk-alice-0123") as running:
        running.event()
        [request] = filed.requests()
        assert request["key"] == "alice" and request["client"].startswith("127.0.0.1:")
        path = f"/v1/requests/{request['id']}"
        before = len(lines_of(filed, "audit"))
        refused(filed.http.delete(path, headers=bearer("sk-bob-0123")), 404, "request_not_found")
        assert filed.http.delete(path).status_code == 200
    line = until(lambda: lines_of(filed, "audit")[before:])[0]
    assert field(line, "key") == "root" and field(line, "action") == f"DELETE {path}"


def test_who_is_refused_is_in_the_log_once_a_second(filed):
    path = '/v1/models/x"%20level=info%20event=audit%0Ay'
    for i in range(20):
        with socket.create_connection(("127.0.0.1", filed.port)) as s:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer sk-wrong-{i}\r\n\r\n".encode())
            assert s.recv(100).startswith(b"HTTP/1.1 401 ")
    lines = until(lambda: lines_of(filed, "refused"))
    assert len(lines) <= 4
    for line in lines:
        assert field(line, "client").startswith("127.0.0.1:") and field(line, "status") == "401"
    assert not [line for line in filed.lines if line.split(" ")[2] == "event=audit" and "key=" not in line]


@pytest.mark.parametrize("path, shown", [("%9b31mX", "%9b31mX"), ("\xc2\x9b31mY", "%c2%9b31mY"), ("%c3%a9", "%c3%a9")])
def test_bytes_of_a_path_are_ascii_in_the_log(filed, path, shown):
    def refused():
        """the refusal is in the log"""
        with socket.create_connection(("127.0.0.1", filed.port)) as s:
            s.sendall(f"POST /v1/models/{path}/load HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode("latin-1"))
            s.recv(100)
        return [line for line in lines_of(filed, "refused") if f'action="POST /v1/models/{shown}/load"' in line]

    until(refused, every=0.3)


@pytest.mark.smoke
def test_keys_are_nowhere_in_the_log(filed):
    assert not [line for line in filed.lines if "sk-" in line]


def serve_fails(*options, env=None):
    got = subprocess.run([PROGRAM, "serve", "--port", "0", *map(str, options)], capture_output=True, text=True,
                         timeout=60, env={**os.environ, **(env or {})})
    assert got.returncode == 2, got.stderr
    return got.stderr


@pytest.mark.smoke
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "127.example", "::ffff:8.8.8.8"])
def test_nobody_listens_to_the_world_without_a_key(host):
    assert "--api-key" in serve_fails("--host", host)
    assert "--api-key" in serve_fails("--host", host, "--admin-key", "root")


@pytest.mark.smoke
def test_unless_told_to(tmp_path):
    users = write_keys(tmp_path / "users", "sk-alice-0123\n")
    for options in [["--api-key", "sk-alice-0123"], ["--api-key-file", users], ["--allow-open"]]:
        with serving_openly(*options) as s:
            assert s.http.get("/live").status_code == 200
            without_key = httpx.get(s.url + "/v1/models").status_code
            assert without_key == (200 if options == ["--allow-open"] else 401)


def serving_openly(*options):
    return serving("--host", "0.0.0.0", "--admin-key", "sk-root-0123", *options, key="sk-root-0123")


@pytest.mark.smoke
def test_a_file_of_keys_that_is_wrong_is_refused_at_the_start(tmp_path):
    empty = write_keys(tmp_path / "empty", "# nobody yet\n")
    assert "no key" in serve_fails("--api-key-file", empty)
    bad = write_keys(tmp_path / "bad", "alice sk-secret-1\nbob sk-secret-1\n")
    said = serve_fails("--admin-key-file", bad)
    assert "line 2" in said and "secret" not in said
    assert "none" in serve_fails("--api-key-file", tmp_path / "none")
    assert "--api-key" in serve_fails("--api-key", "")
    assert "--api-key" in serve_fails("--api-key", "two words")


# ---- routes closed without the key ----

ROUTES = admin_routes()
KEYLESS = [[], ["Authorization: Bearer sk-alice-0123"], ["Authorization: Bearer"], ["Authorization: Basic sk-root-0123"],
           ["Authorization: sk-root-0123"], ["Authorization: Bearer sk-root-0123x"], ["Authorization: Bearer SK-ROOT-0123"],
           ["Authorization: Bearer sk-root-0123,sk-root-0123"], ["x-api-key: sk-alice-0123"], ["X-Admin-Key: sk-root-0123"],
           ["Authorization: Bearer wrong", "x-api-key: sk-root-0123"], ["Cookie: key=sk-root-0123"],
           ["Authorization: Bearer " + "A" * 6000], ["X-Forwarded-For: 127.0.0.1"], ["Host: localhost"]]
BODIES = [b"", b"{}", b"[]", b"null", b"{", b"\0", b'{"a":1,"a":2}', b'{"model":"../../etc/passwd"}', b'{"force":"yes"}',
          b"[" * 5000, b'"' + b"x" * 100000 + b'"', b"\xff\xfe", b'{"model":null,"bytes":-1e999}']


def ask(server, method, path, headers=(), body=b""):
    """Status and body of an answer to exactly these bytes."""
    if not [h for h in headers if h.lower().startswith("host:")]:
        headers = ["Host: x", *headers]
    head = "\r\n".join([f"{method} {path} HTTP/1.1", *headers, f"Content-Length: {len(body)}", "Connection: close", "", ""])
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.settimeout(30)
        s.sendall(head.encode("latin-1") + body)
        answer = b"".join(iter(lambda: s.recv(65536), b""))
    head, _, rest = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest


def test_no_way_into_an_admins_route(filed):
    assert len(ROUTES) >= 4
    before = len(lines_of(filed, "audit"))
    for method, path in ROUTES:
        for headers in KEYLESS:
            status, body = ask(filed, method, path, headers, b"{}")
            assert status == 401 and b'"invalid_api_key"' in body, (method, path, headers, status, body)
        for other in [path + "/", path + "/../models", "/" + path, path.upper(), path + "%00", path + ";x", path + "//"]:
            status, _ = ask(filed, method, other)
            assert status in (400, 401, 404, 405), (method, other, status)
    assert len(lines_of(filed, "audit")) == before


def test_whatever_an_admin_sends_is_answered(filed):
    for method, path in ROUTES:
        path = path.replace("{id}", "none") + ("none" if path.endswith("/") else "")
        for verb in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"]:
            status, _ = ask(filed, verb, path, ["Authorization: Bearer sk-root-0123"])
            # A pull is not allowed without --allow-pull.
            assert status in (200, 202, 400, 403 if path.endswith("/pull") else 404, 404, 405, 409), (verb, path, status)
        for body in BODIES:
            for kind in ["application/json", "text/plain", "multipart/form-data; boundary=x"]:
                headers = ["Authorization: Bearer sk-root-0123", f"Content-Type: {kind}"]
                status, answer = ask(filed, method, path, headers, body)
                assert status < 500, (method, path, body[:40], status, answer[:300])
    filed.wait_idle()
    assert filed.complete("a", max_tokens=1).status_code == 200
