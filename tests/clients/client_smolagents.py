"""smolagents: OpenAIModel."""

import json

import openai
from smolagents import OpenAIModel, tool
from smolagents.models import ChatMessage

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "smolagents"
OVERFLOW = openai.BadRequestError


@tool
def get_time(city: str) -> str:
    """Local time of a city.

    Args:
        city: its name
    """
    return "15:20"


def model(at, **options):
    return OpenAIModel(model_id=at.model, api_base=at.base, api_key=at.key, client_kwargs={"max_retries": 0},
                       **{"temperature": 0, "max_tokens": 60, **options})


def said(text):
    return [ChatMessage(role="user", content=[{"type": "text", "text": text}])]


def hello(at):
    return model(at).generate(said(MKDIR)).content


def stream(at):
    return [d.content for d in model(at).generate_stream(said(MKDIR)) if d.content]


def tools(at):
    call = model(at, max_tokens=200).generate(said(MKDIR), tools_to_call_from=[get_time]).tool_calls[0].function
    return call.name, json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments


def structured(at):
    form = {"type": "json_schema", "json_schema": {"name": "Order", "schema": Order.model_json_schema(), "strict": True}}
    return Order.model_validate_json(model(at, max_tokens=200).generate(said(EXTRACT), response_format=form).content)


def overflow(at):
    model(at).generate(said(LONG))


def cancel(at):
    s = model(at, max_tokens=ENDLESS, extra_body=FOREVER).generate_stream(said(MKDIR))
    next(d for d in s if d.content)
    s.close()
