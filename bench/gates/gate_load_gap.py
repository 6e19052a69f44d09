"""load-gap: while a model of 1 GB loads, another model's stream continues: no gap between two of its
tokens is longer than 100 ms."""

import pathlib
import subprocess
import tempfile
import time

import stats
from common import Connection, Report, Running, Server


def running_stream(server):
    return Running(server.port, {"model": server.model_id, "prompt": [100, 101, 102], "max_tokens": 20000, "ignore_eos": True})


def make_model(options, folder):
    made = pathlib.Path(options.program).parent / "mkmodel"
    subprocess.run([made, options.gap_shape, options.gap_form, "--out", folder / options.gap_shape], check=True, stdout=subprocess.DEVNULL)
    return options.gap_shape


def measure(server, options, model):
    """(gaps while nothing loads, gaps while it does, seconds of each load)"""
    alone, loading, seconds = [], [], []
    running = running_stream(server)
    orders = Connection(server.port)
    while len(running.times) < 20:
        time.sleep(0.01)
    for _ in range(options.gap_loads):
        began = time.monotonic()
        time.sleep(2)
        alone += running.gaps(began, time.monotonic())
        began = time.monotonic()
        status, answer = orders.call("POST", f"/v1/models/{model}/load")
        ended = time.monotonic()
        if status != 200:
            raise SystemExit(f"The model was not loaded: {status} {answer}")
        loading += running.gaps(began, ended)
        seconds.append(ended - began)
        began = time.monotonic()
        status, answer = orders.call("POST", f"/v1/models/{model}/unload")
        loading += running.gaps(began, time.monotonic())
        if status != 200:
            raise SystemExit(f"The model was not unloaded: {status} {answer}")
        if not running.is_alive():
            running = running_stream(server)
    running.leave()
    orders.close()
    return alone, loading, seconds


def run(options):
    report = Report("load-gap", options)
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        model = make_model(options, pathlib.Path(folder))
        size = sum(f.stat().st_size for f in pathlib.Path(folder, model).iterdir())
        with Server(options, "--model-dir", folder, "--max-num-seqs", 2, "--max-model-len", 24000, "--pin", pathlib.Path(options.model).name) as server:
            server.model_id = pathlib.Path(options.model).name
            alone, loading, seconds = measure(server, options, model)
    for name, gaps in (("gaps_alone", alone), ("gaps_while_loading", loading)):
        report.figure(name, gaps, f"{len(gaps)}: p50 {stats.quantile(gaps, 0.5):.2f} p99 {stats.quantile(gaps, 0.99):.2f} longest {max(gaps):.2f} ms")
    report.figure("load_seconds", seconds, f"{', '.join(f'{s:.2f}' for s in seconds)} for {size / (1 << 20):.0f} MiB beside a stream")
    report.must("every gap while a model loads and unloads < 100 ms", max(loading) < 100)

    def draw(axes):
        axes.plot(alone, ".", ms=2, label="alone")
        axes.plot(loading, ".", ms=2, label="while a model loads")
        axes.axhline(100, color="grey", lw=0.6, ls=":")
        axes.set(xlabel="token", ylabel="gap, ms", yscale="log", title=f"{report.name}: {model} {options.gap_form} loads {options.gap_loads} times")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
