"""agent: a recorded session of tool calls, each turn with the whole conversation before it: cached tokens
and time to first token, against the same server without a cache."""

import json
import pathlib
import random
import statistics

from common import Report, Server, stream

# Found are whole pages of 32 up to a cut, and a prompt's last token is always computed.
LOST_MAX = 64
SESSION = json.loads(pathlib.Path(__file__).with_name("agent_session.json").read_text())


def turns(server, options):
    """(path, body) of each turn. A model without a tokenizer gets as many random tokens, grown in the same
    way."""
    rng, said, ids = random.Random(options.seed), 0, []
    for end in SESSION["ends"][: options.turns]:
        if server.has_text:
            body = {"messages": SESSION["messages"][:end], "tools": SESSION["tools"], "temperature": 0, "max_tokens": 24}
            yield "/v1/chat/completions", body
            continue
        text = len(json.dumps([SESSION["tools"], SESSION["messages"][:end]])) // 4
        ids += server.ids(rng, text - said)
        said = text
        yield "/v1/completions", {"prompt": list(ids), "max_tokens": 24, "ignore_eos": True}


def prompt_of(server, path, body):
    """Its token ids."""
    if "prompt" in body:
        return body["prompt"]
    status, answer = server.post("/tokenize", {name: body[name] for name in ("messages", "tools")})
    if status != 200:
        raise SystemExit(f"/tokenize answered {status}: {answer}")
    return answer["tokens"]


def common(a, b):
    return next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def play(options, *more):
    """[(prompt tokens, tokens in common with the turn before, cached tokens, time to first token in ms)]"""
    found, last = [], []
    with Server(options, *more) as server:
        # First-time work of a process is not part of the session.
        stream(server.port, "/v1/completions", {"prompt": server.ids(random.Random(0), 64), "max_tokens": 4})
        for path, body in turns(server, options):
            ids = prompt_of(server, path, body)
            timed = stream(server.port, path, body)
            found.append((timed.prompt, common(last, ids), timed.cached, timed.first * 1000))
            last = ids
    return found


def run(options):
    report = Report("agent", options)
    cached = play(options)
    plain = play(options, "--host-cache", 0) if options.uncached else []
    prompts, shared, found, first = zip(*cached)
    share = sum(found) / sum(prompts)
    report.figure("turns", len(cached), f"{len(cached)}, from {prompts[0]} to {prompts[-1]} tokens")
    report.figure("cached_share", share, f"{share:.1%} of all prompts' tokens, median turn {statistics.median(f / p for p, f in zip(prompts[1:], found[1:])):.1%}")
    report.figure("first_token_ms", list(first), f"median {statistics.median(first):.1f} longest {max(first):.1f}")
    if plain:
        without = [turn[-1] for turn in plain]
        report.figure("first_token_ms_without_cache", without, f"median {statistics.median(without):.1f} longest {max(without):.1f}")
    report.figure("shared_share", sum(shared) / sum(prompts), f"{sum(shared) / sum(prompts):.1%} of them stood in the turn before")
    missed = [n + 1 for n in range(1, len(cached)) if found[n] < shared[n] - LOST_MAX]
    report.must(f"every turn finds what the turn before had as well, but {LOST_MAX} tokens {missed or ''}", not missed)

    def draw(axes):
        axes.plot(range(1, len(first) + 1), first, ".-", lw=0.8, ms=3, label="with the cache")
        if plain:
            axes.plot(range(1, len(plain) + 1), [turn[-1] for turn in plain], ".-", lw=0.8, ms=3, label="without")
        axes.set(xlabel="turn", ylabel="first token, ms", ylim=(0, None), title=f"{report.name}: {share:.0%} of {prompts[0]} to {prompts[-1]} tokens found")
        axes.legend(frameon=False)

    report.plot(draw)
    return report.done()
