"""The work before the engine: short requests beside long texts, prompts that cannot fit, and work for
clients that have left."""

import os
import pathlib
import statistics
import threading
import time

import httpx
import pytest

from conftest import ANSWER_S, Open, Server, refused, serving, until

PIECE = "ab" * (3 << 19)  # 3 MiB without a blank: one piece


def processor_seconds(server):
    """Processor time of the server until now."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_by(server, ask):
    before = processor_seconds(server)
    reply = ask()
    return processor_seconds(server) - before, reply


def seconds_of(ask):
    began = time.monotonic()
    assert ask().status_code == 200
    return time.monotonic() - began


@pytest.fixture(scope="module")
def own():
    with serving() as s:
        yield s


def test_a_long_text_is_tokenized_whole(own):
    reply = own.post("/tokenize", prompt=PIECE).json()
    assert reply["count"] == len(reply["tokens"]) == len(PIECE) // 2
    assert set(reply["tokens"]) == set(own.post("/tokenize", prompt="abab").json()["tokens"])


@pytest.mark.alone
@pytest.mark.parametrize("path", ["/tokenize", "/v1/completions"])
def test_a_chat_does_not_wait_for_long_texts(own, path):
    own.chat(max_tokens=1)
    alone = seconds_of(lambda: own.post("/tokenize", prompt=PIECE))
    over = threading.Event()
    statuses = set()

    def ask_again_and_again():
        with httpx.Client(base_url=own.url, timeout=ANSWER_S) as c:
            while not over.is_set():
                statuses.add(c.post(path, json={"prompt": PIECE, "max_tokens": 1}).status_code)

    others = [threading.Thread(target=ask_again_and_again) for _ in range(8)]
    for t in others:
        t.start()
    try:
        until(lambda: statuses)  # one was prepared; others wait
        waits = []
        for _ in range(8):
            waits.append(seconds_of(lambda: own.chat(max_tokens=1)))
    finally:
        over.set()
        for t in others:
            t.join()
    # Two hundredths of a second on an idle machine. A chat queued after eight texts would wait for several of
    # them.
    assert statistics.median(waits) < max(1.5, 2 * alone), (waits, alone)
    assert statuses <= {200, 400, 429}


@pytest.mark.alone
def test_what_cannot_fit_is_refused_without_tokenizing(own):
    limit = own.post("/tokenize", prompt="a").json()["max_model_len"]
    text = PIECE * 2
    whole, _ = used_by(own, lambda: own.post("/tokenize", prompt=text))
    plain, reply = used_by(own, lambda: own.complete(text, max_tokens=1))
    assert refused(reply, 400, "context_length_exceeded", limit)["param"] == "prompt"
    chat, reply = used_by(own, lambda: own.chat(text, max_tokens=1))
    assert refused(reply, 400, "context_length_exceeded", limit)["param"] == "messages"
    assert max(plain, chat) < whole / 2, (plain, chat, whole)


def test_a_prompt_that_just_fits_is_not_refused(own):
    limit = own.post("/tokenize", prompt="a").json()["max_model_len"]
    word = " connection"
    assert own.post("/tokenize", prompt=word * 100).json()["count"] <= 100
    assert own.post("/tokenize", prompt=word * limit).json()["count"] <= limit
    refused(own.complete(word * (2 * limit), max_tokens=1), 400, "context_length_exceeded")


@pytest.mark.alone
def test_texts_whose_clients_have_left_are_not_prepared(own):
    stopped = own.metrics()["plateau_prep_stopped_total"]
    asked = [Open(own, "/tokenize", {"prompt": PIECE * 2}) for _ in range(6)]
    until(lambda: len(own.requests("preparing")) == 6, every=0.005)
    for each in asked:
        each.leave()
    until(lambda: not own.requests())
    # The first may have been done by then.
    assert own.metrics()["plateau_prep_stopped_total"] >= stopped + 4
    assert own.metrics()["plateau_prep_waiting"] == 0 == own.metrics()["plateau_prep_waiting_bytes"]


@pytest.mark.alone
def test_the_end_does_not_wait_for_long_texts():
    s = Server("--drain", "0")
    alone = seconds_of(lambda: s.post("/tokenize", prompt=PIECE * 2))
    asked = [Open(s, "/tokenize", {"prompt": PIECE * 2}) for _ in range(8)]
    try:
        until(lambda: len(s.requests("preparing")) == 8, every=0.005)
        began = time.monotonic()
        assert s.stop() == 0
        # Eight such texts on two threads and more take several times as long as one.
        assert time.monotonic() - began < max(5, 3 * alone), alone
    finally:
        for each in asked:
            each.leave()
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()
