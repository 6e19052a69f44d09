"""SIGHUP: settings are read again, all of them or none; a setting that cannot change is reported; nothing
is lost on the way."""

import contextlib
import os
import pty
import select
import signal
import subprocess
import threading
import time

import httpx
import pytest

from conftest import MODEL, PROGRAM, Open, Server, refused, serving, until

from test_admin import bearer, field, lines_of, write_keys


LONG = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}


class Configured:
    """A server with a configuration file, and a file of keys that it names."""

    def __init__(self, at, text, **more):
        self.config, self.keys = at / "plateau.ini", at / "keys"
        self.config.write_text(text)
        self.context = serving("--config", self.config, **more)

    def __enter__(self):
        self.server = self.context.__enter__()
        return self

    def __exit__(self, *why):
        return self.context.__exit__(*why)

    def reload(self, text=None, event="reloaded"):
        if text is not None:
            self.config.write_text(text)
        before = len(lines_of(self.server, event))
        self.server.process.send_signal(signal.SIGHUP)
        return until(lambda: lines_of(self.server, event)[before:])[-1]

    def changed(self, event="setting_changed"):
        return {field(line, "name"): (field(line, "from"), field(line, "to")) for line in lines_of(self.server, event)}


@pytest.fixture
def configured(tmp_path):
    with Configured(tmp_path, "max-queue = 8\nstep-ms = 50\nport = 0\n") as c:
        yield c


@pytest.mark.smoke
def test_what_may_change_changes_and_the_rest_is_said(configured):
    line = configured.reload("max-queue = 3\nstep-ms = 20\nlog-level = debug\nmax-num-seqs = 5\nidle-timeout = 7\n")
    assert field(line, "reloads") == "1"
    changed = configured.changed()
    assert changed == {"max-queue": ("8", "3"), "step-ms": ("50", "20"), "log-level": ("", "debug"),
                       "idle-timeout": ("60", "7")}
    assert configured.changed("setting_needs_restart") == {"max-num-seqs": ("0", "5")}
    assert configured.server.complete("a", max_tokens=2).status_code == 200
    until(lambda: configured.server.said("level=debug"))
    configured.reload("max-queue = 8\nstep-ms = 50\n")  # and back: a setting without a line has its default
                                                        # again
    assert configured.changed()["log-level"] == ("debug", "")
    configured.reload("host-cache = 64M\n")
    assert configured.changed("setting_needs_restart")["host-cache"] == ("", str(64 << 20))


@pytest.mark.smoke
def test_a_mistake_changes_nothing(configured):
    for text in ["max-queue = many\n", "no-such = 1\n", "max-queue = 4\nqueue-timeout = -1\n", "what\n",
                 "log-level = loud\n", "max-queue = 4\napi-key-file = /none\n", "max-queue = 4\ntrim = perhaps\n"]:
        line = configured.reload(text, "reload_failed")
        assert field(line, "error")
    configured.config.unlink()
    configured.reload(None, "reload_failed")
    assert configured.changed() == {}
    assert configured.server.complete("a", max_tokens=2).status_code == 200
    configured.config.mkdir()
    configured.reload(None, "reload_failed")
    configured.config.rmdir()
    os.mkfifo(configured.config)
    configured.reload(None, "reload_failed")


@pytest.mark.smoke
def test_the_queue_takes_what_was_said_last(tmp_path):
    with Configured(tmp_path, "max-queue = 2\nmax-num-seqs = 1\n") as c:
        s = c.server
        with s.begin(stream=False):
            until(lambda: s.requests("decoding"))
            c.reload("max-queue = 1\nmax-num-seqs = 1\n")
            with s.begin(stream=False):
                until(lambda: s.requests("queued"))
                refused(s.complete("a", max_tokens=1), 429, "queue_full", "1 places")
                c.reload("max-queue = 2\nmax-num-seqs = 1\n")
                with s.begin(stream=False):
                    until(lambda: len(s.requests("queued")) == 2)
                    c.reload("max-queue = 9\nmax-num-seqs = 1\n")  # more than there was room made for
                    assert c.changed("setting_needs_restart")["max-queue"] == ("2", "9")
                    refused(s.complete("a", max_tokens=1), 429, "queue_full", "2 places")
                    # a waiting request gets the new limit too
                    c.reload("max-queue = 2\nmax-num-seqs = 1\nqueue-timeout = 1\n")
                    until(lambda: not s.requests("queued"))
            assert len(s.requests("decoding")) == 1


def test_limits_of_requests_and_bodies(configured):
    s = configured.server
    configured.reload("max-body-bytes = 2K\nmax-tokens-default = 3\n")
    refused(s.complete("a" * 5000), 413, "body_too_large", "2048")
    assert s.chat().json()["usage"]["completion_tokens"] <= 3
    configured.reload("max-requests = 1\n")
    with s.begin() as running:
        running.event()
        refused(s.complete("a"), 429, "too_many_requests", "1 requests")
    s.wait_idle()
    assert s.complete("a" * 5000, max_tokens=1).status_code == 200


@pytest.mark.smoke
def test_keys_come_and_go(tmp_path):
    keys = write_keys(tmp_path / "keys", "alice sk-alice-1\nbob sk-bob-1\n")
    text = f"api-key-file = {keys}\nadmin-key = sk-root-1\n"
    with Configured(tmp_path, text, key="sk-root-1") as c:
        s = c.server

        def status(key):
            return httpx.get(s.url + "/v1/models", headers=bearer(key)).status_code

        with Open(s, "/v1/completions", LONG, key="sk-bob-1") as running:
            running.event()
            write_keys(keys, "carol sk-carol-1\nalice sk-alice-2\n")
            assert field(c.reload(), "api_keys") == "2"
            assert running.event()  # running requests are finished
        assert [status(k) for k in ("sk-alice-1", "sk-bob-1", "sk-alice-2", "sk-carol-1")] == [401, 401, 200, 200]
        write_keys(keys, "")
        assert "no key" in c.reload(None, "reload_failed")
        assert status("sk-alice-2") == 200
        # without any key it is this machine's only, and guards itself against pages
        c.reload("log-level = info\n")
        assert httpx.get(s.url + "/v1/models").status_code == 200
        assert httpx.get(s.url + "/v1/models", headers={"host": "evil.example"}).status_code == 403
        write_keys(keys, "dora sk-dora-1\n")
        c.reload(text + "api-key = sk-again-1\n")
        assert [status(k) for k in (None, "sk-again-1", "sk-dora-1")] == [401, 200, 200]
        assert not [line for line in s.lines if "sk-" in line]


def test_whose_request_it_is_survives_a_reload(tmp_path):
    keys = write_keys(tmp_path / "keys", "alice sk-alice-1\nbob sk-bob-1\n")
    with Configured(tmp_path, f"api-key-file = {keys}\nadmin-key = sk-root-1\n", key="sk-root-1") as c:
        s = c.server
        with Open(s, "/v1/completions", LONG, key="sk-alice-1") as running:
            running.event()
            write_keys(keys, "bob sk-bob-1\nalice sk-alice-2\n")
            c.reload()
            [request] = s.requests()
            assert request["key"] == "alice"
            path = f"{s.url}/v1/requests/{request['id']}"
            assert httpx.delete(path, headers=bearer("sk-bob-1")).status_code == 404
            assert httpx.delete(path, headers=bearer("sk-alice-2")).status_code == 200


def test_the_door_stays_shut(tmp_path):
    """Beyond loopback a reload may not take the last key away."""
    with Configured(tmp_path, "host = 0.0.0.0\napi-key = sk-1\nadmin-key = sk-root-1\n", key="sk-root-1") as c:
        assert "--api-key" in c.reload("host = 0.0.0.0\nadmin-key = sk-root-1\n", "reload_failed")
        assert httpx.get(c.server.url + "/v1/models").status_code == 401
        c.reload("host = 0.0.0.0\nadmin-key = sk-root-1\nallow-open = yes\n")
        assert httpx.get(c.server.url + "/v1/models").status_code == 200


def test_a_hundred_reloads_take_nothing(tmp_path):
    keys = write_keys(tmp_path / "keys", "".join(f"user{i} sk-user-{i}\n" for i in range(200)))
    text = f"api-key-file = {keys}\nadmin-key = sk-root-1\nalias = canary\n"
    with Configured(tmp_path, text, key="sk-root-1") as c:
        for i in range(20):
            c.reload()
        descriptors = len(os.listdir(f"/proc/{c.server.process.pid}/fd"))
        before = c.server.memory()["system"]["rss_anon_bytes"]
        for i in range(100):
            c.reload(text + f"max-queue = {i + 1}\n")
        after = c.server.memory()["system"]
        # A sanitizer keeps freed memory, and has no figure for the heap.
        assert after["rss_anon_bytes"] - before < 1 << 20 or after["heap_bytes"] == 0
        # The last question's connection may be closing yet.
        until(lambda: len(os.listdir(f"/proc/{c.server.process.pid}/fd")) == descriptors)


def test_keys_are_not_in_the_list_of_processes():
    with serving("--api-key", "sk-alice-0123", "--admin-key=sk-root-0123", key="sk-root-0123") as s:
        with open(f"/proc/{s.process.pid}/cmdline", "rb") as f:
            words = f.read().split(b"\0")
        assert b"--api-key" in words and not [w for w in words if b"sk-" in w]
        s.process.send_signal(signal.SIGHUP)  # and settings are read again anyway
        until(lambda: lines_of(s, "reloaded"))
        assert httpx.get(s.url + "/v1/models", headers=bearer("sk-alice-0123")).status_code == 200
        assert httpx.get(s.url + "/v1/models").status_code == 401


def test_keys_of_the_command_line_are_not_in_memory():
    """Neither at the start nor after a reload, in both forms of an option. The keys open their doors."""
    doors = {"sk-alice-4711": "/v1/models", "sk-series-4711": "/metrics", "sk-spare-4711": "/api/memory"}
    options = ["--api-key", "sk-alice-4711", "--metrics-key", "sk-series-4711", "--admin-key=sk-spare-4711"]
    with serving(*options, "--admin-key", "sk-root-4711", key="sk-root-4711") as s:
        assert [key for key in doors if in_memory(s.process.pid, key.encode())] == []
        s.process.send_signal(signal.SIGHUP)
        until(lambda: lines_of(s, "reloaded"))
        assert lines_of(s, "setting_changed") == lines_of(s, "setting_needs_restart") == []
        assert [key for key in doors if in_memory(s.process.pid, key.encode())] == []
        for key, path in doors.items():
            assert httpx.get(s.url + path, headers=bearer(key)).status_code == 200, path
        assert httpx.get(s.url + "/v1/models", headers=bearer("sk-alice-4712")).status_code == 401


def in_memory(pid, text):
    """True if the private memory of the process contains the bytes."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            first, last = (int(x, 16) for x in span.split("-"))
            if mode.startswith("rw"):
                with contextlib.suppress(OSError):
                    memory.seek(first)
                    if text in memory.read(last - first):
                        return True
    return False


def test_keys_are_hidden_before_a_pipe_of_keys_is_read(tmp_path):
    """The server waits for the pipe's writer; its command line has no key by then."""
    pipe = tmp_path / "keys"
    os.mkfifo(pipe)
    command = [PROGRAM, "serve", MODEL, "--port", "0", "--api-key", "sk-alice-0123", "--admin-key-file", pipe]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        descriptor = until(lambda: opened_to_write(pipe))
        with open(f"/proc/{server.pid}/cmdline", "rb") as f:
            words = f.read().split(b"\0")
        server.kill()
    os.close(descriptor)
    assert b"--api-key" in words and not [w for w in words if b"sk-" in w]


def opened_to_write(pipe):
    """A descriptor, or None while nothing reads the pipe."""
    with contextlib.suppress(OSError):
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    return None


def test_a_reload_while_it_drains_changes_nothing():
    s = Server("--drain", 600)
    with s.begin(max_tokens=400) as running:
        running.event()
        s.process.send_signal(signal.SIGTERM)
        until(lambda: lines_of(s, "stopping"))
        s.process.send_signal(signal.SIGHUP)
        assert list(running.events())[-1] == "[DONE]"
    assert s.wait() == 0
    assert not lines_of(s, "reloaded")


def on_a_terminal(*command):
    """The command as the leader of a terminal of its own; and the terminal's other end, which ends it when
    closed."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
                               preexec_fn=lambda: os.close(os.open(os.ttyname(follower), os.O_RDWR)))
    os.close(follower)
    return process, leader


def read_until(fd, words):
    """The terminal shows these words within 30 s."""
    text, end = b"", time.monotonic() + 30
    while words not in text:
        assert select.select([fd], [], [], max(0, end - time.monotonic()))[0], text
        text += os.read(fd, 4096)


def test_it_ends_with_its_terminal():
    process, terminal = on_a_terminal(PROGRAM, "serve", str(MODEL), "--port", "0", "--log-format", "text")
    read_until(terminal, b"event=ready")
    process.send_signal(signal.SIGHUP)  # sent by a user: the terminal still exists
    read_until(terminal, b"event=reloaded")
    os.close(terminal)
    assert process.wait(20) == 0


def test_unless_it_was_told_to_stay_as_nohup_does():
    process, terminal = on_a_terminal("sh", "-c", 'trap "" HUP; exec "$0" "$@"', PROGRAM, "serve", str(MODEL),
                                      "--port", "0", "--log-format", "text")
    try:
        read_until(terminal, b"event=ready")
        os.close(terminal)
        time.sleep(1)
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_the_environment_file_is_read_again(tmp_path):
    env = write_keys(tmp_path / "env", "PLATEAU_MAX_QUEUE=4\nPLATEAU_STEP_MS=50\nOTHER=1\n")
    with Configured(tmp_path, f"max-queue = 8\nenv-file = {env}\n") as c:
        write_keys(env, "PLATEAU_MAX_QUEUE='2'\n")
        c.reload()
        assert c.changed() == {"max-queue": ("4", "2"), "step-ms": ("50", "100")}
        write_keys(env, "PLATEAU_MAX_QUEUE=$HOME\n")
        assert "line 1" in c.reload(None, "reload_failed")
        env.unlink()
        assert str(env) in c.reload(None, "reload_failed")


def test_a_models_section_needs_a_restart(tmp_path):
    with Configured(tmp_path, "[model canary]\nttl = 900\n") as c:
        c.reload("[model canary]\nttl = 900\n")
        assert c.changed("setting_needs_restart") == {}
        c.reload("[model canary]\nttl = 901\n[model new]\nttl = 1\n")
        told = c.changed("setting_needs_restart")
        assert told == {"model:canary": ("as it was", "as it is"), "model:new": ("none", "as it is")}
        c.reload("")
        assert c.changed("setting_needs_restart")["model:canary"] == ("as it was", "none")
        c.reload("[model canary]\nttl = soon\n", "reload_failed")


def test_prefixes_belong_to_the_keys_owner(tmp_path):
    """Another owner's request finds nothing; the same owner's with a new key does."""
    keys = write_keys(tmp_path / "keys", "alice sk-alice-1\nbob sk-bob-1\nsk-carol-1\n")
    with Configured(tmp_path, f"api-key-file = {keys}\nadmin-key = sk-root-1\n", key="sk-root-1") as c:

        def cached(key):
            body = {"prompt": [7 + i % 90 for i in range(200)], "max_tokens": 1}
            reply = httpx.post(c.server.url + "/v1/completions", json=body, headers=bearer(key), timeout=60)
            return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert [cached(k) for k in ("sk-alice-1", "sk-bob-1", "sk-carol-1", "sk-root-1")] == [0, 0, 0, 0]
        assert all(cached(k) >= 192 for k in ("sk-alice-1", "sk-bob-1", "sk-carol-1", "sk-root-1"))
        write_keys(keys, "sk-carol-1\nbob sk-bob-1\nalice sk-alice-2\ndora sk-alice-1\n")
        c.reload()
        assert all(cached(k) >= 192 for k in ("sk-alice-2", "sk-bob-1", "sk-carol-1"))
        assert cached("sk-alice-1") == 0  # it is dora's now


def test_a_pipe_of_keys_is_read_once_and_kept_over_reloads(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("alice sk-alice\n# none\nsk-other\n",))
    writer.start()
    try:
        with Configured(tmp_path, f"api-key-file = {pipe}\nadmin-key-file = {pipe}\nport = 0\n", key="sk-alice") as c:
            writer.join(10)
            for reloads in ["1", "2"]:
                assert c.server.http.get("/v1/models").status_code == 200
                line = c.reload()
                assert (field(line, "api_keys"), field(line, "admin_keys"), field(line, "reloads")) == ("2", "2", reloads)
                assert not in_memory(c.server.process.pid, b"sk-other")
            assert httpx.get(c.server.url + "/v1/models", headers=bearer("sk-none")).status_code == 401
            os.mkfifo(tmp_path / "second")
            line = c.reload(f"api-key-file = {tmp_path}/second\n", "reload_failed")
            assert "second is a pipe: pipes are read at the start only" in line
            assert c.server.http.get("/v1/models").status_code == 200
    finally:
        writer.join(10)


@pytest.mark.parametrize("said, words", [("printf ''", "key"), ("printf 'a b c'", "line 1"), ("head -c 2000000 /dev/zero", "more than 1048576 bytes")])
def test_a_pipe_without_keys_is_refused(said, words):
    script = f'exec "$0" serve --port 0 --api-key-file <({said})'
    got = subprocess.run(["bash", "-c", script, PROGRAM], capture_output=True, text=True, timeout=20)
    assert got.returncode == 2 and got.stdout == ""
    assert "--api-key-file: " in got.stderr and words in got.stderr and got.stderr.count("\n") == 1, got.stderr
