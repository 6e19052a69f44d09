"""Prefixes that clients ask to keep: wishes, which no reply fails for, and sessions, which hold."""

import pytest

from conftest import MODEL, Server, serving, until

CHAT, MESSAGES, RESPONSES, SESSIONS = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/sessions"
LONG = "A prompt that is long enough for pages of its own. " * 12


@pytest.fixture(scope="module")
def small():
    """A prefix cache for a few of these prompts."""
    with serving("--host-cache", "12M") as s:
        yield s


def cache(server):
    return server.http.get("/api/status").json()["models"][0]["cache"]


def post(server, path, **body):
    reply = server.http.post(path, json={"model": "canary", **body})
    assert reply.status_code == 200, reply.text
    return reply


def clear(server):
    assert server.http.post("/api/hot-cache/clear").status_code == 200


def press(server):
    """Other conversations, more than the cache holds."""
    for i in range(8):
        post(server, CHAT, messages=[{"role": "user", "content": f"{i} {i} other. {LONG * 2}"}], max_tokens=1)


def cached_of(reply):
    usage = reply.json()["usage"]
    if "cache_read_input_tokens" in usage:
        return usage["cache_read_input_tokens"]
    return (usage.get("prompt_tokens_details") or usage["input_tokens_details"])["cached_tokens"]


def wished(path, text, **keep):
    """A body whose prefix the client asks to keep."""
    if path == RESPONSES:
        return {"input": text, "max_output_tokens": 2, "store": False, **keep}
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 2, **keep}


@pytest.mark.parametrize("path, keep", [
    (CHAT, {"prompt_cache_retention": "24h"}),
    (RESPONSES, {"prompt_cache_options": {"ttl": "12h"}}),
    (MESSAGES, {"cache_control": {"type": "ephemeral", "ttl": "1h"}}),
])
def test_a_wished_prefix_outlives_others(small, path, keep):
    clear(small)
    text = f"{path} {sorted(keep)} {LONG}"
    for wish in ({}, keep):
        post(small, path, **wished(path, text, **wish))
        press(small)
        found = cached_of(post(small, path, **wished(path, text)))
        assert (found > 100) == bool(wish), (wish, found)


def test_a_block_of_messages_is_wished_too(small):
    clear(small)
    before = cache(small)["wishes"]
    block = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}
    head = {"type": "text", "text": "You are brief. " + LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    reply = post(small, MESSAGES, system=[head], messages=[{"role": "user", "content": [block]}], max_tokens=2)
    usage = reply.json()["usage"]
    written = usage["cache_creation"]
    assert written["ephemeral_1h_input_tokens"] > 100 and written["ephemeral_5m_input_tokens"] > 50
    assert sum(written.values()) == usage["cache_creation_input_tokens"]
    assert cache(small)["wishes"] == before + 2 and cache(small)["wished_bytes"] > 0
    # The next turn moves the wish of the end, and leaves that of the head.
    later = [{"role": "user", "content": [block]}, {"role": "assistant", "content": "Yes."},
             {"role": "user", "content": [{**block, "text": "And now? " + LONG}]}]
    post(small, MESSAGES, system=[head], messages=later, max_tokens=2)
    assert cache(small)["wishes"] == before + 2


def test_wishes_that_never_fit_refuse_nothing(small):
    """A client sends cache_control with each request, however large."""
    control = {"type": "ephemeral", "ttl": "1h"}
    for i in range(2):
        post(small, MESSAGES, cache_control=control, max_tokens=1,
             messages=[{"role": "user", "content": f"{i}. {LONG * 10}"}])
    assert cache(small)["wished_bytes"] <= cache(small)["session_limit_bytes"]


def test_an_unknown_ttl_is_named(small):
    reply = post(small, CHAT, **wished(CHAT, "Hello.", prompt_cache_retention="for ever"))
    assert reply.headers["x-ignored-fields"] == "prompt_cache_retention"
    reply = post(small, MESSAGES, **wished(MESSAGES, "Hello.", cache_control={"type": "ephemeral", "ttl": "m"}))
    assert reply.headers["x-ignored-fields"] == "cache_control.ttl"


@pytest.mark.parametrize("stream", [False, True])
def test_messages_with_no_tokens_prepare_a_prefix(small, stream):
    clear(small)
    body = {"messages": [{"role": "user", "content": f"Prepared, {stream}. {LONG}"}]}
    reply = post(small, MESSAGES, **body, max_tokens=0, stream=stream)
    if stream:
        assert "content_block_start" not in reply.text and '"stop_reason":"max_tokens"' in reply.text
    else:
        assert reply.json()["content"] == [] and reply.json()["stop_reason"] == "max_tokens"
        assert reply.json()["usage"]["output_tokens"] == 0
    assert cached_of(post(small, MESSAGES, **body, max_tokens=2)) > 100


def test_a_session_holds_its_prefix_until_it_ends(small):
    clear(small)
    body = {"messages": [{"role": "user", "content": "In a session. " + LONG}]}
    made = post(small, SESSIONS, **body, ttl="30m").json()
    assert made["object"] == "session" and made["tokens"] > 100 and made["follow"] is True
    assert made["expires_at"] == made["created_at"] + 1800
    path = f"{SESSIONS}/{made['id']}"
    press(small)
    clear(small)
    reply = post(small, CHAT, **body, max_tokens=1)
    assert cached_of(reply) >= made["tokens"] - 32
    seen = small.http.get(path).json()
    assert seen["tokens"] >= made["tokens"] and seen["bytes"] > 0
    later = small.http.post(path, json={"ttl": "12h"}).json()
    assert later["expires_at"] > made["expires_at"] + 3600
    assert small.http.post(path, json={"ttl": "long"}).status_code == 400
    assert cache(small)["sessions"] == 1 and cache(small)["session_bytes"] > 0
    assert small.http.delete(path).json()["deleted"] is True
    assert small.http.get(path).status_code == small.http.delete(path).status_code == 404


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_request_takes_its_session_along(small, path):
    clear(small)
    text = f"{path} " + LONG
    made = post(small, SESSIONS, messages=[{"role": "user", "content": text}], follow=False).json()
    longer = wished(path, text + LONG)
    post(small, path, **longer)
    at = f"{SESSIONS}/{made['id']}"
    assert small.http.get(at).json()["tokens"] == made["tokens"]
    post(small, path, **longer, session=made["id"])
    until(lambda: small.http.get(at).json()["tokens"] > made["tokens"] + 100)
    press(small)
    assert cached_of(post(small, path, **longer)) > made["tokens"] + 100
    too_long = small.http.post(path, json={"model": "canary", **wished(path, text + LONG * 20), "session": made["id"]})
    assert too_long.status_code == (529 if path == MESSAGES else 507)
    assert small.http.delete(at).status_code == 200
    body = {"model": "canary", **longer}
    assert small.http.post(path, json={**body, "session": made["id"]}).status_code == 404
    assert small.http.post(path, json={**body, "session": "mine"}).status_code == 400


def test_a_session_that_does_not_fit_is_507_with_the_numbers(small):
    reply = small.http.post(SESSIONS, json={"model": "canary",
                                            "messages": [{"role": "user", "content": LONG * 20}]})
    assert reply.status_code == 507, reply.text
    message = reply.json()["error"]["message"]
    assert "The session needs " in message and "half of the prefix cache" in message
    assert small.http.post(SESSIONS, json={"model": "canary", "messages": body_of(), "ttl": "1y"}).status_code == 400


def body_of():
    return [{"role": "user", "content": "Hello."}]


# ---- the end of a model, and its sessions ----


@pytest.fixture
def two(tmp_path):
    """Two models that do not fit together; the idle one is unloaded after a second."""
    (tmp_path / "other").symlink_to(MODEL)
    s = Server("--model-dir", tmp_path, "--max-model-len", 512, "--memory-limit", "190M", "--ttl", 1)
    yield s
    assert s.stop() == 0, "".join(s.lines[-20:])


def open_session(server, model, ttl="1h"):
    reply = server.http.post(SESSIONS, json={"model": model, "ttl": ttl,
                                             "messages": [{"role": "user", "content": LONG}]})
    assert reply.status_code == 200, reply.text
    return reply.json()


def state(server, model):
    return {m["id"]: m["state"] for m in server.http.get("/v1/models").json()["data"]}[model]


def test_loads_and_idle_time_leave_a_model_with_sessions(two):
    chat = {"model": "other", "messages": body_of(), "max_tokens": 1}
    session = open_session(two, "canary")
    reply = two.http.post(CHAT, json=chat)
    assert reply.status_code == 507 and "hold sessions" in reply.text
    until(lambda: two.status()["models"][0]["idle_seconds"] > 1.5)
    assert state(two, "canary") == "ready"
    assert two.http.delete(f"{SESSIONS}/{session['id']}").status_code == 200
    until(lambda: state(two, "canary") == "unloaded")
    assert two.said("idle_unload")
    assert two.http.post(CHAT, json=chat).status_code == 200


def test_idle_time_waits_for_the_last_deadline(two):
    open_session(two, "canary", ttl="3s")
    until(lambda: two.status()["models"][0]["idle_seconds"] > 1.5)
    assert state(two, "canary") == "ready"
    until(lambda: state(two, "canary") == "unloaded")


def test_an_order_ends_sessions_by_force_only(small):
    session = open_session(small, "canary")
    other = open_session(small, "canary", ttl="2h")  # an equal prefix, whose bytes count once
    path = "/v1/models/canary/unload"
    refused = small.http.post(path)
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "model_has_sessions"
    assert "holds 2 sessions" in refused.json()["error"]["message"]
    assert small.http.get(f"{SESSIONS}/{session['id']}").status_code == 200
    held = cache(small)["session_bytes"]
    gone = small.http.post(path, json={"force": True}).json()
    assert gone["status"] == "unloaded" and gone["sessions_ended"] == 2
    assert gone["session_bytes"] == held and gone["session_tokens"] == 2 * session["tokens"]
    assert abs(gone["sessions_until"] - other["expires_at"]) <= 2
    assert small.http.post("/v1/models/canary/load").status_code == 200
    assert small.http.get(f"{SESSIONS}/{session['id']}").status_code == 404
    assert small.http.post(path).json().get("sessions_ended") is None
    assert small.http.post("/v1/models/canary/load").status_code == 200
