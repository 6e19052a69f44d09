"""tenants: how long one client's small request waits beside another's flood, unread streams, idle and
dripping connections, large texts."""

import contextlib
import itertools
import json
import pathlib
import resource
import socket
import tempfile
import threading
import time

import stats
from common import Report, Server, head

OTHER, ASKING = "sk-of-the-other", "sk-of-who-asks"
FLOOD, UNREAD, IDLE, DRIPPING, LARGE = 120, 100, 300, 300, 8  # clients, at --crowd 100
LARGE_BYTES = 4_000_000
SETTLE_S = 2
ASKS = 20


def post(port, path, body, key, timeout=120):
    """(seconds to the first byte of the body, status)"""
    body = json.dumps(body).encode()
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = head("POST", path, body).replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {key}\r\n\r\n".encode(), 1) + body
        # A refusal may come before all of a large body is read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(request)
        text = b""
        while b"\r\n\r\n" not in text or text.endswith(b"\r\n\r\n"):
            part = sock.recv(65536)
            if not part:
                break
            text += part
    return time.monotonic() - began, int(text[9:12] or 0)


def ask(server):
    return post(server.port, "/v1/completions", {"prompt": "ls", "max_tokens": 2, "stream": True}, ASKING)


def health(server):
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.port), 30) as sock:
        sock.sendall(head("GET", "/health"))
        answer = sock.recv(100)
    return time.monotonic() - began, int(answer[9:12] or 0)


def median(measure, server, count=ASKS):
    """Median seconds; every answer has to be 200."""
    got = [measure(server) for _ in range(count)]
    refused = [status for _, status in got if status != 200]
    if refused:
        raise SystemExit(f"{len(refused)} of {count} requests were answered with {refused[0]}.")
    return stats.quantile([seconds for seconds, _ in got], 0.5), max(seconds for seconds, _ in got)


@contextlib.contextmanager
def repeated(count, work):
    """`count` threads that call work(i, k), k = 0, 1, ..., until the block ends."""
    over = threading.Event()

    def run(i):
        for k in itertools.count():
            if over.is_set():
                return
            with contextlib.suppress(OSError, ValueError):
                work(i, k)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(count)]
    for t in threads:
        t.start()
    time.sleep(SETTLE_S)
    yield
    over.set()
    for t in threads:
        t.join(120)


@contextlib.contextmanager
def opened(port, count, data, receive_bytes=None):
    """`count` connections that have sent data(i) and are left alone, as far as the server keeps them."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for i in range(count):
            sock = stack.enter_context(socket.socket())
            if receive_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            sock.settimeout(5)
            with contextlib.suppress(OSError):
                sock.connect(("127.0.0.1", port))
                sock.sendall(data(i))
                sockets.append(sock)
        time.sleep(SETTLE_S)
        yield sockets


@contextlib.contextmanager
def dripping(port, count):
    """`count` connections that send a byte of a header now and then."""
    over = threading.Event()

    def drip(sockets):
        while not over.wait(0.5):
            for sock in sockets:
                with contextlib.suppress(OSError):
                    sock.send(b"a")

    with opened(port, count, lambda _: b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: a") as sockets:
        thread = threading.Thread(target=drip, args=(sockets,), daemon=True)
        thread.start()
        yield
        over.set()
        thread.join()


def unread_request(_):
    body = json.dumps({"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": True}).encode()
    return head("POST", "/v1/completions", body).replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {OTHER}\r\n\r\n".encode(), 1) + body


def beside_flood(report, server, alone, crowd):
    clients = FLOOD * crowd // 100

    def flood(i, k):
        post(server.port, "/v1/completions", {"prompt": f"{i} {k} a text of its own " * 20, "max_tokens": 200, "ignore_eos": True}, OTHER)

    with repeated(clients, flood):
        step = stats.quantile([server.model()["last_step_ms"] / 1000 for _ in range(ASKS)], 0.5)
        waits, longest = median(ask, server)
    figure(report, f"beside {clients} requests of another's", waits, longest)
    report.must(f"beside a flood at most 3 x alone and a step of {step * 1000:.0f} ms", waits <= 3 * alone + step)


def wait_paused(server, count, seconds=60):
    """Seconds until the engine computes none of the `count` streams."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        phases = [r["phase"] for r in server.get("/api/status")["requests"]]
        if sum(phase in ("paused", "parked") for phase in phases) >= count:
            return time.monotonic() - began + SETTLE_S
        time.sleep(0.05)
    raise SystemExit(f"After {seconds} s streams that are not read are still computed: {phases}")


def beside_unread(report, server, alone, crowd):
    clients = UNREAD * crowd // 100
    with opened(server.port, clients, unread_request, receive_bytes=4096):
        paused = wait_paused(server, clients)
        report.figure("paused_s", paused, f"after {paused:.1f} s: all {clients} unread streams")
        waits, longest = median(ask, server)
    figure(report, f"beside {clients} streams that are not read", waits, longest)
    report.must("beside unread streams at most 2 x alone", waits <= 2 * alone)


def beside_connections(report, server, alone, crowd):
    idle, slow = IDLE * crowd // 100, DRIPPING * crowd // 100
    with opened(server.port, idle, lambda _: b""), dripping(server.port, slow):
        waits, longest = median(ask, server)
        _, slowest = median(health, server)
    figure(report, f"beside {idle} idle and {slow} dripping connections", waits, longest)
    report.figure("health", slowest, f"answers within {slowest * 1000:.0f} ms there")
    report.must("/health answers within 0.5 s, a new client within 2 s", slowest <= 0.5 and longest <= 2)


def beside_large(report, server, alone, crowd):
    clients = max(1, LARGE * crowd // 100)
    texts = [chr(97 + i) * 7 + " " for i in range(clients)]

    def send(i, _):
        text = texts[i] * (LARGE_BYTES // len(texts[i]))
        post(server.port, "/v1/completions", {"prompt": text, "max_tokens": 1}, OTHER)

    with repeated(clients, send):
        waits, longest = median(ask, server)
    figure(report, f"beside {clients} clients with texts of 4 MB", waits, longest)
    report.must("beside large texts at most 1 s", longest <= 1)


def figure(report, what, waits, longest):
    report.figure(what.replace(" ", "_"), [waits, longest], f"a first token takes {waits * 1000:.0f} ms, {longest * 1000:.0f} at most")


def run(options):
    report = Report("tenants", options)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
    with tempfile.TemporaryDirectory(prefix="plateau-gate-") as folder:
        keys = pathlib.Path(folder, "keys")
        keys.write_text(f"other {OTHER}\nasking {ASKING}\n")
        keys.chmod(0o600)
        for beside in beside_flood, beside_unread, beside_connections, beside_large:
            with Server(options, "--api-key-file", keys) as server:
                median(ask, server)
                alone, _ = median(ask, server)
                report.figure(f"alone_{beside.__name__}", alone, f"a first token takes {alone * 1000:.0f} ms")
                beside(report, server, alone, options.crowd)
    return report.done()
