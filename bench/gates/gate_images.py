"""images: tens of thousands of requests with images, and videos beside them. Two questions: does any
memory remain, and how long do other requests wait?

The first fifth warms up, as in soak. The figures at idle after a clear must be the same at the end: the
ledger to the byte, threads, descriptors. Own memory is compared with its value before the first request.
The server's temporary folder is its own, and must stay empty.

Then a stream runs while large images are encoded in full, one after another, each missing every cache. Of
its gaps those count that lie between the first and the last time the status reported the image's request
as `encoding`: decoding precedes that on threads of its own, and the prompt is prefilled after it in steps
of --step-ms, which `fairness` measures. 99 of 100 gaps must stay below 3 times the median of the same
gaps, and the longest below --step-ms.

With a model whose step takes half a millisecond the longest gap shows the system's time for 2 MiB of
memory, or a pause of this client. It is reported beside the longest gap without an image. Tokens that
arrive together, as accepted draft tokens do, have one time. The engine does the same work for every image,
so each image's longest gap is reported too. So is the time in which the server's threads had work and no
processor, because the gaps include it."""

import json
import os
import pathlib
import socket
import tempfile
import time

import drawing
import stats
from common import Connection, Report, Running, Sampler, Server, head, mib
from domains import Watch, must_be_as
from gate_soak import returned, settle
from looking import Looking, Watching, about

STREAM_TOKENS = 28000
STEP_MS = 100


# ---- figures of a process ----


def open_files(pid):
    found = []
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(link))
        except FileNotFoundError:
            pass
    return found


def children(pid):
    """Names of its processes, including ended ones that are not reaped."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().split("(", 1)[1].rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[1]) == pid:
            found.append(name)
    return found


def belongings(server):
    """(threads, descriptors) when only this client is connected."""
    pid, end = server.process.pid, time.monotonic() + 10
    while sum(name.startswith("socket:") for name in open_files(pid)) > 2 and time.monotonic() < end:
        time.sleep(0.05)
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir())), len(open_files(pid))


def metric(server, name):
    text = server.asks.call("GET", "/metrics")[1].decode()
    return int(float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name + " "))))


# ---- the soak ----


def soak(report, options, folder):
    addresses, form = drawing.videos(options.video_frames, 4)
    with Server(options, "--host-cache", options.soak_cache, "--image-cache", "8M", environment={"TMPDIR": folder}) as server:
        before = server.own_bytes()
        looking, watching, watch = Looking(server, options.lookers, options.seed), Watching(server, addresses), Watch()
        began = time.monotonic()
        with watching:
            with Sampler(server, 0.25, looking.done, watch) as warming:
                looking.run(options.looks // 5)
        ledger, had = settle(server, report, "after warm-up"), belongings(server)
        warm = server.own_bytes()
        again = Watching(server, addresses)
        with again:
            with Sampler(server, 0.25, looking.done, watch) as sampler:
                looking.run(options.looks - options.looks // 5)
        seconds = time.monotonic() - began
        ledger_at_end, has = settle(server, report, "after the soak"), belongings(server)
        after = server.own_bytes()
        status = server.get("/api/status")
        left = metric(server, "plateau_media_left_total")
        report.figure("requests", looking.done(), f"{looking.done()} in {seconds:.0f} s, {looking.done() / seconds:.0f}/s; {dict(looking.ended)}")
        answered, gone = watching.answered + again.answered, watching.left + again.left
        report.figure("videos", answered, f"of {options.video_frames} frames, {form}: {answered} answered, {gone} left")
        report.figure("left_while_read", left, f"{left} clients left while their images waited or were read; {status['models'][0]['images']}")
        failures = looking.failures + watching.failures + again.failures
        nothing_left(report, server, status, folder)
    figures(report, warming, sampler, (before, warm, after))
    must_be_as(report, ledger, ledger_at_end, "at idle after warm-up and at the end")
    report.must(f"threads and descriptors as after warm-up: {has[0]} and {has[1]}, {had[0]} and {had[1]}", has == had)
    report.figure("failures", len(failures))
    for failure in failures[:5]:
        report.say(failure)
    report.must("no failures", not failures)
    report.must("videos were answered", again.answered > 0)


def nothing_left(report, server, status, folder):
    pid = server.process.pid
    files = [name for name in open_files(pid) if "deleted" in name or "memfd:" in name or name.startswith(folder)]
    report.must("no request left", not (status["requests"] or status["engine_jobs"] or status["streams"]))
    report.must(f"no temporary file {files + os.listdir(folder) or ''}", not files and not os.listdir(folder))
    report.must(f"no process left {children(pid) or ''}", not children(pid))


def figures(report, warming, sampler, own):
    before, warm, after = own
    peak = max(warming.column("own") + sampler.column("own"))
    report.figure("own_bytes_before", before, mib(before))
    report.figure("own_bytes_warm", warm, f"{mib(warm)} after warm-up and a clear")
    report.figure("own_bytes_peak", peak, mib(peak))
    returned(report, warming, sampler, before, after, "requests with images", "own memory")


# ---- gaps ----


def far_sighted(options, folder):
    """The model, if it encodes an image of this size in full; otherwise a copy of it with a file that
    allows it."""
    model, pixels = pathlib.Path(options.model).resolve(), options.gap_edge**2
    made = pathlib.Path(folder, model.name)
    made.mkdir()
    for file in model.iterdir():
        (made / file.name).symlink_to(file)
    name = "preprocessor_config.json"
    says = json.loads((model / name).read_text()) if (model / name).exists() else {}
    says.setdefault("size", {}).setdefault("shortest_edge", 65536)
    says["size"]["longest_edge"] = max(says["size"].get("longest_edge", 0), pixels)
    if "max_pixels" in says:
        says["max_pixels"] = max(says["max_pixels"], pixels)
    (made / name).unlink(missing_ok=True)
    (made / name).write_text(json.dumps(says))
    return str(made)


def waited_ms(server):
    """How long its threads were ready to run and did not."""
    delays = []
    for path in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/schedstat"):
        try:
            delays.append(int(path.read_text().split()[1]))
        except (FileNotFoundError, ProcessLookupError, IndexError):
            pass
    return sum(delays) / 1e6


def start_stream(server, speculative):
    body = {"prompt": [100, 101, 102], "max_tokens": STREAM_TOKENS, "ignore_eos": True, "temperature": 0, "speculative": speculative}
    running = Running(server.port, body)
    while len(running.times) < 50:
        time.sleep(0.01)
    return running


def look_at_large(server, raw, asks):
    """(sent, first seen encoding, last seen encoding, answered): times."""
    first = last = None
    with socket.create_connection(("127.0.0.1", server.port), 600) as sock:
        began = time.monotonic()
        sock.sendall(head("POST", "/v1/chat/completions", raw) + raw)
        sock.settimeout(0.01)
        text = b""
        while True:
            try:
                part = sock.recv(65536)
                text += part
                if not part:
                    break
            except TimeoutError:
                pass
            phases = [r["phase"] for r in json.loads(asks.call("GET", "/api/status")[1])["requests"]]
            if "encoding" in phases:
                last = time.monotonic()
                first = first or last
    if not text.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"images: a large image was not answered: {text[-400:]!r}")
    if first == last:
        raise SystemExit("images: a large image was encoded too soon to be seen; ask for larger ones (--gap-edge)")
    return began, first, last, time.monotonic()


def beside(server, options, speculative):
    """Gaps of a stream, by the other work at that time; the longest during each image's encoding; how long
    threads waited for a processor."""
    gaps, longest, waited, asks = {"alone": [], "read": [], "encoded": [], "prompt": []}, [], 0, Connection(server.port)
    running = start_stream(server, speculative)
    for n in range(options.gap_images):
        url = drawing.data_url("image/png", drawing.png(options.gap_edge, options.gap_edge, f"{options.seed}/{speculative}/{n}"))
        raw = json.dumps(about([url], "What is it?", 1)).encode()
        if len(running.times) > STREAM_TOKENS // 16 or not running.is_alive():
            running.leave()
            running = start_stream(server, speculative)
        began = time.monotonic()
        time.sleep(1)
        gaps["alone"] += running.gaps(began, time.monotonic())
        before = waited_ms(server)
        times = look_at_large(server, raw, asks)
        waited += waited_ms(server) - before
        if not running.is_alive():
            raise SystemExit("images: the stream ended before the image was encoded")
        for name, span in zip(("read", "encoded", "prompt"), zip(times, times[1:])):
            gaps[name] += running.gaps(*span)
        longest.append(max(running.gaps(*times[1:3])))
    running.leave()
    asks.close()
    return gaps, longest, waited


def judge_gaps(report, name, gaps, longest, waited):
    for what, own in gaps.items():
        if own:
            text = f"{len(own)}: p50 {stats.quantile(own, 0.5):.2f} p99 {stats.quantile(own, 0.99):.2f} longest {max(own):.2f} ms"
            report.figure(f"gaps_{what}_{name}", own, text)
    own = gaps["encoded"]
    median = stats.quantile(own, 0.5)
    report.figure(f"longest_of_each_{name}", longest, f"{', '.join(f'{gap:.2f}' for gap in longest)} ms")
    report.figure(f"waited_for_a_processor_ms_{name}", waited, f"{waited:.0f}, all threads together")
    report.figure(f"p99_over_median_{name}", stats.quantile(own, 0.99) / median, f"{stats.quantile(own, 0.99) / median:.2f} while an image is encoded")
    alone = max(gaps["alone"])
    report.figure(f"longest_over_median_{name}", max(own) / median, f"{max(own) / median:.2f} while an image is encoded; without one the longest is {alone:.2f} ms")
    report.must(f"{name} drafts: p99 of the gaps while an image is encoded below 3 x their median", stats.quantile(own, 0.99) < 3 * median)
    report.must(f"{name} drafts: the longest gap while an image is encoded below --step-ms {STEP_MS}", max(own) < STEP_MS)


def look_large(report, options, folder):
    pixels = options.gap_edge**2
    wide = type(options)(**{**vars(options), "model": far_sighted(options, folder)})
    more = ("--step-ms", STEP_MS, "--max-image-pixels", pixels, "--max-num-seqs", 4, "--max-model-len", min(STREAM_TOKENS + 8192, 32768), "--image-cache", 0)
    with Server(wide, *more) as server:
        both = {name: beside(server, options, speculative) for name, speculative in (("without", False), ("with", True))}
        images = server.model()["images"]
    report.say(f"{pixels / 1e6:.1f} megapixels each: {images['encoded']} encoded in {images['slices']} slices, {images['encode_seconds']:.1f} s")
    for name, gaps in both.items():
        judge_gaps(report, name, *gaps)

    def draw(axes):
        axes.plot(both["without"][0]["alone"], ".", ms=2, label="alone")
        axes.plot(both["without"][0]["encoded"], ".", ms=2, label="while an image is encoded")
        axes.set(xlabel="token", ylabel="gap, ms", yscale="log", title=f"{report.name}: a stream beside images of {pixels / 1e6:.1f} megapixels")
        axes.legend(frameon=False)

    report.plot(draw, name="gaps")


def run(options):
    report = Report("images", options)
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        temporary = pathlib.Path(folder, "tmp")
        temporary.mkdir()
        if options.looks:
            soak(report, options, str(temporary))
        if options.gap_images:
            look_large(report, options, folder)
    return report.done()
