"""Prompts that are lists of token ids: the ids reach the model unchanged, up to the context's length. Texts
whose ids the model does not have."""

import json

import pytest

from conftest import FEW_PAGES, MODEL, Server, serving
from hostile_files import copy_of


def test_ids_are_the_prompt_that_their_text_is(server):
    text = "What does mkdir do? It makes"
    ids = server.post("/tokenize", content=text).json()["tokens"]
    fields = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
    named, plain = (server.complete(prompt, **fields).json() for prompt in (ids, text))
    assert len(ids) > 4 and named["usage"]["prompt_tokens"] == len(ids)
    assert named["choices"][0]["token_ids"] == plain["choices"][0]["token_ids"]
    assert named["choices"][0]["prompt_token_ids"] == ids


def test_as_many_ids_as_the_context_has_leave_no_room_for_an_answer(server):
    most = server.http.get("/v1/models").json()["data"][0]["max_model_len"]
    for count, says in ((most, "at least one of them for the reply"), (most + 1, f"the prompt alone has more than {most}")):
        reply = server.complete([5] * count, max_tokens=1)
        assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
        assert says in reply.json()["error"]["message"]


FAR, MARKER = {"id": 8192, "content": "<far>"}, "</think>"


@pytest.fixture(scope="module")
def beyond(tmp_path_factory):
    """A tokenizer with two tokens that the model has no embedding for: <far>, and the end of reasoning."""
    folder = copy_of(tmp_path_factory.mktemp("beyond") / "canary", MODEL, "tokenizer.json")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    marker = next(t for t in tokenizer["added_tokens"] if t["content"] == MARKER)
    tokenizer["added_tokens"].append(marker | FAR)
    marker["id"] = 9000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))

    class Beyond(Server):
        def arguments(self):
            return [str(folder), "--embeddings", FEW_PAGES]

    with serving(kind=Beyond) as s:
        yield s


TEXT = "say <far> now"
MESSAGES = [{"role": "user", "content": TEXT}]


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", {"prompt": TEXT}),
    ("/v1/completions", {"prompt": ["hello", TEXT]}),
    ("/v1/chat/completions", {"messages": MESSAGES}),
    ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 4}),
    ("/v1/responses", {"input": TEXT}),
    ("/v1/embeddings", {"input": ["a"] * 100 + [TEXT]}),
])
def test_a_text_with_a_token_that_the_model_lacks_is_refused_by_name(beyond, path, body):
    reply = beyond.post(path, model="canary", **body)
    assert reply.status_code == 400
    assert 'the token "<far>" of the tokenizer with the id 8192, but the largest token id of the model "canary" is 8191' in reply.json()["error"]["message"]


def test_other_texts_of_that_tokenizer_are_answered(beyond):
    assert beyond.post("/tokenize", prompt=TEXT).json()["tokens"][3] == 8192
    assert beyond.post("/v1/messages/count_tokens", model="canary", messages=MESSAGES).json()["input_tokens"] > 4
    assert beyond.complete(TEXT, max_tokens=2, truncate_prompt_tokens=1).status_code == 200
    assert beyond.complete("say", max_tokens=4, stop=["<far>"]).status_code == 200
    # A reranker's form has the other token, and the client's texts match no special tokens.
    reply = beyond.post("/v1/rerank", model="canary", query="a", documents=["b", TEXT])
    assert reply.status_code == 400 and f'the token "{MARKER}"' in reply.json()["error"]["message"]


def test_a_token_that_the_model_lacks_stands_in_a_grammar_as_its_characters(beyond):
    tag = {"type": "tag", "begin": "<far>", "content": {"type": "const_string", "value": "x"}, "end": "<far>"}
    wanted = {"structural_tag": {"type": "structural_tag", "format": tag}}
    reply = beyond.complete("say", max_tokens=60, structured_outputs=wanted)
    assert reply.json()["choices"][0]["text"] == "<far>x<far>"


def test_a_budget_of_reasoning_is_ignored_where_the_model_cannot_end_it(beyond):
    reply = beyond.chat("Count.", max_tokens=4, thinking_token_budget=2, chat_template_kwargs={"enable_thinking": True})
    assert reply.status_code == 200 and reply.headers["x-ignored-fields"] == "thinking_token_budget"
