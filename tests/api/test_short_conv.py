"""Short convolutions behind the API: a prefix hit continues from a snapshot of their state and changes no
token."""
import json

import pytest

from conftest import FEW_PAGES, TOP, Server, serving

DATA = TOP / "tests/golden/data"


@pytest.mark.parametrize("name", ["lfm2", "lfm2_moe"])
def test_a_prefix_hit_changes_no_token(name):
    class Small(Server):
        def arguments(self):
            return [str(DATA / name), FEW_PAGES]

    text = json.loads((DATA / name / "golden.json").read_text())["text"]
    fields = {"max_tokens": 32, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    with serving("--host-cache", "64M", kind=Small) as s:
        for hit in (0, 64, 64):
            reply = s.complete(text["prompt"], **fields).json()
            assert reply["choices"][0]["token_ids"] == text["greedy"]
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == hit
