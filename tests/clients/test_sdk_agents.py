"""Flows of openai-agents, on Responses and on chats."""

import asyncio

import openai
import pytest

import sdk as _  # before agents are used: they would send traces
import agents
from agents import Agent, ModelSettings, RunConfig, Runner, function_tool

from servers import ANSWER_S, SDK_KEY
from sdk import ANSWER, IMAGE, MKDIR, SEEN, TIME

agents.set_tracing_disabled(True)
SETTINGS = {"temperature": 0, "max_tokens": 60}
KINDS = {"responses": agents.OpenAIResponsesModel, "chats": agents.OpenAIChatCompletionsModel}
CALLED = []
LOOP = asyncio.new_event_loop()  # one, as its client keeps connections from one run to the next
wait = LOOP.run_until_complete


@function_tool
def get_time(city: str) -> str:
    """Local time of a city."""
    CALLED.append(city)
    return "15:20"


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def agent(server, kind, settings=None, **options):
    client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=SDK_KEY, max_retries=0, timeout=ANSWER_S)
    name = options.pop("model", "canary")
    settings = ModelSettings(**{**SETTINGS, **(settings or {})})
    return Agent(name="helper", model=kind(model=name, openai_client=client), model_settings=settings, **options)


def run(starting, text=MKDIR, **options):
    return wait(Runner.run(starting, text, **options))


def stopping(server, kind, **options):
    """An agent whose tool's result is its answer: the bundled model seldom ends after one."""
    return agent(server, kind, tools=[get_time], tool_use_behavior="stop_on_first_tool", **options)


def test_run(sdk, kind):
    result = run(agent(sdk, kind))
    assert result.final_output == ANSWER and result.raw_responses[0].usage.output_tokens > 3


def test_stream(sdk, kind):
    async def flow():
        result = Runner.run_streamed(agent(sdk, kind), MKDIR)
        kinds = [e.type async for e in result.stream_events()]
        return kinds, result.final_output
    kinds, output = wait(flow())
    assert output == ANSWER and {"raw_response_event", "run_item_stream_event"} <= set(kinds)


def test_a_tool(sdk, kind):
    """Its schema is strict."""
    CALLED.clear()
    assert run(stopping(sdk, kind), TIME).final_output == "15:20" and CALLED == ["Lima"]


def test_a_tool_and_a_turn_after_it(sdk, kind):
    CALLED.clear()
    ending = {"extra_body": {"stop": ["15:20"]}}  # the bundled model repeats a tool's result up to its limit
    try:
        turns = run(agent(sdk, kind, ending, tools=[get_time]), TIME, max_turns=3).raw_responses
    except agents.MaxTurnsExceeded as e:
        turns = e.run_data.raw_responses
    assert len(turns) >= 2 and CALLED


def test_a_tool_in_a_stream(sdk, kind):
    async def flow():
        result = Runner.run_streamed(stopping(sdk, kind), TIME)
        names = [e.name async for e in result.stream_events() if e.type == "run_item_stream_event"]
        return names, result.final_output
    names, output = wait(flow())
    assert output == "15:20" and "tool_called" in names and "tool_output" in names


def test_instructions_and_history(sdk, kind):
    helper = agent(sdk, kind, instructions="You are brief.")
    first = run(helper)
    again = run(helper, first.to_input_list() + [{"role": "user", "content": "What does ls do?"}])
    assert again.final_output and len(again.to_input_list()) > len(first.to_input_list())


def test_a_session(sdk, kind):
    session = agents.SQLiteSession("one")
    for question in MKDIR, "What does ls do?", "What does cp do?":
        assert run(agent(sdk, kind), question, session=session).final_output
    assert len(wait(session.get_items())) == 6


def test_previous_response(sdk):
    helper = agent(sdk, agents.OpenAIResponsesModel)
    first = run(helper)
    second = run(helper, "What does ls do?", previous_response_id=first.last_response_id)
    assert second.final_output and second.raw_responses[0].usage.input_tokens > first.raw_responses[0].usage.input_tokens


def test_image(sdk, kind):
    parts = [{"type": "input_image", "image_url": IMAGE, "detail": "auto"}, {"type": "input_text", "text": "What do you see?"}]
    assert run(agent(sdk, kind), [{"role": "user", "content": parts}]).final_output == SEEN


def test_an_agent_as_a_tool(sdk, kind):
    teller = agent(sdk, kind).as_tool("get_time", "Local time of a city.")
    outer = agent(sdk, kind, tools=[teller], tool_use_behavior="stop_on_first_tool")
    assert isinstance(run(outer, TIME).final_output, str)


def test_a_handoff_is_offered(sdk, kind):
    other = agent(sdk, kind)
    assert run(agent(sdk, kind, handoffs=[other])).final_output


def test_guardrail(sdk, kind):
    @agents.input_guardrail
    async def refuse(context, starting, text):
        return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)
    with pytest.raises(agents.InputGuardrailTripwireTriggered):
        run(agent(sdk, kind, input_guardrails=[refuse]))
    sdk.wait_idle()


def test_reasoning(sdk, kind):
    effort = {"reasoning": openai.types.shared.Reasoning(effort="low"), "max_tokens": 300}
    assert run(agent(sdk, kind, effort)).raw_responses[0].usage.output_tokens_details.reasoning_tokens > 0


def test_errors(sdk, kind):
    with pytest.raises(openai.NotFoundError):
        run(agent(sdk, kind, model="absent"), run_config=RunConfig(tracing_disabled=True))
    with pytest.raises(openai.BadRequestError):
        run(agent(sdk, kind, {"temperature": 9}))


def test_a_cancelled_stream_ends_its_request(sdk, kind):
    async def flow():
        long = agent(sdk, kind, {"max_tokens": 20000, "extra_body": {"ignore_eos": True}})
        result = Runner.run_streamed(long, MKDIR)
        async for event in result.stream_events():
            result.cancel()
    wait(flow())
    sdk.wait_idle()
