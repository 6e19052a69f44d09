"""plateau pack: a packed file answers as its source does, its pages are shared, and packing goes on after a
kill."""
import collections
import json
import os
import pathlib
import random
import re
import subprocess
import time

import pytest

from conftest import MODEL, PROGRAM, Server, account, serving, until

QUESTION = {"content": "What does mkdir do?", "max_tokens": 24, "temperature": 0, "logprobs": True, "top_logprobs": 3}


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


def pack(*arguments):
    got = run("pack", *arguments, "--json")
    assert (got.returncode, got.stderr) == (0, "")
    return json.loads(got.stdout)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    out = tmp_path_factory.mktemp("packed") / "small.plateau"
    done = pack(MODEL, out)
    assert done["bytes"] == out.stat().st_size > done["weight_bytes"] and done["resumed_bytes"] == 0
    return out


def other(path, *options):
    """A server of that model."""

    class Other(Server):
        def arguments(self):
            return [str(path), *options]

    return Other


def answer(server):
    reply = server.chat(**QUESTION).json()
    return reply["choices"], reply["usage"]


def weights_of(server):
    """The lines of the packed weights in the process's memory map, all of their mappings: name to KiB."""
    text = pathlib.Path(f"/proc/{server.process.pid}/smaps").read_text()
    mapped = re.findall(r"^[0-9a-f]+-[0-9a-f]+ r--s .*\.plateau\n((?:\w+: .*\n)+)", text, re.M)
    assert mapped, "nothing is mapped"
    total = collections.Counter()
    for lines in mapped:
        total.update({key: int(value) for key, value in re.findall(r"^(\w+): +(\d+) kB", lines, re.M)})
    return total


@pytest.mark.smoke
def test_a_packed_file_answers_as_its_source_and_is_shared(packed):
    with serving(kind=other(MODEL)) as source:
        wanted = answer(source)[0]
    with serving(kind=other(packed)) as first, serving(kind=other(packed)) as second:
        assert answer(first) [0] == wanted and answer(second)[0] == wanted
        assert first.http.get("/v1/models").json()["data"][0]["id"] == "small"
        for server in first, second:
            pages = weights_of(server)
            assert pages["Rss"] > 10000 and pages["Private_Clean"] + pages["Private_Dirty"] == 0
            weights = account(server.memory(), "weights")
            assert weights["class"] == "file" and weights["used_bytes"] == weights["planned_bytes"] > 10 << 20


def rss_anon(server):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"^RssAnon:\s+(\d+) kB", text, re.M)[1]) << 10


def test_a_load_takes_no_memory_for_weights_and_what_the_plan_says(packed):
    """Also with the MTP head. Beside workspace, engine, pools and tokenizer it is below 5 % of the file."""
    plan = json.loads(run("plan", packed, "--spec", "mtp", "--json").stdout)["models"][0]
    planned = {a["name"]: (a["class"], a["limit_bytes"]) for a in plan["accounts"]}
    with serving("--model-dir", packed.parent, "--alias", "packed=small", "--spec", "mtp") as server:
        before = rss_anon(server)
        assert server.http.post("/v1/models/small/load").status_code == 200
        model = account(server.memory(), "small")
        used = {a["name"]: (a["class"], a["used_bytes"], a["planned_bytes"]) for a in model["children"]}
        for name in "weights", "mtp":
            assert (used[name][0], used[name][2]) == planned[name] and used[name][1] == used[name][2]
        assert planned["mtp"][1] == 2 << 20  # rows of the draft vocabulary; the head is in `weights`
        assert used["tokenizer"][1] <= planned["tokenizer"][1] > 1 << 20
        own = sum(bytes for kind, bytes, _ in used.values() if kind == "anon")
        # The allocator gives back what the load itself took.
        until(lambda: rss_anon(server) - before < own + 0.05 * packed.stat().st_size, seconds=20)
        # Memory besides workspace and tables for requests does not grow with the file.
        rest = own - sum(used[name][1] for name in ("workspace", "engine", "pools", "tokenizer", "mtp"))
        assert rest < 0.05 * packed.stat().st_size, used
        assert server.http.post("/v1/models/small/unload").status_code == 200


def test_commands_take_a_packed_file(packed, tmp_path):
    asked = ["generate", "--temperature", "0", "--max-tokens", "12", "What does ls do?", "--model"]
    assert run(*asked, packed).stdout == run(*asked, MODEL).stdout != ""
    lines = {line["name"]: line for line in json.loads(run("plan", packed, "--json").stdout)["models"][0]["accounts"]}
    assert lines["weights"]["class"] == "file"
    found = json.loads(run("models", packed.parent, "--json").stdout)["models"]
    assert [(m["id"], m["state"]) for m in found] == [("small", "fits")]
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 20)
    evaluated = [json.loads(run("eval", *model, "--text", text, "--ctx", "64", "--json").stdout)
                 for model in ([packed], [MODEL])]
    assert evaluated[0]["perplexity"] == evaluated[1]["perplexity"]


@pytest.mark.parametrize("change, message", [
    (lambda b: b[:-1], "was cut or grew"),
    (lambda b: b[: len(b) // 2], "was cut or grew"),
    (lambda b: b[:5000] + bytes([b[5000] ^ 1]) + b[5001:], "is damaged: a checksum of its weights differs"),
    (lambda b: b[:-40] + bytes([b[-40] ^ 1]) + b[-39:], "its table is damaged"),
    (lambda b: b[:8] + bytes([b[8] ^ 1]) + b[9:], "its first page is damaged"),
    (lambda b: b"x" + b[1:], "is not a packed file"),
    (lambda b: b[:100], "is not a packed file, or was cut"),
])
def test_damage_is_refused(packed, tmp_path, change, message):
    path = tmp_path / "other.plateau"
    path.write_bytes(change(packed.read_bytes()))
    got = run("generate", "x", "--model", path)
    assert got.returncode == 1 and message in got.stderr and str(path) in got.stderr


def test_what_was_packed_for_something_else_says_what_to_do(packed, tmp_path):
    for options, message in ((["--compute", "f32"], "again with --compute f32"), (["--quant", "q4"], "again with --quant q4"),
                             (["--device", "fake:0"], "is packed for the CPU")):
        got = run("generate", "x", "--model", packed, *options)
        assert got.returncode == 1 and message in got.stderr
    assert "exists" in run("pack", MODEL, packed).stderr
    assert "is a packed file" in run("pack", packed, tmp_path / "again.plateau").stderr
    assert run("pack", MODEL).returncode == 2
    assert not list(tmp_path.iterdir())


def test_packing_goes_on_after_a_kill(packed, tmp_path):
    wanted = packed.read_bytes()
    for turn in range(4):
        out = tmp_path / f"{turn}.plateau"
        process = subprocess.Popen([PROGRAM, "pack", MODEL, out], stdout=subprocess.DEVNULL)
        time.sleep(random.uniform(0.01, 0.12))
        process.kill()
        process.wait()
        if not out.exists():
            pack(MODEL, out)
        assert out.read_bytes() == wanted
        assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(str(turn))) == [out.name]


def test_a_file_that_is_cut_while_it_is_served(packed, tmp_path):
    path = tmp_path / "cut.plateau"
    whole = packed.read_bytes()
    path.write_bytes(whole)
    with serving(kind=other(path)) as server:
        wanted = answer(server)
        os.truncate(path, len(whole) // 3)
        assert server.chat(**QUESTION).status_code >= 500
        server.says("failure_unload")
        assert "was cut" in server.chat(**QUESTION).text
        path.write_bytes(whole)  # a file that has changed is tried at once
        assert answer(server)[0] == wanted[0]
