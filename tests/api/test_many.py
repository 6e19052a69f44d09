"""Many requests of every kind, a third of which end before their time: afterwards nothing is left of them."""

import collections
import http.client
import json
import os
import random
import threading
import time

from conftest import Open, all_returned, settled

COUNT = int(os.environ.get("PLATEAU_TEST_REQUESTS", "1000"))
THREADS = 16


def body_of(rng):
    """(path, body, requested tokens)"""
    tokens = rng.randint(1, 8)
    body = {"max_tokens": tokens, "ignore_eos": True, "stream": rng.random() < 0.5, "n": rng.choice([1, 1, 1, 2])}
    if rng.random() < 0.2:
        body["stop"] = "never said"
    if rng.random() < 0.2:
        body["logprobs"] = 3
    if rng.random() < 0.5:
        body["prompt"] = [rng.randrange(5, 8000) for _ in range(rng.randint(1, 24))]
        return "/v1/completions", body, tokens
    body["logprobs"] = bool(body.get("logprobs"))
    words = " ".join(rng.choice(["What", "does", "mkdir", "do", "page", "list"]) for _ in range(rng.randint(1, 8)))
    return "/v1/chat/completions", {**body, "messages": [{"role": "user", "content": words}]}, tokens


def is_cancelled(error):
    return error["code"] == "request_cancelled"


def whole(reply, body, tokens):
    answer = json.loads(reply.read())
    if reply.status != 200:
        assert reply.status == 499 and is_cancelled(answer["error"]), answer
        return "cancelled"
    assert answer["usage"]["completion_tokens"] == tokens * body["n"]
    assert [c["finish_reason"] for c in answer["choices"]] == ["length"] * body["n"]
    return "finished"


def streamed(request, body):
    reasons = []
    for event in request.events():
        if event == "[DONE]":
            assert reasons == ["length"] * body["n"]
            return "finished"
        if "error" in event:
            assert is_cancelled(event["error"]), event
            return "cancelled"
        reasons += [c["finish_reason"] for c in event["choices"] if c["finish_reason"]]
    raise AssertionError("the stream ended without [DONE] and without an error")


def delete_somebody(server, rng):
    """The first of a few requests that are still there: running, queued, or being read."""
    ids = [r["id"] for r in server.status()["requests"]]
    for request in rng.sample(ids, min(3, len(ids))):
        if server.http.delete(f"/v1/requests/{request}").status_code == 200:
            return


def one(server, rng):
    """How it ended."""
    path, body, tokens = body_of(rng)
    fate = rng.random()
    with Open(server, path, body) as request:
        if fate < 1 / 6:
            time.sleep(rng.random() ** 2 * 0.3)
            return "left"
        if body["stream"] and fate < 2 / 6:
            for _ in range(rng.randint(0, 4)):
                if not request.event():
                    break
            return "left"
        if fate < 2 / 6:
            delete_somebody(server, rng)
        reply = request.answer()
        if body["stream"] and reply.status == 200:
            return streamed(request, body)
        return whole(reply, body, tokens)


def test_nothing_is_left_of_a_thousand_requests(server):
    seed = int(os.environ.get("PLATEAU_TEST_SEED") or random.randrange(2**32))
    print(f"PLATEAU_TEST_SEED={seed} PLATEAU_TEST_REQUESTS={COUNT}")
    before = settled(server)
    ends, errors, numbers = collections.Counter(), [], iter(range(COUNT))
    lock = threading.Lock()

    def work():
        while not errors:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                end = one(server, random.Random(f"{seed}/{number}"))
                with lock:
                    ends[end] += 1
            except http.client.RemoteDisconnected:  # somebody cancelled it while its body was arriving
                with lock:
                    ends["closed"] += 1
            except Exception as error:  # reported below, with the number that replays it
                errors.append(f"request {number}: {error!r}")

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    print(dict(ends))
    assert sum(ends.values()) == COUNT
    assert ends["closed"] <= COUNT / 50, ends
    assert ends["left"] > COUNT / 5 and ends["cancelled"] > 0 and ends["finished"] > COUNT / 2, ends
    all_returned(server, before)
