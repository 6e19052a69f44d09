"""CORS: pages of the origins of --allow-origin may call the API with a key. Other pages may not, and no page
gets an admin's route."""

import subprocess

import pytest

from conftest import MODEL, PROGRAM, refused, serving

APP = "http://localhost:3000"
CHAT = {"model": "canary", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
HELD = {"authorization": "Bearer alice"}


@pytest.fixture(scope="module")
def shared():
    options = ["--api-key", "alice", "--admin-key", "root", "--allow-origin", APP, "--allow-origin", "app://desk", "--max-body-bytes", "1M"]
    with serving(*options, key="root") as s:
        yield s


def ask(server, method, path, origin, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.http.request(method, path, headers={"origin": origin, **headers})


def preflight(server, path, origin=APP, method="POST", asked="authorization,content-type,x-stainless-os"):
    return ask(server, "OPTIONS", path, origin, access_control_request_method=method, access_control_request_headers=asked)


def allowed(reply):
    return reply.headers.get("access-control-allow-origin")


@pytest.mark.smoke
@pytest.mark.parametrize("path, methods", [
    ("/v1/chat/completions", "POST"), ("/v1/messages", "POST"), ("/v1/models", "GET"), ("/v1/responses", "POST"),
    ("/v1/responses/resp_1", "GET, DELETE"), ("/health", "GET"), ("/chat/completions", "POST"),
])
def test_a_preflight_names_methods_and_headers(shared, path, methods):
    for origin in APP, "app://desk":
        reply = preflight(shared, path, origin)
        assert (reply.status_code, reply.content) == (204, b"")
        assert allowed(reply) == origin and reply.headers["vary"] == "origin"
        assert reply.headers["access-control-allow-methods"] == methods
        assert reply.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
        assert reply.headers["access-control-max-age"] == "600"
        assert "access-control-allow-credentials" not in reply.headers and len(reply.headers["x-request-id"]) == 32


def test_a_public_page_may_reach_a_private_network_if_its_origin_is_allowed(shared):
    def network(origin, value):
        reply = ask(shared, "OPTIONS", "/v1/messages", origin, access_control_request_method="POST", access_control_request_private_network=value)
        return reply.headers.get("access-control-allow-private-network")

    assert network(APP, "true") == "true"
    assert network(APP, "false") is None and network("http://evil.example", "true") is None


@pytest.mark.parametrize("asked", ["x-" + "a" * 600, "x-a;b", "x-é".encode(), ""])
def test_a_strange_list_of_headers_gets_a_fixed_one(shared, asked):
    reply = preflight(shared, "/v1/messages", asked=asked)
    assert reply.status_code == 204
    assert reply.headers["access-control-allow-headers"] == "authorization, x-api-key, content-type, *"


@pytest.mark.smoke
@pytest.mark.parametrize("path", ["/api/memory", "/api/trim", "/v1/models/canary/pin", "/metrics", "/", "/none"])
def test_no_preflight_of_an_admins_route(shared, path):
    method = "GET" if path == "/v1/models/canary/pin" else "POST"
    reply = preflight(shared, path)
    if path == "/v1/models/canary/pin":  # GET /v1/models/{id} has such paths, too
        assert reply.status_code == 204 and reply.headers["access-control-allow-methods"] == "GET"
    else:
        assert reply.status_code in (404, 405) and "access-control-allow-methods" not in reply.headers
    # A page of the origin does not see the reply of an admin's route, whatever key it sends.
    for key in "root", "alice":
        told = ask(shared, "POST" if method == "GET" else "GET", path, APP, authorization=f"Bearer {key}")
        assert (allowed(told) == APP) == (told.status_code == 404 and path == "/none"), path


@pytest.mark.smoke
def test_other_origins_get_nothing(shared):
    for origin in "http://localhost:3001", "https://localhost:3000", "http://evil.example", "null", APP + ".evil", "HTTP://LOCALHOST:3000":
        reply = preflight(shared, "/v1/chat/completions", origin)
        assert reply.status_code == 405 and allowed(reply) is None
        got = shared.http.post("/v1/chat/completions", json=CHAT, headers={"origin": origin, **HELD})
        assert got.status_code == 200 and allowed(got) is None and got.headers["vary"] == "origin"


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [False, True])
def test_replies_and_streams(shared, stream):
    reply = shared.http.post("/v1/chat/completions", json={**CHAT, "stream": stream, "invented": 1}, headers={"origin": APP, **HELD})
    assert reply.status_code == 200 and allowed(reply) == APP and reply.headers["vary"] == "origin"
    exposed = reply.headers["access-control-expose-headers"].split(", ")
    assert {"x-request-id", "x-ignored-fields", "retry-after"} <= set(exposed)
    assert reply.headers["x-ignored-fields"] == "invented"


def test_each_header_of_a_reply_fits(shared):
    """The longest set: a stream of Messages with ignored fields."""
    fields = {f"invented_{i}_of_many": 1 for i in range(12)}
    body = {**CHAT, "stream": True, "max_tokens": 10_000_000, **fields}
    reply = shared.http.post("/v1/messages", json=body, headers={"origin": APP, "authorization": "Bearer wrong"})
    assert reply.status_code == 401 and allowed(reply) == APP
    with shared.http.stream("POST", "/v1/messages", json=body, headers={"origin": APP, **HELD}) as reply:
        assert reply.status_code == 200 and allowed(reply) == APP
        for name in "x-request-id", "request-id", "x-ignored-fields", "x-plateau-max-tokens", "cache-control", "x-accel-buffering":
            assert name in reply.headers, name


@pytest.mark.smoke
def test_errors(shared):
    def told(reply, status, code):
        assert reply.status_code == status and reply.json()["error"]["code"] == code
        assert allowed(reply) == APP and reply.headers["vary"] == "origin"
    post = lambda path, headers, **more: shared.http.post(path, headers={"origin": APP, **headers}, **more)
    told(post("/v1/chat/completions", {"authorization": "Bearer wrong"}, json=CHAT), 401, "invalid_api_key")
    told(post("/v1/chat/completions", HELD, json={**CHAT, "model": "x"}), 404, "model_not_found")
    told(post("/v1/chat/completions", HELD, content=b"{"), 400, "invalid_json")
    told(post("/v1/nothing", HELD, json={}), 404, "not_found")
    told(ask(shared, "DELETE", "/v1/chat/completions", APP), 405, "method_not_allowed")
    told(post("/v1/chat/completions", HELD, content=b" " * (2 << 20)), 413, "body_too_large")


def test_all_origins():
    with serving("--api-key", "alice", "--admin-key", "root", "--allow-origin", "*", key="root") as s:
        for origin in APP, "null", "https://chat.example":
            assert allowed(preflight(s, "/v1/messages", origin)) == "*"
            assert allowed(ask(s, "GET", "/v1/models", origin)) == "*"
        assert allowed(s.http.get("/v1/models")) is None


@pytest.mark.smoke
def test_off_by_default(server):
    """Without keys a page of another origin is refused, as before."""
    reply = preflight(server, "/v1/chat/completions", "http://evil.example")
    refused(reply, 403, "origin_not_allowed", "--allow-origin")
    same = ask(server, "GET", "/v1/models", f"http://127.0.0.1:{server.port}")
    assert same.status_code == 200 and allowed(same) is None and "vary" not in same.headers


@pytest.mark.parametrize("options, words", [
    (["--allow-origin", APP], ["--allow-origin " + APP, "--api-key"]),
    (["--allow-origin", "*", "--admin-key", "root"], ["--api-key"]),
    (["--api-key", "a", "--allow-origin", APP + "/"], ["without a path"]),
    (["--api-key", "a", "--allow-origin", "localhost:3000"], ["scheme://host"]),
    (["--api-key", "a", "--allow-origin", "http://Big"], ["small letters"]),
    (["--api-key", "a", "--allow-origin", "http://" + "a" * 300], ["scheme://host"]),
    (["--api-key", "a", "--allow-origin", "http://a\r\nx: y"], ["scheme://host"]),
])
def test_mistakes_at_the_start(options, words):
    got = subprocess.run([PROGRAM, "serve", MODEL, *options, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert got.returncode != 0
    for word in words:
        assert word in got.stderr, got.stderr
