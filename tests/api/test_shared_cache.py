"""The shared cache: servers with own copies of a model find what another one computed. A store that is
damaged or gone costs hits only."""

import contextlib
import shutil

import pytest

from conftest import MODEL, Server, until
from test_ssd import answer, prompt_of

PAGE = 32


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
    try:
        until(lambda: not shared(s)["off"])
        yield s
        assert s.stop() == 0, "".join(s.lines[-20:])
    finally:
        if s.process.poll() is None:
            s.process.kill()
            s.process.wait()


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
    prompt = prompt_of(1, 1000)
    whole = 999 // PAGE * PAGE
    with serving(models[0], f"file://{store}", *options) as a:
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
