"""draft: thousands of steps with draft tokens in one generation: output and pages equal those without
drafts.

The head drafts, the model verifies. The longest generation continues until the given number of steps had
drafts. Memory is sampled all the time; each account of the ledger must be constant, except for the units
of its pages. Then the same tokens are generated without drafts, and again with temperature and a seed.
Last, eight prompts of different acceptance run at once, each compared with its run alone."""

import json
import math
import random
import re
import threading
import time

from common import MIB, Connection, Report, Running, Sampler, Server, mib

UNIT = 2 * MIB
PAGE = 32
PROMPT = 64
AHEAD = 256  # tokens that may be on their way to a reader
COUNTERS = ("drafts", "draft_tokens", "accepted_tokens")


class Generation(Running):
    """A completion read as a stream, with its tokens."""

    def __init__(self, port, body):
        self.ids, self.text = [], b""
        super().__init__(port, {**body, "return_token_ids": True})

    def run(self):
        try:
            while part := self.sock.recv(65536):
                self.text += part
                whole, _, self.text = self.text.rpartition(b"\n\n")
                for found in re.findall(rb'"token_ids":\[([0-9, ]*)\]', whole):
                    self.ids += map(int, found.split(b","))
        except OSError:
            pass

    def to_the_end(self):
        self.join()
        self.sock.close()
        return self.ids


def counters(server):
    drafted = server.model()["speculation"]
    return {name: drafted[name] for name in COUNTERS}


def since(server, before):
    return {name: count - before[name] for name, count in counters(server).items()}


def say_drafts(moved, tokens):
    right = moved["accepted_tokens"] / max(moved["draft_tokens"], 1)
    return f"{tokens} tokens, {moved['drafts']} steps with drafts: {moved['draft_tokens']} drafted, {100 * right:.1f} % of them right"


# ---- one long generation ----


def page_bytes(server):
    """While something runs."""
    model = server.model()
    return model["pools"]["kv"]["active_bytes"] // model["pages_used"]


def generate(server, options, body):
    """(tokens, samples, bytes of a page, counters): continues until enough steps had drafts, or the
    context is full."""
    before = counters(server)
    longest = server.model()["max_model_len"] - PROMPT - 1
    with Sampler(server, 0.05, lambda: len(running.ids)) as sampler:
        running = Generation(server.port, {**body, "max_tokens": longest})
        while len(running.ids) < 2 * PAGE and running.is_alive():
            time.sleep(0.001)
        page = page_bytes(server)
        while running.is_alive() and since(server, before)["drafts"] < options.draft_steps:
            time.sleep(0.05)
        moved, grown = since(server, before), list(sampler.rows)
        running.leave()
    server.wait_idle()
    return running.ids, grown, page, moved


def units_of(tokens, page):
    return math.ceil(math.ceil(tokens / PAGE) * page / UNIT) * UNIT


def judge_memory(report, rows, page):
    # By then the sequence has its place, its states and its first page, and the samplers are connected.
    rows = [(a["at"], b) for a, b in zip(rows, rows[1:]) if a["at"] > 2 * PAGE]
    if len(rows) < 3:
        raise SystemExit("draft: the generation was over before memory was looked at often enough; ask for more (--draft-steps)")
    first = rows[0][1]
    kv = next(path for path in first["accounts"] if path.endswith("/pools/kv"))
    moved, odd, beside = {}, [], []
    for known, row in rows:
        grown = row["accounts"][kv] - first["accounts"][kv]
        for path in first["accounts"] | row["accounts"]:
            change = row["accounts"].get(path, 0) - first["accounts"].get(path, 0)
            if change != (grown if (kv + "/").startswith(path + "/") else 0):
                moved[path] = change
        if not units_of(PROMPT + known, page) <= row["accounts"][kv] <= units_of(PROMPT + row["at"] + AHEAD, page):
            odd.append((known, row["accounts"][kv]))
        beside.append(row["own"] - row["accounts"][kv])
    kv_grown = rows[-1][1]["accounts"][kv] - first["accounts"][kv]
    own_grown = rows[-1][1]["own"] - first["own"]
    report.figure("samples", len(rows))
    report.figure("own_bytes_grown", own_grown, f"{mib(own_grown)} of own memory, {mib(kv_grown)} of it units for pages of {page} bytes")
    report.figure("beside_pages", max(beside) - min(beside), f"{mib(max(beside) - min(beside))} between least and most own memory beside pages")
    report.must(f"in every sample the ledger grew by units for pages and nothing else {moved or ''}", not moved)
    report.must(f"in every sample those are the units that the pages of its tokens lie in {odd[:3] or ''}", not odd)
    report.must("own memory beside pages is flat within 1 MiB and the unit that is being committed", max(beside) - min(beside) <= MIB + UNIT)


def plot(report, rows, steps):
    def draw(axes):
        axes.plot([row["at"] for row in rows], [row["own"] / MIB for row in rows], lw=0.9, label="own memory")
        axes.plot([row["at"] for row in rows], [row["pools"] / MIB for row in rows], lw=0.9, label="pages and states")
        axes.set(xlabel="tokens", ylabel="MiB", ylim=(0, None), title=f"{report.name}: {steps} steps with drafts in one generation")
        axes.legend(frameon=False)

    report.plot(draw)


def long_generation(report, options):
    # Two ahead at most: at three tokens a step 10,000 steps fit in the bundled model's 32768.
    with Server(options, "--mtp", 2, "--compaction-reserve", 0) as server:
        if server.model()["speculation"]["method"] == "off":
            raise SystemExit("draft: nobody drafts in this model: it has no head, see --serve=--spec=ngram")
        rng = random.Random(options.seed)
        body = {"prompt": server.ids(rng, PROMPT), "ignore_eos": True, "temperature": 0}
        Generation(server.port, {**body, "max_tokens": 64}).to_the_end()
        server.wait_idle()
        server.clear_cache()
        ids, rows, page, moved = generate(server, options, body)
        report.figure("greedy", {"tokens": len(ids), **moved}, say_drafts(moved, len(ids)))
        report.must(f"{options.draft_steps} steps with drafts in one generation", moved["drafts"] >= options.draft_steps)
        report.must("drafts were right", moved["accepted_tokens"] > 0)
        judge_memory(report, rows, page)
        plot(report, rows, moved["drafts"])
        plain = Generation(server.port, {**body, "max_tokens": len(ids), "speculative": False, "cache_salt": "plain"}).to_the_end()
        report.must(f"the same {len(ids)} tokens as without", len(ids) > 0 and plain == ids)
        drawn(report, options, server, {**body, "temperature": 1.0, "seed": options.seed, "max_tokens": options.draft_tokens})


def drawn(report, options, server, body):
    before = counters(server)
    ids = Generation(server.port, body).to_the_end()
    moved = since(server, before)
    plain = Generation(server.port, {**body, "speculative": False, "cache_salt": "plain"}).to_the_end()
    report.figure("drawn", {"tokens": len(ids), **moved}, say_drafts(moved, len(ids)))
    report.must(f"the same {options.draft_tokens} tokens as without, drawn with temperature 1 and a seed", len(ids) == options.draft_tokens and plain == ids)


# ---- eight at once ----


def eight(server, options):
    """Some repeat themselves soon, others hardly: acceptance differs."""
    rng = random.Random(options.seed + 8)
    temperatures = (0, 0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0)
    return [
        {
            "prompt": server.ids(rng, 8 + 24 * i),
            "max_tokens": options.draft_batch,
            "ignore_eos": True,
            "temperature": temperature,
            "seed": options.seed + i,
            "return_token_ids": True,
        }
        for i, temperature in enumerate(temperatures)
    ]


def together(server, bodies):
    answers = [None] * len(bodies)

    def ask(i):
        connection = Connection(server.port)
        answers[i] = json.loads(connection.call("POST", "/v1/completions", bodies[i])[1])["choices"][0]["token_ids"]
        connection.close()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(bodies))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return answers


def batch(report, options):
    with Server(options, "--host-cache", 0, "--max-num-seqs", 8) as server:
        bodies, alone, rates = eight(server, options), [], []
        for body in bodies:
            before = counters(server)
            alone += together(server, [body])
            moved = since(server, before)
            rates.append(moved["accepted_tokens"] / max(moved["draft_tokens"], 1))
        before = counters(server)
        at_once = together(server, bodies)
        moved = since(server, before)
        plain = together(server, [{**body, "speculative": False} for body in bodies])
    report.figure("alone_right", rates, f"of their drafts {', '.join(f'{100 * rate:.0f}' for rate in rates)} %")
    report.figure("at_once", moved, f"eight: {say_drafts(moved, sum(map(len, at_once)))}")
    report.must("eight are drafted more and less well", max(rates) - min(rates) > 0.1)
    report.must("eight had drafts at once", moved["draft_tokens"] > 0)
    report.must("eight at once have the tokens that each has alone", at_once == alone and all(len(ids) == options.draft_batch for ids in alone))
    report.must("and those they have without drafts", plain == alone)


def run(options):
    report = Report("draft", options)
    long_generation(report, options)
    batch(report, options)
    return report.done()
