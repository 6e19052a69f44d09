"""A server under test, seen from outside: started, sampled, asked; and how a gate reports."""

import dataclasses
import http.client
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time

MIB = 1 << 20
ADMIN_KEY = "sk-root-of-the-gates"
# The admin sockets of the gates' servers: no gate meets a server of the user.
RUNTIME = tempfile.TemporaryDirectory(prefix="plateau-gates-", dir="/tmp")
ENDS_WITH_GATE = ("setpriv", "--pdeathsig", "KILL")  # the kernel ends the server when the gate is killed


class Server:
    """`plateau serve` with a model, for a `with` block."""

    def __init__(self, options, *more, named=True, environment=None):
        model = pathlib.Path(options.model)
        self.has_text = (model / "tokenizer.json").exists()
        self.vocab = vocabulary(model)
        command = [options.program, "serve", *([str(model)] if named else []), "--port", "0", "--log-level", "warn", "--admin-key", ADMIN_KEY, *placed(options), *options.serve, *map(str, more)]
        self.command = " ".join(command)
        self.process = subprocess.Popen([*ENDS_WITH_GATE, *command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                        env={**os.environ, "PLATEAU_RUNTIME_DIR": RUNTIME.name, **(environment or {})})
        where = re.search(rb"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if not where:
            raise SystemExit(f"The server did not start: {self.command}")
        self.port = int(where[1])
        self.asks = Connection(self.port)
        end = time.monotonic() + 300
        while self.asks.call("GET", "/health")[0] != 200:
            if time.monotonic() > end or self.process.poll() is not None:
                raise SystemExit(f"The server was not ready within 300 s: {self.command}")
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.asks.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def get(self, path):
        status, body = self.asks.call("GET", path)
        if status != 200:
            raise RuntimeError(f"{path} answered {status}")
        return json.loads(body)

    def post(self, path, body=None):
        status, answer = self.asks.call("POST", path, body or {})
        return status, json.loads(answer)

    def own_bytes(self):
        """Memory that is the process's own: RssAnon + RssShmem + VmSwap."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return sum(int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) for name in ("RssAnon", "RssShmem", "VmSwap")) * 1024

    def model(self):
        return self.get("/api/status")["models"][0]

    def ids(self, rng, count):
        return [rng.randrange(self.vocab // 50, self.vocab - 300) for _ in range(count)]

    def wait_idle(self, seconds=120):
        """When the last request was gone, by time.monotonic()."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            s = self.get("/api/status")
            if not (s["active_requests"] or s["waiting_requests"] or s["engine_jobs"] or s["streams"]):
                return time.monotonic()
            time.sleep(0.005)
        raise SystemExit(f"Requests are left after {seconds} s: {s}")

    def clear_cache(self):
        status, answer = self.post("/api/hot-cache/clear")
        if status != 200 or answer["failed"]:
            raise SystemExit(f"The cache was not cleared: {status} {answer}")
        return answer


def placed(options):
    """The device and the ceilings, for `plateau serve` and `plateau plan`."""
    given = {name: getattr(options, name.replace("-", "_")) for name in ("device", "memory-limit", "device-memory-limit")}
    return [f"--{name}={value}" for name, value in given.items() if value]


def text_only(options):
    """For gates that send no image: a device keeps no memory for any."""
    return ["--max-image-pixels=0"] if options.device else []


class Connection:
    """One kept connection: what it asks costs the server no new one, unless it was silent for too long."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def call(self, method, path, body=None):
        try:
            return self._call(method, path, body)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self.http.close()
            return self._call(method, path, body)

    def _call(self, method, path, body):
        headers = {"Content-Type": "application/json"}
        # Completions come without a key, as those on other connections do: they are one tenant's.
        if re.match(r"/api/|/metrics|/v1/models", path):
            headers["Authorization"] = f"Bearer {ADMIN_KEY}"
        self.http.request(method, path, json.dumps(body) if body is not None else None, headers)
        reply = self.http.getresponse()
        return reply.status, reply.read()

    def close(self):
        self.http.close()


def vocabulary(model):
    config = json.loads((model / "config.json").read_text())
    return (config.get("text_config") or config)["vocab_size"]


@dataclasses.dataclass
class Timed:
    """A streamed request as its client saw it: seconds, from when it was sent."""

    first: float
    tokens: int
    prompt: int
    cached: int
    ended: float


def head(method, path, body=b"", keep=False):
    """A request's header, ready to send."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {'keep-alive' if keep else 'close'}\r\n\r\n"
    ).encode()


def stream(port, path, body):
    """Sends it on a connection of its own, reads to the end."""
    sock = socket.create_connection(("127.0.0.1", port), 600)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    body = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    with sock:
        began = time.monotonic()
        sock.sendall(head("POST", path, body) + body)
        times, text = [], b""
        while part := sock.recv(65536):
            text += part
            if b'"choices":[{' in part:
                times.append(time.monotonic() - began)
    if b"HTTP/1.1 200" not in text[:20] or b"data: [DONE]" not in text:
        raise SystemExit(f"A stream failed: {text[-600:]!r}")
    return Timed(
        times[0],
        int(re.findall(rb'"completion_tokens":(\d+)', text)[-1]),
        int(re.findall(rb'"prompt_tokens":(\d+)', text)[-1]),
        int(re.findall(rb'"cached_tokens":(\d+)', text)[-1]),
        times[-1],
    )


class Beside(threading.Thread):
    """A thread beside a `with` block; its run() ends when `over` is set."""

    def __init__(self):
        super().__init__(daemon=True)
        self.over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()


class Running(threading.Thread):
    """A long completion, read as a stream; the times of its tokens."""

    def __init__(self, port, body):
        super().__init__(daemon=True)
        body = json.dumps({**body, "stream": True}).encode()
        self.sock = socket.create_connection(("127.0.0.1", port), 600)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(head("POST", "/v1/completions", body) + body)
        self.times = []
        self.start()

    def run(self):
        try:
            while part := self.sock.recv(65536):
                if b'"choices":[{' in part:
                    self.times.append(time.monotonic())
        except OSError:
            pass

    def leave(self):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.join()
        self.sock.close()

    def gaps(self, began, ended):
        """In ms, of the tokens between two times."""
        times = [t for t in self.times if began <= t <= ended]
        return [(b - a) * 1000 for a, b in zip(times, times[1:])]


class Sampler:
    """Looks at the server's memory at intervals, on a thread and a connection of its own; `watch` sees all
    of it."""

    def __init__(self, server, every=0.25, position=None, watch=None):
        self.server, self.every, self.position, self.watch = server, every, position or (lambda: 0), watch
        self.rows, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        asks, began = Connection(self.server.port), time.monotonic()
        while not self.over.wait(self.every):
            status, body = asks.call("GET", "/api/memory")
            if status != 200:
                continue
            memory = json.loads(body)
            if self.watch:
                self.watch.see(memory)
            self.rows.append(
                {
                    "s": time.monotonic() - began,
                    "at": self.position(),
                    "own": self.server.own_bytes(),
                    "used": memory["used_bytes"],
                    "reserved": memory["reserved_bytes"],
                    "unaccounted": memory["unaccounted_bytes"],
                    "pools": account(memory, "pools")["used_bytes"],
                    "sums_hold": memory["sums_hold"],
                    "accounts": {path: node["used_bytes"] for path, node in accounts(memory).items()},
                }
            )
        asks.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def column(self, name):
        return [row[name] for row in self.rows]


def accounts(memory):
    """All accounts by their path."""
    found = {}

    def walk(nodes, above):
        for node in nodes:
            path = f"{above}/{node['name']}" if above else node["name"]
            found[path] = node
            walk(node["children"], path)

    walk(memory["accounts"], "")
    return found


def account(memory, name):
    return next(node for path, node in accounts(memory).items() if path.endswith("/" + name))


def mib(count):
    return f"{count / MIB:.1f} MiB"


class Report:
    """A gate's figures and conditions: printed at once, written as JSON at the end."""

    def __init__(self, gate, options):
        self.gate, self.out = gate, pathlib.Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.name = f"{gate}-{options.label or pathlib.Path(options.model).name}"
        if options.device:
            self.name += "-" + options.device.replace(":", "")
        self.figures, self.broken = {}, []

    def say(self, text):
        print(f"{self.gate}: {text}", flush=True)

    def figure(self, name, value, text=None):
        self.figures[name] = value
        self.say(f"{name.replace('_', ' ')} {text if text is not None else value}")

    def must(self, what, holds):
        if not holds:
            self.broken.append(what)
        self.say(f"{'holds' if holds else 'BROKEN'}: {what}")

    def plot(self, draw, width=7.0, height=2.6, name=None):
        """draw(axes) fills the image, which is small enough for documents; `name` distinguishes a second
        one from the first."""
        try:
            import matplotlib
        except ImportError:
            self.say("no image: python3-matplotlib is not there")
            return
        matplotlib.use("Agg")
        from matplotlib import pyplot

        matplotlib.rcParams.update({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False})
        figure, axes = pyplot.subplots(figsize=(width, height), dpi=110, layout="constrained")
        draw(axes)
        figure.savefig(self.out / f"{self.name}{'-' + name if name else ''}.png", pil_kwargs={"optimize": True})
        pyplot.close(figure)

    def done(self):
        (self.out / f"{self.name}.json").write_text(json.dumps({"figures": self.figures, "broken": self.broken}, indent=1) + "\n")
        self.say("kept" if not self.broken else f"BROKEN: {'; '.join(self.broken)}")
        return not self.broken
