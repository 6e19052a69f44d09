"""litellm: its provider openai."""

import json

import litellm

from sdk import ASK, ENDLESS, EXTRACT, FOREVER, LONG, Order, TOOL

PACKAGE = "litellm"
OVERFLOW = litellm.ContextWindowExceededError


def ask(at, **fields):
    return litellm.completion(**{"model": "openai/" + at.model, "api_base": at.base, "api_key": at.key, "messages": ASK,
                                 "temperature": 0, "max_tokens": 60, "num_retries": 0, "max_retries": 0, **fields})


def hello(at):
    return ask(at).choices[0].message.content


def stream(at):
    return [e.choices[0].delta.content for e in ask(at, stream=True) if e.choices[0].delta.content]


def tools(at):
    call = ask(at, tools=[TOOL], tool_choice="required", max_tokens=200).choices[0].message.tool_calls[0].function
    return call.name, json.loads(call.arguments)


def structured(at):
    reply = ask(at, messages=[{"role": "user", "content": EXTRACT}], response_format=Order, max_tokens=200)
    return Order.model_validate_json(reply.choices[0].message.content)


def overflow(at):
    ask(at, messages=[{"role": "user", "content": LONG}])


def cancel(at):
    s = ask(at, stream=True, max_tokens=ENDLESS, extra_body=FOREVER)
    next(iter(s))
    s.completion_stream.close()
