"""openai: chat completions."""

import json

import openai

from sdk import ASK, ENDLESS, EXTRACT, FOREVER, LONG, Order, TOOL

PACKAGE = "openai"
OVERFLOW = openai.BadRequestError


def chats(at):
    return openai.OpenAI(base_url=at.base, api_key=at.key, max_retries=0).chat.completions


def ask(at, **fields):
    return chats(at).create(**{"model": at.model, "messages": ASK, "temperature": 0, "max_tokens": 60, **fields})


def hello(at):
    return ask(at).choices[0].message.content


def stream(at):
    return [e.choices[0].delta.content for e in ask(at, stream=True) if e.choices and e.choices[0].delta.content]


def tools(at):
    call = ask(at, tools=[TOOL], tool_choice="required", max_tokens=200).choices[0].message.tool_calls[0].function
    return call.name, json.loads(call.arguments)


def structured(at):
    fields = {"model": at.model, "messages": [{"role": "user", "content": EXTRACT}], "max_tokens": 200, "temperature": 0}
    return chats(at).parse(response_format=Order, **fields).choices[0].message.parsed


def overflow(at):
    ask(at, messages=[{"role": "user", "content": LONG}])


def cancel(at):
    with ask(at, stream=True, max_tokens=ENDLESS, extra_body=FOREVER) as s:
        next(iter(s))
