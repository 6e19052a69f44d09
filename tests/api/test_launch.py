"""plateau launch: a client's settings for one session, from a server that it finds or starts."""

import json
import os
import pathlib
import re
import shlex
import signal
import subprocess

import pytest

from conftest import ANSWER_S, MODEL, READY_S, Server, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
CLAUDE = ["ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL"]
KEY = "a-secret"
# Says its arguments and its environment, and asks for the models as the client would.
STUB = """#!/usr/bin/env python3
import json, os, sys, urllib.request
env = dict(os.environ)
url, key = {place}
asked = urllib.request.Request(url + "/models", headers={{"authorization": "Bearer " + key}})
models = [m["id"] for m in json.load(urllib.request.urlopen(asked))["data"]]
print(json.dumps(dict(args=sys.argv[1:], env=env, models=models, url=url)), flush=True)
sys.stdin.read()
sys.exit(7)
"""
PLACES = {
    "claude": 'env["ANTHROPIC_BASE_URL"] + "/v1", env["ANTHROPIC_AUTH_TOKEN"]',
    "codex": '[json.loads(a.split("=", 1)[1]) for a in sys.argv if "base_url" in a][0], env["LOCAL_KEY"]',
    "opencode": '[json.loads(env["OPENCODE_CONFIG_CONTENT"])["provider"]["plateau"]["options"][k] for k in ("baseURL", "apiKey")]',
    "aider": 'env["OPENAI_API_BASE"], env["OPENAI_API_KEY"]',
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A place for admin sockets, and a folder of programs that stand for the clients."""
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    for name, place in PLACES.items():
        (home / "bin" / name).write_text(STUB.format(place=place))
        (home / "bin" / name).chmod(0o755)
    return home


def environment(home, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PLATEAU_", "ANTHROPIC_", "OPENAI_"))}
    return env | {"PLATEAU_RUNTIME_DIR": str(home), "HOME": str(home), "PATH": f"{home}/bin:{os.environ['PATH']}", **more}


def run(home, *arguments, **more):
    return subprocess.run([PROGRAM, "launch", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=ANSWER_S, env=environment(home, **more))


@pytest.fixture(scope="module")
def served(home):
    before = os.environ["PLATEAU_RUNTIME_DIR"]
    os.environ["PLATEAU_RUNTIME_DIR"] = str(home)
    try:
        server = Server("--threads", "1", "--max-model-len", "4096", "--alias", "acme/dog", "--api-key", KEY, key=KEY)
    finally:
        os.environ["PLATEAU_RUNTIME_DIR"] = before
    yield server
    assert server.stop() == 0


def said(got):
    """Returns the stub's output; it ended with its own status."""
    assert got.returncode == 7, got.stderr
    return json.loads(got.stdout)


def overrides(args):
    """Codex's, by name."""
    assert args[0::2] == ["-c"] * (len(args) // 2)
    return {k: json.loads(v) for k, v in (a.split("=", 1) for a in args[1::2])}


def test_claude_gets_its_variables(served, home):
    env = said(run(home, "claude", "--api-key", KEY, ANTHROPIC_API_KEY="sk-ant-of-the-user"))["env"]
    assert env["ANTHROPIC_BASE_URL"] == served.url and env["ANTHROPIC_AUTH_TOKEN"] == KEY
    assert {env[name] for name in CLAUDE} == {"canary"}
    assert env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "4096" and "ANTHROPIC_API_KEY" not in env


def test_codex_gets_overrides_before_its_own_arguments(served, home):
    args = said(run(home, "codex", "--api-key", KEY, "--", "exec", "--json", "a b"))["args"]
    assert args[-3:] == ["exec", "--json", "a b"]
    assert overrides(args[:-3]) == {
        "model": "canary", "model_provider": "plateau", "model_context_window": 4096, "model_providers.plateau.name": "Plateau",
        "model_providers.plateau.base_url": served.url + "/v1", "model_providers.plateau.env_key": "LOCAL_KEY",
        "model_providers.plateau.wire_api": "responses"}


def test_opencode_gets_a_configuration(served, home):
    env = said(run(home, "opencode", "--api-key", KEY))["env"]
    config = json.loads(env["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "plateau/canary"
    assert config["provider"]["plateau"]["models"]["canary"]["limit"] == {"context": 4096, "output": 1024}


def test_aider_gets_variables_and_a_model(served, home):
    heard = said(run(home, "aider", "--api-key", KEY, "--model", "acme/dog", "--", "--message", "hi"))
    assert heard["args"] == ["--model", "openai/acme/dog", "--message", "hi"]
    assert heard["env"]["OPENAI_API_BASE"] == served.url + "/v1"


@pytest.mark.parametrize("client", PLACES)
def test_the_settings_reach_the_server(served, home, client):
    """The stub asked with them."""
    assert "canary" in said(run(home, client, "--url", served.url, "--api-key", KEY))["models"]


def test_print_says_lines_for_a_shell_and_runs_nothing(served, home):
    got = run(home, "claude", "--print", "--api-key", KEY, "--", "-p", "what's up")
    assert got.returncode == 0, got.stderr
    *lines, command = got.stdout.splitlines()
    assert f"export ANTHROPIC_BASE_URL={served.url}" in lines and "unset ANTHROPIC_API_KEY" in lines
    assert shlex.split(command) == ["claude", "-p", "what's up"]
    again = subprocess.run(["sh", "-c", got.stdout], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(home))
    assert said(again)["models"][0] == "canary"


def test_a_small_context_is_noted(served, home):
    assert "has a context of 4096 tokens, and codex needs about" in run(home, "codex", "--print", "--api-key", KEY).stderr


def test_the_admin_key_is_not_for_a_client(served, home):
    got = run(home, "claude")
    assert got.returncode == 1 and "needs a key: --api-key-file" in got.stderr and not got.stdout


def test_no_file_of_the_user_changes(served, home):
    before = {p: p.stat().st_mtime_ns for p in home.rglob("*") if p.is_file()}
    for client in PLACES:
        said(run(home, client, "--api-key", KEY))
    assert {p: p.stat().st_mtime_ns for p in home.rglob("*") if p.is_file()} == before


def test_a_model_that_the_server_lacks_is_named(served, home):
    got = run(home, "claude", "--url", served.url, "--api-key", KEY, "--model", "lion")
    assert got.returncode == 1 and "has no model lion; it has canary" in got.stderr


@pytest.mark.parametrize("arguments,words", [
    ([], "launch needs a client: claude, codex, opencode, aider"),
    (["cluade"], "there are no settings for the client cluade (did you mean claude?)"),
    (["claude", "codex"], "codex is one argument too many"),
])
def test_a_client_has_to_be_known(home, arguments, words):
    got = run(home, *arguments)
    assert got.returncode == 2 and words in got.stderr


def test_a_client_that_is_not_installed_is_named_with_how_to_get_it(home):
    got = run(home, "claude", PATH="/usr/bin:/bin")
    assert got.returncode == 1 and "claude is not installed" in got.stderr and "npm install -g @anthropic-ai/claude-code" in got.stderr


def test_print_starts_no_server(tmp_path):
    got = run(tmp_path, "claude", "--print")
    assert got.returncode == 1 and "no server of this machine has the model" in got.stderr and not got.stdout


def test_a_model_that_cannot_be_served_says_why(home, tmp_path):
    (tmp_path / "empty").mkdir()
    got = run(home, "claude", "--model", tmp_path / "empty", PLATEAU_RUNTIME_DIR=str(tmp_path))
    assert got.returncode == 1 and "the server did not start: " in got.stderr and "empty" in got.stderr


@pytest.mark.parametrize("end", ["by itself", signal.SIGKILL])
def test_a_server_that_it_started_ends_with_the_client(home, tmp_path, end):
    env = environment(home, PLATEAU_RUNTIME_DIR=str(tmp_path), PLATEAU_THREADS="1", PLATEAU_MAX_MODEL_LEN="4096",
                      PLATEAU_MEMORY_LIMIT="2G")
    with subprocess.Popen([PROGRAM, "launch", "claude", "--model", str(MODEL)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, env=env) as client:
        heard = json.loads(client.stdout.readline())
        assert heard["models"] == ["canary"] and heard["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "4096"
        [socket] = tmp_path.glob("*.sock")
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", heard["env"]["ANTHROPIC_BASE_URL"])
        if end == signal.SIGKILL:
            client.kill()
        client.stdin.close()
        assert client.wait(ANSWER_S) == (-signal.SIGKILL if end == signal.SIGKILL else 7)

    def gone():
        """the server has removed its socket"""
        return not socket.exists()

    until(gone, READY_S)
