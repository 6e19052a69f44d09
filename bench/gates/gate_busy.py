"""busy: with one competitor per core, a stream keeps at least half its speed.

A competitor is a process that only computes. Windows with and without competitors follow each other; each
has a stream of its own, so that all are equally deep in their replies. A window with competitors is compared
with the mean of its neighbours without. The server's own count of tokens is used: a client that waits for a
core itself would see them late."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time

import stats
from common import ENDS_WITH_GATE, Report, Running, Server

COMPETITOR = "while True: pass"
SETTLES = 0.5  # seconds at the begin of a window that do not count
TICKS = os.sysconf("SC_CLK_TCK")
HALF = "with one competitor per core the stream keeps half its speed"


class Competitors:
    """For a `with` block; `seconds` is the processor time that they took."""

    def __init__(self, count):
        self.count, self.seconds, self.lost = count, 0.0, 0

    def __enter__(self):
        self.running = [subprocess.Popen([*ENDS_WITH_GATE, sys.executable, "-c", COMPETITOR]) for _ in range(self.count)]
        return self

    def __exit__(self, *_):
        for process in self.running:
            self.seconds += processor_seconds(process.pid)
            self.lost += process.poll() is not None
            process.kill()
            process.wait()


def processor_seconds(pid):
    """0 of a process that is gone."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def tokens_now(server):
    """(time, tokens of all replies up to then)"""
    asked = time.monotonic()
    count = server.model()["completion_tokens"]
    return (asked + time.monotonic()) / 2, count


def speed(server, seconds):
    """Tokens per second of a stream, over a window that begins when it runs evenly."""
    stream = Running(server.port, {"model": server.model_id, "prompt": [100, 101, 102], "max_tokens": 20000, "ignore_eos": True})
    time.sleep(SETTLES)
    began, before = tokens_now(server)
    time.sleep(seconds)
    ended, after = tokens_now(server)
    if not stream.is_alive():
        raise SystemExit("The stream ended within a window: choose a shorter one (--busy-window).")
    stream.leave()
    server.wait_idle()
    return (after - before) / (ended - began)


def measure(server, options, cores):
    """(speeds of the windows without competitors, one more than those with them; those; the competitors)"""
    free, busy, met = [speed(server, options.busy_window)], [], []
    for _ in range(options.busy_pairs):
        with Competitors(cores) as competitors:
            busy.append(speed(server, options.busy_window))
        met.append(competitors)
        free.append(speed(server, options.busy_window))
    return free, busy, met


def kept(free, busy):
    """Each busy window's speed, of the mean of its neighbours."""
    return [2 * b / (before + after) for b, before, after in zip(busy, free, free[1:])]


def judge(report, free, busy, cores):
    if min(free) <= 0:
        raise SystemExit("No token came in a window without competitors.")
    ratios = kept(free, busy)
    low, middle, high = stats.ratio_interval(ratios)
    for name, speeds in (("free_tokens_per_second", free), ("busy_tokens_per_second", busy)):
        report.figure(name, speeds, f"{stats.quantile(speeds, 0.5):.1f}, lowest {min(speeds):.1f}")
    report.figure("kept", ratios, f"{100 * middle:.0f} % (95 %: {100 * low:.0f} to {100 * high:.0f}) with {cores} competitors on {cores} cores")
    report.must(HALF, middle >= 0.5)


def run(options):
    report = Report("busy", options)
    cores = len(os.sched_getaffinity(0))
    with Server(options, "--max-num-seqs", 1, "--max-model-len", 24000) as server:
        server.model_id = server.get("/v1/models")["data"][0]["id"]
        free, busy, met = measure(server, options, cores)
    judge(report, free, busy, cores)
    taken = [c.seconds for c in met]
    report.figure("competitors_processor_seconds", taken, f"{stats.quantile(taken, 0.5):.1f} in a window of {options.busy_window:g} s and its first {SETTLES} s, all together")
    report.must("every competitor ran to the end of its window", not any(c.lost for c in met) and min(taken) > 0)

    def draw(axes):
        axes.plot(range(len(free)), free, "o-", ms=3, label="alone")
        axes.plot([i + 0.5 for i in range(len(busy))], busy, "o", ms=3, label="one competitor per core")
        axes.set(xlabel="window", ylabel="tokens/s", ylim=(0, None), title=f"{report.name}: {cores} cores")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
