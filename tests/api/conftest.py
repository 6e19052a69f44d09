"""One server with the bundled model for the whole session, one per process of pytest-xdist, and what must be
true of it when the session ends.

The program is PLATEAU_BIN (or PLATEAU_PROGRAM), build/plateau without either."""

import contextlib
import functools
import gc
import http.client
import importlib
import json
import os
import pathlib
import re
import socket
import ssl
import subprocess
import tempfile
import threading
import time

import httpx
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_BIN") or os.environ.get("PLATEAU_PROGRAM") or str(TOP / "build/plateau")
FAULTY = pathlib.Path(PROGRAM).parent / "tests/api/faulty"
MODEL = TOP / "models/canary"
GOLDEN = json.loads((TOP / "tests/golden/data/canary-8bit/golden.json").read_text())
READY_S = 60
ANSWER_S = 300  # tests run beside each other, on a machine that may have other work
# The garbage collector took a sixth of these processes' time.
gc.set_threshold(20_000, 50, 50)
# Servers under test have a directory of their own, with a short name, for sockets, keys, home and cache. No
# test sees a server, a model or a setting of the user.
RUNTIME = tempfile.TemporaryDirectory(prefix="plateau-test-", dir="/tmp")
# Each client of httpx reads the system's certificates, in 25 ms of a processor, also to speak plain HTTP.
ssl.create_default_context = functools.cache(ssl.create_default_context)
# Tests of the starter model take it from there.
USER_CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
OF_TESTS = re.compile("PLATEAU_(BIN|PROGRAM|DEVICE|LONG|SEED|THREADS|TEMPLATES|TEST_.*)")
for name in [n for n in os.environ if re.match("(PLATEAU|HF|XDG|OLLAMA)_|RUNTIME_DIRECTORY$", n) and not OF_TESTS.fullmatch(n)]:
    del os.environ[name]
os.environ["PLATEAU_RUNTIME_DIR"] = RUNTIME.name
os.environ["HOME"] = RUNTIME.name + "/home"
os.mkdir(os.environ["HOME"])
# Tests are of the CPU also where a GPU is, unless they are run for another device.
if "PLATEAU_DEVICE" not in os.environ:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# The limits of memory in tests have room for the workers of two cores.
if os.cpu_count() > 2:
    os.environ.setdefault("PLATEAU_THREADS", "2")
ADMIN_KEY = "sk-root-of-the-tests"
AS_ADMIN = {"authorization": f"Bearer {ADMIN_KEY}"}
# For a server with a tiny model: the more memory, the more pages, whose tables a start writes.
FEW_PAGES = "--memory-limit=1G"


class Late:
    """A package that is imported when it is first used: the clients take seconds of a processor. Pytest asks
    everything here for private members."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, member):
        if member.startswith("_"):
            raise AttributeError(member)
        return getattr(importlib.import_module(self.name), member)


anthropic, openai = Late("anthropic"), Late("openai")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # a build without tests has not drawn the goldens' weights
        subprocess.run([TOP / "tools/golden/seeded.py"], check=True)
    config.addinivalue_line("markers", "smoke: quick tests that also run under AddressSanitizer")
    config.addinivalue_line("markers", "slow: takes longer than a few seconds")
    config.addinivalue_line("markers", "hostile: generated hostile cases, a part of ./test of their own")
    config.addinivalue_line("markers", "alone: measures times or fills the memory; runs when no other test does")


def pytest_collection_finish():
    """Tests and packages stay to the end: the garbage collector passes over them from now on."""
    gc.freeze()


def pytest_collection_modifyitems(items):
    """Files with a slow test begin first: of several processes, none is busy long after the others."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def until(check, seconds=60, every=0.02):
    """Returns the result of `check` once it is true."""
    end = time.monotonic() + seconds
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < end, f"not within {seconds} s: {check.__doc__ or check.__name__}"
        time.sleep(every)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Open:
    """A request of its own connection, sent and not yet answered: light, and easy to leave."""

    def __init__(self, server, path, body, key=None, receive_bytes=None):
        self.sock = socket.socket()
        if receive_bytes:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(ANSWER_S)
        self.sock.connect(("127.0.0.1", server.port))
        self.http = http.client.HTTPConnection("127.0.0.1", server.port)
        self.http.sock = self.sock
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self.http.request("POST", path, json.dumps(body), headers)
        self.reply, self.reader, self.came = None, None, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()

    def answer(self):
        """Waits for the reply's header."""
        if not self.reply:
            self.reply = self.http.getresponse()
        return self.reply

    def event(self):
        """The next event of the stream, parsed; "[DONE]" unparsed; None at its end."""
        while True:
            line = self.answer().readline().decode()
            if not line:
                return None
            if line.startswith("data:"):
                data = line[5:].strip()
                return data if data == "[DONE]" else json.loads(data)

    def events(self):
        return iter(self.event, None)

    def events_that_come(self):
        """Events up to the end, however the stream ends."""
        with contextlib.suppress(http.client.HTTPException, OSError, ValueError):
            yield from self.events()

    def read_on(self):
        """A thread reads the rest and counts its events in `came`, so that the stream never pauses."""
        def read():
            for _ in self.events_that_come():
                self.came += 1

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()
        return self

    def leave(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        if self.reader:
            self.reader.join(10)
        if self.reply:
            self.reply.close()
        self.http.close()
        self.sock.close()


def admin_routes():
    """(method, path) of every route that takes the admin key, from the source; `*` stands for a model's
    id."""
    return re.findall(r'\{"([A-Z]+)", "(/[^"]*)", AUTH_ADMIN,', (TOP / "src/api/routes.c").read_text())


def as_admin(request):
    """Adds the admin's key to requests of the admin's routes; other routes are tested without a key."""
    if "authorization" not in request.headers and re.match(r"/api/|/metrics|/v1/models", request.url.path):
        request.headers["authorization"] = f"Bearer {ADMIN_KEY}"
    return request


class Server:
    """A running `plateau serve`. Through `http` the admin's routes are asked with its admin key; with `key`
    that goes with everything, and the test names the server's keys."""

    program = PROGRAM

    def __init__(self, *options, wait=True, key=None):
        command = [self.program, "serve", *self.arguments(), "--port", "0", *map(str, options)]
        command += [] if key else ["--admin-key", ADMIN_KEY]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        # Its first line says where it listens; one that does not start says nothing there.
        where = re.search(rb"http://[0-9a-z.:\[\]]+:(\d+)", self.process.stdout.readline())
        self.port = int(where[1]) if where else 0
        self.url = f"http://127.0.0.1:{self.port}"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # One connection is kept; settled() counts on that.
        kept = httpx.Limits(max_keepalive_connections=1)
        self.http = httpx.Client(base_url=self.url, timeout=ANSWER_S, headers=headers, limits=kept,
                                 auth=None if key else as_admin)
        if wait:
            self.wait_ready()

    def arguments(self):
        """The models that the server is to serve."""
        return [str(MODEL)]

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace"))

    def said(self, words):
        """Whether the log has a line with them."""
        return any(words in line for line in list(self.lines))

    def says(self, words):
        """Waits for a line of the log with them: it can come after the answer to a request."""
        until(lambda: self.said(words))

    def wait_ready(self):
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                self.reader.join(timeout=10)  # its last lines
                raise RuntimeError(f"the server ended with {self.process.returncode}: {''.join(self.lines[-20:])}")
            try:
                if self.http.get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the server is not ready after {READY_S} s: {''.join(self.lines[-20:])}")

    def stop(self):
        """Its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait()

    def wait(self):
        self.http.close()
        self.process.stdin.close()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.reader.join(5)

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=ANSWER_S, **options)

    def post(self, path, **body):
        return self.http.post(path, json=body)

    def chat(self, content="What does mkdir do?", **fields):
        fields.setdefault("messages", [{"role": "user", "content": content}])
        return self.post("/v1/chat/completions", **fields)

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", prompt=prompt, **fields)

    def begin(self, stream=True, **fields):
        """A long generation, under way; `with` ends it. A stream that is not read is decoded for a moment
        only: it pauses, and is parked in favour of a queued request. A test that needs it to continue
        reads the whole reply, or calls read_on()."""
        body = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": stream, **fields}
        return Open(self, "/v1/completions", body)

    def status(self):
        return self.http.get("/api/status").json()

    def requests(self, phase=None):
        return [r for r in self.status()["requests"] if phase in (None, r["phase"])]

    def memory(self):
        return self.http.get("/api/memory").json()

    def metrics(self):
        found = {}
        for line in self.http.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def wait_idle(self, seconds=60):
        """No request anywhere, in the exchanges or in the engine."""
        until = time.monotonic() + seconds
        while True:
            s = self.status()
            busy = [s["requests"], s["engine_jobs"], s["streams"], [m for m in s["models"] if not m["idle"]]]
            if not any(busy):
                return s
            assert time.monotonic() < until, f"not idle after {seconds} s: {s}"
            time.sleep(0.02)


class Faulty(Server):
    """One to which things happen on order: see faulty.c."""

    program = FAULTY

    def order(self, text):
        """Number of reservations since the last order that refuses some."""
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        while line.startswith(b"  "):  # continued lines
            line = self.process.stdout.readline()
        word, count = line.split()
        assert word == b"ok"
        return int(count)


def account(memory, name):
    """The first account of that name, depth first."""

    def walk(accounts):
        for a in accounts:
            if a["name"] == name:
                return a
            found = walk(a["children"])
            if found:
                return found
        return None

    return walk(memory["accounts"])


def account_bytes(memory):
    """(reserved, used) of every account by its path. Which steps are recorded depends on the batches: their
    bytes count as not used. Heads of conversations stay."""
    found = {}

    def walk(a, path):
        path += "/" + a["name"]
        own = a["own_bytes"] if a["name"] != "recorded steps" else 0
        stays = [c for c in a["children"] if c["name"] == "conversations"]
        used = own + sum(walk(c, path) for c in a["children"] if c not in stays)
        found[path] = (a["reserved_bytes"] - sum(c["reserved_bytes"] for c in stays), used)
        return used

    for a in memory["accounts"]:
        walk(a, "")
    return found


def settled(server, expected=None):
    """The accounts once nothing is going on and everything has been given back: caches cleared, pools
    trimmed, connections closed. What differs from `expected` has 30 s to return."""
    if server.wait_idle()["caches"]["host"]["limit_bytes"] > 0:
        assert server.http.post("/api/hot-cache/clear").json()["failed"] == []

    def nothing_left():
        """no request, job, committed page or connection is left"""
        s = server.status()
        busy = [s["requests"], s["engine_jobs"], s["streams"], [m for m in s["models"] if not m["idle"]],
                [m for m in s["models"] if m["pages_committed"] > 0]]
        return not any(busy) and server.metrics()["plateau_http_connections"] == 1

    until(nothing_left, every=0.05)
    # The thread of a load is joined a moment after its model is ready.
    found = account_bytes(server.memory())
    end = time.monotonic() + 30
    while True:
        time.sleep(0.2)
        before, found = found, account_bytes(server.memory())
        if found == before and (expected in (None, found) or time.monotonic() > end):
            return found


def differences(found, expected):
    """The accounts that differ, as {path: (found, expected)}; None where there is no such account."""
    both = {**expected, **found}
    return {path: (found.get(path), expected.get(path)) for path in both if found.get(path) != expected.get(path)}


def all_returned(server, before):
    """Asserts that its accounts hold what they held; names the others, with the last lines of the log."""
    differ = differences(settled(server, before), before)
    shown = [f"{path}: (reserved, used) is {now}, was {then}" for path, (now, then) in differ.items()]
    assert not shown, "\n".join([*shown, *server.lines[-30:]])


def check_ledger(memory):
    """Every account holds at least what its children hold, within its limit."""

    def walk(a):
        assert a["used_bytes"] <= a["reserved_bytes"], a["name"]
        assert a["limit_bytes"] is None or a["reserved_bytes"] <= a["limit_bytes"], a["name"]
        counted = [c for c in a["children"] if c["class"] != "disk"]
        assert sum(c["reserved_bytes"] for c in counted) <= a["reserved_bytes"], a["name"]
        assert sum(c["used_bytes"] for c in counted) <= a["used_bytes"], a["name"]
        for c in a["children"]:
            walk(c)

    for a in memory["accounts"]:
        walk(a)


def events(text):
    """The data of each event of a stream, parsed; "[DONE]" unparsed."""
    found = []
    for block in re.split(r"\n\n", text):
        lines = [line[5:].lstrip() for line in block.split("\n") if line.startswith("data:")]
        if lines:
            data = "\n".join(lines)
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


def prompt_tokens(usage):
    """All tokens of a prompt, which Messages counts in three parts."""
    return usage["input_tokens"] + usage["cache_creation_input_tokens"] + usage["cache_read_input_tokens"]


@contextlib.contextmanager
def ends_well(server):
    """Behind the block the server stops with status 0. It outlives no block, also not one that failed."""
    try:
        yield
        assert server.stop() == 0, "".join(server.lines[-20:])
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


@contextlib.contextmanager
def serving(*options, kind=Server, **more):
    """A server that must have given everything back when its tests are over, and that ends well."""
    s = kind(*options, **more)
    with ends_well(s):
        before = settled(s)
        yield s
        all_returned(s, before)
        after = s.memory()
        check_ledger(after)
        # A sanitizer keeps freed memory: there the allocator's own figure is missing, and the difference has
        # no meaning.
        if after["system"]["heap_bytes"] > 0:
            assert abs(after["unaccounted_bytes"]) <= 32 << 20, after["unaccounted_bytes"]


@pytest.fixture(scope="session")
def server():
    with serving() as s:
        yield s


NARROW = {"max-num-seqs": 1, "max-queue": 1, "max-requests": 3, "max-request-bytes": "1M"}


@pytest.fixture(scope="session")
def narrow():
    """One sequence in the batch and one place in the queue, in which a request may wait long."""
    with serving(*(f"--{name}={value}" for name, value in {**NARROW, "queue-timeout": 600}.items())) as s:
        yield s


@pytest.fixture(scope="session")
def hasty():
    """A server as narrow(); a queued request waits two seconds at most, and keep-alives come each second."""
    options = {**NARROW, "queue-timeout": 2, "keepalive": 1}
    with serving(*(f"--{name}={value}" for name, value in options.items())) as s:
        yield s


SDK_KEY = "sk-of-the-clients"


@pytest.fixture(scope="session")
def sdk():
    """A server with keys, a second name and vectors, for clients of other projects. Their responses stay in
    its store. No request gets a 5xx."""
    options = ["--embeddings", "--api-key", SDK_KEY, "--admin-key", ADMIN_KEY, "--alias", "Qwen/Qwen3-4B"]
    s = Server(*options, key=ADMIN_KEY)
    failed = lambda: s.metrics()['plateau_http_requests_total{class="5"}']
    with ends_well(s):
        before = failed()  # /health while the model loaded
        yield s
        s.wait_idle()
        assert failed() == before


@pytest.fixture(scope="session")
def client(server):
    with server.client() as c:
        yield c


@pytest.fixture(scope="session")
def model(server):
    return server.http.get("/v1/models").json()["data"][0]["id"]


def as_clients_send(messages):
    """The arguments of earlier tool calls as text, as OpenAI's clients have them."""
    messages = json.loads(json.dumps(messages))
    for message in messages:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
            call.setdefault("id", "call_1")
            call.setdefault("type", "function")
    return messages


def refused(reply, status, code, *words):
    """The error of a refusal, in OpenAI's envelope."""
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == code, error
    for word in words:
        assert str(word) in error["message"], error["message"]
    assert len(reply.headers["x-request-id"]) == 32
    return error


def case_fields(case, **more):
    """A golden case as the fields of a chat."""
    fields = {
        "messages": as_clients_send(case["messages"]),
        "chat_template_kwargs": {"enable_thinking": case["enable_thinking"]},
        "temperature": 0,
        "max_tokens": len(case["greedy_ids"]) + 8,
        "return_token_ids": True,
        **more,
    }
    if case["tools"]:
        fields["tools"] = case["tools"]
    return fields
