"""Replicas of `plateau serve` with fixed ports, to be stopped, killed, frozen and started again."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parents[2]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(check, seconds=120, every=0.05):
    """Waits for `check` to be true; TimeoutError after `seconds`."""
    end = time.monotonic() + seconds
    while not check():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {check.__doc__ or check.__name__}")
        time.sleep(every)


def fetch(port, path, key=None, timeout=5):
    """Returns (status, body) of a GET, (0, b"") if nothing answers."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        try:
            c.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
            reply = c.getresponse()
            return reply.status, reply.read()
        finally:
            c.close()
    return 0, b""


class Replica:
    """One server. Its addresses stay the same over restarts, so a router finds it again."""

    def __init__(self, number, folder, options, program=TOP / "build/plateau", model=TOP / "models/canary", events=True):
        self.number, self.log = number, folder / f"replica-{number}.log"
        self.port, self.admin_key = free_port(), f"sk-admin-of-replica-{number}"
        self.url = f"http://127.0.0.1:{self.port}"
        self.events = f"tcp://127.0.0.1:{free_port()}" if events else None
        self.replay = f"tcp://127.0.0.1:{free_port()}" if events else None
        self.command = [str(program), "serve", str(model), "--port", str(self.port), "--admin-key", self.admin_key, *options]
        if events:
            self.command += ["--kv-events", self.events, "--kv-events-replay", self.replay]
        self.env = {**os.environ, "PLATEAU_RUNTIME_DIR": str(folder)}
        self.process = None

    def start(self, wait=True):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env)
        if wait:
            self.wait_ready()

    def wait_ready(self):
        def ready():
            """a replica is ready"""
            if self.process.poll() is not None:
                raise RuntimeError(f"replica {self.number} ended with {self.process.returncode}: {self.log.read_text()[-800:]}")
            return fetch(self.port, "/health")[0] == 200

        until(ready)

    def stop(self):
        """Drains it. Returns its exit status."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(60) if self.process else 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def end(self):
        """Asks it to end without a drain: a second signal ends that."""
        if self.process and self.process.poll() is None:
            self.process.terminate()
            time.sleep(0.1)
            self.process.terminate()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def metrics(self):
        """Returns {series: value}."""
        found = {}
        for line in fetch(self.port, "/metrics", self.admin_key)[1].decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def busy(self):
        """Returns how many requests it has."""
        status, body = fetch(self.port, "/api/status", self.admin_key)
        return len(json.loads(body)["requests"]) if status == 200 else 0
