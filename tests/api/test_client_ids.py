"""Ids that a client or a router gives a request: returned, logged, and good for a cancellation."""

import subprocess
import threading

import pytest

from conftest import AS_ADMIN, PROGRAM, serving, until

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def ask(server, path="/v1/chat/completions", body=CHAT, **headers):
    return server.http.post(path, json=body, headers={k.replace("_", "-"): v for k, v in headers.items()})


@pytest.mark.smoke
def test_both_are_returned(server):
    reply = ask(server, x_request_id="router/42:a", traceparent=TRACE)
    assert reply.headers["x-request-id"] == "router/42:a" and reply.headers["traceparent"] == TRACE
    assert "router" not in reply.json()["id"]
    for path in "/v1/models", "/live", "/nowhere":
        told = server.http.get(path, headers={"x-request-id": "one", "traceparent": TRACE})
        assert told.headers["x-request-id"] == "one" and told.headers["traceparent"] == TRACE, path
    message = ask(server, "/v1/messages", {**CHAT, "model": "canary"}, x_request_id="m-1")
    assert message.headers["x-request-id"] == "m-1" and message.json()["id"] == "msg_" + message.headers["request-id"]
    refused = ask(server, body={"messages": []}, x_request_id="bad-1")
    assert refused.status_code == 400 and refused.headers["x-request-id"] == "bad-1"


@pytest.mark.smoke
@pytest.mark.parametrize("given", ["", "a b", "x" * 65, 'a"b', "a=b", "a\\b", "é".encode().decode("latin-1")])
def test_other_forms_are_left_out(server, given):
    found = ask(server, x_request_id=given.encode("latin-1")).headers["x-request-id"]
    assert len(found) == 32 and int(found, 16) >= 0


@pytest.mark.smoke
@pytest.mark.parametrize("given", ["", TRACE[:-1], TRACE + "0", TRACE.upper(), TRACE.replace("-", "_"), "00-" + "g" * 52])
def test_other_traces_are_left_out(server, given):
    assert "traceparent" not in ask(server, traceparent=given).headers


@pytest.mark.smoke
def test_the_longest_ids_fit_into_a_reply(server):
    fields = {f"invented_{i}_of_many": 1 for i in range(12)}
    reply = ask(server, "/v1/messages", {**CHAT, **fields, "model": "canary", "max_tokens": 10_000_000, "stream": True},
                x_request_id="x" * 64, traceparent=TRACE)
    assert reply.headers["x-request-id"] == "x" * 64 and reply.headers["traceparent"] == TRACE
    assert {"x-ignored-fields", "x-plateau-max-tokens", "request-id", "x-accel-buffering"} <= set(reply.headers)


def test_the_log_and_why_have_them():
    with serving() as server:
        ask(server, x_request_id="for-the-log", traceparent=TRACE)
        ask(server, body={"messages": []}, x_request_id="refused-one")
        for event, name, trace in ("request_ended", "for-the-log", TRACE), ("request_refused", "refused-one", "-"):
            line, = until(lambda: [x for x in server.lines if f"event={event}" in x and f"client_id={name} " in x])
            assert f"traceparent={trace}" in line
        records = server.http.get("/api/requests").json()["requests"]
        assert [(r["client_id"], r["traceparent"]) for r in records] == [("for-the-log", TRACE), ("refused-one", None)]
        said = subprocess.run([PROGRAM, "why", "for-the-log", "--url", f"http://127.0.0.1:{server.port}"], capture_output=True, text=True,
                              env={"PLATEAU_ADMIN_KEY": AS_ADMIN["authorization"].split()[1]})
        assert records[0]["id"] in said.stdout, said.stderr


def test_a_request_ends_by_either_id(server):
    for by_client in True, False:
        found = []
        body = {"prompt": "x", "max_tokens": 20000, "ignore_eos": True}
        thread = threading.Thread(target=lambda: found.append(ask(server, "/v1/completions", body, x_request_id="to-end")))
        thread.start()
        running = until(lambda: [r for r in server.http.get("/api/status").json()["requests"] if r["phase"] == "decoding"])
        name = "to-end" if by_client else running[0]["id"]
        assert server.http.delete(f"/v1/requests/{name}").json()["id"] == running[0]["id"]
        thread.join()
        assert found[0].status_code == 499 and found[0].headers["x-request-id"] == "to-end"
    assert server.http.delete("/v1/requests/to-end").status_code == 404
