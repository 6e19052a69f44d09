"""One walk finds models for every command, and a model's files are opened once."""
import ctypes
import json
import os
import random
import shutil
import struct
import subprocess
import threading

import httpx
import pytest

from conftest import PROGRAM, TOP, Server
from gguf_made import gguf
from hostile_files import load, unload

QWEN = TOP / "tests/golden/data/qwen3"
SEED = int(os.environ.get("PLATEAU_SEED", random.randrange(2**32)))


def grow(rng, folder, depth, made):
    """Models and other things below a folder; `made` counts names of directories, which are unique."""
    for _ in range(rng.randrange(1, 5)):
        kind = rng.choice(["model", "file", "file", "encoder", "bin", "partial", "hidden", "text", "folder", "folder"])
        name = f"{kind}{next(made)}"
        at = folder / name
        if kind == "model":
            at.symlink_to(QWEN)
        elif kind == "file":
            for i, data in enumerate(parts := gguf(parts=rng.choice([1, 1, 2]))):
                stem = rng.choice(["same", "other"])
                (folder / (f"{stem}.gguf" if len(parts) == 1 else f"{name}-{i + 1:05}-of-{len(parts):05}.gguf")).write_bytes(data)
        elif kind == "encoder":
            (folder / "mmproj-same.gguf").write_bytes(b"GGUF")
        elif kind == "text":
            (folder / "README.md").write_text("no model")
        else:
            at = folder / ("." + name if kind == "hidden" else name)
            at.mkdir()
            if kind in ("bin", "partial"):
                (at / "config.json").write_text("{}")
            if kind == "bin":
                (at / "pytorch_model.bin").write_text("")
            elif kind == "hidden":
                (at / "same.gguf").write_bytes(b"GGUF")
            elif kind == "folder" and depth < 6:
                grow(rng, at, depth + 1, made)


@pytest.mark.parametrize("case", range(4))
def test_models_and_serve_name_the_same_models(case, tmp_path):
    rng = random.Random(f"{SEED}.{case}")
    top = tmp_path / "top"
    deep = top / "a/b/c/d"
    deep.mkdir(parents=True)
    (deep / "four-below").symlink_to(QWEN)
    grow(rng, top, 0, iter(range(10**6)))
    got = subprocess.run([PROGRAM, "models", str(top), "--json"], capture_output=True, text=True, timeout=120)
    assert got.returncode == 0, got.stderr
    listed = json.loads(got.stdout)["models"]
    names = sorted(m["id"] for m in listed if m["state"] != "refused")
    assert "four-below" in names
    server = Server("--model-dir", top, wait=True)
    try:
        served = sorted(m["id"] for m in server.status()["models"] if m["id"] != "canary")
    finally:
        server.stop()
    assert served == names, (SEED, case, listed)


class Opens:
    """Counts how often a file is opened."""
    OPEN, ACCESS, CLOSE = 0x20, 0x1, 0x10

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert libc.inotify_add_watch(self.fd, os.fsencode(path), self.OPEN | self.ACCESS | self.CLOSE) >= 0

    def count(self):
        found = 0
        try:
            while data := os.read(self.fd, 1 << 16):
                for at in range(0, len(data), 16):
                    found += bool(struct.unpack_from("<iIII", data, at)[1] & self.OPEN)
        except BlockingIOError:
            pass
        os.close(self.fd)
        return found


def test_an_answer_opens_a_gguf_file_three_times_at_most(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf()[0])
    opens = Opens(path)
    got = subprocess.run([PROGRAM, "generate", "--model", str(path), "--max-tokens", "3", "t1"], capture_output=True, text=True, timeout=120)
    assert got.returncode == 0, got.stderr
    assert 1 <= opens.count() <= 3


def tokens(server, model):
    reply = httpx.post(f"{server.url}/v1/completions", json={"model": model, "prompt": [5, 6, 7], "max_tokens": 12, "temperature": 0, "ignore_eos": True,
                                                             "return_token_ids": True}, timeout=60)
    return tuple(reply.json()["choices"][0]["token_ids"]) if reply.status_code == 200 else None


def test_a_file_that_is_replaced_during_loads_gives_one_model_or_an_error(tmp_path):
    made = [gguf(seed)[0] for seed in (1, 2)]
    for name, data in zip(("a", "b", "m"), (*made, made[0]), strict=True):
        (tmp_path / f"{name}.gguf").write_bytes(data)
    server = Server("--model-dir", tmp_path)
    over = threading.Event()

    def replace():
        for i in range(10**6):
            if over.is_set():
                return
            (tmp_path / "next").write_bytes(made[i % 2])
            os.replace(tmp_path / "next", tmp_path / "m.gguf")

    thread = threading.Thread(target=replace)
    try:
        right = {tokens(server, "a"), tokens(server, "b")}
        assert len(right) == 2 and None not in right
        thread.start()
        seen = []
        for _ in range(20):
            if load(server, "m"):
                seen.append(tokens(server, "m"))
                unload(server, "m")
        assert seen and set(seen) <= right
    finally:
        over.set()
        if thread.ident:
            thread.join()
        server.stop()
