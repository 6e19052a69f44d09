"""Each request leaves a trace: a line of the log, and a record that its tenant and administrators see."""

import re
import socket

import httpx
import pytest

from conftest import ADMIN_KEY, Open, refused, serving, until

ALICE, BOB = "sk-alice-0123", "sk-bob-0123"
PHASES = ["receiving", "preparing", "media", "loading", "queued", "prefilling", "decoding", "sending"]


def as_of(key):
    return {"authorization": f"Bearer {key}"}


def traces(server, **headers):
    """All records, as the page collects them."""
    found, after = [], 0
    while True:
        reply = server.http.get("/api/requests", params={"after": after}, headers=headers)
        assert reply.status_code == 200 and len(reply.content) < 65536, reply.text
        part = reply.json()
        found += part["requests"]
        if not part["more"]:
            assert part["last"] == (found[-1]["number"] if found else 0)
            return found
        after = found[-1]["number"]


def trace(server, reply):
    """The record of an answered request."""
    id = reply.headers["x-request-id"]

    def kept():
        """the request is among the last ones"""
        return [t for t in traces(server) if t["id"] == id]

    [found] = until(kept)
    return found


@pytest.fixture(scope="module")
def served():
    with serving("--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        yield s


@pytest.mark.smoke
def test_an_ended_request_has_its_phases(served):
    reply = served.complete("What does ls do? What does cat do?", max_tokens=5, ignore_eos=True)
    t = trace(served, reply)
    usage = reply.json()["usage"]
    assert (t["action"], t["model"], t["end"], t["choices"]) == ("POST /v1/completions", "canary", "length", 1)
    assert (t["prompt_tokens"], t["tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert t["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert t["code"] is t["status"] is t["message"] is None
    assert list(t["phases"]) == PHASES
    # A thread that wakes late sees two phases begin at once.
    assert t["phases"]["prefilling"] + t["phases"]["decoding"] > 0
    assert abs(sum(t["phases"].values()) - 1000 * t["seconds"]) < 2
    until_first = sum(t["phases"][p] for p in PHASES[:-2])
    assert abs(until_first - t["first_token_ms"]) < 1


@pytest.mark.smoke
@pytest.mark.parametrize("path,body,status,code,param", [
    ("/v1/completions", {"prompt": "a", "temperature": "hot"}, 400, "invalid_value", "temperature"),
    ("/v1/messages", {"model": "canary", "max_tokens": -1, "messages": []}, 400, "invalid_value", None),
    ("/v1/chat/completions", {"model": "none", "messages": [{"role": "user", "content": "a"}]}, 404, "model_not_found", "model"),
    ("/v1/nothing", {}, 404, "not_found", None),
])
def test_a_refused_request_is_a_line_and_a_record(path, body, status, code, param):
    with serving("--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        reply = s.post(path, **body)
        assert reply.status_code == status
        t = trace(s, reply)
        assert (t["action"], t["status"], t["code"]) == (f"POST {path}", status, code)
        assert param in (None, t["param"]) and t["message"] and t["end"] is None
        [line] = until(lambda: [x for x in list(s.lines) if f"event=request_refused id={t['id']} " in x])
        assert f' client={t["client"]} action="POST {path}" model=' in line
        assert f"status={status} code={code} param=" in line and line.count('"') == 6


def test_a_request_that_http_refuses_leaves_a_trace_too(served):
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as sock:
        sock.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: elsewhere\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 400 ")
    [t] = until(lambda: [t for t in traces(served) if t["code"] == "duplicate_header"])
    assert t["status"] == 400 and t["message"] and t["model"] is None
    served.says("event=request_refused id=")


def test_what_a_client_sent_forges_no_line_and_is_not_quoted(served):
    model = 'x" code=ok\nlevel=info event=forged \\'
    reply = served.chat(model=model)
    t = trace(served, reply)
    [line] = until(lambda: [x for x in list(served.lines) if t["id"] in x])
    assert line.count('"') == 6 and "event=forged" in line and not line.startswith("level")
    assert not [x for x in served.lines if x.startswith("level=info event=forged")]
    reply = served.http.post("/v1/completions", content='{"prompt": "my secret words')
    t = trace(served, reply)
    assert t["code"] == "invalid_json" and "secret" not in t["message"]
    assert not served.said("secret")


def test_one_client_fills_no_disk():
    with serving("--admin-key", ADMIN_KEY, "--api-key", ALICE, "--api-key", BOB, key=ADMIN_KEY) as s:
        for _ in range(100):
            refused(s.http.post("/v1/completions", json={"prompt": 1.5}, headers=as_of(ALICE)), 400, "invalid_value")
        refused(s.http.post("/v1/completions", json={"prompt": 1.5}, headers=as_of(BOB)), 400, "invalid_value")
        until(lambda: len(traces(s, **as_of(BOB))) == 1)
        # The minute may have turned once meanwhile.
        until(lambda: [x for x in list(s.lines) if "event=request_refused" in x and f"id={traces(s, **as_of(BOB))[0]['id']} " in x])
        assert 10 <= len([x for x in s.lines if "event=request_refused" in x]) <= 21
        assert len(traces(s, **as_of(ALICE))) <= 22


def test_refusals_without_a_line_are_counted_in_a_record():
    with serving("--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        seen, after = {}, 0

        def counted():
            """reading on, as the page does, counts each refusal once"""
            nonlocal after
            for t in s.http.get("/api/requests", params={"after": after}).json()["requests"]:
                seen[t["first"]], after = t, t["number"]
            return sum(t["untold"] or 1 for t in seen.values()) == sent

        for sent in range(1, 41):
            refused(s.post("/v1/completions", prompt=1.5), 400, "invalid_value")
            until(counted)
        # The minute may have turned once meanwhile.
        counting = [t for t in seen.values() if t["untold"]]
        assert 1 <= len(counting) <= 2 and len(seen) <= 22
        assert {(t["code"], t["status"], t["action"]) for t in counting} == {("invalid_value", 400, "POST /v1/completions")}
        assert {t["client"] for t in seen.values()} == {counting[0]["client"]}
        assert sorted(t["number"] for t in seen.values()) == [t["number"] for t in traces(s)]


@pytest.mark.smoke
def test_each_key_sees_its_own_traces():
    keys = ["--api-key", ALICE, "--api-key", BOB, "--admin-key", ADMIN_KEY]
    with serving(*keys, key=ADMIN_KEY) as s:
        for key in (ALICE, BOB):
            assert s.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 2}, headers=as_of(key)).status_code == 200
        until(lambda: len(traces(s)) == 2)
        alice, bob = traces(s, **as_of(ALICE)), traces(s, **as_of(BOB))
        assert len(alice) == len(bob) == 1 and alice[0]["id"] != bob[0]["id"]
        last = {key: s.http.get("/api/overview", headers=as_of(key)).json()["requests_last"] for key in (ALICE, BOB, ADMIN_KEY)}
        assert last[ALICE] == alice[0]["number"] and last[BOB] == bob[0]["number"] == last[ADMIN_KEY]
        refused(httpx.get(s.url + "/api/requests"), 401, "invalid_api_key")
        refused(s.http.get("/api/requests?after=x"), 400, "invalid_value")
        # The request without a key has a record, which only the administrator sees.
        assert [t["code"] for t in traces(s)].count("invalid_api_key") == 1
        assert all(t["code"] is None for t in traces(s, **as_of(ALICE)))


def test_a_request_that_was_left_has_true_figures(served):
    prompt = "What does ls do? " * 60
    assert served.complete(prompt, max_tokens=1).status_code == 200
    body = {"prompt": prompt, "max_tokens": 20000, "ignore_eos": True, "stream": True}
    with Open(served, "/v1/completions", body, key=ADMIN_KEY) as running:
        running.event()
        # The engine publishes its numbers a moment later.
        [now] = until(lambda: [r for r in served.requests("decoding") + served.requests("paused") if r["cached_tokens"] > 0])
    [line] = until(lambda: [x for x in list(served.lines) if f"event=request_ended id={now['id']}" in x])
    assert " end=left " in line and f" cached_tokens={now['cached_tokens']} " in line
    assert float(re.search(r"queued_ms=([\d.]+)", line)[1]) >= 0
    [t] = until(lambda: [t for t in traces(served) if t["id"] == now["id"]])
    assert t["end"] == "left" and t["cached_tokens"] == now["cached_tokens"] and t["tokens"] > 0


def test_a_request_that_leaves_the_queue_has_waited():
    with serving("--max-num-seqs", "1", "--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        with s.begin(stream=False):  # a stream whose reader is slow pauses, and gives its place away
            until(lambda: s.requests("decoding"))
            with Open(s, "/v1/completions", {"prompt": "b", "max_tokens": 5}):
                [queued] = until(lambda: s.requests("queued"))

                def waited():
                    """it has waited for some time"""
                    return [r for r in s.requests("queued") if r["age_seconds"] > 0.3]

                until(waited)
            [t] = until(lambda: [t for t in traces(s) if t["id"] == queued["id"]])
    assert t["end"] == "left" and t["cached_tokens"] == t["tokens"] == 0
    assert 200 < t["phases"]["queued"] <= 1000 * t["seconds"] + 1  # milliseconds are rounded
    assert t["phases"]["prefilling"] < 200 and t["first_token_ms"] is None
