"""The shared cache: servers with own copies of a model find what another one computed. A store that is
damaged or gone costs hits only."""

import contextlib
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import MODEL, PROGRAM, Server, ends_well, until
from test_ssd import answer, prompt_of

PAGE = 32
PASSWORD = "a-password-of-redis"


class Copy(Server):
    """A server of a copy of the model."""

    def __init__(self, model, *options, **more):
        self.model = model
        super().__init__(*options, **more)

    def arguments(self):
        return [str(self.model)]


def shared(server):
    return server.status()["caches"]["shared"]


@contextlib.contextmanager
def serving(model, address, *options):
    s = Copy(model, "--shared-cache", address, *options)
    with ends_well(s):
        until(lambda: not shared(s)["off"])
        yield s


@pytest.fixture(name="models", scope="module")
def two_copies(tmp_path_factory):
    """Two copies of the model; the second one has other time stamps."""
    copies = [tmp_path_factory.mktemp("models") / str(i) / "canary" for i in range(2)]
    for to in copies:
        shutil.copytree(MODEL, to, copy_function=shutil.copyfile)
    return copies


@pytest.fixture(name="secret")
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("a secret that all servers of the fleet have\n")
    path.chmod(0o600)
    return path


def values(directory):
    return sorted(p for p in directory.glob("?/?/*") if len(p.name) == 65)


def test_a_second_server_reads_what_the_first_one_left(models, secret, tmp_path):
    store = tmp_path / "kv"
    options = ("--shared-cache-secret-file", str(secret))
    prompt = prompt_of(1, 300)
    whole = 299 // PAGE * PAGE
    # Staging for a part of the entries: the stop waits for room.
    with serving(models[0], f"file://{store}", "--shared-cache-staging", "1M", *options) as a:
        said, found = answer(a, prompt)
        assert found == 0
        assert shared(a)["writes"] == 0  # never every turn
    files = values(store)
    assert len(files) >= whole // PAGE + 1
    with serving(models[1], f"file://{store}", *options) as b:
        assert answer(b, prompt) == (said, whole)
        assert shared(b)["reads"] >= whole // PAGE + 1
        assert b.metrics()["plateau_shared_reads_total"] >= whole // PAGE
    assert values(store) == files  # never twice
    # Another secret finds nothing, and says the same.
    secret.write_text("the secret of another fleet, as long\n")
    with serving(models[1], f"file://{store}", *options) as b:
        assert answer(b, prompt) == (said, 0)
        assert shared(b)["corrupt"] == 0


def test_damaged_values_are_misses_with_the_same_answer(models, secret, tmp_path):
    store = tmp_path / "kv"
    options = ("--shared-cache-secret-file", str(secret))
    prompt = prompt_of(2, 300)
    with serving(models[0], f"file://{store}", *options) as a:
        said, _ = answer(a, prompt)
    for path in values(store):
        with path.open("r+b") as f:
            f.seek(5000)
            byte = f.read(1)
            f.seek(5000)
            f.write(bytes([byte[0] ^ 1]))
    with serving(models[1], f"file://{store}", *options) as b:
        assert answer(b, prompt) == (said, 0)
        assert shared(b)["corrupt"] >= 1
        b.says("shared_cache_error")


@contextlib.contextmanager
def redis(tmp_path, *options):
    """A redis-server with a password, and its process."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", PASSWORD, *options]
    p = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        until(lambda: answers(port))
        yield port, p
    finally:
        p.kill()
        p.wait()


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


needs_redis = pytest.mark.skipif(not shutil.which("redis-server"), reason="redis-server is not installed")


@needs_redis
def test_servers_share_a_redis_which_may_stop_and_die(models, secret, tmp_path):
    options = ("--shared-cache-secret-file", str(secret))
    prompts = [prompt_of(n, 300) for n in range(3, 7)]
    with redis(tmp_path) as (port, process):
        address = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        with serving(models[0], address, *options) as a:
            said = [answer(a, p)[0] for p in prompts]
            assert not a.said(PASSWORD)
            assert PASSWORD not in a.http.get("/api/status").text
        with serving(models[1], address, *options) as b:
            assert answer(b, prompts[0]) == (said[0], 288)
            began = time.monotonic()
            alone = (answer(b, prompt_of(90, 300)), time.monotonic() - began)[1]
            # Half of the computation at most, and what this machine's other work takes.
            process.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            assert answer(b, prompts[1]) == (said[1], 0)
            assert time.monotonic() - began < 2 * alone + 1
            process.kill()
            assert answer(b, prompts[2]) == (said[2], 0)
            until(lambda: shared(b)["off"] and shared(b)["errors"] > 0)
            assert answer(b, prompts[3]) == (said[3], 0)


@needs_redis
def test_a_wrong_password_and_a_full_redis_cost_hits_only(models, secret, tmp_path):
    prompt = prompt_of(8, 300)
    with redis(tmp_path, "--maxmemory", "1500kb", "--maxmemory-policy", "noeviction") as (port, _):
        s = Copy(models[0], "--shared-cache", f"redis://:wrong@127.0.0.1:{port}", "--shared-cache-secret-file", str(secret))
        until(lambda: shared(s)["errors"] > 0)
        said, _ = answer(s, prompt)
        assert shared(s)["off"] and "Permission denied" in shared(s)["reason"]
        assert s.stop() == 0
        with serving(models[1], f"redis://:{PASSWORD}@127.0.0.1:{port}", "--shared-cache-secret-file", str(secret)) as b:
            assert answer(b, prompt) == (said, 0)
        assert b.said("No space left on device")


def test_a_store_that_never_answers_delays_no_request(models, secret):
    with socket.create_server(("127.0.0.1", 0)) as hole:
        address = f"redis://127.0.0.1:{hole.getsockname()[1]}"
        s = Copy(models[0], "--shared-cache", address, "--shared-cache-secret-file", str(secret))
        said, _ = answer(s, prompt_of(9, 300))
        assert answer(s, prompt_of(9, 300))[0] == said
        until(lambda: shared(s)["errors"] > 0)
        assert s.stop() == 0, "".join(s.lines[-20:])


@pytest.mark.parametrize("address", ["redis://10.1.2.3:6379", "rediss://10.1.2.3", "redis://:pass%zz@localhost", "/mnt/kv"])
def test_addresses_that_are_refused_say_why(models, address):
    s = Copy(models[0], "--shared-cache", address, wait=False)
    assert s.wait() != 0
    s.says("--shared-cache")
    assert not s.said("pass%zz")


def test_a_plan_refuses_an_address_that_is_none():
    p = subprocess.run([PROGRAM, "plan", MODEL, "--shared-cache", "redis://:sesame@h:x"], capture_output=True, text=True, timeout=60)
    assert p.returncode != 0 and "--shared-cache: redis://" in p.stderr and "sesame" not in p.stdout + p.stderr
