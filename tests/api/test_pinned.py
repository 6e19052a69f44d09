"""Pinned memory below the prefix cache of a device: hits from it change no token, and it is planned, shown,
cleared and given back."""

import json
import random
import subprocess

from conftest import MODEL, PROGRAM, account, all_returned, check_ledger, serving, settled, until
from test_ssd import serving_from

PAGE = 32
# The device caches two or three prompts.
FEW = ("--device", "fake:0", "--device-memory-limit", "256M", "--host-cache", "4M", "--spec", "off", "--max-image-pixels", 0, "--max-num-seqs", 2, "--max-model-len", 2048)
PINNED = ("--pinned-cache", "64M")
TOKENS = 640
PROMPTS = 8


def prompt_of(number):
    draw = random.Random(number)
    return [draw.randrange(100, 500) for _ in range(TOKENS)]


def ask(server, number):
    reply = server.complete(prompt_of(number), max_tokens=6, temperature=0, ignore_eos=True, return_token_ids=True)
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["token_ids"], reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def pinned(server):
    return server.status()["caches"]["pinned"]


def hits(server, tier):
    return server.metrics()[f'plateau_cache_hit_tokens_total{{model_name="canary",tier="{tier}"}}']


def fill(server):
    """Other prompts evict the earlier ones from the device."""
    for number in range(100, 100 + PROMPTS):
        ask(server, number)


def test_a_hit_from_pinned_memory_is_a_cold_answer():
    with serving(*FEW) as server:
        want = [ask(server, number)[0] for number in range(3)]
    with serving(*FEW, *PINNED) as server:
        before = settled(server)
        fill(server)  # from here on there is memory for what is evicted
        assert pinned(server)["bytes"] > 0
        assert [ask(server, number)[0] for number in range(3)] == want
        fill(server)
        found = [ask(server, number) for number in range(3)]
        assert [tokens for tokens, _ in found] == want
        assert hits(server, "pinned") > 0 and hits(server, "ssd") == 0
        assert all(cached >= TOKENS // PAGE * PAGE - PAGE for _, cached in found)
        fill(server)
        usage = server.complete(prompt_of(0), max_tokens=1, include_timings=True).json()["usage"]
        tiers = usage["timings"]["cached_tokens"]
        assert tiers["pinned"] > 0 and tiers["host"] == tiers["ssd"] == 0
        assert tiers["pinned"] + tiers["device"] == usage["prompt_tokens_details"]["cached_tokens"]
        memory = server.memory()
        check_ledger(memory)
        limits = account(memory, "pinned cache")
        assert 0 < limits["used_bytes"] == pinned(server)["bytes"] <= limits["limit_bytes"] == limits["planned_bytes"] == 64 << 20
        all_returned(server, before)
        assert pinned(server)["bytes"] == 0


def test_the_plan_has_its_account():
    command = [PROGRAM, "plan", "--json", *map(str, (MODEL, *FEW, *PINNED))]
    plan = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert "pinned cache" in json.dumps(plan)


def test_a_model_on_the_cpu_has_none():
    with serving(*PINNED) as server:
        assert pinned(server)["limit_bytes"] == 0
        assert "pinned cache" not in json.dumps(server.memory())


def test_pinned_memory_goes_to_the_ssd_tier(tmp_path):
    with serving_from(tmp_path / "ssd", *FEW, *PINNED) as server:
        fill(server)
        want = ask(server, 0)[0]
        fill(server)
        until(lambda: server.status()["caches"]["ssd"]["pages"] > 0)
    with serving_from(tmp_path / "ssd", *FEW, *PINNED) as server:
        assert ask(server, 0)[0] == want
