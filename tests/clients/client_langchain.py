"""langchain-openai: ChatOpenAI."""

import openai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "langchain-openai"
OVERFLOW = openai.BadRequestError


@tool
def get_time(city: str) -> str:
    """Local time of a city."""
    return "15:20"


def chat(at, **options):
    return ChatOpenAI(**{"base_url": at.base, "api_key": at.key, "model": at.model, "temperature": 0, "max_retries": 0,
                         "max_tokens": 60, **options})


def hello(at):
    return chat(at).invoke(MKDIR).content


def stream(at):
    return [c.content for c in chat(at).stream(MKDIR) if c.content]


def tools(at):
    call = chat(at, max_tokens=200).bind_tools([get_time], tool_choice="any").invoke(MKDIR).tool_calls[0]
    return call["name"], call["args"]


def structured(at):
    return chat(at, max_tokens=200).with_structured_output(Order).invoke(EXTRACT)


def overflow(at):
    chat(at).invoke(LONG)


def cancel(at):
    s = chat(at, max_tokens=ENDLESS, extra_body=FOREVER).stream(MKDIR)
    next(c for c in s if c.content)
    s.close()
