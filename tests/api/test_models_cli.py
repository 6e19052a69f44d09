"""plateau models: a line for each model of a folder; what is refused and why."""
import contextlib
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import termios

import pytest

from conftest import PROGRAM, TOP

DATA = TOP / "tests/golden/data"


def models(*arguments, cwd=None):
    return subprocess.run([PROGRAM, "models", *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=cwd,
                          stdin=subprocess.DEVNULL, env={**os.environ, "PLATEAU_MEMORY_LIMIT": "2G"})


def on_terminal(columns, *arguments):
    """The lines of a terminal so wide."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    with subprocess.Popen([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=its, stderr=its, env={**environment, "PLATEAU_MEMORY_LIMIT": "2G"}) as p:
        os.close(its)
        shown = b""
        with contextlib.suppress(OSError):
            while block := os.read(ours, 65536):
                shown += block
        os.close(ours)
    assert p.returncode == 0, shown
    return shown.decode().replace("\r", "").splitlines()


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
    assert set(found) == {"qwen3", "gemma4", "canary", "sparse", "headless", "cut", "bare", "odd\x1b[2Jname", "one", "someone/small"}
    qwen3 = found["qwen3"]
    assert (qwen3["state"], qwen3["family"], qwen3["form"], qwen3["context_max"]) == ("fits", "qwen3", "BF16", 4096)
    assert qwen3["parameters"] > 50000 and qwen3["floor_bytes"] < qwen3["ceiling_bytes"] == 2 << 30
    assert qwen3["disk_bytes"] == sum(f.stat().st_size for f in (DATA / "qwen3").iterdir())
    assert found["someone/small"]["parameters"] == qwen3["parameters"]
    assert found["gemma4"]["family"] == "gemma4" and "reason" not in found["gemma4"]


@pytest.mark.parametrize("id, reason", [
    ("sparse", "models of type deepseek_v32 are not computed: an indexer chooses the keys"),
    ("headless", "num_attention_heads"), ("cut", "model.safetensors"), ("bare", "weights are missing"), ("one", "ends within its head")])
def test_what_is_refused_says_why(top, id, reason):
    found = listed(top)[id]
    assert found["state"] == "refused" and reason in found["reason"] and "family" not in found


def test_a_table_has_a_line_each(top):
    got = models(top)
    lines = got.stdout.splitlines()
    assert (got.returncode, got.stderr, len(lines)) == (0, "", 11)
    assert "\x1b" not in got.stdout and any(line.startswith("odd\\x1b[2Jname ") for line in lines)
    (row,) = (line for line in lines if line.startswith("qwen3 "))
    assert row.split()[1:4:2] == ["qwen3", "BF16"] and row.endswith("  yes")
    assert any(line.startswith("sparse ") and " no: " in line and "deepseek_v32" in line for line in lines)
    assert str(top) not in got.stdout, "a reason without the folder, which the name stands for"


def test_a_table_fits_the_terminal(top):
    piped = [line.split() for line in models(top).stdout.splitlines()]
    for columns, left_out in [(80, ["family", "form", "last used"]), (120, ["last used"]), (160, [])]:
        lines = on_terminal(columns, "models", top)
        assert max(map(len, lines)) <= columns and not any(line != line.rstrip() for line in lines)
        assert [head for head in ["model", "family", "parameters", "form", "context", "on disk", "takes", "last used", "served here?"] if head not in lines[0]] == left_out
        (row,) = (line for line in lines if line.startswith("qwen3 "))
        assert lines[0].index("served here?") == row.index("yes") and row.endswith("  yes")
        # A reason goes on below its row, between words.
        at = next(i for i, line in enumerate(lines) if line.startswith("sparse "))
        assert "no: config.json: models of type deepseek_v32 are not computed: an indexer" in " ".join(" ".join(lines[at:at + 4]).split())
        assert sum(line[0] != " " for line in lines) == len(piped), "a row begins with its model"


def test_a_long_name_has_a_line_of_its_own(tmp_path):
    name = "a-model-whose-name-leaves-no-place-for-further-columns-of-a-terminal"
    (tmp_path / name).symlink_to(DATA / "qwen3")
    heads, first, second = on_terminal(80, "models", tmp_path)
    assert first == name and heads.index("served") == second.index("yes")


@pytest.mark.parametrize("columns", [80, 100])
def test_a_plan_fits_the_terminal(columns):
    lines = on_terminal(columns, "plan", TOP / "models/canary")
    assert max(map(len, lines)) <= columns
    head = next(line for line in lines if line.startswith("account "))
    together = next(line for line in lines if line.startswith("together "))
    assert len(head) == len(together) and head.endswith("at most")


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


# ---- GGUF files in folders ----


def gguf(**extra):
    """A GGUF file without tensors: enough to be found, and refused with a reason."""
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    pairs = b"".join(text(k) + struct.pack("<I", 8) + text(v) for k, v in extra.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(extra)) + pairs


def test_each_gguf_file_is_a_model_and_is_called_by_its_name(tmp_path):
    repo = tmp_path / "publisher/repo"
    repo.mkdir(parents=True)
    other = tmp_path / "another/repo2"
    other.mkdir(parents=True)
    whole = gguf(**{"general.architecture": "no-such"})
    for name in ["m-Q4_0.gguf", "m-Q8_0.gguf", "big-00001-of-00003.gguf", "big-00002-of-00003.gguf", "big-00003-of-00003.gguf", "half-00002-of-00002.gguf"]:
        (repo / name).write_bytes(whole)
    (repo / "mmproj-m-f16.gguf").write_bytes(gguf(**{"general.architecture": "clip"}))
    (repo / "config.json").write_text("{}")
    (other / "m-Q4_0.gguf").write_bytes(whole)
    found = json.loads(models(tmp_path, "--json").stdout)["models"]
    assert [m["id"] for m in found] == ["repo2/m-Q4_0", "big", "half", "repo/m-Q4_0", "m-Q8_0", "mmproj-m-f16"], found
    by_id = {m["id"]: m for m in found}
    assert by_id["big"]["disk_bytes"] == 3 * len(whole) and by_id["m-Q8_0"]["path"] == str(repo / "m-Q8_0.gguf")
    assert "architecture 'no-such'" in by_id["m-Q8_0"]["reason"] and "a vision encoder (mmproj)" in by_id["mmproj-m-f16"]["reason"]
    home = tmp_path / "home"
    (home / ".lmstudio").mkdir(parents=True)
    (home / ".lmstudio/models").symlink_to(tmp_path / "publisher/..")
    got = subprocess.run([PROGRAM, "models", "--json"], capture_output=True, text=True, timeout=60, env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home)})
    assert {m["id"] for m in json.loads(got.stdout)["models"]} >= set(by_id), got.stderr
