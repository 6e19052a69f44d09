"""Files of models that are not files, that shrink while they are read, or that never answer. The load ends
with a message, other models are served, and the process ends within its bound.

TRUNCATIONS=200 makes the test of random truncations a long one."""

import os
import random
import re
import shutil
import signal
import subprocess
import threading
import time

import pytest

from conftest import ADMIN_KEY, FAULTY, MODEL, Faulty, Open, Server, all_returned, check_ledger, settled, until

TRUNCATIONS = int(os.environ.get("TRUNCATIONS", 8))
# Files of the bundled model; what a broken one does not have as a file of its own is a link to it.
SERVED = MODEL.name


class Files(Server):
    def ask(self, model, **fields):
        return self.post("/v1/completions", model=model, prompt=[1, 2, 3], max_tokens=2, temperature=0, **fields)

    def load(self, model):
        return self.http.post(f"/v1/models/{model}/load")

    def state(self, model):
        return {m["id"]: m["state"] for m in self.http.get("/v1/models").json()["data"]}[model]

    def goes_on(self):
        assert self.ask(SERVED).status_code == 200


class Stalling(Faulty, Files):
    """Reads stand still on order."""


def a_model(where, *own):
    """Links to the bundled model's files but for `own`."""
    where.mkdir(parents=True)
    for f in MODEL.iterdir():
        if f.name not in own:
            (where / f.name).symlink_to(f)
    return where


def kill(s):
    if s.process.poll() is None:
        s.process.kill()
        s.process.wait()


PIPES = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "preprocessor_config.json", "chat_template.jinja",
         "model.safetensors", "model.safetensors.index.json", "model-mtp.safetensors"]


@pytest.mark.smoke
def test_what_is_no_file_is_refused_by_name(tmp_path):
    for i, name in enumerate(PIPES):
        os.mkfifo(a_model(tmp_path / f"m{i}", name) / name)
    os.mkdir(a_model(tmp_path / "folder", "model.safetensors") / "model.safetensors")
    s = Files("--model-dir", tmp_path, "--load-timeout", 30)
    try:
        for i, name in enumerate(PIPES):
            reply = s.ask(f"m{i}")
            assert reply.status_code == 503 and f"{name} is a pipe, not a regular file" in reply.text, (name, reply.text)
        assert "model.safetensors is a directory, not a regular file" in s.ask("folder").text
        s.goes_on()
        assert s.stop() == 0
    finally:
        kill(s)


@pytest.mark.smoke
def test_files_that_shrink_at_any_time(tmp_path):
    """The load fails with a message, or ends before the damage. The ledger is as before. The same model
    loads when its file is whole again."""
    rng = random.Random(int(os.environ.get("SEED", 5)))
    whole = (MODEL / "model.safetensors").resolve()
    weights = a_model(tmp_path / "cut", "model.safetensors") / "model.safetensors"
    size = whole.stat().st_size
    shutil.copy(whole, weights)
    s = Files("--model-dir", tmp_path)
    failed = 0
    try:
        began = time.monotonic()
        assert s.load("cut").status_code == 200
        took = time.monotonic() - began
        assert s.http.post("/v1/models/cut/unload").status_code == 200
        before, threads, fds = settled(s), len(os.listdir(f"/proc/{s.process.pid}/task")), len(os.listdir(f"/proc/{s.process.pid}/fd"))
        for i in range(TRUNCATIONS):
            shutil.copy(whole, weights)
            delay, rest = took * rng.random(), int(size * rng.random() ** 2)
            cut = threading.Timer(delay, os.truncate, (weights, rest))
            cut.start()
            if i == 0:  # before the load begins: this one fails, however fast or slow the others are
                cut.join()
            reply = s.load("cut")
            cut.join()
            assert reply.status_code in (200, 409), reply.text
            if reply.status_code == 409:
                failed += 1
                assert re.search(r"became shorter|was changed|truncated|is empty|not a safetensors file", reply.text), reply.text
            else:
                assert s.http.post("/v1/models/cut/unload").status_code == 200
            s.goes_on()
        all_returned(s, before)
        check_ledger(s.memory())
        assert len(os.listdir(f"/proc/{s.process.pid}/task")) == threads
        assert len(os.listdir(f"/proc/{s.process.pid}/fd")) <= fds + 1
        assert failed > 0
        shutil.copy(whole, weights)
        assert s.load("cut").status_code == 200
        assert s.stop() == 0
    finally:
        kill(s)


def stalling(directory, *options):
    s = Stalling("--model-dir", directory, "--drain", 1, *options)
    s.goes_on()
    return s


@pytest.fixture
def hanging(tmp_path):
    """Models h0 to h5 whose weights lie apart, and `sound` beside them."""
    for i in range(6):
        shutil.copy((MODEL / "model-mtp.safetensors").resolve(), a_model(tmp_path / f"h{i}", "model-mtp.safetensors"))
    a_model(tmp_path / "sound")
    return tmp_path


@pytest.mark.parametrize("file", ["model-mtp.safetensors"])
def test_a_load_that_hangs_is_named_and_left_behind(hanging, file):
    s = stalling(hanging, "--load-timeout", 4)
    try:
        s.order(f"stall h0/{file}")
        reply = s.ask("h0")
        assert reply.status_code == 503 and reply.json()["error"]["code"] == "model_loading", reply.text
        assert "h0 was not loaded within 4 s (--load-timeout)" in reply.text and "It made no progress for" in reply.text, reply.text
        until(lambda: s.said("event=load_hangs model=h0"))
        s.goes_on()
        until(lambda: s.load("sound").status_code == 200)
        began = time.monotonic()
        assert s.stop() == 0
        assert time.monotonic() - began < 25
        s.says("event=load_left model=h0")
        # The models that did not hang were closed.
        s.says("event=model_unloaded model=sound")
        s.says(f"event=model_unloaded model={SERVED}")
    finally:
        kill(s)


def test_a_load_that_hangs_and_goes_on_leaves_nothing(hanging):
    s = stalling(hanging, "--load-timeout", 2)
    try:
        before = settled(s)
        s.order("stall h0/model-mtp")
        assert s.ask("h0").status_code == 503
        s.order("flow")
        until(lambda: s.state("h0") == "unloaded")
        all_returned(s, before)
        until(lambda: s.load("h0").status_code == 200)  # a busy machine may need longer than --load-timeout
        assert s.stop() == 0
        assert not s.said("event=load_left")
    finally:
        kill(s)


def test_a_load_that_was_ordered_outlives_its_client(hanging):
    s = stalling(hanging)
    try:
        s.order("stall h0/model-mtp")
        with Open(s, "/v1/models/h0/load", {}, key=ADMIN_KEY):
            until(lambda: s.state("h0") == "loading")
        # Requests that wait for it come and go.
        with Open(s, "/v1/completions", {"model": "h0", "prompt": [1], "max_tokens": 1}):
            until(lambda: s.requests("loading"))
        until(lambda: s.requests("loading") == [])
        s.says('action="POST /v1/models/h0/load" status=202 result=goes_on')
        assert s.state("h0") == "loading"
        s.order("flow")
        until(lambda: s.state("h0") == "ready")
        assert s.stop() == 0
    finally:
        kill(s)


def test_a_load_is_stopped_by_order(hanging):
    s = stalling(hanging)
    try:
        before = settled(s)
        s.order("stall h0/model-mtp")
        answers = {}
        waiting = {name: threading.Thread(target=lambda name=name, work=work: answers.update({name: work()}))
                   for name, work in {"load": lambda: s.load("h0"), "ask": lambda: s.ask("h0"),
                                      "stop": lambda: s.http.post("/v1/models/h0/unload")}.items()}
        for name in ("load", "ask"):
            waiting[name].start()
        until(lambda: len(s.requests("loading")) == 2)
        waiting["stop"].start()
        s.order("flow")
        for thread in waiting.values():
            thread.join()
        assert answers["stop"].status_code == 200 and answers["stop"].json()["bytes_returned"] == 0
        for name, status in {"load": 409, "ask": 503}.items():
            assert answers[name].status_code == status and "administrator stopped its load" in answers[name].text, answers[name].text
        s.says("event=load_stopped model=h0")
        all_returned(s, before)
        assert s.load("h0").status_code == 200
        assert s.stop() == 0
    finally:
        kill(s)


def test_loads_that_hang_keep_no_other_waiting(hanging):
    """More of them than there are places."""
    s = stalling(hanging, "--load-timeout", 2)
    try:
        s.order("stall /model-mtp")  # others' weights lie apart; the bundled one is loaded
        waiting = [threading.Thread(target=s.ask, args=(f"h{i}",)) for i in range(4)]
        for t in waiting:
            t.start()
        until(lambda: [s.state(f"h{i}") for i in range(4)] == ["loading"] * 4)
        reply = s.ask("h4")
        assert reply.status_code == 503, reply.text
        for t in waiting:
            t.join()
        until(lambda: all(s.said(f"event=load_hangs model=h{i}") for i in range(4)))
        s.order("stall /h")  # the others' files answer
        until(lambda: s.load("sound").status_code == 200)
        s.goes_on()
        assert s.stop() == 0
    finally:
        kill(s)


def test_a_failed_load_whose_drive_hangs_later_keeps_no_request(hanging):
    """Its files are asked whether they have changed: by its load, and by no thread that others need."""
    (hanging / "h1/config.json").unlink()
    (hanging / "h1/config.json").write_text("{}")
    s = stalling(hanging, "--load-timeout", 30)
    try:
        texts = [s.ask("h1").text for _ in range(3)]
        assert all("model_type" in t and "h1 could not be loaded" in t for t in texts), texts
        s.goes_on()
        assert s.stop() == 0
    finally:
        kill(s)


def test_a_drain_does_not_wait_for_a_load_that_hangs(hanging):
    s = stalling(hanging, "--load-timeout", 60)
    try:
        s.order("stall h0/model-mtp")
        got = []
        waiting = threading.Thread(target=lambda: got.append(s.ask("h0")))
        waiting.start()
        s.order("stalled")
        began = time.monotonic()
        s.process.terminate()
        assert s.process.wait(30) == 0
        assert time.monotonic() - began < 25  # 1 s of the drain, 5 for the load
        waiting.join()
        s.reader.join(5)
        assert got[0].status_code == 503 and got[0].json()["error"]["code"] == "shutting_down"
        s.says("event=load_left model=h0")
    finally:
        kill(s)


def test_a_named_model_that_hangs_ends_the_start(hanging):
    """Its failure is the server's, as that of any model that is named."""
    s = Stalling(hanging / "h0", "--load-timeout", 1, wait=False)
    try:
        assert s.port
        s.order("stall h0/model-mtp")  # or it was quicker: then it serves
        until(lambda: s.process.poll() is not None or s.said("event=ready"), every=0.1)
        if s.process.poll() is not None:
            assert s.wait() == 1
            s.says("event=load_hangs model=h0")
            s.says("event=load_left model=h0")
        else:
            s.order("flow")
            assert s.stop() == 0
    finally:
        kill(s)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_that_waits_for_a_file(hanging, number):
    """Files are looked at before there is a server."""
    p = subprocess.Popen([FAULTY, "stall=h0/model-mtp", "serve", "--model-dir", hanging, "--port", "0"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        p.stdin.write(b"stalled\n")
        p.stdin.flush()
        assert p.stdout.readline().startswith(b"ok")
        p.send_signal(number)
        assert p.wait(10) == -number
    finally:
        p.kill()
        p.communicate()
