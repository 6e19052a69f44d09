"""trim-cost: bursts of requests with pauses in which trims run, on two servers in turns, one with --trim
off. Is the one that trims slower?"""

import concurrent.futures
import random
import statistics
import time

import stats
from common import Report, Server, stream

BURST = 8
PAUSE_S = 0.25


def burst(server, pool, bodies):
    """Tokens per second of them together, prompts included."""
    began = time.monotonic()
    done = [pool.submit(stream, server.port, "/v1/completions", body) for body in bodies]
    tokens = sum(d.result().tokens for d in done) + sum(len(body["prompt"]) for body in bodies)
    return tokens / (time.monotonic() - began)


def run(options):
    report = Report("trim-cost", options)
    rng = random.Random(options.seed)
    rates = {"on": [], "off": []}
    # Without a cache nothing stays committed but what --trim off keeps.
    with Server(options, "--trim", "on", "--host-cache", "0") as on, Server(options, "--trim", "off", "--host-cache", "0") as off:
        servers = {"on": on, "off": off}
        with concurrent.futures.ThreadPoolExecutor(BURST) as pool:
            for pair in range(options.pairs + 3):
                bodies = [
                    {"prompt": on.ids(rng, rng.randint(32, 256)), "max_tokens": options.burst_tokens, "ignore_eos": True} for _ in range(BURST)
                ]
                order = ["on", "off"] if pair % 2 else ["off", "on"]
                for name in order:
                    rates[name].append(burst(servers[name], pool, bodies))
                    time.sleep(PAUSE_S)
        trims = on.model()["trims"]
    ratios = [a / b for a, b in zip(rates["on"][3:], rates["off"][3:])]
    low, middle, high = stats.ratio_interval(ratios)
    for name, values in rates.items():
        report.figure(f"tokens_per_second_{name}", statistics.median(values), f"{statistics.median(values):.0f}")
    report.figure("ratio", [low, middle, high], f"{middle:.4f} (95 %: {low:.4f} to {high:.4f}), {len(ratios)} pairs")
    report.figure("trims", trims["count"], f"{trims['count']}, {trims['bytes'] >> 20} MiB given back, longest slice {trims['longest_slice_ms']:.3f} ms")
    report.must("throughput with trims within 1 % of without", middle >= 0.99)
    report.must("the longest trim slice <= 0.5 ms", trims["longest_slice_ms"] <= 0.5)
    report.must("there were trims", trims["count"] >= options.pairs // 2)

    def draw(axes):
        axes.plot(ratios, ".", ms=2.5)
        axes.axhline(1, color="grey", lw=0.6)
        axes.axhspan(low, high, alpha=0.2)
        axes.set(xlabel="pair", ylabel="with trims / without", title=f"{report.name}: {middle:.4f} of the throughput without trims")

    report.plot(draw)
    return report.done()
