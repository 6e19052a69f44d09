"""gpu: a server on a GPU beside the driver's own figures. First tokens of a large model; memory of loads and
unloads, of one that does not fit, of one that is large; and what an idle server leaves the GPU to do."""

import pathlib
import random
import subprocess
import tempfile
import time

import stats
from common import Report, Server, mib, stream
from driver import APART, Driver, Most, seconds_until

FIRST_TOKEN_MS, HIT_MS = 25, 10
SHORT_PROMPT, LONG_PROMPT = 512, 8192


def make_model(options, folder):
    """Its name below the folder of models; one that is there stays."""
    if (folder / options.gpu_shape / "config.json").exists():
        return options.gpu_shape
    made = pathlib.Path(options.program).parent / "mkmodel"
    subprocess.run([made, options.gpu_shape, options.gpu_form, "--out", folder / options.gpu_shape], check=True, stdout=subprocess.DEVNULL)
    return options.gpu_shape


def order(server, model, what):
    status, answer = server.post(f"/v1/models/{model}/{what}")
    if status != 200:
        raise SystemExit(f"{what} failed: {status} {answer}")


def ask(server, model, prompt, tokens=1):
    return stream(server.port, "/v1/completions", {"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": True})


def milliseconds(report, name, values, bound=None, text=""):
    ms = [1000 * v for v in values]
    median = stats.quantile(ms, 0.5)
    report.figure(name, ms, f"{len(ms)}: p50 {median:.2f} p90 {stats.quantile(ms, 0.9):.2f} longest {max(ms):.2f} ms")
    if bound:
        report.must(f"{text} <= {bound} ms", median <= bound)


def first_tokens(report, options, server, model):
    """New prompts of 512 tokens, then one of 8192 again and again. The first of each are not counted: steps
    are recorded, and the scheduler learns what a token costs."""
    rng, times = random.Random(options.seed), []
    for n in range(options.gpu_prompts + 4):
        timed = ask(server, model, server.ids(rng, SHORT_PROMPT))
        times += [timed.first] if n >= 4 else []
    milliseconds(report, "first_token_of_512", times, FIRST_TOKEN_MS, "first token of 512 tokens, median")
    prompt, hits, whole = server.ids(rng, LONG_PROMPT), [], True
    cold = ask(server, model, prompt)
    for n in range(options.gpu_prompts + 2):
        timed = ask(server, model, prompt)
        hits += [timed.first] if n >= 2 else []
        whole &= timed.cached >= LONG_PROMPT - 64
    milliseconds(report, "first_token_of_8192_cold", [cold.first])
    milliseconds(report, "first_token_of_8192_cached", hits, HIT_MS, "first token of a cached prompt of 8192 tokens, median")
    report.must("the repeated prompt was found in the cache", whole)
    longer = ask(server, model, prompt, 257)
    pace = 256 / (longer.ended - stats.quantile(hits, 0.5))
    report.figure("tokens_per_second_behind_8192", pace, f"{pace:.1f}")


def rest(report, options, driver, clock_before):
    """Measures the GPU after the last request. The driver averages over as much as a second. An open context
    alone keeps its clock up: `clock_before` is that of the server before its first request."""
    clock_under_load = driver.clock()
    time.sleep(2)
    busy, clocks, watts = [], [], []
    end = time.monotonic() + options.gpu_idle
    while time.monotonic() < end:
        busy.append(driver.busy())
        clocks.append(driver.clock())
        watts.append(driver.watts())
        time.sleep(0.5)
    report.figure("idle_busy_per_cent", max(busy), f"{max(busy)} % at most of {len(busy)} looks")
    report.figure("idle_clock_mhz", clocks, f"{clock_under_load} after the last token, then {clocks[0]} to {clocks[-1]} MHz")
    report.figure("idle_watts", watts, f"{watts[0]:.0f} to {watts[-1]:.0f} W")
    report.must("an idle server computes nothing", max(busy) == 0)
    report.must(f"its clock is again what it was before the first request ({clock_before} MHz) or lower", clocks[-1] <= clock_before)


def unload(report, driver, server, model, before):
    held = driver.used() - before
    order(server, model, "unload")
    took = seconds_until(lambda: driver.used() <= before + APART, 3)
    report.figure("unload_bytes", held, f"{mib(held)}, gone {'never' if took is None else f'{1000 * took:.0f} ms'} after the answer")
    report.must("an unload has returned all within 1 s", took is not None and took <= 1)


def cycles(report, options, driver, server, model):
    """Loads, a reply and unloads of the small model. The driver keeps something of a first use."""
    at_start, after = driver.used(), []
    for _ in range(options.gpu_cycles):
        order(server, model, "load")
        ask(server, model, server.ids(random.Random(options.seed), 64), 8)
        order(server, model, "unload")
        seconds_until(lambda: driver.used() <= (after or [at_start])[0] + APART, 1)
        after.append(driver.used())
    moved = max(abs(a - after[0]) for a in after)
    report.figure("bytes_after_cycles", after, f"before {mib(at_start)}, after the first {mib(after[0])}, after the {len(after)}th {mib(after[-1])}")
    report.must(f"{len(after)} loads and unloads: the driver's figure within {mib(APART)} of that after the first", moved <= APART)
    report.must("and of that before the first", abs(after[-1] - at_start) <= APART)


def refused(report, options, driver, server, model):
    before = driver.used()
    with Most(driver) as most:
        status, answer = server.post(f"/v1/models/{model}/load")
    after, text = driver.used(), answer.get("error", {}).get("message", "")
    report.say(f"{status} {text}")
    report.must("a load that does not fit is a 507 with numbers", status == 507 and "--device-memory-limit" in text)
    report.must(f"and takes nothing ({most.bytes - before} bytes at most, {after - before} after it)", most.bytes == before == after)


def run(options):
    if not (options.device or "").startswith("cuda:"):
        raise SystemExit("gpu: give it --device cuda:N.")
    report, driver, small = Report("gpu", options), Driver(options.device), pathlib.Path(options.model).name
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        folder = pathlib.Path(options.gpu_models or folder)
        large = make_model(options, folder)
        if not (folder / small).exists():
            (folder / small).symlink_to(pathlib.Path(options.model).resolve())
        serve = [f"--model-dir={folder}", "--max-num-seqs=4", f"--max-model-len={LONG_PROMPT + 1024}", "--max-image-pixels=0"]
        with Server(options, *serve, named=False) as server:
            time.sleep(options.gpu_idle / 5)
            clock_before = driver.clock()
            cycles(report, options, driver, server, small)
            before = driver.used()
            order(server, large, "load")
            first_tokens(report, options, server, large)
            rest(report, options, driver, clock_before)
            unload(report, driver, server, large, before)
        limit = (folder / large / "model.safetensors").stat().st_size // 2
        with Server(options, *serve, f"--device-memory-limit={limit}", named=False) as server:
            refused(report, options, driver, server, large)
    return report.done()
