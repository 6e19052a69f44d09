"""Every limit at once, and ten times the load: no account passes its plan, the process stays below the
ceiling, and every client is answered."""

import asyncio
import collections
import contextlib
import functools
import http.client
import io
import json
import os
import random
import re
import select
import socket
import subprocess
import threading
import time

import httpx
import pytest

from conftest import ANSWER_S, GOLDEN, MODEL, PROGRAM, account, as_clients_send, events, serving, until
from test_listeners import over, socket_of

CEILING = 128 << 20
CONTEXT = 1024  # the rows of a full server become that long, which takes most of the test's time
ROWS, QUEUE, CONNECTIONS = 6, 24, 96
LIMITS = {"memory-limit": CEILING, "max-model-len": CONTEXT, "max-num-seqs": ROWS, "max-queue": QUEUE,
          "max-connections": CONNECTIONS, "max-image-pixels": 0, "spec": "off", "grammar-cache": 0}
# Two domains: the model's weights and pools have a ceiling of their own.
ON_DEVICE = {**LIMITS, "memory-limit": 1 << 30, "text-limit": 16 << 20, "device": "fake:0",
             "device-memory-limit": 64 << 20}


def options(values):
    return [f"--{name}={value}" for name, value in values.items()]


def ceilings(values):
    """{domain: its ceiling}"""
    machine = {"machine": values["memory-limit"]}
    return {**machine, values["device"]: values["device-memory-limit"]} if "device" in values else machine


class Resident(threading.Thread):
    """The most memory of its own that a process had, looked at every few milliseconds."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.peak, self.over = f"/proc/{pid}/status", 0, threading.Event()
        self.start()

    def run(self):
        with contextlib.suppress(OSError), open(self.path, "rb", buffering=0) as f:
            while not self.over.wait(0.003):
                kib = re.findall(rb"(?:RssAnon|VmSwap):\s+(\d+)", os.pread(f.fileno(), 8192, 0))
                self.peak = max(self.peak, sum(map(int, kib)) << 10)

    def stop(self):
        self.over.set()
        self.join()
        return self.peak


@contextlib.contextmanager
def watched(values):
    """A server, and after it the most that the process had: never more than the ceilings, because a fake
    device's memory is its process's. Clients that do not read or rest stay, however long it takes to fill
    everything."""
    with serving("--slow-client=600", "--idle-timeout=600", *options(values)) as s:
        resident = Resident(s.process.pid)
        yield s, resident
        assert 0 < resident.stop() <= sum(ceilings(values).values())


def goes_on(server):
    """The next request is answered as before."""
    case = GOLDEN["cases"][0]
    fields = {"max_tokens": len(case["greedy_ids"]), "temperature": 0, "return_token_ids": True}
    reply = server.post("/v1/chat/completions", messages=as_clients_send(case["messages"]),
                        chat_template_kwargs={"enable_thinking": case["enable_thinking"]}, **fields)
    assert reply.json()["choices"][0]["token_ids"] == case["greedy_ids"]


# ---- every limit at once ----

# Sizes that fill memory, each until no more of it is taken.
SIZES = [1 << i for i in range(20, 13, -1)]
# Beside its tokens, all that makes a job's block larger: as the plan has it for each.
LARGEST = {"max_tokens": CONTEXT - CONTEXT // 4, "ignore_eos": True, "presence_penalty": 0.1,
           "stop": [f"<{i}>" + "Q" * 252 for i in range(10, 26)], "logit_bias": {str(i): -1 for i in range(1024)}}


def planned(values):
    """Runs `plateau plan` with these options: {(domain, account): most bytes}."""
    text = subprocess.run([PROGRAM, "plan", str(MODEL), "--json", *options(values)], check=True, capture_output=True)
    plan = json.loads(text.stdout)["models"][0]
    assert {d["name"]: d["ceiling_bytes"] for d in plan["domains"]} == ceilings(values)
    for d in plan["domains"]:
        of_domain = [a["limit_bytes"] for a in plan["accounts"] if (a["domain"], a["depth"]) == (d["name"], 0)]
        assert sum(of_domain) == d["limit_bytes"] <= d["ceiling_bytes"]
    machine = plan["domains"][0]
    assert (machine["floor_bytes"], machine["limit_bytes"]) == (plan["floor_bytes"], plan["limit_bytes"])
    return {(a["domain"], a["name"]): a["limit_bytes"] for a in plan["accounts"]}


def check_plan(memory, plan):
    """Each account that the server has is in the plan, has its limit, and never had more; no domain was
    above its ceiling, and nothing is orphaned."""
    seen = set()

    def walk(a, domain):
        seen.add(a["name"])
        assert a["limit_bytes"] == a["planned_bytes"] == plan[domain, a["name"]], a
        assert a["peak_bytes"] <= a["limit_bytes"], a
        for c in a["children"]:
            walk(c, domain)

    for root in memory["accounts"]:
        assert root["peak_bytes"] <= root["limit_bytes"], root
        for a in root["children"]:
            walk(a, "machine" if root["name"] == "process" else root["name"])
    assert seen >= {"heap", "threads", "network", "text", "weights", "workspace", "requests", "kv", "state"}
    assert memory["orphans"] == 0


def shares(memory, kind):
    """{account: how much of its limit}"""
    found = {}

    def walk(a):
        if a["limit_bytes"]:
            found[a["name"]] = a[f"{kind}_bytes"] / a["limit_bytes"]
        for c in a["children"]:
            walk(c)

    for root in memory["accounts"]:
        walk(root)
    return found


def prompt(seed, tokens):
    draw = random.Random(seed)
    return [draw.randrange(1000, 8000) for _ in range(tokens)]


@functools.cache
def text_of(size):
    return "".join(random.Random(size).choices("abcdefgh ", k=size))


def status_of(sock):
    """Reads the status of a reply whose head has come; the rest stays unread."""
    return int(sock.recv(12, socket.MSG_PEEK)[-3:]) if select.select([sock], [], [], 0)[0] else None


def reply_of(sock):
    reply = http.client.HTTPResponse(sock)
    reply.begin()
    return reply, json.loads(reply.read())


class Crowd:
    """Clients that send and do not read, all of which leave at the end."""

    def __init__(self, server):
        self.server, self.open = server, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        while self.open:
            self.open.pop().close()

    def connect(self):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(300)
        sock.connect(("127.0.0.1", self.server.port))
        self.open.append(sock)
        return sock

    def send(self, path, text, held_back=0):
        """All of a request but the last bytes of its body."""
        sock = self.connect()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n"
        with contextlib.suppress(OSError):  # refused on its way
            sock.sendall((head + text[:len(text) - held_back]).encode())
        return sock

    def ask(self, path="/v1/completions", **body):
        return self.send(path, json.dumps(body))

    def refused(self, code):
        """The last one was, in these words; it leaves."""
        sock = self.open.pop()
        reply, body = reply_of(sock)
        sock.close()
        assert (reply.status, body["error"]["code"]) == (429, code), body
        assert int(reply.headers["retry-after"]) >= 1

    def jobs(self):
        return self.server.status()["engine_jobs"]

    def reserved(self, name):
        return account(self.server.memory(), name)["reserved_bytes"]


def fill_cache(crowd):
    """New prompts, until three in a row make the pools no larger."""
    sizes = []
    while len(sizes) < 4 or sizes[-1] > sizes[-4]:
        assert crowd.server.complete(prompt(len(sizes), CONTEXT - 24), max_tokens=1).status_code == 200
        sizes.append(crowd.reserved("pools"))


def fill_rows(crowd):
    """Every row: one that a client does not read, and others as long as they can be."""
    crowd.ask(prompt=prompt(1000, CONTEXT // 4), stream=True, logprobs=20, **LARGEST)
    until(lambda: crowd.server.requests("paused"))
    rows = [crowd.ask(prompt=prompt(1000 + i, CONTEXT // 4), **LARGEST) for i in range(1, ROWS)]
    until(lambda: len(crowd.server.requests("decoding")) == len(rows))
    return rows


def fill_queue(crowd):
    last = None
    while not last or not status_of(last):
        before = crowd.jobs()
        last = crowd.ask(prompt=prompt(2000 + before, CONTEXT // 4), logprobs=20, **LARGEST)
        until(lambda: crowd.jobs() > before or status_of(last))
    crowd.refused("queue_full")
    assert before == ROWS + QUEUE


def fill_texts(crowd):
    """Replies that are not read: larger than the system's buffers for a connection."""
    for size in [size for size in SIZES if size > 100_000]:
        last = None
        while not last or status_of(last) == 200:
            last = crowd.ask("/apply-template", messages=[{"role": "user", "content": text_of(size)}])
            until(lambda: status_of(last))
        crowd.refused("busy")


def fill_bodies(crowd):
    """Bodies that never end."""
    for size in SIZES:
        last = None
        while not last or not status_of(last):
            before = crowd.reserved("network")
            last = crowd.send("/v1/completions", "{" * size, held_back=1)
            until(lambda: crowd.reserved("network") >= before + size - 1 or status_of(last))
        crowd.refused("busy")


def fill_connections(crowd):
    """Idle ones make room for one another, and there are never more."""
    while len(crowd.open) + 1 < CONNECTIONS:  # and the one of the tests
        crowd.connect()
    until(lambda: crowd.server.metrics()["plateau_http_connections"] == CONNECTIONS)
    for _ in range(CONNECTIONS):
        with socket.create_connection(("127.0.0.1", crowd.server.port), 60) as sock:
            sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            reply, _ = reply_of(sock)
            assert reply.status == 200
    until(lambda: crowd.server.metrics()["plateau_http_connections"] <= CONNECTIONS)


# How much of its limit an account has at least, with all of them full at the same time.
NEARLY = {"network": 0.95, "text": 0.75, "requests": 0.75, "pools": 0.9, "weights": 1, "workspace": 0.99}


def admin_sees(server):
    """All of it, past those who fill the port's connections and the memory of bodies."""
    with over(socket_of(server)) as admin:
        for path in ("/api/memory", "/api/status", "/metrics"):
            assert admin.get(path).status_code == 200, path


@pytest.mark.slow
@pytest.mark.parametrize("limits, full_root", [(LIMITS, "process"), (ON_DEVICE, "fake:0")], ids=["machine", "device"])
def test_every_limit_at_once(limits, full_root):
    plan = planned(limits)
    with watched(limits) as (s, resident):
        with Crowd(s) as crowd:
            fill_cache(crowd)
            rows = fill_rows(crowd)
            fill_queue(crowd)
            fill_texts(crowd)
            fill_bodies(crowd)
            fill_connections(crowd)
            assert crowd.jobs() == ROWS + QUEUE
            full = shares(s.memory(), "reserved")
            low = {n: (full[n], least) for n, least in {**NEARLY, full_root: 0.85}.items() if full[n] < least}
            assert not low, full
            admin_sees(s)
            # All of this stays while the rows become as long as they can be: for the last of it pages run
            # out.
            for row in rows:
                reply, body = reply_of(row)
                assert reply.status == 200 and body["usage"]["total_tokens"] == CONTEXT, body
        until(lambda: s.http.get("/live").status_code == 200)
        after = s.memory()
        check_plan(after, plan)
        assert s.status()["models"][0]["preemptions"] > 0
        assert shares(after, "peak")["kv"] >= 0.75
        assert resident.peak >= 0.7 * ceilings(limits).get(full_root, CEILING)
        goes_on(s)


# ---- ten times too much ----

# It lasts this long, and on a slow machine until every expected event has happened.
CLIENTS, SECONDS, SECONDS_MAX = 640, 5, 60
LONGEST = 2048
# Pages for two requests of the longest, and bodies and texts of a few megabytes, for six rows and 24 that
# wait.
PLANNED = {**LIMITS, "memory-limit": 106 << 20, "max-connections": CLIENTS // 10, "max-model-len": LONGEST}
CROWDED = {**PLANNED, "max-body-bytes": 1 << 20, "max-request-bytes": 4 << 20}


def greedy_requests():
    """(path, body) of requests of all lengths, each of which has one answer."""
    fields = {"temperature": 0, "ignore_eos": True, "return_token_ids": True}
    found = [("/v1/completions", {"prompt": prompt(read, read), "max_tokens": drawn, **fields})
             for read, drawn in [(8, 30), (40, 300), (300, 1), (700, 60), (1500, 100), (LONGEST - 20, 20)]]
    for case in [case for case in GOLDEN["cases"] if not case["tools"]][:4]:
        body = {"messages": as_clients_send(case["messages"]), "max_tokens": 40, **fields}
        found.append(("/v1/chat/completions", body))
    return found


# Refused for good, unless it is refused for now: (status, body).
WRONG = [
    (400, "{"),
    (400, json.dumps({"prompt": prompt(1, 100), "max_tokens": LONGEST})),
    (413, json.dumps({"prompt": [1] * 200_000})),
    (400, json.dumps({"prompt": "a" * 600_000})),
    (413, json.dumps({"prompt": "a" * (3 << 19)})),
]
# `answer`: what a 200 says; without one, `status` is what it is refused with.
Ask = collections.namedtuple("Ask", "path body streamed answer status")


class Received:
    """Bytes in the form that http.client reads."""

    def __init__(self, received):
        self.received = received

    def makefile(self, _):
        return io.BytesIO(self.received)


class Exchange:
    """A client that reads while it sends, on a connection of its own."""

    def __init__(self, port):
        self.port, self.state, self.sent, self.received = port, "connecting", 0, []

    def __str__(self):
        head = b"".join(self.received)[:300]
        return f"{self.state}, {self.sent} bytes sent, {sum(map(len, self.received))} received: {head}"

    async def _send(self, sock, message):
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # refused on its way
            for at in range(0, len(message), 1 << 16):
                await loop.sock_sendall(sock, message[at:at + (1 << 16)])
                self.sent = min(at + (1 << 16), len(message))

    async def run(self, path, body):
        """(reply, its body), which is whole"""
        loop = asyncio.get_running_loop()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket() as sock:
            sock.setblocking(False)
            await loop.sock_connect(sock, ("127.0.0.1", self.port))
            self.state = "connected"
            sending = asyncio.create_task(self._send(sock, head.encode() + body))
            try:
                while not self.received or self.received[-1]:
                    self.received.append(await loop.sock_recv(sock, 1 << 16))
            finally:
                # The loop must have forgotten the socket before it is closed. Otherwise the next socket gets
                # its number, the loop takes that one for polled, and its client waits forever.
                sending.cancel()
                await asyncio.wait([sending])
        reply = http.client.HTTPResponse(Received(b"".join(self.received)))
        reply.begin()
        return reply, reply.read()


def answer_of(text, streamed):
    """(text, finish reason, usage)"""
    if not streamed:
        reply = json.loads(text)
        (choice,) = reply["choices"]
        return choice["token_ids"], choice["finish_reason"], usage_of(reply)
    found = events(text.decode())
    assert found.pop() == "[DONE]"
    usage = found.pop()
    assert not any("error" in e for e in found) and not usage["choices"]
    choices = [e["choices"][0] for e in found]
    return [i for c in choices for i in c.get("token_ids", [])], choices[-1]["finish_reason"], usage_of(usage)


def usage_of(reply):
    return reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]


class Load:
    """Clients that ask again and again."""

    def __init__(self, server, seed):
        self.server, self.seed = server, seed
        # Alone, each has all that it needs.
        self.known = [(path, body, answer_of(server.post(path, **body).content, False))
                      for path, body in greedy_requests()]
        self.texts = [text_of(size) for size in (50_000, 200_000, 500_000)]
        self.seen, self.errors = collections.Counter(), []

    def draw(self, draw):
        if draw.random() < 0.25:
            status, body = draw.choice(WRONG)
            return Ask("/v1/completions", body.encode(), False, None, status)
        path, body, answer = draw.choice(self.known)
        streamed = draw.random() < 0.5
        if streamed:
            body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        if draw.random() < 0.5:
            body = {**body, "metadata": {"a": draw.choice(self.texts)}}
        return Ask(path, json.dumps(body).encode(), streamed, answer, 200)

    def judge(self, ask, reply, text):
        """How long to wait before the next."""
        self.seen[reply.status] += 1
        if reply.status == 429:
            error = json.loads(text)["error"]
            assert error["type"] == "rate_limit_error", error
            self.seen[error["code"]] += 1
            return min(int(reply.headers["retry-after"]), 1)
        assert reply.status == ask.status, text
        if ask.answer:
            assert answer_of(text, ask.streamed) == ask.answer
        else:
            assert json.loads(text)["error"]["type"] == "invalid_request_error"
        return 0

    def lacks(self):
        """Expected events that have not happened yet: every kind of refusal, and progress of the batch in
        spite of them."""
        lacks = [each for each in (400, 413, "too_many_connections", "queue_full", "busy") if not self.seen[each]]
        return lacks + [200] * (self.seen[200] < ROWS) + [429] * (self.seen[429] <= self.seen[200])

    def goes_on(self):
        lasted = time.monotonic() - self.began
        return not self.errors and (lasted < SECONDS or (lasted < SECONDS_MAX and bool(self.lacks())))

    async def client(self, number):
        draw = random.Random(f"{self.seed}/{number}")
        while self.goes_on():
            ask, one = self.draw(draw), Exchange(self.server.port)
            try:
                wait = self.judge(ask, *await asyncio.wait_for(one.run(ask.path, ask.body), ANSWER_S))
            except Exception as error:  # reported at the end, with its client
                self.errors.append(f"client {number}: {ask.path} {ask.body[:60]}: {error!r:.300}; {one}")
                if isinstance(error, asyncio.TimeoutError):
                    self.errors.append(self.seen_by_admin("/api/status"))
                return
            await asyncio.sleep(wait)

    def probe(self):
        """A probe with a connection of its own is answered all the time."""
        missed = 0
        while self.goes_on():
            reply = httpx.get(self.server.url + "/health", timeout=60)
            # A probe that is slow to send its request can lose its connection to the crowd; not repeatedly.
            missed = missed + 1 if reply.status_code == 429 else 0
            if missed > 5 or reply.status_code not in (200, 429):
                self.errors.append(f"/health: {reply.text}")

    def seen_by_admin(self, path):
        with over(socket_of(self.server)) as admin:
            return f"{path}: {admin.get(path).text}"

    def look(self):
        """Through its socket the admin sees the server all the time, over new connections and in full."""
        while self.goes_on():
            with over(socket_of(self.server)) as admin:
                for path in ("/api/memory", "/api/status", "/metrics"):
                    reply = admin.get(path)
                    if reply.status_code != 200:
                        self.errors.append(f"{path}: {reply.text}")
            time.sleep(0.05)

    async def run(self):
        self.began = time.monotonic()
        watch = [asyncio.to_thread(self.probe), asyncio.to_thread(self.look)]
        await asyncio.gather(*watch, *(self.client(i) for i in range(CLIENTS)))


@pytest.mark.slow
@pytest.mark.alone
def test_ten_times_too_much():
    seed = int(os.environ.get("PLATEAU_TEST_SEED") or random.randrange(2**32))
    print(f"PLATEAU_TEST_SEED={seed}")
    with watched(CROWDED) as (s, _):
        load = Load(s, seed)
        asyncio.run(load.run())
        print(dict(load.seen))
        assert not load.errors, load.errors
        assert not load.lacks(), load.seen
        memory = s.memory()
        check_plan(memory, planned(PLANNED))
        peaks = shares(memory, "peak")
        assert peaks["text"] >= 0.6 and peaks["pools"] >= 0.8, peaks
        goes_on(s)
