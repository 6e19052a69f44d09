"""Where the administrator comes in and where not: the Unix socket, the key that is made, the address for
metrics, and proxies that say nothing of their clients."""

import contextlib
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

from conftest import ADMIN_KEY, MODEL, PROGRAM, Server, admin_routes, refused, serving, until
from test_admin import bearer, field, lines_of, write_keys

ADMINS = [(method, path.replace("*", "canary") + ("0" * 32 if path.endswith("/") else ""))
          for method, path in admin_routes()]


def listening(server, what):
    return [line for line in lines_of(server, "listening") if field(line, "for") == what]


def socket_of(server):
    return pathlib.Path(field(until(lambda: listening(server, "admin"))[0], "path"))


def over(path, **more):
    """A client that speaks through a Unix socket."""
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost", timeout=60, **more)


def metrics_url(server):
    line = until(lambda: listening(server, "metrics"))[0]
    return f"http://127.0.0.1:{field(line, 'port')}"


class Keyless(Server):
    """No admin key is named: the server makes one."""

    def __init__(self, *options, **more):
        super().__init__(*options, key="none", **more)
        del self.http.headers["authorization"]
        self.http.headers.update(bearer(key_file(self).read_text().strip()))


def key_file(server):
    return socket_of(server).with_suffix(".key")


@pytest.fixture(scope="module")
def keyless():
    with serving(kind=Keyless) as s:
        yield s


@pytest.fixture(scope="module")
def watched():
    """API keys, a metrics key, an address for metrics."""
    options = ["--api-key", "ann", "--api-key", "bob", "--metrics-key", "scrape", "--metrics-listen", "127.0.0.1:0",
               "--host-cache", "64M", "--admin-key", "root"]
    with serving(*options, key="root") as s:
        yield s


# ---- the socket and the key that is made ----


@pytest.mark.smoke
def test_the_sockets_user_is_the_admin(keyless):
    path = socket_of(keyless)
    assert path.name == f"plateau-{keyless.port}.sock"
    assert path.stat().st_mode & 0o7777 == 0o600 and path.parent.stat().st_mode & 0o7777 == 0o700
    with over(path) as c:
        assert c.get("/api/status").json()["models"][0]["id"] == "canary"
        assert c.post("/api/trim").json()["failed"] == []
        assert c.get("/metrics").text.count("plateau_memory_bytes") > 5
        assert c.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
        assert c.get("/health").status_code == 200
        assert c.get("/nothing").status_code == 404
        line = until(lambda: [x for x in lines_of(keyless, "audit") if field(x, "action") == "POST /api/trim"])[0]
        assert field(line, "client") == "local"


@pytest.mark.smoke
def test_without_the_key_no_route_is_the_admins(keyless):
    assert len(ADMINS) >= 6
    with httpx.Client(base_url=keyless.url) as c:
        for method, path in ADMINS:
            for headers in [{}, bearer("none"), bearer("x" * 64), {"x-forwarded-for": "127.0.0.1"}, {"host": "localhost"},
                            {"x-real-ip": "127.0.0.1"}, {"forwarded": "for=127.0.0.1"}, {"via": "1.1 x"}]:
                refused(c.request(method, path, headers=headers), 401, "invalid_api_key", "--admin-key")
        assert c.get("/v1/models").status_code == 200


@pytest.mark.smoke
def test_the_key_that_is_made_is_in_a_file_and_nowhere_else(keyless):
    path = key_file(keyless)
    key = path.read_text().strip()
    assert re.fullmatch("[0-9a-f]{64}", key) and path.stat().st_mode & 0o7777 == 0o600
    assert keyless.http.get("/api/memory", headers=bearer(key)).status_code == 200
    assert not keyless.said(key) and not keyless.said(key[:16])


def test_with_a_key_that_is_named_none_is_made(server):
    assert socket_of(server).exists() and not key_file(server).exists()
    with over(socket_of(server)) as c:
        assert c.get("/api/status").status_code == 200


def test_both_files_go_at_the_end_and_each_start_has_another_key():
    keys = set()
    for _ in range(2):
        s = Keyless()
        paths = [socket_of(s), key_file(s)]
        keys.add(paths[1].read_text())
        assert s.stop() == 0
        assert not any(p.exists() for p in paths)
    assert len(keys) == 2


def test_what_a_killed_server_left_is_replaced():
    s = Keyless()
    left = [socket_of(s), key_file(s)]
    s.process.kill()
    s.wait()
    assert all(p.exists() for p in left)
    with serving(kind=Keyless) as s:
        assert not any(p.exists() for p in left)
        assert socket_of(s).exists()


def test_a_socket_of_ones_own_choice(tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = pathlib.Path(folder) / "admin.sock"
        with serving("--admin-listen", f"unix:{path}", kind=Keyless) as s:
            assert socket_of(s) == path and path.stat().st_mode & 0o777 == 0o600
            other = Server("--admin-listen", f"unix:{path}", wait=False)
            assert other.wait() == 1
            assert other.said("another server answers there")
            with over(path) as c:
                assert c.get("/api/status").status_code == 200
        assert not path.exists() and not key_file_of(path).exists()
        # Only a socket is ever replaced, and a file of that name that no server wrote stays.
        path.write_text("mine")
        key_file_of(path).write_text("mine too")
        other = Server("--admin-listen", f"unix:{path}", wait=False)
        assert other.wait() == 1 and path.read_text() == "mine"
        path.unlink()
        s = Server("--admin-listen", f"unix:{path}", key="none")
        s.says("admin_key_untold")
        assert s.stop() == 0 and key_file_of(path).read_text() == "mine too"


def key_file_of(path):
    return path.with_suffix(".key")


def test_no_socket():
    s = Server("--admin-listen", "none")
    assert not listening(s, "admin")
    assert s.status()["models"]
    assert s.stop() == 0


@pytest.mark.parametrize("given", [["127.0.0.1"], ["unix:"], ["unix:" + "x" * 200], ["none", "unix:/tmp/x.sock"], ["1.2.3.4:x"],
                                   ["::1:80"], ["unix:/tmp/a", "unix:/tmp/b"], ["unix:/nowhere/at/all.sock"]])
def test_what_cannot_be_listened_on(given):
    s = Server(*(f"--admin-listen={text}" for text in given), wait=False)
    assert s.wait() in (1, 2) and s.said("plateau: ")


def test_an_address_where_the_key_opens_everything():
    with serving("--admin-listen", "127.0.0.1:0") as s:
        line = until(lambda: [x for x in listening(s, "admin") if field(x, "address")])[0]
        with httpx.Client(base_url=f"http://127.0.0.1:{field(line, 'port')}") as c:
            assert c.get("/health").status_code == 200
            for path in ["/api/status", "/v1/models", "/metrics"]:
                refused(c.get(path), 401, "invalid_api_key", "--admin-key")
                assert c.get(path, headers=bearer(ADMIN_KEY)).status_code == 200


def test_who_holds_all_places_does_not_lock_the_admin_out():
    with serving("--max-connections", 2, "--metrics-listen", "127.0.0.1:0", kind=Keyless) as s, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(socket.create_connection(("127.0.0.1", s.port)))
        with over(socket_of(s)) as c:
            assert c.get("/api/status").status_code == 200
        assert httpx.get(metrics_url(s) + "/metrics").status_code == 200


def test_it_answers_while_the_server_drains():
    s = Server("--drain", 600)
    path = socket_of(s)
    with s.begin(max_tokens=1500) as running:
        running.event()
        s.process.send_signal(signal.SIGTERM)
        with over(path) as c:
            until(lambda: c.get("/health").json()["status"] == "draining")
            assert len(c.get("/api/status").json()["requests"]) == 1
    assert s.wait() == 0


def test_a_reload_may_name_a_key_and_take_it_away(tmp_path):
    config = write_keys(tmp_path / "plateau.ini", "max-queue = 8\n")
    with serving("--config", config, kind=Keyless) as s:
        path, own = key_file(s), key_file(s).read_text().strip()

        def reload(text):
            before = len(lines_of(s, "reloaded"))
            config.write_text(text)
            s.process.send_signal(signal.SIGHUP)
            until(lambda: lines_of(s, "reloaded")[before:])

        reload("admin-key = sk-root-0123\n")
        assert not path.exists()
        assert s.http.get("/api/status", headers=bearer(own)).status_code == 401
        assert s.http.get("/api/status", headers=bearer("sk-root-0123")).status_code == 200
        reload("max-queue = 8\n")
        until(path.exists)
        assert path.read_text().strip() == own
        assert s.http.get("/api/status", headers=bearer(own)).status_code == 200
        assert s.http.get("/api/status", headers=bearer("sk-root-0123")).status_code == 401


def test_on_a_terminal_the_pages_address_has_the_key():
    ours, theirs = pty.openpty()
    process = subprocess.Popen([PROGRAM, "serve", "--port", "0"], stdout=theirs, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(theirs)
    try:
        shown = b""
        end = time.monotonic() + 60
        while b"#key=" not in shown or not shown.endswith(b"\n"):
            assert time.monotonic() < end, shown
            shown += os.read(ours, 4096)
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/#key=([0-9a-f]{64})\r?\n", shown)
        url, key = f"http://127.0.0.1:{int(found[1])}", found[2].decode()
        assert httpx.get(url + "/api/status", headers=bearer(key)).status_code == 200
    finally:
        process.terminate()
        log = process.stderr.read().decode()
        assert process.wait(30) == 0
        os.close(ours)
    assert key not in log


# ---- addresses that each sees ----


def series(text):
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line and line[0] != "#"}


def own(server, key):
    reply = server.http.get("/metrics", headers=bearer(key))
    assert reply.status_code == 200
    return series(reply.text)


OWN = {"vllm:request_success_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:prompt_tokens_cached_total",
       "plateau_own_cache_hits_total", "plateau_reasoning_loops_total", "plateau_requests_rejected_total",
       "plateau_requests_aborted_total", "plateau_requests"}


@pytest.mark.smoke
def test_a_key_sees_its_own_series_only(watched):
    def ask(key, prompt):
        reply = watched.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 3, "ignore_eos": True}, headers=bearer(key))
        return reply.json()["usage"]

    before = own(watched, "ann"), own(watched, "bob")
    assert {name.split("{")[0] for name in before[0]} == OWN
    text = "a secret plan of the quarter " * 20
    first, again = ask("ann", text), ask("ann", text)
    assert again["prompt_tokens_details"]["cached_tokens"] > 0
    assert watched.http.post("/v1/completions", json={"prompt": 5}, headers=bearer("ann")).status_code == 400
    ann, bob = own(watched, "ann"), own(watched, "bob")
    assert bob == before[1]

    def grown(name, labels='{model_name="canary"}'):
        return ann[name + labels] - before[0][name + labels]

    assert grown("vllm:prompt_tokens_total") == 2 * first["prompt_tokens"]
    assert grown("vllm:generation_tokens_total") == 6
    assert grown("vllm:prompt_tokens_cached_total") == again["prompt_tokens_details"]["cached_tokens"]
    assert grown("plateau_own_cache_hits_total") == 1
    assert grown("vllm:request_success_total", '{model_name="canary",finished_reason="length"}') == 2
    assert grown("plateau_requests_rejected_total") == 1


@pytest.mark.smoke
def test_who_sees_all_series(watched):
    for key in ["root", "scrape"]:
        assert watched.http.get("/metrics", headers=bearer(key)).text.count("plateau_memory_bytes") > 5
    with httpx.Client(base_url=watched.url) as c:
        for headers in [{}, bearer("wrong")]:
            refused(c.get("/metrics", headers=headers), 401, "invalid_api_key")
        for path in ["/v1/models", "/server_info", "/api/status", "/api/memory"]:
            refused(c.get(path, headers=bearer("scrape")), 401, "invalid_api_key")
        refused(c.post("/v1/completions", headers=bearer("scrape"), json={"prompt": "a"}), 401, "invalid_api_key")


@pytest.mark.smoke
def test_metrics_have_an_address_of_their_own(watched):
    with httpx.Client(base_url=metrics_url(watched)) as c:
        assert c.get("/metrics").text.count("plateau_memory_bytes") > 5
        assert c.get("/live").status_code == 200 and c.get("/health").status_code == 200
        for key in [None, "ann", "root"]:
            for path in ["/api/status", "/api/memory", "/v1/models", "/server_info", "/"]:
                assert c.get(path, headers=bearer(key)).status_code == 404
            assert c.post("/api/trim", headers=bearer(key)).status_code == 404
            assert c.post("/v1/completions", headers=bearer(key), json={"prompt": "a"}).status_code == 404
        assert c.get("/metrics", headers={"host": "evil.example"}).status_code == 403


def test_without_keys_a_client_sees_what_its_address_asked(keyless):
    before = series(httpx.get(keyless.url + "/metrics").text)
    assert {name.split("{")[0] for name in before} == OWN
    assert httpx.post(keyless.url + "/v1/completions", json={"prompt": "a", "max_tokens": 2}, timeout=60).status_code == 200
    after = series(httpx.get(keyless.url + "/metrics").text)
    name = 'vllm:generation_tokens_total{model_name="canary"}'
    assert after[name] - before[name] in (1, 2)
    refused(httpx.get(keyless.url + "/metrics", headers=bearer("stale")), 401, "invalid_api_key")


OF_ALL = {"reserved_bytes", "used_bytes", "loads", "unloads", "load_failures", "load_seconds"}


@pytest.mark.smoke
def test_a_models_entry_has_sums_of_all_for_the_admin_only(watched):
    for path in ["/v1/models", "/v1/models/canary"]:
        def entry(key):
            found = watched.http.get(path, headers=bearer(key)).json()
            return found["data"][0] if "data" in found else found

        assert OF_ALL <= set(entry("root"))
        assert not OF_ALL & set(entry("ann")) and entry("ann")["state"] == "ready"


# ---- proxies ----


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy like nginx with proxy_pass alone: Host is the upstream's, no header names the client."""

    allow_reuse_address = daemon_threads = True

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = self.rfile.readline()
                if not line:
                    return
                if line.lower().startswith(b"host:"):
                    line = b"Host: 127.0.0.1:%d\r\n" % self.server.upstream
                head += line if not line.lower().startswith(b"connection:") else b"Connection: close\r\n"
            length = re.search(rb"(?im)^content-length: *(\d+)", head)
            body = self.rfile.read(int(length[1])) if length else b""
            with socket.create_connection(("127.0.0.1", self.server.upstream)) as up:
                up.sendall(head + body)
                while part := up.recv(65536):
                    self.wfile.write(part)

    def __init__(self, upstream):
        self.upstream = upstream
        super().__init__(("127.0.0.1", 0), self.Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *why):
        self.shutdown()
        super().__exit__(*why)


NGINX = shutil.which("nginx") or "/usr/sbin/nginx"


@contextlib.contextmanager
def nginx(upstream, folder):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    config = folder / "nginx.conf"
    config.write_text(f"""daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{upstream}; }} }}
}}
""")
    process = subprocess.Popen([NGINX, "-c", str(config), "-p", str(folder)], stderr=subprocess.DEVNULL)

    def answers():
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"http://127.0.0.1:{port}/live").status_code == 200

    try:
        until(answers)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def proxied(kind, server, folder):
    if kind == "nginx":
        if not os.path.exists(NGINX):
            pytest.skip("nginx is not installed")
        with nginx(server.port, folder) as url:
            yield url
    else:
        with Proxy(server.port) as proxy:
            yield f"http://127.0.0.1:{proxy.server_address[1]}"


@pytest.mark.parametrize("kind", ["bare", "nginx"])
def test_a_proxy_that_says_nothing_makes_nobody_the_admin(keyless, watched, kind, tmp_path):
    for server in [keyless, watched]:
        with proxied(kind, server, tmp_path) as url, httpx.Client(base_url=url, timeout=60) as c:
            for method, path in ADMINS:
                for key in [None, "ann", "wrong"]:
                    assert c.request(method, path, headers=bearer(key)).status_code == 401, (method, path, key)
            assert c.get("/live").status_code == 200
            assert "plateau_memory_bytes" not in c.get("/metrics").text
            right = server.http.headers["authorization"]
            assert c.get("/api/status", headers={"authorization": right}).status_code == 200


# ---- directories ----


@pytest.mark.parametrize("wrong", ["open", "foreign", "link", "file"])
def test_a_directory_that_others_have_a_hand_in_is_passed_over(wrong):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, tempfile.TemporaryDirectory(dir="/tmp") as home:
        at = pathlib.Path(folder) / "plateau"
        if wrong == "file":
            at.write_text("")
        elif wrong == "link":
            at.symlink_to(home)
        else:
            at.mkdir(0o700)
        if wrong == "open":
            at.chmod(0o777)
        elif wrong == "foreign":
            if os.geteuid() != 0:
                pytest.skip("only root can make another user's directory")
            os.chown(at, 65534, 65534)
        before = dict(os.environ)
        own = pathlib.Path(home) / "run"
        own.mkdir(0o755)
        del os.environ["PLATEAU_RUNTIME_DIR"]
        os.environ.update(XDG_RUNTIME_DIR=folder, HOME=home, XDG_STATE_HOME=home)
        try:
            s = Server()
            used = socket_of(s).parent
            assert used != at and used.stat().st_uid == os.geteuid() and used.stat().st_mode & 0o077 == 0
            assert s.stop() == 0
            os.environ["RUNTIME_DIRECTORY"] = f"{own}:/nowhere"
            s = Server()
            assert socket_of(s).parent == own
            assert s.stop() == 0
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes a user for whom no directory can be had")
def test_without_any_directory_there_is_a_warning_and_no_socket(tmp_path):
    user = 100000 + os.getpid()  # nobody has it
    become = ["setpriv", "--reuid", str(user), "--clear-groups"]
    if subprocess.run([*become, "cat", PROGRAM, MODEL / "config.json"], capture_output=True).returncode != 0:
        pytest.skip("another user cannot read the program or the model")
    (tmp_path / "file").write_text("")
    script = tmp_path / "plateau"
    script.write_text(f"""#!/bin/sh
unset RUNTIME_DIRECTORY PLATEAU_RUNTIME_DIR
export XDG_RUNTIME_DIR={tmp_path}/file HOME={tmp_path}/file XDG_STATE_HOME={tmp_path}/file
exec {" ".join(become)} {PROGRAM} "$@"
""")
    script.chmod(0o700)

    class Strange(Server):
        program = script

    taken = pathlib.Path(f"/tmp/plateau-{user}")
    taken.mkdir(0o700, exist_ok=True)  # root's
    try:
        s = Strange()
        until(lambda: s.said("event=admin_socket_failed"))
        assert s.complete("a", max_tokens=2).status_code == 200
        assert s.stop() == 0
    finally:
        taken.rmdir()
