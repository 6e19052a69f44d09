"""return: what long prompts took goes back: 1 s after the last request all but the cache, after a clear that
as well, after an unload the model."""

import concurrent.futures
import random
import time

from common import MIB, Report, Sampler, Server, mib, stream


def unload(server):
    """Own memory a second after it; None where this server cannot unload."""
    status, answer = server.post(f"/v1/models/{server.model()['id']}/unload")
    if status in (404, 405):
        return None
    if status != 200:
        raise SystemExit(f"The model was not unloaded: {status} {answer}")
    time.sleep(1)
    return server.own_bytes()


def load(server, options):
    rng = random.Random(options.seed)
    bodies = [{"prompt": server.ids(rng, options.prompt), "max_tokens": 64, "ignore_eos": True} for _ in range(options.load)]
    with concurrent.futures.ThreadPoolExecutor(options.load) as pool:
        for done in [pool.submit(stream, server.port, "/v1/completions", body) for body in bodies]:
            done.result()


def run(options):
    report = Report("return", options)
    marks = []
    with Server(options, "--max-num-seqs", options.load) as server:
        before = server.own_bytes()
        with Sampler(server, 0.05) as sampler:
            began = time.monotonic()
            time.sleep(0.5)
            for _ in range(3):
                load(server, options)
            idle = server.wait_idle()
            time.sleep(max(0.0, idle + 1 - time.monotonic()))
            memory = server.get("/api/memory")
            cached = sampler.rows[-1]["pools"]
            after_idle = server.own_bytes()
            marks.append((idle + 1 - began, "idle for 1 s"))
            time.sleep(1)
            server.clear_cache()
            marks.append((time.monotonic() - began, "cleared"))
            time.sleep(1)
            after_clear = server.own_bytes()
        peak = max(sampler.column("own"))
        after_unload = unload(server)
    allowed = max(8 * MIB, before // 100)
    report.figure("own_bytes_before", before, mib(before))
    report.figure("own_bytes_peak", peak, mib(peak))
    report.figure("own_bytes_1s_after_idle", after_idle, f"{mib(after_idle)}, of which prefixes that are kept {mib(cached)}")
    report.figure("own_bytes_after_clear", after_clear, mib(after_clear))
    report.figure("own_bytes_after_unload", after_unload, mib(after_unload) if after_unload else "not measured: this server does not unload")
    report.must("1 s after the last request no trim is pending", memory["pending_trim_bytes"] == 0)
    report.must(f"1 s after idle within {mib(allowed)} of before and prefixes", after_idle - cached - before <= allowed)
    report.must(f"after a clear within {mib(allowed)} of before", after_clear - before <= allowed)

    def draw(axes):
        axes.plot(sampler.column("s"), [b / MIB for b in sampler.column("own")], lw=0.9, label="own memory")
        axes.plot(sampler.column("s"), [b / MIB for b in sampler.column("pools")], lw=0.9, label="pages and states")
        for at, what in marks:
            axes.axvline(at, color="grey", lw=0.6, ls=":")
            axes.annotate(what, (at, 0.95), xycoords=("data", "axes fraction"), ha="right", va="top", rotation=90, fontsize=7)
        axes.set(xlabel="seconds", ylabel="MiB", ylim=(0, None), title=f"{report.name}: {options.load} prompts of {options.prompt} tokens, three times")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
