"""The release gates in small: each runs, and conditions that do not depend on a machine's speed or on long
runs hold."""

import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM") or str(TOP / "build/plateau")

SMALL = {
    "soak": ["--requests", "100"],
    "return": ["--load", "2", "--prompt", "256"],
    "flat": ["--generate", "1500"],
    "jitter": ["--repeats", "25", "--jitter-prompt", "64"],
    "agent": ["--turns", "4"],
    "agents": ["--agents-turns", "4", "--agents-requests", "8", "--agents-at-once", "2", "--agents-tools", "6", "--agents-rests", "1", "--no-agents-both", "--serve=--max-model-len=6144"],
    "fairness": ["--long-prompt", "2048"],
    "tenants": ["--crowd", "10"],
    "trim-cost": ["--pairs", "3", "--burst-tokens", "4"],
    "load-gap": ["--gap-shape", "tiny-qwen3", "--gap-loads", "2"],
    "models": ["--cycles", "12"],
    "images": ["--looks", "30", "--lookers", "4", "--video-frames", "8", "--gap-images", "1", "--gap-edge", "768"],
    "busy": ["--busy-pairs", "1", "--busy-window", "0.2"],
    "draft": ["--draft-steps", "300", "--draft-tokens", "100", "--draft-batch", "32"],
}
# Gates about memory run with two domains as well: each is judged by itself.
DOMAINS = ("--device", "fake:0", "--memory-limit", "1G", "--device-memory-limit", "66M")
IN_DOMAINS = {
    "soak": ["--requests", "60", "--clients", "8"],
    "return": ["--load", "2", "--prompt", "256"],
    "flat": ["--generate", "600", "--serve=--max-num-seqs=4", "--serve=--max-image-pixels=0"],
    "models": ["--cycles", "6"],
}
# A slope over a second has no meaning, nor have quantiles of a machine that runs other tests; whether drafts
# pay follows from times too. Of a small prompt a turn's new text is more than a twentieth.
LONG_ONLY = ("slope", "after the soak within", "of the whole prompt", "p99", "period", "throughput", "every gap", "beside a flood", "beside unread", "beside large", "longest gap", "longest trim slice", "steps with drafts", "eight had", "less well", "keeps half")


def run_gate(gate, out, *options):
    command = [sys.executable, TOP / "bench/gates/gate.py", gate, "--program", PROGRAM, "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    files = list(out.glob("*.json"))
    assert files, done.stdout + done.stderr
    report = json.loads(files[0].read_text())
    assert done.returncode == (1 if report["broken"] else 0), done.stdout + done.stderr
    return report


def holds(report):
    assert not [what for what in report["broken"] if not any(word in what for word in LONG_ONLY)]
    assert report["figures"]


@pytest.mark.parametrize("gate", SMALL)
def test_gate_runs(gate, tmp_path):
    holds(run_gate(gate, tmp_path, *SMALL[gate]))


@pytest.mark.parametrize("gate", IN_DOMAINS)
def test_gate_runs_in_two_domains(gate, tmp_path):
    holds(run_gate(gate, tmp_path, *DOMAINS, *IN_DOMAINS[gate]))


def test_a_broken_promise_is_told(tmp_path):
    """Without a cache an agent's turns find nothing."""
    report = run_gate("agent", tmp_path, *SMALL["agent"], "--serve=--host-cache=0", "--no-uncached")
    assert any("finds" in what for what in report["broken"])


def server_of(gate):
    """The process id of its server, or None."""
    children = pathlib.Path(f"/proc/{gate.pid}/task/{gate.pid}/children").read_text().split()
    return next((pid for pid in children if os.path.samefile(f"/proc/{pid}/exe", PROGRAM)), None)


def runs(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition):
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_a_server_ends_with_a_gate_that_is_killed(tmp_path):
    command = [sys.executable, TOP / "bench/gates/gate.py", "soak", "--program", PROGRAM, "--out", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as gate:
        try:
            server = wait_for(lambda: server_of(gate))
        finally:
            gate.kill()
    wait_for(lambda: not runs(server))


def test_a_gate_that_is_not_there_is_named():
    done = subprocess.run([sys.executable, TOP / "bench/gates/gate.py", "soap"], capture_output=True, text=True)
    assert done.returncode != 0 and "soap" in done.stderr and "soak" in done.stderr
