"""llama-index: OpenAILike."""

import openai
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "llama-index-llms-openai-like"
MODULE = "llama_index"
OVERFLOW = openai.BadRequestError


def get_time(city: str) -> str:
    """Local time of a city."""
    return "15:20"


def llm(at, **options):
    return OpenAILike(**{"model": at.model, "api_base": at.base, "api_key": at.key, "is_chat_model": True, "temperature": 0,
                         "is_function_calling_model": True, "max_tokens": 60, "max_retries": 0, **options})


def hello(at):
    return llm(at).complete(MKDIR).text


def stream(at):
    return [part.delta for part in llm(at).stream_complete(MKDIR) if part.delta]


def tools(at):
    chat = llm(at, max_tokens=200)
    reply = chat.chat_with_tools([FunctionTool.from_defaults(get_time)], user_msg=MKDIR, tool_required=True)
    call = chat.get_tool_calls_from_response(reply)[0]
    return call.tool_name, call.tool_kwargs


def structured(at):
    return llm(at, max_tokens=200).structured_predict(Order, PromptTemplate(EXTRACT))


def overflow(at):
    llm(at).complete(LONG)


def cancel(at):
    s = llm(at, max_tokens=ENDLESS, additional_kwargs={"extra_body": FOREVER}).stream_complete(MKDIR)
    next(part for part in s if part.delta)
    s.close()
