"""Requests with images, as clients make them: small and large images, new and repeated ones, one or
several, streamed or not. Some clients leave while their image is queued, decoded, encoded or answered.
Some images are invalid."""

import json
import random
import socket
import time

import drawing
from common import Beside, head
from traffic import Broken, Traffic

EARLIER = 48  # images that are sent repeatedly
LARGE = (1 << 20, 1 << 22)  # pixels


def about(urls, question, tokens, **more):
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content = [*parts, {"type": "text", "text": question}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "ignore_eos": True, **more}


def edges(rng, pixels):
    height = int((pixels * rng.uniform(0.4, 2.5)) ** 0.5)
    return max(pixels // height, 8), height


class Looking(Traffic):
    fates = {  # shares of a hundred requests
        "whole": 35,
        "stream": 33,
        "large": 2,
        "bad": 9,
        "leave_soon": 9,
        "leave_reading": 3,
        "leave_streaming": 9,
    }

    def __init__(self, server, clients, seed):
        super().__init__(server, clients, 64, seed)

    # ---- requests ----

    def _url(self, rng):
        """A small image: a repeated or a new one."""
        look = f"{self.seed}/again/{rng.randrange(EARLIER)}" if rng.random() < 0.4 else f"{self.seed}/{rng.random()}"
        own = random.Random(look)
        width, height = (64, 64) if own.random() < 0.5 else edges(own, int(2 ** own.uniform(12, 17)))
        return drawing.data_url(*drawing.image(width, height, look))

    def _large_url(self, rng):
        width, height = edges(rng, rng.randint(*LARGE))
        return drawing.data_url(*drawing.image(width, height, f"{self.seed}/{rng.random()}"))

    def _look(self, rng, tokens, urls=None, **more):
        """(path, body)"""
        count = rng.choice((1, 1, 1, 1, 2, 3, 5))
        urls = urls or [self._url(rng) for _ in range(count)]
        question = rng.choice(("What is it?", "What colour is it?", rng.choice(self.stories)))
        return "/v1/chat/completions", about(urls, question, tokens, **more)

    # ---- behaviour of clients ----

    def _answered(self, path, body):
        with self._send(path, body) as sock:
            text = self._read(sock)
        self._expect(text, 200, b'"completion_tokens":%d' % body["max_tokens"])
        if body.get("stream"):
            self._expect(text, 200, b"data: [DONE]")

    def _whole(self, rng):
        self._answered(*self._look(rng, rng.randint(1, 24), n=1))

    def _stream(self, rng):
        self._answered(*self._look(rng, rng.randint(1, 40), stream=True, stream_options={"include_usage": True}))

    def _large(self, rng):
        self._answered(*self._look(rng, rng.randint(1, 24), [self._large_url(rng)]))

    def _bad(self, rng):
        """An invalid one, sometimes among others."""
        urls = [self._url(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))] + [drawing.bad_url(rng)]
        rng.shuffle(urls)
        with self._send(*self._look(rng, 8, urls, stream=rng.random() < 0.3)) as sock:
            self._expect(self._read(sock), 400, b'"error"')

    def _leave(self, body, seconds):
        with self._send(*body):
            time.sleep(seconds)

    def _leave_soon(self, rng):
        """While it arrives, is queued, read or encoded, whatever it is by then."""
        self._leave(self._look(rng, 200, stream=rng.random() < 0.5), rng.random() ** 3 * 0.3)

    def _leave_reading(self, rng):
        """A large one takes tens of milliseconds to read, and hundreds to encode."""
        self._leave(self._look(rng, 200, [self._large_url(rng)], stream=rng.random() < 0.5), rng.random() * 0.6)

    def _leave_streaming(self, rng):
        with self._send(*self._look(rng, 400, stream=True)) as sock:
            for _ in range(rng.randint(1, 5)):
                sock.recv(600)


class Watching(Beside):
    """Asks about a video in a loop until it is stopped; sometimes it leaves before the answer."""

    def __init__(self, server, addresses):
        super().__init__()
        self.port, self.addresses = server.port, addresses
        self.answered, self.left, self.failures = 0, 0, []

    def run(self):
        rng, n = random.Random(7), 0
        while not self.over.wait(0.2):
            body = about([], "What is it?", 8)
            body["messages"][0]["content"].insert(0, {"type": "video", "video": self.addresses[n % len(self.addresses)]})
            n += 1
            try:
                if n % 4:
                    self._watch(json.dumps(body).encode())
                else:
                    self._leave(json.dumps(body).encode(), rng.random())
            except (Broken, OSError) as error:
                self.failures.append(f"video {n}: {error!r}")

    def _send(self, body):
        sock = socket.create_connection(("127.0.0.1", self.port), 300)
        sock.sendall(head("POST", "/v1/chat/completions", body) + body)
        return sock

    def _watch(self, body):
        with self._send(body) as sock:
            text = Traffic._read(sock)
        if not text.startswith(b"HTTP/1.1 200") or b'"completion_tokens":8' not in text:
            raise Broken(text[-300:])
        self.answered += 1

    def _leave(self, body, seconds):
        with self._send(body):
            time.sleep(seconds)
        self.left += 1
