#!/usr/bin/env python3
"""Simulates many replicas and a day of agents: hits, latencies, and the traffic of each component.

    tools/fleet/fleet.py --router nginx --at-once 3 --json costs.json         what a token costs, measured
    tools/fleet/fleet.py --router nginx --router vllm-events --json real.json
    tools/fleet/simulate.py --costs costs.json --real real.json               the simulation beside that fleet
    tools/fleet/simulate.py --replicas 10,100,1000                            a day, with the costs of a GPU

A replica computes prompts one after the other, finds the longest prefix that it holds, and forgets what was
used least recently. A day is told in --day seconds: its load follows the hours, and think times stay. A
policy chooses within a cell of replicas, to which a hash leads each conversation:

    random  any replica
    hash    one replica for each conversation
    tree    the replica with most of the text, unless the load differs by more than --threshold requests
    events  the replica that is first to have computed the prompt: by what it holds, and by its queue"""

import argparse
import collections
import dataclasses
import heapq
import json
import math
import pathlib
import random
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import agents  # noqa: E402

PAGE = 32            # tokens
EVENT_BYTES = 169    # a page in KV events, measured with kv_events_judge.py
TOKEN_BYTES = 4.5    # JSON of a request, a token
REPLY_BYTES = 190    # event of a stream, a token
PROBES = 1.0         # health checks of a replica and router, a second


@dataclasses.dataclass
class Costs:
    """Seconds of one replica."""

    token: float = 1 / 12000   # to compute one token of a prompt
    request: float = 0.015     # before the first token, besides
    reply: float = 0.012       # for each further token
    noise: tuple = (1.0,)      # factors that were measured
    tokens: int = 400_000      # held in the prefix cache


@dataclasses.dataclass
class Talk:
    """A conversation: tokens of prompts, and what each finds where the last turn ran; pauses before them."""

    number: int
    application: int
    shared: int
    prompts: list
    finds: list
    thinks: list
    reply: int


class Replica:
    """One server: the prefixes that it holds, and its queue."""

    def __init__(self, costs):
        self.costs, self.held, self.tokens = costs, collections.OrderedDict(), 0
        self.free_at, self.open, self.pages = 0.0, 0, 0

    def finds(self, talk, turn):
        """Returns how many tokens of a turn's prompt it holds."""
        last = self.held.get(talk.number)
        if last is not None:
            return talk.finds[last[1] + 1] if last[1] + 1 <= turn else talk.finds[turn]
        return min(talk.shared, talk.finds[turn] or talk.shared) if -1 - talk.application in self.held else 0

    def keep(self, key, tokens, turn):
        before = self.held.pop(key, (0, 0))[0]
        self.held[key] = (tokens, turn)
        self.tokens += tokens - before
        self.pages += max(0, tokens - before) // PAGE
        while self.tokens > self.costs.tokens and len(self.held) > 1:
            self.tokens -= self.held.popitem(last=False)[1][0]

    def ready_at(self, now, talk, turn):
        """Returns when it would have computed a turn."""
        return max(now, self.free_at) + (talk.prompts[turn] - self.finds(talk, turn)) * self.costs.token

    def take(self, now, talk, turn, rng):
        """Serves a turn. Returns (tokens found, time of its first token)."""
        found = self.finds(talk, turn)
        noise = rng.choice(self.costs.noise)
        self.free_at = max(now, self.free_at) + (talk.prompts[turn] - found) * self.costs.token * noise
        if talk.shared:
            self.keep(-1 - talk.application, talk.shared, 0)
        self.keep(talk.number, talk.prompts[turn] - talk.shared, turn)
        self.open += 1
        return found, self.free_at + self.costs.request * noise


class Fleet:
    """Replicas in cells, and the policy within each."""

    def __init__(self, count, cell, policy, threshold, costs, rng):
        self.replicas = [Replica(costs) for _ in range(count)]
        self.cells = [self.replicas[i:i + cell] for i in range(0, count, cell)]
        self.policy, self.threshold, self.rng = policy, threshold, rng
        self.sent = collections.defaultdict(dict)  # tree: conversation or application: {replica: turns}

    def choose(self, now, talk, turn):
        place = zlib.crc32(str(talk.number).encode())
        cell = self.cells[place % len(self.cells)]
        if self.policy == "random":
            return self.rng.choice(cell)
        if self.policy == "hash":
            return cell[place // len(self.cells) % len(cell)]
        if self.policy == "events":
            return min(cell, key=lambda r: (r.ready_at(now, talk, turn), self.rng.random()))
        loads = [r.open for r in cell]
        if max(loads) - min(loads) > self.threshold and max(loads) > 1.5 * min(loads):
            best = min(cell, key=lambda r: (r.open, self.rng.random()))
        else:
            known = self.sent[talk.number] or self.sent[-1 - talk.application]
            best = max(cell, key=lambda r: (known.get(id(r), -1), self.rng.random())) if known else self.rng.choice(cell)
        self.sent[talk.number][id(best)] = turn
        self.sent[-1 - talk.application].setdefault(id(best), 0)
        return best


def run(fleet, starts, talks, rng):
    """Plays conversations; `starts` yields (time, None), or is a number of conversations at once. Returns the
    turns as (prompt, cached, seconds to the first token, time)."""
    done, events, count = [], [], 0

    def begin(at):
        nonlocal count
        talk = next(talks, None)
        if talk:
            count += 1
            heapq.heappush(events, (at + talk.thinks[0], count, "turn", talk, 0))

    if isinstance(starts, int):
        for _ in range(starts):
            begin(0.0)
        ahead = iter(())
    else:
        ahead = iter(starts)
    coming = next(ahead, None)
    while events or coming is not None:
        if coming is not None and (not events or coming <= events[0][0]):
            begin(coming)
            coming = next(ahead, None)
            continue
        now, _, what, talk, turn = heapq.heappop(events)
        if what == "end":
            replica, talk = talk
            replica.open -= 1
            if turn + 1 < len(talk.prompts):
                count += 1
                heapq.heappush(events, (now + talk.thinks[turn + 1], count, "turn", talk, turn + 1))
            elif isinstance(starts, int):
                begin(now)
            continue
        replica = fleet.choose(now, talk, turn)
        found, first = replica.take(now, talk, turn, rng)
        done.append((talk.prompts[turn], found, first - now, now))
        count += 1
        heapq.heappush(events, (first + talk.reply * replica.costs.reply, count, "end", (replica, talk), turn))
    return done


def summary(done):
    if not done:
        sys.exit("no conversation began: --day is too short")
    first = sorted(t[2] for t in done)
    return sum(t[1] for t in done) / sum(t[0] for t in done), first[len(first) // 2], first[int(len(first) * 0.99)]


# ---- beside a fleet that ran ----

def fitted(turns, load):
    """Returns the costs that a run with as many conversations as replicas has measured."""
    points = [(t["prompt"] - t["cached"], t["first"]) for t in turns if not t["error"]]
    mx, my = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    slope = sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)
    slope, base = max(slope, 1e-6), max(my - slope * mx, 1e-4)
    noise = tuple(y / (base + slope * x) for x, y in points)
    reply = sorted((t["ended"] - t["began"] - t["first"]) / max(load["reply"] - 1, 1) for t in turns if not t["error"])
    return Costs(slope, base, reply[len(reply) // 2], noise, 10**9)


def talks_of(turns, load):
    """Returns the conversations of a run with one replica: lengths, and what each turn found there."""
    by = collections.defaultdict(list)
    for t in sorted(turns, key=lambda t: t["turn"]):
        by[t["conversation"]].append(t)
    numbers = agents.Load(**load)
    shared = collections.defaultdict(int)
    for number, ts in by.items():
        shared[agents.application_of(numbers, number)] = max(shared[agents.application_of(numbers, number)], ts[0]["cached"])
    for number in sorted(by):
        ts = by[number]
        application = agents.application_of(numbers, number)
        finds = [shared[application], *[t["cached"] for t in ts[1:]]]
        yield Talk(number, application, shared[application], [t["prompt"] for t in ts], finds,
                   agents.pauses(numbers, number, len(ts)), load["reply"])


def beside(options):
    """Prints the real fleet's figures and the simulation's. Returns whether they agree within 10 %."""
    costs_run, real = json.loads(pathlib.Path(options.costs).read_text()), json.loads(pathlib.Path(options.real).read_text())
    by_policy = {"nginx": "hash", "envoy": "hash", "sglang": "tree", "vllm-text": "tree", "vllm-events": "events", "vllm-session": "hash"}
    calibrated = next(turns for name, turns in costs_run["turns"].items() if name != "none")
    costs, good = fitted(calibrated, costs_run["load"]), True
    print("| router, policy | hits: real | simulated | first token p50: real | simulated | p99: real | simulated |\n|---|---|---|---|---|---|---|")
    for name, turns in real["turns"].items():
        if name == "none":
            continue
        found = []
        for seed in range(options.seeds):
            rng = random.Random(seed)
            fleet = Fleet(real["replicas"], real["replicas"], by_policy[name], options.threshold, costs, rng)
            found.append(summary(run(fleet, real["load"]["at_once"], talks_of(real["turns"]["none"], real["load"]), rng)))
        rate, p50, p99 = (sorted(f[i] for f in found)[len(found) // 2] for i in range(3))
        was = summary([(t["prompt"], t["cached"], t["first"], 0) for t in turns if not t["error"]])
        print(f"| {name}, {by_policy[name]} | {100 * was[0]:.1f} % | {100 * rate:.1f} % | {1000 * was[1]:.0f} ms | {1000 * p50:.0f} ms | "
              f"{1000 * was[2]:.0f} ms | {1000 * p99:.0f} ms |")
        good &= abs(rate / was[0] - 1) <= 0.1 and abs(p99 / was[2] - 1) <= 0.1
    return good


# ---- a day ----

def agents_of_a_day(rng, options):
    """Yields conversations: 25 turns in the median, prompts from 3k to 12k tokens of an application on."""
    number = 0
    while True:
        number += 1
        application = min(int(rng.paretovariate(0.9)), options.applications)
        shared = random.Random(application).randrange(3000, 12000) // PAGE * PAGE
        turns = max(2, int(rng.lognormvariate(math.log(25), 0.6)))
        length, prompts, finds = shared, [], []
        for _ in range(turns):
            finds.append(length // PAGE * PAGE)
            length += int(rng.lognormvariate(math.log(400), 0.8))
            prompts.append(length)
            length += options.reply
            if length > options.context:
                break
        finds[0] = shared
        yield Talk(number, application, shared, prompts, finds, [min(rng.lognormvariate(math.log(5), 1.0), 120.0) for _ in prompts], options.reply)


def starts_of_a_day(rng, options, replicas):
    """Yields times: the mean rate times 0.4 at night to 1.6 at noon."""
    each = 30 * (5 * 1.65 + options.reply * options.costs_of.reply + 0.3)  # seconds of a conversation, about
    mean, now = replicas * options.sessions / each, 0.0
    while now < options.day:
        now += rng.expovariate(mean * 1.6)
        if rng.random() < (1 - 0.6 * math.cos(2 * math.pi * now / options.day)) / 1.6:
            yield now


def day(options):
    print("| replicas | policy | requests/s | hits | first token p50 | p99 | busy | bodies in | streams out | KV events | renders | probes |\n" + "|---" * 12 + "|")
    for replicas in map(int, options.replicas.split(",")):
        for policy in options.policy.split(","):
            rng = random.Random(options.seed)
            options.costs_of = Costs(1 / options.prefill, tokens=options.tokens)
            cell = min(options.cell, replicas)
            fleet = Fleet(replicas, cell, policy, options.threshold, options.costs_of, rng)
            done = run(fleet, starts_of_a_day(rng, options, replicas), agents_of_a_day(rng, options), rng)
            span, done = options.day, [t for t in done if t[3] < options.day]
            rate, p50, p99 = summary(done)
            computed, prompts = sum(t[0] - t[1] for t in done), sum(t[0] for t in done)
            events = sum(r.pages for r in fleet.replicas) * EVENT_BYTES if policy == "events" else 0
            renders = len(done) * cell if policy == "events" else 0
            print(f"| {replicas} | {policy} | {len(done) / span:.1f} | {100 * rate:.1f} % | {1000 * p50:.0f} ms | {p99:.2f} s | "
                  f"{100 * computed * options.costs_of.token / span / replicas:.0f} % | {prompts * TOKEN_BYTES / span / 1e6:.2f} MB/s | "
                  f"{len(done) * options.reply * REPLY_BYTES / span / 1e6:.2f} MB/s | {events / span / 1e6:.3f} MB/s | {renders / span:.0f}/s | "
                  f"{replicas * PROBES:.0f}/s |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--costs", help="what fleet.py --json wrote, with as many conversations at once as replicas")
    p.add_argument("--real", help="what fleet.py --json wrote: is compared with")
    p.add_argument("--seeds", type=int, default=15, help="simulations, of which the median counts (15)")
    p.add_argument("--replicas", default="10,100,1000")
    p.add_argument("--policy", default="hash,tree,events")
    p.add_argument("--cell", type=int, default=16, help="replicas behind one router (16)")
    p.add_argument("--threshold", type=int, default=2, help="of the policy tree (2)")
    p.add_argument("--sessions", type=float, default=6, help="open conversations of a replica, on average (6)")
    p.add_argument("--applications", type=int, default=200)
    p.add_argument("--reply", type=int, default=120, help="tokens (120)")
    p.add_argument("--context", type=int, default=40_000, help="tokens at which a conversation ends (40000)")
    p.add_argument("--prefill", type=float, default=12000, help="tokens a second of one replica (12000)")
    p.add_argument("--tokens", type=int, default=400_000, help="that a replica holds (400000)")
    p.add_argument("--day", type=float, default=1440, help="seconds in which a day is told (1440)")
    p.add_argument("--seed", type=int, default=1)
    options = p.parse_args()
    if options.real:
        return 0 if beside(options) else 1
    day(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
