"""agents: coding agents for days. Does each turn find its conversation in the prefix cache, and does any
memory remain?

Sessions have the shapes of Claude Code (Messages), Codex (Responses) and OpenCode (chat): see agent_shapes.py
and agent_clients.py. First each kind plays two sessions by itself, without and with thinking. Then several
agents work at once until --agents-requests turns have been sent; one more kind uses stored responses. Own
memory is compared between rests, at which the cache is cleared: conversations grow and end between them.

A turn's share is its cached tokens by the tokens that an earlier request computed:

* after a tool's result: prompt and reply of the turn before;
* after a message of the user: the same; but where the template drops the reasoning of earlier tasks, the
  prompt of the turn that began the last task. All after it is another text, which no cache can have.
* when the same request is sent again after an interruption: its whole prompt but the last token.

The share of the whole prompt is reported beside it, and judged where the template drops nothing."""

import collections
import dataclasses
import random
import statistics
import threading
import time

import stats
from agent_clients import KINDS, Refused
from agent_shapes import CALL, HEAD, REPLY_MAX, RESULT_MAX, SPARE, head_of, result, shape
from common import Report, Sampler, Server, account, mib
from domains import Watch, must_be_as
from gate_soak import returned, settle

SHARE = 0.95
ALONE = ("messages", "responses", "chat")
TOGETHER = ("stored", "messages", "responses", "chat")
BACKGROUND = "canary/background"  # the second name of the model
STORE = 256 << 10
DAY = 4000  # turns of one agent in 24 hours: one in 22 s, its tools' time included


@dataclasses.dataclass
class Row:
    """A turn as its client saw it."""

    kind: str
    thinking: bool
    turn: int
    told: bool  # a message of the user came with it
    prompt: int
    cached: int
    output: int
    findable: int  # tokens that an earlier request computed; 0: the first turn
    first_ms: float

    def lost(self):
        return self.findable - self.cached

    def share(self):
        return self.cached / self.findable

    def of_prompt(self):
        return self.cached / self.prompt


class Log:
    """Results of all agents of the gate."""

    def __init__(self):
        self.rows, self.failures, self.lock = [], [], threading.Lock()
        self.statuses, self.asked, self.miscounted, self.sent_again, self.reached = collections.Counter(), collections.Counter(), [], 0, {}
        self.stored = []

    def failed(self, what, error):
        with self.lock:
            self.failures.append(f"{what}: {error!r}")
            if isinstance(error, Refused):
                self.statuses[error.args[0]] += 1

    def done(self):
        return len(self.rows)


class Field:
    """State that the sessions of a server share."""

    def __init__(self, server, options):
        self.server, self.options = server, options
        self.model = server.get("/v1/models")["data"][0]
        self.context = self.model["max_model_len"]
        sample = result(random.Random(0), 2000)
        self.words_a_token = 2000 / self.server.post("/tokenize", {"prompt": sample})[1]["count"]
        self.head = self.sized_head()
        self.drops = {thinking: self.template_drops(thinking) for thinking in (False, True)}
        self.log = Log()

    def sized_head(self):
        """Tools and instructions of HEAD of the context."""
        size, wanted = 1.0, HEAD * self.context
        for _ in range(4):
            tools, system = head_of(size, self.options.agents_tools)
            functions = [{"type": "function", "function": {"name": n, "description": d, "parameters": s}} for n, d, s in tools]
            self.head_tokens = self.server.post("/tokenize", {"messages": [{"role": "system", "content": system}], "tools": functions})[1]["count"]
            size *= wanted / self.head_tokens
        return tools, system

    def template_drops(self, thinking):
        """Whether a later message of the user changes what stands before it."""
        asked = {"role": "user", "content": "A"}
        answered = {"role": "assistant", "content": "B", "reasoning_content": "C"}

        def tokens(messages):
            more = {"enable_thinking": thinking}
            return self.server.post("/tokenize", {"messages": messages, "chat_template_kwargs": more})[1]["tokens"]

        prompt = tokens([asked])
        return tokens([asked, answered, asked])[: len(prompt)] != prompt

    def play(self, kind, seed, thinking, more=lambda: True):
        """One session, while `more()` says so."""
        limit, longest = (1 - SPARE) * self.context, RESULT_MAX * self.head_tokens
        made = shape(seed, self.head, self.options.agents_turns, limit - self.head_tokens, longest, self.words_a_token)
        agent = KINDS[kind](self.server.port, made, self.model["id"], BACKGROUND, thinking)
        session = Session(self, agent, kind, thinking)
        try:
            for t, next_one in zip(made.turns, [*made.turns[1:], None]):
                if not more() or session.before > (1 - SPARE / 2) * self.context:
                    break  # the second: agents begin anew with a summary then
                room = (limit - session.before) / (len(made.turns) - t.number)
                if t.result and room < REPLY_MAX + CALL + 20:
                    t.result = t.result[:60]
                session.play(t, bool(next_one and next_one.result))
        except (Refused, OSError, ValueError, KeyError) as error:
            self.log.failed(f"{kind} {seed} turn {session.turn}", error)
        self.log.reached[kind, seed] = session.turn + 1
        if kind == "stored":
            self.log.sent_again += agent.sent_again
            self.log.stored += agent.stored
        agent.close()


class Session:
    """One agent's turns, and what each could have found."""

    def __init__(self, field, agent, kind, thinking):
        self.field, self.agent, self.kind, self.thinking = field, agent, kind, thinking
        self.before = self.task = 0  # tokens: of the last turn, of the turn that began the task
        self.turn = 0

    def play(self, t, calls):
        self.turn = t.number
        log, agent, told = self.field.log, self.agent, bool(t.text or t.reminder)
        agent.turn(t)
        counted = agent.count() if t.counted else None
        left = t.interrupted and agent.leave()
        reply = agent.ask()
        agent.took(reply, calls)
        findable = self.task if told and self.field.drops[self.thinking] else self.before
        findable = reply.prompt - 1 if left else findable
        usage = reply.prompt, reply.cached, reply.output
        row = Row(self.kind, self.thinking, t.number, told, *usage, min(findable, reply.prompt), reply.first_s * 1000)
        self.before, self.task = reply.prompt + reply.output, reply.prompt if told else self.task
        with log.lock:
            log.rows.append(row)
            log.asked.update(turns=1, interrupted=left, counted=counted is not None, titles=t.titled, images=bool(t.image), calls=len(reply.calls))
            if counted not in (None, reply.prompt):
                log.miscounted.append((self.kind, t.number, counted, reply.prompt))
        if t.titled:
            agent.ask_background()


# ---- judging ----


def judge_cache(report, rows, when, drops):
    """Shares of the turns after the first, by kind."""
    later = [r for r in rows if r.findable]
    for kind in dict.fromkeys(r.kind for r in later):
        own = [r for r in later if r.kind == kind]
        kept = [r for r in own if not (r.told and drops[r.thinking])]
        shares, whole, lost = [r.share() for r in own], [r.of_prompt() for r in own], [r.lost() for r in own]
        median, total = statistics.median(shares), sum(r.cached for r in own) / sum(r.prompt for r in own)
        text = f"of what could be found: least {min(shares):.1%} median {median:.1%}; of the whole prompts {total:.1%}, least {min(whole):.1%}"
        report.figure(f"{when}_{kind}_cached", [min(shares), median, total, min(whole)], text)
        report.figure(f"{when}_{kind}_lost_tokens", [statistics.median(lost), max(lost)], f"median {statistics.median(lost):.0f} most {max(lost)}")
        missed = [(r.turn, f"{r.share():.1%}") for r in own if r.share() < SHARE]
        report.must(f"{when}, {kind}: each of {len(own)} turns finds {SHARE:.0%} of what could be found {missed[:9] or ''}", not missed)
        below = [(r.turn, f"{r.of_prompt():.1%}") for r in kept if r.of_prompt() < SHARE]
        report.must(f"{when}, {kind}: {SHARE:.0%} of the whole prompt in each of {len(kept)} turns whose history the template keeps {below[:9] or ''}", not below)
        dropped = [r.of_prompt() for r in own if r.told and drops[r.thinking]]
        if dropped:
            text = f"of the whole prompt in {len(dropped)} turns for which the template drops earlier reasoning: least {min(dropped):.1%} median {statistics.median(dropped):.1%}"
            report.figure(f"{when}_{kind}_new_task", [min(dropped), statistics.median(dropped)], text)


def first_tokens(report, rows, when):
    for kind in dict.fromkeys(r.kind for r in rows):
        later = [r.first_ms for r in rows if r.kind == kind and r.turn]
        first = statistics.median([r.first_ms for r in rows if r.kind == kind and not r.turn] or [0])
        if later:
            p50, p95, p100 = (stats.quantile(later, q) for q in (0.5, 0.95, 1))
            text = f"p50 {p50:.0f} p95 {p95:.0f} longest {p100:.0f}; a session's first turn {first:.0f}"
            report.figure(f"{when}_{kind}_first_token_ms", [p50, p95, p100, first], text)


def judge_answers(report, log, turns):
    report.figure("asked", dict(log.asked))
    for failure in log.failures[:5]:
        report.say(failure)
    failed = {status: n for status, n in log.statuses.items() if status >= 500}
    report.must(f"no 5xx {failed or ''}", not failed)
    report.must(f"no other failures ({len(log.failures)})", len(log.failures) == sum(failed.values()))
    short = {f"{kind}-{seed}": n for (kind, seed), n in log.reached.items() if seed.startswith("alone") and n < turns}
    report.must(f"the sessions alone have {turns} turns {short or ''}", not short)
    report.must(f"count_tokens says what the turn has {log.miscounted[:3] or ''}", not log.miscounted)


def judge_store(report, memory, log):
    """The most that stored responses ever took."""
    peak = account(memory, "responses")["peak_bytes"]
    report.figure("stored_responses_peak_bytes", peak, f"{peak / 1024:.0f} KiB of {STORE >> 10} KiB; the whole conversation was sent again {log.sent_again} times")
    report.must("stored responses within --response-store", 0 < peak <= STORE)


def by_account(report, before, after):
    """Each account before the first request and at the end, where they differ."""
    for path in sorted({**before, **after}):
        if before.get(path, 0) != after.get(path, 0):
            report.say(f"  {path}: {before.get(path, 0)} -> {after.get(path, 0)} bytes")


# ---- the run ----


def alone(field, report):
    for kind in ALONE:
        for thinking in (False, True) if field.options.agents_both else (kind != "chat",):
            field.play(kind, f"alone-{kind}-{thinking}", thinking)
            own = [r for r in field.log.rows if (r.kind, r.thinking) == (kind, thinking)]
            if own:
                report.say(f"alone, {kind}, thinking {thinking}: {len(own)} turns, from {own[0].prompt} to {own[-1].prompt} tokens")


def together(field, count):
    """Sessions of all kinds at once until `count` turns have been sent."""
    end = field.log.done() + count

    def work(place):
        n = 0
        while field.log.done() < end and len(field.log.failures) < 20:
            kind = TOGETHER[(place + n) % len(TOGETHER)]
            field.play(kind, f"{field.options.seed}-{end}-{place}-{n}", bool((place + n // 4) % 2), lambda: field.log.done() < end)
            n += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(field.options.agents_at_once)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def forget_stored(server, log):
    """Deletes the stored responses, as far as the store still has them."""
    for i in log.stored:
        status = server.asks.call("DELETE", f"/v1/responses/{i}")[0]
        if status not in (200, 404):
            log.failed(f"DELETE {i}", Refused(status))
    log.stored.clear()


def at_rest(server, report, log, when):
    server.wait_idle()
    forget_stored(server, log)
    return settle(server, report, when)


def run(options):
    report = Report("agents", options)
    more = ("--alias", BACKGROUND, "--response-store", STORE, "--host-cache", options.agents_cache)
    with Server(options, *more) as server:
        if not server.has_text:
            raise SystemExit("agents: the model has no tokenizer")
        field, before, began = Field(server, options), server.own_bytes(), time.monotonic()
        log, watch = field.log, Watch()
        report.say(f"context {field.context}, the head takes {field.head_tokens} tokens; the template drops earlier reasoning: {field.drops}")
        accounts_before = settle(server, report, "before")
        with Sampler(server, 0.5, log.done, watch) as warming:
            alone(field, report)
            judged = list(log.rows)
            together(field, options.agents_requests // 5)
        ledger = at_rest(server, report, log, "after warm-up")
        rests = [(log.done(), server.own_bytes())]
        rows = []
        for part in range(1, options.agents_rests + 1):
            with Sampler(server, 0.5, log.done, watch) as sampler:
                together(field, options.agents_requests * 4 // 5 // options.agents_rests)
            rows += sampler.rows
            ledger_at_end = at_rest(server, report, log, f"after part {part} of {options.agents_rests}")
            rests.append((log.done(), server.own_bytes()))
        sampler.rows = rows
        seconds, after = time.monotonic() - began, server.own_bytes()
        status, memory = server.get("/api/status"), server.get("/api/memory")
    report.figure("turns", log.done(), f"{log.done()} in {seconds:.0f} s: {log.done() / DAY:.2f} days of one agent with {DAY} turns a day")
    judge_cache(report, judged, "alone", field.drops)
    judge_cache(report, log.rows[len(judged) :], "together", field.drops)
    first_tokens(report, judged, "alone")
    first_tokens(report, log.rows[len(judged) :], "together")
    judge_answers(report, log, options.agents_turns)
    judge_store(report, memory, log)
    later = list(zip(*(rests[1:] or rests)))  # the first part still warms up the allocator
    slope, error = stats.slope(*later), stats.slope_error(*later)
    report.figure("own_bytes_at_rest", rests, ", ".join(f"{mib(own)} after {turns} turns" for turns, own in rests))
    report.figure("slope_bytes_per_turn", round(slope, 2))
    report.figure("slope_error_bytes_per_turn", round(error, 2))
    report.must("slope of own memory at rest < 16 bytes per turn, but for twice its standard error", slope - 2 * error < 16)
    report.figure("own_bytes_before", before, mib(before))
    report.figure("own_bytes_peak", max(sampler.column("own")), mib(max(sampler.column("own"))))
    returned(report, warming, sampler, before, after, "turns", f"{slope:+.1f} bytes per turn")
    by_account(report, accounts_before, ledger_at_end)
    must_be_as(report, ledger, ledger_at_end, "at rest after warm-up and at the end")
    report.must("no request left", not (status["requests"] or status["engine_jobs"] or status["streams"]))
    draw_shares(report, judged)
    return report.done()


def draw_shares(report, rows):
    def draw(axes):
        for kind in ALONE:
            own = [r for r in rows if r.kind == kind and not r.thinking and r.findable]
            axes.plot([r.turn for r in own], [100 * r.of_prompt() for r in own], lw=0.8, label=kind)
        axes.set(xlabel="turn", ylabel="% of the prompt cached", title=f"{report.name}: what each turn finds")
        axes.legend(frameon=False)

    report.plot(draw, name="shares")
