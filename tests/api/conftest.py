"""One server with the bundled model for the whole session, and what must be true of it when the session ends.

The program is PLATEAU_BIN (or PLATEAU_PROGRAM), build/plateau without either."""

import json
import os
import pathlib
import re
import socket
import subprocess
import threading
import time

import httpx
import openai
import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_BIN") or os.environ.get("PLATEAU_PROGRAM") or str(TOP / "build/plateau")
MODEL = TOP / "models/canary"
GOLDEN = json.loads((TOP / "tests/golden/data/canary-8bit/golden.json").read_text())
READY_S = 60


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: quick tests that also run under AddressSanitizer")
    config.addinivalue_line("markers", "slow: takes longer than a few seconds")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running `plateau serve`."""

    def __init__(self, *options, wait=True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [PROGRAM, "serve", str(MODEL), "--port", str(self.port), *map(str, options)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lines = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.http = httpx.Client(base_url=self.url, timeout=60)
        if wait:
            self.wait_ready()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace"))

    def wait_ready(self):
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}: {''.join(self.lines[-20:])}")
            try:
                if self.http.get("/health").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"the server is not ready after {READY_S} s: {''.join(self.lines[-20:])}")

    def stop(self):
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self.reader.join(5)

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0, timeout=60, **options)

    def post(self, path, **body):
        return self.http.post(path, json=body)

    def chat(self, content="What does mkdir do?", **fields):
        fields.setdefault("messages", [{"role": "user", "content": content}])
        return self.post("/v1/chat/completions", **fields)

    def complete(self, prompt, **fields):
        return self.post("/v1/completions", prompt=prompt, **fields)

    def status(self):
        return self.http.get("/api/status").json()

    def memory(self):
        return self.http.get("/api/memory").json()

    def metrics(self):
        found = {}
        for line in self.http.get("/metrics").text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def wait_idle(self, seconds=10):
        """No request anywhere, in the exchanges or in the engine."""
        until = time.monotonic() + seconds
        while True:
            s = self.status()
            busy = [s["requests"], s["engine_jobs"], s["streams"], [m for m in s["models"] if not m["idle"]]]
            if not any(busy):
                return s
            assert time.monotonic() < until, f"not idle after {seconds} s: {s}"
            time.sleep(0.02)


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
    """The data of each event of a stream, parsed; "[DONE]" as it is."""
    found = []
    for block in re.split(r"\n\n", text):
        lines = [line[5:].lstrip() for line in block.split("\n") if line.startswith("data:")]
        if lines:
            data = "\n".join(lines)
            found.append(data if data == "[DONE]" else json.loads(data))
    return found


@pytest.fixture(scope="session")
def server():
    s = Server()
    before = s.memory()
    yield s
    s.wait_idle()
    time.sleep(0.3)
    after = s.memory()
    check_ledger(after)
    for name in ("text", "requests", "kv", "state"):
        was, now = account(before, name), account(after, name)
        if was and now:
            assert now["reserved_bytes"] == was["reserved_bytes"], f"{name}: {was} became {now}"
    assert abs(after["unaccounted_bytes"]) <= 32 << 20, after["unaccounted_bytes"]
    assert s.stop() == 0, "".join(s.lines[-20:])


@pytest.fixture(scope="session")
def client(server):
    with server.client() as c:
        yield c


@pytest.fixture(scope="session")
def model(server):
    return server.http.get("/v1/models").json()["data"][0]["id"]


def case_fields(case, **more):
    """A golden case as the fields of a chat."""
    fields = {
        "messages": case["messages"],
        "chat_template_kwargs": {"enable_thinking": case["enable_thinking"]},
        "temperature": 0,
        "max_tokens": len(case["greedy_ids"]) + 8,
        "return_token_ids": True,
        **more,
    }
    if case["tools"]:
        fields["tools"] = case["tools"]
    return fields
