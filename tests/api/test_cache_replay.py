"""A replay of agents with planted changes: each turn that could have found more says why, and no other turn
says anything. PLATEAU_LONG=1 replays 500 turns of a new seed, with every reason among them."""

import os
import random

import pytest

from conftest import serving
from test_cache import clear
from test_cache_miss import told
from seeing import IMAGES, data_url
from test_later_tools import Both, dense, offered

LONG = bool(os.environ.get("PLATEAU_LONG"))
TURNS, CONVERSATIONS = 500 if LONG else 100, 6
NAMES = ["search", "read", "write"]
SYSTEM = "You are a careful agent. " + "Read the manual page before you use a command. " * 12


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Nothing is evicted between two clears."""
    Both.dense = dense(tmp_path_factory.mktemp("models"))
    with serving("--host-cache", "600M", kind=Both) as s:
        yield s


def image(number):
    return {"type": "image_url", "image_url": {"url": data_url((IMAGES / f"{number}.png").read_bytes())}}


class Conversation:
    """One agent's history. `known`: the models that have answered it."""

    def __init__(self, rng, number):
        self.rng, self.model, self.tools = rng, "canary", offered(*NAMES)
        self.sees, self.compacts = number % 2 == 0, False  # one that sees stays with its model
        self.messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"Task {rng.random()}. " + self.words(120)}]
        self.known, self.ever, self.stale, self.order = set(), set(), set(), (0, 1, 2)

    def words(self, count):
        return " ".join(self.rng.choice(["file", "folder", "copy", "remove", "print", "the", "name", "of", "line"]) for _ in range(count))

    def edit(self, message, at):
        text = self.messages[message]["content"]
        self.messages[message] = {**self.messages[message], "content": text[:at] + ("#" if text[at] != "#" else "*") + text[at + 1:]}

    def grow(self):
        self.order = (0, 1, 2)
        asked = self.words(60)
        if self.sees and self.rng.random() < 0.5:
            asked = [{"type": "text", "text": asked}, image(self.rng.randrange(8))]
        self.messages = self.messages + [{"role": "assistant", "content": "Done. " + self.words(40)}, {"role": "user", "content": asked}]

    def seen(self):
        """Messages with an image that have a turn behind them: too little is lost with the last one."""
        return [i for i, m in enumerate(self.messages[:-3]) if isinstance(m["content"], list)]

    def summarize(self):
        """The client compacts: a last question without tools."""
        self.order = ()
        self.messages = self.messages[:-1] + [{"role": "user", "content": "Write a summary of this conversation."}]

    def compact(self):
        """The conversation after it."""
        self.order, self.known, self.compacts = (0, 1, 2), set(), False
        self.messages = [self.messages[0], {"role": "user", "content": "Summary: " + self.words(120)}]

    def plant(self):
        """Changes one thing. Returns the expected part, the member, and the index of its character."""
        what = self.rng.choice(["model", "system", "tools", "one tool", "order", "message", "character", "image", "image"])
        if what == "image" and not self.seen() or what == "model" and self.sees:
            what = "order"
        other = next(m for m in ("canary", Both.dense.name) if m != self.model)
        if what == "model" and other in self.ever - self.known:
            what = "order"  # that model's last turn has other parts than this one
        if what == "model":
            self.model = other
            return ("evicted" if self.model in self.stale else None if self.model in self.known else "model"), None, None
        self.known = {self.model}  # the other model's turns have another prompt
        if what == "system":
            at = self.rng.randrange(len(SYSTEM))
            self.edit(0, at)
            return "system", "content", at
        if what == "tools":  # two of three: the list begins anew
            changed = [{**t["function"], "description": t["function"]["description"] + self.words(2)} for t in self.tools[1:]]
            at = len(self.tools[1]["function"]["description"])
            self.tools = self.tools[:1] + [{"type": "function", "function": f} for f in changed]
            return "tools[1]", "function.description", at
        if what == "one tool":
            self.tools = self.tools[:2] + [{"type": "function", "function": {**self.tools[2]["function"], "description": self.words(5)}}]
            return None, None, None
        if what == "order":  # this turn alone
            self.order = (2, 0, 1)
            return None, None, None
        if what == "image":
            index = self.rng.choice(self.seen())
            text, old = self.messages[index]["content"]
            new = image(self.rng.randrange(8))
            while new == old:
                new = image(self.rng.randrange(8))
            self.messages[index] = {**self.messages[index], "content": [text, new]}
            return f"messages[{index}]", None, None
        index = self.rng.choice([i for i in range(2, len(self.messages) - 3) if i not in self.seen()])
        text = self.messages[index]["content"]
        if what == "message":
            self.messages[index] = {**self.messages[index], "content": "No. " + text}
            return f"messages[{index}]", "content", 0
        at = self.rng.randrange(len(text))
        self.edit(index, at)
        return f"messages[{index}]", "content", at


def say(server, c, stream):
    body = {"model": c.model, "messages": c.messages, "max_tokens": 1, "stream": stream}
    if c.order:
        body["tools"] = [c.tools[i] for i in c.order]
    reply = server.http.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return told(reply)


@pytest.mark.slow
def test_a_replay_of_agents_has_the_right_reasons(both):
    seed = int(os.environ.get("PLATEAU_SEED", random.randrange(1 << 30) if LONG else 6))
    rng, reasons = random.Random(seed), {}
    clear(both)
    agents, images, summaries = [Conversation(rng, i) for i in range(CONVERSATIONS)], 0, 0
    for turn in range(TURNS):
        at = rng.randrange(CONVERSATIONS)
        c = agents[at]
        part = member = index = None
        if c.compacts:
            c.compact()
        elif len(c.messages) > 12:
            agents[at] = c = Conversation(rng, turn * CONVERSATIONS + at)
        elif c.known:
            c.grow()
            if c.model in c.stale:
                part = "evicted"
            elif len(c.messages) > 6 and rng.random() < 0.1:
                c.summarize()
                c.compacts, summaries = True, summaries + 1
            elif len(c.messages) > 6 and rng.random() < 0.45:
                part, member, index = c.plant()
                images += part is not None and member is None and part.startswith("messages")
        found, details = say(both, c, turn % 2 == 1)
        where = f"PLATEAU_SEED={seed}, turn {turn}"
        assert found == part, f"{where}: {found} {details}, expected {part}"
        if part == "evicted":
            assert details["cause"] == "cleared" and int(details["seconds"]) < 600, where
        elif part:
            assert details["side"] == "client" and int(details["lost"]) > 64, where
        if member:
            assert details["at"] == member and 0 <= index - int(details["character"]) < int(details["within"]), (where, index, details)
        c.known.add(c.model)
        c.ever.add(c.model)
        c.stale.discard(c.model)
        kind = part and part.split("[")[0]
        reasons[kind] = reasons.get(kind, 0) + 1
        if turn % 40 == 39:
            clear(both)
            for other in agents:
                other.stale = set(other.known)
    wanted = {None, "evicted", "model", "system", "tools", "messages"} if LONG else {None, "evicted", "messages"}
    assert set(reasons) >= wanted and images > 0 and summaries > 0, (seed, reasons, images, summaries)


def test_a_restart_is_named():
    said = None
    for first in (True, False):
        with serving("--host-cache", "64M") as s:
            c = said or Conversation(random.Random(1), 1)
            if not first:
                c.grow()
            assert say(s, c, False)[0] == (None if first else "unknown")
            if not first:
                s.says("cache_miss=unknown;cause=restart;seconds=")
            c.grow()
            # The table knows the conversation from here on.
            assert say(s, c, False)[0] is None
            said = c


def test_an_unloaded_model_is_named(both):
    c = Conversation(random.Random(2), 2)
    say(both, c, False)
    assert both.http.post("/v1/models/canary/unload").status_code in (200, 202)
    c.grow()
    found, details = say(both, c, False)
    assert (found, details["cause"]) == ("evicted", "unload")


@pytest.mark.parametrize("own", [True, False])
def test_an_eviction_says_for_whom(own):
    """The cache holds about one of these conversations."""
    options = ("--host-cache", "4M", "--api-key", "ann", "--api-key", "bob", "--admin-key", "root")
    with serving(*options, key="root") as s:
        def ask(key, c):
            body = {"model": "canary", "messages": c.messages, "max_tokens": 1}
            reply = s.http.post("/v1/chat/completions", json=body, headers={"Authorization": f"Bearer {key}"})
            assert reply.status_code == 200, reply.text
            return told(reply)

        mine, other = (Conversation(random.Random(n), n) for n in (3, 4))
        for c in (mine, other):
            for _ in range(4):
                c.grow()
        ask("ann", mine)
        other.messages[0] = {"role": "system", "content": "Another one. " + other.words(300)}
        for _ in range(3):
            ask("ann" if own else "bob", other)
            other.grow()
        mine.grow()
        found, details = ask("ann", mine)
        assert (found, details["cause"], details["for"]) == ("evicted", "limit", "own" if own else "another_tenant"), details
