"""instructor, with forced tools."""

import asyncio
import typing

import instructor
import openai
import pydantic
from instructor.core import InstructorRetryException

from sdk import ASK, ENDLESS, EXTRACT, LONG, Order

PACKAGE = "instructor"
OVERFLOW = InstructorRetryException
OWN_PROMPT = True
LACKS = {"hello": "it asks for objects alone"}


class Time(pydantic.BaseModel):
    """Local time of a city."""
    city: typing.Literal["Lima", "Oslo"]


class Numbers(pydantic.BaseModel):
    numbers: list[int] = pydantic.Field(min_length=ENDLESS)


def completions(at, mode=instructor.Mode.TOOLS_STRICT, api=openai.OpenAI):
    return instructor.from_openai(api(base_url=at.base, api_key=at.key, max_retries=0), mode=mode).chat.completions


def fields(at, kind, **more):
    return {"response_model": kind, "model": at.model, "messages": ASK, "temperature": 0, "max_tokens": 1500,
            "max_retries": 1, **more}


def ask(at, kind, mode=instructor.Mode.TOOLS_STRICT, **more):
    return completions(at, mode).create(**fields(at, kind, **more))


def stream(at):
    """The object as it grows."""
    parts = list(completions(at).create_partial(**fields(at, Order, messages=[{"role": "user", "content": EXTRACT}])))
    assert None not in parts[-1].model_dump().values()
    return parts


def tools(at):
    return "get_time", ask(at, Time, parallel_tool_calls=False).model_dump()


def structured(at):
    asked = [{"role": "user", "content": EXTRACT}]
    assert isinstance(ask(at, Order, messages=asked), Order)
    return ask(at, Order, messages=asked, mode=instructor.Mode.JSON_SCHEMA)


def overflow(at):
    ask(at, Order, messages=[{"role": "user", "content": LONG}])


def cancel(at):
    """A task, because it reads a stream to its end before it returns."""
    async def leave():
        asked = fields(at, Numbers, max_tokens=ENDLESS)
        task = asyncio.create_task(completions(at, instructor.Mode.JSON_SCHEMA, openai.AsyncOpenAI).create(**asked))
        while not at.server.requests("decoding"):
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
