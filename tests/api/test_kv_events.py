"""KV events: a router that knows the messages alone credits the server with the prefix that the server then
finds. The format is vLLM's, with the rules of its readers: a parent comes before its child, a page goes after
the pages behind it, a hash always means the same page, a replay is the live messages byte for byte."""

import collections
import contextlib
import random
import struct
import time

import msgpack
import pytest
import zmq

from conftest import AS_ADMIN, Server, refused, serving, until

BLOCK = 32
END = b"\xff" * 8
FIELDS = {"type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
          "group_idx", "kv_cache_spec_kind"}


class Mirror:
    """Pages as the messages say."""

    def __init__(self):
        self.pages = {}  # hash: (parent, tokens)
        self.ever = {}
        self.children = collections.Counter()
        self.messages = []  # [topic, number, payload]
        self.cleared = 0

    def take(self, topic, number, payload):
        assert struct.unpack(">Q", number)[0] == self.next()
        self.messages.append([topic, number, payload])
        seconds, events, rank = msgpack.unpackb(payload)
        assert abs(time.time() - seconds) < 60 and rank == 0 and events
        for e in events:
            {"BlockStored": self.store, "BlockRemoved": self.remove, "AllBlocksCleared": self.clear}[e["type"]](e)

    def next(self):
        return struct.unpack(">Q", self.messages[-1][1])[0] + 1 if self.messages else 0

    def store(self, e):
        assert set(e) == FIELDS and e["medium"] == "GPU" and e["block_size"] == BLOCK
        parent, tokens = e["parent_block_hash"], e["token_ids"]
        assert len(tokens) == BLOCK * len(e["block_hashes"])
        assert parent is None or parent in self.pages
        for i, h in enumerate(e["block_hashes"]):
            what = parent, tuple(tokens[i * BLOCK:(i + 1) * BLOCK])
            assert 0 < h < 1 << 64 and self.ever.setdefault(h, what) == what
            self.children[parent] += h not in self.pages
            self.pages[h] = what
            parent = h

    def remove(self, e):
        assert set(e) == {"type", "block_hashes", "medium", "group_idx"}
        for h in e["block_hashes"]:
            assert self.children[h] == 0
            self.children[self.pages.pop(h)[0]] -= 1

    def clear(self, e):
        assert set(e) == {"type"}
        self.cleared += 1
        self.pages.clear()
        self.children.clear()

    def credit(self, tokens):
        """Leading tokens that a router believes the server has."""
        by = {what: h for h, what in self.pages.items()}
        parent, n = None, 0
        while n + BLOCK <= len(tokens) and (h := by.get((parent, tuple(tokens[n:n + BLOCK])))) is not None:
            parent, n = h, n + BLOCK
        return n


class Subscriber:
    def __init__(self, folder):
        self.endpoint, self.again = f"ipc://{folder}/events", f"ipc://{folder}/replay"
        self.options = ["--kv-events", self.endpoint, "--kv-events-replay", self.again]
        self.context = zmq.Context()
        self.context.linger = 0  # a socket does not wait for a server that has gone
        self.mirror = Mirror()

    def connect(self):
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt(zmq.SUBSCRIBE, b"")
        self.socket.connect(self.endpoint)
        time.sleep(0.3)  # a subscription takes a moment to arrive

    def read(self, ms=100):
        """Takes the messages, and asks for missed ones again, like a router."""
        while self.socket.poll(ms):
            message = self.socket.recv_multipart()
            number, missed = struct.unpack(">Q", message[1])[0], self.mirror.next()
            if number > missed:
                for old in self.replay(missed)[:number - missed]:
                    self.mirror.take(*old)
            if number >= missed:
                self.mirror.take(*message)
        if not self.mirror.messages:
            for old in self.replay():
                self.mirror.take(*old)
        return self.mirror

    def replay(self, first=0):
        with self.context.socket(zmq.DEALER) as s:
            s.connect(self.again)
            s.send_multipart([b"", struct.pack(">Q", first)])
            found = []
            while s.poll(5000):
                empty, *message = s.recv_multipart()
                assert empty == b"" and len(message) == 3
                if message[1] == END:
                    assert message[0] == message[2] == b""
                    return found
                found.append(message)
        raise AssertionError(f"no end after {len(found)} messages")

    def close(self):
        self.context.destroy(linger=0)


@pytest.fixture
def subscriber(tmp_path):
    s = Subscriber(tmp_path)
    yield s
    s.close()


@contextlib.contextmanager
def publishing(subscriber, *options):
    with serving(*subscriber.options, *options) as s:
        subscriber.connect()
        yield s


def prompt_of(seed, count):
    rng = random.Random(seed)
    return [rng.randrange(5, 700) for _ in range(count)]


def cached(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def found_by(server, subscriber, prompt, **fields):
    """(what its messages credit the server with, what it found)"""
    credit = subscriber.read().credit(prompt[:-1])
    return credit, cached(server.complete(prompt, max_tokens=2, **fields))


@pytest.mark.smoke
def test_a_router_credits_what_the_server_finds(subscriber):
    with publishing(subscriber) as s:
        prompt = prompt_of(1, 100)
        for turn in range(6):
            credit, found = found_by(s, subscriber, prompt)
            assert found <= credit <= found + 4 * BLOCK
            assert turn == 0 or found >= 64
            prompt += prompt_of(turn + 2, 70)
        branch = prompt[:200] + prompt_of(99, 100)
        credit, found = found_by(s, subscriber, branch)
        assert found <= credit <= found + 4 * BLOCK
        held = subscriber.read()
        assert len(held.pages) > 12
        assert subscriber.replay() == held.messages
        assert subscriber.replay(held.next() - 1) == held.messages[-1:]
        assert subscriber.replay(held.next() + 4) == []
        assert s.http.post("/api/hot-cache/clear").status_code == 200
        assert not subscriber.read().pages
        n = s.metrics()
        assert n["plateau_kv_events_messages_total"] == len(held.messages)
        assert n["plateau_kv_events_stored_total"] == n["plateau_kv_events_removed_total"] > 12
        assert n["plateau_kv_events_replays_total"] >= 3
        assert s.status()["kv_events"]["cleared"] == 0


def test_random_agents_and_evictions(subscriber):
    """A cache of few pages: evicted ones are taken back, and the credit is still found."""
    rng = random.Random(7)
    with publishing(subscriber, "--host-cache", "12M") as s:
        talks = [prompt_of(i, 64) for i in range(6)]
        for _ in range(25):
            i = rng.randrange(len(talks))
            credit, found = found_by(s, subscriber, talks[i])
            assert found <= credit <= found + 4 * BLOCK
            talks[i] += prompt_of(rng.random(), rng.randrange(20, 120))
            if len(talks[i]) > 900:
                talks[i] = talks[i][:64] + prompt_of(rng.random(), 32)
        assert s.metrics()["plateau_kv_events_removed_total"] > 10
        assert subscriber.replay() == subscriber.read().messages


def test_an_unload_takes_everything_back(subscriber):
    with publishing(subscriber) as s:
        assert s.complete(prompt_of(1, 300), max_tokens=2).status_code == 200
        assert subscriber.read().pages
        assert s.http.post("/v1/models/canary/unload").status_code in (200, 202)
        until(lambda: not subscriber.read(50).pages)
        assert s.complete(prompt_of(1, 300), max_tokens=2).status_code == 200
        assert subscriber.read().credit(prompt_of(1, 300)) >= 256


def test_prefixes_of_some_clients_alone_are_in_no_message(subscriber, tmp_path):
    """Routers ignore salts and keys, and would credit everybody with them."""
    keys = tmp_path / "keys"
    keys.write_text("sk-first-0123456789abcdef\nsk-second-0123456789abcdef\n")
    keys.chmod(0o600)
    with publishing(subscriber) as s:
        assert s.complete(prompt_of(1, 200), max_tokens=2, cache_salt="mine").status_code == 200
        assert not subscriber.read().messages
    with serving(*subscriber.options, "--api-key-file", keys) as s:
        for key in "sk-first-0123456789abcdef", "sk-second-0123456789abcdef":
            reply = s.http.post("/v1/completions", json={"prompt": prompt_of(1, 200), "max_tokens": 2},
                                headers={"Authorization": f"Bearer {key}"}, auth=None)
            assert reply.status_code == 200
        assert subscriber.replay() == []
    keys.write_text("sk-first-0123456789abcdef\n")
    # All clients of the router are the tenant of the only key.
    with serving(*subscriber.options, "--api-key-file", keys) as s:
        reply = s.http.post("/v1/completions", json={"prompt": prompt_of(1, 200), "max_tokens": 2},
                            headers={"Authorization": "Bearer sk-first-0123456789abcdef"}, auth=None)
        assert reply.status_code == 200
        until(lambda: subscriber.replay())


def test_topics_have_the_machine_and_the_model(subscriber):
    with publishing(subscriber, "--kv-events-topic", "kv@%p@%m") as s:
        assert s.complete(prompt_of(1, 200), max_tokens=2).status_code == 200
        topic = subscriber.read().messages[0][0].split(b"@")
        assert topic[0] == b"kv" and topic[1] and topic[2] == b"canary"


def test_a_model_whose_topic_is_too_long_is_served(subscriber):
    with publishing(subscriber, "--kv-events-topic", "x" * 250 + "%m") as s:
        assert s.complete(prompt_of(1, 200), max_tokens=2).status_code == 200
        s.says("the topic with the model's name is too long")
        assert not subscriber.read().messages


def test_a_full_ring_begins_again(subscriber):
    """The least buffer has rings of some hundred pages, and more than that goes at once."""
    with publishing(subscriber, "--kv-events-buffer", "1M") as s:
        for i in range(2):
            assert s.complete(prompt_of(i, 2400), max_tokens=2).status_code == 200
            assert len(subscriber.read().pages) >= (i + 1) * 74
        assert s.http.post("/api/hot-cache/clear").status_code == 200
        assert s.complete(prompt_of(9, 100), max_tokens=2).status_code == 200
        until(lambda: len(subscriber.read(100).pages) == 3)


def test_hostile_requests_for_a_replay(subscriber):
    with publishing(subscriber) as s:
        assert s.complete(prompt_of(1, 200), max_tokens=2).status_code == 200
        rng = random.Random(3)
        for frames in ([b""], [b"", b"x"], [b"", b"", b"12345678"], [b"x" * 400], [b""] * 40,
                       *([rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(1, 6))] for _ in range(50))):
            with subscriber.context.socket(zmq.DEALER) as d:
                d.connect(subscriber.again)
                d.send_multipart(frames)
                time.sleep(0.01)
        assert subscriber.replay() == subscriber.read().messages


def test_subscribers_that_do_not_read_cost_their_messages_alone(subscriber):
    with publishing(subscriber, "--kv-events-buffer", "2M") as s:
        asleep = subscriber.context.socket(zmq.SUB)
        asleep.rcvhwm = 1
        asleep.setsockopt(zmq.SUBSCRIBE, b"")
        asleep.connect(subscriber.endpoint)
        lazy = subscriber.context.socket(zmq.DEALER)
        lazy.rcvhwm = 1
        lazy.connect(subscriber.again)
        for _ in range(40):  # more than replays have places
            lazy.send_multipart([b"", struct.pack(">Q", 0)])
        for i in range(8):
            assert s.complete(prompt_of(i, 1000), max_tokens=2).status_code == 200
            subscriber.read(50)
        lazy.send_multipart([b"", struct.pack(">Q", 0)])
        held = subscriber.read()
        got = subscriber.replay()
        assert got and got == held.messages[-len(got):]


@pytest.mark.parametrize("options, words", [
    (["--kv-events", "udp://127.0.0.1:1"], "tcp://HOST:PORT or ipc://PATH"),
    (["--kv-events", "tcp://127.0.0.1:notaport"], "--kv-events tcp://127.0.0.1:notaport"),
    (["--kv-events", "tcp://192.0.2.1:5557"], "--kv-events tcp://192.0.2.1:5557"),
    (["--kv-events", "tcp://127.0.0.1:0", "--kv-events-topic", "%x"], "%p and %m"),
    (["--kv-events-replay", "tcp://127.0.0.1:0"], "--kv-events, which is not given"),
])
def test_mistakes_are_said_at_the_start(options, words):
    s = Server(*options, wait=False)
    assert s.wait() != 0
    s.says(words)
