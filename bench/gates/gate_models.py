"""models: two models under a ceiling that holds one, loaded, used and unloaded at random: nothing fails, and
nothing adds up."""

import json
import pathlib
import os
import random
import subprocess
import tempfile
import time

from common import MIB, Report, Server, accounts, mib


def ceiling(options, limits):
    """Room for one of the model and not for two."""
    text = subprocess.run([options.program, "plan", options.model, "--json", *limits], check=True, capture_output=True)
    return json.loads(text.stdout)["models"][0]["floor_bytes"] + 24 * MIB


class Cycle:
    def __init__(self, server, options):
        self.server, self.rng = server, random.Random(options.seed)
        self.prompt = server.ids(self.rng, 24)
        self.wanted = {m: self.use(m) for m in ("one", "two")}
        for m in self.wanted:
            self.order(m, "unload")
        self.settle()
        time.sleep(1)
        self.before, self.tasks, self.files = server.own_bytes(), self.count("task"), self.count("fd")
        self.books = self.reserved()

    def count(self, what):
        return len(os.listdir(f"/proc/{self.server.process.pid}/{what}"))

    def reserved(self):
        return {path: (a["reserved_bytes"], a["used_bytes"]) for path, a in accounts(self.server.get("/api/memory")).items()}

    def is_as_before(self):
        """Within a second: the thread that unloaded is joined a moment after its report."""
        end = time.monotonic() + 1
        while True:
            same = (self.count("task"), self.count("fd"), self.reserved()) == (self.tasks, self.files, self.books)
            if same or time.monotonic() > end:
                return same
            time.sleep(0.02)

    def use(self, model):
        body = {"model": model, "prompt": self.prompt, "max_tokens": 8, "temperature": 0, "return_token_ids": True}
        status, answer = self.server.post("/v1/completions", body)
        if status != 200:
            raise SystemExit(f"A request failed: {status} {answer}")
        return answer["choices"][0]["token_ids"]

    def order(self, model, what):
        status, answer = self.server.post(f"/v1/models/{model}/{what}")
        if status != 200:
            raise SystemExit(f"{what} failed: {status} {answer}")
        return answer

    def settle(self):
        end = time.monotonic() + 10
        while any(m["state"] != "unloaded" for m in self.server.get("/api/status")["models"] if m["id"] in ("one", "two")):
            if time.monotonic() > end:
                raise SystemExit("A model was not unloaded within 10 s.")
            time.sleep(0.01)

    def rest(self, held):
        """Own memory beyond `before`: the first sample within the bound, or the last one after a second."""
        end = time.monotonic() + 1
        while True:
            rest = self.server.own_bytes() - self.before
            if rest <= max(8 * MIB, held // 100) or time.monotonic() > end:
                return rest
            time.sleep(0.02)


def run(options):
    report = Report("models", options)
    rests, equal, held, tokens = [], True, 0, True
    limits = ["--max-model-len", "1024", "--max-num-seqs", "2", "--host-cache", "0", "--max-connections", "16", "--max-requests", "32"]
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        for name in ("one", "two"):
            pathlib.Path(folder, name).symlink_to(pathlib.Path(options.model).resolve())
        limit = ceiling(options, limits)
        # The folder is all there is: no model is named.
        more = [f"--model-dir={folder}", f"--memory-limit={limit}", "--text-limit=8M", *limits]
        with Server(options, *more, named=False) as server:
            cycle = Cycle(server, options)
            for n in range(options.cycles):
                model = cycle.rng.choice(["one", "two"])
                for _ in range(cycle.rng.randrange(1, 4)):
                    if cycle.rng.random() < 0.3:
                        cycle.order(model, "load")
                    tokens &= cycle.use(model) == cycle.wanted[model]
                held = max(held, next(m["used_bytes"] for m in server.get("/api/status")["models"] if m["id"] == model))
                if cycle.rng.random() < 0.3 and n + 1 < options.cycles:
                    continue  # The next one makes room by itself.
                cycle.order(model, "unload")
                cycle.settle()
                rests.append(cycle.rest(held))
                equal &= cycle.is_as_before()
            counts = {m["id"]: (m["loads"], m["unloads"], m["load_failures"]) for m in server.get("/api/status")["models"]}
    bound = max(8 * MIB, held // 100)
    report.figure("cycles", options.cycles, f"{options.cycles}: loads, unloads and failures {counts}")
    report.figure("bytes_held", held, mib(held))
    report.figure("rests", rests, f"own memory after an unload beyond before: first {mib(rests[0])}, last {mib(rests[-1])}, most {mib(max(rests))}")
    report.must("no load failed, and every answer is the same tokens", tokens and all(c[2] == 0 for c in counts.values()))
    report.must(f"own memory within 1 s of each unload within {mib(bound)} of before", max(rests) <= bound)
    report.must("threads, descriptors and every account equal after each unload", equal)

    def draw(axes):
        axes.plot([r / MIB for r in rests], ".", ms=2)
        axes.axhline(bound / MIB, color="grey", lw=0.6, ls=":")
        axes.set(xlabel="unload", ylabel="MiB beyond before", title=f"{report.name}: {options.cycles} cycles")

    report.plot(draw)
    return report.done()
