"""docs/scale-out.md's nginx for real: TLS, streams, Stop, clients that leave, keys, uploads."""

import contextlib
import os
import re
import shutil
import ssl
import subprocess
import time

import httpx
import pytest

from conftest import ADMIN_KEY, TOP, Server, free_port, until

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"
if not os.path.exists(NGINX) or not shutil.which("openssl"):
    pytest.skip("nginx and openssl are not installed", allow_module_level=True)

DOCUMENT = (TOP / "docs/scale-out.md").read_text()
KEYS = {"ann": "sk-of-ann", "bob": "sk-of-bob"}


def configuration(folder, port, upstream):
    """The document's server, with a port and certificates of its own."""
    server = re.search(r"^    server \{\n(?:    .*\n|\n)*?    \}\n", DOCUMENT, re.M)[0]
    assert "location / {" in server and "ssl_certificate_key" in server
    server = server.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl").replace("127.0.0.1:8080", f"127.0.0.1:{upstream}")
    server = re.sub(r"/etc/nginx/models\.example\.(crt|key)", rf"{folder}/\1", server)
    places = "\n".join(f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    return f"""daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
access_log off;
{places}
{server}
}}
"""


class Behind:
    """A server with keys, and nginx in front of it."""

    def __init__(self, folder):
        (folder / "keys").write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
        self.server = Server("--api-key-file", folder / "keys", "--admin-key", ADMIN_KEY, key=ADMIN_KEY)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=models.example", "-addext",
                        "subjectAltName=DNS:models.example", "-keyout", folder / "key", "-out", folder / "crt"], check=True, capture_output=True)
        self.port = free_port()
        (folder / "nginx.conf").write_text(configuration(folder, self.port, self.server.port))
        self.process = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-p", folder], stderr=subprocess.DEVNULL)
        self.trust = ssl.create_default_context(cafile=folder / "crt")

        def answers():
            with contextlib.suppress(httpx.TransportError), self.client() as c:
                return c.get("/live").status_code == 200

        until(answers)

    def client(self, who="ann", **options):
        """By the public name, which leads here."""
        class Here(httpx.HTTPTransport):
            def handle_request(inner, request):
                request.extensions["sni_hostname"] = "models.example"
                return super().handle_request(request)

        headers = {"host": "models.example", **({"authorization": f"Bearer {KEYS[who]}"} if who else {})}
        return httpx.Client(base_url=f"https://127.0.0.1:{self.port}", headers=headers, timeout=120, transport=Here(verify=self.trust), **options)

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        assert self.server.stop() == 0


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    b = Behind(tmp_path_factory.mktemp("nginx"))
    yield b
    b.close()


LONG = {"model": "canary", "prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}


def test_a_stream_comes_in_pieces(behind):
    """The first pieces are here while the server still generates."""
    with behind.client() as c, c.stream("POST", "/v1/completions", json=LONG) as reply:
        assert reply.status_code == 200 and reply.http_version == "HTTP/1.1"
        lines = (line for line in reply.iter_lines() if line.startswith("data:"))
        for _ in range(5):
            next(lines)
        assert behind.server.requests("decoding")
    behind.server.wait_idle()


def test_a_whole_reply_and_the_keys(behind):
    body = {"model": "canary", "temperature": 0, "messages": [{"role": "user", "content": "What does ls do?"}]}
    with behind.client() as c:
        assert c.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"] == "ls(1) - list directory contents."
    for headers in ({}, {"authorization": "Bearer sk-wrong"}, {"x-api-key": "sk-wrong"}):
        with behind.client(None) as c:
            assert c.post("/v1/chat/completions", json=body, headers=headers).status_code == 401
    with behind.client(None) as c:
        assert c.post("/v1/chat/completions", json=body, headers={"x-api-key": KEYS["bob"]}).status_code == 200


def test_a_client_that_leaves_ends_its_request(behind):
    with behind.client() as c, c.stream("POST", "/v1/completions", json=LONG) as reply:
        next(reply.iter_lines())
    began = time.monotonic()
    until(lambda: not behind.server.requests(), 10)
    assert time.monotonic() - began < 5


def test_stop_by_the_id_of_the_request(behind):
    with behind.client() as c, behind.client("bob") as other, c.stream("POST", "/v1/completions", json=LONG) as reply:
        number = reply.headers["x-request-id"]
        lines = reply.iter_lines()
        next(lines)
        assert other.delete(f"/v1/requests/{number}").status_code == 404, "another key's"
        with behind.client() as again:
            assert again.delete(f"/v1/requests/{number}").status_code == 200
        rest = [line for line in lines if line.startswith("data:")]
        assert "request_cancelled" in rest[-1]
    behind.server.wait_idle()


def test_uploads_beyond_nginxs_own_limit(behind):
    with behind.client() as c:
        reply = c.post("/tokenize", json={"prompt": "word " * 400000})
        assert reply.status_code == 200 and reply.json()["count"] > 100000


@pytest.mark.parametrize("path", ["/api/status", "/api/memory", "/api/history?range=5m", "/api/log", "/metrics"])
def test_reports_stay_inside(behind, path):
    with behind.client(None) as c:
        assert c.get(path, headers={"authorization": f"Bearer {ADMIN_KEY}"}).status_code == 403
    assert behind.server.http.get(path).status_code == 200


def test_the_public_name_is_taken(behind):
    """Host is passed on, and the page's own requests have it as their origin."""
    with behind.client() as c:
        assert c.get("/v1/models", headers={"origin": "https://models.example"}).status_code == 200
        assert c.get("/").status_code == 200
        seen = c.get("/api/overview").json()
        assert seen["admin"] is False and seen["requests"] == []
