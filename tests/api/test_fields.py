"""Effect of each field on the tokens."""

import concurrent.futures
import json
import math

import pytest

from conftest import events

GREEDY = {"temperature": 0}


def ids_of(reply):
    assert reply.status_code == 200, reply.text
    return [c["token_ids"] for c in reply.json()["choices"]]


def complete(server, prompt="The", **fields):
    return ids_of(server.complete(prompt, return_token_ids=True, **fields))


@pytest.mark.smoke
def test_max_tokens_and_its_other_name(server):
    assert len(complete(server, max_tokens=7, ignore_eos=True)[0]) == 7
    assert len(complete(server, max_completion_tokens=7, ignore_eos=True)[0]) == 7
    assert len(complete(server, ignore_eos=True)[0]) == 16


@pytest.mark.smoke
def test_seeds(server):
    draw = {"temperature": 1.5, "max_tokens": 24, "ignore_eos": True}
    one = complete(server, seed=11, **draw)
    assert one == complete(server, seed=11, **draw)
    assert one != complete(server, seed=12, **draw)
    assert complete(server, seed=-5, **draw) == complete(server, seed=-5, **draw)
    assert complete(server, **draw) != complete(server, **draw)


@pytest.mark.smoke
def test_the_same_seed_in_any_company(server):
    def ask(seed):
        return complete(server, seed=seed, temperature=1.5, max_tokens=24, ignore_eos=True)

    alone = ask(11)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        together = list(pool.map(ask, [11, 12, 13, 11, 14, 15]))
    assert together[0] == together[3] == alone
    assert len({str(ids) for ids in together}) == 5


@pytest.mark.smoke
def test_n_rows_differ_and_the_first_is_the_one_alone(server):
    draw = {"temperature": 1.5, "max_tokens": 16, "ignore_eos": True, "seed": 3}
    rows = complete(server, n=4, **draw)
    assert len(rows) == 4 and len({tuple(r) for r in rows}) == 4
    assert rows[0] == complete(server, **draw)[0]
    assert rows == complete(server, n=4, **draw)
    usage = server.complete("The", n=4, **draw).json()["usage"]
    assert usage["completion_tokens"] == 64 and usage["prompt_tokens"] == 1


def test_n_rows_streamed(server):
    draw = {"temperature": 1.5, "max_tokens": 16, "ignore_eos": True, "seed": 3, "n": 3}
    rows = complete(server, **draw)
    found = events(server.complete("The", stream=True, return_token_ids=True, **draw).text)
    streamed, reasons = [[], [], []], [0, 0, 0]
    for chunk in found[:-1]:
        for c in chunk["choices"]:
            streamed[c["index"]] += c.get("token_ids", [])
            reasons[c["index"]] += c["finish_reason"] is not None
    assert streamed == rows and reasons == [1, 1, 1] and found[-1] == "[DONE]"


def test_several_prompts_have_their_places(server):
    rows = complete(server, ["The", [5, 6, 7], "What"], n=2, **GREEDY, max_tokens=6, ignore_eos=True)
    assert len(rows) == 6
    assert rows[0] == rows[1] == complete(server, "The", **GREEDY, max_tokens=6, ignore_eos=True)[0]
    assert rows[2] == rows[3] == complete(server, [5, 6, 7], **GREEDY, max_tokens=6, ignore_eos=True)[0]
    assert rows[4] == rows[5] == complete(server, "What", **GREEDY, max_tokens=6, ignore_eos=True)[0]


@pytest.mark.smoke
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(server, stream):
    whole = "mkdir(2) - create a directory."

    def ask(stop, **more):
        r = server.chat(**GREEDY, stop=stop, stream=stream, **more)
        assert r.status_code == 200, r.text
        if not stream:
            c = r.json()["choices"][0]
            return c["message"]["content"], c["finish_reason"], c["stop_reason"]
        chunks = [e["choices"][0] for e in events(r.text)[:-1]]
        text = "".join(c["delta"].get("content", "") for c in chunks)
        return text, chunks[-1]["finish_reason"], chunks[-1]["stop_reason"]

    assert ask("nothing of it") == (whole, "stop", None)
    assert ask("create") == ("mkdir(2) - ", "stop", "create")
    assert ask(["xyz", "a dir"]) == ("mkdir(2) - create ", "stop", "a dir")
    assert ask("dir(2) - c") == ("mk", "stop", "dir(2) - c")
    assert ask("m") == ("", "stop", "m")
    assert ask("a dir", include_stop_str_in_output=True) == ("mkdir(2) - create a dir", "stop", "a dir")
    # It only starts like one.
    assert ask("directory!") == (whole, "stop", None)
    # So does the end of the text, which an end token follows.
    assert ask(".!") == (whole, "stop", None)


def test_stop_token_ids(server):
    ids = complete(server, "The", **GREEDY, max_tokens=12, ignore_eos=True)[0]
    stop = ids[4]
    first = ids.index(stop)
    r = server.complete("The", **GREEDY, max_tokens=12, ignore_eos=True, stop_token_ids=[stop],
                        return_token_ids=True).json()["choices"][0]
    assert r["token_ids"] == ids[:first + 1]
    assert r["finish_reason"] == "stop" and r["stop_reason"] == stop
    text = server.post("/detokenize", tokens=ids[:first]).json()["prompt"]
    assert r["text"] == text


def test_ignore_eos_and_min_tokens(server):
    short = server.chat(**GREEDY, return_token_ids=True).json()
    ids = short["choices"][0]["token_ids"]
    longer = server.chat(**GREEDY, return_token_ids=True, min_tokens=len(ids) + 5, max_tokens=60).json()
    assert longer["usage"]["completion_tokens"] >= len(ids) + 5
    assert longer["choices"][0]["token_ids"][:len(ids) - 1] == ids[:-1]
    assert ids[-1] not in longer["choices"][0]["token_ids"][:len(ids) + 5 - 1]
    on = server.chat(**GREEDY, return_token_ids=True, ignore_eos=True, max_tokens=40).json()
    assert on["usage"]["completion_tokens"] == 40 and on["choices"][0]["token_ids"][:len(ids)] == ids
    assert on["choices"][0]["finish_reason"] == "length"


def test_logit_bias(server):
    ids = complete(server, "The", **GREEDY, max_tokens=8, ignore_eos=True)[0]
    assert set(complete(server, "The", **GREEDY, max_tokens=4, logit_bias={"77": 100}, ignore_eos=True)[0]) == {77}
    assert ids[0] not in complete(server, "The", **GREEDY, max_tokens=4, logit_bias={str(ids[0]): -100},
                                  ignore_eos=True)[0]


def test_penalties(server):
    prompt = "word word word word word word"
    plain = complete(server, prompt, **GREEDY, max_tokens=40, ignore_eos=True)[0]
    for field, value in [("repetition_penalty", 1.5), ("presence_penalty", 2), ("frequency_penalty", 2)]:
        other = complete(server, prompt, **GREEDY, max_tokens=40, ignore_eos=True, **{field: value})[0]
        assert other != plain, field
        assert len(set(other)) >= len(set(plain)), field
    neutral = complete(server, prompt, **GREEDY, max_tokens=40, ignore_eos=True, repetition_penalty=1,
                       presence_penalty=0, frequency_penalty=0)[0]
    assert neutral == plain


def test_filters_leave_the_best_token(server):
    draw = {"temperature": 2, "max_tokens": 12, "ignore_eos": True}
    best = complete(server, **GREEDY, max_tokens=12, ignore_eos=True)
    assert complete(server, **draw, top_k=1) == best
    assert complete(server, **draw, top_p=1e-6) == best
    assert complete(server, **draw, min_p=0.999999) == best
    assert complete(server, **draw, seed=1, top_k=-1, top_p=1, min_p=0) == \
        complete(server, **draw, seed=1, top_k=0, top_p=1, min_p=0)


def test_defaults_are_the_models_own(server):
    """generation_config.json of the bundled model: temperature 0.7, top_p 0.9."""
    draw = {"max_tokens": 24, "ignore_eos": True, "seed": 5}
    assert complete(server, **draw) == complete(server, **draw, temperature=0.7, top_p=0.9)


@pytest.mark.smoke
def test_chat_logprobs(server):
    r = server.chat(**GREEDY, logprobs=True, top_logprobs=3, return_token_ids=True).json()["choices"][0]
    entries = r["logprobs"]["content"]
    assert len(entries) == len(r["token_ids"])
    for e in entries:
        assert e["logprob"] <= 0 and len(e["top_logprobs"]) == 3
        assert e["top_logprobs"][0]["token"] == e["token"] and e["top_logprobs"][0]["logprob"] == e["logprob"]
        assert [t["logprob"] for t in e["top_logprobs"]] == sorted((t["logprob"] for t in e["top_logprobs"]),
                                                                   reverse=True)
        assert sum(math.exp(t["logprob"]) for t in e["top_logprobs"]) <= 1.0001
    said = bytes(b for e in entries[:-1] for b in e["bytes"]).decode()
    assert said == r["message"]["content"]


def test_chat_logprobs_streamed_are_the_same(server):
    fields = {**GREEDY, "logprobs": True, "top_logprobs": 2}
    whole = server.chat(**fields).json()["choices"][0]["logprobs"]["content"]
    streamed = []
    for e in events(server.chat(**fields, stream=True).text)[:-1]:
        streamed += (e["choices"][0]["logprobs"] or {"content": []})["content"]
    assert streamed == whole


def test_the_tokens_of_a_chunk_are_its_text(server):
    """The end token, which the text leaves out, comes in a chunk without text, also when it was decoded with
    others."""
    for fields in [{}] * 8 + [{"guided_regex": "[0-9]{4}"}, {"guided_choice": ["yes", "no"]}]:
        reply = server.chat(stream=True, logprobs=True, max_tokens=60, temperature=0, **fields)
        said = [c for e in events(reply.text) if e != "[DONE]" for c in e["choices"] if c["logprobs"]]
        for choice in said:
            tokens = [t["token"] for t in choice["logprobs"]["content"]]
            assert "".join(tokens) == choice["delta"].get("content", "<|im_end|>")
        assert said[-1]["delta"] == {}


def test_completion_logprobs(server):
    r = server.complete("The", **GREEDY, max_tokens=6, logprobs=2, ignore_eos=True, return_token_ids=True)
    c = r.json()["choices"][0]
    l = c["logprobs"]
    assert len(l["tokens"]) == len(l["token_logprobs"]) == len(l["top_logprobs"]) == len(l["text_offset"]) == 6
    assert "".join(l["tokens"]) == c["text"]
    assert l["text_offset"] == [len("".join(l["tokens"][:i])) for i in range(6)]
    assert all(len(t) == 2 and l["tokens"][i] in t for i, t in enumerate(l["top_logprobs"]))
    bare = server.complete("The", **GREEDY, max_tokens=6, logprobs=0, ignore_eos=True).json()["choices"][0]["logprobs"]
    assert bare["token_logprobs"] == l["token_logprobs"] and [list(t) for t in bare["top_logprobs"]] == [[t] for t in l["tokens"]]


def test_logprobs_do_not_change_with_temperature(server):
    fields = {"max_tokens": 1, "logprobs": 3, "ignore_eos": True, "top_k": 1}
    cold = server.complete("The", temperature=0, **fields).json()["choices"][0]["logprobs"]
    hot = server.complete("The", temperature=2, **fields).json()["choices"][0]["logprobs"]
    assert cold == hot


def test_prompt_logprobs(server):
    prompt = server.post("/tokenize", prompt="What does mkdir do").json()["tokens"]
    c = server.complete(prompt, **GREEDY, max_tokens=2, prompt_logprobs=2).json()["choices"][0]
    entries = c["prompt_logprobs"]
    assert len(entries) == len(prompt) and entries[0] is None
    for token, entry in zip(prompt[1:], entries[1:]):
        assert str(token) in entry and 2 <= len(entry) <= 3
        assert entry[str(token)]["logprob"] <= 0
    # A prompt's last token has the log probability that it has as an output.
    out = server.complete(prompt[:-1], **GREEDY, max_tokens=1, logprobs=5,
                          logit_bias={str(prompt[-1]): 100}).json()["choices"][0]["logprobs"]
    assert out["token_logprobs"][0] == pytest.approx(entries[-1][str(prompt[-1])]["logprob"], abs=1e-4)


def test_prompt_logprobs_of_a_chat(server):
    r = server.chat(**GREEDY, prompt_logprobs=0).json()
    assert len(r["prompt_logprobs"]) == r["usage"]["prompt_tokens"]


def test_token_ids_are_there_only_when_asked_for(server):
    r = server.chat(**GREEDY).json()
    assert "prompt_token_ids" not in r and "token_ids" not in r["choices"][0]


def test_special_tokens_are_text_when_asked_for(server):
    ids = server.post("/tokenize", prompt="a<|im_end|>b").json()["tokens"]
    bias = {"logit_bias": {str(ids[1]): 100}, "ignore_eos": True, "max_tokens": 2}
    assert server.complete("a", **GREEDY, **bias).json()["choices"][0]["text"] == ""
    assert server.complete("a", **GREEDY, **bias, skip_special_tokens=False).json()["choices"][0]["text"] == \
        "<|im_end|><|im_end|>"


def test_continuous_usage(server):
    r = server.chat(**GREEDY, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [e["usage"]["completion_tokens"] for e in events(r.text)[:-1]]
    assert counts == sorted(counts) and counts[-1] == counts[-2] > 5


def test_unknown_names_are_told_in_a_header(server):
    r = server.chat(**GREEDY, temprature=1, frobnicate={})
    assert r.status_code == 200 and r.headers["x-ignored-fields"] == "temprature, frobnicate"
    assert "x-ignored-fields" not in server.chat(**GREEDY).headers


def test_json_in_tools_keeps_its_order(server):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "zebra": {"type": "number"}, "apple": {"type": "string", "enum": ["é", "b"]}}}}}
    prompt = server.post("/apply-template", messages=[{"role": "user", "content": "x"}], tools=[tool]).json()["prompt"]
    assert json.dumps(tool, ensure_ascii=False) in prompt
