"""instructor, with forced tools."""

import typing

import instructor
import openai
import pydantic
from instructor.core import InstructorRetryException

from sdk import ASK, EXTRACT, LONG, Order

PACKAGE = "instructor"
OVERFLOW = InstructorRetryException
LACKS = {"hello": "it asks for objects alone", "stream": "test_sdk_instructor.py has its partial objects",
         "cancel": "it reads a stream to its end before it returns"}


class Time(pydantic.BaseModel):
    """Local time of a city."""
    city: typing.Literal["Lima", "Oslo"]


def ask(at, kind, mode=instructor.Mode.TOOLS_STRICT, **fields):
    client = instructor.from_openai(openai.OpenAI(base_url=at.base, api_key=at.key, max_retries=0), mode=mode)
    return client.chat.completions.create(response_model=kind, **{
        "model": at.model, "messages": ASK, "temperature": 0, "max_tokens": 1500, "max_retries": 1, **fields})


def tools(at):
    return "get_time", ask(at, Time, parallel_tool_calls=False).model_dump()


def structured(at):
    asked = [{"role": "user", "content": EXTRACT}]
    assert isinstance(ask(at, Order, messages=asked), Order)
    return ask(at, Order, messages=asked, mode=instructor.Mode.JSON_SCHEMA)


def overflow(at):
    ask(at, Order, messages=[{"role": "user", "content": LONG}])
