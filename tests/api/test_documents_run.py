"""The commands and Python programs of README.md and docs/ run as they stand there, in a world that has what
they name: models, keys, a hub, a server. NOT_HERE lists the commands that need more, such as root."""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import httpx
import pytest

import gguf_made
from conftest import ADMIN_KEY, MODEL, PROGRAM, TOP, Server, until
from hub_stand_in import Hub, Model, folder
from test_draft_model import make as make_dense

def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name.replace("-", "_"), str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


check_commands = load(TOP / "tools/check-commands")
blocks, commands, first_word = check_commands.blocks, check_commands.commands, check_commands.first_word
DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
RUNS = ("plateau", "build/plateau", "./plateau", "curl", "printf", "openssl")
NOT_HERE = {
    "sudo": "root", "sudoedit": "root", "#": "a comment", "systemctl": "systemd", "journalctl": "systemd", "groupadd": "root", "chgrp": "root", "docker": "docker",
    "podman": "podman", "./run": "tools/fresh runs it", "./test": "tools/fresh runs it", "make": "builds", "ninja": "builds",
    "cmake": "builds", "tools/install-packages": "root", "tools/fresh": "root", "tools/fleet/fleet.py": "routers", "build/mkmodel": "not a part of the program",
    "build/bench/run": "not a part of the program", "build/bench/run/gpu_bench": "a GPU", "build/gpu-check": "a GPU", "bench/peers.py": "other servers", "bench/gates/gate.py": "a GPU", "llama-server": "another server", "numactl": "numactl",
    "source": "a shell", "claude": "clients.md says how it was tried", "aider": "as claude", "litellm": "as claude", "lm_eval": "as claude", "export": "of those two",
    "llm": "test_llm", "ssh": "another machine", "git": "the network"}
# Other names for what the world has.
NAMES = ["smollm2", "big", "Qwen3-4B", "Qwen/Qwen3-4B", "Qwen3-0.6B"]
QUESTION = "What does ls do?\n"
SECONDS = 200


def programs(path):
    return [b for b in blocks(path) if re.match(r"(?:from|import) ", b) and re.search(r"_base|base_url", b)]


class World:
    """A home, a checkout's folders, a hub with one model, and a server."""

    def __init__(self, home):
        self.home, files = home, folder(MODEL)
        self.hub = Hub({"Qwen/Qwen3-0.6B": Model(files), "unsloth/Qwen3-4B-GGUF": Model(gguf_made.files(["Qwen3-4B-Q4_K_M"]))})
        for name in ("build", "tests", "models", "docs", "LICENSE"):
            (home / name).symlink_to(pathlib.Path(PROGRAM).parent if name == "build" else TOP / name)
        for name in ("plateau", "bin/plateau"):
            (home / name).parent.mkdir(exist_ok=True)
            (home / name).symlink_to(PROGRAM)
        for name in ("claude", "codex"):  # programs of plateau launch
            (home / "bin" / name).symlink_to("/bin/true")
        for name in ("srv/models", "models-of-the-user", "etc/plateau", "ssd", "run", "cache"):
            (home / name).mkdir(parents=True)
        for name in ("srv/models/Qwen3-0.6B", "models-of-the-user/Qwen3-4B"):
            (home / name).symlink_to(MODEL)
        (home / "etc/plateau/admin-key").write_text(ADMIN_KEY)
        (home / "etc/plateau/plateau.ini").write_text("port = 8080\n")
        (home / "etc/plateau/agents.jsonl").write_text('{"messages": [{"role": "user", "content": "What does ls do?"}]}\n')
        (home / "key.txt").write_text("sk-of-a-client\n")
        (home / "shape.png").write_bytes((TOP / "tests/golden/data/canary-8bit/images/0.png").read_bytes())
        (home / "chat_template.jinja").write_text((MODEL / "chat_template.jinja").read_text())
        (home / "chats.txt").write_text((TOP / "LICENSE").read_text())
        (home / ".curlrc").write_text("fail-with-body\nsilent\n")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PLATEAU_", "HF_", "XDG_"))}
        self.env |= {"HOME": str(home), "HF_ENDPOINT": self.hub.url, "PLATEAU_RUNTIME_DIR": str(home / "run"), "TMPDIR": str(home),
                     "XDG_CACHE_HOME": str(home / "cache"), "PATH": f"{home}/bin:{os.environ['PATH']}", "KEY": "sk-of-a-client",
                     "PLATEAU_PORT": "0", "PLATEAU_QUICK": "yes", "PLATEAU_TOKENS": "4", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
        before = os.environ["PLATEAU_RUNTIME_DIR"]
        os.environ["PLATEAU_RUNTIME_DIR"] = str(home / "run")
        try:
            self.server = Server(*[o for name in NAMES for o in ("--alias", name)], "--embeddings", "--max-model-len=4096")
        finally:
            os.environ["PLATEAU_RUNTIME_DIR"] = before

    def close(self):
        self.server.stop()
        self.hub.close()

    def small(self):
        """A dense model with the tokenizer of MODEL."""
        directory = self.home / "small"
        return directory if directory.exists() else make_dense(directory, 1, 1)

    def told(self, text):
        """With the places of this world."""
        for old, new in [("~/models", f"{self.home}/models-of-the-user"), ("/srv/models", f"{self.home}/srv/models"),
                         ("/etc/plateau", f"{self.home}/etc/plateau"), ("/var/cache/plateau", f"{self.home}/ssd"),
                         ("https://models.example", self.server.url)]:
            text = text.replace(old, new)
        if "--quant" in text:  # needs a checkpoint of floats
            text = text.replace(f"{self.home}/models-of-the-user/Qwen3-4B", str(TOP / "tests/golden/data/qwen3"))
        if "SMALL" in text:
            text = text.replace("SMALL", str(self.small()))
        text = re.sub(r"\b(?:DIR|MODEL|SOURCE)\b(?![=./\w])", str(MODEL), text)
        return re.sub(r"127\.0\.0\.1:80[08]0", f"127.0.0.1:{self.server.port}", text)

    def run(self, command):
        got = subprocess.run(["bash", "-c", self.told(command)], cwd=self.home, env=self.env, input=QUESTION, capture_output=True,
                             text=True, timeout=SECONDS)
        assert got.returncode == 0, f"{command}\n{got.stdout[-2000:]}\n{got.stderr[-2000:]}"
        return got.stdout

    def serve(self, command):
        """It says where it listens, becomes ready, and ends well."""
        words = self.told(command).split("#")[0]
        with subprocess.Popen(["bash", "-c", "exec " + words], cwd=self.home, env=self.env, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True) as process:
            try:
                said = process.stdout.readline()
                where = re.search(r"listens on http://[\d.]+:(\d+)", said)
                assert where, f"{command}: {said}"

                def ready():
                    with contextlib.suppress(httpx.TransportError):
                        return httpx.get(f"http://127.0.0.1:{where[1]}/health").status_code == 200

                until(ready, SECONDS, 0.05)
            finally:
                process.terminate()
                process.stdout.close()
            assert process.wait(60) == 0, command


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    w = World(tmp_path_factory.mktemp("world"))
    yield w
    w.close()


def test_the_documents_have_commands():
    found = {str(path.relative_to(TOP)): [c for c in commands(path) if first_word(c) in RUNS] for path in DOCUMENTS}
    assert len(found["README.md"]) >= 5 and len(found["docs/getting-started.md"]) >= 10 and sum(map(len, found.values())) > 50


@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in DOCUMENTS if list(commands(p))], ids=lambda p: str(p.relative_to(TOP)))
def test_each_command_of_a_document_works(world, path):
    (world.home / "Qwen3-4B.plateau").unlink(missing_ok=True)
    for command in commands(path):
        word = first_word(command)
        if word in NOT_HERE or "cuda:" in command:
            continue
        assert word in RUNS, f"{path.name}: {command}: neither run here nor in NOT_HERE"
        if re.match(r"\S*plateau serve", command):
            world.serve(command)
        elif "man -l" not in command:
            world.run(command)


# Runs each program that a line of JSON has, and answers with its status and what it wrote to stderr. Programs
# are children of a process that has imported the clients already, which takes seconds of a processor.
RUNNER = """
import importlib.util, json, os, signal, sys, tempfile, types
for name in "openai", "anthropic":
    if importlib.util.find_spec(name):
        __import__(name)
for line in sys.stdin:
    with tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(0, 1)
            os.dup2(said.fileno(), 2)
            signal.alarm(SECONDS)
            sys.modules["__main__"] = program = types.ModuleType("__main__")
            exec(compile(json.loads(line), "program", "exec"), program.__dict__)
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(json.dumps([status, said.read()]), flush=True)
""".replace("SECONDS", str(SECONDS))


@pytest.fixture(scope="module")
def runner(world):
    """A function: status and stderr of a program."""
    with subprocess.Popen([sys.executable, "-c", RUNNER], cwd=world.home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**world.env, "OPENAI_API_KEY": "none"}) as process:
        def run(text):
            process.stdin.write(json.dumps(text) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield run
        process.stdin.close()


# The environments of `./test clients`.
OF_CLIENTS = any(importlib.util.find_spec(name) for name in ("instructor", "agents"))


def of_packages(text):
    return [m for m in re.findall(r"^(?:from|import) (\w+)", text, re.M) if importlib.util.find_spec(m) is None]


@pytest.mark.parametrize("path, number", [(p, i) for p in DOCUMENTS for i in range(len(programs(p)))], ids=lambda v: str(v.relative_to(TOP)) if isinstance(v, pathlib.Path) else str(v))
def test_each_python_program_of_a_document_works(world, runner, path, number):
    text = programs(path)[number]
    if of_packages(text):
        pytest.skip(f"{of_packages(text)[0]} is not installed")
    if OF_CLIENTS and set(re.findall(r"^(?:from|import) (\w+)", text, re.M)) <= {"openai", "anthropic", "base64"}:
        pytest.skip("the API tests run it")
    before = "class Order(__import__('pydantic').BaseModel):\n    item: str\n    quantity: int\n\n\n" if "Order" in text else ""
    text = text.replace("messages=[...]", "messages=[{'role': 'user', 'content': 'Extract JSON with item, quantity: 18 of pencil.'}]")
    text = re.sub(r"\bmessages=messages\b", "messages=[{'role': 'user', 'content': 'Extract JSON with name: tr'}]", text)
    if "completions.create(model=\"canary\", messages=[{'role'" in text and "import" not in text:
        text = "from openai import OpenAI\n" + text
    status, said = runner(before + world.told(text))
    assert status == 0, said[-3000:]


LLM = pathlib.Path(sys.executable).parent / "llm"


@pytest.mark.skipif(not LLM.exists(), reason="llm is not installed")
def test_llm(world):
    """The file and the commands of clients.md."""
    path = TOP / "docs/clients.md"
    (settings,) = [b for b in blocks(path) if b.startswith("- model_id: plateau")]
    home = world.home / "llm"
    home.mkdir()
    (home / "extra-openai-models.yaml").write_text(world.told(settings))
    world.env |= {"LLM_USER_PATH": str(home), "PATH": f"{LLM.parent}:{world.env['PATH']}"}
    assert world.run("llm logs path").strip() == str(home / "logs.db")
    said = [world.run(command) for command in commands(path) if command.startswith("llm ")]
    assert len(said) == 3 and "list directory contents" in said[1] and '"quantity"' in said[2]
