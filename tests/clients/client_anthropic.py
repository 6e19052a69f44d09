"""anthropic: Messages."""

import anthropic

from sdk import ASK, ENDLESS, EXTRACT, FOREVER, LONG, Order, TOOL

PACKAGE = "anthropic"
OVERFLOW = anthropic.BadRequestError
FUNCTION = {"name": "get_time", "description": "Local time of a city.", "input_schema": TOOL["function"]["parameters"]}


def messages(at):
    return anthropic.Anthropic(base_url=at.url, api_key=at.key, max_retries=0).messages


def fields(at, more=None, **fields):
    return {"model": at.model, "messages": ASK, "max_tokens": 60, "extra_body": {"temperature": 0, **(more or {})}, **fields}


def hello(at):
    return messages(at).create(**fields(at)).content[0].text


def stream(at):
    with messages(at).stream(**fields(at)) as s:
        return list(s.text_stream)


def tools(at):
    reply = messages(at).create(**fields(at, tools=[FUNCTION], tool_choice={"type": "any"}, max_tokens=200))
    call = next(b for b in reply.content if b.type == "tool_use")
    return call.name, call.input


def structured(at):
    return messages(at).parse(**fields(at, messages=[{"role": "user", "content": EXTRACT}], output_format=Order,
                                       max_tokens=200)).parsed_output


def overflow(at):
    messages(at).create(**fields(at, messages=[{"role": "user", "content": LONG}]))


def cancel(at):
    with messages(at).stream(**fields(at, FOREVER, max_tokens=ENDLESS)) as s:
        next(iter(s.text_stream))
