"""Continuous batching through the API: a later request joins at once; a long prompt is prefilled between
the tokens of others.

Orders and counts of steps are compared, never times."""

import concurrent.futures

import pytest

from conftest import GOLDEN, Open, case_fields, serving, until

STEP_TOKENS_MAX = 512  # most prompt tokens of a step (registry/model_plan.h)


def steps(server):
    return server.status()["models"][0]["steps"]


@pytest.mark.smoke
def test_a_short_request_overtakes_a_long_one(server):
    with server.begin(stream=False) as long:
        until(lambda: server.requests("decoding"))
        for case in GOLDEN["cases"][:2]:
            reply = server.post("/v1/chat/completions", **case_fields(case))
            assert reply.json()["choices"][0]["token_ids"] == case["greedy_ids"]
        (left,) = server.requests("decoding")
        assert left["tokens"] < 20000 and long.reply is None
    server.wait_idle()


def test_a_long_prompt_is_read_beside_others_tokens(server):
    """Each step that reads a piece of the prompt gives the decoding sequence its token."""
    prompt = [5 + i % 700 for i in range(2400)]
    with server.begin(stream=False) as other:
        until(lambda: server.requests("decoding"))
        first = server.requests()[0]["id"]

        def tokens():
            return next(r["tokens"] for r in server.requests() if r["id"] == first)

        # Tokens before steps, then steps before tokens: the sequence can only have had more chances than are
        # counted.
        tokens_before, steps_before = tokens(), steps(server)
        seen = []
        with Open(server, "/v1/completions", {"prompt": prompt, "max_tokens": 1}) as long:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                answered = pool.submit(lambda: long.answer().status)
                while not answered.done():
                    seen += [(r["progress"], r["phase"]) for r in server.requests() if r["id"] != first]
        assert answered.result() == 200
        steps_between = steps(server) - steps_before
        tokens_between = tokens() - tokens_before
        assert other.reply is None
    assert steps_between >= len(prompt) / STEP_TOKENS_MAX
    # The exchange's count trails the engine's by the steps under way: one or two.
    assert tokens_between >= steps_between - 3, (tokens_between, steps_between)
    pieces = sorted({p for p, phase in seen if phase == "prefilling"})
    assert len(pieces) > 2, "the prompt was not seen to be read in pieces"
    server.wait_idle()


@pytest.mark.smoke
def test_who_waits_is_served_when_a_row_is_free(narrow):
    with narrow.begin(stream=False) as first:
        running = until(lambda: narrow.requests("decoding"))[0]["id"]
        with Open(narrow, "/v1/completions", {"prompt": "b", "max_tokens": 1}) as second:
            until(lambda: narrow.requests("queued"))
            assert [r["id"] for r in narrow.requests("decoding")] == [running]
            first.leave()
            assert second.answer().status == 200
    narrow.wait_idle()


def test_a_lower_priority_goes_first():
    """Five wait for the one place: they get it by priority, and within one priority in order of arrival.
    Without a key none is below 0."""
    with serving("--max-num-seqs", 1, "--host-cache", 0) as one:
        order = []

        def ask(name, priority):
            reply = one.complete("a", max_tokens=250, ignore_eos=True, priority=priority)
            order.append(name)
            return reply.status_code

        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            with one.begin(stream=False) as running:
                until(lambda: one.requests("decoding"))
                asked = []
                for name, priority in [("last", 5), ("third", 2), ("first", -3), ("fourth", 2), ("second", 1)]:
                    asked.append(pool.submit(ask, name, priority))
                    until(lambda: len(one.requests("queued")) == len(asked))
                assert running.reply is None
            assert [a.result() for a in asked] == [200] * 5
        assert order == ["first", "second", "third", "fourth", "last"]


@pytest.mark.smoke
def test_sequences_share_steps(server):
    """Eight that decode together take about as many steps as one of them, not eight times as many."""
    fields = {"prompt": "a", "max_tokens": 40, "ignore_eos": True, "speculative": False}
    before = steps(server)
    assert server.post("/v1/completions", n=8, **fields).status_code == 200
    assert 40 <= steps(server) - before <= 100


def test_who_gives_up_its_pages_for_others_loses_no_token(server):
    """Pages for a few, and eight that want them: some must give theirs back, wait, and begin again."""
    prompts = [[10 + i] * (280 + 10 * i) for i in range(8)]
    fields = {"temperature": 0, "max_tokens": 200, "ignore_eos": True, "return_token_ids": True}

    def ask(which, prompt):
        reply = which.post("/v1/completions", prompt=prompt, **fields)
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]["token_ids"]

    options = {"threads": 2, "memory-limit": "105M", "max-model-len": 1024, "max-image-pixels": 0, "spec": "off", "admin-listen": "none",
               "max-connections": 32, "max-requests": 64}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        wanted = list(pool.map(lambda prompt: ask(server, prompt), prompts))
        with serving(*(f"--{name}={value}" for name, value in options.items())) as tight:
            assert tight.status()["models"][0]["pages_max"] * 32 < sum(len(p) + 200 for p in prompts)
            assert list(pool.map(lambda prompt: ask(tight, prompt), prompts)) == wanted
            assert tight.status()["models"][0]["preemptions"] > 0
            (root,) = tight.memory()["accounts"]
            assert root["peak_bytes"] <= 105 << 20 == root["limit_bytes"]
