"""openai: Responses."""

import json

import openai

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order, TOOL

PACKAGE = "openai"
OVERFLOW = openai.BadRequestError


def responses(at):
    return openai.OpenAI(base_url=at.base, api_key=at.key, max_retries=0).responses


def ask(at, **fields):
    return responses(at).create(**{"model": at.model, "input": MKDIR, "temperature": 0, "max_output_tokens": 60,
                                   "store": False, **fields})


def hello(at):
    return ask(at).output_text


def stream(at):
    return [e.delta for e in ask(at, stream=True) if e.type == "response.output_text.delta"]


def tools(at):
    tool = {"type": "function", **TOOL["function"], "strict": True}
    output = ask(at, tools=[tool], tool_choice="required", max_output_tokens=200).output
    call = next(o for o in output if o.type == "function_call")
    return call.name, json.loads(call.arguments)


def structured(at):
    return responses(at).parse(model=at.model, input=EXTRACT, text_format=Order, max_output_tokens=200, temperature=0,
                               store=False).output_parsed


def overflow(at):
    ask(at, input=LONG)


def cancel(at):
    with ask(at, stream=True, max_output_tokens=ENDLESS, extra_body=FOREVER) as s:
        next(e for e in s if e.type == "response.output_text.delta")
