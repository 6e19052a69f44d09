"""The server that chat and generate start for themselves: it is a child, and its end is theirs."""

import os
import pathlib
import signal
import subprocess

import pytest

from conftest import ANSWER_S, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
COMMANDS = {
    "generate": ["generate", "--ignore-eos", "--temperature", "0", "What is chsh?"],
    "chat": ["chat", "--local", "--ignore-eos", "--temperature", "0"],
}


def children(pid):
    try:
        return [int(n) for n in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def sockets():
    """Private ones of all servers, by name."""
    lines = pathlib.Path("/proc/net/unix").read_text().splitlines()
    return {line.split()[-1] for line in lines if line.split()[-1].startswith("@plateau-")}


@pytest.fixture(params=COMMANDS)
def answering(request, tmp_path):
    """A command in the middle of an answer, and its server."""
    command = [PROGRAM, *COMMANDS[request.param]]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLATEAU_")}
    env |= {"PLATEAU_RUNTIME_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with subprocess.Popen(command, env=env, **pipes) as p:
        if request.param == "chat":
            p.stdin.write(b"What is chsh?\nWhat is chsh?\n")
            p.stdin.flush()
        assert p.stdout.read(4) == b"chsh"
        [server] = children(p.pid)
        yield p, server
        p.kill()
    assert not list(tmp_path.glob("*.sock"))


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_it_ends_with_the_command(answering, end):
    command, server = answering
    command.send_signal(end)
    status = command.wait(ANSWER_S)
    assert status in ((0, 130) if end == signal.SIGINT else (-end,))
    until(lambda: state(server) in (None, "Z"), 5)
    if end == signal.SIGINT:
        assert state(server) is None, "the command took its status"


def test_its_end_is_told(answering):
    command, server = answering
    os.kill(server, signal.SIGKILL)
    _, said = command.communicate(timeout=ANSWER_S)
    assert command.returncode == 1
    assert b"the server's process ended by signal 9 (KILL): it may lack memory" in said
    assert state(server) is None


def test_nothing_of_it_stays_after_an_answer(tmp_path):
    env = dict(os.environ, PLATEAU_RUNTIME_DIR=str(tmp_path))
    got = subprocess.run([PROGRAM, "generate", "--max-tokens", "2", "hi"], capture_output=True, timeout=ANSWER_S, env=env)
    assert got.returncode == 0 and got.stderr == b""
    assert not list(tmp_path.iterdir())
    assert not [p for p in pathlib.Path("/proc").glob("[0-9]*/environ") if bytes(tmp_path) in _read(p)]


def test_another_user_is_refused(answering):
    """Only its own user may connect, although an abstract socket has no mode."""
    if os.geteuid() != 0:
        pytest.skip("only root may become another user")
    names = sockets()
    code = ("import os, socket, sys\nos.setuid(65534)\nopen_ones = 0\n"
            "for name in sys.argv[1:]:\n"
            "    s = socket.socket(socket.AF_UNIX)\n"
            "    s.connect('\\0' + name[1:])\n"
            "    s.settimeout(20)\n"
            "    try:\n"
            "        s.sendall(b'GET /live HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
            "        open_ones += bool(s.recv(100))\n"
            "    except ConnectionError:\n"
            "        pass\n"
            "print(open_ones)\n")
    got = subprocess.run(["python3", "-c", code, *names], capture_output=True, text=True, timeout=ANSWER_S)
    assert names and got.stdout.strip() == "0", got


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
