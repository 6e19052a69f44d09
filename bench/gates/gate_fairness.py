"""fairness: the gap between two tokens of a running stream while a long prompt is prefilled."""

import random
import time

import stats
from common import Report, Running, Server, stream


def run(options):
    report = Report("fairness", options)
    step_ms = 100
    with Server(options, "--step-ms", step_ms, "--host-cache", 0) as server:
        rng = random.Random(options.seed)
        long = {"prompt": server.ids(rng, options.long_prompt), "max_tokens": 1}
        endless = {"prompt": server.ids(rng, 64), "max_tokens": server.model()["max_model_len"] - 64, "ignore_eos": True}
        stream(server.port, "/v1/completions", {**long, "prompt": long["prompt"][:512]})
        running = Running(server.port, endless)
        while len(running.times) < 50:
            time.sleep(0.01)
        began = time.monotonic()
        read = stream(server.port, "/v1/completions", long).first
        running.leave()
    times = [t for t in running.times if began <= t <= began + read]
    gaps = running.gaps(began, began + read)
    report.figure("prompt", options.long_prompt, f"of {options.long_prompt} tokens read in {read:.1f} s, {len(gaps)} gaps of the running stream meanwhile")
    report.figure("gap_ms", [stats.quantile(gaps, 0.5), stats.quantile(gaps, 0.99), max(gaps)], f"p50 {stats.quantile(gaps, 0.5):.1f} p99 {stats.quantile(gaps, 0.99):.1f} longest {max(gaps):.1f}")
    report.must(f"every gap < 2 x --step-ms {step_ms}", max(gaps) < 2 * step_ms)

    def draw(axes):
        axes.plot([t - began for t in times[1:]], gaps, lw=0.7)
        axes.axhline(step_ms, color="grey", lw=0.6, ls=":")
        axes.set(xlabel="seconds", ylabel="gap, ms", ylim=(0, None), title=f"{report.name}: a running stream while {options.long_prompt} tokens are read")

    report.plot(draw)
    return report.done()
