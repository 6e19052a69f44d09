"""Mixed traffic, as agents and their users make it: lengths from a word to a page, shared prefixes,
streams and whole replies. Some clients abort, vanish, read slowly or send nonsense. Each request's fate
follows from the seed and its number."""

import collections
import json
import random
import socket
import threading
import time

from common import head

FATES = {  # shares of a hundred requests
    "whole": 38,
    "stream": 34,
    "abort": 7,
    "leave_at_once": 5,
    "leave_midway": 8,
    "slow": 3,
    "too_long": 2,
    "nonsense": 3,
}
WORDS = "list files show lines count words sort names find text copy move folder process memory disk network user time page".split()


class Broken(Exception):
    """An answer that the request should not have got."""


class Traffic:
    """`clients` threads that send `count` requests altogether."""

    fates = FATES

    def __init__(self, server, clients, longest, seed):
        self.server, self.clients, self.longest, self.seed = server, clients, longest, seed
        self.next, self.lock = 0, threading.Lock()
        self.ended, self.failures, self.tokens = collections.Counter(), [], 0
        rng = random.Random(seed)
        self.beginnings = [server.ids(rng, int(2 ** rng.uniform(5, 9))) for _ in range(20)]
        self.stories = [" ".join(rng.choices(WORDS, k=rng.randint(5, 120))) for _ in range(20)]

    def run(self, count):
        last = self.next + count
        threads = [threading.Thread(target=self._work, args=(last,)) for _ in range(self.clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def done(self):
        return sum(self.ended.values())

    def _work(self, last):
        while True:
            with self.lock:
                number, self.next = self.next, self.next + (self.next < last)
            if number >= last:
                return
            rng = random.Random(f"{self.seed}/{number}")
            fate = rng.choices(list(self.fates), self.fates.values())[0]
            try:
                getattr(self, "_" + fate)(rng)
            except (Broken, OSError) as error:
                with self.lock:
                    self.failures.append(f"request {number} ({fate}): {error!r}")
            with self.lock:
                self.ended[fate] += 1

    # ---- requests ----

    def _body(self, rng, tokens, **more):
        """(path, body) of a request that generates `tokens`."""
        body = {"max_tokens": tokens, "ignore_eos": True, **more}
        if self.server.has_text and rng.random() < 0.5:
            said = " ".join(rng.choices(WORDS, k=int(2 ** rng.uniform(0, 6))))
            messages = [{"role": "system", "content": rng.choice(self.stories)}, {"role": "user", "content": said}]
            return "/v1/chat/completions", {**body, "messages": messages}
        begins = rng.choice(self.beginnings) if rng.random() < 0.6 else []
        own = self.server.ids(rng, int(2 ** rng.uniform(0, self.longest.bit_length() - 1)))
        return "/v1/completions", {**body, "prompt": begins + own}

    def _send(self, path, body, receive_bytes=None):
        sock = socket.socket()
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        sock.settimeout(300)
        sock.connect(("127.0.0.1", self.server.port))
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        sock.sendall(head("POST", path, sent) + sent)
        return sock

    @staticmethod
    def _read(sock):
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
        return b"".join(parts)

    def _expect(self, text, status, end=b""):
        if not text.startswith(b"HTTP/1.1 %d" % status) or end not in text:
            raise Broken(text[:200] + b" ... " + text[-300:])

    # ---- behaviour of clients ----

    def _whole(self, rng):
        with self._send(*self._body(rng, rng.randint(1, 40), n=rng.choice((1, 1, 1, 2)))) as sock:
            self._expect(self._read(sock), 200, b'"completion_tokens"')

    def _stream(self, rng):
        with self._send(*self._body(rng, rng.randint(1, 60), stream=True)) as sock:
            self._expect(self._read(sock), 200, b"data: [DONE]")

    def _slow(self, rng):
        """Takes a few hundred bytes at a time."""
        text = b""
        with self._send(*self._body(rng, rng.randint(20, 200), stream=True), receive_bytes=2048) as sock:
            while part := sock.recv(400):
                text += part
                time.sleep(0.005)
        self._expect(text, 200, b"data: [DONE]")

    def _abort(self, rng):
        """Cancels itself by its id, once it has begun."""
        with self._send(*self._body(rng, 400, stream=True)) as sock:
            text = sock.recv(4096)
            self._expect(text, 200)
            request = text.lower().split(b"x-request-id: ")[1][:32].decode()
            time.sleep(rng.random() * 0.1)
            with socket.create_connection(("127.0.0.1", self.server.port), 60) as other:
                other.sendall(head("DELETE", f"/v1/requests/{request}"))
                deleted = self._read(other)
            rest = self._read(sock)
            if deleted.startswith(b"HTTP/1.1 200"):
                if b"request_cancelled" not in text + rest:
                    raise Broken(rest[-300:])
            else:
                self._expect(deleted, 404)
                self._expect(text + rest, 200, b"data: [DONE]")

    def _leave_at_once(self, rng):
        self._send(*self._body(rng, 200, stream=rng.random() < 0.5)).close()

    def _leave_midway(self, rng):
        with self._send(*self._body(rng, 400, stream=True)) as sock:
            for _ in range(rng.randint(1, 5)):
                sock.recv(600)

    def _too_long(self, rng):
        with self._send("/v1/completions", {"prompt": [9], "max_tokens": 1 << 24}) as sock:
            self._expect(self._read(sock), 400, b'"error"')

    def _nonsense(self, rng):
        body = rng.choice((b'{"prompt": ', b"[]", b'{"prompt": [1e9]}', b'{"prompt": "a", "max_tokens": -1}', b"\xff\xfe{}"))
        with self._send("/v1/completions", body) as sock:
            self._expect(self._read(sock), 400, b'"error"')
