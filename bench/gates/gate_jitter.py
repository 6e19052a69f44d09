"""jitter: one prompt, sent again and again: does every n-th first token wait for a trim?

Twice: with a hit in the prefix cache, and computed each time (a salt of its own). Between two requests
lies a random pause around the one after which trims start, so that requests meet trims at every stage.
Round trips that compute nothing, timed in between, show the part of the machine and of this client."""

import random
import socket
import time

import stats
from common import Report, Server, head, stream

PAUSE_S = (0.01, 0.13)  # a trim begins after 0.05


def series(server, options, salted):
    rng = random.Random(options.seed)
    body = {"prompt": server.ids(rng, options.jitter_prompt), "max_tokens": 8, "ignore_eos": True}
    times, trips = [], []
    for n in range(options.repeats + 5):
        if salted:
            body["cache_salt"] = f"{n:06}"
        times.append(stream(server.port, "/v1/completions", body).first * 1000)
        time.sleep(rng.uniform(*PAUSE_S))
        trips.append(round_trip(server))
        time.sleep(0.02)
    return times[5:], trips


def round_trip(server):
    """In ms."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), 60) as sock:
        sock.sendall(head("GET", "/live"))
        while sock.recv(4096):
            pass
    return (time.monotonic() - began) * 1000


def judge(report, name, times):
    p50, p95, p99 = (stats.quantile(times, q) for q in (0.5, 0.95, 0.99))
    found, p = stats.period(times)
    report.figure(name, times, f"p50 {p50:.2f} p95 {p95:.2f} p99 {p99:.2f} longest {max(times):.2f} ms")
    report.must(f"{name}: p99 <= 1.3 x median ({p99 / p50:.2f})", p99 <= 1.3 * p50)
    report.must(f"{name}: no period (the likeliest, {found}, by chance with p = {p:.2f})", p > 0.01)


def run(options):
    report = Report("jitter", options)
    both, trips = {}, []
    with Server(options) as server:
        for name, salted in (("found in the cache", False), ("computed", True)):
            both[name], some = series(server, options, salted)
            trips += some
            judge(report, name, both[name])
        trims = server.model()["trims"]
    report.figure("round_trip", trips, f"without any model p50 {stats.quantile(trips, 0.5):.2f} p99 {stats.quantile(trips, 0.99):.2f} ms")
    report.figure("longest_trim_slice_ms", trims["longest_slice_ms"], f"{trims['longest_slice_ms']:.3f}, {trims['count']} trims, {trims['slices']} slices")
    report.must("the longest trim slice <= 0.5 ms", trims["longest_slice_ms"] <= 0.5)

    def draw(axes):
        for name, times in both.items():
            axes.plot(times, ".", ms=2, label=name)
        axes.set(xlabel="request", ylabel="first token, ms", yscale="log", title=f"{report.name}: {options.repeats} times {options.jitter_prompt} tokens")
        axes.legend(frameon=False, loc="center right")

    report.plot(draw)
    return report.done()
