"""huggingface_hub: InferenceClient."""

import functools
import json

from huggingface_hub import InferenceClient
from huggingface_hub.errors import BadRequestError

from sdk import ASK, ENDLESS, EXTRACT, FOREVER, LONG, Order, TOOL

PACKAGE = "huggingface-hub"
OVERFLOW = BadRequestError


# A client that is collected closes its streams.
client = functools.cache(InferenceClient)


def ask(at, **fields):
    chat = client(base_url=at.base, api_key=at.key).chat_completion
    return chat(**{"model": at.model, "messages": ASK, "temperature": 0, "max_tokens": 60, **fields})


def hello(at):
    return ask(at).choices[0].message.content


def stream(at):
    return [e.choices[0].delta.content for e in ask(at, stream=True) if e.choices and e.choices[0].delta.content]


def tools(at):
    call = ask(at, tools=[TOOL], tool_choice="required", max_tokens=200).choices[0].message.tool_calls[0].function
    return call.name, json.loads(call.arguments)


def structured(at):
    form = {"type": "json_schema", "json_schema": {"name": "Order", "schema": Order.model_json_schema(), "strict": True}}
    reply = ask(at, messages=[{"role": "user", "content": EXTRACT}], response_format=form, max_tokens=200)
    return Order.model_validate_json(reply.choices[0].message.content)


def overflow(at):
    ask(at, messages=[{"role": "user", "content": LONG}])


def cancel(at):
    s = ask(at, stream=True, max_tokens=ENDLESS, extra_body=FOREVER)
    next(iter(s))
    s.close()
