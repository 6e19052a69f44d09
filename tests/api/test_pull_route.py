"""POST /api/models/pull: one pull at a time, in a process of its own, whose memory has an account."""

import os
import pathlib
import random
import resource
import shutil
import socket
import subprocess

import httpx
import pytest

from conftest import ADMIN_KEY, PROGRAM, TOP, Server, account, check_ledger, refused, serving, until
from hub_stand_in import Hub, Model, folder

SMALL = TOP / "tests/golden/data/qwen3"
ROUTE = "/api/models/pull"
KEYS = ("--api-key", "sk-alice-0123", "--admin-key", ADMIN_KEY)


@pytest.fixture
def model():
    files = {n: b for n, b in folder(SMALL).items() if n != "golden.json"}
    return Model(files | {"tokenizer.json": random.Random(1).randbytes(8 << 20)})


@pytest.fixture
def hub(model, tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith(("HF_", "XDG_CACHE"))]:
        monkeypatch.delenv(name)
    with Hub({"acme/small": model}) as hub:
        for name, value in {"HOME": tmp_path, "HF_ENDPOINT": hub.url, "TMPDIR": tmp_path}.items():
            monkeypatch.setenv(name, str(value))
        yield hub


@pytest.fixture
def s(hub):
    with serving("--allow-pull", *KEYS, key=ADMIN_KEY) as s:
        yield s
        until(lambda: account(s.memory(), "pull")["used_bytes"] == 0)
        check_ledger(s.memory())


def state(s):
    reply = s.http.get(ROUTE)
    assert reply.status_code == 200
    assert s.http.get("/api/overview").json()["pull"].keys() == reply.json().keys()
    return reply.json()


def ended(s):
    return until(lambda: state(s)["state"] not in ("running", "cancelling") and state(s), 60, 0.1)


def order(s, name="acme/small", **more):
    return s.http.post(ROUTE, json={"model": name, **more})


def slow(hub, pause):
    hub.faults, hub.pause = (lambda name, part: "slow" if name == "tokenizer.json" else None), pause


def fetching(s):
    def check():
        """bytes of the large file come"""
        now = state(s)
        return now["phase"] == "fetch" and now["bytes"] > 1 << 20 and now
    return until(check, 30, 0.05)


def blobs(home, model):
    top = home / ".cache/huggingface/hub/models--acme--small"
    right = {**{v: k for k, v in model.sums.items()}, **{v: k for k, v in model.git.items()}}
    for blob in (top / "blobs").glob("*") if top.exists() else []:
        if ".plateau." not in blob.name:
            assert blob.read_bytes() == model.files[right[blob.name]]
    return sorted(p.name for p in (top / "snapshots").rglob("*") if p.is_file())


def children(s):
    return [p for p in pathlib.Path("/proc").glob("[0-9]*/stat") if _parent(p) == s.process.pid]


def _parent(stat):
    try:
        return int(stat.read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


@pytest.mark.smoke
def test_a_pull_fills_the_cache_and_gives_its_memory_back(s, hub, model, tmp_path):
    assert state(s) == {"state": "none"}
    slow(hub, 0.1)
    reply = order(s)
    assert reply.status_code == 202 and reply.json()["state"] == "running" and reply.json()["model"] == "acme/small"
    pull = account(s.memory(), "pull")
    assert pull["used_bytes"] == pull["reserved_bytes"] == pull["limit_bytes"] == 64 << 20
    check_ledger(s.memory())
    now = ended(s)
    assert now["state"] == "done" and now["error"] is None and now["commit"] == model.commit
    assert now["bytes"] == now["bytes_total"] <= now["fetched_bytes"] and now["files"] == now["files_total"] == 4
    assert now["plan"]["family"] == "qwen3" and now["plan"]["fits"] is True and now["plan"]["floor_bytes"] > 0
    assert "model.safetensors" in blobs(tmp_path, model) and not children(s)
    s.says('event=pull_ended model="acme/small" result=ok')
    assert order(s).status_code == 202 and ended(s)["fetched_bytes"] == 0


def test_one_at_a_time_and_the_client_may_leave(s, hub, model, tmp_path):
    slow(hub, 0.3)
    with httpx.Client(base_url=s.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}) as leaving:
        assert leaving.post(ROUTE, json={"model": "acme/small"}).status_code == 202
    refused(order(s, "acme/other"), 409, "pull_runs")
    now = fetching(s)
    assert now["model"] == "acme/small" and now["bytes"] <= now["bytes_total"]
    assert ended(s)["state"] == "done" and "config.json" in blobs(tmp_path, model)


def test_a_cancelled_pull_goes_on_at_the_next_order(s, hub, model, tmp_path):
    slow(hub, 1)
    refused(s.http.delete(ROUTE), 404, "not_found")
    assert order(s).status_code == 202
    fetching(s)
    reply = s.http.delete(ROUTE)
    assert reply.status_code == 202 and reply.json()["state"] in ("cancelling", "cancelled")
    assert ended(s)["state"] == "cancelled" and blobs(tmp_path, model) == [] and not children(s)
    hub.faults, before = (lambda *_: None), hub.bytes_sent
    assert order(s).status_code == 202 and ended(s)["state"] == "done"
    assert hub.bytes_sent - before < 8 << 20 and "tokenizer.json" in blobs(tmp_path, model)


def test_a_wait_for_the_hub_says_why(s, hub, model):
    hub.faults = lambda name, part: "429" if name == "config.json" and not waits else None
    waits = []
    assert order(s).status_code == 202
    waits.append(until(lambda: state(s)["trying_again"], 30, 0.05))
    assert waits == ["the hub answered with status 429"]
    now = ended(s)
    assert now["state"] == "done" and now["trying_again"] is None


def test_what_fails_says_why(s, hub, model, tmp_path):
    assert order(s, "acme/none").status_code == 202
    now = ended(s)
    assert now["state"] == "failed" and "does not have this model, or it is private" in now["error"]
    config = model.files["config.json"].replace(b'"qwen3"', b'"weird"')
    hub.models["acme/small"] = model = Model({**model.files, "config.json": config})
    assert order(s).status_code == 202
    assert "model_type 'weird'" in ended(s)["error"] and blobs(tmp_path, model) == []
    assert order(s, anyway=True).status_code == 202 and ended(s)["state"] == "done"
    hub.listing = b"[" * 100000
    assert order(s, "acme/small@refs/pr/1").status_code == 202 and ended(s)["state"] == "failed"


BODIES = [b"", b"[]", b"{", b"[" * 5000, b'{"model":"acme/small","model":"a/b"}', b'{"model":1}', b'{"model":"small"}', b'{"model":"../x"}',
          b'{"model":"a/../b"}', b'{"model":"a/b/c"}', b'{"model":"acme/small@../x"}', b'{"model":"-x/y"}', b'{"model":"http://127.0.0.1/x"}',
          b'{"model":"a/b --include x"}', b'{"model":"a/b\\u0000"}', b'{"model":"a/b\\n"}', b'{"model":"acme/small","anyway":"yes"}',
          b'{"model":"a/' + b"b" * 9000 + b'"}']


def test_hostile_orders_are_refused(s, hub):
    for body in BODIES:
        reply = s.http.post(ROUTE, content=body, headers={"content-type": "application/json"})
        assert reply.status_code == 400 and reply.json()["error"]["code"] in ("invalid_json", "invalid_value"), body
    assert state(s) == {"state": "none"} and hub.requests == []


def test_it_is_the_administrators_and_off_unless_it_is_allowed(hub):
    with serving(*KEYS, key=ADMIN_KEY) as s:
        refused(order(s), 403, "pull_not_allowed", "--allow-pull")
        assert s.http.get(ROUTE).json() == {"state": "none"} and "pull" not in s.http.get("/api/overview").json()
        assert not [a for a in s.memory()["accounts"][0]["children"] if a["name"] == "pull"]
        for key in ("sk-alice-0123", "sk-wrong"):
            for method in ("GET", "POST", "DELETE"):
                reply = httpx.request(method, s.url + ROUTE, headers={"authorization": f"Bearer {key}"})
                assert reply.status_code in (401, 403) and reply.json()["error"]["code"] == "invalid_api_key"
    assert hub.requests == []


def test_a_server_that_ends_ends_its_pull(hub, model, tmp_path):
    slow(hub, 5)
    s = Server("--allow-pull", *KEYS, key=ADMIN_KEY)
    try:
        assert order(s).status_code == 202
        fetching(s)
        [child] = children(s)
        environment = (child.parent / "environ").read_bytes()
        limits = (child.parent / "limits").read_text()
        assert ADMIN_KEY.encode() not in environment and b"PLATEAU_" not in environment
        assert any(line.split()[3:5] == [str(64 << 20)] * 2 for line in limits.splitlines() if line.startswith("Max data size"))
    finally:
        assert s.stop() == 0
    assert not child.exists()
    assert blobs(tmp_path, model) == []


def test_a_killed_process_is_said(s, hub):
    slow(hub, 5)
    assert order(s).status_code == 202
    fetching(s)
    [child] = children(s)
    os.kill(int(child.parent.name), 9)
    now = ended(s)
    assert now["state"] == "failed" and "ended early, by signal 9" in now["error"]


def resolved():
    """A name of this machine that libcurl asks the system for."""
    for name in (socket.gethostname(), "ip6-localhost", "ip6-loopback"):
        try:
            socket.getaddrinfo(name, 80)
            return name
        except OSError:
            pass
    pytest.skip("the system knows no name of this machine")


def test_a_limit_of_stacks_leaves_names_resolved(hub, monkeypatch):
    """Stacks count as data, and LimitSTACK= of the unit decides their size."""
    monkeypatch.setenv("HF_ENDPOINT", f"https://{resolved()}:9")
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (64 << 20, before[1]))
    try:
        s = Server("--allow-pull", *KEYS, key=ADMIN_KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)
    try:
        assert order(s).status_code == 202
        why = until(lambda: state(s)["trying_again"])
        assert "cannot be reached" in why and "resolve" not in why
    finally:
        assert s.stop() == 0


def moved_library(tmp_path):
    """The program on a distribution that lacks one of its libraries, and the folder that has it."""
    name, other = b"libutf8proc.so.2\0", b"libutf8proc.so.X\0"
    program, libraries = pathlib.Path(PROGRAM).read_bytes(), tmp_path / "lib"
    found = [line.split()[2] for line in subprocess.check_output(["ldd", PROGRAM], text=True).splitlines() if "libutf8proc" in line]
    assert program.count(name) == 1 and found
    libraries.mkdir()
    shutil.copy(found[0], libraries / other[:-1].decode())
    (tmp_path / "plateau").write_bytes(program.replace(name, other))
    (tmp_path / "plateau").chmod(0o755)
    return tmp_path / "plateau", libraries


def test_a_pull_has_the_libraries_of_the_server(hub, tmp_path, monkeypatch):
    class Moved(Server):
        program, libraries = moved_library(tmp_path)

    monkeypatch.setenv("LD_LIBRARY_PATH", str(Moved.libraries))
    with serving("--allow-pull", *KEYS, kind=Moved, key=ADMIN_KEY) as s:
        assert order(s).status_code == 202
        now = ended(s)
        assert now["state"] == "done", now
        (Moved.libraries / "libutf8proc.so.X").rename(tmp_path / "away")
        assert order(s).status_code == 202
        now = ended(s)
        assert now["state"] == "failed" and "ended early, with status 127: " in now["error"] and "libutf8proc.so.X" in now["error"]
