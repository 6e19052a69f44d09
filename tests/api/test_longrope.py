"""A longrope takes its factors by the context that the server runs with, and the log says which."""
import json

import pytest

from conftest import FEW_PAGES, TOP, Server, serving, until

PHI = TOP / "tests/golden/data/phi3"
TEXT = json.loads((PHI / "golden.json").read_text())["text"]


class Phi(Server):
    def arguments(self):
        return [str(PHI), FEW_PAGES]


@pytest.mark.parametrize("context, factors", [(32, "short"), (200, "long")])
def test_the_context_decides_the_factors(context, factors):
    with serving("--max-model-len", context, kind=Phi) as s:
        until(lambda: s.said(f"longrope={factors}"))
        if factors == "short":
            return
        # The reference's prompt is longer than the short factors' context.
        reply = s.post("/v1/completions", prompt=TEXT["prompt"], max_tokens=32, temperature=0, ignore_eos=True,
                       return_token_ids=True)
        assert reply.json()["choices"][0]["token_ids"] == TEXT["greedy"]
