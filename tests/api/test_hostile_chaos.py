"""A hostile machine, at random moments: a process that stands still, signals, descriptors and address
space that run out, and a disk that is full, gone or replaced. Requests end with a message, the process
lives, and no token changes."""

import collections
import contextlib
import os
import pathlib
import resource
import signal
import threading
import time

import pytest

from conftest import Open, Server, serving, until
from hostile import SANITIZED, Answer, answer_ids, check_answer, connect, draws, unharmed
from test_ssd import serving_from

STREAM = {"prompt": [64, 271, 1000, 512], "max_tokens": 60, "ignore_eos": True, "temperature": 0, "stream": True, "return_token_ids": True}


class Crowd:
    """Clients that ask in a loop; their answers are checked when they are stopped."""

    def __init__(self, server, rng, count=4, may_be_cut=False):
        self.may_be_cut = may_be_cut
        self.server, self.over, self.errors, self.whole, self.said = server, threading.Event(), [], 0, set()
        self.clients = [threading.Thread(target=self.ask_again_and_again, args=(rng.random(),)) for _ in range(count)]
        for t in self.clients:
            t.start()

    def ask_again_and_again(self, patience):
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                with Open(self.server, "/v1/completions", STREAM) as request:
                    if number % 5 == 0:
                        time.sleep(patience * 0.05)
                        continue
                    reply = request.answer()
                    if reply.status != 200:
                        check_answer(Answer(reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()), False)
                        continue
                    self.read(request)
            except OSError:
                pass  # no descriptor was left for it, or it was not taken in time
            except Exception as e:
                self.errors.append(repr(e))
                return

    def read(self, request):
        ids, last = [], None
        for event in request.events():
            last = event
            if event != "[DONE]" and "choices" in event:
                ids += [i for c in event["choices"] for i in c.get("token_ids") or []]
        if last == "[DONE]":
            self.whole += 1
            self.said.add(tuple(ids))
        elif not self.may_be_cut:
            assert last and "error" in last, last

    def __enter__(self):
        return self

    def __exit__(self, *_):
        before, end = self.whole, time.monotonic() + 60
        # The fault is over: they are served again.
        while self.whole == before and not self.errors and time.monotonic() < end:
            time.sleep(0.02)
        self.over.set()
        for t in self.clients:
            t.join()
        assert not self.errors, self.errors
        assert len(self.said) == 1 and self.whole > before, (self.said, self.whole, before)


@pytest.mark.smoke
@pytest.mark.hostile
def test_it_stands_still_and_goes_on(server):
    """SIGSTOP and SIGCONT under load, and signals that mean nothing to it."""
    with unharmed(server):
        for _, rng in draws("stopped", 2):
            with Crowd(server, rng):
                for _ in range(8):
                    time.sleep(rng.random() * 0.2)
                    if rng.random() < 0.6:
                        server.process.send_signal(signal.SIGSTOP)
                        time.sleep(rng.random() * 0.6)
                        server.process.send_signal(signal.SIGCONT)
                    else:
                        server.process.send_signal(rng.choice([signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT, signal.SIGHUP, signal.SIGCHLD]))


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


@pytest.mark.hostile
def test_descriptors_run_out_and_come_back(server):
    """The limit falls below, at or just above the open descriptors; connected clients are served anyway."""
    with unharmed(server):
        usual = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        for _, rng in draws("descriptors", 4):
            with Crowd(server, rng, 3), contextlib.ExitStack() as stack:
                time.sleep(0.1)
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (max(8, descriptors(server) + rng.randint(-3, 4)), usual[1]))
                for _ in range(rng.randint(0, 12)):
                    s = stack.enter_context(connect(server))
                    s.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"[:rng.randint(0, 50)])
                time.sleep(0.2)
                used = sum(map(int, pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
                resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, usual)
                assert used > 0
            until(lambda: server.http.get("/health").status_code == 200, 30)


def cpu_seconds(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def free_descriptor(server):
    """The lowest one that is not open."""
    used = {int(fd) for fd in os.listdir(f"/proc/{server.process.pid}/fd")}
    return min(set(range(len(used) + 1)) - used)


@contextlib.contextmanager
def without_descriptors(server):
    """Its limit of open files is what is open, and no connection is."""
    usual = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    server.http.close()
    # The last connection closes within moments.
    limit = min((time.sleep(0.02), free_descriptor(server))[1] for _ in range(25))
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, usual[1]))
    yield
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, usual)


@pytest.mark.smoke
def test_without_descriptors_it_refuses_and_rests():
    """Each client is told why it cannot be served, and no thread spins meanwhile."""
    server = Server()
    try:
        with without_descriptors(server), contextlib.ExitStack() as stack:
            for _ in range(20):
                s = stack.enter_context(connect(server))
                answer = s.makefile("rb").read()
                assert answer.startswith(b"HTTP/1.1 503 ") and b"no_descriptors" in answer, answer
            before, began = cpu_seconds(server), time.monotonic()
            time.sleep(1)
            used = (cpu_seconds(server) - before) / (time.monotonic() - began)
            assert used < 0.3, f"{used:.0%} of a core"
        with connect(server) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert s.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
        server.says("event=accept_failed")
    finally:
        assert server.stop() == 0


@pytest.mark.hostile
@pytest.mark.skipif(SANITIZED, reason="the sanitizer's shadow is most of the address space")
def test_address_space_runs_out_and_comes_back():
    """The system refuses mappings that the ledger has granted."""
    with serving("--host-cache", "32M") as server:
        with unharmed(server):
            for _, rng in draws("address space", 4):
                size = int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
                with Crowd(server, rng, 3, may_be_cut=True):  # no memory is left for the error either
                    statuses = collections.Counter()
                    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (size + rng.choice([0, 1 << 16, 1 << 20, 8 << 20]), resource.RLIM_INFINITY))
                    until_then = time.monotonic() + 0.4
                    while time.monotonic() < until_then:
                        body = rng.choice([{"prompt": "word " * rng.choice([10, 1000, 20000]), "max_tokens": 1}, {"prompt": [5] * rng.choice([100, 3000]), "max_tokens": 2, "n": 3}])
                        status = server.post("/v1/completions", **body).status_code
                        statuses[status] += 1
                        assert status in (200, 400, 413, 429, 503, 507), status
                    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                    print(statuses)
                until(lambda: server.http.get("/health").status_code == 200, 30)


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's heap is most of the data")
def test_a_prompt_beyond_a_limit_of_the_process_ends():
    """RLIMIT_DATA refuses the next page: no other program can give it back, so the request does not wait."""
    with serving("--host-cache", "0") as server:
        body = {"prompt": [5] * 5000, "max_tokens": 2}
        assert server.post("/v1/completions", prompt=[5], max_tokens=2).status_code == 200
        data = int(pathlib.Path(f"/proc/{server.process.pid}/status").read_text().split("VmData:")[1].split()[0]) << 10
        resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (data + (4 << 20), resource.RLIM_INFINITY))
        reply = server.post("/v1/completions", **body)
        assert reply.status_code == 500 and "no memory for the KV cache" in reply.json()["error"]["message"], reply.text
        assert not server.said("event=memory_taken")
        resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert server.post("/v1/completions", **body).status_code == 200


def spoil(rng, server, directory):
    """Something that happens to a directory while a server writes there."""
    files = [p for p in directory.rglob("*") if p.is_file() and not p.is_symlink()]
    file = rng.choice(files) if files else None

    def away():
        with contextlib.suppress(OSError):
            os.rename(directory, directory.with_name(f"was-{rng.random()}"))

    def cut():
        if file:
            with contextlib.suppress(OSError):
                os.truncate(file, rng.randrange(file.stat().st_size + 1))

    def scribble():
        if file:
            with contextlib.suppress(OSError), open(file, "r+b") as f:
                f.seek(rng.randrange(max(1, file.stat().st_size)))
                f.write(rng.randbytes(20))

    def other():
        if file:
            with contextlib.suppress(OSError):
                file.unlink()
                rng.choice([file.mkdir, lambda: os.mkfifo(file), lambda: file.symlink_to("/dev/zero"), lambda: file.write_bytes(b"")])()

    def beside():
        with contextlib.suppress(OSError):
            (directory / rng.choice(["x", "0", "0/0", ".lock", "a/" + "b" * 65])).write_bytes(rng.randbytes(10))

    def full():
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (rng.choice([0, 100, 4096, 65536]), resource.RLIM_INFINITY))

    def roomy():
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def shut_off():
        with contextlib.suppress(OSError):
            directory.chmod(rng.choice([0, 0o500, 0o700]))

    rng.choice([away, cut, cut, scribble, scribble, other, other, beside, full, full, roomy, shut_off])()


@pytest.mark.hostile
def test_a_disk_that_goes_wrong_costs_hits_only(tmp_path):
    """The directory and its files are spoiled between and during requests; the same prompts have the same
    answers."""
    for number, rng in draws("disk", 1):
        directory = tmp_path / f"ssd-{number}"
        with serving_from(directory, "--ssd-limit", "8M", "--host-cache", "8M") as server:
            prompts = [[rng.randrange(300, 4000) for _ in range(rng.choice([40, 100, 300]))] for _ in range(4)]
            said = [answer_ids(server, prompt=p) for p in prompts]
            for _ in range(16):
                spoiling = threading.Timer(rng.random() * 0.02, spoil, (rng, server, directory))
                spoiling.start()
                if rng.random() < 0.4:
                    assert server.http.post("/api/hot-cache/clear").json()["failed"] == []
                which = rng.randrange(len(prompts))
                assert answer_ids(server, prompt=prompts[which]) == said[which]
                spoiling.join()
                time.sleep(rng.random() * 0.05)
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            assert server.process.poll() is None
        # Another server's files there change nothing either.
        if directory.is_dir():
            directory.chmod(0o700)
            with serving_from(directory, "--host-cache", "8M") as server:
                assert [answer_ids(server, prompt=p) for p in prompts] == said


@pytest.mark.hostile
def test_it_ends_well_at_any_moment():
    """SIGTERM, some other signals before it and perhaps a second one, while streams run and bodies come."""
    for _, rng in draws("ends", 3):
        s = Server("--drain", rng.choice([0, 1]))
        try:
            with contextlib.ExitStack() as stack:
                for _ in range(6):
                    with contextlib.suppress(OSError):
                        Open(s, "/v1/completions", {**STREAM, "max_tokens": 2000}, receive_bytes=4096)
                    half = stack.enter_context(connect(s))
                    half.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n{"[:rng.randrange(80)])
                time.sleep(rng.random() * 0.3)
                for _ in range(rng.randrange(4)):
                    s.process.send_signal(rng.choice([signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE]))
                s.process.terminate()
                if rng.random() < 0.3:
                    time.sleep(rng.random() * 0.2)
                    s.process.terminate()
                assert s.process.wait(30) in (0, -signal.SIGTERM)
        finally:
            if s.process.poll() is None:
                s.process.kill()
            s.process.wait()
            s.http.close()
