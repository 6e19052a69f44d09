"""soak: tens of thousands of mixed requests. Does any memory remain?

The first fifth warms up. Then the ledger is read at idle, after a cache clear, and again at the end: it
must be the same to the byte. The slope of own memory over requests is taken between the two, under load,
with a full cache, without what recorded steps take: they stay after a clear, and a GPU's driver keeps the
room of those that are dropped."""

import statistics
import time

import stats
from common import MIB, Report, Sampler, Server, mib, text_only
from domains import Watch, allowed, must_be_as, must_rest, recorded, used_by_account
from driver import APART, Driver
from traffic import Traffic

CREEP = 2 * MIB
LOAD_S = 1.0  # pending trims must be gone this long after the last request


def most_recorded(*samplers):
    """Returns the most own memory that recorded steps took: a GPU's driver keeps it for the next ones."""
    return max([recorded(used) for s in samplers for used in s.column("accounts")], default=0)


def without_recorded(warming, sampler):
    """Own memory in each sample, without the most that recorded steps had taken until then."""
    most, own = most_recorded(warming), []
    for row in sampler.rows:
        most = max(most, recorded(row["accounts"]))
        own.append(row["own"] - most)
    return own


def settle(server, report, when):
    """Idle, trimmed, cleared: the ledger must return to these figures each time."""
    idle = server.wait_idle()
    time.sleep(max(0.0, idle + LOAD_S - time.monotonic()))
    pending = server.get("/api/memory")["pending_trim_bytes"]
    report.must(f"{when}: {LOAD_S:.0f} s after the last request no trim is pending ({mib(pending)})", pending == 0)
    server.clear_cache()
    time.sleep(1.5)  # the allocator returns decayed memory
    memory = server.get("/api/memory")
    must_rest(report, memory, when)
    return used_by_account(memory)


def run(options):
    report = Report("soak", options)
    driver = Driver(options.device) if (options.device or "").startswith("cuda:") else None
    batch = ["--max-num-seqs", options.soak_batch] if options.soak_batch else []
    with Server(options, "--host-cache", options.soak_cache, *batch, *text_only(options)) as server:
        before = server.own_bytes()
        traffic = Traffic(server, options.clients, options.longest, options.seed)
        warm, watch = options.requests // 5, Watch()
        began = time.monotonic()
        with Sampler(server, 0.5, traffic.done, watch) as warming:
            traffic.run(warm)
        ledger = settle(server, report, "after warm-up")
        own_when_warm = server.own_bytes() - most_recorded(warming)
        driver_had = driver and driver.used()
        with Sampler(server, 0.5, traffic.done, watch) as sampler:
            traffic.run(options.requests - warm)
        seconds = time.monotonic() - began
        report.figure("requests", traffic.done(), f"{traffic.done()} in {seconds:.0f} s, {traffic.done() / seconds:.0f}/s; {dict(traffic.ended)}")
        ledger_at_end = settle(server, report, "after the soak")
        after = server.own_bytes() - most_recorded(warming, sampler)
        if driver:
            moved = driver.used() - driver_had
            report.figure("driver_bytes_moved", moved, f"{mib(moved)} by the driver's figure, after {mib(driver_had)}")
            report.must(f"the driver's figure at the end within {mib(APART)} of that after warm-up", abs(moved) <= APART)
        status = server.get("/api/status")
        report.figure("own_bytes_when_warm", own_when_warm, f"{mib(own_when_warm)}, cleared")
        report.must(f"after the soak within {mib(CREEP)} of that", after - own_when_warm <= CREEP)
        figures(report, warming, sampler, before, after)
        must_be_as(report, ledger, ledger_at_end, "at idle after warm-up and at the end")
        report.must("no request left", not (status["requests"] or status["engine_jobs"] or status["streams"]))
        model = status["models"][0]
        recommitted, units = model["trims"]["units_recommitted"], model["trims"]["units"]
        report.figure("units_recommitted", recommitted, f"within a second {recommitted} of {units} that were given back")
        report.say(f"preemptions {model['preemptions']}, evicted {model['cache']['pages_evicted']} pages, trims {model['trims']}")
    report.figure("failures", len(traffic.failures))
    for failure in traffic.failures[:5]:
        report.say(failure)
    report.must("no failures", not traffic.failures)
    return report.done()


def in_parts(values, count=10):
    """Means of `count` runs of the same length, in order."""
    ends = [len(values) * n // count for n in range(count + 1)]
    return [statistics.fmean(values[a:b]) for a, b in zip(ends, ends[1:]) if b > a]


def figures(report, warming, sampler, before, after):
    for name, values in (("own", sampler.column("own")), ("recorded", [recorded(used) for used in sampler.column("accounts")])):
        if any(values):
            parts = in_parts(values)
            report.figure(f"{name}_bytes_in_parts", parts, f"{', '.join(f'{b / MIB:.2f}' for b in parts)} MiB on average, one part after the other")
    series = sampler.column("at"), without_recorded(warming, sampler)
    slope, error = stats.slope(*series), stats.slope_error(*series)
    report.figure("slope_bytes_per_request", round(slope, 2))
    report.figure("slope_error_bytes_per_request", round(error, 2))
    report.must("slope < 16 bytes per request, but for twice its standard error", slope - 2 * error < 16)
    report.figure("own_bytes_before", before, mib(before))
    report.figure("own_bytes_peak", max(sampler.column("own")), mib(max(sampler.column("own"))))
    returned(report, warming, sampler, before, after, "requests", f"{slope:+.1f} bytes per request")


def returned(report, warming, sampler, before, after, requests, title):
    """Memory after a clear against that before the first request, and every domain in all samples; with a
    plot."""
    unaccounted = warming.column("unaccounted") + sampler.column("unaccounted")
    report.figure("own_bytes_after_clear", after, mib(after))
    report.must(f"after a cache clear within {mib(allowed(before))} of before", after - before <= allowed(before))
    sampler.watch.judge(report)

    def draw(axes):
        at = warming.column("at") + sampler.column("at")
        axes.plot(at, [b / MIB for b in warming.column("own") + sampler.column("own")], lw=0.5, label="own memory")
        axes.plot(at, [b / MIB for b in unaccounted], lw=0.5, label="unaccounted")
        axes.axhline(before / MIB, color="grey", lw=0.6, ls=":", label="before the first request")
        axes.set(xlabel=requests, ylabel="MiB", title=f"{report.name}: {title}")
        axes.legend(frameon=False)

    report.plot(draw)
