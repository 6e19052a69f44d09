"""The prefix cache: its hits, its tenants, that it changes no token, and that its memory is returned."""

import pytest

from conftest import GOLDEN, account, case_fields, events, serving, until

PAGE = 32


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "64M") as s:
        yield s


def clear(server):
    reply = server.http.post("/api/hot-cache/clear")
    assert reply.status_code == 200, reply.text
    return reply.json()


def cached_tokens(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def whole_pages_before(tokens):
    return (tokens - 1) // PAGE * PAGE


def test_the_reference_answers_come_out_of_the_cache_too(cached):
    clear(cached)
    found = 0
    for _ in range(2):
        for case in GOLDEN["cases"]:
            reply = cached.post("/v1/chat/completions", **case_fields(case))
            assert reply.json()["choices"][0]["token_ids"] == case["greedy_ids"]
            found += cached_tokens(reply)
    assert found >= sum(whole_pages_before(len(c["prompt_ids"])) for c in GOLDEN["cases"])


@pytest.mark.smoke
def test_an_identical_prompt_recomputes_a_page_at_most(cached):
    clear(cached)
    prompt = [100 + i for i in range(200)]
    counts = [cached_tokens(cached.complete(prompt, max_tokens=1)) for _ in range(3)]
    assert counts == [0, 192, 192]
    assert cached_tokens(cached.complete(prompt[:96], max_tokens=1)) in (0, 64)


def test_the_next_turn_begins_where_the_last_one_ended(cached):
    clear(cached)
    messages = [{"role": "user", "content": "What does mkdir do? " * 12}]
    said = 0
    for turn in range(3):
        reply = cached.post("/v1/chat/completions", messages=messages, temperature=0, max_tokens=60)
        usage = reply.json()["usage"]
        # The answer's own markup is rendered anew, so the last page of the prompt may differ.
        assert cached_tokens(reply) >= whole_pages_before(said) - PAGE if turn else cached_tokens(reply) == 0
        said = usage["prompt_tokens"]
        answer = reply.json()["choices"][0]["message"]["content"]
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And what is ls?"}]


def test_every_chunk_has_the_cached_tokens(cached):
    clear(cached)
    prompt = [700 + i for i in range(100)]
    options = {"stream": True, "stream_options": {"continuous_usage_stats": True}, "max_tokens": 4, "ignore_eos": True}
    for expected in (0, 96):
        chunks = events(cached.complete(prompt, **options).text)[:-1]
        assert {c["usage"]["prompt_tokens_details"]["cached_tokens"] for c in chunks} == {expected}


def test_salts_share_nothing(cached):
    clear(cached)
    prompt = [300 + i for i in range(100)]
    assert cached_tokens(cached.complete(prompt, max_tokens=1, cache_salt="a")) == 0
    assert cached_tokens(cached.complete(prompt, max_tokens=1)) == 0
    assert cached_tokens(cached.complete(prompt, max_tokens=1, cache_salt="b")) == 0
    assert cached_tokens(cached.complete(prompt, max_tokens=1, cache_salt="a")) == 96


def test_keys_share_nothing():
    options = ("--host-cache", "64M", "--api-key", "ann", "--api-key", "bob", "--admin-key", "root")
    with serving(*options, key="root") as server:
        prompt = {"prompt": [500 + i for i in range(100)], "max_tokens": 1}

        def ask(key):
            headers = {"Authorization": f"Bearer {key}"}
            return cached_tokens(server.http.post("/v1/completions", json=prompt, headers=headers))

        assert [ask("ann"), ask("bob"), ask("ann"), ask("bob")] == [0, 0, 96, 96]
        denied = server.http.post("/api/hot-cache/clear", headers={"Authorization": "Bearer ann"})
        assert denied.status_code in (401, 403)


def test_a_tenant_that_fills_the_cache_evicts_its_own_prefixes():
    options = ("--host-cache", "8M", "--api-key", "ann", "--api-key", "bob", "--admin-key", "root")
    with serving(*options, key="root") as server:

        def ask(key, first):
            prompt = {"prompt": [first] + [500 + i for i in range(300)], "max_tokens": 1}
            headers = {"Authorization": f"Bearer {key}"}
            return cached_tokens(server.http.post("/v1/completions", json=prompt, headers=headers))

        assert [ask("bob", 20), ask("bob", 20)] == [0, 288]
        assert [ask("ann", 20 + i) for i in range(60)] == [0] * 60
        assert ask("ann", 20) == 0  # the oldest of hers is gone
        assert ask("bob", 20) == 288


@pytest.mark.smoke
def test_clearing_gives_the_memory_back(cached):
    clear(cached)
    assert clear(cached) == {"status": "ok", "entries": 0, "bytes_reclaimed": 0, "failed": []}
    cached.complete([700 + i for i in range(400)], max_tokens=1)
    shown = cached.wait_idle()["caches"]["host"]
    assert shown["pages"] == 12 and shown["snapshots"] >= 1 and 0 < shown["bytes"] <= shown["limit_bytes"] == 64 << 20
    held = account(cached.memory(), "pools")["used_bytes"]
    assert held > 0
    cleared = clear(cached)
    assert cleared["entries"] == 12 and cleared["bytes_reclaimed"] == held
    after = cached.memory()
    assert account(after, "kv")["used_bytes"] == account(after, "state")["used_bytes"] == 0


def test_the_cache_stays_below_its_limit():
    with serving("--host-cache", "4M") as server:
        for i in range(20):
            server.complete([900 + (7 * i + k) % 6000 for k in range(300)], max_tokens=1)
        shown = until(lambda: server.wait_idle()["caches"]["host"])
        assert 0 < shown["bytes"] <= 4 << 20


def test_nothing_is_kept_when_nothing_may_be():
    prompt = [100 + i for i in range(200)]
    with serving("--host-cache", "0") as server:
        assert [cached_tokens(server.complete(prompt, max_tokens=1)) for _ in range(2)] == [0, 0]
        assert server.wait_idle()["caches"]["host"]["limit_bytes"] == 0
        assert clear(server)["entries"] == 0


def test_what_the_ceiling_leaves_is_the_cache(server):
    limit = server.wait_idle()["caches"]["host"]["limit_bytes"]
    assert limit == account(server.memory(), "pools")["limit_bytes"] > 64 << 20
    prompt = [100 + i for i in range(200)]
    server.complete(prompt, max_tokens=1)
    assert cached_tokens(server.complete(prompt, max_tokens=1)) == 192
