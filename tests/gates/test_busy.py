"""The gate `busy` can fail: its judgement of made-up speeds, and of a server that competitors stop."""

import json
import os
import pathlib
import signal
import sys
import threading
import time
import types

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench/gates"))

import gate
import gate_busy
from common import Report

PROGRAM = os.environ.get("PLATEAU_PROGRAM") or str(TOP / "build/plateau")


def judged(tmp_path, free, busy):
    report = Report("busy", types.SimpleNamespace(out=tmp_path, label="x", device=None))
    gate_busy.judge(report, free, busy, 2)
    return report.broken


@pytest.mark.parametrize("share, broken", [(0.05, True), (0.45, True), (0.55, False), (1.0, False)])
def test_half_the_speed_is_the_bound(tmp_path, share, broken):
    assert judged(tmp_path, [100.0] * 8, [100 * share] * 7) == [gate_busy.HALF] * broken


def test_a_machine_that_changes_its_speed_is_no_fault(tmp_path):
    free = [200.0 - 20 * i for i in range(9)]
    assert gate_busy.kept(free, [0.6 * (a + b) / 2 for a, b in zip(free, free[1:])]) == pytest.approx([0.6] * 8)
    assert judged(tmp_path, free, [0.4 * f for f in free[1:]]) == [gate_busy.HALF]


def test_one_slow_window_of_many_is_no_fault(tmp_path):
    assert judged(tmp_path, [100.0] * 8, [60.0] * 6 + [5.0]) == []


def test_a_server_without_tokens_is_not_judged(tmp_path):
    with pytest.raises(SystemExit, match="No token"):
        judged(tmp_path, [0.0, 100.0], [50.0])


class Stops:
    """Instead of competitors: the server may run for a tenth of the time."""

    pid = None
    seconds, lost = 1.0, 0

    def __init__(self, _):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.stop_and_go)

    def stop_and_go(self):
        while not self.over.is_set():
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(0.045)
            os.kill(self.pid, signal.SIGCONT)
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


class Stopped(gate_busy.Server):
    def __enter__(self):
        Stops.pid = self.process.pid
        return super().__enter__()


def test_a_server_that_loses_more_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(gate_busy, "Server", Stopped)
    monkeypatch.setattr(gate_busy, "Competitors", Stops)
    monkeypatch.setattr(sys, "argv", ["gate.py", "busy", "--program", PROGRAM, "--out", str(tmp_path), "--busy-pairs", "2", "--busy-window", "1"])
    with pytest.raises(SystemExit) as left:
        gate.main()
    report = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert left.value.code == 1 and report["broken"] == [gate_busy.HALF]
    assert len(report["figures"]["busy_tokens_per_second"]) == 2
