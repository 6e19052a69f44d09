"""Prefixes that clients ask to keep: cache_control and retention are wishes, which no reply fails for."""

import pytest

from conftest import serving

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
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
