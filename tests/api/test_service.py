"""Messages to the service manager: ready, watchdog, reloading, stopping."""

import os
import signal
import socket
import time

import pytest

from conftest import Faulty, Server, serving, until

from test_admin import lines_of


class Manager:
    """The other end of NOTIFY_SOCKET; `with` puts it into the environment of processes started within."""

    def __init__(self, address, watchdog_s=0, pid=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0", 1))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.settimeout(20)
        self.environment = {"NOTIFY_SOCKET": address}
        if watchdog_s:
            self.environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))
        if pid:
            self.environment["WATCHDOG_PID"] = str(pid)
        self.seen = []

    def __enter__(self):
        os.environ.update(self.environment)
        return self

    def __exit__(self, *_):
        for name in self.environment:
            os.environ.pop(name, None)
        self.socket.close()

    def next(self):
        """The next datagram, as a dictionary."""
        data, ancillary, _, _ = self.socket.recvmsg(4096, 256)
        found = dict(line.split("=", 1) for line in data.decode().splitlines())
        found["pid"] = int.from_bytes(ancillary[0][2][:4], "little")
        self.seen.append(found)
        return found

    def wait_for(self, name, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.next()
            if name in found:
                return found
        raise AssertionError(f"no {name} within {seconds} s: {self.seen[-10:]}")

    def is_full(self):
        """no further message can be sent to the manager"""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            try:
                other.sendto(b"FILLER=1", self.socket.getsockname())
            except BlockingIOError:
                return True
        return False

    def waiting(self):
        """The messages received by now."""
        found = []
        self.socket.setblocking(False)
        try:
            while True:
                found.append(self.next())
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(20)
        return found


def runs_for(server, seconds):
    """By the server's own clock. Its timers run in the loop that answers, so those that are due have run."""
    uptime = lambda: server.status()["uptime_seconds"]
    since = uptime()
    until(lambda: uptime() >= since + seconds)


@pytest.fixture(params=["path", "abstract"])
def address(request, tmp_path):
    return str(tmp_path / "notify") if request.param == "path" else f"@plateau-test-{os.getpid()}-{time.monotonic_ns()}"


@pytest.mark.smoke
def test_from_ready_to_stopping(address):
    with Manager(address) as manager:
        s = Server(wait=False)
        ready = manager.wait_for("READY")
        assert ready["READY"] == "1" and ready["pid"] == s.process.pid
        assert s.http.get("/health").status_code == 200  # not before it is true
        assert manager.wait_for("STATUS")["STATUS"] == "Ready"
        before_us = time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
        s.process.send_signal(signal.SIGHUP)
        reloading = manager.wait_for("RELOADING")
        assert reloading["RELOADING"] == "1"
        assert before_us <= int(reloading["MONOTONIC_USEC"]) <= time.clock_gettime(time.CLOCK_MONOTONIC) * 1e6
        assert manager.next()["READY"] == "1"
        assert manager.wait_for("STATUS")["STATUS"] == "Ready"
        assert s.stop() == 0
        stopping = manager.wait_for("STOPPING")
        assert stopping["STOPPING"] == "1" and int(stopping["EXTEND_TIMEOUT_USEC"]) >= 10e6
        assert manager.wait_for("STATUS")["STATUS"].startswith("Ending")
        assert not [m for m in manager.seen + manager.waiting() if "WATCHDOG" in m]


def test_a_reload_that_fails_is_over_as_well(tmp_path):
    config = tmp_path / "plateau.ini"
    config.write_text("max-queue = 8\n")
    with Manager(str(tmp_path / "notify")) as manager, serving("--config", config) as s:
        manager.wait_for("READY")
        config.write_text("max-queue = none\n")
        s.process.send_signal(signal.SIGHUP)
        manager.wait_for("RELOADING")
        manager.wait_for("READY")
        assert until(lambda: lines_of(s, "reload_failed"))


def test_the_watchdog_sees_an_engine_that_hangs(tmp_path):
    with Manager(str(tmp_path / "notify"), watchdog_s=0.6) as manager:
        s = Faulty("--stuck", 1)
        try:
            manager.wait_for("READY")
            manager.waiting()
            began = time.monotonic()
            for _ in range(5):  # idle is well
                manager.wait_for("WATCHDOG")
            assert time.monotonic() - began > 0.6  # twice in the time that is given, or a little more often
            s.order("hang")
            with s.begin(stream=False):
                s.order("wait")
                assert "Stuck" in manager.wait_for("STATUS")["STATUS"]
                # One tick sends both: a message to the manager would be before or with that one.
                manager.waiting()
                runs_for(s, 2 * 0.6)
                assert manager.waiting() == []  # the manager would end it now
                s.order("go")
                assert manager.wait_for("STATUS")["STATUS"] == "Ready"
                manager.wait_for("WATCHDOG")
        finally:
            assert s.stop() == 0


def test_a_watchdog_that_is_not_ours(tmp_path):
    with Manager(str(tmp_path / "notify"), watchdog_s=0.2, pid=1) as manager:
        s = Server()
        manager.wait_for("READY")
        runs_for(s, 3 * 0.2)
        assert s.stop() == 0
        manager.wait_for("STOPPING")
        assert not [m for m in manager.seen if "WATCHDOG" in m]


@pytest.mark.parametrize("address", ["", "notify", "vsock:2:3", "/" + "n" * 200, "/none/at/all", "@"])
def test_a_socket_that_is_none_does_no_harm(address):
    environment = os.environ.copy()
    os.environ["NOTIFY_SOCKET"] = address
    try:
        s = Server()
        assert s.complete("a", max_tokens=1).status_code == 200
        assert s.stop() == 0
        assert bool(lines_of(s, "notify_failed")) == (address not in ("", "/none/at/all"))
    finally:
        os.environ.clear()
        os.environ.update(environment)


def test_who_does_not_read_is_not_waited_for(tmp_path):
    manager = Manager(str(tmp_path / "notify"), watchdog_s=0.003)
    with manager, serving() as s:
        s.complete("a", max_tokens=1)
        until(manager.is_full)
        assert s.http.get("/health").status_code == 200
