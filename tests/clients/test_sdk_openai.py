"""Flows of the openai client that test_openai.py and test_responses.py do not have. They also run with the
client's release 2, which other packages require."""

import asyncio
import json

import pytest

from servers import ANSWER_S, GOLDEN, SDK_KEY, openai
from sdk import ALIAS, ANSWER, ASK, IMAGE, LONG, LOOK, MKDIR, SEEN, TIME, TOOL, failing_first

GREEDY = {"model": "canary", "temperature": 0}


def connect(server, kind="OpenAI", **options):
    return getattr(openai, kind)(**{"base_url": server.url + "/v1", "api_key": SDK_KEY, "max_retries": 0, "timeout": ANSWER_S, **options})


@pytest.fixture(scope="module")
def api(sdk):
    with connect(sdk) as c:
        yield c


def later(sdk, flow):
    """The result of `flow` with a client of asyncio."""
    async def run():
        async with connect(sdk, "AsyncOpenAI") as c:
            return await flow(c)
    return asyncio.run(run())


def test_async(sdk):
    async def flow(c):
        several = [c.chat.completions.create(messages=ASK, **GREEDY) for _ in range(3)]
        return [r.choices[0].message.content for r in await asyncio.gather(*several)]
    assert later(sdk, flow) == [ANSWER] * 3


def test_async_stream(sdk):
    async def flow(c):
        stream = await c.chat.completions.create(messages=ASK, stream=True, **GREEDY)
        return "".join([e.choices[0].delta.content or "" async for e in stream])
    assert later(sdk, flow) == ANSWER


def test_stream_helper(api):
    with api.chat.completions.stream(messages=ASK, **GREEDY) as stream:
        kinds = {e.type for e in stream}
        last = stream.get_final_completion()
    assert last.choices[0].message.content == ANSWER and kinds >= {"chunk", "content.delta", "content.done"}


def test_stream_helper_with_a_tool(api):
    with api.chat.completions.stream(messages=[{"role": "user", "content": TIME}], tools=[TOOL], **GREEDY) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        last = stream.get_final_completion()
    assert [json.loads(e.arguments) for e in done] == [{"city": "Lima"}]
    assert last.choices[0].finish_reason == "tool_calls" and last.choices[0].message.tool_calls[0].function.name == "get_time"


def test_a_tool_run_to_its_end(api):
    messages = [{"role": "user", "content": TIME}]
    for _ in range(3):
        message = api.chat.completions.create(messages=messages, tools=[TOOL], max_tokens=60, **GREEDY).choices[0].message
        messages.append(message)
        for call in message.tool_calls or []:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "15:20"})
        if not message.tool_calls:
            break
    assert messages[1].tool_calls and messages[-1].content


def test_a_name_with_a_slash(api):
    assert ALIAS in [m.id for m in api.models.list()]
    assert api.models.retrieve(ALIAS).id == ALIAS
    assert api.chat.completions.create(model=ALIAS, messages=ASK, max_tokens=1).model == ALIAS


def test_several_choices_and_a_seed(api):
    fields = {"model": "canary", "messages": ASK, "n": 3, "seed": 7, "temperature": 1.5, "max_tokens": 8}
    first, second = (api.chat.completions.create(**fields) for _ in range(2))
    assert [c.index for c in first.choices] == [0, 1, 2]
    assert [c.message.content for c in first.choices] == [c.message.content for c in second.choices]


def test_logprobs(api):
    reply = api.chat.completions.create(messages=ASK, logprobs=True, top_logprobs=3, **GREEDY)
    entries = reply.choices[0].logprobs.content
    assert b"".join(bytes(e.bytes) for e in entries).decode().startswith(ANSWER)
    assert all(len(e.top_logprobs) == 3 and e.top_logprobs[0].token == e.token and e.logprob <= 0 for e in entries)


def test_stop_and_limit(api):
    cut = api.chat.completions.create(messages=ASK, stop=[" - "], **GREEDY).choices[0]
    assert cut.finish_reason == "stop" and cut.message.content == "mkdir(2)"
    short = api.chat.completions.create(messages=ASK, max_completion_tokens=2, **GREEDY)
    assert short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 2


def test_an_image(api):
    assert api.chat.completions.create(messages=LOOK, **GREEDY).choices[0].message.content == SEEN
    parts = [{"type": "input_image", "image_url": IMAGE, "detail": "auto"}, {"type": "input_text", "text": "What do you see?"}]
    r = api.responses.create(model="canary", temperature=0, input=[{"role": "user", "content": parts}], store=False)
    assert r.output_text == SEEN


def test_many_turns(api):
    """Each turn finds the turns before it in the prefix cache."""
    messages, cached = [], 0
    for word in ["ls", "mkdir", "chsh", "cat", "rm", "cp"]:
        messages.append({"role": "user", "content": f"What does {word} do?"})
        reply = api.chat.completions.create(messages=messages, max_tokens=40, **GREEDY)
        assert reply.usage.prompt_tokens_details.cached_tokens >= cached
        cached = reply.usage.prompt_tokens_details.cached_tokens
        messages.append(reply.choices[0].message)
    assert cached > 0


def test_effort(api):
    question = next(c for c in GOLDEN["cases"] if c["enable_thinking"] and len(c["messages"]) == 1)["messages"]
    on = api.chat.completions.create(messages=question, reasoning_effort="low", **GREEDY)
    off = api.chat.completions.create(messages=question, reasoning_effort="none", **GREEDY)
    assert on.usage.completion_tokens_details.reasoning_tokens > 0 and on.choices[0].message.reasoning_content
    assert off.usage.completion_tokens_details.reasoning_tokens == 0


def test_completions(api):
    both = api.completions.create(prompt=["What does ls", "What does mkdir"], max_tokens=4, temperature=0, model="canary")
    assert [c.index for c in both.choices] == [0, 1]
    scored = api.completions.create(prompt="What does ls", echo=True, logprobs=1, max_tokens=0, model="canary")
    assert scored.choices[0].text == "What does ls" and scored.choices[0].logprobs.token_logprobs[0] is None


def test_vectors(api):
    """The client asks for base64, and decodes it, unless a format is named."""
    packed = api.embeddings.create(model="canary", input=["a cat", "a dog"])
    plain = api.embeddings.create(model="canary", input=["a cat", "a dog"], encoding_format="float")
    assert [d.index for d in packed.data] == [0, 1] and len(packed.data[0].embedding) == len(plain.data[0].embedding)
    assert packed.data[1].embedding == pytest.approx(plain.data[1].embedding) and packed.usage.prompt_tokens > 0


def test_errors(sdk, api):
    with pytest.raises(openai.AuthenticationError) as e:
        connect(sdk, api_key="sk-of-another").chat.completions.create(messages=ASK, **GREEDY)
    assert e.value.status_code == 401 and e.value.code == "invalid_api_key" and e.value.request_id
    with pytest.raises(openai.NotFoundError) as e:
        api.chat.completions.create(model="absent", messages=ASK)
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        api.responses.retrieve("resp_absent")
    for fields in {"messages": []}, {"messages": [{"role": "user", "content": LONG}]}, {"messages": ASK, "top_p": 7}:
        with pytest.raises(openai.BadRequestError) as e:
            api.chat.completions.create(**GREEDY, **fields)
        assert e.value.type == "invalid_request_error" and e.value.message


@pytest.mark.parametrize("status", [429, 503])
def test_retries(sdk, status):
    with failing_first(sdk, 2, status) as (url, sent):
        with connect(sdk, base_url=url + "/v1", max_retries=2) as c:
            assert c.chat.completions.create(messages=ASK, **GREEDY).choices[0].message.content == ANSWER
        assert sent == [status, status, 200]


def test_a_closed_stream_ends_its_request(sdk, api):
    fields = {"messages": ASK, "max_tokens": 20000, "extra_body": {"ignore_eos": True}, **GREEDY}
    with api.chat.completions.create(stream=True, **fields) as stream:
        assert next(iter(stream)).choices
    sdk.wait_idle()
    with pytest.raises(openai.APITimeoutError):
        api.with_options(timeout=1).chat.completions.create(**fields)
    sdk.wait_idle()


def test_headers_and_raw_bytes(api):
    raw = api.chat.completions.with_raw_response.create(messages=ASK, store=True, **GREEDY)
    assert raw.headers["x-request-id"] and raw.headers["x-ignored-fields"] == "store"
    assert raw.parse().choices[0].message.content == ANSWER
    with api.chat.completions.with_streaming_response.create(messages=ASK, stream=True, **GREEDY) as reply:
        assert list(reply.iter_lines())[-2] == "data: [DONE]"


# ---- Responses ----

FUNCTION = {"type": "function", **TOOL["function"], "strict": False}


def test_responses_in_a_chain(api):
    first = api.responses.create(model="canary", temperature=0, input=MKDIR)
    second = api.responses.create(model="canary", temperature=0, input="What does ls do?", previous_response_id=first.id)
    whole = [*ASK, *[o.model_dump() for o in first.output], {"role": "user", "content": "What does ls do?"}]
    apart = api.responses.create(model="canary", temperature=0, input=whole, store=False)
    assert second.output_text == apart.output_text and second.usage.input_tokens == apart.usage.input_tokens
    assert second.previous_response_id == first.id
    third = api.responses.create(model="canary", temperature=0, input="What does cp do?", previous_response_id=second.id)
    assert third.usage.input_tokens_details.cached_tokens > 0
    assert api.responses.retrieve(first.id).output_text == first.output_text
    assert api.responses.input_items.list(second.id).data
    for r in first, second, third:
        api.responses.delete(r.id)
    with pytest.raises(openai.NotFoundError) as e:
        api.responses.create(model="canary", input="x", previous_response_id=first.id)
    assert e.value.code == "previous_response_not_found"


def test_responses_async_stream_with_a_tool(sdk):
    async def flow(c):
        stream = await c.responses.create(model="canary", temperature=0, input=TIME, tools=[FUNCTION], stream=True, store=False)
        return [e async for e in stream]
    events = later(sdk, flow)
    assert [e.sequence_number for e in events] == list(range(len(events))) and events[-1].type == "response.completed"
    (call,) = [o for o in events[-1].response.output if o.type == "function_call"]
    assert json.loads(call.arguments) == {"city": "Lima"} == json.loads(
        "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta"))


def test_responses_tool_run_with_stored_items(api):
    fields = {"model": "canary", "temperature": 0, "tools": [FUNCTION], "max_output_tokens": 80}
    first = api.responses.create(input=TIME, **fields)
    (call,) = [o for o in first.output if o.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "15:20"}
    second = api.responses.create(input=[output], previous_response_id=first.id, **fields)
    assert second.output_text and second.usage.input_tokens > first.usage.input_tokens
    for r in first, second:
        api.responses.delete(r.id)
