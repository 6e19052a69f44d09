"""How the server ends: it drains, within its limit; a second signal does not wait; every byte is returned.

The program itself asserts at its end that each account is empty; a failure would show in its exit status."""

import contextlib
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

from conftest import AS_ADMIN, PROGRAM, Open, Server, refused, until


def begin_to_stop(server, number=signal.SIGTERM):
    server.process.send_signal(number)
    until(lambda: server.said("event=stopping"))


@pytest.mark.smoke
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(number):
    s = Server("--drain", 600)
    assert s.complete("a", max_tokens=1).status_code == 200
    began = time.monotonic()
    begin_to_stop(s, number)
    assert s.wait() == 0
    assert time.monotonic() - began < 10


def test_open_requests_are_finished_and_new_ones_refused():
    s = Server("--drain", 600)
    with s.begin(max_tokens=1500) as running, s.begin(max_tokens=1500, stream=False) as whole:
        running.event()
        until(lambda: len(s.requests("decoding")) == 2)
        begin_to_stop(s)
        for _ in range(3):  # while the state lasts
            health = httpx.get(s.url + "/health")
            assert health.status_code == 503 and health.json()["status"] == "draining"
            assert health.headers["connection"] == "close"
        assert httpx.get(s.url + "/live").status_code == 200
        assert len(httpx.get(s.url + "/api/status", headers=AS_ADMIN).json()["requests"]) == 2
        reply = httpx.post(s.url + "/v1/completions", json={"prompt": "a", "max_tokens": 1})
        refused(reply, 503, "shutting_down")
        assert 500 < int(reply.headers["retry-after"]) <= 600  # rest of the drain
        assert list(running.events())[-1] == "[DONE]"
        assert whole.answer().status == 200
        assert b'"completion_tokens":1500' in whole.answer().read()
    assert s.wait() == 0


def test_who_waits_on_an_open_connection_is_told():
    s = Server("--drain", 600)
    with s.begin(stream=False) as running:
        until(lambda: s.requests("decoding"))
        idle = httpx.Client(base_url=s.url)
        assert idle.get("/health").json()["status"] == "ok"
        begin_to_stop(s)
        assert idle.get("/health").json()["status"] == "draining"
        refused(idle.post("/tokenize", json={"prompt": "a"}), 503, "shutting_down")
        running.leave()
    assert s.wait() == 0


@pytest.mark.smoke
def test_the_limit_of_a_drain_ends_what_is_open_in_words():
    s = Server("--drain", 1, "--max-num-seqs", 2)
    with s.begin() as running:
        found = [running.event()]
        reader = threading.Thread(target=lambda: found.extend(running.events_that_come()))
        reader.start()
        with s.begin(stream=False) as whole, s.begin(stream=False) as queued:
            until(lambda: s.requests("queued"))
            began = time.monotonic()
            begin_to_stop(s)
            for request in whole, queued:
                assert request.answer().status == 503
                assert b'"code":"shutting_down"' in request.answer().read()
        reader.join()
        assert found[-1]["error"]["code"] == "shutting_down" and "[DONE]" not in found
        assert time.monotonic() - began >= 1
    assert s.wait() == 0


def test_without_a_drain_who_is_being_prepared_is_told():
    s = Server("--drain", 0)
    text = "what is the matter with you " * 300000
    with Open(s, "/tokenize", {"prompt": text}) as big, Open(s, "/tokenize", {"prompt": text}) as behind:
        until(lambda: len(s.requests("preparing")) == 2)
        begin_to_stop(s)
        for request in big, behind:
            assert request.answer().status == 503
            assert b'"code":"shutting_down"' in request.answer().read()
    assert s.wait() == 0


def test_who_asks_all_the_time_does_not_keep_it_from_ending():
    s = Server("--drain", 600)
    over = threading.Event()

    def look():
        while not over.is_set():
            with contextlib.suppress(httpx.TransportError):
                httpx.get(s.url + "/health")

    watchers = [threading.Thread(target=look) for _ in range(4)]
    with s.begin(max_tokens=200) as running, socket.create_connection(("127.0.0.1", s.port)) as slow:
        running.event()
        for w in watchers:
            w.start()
        begin_to_stop(s)
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        assert list(running.events())[-1] == "[DONE]"
        began = time.monotonic()
        assert s.wait() == 0
        assert time.monotonic() - began < 5
    over.set()
    for w in watchers:
        w.join()


def test_a_server_that_leaves_says_so_and_serves_on():
    """A router that looks at /health each second loses no request, even when it tries none twice."""
    s = Server("--drain-grace", 2, "--drain", 600)
    began = time.monotonic()
    begin_to_stop(s)
    idle = httpx.Client(base_url=s.url)
    health = idle.get("/health")
    assert health.status_code == 503 and health.json()["status"] == "draining"
    assert s.complete("a", max_tokens=1).status_code == 200
    with s.begin() as running:
        running.event()
        assert not s.said("event=draining")
        until(lambda: s.said("event=draining"))
        assert time.monotonic() - began >= 2
        reply = idle.post("/tokenize", json={"prompt": "a"})
        refused(reply, 503, "shutting_down")
        assert 590 <= int(reply.headers["retry-after"]) <= 600
        running.leave()
    assert s.wait() == 0


def test_a_second_signal_ends_the_grace():
    s = Server("--drain-grace", 600, "--drain", 600)
    with s.begin(stream=False):
        until(lambda: s.requests("decoding"))
        begin_to_stop(s)
        assert httpx.get(s.url + "/health").status_code == 503
        assert s.process.poll() is None
        s.process.send_signal(signal.SIGTERM)
        assert s.wait() == 0


@pytest.mark.smoke
def test_a_second_signal_does_not_wait():
    s = Server("--drain", 600)
    with s.begin(stream=False):
        until(lambda: s.requests("decoding"))
        begin_to_stop(s)
        time.sleep(0.3)
        assert s.process.poll() is None
        s.process.send_signal(signal.SIGTERM)
        assert s.wait() == 0


@pytest.mark.smoke
def test_the_end_comes_in_every_phase():
    """A row that reads its prompt, one that pauses for a client that does not read, one that waits for a
    place."""
    s = Server("--drain", 600, "--max-num-seqs", 2)
    slow = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True, "logprobs": 20}
    with Open(s, "/v1/completions", slow, receive_bytes=4096) as paused:
        paused.event()
        until(lambda: s.requests("paused"))
        with s.begin(prompt=[5 + i % 700 for i in range(24000)], max_tokens=9):
            until(lambda: s.requests("prefilling"))
            with s.begin():
                # The row that pauses may give up its place for the one that waits.
                until(lambda: s.requests("queued") or s.requests("parked"))
                begin_to_stop(s)
                s.process.send_signal(signal.SIGTERM)
                assert s.wait() == 0


def test_a_load_is_given_up():
    s = Server(wait=False)
    until(lambda: s.process.poll() is not None or _listens(s))
    s.process.send_signal(signal.SIGTERM)
    assert s.wait() == 0


def _listens(s):
    try:
        return s.http.get("/live").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.smoke
def test_a_model_that_cannot_be_loaded_ends_the_program(tmp_path):
    got = subprocess.run([PROGRAM, "serve", str(tmp_path), "--port", "0"], capture_output=True, text=True, timeout=60)
    assert got.returncode == 1
    assert str(tmp_path) in got.stderr and "config.json" in got.stderr
