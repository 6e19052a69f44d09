"""busy: with one competitor per core, a stream keeps at least half its speed.

A competitor is a process that only computes. Windows with and without competitors follow each other, and each
is compared with the mean of its neighbours without."""

import contextlib
import os
import subprocess
import sys
import time

import stats
from common import ENDS_WITH_GATE, Report, Running, Server

COMPETITOR = "while True: pass"
SETTLES = 0.5  # seconds at the begin of a window that do not count


@contextlib.contextmanager
def competitors(count):
    running = [subprocess.Popen([*ENDS_WITH_GATE, sys.executable, "-c", COMPETITOR]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


class Stream:
    """A stream that begins again when its reply is complete."""

    def __init__(self, server):
        self.server, self.body = server, {"model": server.model_id, "prompt": [100, 101, 102], "max_tokens": 20000, "ignore_eos": True}
        self.running = None

    def speed(self, seconds):
        """Tokens per second over a window of that length."""
        if not self.running or not self.running.is_alive():
            self.running = Running(self.server.port, self.body)
        time.sleep(SETTLES)
        began = time.monotonic()
        time.sleep(seconds)
        ended = time.monotonic()
        return sum(began <= t <= ended for t in self.running.times) / (ended - began)


def measure(server, options, cores):
    """(speeds of the windows without competitors, one more than those with them)"""
    stream = Stream(server)
    free, busy = [stream.speed(options.busy_window)], []
    for _ in range(options.busy_pairs):
        with competitors(cores):
            busy.append(stream.speed(options.busy_window))
        free.append(stream.speed(options.busy_window))
    stream.running.leave()
    return free, busy


def run(options):
    report = Report("busy", options)
    cores = len(os.sched_getaffinity(0))
    with Server(options, "--max-num-seqs", 1, "--max-model-len", 24000) as server:
        server.model_id = server.get("/v1/models")["data"][0]["id"]
        free, busy = measure(server, options, cores)
    kept = [2 * b / (before + after) for b, before, after in zip(busy, free, free[1:])]
    low, middle, high = stats.ratio_interval(kept)
    for name, speeds in (("free_tokens_per_second", free), ("busy_tokens_per_second", busy)):
        report.figure(name, speeds, f"{stats.quantile(speeds, 0.5):.1f}, lowest {min(speeds):.1f}")
    report.figure("kept", kept, f"{100 * middle:.0f} % ({100 * low:.0f} to {100 * high:.0f}) with {cores} competitors on {cores} cores")
    report.must("with one competitor per core the stream keeps half its speed", middle >= 0.5)

    def draw(axes):
        axes.plot(range(len(free)), free, "o-", ms=3, label="alone")
        axes.plot([i + 0.5 for i in range(len(busy))], busy, "o", ms=3, label="one competitor per core")
        axes.set(xlabel="window", ylabel="tokens/s", ylim=(0, None), title=f"{report.name}: {cores} cores")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
