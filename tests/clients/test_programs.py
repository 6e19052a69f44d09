"""The cells of heavy programs, with PLATEAU_LONG=1: program_NAME.py, from requirements/programs.txt. Each has
a home and a time limit of its own. One that exceeds it fails with the server's last lines."""

import importlib
import json
import os
import pathlib
import signal
import subprocess

import pytest

from cells import declared
from servers import ANSWER_S, PROGRAM, SDK_KEY, until
from sdk import MKDIR, Order

PROGRAMS = declared("program") if "PLATEAU_LONG" in os.environ else {}


class Place:
    """Where programs run: a home, a server and one of its models."""

    def __init__(self, server, model, home):
        self.server, self.model, self.home, self.key = server, model, home, SDK_KEY
        self.url, self.base = server.url, server.url + "/v1"

    def begin(self, command, text, env):
        """In a process group of its own. It writes files: children that outlive it would hold pipes open."""
        (self.home / "input").write_text(text)
        with open(self.home / "input") as given, open(self.home / "output", "w") as out, open(self.home / "errors", "w") as err:
            return subprocess.Popen([str(c) for c in command], stdin=given, stdout=out, stderr=err, cwd=self.home,
                                    env={**os.environ, "HOME": str(self.home), **env}, start_new_session=True)

    def end(self, process, how=signal.SIGKILL):
        """Its whole group."""
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            pass

    def read(self, name):
        return pathlib.Path(self.home / name).read_text(errors="replace")

    def report(self, what):
        return "\n".join([what, self.read("output")[-3000:], self.read("errors")[-3000:], "The server's last lines:",
                          *self.server.lines[-20:]])

    def wait(self, process, seconds=ANSWER_S):
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end(process)
            process.wait()
            pytest.fail(self.report(f"not over after {seconds} s"), pytrace=False)
        finally:
            self.end(process)

    def run(self, *command, text="", status=(0,), env=None, errors=False):
        """Returns its output, or what it wrote as errors."""
        returned = self.wait(self.begin(command, text, env or {}))
        assert returned in status, self.report(f"status {returned}")
        return self.read("errors" if errors else "output")

    def leave(self, *command, text="", env=None, ready=lambda output: True):
        """Interrupts it while the server has its request and `ready` holds of its output."""
        process = self.begin(command, text, env or {})
        under_way = lambda: process.poll() is not None or (self.server.requests() and ready(self.read("output")))
        try:
            until(under_way, ANSWER_S)
            assert process.poll() is None, self.report("it ended by itself")
            self.end(process, signal.SIGINT)
        finally:
            self.wait(process, 60)


def cell(name):
    here = [(n, m) for n, p in PROGRAMS.items() if p.here and name in p.cells for m in p.models]
    return pytest.mark.parametrize("name, model", here)


@pytest.fixture
def at(both, model, tmp_path):
    if model == "smollm2" and both.missing:
        pytest.skip(both.missing)
    before = prompts(both)
    yield Place(both, model, tmp_path)
    both.wait_idle()
    assert prompts(both) > before


def prompts(server):
    """Prompt tokens, and requests that were refused or left before they had any."""
    counted = ("vllm:prompt_tokens_total", "plateau_requests_rejected_total", "plateau_requests_aborted_total")
    return sum(v for k, v in server.metrics().items() if k.startswith(counted))


def program(name):
    return importlib.import_module("program_" + name)


@cell("hello")
def test_hello(at, name):
    assert program(name).hello(at).strip()


@cell("stream")
def test_stream(at, name):
    """Repeats test_cells.test_stream() until there are several parts."""
    parts = until(lambda: several if len(several := program(name).stream(at)) > 1 else None, ANSWER_S, every=0)
    assert all(isinstance(p, str) for p in parts)


@cell("tools")
def test_tools(at, name):
    p = program(name)
    tool, arguments = p.tools(at)
    assert tool == p.TOOL[0] and isinstance(arguments[p.TOOL[1]], str)


@cell("structured")
def test_structured(at, name):
    assert isinstance(program(name).structured(at), Order)


@cell("overflow")
def test_overflow(at, name):
    p = program(name)
    assert p.OVERFLOW in p.overflow(at)


@cell("cancel")
def test_cancel(at, name):
    """The sequence of a program that was interrupted goes before its end, and is counted as left."""
    left = lambda: sum(v for k, v in at.server.metrics().items() if k.startswith("plateau_requests_aborted_total"))
    before = left()
    program(name).cancel(at)
    at.server.wait_idle()
    assert left() > before


LAUNCHED = [(n, "canary") for n in ("claude_code", "codex") if n in PROGRAMS and PROGRAMS[n].here]


@pytest.mark.parametrize("name, model", LAUNCHED)
def test_launch_gives_it_all_that_it_needs(at, name):
    """In a home without settings."""
    p = program(name)
    called, env = p.LAUNCH
    file, *words = p.command()
    (at.home / "bin").mkdir()
    (at.home / "bin" / called).symlink_to(file)
    env = {**env, "PATH": f"{at.home}/bin:{os.environ['PATH']}"}
    launch = [PROGRAM, "launch", called, "--url", at.url, "--api-key", at.key, "--model", at.model, "--"]
    lines = [json.loads(line) for line in at.run(*launch, *words, text=MKDIR, env=env).splitlines() if line.startswith("{")]
    assert lines[-1]["type"] in ("result", "turn.completed") and not lines[-1].get("is_error")


def test_a_program_that_hangs_fails_with_the_lines_of_the_server(both, tmp_path):
    """Also where a child of its own holds its output open."""
    place = Place(both, "canary", tmp_path)
    process = place.begin(["sh", "-c", "echo begun; sleep 1000 & sleep 1000"], "", {})
    until(lambda: "begun" in place.read("output"))
    with pytest.raises(pytest.fail.Exception, match=r"not over after 0.1 s[^$]*begun[^$]*The server's last lines:\s+\S+ level="):
        place.wait(process, 0.1)
