"""How requests end before their time: clients that leave, that do not read, and DELETE."""

import concurrent.futures
import contextlib
import time

import pytest

from conftest import GOLDEN, Open, account, account_bytes, all_returned, case_fields, refused, serving, settled, until

LONG_PROMPT = [5 + i % 700 for i in range(24000)]
NOTICED_S = 10  # some milliseconds on a machine that does nothing else


def stops(server):
    """The work stops: no request, no job, and no further step."""
    until(lambda: not server.requests() and server.status()["engine_jobs"] == 0, NOTICED_S)
    steps = server.status()["models"][0]["steps"]
    time.sleep(0.2)
    assert server.status()["models"][0]["steps"] == steps


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_leaves_while_decoding(server, stream):
    with server.begin(stream=stream) as running:
        if stream:
            running.event()
            running.read_on()
        until(lambda: server.requests("decoding"))
    stops(server)


@pytest.mark.smoke
def test_a_client_leaves_while_its_prompt_is_read(server):
    drawn = server.metrics()['vllm:generation_tokens_total{model_name="canary"}']
    with server.begin(prompt=LONG_PROMPT, max_tokens=100):
        shown = until(lambda: server.requests("prefilling"))
        assert shown[0]["prompt_tokens"] == len(LONG_PROMPT)
    stops(server)
    assert server.metrics()['vllm:generation_tokens_total{model_name="canary"}'] == drawn


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_leaves_while_queued(narrow, stream):
    with narrow.begin(stream=False) as running:
        until(lambda: narrow.requests("decoding"))
        with narrow.begin(stream=stream):
            until(lambda: narrow.requests("queued") and narrow.status()["engine_jobs"] == 2)
        until(lambda: len(narrow.requests()) == narrow.status()["engine_jobs"] == 1, NOTICED_S)
        assert narrow.requests("decoding") and running.reply is None
        # Its place is free at once: the next request is queued, not refused with a full queue.
        with narrow.begin(stream=stream):
            until(lambda: narrow.requests("queued"))
    stops(narrow)


def test_who_left_the_queue_is_never_computed(narrow):
    """There are as many steps as the one that stayed has tokens."""
    narrow.wait_idle()
    before = narrow.status()["models"][0]["steps"]
    with narrow.begin(prompt=[5], max_tokens=1500, stream=False, speculative=False) as running:
        until(lambda: narrow.requests("decoding"))
        for _ in range(5):
            with narrow.begin(prompt=LONG_PROMPT[:800], max_tokens=100):
                until(lambda: narrow.requests("queued") and narrow.status()["engine_jobs"] == 2)
            until(lambda: narrow.status()["engine_jobs"] == 1, NOTICED_S)
        assert narrow.requests("decoding") and running.reply is None
        assert running.answer().status == 200
    narrow.wait_idle()
    assert narrow.status()["models"][0]["steps"] == before + 1500


# ---- a client that does not read ----


@pytest.fixture(scope="module")
def impatient():
    with serving("--slow-client", 8) as s:
        yield s


def at_rest(server):
    """Returns the state of a request that stays paused for 0.3 s, and every account's bytes."""
    seen = []
    for delay in (0.3, 0):
        paused = server.requests("paused")
        if not paused:
            return None
        seen.append(((paused[0]["id"], paused[0]["tokens"], paused[0]["bytes"]), account_bytes(server.memory())))
        time.sleep(delay)
    return seen[0] if seen[0] == seen[1] else None


def test_a_client_that_does_not_read_pauses_and_ends(impatient):
    server = impatient
    before = account(server.memory(), "text")["reserved_bytes"]
    body = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True, "logprobs": 20}
    with Open(server, "/v1/completions", body, receive_bytes=4096) as slow:
        slow.event()
        # It can pause and go on for a while, as long as the connection's buffers grow.
        held = until(lambda: at_rest(server), NOTICED_S)
        # Nothing more is computed or kept for it while it is paused.
        assert account(server.memory(), "text")["reserved_bytes"] - before < 1 << 20
        assert at_rest(server) == held
        # Other requests continue with their usual answers.
        for case in GOLDEN["cases"][:2]:
            reply = server.post("/v1/chat/completions", **case_fields(case))
            assert reply.json()["choices"][0]["token_ids"] == case["greedy_ids"]
        assert server.requests("paused")
        until(lambda: not server.requests())
        rest = list(slow.events_that_come())
        assert "[DONE]" not in rest
    ended = server.metrics()['vllm:request_success_total{model_name="canary",finished_reason="client_too_slow"}']
    assert ended == 1
    until(lambda: server.said("client_too_slow"))


def test_a_client_that_reads_again_goes_on(impatient):
    fields = {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "temperature": 0, "return_token_ids": True}
    whole = impatient.post("/v1/completions", **fields).json()["choices"][0]["token_ids"]
    body = {**fields, "stream": True, "logprobs": 20}
    with Open(impatient, "/v1/completions", body, receive_bytes=4096) as slow:
        slow.event()
        until(lambda: impatient.requests("paused"))
        ids = [i for e in slow.events() if e != "[DONE]" for i in e["choices"][0].get("token_ids", [])]
    assert ids == whole[-len(ids):] and len(whole) - len(ids) < 300


@pytest.mark.parametrize("delete", [True, False], ids=["deleted", "left"])
def test_a_client_leaves_while_paused(impatient, delete):
    before = settled(impatient)
    body = {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True, "logprobs": 20}
    with Open(impatient, "/v1/completions", body, receive_bytes=4096) as slow:
        slow.event()
        request = until(lambda: impatient.requests("paused"))[0]["id"]
        if delete:
            assert impatient.http.delete(f"/v1/requests/{request}").status_code == 200
            until(lambda: impatient.status()["engine_jobs"] == 0, NOTICED_S)
    stops(impatient)
    all_returned(impatient, before)


# ---- a client whose pages others have ----


@pytest.fixture(scope="module")
def tight():
    """Pages for less than two rows."""
    options = {"threads": 2, "memory-limit": "105M", "max-model-len": 1024, "max-image-pixels": 0, "spec": "off", "admin-listen": "none",
               "max-connections": 32, "max-requests": 64}
    with serving(*(f"--{name}={value}" for name, value in options.items())) as s:
        yield s


def token_ids(request):
    """Returns the token ids in the rest of a stream, and the code of its error."""
    ids, code = [], None
    for event in request.events_that_come():
        if "error" in event:
            code = event["error"]["code"]
        elif event != "[DONE]":
            ids += event["choices"][0].get("token_ids", [])
    return ids, code


@pytest.fixture(scope="module")
def four(server):
    """Prompts, fields, and the tokens of each where there are pages for all of them."""
    prompts = [[10 + i] * 400 for i in range(4)]
    fields = {"temperature": 0, "max_tokens": 400, "ignore_eos": True, "return_token_ids": True}
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        replies = list(pool.map(lambda prompt: server.complete(prompt, **fields).json(), prompts))
    return prompts, fields, [reply["choices"][0]["token_ids"] for reply in replies]


@pytest.mark.parametrize("delete", [True, False], ids=["deleted", "left"])
def test_a_client_leaves_while_preempted(four, tight, delete):
    """The requests that made it wait continue with the same tokens."""
    prompts, fields, wanted = four
    before = settled(tight)
    assert tight.status()["models"][0]["pages_max"] * 32 < 4 * 800
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(tight.begin(prompt=prompt, **fields)) for prompt in prompts]
        by_id = {request.answer().headers["x-request-id"]: request for request in running}
        gone = until(lambda: tight.requests("preempted"))[0]["id"]
        if delete:
            assert tight.http.delete(f"/v1/requests/{gone}").status_code == 200
            assert token_ids(by_id[gone])[1] == "request_cancelled"
        by_id[gone].leave()
        for request, want in zip(running, wanted):
            if request is not by_id[gone]:
                assert token_ids(request) == (want, None)
    all_returned(tight, before)


# ---- DELETE ----


@pytest.mark.smoke
def test_delete_a_running_stream(server):
    with server.begin() as running:
        running.event()
        request = running.answer().headers["x-request-id"]
        reply = server.http.delete(f"/v1/requests/{request}")
        assert reply.status_code == 200
        assert reply.json() == {"id": request, "object": "request", "deleted": True}
        rest = list(running.events())
        assert rest[-1]["error"]["code"] == "request_cancelled" and "[DONE]" not in rest
    refused(server.http.delete(f"/v1/requests/{request}"), 404, "request_not_found")
    stops(server)


@pytest.mark.smoke
def test_delete_a_running_reply(server):
    with server.begin(stream=False) as running:
        request = until(lambda: server.requests("decoding"))[0]["id"]
        assert server.http.delete(f"/v1/requests/cmpl-{request}").status_code == 200
        reply = running.answer()
        assert reply.status == 499 and b"request_cancelled" in reply.read()
        assert reply.headers["x-request-id"] == request
    stops(server)


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_delete_a_request_whose_prompt_is_read(server, stream):
    with server.begin(prompt=LONG_PROMPT, max_tokens=100, stream=stream) as running:
        request = until(lambda: server.requests("prefilling"))[0]["id"]
        if stream:  # its header is sent when the sequence is admitted
            assert running.answer().status == 200
        assert server.http.delete(f"/v1/requests/{request}").status_code == 200
        assert running.answer().status == (200 if stream else 499) and b"request_cancelled" in running.answer().read()
    stops(server)


@pytest.mark.parametrize("delete", [True, False], ids=["deleted", "left"])
def test_a_client_leaves_while_its_text_is_prepared(server, delete):
    before, steps = settled(server), server.status()["models"][0]["steps"]
    stopped = server.metrics()["plateau_prep_stopped_total"]
    with Open(server, "/tokenize", {"prompt": "ab" * 3000000}) as running:
        request = until(lambda: server.requests("preparing"), every=0.001)[0]["id"]
        if delete:
            assert server.http.delete(f"/v1/requests/{request}").status_code == 200
            assert running.answer().status == 499
    stops(server)
    assert server.metrics()["plateau_prep_stopped_total"] == stopped + 1
    assert server.status()["models"][0]["steps"] == steps
    all_returned(server, before)


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_delete_a_queued_request(narrow, stream):
    with narrow.begin(stream=False) as running:
        until(lambda: narrow.requests("decoding"))
        with narrow.begin(stream=stream) as queued:
            request = until(lambda: narrow.requests("queued"))[0]["id"]
            assert narrow.http.delete(f"/v1/requests/{request}").status_code == 200
            assert queued.answer().status == 499 and b"request_cancelled" in queued.answer().read()
        assert narrow.requests("decoding") and running.reply is None
    stops(narrow)


@pytest.mark.smoke
@pytest.mark.parametrize("name", ["0" * 32, "f" * 31, "../x", "chatcmpl-" + "0" * 32, "x" * 500, "%F0%9F"])
def test_delete_what_is_not_there(server, name):
    refused(server.http.delete(f"/v1/requests/{name}"), 404, "request_not_found" if "/" not in name else "not_found")


def test_delete_with_another_key():
    with serving("--api-key", "ann", "--api-key", "bob", "--admin-key", "root", key="root") as server:
        with Open(server, "/v1/completions", {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True},
                  key="ann") as running:
            running.event()
            path = "/v1/requests/" + running.answer().headers["x-request-id"]
            refused(server.http.delete(path, headers={"authorization": "Bearer bob"}), 404, "request_not_found")
            refused(server.http.delete(path, headers={"authorization": "Bearer eve"}), 401, "invalid_api_key")
            assert running.event() and len(server.requests()) == 1
            assert server.http.delete(path, headers={"authorization": "Bearer ann"}).status_code == 200
        with Open(server, "/v1/completions", {"prompt": "a", "max_tokens": 20000, "ignore_eos": True, "stream": True},
                  key="ann") as running:
            running.event()
            assert server.http.delete("/v1/requests/" + running.answer().headers["x-request-id"]).status_code == 200
            assert list(running.events())[-1]["error"]["code"] == "request_cancelled"
