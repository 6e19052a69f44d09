"""Prompts that are lists of token ids: the ids reach the model unchanged, up to the context's length."""


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
