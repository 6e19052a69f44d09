"""Forced tools and structured output, through each client that the environment has. Constraints make the
bundled model write what it would not write otherwise."""

import asyncio
import importlib.util
import json
import typing

import pydantic
import pytest

from servers import ANSWER_S, SDK_KEY, openai
from sdk import ASK, MKDIR, TIME, TOOL

GREEDY = {"model": "canary", "temperature": 0}
NAMED = {"type": "function", "function": {"name": "get_time"}}
ORDER = "Extract JSON with item, quantity and price: 18 of pencil at 37.75 each."


class Order(pydantic.BaseModel):
    item: typing.Literal["pencil", "pen"]
    quantity: int = pydantic.Field(ge=0, le=99)  # the bundled model writes digits up to its limit
    paid: bool


class Choice(pydantic.BaseModel):
    """The anthropic client leaves bounds of numbers out of the schema."""
    item: typing.Literal["pencil", "pen"]
    paid: bool


class Time(pydantic.BaseModel):
    """Local time of a city."""
    city: str = pydantic.Field(max_length=20)


@pytest.fixture(scope="module")
def api(sdk):
    with openai.OpenAI(base_url=sdk.url + "/v1", api_key=SDK_KEY, max_retries=0, timeout=ANSWER_S) as c:
        yield c


def needs(package):
    return pytest.mark.skipif(not importlib.util.find_spec(package), reason=f"{package} is not in this environment")


def is_call(call, name="get_time"):
    return call.function.name == name and set(json.loads(call.function.arguments)) == {"city"}


# ---- openai ----

@pytest.mark.parametrize("choice", ["required", NAMED])
def test_openai_forced(api, choice):
    reply = api.chat.completions.create(messages=ASK, tools=[TOOL], tool_choice=choice, max_tokens=200, **GREEDY).choices[0]
    assert reply.finish_reason == "tool_calls" and all(is_call(c) for c in reply.message.tool_calls)
    with api.chat.completions.stream(messages=ASK, tools=[TOOL], tool_choice=choice, max_tokens=200, **GREEDY) as stream:
        assert stream.get_final_completion().choices[0].message.tool_calls[0].function.arguments \
            == reply.message.tool_calls[0].function.arguments


def test_openai_parse(api):
    for fields in {"messages": [{"role": "user", "content": ORDER}]}, {"messages": ASK}:
        reply = api.chat.completions.parse(response_format=Order, max_tokens=200, **fields, **GREEDY)
        assert isinstance(reply.choices[0].message.parsed, Order)
    with api.chat.completions.stream(messages=ASK, response_format=Order, max_tokens=200, **GREEDY) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Order)


def test_openai_parsed_tools(api):
    tool = openai.pydantic_function_tool(Time)
    choice = {"type": "function", "function": {"name": "Time"}}
    reply = api.chat.completions.parse(messages=ASK, tools=[tool], tool_choice=choice, max_tokens=200, **GREEDY)
    assert isinstance(reply.choices[0].message.tool_calls[0].function.parsed_arguments, Time)


def test_openai_json_object(api):
    reply = api.chat.completions.create(messages=ASK, response_format={"type": "json_object"}, max_tokens=400, **GREEDY)
    choice = reply.choices[0]
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)
    assert choice.message.content.lstrip().startswith("{")


def test_openai_responses(api):
    fields = {"model": "canary", "temperature": 0, "store": False, "max_output_tokens": 200}
    assert isinstance(api.responses.parse(input=MKDIR, text_format=Order, **fields).output_parsed, Order)
    tool = {"type": "function", **TOOL["function"], "strict": True}
    for choice in "required", {"type": "function", "name": "get_time"}:
        output = api.responses.create(input=MKDIR, tools=[tool], tool_choice=choice, **fields).output
        assert [o.name for o in output if o.type == "function_call"][0] == "get_time"


def test_openai_unsupported_schema(api):
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "string"}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        api.chat.completions.create(messages=ASK, response_format=form, **GREEDY)


# ---- anthropic ----

@needs("anthropic")
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_time"}])
def test_anthropic_forced(sdk, choice):
    import anthropic
    function = {"name": "get_time", "description": "Time.", "input_schema": TOOL["function"]["parameters"]}
    with anthropic.Anthropic(base_url=sdk.url, api_key=SDK_KEY, max_retries=0, timeout=ANSWER_S) as c:
        m = c.messages.create(model="canary", max_tokens=200, messages=ASK, tools=[function], tool_choice=choice,
                              extra_body={"temperature": 0})
    assert m.stop_reason == "tool_use" and [b.name for b in m.content if b.type == "tool_use"][0] == "get_time"


@needs("anthropic")
def test_anthropic_parse(sdk):
    import anthropic
    with anthropic.Anthropic(base_url=sdk.url, api_key=SDK_KEY, max_retries=0, timeout=ANSWER_S) as c:
        m = c.messages.parse(model="canary", max_tokens=200, messages=ASK, output_format=Choice,
                             extra_body={"temperature": 0})
    assert isinstance(m.parsed_output, Choice)


# ---- litellm ----

@needs("litellm")
def test_litellm(sdk):
    import litellm
    at = {"model": "openai/canary", "api_base": sdk.url + "/v1", "api_key": SDK_KEY, "temperature": 0, "max_tokens": 200}
    for choice in "required", NAMED:
        reply = litellm.completion(messages=ASK, tools=[TOOL], tool_choice=choice, **at)
        assert is_call(reply.choices[0].message.tool_calls[0])
    reply = litellm.completion(messages=ASK, response_format=Order, **at)
    assert Order.model_validate_json(reply.choices[0].message.content)


# ---- LangChain ----

@needs("langchain_openai")
@pytest.mark.parametrize("responses", [False, True])
def test_langchain(sdk, responses):
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(base_url=sdk.url + "/v1", api_key=SDK_KEY, model="canary", temperature=0, max_retries=0,
                      max_tokens=200, timeout=ANSWER_S, use_responses_api=responses)
    for choice in "any", "Time":
        assert chat.bind_tools([Time], tool_choice=choice).invoke(MKDIR).tool_calls[0]["name"] == "Time"
    for method in "json_schema", "function_calling":
        assert isinstance(chat.with_structured_output(Order, method=method).invoke(MKDIR), Order)
    if not responses:
        raw = chat.with_structured_output(Order, method="json_schema", include_raw=True).invoke(ORDER)
        assert isinstance(raw["parsed"], Order)


# ---- openai-agents ----

@needs("agents")
@pytest.mark.parametrize("kind", ["OpenAIResponsesModel", "OpenAIChatCompletionsModel"])
def test_agents(sdk, kind):
    import agents
    agents.set_tracing_disabled(True)

    @agents.function_tool
    def get_time(city: str) -> str:
        """Local time of a city."""
        return "15:20"

    def agent(choice=None, **more):
        client = openai.AsyncOpenAI(base_url=sdk.url + "/v1", api_key=SDK_KEY, max_retries=0, timeout=ANSWER_S)
        settings = agents.ModelSettings(temperature=0, max_tokens=1500, tool_choice=choice)
        return agents.Agent(name="helper", model=getattr(agents, kind)("canary", openai_client=client),
                            model_settings=settings, **more)

    async def flow():
        for choice in "required", "get_time":
            forced = agent(choice, tools=[get_time], tool_use_behavior="stop_on_first_tool")
            assert (await agents.Runner.run(forced, MKDIR)).final_output == "15:20"
        assert isinstance((await agents.Runner.run(agent(output_type=Order), ORDER)).final_output, Order)
    asyncio.run(flow())
