"""models: two models under a ceiling that holds one, loaded, used and unloaded at random: nothing fails, and
nothing adds up in any domain. Then each domain in turn refuses the second one, in its own name."""

import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

from common import MIB, Report, Server, accounts, mib, placed, text_only
from domains import Watch, allowed, must_rest, roots, used

LIMITS = ["--max-model-len", "1024", "--max-num-seqs", "2", "--host-cache", "0", "--max-connections", "16", "--max-requests", "32", "--text-limit", "8M"]
SPARE = 24 * MIB  # beside one model, unless two of them would fit


def plan(options):
    """Models may come later below a --model-dir; of a plan, --allow-pull says so."""
    command = [options.program, "plan", options.model, "--json", "--allow-pull", *LIMITS, *text_only(options), *placed(options)]
    return subprocess.run(command, capture_output=True, text=True)


def planned(options):
    """{domain: (its ceiling, what the server itself may take, the least that one model takes)}"""
    told = plan(options)
    if told.returncode:
        raise SystemExit(told.stderr)
    found = json.loads(told.stdout)["models"][0]
    top = [(a["domain"], a["name"] == found["id"], a) for a in found["accounts"] if a["depth"] == 0]

    def of(domain):
        server = sum(a["limit_bytes"] for where, is_model, a in top if where == domain and not is_model)
        return server, next(a["floor_bytes"] for where, is_model, a in top if where == domain and is_model)

    return {d["name"]: (d["ceiling_bytes"], *of(d["name"])) for d in found["domains"]}


def narrow(options, domain):
    """The options with room for one of the model in the domain, and not for two."""
    name = "memory_limit" if domain == "machine" else "device_memory_limit"

    def within(ceiling):
        return argparse.Namespace(**{**vars(options), name: ceiling})

    tried = options
    for _ in range(4):  # the server itself takes less of a lower ceiling
        _, server, model = planned(tried)[domain]
        ceiling = server + model + min(SPARE, model // 2)
        tried = within(ceiling)
    while plan(tried).returncode:  # and more again where its texts have their full size
        ceiling += MIB
        tried = within(ceiling)
    return within(ceiling + MIB)  # for what the list of two models takes


def serve(options, folder, *more):
    # The folder is all there is: no model is named.
    return Server(options, f"--model-dir={folder}", "--allow-pull", *LIMITS, *text_only(options), *more, named=False)


def reserved(server):
    return {path: (a["reserved_bytes"], a["used_bytes"]) for path, a in accounts(server.get("/api/memory")).items()}


def settled(server):
    """Once they stay: the thread of a load is joined a moment after it."""
    before, now = None, reserved(server)
    while now != before:
        time.sleep(0.2)
        before, now = now, reserved(server)
    return now


class Cycle:
    def __init__(self, server, options):
        self.server, self.rng = server, random.Random(options.seed)
        self.watch, self.held = Watch(), {"own memory": 0}
        self.prompt = server.ids(self.rng, 24)
        self.wanted = {m: self.use(m) for m in ("one", "two")}
        for m in self.wanted:
            self.order(m, "unload")
        self.settle()
        time.sleep(1)
        self.before, self.tasks, self.files = self.bytes_now(), self.count("task"), self.count("fd")
        self.books = reserved(self.server)

    def bytes_now(self):
        """{domain: bytes}, and the process's own memory"""
        memory = self.server.get("/api/memory")
        self.watch.see(memory)
        return {"own memory": self.server.own_bytes(), **used(memory)}

    def count(self, what):
        return len(os.listdir(f"/proc/{self.server.process.pid}/{what}"))

    def is_as_before(self):
        """Within a second: the thread that unloaded is joined a moment after its report."""
        end = time.monotonic() + 1
        while True:
            same = (self.count("task"), self.count("fd"), reserved(self.server)) == (self.tasks, self.files, self.books)
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

    def see(self, model):
        """The most that a model held of each domain, and of the process's own memory."""
        held, memory = {"own memory": 0}, self.server.get("/api/memory")
        self.watch.see(memory)
        for domain, root in roots(memory).items():
            held[domain] = sum(a["used_bytes"] for a in root["children"] if a["name"] == model)
            held["own memory"] += held[domain]
        self.held = {name: max(held[name], self.held.get(name, 0)) for name in held}

    def rests(self):
        """{domain: bytes beyond `before`}: the first look within the bounds, or the last one after a
        second."""
        end = time.monotonic() + 1
        while True:
            rests = {name: now - self.before[name] for name, now in self.bytes_now().items()}
            if all(rest <= allowed(self.held[name]) for name, rest in rests.items()) or time.monotonic() > end:
                return rests
            time.sleep(0.02)


def refusals(report, options, folder):
    """Each domain in turn has memory for one model, and that one is pinned: the other one is refused
    in words that name the domain, and nothing has changed."""
    wide = argparse.Namespace(**{**vars(options), "memory_limit": None, "device_memory_limit": None})
    for domain in planned(wide):
        with serve(narrow(wide, domain), folder, "--pin=one") as server:
            refused(report, server, domain)


def refused(report, server, domain):
    holder, option = f"device {domain}", "--device-memory-limit"
    if domain == "machine":
        holder, option = "the server", "--memory-limit"
    first, _ = server.post("/v1/models/one/load")
    before = settled(server)
    status, answer = server.post("/v1/models/two/load")
    text = answer.get("error", {}).get("message", "")
    report.say(f"{status} {text}")
    named = f" bytes {holder} would hold" in text and f"or raise {option}." in text
    report.must(f"507 names {holder} and {option}", (first, status) == (200, 507) and named)
    after = settled(server)
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    report.must(f"{domain}: a refused load changes no account {changed or ''}", not changed)


def run(options):
    report = Report("models", options)
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        for name in ("one", "two"):
            pathlib.Path(folder, name).symlink_to(pathlib.Path(options.model).resolve())
        cycles(report, options, folder)
        refusals(report, options, folder)
    return report.done()


def with_ceilings(options):
    """The last domain, which is the device's if there is one, holds one of the model and not two."""
    domain, (ceiling, server, model) = list(planned(options).items())[-1]
    if not (options.memory_limit if domain == "machine" else options.device_memory_limit):
        return narrow(options, domain)
    if ceiling >= server + 2 * model:
        raise SystemExit(f"{domain} has room for two models: {mib(ceiling)}, of which one takes {mib(model)}.")
    return options


def cycles(report, options, folder):
    rests, equal, tokens = [], True, True
    with serve(with_ceilings(options), folder) as server:
        cycle = Cycle(server, options)
        for n in range(options.cycles):
            model = cycle.rng.choice(["one", "two"])
            for _ in range(cycle.rng.randrange(1, 4)):
                if cycle.rng.random() < 0.3:
                    cycle.order(model, "load")
                tokens &= cycle.use(model) == cycle.wanted[model]
            cycle.see(model)
            if cycle.rng.random() < 0.3 and n + 1 < options.cycles:
                continue  # The next one makes room by itself.
            cycle.order(model, "unload")
            cycle.settle()
            rests.append(cycle.rests())
            equal &= cycle.is_as_before()
        counts = {m["id"]: (m["loads"], m["unloads"], m["load_failures"]) for m in server.get("/api/status")["models"]}
        must_rest(report, server.get("/api/memory"), "after the last unload")
    judge(report, options, cycle, rests, counts)
    report.must("no load failed, and every answer is the same tokens", tokens and all(c[2] == 0 for c in counts.values()))
    report.must("threads, descriptors and every account equal after each unload", equal)
    plot(report, options, [r["own memory"] for r in rests], allowed(cycle.held["own memory"]))


def judge(report, options, cycle, rests, counts):
    report.figure("cycles", options.cycles, f"{options.cycles}: loads, unloads and failures {counts}")
    for name, held in cycle.held.items():
        left = [r[name] for r in rests]
        report.figure(f"{name.replace(' ', '_')}_held", held, mib(held))
        report.figure(f"{name.replace(' ', '_')}_rests", left, f"after an unload beyond before: first {mib(left[0])}, last {mib(left[-1])}, most {mib(max(left))}")
        report.must(f"{name}: within 1 s of each unload within {mib(allowed(held))} of before", max(left) <= allowed(held))
    cycle.watch.judge(report)


def plot(report, options, rests, bound):
    def draw(axes):
        axes.plot([r / MIB for r in rests], ".", ms=2)
        axes.axhline(bound / MIB, color="grey", lw=0.6, ls=":")
        axes.set(xlabel="unload", ylabel="MiB beyond before", title=f"{report.name}: {options.cycles} cycles")

    report.plot(draw)
