"""plateau models: a line for each model of a folder; what is refused and why."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import PROGRAM, TOP

DATA = TOP / "tests/golden/data"


def models(*arguments, cwd=None):
    return subprocess.run([PROGRAM, "models", *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd,
                          stdin=subprocess.DEVNULL, env={**os.environ, "PLATEAU_MEMORY_LIMIT": "2G"})


def listed(*arguments):
    got = models(*arguments, "--json")
    assert (got.returncode, got.stderr) == (0, "")
    return {m["id"]: m for m in json.loads(got.stdout)["models"]}


@pytest.fixture(scope="module")
def top(tmp_path_factory):
    top = tmp_path_factory.mktemp("models")
    for name in ("qwen3", "gemma4"):
        os.symlink(DATA / name, top / name)
    os.symlink(TOP / "models/canary-8bit" if (TOP / "models/canary-8bit").is_dir() else TOP / "models/canary", top / "canary")
    config = json.loads((DATA / "qwen3/config.json").read_text())

    def put(name, **changes):
        (top / name).mkdir()
        (top / name / "config.json").write_text(json.dumps({**config, **changes}))
        shutil.copy(DATA / "qwen3/model.safetensors", top / name / "model.safetensors")
        return top / name

    put("sparse", model_type="deepseek_v32")
    put("headless", num_attention_heads=0)
    cut = put("cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:1000])
    os.unlink(put("bare") / "model.safetensors")
    put("odd\x1b[2Jname")
    (top / "one.gguf").write_bytes(b"GGUF")
    (top / "notes").mkdir()
    (top / "notes/readme.txt").write_text("no model")
    snapshot = top / "models--someone--small/snapshots/0123"
    snapshot.mkdir(parents=True)
    for file in (DATA / "qwen3").iterdir():
        os.symlink(file, snapshot / file.name)
    return top


@pytest.mark.smoke
def test_a_folder_is_listed(top):
    found = listed(top)
    assert list(found) == sorted(found, key=lambda id: id if id != "someone/small" else "models--someone--small")
    assert set(found) == {"qwen3", "gemma4", "canary", "sparse", "headless", "cut", "bare", "odd\x1b[2Jname", "one.gguf", "someone/small"}
    qwen3 = found["qwen3"]
    assert (qwen3["state"], qwen3["family"], qwen3["form"], qwen3["context_max"]) == ("fits", "qwen3", "BF16", 4096)
    assert qwen3["parameters"] > 100000 and qwen3["floor_bytes"] < qwen3["ceiling_bytes"] == 2 << 30
    assert qwen3["disk_bytes"] == sum(f.stat().st_size for f in (DATA / "qwen3").iterdir())
    assert found["someone/small"]["parameters"] == qwen3["parameters"]
    assert found["gemma4"]["family"] == "gemma4" and "reason" not in found["gemma4"]


@pytest.mark.parametrize("id, reason", [
    ("sparse", "models of type deepseek_v32 are not computed: an indexer chooses the keys"),
    ("headless", "num_attention_heads"), ("cut", "model.safetensors"), ("bare", "weights are missing"), ("one.gguf", "ends within its head")])
def test_what_is_refused_says_why(top, id, reason):
    found = listed(top)[id]
    assert found["state"] == "refused" and reason in found["reason"] and "family" not in found


def test_a_table_has_a_line_each(top):
    got = models(top)
    lines = got.stdout.splitlines()
    assert (got.returncode, got.stderr, len(lines)) == (0, "", 11)
    assert "\x1b" not in got.stdout and any(line.startswith("odd?[2Jname ") for line in lines)
    assert [line for line in lines if line.startswith("qwen3 ")][0].split()[1:4:2] == ["qwen3", "BF16"]
    assert any(line.startswith("sparse ") and " no: " in line and "deepseek_v32" in line for line in lines)


def test_a_model_that_does_not_fit_has_the_numbers(top):
    found = listed(top, "--memory-limit", "40M", "--max-model-len", "4096")["canary"]
    assert found["state"] == "too large" and found["max_model_len"] == 0 and "MiB" in found["reason"]


def test_a_folder_may_be_a_model_or_one_of_the_hubs(top):
    assert list(listed(DATA / "qwen3")) == ["qwen3"]
    assert list(listed(top / "models--someone--small")) == ["someone/small"]
    assert [m["id"] for m in json.loads(models(".", "--json", cwd=DATA / "qwen3").stdout)["models"]] == ["qwen3"]


def test_nothing_to_list(top, tmp_path):
    got = models(tmp_path)
    assert (got.returncode, got.stdout) == (0, "") and "there are no models in" in got.stderr
    got = models(tmp_path / "missing")
    assert got.returncode == 1 and "cannot be read" in got.stderr
    got = models(tmp_path, tmp_path)
    assert got.returncode == 2 and "one argument too many" in got.stderr
    got = models("rm")
    assert got.returncode == 2 and "needs the name" in got.stderr
    assert "list the models of a folder" in models("--help").stdout
