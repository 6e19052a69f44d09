"""One client does not stop the others: places, queue, priority and streams that are not read.

Times are compared with what a request would wait for if it had to: tens of seconds. Between that and what
it takes alone, a tenth of a second, there is room for a machine that others use."""

import contextlib
import statistics
import time

import pytest

from conftest import Open, serving, until

ALICE, BOB = "sk-alice", "sk-bob"
LONG = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True}
SLACK_S = 5


def ask(server, key=BOB, **fields):
    """How long a small request takes, in seconds, and its status."""
    began = time.monotonic()
    with Open(server, "/v1/completions", {"prompt": "ls", "max_tokens": 2, **fields}, key=key) as r:
        return time.monotonic() - began, r.answer().status


def phases(server):
    return [r["phase"] for r in server.requests()]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"alice {ALICE} priority=-5..5\nbob {BOB}\n")
    file.chmod(0o600)
    with serving("--api-key-file", file, "--admin-key", "root", "--max-num-seqs", 2, "--max-queue", 30, "--slow-client", 600,
                 "--spec", "off", key="root") as s:
        yield s


@pytest.fixture
def flood(keyed):
    """All places and the whole queue are one tenant's."""
    keyed.wait_idle()  # an ending request has its place until the engine releases it
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(Open(keyed, "/v1/completions", LONG, key=ALICE)) for _ in range(32)]
        # Unread streams are soon parked in favour of queued ones; their number in all stays.
        until(lambda: len(keyed.requests()) == keyed.status()["engine_jobs"] == 32)
        yield opened
    until(lambda: not keyed.requests())


@pytest.mark.smoke
def test_a_tenant_that_floods_keeps_no_other_waiting(keyed, flood):
    got = [ask(keyed) for _ in range(5)]
    assert [status for _, status in got] == [200] * 5
    assert statistics.median(t for t, _ in got) < SLACK_S
    # The sequence that made room continues where it was.
    assert keyed.metrics()['vllm:num_preemptions_total{model_name="canary"}'] == 0


def test_a_full_queue_refuses_only_the_tenant_that_filled_it(keyed, flood):
    with Open(keyed, "/v1/completions", LONG, key=ALICE) as more:
        reply = more.answer()
        assert reply.status == 429 and int(reply.getheader("retry-after")) >= 1
        assert b"32 of them by this client" in reply.read()
    assert ask(keyed)[1] == 200


def test_a_priority_is_clamped_to_the_range_of_its_key(keyed):
    keyed.wait_idle()  # else one of the eight may find no place
    with contextlib.ExitStack() as stack:
        first = {**LONG, "priority": -1000}
        for _ in range(8):
            stack.enter_context(Open(keyed, "/v1/completions", first, key=ALICE))
        until(lambda: len(keyed.requests()) == 8)
        took, status = ask(keyed)
        assert status == 200 and took < SLACK_S
        # Nor does a tenant's lowest priority give its turn to others.
        assert ask(keyed, priority=1000)[1] == 200
    until(lambda: not keyed.requests())


def test_streams_that_are_not_read_leave_their_places():
    with serving("--max-num-seqs", 4, "--slow-client", 600, "--spec", "off") as s, contextlib.ExitStack() as stack:
        for _ in range(24):
            stack.enter_context(Open(s, "/v1/completions", LONG, receive_bytes=4096))
        until(lambda: phases(s).count("paused") == 24, 300)
        took = statistics.median(ask(s, key=None)[0] for _ in range(5))
        assert took < SLACK_S, took
        # The engine computes a few hundred tokens ahead of a client.
        assert sum(r["tokens"] for r in s.requests()) < 24 * 500


def test_a_stream_that_is_read_again_goes_on():
    with serving("--max-num-seqs", 1, "--slow-client", 600, "--spec", "off") as s:
        alone = s.complete("a", max_tokens=600, ignore_eos=True, temperature=0).json()["choices"][0]["text"]
        slow = {**LONG, "max_tokens": 600, "temperature": 0}
        with Open(s, "/v1/completions", slow, receive_bytes=4096) as r:
            until(lambda: phases(s) == ["paused"])
            assert ask(s, key=None)[1] == 200
            until(lambda: phases(s) in (["paused"], ["parked"]))
            text = "".join(e["choices"][0]["text"] for e in r.events() if e != "[DONE]" and e["choices"])
        assert text == alone
