"""haystack-ai: OpenAIChatGenerator."""

import openai
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order, TOOL

PACKAGE = "haystack-ai"
MODULE = "haystack"
OVERFLOW = openai.BadRequestError


class Left(Exception):
    pass


def ask(at, text=MKDIR, callback=None, tools=None, **fields):
    chat = OpenAIChatGenerator(api_key=Secret.from_token(at.key), model=at.model, api_base_url=at.base, max_retries=0,
                               streaming_callback=callback, tools=tools,
                               generation_kwargs={"temperature": 0, "max_tokens": 60, **fields})
    return chat.run([ChatMessage.from_user(text)])["replies"][0]


def hello(at):
    return ask(at).text


def stream(at):
    parts = []
    ask(at, callback=lambda chunk: parts.append(chunk.content))
    return [p for p in parts if p]


def tools(at):
    function = TOOL["function"]
    tool = Tool(name=function["name"], description=function["description"], parameters=function["parameters"],
                function=lambda city: "15:20")
    call = ask(at, tools=[tool], tool_choice="required", max_tokens=200).tool_calls[0]
    return call.tool_name, call.arguments


def structured(at):
    return Order.model_validate_json(ask(at, EXTRACT, response_format=Order, max_tokens=200).text)


def overflow(at):
    ask(at, LONG)


def cancel(at):
    """Its callback stops it."""
    def leave(chunk):
        if chunk.content:
            raise Left
    try:
        ask(at, callback=leave, max_tokens=ENDLESS, extra_body=FOREVER)
    except Left:
        pass
