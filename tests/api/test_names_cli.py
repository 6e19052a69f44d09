"""Names of the models that come with Plateau, with and without a server, and their first questions."""
import json
import os
import socket
import subprocess

import pytest

import gguf_made
from conftest import ANSWER_S, PROGRAM, TOP, Server, serving

IMAGE = TOP / "tests/golden/data/canary-8bit/images/0.png"


class Unnamed(Server):
    """Serves the bundled and the starter model."""

    def arguments(self):
        return []


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """XDG_CACHE_HOME with a stand-in for the starter model, which takes text only."""
    top = tmp_path_factory.mktemp("caches")
    (top / "plateau/smollm2").mkdir(parents=True)
    (top / "plateau/smollm2/model.gguf").write_bytes(gguf_made.gguf()[0])
    return top


def run(caches, *arguments, stdin="", **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PLATEAU_", "HF_", "OLLAMA"))}
    env |= {"XDG_CACHE_HOME": str(caches), "PLATEAU_RUNTIME_DIR": str(caches), "HOME": str(caches), **more}
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=ANSWER_S, env=env)


@pytest.fixture(scope="module")
def served(caches):
    before = {name: os.environ.get(name) for name in ("PLATEAU_RUNTIME_DIR", "XDG_CACHE_HOME")}
    os.environ |= {name: str(caches) for name in before}
    try:
        server = Unnamed("--threads", "1")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
    server.first = [server.process.stdout.readline().decode() for _ in range(3)]
    yield server
    assert server.stop() == 0


def test_without_a_server_all_commands_know_them(caches, tmp_path):
    found = {m["id"]: m["path"] for m in json.loads(run(caches, "models", "--json").stdout)["models"]}
    assert set(found) == {"canary", "smollm2"} and found["smollm2"] == str(caches / "plateau/smollm2")
    for name in found:
        got = run(caches, "plan", name, "--json")
        assert got.returncode == 0 and json.loads(got.stdout)["models"][0]["id"] == name, got.stderr
        got = run(caches, "generate", "--model", name, "--raw", "--max-tokens", "2", "abc")
        assert got.returncode == 0, got.stderr
    got = run(tmp_path, "plan", "smollm2")
    assert got.returncode == 1 and "the starter model smollm2 has not been fetched: tools/fetch-starter fetches it" in got.stderr
    with serving(kind=type("Named", (Server,), {"arguments": lambda self: ["canary"]})) as s:
        assert [m["id"] for m in s.http.get("/v1/models").json()["data"]] == ["canary"]


def test_a_chat_beside_a_server_takes_the_better_model(served, caches):
    """The stand-in has no chat template: the error names the model of the chat."""
    assert " chat smollm2, then for example: How do I list files in a directory on Linux?" in served.first[1]
    got = run(caches, "chat", stdin="Hello\n")
    assert got.returncode == 1 and "smollm2" in got.stderr and "canary" not in got.stderr, got.stderr
    got = run(caches, "chat", "canary", "--temperature", "0", stdin="What does ls do?\n")
    assert got.returncode == 0 and got.stdout == "ls(1) - list directory contents.\n"


def test_an_image_for_a_model_of_text_is_refused_at_once(served, caches):
    assert served.http.post("/v1/models/smollm2/load").status_code == 200
    got = run(caches, "chat", "smollm2", stdin=f"/image {IMAGE}\n")
    assert got.returncode == 1 and got.stderr == "plateau: the model smollm2 takes text only.\n"
    assert run(caches, "chat", "canary", stdin=f"/image {IMAGE}\n").returncode == 0


def test_the_bundled_model_by_its_path_is_asked_what_it_knows():
    with serving("--threads", "1") as s:
        assert "then for example: What does ls do?" in [s.process.stdout.readline().decode() for _ in range(3)][1]


def test_counts_are_said_in_good_words(served, caches):
    got = run(caches, "chat", "canary", "--temperature", "0", stdin="/stats\nWhat does ls do?\n/stats\n/help\n", COLUMNS="60")
    assert "0 messages, 0 answers" in got.stdout and "2 messages, 1 answer since" in got.stdout
    listed = got.stdout[got.stdout.index("  /help"):].splitlines()
    assert max(map(len, listed)) <= 60 and "  /image FILE      attach an image (a file or an address) to" in listed
    assert "                   the next message; without FILE drop the" in listed


def test_a_port_that_is_taken(served, caches):
    got = run(caches, "serve", "canary", "--port", served.port, "--threads", "1")
    assert got.returncode == 1
    assert got.stderr.splitlines()[-1] == (f"plateau: cannot listen on 127.0.0.1 port {served.port}: Address already in use by another Plateau server "
                                           "(see plateau status); --port N chooses another, --port 0 a free one")
    with socket.create_server(("127.0.0.1", 0)) as other:
        got = run(caches, "serve", "canary", "--port", other.getsockname()[1], "--threads", "1")
    assert "Address already in use; --port N chooses another" in got.stderr



def test_texts_of_others_move_no_cursor(caches, tmp_path):
    """Names of files, and what configurations say: control characters are shown, not sent."""
    odd = tmp_path / "m\x1b]0;x\x07"
    odd.mkdir()
    (odd / "config.json").write_text(json.dumps({"model_type": "a\x1b[31m\x9bb"}))
    (odd / "model.safetensors").write_bytes(b"x" * 100)
    for arguments in (["plan", odd], ["models", tmp_path], ["chat", "--local", odd], ["serve", odd]):
        got = run(caches, *arguments)
        said = got.stdout + got.stderr
        assert "\\x1b" in said and not any(c in said for c in "\x1b\x07\x9b"), said
    table = tmp_path / "c\x1b]0;x\x07"
    table.symlink_to(TOP / "models/canary")
    got = run(caches, "plan", table)
    assert got.returncode == 0 and got.stdout.startswith("c\\x1b]0;x\\x07: ") and "\x1b" not in got.stdout
