"""Agents' traffic: conversations of several turns, that share prefixes (system prompt and tools).

Each turn sends the whole conversation, streams the reply at temperature 0 and appends it, as agents do. The
seed decides every word, so that two runs send the same prompts as long as the answers are the same."""

import dataclasses
import http.client
import json
import random
import threading
import time

WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliett kilo lima mike november oscar papa quebec romeo sierra tango".split()


@dataclasses.dataclass
class Load:
    """Numbers of the agents and of their conversations."""

    applications: int = 4     # each has a system prompt and tools
    conversations: int = 24
    turns: int = 6
    at_once: int = 6          # conversations that are open at the same time
    prefix: int = 300         # words of an application's system prompt
    turn: int = 40            # words that a turn adds, at least; at most twice as many
    reply: int = 16           # tokens
    think: float = 0.2        # seconds between turns, on average
    tools: bool = True
    seed: int = 1


@dataclasses.dataclass
class Turn:
    """Result of one request."""

    conversation: int
    turn: int
    began: float
    prompt: int = 0
    cached: int = 0
    first: float = 0.0        # seconds to the first token
    ended: float = 0.0
    text: str = ""
    error: str = ""


def text(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def application_of(load, number):
    """Returns the application of a conversation."""
    return random.Random(f"{load.seed}/{number}").randrange(load.applications)


def pauses(load, number, turns):
    """Returns the seconds before each turn of a conversation."""
    rng = random.Random(f"{load.seed}/{number}/pauses")
    return [0.0, *[rng.expovariate(1 / load.think) if load.think else 0.0 for _ in range(turns - 1)]]


def tools(rng):
    return [{"type": "function", "function": {"name": f"{rng.choice(WORDS)}_{i}", "description": text(rng, 12), "parameters": {
        "type": "object", "properties": {"path": {"type": "string", "description": text(rng, 6)}}}}} for i in range(4)]


def ask(port, body, turn, key=None, timeout=120):
    """Sends one request and fills `turn`."""
    headers = {"Content-Type": "application/json", "x-session-id": f"{turn.conversation}"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        reply = c.getresponse()
        if reply.status != 200:
            turn.error = f"{reply.status} {reply.read(200).decode(errors='replace')}"
            return
        done = False
        for line in reply:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                break
            event = json.loads(data)
            if "error" in event:
                turn.error = str(event["error"])[:200]
                return
            for choice in event["choices"]:
                if not turn.first:
                    turn.first = time.monotonic() - turn.began
                turn.text += choice["delta"].get("content") or ""
            if event.get("usage"):
                turn.prompt = event["usage"]["prompt_tokens"]
                turn.cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        turn.error = "" if done else "the stream was cut"
    except (OSError, http.client.HTTPException, ValueError) as e:
        turn.error = f"{type(e).__name__}: {e}"
    finally:
        turn.ended = time.monotonic()
        c.close()


class Traffic:
    """Runs a load against a port; `stop` ends it early."""

    def __init__(self, load, port, key=None):
        self.load, self.port, self.key = load, port, key
        self.done, self.lock, self.ending = [], threading.Lock(), threading.Event()
        self.next = iter(range(load.conversations))
        self.began = time.monotonic()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(load.at_once)]
        for t in self.threads:
            t.start()

    def work(self):
        while not self.ending.is_set():
            with self.lock:
                number = next(self.next, None)
            if number is None:
                return
            self.converse(number)

    def converse(self, number):
        load, rng = self.load, random.Random(f"{self.load.seed}/{number}")
        application = random.Random(f"{load.seed}/application/{application_of(load, number)}")
        body = {"model": "canary", "temperature": 0, "max_tokens": load.reply, "stream": True, "stream_options": {"include_usage": True},
                "messages": [{"role": "system", "content": text(application, load.prefix)}]}
        if load.tools:
            body |= {"tools": tools(application), "tool_choice": "none"}
        for n, pause in enumerate(pauses(load, number, load.turns)):
            if self.ending.wait(pause):
                return
            body["messages"].append({"role": "user", "content": text(rng, rng.randrange(load.turn, 2 * load.turn + 1))})
            turn = Turn(number, n, time.monotonic())
            ask(self.port, body, turn, self.key)
            with self.lock:
                self.done.append(turn)
            if turn.error or self.ending.is_set():
                return
            body["messages"].append({"role": "assistant", "content": turn.text or "ok"})

    def wait(self):
        for t in self.threads:
            t.join()
        return self.done

    def stop(self):
        self.ending.set()
        return self.wait()


def figures(turns, compared=None):
    """Returns {name: value} of turns; `compared` are those of the same load elsewhere."""
    good = [t for t in turns if not t.error]
    prompt = sum(t.prompt for t in good)
    first = sorted(t.first for t in good)
    found = {"requests": len(turns), "lost": len(turns) - len(good), "prompt": prompt, "cached": sum(t.cached for t in good),
             "rate": sum(t.cached for t in good) / prompt if prompt else 0.0,
             "p50": first[len(first) // 2] if first else 0.0, "p99": first[int(len(first) * 0.99)] if first else 0.0}
    if compared:
        other = {(t.conversation, t.turn): t.text for t in compared if not t.error}
        both = [(t.text, other[t.conversation, t.turn]) for t in good if (t.conversation, t.turn) in other]
        found["same"] = sum(a == b for a, b in both)
        found["both"] = len(both)
    return found
