"""fairness: how long a running stream waits between two tokens while a long prompt is read beside it."""

import random
import threading
import time

import stats
from common import Report, Server, stream


def run(options):
    report = Report("fairness", options)
    step_ms = 100
    with Server(options, "--step-ms", step_ms, "--host-cache", 0) as server:
        rng = random.Random(options.seed)
        long = {"prompt": server.ids(rng, options.long_prompt), "max_tokens": 1}
        running = {"prompt": server.ids(rng, 64), "max_tokens": 100000, "ignore_eos": True}
        running["max_tokens"] = server.model()["max_model_len"] - 64
        stream(server.port, "/v1/completions", {**long, "prompt": long["prompt"][:512]})
        arrivals, over = [], threading.Event()
        reader = threading.Thread(target=watch, args=(server, running, arrivals, over))
        reader.start()
        while len(arrivals) < 50:
            time.sleep(0.01)
        began = time.monotonic()
        read = stream(server.port, "/v1/completions", long).first
        over.set()
        reader.join()
    during = [t for t in arrivals if began <= t <= began + read]
    gaps = [(b - a) * 1000 for a, b in zip(during, during[1:])]
    report.figure("prompt", options.long_prompt, f"of {options.long_prompt} tokens read in {read:.1f} s, {len(gaps)} gaps of the running stream meanwhile")
    report.figure("gap_ms", [stats.quantile(gaps, 0.5), stats.quantile(gaps, 0.99), max(gaps)], f"p50 {stats.quantile(gaps, 0.5):.1f} p99 {stats.quantile(gaps, 0.99):.1f} longest {max(gaps):.1f}")
    report.must(f"every gap < 2 x --step-ms {step_ms}", max(gaps) < 2 * step_ms)

    def draw(axes):
        axes.plot([t - began for t in during[1:]], gaps, lw=0.7)
        axes.axhline(step_ms, color="grey", lw=0.6, ls=":")
        axes.set(xlabel="seconds", ylabel="gap, ms", ylim=(0, None), title=f"{report.name}: a running stream while {options.long_prompt} tokens are read")

    report.plot(draw)
    return report.done()


def watch(server, body, arrivals, over):
    """Notes when each event comes, until told to leave."""
    import json
    import socket

    from common import head

    sent = json.dumps({**body, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 600) as sock:
        sock.sendall(head("POST", "/v1/completions", sent) + sent)
        while not over.is_set() and sock.recv(65536):
            arrivals.append(time.monotonic())
