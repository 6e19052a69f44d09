"""return: what long prompts took goes back: 1 s after the last request all but the cache, after a clear that
as well, after an unload the model."""

import concurrent.futures
import random
import time

from common import MIB, Report, Sampler, Server, accounts, mib, stream, text_only
from domains import Watch, allowed, must_be_as, must_rest, used, used_by_account


def order(server, what):
    status, answer = server.post(f"/v1/models/{server.model()['id']}/{what}")
    if status not in (200, 404, 405):
        raise SystemExit(f"{what} failed: {status} {answer}")
    return status == 200


def unload(server, report):
    """Own memory a second after it; None where this server cannot unload. A second load and unload leave
    the same in every domain."""
    if not order(server, "unload"):
        return None
    time.sleep(1)
    own, memory = server.own_bytes(), server.get("/api/memory")
    must_rest(report, memory, "after an unload")
    order(server, "load")
    order(server, "unload")
    time.sleep(1)
    must_be_as(report, used_by_account(memory), used_by_account(server.get("/api/memory")), "after a second unload")
    return own


def load(server, options):
    rng = random.Random(options.seed)
    bodies = [{"prompt": server.ids(rng, options.prompt), "max_tokens": 64, "ignore_eos": True} for _ in range(options.load)]
    with concurrent.futures.ThreadPoolExecutor(options.load) as pool:
        for done in [pool.submit(stream, server.port, "/v1/completions", body) for body in bodies]:
            done.result()


def pools(memory):
    """{domain: bytes of pages and states}"""
    found = dict.fromkeys(used(memory), 0)
    for path, a in accounts(memory).items():
        if path.endswith("/pools"):
            root = path.split("/")[0]
            found["machine" if root == "process" else root] += a["used_bytes"]
    return found


def must_return(report, before, now, but, when):
    """Every domain uses what it used before and `but`, within the bound."""
    for domain, bytes_before in used(before).items():
        beyond = used(now)[domain] - bytes_before - but.get(domain, 0)
        report.figure(f"{domain}_beyond_{when.replace(' ', '_')}", beyond, mib(beyond))
        report.must(f"{domain}: {when} within {mib(allowed(bytes_before))} of before", beyond <= allowed(bytes_before))


def run(options):
    report = Report("return", options)
    marks, watch = [], Watch()
    with Server(options, "--max-num-seqs", options.load, *text_only(options)) as server:
        before, memory_before = server.own_bytes(), server.get("/api/memory")
        with Sampler(server, 0.05, watch=watch) as sampler:
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
            after_clear, cleared = server.own_bytes(), server.get("/api/memory")
        peak = max(sampler.column("own"))
        must_rest(report, cleared, "after a clear")
        after_unload = unload(server, report)
    report.figure("own_bytes_before", before, mib(before))
    report.figure("own_bytes_peak", peak, mib(peak))
    report.figure("own_bytes_1s_after_idle", after_idle, f"{mib(after_idle)}, of which prefixes that are kept {mib(cached)}")
    report.figure("own_bytes_after_clear", after_clear, mib(after_clear))
    report.figure("own_bytes_after_unload", after_unload, mib(after_unload) if after_unload else "not measured: this server does not unload")
    report.must("1 s after the last request no trim is pending", memory["pending_trim_bytes"] == 0)
    bound = allowed(before)
    report.must(f"1 s after idle within {mib(bound)} of before and prefixes", after_idle - cached - before <= bound)
    report.must(f"after a clear within {mib(bound)} of before", after_clear - before <= bound)
    must_return(report, memory_before, memory, pools(memory), "1 s after idle beside prefixes")
    must_return(report, memory_before, cleared, {}, "after a clear")
    watch.judge(report)

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
