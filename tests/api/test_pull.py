"""plateau pull against a stand-in for the hub: the cache afterwards, and faults on the way."""
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time
import types

import pytest

from conftest import PROGRAM, TOP, until
from hub_stand_in import FAULTS, Hub, Model, folder

SMALL = TOP / "tests/golden/data/qwen3"
SEED = int(os.environ.get("PLATEAU_SEED", random.randrange(1 << 30)))
TRIES = 1000 if os.environ.get("PLATEAU_LONG") else 4
TOKEN = "hf_secretsecretsecret"
MEMORY = 64 << 20  # bytes of a pull


def environment(hub, home, **variables):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "XDG_"))}
    return {**env, "HOME": str(home), "HF_ENDPOINT": hub.url, "PLATEAU_MEMORY_LIMIT": "2G", "TMPDIR": str(home), **variables}


def pull(hub, home, *arguments, **variables):
    command = [PROGRAM, "pull", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, env=environment(hub, home, **variables))


def cache(home):
    return home / ".cache/huggingface/hub"


def probes(home):
    """Directories of headers, for the plan of a model before its weights are there."""
    return list(cache(home).rglob(".plateau-headers-*"))


def check_cache(home, model, name="small", killed=False):
    """No name under snapshots/ and no final blob has other bytes than the hub; returns the names of main."""
    top = cache(home) / f"models--acme--{name}"
    right = {**{v: k for k, v in model.sums.items()}, **{v: k for k, v in model.git.items()}}
    for blob in (top / "blobs").glob("*") if top.exists() else []:
        if ".plateau." not in blob.name:
            assert blob.read_bytes() == model.files[right[blob.name]], blob
    found = {}
    for path in (top / "snapshots").rglob("*") if top.exists() else []:
        if path.is_file():
            rest = str(path.relative_to(top / "snapshots" / model.commit))
            assert path.is_symlink() and not os.readlink(path).startswith("/") and path.read_bytes() == model.files[rest]
            found[rest] = path
    assert killed or not probes(home)
    return found


@pytest.fixture
def model():
    files = {n: b for n, b in folder(SMALL).items() if n != "golden.json"}
    files |= {"README.md": b"# small\n", "pytorch_model.bin": b"x" * 9000, "modeling_small.py": b"import os\n", "tokenizer.json": b"{}" * 4000,
              "odd name/config.json": b"{}", "1_Pooling/config.json": b'{"a": 1}'}
    return Model(files)


@pytest.fixture
def hub(model):
    with Hub({"acme/small": model}) as hub:
        yield hub


WANTED = {"config.json", "generation_config.json", "model.safetensors", "README.md", "tokenizer.json", "1_Pooling/config.json"}


@pytest.mark.smoke
def test_a_pull_fills_the_hubs_cache(hub, model, tmp_path):
    got = pull(hub, tmp_path, "acme/small")
    assert got.returncode == 0, got.stderr
    assert "family qwen3, BF16" in got.stdout and "it fits" in got.stdout
    assert set(check_cache(tmp_path, model)) == WANTED
    top = cache(tmp_path) / "models--acme--small"
    assert (top / "refs/main").read_text() == model.commit
    assert {b.name for b in (top / "blobs").iterdir()} == {(model.sums if len(model.files[n]) >= 4096 else model.git)[n] for n in WANTED}
    before = hub.bytes_sent
    got = pull(hub, tmp_path, "acme/small", "--json")
    done = json.loads(got.stdout.splitlines()[-1])
    assert got.returncode == 0 and hub.bytes_sent == before and done["event"] == "done" and done["fetched"] == 0
    for name in ("acme/small@refs/pr/1", "acme/small@" + model.commit):
        assert pull(hub, tmp_path, name).returncode == 0 and hub.bytes_sent == before
    assert (top / "refs/refs/pr/1").read_text() == model.commit and not (top / "refs" / model.commit).exists()
    found = subprocess.run([PROGRAM, "plan", "acme/small"], capture_output=True, text=True, env=environment(hub, tmp_path, HF_HUB_OFFLINE="1"))
    assert found.returncode == 0
    assert pull(hub, tmp_path, "acme/small", HF_HUB_OFFLINE="1").returncode == 1


def test_what_cannot_run_is_said_before_the_weights_are_fetched(hub, model, tmp_path):
    config = json.loads(model.files["config.json"])
    big = {**model.files, "config.json": json.dumps({**config, "num_hidden_layers": 1}).encode()}
    hub.models["acme/odd"] = Model({**big, "config.json": json.dumps({**config, "model_type": "weird"}).encode()})
    got = pull(hub, tmp_path, "acme/odd")
    assert got.returncode == 1 and "model_type 'weird'" in got.stderr and "--anyway" in got.stderr
    got = pull(hub, tmp_path, "acme/small", "--memory-limit", "20M")
    assert got.returncode == 1 and "does not fit" in got.stdout + got.stderr
    assert not list(cache(tmp_path).rglob("snapshots/*/*")) and hub.bytes_sent < 100000
    assert pull(hub, tmp_path, "acme/odd", "--anyway").returncode == 0
    check_cache(tmp_path, hub.models["acme/odd"], "odd")


def test_weights_that_are_in_the_list_twice(hub, model, tmp_path):
    """The header of the second is read before the content of the first is there."""
    twins = Model({**model.files, "model-00002.safetensors": model.files["model.safetensors"]})
    hub.models["acme/twins"] = twins
    got = pull(hub, tmp_path, "acme/twins", "--anyway")
    assert got.returncode == 0, got.stderr
    assert set(check_cache(tmp_path, twins, "twins")) == WANTED | {"model-00002.safetensors"}


def plan(hub, home, *arguments, **variables):
    env = environment(hub, home, **variables)
    return subprocess.run([PROGRAM, "plan", *arguments], capture_output=True, text=True, timeout=60, env=env)


def test_a_plan_of_a_model_that_is_at_the_hub_fetches_headers_only(hub, model, tmp_path):
    got = plan(hub, tmp_path, "acme/small")
    assert got.returncode == 0, got.stderr
    assert got.stdout.startswith("acme/small is at the hub, ") and "plateau pull acme/small" in got.stdout
    assert hub.bytes_sent < 60000 and not list(cache(tmp_path).rglob("snapshots/*/*"))
    there = json.loads(plan(hub, tmp_path, "acme/small", "--json").stdout)
    assert pull(hub, tmp_path, "acme/small").returncode == 0
    here = json.loads(plan(hub, tmp_path, "acme/small", "--json").stdout)
    assert here["floor_bytes"] == there["floor_bytes"] and here["fits"] is there["fits"] is True
    assert not probes(tmp_path)


def test_a_plan_says_why_a_model_of_the_hub_cannot_run(hub, model, tmp_path):
    config = {**json.loads(model.files["config.json"]), "model_type": "weird"}
    hub.models["acme/odd"] = Model({**model.files, "config.json": json.dumps(config).encode()})
    for arguments, words in ((["acme/odd"], "acme/odd: config.json: model_type 'weird'"), (["acme/none"], "acme/none is not on this machine, and not read from the hub: "),
                             (["acme/small", "--memory-limit", "20M"], "acme/small: ")):
        got = plan(hub, tmp_path, *arguments)
        assert got.returncode == 1 and words in got.stderr and "plateau-headers" not in got.stderr, got.stderr
    got = plan(hub, tmp_path, "acme/small@v9")
    assert got.returncode == 1 and "acme/small@v9 is not on this machine, and not read from the hub: " in got.stderr
    assert not (cache(tmp_path) / "models--acme--none").exists(), "an empty folder would look like half a download"


@pytest.mark.parametrize("arguments, words", [
    (["acme/none"], "does not have this model, or it is private: set HF_TOKEN"), (["acme/small@v9"], "not this revision"),
    (["acme/gated"], "terms have to be accepted"), (["acme/bins"], "in .bin or .pt files only"), (["acme/ggufs"], "acme/ggufs is not served here: the file ends within its head"),
    (["small"], "is not a name of the hub"), (["../x"], "is not a name of the hub"), (["a/b/c"], "is not a name of the hub"), (["acme/small@../x"], "is not a name of the hub"), ([], "which model?")])
def test_messages(hub, tmp_path, arguments, words):
    hub.models |= {"acme/gated": Model({"config.json": b"{}", "model.safetensors": b"x"}, gated=True), "acme/bins": Model({"config.json": b"{}", "pytorch_model.bin": b"x"}),
                   "acme/ggufs": Model({"a.gguf": b"x"})}
    got = pull(hub, tmp_path, *arguments)
    assert got.returncode in (1, 2) and words in got.stderr, got.stderr


def test_the_token_goes_to_the_endpoint_alone_and_is_never_shown(hub, model, tmp_path):
    model.private, hub.token = True, TOKEN
    assert pull(hub, tmp_path, "acme/small").returncode == 1
    place = tmp_path / "token"
    place.write_text(TOKEN + "\n")
    got = pull(hub, tmp_path, "acme/small", "--log-level", "debug", HF_TOKEN_PATH=str(place))
    assert got.returncode == 0 and TOKEN not in got.stdout + got.stderr
    assert hub.seen_tokens == {("api", f"Bearer {TOKEN}")} and any(host == "cdn" for host, *_ in hub.requests)
    assert not any(TOKEN in f.read_text(errors="replace") for f in cache(tmp_path).rglob("*") if f.is_file())
    assert pull(hub, tmp_path, "acme/small", HF_TOKEN="bad\ntoken: x").returncode == 1
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf/token").write_text(TOKEN)
    assert pull(hub, tmp_path, "acme/small", HF_HOME=str(tmp_path / "hf")).returncode == 0


def test_a_hub_that_cannot_be_reached(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        hub = types.SimpleNamespace(url=f"http://127.0.0.1:{s.getsockname()[1]}")
        told = f"{hub.url} cannot be reached: Couldn't connect to server. Check the network, or name another in HF_ENDPOINT"
        got = plan(hub, tmp_path, "acme/small")
        assert got.returncode == 1 and got.stderr == f"plateau: acme/small is not on this machine, and not read from the hub: {told}\n"
        p = subprocess.Popen([PROGRAM, "pull", "acme/small"], env=environment(hub, tmp_path, PLATEAU_LOG_FORMAT="text"), stderr=subprocess.PIPE, text=True)
        line = p.stderr.readline()
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=20)
        assert "pulling" in line and f'trying_again="{told}"' in line
        for run in plan, pull:
            got = run(hub, tmp_path, "acme/small", HF_HUB_OFFLINE="1")
            assert got.returncode == 1 and "HF_HUB_OFFLINE" in got.stderr, got.stderr


def test_addresses_that_are_not_asked(hub, tmp_path):
    for endpoint in ("http://127.hub.example", "http://hub.example", "ftp://127.0.0.1", "https://me:pw@hub.example", "nonsense", "http://10.0.0.1"):
        got = pull(hub, tmp_path, "acme/small", HF_ENDPOINT=endpoint)
        assert got.returncode == 1 and "HF_ENDPOINT" in got.stderr
    hub.elsewhere = "http://plain.example"
    hub.faults = lambda *_: "redirect elsewhere"
    got = pull(hub, tmp_path, "acme/small")
    assert got.returncode == 1 and "without https" in got.stderr


def test_hostile_lists_leave_nothing_outside(hub, model, tmp_path):
    sums = {"size": 3, "blobId": hashlib.sha1(b"x").hexdigest()}
    names = ["../../evil", "/etc/evil", "a/../../evil", "a//b", "./config.json", "a\\b", "a/b/c/d/e/config.json", "x" * 300, "tokenizer\u0001", ""]
    hub.entries = [{"rfilename": n, **sums} for n in names]
    got = pull(hub, tmp_path, "acme/small")
    assert got.returncode == 0 and "were left out" in got.stderr
    assert set(check_cache(tmp_path, model)) == WANTED
    for listing in (b"", b"[", b"{}", b'{"sha":"../..","siblings":[]}', b"[" * 100000, json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": f"tokenizer{i}", **sums} for i in range(10001)]}).encode(),
                    json.dumps({"sha": "0" * 40, "siblings": [{"rfilename": "config.json", "size": 1, "blobId": "../../x"}, {"rfilename": "model.safetensors", "size": 1}]}).encode(), b" " * (9 << 20)):
        hub.listing = listing
        got = pull(hub, tmp_path / "other", "acme/small", TMPDIR=str(tmp_path))
        assert got.returncode == 1 and got.stderr.startswith("plateau: "), got.stderr
    assert not list((tmp_path / "other").rglob("snapshots/*"))


def test_a_mirror_without_sums_in_its_list(hub, model, tmp_path):
    hub.plain = True
    got = pull(hub, tmp_path, "acme/small")
    assert got.returncode == 0, got.stderr
    assert set(check_cache(tmp_path, model)) == WANTED and sum("/tree/" in path for _, path, _ in hub.requests) == -(-len(model.files) // 3)


def test_a_line_that_breaks_after_the_last_byte(hub, model, tmp_path):
    hub.faults = lambda name, part: "cut at the end"
    got = pull(hub, tmp_path, "acme/small")
    assert got.returncode == 0, got.stderr
    assert set(check_cache(tmp_path, model)) == WANTED


def test_the_body_of_an_error_does_not_end(hub, model, tmp_path):
    left = ["endless"]
    hub.faults = lambda name, part: left.pop() if left and name.endswith(".safetensors") else None
    p = pull(hub, tmp_path, "acme/small")
    assert p.returncode == 0, p.stderr
    assert not left and set(check_cache(tmp_path, model)) == WANTED


def test_a_killed_pull_goes_on(hub, model, tmp_path):
    files = {**model.files, "tokenizer.json": random.Random(1).randbytes(24 << 20)}
    hub.models["acme/small"] = model = Model(files)
    hub.faults = lambda name, part: "slow" if name == "tokenizer.json" else None
    hub.pause = 1
    for how, status in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        before = hub.bytes_sent
        p = subprocess.Popen([PROGRAM, "pull", "acme/small"], env=environment(hub, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until(lambda: hub.bytes_sent > before + (1 << 20), 20)  # past the list and the heads: it has the lock
        until(lambda: any(f.stat().st_blocks * 512 > 4 << 20 for f in cache(tmp_path).rglob("*.incomplete")), 20)
        second = pull(hub, tmp_path, "acme/small")
        assert second.returncode == 1 and "another process is pulling" in second.stderr
        p.send_signal(how)
        said = p.communicate(timeout=20)[1]
        assert p.returncode == status and (how != signal.SIGINT or "run it again to go on from" in said)
        check_cache(tmp_path, model, killed=how == signal.SIGKILL)
    hub.faults, before = (lambda *_: None), hub.bytes_sent
    assert pull(hub, tmp_path, "acme/small").returncode == 0
    assert hub.bytes_sent - before < (22 << 20) + 500000
    assert len(check_cache(tmp_path, model)) == len(WANTED)


def test_a_pull_removes_what_a_killed_one_left(hub, model, tmp_path):
    for _ in range(2):  # the second pull has nothing to fetch, and makes no directory of its own
        left = cache(tmp_path) / "models--acme--small" / ".plateau-headers-a1B2c3"
        (left / "part").mkdir(parents=True)
        (left / "part/model.safetensors").write_bytes(b"x")
        assert pull(hub, tmp_path, "acme/small").returncode == 0
        assert set(check_cache(tmp_path, model)) == WANTED


class Peak:
    """The most memory of a process, read every 5 ms until it has ended."""

    def __init__(self, pid):
        self.place, self.bytes, self.over = pathlib.Path(f"/proc/{pid}/status"), 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.is_set():
            try:
                text = self.place.read_text()
            except OSError:
                return
            found = re.search(r"^Name:\s+plateau$.*^VmHWM:\s+(\d+) kB$", text, re.M | re.S)  # not a shell
            self.bytes = max(self.bytes, int(found[1]) << 10 if found else 0)
            self.over.wait(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def test_the_memory_of_a_pull_does_not_grow_with_its_files(hub, model, tmp_path):
    hub.models["acme/small"] = model = Model({**model.files, "tokenizer.json": bytes(100 << 20)})
    p = subprocess.Popen([PROGRAM, "pull", "acme/small"], env=environment(hub, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with Peak(p.pid) as peak:
        said = p.communicate(timeout=120)[1]
    print(f"peak {peak.bytes >> 20} MiB")
    assert p.returncode == 0, said
    assert 1 << 20 < peak.bytes < MEMORY
    assert set(check_cache(tmp_path, model)) == WANTED


def one_try(seed, home):
    """One model of random size, one fault of a random kind at a random time. Returns fault and tries."""
    r = random.Random(seed)
    files = {n: b for n, b in folder(SMALL).items() if n != "golden.json"}
    files |= {"tokenizer.json": r.randbytes(r.choice([10, 4096, 300000])), "README.md": r.randbytes(r.randrange(100))}
    model = Model(files)
    fault, when = r.choice(FAULTS + ("kill", "full disk")), r.randrange(6)
    seen = []

    def faults(name, part):
        seen.append(name)
        return fault if len(seen) - 1 == when and fault in FAULTS else None

    with Hub({"acme/small": model}, TOKEN, faults) as hub:
        hub.elsewhere = "http://plain.example"
        env = environment(hub, home, HF_TOKEN=TOKEN)
        for tries in (1, 2):
            command = [PROGRAM, "pull", "acme/small", "--stall-timeout", "2"]
            if fault == "full disk" and tries == 1:
                command = ["sh", "-c", f"ulimit -f {r.randrange(1, 400)}; exec \"$@\"", "sh", *command]
            p = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if fault == "kill" and tries == 1:
                time.sleep(r.random() * 0.1)
                p.kill()
            with Peak(p.pid) as peak:
                said = p.communicate(timeout=30)[1]
            check_cache(home, model, killed=p.returncode == -9)
            assert hub.seen_tokens <= {("api", f"Bearer {TOKEN}")} and TOKEN not in said and peak.bytes < MEMORY
            if p.returncode == 0:
                break
            assert p.returncode in (1, -9) and (p.returncode == -9 or said.startswith("plateau: ") or " level=" in said), said
        assert p.returncode == 0, (fault, said)
        assert len(check_cache(home, model)) == 5 - ("merges.txt" in files)
    return fault, tries


@pytest.mark.parametrize("index", range(TRIES))
def test_whatever_fails_the_second_try_ends_whole(index, tmp_path):
    print(f"PLATEAU_SEED={SEED}")
    one_try(SEED + index, tmp_path)
