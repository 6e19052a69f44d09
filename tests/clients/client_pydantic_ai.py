"""pydantic-ai, on chat completions."""

import asyncio

from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "pydantic-ai-slim"
MODULE = "pydantic_ai"
OVERFLOW = ModelHTTPError


def agent(at, settings=None, **options):
    model = OpenAIChatModel(at.model, provider=OpenAIProvider(base_url=at.base, api_key=at.key))
    return Agent(model, model_settings={"temperature": 0, "max_tokens": 60, **(settings or {})}, **options)


def hello(at):
    return agent(at).run_sync(MKDIR).output


def stream(at):
    async def flow():
        async with agent(at).run_stream(MKDIR) as result:
            return [t async for t in result.stream_text(delta=True, debounce_by=None)]
    return asyncio.run(flow())


def tools(at):
    def get_time(city: str):
        """Local time of a city."""
        return city
    result = agent(at, {"max_tokens": 200}, output_type=ToolOutput(get_time, name="get_time")).run_sync(MKDIR)
    return "get_time", {"city": result.output}


def structured(at):
    return agent(at, {"max_tokens": 200}, output_type=NativeOutput(Order)).run_sync(EXTRACT).output


def overflow(at):
    agent(at).run_sync(LONG)


def cancel(at):
    async def flow():
        async with agent(at, {"max_tokens": ENDLESS, "extra_body": FOREVER}).run_stream(MKDIR) as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                break
            await result.cancel()
    asyncio.run(flow())
