"""A path without a model gets a message of its own kind, with the next step; a model that cannot be served
is named."""

import json
import os
import pathlib
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
CANARY = ROOT / "models/canary"
SMALL = ROOT / "tests/golden/data/qwen3"
CONFIG = (CANARY / "config.json").read_text()


def run(*arguments, cwd=None, **variables):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60, cwd=cwd,
                          env={**os.environ, "HF_HUB_OFFLINE": "1", **variables})


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    top = tmp_path_factory.mktemp("paths")

    def put(name, **files):
        (top / name).mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (top / name / file.replace("__", ".").replace("_of_", "-of-").replace("model_", "model-")).write_text(text)

    put("ggufs", a__gguf="", b__gguf="")
    (top / "ggufs/mmproj-a.gguf").write_text("")
    put("bin", config__json=CONFIG, pytorch__bin="")
    put("config", config__json=CONFIG)
    put("weights", model__safetensors="")
    put("adapter", adapter_config__json="{}", adapter__safetensors="")
    put("empty")
    put("numbered", config__json=CONFIG, model_00002_of_00003__safetensors="")
    put("indexed", config__json=CONFIG, model_1__safetensors="")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors", "d": "../x", "e": 5}}
    (top / "indexed/model.safetensors.index.json").write_text(json.dumps(index))
    put("pointer", config__json=CONFIG, model__safetensors="version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    put("bert", config__json='{"model_type": "distilbert"}', model__safetensors="")
    put("above/org")
    (top / "above/org/two").symlink_to(CANARY)
    (top / "above/one").symlink_to(CANARY)
    hub = top / "hub/models--acme--Canary"
    (hub / "snapshots/0123abc").mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("0123abc")
    for file in CANARY.iterdir():
        (hub / "snapshots/0123abc" / file.name).symlink_to(file)
    (top / "hub/models--acme--Half/snapshots").mkdir(parents=True)
    (top / "one.gguf").write_text("")
    os.mkfifo(top / "pipe")
    return top


@pytest.mark.parametrize("path, words", [
    ("nowhere", ["there is no file or directory nowhere", "plateau models lists", "plateau pull ORG/NAME"]),
    ("./nowhere", ["there is no file or directory ./nowhere: a model is", "config.json, .safetensors files and tokenizer.json, or a GGUF file"]),
    ("ORG/NAME", ["ORG/NAME is not a directory here and not in the hub's cache", "plateau pull ORG/NAME fetches it"]),
    ("acme/Half", ["in the hub's cache, but no revision is complete", "plateau pull acme/Half"]),
    ("acme/Canary@v2", ["has no complete revision v2 of acme/Canary"]),
    ("hub", ["is a cache of the hub", "such as acme/Canary", "--model-dir hub"]),
    ("hub/models--acme--Half", ["no revision is complete", "plateau pull acme/Half"]),
    ("one.gguf", ["one.gguf: the file ends within its head"]),
    ("ggufs", ["more than one GGUF model, a.gguf and b.gguf"]),
    ("bin", ["another format only (pytorch.bin)", ".safetensors"]),
    ("config", ["has config.json but no .safetensors file"]),
    ("weights", ["has model.safetensors but no config.json"]),
    ("adapter", ["adapter.safetensors", "name its base model"]),
    ("empty", ["is not a model: a model is a directory"]),
    ("numbered", ["not complete: 2 of its 3 weight files missing, model-00001-of-00003.safetensors"]),
    ("indexed", ["not complete: 1 of its 2 weight files missing, model-2.safetensors"]),
    ("pointer", ["Git LFS", "git lfs pull"]),
    ("above", ["below it lie one, org/two", "--model-dir above"]),
    ("pipe", ["pipe is not a directory"]),
    ("bert", ["bert: config.json: model_type 'distilbert' is not supported"]),
])
def test_what_is_no_model_is_told_apart(top, path, words):
    for command in [["plan", path], ["generate", "--model", path, "x"], ["serve", "--port", "0", path]]:
        got = run(*command, cwd=top, HF_HUB_CACHE=str(top / "hub"))
        assert got.returncode == 1 and got.stdout == "" and got.stderr.count("\n") == 1, got.stderr
        for word in [path.partition("@")[0], *words]:
            assert word in got.stderr, got.stderr


def test_of_several_the_one_that_cannot_be_served_is_named(top):
    for models in [[CANARY, top / "bert"], [top / "bert", CANARY]]:
        got = run("serve", "--port", "0", *models)
        assert got.returncode == 1 and f"{top}/bert: config.json: model_type 'distilbert'" in got.stderr


def test_a_model_whose_load_fails_is_named(top, tmp_path):
    for file in SMALL.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "tokenizer.json").write_text("{}")
    with Started(CANARY, tmp_path, "--alias", f"broken={tmp_path}") as s:
        assert "model=broken " in s.line("event=load_failed")


class Started:
    """A server, by the lines of its log."""

    def __init__(self, *arguments):
        command = [PROGRAM, "serve", "--port", "0", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines = []

    def line(self, words):
        for line in self.process.stderr:
            self.lines.append(line)
            if words in line:
                return line
        raise AssertionError("".join(self.lines))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.stderr.read()
        self.process.wait(30)


def test_files_of_other_formats_below_a_model_dir_are_one_line(top):
    with Started("--model-dir", top / "above", "--model-dir", top / "ggufs") as s:
        line = s.line("event=ready") and next(x for x in s.lines if "event=files_passed_over" in x)
        assert f'first="{top}/ggufs/mmproj-a.gguf"' in line and "mmproj=1 bin=0" in line
        assert sum("event=model_unusable" in x and "ends within its head" in x for x in s.lines) == 2
    for name, words in {"bin": ".bin files", "empty": "no directory below it has"}.items():
        got = run("serve", "--model-dir", top / name, "--port", "0")
        assert got.returncode == 1 and words in got.stderr


def test_a_vision_encoder_beside_a_named_gguf_model_is_one_line(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    (tmp_path / "mmproj-m.gguf").write_text("")
    for model in [tmp_path / "m.gguf", tmp_path]:
        got = run("serve", model, "--port", "0")
        lines = [line for line in got.stderr.splitlines() if "event=vision_encoder_passed_over" in line]
        assert len(lines) == 1 and 'file="mmproj-m.gguf"' in lines[0] and "images are refused" in lines[0], got.stderr


def test_gguf_files_below_a_model_dir_are_models_of_their_own_names(tmp_path):
    for file in ["pub/a/m.gguf", "pub/b/m.gguf", "pub/b/n-00001-of-00002.gguf", "pub/b/n-00002-of-00002.gguf"]:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    with Started(CANARY, "--model-dir", tmp_path) as s:
        s.line("event=ready")
        unusable = [x.split("model=")[1].split()[0] for x in s.lines if "event=model_unusable" in x]
        assert unusable == ["a/m", "b/m", "n"], s.lines


def test_more_models_than_a_server_has_are_left_out_and_told(tmp_path):
    for i in range(70):
        (tmp_path / f"m{i:02}").symlink_to(SMALL)
    with Started(CANARY, "--model-dir", tmp_path) as s:
        line = s.line("event=models_left_out")
        assert "served=64 left_out=7" in line and f'first_left_out="{tmp_path}/m63"' in line and "at most 64 models" in line
        s.line("event=ready")
    assert s.process.returncode == 0
    got = run("serve", CANARY, "--model-dir", tmp_path, "--pin", "m65", "--port", "0")
    assert got.returncode == 1 and "--pin m65: there is no such model, or it was left out" in got.stderr
