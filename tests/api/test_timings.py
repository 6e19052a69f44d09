"""Times of a reply: include_timings in every dialect, and the timings_per_token of llama.cpp."""

import re

import pytest

from conftest import ADMIN_KEY, events, prompt_tokens, serving, until

ASK = [{"role": "user", "content": "What does mkdir do?"}]
ROUTES = {
    "/v1/chat/completions": {"messages": ASK, "max_tokens": 12, "ignore_eos": True},
    "/v1/completions": {"prompt": "What does mkdir do?", "max_tokens": 12, "ignore_eos": True},
    "/v1/messages": {"model": "canary", "messages": ASK, "max_tokens": 12, "ignore_eos": True},
    "/v1/responses": {"input": "What does mkdir do?", "max_output_tokens": 12, "ignore_eos": True, "store": False},
}
LLAMA = ["cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n", "predicted_ms",
         "predicted_per_token_ms", "predicted_per_second"]
TIERS = ["device", "host", "pinned", "ssd"]


@pytest.fixture(scope="module")
def served():
    with serving("--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        yield s


def usages(reply, stream):
    """All objects `usage` of a reply, in order."""
    assert reply.status_code == 200, reply.text
    places = [b for e in (events(reply.text) if stream else [reply.json()]) if isinstance(e, dict)
              for b in (e, e.get("response"), e.get("message")) if b]
    return [place["usage"] for place in places if place.get("usage")]


def counts(usage):
    """Tokens of the prompt, of them cached, and tokens of the output."""
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"]
    if "cache_read_input_tokens" in usage:
        return prompt_tokens(usage), usage["cache_read_input_tokens"], usage["output_tokens"]
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]


def line_of(server, reply):
    """The log's line about the end of a request."""
    told = f"event=request_ended id={reply.headers['x-request-id']} "
    [line] = until(lambda: [x for x in list(server.lines) if told in x])
    return {k: float(re.search(rf" {k}=([\d.]+)", line)[1]) for k in ("queued_ms", "first_token_ms", "seconds")}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
def test_usage_has_the_times_where_asked_for(served, path, stream):
    reply = served.post(path, **ROUTES[path], stream=stream, include_timings=True)
    usage = usages(reply, stream)[-1]
    t = usage["timings"]
    prompt, found, output = counts(usage)
    assert t["prefill_tokens"] == prompt - found and t["decode_tokens"] == output > 1
    assert list(t["cached_tokens"]) == TIERS and sum(t["cached_tokens"].values()) == found
    assert t["prefill_ms"] > 0 and t["decode_ms"] > 0
    # The log has them too, rounded.
    line = line_of(served, reply)
    assert line["queued_ms"] == pytest.approx(t["queued_ms"], abs=0.06)
    assert line["first_token_ms"] == pytest.approx(t["first_token_ms"], abs=0.06)
    assert t["queued_ms"] + t["prefill_ms"] < t["first_token_ms"] + 0.01
    assert t["queued_ms"] + t["prefill_ms"] + t["decode_ms"] <= 1000 * line["seconds"] + 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ROUTES)
def test_usage_has_no_times_unless_asked_for(served, path, stream):
    options = {"stream_options": {"include_usage": True}} if stream and "completions" in path else {}
    reply = served.post(path, **ROUTES[path], stream=stream, include_timings=False, **options)
    assert "timings" not in reply.text and usages(reply, stream)


def test_a_stream_whose_options_leave_the_usage_out_has_no_times(served):
    body = {**ROUTES["/v1/chat/completions"], "stream": True, "include_timings": True}
    reply = served.post("/v1/chat/completions", **body, stream_options={"include_usage": False})
    assert usages(reply, True) == [] and "timings" not in reply.text


def test_usage_before_the_end_has_the_times_until_then(served):
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = served.chat(max_tokens=12, stream=True, include_timings=True, stream_options=options)
    timings = [u["timings"] for u in usages(reply, True)]
    assert len(timings) > 2 and {t["prefill_tokens"] for t in timings} == {timings[-1]["prefill_tokens"]}
    decoded = [t["decode_tokens"] for t in timings]
    assert decoded == sorted(decoded) and timings[-2] == timings[-1]


def test_choices_count_their_prompt_once(served):
    body = served.complete("What does mkdir do?", max_tokens=5, ignore_eos=True, n=3, include_timings=True).json()
    t = body["usage"]["timings"]
    found = sum(t["cached_tokens"].values())
    assert t["prefill_tokens"] + found == body["usage"]["prompt_tokens"] and t["decode_tokens"] == 15


def check_llama(t, usage):
    assert list(t) == LLAMA
    prompt, found, output = counts(usage)
    assert (t["cache_n"], t["prompt_n"] + t["cache_n"], t["predicted_n"]) == (found, prompt, output)
    assert t["prompt_per_token_ms"] == pytest.approx(t["prompt_ms"] / t["prompt_n"], rel=1e-3)
    assert t["prompt_per_second"] == pytest.approx(1000 * t["prompt_n"] / t["prompt_ms"], rel=1e-3)
    assert t["predicted_per_token_ms"] == pytest.approx(t["predicted_ms"] / (output - 1), rel=1e-3)
    assert t["predicted_per_second"] == pytest.approx(1000 * (output - 1) / t["predicted_ms"], rel=1e-3)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_llama_cpps_field_has_its_object(served, path):
    body = {**ROUTES[path], "timings_per_token": True}
    whole = served.post(path, **body).json()
    check_llama(whole["timings"], whole["usage"])
    assert "timings" not in whole["usage"]
    chunks = events(served.post(path, **body, stream=True, stream_options={"include_usage": True}).text)[:-1]
    assert all(list(c["timings"]) == LLAMA for c in chunks)
    predicted = [c["timings"]["predicted_n"] for c in chunks]
    assert predicted == sorted(predicted) and predicted[-1] == 12
    check_llama(chunks[-1]["timings"], chunks[-1]["usage"])


def test_both_forms_have_the_same_times(served):
    body = served.chat(max_tokens=5, ignore_eos=True, include_timings=True, timings_per_token=True).json()
    own, theirs = body["usage"]["timings"], body["timings"]
    assert (theirs["prompt_ms"], theirs["predicted_ms"]) == (own["prefill_ms"], own["decode_ms"])


def test_one_token_has_no_rate():
    with serving() as s:
        t = s.complete("ls", max_tokens=1, timings_per_token=True).json()["timings"]
    assert (t["predicted_n"], t["predicted_per_token_ms"], t["predicted_per_second"]) == (1, 0, 0)


def test_times_are_asked_for_by_a_boolean(served):
    for name in ("include_timings", "timings_per_token"):
        reply = served.chat(**{name: "yes"})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == name
