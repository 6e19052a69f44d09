"""Flows of litellm: as a client of OpenAI's chats and Responses, of vLLM, and of Anthropic's Messages."""

import asyncio
import json

import litellm
import pytest

import sdk as _  # before litellm is used: it would fetch a list of prices
from servers import ANSWER_S, SDK_KEY
from sdk import ALIAS, ANSWER, ASK, LONG, LOOK, MKDIR, SEEN, TIME, TOOL, failing_first

litellm.telemetry = False
ASK_TIME = [{"role": "user", "content": TIME}]


def at(server, provider="openai", model="canary", **fields):
    url = server.url if provider == "anthropic" else server.url + "/v1"
    return {"model": f"{provider}/{model}", "api_base": url, "api_key": SDK_KEY, "timeout": ANSWER_S, "temperature": 0,
            "num_retries": 0, "max_retries": 0, **fields}


def content(reply):
    return reply.choices[0].message.content


@pytest.mark.parametrize("provider, model", [("openai", "canary"), ("hosted_vllm", "canary"), ("openai", ALIAS)])
def test_chat(sdk, provider, model):
    reply = litellm.completion(messages=ASK, **at(sdk, provider, model))
    assert content(reply) == ANSWER and reply.choices[0].finish_reason == "stop" and reply.usage.total_tokens > 10


def test_messages(sdk):
    """LiteLLM as Anthropic's provider, whole and streamed."""
    fields = at(sdk, "anthropic", max_tokens=60)
    assert content(litellm.completion(messages=ASK, **fields)) == ANSWER
    stream = litellm.completion(messages=ASK, stream=True, **fields)
    assert "".join(e.choices[0].delta.content or "" for e in stream) == ANSWER
    call = litellm.completion(messages=ASK_TIME, tools=[TOOL], **fields).choices[0].message.tool_calls[0]
    assert json.loads(call.function.arguments) == {"city": "Lima"}


def test_stream(sdk):
    chunks = list(litellm.completion(messages=ASK, stream=True, stream_options={"include_usage": True}, **at(sdk)))
    assert content(litellm.stream_chunk_builder(chunks, messages=ASK)) == ANSWER
    assert [c.usage.completion_tokens > 0 for c in chunks if getattr(c, "usage", None)] == [True]


def test_async(sdk):
    async def flow():
        whole = await litellm.acompletion(messages=ASK, **at(sdk))
        stream = await litellm.acompletion(messages=ASK, stream=True, **at(sdk))
        return content(whole), "".join([e.choices[0].delta.content or "" async for e in stream])
    assert asyncio.run(flow()) == (ANSWER, ANSWER)


def test_tools(sdk):
    reply = litellm.completion(messages=ASK_TIME, tools=[TOOL], tool_choice="auto", **at(sdk))
    (call,) = reply.choices[0].message.tool_calls
    assert reply.choices[0].finish_reason == "tool_calls" and json.loads(call.function.arguments) == {"city": "Lima"}
    chunks = list(litellm.completion(messages=ASK_TIME, tools=[TOOL], stream=True, **at(sdk)))
    (streamed,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments and streamed.function.name == "get_time"
    history = [*ASK_TIME, reply.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "15:20"}]
    assert content(litellm.completion(messages=history, tools=[TOOL], max_tokens=20, **at(sdk)))


def test_image(sdk):
    assert content(litellm.completion(messages=LOOK, **at(sdk))) == SEEN


def test_text_completion(sdk):
    reply = litellm.text_completion(prompt="What does", max_tokens=4, **at(sdk))
    assert reply.choices[0].text and reply.usage.completion_tokens == 4


def test_embedding(sdk):
    fields = {k: v for k, v in at(sdk).items() if k != "temperature"}
    reply = litellm.embedding(input=["a cat", "a dog"], **fields)
    assert len(reply.data) == 2 and len(reply.data[0]["embedding"]) > 64


def test_reasoning(sdk):
    on = litellm.completion(messages=ASK, allowed_openai_params=["reasoning_effort"], reasoning_effort="low", **at(sdk))
    assert on.choices[0].message.reasoning_content and on.usage.completion_tokens_details.reasoning_tokens > 0


def test_responses(sdk):
    first = litellm.responses(input=MKDIR, **at(sdk))
    assert first.status == "completed" and ANSWER in str(first.output)
    kinds = [e.type for e in litellm.responses(input=MKDIR, stream=True, store=False, **at(sdk))]
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"


def test_errors(sdk):
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(messages=ASK, **at(sdk, api_key="sk-of-another"))
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=ASK, **at(sdk, model="absent"))
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(messages=ASK, top_p=7, **at(sdk))
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=[{"role": "user", "content": LONG}], **at(sdk))


def test_retries(sdk):
    with failing_first(sdk, 1, 503) as (url, sent):
        fields = at(sdk, api_base=url + "/v1", num_retries=1)
        assert content(litellm.completion(messages=ASK, **fields)) == ANSWER and sent == [503, 200]


def test_many_turns(sdk):
    messages = []
    for word in ["ls", "mkdir", "chsh", "cat"]:
        messages.append({"role": "user", "content": f"What does {word} do?"})
        reply = litellm.completion(messages=messages, max_tokens=40, **at(sdk))
        messages.append(reply.choices[0].message)
    assert reply.usage.prompt_tokens_details.cached_tokens > 0


def test_router(sdk):
    """Two deployments, of which the first does not exist."""
    dead = at(sdk, api_base="http://127.0.0.1:1/v1")
    router = litellm.Router(model_list=[{"model_name": "big", "litellm_params": dead},
                                        {"model_name": "small", "litellm_params": at(sdk)}],
                            fallbacks=[{"big": ["small"]}], num_retries=0)
    assert content(router.completion(model="big", messages=ASK)) == ANSWER


def test_a_closed_stream_ends_its_request(sdk):
    stream = litellm.completion(messages=ASK, stream=True, max_tokens=20000, extra_body={"ignore_eos": True}, **at(sdk))
    assert next(iter(stream))
    stream.completion_stream.close()
    sdk.wait_idle()
