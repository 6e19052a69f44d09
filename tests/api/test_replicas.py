"""One model on several devices: a request goes to the engine that computes it soonest, and a device that is
lost costs its own requests."""

import concurrent.futures
import json
import os
import signal
import subprocess

import pytest

from conftest import MODEL, PROGRAM, all_returned, refused, serving, settled, until
from test_ssd import answer, prompt_of
from test_warm import warmed, warming

SIZES = ["--max-model-len", 1024, "--max-num-seqs", 4, "--max-image-pixels", 0]
TWO = ["--device", "fake:0", "--replicas", 2, *SIZES]
SECOND = "canary@fake:1"


def engines(server):
    """Models of /api/status, which has each replica, by name."""
    return {m["id"]: m for m in server.status()["models"]}


def read_tokens(server):
    """Tokens of prompts by replica, cached ones included."""
    return {name: m["prompt_tokens"] for name, m in engines(server).items()}


@pytest.mark.smoke
def test_two_replicas_say_what_one_engine_says():
    prompts = [prompt_of(i, 60 + 20 * i) for i in range(12)]
    with serving("--device", "fake:0", *SIZES) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
        want = [tokens for tokens, _ in pool.map(lambda p: answer(server, p), prompts)]
    with serving(*TWO) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
        for _ in range(2):
            assert [tokens for tokens, _ in pool.map(lambda p: answer(server, p), prompts)] == want
        assert all(tokens > 0 for tokens in read_tokens(server).values())
        places = {m["id"]: m["device"] for m in server.http.get("/api/overview").json()["models"]}
        assert places == {"canary": "fake:0", SECOND: "fake:1"}
        (model,) = [m for m in server.http.get("/v1/models").json()["data"] if m["id"] == "canary"]
        assert model["replicas"] == [{"id": "canary", "state": "ready"}, {"id": SECOND, "state": "ready"}]
        assert server.complete(prompts[0], model=SECOND, max_tokens=1).json()["model"] == SECOND
        assert server.complete(prompts[0], max_tokens=1).json()["model"] == "canary"


def test_a_prefix_draws_its_requests_to_its_replica():
    with serving(*TWO) as server:
        with server.begin(max_tokens=900) as busy:
            busy.read_on()
            until(lambda: server.requests("decoding"))
            _, cached = answer(server, prompt_of(1))  # the other replica has no request
            assert cached == 0
        server.wait_idle()
        before = read_tokens(server)
        assert before[SECOND] >= 200
        for end in range(4):
            _, cached = answer(server, prompt_of(1)[:193 + end] + [400 + end])
            assert cached == 192
        after = read_tokens(server)
        assert after["canary"] == before["canary"] and after[SECOND] > before[SECOND]
        hits = {name: server.metrics()[f'vllm:prefix_cache_hits_total{{model_name="{name}"}}'] for name in after}
        assert hits == {"canary": 0, SECOND: 4 * 192}


def test_clients_of_one_prefix_do_not_crowd_on_one_replica():
    head = prompt_of(2, 128)
    with serving(*TWO) as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
        answer(server, head)
        server.wait_idle()
        before = read_tokens(server)
        list(pool.map(lambda i: server.complete(head + [500 + i], max_tokens=200, ignore_eos=True), range(8)))
        after = read_tokens(server)
        assert all(after[name] > before[name] for name in after)


def test_a_session_stays_with_the_replica_that_opened_it():
    talk = [{"role": "user", "content": "What does mkdir do? " * 12}]
    with serving(*TWO) as server:
        with server.begin(max_tokens=900) as busy:
            busy.read_on()
            until(lambda: server.requests("decoding"))
            opened = server.post("/v1/sessions", model="canary", messages=talk, ttl="5m")
            assert opened.status_code == 200, opened.text
            session = opened.json()["id"]
        reply = server.chat(messages=talk, session=session, max_tokens=4)
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert server.http.get(f"/v1/sessions/{session}").json()["model"] == "canary"
        assert server.http.delete(f"/v1/sessions/{session}").status_code == 200


def test_agents_have_places_on_all_replicas_and_stay_there():
    long = "of a long task with many words, " * 20
    with serving(*TWO, "--agents", 1, "--agent-context", 512, "--host-cache", "64M") as server:
        def ask(name, more=""):
            return server.chat(f"{name} {long}{more}", prompt_cache_key=name, max_tokens=2)

        with server.begin(max_tokens=900) as busy:
            busy.read_on()
            until(lambda: server.requests("decoding"))
            assert ask("first").status_code == 200
        server.wait_idle()
        assert {n: m["agents"]["active"] for n, m in engines(server).items()} == {"canary": 0, SECOND: 1}
        # Its replica is the one with more to do, and has its place.
        with server.begin(model=SECOND, max_tokens=900) as busy:
            busy.read_on()
            until(lambda: server.requests("decoding"))
            assert ask("first", "and more").status_code == 200
            assert ask("second").status_code == 200
        assert {n: m["agents"]["active"] for n, m in engines(server).items()} == {"canary": 1, SECOND: 1}
        refused(ask("third"), 503, "agents_full", "All 1 places of agents")
        for order in ("unload", "load"):  # which frees the places
            assert server.http.post(f"/v1/models/canary/{order}").status_code == 200


def test_each_replica_is_warmed(tmp_path):
    head = [{"role": "user", "content": "What does mkdir do? " * 12}]
    (tmp_path / "warm.jsonl").write_text(json.dumps({"messages": head}) + "\n")
    with warming(*TWO, "--warm", tmp_path / "warm.jsonl") as server:
        assert {line["model"] for line in warmed(server, 2)} == {"canary", SECOND}
        for name in ("canary", SECOND):
            usage = server.chat(messages=head, model=name, max_tokens=1).json()["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] > 0


def test_a_model_that_comes_later_has_its_replicas(tmp_path):
    with serving(*TWO, "--model-dir", tmp_path) as server:
        (tmp_path / "late").symlink_to(MODEL)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: {"late", "late@fake:1"} <= set(engines(server)))
        assert answer(server, prompt_of(1), model="late")[0] == answer(server, prompt_of(1))[0]
        until(lambda: engines(server)["late@fake:1"]["state"] == "ready")
        assert server.http.post("/v1/models/late/unload").status_code == 200


@pytest.mark.slow
def test_conversations_have_the_tokens_of_one_device_whatever_happens():
    """Two turns each; hits, batches, drafts, and too few pages for all at once."""
    count = 64 if os.environ.get("PLATEAU_LONG") else 12
    fields = {"temperature": 0, "max_tokens": 80, "ignore_eos": True, "return_token_ids": True}

    def talk(server, i):
        prompt, tokens = prompt_of(1000 + i, 280 + 10 * (i % 16)), []
        for turn in range(2):
            reply = server.complete(prompt, **fields)
            assert reply.status_code == 200, reply.text
            tokens += reply.json()["choices"][0]["token_ids"]
            prompt = prompt + tokens[-80:] + prompt_of(i + turn, 30)
        return tokens

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        with serving("--device", "cpu", *SIZES, "--spec", "off") as server:
            want = list(pool.map(lambda i: talk(server, i), range(count)))
        for replicas, limit in ((2, "74M"), (4, "110M")):
            options = ["--replicas", replicas, "--device-memory-limit", limit, "--max-num-seqs", 8]
            with serving("--device", "fake:0", *SIZES[:2], *SIZES[4:], *options) as server:
                assert list(pool.map(lambda i: talk(server, i), range(count))) == want
                found = engines(server).values()
                assert len(found) == replicas and all(m["prompt_tokens"] > 0 for m in found)
                assert (sum(m["preemptions"] for m in found) if replicas == 2
                        else sum(m["cache"]["hit_tokens"] for m in found)) > 0
                assert sum(m["speculation"]["accepted_tokens"] for m in found) > 0


def test_cycles_return_all_memory_of_each_device():
    with serving(*TWO) as server:
        before = settled(server)
        for _ in range(100 if os.environ.get("PLATEAU_LONG") else 6):
            assert server.http.post("/v1/models/canary/unload").json()["status"] == "unloaded"
            assert [d["committed_bytes"] for d in server.memory()["system"]["devices"]] == [0, 0]
            assert server.http.post("/v1/models/canary/load").json()["status"] == "ready"
            answer(server, prompt_of(1))
        all_returned(server, before)


def test_an_order_is_for_all_replicas_or_for_the_named_one():
    with serving(*TWO) as server:
        answer(server, prompt_of(1))
        before = settled(server)
        assert server.http.post(f"/v1/models/{SECOND}/unload").status_code == 200
        assert {n: m["state"] for n, m in engines(server).items()} == {"canary": "ready", SECOND: "unloaded"}
        for i in range(3):
            answer(server, prompt_of(i))
        # A replica that an operator has unloaded stays so while the others have room.
        assert engines(server)[SECOND]["state"] == "unloaded"
        assert server.http.post("/v1/models/canary/unload").json()["status"] == "unloaded"
        assert {m["state"] for m in engines(server).values()} == {"unloaded"}
        assert server.http.post("/v1/models/canary/load").json()["status"] == "ready"
        assert {m["state"] for m in engines(server).values()} == {"ready"}
        all_returned(server, before)
        assert server.http.post("/v1/models/canary/pin").status_code == 200
        assert all(m["pinned"] for m in engines(server).values())


def test_an_unloaded_replica_comes_back_when_the_others_are_crowded():
    with serving(*TWO) as server, concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert server.http.post(f"/v1/models/{SECOND}/unload").status_code == 200
        list(pool.map(lambda i: server.complete(prompt_of(i), max_tokens=100, ignore_eos=True), range(12)))
        until(lambda: engines(server)[SECOND]["state"] == "ready")


@pytest.mark.smoke
def test_a_lost_device_costs_its_own_requests_and_comes_back():
    with serving("--device", "fake:0,seed=2,lost=40", "--replicas", 2, *SIZES) as server:
        want = [answer(server, prompt_of(i), model=SECOND)[0] for i in range(3)]
        # The first replica gets requests that find nothing, until its device is lost.
        until(lambda: server.complete(prompt_of(9, 64), max_tokens=20, ignore_eos=True).status_code != 200)
        until(lambda: server.said("event=device_lost device=fake:0"), seconds=10)
        assert [answer(server, prompt_of(i))[0] for i in range(3)] == want
        until(lambda: server.said("event=device_reopened device=fake:0"))
        until(lambda: engines(server)["canary"]["state"] == "ready")
        assert not server.said(f"event=model_unloaded model={SECOND}")
        assert engines(server)[SECOND]["state"] == "ready"


@pytest.mark.parametrize("options, words", [
    (["--device", "cpu", "--replicas", "2"], "each replica is on a device of its own"),
    (["--device", "fake:6", "--replicas", "3"], "from fake:6 on there are only 2 devices"),
    (["--device", "fake:0", "--replicas", "9"], "--replicas"),
])
def test_replicas_without_devices_are_refused(options, words):
    for command in ("serve", "plan"):
        got = subprocess.run([PROGRAM, command, str(MODEL), *options], capture_output=True, text=True, timeout=60)
        assert got.returncode != 0 and words in got.stderr, got.stderr


def test_a_plan_shows_each_replica():
    options = ["--device", "fake:2", "--replicas", "2", "--max-model-len", "1024"]
    got = subprocess.run([PROGRAM, "plan", str(MODEL), *options], capture_output=True, text=True, timeout=60)
    assert got.returncode == 0, got.stderr
    assert "On device fake:2 its models need" in got.stdout and "On device fake:3 its models need" in got.stdout


def test_a_model_that_no_replica_is_loaded_of_loads_on_demand(tmp_path):
    (tmp_path / "late").symlink_to(MODEL)
    with serving(*TWO, "--model-dir", tmp_path) as server:
        assert answer(server, prompt_of(1), model="late")[0] == answer(server, prompt_of(1))[0]
        until(lambda: engines(server)["late@fake:1"]["state"] == "ready")
        refused(server.complete([400], model="none"), 404, "model_not_found", "canary and late")
        assert server.http.post("/v1/models/late/unload").status_code == 200
