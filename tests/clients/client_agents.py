"""openai-agents, on chat completions."""

import asyncio

import agents
import openai
from agents import Agent, ModelSettings, Runner, function_tool

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "openai-agents"
MODULE = "agents"
OVERFLOW = openai.BadRequestError
CALLS = []


@function_tool
def get_time(city: str) -> str:
    """Local time of a city."""
    CALLS.append(("get_time", {"city": city}))
    return "15:20"


def agent(at, settings=None, **options):
    agents.set_tracing_disabled(True)
    client = openai.AsyncOpenAI(base_url=at.base, api_key=at.key, max_retries=0)
    model = agents.OpenAIChatCompletionsModel(model=at.model, openai_client=client)
    settings = ModelSettings(**{"temperature": 0, "max_tokens": 60, **(settings or {})})
    return Agent(name="helper", model=model, model_settings=settings, **options)


def run(starting, text=MKDIR):
    return asyncio.run(Runner.run(starting, text)).final_output


def is_text(event):
    return event.type == "raw_response_event" and event.data.type == "response.output_text.delta"


def hello(at):
    return run(agent(at))


def stream(at):
    async def flow():
        events = Runner.run_streamed(agent(at), MKDIR).stream_events()
        return [e.data.delta async for e in events if is_text(e)]
    return asyncio.run(flow())


def tools(at):
    CALLS.clear()
    forced = {"tool_choice": "required", "max_tokens": 200}
    assert run(agent(at, forced, tools=[get_time], tool_use_behavior="stop_on_first_tool")) == "15:20"
    return CALLS[0]


def structured(at):
    return run(agent(at, {"max_tokens": 200}, output_type=Order), EXTRACT)


def overflow(at):
    run(agent(at), LONG)


def cancel(at):
    async def flow():
        result = Runner.run_streamed(agent(at, {"max_tokens": ENDLESS, "extra_body": FOREVER}), MKDIR)
        async for e in result.stream_events():
            if is_text(e):
                result.cancel()
    asyncio.run(flow())
