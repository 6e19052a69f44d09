"""The server's own figures: memory, caches, trims, requests; each is compared with the action that moves
it."""

import concurrent.futures

import pytest

from conftest import account, serving, until
from test_cache import cached_tokens, clear
from test_routes import prometheus

PAGE = 32
MODEL = '{model_name="canary"}'
HOST = '{model_name="canary",tier="host"}'


@pytest.fixture(scope="module")
def seen():
    with serving("--host-cache", "64M") as s:
        clear(s)
        yield s


def accounts_of(memory):
    def walk(accounts, path):
        for a in accounts:
            yield path + a["name"], a
            yield from walk(a["children"], path + a["name"] + "/")

    return dict(walk(memory["accounts"], ""))


@pytest.mark.smoke
def test_the_sums_of_the_tree_hold_while_it_works(seen):
    def check(memory):
        every = accounts_of(memory)
        assert memory["sums_hold"] is True
        assert sum(a["own_bytes"] for a in every.values()) == memory["used_bytes"]
        for path, a in every.items():
            children = sum(c["used_bytes"] for c in a["children"])
            assert a["own_bytes"] == a["used_bytes"] - children, path
            assert a["used_bytes"] <= a["reserved_bytes"] and a["used_bytes"] <= a["peak_bytes"], path
            assert a["limit_bytes"] is None or a["reserved_bytes"] <= a["limit_bytes"], path
        return every

    check(seen.memory())
    with seen.begin(stream=False), seen.begin(prompt=[5] * 300, stream=False):
        until(lambda: len(seen.requests("decoding")) == 2)
        every = check(seen.memory())
    assert every["process/canary/requests"]["own_bytes"] > 0
    assert account(seen.memory(), "weights")["own_bytes"] > 0
    seen.wait_idle()
    check(seen.memory())


def test_each_request_is_a_line_of_the_log():
    with serving("--host-cache", "64M") as server:
        prompt = list(range(9, 109))
        for _ in range(2):
            request = server.complete(prompt, max_tokens=3, ignore_eos=True).headers["x-request-id"]
        with server.begin() as left:
            left.event()
            gone = left.answer().headers["x-request-id"]
        refused = server.complete(prompt, max_tokens=1 << 24).headers["x-request-id"]
        server.wait_idle()
        (line,) = until(lambda: [line for line in list(server.lines) if f"event=request_ended id={request}" in line])
        told = dict(part.split("=", 1) for part in line.split()[1:])
        assert told["end"] == "length" and told["code"] == "-" and told["model"] == "canary"
        assert (told["prompt_tokens"], told["cached_tokens"], told["tokens"]) == ("100", "96", "3")
        assert 0 < float(told["first_token_ms"]) <= 1000 * float(told["seconds"]) + 1
        until(lambda: server.said(f"id={gone} key=- model=canary end=left"))
        server.says(f"event=request_refused id={refused} ")
        assert not server.said(f"event=request_ended id={refused}")  # --log-level debug shows it


def test_each_refusal_is_a_line_of_the_log_for_debugging():
    with serving("--log-level", "debug") as server:
        reply = server.complete([9, 10], max_tokens=1 << 24)
        request, code = reply.headers["x-request-id"], reply.json()["error"]["code"]
        assert reply.status_code == 400 and code
        until(lambda: server.said(f"event=request_ended id={request} client_id=- completed=1 code={code} "))


def test_what_is_free_in_the_heap_goes_back_though_nobody_comes():
    with serving() as server:
        long = "data:image/png;base64," + "A" * (12 << 20)
        message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": long}}]}

        def own():
            """Not `heap_bytes`: jemalloc counts a table of 2 MiB for each GiB of its addresses, and touches a
            few pages of it. Other allocators keep free memory."""
            system = server.memory()["system"]
            return system["rss_anon_bytes"] if system["heap_bytes"] else 0

        before = own()
        for _ in range(3):
            assert server.post("/v1/chat/completions", messages=[message]).status_code == 400
        until(lambda: own() <= before + (4 << 20), 5, every=1)


def test_pools_tell_what_is_in_use_and_what_lies_free(seen):
    def pools():
        return seen.status()["models"][0]["pools"]

    with seen.begin(prompt=[5] * 300, stream=False):
        until(lambda: seen.requests("decoding"))
        assert all(pools()[name]["active_bytes"] > 0 for name in ("kv", "state"))
    seen.wait_idle()
    clear(seen)
    for name, p in pools().items():
        assert p["active_bytes"] == 0 == p["cached_bytes"] and 0 < p["peak_bytes"] <= p["limit_bytes"], name
    metrics = seen.metrics()
    for name, p in pools().items():
        for kind in ("active", "cached", "peak", "limit"):
            sample = f'plateau_pool_bytes{{model_name="canary",pool="{name}",kind="{kind}"}}'
            assert metrics[sample] == p[kind + "_bytes"]


def test_memory_stands_beside_what_the_system_says(seen):
    memory = seen.memory()
    assert {"rss_anon_bytes", "swap_bytes", "cgroup_bytes", "devices"} <= set(memory["system"])
    assert memory["limit_bytes"] is None or memory["limit_bytes"] >= memory["reserved_bytes"] >= memory["used_bytes"]
    assert isinstance(memory["unaccounted_bytes"], int)


def changes(server, work):
    """Returns what `work` changed in the metrics, after caches and trims are at rest."""
    before = server.metrics()
    work()
    server.wait_idle()
    until(lambda: server.memory()["pending_trim_bytes"] == 0)
    after = server.metrics()
    return {name: after[name] - before.get(name, 0) for name in after}


@pytest.mark.smoke
def test_cache_hits_are_counted_in_tokens_and_in_choices(seen):
    clear(seen)
    prompt = [40 + i for i in range(200)]
    found = []

    def work():
        for _ in range(3):
            found.append(cached_tokens(seen.complete(prompt, max_tokens=2)))

    moved = changes(seen, work)
    assert found == [0, 192, 192]
    assert moved["vllm:prefix_cache_hits_total" + MODEL] == moved["plateau_cache_hit_tokens_total" + HOST] == 384
    assert moved["plateau_cache_hits_total" + HOST] == 2
    assert moved["vllm:prefix_cache_queries_total" + MODEL] == moved["vllm:prompt_tokens_total" + MODEL] == 600
    shown = seen.status()
    assert shown["models"][0]["cache"]["hit_tokens"] == shown["caches"]["host"]["hit_tokens"] >= 384


def test_what_the_cache_drops_is_counted():
    with serving("--host-cache", "4M") as server:
        def work():
            for i in range(8):
                server.complete([900 + (7 * i + k) % 6000 for k in range(300)], max_tokens=1)

        moved = changes(server, work)
        assert moved["plateau_cache_pages_evicted_total" + MODEL] > 0
        cache = server.status()["models"][0]["cache"]
        assert 0 < cache["bytes"] <= cache["limit_bytes"] == 4 << 20
        assert cache["pages_evicted"] == server.metrics()["plateau_cache_pages_evicted_total" + MODEL]


@pytest.mark.smoke
def test_a_trim_is_counted_in_units_and_time():
    with serving("--host-cache", "0") as server:
        def work():
            assert server.complete([5] * 900, max_tokens=2).status_code == 200

        moved = changes(server, work)
        units = moved["plateau_trim_units_total" + MODEL]
        assert units > 0 and moved["plateau_trim_bytes_total" + MODEL] == units * (2 << 20)
        assert moved["plateau_trims_total" + MODEL] >= 1
        assert moved["plateau_trim_slices_total" + MODEL] >= 1
        assert 0 < moved["plateau_trim_slice_seconds_total" + MODEL] < 1
        after = server.metrics()
        assert 0 < after["plateau_trim_slice_seconds_max" + MODEL] < 1
        assert after["plateau_pending_trim_bytes" + MODEL] == 0
        assert server.status()["models"][0]["trims"]["units"] == after["plateau_trim_units_total" + MODEL]


@pytest.mark.smoke
def test_a_trim_on_order_keeps_prefixes_and_gives_back_the_rest(seen):
    clear(seen)
    prompt = [60 + i for i in range(200)]
    with seen.begin(prompt=prompt, stream=False):
        until(lambda: seen.requests("decoding"))
    reply = seen.http.post("/api/trim")
    assert reply.status_code == 200
    seen.wait_idle()
    assert set(reply.json()) == {"status", "entries", "bytes_reclaimed", "failed"}
    assert reply.json()["status"] == "ok" and reply.json()["entries"] == 0 and reply.json()["failed"] == []
    assert seen.memory()["pending_trim_bytes"] == 0
    assert cached_tokens(seen.complete(prompt, max_tokens=1)) == 192

    def nothing_is_left():
        """an order gives back nothing, as the request's last unit was given back before"""
        return seen.http.post("/api/trim", json={}).json() == {"status": "ok", "entries": 0, "bytes_reclaimed": 0, "failed": []}

    until(nothing_is_left)


def test_a_trim_is_the_administrators():
    with serving("--api-key", "ann", "--admin-key", "root", key="root") as server:
        assert server.http.post("/api/trim").json()["status"] == "ok"
        denied = server.http.post("/api/trim", headers={"Authorization": "Bearer ann"})
        assert denied.status_code in (401, 403)


def test_refusals_are_counted_by_status(seen):
    def work():
        assert seen.complete("a", temperature=9).status_code == 400
        assert seen.http.get("/nowhere").status_code == 404
        assert seen.post("/v1/completions", prompt="a", model="nobody").status_code == 404

    moved = changes(seen, work)
    found = {name: count for name, count in moved.items() if name.startswith("plateau_http_refused_total") and count}
    assert found == {'plateau_http_refused_total{status="400"}': 1, 'plateau_http_refused_total{status="404"}': 2}
    assert {"429", "503", "507"} <= {name.split('"')[1] for name in moved if name.startswith("plateau_http_refused")}


def test_who_waits_and_who_gives_way_is_counted():
    """Eight that want the pages of a few."""
    options = {"threads": 2, "memory-limit": "105M", "max-model-len": 1024, "max-image-pixels": 0, "spec": "off", "admin-listen": "none",
               "max-connections": 32, "max-requests": 64}
    with serving(*(f"--{name}={value}" for name, value in options.items())) as tight:
        def ask(i):
            return tight.complete([10 + i] * (280 + 10 * i), max_tokens=128, ignore_eos=True)

        def work():
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                assert [r.status_code for r in pool.map(ask, range(8))] == [200] * 8

        moved = changes(tight, work)
        assert moved["vllm:num_preemptions_total" + MODEL] == tight.status()["models"][0]["preemptions"] > 0
        assert moved["vllm:request_queue_time_seconds_count" + MODEL] == 8
        assert moved["vllm:request_queue_time_seconds_sum" + MODEL] > 0


@pytest.mark.smoke
def test_every_name_is_documented_once_and_of_one_kind(seen):
    families = prometheus(seen.http.get("/metrics").text)
    for name in ["vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total", "vllm:num_preemptions_total",
                 "vllm:request_queue_time_seconds", "plateau_cache_hits_total", "plateau_cache_pages_evicted_total",
                 "plateau_trims_total", "plateau_trim_units_total", "plateau_trim_slice_seconds_total",
                 "plateau_trim_slice_seconds_max", "plateau_pending_trim_bytes", "plateau_units_recommitted_total"]:
        assert name in families, name
    kinds = {"used", "reserved", "planned", "peak"}
    memory = families["plateau_memory_bytes"][1]
    by_account = {}
    for _, labels in memory:
        name, kind = labels.split('",kind="')
        by_account.setdefault(name, set()).add(kind.strip('"'))
    assert all(kinds <= found <= kinds | {"limit"} for found in by_account.values())
