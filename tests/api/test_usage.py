"""Usage tells one truth in all dialects: tokens of the prompt, cached, written, and of the output."""

import pytest

from conftest import events, prompt_tokens, serving

PAGE = 32
ASK = [{"role": "user", "content": "What does mkdir do? " * 20}]
PATHS = {"/v1/chat/completions": {"messages": ASK}, "/v1/messages": {"messages": ASK}, "/v1/responses": {"input": ASK, "store": False},
         "/v1/completions": {"prompt": ASK[0]["content"]}}


@pytest.fixture(scope="module")
def cached():
    with serving("--host-cache", "64M") as s:
        yield s


@pytest.fixture(scope="module")
def uncached():
    with serving("--host-cache", "0") as s:
        yield s


def usages(server, path, stream, **fields):
    """All objects `usage` of a reply, in order."""
    length = "max_output_tokens" if path.endswith("responses") else "max_tokens"
    options = {"stream_options": {"include_usage": True}} if stream and "completions" in path else {}
    body = {"model": "canary", **PATHS[path], length: 16, "ignore_eos": True, "stream": stream, **options, **fields}
    reply = server.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    places = [b for e in (events(reply.text) if stream else [reply.json()]) if isinstance(e, dict)
              for b in (e, e.get("response"), e.get("message")) if b]
    return [place["usage"] for place in places if place.get("usage")]


def counts(usage):
    """Tokens of the prompt, cached, written, and of the output; what a dialect adds up is checked."""
    if "cache_read_input_tokens" in usage:
        return (prompt_tokens(usage), usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"],
                usage["output_tokens"])
    prompt, output = (usage.get(f"{a}_tokens", usage.get(f"{b}_tokens")) for a, b in (("prompt", "input"), ("completion", "output")))
    details = usage.get("prompt_tokens_details") or usage["input_tokens_details"]
    assert usage["total_tokens"] == prompt + output
    return prompt, details["cached_tokens"], details["cache_write_tokens"], output


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_what_is_written_is_found_next(cached, path, stream):
    salt = {"cache_salt": f"{path} {stream}"}
    first = [counts(u) for u in usages(cached, path, stream, **salt)]
    again = [counts(u) for u in usages(cached, path, not stream, **salt)]
    prompt, found, written, output = first[-1]
    assert found == 0 and written == prompt // PAGE * PAGE > 0 and output == 16
    # The first event of a stream has the same counts of the prompt.
    assert {c[:3] for c in first} == {first[-1][:3]} and {c[:3] for c in again} == {again[-1][:3]}
    prompt_again, found, rewritten, output = again[-1]
    assert (prompt_again, output) == (prompt, 16)
    assert found == min(written, (prompt - 1) // PAGE * PAGE) and found + rewritten == written


def test_dialects_agree_on_one_prompt(cached):
    said = [counts(usages(cached, path, False, cache_salt=f"agree {path}")[-1]) for path in PATHS if path != "/v1/completions"]
    assert len(set(said)) == 1


def test_choices_count_their_prompt_once(cached):
    usage = usages(cached, "/v1/completions", False, n=3, cache_salt="choices")[-1]
    assert counts(usage)[2] == counts(usage)[0] // PAGE * PAGE and counts(usage)[3] == 48


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_written_without_a_cache(uncached, path):
    for _ in range(2):
        assert counts(usages(uncached, path, False)[-1])[1:3] == (0, 0)
