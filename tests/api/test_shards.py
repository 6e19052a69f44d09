"""A model whose layers are on several devices: it has the tokens of one device, and a plan for each; a device
that is lost ends the requests of its own models."""

import concurrent.futures
import json
import os
import subprocess

import pytest

from conftest import MODEL, PROGRAM, TOP, account, all_returned, refused, serving, settled, until
from test_ssd import answer, prompt_of, serving_from, wait_written

LONG = os.environ.get("PLATEAU_LONG") == "1"
LAYERS = 8
SIZES = ["--max-model-len", 1024, "--max-num-seqs", 8, "--max-image-pixels", 0]
TWO = ["--device", "fake:0", "--place", "layers 3-7=fake:1"]
COUNT = 64 if LONG else 6


def over(devices):
    """Options that give each device as many layers."""
    each = LAYERS // devices
    rules = [f"layers {i * each}-{(i + 1) * each - 1}=fake:{i}" for i in range(1, devices)]
    return ["--device", "fake:0", "--place", ",".join(rules)]


def ask(server, prompt, tokens=24):
    reply = server.complete(prompt, max_tokens=tokens, temperature=0, ignore_eos=True, return_token_ids=True)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"]


def ask_all(server, prompts, tokens=24):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda p: ask(server, p, tokens), prompts))


PROMPTS = [prompt_of(i, 40 + 17 * i % 700) for i in range(COUNT)]


@pytest.fixture(scope="module")
def want():
    """Tokens of one device, each prompt alone."""
    with serving("--device", "fake:0", "--spec", "off", *SIZES) as server:
        return [ask(server, p) for p in PROMPTS]


@pytest.fixture(scope="module")
def two():
    with serving(*TWO, *SIZES) as server:
        yield server


def root(server, device):
    return next(a for a in server.memory()["accounts"] if a["name"] == device)


@pytest.mark.smoke
def test_two_devices_say_what_one_says(two, want):
    assert [ask(two, p) for p in PROMPTS[:2]] == want[:2]
    for _ in range(2):
        assert ask_all(two, PROMPTS) == want
    assert two.metrics()['vllm:prefix_cache_hits_total{model_name="canary"}'] > 0
    assert two.metrics()['vllm:spec_decode_num_accepted_tokens_total{model_name="canary"}'] > 0
    (model,) = two.http.get("/api/overview").json()["models"]
    assert model["device"] == "fake:0,fake:1"


@pytest.mark.parametrize("devices", [2, 4, 8] if LONG else [8])
def test_every_number_of_devices_gives_the_tokens_of_one(want, devices):
    with serving(*over(devices), *SIZES) as server:
        for _ in range(2):
            assert ask_all(server, PROMPTS) == want
        names = {a["name"] for a in server.memory()["accounts"]}
        assert {f"fake:{i}" for i in range(devices)} <= names


def test_an_unload_gives_both_devices_back(two, want):
    before = settled(two)
    for device in ("fake:0", "fake:1"):
        model = account({"accounts": [root(two, device)]}, "canary")
        assert {"weights", "workspace", "pools"} <= {a["name"] for a in model["children"]}
        assert all(a["planned_bytes"] >= a["peak_bytes"] for a in model["children"])
    assert two.http.post("/v1/models/canary/unload").status_code in (200, 202)
    until(lambda: all(root(two, d)["used_bytes"] == root(two, d)["reserved_bytes"] == 0 for d in ("fake:0", "fake:1")))
    assert all(d["committed_bytes"] == 0 for d in two.memory()["system"]["devices"])
    assert ask(two, PROMPTS[1]) == want[1]
    all_returned(two, before)


def test_pages_that_run_short_cost_no_token(two):
    prompts = [prompt_of(i, 60 + 10 * i) for i in range(8)]
    sizes = ["--max-num-seqs", 8, "--max-image-pixels", 0, "--max-model-len", 512, "--spec", "off"]
    least = max(d["floor_bytes"] for d in plan(MODEL, *TWO, *sizes)[0]["domains"][1:])
    with serving(*TWO, *sizes, "--device-memory-limit", least) as tight:
        assert ask_all(tight, prompts, 200) == ask_all(two, prompts, 200)
        assert tight.status()["models"][0]["preemptions"] > 0


def test_a_restart_finds_prefixes_of_both_devices(tmp_path):
    prompts = [prompt_of(i) for i in range(2)]
    with serving_from(tmp_path, *TWO) as server:
        first = [answer(server, p) for p in prompts]
        wait_written(server, 2 * 7)
    with serving_from(tmp_path, *TWO) as server:
        again = [answer(server, p) for p in prompts]
        assert [t for t, _ in again] == [t for t, _ in first]
        assert all(cached > 0 for _, cached in again)


def test_what_devices_evict_comes_back_from_pinned_memory():
    prompts = [prompt_of(50 + i, 200) for i in range(6)]
    small = ["--host-cache", "1M", "--pinned-cache", "64M"]
    with serving(*TWO, *SIZES, *small) as server:
        first = [answer(server, p) for p in prompts]
        server.wait_idle()
        again = [answer(server, p) for p in prompts]
        assert [t for t, _ in again] == [t for t, _ in first]
        assert sum(cached for _, cached in again) > 0


def config(tmp_path, text):
    path = tmp_path / "plateau.ini"
    path.write_text(text)
    return ["--config", path]


def test_a_lost_device_ends_its_own_models_only(tmp_path):
    (tmp_path / "spread").symlink_to(MODEL)
    small = TOP / "tests/golden/data/qwen3"
    sections = "[model spread]\ndevice = fake:0\nplace = layers 3-7=fake:1\n[model qwen3]\ndevice = fake:0\n"
    with serving("--device", "fake:1,seed=2,lost=40", *config(tmp_path, sections), *SIZES[2:],
                 tmp_path / "spread", small) as server:
        with server.begin(prompt=[1, 2, 3], model="qwen3", max_tokens=200, ignore_eos=True) as other:
            other.read_on()
            reply = server.complete(PROMPTS[0], model="spread", max_tokens=400, ignore_eos=True)
            assert reply.status_code == 500, reply.text
            until(lambda: server.said("event=device_lost device=fake:1"), seconds=10)
            assert server.complete([5, 6, 7], model="qwen3", max_tokens=2).status_code == 200
        # Both models of the device come back when they are asked for.
        for model in ("canary", "spread"):
            until(lambda: server.complete(PROMPTS[0], model=model, max_tokens=1).status_code == 200)
        assert server.said("event=device_reopened device=fake:1")
        assert not server.said("event=model_unloaded model=qwen3")


def plan(*options):
    got = subprocess.run([PROGRAM, "plan", "--json", *map(str, options)], capture_output=True, text=True, timeout=60)
    return (json.loads(got.stdout)["models"][0], "") if got.returncode == 0 else (None, got.stderr)


def test_a_plan_has_each_device_and_names_the_one_that_is_too_small():
    found, _ = plan(MODEL, *TWO, *SIZES)
    assert [d["name"] for d in found["domains"]] == ["machine", "fake:0", "fake:1"]
    lines = {a["name"] for a in found["accounts"] if a["domain"] == "fake:1"}
    assert {"canary", "weights", "workspace", "pools", "kv", "state"} <= lines
    least = max(d["floor_bytes"] for d in found["domains"][1:])
    assert plan(MODEL, *TWO, *SIZES, "--device-memory-limit", least)[0]
    largest = max(found["domains"][1:], key=lambda d: d["floor_bytes"])["name"]
    _, error = plan(MODEL, *TWO, *SIZES, "--device-memory-limit", least - 1)
    assert f"does not fit on device {largest}" in error


@pytest.mark.parametrize("rules, said", [("layers 0-2=fake:1,layers 5-6=fake:1", "must follow each other"),
                                         ("rest=fake:1", "the rest"), ("layers 0-8=fake:1", "layers 0 to 7")])
def test_what_is_not_computed_is_refused_by_name(rules, said):
    _, error = plan(MODEL, "--device", "fake:0", "--place", rules)
    assert said in error and ("--place" in error or "layers" in error)
