"""Invariants are walked while a server rests: one that is broken stops it with a line that names the
account, page or sequence. And engines allocate nothing, whatever they are asked."""

import concurrent.futures
import contextlib
import re
import signal

import httpx
import pytest

from conftest import FAULTY, Faulty, Open, serving, until
from seeing import SEEN, ask, file_of

MODEL = '{model_name="canary"}'

pytestmark = pytest.mark.skipif(not FAULTY.exists(), reason="built without tests")


@contextlib.contextmanager
def stopping(*options):
    """A server that ends by an invariant: yields it, and a list that gets its last line."""
    server, found = Faulty("--host-cache", "16M", *options), []
    try:
        yield server, found
        assert server.process.wait(30) == -signal.SIGABRT
        server.reader.join(5)
        found += [line for line in server.lines if "event=invariant_broken" in line]
    finally:
        server.process.kill()
        server.wait()
    assert len(found) == 1 and "level=fatal" in found[0], server.lines[-5:]


def complete(server):
    """Something to rest after; a build that walks after each step ends within it."""
    with contextlib.suppress(httpx.TransportError):
        server.complete("a b c d e f g h " * 12, max_tokens=2, ignore_eos=True)


@pytest.mark.smoke
@pytest.mark.parametrize("name,path", [("kv", "process/canary/pools/kv"), ("network", "process/network")])
def test_a_wrong_account_is_named(name, path):
    """The engine walks over the accounts of its model, the guard over all of the process."""
    with stopping() as (server, found):
        server.order(f"damage account {name}")
        complete(server)
    assert f'what="account {path}: used ' in found[0] or 'what="accounts kv and prefix cache' in found[0]


@pytest.mark.smoke
def test_a_wrong_holder_is_named():
    """The guard walks over the list of holders."""
    with stopping() as (server, found):
        server.order("damage holder")
        complete(server)
    assert 'thread="guard" what="holder canary: closing, and ' in found[0], found[0]


@pytest.mark.smoke
def test_a_wrong_reference_count_is_named():
    with stopping() as (server, found):
        complete(server)
        server.order("damage page")
        complete(server)
    assert re.search(r'thread="en canary" what="page \d+', found[0]), found[0]


@pytest.mark.smoke
def test_a_wrong_table_is_named():
    """The server rests while the only request is paused, because its client does not read."""
    with stopping() as (server, found):
        server.order("damage table")
        body = {"prompt": [7] * 100, "max_tokens": 8000, "ignore_eos": True, "stream": True, "logprobs": 20}
        with Open(server, "/v1/completions", body, receive_bytes=4096):
            server.process.wait(30)
    assert re.search(r'what="sequence of request [0-9a-f]{32}: entry 0 of its table', found[0]), found[0]


@pytest.mark.smoke
def test_walks_are_made_at_rest_and_counted():
    with serving("--host-cache", "16M", kind=Faulty) as server:
        complete(server)
        until(lambda: server.metrics()["plateau_invariant_walks_total" + MODEL] >= 1)
        assert 0 < server.metrics()["plateau_invariant_walk_seconds" + MODEL] < 60


# ---- allocations ----


def served(server, count, kinds):
    """`count` requests, eight at a time, of all kinds in turn."""

    def ask_one(i):
        return kinds[i % len(kinds)](i)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert {reply.status_code for reply in pool.map(ask_one, range(count))} == {200}


def test_engines_allocate_nothing_over_a_thousand_requests():
    """Speculative decoding, prefix hits, images, constraints on the draw, clients that leave; then
    preemption."""
    fields = {"max_tokens": 6, "ignore_eos": True}
    with serving("--host-cache", "64M", "--max-num-seqs", 4, kind=Faulty) as server:
        kinds = [
            lambda i: server.complete("one two three four five, one two three four five, one ", **fields),
            lambda i: server.complete(f"{i} a prompt of its own", temperature=0.9, seed=i, top_p=0.9, **fields),
            lambda i: server.complete([9 + i % 7] * 20, prompt_logprobs=1, logprobs=3, **fields),
            lambda i: server.complete("a", n=2, stop=["e", "th"], min_tokens=3, max_tokens=6),
            lambda i: server.chat(f"What does mkdir do? {i % 5}", max_tokens=6, repetition_penalty=1.2),
            lambda i: ask(server, file_of(SEEN[i % len(SEEN)]), "?", max_tokens=2),
            lambda i: server.complete([20 + i % 3] * 100, max_tokens=2, cache_salt=str(i % 2), ignore_eos=True),
            lambda i: server.complete([20 + i % 5] * 30, max_tokens=6, ignore_eos=True),
        ]
        served(server, 800, kinds)
        for _ in range(20):
            with server.begin() as left:
                left.event()
        server.wait_idle()
        moved = server.metrics()
        assert moved["vllm:spec_decode_num_accepted_tokens_total" + MODEL] > 0
        assert moved["vllm:prefix_cache_hits_total" + MODEL] > 0
        assert server.order("heap") > 800, "the counter sees allocations"
        assert server.order("mallocs") == 0
    options = {"threads": 2, "memory-limit": "105M", "max-model-len": 1024, "max-image-pixels": 0, "spec": "off",
               "admin-listen": "none", "max-connections": 32, "max-requests": 64}
    with serving(*(f"--{name}={value}" for name, value in options.items()), kind=Faulty) as tight:
        served(tight, 200, [lambda i: tight.complete([10 + i] * (280 + 10 * i) if i < 8 else [9] * 40,
                                                     max_tokens=128 if i < 8 else 1, ignore_eos=True)])
        assert tight.metrics()["vllm:num_preemptions_total" + MODEL] > 0
        assert tight.order("mallocs") == 0
