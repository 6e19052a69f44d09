"""Models that are not as they should be: the client is told, and other requests are not touched."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import FEW_PAGES, MODEL, TOP, Server, events, refused, serving

BROKEN = 300
NOT_NUMBERS = (500, "engine_error", "not numbers", "after 0 tokens")


def damage(directory):
    """One token's embedding is NaN. The model is in BF16, and its output layer has weights of its own."""
    path = directory / "model.safetensors"
    data = bytearray(path.read_bytes())
    head = 8 + int.from_bytes(data[:8], "little")
    tensor = json.loads(data[8:head])["model.embed_tokens.weight"]
    assert tensor["dtype"] == "BF16"
    width = tensor["shape"][1]
    first = head + tensor["data_offsets"][0] + BROKEN * width * 2
    data[first:first + 2 * width] = b"\xc0\x7f" * width
    path.write_bytes(data)


@pytest.mark.smoke
def test_logits_that_are_not_numbers_are_an_error(tmp_path):
    model = shutil.copytree(TOP / "tests/golden/data/llama", tmp_path / "damaged")
    damage(model)

    class Damaged(Server):
        def arguments(self):
            return [str(model), FEW_PAGES]
    with serving("--host-cache=0", kind=Damaged) as s:
        def ask(prompt, **fields):
            return s.complete(prompt, max_tokens=8, return_token_ids=True, logit_bias={str(BROKEN): -100}, **fields)

        def ids(prompt):
            reply = ask(prompt, temperature=0)
            assert reply.status_code == 200, reply.text
            return reply.json()["choices"][0]["token_ids"]
        prompts = [[5 + i, 7, 11] * (4 * i + 3) for i in range(4)]
        alone = [ids(p) for p in prompts]
        for fields in {}, {"temperature": 0}, {"logprobs": 2}, {"n": 2}, {"stream": True}, {"top_p": 0.5}, {"top_k": 5}:
            reply = ask([BROKEN] * 70, **fields)
            if fields.get("stream") and reply.status_code == 200:  # the header goes out at the admission
                assert all(word in reply.text for word in NOT_NUMBERS[1:]) and "[DONE]" not in reply.text, reply.text
            else:
                refused(reply, *NOT_NUMBERS)
        # Beside such a request, and in the pages that it had.
        with ThreadPoolExecutor(8) as several:
            broken = [several.submit(ask, [9] * i + [BROKEN]) for i in range(4)]
            assert list(several.map(ids, prompts)) == alone
            for request in broken:
                refused(request.result(), *NOT_NUMBERS)
        assert [ids(p) for p in prompts] == alone


@pytest.mark.smoke
def test_a_template_without_tools_is_told(tmp_path):
    """Where the generic format is switched off."""
    model = tmp_path / "plain"
    model.mkdir()
    for file in MODEL.iterdir():
        (model / file.name).symlink_to(file)
    (model / "chat_template.jinja").unlink()
    (model / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")

    class Plain(Server):
        def arguments(self):
            return [str(model), FEW_PAGES, "--tool-format=none"]
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    with serving(kind=Plain) as s:
        assert s.chat(max_tokens=1, tools=[tool]).headers["x-ignored-fields"] == "tools"
        for fields in {}, {"tools": []}, {"tools": [tool], "tool_choice": "none"}:
            assert "x-ignored-fields" not in s.chat(max_tokens=1, **fields).headers


@pytest.mark.smoke
def test_ids_that_may_not_be_drawn_before_min_tokens(server):
    end = {"allowed_token_ids": [5], "stop_token_ids": [5], "max_tokens": 4}
    refused(server.complete("a", min_tokens=1, **end), 400, "invalid_value", "allowed_token_ids", "min_tokens (1)")
    assert server.complete("a", **end).json()["choices"][0]["finish_reason"] == "stop"
    assert events(server.complete("a", stream=True, **end).text)
