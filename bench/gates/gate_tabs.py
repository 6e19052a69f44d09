"""tabs: browser tabs that show a server's page for an hour: do they cost first tokens, processor or memory?

Two servers with the same traffic, one of them with the tabs. The same prompt goes to both in turns, with
a hit in the prefix cache and computed (a salt of its own); the pause after each pair is random. The
difference between the servers is the cost of the tabs, also on a busy machine: each pair meets the same
moment, and the browser takes its processor time from both."""

import itertools
import os
import pathlib
import random
import statistics
import time

import stats
import webdriver
from common import ADMIN_KEY, MIB, Report, Server, account, mib, stream

PAUSE_S = (0.2, 0.6)
LOOK_S = 10  # between two looks at memory
KINDS = ("found in the cache", "computed")
SHARE_MAX = 0.01  # share of a core
GROWTH_MAX = MIB
TAIL_MAX = 1.1  # p99 with tabs / without


class Looks:
    """Memory and processor seconds of one server, over time."""

    def __init__(self, server):
        self.server, self.began = server, time.monotonic()
        self.first_s, self.rows = self.processor_s(), []

    def processor_s(self):
        fields = pathlib.Path(f"/proc/{self.server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def look(self):
        memory = self.server.get("/api/memory")
        own, used = self.server.own_bytes(), memory["used_bytes"]
        self.rows.append({"s": time.monotonic() - self.began, "processor_s": self.processor_s() - self.first_s, "own": own, "used": used,
                          "outside_accounts": own - used, "history": account(memory, "history")["used_bytes"]})

    def grown(self, name):
        """The median of the last tenth less the median of the second tenth: the first one warms up."""
        values = [row[name] for row in self.rows]
        tenth = max(1, len(values) // 10)
        return statistics.median(values[-tenth:]) - statistics.median(values[tenth : 2 * tenth] or values)


class Tabs:
    """Windows of one browser, all of which show the page."""

    def __init__(self, server, count):
        self.browser = webdriver.Browser(*webdriver.ALWAYS_ACTIVE)
        for index in range(count):
            if index > 0:
                self.browser.new_window()
            self.browser.open(f"http://127.0.0.1:{server.port}/#key={ADMIN_KEY}")
            self.browser.until("return document.body.dataset.connection === 'ok' && !document.hidden")
            self.browser.js("window.polls = 0; const ask = window.fetch; window.fetch = (...all) => { window.polls++; return ask(...all); };")

    def requests(self):
        """How many each has sent. One that lost its server, or is hidden, is an error."""
        counts = []
        for window in self.browser.windows():
            self.browser.go_to(window)
            state, count = self.browser.js("return [document.hidden ? 'hidden' : document.body.dataset.connection, window.polls]")
            if state != "ok":
                raise SystemExit(f"tabs: a tab is {state}")
            counts.append(count)
        return counts

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.browser.close()


def first_token(server, body, salt):
    return stream(server.port, "/v1/completions", {**body, **({"cache_salt": salt} if salt else {})}).first * 1000


def measure(options, servers, looks):
    """First tokens in ms: {kind: {name: [times]}}; the n-th of both servers are a pair."""
    rng = random.Random(options.seed)
    body = {"prompt": next(iter(servers.values())).ids(rng, options.jitter_prompt), "max_tokens": 8, "ignore_eos": True}
    times = {kind: {name: [] for name in servers} for kind in KINDS}
    end, due = time.monotonic() + options.tabs_seconds, 0.0
    for n in itertools.count():
        if time.monotonic() > end:
            return times
        kind = KINDS[n // 2 % 2]
        for name in list(servers)[:: 1 if n % 2 else -1]:
            times[kind][name].append(first_token(servers[name], body, f"{n:06}" if kind == "computed" else None))
        time.sleep(rng.uniform(*PAUSE_S))
        if time.monotonic() >= due:
            due = time.monotonic() + LOOK_S
            for look in looks.values():
                look.look()


def tail_interval(pairs, seed=1, draws=1000):
    """(low, found, high): p99 with tabs / p99 without, and its 95 % interval, by bootstrap over pairs."""
    def tail(some):
        with_tabs, without = zip(*some)
        return stats.quantile(with_tabs, 0.99) / stats.quantile(without, 0.99)

    rng = random.Random(seed)
    drawn = sorted(tail(rng.choices(pairs, k=len(pairs))) for _ in range(draws))
    return stats.quantile(drawn, 0.025), tail(pairs), stats.quantile(drawn, 0.975)


def judge_times(report, kind, times):
    for name, values in times.items():
        p50, p95, p99 = (stats.quantile(values, q) for q in (0.5, 0.95, 0.99))
        report.figure(f"{kind}, {name}", values, f"p50 {p50:.2f} p95 {p95:.2f} p99 {p99:.2f} longest {max(values):.2f} ms, {len(values)} requests, p99 / p50 {p99 / p50:.2f}")
    pairs = list(zip(times["tabs"], times["none"]))
    middle, tail = stats.ratio_interval([a / b for a, b in pairs]), tail_interval(pairs)
    report.figure(f"{kind}, ratio", [middle, tail], f"with tabs / without: medians {middle[1]:.3f} ({middle[0]:.3f} to {middle[2]:.3f}), p99 {tail[1]:.3f} ({tail[0]:.3f} to {tail[2]:.3f})")
    with_tabs = times["tabs"]
    report.must(f"{kind}: p99 <= 1.3 x median with tabs", stats.quantile(with_tabs, 0.99) <= 1.3 * stats.quantile(with_tabs, 0.5))
    report.must(f"{kind}: p99 with tabs is not above {TAIL_MAX} times that without", tail[0] <= TAIL_MAX)


def judge_cost(report, looks, requests, seconds):
    spent = {name: look.rows[-1]["processor_s"] for name, look in looks.items()}
    share = (spent["tabs"] - spent["none"]) / seconds
    report.figure("requests", requests, f"{sum(requests)} of {len(requests)} tabs in {seconds:.0f} s")
    report.figure("processor_share", share, f"{100 * share:.3f} % of a core ({spent['tabs']:.2f} and {spent['none']:.2f} s in {seconds:.0f} s)")
    report.must("the tabs take less than 1 % of a core", share < SHARE_MAX)
    report.must("each tab asked all the time", min(requests) >= seconds / 6)
    for name in ("own", "used", "outside_accounts", "history"):
        grown = {key: look.grown(name) for key, look in looks.items()}
        report.figure(f"{name}_grown", grown, f"with tabs {mib(grown['tabs'])}, without {mib(grown['none'])}")
        report.must(f"{name}: the tabs add no growth", grown["tabs"] - max(0, grown["none"]) <= GROWTH_MAX)


def run(options):
    report = Report("tabs", options)
    if not webdriver.is_there():
        raise SystemExit("tabs: it needs Chromium: tools/install-packages browser")
    # The cache is full when the first tenth is over.
    cache = ("--host-cache", "32M")
    with Server(options, *cache) as with_tabs, Server(options, *cache) as without, Tabs(with_tabs, options.tabs) as tabs:
        servers = {"tabs": with_tabs, "none": without}
        looks = {name: Looks(server) for name, server in servers.items()}
        began = time.monotonic()
        times = measure(options, servers, looks)
        seconds = time.monotonic() - began
        for look in looks.values():
            look.look()
        requests = tabs.requests()
    for kind in KINDS:
        judge_times(report, kind, times[kind])
    judge_cost(report, looks, requests, seconds)
    report.figure("looks", {name: look.rows for name, look in looks.items()}, f"{len(looks['tabs'].rows)} at each server")

    def draw(axes):
        for name, look in looks.items():
            axes.plot([row["s"] / 60 for row in look.rows], [row["own"] / MIB for row in look.rows], lw=0.9, label="own memory, " + ("with tabs" if name == "tabs" else "without"))
        axes.set(xlabel="minutes", ylabel="MiB", ylim=(0, None), title=f"{report.name}: {options.tabs} tabs")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
