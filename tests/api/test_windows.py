"""Layers with a window behind the API: choices, drafts and the prefix cache change no token; odd windows."""
import json

import pytest

from conftest import FEW_PAGES, TOP, Server, serving
from test_generate import run
from test_speculation import metric

OLMO = TOP / "tests/golden/data/olmo3"
PROMPT = [i * 7 % 500 for i in range(20)] * 8
ASK = {"max_tokens": 80, "ignore_eos": True, "return_token_ids": True}


def written(folder, **changes):
    """olmo3's golden model with another configuration."""
    (folder / "config.json").write_text(json.dumps(json.loads((OLMO / "config.json").read_text()) | changes))
    (folder / "model.safetensors").symlink_to(OLMO / "model.safetensors")
    return folder


def tokens(server, prompt=PROMPT, **fields):
    reply = server.complete(prompt, **(ASK | fields)).json()
    return [choice["token_ids"] for choice in reply["choices"]], reply["usage"]


def serve(folder, *options):
    return serving(*options, kind=type("Small", (Server,), {"arguments": lambda self: [str(folder), FEW_PAGES]}))


@pytest.fixture(scope="module")
def plain():
    with serve(OLMO, "--spec", "off", "--host-cache", "0") as s:
        yield s


def test_choices_drafts_and_cache_change_no_token(plain):
    """The window has 16 tokens, the prompt 160: choices begin with pages that the prompt gave back."""
    asks = [{"temperature": 0}, {"temperature": 0.8, "seed": 3, "n": 3}, {"temperature": 0.2, "seed": 4, "n": 2}]
    want = [tokens(plain, **ask)[0] for ask in asks]
    assert len({str(choice) for choice in want[1]}) == 3
    alone = [tokens(plain, **ask)[0] for ask in asks]
    assert alone == want
    with serve(OLMO, "--spec", "ngram", "--host-cache", "64M") as s:
        for hit in (False, True):
            for ask, expected in zip(asks, want):
                got, usage = tokens(s, **ask)
                assert got == expected, ask
                assert not hit or usage["prompt_tokens_details"]["cached_tokens"] >= 128
        assert metric(s, "vllm:spec_decode_num_draft_tokens_total")[0] > 0
        assert metric(s, "vllm:spec_decode_num_accepted_tokens_total")[0] > 0


def test_a_window_of_one_token_sees_that_token_alone(tmp_path):
    """So an answer depends on the last token of its prompt only."""
    every = ["sliding_attention"] * 4
    with serve(written(tmp_path, sliding_window=1, layer_types=every)) as s:
        first, _ = tokens(s, PROMPT + [5], temperature=0)
        assert tokens(s, [9, 8, 5], temperature=0)[0] == tokens(s, [5], temperature=0)[0] == first
        assert tokens(s, PROMPT + [6], temperature=0)[0] != first


def test_a_window_beyond_the_context_is_full_attention(tmp_path):
    found = []
    for window in (4096, 5000, 1 << 20):
        (tmp_path / str(window)).mkdir()
        folder = written(tmp_path / str(window), sliding_window=window)
        plan = json.loads(run("plan", "--json", str(folder)).stdout)["models"][0]
        assert plan["windows"] == []
        with serve(folder) as s:
            found.append(tokens(s, temperature=0)[0])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("window", [0, -1, 1.5, "16", 10**12])
def test_a_window_that_is_none_is_refused(window, tmp_path):
    got = run("plan", str(written(tmp_path, sliding_window=window)))
    assert got.returncode == 1 and "sliding_window" in got.stderr and "config.json" in got.stderr, got.stderr
