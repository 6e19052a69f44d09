"""Flows of the anthropic client that test_messages.py does not have."""

import asyncio

import pytest

from servers import ANSWER_S, SDK_KEY, anthropic
from sdk import ALIAS, ANSWER, ASK, IMAGE, SEEN, TIME, TOOL, failing_first

COLD = {"temperature": 0}
FIELDS = {"model": "canary", "max_tokens": 60, "extra_body": COLD}
FUNCTION = {"name": "get_time", "description": "Local time of a city.", "input_schema": TOOL["function"]["parameters"]}


def connect(server, kind="Anthropic", **options):
    return getattr(anthropic, kind)(**{"base_url": server.url, "api_key": SDK_KEY, "max_retries": 0, "timeout": ANSWER_S, **options})


@pytest.fixture(scope="module")
def api(sdk):
    with connect(sdk) as c:
        yield c


def text(message):
    return "".join(b.text for b in message.content if b.type == "text")


def test_async(sdk):
    async def flow():
        async with connect(sdk, "AsyncAnthropic") as c:
            whole = await asyncio.gather(*[c.messages.create(messages=ASK, **FIELDS) for _ in range(2)])
            async with c.messages.stream(messages=ASK, **FIELDS) as stream:
                return [text(m) for m in whole] + ["".join([t async for t in stream.text_stream])]
    assert asyncio.run(flow()) == [ANSWER] * 3


def test_raw_events(api):
    kinds = [e.type for e in api.messages.create(messages=ASK, stream=True, **FIELDS)]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]


def test_a_bearer_token(sdk):
    with connect(sdk, api_key=None, auth_token=SDK_KEY) as c:
        assert text(c.messages.create(messages=ASK, **FIELDS)) == ANSWER


def test_beta_and_counting(api):
    n = api.beta.messages.count_tokens(model=ALIAS, messages=ASK, tools=[FUNCTION], betas=["token-counting-2024-11-01"])
    m = api.beta.messages.create(messages=ASK, tools=[FUNCTION], betas=["interleaved-thinking-2025-05-14"], **FIELDS)
    u = m.usage
    assert n.input_tokens == u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens


def test_an_image(api):
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE.partition(",")[2]}
    parts = [{"type": "image", "source": source}, {"type": "text", "text": "What do you see?"}]
    assert text(api.messages.create(messages=[{"role": "user", "content": parts}], **FIELDS)) == SEEN


def test_many_turns_with_a_tool(api):
    """Blocks go back as the client has them; a turn finds the ones before in the cache."""
    system = [{"type": "text", "text": "You answer in one sentence. " * 8, "cache_control": {"type": "ephemeral"}}]
    messages, read = [], []
    for city in ["Lima", "Oslo", "Rome", "Cairo"]:
        messages.append({"role": "user", "content": f"Tell me the time in {city}."})
        m = api.messages.create(messages=messages, system=system, tools=[FUNCTION], **FIELDS)
        messages.append({"role": "assistant", "content": m.content})
        read.append(m.usage.cache_read_input_tokens)
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": "15:20"} for b in m.content if b.type == "tool_use"]
        if results:
            messages.append({"role": "user", "content": results})
            m = api.messages.create(messages=messages, system=system, tools=[FUNCTION], **FIELDS)
            messages.append({"role": "assistant", "content": m.content})
    assert any(b.type == "tool_use" for m in messages if m["role"] == "assistant" for b in m["content"])
    assert read == sorted(read) and read[-1] > 0


def test_errors(sdk, api):
    with pytest.raises(anthropic.AuthenticationError):
        connect(sdk, api_key="sk-of-another").messages.create(messages=ASK, **FIELDS)
    with pytest.raises(anthropic.NotFoundError) as e:
        api.messages.create(**{**FIELDS, "model": "absent"}, messages=ASK)
    assert e.value.body["error"]["type"] == "not_found_error" and e.value.request_id
    with pytest.raises(anthropic.BadRequestError):
        api.messages.create(messages=[], **FIELDS)


def test_retries(sdk):
    with failing_first(sdk, 2, 529) as (url, sent):
        with connect(sdk, base_url=url, max_retries=2) as c:
            assert text(c.messages.create(messages=ASK, **FIELDS)) == ANSWER
        assert sent == [529, 529, 200]


def test_a_closed_stream_ends_its_request(sdk, api):
    fields = {**FIELDS, "max_tokens": 20000, "extra_body": {**COLD, "ignore_eos": True}}
    with api.messages.stream(messages=ASK, **fields) as stream:
        assert next(iter(stream))
    sdk.wait_idle()
