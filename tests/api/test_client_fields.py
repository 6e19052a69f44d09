"""Fields and shapes that clients of OpenAI's API, vLLM and lm-evaluation-harness use: taken, and named in
x-ignored-fields where they have no effect."""

import gzip
import json
import re
import subprocess

import pytest

from conftest import MODEL, PROGRAM, events, refused, serving

ASK = [{"role": "user", "content": "What does mkdir do?"}]
GREEDY = {"temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}}}


def ids_of(server, text):
    return server.post("/tokenize", prompt=text).json()["tokens"]


def choice(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]


@pytest.mark.smoke
def test_fields_without_effect_are_named(server):
    reply = server.chat(max_tokens=1, store=True, tools=[TOOL], tool_choice="auto", parallel_tool_calls=False, invented=1)
    assert choice(reply)
    assert set(reply.headers["x-ignored-fields"].split(", ")) == {"store", "invented"}
    assert "x-ignored-fields" not in server.chat(max_tokens=1, store=False).headers


@pytest.mark.smoke
@pytest.mark.parametrize("effort, on", [("none", False), ("minimal", False), ("low", True), ("medium", True), ("high", True), ("xhigh", True), ("max", True)])
def test_effort_switches_thinking(server, effort, on):
    """The template has a switch only."""
    def prompt(**fields):
        return server.post("/apply-template", messages=ASK, **fields).json()["prompt"]
    assert prompt(reasoning_effort=effort) == prompt(enable_thinking=on)
    assert prompt(reasoning_effort=effort, enable_thinking=not on) == prompt(enable_thinking=not on)
    assert "x-ignored-fields" not in server.chat(max_tokens=1, reasoning_effort=effort).headers


@pytest.fixture(scope="module")
def named():
    names = ["--alias", "big", "--alias", "Qwen/Qwen3-4B", "--alias", "openai/gpt-oss-20b=canary"]
    with serving(*names, *sum((["--alias", f"n{i}"] for i in range(28)), [])) as s:
        yield s


def test_many_names_of_one_model(named):
    found = [m["id"] for m in named.http.get("/v1/models").json()["data"]]
    assert found[0] == "canary" and len(found) == 32
    for name in ["canary", "big", "Qwen/Qwen3-4B", "openai/gpt-oss-20b", "n27"]:
        assert name in found
        assert named.http.get(f"/v1/models/{name}").json()["id"] == name
        assert named.chat(model=name, max_tokens=1).json()["model"] == name
        stream = events(named.chat(model=name, max_tokens=1, stream=True).text)
        assert stream[0]["model"] == name
    assert named.complete("a", max_tokens=1).json()["model"] == "canary"
    refused(named.chat(model="Qwen/other", max_tokens=1), 404, "model_not_found", "Qwen/other")
    refused(named.http.get("/v1/models/Qwen/other"), 404, "model_not_found", "Qwen/other")
    assert named.post("/v1/models/openai/gpt-oss-20b/load").status_code == 200


@pytest.mark.parametrize("names, words", [
    (["/x"], "slash at its ends"), (["x/"], "slash at its ends"), ([f"n{i}" for i in range(33)], "more than 32"),
])
def test_bad_aliases_are_named(names, words):
    options = sum((["--alias", name] for name in names), [])
    got = subprocess.run([PROGRAM, "serve", MODEL, *options, "--port", "0"], capture_output=True, text=True, timeout=60)
    assert got.returncode != 0 and words in got.stderr


@pytest.mark.smoke
def test_verbosity_is_checked_and_listed(server):
    """The field verbosity means what text.verbosity of Responses does."""
    for word, ignored in ("low", "verbosity"), ("high", "verbosity"), ("medium", None), (None, None):
        reply = server.chat(max_tokens=1, verbosity=word)
        assert reply.status_code == 200 and reply.headers.get("x-ignored-fields") == ignored
    for word in "", "loud":
        assert server.chat(max_tokens=1, verbosity=word).headers["x-ignored-fields"] == "verbosity"
    refused(server.chat(verbosity=1), 400, "invalid_value", "verbosity")


@pytest.mark.smoke
@pytest.mark.parametrize("field, value, name", [
    ("service_tier", "flex", "service_tier"), ("service_tier", "priority", "service_tier"), ("reasoning_effort", "enormous", "reasoning_effort"),
    ("prediction", {"type": "content", "content": "x"}, "prediction"), ("request_id", "x", "request_id"),
    ("stream_options", {"include_obfuscation": True}, "stream_options.include_obfuscation")])
def test_advice_that_is_not_known_is_named(server, field, value, name):
    """It changes no token."""
    fields = {"max_tokens": 12, "stream": field == "stream_options", **GREEDY}
    reply = server.chat(**fields, **{field: value})
    assert reply.headers["x-ignored-fields"] == name
    def said(reply):
        """A stream's pieces depend on when they are read, and drafts on how fast they are."""
        text = re.sub(r'"(id|created|\w+_prediction_tokens)":("[^"]*"|\d+)', "", reply.text)
        return "".join(re.findall(r'"content":"([^"]*)"', text)) if fields["stream"] else text
    assert said(reply) == said(server.chat(**fields)) and reply.status_code == 200


def test_routes_without_a_version(server):
    assert server.http.get("/models").json()["data"][0]["id"] == "canary"
    assert server.http.get("/models/canary").status_code == 200
    assert choice(server.post("/chat/completions", messages=ASK, max_tokens=1))
    assert choice(server.post("/completions", prompt="a", max_tokens=1))
    assert server.http.get("/v1/v1/models").status_code == 404


@pytest.mark.smoke
def test_shapes(server):
    chat = server.chat(max_tokens=1, return_token_ids=True).json()
    assert chat["prompt_token_ids"] and len(chat["choices"][0]["token_ids"]) == 1
    assert chat["prompt_logprobs"] is None and chat["system_fingerprint"].startswith("plateau-")
    c = choice(server.complete("What does", max_tokens=1, return_token_ids=True))
    assert c["prompt_token_ids"] == ids_of(server, "What does") and c["prompt_logprobs"] is None
    drawn = choice(server.complete("What does", **GREEDY, max_tokens=2, logprobs=0, ignore_eos=True))["logprobs"]
    assert [list(t.items()) for t in drawn["top_logprobs"]] == [[(t, p)] for t, p in zip(drawn["tokens"], drawn["token_logprobs"])]
    two = server.chat(n=2, max_tokens=2).json()["choices"]
    assert [t["index"] for t in two] == [0, 1]


# ---- echo ----

@pytest.mark.smoke
def test_scores_of_a_prompt(server):
    """lm-evaluation-harness sends this: token ids, echo, logprobs, and one token or none."""
    prompt = ids_of(server, "What does mkdir do? It makes a directory.")
    apart = choice(server.complete(prompt, **GREEDY, max_tokens=1, prompt_logprobs=1))
    for most in 0, 1:
        r = server.complete(prompt, **GREEDY, echo=True, logprobs=1, max_tokens=most, ignore_eos=True)
        c, l = choice(r), choice(r)["logprobs"]
        assert c["text"].startswith("What does mkdir do? It makes a directory.") and c["prompt_logprobs"] is None
        assert len(l["tokens"]) == len(l["token_logprobs"]) == len(l["top_logprobs"]) == len(prompt) + most
        assert "".join(l["tokens"]) == c["text"] and c["finish_reason"] == "length"
        assert l["text_offset"] == [len("".join(l["tokens"][:i])) for i in range(len(l["tokens"]))]
        assert l["token_logprobs"][0] is None and l["top_logprobs"][0] is None
        for token, own, entry in zip(prompt[1:], l["token_logprobs"][1:], apart["prompt_logprobs"][1:]):
            assert own == entry[str(token)]["logprob"]
        assert all(max(t.values()) >= own for own, t in zip(l["token_logprobs"][1:], l["top_logprobs"][1:]))
        assert r.json()["usage"]["completion_tokens"] == most


@pytest.mark.smoke
def test_echo_of_texts(server):
    plain = choice(server.complete("What does ls", **GREEDY, max_tokens=4))["text"]
    assert choice(server.complete("What does ls", **GREEDY, max_tokens=4, echo=True))["text"] == "What does ls" + plain
    several = server.complete(["What does ls", "é 日本"], **GREEDY, max_tokens=1, echo=True, n=2).json()["choices"]
    assert [c["text"].startswith(t) for c, t in zip(several, ["What does ls"] * 2 + ["é 日本"] * 2)] == [True] * 4
    for most in 0, 4:
        stream = events(server.complete("What does ls", **GREEDY, max_tokens=most, echo=True, stream=True).text)
        assert "".join(e["choices"][0]["text"] for e in stream[:-1]) == "What does ls" + plain * (most > 0)
    refused(server.complete("a", max_tokens=0), 400, "invalid_value", "echo")


# ---- ids and truncation ----

@pytest.mark.smoke
def test_only_allowed_ids_are_drawn(server):
    allowed = ids_of(server, " yes no maybe")
    for fields in {"temperature": 0}, {"temperature": 2, "n": 3, "seed": 5}, {"temperature": 1, "top_p": 0.5, "logprobs": 2}:
        r = server.complete("Is it?", max_tokens=12, ignore_eos=True, allowed_token_ids=allowed, return_token_ids=True, **fields)
        assert choice(r)
        for c in r.json()["choices"]:
            assert len(c["token_ids"]) == 12 and set(c["token_ids"]) <= set(allowed)
    biased = server.complete("Is it?", **GREEDY, max_tokens=3, ignore_eos=True, return_token_ids=True,
                             allowed_token_ids=allowed, logit_bias={str(allowed[1]): 100})
    assert choice(biased)["token_ids"] == [allowed[1]] * 3
    refused(server.complete("a", max_tokens=1, allowed_token_ids=[99999]), 400, "invalid_value", "8191")


@pytest.mark.smoke
def test_prompts_are_truncated(server):
    prompt = ids_of(server, "What does mkdir do in the end?")
    def kept(given, **fields):
        return choice(server.complete(given, max_tokens=1, return_token_ids=True, **fields))["prompt_token_ids"]
    for given in prompt, "What does mkdir do in the end?":
        assert kept(given, truncate_prompt_tokens=3) == prompt[-3:]
        assert kept(given, truncate_prompt_tokens=3, truncation_side="right") == prompt[:3]
        assert kept(given, truncate_prompt_tokens=1000) == kept(given, truncate_prompt_tokens=-1) == prompt
    long = "word " * 40000
    c = server.complete(long, max_tokens=1, truncate_prompt_tokens=50)
    assert c.json()["usage"]["prompt_tokens"] == 50
    refused(server.complete(long, max_tokens=1), 400, "context_length_exceeded")
    chat = server.chat(long, max_tokens=5, truncate_prompt_tokens=100)
    assert chat.json()["usage"]["prompt_tokens"] == 100


def test_a_prompt_is_truncated_to_what_the_context_leaves():
    with serving("--max-model-len", 64) as s:
        r = s.complete("word " * 400, max_tokens=10, truncate_prompt_tokens=-1)
        assert r.json()["usage"]["prompt_tokens"] == 54


@pytest.mark.smoke
def test_json_that_a_parser_of_64_bits_and_utf8_refuses(server):
    """Integers beyond 64 bits in schemas and calls, and characters that JavaScript has cut in two."""
    def prompt(arguments, **fields):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [*ASK, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "a", "content": "1"}]
        reply = server.post("/apply-template", messages=messages, **fields)
        assert reply.status_code == 200, reply.text
        return reply.json()["prompt"]
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2 ** 64 - 1}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    written = prompt('{"n": 12345678901234567890, "s": "\\ud83d", "small": 7}', tools=[tool])
    assert '"maximum": 18446744073709551615' in written
    for part in ("<parameter=n>\n12345678901234567890\n", "<parameter=s>\n\ufffd\n", "<parameter=small>\n7\n"):
        assert part in written, written
    cut = json.dumps({"messages": [{"role": "user", "content": "a\ud83db"}]})
    assert "a\ufffdb" in server.http.post("/apply-template", content=cut).json()["prompt"]
    use = [{"type": "tool_use", "id": "a", "name": "f", "input": {"n": -2 ** 70}}]
    result = [{"type": "tool_result", "tool_use_id": "a", "content": "1"}]
    reply = server.post("/v1/messages", max_tokens=1, messages=[*ASK, {"role": "assistant", "content": use}, {"role": "user", "content": result}])
    assert reply.status_code == 200, reply.text
    refused(server.chat(max_tokens=1, seed=2 ** 64 - 1), 400, "invalid_value", "seed must be an integer of 64 bits")


def test_reasoning_parts_and_silent_tools_come_back(server):
    """Clients that keep a reply as parts send its reasoning as one; a tool without a result may have null."""
    def prompt(content, **more):
        call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        reply = server.post("/apply-template", messages=[*ASK, {"role": "assistant", "content": content, "tool_calls": [call], **more},
                                                         {"role": "tool", "tool_call_id": "a", "content": None}])
        assert reply.status_code == 200, reply.text
        return reply.json()["prompt"]
    text, same = {"type": "text", "text": "So."}, prompt("So.", reasoning_content="Hm, yes.")
    assert "<think>\nHm, yes.\n</think>" in same
    for part in ({"type": "thinking", "thinking": "Hm, yes.", "signature": "x"}, {"type": "reasoning", "text": "Hm, yes."},
                 {"type": "thinking", "thinking": [{"type": "text", "text": "Hm, "}, {"type": "text", "text": "yes."}]}):
        assert prompt([part, text]) == prompt([part, {"type": "redacted_thinking", "data": "x"}, text]) == same
    assert prompt([{"type": "thinking", "thinking": "Other."}, text], reasoning_content="Hm, yes.") == same
    assert prompt([{"type": "thinking", "thinking": 5}, text]) == prompt("So.")
    refused(server.post("/apply-template", messages=[{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]), 400,
            "unsupported_value", "messages[0].content[0]")


def test_bodies_and_paths_that_clients_get_wrong(server):
    """A mark of the byte order, a compressed body, a base URL with a /v1 too many."""
    body = json.dumps({"messages": ASK, "max_tokens": 1}).encode()
    for route in "/v1/chat/completions", "/v1/messages":
        assert server.http.post(route, content=b"\xef\xbb\xbf" + body).status_code == 200
        for packed in gzip.compress(body), b"\x28\xb5\x2f\xfd" + body:
            reply = server.http.post(route, content=packed, headers={"content-encoding": "gzip"})
            assert reply.status_code == 400 and "compressed" in reply.json()["error"]["message"]
    assert "base URL" in server.http.post("/v1/v1/messages", content=body).json()["error"]["message"]
    assert "base URL" not in server.http.post("/v1/v2/messages", content=body).json()["error"]["message"]
