"""The API as users of the official client see it."""

import json

import pytest

from conftest import GOLDEN, openai

TOOLS = [{"type": "function", "function": {"name": "get_time", "description": "Local time of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
TIME = [{"role": "user", "content": "Tell me the time in Lima."}]
PAGE = [{"role": "user", "content": "What does mkdir do?"}]


def thinking(on):
    return {"chat_template_kwargs": {"enable_thinking": on}}


@pytest.mark.smoke
def test_chat(client, model):
    reply = client.chat.completions.create(model=model, messages=PAGE, temperature=0)
    assert reply.object == "chat.completion" and reply.model == model and reply.id.startswith("chatcmpl-")
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content == "mkdir(2) - create a directory."
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply._request_id == reply.id.removeprefix("chatcmpl-")


@pytest.mark.smoke
def test_chat_streamed(client, model):
    stream = client.chat.completions.create(model=model, messages=PAGE, temperature=0, stream=True,
                                            stream_options={"include_usage": True})
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "mkdir(2) - create a directory."
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0


def test_without_include_usage_no_chunk_has_usage(client, model):
    for chunk in client.chat.completions.create(model=model, messages=PAGE, temperature=0, stream=True):
        assert chunk.choices and chunk.usage is None


def test_completion(client, model):
    reply = client.completions.create(model=model, prompt="What does", temperature=0, max_tokens=5)
    assert reply.object == "text_completion" and reply.id.startswith("cmpl-")
    assert reply.choices[0].finish_reason == "length" and reply.usage.completion_tokens == 5
    streamed = client.completions.create(model=model, prompt="What does", temperature=0, max_tokens=5, stream=True)
    assert "".join(c.choices[0].text for c in streamed) == reply.choices[0].text


def test_models(client, model):
    listed = client.models.list().data
    assert [m.id for m in listed] == [model]
    one = client.models.retrieve(model)
    assert one.id == model and one.object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


@pytest.mark.smoke
def test_a_tool_call(client, model):
    reply = client.chat.completions.create(model=model, messages=TIME, tools=TOOLS, temperature=0)
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id.startswith("call_")
    assert call.function.name == "get_time" and json.loads(call.function.arguments) == {"city": "Lima"}


def test_a_tool_call_streamed(client, model):
    name, arguments, ids, reasons = "", "", [], []
    for chunk in client.chat.completions.create(model=model, messages=TIME, tools=TOOLS, temperature=0, stream=True):
        choice = chunk.choices[0]
        reasons += [choice.finish_reason] if choice.finish_reason else []
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            ids += [call.id] if call.id else []
            name += call.function.name or ""
            arguments += call.function.arguments or ""
    assert name == "get_time" and json.loads(arguments) == {"city": "Lima"}
    assert len(ids) == 1 and reasons == ["tool_calls"]


def test_a_conversation_with_a_tool(client, model, server):
    """The client's own messages go back in: what it made of the reply is what the template wants."""
    first = client.chat.completions.create(model=model, messages=TIME, tools=TOOLS, temperature=0)
    message = first.choices[0].message
    history = TIME + [message.model_dump(), {"role": "tool", "tool_call_id": message.tool_calls[0].id,
                                             "content": "15:20"}]
    second = client.chat.completions.create(model=model, messages=history, tools=TOOLS, temperature=0, max_tokens=20)
    assert second.choices[0].message.content
    rendered = server.post("/apply-template", messages=history, tools=TOOLS).json()["prompt"]
    assert "<parameter=city>\nLima\n</parameter>" in rendered
    assert "<tool_response>\n15:20\n</tool_response>" in rendered


def test_tool_choice_none_offers_none(client, model):
    fields = {"model": model, "messages": TIME, "temperature": 0, "max_tokens": 20}
    reply = client.chat.completions.create(tools=TOOLS, tool_choice="none", **fields)
    plain = client.chat.completions.create(**fields)
    assert reply.choices[0].message.tool_calls is None
    assert reply.usage.prompt_tokens == plain.usage.prompt_tokens


@pytest.mark.smoke
def test_reasoning(client, model):
    case = next(c for c in GOLDEN["cases"] if c["enable_thinking"] and len(c["messages"]) == 1)
    reply = client.chat.completions.create(model=model, messages=case["messages"], temperature=0,
                                           extra_body=thinking(True))
    message = reply.choices[0].message
    reasoning, _, content = case["greedy_text"].partition("</think>")
    assert message.reasoning_content == reasoning.strip() and message.content == content.strip()
    details = reply.usage.completion_tokens_details
    assert details.reasoning_tokens == case["greedy_ids"].index(8191)


def test_reasoning_streamed_comes_first(client, model):
    case = next(c for c in GOLDEN["cases"] if c["enable_thinking"] and len(c["messages"]) == 1)
    kinds, text = [], {"reasoning_content": "", "content": ""}
    for chunk in client.chat.completions.create(model=model, messages=case["messages"], temperature=0, stream=True,
                                                extra_body=thinking(True)):
        for kind in text:
            piece = getattr(chunk.choices[0].delta, kind, None)
            if piece:
                kinds.append(kind)
                text[kind] += piece
    assert kinds == sorted(kinds, reverse=True)
    reasoning, _, content = case["greedy_text"].partition("</think>")
    assert text == {"reasoning_content": reasoning.strip(), "content": content.strip()}


@pytest.mark.parametrize("field", [{"reasoning_effort": "none"}, {"enable_thinking": False}, thinking(False)])
def test_thinking_is_switched_off(server, field):
    fields = {"messages": PAGE, **field}
    assert server.post("/apply-template", **fields).json()["prompt"].endswith("<think>\n\n</think>\n\n")
    reply = server.post("/v1/chat/completions", temperature=0, **fields)
    assert reply.status_code == 200, reply.text
    assert reply.json()["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_thinking_is_switched_on_by_a_field_of_its_own(server):
    prompt = server.post("/apply-template", messages=PAGE, enable_thinking=True).json()["prompt"]
    assert prompt.endswith("<think>\n")


def test_errors_are_the_clients_own(client, model):
    with pytest.raises(openai.NotFoundError) as e:
        client.chat.completions.create(model="nobody", messages=PAGE)
    assert e.value.code == "model_not_found" and e.value.param == "model" and e.value.type == "invalid_request_error"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model=model, messages=PAGE, temperature=9)
    assert e.value.param == "temperature" and "from 0 to 2" in e.value.message


def test_developer_and_parts_and_extra_roles(server):
    def prompt(messages):
        return server.post("/apply-template", messages=messages).json()["prompt"]

    assert (prompt([{"role": "developer", "content": "d"}, {"role": "user", "content": "u"}]) ==
            prompt([{"role": "system", "content": "d"}, {"role": "user", "content": "u"}]))
    assert (prompt([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]) ==
            prompt([{"role": "user", "content": "ab"}]))


def test_the_reply_continues_the_final_message(client, model, server):
    start = {"role": "assistant", "content": "mkdir(1) - "}
    more = {"continue_final_message": True, "add_generation_prompt": False, **thinking(False)}
    fields = {"model": model, "messages": [*PAGE, start], "temperature": 0, "max_tokens": 12}
    prompt = server.post("/apply-template", messages=PAGE, **thinking(False)).json()["prompt"] + start["content"]
    assert server.post("/apply-template", messages=[*PAGE, start], **more).json()["prompt"] == prompt
    raw = server.complete(prompt, temperature=0, max_tokens=12).json()
    reply = client.chat.completions.create(**fields, extra_body=more)
    assert reply.choices[0].message.content == raw["choices"][0]["text"]
    assert reply.usage.prompt_tokens == raw["usage"]["prompt_tokens"]
    stream = client.chat.completions.create(**fields, stream=True, extra_body=more)
    assert "".join(c.choices[0].delta.content or "" for c in stream) == raw["choices"][0]["text"]
    parts = [*PAGE, {"role": "assistant", "content": [{"type": "text", "text": "mkdir(1)"}, {"type": "text", "text": " - "}]}]
    assert server.post("/tokenize", messages=parts, **more).json()["count"] == raw["usage"]["prompt_tokens"]
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(**fields, extra_body={"continue_final_message": True})
    assert e.value.param == "continue_final_message" and "add_generation_prompt" in e.value.message
