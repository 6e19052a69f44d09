"""Access: keys, the admin's key, and, without keys, this machine's own names only."""

import socket

import pytest

from conftest import refused, serving

ADMIN = ["/api/memory", "/api/status"]
USERS = ["/v1/models", "/v1/models/canary", "/metrics", "/server_info", "/model_info"]


def get(server, path, key=None, **headers):
    if key:
        headers["authorization"] = f"Bearer {key}"
    return server.http.get(path, headers={**headers})


@pytest.fixture(scope="module")
def locked():
    with serving("--api-key", "alice", "--api-key", "bob", "--admin-key", "root", key="root") as s:
        del s.http.headers["authorization"]
        yield s
        s.http.headers["authorization"] = "Bearer root"


@pytest.mark.smoke
def test_keys(locked):
    for path in USERS:
        for key in ["alice", "bob", "root"]:
            assert get(locked, path, key).status_code == 200, path
        reply = get(locked, path)
        refused(reply, 401, "invalid_api_key", "Bearer")
        assert reply.headers["www-authenticate"] == "Bearer"
        for wrong in ["alic", "alice2", "Alice", "x" * 500]:
            error = refused(get(locked, path, wrong), 401, "invalid_api_key")
            assert error["type"] == "authentication_error" and wrong not in error["message"]


@pytest.mark.smoke
def test_a_wrong_key_is_told_from_none(locked):
    for key, words in (None, "This route needs the admin key"), ("alice", "not the admin key"), ("roo", "The key is not valid."):
        error = refused(get(locked, "/api/memory", key), 401, "invalid_api_key", words)
        assert "--admin-key" in error["message"]
    for key, words in (None, "needs an API key"), ("roo", "The API key is not valid."):
        refused(get(locked, "/v1/models", key), 401, "invalid_api_key", words)


@pytest.mark.smoke
def test_forms_of_a_key(locked):
    for headers in [{"authorization": "bearer alice"}, {"authorization": "BEARER   alice"}, {"x-api-key": "bob"}]:
        assert locked.http.get("/v1/models", headers=headers).status_code == 200, headers
    for headers in [{"authorization": "alice"}, {"authorization": "Basic alice"}, {"authorization": "Bearer"},
                    {"authorization": "Bearer alice bob"}, {"x-api-key": ""}]:
        assert locked.http.get("/v1/models", headers=headers).status_code == 401, headers


@pytest.mark.smoke
def test_the_admins_routes(locked):
    for path in ADMIN:
        assert get(locked, path, "root").status_code == 200
        for key in [None, "alice", "bob", "wrong"]:
            refused(get(locked, path, key), 401, "invalid_api_key", "--admin-key")


@pytest.mark.smoke
def test_a_body_without_a_key_is_not_read(locked):
    refused(locked.complete("a"), 401, "invalid_api_key")
    with socket.create_connection(("127.0.0.1", locked.port)) as s:
        s.settimeout(10)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
        assert s.recv(100).startswith(b"HTTP/1.1 401 ")


@pytest.mark.smoke
def test_nobody_needs_a_key_to_see_that_it_lives(locked):
    for path in ["/live", "/health", "/ping", "/version"]:
        assert get(locked, path).status_code == 200


@pytest.mark.smoke
def test_with_keys_any_name_and_page_may_ask(locked):
    assert get(locked, "/v1/models", "alice", host="models.example").status_code == 200
    assert get(locked, "/v1/models", "alice", origin="https://page.example").status_code == 200
    assert get(locked, "/live", host="models.example").status_code == 200


@pytest.mark.smoke
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "127.9.9.9:8080", "[::1]", "[::1]:5"])
def test_without_keys_loopback_names_are_served(server, host):
    assert get(server, "/v1/models", host=host).status_code == 200


@pytest.mark.smoke
@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1", "",
                                  "localhost:x", "0.0.0.0", "[::2]"])
def test_without_keys_foreign_names_are_not(server, host):
    for path in ["/v1/models", "/live", "/api/memory"]:
        error = refused(get(server, path, host=host), 403, "host_not_allowed", "--api-key")
        assert error["type"] == "invalid_request_error"


@pytest.mark.smoke
def test_without_keys_a_page_may_ask_its_own_server_only(server):
    own = f"127.0.0.1:{server.port}"
    assert get(server, "/v1/models", host=own, origin=f"http://{own}").status_code == 200
    foreign = ["https://evil.example", "null", f"http://127.0.0.1:{server.port + 1}", f"http://localhost:{server.port}",
               f"ftp://{own}", f"http://{own}/x"]
    for origin in foreign:
        refused(get(server, "/v1/models", host=own, origin=origin), 403, "origin_not_allowed", "Origin")
    reply = server.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1},
                             headers={"origin": "https://evil.example"})
    refused(reply, 403, "origin_not_allowed")


@pytest.mark.smoke
def test_no_page_is_allowed_across_origins(server):
    reply = server.http.get("/v1/models", headers={"origin": f"http://127.0.0.1:{server.port}"})
    assert not [name for name in reply.headers if name.startswith("access-control")]
    assert server.http.options("/v1/models").status_code == 405
