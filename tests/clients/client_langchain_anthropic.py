"""langchain-anthropic: ChatAnthropic."""

import anthropic
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool

from sdk import ENDLESS, EXTRACT, LONG, MKDIR, Order

PACKAGE = "langchain-anthropic"
OVERFLOW = anthropic.BadRequestError


@tool
def get_time(city: str) -> str:
    """Local time of a city."""
    return "15:20"


def chat(at, more=None, **options):
    return ChatAnthropic(**{"base_url": at.url, "api_key": at.key, "model": at.model, "max_retries": 0, "max_tokens": 60,
                            "model_kwargs": {"extra_body": {"temperature": 0, **(more or {})}}, **options})


def hello(at):
    return chat(at).invoke(MKDIR).content


def stream(at):
    return [c.text for c in chat(at).stream(MKDIR) if c.text]


def tools(at):
    call = chat(at, max_tokens=200).bind_tools([get_time], tool_choice="any").invoke(MKDIR).tool_calls[0]
    return call["name"], call["args"]


def structured(at):
    return chat(at, max_tokens=200).with_structured_output(Order, method="json_schema").invoke(EXTRACT)


def overflow(at):
    chat(at).invoke(LONG)


def cancel(at):
    s = chat(at, {"ignore_eos": True}, max_tokens=ENDLESS).stream(MKDIR)
    next(c for c in s if c.text)
    s.close()
