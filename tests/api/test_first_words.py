"""The first words of a server, the page's address, and chat with a model that a server has."""

import csv
import http.server
import json
import os
import pathlib
import re
import stat
import subprocess
import threading
import time

import pytest

from conftest import ANSWER_S, Server, serving, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
LS = "ls(1) - list directory contents."
TRIANGLE = "A green triangle on a gray background."


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


def run(home, *arguments, stdin="", **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLATEAU_") and "DISPLAY" not in k}
    env |= {"PLATEAU_RUNTIME_DIR": str(home), "XDG_STATE_HOME": str(home / "state"), **more}
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=ANSWER_S, env=env)


@pytest.fixture(scope="module")
def served(home):
    """A server whose admin socket is in `home`; `first` has the lines after the one with its address."""
    before = os.environ["PLATEAU_RUNTIME_DIR"]
    os.environ["PLATEAU_RUNTIME_DIR"] = str(home)
    try:
        server = Server("--threads", "1", "--alias", "acme/dog", "--api-key", "a-secret", key="a-secret")
    finally:
        os.environ["PLATEAU_RUNTIME_DIR"] = before
    server.first = [server.process.stdout.readline().decode() for _ in range(3)]
    yield server
    assert server.stop() == 0


def test_a_server_says_what_to_do_next(served):
    page, question, model = served.first
    assert f"http://127.0.0.1:{served.port}/" in page and "#key=" not in page, "no key where no terminal is"
    assert " chat canary" in question and " pull " in model and " serve " in model


def first_question(tmp_path, *models):
    command = [PROGRAM, "serve", "--port", "0", "--memory-limit", "2G", "--max-model-len", "1024", *models]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path) as process:
        try:
            return next(line for line in process.stdout if line.startswith("  a question"))
        finally:
            process.terminate()


def test_the_question_fits_the_model(tmp_path):
    (tmp_path / "canary").symlink_to(ROOT / "models/canary")
    (tmp_path / "another").symlink_to(ROOT / "models/canary")
    alone = first_question(tmp_path, "canary")
    assert "chat canary," in alone and alone.endswith("What does ls do?\n")
    both = first_question(tmp_path, "canary", "another")
    assert "chat another," in both and both.endswith("How do I list files on Linux?\n")


def test_a_load_says_what_it_sets_aside_and_what_halves_it(served):
    line = next(line for line in served.lines if "event=model_loaded" in line)
    halved, context = re.search(r'kv_halved_by="--max-model-len \d+ or (--kv-dtype \w+)"', line), int(re.search(r" context=(\d+)", line)[1])
    # The whole context again.
    option = ["--max-model-len", str(context), "--compaction-reserve", str(32768 - context)]
    assert int(re.search(r"set_aside_bytes=(\d+)", line)[1]) > int(re.search(r"kv_bytes=(\d+)", line)[1]) > 0
    with serving("--threads", "1", "--alias", "dog", *option, *halved[1].split()) as other:
        found = next(line for line in other.lines if "event=model_loaded" in line)
    assert 2 * int(re.search(r"kv_bytes=(\d+)", found)[1]) == int(re.search(r"kv_bytes=(\d+)", line)[1])


def test_open_gives_the_pages_address_with_the_key(served, home):
    got = run(home, "open")
    assert got.returncode == 0, got.stderr
    address, key = got.stdout.strip().split("/#key=")
    assert address == served.url
    assert served.http.get("/api/memory", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def test_a_browser_gets_a_private_file_and_no_key(served, home, tmp_path):
    browser = tmp_path / "xdg-open"
    browser.write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/seen; cat "$1" >{tmp_path}/page\n')
    browser.chmod(0o755)
    got = run(home, "open", DISPLAY=":9", PATH=f"{tmp_path}:{os.environ['PATH']}")
    seen = (tmp_path / "seen").read_text().strip()
    assert got.returncode == 0 and "key" not in got.stdout + seen and f":{served.port}/" in got.stdout
    assert stat.S_IMODE(os.stat(seen).st_mode) == 0o600
    key = re.search("#key=([0-9a-f]+)", (tmp_path / "page").read_text())[1]
    assert run(home, "open", "--print").stdout.strip().endswith("#key=" + key)


def test_open_without_a_server(tmp_path):
    got = run(tmp_path, "open")
    assert got.returncode == 1 and "plateau serve" in got.stderr


@pytest.mark.parametrize("name", [[], ["canary"], ["acme/dog"]])
def test_chat_asks_the_server_of_this_machine(served, home, name):
    before = len(served.lines)
    got = run(home, "chat", "--temperature", "0", "--stats", *name, stdin="What does ls do?\n")
    assert got.returncode == 0 and got.stdout == LS + "\n", got.stderr
    assert re.search(r"\[\d+ tokens \(\d+ cached\), first after [\d.]+ s; \d+ tokens written", got.stderr)
    until(lambda: len(served.lines) > before)  # the server answered


def test_an_option_of_a_load_loads_here(served, home):
    for option in (["--local"], ["--max-model-len", "512"]):
        got = run(home, "chat", "--temperature", "0", *option, stdin="What does ls do?\n/stats\n")
        assert got.stdout.startswith(LS) and "Memory\n" in got.stdout


def test_chat_with_an_address(served, home, tmp_path):
    key = tmp_path / "keys"
    key.write_text("a-secret\n")
    at = ["chat", "--temperature", "0", "--api-key-file", key, "--url"]
    image, kept = tmp_path / "a b.png", tmp_path / "kept.json"
    image.write_bytes((ROOT / "tests/golden/data/canary-8bit/images/0.png").read_bytes())
    address = f"file://{tmp_path}/a%20b.png"
    lines = f"I live in London.\nWhere do I live?\n/stats\n/reset\n/image {address}\nWhat do you see?\n/save {kept}\n"
    got = run(tmp_path, *at, served.url + "/v1/", stdin=lines)
    assert got.returncode == 0, got.stderr
    assert "You live in London.\n" in got.stdout and f"Server\n  {served.url}\n" in got.stdout
    assert got.stdout.endswith(TRIANGLE + "\n")
    assert served.chat(**json.loads(kept.read_text()), temperature=0).status_code == 200


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--api-key", "a-secret", "dog"], "has no model dog; it has canary, acme/dog"),
        ([], "needs a key: --api-key-file FILE or PLATEAU_API_KEY"),
        (["--api-key", "wrong"], "refuses the key"),
        (["--api-key", "a-secret", "--local"], "give one of them"),
    ],
)
def test_mistakes_about_a_server(served, tmp_path, arguments, words):
    got = run(tmp_path, "chat", "--url", served.url, *arguments, stdin="Hi\n")
    assert got.returncode != 0 and words in got.stderr and got.stdout == ""
    assert "a-secret" not in got.stderr


def test_addresses_of_files_that_are_none(served, tmp_path):
    for address in ("file://relative.png", "file:///a%00b", "file://evil/x.png", f"file://localhost{tmp_path}/none.png"):
        got = run(tmp_path, "chat", "--url", served.url, "--api-key", "a-secret", stdin=f"/image {address}\n")
        assert got.returncode == 1 and ("a path from the root" in got.stderr or "none.png" in got.stderr), got.stderr


def test_what_a_server_refuses_is_said_and_the_chat_goes_on(served, home):
    got = run(home, "chat", "--temperature", "0", stdin="x " * 60000 + "\nWhat does ls do?\n")
    assert got.returncode == 1 and got.stdout == LS + "\n" and "context" in got.stderr


def test_bench_measures_the_server_of_this_machine(served, home):
    got = run(home, "bench", "--quick", "--tokens", "16", "--json")
    assert got.returncode == 0, got.stderr
    found = json.loads(got.stdout)
    assert found["model"] == "canary" and [d["clients"] for d in found["decode"]] == [1, 8]
    assert all(d["tokens"] == 16 and d["tokens_per_second"] > 0 and d["first_token_ms"] > 0 for d in found["decode"])
    assert len(found["prefill"]) == 3 and found["peak_bytes"] > 1 << 20 and found["planned_bytes"] > 30 << 20
    assert found["left_bytes"] is None, "it unloads no model of a server that others use"
    for p, about in zip(found["prefill"], (128, 512, 4096)):
        assert about * 0.5 < p["prompt_tokens"] < about * 2
        assert p["found_tokens"] > p["prompt_tokens"] - 64, "the second time it is in the prefix cache"
        assert p["first_token_ms"] > 0 and p["found_first_token_ms"] > 0
    assert_shares(served, found)


def assert_shares(server, found):
    """Rates are the tokens' rates times the model's work; shares are of the machine."""
    machine, work = found["machine"], server.http.get("/v1/models/canary").json()["work"]
    assert machine["read_bytes_per_second"] > 1e8 and machine["multiply_operations_per_second"] > 1e8 and machine["threads"] >= 1
    one, eight = found["decode"]
    assert one["read_bytes_per_second"] == pytest.approx(work["token_bytes"] * one["tokens_per_second"], rel=1e-3)
    assert 0.02 < one["read_share"] < 50
    assert work["routed"] and eight["read_share"] is None, "which experts eight sequences read is not known"
    for p in found["prefill"]:
        operations = work["token_operations"] * p["prompt_tokens"] + work["logits_operations"]
        assert p["operations_per_second"] == pytest.approx(operations * 1000 / p["first_token_ms"], rel=1e-3)
        assert 0.001 < p["multiply_share"] < 50


def test_bench_starts_a_server_of_its_own(tmp_path):
    got = run(tmp_path, "bench", "--local", "--quick", "--tokens", "8", "--csv", PLATEAU_MAX_MODEL_LEN="4096")
    assert got.returncode == 0, got.stderr
    rows = list(csv.DictReader(got.stdout.splitlines()))
    kinds = [row["measurement"] for row in rows]
    assert kinds == ["decode"] * 2 + ["prefill", "found"] * 2 + ["machine_read", "machine_multiply", "planned", "peak", "left"]
    assert all(float(row["share"]) > 0 and float(row["rate"]) > 0 for row in rows if row["measurement"] in ("prefill",))
    assert {row["model"] for row in rows} == {"canary"} and all(float(row["tokens_per_second"]) > 0 for row in rows if row["measurement"] == "decode")
    memory = {row["measurement"]: int(row["bytes"]) for row in rows[-3:]}
    assert 0 < memory["left"] < memory["peak"] and memory["planned"] > 30 << 20
    assert not [p for p in pathlib.Path("/proc").glob("[0-9]*/environ") if b"HOME=" + bytes(tmp_path) in _read(p)], "its server has ended"


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.fixture
def short():
    """A server whose contexts have no room for the longest prompt of a measurement."""
    server = Server("--threads", "1", "--max-model-len", "4096", "--api-key", "a-secret", key="a-secret")
    yield server
    assert server.stop() == 0


def test_bench_as_a_table_and_its_mistakes(short, tmp_path):
    got = run(tmp_path, "bench", "--quick", "--tokens", "2", "--url", short.url, "--api-key", "a-secret")
    assert got.returncode == 0 and got.stdout.startswith(f"canary at {short.url}, 2 tokens an answer")
    assert "peak" not in got.stdout, "an API key does not show it"
    assert re.search(r"this machine reads [\d.]+ GB/s and multiplies [\d.]+ GFLOP/s \(f32\), with \d+ threads", got.stdout)
    got = run(tmp_path, "bench", "--json", "--csv")
    assert got.returncode == 2 and "exclude each other" in got.stderr
    got = run(tmp_path, "bench", "--local", tmp_path / "none")
    assert got.returncode == 1 and "none" in got.stderr and "the server of the measurement did not start" in got.stderr
    for arguments in (["dog"], ["--name", "dog"]):
        got = run(tmp_path, "bench", "--url", short.url, "--api-key", "a-secret", *arguments)
        assert got.returncode == 1 and "has no model dog" in got.stderr
    for arguments, words in ((["--name", "dog"], "the server of --url"), (["--url", short.url, "--local"], "give one of them")):
        got = run(tmp_path, "bench", *arguments)
        assert got.returncode == 2 and words in got.stderr


class OtherServer(http.server.BaseHTTPRequestHandler):
    """OpenAI's API as another program may have it: models and completions, nothing about memory."""

    def do_GET(self):
        body = json.dumps({"object": "list", "data": [{"id": "theirs"}]}).encode() if self.path == "/v1/models" else b"{}"
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked)
        self.send_response(200)
        self.end_headers()
        for i in range(asked["max_tokens"]):
            self.wfile.write(b'data: {"choices": [{"index": 0, "text": "a"}]}\n\n')
            time.sleep(0.02)
        usage = {"prompt_tokens": len(asked["prompt"].split()) * 3, "completion_tokens": asked["max_tokens"]}
        self.wfile.write(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n".encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def other():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), OtherServer)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_bench_measures_another_programs_server_in_the_same_way(other, tmp_path):
    url = f"http://127.0.0.1:{other.server_port}"
    got = run(tmp_path, "bench", "--quick", "--tokens", "4", "--json", "--url", url)
    assert got.returncode == 0, got.stderr
    found = json.loads(got.stdout)
    assert found["model"] == "theirs" and found["machine"] is None and found["decode"][0]["read_share"] is None
    assert len(found["prefill"]) == 3 and all(p["found_tokens"] == 0 for p in found["prefill"])
    assert found["decode"][0]["tokens_per_second"] < 250, "it sends one each 20 ms"
    assert {asked["model"] for asked in other.asked} == {"theirs"}
    table = run(tmp_path, "bench", "--quick", "--tokens", "4", "--url", url).stdout
    assert "no shares of what the machine can do: the server does not say" in table


def test_a_models_files_give_another_server_its_shares(other, tmp_path):
    files = ROOT / "tests/golden/data/qwen3"
    got = run(tmp_path, "bench", files, "--quick", "--tokens", "4", "--json", "--name", "theirs", "--url", f"http://localhost:{other.server_port}/v1")
    assert got.returncode == 0, got.stderr
    found = json.loads(got.stdout)
    assert all(d["read_share"] > 0 for d in found["decode"]) and all(p["multiply_share"] > 0 for p in found["prefill"])


def test_a_key_that_goes_nowhere_is_said(served, home):
    for command, status in ((["bench", "--local", "none"], 1), (["chat"], 0)):
        got = run(home, *command, PLATEAU_API_KEY="no-use", stdin="What does ls do?\n")
        assert got.returncode == status and "the API key is not used" in got.stderr, got.stderr
        assert "no-use" not in got.stderr
