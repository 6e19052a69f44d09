"""Internal faults while requests run: steps that fail or hang, memory that is refused. Each has a message,
and the server continues with all its promises."""

import itertools
import json
import re
import signal
import subprocess
import time

import pytest

from conftest import FAULTY, GOLDEN, MODEL as CANARY, Faulty, Open, all_returned, anthropic, case_fields, openai, refused, serving, settled, until
from test_streams import parse

TEXT = "/v1/completions"
CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "a"}]}
MODEL = '{model_name="canary"}'
ERRORS = 'vllm:request_success_total{model_name="canary",finished_reason="error"}'

pytestmark = pytest.mark.skipif(not FAULTY.exists(), reason="built without tests")


@pytest.fixture(scope="module")
def faulty():
    with serving("--stuck", 1, "--host-cache", "16M", "--max-num-seqs", 4, kind=Faulty) as s:
        yield s


def goes_on(server):
    """The next requests get the tokens that they always get."""
    for case in GOLDEN["cases"][:2]:
        reply = server.post(CHAT, **case_fields(case))
        assert reply.json()["choices"][0]["token_ids"] == case["greedy_ids"]


@pytest.fixture(autouse=True)
def nothing_is_left(faulty):
    before = settled(faulty)
    yield
    faulty.order("go")
    faulty.order("refuse 0")
    assert faulty.wait_idle()["requests"] == []
    goes_on(faulty)
    all_returned(faulty, before)


# ---- steps that fail ----


@pytest.mark.smoke
@pytest.mark.parametrize("fields", [
    {}, {"n": 3}, {"prompt": [5] * 1500}, {"logprobs": 2},
], ids=str)
def test_a_step_that_fails_is_an_answer(faulty, fields):
    faulty.order("fail")
    error = refused(faulty.post(TEXT, **{"prompt": "a", "max_tokens": 5, **fields}), 500, "engine_error", "error 5")
    assert error["type"] == "server_error" and error["param"] is None


@pytest.mark.smoke
def test_a_chat_whose_step_fails_is_told_so(faulty):
    faulty.order("fail")
    refused(faulty.chat(max_tokens=5), 500, "engine_error", "error 5")


@pytest.mark.smoke
@pytest.mark.parametrize("path", [TEXT, CHAT])
def test_a_step_that_fails_in_a_stream_is_an_event(faulty, path):
    body = {"max_tokens": 4000, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
            **({"prompt": "a"} if path == TEXT else {"messages": [{"role": "user", "content": "a"}]})}
    with Open(faulty, path, body) as running:
        running.event()
        faulty.order("fail")
        found = list(running.events())
    assert running.answer().status == 200 and "[DONE]" not in found
    assert found[-1]["error"]["code"] == "engine_error" and found[-1]["error"]["type"] == "server_error"
    assert all("error" not in event for event in found[:-1])


STREAMS = [(TEXT, {"prompt": "a"}, None), (CHAT, ASK, None), (CHAT, {**ASK, "n": 2}, None), ("/v1/messages", ASK, "message_start"),
           ("/v1/responses", {"input": "a", "store": False}, "response.created")]


@pytest.mark.smoke
@pytest.mark.parametrize("path, fields, first", STREAMS, ids=str)
def test_a_stream_begins_when_its_sequence_is_admitted(faulty, path, fields, first):
    """Its first step hangs, so there is no token, and no time for a comment."""
    faulty.order("hang")
    limit = {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 5}
    with Open(faulty, path, {"stream": True, **limit, **fields}) as o:
        faulty.order("wait")
        assert o.answer().status == 200 and o.answer().headers["content-type"] == "text/event-stream"
        begun = o.event() if first else None
        assert faulty.requests()[0]["tokens"] == 0
        assert begun is None or begun["type"] == first
        faulty.order("go")
        found = list(o.events())
        assert found and not any("error" in event for event in found if isinstance(event, dict) and path in (TEXT, CHAT))


@pytest.mark.smoke
@pytest.mark.parametrize("path, fields, first", STREAMS, ids=str)
def test_a_first_step_that_fails_is_an_event(faulty, path, fields, first):
    """The header is sent by then."""
    faulty.order("hang")
    limit = {"max_output_tokens" if path == "/v1/responses" else "max_tokens": 5}
    with Open(faulty, path, {"stream": True, **limit, **fields}) as o:
        assert o.answer().status == 200
        faulty.order("fail")
        *_, last = o.events()
    error = last["response"]["error"] if path == "/v1/responses" else last["error"]
    assert "error 5" in error["message"] and last.get("type") in (None, "error", "response.failed")


@pytest.mark.parametrize("order", ["fail", "lose"])
@pytest.mark.parametrize("path, last", [(CHAT, None), ("/v1/messages", "error"), ("/v1/responses", "response.failed")])
def test_the_official_clients_raise_when_a_reply_fails(faulty, path, last, order):
    """Each API's own event ends the stream. The clients raise their error, or give it to the reader."""
    ask = [{"role": "user", "content": "a"}]
    # A client that is left open keeps its connection, and that its memory.
    with openai.OpenAI(base_url=faulty.url + "/v1", api_key="x", max_retries=0) as client, \
            anthropic.Anthropic(base_url=faulty.url, api_key="x", max_retries=0) as messages:
        long = {"extra_body": {"ignore_eos": True}}
        if path == CHAT:
            stream, error = client.chat.completions.create(model="canary", messages=ask, max_tokens=4000, stream=True, **long), openai.APIError
        elif path == "/v1/messages":
            stream, error = messages.messages.create(model="canary", messages=ask, max_tokens=4000, stream=True, **long), anthropic.APIError
        else:
            stream, error = client.responses.create(model="canary", input="a", max_output_tokens=4000, stream=True, **long), openai.APIError
        found = []
        with pytest.raises(error) as raised:
            for event in stream:
                if not found:
                    faulty.order(order)
                found.append(getattr(event, "type", "chunk"))
            if found[-1] == last:
                raise openai.APIError("the last event says so", stream.response.request, body=None)
        assert found and "message_stop" not in found and "response.completed" not in found, (found[-3:], raised)


@pytest.mark.smoke
def test_who_is_not_in_the_step_goes_on(faulty):
    """Four sequences fail together; the one that waits for a place gets it, and its tokens."""
    case = GOLDEN["cases"][0]
    failed, errors = faulty.status()["models"][0]["step_errors"], faulty.metrics()[ERRORS]
    with faulty.begin(n=4, stream=False) as running:
        until(lambda: faulty.requests("decoding") and faulty.status()["models"][0]["running"] == 4)
        with Open(faulty, CHAT, case_fields(case)) as waiting:
            until(lambda: faulty.requests("queued"))
            faulty.order("fail")
            assert running.answer().status == 500
            assert waiting.answer().status == 200
            assert str(case["greedy_ids"])[1:-1].replace(" ", "") in waiting.answer().read().decode()
    assert faulty.status()["models"][0]["step_errors"] == failed + 1
    assert faulty.metrics()[ERRORS] == errors + 4


# ---- steps that hang ----


@pytest.mark.smoke
def test_work_that_makes_no_progress_is_named(faulty):
    times = faulty.metrics()["plateau_engine_stuck_total" + MODEL]
    faulty.order("hang")
    with faulty.begin(max_tokens=3, stream=False) as running:
        reply = until(lambda: (r := faulty.http.get("/health")).status_code == 503 and r)
        assert reply.json()["status"] == "stuck" and reply.json()["model"] == "canary"
        assert faulty.http.get("/live").status_code == 200
        (shown,) = faulty.requests()
        until(lambda: faulty.said(f"ids={shown['id']}"))
        assert faulty.status()["models"][0]["state"] == "stuck"
        assert faulty.metrics()["plateau_engine_stuck" + MODEL] > 0
        faulty.order("go")
        assert running.answer().status == 200
    until(lambda: faulty.http.get("/health").status_code == 200)
    until(lambda: faulty.said("event=unstuck"))
    assert faulty.metrics()["plateau_engine_stuck" + MODEL] == 0
    assert faulty.metrics()["plateau_engine_stuck_total" + MODEL] == times + 1


@pytest.mark.smoke
def test_who_leaves_while_a_step_hangs_is_gone_after_it(faulty):
    with faulty.begin(stream=False):
        until(lambda: faulty.requests("decoding"))
        faulty.order("hang")
        faulty.order("wait")
    until(lambda: not faulty.requests())
    steps = faulty.status()["models"][0]["steps"]
    assert faulty.status()["engine_jobs"] == 1
    faulty.order("go")
    faulty.wait_idle()
    assert faulty.status()["models"][0]["steps"] == steps + 1


def test_an_end_that_waits_for_a_step_says_so():
    s = Faulty("--drain", 0)
    with s.begin(stream=False):
        until(lambda: s.requests("decoding"))
        s.order("hang")
        s.order("wait")
        s.process.terminate()
        until(lambda: s.said("event=close_waits model=canary"))
        assert s.process.poll() is None
        s.order("go")
        assert s.wait() == 0


def test_whoever_does_not_want_to_wait_for_a_step_need_not():
    s = Faulty("--drain", 0)
    with s.begin(stream=False):
        until(lambda: s.requests("decoding"))
        s.order("hang")
        s.order("wait")
        s.process.terminate()
        until(lambda: s.said("event=close_waits model=canary"))
        s.process.send_signal(signal.SIGHUP)  # is not one of them
        time.sleep(0.2)
        assert s.process.poll() is None
        s.process.terminate()
        assert s.wait() == -signal.SIGTERM


# ---- memory that is refused ----

REQUESTS = [
    (TEXT, {"prompt": [7] * 300, "max_tokens": 20}),
    (TEXT, {"prompt": ["a", "b"], "max_tokens": 8, "n": 2, "logprobs": 2, "stop": "never said", "stream": True}),
    (CHAT, {"messages": [{"role": "user", "content": "a " * 300}], "max_tokens": 8, "stream": True}),
    (CHAT, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "logprobs": True, "top_logprobs": 3,
            "tools": [{"type": "function", "function": {"name": "f"}}]}),
    ("/tokenize", {"prompt": "a " * 500}),
]


def told(reply):
    """Whether it was served; otherwise its error has the reason."""
    if reply.status_code != 200:
        assert reply.status_code in (413, 429, 500, 503, 507), reply.text
        assert len(reply.json()["error"]["message"]) > 20
        return False
    if not reply.headers["content-type"].startswith("text/event-stream"):
        assert "error" not in reply.json()
        return True
    _, found = parse(reply.text)
    assert found[-1] == "[DONE]" or found[-1]["error"]["code"]
    return found[-1] == "[DONE]"


@pytest.mark.parametrize("lasts", ["", " all"], ids=["once", "for good"])
@pytest.mark.parametrize("path, body", REQUESTS, ids=range(len(REQUESTS)))
def test_each_reservation_may_be_refused(faulty, path, body, lasts):
    body = {"temperature": 0, "ignore_eos": True, **body} if path != "/tokenize" else body
    before, ends, n, asked = settled(faulty), [], 0, 1
    while asked >= n:
        n += 1
        faulty.order(f"refuse {n}{lasts}")
        reply = faulty.post(path, **body)
        asked = faulty.order("refuse 0")
        ends.append(told(reply))
        assert faulty.wait_idle()["engine_jobs"] == 0
        if n % 8 == 0:
            all_returned(faulty, before)
    assert ends[-1] and not ends[0], ends


def test_a_stream_is_refused_by_whole_events_or_by_an_http_error():
    """The events of a prompt that is too long quote its instructions. Without memory for all none is sent."""
    whole = ["response.created", "response.in_progress", "error", "response.failed"]
    with serving("--max-model-len", "512", kind=Faulty) as s:
        ends, n, asked = [], 0, 1
        while asked >= n:
            n += 1
            s.order(f"refuse {n} all")
            reply = s.post("/v1/responses", input="word " * 600, instructions="brief " * 10000, stream=True, max_output_tokens=1)
            asked = s.order("refuse 0")
            ends.append(reply.status_code)
            if ends[-1] == 400:
                refused(reply, 400, "context_length_exceeded", "--max-model-len")
            elif ends[-1] == 200:
                assert [json.loads(data)["type"] for data in re.findall("^data: (.*)$", reply.text, re.MULTILINE)] == whole
            else:
                told(reply)
        assert ends[0] == 429 and 400 in ends and ends[-1] == 200, ends


# ---- a start that is refused memory ----


def start(number):
    """Exit status and output; None: it is ready."""
    command = [FAULTY, str(number), "serve", str(CANARY), "--port", "0", "--host-cache", "16M"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = []
    for line in process.stderr:
        said.append(line.decode())
        if "event=ready" in said[-1]:
            process.terminate()
    process.stdin.close()
    status = process.wait(30)
    return None if any("event=ready" in line for line in said) and status == 0 else (status, "".join(said))


@pytest.mark.smoke
def test_a_start_that_is_refused_memory_ends_in_words():
    """Whatever was open by then is closed: the program demands that each account is empty."""
    ends = {}
    for number in itertools.count(1):
        ends[number] = start(number)
        # A load that finds no room tries it a second time: one refusal need not be the end.
        if number > 3 and not any(ends[n] for n in range(number - 2, number + 1)):
            break
        if ends[number] is None:
            continue
        status, said = ends[number]
        assert status == 1 and re.search(r'(plateau: |error=")[^"\n]{20,}', said), (number, status, said)
    assert len(ends) > 10
